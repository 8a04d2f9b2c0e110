//! Tests wrong bytes that no CRC32C detects, not even in a block that is decoded from them, and helpers that
//! store wrong bytes. Also tests blocks without a digest of the whole block, as earlier versions of Mend
//! stored them.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use dir::DirBlocks;
use repair::wire::control::{Description, HeldBlock};
use repair::wire::edge::crc32c;
use repair::{BlockId, Digest, LocalBlock, Sink};
use store_api::{
    BlockError, BlockReader, BlockWriter, Blocks, Delivery, Gate, Intake, Publish, ReadBack, Sinks, Sources,
};

use crate::cluster::Cluster;
use crate::forging::{self, FORGED_BYTES};
use crate::identity::run_helper;

/// Changes bytes of a file without changing any checksum.
fn forge(file: &Path, offset: u64) {
    let before = fs::read(file).unwrap();
    let mut after = before.clone();
    forging::forge(after[offset as usize..].first_chunk_mut().unwrap(), 0x5b);
    assert!(before != after);
    for (before, after) in before.chunks(4096).zip(after.chunks(4096)) {
        assert_eq!(crc32c(&[before]), crc32c(&[after]), "the checksums would tell");
    }
    let file = OpenOptions::new().write(true).open(file).unwrap();
    file.write_all_at(&after[offset as usize..][..FORGED_BYTES], offset).unwrap();
}

/// A get reports the wrong block to the coordinator, which has the block's helper verify it.
#[test]
fn a_block_that_is_forged_behind_its_checksums_is_read_around_reported_and_mended() {
    let cluster = Cluster::new(7, "rs-6-4", "64KiB");
    let content = cluster.put("film", 512 << 10);
    cluster.mend(&["node", "repair-after", "never"]).ok();
    let (first, second) = (cluster.block_name("1.1"), cluster.block_name("2.1"));
    let honest = ["1.1", "2.1"].map(|block| fs::read(cluster.block_file(block)).unwrap());
    forge(&cluster.block_file("1.1"), 8192 + 100);
    let said = cluster.assert_reads("film", &content, &[]);
    assert!(said.out.contains(&first) && said.out.contains("mend scrub"), "{said:?}");
    let is_found = |cluster: &Cluster, stripe: &str| {
        let stat = cluster.mend(&["stat", stripe, "--output", "json"]).ok().json();
        stat["blocks"][1]["state"] == "corrupt"
    };
    cluster.eventually("its helper has verified it", |cluster| is_found(cluster, "1"));
    // From now on, ranges in the wrong block are decoded from the other blocks.
    let range = (64 << 10) + 8192;
    cluster.assert_reads("film", &content[range..range + 300], &["--range", &format!("{range}+300")]);
    forge(&cluster.block_file("2.1"), 8192 + 100);
    let stream = cluster.spawn(&["get", "film", "-o", "-"]).wait_with_output().unwrap();
    let note = String::from_utf8_lossy(&stream.stderr);
    assert!(stream.status.success() && stream.stdout == content && note.contains(&second), "{note}");
    cluster.eventually("its helper has verified it", |cluster| is_found(cluster, "2"));
    let scrub = cluster.mend(&["scrub"]).fails_with(&[&first, &second, "digest"]);
    assert_eq!(scrub.code, 3, "{scrub:?}");
    let status = cluster.mend(&["status"]).ok();
    assert!(!status.out.starts_with("safe"), "{status:?}");
    cluster.mend(&["node", "repair-after", "default"]).ok();
    cluster.eventually("both are rebuilt", |cluster| cluster.mend(&["status"]).out.starts_with("safe"));
    cluster.mend(&["scrub"]).ok();
    assert!(["1.1", "2.1"].map(|block| fs::read(cluster.block_file(block)).unwrap()) == honest);
    cluster.assert_reads("film", &content, &[]);
}

/// One block of a stripe is lost and one is forged, so parity detects an error without locating it. The
/// recorded digest of the lost block shows which rebuilt block is correct.
#[test]
fn no_block_decoded_from_a_forged_one_is_published_or_read() {
    for (code, helpers) in [("rs-6-4", 8), ("rs-5-4", 7), ("clay-6-4-5", 8)] {
        let cluster = Cluster::new(helpers, code, "64KiB");
        let content = cluster.put("film", 256 << 10);
        cluster.mend(&["node", "repair-after", "never"]).ok();
        let (lost, forged) = (cluster.block_file("1.0"), cluster.block_file("1.1"));
        let honest = fs::read(&lost).unwrap();
        forge(&forged, 4096 + 7);
        fs::remove_file(&lost).unwrap();
        let copy = cluster.path("copy");
        let read = cluster.mend(&["get", "film", "-o", copy.to_str().unwrap()]);
        assert!(read.code == 3 || read.code == 0 && fs::read(&copy).unwrap() == content, "{code}: {read:?}");
        let repair = cluster.mend(&["repair", "1.0"]);
        assert!([0, 3].contains(&repair.code), "{code}: {repair:?}");
        let name = lost.file_name().unwrap();
        let made: Vec<PathBuf> =
            cluster.block_files().into_iter().filter(|file| file.file_name() == Some(name)).collect();
        assert!(made.iter().all(|file| fs::read(file).unwrap() == honest), "{code}: {repair:?}");
        assert_eq!(made.len(), usize::from(repair.code == 0), "{code}: {repair:?}");
        // With five of six blocks left, the repair can leave out the forged block. With four of five left, it
        // needs all four.
        assert_eq!(repair.code == 0, code != "rs-5-4", "{code}: {repair:?}");
        cluster.mend(&["scrub"]).fails_with(&[forged.file_name().unwrap().to_str().unwrap()]);
        if code != "rs-5-4" {
            cluster.mend(&["repair", "--all"]).ok();
            cluster.mend(&["scrub"]).ok();
            cluster.assert_reads("film", &content, &[]);
        }
    }
}

/// Converts a checksum file to the old format, whose labels have no digest.
fn strip_digest(block: &Path) {
    let path = PathBuf::from(format!("{}.crc", block.display()));
    let bytes = fs::read(&path).unwrap();
    let start = bytes.windows(10).position(|window| window == b"\"digest\":\"").expect("it has one");
    let end = start + bytes[start..].windows(2).position(|window| window == b"\",").unwrap() + 2;
    let label = bytes[..start].iter().rposition(|&byte| byte == b'{').unwrap();
    let label_bytes = (bytes.len() - 4 - label - (end - start)) as u32;
    let mut old =
        [&bytes[..label - 4], &label_bytes.to_be_bytes(), &bytes[label..start], &bytes[end..bytes.len() - 4]]
            .concat();
    old.extend(crc32c(&[&old]).to_be_bytes());
    fs::write(path, old).unwrap();
}

/// Converts all blocks to the old format without digests, and rebuilds the catalog from them.
pub fn forget_digests(cluster: &mut Cluster) {
    cluster.kill("coordinator");
    cluster.block_files().iter().for_each(|file| strip_digest(file));
    fs::remove_file(cluster.folder().join("coordinator/catalog.redb")).unwrap();
    cluster.mend(&["catalog", "rebuild"]).ok();
    cluster.start(&["coordinator"]);
    cluster.await_ready();
    let is_safe = |cluster: &Cluster| cluster.mend(&["status"]).out.starts_with("safe");
    cluster.eventually("the helpers are back", is_safe);
}

#[test]
fn blocks_without_digests_are_read_checked_and_repaired() {
    let mut cluster = Cluster::new(7, "rs-6-4", "64KiB");
    let content = cluster.put("film", 512 << 10);
    cluster.mend(&["node", "repair-after", "never"]).ok();
    let (lost, honest) = (cluster.block_name("1.0"), fs::read(cluster.block_file("1.0")).unwrap());
    forget_digests(&mut cluster);
    cluster.assert_reads("film", &content, &[]);
    cluster.mend(&["scrub"]).ok();
    fs::remove_file(cluster.block_file("1.0")).unwrap();
    cluster.mend(&["scrub"]).fails_with(&[&lost]);
    cluster.assert_reads("film", &content, &[]);
    cluster.mend(&["repair", "--all"]).ok();
    assert!(fs::read(cluster.block_file("1.0")).unwrap() == honest);
    // The digest recorded for a rebuilt block is of the same kind as that of the lost block, so that the two
    // digests can be compared.
    let stat = cluster.mend(&["stat", "1", "--output", "json"]).ok().json();
    let kinds = stat["blocks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|block| block["digest"].as_str().unwrap().split(':').next().unwrap());
    assert!(kinds.into_iter().all(|kind| kind == "crc32c-list"), "{stat}");
    cluster.mend(&["scrub"]).ok();
    cluster.assert_reads("film", &content, &[]);
    // New files can still be stored and scrubbed.
    cluster.put("another", 100 << 10);
    let stripes = cluster.mend(&["ls", "--long"]).ok();
    assert!(stripes.out.contains("another"), "{stripes:?}");
    cluster.mend(&["scrub"]).ok();
}

/// A store that changes a byte on write.
struct Garbler(DirBlocks);

struct GarblingWriter(Box<dyn Publish>);

impl Intake for GarblingWriter {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<(), BlockError> {
        let mut bytes = bytes.to_vec();
        bytes[0] ^= 1;
        self.0.write_at(offset, &bytes)
    }

    fn reader(&self) -> Result<Arc<dyn BlockReader>, BlockError> {
        self.0.reader()
    }
}

impl BlockWriter for GarblingWriter {
    fn seal(&mut self) -> Result<Option<Digest>, BlockError> {
        self.0.seal()
    }
}

impl Publish for GarblingWriter {
    fn read_back_behind(&mut self, gate: Arc<dyn Gate>) {
        self.0.read_back_behind(gate);
    }

    fn commit(self: Box<Self>) -> Result<Option<ReadBack>, BlockError> {
        self.0.commit()
    }
}

impl Sources for Garbler {
    fn open(&self, block: &LocalBlock) -> Result<Arc<dyn BlockReader>, BlockError> {
        self.0.open(block)
    }
}

impl Sinks for Garbler {
    fn deliver(&self, sink: &Sink) -> Result<Delivery, BlockError> {
        Ok(Delivery::Published(Box::new(GarblingWriter(self.0.create(sink)?))))
    }
}

impl Blocks for Garbler {
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

#[test]
fn a_put_is_not_committed_when_a_helper_stored_other_bytes_than_were_sent() {
    let mut cluster = Cluster::new(6, "rs-6-4", "64KiB");
    let content = cluster.put("film", 256 << 10);
    // Only two of the six blocks of a stripe are parity, so at least one of these three helpers garbles a
    // data block.
    for helper in ["h1", "h2", "h3"] {
        cluster.kill(helper);
        run_helper(&cluster, helper, |folder| Arc::new(Garbler(DirBlocks::open(folder).unwrap())));
    }
    let again = cluster.path("again");
    fs::write(&again, &content).unwrap();
    let put = cluster
        .mend(&["put", again.to_str().unwrap()])
        .fails_with(&["stored by one of h", "run `mend put` again"]);
    assert_eq!(put.code, 3, "{put:?}");
    let listed = cluster.mend(&["ls"]).ok();
    assert_eq!(listed.out.trim(), "film", "{listed:?}");
    cluster.assert_reads("film", &content, &[]);
}
