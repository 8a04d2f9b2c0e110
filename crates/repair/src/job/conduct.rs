//! How nodes have behaved in a job: who was blamed, given up as a requestor or suspected, and which links are broken.
//!
//! Deliberately absent: who is to blame ([`blame`](super::blame)), and which nodes the next plan avoids, which a second chance
//! forgets (`Policy::avoid`). What is noted here stays for the job.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::blame::{Standing, Worth};
use super::links::BrokenLinks;
use super::trust::Wrong;
use super::work::Work;
use crate::{NodeId, Reach, Topology};

/// A node that was given up so often as a requestor does not become one again, so that replacing ends.
pub(super) const GIVEN_UP: u32 = 2;

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Conduct {
    pub(super) links: BrokenLinks,
    /// How often nodes were blamed.
    blamed: BTreeMap<NodeId, u32>,
    /// How often nodes were given up as requestors; what they say of themselves counts twice.
    given_up: BTreeMap<NodeId, u32>,
    /// Nodes whose store takes no block now. One may be wrong about that; when a second one agrees the job ends.
    not_now: BTreeSet<NodeId>,
    /// Requestors that may have spoilt what they were given. They are suspected once, before any source is.
    suspected: BTreeSet<NodeId>,
}

impl Conduct {
    pub(super) fn blame(&mut self, node: NodeId) {
        *self.blamed.entry(node).or_insert(0) += 1;
    }

    pub(super) fn give_up(&mut self, node: NodeId, weight: u32) {
        *self.given_up.entry(node).or_insert(0) += weight;
    }

    /// Notes that a node's store takes no block now; returns whether another one has said the same.
    pub(super) fn note_not_now(&mut self, node: NodeId) -> bool {
        self.not_now.insert(node);
        self.not_now.len() > 1
    }

    pub(super) fn suspect(&mut self, requestors: &BTreeSet<NodeId>) {
        self.suspected.extend(requestors);
    }

    /// Whether the requestors may be the cause, were not suspected before, and others can take their places.
    pub(super) fn may_suspect(&self, wrong: &Wrong, work: &Work, topology: &Topology) -> bool {
        !wrong.at.is_empty()
            && self.suspected.is_empty()
            && self.can_all_be_replaced(&wrong.at, work, topology)
    }

    /// How hard it is to go without a node.
    pub(super) fn worth(&self, node: NodeId, work: &Work, topology: &Topology) -> Worth {
        let standing = if topology.dials_out(node) {
            Standing::Client
        } else if work.is_requestor(node) {
            Standing::Requestor
        } else {
            Standing::Helper
        };
        Worth { standing, blamed: self.blamed.get(&node).copied().unwrap_or(0) }
    }

    pub(super) fn can_be_replaced(&self, node: NodeId, work: &Work, topology: &Topology) -> bool {
        self.can_all_be_replaced(&BTreeSet::from([node]), work, topology)
    }

    fn can_all_be_replaced(&self, nodes: &BTreeSet<NodeId>, work: &Work, topology: &Topology) -> bool {
        let deliveries = work.goals.iter().filter(|goal| nodes.contains(&goal.requestor)).count();
        let mut taken = work.requestors();
        (0..deliveries)
            .all(|_| self.stand_in(&taken, work, topology).is_some_and(|other| taken.insert(other)))
    }

    /// A live helper that has room for a block and holds none of the stripe, or less than its even share where nodes share;
    /// rather one that has not failed. `taken` get other blocks already: what a node says of its progress is of all that it gets.
    pub(super) fn stand_in(
        &self,
        taken: &BTreeSet<NodeId>,
        work: &Work,
        topology: &Topology,
    ) -> Option<NodeId> {
        let bytes = work.stripe.block_bytes();
        let fit = topology.iter().filter(|(node, view)| {
            let given_up = self.given_up.get(node).is_some_and(|&times| times >= GIVEN_UP);
            view.alive && view.reach != Reach::DialsOut && view.free_bytes >= bytes && !given_up
        });
        let fit: Vec<_> = fit.collect();
        let share =
            if work.policy.shares_nodes { work.stripe.blocks.len().div_ceil(fit.len().max(1)) } else { 1 };
        let held = |node: NodeId| work.stripe.held().filter(|&(_, holder)| holder == node).count();
        fit.into_iter()
            .filter(|&(node, _)| !taken.contains(&node) && held(node) < share)
            .min_by_key(|&(node, view)| {
                let failed = work.policy.avoid.contains(&node);
                (failed, self.blamed.get(&node), held(node), view.load, Reverse(view.free_bytes))
            })
            .map(|(node, _)| node)
    }
}
