//! The coordinator's half of the seam: stripes and who holds their blocks.

use std::fmt;

use codes::{Code, CodeSpec};
use repair::{BlockId, Chunking, ChunkingError, Digest, FilePart, NodeId, StripeId, StripeLabel};
use serde::{Deserialize, Serialize};

use crate::StripeWrite;

/// What a catalog knows of a stripe.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StripeRecord {
    /// Its name.
    pub id: StripeId,
    /// Its code.
    pub code: CodeSpec,
    /// Bytes of a block for the purpose of coding.
    pub block_bytes: u64,
    /// Bytes of the chunks that its blocks are encoded in; `None` if each is a single one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chunk_bytes: Option<u64>,
    /// All n blocks, by index.
    pub blocks: Vec<BlockRecord>,
    /// The part of a file that it holds, as its blocks say of themselves; `None` in stores whose blocks do not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<FilePart>,
}

/// How long blocks are, and how they are encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockSize {
    /// Bytes of a block for the purpose of coding.
    pub block_bytes: u64,
    /// Bytes of the chunks that it is encoded in; `None` if it is a single one.
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

    /// Where the sub-blocks of such blocks are under a code.
    ///
    /// # Errors
    /// [`ChunkingError`] if there can be no such blocks.
    pub fn chunking(&self, code: &dyn Code) -> Result<Chunking, ChunkingError> {
        Chunking::of(code, self.block_bytes, self.chunk_bytes)
    }

    /// Whether blocks of a code can have its chunks; one chunk fits any code.
    pub(crate) fn check(&self, code: &CodeSpec) -> Result<(), ChunkingError> {
        let Some(chunk_bytes) = self.chunk_bytes else { return Ok(()) };
        let sub_blocks = u16::try_from(code.sub_blocks()).unwrap_or(u16::MAX).max(1);
        Chunking::new(self.block_bytes, chunk_bytes, sub_blocks).map(drop)
    }
}

impl StripeRecord {
    /// How long its blocks are.
    pub fn size(&self) -> BlockSize {
        BlockSize { block_bytes: self.block_bytes, chunk_bytes: self.chunk_bytes }
    }

    /// What its blocks say of themselves in this cluster, if they say anything.
    pub fn label(&self, cluster: &str) -> Option<StripeLabel> {
        let (cluster, file) = (cluster.to_owned(), self.file.clone()?);
        let (stripe, code) = (self.id.clone(), self.code.clone());
        let BlockSize { block_bytes, chunk_bytes } = self.size();
        Some(StripeLabel { cluster, stripe, code, block_bytes, chunk_bytes, file })
    }
}

/// What a catalog knows of a block.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockRecord {
    /// Its name.
    pub id: BlockId,
    /// Its bytes; at most the stripe's `block_bytes`, and zeros follow in coding.
    pub bytes: u64,
    /// The node that holds it, or held it last; `None` if nobody is known to.
    pub node: Option<NodeId>,
    /// Whether it is known to be good there.
    pub state: BlockState,
    /// Further nodes that have it, each once, in stores where that can be.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replicas: Vec<Replica>,
    /// The store's digest of it, by which a repaired block is checked; `None` if the store has none, or not yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<Digest>,
}

/// A block on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replica {
    /// The node.
    pub node: NodeId,
    /// Whether it is known to be good there.
    pub state: BlockState,
}

impl BlockRecord {
    /// All nodes that have it, or had it last, and how it is there: where it belongs first.
    pub fn holders(&self) -> impl Iterator<Item = Replica> + '_ {
        let home = self.node.map(|node| Replica { node, state: self.state });
        home.into_iter().chain(self.replicas.iter().copied())
    }

    /// How it is on a node; `None` if nothing is known of it there.
    pub fn state_on(&self, node: NodeId) -> Option<BlockState> {
        self.holders().find(|holder| holder.node == node).map(|holder| holder.state)
    }

    /// Notes how it is on a node; whether that node has, or had, it.
    pub fn set_state(&mut self, node: NodeId, state: BlockState) -> bool {
        if self.node == Some(node) {
            self.state = state;
            return true;
        }
        let replica = self.replicas.iter_mut().find(|replica| replica.node == node);
        replica.map(|replica| replica.state = state).is_some()
    }
}

/// What is known of a block on its node. Whether the node is up is not part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BlockState {
    /// Nothing bad is known of it.
    Healthy,
    /// It is on its way to its node for the first time.
    NotStored,
    /// Its node does not have it.
    Missing,
    /// Its node found that its bytes differ from their checksums.
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
    /// A short name that several stripes have.
    #[error("there are {} stripes {name}: {}", candidates.len(), listed(candidates))]
    Ambiguous {
        /// The name.
        name: StripeId,
        /// Their whole names.
        candidates: Vec<StripeId>,
    },
    /// There are no numbers left for stripes and puts.
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
    /// What the catalog's storage gives back is not what was stored.
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

/// What kind of fault a storage has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The system refuses: no space, a medium that fails.
    Io(std::io::ErrorKind),
    /// It failed before and takes nothing more until it is opened again.
    Stopped,
    /// Its own rules are broken, which only a bug does.
    Engine,
}

/// The stripes of a store. What changes them goes through [`Storage::carry_out`](crate::Storage::carry_out), and what
/// others change is told by [`StoreChange`](crate::StoreChange)s.
pub trait Catalog: Send {
    /// Calls `visit` with every stripe, in a stable order, and whether it is part of a file that is not whole yet.
    ///
    /// # Errors
    /// [`CatalogError`].
    fn each_stripe(&self, visit: &mut dyn FnMut(StripeRecord, bool)) -> Result<(), CatalogError>;

    /// Carries out a change of stripes.
    ///
    /// # Errors
    /// [`CatalogError`]; nothing has changed then.
    fn write_stripes(&mut self, write: &StripeWrite) -> Result<(), CatalogError>;
}
