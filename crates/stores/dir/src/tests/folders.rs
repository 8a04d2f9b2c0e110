//! Tests of the folder of a helper's blocks: the lock, the list of blocks, and a full disk.

use std::fs;
use std::os::unix::fs::symlink;

use repair::wire::control::HeldBlock;

use super::*;

#[test]
fn a_folder_is_created_and_locked_by_one_helper() {
    let outer = tempfile::tempdir().expect("a temporary folder");
    let folder = outer.path().join("not/there/yet");
    let first = DirBlocks::open(&folder).expect("made");
    let error = DirBlocks::open(&folder).expect_err("in use").to_string();
    assert!(error.contains("another helper") && error.contains("not/there/yet"), "{error}");
    let writer = first.create(&sink(&id("a"), 1)).expect("space");
    drop(first);
    DirBlocks::open(&folder).expect_err("a writer still uses it");
    drop(writer);
    DirBlocks::open(&folder).expect("free again");
}

#[test]
fn a_file_in_place_of_the_folder_is_reported() {
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    let error = DirBlocks::open(file.path()).expect_err("not a folder").to_string();
    assert!(error.contains(&file.path().display().to_string()), "{error}");
}

#[test]
fn blocks_are_listed_by_name_and_can_be_removed() {
    let test = TestStore::new();
    for (name, length) in [("9.1", 0), ("10.1", 5000), ("blk_-7", 1)] {
        test.store(&id(name), &pattern(1, length));
    }
    let unfinished = test.blocks.create(&sink(&id("11.0"), 9)).expect("space");
    let held = |name, bytes| HeldBlock { id: id(name), bytes };
    assert_eq!(
        test.blocks.list().expect("readable"),
        [held("10.1", 5000), held("9.1", 0), held("blk_-7", 1)]
    );
    drop(unfinished); // The writer keeps the folder locked too.

    assert!(test.blocks.remove(&id("10.1")).expect("removable"));
    assert!(!test.blocks.remove(&id("10.1")).expect("gone"));
    assert!(!test.blocks.remove(&id("never")).expect("never there"));
    assert!(matches!(test.load(&id("10.1")), Err(BlockError::Missing { .. })));
    let test = test.restart();
    assert_eq!(test.blocks.list().expect("readable"), [held("9.1", 0), held("blk_-7", 1)]);
}

#[test]
fn bad_names_are_refused_everywhere() {
    let test = TestStore::new();
    for name in ["", "..", "../../etc/passwd", "a.crc", ".lock"] {
        let bad =
            |result: Result<(), BlockError>| assert!(matches!(result, Err(BlockError::BadName(_))), "{name}");
        bad(test.blocks.open_block(&id(name)).map(|_| ()));
        bad(test.blocks.create(&sink(&id(name), 1)).map(|_| ()));
        bad(test.blocks.remove(&id(name)).map(|_| ()));
    }
}

#[test]
fn blocks_that_cannot_fit_are_refused_at_once() {
    let test = TestStore::new();
    let free = test.blocks.free_bytes().expect("known");
    assert!(free > 0);
    if free < 256 << 30 {
        assert!(matches!(test.blocks.create(&sink(&id("a"), free + 1)), Err(BlockError::NoSpace { .. })));
    }
    let error = test.blocks.create(&sink(&id("a"), u64::MAX)).map(|_| ()).expect_err("too large").to_string();
    assert!(error.contains("the limit is 256 GiB"), "{error}");
    assert_eq!(test.files(), [""; 0]);
}

#[test]
fn files_and_folders_that_cannot_be_examined_are_omitted() {
    let test = TestStore::new();
    for name in ["a", "b", "c"] {
        test.store(&id(name), b"bytes");
    }
    let (a, b) = (test.place(&id("a")), test.place(&id("b")));
    // A symbolic link to itself cannot be examined by any user.
    fs::remove_file(&a.block).expect("there");
    symlink(&a.block, &a.block).expect("a free name");
    fs::remove_dir_all(&b.folder).expect("there");
    symlink(&b.folder, &b.folder).expect("a free name");
    let held = [HeldBlock { id: id("c"), bytes: 5 }];
    assert_eq!(test.blocks.list().expect("one bad file is no reason to fail"), held);
    let test = test.restart();
    assert_eq!(test.blocks.list().expect("the same after a restart"), held);
    test.store(&id("d"), b"more");
}

/// Otherwise the blocks in it would count as missing.
#[test]
fn a_subfolder_that_cannot_be_examined_makes_the_list_incomplete() {
    let test = TestStore::new();
    for name in ["a", "b"] {
        test.store(&id(name), b"bytes");
    }
    let (folder, aside) = (test.place(&id("b")).folder, test.folder.path().join("aside"));
    fs::rename(&folder, &aside).expect("renamed");
    // Following this link fails for every user, but not because there is no such folder.
    symlink("x".repeat(300), &folder).expect("a free name");
    let test = test.restart();
    let list = test.blocks.list_answering().expect("the other subfolder can be read");
    assert_eq!(list.held, [HeldBlock { id: id("a"), bytes: 5 }]);
    let path = folder.display().to_string();
    assert!(list.silent.len() == 1 && list.silent[0].contains(&path), "{:?}", list.silent);
    let error = test.blocks.list().expect_err("the block may be there").to_string();
    assert!(error.contains(&path), "{error}");
    test.blocks.check_writable().expect("a good disk");
    assert_eq!(test.blocks.silent_folders(), list.silent);

    fs::remove_file(&folder).expect("there");
    fs::rename(&aside, &folder).expect("renamed back");
    test.blocks.check_writable().expect("a good disk");
    assert_eq!(test.blocks.silent_folders(), [""; 0]);
    assert_eq!(test.blocks.list().expect("all can be read").len(), 2);
}

#[test]
fn an_unmounted_disk_makes_no_block_missing() {
    let outer = tempfile::tempdir().expect("a temporary folder");
    let (root, disk) = (outer.path().join("blocks"), outer.path().join("disk"));
    let test = TestStore { blocks: DirBlocks::open(&root).expect("made"), folder: outer };
    test.store(&id("a"), b"bytes");
    let is_unmounted = |error| matches!(error, BlockError::Unmounted { .. });
    for mount_point in [false, true] {
        fs::rename(&root, &disk).expect("renamed");
        if mount_point {
            fs::create_dir(&root).expect("a free name");
        }
        assert!(is_unmounted(test.open(&id("a")).map(|_| ()).expect_err("unmounted")));
        assert!(is_unmounted(test.blocks.verify(&id("a"), &OpenGate).expect_err("unmounted")));
        assert!(is_unmounted(test.blocks.describe(&id("a")).expect_err("unmounted")));
        assert!(is_unmounted(test.blocks.remove(&id("a")).expect_err("unmounted")));
        assert!(test.blocks.list().is_err());
        if mount_point {
            fs::remove_dir(&root).expect("empty");
        }
        fs::rename(&disk, &root).expect("renamed back");
        assert_eq!(test.load(&id("a")).expect("mounted again"), b"bytes");
    }
}

#[test]
fn checks_of_the_disk_do_not_share_a_file_and_leave_none() {
    let test = TestStore::new();
    let folder = test.folder.path().to_owned();
    // Another check may remove its file at any moment.
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..25).for_each(|_| test.blocks.check_writable().expect("a good disk")));
        }
    });
    let probes = || {
        let names =
            fs::read_dir(&folder).expect("readable").map(|entry| entry.expect("readable").file_name());
        names.filter(|name| name.to_string_lossy().starts_with(".probe")).count()
    };
    assert_eq!(probes(), 0);
    for left in [".probe", ".probe00000000000000ff"] {
        fs::write(folder.join(left), b"0").expect("written");
    }
    let _test = test.restart();
    assert_eq!(probes(), 0, "a start removes what a crash left");
}
