//! Opens the storage: loads the records and starts the background tasks, including the first listing.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use attached::StartError;
use hdfs_raid::Codec;
use store_api::{CatalogError, SharedRecords, Storage};

use super::encoding::{EncodingSettings, watch_policies};
use super::state::HdfsSystem;
use super::{AttachedCatalog, group_watch, reports, terms, watching};
use crate::namenode::{NameNode, NameNodeSettings};

/// The cluster to attach to, and its helpers.
#[derive(Clone, Debug)]
pub struct Attachment {
    /// How to query the NameNode; `None` if the NameNode is not queried.
    pub namenode: Option<NameNodeSettings>,
    /// The folders whose files are repaired.
    pub paths: Vec<String>,
    /// The helpers' names, keyed by the address of the DataNode on the same machine.
    pub helpers: BTreeMap<String, String>,
    /// The folders of each helper, keyed like `helpers`.
    pub folders: BTreeMap<String, BTreeSet<PathBuf>>,
    /// The codecs of raided files; empty if such files are not watched.
    pub raid: Vec<Codec>,
    /// How files are encoded by policies; `None` if they are not.
    pub encoding: Option<EncodingSettings>,
    /// Whether some helper pushes rebuilt blocks to its DataNode, which may require block tokens.
    pub pushes: bool,
}

impl Attachment {
    /// Returns the node name of a DataNode: the name of its helper, or the DataNode's address if it has no
    /// helper.
    pub(super) fn name_of<'a>(&'a self, address: &'a str) -> &'a str {
        self.helpers.get(address).map_or(address, String::as_str)
    }
}

/// Why the coordinator cannot attach to a cluster.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// Threads cannot be started.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The coordinator's records cannot be read or written.
    #[error(transparent)]
    Catalog(#[from] CatalogError),
}

/// Opens the storage and starts listing the cluster. Until the first listing is complete,
/// [`Storage::unlisted`] returns the reason.
///
/// # Errors
/// [`AttachError`].
pub fn open(attachment: Attachment, records: SharedRecords) -> Result<Storage, AttachError> {
    let namenode = attachment.namenode.clone().map(NameNode::new);
    let shared = |ledger, teller| HdfsSystem::new(namenode, attachment, ledger, teller);
    let catalog = AttachedCatalog::start(Arc::clone(&records), shared)?;
    let shared = catalog.system();
    shared.recall()?;
    if let Some(namenode) = &shared.namenode {
        catalog.runtime().spawn(watching::watch_nodes(Arc::downgrade(shared), namenode.clone()));
        catalog.runtime().spawn(group_watch::watch_groups(Arc::downgrade(shared), namenode.clone()));
        catalog.runtime().spawn(watching::watch_silence(Arc::downgrade(shared)));
        catalog.runtime().spawn(watching::watch_folders(Arc::downgrade(shared), namenode.clone()));
        catalog.runtime().spawn(watching::watch_unsettled(Arc::downgrade(shared)));
        catalog.runtime().spawn(reports::watch_reports(Arc::downgrade(shared), namenode.clone()));
        catalog.runtime().spawn(terms::watch_formats(Arc::downgrade(shared)));
        if let (Some(encoding), Some(settings)) = (&shared.attachment.encoding, &shared.attachment.namenode) {
            let (encoding, settings) = (encoding.clone(), settings.clone());
            catalog.runtime().spawn(watch_policies(Arc::downgrade(shared), encoding, settings));
        }
    }
    Ok(catalog.over(records))
}
