//! Reports by nodes about their part of a job.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{BlockId, Digest, Fingerprint, NodeId, SinkEnd, SliceSet};

/// A node's report about its part of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "kebab-case")]
pub enum Report {
    /// The progress of a requestor with the plan.
    Progress {
        /// The number of slices delivered to this node.
        slices: u32,
        /// The first slice that is not delivered to this node yet; all earlier slices are.
        #[serde(default)]
        whole: u32,
    },
    /// All deliveries of this plan to this node are written.
    Delivered,
    /// Everything that this node currently waits for. Sent when an edge has been idle for as long as the
    /// assignment allows, and in answer to `Explain`.
    Waiting {
        /// The senders from which the node waits to receive, each with the slice that is due.
        receive: Vec<Due>,
        /// The receivers to which the node waits to send, each with the slice that is due.
        send: Vec<Due>,
        /// How far the node has sent to each receiver.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        sent: Vec<Sent>,
    },
    /// The node is idle under this plan: it has sent everything that it had to send, or had no part in the
    /// plan. Sent in answer to `Explain` if there is nothing to wait for.
    AtRest,
    /// The node's own caps throttle its part, so it is slow on purpose.
    Limited,
    /// The connection of an edge broke.
    Closed {
        /// The node at the other end of the edge.
        peer: NodeId,
        /// The error reported by the system.
        detail: String,
    },
    /// A frame arrived that failed its checksum or violated the protocol.
    BadFrame {
        /// The sender.
        from: NodeId,
        /// The violation.
        detail: String,
    },
    /// A local block cannot be read.
    BadBlock {
        /// The block.
        block: BlockId,
        /// The problem.
        problem: BlockProblem,
    },
    /// A delivery cannot be written.
    SinkFailed {
        /// The block.
        block: BlockId,
        /// The problem.
        problem: SinkProblem,
    },
    /// The node refuses an instruction.
    Refused {
        /// The reason.
        why: Refusal,
    },
    /// Answer to `Stop`: the slices delivered and written, over all plans of the job.
    Stopped {
        /// The slices.
        delivered: SliceSet,
    },
    /// Answer to `Seal`: the deliveries are durable.
    Sealed {
        /// The delivered blocks and their digests, if the store has digests.
        digests: Vec<(BlockId, Option<Digest>)>,
        /// Extra time that the store's own process may need to accept these blocks and to return them, on top
        /// of the disk's time, in milliseconds; 0 if the store has no such process.
        #[serde(default)]
        hand_over_ms: u32,
    },
    /// Answer to `Fingerprint`: the fingerprints of a block.
    Fingerprinted {
        /// The block.
        block: BlockId,
        /// The seed given in the request.
        seed: u64,
        /// One fingerprint per sub-block.
        fingerprints: Vec<Fingerprint>,
    },
    /// Answer to `Commit`: the blocks are visible in the store.
    Committed,
    /// Answer to `Reread`: the digest of the block as read back from disk.
    Reread {
        /// The block.
        block: BlockId,
        /// The digest of the block, if the store has digests.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        digest: Option<Digest>,
    },
}

/// A slice that is due on an edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Due {
    /// The node at the other end of the edge.
    pub node: NodeId,
    /// The first slice that has not passed the edge.
    pub slice: u32,
    /// How long the edge has been idle, in milliseconds.
    pub rested_ms: u32,
}

/// How far a node has sent to another one. Slices that were sent but not received are in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Sent {
    /// The receiver.
    pub node: NodeId,
    /// The first slice of which no frame has been sent.
    pub before: u32,
}

/// The problem with a block that should be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "problem", content = "detail", rename_all = "kebab-case")]
pub enum BlockProblem {
    /// The block does not exist.
    Missing,
    /// The bytes do not match their checksums.
    Corrupt(String),
    /// The coordinator's parity check has shown the bytes to be wrong, although they match their checksums.
    /// Helpers never report this.
    #[serde(skip)]
    ContradictsParity,
    /// The disk fails to read the block, even after retries.
    Unreadable(String),
    /// The machine cannot read the block at the moment: descriptors or memory are exhausted, or a single read
    /// failed. The block itself may be fine.
    Unavailable(String),
}

impl fmt::Display for BlockProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => f.write_str("missing"),
            Self::Corrupt(detail) => write!(f, "corrupt: {detail}"),
            Self::ContradictsParity => f.write_str("corrupt: it contradicts the parity of its stripe"),
            Self::Unreadable(detail) => write!(f, "unreadable: {detail}"),
            Self::Unavailable(detail) => write!(f, "not available at the moment: {detail}"),
        }
    }
}

/// Why a delivery cannot be written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "problem", content = "detail", rename_all = "kebab-case")]
pub enum SinkProblem {
    /// The disk is full.
    NoSpace,
    /// The system reported an I/O error.
    Io(String),
    /// The store's own process is unreachable, rejects the block, or does not list it afterwards. Another
    /// node may succeed.
    Process(String),
    /// The store currently accepts this block from no node, for example because another writer works on the
    /// stripe.
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

/// Why a node refuses an instruction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(tag = "refusal", rename_all = "kebab-case")]
pub enum Refusal {
    /// The assignment is inconsistent.
    #[error("{detail}")]
    Assignment {
        /// The inconsistency.
        detail: String,
    },
    /// The edge is less protected than the node's own configuration requires.
    #[error(
        "the edge to node {peer} is not encrypted, but this node's mend.toml requires it; give data_tls the \
         same value in every mend.toml and restart the coordinator"
    )]
    PlainEdge {
        /// The node at the other end.
        peer: NodeId,
    },
    /// The plan holds whole blocks in memory, and the memory left for such plans is too small.
    #[error(
        "moving whole blocks needs {} MiB of memory, but {} MiB are left for that; move slice by slice \
         (pacing `pipelined`), read less at once, or try again when other such jobs have ended", needed_bytes >> 20, left_bytes >> 20
    )]
    Memory {
        /// The memory that the plan would hold at once, in bytes.
        needed_bytes: u64,
        /// The remaining memory for such plans, in bytes.
        left_bytes: u64,
    },
    /// The job has more messages waiting for the disk than a correct coordinator ever sends.
    #[error("more than {most} messages of one job wait for its disk")]
    Messages {
        /// The maximum number of waiting messages.
        most: usize,
    },
    /// The client has no open request that provides what the assignment needs.
    #[error("no open request of this client provides {what}")]
    NotBrought {
        /// The thing that the assignment needs.
        what: Brought,
    },
    /// The assignment ends the delivery in a way that this node does not support; see [`SinkEnd`].
    #[error("cannot deliver block {block} to this node as requested: {}", match **end {
        SinkEnd::Taken { .. } => "this node stores every delivered block",
        SinkEnd::Kept { .. } => "this node does not store delivered blocks",
    })]
    End {
        /// The block.
        block: BlockId,
        /// How the assignment ends the delivery.
        end: Box<SinkEnd>,
    },
    /// The instruction requires a store, and this node has none.
    #[error("this node has no store")]
    NoStore,
}

/// The things that a client's request can provide.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Brought {
    /// Blocks to read from.
    Sources,
    /// Destinations for deliveries.
    Sinks,
}

impl fmt::Display for Brought {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sources => "blocks to read",
            Self::Sinks => "a destination for rebuilt data",
        })
    }
}
