//! Parses the answers of a NameNode. The line format is documented at `mend.hdfs.namenode.Survey` in
//! `java/hdfs`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;
use std::str::{FromStr, SplitAsciiWhitespace};

use crate::blocks::{BlockGroup, ChecksumFormat, MAX_BLOCKS_IN_GROUP, Policy};
use repair::Permit;

/// An answer: a full listing, the DataNodes alone, or a single group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// The DataNodes in the answer. Groups refer to them by position in this list.
    pub nodes: Vec<DataNode>,
    /// The block groups in the answer.
    pub groups: Vec<Group>,
    /// Whether the NameNode is in safe mode. If so, DataNodes have not reported all their blocks yet, and the
    /// answer is incomplete.
    pub safe_mode: bool,
    /// Number of groups that Mend cannot repair, by reason.
    pub refused: BTreeMap<String, usize>,
    /// The tokens and the checksum format for writing blocks of the requested group.
    pub terms: GroupTerms,
    /// The progress of the listing, while it runs.
    pub progress: Progress,
    /// Counts of snapshots, and of files that exist only in snapshots.
    pub snapshots: Snapshots,
    /// The folders to list that do not exist.
    pub missing: Vec<String>,
    /// The listed files and their folders.
    pub seen: SeenFiles,
    /// The files and folders that exist, of those that were asked about.
    pub existing: ExistingInodes,
    /// The NameNode's lists of groups that lack blocks.
    pub losses: Losses,
    /// The requested part of the edit log.
    pub edits: Edits,
    /// Mend's attributes of the files that were asked about.
    pub attributes: Vec<Attribute>,
    /// The results of a change of HDFS.
    pub(crate) changed: Changed,
    /// The files with the replicas of their blocks, if the query asked for them; without DataNodes.
    pub(crate) raid: hdfs_raid::Listing,
}

/// The results of a change of HDFS.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Changed {
    /// Whether parity is that of the data, if this was asked.
    pub proof: Option<bool>,
    /// The files and blocks that were reserved, in the order of the request.
    pub reserved: Vec<Reservation>,
}

/// A file of one block that has no bytes yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reservation {
    pub path: String,
    /// The block's number and generation stamp.
    pub number: i64,
    pub stamp: u64,
    /// Whether DataNodes accept the block only with a token.
    pub needs_token: bool,
}

/// The inode numbers of files and folders that exist, of those that were asked about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExistingInodes {
    /// The inodes that exist outside of snapshots.
    pub present: BTreeSet<u64>,
    /// The inodes that exist only in snapshots.
    pub in_snapshots: BTreeSet<u64>,
}

/// The files of a listing, outside of snapshots, with or without groups.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SeenFiles {
    /// The folders of the files. Files refer to them by position in this list.
    pub folders: Vec<String>,
    /// The files.
    pub files: Vec<SeenFile>,
    /// The paths of the files to which clients are writing.
    pub open: Vec<String>,
}

/// An extended attribute of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attribute {
    /// The file.
    pub path: String,
    /// The attribute's name, with its name space.
    pub name: String,
    /// The value, as text.
    pub value: String,
}

/// The tokens and the checksum format for writing blocks of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupTerms {
    /// The requested block tokens, each with the block's index in the group.
    pub tokens: Vec<(u8, Permit)>,
    /// The checksum format of the group's blocks, if it is known and supported.
    pub checksums: Option<ChecksumFormat>,
}

/// The NameNode's lists of groups that lack blocks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// The lengths of the lists.
    pub counts: LossCounts,
    /// The lengths of the other lists that the NameNode writes to the same file.
    pub others: OtherLists,
    /// The entries by the numbers of groups, and of blocks of replicated files.
    pub groups: BTreeMap<i64, Shortage>,
    /// The paths of files with blocks that have no intact replica, or too few.
    pub(crate) files: BTreeSet<String>,
}

/// The entry of a group or block in the NameNode's lists of blocks that lack redundancy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shortage {
    /// The number of live replicas; `None` if the lists only tell that HDFS is reconstructing the block.
    pub live: Option<u32>,
    /// The addresses of the DataNodes whose replicas are known to be corrupt.
    pub corrupt: BTreeSet<String>,
}

/// The lengths of the NameNode's lists of blocks that lack redundancy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LossCounts {
    /// Groups that lack blocks.
    pub groups: u64,
    /// Groups that have too few blocks left.
    pub unreadable: u64,
    /// Groups with corrupt replicas.
    pub corrupt: u64,
    /// Blocks of replicated files, which are on the same lists.
    pub replicated: u64,
}

impl LossCounts {
    /// Returns the number of all blocks on the lists.
    pub fn total(&self) -> u64 {
        self.groups + self.unreadable + self.corrupt + self.replicated
    }
}

/// The lengths of the lists that the NameNode writes to the same file as those of blocks that lack redundancy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OtherLists {
    /// Blocks whose surplus replicas cannot be removed yet, because DataNodes have not reported since a failover.
    pub postponed: u64,
    /// Blocks that DataNodes are reconstructing.
    pub reconstructed: u64,
    /// Replicas that DataNodes have not been told to delete yet.
    pub deleted: u64,
}

/// A part of the NameNode's edit log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Edits {
    /// The events, oldest first.
    pub events: Vec<Edit>,
    /// The transaction with which the next part begins.
    pub next: u64,
    /// The first transaction that the NameNode still has, if it has deleted some of the requested ones or was
    /// formatted.
    pub gap: Option<u64>,
}

/// A change of the namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Edit {
    /// A file was created, perhaps in place of another one.
    Created {
        /// The file.
        path: String,
        /// Whether the file is, or may be, erasure-coded.
        is_striped: bool,
    },
    /// A file was closed, appended to or truncated.
    Modified(String),
    /// The modification time, the owner or an attribute of a file or folder was set, or the replication of a file.
    Touched(String),
    /// A file or folder was deleted.
    Removed(String),
    /// A file or folder was renamed, perhaps in place of a file.
    Renamed {
        /// The old path.
        from: String,
        /// The new path.
        to: String,
    },
}

/// A file in a listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeenFile {
    /// The file's inode number.
    pub inode: u64,
    /// The file's folder and name.
    pub place: SeenPlace,
    /// Whether a client is writing to the file.
    pub is_open: bool,
}

/// The folder and name of a file in a listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeenPlace {
    /// Position of the folder in [`SeenFiles::folders`].
    pub folder: usize,
    /// A hash of the name, see `name_hash`.
    pub name: u32,
}

/// The progress of a walk through the namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Number of folders listed so far.
    pub folders: u64,
    /// Number of files seen so far, with or without block groups.
    pub files: u64,
}

/// Counts of snapshots, and of files that exist only in snapshots.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshots {
    /// Number of folders that allow snapshots.
    pub folders: u64,
    /// Number of snapshots of these folders.
    pub snapshots: u64,
    /// Number of deleted files that still exist in a snapshot and have block groups. These groups are listed
    /// like all others.
    pub files: u64,
    /// Folders whose deleted files cannot be listed, each with the reason.
    pub uncovered: Vec<(String, String)>,
    /// The encoded paths of files that exist only in snapshots, by inode number.
    held: BTreeMap<u64, String>,
}

/// A reference to a file, for queries to the NameNode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileRef {
    /// The file's inode number, which stays valid if the file is renamed.
    pub inode: u64,
    /// The file's encoded path in a snapshot, if the file exists only there.
    pub held_at: Option<String>,
}

/// A part of a file, for queries to the NameNode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    pub file: FileRef,
    pub start: u64,
    pub bytes: u64,
}

impl fmt::Display for FileRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.held_at {
            Some(path) => f.write_str(path),
            None => write!(f, "{}", self.inode),
        }
    }
}

/// How likely it is that DataNodes have reported all blocks of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// A client is writing to the file.
    Open,
    /// The file was closed recently, or the time of closing is unknown.
    New,
    /// The file was closed long ago.
    Old,
}

/// A DataNode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataNode {
    /// The DataNode's permanent identifier.
    pub uuid: String,
    /// The address at which the DataNode serves blocks, `IP:PORT`.
    pub address: String,
    /// The DataNode's state; `None` in answers about a single group.
    pub standing: Option<Standing>,
    /// The DataNode's folders, `dfs.datanode.data.dir`; empty in answers that omit them.
    pub folders: Vec<PathBuf>,
    /// Why the DataNode does not report its folders; `None` if it reports them or was not asked.
    pub silent: Option<String>,
}

/// The state of a DataNode, as the NameNode reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// The DataNode's UUID. A DataNode whose disks were all replaced has another one.
    pub uuid: String,
    /// The DataNode's rack in the NameNode's topology.
    pub rack: String,
    /// Whether the NameNode takes the DataNode for live. By default, it does so for ten minutes without a
    /// heartbeat.
    pub live: bool,
    /// Whether the NameNode has received no heartbeat from the DataNode for half a minute.
    pub is_silent: bool,
    /// The service state that operators have set.
    pub service: Service,
    /// Time of the DataNode's last full block report, in milliseconds by the NameNode's clock; 0 if there was
    /// none.
    pub reported: u64,
}

/// The service state of a DataNode, as operators have set it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// In service.
    Normal,
    /// Being decommissioned: HDFS still moves data away.
    Leaving,
    /// Decommissioned: HDFS needs nothing from it any more.
    Decommissioned,
    /// In maintenance: the DataNode may be offline for a while.
    Maintenance,
}

/// A block group, and the DataNodes that hold its blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// The group's file.
    pub file: FileRef,
    /// The file's folder and name; `None` in answers about a single group, and for files in snapshots.
    pub place: Option<SeenPlace>,
    /// Whether the file was written to recently.
    pub phase: Phase,
    /// The offset in the file at which the group starts.
    pub start: u64,
    /// The group.
    pub group: BlockGroup,
    /// The replicas, each as (index in the group, position of the DataNode in [`Listing::nodes`]).
    pub homes: Vec<(u8, usize)>,
    /// Whether replicas that are known to be corrupt are among them. The NameNode lists these if too few replicas are
    /// live, and does not say which ones they are.
    pub has_corrupt: bool,
}

/// An answer contained an invalid line. A line that may contain a token is not quoted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unexpected line in an answer: `{0}`")]
pub struct BadLine(pub String);

impl ExistingInodes {
    fn take(&mut self, words: &mut SplitAsciiWhitespace<'_>) -> Option<()> {
        let inode = number(words)?;
        let found = match words.next() {
            None => &mut self.present,
            Some("snapshot") => &mut self.in_snapshots,
            Some(_) => return None,
        };
        found.insert(inode);
        Some(())
    }
}

impl Losses {
    fn take_shortage(&mut self, words: &mut SplitAsciiWhitespace<'_>) -> Option<()> {
        let group = number(words)?;
        let live = match words.next()? {
            "-" => None,
            live => Some(live.parse().ok()?),
        };
        let corrupt = words.next().into_iter().flat_map(|all| all.split(',')).map(str::to_owned).collect();
        self.groups.insert(group, Shortage { live, corrupt });
        Some(())
    }
}

impl SeenFiles {
    /// Takes out the files so far. The last file and its folder remain, because the next group may belong to the
    /// same file, and the next file to the same folder.
    fn take_part(&mut self) -> Self {
        let (folders, files) = (std::mem::take(&mut self.folders), std::mem::take(&mut self.files));
        let place = |at: SeenPlace| SeenPlace { folder: 0, ..at };
        self.folders.extend(folders.last().cloned());
        self.files.extend(files.last().map(|file| SeenFile { place: place(file.place), ..*file }));
        Self { folders, files, open: Vec::new() }
    }

    fn take_file(&mut self, words: &mut SplitAsciiWhitespace<'_>) -> Option<()> {
        let (inode, name) = (number(words)?, decoded(words.next()?)?);
        let is_open = match words.next()? {
            "open" => true,
            "closed" => false,
            _ => return None,
        };
        let folder = self.folders.last()?;
        if is_open {
            self.open.push(format!("{}/{name}", folder.trim_end_matches('/')));
        }
        let place = SeenPlace { folder: self.folders.len() - 1, name: name_hash(&name) };
        self.files.push(SeenFile { inode, place, is_open });
        Some(())
    }
}

impl Listing {
    /// Parses one line of an answer.
    ///
    /// # Errors
    /// [`BadLine`]; the whole answer must be discarded then.
    pub fn take(&mut self, line: &str) -> Result<(), BadLine> {
        let taken = match line.split_once(' ') {
            Some(("v", rest)) => self.take_folder(rest),
            Some(("w", rest)) => self.take_silence(rest),
            Some(("x", rest)) => self.take_uncovered(rest),
            Some(("O", rest)) => self.take_omission(rest),
            Some(("t", rest)) => return self.take_token(rest).ok_or_else(|| BadLine("t …".to_owned())),
            _ => self.take_words(line.split_ascii_whitespace()),
        };
        taken.ok_or_else(|| BadLine(line.to_owned()))
    }

    /// Takes out the groups and files so far, so that a long answer is not kept as a whole. The DataNodes remain.
    pub(crate) fn take_part(&mut self) -> Self {
        Self {
            nodes: self.nodes.clone(),
            groups: std::mem::take(&mut self.groups),
            safe_mode: self.safe_mode,
            seen: self.seen.take_part(),
            ..Self::default()
        }
    }

    fn take_folder(&mut self, text: &str) -> Option<()> {
        let (node, folder) = text.split_once(' ')?;
        self.nodes.get_mut(node.parse::<usize>().ok()?)?.folders.push(folder.into());
        Some(())
    }

    fn take_silence(&mut self, text: &str) -> Option<()> {
        let (node, why) = text.split_once(' ')?;
        self.nodes.get_mut(node.parse::<usize>().ok()?)?.silent = Some(why.to_owned());
        Some(())
    }

    fn take_token(&mut self, text: &str) -> Option<()> {
        let (index, token) = text.split_once(' ')?;
        self.terms.tokens.push((index_in_group(index)?, token.parse().ok()?));
        Some(())
    }

    fn take_uncovered(&mut self, text: &str) -> Option<()> {
        let (folder, why) = text.split_once(' ')?;
        self.snapshots.uncovered.push((decoded(folder)?, why.to_owned()));
        Some(())
    }

    fn take_words(&mut self, mut words: SplitAsciiWhitespace<'_>) -> Option<()> {
        match words.next()? {
            "safe" => self.safe_mode = true,
            "n" => self.take_node(&mut words)?,
            "d" => self.take_standing(&mut words)?,
            "g" => self.take_group(&mut words)?,
            "a" => {
                self.progress = Progress { folders: number(&mut words)?, files: number(&mut words)? };
            }
            "p" => {
                let (file, path) = (number(&mut words)?, words.next()?);
                self.snapshots.held.insert(file, path.to_owned());
            }
            "missing" => self.missing.push(decoded(words.next()?)?),
            "f" => self.seen.folders.push(decoded(words.next()?)?),
            "i" => self.seen.take_file(&mut words)?,
            "y" => self.existing.take(&mut words)?,
            "l" => {
                let [groups, unreadable, corrupt, replicated] =
                    [number(&mut words)?, number(&mut words)?, number(&mut words)?, number(&mut words)?];
                self.losses.counts = LossCounts { groups, unreadable, corrupt, replicated };
            }
            "o" => {
                let [postponed, reconstructed, deleted] =
                    [number(&mut words)?, number(&mut words)?, number(&mut words)?];
                self.losses.others = OtherLists { postponed, reconstructed, deleted };
            }
            "q" => self.losses.take_shortage(&mut words)?,
            "lost" => drop(self.losses.files.insert(path(&mut words)?)),
            "h" => self.terms.checksums = words.next()?.parse().ok(),
            "D" => self.take_raid_folder(&mut words)?,
            "F" => self.take_raid_file(&mut words)?,
            "B" => self.take_raid_block(&mut words)?,
            "C" => self.take_corrupt_replicas(&mut words)?,
            "S" => self.raid.snapshots.push(path(&mut words)?),
            "X" => self.take_attribute(attribute(&mut words)?),
            "P" => {
                self.changed.proof = match words.next()? {
                    "right" => Some(true),
                    "wrong" => Some(false),
                    _ => return None,
                };
            }
            "A" => self.changed.reserved.push(reservation(&mut words)?),
            "k" => self.take_edit(Edit::Created { path: path(&mut words)?, is_striped: false }),
            "c" => self.take_edit(Edit::Created { path: path(&mut words)?, is_striped: true }),
            "m" => self.take_edit(Edit::Modified(path(&mut words)?)),
            "z" => self.take_edit(Edit::Touched(path(&mut words)?)),
            "u" => self.take_edit(Edit::Removed(path(&mut words)?)),
            "r" => self.take_edit(Edit::Renamed { from: path(&mut words)?, to: path(&mut words)? }),
            "e" => self.edits.next = number(&mut words)?,
            "gap" => self.edits.gap = Some(number(&mut words)?),
            "s" => {
                let snapshots = &mut self.snapshots;
                snapshots.folders = number(&mut words)?;
                snapshots.snapshots = number(&mut words)?;
                snapshots.files = number(&mut words)?;
            }
            _ => return None,
        }
        words.next().is_none().then_some(())
    }

    fn take_node(&mut self, words: &mut SplitAsciiWhitespace<'_>) -> Option<()> {
        if number::<usize>(words)? != self.nodes.len() {
            return None;
        }
        let (uuid, address) = (words.next()?.to_owned(), words.next()?.to_owned());
        self.nodes.push(DataNode { uuid, address, standing: None, folders: Vec::new(), silent: None });
        Some(())
    }

    fn take_standing(&mut self, words: &mut SplitAsciiWhitespace<'_>) -> Option<()> {
        let node = self.nodes.get_mut(number::<usize>(words)?)?;
        let rack = words.next()?.to_owned();
        let (live, is_silent) = match words.next()? {
            "live" => (true, false),
            "silent" => (true, true),
            "dead" => (false, true),
            _ => return None,
        };
        let service = match words.next()? {
            "normal" => Service::Normal,
            "leaving" => Service::Leaving,
            "decommissioned" => Service::Decommissioned,
            "maintenance" => Service::Maintenance,
            _ => return None,
        };
        let reported = number(words)?;
        node.standing = Some(Standing { uuid: node.uuid.clone(), rack, live, is_silent, service, reported });
        Some(())
    }

    fn take_edit(&mut self, edit: Edit) {
        self.edits.events.push(edit);
    }

    fn take_group(&mut self, words: &mut SplitAsciiWhitespace<'_>) -> Option<()> {
        let (file, start) = (number(words)?, number(words)?);
        let (number, stamp, bytes) = (number(words)?, number(words)?, number(words)?);
        let (policy, phase, homes) = (words.next()?, words.next()?, words.next()?);
        let phase = match phase {
            "open" => Phase::Open,
            "new" => Phase::New,
            "old" => Phase::Old,
            _ => return None,
        };
        let file = FileRef { inode: file, held_at: self.snapshots.held.get(&file).cloned() };
        let place = self.seen.files.last().filter(|seen| seen.inode == file.inode && file.held_at.is_none());
        let place = place.map(|seen| seen.place);
        let homes = match homes {
            "-" => Vec::new(),
            homes => homes.split(',').map(|home| self.home(home)).collect::<Option<_>>()?,
        };
        let has_corrupt = match words.next() {
            None => false,
            Some("corrupt") => true,
            Some(_) => return None,
        };
        match policy.parse::<Policy>() {
            Ok(policy) => {
                let group = BlockGroup { number, stamp, bytes, policy };
                self.groups.push(Group { file, place, phase, start, group, homes, has_corrupt });
            }
            Err(error) => *self.refused.entry(error.to_string()).or_default() += 1,
        }
        Some(())
    }

    fn home(&self, text: &str) -> Option<(u8, usize)> {
        let (index, node) = text.split_once(':')?;
        let node = node.parse().ok().filter(|&node| node < self.nodes.len())?;
        Some((index_in_group(index)?, node))
    }
}

/// Encodes a path for a query, as `java.net.URLEncoder` does, except that it encodes more characters.
pub(crate) fn encoded(path: &str) -> String {
    let mut text = String::with_capacity(path.len());
    for byte in path.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => text.push(byte.into()),
            other => text.push_str(&format!("%{other:02X}")),
        }
    }
    text
}

/// Decodes a URL-encoded path.
pub(crate) fn decoded(path: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let digits = [rest.next()?, rest.next()?];
                u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?
            }
            other => other,
        });
    }
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// Returns the hash of a file's name by which files of a folder are told apart. Names rarely collide, and a
/// collision costs a query.
pub(crate) fn name_hash(name: &str) -> u32 {
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, name.as_bytes()) as u32
}

pub(crate) fn path(words: &mut SplitAsciiWhitespace<'_>) -> Option<String> {
    decoded(words.next()?)
}

fn attribute(words: &mut SplitAsciiWhitespace<'_>) -> Option<Attribute> {
    let (path, name) = (path(words)?, path(words)?);
    // The sign makes an empty value a word.
    let value = decoded(words.next()?.strip_prefix('=')?)?;
    Some(Attribute { path, name, value })
}

fn reservation(words: &mut SplitAsciiWhitespace<'_>) -> Option<Reservation> {
    let (path, number, stamp) = (path(words)?, number(words)?, number(words)?);
    let needs_token = match words.next()? {
        "token" => true,
        "plain" => false,
        _ => return None,
    };
    Some(Reservation { path, number, stamp, needs_token })
}

fn index_in_group(text: &str) -> Option<u8> {
    text.parse().ok().filter(|&index: &u8| u16::from(index) < MAX_BLOCKS_IN_GROUP)
}

pub(crate) fn number<T: FromStr>(words: &mut SplitAsciiWhitespace<'_>) -> Option<T> {
    words.next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_parsed() {
        let mut listing = Listing::default();
        for line in [
            "safe",
            "n 0 uuid-a 10.0.0.1:9866",
            "d 0 /default-rack silent leaving 12",
            "missing %2Fgone",
            "v 0 /data/disk 1",
            "n 1 uuid-b 10.0.0.2:9866",
            "w 1 access is refused",
            "a 900 12",
            "f %2Fa+b",
            "i 16389 other open",
            "i 16390 f%C3%A4 closed",
            "y 16390",
            "y 16393 snapshot",
            "l 3 1 0 2",
            "o 4 5 6",
            "q -9223372036854775792 -",
            "lost %2Fa+b%2Ff",
            "q -9223372036854775776 4 10.0.0.1:9866,10.0.0.2:9866",
            "g 16390 0 -9223372036854775792 1001 1500 RS-6-3-1024k old 0:0,6:1",
            "g 16391 0 -9223372036854775776 1002 7 HHXOR-6-3-1024k new -",
            "p 16392 %2Fa+b%2F.snapshot%2Fs1%2Ff",
            "g 16392 0 -9223372036854775760 1003 7 RS-6-3-1024k open - corrupt",
            "s 2 5 1",
            "x %2Fa+b%C3%A4 no permission",
            "t 8 c2VjcmV0",
            "h crc32/1024",
        ] {
            listing.take(line).expect(line);
        }
        assert!(listing.safe_mode);
        let standing = listing.nodes[0].standing.as_ref().expect("told");
        assert_eq!((standing.live, standing.is_silent), (true, true));
        assert_eq!((standing.service, standing.reported), (Service::Leaving, 12));
        assert_eq!(listing.missing, ["/gone"]);
        assert_eq!(listing.nodes[0].folders, [PathBuf::from("/data/disk 1")]);
        assert_eq!(listing.nodes[1].standing, None);
        assert_eq!(listing.nodes[1].silent.as_deref(), Some("access is refused"));
        assert_eq!(listing.groups.len(), 2);
        assert_eq!(listing.groups[0].homes, [(0, 0), (6, 1)]);
        assert_eq!(listing.groups[0].group.stamp, 1001);
        let place = SeenPlace { folder: 0, name: name_hash("fä") };
        assert_eq!((listing.groups[0].place, listing.groups[1].place), (Some(place), None));
        let seen = &listing.seen;
        assert_eq!((&seen.folders[0][..], &seen.open[..]), ("/a b", &["/a b/other".to_owned()][..]));
        let [present, in_snapshots] = [16390, 16393].map(|inode| BTreeSet::from([inode]));
        assert_eq!(listing.existing, ExistingInodes { present, in_snapshots });
        assert_eq!(
            (listing.losses.counts.total(), listing.losses.groups.keys().next()),
            (6, Some(&-9223372036854775792))
        );
        assert_eq!(listing.losses.files, BTreeSet::from(["/a b/f".to_owned()]));
        let others = OtherLists { postponed: 4, reconstructed: 5, deleted: 6 };
        assert_eq!(listing.losses.others, others);
        let shortages = listing.losses.groups.values();
        let shortages: Vec<_> = shortages.map(|it| (it.live, it.corrupt.len())).collect();
        assert_eq!(shortages, [(None, 0), (Some(4), 2)]);
        assert_eq!([0, 1].map(|group| listing.groups[group].has_corrupt), [false, true]);
        assert_eq!(listing.groups[0].file.to_string(), "16390");
        assert_eq!((listing.groups[0].phase, listing.groups[1].phase), (Phase::Old, Phase::Open));
        assert_eq!(listing.groups[1].file.to_string(), "%2Fa+b%2F.snapshot%2Fs1%2Ff");
        assert_eq!(listing.progress, Progress { folders: 900, files: 12 });
        let uncovered = vec![("/a bä".to_owned(), "no permission".to_owned())];
        let held = BTreeMap::from([(16392, "%2Fa+b%2F.snapshot%2Fs1%2Ff".to_owned())]);
        assert_eq!(listing.snapshots, Snapshots { folders: 2, snapshots: 5, files: 1, uncovered, held });
        assert_eq!(listing.refused.values().sum::<usize>(), 1);
        assert_eq!(listing.terms.checksums.map(|format| format.to_string()).as_deref(), Some("crc32/1024"));
        assert_eq!(listing.terms.tokens, [(8, Permit::new(b"secret".to_vec()).expect("short"))]);
    }

    #[test]
    fn parts_add_up_to_the_answer() {
        let lines = [
            "n 0 uuid-a 10.0.0.1:9866",
            "f %2Fa",
            "i 7 f closed",
            "g 7 0 -160 1 5 RS-6-3-1024k old 0:0",
            "g 7 5 -144 1 5 RS-6-3-1024k old 0:0",
            "i 8 g open",
            "g 8 0 -128 1 5 RS-6-3-1024k open 0:0",
        ];
        let mut whole = Listing::default();
        lines.iter().for_each(|line| whole.take(line).expect(line));
        for at in 0..lines.len() {
            let mut rest = Listing::default();
            lines[..at].iter().for_each(|line| rest.take(line).expect(line));
            let part = rest.take_part();
            lines[at..].iter().for_each(|line| rest.take(line).expect(line));
            let groups: Vec<_> = part.groups.iter().chain(&rest.groups).cloned().collect();
            assert_eq!((groups, &rest.seen.open), (whole.groups.clone(), &whole.seen.open), "{at}");
            assert!(
                rest.groups.iter().all(|group| rest.seen.folders[group.place.expect("told").folder] == "/a")
            );
        }
    }

    #[test]
    fn reserved_blocks_are_parsed() {
        let mut listing = Listing::default();
        for line in ["A %2Ft%2F0%2D0 1073741900 1076 plain", "A %2Ft%2F0%2D1 1073741901 1077 token"] {
            listing.take(line).expect(line);
        }
        let reserved = |path: &str, number, stamp, needs_token| Reservation {
            path: path.to_owned(),
            number,
            stamp,
            needs_token,
        };
        let expected =
            [reserved("/t/0-0", 1_073_741_900, 1076, false), reserved("/t/0-1", 1_073_741_901, 1077, true)];
        assert_eq!(listing.changed.reserved, expected);
        for line in ["A %2Ft 1 2", "A %2Ft 1 2 other", "A %2Ft one 2 plain", "A %2Ft 1 2 plain more"] {
            assert!(listing.take(line).is_err(), "{line}");
        }
    }

    #[test]
    fn edits_are_parsed() {
        let mut listing = Listing::default();
        for line in ["k %2Fa", "c %2Fb+c", "m %2Fb+c", "r %2Fb+c %2Fd", "z %2Fd", "u %2Fd", "e 77"] {
            listing.take(line).expect(line);
        }
        let text = |path: &str| path.to_owned();
        let events = vec![
            Edit::Created { path: text("/a"), is_striped: false },
            Edit::Created { path: text("/b c"), is_striped: true },
            Edit::Modified(text("/b c")),
            Edit::Renamed { from: text("/b c"), to: text("/d") },
            Edit::Touched(text("/d")),
            Edit::Removed(text("/d")),
        ];
        assert_eq!(listing.edits, Edits { events, next: 77, gap: None });
        listing.take("gap 90").expect("a line");
        assert_eq!(listing.edits.gap, Some(90));
        assert_eq!(decoded(&encoded("/a b%+ä")).as_deref(), Some("/a b%+ä"));
    }

    #[test]
    fn invalid_lines_are_refused() {
        let mut listing = Listing::default();
        listing.take("n 0 uuid-a 10.0.0.1:9866").expect("a line");
        for line in [
            "",
            "x",
            "v 1 /data",
            "w 0",
            "n 2 uuid-b a:1",
            "n 1 uuid-b",
            "d 1 /r live normal 0",
            "d 0 /r up normal 0",
            "d 0 /r live odd 0",
            "g 1 0 -16 1 5 RS-6-3-1024k old 0:1",
            "g 1 0 -16 1 5 RS-6-3-1024k old 16:0",
            "g 1 0 -16 1 5 RS-6-3-1024k old 0:0 more",
            "g 1 0 -16 1 5 RS-6-3-1024k young 0:0",
            "g 1 0 -16 1 5 RS-6-3-1024k 0:0",
            "g 1 0 -16 x 5 RS-6-3-1024k old -",
            "a 1",
            "p 1",
            "s 1 2",
            "x %2 why",
            "x %2F",
            "i 1 name closed",
            "y",
            "y 16390 other",
            "r %2Fa",
            "e x",
            "l 1 2 3",
            "o 1 2",
            "h",
            "q",
            "q -16",
            "q -16 10.0.0.1:9866",
            "q -16 4 10.0.0.1:9866 more",
            "lost",
        ] {
            assert_eq!(listing.take(line), Err(BadLine(line.to_owned())), "{line}");
        }
        for line in ["t 8", "t 16 c2VjcmV0", "t 8 c2VjcmV0 more", "t 8 secret!"] {
            assert_eq!(listing.take(line), Err(BadLine("t …".to_owned())), "{line} is not quoted");
        }
    }
}
