//! The section `[store]` of `mend.toml` with `kind = "seaweedfs"`.

use std::path::PathBuf;

use cluster::OwnRepair;
use serde::Deserialize;
use serde::de::IgnoredAny;
use toml_edit::{Array, Table, value};

/// The configuration of a SeaweedFS cluster.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SeaweedfsConfig {
    /// Read by the registry of store kinds.
    #[serde(default, rename = "kind")]
    _kind: IgnoredAny,
    /// The cluster's masters, `HOST:PORT` or `HOST:PORT.GRPC_PORT`; one suffices.
    pub masters: Vec<String>,
    /// The cluster's `security.toml`, absolute or relative to the cluster folder; needed if its gRPC ports
    /// use TLS.
    #[serde(default)]
    pub security: Option<PathBuf>,
    /// The damage that is repaired automatically.
    #[serde(default)]
    pub repair: OwnRepair,
}

impl SeaweedfsConfig {
    /// A configuration with these masters.
    pub(crate) fn new(masters: Vec<String>, security: Option<PathBuf>, repair: OwnRepair) -> Self {
        Self { _kind: IgnoredAny, masters, security, repair }
    }

    /// Renders the section `[store]` of `mend.toml`.
    pub(crate) fn to_table(&self) -> Table {
        let mut table = Table::new();
        table["kind"] = value("seaweedfs");
        table["masters"] = value(self.masters.iter().collect::<Array>());
        if let Some(security) = &self.security {
            table["security"] = value(security.to_string_lossy().into_owned());
        }
        table["repair"] = value(self.repair.name());
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_is_written_as_it_is_read() {
        #[derive(Deserialize)]
        struct Config {
            store: SeaweedfsConfig,
        }
        for security in [None, Some("security.toml".into())] {
            let store = SeaweedfsConfig::new(vec!["m:9333".to_owned()], security, OwnRepair::Off);
            let mut document = toml_edit::DocumentMut::new();
            document["store"] = toml_edit::Item::Table(store.to_table());
            let read = toml_edit::de::from_str::<Config>(&document.to_string()).expect("it is one").store;
            assert_eq!(read, store);
        }
    }
}
