//! The section `[store]` of `mend.toml`, which names the attached storage system.
//!
//! Only the kind is parsed here. The crate of that kind of store parses the other keys, with
//! [`Cluster::store_settings`](crate::Cluster::store_settings).

use serde::Deserialize;

/// The kind of the attached storage system.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct StoreConfig {
    /// The name of the kind, such as `seaweedfs` or `hdfs`.
    pub kind: String,
}

/// The coordinator's automatic reaction to lost or corrupt blocks of an attached store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OwnRepair {
    /// The coordinator repairs the blocks.
    #[default]
    Auto,
    /// The coordinator only logs what it would repair.
    DryRun,
    /// The coordinator does nothing.
    Off,
}

impl OwnRepair {
    /// Returns the name of this reaction in `mend.toml`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::DryRun => "dry-run",
            Self::Off => "off",
        }
    }
}
