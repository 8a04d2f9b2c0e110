//! Cheapest spanning in-trees: the algorithm of Chu, Liu and Edmonds on a dense matrix of costs.

/// Returns for each node the node to which it sends in the cheapest in-tree to `root`; the root's own entry
/// has no meaning. `costs[from][to]` is the cost of a link.
///
/// Every node takes its cheapest link. If these links form a cycle, the cycle is contracted into one node:
/// to leave it through one of its nodes costs that link, minus the link of the cycle that it replaces.
pub(super) fn in_tree(costs: &[Vec<f64>], root: usize) -> Vec<usize> {
    let mut next: Vec<usize> = (0..costs.len()).map(|from| cheapest_link(costs, from, root)).collect();
    let Some(cycle) = cycle(&next, root) else { return next };
    let contracted = Contracted::new(costs, &next, cycle);
    let tree = in_tree(&contracted.costs, contracted.outer.iter().position(|&node| node == root).expect("the root is on no cycle"));
    contracted.expand(&tree, &mut next);
    next
}

fn cheapest_link(costs: &[Vec<f64>], from: usize, root: usize) -> usize {
    let others = (0..costs.len()).filter(|&to| to != from);
    match from == root {
        true => root,
        false => others.min_by(|&a, &b| costs[from][a].total_cmp(&costs[from][b])).expect("the root is another node"),
    }
}

/// The nodes of a cycle of these links, if there is one.
fn cycle(next: &[usize], root: usize) -> Option<Vec<usize>> {
    let mut seen_from: Vec<Option<usize>> = vec![None; next.len()];
    for start in 0..next.len() {
        let mut at = start;
        while at != root && seen_from[at].is_none() {
            seen_from[at] = Some(start);
            at = next[at];
        }
        if at != root && seen_from[at] == Some(start) {
            let mut nodes = vec![at];
            while next[nodes[nodes.len() - 1]] != at {
                nodes.push(next[nodes[nodes.len() - 1]]);
            }
            return Some(nodes);
        }
    }
    None
}

/// The nodes with one cycle contracted into the last node.
struct Contracted {
    cycle: Vec<usize>,
    /// The nodes outside of the cycle.
    outer: Vec<usize>,
    costs: Vec<Vec<f64>>,
    /// For each outer node, the node of the cycle that it reaches at the lowest cost.
    entry: Vec<usize>,
    /// For each outer node, the node of the cycle that reaches it at the lowest cost.
    exit: Vec<usize>,
}

impl Contracted {
    fn new(costs: &[Vec<f64>], next: &[usize], cycle: Vec<usize>) -> Self {
        let outer: Vec<usize> = (0..costs.len()).filter(|node| !cycle.contains(node)).collect();
        let least = |cost: &dyn Fn(usize) -> f64| {
            cycle.iter().copied().min_by(|&a, &b| cost(a).total_cmp(&cost(b))).expect("a cycle has nodes")
        };
        let leaving = |from: usize, to: usize| costs[from][to] - costs[from][next[from]];
        let entry: Vec<usize> = outer.iter().map(|&from| least(&|to| costs[from][to])).collect();
        let exit: Vec<usize> = outer.iter().map(|&to| least(&|from| leaving(from, to))).collect();
        let row = |(&from, &entry): (&usize, &usize)| -> Vec<f64> {
            outer.iter().map(|&to| costs[from][to]).chain([costs[from][entry]]).collect()
        };
        let mut rows: Vec<Vec<f64>> = outer.iter().zip(&entry).map(row).collect();
        rows.push(outer.iter().zip(&exit).map(|(&to, &from)| leaving(from, to)).chain([f64::INFINITY]).collect());
        Self { cycle, outer, costs: rows, entry, exit }
    }

    /// Writes the links of a tree over the contracted nodes into `next`.
    fn expand(&self, tree: &[usize], next: &mut [usize]) {
        let contracted = self.outer.len();
        for (at, &from) in self.outer.iter().enumerate() {
            next[from] = if tree[at] == contracted { self.entry[at] } else { self.outer[tree[at]] };
        }
        let to = tree[contracted];
        let from = self.exit[to];
        debug_assert!(self.cycle.contains(&from), "a cycle is left through one of its nodes");
        next[from] = self.outer[to];
    }
}
