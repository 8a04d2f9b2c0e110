//! Blocks of a stripe's record by their indices.

use std::ops::RangeInclusive;

use codes::BlockIndex;
use repair::{BlockId, StripeBlock, StripeId};
use store_api::{BlockRecord, StripeRecord};

use crate::error::{PlanningError, RequestError};

/// Returns the blocks of a stripe with their indices.
pub(crate) fn indexed(record: &StripeRecord) -> impl Iterator<Item = (BlockIndex, &BlockRecord)> {
    record.blocks.iter().zip(0..).map(|(block, index)| (BlockIndex(index), block))
}

/// Returns the index of a block in a stripe's record.
pub(crate) fn index_of(record: &StripeRecord, block: &BlockId) -> Option<BlockIndex> {
    indexed(record).find(|(_, other)| other.id == *block).map(|(index, _)| index)
}

pub(crate) fn check_indices(record: &StripeRecord, indices: &[BlockIndex]) -> Result<(), RequestError> {
    match indices.iter().find(|index| usize::from(index.0) >= record.blocks.len()) {
        None => Ok(()),
        Some(index) => Err(PlanningError::NoSuchIndex {
            stripe: record.id.to_string(),
            index: index.0,
            blocks: record.blocks.len(),
        }
        .into()),
    }
}

/// Returns the range of all blocks of a stripe, for collections that are sorted by stripe and index.
pub(crate) fn indices_of(stripe: &StripeId) -> RangeInclusive<(StripeId, BlockIndex)> {
    (stripe.clone(), BlockIndex(0))..=(stripe.clone(), BlockIndex(u16::MAX))
}

/// Whether a job's block is the one that the catalog now has under its name. A store that others run can encode the
/// same data anew, with blocks of the same names.
pub(crate) fn is_still(block: &StripeBlock, known: &BlockRecord) -> bool {
    let digests_differ = block.digest.is_some() && known.digest.is_some() && block.digest != known.digest;
    (&block.id, block.bytes) == (&known.id, known.bytes) && !digests_differ
}
