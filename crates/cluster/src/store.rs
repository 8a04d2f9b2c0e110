//! The `[store]` section of `mend.toml`: the attached storage system, if any.
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

/// The coordinator's automatic reaction to damage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OwnRepair {
    /// Repairs it.
    #[default]
    Auto,
    /// Logs what it would repair.
    DryRun,
    /// Does nothing.
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
