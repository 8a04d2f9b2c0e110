//! Tests of the folder of a helper's blocks: the lock, the list of blocks, and a full disk.

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
