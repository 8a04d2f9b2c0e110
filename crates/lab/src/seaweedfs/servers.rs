//! A whole server that is lost, and what those who read notice.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use testbed::{Mend, eventually};

use super::cluster::SeaweedLab;
use crate::error::LabError;
use crate::systems::{Repaired, Watching, time_program};

const LOOK_EVERY: Duration = Duration::from_millis(20);
const LIMIT: Duration = Duration::from_secs(900);

/// A volume server that is gone for good.
pub(super) struct Gone {
    pub(super) server: usize,
    /// Shards that it had.
    pub(super) shards: usize,
    /// Their bytes.
    pub(super) bytes: u64,
    /// Shards of all before.
    all: usize,
}

impl Gone {
    /// Kills a volume server and the helper beside it, and waits until the master misses it.
    ///
    /// # Errors
    /// [`LabError`].
    pub(super) fn kill(scene: &mut SeaweedLab, mend: &mut Mend, server: usize) -> Result<Self, LabError> {
        let listing = scene.cluster.list();
        let (all, id) = (listing.shard_count(), scene.cluster.servers[server].address.http());
        let held = listing.volumes.values().flatten().filter(|holding| holding.server.0 == id);
        let held: Vec<u64> = held.flat_map(|holding| holding.shards.values().copied()).collect();
        scene.cluster.servers[server].kill();
        mend.kill_helper(server);
        eventually("the master to miss it", || {
            (scene.cluster.list().shard_count() == all - held.len()).then_some(())
        });
        for folder in &scene.cluster.servers[server].folders {
            for entry in fs::read_dir(folder).map_err(LabError::file("list", folder))?.flatten() {
                fs::remove_file(entry.path()).map_err(LabError::file("remove", entry.path()))?;
            }
        }
        Ok(Self { server, shards: held.len(), bytes: held.iter().sum(), all })
    }

    /// Has `ec.rebuild` make anew what it had.
    ///
    /// # Errors
    /// [`LabError`].
    pub(super) fn rebuild(&self, scene: &SeaweedLab) -> Result<Repaired, LabError> {
        let mut shell = scene.cluster.locked_shell();
        let watching = Watching::start(&scene.network, scene.cluster.server_ids())?;
        let begun = Instant::now();
        shell.tell("ec.rebuild -apply");
        let time = self.await_listed(scene, "ec.rebuild", begun)?;
        let usage = watching.stop()?;
        shell.end();
        Ok(Repaired { time, usage })
    }

    /// Has `mend node recover` make anew what it had.
    ///
    /// # Errors
    /// [`LabError`].
    pub(super) fn recover(&self, scene: &SeaweedLab, mend: &Mend) -> Result<Repaired, LabError> {
        let name = mend.names()[self.server].clone();
        eventually("the coordinator to miss it", || {
            let status = mend.ask(&["status"])?;
            (status["stripes"]["blocks_lost"] == self.shards).then_some(())
        });
        let verb = mend.verb(&["node", "recover", &name]);
        let begun = Instant::now();
        time_program(&scene.network, mend.helper_ids(), "mend node recover", verb, || {
            self.await_listed(scene, "mend node recover", begun).map(drop)
        })
    }

    /// Starts the server and its helper again, empty; nobody remembers where shards were.
    pub(super) fn replace(self, scene: &mut SeaweedLab, mend: &mut Mend, volumes: usize) {
        scene.cluster.start_server(self.server);
        scene.cluster.await_server(self.server);
        mend.start_helper(self.server);
        mend.wait_until_safe(volumes);
    }

    fn await_listed(&self, scene: &SeaweedLab, who: &str, begun: Instant) -> Result<Duration, LabError> {
        loop {
            let listed = scene.cluster.list().shard_count();
            if listed >= self.all {
                return Ok(begun.elapsed());
            }
            if begun.elapsed() > LIMIT {
                let reason =
                    format!("{listed} of {} shards are listed after {} s", self.all, LIMIT.as_secs());
                return Err(LabError::Agent { who: who.to_owned(), reason });
            }
            thread::sleep(LOOK_EVERY);
        }
    }
}
