//! The settings in `[store]` of `mend.toml` with `kind = "hdfs"`.

use std::path::PathBuf;
use std::time::Duration;

use cluster::{Bandwidth, HelperSettings, OwnRepair};
use hdfs_raid::{Codec, SETTLED};
use serde::de::{Error as _, IgnoredAny};
use serde::{Deserialize, Deserializer};
use toml_edit::{Array, Table, value};

use crate::{ChecksumFormat, NoChecksumFormat};

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
    /// The checksum format of rebuilt blocks that replace no other block, if no DataNode tells the format of the
    /// group's other blocks.
    #[serde(default, deserialize_with = "checksum")]
    pub checksum: ChecksumFormat,
    /// Replicated files with parity; `None` if they are not repaired.
    #[serde(default)]
    pub raid: Option<RaidConfig>,
}

/// The repair of replicated files with parity in the layout of HDFS-RAID, and their encoding by policies.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RaidConfig {
    /// Codecs in addition to those of HDFS-RAID.
    pub codec: Vec<Codec>,
    /// The file with the policies that the coordinator evaluates, relative to the cluster folder; `None` if files are
    /// encoded only by command.
    pub policies: Option<PathBuf>,
    /// The most bytes that are read and written for encoding in a second; `None` without a limit.
    pub rate: Option<Bandwidth>,
    /// The most files that are encoded at the same time.
    #[serde(deserialize_with = "files_at_once")]
    pub files_at_once: usize,
    /// The time between two listings of the policies' folders.
    #[serde(deserialize_with = "interval")]
    pub interval: Duration,
    /// Replicas are moved once they have not changed for this long.
    #[serde(deserialize_with = "settled_after")]
    pub settled_after: Duration,
}

/// The most files that can be encoded at the same time.
const MOST_AT_ONCE: usize = 64;
/// The shortest interval between two listings.
const SHORTEST_INTERVAL: Duration = Duration::from_secs(10);
/// The shortest time after which replicas count as settled.
const SHORTEST_SETTLED: Duration = Duration::from_secs(1);

impl Default for RaidConfig {
    fn default() -> Self {
        Self {
            codec: Vec::new(),
            policies: None,
            rate: None,
            files_at_once: 4,
            interval: Duration::from_secs(3600),
            settled_after: SETTLED,
        }
    }
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

/// A helper's settings: the DataNode on the same machine, and the DataNode's folders.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct HdfsHelper {
    /// The `IP:PORT` under which the DataNode is registered with the NameNode (`dfs.datanode.address`).
    pub datanode: Option<String>,
    /// How the DataNode adopts rebuilt blocks.
    pub adopt: Adopt,
    /// The port of the DataNode's plug-in (`mend.datanode.port`), if it is not the default.
    pub plugin_port: Option<u16>,
    /// The block pool, if the DataNode serves several NameNodes.
    pub pool: Option<String>,
    /// The DataNode's folders (`dfs.datanode.data.dir`), in the DataNode's order.
    pub folders: Vec<PathBuf>,
}

/// How a DataNode adopts a block that its helper rebuilt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Adopt {
    /// The helper writes the files in place and notifies the DataNode's plug-in.
    #[default]
    Plugin,
    /// The helper sends the block over HDFS's write protocol; no plug-in is needed.
    Push,
}

impl HelperSettings for HdfsHelper {
    fn contradiction(&self) -> Option<(&'static str, String)> {
        let message = "`adopt`: there is no DataNode to push to; add its address, `datanode = \"IP:PORT\"`";
        (self.adopt == Adopt::Push && self.datanode.is_none()).then(|| ("adopt", message.to_owned()))
    }
}

impl HdfsHelper {
    /// Renders the keys of these settings in `[[helper]]` of `mend.toml`.
    pub(crate) fn to_table(&self) -> Table {
        let mut table = Table::new();
        if let Some(datanode) = &self.datanode {
            table["datanode"] = value(datanode.as_str());
        }
        if self.adopt == Adopt::Push {
            table["adopt"] = value("push");
        }
        if let Some(port) = self.plugin_port {
            table["plugin_port"] = value(i64::from(port));
        }
        if let Some(pool) = &self.pool {
            table["pool"] = value(pool.as_str());
        }
        if !self.folders.is_empty() {
            let folders = self.folders.iter().map(|folder| folder.to_string_lossy().into_owned());
            table["folders"] = value(folders.collect::<Array>());
        }
        table
    }
}

fn files_at_once<'a, D: Deserializer<'a>>(number: D) -> Result<usize, D::Error> {
    let number = usize::deserialize(number)?;
    let wrong = || D::Error::custom(format!("`files_at_once` must be a number from 1 to {MOST_AT_ONCE}"));
    (1..=MOST_AT_ONCE).contains(&number).then_some(number).ok_or_else(wrong)
}

fn interval<'a, D: Deserializer<'a>>(text: D) -> Result<Duration, D::Error> {
    time_of_at_least(SHORTEST_INTERVAL, text)
}

fn settled_after<'a, D: Deserializer<'a>>(text: D) -> Result<Duration, D::Error> {
    time_of_at_least(SHORTEST_SETTLED, text)
}

fn time_of_at_least<'a, D: Deserializer<'a>>(least: Duration, text: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(text)?;
    let time = humantime::parse_duration(&text).ok().filter(|time| *time >= least);
    time.ok_or_else(|| {
        let least = least.as_secs();
        D::Error::custom(format!("`{text}` is not a time of at least {least}s, such as 20s or 1h"))
    })
}

fn checksum<'a, D: Deserializer<'a>>(text: D) -> Result<ChecksumFormat, D::Error> {
    String::deserialize(text)?.parse().map_err(D::Error::custom)
}

fn usual_java() -> PathBuf {
    "java".into()
}

fn everything() -> Vec<String> {
    vec!["/".to_owned()]
}

impl HdfsConfig {
    /// Creates the settings of a cluster with this NameNode.
    pub(crate) fn new(namenode: NameNodeConfig, repair: OwnRepair) -> Self {
        Self { namenode: Some(namenode), repair, ..Self::default() }
    }

    /// Encodes the settings as the `[store]` table of `mend.toml`.
    pub(crate) fn to_table(&self) -> Table {
        let mut table = Table::new();
        table["kind"] = value("hdfs");
        table["repair"] = value(self.repair.name());
        if self.checksum != ChecksumFormat::default() {
            table["checksum"] = value(self.checksum.to_string());
        }
        if let Some(namenode) = &self.namenode {
            table["namenode"] = toml_edit::Item::Table(namenode.to_table());
        }
        if self.raid.is_some() {
            table["raid"] = toml_edit::Item::Table(Table::new()); // Operators add codecs.
        }
        table
    }
}

impl NameNodeConfig {
    /// Returns the checksum format that Hadoop's clients use according to `settings`.
    pub(crate) fn checksum(&self) -> Result<ChecksumFormat, NoChecksumFormat> {
        let setting = |key: &str| {
            let mut settings = self.settings.iter().rev().filter_map(|setting| setting.split_once('='));
            settings.find_map(|(name, value)| (name == key).then_some(value))
        };
        let kind = setting("dfs.checksum.type").unwrap_or("crc32c");
        format!("{kind}/{}", setting("dfs.bytes-per-checksum").unwrap_or("512")).parse()
    }

    /// Creates default settings with this class path.
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
    use crate::ChecksumKind;

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
    fn a_helper_is_written_as_it_is_read() {
        let plugin =
            HdfsHelper { plugin_port: Some(7411), folders: vec!["/data".into()], ..HdfsHelper::default() };
        let push = HdfsHelper {
            datanode: Some("10.0.0.7:9866".to_owned()),
            adopt: Adopt::Push,
            pool: Some("BP-1".to_owned()),
            ..HdfsHelper::default()
        };
        for helper in [HdfsHelper::default(), plugin, push] {
            let text = helper.to_table().to_string();
            assert_eq!(toml_edit::de::from_str::<HdfsHelper>(&text), Ok(helper), "{text}");
        }
    }

    #[test]
    fn blocks_are_only_pushed_to_a_datanode_that_is_named() {
        let helper = |text: &str| toml_edit::de::from_str::<HdfsHelper>(text);
        let (key, message) = helper("adopt = \"push\"").unwrap().contradiction().expect("to nobody");
        assert!(key == "adopt" && message.contains("`datanode = \"IP:PORT\"`"), "{message}");
        let named = helper("adopt = \"push\"\ndatanode = \"10.0.0.7:9866\"").unwrap();
        assert_eq!(named.contradiction(), None);
        assert!(helper("adopt = \"pull\"").unwrap_err().to_string().contains("`pull`"));
    }

    #[test]
    fn the_checksum_format_is_read_and_can_follow_hadoops_settings() {
        let store = |text: &str| toml_edit::de::from_str::<HdfsConfig>(text);
        let crc32 = ChecksumFormat::new(ChecksumKind::Crc32, 1024).unwrap();
        assert_eq!(store("").unwrap().checksum, ChecksumFormat::default());
        assert_eq!(store("checksum = \"crc32/1024\"").unwrap().checksum, crc32);
        for wrong in ["crc32", "md5/512", "crc32c/0"] {
            let error = store(&format!("checksum = \"{wrong}\"")).unwrap_err().to_string();
            assert!(error.contains(&format!("`{wrong}` is no checksum format")), "{error}");
        }
        let settings = ["dfs.checksum.type=CRC32", "dfs.bytes-per-checksum=1024"].map(str::to_owned);
        let namenode = NameNodeConfig { settings: settings.into(), ..NameNodeConfig::new("x".to_owned()) };
        assert_eq!(namenode.checksum(), Ok(crc32));
        let store = HdfsConfig { checksum: crc32, ..HdfsConfig::new(namenode, OwnRepair::Auto) };
        assert_eq!(read_back(&store), store);
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
            for raid in [None, Some(RaidConfig::default())] {
                let namenode = namenode.clone();
                let store = HdfsConfig { namenode, repair: OwnRepair::DryRun, raid, ..HdfsConfig::default() };
                assert_eq!(read_back(&store), store);
            }
        }
    }

    #[test]
    fn codecs_of_raided_files_can_be_added() {
        let codec = "[[raid.codec]]\nname = \"wide\"\ncode = \"lrc-12-2-2\"\nparity_root = \"/raid-lrc\"\n";
        let store = toml_edit::de::from_str::<HdfsConfig>(codec).expect("settings");
        let raid = store.raid.expect("a codec");
        assert_eq!(hdfs_raid::all_codecs(raid.codec).expect("valid").len(), 5);
    }

    #[test]
    fn encoding_by_policies_has_limits() {
        let raid = |text: &str| {
            let store = toml_edit::de::from_str::<HdfsConfig>(&format!("[raid]\n{text}"));
            store.map(|store| store.raid.expect("settings")).map_err(|error| error.to_string())
        };
        assert_eq!(raid(""), Ok(RaidConfig::default()));
        let all = "policies = \"raid.toml\"\nrate = \"50MB/s\"\nfiles_at_once = 8\ninterval = \"30m\"\nsettled_after = \"20s\"";
        let expected = RaidConfig {
            policies: Some("raid.toml".into()),
            rate: Some("50MB/s".parse().expect("a rate")),
            files_at_once: 8,
            interval: Duration::from_secs(1800),
            settled_after: Duration::from_secs(20),
            ..RaidConfig::default()
        };
        assert_eq!(raid(all), Ok(expected));
        for wrong in [
            "policies = 1",
            "policy = []",
            "files_at_once = 0",
            "files_at_once = 65",
            "interval = \"1s\"",
            "settled_after = \"0s\"",
        ] {
            assert!(raid(wrong).is_err(), "{wrong}");
        }
    }
}
