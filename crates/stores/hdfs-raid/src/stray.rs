//! Parity that stayed behind when a client renamed its file or folder.
//!
//! The note on parity names its source by the inode, which a renaming keeps. So the parity can be renamed as well, and
//! need not be made again. This holds for the parity of former contents, too: at the path that belongs to its file, it is
//! found and replaced like that of any other changed file.

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

    /// Returns the parity files of a file or folder by this codec that are at the path of another one.
    pub(crate) fn elsewhere(&self, codec: &Codec, inode: u64, path: &str) -> impl Iterator<Item = &'a File> {
        let (own, root) = (parity_path(&codec.parity_root, path), codec.parity_root.clone());
        let is_elsewhere = move |path: &str| path != own && source_of(&root, path).is_some();
        self.noted(inode).filter(move |parity| is_elsewhere(&parity.path))
    }

    /// Returns the parity of a file by this codec that is at the path of another one: that of its present contents, if there
    /// is one, or else that of former contents.
    pub(crate) fn find(&self, codec: &Codec, file: &File) -> Option<&'a File> {
        let strays = || self.elsewhere(codec, file.inode, &file.path);
        strays().find(|parity| self.is_current(codec, file, parity)).or_else(|| strays().next())
    }

    /// Whether the note on parity names the present blocks of a file and of the parity.
    pub(crate) fn is_current(&self, codec: &Codec, file: &File, parity: &File) -> bool {
        let evidence = evidence(codec, file, parity, self.notes.noted(&parity.path));
        !file.is_open && evidence.is_some_and(Evidence::is_noted)
    }
}
