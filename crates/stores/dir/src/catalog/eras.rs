//! The catalog's record of eras: the random numbers that coordinators draw and include in the names of their
//! stripes.

use std::collections::BTreeSet;

use repair::BlockId;
use store_api::names::Era;
use store_api::{CatalogError, Eras, StoreChange};

use super::DirCatalog;
use super::stripes::NEXT_STRIPE;
use super::tables::{Change, META};

/// The key of the record of eras.
pub(super) const ERAS: &str = "eras";

/// Records that this era starts with the next stripe.
pub(super) fn begin_era(change: &Change<'_>, era: Era) -> Result<(), CatalogError> {
    let mut eras: Eras = change.get(META, ERAS)?.unwrap_or_default();
    eras.begin(era, change.get(META, NEXT_STRIPE)?.unwrap_or(1));
    change.put(META, ERAS, &eras)
}

impl DirCatalog {
    /// Accepts the loss of all stripes that were named in the eras of these blocks. From then on, their
    /// blocks are treated as unknown to the catalog, no longer as newer than the catalog.
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
