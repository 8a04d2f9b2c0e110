//! Implements `mend attach seaweedfs`.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use attached::{Attached, BesideArgs, Findings, KindError, name, options, own_address, unit};
use clap::Args;
use cluster::{HelperConfig, Host, Name, NewCluster, OwnRepair};

use crate::config::{SeaweedfsConfig, SeaweedfsHelper};
use crate::{
    AskError, Listing, MasterClient, Security, Server, ServerAddress, ServerId, ServerStatus, VolumeServer,
};

#[derive(Debug, Args)]
pub(crate) struct AttachArgs {
    /// The cluster folder, new or empty [default: that of --cluster, or ./mend-cluster]
    dir: Option<PathBuf>,
    /// Address of a master; may be repeated
    #[arg(long, required = true, value_name = "HOST:PORT")]
    master: Vec<ServerAddress>,
    /// The cluster's security.toml, if its gRPC ports use TLS
    #[arg(long, value_name = "FILE")]
    security: Option<PathBuf>,
    /// The -dir.idx folder of a volume server, or *=FOLDER for all servers; may be repeated. Needed because
    /// servers do not report this folder
    #[arg(long, value_name = "SERVER=FOLDER", value_parser = index_folder)]
    index_folder: Vec<(String, PathBuf)>,
    #[command(flatten)]
    beside: BesideArgs,
    /// Port of the first helper on each machine; further helpers there use the next ports
    #[arg(long, default_value_t = 7410, value_name = "PORT")]
    base_port: u16,
}

/// SeaweedFS versions that Mend is tested with.
const TESTED: [&str; 1] = ["4.48"];
/// The code in `[defaults]`. SeaweedFS volumes use their own code instead.
const DEFAULT_CODE: &str = "rs-14-10-vandermonde";

/// A volume server and its reported status.
struct Found {
    id: ServerId,
    server: Server,
    shards: usize,
    status: Result<ServerStatus, String>,
}

/// The usual user of volume servers. Operators with another user change the generated systemd units.
const USER: &str = "seaweedfs";

/// Implements `mend attach seaweedfs`.
pub(crate) async fn attach(folder: Option<PathBuf>, args: &AttachArgs) -> Result<Attached, KindError> {
    let folder = args.dir.clone().or(folder).unwrap_or_else(|| "mend-cluster".into());
    let security = match &args.security {
        Some(path) => Security::of_toml(path).map_err(KindError::new)?,
        None => Security::plain(),
    };
    let masters: Vec<ServerAddress> = args.master.clone();
    let client = MasterClient::new(masters.clone(), security.clone());
    let listing = client.list().await.map_err(|error| KindError::new(error).unreachable())?;
    let maintenance = client.maintenance().await.map_err(KindError::new)?;
    let found = ask_servers(&listing, &security).await;
    let index_folders = index_folders(&args.index_folder, &found)?;
    let host = args.beside.listen.map_or_else(|| own_address(&masters[0].http()), Ok)?;
    let mut cluster = NewCluster::begin(&folder, &options(host, DEFAULT_CODE, &args.beside))?;
    cluster.unfinished().set_store(store(args).to_table())?;
    let helpers = new_helpers(&found, &index_folders, args.base_port)?;
    for (helper, settings) in &helpers {
        cluster.unfinished().add_helper_with(helper.clone(), settings.to_table())?;
    }
    let facts = serde_json::json!({
        "folder": cluster.folder(),
        "volumes": listing.volumes.len(),
        "shards": listing.shard_count(),
        "helpers": helpers.iter().map(|(helper, settings)| serde_json::json!({
            "helper": helper.name, "volume_server": settings.volume_server, "folders": settings.folders,
            "index_folder": settings.index_folder,
        })).collect::<Vec<_>>(),
        "notes": notes(&found, &maintenance.scripts),
    });
    let text = text(&cluster, &helpers, &listing, &found, &maintenance.scripts);
    Ok(Attached { cluster, findings: Findings { text, facts } })
}

async fn ask_servers(listing: &Listing, security: &Security) -> Vec<Found> {
    let mut found = Vec::new();
    for (id, server) in &listing.servers {
        let of_server = listing.volumes.values().flatten().filter(|holding| holding.server == *id);
        let shards = of_server.map(|holding| holding.shards.len()).sum();
        let status = match server.address.parsed() {
            Ok(address) => status_of(address, security).await.map_err(|error| error.to_string()),
            Err(bad) => Err(bad.to_string()),
        };
        found.push(Found { id: id.clone(), server: server.clone(), shards, status });
    }
    found
}

async fn status_of(address: &ServerAddress, security: &Security) -> Result<ServerStatus, AskError> {
    VolumeServer::connect(address, security).await?.status().await
}

fn store(args: &AttachArgs) -> SeaweedfsConfig {
    let masters = args.master.iter().map(ToString::to_string).collect();
    let absolute = |path: &PathBuf| std::path::absolute(path).unwrap_or_else(|_| path.clone());
    let repair = if args.beside.dry_run { OwnRepair::DryRun } else { OwnRepair::Auto };
    SeaweedfsConfig::new(masters, args.security.as_ref().map(absolute), repair)
}

/// Returns the `-dir.idx` folders, keyed by the server names that masters list.
fn index_folders(
    told: &[(String, PathBuf)],
    found: &[Found],
) -> Result<BTreeMap<String, PathBuf>, KindError> {
    let mut folders = BTreeMap::new();
    for (server, folder) in told {
        let means = |it: &&Found| server == "*" || it.id.0 == *server || it.server.address.http() == *server;
        let named: Vec<_> = found.iter().filter(means).collect();
        if named.is_empty() {
            return Err(KindError::new(format!("no volume server `{server}` is connected to the master"))
                .help(
                    "name it in --index-folder as the master lists it, or write *=FOLDER for all servers",
                ));
        }
        folders.extend(named.into_iter().map(|it| (it.id.0.clone(), folder.clone())));
    }
    Ok(folders)
}

/// Returns one helper for each server that reports its folders.
fn new_helpers(
    found: &[Found],
    index_folders: &BTreeMap<String, PathBuf>,
    base_port: u16,
) -> Result<Vec<(HelperConfig, SeaweedfsHelper)>, KindError> {
    let mut ports: BTreeMap<String, u16> = BTreeMap::new();
    let mut helpers = Vec::new();
    for Found { id, server, status, .. } in found {
        let (Ok(status), Ok(address)) = (status, server.address.parsed()) else { continue };
        let port = ports.entry(address.host().to_owned()).or_insert(base_port);
        let name: Name = name("vs", &id.0)
            .ok_or_else(|| KindError::new(format!("cannot derive a helper name from `{id}`")))?;
        let mut helper = HelperConfig::new(name, listen(address, *port));
        if helper.listen.ip().is_unspecified() {
            let host: Host = address.host().parse().map_err(KindError::new)?;
            helper.advertise = Some(host.at(*port));
        }
        *port = port.saturating_add(1);
        helper.rack = Some(format!("{}/{}", server.data_center, server.rack)).filter(|rack| rack.len() > 1);
        let settings = SeaweedfsHelper {
            volume_server: Some(id.0.clone()),
            folders: folders(status),
            index_folder: index_folders.get(&id.0).cloned(),
        };
        helpers.push((helper, settings));
    }
    Ok(helpers)
}

/// Returns the listen address of a helper: the server's IP address, or all interfaces if the server has a
/// host name.
fn listen(address: &ServerAddress, port: u16) -> SocketAddr {
    let host: Option<IpAddr> = address.host().trim_matches(['[', ']']).parse().ok();
    SocketAddr::new(host.unwrap_or(IpAddr::from([0, 0, 0, 0])), port)
}

fn folders(status: &ServerStatus) -> Vec<PathBuf> {
    status.folders.iter().map(|(folder, _)| PathBuf::from(folder)).collect()
}

/// Returns notes for the operator, one sentence each.
fn notes(found: &[Found], scripts: &str) -> Vec<String> {
    let mut notes = Vec::new();
    for Found { id, shards, status, .. } in found {
        match status {
            Err(why) => notes.push(format!(
                "no helper for volume server {id}: {why}; its {shards} shards will be neither read nor \
                 repaired there"
            )),
            Ok(status) => {
                if !TESTED.iter().any(|version| status.version.contains(version)) {
                    let tested = TESTED.join(" and ");
                    notes.push(format!(
                        "volume server {id} runs version {}; Mend was tested with {tested}",
                        status.version
                    ));
                }
                let relative = folders(status).into_iter().filter(|folder| folder.is_relative());
                notes.extend(relative.map(|folder| {
                    format!(
                        "volume server {id} reports the relative folder `{}`: write its absolute path into `folders` of the helper",
                        folder.display()
                    )
                }));
            }
        }
    }
    if scripts.contains("ec.rebuild") {
        notes.push(
            "the masters run ec.rebuild automatically (master.toml): this needs no change, because Mend \
             takes the same lock and leaves no lost shards to it"
                .to_owned(),
        );
    }
    notes
}

fn text(
    cluster: &NewCluster,
    helpers: &[(HelperConfig, SeaweedfsHelper)],
    listing: &Listing,
    found: &[Found],
    scripts: &str,
) -> String {
    let folder = cluster.folder().display();
    let mut text = format!(
        "attached to SeaweedFS: {} EC volumes, {} shards on {} volume servers; the cluster folder is {folder}\n",
        listing.volumes.len(),
        listing.shard_count(),
        listing.servers.len(),
    );
    for note in notes(found, scripts) {
        text += &format!("note: {note}\n");
    }
    text += &format!(
        "\nOn this machine, create /etc/systemd/system/mend-coordinator.service:\n\n{}\n",
        unit("coordinator", USER, cluster.folder())
    );
    text += "On each volume server's machine, copy mend.toml, ca/ca.pem and helpers/NAME of the cluster folder to the same path,\n\
             owned by a user that may write the server's folders, and create /etc/systemd/system/mend-helper@.service:\n\n";
    text += &unit("helper %i", USER, cluster.folder());
    if helpers.iter().any(|(_, settings)| settings.index_folder.is_none()) {
        text += "\nVolume servers do not report -dir.idx: for servers that use it, set that folder as `index_folder` of their helper \
                 in mend.toml.\n";
    }
    text += "\nThen run there:\n";
    for (helper, settings) in helpers {
        let server = settings.volume_server.as_deref().unwrap_or_default();
        text +=
            &format!("  systemctl enable --now mend-helper@{}   # for volume server {server}\n", helper.name);
    }
    text += &format!("\nnext: export MEND_CLUSTER={folder}\n      mend coordinator &\n      mend status");
    text
}

/// Parses `SERVER=FOLDER`.
fn index_folder(text: &str) -> Result<(String, PathBuf), String> {
    let (server, folder) =
        text.split_once('=').ok_or("write SERVER=FOLDER, as in 10.0.0.1:8080=/data/index, or *=FOLDER")?;
    if server.is_empty() || !PathBuf::from(folder).is_absolute() {
        return Err("a server and an absolute path are needed, as in 10.0.0.1:8080=/data/index".to_owned());
    }
    Ok((server.to_owned(), folder.into()))
}
