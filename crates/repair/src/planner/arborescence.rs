//! Cheapest spanning in-trees: the algorithm of Chu, Liu and Edmonds on a dense matrix of costs.

/// Returns for each node the node to which it sends in the cheapest in-tree to `root`. The root's entry is
/// the root itself. `costs[from][to]` is the cost of a link.
///
/// Every node takes its cheapest link. If some of these links form cycles, each cycle is contracted into one
/// node: to leave it through one of its nodes costs that link, minus the link of the cycle that it replaces.
pub(super) fn in_tree(costs: &[Vec<f64>], root: usize) -> Vec<usize> {
    let cheapest = |from: usize| {
        let others = (0..costs.len()).filter(|&to| to != from);
        let cheapest = others.min_by(|&a, &b| costs[from][a].total_cmp(&costs[from][b]));
        cheapest.filter(|_| from != root).unwrap_or(root)
    };
    let mut next: Vec<usize> = (0..costs.len()).map(cheapest).collect();
    let Some(contracted) = Contracted::new(costs, &next, root) else { return next };
    let tree = in_tree(&contracted.costs, contracted.part[root]);
    for (part, &to) in tree.iter().enumerate().filter(|&(part, _)| part != contracted.part[root]) {
        let link = contracted.links[part][to];
        next[link.0] = link.1;
    }
    next
}

/// The nodes after each cycle has been contracted into one part; all other nodes are parts of their own.
struct Contracted {
    /// The part of each node.
    part: Vec<usize>,
    costs: Vec<Vec<f64>>,
    /// The cheapest link between each two parts.
    links: Vec<Vec<(usize, usize)>>,
}

impl Contracted {
    /// Returns `None` if there is no cycle.
    fn new(costs: &[Vec<f64>], next: &[usize], root: usize) -> Option<Self> {
        let part = parts(next, root);
        let parts = part.iter().max()? + 1;
        if parts == next.len() {
            return None;
        }
        let mut contracted = Self {
            costs: vec![vec![f64::INFINITY; parts]; parts],
            links: vec![vec![(root, root); parts]; parts],
            part,
        };
        for (from, row) in costs.iter().enumerate() {
            let replaced = if contracted.is_on_cycle(next, from, root) { row[next[from]] } else { 0.0 };
            for (to, cost) in row.iter().enumerate() {
                contracted.add((from, to), cost - replaced);
            }
        }
        Some(contracted)
    }

    fn is_on_cycle(&self, next: &[usize], node: usize, root: usize) -> bool {
        node != root && self.part[node] == self.part[next[node]]
    }

    fn add(&mut self, (from, to): (usize, usize), cost: f64) {
        let (sender, receiver) = (self.part[from], self.part[to]);
        if sender != receiver && cost < self.costs[sender][receiver] {
            self.costs[sender][receiver] = cost;
            self.links[sender][receiver] = (from, to);
        }
    }
}

/// Numbers the parts: the nodes of a cycle get the same number.
fn parts(next: &[usize], root: usize) -> Vec<usize> {
    let mut walk_of: Vec<Option<usize>> = vec![None; next.len()];
    let mut cycle_of: Vec<Option<usize>> = vec![None; next.len()];
    for walk in 0..next.len() {
        let mut at = walk;
        while at != root && walk_of[at].is_none() {
            walk_of[at] = Some(walk);
            at = next[at];
        }
        // The walk ended at one of its own nodes, so it has found a cycle.
        while at != root && walk_of[at] == Some(walk) && cycle_of[at].is_none() {
            cycle_of[at] = Some(walk);
            at = next[at];
        }
    }
    let mut number_of_cycle: Vec<Option<usize>> = vec![None; next.len()];
    let mut numbers = 0..;
    let mut number = || numbers.next().expect("numbers do not end");
    let part = |cycle: &Option<usize>| match cycle {
        Some(cycle) => *number_of_cycle[*cycle].get_or_insert_with(&mut number),
        None => number(),
    };
    cycle_of.iter().map(part).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Reference: the least cost over all ways to choose a link for each node.
    fn least(costs: &[Vec<f64>], next: &mut Vec<usize>) -> f64 {
        let from = next.len();
        if from == costs.len() {
            return cost(costs, next).unwrap_or(f64::INFINITY);
        }
        let mut least_cost = f64::INFINITY;
        for to in 0..if from == 0 { 1 } else { costs.len() } {
            next.push(to);
            least_cost = least_cost.min(least(costs, next));
            next.pop();
        }
        least_cost
    }

    /// The cost of the links to root 0; `None` if they are no tree.
    fn cost(costs: &[Vec<f64>], next: &[usize]) -> Option<f64> {
        let reaches = |node: usize| (0..next.len()).fold(node, |at, _| next[at]) == 0;
        let links = || (1..next.len()).map(|from| costs[from][next[from]]);
        (0..next.len()).all(reaches).then(|| links().sum())
    }

    proptest! {
        #[test]
        fn no_tree_is_cheaper(costs in prop::collection::vec(prop::collection::vec(0u8..20, 5), 5)) {
            let costs: Vec<Vec<f64>> =
                costs.into_iter().map(|row| row.into_iter().map(f64::from).collect()).collect();
            let found = in_tree(&costs, 0);
            prop_assert_eq!(cost(&costs, &found), Some(least(&costs, &mut Vec::new())));
        }
    }
}
