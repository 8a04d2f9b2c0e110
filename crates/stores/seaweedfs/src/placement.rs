//! Where a rebuilt shard belongs.
//!
//! SeaweedFS spreads the shards of a volume over racks, then over the servers of a rack, then over their disks, each
//! evenly: its own `ec.balance` moves what breaks that rule. So does this, with one preference: the server that had the
//! shard gets it back as long as that keeps it within its even share, since everybody's cached locations name it.

use std::collections::{BTreeMap, BTreeSet};

use crate::blocks::Ratio;

use crate::listing::{Server, ServerId};
use crate::volumes::Generation;

/// A server, and the disk of it that has fewest shards of the volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The server.
    pub server: ServerId,
    /// The disk, if the server lists any.
    pub disk: Option<u32>,
}

/// No server can take the shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoPlace {
    /// No server is connected that may be used.
    #[error("no volume server is connected that a helper works beside")]
    NoServer,
    /// All of them are full.
    #[error("no volume server has room for another shard: all their volume slots are taken (-max)")]
    Full,
}

/// Shards of the volume by rack, by server and by disk.
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

/// Where shard `lost` of a volume belongs, of the servers that `usable` names.
///
/// What a server holds of the shard itself does not count: it is to be replaced there.
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
        // Racks below their share are as good as each other; among their servers the emptiest counts.
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
