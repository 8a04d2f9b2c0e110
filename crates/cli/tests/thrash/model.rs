//! What every file may hold.

use std::collections::{BTreeMap, BTreeSet};

use crate::content::Content;

/// A version of a file, or that there is none.
pub type State = Option<Content>;

/// What every file may hold: more than one thing if a writer was killed, since nobody knows then how far it came.
#[derive(Clone, Default)]
pub struct Model {
    files: BTreeMap<String, BTreeSet<State>>,
}

/// What became of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Write {
    /// It happened.
    Done,
    /// It did not.
    Refused,
    /// It may have.
    Unknown,
}

impl Model {
    /// All that a file may hold.
    pub fn possible(&self, name: &str) -> BTreeSet<State> {
        self.files.get(name).cloned().unwrap_or_else(|| BTreeSet::from([None]))
    }

    /// Takes note of a write.
    pub fn write(&mut self, name: &str, new: State, write: Write) {
        let mut possible = self.possible(name);
        match write {
            Write::Refused => return,
            Write::Done => possible = BTreeSet::from([new]),
            Write::Unknown => _ = possible.insert(new),
        }
        self.files.insert(name.to_owned(), possible);
    }

    /// Takes note of what a file holds, after every writer has long ended.
    pub fn settle(&mut self, name: &str, state: State) {
        self.files.insert(name.to_owned(), BTreeSet::from([state]));
    }

    /// Names that were ever written.
    pub fn names(&self) -> Vec<String> {
        self.files.keys().cloned().collect()
    }

    /// Names of files that are there, or may be.
    pub fn present(&self) -> Vec<String> {
        let present = self.files.iter().filter(|(_, possible)| possible.iter().any(Option::is_some));
        present.map(|(name, _)| name.clone()).collect()
    }

    /// The most bytes that all files may have.
    pub fn bytes(&self) -> usize {
        let largest =
            |possible: &BTreeSet<State>| possible.iter().flatten().map(|content| content.bytes).max();
        self.files.values().filter_map(largest).sum()
    }
}
