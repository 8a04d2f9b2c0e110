//! Keeps deleted needles deleted when shards move or are rebuilt.
//!
//! SeaweedFS records the deletion of a needle in the journal (`.ecj`) of a single server: one that has the
//! needle's first shard or, if no server has it, any other shard. All servers look at the first shard's
//! server for the needle. So a server that takes over a shard also needs the deletions that other servers
//! have recorded.
//!
//! Mend makes these deletions on the server, which heeds them at once, and then asks the server about each.
//! As long as a deletion is not heeded, it is recorded as late, the status names volume and server, and it is
//! made again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use repair::StripeId;
use serde::{Deserialize, Serialize};
use store_api::CatalogError;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::inspection::bring;
use super::side_files::{entries, entry_bytes};
use super::small_files::WINDOW_BYTES;
use super::state::{Knowledge, Shared, State};
use crate::blocks::{ShardName, VolumeName};
use crate::error::AskError;
use crate::listing::ServerId;
use crate::server::{SmallFile, VolumeServer};

/// Upper limit of a journal in bytes: 8 million deletions.
const MAX_JOURNAL_BYTES: usize = 64 << 20;
/// Size of a journal's entry in bytes: the ID of a needle.
const ENTRY_BYTES: usize = 8;
/// The number of needles about which a server is asked at the same time.
const AT_ONCE: usize = 16;
/// Timeout for reading the journal of a server that does not have the shard. A silent server must not hold up the
/// shard's publication; its deletions are made later.
const JOURNAL_LIMIT: Duration = Duration::from_secs(5);
/// Prefix of the keys under which late deletions are recorded.
const PREFIX: &str = "seaweedfs/deletions/";

/// A shard on a server that may not heed all deletions yet.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct Late {
    block: String,
    server: String,
}

/// Late deletions, with the error of the last attempt; an empty text before the end of the first attempt.
#[derive(Default)]
pub(super) struct LateDeletions(BTreeMap<Late, String>);

/// The deletions that the other servers of a volume have recorded.
#[derive(Default)]
pub(super) struct Recorded {
    needles: BTreeSet<u64>,
    /// The servers that have recorded them.
    servers: Vec<ServerId>,
    /// Why the deletions of some servers cannot be read.
    unread: Vec<String>,
}

/// The calls with which deletions are made and verified on a server.
trait Deletes: Clone + Send + Sync + 'static {
    /// See [`VolumeServer::is_deleted`].
    fn heeds(
        &self,
        volume: &VolumeName,
        shard: u8,
        needle: u64,
    ) -> impl Future<Output = Result<bool, AskError>> + Send;

    /// See [`VolumeServer::delete_needle`].
    fn make(&self, volume: &VolumeName, needle: u64) -> impl Future<Output = Result<bool, AskError>> + Send;
}

impl Deletes for VolumeServer {
    async fn heeds(&self, volume: &VolumeName, shard: u8, needle: u64) -> Result<bool, AskError> {
        self.is_deleted(volume.id(), shard, needle).await
    }

    async fn make(&self, volume: &VolumeName, needle: u64) -> Result<bool, AskError> {
        self.delete_needle(volume, needle).await
    }
}

impl Late {
    fn new(shard: &ShardName, server: &ServerId) -> Self {
        Self { block: shard.to_string(), server: server.0.clone() }
    }

    fn key(&self) -> String {
        format!("{PREFIX}{}/{}", self.block, self.server)
    }

    fn shard(&self) -> Option<ShardName> {
        self.block.parse().ok()
    }

    fn volume(&self) -> Option<u32> {
        Some(self.shard()?.volume.id())
    }
}

impl LateDeletions {
    /// Returns the deletions whose last attempt has failed, one sentence for each shard and server.
    pub fn lines(&self) -> Vec<String> {
        let failed = self.0.iter().filter(|(_, why)| !why.is_empty());
        let line = |(it, why): (&Late, &String)| {
            let volume = it.shard().map_or_else(|| it.block.clone(), |shard| shard.volume.to_string());
            format!(
                "deleted needles of volume {volume} may be readable through volume server {}, which has {}: \
                 {why}; Mend tries again",
                it.server, it.block
            )
        };
        failed.map(line).collect()
    }
}

impl State {
    /// Records that a server may not heed all deletions of a shard's volume, and why.
    fn note_late(&mut self, it: &Late, why: String) {
        if !self.late_deletions.0.contains_key(it) {
            let value = serde_json::to_value(it).expect("plain text");
            self.keep_records([(it.key(), Some(value))]);
        }
        self.late_deletions.0.insert(it.clone(), why);
    }

    fn forget_late(&mut self, it: &Late) {
        if self.late_deletions.0.remove(it).is_some() {
            self.keep_records([(it.key(), None)]);
        }
    }

    /// Forgets the late deletions of volumes that no longer exist.
    pub(super) fn forget_late_of_gone_volumes(&mut self) {
        let volumes = self.view.volumes();
        let is_gone = |it: &&Late| it.volume().is_none_or(|volume| !volumes.may_exist(volume));
        let gone: Vec<Late> = self.late_deletions.0.keys().filter(is_gone).cloned().collect();
        gone.iter().for_each(|it| self.forget_late(it));
    }
}

impl Knowledge {
    /// Loads the late deletions that earlier coordinators recorded.
    ///
    /// # Errors
    /// [`CatalogError`].
    pub(super) fn recall_late_deletions(&self) -> Result<(), CatalogError> {
        let mut state = self.state();
        let records = state.ledger.list(PREFIX)?;
        let kept = records.into_iter().filter_map(|(_, value)| serde_json::from_value(value).ok());
        state.late_deletions.0 = kept.map(|it| (it, String::new())).collect();
        Ok(())
    }
}

/// Makes and verifies the deletions of needles.
#[derive(Clone, Copy)]
pub(super) struct Deletions<'s> {
    shared: &'s Arc<Shared>,
}

impl<'s> Deletions<'s> {
    pub(super) fn of(shared: &'s Arc<Shared>) -> Self {
        Self { shared }
    }

    /// Gives a server that is about to mount a shard the deletions that other servers have recorded. Records
    /// them as late until [`settle`](Self::settle), since the coordinator may die in
    /// between. The caller must hold the cluster's lock for the volume.
    pub(super) async fn receive(self, shard: &ShardName, to: &ServerId) -> Recorded {
        let name = &shard.volume;
        let recorded = self.recorded_elsewhere(shard, to).await;
        if recorded.needles.is_empty() && recorded.unread.is_empty() {
            return recorded;
        }
        self.shared.known.state().note_late(&Late::new(shard, to), String::new());
        let serves = self.shared.known.state().view.volumes().serves(name.id(), to);
        let done = if serves {
            self.delete_at(name, &recorded.needles, to).await
        } else {
            self.copy_journals(name, &recorded.servers, to).await
        };
        if let Err(why) = done {
            // This is tried again once the shard is mounted.
            tracing::info!(block = %shard, server = %to, why, "cannot make deletions before the mount");
        }
        recorded
    }

    /// Makes these deletions on a server that has mounted the shard, as far as the server does not heed them
    /// yet. The caller must hold the cluster's lock for the volume.
    pub(super) async fn settle(self, shard: &ShardName, to: &ServerId, recorded: Recorded) {
        let done = self.delete_at(&shard.volume, &recorded.needles, to).await;
        let done = done.and_then(|()| recorded.unread.into_iter().next().map_or(Ok(()), Err));
        let late = Late::new(shard, to);
        let mut state = self.shared.known.state();
        match done {
            Ok(()) => state.forget_late(&late),
            Err(why) => {
                tracing::warn!(block = %shard, server = %to, why, "a server does not heed all deletions");
                state.note_late(&late, why);
            }
        }
    }

    /// Makes the late deletions of a volume again.
    pub(super) async fn retry(self, name: &VolumeName) {
        let late: Vec<Late> = {
            let state = self.shared.known.state();
            let of_volume = |it: &&Late| it.volume() == Some(name.id());
            state.late_deletions.0.keys().filter(of_volume).cloned().collect()
        };
        for it in late {
            let (Some(shard), server) = (it.shard(), ServerId(it.server.clone())) else { continue };
            let (was_there, is_there) = {
                let state = self.shared.known.state();
                let volumes = state.view.volumes();
                let homes = volumes.homes(name.id(), shard.shard);
                (
                    volumes.is_home(name.id(), shard.shard, &server),
                    homes.iter().any(|home| home.server == server),
                )
            };
            if !was_there {
                self.shared.known.state().forget_late(&it);
            } else if is_there {
                let stripe = StripeId(name.to_string());
                match self.shared.begin_upkeep(&stripe).await {
                    Ok(()) => {
                        let recorded = self.recorded_elsewhere(&shard, &server).await;
                        self.settle(&shard, &server, recorded).await;
                        self.shared.lock.end_upkeep(&stripe).await;
                    }
                    Err(error) => self.shared.known.state().note_late(&it, error.to_string()),
                }
            }
        }
    }

    /// Makes all deletions that a server has recorded on the other servers of a shard, because the server is
    /// to stop serving the shard. The server must still have mounted it. The caller must hold the cluster's
    /// lock for the volume.
    ///
    /// # Errors
    /// The reason for the failure, as text.
    pub(super) async fn hand_over(self, shard: &ShardName, from: &ServerId) -> Result<(), String> {
        let deleted = self.deleted_at(&shard.volume, from).await;
        self.hand_to_others(shard, from, deleted).await
    }

    /// Like [`hand_over`](Self::hand_over), but with the server's journal only.
    pub(super) async fn hand_over_journal(self, shard: &ShardName, from: &ServerId) -> Result<(), String> {
        let deleted = self.journalled_at(&shard.volume, from).await;
        self.hand_to_others(shard, from, deleted).await
    }

    async fn hand_to_others(
        self,
        shard: &ShardName,
        from: &ServerId,
        deleted: Result<BTreeSet<u64>, String>,
    ) -> Result<(), String> {
        let name = &shard.volume;
        let deleted =
            deleted.map_err(|why| format!("cannot read the deletions of {name} on {from}: {why}"))?;
        for to in self.other_servers(shard, from) {
            let done = self.delete_at(name, &deleted, &to).await;
            let mut state = self.shared.known.state();
            match done {
                Ok(()) => state.forget_late(&Late::new(shard, &to)),
                Err(why) => {
                    let why = format!("the deletions that {from} has recorded cannot be made there: {why}");
                    state.note_late(&Late::new(shard, &to), why.clone());
                    return Err(why);
                }
            }
        }
        Ok(())
    }

    fn other_servers(self, shard: &ShardName, server: &ServerId) -> BTreeSet<ServerId> {
        let homes = self.shared.known.state().view.volumes().homes(shard.volume.id(), shard.shard);
        homes.into_iter().map(|home| home.server).filter(|other| other != server).collect()
    }

    /// Returns the deletions that all other servers of a volume have recorded. Servers are called in
    /// parallel.
    async fn recorded_elsewhere(self, shard: &ShardName, to: &ServerId) -> Recorded {
        let homes = self.other_servers(shard, to);
        let mut servers: BTreeSet<ServerId> =
            self.shared.known.state().view.volumes().holders_of(shard.volume.id()).into_iter().collect();
        servers.extend(homes.iter().cloned());
        servers.remove(to);
        let mut asking = JoinSet::new();
        for from in servers {
            let (shared, name, has_shard) =
                (Arc::clone(self.shared), shard.volume.clone(), homes.contains(&from));
            asking.spawn(async move {
                // A server that has the shard too may have recorded most deletions.
                let found = if has_shard {
                    Deletions::of(&shared).deleted_at(&name, &from).await
                } else {
                    let journalled = Deletions::of(&shared).journalled_at(&name, &from);
                    match timeout(JOURNAL_LIMIT, journalled).await {
                        Ok(found) => found,
                        Err(_elapsed) => Err("it does not answer".to_owned()),
                    }
                };
                (from, found)
            });
        }
        let mut recorded = Recorded::default();
        for (from, found) in asking.join_all().await {
            match found {
                Ok(needles) if needles.is_empty() => {}
                Ok(needles) => {
                    recorded.needles.extend(needles);
                    recorded.servers.push(from);
                }
                Err(why) => recorded.unread.push(format!("cannot read the deletions on {from}: {why}")),
            }
        }
        recorded
    }

    /// Returns the needles of a volume in a server's journal.
    async fn journalled_at(self, name: &VolumeName, from: &ServerId) -> Result<BTreeSet<u64>, String> {
        journal(&self.shared.known.connect(from).await?, name).await
    }

    /// Returns the needles of a volume that a server treats as deleted: those in its journal, those marked in
    /// its index and, if the server has shards of the volume on several disks, all others that it says are
    /// deleted.
    async fn deleted_at(self, name: &VolumeName, from: &ServerId) -> Result<BTreeSet<u64>, String> {
        let shards = self.shard_of_each_disk(name, from);
        let server = self.shared.known.connect(from).await?;
        let mut deleted = journal(&server, name).await?;
        let (marked, live) = indexed(&server, name).await?;
        deleted.extend(marked);
        // Each disk has a journal, and the server returns only one of them.
        if shards.len() > 1 {
            let open: Vec<u64> = live.into_iter().filter(|needle| !deleted.contains(needle)).collect();
            let heeded = times_heeded(&server, name, &shards, &open).await;
            let heeded = heeded.map_err(|error| error.to_string())?;
            deleted.extend(heeded.into_iter().filter(|&(_, times)| times > 0).map(|(needle, _)| needle));
        }
        Ok(deleted)
    }

    fn shard_of_each_disk(self, name: &VolumeName, server: &ServerId) -> Vec<u8> {
        let disks = self.shared.known.state().view.volumes().shards_by_disk(name.id(), server);
        disks.values().filter_map(|shards| shards.first().copied()).collect()
    }

    /// Makes deletions on a server that has mounted shards of the volume, and verifies that the server heeds
    /// them on all its disks. Does nothing if it has mounted none.
    ///
    /// # Errors
    /// The reason for the failure, as text.
    async fn delete_at(
        self,
        name: &VolumeName,
        needles: &BTreeSet<u64>,
        to: &ServerId,
    ) -> Result<(), String> {
        let text = |error: AskError| error.to_string();
        let shards = self.shard_of_each_disk(name, to);
        if needles.is_empty() || shards.is_empty() {
            return Ok(());
        }
        let server = self.shared.known.connect(to).await?;
        let needles: Vec<u64> = needles.iter().copied().collect();
        let open = delete(&server, name, &shards, &needles).await.map_err(text)?;
        if open.is_empty() {
            return Ok(());
        }
        // Each disk has a journal, and the server makes a deletion on the first disk that has mounted shards
        // of the volume. So mount the shards of one disk after the other.
        let disks = self.shared.known.state().view.volumes().shards_by_disk(name.id(), to);
        let by_disk = async {
            for shards in disks.values() {
                server.mount(name, shards).await.map_err(text)?;
                for &needle in &open {
                    server.delete_needle(name, needle).await.map_err(text)?;
                }
                server.unmount(name, shards).await.map_err(text)?;
            }
            Ok::<(), String>(())
        };
        self.shared.remounted(name, to, &server, by_disk).await?;
        match not_heeded(&server, name, &shards, &open).await.map_err(text)?.len() {
            0 => Ok(()),
            several => Err(format!("{several} deletions have no effect there")),
        }
    }

    /// Appends journals to the journal of a server that has mounted nothing of the volume.
    async fn copy_journals(
        self,
        name: &VolumeName,
        servers: &[ServerId],
        to: &ServerId,
    ) -> Result<(), String> {
        let target = self.shared.known.connect(to).await?;
        for from in servers {
            let source = self.shared.known.connect(from).await?;
            self.shared.lock.check(&StripeId(name.to_string())).await?;
            bring(&target, name, &[SmallFile::Ecj], source.address(), 0).await?;
        }
        Ok(())
    }
}

/// Makes deletions on a server, as far as it does not heed them yet for all these shards. Returns the needles
/// that it still serves for some of the shards.
async fn delete<S: Deletes>(
    server: &S,
    name: &VolumeName,
    shards: &[u8],
    needles: &[u64],
) -> Result<Vec<u64>, AskError> {
    let mut made = Vec::new();
    for needle in not_heeded(server, name, shards, needles).await? {
        // A needle that is not in the index cannot be read.
        if server.make(name, needle).await? {
            made.push(needle);
        }
    }
    not_heeded(server, name, shards, &made).await
}

/// Returns the needles whose deletion a server does not heed for all these shards.
async fn not_heeded<S: Deletes>(
    server: &S,
    name: &VolumeName,
    shards: &[u8],
    needles: &[u64],
) -> Result<Vec<u64>, AskError> {
    let heeded = times_heeded(server, name, shards, needles).await?;
    Ok(heeded.into_iter().filter(|&(_, times)| times < shards.len()).map(|(needle, _)| needle).collect())
}

/// Returns for how many of the shards a server heeds the deletion of each needle.
async fn times_heeded<S: Deletes>(
    server: &S,
    name: &VolumeName,
    shards: &[u8],
    needles: &[u64],
) -> Result<Vec<(u64, usize)>, AskError> {
    let mut asking = JoinSet::new();
    for part in needles.chunks(needles.len().div_ceil(AT_ONCE).max(1)) {
        let (server, name, shards, part) = (server.clone(), name.clone(), shards.to_vec(), part.to_vec());
        asking.spawn(async move {
            let mut heeded = Vec::with_capacity(part.len());
            for needle in part {
                let mut times = 0;
                for &shard in &shards {
                    times += usize::from(server.heeds(&name, shard, needle).await?);
                }
                heeded.push((needle, times));
            }
            Ok::<Vec<(u64, usize)>, AskError>(heeded)
        });
    }
    let mut all = Vec::with_capacity(needles.len());
    for heeded in asking.join_all().await {
        all.extend(heeded?);
    }
    all.sort_unstable();
    Ok(all)
}

/// Returns the IDs of the needles whose deletion a server has journalled.
async fn journal(server: &VolumeServer, name: &VolumeName) -> Result<BTreeSet<u64>, String> {
    let bytes = server.small_file(name, SmallFile::Ecj, MAX_JOURNAL_BYTES).await;
    let bytes = bytes.map_err(|error| error.to_string())?.unwrap_or_default();
    // The last entry may be incomplete, because it is being written.
    let (needles, _) = bytes.as_chunks::<ENTRY_BYTES>();
    Ok(needles.iter().map(|&needle| u64::from_be_bytes(needle)).collect())
}

/// Returns the needles that a server's index marks as deleted, and all others in the index.
async fn indexed(server: &VolumeServer, name: &VolumeName) -> Result<(Vec<u64>, Vec<u64>), String> {
    let text = |error: AskError| error.to_string();
    let mut index = server.open_small_file(name, SmallFile::Ecx).await.map_err(text)?;
    let (mut marked, mut live, mut bytes) = (Vec::new(), Vec::new(), None);
    loop {
        let window = index.next_window(WINDOW_BYTES).await.map_err(text)?;
        if window.is_empty() {
            return Ok((marked, live));
        }
        let bytes = *bytes.get_or_insert_with(|| entry_bytes(&window));
        for (needle, is_marked) in entries(&window, bytes) {
            let needles = if is_marked { &mut marked } else { &mut live };
            needles.push(needle);
        }
    }
}

#[cfg(test)]
#[path = "deletions/tests.rs"]
mod tests;
