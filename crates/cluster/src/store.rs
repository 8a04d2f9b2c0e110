//! `[store]` of `mend.toml`: the storage system that a cluster repairs, where it is not Mend's own files.

use std::path::PathBuf;

use serde::Deserialize;
use toml_edit::{Array, Table, value};

/// A storage system beside which Mend works.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum StoreConfig {
    /// A SeaweedFS cluster and its EC volumes.
    Seaweedfs(SeaweedfsConfig),
}

/// A SeaweedFS cluster.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SeaweedfsConfig {
    /// Its masters, `HOST:PORT` or `HOST:PORT.GRPC_PORT`; one is enough.
    pub masters: Vec<String>,
    /// Its `security.toml`, absolute or relative to the cluster folder, if its gRPC ports speak TLS.
    #[serde(default)]
    pub security: Option<PathBuf>,
    /// What is done about damage without being asked for.
    #[serde(default)]
    pub repair: OwnRepair,
}

/// What a coordinator does about damage without being asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OwnRepair {
    /// It repairs it.
    #[default]
    Auto,
    /// It says in its log what it would repair.
    DryRun,
    /// Nothing.
    Off,
}

impl StoreConfig {
    pub(crate) fn to_table(&self) -> Table {
        let Self::Seaweedfs(config) = self;
        let mut table = Table::new();
        table["kind"] = value("seaweedfs");
        table["masters"] = value(config.masters.iter().collect::<Array>());
        if let Some(security) = &config.security {
            table["security"] = value(security.to_string_lossy().into_owned());
        }
        table["repair"] = value(match config.repair {
            OwnRepair::Auto => "auto",
            OwnRepair::DryRun => "dry-run",
            OwnRepair::Off => "off",
        });
        table
    }
}
