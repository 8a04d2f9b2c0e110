//! A helper or a client: its session with the coordinator, its tasks of jobs, and what it is asked outside of jobs.

use std::collections::BTreeMap;
use std::time::Duration;

use ::control::ConnectionId;
use cluster::Role;
use repair::wire::control::{self, Description, FromNode, HeldBlock, ToNode};
use repair::{BlockId, JobId, NodeId, StatedRates};

use super::client::Client;
use super::coordinator::CLUSTER;
use super::event::ProcessId;
use super::script::FIRST_CLIENT;
use crate::disk::{Deliveries, Disk};
use crate::event::{NodeEvent, TaskId};
use crate::scene::Scene;
use crate::task::JobTask;

/// Bytes of slices that a relay may hold.
const BUDGET_BYTES: usize = 512 << 10;
/// Bytes free on a disk that is not full.
const FREE_BYTES: u64 = 1 << 30;

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) id: ProcessId,
    /// Counts its lives: what was begun in an earlier one finds nobody.
    pub(crate) life: u32,
    pub(crate) alive: bool,
    /// It stays away for good.
    pub(crate) gone: bool,
    pub(crate) disk: Disk,
    pub(crate) session: Session,
    /// Its number, as the coordinator said last.
    pub(crate) node: Option<NodeId>,
    pub(crate) tasks: BTreeMap<JobId, JobTask>,
    numbers: TaskId,
    /// What makes it a client.
    pub(crate) client: Option<Client>,
}

/// A process's connection to the coordinator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Session {
    None,
    /// It has said hello.
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

/// The name of a helper or client.
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
            gone: false,
            disk,
            session: Session::None,
            node: None,
            tasks: BTreeMap::new(),
            numbers: TaskId::from(id.0) << 40,
            client: (id.0 >= FIRST_CLIENT).then(Client::default),
        }
    }

    pub(crate) fn name(&self) -> String {
        name_of(self.id)
    }

    pub(crate) fn role(&self) -> Role {
        let name = self.name().parse().expect("it is a name");
        if self.client.is_some() { Role::Client(name) } else { Role::Helper(name) }
    }

    /// Whether it is registered.
    pub(crate) fn is_up(&self) -> bool {
        matches!(self.session, Session::Up(_))
    }

    /// What it says first.
    pub(crate) fn hello(&self) -> FromNode {
        match self.client {
            Some(_) => FromNode::RegisterClient { version: control::VERSION, bandwidth: None, rack: None },
            None => FromNode::RegisterHelper {
                version: control::VERSION,
                cluster_id: CLUSTER.into(),
                address: format!("{}.example:7410", self.name()),
                rack: None,
                rates: StatedRates::default(),
                blocks: self.held(),
                more: false,
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
        if self.disk.full || self.client.is_some() { 0 } else { FREE_BYTES }
    }

    pub(crate) fn pong(&self) -> FromNode {
        FromNode::Pong { free_bytes: self.free_bytes(), tasks: self.tasks.len() as u32 }
    }

    /// Its process ends.
    pub(crate) fn die(&mut self, scene: &mut Scene, unheard: bool) {
        (self.alive, self.life, self.session) = (false, self.life + 1, Session::None);
        if let Some(node) = self.node {
            scene.drop_edges_of(node, unheard);
        }
        self.tasks.clear();
    }

    /// The coordinator is gone: all is dropped that is not committed.
    pub(crate) fn lose_session(&mut self, scene: &mut Scene) {
        self.session = Session::None;
        for task in self.tasks.values_mut() {
            task.forget_all(scene);
        }
        self.tasks.clear();
    }

    /// A message that concerns a job.
    pub(crate) fn take(&mut self, job: JobId, message: ToNode, scene: &mut Scene) {
        let Some(node) = self.node else { return };
        self.numbers += 1 << 20;
        let task = self.tasks.entry(job).or_insert_with(|| JobTask::new(node, BUDGET_BYTES, self.numbers));
        task.take(message, &mut self.disk, scene);
        self.after(job);
    }

    /// Something happens to a task.
    pub(crate) fn notice(&mut self, job: JobId, what: NodeEvent, scene: &mut Scene) {
        if let Some(task) = self.tasks.get_mut(&job) {
            task.handle(what, &mut self.disk, scene);
            self.after(job);
        }
    }

    /// Takes note of what a task has forgotten, and forgets the task when nothing is left of it.
    fn after(&mut self, job: JobId) {
        let Some(task) = self.tasks.get_mut(&job) else { return };
        if let Some(client) = &mut self.client
            && !task.forgotten.is_empty()
        {
            client.take_delivered(job, std::mem::take(&mut task.forgotten));
        }
        if !task.knows_job() {
            self.tasks.remove(&job);
        }
    }

    /// What a job has delivered so far.
    pub(crate) fn delivered(&self, job: JobId) -> Deliveries {
        self.tasks.get(&job).map(|task| task.deliveries.clone()).unwrap_or_default()
    }

    /// How long something takes that it is asked outside of jobs.
    pub(crate) fn chore_takes(&mut self, chore: &ToNode, scene: &mut Scene) -> Duration {
        let bytes = match chore {
            ToNode::Verify { block, .. } => {
                self.disk.blocks.get(block).map_or(0, |stored| stored.bytes.len())
            }
            _ => 0,
        };
        self.disk.takes(bytes as u64, scene)
    }

    /// Does what a helper is asked outside of jobs, and answers.
    pub(crate) fn chore(&mut self, chore: ToNode) -> Option<FromNode> {
        Some(match chore {
            ToNode::Remove { block } => {
                self.disk.blocks.remove(&block);
                FromNode::Removed { block }
            }
            ToNode::List { ask } => FromNode::Listed { ask, blocks: self.held(), more: false },
            ToNode::Verify { ask, block } => {
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
