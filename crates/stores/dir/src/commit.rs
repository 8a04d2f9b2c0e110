//! Makes a sealed block visible atomically. If the process crashes, the next start restores one of two
//! states: either the new block exists, or the state is as before the commit (the old block, or no block if
//! there was none).
//!
//! A block consists of two files that must be renamed together. Creating a block is simple, because a block
//! exists only if both files do: the checksums are renamed first, and one `fsync` of the folder makes both
//! renames durable. To replace a block, the new checksums are first renamed to an *intent*, whose name
//! contains the generation of the writer's files and the name of the block. From then on the replacement is
//! decided: after a crash, [`finish`] completes it at the next start. Each step of a replacement is durable
//! before the next begins, so the order in which a file system persists renames does not matter.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use block_files::{StoredBlock, block_fault, fault, remove_file, sync_folder};
use store_api::{BlockError, OpenGate};

use super::block_paths::{BlockPaths, Temporary};
use super::reader::DirReader;

/// One step of a commit.
#[derive(Clone, Debug)]
pub(super) enum Step {
    /// Renames a file.
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

/// Commits the files of a writer. The caller holds the lock of the block's subfolder.
pub(super) fn run(place: &BlockPaths, temporary: &Temporary) -> Result<(), BlockError> {
    let replacing = replaces(place)?;
    let steps = if replacing { replace_steps(place, temporary) } else { create_steps(place, temporary) };
    let done = steps.iter().try_for_each(Step::run);
    if done.is_err() {
        if replacing { settle_replace(place, temporary) } else { undo_create(place) }
    }
    done
}

fn replaces(place: &BlockPaths) -> Result<bool, BlockError> {
    let there = |path: &Path| fs::exists(path).map_err(block_fault(&place.id, path));
    Ok(there(&place.block)? || there(&place.checksums)?)
}

/// Returns the steps that create a block.
pub(super) fn create_steps(place: &BlockPaths, temporary: &Temporary) -> Vec<Step> {
    vec![
        Step::Rename(temporary.checksums.clone(), place.checksums.clone()),
        Step::Rename(temporary.block.clone(), place.block.clone()),
        Step::Sync(place.folder.clone()),
    ]
}

/// Returns the steps that replace a block. Once the second step is done, a crash no longer prevents the
/// replacement.
pub(super) fn replace_steps(place: &BlockPaths, temporary: &Temporary) -> Vec<Step> {
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

/// Removes both names; neither existed before. If the removal fails, the next start finds either checksums
/// without a block, which it removes, or a complete block that no stripe needs.
fn undo_create(place: &BlockPaths) {
    let _ = fs::remove_file(&place.block);
    let _ = fs::remove_file(&place.checksums);
}

/// Makes block and checksums match again after a step of a replacement failed: restores the state before the
/// replacement if the block was not renamed yet, and otherwise gives the block its checksums.
pub(super) fn settle_replace(place: &BlockPaths, temporary: &Temporary) {
    match fs::exists(&temporary.block) {
        Ok(true) => drop(fs::remove_file(&temporary.intent)),
        Ok(false) if link_checksums(place, temporary).is_ok() => {}
        Ok(false) => drop(fs::rename(&temporary.intent, &place.checksums)),
        Err(_) => {} // The next start completes the replacement.
    }
    let _ = sync_folder(&place.folder);
}

/// Gives the intent the name of the block's checksums as a second name. The rename of the block may not be
/// durable, so a crash may bring the old block back. The intent stays, and the next start then completes the
/// replacement.
fn link_checksums(place: &BlockPaths, temporary: &Temporary) -> io::Result<()> {
    fs::hard_link(&temporary.intent, &temporary.checksums)?;
    fs::rename(&temporary.checksums, &place.checksums)
}

/// Completes the replacement that `temporary.intent` announces; called at startup.
///
/// If the writer's block file is missing, the file under the block's name is usually the new one already. It
/// may still be the old one if a withdrawn intent reappeared after a crash. The checksums decide between the
/// two.
pub(super) fn finish(place: &BlockPaths, temporary: &Temporary) -> Result<(), BlockError> {
    match fs::rename(&temporary.block, &place.block) {
        Ok(()) => sync_folder(&place.folder)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            if !agrees(place, &temporary.intent)? {
                return fs::remove_file(&temporary.intent).map_err(fault(&temporary.intent));
            }
        }
        Err(error) => return Err(fault(&temporary.block)(error)),
    }
    fs::rename(&temporary.intent, &place.checksums).map_err(fault(&temporary.intent))?;
    // If both are names of one file, the rename has changed nothing.
    remove_file(&temporary.intent).map(drop)
}

fn agrees(place: &BlockPaths, checksums: &Path) -> Result<bool, BlockError> {
    match DirReader::open(&place.id, &place.block, checksums).and_then(|reader| reader.verify(&OpenGate)) {
        Ok(_) => Ok(true),
        Err(BlockError::Corrupt { .. } | BlockError::Other { .. } | BlockError::Missing { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}
