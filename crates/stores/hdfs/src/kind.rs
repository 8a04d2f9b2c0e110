//! HDFS as a [`Kind`] of store.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use attached::{Attaching, Kind, KindError, settings_of};
use clap::{ArgMatches, Args, Command, FromArgMatches};
use cluster::{Cluster, HelperConfig, Name, OwnRepair};
use crc_fast::{CrcAlgorithm, checksum};
use hdfs_raid::{Codec, all_codecs};
use store_api::{Blocks, SharedRecords, Storage};

use crate::attach::{AttachArgs, attach};
use crate::config::{Adopt, HdfsConfig, HdfsHelper, NameNodeConfig, RaidConfig};
use crate::{Attachment, EncodingSettings, HdfsBlocks, NameNodeSettings};

/// The default port of the DataNode's plug-in.
const PLUGIN_PORT: u16 = 7410;

/// HDFS, as an entry in the table of kinds.
pub struct Hdfs;

impl Kind for Hdfs {
    fn name(&self) -> &'static str {
        "hdfs"
    }

    fn own_repair(&self, cluster: &Cluster) -> Result<OwnRepair, KindError> {
        let config = config(cluster)?;
        Ok(if config.namenode.is_some() { config.repair } else { OwnRepair::Off })
    }

    fn servers(&self, cluster: &Cluster) -> Result<BTreeMap<String, String>, KindError> {
        let helpers = cluster.helper_settings::<HdfsHelper>()?.into_iter();
        Ok(helpers.filter_map(|(name, helper)| Some((helper.datanode?, name.to_string()))).collect())
    }

    fn storage(&self, cluster: &Cluster, records: SharedRecords, _: OwnRepair) -> Result<Storage, KindError> {
        let config = config(cluster)?;
        let helpers = cluster.helper_settings::<HdfsHelper>()?;
        let folders = |helper: &HdfsHelper| {
            let folders = helper.folders.iter().map(|folder| cluster.folder().join(folder)).collect();
            Some((helper.datanode.clone()?, folders))
        };
        let attachment = Attachment {
            paths: config.namenode.as_ref().map(|namenode| namenode.paths.clone()).unwrap_or_default(),
            namenode: config.namenode.map(settings),
            helpers: self.servers(cluster)?,
            folders: helpers.values().filter_map(folders).collect(),
            encoding: config.raid.as_ref().and_then(|raid| encoding(cluster, raid)),
            raid: codecs(config.raid)?,
            pushes: helpers.values().any(|it| it.adopt == Adopt::Push),
        };
        crate::open(attachment, records).map_err(KindError::new)
    }

    fn blocks(&self, cluster: &Cluster, helper: &HelperConfig) -> Result<Arc<dyn Blocks>, KindError> {
        blocks(cluster, helper)
    }

    fn command(&self) -> Command {
        AttachArgs::augment_args(Command::new(self.name()))
            .about("Attach to an HDFS cluster and repair its erasure-coded and raided files")
            .after_help(
                "Example: mend attach hdfs --classpath \"$(hadoop classpath):/opt/mend/mend-hdfs.jar\"",
            )
    }

    fn attach<'a>(&'a self, folder: Option<PathBuf>, args: &'a ArgMatches) -> Attaching<'a> {
        Box::pin(async move {
            let args = AttachArgs::from_arg_matches(args).map_err(KindError::new)?;
            attach(folder, &args).await
        })
    }
}

/// Reads the settings of `[store]`.
pub(crate) fn config(cluster: &Cluster) -> Result<HdfsConfig, KindError> {
    Ok(cluster.store_settings()?.unwrap_or_default())
}

/// Returns how files are encoded by policies; `None` if there is no file with policies.
fn encoding(cluster: &Cluster, raid: &RaidConfig) -> Option<EncodingSettings> {
    Some(EncodingSettings {
        policies: cluster.folder().join(raid.policies.as_ref()?),
        rate: raid.rate.map(|rate| rate.bits_per_second().div_ceil(8)),
        files_at_once: raid.files_at_once,
        interval: raid.interval,
        settled_after: raid.settled_after,
        owner: checksum(CrcAlgorithm::Crc64Nvme, cluster.config().cluster_id.to_string().as_bytes()),
    })
}

/// Returns the codecs of raided files; none if such files are not repaired.
pub(crate) fn codecs(raid: Option<RaidConfig>) -> Result<Vec<Codec>, KindError> {
    let Some(raid) = raid else { return Ok(Vec::new()) };
    let help = "correct [[store.raid.codec]] of mend.toml";
    all_codecs(raid.codec).map_err(|error| KindError::new(error).help(help))
}

/// Converts the configuration into the settings for queries to a NameNode.
pub(crate) fn settings(config: NameNodeConfig) -> NameNodeSettings {
    NameNodeSettings {
        java: config.java,
        classpath: config.classpath,
        uri: config.uri,
        settings: config.settings,
    }
}

/// Opens a helper's blocks.
fn blocks(cluster: &Cluster, helper: &HelperConfig) -> Result<Arc<dyn Blocks>, KindError> {
    let settings = settings_of::<HdfsHelper>(cluster, helper)?;
    if settings.folders.is_empty() {
        return Err(KindError::new(format!("helper {} has no `folders` in mend.toml", helper.name))
            .help("set it to the folders of its DataNode (dfs.datanode.data.dir), in the DataNode's order"));
    }
    let folders: Vec<_> = settings.folders.iter().map(|folder| cluster.folder().join(folder)).collect();
    let blocks = HdfsBlocks::open(&folders, settings.pool.as_deref())?;
    let config = config(cluster)?;
    let blocks = blocks.with_checksums(config.checksum).with_raid(config.raid.is_some());
    Ok(Arc::new(match settings.adopt {
        Adopt::Plugin => {
            let port = settings.plugin_port.unwrap_or(PLUGIN_PORT);
            blocks.with_datanode(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
        }
        Adopt::Push => blocks.with_pushes(datanode(&helper.name, &settings)?),
    }))
}

/// Returns the address at which the DataNode accepts blocks.
fn datanode(helper: &Name, settings: &HdfsHelper) -> Result<SocketAddr, KindError> {
    let address = settings.datanode.as_deref().unwrap_or_default();
    address.parse().map_err(|_| {
        KindError::new(format!("helper {helper}: `datanode` is `{address}`, no address to push blocks to"))
            .help("set it to the DataNode's IP:PORT as the NameNode lists it (hdfs dfsadmin -report)")
    })
}
