//! Whether the loss of one DataNode could cost data of a stripe, because it has the only replicas of several blocks.
//!
//! Replicas on silent DataNodes do not count: HDFS lists them for ten minutes after a DataNode has died.

use std::collections::BTreeSet;

use crate::NodeIndex;

/// Returns the number of blocks that have no replica on a DataNode that answers.
pub(crate) fn lost(replicas: &[Vec<NodeIndex>], silent: &BTreeSet<NodeIndex>) -> usize {
    replicas.iter().filter(|nodes| nodes.iter().all(|node| silent.contains(node))).count()
}

/// Whether some DataNode has the only replicas of several blocks, and of so many that the stripe could not be rebuilt without
/// them. `tolerated` is the number of blocks that it may lose.
pub(crate) fn is_exposed(
    replicas: &[Vec<NodeIndex>],
    tolerated: usize,
    silent: &BTreeSet<NodeIndex>,
) -> bool {
    let crowd = crowd(replicas, silent);
    crowd > 1 && lost(replicas, silent) + crowd > tolerated
}

/// Returns the greatest number of blocks whose only replica is on the same DataNode.
fn crowd(replicas: &[Vec<NodeIndex>], silent: &BTreeSet<NodeIndex>) -> usize {
    let only = |nodes: &Vec<NodeIndex>| {
        let mut answering = nodes.iter().filter(|node| !silent.contains(node));
        answering.next().filter(|_| answering.next().is_none()).copied()
    };
    let mut nodes: Vec<NodeIndex> = replicas.iter().filter_map(only).collect();
    nodes.sort_unstable();
    nodes.chunk_by(|one, other| one == other).map(<[NodeIndex]>::len).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(numbers: &[usize]) -> Vec<NodeIndex> {
        numbers.iter().copied().map(NodeIndex).collect()
    }

    #[test]
    fn silent_datanodes_hold_nothing() {
        let replicas = [nodes(&[1]), nodes(&[1, 2]), nodes(&[3]), nodes(&[])];
        let judged = |silent: &[usize], tolerated| {
            let silent = silent.iter().copied().map(NodeIndex).collect();
            (lost(&replicas, &silent), is_exposed(&replicas, tolerated, &silent))
        };
        assert_eq!(judged(&[], 1), (1, false), "no DataNode has the only replicas of two blocks");
        assert_eq!(judged(&[2], 2), (1, true), "DataNode 1 has two blocks now, and one is lost");
        assert_eq!(judged(&[2], 3), (1, false));
        assert_eq!(judged(&[2, 3], 3), (2, true));
    }
}
