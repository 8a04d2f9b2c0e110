//! The section `[store]` of `mend.toml` with `kind = "seaweedfs"`.

use std::path::PathBuf;

use cluster::{HelperSettings, OwnRepair};
use serde::Deserialize;
use serde::de::IgnoredAny;
use toml_edit::{Array, Table, value};

/// The configuration of a SeaweedFS cluster.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SeaweedfsConfig {
    /// The kind of store. The registry of store kinds reads this key.
    #[serde(default, rename = "kind")]
    _kind: IgnoredAny,
    /// The cluster's masters, `HOST:PORT` or `HOST:PORT.GRPC_PORT`; one suffices.
    pub masters: Vec<String>,
    /// The cluster's `security.toml`, absolute or relative to the cluster folder; needed if the
    /// cluster's gRPC ports use TLS.
    #[serde(default)]
    pub security: Option<PathBuf>,
    /// The damage that is repaired automatically.
    #[serde(default)]
    pub repair: OwnRepair,
    /// Encodings of volumes whose unlisted shards never return, `VOLUME@ENCODETSNS`.
    #[serde(default)]
    pub abandoned_encodings: Vec<String>,
}

/// A helper's settings: the volume server on the same machine, and the server's folders.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct SeaweedfsHelper {
    /// The volume server's `HOST:PORT` or `-id`.
    pub volume_server: Option<String>,
    /// The volume server's `-dir` folders, in the server's order.
    pub folders: Vec<PathBuf>,
    /// The volume server's `-dir.idx` folder, if the server has one.
    pub index_folder: Option<PathBuf>,
}

impl HelperSettings for SeaweedfsHelper {}

impl SeaweedfsHelper {
    /// Renders the keys of these settings in `[[helper]]` of `mend.toml`.
    pub(crate) fn to_table(&self) -> Table {
        let mut table = Table::new();
        if let Some(server) = &self.volume_server {
            table["volume_server"] = value(server.as_str());
        }
        if !self.folders.is_empty() {
            let folders = self.folders.iter().map(|folder| folder.to_string_lossy().into_owned());
            table["folders"] = value(folders.collect::<Array>());
        }
        if let Some(folder) = &self.index_folder {
            table["index_folder"] = value(folder.to_string_lossy().into_owned());
        }
        table
    }
}

impl SeaweedfsConfig {
    /// Creates a configuration with these masters.
    pub(crate) fn new(masters: Vec<String>, security: Option<PathBuf>, repair: OwnRepair) -> Self {
        Self { _kind: IgnoredAny, masters, security, repair, abandoned_encodings: Vec::new() }
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
    fn a_helper_is_written_as_it_is_read() {
        let beside = SeaweedfsHelper {
            volume_server: Some("10.0.0.1:8080".to_owned()),
            folders: vec!["/a".into(), "/b".into()],
            index_folder: Some("/index".into()),
        };
        for helper in [SeaweedfsHelper::default(), beside] {
            let text = helper.to_table().to_string();
            assert_eq!(toml_edit::de::from_str::<SeaweedfsHelper>(&text), Ok(helper), "{text}");
        }
    }

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
