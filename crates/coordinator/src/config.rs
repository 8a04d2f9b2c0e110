//! What a coordinator is started with.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use cluster::Cluster;

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
    /// The names of helpers, by the addresses of the storage system's servers on the same machines.
    pub servers: BTreeMap<String, String>,
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
        Self { cluster, api, control, servers: BTreeMap::new(), descriptors: USUAL_DESCRIPTORS, heal: None }
    }
}
