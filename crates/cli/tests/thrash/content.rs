//! What files hold.

use fastrand::Rng;

/// The bytes of one version of a file. They are made from its number whenever they are needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Content {
    /// No two versions in one run have the same.
    pub number: u64,
    pub bytes: usize,
}

impl Content {
    /// Bytes without a pattern, so that one in the wrong place shows.
    pub fn make(self) -> Vec<u8> {
        let mut bytes = vec![0; self.bytes];
        Rng::with_seed(self.number).fill(&mut bytes);
        bytes
    }
}

/// How some bytes differ from those they should be.
pub fn difference(found: &[u8], wanted: &[u8]) -> String {
    if found.len() != wanted.len() {
        return format!("{} bytes in place of {}", found.len(), wanted.len());
    }
    let wrong: Vec<usize> = (0..found.len()).filter(|&at| found[at] != wanted[at]).collect();
    let (Some(first), Some(last)) = (wrong.first(), wrong.last()) else { return "no difference".to_owned() };
    let zeros = wrong.iter().filter(|&&at| found[at] == 0).count();
    format!("{} bytes differ, from {first} to {last}, {zeros} of them are zero", wrong.len())
}
