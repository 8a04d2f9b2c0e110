//! Beginning: the records, the first listing, and what goes on by itself from then on.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use stores::CatalogError;
use stores::attached::StartError;
use tokio::time::Instant;

use super::state::Shared;
use super::{AttachedStorage, inspection, watching};
use crate::address::ServerAddress;
use crate::error::AskError;
use crate::listing::{Server, ServerId};
use crate::master::MasterClient;
use crate::security::Security;

/// Which cluster, and who helps where.
#[derive(Clone, Debug)]
pub struct Attachment {
    /// Its masters; one is enough.
    pub masters: Vec<ServerAddress>,
    /// How to speak to it.
    pub security: Security,
    /// The names of the helpers, by the HTTP addresses or `-id`s of the volume servers that they work beside.
    pub helpers: BTreeMap<String, String>,
    /// Everything is listed at least this often.
    pub list_every: Duration,
}

impl Attachment {
    /// A node's name: its helper's, or the server's own if it has none.
    pub(super) fn name_of(&self, id: &ServerId, server: &Server) -> String {
        self.helper_of(id, server).map_or_else(|| id.0.clone(), str::to_owned)
    }

    /// The helper beside a server.
    pub fn helper_of(&self, id: &ServerId, server: &Server) -> Option<&str> {
        let found = self.helpers.get(&id.0).or_else(|| self.helpers.get(&server.address.http()));
        found.map(String::as_str)
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
    /// No master answers.
    #[error("no list of the cluster's volumes: {0}")]
    Master(#[from] AskError),
}

/// Opens the records and lists the cluster. It is not to be called where a runtime would be blocked by that.
///
/// # Errors
/// [`AttachError`].
pub fn open(
    attachment: Attachment,
    records: PathBuf,
    cluster_id: &str,
) -> Result<AttachedStorage, AttachError> {
    let master = MasterClient::new(attachment.masters.clone(), attachment.security.clone());
    let shared = |ledger, teller| Shared::new(master, attachment, ledger, teller);
    let storage = AttachedStorage::start(records, cluster_id, shared)?;
    let (shared, runtime) = (storage.system(), storage.runtime());
    shared.recall_bad()?;
    shared.recall_withdrawals()?;
    shared.recall_homes()?;
    let asked = Instant::now();
    let listing = runtime.block_on(shared.master.list())?;
    shared.take_all(listing, asked)?;
    runtime.block_on(watching::learn(shared));
    runtime.block_on(watching::confirm(shared));
    watching::report(shared);
    runtime.spawn(watching::watch(Arc::downgrade(shared)));
    runtime.spawn(watching::tend(Arc::downgrade(shared)));
    runtime.spawn(inspection::inspect(Arc::downgrade(shared)));
    Ok(storage)
}
