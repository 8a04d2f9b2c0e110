//! The loss and recovery of a whole volume server.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use seaweedfs::{Listing, ShardName};
use testbed::{Mend, eventually};

use super::cluster::SeaweedLab;
use super::detail::LostServer;
use crate::error::LabError;
use crate::experiment::{Repaired, hash_of, time_program, wait_for_lost_blocks, wait_while};

const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A permanently failed volume server.
pub(super) struct Gone {
    pub(super) server: usize,
    pub(super) lost: LostServer,
    /// The hash of each lost shard.
    hashes: BTreeMap<ShardName, blake3::Hash>,
    /// The number of shards on all servers before the loss.
    all: usize,
}

/// Returns the number and the size of the shards of each volume that a server holds.
fn held(listing: &Listing, id: &str) -> BTreeMap<u32, (usize, u64)> {
    let mut held: BTreeMap<u32, (usize, u64)> = BTreeMap::new();
    for (&volume, holdings) in &listing.volumes {
        let shards = holdings.iter().filter(|holding| holding.server.0 == id);
        for &bytes in shards.flat_map(|holding| holding.shards.values()) {
            let (count, size) = held.entry(volume).or_default();
            (*count, *size) = (*count + 1, bytes.max(*size));
        }
    }
    held
}

/// Returns the server whose number of shards is nearest to the mean; of several, the first one from `from` on, so that
/// servers take turns.
pub(super) fn nearest(counts: &[usize], from: usize) -> usize {
    let servers = counts.len();
    let in_turn = (0..servers).map(|step| (from + step) % servers);
    // Both numbers are multiplied by the number of servers, which avoids fractions.
    let all: usize = counts.iter().sum();
    in_turn.min_by_key(|&server| (counts[server] * servers).abs_diff(all)).expect("there are servers")
}

impl Gone {
    /// Kills a volume server and its helper, and waits until the master notices.
    ///
    /// # Errors
    /// [`LabError`].
    pub(super) fn kill(lab: &mut SeaweedLab, mend: &mut Mend, server: usize) -> Result<Self, LabError> {
        let (listing, counts) = (lab.cluster.list(), lab.shard_counts());
        let (fewest, most) = (counts.iter().min().copied(), counts.iter().max().copied());
        let mut lost = LostServer {
            survivors: counts.len() - 1,
            fewest: fewest.unwrap_or_default(),
            most: most.unwrap_or_default(),
            ..LostServer::default()
        };
        let id = lab.cluster.servers[server].address.http();
        held(&listing, &id).into_values().for_each(|(shards, bytes)| lost.add(shards, bytes));
        let all = listing.shard_count();
        lab.cluster.servers[server].kill();
        mend.kill_helper(server);
        eventually("the master to miss it", || {
            (lab.cluster.list().shard_count() == all - lost.shards).then_some(())
        });
        let mut hashes = BTreeMap::new();
        for folder in &lab.cluster.servers[server].folders {
            for entry in fs::read_dir(folder).map_err(LabError::file("list", folder))?.flatten() {
                let name = entry.file_name();
                if let Some(shard) = name.to_str().and_then(|name| name.parse::<ShardName>().ok()) {
                    hashes.insert(shard, hash_of(&entry.path())?);
                }
                fs::remove_file(entry.path()).map_err(LabError::file("remove", entry.path()))?;
            }
        }
        assert_eq!(hashes.len(), lost.shards, "the server lists other shards than it has");
        Ok(Self { server, lost, hashes, all })
    }

    /// Rebuilds the server's shards with `ec.rebuild`, and compares them with the lost ones.
    ///
    /// # Errors
    /// [`LabError`].
    pub(super) fn rebuild(&self, lab: &SeaweedLab) -> Result<Repaired, LabError> {
        let repaired = lab.time_shell("ec.rebuild -apply", || self.await_listed(lab, "ec.rebuild"))?;
        self.check("ec.rebuild", lab)?;
        Ok(repaired)
    }

    fn check(&self, what: &str, lab: &SeaweedLab) -> Result<(), LabError> {
        for (shard, before) in &self.hashes {
            if hash_of(&lab.cluster.holder(shard).1)? != *before {
                let reason = format!("{shard} was rebuilt with wrong bytes");
                return Err(LabError::WrongBytes { what: what.to_owned(), reason });
            }
        }
        Ok(())
    }

    /// Waits until the coordinator counts all shards as lost.
    pub(super) fn await_lost(&self, mend: &Mend) {
        wait_for_lost_blocks(mend, self.lost.shards);
    }

    /// Rebuilds the server's shards with `mend node recover`, and compares them with the lost ones.
    ///
    /// # Errors
    /// [`LabError`].
    pub(super) fn recover(&self, lab: &SeaweedLab, mend: &Mend) -> Result<Repaired, LabError> {
        let name = mend.names()[self.server].clone();
        let verb = mend.verb(&["node", "recover", &name]);
        let repaired = time_program(&lab.network, mend.helper_ids(), "mend node recover", verb, || {
            self.await_listed(lab, "mend node recover")
        })?;
        let repaired = repaired.with_timeline(mend);
        self.check("mend node recover", lab)?;
        Ok(repaired)
    }

    /// Restarts the server with empty folders, and then the server's helper. Spreads the shards of these collections over
    /// all servers again, and waits until Mend reports all volumes as whole.
    pub(super) fn replace<'c>(
        self,
        lab: &mut SeaweedLab,
        mend: &mut Mend,
        volumes: usize,
        collections: impl IntoIterator<Item = &'c str>,
    ) {
        lab.cluster.start_server(self.server);
        lab.cluster.await_server(self.server);
        mend.start_helper(self.server);
        lab.balance(collections);
        mend.wait_until_safe(volumes);
    }

    fn await_listed(&self, lab: &SeaweedLab, who: &str) -> Result<(), LabError> {
        wait_while(who, LOOK_EVERY, || {
            let listed = lab.cluster.list().shard_count();
            Ok((listed < self.all).then(|| format!("{listed} of {} shards are listed", self.all)))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_with_equally_many_shards_take_turns() {
        let counts = [50, 51, 50, 49, 50];
        assert_eq!((nearest(&counts, 0), nearest(&counts, 1), nearest(&counts, 3)), (0, 2, 4));
        assert_eq!(nearest(&[0, 14, 14, 13], 0), 3, "the mean is 10.25");
    }
}
