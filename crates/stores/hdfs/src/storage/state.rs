//! The state that the storage's tasks share.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use attached::{CopyState, Ledger, Teller};
use repair::NodeId;
use store_api::{CatalogError, StoreChange, StoreError, Term};
use tokio::sync::Notify;

use super::groups::Listed;
use super::open::Attachment;
use super::view::View;
use crate::listing::{DataNode, Listing, Progress};
use crate::namenode::NameNode;

/// The task that queries the NameNode, as a finder of problems.
pub(super) const ASKING: &str = "asking";
/// If the last answer with all DataNodes is older than this, the state of HDFS is reported as unknown.
const BLIND_AFTER: Duration = Duration::from_secs(20);
/// The status before the first listing.
const UNLISTED: &str = "HDFS has not been listed yet";

/// The state that the storage's tasks share.
pub struct Shared {
    pub(super) namenode: Option<NameNode>,
    pub(super) attachment: Attachment,
    /// Notified after a change that calls for a new listing.
    pub(super) look: Notify,
    opened: Instant,
    state: Mutex<State>,
}

/// The mutable part of the shared state.
pub(super) struct State {
    pub ledger: Ledger,
    pub view: View,
    /// The nodes' numbers by name.
    numbers: BTreeMap<String, NodeId>,
    /// Current problems, by the task that found them.
    troubles: BTreeMap<&'static str, Vec<String>>,
    /// Current remarks for operators, by the task that made them.
    remarks: BTreeMap<&'static str, Vec<String>>,
    /// Why HDFS has not been listed yet, as last reported.
    unlisted: Option<String>,
    /// The time of the last answer with all DataNodes.
    heard: Duration,
    /// Whether the state of HDFS was last reported as unknown, because the NameNode does not answer.
    blind: bool,
    teller: Teller,
}

impl State {
    pub fn tell(&self, changes: Vec<StoreChange>) {
        self.teller.tell(changes);
    }

    /// Returns all current problems as a report.
    pub fn troubles(&self) -> StoreChange {
        StoreChange::Troubles(self.troubles.values().flatten().cloned().collect())
    }

    /// Returns all current remarks as a report.
    pub fn remarks(&self) -> StoreChange {
        StoreChange::Remarks(self.remarks.values().flatten().cloned().collect())
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

    /// Returns the node numbers of these DataNodes. Numbers new DataNodes, and reports these as new nodes.
    fn number(&mut self, attachment: &Attachment, nodes: &[DataNode]) -> Result<Vec<NodeId>, CatalogError> {
        let mut numbers = Vec::with_capacity(nodes.len());
        for node in nodes {
            let name = attachment.name_of(&node.address);
            if let Some(&number) = self.numbers.get(name) {
                numbers.push(number);
                continue;
            }
            let record = self.ledger.number_node(name)?;
            let number = record.id;
            self.tell(vec![StoreChange::Node(record)]);
            self.numbers.insert(name.to_owned(), number);
            numbers.push(number);
        }
        Ok(numbers)
    }

    /// Removes the records of missing or corrupt copies that the NameNode no longer lists.
    fn forget_marks(&mut self) -> Result<(), CatalogError> {
        self.ledger.forget(self.view.take_gone())
    }
}

impl Shared {
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
            unlisted: namenode.is_some().then(|| UNLISTED.to_owned()),
            heard: Duration::ZERO,
            blind: false,
            teller,
        };
        Self { namenode, attachment, look: Notify::new(), opened: Instant::now(), state: Mutex::new(state) }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the time since the storage was opened.
    pub(super) fn now(&self) -> Duration {
        self.opened.elapsed()
    }

    /// Loads the registered nodes, and the copies that earlier coordinators found missing or corrupt.
    ///
    /// # Errors
    /// [`CatalogError`].
    pub(super) fn recall(&self) -> Result<(), CatalogError> {
        let mut state = self.state();
        for (stripe, index, node, bad) in state.ledger.bad_copies()? {
            state.view.set_state(&stripe, index, node, bad);
        }
        if self.namenode.is_some() {
            for node in state.ledger.nodes()? {
                drop(state.view.assume_service(node.id)); // Reported later, together with everything else.
            }
        }
        Ok(())
    }

    /// Assumes that a newly registered node is in service.
    pub(super) fn assume_service(&self, node: NodeId) {
        if self.namenode.is_some() {
            let mut state = self.state();
            let change = state.view.assume_service(node);
            state.tell(change.into_iter().collect());
        }
    }

    /// Records the states of DataNodes.
    ///
    /// # Errors
    /// If the number of a new DataNode cannot be stored.
    pub(super) fn take_nodes(&self, listing: &Listing) -> Result<(), CatalogError> {
        let now = self.now();
        let mut state = self.state();
        let numbers = state.number(&self.attachment, &listing.nodes)?;
        let standings = numbers.iter().zip(&listing.nodes);
        let standings = standings.filter_map(|(&number, node)| Some((number, node.standing.clone()?)));
        let nodes = state.view.nodes();
        let (before, maintained_before) = (nodes.needed(), nodes.maintained());
        let mut changes = state.view.take_nodes(now, standings.collect());
        if !changes.is_empty() {
            self.look.notify_one();
        }
        let (needed, maintained) = (state.view.nodes().needed(), state.view.nodes().maintained());
        changes.extend((needed != before).then_some(StoreChange::Needed(needed)));
        if maintained != maintained_before {
            changes.insert(0, StoreChange::Maintained(maintained)); // Reported before a DataNode counts as down.
        }
        state.heard = now;
        if std::mem::take(&mut state.blind) {
            changes.push(StoreChange::Unlisted(None)); // Reported after the DataNodes that have died meanwhile.
        }
        state.tell(changes);
        Ok(())
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
        let listed = listing.groups.into_iter().map(|group| Listed {
            file: group.file,
            phase: group.phase,
            start: group.start,
            group: group.group,
            homes: group.homes.iter().map(|&(index, node)| (index, numbers[node])).collect(),
        });
        let changed = state.view.take_groups(now, asked, listed.collect(), all);
        let mut changes = state.view.tell(now, changed);
        changes.extend(state.view.tell_service());
        if all && state.unlisted.take().is_some() {
            changes.push(StoreChange::Unlisted(None)); // Reported after the stripes.
        }
        state.tell(changes);
        state.forget_marks()
    }

    /// Returns why HDFS has not been listed yet; `None` after the first listing.
    pub(super) fn unlisted(&self) -> Option<String> {
        self.state().unlisted.clone()
    }

    /// Reports the state of HDFS as unknown if the NameNode has not listed the DataNodes for some time.
    pub(super) fn tell_blindness(&self) {
        let now = self.now();
        let mut state = self.state();
        let silence = now.saturating_sub(state.heard);
        if silence < BLIND_AFTER || state.blind || state.unlisted.is_some() {
            return;
        }
        state.blind = true;
        let error = state.troubles.get(ASKING).and_then(|lines| lines.first());
        let why = match error {
            Some(error) => error.clone(),
            None => format!("the NameNode has not answered for {} s", silence.as_secs()),
        };
        state.tell(vec![StoreChange::Unlisted(Some(why))]);
    }

    /// Reports the progress of the first listing.
    pub(super) fn note_progress(&self, progress: Progress) {
        let mut state = self.state();
        if state.unlisted.is_some() {
            let Progress { folders, files } = progress;
            let why = format!("{UNLISTED}: {folders} folders and {files} files are listed so far");
            state.tell(vec![StoreChange::Unlisted(Some(why.clone()))]);
            state.unlisted = Some(why);
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
            groups.extend(shared.view.set_state(stripe, *index, *node, *state));
        }
        let changes = shared.view.tell(now, groups);
        shared.tell(changes);
        Ok(())
    }
}
