//! Opening: recalls the records, lists the cluster and starts the background tasks.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use attached::StartError;
use store_api::{CatalogError, SharedRecords, Storage};
use tokio::time::Instant;

use super::state::Shared;
use super::{AttachedCatalog, inspection, watching};
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

/// Why a coordinator cannot attach to a cluster.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// No threads.
    #[error(transparent)]
    Start(#[from] StartError),
    /// Its own records cannot be read or written.
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    /// No master answers.
    #[error("no list of the cluster's volumes: {0}")]
    Master(#[from] AskError),
}

/// Lists the cluster. It blocks, so it must not be called on a runtime's thread.
///
/// # Errors
/// [`AttachError`].
pub fn open(attachment: Attachment, records: SharedRecords) -> Result<Storage, AttachError> {
    let master = MasterClient::new(attachment.masters.clone(), attachment.security.clone());
    let shared = |ledger, teller| Shared::new(master, attachment, ledger, teller);
    let catalog = AttachedCatalog::start(Arc::clone(&records), shared)?;
    let (shared, runtime) = (catalog.system(), catalog.runtime());
    shared.known.recall_bad()?;
    shared.known.recall_withdrawals()?;
    shared.known.recall_homes()?;
    let asked = Instant::now();
    let listing = runtime.block_on(shared.known.master.list())?;
    shared.known.take_all(listing, asked)?;
    runtime.block_on(watching::learn(shared));
    runtime.block_on(watching::confirm(shared));
    watching::report(shared);
    runtime.spawn(watching::watch(Arc::downgrade(shared)));
    runtime.spawn(watching::tend(Arc::downgrade(shared)));
    runtime.spawn(inspection::inspect(Arc::downgrade(shared)));
    Ok(catalog.over(records))
}
