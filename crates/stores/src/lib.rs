//! The table of all kinds of store, and the functions with which the binary opens a store.
//!
//! To add a store, create a crate in this folder that implements [`Kind`], and add one line to [`KINDS`]. If
//! `mend.toml` has no `[store]`, the store is the embedded default, `dir`. `CONTRIBUTING.md` ("a store")
//! lists the files to change.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use attached::{Attached, Findings, Kind, KindError};
use clap::ArgMatches;
use cluster::{Cluster, HelperConfig, OwnRepair, Role};
use dir::{DirBlocks, DirCatalog};
pub use dir::{Rebuilt, Rival, Stranger};
/// Encoding of replicated files of HDFS.
pub mod raid {
    pub use hdfs::{
        Covered, Deeds, Driver, Errand, HelperParity, Outcome, ParityMaker, Unpaced, check_codecs, drive_all,
        settled_after, term,
    };
}
pub use hdfs::{RaidFile, RaidNameNode};
use store_api::{Blocks, Inventory, OpenError, Storage};

/// All kinds of store that `[store]` in `mend.toml` and `mend attach` accept.
pub const KINDS: &[&dyn Kind] = &[&seaweedfs::Seaweedfs, &hdfs::Hdfs];

/// Returns the kind of store with this name.
pub fn kind(name: &str) -> Option<&'static dyn Kind> {
    KINDS.iter().copied().find(|kind| kind.name() == name)
}

/// Returns the kind of store that `mend.toml` names; `None` for the embedded default.
fn kind_of(cluster: &Cluster) -> Result<Option<&'static dyn Kind>, KindError> {
    let Some(store) = &cluster.config().store else { return Ok(None) };
    kind(&store.kind).map(Some).ok_or_else(|| {
        let known: Vec<&str> = KINDS.iter().map(|kind| kind.name()).collect();
        let path = cluster.config_path();
        KindError::new(format!("{}: `{}` is not a kind of store in [store]", path.display(), store.kind))
            .help(format!("write one of {}", known.join(", ")))
    })
}

/// Checks all settings of the store in `mend.toml` by reading them.
///
/// # Errors
/// [`KindError`]: a kind, key or value that is not known.
pub fn check(cluster: &Cluster) -> Result<(), KindError> {
    own_repair(cluster)?;
    servers(cluster).map(drop)
}

/// Returns how a coordinator reacts to damage automatically.
///
/// # Errors
/// As [`check`].
pub fn own_repair(cluster: &Cluster) -> Result<OwnRepair, KindError> {
    kind_of(cluster)?.map_or(Ok(OwnRepair::Auto), |kind| kind.own_repair(cluster))
}

/// Returns the helpers' names, keyed by the address of the store's server on the same machine.
///
/// # Errors
/// As [`check`].
pub fn servers(cluster: &Cluster) -> Result<BTreeMap<String, String>, KindError> {
    kind_of(cluster)?.map_or_else(|| Ok(BTreeMap::new()), |kind| kind.servers(cluster))
}

/// Opens the coordinator's storage: the store's catalog over records in redb. `own_repair` is the coordinator's
/// automatic reaction to damage. May block.
///
/// # Errors
/// [`KindError`].
pub fn storage(cluster: &Cluster, own_repair: OwnRepair) -> Result<Storage, KindError> {
    let kind = kind_of(cluster)?;
    let records = DirCatalog::open(catalog_path(cluster), &id(cluster))?;
    match kind {
        None => Ok(records.into_storage()),
        Some(kind) => kind.storage(cluster, Arc::new(Mutex::new(records)), own_repair),
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
/// [`KindError`]; no folder is created then.
pub async fn attach(
    kind: &dyn Kind,
    folder: Option<PathBuf>,
    args: &ArgMatches,
) -> Result<Findings, KindError> {
    let Attached { mut cluster, findings } = kind.attach(folder, args).await?;
    create(cluster.unfinished())?;
    cluster.finish()?;
    Ok(findings)
}

/// Creates the empty records of a new cluster. A coordinator never does this: if the records were lost, empty
/// new ones would make the store look empty.
///
/// # Errors
/// [`OpenError`], for instance if the file exists.
pub fn create(cluster: &Cluster) -> Result<(), OpenError> {
    DirCatalog::create(catalog_path(cluster), &id(cluster)).map(drop)
}

/// Replaces the records by a copy. No coordinator may be running. Returns the path at which the previous
/// records are kept.
///
/// # Errors
/// [`OpenError`]; nothing has changed then.
pub fn restore(cluster: &Cluster, copy: &Path) -> Result<Option<PathBuf>, OpenError> {
    // In an attached cluster, the store says which servers there are.
    let is_attached = cluster.config().store.is_some();
    let helpers = cluster.config().helpers.iter().filter(|_| !is_attached);
    let helpers = helpers.map(|helper| helper.name.to_string()).collect();
    DirCatalog::restore(copy, &catalog_path(cluster), &id(cluster), &helpers)
}

/// Rebuilds the embedded store's catalog from the blocks that helpers report; `silent` are the helpers that
/// did not answer. No coordinator may be running. May block.
///
/// # Errors
/// [`OpenError`]; nothing has changed then.
pub fn rebuild(
    cluster: &Cluster,
    held: &[Inventory],
    silent: &BTreeSet<String>,
) -> Result<Rebuilt, OpenError> {
    DirCatalog::rebuild(&catalog_path(cluster), &id(cluster), held, silent)
}

/// Returns the path of the file that stores the coordinator's records and the embedded store's catalog.
pub fn catalog_path(cluster: &Cluster) -> PathBuf {
    cluster.role_folder(&Role::Coordinator).join("catalog.redb")
}

fn id(cluster: &Cluster) -> String {
    cluster.config().cluster_id.to_string()
}
