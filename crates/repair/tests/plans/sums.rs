//! A simple model of chains and trees: every link carries one sum for each output to which the sender or a
//! node upstream of it adds.

use std::collections::{BTreeMap, BTreeSet};

use codes::BlockIndex;
use repair::{NodeId, Scheme};

use crate::planner_input::PlannerInput;

/// The outputs that each node adds to.
type Fed = BTreeMap<NodeId, BTreeSet<usize>>;

/// The number of streams in a plan of this scheme if only sums travel; `None` for other schemes.
pub fn streams(input: &PlannerInput, scheme: Scheme) -> Option<u64> {
    if !matches!(scheme, Scheme::Pipelined | Scheme::PipeB | Scheme::PipeS | Scheme::Ppr | Scheme::CrrR) {
        return None;
    }
    let account = Account::new(input);
    if account.goals.is_empty() {
        return Some(account.direct);
    }
    let moves = match scheme {
        Scheme::Ppr => account.tree(),
        Scheme::CrrR => account.halving(),
        _ => account.chain(),
    };
    Some(account.direct + account.sums(&moves))
}

struct Account {
    /// The number of streams for outputs with all sources on one node.
    direct: u64,
    fed: Fed,
    /// The nodes of `fed`, in the order of the recipe's sources.
    helpers: Vec<NodeId>,
    /// Outputs with sources on several nodes, each with its requestor.
    goals: BTreeMap<usize, NodeId>,
}

impl Account {
    fn new(input: &PlannerInput) -> Self {
        let wanted: Vec<BlockIndex> = input.request.wanted.iter().map(|wanted| wanted.block).collect();
        let mut available: Vec<(bool, BlockIndex)> = input
            .stripe
            .held()
            .map(|(block, holder)| (input.request.wanted.iter().all(|w| w.requestor != holder), block))
            .collect();
        available.sort_unstable();
        let available: Vec<BlockIndex> = available.into_iter().map(|(_, block)| block).collect();
        let mut recipe = input.stripe.code.repair(&wanted, &available).expect("it was planned");
        if let Some(subs) = &input.request.sub_blocks {
            recipe = recipe.only(|output| subs.contains(&output.sub));
        }
        let holder = |block: BlockIndex| input.stripe.block(block).holder.expect("a source is held");
        let mut account = Self { direct: 0, fed: Fed::new(), helpers: Vec::new(), goals: BTreeMap::new() };
        for (number, output) in recipe.outputs().iter().enumerate() {
            let wanted = input.request.wanted.iter().find(|wanted| wanted.block == output.block);
            let requestor = wanted.expect("an output of a wanted block").requestor;
            let sources = recipe.row(number).iter().map(|&(s, _)| recipe.sources()[s as usize].block);
            let nodes: BTreeSet<NodeId> = sources.map(holder).collect();
            if nodes.len() == 1 {
                account.direct += u64::from(!nodes.contains(&requestor));
                continue;
            }
            account.goals.insert(number, requestor);
            for &node in &nodes {
                account.fed.entry(node).or_default().insert(number);
            }
        }
        for source in recipe.sources() {
            let node = holder(source.block);
            if account.fed.contains_key(&node) && !account.helpers.contains(&node) {
                account.helpers.push(node);
            }
        }
        account
    }

    fn end(&self) -> Option<NodeId> {
        let first = *self.goals.values().next()?;
        self.goals.values().all(|&requestor| requestor == first).then_some(first)
    }

    fn chain(&self) -> Vec<(NodeId, NodeId)> {
        let mut nodes: Vec<NodeId> =
            self.helpers.iter().copied().filter(|&node| Some(node) != self.end()).collect();
        nodes.sort_by_key(|node| (self.fed[node].len(), self.goals.values().any(|goal| goal == node)));
        nodes.extend(self.end());
        nodes.windows(2).map(|pair| (pair[0], pair[1])).collect()
    }

    fn tree(&self) -> Vec<(NodeId, NodeId)> {
        let root = *self.goals.values().next().expect("an output");
        let mut list: Vec<NodeId> = self.helpers.iter().copied().filter(|&node| node != root).collect();
        list.push(root);
        let mut moves = Vec::new();
        while list.len() > 1 {
            moves.extend(list.chunks_exact(2).map(|pair| (pair[0], pair[1])));
            list = list.chunks(2).map(|pair| pair[pair.len() - 1]).collect();
        }
        moves
    }

    fn halving(&self) -> Vec<(NodeId, NodeId)> {
        let first = self.end().filter(|end| self.helpers.contains(end));
        let others = self.helpers.iter().copied().filter(|&node| Some(node) != first);
        let ranks: Vec<NodeId> = first.into_iter().chain(others).collect();
        let mut moves = Vec::new();
        for bit in (0..ranks.len().next_power_of_two().trailing_zeros()).map(|round| 1 << round) {
            let leaving = (0..ranks.len()).filter(|id| id % (2 * bit) == bit);
            moves.extend(leaving.map(|id| (ranks[id], ranks[id ^ bit])));
        }
        let end = self.end().filter(|&end| end != ranks[0]);
        moves.into_iter().chain(end.map(|end| (ranks[0], end))).collect()
    }

    /// The number of streams for these moves, plus the streams from the last node to the requestors.
    fn sums(&self, moves: &[(NodeId, NodeId)]) -> u64 {
        let mut held = self.fed.clone();
        let mut streams = 0;
        for (from, to) in moves {
            let leaving = held.remove(from).unwrap_or_default();
            streams += leaving.len() as u64;
            held.entry(*to).or_default().extend(leaving);
        }
        let (root, _) = held.into_iter().find(|(_, sums)| !sums.is_empty()).expect("where all ended");
        streams + self.goals.values().filter(|&&goal| goal != root).count() as u64
    }
}
