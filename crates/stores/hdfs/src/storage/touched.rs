//! [`Touched`]: the raided files that the NameNode's edit log concerns. Pure: an event only causes queries.
//!
//! Parity is valid only while its modification time is that of its source, so changes of times matter here. A
//! file whose parity was invalid is queried again when its parity changes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use hdfs_raid::source_of;

use super::coded::is_raid;
use super::groups::Groups;
use super::names::is_within;
use crate::listing::Edit;

/// A stripe is queried again this long after an event: DataNodes remove surplus replicas only at later
/// heartbeats.
const AGAIN_AFTER: Duration = Duration::from_secs(30);
/// Maximum number of files in a query.
const FILES_AT_ONCE: usize = 200;

/// The stripes and raided files to query.
#[derive(Debug, Default)]
pub(super) struct Touched {
    /// The folders with parity; empty if no raided files are followed.
    roots: Vec<String>,
    stripes: BTreeSet<i64>,
    /// Stripes to query again, and when.
    later: BTreeMap<i64, Duration>,
    /// Files and folders whose parity may have become valid or invalid.
    sources: BTreeSet<String>,
}

impl Touched {
    /// Follows the parity in these folders.
    pub fn new(roots: Vec<String>) -> Self {
        Self { roots, ..Self::default() }
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
        let is_known = groups.names().at(source).into_iter().any(is_raid);
        self.stripes.extend(groups.names().below(source).into_iter().filter(|&number| is_raid(number)));
        if parity_of.is_some() || is_known {
            self.sources.insert(source.to_owned());
        }
    }

    /// Returns the stripes to query now.
    pub fn take_stripes(&mut self, now: Duration) -> BTreeSet<i64> {
        let due = self.later.extract_if(.., |_, at| *at <= now).map(|(number, _)| number);
        let mut due: BTreeSet<i64> = due.collect();
        self.later.extend(self.stripes.iter().map(|&number| (number, now + AGAIN_AFTER)));
        due.append(&mut self.stripes);
        due
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
    use std::sync::Arc;

    use super::super::coded::{Coded, RaidBlock, RaidStripe};
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
            start: 0,
            parity: number as u64 + 1,
            parity_start: 0,
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
        let files = [("/a/f", 10), ("/a/g", 20), ("/b/f", 30)];
        let all = files.map(|(path, number)| listed(&mut groups, path, number)).to_vec();
        groups.take(Duration::ZERO, Duration::ZERO, all, false, true);
        let mut touched = Touched::new(vec!["/raidrs".to_owned(), "/raid/xor".to_owned()]);
        touched.note(edit, &groups);
        let sources = touched.sources().into_iter().collect();
        (touched.take_stripes(Duration::ZERO).into_iter().collect(), sources)
    }

    #[test]
    fn events_concern_sources_and_parity() {
        let text = |path: &str| path.to_owned();
        for (edit, stripes, sources) in [
            (Edit::Modified(text("/a/f")), vec![10], vec!["/a/f"]),
            (Edit::Touched(text("/a/g")), vec![20], vec!["/a/g"]),
            (Edit::Touched(text("/other")), vec![], vec![]),
            (Edit::Created { path: text("/other"), is_striped: false }, vec![], vec![]),
            (Edit::Removed(text("/a")), vec![10, 20], vec![]),
            (Edit::Removed(text("/raidrs/a/f")), vec![10], vec!["/a/f"]),
            (Edit::Touched(text("/raid/xor/new")), vec![], vec!["/new"]),
            (Edit::Renamed { from: text("/tmp/x"), to: text("/raidrs/b") }, vec![30], vec!["/b"]),
            (Edit::Renamed { from: text("/a/f"), to: text("/c") }, vec![10], vec!["/a/f"]),
            (Edit::Removed(text("/raid")), vec![10, 20, 30], vec!["/"]),
            (Edit::Removed(text("/raidrsx")), vec![], vec![]),
        ] {
            let sources: Vec<String> = sources.into_iter().map(text).collect();
            assert_eq!(touched(&edit), (stripes, sources), "{edit:?}");
        }
    }

    #[test]
    fn stripes_are_queried_again_once() {
        let seconds = Duration::from_secs;
        let mut touched = Touched { stripes: BTreeSet::from([10]), ..Touched::default() };
        assert_eq!(touched.take_stripes(seconds(1)), BTreeSet::from([10]));
        assert!(touched.take_stripes(seconds(1) + AGAIN_AFTER / 2).is_empty());
        assert_eq!(touched.take_stripes(seconds(1) + AGAIN_AFTER), BTreeSet::from([10]));
        assert!(touched.take_stripes(seconds(9) + AGAIN_AFTER * 2).is_empty());
    }
}
