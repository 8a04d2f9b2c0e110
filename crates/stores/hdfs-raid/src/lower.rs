//! Lowers the replication of a file with proven parity, and spreads its stripes over DataNodes.
//!
//! HDFS chooses the replicas that it removes. When their number has stayed the same for a while, the
//! remaining ones are moved where blocks of a stripe stand too close together. If they cannot be moved, and the loss of one
//! DataNode could cost data, the file gets its former replication again.

use std::collections::BTreeMap;
use std::time::Duration;

use codes::Code;

use crate::facts::{DataNodes, Facts, MarkedFile};
use crate::survey::data_replicas;
use crate::work::{Pair, Work, pair, unfit};
use crate::{
    Action, Arrangement, Block, BlockMove, End, Exclusion, File, Layout, Next, NodeIndex, TooFewNodes,
    Waiting,
};
use crate::{exposure, health};

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
        if is_lowered && self.is_at_risk(&stripes, arrangements.is_ok(), nodes) {
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
        if source.replication > replication || parity.replication > parity_replication {
            return match unfit(facts) {
                _ if stripes.iter().any(|stripe| stripe.is_endangered(nodes)) => Next::Wait(Waiting::Repair),
                Some(why) => Next::End(End::Unfit(why)),
                None if parity.replication > parity_replication => {
                    set_replication(parity, parity_replication)
                }
                None => set_replication(source, replication),
            };
        }
        self.spread(facts, pair, &stripes, &arrangements, nodes, now_ms)
    }

    /// Returns the next step for a lowered file: moves the blocks of each stripe apart. Stripes with a lost block stay as they
    /// are until it is repaired.
    fn spread(
        &mut self,
        facts: &Facts,
        pair: Pair<'_>,
        stripes: &[Placed],
        arrangements: &[Arrangement],
        nodes: &DataNodes,
        now_ms: u64,
    ) -> Next {
        let all = stripes.iter().zip(arrangements);
        let (endangered, intact): (Vec<_>, Vec<_>) = all.partition(|(stripe, _)| stripe.is_endangered(nodes));
        let moves = moves(facts, pair, &intact, nodes);
        if moves.is_empty() && !endangered.is_empty() {
            return Next::Wait(Waiting::Repair);
        }
        if !self.is_settled(pair, nodes, now_ms, self.settled_ms) || !facts.is_at_rest(nodes) {
            return Next::Wait(Waiting::Settled);
        }
        if moves.is_empty() { Next::End(End::Encoded) } else { Next::Act(Action::Move(moves)) }
    }

    /// Returns the call that gives a lowered file with valid parity its former replication again.
    pub(crate) fn restore(&self, facts: &Facts) -> Option<Action> {
        let (source, parity) = (facts.source.as_ref()?, facts.parity.as_ref()?);
        let pair = pair(source, parity);
        let is_lowered = facts.least_replication() < pair.replication;
        let (path, replication) = (pair.source.path.clone(), pair.replication);
        let is_needed = is_lowered && self.has_valid_parity(facts, pair.source, parity);
        is_needed.then_some(Action::SetReplication { path, replication })
    }

    /// Returns the same call if some DataNode has the only replicas of more blocks of a stripe than the code tolerates to lose.
    pub(crate) fn retreat(&self, facts: &Facts, nodes: &DataNodes) -> Option<Action> {
        let call = self.restore(facts)?;
        let pair = pair(facts.source.as_ref()?, facts.parity.as_ref()?);
        let layout = Layout::of_source(pair.source, &self.codec).expect("valid parity has a layout");
        let is_exposed = stripes(pair, &layout).iter().any(|stripe| self.is_exposed(stripe, nodes));
        is_exposed.then_some(call)
    }

    /// Whether DataNodes that answer keep more replicas of an encoded file than it asks for. HDFS has them keep as many as a
    /// snapshot of the file asks for, also after the file was moved out of the folder with snapshots.
    pub(crate) fn keeps_surplus(&self, facts: &Facts, nodes: &DataNodes) -> bool {
        self.is_encoding() && self.restore(facts).is_some() && facts.has_surplus(|at| nodes.usable_among(at))
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
    /// first: the stripe has lost blocks, or there are too few DataNodes to move them to.
    fn is_at_risk(&self, stripes: &[Placed], has_room: bool, nodes: &DataNodes) -> bool {
        let is_fixed = |stripe: &Placed| !has_room || stripe.is_endangered(nodes);
        stripes.iter().any(|stripe| is_fixed(stripe) && self.is_exposed(stripe, nodes))
    }

    /// Whether the loss of one DataNode could cost data.
    fn is_exposed(&self, stripe: &Placed, nodes: &DataNodes) -> bool {
        exposure::is_exposed(&stripe.replicas, self.tolerated, &nodes.silent)
    }
}

impl Placed {
    /// Whether a block has no replica, or only on silent DataNodes. HDFS lists replicas on a dead DataNode for ten
    /// minutes, so parity there may protect nothing.
    fn is_endangered(&self, nodes: &DataNodes) -> bool {
        exposure::lost(&self.replicas, &nodes.silent) > 0
    }

    /// Whether the other blocks suffice to rebuild all lost ones. Blocks that a short stripe lacks count as zeros.
    pub(crate) fn is_decodable(&self, code: &dyn Code) -> bool {
        let data = self.blocks.iter().filter(|(is_parity, _)| !is_parity).count();
        health::is_decodable(code, data, &self.replicas)
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
    /// are silent, may or may not count. HDFS creates no replicas of a lost block.
    pub fn is_at_rest(&self, nodes: &DataNodes) -> bool {
        let is_at_rest = |(block, wanted): (&Block, usize)| {
            let is_complete = block.replicas.is_empty() || block.replicas.len() >= wanted;
            is_complete && nodes.usable_among(&block.replicas) <= wanted
        };
        self.wanted(self.source.iter().chain(&self.parity)).into_iter().all(is_at_rest)
    }

    /// Whether a block of the source has more replicas than its file asks for, counted by `count`.
    pub(crate) fn has_surplus(&self, count: impl Fn(&[NodeIndex]) -> usize) -> bool {
        let blocks = self.wanted(self.source.iter());
        blocks.into_iter().any(|(block, wanted)| count(&block.replicas) > wanted)
    }

    /// Returns the blocks of these files, each with the replication of its file.
    fn wanted<'a>(&self, files: impl Iterator<Item = &'a MarkedFile>) -> Vec<(&'a Block, usize)> {
        let (mut of_parts, mut wanted) = (BTreeMap::new(), Vec::new());
        for part in &self.parts {
            of_parts.extend(part.blocks.iter().map(|block| (block.number, part.replication)));
        }
        for MarkedFile { file, .. } in files {
            let replication =
                |block: &Block| of_parts.get(&block.number).copied().unwrap_or(file.replication);
            wanted.extend(file.blocks.iter().map(|block| (block, usize::from(replication(block)))));
        }
        wanted
    }
}

fn moves(
    facts: &Facts,
    pair: Pair<'_>,
    stripes: &[(&Placed, &Arrangement)],
    nodes: &DataNodes,
) -> Vec<BlockMove> {
    let of_stripe = |&(stripe, arrangement): &(&Placed, &Arrangement)| {
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
    stripes.iter().flat_map(of_stripe).collect()
}
