//! Follows the namespace by the NameNode's edit log: determines from events which files must be queried, and
//! which groups may be gone. Pure: this module sends no queries and drops no group.
//!
//! An event never changes what is known about a file. It only makes the caller ask the NameNode, whose answer
//! shows the file as it is at that time, perhaps after later events. So events may be replayed that the last
//! listing already shows. If the answer lacks a file, or has another one of that name, later events tell why: the
//! file was renamed, and is then queried under its new path, or it was deleted.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::groups::Groups;
use super::names::{is_within, replaced};
use super::touched::Touched;
use crate::listing::{Edit, Edits};

/// A file that stays open is queried again after this time, because the log has no events for its new groups.
pub(super) const OPEN_EVERY: Duration = Duration::from_secs(60);
/// Maximum number of paths in a query.
const PATHS_AT_ONCE: usize = 200;
/// Maximum number of files that are looked up by inode number in a query.
const INODES_AT_ONCE: usize = 1000;

/// The position in the edit log, and the consequences of events that were read.
#[derive(Debug)]
pub(super) struct Replay {
    /// The folders whose files are followed.
    roots: Vec<String>,
    /// The transaction to read next.
    next: u64,
    /// Events before this transaction may be older than the listing, so a folder may be listed under its old
    /// path, or not at all.
    listed_until: u64,
    /// The paths to query. For a path that was queried: the end of the log at that time. Until the log was read
    /// up to there, the answer may be about a later file of that name, and the log may tell that the file has
    /// another path now.
    dirty: BTreeMap<String, Option<u64>>,
    /// Files that are being written, and when to query them again.
    open: BTreeMap<String, Duration>,
    /// Replicated files that are being written. Their closing needs no query.
    replicated: BTreeSet<String>,
    /// Groups that may be gone, with their file's inode number.
    doubted: BTreeMap<i64, u64>,
    /// Groups whose files were moved out of the folders, with the files.
    left: BTreeMap<i64, u64>,
    /// The raided files that events concern.
    touched: Touched,
}

impl Replay {
    /// Creates the state after a listing of these folders. `from` and `until` are the ends of the log before
    /// and after the listing.
    pub fn new(roots: &[String], from: u64, until: u64) -> Self {
        Self {
            roots: roots.to_vec(),
            next: from,
            listed_until: until,
            dirty: BTreeMap::new(),
            open: BTreeMap::new(),
            replicated: BTreeSet::new(),
            doubted: BTreeMap::new(),
            left: BTreeMap::new(),
            touched: Touched::default(),
        }
    }

    /// Follows raided files too, whose parity is in these folders.
    pub fn with_parity(self, roots: Vec<String>) -> Self {
        Self { touched: Touched::new(roots), ..self }
    }

    /// Returns the raided files that events concern.
    pub fn touched(&mut self) -> &mut Touched {
        &mut self.touched
    }

    /// Returns the transaction to read next.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Records a part of the edit log.
    pub fn take(&mut self, edits: Edits, groups: &mut Groups) {
        let is_early = self.next < self.listed_until;
        for edit in edits.events {
            self.touched.note(&edit, groups);
            match edit {
                Edit::Created { path, is_striped } => {
                    self.doubt(groups, groups.names().at(&path));
                    if is_striped {
                        self.replicated.remove(&path);
                        self.note_dirty(path);
                    } else if self.is_followed(&path) {
                        self.replicated.insert(path);
                    }
                }
                Edit::Modified(path) => {
                    if !self.replicated.remove(&path) {
                        self.open.remove(&path);
                        self.note_dirty(path);
                    }
                }
                Edit::Touched(_) => {} // Erasure-coded files stay the same.
                Edit::Removed(path) => {
                    self.doubt(groups, groups.names().below(&path));
                    self.dirty.retain(|other, _| !is_within(other, &path));
                    self.open.retain(|other, _| !is_within(other, &path));
                    self.replicated.retain(|other| !is_within(other, &path));
                }
                Edit::Renamed { from, to } => self.rename(groups, &from, &to, is_early),
            }
        }
        self.next = edits.next;
        let next = self.next;
        self.dirty.retain(|_, until| until.is_none_or(|until| next < until));
    }

    fn rename(&mut self, groups: &mut Groups, from: &str, to: &str, is_early: bool) {
        self.doubt(groups, groups.names().at(to)); // The rename may have replaced a file.
        // Files that were listed or queried lately may have been found as they are after the rename.
        let is_ahead = |(path, until): (&String, &Option<u64>)| {
            (until.is_some() && is_within(path, from)).then(|| path.clone())
        };
        let mut ahead: Vec<String> = self.dirty.iter().filter_map(is_ahead).collect();
        ahead.extend(is_early.then(|| from.to_owned()));
        ahead.iter().for_each(|path| self.doubt(groups, groups.names().below(path)));
        groups.rename(from, to);
        let moved = |path: &String| is_within(path, from).then(|| replaced(path, from, to));
        let was_open: Vec<_> =
            self.open.keys().filter_map(|path| Some((path.clone(), moved(path)?))).collect();
        for (old, new) in was_open {
            let due = self.open.remove(&old).expect("listed above");
            self.open.insert(new, due);
        }
        let was_dirty: Vec<_> =
            self.dirty.keys().filter_map(|path| Some((path.clone(), moved(path)?))).collect();
        for (old, new) in was_dirty {
            self.dirty.remove(&old);
            self.note_dirty(new);
        }
        ahead.into_iter().for_each(|path| self.note_dirty(path));
        let was_replicated: Vec<_> =
            self.replicated.iter().filter_map(|path| Some((path.clone(), moved(path)?))).collect();
        for (old, new) in was_replicated {
            self.replicated.remove(&old);
            self.replicated.insert(new);
        }
        if is_early || !self.is_followed(from) {
            self.note_dirty(to.to_owned());
        }
        if !self.is_followed(to) {
            self.left.extend(with_files(groups, groups.names().below(to)));
        }
    }

    /// Whether a path is in one of the folders that are followed, or contains one.
    fn is_followed(&self, path: &str) -> bool {
        self.roots.iter().any(|root| is_within(path, root) || is_within(root, path))
    }

    fn note_dirty(&mut self, path: String) {
        if self.roots.iter().any(|root| is_within(&path, root)) {
            self.dirty.insert(path, None);
        } else {
            // A folder that was renamed may contain folders that are followed.
            let roots: Vec<_> = self.roots.iter().filter(|root| is_within(root, &path)).cloned().collect();
            self.dirty.extend(roots.into_iter().map(|root| (root, None)));
        }
    }

    fn doubt(&mut self, groups: &Groups, numbers: Vec<i64>) {
        self.doubted.extend(with_files(groups, numbers));
    }

    /// Returns the groups that have left the folders since the last call, with their files.
    pub fn take_left(&mut self) -> BTreeMap<i64, u64> {
        std::mem::take(&mut self.left)
    }

    /// Returns the paths to query next, at most a few hundred.
    pub fn paths(&mut self, now: Duration) -> Vec<String> {
        let due: Vec<String> =
            self.open.iter().filter(|(_, due)| **due <= now).map(|(path, _)| path.clone()).collect();
        for path in due {
            self.open.remove(&path);
            self.dirty.insert(path, None);
        }
        let unasked = self.dirty.iter().filter(|(_, until)| until.is_none());
        unasked.take(PATHS_AT_ONCE).map(|(path, _)| path.clone()).collect()
    }

    /// Records that these paths were queried. `open` names the files that are being written, and `end` is the
    /// end of the log after the query.
    pub fn note_answer(&mut self, now: Duration, asked: &[String], open: &[String], end: u64) {
        for path in asked {
            match self.dirty.get_mut(path) {
                Some(until) if end > self.next => *until = Some(end),
                _ => drop(self.dirty.remove(path)),
            }
        }
        self.note_open(now, open);
    }

    /// Records files that are being written.
    pub fn note_open(&mut self, now: Duration, paths: &[String]) {
        self.open.extend(paths.iter().map(|path| (path.clone(), now + OPEN_EVERY)));
    }

    /// Records groups that may be gone, with their files.
    pub fn note_doubted(&mut self, doubted: BTreeMap<i64, u64>) {
        self.doubted.extend(doubted);
    }

    /// Returns groups that may be gone, with their files, at most a thousand.
    pub fn doubted(&self) -> Vec<(i64, u64)> {
        self.doubted.iter().take(INODES_AT_ONCE).map(|(&number, &inode)| (number, inode)).collect()
    }

    /// Records that it was determined whether these groups are gone.
    pub fn note_judged(&mut self, judged: &[(i64, u64)]) {
        for (number, inode) in judged {
            if self.doubted.get(number) == Some(inode) {
                self.doubted.remove(number);
            }
        }
    }
}

/// Returns the known ones of these groups with their files' inode numbers.
fn with_files(groups: &Groups, numbers: Vec<i64>) -> impl Iterator<Item = (i64, u64)> + '_ {
    numbers.into_iter().filter_map(|number| Some((number, groups.inode(number)?)))
}

#[cfg(test)]
#[path = "replay/tests.rs"]
mod tests;
