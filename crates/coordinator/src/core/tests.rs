//! The core driven by events, with nodes that are played and a real catalog.

mod given;
mod measure;
mod operator;
mod recoveries;
mod steady;
mod storing;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use cluster::{RepairAfter, Role};
use codes::BlockIndex;
use rand::SeedableRng;
use rand::rngs::StdRng;
use repair::wire::RequestFailure;
use repair::wire::control::{
    self, ClientRequest, Description, Ended, FromNode, HeldBlock, StoreProblem, ToNode,
};
use repair::{
    Assignment, BlockId, BlockProblem, Digest, Fingerprint, JobId, NodeId, Report, Scheme, StripeId,
};
use stores::dir::{DirCatalog, PutId};
use stores::{CatalogError, Fault, StoreError, Term};
use tempfile::TempDir;
use tokio::sync::{mpsc, oneshot};

use super::{Ask, Command, ConnectionId, Core, Event, OUTBOX_MESSAGES, Opened, Reply, Settings};
use crate::error::RequestError;
use crate::storage::carry_out;
use views::{
    FileLayout, PlanRequestView, PutRequest, PutView, RepairItem, RepairRequest, RepairView, Status,
};

const CLUSTER: &str = "00000000000000000000000000000001";
const CATALOG: &str = "catalog.redb";

/// A coordinator and the nodes around it.
struct Scene {
    folder: TempDir,
    core: Option<Core>,
    storage: Option<DirCatalog>,
    term: Term,
    /// The storage takes what it is asked and does nothing yet.
    stuck: bool,
    /// The storage refuses everything.
    broken: bool,
    now: Duration,
    connections: u64,
    nodes: BTreeMap<String, PlayedNode>,
    /// Nodes that take messages and do nothing yet.
    frozen: BTreeSet<String>,
    /// Blocks whose disks give other bytes.
    rotten: BTreeSet<BlockId>,
}

/// A helper or client that does what a real one does, without the bytes.
struct PlayedNode {
    connection: ConnectionId,
    inbox: mpsc::Receiver<ToNode>,
    node: Option<NodeId>,
    disk: BTreeMap<BlockId, u64>,
    sinks: BTreeMap<JobId, Vec<(BlockId, u64)>>,
    closed: BTreeMap<u64, Result<Ended, RequestFailure>>,
    refused: Option<String>,
    removed: Vec<BlockId>,
    assigned: Vec<Assignment>,
    /// What it has received and not done yet.
    backlog: VecDeque<ToNode>,
    /// What it rebuilds is not what was lost: its sources were not what their checksums say.
    rebuilds_wrongly: bool,
    /// Its files hold other blocks than their names say.
    is_swapped: bool,
}

fn settings() -> Settings {
    Settings {
        cluster_id: CLUSTER.into(),
        code: "rs-4-2".into(),
        block_bytes: 4096,
        scheme: "pipelined".into(),
        helpers: None,
        repair_after: RepairAfter::Time(Duration::from_secs(600)),
        heal: None,
        scrub_bytes_per_s: None,
    }
}

fn core(folder: &TempDir) -> (Core, DirCatalog, Term) {
    let mut catalog = DirCatalog::open(folder.path().join(CATALOG), CLUSTER).unwrap();
    let opened = Opened::read(&mut catalog).unwrap();
    let term = opened.term();
    (Core::new(settings(), opened, StdRng::seed_from_u64(7)), catalog, term)
}

/// What a storage says whose medium fails.
fn refuse(ask: Ask) -> Option<Event> {
    let Ask::Write { number, .. } = ask else { return None };
    let (place, fault) = ("catalog.redb".to_owned(), Fault::Io(std::io::ErrorKind::StorageFull));
    let error = CatalogError::Storage { place, fault, detail: "no space".into() };
    Some(Event::Failed { number, error: StoreError::Catalog(error) })
}

fn digest(block: &BlockId) -> Option<Digest> {
    of_sum(sum(block))
}

fn of_sum(sum: u32) -> Option<Digest> {
    Some(Digest::of_u32("crc32c-list", sum))
}

/// Every block of one name has the same bytes, wherever and whenever it is made.
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
        bandwidth: None,
        blocks: disk.iter().map(|(id, &bytes)| HeldBlock { id: id.clone(), bytes }).collect(),
        more: false,
        free_bytes: 1 << 30,
    }
}

impl Scene {
    /// A coordinator with helpers h1, h2, … and the client admin.
    fn new(helpers: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        DirCatalog::create(folder.path().join(CATALOG), CLUSTER).unwrap();
        let mut scene = Self::over(folder);
        for number in 1..=helpers {
            scene.start(&format!("h{number}"));
        }
        let client = FromNode::RegisterClient { version: control::VERSION, bandwidth: None };
        scene.join("admin", Role::Client("admin".parse().unwrap()), client);
        scene.play();
        scene
    }

    /// A coordinator over what is in this folder, and nobody around it.
    fn over(folder: TempDir) -> Self {
        let (core, storage, term) = core(&folder);
        Self {
            core: Some(core),
            storage: Some(storage),
            term,
            stuck: false,
            broken: false,
            folder,
            now: Duration::ZERO,
            connections: 0,
            nodes: BTreeMap::new(),
            frozen: BTreeSet::new(),
            rotten: BTreeSet::new(),
        }
    }

    /// Has the storage do what it is asked, and the core hear of it.
    fn pump(&mut self) {
        while !self.stuck {
            let core = self.core.as_mut().unwrap();
            let asks: Vec<Ask> = std::iter::from_fn(|| core.poll_storage()).collect();
            if asks.is_empty() {
                return;
            }
            let answers = match self.broken {
                false => carry_out(self.storage.as_mut().unwrap(), self.term, asks),
                true => asks.into_iter().filter_map(refuse).collect(),
            };
            let now = self.now;
            answers.into_iter().for_each(|answer| self.core().handle(answer, now));
        }
    }

    fn core(&mut self) -> &mut Core {
        self.core.as_mut().unwrap()
    }

    fn handle(&mut self, event: Event) {
        let now = self.now;
        self.core().handle(event, now);
        self.pump();
    }

    fn join(&mut self, name: &str, role: Role, hello: FromNode) {
        self.connections += 1;
        let connection = ConnectionId(self.connections);
        let (outbox, inbox) = mpsc::channel(OUTBOX_MESSAGES);
        let before = self.nodes.remove(name);
        let node = PlayedNode {
            connection,
            inbox,
            node: None,
            disk: before.map(|before| before.disk).unwrap_or_default(),
            sinks: BTreeMap::new(),
            closed: BTreeMap::new(),
            refused: None,
            removed: Vec::new(),
            assigned: Vec::new(),
            backlog: VecDeque::new(),
            rebuilds_wrongly: false,
            is_swapped: false,
        };
        self.nodes.insert(name.to_owned(), node);
        self.handle(Event::Joined {
            connection,
            role,
            hello: Box::new(hello),
            outbox,
            room: Default::default(),
        });
    }

    /// Starts a helper with what is on its disk.
    fn start(&mut self, name: &str) {
        let hello = hello(name, &self.nodes.get(name).map(|node| node.disk.clone()).unwrap_or_default());
        self.join(name, helper_role(name), hello);
        self.play();
    }

    /// The same, with files that hold other blocks than their names say.
    fn start_swapped(&mut self, name: &str) {
        let hello = hello(name, &self.nodes[name].disk);
        self.join(name, helper_role(name), hello);
        self.node(name).is_swapped = true;
        self.play();
    }

    fn kill(&mut self, name: &str) {
        let node = self.node(name);
        let connection = node.connection;
        node.sinks.clear();
        node.backlog.clear();
        node.inbox.close();
        self.handle(Event::Left { connection, why: "killed".into() });
        self.play();
    }

    fn say(&mut self, name: &str, message: FromNode) {
        let connection = self.nodes[name].connection;
        self.handle(Event::Said { connection, message: Box::new(message), room: Default::default() });
    }

    /// Lets all nodes answer until nobody has anything to say.
    fn play(&mut self) {
        loop {
            let answers = self.answers();
            if answers.is_empty() {
                return;
            }
            answers.into_iter().for_each(|(name, answer)| self.say(&name, answer));
        }
    }

    /// What the nodes answer to all that they were told.
    fn answers(&mut self) -> Vec<(String, FromNode)> {
        let mut answers = Vec::new();
        for (name, node) in &mut self.nodes {
            while let Ok(message) = node.inbox.try_recv() {
                node.backlog.push_back(message);
            }
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
            let now = self.now;
            self.core().handle_tick(now);
            self.pump();
            self.play();
        }
    }

    fn ask<T>(&mut self, command: impl FnOnce(Reply<T>) -> Command) -> Result<T, RequestError> {
        let (reply, mut answer) = oneshot::channel();
        self.handle(Event::Asked(Box::new(command(reply))));
        answer.try_recv().expect("commands are answered at once")
    }

    fn status(&mut self) -> Status {
        self.ask(Command::Status).unwrap()
    }

    fn begin(&mut self, name: &str, bytes: u64) -> Result<PutView, RequestError> {
        let request = PutRequest {
            name: name.into(),
            bytes,
            code: None,
            block_bytes: None,
            chunk_bytes: None,
            replace: false,
        };
        self.ask(|reply| Command::BeginPut(request, reply))
    }

    fn open(&mut self, tag: u64, request: ClientRequest) {
        self.say("admin", FromNode::Open { tag, request });
        self.play();
    }

    fn closed(&mut self, tag: u64) -> Option<Result<Ended, RequestFailure>> {
        self.nodes.get_mut("admin").unwrap().closed.remove(&tag)
    }

    /// Puts a file of whole stripes.
    fn put(&mut self, name: &str, stripes: u64) -> FileLayout {
        let put = self.begin(name, stripes * 8192).unwrap();
        assert_eq!(put.stripes.len() as u64, stripes);
        for position in 0..stripes as u32 {
            self.open(1, ClientRequest::PutStripe { put: put.put, position });
            self.closed(1).unwrap().unwrap();
        }
        self.ask(|reply| Command::CommitPut(PutId(put.put), reply)).unwrap();
        self.file(name)
    }

    fn file(&mut self, name: &str) -> FileLayout {
        self.ask(|reply| Command::File(name.into(), reply)).unwrap()
    }

    fn read(&mut self, tag: u64, stripe: &str, block: u16, pretend_lost: &[u16]) {
        self.open(
            tag,
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
            },
        );
    }

    fn repair(&mut self, request: RepairRequest) -> RepairView {
        let repair = self.ask(|reply| Command::Repair(request, reply)).unwrap();
        self.play();
        self.repair_state(repair.repair)
    }

    fn repair_all(&mut self) -> RepairView {
        self.repair(RepairRequest { all: true, ..RepairRequest::default() })
    }

    fn repair_state(&mut self, repair: u64) -> RepairView {
        self.ask(|reply| Command::RepairState(repair, reply)).unwrap()
    }

    fn node(&mut self, name: &str) -> &mut PlayedNode {
        self.nodes.get_mut(name).unwrap()
    }

    /// The coordinator is killed and started again; the nodes' connections break.
    fn restart(&mut self) {
        (self.core, self.storage) = (None, None);
        let (core, storage, term) = core(&self.folder);
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
            ToNode::Verify { ask, block } => return Some(self.verified(ask, block, rotten)),
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
        for local in assignment.locals.iter().filter(|_| !is_client) {
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
                let made = |block: &BlockId| of_sum(sum(block) ^ u32::from(self.rebuilds_wrongly));
                let digests = sinks.iter().map(|(block, _)| (block.clone(), made(block))).collect();
                (job, epoch, Report::Sealed { digests, hand_over_ms: 0 })
            }
            ToNode::Fingerprint { job, epoch, block, chunking, seed, .. } => {
                let fingerprints = vec![Fingerprint::zero(); chunking.sub_blocks().into()];
                (job, epoch, Report::Fingerprinted { block: block.id, seed, fingerprints })
            }
            ToNode::Commit { job, epoch } => {
                self.disk.extend(self.sinks.remove(&job).unwrap());
                (job, epoch, Report::Committed)
            }
            ToNode::Reread { job, epoch, block } => {
                let digest = digest(&block);
                (job, epoch, Report::Reread { block, digest })
            }
            ToNode::Remove { block } => {
                self.disk.remove(&block);
                self.removed.push(block.clone());
                return Some(FromNode::Removed { block });
            }
            ToNode::Describe { ask } => {
                let described = |(id, &bytes): (&BlockId, &u64)| {
                    let digest = if self.is_swapped { of_sum(1) } else { digest(id) };
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

    fn verified(&self, ask: u64, block: BlockId, rotten: &BTreeSet<BlockId>) -> FromNode {
        let result = match self.disk.contains_key(&block) {
            false => Err(BlockProblem::Missing),
            true if rotten.contains(&block) => Err(BlockProblem::Corrupt("page 3".into())),
            true => Ok(digest(&block)),
        };
        FromNode::Verified { ask, block, result }
    }
}

/// The helper of a block of a file's first stripe.
fn home(file: &FileLayout, index: usize) -> String {
    file.layout[0].stripe.blocks[index].node.clone().unwrap()
}

fn block(file: &FileLayout, index: usize) -> BlockId {
    BlockId(file.layout[0].stripe.blocks[index].block.clone())
}

fn states(file: &FileLayout) -> Vec<&str> {
    file.layout[0].stripe.blocks.iter().map(|block| block.state.name()).collect()
}

// ---- registration ----

#[test]
fn a_name_registers_once_at_a_time() {
    let mut scene = Scene::new(1);
    let disk = BTreeMap::new();
    let first = scene.nodes.remove("h1").unwrap();
    scene.join("h1", helper_role("h1"), hello("h1", &disk));
    scene.play();
    let reason = scene.node("h1").refused.take().unwrap();
    assert!(reason.starts_with("helper h1 is registered already, from h1.example:7410; stop"), "{reason}");

    // Once the first has gone, there is room for another, which gets the same number.
    scene.handle(Event::Left { connection: first.connection, why: "killed".into() });
    scene.start("h1");
    assert_eq!(scene.node("h1").refused, None);
    assert_eq!(scene.node("h1").node, first.node);
}

#[test]
fn who_does_not_belong_is_refused_with_the_reason() {
    let mut scene = Scene::new(0);
    let helper = |version, cluster_id: &str| FromNode::RegisterHelper {
        version,
        cluster_id: cluster_id.into(),
        address: "h1.example:7410".into(),
        rack: None,
        bandwidth: None,
        blocks: Vec::new(),
        more: false,
        free_bytes: 0,
    };
    let client = FromNode::RegisterClient { version: control::VERSION, bandwidth: None };
    let admin = Role::Client("admin".parse().unwrap());
    for (role, hello, reason) in [
        (helper_role("h1"), helper(control::VERSION + 1, CLUSTER), "run the same mend on both"),
        (helper_role("h1"), helper(control::VERSION, "another"), "belong to cluster another"),
        (helper_role("h1"), client.clone(), "helper h1 must register as what its certificate says"),
        (admin.clone(), helper(control::VERSION, CLUSTER), "client admin must register"),
        (admin, FromNode::RegisterClient { version: 0, bandwidth: None }, "speaks version 0"),
        (Role::Coordinator, client, "certificate of a coordinator"),
    ] {
        scene.join("x", role, hello);
        scene.play();
        let refused = scene.node("x").refused.take().unwrap();
        assert!(refused.contains(reason), "{refused}");
    }
    assert_eq!(scene.status().nodes_up, [""; 0]);
}

#[test]
fn what_a_helper_lacks_is_missing_until_it_is_back_and_verified() {
    let mut scene = Scene::new(4);
    let file = scene.put("f", 1);
    let (name, lost) = (home(&file, 1), block(&file, 1));
    scene.kill(&name);
    assert_eq!(states(&scene.file("f")), ["healthy", "down", "healthy", "healthy"]);

    let bytes = scene.node(&name).disk.remove(&lost).unwrap();
    scene.start(&name);
    assert_eq!(states(&scene.file("f")), ["healthy", "missing", "healthy", "healthy"]);
    assert_eq!(scene.status().lost_lately[0].block, lost.0);

    scene.kill(&name);
    scene.node(&name).disk.insert(lost.clone(), bytes);
    scene.rotten.insert(lost.clone());
    scene.start(&name);
    assert_eq!(states(&scene.file("f"))[1], "corrupt", "there again, but not the same");

    scene.kill(&name);
    scene.rotten.clear();
    scene.start(&name);
    assert_eq!(states(&scene.file("f"))[1], "healthy");

    scene.kill(&name);
    scene.node(&name).disk.insert(lost, bytes - 1);
    scene.start(&name);
    assert_eq!(states(&scene.file("f"))[1], "corrupt", "truncated");
}

#[test]
fn unknown_blocks_are_reported_and_never_removed() {
    let mut scene = Scene::new(4);
    scene.kill("h2");
    scene.node("h2").disk.insert(BlockId("99.0".into()), 5);
    scene.start("h2");
    let orphans = scene.status().orphans;
    assert_eq!((orphans[0].node.as_str(), orphans[0].block.as_str()), ("h2", "99.0"));
    assert!(scene.node("h2").disk.contains_key(&BlockId("99.0".into())));
}

// ---- puts ----

#[test]
fn a_put_is_visible_when_it_is_committed() {
    let mut scene = Scene::new(5);
    let put = scene.begin("f", 8192 + 1).unwrap();
    let sizes: Vec<_> = put.stripes.iter().map(|stripe| (stripe.block_bytes, stripe.data_bytes)).collect();
    assert_eq!(sizes, [(4096, 8192), (64, 1)]);
    let commit = |reply| Command::CommitPut(PutId(put.put), reply);
    let early = scene.ask(commit).unwrap_err().to_string();
    assert!(early.contains("lacks the stripe at position 0"), "{early}");
    for position in 0..2 {
        scene.open(position, ClientRequest::PutStripe { put: put.put, position: position as u32 });
        assert_eq!(scene.closed(position).unwrap().unwrap().replanned, [""; 0]);
    }
    assert!(scene.ask(|reply| Command::File("f".into(), reply)).is_err(), "not visible yet");
    scene.ask(commit).unwrap();
    let file = scene.file("f");
    assert_eq!(file.file.bytes, 8193);
    assert_eq!(states(&file), ["healthy"; 4]);
    let nodes: BTreeSet<_> = (0..4).map(|index| home(&file, index)).collect();
    assert_eq!(nodes.len(), 4, "one block to a node");
    assert_eq!(file.layout[1].file_offset, 8192);
    let taken = scene.begin("f", 1).unwrap_err();
    assert!(taken.to_string().contains("there is a file `f` already"), "{taken}");
}

#[test]
fn an_empty_file_has_no_stripes() {
    let mut scene = Scene::new(0);
    let put = scene.begin("empty", 0).unwrap();
    assert!(put.stripes.is_empty());
    scene.ask(|reply| Command::CommitPut(PutId(put.put), reply)).unwrap();
    assert!(scene.file("empty").layout.is_empty());
    assert!(scene.status().summary.starts_with("safe  nothing is stored"));
}

#[test]
fn too_few_helpers_are_counted_and_named() {
    let mut scene = Scene::new(4);
    scene.kill("h3");
    let error = scene.begin("f", 1).unwrap_err();
    assert_eq!(
        error.to_string(),
        "rs-4-2 needs 4 live helpers with room for 64 bytes each, and there are 3; down: h3"
    );
}

#[test]
fn bad_puts_are_refused_with_what_would_be_right() {
    let mut scene = Scene::new(4);
    let mut refused = |code: &str, block_bytes| {
        let (code, block_bytes) = (Some(code.to_owned()), Some(block_bytes));
        let request =
            PutRequest { name: "f".into(), bytes: 1, code, block_bytes, chunk_bytes: None, replace: false };
        let error = scene.ask(|reply| Command::BeginPut(request, reply)).unwrap_err();
        format!("{error}; {}", error.next_step())
    };
    for (code, block_bytes, expected) in [
        ("rs-4-4", 4096, "must be more than the k = 4"),
        ("rs-256-10", 4096, "at most 255 blocks"),
        ("raid5", 4096, "no code `raid5`"),
        ("rs-4-2", 0, "smallest possible size is 4096"),
        ("rs-4-2", 5000, "nearest possible sizes are 4096 and 8192"),
    ] {
        let text = refused(code, block_bytes);
        assert!(text.contains(expected), "{text}");
    }
}

#[test]
fn an_aborted_put_leaves_nothing() {
    let mut scene = Scene::new(4);
    let put = scene.begin("f", 8192).unwrap().put;
    scene.open(1, ClientRequest::PutStripe { put, position: 0 });
    assert!(scene.nodes.values().filter(|node| !node.disk.is_empty()).count() == 4);
    scene.ask(|reply| Command::AbortPut(PutId(put), reply)).unwrap();
    scene.play();
    assert!(scene.nodes.values().all(|node| node.disk.is_empty()));
    assert!(scene.ask(|reply| Command::CommitPut(PutId(put), reply)).is_err());
    assert!(scene.ask(Command::Nodes).unwrap().iter().all(|node| node.blocks == 0 && node.to_remove == 0));
}

#[test]
fn a_put_whose_client_has_gone_is_aborted() {
    let mut scene = Scene::new(4);
    let put = scene.begin("f", 8192 * 2).unwrap().put;
    scene.open(1, ClientRequest::PutStripe { put, position: 0 });
    scene.frozen.insert("h1".into());
    scene.open(2, ClientRequest::PutStripe { put, position: 1 });
    scene.kill("admin");
    scene.frozen.clear();
    assert!(scene.status().jobs.is_empty());
    scene.wait(Duration::from_secs(11));
    assert!(scene.nodes.values().all(|node| node.disk.is_empty()));
    assert!(scene.ask(|reply| Command::AbortPut(PutId(put), reply)).is_err());
}

#[test]
fn a_helper_that_dies_in_a_put_is_replaced() {
    let mut scene = Scene::new(5);
    let put = scene.begin("f", 8192).unwrap().put;
    for name in ["h1", "h2", "h3", "h4", "h5"] {
        scene.frozen.insert(name.into());
    }
    scene.open(1, ClientRequest::PutStripe { put, position: 0 });
    let victim = ["h1", "h2", "h3"].into_iter().find(|name| scene.nodes[*name].is_assigned()).unwrap();
    scene.frozen.clear();
    scene.kill(victim);
    scene.wait(Duration::from_secs(20));
    let ended = scene.closed(1).unwrap().unwrap();
    assert!(!ended.replanned.is_empty());
    scene.ask(|reply| Command::CommitPut(PutId(put), reply)).unwrap();
    let file = scene.file("f");
    assert_eq!(states(&file), ["healthy"; 4]);
    assert!((0..4).all(|index| home(&file, index) != victim));
}

#[test]
fn a_removed_file_leaves_nothing_even_on_a_helper_that_was_down() {
    let mut scene = Scene::new(4);
    scene.put("f", 2);
    scene.kill("h2");
    scene.ask(|reply| Command::RemoveFile("f".into(), reply)).unwrap();
    scene.play();
    assert_eq!(scene.node("h2").disk.len(), 2);
    scene.start("h2");
    assert!(scene.nodes.values().all(|node| node.disk.is_empty()));
    assert!(scene.status().orphans.is_empty());
}

// ---- reads ----

#[test]
fn a_read_uses_the_scheme_only_for_what_is_lost() {
    let mut scene = Scene::new(4);
    let file = scene.put("f", 1);
    let stripe = file.layout[0].stripe.stripe.clone();
    let helpers = |scene: &Scene| {
        scene.nodes.iter().filter(|(name, node)| *name != "admin" && !node.assigned.is_empty()).count()
    };
    let clear = |scene: &mut Scene| scene.nodes.values_mut().for_each(|node| node.assigned.clear());

    clear(&mut scene);
    scene.read(1, &stripe, 0, &[]);
    assert!(scene.closed(1).unwrap().is_ok());
    assert_eq!(helpers(&scene), 1);

    clear(&mut scene);
    scene.read(2, &stripe, 0, &[0]);
    assert!(scene.closed(2).unwrap().is_ok());
    assert_eq!(helpers(&scene), 2);

    scene.read(3, &stripe, 0, &[0, 1, 2]);
    let error = scene.closed(3).unwrap().unwrap_err();
    assert!(matches!(error, RequestFailure::TooMuchLost { .. }), "{error:?}");
    assert!(error.to_string().contains("2 blocks are needed and only 1 are available"), "{error}");
    scene.read(4, &stripe, 9, &[]);
    let error = scene.closed(4).unwrap().unwrap_err();
    assert!(matches!(error, RequestFailure::Refused { .. }), "{error:?}");
    assert!(error.to_string().contains("has blocks b0 to b3, and no b9"), "{error}");
}

#[test]
fn a_corrupt_block_is_found_by_a_read_and_noted() {
    let mut scene = Scene::new(4);
    let file = scene.put("f", 1);
    scene.rotten.insert(block(&file, 0));
    scene.frozen.insert("admin".into());
    scene.read(1, &file.layout[0].stripe.stripe, 0, &[]);
    // It waits for slices that never come.
    scene.node("admin").backlog.retain(|message| !matches!(message, ToNode::Assign(_)));
    scene.frozen.clear();
    scene.wait(Duration::from_secs(10));
    let ended = scene.closed(1).unwrap().unwrap();
    assert!(ended.replanned[0].contains("corrupt"), "{:?}", ended.replanned);
    assert_eq!(states(&scene.file("f"))[0], "corrupt");
}

// ---- repairs ----

#[test]
fn what_is_lost_is_rebuilt_elsewhere_and_removed_from_who_comes_back() {
    let mut scene = Scene::new(6);
    scene.put("f", 3);
    scene.kill("h1");
    scene.kill("h2");
    assert!(!scene.status().healthy);
    let repair = scene.repair_all();
    assert_eq!(repair.state.name(), "done", "{repair:#?}");
    assert!(repair.items.iter().all(|item| item.parity.map(|parity| parity.name()) != Some("not-asked")));
    let status = scene.status();
    assert!(status.healthy, "{}", status.summary);
    assert!(status.summary.starts_with("safe  all 3 stripes are whole and can lose 2 blocks; 4 helpers up"));

    let before = scene.node("h1").disk.len();
    assert!(before > 0);
    scene.start("h1");
    assert!(scene.node("h1").disk.is_empty());
    assert_eq!(scene.node("h1").removed.len(), before);
    assert!(scene.status().healthy);
}

#[test]
fn a_helper_that_comes_back_during_the_repair_makes_it_needless() {
    let mut scene = Scene::new(5);
    let file = scene.put("f", 1);
    let (name, lost) = (home(&file, 0), block(&file, 0));
    scene.kill(&name);
    let all: Vec<String> = scene.nodes.keys().cloned().collect();
    scene.frozen.extend(all);
    let repair = scene.repair_all().repair;
    scene.frozen.remove(&name);
    scene.start(&name);
    assert_eq!(states(&scene.file("f")), ["healthy"; 4]);
    scene.frozen.clear();
    scene.play();
    assert_eq!(scene.repair_state(repair).state.name(), "done");
    assert_eq!(home(&scene.file("f"), 0), name);
    let copies = scene.nodes.values().filter(|node| node.disk.contains_key(&lost)).count();
    assert_eq!(copies, 1, "what was begun elsewhere came to nothing");
}

#[test]
fn a_block_on_a_bad_sector_is_rebuilt_in_place() {
    let mut scene = Scene::new(4);
    let file = scene.put("f", 1);
    scene.rotten.insert(block(&file, 3));
    let scrub = scene.ask(Command::Scrub).unwrap().scrub;
    scene.play();
    let scrub = scene.ask(|reply| Command::ScrubState(scrub, reply)).unwrap();
    assert_eq!((scrub.state.name(), scrub.blocks, scrub.checked), ("done", 4, 4));
    assert_eq!(scrub.findings[0].block, block(&file, 3).0);
    scene.rotten.clear();
    let request = RepairRequest { block: Some(block(&file, 3).0), ..RepairRequest::default() };
    let repair = scene.repair(request.clone());
    assert_eq!(repair.state.name(), "done", "{repair:#?}");
    assert_eq!(repair.items[0].rebuilt[0].node, home(&file, 3));
    let again = scene.repair(request);
    assert_eq!(again.items[0].reason.as_deref(), Some("nothing is lost"));
}

#[test]
fn the_stripes_most_at_risk_come_first() {
    let mut scene = Scene::new(5);
    let file = scene.put("f", 120);
    scene.kill("h1");
    scene.kill("h2");
    let all: Vec<String> = scene.nodes.keys().cloned().collect();
    scene.frozen.extend(all);
    let lost = |stripe: &views::StripeView| {
        stripe.blocks.iter().filter(|block| ["h1", "h2"].map(Some).contains(&block.node.as_deref())).count()
    };
    let by_loss = |count| file.layout.iter().filter(|part| lost(&part.stripe) == count).count();
    assert!(by_loss(2) > 16 && by_loss(1) > 16);
    scene.repair_all();
    let running = scene.status().jobs;
    assert_eq!(running.len(), 16);
    for job in running {
        let part = file.layout.iter().find(|part| part.stripe.stripe == job.stripe).unwrap();
        assert_eq!(lost(&part.stripe), 2);
    }
}

#[test]
fn what_cannot_be_repaired_is_listed_and_the_rest_goes_on() {
    let mut scene = Scene::new(7);
    scene.put("f", 40);
    ["h1", "h2", "h3"].into_iter().for_each(|name| scene.kill(name));
    let repair = scene.repair_all();
    let of_state = |state: &str| -> Vec<&RepairItem> {
        repair.items.iter().filter(|item| item.state.name() == state).collect()
    };
    let (done, hopeless) = (of_state("done"), of_state("unrepairable"));
    assert!(!done.is_empty() && !hopeless.is_empty(), "{repair:#?}");
    assert_eq!(done.len() + hopeless.len(), repair.items.len());
    assert_eq!(repair.state.name(), "failed");
    let item = hopeless[0];
    assert_eq!(item.reason.as_deref(), Some("3 of 4 blocks lost, at most 2 can be"));
    let next_step = "bring h1 or h2 or h3 back, then run mend repair --all";
    assert_eq!(item.next_step.as_deref(), Some(next_step));
    let status = scene.status();
    assert_eq!(status.stripes.unreadable, hopeless.len() as u64);
    assert!(status.summary.starts_with("UNREADABLE"), "{}", status.summary);

    scene.start("h2");
    assert_eq!(scene.repair_all().state.name(), "done");
}

#[test]
fn a_repair_whose_sources_contradict_each_other_says_so_and_publishes_nothing() {
    let mut scene = Scene::new(5);
    let file = scene.put("f", 1);
    scene.node(&home(&file, 0)).disk.remove(&block(&file, 0));
    scene.nodes.values_mut().for_each(|node| node.rebuilds_wrongly = true);
    let scrub = scene.ask(Command::Scrub).unwrap();
    scene.play();
    scene.ask(|reply| Command::ScrubState(scrub.scrub, reply)).unwrap();
    let repair = scene.repair_all();
    scene.wait(Duration::from_secs(30));
    let repair = scene.repair_state(repair.repair);
    assert_eq!((repair.state.name(), repair.stripes_failed), ("failed", 1), "{repair:#?}");
    let item = &repair.items[0];
    assert_eq!(item.state.name(), "contradictory", "{repair:#?}");
    assert!(item.reason.as_ref().unwrap().starts_with("the blocks contradict each other"), "{item:#?}");
    assert!(item.next_step.as_ref().unwrap().contains("repair again"), "{item:#?}");
    assert!(item.rebuilt.is_empty());
    assert_eq!(states(&scene.file("f"))[0], "missing");
    assert!(scene.nodes.values().all(|node| !node.disk.contains_key(&block(&file, 0))));
}

#[test]
fn without_a_node_to_take_a_block_the_repair_says_so() {
    let mut scene = Scene::new(4);
    scene.put("f", 1);
    scene.kill("h4");
    let repair = scene.repair_all();
    assert_eq!(repair.state.name(), "failed");
    let reason = repair.items[0].reason.as_deref().unwrap();
    assert!(reason.starts_with("1 of its blocks need a live helper that holds no other block"), "{reason}");
    assert!(reason.ends_with("(down: h4)"), "{reason}");
}

#[test]
fn a_cancelled_repair_stops() {
    let mut scene = Scene::new(6);
    scene.put("f", 12);
    scene.kill("h1");
    let all: Vec<String> = scene.nodes.keys().cloned().collect();
    scene.frozen.extend(all);
    let repair = scene.repair_all().repair;
    let cancelled = scene.ask(|reply| Command::CancelRepair(repair, reply)).unwrap();
    assert_eq!(cancelled.state.name(), "cancelled");
    assert!(cancelled.items.iter().all(|item| item.state.name() == "cancelled"));
    assert!(scene.status().jobs.is_empty());
    scene.wait(Duration::from_secs(1));
    assert!(scene.status().repairs.is_empty());
}

// ---- restarts ----

#[test]
fn a_coordinator_that_starts_again_takes_up_repairs_and_drops_puts() {
    let mut scene = Scene::new(6);
    scene.put("f", 4);
    let put = scene.begin("half", 8192).unwrap().put;
    scene.open(1, ClientRequest::PutStripe { put, position: 0 });
    scene.kill("h1");
    let all: Vec<String> = scene.nodes.keys().cloned().collect();
    scene.frozen.extend(all);
    let repair = scene.repair_all();
    assert_eq!(repair.state.name(), "running");

    scene.restart();
    scene.frozen.clear();
    assert_eq!(scene.repair_state(repair.repair).state.name(), "waiting");
    assert!(scene.status().settling);
    for name in ["h2", "h3", "h4", "h5", "h6"] {
        scene.nodes.get_mut(name).unwrap().sinks.clear();
        scene.start(name);
    }
    assert_eq!(scene.repair_state(repair.repair).state.name(), "waiting", "h1 may still come back");
    scene.wait(Duration::from_secs(11));
    assert_eq!(scene.repair_state(repair.repair).state.name(), "done");
    let status = scene.status();
    assert!(status.healthy && status.files == 1, "{}", status.summary);
    let held: usize = ["h2", "h3", "h4", "h5", "h6"].iter().map(|name| scene.nodes[*name].disk.len()).sum();
    assert_eq!(held, 16, "nothing is left of the put");

    scene.restart();
    assert!(scene.status().repairs.is_empty(), "a repair that ended is not taken up again");
}

// ---- scrubs and plans ----

#[test]
fn a_scrub_asks_each_helper_two_things_at_a_time() {
    let mut scene = Scene::new(4);
    let file = scene.put("f", 10);
    scene.frozen.insert("h1".into());
    scene.node("h2").disk.remove(&BlockId("7.7".into()));
    let gone = block(&file, (0..4).find(|&index| home(&file, index) == "h2").unwrap());
    scene.node("h2").disk.remove(&gone);
    scene.node("h3").disk.insert(BlockId("stray".into()), 1);
    let scrub = scene.ask(Command::Scrub).unwrap().scrub;
    scene.play();
    let asked = |message: &&ToNode| matches!(message, ToNode::Verify { .. });
    assert_eq!(scene.node("h1").backlog.iter().filter(asked).count(), 2);
    let state = scene.ask(|reply| Command::ScrubState(scrub, reply)).unwrap();
    assert_eq!((state.state.name(), state.blocks, state.checked), ("running", 40, 30));
    assert_eq!(scene.ask(Command::Scrub).unwrap().scrub, scrub, "one at a time");

    scene.kill("h1");
    let state = scene.ask(|reply| Command::ScrubState(scrub, reply)).unwrap();
    assert_eq!((state.state.name(), state.skipped[0].blocks), ("done", 10));
    assert_eq!((state.findings[0].block.clone(), state.findings[0].problem.as_str()), (gone.0, "missing"));
    assert_eq!(state.orphans[0].block, "stray");
    scene.restart();
    assert_eq!(scene.status().last_scrub.unwrap(), state, "it is remembered");
}

#[test]
fn a_helper_that_does_not_answer_is_told_of_and_the_scrub_ends() {
    let mut scene = Scene::new(4);
    scene.put("f", 1);
    scene.frozen.insert("h1".into());
    let scrub = scene.ask(Command::Scrub).unwrap().scrub;
    scene.play();
    assert_eq!(scene.ask(|reply| Command::ScrubState(scrub, reply)).unwrap().state.name(), "running");
    scene.wait(Duration::from_secs(130));
    let state = scene.ask(|reply| Command::ScrubState(scrub, reply)).unwrap();
    assert_eq!((state.state.name(), state.blocks, state.checked), ("done", 4, 3));
    assert_eq!((state.skipped[0].node.as_str(), state.skipped[0].blocks), ("h1", 1));
    assert_eq!(state.skipped[0].why, "it does not answer");
}

#[test]
fn a_helper_whose_cap_holds_back_a_scrub_is_waited_for_as_long_as_it_says_so() {
    let mut scene = Scene::new(4);
    scene.put("f", 1);
    scene.frozen.insert("h1".into());
    let scrub = scene.ask(Command::Scrub).unwrap().scrub;
    scene.play();
    let asked = |message: &ToNode| match message {
        ToNode::Verify { ask, .. } => Some(*ask),
        _ => None,
    };
    let ask = scene.node("h1").backlog.iter().find_map(asked).unwrap();
    let listed = scene.node("h1").backlog.iter().find_map(|message| match message {
        ToNode::List { ask } => Some(*ask),
        _ => None,
    });
    let held: Vec<HeldBlock> =
        scene.node("h1").disk.iter().map(|(id, &bytes)| HeldBlock { id: id.clone(), bytes }).collect();
    scene.say("h1", FromNode::Listed { ask: listed.unwrap(), blocks: held, more: false });
    for _ in 0..10 {
        scene.wait(Duration::from_secs(60));
        scene.say("h1", FromNode::Verifying { ask });
        // Nobody speaks for another.
        scene.say("h2", FromNode::Verifying { ask });
        let state = scene.ask(|reply| Command::ScrubState(scrub, reply)).unwrap();
        assert_eq!((state.state.name(), state.skipped.len()), ("running", 0));
    }
    scene.wait(Duration::from_secs(130));
    let state = scene.ask(|reply| Command::ScrubState(scrub, reply)).unwrap();
    assert_eq!((state.state.name(), state.skipped[0].why.as_str()), ("done", "it does not answer"));
}

#[test]
fn what_a_machine_cannot_do_at_the_moment_says_nothing_of_its_blocks() {
    let mut scene = Scene::new(4);
    scene.put("f", 1);
    scene.frozen.insert("h1".into());
    let scrub = scene.ask(Command::Scrub).unwrap().scrub;
    scene.play();
    let few = || "too many open files".to_owned();
    for message in std::mem::take(&mut scene.node("h1").backlog) {
        let answer = match message {
            ToNode::Verify { ask, block } => {
                FromNode::Verified { ask, block, result: Err(BlockProblem::Unavailable(few())) }
            }
            ToNode::List { ask } => FromNode::ListFailed { ask, problem: StoreProblem::Machine(few()) },
            _ => continue,
        };
        scene.say("h1", answer);
    }
    let state = scene.ask(|reply| Command::ScrubState(scrub, reply)).unwrap();
    assert_eq!((state.state.name(), state.checked, state.findings.len()), ("done", 3, 0));
    let skipped: Vec<_> =
        state.skipped.iter().map(|skipped| (skipped.node.as_str(), skipped.blocks)).collect();
    assert_eq!(skipped, [("h1", 0), ("h1", 1)], "{:?}", state.skipped);
    assert!(state.skipped.iter().all(|skipped| skipped.why.contains("too many open files")));
    assert_eq!(states(&scene.file("f")), ["healthy"; 4]);
}

#[test]
fn a_removal_that_failed_is_asked_for_again_and_not_at_once() {
    let mut scene = Scene::new(4);
    let file = scene.put("f", 1);
    let (name, block) = (home(&file, 0), block(&file, 0));
    scene.frozen.insert(name.clone());
    scene.ask(|reply| Command::RemoveFile("f".into(), reply)).unwrap();
    scene.play();
    let asked = |scene: &mut Scene| {
        let backlog = std::mem::take(&mut scene.node(&name).backlog);
        backlog.iter().filter(|message| matches!(message, ToNode::Remove { .. })).count()
    };
    assert_eq!(asked(&mut scene), 1);
    let problem = StoreProblem::Store("is a directory".into());
    scene.say(&name, FromNode::RemoveFailed { block, problem });
    scene.wait(Duration::from_secs(10));
    assert_eq!(asked(&mut scene), 0);
    scene.wait(Duration::from_secs(30));
    assert_eq!(asked(&mut scene), 1);
}

#[test]
fn a_plan_is_explained_and_not_carried_out() {
    let mut scene = Scene::new(5);
    let file = scene.put("f", 1);
    scene.nodes.values_mut().for_each(|node| node.assigned.clear());
    let stripe = file.layout[0].stripe.stripe.clone();
    let request = PlanRequestView { stripe, blocks: vec![0], ..PlanRequestView::default() };
    let explain = |request: PlanRequestView| move |reply| Command::Explain(request, reply);
    let plan = scene.ask(explain(request.clone())).unwrap();
    assert!(plan.text.starts_with("pipelined rs-4-2"), "{}", plan.text);
    assert_eq!(plan.summary["scheme"], "pipelined");
    assert_eq!(plan.nodes.len(), 3);
    assert!(scene.nodes.values().all(|node| node.assigned.is_empty()));

    let too_much = PlanRequestView { lost: vec![1, 2], ..request.clone() };
    assert!(scene.ask(explain(too_much)).is_err());
    let unknown = PlanRequestView { scheme: Some("star".into()), ..request.clone() };
    let error = scene.ask(explain(unknown)).unwrap_err().to_string();
    assert!(error.contains("no scheme `star`") && error.contains("pipelined"), "{error}");
    let nobody = PlanRequestView { requestor: Some("h9".into()), ..request.clone() };
    let error = scene.ask(explain(nobody)).unwrap_err().to_string();
    assert_eq!(error, "there is no helper `h9`; those known are h1, h2, h3, h4, h5");
    let client = PlanRequestView { requestor: Some("client".into()), ..request };
    assert!(scene.ask(explain(client)).unwrap().text.contains("client"));
}
