//! Tests helpers whose store has a process of its own, such as a DataNode, that must accept every new block.
//! Files and sockets are real; the test simulates the process, which may refuse a block, hang, lock the
//! stripe for another writer, or serve wrong bytes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use codes::{BlockIndex, CodeSpec};
use dir::DirBlocks;
use helper::{Engine, Local, Rendezvous, Workers, outbox};
use repair::wire::control::{Description, FromNode, HeldBlock, ToNode};
use repair::{
    BlockId, Chunking, Digest, Epoch, Job, JobAction, JobError, JobId, JobRequest, LocalBlock, NodeId,
    NodeProfile, Outcome, Policy, Refusal, Report, Sink, SinkEnd, Stripe, StripeBlock, StripeId, Topology,
    Verify, Wanted,
};
use store_api::{
    BlockError, BlockReader, BlockWriter, Blocks, Delivery, Gate, HandOver, HandOverTerms, Intake, Later,
    OpenGate, ProcessError, Publish, Sinks, Sources,
};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::mpsc;

const BLOCK_BYTES: u64 = 200_000;
/// The node to which the lost block is first assigned.
const FIRST: NodeId = NodeId(0);
/// The only node that never held a block of the stripe; the second choice for the lost block.
const OTHER: NodeId = NodeId(4);

/// The behaviour of a store's process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mood {
    Obliging,
    /// Another writer holds a lock on the stripe from the start.
    LockedBefore,
    /// Another writer locks the stripe while slices move.
    LockedAfter,
    Refuses,
    Hangs,
    /// The process accepts blocks but serves wrong bytes.
    Garbles,
    /// The store has no process. It accepts bytes but cannot keep them.
    KeepsNothing,
}

/// A store's process, with a record of the requests to it.
struct Server {
    mood: Mood,
    asked: Mutex<Vec<&'static str>>,
    serves: Mutex<BTreeSet<BlockId>>,
}

impl Server {
    fn hear(&self, what: &'static str) {
        self.asked.lock().unwrap().push(what);
    }

    fn asked(&self) -> Vec<&'static str> {
        self.asked.lock().unwrap().clone()
    }

    fn check(&self, block: &BlockId, locked: bool) -> Result<(), BlockError> {
        let why = "an operator has the lock".to_owned();
        let error = ProcessError::NotNow { why };
        if locked { Err(BlockError::Process { block: block.clone(), error }) } else { Ok(()) }
    }

    async fn mount(&self, block: &BlockId) -> Result<(), BlockError> {
        self.hear("mount");
        match self.mood {
            Mood::Hangs => std::future::pending().await,
            Mood::Refuses => {
                let error = ProcessError::Refused { process: "the server".into(), why: "no index".into() };
                Err(BlockError::Process { block: block.clone(), error })
            }
            _ => {
                self.serves.lock().unwrap().insert(block.clone());
                Ok(())
            }
        }
    }
}

/// A store of block files that are invisible until its process serves them.
#[derive(Clone)]
struct Served {
    files: Arc<DirBlocks>,
    server: Arc<Server>,
}

struct ServedWriter {
    block: BlockId,
    writer: Box<dyn Publish>,
    server: Arc<Server>,
}

impl Served {
    fn open(folder: &Path, mood: Mood) -> Self {
        let server = Server { mood, asked: Mutex::default(), serves: Mutex::default() };
        Self { files: Arc::new(DirBlocks::open(folder).unwrap()), server: Arc::new(server) }
    }
}

impl Sources for Served {
    fn open(&self, block: &LocalBlock) -> Result<Arc<dyn BlockReader>, BlockError> {
        self.files.open(block)
    }
}

impl Sinks for Served {
    fn deliver(&self, sink: &Sink) -> Result<Delivery, BlockError> {
        let writer = self.files.create(sink)?;
        let delivery = ServedWriter { block: sink.id.clone(), writer, server: self.server.clone() };
        Ok(match self.server.mood {
            Mood::KeepsNothing => Delivery::Taken(Box::new(delivery)),
            _ => Delivery::HandedOver(Box::new(delivery)),
        })
    }
}

impl Blocks for Served {
    fn verify(&self, block: &BlockId, gate: &dyn Gate) -> Result<Option<Digest>, BlockError> {
        self.files.verify(block, gate)
    }

    fn read_back(&self, block: &BlockId) -> Option<Later<'static, Result<Option<Digest>, BlockError>>> {
        self.server.hear("read back");
        let (served, block) = (self.clone(), block.clone());
        Some(Box::pin(async move {
            let is_served = served.server.serves.lock().unwrap().contains(&block);
            let missing = BlockError::Missing { block: block.clone(), path: "the server".into() };
            match served.server.mood {
                _ if !is_served => Err(missing),
                Mood::Garbles => Ok(Some(Digest::of_u32("crc32c", 0))),
                _ => served.files.verify(&block, &OpenGate),
            }
        }))
    }

    fn remove(&self, block: &BlockId) -> Result<bool, BlockError> {
        self.files.remove(block)
    }

    fn list(&self) -> Result<Vec<HeldBlock>, BlockError> {
        self.files.list()
    }

    fn describe(&self, block: &BlockId) -> Result<Description, BlockError> {
        self.files.describe(block)
    }

    fn free_bytes(&self) -> Result<u64, BlockError> {
        self.files.free_bytes()
    }
}

impl Intake for ServedWriter {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<(), BlockError> {
        self.writer.write_at(offset, bytes)
    }

    fn reader(&self) -> Result<Arc<dyn BlockReader>, BlockError> {
        self.writer.reader()
    }
}

impl BlockWriter for ServedWriter {
    fn seal(&mut self) -> Result<Option<Digest>, BlockError> {
        self.server.hear("seal");
        self.writer.seal()
    }
}

impl HandOver for ServedWriter {
    fn prepare(&mut self) -> Later<'_, Result<(), BlockError>> {
        self.server.hear("prepare");
        Box::pin(async { self.server.check(&self.block, self.server.mood == Mood::LockedBefore) })
    }

    fn terms(&self) -> HandOverTerms {
        HandOverTerms { process: "the server".into(), limit: Duration::from_millis(300) }
    }

    fn hand_over(self: Box<Self>) -> Later<'static, Result<(), BlockError>> {
        Box::pin(async move {
            let Self { block, writer, server } = *self;
            server.check(&block, server.mood == Mood::LockedAfter)?;
            tokio::task::spawn_blocking(move || writer.commit()).await.unwrap()?;
            server.mount(&block).await
        })
    }
}

/// Five helpers and a stripe of four blocks. The first helper has lost its block; the last never had one.
struct Nodes {
    stores: BTreeMap<NodeId, Served>,
    engines: BTreeMap<NodeId, Engine>,
    topology: Topology,
    said: mpsc::UnboundedReceiver<(NodeId, FromNode)>,
    started: Instant,
    blocks: Vec<Vec<u8>>,
    _folders: Vec<TempDir>,
}

impl Nodes {
    async fn new(moods: impl Fn(NodeId) -> Mood) -> Self {
        let (sender, said) = mpsc::unbounded_channel();
        let (mut stores, mut engines, mut topology) = (BTreeMap::new(), BTreeMap::new(), Topology::new());
        let mut folders = Vec::new();
        for node in (0..5).map(NodeId) {
            let rendezvous = Rendezvous::default();
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap().to_string();
            tokio::spawn(rendezvous.clone().listen(listener));
            topology.set(node, NodeProfile::helper(format!("h{node}"), address));
            let (reports, mut outgoing) = outbox();
            let sender = sender.clone();
            tokio::spawn(async move {
                while let Some(message) = outgoing.recv().await {
                    let _ = sender.send((node, message));
                }
            });
            folders.push(tempfile::tempdir().unwrap());
            let store = Served::open(folders.last().unwrap().path(), moods(node));
            let local = Local::Store(Arc::new(store.clone()));
            engines.insert(node, Engine::new(local, rendezvous, reports, Workers::here()));
            stores.insert(node, store);
        }
        let blocks = stripe_bytes();
        for (index, block) in blocks.iter().enumerate().skip(1) {
            let mut writer = stores[&NodeId(index as u32)].files.create(&sink(index)).unwrap();
            writer.write_at(0, block).unwrap();
            writer.seal().unwrap();
            writer.commit().unwrap();
        }
        Self { stores, engines, topology, said, started: Instant::now(), blocks, _folders: folders }
    }

    fn request(&self) -> JobRequest {
        let blocks = (0..4).map(|index| StripeBlock {
            id: id(index),
            bytes: BLOCK_BYTES,
            holder: (index > 0).then_some(NodeId(index as u32)),
            digest: None,
        });
        JobRequest {
            job: JobId(1),
            stripe: Stripe {
                id: StripeId("s".into()),
                code: "rs-4-2".parse::<CodeSpec>().unwrap().build().unwrap(),
                chunking: Chunking::new(BLOCK_BYTES, BLOCK_BYTES, 1).unwrap(),
                blocks: blocks.collect(),
                label: None,
            },
            wanted: vec![Wanted { block: BlockIndex(0), requestor: FIRST }],
            window: 0..BLOCK_BYTES,
            sub_blocks: None,
            policy: Policy::default(),
            verify: Verify { parity: true, reread: true, ..Verify::default() },
            publish: true,
            tag: None,
            permits: Vec::new(),
        }
    }

    async fn repair(&mut self) -> Result<Outcome, JobError> {
        let mut job = Job::new(self.request(), [7; 32], &self.topology, Duration::ZERO);
        loop {
            while let Some(action) = job.poll() {
                match action {
                    JobAction::Finish(result) => return *result,
                    JobAction::Tell { node, message } => {
                        assert_eq!(self.engines[&node].handle(message), None);
                    }
                    JobAction::Publish { .. }
                    | JobAction::BlockLost { .. }
                    | JobAction::Contradicted { .. }
                    | JobAction::Slow { .. } => {}
                }
            }
            let report = tokio::time::timeout(Duration::from_millis(100), self.said.recv()).await;
            let now = self.started.elapsed();
            if let Ok(Some((node, FromNode::Report { epoch, report, .. }))) = report {
                job.handle_report(node, epoch, report, &self.topology, now);
            }
            job.handle_tick(&self.topology, now);
        }
    }

    /// Asserts that this node has the repaired block: its process serves the block, and its folder contains
    /// the right bytes.
    fn assert_served_by(&self, node: NodeId) {
        let store = &self.stores[&node];
        assert!(store.server.serves.lock().unwrap().contains(&id(0)), "{node}");
        let mut bytes = vec![0; BLOCK_BYTES as usize];
        store.files.open_block(&id(0)).unwrap().read_at(0, &mut bytes).unwrap();
        assert!(bytes == self.blocks[0], "other bytes on {node}");
    }

    /// Waits until all engines have dropped the job.
    async fn at_rest(&self) {
        while self.engines.values().any(|engine| engine.jobs() > 0) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    fn asked(&self, node: NodeId) -> Vec<&'static str> {
        self.stores[&node].server.asked()
    }
}

fn id(index: usize) -> BlockId {
    BlockId(format!("s.{index}"))
}

fn sink(index: usize) -> Sink {
    let end = SinkEnd::Kept { label: None, permit: None };
    Sink { index: BlockIndex(index as u16), id: id(index), bytes: BLOCK_BYTES, digest: None, end }
}

/// Returns all four blocks: two pseudo-random data blocks, and two parity blocks.
fn stripe_bytes() -> Vec<Vec<u8>> {
    let data = |seed: u32| (0..BLOCK_BYTES as u32).map(|at| (at.wrapping_mul(seed) >> 13) as u8).collect();
    let mut blocks: Vec<Vec<u8>> = vec![data(2_654_435_761), data(2_246_822_519)];
    let code = "rs-4-2".parse::<CodeSpec>().unwrap().build().unwrap();
    let indices = |range: std::ops::Range<u16>| range.map(BlockIndex).collect::<Vec<_>>();
    let encoding = code.repair(&indices(2..4), &indices(0..2)).unwrap();
    let sources: Vec<&[u8]> =
        encoding.sources().iter().map(|source| &blocks[usize::from(source.block.0)][..]).collect();
    let parity = encoding.apply(&sources);
    blocks.extend(parity);
    blocks
}

/// Gives the first node's store this behaviour; all other stores cooperate.
fn first(mood: Mood) -> impl Fn(NodeId) -> Mood {
    move |node| if node == FIRST { mood } else { Mood::Obliging }
}

#[tokio::test]
async fn a_block_is_handed_over_after_it_was_sealed_and_read_back_from_the_process() {
    let mut nodes = Nodes::new(first(Mood::Obliging)).await;
    let outcome = nodes.repair().await.unwrap();
    assert_eq!((outcome.homes[&BlockIndex(0)], outcome.replanned), (FIRST, vec![]));
    assert_eq!(nodes.asked(FIRST), ["prepare", "seal", "mount", "read back"]);
    nodes.assert_served_by(FIRST);
}

#[tokio::test]
async fn what_one_process_does_not_take_goes_to_another_node() {
    for mood in [Mood::LockedBefore, Mood::LockedAfter, Mood::Refuses, Mood::Hangs, Mood::KeepsNothing] {
        let mut nodes = Nodes::new(first(mood)).await;
        let outcome = nodes.repair().await.unwrap_or_else(|error| panic!("{mood:?}: {error}"));
        assert_eq!(outcome.homes[&BlockIndex(0)], OTHER, "{mood:?}");
        let said = match mood {
            Mood::LockedBefore | Mood::LockedAfter => "an operator has the lock",
            Mood::Refuses => "the server refuses: no index",
            Mood::Hangs => "the server did not accept the block within",
            _ => "this node does not store delivered blocks",
        };
        assert!(outcome.replanned[0].contains(said), "{mood:?}: {:?}", outcome.replanned);
        let was_mounted = nodes.asked(FIRST).contains(&"mount");
        assert_eq!(was_mounted, matches!(mood, Mood::Refuses | Mood::Hangs), "{mood:?}");
        nodes.assert_served_by(OTHER);
        nodes.at_rest().await;
        assert!(nodes.stores[&FIRST].server.serves.lock().unwrap().is_empty(), "{mood:?}");
    }
}

#[tokio::test]
async fn a_process_that_serves_other_bytes_does_not_pass() {
    let mut nodes = Nodes::new(first(Mood::Garbles)).await;
    let outcome = nodes.repair().await.unwrap();
    assert_eq!(outcome.homes[&BlockIndex(0)], OTHER);
    assert!(outcome.replanned[0].contains("reads back different bytes"), "{:?}", outcome.replanned);
    nodes.assert_served_by(OTHER);
}

#[tokio::test]
async fn a_stripe_that_somebody_else_works_on_is_left_alone_before_a_byte_moves() {
    let mut nodes = Nodes::new(|_| Mood::LockedBefore).await;
    let error = nodes.repair().await.unwrap_err();
    assert!(matches!(error, JobError::StoreNotReady { .. }), "{error}");
    assert!(error.to_string().contains("an operator has the lock"), "{error}");
    nodes.at_rest().await;
    for (node, engine) in &nodes.engines {
        assert_eq!(engine.traffic().now().delivered, 0, "{node}");
        assert!(nodes.stores[node].files.list().unwrap().iter().all(|held| held.id != id(0)), "{node}");
    }
}

/// A client has no store, so it refuses requests to read back or fingerprint a block.
#[tokio::test]
async fn a_client_seals_and_rereads_nothing() {
    struct Nothing;
    impl helper::Requests for Nothing {
        fn begin(&self, _tag: u64) -> Option<helper::Ends> {
            None
        }
    }
    let (reports, mut said) = outbox();
    let local = Local::Requests(Arc::new(Nothing));
    let engine = Engine::new(local, Rendezvous::default(), reports, Workers::here());
    let (job, epoch) = (JobId(1), Epoch(1));
    engine.handle(ToNode::Reread { job, epoch, block: id(0), digest: None });
    let told = said.recv().await.unwrap();
    assert_eq!(told, FromNode::Report { job, epoch, report: Report::Refused { why: Refusal::NoStore } });
    let block = LocalBlock { index: BlockIndex(0), id: id(0), bytes: BLOCK_BYTES, digest: None };
    let (chunking, window) = (Chunking::new(BLOCK_BYTES, BLOCK_BYTES, 1).unwrap(), (0, BLOCK_BYTES));
    engine.handle(ToNode::Fingerprint { job, epoch, block, chunking, window, seed: 1 });
    let told = said.recv().await.unwrap();
    assert_eq!(told, FromNode::Report { job, epoch, report: Report::Refused { why: Refusal::NoStore } });
}
