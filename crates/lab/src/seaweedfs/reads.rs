//! Measures reads of single needles, which are SeaweedFS's stored objects. Each read goes to any server with
//! shards of the needle's volume, as with SeaweedFS's own clients.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use seaweedfs::VolumeName;
use testbed::seaweedfs::{Cluster, http};
use testbed::{content, eventually};

use crate::error::LabError;
use crate::experiment::{ReadLog, read_during};

/// The size of a needle in bytes.
pub(super) const NEEDLE_BYTES: usize = 128 << 10;
/// The number of concurrent clients; each reads one needle after another.
pub(super) const CLIENTS: usize = 4;
const WRITERS: usize = 4;
/// The distance, in needles, between two successive reads of a client: large, so that reads are not
/// sequential.
const STEP: usize = 7919;

/// The stored needles.
pub(super) struct Needles {
    /// The volume and the file id of each.
    stored: Vec<(u32, String)>,
    /// A needle that was read with wrong bytes.
    wrong: Mutex<Option<String>>,
}

impl Needles {
    /// Stores needles in new volumes of a collection, with `bytes` bytes per volume on average, and returns
    /// the volumes.
    pub(super) fn store(
        cluster: &Cluster,
        collection: &str,
        volumes: usize,
        bytes: usize,
    ) -> (Self, Vec<VolumeName>) {
        cluster.grow(collection, volumes);
        let count = volumes * bytes / NEEDLE_BYTES;
        let (next, stored) = (AtomicUsize::new(0), Mutex::new(Vec::with_capacity(count)));
        thread::scope(|scope| {
            for _ in 0..WRITERS {
                scope.spawn(|| {
                    while next.fetch_add(1, Ordering::Relaxed) < count {
                        let needle = eventually("a write", || write(cluster, collection));
                        stored.lock().expect("no panic").push(needle);
                    }
                });
            }
        });
        let needles = Self { stored: stored.into_inner().expect("no panic"), wrong: Mutex::default() };
        (needles, cluster.plain_volumes(collection))
    }

    /// Reads needles with several clients until `work` returns, and compares their bytes.
    ///
    /// # Errors
    /// [`LabError::WrongBytes`], or the error of `work`.
    pub(super) fn read_during<T>(
        &self,
        cluster: &Cluster,
        work: impl FnOnce() -> Result<T, LabError>,
    ) -> Result<(ReadLog, T), LabError> {
        let homes = &homes(cluster);
        let client = |client: usize| {
            let mut at = client * self.stored.len() / CLIENTS;
            move |log: &mut ReadLog| {
                at = (at + STEP) % self.stored.len();
                self.read(at, homes, log);
            }
        };
        let (log, done) = read_during((0..CLIENTS).map(client).collect(), work);
        match self.wrong.lock().expect("no panic").take() {
            None => Ok((log, done?)),
            Some(id) => {
                let reason = format!("reading needle {id} returned wrong bytes");
                Err(LabError::WrongBytes { what: "reads of needles".to_owned(), reason })
            }
        }
    }

    /// Reads a needle from one of the servers with shards of its volume.
    fn read(&self, at: usize, homes: &BTreeMap<u32, Vec<String>>, log: &mut ReadLog) {
        let (volume, id) = &self.stored[at];
        let Some(homes) = homes.get(volume).filter(|homes| !homes.is_empty()) else { return };
        let begun = Instant::now();
        let Ok(body) = http("GET", &homes[at % homes.len()], &format!("/{id}"), b"") else {
            return log.failures.push(begun);
        };
        log.reads.push((begun, begun.elapsed()));
        if body != content(id, NEEDLE_BYTES) {
            *self.wrong.lock().expect("no panic") = Some(id.clone());
        }
    }
}

/// Returns the addresses of the connected servers with shards of each volume.
fn homes(cluster: &Cluster) -> BTreeMap<u32, Vec<String>> {
    let listing = cluster.list();
    let of = |holdings: &Vec<seaweedfs::Holding>| {
        let servers = holdings.iter().filter_map(|holding| listing.servers.get(&holding.server));
        servers.map(|server| server.address.http()).collect()
    };
    listing.volumes.iter().map(|(&volume, holdings)| (volume, of(holdings))).collect()
}

/// Stores a needle whose bytes depend on its file id.
fn write(cluster: &Cluster, collection: &str) -> Option<(u32, String)> {
    let asked = format!("/dir/assign?collection={collection}");
    let assigned = http("GET", &cluster.weed.master_address(), &asked, b"").ok()?;
    let assigned: serde_json::Value = serde_json::from_slice(&assigned).ok()?;
    let (id, server) = (assigned["fid"].as_str()?, assigned["url"].as_str()?);
    http("PUT", server, &format!("/{id}"), &content(id, NEEDLE_BYTES)).ok()?;
    let volume = id.split(',').next()?.parse().ok()?;
    Some((volume, id.to_owned()))
}
