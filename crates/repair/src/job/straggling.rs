//! Replans without a straggler, if that pays off.
//!
//! [`pace`](super::pace) finds where a plan is held up. Either end of a slow link may be the cause, and only
//! a trial can tell which. So the job first tries to avoid both ends, and then each end alone if avoiding
//! both is impossible or does not pay off. For each choice it makes a plan that accounts for the low rates of
//! these nodes. The running plan is dropped if the remaining slices would arrive much sooner that way,
//! including the time to stop. Slices already delivered are kept.
//!
//! **No flapping:** a node found to be slow stays marked for the rest of the job; each examination without
//! result doubles the time to the next one; and the number of detours (plans that avoid slow nodes) per job
//! is bounded.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::pace::{Finding, Pace, Predicted, Step};
use super::watching::Running;
use super::ways::Ways;
use super::{Job, JobAction, Phase};
use crate::wire::control::ToNode;
use crate::{NodeId, Pacing, Plan, Topology};

/// A detour, which is a plan that avoids slow nodes, pays off if the running plan needs at least this many
/// times as long as the detour.
const GAIN: f64 = 1.4;
/// Replaces `GAIN` if the running plan was never faster; then only predictions say that a detour is faster.
const GAIN_BY_FIGURES: f64 = 1.6;
/// With more jobs than this on a node, slow plans are not examined: the kernel shares links unevenly among so
/// many connections, and no node is to blame. The scheduler of many repairs cancels late jobs.
const MOST_JOBS: u32 = 4;
/// A plan that uses slow nodes must be this many times as fast as one without them, because their rates are
/// known only roughly.
pub(super) const TRUST: f64 = 1.25;
/// The time to stop a plan and to start another.
const STOP: Duration = Duration::from_millis(150);
/// The maximum assumed ratio between observed and predicted rates.
const MOST_ASTRAY: f64 = 16.0;
/// The maximum number of detours per job.
const MOST_DETOURS: u32 = 6;
/// A detour has helped if the next plan is this many times as fast, which proves that the nodes were slow.
const HELPED: f64 = 1.5;

/// Nodes that became slow while the job ran.
#[derive(Debug, Default)]
pub(super) struct Stragglers {
    /// The rate that a plan can get through each slow node, in bytes per second.
    slow: BTreeMap<NodeId, f64>,
    /// The highest rate of any plan so far, in slices per second.
    best: f64,
    detours: u32,
    /// The nodes that the last detour avoids, each with the rate that a plan can get through it in bytes per
    /// second; and the job's rate before the detour, in slices per second. Cleared once the detour has
    /// helped.
    suspected: Option<(BTreeMap<NodeId, f64>, f64)>,
}

impl Stragglers {
    /// The slow nodes.
    pub(super) fn nodes(&self) -> BTreeSet<NodeId> {
        self.slow.keys().copied().collect()
    }

    /// The topology, with the rates of slow nodes lowered. Without slow nodes, nothing is copied, because a
    /// topology may have thousands of nodes and links.
    pub(super) fn known<'a>(&self, topology: &'a Topology) -> Cow<'a, Topology> {
        match self.slow.is_empty() {
            true => Cow::Borrowed(topology),
            false => Cow::Owned(slowed(topology, &self.slow)),
        }
    }

    /// Starts measuring a plan against its prediction.
    pub(super) fn begin_pace(&self, plan: &Plan, topology: &Topology, now: Duration) -> Pace {
        let slices = plan.slices().len();
        // `Pace` accounts for other jobs by their number, so the prediction must not count their bytes.
        let predicted = plan.predict_alone(&self.known(topology));
        let requestors: BTreeSet<NodeId> = plan.outputs().iter().map(|output| output.requestor).collect();
        let rate = f64::from(slices) / predicted.as_secs_f64().max(1e-6);
        let predicted = Predicted { rate, rests_on_figures: knows_links(plan, topology) };
        Pace::new(slices, requestors.len(), predicted, self.best, now)
    }

    /// Marks the nodes that a new detour avoids as slow. `rate` is the job's rate before the detour, in
    /// slices per second.
    fn note_detour(&mut self, slow: BTreeMap<NodeId, f64>, rate: f64) {
        self.detours += 1;
        self.slow.extend(slow.iter().map(|(&node, &rate)| (node, rate)));
        self.suspected = Some((slow, rate));
    }

    /// Returns the nodes that the last detour avoids if the current rate proves that the detour has helped;
    /// only once per detour.
    fn confirm(&mut self, rate: f64) -> Option<BTreeMap<NodeId, f64>> {
        let confirmed = self.suspected.take_if(|(_, was)| rate >= *was * HELPED);
        confirmed.map(|(nodes, _)| nodes)
    }
}

/// The topology, with the rates of some nodes lowered to the given values.
fn slowed(topology: &Topology, slow: &BTreeMap<NodeId, f64>) -> Topology {
    let mut known = topology.clone();
    for (&node, &most) in slow {
        if let Some(profile) = known.get_mut(node) {
            let rates = &mut profile.rates;
            for rate in [&mut rates.up, &mut rates.down, &mut rates.read, &mut rates.write] {
                *rate = rate.min(most);
            }
        }
    }
    known
}

impl Job {
    /// Records the best rate when a plan ends.
    pub(super) fn end_pace(&mut self) {
        if let Phase::Running(running) = &self.phase {
            self.stragglers.best = running.pace.best();
        }
    }

    /// Checks how fast the plan runs and acts on the result.
    pub(super) fn watch_pace(&mut self, topology: &Topology, now: Duration) {
        let Phase::Running(running) = &mut self.phase else { return };
        let crowd = crowd(&running.nodes, topology);
        running.pace.share(crowd, now);
        if crowd > MOST_JOBS || running.is_in_question(now) || running.plan.pacing() == Pacing::WholeBlock {
            return running.pace.excuse(now);
        }
        let step = running.pace.step(now);
        if let Some(nodes) = running.pace.rate().and_then(|rate| self.stragglers.confirm(rate)) {
            self.work.actions.push_back(JobAction::Slow { nodes });
        }
        match step {
            Step::Wait => {}
            Step::Ask => self.ask_all(topology),
            Step::Found(finding) => self.consider(&finding, topology, now),
        }
    }

    /// Asks all nodes of the plan what they wait for.
    pub(super) fn ask_all(&mut self, topology: &Topology) {
        let Phase::Running(running) = &self.phase else { return };
        let (job, epoch) = (self.work.id, self.work.epoch);
        let nodes: Vec<NodeId> = running.plan.nodes().into_iter().collect();
        for node in nodes.into_iter().filter(|&node| topology.is_alive(node)) {
            self.work.tell(node, ToNode::Explain { job, epoch });
        }
    }

    /// Replans around a bottleneck if that pays off.
    fn consider(&mut self, finding: &Finding, topology: &Topology, now: Duration) {
        let Phase::Running(running) = &self.phase else { return };
        let Some(slow) = self.ways().detour(finding, running, topology) else {
            if let Phase::Running(running) = &mut self.phase {
                running.pace.pause(now);
            }
            return;
        };
        let names: Vec<String> = slow.keys().map(|&node| topology.name(node)).collect();
        let fastest = slow.values().copied().fold(0.0, f64::max);
        let verb = if slow.len() == 1 { "is" } else { "or the link between them is" };
        let reason = format!("{} {verb} slow: {:.1} MB/s", names.join(", "), fastest / 1e6);
        self.stragglers.note_detour(slow, finding.rate);
        // Detours have a limit of their own, so they do not use up the limit on failed plans.
        self.fruitless = self.fruitless.saturating_sub(1);
        self.drop_plan(reason, topology, now);
    }
}

impl Ways<'_> {
    /// The nodes to avoid and their rates in bytes per second, if avoiding them pays off.
    fn detour(
        &self,
        finding: &Finding,
        running: &Running,
        topology: &Topology,
    ) -> Option<BTreeMap<NodeId, f64>> {
        // If nothing moves at all, this is no straggler: the waiting nodes will complain, and `blame` finds
        // the cause.
        if self.stragglers.detours >= MOST_DETOURS || finding.rate <= 0.0 {
            return None;
        }
        // If no plan was ever faster and the last detour did not help, the prediction was too optimistic.
        if !finding.was_faster() && self.stragglers.suspected.is_some() {
            return None;
        }
        // If most links are full and were never faster, all are equally slow.
        if !finding.was_faster() && finding.edges.len() * 2 > running.plan.edges().len() {
            return None;
        }
        let (gain, astray) = match finding.was_faster() {
            true => (GAIN, (finding.predicted / finding.best).clamp(1.0 / MOST_ASTRAY, MOST_ASTRAY)),
            false => (GAIN_BY_FIGURES, 1.0),
        };
        let crowd = f64::from(crowd(&running.nodes, topology));
        let stay = finding.left_slices / finding.rate.max(1e-3);
        let carried = carried(&running.plan, finding.rate);
        let choices = suspects(
            finding,
            |node| self.work.may_go_without(node, topology),
            |node| topology.dials_out(node),
        );
        choices.into_iter().find_map(|suspects| {
            let slow: BTreeMap<NodeId, f64> =
                suspects.iter().map(|&node| (node, carried.get(&node).copied().unwrap_or(1.0))).collect();
            let mut all = self.stragglers.slow.clone();
            all.extend(slow.iter().map(|(&node, &rate)| (node, rate)));
            let known = slowed(topology, &all);
            let plan = self.fastest(&all.into_keys().collect(), &known).ok()?;
            let predicted = plan.predict(&known).as_secs_f64() * crowd * finding.left * astray;
            (stay >= gain * (predicted + STOP.as_secs_f64())).then_some(slow)
        })
    }
}

/// The number of jobs that share the plan's busiest node, including this one.
pub(super) fn crowd(nodes: &BTreeSet<NodeId>, topology: &Topology) -> u32 {
    let load = |node: &NodeId| topology.get(*node).map_or(0, |profile| profile.load);
    nodes.iter().map(load).max().unwrap_or(0).max(1)
}

/// Whether the link rates of all helpers are measured. With assumed rates, all links may be equally slow, and
/// no single link would be the bottleneck.
fn knows_links(plan: &Plan, topology: &Topology) -> bool {
    let is_known = |node: NodeId| topology.get(node).is_some_and(|profile| profile.knows_links);
    plan.nodes().into_iter().all(|node| topology.dials_out(node) || is_known(node))
}

/// The bytes per second that pass each node of a plan at the given rate of slices.
fn carried(plan: &Plan, slices_per_s: f64) -> BTreeMap<NodeId, f64> {
    let slices = f64::from(plan.slices().len().max(1));
    let rate = |bytes: u64| (bytes as f64 / slices * slices_per_s).max(1.0);
    let busiest = |cost: &crate::NodeCost| cost.load_bytes().max(cost.read_bytes);
    plan.node_costs().iter().map(|cost| (cost.node, rate(busiest(cost)))).collect()
}

/// Candidate sets of nodes to avoid, likeliest first. For one slow link: both ends, then each end. For
/// several: the node that they share, or two nodes that together touch all of them. If the shared end is a
/// node that must stay, it is the cause, and nothing helps. If the links share no nodes, all are just equally
/// slow.
fn suspects(
    finding: &Finding,
    may_go: impl Fn(NodeId) -> bool,
    is_client: impl Fn(NodeId) -> bool,
) -> Vec<BTreeSet<NodeId>> {
    // The achievable rate of a link to a client is unknown if the plan was never faster.
    let known =
        |&&(from, to): &&(NodeId, NodeId)| finding.was_faster() || !(is_client(from) || is_client(to));
    let edges: Vec<(NodeId, NodeId)> = finding.edges.iter().filter(known).copied().collect();
    let mut choices: Vec<BTreeSet<NodeId>> = Vec::new();
    let mut add = |nodes: &mut dyn Iterator<Item = NodeId>| {
        let nodes: BTreeSet<NodeId> = nodes.filter(|&node| may_go(node)).collect();
        if !nodes.is_empty() && !choices.contains(&nodes) {
            choices.push(nodes);
        }
    };
    match (&in_all(&edges)[..], edges.len()) {
        (_, 0) => {}
        (&[a, b], _) => {
            [vec![a, b], vec![a], vec![b]].into_iter().for_each(|ends| add(&mut ends.into_iter()))
        }
        (&[end], _) => add(&mut [end].into_iter()),
        (_, 2) => add(&mut edges.iter().flat_map(|&(from, to)| [from, to])),
        _ => pairs(&edges)
            .filter(|pair| pair.iter().all(|&end| may_go(end)))
            .for_each(|pair| add(&mut pair.into_iter())),
    }
    add(&mut finding.nodes.iter().copied());
    choices
}

/// The nodes that are an end of every link: two if there is only one link, possibly used in both directions.
fn in_all(edges: &[(NodeId, NodeId)]) -> Vec<NodeId> {
    let Some(&(a, b)) = edges.first() else { return Vec::new() };
    [a, b].into_iter().filter(|&end| edges.iter().all(|&(from, to)| from == end || to == end)).collect()
}

/// Pairs of nodes such that each link has one of the two as an end.
fn pairs(edges: &[(NodeId, NodeId)]) -> impl Iterator<Item = [NodeId; 2]> {
    let first = edges.first().into_iter().flat_map(|&(a, b)| [a, b]);
    first.flat_map(move |one| {
        let without = |&&(from, to): &&(NodeId, NodeId)| from != one && to != one;
        let rest: Vec<(NodeId, NodeId)> = edges.iter().filter(without).copied().collect();
        in_all(&rest).into_iter().map(move |other| [one, other])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(edges: &[(u32, u32)], nodes: &[u32], was_faster: bool) -> Finding {
        Finding {
            edges: edges.iter().map(|&(from, to)| (NodeId(from), NodeId(to))).collect(),
            nodes: nodes.iter().copied().map(NodeId).collect(),
            rate: 1.0,
            best: if was_faster { 10.0 } else { 1.0 },
            predicted: 10.0,
            left: 0.5,
            left_slices: 50.0,
        }
    }

    /// Returns the sets of nodes that [`suspects`] proposes. Nodes from 50 on are requestors, nodes from 100
    /// on clients.
    fn chosen(finding: &Finding) -> Vec<Vec<u32>> {
        let choices = suspects(finding, |node| node.0 < 50, |node| node.0 >= 100);
        choices.iter().map(|nodes| nodes.iter().map(|node| node.0).collect()).collect()
    }

    #[test]
    fn the_likeliest_cause_is_tried_first() {
        assert_eq!(chosen(&finding(&[(1, 2)], &[], true)), [vec![1, 2], vec![1], vec![2]]);
        assert_eq!(chosen(&finding(&[(1, 2), (2, 3)], &[], true))[0], [2], "what all have in common");
        assert_eq!(chosen(&finding(&[(1, 2), (3, 2), (2, 50)], &[], true))[0], [2]);
        assert_eq!(chosen(&finding(&[(1, 50)], &[], true)), [[1]], "a requestor stays");
        assert_eq!(chosen(&finding(&[], &[7], true)), [[7]]);
        assert_eq!(chosen(&finding(&[(1, 100)], &[], true)), [[1]], "it was faster");
        assert!(chosen(&finding(&[(1, 100)], &[], false)).is_empty(), "the client's link may be what it is");
        assert!(chosen(&finding(&[], &[50], true)).is_empty());
    }

    #[test]
    fn a_topology_without_slow_nodes_is_not_copied() {
        let (topology, mut stragglers) = (Topology::new(), Stragglers::default());
        assert!(matches!(stragglers.known(&topology), Cow::Borrowed(_)));
        stragglers.slow.insert(NodeId(1), 1e6);
        assert!(matches!(stragglers.known(&topology), Cow::Owned(_)));
    }

    #[test]
    fn several_slow_links_blame_a_shared_node_or_none() {
        let star = |to: u32| (1..7).map(|from| (from, to)).collect::<Vec<_>>();
        assert_eq!(chosen(&finding(&star(9), &[], true)), [[9]], "and not whoever sends to it");
        assert!(chosen(&finding(&star(100), &[], true)).is_empty(), "the client's link is full");
        assert!(chosen(&finding(&star(50), &[], true)).is_empty(), "a requestor's too");
        let two = [(1, 2), (3, 1), (1, 4), (5, 6), (6, 7)];
        assert_eq!(chosen(&finding(&two, &[], true)), [[1, 6]], "two became slow");
        assert_eq!(chosen(&finding(&[(1, 2), (2, 3), (3, 4), (4, 5)], &[], true)), [[2, 4]]);
        assert_eq!(
            chosen(&finding(&[(1, 50), (2, 3), (50, 7)], &[], true)),
            [[0; 0]; 0],
            "with one that has to stay"
        );
        assert_eq!(
            chosen(&finding(&[(1, 50), (2, 3)], &[], true)),
            [[1, 2, 3]],
            "of two that share nothing any end"
        );
        assert_eq!(chosen(&finding(&[(1, 2), (2, 1)], &[], true)), [vec![1, 2], vec![1], vec![2]]);
        assert!(chosen(&finding(&[(1, 2), (3, 4), (5, 6)], &[], true)).is_empty(), "all are slow alike");
    }
}
