//! Helpers and clients: their sessions with the coordinator, their tasks in jobs, and a helper's answers to
//! requests that belong to no job.

use std::collections::BTreeMap;
use std::time::Duration;

use ::control::ConnectionId;
use cluster::Role;
use codes::BlockIndex;
use repair::wire::control::{self, Description, FromNode, HeldBlock, ToNode};
use repair::{BlockId, JobId, NodeId, StatedRates};
use store_api::StripeRecord;

use super::coordinator::CLUSTER;
use super::event::ProcessId;
use super::script::{FIRST_CLIENT, Script};
use super::truth::Truth;
use crate::dice::Dice;
use crate::disk::{Deliveries, Disk};
use crate::event::{NodeEvent, TaskId};
use crate::shared::Shared;
use crate::task::JobTask;

/// Memory for slices in a relay, in bytes.
const BUDGET_BYTES: usize = 512 << 10;
/// Free bytes on a disk that is not full.
const FREE_BYTES: u64 = 1 << 30;
/// Rate of disks in bytes per second.
const DISK_RATE: f64 = 200e6;

/// A helper or a client.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) id: ProcessId,
    /// Number of starts so far. Events of an earlier run are dropped.
    pub(crate) life: u32,
    pub(crate) alive: bool,
    /// The time of the process's death; `None` while it runs, and before its first start.
    pub(crate) dead_since: Option<Duration>,
    /// Whether the process has left for good.
    pub(crate) gone: bool,
    pub(crate) disk: Disk,
    pub(crate) session: Session,
    /// The node number that the coordinator assigned last.
    pub(crate) node: Option<NodeId>,
    pub(crate) tasks: BTreeMap<JobId, JobTask>,
    numbers: TaskId,
    /// Blocks that finished jobs have delivered to a client. The tasks of these jobs no longer keep the
    /// blocks.
    received: BTreeMap<JobId, Deliveries>,
}

/// A process's connection to the coordinator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Session {
    None,
    /// The process has sent its first message.
    Hello(ConnectionId),
    Up(ConnectionId),
}

impl Session {
    pub(crate) fn connection(self) -> Option<ConnectionId> {
        match self {
            Self::None => None,
            Self::Hello(connection) | Self::Up(connection) => Some(connection),
        }
    }
}

/// Returns the name of a helper or client.
pub(crate) fn name_of(process: ProcessId) -> String {
    match process.0.checked_sub(FIRST_CLIENT) {
        Some(client) => format!("c{client}"),
        None => format!("h{}", process.0),
    }
}

impl Process {
    pub(crate) fn new(id: ProcessId, disk: Disk) -> Self {
        Self {
            id,
            life: 0,
            alive: false,
            dead_since: None,
            gone: false,
            disk,
            session: Session::None,
            node: None,
            tasks: BTreeMap::new(),
            numbers: TaskId::from(id.0) << 40,
            received: BTreeMap::new(),
        }
    }

    pub(crate) fn name(&self) -> String {
        name_of(self.id)
    }

    pub(crate) fn is_client(&self) -> bool {
        self.id.0 >= FIRST_CLIENT
    }

    pub(crate) fn role(&self) -> Role {
        let name = self.name().parse().expect("it is a name");
        if self.is_client() { Role::Client(name) } else { Role::Helper(name) }
    }

    /// Whether the process is registered.
    pub(crate) fn is_up(&self) -> bool {
        matches!(self.session, Session::Up(_))
    }

    /// Returns the first message that the process sends on a connection.
    pub(crate) fn hello(&self) -> FromNode {
        match self.is_client() {
            true => FromNode::RegisterClient { version: control::VERSION, bandwidth: None, rack: None },
            false => FromNode::RegisterHelper {
                version: control::VERSION,
                cluster_id: CLUSTER.into(),
                address: format!("{}.example:7410", self.name()),
                rack: None,
                rates: StatedRates::default(),
                blocks: self.held(),
                more: false,
                incomplete: None,
                free_bytes: self.free_bytes(),
            },
        }
    }

    fn held(&self) -> Vec<HeldBlock> {
        let held = |(id, stored): (&BlockId, &crate::disk::Stored)| HeldBlock {
            id: id.clone(),
            bytes: stored.bytes.len() as u64,
        };
        self.disk.blocks.iter().map(held).collect()
    }

    fn free_bytes(&self) -> u64 {
        if self.disk.full || self.is_client() { 0 } else { FREE_BYTES }
    }

    pub(crate) fn pong(&self) -> FromNode {
        FromNode::Pong { free_bytes: self.free_bytes(), tasks: self.tasks.len() as u32, write_problem: None }
    }

    /// Ends the process. If `unheard`, the whole machine vanishes without closing connections.
    pub(crate) fn die(&mut self, shared: &mut Shared, unheard: bool) {
        (self.alive, self.life, self.session) = (false, self.life + 1, Session::None);
        self.dead_since = Some(shared.now);
        if let Some(node) = self.node {
            shared.drop_edges_of(node, unheard);
        }
        self.tasks.clear();
        self.received.clear();
    }

    /// Handles the loss of the connection to the coordinator: all uncommitted state is dropped.
    pub(crate) fn lose_session(&mut self, shared: &mut Shared) {
        self.session = Session::None;
        for task in self.tasks.values_mut() {
            task.forget_all(shared);
        }
        self.tasks.clear();
        self.received.clear();
    }

    /// Passes a message to the task of a job.
    pub(crate) fn take(&mut self, job: JobId, message: ToNode, shared: &mut Shared) {
        let Some(node) = self.node else { return };
        self.numbers += 1 << 20;
        let task = self.tasks.entry(job).or_insert_with(|| JobTask::new(node, BUDGET_BYTES, self.numbers));
        task.take(message, &mut self.disk, shared);
        self.after(job);
    }

    /// Passes an event to the task of a job.
    pub(crate) fn notice(&mut self, job: JobId, what: NodeEvent, shared: &mut Shared) {
        if let Some(task) = self.tasks.get_mut(&job) {
            task.handle(what, &mut self.disk, shared);
            self.after(job);
        }
    }

    /// Cleans up after the task of a job has handled a message or an event. On a client, takes over the
    /// delivered blocks that the task no longer keeps. Removes the task if it has no state of the job any
    /// more.
    fn after(&mut self, job: JobId) {
        let Some(task) = self.tasks.get_mut(&job) else { return };
        let (is_client, is_known) = (self.id.0 >= FIRST_CLIENT, task.knows_job());
        if is_client && !task.forgotten.is_empty() {
            self.received.insert(job, std::mem::take(&mut task.forgotten));
        }
        if !is_known {
            self.tasks.remove(&job);
        }
    }

    /// Removes and returns the blocks that a job has delivered to this client.
    pub(crate) fn take_received(&mut self, job: JobId) -> Deliveries {
        let delivered = || self.tasks.get(&job).map(|task| task.deliveries.clone()).unwrap_or_default();
        self.received.remove(&job).unwrap_or_else(delivered)
    }

    /// Returns the time that the disk takes for a request that belongs to no job.
    pub(crate) fn chore_takes(&mut self, chore: &ToNode, shared: &mut Shared) -> Duration {
        let bytes = match chore {
            ToNode::Verify { block, .. } => {
                self.disk.blocks.get(block).map_or(0, |stored| stored.bytes.len())
            }
            _ => 0,
        };
        self.disk.takes(bytes as u64, shared)
    }

    /// Carries out a request that belongs to no job, and returns the answer.
    pub(crate) fn chore(&mut self, chore: ToNode) -> Option<FromNode> {
        Some(match chore {
            ToNode::Remove { block } => {
                self.disk.blocks.remove(&block);
                FromNode::Removed { block }
            }
            ToNode::List { ask } => FromNode::Listed { ask, blocks: self.held(), more: false },
            ToNode::Verify { ask, block, .. } => {
                FromNode::Verified { ask, result: self.disk.verify(&block), block }
            }
            ToNode::Describe { ask } => {
                let described = |(id, stored): (&BlockId, &crate::disk::Stored)| Description {
                    id: id.clone(),
                    bytes: stored.bytes.len() as u64,
                    digest: Some(stored.digest),
                    label: stored.label.clone(),
                };
                let blocks = self.disk.blocks.iter().map(described).collect();
                FromNode::Described { ask, blocks, last: true }
            }
            ToNode::Spare => FromNode::Unused { up: None, down: None },
            _ => return None,
        })
    }
}

/// All processes.
pub(crate) struct Processes {
    all: BTreeMap<ProcessId, Process>,
    /// The process of each node number.
    ids: BTreeMap<NodeId, ProcessId>,
    /// Rate of each link in bytes per second.
    link_rate: u64,
}

impl Processes {
    /// Creates processes that do not run yet.
    pub(crate) fn new(script: &Script, dice: &mut Dice) -> Self {
        let processes = script.helper_ids().chain(script.client_ids()).map(|id| {
            let latency = dice.up_to(script.disk_latency);
            (id, Process::new(id, Disk::of_dir(latency, DISK_RATE)))
        });
        Self { all: processes.collect(), ids: BTreeMap::new(), link_rate: script.link_rate }
    }

    pub(crate) fn get(&self, id: ProcessId) -> &Process {
        self.all.get(&id).expect("the script names processes that exist")
    }

    pub(crate) fn get_mut(&mut self, id: ProcessId) -> &mut Process {
        self.all.get_mut(&id).expect("the script names processes that exist")
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Process> {
        self.all.values()
    }

    pub(crate) fn ids(&self) -> Vec<ProcessId> {
        self.all.keys().copied().collect()
    }

    /// Returns the process with a node number.
    pub(crate) fn of_node(&self, node: NodeId) -> Option<&Process> {
        self.all.get(self.ids.get(&node)?)
    }

    pub(crate) fn of_node_mut(&mut self, node: NodeId) -> Option<&mut Process> {
        self.all.get_mut(self.ids.get(&node)?)
    }

    /// Handles the registration of a process at the coordinator under a node number.
    pub(crate) fn register(
        &mut self,
        id: ProcessId,
        connection: ConnectionId,
        node: NodeId,
        shared: &mut Shared,
    ) {
        let process = self.get_mut(id);
        (process.session, process.node) = (Session::Up(connection), Some(node));
        self.ids.insert(node, id);
        if !shared.network.ports.contains_key(&node) {
            shared.network.add_port(node, self.link_rate as f64);
        }
    }

    /// Slows the disk and the links of a helper down by a factor.
    pub(crate) fn slow_down(&mut self, id: ProcessId, factor: f64, shared: &mut Shared) {
        let rate = self.link_rate as f64 / factor;
        let process = self.get_mut(id);
        process.disk.rate = DISK_RATE / factor;
        let node = process.node;
        if let Some(port) = node.and_then(|node| shared.network.ports.get_mut(&node)) {
            port.rate = rate;
        }
    }

    /// Returns the good blocks of a stripe with their holders. A good block is where the catalog places it,
    /// has the right bytes, and is on a helper that has not left for good.
    pub(crate) fn good_blocks(&self, stripe: &StripeRecord, truth: &Truth) -> Vec<(BlockIndex, ProcessId)> {
        let good = (0..).map(BlockIndex).zip(&stripe.blocks).filter_map(|(index, block)| {
            let process = self.of_node(block.node?)?;
            let stored = process.disk.blocks.get(&block.id)?;
            let is_good = !process.gone && stored.corrupt_at.is_none();
            (is_good && truth.is_block(&block.id, &stored.bytes)).then_some((index, process.id))
        });
        good.collect()
    }
}
