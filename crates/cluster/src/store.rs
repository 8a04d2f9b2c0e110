//! `[store]` of `mend.toml`: the storage system that a cluster repairs, where it is not Mend's own files.
//!
//! Only the kind is read here. The crate of that kind reads the other keys, with
//! [`Cluster::store_settings`](crate::Cluster::store_settings).

use serde::Deserialize;

/// The kind of a storage system beside which Mend works.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct StoreConfig {
    /// Its name: `seaweedfs`, `hdfs`.
    pub kind: String,
}

/// What a coordinator does about damage without being asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OwnRepair {
    /// It repairs it.
    #[default]
    Auto,
    /// It logs what it would repair.
    DryRun,
    /// Nothing.
    Off,
}

impl OwnRepair {
    /// Its name in `mend.toml`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::DryRun => "dry-run",
            Self::Off => "off",
        }
    }
}
