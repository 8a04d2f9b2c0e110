//! Parity that stayed behind when a client renamed its file or folder.
//!
//! The note on parity names its source by the inode, which a renaming keeps. So the parity can be renamed as well, and
//! need not be made again.

use std::collections::BTreeMap;

use crate::parity::{Evidence, evidence};
use crate::{Codec, File, Listing, Notes, parity_path, source_of};

/// The parity files of a listing by the inodes in their notes.
#[derive(Debug)]
pub(crate) struct Strays<'a> {
    notes: &'a Notes,
    by_inode: BTreeMap<u64, Vec<&'a File>>,
}

impl<'a> Strays<'a> {
    pub(crate) fn of(listing: &'a Listing) -> Self {
        let notes = &listing.notes;
        let mut by_inode: BTreeMap<u64, Vec<&File>> = BTreeMap::new();
        for file in &listing.files {
            if let Some(note) = notes.marks.get(&file.path).and_then(|marks| marks.note) {
                by_inode.entry(note.inode).or_default().push(file);
            }
        }
        Self { notes, by_inode }
    }

    /// Returns the parity files whose notes name this inode.
    pub(crate) fn noted(&self, inode: u64) -> impl Iterator<Item = &'a File> + '_ {
        self.by_inode.get(&inode).into_iter().flatten().copied()
    }

    /// Returns the parity of a file by this codec that is at the path of another one. Its note names the present blocks of
    /// both.
    pub(crate) fn find(&self, codec: &Codec, file: &File) -> Option<&'a File> {
        if file.is_open {
            return None;
        }
        let own = parity_path(&codec.parity_root, &file.path);
        let is_elsewhere = |path: &str| path != own && source_of(&codec.parity_root, path).is_some();
        let is_own = |parity: &File| {
            evidence(codec, file, parity, self.notes.noted(&parity.path)).is_some_and(Evidence::is_noted)
        };
        self.noted(file.inode).find(|parity| is_elsewhere(&parity.path) && is_own(parity))
    }
}
