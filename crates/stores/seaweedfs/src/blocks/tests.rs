//! Tests of shards in a server's folders: intact, corrupt, short, of another encoding, and incomplete.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use codes::BlockIndex;
use proptest::prelude::*;
use repair::{BlockId, Digest, LocalBlock, Sink, SinkEnd};
use store_api::{BlockError, Blocks, OpenGate, Sources};
use tempfile::TempDir;

use super::*;

const BLOCK: u32 = 1 << 20;
const BYTES: usize = (2 << 20) + 70_000;

/// A server with two folders and a volume of 2 + 1 shards: `p_5.ec00` and the volume's metadata files
/// (`.ecx`, `.ecj`, `.vif`, `.ecsum`) are in the first folder, `p_5.ec01` is in the second.
struct Server {
    root: TempDir,
    shards: Vec<Vec<u8>>,
}

impl Server {
    fn new() -> Self {
        let root = tempfile::tempdir().expect("a temporary folder");
        let shards: Vec<Vec<u8>> = (0..3).map(|seed| pattern(seed, BYTES)).collect();
        let server = Self { root, shards };
        for folder in ["a", "b"] {
            fs::create_dir(server.folder(folder)).expect("made");
        }
        server.write("a/p_5.ec00", &server.shards[0]);
        server.write("b/p_5.ec01", &server.shards[1]);
        server.write("a/p_5.ecx", &[0; 17]);
        server.write("a/p_5.ecj", &[0, 0, 0, 0, 0, 0, 0, 9, 1]);
        server.write("a/p_5.vif", &vif(2, 1, BYTES));
        server.write("a/p_5.ecsum", &made::ecsum(ratio(), BLOCK, &server.shards));
        server
    }

    fn folder(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        fs::write(self.root.path().join(name), bytes).expect("written");
    }

    /// Sets the time at which a file was modified, in seconds since 1970.
    fn modify(&self, name: &str, seconds: u64) {
        let file = fs::File::options().write(true).open(self.root.path().join(name)).expect("there");
        file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)).expect("set");
    }

    /// Flips a bit in place, as bit rot does.
    fn rot(&self, name: &str, offset: u64) {
        let file =
            fs::File::options().read(true).write(true).open(self.root.path().join(name)).expect("there");
        let mut byte = [0];
        file.read_exact_at(&mut byte, offset).expect("in the file");
        file.write_all_at(&[byte[0] ^ 4], offset).expect("written");
    }

    fn open(&self) -> ShardBlocks {
        ShardBlocks::open(&[self.folder("a"), self.folder("b")], None).expect("two folders")
    }

    fn names(&self, folder: &str) -> Vec<String> {
        let entries = fs::read_dir(self.folder(folder)).expect("there");
        let mut names: Vec<String> =
            entries.map(|entry| entry.expect("read").file_name().into_string().expect("text")).collect();
        names.sort();
        names
    }
}

fn ratio() -> Ratio {
    Ratio::new(2, 1).expect("possible")
}

fn vif(data: u32, parity: u32, bytes: usize) -> Vec<u8> {
    let config = format!(
        r#"{{"dataShards": {data}, "parityShards": {parity}, "encodeTsNs": "77", "blockSize": "{bytes}"}}"#
    );
    format!(r#"{{"version": 3, "datFileSize": "1", "ecShardConfig": {config}}}"#).into_bytes()
}

/// Returns the `.vif` of an encoding 1,795,322,287 seconds after the start of 1970.
fn dated_vif() -> Vec<u8> {
    let vif = String::from_utf8(vif(2, 1, BYTES)).expect("text");
    vif.replace("\"77\"", "\"1795322287727440871\"").into_bytes()
}

fn pattern(seed: usize, length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 31 + at / 4096 + at / 65536 * 7 + seed) as u8).collect()
}

fn id(name: &str) -> BlockId {
    BlockId(name.to_owned())
}

fn name(text: &str) -> ShardName {
    text.parse().expect("a shard")
}

fn sink(name: &str, bytes: usize) -> Sink {
    Sink {
        index: BlockIndex(0),
        id: id(name),
        bytes: bytes as u64,
        digest: Some(Digest::of_u32("ecsum", 7)), // The coordinator uses checksums; it compares them itself.
        end: SinkEnd::Kept { label: None, permit: None },
    }
}

fn make(blocks: &ShardBlocks, name: &str, bytes: &[u8]) -> Result<Option<Digest>, BlockError> {
    let mut writer = blocks.create(&sink(name, bytes.len()))?;
    writer.write_at(0, bytes)?;
    let digest = writer.seal()?;
    writer.commit().map(|_| digest)
}

fn read(blocks: &ShardBlocks, name: &str, offset: u64, length: usize) -> Result<Vec<u8>, BlockError> {
    let mut buffer = vec![0; length];
    blocks.open_block(&id(name))?.read_at(offset, &mut buffer).map(|()| buffer)
}

fn is_corrupt<T: std::fmt::Debug>(result: Result<T, BlockError>, what: &str) {
    match result {
        Err(BlockError::Corrupt { detail, .. }) => assert!(detail.contains(what), "{detail}"),
        other => panic!("corrupt was expected, not {other:?}"),
    }
}

#[test]
fn shards_and_their_facts_are_reported() {
    let server = Server::new();
    let blocks = server.open();
    let held: Vec<_> =
        blocks.list().expect("readable").into_iter().map(|held| (held.id.0, held.bytes)).collect();
    assert_eq!(held, [("p_5.ec00".to_owned(), BYTES as u64), ("p_5.ec01".to_owned(), BYTES as u64)]);
    let volume = name("p_5.ec00").volume;
    assert!(blocks.has_index(&volume).expect("readable"));
    assert_eq!(blocks.deleted(&volume).expect("readable"), [9], "the last entry is being written");
    let facts = blocks.facts(&name("p_5.ec01")).expect("readable");
    let digest = blocks
        .open_block(&id("p_5.ec01"))
        .expect("there")
        .verify(&OpenGate)
        .expect("whole")
        .expect("by .ecsum");
    let protection = Protection::Ecsum { digest };
    assert_eq!(facts, ShardFacts { bytes: BYTES as u64, ratio: ratio(), encoding: Encoding(77), protection });
    assert!(matches!(blocks.open_block(&id("p_5.ec02")), Err(BlockError::Missing { .. })));
    assert!(matches!(blocks.open_block(&id("p_5.dat")), Err(BlockError::BadName(_))));
}

#[test]
fn a_second_helper_cannot_open_a_folder() {
    let server = Server::new();
    let _first = server.open();
    let second = ShardBlocks::open(&[server.folder("b")], None).expect_err("taken");
    assert!(second.to_string().contains("another helper"), "{second}");
}

#[test]
fn a_flipped_bit_spoils_its_block_and_no_other() {
    let server = Server::new();
    let blocks = server.open();
    server.rot("a/p_5.ec00", (1 << 20) + 5);
    assert_eq!(read(&blocks, "p_5.ec00", 0, 1 << 20).expect("the first block"), server.shards[0][..1 << 20]);
    is_corrupt(
        read(&blocks, "p_5.ec00", 2 << 20, 1).and(read(&blocks, "p_5.ec00", (2 << 20) - 1, 1)),
        "1048576 to 2097152",
    );
    is_corrupt(blocks.open_block(&id("p_5.ec00")).expect("opens").verify(&OpenGate), "1048576 to 2097152");
}

/// A block may rot after it was verified, even while a reader is open.
#[test]
fn a_bit_that_flips_after_the_check_is_found() {
    let server = Server::new();
    let blocks = server.open();
    let reader = blocks.open_block(&id("p_5.ec00")).expect("there");
    let mut buffer = vec![0; 100];
    assert!(!reader.read_if_cached(0, &mut buffer).expect("no fault"), "its block was not checked yet");
    reader.read_at(0, &mut buffer).expect("good");
    server.rot("a/p_5.ec00", 300_000);
    reader.read_at(64 << 10, &mut buffer).expect("this chunk is as it was");
    assert!(!reader.read_if_cached(300_000, &mut buffer).expect("left to the read that waits"));
    is_corrupt(reader.read_at(300_000, &mut buffer), "0 to 1048576");
    server.rot("a/p_5.ec00", 300_000);
    reader.read_at(300_000, &mut buffer).expect("it is good again");
    assert_eq!(buffer, server.shards[0][300_000..300_100]);
}

/// The slices of a repair may be smaller than the chunks that checksums cover.
#[test]
fn small_reads_in_a_row_read_each_chunk_once() {
    let server = Server::new();
    let blocks = server.open();
    let reader = blocks.open_block(&id("p_5.ec00")).expect("there");
    let chunk = 64 << 10;
    let mut buffer = vec![0; 24 << 10];
    for at in (chunk..2 * chunk).step_by(24 << 10) {
        let part = &mut buffer[..(24 << 10).min(2 * chunk - at)];
        reader.read_at(at as u64, part).expect("good");
        assert_eq!(part, &server.shards[0][at..][..part.len()], "at {at}");
        // The bytes that were checked are returned, and not those that are in the file now.
        server.rot("a/p_5.ec00", chunk as u64 + 60_000);
    }
    reader.read_at(0, &mut buffer).expect("good");
    is_corrupt(reader.read_at(chunk as u64, &mut buffer), "0 to 1048576");
}

#[test]
fn short_and_long_shards_do_not_open() {
    let server = Server::new();
    let blocks = server.open();
    server.write("a/p_5.ec00", &server.shards[0][100..]);
    is_corrupt(blocks.open_block(&id("p_5.ec00")).map(drop), "according to its volume's .ecsum");
    server.write("b/p_5.ec01", &[server.shards[1].clone(), vec![0]].concat());
    is_corrupt(blocks.facts(&name("p_5.ec01")), "according to its volume's .ecsum");
    fs::remove_file(server.folder("a/p_5.ecsum")).expect("removed");
    // The coordinator does not believe that a shard is corrupt while it doubts the checksums.
    match blocks.open_block(&id("p_5.ec00")).map(drop) {
        Err(BlockError::Io { source, .. }) => {
            assert!(source.to_string().contains("according to its volume's .vif"), "{source}");
        }
        other => panic!("unreadable was expected, not {other:?}"),
    }
}

#[test]
fn a_shard_of_another_encoding_is_not_taken() {
    let server = Server::new();
    let blocks = server.open();
    let foreign = pattern(9, BYTES);
    server.write("a/p_5.ec00", &foreign);
    is_corrupt(read(&blocks, "p_5.ec00", 0, 1), "do not match their checksum");
    is_corrupt(make(&blocks, "p_5.ec02", &foreign), "of another encoding");
    is_corrupt(make(&blocks, "p_5.ec02", &server.shards[2][1..]), "according to its volume's .ecsum");
    assert!(!server.names("a").iter().any(|name| name.contains("ec02")), "nothing is left");
}

#[test]
fn without_checksums_shards_are_reported_unprotected() {
    let server = Server::new();
    fs::remove_file(server.folder("a/p_5.ecsum")).expect("removed");
    let blocks = server.open();
    assert_eq!(blocks.facts(&name("p_5.ec00")).expect("readable").protection, Protection::Unprotected);
    assert_eq!(blocks.open_block(&id("p_5.ec00")).expect("there").digest(), None);
    server.rot("a/p_5.ec00", 5);
    read(&blocks, "p_5.ec00", 0, 10).expect("nobody can tell");
    assert_eq!(make(&blocks, "p_5.ec02", &server.shards[2]).expect("nobody can tell"), None);
    assert_eq!(blocks.describe(&id("p_5.ec02")).expect("there").digest, None);
    assert_eq!(
        blocks.open_block(&id("p_5.ec02")).expect("there").verify(&OpenGate).expect("it can be read"),
        None
    );
}

#[test]
fn mismatched_or_damaged_checksums_blame_no_shard() {
    let server = Server::new();
    let blocks = server.open();
    server.write("a/p_5.vif", &vif(3, 1, BYTES));
    assert_eq!(blocks.facts(&name("p_5.ec00")).expect("readable").protection, Protection::Unprotected);
    server.write("a/p_5.vif", &vif(2, 1, BYTES));
    let good = fs::read(server.folder("a/p_5.ecsum")).expect("there");
    server.rot("a/p_5.ecsum", 40);
    let error = blocks.open_block(&id("p_5.ec00")).map(drop).expect_err("damaged");
    assert!(matches!(&error, BlockError::Io { path, .. } if path.ends_with("p_5.ecsum")), "{error}");
    // Helpers report this kind as unavailable, not as corrupt.
    let is_of_kind = |source: &std::io::Error| source.kind() == std::io::ErrorKind::Unsupported;
    assert!(matches!(&error, BlockError::Io { source, .. } if is_of_kind(source)), "{error}");
    assert!(
        make(&blocks, "p_5.ec02", &server.shards[2]).is_err(),
        "nothing is published unchecked by accident"
    );
    server.write("b/p_5.ecsum", &good);
    blocks.open_block(&id("p_5.ec00")).expect("there").verify(&OpenGate).expect("by the other disk's");
}

/// SeaweedFS does not record to which encoding an `.ecsum` belongs. Its modification time tells.
#[test]
fn checksums_from_before_the_encoding_blame_no_shard() {
    let server = Server::new();
    let others: Vec<Vec<u8>> = (5..8).map(|seed| pattern(seed, BYTES)).collect();
    server.write("a/p_5.ecsum", &made::ecsum(ratio(), BLOCK, &others));
    server.write("a/p_5.vif", &dated_vif());
    let blocks = server.open();
    server.modify("a/p_5.ecj", 1_795_322_287);
    server.modify("a/p_5.ecsum", 1_795_322_287);
    is_corrupt(read(&blocks, "p_5.ec00", 0, 1), "do not match their checksum");
    server.modify("a/p_5.ecsum", 1_700_000_000);
    read(&blocks, "p_5.ec00", 0, 1).expect("only parity can tell");
    assert_eq!(blocks.verify(&id("p_5.ec00"), &OpenGate).expect("it can be read"), None);
    assert_eq!(make(&blocks, "p_5.ec01", &server.shards[1]).expect("only parity can tell"), None);
    assert!(!server.names("b").contains(&"p_5.ecsum".to_owned()), "the copy would look new");
}

#[test]
fn checksums_of_another_length_blame_no_shard() {
    let server = Server::new();
    let others: Vec<Vec<u8>> = (0..3).map(|seed| pattern(seed, BYTES - 1)).collect();
    server.write("a/p_5.ecsum", &made::ecsum(ratio(), BLOCK, &others));
    let facts = server.open().facts(&name("p_5.ec00")).expect("readable");
    assert_eq!(facts.protection, Protection::Unprotected);
}

#[test]
fn checksums_count_as_far_as_the_coordinator_uses_them() {
    let server = Server::new();
    let blocks = server.open();
    server.rot("a/p_5.ec00", 5);
    let recorded = blocks.open_block(&id("p_5.ec00")).expect("there").digest();
    let local = |bytes: usize, digest: Option<Digest>| LocalBlock {
        index: BlockIndex(0),
        id: id("p_5.ec00"),
        bytes: bytes as u64,
        digest,
    };
    let read = |digest: Option<Digest>| {
        blocks.open(&local(BYTES, digest)).and_then(|reader| reader.read_at(0, &mut [0; 9]))
    };
    is_corrupt(read(recorded), "do not match their checksum");
    let looked_at = blocks.open(&local(0, None)).expect("there");
    assert_eq!(looked_at.digest(), recorded, "a look at the page cache changes nothing");
    // The servers' checksums are disputed, or contradict too many shards.
    read(None).expect("only parity can tell");
    assert_eq!(blocks.verify(&id("p_5.ec00"), &OpenGate).expect("it can be read"), None);
    is_corrupt(read(recorded), "do not match their checksum");
    match read(Some(Digest::of_u32("ecsum", 1))) {
        Err(BlockError::Io { source, .. }) => assert_eq!(source.kind(), std::io::ErrorKind::Unsupported),
        other => panic!("its own .ecsum is another one: {other:?}"),
    }
}

/// The first disk returned with a shard of an earlier encoding. The server has mounted both.
#[test]
fn of_two_copies_the_one_with_the_recorded_checksums_counts() {
    let server = Server::new();
    let digest = server.open().open_block(&id("p_5.ec01")).expect("there").digest();
    for file in ["p_5.vif", "p_5.ecsum"] {
        fs::copy(server.folder("a").join(file), server.folder("b").join(file)).expect("copied");
    }
    let others: Vec<Vec<u8>> = (5..8).map(|seed| pattern(seed, BYTES)).collect();
    let earlier = String::from_utf8(vif(2, 1, BYTES)).expect("text").replace("\"77\"", "\"76\"");
    server.write("a/p_5.vif", earlier.as_bytes());
    server.write("a/p_5.ecsum", &made::ecsum(ratio(), BLOCK, &others));
    let blocks = server.open();
    let local = |digest| LocalBlock { index: BlockIndex(1), id: id("p_5.ec01"), bytes: BYTES as u64, digest };
    for outdated in [&others[1][..], &others[1][1..]] {
        server.write("a/p_5.ec01", outdated);
        let mut bytes = vec![0; BYTES];
        blocks.open(&local(digest)).expect("there").read_at(0, &mut bytes).expect("whole");
        assert_eq!(bytes, server.shards[1]);
        assert_eq!(blocks.verify_recorded(&id("p_5.ec01"), digest, &OpenGate).expect("whole"), digest);
    }
    let unknown =
        blocks.open(&local(Some(Digest::of_u32("ecsum", 1)))).map(drop).expect_err("no copy has it");
    assert!(matches!(unknown, BlockError::Corrupt { .. }), "the first copy is too short: {unknown}");
    // No checksums are there for the first copy, so nothing shows that it is outdated.
    server.write("a/p_5.ec01", &others[1]);
    fs::remove_file(server.folder("a/p_5.ecsum")).expect("removed");
    server.write("a/p_5.vif", &vif(1, 2, BYTES));
    assert_eq!(blocks.open(&local(digest)).expect("the other copy").digest(), digest);
    // Without the other copy, a scrub reads the first one, and helpers refuse to serve it.
    fs::remove_file(server.folder("b/p_5.ec01")).expect("removed");
    assert_eq!(blocks.open(&local(digest)).expect("it can be read").digest(), None);
    assert_eq!(blocks.verify_recorded(&id("p_5.ec01"), digest, &OpenGate).expect("it can be read"), None);
}

/// Without a digest in the request, the coordinator uses no checksums for the volume's present encoding.
#[test]
fn the_use_of_checksums_is_forgotten_with_the_encoding_and_with_the_last_shard() {
    let server = Server::new();
    let blocks = server.open();
    let digest = |blocks: &ShardBlocks| blocks.open_block(&id("p_5.ec00")).expect("there").digest();
    let used = digest(&blocks);
    let tell = || blocks.verify_recorded(&id("p_5.ec00"), None, &OpenGate).expect("only parity can tell");
    assert!(used.is_some());
    tell();
    assert_eq!(digest(&blocks), None);
    // The volume was decoded and encoded again, and the coordinator has not asked about it since.
    let again = String::from_utf8(vif(2, 1, BYTES)).expect("text").replace("\"77\"", "\"78\"");
    server.write("a/p_5.vif", again.as_bytes());
    assert_eq!(digest(&blocks), used, "nothing is known about this encoding");
    server.write("a/p_5.vif", &vif(2, 1, BYTES));
    assert_eq!(digest(&blocks), None);
    blocks.list().expect("readable");
    assert_eq!(digest(&blocks), None, "its shards are there");
    // The volume was deleted; one with the same name comes later.
    for file in ["a/p_5.ec00", "b/p_5.ec01"] {
        fs::remove_file(server.folder(file)).expect("removed");
    }
    blocks.list().expect("readable");
    server.write("a/p_5.ec00", &server.shards[0]);
    assert_eq!(digest(&blocks), used);
}

/// A listing comes while the first shard of the volume on this server is being written.
#[test]
fn a_write_keeps_to_the_use_of_checksums_with_which_it_began() {
    let server = Server::new();
    for file in ["a/p_5.ec00", "b/p_5.ec01"] {
        fs::remove_file(server.folder(file)).expect("removed");
    }
    let blocks = server.open();
    let unchecked = Sink { digest: None, ..sink("p_5.ec02", BYTES) };
    let mut writer = blocks.create(&unchecked).expect("room");
    writer.write_at(0, &server.shards[0]).expect("room");
    blocks.list().expect("readable");
    assert_eq!(writer.seal().expect("only parity can tell"), None);
    blocks.list().expect("readable");
    writer.commit().expect("renamed");
}

/// The coordinator has lost the cluster's lock, and its request to stop comes too late.
#[test]
fn a_shard_of_a_volume_that_was_encoded_again_meanwhile_is_not_committed() {
    let server = Server::new();
    fs::remove_file(server.folder("a/p_5.ecsum")).expect("removed");
    let blocks = server.open();
    let mut writer = blocks.create(&sink("p_5.ec02", BYTES)).expect("room");
    writer.write_at(0, &server.shards[2]).expect("room");
    assert_eq!(writer.seal().expect("nobody can tell"), None);
    let again = String::from_utf8(vif(2, 1, BYTES)).expect("text").replace("\"77\"", "\"78\"");
    server.write("a/p_5.vif", again.as_bytes());
    is_corrupt(writer.commit().map(drop), "encoded again");
    assert!(!server.names("a").iter().any(|name| name.contains("ec02")), "nothing is left");
}

/// A helper that was just started has heard of no doubt yet, and a scrub must not rely on an earlier request.
#[test]
fn a_scrub_follows_the_coordinators_use_of_checksums_at_once() {
    let server = Server::new();
    server.rot("a/p_5.ec00", 5);
    let digest = server.open().open_block(&id("p_5.ec00")).expect("there").digest();
    let blocks = server.open();
    let verify = |recorded| blocks.verify_recorded(&id("p_5.ec00"), recorded, &OpenGate);
    assert_eq!(verify(None).expect("only parity can tell"), None);
    is_corrupt(verify(digest), "do not match their checksum");
    assert_eq!(verify(None).expect("only parity can tell"), None);
    let error = verify(Some(Digest::of_u32("ecsum", 1))).expect_err("its own .ecsum is another one");
    assert!(
        matches!(error, BlockError::Io { source, .. } if source.kind() == std::io::ErrorKind::Unsupported)
    );
}

/// The first folder has checksums that were left by an encoding with another ratio.
#[test]
fn checksums_of_another_ratio_do_not_hide_the_right_ones() {
    let server = Server::new();
    let right = fs::read(server.folder("a/p_5.ecsum")).expect("there");
    let other = Ratio::new(1, 2).expect("possible");
    server.write("a/p_5.ecsum", &made::ecsum(other, BLOCK, &server.shards));
    server.write("b/p_5.ecsum", &right);
    let facts = server.open().facts(&name("p_5.ec00")).expect("readable");
    assert_ne!(facts.protection, Protection::Unprotected);
}

#[test]
fn a_committed_shard_is_whole_and_in_the_folder_of_the_index() {
    let server = Server::new();
    let blocks = server.open();
    let mut writer = blocks.create(&sink("p_5.ec02", BYTES)).expect("room");
    assert!(writer.seal().is_err(), "nothing is written");
    for start in (0..BYTES).step_by(100_000).rev() {
        let end = (start + 100_000).min(BYTES);
        writer.write_at(start as u64, &server.shards[2][start..end]).expect("room");
    }
    assert!(writer.write_at(BYTES as u64, &[0]).is_err(), "beyond its end");
    let digest = writer.seal().expect("agrees");
    let sealed = writer.reader().expect("sealed");
    assert_eq!(sealed.digest(), digest);
    sealed.read_at(0, &mut vec![0; BYTES]).expect("every byte matches its checksum");
    let hidden =
        server.names("a").into_iter().find(|name| name.starts_with(".mend-0")).expect("not visible yet");
    assert!(hidden.ends_with(".tmp"), "{hidden}");
    assert!(blocks.open_block(&id("p_5.ec02")).is_err(), "not visible yet");
    writer.commit().expect("renamed");
    let reader = blocks.open_block(&id("p_5.ec02")).expect("visible");
    assert!(digest.is_some());
    assert_eq!((reader.digest(), reader.verify(&OpenGate).expect("whole")), (digest, digest));
    assert_eq!(fs::read(server.folder("a/p_5.ec02")).expect("there"), server.shards[2]);
}

/// With `-dir.idx`, the index is in another folder than the shards. SeaweedFS takes a shard's encoding from
/// the `.vif` in the shard's folder.
#[test]
fn a_new_shard_goes_to_the_folder_of_its_vif() {
    let server = Server::new();
    for file in ["p_5.vif", "p_5.ecsum"] {
        fs::rename(server.folder(&format!("a/{file}")), server.folder(&format!("b/{file}"))).expect("moved");
    }
    fs::create_dir(server.folder("index")).expect("made");
    fs::rename(server.folder("a/p_5.ecx"), server.folder("index/p_5.ecx")).expect("moved");
    let blocks = server.open();
    assert_eq!(blocks.volumes_without_index().expect("readable"), [name("p_5.ec00").volume]);
    make(&blocks, "p_5.ec02", &server.shards[2]).expect("room");
    assert!(server.names("b").contains(&"p_5.ec02".to_owned()), "{:?}", server.names("b"));
    drop(blocks);
    let folders = [server.folder("a"), server.folder("b")];
    let blocks = ShardBlocks::open(&folders, Some(&server.folder("index"))).expect("three folders");
    assert!(blocks.volumes_without_index().expect("readable").is_empty());
}

/// If a rebuilt shard replaces a copy on a disk that lacks the volume's `.vif` and `.ecsum`, these files are
/// copied to that disk too.
#[test]
fn small_files_are_copied_to_the_folder_of_a_new_shard() {
    let server = Server::new();
    let blocks = server.open();
    make(&blocks, "p_5.ec01", &server.shards[1]).expect("room");
    for file in ["p_5.vif", "p_5.ecsum"] {
        let read = |folder: &str| fs::read(server.folder(folder).join(file)).expect("there");
        assert_eq!(read("a"), read("b"), "{file}");
    }
    assert!(!server.names("b").iter().any(|name| name.contains("tmp")), "nothing is left");
}

/// The names of the volume's files are as long as the file system permits.
#[test]
fn shards_of_the_longest_names_are_listed_and_written() {
    for longest in ["_5.ecsum", "_5.ec00"] {
        write_shard_of_long_name(&format!("{}_5", "x".repeat(255 - longest.len())));
    }
}

/// Writes a shard of a volume that has an `.ecsum` only if its name leaves room for one.
fn write_shard_of_long_name(volume: &str) {
    let root = tempfile::tempdir().expect("a temporary folder");
    let folder = |name: &str| root.path().join(name);
    for name in ["a", "b"] {
        fs::create_dir(folder(name)).expect("made");
    }
    let has_sums = volume.len() + ".ecsum".len() <= 255;
    let shards: Vec<Vec<u8>> = (0..3).map(|seed| pattern(seed, BYTES)).collect();
    let files = [
        (".vif", vif(2, 1, BYTES)),
        (".ecsum", made::ecsum(ratio(), BLOCK, &shards)),
        (".ec00", shards[0].clone()),
    ];
    for (extension, bytes) in files.into_iter().filter(|(extension, _)| *extension != ".ecsum" || has_sums) {
        fs::write(folder("a").join(format!("{volume}{extension}")), bytes).expect("written");
    }
    // The other copy makes the new shard's disk the second one, to which the metadata files are copied.
    fs::write(folder("b").join(format!("{volume}.ec02")), &shards[1]).expect("written");
    let blocks = ShardBlocks::open(&[folder("a"), folder("b")], None).expect("two folders");
    make(&blocks, &format!("{volume}.ec02"), &shards[2]).expect("room");
    let held = blocks.list().expect("readable");
    let held: Vec<_> = held.iter().map(|held| held.id.0.strip_prefix(volume)).collect();
    assert_eq!(held, [Some(".ec00"), Some(".ec02")]);
    blocks.open_block(&id(&format!("{volume}.ec02"))).expect("readable");
    assert_eq!(folder("b").join(format!("{volume}.ecsum")).exists(), has_sums, "it was copied");
}

#[test]
fn no_shard_is_written_while_disks_disagree_about_the_encoding() {
    let server = Server::new();
    let blocks = server.open();
    server.write("b/p_5.vif", &vif(2, 1, BYTES + 1));
    let error = make(&blocks, "p_5.ec02", &server.shards[2]).expect_err("which of them?");
    assert!(error.to_string().contains("another encoding"), "{error}");
    // A damaged file is replaced by the copy of another disk.
    server.write("b/p_5.vif", b"garbage");
    make(&blocks, "p_5.ec02", &server.shards[2]).expect("one encoding");
    assert_eq!(fs::read(server.folder("b/p_5.vif")).expect("there"), vif(2, 1, BYTES));
    for folder in ["a", "b"] {
        server.write(&format!("{folder}/p_5.vif"), b"garbage");
    }
    let error = make(&blocks, "p_5.ec02", &server.shards[2]).expect_err("it would be mounted as anything");
    assert!(error.to_string().contains("p_5.vif"), "{error}");
}

/// SeaweedFS returns only the journal of the server's last disk, here `b`.
#[test]
fn no_shard_is_written_while_a_disk_has_a_journal_of_an_earlier_encoding() {
    let server = Server::new();
    let blocks = server.open();
    server.write("a/p_5.vif", &dated_vif());
    server.write("b/p_5.ecj", &[]);
    server.modify("b/p_5.ecj", 1_700_000_000);
    server.modify("a/p_5.ecj", 1_795_322_287);
    make(&blocks, "p_5.ec02", &server.shards[2]).expect("an empty journal hides nothing");
    assert!(blocks.remove(&id("p_5.ec02")).expect("removed"));
    server.modify("a/p_5.ecj", 1_700_000_000);
    let error = make(&blocks, "p_5.ec02", &server.shards[2]).expect_err("the journal is foreign");
    assert!(error.to_string().contains("a/p_5.ecj"), "{error}");
    assert!(!server.names("a").contains(&"p_5.ec02".to_owned()));
}

#[test]
fn an_unmounted_disk_makes_no_shard_missing_and_gets_none() {
    let server = Server::new();
    let blocks = server.open();
    let mut writer = blocks.create(&sink("p_5.ec02", BYTES)).expect("room");
    writer.write_at(0, &server.shards[2]).expect("room");
    writer.seal().expect("agrees");
    fs::rename(server.folder("b"), server.folder("disk")).expect("renamed");
    fs::create_dir(server.folder("b")).expect("a free name");
    let is_unmounted = |error: BlockError| matches!(error, BlockError::Unmounted { .. });
    let lost = id("p_5.ec01");
    assert!(blocks.open_block(&lost).map(drop).is_err_and(is_unmounted));
    assert!(blocks.verify(&lost, &OpenGate).is_err_and(is_unmounted));
    assert!(blocks.describe(&lost).is_err_and(is_unmounted));
    assert!(blocks.remove(&lost).is_err_and(is_unmounted));
    assert!(blocks.list().is_err());
    let list = blocks.list_answering().expect("the other disk works");
    assert_eq!((list.held.len(), list.silent.len()), (1, 1));
    assert_eq!(blocks.silent_folders(), list.silent);
    assert!(make(&blocks, "p_5.ec01", &server.shards[1]).is_err_and(is_unmounted));
    assert!(writer.commit().map(drop).is_err_and(is_unmounted), "the other disk may have a copy");
    assert!(server.names("b").is_empty(), "nothing is written to the disk of the mount point");
    blocks.verify(&id("p_5.ec00"), &OpenGate).expect("it is on the other disk");
    fs::remove_dir(server.folder("b")).expect("empty");
    fs::rename(server.folder("disk"), server.folder("b")).expect("renamed back");
    assert!(!blocks.is_displaced(), "it is the same disk");
    assert!(blocks.silent_folders().is_empty());
    assert_eq!(blocks.list().expect("readable").len(), 2);
    assert!(blocks.remove(&lost).expect("removed"));
}

#[test]
fn a_copy_on_another_disk_prevents_a_commit() {
    let server = Server::new();
    let blocks = server.open();
    server.write("b/p_5.ec00", &server.shards[0]);
    let error = make(&blocks, "p_5.ec00", &server.shards[0]).expect_err("ambiguous");
    assert!(error.to_string().contains("b/p_5.ec00"), "{error}");
    assert_eq!(blocks.copies(&name("p_5.ec00")).expect("readable").len(), 2);
    assert!(blocks.remove(&id("p_5.ec00")).expect("removed"));
    assert!(!blocks.remove(&id("p_5.ec00")).expect("nothing to do"));
    make(&blocks, "p_5.ec00", &server.shards[0]).expect("the only one");
}

#[test]
fn temporary_files_of_a_crash_are_removed_at_the_next_start() {
    let server = Server::new();
    for kept in [".mend-x.ec00", "p_5.ec00.tmp", ".tmp"] {
        server.write(&format!("a/{kept}"), &[1]);
    }
    server.write("a/.mend-00000001-p_5.ec02.tmp", &[1]);
    drop(server.open());
    let names = server.names("a");
    assert!(!names.contains(&".mend-00000001-p_5.ec02.tmp".to_owned()), "{names:?}");
    assert_eq!(names.len(), 9, "what is SeaweedFS's, or nobody knows whose, stays: {names:?}");
}

/// A shard file that replaces another is checked again, even if it has the same modification time.
#[test]
fn a_replaced_file_is_checked_again() {
    let server = Server::new();
    let blocks = server.open();
    read(&blocks, "p_5.ec00", 0, 10).expect("good");
    let times = fs::metadata(server.folder("a/p_5.ec00")).expect("there").modified().expect("kept");
    server.write("a/new", &pattern(3, BYTES));
    fs::rename(server.folder("a/new"), server.folder("a/p_5.ec00")).expect("replaced");
    let file = fs::File::options().write(true).open(server.folder("a/p_5.ec00")).expect("there");
    file.set_modified(times).expect("set");
    is_corrupt(read(&blocks, "p_5.ec00", 0, 10), "0 to 1048576");
}

fn assert_reads(path: &Path, reader: &dyn store_api::BlockReader, offset: usize, length: usize) {
    let expected = fs::read(path).expect("there");
    let mut buffer = vec![0; length];
    reader.read_at(offset as u64, &mut buffer).expect("good");
    assert!(buffer == expected[offset..offset + length], "{length} from {offset}");
    if reader.read_if_cached(offset as u64, &mut buffer).expect("good") {
        assert!(buffer == expected[offset..offset + length], "cached {length} from {offset}");
    }
    reader.read_ahead(offset as u64..(offset + length) as u64);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn any_range_reads_as_the_file(ranges in prop::collection::vec((0..BYTES, 0..300_000usize), 1..12)) {
        let server = Server::new();
        let blocks = server.open();
        let reader = blocks.open_block(&id("p_5.ec01")).expect("there");
        for (offset, length) in ranges {
            assert_reads(&server.folder("b/p_5.ec01"), &*reader, offset, length.min(BYTES - offset));
        }
        prop_assert!(reader.read_at(BYTES as u64 - 1, &mut [0; 2]).is_err());
    }

    #[test]
    fn writes_in_any_order_make_the_shard(cuts in prop::collection::btree_set(0..BYTES, 0..9), seed: u64, twice: bool) {
        let server = Server::new();
        let blocks = server.open();
        let mut pieces: Vec<_> = cuts.iter().copied().chain([BYTES]).scan(0, |from, to| Some(std::mem::replace(from, to)..to)).collect();
        let turn = seed as usize % pieces.len();
        pieces.rotate_left(turn);
        let mut writer = blocks.create(&sink("p_5.ec02", BYTES)).expect("room");
        if twice {
            writer.write_at(0, &vec![0; BYTES / 2]).expect("room");
        }
        for piece in pieces {
            writer.write_at(piece.start as u64, &server.shards[2][piece.clone()]).expect("room");
        }
        writer.seal().expect("agrees");
        writer.commit().expect("renamed");
        prop_assert!(fs::read(server.folder("a/p_5.ec02")).expect("there") == server.shards[2]);
    }
}
