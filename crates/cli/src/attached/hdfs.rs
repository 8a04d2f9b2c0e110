//! Storage and blocks of an attached HDFS cluster, for the daemons.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use cluster::{Adopt, Cluster, HdfsConfig, HelperConfig, NameNodeConfig};
use hdfs::{Attachment, NameNodeSettings};
use stores::hdfs::HdfsBlocks;
use stores::{Blocks, Storage};

use crate::failure::Failure;

/// The default port of the DataNode's plug-in.
const PLUGIN_PORT: u16 = 7410;

/// The coordinator's storage.
pub async fn storage(cluster: &Cluster, config: &HdfsConfig) -> Result<Box<dyn Storage>, Failure> {
    let beside = |helper: &HelperConfig| Some((helper.datanode.clone()?, helper.name.to_string()));
    let helpers = &cluster.config().helpers;
    let attachment = Attachment {
        namenode: config.namenode.as_ref().map(settings),
        paths: config.namenode.as_ref().map(|namenode| namenode.paths.clone()).unwrap_or_default(),
        helpers: helpers.iter().filter_map(beside).collect(),
        pushes: helpers.iter().any(|helper| helper.adopt == Adopt::Push),
    };
    let (records, id) = (super::records(cluster), cluster.config().cluster_id.to_string());
    let opened = tokio::task::spawn_blocking(move || hdfs::open(attachment, records, &id)).await;
    let opened = opened.map_err(|error| Failure::new(format!("cannot open the storage: {error}")))?;
    Ok(Box::new(opened.map_err(Failure::new)?))
}

/// The settings of the client that queries a NameNode.
pub fn settings(config: &NameNodeConfig) -> NameNodeSettings {
    NameNodeSettings {
        java: config.java.clone(),
        classpath: config.classpath.clone(),
        uri: config.uri.clone(),
        settings: config.settings.clone(),
    }
}

/// A helper's blocks.
pub fn blocks(cluster: &Cluster, helper: &HelperConfig) -> Result<Arc<dyn Blocks>, Failure> {
    if helper.folders.is_empty() {
        return Err(Failure::new(format!("helper {} has no `folders` in mend.toml", helper.name))
            .help("add the folders of its DataNode (dfs.datanode.data.dir), in the DataNode's order"));
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

/// The address where the DataNode accepts pushed blocks.
fn datanode(helper: &HelperConfig) -> Result<SocketAddr, Failure> {
    let address = helper.datanode.as_deref().unwrap_or_default();
    address.parse().map_err(|_| {
        Failure::new(format!(
            "helper {}: `datanode` is `{address}`, which is not an address to push blocks to",
            helper.name
        ))
        .help("use the IP:PORT by which the NameNode knows it (hdfs dfsadmin -report)")
    })
}
