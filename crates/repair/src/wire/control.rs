//! The control plane: messages between the coordinator and the nodes that take its tasks.
//!
//! A message is a 4-byte big-endian length and that many bytes of JSON. Both ends dial and speak over
//! mutual TLS; who a node is comes from its certificate.

use codes::BlockIndex;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::{Assignment, BlockId, Epoch, JobId, NodeId, Pacing, Report, Scheme, StripeId};

/// The version of the control protocol; both ends must speak the same.
pub const VERSION: u32 = 2;

/// No message is longer.
pub const MAX_MESSAGE_BYTES: u32 = 256 << 20;

/// A client may have so many requests open on its connection; more are refused.
pub const MAX_OPEN_REQUESTS: usize = 256;

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
        /// Link rate in bytes per second, if configured.
        bandwidth: Option<u64>,
        /// All blocks it holds.
        blocks: Vec<HeldBlock>,
        /// Bytes free for blocks.
        free_bytes: u64,
    },
    /// First message of a client.
    RegisterClient {
        /// [`VERSION`].
        version: u32,
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
        result: Result<u32, crate::BlockProblem>,
    },
    /// Answer to [`ToNode::List`].
    Listed {
        /// The question's number.
        ask: u64,
        /// All blocks held.
        blocks: Vec<HeldBlock>,
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
    },
    /// Are you there?
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
        /// The block: one held, or one being delivered to this node by this job.
        block: BlockId,
        /// Bytes of a sub-block; one fingerprint for each.
        sub_block_bytes: u64,
        /// Number of sub-blocks.
        sub_blocks: u16,
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
    /// A client's request has ended.
    Closed {
        /// The client's number for it.
        tag: u64,
        /// How.
        result: Result<Ended, String>,
    },
}

/// How a client's request ended well.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// The scheme that was used in the end.
    pub scheme: Option<Scheme>,
    /// Plans that were dropped on the way, and why.
    pub replanned: Vec<String>,
}

/// A block that a helper holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldBlock {
    /// Its name.
    pub id: BlockId,
    /// Its bytes.
    pub bytes: u64,
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
