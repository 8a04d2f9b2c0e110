//! Instructions to the agent inside a namespace, and the agent's answers: one JSON object per line.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::Range;
use std::path::PathBuf;

use client::{GivenStripe, Home};
use recovery::HelperPolicy;
use repair::{Pacing, Scheme};
use serde::{Deserialize, Serialize};

/// An instruction. The agent answers when the instruction is complete.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "order", rename_all = "kebab-case")]
pub(crate) enum Instruction {
    /// Report which helpers are up.
    Nodes,
    /// Store a file as one stripe.
    Put { path: PathBuf, name: String, code: String, block_bytes: u64 },
    /// Report where a stored file's blocks are.
    Layout { name: String },
    /// Remove a stored file.
    Remove { name: String },
    /// Receive bytes over a plain connection.
    Direct { address: SocketAddr, bytes: u64 },
    /// Read blocks into memory.
    Read(ReadInstruction),
    /// Compare the blocks of the last read with a file.
    Compare { expected: Vec<Expected> },
    /// Read a block of a stripe to a file.
    Save { stripe: String, block: u16, window: Range<u64>, block_bytes: u64, path: PathBuf },
    /// Read many times concurrently, each time `bytes` bytes of the same block, which is treated as lost.
    Many {
        stripe: String,
        block: u16,
        block_bytes: u64,
        reads: u32,
        bytes: u64,
        scheme: Scheme,
        expected: Expected,
    },
    /// Run clients for `last_ms` milliseconds. Each client goes from piece to piece and reads `bytes` bytes
    /// of each.
    Steady { pieces: Vec<Piece>, block_bytes: u64, clients: usize, bytes: u64, last_ms: u64 },
    /// Report how many blocks each helper that is up has in memory.
    Hot,
    /// Read blocks one after another, and compare each with its expected bytes.
    Sequence { reads: Vec<CheckedRead> },
    /// Repair the lost blocks of a stripe onto nodes that the coordinator chooses.
    Repair {
        stripe: String,
        blocks: Vec<String>,
        scheme: Scheme,
        slice_bytes: Option<u32>,
        policy: Option<HelperPolicy>,
        verify_parity: bool,
    },
    /// Make copies and rebuild blocks at the same time, each on a node that the instruction names.
    Round { transfers: Vec<Transfer>, slice_bytes: u32 },
    /// Drain a node by Mend's own rule. If nodes are named, only these receive blocks.
    Drain { node: String, requestors: Vec<String> },
    /// Cap the disks of helpers, each in bytes per second.
    CapDisks { caps: BTreeMap<String, u64> },
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct ReadInstruction {
    pub(crate) stripe: String,
    pub(crate) blocks: Vec<u16>,
    /// The byte range to read in each sub-block.
    pub(crate) window: Range<u64>,
    /// The number of bytes delivered for each block.
    pub(crate) block_bytes: u64,
    pub(crate) scheme: Scheme,
    pub(crate) slice_bytes: Option<u32>,
    pub(crate) pacing: Option<Pacing>,
    /// Whether to treat the blocks as lost; otherwise they are read directly.
    pub(crate) pretend_lost: bool,
}

/// A read of one block, and the bytes that it must return.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct CheckedRead {
    pub(crate) read: ReadInstruction,
    pub(crate) expected: Expected,
}

/// A block to copy or to rebuild on another node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Transfer {
    /// The stripe, described with only those blocks that are to be read.
    pub(crate) stripe: GivenStripe,
    /// The block to write and its new node.
    pub(crate) home: Home,
    /// Whether the failing node copies the block. It makes one copy at a time.
    pub(crate) is_copy: bool,
}

/// A block of a stripe.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Piece {
    pub(crate) stripe: String,
    pub(crate) block: u16,
}

/// The expected bytes of a block.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Expected {
    pub(crate) block: u16,
    pub(crate) path: PathBuf,
    /// The offset of the block in the file.
    pub(crate) offset: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub(crate) enum Answer {
    Done,
    Failed { reason: String },
    Nodes { up: Vec<String> },
    Hot { blocks: BTreeMap<String, u64> },
    Layout { stripe: String, block_bytes: u64, sub_blocks: u16, data_blocks: u16, blocks: Vec<BlockAt> },
    Took(Took),
    Many { latencies_ns: Vec<u64>, failures: Vec<String> },
    Steady { reads: Vec<SteadyRead> },
    Sequence { took: Vec<Took> },
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Took {
    /// The time in nanoseconds. For reads, it ends when the last byte is in memory; for repairs, when the
    /// block is published and read back.
    pub(crate) ns: u64,
    /// The time in nanoseconds until the first byte is in memory; `None` for a repair.
    pub(crate) first_byte_ns: Option<u64>,
    pub(crate) scheme: Option<Scheme>,
    pub(crate) replanned: Vec<String>,
}

/// One of the reads of a client that reads steadily.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct SteadyRead {
    /// The time of its end, in nanoseconds since the clients began.
    pub(crate) ended_ns: u64,
    /// Its duration in nanoseconds; `None` if it failed.
    pub(crate) took_ns: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct BlockAt {
    pub(crate) block: String,
    pub(crate) node: String,
}
