//! Drives `Control` with events, simulated nodes and a real catalog.

mod background_scrub;
mod cancelled;
mod claims;
mod conditions;
mod contradictions;
mod copies;
mod described;
mod described_and_listed;
mod doubted;
mod files;
mod first_listing;
mod healing;
mod joining;
mod late;
mod measure;
mod metrics;
mod network;
mod operator;
mod parity;
mod recoveries;
mod reencoded;
mod repairs;
mod reserved_bandwidth;
mod scrubs;
mod storing;
mod surplus;
mod usage;

use crate::commands::{ClusterCommand, FileCommand, RepairCommand};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use cluster::{RepairAfter, Role};
use codes::BlockIndex;
use dir::DirCatalog;
use rand::SeedableRng;
use rand::rngs::StdRng;
use repair::wire::RequestFailure;
use repair::wire::control::{
    self, ClientRequest, Description, Ended, FromNode, HeldBlock, StoreProblem, ToNode,
};
use repair::{
    Assignment, BlockId, BlockProblem, Digest, Fingerprint, JobId, NodeId, Report, Scheme, StripeId,
};
use store_api::{CatalogError, Fault, OpenError, PutId, Storage, StoreError, StripeWrite, Term, Write};
use tempfile::TempDir;

use super::{
    Answer, Ask, Command, ConnectionId, Control, Effect, Event, ItemPage, Now, Opened, Reply, RequestId,
    Settings,
};
use crate::carry_out;
use crate::error::{FileError, NodeError, RequestError, ScrubError, StorageError};
use views::{
    FileLayout, PlanRequestView, PutRequest, PutView, RepairItem, RepairRequest, RepairView, Status,
};

const CLUSTER: &str = "00000000000000000000000000000001";
const CATALOG: &str = "catalog.redb";
/// A day in 2026.
const START_UNIX_MS: u64 = 1_790_000_000_000;

/// Returns the particulars of all conditions.
fn details(status: &Status) -> Vec<String> {
    status.details().map(str::to_owned).collect()
}

/// A coordinator with its storage, and simulated nodes.
struct TestCluster {
    folder: TempDir,
    core: Option<Control>,
    storage: Option<Storage>,
    term: Term,
    /// Whether the storage accepts requests without carrying them out yet.
    stuck: bool,
    /// Whether the storage fails every request.
    broken: bool,
    /// The nodes on which the storage refuses rebuilt blocks.
    distrusted: BTreeSet<NodeId>,
    /// The stripes that were claimed, once for each request.
    claimed: Vec<StripeId>,
    /// The blocks whose claims the storage refuses on every node.
    unclaimable: BTreeSet<BlockId>,
    /// The number of requests that the storage refused because of these nodes or blocks.
    refusals: usize,
    now: Duration,
    /// Milliseconds since 1970 at the last start of the coordinator.
    started_unix_ms: u64,
    connections: u64,
    requests: u64,
    answers: BTreeMap<RequestId, Answer>,
    nodes: BTreeMap<String, PlayedNode>,
    /// Nodes that receive messages and do not handle them yet.
    frozen: BTreeSet<String>,
    /// Blocks that are corrupt on disk.
    rotten: BTreeSet<BlockId>,
}

/// A simulated helper or client: it answers like a real one, but handles no bytes.
struct PlayedNode {
    connection: ConnectionId,
    inbox: VecDeque<ToNode>,
    node: Option<NodeId>,
    disk: BTreeMap<BlockId, u64>,
    sinks: BTreeMap<JobId, Vec<(BlockId, u64)>>,
    closed: BTreeMap<u64, Result<Ended, RequestFailure>>,
    refused: Option<String>,
    removed: Vec<BlockId>,
    assigned: Vec<Assignment>,
    /// Messages that the node has received and not handled yet.
    backlog: VecDeque<ToNode>,
    /// Whether the node rebuilds blocks with wrong bytes, as if its sources were wrong although their
    /// checksums hold.
    rebuilds_wrongly: bool,
    digests: PlayedDigests,
    /// Blocks that were replaced together with their checksums.
    forged: BTreeSet<BlockId>,
    /// The number of blocks that the node has verified.
    verified: u32,
    /// The number of blocks whose fingerprints the node has computed.
    fingerprinted: u32,
}

/// The digests that a simulated helper computes of its blocks.
#[derive(Default)]
struct PlayedDigests {
    /// Whether they are cryptographic.
    are_strong: bool,
    /// Whether the node's files contain other blocks than their names suggest.
    is_swapped: bool,
    /// Blocks whose bytes do not match the digests in their labels. Only full reads show this.
    changed: BTreeSet<BlockId>,
}

impl PlayedDigests {
    /// Returns the digest in the label of a block with this checksum.
    fn labelled(&self, sum: u32) -> Option<Digest> {
        Some(Digest::of_u32(if self.are_strong { "blake3" } else { "crc32c-list" }, sum))
    }

    /// Returns the digest of a block that is read in full.
    fn read(&self, block: &BlockId) -> Option<Digest> {
        self.labelled(sum(block) ^ u32::from(self.changed.contains(block)))
    }
}

fn settings() -> Settings {
    Settings {
        cluster_id: CLUSTER.into(),
        code: "rs-4-2".into(),
        block_bytes: 4096,
        scheme: "pipelined".into(),
        helpers: None,
        beside: BTreeMap::from([("10.0.0.6:9866".to_owned(), "h6".to_owned())]),
        repair_after: RepairAfter::Time(Duration::from_secs(600)),
        heal: None,
        scrub_bytes_per_s: None,
        scrub_parity: false,
        network: cluster::Network::default(),
    }
}

fn core(folder: &TempDir, unix_ms: u64) -> (Control, Storage, Term) {
    let mut storage = DirCatalog::open(folder.path().join(CATALOG), CLUSTER).unwrap().into_storage();
    let opened = Opened::read(&mut storage).unwrap();
    let term = opened.term();
    (Control::new(settings(), opened, StdRng::seed_from_u64(7), unix_ms), storage, term)
}

/// Returns the answer of a storage whose disk is full.
fn refuse(ask: Ask) -> Option<Event> {
    let number = match ask {
        Ask::Write { number, .. } => number,
        Ask::Recover => {
            let source = std::io::ErrorKind::StorageFull.into();
            return Some(Event::Recovered(Err(OpenError::Io { path: "catalog.redb".into(), source })));
        }
        _ => return None,
    };
    let (place, fault) = ("catalog.redb".to_owned(), Fault::Io(std::io::ErrorKind::StorageFull));
    let error = CatalogError::Storage { place, fault, detail: "no space".into() };
    Some(Event::Failed { number, error: StoreError::Catalog(error) })
}

/// Returns the answer of a storage that refuses a rebuilt block, or the claim of a stripe, on one of these
/// nodes; `None` if it accepts the write.
fn distrust(ask: &Ask, distrusted: &BTreeSet<NodeId>) -> Option<Event> {
    let Ask::Write { number, write: Write::Stripes(write) } = ask else { return None };
    let why = "it is distrusted".to_owned();
    let error = match write {
        StripeWrite::Publish { stripe, blocks, .. } => {
            let &(index, node, _) = blocks.iter().find(|(_, node, _)| distrusted.contains(node))?;
            let block = BlockId(format!("{stripe}.{}", index.0));
            StoreError::NotServed { block, node, server: node.to_string(), why }
        }
        StripeWrite::Claim { stripe, nodes, .. } => {
            let &node = nodes.iter().find(|&node| distrusted.contains(node))?;
            StoreError::Unfit { stripe: stripe.clone(), node, server: node.to_string(), why }
        }
        _ => return None,
    };
    Some(Event::Failed { number: *number, error })
}

/// Returns the answer of a storage that refuses the claims of these blocks; `None` if it accepts the write.
fn refuse_claim(ask: &Ask, unclaimable: &BTreeSet<BlockId>) -> Option<Event> {
    let Ask::Write { number, write: Write::Stripes(StripeWrite::Claim { stripe, blocks, .. }) } = ask else {
        return None;
    };
    let is_refused = |index: &BlockIndex| unclaimable.contains(&BlockId(format!("{stripe}.{}", index.0)));
    let error = StoreError::Taken { stripe: stripe.clone(), why: "it is being changed".to_owned() };
    blocks.iter().any(is_refused).then_some(Event::Failed { number: *number, error })
}

fn digest(block: &BlockId) -> Option<Digest> {
    of_sum(sum(block))
}

fn of_sum(sum: u32) -> Option<Digest> {
    Some(Digest::of_u32("crc32c-list", sum))
}

/// Returns the checksum of a block. It depends only on the name, because all copies of a block have the same
/// bytes.
fn sum(block: &BlockId) -> u32 {
    block.0.bytes().fold(17, |sum: u32, byte| sum.wrapping_mul(31).wrapping_add(byte.into()))
}

fn helper_role(name: &str) -> Role {
    Role::Helper(name.parse().unwrap())
}

fn hello(name: &str, disk: &BTreeMap<BlockId, u64>) -> FromNode {
    FromNode::RegisterHelper {
        version: control::VERSION,
        cluster_id: CLUSTER.into(),
        address: format!("{name}.example:7410"),
        rack: None,
        rates: repair::StatedRates::default(),
        blocks: disk.iter().map(|(id, &bytes)| HeldBlock { id: id.clone(), bytes }).collect(),
        more: false,
        incomplete: None,
        free_bytes: 1 << 30,
    }
}

/// A request to read a block of a stripe, of which these blocks count as lost.
fn read_request(stripe: &str, block: u16, pretend_lost: &[u16]) -> ClientRequest {
    ClientRequest::Read {
        stripe: StripeId(stripe.into()),
        blocks: vec![BlockIndex(block)],
        sub_blocks: None,
        window: (0, 4096),
        scheme: Scheme::Pipelined,
        slice_bytes: None,
        pacing: None,
        verify: false,
        pretend_lost: pretend_lost.iter().copied().map(BlockIndex).collect(),
        expected: Vec::new(),
    }
}

impl TestCluster {
    /// Creates a coordinator, helpers h1, h2, … and the client `admin`.
    fn new(helpers: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        DirCatalog::create(folder.path().join(CATALOG), CLUSTER).unwrap();
        let mut cluster = Self::over(folder);
        for number in 1..=helpers {
            cluster.start(&format!("h{number}"));
        }
        let client = FromNode::RegisterClient { version: control::VERSION, bandwidth: None, rack: None };
        cluster.join("admin", Role::Client("admin".parse().unwrap()), client);
        cluster.play();
        cluster
    }

    /// Creates a coordinator over the catalog in this folder, without any nodes.
    fn over(folder: TempDir) -> Self {
        let (core, storage, term) = core(&folder, START_UNIX_MS);
        Self {
            core: Some(core),
            storage: Some(storage),
            term,
            stuck: false,
            broken: false,
            distrusted: BTreeSet::new(),
            claimed: Vec::new(),
            unclaimable: BTreeSet::new(),
            refusals: 0,
            folder,
            now: Duration::ZERO,
            started_unix_ms: START_UNIX_MS,
            connections: 0,
            requests: 0,
            answers: BTreeMap::new(),
            nodes: BTreeMap::new(),
            frozen: BTreeSet::new(),
            rotten: BTreeSet::new(),
        }
    }

    /// Carries out Control's requests to the storage, and passes the results to Control.
    fn pump(&mut self) {
        while !self.stuck {
            let core = self.core.as_mut().unwrap();
            let asks: Vec<Ask> = std::iter::from_fn(|| core.poll_storage()).collect();
            if asks.is_empty() {
                return;
            }
            let answers = match self.broken {
                false => self.carry_out(asks),
                true => asks.into_iter().filter_map(refuse).collect(),
            };
            answers.into_iter().for_each(|answer| self.take(answer));
        }
    }

    fn carry_out(&mut self, asks: Vec<Ask>) -> Vec<Event> {
        self.claimed.extend(asks.iter().filter_map(|ask| match ask {
            Ask::Write { write: Write::Stripes(StripeWrite::Claim { stripe, .. }), .. } => {
                Some(stripe.clone())
            }
            _ => None,
        }));
        let (taken, refused): (Vec<_>, Vec<_>) = asks
            .into_iter()
            .map(|ask| {
                let refused = distrust(&ask, &self.distrusted);
                (refused.or_else(|| refuse_claim(&ask, &self.unclaimable)), ask)
            })
            .partition(|(why, _)| why.is_none());
        let taken = taken.into_iter().map(|(_, ask)| ask).collect();
        let (mut events, _) = carry_out(self.storage.as_mut().unwrap(), self.term, taken);
        self.refusals += refused.len();
        events.extend(refused.into_iter().filter_map(|(why, _)| why));
        events
    }

    fn core(&mut self) -> &mut Control {
        self.core.as_mut().unwrap()
    }

    fn clock(&self) -> Now {
        let unix_ms = self.started_unix_ms + self.now.as_millis() as u64;
        Now { since_start: self.now, unix_ms }
    }

    fn handle(&mut self, event: Event) {
        self.take(event);
        self.pump();
    }

    fn take(&mut self, event: Event) {
        let now = self.clock();
        self.core().handle(event, now);
        self.deliver();
    }

    fn tick(&mut self) {
        let now = self.clock();
        self.core().handle_tick(now);
        self.deliver();
    }

    /// Delivers Control's messages to nodes, and Control's answers to the test.
    fn deliver(&mut self) {
        while let Some(effect) = self.core().poll() {
            match effect {
                Effect::Send { connection, message } => {
                    let node = self.nodes.values_mut().find(|node| node.connection == connection);
                    node.into_iter().for_each(|node| node.inbox.push_back((*message).clone()));
                }
                Effect::Close { .. } => {}
                Effect::Answer(answer) => drop(self.answers.insert(answer.request, answer)),
            }
        }
    }

    fn join(&mut self, name: &str, role: Role, hello: FromNode) {
        self.connections += 1;
        let connection = ConnectionId(self.connections);
        let before = self.nodes.remove(name);
        let are_strong = before.as_ref().is_some_and(|before| before.digests.are_strong);
        let digests = PlayedDigests { are_strong, ..PlayedDigests::default() };
        let node = PlayedNode {
            connection,
            inbox: VecDeque::new(),
            node: None,
            disk: before.map(|before| before.disk).unwrap_or_default(),
            sinks: BTreeMap::new(),
            closed: BTreeMap::new(),
            refused: None,
            removed: Vec::new(),
            assigned: Vec::new(),
            backlog: VecDeque::new(),
            rebuilds_wrongly: false,
            digests,
            forged: BTreeSet::new(),
            verified: 0,
            fingerprinted: 0,
        };
        self.nodes.insert(name.to_owned(), node);
        self.handle(Event::Joined { connection, role, hello: Box::new(hello) });
    }

    /// Starts a helper with its present disk.
    fn start(&mut self, name: &str) {
        let hello = hello(name, &self.nodes.get(name).map(|node| node.disk.clone()).unwrap_or_default());
        self.join(name, helper_role(name), hello);
        self.play();
    }

    /// Starts a helper that lists no block, because it could not list all of them.
    fn start_partly(&mut self, name: &str) {
        let mut partial = hello(name, &BTreeMap::new());
        if let FromNode::RegisterHelper { incomplete, .. } = &mut partial {
            *incomplete = Some("no answer from the disk of /d2".to_owned());
        }
        self.join(name, helper_role(name), partial);
        self.play();
    }

    /// Starts a helper whose files contain other blocks than their names suggest.
    fn start_swapped(&mut self, name: &str) {
        let hello = hello(name, &self.nodes[name].disk);
        self.join(name, helper_role(name), hello);
        self.node(name).digests.is_swapped = true;
        self.play();
    }

    fn kill(&mut self, name: &str) {
        let node = self.node(name);
        let connection = node.connection;
        node.sinks.clear();
        node.backlog.clear();
        node.inbox.clear();
        self.handle(Event::Left { connection, why: "killed".into() });
        self.play();
    }

    fn say(&mut self, name: &str, message: FromNode) {
        let connection = self.nodes[name].connection;
        self.handle(Event::Said { connection, message: Box::new(message) });
    }

    /// Lets all nodes answer until no message is left.
    fn play(&mut self) {
        loop {
            let answers = self.answers();
            if answers.is_empty() {
                return;
            }
            answers.into_iter().for_each(|(name, answer)| self.say(&name, answer));
        }
    }

    /// Lets all nodes answer, but keeps a helper from committing a block that it is told to commit.
    fn play_until_commit(&mut self, helper: &str) {
        self.frozen.insert(helper.to_owned());
        let rotten = self.rotten.clone();
        loop {
            self.play();
            let node = self.node(helper);
            if let Some(ToNode::Commit { .. }) = node.backlog.front() {
                return;
            }
            let message = node.backlog.pop_front().expect("the helper is told to commit");
            if let Some(answer) = node.answer(message, &rotten) {
                self.say(helper, answer);
            }
        }
    }

    /// Returns the answers of the nodes to all messages so far.
    fn answers(&mut self) -> Vec<(String, FromNode)> {
        let mut answers = Vec::new();
        for (name, node) in &mut self.nodes {
            node.backlog.append(&mut node.inbox);
            while !self.frozen.contains(name)
                && let Some(message) = node.backlog.pop_front()
            {
                let answer = node.answer(message, &self.rotten);
                answers.extend(answer.map(|answer| (name.clone(), answer)));
            }
        }
        answers
    }

    fn wait(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.now += Duration::from_millis(50);
            self.tick();
            self.pump();
            self.play();
        }
    }

    fn ask<T: Send + 'static, C: Into<Command>>(
        &mut self,
        command: impl FnOnce(Reply<T>) -> C,
    ) -> Result<T, RequestError> {
        let request = self.await_later(command);
        self.answered(request).expect("commands are answered at once")
    }

    /// Returns the answer to a request, if it has arrived.
    fn answered<T: 'static>(&mut self, request: RequestId) -> Option<Result<T, RequestError>> {
        self.answers.remove(&request).map(Answer::take)
    }

    /// Sends a request whose answer may arrive later.
    fn await_later<T: Send + 'static, C: Into<Command>>(
        &mut self,
        command: impl FnOnce(Reply<T>) -> C,
    ) -> RequestId {
        self.requests += 1;
        let request = RequestId(self.requests);
        self.handle(Event::Asked(Box::new(command(Reply::to(request)).into())));
        request
    }

    fn status(&mut self) -> Status {
        self.ask(ClusterCommand::Status).unwrap()
    }

    fn begin(&mut self, name: &str, bytes: u64) -> Result<PutView, RequestError> {
        self.begin_coded(name, None, bytes)
    }

    fn begin_coded(&mut self, name: &str, code: Option<&str>, bytes: u64) -> Result<PutView, RequestError> {
        let request = PutRequest {
            name: name.into(),
            bytes,
            code: code.map(str::to_owned),
            block_bytes: None,
            chunk_bytes: None,
            replace: false,
        };
        self.ask(|reply| FileCommand::BeginPut(request, "client admin".to_owned(), reply))
    }

    fn open(&mut self, tag: u64, request: ClientRequest) {
        self.say("admin", FromNode::Open { tag, request });
        self.play();
    }

    fn closed(&mut self, tag: u64) -> Option<Result<Ended, RequestFailure>> {
        self.nodes.get_mut("admin").unwrap().closed.remove(&tag)
    }

    /// Stores a file of this many whole stripes.
    fn put(&mut self, name: &str, stripes: u64) -> FileLayout {
        let put = self.begin(name, stripes * 8192).unwrap();
        assert_eq!(put.stripes.len() as u64, stripes);
        self.finish_put(name, &put)
    }

    /// Stores a file with this code.
    fn put_coded(&mut self, name: &str, code: &str, bytes: u64) -> FileLayout {
        let put = self.begin_coded(name, Some(code), bytes).unwrap();
        self.finish_put(name, &put)
    }

    fn finish_put(&mut self, name: &str, put: &PutView) -> FileLayout {
        for position in 0..put.stripes.len() as u32 {
            self.open(1, ClientRequest::PutStripe { put: put.put, position });
            self.closed(1).unwrap().unwrap();
        }
        self.ask(|reply| FileCommand::CommitPut(PutId(put.put), reply)).unwrap();
        self.file(name)
    }

    fn file(&mut self, name: &str) -> FileLayout {
        self.ask(|reply| FileCommand::Layout(name.into(), reply)).unwrap()
    }

    fn read(&mut self, tag: u64, stripe: &str, block: u16, pretend_lost: &[u16]) {
        self.open(tag, read_request(stripe, block, pretend_lost));
    }

    fn repair(&mut self, request: RepairRequest) -> RepairView {
        let repair = self.ask(|reply| RepairCommand::Queue(request.into(), reply)).unwrap();
        self.play();
        self.repair_state(repair.repair)
    }

    fn repair_all(&mut self) -> RepairView {
        self.repair(RepairRequest { all: true, ..RepairRequest::default() })
    }

    fn repair_state(&mut self, repair: u64) -> RepairView {
        self.ask(|reply| RepairCommand::State(repair, ItemPage::default(), reply)).unwrap()
    }

    fn node(&mut self, name: &str) -> &mut PlayedNode {
        self.nodes.get_mut(name).unwrap()
    }

    /// Kills the coordinator and starts it again. All connections are lost.
    fn restart(&mut self) {
        (self.core, self.storage) = (None, None);
        let now = self.clock().unix_ms;
        let (core, storage, term) = core(&self.folder, now);
        self.started_unix_ms = now;
        (self.core, self.storage, self.term) = (Some(core), Some(storage), term);
        self.now = Duration::ZERO;
    }
}

impl PlayedNode {
    fn answer(&mut self, message: ToNode, rotten: &BTreeSet<BlockId>) -> Option<FromNode> {
        match message {
            ToNode::Registered { node } => self.node = Some(node),
            ToNode::Refused { reason, .. } => self.refused = Some(reason),
            ToNode::Closed { tag, result } => drop(self.closed.insert(tag, result)),
            ToNode::Forget { job } => drop(self.sinks.remove(&job)),
            ToNode::Assign(assignment) => {
                self.assigned.push((*assignment).clone());
                return self.carry_out(*assignment, rotten);
            }
            ToNode::Verify { ask, block, .. } => {
                self.verified += 1;
                return Some(self.verify(ask, block, rotten));
            }
            order => return self.answer_order(order),
        }
        None
    }

    fn is_assigned(&self) -> bool {
        self.backlog.iter().any(|message| matches!(message, ToNode::Assign(_)))
    }

    fn carry_out(&mut self, assignment: Assignment, rotten: &BTreeSet<BlockId>) -> Option<FromNode> {
        let (job, epoch) = (assignment.job, assignment.epoch);
        let say = |report| Some(FromNode::Report { job, epoch, report });
        let is_client = self.node.is_some_and(|node| node.0 >= super::nodes::FIRST_CLIENT);
        let is_probe = assignment.class == repair::Class::Probe;
        for local in assignment.locals.iter().filter(|_| !(is_client || is_probe)) {
            if !self.disk.contains_key(&local.id) {
                return say(Report::BadBlock { block: local.id.clone(), problem: BlockProblem::Missing });
            }
            if rotten.contains(&local.id) {
                let problem = BlockProblem::Corrupt("page 3".into());
                return say(Report::BadBlock { block: local.id.clone(), problem });
            }
        }
        if assignment.sinks.is_empty() {
            return None;
        }
        self.sinks.insert(job, assignment.sinks.into_iter().map(|sink| (sink.id, sink.bytes)).collect());
        say(Report::Delivered)
    }

    fn answer_order(&mut self, order: ToNode) -> Option<FromNode> {
        let (job, epoch, report) = match order {
            ToNode::Stop { job, epoch } => (job, epoch, Report::Stopped { delivered: Default::default() }),
            ToNode::Seal { job, epoch } => {
                let sinks = &self.sinks[&job];
                let made =
                    |block: &BlockId| self.digests.labelled(sum(block) ^ u32::from(self.rebuilds_wrongly));
                let digests = sinks.iter().map(|(block, _)| (block.clone(), made(block))).collect();
                (job, epoch, Report::Sealed { digests, hand_over_ms: 0 })
            }
            ToNode::Fingerprint { job, epoch, block, chunking, seed, .. } => {
                self.fingerprinted += 1;
                let one = match self.forged.contains(&block.id) {
                    true => Fingerprint(vec![1; repair::FINGERPRINT_BYTES]),
                    false => Fingerprint::zero(),
                };
                let fingerprints = vec![one; chunking.sub_blocks().into()];
                (job, epoch, Report::Fingerprinted { block: block.id, seed, fingerprints })
            }
            ToNode::Commit { job, epoch } => {
                self.disk.extend(self.sinks.remove(&job).unwrap());
                (job, epoch, Report::Committed)
            }
            ToNode::Reread { job, epoch, block, .. } => {
                let digest = self.digests.read(&block);
                (job, epoch, Report::Reread { block, digest })
            }
            ToNode::Remove { block } => {
                self.disk.remove(&block);
                self.removed.push(block.clone());
                return Some(FromNode::Removed { block });
            }
            ToNode::Describe { ask } => {
                let described = |(id, &bytes): (&BlockId, &u64)| {
                    let sum = if self.digests.is_swapped { 1 } else { sum(id) };
                    let digest = self.digests.labelled(sum);
                    Description { id: id.clone(), bytes, digest, label: None }
                };
                let blocks = self.disk.iter().map(described).collect();
                return Some(FromNode::Described { ask, blocks, last: true });
            }
            ToNode::List { ask } => {
                let held = |(id, &bytes): (&BlockId, &u64)| HeldBlock { id: id.clone(), bytes };
                return Some(FromNode::Listed {
                    ask,
                    blocks: self.disk.iter().map(held).collect(),
                    more: false,
                });
            }
            _ => return None,
        };
        Some(FromNode::Report { job, epoch, report })
    }

    fn verify(&self, ask: u64, block: BlockId, rotten: &BTreeSet<BlockId>) -> FromNode {
        let result = match self.disk.contains_key(&block) {
            false => Err(BlockProblem::Missing),
            true if rotten.contains(&block) => Err(BlockProblem::Corrupt("page 3".into())),
            true => Ok(self.digests.read(&block)),
        };
        FromNode::Verified { ask, block, result }
    }
}

/// Returns the helper that holds a block of a file's first stripe.
fn home(file: &FileLayout, index: usize) -> String {
    file.layout[0].stripe.blocks[index].node.clone().unwrap()
}

fn block(file: &FileLayout, index: usize) -> BlockId {
    BlockId(file.layout[0].stripe.blocks[index].block.clone())
}

fn states(file: &FileLayout) -> Vec<&str> {
    file.layout[0].stripe.blocks.iter().map(|block| block.state.name()).collect()
}
