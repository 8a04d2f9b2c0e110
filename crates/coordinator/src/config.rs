//! The start configuration of a coordinator.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use cluster::Cluster;

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
    /// Listen address for metrics without encryption, on loopback; `None` turns it off. With port 0, the system
    /// chooses a port.
    pub metrics: Option<SocketAddr>,
    /// The names of the helpers on the servers of an attached storage system. The key is the address by which
    /// that system identifies the server.
    pub servers: BTreeMap<String, String>,
    /// The process's limit of file descriptors; each listener gets a share.
    pub descriptors: u64,
    /// Automatic repair: `Some(true)` only reports what would be repaired, `Some(false)` repairs, `None`
    /// turns it off.
    pub heal: Option<bool>,
}

/// Linux's default limit of file descriptors.
const USUAL_DESCRIPTORS: u64 = 1024;

impl CoordinatorConfig {
    /// Creates the start configuration that `mend.toml` describes.
    pub fn from_cluster(cluster: Cluster) -> Self {
        let (api, control) = (cluster.config().coordinator.api, cluster.config().coordinator.control);
        let metrics = cluster.config().coordinator.metrics;
        let servers = BTreeMap::new();
        Self { cluster, api, control, metrics, servers, descriptors: USUAL_DESCRIPTORS, heal: None }
    }
}
