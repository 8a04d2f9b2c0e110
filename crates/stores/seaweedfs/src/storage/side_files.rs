//! Compares the metadata files of a volume (`.vif`, `.ecsum`, `.ecx`) across the servers that hold its
//! shards.
//!
//! The majority is assumed to be right: a copy that differs, is damaged or is missing is reported and
//! replaced by a copy from the majority. Without a majority no copy is replaced. An `.ecsum` that an earlier
//! encoding has left has no vote.

use std::collections::BTreeMap;
use std::fmt;

use crate::blocks::{Ecsum, EcsumError, Encoding, Ratio, VolumeInfo, predates};
use repair::Digest;
use serde_json::Value;

use super::view::Expected;
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
    /// The copy is a `.vif` that names another encoding. Shards of that encoding may be next to it, mounted or not.
    OtherEncoding,
    /// An earlier encoding has left the copy.
    Outdated,
}

/// The copies of one file on several servers.
#[derive(Debug, Default)]
pub(super) struct Copies {
    /// Distinct contents, with the servers that have each.
    groups: Vec<(Content, Vec<ServerId>)>,
    damaged: Vec<(ServerId, String)>,
    /// Servers with a file of a version that this program does not support. It may be right, so it is kept.
    newer: Vec<ServerId>,
    missing: Vec<ServerId>,
    /// When servers' copies were modified, in nanoseconds since 1970; 0 if unknown.
    modified_ns: BTreeMap<ServerId, i64>,
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

/// The checksums of an encoding's shards, according to the `.ecsum` files of all servers.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Checksums<'c> {
    /// Most servers have these.
    Agreed(&'c Ecsum),
    /// No server has any.
    Absent,
    /// Servers differ. An `.ecsum` does not name its encoding, so any of these files may be outdated.
    Disputed {
        /// The number of servers with the most frequent checksums.
        agree: usize,
        /// The number of all servers.
        of: usize,
    },
    /// It depends on servers that have not answered.
    Undecided,
}

impl Checksums<'_> {
    /// Returns a digest for each shard, or none if servers differ; `None` if that is undecided.
    pub fn digests(&self) -> Option<Vec<Digest>> {
        match self {
            Self::Agreed(sums) => Some(sums.digests()),
            Self::Absent | Self::Disputed { .. } => Some(Vec::new()),
            Self::Undecided => None,
        }
    }
}

/// Why a copy cannot be compared.
enum Unreadable {
    Damaged(String),
    /// A newer version of SeaweedFS has written it.
    Newer,
}

#[derive(Debug)]
enum Content {
    Vif(VolumeInfo, Value),
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
            Self::OtherEncoding => f.write_str("it names another encoding of the volume"),
            Self::Outdated => f.write_str("it is older than the volume's encoding"),
        }
    }
}

impl Content {
    /// Returns the problem of a copy with this content, which is not that of the majority.
    fn problem(&self, is_outdated: bool, expected: Expected) -> Problem {
        match self {
            Self::Vif(info, _) if info.encoding.is_known() && info.encoding != expected.encoding => {
                Problem::OtherEncoding
            }
            _ if is_outdated => Problem::Outdated,
            _ => Problem::Differs,
        }
    }

    fn decode(file: SmallFile, bytes: Vec<u8>) -> Result<Self, Unreadable> {
        match file {
            SmallFile::Vif => {
                let info = VolumeInfo::decode(&bytes).map_err(damaged)?;
                let value = serde_json::from_slice(&bytes).map_err(damaged)?;
                Ok(Self::Vif(info, value))
            }
            SmallFile::Ecsum => {
                let unreadable = |error: EcsumError| match error.is_of_newer_version() {
                    true => Unreadable::Newer,
                    false => damaged(error),
                };
                Ecsum::decode(&bytes).map(|it| Self::Ecsum(Box::new(it))).map_err(unreadable)
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

fn damaged(why: impl fmt::Display) -> Unreadable {
    Unreadable::Damaged(why.to_string())
}

/// Whether two checksum files agree. Checksums of blocks of another size count as different, since the
/// digests of the shards differ too.
fn sums_agree(one: &Ecsum, other: &Ecsum) -> bool {
    (one.ratio(), one.generation()) == (other.ratio(), other.generation())
        && (0..one.ratio().total()).all(|shard| one.shard(shard) == other.shard(shard))
}

/// Whether checksums may be those of shards of this ratio and length. SeaweedFS ignores files of another
/// ratio or generation.
fn sums_fit(sums: &Ecsum, ratio: Ratio, shard_bytes: Option<u64>) -> bool {
    let has_length = |found: u64| shard_bytes.is_none_or(|bytes| bytes == found);
    sums.generation() == 0 && sums.ratio() == ratio && sums.shard_bytes().is_some_and(has_length)
}

/// Returns the size of the entries in a window of an index, in bytes: the keys ascend. `None` if the window
/// is damaged, as they ascend with neither size.
pub(super) fn entry_bytes(window: &[u8]) -> Option<usize> {
    let ascends = |bytes: &usize| {
        let keys = entries(window, *bytes).map(|(needle, _)| needle);
        window.len().is_multiple_of(*bytes) && keys.is_sorted_by(|one, other| one < other)
    };
    ENTRY_BYTES.into_iter().find(ascends)
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
            Err(Unreadable::Damaged(why)) => self.damaged.push((server, why)),
            Err(Unreadable::Newer) => self.newer.push(server),
            Ok(content) => self.join(0, content, server),
        }
    }

    /// Records when a server's copy was modified, in nanoseconds since 1970; 0 if unknown.
    pub fn note_modified(&mut self, server: &ServerId, modified_ns: i64) {
        self.modified_ns.insert(server.clone(), modified_ns);
    }

    /// Returns the servers whose readable `.ecsum` an earlier encoding than this one has left.
    pub fn outdated(&self, encoding: Encoding) -> Vec<&ServerId> {
        let sums = self.groups.iter().filter(|(content, _)| matches!(content, Content::Ecsum(_)));
        sums.flat_map(|(_, servers)| servers).filter(|server| self.is_outdated(server, encoding)).collect()
    }

    fn is_outdated(&self, server: &ServerId, encoding: Encoding) -> bool {
        self.modified_ns.get(server).is_some_and(|&modified_ns| predates(modified_ns, encoding))
    }

    /// Returns when the oldest and the newest file with these checksums were modified, in nanoseconds since
    /// 1970; `None` if one of the times is unknown.
    pub fn modified_ns(&self, sums: &Ecsum) -> Option<(i64, i64)> {
        let has_them = |content: &Content| matches!(content, Content::Ecsum(it) if sums_agree(it, sums));
        let groups = self.groups.iter().filter(|(content, _)| has_them(content));
        let servers = groups.flat_map(|(_, servers)| servers);
        let times: Vec<i64> =
            servers.map(|server| self.modified_ns.get(server).copied().unwrap_or_default()).collect();
        let (oldest, newest) = (times.iter().min()?, times.iter().max()?);
        (*oldest > 0).then_some((*oldest, *newest))
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
        let answered = self.readable() + self.damaged.len() + self.newer.len() + self.missing.len();
        self.silent = servers.saturating_sub(answered);
    }

    /// Returns the servers whose file has a newer version than this program supports.
    pub fn newer(&self) -> &[ServerId] {
        &self.newer
    }

    /// Whether the readable copies differ between servers.
    pub fn is_split(&self) -> bool {
        self.groups.len() > 1
    }

    /// Returns the description of an encoding that most of its `.vif` files contain. Files of other encodings
    /// do not count.
    ///
    /// # Errors
    /// Why the encoding is not described, as text.
    pub fn description(&self, encoding: Encoding) -> Result<VolumeInfo, String> {
        let mut votes: Vec<(VolumeInfo, usize)> = Vec::new();
        for (content, servers) in &self.groups {
            let Content::Vif(info, _) = content else { continue };
            if info.encoding != encoding {
                continue;
            }
            match votes.iter_mut().find(|(other, _)| other == info) {
                Some((_, count)) => *count += servers.len(),
                None => votes.push((*info, servers.len())),
            }
        }
        let all: usize = votes.iter().map(|&(_, count)| count).sum();
        let most = votes.iter().find(|&&(_, count)| 2 * count > all);
        most.map(|&(info, _)| info).ok_or_else(|| self.why_not_described(all > 0))
    }

    fn why_not_described(&self, is_split: bool) -> String {
        if is_split {
            return "servers have different .vif files of this encoding, and no majority agrees".to_owned();
        }
        if let Some((server, why)) = self.damaged.first() {
            return format!(".vif on {server}: {why}");
        }
        let other = self.groups.iter().flat_map(|(_, servers)| servers).next();
        match (other, self.missing.first()) {
            (Some(server), _) => format!("{server} has the .vif of another encoding"),
            (None, Some(server)) => format!("{server} has no .vif of the volume"),
            (None, None) => "no server with its shards has answered".to_owned(),
        }
    }

    /// Returns the checksums of this encoding that more than half of all servers have, of shards of this length
    /// and ratio. Servers with checksums that an earlier encoding has left do not count.
    pub fn checksums(&self, encoding: Encoding, ratio: Ratio, shard_bytes: Option<u64>) -> Checksums<'_> {
        let candidates = self.groups.iter().filter_map(|(content, servers)| match content {
            Content::Ecsum(sums) if sums_fit(sums, ratio, shard_bytes) => {
                let votes = servers.iter().filter(|server| !self.is_outdated(server, encoding)).count();
                (votes > 0).then_some((&**sums, votes))
            }
            _ => None,
        });
        let voters = self.readable() - self.outdated(encoding).len();
        let all = voters + self.damaged.len() + self.newer.len() + self.missing.len() + self.silent;
        match candidates.max_by_key(|&(_, servers)| servers) {
            Some((sums, agree)) if 2 * agree > all => Checksums::Agreed(sums),
            _ if self.silent > 0 => Checksums::Undecided,
            Some((_, agree)) => Checksums::Disputed { agree, of: all },
            None => Checksums::Absent,
        }
    }

    /// The number of servers with a readable copy.
    fn readable(&self) -> usize {
        self.groups.iter().map(|(_, servers)| servers.len()).sum()
    }

    /// Decides by majority which copies are good. Servers that have not answered count as if their copies
    /// differed: the servers that can be reached may all be outdated. Files of a newer version count as different
    /// too, and are not blamed. A server without `.ecsum` is blamed only if most servers have that file. A good
    /// `.vif` or `.ecsum` must also fit the encoding.
    pub fn verdict(&self, file: SmallFile, expected: Expected) -> Verdict {
        let outdated = match file {
            SmallFile::Ecsum => self.outdated(expected.encoding),
            SmallFile::Ecx | SmallFile::Ecj | SmallFile::Vif => Vec::new(),
        };
        let all = self.readable() - outdated.len() + self.newer.len() + self.silent;
        let votes = |servers: &[ServerId]| servers.iter().filter(|it| !outdated.contains(it)).count();
        let fits = |content: &Content| match content {
            Content::Vif(info, _) => info.encoding == expected.encoding,
            Content::Ecsum(sums) => sums_fit(sums, expected.ratio, Some(expected.shard_bytes)),
            Content::Ecx(_) => true,
        };
        let most = self.groups.iter().find(|(content, servers)| 2 * votes(servers) > all && fits(content));
        let Some((_, good)) = most else { return Verdict::default() };
        let mut bad: BTreeMap<ServerId, Problem> = self
            .damaged
            .iter()
            .map(|(server, why)| (server.clone(), Problem::Damaged(why.clone())))
            .collect();
        for (content, servers) in &self.groups {
            let others = servers.iter().filter(|it| !good.contains(it));
            let problem = |it: &ServerId| content.problem(outdated.contains(&it), expected);
            bad.extend(others.map(|it| (it.clone(), problem(it))));
        }
        if file != SmallFile::Ecsum || good.len() > self.missing.len() {
            bad.extend(self.missing.iter().map(|server| (server.clone(), Problem::Missing)));
        }
        Verdict { good: good.clone(), bad }
    }
}

#[cfg(test)]
#[path = "side_files/tests.rs"]
mod tests;
