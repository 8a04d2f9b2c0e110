//! A real SeaweedFS cluster on shaped links: fifteen volume servers, and what is stored on them.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use beside::Mend;
use seaweedfs::{ShardName, VolumeName};
use weed::{Attaching, Cluster, Options, content, eventually, http};

use crate::error::LabError;
use crate::fleet::Programs;
use crate::network::{Names, Network, Place};
use crate::systems::Shaped;
use crate::topology::{Rate, Topology};

/// One more than a volume of 10+4 has shards, so that a server that is lost has a place to be replaced at.
pub(super) const SERVERS: u16 = 15;
/// Of a volume.
pub(super) const SHARDS: u8 = 14;
/// Objects through the filer; each is one chunk.
pub(super) const OBJECT_BYTES: usize = 4 << 20;

/// See the module's documentation. Goes in this order.
pub(super) struct Scene {
    pub(super) cluster: Cluster,
    pub(super) network: Network,
    objects: Vec<(String, usize)>,
    mend: std::path::PathBuf,
    encrypted: bool,
}

impl Scene {
    /// Boots the cluster. The thread is in the master's namespace from then on. Mend will encrypt its data edges if
    /// `encrypted`.
    ///
    /// # Errors
    /// [`LabError`].
    ///
    /// # Panics
    /// If SeaweedFS does not come up; all is removed then.
    pub(super) fn up(
        names: &Names,
        programs: &Programs,
        weed: &Path,
        encrypted: bool,
    ) -> Result<Self, LabError> {
        let mut network = Network::up(names, &Topology::flat(SERVERS, Rate::Unshaped))?;
        let folder = tempfile::Builder::new().prefix("mendlab-").tempdir();
        let folder = folder.map_err(LabError::file("make a folder in", std::env::temp_dir()))?.keep();
        network.owns_folder(&folder)?;
        network.doors().enter(Place::Coordinator)?;
        let options =
            Options { servers: SERVERS.into(), disks: 1, data_centers: 1, racks: 1, volume_limit_mb: 1100 };
        let cluster = Cluster::boot(weed, Arc::new(Shaped(network.doors())), &folder, options);
        Ok(Self { cluster, network, objects: Vec::new(), mend: programs.mend.clone(), encrypted })
    }

    /// Gives all links but the master's this rate.
    ///
    /// # Errors
    /// [`LabError`].
    pub(super) fn shape(&mut self, rate: Rate) -> Result<(), LabError> {
        Ok(self.network.reshape(&Topology::flat(SERVERS, rate))?)
    }

    /// Has SeaweedFS spread a volume's shards over the servers again: `ec.rebuild` leaves all that it makes on one.
    pub(super) fn balance(&self, volume: &VolumeName) {
        let balance = format!("ec.balance -apply -collection={}", volume.collection());
        let said = self.cluster.shell(&["lock", &balance, "unlock"]);
        assert!(
            !said.contains("error:"),
            "ec.balance, which finds no room on a disk that is nine tenths full: {said}"
        );
    }

    /// Stores objects through the filer in one volume of a collection, so many bytes of them.
    pub(super) fn store(&mut self, collection: &str, bytes: usize) -> VolumeName {
        self.cluster.grow(collection, 1);
        for at in 0..bytes / OBJECT_BYTES {
            let path = format!("/{collection}/{at}?collection={collection}");
            self.put(&self.cluster.filer_address(), &path, OBJECT_BYTES);
            self.objects.push((path, OBJECT_BYTES));
        }
        self.cluster.plain_volumes(collection).into_iter().next().expect("it was grown")
    }

    /// Stores objects through S3, in a bucket that is a collection of the same name.
    pub(super) fn store_by_s3(&mut self, bucket: &str, objects: usize, bytes: usize) -> VolumeName {
        self.cluster.grow(bucket, 1);
        let host = self.cluster.s3_address();
        eventually("S3", || http("PUT", &host, &format!("/{bucket}"), b"").ok());
        for at in 0..objects {
            self.put(&host, &format!("/{bucket}/{at}"), bytes);
            // The filer has buckets in a folder of its own.
            self.objects.push((format!("/buckets/{bucket}/{at}"), bytes));
        }
        self.cluster.plain_volumes(bucket).into_iter().next().expect("it was grown")
    }

    fn put(&self, host: &str, path: &str, bytes: usize) {
        let name = path.rsplit_once('/').map_or(path, |(_, name)| name);
        let content = content(name.split('?').next().unwrap_or(name), bytes);
        eventually("a write", || http("PUT", host, path, &content).ok());
    }

    /// Reads all objects and compares each byte; how many there are, or the first that differs.
    pub(super) fn check_objects(&self) -> Result<usize, LabError> {
        for (path, bytes) in &self.objects {
            let (path, name) = (path.split('?').next().unwrap_or(path), path.rsplit_once('/'));
            let name = name.map_or("", |(_, name)| name.split('?').next().unwrap_or(name));
            // After a shard has moved, a first read may find a server's cached location.
            let read = eventually("a read", || http("GET", &self.cluster.filer_address(), path, b"").ok());
            if read != content(name, *bytes) {
                return Err(LabError::WrongBytes {
                    what: "all repairs".into(),
                    reason: format!("{path} reads as something else"),
                });
            }
        }
        Ok(self.objects.len())
    }

    /// The bytes of a volume's shards, which are all of one length.
    pub(super) fn shard_bytes(&self, volume: &VolumeName) -> u64 {
        let listing = self.cluster.list();
        let sizes = listing.volumes.get(&volume.id()).into_iter().flatten().flat_map(|it| it.shards.values());
        sizes.copied().max().unwrap_or_default()
    }

    /// Mend beside the cluster, which so many volumes are encoded in. `repairs` says whether it does so by itself.
    pub(super) fn attach(&self, volumes: usize, repairs: bool, repair_after: &str) -> Mend {
        let mut arguments = vec!["--repair-after", repair_after];
        // SeaweedFS sends shards unencrypted, and so does what is held against it.
        arguments.extend(["--data-tls", if self.encrypted { "true" } else { "false" }]);
        if !repairs {
            arguments.push("--dry-run");
        }
        self.cluster.attach(&Attaching { program: &self.mend, arguments: &arguments, volumes })
    }
}

/// The shards of a volume with these numbers; where two are on one server, a later one that is not. So many servers lose a shard
/// each, as when as many disks fail.
pub(super) fn shards(cluster: &Cluster, volume: &VolumeName, numbers: &[u8]) -> Vec<ShardName> {
    let mut servers = BTreeSet::new();
    let mut chosen: Vec<ShardName> = Vec::new();
    for &number in numbers {
        let others = (0..SHARDS).map(|step| (number + step) % SHARDS);
        let mut shards = others.map(|shard| ShardName { volume: volume.clone(), shard });
        let found = shards.find(|shard| servers.insert(cluster.holder(shard).0));
        chosen.extend(found);
    }
    chosen
}
