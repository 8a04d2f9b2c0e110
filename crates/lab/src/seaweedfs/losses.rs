//! Measures repairs of lost shards by SeaweedFS and by Mend, from the request until the master lists all
//! shards.

use std::fs;
use std::time::Duration;

use seaweedfs::{ShardName, VolumeName};
use testbed::{Mend, eventually};

use super::cluster::{SHARDS, SeaweedLab};
use crate::error::LabError;
use crate::experiment::{Repaired, time_program, wait_for_lost_blocks, wait_while};

const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Shards of one volume that were removed, with their former content.
pub(super) struct Loss {
    volume: VolumeName,
    lost: Vec<(ShardName, Vec<u8>)>,
}

impl Loss {
    /// Removes these shards and waits until the master notices.
    pub(super) fn of(lab: &SeaweedLab, shards: Vec<ShardName>) -> Self {
        let volume = shards[0].volume.clone();
        let count = shards.len();
        let lose = |shard: ShardName| {
            let before = lab.cluster.lose(&shard).1;
            (shard, before)
        };
        let lost = shards.into_iter().map(lose).collect();
        eventually("the master to miss them", || {
            (lab.cluster.shards_listed(&volume) == usize::from(SHARDS) - count).then_some(())
        });
        Self { volume, lost }
    }

    /// Rebuilds the lost shards with `ec.rebuild`. The shell connects and takes the lock before the timing
    /// starts.
    ///
    /// # Errors
    /// [`LabError`].
    pub(super) fn rebuild(&self, lab: &SeaweedLab) -> Result<Repaired, LabError> {
        let rebuild = format!("ec.rebuild -apply -collection={}", self.volume.collection());
        let repaired = lab.time_shell(&rebuild, || self.await_listed(lab, "ec.rebuild"))?;
        self.check("ec.rebuild", lab)?;
        Ok(repaired)
    }

    /// Waits until the coordinator knows of the loss.
    pub(super) fn await_lost(&self, mend: &Mend) {
        wait_for_lost_blocks(mend, self.lost.len());
    }

    /// Rebuilds the lost shards with `mend repair`. The coordinator must know of the loss; automatic repair is
    /// off.
    ///
    /// # Errors
    /// [`LabError`].
    pub(super) fn repair(&self, lab: &SeaweedLab, mend: &Mend) -> Result<Repaired, LabError> {
        let target = match &self.lost[..] {
            [(shard, _)] => shard.to_string(),
            _ => self.volume.to_string(),
        };
        let verb = mend.verb(&["repair", &target]);
        let repaired = time_program(&lab.network, mend.helper_ids(), "mend repair", verb, || {
            self.await_listed(lab, "mend repair")
        })?;
        let repaired = repaired.with_timeline(mend);
        self.check("mend repair", lab)?;
        Ok(repaired)
    }

    fn await_listed(&self, lab: &SeaweedLab, who: &str) -> Result<(), LabError> {
        wait_while(who, LOOK_EVERY, || {
            let is_whole = lab.cluster.shards_listed(&self.volume) >= SHARDS.into();
            Ok((!is_whole).then(|| format!("volume {} lacks shards", self.volume)))
        })
    }

    fn check(&self, what: &str, lab: &SeaweedLab) -> Result<(), LabError> {
        for (shard, before) in &self.lost {
            let path = lab.cluster.holder(shard).1;
            let now = fs::read(&path).map_err(LabError::file("read", &path))?;
            if now != *before {
                let reason = format!("{shard} was rebuilt with wrong bytes");
                return Err(LabError::WrongBytes { what: what.to_owned(), reason });
            }
        }
        Ok(())
    }
}
