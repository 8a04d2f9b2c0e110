//! The cluster: booted, asked, stopped and started again by parts.

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

/// The most volumes of a disk.
const SLOTS: usize = 40;

/// What a cluster is like.
#[derive(Clone, Debug)]
pub struct Options {
    /// How many volume servers.
    pub servers: usize,
    /// Folders of each.
    pub disks: usize,
    /// Data centres that they are dealt to.
    pub data_centers: usize,
    /// Racks that they are dealt to.
    pub racks: usize,
    /// A volume that is larger gets no more objects.
    pub volume_limit_mb: u32,
}

/// A running cluster. Its ports are fixed, so there is one on a ground.
pub struct Cluster {
    /// The program and its addresses.
    pub weed: Weed,
    /// The runtime for calls.
    pub runtime: Runtime,
    /// The client of its master.
    pub master: MasterClient,
    /// Its volume servers.
    pub servers: Vec<VolumeProcess>,
    volume_limit_mb: u32,
    master_process: Process,
    filer: Option<Process>,
}

impl Cluster {
    /// Boots a cluster in an empty folder and waits until all of it is there.
    ///
    /// # Panics
    /// If it does not come up.
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

    /// The numbers of the volume servers' processes.
    pub fn server_ids(&self) -> Vec<u32> {
        self.servers.iter().filter_map(VolumeProcess::id).collect()
    }

    /// Waits until a volume server that was started is listed and answers.
    ///
    /// # Panics
    /// If it does not.
    pub fn await_server(&self, at: usize) {
        let address = &self.servers[at].address;
        eventually("a volume server", || {
            let is_listed =
                self.list().servers.values().any(|server| server.address.http() == address.http());
            let asked = async { VolumeServer::connect(address, &Security::plain()).await?.status().await };
            (is_listed && self.runtime.block_on(asked).is_ok()).then_some(())
        });
    }

    /// Kills the master and starts it again.
    pub fn restart_master(&mut self) {
        self.master_process.kill();
        self.master_process = self.weed.start_master(self.volume_limit_mb);
        // Who is the leader may be remembered; what it lists is asked.
        eventually("a master that lists", || self.runtime.block_on(self.master.list()).ok());
    }

    /// Has empty volumes made for a collection.
    ///
    /// # Panics
    /// If the master does not make them.
    pub fn grow(&self, collection: &str, count: usize) {
        let grown = format!("/vol/grow?collection={collection}&count={count}&replication=000");
        eventually("volumes", || http("GET", &self.weed.master_address(), &grown, b"").ok());
    }

    /// The volumes of a collection that are not encoded.
    pub fn plain_volumes(&self, collection: &str) -> Vec<VolumeName> {
        let files = self.servers.iter().flat_map(|server| &server.folders).flat_map(|folder| names(folder));
        let data = files.filter_map(|name| name.strip_suffix(".dat")?.parse::<VolumeName>().ok());
        let mut volumes: Vec<_> = data.filter(|volume| volume.collection() == collection).collect();
        volumes.sort_by_key(VolumeName::id);
        volumes
    }

    /// Encodes volumes, and waits until each of their shards is listed once.
    ///
    /// # Panics
    /// If that takes too long.
    pub fn encode(&self, volumes: &[VolumeName]) {
        let ids: Vec<_> = volumes.iter().map(|volume| volume.id().to_string()).collect();
        let encode = format!("ec.encode -volumeIds={} -force", ids.join(","));
        // Servers that have just come may be counted as full for a moment.
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

    /// How many shards of a volume are listed, by a question that costs little.
    ///
    /// # Panics
    /// If the master does not answer.
    pub fn shards_listed(&self, volume: &VolumeName) -> usize {
        let listed = self.runtime.block_on(self.master.list_volumes(&[volume.id()]));
        listed.expect("the master answers").shard_count()
    }

    /// Carries out commands of `weed shell`; what it prints.
    pub fn shell(&self, commands: &[&str]) -> String {
        shell(self.weed.command(Seat::Head), &self.weed.master_address(), commands)
    }

    /// A shell that has the lock, and carries out at once what it is told.
    pub fn locked_shell(&self) -> Shell {
        let is_locked = || matches!(self.runtime.block_on(self.master.lock_holder()), Ok(Some(_)));
        Shell::locked(
            self.weed.command(Seat::Head),
            &self.weed.master_address(),
            &self.weed.root.join("shell.log"),
            is_locked,
        )
    }

    /// What the master lists.
    ///
    /// # Panics
    /// If it does not answer.
    pub fn list(&self) -> Listing {
        self.runtime.block_on(self.master.list()).expect("the master answers")
    }

    /// How a volume of 10+4 stands by what the master lists.
    pub fn standing(&self, volume: &VolumeName) -> Option<Standing> {
        standing(self.list(), volume)
    }

    /// Whether each shard of a volume is listed once.
    pub fn is_whole(&self, volume: &VolumeName) -> bool {
        is_whole(self.standing(volume))
    }

    /// Whether all these are whole, by one listing.
    pub fn are_whole(&self, volumes: &[VolumeName]) -> bool {
        let listing = self.list();
        volumes.iter().all(|volume| is_whole(standing(listing.clone(), volume)))
    }

    /// Whose folders hold a shard, and the file.
    ///
    /// # Panics
    /// If it is not exactly one.
    pub fn holder(&self, shard: &ShardName) -> (usize, PathBuf) {
        let holders = self.servers.iter().enumerate().filter_map(|(at, server)| {
            let mut paths = server.folders.iter().map(|folder| folder.join(shard.to_string()));
            Some((at, paths.find(|path| path.exists())?))
        });
        let holders: Vec<_> = holders.collect();
        assert_eq!(holders.len(), 1, "{shard} is at {holders:?}");
        holders.into_iter().next().expect("one")
    }

    /// How many files of a shard there are.
    pub fn copies(&self, shard: &ShardName) -> usize {
        let folders = self.servers.iter().flat_map(|server| &server.folders);
        folders.filter(|folder| folder.join(shard.to_string()).exists()).count()
    }

    /// Removes a shard's file, and has its server let go of it; whose it was, and what was in it.
    ///
    /// # Panics
    /// If it is not there.
    pub fn lose(&self, shard: &ShardName) -> (usize, Vec<u8>) {
        let (holder, path) = self.holder(shard);
        let before = fs::read(&path).expect("there");
        fs::remove_file(path).expect("removed");
        let unmounted = self.server(holder);
        self.runtime.block_on(unmounted.unmount(&shard.volume, &[shard.shard])).expect("unmounted");
        (holder, before)
    }

    /// A connection to a volume server.
    ///
    /// # Panics
    /// If it does not answer.
    pub fn server(&self, at: usize) -> VolumeServer {
        let address = &self.servers[at].address;
        self.runtime.block_on(VolumeServer::connect(address, &Security::plain())).expect("it answers")
    }

    /// Has all servers forget where shards of these volumes were: they remember it until they mount anew.
    ///
    /// # Panics
    /// If a server does not mount what it had.
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
