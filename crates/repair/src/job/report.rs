//! What nodes say of their part of a job.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{BlockId, Digest, Fingerprint, NodeId, SinkEnd, SliceSet};

/// Reports that a node makes about its part of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "kebab-case")]
pub enum Report {
    /// So many slices have been delivered under this plan.
    Progress {
        /// Slices delivered here.
        slices: u32,
        /// All slices before this one are delivered here.
        #[serde(default)]
        whole: u32,
    },
    /// All deliveries of this plan to this node are written.
    Delivered,
    /// All that this node waits for at the moment. It is said when some edge has rested for as long as the assignment
    /// allows, and as the answer to `Explain`.
    Waiting {
        /// The senders that do not send what is due.
        receive: Vec<Due>,
        /// The receivers that do not take what is due.
        send: Vec<Due>,
    },
    /// Nothing of this plan moves here any more, or ever did: all that this node had to send has left it. The answer to
    /// `Explain` where there is nothing to wait for.
    AtRest,
    /// This node's caps hold back its part: it is slow because it shall be.
    Limited,
    /// An edge broke.
    Closed {
        /// The node at its other end.
        peer: NodeId,
        /// What the system said.
        detail: String,
    },
    /// A frame came that its checksum or the protocol forbids.
    BadFrame {
        /// The sender.
        from: NodeId,
        /// What was wrong with it.
        detail: String,
    },
    /// A local block cannot be read.
    BadBlock {
        /// The block.
        block: BlockId,
        /// Why.
        problem: BlockProblem,
    },
    /// A delivery cannot be written.
    SinkFailed {
        /// The block.
        block: BlockId,
        /// Why.
        problem: SinkProblem,
    },
    /// The node does not do what it is told.
    Refused {
        /// Why.
        why: Refusal,
    },
    /// Answer to `Stop`: what is delivered and written, over all plans of the job.
    Stopped {
        /// The slices.
        delivered: SliceSet,
    },
    /// Answer to `Seal`.
    Sealed {
        /// The delivered blocks and their digests, where the store has any.
        digests: Vec<(BlockId, Option<Digest>)>,
        /// How long the store's own process may take, on top of what a disk does, to take these blocks over and to give
        /// them back; 0 from a store that needs none.
        #[serde(default)]
        hand_over_ms: u32,
    },
    /// Answer to `Fingerprint`.
    Fingerprinted {
        /// The block.
        block: BlockId,
        /// As it was asked with.
        seed: u64,
        /// One for each sub-block.
        fingerprints: Vec<Fingerprint>,
    },
    /// Answer to `Commit`: the blocks are there for everybody who asks the store.
    Committed,
    /// Answer to `Reread`: the digest of what the disk gives back.
    Reread {
        /// The block.
        block: BlockId,
        /// Its digest, if the store has one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        digest: Option<Digest>,
    },
}

/// A slice that is due on an edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Due {
    /// The node at the edge's other end.
    pub node: NodeId,
    /// The first slice that has not passed.
    pub slice: u32,
    /// How long the edge has rested.
    pub rested_ms: u32,
}

/// What is wrong with a block that was to be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "problem", content = "detail", rename_all = "kebab-case")]
pub enum BlockProblem {
    /// It is not there.
    Missing,
    /// Its bytes differ from their checksums.
    Corrupt(String),
    /// The disk does not give it, however often it is asked.
    Unreadable(String),
    /// The machine cannot read it at the moment, for want of descriptors or memory, or because one read failed. It
    /// says nothing of the block.
    Unavailable(String),
}

impl fmt::Display for BlockProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => f.write_str("missing"),
            Self::Corrupt(detail) => write!(f, "corrupt: {detail}"),
            Self::Unreadable(detail) => write!(f, "unreadable: {detail}"),
            Self::Unavailable(detail) => write!(f, "not to be had at the moment: {detail}"),
        }
    }
}

/// Why a delivery cannot be written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "problem", content = "detail", rename_all = "kebab-case")]
pub enum SinkProblem {
    /// The disk is full.
    NoSpace,
    /// The system refuses.
    Io(String),
    /// The store's own process cannot be reached, does not take the block, or does not show it afterwards. Another node
    /// may do better.
    Process(String),
    /// The store takes no block now, whoever brings it: somebody else works on the stripe, say.
    NotNow(String),
}

impl fmt::Display for SinkProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSpace => f.write_str("no space left"),
            Self::Io(detail) | Self::Process(detail) | Self::NotNow(detail) => f.write_str(detail),
        }
    }
}

/// Why a node does not do what it is told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(tag = "refusal", rename_all = "kebab-case")]
pub enum Refusal {
    /// The assignment contradicts itself.
    #[error("{detail}")]
    Assignment {
        /// How.
        detail: String,
    },
    /// The edge is less protected than the node's own configuration demands.
    #[error(
        "the edge to node {peer} is plain, and this node's mend.toml encrypts data edges; give data_tls the same value \
         in every mend.toml and start the coordinator again"
    )]
    PlainEdge {
        /// The node at its other end.
        peer: NodeId,
    },
    /// Whole blocks do not find room in memory.
    #[error(
        "moving whole blocks would take {} MiB of memory, and {} MiB are left for that; move slice by slice (pacing \
         `pipelined`), read less at once, or try again when other such jobs have ended", needed_bytes >> 20, left_bytes >> 20
    )]
    Memory {
        /// What the plan would hold at once.
        needed_bytes: u64,
        /// What is left of what all such plans may hold.
        left_bytes: u64,
    },
    /// More messages of one job wait for its disk than any coordinator sends that keeps to the protocol.
    #[error("more than {most} messages of one job wait for its disk")]
    Messages {
        /// So many may wait.
        most: usize,
    },
    /// The request that the assignment serves brought nothing of this kind along, or is closed.
    #[error("no open request of this client brought {what} along")]
    NotBrought {
        /// What was looked for.
        what: Brought,
    },
    /// The node cannot give a delivery the end that it is to have.
    #[error("block {block} cannot end here as it is to: {}", match **end {
        SinkEnd::Taken => "a store keeps what is delivered to it",
        SinkEnd::Kept { .. } => "nothing is kept here",
    })]
    End {
        /// The block.
        block: BlockId,
        /// What was to become of it.
        end: Box<SinkEnd>,
    },
    /// Only a node with a store can be asked this.
    #[error("this node has no store")]
    NoStore,
}

/// What a client's request may bring along.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Brought {
    /// Blocks to read from.
    Sources,
    /// Places to deliver to.
    Sinks,
}

impl fmt::Display for Brought {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sources => "blocks to read",
            Self::Sinks => "a place to deliver to",
        })
    }
}
