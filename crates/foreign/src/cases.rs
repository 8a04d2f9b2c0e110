//! The table of test cases: codes of other systems' encoders, with Mend's name for each code.

use std::path::Path;
use std::process::Command;

use crate::ceph::Ceph;
use crate::driver::Driver;

/// One code of an encoder, with k data and m parity blocks.
#[derive(Clone)]
pub struct Case {
    /// The encoder's name, as its driver and the printed table use it.
    pub encoder: &'static str,
    pub k: usize,
    pub m: usize,
    /// Mend's name for the code.
    pub spec: String,
    /// The name of the code's family in the printed table.
    pub family: String,
    /// Ceph's profile of the code; empty for other encoders.
    pub profile: String,
    /// The shard number of each of Mend's blocks; used by Ceph only.
    pub shards: Vec<usize>,
}

/// Random data with the parity that an encoder computed for it.
pub struct Encoded {
    /// All blocks in Mend's order.
    pub blocks: Vec<Vec<u8>>,
    /// The chunk size: each chunk of a block is divided into sub-blocks separately.
    pub chunk_bytes: usize,
}

/// An encoder of another system.
pub trait Encoder {
    /// Encodes random data.
    ///
    /// # Errors
    /// The encoder's message if it rejects the parameters.
    fn encode(&mut self, case: &Case, random: &mut fastrand::Rng) -> Result<Encoded, String>;
}

/// An encoder, with all cases that it serves.
pub struct Group {
    pub encoder: Box<dyn Encoder>,
    pub cases: Vec<Case>,
}

const COMMON: [(usize, usize); 10] =
    [(2, 1), (3, 2), (4, 2), (6, 3), (8, 3), (8, 4), (10, 4), (12, 4), (16, 4), (20, 4)];
const XOR: [(usize, usize); 4] = [(2, 1), (3, 1), (6, 1), (10, 1)];
const WIDE: [(usize, usize); 6] = [(17, 3), (28, 4), (32, 8), (64, 3), (16, 16), (128, 16)];

pub fn groups(folder: &Path) -> Vec<Group> {
    let group = |encoder: Box<dyn Encoder>, cases| Group { encoder, cases };
    vec![
        group(Box::new(java(folder)), java_cases()),
        group(Box::new(Driver::new(Command::new(folder.join("go-encoders")))), go_cases()),
        group(Box::new(native(folder, Command::new(folder.join("c-encoders")))), c_cases()),
        group(Box::new(python(folder)), python_cases()),
        group(Box::new(Ceph::new(folder)), ceph_cases()),
    ]
}

fn java(folder: &Path) -> Driver {
    let paths =
        std::env::join_paths([folder.join("jars/*"), folder.join("java")]).expect("paths without a colon");
    let mut command = Command::new("java");
    command.arg("-cp").arg(paths).arg("Encoders");
    Driver::new(command)
}

fn native(folder: &Path, mut command: Command) -> Driver {
    let library = format!("root/usr/lib/{}-linux-gnu", std::env::consts::ARCH);
    command.env("LD_LIBRARY_PATH", folder.join(library));
    Driver::new(command)
}

fn python(folder: &Path) -> Driver {
    let mut command = Command::new("python3");
    command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/../../foreign/python/encoders.py"));
    command.env("PYTHONPATH", folder.join("python"));
    native(folder, command)
}

/// Returns cases for several sizes. `spec` is Mend's name for the code, with the letters N, K and M in place
/// of the numbers of all, data and parity blocks.
fn cases(encoder: &'static str, spec: &str, sizes: &[(usize, usize)]) -> Vec<Case> {
    let case = |&(k, m): &(usize, usize)| Case {
        encoder,
        k,
        m,
        spec: named(spec, k, m),
        family: spec.into(),
        profile: String::new(),
        shards: (0..k + m).collect(),
    };
    sizes.iter().map(case).collect()
}

fn named(spec: &str, k: usize, m: usize) -> String {
    spec.replace('N', &(k + m).to_string()).replace('K', &k.to_string()).replace('M', &m.to_string())
}

fn all(k: impl Iterator<Item = usize> + Clone, m: std::ops::RangeInclusive<usize>) -> Vec<(usize, usize)> {
    m.flat_map(|m| k.clone().map(move |k| (k, m))).collect()
}

fn java_cases() -> Vec<Case> {
    [
        cases("hadoop-rs", "rs-N-K", &[&COMMON[..], &WIDE].concat()),
        cases("hadoop-rs-legacy", "rs-N-K-hdfs-raid", &COMMON),
        cases("hadoop-xor", "xor-N-K", &XOR),
        // All sizes are listed, to check that Mend rejects exactly the sizes on which the encoder fails.
        cases("hadoop-hhxor", "hitchhiker-xor-N-K-hadoop", &all(2..=16, 2..=6)),
        cases("ozone-rs", "rs-N-K", &COMMON),
        cases("ozone-xor", "xor-N-K", &XOR),
    ]
    .concat()
}

fn go_cases() -> Vec<Case> {
    let sizes = [&COMMON[..], &WIDE].concat();
    [
        cases("klauspost", "rs-N-K-vandermonde", &sizes),
        cases("klauspost-cauchy", "rs-N-K", &sizes),
        cases("klauspost-jerasure", "rs-N-K-jerasure", &sizes),
        cases("klauspost-par1", "par1-N-K", &[(2, 1), (4, 2), (6, 3), (10, 3), (10, 4), (20, 4)]),
    ]
    .concat()
}

fn c_cases() -> Vec<Case> {
    let powers = [all((1..=64).step_by(7), 1..=3), all((1..=21).step_by(4), 4..=4), vec![(252, 3)]].concat();
    [
        cases("jerasure", "rs-N-K-jerasure", &[&COMMON[..], &WIDE].concat()),
        cases("jerasure-r6", "rs-N-K-isal", &all((2..=32).step_by(6), 2..=2)),
        cases("isal", "rs-N-K-isal", &powers),
        cases("isal-cauchy", "rs-N-K", &[&COMMON[..], &WIDE].concat()),
    ]
    .concat()
}

fn python_cases() -> Vec<Case> {
    let sizes = [(2, 1), (4, 2), (6, 3), (10, 3), (10, 4), (15, 4), (20, 4)];
    [
        cases("swift-isa_l_rs_vand", "rs-N-K-isal", &sizes),
        cases("swift-isa_l_rs_cauchy", "rs-N-K", &sizes),
        cases("swift-isa_l_rs_vand_inv", "rs-N-K-isal-inverse", &sizes),
        cases("zfec", "rs-N-K-zfec", &[&COMMON[..], &WIDE].concat()),
    ]
    .concat()
}

fn ceph_cases() -> Vec<Case> {
    let sizes = [(2, 2), (3, 2), (4, 2), (6, 3), (8, 3), (8, 4), (10, 4)];
    [
        ceph(
            "ceph jerasure reed_sol_van",
            "rs-N-K-jerasure",
            "plugin=jerasure,technique=reed_sol_van",
            &sizes,
        ),
        ceph(
            "ceph jerasure reed_sol_r6_op",
            "rs-N-K-isal",
            "plugin=jerasure,technique=reed_sol_r6_op",
            &sizes[..3],
        ),
        ceph("ceph isa reed_sol_van", "rs-N-K-isal", "plugin=isa,technique=reed_sol_van", &sizes),
        ceph("ceph isa cauchy", "rs-N-K", "plugin=isa,technique=cauchy", &sizes),
        clay("ceph clay jerasure", "jerasure", "jerasure,technique=reed_sol_van"),
        clay("ceph clay isa", "isa", "isa,technique=reed_sol_van"),
        clay("ceph clay isa cauchy", "cauchy", "isa,technique=cauchy"),
        lrc(),
        shec(),
        ceph("ceph isa, m = 1", "xor-N-K", "plugin=isa,technique=cauchy", &XOR),
    ]
    .concat()
}

/// Returns the cases of Ceph's plug-in lrc. The plug-in orders blocks by group. Each group consists of its
/// data, its global parity and its local parity.
fn lrc() -> Vec<Case> {
    let sizes = [(4, 2, 3), (2, 2, 2), (6, 3, 3), (8, 4, 3), (8, 4, 6), (10, 5, 3), (9, 3, 4)];
    let case = |&(k, m, l): &(usize, usize, usize)| {
        let groups = (k + m) / l;
        let part = |group: usize, count: usize, first: usize, size: usize| {
            (0..count / groups).map(move |i| (first + group * count / groups + i, group * (l + 1) + size + i))
        };
        let mut place: Vec<(usize, usize)> = (0..groups)
            .flat_map(|group| {
                let globals = part(group, m, k, k / groups);
                part(group, k, 0, 0).chain(globals).chain([(k + m + group, group * (l + 1) + l)])
            })
            .collect();
        place.sort_unstable();
        Case {
            encoder: "ceph lrc",
            k,
            m: m + groups,
            spec: format!("ceph-lrc-{k}-{m}-{l}"),
            family: "ceph-lrc-K-M-L".into(),
            profile: format!("plugin=lrc,k={k},m={m},l={l}"),
            shards: place.into_iter().map(|(_, shard)| shard).collect(),
        }
    };
    sizes.iter().map(case).collect()
}

fn shec() -> Vec<Case> {
    let sizes = [
        (4, 3, 2),
        (6, 3, 2),
        (8, 4, 3),
        (6, 4, 2),
        (10, 5, 3),
        (10, 6, 4),
        (12, 6, 3),
        (5, 5, 2),
        (4, 2, 2),
    ];
    let mut cases = ceph("ceph shec", "ceph-shec-K-M-C", "plugin=shec", &sizes.map(|(k, m, _)| (k, m)));
    for (case, (_, _, c)) in cases.iter_mut().zip(sizes) {
        case.profile += &format!(",c={c}");
        case.spec = case.spec.replace('C', &c.to_string());
    }
    cases
}

/// Values of k, m and d.
const CLAY: [(usize, usize, usize); 7] =
    [(10, 4, 13), (6, 3, 8), (4, 2, 5), (8, 4, 11), (3, 3, 5), (4, 4, 6), (5, 3, 7)];

fn clay(encoder: &'static str, variant: &str, scalar: &str) -> Vec<Case> {
    let sizes = CLAY.map(|(k, m, _)| (k, m));
    let spec = format!("clay-N-K-D-ceph-{variant}");
    let mut cases = ceph(encoder, &spec, &format!("plugin=clay,scalar_mds={scalar}"), &sizes);
    for (case, (_, _, d)) in cases.iter_mut().zip(CLAY) {
        case.profile += &format!(",d={d}");
        case.spec = case.spec.replace('D', &d.to_string());
    }
    cases
}

fn ceph(encoder: &'static str, spec: &str, profile: &str, sizes: &[(usize, usize)]) -> Vec<Case> {
    let mut cases = cases(encoder, spec, sizes);
    for case in &mut cases {
        case.profile = format!("{profile},k={},m={}", case.k, case.m);
    }
    cases
}
