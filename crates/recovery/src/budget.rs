//! The data that a repair moves, and how much a node or a rack may have in flight.

use repair::{NodeId, NodeProfile, Pacing, Plan, Resource, WHOLE_BLOCK_BYTES};

/// Default limit on the number of jobs that one node takes part in at a time.
///
/// Memory and sockets of a helper determine this number. Bytes in flight are usually the tighter limit.
pub const JOBS_AT_ONCE: u64 = 40;
/// A node's byte budgets are the bytes that its links and its disk move in this many seconds.
///
/// With a larger value, links stay busy even if single repairs wait for their slowest nodes, but urgent work
/// waits longer (`docs/results/recovery.md`).
pub const SECONDS_AHEAD: f64 = 16.0;
/// Byte budgets are increased until half of the nodes have room for this many blocks, but at most by the
/// factor `MOST_STRETCH`. With budgets of only one or two blocks per node, links are idle a third of the
/// time.
pub(super) const BLOCKS_AHEAD: u64 = 8;

/// Amounts of a node's resources: a budget, or the part of it that is reserved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Budget {
    /// Job slots. A job takes more than one if its node holds whole blocks in memory.
    pub jobs: u64,
    /// Bytes on the uplink.
    pub up_bytes: u64,
    /// Bytes on the downlink.
    pub down_bytes: u64,
    /// Bytes read from the disk and written to it.
    pub disk_bytes: u64,
}

impl Budget {
    /// Returns the default budget of a node with these rates.
    pub fn of(profile: &NodeProfile) -> Self {
        Self::at_rates(profile.rates.up, profile.rates.down, profile.rates.disk())
    }

    /// Returns the default budget of a node with these rates of links and disk, in bytes per second.
    pub fn at_rates(up: f64, down: f64, disk: f64) -> Self {
        let ahead = |rate: f64| ((rate * SECONDS_AHEAD) as u64).max(1);
        Self { jobs: JOBS_AT_ONCE, up_bytes: ahead(up), down_bytes: ahead(down), disk_bytes: ahead(disk) }
    }

    /// Creates a budget of `jobs` jobs and unlimited bytes.
    pub fn jobs(jobs: u64) -> Self {
        Self { jobs, up_bytes: u64::MAX, down_bytes: u64::MAX, disk_bytes: u64::MAX }
    }

    /// Returns the minimum of both budgets, field by field.
    pub(super) fn at_most(self, most: Self) -> Self {
        Self {
            jobs: self.jobs.min(most.jobs),
            up_bytes: self.up_bytes.min(most.up_bytes),
            down_bytes: self.down_bytes.min(most.down_bytes),
            disk_bytes: self.disk_bytes.min(most.disk_bytes),
        }
    }

    /// Returns half of each amount.
    pub(super) fn half(self) -> Self {
        Self {
            jobs: self.jobs / 2,
            up_bytes: self.up_bytes / 2,
            down_bytes: self.down_bytes / 2,
            disk_bytes: self.disk_bytes / 2,
        }
    }

    /// Returns the byte amounts multiplied by `stretch`. Jobs are unchanged.
    pub(super) fn stretched(self, stretch: f64) -> Self {
        Self {
            jobs: self.jobs,
            up_bytes: stretched(self.up_bytes, stretch),
            down_bytes: stretched(self.down_bytes, stretch),
            disk_bytes: stretched(self.disk_bytes, stretch),
        }
    }

    /// Returns the amount that is actually reserved for a need. A need larger than the budget reserves the
    /// whole budget, so its job runs alone.
    fn capped(self, budget: &Self) -> Self {
        Self { jobs: self.jobs, ..self.at_most(*budget) }
    }

    /// Reserves `need` and returns the amount actually reserved.
    pub(super) fn add(&mut self, need: Self, budget: &Self) -> Self {
        let need = need.capped(budget);
        self.jobs += need.jobs;
        self.up_bytes = self.up_bytes.saturating_add(need.up_bytes);
        self.down_bytes = self.down_bytes.saturating_add(need.down_bytes);
        self.disk_bytes = self.disk_bytes.saturating_add(need.disk_bytes);
        need
    }

    /// Gives back a reserved amount.
    pub(super) fn take(&mut self, reserved: Self) {
        self.jobs -= reserved.jobs;
        self.up_bytes = self.up_bytes.saturating_sub(reserved.up_bytes);
        self.down_bytes = self.down_bytes.saturating_sub(reserved.down_bytes);
        self.disk_bytes = self.disk_bytes.saturating_sub(reserved.disk_bytes);
    }

    /// Returns the first resource without room for `need` next to existing reservations (`self`, of which
    /// `repairs` are those of repairs), if any.
    pub(super) fn lacks(&self, repairs: &Self, need: &Self, budget: &Self, node: NodeId) -> Option<Lack> {
        let lack = |resource: fn(NodeId) -> Resource, need| Some(Lack { resource: resource(node), need });
        if !fits((self.jobs, repairs.jobs), need.jobs, budget.jobs) {
            return lack(Resource::Jobs, need.jobs);
        }
        if !fits((self.up_bytes, repairs.up_bytes), need.up_bytes, budget.up_bytes) {
            return lack(Resource::Uplink, need.up_bytes);
        }
        if !fits((self.down_bytes, repairs.down_bytes), need.down_bytes, budget.down_bytes) {
            return lack(Resource::Downlink, need.down_bytes);
        }
        if !fits((self.disk_bytes, repairs.disk_bytes), need.disk_bytes, budget.disk_bytes) {
            return lack(Resource::Disk, need.disk_bytes);
        }
        None
    }

    /// Returns the largest reserved share of any resource, in thousandths of its budget.
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

/// Multiplies an amount by `stretch`. An unlimited amount stays unlimited.
pub(super) fn stretched(bytes: u64, stretch: f64) -> u64 {
    if bytes == u64::MAX { bytes } else { (bytes as f64 * stretch).ceil() as u64 }
}

/// Whether `need` fits into `budget` next to the reserved amount `used`, of which repairs have reserved `repairs`.
/// While no repair reserves anything, any need fits: one repair runs beside any number of reads.
pub(super) fn fits((used, repairs): (u64, u64), need: u64, budget: u64) -> bool {
    need == 0 || (budget > 0 && (repairs == 0 || used.saturating_add(need.min(budget)) <= budget))
}

/// A resource without enough room, and the amount needed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Lack {
    pub resource: Resource,
    pub need: u64,
}

/// The data that a plan moves. The scheduler reserves this much for the plan's job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Loads {
    /// The load of every node that takes part, in ascending order of nodes.
    pub nodes: Vec<NodeLoad>,
    /// Sender, receiver and bytes of each connection. If sender and receiver are in different racks, the
    /// racks' trunks carry the bytes.
    pub links: Vec<(NodeId, NodeId, u64)>,
}

/// The load of one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeLoad {
    /// The node.
    pub node: NodeId,
    /// Number of job slots that the node's part in the job takes.
    pub jobs: u64,
    /// Bytes that the node sends.
    pub sent_bytes: u64,
    /// Bytes that the node receives.
    pub received_bytes: u64,
    /// Bytes that the node reads from blocks.
    pub read_bytes: u64,
    /// Bytes of repaired blocks that the node stores for the job.
    pub stored_bytes: u64,
}

impl NodeLoad {
    /// Returns the part of the node's budget that this load takes. A load of zero jobs takes nothing.
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
    /// Returns the load of `plan`. If `stores` is true, requestors store the data that they receive.
    pub fn of(plan: &Plan, stores: bool) -> Self {
        // With `Pacing::WholeBlock` a node holds whole blocks in memory. A job slot stands for
        // `WHOLE_BLOCK_BYTES / JOBS_AT_ONCE` bytes of this memory, so the job may take several slots.
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

    /// Returns the load of a suspended job: only the space of the blocks to be stored.
    pub(super) fn at_rest(&self) -> Self {
        let keeps = self.nodes.iter().filter(|load| load.stored_bytes > 0);
        let rests =
            keeps.map(|load| NodeLoad { jobs: 0, sent_bytes: 0, received_bytes: 0, read_bytes: 0, ..*load });
        Self { nodes: rests.collect(), links: Vec::new() }
    }

    /// Returns the bytes received per byte stored, over the nodes that store blocks. `None` if no node stores
    /// any.
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
    fn a_need_larger_than_the_budget_runs_alone() {
        let budget = Budget { jobs: 4, up_bytes: 100, down_bytes: 100, disk_bytes: 100 };
        let need = Budget { jobs: 1, up_bytes: 250, down_bytes: 0, disk_bytes: 30 };
        let mut used = Budget::default();
        assert_eq!(used.lacks(&used, &need, &budget, NodeId(1)), None);
        let reserved = used.add(need, &budget);
        assert_eq!(used, Budget { jobs: 1, up_bytes: 100, down_bytes: 0, disk_bytes: 30 });
        let lack = used.lacks(&used, &need, &budget, NodeId(1));
        assert_eq!(lack, Some(Lack { resource: Resource::Uplink(NodeId(1)), need: 250 }));
        used.take(reserved);
        assert_eq!(used, Budget::default());
    }

    #[test]
    fn a_large_need_fits_beside_reads_but_not_beside_another_repair() {
        let budget = Budget { jobs: 4, up_bytes: 100, down_bytes: 100, disk_bytes: 100 };
        let reads = Budget { jobs: 2, up_bytes: 50, down_bytes: 0, disk_bytes: 50 };
        let repair = Budget { jobs: 1, up_bytes: 60, down_bytes: 0, disk_bytes: 60 };
        let mut both = reads;
        both.add(repair, &budget);
        assert_eq!(reads.lacks(&Budget::default(), &repair, &budget, NodeId(1)), None);
        assert!(both.lacks(&repair, &repair, &budget, NodeId(1)).is_some());
    }

    #[test]
    fn an_empty_budget_has_no_room() {
        let need = Budget { jobs: 1, up_bytes: 1, down_bytes: 1, disk_bytes: 1 };
        let none = Budget::default();
        let lack = |budget: Budget| none.lacks(&none, &need, &budget, NodeId(1)).unwrap().resource;
        assert_eq!(lack(Budget { jobs: 1, ..Budget::default() }), Resource::Uplink(NodeId(1)));
        assert_eq!(lack(Budget::jobs(0)), Resource::Jobs(NodeId(1)));
    }
}
