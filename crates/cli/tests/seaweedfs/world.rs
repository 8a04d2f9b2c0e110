//! The cluster that all cases share, and its objects.

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::path::Path;
use std::sync::Arc;

use seaweedfs::{Listing, ShardName, Standing, VolumeName};
use tempfile::TempDir;
use testbed::seaweedfs::{Attaching, Cluster, Options, http};
use testbed::{Mend, OneNamespace, eventually};

const SERVERS: usize = 6;
/// The most shards of a volume that a server has if the 14 shards are spread evenly.
const EVEN_SHARE: usize = 14_usize.div_ceil(SERVERS);
/// The number of objects in the volume `pictures`, and the size of each in bytes. The volume's shards are
/// longer than 16 MiB, the size of a block in `.ecsum`.
const LARGE: (usize, usize) = (60, 3_000_000);
const SMALL: (usize, usize) = (8, 300_000);
/// Ends of the addresses (after `10.79.`) of the masters and volume servers that single cases start.
const OTHERS: &[&str] = &["2.1", "2.2", "2.3", "3.1", "3.2"];

/// The cluster and its objects.
pub struct World {
    cluster: Cluster,
    /// The volume of 60 objects that are stored through the filer. The volume `bucket` has 8 objects that are
    /// stored through S3.
    pub pictures: VolumeName,
    pub bucket: VolumeName,
    deleted: Vec<String>,
    /// The folder of the cluster; must be dropped last.
    _disk: TempDir,
}

impl Deref for World {
    type Target = Cluster;

    fn deref(&self) -> &Cluster {
        &self.cluster
    }
}

impl DerefMut for World {
    fn deref_mut(&mut self) -> &mut Cluster {
        &mut self.cluster
    }
}

impl World {
    pub fn boot(weed: &Path) -> Self {
        let disk =
            testbed::seaweedfs::memory_disk(&Path::new(env!("CARGO_TARGET_TMPDIR")).join("seaweedfs"), "3g");
        let ground = Arc::new(OneNamespace::make(SERVERS, OTHERS));
        let options = Options { servers: SERVERS, disks: 2, data_centers: 2, racks: 3, volume_limit_mb: 400 };
        let cluster = Cluster::boot(weed, ground, disk.path(), options);
        let name = |collection| VolumeName::new(collection, 1).expect("a volume");
        let (pictures, bucket) = (name("pictures"), name("bucket"));
        let mut world = Self { cluster, pictures, bucket, deleted: Vec::new(), _disk: disk };
        world.fill();
        world
    }

    fn fill(&mut self) {
        for collection in ["pictures", "bucket"] {
            self.grow(collection, 1);
        }
        eventually("S3", || http("PUT", &self.weed.s3_address(), "/bucket", b"").ok());
        for path in self.paths() {
            let (host, at) = self.place(&path);
            eventually("a write", || http("PUT", &host, &at, &content(&path)).ok());
        }
        self.pictures = self.only_volume("pictures");
        self.bucket = self.only_volume("bucket");
        self.encode(&self.both());
        self.spread_evenly();
    }

    /// Makes SeaweedFS spread the shards of both volumes evenly over the servers, if its encoder has not. Mend returns
    /// a lost shard to its server only if the server does not get more than an even share.
    fn spread_evenly(&self) {
        let both = self.both();
        let mut has_moved = false;
        eventually("even shares", || {
            let listing = self.list();
            let is_even =
                |volume: &VolumeName| counts(&listing, volume).values().all(|&shards| shards <= EVEN_SHARE);
            if both.iter().all(is_even) && self.are_whole(&both) {
                return Some(());
            }
            has_moved = true;
            self.shell(&["lock", "ec.balance -apply", "unlock"]);
            None
        });
        if has_moved {
            self.forget_locations(&both);
        }
    }

    fn only_volume(&self, collection: &str) -> VolumeName {
        let volumes = self.plain_volumes(collection);
        assert_eq!(volumes.len(), 1, "{volumes:?}");
        volumes.into_iter().next().expect("one")
    }

    /// Returns the names of both volumes.
    pub fn both(&self) -> [VolumeName; 2] {
        [self.pictures.clone(), self.bucket.clone()]
    }

    /// Attaches Mend. `repair_after` is the time before shards of a lost server are rebuilt elsewhere.
    pub fn attach(&self, repair_after: &str) -> Mend {
        let told = self.servers.iter().filter_map(|server| {
            let folder = server.index_folder.as_ref()?;
            Some(format!("{}={}", server.address.http(), folder.display()))
        });
        let told: Vec<String> = told.flat_map(|folder| ["--index-folder".to_owned(), folder]).collect();
        let told: Vec<&str> = told.iter().map(String::as_str).collect();
        self.attach_with(&[&["--repair-after", repair_after], told.as_slice()].concat())
    }

    /// Attaches Mend without index folders.
    pub fn attach_plain(&self, repair_after: &str) -> Mend {
        self.attach_with(&["--repair-after", repair_after])
    }

    /// Attaches Mend, whatever the state of the volumes is.
    pub fn attach_damaged(&self, arguments: &[&str]) -> Mend {
        let program = Path::new(env!("CARGO_BIN_EXE_mend"));
        self.cluster.attach_damaged(&Attaching { program, arguments, volumes: 2 })
    }

    fn attach_with(&self, arguments: &[&str]) -> Mend {
        let mend = self.cluster.attach(&Attaching {
            program: Path::new(env!("CARGO_BIN_EXE_mend")),
            arguments,
            volumes: 2,
        });
        let said = &mend.said;
        assert!(said.contains("2 EC volumes, 28 shards on 6 volume servers"), "{said}");
        assert!(mend.names().iter().all(|name| said.contains(&format!("mend-helper@{name} "))), "{said}");
        mend
    }

    /// Asserts the state after every case: no shard is missing or surplus, SeaweedFS's own repair and scrub
    /// find nothing, and all objects read correctly.
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

    /// Runs SeaweedFS's own scrub.
    pub fn scrub(&self, mode: &str) -> String {
        self.shell(&["lock", &format!("ec.scrub -mode={mode}"), "unlock"])
    }

    /// Asserts that all stored objects read correctly and that deleted ones are gone.
    pub fn assert_objects(&self) {
        for path in self.paths() {
            if self.deleted.contains(&path) {
                continue;
            }
            // After a shard has moved, the first read may fail because of a server's outdated location cache.
            let read = eventually("a read", || self.ask_for("GET", &path).ok());
            assert!(read == content(&path), "{path} reads as something else");
        }
        for path in &self.deleted {
            assert!(self.ask_for("GET", path).is_err(), "{path} is back");
        }
    }

    /// Deletes an object.
    pub fn delete(&mut self, path: &str) {
        eventually("a delete", || self.ask_for("DELETE", path).ok());
        self.deleted.push(path.to_owned());
    }

    /// Returns the ID of the needle that contains an object, as SeaweedFS's URLs have it.
    pub fn needle(&self, path: &str) -> String {
        let (host, at) = self.place(path);
        let entry = http("GET", &host, &format!("{at}&metadata=true"), b"").expect("it is stored");
        let entry: serde_json::Value = serde_json::from_slice(&entry).expect("JSON");
        entry["chunks"][0]["file_id"].as_str().unwrap_or_else(|| panic!("{entry}")).to_owned()
    }

    fn ask_for(&self, method: &str, path: &str) -> Result<Vec<u8>, String> {
        let (host, at) = self.place(path);
        http(method, &host, &at, b"")
    }

    fn paths(&self) -> Vec<String> {
        let pictures = (0..LARGE.0).map(|at| format!("pictures/{at}"));
        pictures.chain((0..SMALL.0).map(|at| format!("bucket/{at}"))).collect()
    }

    /// Returns the host and path at which an object is stored.
    fn place(&self, path: &str) -> (String, String) {
        match path.strip_prefix("pictures/") {
            Some(at) => (self.weed.filer_address(), format!("/p/{at}?collection=pictures")),
            None => (self.weed.s3_address(), format!("/{path}")),
        }
    }

    pub fn shards(&self, volume: &VolumeName) -> Vec<ShardName> {
        (0..14).map(|shard| ShardName { volume: volume.clone(), shard }).collect()
    }
}

/// Returns the contents of an object, which are derived from its name.
pub fn content(path: &str) -> Vec<u8> {
    let bytes = if path.starts_with("pictures") { LARGE.1 } else { SMALL.1 };
    testbed::content(path, bytes)
}

/// Counts a volume's shards on each server.
pub fn counts(listing: &Listing, volume: &VolumeName) -> BTreeMap<String, usize> {
    let mut counts: BTreeMap<_, _> = listing.servers.keys().map(|id| (id.0.clone(), 0)).collect();
    for holding in listing.volumes.get(&volume.id()).into_iter().flatten() {
        *counts.entry(holding.server.0.clone()).or_default() += holding.shards.len();
    }
    counts
}
