//! Keeps deleted needles deleted when shards move or are rebuilt.
//!
//! SeaweedFS records the deletion of a needle in the journal (`.ecj`) of a single server: one that has the
//! needle's first shard or, if no server has it, any other shard. All servers look at the first shard's
//! server for the needle. So a server that takes over a shard also needs the deletions that other servers
//! have recorded.
//!
//! Mend makes these deletions on the server, which heeds them at once, and then asks the server about each.
//! As long as a deletion is not heeded, it is recorded as late, the status names volume and server, and it is
//! made again. Deletions are collected from the journals and indexes on all disks of all servers that have or
//! had shards of the volume, and are preserved on another server before a file with them is replaced or
//! removed. They are collected a second time when the locations that servers had cached have expired.
//!
//! A deletion belongs to one encoding of the volume. A journal or index that an earlier encoding has left is not
//! used, and no deletion is added to such a journal: it would look like a current one from then on.

pub(super) mod second_looks;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use repair::StripeId;
use serde::{Deserialize, Serialize};
use store_api::CatalogError;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::claims::Hold;
use super::deletions_by_disk::{AT_ONCE, delete_on_each_disk};
use super::inspection::bring;
use super::needles::{
    Asked, MAX_JOURNAL_BYTES, delete, deleted_on, foreign_journal, journalled, not_heeded, record, unheeded,
};
use super::open::NOT_AUTOMATIC;
use super::state::{Knowledge, Shared, State};
use super::unwritten::Record;
use crate::blocks::{Encoding, ShardName, VolumeName};
use crate::error::AskError;
use crate::listing::ServerId;
use crate::server::SmallFile;
use crate::volumes::Volumes;
use second_looks::SecondLooks;

/// Timeout for reading the journal of a server that does not have the shard, or the journal's age. A silent server
/// must not hold up the shard's publication; its deletions are made later.
const JOURNAL_LIMIT: Duration = Duration::from_secs(5);
/// Timeout for a server to report all its deletions after a shard was put into service. Later, they are read
/// with the patient limit.
const REPORT_LIMIT: Duration = Duration::from_secs(5);
const PATIENT_LIMIT: Duration = Duration::from_secs(600);
/// Why a recorded deletion is late until it is tried.
const NOT_TRIED: &str = "the deletions were not tried since the coordinator started";
const UNKNOWN_ENCODING: &str = "the volume's encoding is unknown at present";
/// Prefix of the keys under which late deletions are recorded.
const PREFIX: &str = "seaweedfs/deletions/";

/// A shard on a server that may not heed all deletions yet.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct Late {
    block: String,
    server: String,
}

/// Late deletions, with the error of the last attempt; an empty text before the end of the first attempt. Entries of
/// earlier coordinators have [`NOT_TRIED`] or [`NOT_AUTOMATIC`].
#[derive(Default)]
pub(super) struct LateDeletions {
    entries: BTreeMap<Late, String>,
    second_looks: SecondLooks,
}

/// The deletions that the servers of a volume have recorded.
#[derive(Default)]
struct Recorded {
    needles: BTreeSet<u64>,
    /// The encoding of the volume to which they belong; `None` if it is unknown.
    encoding: Option<Encoding>,
    /// The servers with journals of this encoding, each with the number of deletions that it has recorded.
    servers: Vec<(usize, ServerId)>,
    /// Why the deletions of some servers cannot be read.
    unread: Vec<String>,
}

/// The deletions that one server has recorded.
#[derive(Default)]
struct Reported {
    needles: BTreeSet<u64>,
    /// Whether its journal belongs to the volume's encoding.
    has_journal: bool,
}

/// The deletions that servers are asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Extent {
    /// Quickly: all of the servers that have the shard too, and one journal of each other server.
    Journals,
    /// All of every server, as far as it reports them within this time.
    Everything(Duration),
}

impl Late {
    fn new(shard: &ShardName, server: &ServerId) -> Self {
        Self { block: shard.to_string(), server: server.0.clone() }
    }

    fn key(&self) -> String {
        format!("{PREFIX}{}/{}", self.block, self.server)
    }

    fn record(&self) -> Record {
        (self.key(), Some(serde_json::to_value(self).expect("plain text")))
    }

    /// Returns the entry of the same shard on another server.
    fn at(&self, server: &ServerId) -> Self {
        Self { server: server.0.clone(), ..self.clone() }
    }

    fn shard(&self) -> Option<ShardName> {
        self.block.parse().ok()
    }

    fn volume(&self) -> Option<u32> {
        Some(self.shard()?.volume.id())
    }
}

impl LateDeletions {
    /// Returns the deletions that are not made, one sentence for each shard and server.
    pub fn lines(&self) -> Vec<String> {
        let failed = self.entries.iter().filter(|(_, why)| !why.is_empty());
        let line = |(it, why): (&Late, &String)| {
            let volume = it.shard().map_or_else(|| it.block.clone(), |shard| shard.volume.to_string());
            let next =
                if why == NOT_AUTOMATIC { "Mend does not delete them there" } else { "Mend tries again" };
            format!(
                "deleted needles of volume {volume} may be readable through volume server {}, which has {}: \
                 {why}; {next}",
                it.server, it.block
            )
        };
        failed.map(line).collect()
    }

    /// Returns the volumes with deletions that may be made now: their servers are listed with the shards.
    pub fn due(&self, volumes: &Volumes) -> BTreeSet<u32> {
        let is_there = |shard: &ShardName, server: &str| {
            let homes = volumes.homes(shard.volume.id(), shard.shard);
            homes.iter().any(|home| home.server.0 == server)
        };
        let due = self.entries.iter().filter(|&(_, why)| why != NOT_AUTOMATIC);
        let found = due.filter_map(|(it, _)| it.shard().filter(|shard| is_there(shard, &it.server)));
        found.map(|shard| shard.volume.id()).collect()
    }
}

impl State {
    /// Records that a server may not heed all deletions of a shard's volume, and why.
    fn note_late(&mut self, it: &Late, why: String) {
        if !self.late_deletions.entries.contains_key(it) {
            self.keep_records([it.record()]);
        }
        self.late_deletions.entries.insert(it.clone(), why);
    }

    fn forget_late(&mut self, it: &Late) {
        if self.late_deletions.entries.remove(it).is_some() {
            self.keep_records([(it.key(), None)]);
        }
    }
}

/// Continues the late deletions, and the second looks, at a server that is listed under another ID now. The old and new
/// records change in one commit, because the coordinator may die in between.
pub(super) fn rename(state: &mut State, former: &ServerId, server: &ServerId) {
    let renamed = state.late_deletions.entries.extract_if(.., |it, _| it.server == former.0);
    let renamed: Vec<(Late, String)> = renamed.collect();
    let records: Vec<Record> =
        renamed.iter().flat_map(|(it, _)| [(it.key(), None), it.at(server).record()]).collect();
    state.keep_records(records);
    state.late_deletions.entries.extend(renamed.into_iter().map(|(it, why)| (it.at(server), why)));
    second_looks::rename(state, former, server);
}

/// Records that the disks of a server, given with their shards of a volume, may not heed the same deletions, and why.
pub(super) fn note_late_on_disks(
    state: &mut State,
    name: &VolumeName,
    server: &ServerId,
    disks: &BTreeMap<u32, Vec<u8>>,
    why: &str,
) {
    tracing::warn!(volume = %name, %server, why, "a server may not heed all deletions on each disk");
    for &shard in disks.values().filter_map(|shards| shards.first()) {
        let shard = ShardName { volume: name.clone(), shard };
        state.note_late(&Late::new(&shard, server), why.to_owned());
    }
}

/// Forgets the late deletions of volumes that no longer exist.
pub(super) fn forget_those_of_gone_volumes(state: &mut State) {
    let volumes = state.view.volumes();
    let is_gone = |it: &&Late| it.volume().is_none_or(|volume| !volumes.may_exist(volume));
    let gone: Vec<Late> = state.late_deletions.entries.keys().filter(is_gone).cloned().collect();
    gone.iter().for_each(|it| state.forget_late(it));
    second_looks::forget_those_of_gone_volumes(state);
}

impl Knowledge {
    /// Loads the late deletions that earlier coordinators recorded. If Mend may not change servers unasked, they are
    /// left alone.
    ///
    /// # Errors
    /// [`CatalogError`].
    pub(super) fn recall_late_deletions(&self) -> Result<(), CatalogError> {
        let mut state = self.state();
        let records = state.ledger.list(PREFIX)?;
        let kept = records.into_iter().filter_map(|(_, value)| serde_json::from_value(value).ok());
        if self.attachment.may_change {
            second_looks::recall(&mut state)?;
        }
        let why = if self.attachment.may_change { NOT_TRIED } else { NOT_AUTOMATIC };
        state.late_deletions.entries = kept.map(|it| (it, why.to_owned())).collect();
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

    /// Gives a server that is about to mount a shard the deletions that are quickly found on other servers.
    /// Records the others as late until [`settle`](Self::settle), since the coordinator may die in between.
    /// The caller must hold the cluster's lock for the volume.
    pub(super) async fn receive(self, hold: &Hold, shard: &ShardName, to: &ServerId) {
        let name = &shard.volume;
        self.shared.known.state().note_late(&Late::new(shard, to), String::new());
        let recorded = self.recorded(shard, to, Extent::Journals).await;
        let serves = self.shared.known.state().view.volumes().serves(name.id(), to);
        let done = if serves {
            self.delete_at(hold, name, &recorded.needles, to).await
        } else {
            self.copy_journal(hold, name, &recorded, to).await
        };
        if let Err(why) = done {
            // This is tried again once the shard is mounted.
            tracing::info!(block = %shard, server = %to, why, "cannot make deletions before the mount");
        }
    }

    /// Makes all deletions that the volume's servers have recorded on a server that has mounted the shard, as
    /// far as the server does not heed them yet, and plans a second look. The caller must hold the cluster's lock for
    /// the volume.
    pub(super) async fn settle(self, hold: &Hold, shard: &ShardName, to: &ServerId) {
        second_looks::plan(&mut self.shared.known.state(), &Late::new(shard, to), second_looks::now_s());
        let recorded = self.recorded(shard, to, Extent::Everything(REPORT_LIMIT)).await;
        self.make(hold, shard, to, recorded).await;
    }

    async fn make(self, hold: &Hold, shard: &ShardName, to: &ServerId, recorded: Recorded) {
        let serves = !self.shard_of_each_disk(&shard.volume, to).is_empty();
        let done = if !serves {
            Err("the master does not list the shard there at present".to_owned())
        } else if self.encoding(&shard.volume) != recorded.encoding {
            Err("the volume was encoded again meanwhile".to_owned())
        } else {
            self.delete_at(hold, &shard.volume, &recorded.needles, to).await
        };
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

    /// Makes the late deletions of a volume again, unless they are left alone. Forgets those of servers that no longer
    /// have the shard.
    pub(super) async fn retry(self, name: &VolumeName) {
        let late: Vec<(Late, bool)> = {
            let state = self.shared.known.state();
            let all = state.late_deletions.entries.iter().filter(|(it, _)| it.volume() == Some(name.id()));
            all.map(|(it, why)| (it.clone(), why != NOT_AUTOMATIC)).collect()
        };
        for (it, may_try) in late {
            let (Some(shard), server) = (it.shard(), ServerId(it.server.clone())) else { continue };
            let (is_elsewhere, is_there) = {
                let state = self.shared.known.state();
                let volumes = state.view.volumes();
                let homes = volumes.homes(name.id(), shard.shard);
                // While the encoding is unknown, so are the places of its shards.
                let is_known = volumes.known(name.id()).is_some();
                (
                    is_known && !volumes.is_home(name.id(), shard.shard, &server),
                    homes.iter().any(|home| home.server == server),
                )
            };
            if is_elsewhere {
                self.shared.known.state().forget_late(&it);
            } else if is_there && may_try {
                let stripe = StripeId(name.to_string());
                // This may take minutes, so it happens before the lock is taken.
                let recorded = self.recorded(&shard, &server, Extent::Everything(PATIENT_LIMIT)).await;
                match self.shared.begin_upkeep(&stripe).await {
                    Ok(hold) => {
                        self.make(&hold, &shard, &server, recorded).await;
                        self.shared.lock.end_upkeep(hold).await;
                    }
                    Err(error) => self.shared.known.state().note_late(&it, error.to_string()),
                }
            }
        }
    }

    /// Makes all deletions that a server has recorded on the other servers of a shard, because the server is
    /// to stop serving the shard, or has stopped. The caller must hold the cluster's lock for the volume.
    ///
    /// # Errors
    /// The reason for the failure, as text.
    pub(super) async fn hand_over(
        self,
        hold: &Hold,
        shard: &ShardName,
        from: &ServerId,
    ) -> Result<(), String> {
        let name = &shard.volume;
        let deleted = self.deleted_at(name, from).await;
        let deleted =
            deleted.map_err(|why| format!("cannot read the deletions of {name} on {from}: {why}"))?.needles;
        for to in self.other_servers(shard, from) {
            let done = self.delete_at(hold, name, &deleted, &to).await;
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

    /// Preserves the deletions that a server has recorded, since files with them are to be replaced or
    /// removed: makes them on one of `keepers`. Afterwards, the server itself counts as late if it has
    /// mounted shards of the volume. The caller must hold the cluster's lock for the volume.
    ///
    /// # Errors
    /// The reason for the failure, as text.
    pub(super) async fn preserve(
        self,
        hold: &Hold,
        name: &VolumeName,
        from: &ServerId,
        keepers: &[ServerId],
    ) -> Result<(), String> {
        let asked = self.asked(name, from);
        let server = self.shared.known.connect(from).await?;
        let encoding = self.encoding(name).ok_or(UNKNOWN_ENCODING)?;
        // The intact parts of a damaged index count.
        let deleted = deleted_on(&server, name, &asked, encoding).await?.needles;
        if deleted.is_empty() {
            return Ok(());
        }
        let serves =
            |keeper: &&ServerId| *keeper != from && !self.shard_of_each_disk(name, keeper).is_empty();
        let keeper = keepers.iter().find(serves).ok_or("no other server can record its deletions")?;
        self.record_at(hold, name, deleted, keeper).await?;
        if let Some(&shard) = asked.shards.first() {
            let late = Late::new(&ShardName { volume: name.clone(), shard }, from);
            self.shared.known.state().note_late(&late, String::new());
        }
        Ok(())
    }

    /// Fails if a server with a disk without shards of a volume returns a journal that is not the one beside its
    /// shards. If its `.vif` is of another encoding, so may be this journal, and beside the current `.vif` it would
    /// look like a current one.
    ///
    /// # Errors
    /// The reason with the operator's next step, as text.
    pub(super) async fn check_idle_disk(self, name: &VolumeName, server: &ServerId) -> Result<(), String> {
        if !self.shared.known.state().view.volumes().has_idle_disk(name.id(), server) {
            return Ok(());
        }
        let shards = self.shard_of_each_disk(name, server);
        let encoding = self.encoding(name).ok_or(UNKNOWN_ENCODING)?;
        let connection = self.shared.known.connect(server).await?;
        let asked = timeout(PATIENT_LIMIT, unheeded(&connection, name, &shards, encoding)).await;
        match asked.map_err(|_| format!("{server} has not reported which deletions it heeds in time"))?? {
            0 => Ok(()),
            several => Err(format!(
                "it is on a disk without shards of the volume, and the journal there has {several} deletions that \
                 the server does not heed, so it may be of the other encoding too; remove {name}.vif and {name}.ecj \
                 from the folders of the server that have no shards of the volume and whose {name}.vif has another \
                 encodeTsNs than those of other servers"
            )),
        }
    }

    /// Records deletions on a server that has mounted shards of the volume.
    async fn record_at(
        self,
        hold: &Hold,
        name: &VolumeName,
        needles: BTreeSet<u64>,
        keeper: &ServerId,
    ) -> Result<(), String> {
        let server = self.shared.known.connect(keeper).await?;
        let (shards, needles) = (self.shard_of_each_disk(name, keeper), Vec::from_iter(needles));
        self.shared.check_journal(name, keeper).await?;
        self.shared.lock.check(hold).await?;
        match record(&server, name, &shards, &needles).await.map_err(|error| error.to_string())? {
            0 => Ok(()),
            several => Err(format!("{several} of its deletions cannot be recorded on {keeper}")),
        }
    }

    fn other_servers(self, shard: &ShardName, server: &ServerId) -> BTreeSet<ServerId> {
        let homes = self.shared.known.state().view.volumes().homes(shard.volume.id(), shard.shard);
        homes.into_iter().map(|home| home.server).filter(|other| other != server).collect()
    }

    /// Returns the deletions that the servers of a volume have recorded, including servers that only had
    /// shards of it. Servers are called in parallel.
    async fn recorded(self, shard: &ShardName, to: &ServerId, extent: Extent) -> Recorded {
        let homes = self.other_servers(shard, to);
        let encoding = self.encoding(&shard.volume);
        let mut asking = JoinSet::new();
        for from in self.witnesses(&shard.volume, to, extent) {
            let (shared, name, has_shard) =
                (Arc::clone(self.shared), shard.volume.clone(), homes.contains(&from));
            asking.spawn(async move {
                let found = Deletions::of(&shared).reported_by(&name, &from, extent, has_shard).await;
                (from, found)
            });
        }
        let mut recorded = Recorded { encoding, ..Recorded::default() };
        for (from, found) in asking.join_all().await {
            match found {
                Ok(reported) => {
                    if reported.has_journal {
                        recorded.servers.push((reported.needles.len(), from));
                    }
                    recorded.needles.extend(reported.needles);
                }
                Err(why) => recorded.unread.push(format!("cannot read the deletions on {from}: {why}")),
            }
        }
        recorded
    }

    /// Returns the servers that may have recorded deletions which `to` does not heed. If `to` has several
    /// disks, it may itself heed a deletion on one of them only.
    fn witnesses(self, name: &VolumeName, to: &ServerId, extent: Extent) -> BTreeSet<ServerId> {
        let state = self.shared.known.state();
        let volumes = state.view.volumes();
        let mut servers = volumes.witnesses_of(name.id());
        if extent == Extent::Journals || !volumes.has_several_disks(to) {
            servers.remove(to);
        }
        servers
    }

    /// Returns the deletions that a server reports in time.
    async fn reported_by(
        self,
        name: &VolumeName,
        from: &ServerId,
        extent: Extent,
        has_shard: bool,
    ) -> Result<Reported, String> {
        let limit = match extent {
            // A server that has the shard too may have recorded most deletions.
            Extent::Journals if has_shard => PATIENT_LIMIT,
            Extent::Journals => JOURNAL_LIMIT,
            Extent::Everything(limit) => limit,
        };
        let reported = async {
            match extent {
                Extent::Journals if !has_shard => self.journalled_at(name, from).await,
                _ => self.deleted_at(name, from).await,
            }
        };
        let late = |_| Err(format!("it has not reported all of them within {} s", limit.as_secs()));
        timeout(limit, reported).await.unwrap_or_else(late)
    }

    /// Returns the needles of a volume in a server's journal.
    async fn journalled_at(self, name: &VolumeName, from: &ServerId) -> Result<Reported, String> {
        let encoding = self.encoding(name).ok_or(UNKNOWN_ENCODING)?;
        let needles = journalled(&self.shared.known.connect(from).await?, name, encoding).await?;
        Ok(Reported { has_journal: !needles.is_empty(), needles })
    }

    /// Returns the needles of a volume that a server treats as deleted; see [`deleted_on`].
    async fn deleted_at(self, name: &VolumeName, from: &ServerId) -> Result<Reported, String> {
        let asked = self.asked(name, from);
        let encoding = self.encoding(name).ok_or(UNKNOWN_ENCODING)?;
        let deleted = deleted_on(&self.shared.known.connect(from).await?, name, &asked, encoding).await?;
        if deleted.is_damaged {
            return Err("its index is damaged".to_owned());
        }
        if deleted.unclear > 0 {
            return Err(format!(
                "its journal {name}.ecj is older than the volume's encoding, and it is unknown whether {} of \
                 the needles in it were deleted again since; remove the file and restart the server",
                deleted.unclear
            ));
        }
        Ok(Reported { has_journal: deleted.has_journal, needles: deleted.needles })
    }

    /// Returns the volume's current encoding.
    fn encoding(self, name: &VolumeName) -> Option<Encoding> {
        Some(self.shared.known.state().view.expected(name.id())?.encoding)
    }

    fn asked(self, name: &VolumeName, server: &ServerId) -> Asked {
        let has_several_disks = self.shared.known.state().view.volumes().has_several_disks(server);
        Asked { shards: self.shard_of_each_disk(name, server), has_several_disks }
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
        hold: &Hold,
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
        let needles = not_heeded(&server, name, &shards, &needles).await.map_err(text)?;
        if needles.is_empty() {
            return Ok(());
        }
        self.shared.check_journal(name, to).await?;
        self.shared.lock.check(hold).await?;
        let open = delete(&server, name, &shards, &needles).await.map_err(text)?;
        if open.is_empty() {
            return Ok(());
        }
        let disks = self.shared.known.state().view.volumes().shards_by_disk(name.id(), to);
        let kept = disks.values().next_back().cloned().unwrap_or_default();
        for part in open.chunks(AT_ONCE) {
            let check = || self.shared.lock.check(hold);
            let by_disk = delete_on_each_disk(&server, name, &disks, part, check);
            self.shared.remounted_except(hold, name, to, (&server, &kept), by_disk).await?;
        }
        match not_heeded(&server, name, &shards, &open).await.map_err(text)?.len() {
            0 => Ok(()),
            several => Err(format!("{several} deletions have no effect there")),
        }
    }

    /// Copies the longest journal to a server that has mounted nothing of the volume, so that most deletions
    /// take effect with the mount. A server that has a journal keeps it: SeaweedFS would overwrite the start
    /// of it.
    async fn copy_journal(
        self,
        hold: &Hold,
        name: &VolumeName,
        recorded: &Recorded,
        to: &ServerId,
    ) -> Result<(), String> {
        let Some((_, from)) = recorded.servers.iter().max() else { return Ok(()) };
        let target = self.shared.known.connect(to).await?;
        let own = target.small_file(name, SmallFile::Ecj, MAX_JOURNAL_BYTES).await;
        if own.map_err(|error| error.to_string())?.is_some() {
            return Ok(());
        }
        let source = self.shared.known.connect(from).await?;
        self.shared.lock.check(hold).await?;
        bring(&target, name, &[SmallFile::Ecj], source.address(), 0).await
    }
}

impl Shared {
    /// Fails if another encoding of a volume has left the journal on a server: the server would heed the deletions in
    /// it as soon as it mounts a shard, and new ones must not be added to it.
    ///
    /// # Errors
    /// The reason, as text.
    pub(super) async fn check_journal(&self, name: &VolumeName, server: &ServerId) -> Result<(), String> {
        let found = self.foreign_journal_on(name, server).await?;
        found.map_or(Ok(()), |why| Err(foreign(name, server, why)))
    }

    /// Returns why the journal on a server is of another encoding of the volume; `None` if it may be of the current one.
    ///
    /// # Errors
    /// The reason for the failure, as text.
    pub(super) async fn foreign_journal_on(
        &self,
        name: &VolumeName,
        server: &ServerId,
    ) -> Result<Option<&'static str>, String> {
        let (expected, has_idle_disk) = {
            let state = self.known.state();
            let expected = state.view.expected(name.id()).ok_or(UNKNOWN_ENCODING)?;
            (expected, state.view.volumes().has_idle_disk(name.id(), server))
        };
        let asked = async {
            let connection = self.known.connect(server).await?;
            foreign_journal(&connection, name, expected.encoding, has_idle_disk).await
        };
        let asked = timeout(JOURNAL_LIMIT, asked).await;
        asked.map_err(|_| format!("{server} has not reported the age of its {name}.ecj in time"))?
    }
}

/// Describes a journal that another encoding has left.
pub(super) fn foreign(name: &VolumeName, server: &ServerId, why: &str) -> String {
    format!(
        "{name}.ecj on {server} {why}, so it may hide needles that exist, and Mend does not use it; remove it from \
         the folders of the server and restart the server"
    )
}

#[cfg(test)]
#[path = "deletions/tests.rs"]
mod tests;
