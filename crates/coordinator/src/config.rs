//! What a coordinator is started with.

use std::net::SocketAddr;
use std::path::PathBuf;

use cluster::{Cluster, Role};
use dir::DirCatalog;
use store_api::OpenError;

/// What a coordinator is started with.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CoordinatorConfig {
    /// The cluster folder: its certificates, its defaults, and the helpers it knows. It is read again
    /// whenever a helper registers, so that helpers can be added while the coordinator runs.
    pub cluster: Cluster,
    /// Listens here for the HTTP/JSON API. Port 0 lets the system choose.
    pub api: SocketAddr,
    /// Listens here for control connections. Port 0 lets the system choose.
    pub control: SocketAddr,
    /// The catalog's file.
    pub catalog: PathBuf,
    /// How many descriptors this process may have; each listener takes a share of them.
    pub descriptors: u64,
    /// Whether damage that would be repaired without being asked for is only said; `None` if nothing is repaired so.
    pub heal: Option<bool>,
}

/// What Linux gives a process that does not ask for more.
const USUAL_DESCRIPTORS: u64 = 1024;

impl CoordinatorConfig {
    /// What the cluster's own configuration says.
    pub fn from_cluster(cluster: Cluster) -> Self {
        let (api, control) = (cluster.config().coordinator.api, cluster.config().coordinator.control);
        let catalog = catalog_path(&cluster);
        Self { cluster, api, control, catalog, descriptors: USUAL_DESCRIPTORS, heal: None }
    }
}

/// Makes the empty catalog of a new cluster. `mend init` does this once; a coordinator never makes one, since
/// an empty catalog in place of a lost one would show an empty store.
///
/// # Errors
/// [`OpenError`], for instance if there is a catalog already.
pub fn create_catalog(cluster: &Cluster) -> Result<(), OpenError> {
    DirCatalog::create(catalog_path(cluster), &cluster.config().cluster_id.to_string()).map(|_| ())
}

fn catalog_path(cluster: &Cluster) -> PathBuf {
    cluster.role_folder(&Role::Coordinator).join("catalog.redb")
}
