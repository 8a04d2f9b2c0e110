//! The NameNode's listing: files with their blocks, folders, and DataNodes.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::Notes;

/// Position of a DataNode in [`Listing::nodes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeIndex(pub usize);

/// A part of the namespace, as the NameNode lists it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// All DataNodes.
    pub nodes: Vec<Node>,
    /// The files, each under its only path.
    pub files: Vec<File>,
    /// The folders of the files.
    pub folders: Vec<Folder>,
    /// Folders that have snapshots.
    pub snapshots: Vec<String>,
    /// Mend's attributes of parity files.
    pub notes: Notes,
    /// The folder or file that was requested. The parity of its files is listed too, wherever it is.
    pub root: String,
    /// The corrupt replicas of blocks without an intact one, by the numbers of the blocks.
    pub corrupt: BTreeMap<i64, Vec<NodeIndex>>,
    /// The limits of the listing.
    pub gaps: Gaps,
    /// The folders whose files the coordinator repairs; `None` if it repairs all listed ones.
    pub repaired: Option<Vec<String>>,
}

impl Listing {
    /// Whether the coordinator repairs the file or folder at this path.
    pub fn is_repaired(&self, path: &str) -> bool {
        self.repaired.as_ref().is_none_or(|folders| folders.iter().any(|folder| is_within(path, folder)))
    }
}

/// The limits of a listing: paths that it leaves out, and replicas that may be in another state than listed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gaps {
    /// The paths that are left out.
    pub omitted: Vec<Omission>,
    /// DataNodes from which the NameNode has had no heartbeat for a while. It still lists their replicas.
    pub silent: Vec<NodeIndex>,
    /// DataNodes in maintenance. HDFS does not list their replicas.
    pub in_maintenance: Vec<NodeIndex>,
    /// Files and folders that were renamed while the listing ran, and are not listed at their new path.
    pub renamed: Vec<Renaming>,
    /// Why [`renamed`](Self::renamed) is not known.
    pub unwatched: Option<String>,
}

/// A file or folder that was renamed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Renaming {
    /// The former path.
    pub from: String,
    /// The new path.
    pub to: String,
}

/// A path that a listing leaves out.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Omission {
    /// The path. If it is a folder, everything below it is left out.
    pub path: String,
    /// The reason.
    pub why: String,
    /// Whether HDFS refuses access, or the path has attributes of another version of Mend. Otherwise the path does not
    /// exist any more, or is a link.
    pub is_refused: bool,
}

/// A DataNode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// The address at which the DataNode serves blocks, `IP:PORT`.
    pub address: String,
    /// The DataNode's rack in the NameNode's topology.
    pub rack: String,
    /// Whether blocks can stay on the DataNode: it is live, and operators are not taking it out of service.
    pub is_usable: bool,
}

/// A folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Folder {
    /// The inode number, which stays the same when the folder is renamed.
    pub inode: u64,
    /// The path.
    pub path: String,
    /// Modification time in milliseconds since 1970. It changes when a child is added or removed.
    pub modified_ms: u64,
    /// The owner. The user as whom Mend acts counts as the superuser.
    pub owner: Owner,
}

/// How a file is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Storing {
    /// Replicated blocks.
    Replicated,
    /// Replicated blocks in an encryption zone.
    Encrypted,
    /// Erasure-coded by HDFS itself.
    Striped,
}

/// The owner of a file or folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owner {
    /// The owner of `/`, who is HDFS's superuser.
    Superuser,
    /// Another user.
    User(Arc<str>),
}

/// A file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// The inode number, which stays the same when the file is renamed.
    pub inode: u64,
    /// The path.
    pub path: String,
    /// The length in bytes.
    pub bytes: u64,
    /// The file's block size in bytes.
    pub block_bytes: u64,
    /// The replication that the file asks for.
    pub replication: u16,
    /// Modification time in milliseconds since 1970.
    pub modified_ms: u64,
    /// The owner.
    pub owner: Owner,
    /// How the file is stored.
    pub storing: Storing,
    /// Whether a client is writing to the file.
    pub is_open: bool,
    /// The blocks in order; empty if HDFS itself erasure-codes the file.
    pub blocks: Vec<Block>,
}

/// A block of a replicated file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// The block's number.
    pub number: i64,
    /// The generation stamp, which changes when the block's bytes do.
    pub stamp: u64,
    /// The length in bytes.
    pub bytes: u64,
    /// The DataNodes that hold a replica. If only corrupt replicas are left, the list is empty.
    pub replicas: Vec<NodeIndex>,
}

impl File {
    /// Returns the path of the folder that contains the file.
    pub fn folder(&self) -> &str {
        parent(&self.path)
    }

    /// Returns the position of the first block without an intact replica.
    pub fn missing_block(&self) -> Option<usize> {
        self.blocks.iter().position(|block| block.replicas.is_empty())
    }
}

/// Compares the paths of two files of a folder. HDFS lists files in this order: it compares names as *signed*
/// bytes, so that letters beyond ASCII come first. The stripes over the files of a folder follow this order.
pub fn listing_order(one: &str, other: &str) -> Ordering {
    let signed = |byte: u8| byte as i8;
    one.bytes().map(signed).cmp(other.bytes().map(signed))
}

/// Returns the path of the folder that contains a file or folder; the root contains itself.
pub(crate) fn parent(path: &str) -> &str {
    match path.rsplit_once('/') {
        Some(("", _)) | None => "/",
        Some((folder, _)) => folder,
    }
}

/// Whether `path` is `folder` or below it.
pub fn is_within(path: &str, folder: &str) -> bool {
    let below = path.strip_prefix(folder.trim_end_matches('/'));
    below.is_some_and(|below| below.is_empty() || below.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_ordered_as_signed_bytes() {
        let mut names = ["/d/b", "/d/a", "/d/\u{e4}", "/d/ab"];
        names.sort_by(|one, other| listing_order(one, other));
        assert_eq!(names, ["/d/\u{e4}", "/d/a", "/d/ab", "/d/b"]);
    }

    #[test]
    fn parents_and_contents_of_folders() {
        assert_eq!(["/", "/a", "/a/b", "/a/b/c"].map(parent), ["/", "/", "/a", "/a/b"]);
        assert!(is_within("/a/b", "/a") && is_within("/a", "/a") && is_within("/a", "/"));
        assert!(is_within("/a/b", "/a/") && !is_within("/ab", "/a") && !is_within("/", "/a"));
    }
}
