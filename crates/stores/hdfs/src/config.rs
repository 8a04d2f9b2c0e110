//! The settings in `[store]` of `mend.toml` with `kind = "hdfs"`.

use std::path::PathBuf;

use cluster::OwnRepair;
use serde::Deserialize;
use serde::de::IgnoredAny;
use toml_edit::{Array, Table, value};

/// The settings of an HDFS cluster.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct HdfsConfig {
    /// The kind of store. Already read by the table of kinds; ignored here.
    #[serde(default, rename = "kind")]
    _kind: IgnoredAny,
    /// How to query the NameNode. Without these settings, the coordinator cannot list files and has only the
    /// stripes that DataNodes describe.
    #[serde(default)]
    pub namenode: Option<NameNodeConfig>,
    /// The coordinator's automatic reaction to damage.
    #[serde(default)]
    pub repair: OwnRepair,
}

/// How to query the NameNode, with Hadoop's own client in a JVM that the coordinator starts.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NameNodeConfig {
    /// The JVM's class path: the output of `hadoop classpath` plus Mend's jar.
    pub classpath: String,
    /// `hdfs://HOST:PORT` or `hdfs://NAMESERVICE`. If omitted, the Hadoop configuration on the class path
    /// decides.
    #[serde(default)]
    pub uri: Option<String>,
    /// The `java` program to run.
    #[serde(default = "usual_java")]
    pub java: PathBuf,
    /// Additional settings for Hadoop's client, each `KEY=VALUE`.
    #[serde(default)]
    pub settings: Vec<String>,
    /// The folders whose files are repaired.
    #[serde(default = "everything")]
    pub paths: Vec<String>,
}

fn usual_java() -> PathBuf {
    "java".into()
}

fn everything() -> Vec<String> {
    vec!["/".to_owned()]
}

impl HdfsConfig {
    /// Settings of a cluster with this NameNode.
    pub(crate) fn new(namenode: NameNodeConfig, repair: OwnRepair) -> Self {
        Self { namenode: Some(namenode), repair, ..Self::default() }
    }

    /// Encodes the settings as the `[store]` table of `mend.toml`.
    pub(crate) fn to_table(&self) -> Table {
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
    /// A NameNode with this class path and default settings.
    pub(crate) fn new(classpath: String) -> Self {
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

    fn read_back(store: &HdfsConfig) -> HdfsConfig {
        #[derive(Deserialize)]
        struct Config {
            store: HdfsConfig,
        }
        let mut document = toml_edit::DocumentMut::new();
        document["store"] = toml_edit::Item::Table(store.to_table());
        toml_edit::de::from_str::<Config>(&document.to_string()).expect("it is one").store
    }

    #[test]
    fn settings_round_trip() {
        let namenode = NameNodeConfig {
            uri: Some("hdfs://nn:8020".to_owned()),
            java: "/opt/java/bin/java".into(),
            settings: vec!["a.b=c \"d\"".to_owned()],
            ..NameNodeConfig::new("/etc/hadoop:/opt/hadoop/*".to_owned())
        };
        for namenode in [None, Some(NameNodeConfig::new("x".to_owned())), Some(namenode)] {
            let store = HdfsConfig { namenode, repair: OwnRepair::DryRun, ..HdfsConfig::default() };
            assert_eq!(read_back(&store), store);
        }
    }
}
