//! What starts next: the most urgent item that there is room for.
//!
//! The queue is walked from its most urgent end. What is in the way of an item is not taken by less urgent ones behind
//! it: its survivors are claimed, and if it is requestors that it lacks, nothing less urgent starts at all. Items
//! that are equally urgent may pass. After so many items without room the walk ends: the nodes are busy.

use std::ops::Bound::{Excluded, Unbounded};

use codes::BlockIndex;

use super::item::{Action, Item, Kind, Place, Proposal};
use super::placement::{Placement, Placer};
use super::queue::{Class, Key};
use super::stripes::Stripe;
use super::{ItemId, Scheduler};
use crate::{NodeId, Wanted};

/// Walks over the queue.
#[derive(Debug, Default)]
pub(super) struct Scan {
    /// Tells the claims of this walk from those of earlier ones.
    pub number: u64,
    /// Counts what may let something start that could not before.
    pub news: u64,
    /// The last walk found nothing, and nothing has changed since.
    idle: bool,
}

impl Scan {
    /// Something was given back, or something new is known.
    pub fn restart(&mut self) {
        self.news += 1;
        self.idle = false;
    }

    /// What was proposed is answered.
    pub fn go_on(&mut self) {
        self.idle = false;
    }
}

/// Whether an item can start.
enum Check {
    Ready(Vec<Wanted>),
    /// Too few of its survivors have room.
    NoHelpers,
    /// The nodes that could take its blocks have no room.
    NoRequestors,
}

impl Scheduler {
    /// The next item that can start.
    pub(super) fn propose(&mut self) -> Option<Action> {
        if self.paused || self.scan.idle {
            return None;
        }
        self.scan.number += 1;
        let action = self.walk();
        self.scan.idle = action.is_none();
        action
    }

    fn walk(&mut self) -> Option<Action> {
        let (mut blocked, mut closed) = (0, None);
        let mut next = self.queue.first().copied();
        while let Some(key) = next {
            if closed.is_some_and(|class| class < key.class) {
                return None;
            }
            let paused = self.repairs[&key.repair].paused;
            if !paused {
                match self.check(key.item, key.class) {
                    Check::Ready(wanted) => return Some(self.proposal(key, wanted)),
                    Check::NoHelpers => {}
                    Check::NoRequestors => closed = closed.or(Some(key.class)),
                }
                self.claim(key);
                blocked += 1;
                if blocked >= self.limits.look_ahead {
                    return None;
                }
            }
            let after = if paused { key.end_of_run() } else { key };
            next = self.queue.range((Excluded(after), Unbounded)).next().copied();
        }
        None
    }

    /// Keeps free for an item what it waits for.
    fn claim(&mut self, key: Key) {
        let item = self.item(key.item);
        let kind = self.kind_now(item);
        let from = match kind {
            Kind::Migrate { from } => self.table.find(from),
            Kind::Reconstruct => None,
        };
        let (number, stripe) = (self.scan.number, self.stripes.get(item.stripe));
        for node in stripe.nodes().filter(|&node| from.is_none_or(|from| from == node)) {
            let node = self.table.get_mut(node);
            if node.claim.is_none_or(|(scan, _)| scan != number) {
                node.claim = Some((number, key.class));
            }
        }
    }

    fn check(&mut self, no: u32, class: Class) -> Check {
        let item = self.item(no);
        let lacks = item.lack.as_ref().is_some_and(|lack| self.table.still_lacks(lack));
        if lacks || item.sat_out == Some(self.scan.news) {
            return Check::NoHelpers;
        }
        let (kind, only) = (self.kind_now(item), item.only);
        let stripe = self.stripes.get(item.stripe);
        let (up, roomy) = self.count_sources(kind, stripe, class);
        let least = match kind {
            Kind::Reconstruct => self.redundancy.least_sources(&*stripe.code),
            Kind::Migrate { .. } => 1,
        };
        // If too few are up, planning will say why.
        if up >= least && roomy < least {
            return Check::NoHelpers;
        }
        let lost = stripe.lost(&self.table);
        let wanted = stripe.wanted(kind, only, &lost, &self.table);
        if kind == Kind::Reconstruct {
            let needed = self.redundancy.sources(&*stripe.code, &lost, &wanted);
            if up >= needed && roomy < needed {
                return Check::NoHelpers;
            }
        }
        match self.placer(no, class, &[]).place(&wanted) {
            Placement::Chosen(wanted) => Check::Ready(wanted),
            Placement::Busy => Check::NoRequestors,
            Placement::Nowhere => Check::Ready(Vec::new()),
        }
    }

    /// How many blocks an item may read, and how many of those are on nodes with room.
    fn count_sources(&self, kind: Kind, stripe: &Stripe, class: Class) -> (usize, usize) {
        let bytes = stripe.block_bytes;
        let mut counts = (0, 0);
        for (_, node) in self.sources(kind, stripe) {
            let node = self.table.get(node);
            // A node that sends one block is the least that any plan asks for.
            let has_room = node.has_room(bytes, 0, bytes) && !node.is_claimed(self.scan.number, class);
            counts = (counts.0 + 1, counts.1 + usize::from(has_room));
        }
        counts
    }

    /// The blocks that an item may read, and their nodes.
    fn sources<'a>(&'a self, kind: Kind, stripe: &'a Stripe) -> impl Iterator<Item = (BlockIndex, u32)> + 'a {
        let from = match kind {
            Kind::Migrate { from } => self.table.find(from),
            Kind::Reconstruct => None,
        };
        let survivors = stripe.survivors(&self.table);
        survivors.filter(move |&(_, node)| from.is_none_or(|from| from == node))
    }

    pub(super) fn placer<'a>(&'a self, no: u32, class: Class, barred: &'a [NodeId]) -> Placer<'a> {
        let item = self.item(no);
        Placer {
            table: &self.table,
            stripe: self.stripes.get(item.stripe),
            policy: self.repairs[&item.repair].spec.helpers,
            class,
            scan: self.scan.number,
            barred,
            leaving: match item.kind {
                Kind::Migrate { from } => Some(from),
                Kind::Reconstruct => None,
            },
        }
    }

    fn proposal(&mut self, key: Key, wanted: Vec<Wanted>) -> Action {
        let item = self.item(key.item);
        let (kind, stripe, repair) = (self.kind_now(item), item.stripe, item.repair);
        let helpers = self.helpers(kind, stripe, repair, key.class);
        self.move_to(key.item, Place::Proposed);
        Action::Propose(Proposal {
            item: ItemId(key.item),
            repair,
            stripe: self.stripes.get(stripe).id.clone(),
            kind,
            wanted,
            helpers,
        })
    }

    /// The survivors in the order of the repair's policy, those without room last.
    fn helpers(&self, kind: Kind, stripe: u32, repair: super::RepairId, class: Class) -> Vec<NodeId> {
        let stripe = self.stripes.get(stripe);
        let mut sources: Vec<_> = self.sources(kind, stripe).collect();
        self.repairs[&repair].spec.helpers.sort(&mut sources, &self.table);
        sources.sort_by_key(|&(_, node)| {
            let node = self.table.get(node);
            let has_room = node.has_room(stripe.block_bytes, 0, stripe.block_bytes);
            !has_room || node.is_claimed(self.scan.number, class)
        });
        sources.into_iter().map(|(_, node)| self.table.get(node).id).collect()
    }

    /// A migration from a node that cannot be read from is a reconstruction.
    pub(super) fn kind_now(&self, item: &Item) -> Kind {
        let Kind::Migrate { from } = item.kind else { return Kind::Reconstruct };
        let stripe = self.stripes.get(item.stripe);
        let from_no = self.table.find(from).filter(|&no| self.table.get(no).facts.alive);
        let readable = |no| stripe.survivors(&self.table).any(|(_, node)| node == no);
        if from_no.is_some_and(readable) { item.kind } else { Kind::Reconstruct }
    }
}
