//! Reads of lost blocks of a raided file, and its parity when the file is renamed or deleted.

use std::fs;

use hdfs_raid::{Codec, Fingerprint};
use testbed::hdfs::FsckBlock;
use testbed::{Mend, content};

use crate::mend;
use crate::reading::{MEND, MEND_CONTEXT, read};
use crate::world::World;

pub const BLOCK: usize = 1 << 20;
pub const DATA: usize = 10;
pub const PARITIES: usize = 4;
/// The file's length: twelve blocks in two stripes; the last stripe and the last block are short.
pub const BYTES: usize = 11 * BLOCK + 12_345;
pub const FILE: &str = "/raided/file";
pub const PARITY: &str = "/raidrs/raided/file";
const NOTE: &str = "user.mend.source";

/// The raided file: the DataNode of each of its blocks and of its parity, the DataNodes to kill, and the text of the
/// note on its parity.
pub struct Raided {
    pub holders: Vec<usize>,
    pub parity: Vec<usize>,
    pub dead: Vec<usize>,
    pub note: String,
}

impl Raided {
    /// Returns how many bytes of a range are in lost blocks.
    fn lost(&self, from: usize, bytes: usize) -> u64 {
        (from..from + bytes).filter(|at| self.dead.contains(&self.holders[at / BLOCK])).count() as u64
    }

    /// Returns the offset of the first lost block.
    fn first_lost(&self) -> usize {
        BLOCK * self.holders.iter().position(|node| self.dead.contains(node)).expect("a lost block")
    }
}

pub fn lost_blocks(world: &mut World) {
    let mut mend = mend::attach(world, &[], false);
    mend.wait_for_helpers();
    testbed::hdfs::issue_plugin(&mend, world.certificates.path());
    let raided = encode(world);
    assert_eq!(read(world, MEND, FILE, 5, 3 * BLOCK), 0, "all blocks are on their DataNodes");
    raided.dead.iter().for_each(|&node| world.cluster.kill(node));
    // The NameNode has not noticed the dead DataNodes yet. The reader may have to load the certificates of
    // this cluster.
    testbed::eventually("Mend is asked", || {
        (read(world, MEND, FILE, raided.first_lost() + 777, 4096) == 4096).then_some(())
    });
    let nodes = world.cluster.nodes().len();
    world.cluster.await_nodes(nodes - raided.dead.len());
    read_lost_ranges(world, &raided);
    other_parity_is_not_used(world, &raided);
    without_a_coordinator(world, &mut mend, &raided);
    raided.dead.iter().for_each(|&node| world.cluster.start(node));
    world.cluster.await_nodes(nodes);
    world.await_whole();
    parity_follows_the_file(world);
    world.assert_whole();
}

/// Stores a file with one replica of each block, and its parity with Mend's note. The NameNode chooses the
/// DataNodes at random, so the files are stored again if two DataNodes would lose more of a stripe than can be decoded.
pub fn encode(world: &mut World) -> Raided {
    for _ in 0..10 {
        if let Some(raided) = store(world) {
            set_note(world, &raided.note);
            return raided;
        }
        world.cluster.console().run(&["dfs", "-rm", "-r", "-skipTrash", FILE, PARITY]);
    }
    panic!("ten times too many blocks of a stripe on two DataNodes");
}

/// Stores the file and its parity. Returns nothing if no DataNodes can be killed.
fn store(world: &mut World) -> Option<Raided> {
    let content = content(FILE, BYTES);
    let parity = parity_of(&content);
    let inode = world.files.put_once(&mut world.cluster, FILE, content, BLOCK);
    world.files.put_once(&mut world.cluster, PARITY, parity, BLOCK);
    let [data, parity] = [FILE, PARITY].map(|path| blocks(world, path));
    let code = Fingerprint::of_code(&Codec::hdfs_raid()[0].code);
    let note = format!("2 {inode} 3 {} {} {code}", fingerprint(&data), fingerprint(&parity));
    let [holders, parity] = [&data, &parity].map(|blocks| holders(world, blocks));
    let dead = victims(&holders, &parity)?;
    Some(Raided { holders, parity, dead, note })
}

fn blocks(world: &mut World, path: &str) -> Vec<FsckBlock> {
    world.cluster.console().fsck(path).into_iter().flat_map(|file| file.blocks).collect()
}

/// Returns the fingerprint of a file's blocks that Mend's notes contain.
fn fingerprint(blocks: &[FsckBlock]) -> String {
    let words = |block: &FsckBlock| [block.number.cast_unsigned(), block.stamp, block.bytes];
    let bytes: Vec<u8> = blocks.iter().flat_map(words).flat_map(u64::to_be_bytes).collect();
    format!("{:016x}", crc_fast::checksum(crc_fast::CrcAlgorithm::Crc64Nvme, &bytes))
}

fn set_note(world: &mut World, note: &str) {
    world.cluster.console().run(&["dfs", "-setfattr", "-n", NOTE, "-v", note, PARITY]);
}

/// Returns the parity as HDFS-RAID computes it: blocks that are missing or short count as zeros.
fn parity_of(content: &[u8]) -> Vec<u8> {
    let [rs, ..] = Codec::hdfs_raid();
    let code = rs.code.build().expect("a code");
    let parity = |stripe: &[u8]| {
        let mut padded = stripe.to_vec();
        padded.resize(DATA * BLOCK, 0);
        code.encoding().apply(&padded.chunks(BLOCK).collect::<Vec<_>>()).concat()
    };
    content.chunks(DATA * BLOCK).flat_map(parity).collect()
}

/// Returns the DataNode of each block.
fn holders(world: &World, blocks: &[FsckBlock]) -> Vec<usize> {
    blocks.iter().map(|block| world.cluster.node_at(&block.replicas[0].1)).collect()
}

/// Chooses a DataNode with a block of the first stripe, and the one with the file's last block. No stripe has
/// more than four blocks on them.
fn victims(data: &[usize], parity: &[usize]) -> Option<Vec<usize>> {
    let last = *data.last().expect("a block");
    let on = |dead: &[usize; 2], nodes: &[usize]| nodes.iter().filter(|node| dead.contains(node)).count();
    let is_decodable = |dead: &[usize; 2]| {
        let mut stripes = data.chunks(DATA).zip(parity.chunks(PARITIES));
        stripes.all(|(data, parity)| on(dead, data) + on(dead, parity) <= PARITIES)
    };
    let mut pairs = data[..DATA].iter().map(|&first| [first, last]);
    let mut dead = pairs.find(is_decodable)?.to_vec();
    dead.dedup();
    Some(dead)
}

fn read_lost_ranges(world: &mut World, raided: &Raided) {
    let start = raided.first_lost();
    for (from, bytes) in [
        (start, 1),
        (start + BLOCK - 1, 1),
        (start + 1000, 4096),
        (start + 3, BLOCK),
        (start.saturating_sub(100), 2 * BLOCK),
        (11 * BLOCK - 100, 300),
        (BYTES - 7, 7),
        (0, BYTES),
    ] {
        assert_eq!(read(world, MEND, FILE, from, bytes), raided.lost(from, bytes), "{from}+{bytes}");
    }
    read(world, MEND_CONTEXT, FILE, start + 12_345, 6789);
    read_whole(world);
}

/// Reads the file sequentially, in small pieces.
fn read_whole(world: &mut World) {
    let local = world.cluster.folder().join("whole");
    shell(world, &["-get", "-f", FILE, local.to_str().expect("text")]);
    assert!(fs::read(&local).expect("got") == world.files.content(FILE), "other bytes");
}

/// Runs a command with Mend's file system.
fn shell(world: &mut World, words: &[&str]) {
    world.cluster.console().run(&[&["shell", MEND], words].concat());
}

/// Parity with a note about other blocks is not used. Parity without a note, as HDFS-RAID writes it, is used
/// if the modification times are equal.
fn other_parity_is_not_used(world: &mut World, raided: &Raided) {
    set_note(world, "1 7 3 0 0");
    let local = world.cluster.folder().join("read");
    let words = ["pread", MEND, FILE, &raided.first_lost().to_string(), "100", local.to_str().expect("text")];
    let said = world.cluster.console().ask(&words);
    assert!(said.code != 0 && said.text.contains("BlockMissingException"), "{}", said.text);
    world.cluster.console().run(&["dfs", "-setfattr", "-x", NOTE, PARITY]);
    for path in [FILE, PARITY] {
        world.cluster.console().run(&["dfs", "-touch", "-m", "-t", "20200101:000000", path]);
    }
    assert_eq!(read(world, MEND, FILE, raided.first_lost(), 100), 100);
}

/// Without a coordinator, the reader decodes lost blocks itself.
fn without_a_coordinator(world: &mut World, mend: &mut Mend, raided: &Raided) {
    mend.kill_coordinator();
    assert_eq!(read(world, MEND, FILE, raided.first_lost() + 4321, 500), 0);
    assert_eq!(read(world, MEND, FILE, 11 * BLOCK - 100, 12_445), 0);
    read_whole(world);
}

fn parity_follows_the_file(world: &mut World) {
    world.cluster.console().run(&["dfs", "-mkdir", "/raided/below"]);
    shell(world, &["-mv", FILE, "/raided/below"]);
    assert_eq!(exist(world, [PARITY, "/raidrs/raided/below/file"]), [false, true]);
    shell(world, &["-mv", "/raided/below", "/raided/moved"]);
    assert_eq!(exist(world, ["/raidrs/raided/below", "/raidrs/raided/moved/file"]), [false, true]);
    // Parity of a file that is not at its place, for example because another client renamed the file, is
    // kept.
    world.cluster.console().run(&["dfs", "-touchz", "/raidrs/raided/moved/other"]);
    shell(world, &["-rm", "-r", "-skipTrash", "/raided/moved"]);
    let left = exist(world, ["/raidrs/raided/moved/file", "/raidrs/raided/moved/other"]);
    assert_eq!(left, [false, true]);
    parity_of_a_file_in_a_snapshot_stays(world);
    world.cluster.console().run(&["dfs", "-rm", "-r", "-skipTrash", "/raided", "/raidrs"]);
    [FILE, PARITY].iter().for_each(|path| world.files.forget(path));
}

/// The file is moved out of the folder with snapshots, as into the trash, and deleted there.
fn parity_of_a_file_in_a_snapshot_stays(world: &mut World) {
    let console = world.cluster.console();
    console.run(&["dfs", "-mkdir", "/aside"]);
    for path in ["/raided/kept", "/raidrs/raided/kept"] {
        console.run(&["dfs", "-touchz", path]);
        console.run(&["dfs", "-touch", "-m", "-t", "20200101:000000", path]);
    }
    console.run(&["dfsadmin", "-allowSnapshot", "/raided"]);
    console.run(&["dfs", "-createSnapshot", "/raided", "s1"]);
    shell(world, &["-mv", "/raided/kept", "/aside"]);
    assert_eq!(exist(world, ["/raidrs/raided/kept", "/raidrs/aside/kept"]), [false, true]);
    shell(world, &["-rm", "-r", "-skipTrash", "/aside"]);
    assert_eq!(exist(world, ["/aside", "/raidrs/aside/kept"]), [false, true]);
    let console = world.cluster.console();
    console.run(&["dfs", "-deleteSnapshot", "/raided", "s1"]);
    console.run(&["dfsadmin", "-disallowSnapshot", "/raided"]);
}

fn exist(world: &mut World, paths: [&str; 2]) -> [bool; 2] {
    paths.map(|path| world.cluster.console().exists(path))
}
