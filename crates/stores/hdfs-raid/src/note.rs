//! Mend's notes on files in HDFS. They are extended attributes, so they survive the loss of the coordinator.
//! Attributes that Mend trusts are in the name space of HDFS's superuser, and users cannot forge them.
//!
//! The [`Note`] on a parity file records that the parity was compared with the data. It names the blocks of
//! both files, and the code, by [`Fingerprint`]s. So it becomes void as soon as either file or the codec's code
//! changes, independently of the files' names and times. The parity of a folder has a record of the blocks as well
//! ([`Members`]).

use std::fmt;

use codes::CodeSpec;
use crc_fast::CrcAlgorithm;

use crate::{Block, Members};

/// The attribute of a parity file that contains its [`Note`].
const NOTE: &str = "trusted.mend.source";
/// The attribute with a copy of the note for readers, who do not see HDFS's `trusted` attributes. Mend itself
/// never relies on it.
const READERS_NOTE: &str = "user.mend.source";
/// The attribute of the parity of a folder that contains its [`Members`], and the copy for readers.
const MEMBERS: &str = "trusted.mend.members";
const READERS_MEMBERS: &str = "user.mend.members";
/// The attribute of a parity file that is about to be removed.
const UNDO: &str = "trusted.mend.undo";
/// The attribute of a file that is never encoded. The file's owner may set it, to any value.
const NEVER: &str = "user.mend.raid";
/// The version of the note's text.
const VERSION: &str = "2";
/// The version of notes that do not name the code.
const WITHOUT_CODE: &str = "1";

/// Identifies the blocks of a file by their numbers, generation stamps and lengths, or a code by its name. HDFS
/// gives a block a new stamp or a new number whenever its bytes change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint(u64);

/// The proof of a parity file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Note {
    /// The inode number of the source, which is a file or a folder.
    pub inode: u64,
    /// The source's replication before it was encoded; the highest one of a folder's files.
    pub replication: u16,
    /// The source's blocks, in the order of the stripes.
    pub source: Fingerprint,
    /// The blocks of the parity file.
    pub parity: Fingerprint,
    /// The code that made the parity; `None` in a note of version 1, which does not name it.
    pub code: Option<Fingerprint>,
}

/// Mend's attributes of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// The note on a parity file.
    pub note: Option<Note>,
    /// The record of the blocks of a folder's parity. It counts only if the note is about these blocks.
    pub members: Option<Members>,
    /// Whether the parity file is about to be removed.
    pub is_undone: bool,
    /// Whether the file is never encoded.
    pub is_never_encoded: bool,
}

/// One of Mend's attributes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mark {
    /// The blocks of a folder's parity.
    Members(Members),
    /// The parity was proven.
    Proven(Note),
    /// The parity file is about to be removed.
    Undo,
    /// The file is never encoded.
    Never,
}

/// An attribute has a value that this version of Mend did not write.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the attribute {name} has the value `{value}`, which this version of mend does not know")]
pub struct UnknownMark {
    /// The attribute.
    pub name: String,
    /// Its value.
    pub value: String,
}

impl Fingerprint {
    /// Returns the fingerprint of blocks in this order.
    pub fn of<'a>(blocks: impl IntoIterator<Item = &'a Block>) -> Self {
        Self::of_names(blocks.into_iter().map(|block| (block.number, block.stamp, block.bytes)))
    }

    /// Returns the fingerprint of blocks with these numbers, generation stamps and lengths.
    pub(crate) fn of_names(blocks: impl Iterator<Item = (i64, u64, u64)>) -> Self {
        let words = |(number, stamp, bytes): (i64, u64, u64)| [number as u64, stamp, bytes];
        let bytes: Vec<u8> = blocks.flat_map(words).flat_map(u64::to_be_bytes).collect();
        Self(crc_fast::checksum(CrcAlgorithm::Crc64Nvme, &bytes))
    }

    /// Returns the fingerprint of a code. `StripeCode` in `java/hdfs` computes the same one.
    pub fn of_code(code: &CodeSpec) -> Self {
        Self(crc_fast::checksum(CrcAlgorithm::Crc64Nvme, code.to_string().as_bytes()))
    }

    fn parse(text: &str) -> Option<Self> {
        u64::from_str_radix(text, 16).ok().map(Self)
    }
}

impl Note {
    /// Whether both notes are about the same blocks of the same file, and the same code.
    pub fn is_about(&self, other: &Self) -> bool {
        let blocks = |note: &Self| (note.inode, note.source, note.parity, note.code);
        blocks(self) == blocks(other)
    }

    /// Returns a note that names no blocks. It makes parity stale for all programs.
    pub(crate) fn void(self) -> Self {
        let none = Fingerprint::of([]);
        Self { source: none, parity: none, ..self }
    }

    fn parse(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let version = words.next()?;
        let (inode, replication) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        let (source, parity) = (Fingerprint::parse(words.next()?)?, Fingerprint::parse(words.next()?)?);
        let code = match version {
            VERSION => Some(Fingerprint::parse(words.next()?)?),
            WITHOUT_CODE => None,
            _ => return None,
        };
        words.next().is_none().then_some(Self { inode, replication, source, parity, code })
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { inode, replication, source, parity, code } = self;
        let version = if code.is_some() { VERSION } else { WITHOUT_CODE };
        write!(f, "{version} {inode} {replication} {source} {parity}")?;
        code.map_or(Ok(()), |code| write!(f, " {code}"))
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl Mark {
    /// Returns the names of the attributes, which are set in this order, and their value.
    pub fn attributes(&self) -> (&'static [&'static str], String) {
        match self {
            Self::Members(members) => (&[READERS_MEMBERS, MEMBERS], members.to_string()),
            Self::Proven(note) => (&[READERS_NOTE, NOTE], note.to_string()),
            Self::Undo => (&[UNDO], "yes".to_owned()),
            Self::Never => (&[NEVER], "never".to_owned()),
        }
    }

    /// Parses an attribute; `None` if it is not one of Mend's.
    ///
    /// # Errors
    /// [`UnknownMark`].
    pub fn parse(name: &str, value: &str) -> Result<Option<Self>, UnknownMark> {
        let mark = match name {
            MEMBERS => Members::parse(value).map(Self::Members),
            NOTE => Note::parse(value).map(Self::Proven),
            UNDO => (value == "yes").then_some(Self::Undo),
            NEVER => Some(Self::Never),
            _ => return Ok(None),
        };
        let unknown = || UnknownMark { name: name.to_owned(), value: value.to_owned() };
        mark.ok_or_else(unknown).map(Some)
    }
}

impl Marks {
    /// Sets an attribute.
    pub fn set(&mut self, mark: Mark) {
        match mark {
            Mark::Members(members) => self.members = Some(members),
            Mark::Proven(note) => self.note = Some(note),
            Mark::Undo => self.is_undone = true,
            Mark::Never => self.is_never_encoded = true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Codec;

    fn block(number: i64, stamp: u64) -> Block {
        Block { number, stamp, bytes: 512, replicas: Vec::new() }
    }

    #[test]
    fn attributes_are_parsed_as_written() {
        let (source, parity) = (Fingerprint::of([&block(1, 1)]), Fingerprint::of([]));
        let note = Note { inode: 16390, replication: 3, source, parity, code: Some(source) };
        let [note, old] = [note, Note { code: None, ..note }].map(Mark::Proven);
        let members = Members::of(&[block(1, 7), block(2, 8)]);
        for mark in [Mark::Members(members), note, old, Mark::Undo, Mark::Never] {
            let (names, value) = mark.attributes();
            assert_eq!(Mark::parse(names[names.len() - 1], &value), Ok(Some(mark)), "{value}");
        }
        assert_eq!(Mark::parse("user.other", "1"), Ok(None));
        assert_eq!(Mark::parse("user.mend.source", "1"), Ok(None), "users can set it");
        assert_eq!(Mark::parse(NEVER, "no"), Ok(Some(Mark::Never)));
        for value in ["", "2 1 3 0 0", "2 1 3 0 0 x", "3 1 3 0 0 0", "1 1 3 0", "1 1 3 0 0 0", "1 1 3 0 x"] {
            assert!(Mark::parse(NOTE, value).is_err(), "{value}");
        }
        assert!(Mark::parse(UNDO, "no").is_err() && Mark::parse(MEMBERS, "2 1.1.1").is_err());
    }

    #[test]
    fn a_fingerprint_changes_with_the_blocks() {
        let blocks = [block(1, 7), block(2, 8)];
        let fingerprint = Fingerprint::of(&blocks);
        assert_eq!(Fingerprint::of(&blocks.clone()), fingerprint);
        let moved = Block { replicas: vec![crate::NodeIndex(1)], ..block(2, 8) };
        assert_eq!(Fingerprint::of([&blocks[0], &moved]), fingerprint, "replicas do not matter");
        for other in [vec![block(1, 7)], vec![block(1, 7), block(2, 9)], vec![block(2, 8), block(1, 7)]] {
            assert_ne!(Fingerprint::of(&other), fingerprint);
        }
    }

    /// `RaidedFileTest` in `java/hdfs` expects the same text.
    #[test]
    fn the_java_reader_computes_the_same_fingerprints() {
        let file = |first: i64, blocks: i64, stamp: u64, last: u64| -> Fingerprint {
            let bytes = |at: i64| if at == blocks - 1 { last } else { 512 };
            let block = |at: i64| Block { bytes: bytes(at), ..block(first + at, stamp + at as u64) };
            Fingerprint::of(&(0..blocks).map(block).collect::<Vec<_>>())
        };
        assert_eq!(file(100, 5, 1100, 40).to_string(), "d1e5ed8ff0d71c74");
        assert_eq!(file(200, 4, 1200, 512).to_string(), "72cacae67da5dec3");
        let [rs, xor, ..] = Codec::hdfs_raid().map(|codec| Fingerprint::of_code(&codec.code).to_string());
        assert_eq!([rs.as_str(), xor.as_str()], ["a2dc04161bef2759", "3ec1e4df1e9cc2d7"]);
    }
}
