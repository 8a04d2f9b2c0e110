//! Drives one [`repair::Job`] without a coordinator: passes reports to the job and carries out its actions.
//! The driver makes no decisions.
//!
//! A node is considered alive while it is connected. Published blocks are kept in a table. The driver also
//! records facts for the checks of invariants, such as lost blocks and slow nodes.

use std::collections::BTreeMap;

use codes::BlockIndex;
use repair::wire::control::ToNode;
use repair::{
    BlockProblem, Digest, Epoch, Job, JobAction, JobError, JobRequest, NodeId, Outcome, Report, Topology,
};

use crate::shared::Shared;

/// Interval between the job's ticks.
pub(crate) const TICK_MS: u64 = 50;

/// The driver of one job, with records for the checks of invariants.
#[derive(Debug)]
pub(crate) struct JobDriver {
    pub(crate) job: Job,
    pub(crate) topology: Topology,
    /// The holder and digest of each published block.
    pub(crate) published: BTreeMap<BlockIndex, (NodeId, Option<Digest>)>,
    pub(crate) lost_blocks: Vec<(BlockIndex, BlockProblem)>,
    /// Nodes that were sent a message, and whether the last message was the order to forget the job.
    pub(crate) told: BTreeMap<NodeId, bool>,
    pub(crate) result: Option<Result<Outcome, JobError>>,
    /// Nodes that the job reported as slow.
    pub(crate) slow: Vec<NodeId>,
}

impl JobDriver {
    pub(crate) fn new(request: JobRequest, seed: u64, topology: Topology, shared: &Shared) -> Self {
        let mut key = [0; 32];
        key[..8].copy_from_slice(&seed.to_le_bytes());
        Self {
            job: Job::new(request, key, &topology, shared.now),
            topology,
            published: BTreeMap::new(),
            lost_blocks: Vec::new(),
            told: BTreeMap::new(),
            result: None,
            slow: Vec::new(),
        }
    }

    pub(crate) fn take_report(&mut self, node: NodeId, epoch: Epoch, report: Report, shared: &Shared) {
        self.job.handle_report(node, epoch, report, &self.topology, shared.now);
    }

    pub(crate) fn tick(&mut self, shared: &Shared) {
        self.job.handle_tick(&self.topology, shared.now);
    }

    /// Handles the end of the connection to a node.
    pub(crate) fn lose_node(&mut self, node: NodeId, shared: &mut Shared) {
        shared.note(|| format!("the coordinator lost the connection to {node}"));
        shared.cut_control(node);
        if let Some(view) = self.topology.get_mut(node) {
            view.alive = false;
        }
        self.told.remove(&node);
        self.job.handle_node_lost(node, &self.topology, shared.now);
    }

    /// Handles a node that registers again. Such a node has no state of the job.
    pub(crate) fn register(&mut self, node: NodeId, shared: &mut Shared) {
        if self.topology.is_alive(node) {
            self.lose_node(node, shared);
        }
        shared.note(|| format!("{node} registers again"));
        if let Some(view) = self.topology.get_mut(node) {
            view.alive = true;
        }
    }

    /// Carries out the job's actions and returns the blocks that it published.
    pub(crate) fn act(&mut self, shared: &mut Shared) -> Vec<(BlockIndex, NodeId, Option<Digest>)> {
        let mut published = Vec::new();
        while let Some(action) = self.job.poll() {
            if self.result.is_some() {
                shared.violate(format!("the ended job requests {action:?}"));
            }
            match action {
                JobAction::Tell { node, message } => self.tell(node, message, shared),
                JobAction::Publish { block, node, digest, .. } => {
                    shared.note(|| format!("publish {block} at {node}"));
                    self.published.insert(block, (node, digest));
                    published.push((block, node, digest));
                }
                JobAction::BlockLost { block, problem, .. } => {
                    shared.note(|| format!("{block} is {problem}"));
                    self.lost_blocks.push((block, problem));
                }
                JobAction::Contradicted { .. } => {}
                JobAction::Slow { nodes } => {
                    shared.note(|| format!("slow nodes, in bytes per second: {nodes:?}"));
                    self.slow.extend(nodes.into_keys());
                }
                JobAction::Finish(result) => {
                    shared.note(|| format!("finish: {result:?}"));
                    self.result = Some(*result);
                }
            }
        }
        published
    }

    fn tell(&mut self, node: NodeId, message: ToNode, shared: &mut Shared) {
        let forgets = matches!(message, ToNode::Forget { .. });
        if self.topology.is_alive(node) {
            self.told.insert(node, forgets);
            shared.tell(node, message);
        } else if forgets {
            self.told.insert(node, true);
        }
    }
}
