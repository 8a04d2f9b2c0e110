//! Tests of crashes between the steps of a commit: afterwards the old block, the new block or no block
//! exists.

use std::fs;
use std::sync::Arc;

use store_api::BlockWriter;

use super::*;
use crate::block_paths::Temporary;
use crate::commit::{Step, create_steps, replace_steps, settle_replace};
use crate::writer::DirWriter;

const OLD: &[u8] = b"the old block";
const NEW: &[u8] = b"the new block, longer";

/// Seals a block and crashes before its commit.
fn sealed(test: &TestStore, block: &BlockId) -> (BlockPaths, Temporary) {
    let folder = Arc::clone(&test.blocks.folder);
    let place = test.place(block);
    folder.create_shard(&place).expect("a subfolder");
    let mut writer = DirWriter::create(folder, place, &sink(block, NEW.len() as u64)).expect("space");
    writer.write_at(0, NEW).expect("written");
    writer.seal().expect("complete");
    writer.abandon()
}

fn run(steps: &[Step]) {
    steps.iter().try_for_each(Step::run).expect("each step works");
}

fn assert_clean(test: &TestStore, expected: &[&str]) {
    assert_eq!(test.files(), expected);
    let listed: Vec<String> =
        test.blocks.list().expect("readable").into_iter().map(|held| held.id.0).collect();
    let blocks: Vec<&&str> = expected.iter().filter(|name| !name.ends_with(".crc")).collect();
    assert_eq!(listed.iter().collect::<Vec<_>>(), blocks);
}

#[test]
fn a_new_block_is_complete_or_absent() {
    for stop in 0..=3 {
        let test = TestStore::new();
        let (place, temporary) = sealed(&test, &id("a"));
        let steps = create_steps(&place, &temporary);
        assert_eq!(steps.len(), 3);
        run(&steps[..stop]);
        let test = test.restart();
        if stop < 2 {
            assert!(matches!(test.load(&id("a")), Err(BlockError::Missing { .. })), "after {stop} steps");
            assert_clean(&test, &[]);
        } else {
            assert_eq!(test.load(&id("a")).expect("whole"), NEW);
            assert_clean(&test, &["a", "a.crc"]);
        }
    }
}

/// After a crash, the rename of the block may be durable although the earlier rename of its checksums is not.
#[test]
fn a_new_block_without_checksums_is_detected() {
    let test = TestStore::new();
    let (place, temporary) = sealed(&test, &id("a"));
    run(&create_steps(&place, &temporary)[1..2]);
    let test = test.restart();
    assert!(matches!(test.load(&id("a")), Err(BlockError::Corrupt { .. })));
    assert_eq!(test.blocks.list().expect("readable"), []);
}

#[test]
fn a_crash_during_replacement_leaves_the_old_or_the_new_block() {
    for stop in 0..=7 {
        let test = TestStore::new();
        test.store(&id("a"), OLD);
        let (place, temporary) = sealed(&test, &id("a"));
        let steps = replace_steps(&place, &temporary);
        assert_eq!(steps.len(), 7);
        run(&steps[..stop]);
        let test = test.restart();
        let expected = if stop < 2 { OLD } else { NEW };
        assert_eq!(test.load(&id("a")).expect("whole"), expected, "after {stop} steps");
        assert_clean(&test, &["a", "a.crc"]);
    }
}

#[test]
fn a_failed_replacement_leaves_the_old_or_the_new_block_without_a_restart() {
    for done in 0..=7 {
        let test = TestStore::new();
        test.store(&id("a"), OLD);
        let (place, temporary) = sealed(&test, &id("a"));
        run(&replace_steps(&place, &temporary)[..done]);
        settle_replace(&place, &temporary);
        let expected = if done < 4 { OLD } else { NEW };
        assert_eq!(test.load(&id("a")).expect("whole"), expected, "after {done} steps");
        let test = test.restart();
        assert_eq!(test.load(&id("a")).expect("whole"), expected, "after {done} steps and a restart");
        assert_clean(&test, &["a", "a.crc"]);
    }
}

/// If the folder cannot be synced, the rename of the block may not be durable, although its new checksums
/// are.
#[test]
fn a_crash_after_a_failed_replacement_leaves_the_new_block() {
    let test = TestStore::new();
    test.store(&id("a"), OLD);
    let (place, temporary) = sealed(&test, &id("a"));
    run(&replace_steps(&place, &temporary)[..4]);
    settle_replace(&place, &temporary);
    fs::rename(&place.block, &temporary.block).expect("the state before the rename");
    fs::write(&place.block, OLD).expect("the old bytes");
    let test = test.restart();
    assert_eq!(test.load(&id("a")).expect("whole"), NEW);
    assert_clean(&test, &["a", "a.crc"]);
}

#[test]
fn a_withdrawn_intent_that_reappears_does_not_damage_the_old_block() {
    let test = TestStore::new();
    test.store(&id("a"), OLD);
    let (place, temporary) = sealed(&test, &id("a"));
    run(&replace_steps(&place, &temporary)[..2]);
    fs::remove_file(&temporary.block).expect("there");
    let test = test.restart();
    assert_eq!(test.load(&id("a")).expect("whole"), OLD);
    assert_clean(&test, &["a", "a.crc"]);
}

#[test]
fn a_restart_during_recovery_completes_the_recovery() {
    let test = TestStore::new();
    test.store(&id("a"), OLD);
    let (place, temporary) = sealed(&test, &id("a"));
    run(&replace_steps(&place, &temporary)[..3]);
    fs::rename(&temporary.block, &place.block).expect("what the first start did before it died");
    let test = test.restart();
    assert_eq!(test.load(&id("a")).expect("whole"), NEW);
    assert_clean(&test, &["a", "a.crc"]);
}

#[test]
fn a_dropped_writer_leaves_no_files() {
    let test = TestStore::new();
    let mut writer = test.blocks.create(&sink(&id("a"), 3)).expect("space");
    drop(test.blocks.create(&sink(&id("b"), 3)).expect("space"));
    writer.write_at(0, b"abc").expect("written");
    writer.seal().expect("complete");
    let reader = writer.reader().expect("sealed");
    drop(writer);
    assert_clean(&test, &[]);
    reader.read_at(0, &mut [0; 3]).expect("an open reader keeps its files");
}

#[test]
fn only_leftovers_are_removed_at_startup() {
    let test = TestStore::new();
    test.store(&id("a"), OLD);
    sealed(&test, &id("a"));
    sealed(&test, &id("b"));
    let foreign = test.place(&id("a")).folder.join(".notes");
    fs::write(&foreign, "somebody's").expect("written");
    fs::write(test.folder.path().join("README"), "somebody's").expect("written");
    assert_eq!(test.files().len(), 7);
    let test = test.restart();
    assert_eq!(test.files(), [".notes", "a", "a.crc"]);
    assert_eq!(test.load(&id("a")).expect("whole"), OLD);
}

#[test]
fn a_reader_keeps_the_block_that_it_opened() {
    let test = TestStore::new();
    let old_digest = test.store(&id("a"), OLD);
    let reader = test.open(&id("a")).expect("there");
    let new_digest = test.store(&id("a"), NEW);
    assert_eq!(reader.verify(&OpenGate).expect("whole"), old_digest);
    assert!(test.blocks.remove(&id("a")).expect("removable"));
    assert_eq!(reader.verify(&OpenGate).expect("whole"), old_digest);
    assert_ne!(old_digest, new_digest);
}

/// Readers and lists never see a half-replaced block.
#[test]
fn concurrent_readers_never_see_half_a_replacement() {
    let test = TestStore::new();
    test.store(&id("a"), OLD);
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| {
            for round in 0..40 {
                test.store(&id("a"), if round % 2 == 0 { NEW } else { OLD });
            }
        });
        while !writing.is_finished() {
            let bytes = test.load(&id("a")).expect("always whole");
            assert!(bytes == OLD || bytes == NEW);
        }
    });
}
