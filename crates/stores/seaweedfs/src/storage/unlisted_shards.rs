//! Decides when a shard that no master lists counts as missing although its last server has not confirmed the loss. Pure:
//! time is an argument.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use super::view::Lost;
use crate::blocks::{Encoding, ShardName, VolumeName};
use crate::volumes::{Home, Volumes};

/// A shard counts as missing if its last server is connected to the master but has not answered Mend for this long.
const SILENCE_LIMIT: Duration = Duration::from_secs(60);
/// A shard counts as missing, although its server says that it has mounted the shard, if masters have not listed it for
/// this long: clients do not find it. After the election of a master, servers list their shards within seconds of their
/// connection.
const UNLISTED_LIMIT: Duration = Duration::from_secs(300);

/// The unlisted shards whose last servers are connected and have not confirmed the loss.
#[derive(Default)]
pub(super) struct UnlistedShards {
    /// Shards about which their servers do not answer.
    silent: Waits,
    /// Shards that their servers say they have mounted.
    mounted: Waits,
}

/// Shards that count as missing unless something changes in time.
#[derive(Default)]
struct Waits {
    since: BTreeMap<Lost, Instant>,
    /// The shards that count as missing, because nothing has changed for too long.
    overdue: BTreeSet<Lost>,
}

impl Waits {
    /// Records for which shards Mend waits at this time. Returns the volumes of shards that begin or cease to be overdue.
    fn note(&mut self, shards: &BTreeSet<Lost>, limit: Duration, now: Instant) -> BTreeSet<u32> {
        let Self { since, overdue } = self;
        since.retain(|lost, _| shards.contains(lost));
        for lost in shards {
            since.entry(*lost).or_insert(now);
        }
        let due = since.iter().filter(|&(_, &since)| now.saturating_duration_since(since) >= limit);
        let due: BTreeSet<Lost> = due.map(|(lost, _)| *lost).collect();
        let before = std::mem::replace(overdue, due);
        before.symmetric_difference(overdue).map(|&(volume, ..)| volume).collect()
    }

    fn forget_found(&mut self, unlisted: &BTreeSet<Lost>) {
        self.overdue.retain(|shard| unlisted.contains(shard));
        self.since.retain(|shard, _| unlisted.contains(shard));
    }
}

impl UnlistedShards {
    /// Records for which shards the last server is connected but has not answered at this time, out of all that were asked
    /// about. Returns the volumes of shards that begin or cease to count as missing.
    pub fn note_silent(&mut self, shards: &BTreeSet<Lost>, now: Instant) -> BTreeSet<u32> {
        self.silent.note(shards, SILENCE_LIMIT, now)
    }

    /// Records which shards their last servers say that they have mounted at this time. Returns the volumes of shards that
    /// begin or cease to count as missing.
    pub fn note_mounted(&mut self, shards: &BTreeSet<Lost>, now: Instant) -> BTreeSet<u32> {
        self.mounted.note(shards, UNLISTED_LIMIT, now)
    }

    /// Whether a shard counts as missing.
    pub fn is_missing(&self, shard: &Lost) -> bool {
        [&self.silent, &self.mounted].iter().any(|waits| waits.overdue.contains(shard))
    }

    /// Ends the waits for shards that are listed again; `unlisted` are those that are not.
    pub fn forget_found(&mut self, unlisted: &BTreeSet<Lost>) {
        self.silent.forget_found(unlisted);
        self.mounted.forget_found(unlisted);
    }

    /// Returns one line for each shard that counts as missing although its server says that it has mounted it.
    pub fn lines(&self, volumes: &Volumes) -> Vec<String> {
        let is_overdue = |&(id, encoding, shard, _): &(u32, Encoding, u8, &Home)| {
            self.mounted.overdue.contains(&(id, encoding, shard))
        };
        let line = |(id, _, shard, home): (u32, Encoding, u8, &Home)| {
            let volume = VolumeName::new(&volumes.get(id)?.collection, id)?;
            Some(format!(
                "volume server {} says that it has mounted {}, but no master has listed it there for {} minutes, so it \
                 counts as missing; Mend mounts it again or rebuilds it; if this persists, restart the volume server",
                home.server,
                ShardName { volume, shard },
                UNLISTED_LIMIT.as_secs() / 60
            ))
        };
        volumes.unlisted().filter(is_overdue).filter_map(line).collect()
    }
}
