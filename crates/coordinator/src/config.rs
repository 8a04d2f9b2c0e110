//! The start configuration of a coordinator.

use std::net::SocketAddr;
use std::path::PathBuf;

use cluster::{Cluster, Role};
use dir::DirCatalog;
use store_api::OpenError;

/// The start configuration of a coordinator.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CoordinatorConfig {
    /// The cluster folder with certificates, defaults and the list of helpers. It is read again whenever a
    /// helper registers, so helpers can be added while the coordinator runs.
    pub cluster: Cluster,
    /// Listen address of the HTTP/JSON API. With port 0, the system chooses a port.
    pub api: SocketAddr,
    /// Listen address of control connections. With port 0, the system chooses a port.
    pub control: SocketAddr,
    /// The catalog's file.
    pub catalog: PathBuf,
    /// The process's limit of file descriptors; each listener gets a share.
    pub descriptors: u64,
    /// Automatic repair: `Some(true)` only reports what would be repaired, `Some(false)` repairs, `None`
    /// turns it off.
    pub heal: Option<bool>,
}

/// Linux's default limit of file descriptors.
const USUAL_DESCRIPTORS: u64 = 1024;

impl CoordinatorConfig {
    /// The configuration according to `mend.toml`.
    pub fn from_cluster(cluster: Cluster) -> Self {
        let (api, control) = (cluster.config().coordinator.api, cluster.config().coordinator.control);
        let catalog = catalog_path(&cluster);
        Self { cluster, api, control, catalog, descriptors: USUAL_DESCRIPTORS, heal: None }
    }
}

/// Creates the empty catalog of a new cluster. Only `mend init` does this, once. A coordinator never creates
/// a catalog, since an empty catalog in place of a lost one would make the store look empty.
///
/// # Errors
/// [`OpenError`], for instance if a catalog already exists.
pub fn create_catalog(cluster: &Cluster) -> Result<(), OpenError> {
    DirCatalog::create(catalog_path(cluster), &cluster.config().cluster_id.to_string()).map(|_| ())
}

fn catalog_path(cluster: &Cluster) -> PathBuf {
    cluster.role_folder(&Role::Coordinator).join("catalog.redb")
}
