//! The contents of files.

use fastrand::Rng;

/// The contents of one version of a file, generated from its number when needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Content {
    /// A number that is unique within a run.
    pub number: u64,
    pub bytes: usize,
}

impl Content {
    /// Generates the contents. The bytes are random, so that a misplaced block is noticed.
    pub fn make(self) -> Vec<u8> {
        let mut bytes = vec![0; self.bytes];
        Rng::with_seed(self.number).fill(&mut bytes);
        bytes
    }
}

/// Describes how bytes differ from the expected ones.
pub fn difference(found: &[u8], wanted: &[u8]) -> String {
    if found.len() != wanted.len() {
        return format!("{} bytes in place of {}", found.len(), wanted.len());
    }
    let wrong: Vec<usize> = (0..found.len()).filter(|&at| found[at] != wanted[at]).collect();
    let (Some(first), Some(last)) = (wrong.first(), wrong.last()) else { return "no difference".to_owned() };
    let zeros = wrong.iter().filter(|&&at| found[at] == 0).count();
    format!("{} bytes differ, from {first} to {last}, {zeros} of them are zero", wrong.len())
}
