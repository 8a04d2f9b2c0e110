//! Tests of files, stripes and nodes in a catalog, across restarts.

mod rebuilding;

use std::collections::BTreeSet;

use codes::BlockIndex;
use codes::CodeSpec;
use proptest::prelude::*;
use repair::{BlockId, Digest, NodeId, StripeId};
use serde_json::json;
use store_api::names::{Era, Key};
use store_api::{
    BlockSize, BlockState, Catalog, Eras, FileRecord, OpenError, PutError, PutId, Records, StripeRecord,
};
use tempfile::TempDir;

use super::eras::ERAS;
use super::puts::NEXT_PUT;
use super::stripes::NEXT_STRIPE;
use super::tables::{META, QUEUE};
use super::*;

fn digest(sum: u32) -> Option<Digest> {
    Some(Digest::of_u32("crc32c-list", sum))
}

const CLUSTER: &str = "cluster-1";

/// Queries that only tests make. The coordinator keeps its own copy of the catalog in memory.
impl DirCatalog {
    fn publish(
        &mut self,
        stripe: &StripeId,
        block: BlockIndex,
        node: NodeId,
        digest: Option<Digest>,
    ) -> Result<(), CatalogError> {
        self.publish_all(stripe, &[(block, node, digest)])
    }

    fn set_state(
        &mut self,
        stripe: &StripeId,
        block: BlockIndex,
        state: BlockState,
    ) -> Result<(), CatalogError> {
        let node = self.stripe(stripe)?.blocks[usize::from(block.0)].node.expect("placed");
        self.set_states(&[(stripe.clone(), block, node, state)])
    }

    fn find_block(&self, block: &BlockId) -> Result<(StripeId, BlockIndex), CatalogError> {
        let missing = || CatalogError::NoSuchBlock(block.clone());
        let (stripe, index) = store_api::names::split_block(block).ok_or_else(missing)?;
        let stripe = match self.stripe(&stripe) {
            Err(CatalogError::NoSuchStripe(_)) => return Err(missing()),
            found => found?,
        };
        if usize::from(index.0) < stripe.blocks.len() { Ok((stripe.id, index)) } else { Err(missing()) }
    }

    /// Whether a block is newer than the catalog, apart from the catalog's own stripes.
    fn is_from_the_future(&self, block: &BlockId) -> Result<bool, CatalogError> {
        let next: u64 = self.look(|view| view.get(META, NEXT_STRIPE))?.unwrap_or(1);
        let eras: Eras = self.look(|view| view.get(META, ERAS))?.unwrap_or_default();
        Ok(eras.are_newer(block, next))
    }

    fn is_pending(&self, id: &StripeId) -> Option<bool> {
        let mut found = None;
        let mut visit =
            |stripe: StripeRecord, pending| found = (stripe.id == *id).then_some(pending).or(found);
        self.each_stripe(&mut visit).expect("readable");
        found
    }
}

/// Returns the blocks that a node holds or held last.
fn blocks_of(catalog: &DirCatalog, node: NodeId) -> Vec<(StripeId, BlockIndex)> {
    let mut found = Vec::new();
    let mut visit = |stripe: StripeRecord, _| {
        let stored =
            stripe.blocks.iter().enumerate().filter(|(_, block)| block.state != BlockState::NotStored);
        let there = stored.filter(|(_, block)| block.node == Some(node));
        found.extend(there.map(|(index, _)| (stripe.id.clone(), block_index(index))));
    };
    catalog.each_stripe(&mut visit).expect("readable");
    found
}

/// A catalog with five nodes, in a folder of its own.
struct CatalogTest {
    folder: TempDir,
    catalog: DirCatalog,
    nodes: Vec<NodeId>,
}

impl CatalogTest {
    /// Creates a catalog with five nodes.
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("catalog.redb");
        let mut catalog = DirCatalog::create(path, CLUSTER).expect("a new catalog");
        catalog.era = Era::NONE; // Names without an era are easier to read.
        let names = ["ann", "bob", "cat", "dan", "eve"];
        let nodes = names.iter().map(|name| catalog.node_id(name).expect("a number")).collect();
        Self { folder, catalog, nodes }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("catalog.redb")
    }

    fn restart(self) -> Self {
        let path = self.path();
        drop(self.catalog);
        let mut catalog = DirCatalog::open(path, CLUSTER).expect("it was closed");
        catalog.era = Era::NONE;
        Self { catalog, ..self }
    }

    /// Begins a file of `stripes` full stripes of RS(3,2) with blocks of 100 bytes.
    fn begin(&mut self, name: &str, stripes: u64) -> PutId {
        self.begin_or(name, stripes, false).expect("the name is free")
    }

    fn begin_or(&mut self, name: &str, stripes: u64, replace: bool) -> Result<PutId, PutError> {
        self.catalog.begin_put(
            name,
            200 * stripes,
            CodeSpec::reed_solomon(3, 2),
            BlockSize::whole(100),
            replace,
        )
    }

    fn allocate(&mut self, put: PutId, position: u32, nodes: [usize; 3]) -> StripeRecord {
        let nodes = nodes.map(|node| self.nodes[node]);
        self.catalog.allocate_stripe(put, position, BlockSize::whole(100), &nodes).expect("allocated")
    }

    fn publish(&mut self, stripe: &StripeRecord) {
        for (index, block) in stripe.blocks.iter().enumerate() {
            let digest = digest(1000 + index as u32);
            self.catalog
                .publish(&stripe.id, block_index(index), block.node.expect("placed"), digest)
                .expect("published");
        }
    }

    /// Puts a complete file.
    fn file(&mut self, name: &str, stripes: u32) -> FileRecord {
        let put = self.begin(name, stripes.into());
        for position in 0..stripes {
            let stripe = self.allocate(put, position, [0, 1, 2]);
            self.publish(&stripe);
        }
        self.catalog.commit_put(put).expect("complete")
    }

    fn stripe(&self, id: &str) -> StripeRecord {
        self.catalog.stripe(&StripeId(id.to_owned())).expect("there")
    }

    fn stripes(&self) -> Vec<String> {
        let mut ids = Vec::new();
        self.catalog
            .each_stripe(&mut |stripe, pending| ids.extend((!pending).then_some(stripe.id.0)))
            .expect("readable");
        ids
    }

    fn discards(&self, node: usize) -> Vec<String> {
        let blocks = self.catalog.discards(self.nodes[node]).expect("readable");
        blocks.into_iter().map(|block| block.0).collect()
    }

    fn blocks_of(&self, node: usize) -> Vec<String> {
        let blocks = blocks_of(&self.catalog, self.nodes[node]);
        blocks.into_iter().map(|(stripe, block)| format!("{stripe}.{}", block.0)).collect()
    }
}

fn block(name: &str) -> BlockId {
    BlockId(name.to_owned())
}

#[test]
fn a_put_becomes_a_file_at_once() {
    let mut test = CatalogTest::new();
    let put = test.begin("dir/file", 2);
    let first = test.allocate(put, 0, [0, 1, 2]);
    let second = test.allocate(put, 1, [2, 3, 4]);
    assert_eq!((first.id.0.as_str(), first.blocks[2].id.0.as_str()), ("1", "1.2"));
    assert_eq!(second.blocks.iter().filter_map(|block| block.node).collect::<Vec<_>>(), test.nodes[2..]);
    assert_eq!(
        test.catalog.find_block(&block("2.1")).expect("allocated"),
        (second.id.clone(), BlockIndex(1))
    );
    test.publish(&first);
    test.publish(&second);

    assert_eq!(test.catalog.file("dir/file").expect("readable"), None);
    assert_eq!(test.stripes(), [""; 0]);
    assert!(test.catalog.is_pending(&first.id).expect("known"));
    assert_eq!(test.blocks_of(2), ["1.2", "2.0"]);

    let file = test.catalog.commit_put(put).expect("complete");
    assert_eq!((file.bytes, file.block_bytes, file.stripes.len()), (400, 100, 2));
    assert!(file.created_unix_ms > 1_700_000_000_000);
    assert_eq!(test.stripes(), ["1", "2"]);
    assert!(!test.catalog.is_pending(&first.id).expect("known"));
    assert_eq!(test.catalog.puts().expect("readable"), []);
    assert!(matches!(test.catalog.commit_put(put), Err(PutError::NoSuchPut(_))));

    let test = test.restart();
    assert_eq!(test.catalog.file("dir/file").expect("readable"), Some(file));
    assert_eq!(test.stripes(), ["1", "2"]);
    assert_eq!(test.blocks_of(2), ["1.2", "2.0"]);
    assert_eq!(test.stripe("2").blocks[1].digest, digest(1001));
}

#[test]
fn an_empty_file_has_no_stripes() {
    let mut test = CatalogTest::new();
    let put = test.begin("empty", 0);
    let error = test
        .catalog
        .allocate_stripe(put, 0, BlockSize::whole(100), &test.nodes[..3])
        .expect_err("none needed");
    assert!(matches!(error, PutError::NoSuchPosition { stripes: 0, .. }));
    assert_eq!(test.catalog.commit_put(put).expect("complete").stripes, []);
}

#[test]
fn an_incomplete_put_is_not_committed() {
    let mut test = CatalogTest::new();
    let put = test.begin("f", 3);
    let commit_error =
        |test: &mut CatalogTest| test.catalog.commit_put(put).expect_err("incomplete").to_string();
    assert_eq!(
        commit_error(&mut test),
        "put p1 lacks the stripe at position 0: store this stripe, or abort the put"
    );
    let last = test.allocate(put, 2, [0, 1, 2]);
    let first = test.allocate(put, 0, [0, 1, 2]);
    test.publish(&last);
    test.publish(&first);
    assert!(commit_error(&mut test).contains("position 1"));
    let middle = test.allocate(put, 1, [0, 1, 2]);
    for index in [0, 2] {
        test.catalog
            .publish(&middle.id, BlockIndex(index), middle.blocks[0].node.expect("placed"), digest(7))
            .expect("published");
    }
    assert_eq!(
        commit_error(&mut test),
        "block 3.1 of put p1 is not stored yet: store the block, or abort the put"
    );
    assert_eq!(test.catalog.put(put).expect("it goes on").name, "f");
    test.publish(&middle);
    let file = test.catalog.commit_put(put).expect("complete");
    let ids: Vec<&str> = file.stripes.iter().map(|id| id.0.as_str()).collect();
    assert_eq!(ids, ["2", "3", "1"], "in file order, whatever the order of allocation");
}

#[test]
fn repeated_allocation_moves_the_blocks_of_a_stripe() {
    let mut test = CatalogTest::new();
    let put = test.begin("f", 1);
    let first = test.allocate(put, 0, [0, 1, 2]);
    test.publish(&first);
    let again = test.allocate(put, 0, [0, 3, 2]);
    assert_eq!(again.id, first.id);
    assert_eq!(again.blocks[1].node, Some(test.nodes[3]));
    assert!(again.blocks.iter().all(|block| (block.state, block.digest) == (BlockState::NotStored, None)));
    assert_eq!((test.discards(1), test.blocks_of(1)), (vec!["1.1".to_owned()], vec![]));
    assert_eq!((test.discards(0), test.discards(2)), (vec![], vec![]), "the new bytes replace these");
    assert!(matches!(test.catalog.commit_put(put), Err(PutError::Unpublished { .. })));

    // The block moved back to its first node, so that node must no longer remove it.
    let back = test.allocate(put, 0, [0, 1, 2]);
    assert_eq!((test.discards(1), test.discards(3)), (vec![], vec!["1.1".to_owned()]));
    test.publish(&back);
    let mut test = test.restart();
    test.catalog.commit_put(put).expect("complete");

    let put = test.begin("g", 1);
    test.allocate(put, 0, [0, 1, 2]);
    let error = test
        .catalog
        .allocate_stripe(put, 0, BlockSize::whole(64), &test.nodes[..3])
        .expect_err("another size");
    assert!(error.to_string().contains("has blocks of 100 bytes, not 64 bytes"), "{error}");
}

/// The second client stores other bytes and fails halfway.
#[test]
fn a_stripe_that_is_stored_again_keeps_no_block_of_the_first_time() {
    let mut test = CatalogTest::new();
    let put = test.begin("f", 1);
    let first = test.allocate(put, 0, [0, 1, 2]);
    test.publish(&first);
    let again = test.allocate(put, 0, [0, 1, 2]);
    let publish = |test: &mut CatalogTest, index: u16| {
        let (index, node) = (BlockIndex(index), test.nodes[usize::from(index)]);
        test.catalog.publish(&again.id, index, node, digest(2000)).expect("published");
    };
    publish(&mut test, 0);
    let mut test = test.restart();
    assert!(matches!(test.catalog.commit_put(put), Err(PutError::Unpublished { .. })));
    (1..3).for_each(|index| publish(&mut test, index));
    test.catalog.commit_put(put).expect("complete");
    let stripe = test.catalog.stripe(&again.id).expect("readable");
    assert!(stripe.blocks.iter().all(|block| block.digest == digest(2000)));
}

#[test]
fn a_put_that_was_left_keeps_its_blocks_for_the_operator() {
    let mut test = CatalogTest::new();
    let put = test.begin("f", 1);
    let stripe = test.allocate(put, 0, [0, 1, 2]);
    test.publish(&stripe);
    test.catalog.leave_put(put).expect("under way");
    assert_eq!(test.catalog.puts().expect("readable"), []);
    assert!(test.catalog.stripe(&stripe.id).is_err());
    assert!(test.nodes.iter().all(|&node| test.catalog.discards(node).expect("readable").is_empty()));
    assert!(matches!(test.catalog.leave_put(put), Err(PutError::NoSuchPut(_))));
    let next = test.begin("g", 1);
    assert_ne!(test.allocate(next, 0, [0, 1, 2]).id, stripe.id, "its name is not given again");
}

#[test]
fn an_aborted_put_leaves_only_discards() {
    let mut test = CatalogTest::new();
    let put = test.begin("f", 2);
    let stripe = test.allocate(put, 0, [0, 1, 2]);
    test.publish(&stripe);
    test.allocate(put, 1, [2, 3, 4]);
    let mut test = test.restart();
    let puts = test.catalog.puts().expect("readable");
    assert_eq!(puts.iter().map(|put| put.name.as_str()).collect::<Vec<_>>(), ["f"]);

    test.catalog.abort_put(put).expect("under way");
    assert_eq!(test.discards(2), ["1.2", "2.0"]);
    assert_eq!(test.discards(3), ["2.1"]);
    assert_eq!(test.blocks_of(0), [""; 0]);
    assert!(matches!(test.catalog.stripe(&stripe.id), Err(CatalogError::NoSuchStripe(_))));
    assert!(matches!(test.catalog.find_block(&block("1.0")), Err(CatalogError::NoSuchBlock(_))));
    assert!(test.catalog.publish(&stripe.id, BlockIndex(0), test.nodes[0], digest(1)).is_err());
    assert!(matches!(test.catalog.abort_put(put), Err(PutError::NoSuchPut(_))));

    test.catalog.discarded(test.nodes[2], &block("1.2")).expect("noted");
    test.catalog.discarded(test.nodes[2], &block("never")).expect("noted");
    let mut test = test.restart();
    assert_eq!(test.discards(2), ["2.0"]);
    let file = test.file("f", 1);
    assert_eq!(file.stripes[0].0, "3", "ids are not used again");
}

#[test]
fn a_removed_file_leaves_only_discards() {
    let mut test = CatalogTest::new();
    let kept = test.file("kept", 1);
    let gone = test.file("gone", 2);
    assert_eq!(test.catalog.remove_file("gone").expect("removable"), Some(gone));
    assert_eq!(test.catalog.remove_file("gone").expect("not there"), None);
    assert_eq!(test.discards(0), ["2.0", "3.0"]);
    assert_eq!(test.blocks_of(0), ["1.0"]);
    let test = test.restart();
    assert_eq!(test.catalog.files("").expect("readable"), [kept]);
    assert_eq!(test.stripes(), ["1"]);
    assert_eq!(test.discards(2), ["2.2", "3.2"]);
    assert_eq!(test.discards(3), [""; 0]);
}

#[test]
fn names_are_taken_by_the_first_commit() {
    let mut test = CatalogTest::new();
    let early = test.begin("f", 0);
    let file = test.file("f", 1);
    assert!(matches!(test.catalog.commit_put(early), Err(PutError::Exists { name }) if name == "f"));
    assert!(matches!(test.begin_or("f", 1, false), Err(PutError::Exists { .. })));
    assert_eq!(test.catalog.puts().expect("readable").len(), 1, "the loser can be aborted");

    let put = test.begin_or("f", 1, true).expect("to replace");
    let stripe = test.allocate(put, 0, [2, 3, 4]);
    test.publish(&stripe);
    assert_eq!(test.catalog.file("f").expect("readable"), Some(file));
    let new = test.catalog.commit_put(put).expect("complete");
    assert_eq!(test.catalog.file("f").expect("readable"), Some(new));
    assert_eq!(test.stripes(), ["2"]);
    assert_eq!(test.discards(0), ["1.0"]);
    assert_eq!(test.blocks_of(2), ["2.0"]);
}

#[test]
fn a_repaired_block_moves_and_its_old_copy_is_discarded() {
    let mut test = CatalogTest::new();
    test.file("f", 1);
    let id = StripeId("1".to_owned());
    test.catalog.set_state(&id, BlockIndex(1), BlockState::Missing).expect("recorded");
    test.catalog.set_state(&id, BlockIndex(1), BlockState::Missing).expect("known");
    let mut test = test.restart();
    assert_eq!(test.stripe("1").blocks[1].state, BlockState::Missing);
    assert_eq!(test.blocks_of(1), ["1.1"], "held last");

    test.catalog.publish(&id, BlockIndex(1), test.nodes[4], digest(1001)).expect("published");
    let moved = test.stripe("1").blocks[1].clone();
    assert_eq!(
        (moved.node, moved.state, moved.digest),
        (Some(test.nodes[4]), BlockState::Healthy, digest(1001))
    );
    assert_eq!((test.discards(1), test.blocks_of(1)), (vec!["1.1".to_owned()], vec![]));
    assert_eq!(test.blocks_of(4), ["1.1"]);

    // The block returns to the node that should have removed it.
    test.catalog.publish(&id, BlockIndex(1), test.nodes[1], digest(1001)).expect("published");
    assert_eq!((test.discards(1), test.discards(4)), (vec![], vec!["1.1".to_owned()]));
}

#[test]
fn several_blocks_are_recorded_together_or_not_at_all() {
    let mut test = CatalogTest::new();
    test.file("f", 2);
    let id = |name: &str| StripeId(name.to_owned());
    let (first, second) = (test.nodes[0], test.nodes[1]);
    let news = [
        (id("1"), BlockIndex(0), first, BlockState::Corrupt),
        (id("2"), BlockIndex(9), first, BlockState::Missing),
    ];
    let error = test.catalog.set_states(&news).expect_err("no such block").to_string();
    assert_eq!(error, "there is no block 2.9");
    assert_eq!(test.stripe("1").blocks[0].state, BlockState::Healthy);
    let old = [
        (id("1"), BlockIndex(0), second, BlockState::Missing),
        (id("7"), BlockIndex(0), first, BlockState::Missing),
    ];
    test.catalog.set_states(&old).expect("of no consequence");
    assert_eq!(test.stripe("1").blocks[0].state, BlockState::Healthy, "it is on another node, or gone");
    test.catalog.set_states(&news[..1]).expect("recorded");
    assert_eq!(test.stripe("1").blocks[0].state, BlockState::Corrupt);

    let moved = [(BlockIndex(0), test.nodes[3], digest(5)), (BlockIndex(3), test.nodes[4], digest(5))];
    assert!(test.catalog.publish_all(&id("1"), &moved).is_err());
    assert_eq!((test.discards(0), test.blocks_of(3)), (vec![], vec![]));
    test.catalog.publish_all(&id("1"), &moved[..1]).expect("recorded");
    assert_eq!((test.discards(0), test.blocks_of(3)), (vec!["1.0".to_owned()], vec!["1.0".to_owned()]));
}

#[test]
fn foreign_stripe_names_are_not_found() {
    let mut test = CatalogTest::new();
    test.file("f", 1);
    for name in ["", "x", "0", "2", "01", "+1", " 1", "1.0", "99999999999999999999"] {
        let result = test.catalog.stripe(&StripeId(name.to_owned()));
        assert!(matches!(result, Err(CatalogError::NoSuchStripe(_))), "{name}");
    }
    for name in ["", "1", "1.", "1.3", "1.00", "1.+1", "01.0", "1.0.0", "2.0", "1.65536", "blk_1"] {
        let result = test.catalog.find_block(&block(name));
        assert!(matches!(result, Err(CatalogError::NoSuchBlock(_))), "{name}");
    }
}

#[test]
fn files_are_found_by_prefix() {
    let mut test = CatalogTest::new();
    for name in ["a", "a/1", "a/2", "a0", "b", "ä/ö"] {
        test.file(name, 0);
    }
    let names = |prefix| {
        let files = test.catalog.files(prefix).expect("readable");
        files.into_iter().map(|file| file.name).collect::<Vec<_>>()
    };
    assert_eq!(names("a/"), ["a/1", "a/2"]);
    assert_eq!(names("ä"), ["ä/ö"]);
    assert_eq!(names("").len(), 6);
    assert_eq!(names("c"), [""; 0]);
}

#[test]
fn bad_puts_are_refused() {
    let mut test = CatalogTest::new();
    let long = "x".repeat(1025);
    for name in ["", "a\0b", long.as_str()] {
        assert!(matches!(test.begin_or(name, 1, false), Err(PutError::BadName { .. })));
    }
    test.begin(&long[1..], 1);
    let mut begin = |n, k, bytes, block_bytes| {
        let code = CodeSpec::reed_solomon(n, k);
        let size = BlockSize::whole(block_bytes);
        test.catalog.begin_put("f", bytes, code, size, false).expect_err("refused").to_string()
    };
    assert!(begin(3, 3, 1, 1).contains("must be more than"));
    assert!(begin(256, 3, 1, 1).contains("at most 255"));
    assert!(begin(3, 2, 1, 0).contains("blocks of 0 bytes"));
    assert!(begin(3, 2, 1, (256 << 30) + 1).contains("274877906944"));
    assert!(begin(3, 2, u64::MAX, 1).contains("choose larger blocks"));

    let hitchhiker: CodeSpec = "hitchhiker-xor-9-6".parse().unwrap();
    let uneven = BlockSize { block_bytes: 96, chunk_bytes: Some(36) };
    let error =
        test.catalog.begin_put("f", 1, hitchhiker, uneven, false).expect_err("96 is not 36 times something");
    assert!(matches!(error, PutError::Chunks(_)), "{error}");

    let put = test.begin("f", 1);
    let mut allocate = |position, block_bytes, nodes: usize| {
        let size = BlockSize::whole(block_bytes);
        test.catalog.allocate_stripe(put, position, size, &test.nodes[..nodes]).expect_err("refused")
    };
    assert!(matches!(allocate(1, 100, 3), PutError::NoSuchPosition { position: 1, stripes: 1, .. }));
    assert!(matches!(allocate(0, 0, 3), PutError::BlockBytes { .. }));
    assert!(matches!(allocate(0, 101, 3), PutError::BlockBytes { most: 100, .. }));
    assert_eq!(allocate(0, 100, 2).to_string(), "a stripe of rs-3-2 needs 3 nodes, not 2");
    assert!(matches!(test.catalog.abort_put(PutId(99)), Err(PutError::NoSuchPut(PutId(99)))));
}

#[test]
fn nodes_keep_their_numbers() {
    let mut test = CatalogTest::new();
    assert_eq!(test.nodes, [1, 2, 3, 4, 5].map(NodeId));
    test.catalog.set_node_address(NodeId(2), "127.0.0.1:7000").expect("known");
    let mut test = test.restart();
    assert_eq!(test.catalog.node_id("cat").expect("known"), NodeId(3));
    assert_eq!(test.catalog.node_id("fay").expect("new"), NodeId(6));
    let nodes = test.catalog.nodes().expect("readable");
    assert_eq!(nodes.iter().map(|node| node.id.0).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6]);
    assert_eq!((nodes[1].name.as_str(), nodes[1].address.as_deref()), ("bob", Some("127.0.0.1:7000")));
    assert_eq!(nodes[0].address, None);
}

#[test]
fn discards_of_the_last_node_are_found() {
    let mut test = CatalogTest::new();
    for node in [NodeId(0), NodeId(7), NodeId(8), NodeId(u32::MAX)] {
        test.catalog.discard(node, &block(&format!("{}.0", node.0))).expect("recorded");
        assert_eq!(test.catalog.discards(node).expect("readable"), [block(&format!("{}.0", node.0))]);
    }
}

#[test]
fn queue_records_can_be_stored_listed_and_removed() {
    let mut test = CatalogTest::new();
    for (key, value) in [("job/2", json!({"block": "1.1"})), ("job/1", json!(1)), ("history/1", json!(null))]
    {
        test.catalog.queue_put(key, &value).expect("kept");
    }
    test.catalog.queue_put("job/1", &json!(["again"])).expect("kept");
    let mut test = test.restart();
    let jobs = test.catalog.queue_list("job/").expect("readable");
    assert_eq!(jobs, [("job/1".to_owned(), json!(["again"])), ("job/2".to_owned(), json!({"block": "1.1"}))]);
    assert!(test.catalog.queue_remove("job/1").expect("there"));
    assert!(!test.catalog.queue_remove("job/1").expect("gone"));
    assert_eq!(test.catalog.queue_list("").expect("readable").len(), 2);
}

#[test]
fn job_numbers_only_grow() {
    let mut test = CatalogTest::new();
    let mut last = 0;
    for round in 0..30 {
        if round % 10 == 0 {
            test = test.restart();
        }
        let next = test.catalog.take_numbers(7).expect("numbers");
        assert!(next >= last);
        last = next + 7;
    }
}

#[test]
fn opening_a_missing_catalog_does_not_create_it() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("catalog.redb");
    let error = DirCatalog::open(&path, CLUSTER).expect_err("missing");
    assert!(matches!(error, OpenError::Missing { .. }));
    for part in ["there is no catalog at", "blocks on the helpers are untouched", "from a backup"] {
        assert!(error.to_string().contains(part), "{error}");
    }
    assert!(!path.exists());
}

#[test]
fn a_catalog_is_created_once_and_atomically() {
    let test = CatalogTest::new();
    let error = DirCatalog::create(test.path(), CLUSTER).expect_err("exists");
    assert!(matches!(error, OpenError::Exists { .. }));
    let names: Vec<_> = std::fs::read_dir(test.folder.path()).expect("readable").collect();
    assert_eq!(names.len(), 1, "no draft is left: {names:?}");
    let nowhere = test.folder.path().join("no/such/folder/catalog.redb");
    assert!(matches!(DirCatalog::create(nowhere, CLUSTER), Err(OpenError::Io { .. })));
}

#[test]
fn another_cluster_and_another_coordinator_are_refused() {
    let test = CatalogTest::new();
    let error = DirCatalog::open(test.path(), CLUSTER).expect_err("in use").to_string();
    assert!(error.contains("in use by another coordinator"), "{error}");
    let path = test.path();
    drop(test.catalog);
    let error = DirCatalog::open(&path, "cluster-2").expect_err("another").to_string();
    assert!(error.contains("belongs to cluster cluster-1, but this is cluster cluster-2"), "{error}");
    DirCatalog::open(&path, CLUSTER).expect("the right one");
}

#[test]
fn a_newer_catalog_version_is_reported() {
    let mut test = CatalogTest::new();
    let change = |change: &Change<'_>| change.put(META, "version", &7);
    test.catalog.change(change).expect("written");
    let path = test.path();
    drop(test.catalog);
    let error = DirCatalog::open(path, CLUSTER).expect_err("newer").to_string();
    assert!(error.contains("has version 7, but this program reads versions up to 4"), "{error}");
}

#[test]
fn a_catalog_of_version_3_is_upgraded() {
    let mut test = CatalogTest::new();
    let path = test.path();
    test.catalog.change(|change| change.put(META, "version", &3)).expect("written");
    drop(test.catalog);
    let catalog = DirCatalog::open(&path, CLUSTER).expect("it is read");
    let version = catalog.look(|view| view.get::<_, u32>(META, "version")).expect("readable");
    assert_eq!(version, Some(super::CATALOG_VERSION));
    let mut catalog = catalog;
    catalog.change(|change| change.put(META, "version", &2)).expect("written");
    drop(catalog);
    let error = DirCatalog::open(path, CLUSTER).expect_err("older").to_string();
    assert!(error.contains("has a version older than 3"), "{error}");
}

#[test]
fn files_that_are_not_catalogs_are_refused() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for bytes in [Vec::new(), b"hello".to_vec(), vec![0; 1 << 20]] {
        let path = folder.path().join("other");
        std::fs::write(&path, &bytes).expect("written");
        let error = DirCatalog::open(&path, CLUSTER).expect_err("not a catalog");
        assert!(matches!(error, OpenError::Damaged { .. }), "{error}");
        assert_eq!(std::fs::read(&path).expect("there"), bytes, "it is left alone");
    }
}

/// Copying the open file stands for a killed process: the file contains all commits, but no clean shutdown.
#[test]
fn a_copy_taken_without_closing_is_consistent() {
    let mut test = CatalogTest::new();
    let file = test.file("f", 2);
    let put = test.begin("half", 1);
    let stripe = test.allocate(put, 0, [0, 1, 2]);
    let copy = test.folder.path().join("copy.redb");
    std::fs::copy(test.path(), &copy).expect("copied");
    test.publish(&stripe);

    let copied = DirCatalog::open(&copy, CLUSTER).expect("recovered");
    assert_eq!(copied.files("").expect("readable"), [file]);
    assert_eq!(copied.puts().expect("readable").len(), 1);
    assert_eq!(copied.stripe(&stripe.id).expect("there"), stripe);
    assert_eq!(blocks_of(&copied, test.nodes[0]).len(), 2);
}

#[test]
fn names_stay_unique_after_restoring_an_old_catalog() {
    let mut test = CatalogTest::new();
    test.catalog.era = super::open::new_era();
    test.file("a", 1);
    let old = fs::read(test.path()).expect("closed or not, it is a file");
    let lost = test.file("b", 1);
    drop(test.catalog);
    fs::write(test.folder.path().join("catalog.redb"), old).expect("written");
    let catalog = DirCatalog::open(test.folder.path().join("catalog.redb"), CLUSTER).expect("the old one");
    let mut test = CatalogTest { catalog, ..test };
    let left = block(&format!("{}.0", lost.stripes[0]));
    assert!(test.catalog.is_from_the_future(&left).expect("readable"));
    let new = test.file("c", 1);
    assert_ne!(new.stripes, lost.stripes);
    let count = |file: &FileRecord| file.stripes[0].0.split_once('-').expect("an era").0.to_owned();
    assert_eq!(count(&new), count(&lost), "only the era tells them apart");
    assert!(test.catalog.find_block(&left).is_err());
    assert!(test.catalog.stripe(&StripeId(count(&new))).is_ok(), "people may leave the era out");
}

#[test]
fn an_ambiguous_short_name_lists_its_stripes() {
    let mut test = CatalogTest::new();
    let mut stripes = Vec::new();
    for name in ["a", "b"] {
        // Simulates the restore of an old catalog: stripes are counted again from an earlier number, but in
        // another era.
        test.catalog.change(|change| change.put(META, NEXT_STRIPE, &17)).expect("written");
        test.catalog.era = super::open::new_era();
        stripes.extend(test.file(name, 1).stripes);
    }
    let (first, second) = (&stripes[0], &stripes[1]);
    let mut listed = [first.0.clone(), second.0.clone()];
    listed.sort_by_key(|name| Key::of(&StripeId(name.clone())));
    let expected = format!("2 stripes have the number 17: {}, {}", listed[0], listed[1]);
    let error = test.catalog.stripe(&StripeId("17".to_owned())).expect_err("which?");
    assert_eq!(error.to_string(), expected);
    let error = test.catalog.find_block(&block("17.0")).expect_err("which?");
    assert_eq!(error.to_string(), expected);
    for stripe in &stripes {
        assert_eq!(test.catalog.stripe(stripe).expect("its whole name").id, *stripe);
        assert!(test.catalog.find_block(&block(&format!("{stripe}.0"))).is_ok());
    }
    let error = test.catalog.stripe(&StripeId("18".to_owned())).expect_err("nobody's");
    assert_eq!(error.to_string(), "there is no stripe 18");
}

#[test]
fn disclaimed_blocks_are_not_newer_and_use_up_no_numbers() {
    let mut test = CatalogTest::new();
    test.file("a", 1);
    assert!(test.catalog.is_from_the_future(&block("7.1")).expect("readable"));
    assert!(!test.catalog.is_from_the_future(&block("1.1")).expect("readable"));
    assert!(!test.catalog.is_from_the_future(&block("somebody's")).expect("readable"));
    test.catalog.disclaim(&[block("7-bbbbbb.1"), block("somebody's")].into()).expect("written");
    assert!(!test.catalog.is_from_the_future(&block("7-bbbbbb.0")).expect("readable"));
    assert!(test.catalog.is_from_the_future(&block("9-bbbbbb.0")).expect("readable"));
    assert!(test.catalog.is_from_the_future(&block("7-cccccc.0")).expect("readable"));
    assert_eq!(test.file("b", 1).stripes[0].0, "2");
}

#[test]
fn running_out_of_numbers_is_an_error_with_a_next_step() {
    let mut test = CatalogTest::new();
    let put = test.begin("a", 1);
    test.catalog
        .change(|change| change.put(META, NEXT_STRIPE, &(store_api::names::MAX_COUNT + 1)))
        .expect("written");
    let size = BlockSize::whole(64);
    let nodes: Vec<NodeId> =
        test.catalog.nodes().expect("readable").iter().map(|node| node.id).take(3).collect();
    let error = test.catalog.allocate_stripe(put, 0, size, &nodes).expect_err("no number").to_string();
    assert!(error.contains("mend catalog rebuild"), "{error}");
    test.catalog
        .change(|change| change.put(META, NEXT_PUT, &(store_api::names::MAX_COUNT + 1)))
        .expect("written");
    let error = test.begin_or("b", 1, false).expect_err("no number").to_string();
    assert!(error.contains("mend catalog rebuild"), "{error}");
}

#[test]
fn snapshots_are_restored_only_if_no_coordinator_is_running() {
    let mut test = CatalogTest::new();
    let a = test.file("a", 2);
    let copy = test.folder.path().join("copy.redb");
    let snapshot = test.catalog.snapshot().expect("readable");
    test.file("b", 1);
    snapshot.write(&copy).expect("written");
    snapshot.write(&copy).expect("over itself");
    drop(snapshot);
    // An operator may restore the copy by `cp`, so the copy itself says that its stripes are unproven.
    let copied = test.folder.path().join("copied.redb");
    fs::copy(&copy, &copied).expect("copied");
    let record = DirCatalog::open(&copied, CLUSTER)
        .expect("whole")
        .look(|view| view.get::<_, store_api::Unproven>(QUEUE, store_api::UNPROVEN))
        .expect("readable");
    assert_eq!(record, Some(store_api::Unproven::all(store_api::Replaced::Restored)));
    let (path, none) = (test.path(), BTreeSet::new());
    let error = DirCatalog::restore(&copy, &path, CLUSTER, &none).expect_err("in use");
    assert!(matches!(error, OpenError::Locked { .. }), "{error}");
    drop(test.catalog);
    let error = DirCatalog::restore(&copy, &path, "cluster-2", &none).expect_err("another cluster's");
    assert!(matches!(error, OpenError::OtherCluster { .. }), "{error}");
    let nothing = test.folder.path().join("nothing");
    assert!(matches!(DirCatalog::restore(&nothing, &path, CLUSTER, &none), Err(OpenError::Io { .. })));
    let helpers = BTreeSet::from(["bob".to_owned(), "new".to_owned()]);
    let restored = DirCatalog::restore(&copy, &path, CLUSTER, &helpers).expect("restored");
    let aside = restored.expect("there was one");
    let catalog = DirCatalog::open(&path, CLUSTER).expect("whole");
    let added = catalog.nodes().expect("readable").pop().expect("several");
    assert_eq!((added.name.as_str(), added.address), ("new", None), "it may hold newer blocks");
    assert_eq!(catalog.files("").expect("readable"), [a]);
    drop(catalog);
    let before = DirCatalog::open(aside, CLUSTER).expect("kept");
    assert_eq!(before.files("").expect("readable").len(), 2);
}

#[test]
fn the_last_good_copy_gives_way_only_to_a_complete_one() {
    let mut test = CatalogTest::new();
    let path = test.path();
    let [kept, former] = [copy_path(&path), former_copy_path(&path)];
    let files =
        |copy: &Path| DirCatalog::open(copy, CLUSTER).expect("whole").files("").expect("readable").len();
    let keep = |test: &CatalogTest| store_api::Snapshot::keep(&test.catalog.snapshot().expect("readable"));
    test.file("a", 1);
    keep(&test).expect("written");
    test.file("b", 1);
    keep(&test).expect("written");
    assert_eq!([files(&kept), files(&former)], [2, 1]);
    // A copy that cannot get its name leaves the others, and the operator is told of the remaining one.
    fs::remove_file(&former).expect("removed");
    fs::create_dir(&former).expect("created");
    assert!(remedy(&path).contains("catalog.redb.last-good`"), "{}", remedy(&path));
    keep(&test).expect_err("a file cannot replace a folder");
    assert_eq!(files(&kept), 2);
    fs::remove_dir(&former).expect("removed");
    fs::rename(&kept, &former).expect("renamed");
    assert!(remedy(&path).contains("catalog.redb.last-good.1`"), "{}", remedy(&path));
}

#[test]
fn a_copy_taken_during_a_put_does_not_harm_the_later_file() {
    let mut test = CatalogTest::new();
    test.catalog.begin_term().expect("written");
    test.file("gone", 1);
    test.catalog.remove_file("gone").expect("readable");
    let put = test.begin("late", 1);
    let stripe = test.allocate(put, 0, [0, 1, 2]);
    test.publish(&stripe);
    let copy = test.folder.path().join("copy.redb");
    test.catalog.snapshot().expect("readable").write(&copy).expect("written");
    test.catalog.commit_put(put).expect("complete");
    let path = test.path();
    drop(test.catalog);
    DirCatalog::restore(&copy, &path, CLUSTER, &BTreeSet::new()).expect("restored");
    let catalog = DirCatalog::open(&path, CLUSTER).expect("whole");
    // Open puts and pending removals are not restored. The blocks of the put are newer than the copy, because
    // the put may have become a file.
    assert_eq!(catalog.puts().expect("readable"), []);
    assert!(test.nodes.iter().all(|&node| catalog.discards(node).expect("readable").is_empty()));
    assert!(catalog.stripe(&stripe.id).is_err());
    let mut test = CatalogTest { catalog, ..test };
    test.catalog.begin_term().expect("written");
    test.file("new", 5);
    assert!(
        test.catalog.is_from_the_future(&stripe.blocks[0].id).expect("readable"),
        "though it was counted"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// A flipped bit either causes an error that names the remedy, or is in unused space and has no effect.
    #[test]
    fn a_flipped_bit_never_loses_data_silently(at in 0.0..1.0f64, bit in 0..8u32, clean in any::<bool>()) {
        let mut test = CatalogTest::new();
        for file in 0..8 {
            test.file(&format!("file-{file}"), 2);
        }
        let path = test.path();
        let (files, stripes) = (test.catalog.files("").expect("readable"), test.stripes());
        let mut bytes = if clean { Vec::new() } else { fs::read(&path).expect("open as it is") };
        drop(test.catalog);
        if clean {
            bytes = fs::read(&path).expect("closed");
        }
        let byte = (at * bytes.len() as f64) as usize;
        bytes[byte] ^= 1 << bit;
        fs::write(&path, bytes).expect("written");
        let read = || -> Result<_, OpenError> {
            let catalog = DirCatalog::open(&path, CLUSTER)?;
            let mut found = Vec::new();
            catalog.each_stripe(&mut |stripe, pending| found.extend((!pending).then_some(stripe.id.0)))?;
            Ok((catalog.files("")?, found))
        };
        match read() {
            Ok(found) => prop_assert_eq!(found, (files, stripes)),
            Err(error) => {
                let text = error.to_string();
                let named = text.contains("mend catalog re") || matches!(error, OpenError::Newer { .. } | OpenError::OtherCluster { .. });
                prop_assert!(named, "{}", text);
            }
        }
    }
}
