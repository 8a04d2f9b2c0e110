//! One node's share of a plan, with the addresses and keys of its edges: what the coordinator sends it.

use codes::{BlockIndex, SubBlock};
use serde::{Deserialize, Serialize};

use crate::plan::Task;
use crate::{
    BlockId, Chunking, Class, Dealing, Digest, EdgeKey, Epoch, Geometry, JobId, NodeId, Pacing, Permit,
    SliceSet, StripeLabel,
};

/// Everything a node must know to play its part in one plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Assignment {
    /// The job.
    pub job: JobId,
    /// Which of the job's plans.
    pub epoch: Epoch,
    /// Who goes before it where the node's caps are reached, and after it.
    pub class: Class,
    /// The client's own number for the request that this serves, when it goes to that client.
    pub tag: Option<u64>,
    /// The window and how it is cut.
    pub geometry: Geometry,
    /// The slices to move.
    pub slices: SliceSet,
    /// Which slices travel which lane.
    pub dealing: Dealing,
    /// How slices are moved on.
    pub pacing: Pacing,
    /// Where sub-blocks lie in their blocks.
    pub chunking: Chunking,
    /// The node's task in each lane; `None` where it takes no part.
    pub lanes: Vec<Option<Task>>,
    /// The blocks it reads.
    pub locals: Vec<LocalBlock>,
    /// The nodes it receives from.
    pub inlets: Vec<Inlet>,
    /// The nodes it sends to.
    pub outlets: Vec<Outlet>,
    /// What output number `i` of the deliveries is; the same for all nodes of the plan.
    pub outputs: Vec<SubBlock>,
    /// Where its deliveries go.
    pub sinks: Vec<Sink>,
    /// After this long without a slice that it waits for, the node reports that it starves.
    pub stall_ms: u32,
}

/// A block on the node's own disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LocalBlock {
    /// Its index in the stripe, by which the tasks name it.
    pub index: BlockIndex,
    /// The store's name for it.
    pub id: BlockId,
    /// Its bytes; what is read beyond them counts as zeros. A node that has it with another length does not read it.
    pub bytes: u64,
    /// The digest that the store has recorded. A node that has it with another one does not read it; `None` if nothing
    /// is recorded, or the store has no digests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<Digest>,
}

/// An edge that comes in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inlet {
    /// The sender.
    pub from: NodeId,
    /// Where to dial it; `None` if it dials this node.
    pub dial: Option<String>,
    /// The edge's one-time key.
    pub key: EdgeKey,
    /// The name that the other end's certificate must carry, if the edge is encrypted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls_name: Option<String>,
}

/// An edge that goes out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outlet {
    /// The receiver.
    pub to: NodeId,
    /// Where to dial it; `None` if it dials this node, as is the rule between helpers.
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
    /// Its index in the stripe, by which the outputs name it.
    pub index: BlockIndex,
    /// The store's name for it.
    pub id: BlockId,
    /// Its bytes; what is delivered beyond them is padding and is dropped.
    pub bytes: u64,
    /// The digest that the store has recorded. A store that has several kinds says of what it makes the one of this kind, so
    /// that the two can be compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<Digest>,
    /// What becomes of it.
    pub end: SinkEnd,
}

/// What becomes of a delivery once all of it has come. How a store keeps a block, by a rename of its own or by handing
/// it to its own process, is the store's business and not said here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "end", rename_all = "kebab-case")]
pub enum SinkEnd {
    /// Whoever asked for the bytes has them where they were written. Nothing is sealed, and nothing committed.
    Taken,
    /// It becomes a block of the node's store: sealed, checked, and then committed.
    Kept {
        /// What it says of itself, if the store wants to know.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        label: Option<Box<StripeLabel>>,
        /// What the store's own process wants to see before it takes the block, if it wants to see something.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        permit: Option<Permit>,
    },
}

/// A task with its lane's number, as [`Assignment::tasks`] yields it.
pub type LaneTask<'a> = (u16, &'a Task);

impl Sink {
    /// What the block says of itself, if it is kept and has something to say.
    pub fn label(&self) -> Option<&StripeLabel> {
        match &self.end {
            SinkEnd::Kept { label, .. } => label.as_deref(),
            SinkEnd::Taken => None,
        }
    }

    /// What the store's own process wants to see before it takes the block.
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
