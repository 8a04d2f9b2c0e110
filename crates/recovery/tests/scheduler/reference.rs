//! Compares the scheduler with a slow reference implementation that keeps no sorted queue: at every event,
//! the reference examines all items anew, sorts them, and walks over all of them.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::Duration;

use codes::{BlockIndex, CodeSpec};
use proptest::prelude::*;
use recovery::{
    Action, BlockFacts, Budget, CopyState, End, Failure, HelperPolicy, ItemId, Kind, Limits, Loads, NewItem,
    NodeFacts, Proposal, RepairId, RepairSpec, ReservationId, Scheduler,
};
use repair::{Accepts, JobId, NodeId, Resource, StripeId, Wanted};

use crate::scheduler_test::{BLOCK, chain};

const NODES: u32 = 9;
const STRIPES: u32 = 10;
const DATA_BLOCKS: usize = 2;
const BLOCKS: usize = 4;

fn limits() -> Limits {
    Limits { look_ahead: 4, look_past: 10, attempts: 3, rounds: 3, blocks_ahead: 0, ..Limits::default() }
}

// ---- the reference ----

#[derive(Clone, Copy, PartialEq)]
enum State {
    Waiting,
    Running(JobId),
    Ended(End),
}

struct Item {
    id: ItemId,
    repair: RepairId,
    stripe: u32,
    only: Option<BlockIndex>,
    kind: Kind,
    state: State,
    failures: u32,
    rounds: u32,
    stopping: bool,
    /// Whether the item's job has delivered a block.
    delivered: bool,
    not_before: Duration,
    lack: Option<Lack>,
    /// The nodes that were prepared for the item's blocks.
    prepared: Vec<Wanted>,
    /// Whether room is reserved there.
    is_reserved: bool,
}

/// A node's resource that has too little room, and the amount needed.
type Lack = (Resource, u64);

struct Repair {
    paused: bool,
    cancelled: bool,
    ended: bool,
    policy: HelperPolicy,
    /// The only nodes that may get blocks; if empty, any node may.
    requestors: Vec<NodeId>,
}

/// The reason for which an item has no room.
enum Wait {
    Helpers,
    /// Room at these nodes; if empty, at any node.
    Requestors(Vec<NodeId>),
}

type Class = u32;

#[derive(Default)]
struct Slow {
    nodes: BTreeMap<NodeId, NodeFacts>,
    stripes: BTreeMap<u32, Vec<BlockFacts>>,
    items: Vec<Item>,
    repairs: BTreeMap<RepairId, Repair>,
    holds: BTreeMap<u32, u32>,
    moving: BTreeMap<u64, Loads>,
    /// The loads of foreground reads, which get at most half of each budget.
    reads: BTreeMap<u64, Loads>,
    helped: Vec<BTreeSet<NodeId>>,
    received: BTreeMap<NodeId, u64>,
    claims: BTreeMap<NodeId, Class>,
    now: Duration,
}

impl Slow {
    fn alive(&self, node: NodeId) -> bool {
        self.nodes[&node].alive
    }

    fn survivors(&self, stripe: u32) -> Vec<(BlockIndex, NodeId)> {
        let blocks = self.stripes[&stripe].iter().zip(0..);
        let good =
            blocks.filter(|(facts, _)| facts.copy == CopyState::Good && self.alive(facts.node.unwrap()));
        good.map(|(facts, index)| (BlockIndex(index), facts.node.unwrap())).collect()
    }

    /// Returns the kinds to try for an item, in order.
    fn ways(&self, item: &Item) -> Vec<Kind> {
        let others = |from| self.survivors(item.stripe).iter().filter(|&&(_, node)| node != from).count();
        match self.kind(item) {
            Kind::Rebuild { from } if others(from) < DATA_BLOCKS => vec![Kind::Migrate { from }],
            Kind::Drain { from } if others(from) < DATA_BLOCKS => vec![Kind::Migrate { from }],
            Kind::Drain { from } if !self.copying_keeps_up(item, from) => vec![Kind::Rebuild { from }],
            Kind::Drain { from } => vec![Kind::Migrate { from }, Kind::Rebuild { from }],
            kind => vec![kind],
        }
    }

    /// Whether copying the item's block ends no later than the other nodes finish rebuilding all waiting
    /// blocks. All nodes are equally fast, and any of them may store blocks.
    fn copying_keeps_up(&self, item: &Item, from: NodeId) -> bool {
        let under_way = |node| {
            let used = self.used(node);
            used.up_bytes.max(used.down_bytes)
        };
        let waits = |other: &&Item| other.repair == item.repair && other.state == State::Waiting;
        let waiting = self.items.iter().filter(waits).count();
        let survivors = self.survivors(item.stripe).into_iter().map(|(_, node)| node);
        let others: Vec<NodeId> = survivors.filter(|&node| node != from).collect();
        // Running jobs of the other nodes are assumed to be half done. Both sides of the comparison are
        // multiplied by the common denominator to stay in whole numbers.
        let asked = |node| self.waiting_stripes(node).min(waiting) as u64 * DATA_BLOCKS as u64 * BLOCK;
        let sent: u64 =
            others.iter().map(|&node| under_way(node) * others.len() as u64 + 2 * asked(node)).sum();
        let copy = under_way(from) + BLOCK;
        copy <= BLOCK || 2 * copy * (others.len() * others.len()) as u64 <= sent
    }

    /// Returns the number of stripes with a block on a node and with open items, none of them running.
    fn waiting_stripes(&self, node: NodeId) -> usize {
        let open = |stripe: u32| {
            let mut items = self.items.iter().filter(|item| item.stripe == stripe);
            items.any(|item| !matches!(item.state, State::Ended(_)))
        };
        let runs = |stripe: u32| {
            let mut items = self.items.iter().filter(|item| item.stripe == stripe);
            items.any(|item| matches!(item.state, State::Running(_)))
        };
        let here =
            self.stripes.iter().filter(|(_, blocks)| blocks.iter().any(|facts| facts.node == Some(node)));
        here.filter(|&(&stripe, _)| open(stripe) && !runs(stripe)).count()
    }

    fn kind(&self, item: &Item) -> Kind {
        let Some(from) = item.kind.leaves() else { return Kind::Reconstruct };
        let has = self.survivors(item.stripe).iter().any(|&(_, node)| node == from);
        if has { item.kind } else { Kind::Reconstruct }
    }

    fn wanted(&self, item: &Item) -> Vec<BlockIndex> {
        let survivors = self.survivors(item.stripe);
        let mut wanted: Vec<BlockIndex> = (0..BLOCKS as u16).map(BlockIndex).collect();
        match self.kind(item).leaves() {
            None => wanted.retain(|&index| survivors.iter().all(|&(other, _)| other != index)),
            Some(from) => {
                wanted.retain(|index| self.stripes[&item.stripe][usize::from(index.0)].node == Some(from));
            }
        }
        wanted.retain(|&index| item.only.is_none_or(|only| only == index));
        wanted
    }

    fn class(&self, item: &Item) -> Option<Class> {
        let survives = self.survivors(item.stripe).len().checked_sub(DATA_BLOCKS);
        match self.kind(item).leaves() {
            Some(_) => Some(survives.unwrap_or(0) as u32),
            None => survives.map(|survives| survives as u32),
        }
    }

    /// Marks the jobs to be stopped: those that have no wanted block left, because a node came back. A job that has
    /// delivered a block still has to read it back.
    fn stop_needless(&mut self) {
        for at in 0..self.items.len() {
            let item = &self.items[at];
            let runs = matches!(item.state, State::Running(_)) && !item.delivered;
            self.items[at].stopping |= runs && self.wanted(item).is_empty();
        }
    }

    /// Whether an item must not end as [`End::NothingLost`] yet: none of its jobs has succeeded, and its
    /// stripe is held.
    fn waits_to_end(&self, at: usize) -> bool {
        let item = &self.items[at];
        item.rounds == 0 && self.holds.get(&item.stripe).is_some_and(|&holds| holds > 0)
    }

    /// Ends items with nothing left to do.
    fn sweep(&mut self) {
        for at in 0..self.items.len() {
            let item = &self.items[at];
            if item.state == State::Waiting && self.wanted(item).is_empty() && !self.waits_to_end(at) {
                let end = if item.rounds > 0 { End::Repaired } else { End::NothingLost };
                self.items[at].state = State::Ended(end);
            }
        }
    }

    fn is_held(&self, item: &Item) -> bool {
        let busy = |other: &Item| other.stripe == item.stripe && matches!(other.state, State::Running(_));
        self.items.iter().any(busy) || self.holds.get(&item.stripe).is_some_and(|&holds| holds > 0)
    }

    fn is_aside(&self, item: &Item) -> bool {
        let waits = item.state == State::Waiting && item.not_before <= self.now;
        waits && !self.is_held(item) && self.class(item).is_none()
    }

    fn end_repairs(&mut self) {
        let ids: Vec<RepairId> = self.repairs.keys().copied().collect();
        for id in ids {
            let open: Vec<usize> = (0..self.items.len())
                .filter(|&at| self.items[at].repair == id && !matches!(self.items[at].state, State::Ended(_)))
                .collect();
            if open.iter().all(|&at| self.is_aside(&self.items[at])) {
                for at in open {
                    let lost = (BLOCKS - self.survivors(self.items[at].stripe).len()) as u16;
                    self.items[at].state = State::Ended(End::Unreadable { lost });
                }
                self.repairs.get_mut(&id).unwrap().ended = true;
            }
        }
    }

    fn used(&self, node: NodeId) -> Budget {
        let budget = self.nodes[&node].budget;
        let mut used = Budget::default();
        for load in self.reads.values().flat_map(|loads| &loads.nodes).filter(|load| load.node == node) {
            used.jobs = (used.jobs + 1).min(budget.jobs / 2);
            used.up_bytes = (used.up_bytes + load.sent_bytes).min(budget.up_bytes / 2);
            used.down_bytes = (used.down_bytes + load.received_bytes).min(budget.down_bytes / 2);
            used.disk_bytes = (used.disk_bytes + load.read_bytes).min(budget.disk_bytes / 2);
        }
        for load in self.moving.values().flat_map(|loads| &loads.nodes).filter(|load| load.node == node) {
            used.jobs += 1;
            used.up_bytes += load.sent_bytes.min(budget.up_bytes);
            used.down_bytes += load.received_bytes.min(budget.down_bytes);
            used.disk_bytes += (load.read_bytes + load.stored_bytes).min(budget.disk_bytes);
        }
        for bytes in self.reserved(node) {
            used.jobs += 1;
            used.down_bytes += bytes.min(budget.down_bytes);
            used.disk_bytes += bytes.min(budget.disk_bytes);
        }
        used
    }

    /// The reservations of repairs alone.
    fn moved(&self, node: NodeId) -> Budget {
        let mut moved = Budget::default();
        for load in self.moving.values().flat_map(|loads| &loads.nodes).filter(|load| load.node == node) {
            moved.up_bytes += load.sent_bytes;
            moved.down_bytes += load.received_bytes;
            moved.disk_bytes += load.read_bytes + load.stored_bytes;
        }
        for bytes in self.reserved(node) {
            moved.down_bytes += bytes;
            moved.disk_bytes += bytes;
        }
        moved
    }

    fn coming(&self, node: NodeId) -> Vec<u64> {
        let loads = self.moving.values().flat_map(|loads| &loads.nodes).filter(|load| load.node == node);
        let stored = loads.map(|load| load.stored_bytes).filter(|&bytes| bytes > 0);
        stored.chain(self.reserved(node)).collect()
    }

    /// Returns the blocks for which room is reserved while nodes are prepared.
    fn reserved(&self, node: NodeId) -> impl Iterator<Item = u64> {
        let open = |item: &&Item| item.is_reserved && !matches!(item.state, State::Ended(_));
        let wanted = self.items.iter().filter(open).flat_map(|item| &item.prepared);
        wanted.filter(move |wanted| wanted.requestor == node).map(|_| BLOCK)
    }

    fn has_room(&self, node: NodeId, up: u64, down: u64, disk: u64) -> bool {
        self.used(node).jobs < self.nodes[&node].budget.jobs && self.has_bytes(node, up, down, disk)
    }

    fn has_bytes(&self, node: NodeId, up: u64, down: u64, disk: u64) -> bool {
        let (used, moved, budget) = (self.used(node), self.moved(node), self.nodes[&node].budget);
        let fits = |used: u64, moved: u64, need: u64, budget: u64| {
            need == 0 || moved == 0 || used + need.min(budget) <= budget
        };
        fits(used.up_bytes, moved.up_bytes, up, budget.up_bytes)
            && fits(used.down_bytes, moved.down_bytes, down, budget.down_bytes)
            && fits(used.disk_bytes, moved.disk_bytes, disk, budget.disk_bytes)
    }

    fn is_claimed(&self, node: NodeId, class: Class) -> bool {
        self.claims.get(&node).is_some_and(|&other| other < class)
    }

    fn still_lacks(&self, (resource, need): &Lack) -> bool {
        match *resource {
            Resource::Jobs(node) => self.used(node).jobs >= self.nodes[&node].budget.jobs,
            Resource::Uplink(node) => !self.has_bytes(node, *need, 0, 0),
            Resource::Downlink(node) => !self.has_bytes(node, 0, *need, 0),
            Resource::Disk(node) => !self.has_bytes(node, 0, 0, *need),
            _ => unreachable!("only nodes have bounds here"),
        }
    }

    fn have_room(&self, loads: &Loads) -> bool {
        loads.nodes.iter().all(|load| {
            let disk = load.read_bytes + load.stored_bytes;
            self.has_room(load.node, load.sent_bytes, load.received_bytes, disk)
        })
    }

    /// Returns the next item to start.
    fn next(&mut self) -> Option<(ItemId, Kind, Vec<Wanted>, Vec<NodeId>)> {
        self.claims.clear();
        let mut queue: Vec<_> = (0..self.items.len())
            .filter(|&at| self.items[at].state == State::Waiting)
            .filter(|&at| self.items[at].not_before <= self.now && !self.is_held(&self.items[at]))
            .filter_map(|at| {
                let item = &self.items[at];
                let survivors = self.survivors(item.stripe).len();
                Some((self.class(item)?, survivors, item.repair, at))
            })
            .collect();
        queue.sort();
        let (mut blocked, mut at_nodes, mut closed) = (0, 0, None);
        let mut in_runs: BTreeMap<(Class, usize, RepairId), usize> = BTreeMap::new();
        for (class, survivors, repair, at) in queue {
            if closed.is_some_and(|closed| closed < class)
                || blocked == limits().look_ahead
                || at_nodes == limits().look_past
            {
                break;
            }
            let in_run = in_runs.entry((class, survivors, repair)).or_default();
            if self.repairs[&repair].paused || *in_run == limits().look_ahead {
                continue;
            }
            let item = &self.items[at];
            let survivors = self.survivors(item.stripe).into_iter().map(|(_, node)| node);
            let (waits_at_nodes, claimed): (bool, Vec<NodeId>) = match self.try_item(item, class) {
                Ok((kind, wanted)) => {
                    return Some((item.id, kind, wanted, self.helpers(item, kind, class)));
                }
                Err(Wait::Helpers) => match self.kind(item) {
                    Kind::Migrate { from } => (true, [vec![from], self.certain(item)].concat()),
                    _ => (false, survivors.chain(self.certain(item)).collect()),
                },
                Err(Wait::Requestors(nodes)) if nodes.is_empty() => {
                    closed = closed.or(Some(class));
                    (false, survivors.collect())
                }
                Err(Wait::Requestors(nodes)) => (true, nodes),
            };
            if waits_at_nodes {
                at_nodes += 1;
                *in_run += 1;
            } else {
                blocked += 1;
            }
            for node in claimed {
                self.claims.entry(node).or_insert(class);
            }
        }
        None
    }

    fn sources(&self, item: &Item, kind: Kind) -> Vec<(BlockIndex, NodeId)> {
        let mut sources = self.survivors(item.stripe);
        match kind {
            Kind::Migrate { from } => sources.retain(|&(_, node)| node == from),
            Kind::Rebuild { from } => sources.retain(|&(_, node)| node != from),
            _ => {}
        }
        sources
    }

    fn can_help(&self, node: NodeId, class: Class) -> bool {
        self.has_room(node, BLOCK, 0, BLOCK) && !self.is_claimed(node, class)
    }

    fn helpers(&self, item: &Item, kind: Kind, class: Class) -> Vec<NodeId> {
        let last = |node: NodeId| self.helped.iter().rposition(|helpers| helpers.contains(&node));
        let mut sources = self.sources(item, kind);
        sources.sort_by_key(|&(block, node)| match self.repairs[&item.repair].policy {
            HelperPolicy::LeastRecentlyUsed => (!self.can_help(node, class), last(node), block),
            _ => (!self.can_help(node, class), None, block),
        });
        sources.into_iter().map(|(_, node)| node).collect()
    }

    /// Returns the kind of an item and the requestors of its blocks, if the item can start.
    fn try_item(&self, item: &Item, class: Class) -> Result<(Kind, Vec<Wanted>), Wait> {
        if let Some(lack) = item.lack.as_ref().filter(|lack| self.still_lacks(lack)) {
            let allowed = &self.repairs[&item.repair].requestors;
            let is_allowed = lack.0.node().is_some_and(|node| allowed.contains(&node));
            return Err(if is_allowed { Wait::Requestors(allowed.clone()) } else { Wait::Helpers });
        }
        for kind in self.ways(item) {
            let needed = if matches!(kind, Kind::Migrate { .. }) { 1 } else { DATA_BLOCKS };
            let sources = self.sources(item, kind);
            let free = sources.iter().filter(|&&(_, node)| self.can_help(node, class)).count();
            if sources.len() < needed || free >= needed {
                let wanted = self.requestors(item, class).map_err(Wait::Requestors)?;
                return Ok((kind, wanted));
            }
        }
        Err(Wait::Helpers)
    }

    /// Whether a node may get a block of an item, now or when it has room.
    fn takes(&self, item: &Item, node: NodeId) -> bool {
        let (facts, allowed) = (&self.nodes[&node], &self.repairs[&item.repair].requestors);
        let leaving = item.kind.leaves() == Some(node);
        let is_allowed = allowed.is_empty() || allowed.contains(&node);
        facts.alive
            && !leaving
            && is_allowed
            && facts.free_bytes >= BLOCK + self.coming(node).iter().sum::<u64>()
    }

    /// Returns the nodes to which blocks of an item must go: their old nodes, or for blocks that move the nodes that the
    /// repair names.
    fn certain(&self, item: &Item) -> Vec<NodeId> {
        let home = |block: BlockIndex| self.stripes[&item.stripe][usize::from(block.0)].node.unwrap();
        let homes = self.wanted(item).into_iter().map(home);
        let (mut nodes, moving): (Vec<NodeId>, Vec<NodeId>) = homes.partition(|&home| self.takes(item, home));
        if !moving.is_empty() {
            nodes.extend(&self.repairs[&item.repair].requestors);
        }
        nodes
    }

    /// Returns the requestors of an item's blocks, or the nodes that the blocks wait for. Blocks that move go to the nodes
    /// that were prepared for them, if these have room.
    fn requestors(&self, item: &Item, class: Class) -> Result<Vec<Wanted>, Vec<NodeId>> {
        let blocks = &self.stripes[&item.stripe];
        let takes = |node: NodeId| self.takes(item, node);
        let free = |node: NodeId| self.has_room(node, 0, BLOCK, BLOCK) && !self.is_claimed(node, class);
        let mut chosen: Vec<Wanted> = Vec::new();
        let wanted = self.wanted(item);
        let home = |block: BlockIndex| blocks[usize::from(block.0)].node.unwrap();
        for &block in wanted.iter().filter(|&&block| takes(home(block))) {
            chosen.push(Wanted { block, requestor: home(block) });
        }
        if chosen.iter().any(|wanted| !free(wanted.requestor)) {
            return Err(self.certain(item));
        }
        let holders = self.survivors(item.stripe).into_iter().map(|(_, node)| node);
        let mut near: Vec<NodeFacts> = holders.map(|node| self.nodes[&node].clone()).collect();
        let (ready, moving): (Vec<BlockIndex>, Vec<BlockIndex>) =
            wanted.into_iter().filter(|&block| !takes(home(block))).partition(|&block| {
                let node = item.prepared.iter().find(|it| it.block == block).map(|it| it.requestor);
                node.is_some_and(|node| {
                    takes(node) && free(node) && blocks.iter().all(|facts| facts.node != Some(node))
                })
            });
        for block in ready {
            let prepared = *item.prepared.iter().find(|it| it.block == block).expect("just seen");
            near.push(self.nodes[&prepared.requestor].clone());
            chosen.push(prepared);
        }
        for block in moving {
            let unused = self.nodes.keys().copied().filter(|&node| {
                takes(node)
                    && blocks.iter().all(|facts| facts.node != Some(node))
                    && chosen.iter().all(|wanted| wanted.requestor != node)
            });
            let Some(requestor) = unused.min_by_key(|&node| {
                let facts = &self.nodes[&node];
                let in_rack = near.iter().filter(|holder| holder.rack == facts.rack).count();
                let on_host = near.iter().filter(|holder| holder.host == facts.host).count();
                let used = facts.blocks + self.coming(node).len() as u64;
                (
                    in_rack,
                    on_host,
                    !free(node),
                    used,
                    self.received.get(&node).copied().unwrap_or(0),
                    Reverse(facts.free_bytes),
                    node,
                )
            }) else {
                break;
            };
            if !free(requestor) {
                let any_may_take = self.repairs[&item.repair].requestors.is_empty();
                return Err(if any_may_take { Vec::new() } else { self.certain(item) });
            }
            near.push(self.nodes[&requestor].clone());
            chosen.push(Wanted { block, requestor });
        }
        chosen.sort_by_key(|wanted| wanted.block);
        Ok(chosen)
    }
}

// ---- scheduler and reference, side by side ----

struct Pair {
    fast: Scheduler,
    slow: Slow,
    proposals: BTreeMap<JobId, Proposal>,
    reads: Vec<(ReservationId, u64)>,
    jobs: u64,
    repairs: u64,
    over: BTreeSet<RepairId>,
    ends: BTreeMap<ItemId, End>,
}

fn stripe_id(stripe: u32) -> StripeId {
    StripeId(stripe.to_string())
}

fn node_facts(node: u32) -> NodeFacts {
    NodeFacts {
        alive: true,
        rack: Some(format!("r{}", node % 4)),
        host: Some(format!("m{}", node % 12)),
        free_bytes: if node.is_multiple_of(5) { 2 * BLOCK } else { 100 * BLOCK },
        blocks: (node * 7 % 5).into(),
        budget: Budget { jobs: 2, up_bytes: 2 * BLOCK, down_bytes: 3 * BLOCK, disk_bytes: 2 * BLOCK },
        accepts: Accepts::All,
    }
}

impl Pair {
    fn new() -> Self {
        let mut pair = Self {
            fast: Scheduler::new(limits()),
            slow: Slow::default(),
            proposals: BTreeMap::new(),
            reads: Vec::new(),
            jobs: 0,
            repairs: 0,
            over: BTreeSet::new(),
            ends: BTreeMap::new(),
        };
        for node in 1..=NODES {
            pair.fast.set_node(NodeId(node), node_facts(node));
            pair.slow.nodes.insert(NodeId(node), node_facts(node));
        }
        for stripe in 0..STRIPES {
            let facts = |at: u32| BlockFacts {
                node: Some(NodeId(1 + (stripe * 5 + at * (1 + stripe % 2)) % NODES)),
                copy: CopyState::Good,
            };
            pair.slow.stripes.insert(stripe, (0..BLOCKS as u32).map(facts).collect());
        }
        pair
    }

    fn happen(&mut self, event: &Event) {
        match *event {
            Event::Repair { ref stripes, only, ref spec, kind } => {
                self.repair(stripes.clone(), only, spec.clone(), kind);
            }
            Event::Node { node, alive } => {
                self.fast.handle_node(NodeId(node), alive);
                self.slow.nodes.get_mut(&NodeId(node)).unwrap().alive = alive;
                self.slow.sweep();
                self.slow.stop_needless();
            }
            Event::Bad { stripe, block } => {
                let node = self.slow.stripes[&stripe][usize::from(block)].node;
                self.set_block(stripe, BlockIndex(block), BlockFacts { node, copy: CopyState::Bad });
            }
            Event::Deliver(which) => self.with_job(which, Self::deliver),
            Event::Succeed(which) => self.with_job(which, Self::succeed),
            Event::Fail(which, failure) => self.with_job(which, |pair, job| pair.fail(job, failure)),
            Event::Hold(stripe) => {
                self.fast.hold(&stripe_id(stripe));
                *self.slow.holds.entry(stripe).or_default() += 1;
            }
            Event::LetGo(stripe) => {
                self.fast.let_go(&stripe_id(stripe));
                let holds = self.slow.holds.entry(stripe).or_default();
                *holds = holds.saturating_sub(1);
                self.slow.sweep();
            }
            Event::Pause(repair, paused) => {
                let Some(repair) = self.open_repair(repair) else { return };
                self.fast.set_paused(repair, paused);
                self.slow.repairs.get_mut(&repair).unwrap().paused = paused;
            }
            Event::Cancel(repair) => {
                let Some(repair) = self.open_repair(repair) else { return };
                self.fast.cancel(repair);
                self.slow.repairs.get_mut(&repair).unwrap().cancelled = true;
                for item in self.slow.items.iter_mut().filter(|item| item.repair == repair) {
                    if item.state == State::Waiting {
                        item.state = State::Ended(End::Cancelled);
                    }
                }
            }
            Event::Withdraw(which) => {
                let Some(at) = self.prepared(which) else { return };
                self.fast.preparation(self.slow.items[at].id).withdraw();
                (self.slow.items[at].prepared, self.slow.items[at].is_reserved) = (Vec::new(), false);
            }
            Event::Prepared(which) => {
                let Some(at) = self.prepared(which) else { return };
                let item = &mut self.slow.items[at];
                self.fast.preparation(item.id).end();
                self.fast.let_go(&stripe_id(item.stripe));
                item.is_reserved = false;
                let holds = self.slow.holds.entry(item.stripe).or_default();
                *holds = holds.saturating_sub(1);
                self.slow.sweep();
            }
            Event::Read { from, to } => self.read(from, to),
            Event::ReadEnds(which) => {
                if !self.reads.is_empty() {
                    let (id, key) = self.reads.remove(which % self.reads.len());
                    self.fast.release(id);
                    self.slow.reads.remove(&key);
                }
            }
            Event::Wait(ms) => self.slow.now += Duration::from_millis(ms),
        }
    }

    /// Returns an open item for which nodes are prepared.
    fn prepared(&self, which: usize) -> Option<usize> {
        let is_prepared = |&at: &usize| {
            let item = &self.slow.items[at];
            !item.prepared.is_empty() && !matches!(item.state, State::Ended(_))
        };
        let all: Vec<usize> = (0..self.slow.items.len()).filter(is_prepared).collect();
        all.get(which % all.len().max(1)).copied()
    }

    fn open_repair(&self, which: usize) -> Option<RepairId> {
        let open: Vec<RepairId> =
            self.slow.repairs.iter().filter(|(_, repair)| !repair.ended).map(|(&id, _)| id).collect();
        open.get(which % open.len().max(1)).copied()
    }

    fn repair(&mut self, stripes: Range<u32>, only: Option<u16>, spec: RepairSpec, kind: Kind) {
        self.repairs += 1;
        let id = RepairId(self.repairs);
        let (policy, requestors) = (spec.helpers, spec.requestors.clone());
        self.fast.open(id, spec);
        let repair = Repair { paused: false, cancelled: false, ended: false, policy, requestors };
        self.slow.repairs.insert(id, repair);
        for stripe in stripes.map(|stripe| stripe % STRIPES) {
            let only = only.map(BlockIndex);
            let item = self.fast.push(
                id,
                NewItem {
                    stripe: stripe_id(stripe),
                    code: "rs-4-2".parse::<CodeSpec>().unwrap().build().unwrap(),
                    block_bytes: BLOCK,
                    blocks: self.slow.stripes[&stripe].clone(),
                    kind,
                    only: only.into_iter().collect(),
                },
            );
            self.slow.items.push(Item {
                id: item,
                repair: id,
                stripe,
                only,
                kind,
                state: State::Waiting,
                failures: 0,
                rounds: 0,
                stopping: false,
                delivered: false,
                not_before: Duration::ZERO,
                lack: None,
                prepared: Vec::new(),
                is_reserved: false,
            });
        }
        self.fast.close(id);
        self.slow.sweep();
    }

    fn set_block(&mut self, stripe: u32, block: BlockIndex, facts: BlockFacts) {
        self.fast.handle_block(&stripe_id(stripe), block, facts);
        self.slow.stripes.get_mut(&stripe).unwrap()[usize::from(block.0)] = facts;
        self.slow.sweep();
    }

    fn read(&mut self, from: u32, to: u32) {
        let nodes = [(from, BLOCK, 0), (to, 0, BLOCK)];
        let mut loads = Loads::default();
        for (node, sent_bytes, received_bytes) in nodes.into_iter().filter(|_| from < to) {
            let (read_bytes, stored_bytes, node) = (sent_bytes, 0, NodeId(node));
            loads.nodes.push(recovery::NodeLoad {
                node,
                jobs: 1,
                sent_bytes,
                received_bytes,
                read_bytes,
                stored_bytes,
            });
        }
        self.jobs += 1;
        self.reads.push((self.fast.reserve(&loads), self.jobs));
        self.slow.reads.insert(self.jobs, loads);
    }

    fn with_job(&mut self, which: usize, then: impl FnOnce(&mut Self, JobId)) {
        let jobs: Vec<JobId> = self.proposals.keys().copied().collect();
        if let Some(&job) = jobs.get(which % jobs.len().max(1)) {
            then(self, job);
            self.slow.sweep();
        }
    }

    fn take_job(&mut self, job: JobId) -> (Proposal, usize) {
        let proposal = self.proposals.remove(&job).unwrap();
        let at = self.slow.items.iter().position(|item| item.state == State::Running(job)).unwrap();
        (proposal, at)
    }

    /// Lets a job deliver its first block.
    fn deliver(&mut self, job: JobId) {
        let proposal = &self.proposals[&job];
        let (item, first) = (proposal.item, proposal.wanted[0]);
        let at = self.slow.items.iter().position(|item| item.state == State::Running(job)).unwrap();
        self.slow.items[at].delivered = true;
        self.fast.handle_delivery(item, first.requestor);
        self.set_block(self.slow.items[at].stripe, first.block, BlockFacts::good_on(first.requestor));
    }

    fn succeed(&mut self, job: JobId) {
        let (proposal, at) = self.take_job(job);
        for wanted in &proposal.wanted {
            let facts = BlockFacts::good_on(wanted.requestor);
            self.set_block(self.slow.items[at].stripe, wanted.block, facts);
        }
        self.fast.handle_done(proposal.item, self.slow.now);
        self.slow.moving.remove(&job.0);
        let item = &mut self.slow.items[at];
        (item.state, item.rounds, item.failures) = (State::Waiting, item.rounds + 1, 0);
        item.stopping = false;
        let rounds = item.rounds;
        if self.slow.wanted(&self.slow.items[at]).is_empty() {
            self.slow.items[at].state = State::Ended(End::Repaired);
        } else if self.slow.repairs[&proposal.repair].cancelled {
            self.slow.items[at].state = State::Ended(End::Cancelled);
        } else if rounds == limits().rounds {
            self.slow.items[at].state = State::Ended(End::LostAgain);
        }
    }

    fn fail(&mut self, job: JobId, failure: Failure) {
        let (proposal, at) = self.take_job(job);
        self.fast.handle_failed(proposal.item, failure, self.slow.now);
        self.slow.moving.remove(&job.0);
        let item = &mut self.slow.items[at];
        item.failures += 1;
        item.stopping = false;
        item.not_before = self.slow.now + limits().back_off * 2u32.pow(item.failures - 1);
        item.state = State::Waiting;
        if failure == Failure::Permanent || item.failures == limits().attempts {
            item.state = State::Ended(End::Failed);
        }
    }

    fn cancelled(&mut self, job: JobId) {
        if self.proposals.contains_key(&job) {
            let (proposal, at) = self.take_job(job);
            self.fast.handle_cancelled(proposal.item);
            self.slow.moving.remove(&job.0);
            let stopped = std::mem::take(&mut self.slow.items[at].stopping);
            self.slow.items[at].state = match stopped {
                _ if !stopped => State::Ended(End::Cancelled),
                _ if self.slow.wanted(&self.slow.items[at]).is_empty() && !self.slow.waits_to_end(at) => {
                    let again = self.slow.items[at].rounds > 0;
                    State::Ended(if again { End::Repaired } else { End::NothingLost })
                }
                _ if self.slow.repairs[&proposal.repair].cancelled => State::Ended(End::Cancelled),
                _ => State::Waiting,
            };
        }
    }

    /// Lets the scheduler and the reference do all that they can, and compares them at every step.
    fn work(&mut self) -> Result<(), TestCaseError> {
        loop {
            let action = self.fast.poll(self.slow.now);
            self.slow.end_repairs();
            match action {
                Some(Action::ItemEnded { item, end, .. }) => drop(self.ends.insert(item, end)),
                Some(Action::RepairEnded { repair }) => drop(self.over.insert(repair)),
                Some(Action::CancelJob { job }) => self.cancelled(job),
                Some(Action::Propose(proposal)) => {
                    self.is_needed(&proposal)?;
                    let fast =
                        (proposal.item, proposal.kind, proposal.wanted.clone(), proposal.helpers.clone());
                    prop_assert_eq!(Some(fast), self.slow.next());
                    self.answer(proposal)?;
                }
                Some(other @ Action::DropSurplus { .. }) => prop_assert!(false, "{other:?} of nothing"),
                None => break,
            }
        }
        prop_assert_eq!(None, self.slow.next(), "something else could start");
        self.compare()
    }

    /// Checks that a proposal is needed: each wanted block is either unreadable or on the node that blocks
    /// move away from, and every helper holds a readable block.
    fn is_needed(&self, proposal: &Proposal) -> Result<(), TestCaseError> {
        let stripe = proposal.stripe.0.parse().unwrap();
        let survivors = self.slow.survivors(stripe);
        for wanted in &proposal.wanted {
            let holder = survivors.iter().find(|&&(block, _)| block == wanted.block).map(|&(_, node)| node);
            prop_assert_eq!(holder, proposal.kind.leaves(), "of {:?}", proposal);
        }
        let reads = |node: &NodeId| survivors.iter().any(|(_, other)| other == node);
        prop_assert!(proposal.helpers.iter().all(reads));
        Ok(())
    }

    fn answer(&mut self, proposal: Proposal) -> Result<(), TestCaseError> {
        let at = self.slow.items.iter().position(|item| item.id == proposal.item).unwrap();
        if proposal.wanted.is_empty() {
            self.fast.decline(proposal.item, End::Failed);
            self.slow.items[at].state = State::Ended(End::Failed);
            return Ok(());
        }
        let loads = chain(&proposal, DATA_BLOCKS);
        self.jobs += 1;
        if self.jobs.is_multiple_of(3) && self.slow.items[at].prepared.is_empty() {
            self.prepare(&proposal, at);
            return Ok(());
        }
        let job = JobId(self.jobs);
        let admitted = self.fast.admit(proposal.item, job, &loads);
        prop_assert_eq!(admitted.is_ok(), self.slow.have_room(&loads));
        if let Err(resource) = admitted {
            let lack = lack(resource, &loads);
            prop_assert!(self.slow.still_lacks(&lack));
            self.slow.items[at].lack = Some(lack);
            return Ok(());
        }
        let helpers = loads.nodes.iter().filter(|load| load.read_bytes > 0).map(|load| load.node);
        self.slow.helped.push(helpers.collect());
        for load in &loads.nodes {
            *self.slow.received.entry(load.node).or_default() += load.received_bytes;
        }
        self.slow.moving.insert(job.0, loads);
        let item = &mut self.slow.items[at];
        (item.state, item.lack, item.delivered) = (State::Running(job), None, false);
        item.prepared.clear();
        item.is_reserved = false;
        self.proposals.insert(job, proposal);
        Ok(())
    }

    /// Holds the stripe of a proposal while nodes are prepared for its blocks.
    fn prepare(&mut self, proposal: &Proposal, at: usize) {
        let item = &mut self.slow.items[at];
        (item.prepared, item.is_reserved) = (proposal.wanted.clone(), true);
        *self.slow.holds.entry(item.stripe).or_default() += 1;
        self.fast.preparation(proposal.item).begin(&proposal.wanted);
        self.fast.hold(&proposal.stripe);
        self.fast.put_back(proposal.item);
    }

    fn compare(&self) -> Result<(), TestCaseError> {
        for item in &self.slow.items {
            let ended = match item.state {
                State::Ended(end) => Some(end),
                _ => None,
            };
            prop_assert_eq!(self.ends.get(&item.id).copied(), ended, "{} of stripe {}", item.id, item.stripe);
        }
        for (&id, repair) in &self.slow.repairs {
            prop_assert_eq!(self.over.contains(&id), repair.ended);
            let counters = self.fast.repair(id).unwrap().counters;
            let count = |of: fn(&State) -> bool| {
                self.slow.items.iter().filter(|item| item.repair == id && of(&item.state)).count() as u64
            };
            prop_assert_eq!(counters.running, count(|state| matches!(state, State::Running(_))));
            prop_assert_eq!(counters.waiting, count(|state| *state == State::Waiting));
            prop_assert_eq!(counters.items(), count(|_| true));
        }
        for (node, reserved, _) in self.fast.reservations() {
            prop_assert_eq!(reserved, self.slow.used(node));
        }
        let mut busy = BTreeSet::new();
        for proposal in self.proposals.values() {
            prop_assert!(busy.insert(&proposal.stripe), "{} is repaired twice at once", proposal.stripe);
        }
        Ok(())
    }
}

fn lack(resource: Resource, loads: &Loads) -> Lack {
    let of = |node| *loads.nodes.iter().find(|load| load.node == node).unwrap();
    let need = match resource {
        Resource::Uplink(node) => of(node).sent_bytes,
        Resource::Downlink(node) => of(node).received_bytes,
        Resource::Disk(node) => of(node).read_bytes + of(node).stored_bytes,
        _ => 1,
    };
    (resource, need)
}

#[derive(Clone, Debug)]
enum Event {
    Repair { stripes: Range<u32>, only: Option<u16>, spec: RepairSpec, kind: Kind },
    Node { node: u32, alive: bool },
    Bad { stripe: u32, block: u16 },
    Deliver(usize),
    Succeed(usize),
    Fail(usize, Failure),
    Hold(u32),
    LetGo(u32),
    Pause(usize, bool),
    Cancel(usize),
    Withdraw(usize),
    Prepared(usize),
    Read { from: u32, to: u32 },
    ReadEnds(usize),
    Wait(u64),
}

fn event() -> impl Strategy<Value = Event> {
    let policy = prop_oneof![Just(HelperPolicy::LowestIndex), Just(HelperPolicy::LeastRecentlyUsed)];
    let node = || (1..=NODES).prop_map(NodeId);
    let requestors = prop_oneof![3 => Just(Vec::new()), 1 => prop::collection::vec(node(), 1..3)];
    let spec = (policy, requestors).prop_map(|(helpers, requestors)| RepairSpec {
        helpers,
        requestors,
        ..RepairSpec::default()
    });
    let stripes = (0..STRIPES, 1..=STRIPES).prop_map(|(first, count)| first..first + count);
    let kind = prop_oneof![
        5 => Just(Kind::Reconstruct),
        1 => node().prop_map(|from| Kind::Migrate { from }),
        1 => node().prop_map(|from| Kind::Rebuild { from }),
        2 => node().prop_map(|from| Kind::Drain { from }),
    ];
    let only = prop::option::weighted(0.2, 0..4u16);
    let repair = (stripes, only, spec, kind).prop_map(|(stripes, only, mut spec, kind)| {
        if let Kind::Drain { .. } = kind {
            spec.requestors.clear(); // The reference drains only onto all nodes.
        }
        Event::Repair { stripes, only, spec, kind }
    });
    let failure = prop_oneof![9 => Just(Failure::Transient), 1 => Just(Failure::Permanent)];
    prop_oneof![
        3 => repair,
        4 => (1..=NODES, any::<bool>()).prop_map(|(node, alive)| Event::Node { node, alive }),
        3 => (0..STRIPES, 0..4u16).prop_map(|(stripe, block)| Event::Bad { stripe, block }),
        2 => any::<usize>().prop_map(Event::Deliver),
        8 => any::<usize>().prop_map(Event::Succeed),
        3 => (any::<usize>(), failure).prop_map(|(which, failure)| Event::Fail(which, failure)),
        1 => (0..STRIPES).prop_map(Event::Hold),
        2 => (0..STRIPES).prop_map(Event::LetGo),
        1 => (any::<usize>(), any::<bool>()).prop_map(|(which, paused)| Event::Pause(which, paused)),
        1 => any::<usize>().prop_map(Event::Cancel),
        1 => any::<usize>().prop_map(Event::Withdraw),
        4 => any::<usize>().prop_map(Event::Prepared),
        1 => (1..=NODES, 1..=NODES).prop_map(|(from, to)| Event::Read { from, to }),
        2 => any::<usize>().prop_map(Event::ReadEnds),
        2 => (0..4000u64).prop_map(Event::Wait),
    ]
}

proptest! {
    #[test]
    fn the_scheduler_agrees_with_the_reference(events in prop::collection::vec(event(), 1..80)) {
        let mut pair = Pair::new();
        for event in &events {
            pair.happen(event);
            pair.work()?;
        }
    }
}
