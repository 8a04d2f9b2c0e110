//! Small positional reads of lost blocks. They must return correct bytes: through Mend if possible, otherwise
//! decoded by HDFS.

use testbed::{Mend, eventually};

use crate::mend;
use crate::world::{Group, World};

const CELL: usize = 1 << 20;
pub const MEND: &str = "org.apache.hadoop.hdfs.MendDistributedFileSystem";
pub const MEND_CONTEXT: &str = "org.apache.hadoop.fs.MendHdfs";

/// Reads bytes of a file and compares them with the stored ones. Returns how many of the bytes came through
/// Mend.
pub fn read(world: &mut World, system: &str, path: &str, from: usize, bytes: usize) -> u64 {
    let through = |said: &str| {
        said.trim().rsplit(' ').next().and_then(|text| text.parse::<u64>().ok()).expect("a number")
    };
    let local = world.cluster.folder().join("read");
    let local = local.to_str().expect("text").to_owned();
    let mut pread = |from: usize, bytes: usize| {
        let words = ["pread", system, path, &from.to_string(), &bytes.to_string(), &local];
        through(&world.cluster.console().run(&words))
    };
    let before = pread(0, 0);
    let after = pread(from, bytes);
    let got = std::fs::read(&local).expect("read");
    assert!(got == world.files.content(path)[from..from + bytes], "{path} {from}+{bytes}: other bytes");
    after - before
}

/// Reads bytes of a file, until this many of them came through Mend. On a busy machine, a read may take longer than the
/// reader waits for Mend, and HDFS then decodes the bytes for a while. Every read must return the stored bytes.
fn await_read(world: &mut World, path: &str, [from, bytes]: [usize; 2], through: u64) {
    let what = format!("{through} of the bytes {from}+{bytes} to come through Mend");
    eventually(&what, || (read(world, MEND, path, from, bytes) == through).then_some(()));
}

/// Returns how many bytes of a range of the first group are in blocks of dead DataNodes.
fn lost(group: &Group, dead: &[usize], from: usize, bytes: usize) -> u64 {
    let is_lost = |at: &usize| {
        let index = at / CELL % group.shape.code.data_blocks();
        group.holders[index].is_some_and(|holder| dead.contains(&holder))
    };
    (from..from + bytes).filter(is_lost).count() as u64
}

/// Returns the file offset at which the cell in row `row` of data block `index` starts, in the first group.
fn place(group: &Group, row: usize, index: usize) -> usize {
    (row * group.shape.code.data_blocks() + index) * CELL
}

pub fn lost_ranges(world: &mut World) {
    let mut mend = mend::attach(world, &[], false);
    mend.wait_for_helpers();
    testbed::hdfs::issue_plugin(&mend, world.certificates.path());
    let (narrow, wide) = (world.first("RS-6-3-1024k"), world.first("RS-10-4-1024k"));
    let path = narrow.path.clone();
    // Healthy blocks are read from their DataNodes.
    assert_eq!(read(world, MEND, &path, place(&narrow, 0, 1) + 5, 4096), 0);
    // Kill two DataNodes. Each holds a data block, but not block 0, of one of the groups.
    let other = (1..9).find(|&at| wide.holders[at] != narrow.holders[1]).expect("one on another DataNode");
    let dead = [(&narrow, 1), (&wide, other)].map(|(group, at)| group.holders[at].expect("held"));
    for node in dead {
        world.cluster.kill(node);
    }
    // The NameNode has not noticed the dead DataNodes yet, but the read already goes through Mend.
    await_read(world, &path, [place(&narrow, 0, 1) + 777, 4096], 4096);
    // Kill the helper of one of the two dead DataNodes as well.
    mend.kill_helper(dead[0]);
    let nodes = world.cluster.nodes().len();
    world.cluster.await_nodes(nodes - 2);
    for group in [&narrow, &wide] {
        let start = place(group, 0, if group.path == path { 1 } else { other });
        for (from, bytes) in [
            (start, 1),
            (start + 1000, 4096),
            (start + CELL - 1, 1),
            (start - 100, 300),
            (start + CELL - 100, 300),
            (start + 3, CELL),
            (start - 7, CELL),
        ] {
            let expected = lost(group, &dead, from, bytes);
            assert!(expected > 0);
            await_read(world, &group.path, [from, bytes], expected);
        }
        // This range is longer than Mend accepts in one read. How much of it comes through Mend depends on
        // whether HDFS detects the dead DataNode cell by cell, so only the contents are checked.
        read(world, MEND, &group.path, start - CELL, 3 * CELL);
        read(world, MEND_CONTEXT, &group.path, start + 12_345, 6789);
    }
    without_a_coordinator(world, mend, &narrow, &dead);
}

/// The coordinator first hangs and is then down. In both cases HDFS decodes the lost bytes itself.
fn without_a_coordinator(world: &mut World, mut mend: Mend, narrow: &Group, dead: &[usize]) {
    let (path, start) = (narrow.path.clone(), place(narrow, 0, 1));
    mend.signal_coordinator("STOP");
    for at in 0..3 {
        assert_eq!(read(world, MEND, &path, start + 1000 * at, 500), 0);
    }
    mend.signal_coordinator("CONT");
    mend.kill_coordinator();
    assert_eq!(read(world, MEND, &path, start + 4321, 500), 0);
    mend.start_coordinator();
    mend.wait_for_helpers();
    // HDFS sends reads through Mend again after a while.
    await_read(world, &path, [start + 1234, 999], 999);
    for &node in dead {
        world.cluster.start(node);
    }
    world.await_nodes();
    world.await_whole();
}
