//! `mend attach hdfs`

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use cluster::{Adopt, Cluster, HdfsConfig, HelperConfig, Host, NameNodeConfig, OwnRepair, StoreConfig};
use hdfs::{DataNode, NameNode, NameNodeSettings};

use super::{name, options, own_address, unit};
use crate::answer::Answer;
use crate::args::AttachHdfsArgs;
use crate::failure::{Exit, Failure};

/// What `[defaults]` says; files have their own policies.
const DEFAULT_CODE: &str = "rs-9-6";

/// `mend attach hdfs`
pub async fn attach(folder: Option<PathBuf>, args: &AttachHdfsArgs) -> Result<Answer, Failure> {
    let folder = args.dir.clone().or(folder).unwrap_or_else(|| "mend-cluster".into());
    let namenode = NameNode::new(NameNodeSettings {
        java: args.java.clone(),
        classpath: args.classpath.clone(),
        uri: args.namenode.clone(),
        settings: args.setting.clone(),
    });
    let unreachable = |error: hdfs::AskError| Failure::new(error).exit(Exit::Unreachable);
    let nodes = namenode.volumes().await.map_err(unreachable)?.nodes;
    let groups = namenode.list(&args.path).await.map_err(unreachable)?.groups.len();
    let Some(first) = nodes.first() else {
        return Err(Failure::new("the NameNode has no DataNode").exit(Exit::Unreachable));
    };
    let host = args.beside.listen.map_or_else(|| own_address(&first.address), Ok)?;
    let mut cluster = Cluster::init(&folder, &options(host, DEFAULT_CODE, &args.beside))?;
    coordinator::create_catalog(&cluster)?;
    cluster.set_store(&store(args))?;
    for helper in helpers(&nodes, args)? {
        cluster.add_helper(helper)?;
    }
    let facts = serde_json::json!({
        "folder": cluster.folder(),
        "block_groups": groups,
        "helpers": cluster.config().helpers.iter().map(|helper| serde_json::json!({
            "helper": helper.name, "datanode": helper.datanode, "folders": helper.folders,
        })).collect::<Vec<_>>(),
        "notes": notes(&nodes),
    });
    Ok(Answer::new(text(&cluster, &nodes, groups, args.no_plugin), &facts))
}

fn store(args: &AttachHdfsArgs) -> StoreConfig {
    let namenode = NameNodeConfig {
        uri: args.namenode.clone(),
        java: args.java.clone(),
        settings: args.setting.clone(),
        paths: args.path.clone(),
        ..NameNodeConfig::new(args.classpath.clone())
    };
    let repair = if args.beside.dry_run { OwnRepair::DryRun } else { OwnRepair::Auto };
    StoreConfig::Hdfs(HdfsConfig { namenode: Some(namenode), repair })
}

/// One for each DataNode that says which folders it has.
fn helpers(nodes: &[DataNode], args: &AttachHdfsArgs) -> Result<Vec<HelperConfig>, Failure> {
    let mut ports: BTreeMap<&str, u16> = BTreeMap::new();
    let mut helpers = Vec::new();
    for node in nodes.iter().filter(|node| !node.folders.is_empty()) {
        let address = &node.address;
        let unusable = || Failure::new(format!("no helper can be named after DataNode `{address}`"));
        let (host, _) = address.rsplit_once(':').ok_or_else(unusable)?;
        let port = ports.entry(host).or_insert(args.base_port);
        let ip: Option<IpAddr> = host.trim_matches(['[', ']']).parse().ok();
        let listen = SocketAddr::new(ip.unwrap_or(IpAddr::from([0, 0, 0, 0])), *port);
        let mut helper = HelperConfig::new(name("dn", address).ok_or_else(unusable)?, listen);
        if ip.is_none() {
            let host: Host = host.parse().map_err(Failure::new)?;
            helper.advertise = Some(host.at(*port));
        }
        *port = port.saturating_add(1);
        helper.datanode = Some(address.clone());
        match args.no_plugin {
            true => helper.adopt = Adopt::Push,
            false => helper.plugin_port = Some(args.plugin_port),
        }
        helper.folders = node.folders.clone();
        helper.rack = node.standing.as_ref().map(|standing| standing.rack.clone());
        helpers.push(helper);
    }
    Ok(helpers)
}

/// What whoever attaches should know.
fn notes(nodes: &[DataNode]) -> Vec<String> {
    let silent = nodes.iter().filter(|node| node.folders.is_empty());
    silent
        .map(|node| {
            let why = node.silent.as_deref().unwrap_or("it is dead");
            let address = &node.address;
            format!(
                "no helper for DataNode {address}: {why}; what it has will be neither read nor repaired there"
            )
        })
        .collect()
}

fn text(cluster: &Cluster, nodes: &[DataNode], groups: usize, no_plugin: bool) -> String {
    let folder = cluster.folder().display();
    let mut text = format!(
        "attached to HDFS: {groups} block groups on {} DataNodes; the cluster folder is {folder}\n",
        nodes.len()
    );
    for note in notes(nodes) {
        text += &format!("note: {note}\n");
    }
    text += match no_plugin {
        true => "\nNothing is changed in the DataNodes.\n",
        false => {
            "\nIn hdfs-site.xml of each DataNode, with mend-hdfs.jar on its class path (it loads it when it is restarted):\n\n\
             <property><name>dfs.datanode.plugins</name><value>mend.hdfs.MendPlugin</value></property>\n"
        }
    };
    text += &format!(
        "\nHere, as a user who may list all of HDFS, /etc/systemd/system/mend-coordinator.service:\n\n{}\n",
        unit("coordinator", cluster.folder())
    );
    text += "On each DataNode's machine, as the DataNode's user: mend.toml, ca/ca.pem and helpers/NAME of the cluster folder, \
             at the same place, and /etc/systemd/system/mend-helper@.service:\n\n";
    text += &unit("helper %i", cluster.folder());
    text += "\nThen there:\n";
    for helper in &cluster.config().helpers {
        let datanode = helper.datanode.as_deref().unwrap_or_default();
        text += &format!("  systemctl enable --now mend-helper@{}   # beside {datanode}\n", helper.name);
    }
    text += &format!("\nnext: export MEND_CLUSTER={folder}\n      mend coordinator &\n      mend status");
    text
}
