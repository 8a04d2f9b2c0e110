//! The table of all kinds of store, and the functions with which the binary opens a store.
//!
//! To add a store, create a crate in this folder that implements [`Kind`], and add one line to [`KINDS`]. If
//! `mend.toml` has no `[store]`, the store is the embedded default, `dir`. `CONTRIBUTING.md` ("a store")
//! lists the files to change.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use attached::{Attached, Kind, KindError};
use clap::ArgMatches;
use cluster::{Cluster, HelperConfig, OwnRepair, Role};
use dir::{DirBlocks, DirCatalog};
use store_api::{Blocks, Storage};

/// All kinds of store that `[store]` in `mend.toml` and `mend attach` accept.
pub const KINDS: &[&dyn Kind] = &[&seaweedfs::Seaweedfs, &hdfs::Hdfs];

/// The kind with this name.
pub fn kind(name: &str) -> Option<&'static dyn Kind> {
    KINDS.iter().copied().find(|kind| kind.name() == name)
}

/// The kind that `mend.toml` names; `None` for the embedded default.
fn kind_of(cluster: &Cluster) -> Result<Option<&'static dyn Kind>, KindError> {
    let Some(store) = &cluster.config().store else { return Ok(None) };
    kind(&store.kind).map(Some).ok_or_else(|| {
        let known: Vec<&str> = KINDS.iter().map(|kind| kind.name()).collect();
        let path = cluster.config_path();
        KindError::new(format!("{}: `{}` is not a kind of store in [store]", path.display(), store.kind))
            .help(format!("write one of {}", known.join(", ")))
    })
}

/// The coordinator's automatic reaction to damage. Reads, and thereby checks, all settings in
/// `[store]`.
///
/// # Errors
/// [`KindError`] for an unknown kind, key or value.
pub fn own_repair(cluster: &Cluster) -> Result<OwnRepair, KindError> {
    kind_of(cluster)?.map_or(Ok(OwnRepair::Auto), |kind| kind.own_repair(cluster))
}

/// Opens the coordinator's storage: the store's catalog over records in redb. May block.
///
/// # Errors
/// [`KindError`].
pub fn storage(cluster: &Cluster) -> Result<Storage, KindError> {
    let kind = kind_of(cluster)?;
    let records = DirCatalog::open(records_path(cluster), &cluster.config().cluster_id.to_string())?;
    match kind {
        None => Ok(records.into_storage()),
        Some(kind) => kind.storage(cluster, Arc::new(Mutex::new(records))),
    }
}

/// Opens a helper's blocks. May block.
///
/// # Errors
/// [`KindError`].
pub fn blocks(cluster: &Cluster, helper: &HelperConfig) -> Result<Arc<dyn Blocks>, KindError> {
    match kind_of(cluster)? {
        None => Ok(Arc::new(DirBlocks::open(cluster.blocks_folder(helper))?)),
        Some(kind) => kind.blocks(cluster, helper),
    }
}

/// Attaches to a running system: creates a cluster folder with empty records.
///
/// # Errors
/// [`KindError`].
pub async fn attach(
    kind: &dyn Kind,
    folder: Option<PathBuf>,
    args: &ArgMatches,
) -> Result<Attached, KindError> {
    let attached = kind.attach(folder, args).await?;
    let cluster_id = attached.cluster.config().cluster_id.to_string();
    DirCatalog::create(records_path(&attached.cluster), &cluster_id)?;
    Ok(attached)
}

/// The file of the coordinator's records.
fn records_path(cluster: &Cluster) -> PathBuf {
    cluster.role_folder(&Role::Coordinator).join("catalog.redb")
}
