//! Finds the culprit when a plan breaks.
//!
//! Many nodes notice one broken node: its neighbours find their edges closed, and all nodes downstream wait.
//! [`judge`] follows the chain of waits to its end ([`waiting`]): the culprit is a node that others wait for
//! and that has no excuse, such as a wait of its own for the same slice. It may be stopped, slow, or cut off.
//! A node's report about itself (a bad block, a full disk) and the loss of its control connection outweigh
//! reports by other nodes. Clients are never blamed for being slow: a person may read a file at any pace.
//!
//! If two nodes blame each other, only the link between them is broken, and dropping either node is enough.
//! In that case, and whenever a node is accused only by others, the judge drops the node that is easiest to
//! replace: a helper rather than a requestor, which would need all its slices again, and a requestor rather
//! than a client, which cannot be replaced. The job remembers the broken link: if too few nodes remain, it
//! readmits the dropped nodes and plans around the broken links ([`links`](super::links)).

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use super::waiting::{self, Rules};
use super::{BlockProblem, Due, Report};
use crate::{BlockId, NodeId};

/// A piece of evidence against a node or a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Evidence {
    /// The coordinator lost its connection to the node.
    Lost { node: NodeId },
    /// A requestor makes no progress and reports nothing.
    Silent { node: NodeId },
    /// A node reports that it cannot continue.
    Failed { node: NodeId, why: String },
    /// A node reports that one of its blocks is bad.
    BadBlock { block: BlockId, problem: BlockProblem },
    /// A node received invalid data from its neighbour.
    Wrong { from: NodeId, why: String },
    /// A node found its connection to a neighbour broken.
    Closed { node: NodeId, peer: NodeId, why: String },
    /// A node has nothing left to do for the plan: it is idle.
    AtRest { node: NodeId },
    /// A node waits to receive slices from other nodes or to send slices to them.
    Waiting { node: NodeId, receive: Vec<Due>, send: Vec<Due> },
}

impl Evidence {
    /// Whether this evidence alone justifies a search for a culprit.
    pub(super) fn complains(&self, rules: Rules) -> bool {
        match self {
            Self::Waiting { receive, send, .. } => {
                receive.iter().chain(send).any(|due| due.rested_ms >= rules.patience_ms)
            }
            Self::AtRest { .. } => false,
            _ => true,
        }
    }

    /// The node that made this report. The report proves that the node still answers.
    pub(super) fn speaker(&self) -> Option<NodeId> {
        match self {
            Self::Closed { node, .. } | Self::AtRest { node } | Self::Waiting { node, .. } => Some(*node),
            _ => None,
        }
    }

    /// Turns a report into evidence; returns `None` if the report accuses nobody. The flag says whether to
    /// gather the reports of other nodes before judging.
    pub(super) fn from_report(node: NodeId, report: Report) -> Option<(Self, bool)> {
        match report {
            Report::Waiting { receive, send, .. } => Some((Self::Waiting { node, receive, send }, true)),
            Report::AtRest => Some((Self::AtRest { node }, true)),
            Report::Closed { peer, detail } => Some((Self::Closed { node, peer, why: detail }, true)),
            Report::BadFrame { from, detail } => Some((Self::Wrong { from, why: detail }, false)),
            Report::BadBlock { block, problem } => Some((Self::BadBlock { block, problem }, false)),
            Report::SinkFailed { block, problem } => Some((
                Self::Failed { node, why: format!("{{}} cannot store block {block}: {problem}") },
                false,
            )),
            Report::Refused { why } => {
                Some((Self::Failed { node, why: format!("{{}} refuses its task: {why}") }, false))
            }
            _ => None,
        }
    }
}

/// The nodes and blocks to leave out of the next plan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Verdict {
    pub(super) culprits: Vec<Culprit>,
    pub(super) bad_blocks: Vec<(BlockId, BlockProblem)>,
}

/// A node and the accusation against it; `{}` in the text stands for the node's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Culprit {
    pub(super) node: NodeId,
    pub(super) why: String,
    /// Whether the accusation comes only from other nodes.
    pub(super) hearsay: bool,
}

/// A node's role in the plan, from easiest to hardest to replace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Standing {
    Helper,
    Requestor,
    Client,
}

/// Sort key for choosing the node to drop, cheapest first: by role, then by how often the node was blamed
/// before. Nodes blamed before come later, since dropping them did not solve the problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Worth {
    pub(super) standing: Standing,
    pub(super) blamed: u32,
}

/// Finds the nodes and blocks to leave out of the next plan. Returns `None` if the nodes merely wait for a
/// client, or for nodes in `limited`, which are throttled by their own caps.
pub(super) fn judge(
    evidence: &[Evidence],
    worth: impl Fn(NodeId) -> Worth,
    rules: Rules,
    limited: &BTreeSet<NodeId>,
) -> Option<Verdict> {
    let mut verdict = Verdict::default();
    let mut named = BTreeSet::new();
    let mut blame = |node: NodeId, why: String, hearsay: bool| {
        if named.insert(node) {
            verdict.culprits.push(Culprit { node, why, hearsay });
        }
    };
    let mut bad_blocks: Vec<(BlockId, BlockProblem)> = Vec::new();
    for item in evidence {
        match item {
            Evidence::Lost { node } => blame(*node, "{} disconnected".into(), false),
            Evidence::Failed { node, why } => blame(*node, why.clone(), false),
            Evidence::Wrong { from, why } => blame(*from, format!("{{}} sent a bad slice ({why})"), true),
            Evidence::BadBlock { block, problem } if bad_blocks.iter().all(|(known, _)| known != block) => {
                bad_blocks.push((block.clone(), problem.clone()));
            }
            _ => {}
        }
    }
    if named.is_empty() && bad_blocks.is_empty() {
        return judge_hearsay(evidence, worth, rules, limited);
    }
    verdict.bad_blocks = bad_blocks;
    Some(verdict)
}

/// Like [`judge`], but considers only what nodes report about each other.
fn judge_hearsay(
    evidence: &[Evidence],
    worth: impl Fn(NodeId) -> Worth,
    rules: Rules,
    limited: &BTreeSet<NodeId>,
) -> Option<Verdict> {
    let mut culprits = breakers(evidence, &worth);
    if culprits.is_empty() {
        culprits = bereft(evidence, &worth, rules, limited);
    }
    if culprits.is_empty() {
        let stalled = waiting::causes(evidence, &worth, rules, limited).into_iter();
        culprits = stalled.map(|node| (node, "{} stalled".to_owned())).collect();
    }
    if culprits.is_empty() {
        let silent = evidence.iter().filter_map(|item| match item {
            Evidence::Silent { node } => Some((*node, "{} stalled".to_owned())),
            _ => None,
        });
        culprits.extend(silent);
    }
    let culprits: Vec<Culprit> = culprits
        .into_iter()
        .filter(|&(node, _)| worth(node).standing != Standing::Client)
        .map(|(node, why)| Culprit { node, why, hearsay: true })
        .collect();
    if culprits.is_empty() { None } else { Some(Verdict { culprits, bad_blocks: Vec::new() }) }
}

/// For each broken edge, names the end that is easier to replace; dropping one end is enough. If the roles
/// are equal, it names the end that did not complain, since a dead node cannot complain; if both complained,
/// the end with the smaller [`Worth`].
fn breakers(evidence: &[Evidence], worth: &impl Fn(NodeId) -> Worth) -> BTreeMap<NodeId, String> {
    let complaints: BTreeMap<(NodeId, NodeId), &String> = evidence
        .iter()
        .filter_map(|item| match item {
            Evidence::Closed { node, peer, why } => Some(((*node, *peer), why)),
            _ => None,
        })
        .collect();
    let mut breakers = BTreeMap::new();
    for (&(node, peer), why) in &complaints {
        let mutual = complaints.contains_key(&(peer, node));
        let culprit = match worth(peer).standing.cmp(&worth(node).standing) {
            Ordering::Less => peer,
            Ordering::Greater => node,
            Ordering::Equal if mutual => std::cmp::min((worth(node), node), (worth(peer), peer)).1,
            Ordering::Equal => peer,
        };
        breakers.entry(culprit).or_insert_with(|| format!("{{}} broke a connection ({why})"));
    }
    breakers
}

/// Returns nodes that wait for data although the senders of that data are idle: the data was lost in transit,
/// or the link is slower than the senders. If the sender is a client, it is not at fault and cannot be
/// replaced, so the receiver is named. With a single idle helper, either end may be at fault, and neither is
/// named here. With several idle helpers, the receiver is named, because its own link is the likely cause.
fn bereft(
    evidence: &[Evidence],
    worth: &impl Fn(NodeId) -> Worth,
    rules: Rules,
    limited: &BTreeSet<NodeId>,
) -> BTreeMap<NodeId, String> {
    let at_rest = |node: NodeId| evidence.contains(&Evidence::AtRest { node });
    let is_client = |node: NodeId| worth(node).standing == Standing::Client;
    let late = |receive: &[Due]| -> Vec<NodeId> {
        let late = receive.iter().filter(|due| due.rested_ms >= rules.patience_ms);
        late.map(|due| due.node).collect()
    };
    let waiting: Vec<(NodeId, Vec<NodeId>)> = evidence
        .iter()
        .filter_map(|item| match item {
            Evidence::Waiting { node, receive, .. } => Some((*node, late(receive))),
            _ => None,
        })
        .filter(|(node, _)| !is_client(*node) && !limited.contains(node))
        .collect();
    let of_clients =
        waiting.iter().filter(|(_, late)| late.iter().any(|&node| is_client(node) && at_rest(node)));
    if let Some(&(node, _)) = of_clients.min_by_key(|&&(node, _)| (worth(node).blamed, worth(node), node)) {
        return BTreeMap::from([(node, "{} did not receive the client's data".to_owned())]);
    }
    let of_others =
        waiting.iter().filter(|(_, late)| late.len() > 1 && late.iter().all(|&node| at_rest(node)));
    of_others
        .map(|&(node, _)| (node, "{} did not receive the data that other nodes sent".to_owned()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn due(nodes: &[(u32, u32)]) -> Vec<Due> {
        nodes.iter().map(|&(node, slice)| Due { node: NodeId(node), slice, rested_ms: 2000 }).collect()
    }

    /// Evidence that a node waits to receive from some nodes and to send to others, each with the slice that
    /// is due.
    fn waiting(node: u32, receive: &[(u32, u32)], send: &[(u32, u32)]) -> Evidence {
        Evidence::Waiting { node: NodeId(node), receive: due(receive), send: due(send) }
    }

    fn culprits(evidence: &[Evidence]) -> Vec<u32> {
        culprits_after(evidence, &[])
    }

    fn culprits_after(evidence: &[Evidence], blamed: &[u32]) -> Vec<u32> {
        culprits_beside(evidence, blamed, &[])
    }

    fn culprits_beside(evidence: &[Evidence], blamed: &[u32], limited: &[u32]) -> Vec<u32> {
        let limited = limited.iter().copied().map(NodeId).collect();
        let worth = |node: NodeId| Worth {
            standing: match node.0 {
                0..50 => Standing::Helper,
                50..100 => Standing::Requestor,
                _ => Standing::Client,
            },
            blamed: blamed.iter().filter(|&&other| other == node.0).count() as u32,
        };
        let verdict = judge(evidence, worth, Rules { in_rounds: false, patience_ms: 1500 }, &limited)
            .unwrap_or_default();
        verdict.culprits.into_iter().map(|culprit| culprit.node.0).collect()
    }

    #[test]
    fn the_end_of_a_chain_of_waiting_is_to_blame() {
        // Chain 1 → 2 → 3 → 4 → 100. Node 2 is stopped: 1 cannot send to it, and 3 receives nothing.
        let chain = [
            waiting(100, &[(4, 7)], &[]),
            waiting(4, &[(3, 7)], &[]),
            waiting(3, &[(2, 7)], &[]),
            waiting(1, &[], &[(2, 9)]),
        ];
        assert_eq!(culprits(&chain), [2]);
    }

    #[test]
    fn a_broken_link_is_distinguished_from_a_hanging_node() {
        let links = |evidence: &[Evidence]| {
            let rules = Rules { in_rounds: false, patience_ms: 1500 };
            let links = super::waiting::broken_links(evidence, rules);
            links.into_iter().map(|(a, b)| (a.0, b.0)).collect::<Vec<_>>()
        };
        // Chain 1 → 2 → 3 → 100. Nothing passes from 2 to 3, and both report it.
        let beside = [waiting(100, &[(3, 7)], &[]), waiting(3, &[(2, 7)], &[]), waiting(1, &[], &[(2, 9)])];
        assert_eq!(links(&[&beside[..], &[waiting(2, &[], &[(3, 7)])]].concat()), [(2, 3)]);
        // Node 2 has sent everything, but nothing arrives.
        assert_eq!(links(&[&beside[..], &[Evidence::AtRest { node: NodeId(2) }]].concat()), [(2, 3)]);
        // Node 2 reports nothing, so the node itself may be at fault.
        assert_eq!(links(&beside), []);
        let closed =
            |node, peer| Evidence::Closed { node: NodeId(node), peer: NodeId(peer), why: "reset".into() };
        assert_eq!(links(&[closed(3, 2)]), []);
        assert_eq!(links(&[closed(3, 2), closed(2, 3)]), [(2, 3)]);
    }

    #[test]
    fn a_slow_client_is_not_to_blame() {
        assert_eq!(culprits(&[waiting(4, &[], &[(100, 3)]), waiting(3, &[], &[(4, 5)])]), [0; 0]);
    }

    /// The connection to a client broke, and data that the client had already sent was lost.
    #[test]
    fn data_lost_after_a_client_sent_it_costs_the_receiver_its_place() {
        let lost = [waiting(60, &[(100, 3)], &[]), Evidence::AtRest { node: NodeId(100) }];
        assert_eq!(culprits(&lost), [60]);
        assert_eq!(culprits_beside(&lost, &[], &[60]), [0; 0]);
        // If two receivers wait for the client, they are blamed one at a time, because the client's own link
        // may be at fault instead.
        let both = [&lost[..], &[waiting(61, &[(100, 3)], &[])]].concat();
        assert_eq!(culprits(&both), [60]);
        assert_eq!(culprits_after(&both, &[60]), [61]);
        // A client that still has slices to send may be as slow as it likes.
        assert_eq!(culprits(&[waiting(60, &[(100, 3)], &[]), waiting(100, &[], &[])]), [0; 0]);
        // A single idle helper is blamed: perhaps it did not send the missing slice.
        assert_eq!(culprits(&[waiting(60, &[(5, 3)], &[]), Evidence::AtRest { node: NodeId(5) }]), [5]);
        // If several helpers are idle, the node that waits for all of them is blamed: its own link is
        // probably slow.
        let [five, six] = [5, 6].map(|node| Evidence::AtRest { node: NodeId(node) });
        assert_eq!(culprits(&[waiting(60, &[(5, 3), (6, 4)], &[]), five, six]), [60]);
    }

    #[test]
    fn when_two_nodes_wait_for_each_other_the_helper_is_dropped() {
        // Nothing passes between node 5 and the client; node 4 is blocked because 5 is.
        let cut = [waiting(100, &[(5, 2)], &[]), waiting(5, &[], &[(100, 4)]), waiting(4, &[], &[(5, 6)])];
        assert_eq!(culprits(&cut), [5]);
        assert_eq!(culprits(&[waiting(60, &[(5, 2)], &[]), waiting(5, &[], &[(60, 2)])]), [5]);
        let cut = [waiting(6, &[(5, 1)], &[]), waiting(5, &[], &[(6, 1)]), waiting(100, &[(6, 1)], &[])];
        assert_eq!(culprits(&cut), [5]);
    }

    /// Two lanes pass through the same nodes in opposite directions, so all nodes wait for each other. The
    /// slice numbers show which node was first to stop.
    #[test]
    fn in_a_cycle_the_node_that_owes_the_earliest_slice_is_to_blame() {
        // Node 2 owes slice 4 to node 3. So 3 cannot start slice 9, for which 1 waits, and 1 cannot start
        // slice 12, for which 2 waits.
        let circle = [
            waiting(3, &[(2, 4)], &[]),
            waiting(1, &[(3, 9)], &[]),
            waiting(2, &[(1, 12)], &[]),
            waiting(100, &[(1, 9), (3, 5)], &[]),
        ];
        assert_eq!(culprits(&circle), [2]);
        assert_eq!(culprits_after(&circle, &[2]), [2]);
    }

    #[test]
    fn in_a_cycle_over_one_slice_each_node_is_tried_in_turn() {
        let circle = [
            waiting(1, &[(2, 0)], &[]),
            waiting(2, &[(3, 0)], &[]),
            waiting(3, &[(1, 0)], &[]),
            waiting(100, &[(1, 0), (2, 0)], &[]),
        ];
        assert_eq!(culprits(&circle), [1]);
        assert_eq!(culprits_after(&circle, &[1]), [2]);
        assert_eq!(culprits_after(&circle, &[1, 2, 3, 1]), [2]);
    }

    /// Node 4 complains about 5, which sends to 60 as fast as 60 accepts data.
    #[test]
    fn a_slow_node_names_the_node_that_slows_it() {
        let fresh = |node, slice| vec![Due { node: NodeId(node), slice, rested_ms: 300 }];
        let slow = [
            waiting(4, &[], &[(5, 2)]),
            Evidence::Waiting { node: NodeId(5), receive: vec![], send: fresh(60, 1) },
            Evidence::Waiting { node: NodeId(60), receive: fresh(5, 0), send: vec![] },
        ];
        assert_eq!(culprits(&slow), [5]);
        assert_eq!(culprits_after(&slow, &[5]), [60]);
        // No node has waited for too long, and a short wait alone accuses nobody.
        assert_eq!(culprits(&slow[1..]), [0; 0]);
    }

    #[test]
    fn a_node_that_its_caps_hold_back_is_not_to_blame() {
        let slow = [waiting(4, &[], &[(5, 2)]), waiting(60, &[(5, 0)], &[]), waiting(5, &[], &[(60, 1)])];
        assert_eq!(culprits_beside(&slow, &[], &[5]), [0; 0]);
        assert_eq!(culprits_beside(&slow, &[], &[60]), [0; 0]);
        assert_eq!(culprits_beside(&slow, &[], &[7]), [5]);
    }

    /// Nothing passes between a requestor and any of its senders.
    #[test]
    fn a_node_with_several_dead_edges_is_to_blame_unless_it_was_before() {
        let star = [
            waiting(1, &[], &[(60, 0)]),
            waiting(2, &[], &[(60, 0)]),
            waiting(60, &[(1, 0), (2, 0), (3, 0)], &[]),
        ];
        assert_eq!(culprits(&star), [3, 60]);
        assert_eq!(culprits_after(&star, &[60]), [1, 2, 3]);
    }

    #[test]
    fn a_broken_connection_costs_the_end_that_is_easier_to_replace() {
        let closed =
            |node, peer| Evidence::Closed { node: NodeId(node), peer: NodeId(peer), why: "reset".into() };
        assert_eq!(culprits(&[closed(4, 60)]), [4]);
        assert_eq!(culprits(&[closed(60, 4)]), [4]);
        assert_eq!(culprits(&[closed(3, 100)]), [3]);
        assert_eq!(culprits(&[closed(3, 4), closed(4, 3)]), [3]);
        // Node 4 is dead: both neighbours report it, and 4 itself reports nothing.
        assert_eq!(culprits(&[closed(3, 4), closed(5, 4)]), [4]);
    }

    #[test]
    fn reports_of_a_node_about_itself_outweigh_hearsay() {
        let closed = Evidence::Closed { node: NodeId(2), peer: NodeId(3), why: "reset".into() };
        let full = Evidence::Failed { node: NodeId(2), why: "full".into() };
        assert_eq!(culprits(&[closed.clone(), full]), [2]);
        assert_eq!(culprits(&[closed]), [3]);
    }
}
