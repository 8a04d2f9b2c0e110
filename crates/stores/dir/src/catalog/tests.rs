//! Tests of files, stripes and nodes in a catalog, across restarts.

use codes::BlockIndex;
use codes::CodeSpec;
use proptest::prelude::*;
use repair::wire::control::Description;
use repair::{BlockId, Digest, NodeId, StripeId};
use serde_json::json;
use store_api::names::{Era, Key, MAX_COUNT};
use store_api::{
    BlockSize, BlockState, Catalog, FileRecord, Inventory, NodeRecord, OpenError, PutError, PutId, Records,
    StripeRecord,
};
use tempfile::TempDir;

use super::puts::NEXT_PUT;
use super::stripes::NEXT_STRIPE;
use super::tables::META;
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

    fn is_from_the_future(&self, block: &BlockId) -> Result<bool, CatalogError> {
        let next: u64 = self.look(|view| view.get(META, super::stripes::NEXT_STRIPE))?.unwrap_or(1);
        Ok(store_api::is_from_the_future(block, next))
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

struct Scene {
    folder: TempDir,
    catalog: DirCatalog,
    nodes: Vec<NodeId>,
}

impl Scene {
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
    let mut scene = Scene::new();
    let put = scene.begin("dir/file", 2);
    let first = scene.allocate(put, 0, [0, 1, 2]);
    let second = scene.allocate(put, 1, [2, 3, 4]);
    assert_eq!((first.id.0.as_str(), first.blocks[2].id.0.as_str()), ("1", "1.2"));
    assert_eq!(second.blocks.iter().filter_map(|block| block.node).collect::<Vec<_>>(), scene.nodes[2..]);
    assert_eq!(
        scene.catalog.find_block(&block("2.1")).expect("allocated"),
        (second.id.clone(), BlockIndex(1))
    );
    scene.publish(&first);
    scene.publish(&second);

    assert_eq!(scene.catalog.file("dir/file").expect("readable"), None);
    assert_eq!(scene.stripes(), [""; 0]);
    assert!(scene.catalog.is_pending(&first.id).expect("known"));
    assert_eq!(scene.blocks_of(2), ["1.2", "2.0"]);

    let file = scene.catalog.commit_put(put).expect("complete");
    assert_eq!((file.bytes, file.block_bytes, file.stripes.len()), (400, 100, 2));
    assert!(file.created_unix_ms > 1_700_000_000_000);
    assert_eq!(scene.stripes(), ["1", "2"]);
    assert!(!scene.catalog.is_pending(&first.id).expect("known"));
    assert_eq!(scene.catalog.puts().expect("readable"), []);
    assert!(matches!(scene.catalog.commit_put(put), Err(PutError::NoSuchPut(_))));

    let scene = scene.restart();
    assert_eq!(scene.catalog.file("dir/file").expect("readable"), Some(file));
    assert_eq!(scene.stripes(), ["1", "2"]);
    assert_eq!(scene.blocks_of(2), ["1.2", "2.0"]);
    assert_eq!(scene.stripe("2").blocks[1].digest, digest(1001));
}

#[test]
fn an_empty_file_has_no_stripes() {
    let mut scene = Scene::new();
    let put = scene.begin("empty", 0);
    let error = scene
        .catalog
        .allocate_stripe(put, 0, BlockSize::whole(100), &scene.nodes[..3])
        .expect_err("none needed");
    assert!(matches!(error, PutError::NoSuchPosition { stripes: 0, .. }));
    assert_eq!(scene.catalog.commit_put(put).expect("complete").stripes, []);
}

#[test]
fn an_incomplete_put_is_not_committed() {
    let mut scene = Scene::new();
    let put = scene.begin("f", 3);
    let commit_error = |scene: &mut Scene| scene.catalog.commit_put(put).expect_err("incomplete").to_string();
    assert_eq!(
        commit_error(&mut scene),
        "put p1 lacks the stripe at position 0: store this stripe, or abort the put"
    );
    let last = scene.allocate(put, 2, [0, 1, 2]);
    let first = scene.allocate(put, 0, [0, 1, 2]);
    scene.publish(&last);
    scene.publish(&first);
    assert!(commit_error(&mut scene).contains("position 1"));
    let middle = scene.allocate(put, 1, [0, 1, 2]);
    for index in [0, 2] {
        scene
            .catalog
            .publish(&middle.id, BlockIndex(index), middle.blocks[0].node.expect("placed"), digest(7))
            .expect("published");
    }
    assert_eq!(
        commit_error(&mut scene),
        "block 3.1 of put p1 is not stored yet: store the block, or abort the put"
    );
    assert_eq!(scene.catalog.put(put).expect("it goes on").name, "f");
    scene.publish(&middle);
    let file = scene.catalog.commit_put(put).expect("complete");
    let ids: Vec<&str> = file.stripes.iter().map(|id| id.0.as_str()).collect();
    assert_eq!(ids, ["2", "3", "1"], "in file order, whatever the order of allocation");
}

#[test]
fn repeated_allocation_moves_the_blocks_of_a_stripe() {
    let mut scene = Scene::new();
    let put = scene.begin("f", 1);
    let first = scene.allocate(put, 0, [0, 1, 2]);
    scene.publish(&first);
    let again = scene.allocate(put, 0, [0, 3, 2]);
    assert_eq!(again.id, first.id);
    assert_eq!(again.blocks[1].node, Some(scene.nodes[3]));
    let digests: Vec<Option<Digest>> = again.blocks.iter().map(|block| block.digest).collect();
    assert_eq!(digests, [digest(1000), None, digest(1002)]);
    assert_eq!((scene.discards(1), scene.blocks_of(1)), (vec!["1.1".to_owned()], vec![]));
    assert!(matches!(scene.catalog.commit_put(put), Err(PutError::Unpublished { .. })));

    // The block moved back to its first node, so that node must no longer remove it.
    let back = scene.allocate(put, 0, [0, 1, 2]);
    assert_eq!((scene.discards(1), scene.discards(3)), (vec![], vec!["1.1".to_owned()]));
    scene.publish(&back);
    let mut scene = scene.restart();
    scene.catalog.commit_put(put).expect("complete");

    let put = scene.begin("g", 1);
    scene.allocate(put, 0, [0, 1, 2]);
    let error = scene
        .catalog
        .allocate_stripe(put, 0, BlockSize::whole(64), &scene.nodes[..3])
        .expect_err("another size");
    assert!(error.to_string().contains("has blocks of 100 bytes, not 64 bytes"), "{error}");
}

#[test]
fn a_put_that_was_left_keeps_its_blocks_for_the_operator() {
    let mut scene = Scene::new();
    let put = scene.begin("f", 1);
    let stripe = scene.allocate(put, 0, [0, 1, 2]);
    scene.publish(&stripe);
    scene.catalog.leave_put(put).expect("under way");
    assert_eq!(scene.catalog.puts().expect("readable"), []);
    assert!(scene.catalog.stripe(&stripe.id).is_err());
    assert!(scene.nodes.iter().all(|&node| scene.catalog.discards(node).expect("readable").is_empty()));
    assert!(matches!(scene.catalog.leave_put(put), Err(PutError::NoSuchPut(_))));
    let next = scene.begin("g", 1);
    assert_ne!(scene.allocate(next, 0, [0, 1, 2]).id, stripe.id, "its name is not given again");
}

#[test]
fn an_aborted_put_leaves_only_discards() {
    let mut scene = Scene::new();
    let put = scene.begin("f", 2);
    let stripe = scene.allocate(put, 0, [0, 1, 2]);
    scene.publish(&stripe);
    scene.allocate(put, 1, [2, 3, 4]);
    let mut scene = scene.restart();
    let puts = scene.catalog.puts().expect("readable");
    assert_eq!(puts.iter().map(|put| put.name.as_str()).collect::<Vec<_>>(), ["f"]);

    scene.catalog.abort_put(put).expect("under way");
    assert_eq!(scene.discards(2), ["1.2", "2.0"]);
    assert_eq!(scene.discards(3), ["2.1"]);
    assert_eq!(scene.blocks_of(0), [""; 0]);
    assert!(matches!(scene.catalog.stripe(&stripe.id), Err(CatalogError::NoSuchStripe(_))));
    assert!(matches!(scene.catalog.find_block(&block("1.0")), Err(CatalogError::NoSuchBlock(_))));
    assert!(scene.catalog.publish(&stripe.id, BlockIndex(0), scene.nodes[0], digest(1)).is_err());
    assert!(matches!(scene.catalog.abort_put(put), Err(PutError::NoSuchPut(_))));

    scene.catalog.discarded(scene.nodes[2], &block("1.2")).expect("noted");
    scene.catalog.discarded(scene.nodes[2], &block("never")).expect("noted");
    let mut scene = scene.restart();
    assert_eq!(scene.discards(2), ["2.0"]);
    let file = scene.file("f", 1);
    assert_eq!(file.stripes[0].0, "3", "ids are not used again");
}

#[test]
fn a_removed_file_leaves_only_discards() {
    let mut scene = Scene::new();
    let kept = scene.file("kept", 1);
    let gone = scene.file("gone", 2);
    assert_eq!(scene.catalog.remove_file("gone").expect("removable"), Some(gone));
    assert_eq!(scene.catalog.remove_file("gone").expect("not there"), None);
    assert_eq!(scene.discards(0), ["2.0", "3.0"]);
    assert_eq!(scene.blocks_of(0), ["1.0"]);
    let scene = scene.restart();
    assert_eq!(scene.catalog.files("").expect("readable"), [kept]);
    assert_eq!(scene.stripes(), ["1"]);
    assert_eq!(scene.discards(2), ["2.2", "3.2"]);
    assert_eq!(scene.discards(3), [""; 0]);
}

#[test]
fn names_are_taken_by_the_first_commit() {
    let mut scene = Scene::new();
    let early = scene.begin("f", 0);
    let file = scene.file("f", 1);
    assert!(matches!(scene.catalog.commit_put(early), Err(PutError::Exists { name }) if name == "f"));
    assert!(matches!(scene.begin_or("f", 1, false), Err(PutError::Exists { .. })));
    assert_eq!(scene.catalog.puts().expect("readable").len(), 1, "the loser can be aborted");

    let put = scene.begin_or("f", 1, true).expect("to replace");
    let stripe = scene.allocate(put, 0, [2, 3, 4]);
    scene.publish(&stripe);
    assert_eq!(scene.catalog.file("f").expect("readable"), Some(file));
    let new = scene.catalog.commit_put(put).expect("complete");
    assert_eq!(scene.catalog.file("f").expect("readable"), Some(new));
    assert_eq!(scene.stripes(), ["2"]);
    assert_eq!(scene.discards(0), ["1.0"]);
    assert_eq!(scene.blocks_of(2), ["2.0"]);
}

#[test]
fn a_repaired_block_moves_and_its_old_copy_is_discarded() {
    let mut scene = Scene::new();
    scene.file("f", 1);
    let id = StripeId("1".to_owned());
    scene.catalog.set_state(&id, BlockIndex(1), BlockState::Missing).expect("recorded");
    scene.catalog.set_state(&id, BlockIndex(1), BlockState::Missing).expect("known");
    let mut scene = scene.restart();
    assert_eq!(scene.stripe("1").blocks[1].state, BlockState::Missing);
    assert_eq!(scene.blocks_of(1), ["1.1"], "held last");

    scene.catalog.publish(&id, BlockIndex(1), scene.nodes[4], digest(1001)).expect("published");
    let moved = scene.stripe("1").blocks[1].clone();
    assert_eq!(
        (moved.node, moved.state, moved.digest),
        (Some(scene.nodes[4]), BlockState::Healthy, digest(1001))
    );
    assert_eq!((scene.discards(1), scene.blocks_of(1)), (vec!["1.1".to_owned()], vec![]));
    assert_eq!(scene.blocks_of(4), ["1.1"]);

    // The block returns to the node that should have removed it.
    scene.catalog.publish(&id, BlockIndex(1), scene.nodes[1], digest(1001)).expect("published");
    assert_eq!((scene.discards(1), scene.discards(4)), (vec![], vec!["1.1".to_owned()]));
}

#[test]
fn several_blocks_are_recorded_together_or_not_at_all() {
    let mut scene = Scene::new();
    scene.file("f", 2);
    let id = |name: &str| StripeId(name.to_owned());
    let (first, second) = (scene.nodes[0], scene.nodes[1]);
    let news = [
        (id("1"), BlockIndex(0), first, BlockState::Corrupt),
        (id("2"), BlockIndex(9), first, BlockState::Missing),
    ];
    let error = scene.catalog.set_states(&news).expect_err("no such block").to_string();
    assert_eq!(error, "there is no block 2.9");
    assert_eq!(scene.stripe("1").blocks[0].state, BlockState::Healthy);
    let old = [
        (id("1"), BlockIndex(0), second, BlockState::Missing),
        (id("7"), BlockIndex(0), first, BlockState::Missing),
    ];
    scene.catalog.set_states(&old).expect("of no consequence");
    assert_eq!(scene.stripe("1").blocks[0].state, BlockState::Healthy, "it is on another node, or gone");
    scene.catalog.set_states(&news[..1]).expect("recorded");
    assert_eq!(scene.stripe("1").blocks[0].state, BlockState::Corrupt);

    let moved = [(BlockIndex(0), scene.nodes[3], digest(5)), (BlockIndex(3), scene.nodes[4], digest(5))];
    assert!(scene.catalog.publish_all(&id("1"), &moved).is_err());
    assert_eq!((scene.discards(0), scene.blocks_of(3)), (vec![], vec![]));
    scene.catalog.publish_all(&id("1"), &moved[..1]).expect("recorded");
    assert_eq!((scene.discards(0), scene.blocks_of(3)), (vec!["1.0".to_owned()], vec!["1.0".to_owned()]));
}

#[test]
fn foreign_stripe_names_are_not_found() {
    let mut scene = Scene::new();
    scene.file("f", 1);
    for name in ["", "x", "0", "2", "01", "+1", " 1", "1.0", "99999999999999999999"] {
        let result = scene.catalog.stripe(&StripeId(name.to_owned()));
        assert!(matches!(result, Err(CatalogError::NoSuchStripe(_))), "{name}");
    }
    for name in ["", "1", "1.", "1.3", "1.00", "1.+1", "01.0", "1.0.0", "2.0", "1.65536", "blk_1"] {
        let result = scene.catalog.find_block(&block(name));
        assert!(matches!(result, Err(CatalogError::NoSuchBlock(_))), "{name}");
    }
}

#[test]
fn files_are_found_by_prefix() {
    let mut scene = Scene::new();
    for name in ["a", "a/1", "a/2", "a0", "b", "ä/ö"] {
        scene.file(name, 0);
    }
    let names = |prefix| {
        let files = scene.catalog.files(prefix).expect("readable");
        files.into_iter().map(|file| file.name).collect::<Vec<_>>()
    };
    assert_eq!(names("a/"), ["a/1", "a/2"]);
    assert_eq!(names("ä"), ["ä/ö"]);
    assert_eq!(names("").len(), 6);
    assert_eq!(names("c"), [""; 0]);
}

#[test]
fn bad_puts_are_refused() {
    let mut scene = Scene::new();
    let long = "x".repeat(1025);
    for name in ["", "a\0b", long.as_str()] {
        assert!(matches!(scene.begin_or(name, 1, false), Err(PutError::BadName { .. })));
    }
    scene.begin(&long[1..], 1);
    let mut begin = |n, k, bytes, block_bytes| {
        let code = CodeSpec::reed_solomon(n, k);
        let size = BlockSize::whole(block_bytes);
        scene.catalog.begin_put("f", bytes, code, size, false).expect_err("refused").to_string()
    };
    assert!(begin(3, 3, 1, 1).contains("must be more than"));
    assert!(begin(256, 3, 1, 1).contains("at most 255"));
    assert!(begin(3, 2, 1, 0).contains("blocks of 0 bytes"));
    assert!(begin(3, 2, 1, (256 << 30) + 1).contains("274877906944"));
    assert!(begin(3, 2, u64::MAX, 1).contains("choose larger blocks"));

    let hitchhiker: CodeSpec = "hitchhiker-xor-9-6".parse().unwrap();
    let uneven = BlockSize { block_bytes: 96, chunk_bytes: Some(36) };
    let error =
        scene.catalog.begin_put("f", 1, hitchhiker, uneven, false).expect_err("96 is not 36 times something");
    assert!(matches!(error, PutError::Chunks(_)), "{error}");

    let put = scene.begin("f", 1);
    let mut allocate = |position, block_bytes, nodes: usize| {
        let size = BlockSize::whole(block_bytes);
        scene.catalog.allocate_stripe(put, position, size, &scene.nodes[..nodes]).expect_err("refused")
    };
    assert!(matches!(allocate(1, 100, 3), PutError::NoSuchPosition { position: 1, stripes: 1, .. }));
    assert!(matches!(allocate(0, 0, 3), PutError::BlockBytes { .. }));
    assert!(matches!(allocate(0, 101, 3), PutError::BlockBytes { most: 100, .. }));
    assert_eq!(allocate(0, 100, 2).to_string(), "a stripe of rs-3-2 needs 3 nodes, not 2");
    assert!(matches!(scene.catalog.abort_put(PutId(99)), Err(PutError::NoSuchPut(PutId(99)))));
}

#[test]
fn nodes_keep_their_numbers() {
    let mut scene = Scene::new();
    assert_eq!(scene.nodes, [1, 2, 3, 4, 5].map(NodeId));
    scene.catalog.set_node_address(NodeId(2), "127.0.0.1:7000").expect("known");
    let mut scene = scene.restart();
    assert_eq!(scene.catalog.node_id("cat").expect("known"), NodeId(3));
    assert_eq!(scene.catalog.node_id("fay").expect("new"), NodeId(6));
    let nodes = scene.catalog.nodes().expect("readable");
    assert_eq!(nodes.iter().map(|node| node.id.0).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6]);
    assert_eq!((nodes[1].name.as_str(), nodes[1].address.as_deref()), ("bob", Some("127.0.0.1:7000")));
    assert_eq!(nodes[0].address, None);
}

#[test]
fn discards_of_the_last_node_are_found() {
    let mut scene = Scene::new();
    for node in [NodeId(0), NodeId(7), NodeId(8), NodeId(u32::MAX)] {
        scene.catalog.discard(node, &block(&format!("{}.0", node.0))).expect("recorded");
        assert_eq!(scene.catalog.discards(node).expect("readable"), [block(&format!("{}.0", node.0))]);
    }
}

#[test]
fn queue_records_can_be_stored_listed_and_removed() {
    let mut scene = Scene::new();
    for (key, value) in [("job/2", json!({"block": "1.1"})), ("job/1", json!(1)), ("history/1", json!(null))]
    {
        scene.catalog.queue_put(key, &value).expect("kept");
    }
    scene.catalog.queue_put("job/1", &json!(["again"])).expect("kept");
    let mut scene = scene.restart();
    let jobs = scene.catalog.queue_list("job/").expect("readable");
    assert_eq!(jobs, [("job/1".to_owned(), json!(["again"])), ("job/2".to_owned(), json!({"block": "1.1"}))]);
    assert!(scene.catalog.queue_remove("job/1").expect("there"));
    assert!(!scene.catalog.queue_remove("job/1").expect("gone"));
    assert_eq!(scene.catalog.queue_list("").expect("readable").len(), 2);
}

#[test]
fn job_numbers_only_grow() {
    let mut scene = Scene::new();
    let mut last = 0;
    for round in 0..30 {
        if round % 10 == 0 {
            scene = scene.restart();
        }
        let next = scene.catalog.take_numbers(7).expect("numbers");
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
    let scene = Scene::new();
    let error = DirCatalog::create(scene.path(), CLUSTER).expect_err("exists");
    assert!(matches!(error, OpenError::Exists { .. }));
    let names: Vec<_> = std::fs::read_dir(scene.folder.path()).expect("readable").collect();
    assert_eq!(names.len(), 1, "no draft is left: {names:?}");
    let nowhere = scene.folder.path().join("no/such/folder/catalog.redb");
    assert!(matches!(DirCatalog::create(nowhere, CLUSTER), Err(OpenError::Io { .. })));
}

#[test]
fn another_cluster_and_another_coordinator_are_refused() {
    let scene = Scene::new();
    let error = DirCatalog::open(scene.path(), CLUSTER).expect_err("in use").to_string();
    assert!(error.contains("in use by another coordinator"), "{error}");
    let path = scene.path();
    drop(scene.catalog);
    let error = DirCatalog::open(&path, "cluster-2").expect_err("another").to_string();
    assert!(error.contains("belongs to cluster cluster-1, but this is cluster cluster-2"), "{error}");
    DirCatalog::open(&path, CLUSTER).expect("the right one");
}

#[test]
fn a_newer_catalog_version_is_reported() {
    let mut scene = Scene::new();
    let change = |change: &Change<'_>| change.put(META, "version", &7);
    scene.catalog.change(change).expect("written");
    let path = scene.path();
    drop(scene.catalog);
    let error = DirCatalog::open(path, CLUSTER).expect_err("newer").to_string();
    assert!(error.contains("has version 7, but this program reads versions up to 4"), "{error}");
}

#[test]
fn a_catalog_of_version_3_is_upgraded() {
    let mut scene = Scene::new();
    let path = scene.path();
    scene.catalog.change(|change| change.put(META, "version", &3)).expect("written");
    drop(scene.catalog);
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
    let mut scene = Scene::new();
    let file = scene.file("f", 2);
    let put = scene.begin("half", 1);
    let stripe = scene.allocate(put, 0, [0, 1, 2]);
    let copy = scene.folder.path().join("copy.redb");
    std::fs::copy(scene.path(), &copy).expect("copied");
    scene.publish(&stripe);

    let copied = DirCatalog::open(&copy, CLUSTER).expect("recovered");
    assert_eq!(copied.files("").expect("readable"), [file]);
    assert_eq!(copied.puts().expect("readable").len(), 1);
    assert_eq!(copied.stripe(&stripe.id).expect("there"), stripe);
    assert_eq!(blocks_of(&copied, scene.nodes[0]).len(), 2);
}

/// Returns the inventories that the helpers would report, in the order of the nodes.
fn inventories(catalog: &DirCatalog) -> Vec<Inventory> {
    let of = |node: &NodeRecord| {
        let blocks = blocks_of(catalog, node.id).into_iter().map(|(stripe, index)| {
            let record = catalog.stripe(&stripe).expect("there");
            let block = &record.blocks[usize::from(index.0)];
            Description {
                id: block.id.clone(),
                bytes: block.bytes,
                digest: block.digest,
                label: Some((index, record.label(CLUSTER).expect("ours have labels"))),
            }
        });
        Inventory { node: node.name.clone(), address: "x:1".to_owned(), blocks: blocks.collect() }
    };
    catalog.nodes().expect("readable").iter().map(of).collect()
}

/// Rebuilds a catalog from these inventories, in a new folder inside the scene's folder, and returns the
/// catalog with the report.
fn rebuilt(scene: &Scene, inventories: &[Inventory], complete: bool) -> (DirCatalog, Rebuilt) {
    let folder = tempfile::tempdir_in(scene.folder.path()).expect("a temporary folder");
    let path = folder.keep().join("catalog.redb");
    let said = DirCatalog::rebuild(&path, CLUSTER, inventories, usize::from(!complete)).expect("rebuilt");
    (DirCatalog::open(path, CLUSTER).expect("whole"), said)
}

#[test]
fn names_stay_unique_after_restoring_an_old_catalog() {
    let mut scene = Scene::new();
    scene.catalog.era = super::open::new_era();
    scene.file("a", 1);
    let old = fs::read(scene.path()).expect("closed or not, it is a file");
    let lost = scene.file("b", 1);
    drop(scene.catalog);
    fs::write(scene.folder.path().join("catalog.redb"), old).expect("written");
    let catalog = DirCatalog::open(scene.folder.path().join("catalog.redb"), CLUSTER).expect("the old one");
    let mut scene = Scene { catalog, ..scene };
    let left = block(&format!("{}.0", lost.stripes[0]));
    assert!(scene.catalog.is_from_the_future(&left).expect("readable"));
    let new = scene.file("c", 1);
    assert_ne!(new.stripes, lost.stripes);
    let count = |file: &FileRecord| file.stripes[0].0.split_once('-').expect("an era").0.to_owned();
    assert_eq!(count(&new), count(&lost), "only the era tells them apart");
    assert!(scene.catalog.find_block(&left).is_err());
    assert!(scene.catalog.stripe(&StripeId(count(&new))).is_ok(), "people may leave the era out");
}

#[test]
fn an_ambiguous_short_name_lists_its_stripes() {
    let mut scene = Scene::new();
    let mut stripes = Vec::new();
    for name in ["a", "b"] {
        // Simulates the restore of an old catalog: stripes are counted again from an earlier number, but in
        // another era.
        scene.catalog.change(|change| change.put(META, NEXT_STRIPE, &17)).expect("written");
        scene.catalog.era = super::open::new_era();
        stripes.extend(scene.file(name, 1).stripes);
    }
    let (first, second) = (&stripes[0], &stripes[1]);
    let mut listed = [first.0.clone(), second.0.clone()];
    listed.sort_by_key(|name| Key::of(&StripeId(name.clone())));
    let expected = format!("2 stripes have the number 17: {}, {}", listed[0], listed[1]);
    let error = scene.catalog.stripe(&StripeId("17".to_owned())).expect_err("which?");
    assert_eq!(error.to_string(), expected);
    let error = scene.catalog.find_block(&block("17.0")).expect_err("which?");
    assert_eq!(error.to_string(), expected);
    for stripe in &stripes {
        assert_eq!(scene.catalog.stripe(stripe).expect("its whole name").id, *stripe);
        assert!(scene.catalog.find_block(&block(&format!("{stripe}.0"))).is_ok());
    }
    let error = scene.catalog.stripe(&StripeId("18".to_owned())).expect_err("nobody's");
    assert_eq!(error.to_string(), "there is no stripe 18");
}

#[test]
fn disclaimed_blocks_are_not_newer_and_use_up_no_numbers() {
    let mut scene = Scene::new();
    scene.file("a", 1);
    assert!(scene.catalog.is_from_the_future(&block("7.1")).expect("readable"));
    assert!(!scene.catalog.is_from_the_future(&block("1.1")).expect("readable"));
    assert!(!scene.catalog.is_from_the_future(&block("somebody's")).expect("readable"));
    scene.catalog.disclaim(&[block("7-bbbbbb.1"), block("somebody's")].into()).expect("written");
    let mut eras = None;
    scene
        .catalog
        .each_record(&mut |change| {
            if let StoreChange::Eras(known) = change {
                eras = Some(known);
            }
        })
        .expect("readable");
    let eras = eras.expect("told");
    assert!(!eras.may_be_lost(&block("9-bbbbbb.0")) && eras.may_be_lost(&block("9-cccccc.0")));
    assert_eq!(scene.file("b", 1).stripes[0].0, "2");
}

#[test]
fn running_out_of_numbers_is_an_error_with_a_next_step() {
    let mut scene = Scene::new();
    let put = scene.begin("a", 1);
    scene
        .catalog
        .change(|change| change.put(META, NEXT_STRIPE, &(store_api::names::MAX_COUNT + 1)))
        .expect("written");
    let size = BlockSize::whole(64);
    let nodes: Vec<NodeId> =
        scene.catalog.nodes().expect("readable").iter().map(|node| node.id).take(3).collect();
    let error = scene.catalog.allocate_stripe(put, 0, size, &nodes).expect_err("no number").to_string();
    assert!(error.contains("mend catalog rebuild"), "{error}");
    scene
        .catalog
        .change(|change| change.put(META, NEXT_PUT, &(store_api::names::MAX_COUNT + 1)))
        .expect("written");
    let error = scene.begin_or("b", 1, false).expect_err("no number").to_string();
    assert!(error.contains("mend catalog rebuild"), "{error}");
}

#[test]
fn a_rebuilt_catalog_has_all_files() {
    let mut scene = Scene::new();
    let (a, b) = (scene.file("a", 3), scene.file("dir/b", 1));
    let pending = scene.begin("c", 2);
    let half = scene.allocate(pending, 0, [0, 1, 2]);
    scene.publish(&half);
    let mut held = inventories(&scene.catalog);
    let (catalog, said) = rebuilt(&scene, &held, true);
    assert_eq!(said.files, ["a", "dir/b"]);
    assert_eq!(said.without_file(), ["c"].into());
    assert_eq!((said.left, said.unreadable, said.strangers), (vec![("c".to_owned(), 3)], vec![], vec![]));
    for file in [&a, &b] {
        let again = catalog.file(&file.name).expect("readable").expect("there");
        assert_eq!(FileRecord { created_unix_ms: file.created_unix_ms, ..again }, *file);
        for stripe in &file.stripes {
            assert_eq!(catalog.stripe(stripe).expect("there"), scene.stripe(&stripe.0));
        }
    }
    assert!(catalog.is_from_the_future(&block("6.0")).expect("readable"), "counted on from stripe 5");
    // If one of the three inventories is missing, that helper's block has no holder.
    held.remove(1);
    let (catalog, said) = rebuilt(&scene, &held, true);
    assert_eq!(said.files, ["a", "dir/b"]);
    let stripe = catalog.stripe(&a.stripes[0]).expect("there");
    assert_eq!((stripe.blocks[1].node, stripe.blocks[1].digest), (None, None));
    // If two of the three inventories are missing, no file is readable. The rebuild keeps the files' names
    // only if some helpers did not answer.
    held.remove(1);
    assert_eq!(rebuilt(&scene, &held, false).1.unreadable, ["a", "dir/b"]);
    assert_eq!(rebuilt(&scene, &held, true).1.unreadable, [""; 0]);
}

#[test]
fn a_single_lying_helper_cannot_take_a_name_or_damage_a_stripe() {
    let mut scene = Scene::new();
    let file = scene.file("a", 1);
    let mut held = inventories(&scene.catalog);
    let real: Vec<Description> = held.iter().flat_map(|inventory| inventory.blocks.clone()).collect();
    // Forges a later put of the same name that consists of one block.
    let mut forged = real[0].clone();
    forged.id = block("77.0");
    if let Some((_, label)) = &mut forged.label {
        (label.stripe, label.code) = (StripeId("77".to_owned()), "rs-2-1".parse().expect("a code"));
        (label.file.bytes, label.file.put, label.file.begun_unix_ms) = (100, "9".to_owned(), u64::MAX);
    }
    held[4].blocks.push(forged);
    // Forges a different digest for every block of the stripe.
    held[4].blocks.extend(real.iter().map(|block| Description { digest: digest(999), ..block.clone() }));
    let (mut catalog, said) = rebuilt(&scene, &held, true);
    assert_eq!(said.files, ["a"]);
    let rival =
        Rival { name: "a".to_owned(), kept_as: "a.rival-1".to_owned(), helpers: vec!["eve".to_owned()] };
    assert_eq!(said.rivals, [rival]);
    assert_eq!(catalog.file("a").expect("readable").expect("there").stripes, file.stripes);
    assert_eq!(catalog.stripe(&file.stripes[0]).expect("there"), scene.stripe(&file.stripes[0].0));
    assert_eq!(
        catalog.file("a.rival-1").expect("readable").expect("there").stripes,
        [StripeId("77".to_owned())]
    );
    let put = catalog.begin_put("b", 10, CodeSpec::reed_solomon(3, 2), BlockSize::whole(100), false);
    assert!(put.is_ok(), "its time is not believed: {put:?}");
}

#[test]
fn a_single_lying_helper_cannot_rename_a_file() {
    let mut scene = Scene::new();
    scene.file("a", 1);
    let mut held = inventories(&scene.catalog);
    let real: Vec<Description> = held.iter().flat_map(|inventory| inventory.blocks.clone()).collect();
    // Lists every block of the stripe several times, and many invented stripes of the same put.
    let named = |mut block: Description| {
        block.label.as_mut().expect("labelled").1.file.name = "A".to_owned();
        block
    };
    for stripe in 100..200 {
        held[4].blocks.extend(real.iter().cloned().map(named));
        let mut forged = named(real[0].clone());
        forged.id = block(&format!("{stripe}.0"));
        forged.label.as_mut().expect("labelled").1.stripe = StripeId(stripe.to_string());
        held[4].blocks.push(forged);
    }
    assert_eq!(rebuilt(&scene, &held, true).1.files, ["a"]);
}

#[test]
fn a_single_lying_helper_cannot_add_a_stripe_to_a_file() {
    let mut scene = Scene::new();
    let file = scene.file("a", 2);
    let held = inventories(&scene.catalog);
    for (position, code) in [(2, "rs-3-2"), (0, "rs-2-1"), (2, "rs-2-1"), (u32::MAX, "rs-3-2")] {
        let mut held = held.clone();
        let mut forged = Description { id: block("77.0"), ..held[0].blocks[0].clone() };
        let (index, label) = forged.label.as_mut().expect("labelled");
        (*index, label.stripe) = (block_index(0), StripeId("77".to_owned()));
        (label.code, label.file.position) = (code.parse().expect("a code"), position);
        held[4].blocks.push(forged);
        let (catalog, said) = rebuilt(&scene, &held, true);
        assert_eq!(said.files, ["a"], "position {position} of {code}");
        assert_eq!(catalog.file("a").expect("readable").expect("there").stripes, file.stripes);
    }
}

#[test]
fn a_rival_stays_whole_when_some_of_its_blocks_were_repaired() {
    let mut scene = Scene::new();
    let kept = scene.file("a", 3);
    // Forges a put of the same name with two witnesses. The put must neither displace the file nor be
    // dropped.
    let mut held = inventories(&scene.catalog);
    for (inventory, index) in held.iter_mut().zip(0..2) {
        let mut forged = inventory.blocks[0].clone();
        forged.id = block(&format!("77.{index}"));
        if let Some((at, label)) = &mut forged.label {
            (*at, label.stripe, label.code) =
                (block_index(index), StripeId("77".to_owned()), "rs-2-1".parse().expect("a code"));
            (label.file.bytes, label.file.position) = (100, 0);
            (label.file.put, label.file.begun_unix_ms) = ("9".to_owned(), label.file.begun_unix_ms + 1);
        }
        inventory.blocks.push(forged);
    }
    let (_, said) = rebuilt(&scene, &held, true);
    assert_eq!((said.files.len(), said.rivals.len()), (1, 1), "{said:?}");
    // A repair rebuilds one block of the forged put. The label of this block then contains the put's new
    // name.
    let again = held[0].blocks.last_mut().and_then(|block| block.label.as_mut()).expect("labelled");
    again.1.file.name = "a.rival-1".to_owned();
    let (catalog, said) = rebuilt(&scene, &held, true);
    assert_eq!((said.strangers.len(), said.rivals.len()), (0, 1), "{said:?}");
    let rival = catalog.file("a.rival-1").expect("readable").expect("there");
    assert_eq!(rival.stripes, [StripeId("77".to_owned())]);
    assert!(
        catalog.stripe(&rival.stripes[0]).expect("there").blocks[..2]
            .iter()
            .all(|block| block.node.is_some())
    );
    assert_eq!(catalog.file("a").expect("readable").expect("there").stripes, kept.stripes);
}

/// Returns a false description of a block: the only block of an invented file, with a time in the far future.
fn invented(real: &Description, stripe: &str, name: &str) -> Description {
    let mut forged = Description { id: block(&format!("{stripe}.0")), ..real.clone() };
    let (_, label) = forged.label.as_mut().expect("labelled");
    (label.stripe, label.code) = (StripeId(stripe.to_owned()), "rs-2-1".parse().expect("a code"));
    (label.file.name, label.file.put) = (name.to_owned(), stripe.to_owned());
    (label.file.bytes, label.file.begun_unix_ms) = (100, u64::MAX);
    forged
}

#[test]
fn numbers_and_times_of_a_single_helper_do_not_displace_later_files() {
    let highest = MAX_COUNT;
    for count in [1 << 32, highest / 2 - 1, highest] {
        let mut scene = Scene::new();
        scene.file("a", 1);
        let mut held = inventories(&scene.catalog);
        let stripe = format!("{count}-aaaaab");
        let forged = invented(&held[0].blocks[0], &stripe, "zzz");
        held[4].blocks.push(forged);
        let (catalog, said) = rebuilt(&scene, &held, true);
        let unconfirmed = Unconfirmed { name: "zzz".to_owned(), helper: "eve".to_owned() };
        assert_eq!((said.files.len(), &said.unconfirmed), (2, &vec![unconfirmed]));
        assert!(!said.is_clear());
        let created = catalog.file("zzz").expect("readable").expect("there").created_unix_ms;
        assert!(created < 4_000_000_000_000, "{created} is no date of this century");
        let mut scene = Scene { catalog, ..scene };
        scene.catalog.era = Era::NONE;
        let (b, c) = (scene.file("b", 1), scene.file("c", 1));
        assert_eq!((b.stripes[0].0.as_str(), c.stripes[0].0.as_str()), ("2", "3"));
        let (catalog, said) = rebuilt(&scene, &inventories(&scene.catalog), true);
        assert_eq!((said.files.len(), said.strangers), (4, vec![]));
        assert_eq!(catalog.file("c").expect("readable").expect("there").stripes, c.stripes);
        // The same must hold when stripe numbers are almost used up.
        let mut scene = Scene { catalog, ..scene };
        scene.catalog.change(|change| change.put(META, NEXT_STRIPE, &MAX_COUNT)).expect("written");
        scene.catalog.era = Era::NONE;
        let last = scene.file("last", 1);
        let (catalog, said) = rebuilt(&scene, &inventories(&scene.catalog), true);
        assert_eq!((said.files.len(), said.strangers), (5, vec![]));
        assert_eq!(catalog.file("last").expect("readable").expect("there").stripes, last.stripes);
        let next = catalog.look(|view| view.get::<_, u64>(META, NEXT_STRIPE)).expect("readable");
        assert_eq!(next, Some(4));
    }
}

#[test]
fn a_file_with_too_few_blocks_is_named() {
    let mut scene = Scene::new();
    scene.file("a", 1);
    scene.file("gone", 1);
    let mut held = inventories(&scene.catalog);
    for inventory in &mut held[..2] {
        inventory.blocks.pop();
    }
    let (_, said) = rebuilt(&scene, &held, true);
    assert_eq!((&said.files, said.without_file()), (&vec!["a".to_owned()], ["gone"].into()));
    assert!(!said.is_clear());
}

#[test]
fn the_newest_readable_put_of_a_name_becomes_the_file() {
    let mut scene = Scene::new();
    let old = scene.file("a", 1);
    let before = inventories(&scene.catalog);
    let put = scene.begin_or("a", 2, true).expect("to replace");
    let first = scene.allocate(put, 0, [0, 1, 2]);
    scene.publish(&first);
    let (catalog, said) = rebuilt(&scene, &inventories(&scene.catalog), true);
    assert_eq!(catalog.file("a").expect("readable").expect("there").stripes, old.stripes);
    assert_eq!(said.left, [("a".to_owned(), 3)]);
    let second = scene.allocate(put, 1, [0, 1, 2]);
    scene.publish(&second);
    let new = scene.catalog.commit_put(put).expect("complete");
    // The old blocks are still present, because no helper has removed them yet.
    let mut held = inventories(&scene.catalog);
    held.iter_mut().zip(before).for_each(|(now, before)| now.blocks.extend(before.blocks));
    let (catalog, _) = rebuilt(&scene, &held, true);
    assert_eq!(catalog.file("a").expect("readable").expect("there").stripes, new.stripes);
}

#[test]
fn contradicting_blocks_are_counted_as_strangers() {
    let mut scene = Scene::new();
    let file = scene.file("a", 1);
    let mut held = inventories(&scene.catalog);
    // If two copies of a block differ, neither copy is used, so the block has no holder. Blocks of other
    // clusters and blocks without a label become part of no stripe.
    let mut copy = held[0].blocks[0].clone();
    copy.digest = digest(1);
    let mut foreign = held[1].blocks[0].clone();
    foreign.label.as_mut().expect("labelled").1.cluster = "cluster-2".to_owned();
    let unnamed = Description { label: None, ..held[2].blocks[0].clone() };
    held[4].blocks = vec![copy, foreign, unnamed];
    let (catalog, said) = rebuilt(&scene, &held, true);
    assert!(!said.is_clear());
    assert_eq!(said.files, ["a"]);
    let strangers = said.strangers.iter().map(|left| (left.helper.as_str(), left.file.as_deref()));
    let first = held[0].node.as_str();
    assert_eq!(
        strangers.collect::<Vec<_>>(),
        [("eve", None), ("eve", None), (first, Some("a")), ("eve", Some("a"))]
    );
    let stripe = catalog.stripe(&file.stripes[0]).expect("there");
    let holders: Vec<bool> = stripe.blocks.iter().map(|block| block.node.is_some()).collect();
    assert_eq!(holders, [false, true, true]);
    assert_eq!(stripe.blocks[0].state, BlockState::Corrupt, "neither copy is taken for it");
}

#[test]
fn snapshots_are_restored_only_if_no_coordinator_is_running() {
    let mut scene = Scene::new();
    let a = scene.file("a", 2);
    let copy = scene.folder.path().join("copy.redb");
    let snapshot = scene.catalog.snapshot().expect("readable");
    scene.file("b", 1);
    snapshot.write(&copy).expect("written");
    snapshot.write(&copy).expect("over itself");
    drop(snapshot);
    let path = scene.path();
    let error = DirCatalog::restore(&copy, &path, CLUSTER).expect_err("in use");
    assert!(matches!(error, OpenError::Locked { .. }), "{error}");
    drop(scene.catalog);
    let error = DirCatalog::restore(&copy, &path, "cluster-2").expect_err("another cluster's");
    assert!(matches!(error, OpenError::OtherCluster { .. }), "{error}");
    let nothing = scene.folder.path().join("nothing");
    assert!(matches!(DirCatalog::restore(&nothing, &path, CLUSTER), Err(OpenError::Io { .. })));
    let aside = DirCatalog::restore(&copy, &path, CLUSTER).expect("restored").expect("there was one");
    let catalog = DirCatalog::open(&path, CLUSTER).expect("whole");
    assert_eq!(catalog.files("").expect("readable"), [a]);
    drop(catalog);
    let before = DirCatalog::open(aside, CLUSTER).expect("kept");
    assert_eq!(before.files("").expect("readable").len(), 2);
}

#[test]
fn a_copy_taken_during_a_put_does_not_harm_the_later_file() {
    let mut scene = Scene::new();
    scene.file("gone", 1);
    scene.catalog.remove_file("gone").expect("readable");
    let put = scene.begin("late", 1);
    let stripe = scene.allocate(put, 0, [0, 1, 2]);
    scene.publish(&stripe);
    let copy = scene.folder.path().join("copy.redb");
    scene.catalog.snapshot().expect("readable").write(&copy).expect("written");
    scene.catalog.commit_put(put).expect("complete");
    let path = scene.path();
    drop(scene.catalog);
    DirCatalog::restore(&copy, &path, CLUSTER).expect("restored");
    let catalog = DirCatalog::open(&path, CLUSTER).expect("whole");
    // Open puts and pending removals are not restored; their blocks stay on the helpers as orphans.
    assert_eq!(catalog.puts().expect("readable"), []);
    assert!(scene.nodes.iter().all(|&node| catalog.discards(node).expect("readable").is_empty()));
    assert!(catalog.stripe(&stripe.id).is_err());
    assert!(!catalog.is_from_the_future(&stripe.blocks[0].id).expect("readable"), "it was counted");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// A flipped bit either causes an error that names the remedy, or is in unused space and has no effect.
    #[test]
    fn a_flipped_bit_never_loses_data_silently(at in 0.0..1.0f64, bit in 0..8u32, clean in any::<bool>()) {
        let mut scene = Scene::new();
        for file in 0..8 {
            scene.file(&format!("file-{file}"), 2);
        }
        let path = scene.path();
        let (files, stripes) = (scene.catalog.files("").expect("readable"), scene.stripes());
        let mut bytes = if clean { Vec::new() } else { fs::read(&path).expect("open as it is") };
        drop(scene.catalog);
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
