//! Storage and blocks of attached storage systems, for the daemons.

mod hdfs;
mod seaweedfs;

use std::path::PathBuf;
use std::sync::Arc;

use cluster::{Cluster, HelperConfig, OwnRepair, Role, StoreConfig};
use stores::{Blocks, Storage};

use crate::failure::Failure;

/// The coordinator's storage.
pub async fn storage(cluster: &Cluster, store: &StoreConfig) -> Result<Box<dyn Storage>, Failure> {
    match store {
        StoreConfig::Seaweedfs(config) => seaweedfs::storage(cluster, config).await,
        StoreConfig::Hdfs(config) => hdfs::storage(cluster, config).await,
    }
}

/// Automatic repair: `Some(true)` logs repairs only, `Some(false)` runs them, `None` turns it off.
pub fn heal(store: &StoreConfig, dry_run: bool) -> Option<bool> {
    let repair = match store {
        StoreConfig::Seaweedfs(config) => config.repair,
        StoreConfig::Hdfs(config) if config.namenode.is_none() => OwnRepair::Off,
        StoreConfig::Hdfs(config) => config.repair,
    };
    match repair {
        OwnRepair::Auto => Some(dry_run),
        OwnRepair::DryRun => Some(true),
        OwnRepair::Off => dry_run.then_some(true),
    }
}

/// A helper's blocks.
pub fn blocks(
    cluster: &Cluster,
    store: &StoreConfig,
    helper: &HelperConfig,
) -> Result<Arc<dyn Blocks>, Failure> {
    match store {
        StoreConfig::Seaweedfs(_) => seaweedfs::blocks(cluster, helper),
        StoreConfig::Hdfs(_) => hdfs::blocks(cluster, helper),
    }
}

/// The path of the coordinator's own records.
fn records(cluster: &Cluster) -> PathBuf {
    cluster.role_folder(&Role::Coordinator).join("catalog.redb")
}
