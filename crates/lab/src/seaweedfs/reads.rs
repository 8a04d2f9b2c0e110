//! Measures reads of single needles, which are SeaweedFS's stored objects. Each read goes to any server with
//! shards of the needle's volume, as with SeaweedFS's own clients.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use seaweedfs::VolumeName;
use testbed::eventually;
use testbed::seaweedfs::{Cluster, http};

use crate::experiment::{ReadLog, read_during};

/// The size of a needle in bytes.
pub(super) const NEEDLE_BYTES: usize = 128 << 10;
/// The number of concurrent clients; each reads one needle after another.
pub(super) const CLIENTS: usize = 4;
const WRITERS: usize = 4;
/// The distance, in needles, between two successive reads of a client: large, so that reads are not
/// sequential.
const STEP: usize = 7919;

/// The stored needles: their volumes and file ids.
pub(super) struct Needles(Vec<(u32, String)>);

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
                    let body: Vec<u8> = (0..NEEDLE_BYTES).map(|at| (at % 251) as u8).collect();
                    while next.fetch_add(1, Ordering::Relaxed) < count {
                        let needle = eventually("a write", || write(cluster, collection, &body));
                        stored.lock().expect("no panic").push(needle);
                    }
                });
            }
        });
        (Self(stored.into_inner().expect("no panic")), cluster.plain_volumes(collection))
    }

    /// Reads needles with several clients until `work` returns.
    pub(super) fn read_during<T>(&self, cluster: &Cluster, work: impl FnOnce() -> T) -> (ReadLog, T) {
        let homes = &homes(cluster);
        let client = |client: usize| {
            let mut at = client * self.0.len() / CLIENTS;
            move |log: &mut ReadLog| {
                at = (at + STEP) % self.0.len();
                self.read(at, homes, log);
            }
        };
        read_during((0..CLIENTS).map(client).collect(), work)
    }

    /// Reads a needle from one of the servers with shards of its volume.
    fn read(&self, at: usize, homes: &BTreeMap<u32, Vec<String>>, log: &mut ReadLog) {
        let (volume, id) = &self.0[at];
        let Some(homes) = homes.get(volume).filter(|homes| !homes.is_empty()) else { return };
        let begun = Instant::now();
        match http("GET", &homes[at % homes.len()], &format!("/{id}"), b"") {
            Ok(body) if body.len() == NEEDLE_BYTES => log.reads.push((begun, begun.elapsed())),
            _ => log.failures.push(begun),
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

fn write(cluster: &Cluster, collection: &str, body: &[u8]) -> Option<(u32, String)> {
    let asked = format!("/dir/assign?collection={collection}");
    let assigned = http("GET", &cluster.weed.master_address(), &asked, b"").ok()?;
    let assigned: serde_json::Value = serde_json::from_slice(&assigned).ok()?;
    let (id, server) = (assigned["fid"].as_str()?, assigned["url"].as_str()?);
    http("PUT", server, &format!("/{id}"), body).ok()?;
    let volume = id.split(',').next()?.parse().ok()?;
    Some((volume, id.to_owned()))
}
