//! The record of eras in the catalog.

use std::collections::BTreeSet;

use repair::BlockId;
use store_api::names::Era;
use store_api::{CatalogError, Eras, StoreChange};

use super::DirCatalog;
use super::stripes::NEXT_STRIPE;
use super::tables::{Change, META};

/// The key of the record.
pub(super) const ERAS: &str = "eras";

/// Starts this era; the next stripe is the first in it.
pub(super) fn begin_era(change: &Change<'_>, era: Era) -> Result<(), CatalogError> {
    let mut eras: Eras = change.get(META, ERAS)?.unwrap_or_default();
    eras.begin(era, change.get(META, NEXT_STRIPE)?.unwrap_or(1));
    change.put(META, ERAS, &eras)
}

impl DirCatalog {
    /// Writes off the eras of these blocks. The blocks then count as unknown to the catalog, no longer as
    /// newer than the catalog.
    ///
    /// # Errors
    /// [`CatalogError`].
    pub fn disclaim(&mut self, blocks: &BTreeSet<BlockId>) -> Result<(), CatalogError> {
        self.change(|change| {
            let mut eras: Eras = change.get(META, ERAS)?.unwrap_or_default();
            eras.disclaim(blocks);
            change.put(META, ERAS, &eras)?;
            change.tell(StoreChange::Eras(eras));
            Ok(())
        })
    }
}
