//! What nodes say of their part of a job.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{BlockId, Digest, Fingerprint, NodeId, SliceSet};

/// Reports that a node makes about its part of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "kebab-case")]
pub enum Report {
    /// So many slices have been delivered under this plan.
    Progress {
        /// Slices delivered here.
        slices: u32,
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
    /// The assignment cannot be carried out.
    Refused {
        /// Why.
        detail: String,
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
    },
    /// Answer to `Fingerprint`.
    Fingerprinted {
        /// The block.
        block: BlockId,
        /// One for each sub-block.
        fingerprints: Vec<Fingerprint>,
    },
    /// Answer to `Commit`.
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
}

impl fmt::Display for SinkProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSpace => f.write_str("no space left"),
            Self::Io(detail) => f.write_str(detail),
        }
    }
}
