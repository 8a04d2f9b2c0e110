//! Records of stripes and of the nodes that hold their blocks.

use std::fmt;

use codes::{BlockIndex, Code, CodeSpec};
use repair::{BlockId, Chunking, ChunkingError, Digest, FilePart, NodeId, StripeId, StripeLabel};
use serde::{Deserialize, Serialize};

/// A stripe, as recorded in the catalog.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StripeRecord {
    /// The stripe's name.
    pub id: StripeId,
    /// The stripe's code.
    pub code: CodeSpec,
    /// Length of a block as the code sees it; shorter blocks are padded with zeros before they are encoded.
    pub block_bytes: u64,
    /// Length of the chunks in which the blocks are encoded; `None` if each block is one chunk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chunk_bytes: Option<u64>,
    /// All n blocks, by index.
    pub blocks: Vec<BlockRecord>,
    /// The part of a file that the stripe stores; `None` in stores whose blocks carry no label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<FilePart>,
}

/// The length of blocks and of their chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockSize {
    /// Length of a block as the code sees it; shorter blocks are padded with zeros before they are encoded.
    pub block_bytes: u64,
    /// Length of the chunks in which a block is encoded; `None` if the block is one chunk.
    pub chunk_bytes: Option<u64>,
}

impl fmt::Display for BlockSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.block_bytes)?;
        self.chunk_bytes.map_or(Ok(()), |bytes| write!(f, " in chunks of {bytes}"))
    }
}

impl BlockSize {
    /// Creates the size of blocks that consist of one chunk.
    pub fn whole(block_bytes: u64) -> Self {
        Self { block_bytes, chunk_bytes: None }
    }

    /// Returns the layout of sub-blocks in blocks of this size under a code.
    ///
    /// # Errors
    /// [`ChunkingError`] if no block of the code can have this layout.
    pub fn chunking(&self, code: &dyn Code) -> Result<Chunking, ChunkingError> {
        Chunking::of(code, self.block_bytes, self.chunk_bytes)
    }

    /// Checks that blocks of a code can have chunks of this size. Blocks of a single chunk fit any code.
    ///
    /// # Errors
    /// [`ChunkingError`].
    pub fn check(&self, code: &CodeSpec) -> Result<(), ChunkingError> {
        let Some(chunk_bytes) = self.chunk_bytes else { return Ok(()) };
        let sub_blocks = u16::try_from(code.sub_blocks()).unwrap_or(u16::MAX).max(1);
        Chunking::new(self.block_bytes, chunk_bytes, sub_blocks).map(drop)
    }
}

impl StripeRecord {
    /// Creates the record of a stripe that belongs to no file. `blocks` gives the name and node of each
    /// block; no block is stored yet.
    pub fn new(
        id: StripeId,
        code: CodeSpec,
        size: BlockSize,
        blocks: impl IntoIterator<Item = (BlockId, NodeId)>,
    ) -> Self {
        let BlockSize { block_bytes, chunk_bytes } = size;
        let blocks = blocks.into_iter().map(|(id, node)| BlockRecord::new(id, block_bytes, node)).collect();
        Self { id, code, block_bytes, chunk_bytes, blocks, file: None }
    }

    /// Returns the size of the stripe's blocks.
    pub fn size(&self) -> BlockSize {
        BlockSize { block_bytes: self.block_bytes, chunk_bytes: self.chunk_bytes }
    }

    /// Returns the record of a block; `None` if the stripe has fewer blocks. An index from an earlier record may be
    /// too large: a store that others run can encode the same data anew, with another number of blocks.
    pub fn block(&self, index: BlockIndex) -> Option<&BlockRecord> {
        self.blocks.get(usize::from(index.0))
    }

    /// Whether this record and `other` describe the same blocks, in the same code. They may differ in nodes, states
    /// and digests.
    pub fn has_same_blocks(&self, other: &Self) -> bool {
        let blocks = self.blocks.iter().map(|block| (&block.id, block.bytes));
        let others = other.blocks.iter().map(|block| (&block.id, block.bytes));
        (&self.id, &self.code, self.size()) == (&other.id, &other.code, other.size()) && blocks.eq(others)
    }

    /// Returns the label of the stripe's blocks in this cluster; `None` if the blocks carry no label.
    pub fn label(&self, cluster: &str) -> Option<StripeLabel> {
        let (cluster, file) = (cluster.to_owned(), self.file.clone()?);
        let (stripe, code) = (self.id.clone(), self.code.clone());
        let BlockSize { block_bytes, chunk_bytes } = self.size();
        Some(StripeLabel { cluster, stripe, code, block_bytes, chunk_bytes, file })
    }
}

/// A block, as recorded in the catalog.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockRecord {
    /// The block's name.
    pub id: BlockId,
    /// The block's length; at most the stripe's `block_bytes`. A shorter block is padded with zeros before it
    /// is encoded.
    pub bytes: u64,
    /// The node that holds the block or was its last holder; `None` if no holder is known.
    pub node: Option<NodeId>,
    /// The block's state on that node.
    pub state: BlockState,
    /// Other nodes that hold the block, without duplicates, in stores that keep replicas.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replicas: Vec<Replica>,
    /// The store's digest, which a repaired block must match; `None` if the store has none, or has not
    /// computed it yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<Digest>,
}

/// A copy of a block on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replica {
    /// The node.
    pub node: NodeId,
    /// The copy's state.
    pub state: BlockState,
}

impl BlockRecord {
    /// Creates the record of a block that is allocated on a node and not stored yet.
    pub fn new(id: BlockId, bytes: u64, node: NodeId) -> Self {
        let (node, state) = (Some(node), BlockState::NotStored);
        Self { id, bytes, node, state, replicas: Vec::new(), digest: None }
    }

    /// Records the block as healthy on a node, which becomes the block's home.
    pub fn publish(&mut self, node: NodeId, digest: Option<Digest>) {
        (self.node, self.state, self.digest) = (Some(node), BlockState::Healthy, digest);
    }

    /// Returns all nodes that hold the block or held it last, each with the state of its copy; the home
    /// (`node`) comes first.
    pub fn holders(&self) -> impl Iterator<Item = Replica> + '_ {
        let home = self.node.map(|node| Replica { node, state: self.state });
        home.into_iter().chain(self.replicas.iter().copied())
    }

    /// Returns the block's state on a node; `None` if the node is not a recorded holder.
    pub fn state_on(&self, node: NodeId) -> Option<BlockState> {
        self.holders().find(|holder| holder.node == node).map(|holder| holder.state)
    }

    /// Sets the block's state on a node. Returns `false` if the node is not a recorded holder.
    pub fn set_state(&mut self, node: NodeId, state: BlockState) -> bool {
        if self.node == Some(node) {
            self.state = state;
            return true;
        }
        let replica = self.replicas.iter_mut().find(|replica| replica.node == node);
        replica.map(|replica| replica.state = state).is_some()
    }
}

/// The state of a block on its node, whether or not the node is up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BlockState {
    /// No fault is known.
    Healthy,
    /// The block was allocated but is not stored yet.
    NotStored,
    /// The block is missing on the node.
    Missing,
    /// The block's bytes differ from their checksums, or contradict the parity of the stripe.
    Corrupt,
    /// The block cannot be read, for example because of a bad sector. This is no evidence about checksums.
    Unreadable,
}

impl BlockState {
    /// Whether the block was stored and is not good any more.
    pub fn is_bad(self) -> bool {
        matches!(self, Self::Missing | Self::Corrupt | Self::Unreadable)
    }
}

/// Why a catalog request fails.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CatalogError {
    /// The stripe does not exist.
    #[error("there is no stripe {0}")]
    NoSuchStripe(StripeId),
    /// The block does not exist.
    #[error("there is no block {0}")]
    NoSuchBlock(BlockId),
    /// A short name matches several stripes.
    #[error("{} stripes have the number {name}: {}", candidates.len(), listed(candidates))]
    Ambiguous {
        /// The short name.
        name: StripeId,
        /// The full names of the matching stripes.
        candidates: Vec<StripeId>,
    },
    /// All numbers for stripes and puts are used up.
    #[error(
        "the catalog has run out of stripe numbers; stop the coordinator and rebuild the catalog with `mend \
         catalog rebuild`, which continues counting from the existing blocks"
    )]
    NumbersUsedUp,
    /// The catalog's own storage fails.
    #[error("the catalog {place} cannot be used: {detail}; check its disk")]
    Storage {
        /// The file.
        place: String,
        /// The kind of fault.
        fault: Fault,
        /// The storage's error message.
        detail: String,
    },
    /// The catalog's file is no longer at its path, so nothing written to it would be found after a restart.
    #[error(
        "the catalog {place} was moved, replaced or removed while the coordinator uses it: move the same file \
         back. If it was deleted, copy it from /proc/{process}/fd before the coordinator stops (`ls -l` marks \
         it as deleted)"
    )]
    Moved {
        /// The path.
        place: String,
        /// The coordinator's process id.
        process: u32,
    },
    /// The catalog's storage returns bytes that differ from those written.
    #[error("the catalog {place} is damaged: {detail}; {remedy}")]
    Damaged {
        /// The file.
        place: String,
        /// The damage.
        detail: String,
        /// The operator's next step.
        remedy: String,
    },
}

fn listed(names: &[StripeId]) -> String {
    names.iter().map(|name| &name.0[..]).collect::<Vec<_>>().join(", ")
}

/// The kind of a storage fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The operating system reports an error, such as a full or failing medium.
    Io(std::io::ErrorKind),
    /// The storage failed earlier and accepts no more writes until it is reopened.
    Stopped,
    /// The storage engine violated its own invariant, which is a bug.
    Engine,
}
