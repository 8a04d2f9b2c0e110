//! [`Touched`]: the raided files and folders that the NameNode's edit log concerns. Pure: an event only causes queries.
//!
//! Without a note, parity is valid only while its modification time is that of its source and its owner may have made it, so
//! changes of times, owners and attributes matter here. A file whose parity was invalid is queried again when it or its parity
//! changes. A folder whose files are encoded together is queried again when one of its files changes.

use std::collections::BTreeSet;
use std::sync::Arc;

use hdfs_raid::source_of;

use super::coded::is_raid;
use super::groups::Groups;
use super::names::{is_within, split};
use crate::listing::Edit;

/// Maximum number of files in a query.
const FILES_AT_ONCE: usize = 200;

/// The stripes and raided files to query.
#[derive(Debug, Default)]
pub(super) struct Touched {
    /// The folders with parity; empty if no raided files are followed.
    roots: Vec<String>,
    stripes: BTreeSet<i64>,
    /// Files and folders whose parity may have become valid or invalid.
    sources: BTreeSet<String>,
    /// The paths of files with invalid parity. No stripe tells of them.
    unprotected: Arc<BTreeSet<String>>,
}

impl Touched {
    /// Follows the parity in these folders.
    pub fn new(roots: Vec<String>) -> Self {
        Self { roots, ..Self::default() }
    }

    /// Takes in the paths of files with invalid parity.
    pub fn take_unprotected(&mut self, paths: Arc<BTreeSet<String>>) {
        self.unprotected = paths;
    }

    /// Records an event. `groups` is as before the event.
    pub fn note(&mut self, edit: &Edit, groups: &Groups) {
        if self.roots.is_empty() {
            return;
        }
        match edit {
            Edit::Created { path, .. } | Edit::Modified(path) | Edit::Touched(path) | Edit::Removed(path) => {
                self.note_path(path, groups);
            }
            Edit::Renamed { from, to } => {
                [from, to].into_iter().for_each(|path| self.note_path(path, groups))
            }
        }
    }

    fn note_path(&mut self, path: &str, groups: &Groups) {
        let parity_of = self.roots.iter().find_map(|root| match source_of(root, path) {
            None if is_within(root, path) => Some("/"), // The folder with all parity.
            source => source,
        });
        let source = parity_of.unwrap_or(path);
        self.note_folder(split(source).0, groups);
        let mut stripes: BTreeSet<i64> = groups.names().below(source).into_iter().collect();
        stripes.retain(|&number| is_raid(number));
        if parity_of.is_some() || !stripes.is_empty() || self.is_unprotected(source) {
            self.sources.insert(source.to_owned());
        }
        self.stripes.append(&mut stripes);
    }

    /// Records that a file of this folder is concerned, if the files of the folder are encoded together.
    fn note_folder(&mut self, folder: &str, groups: &Groups) {
        let stripes = groups.names().at(folder);
        let mut stripes: BTreeSet<i64> = stripes.into_iter().filter(|&number| is_raid(number)).collect();
        if !stripes.is_empty() || self.unprotected.contains(folder) {
            self.sources.insert(folder.to_owned());
        }
        self.stripes.append(&mut stripes);
    }

    /// Whether a file at or below this path has invalid parity.
    fn is_unprotected(&self, path: &str) -> bool {
        let from = self.unprotected.range(path.to_owned()..);
        from.take_while(|other| other.starts_with(path)).any(|other| is_within(other, path))
    }

    /// Has these files and folders queried.
    pub fn note_sources(&mut self, sources: BTreeSet<String>) {
        self.sources.extend(sources);
    }

    /// Has all raided files queried.
    pub fn note_all(&mut self) {
        if !self.roots.is_empty() {
            self.sources.insert("/".to_owned());
        }
    }

    /// Returns the stripes to query now.
    pub fn take_stripes(&mut self) -> BTreeSet<i64> {
        std::mem::take(&mut self.stripes)
    }

    /// Returns files and folders to query now, at most a few hundred.
    pub fn sources(&self) -> BTreeSet<String> {
        self.sources.iter().take(FILES_AT_ONCE).cloned().collect()
    }

    /// Records that these files and folders were queried.
    pub fn note_answer(&mut self, asked: &BTreeSet<String>) {
        self.sources.retain(|source| !asked.contains(source));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::coded::{Coded, Extent, RaidBlock, RaidStripe};
    use super::super::groups::Listed;
    use super::super::names::{Place, split};
    use super::*;
    use crate::listing::{FileRef, Phase, name_hash};

    /// Returns the stripe of a raided file, whose first block has this number.
    fn listed(groups: &mut Groups, path: &str, number: i64) -> Listed {
        let (folder, name) = split(path);
        let block = |number| RaidBlock { number, stamp: 1001, bytes: 9 };
        let stripe = RaidStripe {
            code: Arc::new("xor-2-1".parse().expect("a code")),
            block_bytes: 9,
            source: number as u64,
            data: vec![Extent { inode: number as u64, start: 0, blocks: 1 }],
            parity: Extent { inode: number as u64 + 1, start: 0, blocks: 1 },
            blocks: vec![block(number), block(number + 1)],
        };
        Listed {
            file: FileRef { inode: number as u64, held_at: None },
            place: Some(Place { folder: groups.folder(folder), name: name_hash(name) }),
            phase: Phase::Old,
            start: 0,
            group: Coded::Raid(Arc::new(stripe)),
            homes: Vec::new(),
        }
    }

    /// Returns the stripes and the files that an event concerns, of the raided files `/a/f`, `/a/g` and
    /// `/b/f`.
    fn touched(edit: &Edit) -> (Vec<i64>, Vec<String>) {
        let mut groups = Groups::default();
        // The stripe of `/e` runs over the files of this folder.
        let files = [("/a/f", 10), ("/a/g", 20), ("/b/f", 30), ("/e", 40)];
        let all = files.map(|(path, number)| listed(&mut groups, path, number)).to_vec();
        groups.take(Duration::ZERO, Duration::ZERO, all, false, true);
        let mut touched = Touched::new(vec!["/raidrs".to_owned(), "/raid/xor".to_owned()]);
        touched.take_unprotected(Arc::new(["/c/old-f", "/c/old/f", "/g"].map(str::to_owned).into()));
        touched.note(edit, &groups);
        let sources = touched.sources().into_iter().collect();
        (touched.take_stripes().into_iter().collect(), sources)
    }

    #[test]
    fn events_concern_sources_and_parity() {
        let text = |path: &str| path.to_owned();
        for (edit, stripes, sources) in [
            (Edit::Modified(text("/a/f")), vec![10], vec!["/a/f"]),
            (Edit::Touched(text("/a/g")), vec![20], vec!["/a/g"]),
            (Edit::Touched(text("/other")), vec![], vec![]),
            (Edit::Created { path: text("/other"), is_striped: false }, vec![], vec![]),
            (Edit::Removed(text("/a")), vec![10, 20], vec!["/a"]),
            (Edit::Removed(text("/raidrs/a/f")), vec![10], vec!["/a/f"]),
            (Edit::Touched(text("/raid/xor/new")), vec![], vec!["/new"]),
            (Edit::Touched(text("/raid/xor/c/old-f")), vec![], vec!["/c/old-f"]),
            (Edit::Renamed { from: text("/tmp/x"), to: text("/raidrs/b") }, vec![30], vec!["/b"]),
            (Edit::Renamed { from: text("/a/f"), to: text("/d") }, vec![10], vec!["/a/f"]),
            // Their parity was invalid, and may be valid now.
            (Edit::Modified(text("/c/old-f")), vec![], vec!["/c/old-f"]),
            (Edit::Renamed { from: text("/tmp/x"), to: text("/c/old") }, vec![], vec!["/c/old"]),
            (Edit::Touched(text("/c/ol")), vec![], vec![]),
            (Edit::Removed(text("/raid")), vec![10, 20, 30, 40], vec!["/"]),
            // Files of a folder that is encoded as a whole, and of one whose parity is invalid.
            (Edit::Removed(text("/e/f")), vec![40], vec!["/e"]),
            (Edit::Renamed { from: text("/tmp/x"), to: text("/e/new") }, vec![40], vec!["/e"]),
            (Edit::Modified(text("/g/f")), vec![], vec!["/g"]),
            (Edit::Renamed { from: text("/e"), to: text("/h") }, vec![40], vec!["/e"]),
            (Edit::Removed(text("/raidrs/e")), vec![40], vec!["/e"]),
            (Edit::Removed(text("/raidrsx")), vec![], vec![]),
        ] {
            let sources: Vec<String> = sources.into_iter().map(text).collect();
            assert_eq!(touched(&edit), (stripes, sources), "{edit:?}");
        }
    }
}
