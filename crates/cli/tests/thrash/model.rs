//! The possible contents of every file.

use std::collections::{BTreeMap, BTreeSet};

use crate::content::Content;

/// A version of a file, or `None` if the file does not exist.
pub type State = Option<Content>;

/// The possible contents of every file. A file has several if it is unknown whether a write took effect, for
/// example because the client was killed.
#[derive(Clone, Default)]
pub struct Model {
    files: BTreeMap<String, BTreeSet<State>>,
    /// The contents of unfinished writes since the last one that took effect. Their blocks may be left.
    unfinished: BTreeMap<String, BTreeSet<State>>,
}

/// Whether a write took effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Write {
    /// The write took effect.
    Done,
    /// The write had no effect.
    Refused,
    /// The write may have taken effect.
    Unknown,
}

impl Model {
    /// Returns the possible contents of a file.
    pub fn possible(&self, name: &str) -> BTreeSet<State> {
        self.files.get(name).cloned().unwrap_or_else(|| BTreeSet::from([None]))
    }

    /// Returns the possible contents of a file after the catalog was rebuilt from the blocks. A rebuild cannot know
    /// whether a put was committed, and finds no blocks of an empty file.
    pub fn possible_after_rebuild(&self, name: &str) -> BTreeSet<State> {
        let mut possible = self.possible(name);
        possible.extend(self.unfinished.get(name).into_iter().flatten().copied());
        if possible.iter().flatten().any(|content| content.bytes == 0) {
            possible.insert(None);
        }
        possible
    }

    /// Records a write and whether it took effect.
    pub fn write(&mut self, name: &str, new: State, write: Write) {
        match (write, new) {
            (Write::Done, _) => drop(self.unfinished.remove(name)),
            (_, Some(_)) => drop(self.unfinished.entry(name.to_owned()).or_default().insert(new)),
            (_, None) => {}
        }
        let mut possible = self.possible(name);
        match write {
            Write::Refused => return,
            Write::Done => possible = BTreeSet::from([new]),
            Write::Unknown => _ = possible.insert(new),
        }
        self.files.insert(name.to_owned(), possible);
    }

    /// Records the contents of a file that was read when no write was running.
    pub fn settle(&mut self, name: &str, state: State) {
        self.files.insert(name.to_owned(), BTreeSet::from([state]));
    }

    /// Returns all names that were ever written.
    pub fn names(&self) -> Vec<String> {
        self.files.keys().cloned().collect()
    }

    /// Returns the names of files that exist or may exist.
    pub fn present(&self) -> Vec<String> {
        let present = self.files.iter().filter(|(_, possible)| possible.iter().any(Option::is_some));
        present.map(|(name, _)| name.clone()).collect()
    }

    /// Returns the total size in bytes of all files, each at its largest possible version.
    pub fn bytes(&self) -> usize {
        let largest =
            |possible: &BTreeSet<State>| possible.iter().flatten().map(|content| content.bytes).max();
        self.files.values().filter_map(largest).sum()
    }
}
