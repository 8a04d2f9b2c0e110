//! The files of a folder whose blocks form stripes together, and the parity of such folders.
//!
//! For the work on it, a folder is [one file](joined) whose blocks are those of its files. Whether parity is valid is decided
//! block by block: [`FolderParity`] knows which blocks of the record still exist. If all do and there is no other one, the
//! folder is encoded. Otherwise it has to be encoded again, and until then the parity protects the blocks that exist.

use std::collections::{BTreeMap, BTreeSet};

use crate::layout::{block_bytes_of, check_lengths};
use crate::members::{block_at, in_order};
use crate::parity::{Noted, check_code, check_parity};
use crate::survey::Source;
use crate::{
    Codec, File, Fingerprint, Folder, Layout, LayoutError, Listing, Member, Members, Note, Owner, ParityFile,
    Scope, StaleParity, Storing, UnusableParity, listing_order, source_of,
};

/// HDFS-RAID leaves out smaller files when it encodes a folder (`hdfs.raid.min.filesize`).
pub(crate) const LEAST_BYTES: u64 = 10 << 10;

/// The parity of a folder, and the blocks that it protects.
#[derive(Clone, Debug)]
pub(crate) struct FolderParity<'a> {
    pub(crate) folder: &'a Folder,
    /// The files that can belong to the stripes, in the order of the listing.
    pub(crate) files: Vec<&'a File>,
    pub(crate) parity: &'a File,
    pub(crate) codec: &'a Codec,
    pub(crate) block_bytes: u64,
    /// The data blocks of all stripes in order; `None` for one that does not exist any more.
    pub(crate) places: Vec<Option<Member>>,
}

/// A parity file of a folder, and its judgement.
pub(crate) type Judged<'a> = (&'a File, Result<FolderParity<'a>, UnusableParity>);

/// Returns those of a folder's files that are encoded together, in the order in which HDFS lists them.
pub(crate) fn parts<'a>(files: impl IntoIterator<Item = &'a File>) -> Vec<&'a File> {
    sorted(files.into_iter().filter(|file| file.bytes >= LEAST_BYTES).collect())
}

/// Returns those of a folder's files that get their replicas together. Clients may have truncated all files of an encoded folder
/// below the limit. A record of its blocks shows that it was encoded, so that these files may have one replica.
pub(crate) fn replicated_parts(files: Vec<&File>, is_recorded: bool) -> Vec<&File> {
    let parts = parts(files.iter().copied());
    match parts.is_empty() && is_recorded {
        true => sorted(files),
        false => parts,
    }
}

/// Returns files in the order in which HDFS lists them.
fn sorted(mut files: Vec<&File>) -> Vec<&File> {
    files.sort_by(|one, other| listing_order(&one.path, &other.path));
    files
}

/// Checks that the blocks of files are as HDFS-RAID expects them.
///
/// # Errors
/// [`LayoutError::Ragged`].
pub(crate) fn check_parts(files: &[&File]) -> Result<(), LayoutError> {
    files.iter().try_for_each(|file| check_lengths(file))
}

/// Returns a folder as one file: its blocks are those of these files, in the order of the record if it names exactly these
/// blocks. The replication is the highest one of the files.
pub(crate) fn joined(folder: &Folder, files: &[&File], record: Option<&Members>) -> File {
    let order = in_order(files, record);
    let blocks = order.iter().map(|&place| block_at(files, place).clone());
    let is_other = |storing: &Storing| *storing != Storing::Replicated;
    File {
        inode: folder.inode,
        path: folder.path.clone(),
        bytes: order.iter().map(|place| place.bytes).sum(),
        block_bytes: block_bytes_of(order.iter().map(|place| place.bytes)),
        replication: files.iter().map(|file| file.replication).max().unwrap_or(0),
        modified_ms: folder.modified_ms,
        // The parity of a folder is checked, whoever owns it.
        owner: Owner::Superuser,
        storing: files.iter().map(|file| file.storing).find(is_other).unwrap_or(Storing::Replicated),
        is_open: files.iter().any(|file| file.is_open),
        blocks: blocks.collect(),
    }
}

/// Returns the parity files of folders by these codecs, at the paths that belong to the folders; or why they protect nothing.
pub(crate) fn folder_parities<'a>(listing: &'a Listing, codecs: &'a [Codec]) -> Vec<Judged<'a>> {
    let codecs: Vec<&Codec> = codecs.iter().filter(|codec| codec.scope == Scope::Folder).collect();
    if codecs.is_empty() {
        return Vec::new();
    }
    let folders: BTreeMap<&str, &Folder> =
        listing.folders.iter().map(|folder| (folder.path.as_str(), folder)).collect();
    let mut files: BTreeMap<&str, Vec<&File>> = BTreeMap::new();
    listing.files.iter().for_each(|file| files.entry(file.folder()).or_default().push(file));
    let mut found = Vec::new();
    for codec in codecs {
        for parity in &listing.files {
            let Some(path) = source_of(&codec.parity_root, &parity.path) else { continue };
            let judged = match folders.get(path) {
                Some(&folder) => {
                    let parts = parts(files.get(path).into_iter().flatten().copied());
                    FolderParity::of(listing, folder, parts, parity, codec).map_err(UnusableParity::Stale)
                }
                None => Err(UnusableParity::NoSource(path.to_owned())),
            };
            found.push((parity, judged));
        }
    }
    found
}

/// Chooses for each folder the parity that counts: complete parity first, then that of the first codec.
pub(crate) fn best_of_folders<'a>(
    parities: impl IntoIterator<Item = FolderParity<'a>>,
) -> BTreeMap<&'a str, FolderParity<'a>> {
    let mut best: BTreeMap<&str, FolderParity<'a>> = BTreeMap::new();
    for parity in parities {
        let path = parity.folder.path.as_str();
        if best.get(path).is_none_or(|other| other.changes().is_some() && parity.changes().is_none()) {
            best.insert(path, parity);
        }
    }
    best
}

impl<'a> FolderParity<'a> {
    /// Judges a parity file of a folder, whose files these are.
    ///
    /// # Errors
    /// [`StaleParity`] if it protects no block, or has no note.
    pub(crate) fn of(
        listing: &'a Listing,
        folder: &'a Folder,
        files: Vec<&'a File>,
        parity: &'a File,
        codec: &'a Codec,
    ) -> Result<Self, StaleParity> {
        // The blocks of a file that is being written may change at any moment.
        let is_usable = |file: &&File| !file.is_open && file.storing == Storing::Replicated;
        let (files, others): (Vec<_>, Vec<_>) = files.into_iter().partition(is_usable);
        let (record, noted) = (listing.notes.members(&parity.path), listing.notes.noted(&parity.path));
        let (places, block_bytes) = match (noted, record) {
            (Noted::Yes { note, is_living }, Some(record)) if record.fingerprint() == note.source => {
                check_record(folder, parity, note, is_living)?;
                check_code(codec, note)?;
                let block_bytes = block_bytes_of(record.blocks().iter().map(|block| block.bytes));
                (record.find(&files), block_bytes)
            }
            _ if others.is_empty() => {
                let layout = match noted {
                    Noted::No => check_parts(&files).and_then(|()| Layout::of_folder(&files, None, codec)),
                    _ => Layout::of_folder(&files, record, codec),
                };
                let layout = layout.map_err(|_| StaleParity::Irregular)?;
                let places = layout.members().iter().copied().map(Some).collect();
                let source = Source::of_folder(folder, files.clone(), layout);
                check_parity(codec, &source, parity, noted)?;
                (places, source.layout.block_bytes())
            }
            _ => return Err(StaleParity::OtherBlocks),
        };
        let found = Self { folder, files, parity, codec, block_bytes, places };
        found.check_shape()?;
        Ok(found)
    }

    /// Checks that the parity file has as many full blocks as the stripes require.
    fn check_shape(&self) -> Result<(), StaleParity> {
        let stripes = self.places.len().div_ceil(self.codec.data_blocks());
        let bytes = (stripes * self.codec.parity_blocks()) as u64 * self.block_bytes;
        let File { path, modified_ms, .. } = self.parity;
        let (path, modified_ms) = (path.clone(), *modified_ms);
        ParityFile { path, block_bytes: self.block_bytes, bytes, modified_ms }.check(self.parity)
    }

    /// Returns how the folder has changed since the parity was made; `None` if it has not.
    pub(crate) fn changes(&self) -> Option<StaleParity> {
        let found: usize = self.places.iter().flatten().count();
        let gone = self.places.len() - found;
        let new = self.files.iter().map(|file| file.blocks.len()).sum::<usize>() - found;
        (gone + new > 0).then_some(StaleParity::Changed { gone, new })
    }

    /// Whether a block of the stripes still exists.
    pub(crate) fn protects_some(&self) -> bool {
        self.places.iter().any(Option::is_some)
    }

    /// Returns the paths of the files whose blocks are all protected.
    pub(crate) fn covered(&self) -> BTreeSet<&'a str> {
        let mut blocks: BTreeMap<usize, usize> = BTreeMap::new();
        self.places.iter().flatten().for_each(|place| *blocks.entry(place.file).or_default() += 1);
        let is_covered = |&(file, count): &(usize, usize)| count == self.files[file].blocks.len();
        blocks.into_iter().filter(is_covered).map(|(file, _)| self.files[file].path.as_str()).collect()
    }
}

/// Checks that the note is about this folder and this parity file. The record names the data blocks.
fn check_record(folder: &Folder, parity: &File, note: Note, is_living: bool) -> Result<(), StaleParity> {
    if note.inode != folder.inode && is_living {
        return Err(StaleParity::Foreign { inode: note.inode });
    }
    match note.inode == folder.inode && note.parity == Fingerprint::of(&parity.blocks) {
        true => Ok(()),
        false => Err(StaleParity::OtherBlocks),
    }
}
