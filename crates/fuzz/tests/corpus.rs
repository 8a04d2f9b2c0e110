//! Runs every target on its seeds and on mutations of the seeds, with a fixed random seed.
//!
//! `MEND_FUZZ_RUNS` is the number of mutations for each target. A failure prints the input; add it to
//! `fuzz/seeds` under a name that starts with `found-` to keep it as a regression test.

mod mutation;

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use fuzz::{TARGETS, Target};
use mutation::Mutator;

const FUZZ: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz");
const RUNS: u64 = 4000;

fn seeds(target: &Target) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = Path::new(FUZZ).join("seeds").join(target.name);
    let mut seeds: Vec<_> = std::fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.clone(), std::fs::read(path).unwrap()))
        .collect();
    seeds.sort();
    assert!(!seeds.is_empty(), "{} is empty", folder.display());
    seeds
}

#[test]
fn every_seed_is_taken_by_its_decoder() {
    for target in TARGETS {
        for (path, bytes) in seeds(target) {
            let is_ours = !path.file_name().unwrap().to_str().unwrap().starts_with("found-");
            let accepted = (target.run)(&bytes);
            assert!(
                accepted || !is_ours,
                "{} is refused; regenerate the seeds: cargo run -p fuzz --example corpus",
                path.display()
            );
        }
    }
}

#[test]
fn mutations_do_no_harm() {
    let runs = std::env::var("MEND_FUZZ_RUNS").map_or(RUNS, |runs| runs.parse().expect("a number of runs"));
    std::thread::scope(|scope| {
        for target in TARGETS {
            scope.spawn(move || mutate(target, runs));
        }
    });
}

fn mutate(target: &Target, runs: u64) {
    let corpus: Vec<Vec<u8>> = seeds(target).into_iter().map(|(_, bytes)| bytes).collect();
    let mut mutator = Mutator::new(target.name);
    let mut taken = 0;
    for run in 0..runs {
        let input = mutator.mutated(&corpus);
        match catch_unwind(AssertUnwindSafe(|| (target.run)(&input))) {
            Ok(accepted) => taken += u64::from(accepted),
            Err(_) => panic!("{} fails in run {run} on b\"{}\"", target.name, input.escape_ascii()),
        }
    }
    println!("{}: {taken} of {runs} mutations were taken", target.name);
    assert!(0 < taken && taken < runs, "{}: mutations that are all alike test nothing", target.name);
}

#[test]
fn cargo_fuzz_has_a_file_for_every_target() {
    let stems = |folder: &str| -> BTreeSet<String> {
        let entries = std::fs::read_dir(Path::new(FUZZ).join(folder)).unwrap();
        entries.map(|entry| entry.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned()).collect()
    };
    let manifest = std::fs::read_to_string(Path::new(FUZZ).join("Cargo.toml")).unwrap();
    let targets: BTreeSet<String> = TARGETS.iter().map(|target| target.name.to_owned()).collect();
    assert_eq!(stems("fuzz_targets"), targets);
    assert_eq!(stems("seeds"), targets);
    for name in &targets {
        let file = format!("fuzz_targets/{name}.rs");
        assert!(manifest.contains(&format!("path = \"{file}\"")), "fuzz/Cargo.toml lacks {file}");
        let text = std::fs::read_to_string(Path::new(FUZZ).join(&file)).unwrap();
        assert!(text.contains(&format!("fuzz::run(\"{name}\", data)")), "{file} runs another target");
    }
}
