//! Stripes that a store describes instead of listing them in its catalog, and their repair by the helpers.
//!
//! A store uses this for blocks that do not exist yet, such as the parity of a file that is being encoded. The
//! coordinator does not count these stripes, never repairs them by itself, and forgets them soon after their last use.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use codes::{BlockIndex, CodeSpec};
use repair::{BlockId, StripeId};

use crate::Later;

/// A stripe that only its description knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescribedStripe {
    /// The name, which differs from those of the catalog's stripes.
    pub stripe: StripeId,
    /// The code.
    pub code: CodeSpec,
    /// The length of a block in bytes; shorter blocks are padded with zeros for the code.
    pub block_bytes: u64,
    /// All blocks by index.
    pub blocks: Vec<DescribedBlock>,
}

/// A block of a described stripe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescribedBlock {
    /// The name by which the helper finds the block.
    pub block: BlockId,
    /// The length in bytes.
    pub bytes: u64,
    /// The helper that holds the block; `None` if the block is lost.
    pub node: Option<String>,
}

/// A request to rebuild lost blocks of a described stripe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rebuild {
    /// The stripe.
    pub stripe: StripeId,
    /// The blocks, each with the helper that receives it. Other lost blocks stay lost.
    pub homes: BTreeMap<BlockIndex, String>,
    /// The repair scheme; the cluster's default if `None`.
    pub scheme: Option<String>,
    /// Whether the repair starts after those of all other stripes, because no data depends on these blocks
    /// yet.
    pub is_background: bool,
    /// The repair is cancelled once nobody has waited for its end for this long.
    pub lease: Duration,
    /// Whether one block is rebuilt before the others, so that the parity check of the others has a spare
    /// survivor.
    pub one_first: bool,
}

/// The blocks of a [`Rebuild`] are in place, and were read back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rebuilt {
    /// Whether the blocks that were rebuilt last and one more survivor than the code needs were found to
    /// satisfy the parity equations (`docs/decisions/0005`).
    pub is_checked: bool,
}

/// Why the helpers do not rebuild blocks of a described stripe.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RebuildError {
    /// The coordinator does not answer, or is stopping.
    #[error("the coordinator does not answer: {0}")]
    Unreachable(String),
    /// The coordinator refuses the request.
    #[error("the coordinator refuses the request: {0}")]
    Refused(String),
    /// The repair has failed. Some of the blocks may be in place.
    #[error("the helpers could not make the blocks: {0}")]
    Failed(String),
}

/// Has helpers rebuild blocks of described stripes.
pub trait Rebuilder: fmt::Debug + Send + Sync {
    /// Returns the names of the helpers that are connected.
    ///
    /// # Errors
    /// [`RebuildError`].
    fn helpers_up(&self) -> Later<'_, Result<BTreeSet<String>, RebuildError>>;

    /// Describes a stripe, so that its lost blocks can be rebuilt.
    ///
    /// # Errors
    /// [`RebuildError`].
    fn describe<'a>(&'a self, stripe: &'a DescribedStripe) -> Later<'a, Result<(), RebuildError>>;

    /// Queues a repair; returns its number. The description then contains the blocks that the repair has rebuilt.
    ///
    /// # Errors
    /// [`RebuildError`].
    fn begin<'a>(&'a self, rebuild: &'a Rebuild) -> Later<'a, Result<u64, RebuildError>>;

    /// Waits until a repair has ended, for at most `limit`; `None` if it has not ended by then.
    ///
    /// # Errors
    /// [`RebuildError`].
    fn await_end(&self, repair: u64, limit: Duration) -> Later<'_, Result<Option<Rebuilt>, RebuildError>>;

    /// Cancels a repair. One that has ended stays as it is.
    fn cancel(&self, repair: u64) -> Later<'_, ()>;
}

/// A rebuilder that is known only once the coordinator has started.
pub type LateRebuilder = Arc<OnceLock<Arc<dyn Rebuilder>>>;
