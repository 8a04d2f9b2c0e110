//! Lists replicated files with all their replicas, for the layout of HDFS-RAID, and changes them.

pub(crate) mod backlog;
pub(crate) mod by_helpers;
pub(crate) mod changes;
pub(crate) mod choosing;
mod covered;
mod drafts;
pub(crate) mod driving;
pub(crate) mod policy_file;
mod proofs;
pub(crate) mod schedule;

use std::collections::{BTreeMap, BTreeSet};
use std::str::SplitAsciiWhitespace;
use std::time::Duration;

use attached::{Kind as _, KindError};
use cluster::Cluster;
use hdfs_raid::{
    Block, File, Folder, Gaps, Marks, Node, NodeIndex, Notes, Omission, Owner, Policies, Renaming, Scope,
    Storing, is_within, parity_files, parity_path,
};

use crate::attach::Said;
use crate::kind::{codecs, config, settings};
use crate::listing::{decoded, number, path};
use crate::{
    AskError, Attribute, DataNode, Edit, ExistingInodes, Hdfs, Listing, NameNode, NameNodeSettings, Progress,
    Service, Standing,
};

pub use by_helpers::HelperParity;
pub use changes::RaidFile;
use choosing::check_followed;
pub use covered::Covered;
pub use driving::{Deeds, Driver, Errand, Outcome, Pace, ParityMaker, Pending, Unpaced, drive_all, term};

/// The most files or inodes in one query.
const AT_ONCE: usize = 256;

/// Checks that the coordinator repairs files of all codecs of these policies, according to `[store.raid]` of `mend.toml`.
///
/// # Errors
/// [`KindError`].
pub fn check_codecs(cluster: &Cluster, policies: &Policies) -> Result<(), KindError> {
    check_followed(policies, &codecs(config(cluster)?.raid)?).map_err(KindError::new)
}

/// Returns how long the replicas of a file must have stayed the same before they are moved, according to `[store.raid]` of
/// `mend.toml`.
///
/// # Errors
/// [`KindError`].
pub fn settled_after(cluster: &Cluster) -> Result<Duration, KindError> {
    Ok(config(cluster)?.raid.unwrap_or_default().settled_after)
}

/// The NameNode of a cluster that is attached to HDFS. Only HDFS's superuser sees all files and folders.
/// Clones share the JVM.
#[derive(Clone, Debug)]
pub struct RaidNameNode {
    namenode: NameNode,
    /// The folders whose files the coordinator repairs; `None` if all files of the listings are in them.
    repaired: Option<Vec<String>>,
}

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
        let repaired = Some(namenode.paths.clone());
        Ok(Self { repaired, ..Self::new(settings(namenode)) })
    }

    /// Creates a handle with a JVM of its own.
    pub(crate) fn new(settings: NameNodeSettings) -> Self {
        Self { namenode: NameNode::new(settings), repaired: None }
    }

    /// Lists a folder or file with its parity, parity that is being made, all DataNodes, and all folders with
    /// snapshots.
    ///
    /// # Errors
    /// [`KindError`], also if the folder does not exist, or HDFS refuses to list a part of it: parity that is not
    /// listed would be made again.
    pub async fn listing(&self, folder: &str, policies: &Policies) -> Result<hdfs_raid::Listing, KindError> {
        self.listing_with(folder, policies, &Said::default().told()).await
    }

    /// Lists like [`listing`](Self::listing), and calls `heard` with the progress.
    ///
    /// # Errors
    /// As [`listing`](Self::listing).
    pub(crate) async fn listing_with(
        &self,
        folder: &str,
        policies: &Policies,
        heard: &(dyn Fn(Progress) + Sync),
    ) -> Result<hdfs_raid::Listing, KindError> {
        let mut listing = self.walk(folder, policies, heard).await?;
        if let Some(Omission { path, why, .. }) = listing.gaps.omitted.iter().find(|it| it.is_refused) {
            return Err(refused(path, why));
        }
        self.add_notes(&mut listing, policies).await?;
        Ok(listing)
    }

    /// Lists like [`listing`](Self::listing), without what HDFS refuses to list. That is among the gaps of the listing.
    ///
    /// # Errors
    /// [`KindError`], also if the folder does not exist.
    pub async fn partial_listing(
        &self,
        folder: &str,
        policies: &Policies,
    ) -> Result<hdfs_raid::Listing, KindError> {
        let mut listing = self.walk(folder, policies, &Said::default().told()).await?;
        self.add_notes(&mut listing, policies).await?;
        Ok(listing)
    }

    /// Returns those of these files and folders that do not exist.
    ///
    /// # Errors
    /// [`KindError`].
    pub async fn missing(&self, paths: &[String]) -> Result<Vec<String>, KindError> {
        let mut missing = Vec::new();
        for paths in paths.chunks(AT_ONCE) {
            missing.extend(self.namenode.missing(paths).await.map_err(unreachable)?);
        }
        Ok(missing)
    }

    /// Lists like [`partial_listing`](Self::partial_listing). Files that were renamed meanwhile are among the gaps of the
    /// listing, too.
    ///
    /// # Errors
    /// [`KindError`].
    pub async fn examination(
        &self,
        folder: &str,
        policies: &Policies,
    ) -> Result<hdfs_raid::Listing, KindError> {
        let begun = self.namenode.position().await;
        let mut listing = self.partial_listing(folder, policies).await?;
        // An examination reports a file outside of these folders with advice of its own.
        listing.repaired = None;
        let events = match begun {
            Ok(begun) => self.events_since(begun.next).await,
            Err(why) => Err(why.to_string()),
        };
        match events {
            Ok(events) => listing.gaps.renamed = unlisted_renames(events, &listing),
            Err(why) => listing.gaps.unwatched = Some(why),
        }
        Ok(listing)
    }

    /// Lists a folder or file without the attributes of its files.
    async fn walk(
        &self,
        folder: &str,
        policies: &Policies,
        heard: &(dyn Fn(Progress) + Sync),
    ) -> Result<hdfs_raid::Listing, KindError> {
        check_absolute(folder)?;
        let folders = with_parity(folder, policies);
        let listing = self.namenode.files(&folders, heard).await.map_err(unreachable)?;
        if listing.missing.contains(&folders[0]) {
            return Err(KindError::new(format!("HDFS has no file or folder {folder}")));
        }
        let root = folders.into_iter().next().expect("the first is the requested one");
        let repaired = self.repaired.clone();
        let raid = hdfs_raid::Listing { root, repaired, ..listing.into_raid() };
        let mut paths = raid.folders.iter().map(|it| &it.path).chain(raid.files.iter().map(|it| &it.path));
        if paths.any(|path| *path == raid.root) {
            return Ok(raid);
        }
        let why = raid.gaps.omitted.iter().find(|omission| omission.path == raid.root);
        let why = why.map_or("it was deleted meanwhile", |omission| &omission.why);
        Err(refused(folder, why))
    }

    /// Reads the edit log from a transaction up to its present end.
    async fn events_since(&self, mut next: u64) -> Result<Vec<Edit>, String> {
        let text = |error: AskError| error.to_string();
        let end = self.namenode.position().await.map_err(text)?.next;
        let mut events = Vec::new();
        while next < end {
            let edits = self.namenode.edits(next).await.map_err(text)?;
            if let Some(first) = edits.gap {
                return Err(format!("the edit log begins at transaction {first}, after {next}"));
            }
            events.extend(edits.events);
            if edits.next <= next {
                break;
            }
            next = edits.next;
        }
        Ok(events)
    }

    /// Adds Mend's attributes of the parity files to a listing. Attributes that cannot be read are added to its gaps.
    ///
    /// # Errors
    /// [`KindError`].
    async fn add_notes(
        &self,
        listing: &mut hdfs_raid::Listing,
        policies: &Policies,
    ) -> Result<(), KindError> {
        let paths: Vec<String> = parity_files(listing, policies).map(|file| file.path.clone()).collect();
        for paths in paths.chunks(AT_ONCE) {
            let (attributes, refused) = self.namenode.attributes(paths).await.map_err(unreachable)?;
            listing.gaps.omitted.extend(refused);
            for Attribute { path, name, value } in attributes {
                if let Err(unknown) = listing.notes.take(&path, &name, &value) {
                    let why = unknown.to_string();
                    listing.gaps.omitted.push(Omission { path, why, is_refused: true });
                }
            }
        }
        let files = listing.files.iter().map(|file| file.inode);
        let listed: BTreeSet<u64> = files.chain(listing.folders.iter().map(|folder| folder.inode)).collect();
        let noted = noted(&listing.notes.marks);
        let existing = self.existing(&noted - &listed).await.map_err(unreachable)?;
        listing.notes.living = existing.present;
        listing.notes.living.extend(&noted & &listed);
        listing.notes.kept = existing.in_snapshots;
        Ok(())
    }

    /// Returns Mend's attributes of these files.
    ///
    /// # Errors
    /// [`KindError`], also if HDFS refuses them, or another version of Mend has written them.
    pub async fn marks(&self, paths: &[String]) -> Result<BTreeMap<String, Marks>, KindError> {
        let attributes = self.attributes(paths).await.map_err(unreachable)?;
        marks_of(attributes).map_err(KindError::new)
    }

    /// Returns the parity of the folder above a file, if it protects blocks of the file. Parity without a record of its
    /// blocks may protect them.
    ///
    /// # Errors
    /// [`KindError`].
    pub async fn parity_of_folder(&self, file: &File, policies: &Policies) -> Result<Vec<String>, KindError> {
        let codecs = policies.codecs().iter();
        let codecs = codecs.filter(|codec| codec.scope == Scope::Folder && file.folder() != "/");
        let paths: Vec<String> = codecs.map(|codec| parity_path(&codec.parity_root, file.folder())).collect();
        if paths.is_empty() {
            return Ok(Vec::new());
        }
        let listing =
            self.namenode.files(&paths, &|_| {}).await.and_then(Listing::complete).map_err(unreachable)?;
        // A folder of other parity may be there.
        let found = listing.into_raid().files.into_iter().map(|file| file.path);
        let found: Vec<String> = found.filter(|path| paths.contains(path)).collect();
        let marks = self.marks(&found).await?;
        let protects = |path: &String| {
            let record = marks.get(path).and_then(|marks| marks.members.as_ref());
            record.is_none_or(|record| record.are_in(file))
        };
        Ok(found.into_iter().filter(protects).collect())
    }

    async fn attributes(&self, paths: &[String]) -> Result<Vec<Attribute>, AskError> {
        let mut attributes = Vec::new();
        for paths in paths.chunks(AT_ONCE) {
            let (found, refused) = self.namenode.attributes(paths).await?;
            if let Some(Omission { path, why, .. }) = refused.into_iter().next() {
                return Err(AskError::Refused { path, why });
            }
            attributes.extend(found);
        }
        Ok(attributes)
    }

    /// Queries which of these files and folders exist.
    async fn existing(&self, inodes: BTreeSet<u64>) -> Result<ExistingInodes, AskError> {
        let inodes: Vec<u64> = inodes.into_iter().collect();
        let mut existing = ExistingInodes::default();
        for inodes in inodes.chunks(AT_ONCE) {
            let ExistingInodes { present, in_snapshots } = self.namenode.existing(inodes).await?;
            existing.present.extend(present);
            existing.in_snapshots.extend(in_snapshots);
        }
        Ok(existing)
    }
}

/// Returns Mend's attributes by file; the error names an attribute that another version of Mend has written.
fn marks_of(attributes: Vec<Attribute>) -> Result<BTreeMap<String, Marks>, String> {
    let mut notes = Notes::default();
    for Attribute { path, name, value } in attributes {
        notes.take(&path, &name, &value).map_err(|unknown| format!("{path}: {unknown}"))?;
    }
    Ok(notes.marks)
}

fn unreachable(error: AskError) -> KindError {
    let help = match &error {
        AskError::SafeMode => Some("try again once `hdfs dfsadmin -safemode get` says that safe mode is off"),
        AskError::Refused { .. } => Some("run the command again, as HDFS's superuser"),
        _ => None,
    };
    let failure = KindError::new(error).unreachable();
    match help {
        Some(help) => failure.help(help),
        None => failure,
    }
}

/// Checks that a path is absolute.
///
/// # Errors
/// [`KindError`].
fn check_absolute(path: &str) -> Result<(), KindError> {
    match path.starts_with('/') {
        true => Ok(()),
        false => Err(KindError::new(format!("`{path}` is not an absolute path")).help("begin it with /")),
    }
}

fn refused(path: &str, why: &str) -> KindError {
    let error = AskError::Refused { path: path.to_owned(), why: why.to_owned() };
    KindError::new(error).help("run the command again, as HDFS's superuser")
}

/// Returns the files and folders that were renamed to a path that a listing should have, but does not. New files, such as those that
/// HDFS's shell writes under a temporary name, are left out.
fn unlisted_renames(events: Vec<Edit>, listing: &hdfs_raid::Listing) -> Vec<Renaming> {
    let files = listing.files.iter().map(|file| &file.path);
    let listed: BTreeSet<&String> = files.chain(listing.folders.iter().map(|folder| &folder.path)).collect();
    let (mut created, mut renamed) = (BTreeSet::new(), Vec::new());
    for event in events {
        match event {
            Edit::Created { path, .. } => drop(created.insert(path)),
            Edit::Renamed { from, to } if created.contains(&from) => drop(created.insert(to)),
            Edit::Renamed { from, to } if is_within(&to, &listing.root) && !listed.contains(&to) => {
                renamed.push(Renaming { from, to });
            }
            Edit::Renamed { .. } | Edit::Modified(_) | Edit::Touched(_) | Edit::Removed(_) => {}
        }
    }
    renamed
}

/// Returns the inodes in notes.
fn noted(marks: &BTreeMap<String, Marks>) -> BTreeSet<u64> {
    marks.values().filter_map(|marks| Some(marks.note?.inode)).collect()
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
        let (path, modified_ms, inode) = (path(words)?, number(words)?, number(words)?);
        let owner = owner(words.next()?, self.raid.folders.last().map(|before| &before.owner))?;
        self.raid.folders.push(Folder { inode, path, modified_ms, owner });
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
        let owner = owner(words.next()?, self.raid.files.last().map(|before| &before.owner))?;
        let blocks = Vec::new();
        let file = File {
            inode,
            path,
            bytes,
            block_bytes,
            replication,
            modified_ms,
            owner,
            storing,
            is_open,
            blocks,
        };
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
        let Attribute { path, name, value } = &attribute;
        // Notes that are not known are recorded as such.
        let _ = self.raid.notes.take(path, name, value);
        self.attributes.push(attribute);
    }

    pub(crate) fn take_corrupt_replicas(&mut self, words: &mut SplitAsciiWhitespace<'_>) -> Option<()> {
        let block = number(words)?;
        let node = |text: &str| text.parse().ok().filter(|&node| node < self.nodes.len()).map(NodeIndex);
        let nodes = words.next()?.split(',').map(node).collect::<Option<Vec<_>>>()?;
        self.raid.corrupt.insert(block, nodes);
        Some(())
    }

    pub(crate) fn take_omission(&mut self, text: &str) -> Option<()> {
        let (path, rest) = text.split_once(' ')?;
        let (kind, why) = rest.split_once(' ').unwrap_or((rest, ""));
        let is_refused = match kind {
            "refused" => true,
            "skipped" => false,
            _ => return None,
        };
        let omission = Omission { path: decoded(path)?, why: why.to_owned(), is_refused };
        self.raid.gaps.omitted.push(omission);
        Some(())
    }

    /// Checks that HDFS has refused no path.
    ///
    /// # Errors
    /// [`AskError::Refused`].
    pub(crate) fn complete(self) -> Result<Self, AskError> {
        match self.raid.gaps.omitted.iter().find(|omission| omission.is_refused) {
            Some(Omission { path, why, .. }) => {
                Err(AskError::Refused { path: path.clone(), why: why.clone() })
            }
            None => Ok(self),
        }
    }

    /// Returns the files with all replicas of their blocks, their folders, and all DataNodes.
    pub fn into_raid(self) -> hdfs_raid::Listing {
        let mut raid = self.raid;
        let nodes = || self.nodes.iter().enumerate();
        let in_state = |is: &dyn Fn(&Standing) -> bool| {
            let found = nodes().filter(|(_, node)| node.standing.as_ref().is_some_and(is));
            found.map(|(at, _)| NodeIndex(at)).collect()
        };
        raid.gaps.silent = in_state(&|it| it.live && it.is_silent && it.service != Service::Maintenance);
        raid.gaps.in_maintenance = in_state(&|it| it.service == Service::Maintenance);
        keep_last_paths(&mut raid.files, &mut raid.gaps);
        hdfs_raid::Listing { nodes: self.nodes.into_iter().map(node).collect(), ..raid }
    }
}

/// Parses the owner of a file or folder, which shares its name with the owner before if they are the same.
fn owner(word: &str, before: Option<&Owner>) -> Option<Owner> {
    if word == "-" {
        return Some(Owner::Superuser);
    }
    let name = decoded(word.strip_prefix('=')?)?;
    let is_same = |owner: &&Owner| matches!(owner, Owner::User(known) if **known == *name);
    let known = before.filter(is_same).cloned();
    Some(known.unwrap_or_else(|| Owner::User(name.as_str().into())))
}

/// Removes the former paths of files that were renamed during the listing, so that each file is listed once.
fn keep_last_paths(files: &mut Vec<File>, gaps: &mut Gaps) {
    let last: BTreeMap<u64, usize> = files.iter().enumerate().map(|(at, file)| (file.inode, at)).collect();
    if last.len() == files.len() {
        return;
    }
    let paths: Vec<String> = files.iter().map(|file| file.path.clone()).collect();
    let mut at = 0;
    files.retain(|file| {
        let kept = last[&file.inode];
        let is_last = kept == at;
        if !is_last {
            let why = format!("it was renamed to {} during the listing", paths[kept]);
            gaps.omitted.push(Omission { path: file.path.clone(), why, is_refused: false });
        }
        at += 1;
        is_last
    });
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
            "O %2Fsecret+x refused Permission denied: user=a",
            "D %2Fa+b 1700000000000 16389 =ada",
            "D %2Fa+b%2Fc 1700000000000 16392 -",
            "F 16390 %2Fa+b%2Ff 1500 1024 3 1700000000001 replicated closed =ada+b",
            "B 1073741825 1001 1024 0,1",
            "B 1073741826 1002 476 -",
            "C 1073741826 0,2",
            "F 16391 %2Fa+b%2Fg 7 1024 1 1700000000002 striped open -",
        ]);
        let raid = listing.expect("lines of an answer").into_raid();
        assert_eq!(raid.nodes.iter().map(|node| node.is_usable).collect::<Vec<_>>(), [true, false, false]);
        assert_eq!((raid.nodes[1].rack.as_str(), raid.snapshots), ("/rack2", vec!["/kept".to_owned()]));
        let omission = Omission {
            path: "/secret x".to_owned(),
            why: "Permission denied: user=a".to_owned(),
            is_refused: true,
        };
        assert_eq!(raid.gaps.omitted, [omission]);
        assert_eq!(raid.corrupt, BTreeMap::from([(1_073_741_826, vec![NodeIndex(0), NodeIndex(2)])]));
        let folder = |inode, path: &str, owner| Folder {
            inode,
            path: path.to_owned(),
            modified_ms: 1_700_000_000_000,
            owner,
        };
        let theirs = folder(16_389, "/a b", Owner::User("ada".into()));
        assert_eq!(raid.folders, [theirs, folder(16_392, "/a b/c", Owner::Superuser)]);
        let [file, striped] = &raid.files[..] else { panic!("two files") };
        assert_eq!((file.path.as_str(), file.bytes, file.replication), ("/a b/f", 1500, 3));
        let replicas: Vec<_> = file.blocks.iter().map(|block| block.replicas.clone()).collect();
        assert_eq!(replicas, [vec![NodeIndex(0), NodeIndex(1)], Vec::new()]);
        let owners = [&file.owner, &striped.owner];
        assert_eq!(owners, [&Owner::User("ada b".into()), &Owner::Superuser]);
        assert_eq!((striped.storing, striped.is_open, striped.blocks.len()), (Storing::Striped, true, 0));
    }

    #[test]
    fn a_file_that_is_renamed_during_the_listing_is_listed_once() {
        let listing = taken(&[
            "F 1 %2Fa 0 4 3 0 replicated closed -",
            "F 2 %2Fb 0 4 3 0 replicated closed -",
            "F 1 %2Fc 0 4 3 0 replicated closed -",
        ]);
        let raid = listing.expect("lines of an answer").into_raid();
        assert_eq!(raid.files.iter().map(|file| file.path.as_str()).collect::<Vec<_>>(), ["/b", "/c"]);
        let why = "it was renamed to /c during the listing".to_owned();
        assert_eq!(raid.gaps.omitted, [Omission { path: "/a".to_owned(), why, is_refused: false }]);
    }

    #[test]
    fn renames_during_a_listing_are_named_unless_the_file_is_new_or_listed() {
        let file = "F 1 %2Fa%2Flisted 0 4 3 0 replicated closed -";
        let listing = hdfs_raid::Listing {
            root: "/a".to_owned(),
            ..taken(&[file]).expect("a line of an answer").into_raid()
        };
        let rename = |from: &str, to: &str| Edit::Renamed { from: from.to_owned(), to: to.to_owned() };
        let events = vec![
            Edit::Created { path: "/a/new._COPYING_".to_owned(), is_striped: false },
            rename("/a/new._COPYING_", "/a/new"),
            rename("/a/new", "/a/newer"),
            rename("/b/f", "/a/listed"),
            rename("/a/g", "/b/g"),
            rename("/b/old", "/a/old"),
        ];
        let expected = Renaming { from: "/b/old".to_owned(), to: "/a/old".to_owned() };
        assert_eq!(unlisted_renames(events, &listing), [expected]);
    }

    #[test]
    fn datanodes_whose_replicas_are_uncertain_are_noted() {
        let lines = [
            "n 0 u a:1",
            "d 0 /r silent normal 1",
            "n 1 v b:1",
            "d 1 /r dead maintenance 1",
            "n 2 w c:1",
            "d 2 /r dead normal 1",
        ];
        let gaps = taken(&lines).expect("lines of an answer").into_raid().gaps;
        assert_eq!((gaps.silent, gaps.in_maintenance), (vec![NodeIndex(0)], vec![NodeIndex(1)]));
    }

    #[test]
    fn other_lines_are_refused() {
        let (node, file) = ("n 0 u a:1", "F 1 %2Ff 5 4 3 0 replicated closed -");
        assert!(taken(&[node, file, "B 1 1 4 0"]).is_some());
        for line in [
            "B 1 1 4 1",
            "B 1 1 4",
            "B 1 1 4 x",
            "F 1 %2Ff 5 4 3 0 replicated",
            "F 1 %2Ff 5 4 3 0 replicated closed",
            "F 1 %2Ff 5 4 3 0 replicated closed ada",
            "D %2Fa",
            "D %2Fa 7",
            "D %2Fa 7 9",
            "D %2Fa 7 9 ada",
            "S",
            "O %2Fa",
            "O %2Fa why",
            "C 1",
            "C 1 1",
        ] {
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
    fn an_answer_with_refused_paths_is_not_complete() {
        assert!(
            taken(&["O %2Fgone skipped it was deleted"]).expect("a line of an answer").complete().is_ok()
        );
        let refused = taken(&["O %2Fa refused Permission denied"]).expect("a line of an answer").complete();
        let why = refused.expect_err("refused").to_string();
        assert_eq!(why, "HDFS does not list /a: Permission denied");
    }

    #[test]
    fn notes_belong_to_parity_files() {
        let listing = taken(&[
            "X %2Fraid%2Fa trusted.mend.source =1+7+3+0a+0b",
            "X %2Fraid%2Fb trusted.mend.source =2",
            "X %2Fraid%2Fc user.mend.source =1+7+3+0a+0b",
        ]);
        let notes = listing.expect("lines of an answer").into_raid().notes;
        let paths: Vec<&String> = notes.marks.keys().collect();
        assert!(paths == ["/raid/a"] && notes.marks["/raid/a"].note.is_some_and(|note| note.inode == 7));
        assert_eq!(notes.unknown, BTreeSet::from(["/raid/b".to_owned()]));
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
