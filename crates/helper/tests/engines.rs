//! Runs engines over real sockets in one process, driven by a real job. For any code, losses, scheme, window
//! and slice size, the delivered bytes equal those of direct decoding, and the traffic equals the plan's
//! cost.

use std::collections::BTreeMap;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::{Duration, Instant};

use block_files::StoredBlock;
use cluster::{Cluster, Identity, InitOptions, Role};
use codes::{BlockIndex, CodeSpec, SubBlock};
use helper::{Engine, Local, Moved, Rendezvous, Workers, outbox};
use proptest::prelude::*;
use repair::wire::control::{FromNode, HeldBlock, ToNode};
use repair::wire::edge::{
    CREDIT_BYTES, Credit, Direction, FrameHeader, GREETING_BYTES, Greeting, HEADER_BYTES,
};
use repair::{
    Assignment, BlockId, Caps, Chunking, Cost, Job, JobAction, JobId, JobRequest, LocalBlock, NodeId,
    NodeProfile, PlanRequest, Policy, Reach, Scheme, Sink, SinkEnd, Stripe, StripeBlock, StripeId, Topology,
    Verify, Wanted,
};
use store_api::{
    BlockError, BlockReader, BlockWriter, Blocks, Delivery, Gate, Intake, Publish, ReadBack, Sinks, Sources,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

/// A store of blocks in memory and in files.
#[derive(Clone, Default)]
struct Memory {
    blocks: Arc<Mutex<BTreeMap<BlockId, Vec<u8>>>>,
    files: Arc<Mutex<BTreeMap<BlockId, Arc<OnDisk>>>>,
}

/// A block in an unlinked file, which is removed automatically. Its bytes are never reported as cached, so
/// all reads go to the disk queue; reads are counted.
struct OnDisk {
    file: File,
    bytes: u64,
    read: AtomicU64,
    reads: AtomicU64,
    asked_ahead: Mutex<Vec<Range<u64>>>,
}

struct Bytes(Vec<u8>);

struct Growing {
    id: BlockId,
    bytes: Vec<u8>,
    /// Whether the block is delivered to a client, which takes the bytes without a commit.
    is_taken: bool,
    memory: Memory,
}

impl BlockReader for Bytes {
    fn bytes(&self) -> u64 {
        self.0.len() as u64
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), BlockError> {
        buffer.copy_from_slice(&self.0[offset as usize..offset as usize + buffer.len()]);
        Ok(())
    }

    fn digest(&self) -> Option<repair::Digest> {
        None
    }
}

impl StoredBlock for Bytes {
    fn verify(&self, _gate: &dyn Gate) -> Result<Option<repair::Digest>, BlockError> {
        Ok(Some(repair::Digest::of_u32("crc32c", repair::wire::edge::crc32c(&[&self.0]))))
    }
}

impl OnDisk {
    fn new(name: &str, bytes: &[u8]) -> Self {
        let path = std::env::temp_dir().join(format!("mend-engines-{}-{name}", std::process::id()));
        std::fs::write(&path, bytes).unwrap();
        let file = File::open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        Self {
            file,
            bytes: bytes.len() as u64,
            read: AtomicU64::default(),
            reads: AtomicU64::default(),
            asked_ahead: Mutex::default(),
        }
    }
}

impl BlockReader for OnDisk {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), BlockError> {
        self.file.read_exact_at(buffer, offset).unwrap();
        self.read.fetch_add(buffer.len() as u64, Ordering::Relaxed);
        self.reads.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn read_ahead(&self, bytes: Range<u64>) {
        self.asked_ahead.lock().unwrap().push(bytes);
    }

    fn digest(&self) -> Option<repair::Digest> {
        None
    }
}

impl Growing {
    fn keep(&self) {
        self.memory.blocks.lock().unwrap().insert(self.id.clone(), self.bytes.clone());
    }
}

impl Intake for Growing {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<(), BlockError> {
        let end = offset as usize + bytes.len();
        self.bytes[offset as usize..end].copy_from_slice(bytes);
        if self.is_taken {
            self.keep(); // Without a commit, written bytes belong to the caller at once.
        }
        Ok(())
    }

    fn reader(&self) -> Result<Arc<dyn BlockReader>, BlockError> {
        Ok(Arc::new(Bytes(self.bytes.clone())))
    }
}

impl BlockWriter for Growing {
    fn seal(&mut self) -> Result<Option<repair::Digest>, BlockError> {
        Ok(Some(repair::Digest::of_u32("crc32c", repair::wire::edge::crc32c(&[&self.bytes]))))
    }
}

impl Publish for Growing {
    fn commit(self: Box<Self>) -> Result<Option<ReadBack>, BlockError> {
        self.keep();
        Ok(None)
    }
}

impl Sources for Memory {
    fn open(&self, block: &LocalBlock) -> Result<Arc<dyn BlockReader>, BlockError> {
        if let Some(file) = self.files.lock().unwrap().get(&block.id) {
            return Ok(file.clone());
        }
        Ok(Arc::new(self.held(&block.id)?))
    }
}

impl Sinks for Memory {
    fn deliver(&self, sink: &Sink) -> Result<Delivery, BlockError> {
        let (id, bytes, is_taken) =
            (sink.id.clone(), vec![0; sink.bytes as usize], matches!(sink.end, SinkEnd::Taken { .. }));
        let growing = Box::new(Growing { id, bytes, is_taken, memory: self.clone() });
        Ok(if is_taken { Delivery::Taken(growing) } else { Delivery::Published(growing) })
    }
}

impl Blocks for Memory {
    fn verify(&self, block: &BlockId, gate: &dyn Gate) -> Result<Option<repair::Digest>, BlockError> {
        self.held(block)?.verify(gate)
    }

    fn remove(&self, block: &BlockId) -> Result<bool, BlockError> {
        Ok(self.blocks.lock().unwrap().remove(block).is_some())
    }

    fn list(&self) -> Result<Vec<HeldBlock>, BlockError> {
        let blocks = self.blocks.lock().unwrap();
        Ok(blocks.iter().map(|(id, held)| HeldBlock { id: id.clone(), bytes: held.len() as u64 }).collect())
    }

    fn free_bytes(&self) -> Result<u64, BlockError> {
        Ok(u64::MAX)
    }
}

impl Memory {
    fn held(&self, block: &BlockId) -> Result<Bytes, BlockError> {
        let missing = || BlockError::Missing { block: block.clone(), path: "memory".into() };
        Ok(Bytes(self.blocks.lock().unwrap().get(block).cloned().ok_or_else(missing)?))
    }
}

/// The identities of the nodes that use encrypted edges: first the helpers, then a client.
static MEMBERS: LazyLock<Vec<Identity>> = LazyLock::new(|| {
    let scratch = tempfile::tempdir().unwrap();
    let options = InitOptions { helpers: 24, ..InitOptions::default() };
    let cluster = Cluster::init(&scratch.path().join("cluster"), &options).unwrap();
    let helpers = cluster.config().helpers.iter().map(|helper| Role::Helper(helper.name.clone()));
    let roles = helpers.chain([Role::default_client()]);
    roles.map(|role| cluster.identity(&role).unwrap()).collect()
});

/// Several engines, and their messages to the coordinator, whose role the test plays.
struct Nodes {
    engines: BTreeMap<NodeId, (Engine, Memory)>,
    topology: Topology,
    said: mpsc::UnboundedReceiver<(NodeId, FromNode)>,
    started: Instant,
}

impl Nodes {
    /// Starts `helpers` engines that listen, and one more that only dials, like a client.
    async fn new(helpers: u32) -> Self {
        Self::start(helpers, false).await
    }

    async fn start(helpers: u32, encrypted: bool) -> Self {
        let (sender, said) = mpsc::unbounded_channel();
        let mut engines = BTreeMap::new();
        let mut topology = Topology::new();
        if encrypted {
            topology.encrypt_edges();
        }
        let workers = Workers::here_and(1).unwrap();
        for node in (0..=helpers).map(NodeId) {
            let mut view = NodeProfile::client(node.to_string());
            let rendezvous = if encrypted {
                let client = MEMBERS.len() - 1;
                let identity = &MEMBERS[if node.0 < helpers { node.0 as usize } else { client }];
                view.tls_name = identity.role().dns_name();
                Rendezvous::default().secured(identity, true)
            } else {
                Rendezvous::default()
            };
            if node.0 < helpers {
                let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                view.reach = Reach::Listens(listener.local_addr().unwrap().to_string());
                tokio::spawn(rendezvous.clone().listen(listener));
            }
            topology.set(node, view);
            let (reports, mut outgoing) = outbox();
            let sender = sender.clone();
            tokio::spawn(async move {
                while let Some(message) = outgoing.recv().await {
                    let _ = sender.send((node, message));
                }
            });
            let memory = Memory::default();
            let engine =
                Engine::new(Local::Store(Arc::new(memory.clone())), rendezvous, reports, workers.clone());
            engines.insert(node, (engine, memory));
        }
        Self { engines, topology, said, started: Instant::now() }
    }

    /// Runs a job to its end.
    async fn carry_out(&mut self, request: JobRequest) -> Result<repair::Outcome, repair::JobError> {
        let now = |started: Instant| started.elapsed();
        let id = request.job;
        let mut job = Job::new(request, [7; 32], &self.topology, now(self.started));
        loop {
            while let Some(action) = job.poll() {
                if let JobAction::Finish(result) = action {
                    return *result;
                }
                self.tell(action);
            }
            let report = tokio::time::timeout(Duration::from_millis(100), self.said.recv()).await;
            // An earlier job may have sent a last report.
            if let Ok(Some((node, FromNode::Report { job: of, epoch, report }))) = report
                && of == id
            {
                job.handle_report(node, epoch, report, &self.topology, now(self.started));
            }
            job.handle_tick(&self.topology, now(self.started));
        }
    }

    /// Runs a job to its end; returns the time that it took.
    async fn time(&mut self, request: JobRequest) -> Duration {
        let begun = Instant::now();
        self.carry_out(request).await.unwrap();
        begun.elapsed()
    }

    fn tell(&self, action: JobAction) {
        if let JobAction::Tell { node, message } = action {
            assert_eq!(self.engines[&node].0.handle(message), None);
        }
    }
}

#[derive(Clone, Debug)]
struct EngineCase {
    code: CodeSpec,
    sub_block_bytes: u64,
    chunks: u64,
    lost: usize,
    scheme: Scheme,
    slice_bytes: u32,
    window: (prop::sample::Index, prop::sample::Index),
    publish: bool,
    short: bool,
    encrypted: bool,
    seed: u64,
}

fn cases() -> impl Strategy<Value = EngineCase> {
    let code = prop_oneof![
        6 => (1usize..9, 1usize..5).prop_map(|(k, m)| format!("rs-{}-{k}", k + m)),
        1 => Just("lrc-6-2-2".to_owned()),
        1 => Just("hitchhiker-xor-9-6".to_owned()),
        1 => Just("rotated-9-6-4".to_owned()),
        2 => Just("clay-6-4-5".to_owned()),
        1 => Just("less-9-6-2".to_owned()),
    ];
    let scheme = prop::sample::select(
        Scheme::ALL.iter().copied().filter(|&scheme| scheme != Scheme::Migration).collect::<Vec<_>>(),
    );
    let place = any::<(prop::sample::Index, prop::sample::Index)>();
    let size = (1u64..1500, prop::sample::select(vec![1u64, 1, 2, 5, 64]));
    (code, size, 1usize..4, scheme, 0u32..3, place, any::<(bool, bool, bool)>(), any::<u64>()).prop_map(
        |(code, (units, chunks), lost, scheme, slices, window, (publish, short, encrypted), seed)| {
            EngineCase {
                code: code.parse().unwrap(),
                sub_block_bytes: (units * 64).next_multiple_of(chunks),
                chunks,
                lost,
                scheme,
                slice_bytes: 4096 << slices,
                window,
                publish,
                short,
                encrypted,
                seed,
            }
        },
    )
}

fn noise(seed: u64, bytes: usize) -> Vec<u8> {
    let mut state = seed | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..bytes).map(|_| next()).collect()
}

/// Returns all blocks of a stripe, encoded by the slow reference implementation.
fn encode(code: &dyn codes::Code, chunking: &Chunking, seed: u64, short: bool) -> Vec<Vec<u8>> {
    let block_bytes = chunking.block_bytes() as usize;
    let places = |sub: u16| chunking.ranges(sub, 0..chunking.sub_block_bytes()).flatten();
    let mut blocks: Vec<Vec<u8>> =
        (0..code.data_blocks()).map(|index| noise(seed.wrapping_add(index as u64), block_bytes)).collect();
    if short {
        // The last data block is short, with zeros beyond its end.
        let last = blocks.last_mut().unwrap();
        last[block_bytes / 3..].fill(0);
    }
    let encoding = code.encoding();
    let sub_block = |s: &SubBlock| -> Vec<u8> {
        places(s.sub).map(|at| blocks[usize::from(s.block.0)][at as usize]).collect()
    };
    let sources: Vec<Vec<u8>> = encoding.sources().iter().map(sub_block).collect();
    let parity = encoding.apply(&sources.iter().map(|bytes| &bytes[..]).collect::<Vec<_>>());
    blocks.resize(code.blocks(), vec![0; block_bytes]);
    for (output, bytes) in encoding.outputs().iter().zip(parity) {
        let block = &mut blocks[usize::from(output.block.0)];
        places(output.sub).zip(bytes).for_each(|(at, byte)| block[at as usize] = byte);
    }
    blocks
}

async fn play(case: &EngineCase) {
    let code = case.code.build().unwrap();
    let n = code.blocks();
    let block_bytes = case.sub_block_bytes * code.sub_blocks() as u64;
    let chunking = Chunking::of(&*code, block_bytes, Some(block_bytes / case.chunks)).unwrap();
    let blocks = encode(&*code, &chunking, case.seed, case.short);
    let lost_count = case.lost.min(n - code.data_blocks());
    let mut order: Vec<usize> = (0..n).collect();
    order.sort_by_key(|&index| noise(case.seed ^ (index as u64 + 1) << 20, 8));
    let lost = &order[..lost_count];
    if code.repair(&[BlockIndex(lost[0] as u16)], &kept(n, lost)).is_err() {
        return; // A local code cannot decode every pattern.
    }
    let spare = lost_count as u32;
    let mut nodes = Nodes::start(n as u32 + spare, case.encrypted).await;
    let client = NodeId(n as u32 + spare);
    let length = |index: usize| match case.short && index + 1 == code.data_blocks() {
        true => block_bytes / 3,
        false => block_bytes,
    };
    let id = |index: usize| BlockId(format!("s.{index}"));
    let stripe = Stripe {
        id: StripeId("s".into()),
        code: code.clone(),
        chunking,
        blocks: (0..n)
            .map(|index| StripeBlock {
                id: id(index),
                bytes: length(index),
                holder: (!lost.contains(&index)).then_some(NodeId(index as u32)),
                digest: None,
            })
            .collect(),
        label: None,
    };
    for (index, block) in blocks.iter().enumerate().filter(|(index, _)| !lost.contains(index)) {
        let memory = &nodes.engines[&NodeId(index as u32)].1;
        memory.blocks.lock().unwrap().insert(id(index), block[..length(index) as usize].to_vec());
    }
    let requestor = |position: usize| if case.publish { NodeId(n as u32 + position as u32) } else { client };
    let wanted: Vec<Wanted> = lost
        .iter()
        .enumerate()
        .map(|(position, &block)| Wanted { block: BlockIndex(block as u16), requestor: requestor(position) })
        .collect();
    let window = if case.publish { 0..case.sub_block_bytes } else { window(case) };
    let policy = Policy { scheme: case.scheme, slice_bytes: Some(case.slice_bytes), ..Policy::default() };
    let request = PlanRequest {
        wanted: wanted.clone(),
        window: window.clone(),
        sub_blocks: None,
        resume: None,
        policy: policy.clone(),
    };
    let plan = repair::plan(&stripe, &request, &nodes.topology).unwrap();
    let job = JobRequest {
        job: JobId(1),
        stripe,
        wanted: wanted.clone(),
        window: window.clone(),
        sub_blocks: None,
        policy,
        verify: Verify { parity: true, reread: true, ..Verify::default() },
        publish: case.publish,
        tag: (!case.publish).then_some(1),
        permits: Vec::new(),
    };
    let outcome = nodes.carry_out(job).await.unwrap();
    assert_eq!(outcome.replanned, [""; 0], "nothing went wrong on the way");
    for wanted in &wanted {
        let index = usize::from(wanted.block.0);
        let memory = &nodes.engines[&wanted.requestor].1;
        // If the window lies past the end of a short block, nothing was written, so the block is missing
        // here.
        let got = memory.blocks.lock().unwrap().get(&id(index)).cloned();
        let got = got.unwrap_or_else(|| vec![0; length(index) as usize]);
        for range in (0..chunking.sub_blocks()).flat_map(|sub| chunking.ranges(sub, window.clone())) {
            let bytes = range.start.min(length(index)) as usize..range.end.min(length(index)) as usize;
            assert!(got[bytes.clone()] == blocks[index][bytes.clone()], "block {index} bytes {bytes:?}");
        }
    }
    let cost = plan.cost();
    for (&node, (engine, _)) in &nodes.engines {
        let said = cost.of(node).map_or_else(Moved::default, |cost| Moved {
            sent: cost.sent_bytes,
            received: cost.received_bytes,
            read: cost.read_bytes,
            delivered: cost.delivered_bytes,
            checked: 0,
        });
        // A sender counts a frame only after its last byte has left, when the receiver may already have the
        // frame. So wait until the counters are right.
        let patience = Instant::now() + Duration::from_secs(5);
        // Reads that only check blocks are no part of the plan.
        let moved = || Moved { checked: 0, ..engine.traffic().now() };
        while moved() != said && Instant::now() < patience {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        assert_eq!(moved(), said, "{node} in\n{plan}");
    }
}

fn kept(n: usize, lost: &[usize]) -> Vec<BlockIndex> {
    (0..n).filter(|index| !lost.contains(index)).map(|index| BlockIndex(index as u16)).collect()
}

fn window(case: &EngineCase) -> std::ops::Range<u64> {
    let bytes = case.sub_block_bytes as usize;
    let (a, b) = (case.window.0.index(bytes), case.window.1.index(bytes));
    a.min(b) as u64..a.max(b) as u64 + 1
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    #[test]
    fn bytes_equal_direct_decoding_and_traffic_equals_the_plan(case in cases()) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let played = runtime.block_on(async {
            tokio::time::timeout(Duration::from_secs(60), play(&case)).await
        });
        prop_assert!(played.is_ok(), "it hangs: {:?}", case);
    }
}

#[test]
fn a_node_that_encrypts_edges_refuses_plain_ones_with_advice() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let mut nodes = Nodes::start(3, true).await;
        // The coordinator's configuration does not encrypt edges.
        let plain = nodes.topology.iter().fold(Topology::new(), |mut plain, (node, view)| {
            plain.set(node, view.clone());
            plain
        });
        nodes.topology = plain;
        let code = "rs-3-2".parse::<CodeSpec>().unwrap().build().unwrap();
        let block = |index: u32| {
            let id = BlockId(format!("s.{index}"));
            let holder = (index > 0).then_some(NodeId(index));
            StripeBlock { id, bytes: 4096, holder, digest: None }
        };
        let stripe = Stripe {
            id: StripeId("s".into()),
            chunking: Chunking::whole(&*code, 4096),
            code,
            blocks: (0..3).map(block).collect(),
            label: None,
        };
        let job = JobRequest {
            job: JobId(1),
            stripe,
            wanted: vec![Wanted { block: BlockIndex(0), requestor: NodeId(3) }],
            window: 0..4096,
            sub_blocks: None,
            policy: Policy::default(),
            verify: Verify::default(),
            publish: false,
            tag: Some(1),
            permits: Vec::new(),
        };
        let error = tokio::time::timeout(Duration::from_secs(60), nodes.carry_out(job)).await.unwrap();
        let error = error.unwrap_err().to_string();
        assert!(error.contains("data_tls"), "{error}");
    });
}

/// While the helpers of a repair also serve reads, the repair starts at a limited rate.
#[test]
fn a_repair_yields_to_reads() {
    const BLOCK_BYTES: u64 = 8 << 20;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let mut nodes = Nodes::new(4).await;
        let code = "rs-3-2".parse::<CodeSpec>().unwrap().build().unwrap();
        let id = |index: u32| BlockId(format!("s.{index}"));
        for index in 1..3 {
            // Blocks of zeros satisfy every parity equation.
            let memory = &nodes.engines[&NodeId(index)].1;
            memory.blocks.lock().unwrap().insert(id(index), vec![0; BLOCK_BYTES as usize]);
        }
        let block = |index: u32| {
            let holder = (index > 0).then_some(NodeId(index));
            StripeBlock { id: id(index), bytes: BLOCK_BYTES, holder, digest: None }
        };
        let job = |number: u64, requestor: u32, publish: bool| JobRequest {
            job: JobId(number),
            stripe: Stripe {
                id: StripeId("s".into()),
                chunking: Chunking::whole(&*code, BLOCK_BYTES),
                code: code.clone(),
                blocks: (0..3).map(block).collect(),
                label: None,
            },
            wanted: vec![Wanted { block: BlockIndex(0), requestor: NodeId(requestor) }],
            window: if publish { 0..BLOCK_BYTES } else { 0..4096 },
            sub_blocks: None,
            policy: Policy::default(),
            verify: Verify::default(),
            publish,
            tag: (!publish).then_some(1),
            permits: Vec::new(),
        };
        let alone = nodes.time(job(1, 0, true)).await;
        nodes.time(job(2, 4, false)).await;
        let after_read = nodes.time(job(3, 3, true)).await;
        assert!(after_read >= Duration::from_millis(300), "{after_read:?}, and alone {alone:?}");
    });
}

/// The measured file and socket traffic of a conventional repair of one block, and the cost of its plan.
struct Counted {
    /// Bytes read from files, equal to the bytes sent over sockets.
    bytes: u64,
    /// The number of read calls on the files.
    reads: u64,
    /// The number of ranges announced ahead of the reads.
    ahead: u64,
    planned: Cost,
}

async fn single_loss(
    code: &str,
    lost: usize,
    (sub_block_bytes, chunks): (u64, u64),
    slice_bytes: Option<u32>,
) -> Counted {
    let code = code.parse::<CodeSpec>().unwrap().build().unwrap();
    let n = code.blocks();
    let block_bytes = sub_block_bytes * code.sub_blocks() as u64;
    let chunking = Chunking::of(&*code, block_bytes, Some(block_bytes / chunks)).unwrap();
    let blocks = encode(&*code, &chunking, 14 + lost as u64, false);
    let mut nodes = Nodes::new(n as u32).await;
    let client = NodeId(n as u32);
    let id = |index: usize| BlockId(format!("s.{index}"));
    let mut files = Vec::new();
    for index in (0..n).filter(|&index| index != lost) {
        let file = Arc::new(OnDisk::new(&format!("{}-{lost}-{index}", code.spec()), &blocks[index]));
        let memory = &nodes.engines[&NodeId(index as u32)].1;
        memory.files.lock().unwrap().insert(id(index), file.clone());
        files.push(file);
    }
    let holder = |index: usize| (index != lost).then_some(NodeId(index as u32));
    let stripe = Stripe {
        id: StripeId("s".into()),
        code: code.clone(),
        chunking,
        blocks: (0..n)
            .map(|index| StripeBlock {
                id: id(index),
                bytes: block_bytes,
                holder: holder(index),
                digest: None,
            })
            .collect(),
        label: None,
    };
    let wanted = vec![Wanted { block: BlockIndex(lost as u16), requestor: client }];
    let policy = Policy { scheme: Scheme::Conventional, slice_bytes, ..Policy::default() };
    let request = PlanRequest {
        wanted: wanted.clone(),
        window: 0..sub_block_bytes,
        sub_blocks: None,
        resume: None,
        policy: policy.clone(),
    };
    let planned = repair::plan(&stripe, &request, &nodes.topology).unwrap().cost();
    let job = JobRequest {
        job: JobId(1),
        stripe,
        wanted,
        window: 0..sub_block_bytes,
        sub_blocks: None,
        policy,
        verify: Verify::default(),
        publish: false,
        tag: Some(1),
        permits: Vec::new(),
    };
    nodes.carry_out(job).await.unwrap();
    assert!(nodes.engines[&client].1.blocks.lock().unwrap()[&id(lost)] == blocks[lost], "block {lost}");
    let bytes: u64 = files.iter().map(|file| file.read.load(Ordering::Relaxed)).sum();
    let moved =
        |of: fn(Moved) -> u64| nodes.engines.values().map(|(engine, _)| of(engine.traffic().now())).sum();
    let ahead = || -> u64 { files.iter().map(|file| file.asked_ahead.lock().unwrap().len() as u64).sum() };
    // A sender counts a frame only after its last byte has left, when the receiver may already have the
    // frame. The announcements of reads are not awaited by the job either. So wait until both have been
    // counted.
    let patience = Instant::now() + Duration::from_secs(5);
    // With Clay, every helper reads several sub-blocks, so it announces its reads.
    let scattered = code.spec().to_string().starts_with("clay");
    while (moved(|moved| moved.sent) != planned.read_bytes || (scattered && ahead() < planned.reads))
        && Instant::now() < patience
    {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let (sent, received, read): (u64, u64, u64) =
        (moved(|moved| moved.sent), moved(|moved| moved.received), moved(|moved| moved.read));
    let wanted = planned.read_bytes;
    assert_eq!((sent, received, read), (wanted, wanted, wanted), "{} b{lost}", code.spec());
    // With small chunks, the gaps between the needed ranges are read as well.
    assert!((wanted..=planned.disk_bytes).contains(&bytes), "{bytes} of {wanted} to {}", planned.disk_bytes);
    let asked: u64 =
        files.iter().flat_map(|file| file.asked_ahead.lock().unwrap().clone()).map(|r| r.end - r.start).sum();
    assert!(asked == planned.disk_bytes || !scattered, "what is asked for ahead is what is read");
    let reads = files.iter().map(|file| file.reads.load(Ordering::Relaxed)).sum();
    Counted { bytes, reads, ahead: ahead(), planned }
}

fn counted(code: &str, lost: usize, sub_block_bytes: u64, slice_bytes: Option<u32>) -> Counted {
    counted_in_chunks(code, lost, (sub_block_bytes, 1), slice_bytes)
}

/// Like `counted`, for blocks of several chunks: `cut` is the sub-block size and the number of chunks.
fn counted_in_chunks(code: &str, lost: usize, cut: (u64, u64), slice_bytes: Option<u32>) -> Counted {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(single_loss(code, lost, cut, slice_bytes))
}

/// For each of these lost blocks, returns how many blocks' worth of bytes its repair reads and sends.
fn measured(code: &str, lost: impl IntoIterator<Item = usize>) -> Vec<f64> {
    // One page. Gaps of at least a page are skipped, so only the needed sub-blocks are read.
    const SUB_BLOCK_BYTES: u64 = 4096;
    let sub_blocks = code.parse::<CodeSpec>().unwrap().build().unwrap().sub_blocks() as u64;
    let in_blocks = |bytes: u64| bytes as f64 / (SUB_BLOCK_BYTES * sub_blocks) as f64;
    lost.into_iter().map(|lost| in_blocks(counted(code, lost, SUB_BLOCK_BYTES, None).bytes)).collect()
}

#[test]
fn neighbouring_sub_blocks_are_read_together() {
    // Without a given slice size, one slice covers a whole sub-block of 4 KiB.
    let reads = |lost| {
        let counted = counted("clay-14-10-13", lost, 4096, None);
        assert_eq!((counted.reads, counted.ahead), (counted.planned.reads, counted.planned.reads));
        counted.reads
    };
    assert_eq!([0, 4, 8, 13].map(reads), [13, 13 * 4, 13 * 16, 13 * 64]);
    let hitchhiker = counted("hitchhiker-xorplus-14-10", 0, 4096, None);
    assert_eq!((hitchhiker.reads, hitchhiker.planned.reads), (11, 11));
}

#[test]
fn neighbouring_bytes_of_many_slices_are_announced_together() {
    let clay = counted("clay-6-4-5", 0, 64 << 10, Some(4096));
    assert_eq!((clay.reads, clay.ahead, clay.planned.reads), (5 * 4 * 16, 5, 5));
    let clay = counted("clay-6-4-5", 5, 64 << 10, Some(4096));
    assert_eq!((clay.reads, clay.ahead, clay.planned.reads), (5 * 4 * 16, 5 * 4, 5 * 4));
    // Each helper reads two sub-blocks of 11 MiB, and announces each in two parts: the first 8 MiB, then the
    // rest.
    let clay = counted("clay-4-2-3", 3, 11 << 20, Some(256 << 10));
    assert_eq!((clay.ahead, clay.planned.reads), (3 * 2 * 2, 3 * 2 * 2));
}

#[test]
fn reads_follow_the_chunks() {
    // Each block has 8 sub-blocks of 64 KiB, spread over 4 chunks. The repair of block 0 reads the first half
    // of each chunk; the repair of block 5 reads every other sub-block of each chunk.
    let whole = counted("clay-6-4-5", 0, 64 << 10, Some(16 << 10));
    let clay = counted_in_chunks("clay-6-4-5", 0, (64 << 10, 4), Some(16 << 10));
    assert_eq!((clay.reads, clay.planned.reads, clay.bytes), (5 * 4, 5 * 4, whole.bytes));
    let clay = counted_in_chunks("clay-6-4-5", 5, (64 << 10, 4), Some(16 << 10));
    assert_eq!((clay.reads, clay.planned.reads, clay.bytes), (5 * 4 * 4, 5 * 4 * 4, whole.bytes));
    // 64 chunks with parts of 1 KiB: gaps below a page are not skipped, so the whole block is read, in one
    // read per slice.
    let clay = counted_in_chunks("clay-6-4-5", 5, (64 << 10, 64), Some(16 << 10));
    assert_eq!((clay.planned.reads, clay.planned.read_bytes), (5, whole.bytes));
    assert!(clay.bytes > whole.bytes * 19 / 10, "{} bytes of {}", clay.bytes, whole.bytes);
    assert_eq!(clay.planned.disk_bytes, 2 * whole.bytes - 5 * 1024);
}

#[test]
fn hitchhiker_reads_and_sends_two_thirds_as_much_as_reed_solomon() {
    assert_eq!(measured("hitchhiker-xorplus-14-10", 0..10), [6.5; 10]);
    assert_eq!(measured("hitchhiker-nonxor-14-10", 0..10), [6.5; 10]);
    let xor = measured("hitchhiker-xor-14-10", 0..10);
    assert_eq!(xor, [6.5, 6.5, 6.5, 6.5, 6.5, 6.5, 7.0, 7.0, 7.0, 7.0]);
    assert!((xor.iter().sum::<f64>() / 10.0 - 6.7).abs() < 1e-9);
    assert_eq!(measured("hitchhiker-xorplus-14-10", 10..14), [10.0; 4], "parity has no small repair");
    assert_eq!(measured("rs-14-10", [0, 9, 13]), [10.0; 3]);
}

#[test]
fn clay_reads_and_sends_the_minimum_of_a_regenerating_code() {
    assert_eq!(measured("clay-14-10-13", [0, 7, 9, 13]), [3.25; 4]);
    assert_eq!(measured("clay-9-6-8", 0..9), [8.0 / 3.0; 9]);
}

#[test]
fn local_groups_and_rotated_rows_read_and_send_less() {
    assert_eq!(measured("lrc-12-2-2", 0..16), [[6.0; 14].as_slice(), &[12.0; 2]].concat());
    assert_eq!(measured("rotated-16-12-4", 0..12), [7.5; 12]);
}

/// Reads the lost block 0 while every helper is capped at `caps[0]` bytes per second, and at `caps[1]` after
/// half of the block was sent. Repeatedly divides the bytes that the busiest helper has sent so far by the
/// bytes that the caps have allowed so far. Returns the maximum of this ratio, and the ratio after the read.
async fn read_capped(scheme: Scheme, caps: [u64; 2]) -> (f64, f64) {
    const BYTES: u64 = 1 << 20;
    let code = "rs-6-4".parse::<CodeSpec>().unwrap().build().unwrap();
    let mut nodes = Nodes::new(6).await;
    let chunking = Chunking::whole(&*code, BYTES);
    let blocks = encode(&*code, &chunking, 5, false);
    let id = |index: usize| BlockId(format!("s.{index}"));
    for (index, bytes) in blocks.iter().enumerate().skip(1) {
        let (_, memory) = &nodes.engines[&NodeId(index as u32)];
        memory.blocks.lock().unwrap().insert(id(index), bytes.clone());
    }
    let held = (0..6).map(|index| StripeBlock {
        id: id(index),
        bytes: BYTES,
        holder: (index > 0).then_some(NodeId(index as u32)),
        digest: None,
    });
    let stripe = Stripe { id: StripeId("s".into()), code, chunking, blocks: held.collect(), label: None };
    let job = JobRequest {
        job: JobId(1),
        stripe,
        wanted: vec![Wanted { block: BlockIndex(0), requestor: NodeId(6) }],
        window: 0..BYTES,
        sub_blocks: None,
        policy: Policy { scheme, slice_bytes: Some(16 << 10), ..Policy::default() },
        verify: Verify::default(),
        publish: false,
        tag: Some(1),
        permits: Vec::new(),
    };
    let engines: Vec<Engine> = nodes.engines.values().map(|(engine, _)| engine.clone()).collect();
    let limit = |cap| {
        let caps = Caps { up: Some(cap), ..Caps::default() };
        engines.iter().for_each(|engine| assert_eq!(engine.handle(ToNode::Limits(caps)), None));
    };
    let sent = || engines.iter().map(|engine| engine.traffic().now().sent).max().unwrap_or(0);
    limit(caps[0]);
    let (start, mut since, mut cap, mut allowed, mut most) =
        (Instant::now(), Instant::now(), caps[0], 0.0, 0f64);
    let carried_out = nodes.carry_out(job);
    tokio::pin!(carried_out);
    let outcome = loop {
        tokio::select! {
            outcome = &mut carried_out => break outcome.unwrap(),
            () = tokio::time::sleep(Duration::from_millis(20)) => {}
        }
        allowed += cap as f64 * std::mem::replace(&mut since, Instant::now()).elapsed().as_secs_f64();
        // Samples of the first half second are ignored, because a short burst distorts them.
        if start.elapsed() > Duration::from_millis(500) {
            most = most.max(sent() as f64 / allowed);
        }
        if cap == caps[0] && sent() > BYTES / 2 {
            cap = caps[1];
            limit(cap);
        }
    };
    assert_eq!(outcome.replanned, [""; 0], "nobody is blamed for keeping to a cap");
    allowed += cap as f64 * since.elapsed().as_secs_f64();
    (most, sent() as f64 / allowed)
}

/// A helper keeps to its cap whether it sends over one connection or over several, also if the cap changes
/// during the transfer. The lower bounds are loose, since the machine may be busy; `repair` tests the exact
/// arithmetic with a simulated clock.
#[tokio::test]
async fn a_cap_holds_for_all_connections_of_a_node_together() {
    for scheme in [Scheme::Pipelined, Scheme::Scatter] {
        for caps in [[400_000, 400_000], [300_000, 900_000], [900_000, 300_000]] {
            let (most, all) = read_capped(scheme, caps).await;
            assert!(most < 1.25, "{scheme} with caps {caps:?}: once {most} of what was allowed");
            assert!((0.4..1.1).contains(&all), "{scheme} with caps {caps:?}: {all} of what was allowed");
        }
    }
}

const SERIAL_SLICES: u32 = 6;
const SERIAL_SLICE_BYTES: u32 = 16 << 10;

/// Stores the surviving blocks of a stripe of (3,2); returns the repair of the lost one on node 0 with Pipe-S.
fn serial_repair(nodes: &Nodes) -> JobRequest {
    let bytes = u64::from(SERIAL_SLICES * SERIAL_SLICE_BYTES);
    let code = "rs-3-2".parse::<CodeSpec>().unwrap().build().unwrap();
    let chunking = Chunking::whole(&*code, bytes);
    let id = |index: u32| BlockId(format!("s.{index}"));
    for (index, block) in (0..).zip(encode(&*code, &chunking, 9, false)).skip(1) {
        let (_, memory) = &nodes.engines[&NodeId(index)];
        memory.blocks.lock().unwrap().insert(id(index), block);
    }
    let held = (0..3).map(|index| StripeBlock {
        id: id(index),
        bytes,
        holder: (index > 0).then_some(NodeId(index)),
        digest: None,
    });
    JobRequest {
        job: JobId(1),
        stripe: Stripe { id: StripeId("s".into()), code, chunking, blocks: held.collect(), label: None },
        wanted: vec![Wanted { block: BlockIndex(0), requestor: NodeId(0) }],
        window: 0..bytes,
        sub_blocks: None,
        policy: Policy { scheme: Scheme::PipeS, slice_bytes: Some(SERIAL_SLICE_BYTES), ..Policy::default() },
        verify: Verify::default(),
        publish: true,
        tag: None,
        permits: Vec::new(),
    }
}

/// A helper that runs a serial plan, between two nodes whose parts the test plays.
struct BetweenTwo {
    engine: Engine,
    /// The connection to the node before it, which sends.
    before: TcpStream,
    /// The connection to the node after it, which receives.
    after: TcpStream,
}

impl BetweenTwo {
    /// Starts a repair with Pipe-S by two helpers, and connects both neighbours of the second one.
    async fn start(nodes: &Nodes) -> Self {
        let mut job = Job::new(serial_repair(nodes), [7; 32], &nodes.topology, Duration::ZERO);
        let assigned = std::iter::from_fn(|| job.poll()).filter_map(|action| match action {
            JobAction::Tell { node, message: ToNode::Assign(assignment) } => Some((node, *assignment)),
            _ => None,
        });
        let assigned: Vec<(NodeId, Assignment)> = assigned.collect();
        let is_between = |one: &Assignment| !one.inlets.is_empty() && !one.outlets.is_empty();
        let (node, mut between) =
            assigned.iter().find(|(_, one)| is_between(one)).expect("a chain of two").clone();
        let (_, requestor) = assigned.iter().find(|(_, one)| one.outlets.is_empty()).expect("a requestor");
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        between.inlets[0].dial = Some(listener.local_addr().unwrap().to_string());
        let inlet = &requestor.inlets[0];
        let mut after = TcpStream::connect(inlet.dial.as_ref().expect("a helper listens")).await.unwrap();
        let (job, epoch) = (between.job, between.epoch);
        let greeting = Greeting { direction: Direction::Receive, job, epoch, key: inlet.key };
        after.write_all(&greeting.encode()).await.unwrap();
        let key = between.inlets[0].key;
        let engine = nodes.engines[&node].0.clone();
        assert_eq!(engine.handle(ToNode::Assign(Box::new(between))), None);
        let (mut before, _) = listener.accept().await.unwrap();
        let mut greeting = [0; GREETING_BYTES];
        before.read_exact(&mut greeting).await.unwrap();
        assert_eq!(Greeting::decode(&greeting).unwrap().key, key);
        Self { engine, before, after }
    }

    /// The next credit for the node before the helper.
    async fn credit(&mut self) -> Credit {
        let mut credit = [0; CREDIT_BYTES];
        self.before.read_exact(&mut credit).await.unwrap();
        Credit::decode(&credit).unwrap()
    }

    async fn send(&mut self, slice: u32) {
        let payload = noise(u64::from(slice), SERIAL_SLICE_BYTES as usize);
        self.before.write_all(&FrameHeader::slice(0, 0, slice, &payload).encode()).await.unwrap();
        self.before.write_all(&payload).await.unwrap();
    }

    async fn give(&mut self, credit: Credit) {
        self.after.write_all(&credit.encode()).await.unwrap();
    }

    /// The slice of the next frame for the node after the helper.
    async fn frame(&mut self) -> u32 {
        let (mut header, mut payload) = ([0; HEADER_BYTES], vec![0; SERIAL_SLICE_BYTES as usize]);
        self.after.read_exact(&mut header).await.unwrap();
        self.after.read_exact(&mut payload).await.unwrap();
        let header = FrameHeader::decode(&header, SERIAL_SLICE_BYTES).unwrap();
        header.verify(&payload).unwrap();
        header.slice
    }
}

/// Whether nothing arrives on a connection for a moment. A helper that sent something too early is almost
/// always noticed; a correct one never fails.
async fn is_quiet(connection: &TcpStream) -> bool {
    tokio::time::timeout(Duration::from_millis(20), connection.peek(&mut [0])).await.is_err()
}

/// The kernels of a helper and of its neighbours hold many slices here, but a helper of Pipe-S lets the node
/// before it send a slice only when the node after it has the previous one.
#[tokio::test]
async fn a_serial_helper_moves_one_slice_at_a_time_despite_the_kernels_buffers() {
    let nodes = Nodes::new(3).await;
    let mut helper = BetweenTwo::start(&nodes).await;
    for slice in 0..SERIAL_SLICES {
        assert_eq!(helper.credit().await, Credit::Ready { slice });
        helper.send(slice).await;
        assert_eq!(helper.credit().await, Credit::Received { slice });
        assert!(is_quiet(&helper.after).await, "slice {slice} is sent to a node that is not ready");
        helper.give(Credit::Ready { slice }).await;
        assert_eq!(helper.frame().await, slice);
        assert!(is_quiet(&helper.before).await, "slice {slice} counts as sent before it is confirmed");
        helper.give(Credit::Received { slice }).await;
    }
    let ended = async {
        while helper.engine.jobs() > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), ended).await.expect("the last slice is confirmed");
}
