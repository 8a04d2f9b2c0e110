//! The coordinator's half of the seam: stripes and who holds their blocks.

use codes::{BlockIndex, CodeSpec};
use repair::{BlockId, Digest, FilePart, NodeId, StripeId};
use serde::{Deserialize, Serialize};

/// What a catalog knows of a stripe.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StripeRecord {
    /// Its name.
    pub id: StripeId,
    /// Its code.
    pub code: CodeSpec,
    /// Bytes of a block for the purpose of coding.
    pub block_bytes: u64,
    /// All n blocks, by index.
    pub blocks: Vec<BlockRecord>,
    /// The part of a file that it holds, as its blocks say of themselves; `None` in stores whose blocks do not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<FilePart>,
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
    /// The store's digest of it, by which a repaired block is checked; `None` if the store has none, or not yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<Digest>,
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
#[derive(Debug, thiserror::Error)]
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
    /// The catalog's own storage fails; the text names the file and what to do.
    #[error("{0}")]
    Storage(String),
    /// What the catalog's storage gives back is not what was stored; the text names the file and what to do.
    #[error("{0}")]
    Damaged(String),
}

fn listed(names: &[StripeId]) -> String {
    names.iter().map(|name| &name.0[..]).collect::<Vec<_>>().join(", ")
}

/// The stripes of a store.
pub trait Catalog: Send {
    /// A stripe by name.
    ///
    /// # Errors
    /// [`CatalogError::NoSuchStripe`].
    fn stripe(&self, id: &StripeId) -> Result<StripeRecord, CatalogError>;

    /// The stripe and index of a block.
    ///
    /// # Errors
    /// [`CatalogError::NoSuchBlock`].
    fn find_block(&self, block: &BlockId) -> Result<(StripeId, BlockIndex), CatalogError>;

    /// Calls `visit` with every stripe, in a stable order.
    ///
    /// # Errors
    /// [`CatalogError::Storage`].
    fn each_stripe(&self, visit: &mut dyn FnMut(StripeRecord)) -> Result<(), CatalogError>;

    /// Records, durably, that a block of a stripe is healthy on `node` with this digest.
    ///
    /// # Errors
    /// [`CatalogError`].
    fn publish(
        &mut self,
        stripe: &StripeId,
        block: BlockIndex,
        node: NodeId,
        digest: Option<Digest>,
    ) -> Result<(), CatalogError>;

    /// Records, durably, what is known of a block on its node.
    ///
    /// # Errors
    /// [`CatalogError`].
    fn set_state(
        &mut self,
        stripe: &StripeId,
        block: BlockIndex,
        state: BlockState,
    ) -> Result<(), CatalogError>;
}
