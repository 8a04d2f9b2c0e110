//! Blocks with valid checksums that are not the requested block.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use codes::BlockIndex;
use dir::DirBlocks;
use repair::wire::control::{Description, HeldBlock};
use repair::{BlockId, Digest, LocalBlock, Sink, SinkEnd};
use store_api::{BlockError, BlockReader, Blocks, Delivery, Gate, Sinks, Sources};

use crate::cluster::{Cluster, noise};

/// The two files of a block: its bytes and its checksums.
struct Pair {
    block: Vec<u8>,
    checksums: Vec<u8>,
}

impl Pair {
    fn read(block: &Path) -> Self {
        Self { block: fs::read(block).unwrap(), checksums: fs::read(checksums(block)).unwrap() }
    }

    /// Returns the files that a helper would write for a block with this name and content.
    fn forged(name: &str, bytes: &[u8]) -> Self {
        let scratch = tempfile::tempdir().unwrap();
        let blocks = DirBlocks::open(scratch.path()).unwrap();
        let id = BlockId(name.to_owned());
        let sink = Sink {
            index: BlockIndex(0),
            id: id.clone(),
            bytes: bytes.len() as u64,
            digest: None,
            end: SinkEnd::Kept { label: None, permit: None },
        };
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

    /// Replaces a block's files.
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

/// Returns all kinds of wrong blocks with matching checksums, each with a description.
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
fn reads_reject_consistent_impostor_blocks() {
    let cluster = Cluster::new(7, "rs-6-4", "64KiB");
    let content = cluster.put("film", 512 << 10);
    cluster.mend(&["node", "repair-after", "never"]).ok();
    let (file, name) = (cluster.block_file("1.0"), cluster.block_name("1.0"));
    for (kind, pair) in impostors(&cluster, "1.0") {
        pair.replace(&file);
        // The first read discovers the wrong block; the second one finds it marked as corrupt.
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
fn neither_reads_nor_repairs_decode_from_an_impostor_block() {
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

/// A store that describes its blocks correctly but returns wrong bytes.
struct Liar(DirBlocks);

struct LyingReader(Arc<dyn BlockReader>);

impl Sources for Liar {
    fn open(&self, block: &LocalBlock) -> Result<Arc<dyn BlockReader>, BlockError> {
        Ok(Arc::new(LyingReader(self.0.open(block)?)))
    }
}

impl Sinks for Liar {
    fn deliver(&self, sink: &Sink) -> Result<Delivery, BlockError> {
        self.0.deliver(sink)
    }
}

impl Blocks for Liar {
    fn verify(&self, block: &BlockId, gate: &dyn Gate) -> Result<Option<Digest>, BlockError> {
        self.0.verify(block, gate)
    }

    fn remove(&self, block: &BlockId) -> Result<bool, BlockError> {
        self.0.remove(block)
    }

    fn list(&self) -> Result<Vec<HeldBlock>, BlockError> {
        self.0.list()
    }

    fn describe(&self, block: &BlockId) -> Result<Description, BlockError> {
        self.0.describe(block)
    }

    fn free_bytes(&self) -> Result<u64, BlockError> {
        self.0.free_bytes()
    }
}

impl BlockReader for LyingReader {
    fn bytes(&self) -> u64 {
        self.0.bytes()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), BlockError> {
        self.0.read_at(offset, buffer)?;
        buffer.iter_mut().step_by(1000).for_each(|byte| *byte ^= 1);
        Ok(())
    }

    fn digest(&self) -> Option<repair::Digest> {
        self.0.digest()
    }
}

/// Runs, until the test ends, a helper that has a valid certificate but returns wrong bytes.
fn run_liar(cluster: &Cluster, name: &str) {
    run_helper(cluster, name, |folder| Arc::new(Liar(DirBlocks::open(folder).unwrap())));
}

/// Runs a helper with its valid certificate and a custom store until the test ends.
pub fn run_helper(cluster: &Cluster, name: &str, store: impl FnOnce(PathBuf) -> Arc<dyn Blocks>) {
    let opened = cluster::Cluster::open(&cluster.folder()).unwrap();
    let name: cluster::Name = name.parse().unwrap();
    let config = opened.config().helper(&name).unwrap().clone();
    let identity = opened.identity(&cluster::Role::Helper(name)).unwrap();
    let blocks = store(opened.blocks_folder(&config));
    let options = helper::DaemonOptions::new(&opened, &config, identity, blocks);
    let (ready, is_ready) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let daemon = helper::Daemon::bind(options).await.unwrap();
            let told = || {
                let _ = ready.send(()); // After the first call, the receiver is gone.
            };
            let _ = daemon.run(told).await; // The daemon ends after the coordinator has gone permanently.
        });
    });
    is_ready.recv_timeout(crate::cluster::LIMIT).unwrap();
}

#[test]
fn a_helper_that_lies_is_found_by_a_read_that_is_verified() {
    let mut cluster = Cluster::new(7, "rs-6-4", "64KiB");
    let content = cluster.put("film", 1 << 20);
    let liar = cluster.holder("1.0");
    cluster.kill(&liar);
    run_liar(&cluster, &liar);
    // Partial reads without --verify accept the wrong bytes, as docs/explanation/checks.md documents.
    let copy = cluster.path("lie");
    cluster.mend(&["get", "film", "-o", copy.to_str().unwrap(), "--range", "0+60000"]).ok();
    assert!(fs::read(&copy).unwrap() != content[..60_000], "the helper does not lie");
    // Whole blocks are verified against their digests.
    let said = cluster.assert_reads("film", &content, &[]);
    assert!(said.out.contains("arrived with wrong bytes"), "{said:?}");
    let said = cluster.assert_reads("film", &content, &["--verify"]);
    assert!(said.out.contains("is not used") && !said.out.contains("not verified"), "{said:?}");
    cluster.assert_reads("film", &content[70_000..90_000], &["--verify", "--range", "70000+20000"]);
    // With another helper down, a spare block is still left. Wrong bytes are detected even in a block that is
    // decoded from the lying helper's block.
    let other = (1..=7).map(|helper| format!("h{helper}")).find(|helper| *helper != liar).unwrap();
    cluster.kill(&other);
    let read = cluster.mend(&["get", "film", "-o", copy.to_str().unwrap(), "--verify"]);
    assert!(read.code != 0 || fs::read(&copy).unwrap() == content, "{read:?}");
}
