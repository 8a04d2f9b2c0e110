//! One node's share of a plan, with the addresses and keys of its edges: what the coordinator sends it.

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
    /// Its priority where the node's caps are reached.
    pub class: Class,
    /// The client's own number for its request, if this assignment goes to that client.
    pub tag: Option<u64>,
    /// The window and how it is cut.
    pub geometry: Geometry,
    /// The slices to move.
    pub slices: SliceSet,
    /// The assignment of slices to lanes.
    pub dealing: Dealing,
    /// How nodes move slices on.
    pub pacing: Pacing,
    /// The layout of sub-blocks in their blocks.
    pub chunking: Chunking,
    /// The node's task in each lane; `None` for lanes without it.
    pub lanes: Vec<Option<Task>>,
    /// The blocks it reads.
    pub locals: Vec<LocalBlock>,
    /// The nodes it receives from.
    pub inlets: Vec<Inlet>,
    /// The nodes it sends to.
    pub outlets: Vec<Outlet>,
    /// The sub-block that is output number `i`; the same for all nodes of the plan.
    pub outputs: Vec<SubBlock>,
    /// The destinations of its deliveries.
    pub sinks: Vec<Sink>,
    /// If an awaited slice is missing for this long, the node reports that it starves.
    pub stall_ms: u32,
}

/// A block on the node's own disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LocalBlock {
    /// Its index in the stripe, which the tasks use.
    pub index: BlockIndex,
    /// The store's name for it.
    pub id: BlockId,
    /// Its length; bytes beyond are zeros. A node whose copy has another length does not read it.
    pub bytes: u64,
    /// The digest recorded by the store. A node whose copy has another digest does not read it; `None` if no
    /// digest is recorded.
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

/// A block that is delivered here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sink {
    /// Its index in the stripe, as used in the plan's outputs.
    pub index: BlockIndex,
    /// The store's name for it.
    pub id: BlockId,
    /// Its length; bytes delivered beyond are padding and are dropped.
    pub bytes: u64,
    /// The digest recorded by the store. A store that knows several kinds of digest computes this kind, so
    /// that the two can be compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<Digest>,
    /// How the delivery ends.
    pub end: SinkEnd,
}

/// The end of a delivery. The way a store keeps a block, by its own rename or through its own process, is the
/// store's business and not part of the assignment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "end", rename_all = "kebab-case")]
pub enum SinkEnd {
    /// The bytes stay where they were written; there is no seal and no commit.
    Taken,
    /// The block enters the node's store: sealed, checked, then committed.
    Kept {
        /// The label to write with the block, if the store keeps labels.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        label: Option<Box<StripeLabel>>,
        /// The permit for the store's own process, if it requires one.
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
            SinkEnd::Taken => None,
        }
    }

    /// The permit for the store's own process, if it requires one.
    pub fn permit(&self) -> Option<&Permit> {
        match &self.end {
            SinkEnd::Kept { permit, .. } => permit.as_ref(),
            SinkEnd::Taken => None,
        }
    }
}

impl Assignment {
    /// The node's tasks, with their lanes.
    pub fn tasks(&self) -> impl Iterator<Item = LaneTask<'_>> {
        self.lanes.iter().zip(0..).filter_map(|(task, lane)| Some((lane, task.as_ref()?)))
    }

    /// The lane that a slice travels.
    pub fn lane_of(&self, slice: u32) -> u16 {
        self.dealing.lane_of(slice)
    }
}
