//! One node's share of a plan, with the addresses and keys of its edges, as the coordinator sends it to the
//! node.

use codes::{BlockIndex, SubBlock};
use serde::{Deserialize, Serialize};

use crate::plan::Task;
use crate::{
    BlockId, Chunking, Class, Dealing, Digest, EdgeKey, Epoch, Geometry, JobId, NodeId, Pacing, Permit,
    SliceSet, StripeLabel,
};

/// A node's instructions for its part in one plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Assignment {
    /// The job.
    pub job: JobId,
    /// The number of the job's plan.
    pub epoch: Epoch,
    /// The job's priority class, which matters when the node's traffic reaches a rate cap.
    pub class: Class,
    /// The client's own number for its request, if this assignment goes to that client.
    pub tag: Option<u64>,
    /// The window of offsets in each sub-block, and its division into slices.
    pub geometry: Geometry,
    /// The slices to move.
    pub slices: SliceSet,
    /// How the node overlaps its work on slices.
    pub pacing: Pacing,
    /// The layout of sub-blocks in their blocks.
    pub chunking: Chunking,
    /// The lanes, with the node's tasks in them.
    #[serde(flatten)]
    pub lanes: Lanes,
    /// The blocks that the node reads.
    pub locals: Vec<LocalBlock>,
    /// The nodes that this node receives from.
    pub inlets: Vec<Inlet>,
    /// The nodes that this node sends to.
    pub outlets: Vec<Outlet>,
    /// The sub-block that is output number `i`; the same for all nodes of the plan.
    pub outputs: Vec<SubBlock>,
    /// The blocks that are delivered at this node.
    pub sinks: Vec<Sink>,
    /// The node reports a stall if a slice that it waits for has not arrived for this long.
    pub stall_ms: u32,
}

/// The lanes of a plan, as one node sees them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lanes {
    /// The assignment of slices to lanes.
    pub dealing: Dealing,
    /// The node's task in each lane; `None` for lanes in which the node has no task.
    #[serde(rename = "lanes")]
    pub tasks: Vec<Option<Task>>,
}

/// A block on the node's own disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LocalBlock {
    /// The block's index in the stripe, by which tasks refer to the block.
    pub index: BlockIndex,
    /// The store's name for the block.
    pub id: BlockId,
    /// The block's length in bytes; bytes beyond it are read as zeros. A node whose copy has another length
    /// refuses to read the copy.
    pub bytes: u64,
    /// The block's digest as recorded by the store. A node whose copy has another digest, or none at the moment,
    /// refuses to read the copy. `None` if no digest is recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<Digest>,
}

/// An incoming edge.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inlet {
    /// The sender.
    pub from: NodeId,
    /// The address to dial; `None` if the other end dials.
    pub dial: Option<String>,
    /// The edge's one-time key.
    pub key: EdgeKey,
    /// The name that the other end's certificate must carry, if the edge is encrypted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls_name: Option<String>,
}

/// An outgoing edge.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outlet {
    /// The receiver.
    pub to: NodeId,
    /// The address to dial; `None` if the other end dials, as is usual between helpers.
    pub dial: Option<String>,
    /// The edge's one-time key.
    pub key: EdgeKey,
    /// The name that the other end's certificate must carry, if the edge is encrypted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls_name: Option<String>,
}

/// A block that is delivered at this node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sink {
    /// The block's index in the stripe, by which the plan's outputs refer to the block.
    pub index: BlockIndex,
    /// The store's name for the block.
    pub id: BlockId,
    /// The block's length in bytes; delivered bytes beyond it are padding and are dropped.
    pub bytes: u64,
    /// The block's digest as recorded by the store. A store that knows several kinds of digest computes one
    /// of the same kind, so that the computed and the recorded digest can be compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<Digest>,
    /// The use of the block once it is delivered.
    pub end: SinkEnd,
}

/// The use of a delivered block. How a store publishes the block, by a rename of its own or through the
/// storage system's process, is up to the store and not part of the assignment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "end", rename_all = "kebab-case")]
pub enum SinkEnd {
    /// The recipient, such as a client, takes the bytes as they come; nothing is sealed or committed.
    Taken {
        /// Whether the delivery counts only after a parity check, for which the recipient computes a fingerprint.
        /// A recipient that cannot refuses the assignment.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        checked: bool,
    },
    /// The node's store keeps the block: it is sealed, checked and then committed.
    Kept {
        /// The label to write with the block, if the store keeps labels.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        label: Option<Box<StripeLabel>>,
        /// The permit to present to the storage system's own process, if that process requires one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        permit: Option<Permit>,
    },
}

/// A task with its lane's number, as [`Assignment::tasks`] yields it.
pub type LaneTask<'a> = (u16, &'a Task);

impl Sink {
    /// The label of a block that is kept, if it has one.
    pub fn label(&self) -> Option<&StripeLabel> {
        match &self.end {
            SinkEnd::Kept { label, .. } => label.as_deref(),
            SinkEnd::Taken { .. } => None,
        }
    }

    /// The permit to present to the storage system's own process, if that process requires one.
    pub fn permit(&self) -> Option<&Permit> {
        match &self.end {
            SinkEnd::Kept { permit, .. } => permit.as_ref(),
            SinkEnd::Taken { .. } => None,
        }
    }
}

impl Assignment {
    /// The node's tasks, each with the number of its lane.
    pub fn tasks(&self) -> impl Iterator<Item = LaneTask<'_>> {
        self.lanes.tasks.iter().zip(0..).filter_map(|(task, lane)| Some((lane, task.as_ref()?)))
    }

    /// The lane that carries slice `slice`.
    pub fn lane_of(&self, slice: u32) -> u16 {
        self.lanes.dealing.lane_of(slice)
    }
}
