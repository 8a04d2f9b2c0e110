//! Compares the metadata files of a volume (`.vif`, `.ecsum`, `.ecx`) across the servers that hold its
//! shards.
//!
//! The majority is assumed to be right: a copy that differs, is damaged or is missing is reported and
//! replaced by a copy from the majority. Without a majority no copy is replaced.

use std::collections::BTreeMap;
use std::fmt;

use crate::blocks::{Ecsum, Encoding, VolumeInfo};
use serde_json::Value;

use crate::listing::ServerId;
use crate::server::SmallFile;

/// Sizes of an index entry in bytes: key, offset and size, in this order. Builds of SeaweedFS for volumes of
/// up to 30 GB have offsets of 4 bytes, and builds for larger volumes (`8000GB` in the version) of 5 bytes.
/// An index does not say which it has.
const ENTRY_BYTES: [usize; 2] = [16, 17];
/// Indexes are compared in windows of a multiple of this many bytes, so that a window ends with a whole entry
/// of either size.
pub(super) const WINDOW_UNIT: usize = 16 * 17;
const SIZE_BYTES: usize = 4;
/// The size that marks a deleted needle. Only some servers' indexes may contain the mark.
const TOMBSTONE: [u8; SIZE_BYTES] = [0xff; SIZE_BYTES];

/// The defect of a server's copy of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Problem {
    /// The server has no copy, and others do.
    Missing,
    /// The copy cannot be parsed.
    Damaged(String),
    /// The copy differs from the copies of the majority.
    Differs,
}

/// The copies of one file on several servers.
#[derive(Debug, Default)]
pub(super) struct Copies {
    /// Distinct contents, with the servers that have each.
    groups: Vec<(Content, Vec<ServerId>)>,
    damaged: Vec<(ServerId, String)>,
    missing: Vec<ServerId>,
    /// The number of servers that did not answer. Their copies may differ from all others.
    silent: usize,
}

/// The result of comparing all copies of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Verdict {
    /// Servers whose copy agrees with the majority.
    pub good: Vec<ServerId>,
    /// Servers whose copy is bad, with the problem.
    pub bad: BTreeMap<ServerId, Problem>,
}

#[derive(Debug)]
enum Content {
    Vif(Encoding, Value),
    Ecsum(Box<Ecsum>),
    /// A window of an index.
    Ecx(Vec<u8>),
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => f.write_str("it is missing, but the other servers have it"),
            Self::Damaged(why) => write!(f, "it is damaged: {why}"),
            Self::Differs => f.write_str("it differs from the copies on most other servers"),
        }
    }
}

impl Content {
    fn decode(file: SmallFile, bytes: Vec<u8>) -> Result<Self, String> {
        match file {
            SmallFile::Vif => {
                let info = VolumeInfo::decode(&bytes).map_err(|error| error.to_string())?;
                let value = serde_json::from_slice(&bytes).map_err(|error| error.to_string())?;
                Ok(Self::Vif(info.encoding, value))
            }
            SmallFile::Ecsum => {
                Ecsum::decode(&bytes).map(|it| Self::Ecsum(Box::new(it))).map_err(|error| error.to_string())
            }
            SmallFile::Ecx | SmallFile::Ecj => Ok(Self::Ecx(bytes)),
        }
    }

    fn agrees(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Vif(_, one), Self::Vif(_, other)) => one == other,
            (Self::Ecsum(one), Self::Ecsum(other)) => sums_agree(one, other),
            (Self::Ecx(one), Self::Ecx(other)) => indexes_agree(one, other),
            _ => false,
        }
    }
}

/// Whether two checksum files agree. Servers may have recomputed checksums with another block size; then only
/// the shards' lengths can be compared.
fn sums_agree(one: &Ecsum, other: &Ecsum) -> bool {
    let shards = one.ratio() == other.ratio() && one.generation() == other.generation();
    shards
        && (0..one.ratio().total()).all(|shard| match (one.shard(shard), other.shard(shard)) {
            (Some(one), Some(other)) if one.block_bytes() == other.block_bytes() => one == other,
            (Some(one), Some(other)) => one.bytes() == other.bytes(),
            _ => false,
        })
}

/// Returns the size of an index's entries in bytes, given the start of the index: the keys ascend.
pub(super) fn entry_bytes(start: &[u8]) -> usize {
    let ascends = |bytes: &usize| {
        let keys = entries(start, *bytes).map(|(needle, _)| needle);
        start.len().is_multiple_of(*bytes) && keys.is_sorted_by(|one, other| one < other)
    };
    ENTRY_BYTES.into_iter().find(ascends).unwrap_or(ENTRY_BYTES[0])
}

/// Returns the needles in a window of an index with entries of `bytes` bytes, and whether each is marked as
/// deleted.
pub(super) fn entries(window: &[u8], bytes: usize) -> impl Iterator<Item = (u64, bool)> {
    window.chunks_exact(bytes).map(move |entry| {
        let needle = entry.first_chunk().expect("an entry begins with a key of 8 bytes");
        (u64::from_be_bytes(*needle), entry[bytes - SIZE_BYTES..] == TOMBSTONE)
    })
}

/// Whether two indexes agree. Each server marks deleted needles in its own index only, so deletions are
/// ignored.
fn indexes_agree(one: &[u8], other: &[u8]) -> bool {
    one == other || ENTRY_BYTES.into_iter().any(|bytes| entries_agree(one, other, bytes))
}

/// Whether two indexes with entries of `bytes` bytes agree, apart from deletions.
fn entries_agree(one: &[u8], other: &[u8], bytes: usize) -> bool {
    let (ones, others) = (one.chunks_exact(bytes), other.chunks_exact(bytes));
    let agree = |(one, other): (&[u8], &[u8])| {
        let (key, size) = one.split_at(bytes - SIZE_BYTES);
        let (other_key, other_size) = other.split_at(bytes - SIZE_BYTES);
        key == other_key && (size == other_size || size == TOMBSTONE || other_size == TOMBSTONE)
    };
    one.len() == other.len() && ones.remainder() == others.remainder() && ones.zip(others).all(agree)
}

impl Copies {
    /// Adds a server's copy of the file; an empty file is treated as missing.
    pub fn add(&mut self, file: SmallFile, server: ServerId, bytes: Option<Vec<u8>>) {
        let Some(bytes) = bytes.filter(|bytes| !bytes.is_empty()) else { return self.missing.push(server) };
        match Content::decode(file, bytes) {
            Err(why) => self.damaged.push((server, why)),
            Ok(content) => self.join(0, content, server),
        }
    }

    /// Compares the next window of each server's index; [`add`](Self::add) has compared the first. A server
    /// without a window has stopped answering and is left out.
    pub fn compare_next(&mut self, mut windows: BTreeMap<ServerId, Vec<u8>>) {
        for (_, servers) in std::mem::take(&mut self.groups) {
            let first = self.groups.len();
            for server in servers {
                if let Some(window) = windows.remove(&server) {
                    self.join(first, Content::Ecx(window), server);
                }
            }
        }
    }

    /// Adds a server to the group with the same content, searching the groups from `first` on.
    fn join(&mut self, first: usize, content: Content, server: ServerId) {
        match self.groups[first..].iter_mut().find(|(other, _)| other.agrees(&content)) {
            Some((_, servers)) => servers.push(server),
            None => self.groups.push((content, vec![server])),
        }
    }

    /// Records how many servers were to be asked. If no copy of a server was added, the server has not answered.
    pub fn note_asked(&mut self, servers: usize) {
        let told: usize = self.groups.iter().map(|(_, servers)| servers.len()).sum();
        self.silent = servers.saturating_sub(told + self.damaged.len() + self.missing.len());
    }

    /// Whether the readable copies differ between servers.
    pub fn is_split(&self) -> bool {
        self.groups.len() > 1
    }

    /// Decides by majority which copies are good. Servers that have not answered count as if their copies
    /// differed: the servers that can be reached may all be outdated. A server without `.ecsum` is blamed
    /// only if most servers have that file; a good `.vif` must also belong to the given encoding.
    pub fn verdict(&self, file: SmallFile, encoding: Encoding) -> Verdict {
        let readable: usize = self.groups.iter().map(|(_, servers)| servers.len()).sum();
        let all = readable + self.silent;
        let fits = |content: &Content| !matches!(content, Content::Vif(other, _) if *other != encoding);
        let most = self.groups.iter().find(|(content, servers)| 2 * servers.len() > all && fits(content));
        let Some((_, good)) = most else { return Verdict::default() };
        let mut bad: BTreeMap<ServerId, Problem> = self
            .damaged
            .iter()
            .map(|(server, why)| (server.clone(), Problem::Damaged(why.clone())))
            .collect();
        let others = self.groups.iter().flat_map(|(_, servers)| servers);
        bad.extend(others.filter(|it| !good.contains(it)).map(|it| (it.clone(), Problem::Differs)));
        if file != SmallFile::Ecsum || good.len() > self.missing.len() {
            bad.extend(self.missing.iter().map(|server| (server.clone(), Problem::Missing)));
        }
        Verdict { good: good.clone(), bad }
    }
}

#[cfg(test)]
#[path = "side_files/tests.rs"]
mod tests;
