//! Implements `mend attach hdfs`.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use attached::{Attached, BesideArgs, Findings, KindError, name, options, own_address, unit};
use clap::Args;
use cluster::{HelperConfig, Host, NewCluster, OwnRepair};

use crate::config::{Adopt, HdfsConfig, HdfsHelper, NameNodeConfig, RaidConfig};
use crate::{AskError, DataNode, Listing, NameNode, NameNodeSettings, Progress, Snapshots};

#[derive(Debug, Args)]
pub(crate) struct AttachArgs {
    /// The cluster folder, new or empty [default: that of --cluster, or ./mend-cluster]
    dir: Option<PathBuf>,
    /// The output of `hadoop classpath` plus Mend's jar: "$(hadoop classpath):/opt/mend/mend-hdfs.jar"
    #[arg(long, value_name = "CLASSPATH")]
    classpath: String,
    /// hdfs://HOST:PORT or hdfs://NAMESERVICE [default: from the Hadoop configuration on the class path]
    #[arg(long, value_name = "URI")]
    namenode: Option<String>,
    /// A Hadoop setting for the connection to HDFS, such as ipc.client.connect.timeout=5000; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    setting: Vec<String>,
    /// The `java` program that runs Hadoop's client
    #[arg(long, default_value = "java", value_name = "FILE")]
    java: PathBuf,
    /// A folder whose files are repaired; may be repeated
    #[arg(long, default_value = "/", value_name = "PATH")]
    path: Vec<String>,
    /// Repair also replicated files that have parity in the layout of HDFS-RAID, below /raidrs or /raid
    #[arg(long)]
    raid: bool,
    /// Push rebuilt blocks over the DataNode protocol, so that DataNodes need no plug-in
    #[arg(long)]
    no_plugin: bool,
    /// Port of the plug-in on each DataNode (mend.datanode.port)
    #[arg(long, default_value_t = 7410, value_name = "PORT", conflicts_with = "no_plugin")]
    plugin_port: u16,
    #[command(flatten)]
    beside: BesideArgs,
    /// Port of the first helper on each machine; further helpers there use the next ports
    #[arg(long, default_value_t = 7420, value_name = "PORT")]
    base_port: u16,
}

/// The code in `[defaults]`. HDFS files use their own erasure coding policies instead.
const DEFAULT_CODE: &str = "rs-9-6";

/// The usual user of HDFS daemons. Operators with another user change the generated systemd units.
const USER: &str = "hdfs";

/// Interval between progress messages of a long listing.
const SAID_EVERY: Duration = Duration::from_secs(5);

/// Implements `mend attach hdfs`.
pub(crate) async fn attach(folder: Option<PathBuf>, args: &AttachArgs) -> Result<Attached, KindError> {
    let folder = args.dir.clone().or(folder).unwrap_or_else(|| "mend-cluster".into());
    let namenode = NameNode::new(NameNodeSettings {
        java: args.java.clone(),
        classpath: args.classpath.clone(),
        uri: args.namenode.clone(),
        settings: args.setting.clone(),
    });
    let unreachable = |error: AskError| KindError::new(error).unreachable();
    let nodes = namenode.volumes().await.map_err(unreachable)?.nodes;
    let listing = namenode.list(&args.path, &Said::default().told()).await.map_err(unreachable)?;
    if let Some(folder) = listing.missing.first() {
        return Err(KindError::new(format!("HDFS has no folder {folder}; correct --path")));
    }
    let groups = listing.groups.len();
    let Some(first) = nodes.first() else {
        return Err(KindError::new("the NameNode lists no DataNodes").unreachable());
    };
    let host = args.beside.listen.map_or_else(|| own_address(&first.address), Ok)?;
    let mut cluster = NewCluster::begin(&folder, &options(host, DEFAULT_CODE, &args.beside))?;
    cluster.unfinished().set_store(store(args)?.to_table())?;
    let helpers = new_helpers(&nodes, args)?;
    for (helper, settings) in &helpers {
        cluster.unfinished().add_helper_with(helper.clone(), settings.to_table())?;
    }
    let facts = serde_json::json!({
        "folder": cluster.folder(),
        "block_groups": groups,
        "helpers": helpers.iter().map(|(helper, settings)| serde_json::json!({
            "helper": helper.name, "datanode": settings.datanode, "folders": settings.folders,
        })).collect::<Vec<_>>(),
        "notes": notes(&nodes, &listing.snapshots),
    });
    let text = text(&cluster, &helpers, &nodes, &listing, args.no_plugin);
    Ok(Attached { cluster, findings: Findings { text, facts } })
}

/// The time of the last progress report of a listing.
pub(crate) struct Said(Mutex<Instant>);

impl Default for Said {
    fn default() -> Self {
        Self(Mutex::new(Instant::now()))
    }
}

impl Said {
    /// Returns a callback that prints progress at intervals.
    pub(crate) fn told(self) -> impl Fn(Progress) + Sync {
        move |Progress { folders, files }| {
            let mut said = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if said.elapsed() >= SAID_EVERY {
                *said = Instant::now();
                eprintln!("listing HDFS: {folders} folders and {files} files so far");
            }
        }
    }
}

fn store(args: &AttachArgs) -> Result<HdfsConfig, KindError> {
    let namenode = NameNodeConfig {
        uri: args.namenode.clone(),
        java: args.java.clone(),
        settings: args.setting.clone(),
        paths: args.path.clone(),
        ..NameNodeConfig::new(args.classpath.clone())
    };
    let repair = if args.beside.dry_run { OwnRepair::DryRun } else { OwnRepair::Auto };
    let checksum = namenode.checksum().map_err(KindError::new)?;
    let mut store = HdfsConfig::new(namenode, repair);
    store.checksum = checksum;
    store.raid = args.raid.then(RaidConfig::default);
    Ok(store)
}

/// Returns one helper for each DataNode that reports its folders.
fn new_helpers(nodes: &[DataNode], args: &AttachArgs) -> Result<Vec<(HelperConfig, HdfsHelper)>, KindError> {
    let mut ports: BTreeMap<&str, u16> = BTreeMap::new();
    let mut helpers = Vec::new();
    for node in nodes.iter().filter(|node| !node.folders.is_empty()) {
        let address = &node.address;
        let unusable = || KindError::new(format!("cannot derive a helper name from DataNode `{address}`"));
        let (host, _) = address.rsplit_once(':').ok_or_else(unusable)?;
        let port = ports.entry(host).or_insert(args.base_port);
        let ip: Option<IpAddr> = host.trim_matches(['[', ']']).parse().ok();
        let listen = SocketAddr::new(ip.unwrap_or(IpAddr::from([0, 0, 0, 0])), *port);
        let mut helper = HelperConfig::new(name("dn", address).ok_or_else(unusable)?, listen);
        if ip.is_none() {
            let host: Host = host.parse().map_err(KindError::new)?;
            helper.advertise = Some(host.at(*port));
        }
        *port = port.saturating_add(1);
        helper.rack = node.standing.as_ref().map(|standing| standing.rack.clone());
        let settings = HdfsHelper {
            datanode: Some(address.clone()),
            adopt: if args.no_plugin { Adopt::Push } else { Adopt::Plugin },
            plugin_port: (!args.no_plugin).then_some(args.plugin_port),
            pool: None,
            folders: node.folders.clone(),
        };
        helpers.push((helper, settings));
    }
    Ok(helpers)
}

/// Returns notes for the operator, one sentence each.
fn notes(nodes: &[DataNode], snapshots: &Snapshots) -> Vec<String> {
    let silent = nodes.iter().filter(|node| node.folders.is_empty());
    let silent = silent.map(|node| {
        let why = node.silent.as_deref().unwrap_or("it is dead");
        let address = &node.address;
        format!("no helper for DataNode {address}: {why}; its blocks will be neither read nor repaired there")
    });
    let uncovered = snapshots.uncovered.iter().map(|(folder, why)| {
        format!(
            "files that exist only in snapshots of {folder} cannot be listed: {why}; run the coordinator as a user who may list \
             all of HDFS"
        )
    });
    silent.chain(uncovered).collect()
}

fn text(
    cluster: &NewCluster,
    helpers: &[(HelperConfig, HdfsHelper)],
    nodes: &[DataNode],
    listing: &Listing,
    no_plugin: bool,
) -> String {
    let (folder, groups) = (cluster.folder().display(), listing.groups.len());
    let mut text = format!(
        "attached to HDFS: {groups} block groups on {} DataNodes; the cluster folder is {folder}\n",
        nodes.len()
    );
    for note in notes(nodes, &listing.snapshots) {
        text += &format!("note: {note}\n");
    }
    text += match no_plugin {
        true => "\nThe DataNodes need no changes.\n",
        false => {
            "\nOn each DataNode, put mend-hdfs.jar on the class path (docs/guides/hdfs.md says how to get it), add this \
             to hdfs-site.xml, and restart the DataNode:\n\n\
             <property><name>dfs.datanode.plugins</name><value>mend.hdfs.MendPlugin</value></property>\n"
        }
    };
    text += &format!(
        "\nOn this machine, as a superuser of HDFS, create /etc/systemd/system/mend-coordinator.service:\n\n{}\n",
        unit("coordinator", USER, cluster.folder())
    );
    text += "On each DataNode's machine, copy mend.toml, ca/ca.pem and helpers/NAME of the cluster folder to the same path, owned by \
             the DataNode's user (`User=` below), and create /etc/systemd/system/mend-helper@.service:\n\n";
    text += &unit("helper %i", USER, cluster.folder());
    text += "\nThen run there:\n";
    for (helper, settings) in helpers {
        let datanode = settings.datanode.as_deref().unwrap_or_default();
        text +=
            &format!("  systemctl enable --now mend-helper@{}   # for DataNode {datanode}\n", helper.name);
    }
    text += &format!("\nnext: export MEND_CLUSTER={folder}\n      mend coordinator &\n      mend status");
    text
}
