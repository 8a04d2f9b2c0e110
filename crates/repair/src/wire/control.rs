//! The control protocol: messages between the coordinator and the nodes that carry out its tasks.
//!
//! A message is a 4-byte big-endian length followed by that many bytes of JSON. Nodes dial the coordinator.
//! Connections use mutual TLS, and a node's identity comes from its certificate.

use codes::BlockIndex;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::{
    Assignment, BlockId, Caps, Chunking, Digest, Epoch, Heat, JobId, LocalBlock, NodeId, Pacing,
    ParityOutcome, Report, Scheme, StatedRates, StripeId, StripeLabel,
};

/// The version of the control protocol; both ends must have the same version.
pub const VERSION: u32 = 12;

/// The maximum length of a message. Messages from nodes have far lower limits, see [`limit`].
pub const MAX_MESSAGE_BYTES: u32 = 256 << 20;

/// The maximum size of one part of a block list, in bytes of JSON; longer lists are split into several
/// messages.
pub const LISTING_PART_BYTES: usize = 512 << 10;

/// The number of leading bytes that suffice to recognise a message's kind.
pub const KIND_BYTES: usize = 24;

/// The maximum number of open requests on a client's connection; further requests are refused.
pub const MAX_OPEN_REQUESTS: usize = 256;

/// The maximum number of blocks described in one message.
pub const DESCRIBED_AT_ONCE: usize = 256;

/// The maximum size of the changes in one [`FromNode::Heat`], in bytes of JSON; further changes wait for the
/// next ping.
pub const HEAT_BYTES: usize = 60 << 10;

/// A message from a node to the coordinator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FromNode {
    /// The first message of a helper.
    RegisterHelper {
        /// The sender's [`VERSION`].
        version: u32,
        /// The id of the cluster that the helper's blocks belong to.
        cluster_id: String,
        /// The address of the helper's data port.
        address: String,
        /// The helper's rack, if configured.
        rack: Option<String>,
        /// The rates of the helper's ports and disk, where configured.
        #[serde(default)]
        rates: StatedRates,
        /// The blocks that the helper holds, or the first part of the list.
        blocks: Vec<HeldBlock>,
        /// Whether more blocks follow in [`Held`](Self::Held).
        #[serde(default)]
        more: bool,
        /// Why the list is incomplete: the state of a block that is not listed is unknown. `None` if the list
        /// has all blocks.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        incomplete: Option<String>,
        /// Free space for blocks, in bytes.
        free_bytes: u64,
    },
    /// Another part of the helper's block list. The coordinator registers the helper when it has the whole
    /// list.
    Held {
        /// The next blocks.
        blocks: Vec<HeldBlock>,
        /// Whether more blocks follow.
        more: bool,
    },
    /// The first message of a client.
    RegisterClient {
        /// The sender's [`VERSION`].
        version: u32,
        /// The client's bandwidth limit in each direction in bytes per second, if set.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        bandwidth: Option<u64>,
        /// The client's rack, if set.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        rack: Option<String>,
    },
    /// A report about a job's tasks on this node.
    Report {
        /// The job.
        job: JobId,
        /// The epoch of the plan.
        epoch: Epoch,
        /// The report.
        report: Report,
    },
    /// Answer to [`ToNode::Ping`]: the node is alive.
    Pong {
        /// Free space for blocks, in bytes.
        free_bytes: u64,
        /// The number of running tasks.
        tasks: u32,
        /// Why the node cannot store blocks, if its store has found that.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        write_problem: Option<String>,
    },
    /// The throughput of jobs' slices at this node's ports between two pings, sent if it exceeds the last
    /// value reported.
    Seen {
        /// Bytes per second sent.
        up: u64,
        /// Bytes per second received.
        down: u64,
    },
    /// The rate at which this helper sends what clients read, sent after a ping if it has changed by more than
    /// a tenth. On a new connection the rate begins at 0.
    UserLoad {
        /// Bytes per second sent for clients' reads since the last ping.
        bytes_per_s: u64,
    },
    /// Changes of the helper's blocks that are in memory or that clients read often, sent after a ping. On a
    /// new connection all blocks begin as [`Heat::Cold`].
    Heat {
        /// The blocks whose heat has changed.
        blocks: Vec<BlockHeat>,
    },
    /// Answer to [`ToNode::Spare`]: the unused parts of the caps on repairs.
    Unused {
        /// The unused part of the cap on sending repairs, in thousandths; `None` without such a cap, or if
        /// the part is not known yet.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        up: Option<u16>,
        /// The unused part of the cap on receiving repairs, likewise.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        down: Option<u16>,
    },
    /// Answer to [`ToNode::Remove`]: the block was removed, or did not exist.
    Removed {
        /// The block.
        block: BlockId,
    },
    /// Answer to [`ToNode::Verify`]: the result of reading the block.
    Verified {
        /// The number of the question that this message answers.
        ask: u64,
        /// The block.
        block: BlockId,
        /// The digest, or the problem with the block.
        result: Result<Option<Digest>, crate::BlockProblem>,
    },
    /// The work for [`ToNode::Verify`] is throttled by one of the node's caps, so the answer will take
    /// longer.
    Verifying {
        /// The number of the question that this message is about.
        ask: u64,
    },
    /// Answer to [`ToNode::List`], or one part of it.
    Listed {
        /// The number of the question that this message answers.
        ask: u64,
        /// All blocks held, or the next part of the list.
        blocks: Vec<HeldBlock>,
        /// Whether more blocks follow.
        #[serde(default)]
        more: bool,
    },
    /// Answer to [`ToNode::List`] from a helper that cannot list its blocks.
    ListFailed {
        /// The number of the question that this message answers.
        ask: u64,
        /// The problem.
        problem: StoreProblem,
    },
    /// Answer to [`ToNode::Remove`]: the block could not be removed.
    RemoveFailed {
        /// The block.
        block: BlockId,
        /// The problem.
        problem: StoreProblem,
    },
    /// Answer to [`ToNode::Describe`], in several messages if there are many blocks or the disk is slow.
    Described {
        /// The number of the question that this message answers.
        ask: u64,
        /// The descriptions of some of the blocks; may be empty if the disk is slow. Blocks that cannot be opened
        /// are left out.
        blocks: Vec<Description>,
        /// Whether this is the last message of a complete answer. If blocks are left out that may be intact, because
        /// the machine or the whole disk fails, there is no such message.
        last: bool,
    },
    /// A client requests a read, or the put of a stripe.
    Open {
        /// A number that the client chooses for the request. The coordinator repeats it in the assignments
        /// that it sends to the client for this request, and in the message that ends the request.
        tag: u64,
        /// The request.
        request: ClientRequest,
    },
    /// A client cancels a request.
    Close {
        /// The client's number for the request.
        tag: u64,
    },
    /// A client received a whole block whose bytes differ from the block's recorded digest. The node that
    /// holds the block should verify it.
    Garbled {
        /// The stripe.
        stripe: StripeId,
        /// The block.
        block: BlockIndex,
    },
}

/// A message from the coordinator to a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ToNode {
    /// The node is registered under this number.
    Registered {
        /// The number.
        node: NodeId,
    },
    /// The node is rejected, and the connection closes.
    Refused {
        /// The reason, for people.
        reason: String,
        /// Whether a retry in a few seconds may succeed.
        #[serde(default)]
        passing: bool,
    },
    /// Checks that the node is alive; also sent before the registration is answered.
    Ping,
    /// The node's assignment in a plan.
    Assign(Box<Assignment>),
    /// Stop the tasks of this plan and report the delivered slices ([`Report::Stopped`]).
    Stop {
        /// The job.
        job: JobId,
        /// The epoch of the plan.
        epoch: Epoch,
    },
    /// This plan may be stuck: report at once what the node waits for ([`Report::Waiting`]).
    Explain {
        /// The job.
        job: JobId,
        /// The epoch of the plan.
        epoch: Epoch,
    },
    /// The job's stripe cannot lose another block: reads on the node no longer slow the job down.
    AtRisk {
        /// The job.
        job: JobId,
    },
    /// Make the deliveries durable and report their digests ([`Report::Sealed`]).
    Seal {
        /// The job.
        job: JobId,
        /// The epoch of the plan.
        epoch: Epoch,
    },
    /// Compute fingerprints of a block ([`Report::Fingerprinted`]).
    Fingerprint {
        /// The job.
        job: JobId,
        /// The epoch of the plan.
        epoch: Epoch,
        /// The block: either one that the node holds, which must match this description, or a delivery of
        /// this job to the node.
        block: LocalBlock,
        /// The layout of the block's sub-blocks; the answer has one fingerprint per sub-block.
        chunking: Chunking,
        /// The range of offsets inside each sub-block to fingerprint.
        window: (u64, u64),
        /// The seed of the coefficients.
        seed: u64,
    },
    /// Make the deliveries visible under their names ([`Report::Committed`]).
    Commit {
        /// The job.
        job: JobId,
        /// The epoch of the plan.
        epoch: Epoch,
    },
    /// Read a whole block back: a committed one, or a survivor ([`Report::Reread`]).
    Reread {
        /// The job.
        job: JobId,
        /// The epoch of the plan.
        epoch: Epoch,
        /// The block.
        block: BlockId,
        /// The block's digest as recorded by the store; `None` if no digest of it is in use.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        digest: Option<Digest>,
    },
    /// Forget the job and drop its uncommitted deliveries.
    Forget {
        /// The job.
        job: JobId,
    },
    /// Apply these caps from now on; the node's own caps take precedence where they are lower.
    Limits(Caps),
    /// Report which part of the caps on repairs has been unused since the last such question, or since the
    /// caps last changed ([`FromNode::Unused`]).
    Spare,
    /// Remove a block ([`FromNode::Removed`]).
    Remove {
        /// The block.
        block: BlockId,
    },
    /// Read a block and compare it with its checksums ([`FromNode::Verified`]).
    Verify {
        /// The number of the question, which the answer repeats.
        ask: u64,
        /// The block.
        block: BlockId,
        /// The block's digest as recorded by the store; `None` if no digest of it is in use.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        digest: Option<Digest>,
    },
    /// List the blocks held ([`FromNode::Listed`]).
    List {
        /// The number of the question, which the answer repeats.
        ask: u64,
    },
    /// Report the labels and digests of all blocks held ([`FromNode::Described`]).
    Describe {
        /// The number of the question, which the answer repeats.
        ask: u64,
    },
    /// A client's request has ended.
    Closed {
        /// The client's number for the request.
        tag: u64,
        /// The result.
        result: Result<Ended, super::RequestFailure>,
    },
}

impl ToNode {
    /// The job that the message is about, if any.
    pub fn job(&self) -> Option<JobId> {
        match self {
            Self::Assign(assignment) => Some(assignment.job),
            Self::Stop { job, .. }
            | Self::Explain { job, .. }
            | Self::AtRisk { job }
            | Self::Seal { job, .. }
            | Self::Fingerprint { job, .. }
            | Self::Commit { job, .. }
            | Self::Reread { job, .. }
            | Self::Forget { job } => Some(*job),
            _ => None,
        }
    }

    /// The epoch of the plan that the message is about, if any.
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

/// The result of a successful client request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// The scheme of the last plan.
    pub scheme: Option<Scheme>,
    /// Why earlier plans were dropped.
    pub replanned: Vec<String>,
    /// The outcome of the parity check, if one was requested.
    #[serde(default)]
    pub parity: Option<ParityOutcome>,
    /// The digests of stored blocks, as reported by their nodes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub digests: Vec<(BlockIndex, Digest)>,
}

/// Why a helper cannot answer a question outside jobs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(tag = "problem", content = "detail", rename_all = "kebab-case")]
pub enum StoreProblem {
    /// The machine lacks resources such as descriptors or memory; a later attempt may succeed.
    #[error("the machine lacks resources at the moment: {0}")]
    Machine(String),
    /// The store reports an error.
    #[error("{0}")]
    Store(String),
}

/// A block that a helper holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldBlock {
    /// The block's name.
    pub id: BlockId,
    /// The block's length in bytes.
    pub bytes: u64,
}

/// A block on a helper, and its heat from now on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockHeat {
    /// The block's name.
    pub id: BlockId,
    /// The block's heat.
    pub heat: Heat,
}

impl BlockHeat {
    /// An upper bound of the bytes of JSON that this change takes in a message.
    pub fn most_bytes(&self) -> usize {
        6 * self.id.0.len() + 40 // JSON needs at most six bytes for each byte of the name.
    }
}

/// The self-description of a block on a helper.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Description {
    /// The block's name.
    pub id: BlockId,
    /// The block's length in bytes.
    pub bytes: u64,
    /// The digest according to the block's own checksums; `None` if the store has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<Digest>,
    /// The index of the block in its stripe, and the stripe's label; `None` if they were not stored with the
    /// block.
    pub label: Option<(BlockIndex, StripeLabel)>,
}

/// A client's request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "want", rename_all = "kebab-case")]
pub enum ClientRequest {
    /// Deliver a window of some blocks of a stripe to the client.
    Read {
        /// The stripe.
        stripe: StripeId,
        /// The blocks.
        blocks: Vec<BlockIndex>,
        /// Restricts the request to these sub-blocks; `None` means all.
        sub_blocks: Option<(u16, u16)>,
        /// The range of offsets inside each sub-block.
        window: (u64, u64),
        /// The scheme for lost blocks.
        scheme: Scheme,
        /// The slice size in bytes; chosen by the planner if `None`.
        slice_bytes: Option<u32>,
        /// How nodes overlap their work on slices; the scheme's own pacing if `None`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pacing: Option<Pacing>,
        /// Whether to verify the result against one block more than decoding needs.
        #[serde(default)]
        verify: bool,
        /// Blocks to treat as lost, for measurements and for trying out schemes.
        #[serde(default)]
        pretend_lost: Vec<BlockIndex>,
        /// The blocks as the client found them earlier. The read is refused if one of them was replaced since then.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        expected: Vec<ExpectedBlock>,
    },
    /// Encode a stripe from the client's data blocks and store all its blocks.
    PutStripe {
        /// The id of the put.
        put: u64,
        /// The number of the stripe in the file.
        position: u32,
    },
}

/// A block as a client found it. A client that reads a block in several requests names it in each of them, because a
/// store that others run may encode the data again meanwhile, with blocks of the same names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExpectedBlock {
    /// The block's index in the stripe.
    pub index: BlockIndex,
    /// The block's length in bytes.
    pub bytes: u64,
    /// The block's recorded digest; `None` if none was recorded. Then only the length is compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<Digest>,
}

impl ExpectedBlock {
    /// Whether a block of this length and with this recorded digest is the expected one.
    pub fn is(&self, bytes: u64, digest: Option<Digest>) -> bool {
        self.bytes == bytes && (self.digest.is_none() || self.digest == digest)
    }
}

/// Returns the maximum length in bytes of a message from a node, which depends on the message's kind. `start`
/// has the message's first [`KIND_BYTES`] bytes, which suffice to recognise the kind. If the kind's name is
/// not where [`encode`] writes it, the lowest limit applies.
pub fn limit(start: &[u8]) -> usize {
    let start = start.strip_prefix(b"{").unwrap_or(start);
    let name = start.strip_prefix(b"\"").and_then(|rest| rest.split(|&byte| byte == b'"').next());
    match name {
        // A report contains slice ranges, of a few bytes each.
        Some(b"report") => 16 << 20,
        // The message contains one part of a block list, and a few other fields.
        Some(b"register-helper" | b"held" | b"listed") => LISTING_PART_BYTES + (64 << 10),
        // The message contains a label for each block. The file name in a label has up to 1 KiB, and JSON
        // needs at most six bytes for each byte of the name.
        Some(b"described") => DESCRIBED_AT_ONCE << 13,
        // The message contains block indices, changes of blocks' heat, or an error of the operating system.
        Some(b"open" | b"verified" | b"list-failed" | b"remove-failed" | b"pong" | b"heat") => 64 << 10,
        _ => 1 << 10,
    }
}

/// Splits a list of blocks into parts that fit into one message each; returns at least one part.
pub fn parts(blocks: Vec<HeldBlock>) -> Vec<Vec<HeldBlock>> {
    let (mut parts, mut room) = (vec![Vec::new()], LISTING_PART_BYTES);
    for block in blocks {
        let bytes = serde_json::to_vec(&block).expect("messages have string keys and go to memory").len() + 1;
        if bytes > room {
            parts.push(Vec::new());
            room = LISTING_PART_BYTES;
        }
        room = room.saturating_sub(bytes);
        parts.last_mut().expect("there is at least one part").push(block);
    }
    parts
}

/// Why a message cannot be decoded.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// The length exceeds [`MAX_MESSAGE_BYTES`].
    #[error("a control message of {0} bytes exceeds the limit of {MAX_MESSAGE_BYTES} bytes")]
    TooLong(u32),
    /// The bytes are not JSON, or not a valid message.
    #[error("an unreadable control message: {0}")]
    Malformed(#[from] serde_json::Error),
}

/// Encodes a message, with its length in front.
///
/// # Panics
/// If the message is longer than [`MAX_MESSAGE_BYTES`]; no message of this protocol is.
pub fn encode(message: &impl Serialize) -> Vec<u8> {
    let mut bytes = vec![0; 4];
    serde_json::to_writer(&mut bytes, message).expect("messages have string keys and go to memory");
    let length = u32::try_from(bytes.len() - 4).ok().filter(|&length| length <= MAX_MESSAGE_BYTES);
    bytes[..4].copy_from_slice(&length.expect("messages are bounded").to_be_bytes());
    bytes
}

/// Decodes the length in front of a message.
///
/// # Errors
/// [`ControlError::TooLong`] if the length exceeds [`MAX_MESSAGE_BYTES`].
pub fn decode_length(bytes: [u8; 4]) -> Result<usize, ControlError> {
    match u32::from_be_bytes(bytes) {
        length if length > MAX_MESSAGE_BYTES => Err(ControlError::TooLong(length)),
        length => Ok(length as usize),
    }
}

/// Decodes a message without its length.
///
/// # Errors
/// [`ControlError::Malformed`] if the bytes are not a valid message.
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
    fn the_java_client_has_the_same_version() {
        let session = include_str!("../../../../java/client/src/main/java/mend/client/Session.java");
        assert!(session.contains(&format!("int VERSION = {VERSION};")), "Session.java has another version");
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
    fn a_full_message_of_heat_is_within_its_limit() {
        for name in ["1.2".to_owned(), "\u{1}".repeat(255)] {
            let change = BlockHeat { id: BlockId(name), heat: Heat::VeryHot };
            let blocks = vec![change.clone(); HEAT_BYTES / change.most_bytes()];
            let bytes = encode(&FromNode::Heat { blocks });
            assert!(bytes.len() - 4 <= limit(&bytes[4..]), "{} bytes", bytes.len());
        }
    }

    #[test]
    fn every_kind_has_a_limit_by_its_first_bytes() {
        let open = ClientRequest::PutStripe { put: 1, position: 2 };
        for (message, expected) in [
            (FromNode::Pong { free_bytes: 1, tasks: 2, write_problem: None }, 64 << 10),
            (FromNode::RegisterClient { version: VERSION, bandwidth: Some(1), rack: None }, 1 << 10),
            (FromNode::Open { tag: 1, request: open }, 64 << 10),
            (FromNode::Held { blocks: Vec::new(), more: false }, LISTING_PART_BYTES + (64 << 10)),
            (FromNode::Heat { blocks: Vec::new() }, 64 << 10),
            (FromNode::UserLoad { bytes_per_s: u64::MAX }, 1 << 10),
        ] {
            let bytes = encode(&message);
            assert_eq!(limit(&bytes[4..][..KIND_BYTES.min(bytes.len() - 4)]), expected, "{message:?}");
        }
        for nonsense in [&b""[..], b"{", b"{\"", b"\xff\xff", b"{ \"report\""] {
            assert_eq!(limit(nonsense), 1 << 10);
        }
    }
}
