//! Tests of replicas in the folders of a DataNode: intact, corrupt, truncated, outdated and unfinished
//! replicas.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use codes::BlockIndex;
use proptest::prelude::*;
use repair::{BlockId, Digest, LocalBlock, Sink, SinkEnd};
use store_api::{BlockError, BlockWriter, Blocks, Delivery, Intake, OpenGate, ProcessError, Sinks, Sources};
use tempfile::TempDir;

use super::*;

const POOL: &str = "BP-1-127.0.0.1-1";
const NAME: &str = "blk_-9223372036854775792_1001";

/// The folders of a DataNode with two disks.
struct DataNode {
    root: TempDir,
}

impl DataNode {
    fn new() -> Self {
        let node = Self { root: tempfile::tempdir().expect("a temporary folder") };
        for disk in ["a", "b"] {
            for folder in
                [format!("{disk}/current/{POOL}/current/finalized"), format!("{disk}/current/{POOL}/tmp")]
            {
                fs::create_dir_all(node.root.path().join(folder)).expect("made");
            }
            for current in [format!("{disk}/current"), format!("{disk}/current/{POOL}/current")] {
                fs::write(node.root.path().join(current).join("VERSION"), "#today\nlayoutVersion=-57\n")
                    .expect("written");
            }
        }
        node
    }

    fn folders(&self) -> [PathBuf; 2] {
        ["a", "b"].map(|disk| self.root.path().join(disk))
    }

    fn open(&self) -> HdfsBlocks {
        HdfsBlocks::open(&self.folders(), None).expect("a DataNode's folders")
    }

    fn path(&self, disk: &str, file: &str) -> PathBuf {
        let folder = format!("{disk}/current/{POOL}/current/finalized/subdir0/subdir0");
        self.root.path().join(folder).join(file)
    }

    /// Writes a replica as HDFS does. All block numbers in these tests belong to the same folder.
    fn put(&self, disk: &str, name: &str, format: ChecksumFormat, bytes: &[u8]) {
        let replica: ReplicaName = name.parse().expect("a name");
        let path = self.path(disk, &replica.file());
        fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        fs::write(&path, bytes).expect("written");
        fs::write(self.path(disk, &replica.meta_file()), meta(format, bytes)).expect("written");
    }

    /// Returns the names of all replicas' files on both disks.
    fn open_names(&self) -> Vec<String> {
        let mut names = [self.names("a"), self.names("b")].concat();
        names.retain(|name| !name.starts_with('.'));
        names
    }

    /// Returns the names of all files of the block pool on a disk, in any folder.
    fn names(&self, disk: &str) -> Vec<String> {
        let (mut names, mut folders) =
            (Vec::new(), vec![self.root.path().join(disk).join("current").join(POOL)]);
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder).expect("a folder") {
                let path = entry.expect("an entry").path();
                match path.is_dir() {
                    true => folders.push(path),
                    false => {
                        names.push(path.file_name().and_then(|name| name.to_str()).expect("text").to_owned())
                    }
                }
            }
        }
        names.retain(|name| name != "VERSION");
        names.sort();
        names
    }
}

/// Builds a checksum file byte by byte.
fn meta(format: ChecksumFormat, bytes: &[u8]) -> Vec<u8> {
    let kind = if format.kind() == ChecksumKind::Crc32c { 2 } else { 1 };
    let mut meta = vec![0, 1, kind];
    meta.extend((format.chunk_bytes() as u32).to_be_bytes());
    for chunk in bytes.chunks(format.chunk_bytes() as usize) {
        meta.extend(slow_crc(format.kind(), chunk).to_be_bytes());
    }
    meta
}

/// Computes a CRC with a slow reference implementation.
fn slow_crc(kind: ChecksumKind, bytes: &[u8]) -> u32 {
    let polynomial = if kind == ChecksumKind::Crc32c { 0x82f6_3b78 } else { 0xedb8_8320_u32 };
    let step = |crc: u32| crc >> 1 ^ if crc & 1 == 1 { polynomial } else { 0 };
    !bytes.iter().fold(!0, |crc, &byte| (0..8).fold(crc ^ u32::from(byte), |crc, _| step(crc)))
}

fn digest(bytes: &[u8]) -> Digest {
    Digest::of_u32("composite-crc32c", slow_crc(ChecksumKind::Crc32c, bytes))
}

fn small_chunks() -> ChecksumFormat {
    ChecksumFormat::new(ChecksumKind::Crc32, 100).expect("possible")
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 31 + at / 512 * 7 + at / 65_536) as u8).collect()
}

fn id(name: &str) -> BlockId {
    BlockId(name.to_owned())
}

fn sink(name: &str, bytes: usize) -> Sink {
    Sink {
        index: BlockIndex(0),
        id: id(name),
        bytes: bytes as u64,
        digest: None,
        end: SinkEnd::Kept { label: None, permit: None },
    }
}

fn make(blocks: &HdfsBlocks, name: &str, bytes: &[u8]) -> Result<Digest, BlockError> {
    let mut writer = blocks.create(&sink(name, bytes.len()))?;
    writer.write_at(0, bytes)?;
    let digest = writer.seal()?;
    writer.commit().map(|_| digest.expect("this store has digests"))
}

fn read(blocks: &HdfsBlocks, name: &str, offset: u64, length: usize) -> Result<Vec<u8>, BlockError> {
    let mut buffer = vec![0; length];
    blocks.open_block(&id(name))?.read_at(offset, &mut buffer).map(|()| buffer)
}

fn flip(path: &Path, bit: usize) {
    let file = fs::File::options().read(true).write(true).open(path).expect("there");
    let mut byte = [0];
    file.read_exact_at(&mut byte, bit as u64 / 8).expect("in the file");
    file.write_all_at(&[byte[0] ^ 1 << (bit % 8)], bit as u64 / 8).expect("written");
}

fn says<T: std::fmt::Debug>(result: Result<T, BlockError>, what: &str) {
    let error = result.expect_err("an error was expected").to_string();
    assert!(error.contains(what), "{error}");
}

#[test]
fn replicas_of_hdfs_are_read_at_any_offset() {
    let (node, bytes) = (DataNode::new(), pattern(200_001));
    for (disk, name, format) in
        [("a", NAME, ChecksumFormat::default()), ("b", "blk_-9223372036854775791_1001", small_chunks())]
    {
        node.put(disk, name, format, &bytes);
        let blocks = node.open();
        let reader = blocks.open_block(&id(name)).expect("there");
        for (offset, length) in
            [(0, 200_001), (0, 0), (200_001, 0), (511, 2), (512, 512), (99, 70_003), (200_000, 1)]
        {
            let mut buffer = vec![0; length];
            reader.read_at(offset as u64, &mut buffer).expect("whole");
            assert_eq!(buffer, bytes[offset..offset + length], "{name} {offset} {length}");
        }
        says(reader.read_at(200_000, &mut [0; 2]), "exceed the block's");
        assert_eq!(reader.digest(), reader.verify(&OpenGate).expect("whole"));
    }
    let listed = node.open().list().expect("readable");
    let listed: Vec<_> = listed.iter().map(|held| (&held.id.0[..], held.bytes)).collect();
    assert_eq!(listed, [(NAME, 200_001), ("blk_-9223372036854775791_1001", 200_001)]);
    assert_eq!(node.open().describe(&id(NAME)).expect("there").digest, Some(digest(&bytes)));
}

#[test]
fn cached_bytes_are_read_without_waiting() {
    let (node, bytes) = (DataNode::new(), pattern(70_000));
    node.put("b", NAME, ChecksumFormat::default(), &bytes);
    let blocks = node.open();
    read(&blocks, NAME, 0, 70_000).expect("whole");
    // Some file systems cannot determine which bytes are cached. Mend then treats no byte as cached.
    let local = LocalBlock { index: BlockIndex(0), id: id(NAME), bytes: 70_000, digest: None };
    let Some(reader) = blocks.open_if_cached(&local) else { return };
    let mut buffer = vec![0; 1000];
    if reader.read_if_cached(300, &mut buffer).expect("whole") {
        assert_eq!(buffer, bytes[300..1300]);
    }
    flip(&node.path("b", "blk_-9223372036854775792"), 8 * 1000);
    assert!(!matches!(reader.read_if_cached(300, &mut buffer), Ok(true)), "rot is found");
}

#[test]
fn every_flipped_bit_is_found() {
    let (node, bytes) = (DataNode::new(), pattern(700));
    node.put("a", NAME, small_chunks(), &bytes);
    let blocks = node.open();
    for file in ["blk_-9223372036854775792", "blk_-9223372036854775792_1001.meta"] {
        let path = node.path("a", file);
        for bit in 0..8 * fs::metadata(&path).expect("there").len() as usize {
            flip(&path, bit);
            says(read(&blocks, NAME, 0, 700), "corrupt");
            says(blocks.open_block(&id(NAME)).and_then(|reader| reader.verify(&OpenGate)), "corrupt");
            flip(&path, bit);
        }
    }
    // Undamaged chunks can still be read.
    flip(&node.path("a", "blk_-9223372036854775792"), 8 * 650);
    assert_eq!(read(&blocks, NAME, 0, 600).expect("untouched"), bytes[..600]);
    says(read(&blocks, NAME, 599, 2), "bytes 600 to 700 do not match");
}

#[test]
fn truncated_and_extended_files_are_detected() {
    let (node, bytes) = (DataNode::new(), pattern(5000));
    let blocks = node.open();
    for file in ["blk_-9223372036854775792", "blk_-9223372036854775792_1001.meta"] {
        node.put("a", NAME, ChecksumFormat::default(), &bytes);
        let whole = fs::read(node.path("a", file)).expect("there");
        for length in (1..whole.len()).step_by(whole.len() / 47 + 1) {
            fs::write(node.path("a", file), &whole[..length]).expect("written");
            // If the length is still plausible, the damage is detected when the last chunk is read.
            let bytes = fs::metadata(node.path("a", "blk_-9223372036854775792")).expect("there").len();
            says(
                read(&blocks, NAME, 0, bytes as usize).or_else(|_| read(&blocks, NAME, bytes - 1, 1)),
                "corrupt",
            );
        }
        fs::write(node.path("a", file), [&whole[..], &[0; 600]].concat()).expect("written");
        says(read(&blocks, NAME, 0, 5000), "corrupt");
    }
    fs::write(node.path("a", "blk_-9223372036854775792_1001.meta"), [0, 1, 0, 0, 0, 2, 0]).expect("written");
    says(read(&blocks, NAME, 0, 1), "dfs.checksum.type NULL");
    fs::remove_file(node.path("a", "blk_-9223372036854775792_1001.meta")).expect("removed");
    says(read(&blocks, NAME, 0, 1), "is missing");
    fs::remove_file(node.path("a", "blk_-9223372036854775792")).expect("removed");
    assert!(matches!(read(&blocks, NAME, 0, 1), Err(BlockError::Missing { .. })));
}

#[test]
fn a_stale_generation_is_neither_read_nor_removed_nor_replaced() {
    let (node, later) = (DataNode::new(), "blk_-9223372036854775792_1002");
    node.put("a", NAME, ChecksumFormat::default(), &pattern(900));
    let blocks = node.open();
    says(read(&blocks, later, 0, 1), "generation stamp is [1001]");
    assert!(!blocks.remove(&id(later)).expect("nothing is to be done"));
    says(make(&blocks, later, &pattern(900)), "generation stamp 1001");
    assert_eq!(node.names("a"), ["blk_-9223372036854775792", "blk_-9223372036854775792_1001.meta"]);
    assert!(blocks.remove(&id(NAME)).expect("removed"));
    make(&blocks, later, &pattern(900)).expect("made");
    assert!(matches!(read(&blocks, NAME, 0, 1), Err(BlockError::Other { .. })));
}

#[test]
fn a_replica_is_written_where_hdfs_expects_it() {
    let (node, bytes) = (DataNode::new(), pattern(70_000));
    let found = make(&node.open(), "blk_-9223372036854710251_1003", &bytes).expect("made");
    assert_eq!(found, digest(&bytes));
    let disk = if node.names("a").is_empty() { "b" } else { "a" };
    let folder = format!("{disk}/current/{POOL}/current/finalized/subdir1/subdir0");
    let folder = node.root.path().join(folder);
    assert_eq!(fs::read(folder.join("blk_-9223372036854710251")).expect("there"), bytes);
    let sums = fs::read(folder.join("blk_-9223372036854710251_1003.meta")).expect("there");
    assert_eq!(sums, meta(ChecksumFormat::default(), &bytes));
    assert_eq!(node.names(disk).len(), 2, "nothing else is left");
}

#[test]
fn a_corrupt_replica_is_replaced_in_place_with_the_same_checksum_format() {
    let (node, bytes) = (DataNode::new(), pattern(7_000));
    node.put("b", NAME, small_chunks(), &bytes);
    flip(&node.path("b", "blk_-9223372036854775792"), 77);
    let list = node.root.path().join("b/current").join(POOL).join("current/replicas");
    fs::write(&list, "what a DataNode that was stopped remembers").expect("written");
    let blocks = node.open();
    let old = blocks.open_block(&id(NAME)).expect("there");
    make(&blocks, NAME, &bytes).expect("made");
    assert_eq!(
        fs::read(node.path("b", "blk_-9223372036854775792_1001.meta")).expect("there"),
        meta(small_chunks(), &bytes)
    );
    assert_eq!(read(&blocks, NAME, 0, 7_000).expect("whole"), bytes);
    assert!(!list.exists(), "the DataNode would have believed it");
    assert!(node.names("a").is_empty());
    says(old.read_at(0, &mut [0; 10]), "corrupt");
}

#[test]
fn a_replica_on_another_disk_prevents_a_second_copy() {
    let (node, bytes) = (DataNode::new(), pattern(10));
    let blocks = node.open();
    let mut writer = blocks.create(&sink(NAME, 10)).expect("room");
    writer.write_at(0, &bytes).expect("written");
    writer.seal().expect("sealed");
    let other = if node.names("a").is_empty() { "a" } else { "b" };
    node.put(other, NAME, ChecksumFormat::default(), &bytes);
    says(writer.commit().map(drop), "on another disk");
    assert_eq!(node.names("a").len() + node.names("b").len(), 2);
}

/// Makes every look-up in a disk's folder of replicas fail, as on a broken disk.
fn break_disk(node: &DataNode, disk: &str) {
    let folder = node.path(disk, "x");
    let folder = folder.parent().and_then(Path::parent).expect("subdir0");
    if folder.exists() {
        fs::remove_dir_all(folder).expect("removed");
    }
    fs::write(folder, "not a folder").expect("written");
}

#[test]
fn a_broken_disk_does_not_affect_blocks_on_other_disks() {
    for (good, broken) in [("a", "b"), ("b", "a")] {
        let (node, bytes) = (DataNode::new(), pattern(10));
        let lost = "blk_-9223372036854775776_1002";
        node.put(good, NAME, ChecksumFormat::default(), &bytes);
        node.put(broken, lost, ChecksumFormat::default(), &bytes);
        let blocks = node.open();
        break_disk(&node, broken);
        assert_eq!(read(&blocks, NAME, 0, 10).expect("it is on the good disk"), bytes);
        let listed: Vec<BlockId> =
            blocks.list().expect("a disk works").into_iter().map(|held| held.id).collect();
        assert_eq!(listed, [id(NAME)]);
        says(read(&blocks, lost, 0, 10), "Not a directory");
        says(blocks.remove(&id(lost)), "Not a directory");
        assert!(blocks.free_bytes().expect("a disk works") > 0);
        break_disk(&node, good);
        says(blocks.list(), "Not a directory");
        says(read(&blocks, NAME, 0, 10), "Not a directory");
    }
}

#[test]
fn a_new_block_goes_to_another_disk_if_the_emptiest_one_fails() {
    let (node, bytes) = (DataNode::new(), pattern(10));
    let blocks = node.open();
    for broken in ["a", "b"] {
        // Its free space is still known, as on a file system that has shut down after an error.
        let tmp = node.root.path().join(broken).join("current").join(POOL).join("tmp");
        fs::remove_dir(&tmp).expect("empty");
        fs::write(&tmp, "no folder").expect("written");
        let made = make(&blocks, NAME, &bytes);
        if broken == "b" {
            says(made, "Not a directory");
            break;
        }
        made.expect("made on the other disk");
        assert_eq!(node.names("b").len(), 2);
        assert!(blocks.remove(&id(NAME)).expect("removed"));
    }
}

#[test]
fn an_unmounted_disk_makes_no_block_missing_and_gets_none() {
    let (node, bytes) = (DataNode::new(), pattern(10));
    let lost = "blk_-9223372036854775776_1002";
    node.put("a", NAME, ChecksumFormat::default(), &bytes);
    node.put("b", lost, ChecksumFormat::default(), &bytes);
    let blocks = node.open();
    let [_, mounted] = node.folders();
    let disk = node.root.path().join("disk");
    fs::rename(&mounted, &disk).expect("renamed");
    fs::create_dir(&mounted).expect("a free name");
    let is_unmounted = |error: BlockError| matches!(error, BlockError::Unmounted { .. });
    assert!(blocks.open_block(&id(lost)).map(drop).is_err_and(is_unmounted));
    assert!(blocks.verify(&id(lost), &OpenGate).is_err_and(is_unmounted));
    assert!(blocks.remove(&id(lost)).is_err_and(is_unmounted));
    assert!(blocks.list().is_err());
    let list = blocks.list_answering().expect("the other disk works");
    assert_eq!((list.held.len(), list.silent.len()), (1, 1));
    assert_eq!(blocks.silent_folders(), list.silent);
    assert!(make(&blocks, lost, &bytes).is_err_and(is_unmounted), "there may be a copy on the other disk");
    assert_eq!(
        fs::read_dir(&mounted).expect("a folder").count(),
        0,
        "nothing is on the disk of the mount point"
    );
    assert_eq!(read(&blocks, NAME, 0, 10).expect("it is on the other disk"), bytes);
    fs::remove_dir(&mounted).expect("empty");
    fs::rename(&disk, &mounted).expect("renamed back");
    assert!(!blocks.is_displaced(), "it is the same disk");
    assert!(blocks.silent_folders().is_empty());
    assert_eq!(blocks.list().expect("readable").len(), 2);
    assert!(blocks.remove(&id(lost)).expect("removed"));
    assert!(!blocks.remove(&id(lost)).expect("nothing is left"));
}

#[test]
fn a_datanode_gets_only_one_block_of_a_group() {
    let (node, bytes) = (DataNode::new(), pattern(10));
    let (beside, other_group) = ("blk_-9223372036854775791_1001", "blk_-9223372036854775776_1002");
    node.put("b", beside, ChecksumFormat::default(), &bytes);
    let blocks = node.open();
    says(make(&blocks, NAME, &bytes), "has blk_-9223372036854775791_1001 of the same stripe");
    make(&blocks, other_group, &bytes).expect("its neighbour is of another group");
    assert!(blocks.remove(&id(beside)).expect("removed"));
    // The other block appears while this one is being written.
    let mut writer = blocks.create(&sink(NAME, 10)).expect("room");
    writer.write_at(0, &bytes).expect("written");
    writer.seal().expect("sealed");
    node.put("a", beside, ChecksumFormat::default(), &bytes);
    says(writer.commit().map(drop), "of the same stripe");
    assert!(read(&blocks, NAME, 0, 1).is_err(), "it has no name");
}

/// Blocks of replicated files have positive numbers, and consecutive ones belong to no group.
#[test]
fn a_datanode_gets_several_blocks_of_a_replicated_file() {
    let (node, bytes) = (DataNode::new(), pattern(10));
    let names = ["blk_1073741825_1001", "blk_1073741826_1002"];
    node.put("b", names[0], ChecksumFormat::default(), &bytes);
    let blocks = node.open();
    make(&blocks, names[1], &bytes).expect("made beside it");
    assert_eq!(read(&blocks, names[1], 0, 10).expect("whole"), bytes);
    assert!(blocks.list().expect("listed").is_empty(), "they may be of files without parity");
    let listed = blocks.with_raid(true).list().expect("listed");
    assert_eq!(listed.iter().map(|held| held.id.0.as_str()).collect::<Vec<_>>(), names);
}

/// HDFS itself has placed two blocks of a group on one DataNode, and one of them is corrupt.
#[test]
fn a_corrupt_replica_is_replaced_though_another_block_of_its_group_is_there() {
    let (node, bytes) = (DataNode::new(), pattern(7_000));
    node.put("a", "blk_-9223372036854775791_1001", ChecksumFormat::default(), &bytes);
    node.put("b", NAME, ChecksumFormat::default(), &bytes);
    flip(&node.path("b", "blk_-9223372036854775792"), 77);
    let blocks = node.open();
    make(&blocks, NAME, &bytes).expect("made in place");
    assert_eq!(read(&blocks, NAME, 0, 7_000).expect("whole"), bytes);
    assert_eq!((node.names("a").len(), node.names("b").len()), (2, 2));
}

#[test]
fn unfinished_replicas_leave_no_files() {
    let node = DataNode::new();
    let blocks = node.open();
    let mut writer = blocks.create(&sink(NAME, 1000)).expect("room");
    writer.write_at(0, &[1; 400]).expect("written");
    says(writer.seal(), "bytes 400 to 1000 were never written");
    says(writer.reader().map(drop), "not sealed");
    says(writer.write_at(999, &[1; 2]), "exceed the block's");
    says(writer.commit().map(drop), "not sealed");
    assert_eq!(node.names("a").len() + node.names("b").len(), 0);
    drop(blocks);
    // The next start removes Mend's leftovers after a crash, but not the DataNode's files.
    let tmp = node.root.path().join("a/current").join(POOL).join("tmp");
    for file in [".mend-00000001-blk_1", "blk_7"] {
        fs::write(tmp.join(file), "x").expect("written");
    }
    node.open();
    assert_eq!(node.names("a"), ["blk_7"]);
}

#[test]
fn a_starting_datanode_removes_unfinished_files() {
    let (node, bytes) = (DataNode::new(), pattern(1000));
    let blocks = node.open();
    let mut writer = blocks.create(&sink(NAME, 1000)).expect("room");
    writer.write_at(0, &bytes).expect("written");
    writer.seal().expect("sealed");
    for disk in ["a", "b"] {
        let tmp = node.root.path().join(disk).join("current").join(POOL).join("tmp");
        fs::remove_dir_all(&tmp).expect("removed");
        fs::create_dir(&tmp).expect("made");
    }
    assert!(writer.commit().is_err());
    assert_eq!(node.names("a").len() + node.names("b").len(), 0);
    make(&blocks, NAME, &bytes).expect("made the second time");
}

#[test]
fn take_back_removes_only_own_files() {
    let (node, bytes) = (DataNode::new(), pattern(1000));
    let blocks = node.open();
    let name = || {
        let mut writer = blocks.writer(&sink(NAME, 1000)).expect("room");
        writer.write_at(0, &bytes).expect("written");
        writer.seal().expect("sealed");
        Box::new(writer).give_names().expect("named")
    };
    name().take_back();
    assert_eq!(node.names("a").len() + node.names("b").len(), 0);
    let named = name();
    let disk = if node.names("a").is_empty() { "b" } else { "a" };
    let replica: ReplicaName = NAME.parse().expect("a name");
    let (theirs, path) = (node.path(disk, "theirs"), node.path(disk, &replica.file()));
    fs::write(&theirs, &bytes).expect("written");
    fs::rename(&theirs, &path).expect("put in its place");
    named.take_back();
    assert_eq!(node.names(disk), [replica.file()], "the other's bytes stay");
}

#[test]
fn unusable_folders_are_reported() {
    let node = DataNode::new();
    let taken = node.open();
    says(HdfsBlocks::open(&node.folders(), None), "another helper");
    drop(taken);
    says(HdfsBlocks::open(&[], None), "no folder");
    says(HdfsBlocks::open(&node.folders(), Some("BP-2-127.0.0.1-1")), "BP-2");
    fs::create_dir(node.root.path().join("a/current/BP-2-127.0.0.1-1")).expect("made");
    says(HdfsBlocks::open(&node.folders(), None), "several block pools");
    assert!(HdfsBlocks::open(&node.folders(), Some(POOL)).is_ok());
    fs::write(node.root.path().join("b/current/VERSION"), "layoutVersion=-56\n").expect("written");
    says(HdfsBlocks::open(&node.folders(), Some(POOL)), "its layout version is -56");
    says(
        read(&HdfsBlocks::open(&node.folders()[..1], Some(POOL)).expect("one"), "../etc", 0, 1),
        "not a valid block name",
    );
    // The disk of the second folder is not mounted. The DataNode may run without it, and so does the helper.
    fs::remove_file(node.root.path().join("b/current/VERSION")).expect("removed");
    assert!(HdfsBlocks::open(&node.folders(), Some(POOL)).is_ok());
    says(HdfsBlocks::open(&node.folders()[1..], Some(POOL)), "VERSION");
    let empty = tempfile::tempdir().expect("a folder");
    says(HdfsBlocks::open(&[empty.path().to_owned()], None), "no DataNode has run here yet");
}

/// Starts a plug-in that gives these answers. Its thread returns the requests that it received.
fn plugin(answers: &'static [&'static str]) -> (std::net::SocketAddr, std::thread::JoinHandle<Vec<String>>) {
    use std::io::{BufRead, BufReader, Write};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound");
    let answer = move |line: &&str| {
        let (mut stream, _) = listener.accept().expect("asked");
        let mut question = String::new();
        BufReader::new(&stream).read_line(&mut question).expect("a line");
        writeln!(stream, "{line}").expect("answered");
        question
    };
    (address, std::thread::spawn(move || answers.iter().map(answer).collect()))
}

fn hand_over(node: &DataNode, address: std::net::SocketAddr) -> Result<(), BlockError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let Delivery::HandedOver(mut writer) = node.open().with_datanode(address).deliver(&sink(NAME, 10))?
    else {
        panic!("it has a DataNode");
    };
    runtime.block_on(writer.prepare())?;
    let before = node.open_names();
    writer.write_at(0, &pattern(10))?;
    writer.seal()?;
    assert_eq!(node.open_names(), before, "it has no name yet");
    runtime.block_on(writer.hand_over())
}

#[test]
fn the_plugin_is_asked_before_and_told_after() {
    let node = DataNode::new();
    let (address, asked) = plugin(&["yes", "yes", "yes"]);
    hand_over(&node, address).expect("taken");
    let ready = format!("ready {POOL}\n");
    let adopt = format!("adopt {POOL} -9223372036854775792 1001 10\n");
    assert_eq!(asked.join().expect("it answered"), [ready.clone(), ready, adopt]);
    assert_eq!(node.open_names(), ["blk_-9223372036854775792", "blk_-9223372036854775792_1001.meta"]);
}

#[test]
fn the_namenode_is_told_of_a_block_that_prevents_another_one_of_its_group() {
    let node = DataNode::new();
    node.put("b", "blk_-9223372036854775791_1001", ChecksumFormat::default(), &pattern(10));
    let (address, asked) = plugin(&["yes"]);
    says(hand_over(&node, address), "of the same stripe");
    assert_eq!(asked.join().expect("it answered"), [format!("tell {POOL} -9223372036854775791\n")]);
}

#[test]
fn refused_files_are_removed_and_possibly_adopted_files_stay() {
    let refused =
        |result| matches!(result, Err(BlockError::Process { error: ProcessError::Refused { .. }, .. }));
    let node = DataNode::new();
    assert!(refused(hand_over(&node, plugin(&["no NameNode has called"]).0)));
    assert!(refused(hand_over(&node, plugin(&["yes", "yes", "no it will not"]).0)));
    assert_eq!(node.open_names(), [""; 0]);
    says(hand_over(&node, "127.0.0.1:1".parse().expect("nobody listens there")), "mend.hdfs.MendPlugin");
    assert_eq!(node.open_names(), [""; 0]);
    says(hand_over(&node, plugin(&["yes", "yes", "HTTP/1.1 400"]).0), "not a valid answer of Mend's plug-in");
    assert_eq!(node.open_names().len(), 2);
    hand_over(&node, plugin(&["yes", "yes", "no it will not"]).0).expect_err("refused");
    assert_eq!(node.open_names().len(), 2, "what was there before is not taken away");
}

#[test]
fn a_block_gets_the_checksum_format_of_its_group() {
    let format = |disks: &DataNode| {
        let disk = if disks.names("a").is_empty() { "b" } else { "a" };
        let meta = fs::read(disks.path(disk, "blk_-9223372036854775792_1001.meta")).expect("there");
        ChecksumFormat::decode(meta.first_chunk().expect("a header"), meta.len() as u64).expect("a format")
    };
    let permit = BlockTerms { checksums: Some(small_chunks()), token: None }.to_permit().expect("short");
    let told = Sink { end: SinkEnd::Kept { label: None, permit }, ..sink(NAME, 1000) };
    let other = ChecksumFormat::new(ChecksumKind::Crc32c, 200).expect("possible");
    let make = |node: &DataNode, sink: &Sink| {
        let mut writer = node.open().with_checksums(other).create(sink).expect("room");
        writer.write_at(0, &pattern(1000)).expect("written");
        writer.seal().expect("sealed");
        writer.commit().expect("committed");
    };
    let node = DataNode::new();
    make(&node, &sink(NAME, 1000));
    assert_eq!(format(&node), other, "the configured format");
    make(&node, &told);
    assert_eq!(format(&node), small_chunks(), "that of the group, not of the replaced block");
    make(&node, &sink(NAME, 1000));
    assert_eq!(format(&node), small_chunks(), "that of the replaced block");
    assert_eq!(read(&node.open(), NAME, 0, 1000).expect("whole"), pattern(1000));
}

mod pushes;

proptest! {
    #[test]
    fn writes_in_any_order_and_pieces_make_the_same_files(
        bytes in prop::collection::vec(any::<u8>(), 1..3000),
        cuts in prop::collection::vec((0usize..3000, 1usize..900), 0..12),
        chunk in 1u32..600,
    ) {
        let node = DataNode::new();
        let format = ChecksumFormat::new(ChecksumKind::Crc32c, chunk).expect("possible");
        let blocks = node.open().with_checksums(format);
        let mut writer = blocks.create(&sink(NAME, bytes.len())).expect("room");
        // Writes wrong bytes and seals them first, then overwrites all bytes in pieces.
        writer.write_at(0, &vec![0xee; bytes.len()]).expect("written");
        writer.seal().expect("sealed");
        let mut rest: Vec<_> = (0..bytes.len()).step_by(700).map(|start| start..(start + 700).min(bytes.len())).collect();
        rest.extend(cuts.iter().filter(|(start, _)| *start < bytes.len()).map(|&(start, length)| start..(start + length).min(bytes.len())));
        for range in rest {
            writer.write_at(range.start as u64, &bytes[range]).expect("written");
        }
        let sealed = writer.seal().expect("sealed");
        prop_assert_eq!(sealed, Some(digest(&bytes)));
        let reader = writer.reader().expect("sealed");
        prop_assert_eq!(reader.digest(), sealed);
        reader.read_at(0, &mut vec![0; bytes.len()]).expect("every byte matches its checksum");
        writer.commit().expect("committed");
        let disk = if node.names("a").is_empty() { "b" } else { "a" };
        prop_assert_eq!(fs::read(node.path(disk, "blk_-9223372036854775792")).expect("there"), &bytes[..]);
        prop_assert_eq!(fs::read(node.path(disk, "blk_-9223372036854775792_1001.meta")).expect("there"), meta(format, &bytes));
    }
}
