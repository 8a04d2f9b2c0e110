//! The state that the storage's tasks share.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use attached::{CopyState, Ledger, Teller};
use codes::BlockIndex;
use repair::NodeId;
use store_api::{BlockState, CatalogError, FileBacklog, LateRebuilder, StoreChange, StoreError, Term};
use tokio::sync::Notify;

use super::coded::{Coded, is_raid};
use super::contact::Contact;
use super::corrupt::Corrupt;
use super::encoding_state::EncodingState;
use super::groups::Listed;
use super::names::{FolderId, Place};
use super::open::Attachment;
use super::raiding::Raiding;
use super::replay::Replay;
use super::reports::Reports;
use super::terms::Formats;
use super::touched::Touched;
use super::view::View;
use crate::listing::{DataNode, Edits, Listing, Progress, SeenFile, SeenPlace};
use crate::namenode::NameNode;

/// Finders of problems: the task that asks for all DataNodes, and tasks that fail too if the NameNode does not
/// answer it.
pub(super) const ASKING: &str = "asking";
pub(super) const READING_EDITS: &str = "edits";
pub(super) const QUERYING_FILES: &str = "querying files";
pub(super) const LISTING_FILES: &str = "listing files";

/// HDFS as a [`System`](attached::System): the connection to the NameNode, and the state that the storage's
/// tasks share.
pub struct HdfsSystem {
    pub(super) namenode: Option<NameNode>,
    pub(super) attachment: Attachment,
    /// Notified after a change that calls for a new listing.
    pub(super) look: Notify,
    /// Notified when more groups are known to lack blocks.
    pub(super) lacking: Notify,
    /// Has helpers make parity.
    pub(super) rebuilder: LateRebuilder,
    opened: Instant,
    state: Mutex<State>,
}

/// The mutable part of the shared state.
pub(super) struct State {
    pub ledger: Ledger,
    pub view: View,
    /// The numbers of all registered nodes by name.
    numbers: BTreeMap<String, NodeId>,
    /// Current problems, by the task that found them.
    troubles: BTreeMap<&'static str, Vec<String>>,
    /// Current remarks for operators, by the task that made them.
    remarks: BTreeMap<&'static str, Vec<String>>,
    /// When DataNodes last entered or left service, or blocks have moved in other ways that only listings tell.
    pub(super) nodes_changed: Option<Duration>,
    /// Groups to query again, because helpers found copies bad or missing.
    pub(super) suspects: BTreeSet<i64>,
    pub(super) corrupt: Corrupt,
    pub(super) formats: Formats,
    /// The block reports that DataNodes are to send.
    pub(super) reports: Reports,
    pub(super) raiding: Raiding,
    /// The reasons for which encoding by policies waits, and the files that have changed.
    pub(super) encoding: EncodingState,
    /// Groups that possibly no longer exist, with their files.
    pub(super) doubted: BTreeMap<i64, u64>,
    /// Whether the state of HDFS is known.
    pub(super) contact: Contact,
    teller: Teller,
}

impl State {
    pub fn tell(&self, changes: Vec<StoreChange>) {
        self.teller.tell(changes);
    }

    /// Returns the DataNodes that entered or left service since the last report.
    pub fn tell_service(&mut self, now: Duration) -> Vec<StoreChange> {
        let changes = self.view.tell_service();
        // The first listing covers the DataNodes that enter service with it.
        if !changes.is_empty() && self.contact.unlisted().is_none() {
            self.nodes_changed = Some(now);
        }
        changes
    }

    /// Returns all current problems as a report. If the NameNode does not answer, other queries fail for the same
    /// reason, which is reported once.
    pub fn troubles(&self) -> StoreChange {
        let is_silent = self.troubles.get(ASKING).is_some_and(|lines| !lines.is_empty());
        let is_told =
            |finder: &str| !(is_silent && [READING_EDITS, QUERYING_FILES, LISTING_FILES].contains(&finder));
        let told = self.troubles.iter().filter(|(finder, _)| is_told(finder));
        StoreChange::Troubles(told.flat_map(|(_, lines)| lines).cloned().collect())
    }

    /// Returns all current remarks as a report.
    pub fn remarks(&self) -> StoreChange {
        StoreChange::Remarks(self.remarks.values().flatten().cloned().collect())
    }

    /// Returns the first problem with queries for DataNodes, files and changes.
    pub fn first_query_trouble(&self) -> Option<&String> {
        let finders = [ASKING, READING_EDITS, QUERYING_FILES, LISTING_FILES];
        finders.iter().filter_map(|finder| self.troubles.get(finder)).flatten().next()
    }

    /// Replaces the remarks of a task, and reports them if they changed.
    pub fn note_remarks(&mut self, finder: &'static str, lines: Vec<String>) {
        let before = self.remarks.insert(finder, lines.clone()).unwrap_or_default();
        if before != lines {
            self.tell(vec![self.remarks()]);
        }
    }

    /// Replaces the problems of a task, and reports them if they changed.
    pub fn note_troubles(&mut self, finder: &'static str, lines: Vec<String>) {
        let before = self.troubles.insert(finder, lines.clone()).unwrap_or_default();
        if before == lines {
            return;
        }
        for line in lines.iter().filter(|line| !before.contains(line)) {
            tracing::warn!("{line}");
        }
        self.tell(vec![self.troubles()]);
    }

    /// Takes the files to encode, and those that are encoded, and reports them if they have changed.
    pub fn note_file_backlog(&mut self, backlog: FileBacklog) {
        if self.encoding.note_backlog(backlog) {
            self.tell(self.encoding.told().into_iter().collect());
        }
    }

    /// Returns the node numbers of these DataNodes. Numbers new DataNodes, and reports these as new nodes. A
    /// DataNode that is down gets no number: the NameNode lists it also after its node was removed.
    pub fn number(
        &mut self,
        attachment: &Attachment,
        nodes: &[DataNode],
    ) -> Result<Vec<Option<NodeId>>, CatalogError> {
        nodes.iter().map(|node| self.number_of(attachment, node)).collect()
    }

    fn number_of(
        &mut self,
        attachment: &Attachment,
        node: &DataNode,
    ) -> Result<Option<NodeId>, CatalogError> {
        let name = attachment.name_of(&node.address);
        let known = self.numbers.get(name).copied();
        let is_down = node.standing.as_ref().is_some_and(|standing| !standing.live);
        if known.is_some() || is_down {
            return Ok(known);
        }
        let record = self.ledger.number_node(name)?;
        let number = record.id;
        self.numbers.insert(name.to_owned(), number);
        self.tell(vec![StoreChange::Node(record)]);
        Ok(Some(number))
    }

    /// Forgets a node that was removed. If its DataNode returns, it is a new node.
    pub fn forget_node(&mut self, node: NodeId) {
        self.numbers.retain(|_, other| *other != node);
        self.view.forget_node(node);
        self.forget_reports_of(node);
    }

    /// Has groups queried again of which HDFS will remove surplus copies. `asked` is the time of the query that listed
    /// them.
    fn count_replicas(&mut self, now: Duration, asked: Duration, listed: &[Listed]) {
        let Self { view, raiding, .. } = self;
        for listed in listed {
            let count = listed.count(|node| view.nodes().counts(node));
            raiding.recounts.note(now, asked, listed.group.number(), count);
        }
    }

    fn tell_unjudged(&mut self) -> Option<StoreChange> {
        let Self { corrupt, view, .. } = self;
        corrupt.tell(|group| view.groups().inode(group).is_some())
    }

    /// Removes the records of missing or corrupt copies that the NameNode no longer lists.
    pub fn forget_marks(&mut self) -> Result<(), CatalogError> {
        self.ledger.forget(self.view.take_gone())
    }
}

impl HdfsSystem {
    pub(super) fn new(
        namenode: Option<NameNode>,
        attachment: Attachment,
        ledger: Ledger,
        teller: Teller,
    ) -> Self {
        let state = State {
            ledger,
            view: View::default(),
            numbers: BTreeMap::new(),
            troubles: BTreeMap::new(),
            remarks: BTreeMap::new(),
            nodes_changed: None,
            suspects: BTreeSet::new(),
            corrupt: Corrupt::default(),
            formats: Formats::default(),
            reports: Reports::default(),
            raiding: Raiding::default(),
            encoding: EncodingState::default(),
            doubted: BTreeMap::new(),
            contact: Contact::new(namenode.is_none()),
            teller,
        };
        Self {
            namenode,
            attachment,
            look: Notify::new(),
            lacking: Notify::new(),
            rebuilder: LateRebuilder::default(),
            opened: Instant::now(),
            state: Mutex::new(state),
        }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the time since the storage was opened.
    pub(super) fn now(&self) -> Duration {
        self.opened.elapsed()
    }

    /// Loads the registered nodes, the nodes with other data, and the copies that earlier coordinators found
    /// missing or corrupt.
    ///
    /// # Errors
    /// [`CatalogError`].
    pub(super) fn recall(&self) -> Result<(), CatalogError> {
        let mut state = self.state();
        let State { encoding, ledger, .. } = &mut *state;
        encoding.recall(ledger)?;
        for (stripe, index, node, bad) in state.ledger.bad_copies()? {
            state.view.set_state(&stripe, index, node, bad);
        }
        if self.namenode.is_some() {
            state.recall_reports()?;
            let needed = state.ledger.recall_needed()?;
            state.view.recall_needed(needed);
            for node in state.ledger.nodes()? {
                drop(state.view.assume_service(node.id)); // Reported later, together with everything else.
                state.numbers.insert(node.name, node.id);
            }
        }
        Ok(())
    }

    /// Returns the address of a DataNode.
    pub(super) fn address_of(&self, node: NodeId) -> Option<String> {
        let state = self.state();
        let (name, _) = state.numbers.iter().find(|&(_, &number)| number == node)?;
        let beside = self.attachment.helpers.iter().find(|&(_, helper)| helper == name);
        Some(beside.map_or(name, |(address, _)| address).clone())
    }

    /// Has a DataNode report all its blocks, because the NameNode does not list a block of this group that the
    /// DataNode has accepted. Does nothing if the NameNode knows the DataNode's replica to be corrupt: it distrusts
    /// the new bytes too, and has the replica deleted once the block is on another DataNode.
    pub(super) fn want_report(&self, group: &Coded, index: u8, node: NodeId) {
        let Some(address) = self.address_of(node) else { return };
        let mut state = self.state();
        if !state.corrupt.names(group.listed_number(index), &address) {
            state.want_report(node, group.block_number(index));
        }
    }

    /// Records a newly registered node, and assumes that it is in service.
    pub(super) fn note_registered(&self, name: &str, node: NodeId) {
        if self.namenode.is_some() {
            let mut state = self.state();
            state.numbers.insert(name.to_owned(), node);
            let change = state.view.assume_service(node);
            state.tell(change.into_iter().collect());
        }
    }

    /// Records the states of DataNodes. Returns whether DataNodes have entered or left service.
    ///
    /// # Errors
    /// If the number of a new DataNode cannot be stored.
    pub(super) fn take_nodes(&self, listing: &Listing) -> Result<bool, CatalogError> {
        let now = self.now();
        let mut state = self.state();
        let numbers = state.number(&self.attachment, &listing.nodes)?;
        let standings = numbers.iter().zip(&listing.nodes);
        let standings = standings.filter_map(|(&number, node)| Some((number?, node.standing.clone()?)));
        let (nodes, is_first) = (state.view.nodes(), state.contact.nodes_heard().is_none());
        let (before, maintained_before) = (nodes.needed().clone(), nodes.maintained());
        let takers_before = nodes.takers();
        let mut services = state.view.take_nodes(now, standings.collect());
        let is_changed = !services.is_empty();
        let mut changes = Vec::new();
        let (needed, maintained) = (state.view.nodes().needed().clone(), state.view.nodes().maintained());
        if is_changed || state.view.nodes().takers() != takers_before || maintained != maintained_before {
            let unsure = state.view.take_unsure();
            changes = state.view.tell(now, unsure);
        }
        // The NameNode lists the blocks of a DataNode again when its maintenance ends.
        if is_changed || !maintained.is_superset(&maintained_before) {
            if !is_first {
                state.nodes_changed = Some(now);
            }
            self.look.notify_one();
        }
        changes.append(&mut services);
        state.ledger.note_needed(&needed);
        changes.extend((needed != before).then_some(StoreChange::Needed(needed)));
        if maintained != maintained_before {
            changes.insert(0, StoreChange::Maintained(maintained)); // Reported before a DataNode counts as down.
        }
        // Reported after the DataNodes that have died meanwhile.
        changes.extend(state.contact.note_nodes(now));
        state.tell(changes);
        Ok(is_changed)
    }

    /// Records that all groups that lack blocks are known, by a query that was sent at `asked`: those on the NameNode's
    /// lists.
    pub(super) fn note_losses(&self, asked: Duration, lacking: BTreeSet<i64>) {
        let now = self.now();
        let mut state = self.state();
        let groups = state.view.note_losses(now, asked, lacking);
        let mut changes = state.view.tell(now, groups);
        changes.extend(state.tell_service(now));
        state.tell(changes);
    }

    /// Returns known ones of these groups, for queries.
    pub(super) fn known(&self, groups: impl IntoIterator<Item = i64>) -> Vec<Listed> {
        let state = self.state();
        let listed = |number| Some(state.view.groups().get(number)?.listed.clone());
        groups.into_iter().filter_map(listed).collect()
    }

    /// Records the groups that an answer lists. The query was sent at `asked`. `all` is true if the answer
    /// lists all groups.
    ///
    /// # Errors
    /// As [`take_nodes`](Self::take_nodes).
    pub(super) fn take_groups(
        &self,
        asked: Duration,
        listing: Listing,
        all: bool,
    ) -> Result<(), CatalogError> {
        let now = self.now();
        let mut state = self.state();
        let numbers = state.number(&self.attachment, &listing.nodes)?;
        let folders = listing.seen.folders.iter().map(|path| state.view.groups_mut().folder(path));
        let folders: Vec<FolderId> = folders.collect();
        let mut listed = Vec::with_capacity(listing.groups.len());
        for group in listing.groups {
            let corrupt = state.corrupt.take_group(&group, &listing.nodes);
            let is_corrupt =
                |node: usize| corrupt.is_some_and(|at| at.contains(&listing.nodes[node].address));
            let homes = group.homes.iter().filter(|&&(_, node)| !is_corrupt(node));
            listed.push(Listed {
                file: group.file,
                place: group.place.map(|place| place_of(place, &folders)),
                phase: group.phase,
                start: group.start,
                group: group.group.into(),
                homes: homes.filter_map(|&(index, node)| Some((index, numbers[node]?))).collect(),
            });
        }
        state.count_replicas(now, asked, &listed);
        let changed = state.view.take_groups(now, asked, listed, all);
        let mut changes = state.view.tell(now, changed);
        changes.extend(state.tell_service(now));
        changes.extend(state.tell_unjudged());
        let State { view, doubted, suspects, .. } = &mut *state;
        let missed = view.groups_mut().take_missed();
        let (raided, missed): (Vec<_>, Vec<_>) = missed.into_iter().partition(|&(number, _)| is_raid(number));
        suspects.extend(raided.into_iter().map(|(number, _)| number)); // Perhaps only their parity is gone.
        doubted.extend(missed);
        if all {
            doubted.retain(|&number, _| view.groups().inode(number).is_some());
        }
        if all && let Some(listed) = state.contact.note_listed() {
            changes.extend(state.view.note_first_told());
            changes.push(listed); // Reported after the stripes.
        }
        state.tell(changes);
        state.forget_marks()
    }

    /// Records a part of the edit log.
    pub(super) fn take_edits(&self, replay: &mut Replay, edits: Edits) {
        let mut state = self.state();
        replay.touched().take_unprotected(state.raiding.unprotected());
        replay.take(edits, state.view.groups_mut());
    }

    /// Has the stripes of raided files queried that events concern.
    pub(super) fn note_touched(&self, touched: &mut Touched) {
        let now = self.now();
        let stripes = touched.take_stripes();
        let mut state = self.state();
        state.raiding.recounts.restart(now, &stripes);
        state.suspects.extend(stripes);
        touched.note_sources(std::mem::take(&mut state.raiding.changed));
        if state.raiding.recounts.take_left_out(now) {
            touched.note_all();
            state.nodes_changed = Some(now);
        }
    }

    /// Returns stripes to query again, since HDFS has too many or too few replicas.
    pub(super) fn due_recounts(&self, most: usize) -> Vec<i64> {
        let now = self.now();
        let mut state = self.state();
        let State { raiding, view, .. } = &mut *state;
        raiding.recounts.take_due(now, most, |number| view.groups().inode(number).is_some())
    }

    /// Returns the known groups of the files in an answer that the answer lacks, with their files. The query
    /// was sent at `asked`, and the answer's groups are recorded. Files that are being written are ignored.
    pub(super) fn unlisted_groups(
        &self,
        asked: Duration,
        folders: &[String],
        files: &[SeenFile],
    ) -> Vec<(i64, u64)> {
        let mut state = self.state();
        let groups = state.view.groups_mut();
        let folders: Vec<FolderId> = folders.iter().map(|path| groups.folder(path)).collect();
        let closed = files.iter().filter(|file| !file.is_open);
        let older = closed.map(|file| (file.inode, groups.older_at(place_of(file.place, &folders), asked)));
        older.flat_map(|(inode, older)| older.into_iter().filter(move |&(_, of)| of == inode)).collect()
    }

    /// Removes groups that no longer exist, if they still belong to these files.
    ///
    /// # Errors
    /// [`CatalogError`] if the records of their bad copies cannot be removed.
    pub(super) fn remove_groups(&self, gone: &[(i64, u64)]) -> Result<(), CatalogError> {
        let now = self.now();
        let mut state = self.state();
        state.view.groups_mut().remove(now, gone);
        let mut changes = state.view.tell(now, []);
        changes.extend(state.tell_unjudged());
        state.tell(changes);
        state.forget_marks()
    }

    /// Returns why HDFS has not been listed yet; `None` after the first listing.
    pub(super) fn unlisted(&self) -> Option<String> {
        self.state().contact.unlisted().map(str::to_owned)
    }

    /// Reports the state of HDFS as unknown if the NameNode has not listed the DataNodes for some time.
    pub(super) fn tell_blindness(&self) {
        let now = self.now();
        let mut state = self.state();
        let State { contact, troubles, .. } = &mut *state;
        let error = troubles.get(ASKING).and_then(|lines| lines.first());
        if let Some(change) = contact.note_silence(now, error) {
            state.tell(vec![change]);
        }
    }

    /// Reports the progress of the first listing.
    pub(super) fn note_progress(&self, progress: Progress) {
        let mut state = self.state();
        if let Some(change) = state.contact.note_progress(progress) {
            state.tell(vec![change]);
        }
    }

    /// Records the states in which copies were found.
    ///
    /// # Errors
    /// [`StoreError`] if the states cannot be stored; nothing has changed then.
    pub(super) fn note_states(&self, term: Term, states: &[CopyState]) -> Result<(), StoreError> {
        let now = self.now();
        let mut shared = self.state();
        shared.ledger.note(term, states)?;
        let mut groups = BTreeSet::new();
        for (stripe, index, node, state) in states {
            let group = shared.view.set_state(stripe, *index, *node, *state);
            if *state != BlockState::Healthy && self.namenode.is_some() {
                shared.suspects.extend(group);
                shared.formats.want(group);
                self.lacking.notify_one();
            }
            groups.extend(group);
        }
        let changes = shared.view.tell(now, groups);
        shared.tell(changes);
        Ok(())
    }
}

/// Records the replicas that the NameNode knows to be corrupt, because it forgets them when it is restarted.
///
/// # Errors
/// [`StoreError`] if they cannot be stored.
pub(super) fn mark_corrupt(shared: &HdfsSystem) -> Result<(), StoreError> {
    let now = shared.now();
    let mut state = shared.state();
    let State { view, numbers, corrupt, .. } = &*state;
    let mut found = Vec::new();
    for (&listed, addresses) in corrupt.named() {
        let Some(number) = view.groups().stripe_of(listed) else { continue };
        let Some(held) = view.groups().get(number) else { continue };
        let (stripe, shape) = (held.listed.group.stripe_id(), held.listed.group.stripe());
        for node in addresses.iter().filter_map(|address| numbers.get(shared.attachment.name_of(address))) {
            // Of a group, the NameNode does not say which block it is. A DataNode holds one block of a group.
            let was_there = |index: u8| {
                held.listed.group.listed_number(index) == listed
                    && held.last_home(index).is_some_and(|(home, _)| home == *node)
            };
            let blocks = shape.iter().flat_map(|shape| &shape.blocks).zip(0..);
            let mut lost =
                blocks.filter(|(block, _)| was_there(block.index.0 as u8)).map(|(_, at)| BlockIndex(at));
            if let Some(at) = lost.find(|&at| !view.is_bad(&stripe, at, *node)) {
                found.push((number, (stripe.clone(), at, *node, BlockState::Corrupt)));
            }
        }
    }
    if found.is_empty() {
        return Ok(());
    }
    let term = state.ledger.term();
    let copies: Vec<CopyState> = found.iter().map(|(_, copy)| copy.clone()).collect();
    state.ledger.note(term, &copies)?;
    for (stripe, at, node, bad) in copies {
        state.view.set_state(&stripe, at, node, bad);
    }
    let changes = state.view.tell(now, found.into_iter().map(|(number, _)| number));
    state.tell(changes);
    Ok(())
}

fn place_of(seen: SeenPlace, folders: &[FolderId]) -> Place {
    Place { folder: folders[seen.folder], name: seen.name }
}
