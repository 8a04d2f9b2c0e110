//! Chooses the server and disk of a rebuilt shard.
//!
//! SeaweedFS spreads a volume's shards evenly: first over racks, then over the servers of a rack, then over
//! their disks. Its `ec.balance` moves shards that break that rule. This module follows the same rule with
//! one preference: if the former server of a shard stays within its even share, the shard returns there,
//! since the other servers still have this location in their caches.

use std::collections::{BTreeMap, BTreeSet};

use crate::blocks::Ratio;

use crate::listing::{Server, ServerId};
use crate::volumes::Generation;

/// The chosen server and its disk with the fewest shards of the volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The chosen server.
    pub server: ServerId,
    /// The disk; `None` if the server lists no disks.
    pub disk: Option<u32>,
}

/// No server can store the shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoPlace {
    /// No usable server is connected.
    #[error("no connected volume server has a helper")]
    NoServer,
    /// All usable servers are full.
    #[error("no volume server has room for another shard: all their volume slots are taken (-max)")]
    Full,
}

/// How many of the volume's shards each rack, server and disk has.
#[derive(Default)]
struct Spread<'a> {
    racks: BTreeMap<Rack<'a>, usize>,
    servers: BTreeMap<&'a ServerId, usize>,
    disks: BTreeMap<(&'a ServerId, u32), usize>,
}

type Rack<'a> = (&'a str, &'a str);

fn rack(server: &Server) -> Rack<'_> {
    (&server.data_center, &server.rack)
}

/// Chooses a place for shard `lost` among the servers for which `usable` returns true.
///
/// Existing copies of the lost shard are ignored, since the new copy replaces them.
///
/// # Errors
/// [`NoPlace`].
pub fn place(
    generation: &Generation,
    ratio: Ratio,
    lost: u8,
    servers: &BTreeMap<ServerId, Server>,
    usable: impl Fn(&ServerId) -> bool,
) -> Result<Place, NoPlace> {
    let former = generation.former.get(&lost);
    let usable: BTreeMap<_, _> = servers.iter().filter(|(id, _)| usable(id)).collect();
    if usable.is_empty() {
        return Err(NoPlace::NoServer);
    }
    let spread = Spread::of(generation, lost, servers);
    let racks: BTreeSet<_> = usable.values().map(|server| rack(server)).collect();
    let total = usize::from(ratio.total());
    let (rack_share, server_share) = (total.div_ceil(racks.len()), total.div_ceil(usable.len()));
    if let Some(home) = former.filter(|home| usable.contains_key(&home.server)) {
        let server = usable[&home.server];
        if spread.rack(server) < rack_share && spread.server(&home.server) < server_share {
            let disk = server.disks.contains_key(&home.disk).then_some(home.disk);
            let disk = disk.or_else(|| spread.best_disk(&home.server, server));
            return Ok(Place { server: home.server.clone(), disk });
        }
    }
    let roomy = usable.into_iter().filter(|(_, server)| server.free_volumes > 0);
    let score = |id, server| {
        let in_rack = spread.rack(server);
        // Racks below their share are equally good. Among their servers, the one with the fewest shards wins.
        (in_rack.max(rack_share - 1), spread.server(id), in_rack, std::cmp::Reverse(server.free_volumes), id)
    };
    let best = roomy.min_by_key(|&(id, server)| score(id, server)).ok_or(NoPlace::Full)?;
    Ok(Place { server: best.0.clone(), disk: spread.best_disk(best.0, best.1) })
}

impl<'a> Spread<'a> {
    fn of(generation: &'a Generation, lost: u8, servers: &'a BTreeMap<ServerId, Server>) -> Self {
        let mut spread = Self::default();
        let homes = generation.homes.iter().filter(|&(&shard, _)| shard != lost).flat_map(|(_, homes)| homes);
        for home in homes {
            if let Some(server) = servers.get(&home.server) {
                *spread.racks.entry(rack(server)).or_default() += 1;
            }
            *spread.servers.entry(&home.server).or_default() += 1;
            *spread.disks.entry((&home.server, home.disk)).or_default() += 1;
        }
        spread
    }

    fn rack(&self, server: &'a Server) -> usize {
        self.racks.get(&rack(server)).copied().unwrap_or(0)
    }

    fn server(&self, id: &ServerId) -> usize {
        self.servers.get(id).copied().unwrap_or(0)
    }

    fn best_disk(&self, id: &'a ServerId, server: &Server) -> Option<u32> {
        server
            .disks
            .keys()
            .copied()
            .min_by_key(|&disk| (self.disks.get(&(id, disk)).copied().unwrap_or(0), disk))
    }
}

#[cfg(test)]
#[path = "placement/tests.rs"]
mod tests;
