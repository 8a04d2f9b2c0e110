//! Blocks that are whole by their own checksums, and are not the block that was asked for.

use std::fs;
use std::path::{Path, PathBuf};

use codes::BlockIndex;
use repair::{BlockId, Sink};
use stores::Blocks;
use stores::dir::DirBlocks;

use crate::cluster::{Cluster, noise};

/// The two files of a block, as they are now.
struct Pair {
    block: Vec<u8>,
    checksums: Vec<u8>,
}

impl Pair {
    fn read(block: &Path) -> Self {
        Self { block: fs::read(block).unwrap(), checksums: fs::read(checksums(block)).unwrap() }
    }

    /// A pair that a helper would make for a block of this name and these bytes.
    fn forged(name: &str, bytes: &[u8]) -> Self {
        let scratch = tempfile::tempdir().unwrap();
        let blocks = DirBlocks::open(scratch.path()).unwrap();
        let id = BlockId(name.to_owned());
        let sink = Sink { index: BlockIndex(0), id: id.clone(), bytes: bytes.len() as u64, label: None };
        let mut writer = blocks.create(&sink).unwrap();
        writer.write_at(0, bytes).unwrap();
        writer.seal().unwrap();
        writer.commit().unwrap();
        let made = fs::read_dir(scratch.path()).unwrap().find_map(|shard| {
            let file = shard.unwrap().path().join(name);
            file.is_file().then_some(file)
        });
        Self::read(&made.unwrap())
    }

    /// Puts it in the place of a block.
    fn replace(&self, block: &Path) {
        fs::write(block, &self.block).unwrap();
        fs::write(checksums(block), &self.checksums).unwrap();
    }
}

fn checksums(block: &Path) -> PathBuf {
    let mut name = block.as_os_str().to_owned();
    name.push(".crc");
    name.into()
}

/// Every kind of pair that is whole and wrong, by its name.
fn impostors(cluster: &Cluster, block: &str) -> Vec<(&'static str, Pair)> {
    let (name, file) = (cluster.block_name(block), cluster.block_file(block));
    let own = Pair::read(&file).block;
    vec![
        ("other data", Pair::forged(&name, &noise(own.len() + 1)[1..])),
        ("one byte", Pair::forged(&name, &[&[own[0] ^ 1], &own[1..]].concat())),
        ("truncated", Pair::forged(&name, &own[..own.len() / 2])),
        ("longer", Pair::forged(&name, &[&own[..], &[0; 4096]].concat())),
        ("empty", Pair::forged(&name, &[])),
        ("another block of the stripe", Pair::read(&cluster.block_file("1.2"))),
        ("another stripe's block", Pair::read(&cluster.block_file("2.0"))),
    ]
}

#[test]
fn no_read_takes_a_block_that_is_whole_and_not_the_one() {
    let cluster = Cluster::new(7, "rs-6-4", "64KiB");
    let content = cluster.put("film", 512 << 10);
    let (file, name) = (cluster.block_file("1.0"), cluster.block_name("1.0"));
    for (kind, pair) in impostors(&cluster, "1.0") {
        pair.replace(&file);
        // Once without any loss, and once more now that it is marked.
        cluster.assert_reads("film", &content, &[]);
        cluster.assert_reads("film", &content[1000..70_000], &["--range", "1000+69000"]);
        let stat = cluster.mend(&["stat", "1", "--output", "json"]).ok().json();
        assert_eq!(stat["blocks"][0]["state"], "corrupt", "{kind}: {stat}");
        cluster.mend(&["scrub"]).fails_with(&[&name]);
        cluster.mend(&["repair", "--all"]).ok();
        cluster.mend(&["scrub"]).ok();
        cluster.assert_reads("film", &content, &[]);
    }
}

#[test]
fn no_degraded_read_and_no_repair_decodes_from_a_block_that_is_not_the_one() {
    let cluster = Cluster::new(8, "rs-6-4", "64KiB");
    let content = cluster.put("film", 512 << 10);
    for (kind, pair) in impostors(&cluster, "1.1") {
        fs::remove_file(cluster.block_file("1.0")).unwrap();
        pair.replace(&cluster.block_file("1.1"));
        let scheme = if kind.len() % 2 == 0 { "pipelined" } else { "conventional" };
        cluster.assert_reads("film", &content, &["--scheme", scheme]);
        cluster.mend(&["repair", "--all"]).ok();
        cluster.mend(&["scrub"]).ok();
        let status = cluster.mend(&["status"]).ok();
        assert!(status.out.starts_with("safe"), "{kind}: {status:?}");
        cluster.assert_reads("film", &content, &[]);
    }
}
