//! Opening: recalls the records and starts the background tasks, the first listing included.

use std::collections::BTreeMap;
use std::sync::Arc;

use attached::StartError;
use store_api::{CatalogError, SharedRecords, Storage};

use super::state::Shared;
use super::{AttachedCatalog, watching};
use crate::namenode::{NameNode, NameNodeSettings};

/// Which cluster, and who helps where.
#[derive(Clone, Debug)]
pub struct Attachment {
    /// How its NameNode is asked; not at all if `None`.
    pub namenode: Option<NameNodeSettings>,
    /// The folders whose files are repaired.
    pub paths: Vec<String>,
    /// The names of the helpers, by the addresses of the DataNodes that they work beside.
    pub helpers: BTreeMap<String, String>,
    /// Whether one of them pushes what it makes to its DataNode, which may want to see a block token.
    pub pushes: bool,
}

impl Attachment {
    /// A node's name: its helper's, or the DataNode's address if it has none.
    pub(super) fn name_of<'a>(&'a self, address: &'a str) -> &'a str {
        self.helpers.get(address).map_or(address, String::as_str)
    }
}

/// Why a coordinator cannot attach to a cluster.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// No threads.
    #[error(transparent)]
    Start(#[from] StartError),
    /// Its own records cannot be read or written.
    #[error(transparent)]
    Catalog(#[from] CatalogError),
}

/// Begins to list the cluster; [`Storage::unlisted`] has the reason until the first listing is complete.
///
/// # Errors
/// [`AttachError`].
pub fn open(attachment: Attachment, records: SharedRecords) -> Result<Storage, AttachError> {
    let namenode = attachment.namenode.clone().map(NameNode::new);
    let shared = |ledger, teller| Shared::new(namenode, attachment, ledger, teller);
    let catalog = AttachedCatalog::start(Arc::clone(&records), shared)?;
    let shared = catalog.system();
    shared.recall()?;
    if let Some(namenode) = &shared.namenode {
        catalog.runtime().spawn(watching::watch_nodes(Arc::downgrade(shared), namenode.clone()));
        catalog.runtime().spawn(watching::watch_groups(Arc::downgrade(shared), namenode.clone()));
    }
    Ok(catalog.over(records))
}
