//! What the lab asks of its agent inside a namespace, and what the agent answers: one JSON object per line.

use std::net::SocketAddr;
use std::ops::Range;
use std::path::PathBuf;

use repair::{Pacing, Scheme};
use serde::{Deserialize, Serialize};

/// One thing to do, to completion; the answer comes after it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "order", rename_all = "kebab-case")]
pub(crate) enum Instruction {
    /// Which helpers are up?
    Nodes,
    /// Store a file as one stripe.
    Put { path: PathBuf, name: String, code: String, block_bytes: u64 },
    /// Where is a stored file?
    Layout { name: String },
    /// Forget a stored file.
    Remove { name: String },
    /// Receive bytes over a plain connection.
    Direct { address: SocketAddr, bytes: u64 },
    /// Read blocks as if they were lost, into memory.
    Read(ReadInstruction),
    /// Hold what the last read brought against bytes of a file.
    Compare { expected: Vec<Expected> },
    /// Read a block of a stripe to a file.
    Save { stripe: String, block: u16, window: Range<u64>, block_bytes: u64, path: PathBuf },
    /// Many small reads at once, each of `bytes` of a block that is taken as lost.
    Many {
        stripe: String,
        block: u16,
        block_bytes: u64,
        reads: u32,
        bytes: u64,
        scheme: Scheme,
        expected: Expected,
    },
    /// For so long, clients that each read `bytes` somewhere in one of these pieces after the other.
    Steady { pieces: Vec<Piece>, block_bytes: u64, clients: usize, bytes: u64, last_ms: u64 },
    /// Repair the lost blocks of a stripe, which are these, onto nodes that the coordinator chooses.
    Repair { stripe: String, blocks: Vec<String>, scheme: Scheme, slice_bytes: Option<u32> },
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct ReadInstruction {
    pub(crate) stripe: String,
    pub(crate) blocks: Vec<u16>,
    /// Of a sub-block.
    pub(crate) window: Range<u64>,
    /// Of a block: what is delivered of each.
    pub(crate) block_bytes: u64,
    pub(crate) scheme: Scheme,
    pub(crate) slice_bytes: Option<u32>,
    pub(crate) pacing: Option<Pacing>,
    /// Whether the blocks are to be taken as lost; otherwise they are read as they are.
    pub(crate) pretend_lost: bool,
}

/// A block of a stripe.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Piece {
    pub(crate) stripe: String,
    pub(crate) block: u16,
}

/// The bytes that a block must have.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Expected {
    pub(crate) block: u16,
    pub(crate) path: PathBuf,
    /// Where the block begins in the file.
    pub(crate) offset: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub(crate) enum Answer {
    Done,
    Failed { reason: String },
    Nodes { up: Vec<String> },
    Layout { stripe: String, block_bytes: u64, sub_blocks: u16, data_blocks: u16, blocks: Vec<BlockAt> },
    Took(Took),
    Many { latencies_ns: Vec<u64>, failures: Vec<String> },
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Took {
    /// From the request to the last byte in memory and the coordinator's word that it was all; to the end of a repair
    /// that is published and read back.
    pub(crate) ns: u64,
    /// From the request to the first byte in memory; none of a repair.
    pub(crate) first_byte_ns: Option<u64>,
    pub(crate) scheme: Option<Scheme>,
    pub(crate) replanned: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct BlockAt {
    pub(crate) block: String,
    pub(crate) node: String,
}
