//! Who is to blame when a plan breaks.
//!
//! One broken node is seen by many: its neighbours find their edges closed, and everybody downstream
//! waits. Waiting is followed to its end: a node that others wait for, and that itself waits for nobody, is
//! the culprit, whether it is stopped, slow, or cut off. What a node says of itself (a bad block, a full
//! disk) and the loss of its control connection outweigh what others say of it. Clients are never blamed
//! for being slow: a person may read a file as slowly as they like.

use std::collections::{BTreeMap, BTreeSet};

use super::{BlockProblem, Report};
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
    Closed { peer: NodeId, why: String },
    /// A node waits for others.
    Waiting { node: NodeId, on: Vec<NodeId> },
}

impl Evidence {
    /// The evidence in a report, and whether the reports of others should be gathered before judging.
    pub(super) fn from_report(node: NodeId, report: Report) -> Option<(Self, bool)> {
        match report {
            Report::Waiting { on } => Some((Self::Waiting { node, on }, true)),
            Report::Closed { peer, detail } => Some((Self::Closed { peer, why: detail }, true)),
            Report::BadFrame { from, detail } => Some((Self::Wrong { from, why: detail }, false)),
            Report::BadBlock { block, problem } => Some((Self::BadBlock { block, problem }, false)),
            Report::SinkFailed { block, problem } => Some((
                Self::Failed { node, why: format!("{{}} cannot store block {block}: {problem}") },
                false,
            )),
            Report::Refused { detail } => {
                Some((Self::Failed { node, why: format!("{{}} refuses its task: {detail}") }, false))
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
}

/// The verdict, or `None` if everybody merely waits for a client.
pub(super) fn judge(evidence: &[Evidence], is_client: impl Fn(NodeId) -> bool) -> Option<Verdict> {
    let mut verdict = Verdict::default();
    let mut named = BTreeSet::new();
    let mut blame = |node: NodeId, why: String| {
        if named.insert(node) {
            verdict.culprits.push(Culprit { node, why });
        }
    };
    let mut bad_blocks: Vec<(BlockId, BlockProblem)> = Vec::new();
    for item in evidence {
        match item {
            Evidence::Lost { node } => blame(*node, "{} is gone".into()),
            Evidence::Failed { node, why } => blame(*node, why.clone()),
            Evidence::Wrong { from, why } => blame(*from, format!("{{}} sent a bad slice ({why})")),
            Evidence::BadBlock { block, problem } if bad_blocks.iter().all(|(known, _)| known != block) => {
                bad_blocks.push((block.clone(), problem.clone()));
            }
            _ => {}
        }
    }
    if named.is_empty() && bad_blocks.is_empty() {
        return judge_hearsay(evidence, is_client);
    }
    verdict.bad_blocks = bad_blocks;
    Some(verdict)
}

/// Judges by what nodes say of each other only.
fn judge_hearsay(evidence: &[Evidence], is_client: impl Fn(NodeId) -> bool) -> Option<Verdict> {
    let mut culprits: BTreeMap<NodeId, String> = BTreeMap::new();
    for item in evidence {
        if let Evidence::Closed { peer, why } = item {
            culprits.entry(*peer).or_insert_with(|| format!("{{}} broke a connection ({why})"));
        }
    }
    if culprits.is_empty() {
        culprits =
            ends_of_waiting(evidence).into_iter().map(|node| (node, "{} stalled".to_owned())).collect();
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
        .filter(|&(node, _)| !is_client(node))
        .map(|(node, why)| Culprit { node, why })
        .collect();
    if culprits.is_empty() { None } else { Some(Verdict { culprits, bad_blocks: Vec::new() }) }
}

/// Nodes that others wait for and that wait for nobody.
fn ends_of_waiting(evidence: &[Evidence]) -> BTreeSet<NodeId> {
    let mut waiting = BTreeSet::new();
    let mut awaited = BTreeSet::new();
    for item in evidence {
        if let Evidence::Waiting { node, on } = item {
            waiting.insert(*node);
            awaited.extend(on.iter().copied());
        }
    }
    awaited.difference(&waiting).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(node: u32, on: &[u32]) -> Evidence {
        Evidence::Waiting { node: NodeId(node), on: on.iter().map(|&n| NodeId(n)).collect() }
    }

    fn culprits(evidence: &[Evidence]) -> Vec<u32> {
        let verdict = judge(evidence, |node| node.0 >= 100).unwrap_or_default();
        verdict.culprits.into_iter().map(|culprit| culprit.node.0).collect()
    }

    #[test]
    fn the_end_of_a_chain_of_waiting_is_to_blame() {
        // 1 → 2 → 3 → 4 → 100, and 2 is stopped: 1 cannot send to it, 3 gets nothing.
        assert_eq!(
            culprits(&[waiting(100, &[4]), waiting(4, &[3]), waiting(3, &[2]), waiting(1, &[2])]),
            [2]
        );
    }

    #[test]
    fn a_slow_client_is_not_to_blame() {
        assert_eq!(culprits(&[waiting(4, &[100]), waiting(3, &[4])]), [0; 0]);
    }

    #[test]
    fn what_a_node_says_of_itself_outweighs_hearsay() {
        let closed = Evidence::Closed { peer: NodeId(3), why: "reset".into() };
        let full = Evidence::Failed { node: NodeId(2), why: "full".into() };
        assert_eq!(culprits(&[closed.clone(), full]), [2]);
        assert_eq!(culprits(&[closed]), [3]);
    }
}
