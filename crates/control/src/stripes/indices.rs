//! Blocks of a stripe's record by their indices.

use codes::BlockIndex;
use repair::BlockId;
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
