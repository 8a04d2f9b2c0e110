//! Repairs and their items. Each item is indexed by what it does or waits for.
//!
//! **Invariant:** an item is in exactly the index that belongs to its [`ItemPhase`] (the queue, a timer, or
//! its repair's set of running items or of items set aside), and its repair's counters count it under that
//! phase. Only [`Backlog::put`] changes a phase. The resource that a queued item lacks does not change.
//!
//! Out of scope: choosing the phase. That depends on stripes and nodes, and the scheduler decides it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Unbounded};
use std::time::Duration;

use repair::{JobId, Resource};

use super::item::{Counters, Item, ItemId, ItemPhase, LateJobs, NewItem, Prepared, RepairSpec, Stopping};
use super::nodes::{Booking, NodeNo, NodeTable};
use super::queue::Key;
use super::{RepairId, RepairState};

#[derive(Debug)]
pub(super) struct Repair {
    pub spec: RepairSpec,
    pub counters: Counters,
    /// The bytes that a node receives per byte of a rebuilt block that it stores, by the plan of the repair's
    /// last rebuild. Before the first rebuild, 1.
    pub brought: f64,
    pub paused: bool,
    pub cancelled: bool,
    items: Vec<u32>,
    aside: BTreeSet<u32>,
    running: BTreeSet<u32>,
    /// Number of queued items.
    queued: u64,
    /// The queued items whose last plan lacked room.
    refused: BTreeSet<u32>,
    /// No further items will be added.
    closed: bool,
    ended: bool,
}

/// All repairs and their items, with the items indexed by phase. See the module documentation.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    items: Vec<Option<Item>>,
    free: Vec<u32>,
    repairs: BTreeMap<RepairId, Repair>,
    queue: BTreeSet<Key>,
    timers: BTreeSet<(Duration, u32)>,
    /// Deadlines of running jobs, with the items of these jobs.
    dues: BTreeSet<(Duration, u32)>,
    /// Repairs that [`next_finished`](Self::next_finished) has to check, because the repair was closed or
    /// cancelled, or one of its items has ended or was set aside.
    stirred: BTreeSet<RepairId>,
    /// Number of items added so far.
    sequence: u64,
}

impl Backlog {
    pub fn item(&self, no: u32) -> &Item {
        self.items[no as usize].as_ref().expect("its repair is not forgotten")
    }

    /// Whether an item has not ended, and its repair is not forgotten.
    pub fn is_open(&self, no: u32) -> bool {
        let item = self.items.get(no as usize).and_then(Option::as_ref);
        item.is_some_and(|item| item.phase.end().is_none())
    }

    /// Returns mutable access to an item. Its phase must only be changed by [`put`](Self::put).
    pub fn item_mut(&mut self, no: u32) -> &mut Item {
        self.items[no as usize].as_mut().expect("its repair is not forgotten")
    }

    /// Returns the repair that an item belongs to.
    pub fn repair_of(&self, no: u32) -> &Repair {
        &self.repairs[&self.item(no).repair]
    }

    /// Asserts that an item is proposed.
    ///
    /// # Panics
    /// If the item is not proposed.
    pub fn assert_proposed(&self, item: ItemId) {
        assert!(matches!(self.item(item.0).phase, ItemPhase::Proposed), "{item} was not proposed");
    }

    // ---- repairs ----

    pub fn open(&mut self, id: RepairId, spec: RepairSpec) {
        let repair = Repair {
            spec,
            counters: Counters::default(),
            brought: 1.0,
            paused: false,
            cancelled: false,
            items: Vec::new(),
            aside: BTreeSet::new(),
            running: BTreeSet::new(),
            queued: 0,
            refused: BTreeSet::new(),
            closed: false,
            ended: false,
        };
        assert!(self.repairs.insert(id, repair).is_none(), "repair {id} is opened once");
    }

    /// Adds an item to an open repair, in the phase [`ItemPhase::Held`].
    pub fn push(&mut self, repair: RepairId, stripe: u32, new: NewItem) -> u32 {
        self.sequence += 1;
        let item = Item {
            repair,
            stripe,
            sequence: self.sequence,
            kind: new.kind,
            only: new.only,
            phase: ItemPhase::Held,
            failures: 0,
            rounds: 0,
            not_before: None,
            lack: None,
            stopping: Stopping::No,
            due: None,
            late: LateJobs::default(),
            prepared: Prepared::default(),
            sat_out: None,
        };
        let no = self.free.pop().unwrap_or_else(|| {
            self.items.push(None);
            self.items.len() as u32 - 1
        });
        self.items[no as usize] = Some(item);
        let repair = self.repairs.get_mut(&repair).expect("the repair is open");
        repair.items.push(no);
        repair.counters.waiting += 1;
        no
    }

    /// Marks a repair as complete: no further items will be added.
    pub fn close(&mut self, id: RepairId) {
        if let Some(repair) = self.repairs.get_mut(&id) {
            repair.closed = true;
            self.stirred.insert(id);
        }
    }

    /// Marks a repair as cancelled and returns its items. The list is empty if the repair is unknown or has
    /// ended.
    pub fn cancel(&mut self, id: RepairId) -> Vec<u32> {
        let open = self.repairs.get_mut(&id).filter(|repair| !repair.ended);
        let Some(repair) = open else { return Vec::new() };
        (repair.cancelled, repair.closed) = (true, true);
        self.stirred.insert(id);
        repair.items.clone()
    }

    /// Pauses or resumes a repair. Returns whether the repair exists.
    pub fn set_paused(&mut self, id: RepairId, paused: bool) -> bool {
        let repair = self.repairs.get_mut(&id);
        repair.map(|repair| repair.paused = paused).is_some()
    }

    /// Drops a repair and its items if it has ended.
    pub fn forget(&mut self, id: RepairId) {
        if self.repairs.get(&id).is_some_and(|repair| repair.ended) {
            let repair = self.repairs.remove(&id).expect("just seen");
            repair.items.iter().for_each(|&no| self.items[no as usize] = None);
            self.free.extend(repair.items);
        }
    }

    /// Returns a repair to which no more items will be added and whose remaining items are all set aside,
    /// together with the remaining items.
    ///
    /// The same repair is returned again only after another of its items has ended or was set aside.
    pub fn next_finished(&mut self) -> Option<(RepairId, Vec<u32>)> {
        while let Some(id) = self.stirred.pop_first() {
            let Some(repair) = self.repairs.get(&id) else { continue };
            let aside = repair.aside.len() as u64;
            if !repair.ended && repair.closed && repair.counters.open() <= aside {
                return Some((id, repair.aside.iter().copied().collect()));
            }
        }
        None
    }

    /// Marks a repair as ended. None of its items may be open.
    pub fn end(&mut self, id: RepairId) {
        self.stirred.remove(&id);
        self.repairs.get_mut(&id).expect("it is not forgotten").ended = true;
    }

    pub fn state(&self, id: RepairId) -> Option<RepairState> {
        self.repairs.get(&id).map(|repair| RepairState {
            counters: repair.counters,
            paused: repair.paused,
            cancelled: repair.cancelled,
            ended: repair.ended,
        })
    }

    /// Returns the running items of a repair and their jobs.
    pub fn running(&self, id: RepairId) -> impl Iterator<Item = (ItemId, JobId)> + '_ {
        let running = self.repairs.get(&id).into_iter().flat_map(|repair| &repair.running);
        running.filter_map(|&no| match self.item(no).phase {
            ItemPhase::Running(job, _) => Some((ItemId(no), job)),
            _ => None,
        })
    }

    /// Records how many bytes the node that stores a rebuilt block receives per byte of the block, for the
    /// repair of this item.
    pub fn note_brought(&mut self, no: u32, brought: f64) {
        let repair = self.item(no).repair;
        self.repairs.get_mut(&repair).expect("its items are open").brought = brought;
    }

    /// Returns the resource that limits a repair now. `None` if the repair is paused or has no queued item.
    ///
    /// Most refused items were refused because this resource had no room for their plans. If no item was
    /// refused, this is the resource with the largest reserved share.
    pub fn limited_by(&self, id: RepairId, table: &NodeTable) -> Option<Resource> {
        let repair = self.repairs.get(&id).filter(|repair| !repair.paused)?;
        let mut refused: BTreeMap<&Resource, u64> = BTreeMap::new();
        let lacks = repair.refused.iter().filter_map(|&no| self.item(no).lack.as_ref());
        for lack in lacks.filter(|lack| table.still_lacks(lack)) {
            *refused.entry(&lack.resource).or_default() += 1;
        }
        let most = refused.into_iter().max_by_key(|&(_, items)| items);
        let most = most.map(|(resource, _)| resource.clone());
        most.or_else(|| if repair.queued > 0 { table.fullest() } else { None })
    }

    // ---- phases ----

    /// Moves an item to another phase, updates the indexes, and returns the old phase.
    pub fn put(&mut self, no: u32, to: ItemPhase) -> ItemPhase {
        let item = self.items[no as usize].as_mut().expect("its repair is not forgotten");
        let from = std::mem::replace(&mut item.phase, ItemPhase::Held);
        let id = item.repair;
        let repair = self.repairs.get_mut(&id).expect("it has items");
        *repair.counters.of(&from) -= 1;
        *repair.counters.of(&to) += 1;
        match &from {
            ItemPhase::Queued(key) => {
                self.queue.remove(key);
                repair.queued -= 1;
                repair.refused.remove(&no);
            }
            ItemPhase::Aside => drop(repair.aside.remove(&no)),
            ItemPhase::BackingOff(at) => drop(self.timers.remove(&(*at, no))),
            ItemPhase::Running(..) => {
                repair.running.remove(&no);
                if let Some(due) = item.due.take() {
                    self.dues.remove(&(due, no));
                }
            }
            ItemPhase::Held | ItemPhase::Proposed | ItemPhase::Ended(_) => {}
        }
        match &to {
            ItemPhase::Queued(key) => {
                self.queue.insert(*key);
                repair.queued += 1;
                if item.lack.is_some() {
                    repair.refused.insert(no);
                }
            }
            ItemPhase::Aside => {
                repair.aside.insert(no);
                self.stirred.insert(id);
            }
            ItemPhase::BackingOff(at) => drop(self.timers.insert((*at, no))),
            ItemPhase::Running(..) => drop(repair.running.insert(no)),
            ItemPhase::Held | ItemPhase::Proposed => {}
            ItemPhase::Ended(_) => drop(self.stirred.insert(id)),
        }
        item.phase = to;
        from
    }

    /// Returns the reservation of an item's job, if the item has a job.
    pub fn booking(&self, no: u32) -> Option<&Booking> {
        match &self.item(no).phase {
            ItemPhase::Running(_, booking) => Some(booking),
            _ => None,
        }
    }

    /// Returns mutable access to the reservation of an item's job, so that it can be replaced.
    pub fn booking_mut(&mut self, no: u32) -> Option<&mut Booking> {
        match &mut self.item_mut(no).phase {
            ItemPhase::Running(_, booking) => Some(booking),
            _ => None,
        }
    }

    /// Whether the item's job stores something at a node.
    pub fn stores_at(&self, no: u32, node: NodeNo) -> bool {
        self.booking(no).is_some_and(|booking| booking.stores_at(node))
    }

    /// Returns the most urgent queued item; with `after`, the most urgent item that comes after it in the
    /// queue.
    pub fn next(&self, after: Option<Key>) -> Option<Key> {
        match after {
            None => self.queue.first().copied(),
            Some(after) => self.queue.range((Excluded(after), Unbounded)).next().copied(),
        }
    }

    // ---- time ----

    /// Removes and returns an item whose back-off has passed.
    pub fn next_timer(&mut self, now: Duration) -> Option<u32> {
        let &(at, no) = self.timers.first().filter(|(at, _)| *at <= now)?;
        self.timers.remove(&(at, no));
        Some(no)
    }

    /// Sets the deadline of an item's job, and replaces any earlier deadline.
    pub fn set_due(&mut self, no: u32, due: Duration) {
        self.forget_due(no);
        if let ItemPhase::Running(..) = self.item(no).phase {
            self.item_mut(no).due = Some(due);
            self.dues.insert((due, no));
        }
    }

    pub fn forget_due(&mut self, no: u32) {
        if let Some(due) = self.item_mut(no).due.take() {
            self.dues.remove(&(due, no));
        }
    }

    /// Returns a late job that has to be cancelled. Each job is returned once, and all nodes of the job are
    /// then treated as slow. A job that has delivered a block is not returned.
    ///
    /// An item whose jobs were late `attempts` times gets no further deadline: its next job may take any
    /// time.
    pub fn next_late(&mut self, now: Duration, attempts: u32) -> Option<JobId> {
        while let Some(&(_, no)) = self.dues.first().filter(|&&(at, _)| at <= now) {
            self.forget_due(no);
            let item = self.item_mut(no);
            let ItemPhase::Running(job, booking) = &item.phase else { continue };
            if item.stopping != Stopping::No || item.late.count >= attempts || booking.has_delivered() {
                continue;
            }
            let job = *job;
            item.late.nodes.extend(booking.nodes());
            item.late.count += 1;
            item.stop(Stopping::Requeue);
            return Some(job);
        }
        None
    }

    /// Returns the earliest time at which a back-off or a deadline ends.
    pub fn wakes_at(&self) -> Option<Duration> {
        let (timer, due) = (self.timers.first(), self.dues.first());
        timer.into_iter().chain(due).map(|&(at, _)| at).min()
    }
}
