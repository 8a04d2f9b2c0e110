//! Beginning: the records, and what goes on by itself from then on, the first listing as well.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use stores::CatalogError;
use stores::attached::StartError;

use super::state::Shared;
use super::{AttachedStorage, watching};
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

/// Why a coordinator cannot be attached to a cluster.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// It cannot begin.
    #[error(transparent)]
    Start(#[from] StartError),
    /// Its own records cannot be read or written.
    #[error(transparent)]
    Catalog(#[from] CatalogError),
}

/// Opens the records, and begins to list the cluster; `Storage::unlisted` says why until that has ended.
///
/// # Errors
/// [`AttachError`].
pub fn open(
    attachment: Attachment,
    records: PathBuf,
    cluster_id: &str,
) -> Result<AttachedStorage, AttachError> {
    let namenode = attachment.namenode.clone().map(NameNode::new);
    let shared = |ledger, teller| Shared::new(namenode, attachment, ledger, teller);
    let storage = AttachedStorage::start(records, cluster_id, shared)?;
    let shared = storage.system();
    shared.recall()?;
    if let Some(namenode) = &shared.namenode {
        storage.runtime().spawn(watching::watch_nodes(Arc::downgrade(shared), namenode.clone()));
        storage.runtime().spawn(watching::watch_groups(Arc::downgrade(shared), namenode.clone()));
    }
    Ok(storage)
}
