//! State shared by the storage's tasks, and the operations on it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use attached::{CopyId, CopyState, Ledger, Teller};
use codes::BlockIndex;
use repair::{BlockId, NodeId, StripeId};
use store_api::{BlockState, CatalogError, StoreChange, StoreError, Term, Unjudged};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::claims::ClusterLock;
use super::deletions::LateDeletions;
use super::doubts::Doubts;
use super::freshness::Freshness;
use super::homes::Homes;
use super::inspection::Inspection;
use super::judging::unjudged;
use super::open::Attachment;
use super::parity_verdicts::{self, wrong_by_parity};
use super::refreshes::Refreshes;
use super::server_folders::ServerFolders;
use super::server_ids::{self, ServerIds};
use super::small_files::SmallFiles;
use super::unwritten::Unwritten;
use super::view::{ClusterView, shard_number, shard_of};
use super::withdrawals::Withdrawals;
use crate::connections::Connections;
use crate::listing::{Listing, ServerId};
use crate::master::MasterClient;
use crate::server::VolumeServer;
use crate::volumes::Change;

/// Returns the sentence for a cluster that cannot be listed.
pub(super) fn unseen(why: &str) -> String {
    format!("cannot list the cluster, so its state here may be outdated: {why}")
}

/// The known state of the cluster, and the client with which the cluster is queried.
pub(super) struct Knowledge {
    pub master: MasterClient,
    pub attachment: Attachment,
    connections: Connections,
    /// Signalled after each listing, because there may be new encodings to read and losses to confirm.
    pub listed: Notify,
    state: Mutex<State>,
}

/// The state that the storage's threads share.
pub struct Shared {
    pub(super) known: Arc<Knowledge>,
    pub(super) lock: ClusterLock,
    pub(super) small_files: Arc<SmallFiles>,
    pub(super) refreshes: Refreshes,
    /// One lock per volume, held while a server mounts or unmounts the volume's shards.
    mounting: Mutex<BTreeMap<u32, Arc<tokio::sync::Mutex<()>>>>,
}

/// The known state of the cluster; guarded by one lock.
pub(super) struct State {
    pub ledger: Ledger,
    pub view: ClusterView,
    /// Results of comparing the metadata files of volumes.
    pub inspection: Inspection,
    /// Recorded locations of shards.
    pub homes: Homes,
    /// Recorded IDs of the nodes' servers.
    pub server_ids: ServerIds,
    /// Shards whose publication failed and must be undone.
    pub withdrawals: Withdrawals,
    /// Shards whose servers may not heed all deletions of needles yet.
    pub late_deletions: LateDeletions,
    /// Doubts about checksums, as they were recorded and reported last.
    pub doubts: Doubts,
    /// Records that the catalog has refused.
    pub unwritten: Unwritten,
    /// Servers whose folders differ from those of their helpers.
    pub folders: ServerFolders,
    reported: Reported,
    /// Why the cluster cannot be listed; `None` if it can.
    pub blind: Option<String>,
    /// When the requests for the newest listings were sent.
    pub fresh: Freshness,
    teller: Teller,
}

/// The states that were last reported.
#[derive(Default)]
struct Reported {
    /// The problems, one line each.
    troubles: Vec<String>,
    /// The volumes whose state is unknown.
    unjudged: Vec<Unjudged>,
    /// Why the cluster is not listed; `None` while it is.
    unlisted: Option<String>,
}

impl State {
    pub fn tell(&self, changes: Vec<StoreChange>) {
        self.teller.tell(changes);
    }

    /// Reports the current problems (`lines`), if the list has changed. Returns the new lines.
    pub fn tell_troubles(&mut self, lines: Vec<String>) -> Vec<String> {
        if lines == self.reported.troubles {
            return Vec::new();
        }
        self.tell(vec![StoreChange::Troubles(lines.clone())]);
        let said = std::mem::replace(&mut self.reported.troubles, lines.clone());
        lines.into_iter().filter(|line| !said.contains(line)).collect()
    }

    /// Reports the state of the whole cluster as unknown if its last listing is older than `limit`, also while a
    /// request for the next one is still waiting for an answer. Reports it as known once it is listed again. If
    /// listings succeed but take long, the limit begins with the pause after a listing.
    pub fn tell_blindness(&mut self, limit: Duration, now: Instant) {
        let why = match (&self.blind, self.fresh.age(now)) {
            (Some(why), age) if age.is_none_or(|age| age >= limit) => Some(unseen(why)),
            (None, Some(age)) if age >= limit + self.fresh.pause() => {
                Some(unseen(&format!("no master has listed it for {} s", age.as_secs())))
            }
            _ => None,
        };
        if why.is_some() != self.reported.unlisted.is_some() {
            self.reported.unlisted.clone_from(&why);
            self.tell(vec![StoreChange::Unlisted(why)]);
        }
    }

    /// Whether masters list the cluster at present, as far as that is known.
    pub fn is_in_sight(&self) -> bool {
        self.blind.is_none() && self.reported.unlisted.is_none()
    }

    /// Determines which volumes have an unknown state. Returns the report if the list has changed. It belongs in the
    /// same message as the stripes: between two messages, a volume would be neither a stripe nor unknown.
    pub fn judge(&mut self) -> Option<StoreChange> {
        let unjudged = unjudged(self.view.volumes(), self.view.files());
        let before = &self.reported.unjudged;
        if unjudged == *before {
            return None;
        }
        for it in unjudged.iter().filter(|it| !before.iter().any(|other| other.stripe == it.stripe)) {
            tracing::warn!(volume = %it.stripe, why = it.why, "the state of a volume is unknown");
        }
        self.reported.unjudged.clone_from(&unjudged);
        Some(StoreChange::Unjudged(unjudged))
    }

    /// Reports the current state of these volumes.
    pub fn tell_volumes(&mut self, volumes: impl IntoIterator<Item = u32>) {
        let mut changes = self.view.tell(volumes);
        changes.extend(self.judge());
        changes.extend(self.tell_doubts());
        self.tell(changes);
    }

    /// Returns the volumes whose state is unknown and whether the cluster is listed, as reports for a new listener.
    pub fn told(&self) -> [StoreChange; 2] {
        let Reported { unjudged, unlisted, .. } = &self.reported;
        [StoreChange::Unjudged(unjudged.clone()), StoreChange::Unlisted(unlisted.clone())]
    }

    /// Returns the current problems, as a report for a new listener.
    pub fn troubles(&self) -> StoreChange {
        StoreChange::Troubles(self.reported.troubles.clone())
    }

    /// Applies a listing of the cluster or of some volumes, and reports the differences.
    ///
    /// # Errors
    /// If the record that assigns an ID to a new server cannot be stored.
    fn take(
        &mut self,
        attachment: &Attachment,
        apply: impl FnOnce(&mut ClusterView) -> Vec<Change>,
    ) -> Result<(), CatalogError> {
        let both = self.view.volumes().both();
        let changes = apply(&mut self.view);
        let mut volumes: BTreeSet<u32> = changes.iter().filter_map(Change::volume).collect();
        // No shard of these volumes has changed, but they begin or cease to be stripes.
        volumes.extend(both.symmetric_difference(&self.view.volumes().both()));
        let mut told = Vec::new();
        // Even if a record cannot be stored, all other changes are reported: the next listing does not repeat
        // them.
        let numbered = self.number_servers(attachment, &mut volumes, &mut told);
        if numbered.is_ok() {
            self.view.follow_unseen_moves();
        }
        self.forget_marks();
        self.keep_inferred_marks();
        self.keep_homes(volumes.iter().copied());
        let service = self.view.tell_service();
        self.ledger.note_needed(self.view.nodes().plain_volumes());
        // Report a server before its shards when it arrives, and after them when it leaves.
        let (came, went): (Vec<_>, Vec<_>) =
            service.into_iter().partition(|change| matches!(change, StoreChange::Service(_, true)));
        told.extend(came);
        told.extend(self.view.tell(volumes));
        told.extend(went);
        told.extend(self.judge());
        told.extend(self.tell_doubts());
        self.tell(told);
        self.keep_doubts();
        numbered
    }

    /// Replaces those parts of a listing that are known from listings which were requested later. An outdated part
    /// could bring back servers and shards that have left since.
    fn bring_up_to_date(&self, listing: &mut Listing, asked: Instant) {
        if self.fresh.knows_newer_servers(asked) {
            self.view.volumes().bring_up_to_date(listing, &self.fresh.newer_volumes(asked));
        }
    }

    /// Assigns IDs to new servers. Adds the volumes with shards on them to `volumes`.
    fn number_servers(
        &mut self,
        attachment: &Attachment,
        volumes: &mut BTreeSet<u32>,
        told: &mut Vec<StoreChange>,
    ) -> Result<(), CatalogError> {
        for server in self.view.unnumbered() {
            let name = attachment.name_of(&server, &self.view.volumes().servers()[&server]);
            let record = self.ledger.number_node(&name)?;
            volumes.extend(self.view.volumes().volumes_at(&server));
            server_ids::number(self, attachment, &server, &record);
            told.push(StoreChange::Node(record));
        }
        Ok(())
    }

    /// Deletes the records of bad copies that no longer exist.
    fn forget_marks(&mut self) {
        if let Err(error) = self.ledger.forget(self.view.take_gone()) {
            tracing::error!(%error, "cannot delete the records of bad copies that are gone; trying again");
        }
    }

    /// Records that copies of corrupt shards are corrupt.
    fn keep_inferred_marks(&mut self) {
        let (states, term) = (self.view.inferred_marks(), self.ledger.term());
        if states.is_empty() {
            return;
        }
        match self.ledger.note(term, &states) {
            Ok(()) => self.view.note_recorded(),
            Err(StoreError::Fenced { .. }) => {} // The coordinator's term has not begun yet, or is over.
            Err(error) => {
                tracing::error!(%error, "cannot record that copies of corrupt shards are corrupt; trying again");
            }
        }
    }

    /// Stops using the checksums of those volumes whose checksums contradict too many of their shards. Returns the
    /// copies that are not corrupt any more.
    pub fn doubt_checksums(&mut self, volumes: &BTreeSet<u32>) -> BTreeSet<CopyId> {
        let has_any = |id: u32| self.view.uses_checksums(id) || self.inspection.disputes_checksums(id);
        let contradicted = |wrong: &parity_verdicts::Copies| {
            let is_doubtful = |id: &u32| has_any(*id) && self.view.contradicts_itself(*id, wrong);
            volumes.iter().copied().filter(is_doubtful).collect::<Vec<u32>>()
        };
        let mut overruled = BTreeSet::new();
        if contradicted(&parity_verdicts::Copies::new()).is_empty() {
            return overruled;
        }
        let Some(wrong) = self.wrong_by_parity() else { return overruled };
        let doubtful = contradicted(&wrong);
        for id in doubtful {
            tracing::error!(volume = id, "the checksums of a volume contradict too many of its shards");
            let before = self.view.corrupt_copies(id);
            self.view.doubt_checksums(id, &wrong);
            overruled.extend(before.difference(&self.view.corrupt_copies(id)).cloned());
        }
        // A coordinator that starts must not use the checksums, so this is recorded first.
        self.keep_doubts();
        self.forget_marks();
        overruled
    }

    /// Returns the copies that parity has shown to be wrong; `None` if the records cannot be read.
    fn wrong_by_parity(&self) -> Option<parity_verdicts::Copies> {
        let wrong = wrong_by_parity(&self.ledger);
        if let Err(error) = &wrong {
            tracing::error!(%error, "cannot read the records of shards that contradict parity");
        }
        wrong.ok()
    }

    /// Returns those states that say something about their copies; see [`ClusterView::is_credible`].
    fn credible(&self, states: &[CopyState]) -> Vec<CopyState> {
        let mut credible: Vec<CopyState> =
            states.iter().filter(|state| !self.may_be_hidden(state)).cloned().collect();
        let none = parity_verdicts::Copies::new();
        if !credible.iter().all(|state| self.view.is_credible(state, &none)) {
            let wrong = self.wrong_by_parity().unwrap_or_default();
            credible.retain(|state| self.view.is_credible(state, &wrong));
        }
        credible
    }

    /// Whether a copy that counts as missing may be in a folder that its helper does not know: the master lists the shard
    /// on a server with other folders than its helper.
    fn may_be_hidden(&self, (stripe, index, node, state): &CopyState) -> bool {
        let server = self.view.nodes().server(*node);
        let Some(server) = server.filter(|server| self.folders.difference(server).is_some()) else {
            return false;
        };
        let homes = self.view.volume_of(stripe).map(|id| self.view.volumes().homes(id, shard_number(*index)));
        *state == BlockState::Missing
            && homes.is_some_and(|homes| homes.iter().any(|home| home.server == *server))
    }

    /// Records the states that were found for copies, each with the encoding to which the copy belongs.
    ///
    /// # Errors
    /// [`StoreError`] if the states cannot be recorded.
    pub fn record_states(&mut self, term: Term, states: &[CopyState]) -> Result<(), StoreError> {
        let records: Vec<CopyState> = states.iter().flat_map(|state| self.view.records_of(state)).collect();
        self.ledger.note(term, &records)
    }
}

impl Shared {
    pub(super) fn new(master: MasterClient, attachment: Attachment, ledger: Ledger, teller: Teller) -> Self {
        let lock = ClusterLock::new(master.clone(), teller.clone());
        let known = Arc::new(Knowledge::new(master, attachment, ledger, teller));
        let small_files = Arc::new(SmallFiles::new(Arc::clone(&known)));
        Self { known, lock, small_files, refreshes: Refreshes::default(), mounting: Mutex::default() }
    }

    /// Returns the volume's lock. The caller must hold it while a server mounts or unmounts shards, until the
    /// result was checked.
    pub(super) fn mounting(&self, volume: u32) -> Arc<tokio::sync::Mutex<()>> {
        let mut locks = self.mounting.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(locks.entry(volume).or_default())
    }
}

impl Knowledge {
    fn new(master: MasterClient, attachment: Attachment, ledger: Ledger, teller: Teller) -> Self {
        let state = State {
            ledger,
            view: ClusterView::default(),
            inspection: Inspection::default(),
            homes: Homes::default(),
            server_ids: ServerIds::default(),
            withdrawals: Withdrawals::default(),
            late_deletions: LateDeletions::default(),
            doubts: Doubts::default(),
            unwritten: Unwritten::default(),
            folders: ServerFolders::default(),
            reported: Reported::default(),
            blind: None,
            fresh: Freshness::default(),
            teller,
        };
        let connections = Connections::default();
        Self { master, attachment, connections, listed: Notify::new(), state: Mutex::new(state) }
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Loads the missing and corrupt copies, and the nodes with volumes that are not erasure-coded, which
    /// earlier coordinators recorded. The locations of shards must have been loaded before.
    ///
    /// # Errors
    /// [`CatalogError`].
    pub fn recall(&self) -> Result<(), CatalogError> {
        let mut state = self.state();
        let needed = state.ledger.recall_needed()?;
        state.view.recall_plain_volumes(needed);
        for copy in state.ledger.bad_copies()? {
            state.view.recall_mark(copy);
        }
        Ok(())
    }

    /// Applies a listing of the whole cluster, as far as no newer listing of a volume was already applied. The next one
    /// is requested after `pause` at the latest.
    ///
    /// # Errors
    /// As for [`State::take`].
    pub fn take_all(
        &self,
        mut listing: Listing,
        asked: Instant,
        pause: Duration,
    ) -> Result<(), CatalogError> {
        let mut state = self.state();
        state.bring_up_to_date(&mut listing, asked);
        state.fresh.note_whole(asked, pause);
        state.take(&self.attachment, |view| view.list(listing))
    }

    /// Lists one volume again and applies the result, unless a later listing of the volume was faster.
    ///
    /// # Errors
    /// The reason for the failure, as text.
    pub async fn refresh(&self, volume: u32) -> Result<(), String> {
        let asked = Instant::now();
        let part = self.master.list_volumes(&[volume]).await.map_err(|error| error.to_string())?;
        self.take_part(volume, part, asked).map_err(|error| error.to_string())
    }

    /// Applies a listing of one volume.
    fn take_part(&self, volume: u32, mut part: Listing, asked: Instant) -> Result<(), CatalogError> {
        let mut state = self.state();
        if state.fresh.knows_newer(volume, asked) {
            return Ok(());
        }
        state.bring_up_to_date(&mut part, asked);
        state.fresh.note_volume(volume, asked);
        state.take(&self.attachment, |view| view.list_some(&[volume], part))
    }

    /// Clears the state of a copy that its node has removed; a later copy on that node starts as healthy.
    ///
    /// # Errors
    /// [`StoreError`] if the change cannot be recorded; nothing has changed then.
    pub fn forget_bad(&self, term: Term, node: NodeId, block: &BlockId) -> Result<(), StoreError> {
        let Some(shard) = shard_of(block) else { return Ok(()) };
        let (stripe, index) = (StripeId(shard.volume.to_string()), BlockIndex(shard.shard.into()));
        self.note_states(term, &[(stripe, index, node, BlockState::Healthy)]).map(drop)
    }

    /// Records the states that were found for copies, and reports the changed stripes. Returns the copies whose bad
    /// states, found now or earlier, are not recorded, because the checksums are doubted or the helper does not know
    /// all folders of its server.
    ///
    /// # Errors
    /// [`StoreError`] if the states cannot be recorded; nothing has changed then.
    pub fn note_states(&self, term: Term, states: &[CopyState]) -> Result<Vec<CopyId>, StoreError> {
        let mut shared = self.state();
        let credible = shared.credible(states);
        shared.record_states(term, &credible)?;
        for (stripe, index, node, state) in &credible {
            shared.view.set_state(stripe, *index, *node, *state);
        }
        let of = |(stripe, ..): &CopyState| shared.view.volume_of(stripe);
        let volumes: BTreeSet<u32> = states.iter().filter_map(of).collect();
        let mut overruled = shared.doubt_checksums(&volumes);
        let dropped = states.iter().filter(|state| !credible.contains(state));
        overruled.extend(dropped.map(|(stripe, index, node, _)| (stripe.clone(), *index, *node)));
        shared.tell_volumes(volumes);
        Ok(overruled.into_iter().collect())
    }

    /// Connects to a volume server that the master lists as connected.
    ///
    /// # Errors
    /// The reason for the failure, as text.
    pub async fn connect(&self, server: &ServerId) -> Result<VolumeServer, String> {
        let address = self.state().view.volumes().servers().get(server).map(|server| server.address.clone());
        let address =
            address.ok_or_else(|| format!("volume server {server} is not connected to the master"))?;
        let address = address.parsed().map_err(|bad| format!("cannot call volume server {server}: {bad}"))?;
        self.connections.to(address, &self.attachment.security).await.map_err(|error| error.to_string())
    }
}

#[cfg(test)]
#[path = "state/tests.rs"]
mod tests;
