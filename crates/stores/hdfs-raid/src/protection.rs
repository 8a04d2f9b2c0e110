//! The parity files of a listing: whose parity they are, and whether they are valid.
//!
//! The module `parity` decides whether a parity file is valid, by its [`Note`](crate::Note) or else by HDFS-RAID's
//! test.

use std::collections::{BTreeMap, BTreeSet};

use crate::listing::is_within;
use crate::parity::{Evidence, Noted, check_parity};
use crate::policy::TEMPORARY;
use crate::survey::Source;
use crate::work::USUAL_REPLICATION;
use crate::{
    Codec, File, Listing, Mark, Marks, Members, Note, Policies, StaleParity, Total, UnknownMark, source_of,
};

/// Mend's attributes of parity files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Notes {
    /// The attributes, by the paths of the files.
    pub marks: BTreeMap<String, Marks>,
    /// The files with an attribute that another version of Mend has written.
    pub unknown: BTreeSet<String>,
    /// The inodes in notes that exist outside of snapshots.
    pub living: BTreeSet<u64>,
    /// The inodes in notes that exist only in snapshots. Their blocks need the parity.
    pub kept: BTreeSet<u64>,
}

/// The state of a parity file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ParityState {
    /// A note proves that it is the parity of its source's present blocks by the codec's code.
    Proven,
    /// It passes HDFS-RAID's test, or has a note that does not name the code, and nothing proves its contents.
    Unproven,
    /// It is valid, and an operator is undoing the encoding.
    Undone,
    /// It is not the parity of its source's present contents, or has to be checked before it is used.
    Stale(StaleParity),
    /// Its file exists, but uses other parity, or cannot have any.
    Unused,
    /// The file with this inode, whose parity it is, was renamed and has no valid parity at its present path.
    Renamed(u64),
    /// There is no file at the path of its source.
    NoSource,
    /// As [`NoSource`](Self::NoSource), but its note names a file that is only in a snapshot, or the folder above has
    /// snapshots, in which the source may exist.
    SnapshotsOnly,
    /// The listing does not cover the path of its source.
    SourceUnlisted,
    /// It is being made, or was left by an interrupted encoding.
    Draft,
}

/// The parity of a file or folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Protection {
    /// The path of the parity file.
    pub path: String,
    /// Its state.
    pub state: ParityState,
    /// The replication of the source before it was encoded. Without a note, HDFS's default is assumed.
    pub former_replication: u16,
}

/// A parity file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParityUnit {
    /// The path.
    pub path: String,
    /// The state.
    pub state: ParityState,
    /// The length in bytes.
    pub bytes: u64,
    /// Bytes of all replicas.
    pub stored: u64,
}

impl ParityState {
    /// Returns a short name.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Proven => "proven",
            Self::Unproven => "unproven",
            Self::Undone => "undone",
            Self::Stale(why) if why.is_unchecked() => "unchecked",
            Self::Stale(_) => "stale",
            Self::Unused => "unused",
            Self::Renamed(_) => "renamed-source",
            Self::NoSource => "no-source",
            Self::SnapshotsOnly => "snapshots",
            Self::SourceUnlisted => "unlisted-source",
            Self::Draft => "draft",
        }
    }

    /// Whether blocks can be rebuilt from it.
    pub fn is_valid(&self) -> bool {
        matches!(self, Self::Proven | Self::Unproven | Self::Undone)
    }
}

impl Protection {
    /// Whether it is the parity of another existing file, which was renamed, or is only in a snapshot.
    pub(crate) fn is_foreign(&self) -> bool {
        matches!(self.state, ParityState::Stale(StaleParity::Foreign { .. }))
    }
}

impl Notes {
    /// Returns the state of the parity of a source, and the replication of the source before it was encoded.
    pub(crate) fn protection(&self, codec: &Codec, source: &Source<'_>, parity: &File) -> Protection {
        let former_replication = self.former_replication(&source.files, parity);
        let state = self.state(codec, source, parity);
        Protection { path: parity.path.clone(), state, former_replication }
    }

    /// Returns the state of the parity of a file or folder that was renamed without it.
    pub(crate) fn renamed(&self, source: &Source<'_>, parity: &File) -> Protection {
        let former_replication = self.former_replication(&source.files, parity);
        let state = ParityState::Renamed(source.inode);
        Protection { path: parity.path.clone(), state, former_replication }
    }

    /// Returns the state of the parity of a file whose blocks do not form stripes any more, and why it is stale.
    pub(crate) fn irregular(&self, source: &File, parity: &File) -> (Protection, StaleParity) {
        let former_replication = self.former_replication(&[source], parity);
        let foreign = self.foreign(source.inode, &parity.path);
        let why = foreign.map_or(StaleParity::Irregular, |inode| StaleParity::Foreign { inode });
        let state = ParityState::Stale(why);
        (Protection { path: parity.path.clone(), state, former_replication }, why)
    }

    fn state(&self, codec: &Codec, source: &Source<'_>, parity: &File) -> ParityState {
        match check_parity(codec, source, parity, self.noted(&parity.path)) {
            Err(why) => ParityState::Stale(why),
            Ok(_) if self.is_undone(&parity.path) => ParityState::Undone,
            Ok(Evidence::Note) => ParityState::Proven,
            Ok(Evidence::OldNote | Evidence::Metadata) => ParityState::Unproven,
        }
    }

    /// Returns what is known about the note on a parity file.
    pub(crate) fn noted(&self, parity: &str) -> Noted {
        match self.note_of(parity) {
            _ if self.unknown.contains(parity) => Noted::Unknown,
            Some(note) => Noted::Yes { note, is_living: self.exists(note.inode) },
            None => Noted::No,
        }
    }

    /// Returns the inode of the existing file or folder to which a parity file belongs, unless this is `own`.
    pub(crate) fn foreign(&self, own: u64, parity: &str) -> Option<u64> {
        match self.noted(parity) {
            Noted::Yes { note, is_living: true } if note.inode != own => Some(note.inode),
            _ => None,
        }
    }

    /// Whether the file or folder with an inode in a note exists, also if only in a snapshot.
    pub(crate) fn exists(&self, inode: u64) -> bool {
        self.living.contains(&inode) || self.kept.contains(&inode)
    }

    /// Returns the record of the blocks of a folder's parity. The note decides whether it counts.
    pub(crate) fn members(&self, parity: &str) -> Option<&Members> {
        self.marks.get(parity)?.members.as_ref()
    }

    fn note_of(&self, parity: &str) -> Option<Note> {
        self.marks.get(parity)?.note
    }

    fn is_undone(&self, parity: &str) -> bool {
        self.marks.get(parity).is_some_and(|marks| marks.is_undone)
    }

    /// Records an attribute of a file if it is one of Mend's.
    ///
    /// # Errors
    /// [`UnknownMark`]. The file's parity, if it is one, is not valid then.
    pub fn take(&mut self, path: &str, name: &str, value: &str) -> Result<(), UnknownMark> {
        match Mark::parse(name, value) {
            Ok(None) => Ok(()),
            Ok(Some(mark)) => {
                self.marks.entry(path.to_owned()).or_default().set(mark);
                Ok(())
            }
            Err(unknown) => {
                self.unknown.insert(path.to_owned());
                Err(unknown)
            }
        }
    }

    fn former_replication(&self, sources: &[&File], parity: &File) -> u16 {
        let noted = self.note_of(&parity.path).map_or(USUAL_REPLICATION, |note| note.replication);
        sources.iter().map(|file| file.replication).max().unwrap_or(0).max(noted)
    }

    /// Returns the state of a parity file that no source in the listing uses. `protected` are the inodes of files with
    /// valid parity.
    fn state_without_use(
        &self,
        listing: &Listing,
        existing: &Existing<'_>,
        protected: &BTreeSet<u64>,
        source: &str,
        parity: &File,
    ) -> ParityState {
        if is_draft(parity) {
            return ParityState::Draft;
        }
        let noted = self.note_of(&parity.path).map(|note| note.inode);
        if noted.is_some_and(|inode| self.kept.contains(&inode)) {
            return ParityState::SnapshotsOnly;
        }
        let present = existing.get(source);
        let renamed = |inode: &u64| self.living.contains(inode) && present != Some(inode);
        match noted.filter(renamed) {
            Some(inode) if protected.contains(&inode) => ParityState::Unused,
            Some(inode) => ParityState::Renamed(inode),
            None if present.is_some() => ParityState::Unused,
            None if !is_within(source, &listing.root) => ParityState::SourceUnlisted,
            None if listing.snapshots.iter().any(|folder| is_within(source, folder)) => {
                ParityState::SnapshotsOnly
            }
            None if listing.gaps.omitted.iter().any(|omission| is_within(source, &omission.path)) => {
                ParityState::SourceUnlisted
            }
            None => ParityState::NoSource,
        }
    }
}

/// The inodes of the files and folders of a listing, by path.
type Existing<'a> = BTreeMap<&'a str, u64>;

fn is_draft(file: &File) -> bool {
    is_within(&file.path, TEMPORARY)
}

/// Returns the finished parity files of a listing, whose [`Notes`] a survey needs.
pub fn parity_files<'a>(listing: &'a Listing, policies: &'a Policies) -> impl Iterator<Item = &'a File> {
    let is_parity = |file: &&File| policies.parity_root_of(&file.path).is_some() && !is_draft(file);
    listing.files.iter().filter(is_parity)
}

/// Returns the states of all parity files. `used` has the states of those that belong to a surveyed file, `protected`
/// the inodes of files with valid parity.
pub(crate) fn parity_units(
    listing: &Listing,
    policies: &Policies,
    used: &BTreeMap<&str, &ParityState>,
    protected: &BTreeSet<u64>,
) -> Vec<ParityUnit> {
    let files = listing.files.iter().map(|file| (file.path.as_str(), file.inode));
    let folders = listing.folders.iter().map(|folder| (folder.path.as_str(), folder.inode));
    let existing: Existing<'_> = files.chain(folders).collect();
    let unit = |file: &File| {
        let root = policies.parity_root_of(&file.path)?;
        let source = source_of(root, &file.path).unwrap_or_default();
        let state = match used.get(file.path.as_str()) {
            Some(ParityState::Stale(StaleParity::Foreign { inode })) if protected.contains(inode) => {
                ParityState::Unused
            }
            Some(ParityState::Stale(StaleParity::Foreign { inode }))
                if listing.notes.kept.contains(inode) =>
            {
                ParityState::SnapshotsOnly
            }
            Some(ParityState::Stale(StaleParity::Foreign { inode })) => ParityState::Renamed(*inode),
            Some(state) => (*state).clone(),
            None => listing.notes.state_without_use(listing, &existing, protected, source, file),
        };
        let stored = file.bytes * u64::from(file.replication);
        Some(ParityUnit { path: file.path.clone(), state, bytes: file.bytes, stored })
    };
    listing.files.iter().filter_map(unit).collect()
}

/// Returns the sums per state of parity files, by the [names](ParityState::name) of the states.
pub(crate) fn parity_totals(units: &[ParityUnit]) -> BTreeMap<&'static str, Total> {
    let mut totals: BTreeMap<&'static str, Total> = BTreeMap::new();
    for unit in units {
        let total = totals.entry(unit.state.name()).or_default();
        total.files += 1;
        total.bytes += unit.bytes;
        total.stored += unit.stored;
        total.target += unit.stored;
    }
    totals
}
