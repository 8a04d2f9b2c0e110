//! Who is to blame when a plan breaks.
//!
//! One broken node is seen by many: its neighbours find their edges closed, and everybody downstream
//! waits. Waiting is followed to its end ([`waiting`]): a node that others wait for, and that itself waits for
//! nothing that would excuse it, is the culprit, whether it is stopped, slow, or cut off. What a node says of itself (a bad block, a full
//! disk) and the loss of its control connection outweigh what others say of it. Clients are never blamed
//! for being slow: a person may read a file as slowly as they like.
//!
//! Where two nodes blame each other, only what is between them is broken, and going without either of them
//! will do. Then, and where a node is blamed by hearsay at all, the one that is easier to go without is
//! dropped: rather a helper than a requestor, which would have to be delivered to from the start, and
//! rather that than a client, which nobody can replace. The link is remembered: if too few nodes are left without those that
//! were dropped, all of them are used again, and plans go around the links ([`links`](super::links)).

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use super::waiting::{self, Rules};
use super::{BlockProblem, Due, Report};
use crate::{BlockId, NodeId};

/// Something that speaks against a node or a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Evidence {
    /// The coordinator lost the node.
    Lost { node: NodeId },
    /// A requestor makes no progress and says nothing.
    Silent { node: NodeId },
    /// A node says of itself that it cannot go on.
    Failed { node: NodeId, why: String },
    /// A node says of one of its blocks that it is bad.
    BadBlock { block: BlockId, problem: BlockProblem },
    /// A node received what its neighbour should not have sent.
    Wrong { from: NodeId, why: String },
    /// A node found the edge to its neighbour broken.
    Closed { node: NodeId, peer: NodeId, why: String },
    /// Nothing of the plan moves at a node any more.
    AtRest { node: NodeId },
    /// A node waits for others.
    Waiting { node: NodeId, receive: Vec<Due>, send: Vec<Due> },
}

impl Evidence {
    /// Whether it is reason enough to look for a culprit.
    pub(super) fn complains(&self, rules: Rules) -> bool {
        match self {
            Self::Waiting { receive, send, .. } => {
                receive.iter().chain(send).any(|due| due.rested_ms >= rules.patience_ms)
            }
            Self::AtRest { .. } => false,
            _ => true,
        }
    }

    /// The node that said it, and is there to say so.
    pub(super) fn speaker(&self) -> Option<NodeId> {
        match self {
            Self::Closed { node, .. } | Self::AtRest { node } | Self::Waiting { node, .. } => Some(*node),
            _ => None,
        }
    }

    /// The evidence in a report, and whether the reports of others should be gathered before judging.
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

/// Who is dropped from the next plan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Verdict {
    pub(super) culprits: Vec<Culprit>,
    pub(super) bad_blocks: Vec<(BlockId, BlockProblem)>,
}

/// A node, and what is said of it; `{}` stands for its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Culprit {
    pub(super) node: NodeId,
    pub(super) why: String,
    /// Whether only others say so.
    pub(super) hearsay: bool,
}

/// What a node is to the plan: the later, the harder to go without.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Standing {
    Helper,
    Requestor,
    Client,
}

/// How hard it is to go without a node. Of equals, those that were blamed before and did not turn out to
/// be the trouble come last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Worth {
    pub(super) standing: Standing,
    pub(super) blamed: u32,
}

/// The verdict, or `None` if everybody merely waits for a client, or for nodes in `limited`, which their own caps hold
/// back.
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
            Evidence::Lost { node } => blame(*node, "{} is gone".into(), false),
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

/// Judges by what nodes say of each other only.
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

/// For each broken edge, the end that is easier to go without: it is enough if one of them goes. Of equals
/// it is the one that did not complain, since the dead do not, or the first if both do.
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

/// Nodes that wait for what was sent: the others are at rest, so that what is missing is lost on its way, or comes more slowly
/// than they sent it. A client is not at fault and cannot be replaced; another edge to it may do. Of one helper at rest it
/// may be either end's fault; that several have the same, is not likely.
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
        return BTreeMap::from([(node, "{} has not got what the client sent".to_owned())]);
    }
    let of_others =
        waiting.iter().filter(|(_, late)| late.len() > 1 && late.iter().all(|&node| at_rest(node)));
    of_others.map(|&(node, _)| (node, "{} has not got what others sent".to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn due(nodes: &[(u32, u32)]) -> Vec<Due> {
        nodes.iter().map(|&(node, slice)| Due { node: NodeId(node), slice, rested_ms: 2000 }).collect()
    }

    /// A node waits for slices of some others, and for some to take slices.
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
        // 1 → 2 → 3 → 4 → 100, and 2 is stopped: 1 cannot send to it, 3 gets nothing.
        let chain = [
            waiting(100, &[(4, 7)], &[]),
            waiting(4, &[(3, 7)], &[]),
            waiting(3, &[(2, 7)], &[]),
            waiting(1, &[], &[(2, 9)]),
        ];
        assert_eq!(culprits(&chain), [2]);
    }

    #[test]
    fn a_broken_link_is_told_from_a_node_that_hangs() {
        let links = |evidence: &[Evidence]| {
            let rules = Rules { in_rounds: false, patience_ms: 1500 };
            let links = super::waiting::broken_links(evidence, rules);
            links.into_iter().map(|(a, b)| (a.0, b.0)).collect::<Vec<_>>()
        };
        // 1 → 2 → 3 → 100, and nothing passes from 2 to 3, which both say.
        let beside = [waiting(100, &[(3, 7)], &[]), waiting(3, &[(2, 7)], &[]), waiting(1, &[], &[(2, 9)])];
        assert_eq!(links(&[&beside[..], &[waiting(2, &[], &[(3, 7)])]].concat()), [(2, 3)]);
        // It has sent everything, and nothing of it arrives.
        assert_eq!(links(&[&beside[..], &[Evidence::AtRest { node: NodeId(2) }]].concat()), [(2, 3)]);
        // It says nothing: it may be the node.
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

    /// The connection to a client was lost with all that the client had sent on it.
    #[test]
    fn what_a_client_has_sent_and_did_not_arrive_is_not_waited_for() {
        let lost = [waiting(60, &[(100, 3)], &[]), Evidence::AtRest { node: NodeId(100) }];
        assert_eq!(culprits(&lost), [60]);
        assert_eq!(culprits_beside(&lost, &[], &[60]), [0; 0]);
        // Of several any may be it, or none: the client's own link.
        let both = [&lost[..], &[waiting(61, &[(100, 3)], &[])]].concat();
        assert_eq!(culprits(&both), [60]);
        assert_eq!(culprits_after(&both, &[60]), [61]);
        // A client that is not done may be as slow as it likes.
        assert_eq!(culprits(&[waiting(60, &[(100, 3)], &[]), waiting(100, &[], &[])]), [0; 0]);
        // A helper at rest did not send what is missed.
        assert_eq!(culprits(&[waiting(60, &[(5, 3)], &[]), Evidence::AtRest { node: NodeId(5) }]), [5]);
        // Unless several are: whoever waits for all of them has a slow link of its own.
        let [five, six] = [5, 6].map(|node| Evidence::AtRest { node: NodeId(node) });
        assert_eq!(culprits(&[waiting(60, &[(5, 3), (6, 4)], &[]), five, six]), [60]);
    }

    #[test]
    fn of_two_that_wait_for_each_other_the_helper_is_dropped() {
        // Nothing passes between 5 and the client any more; 4 cannot go on because 5 cannot.
        let cut = [waiting(100, &[(5, 2)], &[]), waiting(5, &[], &[(100, 4)]), waiting(4, &[], &[(5, 6)])];
        assert_eq!(culprits(&cut), [5]);
        assert_eq!(culprits(&[waiting(60, &[(5, 2)], &[]), waiting(5, &[], &[(60, 2)])]), [5]);
        let cut = [waiting(6, &[(5, 1)], &[]), waiting(5, &[], &[(6, 1)]), waiting(100, &[(6, 1)], &[])];
        assert_eq!(culprits(&cut), [5]);
    }

    /// In two lanes that go through the same nodes in turn, everybody waits for everybody. The slices tell who began.
    #[test]
    fn in_a_circle_whoever_owes_the_earliest_slice_is_to_blame() {
        // 2 owes slice 4 to 3. So 3 cannot open slice 9, which 1 waits for; and 1 not slice 12, which 2 waits for.
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
    fn in_a_circle_of_one_slice_the_next_one_is_tried_if_it_was_not_the_first() {
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

    /// 4 complains of 5, which sends to 60 as fast as 60 takes it.
    #[test]
    fn a_slow_node_names_what_slows_it() {
        let fresh = |node, slice| vec![Due { node: NodeId(node), slice, rested_ms: 300 }];
        let slow = [
            waiting(4, &[], &[(5, 2)]),
            Evidence::Waiting { node: NodeId(5), receive: vec![], send: fresh(60, 1) },
            Evidence::Waiting { node: NodeId(60), receive: fresh(5, 0), send: vec![] },
        ];
        assert_eq!(culprits(&slow), [5]);
        assert_eq!(culprits_after(&slow, &[5]), [60]);
        // Nobody has waited for too long: that somebody waits at all is no reason.
        assert_eq!(culprits(&slow[1..]), [0; 0]);
    }

    #[test]
    fn a_node_that_its_caps_hold_back_is_not_to_blame() {
        let slow = [waiting(4, &[], &[(5, 2)]), waiting(60, &[(5, 0)], &[]), waiting(5, &[], &[(60, 1)])];
        assert_eq!(culprits_beside(&slow, &[], &[5]), [0; 0]);
        assert_eq!(culprits_beside(&slow, &[], &[60]), [0; 0]);
        assert_eq!(culprits_beside(&slow, &[], &[7]), [5]);
    }

    /// Nothing passes between a requestor and any of those that would send to it.
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
    fn of_a_broken_connection_the_end_that_is_easier_to_go_without_is_dropped() {
        let closed =
            |node, peer| Evidence::Closed { node: NodeId(node), peer: NodeId(peer), why: "reset".into() };
        assert_eq!(culprits(&[closed(4, 60)]), [4]);
        assert_eq!(culprits(&[closed(60, 4)]), [4]);
        assert_eq!(culprits(&[closed(3, 100)]), [3]);
        assert_eq!(culprits(&[closed(3, 4), closed(4, 3)]), [3]);
        // 4 is dead: both its neighbours say so, and it says nothing.
        assert_eq!(culprits(&[closed(3, 4), closed(5, 4)]), [4]);
    }

    #[test]
    fn what_a_node_says_of_itself_outweighs_hearsay() {
        let closed = Evidence::Closed { node: NodeId(2), peer: NodeId(3), why: "reset".into() };
        let full = Evidence::Failed { node: NodeId(2), why: "full".into() };
        assert_eq!(culprits(&[closed.clone(), full]), [2]);
        assert_eq!(culprits(&[closed]), [3]);
    }
}
