//! Opens the storage: loads the records, lists the cluster and starts the background tasks.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use attached::StartError;
use store_api::{CatalogError, SharedRecords, Storage};
use tokio::time::Instant;

use super::state::Shared;
use super::{AttachedCatalog, inspection, server_folders, watching};
use crate::address::ServerAddress;
use crate::blocks::{EncodedVolume, Encoding};
use crate::error::AskError;
use crate::listing::{Server, ServerId};
use crate::master::MasterClient;
use crate::security::Security;

/// Why Mend does not do upkeep; see [`Attachment::may_change`].
pub(super) const NOT_AUTOMATIC: &str = "automatic repair is off or a dry run";

/// The cluster's addresses, its security settings, and the helpers on its servers.
#[derive(Clone, Debug)]
pub struct Attachment {
    /// The cluster's masters; one suffices.
    pub masters: Vec<ServerAddress>,
    /// Keys and certificates of the cluster.
    pub security: Security,
    /// Helper names, keyed by the HTTP address or `-id` of the volume server on the same machine.
    pub helpers: BTreeMap<String, String>,
    /// The folders of each helper, with the same keys. Volume servers must have the same ones.
    pub folders: BTreeMap<String, Vec<PathBuf>>,
    /// The longest time between two listings of the whole cluster.
    pub list_every: Duration,
    /// Encodings whose unlisted shards never return, as the operator says: the locations that an earlier coordinator
    /// recorded for them are ignored.
    pub abandoned: BTreeSet<EncodedVolume>,
    /// Whether Mend may change servers without being asked: replace metadata files, and finish what earlier
    /// coordinators have begun.
    pub may_change: bool,
}

impl Attachment {
    /// Returns the node name of a server: the name of its helper, or the server's own ID if it has no helper.
    pub(super) fn name_of(&self, id: &ServerId, server: &Server) -> String {
        self.helper_of(id, server).map_or_else(|| id.0.clone(), str::to_owned)
    }

    /// Whether the operator has abandoned this encoding of a volume.
    pub(super) fn has_abandoned(&self, id: u32, encoding: Encoding, collection: &str) -> bool {
        let mut abandoned = self.abandoned.iter().filter(|it| it.encoding == encoding);
        abandoned.any(|it| it.volume.id() == id && it.volume.collection() == collection)
    }

    /// Returns the name of the helper on a server's machine.
    pub fn helper_of(&self, id: &ServerId, server: &Server) -> Option<&str> {
        of_server(&self.helpers, id, server).map(String::as_str)
    }

    /// Returns the folders of the helper on a server's machine, if `mend.toml` names any.
    pub(super) fn folders_of(&self, id: &ServerId, server: &Server) -> Option<&[PathBuf]> {
        let found = of_server(&self.folders, id, server).map(Vec::as_slice);
        found.filter(|folders| !folders.is_empty())
    }
}

/// Returns the value that is keyed by the ID or the HTTP address of a server.
fn of_server<'v, V>(values: &'v BTreeMap<String, V>, id: &ServerId, server: &Server) -> Option<&'v V> {
    values.get(&id.0).or_else(|| values.get(&server.address.http()))
}

/// Why the coordinator cannot attach to a cluster.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// The threads could not be started.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The coordinator's records cannot be read or written.
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    /// No master answered.
    #[error("cannot list the cluster's volumes: {0}")]
    Master(#[from] AskError),
}

/// Opens the storage of a cluster. This call blocks, so it must not run on an async runtime's thread.
///
/// # Errors
/// [`AttachError`].
pub fn open(attachment: Attachment, records: SharedRecords) -> Result<Storage, AttachError> {
    let list_every = attachment.list_every;
    let master = MasterClient::new(attachment.masters.clone(), attachment.security.clone());
    let shared = |ledger, teller| Shared::new(master, attachment, ledger, teller);
    let catalog = AttachedCatalog::start(Arc::clone(&records), shared)?;
    let (shared, runtime) = (catalog.system(), catalog.runtime());
    shared.known.recall_homes()?;
    shared.known.recall_server_ids()?;
    shared.known.recall()?;
    shared.known.recall_doubts()?;
    shared.known.recall_withdrawals()?;
    shared.known.recall_late_deletions()?;
    let asked = Instant::now();
    let listing = runtime.block_on(shared.known.master.list())?;
    shared.known.take_all(listing, asked, list_every)?;
    runtime.block_on(watching::learn(shared));
    runtime.block_on(watching::confirm(shared));
    runtime.block_on(server_folders::compare(shared));
    watching::report(shared);
    runtime.spawn(watching::watch(Arc::downgrade(shared)));
    runtime.spawn(watching::watch_silence(Arc::downgrade(shared)));
    runtime.spawn(watching::tend(Arc::downgrade(shared)));
    runtime.spawn(watching::undo(Arc::downgrade(shared)));
    runtime.spawn(server_folders::watch(Arc::downgrade(shared)));
    runtime.spawn(inspection::inspect(Arc::downgrade(shared)));
    Ok(catalog.over(records))
}
