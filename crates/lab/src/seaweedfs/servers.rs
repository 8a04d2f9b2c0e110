//! The loss and recovery of a whole volume server.

use std::fs;
use std::time::Duration;

use testbed::{Mend, eventually};

use super::cluster::SeaweedLab;
use crate::error::LabError;
use crate::experiment::{Repaired, time_program, wait_for_lost_blocks, wait_while};

const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A permanently failed volume server.
pub(super) struct Gone {
    pub(super) server: usize,
    /// The number of shards that the server held.
    pub(super) shards: usize,
    /// The size of these shards in bytes.
    pub(super) bytes: u64,
    /// The number of shards on all servers before the loss.
    all: usize,
}

impl Gone {
    /// Kills a volume server and its helper, and waits until the master notices.
    ///
    /// # Errors
    /// [`LabError`].
    pub(super) fn kill(lab: &mut SeaweedLab, mend: &mut Mend, server: usize) -> Result<Self, LabError> {
        let listing = lab.cluster.list();
        let (all, id) = (listing.shard_count(), lab.cluster.servers[server].address.http());
        let held = listing.volumes.values().flatten().filter(|holding| holding.server.0 == id);
        let held: Vec<u64> = held.flat_map(|holding| holding.shards.values().copied()).collect();
        lab.cluster.servers[server].kill();
        mend.kill_helper(server);
        eventually("the master to miss it", || {
            (lab.cluster.list().shard_count() == all - held.len()).then_some(())
        });
        for folder in &lab.cluster.servers[server].folders {
            for entry in fs::read_dir(folder).map_err(LabError::file("list", folder))?.flatten() {
                fs::remove_file(entry.path()).map_err(LabError::file("remove", entry.path()))?;
            }
        }
        Ok(Self { server, shards: held.len(), bytes: held.iter().sum(), all })
    }

    /// Rebuilds the server's shards with `ec.rebuild`.
    ///
    /// # Errors
    /// [`LabError`].
    pub(super) fn rebuild(&self, lab: &SeaweedLab) -> Result<Repaired, LabError> {
        lab.time_shell("ec.rebuild -apply", || self.await_listed(lab, "ec.rebuild"))
    }

    /// Rebuilds the server's shards with `mend node recover`.
    ///
    /// # Errors
    /// [`LabError`].
    pub(super) fn recover(&self, lab: &SeaweedLab, mend: &Mend) -> Result<Repaired, LabError> {
        let name = mend.names()[self.server].clone();
        wait_for_lost_blocks(mend, self.shards);
        let verb = mend.verb(&["node", "recover", &name]);
        let repaired = time_program(&lab.network, mend.helper_ids(), "mend node recover", verb, || {
            self.await_listed(lab, "mend node recover")
        })?;
        Ok(repaired.with_timeline(mend))
    }

    /// Restarts the server with empty folders, and then the server's helper. Waits until both are connected
    /// and Mend reports all volumes as whole.
    pub(super) fn replace(self, lab: &mut SeaweedLab, mend: &mut Mend, volumes: usize) {
        lab.cluster.start_server(self.server);
        lab.cluster.await_server(self.server);
        mend.start_helper(self.server);
        mend.wait_until_safe(volumes);
    }

    fn await_listed(&self, lab: &SeaweedLab, who: &str) -> Result<(), LabError> {
        wait_while(who, LOOK_EVERY, || {
            let listed = lab.cluster.list().shard_count();
            Ok((listed < self.all).then(|| format!("{listed} of {} shards are listed", self.all)))
        })
    }
}
