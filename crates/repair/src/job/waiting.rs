//! Finds the culprit when nodes wait for each other.
//!
//! A node that others wait for has an excuse if it waits itself for the same slice or an earlier one, because
//! relays start slices in ascending order and edges carry them in that order. The chain of excuses is
//! followed to its end. Waiting for a *later* slice is no excuse: such a wait is a consequence of not
//! handling the earlier slice.
//!
//! All nodes of the plan are asked as soon as the first one complains. A node that is merely slow can then
//! name the node that slows it, even if none of its own edges has been idle for too long. A node that does
//! not answer has no excuse.
//!
//! If both ends of an edge complain about it, one wants to send and the other to receive, but little passes
//! between them: the cause is at this edge, regardless of other waits. Either end may be at fault. A node
//! with several such edges is blamed first, until dropping it has proven useless.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::Due;
use super::blame::{Evidence, Standing, Worth};
use crate::NodeId;

/// One node waits for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Wait {
    node: NodeId,
    on: NodeId,
    slice: u32,
    /// Whether the node waits to receive rather than to send.
    receives: bool,
    /// Whether the node has waited for too long.
    is_stalled: bool,
}

impl Wait {
    /// Whether these waits are the two ends of one edge.
    fn is_other_end(self, other: Self) -> bool {
        self.on == other.node && self.node == other.on && self.receives != other.receives
    }
}

/// The parameters of the judgement.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    /// Whether nodes wait for whole streams, so that a wait for any slice excuses a node.
    pub(super) in_rounds: bool,
    /// A node may complain after waiting this long, in milliseconds.
    pub(super) patience_ms: u32,
}

/// Returns the nodes to blame: each node that has no excuse and blocks, directly or through other nodes, a
/// node that has waited for too long; and one end of each dead edge (an edge about which both ends complain)
/// along the way. Nodes in `limited` are throttled on purpose and are not blamed.
pub(super) fn causes(
    evidence: &[Evidence],
    worth: &impl Fn(NodeId) -> Worth,
    rules: Rules,
    limited: &BTreeSet<NodeId>,
) -> BTreeSet<NodeId> {
    let waits = waits(evidence, rules);
    let excuses: Vec<Vec<usize>> = waits.iter().map(|&wait| excuses(&waits, wait, rules)).collect();
    let reached: Vec<BTreeSet<usize>> = (0..waits.len()).map(|from| reached(from, &excuses)).collect();
    let stalled = (0..waits.len()).filter(|&index| waits[index].is_stalled);
    let matters: BTreeSet<usize> =
        stalled.flat_map(|index| reached[index].iter().copied().chain([index])).collect();
    let dead: Vec<Wait> = matters.iter().map(|&index| waits[index]).filter(|&w| is_dead(&waits, w)).collect();
    let is_limited = |wait: &&Wait| limited.contains(&wait.node) || limited.contains(&wait.on);
    let broken: Vec<Wait> = dead.iter().filter(|wait| !is_limited(wait)).copied().collect();
    let mut causes = ends_of_dead_edges(&broken, worth);
    for &index in &matters {
        let circle = &reached[index];
        let leads_to_dead = circle.iter().chain([&index]).any(|&other| dead.contains(&waits[other]));
        // A wait is at the end of a chain if every wait reachable from it leads back to it.
        if !leads_to_dead && circle.iter().all(|&other| reached[other].contains(&index)) {
            let awaited = circle.iter().chain([&index]).map(|&other| waits[other].on);
            causes.extend(awaited.min_by_key(|&node| (worth(node), node)));
        }
    }
    causes.retain(|node| !limited.contains(node));
    causes
}

/// Pairs of nodes that cannot exchange data although both answer the coordinator: the link is broken, and
/// each of the two nodes may work well over other links.
pub(super) fn broken_links(evidence: &[Evidence], rules: Rules) -> BTreeSet<(NodeId, NodeId)> {
    let waits = waits(evidence, rules);
    let answers = |node: NodeId| evidence.iter().any(|item| item.speaker() == Some(node));
    let at_rest = |node: NodeId| evidence.contains(&Evidence::AtRest { node });
    let stalled = waits
        .iter()
        .filter(|wait| wait.is_stalled)
        .filter(|wait| is_dead(&waits, **wait) || wait.receives && at_rest(wait.on))
        .map(|wait| (wait.node, wait.on));
    let closed = evidence.iter().filter_map(|item| match item {
        Evidence::Closed { node, peer, .. } if answers(*peer) => Some((*node, *peer)),
        _ => None,
    });
    stalled.chain(closed).map(|(a, b)| (a.min(b), a.max(b))).collect()
}

/// Converts the latest `Waiting` report of each node into waits.
fn waits(evidence: &[Evidence], rules: Rules) -> Vec<Wait> {
    let mut waits = BTreeMap::new();
    for item in evidence {
        let Evidence::Waiting { node, receive, send } = item else { continue };
        let wait = |due: &Due, receives| {
            let is_stalled = due.rested_ms >= rules.patience_ms;
            Wait { node: *node, on: due.node, slice: due.slice, receives, is_stalled }
        };
        let receive = receive.iter().map(|due| wait(due, true));
        let all: Vec<Wait> = receive.chain(send.iter().map(|due| wait(due, false))).collect();
        waits.insert(*node, all);
    }
    waits.into_values().flatten().collect()
}

fn is_dead(waits: &[Wait], wait: Wait) -> bool {
    waits.iter().any(|&other| wait.is_other_end(other))
}

fn excuses(waits: &[Wait], wait: Wait, rules: Rules) -> Vec<usize> {
    let excuses = |other: &Wait| other.node == wait.on && (rules.in_rounds || other.slice <= wait.slice);
    (0..waits.len()).filter(|&other| excuses(&waits[other])).collect()
}

/// One end of each dead edge: preferably a node with several dead edges, otherwise the end that is easier to
/// replace.
fn ends_of_dead_edges(dead: &[Wait], worth: &impl Fn(NodeId) -> Worth) -> BTreeSet<NodeId> {
    let mut edges: BTreeSet<(NodeId, NodeId)> =
        dead.iter().map(|wait| (wait.node.min(wait.on), wait.node.max(wait.on))).collect();
    let mut ends = BTreeSet::new();
    while let Some(&(a, b)) = edges.first() {
        let end = hub(&edges, worth)
            .unwrap_or_else(|| std::cmp::min((cheapness(worth(a)), a), (cheapness(worth(b)), b)).1);
        ends.insert(end);
        edges.retain(|&(a, b)| a != end && b != end);
        // A dead edge to a client may be due to the client's own slow link. So once a node has been chosen,
        // the remaining dead edges to clients are ignored: no second node is blamed for such an edge.
        edges.retain(|&(a, b)| ![a, b].iter().any(|&node| worth(node).standing == Standing::Client));
    }
    ends
}

/// Sort key for choosing the end of a dead edge to leave out: the least blamed first, helpers before
/// requestors, and clients last.
fn cheapness(worth: Worth) -> (bool, u32, Standing) {
    (worth.standing == Standing::Client, worth.blamed, worth.standing)
}

/// The node with the most dead edges, at least two, unless it was blamed before or is a client.
fn hub(edges: &BTreeSet<(NodeId, NodeId)>, worth: &impl Fn(NodeId) -> Worth) -> Option<NodeId> {
    let mut counts: BTreeMap<NodeId, u32> = BTreeMap::new();
    for node in edges.iter().flat_map(|&(a, b)| [a, b]) {
        *counts.entry(node).or_insert(0) += 1;
    }
    counts
        .into_iter()
        .filter(|&(node, count)| {
            let worth = worth(node);
            count > 1 && worth.blamed == 0 && worth.standing != Standing::Client
        })
        .min_by_key(|&(node, count)| (Reverse(count), worth(node), node))
        .map(|(node, _)| node)
}

/// All waits reachable from one wait through excuses.
fn reached(from: usize, excuses: &[Vec<usize>]) -> BTreeSet<usize> {
    let mut reached = BTreeSet::new();
    let mut ahead = vec![from];
    while let Some(wait) = ahead.pop() {
        for &next in &excuses[wait] {
            if reached.insert(next) {
                ahead.push(next);
            }
        }
    }
    reached
}
