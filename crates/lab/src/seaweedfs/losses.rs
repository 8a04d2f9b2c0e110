//! A loss repaired by SeaweedFS and by Mend, timed from the request until the master lists all shards.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use beside::Mend;
use stores::seaweedfs::{ShardName, VolumeName};
use weed::eventually;

use super::scene::{SHARDS, Scene};
use crate::error::LabError;
use crate::systems::{Repaired, Watching, time_program};

const LOOK_EVERY: Duration = Duration::from_millis(10);
/// A limit above any measured time.
const LIMIT: Duration = Duration::from_secs(600);

/// A loss to repair.
pub(super) struct Loss {
    volume: VolumeName,
    lost: Vec<(ShardName, Vec<u8>)>,
}

impl Loss {
    /// Removes these shards and waits until the master notices.
    pub(super) fn of(scene: &Scene, shards: Vec<ShardName>) -> Self {
        let volume = shards[0].volume.clone();
        let count = shards.len();
        let lose = |shard: ShardName| {
            let before = scene.cluster.lose(&shard).1;
            (shard, before)
        };
        let lost = shards.into_iter().map(lose).collect();
        eventually("the master to miss them", || {
            (scene.cluster.shards_listed(&volume) == usize::from(SHARDS) - count).then_some(())
        });
        Self { volume, lost }
    }

    /// Rebuilds them with `ec.rebuild`. The shell connects and takes the lock before the timing starts.
    ///
    /// # Errors
    /// [`LabError`].
    pub(super) fn rebuild(&self, scene: &Scene) -> Result<Repaired, LabError> {
        let mut shell = scene.cluster.locked_shell();
        let watching = Watching::start(&scene.network, scene.cluster.server_ids())?;
        let begun = Instant::now();
        shell.tell(&format!("ec.rebuild -apply -collection={}", self.volume.collection()));
        let time = self.await_listed(scene, "ec.rebuild", begun)?;
        let usage = watching.stop()?;
        shell.end();
        self.check("ec.rebuild", scene)?;
        Ok(Repaired { time, usage })
    }

    /// Rebuilds them with `mend repair`. The coordinator knows of the loss before the timing starts;
    /// automatic repair is off.
    ///
    /// # Errors
    /// [`LabError`].
    pub(super) fn repair(&self, scene: &Scene, mend: &Mend) -> Result<Repaired, LabError> {
        let count = self.lost.len();
        eventually("the coordinator to miss them", || {
            let status = mend.ask(&["status"])?;
            (status["stripes"]["blocks_lost"] == count).then_some(())
        });
        let target = match &self.lost[..] {
            [(shard, _)] => shard.to_string(),
            _ => self.volume.to_string(),
        };
        let verb = mend.verb(&["repair", &target]);
        let begun = Instant::now();
        let repaired = time_program(&scene.network, mend.helper_ids(), "mend repair", verb, || {
            self.await_listed(scene, "mend repair", begun).map(drop)
        })?;
        self.check("mend repair", scene)?;
        Ok(repaired)
    }

    fn await_listed(&self, scene: &Scene, who: &str, begun: Instant) -> Result<Duration, LabError> {
        while scene.cluster.shards_listed(&self.volume) < SHARDS.into() {
            if begun.elapsed() > LIMIT {
                let reason = format!("volume {} is not whole after {} s", self.volume, LIMIT.as_secs());
                return Err(LabError::Agent { who: who.to_owned(), reason });
            }
            thread::sleep(LOOK_EVERY);
        }
        Ok(begun.elapsed())
    }

    fn check(&self, what: &str, scene: &Scene) -> Result<(), LabError> {
        for (shard, before) in &self.lost {
            let path = scene.cluster.holder(shard).1;
            let now = fs::read(&path).map_err(LabError::file("read", &path))?;
            if now != *before {
                let reason = format!("{shard} is not what it was");
                return Err(LabError::WrongBytes { what: what.to_owned(), reason });
            }
        }
        Ok(())
    }
}
