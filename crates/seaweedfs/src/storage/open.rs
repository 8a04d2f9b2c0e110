//! Beginning: the records, the first listing, and what goes on by itself from then on.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use stores::CatalogError;
use stores::attached::{Aside, Teller};
use stores::dir::{DirCatalog, OpenError};
use tokio::time::Instant;

use super::state::Shared;
use super::{AttachedStorage, watching};
use crate::address::ServerAddress;
use crate::error::AskError;
use crate::listing::{Server, ServerId};
use crate::master::MasterClient;
use crate::security::Security;

/// One keeps up with the cluster, the other renews the lock whatever happens.
const THREADS: usize = 2;

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
    /// Its own records cannot be used.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// They cannot be read or written.
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    /// No master answers.
    #[error("no list of the cluster's volumes: {0}")]
    Master(#[from] AskError),
    /// The system gives no thread.
    #[error("cannot start threads: {0}")]
    Threads(#[source] io::Error),
}

impl AttachedStorage {
    /// Opens the records and lists the cluster. It is not to be called where a runtime would be blocked by that.
    ///
    /// # Errors
    /// [`AttachError`].
    pub fn open(attachment: Attachment, records: PathBuf, cluster_id: &str) -> Result<Self, AttachError> {
        let records = DirCatalog::open(records, cluster_id)?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(THREADS)
            .thread_name("seaweedfs")
            .enable_all()
            .build()
            .map_err(AttachError::Threads)?;
        let teller = Teller::start().map_err(AttachError::Threads)?;
        let master = MasterClient::new(attachment.masters.clone(), attachment.security.clone());
        let shared = Arc::new(Shared::new(master, attachment, records, teller.clone()));
        // From here on the runtime goes the way of the storage.
        let storage =
            Self { shared: Arc::clone(&shared), teller, aside: Aside::default(), runtime: Some(runtime) };
        shared.recall_bad()?;
        let asked = Instant::now();
        let listing = storage.wait(shared.master.list())?;
        shared.take_all(listing, asked)?;
        storage.wait(watching::learn(&shared));
        storage.wait(watching::confirm(&shared));
        watching::report(&shared);
        let runtime = storage.runtime.as_ref().expect("just made");
        runtime.spawn(watching::watch(Arc::downgrade(&shared)));
        runtime.spawn(watching::tend(Arc::downgrade(&shared)));
        Ok(storage)
    }
}
