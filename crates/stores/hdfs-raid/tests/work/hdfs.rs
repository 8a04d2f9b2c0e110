//! A simulated NameNode with its DataNodes. Bytes of a block are one number.

use std::collections::{BTreeMap, BTreeSet};

use hdfs_raid::{
    Block, File, Fingerprint, Folder, Gaps, Listing, Mark, Marks, Node, NodeIndex, Note, Owner, Storing,
};

/// Data blocks in a stripe.
pub const DATA: usize = 3;
/// Parity blocks in a stripe.
pub const PARITY: usize = 2;
pub const NODES: usize = 9;
const BLOCK_BYTES: u64 = 512;
/// The time between two rounds of heartbeats, in which each block loses or gets one replica.
const ROUND_MS: u64 = 6_000;

/// HDFS refuses a call.
#[derive(Debug)]
pub struct Refused;

#[derive(Clone, Debug)]
pub struct Hdfs {
    pub now_ms: u64,
    pub files: BTreeMap<String, SimFile>,
    folders: BTreeSet<String>,
    /// Folders that have snapshots.
    pub snapshots: Vec<String>,
    /// The inodes of files that exist only in snapshots.
    pub kept: BTreeSet<u64>,
    dead: BTreeSet<usize>,
    /// Dead DataNodes whose replicas the NameNode still lists.
    silent: BTreeSet<usize>,
    /// DataNodes that are being decommissioned. They keep their replicas, which do not count.
    leaving: BTreeSet<usize>,
    /// The NameNode is busy until this time: replicas are neither removed nor added.
    pub busy_until_ms: u64,
    /// The files whose replicas HDFS keeps, because a snapshot contains them.
    pub snapshotted: BTreeSet<u64>,
    /// The last inode, block number and stamp.
    last: u64,
}

#[derive(Clone, Debug)]
pub struct SimFile {
    pub inode: u64,
    pub replication: u16,
    pub modified_ms: u64,
    pub is_open: bool,
    pub marks: Marks,
    pub blocks: Vec<SimBlock>,
}

#[derive(Clone, Debug)]
pub struct SimBlock {
    number: i64,
    stamp: u64,
    pub contents: u64,
    pub replicas: BTreeSet<usize>,
    /// The listed replicas that HDFS has decided to remove. A higher replication does not change this.
    condemned: BTreeSet<usize>,
    /// The replica that a move drops.
    dropped: Option<usize>,
    /// The most replicas since a client changed the file, without condemned ones.
    pub most: usize,
}

/// A change of `/d/f` by a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    Append,
    Overwrite,
    Truncate,
    Touch,
    Open,
    Rename,
    Delete,
    Replace,
    /// A client renames the file with its parity, and an encoded file takes the place of both.
    Exchange,
}

pub const CHANGES: [Change; 9] = [
    Change::Append,
    Change::Overwrite,
    Change::Truncate,
    Change::Touch,
    Change::Open,
    Change::Rename,
    Change::Delete,
    Change::Replace,
    Change::Exchange,
];

/// Returns the contents of a parity block.
fn parity_of(data: &[u64], parity: usize) -> u64 {
    let weighed =
        data.iter().zip(1_u64..).map(|(&contents, at)| contents.wrapping_mul(at + parity as u64 * 7));
    weighed.fold(parity as u64 + 1, |sum, part| sum.rotate_left(9) ^ part)
}

fn folder_of(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(folder, _)| folder)
}

impl SimFile {
    fn listed(&self, path: &str) -> File {
        File {
            inode: self.inode,
            path: path.to_owned(),
            bytes: self.blocks.len() as u64 * BLOCK_BYTES,
            block_bytes: BLOCK_BYTES,
            replication: self.replication,
            modified_ms: self.modified_ms,
            owner: Owner::Superuser,
            storing: Storing::Replicated,
            is_open: self.is_open,
            blocks: self.listed_blocks(),
        }
    }

    fn listed_blocks(&self) -> Vec<Block> {
        let listed = |block: &SimBlock| Block {
            number: block.number,
            stamp: block.stamp,
            bytes: BLOCK_BYTES,
            replicas: block.replicas.iter().copied().map(NodeIndex).collect(),
        };
        self.blocks.iter().map(listed).collect()
    }

    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(&self.listed_blocks())
    }

    /// The parity blocks that belong to this file.
    pub fn expected_parity(&self) -> Vec<u64> {
        let contents: Vec<u64> = self.blocks.iter().map(|block| block.contents).collect();
        let stripe = |data: &[u64]| (0..PARITY).map(|at| parity_of(data, at)).collect::<Vec<_>>();
        contents.chunks(DATA).flat_map(stripe).collect()
    }

    fn forget(&mut self) {
        self.blocks.iter_mut().for_each(|block| block.most = block.kept());
    }
}

impl SimBlock {
    /// Returns the number of replicas that HDFS has not decided to remove.
    pub fn kept(&self) -> usize {
        self.replicas.difference(&self.condemned).count()
    }

    /// Decides to remove all replicas beyond this number. Replicas on DataNodes that are leaving do not count.
    fn condemn(&mut self, wanted: usize, leaving: &BTreeSet<usize>) {
        let is_counted = |&node: &&usize| !leaving.contains(node) && !self.condemned.contains(node);
        let mut counted: BTreeSet<usize> = self.replicas.iter().filter(is_counted).copied().collect();
        while counted.len() > wanted {
            let hinted = self.dropped.take().filter(|node| counted.contains(node));
            let node = hinted.or_else(|| counted.last().copied()).expect("it has replicas");
            counted.remove(&node);
            self.condemned.insert(node);
        }
    }
}

impl Hdfs {
    /// Creates a namespace with the file `/d/f` of five blocks with three replicas each.
    pub fn new() -> Self {
        let folders = ["/", "/d", "/p", "/tmp"].map(str::to_owned).into();
        let mut hdfs = Self {
            now_ms: 1_000_000,
            files: BTreeMap::new(),
            folders,
            snapshots: Vec::new(),
            kept: BTreeSet::new(),
            dead: BTreeSet::new(),
            silent: BTreeSet::new(),
            leaving: BTreeSet::new(),
            busy_until_ms: 0,
            snapshotted: BTreeSet::new(),
            last: 0,
        };
        hdfs.add("/d/f", 5, 3);
        hdfs
    }

    fn next(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    fn block(&mut self, contents: u64, replicas: BTreeSet<usize>) -> SimBlock {
        let (number, stamp) = (self.next() as i64, self.next());
        let (most, condemned) = (replicas.len(), BTreeSet::new());
        SimBlock { number, stamp, contents, most, replicas, condemned, dropped: None }
    }

    /// Adds a file. Every block has a replica on the first DataNode, which HDFS will keep.
    pub fn add(&mut self, path: &str, blocks: usize, replication: u16) {
        let block = |at: usize| {
            let contents = self.next().wrapping_mul(0x9E37_79B9_7F4A_7C15);
            let replicas =
                (0..usize::from(replication)).map(|copy| if copy == 0 { 0 } else { (at + copy) % NODES });
            self.block(contents, replicas.collect())
        };
        let blocks = (0..blocks).map(block).collect();
        let (inode, modified_ms) = (self.next(), self.now_ms + self.last);
        let marks = Marks::default();
        let file = SimFile { inode, replication, modified_ms, is_open: false, marks, blocks };
        self.files.insert(path.to_owned(), file);
    }

    /// Adds an encoded file. All of its blocks are on the first DataNode.
    pub fn add_encoded(&mut self, path: &str) {
        self.add(path, 5, 1);
        self.add_parity(path, true);
        let (source, parity) = (&self.files[path], &self.files[&format!("/p{path}")]);
        let (of_source, of_parity) = (source.fingerprint(), parity.fingerprint());
        let code = Some(Fingerprint::of_code(&"rs-5-3".parse().expect("a code")));
        let note = Note { inode: source.inode, replication: 3, source: of_source, parity: of_parity, code };
        let proven = self.mark(&format!("/p{path}"), Mark::Proven(note));
        proven.expect("the parity exists");
    }

    /// Adds the parity of a file as HDFS-RAID leaves it.
    pub fn add_parity(&mut self, path: &str, is_right: bool) {
        let source = self.files[path].clone();
        let contents: Vec<u64> =
            source.expected_parity().iter().map(|&it| if is_right { it } else { !it }).collect();
        let blocks =
            contents.into_iter().zip(4..).map(|(contents, at)| self.block(contents, BTreeSet::from([at])));
        let blocks = blocks.collect();
        let (inode, modified_ms, marks) = (self.next(), source.modified_ms, Marks::default());
        let parity = format!("/p{path}");
        self.mkdirs(folder_of(&parity)).expect("no file is in the way");
        let file = SimFile { inode, replication: 1, modified_ms, is_open: false, marks, blocks };
        self.files.insert(parity, file);
    }

    pub fn listing(&self) -> Listing {
        let node = |at: usize| Node {
            address: format!("10.0.0.{at}:9866"),
            rack: "/r".to_owned(),
            is_usable: ![&self.dead, &self.silent, &self.leaving].iter().any(|nodes| nodes.contains(&at)),
        };
        let folder =
            |path: &String| Folder { inode: 0, path: path.clone(), modified_ms: 0, owner: Owner::Superuser };
        Listing {
            nodes: (0..NODES).map(node).collect(),
            files: self.files.iter().map(|(path, file)| file.listed(path)).collect(),
            folders: self.folders.iter().map(folder).collect(),
            snapshots: self.snapshots.clone(),
            gaps: Gaps { silent: self.silent.iter().copied().map(NodeIndex).collect(), ..Gaps::default() },
            ..Listing::default()
        }
    }

    /// A round of heartbeats: HDFS removes or adds a replica of each block. It keeps those on the first
    /// DataNodes, which crowds the blocks.
    pub fn heartbeat(&mut self) {
        self.now_ms += ROUND_MS;
        if self.now_ms < self.busy_until_ms {
            return;
        }
        let gone = [&self.dead, &self.silent, &self.leaving];
        let is_gone = |node: &usize| gone.iter().any(|nodes| nodes.contains(node));
        for file in self.files.values_mut().filter(|file| !self.snapshotted.contains(&file.inode)) {
            let wanted = usize::from(file.replication);
            for block in &mut file.blocks {
                block.condemn(wanted, &self.leaving);
                let is_counted =
                    |&node: &&usize| !self.leaving.contains(node) && !block.condemned.contains(node);
                let counted = block.replicas.iter().filter(is_counted).count();
                if let Some(node) = block.condemned.pop_last() {
                    block.replicas.remove(&node);
                } else if counted < wanted && !block.replicas.is_empty() {
                    let is_free = |node: &usize| !block.replicas.contains(node) && !is_gone(node);
                    let free = (0..NODES).find(is_free);
                    block.replicas.extend(free);
                    block.most = block.most.max(block.kept());
                }
            }
        }
    }

    pub fn kill(&mut self, node: usize) {
        self.dead.insert(node);
        for block in self.files.values_mut().flat_map(|file| &mut file.blocks) {
            block.replicas.remove(&node);
            block.condemned.remove(&node);
            block.most = block.kept();
        }
    }

    /// Kills a DataNode, without the NameNode noticing it yet.
    pub fn silence(&mut self, node: usize) {
        self.silent.insert(node);
    }

    /// Begins to decommission a DataNode.
    pub fn decommission(&mut self, node: usize) {
        self.leaving.insert(node);
    }

    /// Closes all files that clients write to.
    pub fn close(&mut self) {
        self.files
            .iter_mut()
            .filter(|(path, _)| path.starts_with("/d/"))
            .for_each(|(_, file)| file.is_open = false);
    }

    /// Carries out a client's change, if the file exists.
    pub fn change(&mut self, change: Change) {
        self.now_ms += 1;
        let Some(mut file) = self.files.get("/d/f").cloned() else { return };
        file.modified_ms = self.now_ms + self.next();
        match change {
            Change::Append => {
                let contents = self.next();
                let block = self.block(contents, (0..usize::from(file.replication)).collect());
                file.blocks.push(block);
            }
            Change::Overwrite => {
                let stamp = self.next();
                let last = file.blocks.last_mut().expect("files have blocks");
                (last.stamp, last.contents) = (stamp, !last.contents);
            }
            Change::Truncate if file.blocks.len() > 2 => drop(file.blocks.pop()),
            Change::Truncate | Change::Touch => {}
            Change::Open => (file.is_open, file.modified_ms) = (true, self.files["/d/f"].modified_ms),
            Change::Rename | Change::Replace => {
                file.modified_ms = self.files["/d/f"].modified_ms;
                self.files.remove("/d/f");
                self.files.insert("/d/g".to_owned(), file);
                if change == Change::Replace {
                    self.add("/d/f", 5, 3);
                }
                return;
            }
            Change::Exchange => {
                for [from, to] in [["/d/f", "/d/g"], ["/p/d/f", "/p/d/g"]] {
                    let moved = self.files.remove(from);
                    moved.into_iter().for_each(|file| drop(self.files.insert(to.to_owned(), file)));
                }
                self.add_encoded("/d/f");
                return;
            }
            Change::Delete => {
                self.files.remove("/d/f");
                return;
            }
        }
        file.forget();
        self.files.insert("/d/f".to_owned(), file);
    }

    /// Returns the present path of a file that had this path and inode, or the same path if it is a folder.
    pub fn path_of(&self, path: &str, inode: Option<u64>) -> Result<String, Refused> {
        let Some(inode) = inode else { return Ok(path.to_owned()) };
        let mut files = self.files.iter();
        files.find(|(_, file)| file.inode == inode).map(|(path, _)| path.clone()).ok_or(Refused)
    }

    // The NameNode's calls.

    pub fn mkdirs(&mut self, path: &str) -> Result<(), Refused> {
        let mut folder = path;
        while !folder.is_empty() {
            if self.files.contains_key(folder) {
                return Err(Refused);
            }
            self.folders.insert(folder.to_owned());
            folder = folder_of(folder);
        }
        Ok(())
    }

    pub fn rename(&mut self, from: &str, to: &str, replaces: bool) -> Result<(), Refused> {
        if !self.folders.contains(folder_of(to)) || self.folders.contains(to) {
            return Err(Refused);
        }
        if self.folders.remove(from) {
            let below = format!("{from}/");
            let moved = |path: &str| path.replacen(from, to, 1);
            let all = std::mem::take(&mut self.files);
            let renamed = |(path, file): (String, SimFile)| {
                (if path.starts_with(&below) { moved(&path) } else { path }, file)
            };
            self.files = all.into_iter().map(renamed).collect();
            self.folders.insert(to.to_owned());
            return Ok(());
        }
        if !self.files.contains_key(from) || (self.files.contains_key(to) && !replaces) {
            return Err(Refused);
        }
        let file = self.files.remove(from).expect("checked");
        self.files.insert(to.to_owned(), file);
        Ok(())
    }

    pub fn delete(&mut self, path: &str) {
        let below = format!("{path}/");
        let is_kept = |other: &str| other != path && !other.starts_with(&below);
        self.files.retain(|other, _| is_kept(other));
        self.folders.retain(|other| is_kept(other));
    }

    pub fn create(&mut self, path: &str, address: &str) -> Result<(), Refused> {
        if !self.folders.contains(folder_of(path)) || self.files.contains_key(path) {
            return Err(Refused);
        }
        let node = self.node(address)?;
        let block = self.block(0, BTreeSet::from([node]));
        let inode = self.next();
        let (modified_ms, marks) = (self.now_ms, Marks::default());
        let file = SimFile { inode, replication: 1, modified_ms, is_open: true, marks, blocks: vec![block] };
        self.files.insert(path.to_owned(), file);
        Ok(())
    }

    /// Writes the parity block of the source's present bytes, even if they are not those that the facts
    /// describe.
    pub fn complete(
        &mut self,
        path: &str,
        source: &str,
        stripe: usize,
        parity: usize,
    ) -> Result<(), Refused> {
        let expected = self.files.get(source).map(SimFile::expected_parity).unwrap_or_default();
        let file = self.files.get_mut(path).filter(|file| file.is_open).ok_or(Refused)?;
        file.blocks[0].contents = expected.get(stripe * PARITY + parity).copied().unwrap_or(0);
        (file.is_open, file.modified_ms) = (false, self.now_ms);
        Ok(())
    }

    /// Compares parity with the data; refuses if the blocks are not those of the note.
    pub fn prove(&self, source: &str, note: &Note, parity: &[String]) -> Result<bool, Refused> {
        let source = self.files.get(source).ok_or(Refused)?;
        let files = parity.iter().map(|path| self.files.get(path).ok_or(Refused));
        let files = files.collect::<Result<Vec<_>, _>>()?;
        let blocks: Vec<Block> = files.iter().flat_map(|file| file.listed_blocks()).collect();
        if source.fingerprint() != note.source || Fingerprint::of(&blocks) != note.parity {
            return Err(Refused);
        }
        let contents = files.iter().flat_map(|file| file.blocks.iter().map(|block| block.contents));
        Ok(contents.eq(source.expected_parity()))
    }

    pub fn mark(&mut self, path: &str, mark: Mark) -> Result<(), Refused> {
        self.file(path).map(|file| file.marks.set(mark))
    }

    pub fn concat(&mut self, target: &str, sources: &[String]) -> Result<(), Refused> {
        if sources
            .iter()
            .chain([&target.to_owned()])
            .any(|path| self.files.get(path).is_none_or(|it| it.is_open))
        {
            return Err(Refused);
        }
        let joined: Vec<SimBlock> =
            sources.iter().filter_map(|path| self.files.remove(path)).flat_map(|file| file.blocks).collect();
        let now_ms = self.now_ms;
        let file = self.file(target)?;
        file.blocks.extend(joined);
        file.modified_ms = now_ms;
        Ok(())
    }

    pub fn set_time(&mut self, path: &str, modified_ms: u64) -> Result<(), Refused> {
        self.file(path).map(|file| file.modified_ms = modified_ms)
    }

    pub fn set_replication(&mut self, path: &str, replication: u16) -> Result<(), Refused> {
        let leaving = self.leaving.clone();
        let is_kept = self.files.get(path).is_some_and(|file| self.snapshotted.contains(&file.inode));
        let file = self.file(path)?;
        file.replication = replication;
        let blocks = file.blocks.iter_mut().filter(|_| !is_kept);
        blocks.for_each(|block| block.condemn(usize::from(replication), &leaving));
        Ok(())
    }

    pub fn replace_block(&mut self, path: &str, block: usize, from: &str, to: &str) -> Result<(), Refused> {
        let (from, to) = (self.node(from)?, self.node(to)?);
        let block = self.file(path)?.blocks.get_mut(block).ok_or(Refused)?;
        if !block.replicas.contains(&from) || !block.replicas.insert(to) {
            return Err(Refused);
        }
        block.dropped = Some(from);
        Ok(())
    }

    fn file(&mut self, path: &str) -> Result<&mut SimFile, Refused> {
        self.files.get_mut(path).ok_or(Refused)
    }

    /// Returns a live DataNode.
    fn node(&self, address: &str) -> Result<usize, Refused> {
        let is_gone = |node: &usize| self.dead.contains(node) || self.silent.contains(node);
        let is_it = |node: &usize| format!("10.0.0.{node}:9866") == address && !is_gone(node);
        (0..NODES).find(is_it).ok_or(Refused)
    }
}
