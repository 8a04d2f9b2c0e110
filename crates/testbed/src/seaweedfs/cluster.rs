//! A SeaweedFS cluster whose servers can be queried, stopped and restarted individually.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::{Ground, Process, Seat, eventually};
use seaweedfs::{
    Listing, MasterClient, Ratio, Security, ShardName, Standing, VolumeName, VolumeServer, Volumes,
};
use tokio::runtime::Runtime;

use super::http::http;
use super::shell::{Shell, shell};
use super::volume_server::VolumeProcess;
use super::weed::Weed;

/// The maximum number of volumes on a disk.
const SLOTS: usize = 40;

/// Options of a cluster.
#[derive(Clone, Debug)]
pub struct Options {
    /// The number of volume servers.
    pub servers: usize,
    /// The number of folders of each server.
    pub disks: usize,
    /// The number of data centres over which servers are distributed.
    pub data_centers: usize,
    /// The number of racks over which servers are distributed.
    pub racks: usize,
    /// The size limit of a volume in MB; a full volume receives no more objects.
    pub volume_limit_mb: u32,
}

/// A running cluster. The ports are fixed, so only one cluster can run on a [`Ground`].
pub struct Cluster {
    /// The program `weed`, and the addresses of the master, the filer and S3.
    pub weed: Weed,
    /// The async runtime for calls to the cluster.
    pub runtime: Runtime,
    /// The client of the cluster's master.
    pub master: MasterClient,
    /// The cluster's volume servers.
    pub servers: Vec<VolumeProcess>,
    volume_limit_mb: u32,
    master_process: Process,
    filer: Option<Process>,
}

impl Cluster {
    /// Boots a cluster in an empty folder and waits until all servers are up.
    ///
    /// # Panics
    /// If a server does not start.
    pub fn boot(weed: &Path, ground: Arc<dyn Ground>, root: &Path, options: Options) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let weed = Weed::new(weed, root, ground);
        let address = weed.master_address();
        let master = MasterClient::new(vec![address.parse().expect("an address")], Security::plain());
        let master_process = weed.start_master(options.volume_limit_mb);
        eventually("a master that leads", || runtime.block_on(master.leader()).ok());
        let servers = (0..options.servers).map(|at| {
            let arguments = vec![
                format!("-master={address}"),
                format!("-max={}", vec![SLOTS.to_string(); options.disks].join(",")),
                format!("-dataCenter=d{}", at % options.data_centers),
                format!("-rack=r{}", at % options.racks),
            ];
            VolumeProcess::new(&*weed.ground, root, at, options.disks, arguments)
        });
        let servers = servers.collect();
        let volume_limit_mb = options.volume_limit_mb;
        let mut cluster =
            Self { weed, runtime, master, servers, volume_limit_mb, master_process, filer: None };
        (0..cluster.servers.len()).for_each(|at| cluster.start_server(at));
        cluster.filer = Some(cluster.weed.start_filer());
        eventually("all servers", || (cluster.list().servers.len() == cluster.servers.len()).then_some(()));
        eventually("a filer", || http("GET", &cluster.weed.filer_address(), "/", b"").ok());
        cluster
    }

    /// Starts a stopped volume server.
    pub fn start_server(&mut self, at: usize) {
        let server = &self.servers[at];
        let mut command = self.weed.command(server.seat);
        command.args(&server.arguments).current_dir(&self.weed.root);
        let process = Process::start(command, &self.weed.root.join(format!("{}.log", server.address.http())));
        self.servers[at].started(process);
    }

    /// The process IDs of the running volume servers.
    pub fn server_ids(&self) -> Vec<u32> {
        self.servers.iter().filter_map(VolumeProcess::id).collect()
    }

    /// Waits until the master lists a started volume server and the server answers requests.
    ///
    /// # Panics
    /// On a timeout.
    pub fn await_server(&self, at: usize) {
        let address = &self.servers[at].address;
        eventually("a volume server", || {
            let is_listed =
                self.list().servers.values().any(|server| server.address.http() == address.http());
            let asked = async { VolumeServer::connect(address, &Security::plain()).await?.status().await };
            (is_listed && self.runtime.block_on(asked).is_ok()).then_some(())
        });
    }

    /// Kills the master.
    pub fn kill_master(&mut self) {
        self.master_process.kill();
    }

    /// Sends the master a signal, `STOP` or `CONT`.
    pub fn signal_master(&self, signal: &str) {
        self.master_process.signal(signal);
    }

    /// Kills the master, if it runs, and starts it again.
    pub fn restart_master(&mut self) {
        self.master_process.kill();
        self.master_process = self.weed.start_master(self.volume_limit_mb);
        // The client may have cached the leader, so wait for an actual listing.
        eventually("a master that lists", || self.runtime.block_on(self.master.list()).ok());
    }

    /// Makes the master create empty volumes for a collection.
    ///
    /// # Panics
    /// If the master fails to create them.
    pub fn grow(&self, collection: &str, count: usize) {
        let grown = format!("/vol/grow?collection={collection}&count={count}&replication=000");
        eventually("volumes", || http("GET", &self.weed.master_address(), &grown, b"").ok());
    }

    /// Returns the volumes of a collection that are not erasure-coded, by id.
    pub fn plain_volumes(&self, collection: &str) -> Vec<VolumeName> {
        let files = self.servers.iter().flat_map(|server| &server.folders).flat_map(|folder| names(folder));
        let data = files.filter_map(|name| name.strip_suffix(".dat")?.parse::<VolumeName>().ok());
        let mut volumes: Vec<_> = data.filter(|volume| volume.collection() == collection).collect();
        volumes.sort_by_key(VolumeName::id);
        volumes
    }

    /// Erasure-codes volumes, and waits until the master lists each of their shards exactly once.
    ///
    /// # Panics
    /// On a timeout.
    pub fn encode(&self, volumes: &[VolumeName]) {
        let ids: Vec<_> = volumes.iter().map(|volume| volume.id().to_string()).collect();
        let encode = format!("ec.encode -volumeIds={} -force", ids.join(","));
        // The command is repeated, because SeaweedFS considers a server full for a short time after the
        // start.
        let mut refused = String::new();
        eventually("encoded volumes", || {
            let said = self.shell(&["lock", &encode, "unlock"]);
            let done = said.contains("Successfully completed EC encoding");
            if !done && said != refused {
                eprintln!("not encoded yet; a disk that is nine tenths full is never encoded on: {said}");
                refused = said;
            }
            done.then_some(())
        });
        eventually(&format!("all shards of volumes {}", ids.join(", ")), || {
            self.are_whole(volumes).then_some(())
        });
    }

    /// Returns how many shards of a volume the master lists. The query is cheap.
    ///
    /// # Panics
    /// If the master does not answer.
    pub fn shards_listed(&self, volume: &VolumeName) -> usize {
        let listed = self.runtime.block_on(self.master.list_volumes(&[volume.id()]));
        listed.expect("the master answers").shard_count()
    }

    /// Runs commands of `weed shell` and returns their output.
    pub fn shell(&self, commands: &[&str]) -> String {
        shell(self.weed.command(Seat::Head), &self.weed.master_address(), commands)
    }

    /// Starts a shell that holds the cluster's lock, so that its commands start without delay.
    pub fn locked_shell(&self) -> Shell {
        let is_locked = || matches!(self.runtime.block_on(self.master.lock_holder()), Ok(Some(_)));
        Shell::locked(
            self.weed.command(Seat::Head),
            &self.weed.master_address(),
            &self.weed.root.join("shell.log"),
            is_locked,
        )
    }

    /// Returns the master's listing of servers and volumes.
    ///
    /// # Panics
    /// If the master does not answer.
    pub fn list(&self) -> Listing {
        self.runtime.block_on(self.master.list()).expect("the master answers")
    }

    /// Returns the state of a 10+4 volume according to the master's listing.
    pub fn standing(&self, volume: &VolumeName) -> Option<Standing> {
        standing(self.list(), volume)
    }

    /// Whether the master lists each shard of a volume exactly once.
    pub fn is_whole(&self, volume: &VolumeName) -> bool {
        is_whole(self.standing(volume))
    }

    /// Whether the master lists each shard of these volumes exactly once.
    pub fn are_whole(&self, volumes: &[VolumeName]) -> bool {
        let listing = self.list();
        volumes.iter().all(|volume| is_whole(standing(listing.clone(), volume)))
    }

    /// Returns the index of the server whose folders contain a shard, and the shard's file.
    ///
    /// # Panics
    /// If there is no such server, or more than one.
    pub fn holder(&self, shard: &ShardName) -> (usize, PathBuf) {
        let holders = self.servers.iter().enumerate().filter_map(|(at, server)| {
            let mut paths = server.folders.iter().map(|folder| folder.join(shard.to_string()));
            Some((at, paths.find(|path| path.exists())?))
        });
        let holders: Vec<_> = holders.collect();
        assert_eq!(holders.len(), 1, "{shard} is at {holders:?}");
        holders.into_iter().next().expect("one")
    }

    /// Returns the number of copies of a shard in the folders of all servers.
    pub fn copies(&self, shard: &ShardName) -> usize {
        let folders = self.servers.iter().flat_map(|server| &server.folders);
        folders.filter(|folder| folder.join(shard.to_string()).exists()).count()
    }

    /// Deletes a shard's file and unmounts the shard. Returns the index of the shard's server, and the
    /// shard's content.
    ///
    /// # Panics
    /// If the shard does not exist.
    pub fn lose(&self, shard: &ShardName) -> (usize, Vec<u8>) {
        let (holder, path) = self.holder(shard);
        let before = fs::read(&path).expect("there");
        fs::remove_file(path).expect("removed");
        let unmounted = self.server(holder);
        self.runtime.block_on(unmounted.unmount(&shard.volume, &[shard.shard])).expect("unmounted");
        (holder, before)
    }

    /// Returns a client of a volume server.
    ///
    /// # Panics
    /// If the server does not answer.
    pub fn server(&self, at: usize) -> VolumeServer {
        let address = &self.servers[at].address;
        self.runtime.block_on(VolumeServer::connect(address, &Security::plain())).expect("it answers")
    }

    /// Makes all servers drop their cached locations of these volumes' shards, by unmounting and mounting the
    /// shards.
    ///
    /// # Panics
    /// If a server fails to mount its shards.
    pub fn forget_locations(&self, volumes: &[VolumeName]) {
        let all = self.list().shard_count();
        for at in 0..self.servers.len() {
            let server = self.server(at);
            for volume in volumes {
                let remounted = async {
                    let shards: Vec<u8> = server.mounted(volume.id()).await?.shards.into_keys().collect();
                    server.unmount(volume, &shards).await?;
                    server.mount(volume, &shards).await
                };
                self.runtime.block_on(remounted).expect("it mounts what it had");
            }
        }
        eventually("all shards", || (self.list().shard_count() == all).then_some(()));
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the master said:\n{}", self.master_process.said());
        }
    }
}

fn standing(listing: Listing, volume: &VolumeName) -> Option<Standing> {
    let mut volumes = Volumes::default();
    volumes.apply(listing);
    let encodings: Vec<_> = volumes.get(volume.id())?.generations.keys().copied().collect();
    for encoding in encodings {
        volumes.tell_ratio(volume.id(), encoding, Ratio::default());
    }
    Some(volumes.get(volume.id())?.standing())
}

fn is_whole(standing: Option<Standing>) -> bool {
    matches!(standing, Some(Standing::Known { missing, surplus, foreign, .. })
        if missing.is_empty() && surplus.is_empty() && foreign.is_empty())
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("a folder");
    entries.map(|entry| entry.expect("read").file_name().into_string().expect("text")).collect()
}
