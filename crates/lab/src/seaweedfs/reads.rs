//! Reads of single needles, as SeaweedFS's clients do them: from any server that has shards of the needle's volume.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use seaweedfs::VolumeName;
use weed::{Cluster, eventually, http};

/// What a needle holds.
pub(super) const NEEDLE_BYTES: usize = 128 << 10;
/// Clients that read at the same time, each one needle after the other.
pub(super) const CLIENTS: usize = 4;
const WRITERS: usize = 4;
/// Needles are read in this stride, so that neighbours are not read one after the other.
const STEP: usize = 7919;

/// Needles that are stored.
pub(super) struct Needles(Vec<(u32, String)>);

/// How reads went.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reads {
    pub(super) per_second: f64,
    pub(super) median: Duration,
    pub(super) p99: Duration,
    pub(super) failed: usize,
}

impl Needles {
    /// Stores needles in so many volumes of a collection, so many bytes for each on average; the volumes.
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

    /// Reads needles of these servers' until `work` is done.
    pub(super) fn read_during<T>(&self, cluster: &Cluster, work: impl FnOnce() -> T) -> (Reads, T) {
        let homes = homes(cluster);
        let (over, failed) = (AtomicBool::new(false), AtomicUsize::new(0));
        let begun = Instant::now();
        let (mut times, done, elapsed) = thread::scope(|scope| {
            let clients: Vec<_> = (0..CLIENTS)
                .map(|client| {
                    let (over, failed, homes) = (&over, &failed, &homes);
                    scope.spawn(move || self.read(client, homes, over, failed))
                })
                .collect();
            let done = work();
            over.store(true, Ordering::Relaxed);
            let elapsed = begun.elapsed();
            let times = clients.into_iter().flat_map(|client| client.join().expect("no panic"));
            (times.collect::<Vec<Duration>>(), done, elapsed)
        });
        times.sort();
        let at = |part: f64| {
            let index = ((times.len() as f64 * part) as usize).min(times.len().saturating_sub(1));
            times.get(index).copied().unwrap_or_default()
        };
        let per_second = times.len() as f64 / elapsed.as_secs_f64();
        let reads =
            Reads { per_second, median: at(0.5), p99: at(0.99), failed: failed.load(Ordering::Relaxed) };
        (reads, done)
    }

    fn read(
        &self,
        client: usize,
        homes: &BTreeMap<u32, Vec<String>>,
        over: &AtomicBool,
        failed: &AtomicUsize,
    ) -> Vec<Duration> {
        let (mut times, mut at) = (Vec::new(), client * self.0.len() / CLIENTS);
        while !over.load(Ordering::Relaxed) {
            at = (at + STEP) % self.0.len();
            let (volume, id) = &self.0[at];
            let Some(homes) = homes.get(volume) else { continue };
            let begun = Instant::now();
            match http("GET", &homes[at % homes.len()], &format!("/{id}"), b"") {
                Ok(body) if body.len() == NEEDLE_BYTES => times.push(begun.elapsed()),
                _ => drop(failed.fetch_add(1, Ordering::Relaxed)),
            }
        }
        times
    }
}

/// Who has shards of each volume and is connected.
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
    let assigned = http("GET", &cluster.master_address(), &asked, b"").ok()?;
    let assigned: serde_json::Value = serde_json::from_slice(&assigned).ok()?;
    let (id, server) = (assigned["fid"].as_str()?, assigned["url"].as_str()?);
    http("PUT", server, &format!("/{id}"), body).ok()?;
    let volume = id.split(',').next()?.parse().ok()?;
    Some((volume, id.to_owned()))
}
