//! The states of folders whose files are encoded together.

use std::collections::{BTreeMap, BTreeSet};

use super::{Encoding, Source, Surveyor, excluded};
use crate::folder::{FolderParity, LEAST_BYTES, best_of_folders, folder_parities, parts, replicated_parts};
use crate::health;
use crate::listing::parent;
use crate::members::block_at;
use crate::{
    Block, Codec, Exclusion, File, Folder, Layout, Listing, Member, NodeIndex, ParityState, Policies,
    Protection, Scope, Unit, listing_order, parity_path, source_of,
};

/// The folders of a listing, and their parity.
pub(super) struct Folders<'a> {
    by_path: BTreeMap<&'a str, &'a Folder>,
    files: BTreeMap<&'a str, Vec<&'a File>>,
    /// The folders that contain folders.
    parents: BTreeSet<&'a str>,
    /// The parity that counts, by the paths of the folders.
    parities: BTreeMap<&'a str, FolderParity<'a>>,
    /// The files whose blocks this parity protects.
    covered: BTreeSet<&'a str>,
    /// The parity of folders that were renamed without it, by the present paths of the folders.
    pub strays: BTreeMap<&'a str, (&'a Codec, &'a File)>,
}

impl<'a> Folders<'a> {
    pub fn of(listing: &'a Listing, policies: &'a Policies) -> Self {
        let mut files: BTreeMap<&str, Vec<&File>> = BTreeMap::new();
        for file in &listing.files {
            files.entry(file.folder()).or_default().push(file);
        }
        let found = folder_parities(listing, policies.codecs()).into_iter();
        let parities = best_of_folders(found.filter_map(|(_, judged)| judged.ok()));
        let covered = parities.values().flat_map(FolderParity::covered).collect();
        let subfolders = listing.folders.iter().filter(|folder| folder.path != "/");
        let mut folders = Self {
            by_path: listing.folders.iter().map(|folder| (folder.path.as_str(), folder)).collect(),
            files,
            parents: subfolders.map(|folder| parent(&folder.path)).collect(),
            parities,
            covered,
            strays: BTreeMap::new(),
        };
        folders.strays = folders.find_strays(listing, policies);
        folders
    }

    /// Finds the parity at former paths of folders. Notes name the folders by their inodes. The folder may have changed since it
    /// was renamed, so parity is renamed also if it protects only some of the blocks, or none.
    fn find_strays(
        &self,
        listing: &'a Listing,
        policies: &'a Policies,
    ) -> BTreeMap<&'a str, (&'a Codec, &'a File)> {
        let by_inode: BTreeMap<u64, &Folder> =
            listing.folders.iter().map(|folder| (folder.inode, folder)).collect();
        let paths: BTreeMap<&str, &File> =
            listing.files.iter().map(|file| (file.path.as_str(), file)).collect();
        let stray = |parity: &'a File| {
            let note = listing.notes.marks.get(&parity.path)?.note?;
            let folder = *by_inode.get(&note.inode)?;
            let is_root = |codec: &&Codec| source_of(&codec.parity_root, &parity.path).is_some();
            let mut codecs = policies.codecs().iter().filter(|codec| codec.scope == Scope::Folder);
            let codec = codecs.find(is_root)?;
            let own = parity_path(&codec.parity_root, &folder.path);
            if paths.contains_key(own.as_str()) && listing.notes.foreign(folder.inode, &own).is_none() {
                return None;
            }
            let parts = parts(self.files.get(folder.path.as_str())?.iter().copied());
            let found = FolderParity::of(listing, folder, parts, parity, codec);
            let protects_some = found.is_ok_and(|found| found.protects_some());
            Some((protects_some, folder.path.as_str(), (codec, parity)))
        };
        let mut found: Vec<_> = listing.files.iter().filter_map(stray).collect();
        // The last one of a folder counts.
        found.sort_by_key(|&(protects_some, ..)| protects_some);
        found.into_iter().map(|(_, path, stray)| (path, stray)).collect()
    }

    /// Returns the parity of a file's folder if it protects all blocks of the file.
    pub fn parity_covering(&self, file: &File) -> Option<(&'a Codec, &'a File)> {
        let parity =
            self.parities.get(file.folder()).filter(|_| self.covered.contains(file.path.as_str()))?;
        Some((parity.codec, parity.parity))
    }

    /// Whether a file is the parity of a folder that counts.
    pub fn has_parity(&self, folder: &str, parity: &File) -> bool {
        self.parities.get(folder).is_some_and(|found| found.parity.path == parity.path)
    }
}

impl<'a> Surveyor<'a> {
    /// Returns the encoding of a file if its folder's files are encoded together with this codec.
    fn folder_encoding(&self, file: &'a File, codec: &str) -> Result<Encoding<'a>, Exclusion> {
        match self.encoding_of(file)? {
            (Scope::Folder, encoding) if encoding.codec.name == codec => Ok(encoding),
            (_, other) => Err(Exclusion::OtherCodec(other.codec.name.clone())),
        }
    }

    /// Returns the states of a folder's files that are encoded together, and of those that are too small for it.
    pub(super) fn folder(&mut self, path: &'a str, codec: &str) -> Vec<Unit> {
        let mut files = self.folders.files.get(path).cloned().unwrap_or_default();
        files.sort_by(|one, other| listing_order(&one.path, &other.path));
        let encoding = files.iter().copied().find_map(|file| self.folder_encoding(file, codec).ok());
        let Some(encoding) = encoding else { return Vec::new() };
        let is_recorded =
            encoding.parity.is_some_and(|parity| self.listing.notes.members(&parity.path).is_some());
        let members = replicated_parts(files.clone(), is_recorded);
        let are_all = members.len() == files.len();
        let small: Vec<&File> =
            files.into_iter().filter(|file| !are_all && file.bytes < LEAST_BYTES).collect();
        // The other files of the folder have units of their own.
        let belongs = |file: &'a File| self.folder_encoding(file, codec).is_ok();
        let too_small = small.into_iter().filter(|file| belongs(file)).map(|file| {
            let why = Exclusion::Small { bytes: file.bytes, least: LEAST_BYTES };
            excluded(&file.path, &[file], why)
        });
        let mut units: Vec<Unit> = too_small.collect();
        let own: Vec<&File> = members.iter().copied().filter(|file| belongs(file)).collect();
        // Files that cannot belong to the stripes do not make the parity of the others invalid.
        let members = if encoding.parity.is_some() { own.clone() } else { members };
        if members.is_empty() {
            return units;
        }
        units.push(match self.folder_source(path, &members, encoding) {
            Ok(source) => self.unit(source, encoding),
            Err(why) => excluded(path, &own, why),
        });
        units
    }

    fn folder_source(
        &self,
        path: &'a str,
        files: &[&'a File],
        encoding: Encoding<'a>,
    ) -> Result<Source<'a>, Exclusion> {
        for &file in files {
            let neighbour = |why| Exclusion::Neighbour { path: file.path.clone(), why: Box::new(why) };
            self.folder_encoding(file, encoding.codec_name()).map_err(neighbour)?;
        }
        if encoding.parity.is_none() && self.folders.parents.contains(path) {
            return Err(Exclusion::Subfolders(path.to_owned()));
        }
        let folder = self.folders.by_path.get(path).copied();
        let folder = folder.ok_or_else(|| Exclusion::Unlisted(path.to_owned()))?;
        let record = encoding.parity.and_then(|parity| self.listing.notes.members(&parity.path));
        let layout = Layout::of_folder(files, record, encoding.codec)?;
        Ok(Source::of_folder(folder, files.to_vec(), layout))
    }

    /// Returns the state of the parity of a file or folder.
    pub(super) fn protection(&self, codec: &Codec, source: &Source<'a>, parity: &File) -> Protection {
        let mut protection = self.listing.notes.protection(codec, source, parity);
        let changed = self.changed(source, parity, codec).and_then(FolderParity::changes);
        if let (ParityState::Stale(why), Some(changes)) = (&mut protection.state, changed) {
            *why = changes;
        }
        protection
    }

    /// Returns the parity of a folder that counts, if it is this one.
    fn changed(&self, source: &Source<'a>, parity: &File, codec: &Codec) -> Option<&FolderParity<'a>> {
        let found = self.folders.parities.get(source.path).filter(|_| codec.scope == Scope::Folder)?;
        (found.parity.path == parity.path).then_some(found)
    }

    /// Returns the number of lost blocks in a changed folder that its former parity suffices to rebuild.
    pub(super) fn still_protected(&self, source: &Source<'a>, parity: &File, codec: &Codec) -> usize {
        let Some(found) = self.changed(source, parity, codec) else { return 0 };
        let built = &self.codes[codec.name.as_str()];
        let stripes =
            found.places.chunks(codec.data_blocks()).zip(parity.blocks.chunks(codec.parity_blocks()));
        let protected = stripes.map(|(places, parity)| {
            let block = |place: &Option<Member>| place.map(|place| block_at(&found.files, place));
            let data: Vec<Option<&Block>> = places.iter().map(block).collect();
            let holders =
                data.iter().map(|block| block.map(|block| block.replicas.clone()).unwrap_or_default());
            let holders: Vec<Vec<NodeIndex>> =
                holders.chain(parity.iter().map(|block| block.replicas.clone())).collect();
            let lost = data.iter().flatten().filter(|block| block.replicas.is_empty()).count();
            let gone: Vec<usize> = (0..data.len()).filter(|&at| data[at].is_none()).collect();
            // Repairs need the code without the blocks that are gone. Codes with sub-blocks have none.
            let is_repairable = || built.check(data.iter().flatten().copied(), data.len(), &gone).is_ok();
            let is_decodable = || health::is_decodable(built.code.as_ref(), data.len(), &holders);
            if lost > 0 && is_decodable() && is_repairable() { lost } else { 0 }
        });
        protected.sum()
    }
}
