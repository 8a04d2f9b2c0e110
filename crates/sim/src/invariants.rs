//! The invariants of a run, which are checked at its end.
//!
//! **Safety**, under all faults: published blocks, and bytes that a client has read, are correct. If a disk
//! corrupts data silently, this is required only if digests are recorded or the parity check can find the
//! corruption. The parity check can do so if the code is MDS and at least k + 1 good blocks survive.
//!
//! **Liveness**: a job ends. It must succeed if three conditions hold. First, blocks that no fault has
//! touched, on nodes that no fault made unfit, suffice to decode the wanted blocks (plus one more block to
//! check with, if a disk corrupts data silently and only parity can reveal it). Second, a client that takes
//! part is alive. Third, there are at least as many spare fit nodes as unfit requestors. Connections that
//! break once and bits that flip once do not excuse a failure.
//!
//! **Frugality**: without faults, no plan is dropped, and every node sends and receives exactly the bytes in
//! the plan's cost.

use std::collections::{BTreeMap, BTreeSet};

use codes::BlockIndex;
use repair::{Digest, JobError, NodeId, PlanError};

use crate::disk::digest_of;
use crate::faults::{Fault, explains};
use crate::node::State;
use crate::scenario::{CLIENT, Kind, Scenario};
use crate::world::World;

impl World<'_> {
    /// Checks that a block, which has just been published, has its true contents.
    pub(crate) fn check_published(&mut self, block: BlockIndex, node: NodeId, digest: Option<Digest>) {
        let id = Scenario::block_id(block);
        let true_bytes = &self.truth[usize::from(block.0)][..self.scenario.bytes_of(block) as usize];
        let Some(stored) = self.nodes[&node].disk.blocks.get(&id) else {
            return self
                .shared
                .violate(format!("{block} was published at {node}, but {node} does not store it"));
        };
        if Some(digest_of(&stored.bytes)) != digest {
            self.shared.violate(format!("{block} was published with a digest that does not match its bytes"));
        }
        if stored.bytes != true_bytes {
            self.published_wrong.push(block);
            if !self.may_be_wrong() {
                self.shared.violate(format!("{block} was published with wrong bytes"));
            }
        }
    }

    /// Checks all invariants at the end of a run.
    pub(crate) fn judge(&mut self) {
        let mut violations = Vec::new();
        match &self.driver.result {
            None => violations.push(format!("the job did not end; its state: {:?}", self.driver.job.state())),
            Some(Ok(_)) => violations.extend(self.judge_success()),
            Some(Err(error)) => violations.extend(self.judge_failure(error)),
        }
        violations.extend(self.judge_manners());
        if self.scenario.faults.is_empty() {
            violations.extend(self.judge_quiet());
        }
        violations.into_iter().for_each(|violation| self.shared.violate(violation));
    }

    fn judge_success(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        let Some(Ok(outcome)) = &self.driver.result else { return wrong };
        for &block in &self.scenario.wanted {
            let Some(&home) = outcome.homes.get(&block) else {
                wrong.push(format!("the job succeeded without rebuilding {block}"));
                continue;
            };
            if self.scenario.publishes() {
                if self.driver.published.get(&block).map(|&(node, _)| node) != Some(home) {
                    wrong.push(format!("the job succeeded, but {block} is not published at {home}"));
                }
            } else if !self.client_has(block) && !self.may_be_wrong() {
                wrong.push(format!("the client received wrong bytes of {block}"));
            }
        }
        wrong
    }

    /// Whether the client has received the requested part of a block, with the right bytes. Returns true also
    /// if the client has ended, because its deliveries cannot be checked then.
    fn client_has(&self, block: BlockIndex) -> bool {
        let is_killed = |fault: &Fault| matches!(*fault, Fault::Kill { node: CLIENT, .. });
        if self.scenario.faults.iter().any(|(_, fault)| is_killed(fault)) {
            return true; // The client's deliveries were lost with its process.
        }
        let Some(sinks) = &self.delivered_to_client else { return true }; // The client had died.
        let Some(got) = sinks.get(&Scenario::block_id(block)) else { return false };
        let Kind::Read { window, sub_blocks } = &self.scenario.kind else { return false };
        let chunking = self.scenario.chunking(&*self.code);
        let subs = sub_blocks.clone().unwrap_or(0..self.code.sub_blocks() as u16);
        let truth = &self.truth[usize::from(block.0)];
        let mut wanted = subs.into_iter().flat_map(|sub| chunking.ranges(sub, window.clone()).flatten());
        wanted.all(|at| got.get(at as usize).is_none_or(|&byte| byte == truth[at as usize]))
    }

    fn judge_failure(&self, error: &JobError) -> Vec<String> {
        let scenario = self.scenario;
        if let Err(first) = scenario.plan() {
            let same = matches!(error, JobError::Plan { error, .. } if *error == first);
            return if same {
                Vec::new()
            } else {
                vec![format!("the job failed with {error}, but planning failed with {first}")]
            };
        }
        if matches!(error, JobError::Plan { error: PlanError::Pacing { .. }, .. }) {
            return Vec::new(); // A fixed pacing may be impossible on the nodes that are left.
        }
        match self.excuse() {
            Some(_) => Vec::new(),
            None => vec![format!("the job failed although it could succeed: {error}")],
        }
    }

    /// Returns the reason why the job may fail; `None` if it must succeed.
    fn excuse(&self) -> Option<&'static str> {
        let scenario = self.scenario;
        let struck = || scenario.faults.iter().map(|(_, fault)| fault);
        if scenario.has_client() && struck().any(|fault| self.removes_client(fault)) {
            return Some("the client is gone");
        }
        let sound = self.sound_blocks();
        let scheme = scenario.policy.scheme;
        let must_copy = scheme == repair::Scheme::Migration;
        if must_copy && !scenario.wanted.iter().all(|block| sound.contains(block)) {
            return Some("a block to copy is lost");
        }
        if self.code.repair(&scenario.wanted, &sound).is_err() {
            return Some("too few good blocks are left");
        }
        let lies = struck().any(|fault| matches!(fault, Fault::Lie { .. }));
        if lies && scenario.checks.parity && !self.can_check(&sound) {
            return Some("a disk returns wrong bytes, and too few good blocks are left to find that disk");
        }
        (self.fit_spares() < self.unfit_requestors()).then_some("no node can replace a requestor")
    }

    fn removes_client(&self, fault: &Fault) -> bool {
        match *fault {
            Fault::Kill { node, .. } | Fault::Vanish { node } => node == CLIENT,
            Fault::Pause { node, lasts } => {
                node == CLIENT && lasts.is_none_or(|lasts| lasts >= self.scenario.machines.ping_limit)
            }
            // Only the client holds the data of a put, so the client's links to all nodes are needed.
            Fault::Cut { a, b } => self.scenario.kind == Kind::Put && (a == CLIENT || b == CLIENT),
            Fault::Corrupt { .. } | Fault::Lose { .. } => self.scenario.kind == Kind::Put,
            _ => false,
        }
    }

    /// Returns the nodes that a job need not use: those that a fault stopped or slowed down, and the ends of
    /// cut links around which no other node can relay.
    fn unfit(&self) -> BTreeSet<NodeId> {
        let faults = || self.scenario.faults.iter().map(|(_, fault)| fault);
        let struck: BTreeSet<NodeId> = faults().filter_map(Fault::unfit).collect();
        let cuts: BTreeSet<(NodeId, NodeId)> = faults()
            .filter_map(|fault| match *fault {
                Fault::Cut { a, b } => Some([(a, b), (b, a)]),
                _ => None,
            })
            .flatten()
            .collect();
        let fit =
            self.scenario.node_ids().into_iter().filter(|node| *node != CLIENT && !struck.contains(node));
        let relays: Vec<NodeId> = fit.collect();
        let joins = |relay: NodeId, end: NodeId| relay != end && !cuts.contains(&(relay, end));
        let has_relay = |a, b| relays.iter().any(|&relay| joins(relay, a) && joins(relay, b));
        let apart = cuts.iter().filter(|&&(a, b)| !has_relay(a, b)).map(|&(a, _)| a);
        struck.iter().copied().chain(apart).filter(|&node| node != CLIENT).collect()
    }

    fn sound_blocks(&self) -> Vec<BlockIndex> {
        let unfit = self.unfit();
        let bad: BTreeSet<BlockIndex> =
            self.scenario.faults.iter().filter_map(|(_, fault)| fault.bad_block()).collect();
        let all = (0..self.code.blocks() as u16).map(BlockIndex);
        let is_sound = |&block: &BlockIndex| {
            let holder = self.scenario.holder(block);
            holder.is_some_and(|holder| !unfit.contains(&holder)) && !bad.contains(&block)
        };
        all.filter(is_sound).collect()
    }

    /// Whether the parity check can find a silently corrupted block: the code must be MDS, and at least k + 1
    /// of the blocks that are not wanted must be sound.
    fn can_check(&self, sound: &[BlockIndex]) -> bool {
        let is_other = |block: &&BlockIndex| !self.scenario.wanted.contains(block);
        self.scenario.code.is_mds() && sound.iter().filter(is_other).count() > self.code.data_blocks()
    }

    /// Whether wrong bytes are excused because no check could have found the silent corruption.
    fn may_be_wrong(&self) -> bool {
        let lies = self.scenario.faults.iter().any(|(_, fault)| matches!(fault, Fault::Lie { .. }));
        let checked = self.scenario.checks.digests
            || (self.scenario.checks.parity && self.can_check(&self.sound_blocks()));
        lies && !(self.scenario.publishes() && checked)
    }

    fn no_room(&self, node: NodeId) -> bool {
        self.scenario.faults.iter().any(|(_, fault)| *fault == Fault::DiskFull { node })
    }

    fn unfit_requestors(&self) -> usize {
        let unfit = self.unfit();
        // After a report that a requestor broke a connection or sent a bad frame, the job may replace that
        // requestor, which takes a spare node.
        let broke = |node: NodeId| {
            self.scenario.faults.iter().any(|(_, fault)| match *fault {
                Fault::Break { a, b } => a == node || b == node,
                Fault::FlipFrame { from } => from == node,
                _ => false,
            })
        };
        (0..self.scenario.wanted.len())
            .map(|position| self.scenario.requestor(position))
            .filter(|&node| {
                unfit.contains(&node) || broke(node) || (self.scenario.publishes() && self.no_room(node))
            })
            .count()
    }

    fn fit_spares(&self) -> usize {
        let unfit = self.unfit();
        let scenario = self.scenario;
        let requestors: BTreeSet<NodeId> =
            (0..scenario.wanted.len()).map(|at| scenario.requestor(at)).collect();
        let holds =
            |node| (0..self.code.blocks() as u16).any(|b| scenario.holder(BlockIndex(b)) == Some(node));
        let fit = |node: &NodeId| *node != CLIENT && !unfit.contains(node) && !self.no_room(*node);
        let nodes = scenario.node_ids().into_iter().filter(fit);
        nodes.filter(|node| !requestors.contains(node) && !holds(*node)).count()
    }

    /// Checks that no node keeps state of the job, and that a fault explains every report of a bad block.
    fn judge_manners(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        for (node, told_to_forget) in &self.driver.told {
            if !told_to_forget {
                wrong.push(format!("{node} did not receive the message to forget the job"));
            }
        }
        for node in self.nodes.values() {
            let reachable = node.state == State::Running && self.driver.topology.is_alive(node.id);
            if reachable && node.knows_job() {
                wrong.push(format!("{} still keeps state of the job", node.id));
            }
        }
        for (block, problem) in &self.driver.lost_blocks {
            if !self.scenario.faults.iter().any(|(_, fault)| explains(fault, *block, problem)) {
                wrong.push(format!("{block} was reported as {problem}, but no fault explains this"));
            }
        }
        wrong
    }

    /// Checks that a run without faults moves exactly the bytes of its plan.
    fn judge_quiet(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        let (Ok(plan), Some(Ok(outcome))) = (self.scenario.plan(), &self.driver.result) else {
            return wrong;
        };
        if !outcome.replanned.is_empty() {
            wrong.push(format!("plans were dropped although there was no fault: {:?}", outcome.replanned));
        }
        let mut moved: BTreeMap<NodeId, (u64, u64)> = BTreeMap::new();
        for (id, edge) in &self.shared.network.edges {
            moved.entry(id.from).or_default().0 += edge.payload_bytes;
            moved.entry(id.to).or_default().1 += edge.payload_bytes;
        }
        for cost in plan.cost().nodes {
            let found = moved.remove(&cost.node).unwrap_or_default();
            if found != (cost.sent_bytes, cost.received_bytes) {
                wrong.push(format!(
                    "{} sent and received {found:?} bytes, but the plan predicts {cost:?}",
                    cost.node
                ));
            }
        }
        if !moved.is_empty() {
            wrong.push(format!("nodes outside the plan moved bytes: {moved:?}"));
        }
        wrong
    }
}
