//! Lowers the replication of a file with proven parity, and spreads its stripes over DataNodes.
//!
//! HDFS chooses the replicas that it removes. When their number has stayed the same for a while, the
//! remaining ones are moved where blocks of a stripe stand too close together.

use std::collections::BTreeMap;
use std::time::Duration;

use codes::Code;

use crate::facts::{DataNodes, Facts};
use crate::health;
use crate::survey::data_replicas;
use crate::work::{Pair, Work, pair, unfit};
use crate::{
    Action, Arrangement, Block, BlockMove, End, Exclusion, File, Layout, Next, NodeIndex, TooFewNodes,
    Waiting,
};

/// By default, replicas are settled if they have not changed for this long: at least two heartbeats of DataNodes, with
/// which HDFS removes surplus replicas. The default interval of heartbeats (`dfs.heartbeat.interval`) is 3 s.
pub const SETTLED: Duration = Duration::from_secs(10);

/// A stripe of an encoded file.
pub(crate) struct Placed {
    /// For each block, its file (whether it is parity) and its position there.
    pub(crate) blocks: Vec<(bool, usize)>,
    /// For each block, the DataNodes with a replica.
    pub(crate) replicas: Vec<Vec<NodeIndex>>,
}

impl Work {
    /// Returns the next step for a file with proven parity. `targets` are the replications of the file and of
    /// its parity.
    pub(crate) fn lower(
        &mut self,
        facts: &Facts,
        pair: Pair<'_>,
        targets: [u16; 2],
        nodes: &DataNodes,
        now_ms: u64,
    ) -> Next {
        if let Some(draft) = facts.drafts.first() {
            return Next::Act(Action::Delete(draft.path.clone()));
        }
        let layout = Layout::of_source(pair.source, &self.codec).expect("proven parity has a layout");
        let stripes = stripes(pair, &layout);
        let arrangements = self.arrange(&stripes, nodes);
        let [replication, parity_replication] = targets;
        let (source, parity) = (pair.source, &pair.parity.file);
        // Some files of a folder may still have their former replication.
        let is_lowered = facts.least_replication() <= replication && pair.replication > replication;
        if is_lowered && self.is_at_risk(&stripes, arrangements.as_deref().ok()) {
            return set_replication(source, pair.replication);
        }
        let arrangements = match arrangements {
            Ok(arrangements) => arrangements,
            Err(why) => return Next::End(End::Unfit(Exclusion::Nodes(why))),
        };
        if parity.replication < parity_replication {
            return set_replication(parity, parity_replication);
        }
        if facts.least_replication() < replication {
            return set_replication(source, replication);
        }
        if stripes.iter().any(|stripe| stripe.is_endangered(nodes)) {
            return Next::Wait(Waiting::Repair);
        }
        if source.replication > replication || parity.replication > parity_replication {
            return match unfit(facts) {
                Some(why) => Next::End(End::Unfit(why)),
                None if parity.replication > parity_replication => {
                    set_replication(parity, parity_replication)
                }
                None => set_replication(source, replication),
            };
        }
        if !self.is_settled(pair, nodes, now_ms, self.settled_ms) || !facts.is_at_rest(nodes) {
            return Next::Wait(Waiting::Settled);
        }
        match moves(facts, pair, &stripes, &arrangements, nodes) {
            moves if moves.is_empty() => Next::End(End::Encoded),
            moves => Next::Act(Action::Move(moves)),
        }
    }

    /// Returns the call that gives a file its former replication again, because HDFS refuses to move its blocks, and some
    /// DataNode has the only replicas of more of them than the code tolerates to lose.
    pub(crate) fn retreat(&self, facts: &Facts) -> Option<Action> {
        let (source, parity) = (facts.source.as_ref()?, facts.parity.as_ref()?);
        let pair = pair(source, parity);
        if facts.least_replication() >= pair.replication || !self.has_valid_parity(facts, pair.source, parity)
        {
            return None;
        }
        let layout = Layout::of_source(pair.source, &self.codec).expect("valid parity has a layout");
        let (path, replication) = (pair.source.path.clone(), pair.replication);
        let is_needed = stripes(pair, &layout).iter().any(|stripe| self.is_exposed(stripe));
        is_needed.then_some(Action::SetReplication { path, replication })
    }

    fn arrange(&self, stripes: &[Placed], nodes: &DataNodes) -> Result<Vec<Arrangement>, TooFewNodes> {
        let mut load = nodes.load.clone();
        let arrange = |stripe: &Placed| {
            let spread = nodes.cluster.spread(stripe.blocks.len(), self.tolerated);
            spread.map(|spread| spread.arrange(&stripe.replicas, &mut load))
        };
        stripes.iter().map(arrange).collect()
    }

    /// Whether the loss of the most crowded DataNode of a stripe would be too much, and the blocks cannot be moved apart
    /// first: the stripe has lost blocks, or there are too few DataNodes, and thus no arrangements.
    fn is_at_risk(&self, stripes: &[Placed], arrangements: Option<&[Arrangement]>) -> bool {
        let is_at_risk = |(at, stripe): (usize, &Placed)| {
            let is_fixed = match arrangements {
                Some(all) => stripe.lost() > 0 && all[at].is_misplaced(),
                None => stripe.crowd() > 1,
            };
            is_fixed && self.is_exposed(stripe)
        };
        stripes.iter().enumerate().any(is_at_risk)
    }

    /// Whether the loss of one DataNode could cost data.
    fn is_exposed(&self, stripe: &Placed) -> bool {
        stripe.lost() + stripe.crowd() > self.tolerated
    }
}

impl Placed {
    /// Returns the number of blocks without a replica.
    fn lost(&self) -> usize {
        self.replicas.iter().filter(|nodes| nodes.is_empty()).count()
    }

    /// Whether a block has no replica, or only on silent DataNodes. HDFS lists replicas on a dead DataNode for ten
    /// minutes, so parity there may protect nothing.
    fn is_endangered(&self, nodes: &DataNodes) -> bool {
        self.replicas.iter().any(|replicas| nodes.answering(replicas) == 0)
    }

    /// Whether the other blocks suffice to rebuild all lost ones. Blocks that a short stripe lacks count as zeros.
    pub(crate) fn is_decodable(&self, code: &dyn Code) -> bool {
        let data = self.blocks.iter().filter(|(is_parity, _)| !is_parity).count();
        health::is_decodable(code, data, &self.replicas)
    }

    /// Returns the greatest number of blocks whose only replica is on the same DataNode.
    fn crowd(&self) -> usize {
        let only = |nodes: &Vec<NodeIndex>| match nodes[..] {
            [node] => Some(node),
            _ => None,
        };
        let mut nodes: Vec<NodeIndex> = self.replicas.iter().filter_map(only).collect();
        nodes.sort_unstable();
        nodes.chunk_by(|one, other| one == other).map(<[NodeIndex]>::len).max().unwrap_or(0)
    }
}

/// Returns the stripes of a file with valid parity.
pub(crate) fn stripes(pair: Pair<'_>, layout: &Layout) -> Vec<Placed> {
    let stripe = |(stripe, members): (usize, &[crate::Member])| {
        let parities = layout.parity_positions(stripe);
        let mut replicas = data_replicas(&[pair.source], members);
        replicas.extend(pair.parity.file.blocks[parities.clone()].iter().map(|block| block.replicas.clone()));
        let data = members.iter().map(|member| (false, member.block));
        Placed { blocks: data.chain(parities.map(|at| (true, at))).collect(), replicas }
    };
    layout.stripes().enumerate().map(stripe).collect()
}

fn set_replication(file: &File, replication: u16) -> Next {
    Next::Act(Action::SetReplication { path: file.path.clone(), replication })
}

impl Facts {
    /// Whether HDFS has neither replicas to create nor to remove. Those on DataNodes that are taken out of service, or
    /// are silent, may or may not count.
    pub fn is_at_rest(&self, nodes: &DataNodes) -> bool {
        let blocks = |part: &File| part.blocks.iter().map(|block| block.number).collect::<Vec<_>>();
        let of_parts: BTreeMap<i64, u16> = self
            .parts
            .iter()
            .flat_map(|part| blocks(part).into_iter().map(move |number| (number, part.replication)))
            .collect();
        let is_at_rest = |file: &File| {
            file.blocks.iter().all(|Block { number, replicas, .. }| {
                let wanted = usize::from(of_parts.get(number).copied().unwrap_or(file.replication));
                replicas.len() >= wanted && nodes.usable_among(replicas) <= wanted
            })
        };
        self.source.iter().chain(&self.parity).all(|found| is_at_rest(&found.file))
    }
}

fn moves(
    facts: &Facts,
    pair: Pair<'_>,
    stripes: &[Placed],
    arrangements: &[Arrangement],
    nodes: &DataNodes,
) -> Vec<BlockMove> {
    let of_stripe = |(stripe, arrangement): (&Placed, &Arrangement)| {
        let block_move = |step: crate::Move| {
            let (is_parity, block) = stripe.blocks[step.block];
            let owner = || facts.extents(block..block + 1)[0];
            let (file, block) = match is_parity {
                true => (&pair.parity.file, block),
                false => (owner().file, owner().first),
            };
            let [from, to] = [step.from, step.to].map(|node| nodes.address(node).to_owned());
            BlockMove { path: file.path.clone(), block, from, to }
        };
        arrangement.moves(&stripe.replicas).into_iter().map(block_move).collect::<Vec<_>>()
    };
    stripes.iter().zip(arrangements).flat_map(of_stripe).collect()
}
