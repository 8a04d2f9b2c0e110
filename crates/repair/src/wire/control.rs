//! The control plane: messages between the coordinator and the nodes that take its tasks.
//!
//! A message is a 4-byte big-endian length and that many bytes of JSON. Both ends dial and speak over
//! mutual TLS; who a node is comes from its certificate.

use codes::BlockIndex;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::{
    Assignment, BlockId, Caps, Chunking, Digest, Epoch, JobId, LocalBlock, NodeId, Pacing, ParityOutcome,
    Report, Scheme, StatedRates, StripeId, StripeLabel,
};

/// The version of the control protocol; both ends must speak the same.
pub const VERSION: u32 = 9;

/// No message is longer. What nodes say has far lower limits, see [`limit`].
pub const MAX_MESSAGE_BYTES: u32 = 256 << 20;

/// A longer list of blocks travels in several messages, of this many bytes of JSON each at most.
pub const LISTING_PART_BYTES: usize = 512 << 10;

/// So many of a message's first bytes tell what it is.
pub const KIND_BYTES: usize = 24;

/// A client may have so many requests open on its connection; more are refused.
pub const MAX_OPEN_REQUESTS: usize = 256;

/// So many blocks are described in one message.
pub const DESCRIBED_AT_ONCE: usize = 256;

/// What a node says to the coordinator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FromNode {
    /// First message of a helper.
    RegisterHelper {
        /// [`VERSION`].
        version: u32,
        /// The cluster that its blocks belong to.
        cluster_id: String,
        /// Where its data port is reached.
        address: String,
        /// Its rack, if configured.
        rack: Option<String>,
        /// What its ports and its disk carry, as far as its configuration says.
        #[serde(default)]
        rates: StatedRates,
        /// The blocks it holds, or the first of them.
        blocks: Vec<HeldBlock>,
        /// Whether [`Held`](Self::Held) with more of them follows.
        #[serde(default)]
        more: bool,
        /// Bytes free for blocks.
        free_bytes: u64,
    },
    /// More of the blocks that a helper holds, before it is registered.
    Held {
        /// The next of them.
        blocks: Vec<HeldBlock>,
        /// Whether more follow.
        more: bool,
    },
    /// First message of a client.
    RegisterClient {
        /// [`VERSION`].
        version: u32,
        /// The bytes per second that it keeps to each way, if it was told to.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        bandwidth: Option<u64>,
        /// The rack it stands in, if it was told.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        rack: Option<String>,
    },
    /// What became of a job's tasks here.
    Report {
        /// The job.
        job: JobId,
        /// Which of its plans.
        epoch: Epoch,
        /// What happened.
        report: Report,
    },
    /// Answer to [`ToNode::Ping`].
    Pong {
        /// Bytes free for blocks.
        free_bytes: u64,
        /// Number of tasks in hand.
        tasks: u32,
    },
    /// What slices of jobs made of this node's ports between two pings, where they were busier than was last said.
    Seen {
        /// Bytes per second sent.
        up: u64,
        /// Bytes per second received.
        down: u64,
    },
    /// Answer to [`ToNode::Spare`].
    Unused {
        /// Of what repairs may send, in thousandths; nothing if they may send all they can, or that is not known yet.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        up: Option<u16>,
        /// The same of what they may receive.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        down: Option<u16>,
    },
    /// A block was removed, or was not there.
    Removed {
        /// The block.
        block: BlockId,
    },
    /// Answer to [`ToNode::Verify`].
    Verified {
        /// The question's number.
        ask: u64,
        /// The block.
        block: BlockId,
        /// Its digest, or what is wrong with it.
        result: Result<Option<Digest>, crate::BlockProblem>,
    },
    /// What [`ToNode::Verify`] asks for is being done, and a cap of the node holds it back: the answer takes longer.
    Verifying {
        /// The question's number.
        ask: u64,
    },
    /// Answer to [`ToNode::List`], or a part of it.
    Listed {
        /// The question's number.
        ask: u64,
        /// All blocks held, or the next of them.
        blocks: Vec<HeldBlock>,
        /// Whether more follow.
        #[serde(default)]
        more: bool,
    },
    /// Answer to [`ToNode::List`] of a helper that cannot list its blocks.
    ListFailed {
        /// The question's number.
        ask: u64,
        /// Why.
        problem: StoreProblem,
    },
    /// A block cannot be removed.
    RemoveFailed {
        /// The block.
        block: BlockId,
        /// Why.
        problem: StoreProblem,
    },
    /// Answer to [`ToNode::Describe`], in several messages if there are many blocks.
    Described {
        /// The question's number.
        ask: u64,
        /// What some of the blocks say of themselves. Those that cannot be opened are left out.
        blocks: Vec<Description>,
        /// Whether this was the last message of the answer.
        last: bool,
    },
    /// A client wants a read or a stripe of a put carried out.
    Open {
        /// The client's number for it, carried by its assignments and by its end.
        tag: u64,
        /// What is wanted.
        request: ClientRequest,
    },
    /// A client gives up a request.
    Close {
        /// The client's number for it.
        tag: u64,
    },
}

/// What the coordinator says to a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ToNode {
    /// The node is known from now on by this number.
    Registered {
        /// The number.
        node: NodeId,
    },
    /// The node is not taken; the connection ends.
    Refused {
        /// Why, for people.
        reason: String,
        /// Whether it may be otherwise in a few seconds.
        #[serde(default)]
        passing: bool,
    },
    /// Are you there? Also asked before the registration is answered.
    Ping,
    /// A share of a plan.
    Assign(Box<Assignment>),
    /// Stop the tasks of this plan and say what was delivered ([`Report::Stopped`]).
    Stop {
        /// The job.
        job: JobId,
        /// Which of its plans.
        epoch: Epoch,
    },
    /// Somebody complains that this plan does not move: say at once what you wait for ([`Report::Waiting`]).
    Explain {
        /// The job.
        job: JobId,
        /// Which of its plans.
        epoch: Epoch,
    },
    /// Make what was delivered durable and say its digest ([`Report::Sealed`]).
    Seal {
        /// The job.
        job: JobId,
        /// Which of its plans.
        epoch: Epoch,
    },
    /// Fingerprint a block ([`Report::Fingerprinted`]).
    Fingerprint {
        /// The job that asks.
        job: JobId,
        /// Which of its plans.
        epoch: Epoch,
        /// The block: one held, as it must be found, or one being delivered to this node by this job.
        block: LocalBlock,
        /// Where its sub-blocks lie: one fingerprint for each.
        chunking: Chunking,
        /// Offsets inside each sub-block: only these bytes count.
        window: (u64, u64),
        /// Chooses the fingerprint's coefficients.
        seed: u64,
    },
    /// Make the delivered blocks visible under their names ([`Report::Committed`]).
    Commit {
        /// The job.
        job: JobId,
        /// Which of its plans.
        epoch: Epoch,
    },
    /// Read a committed block back ([`Report::Reread`]).
    Reread {
        /// The job.
        job: JobId,
        /// Which of its plans.
        epoch: Epoch,
        /// The block.
        block: BlockId,
    },
    /// Forget the job; what it delivered and did not commit is dropped.
    Forget {
        /// The job.
        job: JobId,
    },
    /// Keep to these caps from now on, and to your own where they are lower.
    Limits(Caps),
    /// Say which part of what repairs may send and receive has been left unused since this was last asked, or since these caps
    /// changed ([`FromNode::Unused`]).
    Spare,
    /// Remove a block ([`FromNode::Removed`]).
    Remove {
        /// The block.
        block: BlockId,
    },
    /// Read a block and hold it against its checksums ([`FromNode::Verified`]).
    Verify {
        /// The question's number.
        ask: u64,
        /// The block.
        block: BlockId,
    },
    /// Say what blocks you hold ([`FromNode::Listed`]).
    List {
        /// The question's number.
        ask: u64,
    },
    /// Say what all blocks you hold say of themselves ([`FromNode::Described`]).
    Describe {
        /// The question's number.
        ask: u64,
    },
    /// A client's request has ended.
    Closed {
        /// The client's number for it.
        tag: u64,
        /// How.
        result: Result<Ended, super::RequestFailure>,
    },
}

impl ToNode {
    /// The job that it concerns, if it concerns one.
    pub fn job(&self) -> Option<JobId> {
        match self {
            Self::Assign(assignment) => Some(assignment.job),
            Self::Stop { job, .. }
            | Self::Explain { job, .. }
            | Self::Seal { job, .. }
            | Self::Fingerprint { job, .. }
            | Self::Commit { job, .. }
            | Self::Reread { job, .. }
            | Self::Forget { job } => Some(*job),
            _ => None,
        }
    }

    /// The plan in whose name it is answered, if it is.
    pub fn epoch(&self) -> Option<Epoch> {
        match self {
            Self::Assign(assignment) => Some(assignment.epoch),
            Self::Stop { epoch, .. }
            | Self::Explain { epoch, .. }
            | Self::Seal { epoch, .. }
            | Self::Fingerprint { epoch, .. }
            | Self::Commit { epoch, .. }
            | Self::Reread { epoch, .. } => Some(*epoch),
            _ => None,
        }
    }
}

/// How a client's request ended well.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// The scheme that was used in the end.
    pub scheme: Option<Scheme>,
    /// Plans that were dropped on the way, and why.
    pub replanned: Vec<String>,
    /// What came of the check that was asked for, if there was one.
    #[serde(default)]
    pub parity: Option<ParityOutcome>,
    /// The digests of the blocks that were stored, as their nodes found them, if any were.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub digests: Vec<(BlockIndex, Digest)>,
}

/// Why a helper cannot do what it is asked outside of jobs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(tag = "problem", content = "detail", rename_all = "kebab-case")]
pub enum StoreProblem {
    /// The machine is short of something, such as descriptors or memory: it may do so later.
    #[error("the machine cannot at the moment: {0}")]
    Machine(String),
    /// The store refuses.
    #[error("{0}")]
    Store(String),
}

/// A block that a helper holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldBlock {
    /// Its name.
    pub id: BlockId,
    /// Its bytes.
    pub bytes: u64,
}

/// What a block on a helper says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Description {
    /// Its name.
    pub id: BlockId,
    /// Its bytes.
    pub bytes: u64,
    /// Its digest, by its own checksums; absent if its store has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<Digest>,
    /// Its index in its stripe, and the stripe; absent if whoever stored it did not say.
    pub label: Option<(BlockIndex, StripeLabel)>,
}

/// What a client asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "want", rename_all = "kebab-case")]
pub enum ClientRequest {
    /// Deliver a window of some blocks of a stripe to the client.
    Read {
        /// The stripe.
        stripe: StripeId,
        /// The blocks.
        blocks: Vec<BlockIndex>,
        /// Only these of their sub-blocks; all if absent.
        sub_blocks: Option<(u16, u16)>,
        /// Offsets inside each sub-block.
        window: (u64, u64),
        /// The scheme for what is lost.
        scheme: Scheme,
        /// Bytes of a slice, if the client cares.
        slice_bytes: Option<u32>,
        /// How nodes move slices on; the scheme's own way if absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pacing: Option<Pacing>,
        /// Whether what is delivered must agree with one block more than is needed to decode it.
        #[serde(default)]
        verify: bool,
        /// Read as if these blocks were lost: for measuring and for trying a scheme out.
        #[serde(default)]
        pretend_lost: Vec<BlockIndex>,
    },
    /// Encode a stripe from the client's data blocks and store all its blocks.
    PutStripe {
        /// The put it is part of.
        put: u64,
        /// The stripe's position in the file.
        position: u32,
    },
}

/// The most bytes that a message of a node may have, by its first [`KIND_BYTES`] bytes: as many as its kind needs.
/// A name that is not where [`encode`] writes it has the lowest limit.
pub fn limit(start: &[u8]) -> usize {
    let start = start.strip_prefix(b"{").unwrap_or(start);
    let name = start.strip_prefix(b"\"").and_then(|rest| rest.split(|&byte| byte == b'"').next());
    match name {
        // Which slices are there: a few bytes for every range of them.
        Some(b"report") => 16 << 20,
        // A part and the rest of the message around it.
        Some(b"register-helper" | b"held" | b"listed") => LISTING_PART_BYTES + (64 << 10),
        // Of each block a label, with a file's name of up to 1 KiB, six bytes for each at worst.
        Some(b"described") => DESCRIBED_AT_ONCE << 13,
        // Block indices; and what systems say of their errors.
        Some(b"open" | b"verified" | b"list-failed" | b"remove-failed") => 64 << 10,
        _ => 1 << 10,
    }
}

/// Cuts a list of blocks into parts that fit into one message each; one part at least.
pub fn parts(blocks: Vec<HeldBlock>) -> Vec<Vec<HeldBlock>> {
    let (mut parts, mut room) = (vec![Vec::new()], LISTING_PART_BYTES);
    for block in blocks {
        let bytes = serde_json::to_vec(&block).expect("messages have string keys and go to memory").len() + 1;
        if bytes > room {
            parts.push(Vec::new());
            room = LISTING_PART_BYTES;
        }
        room = room.saturating_sub(bytes);
        parts.last_mut().expect("one at least").push(block);
    }
    parts
}

/// Why a message cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// Its length is beyond [`MAX_MESSAGE_BYTES`].
    #[error("a control message of {0} bytes; at most {MAX_MESSAGE_BYTES} are allowed")]
    TooLong(u32),
    /// It is not JSON, or not a message.
    #[error("a control message that cannot be read: {0}")]
    Malformed(#[from] serde_json::Error),
}

/// The bytes of a message, its length first.
///
/// # Panics
/// If it is longer than [`MAX_MESSAGE_BYTES`], which no message of ours is.
pub fn encode(message: &impl Serialize) -> Vec<u8> {
    let mut bytes = vec![0; 4];
    serde_json::to_writer(&mut bytes, message).expect("messages have string keys and go to memory");
    let length = u32::try_from(bytes.len() - 4).ok().filter(|&length| length <= MAX_MESSAGE_BYTES);
    bytes[..4].copy_from_slice(&length.expect("messages are bounded").to_be_bytes());
    bytes
}

/// The length of the message that follows these four bytes.
///
/// # Errors
/// [`ControlError::TooLong`] if it is beyond the limit.
pub fn decode_length(bytes: [u8; 4]) -> Result<usize, ControlError> {
    match u32::from_be_bytes(bytes) {
        length if length > MAX_MESSAGE_BYTES => Err(ControlError::TooLong(length)),
        length => Ok(length as usize),
    }
}

/// Reads a message without its length.
///
/// # Errors
/// [`ControlError::Malformed`] if it is none.
pub fn decode<M: DeserializeOwned>(bytes: &[u8]) -> Result<M, ControlError> {
    Ok(serde_json::from_slice(bytes)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(count: usize) -> Vec<HeldBlock> {
        (0..count)
            .map(|at| HeldBlock { id: BlockId(format!("{at}.{}", "x".repeat(190))), bytes: 1 })
            .collect()
    }

    #[test]
    fn parts_of_a_listing_are_within_the_limit_of_their_message() {
        for count in [0, 1, 2_000, 30_000] {
            let parts = parts(held(count));
            assert_eq!(parts.concat(), held(count));
            for blocks in parts {
                for message in [
                    FromNode::Held { blocks: blocks.clone(), more: true },
                    FromNode::Listed { ask: u64::MAX, blocks, more: true },
                ] {
                    let bytes = encode(&message);
                    assert!(bytes.len() - 4 <= limit(&bytes[4..]), "{} bytes", bytes.len());
                }
            }
        }
    }

    #[test]
    fn every_kind_has_a_limit_by_its_first_bytes() {
        let open = ClientRequest::PutStripe { put: 1, position: 2 };
        for (message, expected) in [
            (FromNode::Pong { free_bytes: 1, tasks: 2 }, 1 << 10),
            (FromNode::RegisterClient { version: VERSION, bandwidth: Some(1), rack: None }, 1 << 10),
            (FromNode::Open { tag: 1, request: open }, 64 << 10),
            (FromNode::Held { blocks: Vec::new(), more: false }, LISTING_PART_BYTES + (64 << 10)),
        ] {
            let bytes = encode(&message);
            assert_eq!(limit(&bytes[4..][..KIND_BYTES.min(bytes.len() - 4)]), expected, "{message:?}");
        }
        for nonsense in [&b""[..], b"{", b"{\"", b"\xff\xff", b"{ \"report\""] {
            assert_eq!(limit(nonsense), 1 << 10);
        }
    }
}
