//! Tests a disk that fills up. This file must contain no second test: a child process started by another test
//! could briefly inherit the lock on the folder.

use std::process::Command;

use codes::BlockIndex;
use dir::DirBlocks;
use repair::{BlockId, Sink, SinkEnd};
use store_api::{BlockError, Blocks, OpenGate};
use tempfile::TempDir;

fn sink(id: &BlockId, bytes: u64) -> Sink {
    Sink {
        index: BlockIndex(0),
        id: id.clone(),
        bytes,
        digest: None,
        end: SinkEnd::Kept { label: None, permit: None },
    }
}

fn id(name: &str) -> BlockId {
    BlockId(name.to_owned())
}

fn pattern(seed: usize, length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 31 + at / 4096 + seed) as u8).collect()
}

/// A file system of 1 MiB that is unmounted on drop.
struct TinyDisk(TempDir);

impl TinyDisk {
    /// Mounts the file system. Returns `None` and prints the reason if this process may not mount one.
    fn mount() -> Option<Self> {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut mount = Command::new("mount");
        let mount = mount.args(["-t", "tmpfs", "-o", "size=1m", "tmpfs"]).arg(folder.path()).output();
        match mount {
            Ok(output) if output.status.success() => Some(Self(folder)),
            Ok(output) => {
                println!("skipped: no tmpfs: {}", String::from_utf8_lossy(&output.stderr).trim());
                None
            }
            Err(error) => {
                println!("skipped: no `mount`: {error}");
                None
            }
        }
    }
}

impl Drop for TinyDisk {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg(self.0.path()).status();
        if !unmounted.is_ok_and(|status| status.success()) {
            eprintln!("{} is still mounted", self.0.path().display());
        }
    }
}

#[test]
fn a_full_disk_is_reported_and_no_block_is_lost() {
    let Some(disk) = TinyDisk::mount() else { return };
    let blocks = DirBlocks::open(disk.0.path()).expect("a new folder");
    let store = |name: &str, length: usize| {
        let mut writer = blocks.create(&sink(&id(name), length as u64))?;
        writer.write_at(0, &pattern(1, length))?;
        writer.seal()?;
        writer.commit().map(drop)
    };
    store("a", 400_000).expect("it fits");
    assert!(
        matches!(store("b", 900_000), Err(BlockError::NoSpace { .. })),
        "seen before anything is written"
    );

    // Each of the two blocks alone fits on the disk, but not both.
    let mut first = blocks.create(&sink(&id("c"), 450_000)).expect("seems to fit");
    let mut second = blocks.create(&sink(&id("d"), 450_000)).expect("seems to fit");
    first.write_at(0, &pattern(3, 450_000)).expect("fits");
    let error = second.write_at(0, &pattern(4, 450_000)).expect_err("full");
    assert!(matches!(error, BlockError::NoSpace { ref block, .. } if block.0 == "d"), "{error}");
    assert!(second.seal().is_err(), "a failed write cannot be sealed");
    drop(second);
    first.seal().expect("complete");
    first.commit().expect("committed");

    for name in ["a", "c"] {
        blocks.open_block(&id(name)).expect("there").verify(&OpenGate).expect("whole");
    }
    assert_eq!(blocks.list().expect("readable").len(), 2);
}
