//! The record of eras in the catalog.

use std::collections::BTreeSet;

use repair::BlockId;
use store_api::names::Era;
use store_api::{CatalogError, Eras, StoreChange};

use super::DirCatalog;
use super::stripes::NEXT_STRIPE;
use super::tables::{Change, META};

/// The record's key.
pub(super) const ERAS: &str = "eras";

/// Switches to this era from the next stripe on.
pub(super) fn begin_era(change: &Change<'_>, era: Era) -> Result<(), CatalogError> {
    let mut eras: Eras = change.get(META, ERAS)?.unwrap_or_default();
    eras.begin(era, change.get(META, NEXT_STRIPE)?.unwrap_or(1));
    change.put(META, ERAS, &eras)
}

impl DirCatalog {
    /// Marks the eras of these blocks as not missed: the blocks are no longer newer than the catalog but merely unknown to it.
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
