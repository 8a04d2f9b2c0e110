//! The cost of a plan: exact bytes per node and link, and timeslots. [`Forecast`](crate::Forecast) predicts
//! seconds.
//!
//! Bytes are those of the slices that the plan moves, including a short last one: payload without frame
//! headers, as helpers count them. Bytes read include padding: the zeros that extend a block which is shorter
//! than the stripe's block size.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::reading::Reading;
use crate::{NodeId, Pacing, Plan, Task};

/// The bytes of one node's part in a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeCost {
    /// The node.
    pub node: NodeId,
    /// Bytes sent to other nodes.
    pub sent_bytes: u64,
    /// Bytes received from other nodes.
    pub received_bytes: u64,
    /// Bytes read from blocks, padding included.
    pub read_bytes: u64,
    /// The number of contiguous ranges that the node reads from its disks, which is the number of seeks. See
    /// `docs/reference/codes.md`, "Disk reads".
    pub reads: u64,
    /// Bytes of the contiguous ranges that the node reads: the bytes needed and the small gaps between them,
    /// see [`Transfer`](crate::Transfer).
    pub disk_bytes: u64,
    /// Bytes of the outputs that are delivered at this node.
    pub delivered_bytes: u64,
}

impl NodeCost {
    /// The larger of bytes sent and received, which sets the time on full-duplex links.
    pub fn load_bytes(&self) -> u64 {
        self.sent_bytes.max(self.received_bytes)
    }
}

/// The cost of a plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// Every node with a task, ascending.
    pub nodes: Vec<NodeCost>,
    /// Bytes sent, summed over all links.
    pub network_bytes: u64,
    /// Bytes read from blocks, padding included.
    pub read_bytes: u64,
    /// The number of contiguous ranges that nodes read from their disks.
    pub reads: u64,
    /// Bytes of the contiguous ranges that nodes read, including small gaps.
    pub disk_bytes: u64,
    /// Bytes of all outputs.
    pub delivered_bytes: u64,
    /// The node with the largest [`load_bytes`](NodeCost::load_bytes). Ties go to the node that sends and
    /// receives more in total, then to the lowest number.
    pub busiest: NodeId,
    /// The number of streams in the longest chain from a reader to a requestor.
    pub hops: u32,
    /// Predicted duration, in units of the time to send one block over one link, if all links are equal and
    /// nothing else limits the plan.
    pub timeslots: f64,
    /// Bytes of a block, the unit in which costs are usually given.
    pub block_bytes: u64,
}

impl Cost {
    /// The cost at `node`; `None` if the node has no task.
    pub fn of(&self, node: NodeId) -> Option<&NodeCost> {
        let at = self.nodes.binary_search_by_key(&node, |cost| cost.node).ok()?;
        Some(&self.nodes[at])
    }

    /// Mean size of a contiguous read from disk, in bytes; 0 without reads. It is small if a code reads
    /// pieces of blocks.
    pub fn mean_read_bytes(&self) -> u64 {
        self.disk_bytes.checked_div(self.reads).unwrap_or(0)
    }

    /// Bytes received by each node with outputs.
    pub fn into_requestors(&self) -> impl Iterator<Item = (NodeId, u64)> + '_ {
        let requestors = self.nodes.iter().filter(|cost| cost.delivered_bytes > 0);
        requestors.map(|cost| (cost.node, cost.received_bytes))
    }

    /// Bytes received by all nodes with outputs.
    pub fn requestors_receive(&self) -> u64 {
        self.into_requestors().map(|(_, bytes)| bytes).sum()
    }

    /// Bytes sent or bytes received at the busiest node, whichever is larger.
    pub fn through_busiest(&self) -> u64 {
        self.of(self.busiest).map_or(0, NodeCost::load_bytes)
    }

    /// Converts `bytes` to a number of blocks.
    pub fn in_blocks(&self, bytes: u64) -> f64 {
        bytes as f64 / self.block_bytes as f64
    }
}

impl Plan {
    /// The cost of the plan.
    pub fn cost(&self) -> Cost {
        let mut nodes = self.node_costs();
        for cost in &mut nodes {
            let work = self.reading(cost.node).disk_work();
            (cost.reads, cost.disk_bytes) = (work.reads, work.bytes);
        }
        let busiest = nodes.iter().max_by_key(|cost| {
            (cost.load_bytes(), cost.sent_bytes + cost.received_bytes, std::cmp::Reverse(cost.node))
        });
        Cost {
            network_bytes: sent_bytes(&nodes),
            read_bytes: nodes.iter().map(|cost| cost.read_bytes).sum(),
            reads: nodes.iter().map(|cost| cost.reads).sum(),
            disk_bytes: nodes.iter().map(|cost| cost.disk_bytes).sum(),
            delivered_bytes: nodes.iter().map(|cost| cost.delivered_bytes).sum(),
            busiest: busiest.expect("a plan has tasks").node,
            hops: self.hops(),
            timeslots: self.timeslots(&nodes),
            block_bytes: self.block_bytes(),
            nodes,
        }
    }

    /// Bytes sent, summed over all links.
    pub(crate) fn network_bytes(&self) -> u64 {
        sent_bytes(&self.node_costs())
    }

    /// The number of streams in the longest chain from a reader to a requestor, over all lanes.
    pub fn hops(&self) -> u32 {
        self.lanes.iter().map(|lane| lane.hops).max().unwrap_or(0)
    }

    /// For each lane, the number of slices that it carries and their bytes in one stream.
    pub(crate) fn lane_shares(&self) -> Vec<LaneShare> {
        let slices = |lane| u64::from(self.dealing.count_in(lane, &self.slices));
        let share = |lane| LaneShare { slices: slices(lane), bytes: 0 };
        let mut shares: Vec<LaneShare> = (0..self.lanes.len() as u16).map(share).collect();
        let slice_bytes = u64::from(self.geometry.slice_bytes);
        shares.iter_mut().for_each(|share| share.bytes = share.slices * slice_bytes);
        let last = self.geometry.slices() - 1;
        if self.slices.contains(last) {
            let lane = self.dealing.lane_of(last);
            shares[usize::from(lane)].bytes -= slice_bytes - self.geometry.bytes_of(last) as u64;
        }
        shares
    }

    /// Bytes sent from one node to another, for each pair `(from, to)` with a stream.
    pub fn link_bytes(&self) -> BTreeMap<(NodeId, NodeId), u64> {
        let mut links = BTreeMap::new();
        for (lane, share) in self.lanes.iter().zip(self.lane_shares()) {
            for (task, send) in
                lane.tasks.iter().flat_map(|task| task.sends.iter().map(move |send| (task, send)))
            {
                *links.entry((task.node, send.to)).or_insert(0) += send.streams.len() as u64 * share.bytes;
            }
        }
        links
    }

    /// The cost of every node, except that `reads` and `disk_bytes` are left at 0; [`cost`](Self::cost) fills
    /// them in.
    pub fn node_costs(&self) -> Vec<NodeCost> {
        let mut costs: BTreeMap<NodeId, NodeCost> = BTreeMap::new();
        for (lane, share) in self.lanes.iter().zip(self.lane_shares()) {
            for task in &lane.tasks {
                costs.entry(task.node).or_insert_with(|| NodeCost::zero(task.node)).add(task, share);
            }
        }
        costs.into_values().collect()
    }

    /// Everything that a node reads.
    fn reading(&self, node: NodeId) -> Reading {
        let reads_in = |lane: u16| {
            let task = self.lanes[usize::from(lane)].tasks.iter().find(|task| task.node == node);
            task.map_or(&[][..], |task| &task.reads)
        };
        Reading::new(&self.geometry, &self.slices, &self.dealing, self.chunking, reads_in)
    }

    fn timeslots(&self, nodes: &[NodeCost]) -> f64 {
        let block = self.block_bytes() as f64;
        if self.pacing == Pacing::WholeBlock {
            return self.rounds(|_, _| 1.0) / block;
        }
        let (load, own_hops) = match self.pacing {
            Pacing::Serial => nodes.iter().map(NodeCost::serial_load).max().unwrap_or((0, 1)),
            _ => (nodes.iter().map(NodeCost::load_bytes).max().unwrap_or(0), 1),
        };
        let fill = f64::from(self.hops().saturating_sub(own_hops)) * self.longest_slice() as f64;
        (load as f64 + fill) / block
    }

    pub(crate) fn longest_slice(&self) -> u64 {
        let window = self.geometry.window.end - self.geometry.window.start;
        window.min(u64::from(self.geometry.slice_bytes))
    }
}

#[derive(Clone, Copy, Default)]
pub(crate) struct LaneShare {
    pub slices: u64,
    pub bytes: u64,
}

impl NodeCost {
    fn zero(node: NodeId) -> Self {
        let (sent_bytes, received_bytes, delivered_bytes) = (0, 0, 0);
        Self { node, sent_bytes, received_bytes, read_bytes: 0, reads: 0, disk_bytes: 0, delivered_bytes }
    }

    /// The bytes that the node moves one after the other if it either sends or receives, and the number of hops
    /// in which it takes part.
    fn serial_load(&self) -> (u64, u32) {
        let hops = u32::from(self.sent_bytes > 0) + u32::from(self.received_bytes > 0);
        (self.sent_bytes + self.received_bytes, hops)
    }

    fn add(&mut self, task: &Task, share: LaneShare) {
        let sent: usize = task.sends.iter().map(|send| send.streams.len()).sum();
        let received: u64 = task.receives.iter().map(|receive| u64::from(receive.streams)).sum();
        self.sent_bytes += sent as u64 * share.bytes;
        self.received_bytes += received * share.bytes;
        self.read_bytes += task.reads.len() as u64 * share.bytes;
        self.delivered_bytes += task.delivers.len() as u64 * share.bytes;
    }
}

fn sent_bytes(nodes: &[NodeCost]) -> u64 {
    nodes.iter().map(|cost| cost.sent_bytes).sum()
}
