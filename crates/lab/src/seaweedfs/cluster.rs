//! A real SeaweedFS cluster on shaped links: fifteen volume servers and the stored data.

use std::collections::BTreeSet;
use std::path::Path;

use seaweedfs::{ShardName, VolumeName};
use testbed::seaweedfs::{Attaching, Cluster, Options, http};
use testbed::{Mend, content, eventually};

use crate::error::LabError;
use crate::experiment::{Repaired, Site, measure};
use crate::lab_cluster::Programs;
use crate::network::{Names, Network};
use crate::topology::{Rate, Topology};

/// The number of volume servers: one more than a 10+4 volume has shards, which leaves a place to replace a
/// lost server.
pub(super) const SERVERS: u16 = 15;
/// The number of shards of a volume.
pub(super) const SHARDS: u8 = 14;
/// The size in bytes of the objects stored through the filer; each is one chunk.
pub(super) const OBJECT_BYTES: usize = 4 << 20;

/// A running SeaweedFS cluster on a network of shaped links. The fields are dropped in this order, so that
/// the processes end before the network is removed.
pub(super) struct SeaweedLab {
    pub(super) cluster: Cluster,
    pub(super) network: Network,
    objects: Vec<(String, usize)>,
    mend: std::path::PathBuf,
    encrypted: bool,
}

impl SeaweedLab {
    /// Starts the cluster. Moves the calling thread into the master's namespace permanently. With
    /// `encrypted`, Mend encrypts its data edges.
    ///
    /// # Errors
    /// [`LabError`].
    ///
    /// # Panics
    /// If SeaweedFS does not start; everything is removed then.
    pub(super) fn up(
        names: &Names,
        programs: &Programs,
        weed: &Path,
        encrypted: bool,
    ) -> Result<Self, LabError> {
        let Site { network, folder, ground } = Site::up(names, SERVERS)?;
        let options =
            Options { servers: SERVERS.into(), disks: 1, data_centers: 1, racks: 1, volume_limit_mb: 1100 };
        let cluster = Cluster::boot(weed, ground, &folder.keep(), options);
        Ok(Self { cluster, network, objects: Vec::new(), mend: programs.mend.clone(), encrypted })
    }

    /// Shapes all links except the master's to this rate.
    ///
    /// # Errors
    /// [`LabError`].
    pub(super) fn shape(&mut self, rate: Rate) -> Result<(), LabError> {
        Ok(self.network.reshape(&Topology::flat(SERVERS, rate))?)
    }

    /// Sends a command to a SeaweedFS shell that is already connected and holds the cluster's lock, and
    /// measures until `until` returns.
    ///
    /// # Errors
    /// [`LabError`].
    pub(super) fn time_shell(
        &self,
        command: &str,
        until: impl FnOnce() -> Result<(), LabError>,
    ) -> Result<Repaired, LabError> {
        let mut shell = self.cluster.locked_shell();
        let repaired = measure(&self.network, self.cluster.server_ids(), || {
            shell.tell(command);
            until()
        })?;
        shell.end();
        Ok(repaired)
    }

    /// Runs `ec.balance` to spread the shards of collections over the servers again: `ec.rebuild` leaves all rebuilt shards
    /// on one server, and a server that replaces a lost one has none.
    pub(super) fn balance<'c>(&self, collections: impl IntoIterator<Item = &'c str>) {
        for collection in collections {
            let balance = format!("ec.balance -apply -collection={collection}");
            let said = self.cluster.shell(&["lock", &balance, "unlock"]);
            assert!(
                !said.contains("error:"),
                "ec.balance found no room, because it does not use disks that are 90% full: {said}"
            );
        }
    }

    /// Returns the number of shards on each server.
    pub(super) fn shard_counts(&self) -> Vec<usize> {
        let listing = self.cluster.list();
        let held = |server: usize| {
            let id = self.cluster.servers[server].address.http();
            let holdings = listing.volumes.values().flatten().filter(|holding| holding.server.0 == id);
            holdings.map(|holding| holding.shards.len()).sum()
        };
        (0..self.cluster.servers.len()).map(held).collect()
    }

    /// Stores `bytes` bytes of objects through the filer, in one volume of a collection, and returns the
    /// volume.
    pub(super) fn store(&mut self, collection: &str, bytes: usize) -> VolumeName {
        self.cluster.grow(collection, 1);
        for at in 0..bytes / OBJECT_BYTES {
            let path = format!("/{collection}/{at}?collection={collection}");
            self.put(&self.cluster.weed.filer_address(), &path, OBJECT_BYTES);
            self.objects.push((path, OBJECT_BYTES));
        }
        self.cluster.plain_volumes(collection).into_iter().next().expect("it was grown")
    }

    /// Stores objects through S3, in a bucket that maps to a collection of the same name, and returns the
    /// volume.
    pub(super) fn store_by_s3(&mut self, bucket: &str, objects: usize, bytes: usize) -> VolumeName {
        self.cluster.grow(bucket, 1);
        let host = self.cluster.weed.s3_address();
        eventually("S3", || http("PUT", &host, &format!("/{bucket}"), b"").ok());
        for at in 0..objects {
            self.put(&host, &format!("/{bucket}/{at}"), bytes);
            // The filer keeps buckets in a separate folder.
            self.objects.push((format!("/buckets/{bucket}/{at}"), bytes));
        }
        self.cluster.plain_volumes(bucket).into_iter().next().expect("it was grown")
    }

    fn put(&self, host: &str, path: &str, bytes: usize) {
        let name = path.rsplit_once('/').map_or(path, |(_, name)| name);
        let content = content(name.split('?').next().unwrap_or(name), bytes);
        eventually("a write", || http("PUT", host, path, &content).ok());
    }

    /// Reads and compares all objects. Returns the number of objects, or an error for the first object that
    /// differs.
    pub(super) fn check_objects(&self) -> Result<usize, LabError> {
        for (path, bytes) in &self.objects {
            let (path, name) = (path.split('?').next().unwrap_or(path), path.rsplit_once('/'));
            let name = name.map_or("", |(_, name)| name.split('?').next().unwrap_or(name));
            // After a shard has moved, the first read may use a server's stale location cache.
            let read =
                eventually("a read", || http("GET", &self.cluster.weed.filer_address(), path, b"").ok());
            if read != content(name, *bytes) {
                return Err(LabError::WrongBytes {
                    what: "all repairs".into(),
                    reason: format!("reading {path} returned wrong bytes"),
                });
            }
        }
        Ok(self.objects.len())
    }

    /// Returns the shard size of a volume in bytes.
    pub(super) fn shard_bytes(&self, volume: &VolumeName) -> u64 {
        let listing = self.cluster.list();
        let sizes = listing.volumes.get(&volume.id()).into_iter().flatten().flat_map(|it| it.shards.values());
        sizes.copied().max().unwrap_or_default()
    }

    /// Attaches Mend to a cluster with `volumes` encoded volumes. `repairs` turns automatic repair on.
    pub(super) fn attach(&self, volumes: usize, repairs: bool, repair_after: &str) -> Mend {
        let mut arguments = vec!["--repair-after", repair_after];
        // SeaweedFS sends shards unencrypted. For a fair comparison, Mend does the same, unless encryption
        // was requested.
        arguments.extend(["--data-tls", if self.encrypted { "true" } else { "false" }]);
        if !repairs {
            arguments.push("--dry-run");
        }
        self.cluster.attach(&Attaching { program: &self.mend, arguments: &arguments, volumes })
    }
}

/// Chooses the shards with these numbers. If two of them share a server, the second is replaced by a later
/// shard on another server, so that every server loses at most one shard, as if one of its disks had failed.
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
