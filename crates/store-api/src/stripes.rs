//! Records of stripes and of the nodes that hold their blocks.

use std::fmt;

use codes::{Code, CodeSpec};
use repair::{BlockId, Chunking, ChunkingError, Digest, FilePart, NodeId, StripeId, StripeLabel};
use serde::{Deserialize, Serialize};

/// A stripe, as the catalog knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StripeRecord {
    /// Its name.
    pub id: StripeId,
    /// Its code.
    pub code: CodeSpec,
    /// Length of a block in coding.
    pub block_bytes: u64,
    /// Length of the chunks that its blocks are encoded in; `None` if each block is one chunk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chunk_bytes: Option<u64>,
    /// All n blocks, by index.
    pub blocks: Vec<BlockRecord>,
    /// The part of a file that it holds; `None` in stores whose blocks carry no label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<FilePart>,
}

/// The length of blocks and of their chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockSize {
    /// Length of a block in coding.
    pub block_bytes: u64,
    /// Length of the chunks that it is encoded in; `None` if it is one chunk.
    pub chunk_bytes: Option<u64>,
}

impl fmt::Display for BlockSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.block_bytes)?;
        self.chunk_bytes.map_or(Ok(()), |bytes| write!(f, " in chunks of {bytes}"))
    }
}

impl BlockSize {
    /// Blocks of a single chunk.
    pub fn whole(block_bytes: u64) -> Self {
        Self { block_bytes, chunk_bytes: None }
    }

    /// The layout of sub-blocks in such blocks under a code.
    ///
    /// # Errors
    /// [`ChunkingError`] if no block of the code can have this layout.
    pub fn chunking(&self, code: &dyn Code) -> Result<Chunking, ChunkingError> {
        Chunking::of(code, self.block_bytes, self.chunk_bytes)
    }

    /// Checks that blocks of a code can have these chunks; one chunk fits any code.
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
    /// A new stripe of no file, of whose blocks none is stored yet; each gets a name and a node.
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

    /// The size of its blocks.
    pub fn size(&self) -> BlockSize {
        BlockSize { block_bytes: self.block_bytes, chunk_bytes: self.chunk_bytes }
    }

    /// The label that its blocks carry in this cluster, if they carry one.
    pub fn label(&self, cluster: &str) -> Option<StripeLabel> {
        let (cluster, file) = (cluster.to_owned(), self.file.clone()?);
        let (stripe, code) = (self.id.clone(), self.code.clone());
        let BlockSize { block_bytes, chunk_bytes } = self.size();
        Some(StripeLabel { cluster, stripe, code, block_bytes, chunk_bytes, file })
    }
}

/// A block, as the catalog knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockRecord {
    /// Its name.
    pub id: BlockId,
    /// Its length; at most the stripe's `block_bytes`. Coding pads it with zeros.
    pub bytes: u64,
    /// The node that holds it, or held it last; `None` if no holder is known.
    pub node: Option<NodeId>,
    /// Its state on that node.
    pub state: BlockState,
    /// Further nodes that hold it, each once, in stores that keep replicas.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replicas: Vec<Replica>,
    /// The store's digest, which a repaired block must match; `None` if the store has none, or not yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<Digest>,
}

/// A copy of a block on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replica {
    /// The node.
    pub node: NodeId,
    /// Its state there.
    pub state: BlockState,
}

impl BlockRecord {
    /// A block that is allocated on a node and not stored yet.
    pub fn new(id: BlockId, bytes: u64, node: NodeId) -> Self {
        let (node, state) = (Some(node), BlockState::NotStored);
        Self { id, bytes, node, state, replicas: Vec::new(), digest: None }
    }

    /// Records the block as healthy on a node, which becomes its home.
    pub fn publish(&mut self, node: NodeId, digest: Option<Digest>) {
        (self.node, self.state, self.digest) = (Some(node), BlockState::Healthy, digest);
    }

    /// All nodes that hold it, or held it last, with its state there; its home first.
    pub fn holders(&self) -> impl Iterator<Item = Replica> + '_ {
        let home = self.node.map(|node| Replica { node, state: self.state });
        home.into_iter().chain(self.replicas.iter().copied())
    }

    /// Its state on a node; `None` if that node is not known to hold it.
    pub fn state_on(&self, node: NodeId) -> Option<BlockState> {
        self.holders().find(|holder| holder.node == node).map(|holder| holder.state)
    }

    /// Sets its state on a node; `false` if that node is not known to hold it.
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
    /// It was allocated and is not stored yet.
    NotStored,
    /// The node lacks it.
    Missing,
    /// Its bytes differ from their checksums.
    Corrupt,
}

/// Why a catalog cannot answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CatalogError {
    /// There is no such stripe.
    #[error("there is no stripe {0}")]
    NoSuchStripe(StripeId),
    /// There is no such block.
    #[error("there is no block {0}")]
    NoSuchBlock(BlockId),
    /// A short name that fits several stripes.
    #[error("there are {} stripes {name}: {}", candidates.len(), listed(candidates))]
    Ambiguous {
        /// The name.
        name: StripeId,
        /// Their full names.
        candidates: Vec<StripeId>,
    },
    /// The numbers for stripes and puts are used up.
    #[error(
        "the catalog has no numbers left to name stripes with; stop the coordinator and make the catalog anew with `mend \
         catalog rebuild`, which counts on from the blocks that there are"
    )]
    NumbersUsedUp,
    /// The catalog's own storage fails.
    #[error("the catalog {place} cannot be used: {detail}; check its disk")]
    Storage {
        /// The file.
        place: String,
        /// What kind of fault it is.
        fault: Fault,
        /// What the storage says.
        detail: String,
    },
    /// The catalog's storage returns other bytes than were stored.
    #[error("the catalog {place} is damaged: {detail}; {remedy}")]
    Damaged {
        /// The file.
        place: String,
        /// What is wrong.
        detail: String,
        /// What to do.
        remedy: String,
    },
}

fn listed(names: &[StripeId]) -> String {
    names.iter().map(|name| &name.0[..]).collect::<Vec<_>>().join(", ")
}

/// The kind of a storage fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The system refuses: no space, a failing medium.
    Io(std::io::ErrorKind),
    /// It failed before and takes no more writes until it is reopened.
    Stopped,
    /// Its own invariant is broken: a bug.
    Engine,
}
