//! Making a sealed block visible, so that a crash at any moment leaves the old block, the new block or none.
//!
//! Two files must change their names together. A new block is simple: without both there is no block, so
//! the checksums go first and one `fsync` of the folder makes both durable. When a block is replaced, the new
//! checksums are first renamed to an *intent*, which carries the generation of the writer's files and the
//! name of the block. From then on the new block wins: [`finish`] does at the next start what a crash left
//! undone. Each step is durable before the next begins, so no file system's order of renames matters.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use block_files::{StoredBlock, block_fault, fault, sync_folder};
use store_api::{BlockError, OpenGate};

use super::place::{Place, Temporary};
use super::reader::DirReader;

/// One step of a commit.
#[derive(Clone, Debug)]
pub(super) enum Step {
    /// Gives a file another name.
    Rename(PathBuf, PathBuf),
    /// Makes the names in a folder durable.
    Sync(PathBuf),
}

impl Step {
    pub(super) fn run(&self) -> Result<(), BlockError> {
        match self {
            Self::Rename(from, to) => fs::rename(from, to).map_err(fault(to)),
            Self::Sync(folder) => sync_folder(folder),
        }
    }
}

/// Commits the files of a writer. The caller holds the lock of the place's shard.
pub(super) fn run(place: &Place, temporary: &Temporary) -> Result<(), BlockError> {
    let replacing = replaces(place)?;
    let steps = if replacing { replace_steps(place, temporary) } else { create_steps(place, temporary) };
    let done = steps.iter().try_for_each(Step::run);
    if done.is_err() {
        if replacing { undo_replace(place, temporary) } else { undo_create(place) }
    }
    done
}

fn replaces(place: &Place) -> Result<bool, BlockError> {
    let there = |path: &Path| fs::exists(path).map_err(block_fault(&place.id, path));
    Ok(there(&place.block)? || there(&place.checksums)?)
}

/// How a block comes into being.
pub(super) fn create_steps(place: &Place, temporary: &Temporary) -> Vec<Step> {
    vec![
        Step::Rename(temporary.checksums.clone(), place.checksums.clone()),
        Step::Rename(temporary.block.clone(), place.block.clone()),
        Step::Sync(place.folder.clone()),
    ]
}

/// How a block is replaced; the second step is what decides it.
pub(super) fn replace_steps(place: &Place, temporary: &Temporary) -> Vec<Step> {
    let sync = || Step::Sync(place.folder.clone());
    vec![
        sync(),
        Step::Rename(temporary.checksums.clone(), temporary.intent.clone()),
        sync(),
        Step::Rename(temporary.block.clone(), place.block.clone()),
        sync(),
        Step::Rename(temporary.intent.clone(), place.checksums.clone()),
        sync(),
    ]
}

/// Neither name existed before, so whatever has them is ours. What cannot be removed is found at the next
/// start: checksums without a block, which go, or a whole block that nobody asked for.
fn undo_create(place: &Place) {
    let _ = fs::remove_file(&place.block);
    let _ = fs::remove_file(&place.checksums);
}

/// Before the block was renamed the intent is withdrawn; afterwards the next start finishes it.
fn undo_replace(place: &Place, temporary: &Temporary) {
    if fs::exists(&temporary.block).unwrap_or(false) {
        let _ = fs::remove_file(&temporary.intent);
        let _ = sync_folder(&place.folder);
    }
}

/// Finishes, at a start, the replacement that `temporary.intent` announces.
///
/// Without the writer's file, the block either is already the new one, or (should a withdrawn intent have
/// come back) still the old one; its bytes decide.
pub(super) fn finish(place: &Place, temporary: &Temporary) -> Result<(), BlockError> {
    match fs::rename(&temporary.block, &place.block) {
        Ok(()) => sync_folder(&place.folder)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            if !agrees(place, &temporary.intent)? {
                return fs::remove_file(&temporary.intent).map_err(fault(&temporary.intent));
            }
        }
        Err(error) => return Err(fault(&temporary.block)(error)),
    }
    fs::rename(&temporary.intent, &place.checksums).map_err(fault(&temporary.intent))
}

fn agrees(place: &Place, checksums: &Path) -> Result<bool, BlockError> {
    match DirReader::open(&place.id, &place.block, checksums).and_then(|reader| reader.verify(&OpenGate)) {
        Ok(_) => Ok(true),
        Err(BlockError::Corrupt { .. } | BlockError::Other { .. } | BlockError::Missing { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}
