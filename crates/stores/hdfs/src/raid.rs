//! Lists replicated files with all their replicas, for the layout of HDFS-RAID, and changes them.

mod changes;

use std::collections::{BTreeMap, BTreeSet};
use std::str::SplitAsciiWhitespace;

use attached::{Kind as _, KindError};
use cluster::Cluster;
use hdfs_raid::{
    Block, File, Folder, Mark, Marks, Node, NodeIndex, Notes, Policies, Storing, UnknownMark, parity_path,
};

use crate::attach::Said;
use crate::kind::{config, settings};
use crate::listing::{number, path};
use crate::{AskError, Attribute, DataNode, Hdfs, Listing, NameNode, Service};

pub use changes::RaidFile;

/// The most files or inodes in one query.
const AT_ONCE: usize = 256;

/// The NameNode of a cluster that is attached to HDFS. Only HDFS's superuser sees all files and folders.
/// Clones share the JVM.
#[derive(Clone, Debug)]
pub struct RaidNameNode(NameNode);

impl RaidNameNode {
    /// Creates a handle. The JVM is started on the first query.
    ///
    /// # Errors
    /// [`KindError`] if the cluster is not attached to HDFS.
    pub fn of(cluster: &Cluster) -> Result<Self, KindError> {
        let is_hdfs = cluster.config().store.as_ref().is_some_and(|store| store.kind == Hdfs.name());
        let namenode = if is_hdfs { config(cluster)?.namenode } else { None };
        let Some(namenode) = namenode else {
            return Err(KindError::new("the cluster is not attached to an HDFS with a NameNode to query")
                .help("attach to HDFS first: mend attach hdfs, see docs/guides/hdfs.md"));
        };
        Ok(Self(NameNode::new(settings(namenode))))
    }

    /// Lists a folder or file with its parity, parity that is being made, all DataNodes, and all folders with
    /// snapshots.
    ///
    /// # Errors
    /// [`KindError`], also if the folder does not exist.
    pub async fn listing(&self, folder: &str, policies: &Policies) -> Result<hdfs_raid::Listing, KindError> {
        if !folder.starts_with('/') {
            return Err(KindError::new(format!("`{folder}` is not an absolute path")).help("begin it with /"));
        }
        let folders = with_parity(folder, policies);
        let listing = self.0.files(&folders, &Said::default().told()).await.map_err(unreachable)?;
        match listing.missing.contains(&folders[0]) {
            true => Err(KindError::new(format!("HDFS has no file or folder {folder}"))),
            false => {
                let mut listing = listing.into_raid();
                listing.notes = self.notes(&listing.files, policies).await?;
                Ok(listing)
            }
        }
    }

    /// Returns the notes on those files that are parity.
    async fn notes(&self, files: &[File], policies: &Policies) -> Result<Notes, KindError> {
        let is_parity = |path: &&String| policies.parity_root_of(path).is_some();
        let paths: Vec<String> = files.iter().map(|file| &file.path).filter(is_parity).cloned().collect();
        let mut listing = Listing::default();
        for paths in paths.chunks(AT_ONCE) {
            let attributes = self.0.attributes(paths).await.map_err(unreachable)?;
            attributes.into_iter().for_each(|attribute| listing.take_attribute(attribute));
        }
        Ok(listing.raid.notes)
    }

    /// Returns Mend's attributes of these files.
    ///
    /// # Errors
    /// [`KindError`], also if another version of Mend has written them.
    pub async fn marks(&self, paths: &[String]) -> Result<BTreeMap<String, Marks>, KindError> {
        let attributes = self.attributes(paths).await.map_err(unreachable)?;
        marks_of(attributes).map_err(KindError::new)
    }

    async fn attributes(&self, paths: &[String]) -> Result<Vec<Attribute>, AskError> {
        let mut attributes = Vec::new();
        for paths in paths.chunks(AT_ONCE) {
            attributes.extend(self.0.attributes(paths).await?);
        }
        Ok(attributes)
    }

    /// Returns the inodes in notes on parity files that exist outside of snapshots.
    ///
    /// # Errors
    /// [`KindError`].
    pub async fn living(&self, marks: &BTreeMap<String, Marks>) -> Result<BTreeSet<u64>, KindError> {
        self.living_inodes(marks).await.map_err(unreachable)
    }

    async fn living_inodes(&self, marks: &BTreeMap<String, Marks>) -> Result<BTreeSet<u64>, AskError> {
        let inodes: BTreeSet<u64> = marks.values().filter_map(|marks| Some(marks.note?.inode)).collect();
        let inodes: Vec<u64> = inodes.into_iter().collect();
        let mut living = BTreeSet::new();
        for inodes in inodes.chunks(AT_ONCE) {
            living.extend(self.0.existing(inodes).await?);
        }
        Ok(living)
    }
}

/// Returns Mend's attributes by file; the error names an attribute that another version of Mend has written.
fn marks_of(attributes: Vec<Attribute>) -> Result<BTreeMap<String, Marks>, String> {
    let mut marks: BTreeMap<String, Marks> = BTreeMap::new();
    for Attribute { path, name, value } in attributes {
        let unknown = |why: UnknownMark| format!("{path}: {why}");
        if let Some(mark) = Mark::parse(&name, &value).map_err(unknown)? {
            marks.entry(path).or_default().set(mark);
        }
    }
    Ok(marks)
}

fn unreachable(error: AskError) -> KindError {
    let is_safe_mode = matches!(error, AskError::SafeMode);
    let failure = KindError::new(error).unreachable();
    match is_safe_mode {
        true => failure.help("try again once `hdfs dfsadmin -safemode get` says that safe mode is off"),
        false => failure,
    }
}

/// Returns the path, and the paths of its parity, finished or not, below all parity roots that are not within
/// it.
fn with_parity(path: &str, policies: &Policies) -> Vec<String> {
    let path = path.trim_end_matches('/');
    let is_beyond = |root: &String| root.strip_prefix(path).is_none_or(|rest| !rest.starts_with('/'));
    let roots = policies.codecs().iter().flat_map(|codec| [codec.parity_root.clone(), codec.draft_root()]);
    let parity = roots.filter(is_beyond).map(|root| parity_path(&root, path));
    let first = if path.is_empty() { "/" } else { path };
    [first.to_owned()].into_iter().chain(parity).collect()
}

impl Listing {
    pub(crate) fn take_raid_folder(&mut self, words: &mut SplitAsciiWhitespace<'_>) -> Option<()> {
        self.raid.folders.push(Folder { path: path(words)?, modified_ms: number(words)? });
        Some(())
    }

    pub(crate) fn take_raid_file(&mut self, words: &mut SplitAsciiWhitespace<'_>) -> Option<()> {
        let (inode, path, bytes) = (number(words)?, path(words)?, number(words)?);
        let (block_bytes, replication, modified_ms) = (number(words)?, number(words)?, number(words)?);
        let storing = match words.next()? {
            "replicated" => Storing::Replicated,
            "encrypted" => Storing::Encrypted,
            "striped" => Storing::Striped,
            _ => return None,
        };
        let is_open = match words.next()? {
            "open" => true,
            "closed" => false,
            _ => return None,
        };
        let blocks = Vec::new();
        let file =
            File { inode, path, bytes, block_bytes, replication, modified_ms, storing, is_open, blocks };
        self.raid.files.push(file);
        Some(())
    }

    pub(crate) fn take_raid_block(&mut self, words: &mut SplitAsciiWhitespace<'_>) -> Option<()> {
        let (number, stamp, bytes) = (number(words)?, number(words)?, number(words)?);
        let node = |text: &str| text.parse().ok().filter(|&node| node < self.nodes.len()).map(NodeIndex);
        let replicas = match words.next()? {
            "-" => Vec::new(),
            nodes => nodes.split(',').map(node).collect::<Option<_>>()?,
        };
        self.raid.files.last_mut()?.blocks.push(Block { number, stamp, bytes, replicas });
        Some(())
    }

    pub(crate) fn take_attribute(&mut self, attribute: Attribute) {
        let note = match Mark::parse(&attribute.name, &attribute.value) {
            Ok(Some(Mark::Proven(note))) => Some(Ok(note)),
            Err(unknown) => Some(Err(unknown)),
            Ok(_) => None,
        };
        if let Some(note) = note {
            self.raid.notes.insert(attribute.path.clone(), note);
        }
        self.attributes.push(attribute);
    }

    /// Returns the files with all replicas of their blocks, their folders, and all DataNodes.
    pub fn into_raid(self) -> hdfs_raid::Listing {
        hdfs_raid::Listing { nodes: self.nodes.into_iter().map(node).collect(), ..self.raid }
    }
}

/// Returns a DataNode with its rack. Blocks can stay there only if HDFS expects them to.
fn node(node: DataNode) -> Node {
    let standing = node.standing.as_ref();
    let is_usable = standing.is_some_and(|it| it.live && !it.is_silent && it.service == Service::Normal);
    let rack = standing.map_or_else(String::new, |standing| standing.rack.clone());
    Node { address: node.address, rack, is_usable }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(lines: &[&str]) -> Option<Listing> {
        let mut listing = Listing::default();
        lines.iter().all(|line| listing.take(line).is_ok()).then_some(listing)
    }

    #[test]
    fn files_and_their_replicas_are_parsed() {
        let listing = taken(&[
            "n 0 uuid-a 10.0.0.1:9866",
            "d 0 /rack1 live normal 12",
            "n 1 uuid-b 10.0.0.2:9866",
            "d 1 /rack2 live leaving 12",
            "n 2 uuid-c 10.0.0.3:9866",
            "S %2Fkept",
            "D %2Fa+b 1700000000000",
            "F 16390 %2Fa+b%2Ff 1500 1024 3 1700000000001 replicated closed",
            "B 1073741825 1001 1024 0,1",
            "B 1073741826 1002 476 -",
            "F 16391 %2Fa+b%2Fg 7 1024 1 1700000000002 striped open",
        ]);
        let raid = listing.expect("lines of an answer").into_raid();
        assert_eq!(raid.nodes.iter().map(|node| node.is_usable).collect::<Vec<_>>(), [true, false, false]);
        assert_eq!((raid.nodes[1].rack.as_str(), raid.snapshots), ("/rack2", vec!["/kept".to_owned()]));
        assert_eq!(raid.folders, [Folder { path: "/a b".to_owned(), modified_ms: 1_700_000_000_000 }]);
        let [file, striped] = &raid.files[..] else { panic!("two files") };
        assert_eq!((file.path.as_str(), file.bytes, file.replication), ("/a b/f", 1500, 3));
        let replicas: Vec<_> = file.blocks.iter().map(|block| block.replicas.clone()).collect();
        assert_eq!(replicas, [vec![NodeIndex(0), NodeIndex(1)], Vec::new()]);
        assert_eq!((striped.storing, striped.is_open, striped.blocks.len()), (Storing::Striped, true, 0));
    }

    #[test]
    fn other_lines_are_refused() {
        let (node, file) = ("n 0 u a:1", "F 1 %2Ff 5 4 3 0 replicated closed");
        assert!(taken(&[node, file, "B 1 1 4 0"]).is_some());
        for line in ["B 1 1 4 1", "B 1 1 4", "B 1 1 4 x", "F 1 %2Ff 5 4 3 0 replicated", "D %2Fa", "S"] {
            assert!(taken(&[node, file, line]).is_none(), "{line}");
        }
        assert!(taken(&[node, "B 1 1 4 0"]).is_none(), "a block without a file");
    }

    #[test]
    fn parity_is_listed_once() {
        let policies = "[[policy]]\nname = \"p\"\npaths = [\"/\"]\ncodec = \"rs\"";
        let policies = Policies::parse(policies).expect("policies");
        assert_eq!(with_parity("/", &policies), ["/"]);
        let mut expected = vec!["/a"];
        expected.extend(["/raidrs/a", "/tmp/raidrs/a", "/raid/a", "/tmp/raid/a"]);
        expected.extend(["/dir-raidrs/a", "/tmp/dir-raidrs/a", "/dir-raid/a", "/tmp/dir-raid/a"]);
        assert_eq!(with_parity("/a/", &policies), expected);
    }

    #[test]
    fn notes_belong_to_parity_files() {
        let listing = taken(&[
            "X %2Fraid%2Fa trusted.mend.source =1+7+3+0a+0b",
            "X %2Fraid%2Fb trusted.mend.source =2",
            "X %2Fraid%2Fc user.mend.source =1+7+3+0a+0b",
        ]);
        let notes = listing.expect("lines of an answer").into_raid().notes;
        assert!(notes["/raid/a"].as_ref().is_ok_and(|note| note.inode == 7));
        assert!(notes["/raid/b"].is_err() && !notes.contains_key("/raid/c"), "{notes:?}");
    }

    #[test]
    fn attributes_are_parsed() {
        let listing = taken(&["X %2Fa+b user.mend.raid =never", "X %2Fc user.mend.x ="]);
        let attributes = listing.expect("lines of an answer").attributes;
        let attribute = |path: &str, name: &str, value: &str| Attribute {
            path: path.to_owned(),
            name: name.to_owned(),
            value: value.to_owned(),
        };
        assert_eq!(
            attributes,
            [attribute("/a b", "user.mend.raid", "never"), attribute("/c", "user.mend.x", "")]
        );
        for line in ["X %2Fa user.mend.raid never", "X %2Fa user.mend.raid", "X %2Fa n =v w"] {
            assert!(taken(&[line]).is_none(), "{line}");
        }
    }
}
