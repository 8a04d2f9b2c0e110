//! Repairs and their items, each item indexed by what it does or waits for.
//!
//! **Always true:** an item is in the index of its [`ItemPhase`] (the queue, a timer, or its repair's sets of running items and
//! of those set aside) and in no other, and its repair counts it there. Only [`Backlog::put`] changes a place.
//!
//! Deliberately absent: which place is right for an item. The scheduler says so, as that depends on stripes and nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Unbounded};
use std::time::Duration;

use repair::{JobId, Resource};

use super::item::{Counters, Item, ItemId, ItemPhase, NewItem, RepairSpec};
use super::nodes::{Booking, NodeNo, NodeTable};
use super::queue::Key;
use super::{RepairId, RepairState};

#[derive(Debug)]
pub(super) struct Repair {
    pub spec: RepairSpec,
    pub counters: Counters,
    /// Bytes that its last rebuild brought to the node that keeps the block, for each byte of the block.
    pub brought: f64,
    pub paused: bool,
    pub cancelled: bool,
    items: Vec<u32>,
    aside: BTreeSet<u32>,
    running: BTreeSet<u32>,
    /// All its items are named.
    closed: bool,
    ended: bool,
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    items: Vec<Option<Item>>,
    free: Vec<u32>,
    repairs: BTreeMap<RepairId, Repair>,
    queue: BTreeSet<Key>,
    timers: BTreeSet<(Duration, u32)>,
    /// When jobs are late.
    dues: BTreeSet<(Duration, u32)>,
    /// Repairs of which an item has ended.
    stirred: BTreeSet<RepairId>,
    /// Items that were ever named.
    sequence: u64,
}

impl Backlog {
    pub fn item(&self, no: u32) -> &Item {
        self.items[no as usize].as_ref().expect("its repair is not forgotten")
    }

    /// An item, to change anything but its place.
    pub fn item_mut(&mut self, no: u32) -> &mut Item {
        self.items[no as usize].as_mut().expect("its repair is not forgotten")
    }

    /// The repair that an item belongs to.
    pub fn repair_of(&self, no: u32) -> &Repair {
        &self.repairs[&self.item(no).repair]
    }

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
            closed: false,
            ended: false,
        };
        assert!(self.repairs.insert(id, repair).is_none(), "repair {id} is opened once");
    }

    /// Adds an item, which is held, to a repair that is open.
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
            stopping: false,
            due: None,
            late: 0,
            slow: BTreeSet::new(),
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

    /// All items of a repair are named.
    pub fn close(&mut self, id: RepairId) {
        if let Some(repair) = self.repairs.get_mut(&id) {
            repair.closed = true;
            self.stirred.insert(id);
        }
    }

    /// Marks a repair as cancelled; returns its items. None if it has ended.
    pub fn cancel(&mut self, id: RepairId) -> Vec<u32> {
        let open = self.repairs.get_mut(&id).filter(|repair| !repair.ended);
        let Some(repair) = open else { return Vec::new() };
        (repair.cancelled, repair.closed) = (true, true);
        self.stirred.insert(id);
        repair.items.clone()
    }

    /// Returns whether there is such a repair.
    pub fn set_paused(&mut self, id: RepairId, paused: bool) -> bool {
        let repair = self.repairs.get_mut(&id);
        repair.map(|repair| repair.paused = paused).is_some()
    }

    /// Drops a repair that has ended.
    pub fn forget(&mut self, id: RepairId) {
        if self.repairs.get(&id).is_some_and(|repair| repair.ended) {
            let repair = self.repairs.remove(&id).expect("just seen");
            repair.items.iter().for_each(|&no| self.items[no as usize] = None);
            self.free.extend(repair.items);
        }
    }

    /// A repair all of whose open items are set aside, and these; each at most once until something of it ends.
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

    /// Ends a repair of which no item is open any more.
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

    /// The items of a repair on which a job works, and the jobs.
    pub fn running(&self, id: RepairId) -> impl Iterator<Item = (ItemId, JobId)> + '_ {
        let running = self.repairs.get(&id).into_iter().flat_map(|repair| &repair.running);
        running.filter_map(|&no| match self.item(no).phase {
            ItemPhase::Running(job, _) => Some((ItemId(no), job)),
            _ => None,
        })
    }

    /// Notes what a rebuild of an item's repair brings to its taker.
    pub fn note_brought(&mut self, no: u32, brought: f64) {
        let repair = self.item(no).repair;
        self.repairs.get_mut(&repair).expect("its items are open").brought = brought;
    }

    /// What limits a repair now: the resource that most of its waiting items were refused; else, if anything waits,
    /// the resource of which most is reserved. `None` if nothing waits for room.
    pub fn limited_by(&self, id: RepairId, table: &NodeTable) -> Option<Resource> {
        let repair = self.repairs.get(&id).filter(|repair| !repair.paused)?;
        let mut refused: BTreeMap<&Resource, u64> = BTreeMap::new();
        let mut waits = false;
        for item in repair.items.iter().filter_map(|&no| self.items[no as usize].as_ref()) {
            let ItemPhase::Queued(_) = item.phase else { continue };
            waits = true;
            if let Some(lack) = item.lack.as_ref().filter(|lack| table.still_lacks(lack)) {
                *refused.entry(&lack.resource).or_default() += 1;
            }
        }
        let most = refused.into_iter().max_by_key(|&(_, items)| items);
        let most = most.map(|(resource, _)| resource.clone());
        most.or_else(|| waits.then(|| table.fullest()).flatten())
    }

    // ---- places ----

    /// Moves an item from index to index; returns the place where it was.
    pub fn put(&mut self, no: u32, to: ItemPhase) -> ItemPhase {
        let item = self.items[no as usize].as_mut().expect("its repair is not forgotten");
        let from = std::mem::replace(&mut item.phase, ItemPhase::Held);
        let id = item.repair;
        let repair = self.repairs.get_mut(&id).expect("it has items");
        *repair.counters.of(&from) -= 1;
        *repair.counters.of(&to) += 1;
        match &from {
            ItemPhase::Queued(key) => drop(self.queue.remove(key)),
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
            ItemPhase::Queued(key) => drop(self.queue.insert(*key)),
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

    /// What the job of an item has reserved, if it has a job.
    pub fn booking(&self, no: u32) -> Option<&Booking> {
        match &self.item(no).phase {
            ItemPhase::Running(_, booking) => Some(booking),
            _ => None,
        }
    }

    /// The same, to be replaced.
    pub fn booking_mut(&mut self, no: u32) -> Option<&mut Booking> {
        match &mut self.item_mut(no).phase {
            ItemPhase::Running(_, booking) => Some(booking),
            _ => None,
        }
    }

    /// Whether the job of an item stores something at a node.
    pub fn stores_at(&self, no: u32, node: NodeNo) -> bool {
        self.booking(no).is_some_and(|booking| booking.stores_at(node))
    }

    /// The most urgent item in the queue, or the next one behind `after`.
    pub fn next(&self, after: Option<Key>) -> Option<Key> {
        match after {
            None => self.queue.first().copied(),
            Some(after) => self.queue.range((Excluded(after), Unbounded)).next().copied(),
        }
    }

    // ---- time ----

    /// An item that has backed off for long enough, each once.
    pub fn next_timer(&mut self, now: Duration) -> Option<u32> {
        let &(at, no) = self.timers.first().filter(|(at, _)| *at <= now)?;
        self.timers.remove(&(at, no));
        Some(no)
    }

    /// Sets when the job of an item is late, in place of what was set before.
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

    /// A job that is late and is to be called off, each once. All its nodes count as slow. After so many `attempts` an
    /// item's job may take as long as it does.
    pub fn next_late(&mut self, now: Duration, attempts: u32) -> Option<JobId> {
        while let Some(&(_, no)) = self.dues.first().filter(|&&(at, _)| at <= now) {
            self.forget_due(no);
            let item = self.item_mut(no);
            let ItemPhase::Running(job, booking) = &item.phase else { continue };
            if item.stopping || item.late >= attempts {
                continue;
            }
            let job = *job;
            item.slow.extend(booking.nodes());
            item.late += 1;
            item.stopping = true;
            return Some(job);
        }
        None
    }

    /// When the next timer or due is.
    pub fn wakes_at(&self) -> Option<Duration> {
        let (timer, due) = (self.timers.first(), self.dues.first());
        timer.into_iter().chain(due).map(|&(at, _)| at).min()
    }
}
