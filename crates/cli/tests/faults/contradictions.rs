//! Wrong blocks with matching checksums, which only parity or a strong digest detects, and requestors that
//! report false digests.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use dir::DirBlocks;
use repair::wire::control::{Description, HeldBlock};
use repair::{BlockId, Digest, LocalBlock, Sink};
use store_api::{
    BlockError, BlockReader, BlockWriter, Blocks, Delivery, Gate, Intake, Publish, ReadBack, Sinks, Sources,
};

use crate::cluster::{Cluster, Said};
use crate::forgeries::forget_digests;
use crate::forging;
use crate::identity::run_helper;

/// Changes a block's file without changing any CRC32C; a second call reverts it.
fn forge(file: &Path) {
    let mut bytes = fs::read(file).unwrap();
    forging::forge(bytes[100..].first_chunk_mut().unwrap(), 0x5b);
    fs::write(file, bytes).unwrap();
}

/// Stores a file of one stripe, deletes block 0 and has a scrub report the loss. Returns the contents of the
/// file and of the block.
fn with_a_lost_block(cluster: &Cluster, bytes: usize) -> (Vec<u8>, Vec<u8>) {
    let content = cluster.put("film", bytes);
    (content, lose_block(cluster))
}

/// Like [`with_a_lost_block`], but the recorded digests of the blocks are only lists of CRC32C checksums.
fn with_a_lost_block_and_checksums_alone(cluster: &mut Cluster, bytes: usize) -> (Vec<u8>, Vec<u8>) {
    let content = cluster.put("film", bytes);
    forget_digests(cluster);
    (content, lose_block(cluster))
}

fn lose_block(cluster: &Cluster) -> Vec<u8> {
    // Automatic repair is off; the test starts repairs itself.
    cluster.mend(&["node", "repair-after", "never"]).ok();
    let lost = fs::read(cluster.block_file("1.0")).unwrap();
    fs::remove_file(cluster.block_file("1.0")).unwrap();
    cluster.mend(&["scrub"]).fails_with(&[&cluster.block_name("1.0")]);
    lost
}

fn states(cluster: &Cluster) -> Vec<String> {
    let stat = cluster.mend(&["stat", "1", "--output", "json"]).ok().json();
    let blocks = stat["blocks"].as_array().unwrap();
    blocks.iter().map(|block| block["state"].as_str().unwrap().to_owned()).collect()
}

#[track_caller]
fn assert_damage(said: Said, text: &str) {
    let said = said.fails_with(&[text]);
    assert_eq!(said.code, 3, "{said:?}");
}

/// Asserts that every verb reports the stripe as in doubt and returns no wrong data.
#[track_caller]
fn assert_in_doubt(cluster: &Cluster) {
    let status = cluster.mend(&["status"]);
    assert!(status.out.starts_with("IN DOUBT  ") && !status.out.contains("safe"), "{status:?}");
    assert!(status.out.contains(&cluster.block_name("1.1")), "it names the blocks: {status:?}");
    assert_eq!(status.code, 3, "{status:?}");
    let check = cluster.mend(&["status", "--check"]);
    assert!(check.code == 2 && check.out.starts_with("MEND CRITICAL - IN DOUBT"), "{check:?}");
    let copy = cluster.path("doubtful");
    for verify in [&["--verify"][..], &[]] {
        let get = [&["get", "film", "-o", copy.to_str().unwrap()], verify].concat();
        assert_damage(cluster.mend(&get), "contradict each other");
        assert!(!copy.exists(), "bytes that may be false were kept");
    }
}

/// Asserts that the safety checks treat a stripe in doubt as one that cannot lose another block.
#[track_caller]
fn assert_nothing_to_spare(cluster: &Cluster) {
    let stop = ["node", "ok-to-stop", &cluster.holder("1.2"), "--leave", "0"];
    cluster.mend(&stop).fails_with(&["NOT OK", "contradict each other", "mend scrub --parity"]);
    let status = cluster.mend(&["status", "--output", "json"]).json();
    let class = &status["stripes"]["redundancy"][0];
    assert_eq!((class["survives"].as_u64(), class["helpers"].as_u64()), (Some(0), Some(0)), "{status:#}");
    let stat = cluster.mend(&["stat", "1", "--output", "json"]).ok().json();
    assert_eq!(stat["survives"], 0, "{stat:#}");
}

/// Asserts that the lost block was rebuilt correctly, and that the forged block is found, for this reason, and rebuilt.
fn assert_mended(cluster: &Cluster, content: &[u8], lost: &[u8], forged: (&str, &[u8]), why: &str) {
    assert_eq!(states(cluster)[0], "healthy");
    assert!(fs::read(cluster.block_file("1.0")).unwrap() == lost, "a false block was published");
    let (block, truth) = forged;
    cluster.eventually("the false block is found", |cluster| {
        let status = cluster.mend(&["status", "--output", "json"]).json();
        status["lost_lately"].as_array().unwrap().iter().any(|found| {
            let problem = found["problem"].as_str().unwrap();
            found["block"] == cluster.block_name(block).as_str() && problem.contains(why)
        })
    });
    cluster.mend(&["repair", "--all"]).ok();
    assert!(fs::read(cluster.block_file(block)).unwrap() == truth, "the false block is still there");
    cluster.eventually("it is safe", |cluster| cluster.mend(&["status"]).out.starts_with("safe"));
    cluster.mend(&["scrub"]).ok();
    let said = cluster.assert_reads("film", content, &["--verify"]);
    assert!(!said.out.contains("is not used"), "{said:?}");
}

#[test]
fn with_one_block_to_spare_no_checksum_overrules_parity() {
    let mut cluster = Cluster::new(7, "rs-6-4", "64KiB");
    let (content, lost) = with_a_lost_block_and_checksums_alone(&mut cluster, 256 << 10);
    let forged = cluster.block_file("1.1");
    forge(&forged);
    cluster.mend(&["scrub"]).fails_with(&[&cluster.block_name("1.0")]);
    assert_eq!(states(&cluster)[1], "healthy", "no checksum shows the forgery");
    let repair = cluster.mend(&["repair", "--all"]);
    assert!(repair.out.contains("contradict each other"), "{repair:?}");
    assert_damage(repair, "nothing was published");
    assert_in_doubt(&cluster);
    assert_nothing_to_spare(&cluster);
    // The stripe stays in doubt after a retry of the repair and after a restart of the coordinator.
    assert_damage(cluster.mend(&["repair", &cluster.block_name("1.0")]), "contradict each other");
    cluster.kill("coordinator");
    cluster.start(&["coordinator"]);
    cluster.await_ready();
    cluster.eventually("all helpers are back", |cluster| {
        cluster.mend(&["status"]).out.contains("all 7 helpers")
    });
    assert_in_doubt(&cluster);
    assert_damage(cluster.mend(&["repair", "--all"]), "contradict each other");
    assert_eq!(states(&cluster)[0], "missing", "nothing was published");

    // Restore the forged block's original bytes. The repair then compares all survivors, and they agree.
    forge(&forged);
    cluster.mend(&["repair", "--all"]).ok();
    assert!(fs::read(cluster.block_file("1.0")).unwrap() == lost);
    let status = cluster.mend(&["status"]).ok();
    assert!(status.out.starts_with("safe"), "{status:?}");
    cluster.assert_reads("film", &content, &["--verify"]);
}

#[test]
fn with_spare_blocks_the_forged_one_is_found_and_rebuilt() {
    let mut cluster = Cluster::new(15, "rs-14-10", "16KiB");
    let (content, lost) = with_a_lost_block_and_checksums_alone(&mut cluster, 160 << 10);
    let truth = fs::read(cluster.block_file("1.3")).unwrap();
    forge(&cluster.block_file("1.3"));
    let repair = cluster.mend(&["repair", "--all"]).ok();
    assert!(repair.out.contains("contradict each other"), "{repair:?}");
    assert_mended(&cluster, &content, &lost, ("1.3", &truth), "contradicts the parity");
}

/// The forged block's checksums match. Nevertheless, neither a scrub nor the block list that the helper sends
/// may make the coordinator treat the block as healthy again.
#[test]
fn a_block_that_a_repair_found_forged_stays_bad_until_it_is_rebuilt() {
    let mut cluster = Cluster::new(15, "rs-14-10", "16KiB");
    let (content, lost) = with_a_lost_block_and_checksums_alone(&mut cluster, 160 << 10);
    let truth = fs::read(cluster.block_file("1.3")).unwrap();
    forge(&cluster.block_file("1.3"));
    cluster.mend(&["repair", &cluster.block_name("1.0")]).ok();
    assert_eq!(states(&cluster)[3], "corrupt");
    for process in [cluster.holder("1.3"), "coordinator".to_owned()] {
        cluster.kill(&process);
        match process.as_str() {
            "coordinator" => cluster.start(&["coordinator"]),
            helper => cluster.start(&["helper", helper]),
        }
        cluster.await_ready();
        cluster.eventually("all helpers are back", |cluster| {
            cluster.mend(&["status"]).out.contains("all 15 helpers")
        });
        cluster.mend(&["scrub"]).fails_with(&[&cluster.block_name("1.3")]);
        assert_eq!(states(&cluster)[3], "corrupt");
    }
    cluster.mend(&["repair", "--all"]).ok();
    assert!(fs::read(cluster.block_file("1.3")).unwrap() == truth, "the false block is still there");
    assert!(fs::read(cluster.block_file("1.0")).unwrap() == lost, "a false block was published");
    cluster.mend(&["scrub", "--parity"]).ok();
    cluster.assert_reads("film", &content, &["--verify"]);
}

/// After a scrub, a block that has a strong digest is forged so that its checksums still match. With one
/// spare block, parity alone could not identify the forged block. The repair only reports the contradiction.
#[test]
fn a_strong_digest_tells_which_block_is_forged_with_one_to_spare() {
    let cluster = Cluster::new(7, "rs-6-4", "64KiB");
    let (content, lost) = with_a_lost_block(&cluster, 256 << 10);
    let truth = fs::read(cluster.block_file("1.1")).unwrap();
    forge(&cluster.block_file("1.1"));
    cluster.mend(&["repair", "--all"]).ok();
    let why = "every checksum matches, but its bytes have the digest";
    assert_mended(&cluster, &content, &lost, ("1.1", &truth), why);
}

/// A verified read detects a contradiction, which the coordinator remembers.
#[test]
fn a_contradiction_that_a_read_finds_is_remembered() {
    let mut cluster = Cluster::new(7, "rs-6-4", "64KiB");
    with_a_lost_block_and_checksums_alone(&mut cluster, 256 << 10);
    forge(&cluster.block_file("1.1"));
    let copy = cluster.path("copy");
    let get = cluster.mend(&["get", "film", "-o", copy.to_str().unwrap(), "--verify"]);
    assert_damage(get, "contradict each other");
    assert_in_doubt(&cluster);
}

/// Asserts that a verified read leaves out the forged block 1.1. Afterwards the stripe must not be reported
/// as safe until the forged block has been found and rebuilt.
#[track_caller]
fn assert_left_out_and_mended(cluster: &Cluster, content: &[u8], truth: &[u8]) {
    let said = cluster.assert_reads("film", content, &["--verify"]);
    assert!(said.out.contains("is not used"), "{said:?}");
    let status = cluster.mend(&["status"]);
    assert!(!status.out.starts_with("safe"), "{status:?}");
    cluster.eventually("it is found", |cluster| states(cluster)[1] == "corrupt");
    cluster.mend(&["node", "repair-after", "default"]).ok();
    cluster.eventually("it is rebuilt", |cluster| cluster.mend(&["status"]).out.starts_with("safe"));
    assert!(fs::read(cluster.block_file("1.1")).unwrap() == truth, "the false block is still there");
    let said = cluster.assert_reads("film", content, &["--verify"]);
    assert!(!said.out.contains("is not used"), "{said:?}");
    cluster.mend(&["scrub", "--parity"]).ok();
}

/// The read returns correct data although a block on disk is wrong. That block must be found and rebuilt.
#[test]
fn a_block_that_a_verified_read_leaves_out_is_found_and_rebuilt() {
    for has_digests in [true, false] {
        let mut cluster = Cluster::new(7, "rs-6-4", "64KiB");
        let content = cluster.put("film", 256 << 10);
        if !has_digests {
            forget_digests(&mut cluster);
        }
        cluster.mend(&["node", "repair-after", "never"]).ok();
        let truth = fs::read(cluster.block_file("1.1")).unwrap();
        forge(&cluster.block_file("1.1"));
        assert_left_out_and_mended(&cluster, &content, &truth);
    }
}

/// A read that leaves out the wrong block is no proof that the stripe's blocks agree.
#[test]
fn a_verified_read_settles_no_contradiction() {
    let mut cluster = Cluster::new(7, "rs-6-4", "64KiB");
    let content = cluster.put("film", 256 << 10);
    forget_digests(&mut cluster);
    cluster.mend(&["node", "repair-after", "never"]).ok();
    let truth = fs::read(cluster.block_file("1.1")).unwrap();
    forge(&cluster.block_file("1.1"));
    let away = cluster.holder("1.0");
    cluster.kill(&away);
    let copy = cluster.path("copy");
    let get = ["get", "film", "-o", copy.to_str().unwrap(), "--verify"];
    assert_damage(cluster.mend(&get), "contradict each other");
    assert!(cluster.mend(&["status"]).out.starts_with("IN DOUBT"));
    cluster.start(&["helper", &away]);
    cluster.eventually("it is back", |cluster| cluster.mend(&["status"]).out.contains("all 7 helpers"));
    assert_left_out_and_mended(&cluster, &content, &truth);
}

/// In a code that is not MDS, the repair detects a contradiction but cannot identify the wrong block. After
/// the repair, the coordinator checks the whole stripe, and this check identifies the block.
#[test]
fn a_forged_block_of_an_lrc_stripe_is_found_after_the_repair_that_noticed_it() {
    let mut cluster = Cluster::new(10, "lrc-4-2-2", "64KiB");
    let (content, lost) = with_a_lost_block_and_checksums_alone(&mut cluster, 256 << 10);
    let truth = fs::read(cluster.block_file("1.1")).unwrap();
    forge(&cluster.block_file("1.1"));
    cluster.mend(&["repair", "--all"]).ok();
    assert!(fs::read(cluster.block_file("1.0")).unwrap() == lost, "a false block was published");
    cluster.assert_reads("film", &content, &["--verify"]);
    let status = cluster.mend(&["status"]);
    assert!(!status.out.starts_with("safe"), "{status:?}");
    cluster.mend(&["node", "repair-after", "default"]).ok();
    cluster.eventually("it is rebuilt", |cluster| cluster.mend(&["status"]).out.starts_with("safe"));
    assert!(fs::read(cluster.block_file("1.1")).unwrap() == truth, "the false block is still there");
    cluster.mend(&["scrub", "--parity"]).ok();
    cluster.assert_reads("film", &content, &["--verify"]);
}

// ---- requestors ----

/// A store that reports false digests of written blocks.
struct Misstating(DirBlocks);

impl Sources for Misstating {
    fn open(&self, block: &LocalBlock) -> Result<Arc<dyn BlockReader>, BlockError> {
        self.0.open(block)
    }
}

impl Sinks for Misstating {
    fn deliver(&self, sink: &Sink) -> Result<Delivery, BlockError> {
        Ok(match self.0.deliver(sink)? {
            Delivery::Published(writer) => Delivery::Published(Box::new(MisstatingWriter(writer))),
            other => other,
        })
    }
}

impl Blocks for Misstating {
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

struct MisstatingWriter(Box<dyn Publish>);

impl Intake for MisstatingWriter {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<(), BlockError> {
        self.0.write_at(offset, bytes)
    }

    fn reader(&self) -> Result<Arc<dyn BlockReader>, BlockError> {
        self.0.reader()
    }
}

impl BlockWriter for MisstatingWriter {
    fn seal(&mut self) -> Result<Option<Digest>, BlockError> {
        let other = |digest: Digest| {
            let bytes: Vec<u8> = digest.bytes().iter().map(|byte| !byte).collect();
            Digest::new(digest.kind(), &bytes).unwrap()
        };
        Ok(self.0.seal()?.map(other))
    }
}

impl Publish for MisstatingWriter {
    fn commit(self: Box<Self>) -> Result<Option<ReadBack>, BlockError> {
        self.0.commit()
    }
}

#[test]
fn a_requestor_that_says_a_wrong_digest_is_replaced_and_no_source_is_blamed() {
    let mut cluster = Cluster::new(7, "rs-6-4", "64KiB");
    let (content, lost) = with_a_lost_block(&cluster, 256 << 10);
    // A rebuilt block goes to the helper that held the lost block, if that helper is up.
    let liar = cluster.holder("1.0");
    cluster.kill(&liar);
    run_helper(&cluster, &liar, |folder| Arc::new(Misstating(DirBlocks::open(folder).unwrap())));
    cluster.eventually("it is back", |cluster| cluster.mend(&["status"]).out.contains("all 7 helpers"));
    let view = cluster.mend(&["repair", "--all", "--output", "json"]).ok().json();
    let replanned = view["items"][0]["replanned"].to_string();
    assert!(replanned.contains(&format!("this job avoids {liar} as a target from now on")), "{view:#}");
    assert!(!replanned.contains("is not used"), "{view:#}");
    assert_ne!(cluster.holder("1.0"), liar);
    assert!(fs::read(cluster.block_file("1.0")).unwrap() == lost);
    let status = cluster.mend(&["status"]).ok();
    assert!(status.out.starts_with("safe"), "{status:?}");
    cluster.assert_reads("film", &content, &["--verify"]);
}
