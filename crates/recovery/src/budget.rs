//! What a repair moves, and how much of that a node or a rack may have under way.

use repair::{NodeId, NodeProfile, Pacing, Plan, Resource, WHOLE_BLOCK_BYTES};

/// Parts of repairs that a node takes at once, unless its driver says otherwise. What bounds them is rather the bytes that are
/// under way; this is what a helper holds in memory and sockets.
pub const JOBS_AT_ONCE: u64 = 40;
/// A node's budgets are what its links and its disk move in so many seconds: the more is under way, the less it matters that one
/// repair waits for its slowest node, and the longer urgent work has to wait (`docs/results/recovery.md`).
pub const SECONDS_AHEAD: f64 = 16.0;
/// Budgets hold so many blocks, however large these are: with one or two on each node, links are idle a third of the time.
pub(super) const BLOCKS_AHEAD: u64 = 8;

/// Amounts of a node's resources: a budget, or what is reserved of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Budget {
    /// Parts of jobs.
    pub jobs: u64,
    /// Bytes on the uplink.
    pub up_bytes: u64,
    /// Bytes on the downlink.
    pub down_bytes: u64,
    /// Bytes read from and written to the disk.
    pub disk_bytes: u64,
}

impl Budget {
    /// The usual budget of a node with these rates.
    pub fn of(profile: &NodeProfile) -> Self {
        Self::at_rates(profile.rates.up, profile.rates.down, profile.rates.disk())
    }

    /// The usual budget of a node whose links and disk move so many bytes per second.
    pub fn at_rates(up: f64, down: f64, disk: f64) -> Self {
        let ahead = |rate: f64| ((rate * SECONDS_AHEAD) as u64).max(1);
        Self { jobs: JOBS_AT_ONCE, up_bytes: ahead(up), down_bytes: ahead(down), disk_bytes: ahead(disk) }
    }

    /// No bound on bytes.
    pub fn jobs(jobs: u64) -> Self {
        Self { jobs, up_bytes: u64::MAX, down_bytes: u64::MAX, disk_bytes: u64::MAX }
    }

    /// No more than `most` of anything.
    pub(super) fn at_most(self, most: Self) -> Self {
        Self {
            jobs: self.jobs.min(most.jobs),
            up_bytes: self.up_bytes.min(most.up_bytes),
            down_bytes: self.down_bytes.min(most.down_bytes),
            disk_bytes: self.disk_bytes.min(most.disk_bytes),
        }
    }

    /// Half of everything.
    pub(super) fn half(self) -> Self {
        Self {
            jobs: self.jobs / 2,
            up_bytes: self.up_bytes / 2,
            down_bytes: self.down_bytes / 2,
            disk_bytes: self.disk_bytes / 2,
        }
    }

    /// So many times the bytes.
    pub(super) fn stretched(self, stretch: f64) -> Self {
        Self {
            jobs: self.jobs,
            up_bytes: stretched(self.up_bytes, stretch),
            down_bytes: stretched(self.down_bytes, stretch),
            disk_bytes: stretched(self.disk_bytes, stretch),
        }
    }

    /// The need as it is reserved: what alone is more than a whole budget reserves all of it, so that it runs when
    /// nothing else does.
    fn capped(self, budget: &Self) -> Self {
        Self { jobs: self.jobs, ..self.at_most(*budget) }
    }

    /// Reserves, and returns what was reserved.
    pub(super) fn add(&mut self, need: Self, budget: &Self) -> Self {
        let need = need.capped(budget);
        self.jobs += need.jobs;
        self.up_bytes = self.up_bytes.saturating_add(need.up_bytes);
        self.down_bytes = self.down_bytes.saturating_add(need.down_bytes);
        self.disk_bytes = self.disk_bytes.saturating_add(need.disk_bytes);
        need
    }

    /// Gives back what was reserved.
    pub(super) fn take(&mut self, reserved: Self) {
        self.jobs -= reserved.jobs;
        self.up_bytes = self.up_bytes.saturating_sub(reserved.up_bytes);
        self.down_bytes = self.down_bytes.saturating_sub(reserved.down_bytes);
        self.disk_bytes = self.disk_bytes.saturating_sub(reserved.disk_bytes);
    }

    /// What of `need` there is no room for beside `self`, if anything.
    pub(super) fn lacks(&self, need: &Self, budget: &Self, node: NodeId) -> Option<Lack> {
        let lack = |resource: fn(NodeId) -> Resource, need| Some(Lack { resource: resource(node), need });
        if !fits(self.jobs, need.jobs, budget.jobs) {
            return lack(Resource::Jobs, need.jobs);
        }
        if !fits(self.up_bytes, need.up_bytes, budget.up_bytes) {
            return lack(Resource::Uplink, need.up_bytes);
        }
        if !fits(self.down_bytes, need.down_bytes, budget.down_bytes) {
            return lack(Resource::Downlink, need.down_bytes);
        }
        if !fits(self.disk_bytes, need.disk_bytes, budget.disk_bytes) {
            return lack(Resource::Disk, need.disk_bytes);
        }
        None
    }

    /// The largest share that is reserved of anything, in thousandths.
    pub(super) fn fullness(&self, budget: &Self) -> u64 {
        let share = |used: u64, of: u64| {
            (u128::from(used) * 1000).checked_div(of.into()).map_or(u64::MAX, |share| share as u64)
        };
        share(self.jobs, budget.jobs)
            .max(share(self.up_bytes, budget.up_bytes))
            .max(share(self.down_bytes, budget.down_bytes))
            .max(share(self.disk_bytes, budget.disk_bytes))
    }
}

/// So many times a budget; what is not bounded stays so.
pub(super) fn stretched(bytes: u64, stretch: f64) -> u64 {
    if bytes == u64::MAX { bytes } else { (bytes as f64 * stretch).ceil() as u64 }
}

/// Whether `need` has room beside `used`; what alone is more than a whole budget has if nothing else is there.
pub(super) fn fits(used: u64, need: u64, budget: u64) -> bool {
    need == 0 || (budget > 0 && used.saturating_add(need.min(budget)) <= budget)
}

/// A resource of which there is too little, and how much is needed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Lack {
    pub resource: Resource,
    pub need: u64,
}

/// What a plan moves: what its repair reserves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Loads {
    /// Every node with a part, ascending.
    pub nodes: Vec<NodeLoad>,
    /// Bytes from one node to another: what trunks between racks carry.
    pub links: Vec<(NodeId, NodeId, u64)>,
}

/// One node's part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeLoad {
    /// The node.
    pub node: NodeId,
    /// Jobs that its part counts for.
    pub jobs: u64,
    /// Bytes that it sends.
    pub sent_bytes: u64,
    /// Bytes that it receives.
    pub received_bytes: u64,
    /// Bytes that it reads from blocks.
    pub read_bytes: u64,
    /// Bytes of blocks that it stores.
    pub stored_bytes: u64,
}

impl NodeLoad {
    /// Its share of a budget: nothing, if no job moves anything.
    pub(super) fn need(&self) -> Budget {
        if self.jobs == 0 {
            return Budget::default();
        }
        Budget {
            jobs: self.jobs,
            up_bytes: self.sent_bytes,
            down_bytes: self.received_bytes,
            disk_bytes: self.read_bytes.saturating_add(self.stored_bytes),
        }
    }
}

impl Loads {
    /// What `plan` moves; `stores` tells whether its requestors keep what they receive.
    pub fn of(plan: &Plan, stores: bool) -> Self {
        // Whole blocks are held in memory, of which there is some for each job.
        let held = |cost: &repair::NodeCost| match plan.pacing() {
            Pacing::WholeBlock => cost.read_bytes.max(cost.received_bytes),
            Pacing::Pipelined | Pacing::Serial => 0,
        };
        let node = |cost: repair::NodeCost| NodeLoad {
            node: cost.node,
            jobs: (held(&cost) / (WHOLE_BLOCK_BYTES / JOBS_AT_ONCE)).max(1),
            sent_bytes: cost.sent_bytes,
            received_bytes: cost.received_bytes,
            read_bytes: cost.read_bytes,
            stored_bytes: if stores { cost.delivered_bytes } else { 0 },
        };
        Self {
            nodes: plan.node_costs().into_iter().map(node).collect(),
            links: plan.link_bytes().into_iter().map(|((from, to), bytes)| (from, to, bytes)).collect(),
        }
    }

    /// The load while nothing moves: the space of the blocks that are to be stored.
    pub(super) fn at_rest(&self) -> Self {
        let keeps = self.nodes.iter().filter(|load| load.stored_bytes > 0);
        let rests =
            keeps.map(|load| NodeLoad { jobs: 0, sent_bytes: 0, received_bytes: 0, read_bytes: 0, ..*load });
        Self { nodes: rests.collect(), links: Vec::new() }
    }

    /// Bytes that the nodes that keep blocks receive, for each byte that they keep; `None` if none is kept.
    pub(super) fn brought(&self) -> Option<f64> {
        let takers = || self.nodes.iter().filter(|load| load.stored_bytes > 0);
        let stored: u64 = takers().map(|load| load.stored_bytes).sum();
        let received: u64 = takers().map(|load| load.received_bytes).sum();
        (stored > 0).then(|| received as f64 / stored as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_larger_than_a_budget_runs_alone() {
        let budget = Budget { jobs: 4, up_bytes: 100, down_bytes: 100, disk_bytes: 100 };
        let need = Budget { jobs: 1, up_bytes: 250, down_bytes: 0, disk_bytes: 30 };
        let mut used = Budget::default();
        assert_eq!(used.lacks(&need, &budget, NodeId(1)), None);
        let reserved = used.add(need, &budget);
        assert_eq!(used, Budget { jobs: 1, up_bytes: 100, down_bytes: 0, disk_bytes: 30 });
        let lack = used.lacks(&need, &budget, NodeId(1));
        assert_eq!(lack, Some(Lack { resource: Resource::Uplink(NodeId(1)), need: 250 }));
        used.take(reserved);
        assert_eq!(used, Budget::default());
    }

    #[test]
    fn a_budget_of_nothing_has_room_for_nothing() {
        let need = Budget { jobs: 1, up_bytes: 1, down_bytes: 1, disk_bytes: 1 };
        let lack = |budget: Budget| Budget::default().lacks(&need, &budget, NodeId(1)).unwrap().resource;
        assert_eq!(lack(Budget { jobs: 1, ..Budget::default() }), Resource::Uplink(NodeId(1)));
        assert_eq!(lack(Budget::jobs(0)), Resource::Jobs(NodeId(1)));
    }
}
