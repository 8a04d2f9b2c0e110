//! HDFS as a [`Kind`] of store.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use attached::{Attaching, Kind, KindError};
use clap::{ArgMatches, Args, Command, FromArgMatches};
use cluster::{Adopt, Cluster, HelperConfig, OwnRepair};
use store_api::{Blocks, SharedRecords, Storage};

use crate::attach::{AttachArgs, attach};
use crate::config::{HdfsConfig, NameNodeConfig};
use crate::{Attachment, HdfsBlocks, NameNodeSettings};

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

    fn storage(&self, cluster: &Cluster, records: SharedRecords) -> Result<Storage, KindError> {
        let config = config(cluster)?;
        let beside = |helper: &HelperConfig| Some((helper.datanode.clone()?, helper.name.to_string()));
        let helpers = &cluster.config().helpers;
        let attachment = Attachment {
            paths: config.namenode.as_ref().map(|namenode| namenode.paths.clone()).unwrap_or_default(),
            namenode: config.namenode.map(settings),
            helpers: helpers.iter().filter_map(beside).collect(),
            pushes: helpers.iter().any(|helper| helper.adopt == Adopt::Push),
        };
        crate::open(attachment, records).map_err(KindError::new)
    }

    fn blocks(&self, cluster: &Cluster, helper: &HelperConfig) -> Result<Arc<dyn Blocks>, KindError> {
        blocks(cluster, helper)
    }

    fn command(&self) -> Command {
        AttachArgs::augment_args(Command::new(self.name()))
            .about("Attach to an HDFS cluster and repair its erasure-coded files")
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

fn config(cluster: &Cluster) -> Result<HdfsConfig, KindError> {
    Ok(cluster.store_settings()?.unwrap_or_default())
}

/// How to query a NameNode.
fn settings(config: NameNodeConfig) -> NameNodeSettings {
    NameNodeSettings {
        java: config.java,
        classpath: config.classpath,
        uri: config.uri,
        settings: config.settings,
    }
}

/// Opens a helper's blocks.
fn blocks(cluster: &Cluster, helper: &HelperConfig) -> Result<Arc<dyn Blocks>, KindError> {
    if helper.folders.is_empty() {
        return Err(KindError::new(format!("helper {} has no `folders` in mend.toml", helper.name))
            .help("set it to the folders of its DataNode (dfs.datanode.data.dir), in the DataNode's order"));
    }
    let folders: Vec<_> = helper.folders.iter().map(|folder| cluster.folder().join(folder)).collect();
    let blocks = HdfsBlocks::open(&folders, helper.pool.as_deref())?;
    Ok(Arc::new(match helper.adopt {
        Adopt::Plugin => {
            let port = helper.plugin_port.unwrap_or(PLUGIN_PORT);
            blocks.with_datanode(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
        }
        Adopt::Push => blocks.with_pushes(datanode(helper)?),
    }))
}

/// The address at which the DataNode accepts blocks.
fn datanode(helper: &HelperConfig) -> Result<SocketAddr, KindError> {
    let address = helper.datanode.as_deref().unwrap_or_default();
    address.parse().map_err(|_| {
        KindError::new(format!(
            "helper {}: `datanode` is `{address}`, which is not an address to push blocks to",
            helper.name
        ))
        .help("set it to the DataNode's IP:PORT as the NameNode lists it (hdfs dfsadmin -report)")
    })
}
