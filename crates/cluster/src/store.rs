//! The `[store]` section of `mend.toml`: the attached storage system, if any.

use std::path::PathBuf;

use serde::Deserialize;
use toml_edit::{Array, Table, value};

/// An attached storage system.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum StoreConfig {
    /// A SeaweedFS cluster and its EC volumes.
    Seaweedfs(SeaweedfsConfig),
    /// An HDFS cluster and its erasure-coded files.
    Hdfs(HdfsConfig),
}

/// A SeaweedFS cluster.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SeaweedfsConfig {
    /// Its masters, `HOST:PORT` or `HOST:PORT.GRPC_PORT`; one suffices.
    pub masters: Vec<String>,
    /// Its `security.toml`, absolute or relative to the cluster folder, if its gRPC ports use TLS.
    #[serde(default)]
    pub security: Option<PathBuf>,
    /// Automatic repair of damage.
    #[serde(default)]
    pub repair: OwnRepair,
}

/// An HDFS cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HdfsConfig {
    /// How to reach its NameNode. Without it, the coordinator knows no files and serves only stripes that
    /// DataNodes describe.
    #[serde(default)]
    pub namenode: Option<NameNodeConfig>,
    /// Automatic repair of damage.
    #[serde(default)]
    pub repair: OwnRepair,
}

/// A NameNode. The coordinator queries it with Hadoop's own client in a JVM.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NameNodeConfig {
    /// The class path of the JVM: the output of `hadoop classpath` plus Mend's jar.
    pub classpath: String,
    /// `hdfs://HOST:PORT` or `hdfs://NAMESERVICE`; if absent, taken from the Hadoop configuration on the
    /// class path.
    #[serde(default)]
    pub uri: Option<String>,
    /// The `java` executable.
    #[serde(default = "usual_java")]
    pub java: PathBuf,
    /// Additional settings for Hadoop's client, `KEY=VALUE`.
    #[serde(default)]
    pub settings: Vec<String>,
    /// The folders whose files are repaired.
    #[serde(default = "everything")]
    pub paths: Vec<String>,
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

fn usual_java() -> PathBuf {
    "java".into()
}

fn everything() -> Vec<String> {
    vec!["/".to_owned()]
}

impl OwnRepair {
    fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::DryRun => "dry-run",
            Self::Off => "off",
        }
    }
}

impl StoreConfig {
    pub(crate) fn to_table(&self) -> Table {
        match self {
            Self::Seaweedfs(config) => config.to_table(),
            Self::Hdfs(config) => config.to_table(),
        }
    }
}

impl SeaweedfsConfig {
    fn to_table(&self) -> Table {
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

impl HdfsConfig {
    fn to_table(&self) -> Table {
        let mut table = Table::new();
        table["kind"] = value("hdfs");
        table["repair"] = value(self.repair.name());
        if let Some(namenode) = &self.namenode {
            table["namenode"] = toml_edit::Item::Table(namenode.to_table());
        }
        table
    }
}

impl NameNodeConfig {
    /// A NameNode with this class path and defaults otherwise.
    pub fn new(classpath: String) -> Self {
        Self { classpath, uri: None, java: usual_java(), settings: Vec::new(), paths: everything() }
    }

    fn to_table(&self) -> Table {
        let mut table = Table::new();
        if let Some(uri) = &self.uri {
            table["uri"] = value(uri.as_str());
        }
        table["paths"] = value(self.paths.iter().collect::<Array>());
        if self.java != usual_java() {
            table["java"] = value(self.java.to_string_lossy().into_owned());
        }
        if !self.settings.is_empty() {
            table["settings"] = value(self.settings.iter().collect::<Array>());
        }
        table["classpath"] = value(self.classpath.as_str());
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_back(store: &StoreConfig) -> StoreConfig {
        #[derive(Deserialize)]
        struct Config {
            store: StoreConfig,
        }
        let mut document = toml_edit::DocumentMut::new();
        document["store"] = toml_edit::Item::Table(store.to_table());
        toml_edit::de::from_str::<Config>(&document.to_string()).expect("it is one").store
    }

    #[test]
    fn a_store_is_written_as_it_is_read() {
        let namenode = NameNodeConfig {
            uri: Some("hdfs://nn:8020".to_owned()),
            java: "/opt/java/bin/java".into(),
            settings: vec!["a.b=c \"d\"".to_owned()],
            ..NameNodeConfig::new("/etc/hadoop:/opt/hadoop/*".to_owned())
        };
        for namenode in [None, Some(NameNodeConfig::new("x".to_owned())), Some(namenode)] {
            let store = StoreConfig::Hdfs(HdfsConfig { namenode, repair: OwnRepair::DryRun });
            assert_eq!(read_back(&store), store);
        }
        let masters = vec!["m:9333".to_owned()];
        let store =
            StoreConfig::Seaweedfs(SeaweedfsConfig { masters, security: None, repair: OwnRepair::Off });
        assert_eq!(read_back(&store), store);
    }
}
