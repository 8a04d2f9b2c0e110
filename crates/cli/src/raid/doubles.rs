//! Listings for tests.

use std::collections::{BTreeMap, BTreeSet};

use hdfs_raid::{
    Block, Codec, File, Fingerprint, Folder, Listing, Marks, Members, Node, NodeIndex, Note, Notes, Owner,
    Storing,
};

/// Returns a listing with a file of two blocks on the first two of four DataNodes, of which the first `lost` blocks are
/// lost, and its parity by the codec `xor` on the third DataNode.
pub fn encoded(lost: usize) -> Listing {
    let data = (0..2).map(|at| block(at, at, at < lost)).collect();
    let files = vec![file(1, "/data/f", data), file(2, "/raid/data/f", vec![block(0, 2, false)])];
    Listing { nodes: (0..4).map(node).collect(), files, root: "/".to_owned(), ..Listing::default() }
}

/// Sets the note on the parity of a listing from [`encoded`].
pub fn note(listing: &mut Listing) {
    let [source, parity] = [0, 1].map(|at: usize| Fingerprint::of(&listing.files[at].blocks));
    let code = Some(Fingerprint::of_code(&Codec::hdfs_raid()[1].code));
    let note = Note { inode: 1, replication: 3, source, parity, code };
    let marks = Marks { note: Some(note), ..Marks::default() };
    listing.notes.marks = BTreeMap::from([("/raid/data/f".to_owned(), marks)]);
    listing.notes.living = BTreeSet::from([1]);
}

/// Returns a listing with the folder `/data`, which was encoded by the codec `dir-rs` when it had three files of one
/// block. A client has deleted the first one since, and the blocks of the first `lost` others are lost.
pub fn changed_folder(lost: usize) -> Listing {
    let folder = Folder { inode: 9, path: "/data".to_owned(), owner: Owner::Superuser, modified_ms: 0 };
    let recorded: Vec<Block> = (0..3).map(|at| block(at, at, false)).collect();
    let parity: Vec<Block> = (0..4).map(|at| block(10 + at, 3 + at, false)).collect();
    let note = Note {
        inode: folder.inode,
        replication: 3,
        source: Fingerprint::of(&recorded),
        parity: Fingerprint::of(&parity),
        code: Some(Fingerprint::of_code(&Codec::hdfs_raid()[2].code)),
    };
    let marks = Marks { note: Some(note), members: Some(Members::of(&recorded)), ..Marks::default() };
    let marks = BTreeMap::from([("/dir-raidrs/data".to_owned(), marks)]);
    let left = [("/data/b", 1), ("/data/c", 2)];
    let mut files: Vec<File> =
        left.map(|(path, at)| file(at as u64, path, vec![block(at, at, at <= lost)])).to_vec();
    files.push(file(5, "/dir-raidrs/data", parity));
    Listing {
        nodes: (0..8).map(node).collect(),
        files,
        folders: vec![folder],
        notes: Notes { marks, living: BTreeSet::from([9]), ..Notes::default() },
        root: "/".to_owned(),
        ..Listing::default()
    }
}

fn node(at: usize) -> Node {
    Node { address: format!("10.0.0.{at}:9866"), rack: "/r".into(), is_usable: true }
}

fn block(number: usize, node: usize, is_lost: bool) -> Block {
    let replicas = if is_lost { Vec::new() } else { vec![NodeIndex(node)] };
    Block { number: number as i64, stamp: 1, bytes: 1 << 20, replicas }
}

fn file(inode: u64, path: &str, blocks: Vec<Block>) -> File {
    File {
        inode,
        path: path.to_owned(),
        bytes: (blocks.len() as u64) << 20,
        block_bytes: 1 << 20,
        replication: 1,
        modified_ms: 0,
        owner: Owner::Superuser,
        storing: Storing::Replicated,
        is_open: false,
        blocks,
    }
}
