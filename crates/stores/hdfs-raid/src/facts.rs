//! The facts about one file or folder: the parts of a listing on which the next step of its encoding depends.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Bound::{Included, Unbounded};
use std::ops::Range;

use crate::folder::{FolderParity, LEAST_BYTES, joined, replicated_parts};
use crate::listing::parent;
use crate::policy::{check_file, snapshots_above};
use crate::stray::Strays;
use crate::survey::{Source, check_source, load_of};
use crate::{
    Cluster, Codec, Exclusion, File, Folder, Layout, Listing, Load, Marks, Members, Node, NodeIndex, Owner,
    RaidPolicy, Scope, Storing, StripeCodes, parity_path,
};

/// The names of folders with parity that is being made.
const DRAFT: &str = ".mend-";
/// The name of the file with the first parity block, which gets the note.
const FIRST_BLOCK: &str = "0-0";

/// The facts about one file or folder and its parity.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// The file at the source's path; or the folder as one file, whose blocks are those of its files.
    pub source: Option<MarkedFile>,
    /// The files of a folder in the order of the listing; none if the source is a file.
    pub parts: Vec<File>,
    /// The files of a folder that are too small for its stripes, and have a lower replication than the others. A client may
    /// have truncated them after they were encoded, so their replication is raised with that of the others, but never lowered.
    pub small: Vec<File>,
    /// The file at the path of its parity.
    pub parity: Option<MarkedFile>,
    /// The parity of the source at the path that belongs to its former name, if [`parity`](Self::parity) is no file, or the
    /// parity of another existing file. Its note names the source by the inode. It may be the parity of former contents.
    pub stray: Option<MarkedFile>,
    /// The folders with parity that is being made for this path, in the order of their names. Every user may create such
    /// folders, so those of other users than the superuser are left out.
    pub drafts: Vec<Draft>,
    /// The inode in the note on the parity, if such a file exists, also if only in a snapshot.
    pub living: Option<u64>,
    /// Why the source cannot or should not be encoded now.
    pub unfit: Option<Exclusion>,
    /// The folder above the source that has snapshots.
    pub snapshots: Option<String>,
}

/// Consecutive blocks of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent<'a> {
    /// The file.
    pub file: &'a File,
    /// Position of the first block in the file.
    pub first: usize,
    /// Number of blocks.
    pub blocks: usize,
}

/// A file with Mend's attributes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MarkedFile {
    /// The file.
    pub file: File,
    /// The attributes.
    pub marks: Marks,
}

/// A folder with parity that is being made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Draft {
    /// The folder.
    pub path: String,
    /// The version of the source, and the coordinator that encodes it.
    pub name: DraftName,
    /// The files in the folder.
    pub files: Vec<MarkedFile>,
}

/// The name of a draft's folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DraftName {
    /// The source's inode number.
    pub inode: u64,
    /// The source's modification time.
    pub modified_ms: u64,
    /// The term of the coordinator.
    pub term: u64,
}

/// The DataNodes of a listing, with their racks and loads.
#[derive(Clone, Debug)]
pub struct DataNodes {
    nodes: Vec<Node>,
    /// The DataNodes from which the NameNode has had no heartbeat for a while.
    pub(crate) silent: BTreeSet<NodeIndex>,
    pub(crate) cluster: Cluster,
    pub(crate) load: Load,
}

/// Finds the facts about files in a listing.
#[derive(Debug)]
pub struct FactFinder<'a> {
    listing: &'a Listing,
    files: BTreeMap<&'a str, &'a File>,
    folders: BTreeMap<&'a str, &'a Folder>,
    strays: Strays<'a>,
    codes: StripeCodes,
}

impl DraftName {
    /// Whether the parity is made for the present contents of the file.
    pub fn is_of(&self, source: &File) -> bool {
        (self.inode, self.modified_ms) == (source.inode, source.modified_ms)
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.strip_prefix(DRAFT)?.split('-').map(|number| number.parse::<u64>().ok());
        let (inode, modified_ms, term) = (numbers.next()??, numbers.next()??, numbers.next()??);
        numbers.next().is_none().then_some(Self { inode, modified_ms, term })
    }
}

impl fmt::Display for DraftName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{DRAFT}{}-{}-{}", self.inode, self.modified_ms, self.term)
    }
}

/// Returns the folder of a path's drafts.
pub(crate) fn draft_folder(codec: &Codec, source: &str) -> String {
    parity_path(&codec.draft_root(), source)
}

impl DataNodes {
    /// Returns the DataNodes of a listing.
    pub fn of(listing: &Listing) -> Self {
        let cluster = Cluster::new(&listing.nodes);
        let silent = listing.gaps.silent.iter().copied().collect();
        Self { nodes: listing.nodes.clone(), silent, cluster, load: load_of(listing) }
    }

    /// Returns the number of listed blocks on each DataNode, by its address.
    pub fn blocks(&self) -> BTreeMap<String, u64> {
        let blocks = |(at, node): (usize, &Node)| (node.address.clone(), self.load.of(NodeIndex(at)));
        self.nodes.iter().enumerate().map(blocks).collect()
    }

    /// Counts blocks of files that the listing does not contain, so that new blocks go to other DataNodes.
    pub fn add_blocks(&mut self, blocks: &BTreeMap<String, u64>) {
        for (at, node) in self.nodes.iter().enumerate() {
            let more = blocks.get(&node.address).copied().unwrap_or(0);
            self.load.add_blocks(NodeIndex(at), more);
        }
    }

    /// Returns the address of a DataNode.
    pub fn address(&self, node: NodeIndex) -> &str {
        &self.nodes[node.0].address
    }

    /// Returns the DataNode with this address.
    pub fn at(&self, address: &str) -> Option<NodeIndex> {
        self.nodes.iter().position(|node| node.address == address).map(NodeIndex)
    }

    /// Returns how many of these DataNodes are not silent.
    pub(crate) fn answering(&self, nodes: &[NodeIndex]) -> usize {
        nodes.iter().filter(|node| !self.silent.contains(node)).count()
    }

    /// Returns on how many of these DataNodes blocks can stay.
    pub(crate) fn usable_among(&self, nodes: &[NodeIndex]) -> usize {
        nodes.iter().filter(|node| self.nodes[node.0].is_usable).count()
    }

    /// Returns how many of these DataNodes are in service. Silent ones may answer again.
    pub(crate) fn in_service_among(&self, nodes: &[NodeIndex]) -> usize {
        let is_silent = |node: &&NodeIndex| self.silent.contains(node);
        self.usable_among(nodes) + nodes.iter().filter(is_silent).count()
    }

    /// Returns the DataNodes on which blocks can stay.
    pub(crate) fn usable(&self) -> impl Iterator<Item = NodeIndex> {
        let usable = self.nodes.iter().enumerate().filter(|(_, node)| node.is_usable);
        usable.map(|(at, _)| NodeIndex(at))
    }
}

impl Facts {
    /// Returns the files whose blocks are those of the source.
    pub fn files(&self) -> impl Iterator<Item = &File> {
        let own = self.source.iter().map(|found| &found.file).filter(|_| self.parts.is_empty());
        own.chain(&self.parts)
    }

    /// Returns where blocks of the source are, file by file.
    ///
    /// # Panics
    /// If the source does not have these blocks.
    pub fn extents(&self, blocks: Range<usize>) -> Vec<Extent<'_>> {
        let mut extents: Vec<Extent<'_>> = Vec::new();
        let places = self.places();
        for block in blocks {
            let (file, first) = self.place(&places, block);
            match extents.last_mut() {
                Some(last) if last.file.inode == file.inode && last.first + last.blocks == first => {
                    last.blocks += 1
                }
                _ => extents.push(Extent { file, first, blocks: 1 }),
            }
        }
        extents
    }

    /// Returns the file with a block of the source, and the position of the block in the file.
    fn place<'a>(&'a self, places: &BTreeMap<i64, (&'a File, usize)>, block: usize) -> (&'a File, usize) {
        let source = &self.source.as_ref().expect("it has blocks").file;
        places.get(&source.blocks[block].number).copied().unwrap_or((source, block))
    }

    /// Returns the file and the position of each block of a folder, by the numbers of the blocks.
    fn places(&self) -> BTreeMap<i64, (&File, usize)> {
        let parts = self.parts.iter();
        parts
            .flat_map(|part| {
                part.blocks.iter().enumerate().map(move |(at, block)| (block.number, (part, at)))
            })
            .collect()
    }

    /// Whether the replication of a file can be set. HDFS refuses this for the files of a folder that it erasure-codes itself.
    fn is_replicated(&self, file: &File) -> bool {
        file.storing != Storing::Striped || self.parts.is_empty()
    }

    /// Returns the source's files whose replication can be set.
    fn replicated(&self) -> impl Iterator<Item = &File> {
        self.files().filter(move |file| self.is_replicated(file))
    }

    /// Returns the lowest replication of the source's files.
    pub(crate) fn least_replication(&self) -> u16 {
        self.replicated().map(|file| file.replication).min().unwrap_or(0)
    }

    /// Returns the files with a lower replication than this.
    pub fn below(&self, replication: u16) -> Vec<&File> {
        let small = self.small.iter().filter(|file| self.is_replicated(file));
        self.replicated().chain(small).filter(|file| file.replication < replication).collect()
    }

    /// Returns the source's files with a higher replication than this.
    pub fn above(&self, replication: u16) -> Vec<&File> {
        self.replicated().filter(|file| file.replication > replication).collect()
    }

    /// Returns a term above those of all drafts.
    pub fn next_term(&self) -> u64 {
        self.drafts.iter().map(|draft| draft.name.term.saturating_add(1)).max().unwrap_or(1)
    }
}

impl<'a> FactFinder<'a> {
    /// Creates a finder. The listing must contain the parity files, the drafts, and the attributes of the
    /// [marked](Self::marked) files.
    pub fn new(listing: &'a Listing) -> Self {
        let files = listing.files.iter().map(|file| (file.path.as_str(), file)).collect();
        let folders = listing.folders.iter().map(|folder| (folder.path.as_str(), folder)).collect();
        Self { listing, files, folders, strays: Strays::of(listing), codes: StripeCodes::default() }
    }

    /// Returns the paths of the existing files and folders whose attributes are among the facts about a path.
    pub fn marked(&self, codec: &Codec, path: &str) -> Vec<String> {
        let parity = parity_path(&codec.parity_root, path);
        let is_folder = codec.scope == Scope::Folder && self.folders.contains_key(path);
        let own = [path, &parity]
            .into_iter()
            .filter(|it| self.files.contains_key(*it) || (is_folder && *it == path));
        // The note on parity that is being made is on its first block. Large files have thousands of others.
        let drafts =
            self.drafts(codec, path).into_iter().map(|(folder, _)| format!("{folder}/{FIRST_BLOCK}"));
        let drafts = drafts.filter(|path| self.files.contains_key(path.as_str()));
        own.map(str::to_owned).chain(drafts).collect()
    }

    /// Returns the facts about a path.
    pub fn facts(&self, codec: &Codec, policy: Option<&RaidPolicy>, path: &str, now_ms: u64) -> Facts {
        let draft = |(folder, name): (&str, DraftName)| {
            let files = self.files_in(folder).into_iter().map(|file| self.with_marks(file)).collect();
            Draft { path: folder.to_owned(), name, files }
        };
        let parity = self.files.get(parity_path(&codec.parity_root, path).as_str()).copied();
        let (source, parts) = self.source(codec, path, parity).unzip();
        let (source, parts): (Option<File>, Vec<File>) = (source, parts.unwrap_or_default());
        let folder = source.as_ref().filter(|_| codec.scope == Scope::Folder);
        let small = folder.map(|folder| self.small(folder, &parts));
        let is_foreign =
            |file: &File, parity: &File| self.listing.notes.foreign(file.inode, &parity.path).is_some();
        let moved = source.as_ref().filter(|file| parity.is_none_or(|parity| is_foreign(file, parity)));
        let stray = moved.and_then(|file| match codec.scope {
            Scope::File => self.strays.find(codec, file),
            Scope::Folder => self.stray_of_folder(codec, path, &parts),
        });
        let own = source.as_ref().map(|file| self.with_marks(file));
        let [parity, stray] = [parity, stray].map(|file| file.map(|file| self.with_marks(file)));
        let unfit = source.as_ref().and_then(|file| self.check(codec, policy, file, &parts, now_ms).err());
        let noted = parity.as_ref().and_then(|parity| parity.marks.note).map(|note| note.inode);
        // The parity of a folder whose files are gone belongs to no other source.
        let own_inode = self.folders.get(path).filter(|_| source.is_none()).map(|folder| folder.inode);
        let is_living = |inode: &u64| self.listing.notes.exists(*inode) && Some(*inode) != own_inode;
        Facts {
            source: own,
            parts,
            small: small.unwrap_or_default(),
            parity,
            stray,
            drafts: self.drafts(codec, path).into_iter().map(draft).collect(),
            living: noted.filter(is_living),
            unfit,
            snapshots: snapshots_above(self.listing, path).cloned(),
        }
    }

    /// Returns the file at a path; or the folder as one file, with its files, if there are any.
    fn source(&self, codec: &Codec, path: &str, parity: Option<&File>) -> Option<(File, Vec<File>)> {
        if codec.scope == Scope::File {
            return Some(((*self.files.get(path)?).clone(), Vec::new()));
        }
        let folder = self.folders.get(path)?;
        let own = self.files_in(path).into_iter().filter(|file| file.folder() == path);
        let record = self.record(folder, parity);
        let parts = replicated_parts(own.collect(), record.is_some());
        if parts.is_empty() {
            return None;
        }
        Some((joined(folder, &parts, record), parts.into_iter().cloned().collect()))
    }

    /// Returns the parity of a folder at the path that belongs to its former name. One that protects some of these files' blocks
    /// comes first.
    fn stray_of_folder(&self, codec: &Codec, path: &str, files: &[File]) -> Option<&'a File> {
        let folder = self.folders.get(path).copied()?;
        let files: Vec<&File> = files.iter().collect();
        let strays: Vec<&File> = self.strays.elsewhere(codec, folder.inode, path).collect();
        let protects_some = |parity: &&&File| {
            let found = FolderParity::of(self.listing, folder, files.clone(), parity, codec);
            found.is_ok_and(|it| it.protects_some())
        };
        strays.iter().find(protects_some).or(strays.first()).copied()
    }

    /// Returns the files of a folder that are not among these parts, are too small for its stripes, and have a lower
    /// replication than the parts.
    fn small(&self, folder: &File, parts: &[File]) -> Vec<File> {
        let own = self.files_in(&folder.path).into_iter().filter(|file| file.folder() == folder.path);
        let is_low = |file: &&File| file.bytes < LEAST_BYTES && file.replication < folder.replication;
        let is_other = |file: &&File| parts.iter().all(|part| part.inode != file.inode);
        own.filter(is_low).filter(is_other).cloned().collect()
    }

    /// Returns the record of a folder's parity, which may be at the path that belongs to the folder's former name.
    fn record(&self, folder: &Folder, parity: Option<&File>) -> Option<&Members> {
        match parity {
            Some(parity) => self.listing.notes.members(&parity.path),
            None => self.strays.noted(folder.inode).find_map(|stray| self.listing.notes.members(&stray.path)),
        }
    }

    fn with_marks(&self, file: &File) -> MarkedFile {
        let marks = self.listing.notes.marks.get(&file.path).cloned().unwrap_or_default();
        MarkedFile { file: file.clone(), marks }
    }

    fn check(
        &self,
        codec: &Codec,
        policy: Option<&RaidPolicy>,
        source: &File,
        parts: &[File],
        now_ms: u64,
    ) -> Result<(), Exclusion> {
        if !self.listing.is_repaired(&source.path) {
            return Err(Exclusion::Outside);
        }
        let policy = policy.ok_or(Exclusion::NoPolicy)?;
        if codec.scope == Scope::File {
            check_file(self.listing, source)?;
            let layout = Layout::of_file(source, codec)?;
            return check_source(&Source::of_file(source, layout), policy, codec, &self.codes, now_ms);
        }
        let path = source.path.as_str();
        if self.folders.keys().any(|folder| *folder != "/" && parent(folder) == path) {
            return Err(Exclusion::Subfolders(path.to_owned()));
        }
        for part in parts {
            let neighbour = |why| Exclusion::Neighbour { path: part.path.clone(), why: Box::new(why) };
            check_file(self.listing, part).map_err(neighbour)?;
        }
        let (folder, files) = (self.folders[path], parts.iter().collect::<Vec<&File>>());
        let layout = Layout::of_folder(&files, None, codec)?;
        check_source(&Source::of_folder(folder, files, layout), policy, codec, &self.codes, now_ms)
    }

    /// Returns the folders with parity that is being made for a path.
    fn drafts(&self, codec: &Codec, path: &str) -> Vec<(&'a str, DraftName)> {
        let root = format!("{}/", draft_folder(codec, path));
        let first = format!("{root}{DRAFT}");
        let below = self.folders.range::<str, _>((Included(first.as_str()), Unbounded));
        let drafts = below.take_while(|(path, _)| path.starts_with(&first));
        let drafts = drafts.filter(|(_, folder)| folder.owner == Owner::Superuser);
        drafts.filter_map(|(path, _)| Some((*path, DraftName::parse(&path[root.len()..])?))).collect()
    }

    fn files_in(&self, folder: &str) -> Vec<&'a File> {
        let first = format!("{folder}/");
        let below = self.files.range::<str, _>((Included(first.as_str()), Unbounded));
        below.take_while(|(path, _)| path.starts_with(&first)).map(|(_, &file)| file).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Block, Fingerprint, Note, Notes};

    fn file(path: &str) -> File {
        File {
            inode: 1,
            path: path.to_owned(),
            bytes: 0,
            block_bytes: 512,
            replication: 3,
            modified_ms: 2,
            owner: Owner::Superuser,
            storing: Storing::Replicated,
            is_open: false,
            blocks: Vec::new(),
        }
    }

    fn folder(path: &str, owner: Owner) -> Folder {
        Folder { inode: 0, path: path.to_owned(), modified_ms: 0, owner }
    }

    fn codec() -> Codec {
        Codec::new("c", "rs-5-3".parse().expect("a code"), "/p/", Scope::File)
    }

    #[test]
    fn parity_and_drafts_are_found_by_their_paths() {
        let folders = [
            "/tmp/p/d/f/.mend-1-2-3",
            "/tmp/p/d/f/.mend-1-2-3/4",
            "/tmp/p/d/f/.mend-1-2",
            "/tmp/p/d/f2/.mend-1-2-9",
        ];
        let folder = |path: &str| folder(path, Owner::Superuser);
        let files = [
            "/d/f",
            "/d/f2",
            "/p/d/f",
            "/tmp/p/d/f/.mend-1-2-3/0-0",
            "/tmp/p/d/f/.mend-1-2-3/0-1",
            "/tmp/p/d/f/.mend-1-2-30",
        ];
        let (folders, files) = (folders.map(folder).to_vec(), files.map(file).to_vec());
        let listing = Listing { folders, files, ..Listing::default() };
        let finder = FactFinder::new(&listing);
        assert_eq!(finder.marked(&codec(), "/d/f"), ["/d/f", "/p/d/f", "/tmp/p/d/f/.mend-1-2-3/0-0"]);
        let facts = finder.facts(&codec(), None, "/d/f", 0);
        let [draft] = &facts.drafts[..] else { panic!("one draft: {:?}", facts.drafts) };
        assert_eq!((draft.name.to_string().as_str(), draft.files.len()), (".mend-1-2-3", 2));
        assert!(draft.name.is_of(&file("/d/f")));
        assert_eq!((facts.next_term(), facts.unfit), (4, Some(Exclusion::NoPolicy)));
    }

    /// Otherwise, any user could take a file away from the coordinator, with a term that no program exceeds.
    #[test]
    fn folders_of_other_users_are_no_drafts() {
        let term = u64::MAX;
        let theirs = folder(&format!("/tmp/p/d/f/.mend-1-2-{term}"), Owner::User("other".into()));
        let files = ["/d/f", &format!("{}/0-0", theirs.path)].map(file).to_vec();
        let folders = vec![theirs, folder("/tmp/p/d/f/.mend-1-2-3", Owner::Superuser)];
        let listing = Listing { folders, files, ..Listing::default() };
        let finder = FactFinder::new(&listing);
        assert_eq!(finder.marked(&codec(), "/d/f"), ["/d/f"]);
        let facts = finder.facts(&codec(), None, "/d/f", 0);
        assert_eq!(facts.drafts.iter().map(|draft| draft.name.term).collect::<Vec<_>>(), [3]);
    }

    #[test]
    fn only_an_existing_inode_is_reported() {
        let none = crate::Fingerprint::of([]);
        let note = Note { inode: 7, replication: 3, source: none, parity: none, code: None };
        let marks = BTreeMap::from([("/p/d/f".to_owned(), Marks { note: Some(note), ..Marks::default() })]);
        let living = |present: &[u64], in_snapshots: &[u64]| {
            let [living, kept] = [present, in_snapshots].map(|inodes| inodes.iter().copied().collect());
            let notes = Notes { marks: marks.clone(), living, kept, ..Notes::default() };
            let files = vec![file("/d/f"), file("/p/d/f")];
            let listing = Listing { files, notes, ..Listing::default() };
            FactFinder::new(&listing).facts(&codec(), None, "/d/f", 0).living
        };
        assert_eq!([living(&[6, 7], &[]), living(&[6], &[7]), living(&[6], &[8])], [Some(7), Some(7), None]);
    }

    /// Returns a file of this many blocks with this stamp.
    fn with_blocks(path: &str, blocks: i64, stamp: u64) -> File {
        let block = |number| Block { number, stamp, bytes: 512, replicas: vec![NodeIndex(0)] };
        File { bytes: 512 * blocks as u64, blocks: (0..blocks).map(block).collect(), ..file(path) }
    }

    /// Returns the path of the stray parity of `/d/f`. The note names this inode, and blocks of the source with this
    /// stamp. Parity with the note is at these paths.
    fn stray(inode: u64, stamp: u64, paths: &[&str]) -> Option<String> {
        let print = |blocks, stamp| Fingerprint::of(&with_blocks("", blocks, stamp).blocks);
        let code = Some(Fingerprint::of_code(&codec().code));
        let note = Note { inode, replication: 3, source: print(3, stamp), parity: print(2, 9), code };
        let marks = Marks { note: Some(note), ..Marks::default() };
        let mut listing = Listing { files: vec![with_blocks("/d/f", 3, 7)], ..Listing::default() };
        listing.files.extend(paths.iter().map(|path| with_blocks(path, 2, 9)));
        listing.notes.marks = paths.iter().map(|&path| (path.to_owned(), marks.clone())).collect();
        let facts = FactFinder::new(&listing).facts(&codec(), None, "/d/f", 0);
        facts.stray.map(|found| found.file.path)
    }

    #[test]
    fn parity_at_a_former_path_is_found_by_its_note() {
        assert_eq!(stray(1, 7, &["/p/e/g"]).as_deref(), Some("/p/e/g"));
        assert_eq!(stray(2, 7, &["/p/e/g"]), None, "of another file");
        assert_eq!(stray(1, 8, &["/p/e/g"]).as_deref(), Some("/p/e/g"), "of former contents");
        assert_eq!(stray(1, 7, &["/q/e/g"]), None, "below another parity root");
        assert_eq!(stray(1, 7, &["/p/e/g", "/p/d/f"]), None, "the path is taken");
    }
}
