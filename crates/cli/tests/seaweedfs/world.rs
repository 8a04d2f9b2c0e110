//! The cluster that all cases share, and what is stored in it.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use seaweedfs::{Listing, MasterClient, Security, ServerAddress, Standing, VolumeServer, Volumes};
use stores::seaweedfs::{ShardBlocks, ShardName, VolumeName};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::weed::{Weed, shell};

pub const MASTER: &str = "10.79.0.1:9333";
const SERVERS: usize = 6;
/// Shards of more than one 16 MiB block of `.ecsum`.
const LARGE: (usize, usize) = (60, 3_000_000);
const SMALL: (usize, usize) = (8, 300_000);
/// Nothing takes so long; a machine that is busy with other things may make it seem so.
const PATIENCE: Duration = Duration::from_secs(180);

/// One volume server.
pub struct VolumeProcess {
    pub address: ServerAddress,
    pub folders: Vec<PathBuf>,
    arguments: Vec<String>,
    process: Option<Weed>,
}

pub struct World {
    pub weed: PathBuf,
    pub root: TempDir,
    pub runtime: Runtime,
    pub master: MasterClient,
    pub servers: Vec<VolumeProcess>,
    /// Of 60 objects through the filer, and of 8 through S3.
    pub pictures: VolumeName,
    pub bucket: VolumeName,
    deleted: Vec<String>,
    master_process: Weed,
    _filer: Weed,
}

impl World {
    pub fn boot(weed: &Path) -> Self {
        let root = disks();
        run("ip link set lo up");
        let hosts = ["0.1", "2.1", "2.2", "2.3", "3.1", "3.2"].map(str::to_owned).into_iter();
        for host in hosts.chain((1..=SERVERS).map(|at| format!("1.{at}"))) {
            run(&format!("ip addr add 10.79.{host}/32 dev lo"));
        }
        let master_process = start_master(weed, root.path());
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let master = MasterClient::new(vec![MASTER.parse().expect("an address")], Security::plain());
        eventually("a master that leads", || runtime.block_on(master.leader()).ok());
        let servers = (1..=SERVERS).map(|at| VolumeProcess::start(weed, root.path(), at)).collect();
        let filer =
            ["filer", "-ip=10.79.0.1", "-port=8888", "-master=10.79.0.1:9333", "-s3", "-s3.port=8333"];
        let filer = Weed::start(weed, root.path().join("filer.log"), &filer.map(str::to_owned), root.path());
        let name = |collection| VolumeName::new(collection, 1).expect("a volume");
        let (pictures, bucket) = (name("pictures"), name("bucket"));
        let weed = weed.to_owned();
        let mut world = Self {
            weed,
            root,
            runtime,
            master,
            servers,
            pictures,
            bucket,
            deleted: Vec::new(),
            master_process,
            _filer: filer,
        };
        world.fill();
        world
    }

    fn fill(&mut self) {
        eventually("all servers", || (self.list().servers.len() == SERVERS).then_some(()));
        for collection in ["pictures", "bucket"] {
            let grown = format!("/vol/grow?collection={collection}&count=1&replication=000");
            eventually("a volume", || http("GET", MASTER, &grown, b"").ok());
        }
        eventually("S3", || http("PUT", "10.79.0.1:8333", "/bucket", b"").ok());
        for path in self.paths() {
            let (host, at) = place(&path);
            eventually("a write", || http("PUT", host, &at, &content(&path)).ok());
        }
        self.pictures = self.encode("pictures");
        self.bucket = self.encode("bucket");
    }

    fn encode(&self, collection: &str) -> VolumeName {
        let data =
            self.servers.iter().flat_map(|server| server.folders.iter()).flat_map(|folder| names(folder));
        let data: Vec<_> = data.filter_map(|name| name.strip_suffix(".dat").map(str::to_owned)).collect();
        let volume = data.iter().find(|name| name.starts_with(&format!("{collection}_"))).expect("its data");
        let volume: VolumeName = volume.parse().expect("a volume");
        let encode = format!("ec.encode -volumeId={} -force", volume.id());
        // Servers that have just come may be counted as full for a moment.
        eventually("an encoded volume", || {
            let said = self.shell(&["lock", &encode, "unlock"]);
            let done = said.contains("Successfully completed EC encoding");
            if !done {
                println!("{said}");
            }
            done.then_some(())
        });
        eventually("all shards listed once", || {
            let standing = self.standing(&volume);
            matches!(standing, Some(Standing::Known { ref missing, ref surplus, .. }) if missing.is_empty() && surplus.is_empty())
                .then_some(())
        });
        volume
    }

    pub fn shell(&self, commands: &[&str]) -> String {
        shell(&self.weed, MASTER, commands)
    }

    pub fn list(&self) -> Listing {
        self.runtime.block_on(self.master.list()).expect("the master answers")
    }

    /// The picture of one list, with all that the servers' files say.
    pub fn volumes(&self) -> Volumes {
        let mut volumes = Volumes::default();
        volumes.apply(self.list());
        for server in &self.servers {
            let blocks = server.blocks();
            for volume in [&self.pictures, &self.bucket] {
                if let Some(info) = blocks.volume(volume).expect("readable") {
                    volumes.tell_ratio(volume.id(), info.encoding, info.ratio);
                }
            }
        }
        volumes
    }

    pub fn standing(&self, volume: &VolumeName) -> Option<Standing> {
        let mut volumes = Volumes::default();
        volumes.apply(self.list());
        let encodings: Vec<_> = volumes.get(volume.id())?.generations.keys().copied().collect();
        for encoding in encodings {
            volumes.tell_ratio(volume.id(), encoding, stores::seaweedfs::Ratio::default());
        }
        Some(volumes.get(volume.id())?.standing())
    }

    /// What has to be so after every case.
    pub fn assert_whole(&self) {
        for volume in [&self.pictures, &self.bucket] {
            match self.standing(volume) {
                Some(Standing::Known { missing, surplus, foreign, .. }) => {
                    assert!(
                        missing.is_empty() && surplus.is_empty() && foreign.is_empty(),
                        "{missing:?} {surplus:?}"
                    );
                }
                other => panic!("{volume}: {other:?}"),
            }
        }
        let rebuilt = self.shell(&["lock", "ec.rebuild -apply", "unlock"]);
        let idle = rebuilt.contains("rebuildEcVolumes for 2") && !rebuilt.contains("rebuildOneEcVolume");
        assert!(idle && !rebuilt.contains("error:"), "ec.rebuild found work: {rebuilt}");
        for mode in ["full", "checksum"] {
            let scrubbed = self.scrub(mode);
            assert!(
                scrubbed.contains("on 6 nodes") && !scrubbed.contains("failures"),
                "ec.scrub, {mode}: {scrubbed}"
            );
        }
        self.assert_objects();
    }

    /// SeaweedFS's own scrub.
    pub fn scrub(&self, mode: &str) -> String {
        self.shell(&["lock", &format!("ec.scrub -mode={mode}"), "unlock"])
    }

    /// Everything that was stored reads as it was, and what was deleted is gone.
    pub fn assert_objects(&self) {
        for path in self.paths() {
            let (host, at) = place(&path);
            if self.deleted.contains(&path) {
                continue;
            }
            // After a shard has moved, a first read may find a server's cached location.
            let read = eventually("a read", || http("GET", host, &at, b"").ok());
            assert!(read == content(&path), "{path} reads as something else");
        }
        for path in &self.deleted {
            assert!(http("GET", place(path).0, &place(path).1, b"").is_err(), "{path} is back");
        }
    }

    /// Deletes an object.
    pub fn delete(&mut self, path: &str) {
        eventually("a delete", || http("DELETE", place(path).0, &place(path).1, b"").ok());
        self.deleted.push(path.to_owned());
    }

    fn paths(&self) -> Vec<String> {
        let pictures = (0..LARGE.0).map(|at| format!("pictures/{at}"));
        pictures.chain((0..SMALL.0).map(|at| format!("bucket/{at}"))).collect()
    }

    /// Has all servers forget where shards were: they remember it until they mount anew.
    pub fn forget_locations(&self) {
        for (at, volume) in
            (0..self.servers.len()).flat_map(|at| [&self.pictures, &self.bucket].map(|it| (at, it)))
        {
            let server = self.server(at);
            let remounted = async {
                let shards: Vec<u8> = server.mounted(volume.id()).await?.shards.into_keys().collect();
                server.unmount(volume, &shards).await?;
                server.mount(volume, &shards).await
            };
            self.runtime.block_on(remounted).expect("it mounts what it had");
        }
        eventually("all shards", || (self.list().shard_count() == 28).then_some(()));
    }

    /// How many files of a shard there are.
    pub fn copies(&self, shard: &ShardName) -> usize {
        let folders = self.servers.iter().flat_map(|server| &server.folders);
        folders.filter(|folder| folder.join(shard.to_string()).exists()).count()
    }

    /// Whose folders hold a shard, and the file.
    pub fn holder(&self, shard: &ShardName) -> (usize, PathBuf) {
        let holders = self.servers.iter().enumerate().filter_map(|(at, server)| {
            let path = server
                .folders
                .iter()
                .map(|folder| folder.join(shard.to_string()))
                .find(|path| path.exists())?;
            Some((at, path))
        });
        let holders: Vec<_> = holders.collect();
        assert_eq!(holders.len(), 1, "{shard} is at {holders:?}");
        holders.into_iter().next().expect("one")
    }

    pub fn server(&self, at: usize) -> VolumeServer {
        let address = &self.servers[at].address;
        self.runtime.block_on(VolumeServer::connect(address, &Security::plain())).expect("it answers")
    }

    pub fn shards(&self, volume: &VolumeName) -> Vec<ShardName> {
        (0..14).map(|shard| ShardName { volume: volume.clone(), shard }).collect()
    }

    pub fn restart_master(&mut self) {
        self.master_process.kill();
        self.master_process = start_master(&self.weed, self.root.path());
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the master said:\n{}", self.master_process.said());
        }
    }
}

impl VolumeProcess {
    fn start(weed: &Path, root: &Path, at: usize) -> Self {
        let folders: Vec<_> = ["a", "b"].iter().map(|disk| root.join(format!("v{at}{disk}"))).collect();
        folders.iter().for_each(|folder| fs::create_dir(folder).expect("made"));
        let dirs: Vec<_> = folders.iter().map(|folder| folder.display().to_string()).collect();
        let arguments = vec![
            "volume".to_owned(),
            format!("-ip=10.79.1.{at}"),
            "-port=8080".to_owned(),
            format!("-master={MASTER}"),
            format!("-dir={}", dirs.join(",")),
            "-max=20,20".to_owned(),
            format!("-dataCenter=d{}", at % 2),
            format!("-rack=r{}", at % 3),
        ];
        let address = format!("10.79.1.{at}:8080").parse().expect("an address");
        let mut server = Self { address, folders, arguments, process: None };
        server.start_again(weed, root);
        server
    }

    pub fn start_again(&mut self, weed: &Path, root: &Path) {
        let log = root.join(format!("{}.log", self.address.http()));
        self.process = Some(Weed::start(weed, log, &self.arguments, root));
    }

    pub fn kill(&mut self) {
        self.process = None;
    }

    /// What a helper beside it has.
    pub fn blocks(&self) -> ShardBlocks {
        ShardBlocks::open(&self.folders, None).expect("its folders")
    }
}

/// A file system of our own, which goes with the mount namespace: SeaweedFS encodes nothing on a disk that is full to nine
/// tenths, as the one of a machine that builds things may be.
fn disks() -> TempDir {
    let mount = Path::new(env!("CARGO_TARGET_TMPDIR")).join("seaweedfs");
    fs::create_dir_all(&mount).expect("made");
    run(&format!("mount -t tmpfs -o size=3g tmpfs {}", mount.display()));
    tempfile::tempdir_in(mount).expect("a temporary folder")
}

fn start_master(weed: &Path, root: &Path) -> Weed {
    let meta = root.join("master");
    fs::create_dir_all(&meta).expect("made");
    let arguments = [
        "master".to_owned(),
        "-ip=10.79.0.1".to_owned(),
        "-port=9333".to_owned(),
        format!("-mdir={}", meta.display()),
        "-volumeSizeLimitMB=400".to_owned(),
        "-peers=none".to_owned(),
    ];
    Weed::start(weed, root.join("master.log"), &arguments, root)
}

/// Where an object is asked for.
fn place(path: &str) -> (&'static str, String) {
    match path.strip_prefix("pictures/") {
        Some(at) => ("10.79.0.1:8888", format!("/p/{at}?collection=pictures")),
        None => ("10.79.0.1:8333", format!("/{path}")),
    }
}

/// The bytes of an object, which follow from its name.
pub fn content(path: &str) -> Vec<u8> {
    let bytes = if path.starts_with("pictures") { LARGE.1 } else { SMALL.1 };
    let mut state = path.bytes().fold(0x9e37_79b9_7f4a_7c15_u64, |state, byte| {
        (state ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    });
    let words = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    });
    words.take(bytes.div_ceil(8)).flatten().take(bytes).collect()
}

/// Asks over plain HTTP/1.0; the body of an answer that says it is fine.
pub fn http(method: &str, host: &str, path: &str, body: &[u8]) -> Result<Vec<u8>, String> {
    let asked = || {
        let mut stream = TcpStream::connect(host)?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        write!(stream, "{method} {path} HTTP/1.0\r\nHost: {host}\r\nContent-Length: {}\r\n\r\n", body.len())?;
        stream.write_all(body)?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        Ok::<_, std::io::Error>(answer)
    };
    let answer = asked().map_err(|error| error.to_string())?;
    let end = answer.windows(4).position(|window| window == b"\r\n\r\n").ok_or("no answer")?;
    let head = String::from_utf8_lossy(&answer[..end]).into_owned();
    if head.split(' ').nth(1).is_some_and(|status| status.starts_with('2')) {
        Ok(answer[end + 4..].to_vec())
    } else {
        Err(head)
    }
}

/// Waits until something is there.
pub fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "waited {PATIENCE:?} for {what}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

pub fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("a folder");
    entries.map(|entry| entry.expect("read").file_name().into_string().expect("text")).collect()
}

pub fn run(command: &str) {
    let mut words = command.split(' ');
    let status = Command::new(words.next().expect("a program")).args(words).status();
    assert!(status.is_ok_and(|status| status.success()), "{command}");
}

/// How many shards each server has of a volume.
pub fn counts(listing: &Listing, volume: &VolumeName) -> BTreeMap<String, usize> {
    let mut counts: BTreeMap<_, _> = listing.servers.keys().map(|id| (id.0.clone(), 0)).collect();
    for holding in listing.volumes.get(&volume.id()).into_iter().flatten() {
        *counts.entry(holding.server.0.clone()).or_default() += holding.shards.len();
    }
    counts
}
