//! Locates a plan's bottleneck from what its nodes wait for and how far they have sent. The job asks all of
//! them at once, several times; each such round of questions is called an *ask*.
//!
//! Slices follow one another, so a plan is as slow as its slowest link or disk, and the next slice (the one
//! that nodes wait for) spends most of its time there. It is *on a link* if the sender has sent the slice
//! that the receiver waits for, or is blocked from sending it. It is *in a node* if the node has all inputs
//! of the slice but has not sent it on. It passes all other links and nodes quickly. If nearly all links are
//! full, all are equally slow, and avoiding a node does not help.

use std::collections::{BTreeMap, BTreeSet};

use super::Report;
use crate::NodeId;

/// The next slice is taken to be on a link or in a node if at least the share `MOSTLY` of the answers show it
/// there, and to be elsewhere if the share is below `HARDLY`.
const MOSTLY: f64 = 0.75;
const HARDLY: f64 = 0.35;
/// A node is the bottleneck if its score is at least `STANDS_OUT` and the second-highest score is lower by at
/// least `APART`. `APART` also separates bottleneck links from others: a node at half the speed of its
/// neighbours keeps its own links busy all the time, and its neighbours' other links half the time.
const STANDS_OUT: f64 = 0.5;
const APART: f64 = 0.3;
/// A node with fewer answers than this is not judged.
const FEW: usize = 3;
/// The number of most recent asks (rounds of questions) whose answers are kept, including asks of earlier
/// examinations.
const REMEMBERED: u32 = 24;

/// The answers of each node, by the number of the ask (round of questions).
#[derive(Debug, Default)]
pub(super) struct Answers(BTreeMap<NodeId, BTreeMap<u32, Answer>>);

/// A node's answer: the slices that the node waits to receive and to send, by the node at the other end of
/// the edge.
#[derive(Debug, Default)]
struct Answer {
    receive: BTreeMap<NodeId, u32>,
    send: BTreeMap<NodeId, u32>,
    /// For each receiver, the first slice that has not been sent; `None` means that everything was sent.
    sent: Option<BTreeMap<NodeId, u32>>,
}

/// The bottleneck: either links (sender and receiver) or one node; the other set is empty.
pub(super) type Bottleneck = (BTreeSet<(NodeId, NodeId)>, BTreeSet<NodeId>);

/// The number of asks (rounds of questions) in which the next slice was on each link and in each node.
#[derive(Debug, Default)]
struct Counts {
    on_links: BTreeMap<(NodeId, NodeId), u32>,
    in_nodes: BTreeMap<NodeId, u32>,
    /// The links that the next slice was on, for each ask.
    links: Vec<Vec<(NodeId, NodeId)>>,
}

impl Answers {
    /// Records a node's answer to the round of questions that has the number `ask`.
    pub fn take(&mut self, node: NodeId, report: &Report, ask: u32) {
        if let Some(answer) = Answer::from_report(report) {
            let answers = self.0.entry(node).or_default();
            answers.insert(ask, answer);
            answers.retain(|&earlier, _| earlier + REMEMBERED > ask);
        }
    }

    /// Finds the bottleneck: the links on which the next slice is most of the time; otherwise a node, if the
    /// next slice alternates between this node's links; otherwise the node in which the next slice is most of
    /// the time. Returns `None` if nothing stands out.
    pub fn bottleneck(&self) -> Option<Bottleneck> {
        let counts = Counts::of(self);
        let shares: BTreeMap<(NodeId, NodeId), f64> = counts
            .on_links
            .iter()
            .map(|(&(from, to), &count)| ((from, to), self.share(count, &[from, to])))
            .collect();
        let mostly: BTreeSet<(NodeId, NodeId)> =
            shares.iter().filter(|&(_, &share)| share >= MOSTLY).map(|(&link, _)| link).collect();
        // Links that share an end with a bottleneck link are ignored, since a slow node slows all its links.
        let ends: BTreeSet<NodeId> = mostly.iter().flat_map(|&(from, to)| [from, to]).collect();
        let elsewhere = |&(from, to): &(NodeId, NodeId)| !ends.contains(&from) && !ends.contains(&to);
        let least = mostly.iter().map(|link| shares[link]).fold(1.0, f64::min);
        let between = |share: f64| HARDLY.max(least - APART) < share && share < MOSTLY;
        let loose = shares.iter().filter(|&(link, &share)| between(share) && elsewhere(link)).count();
        if !mostly.is_empty() && loose <= mostly.len() {
            return Some((mostly, BTreeSet::new()));
        }
        let around = if counts.links.len() < FEW { Vec::new() } else { counts.around(self.0.keys()) };
        let inside = counts.in_nodes.iter().map(|(&node, &count)| (self.share(count, &[node]), node));
        let node = stands_out(around, STANDS_OUT).or_else(|| stands_out(inside.collect(), MOSTLY));
        node.map(|node| (BTreeSet::new(), BTreeSet::from([node])))
    }

    /// Returns `count` divided by the number of rounds of questions that the least responsive of these nodes
    /// has answered; 0 if that number is below `FEW`.
    fn share(&self, count: u32, nodes: &[NodeId]) -> f64 {
        let answered = nodes.iter().map(|node| self.0.get(node).map_or(0, BTreeMap::len)).min().unwrap_or(0);
        if answered < FEW { 0.0 } else { f64::from(count) / answered as f64 }
    }

    fn asks(&self) -> BTreeSet<u32> {
        self.0.values().flat_map(BTreeMap::keys).copied().collect()
    }

    fn at(&self, ask: u32, node: NodeId) -> Option<&Answer> {
        self.0.get(&node)?.get(&ask)
    }
}

/// Returns the node with the highest score, if that score is at least `enough` and the second-highest is far
/// below.
fn stands_out(mut scores: Vec<(f64, NodeId)>, enough: f64) -> Option<NodeId> {
    scores.sort_by(|a, b| b.0.total_cmp(&a.0));
    let &(most, node) = scores.first()?;
    let next = scores.get(1).map_or(f64::MIN, |&(score, _)| score);
    (most >= enough && next <= most - APART).then_some(node)
}

impl Counts {
    fn of(answers: &Answers) -> Self {
        let mut counts = Self::default();
        answers.asks().into_iter().for_each(|ask| counts.add(ask, answers));
        counts
    }

    fn add(&mut self, ask: u32, answers: &Answers) {
        // For each node, the first slice that another node waits for and that the node has not sent.
        let mut lacked: BTreeMap<NodeId, u32> = BTreeMap::new();
        let mut links = Vec::new();
        for &to in answers.0.keys() {
            for (&from, &slice) in answers.at(ask, to).into_iter().flat_map(|answer| &answer.receive) {
                let Some(sender) = answers.at(ask, from) else { continue };
                if sender.is_under_way(to, slice) {
                    links.push((from, to));
                } else {
                    let first = lacked.entry(from).or_insert(slice);
                    *first = slice.min(*first);
                }
            }
        }
        links.iter().for_each(|&link| *self.on_links.entry(link).or_default() += 1);
        self.links.push(links);
        // Of the nodes that have all inputs of their slice, count only those with the earliest slice: delays
        // of later slices are a consequence.
        let lies = |&(node, slice): &(NodeId, u32)| {
            answers.at(ask, node).is_some_and(|answer| answer.has_all_of(slice))
        };
        let lying: Vec<(NodeId, u32)> = lacked.into_iter().filter(lies).collect();
        let first = lying.iter().map(|&(_, slice)| slice).min();
        for (node, _) in lying.into_iter().filter(|&(_, slice)| Some(slice) == first) {
            *self.in_nodes.entry(node).or_default() += 1;
        }
    }

    /// The score of each node: the share of rounds in which the next slice was on one of the node's links,
    /// minus the share in which it was on another link.
    fn around<'a>(&self, nodes: impl Iterator<Item = &'a NodeId>) -> Vec<(f64, NodeId)> {
        let asks = self.links.len() as f64;
        let score = |node: NodeId| {
            let is_at = |&(from, to): &(NodeId, NodeId)| from == node || to == node;
            let here = self.links.iter().filter(|links| links.iter().any(is_at)).count();
            let elsewhere = self.links.iter().filter(|links| !links.iter().all(is_at)).count();
            (here as f64 - elsewhere as f64) / asks
        };
        nodes.map(|&node| (score(node), node)).collect()
    }
}

impl Answer {
    fn from_report(report: &Report) -> Option<Self> {
        match report {
            Report::Waiting { receive, send, sent } => Some(Self {
                receive: receive.iter().map(|due| (due.node, due.slice)).collect(),
                send: send.iter().map(|due| (due.node, due.slice)).collect(),
                sent: Some(sent.iter().map(|sent| (sent.node, sent.before)).collect()),
            }),
            Report::AtRest => Some(Self::default()),
            _ => None,
        }
    }

    /// Whether the slice is on its way to `to`: it was sent, or the node is blocked from sending it.
    fn is_under_way(&self, to: NodeId, slice: u32) -> bool {
        let Some(sent) = &self.sent else { return true };
        let waits = self.send.get(&to).is_some_and(|&waits| waits <= slice);
        waits || sent.get(&to).is_some_and(|&before| before > slice)
    }

    /// Whether the node has received all inputs of a slice and is not blocked from sending.
    fn has_all_of(&self, slice: u32) -> bool {
        self.send.is_empty() && self.receive.values().all(|&due| due > slice)
    }
}
