//! One loss, repaired once by SeaweedFS's own means and once by Mend: from the request until the master lists all.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use beside::Mend;
use seaweedfs::{ShardName, VolumeName};
use weed::eventually;

use super::scene::{SHARDS, Scene};
use crate::error::LabError;
use crate::systems::{Repaired, Watching, time_program};

const LOOK_EVERY: Duration = Duration::from_millis(10);
/// Nothing that is measured takes so long.
const LIMIT: Duration = Duration::from_secs(600);

/// A loss that is repaired.
pub(super) struct Loss {
    volume: VolumeName,
    lost: Vec<(ShardName, Vec<u8>)>,
}

impl Loss {
    /// Removes these shards, and waits until the master misses them.
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

    /// Has `ec.rebuild` make them again. The shell has connected and has the lock before the time begins.
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

    /// Has `mend repair` make them again. The coordinator knows of the loss before the time begins, and does nothing by
    /// itself.
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
