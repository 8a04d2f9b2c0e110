//! What starts next: the most urgent item that there is room for.
//!
//! The queue is walked from its most urgent end. What is in the way of an item is not taken by less urgent ones behind
//! it: its survivors are claimed, and if it is requestors that it lacks, nothing less urgent starts at all. Items
//! that are equally urgent may pass. After so many items without room the walk ends: the nodes are busy.

use std::collections::BTreeSet;
use std::ops::Bound::{Excluded, Unbounded};

use codes::{BlockIndex, CodeSpec};

use super::dealing;
use super::dealing::Stretch;
use super::item::{Action, Item, Kind, Place, Proposal};
use super::nodes::NodeNo;
use super::placement::{Placement, Placer};
use super::queue::{Class, Key};
use super::stripes::Stripe;
use super::{ItemId, RepairId, Scheduler};
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
pub(super) enum Check {
    Ready(Kind, Vec<Wanted>),
    /// Too few of its survivors have room.
    NoHelpers,
    /// The nodes that could take its blocks have no room.
    NoRequestors,
}

impl Scheduler {
    /// The next item that can start.
    pub(super) fn propose(&mut self) -> Option<Action> {
        if self.scan.idle {
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
                    Check::Ready(kind, wanted) => return Some(self.proposal(key, kind, wanted)),
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
            Kind::Reconstruct | Kind::Rebuild { .. } | Kind::Drain { .. } => None,
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
        match self.kind_now(item) {
            Kind::Drain { from } => self.check_drain(no, from, class),
            Kind::Rebuild { from } if !self.others_suffice(no, from) => {
                self.check_as(no, Kind::Migrate { from }, class)
            }
            kind => self.check_as(no, kind, class),
        }
    }

    /// The blocks that are not read, and those that are wanted.
    pub(super) fn losses(
        &self,
        kind: Kind,
        only: &[BlockIndex],
        stripe: &Stripe,
    ) -> (Vec<BlockIndex>, Vec<BlockIndex>) {
        let mut lost = stripe.lost(&self.table);
        let wanted = stripe.wanted(kind, only, &lost, &self.table);
        if let Kind::Rebuild { .. } = kind {
            lost.extend(stripe.wanted(kind, &[], &lost, &self.table));
            lost.sort_unstable();
            lost.dedup();
        }
        (lost, wanted)
    }

    pub(super) fn check_as(&mut self, no: u32, kind: Kind, class: Class) -> Check {
        let item = self.item(no);
        let stripe = self.stripes.get(item.stripe);
        let (up, roomy) = self.count_sources(kind, stripe, class);
        let least = match kind {
            Kind::Migrate { .. } => 1,
            _ => self.redundancy.least_sources(&*stripe.code),
        };
        // If too few are up, planning will say why.
        if up >= least && roomy < least {
            return Check::NoHelpers;
        }
        let (lost, wanted) = self.losses(kind, &item.only, stripe);
        if !matches!(kind, Kind::Migrate { .. }) {
            let needed = self.redundancy.sources(&*stripe.code, &lost, &wanted);
            if up >= needed && roomy < needed {
                return Check::NoHelpers;
            }
        }
        match self.placer(no, class, &[]).place(&wanted) {
            Placement::Chosen(wanted) => Check::Ready(kind, wanted),
            Placement::Busy => Check::NoRequestors,
            Placement::Nowhere => Check::Ready(kind, Vec::new()),
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
        let from = kind.leaves().and_then(|from| self.table.find(from));
        let survivors = stripe.survivors(&self.table);
        survivors.filter(move |&(_, node)| match kind {
            Kind::Migrate { .. } => from == Some(node),
            Kind::Rebuild { .. } => from != Some(node),
            Kind::Reconstruct | Kind::Drain { .. } => true,
        })
    }

    pub(super) fn placer<'a>(&'a self, no: u32, class: Class, barred: &'a [NodeId]) -> Placer<'a> {
        let item = self.item(no);
        let spec = &self.repairs[&item.repair].spec;
        Placer {
            table: &self.table,
            stripe: self.stripes.get(item.stripe),
            policy: spec.helpers,
            class,
            scan: self.scan.number,
            barred,
            leaving: item.kind.leaves(),
            allowed: &spec.requestors,
            shares_nodes: self.limits.shares_nodes,
        }
    }

    fn proposal(&mut self, key: Key, kind: Kind, wanted: Vec<Wanted>) -> Action {
        let item = self.item(key.item);
        let (stripe, repair) = (item.stripe, item.repair);
        let (sources, roomy) = self.helpers(kind, key.item, key.class);
        let stretches = self.stretches(kind, stripe, repair, &sources[..roomy]);
        let helpers = sources.into_iter().map(|node| self.table.get(node).id).collect();
        // That it is proposed is no news to those that sat out: else two of them would have each other proposed for ever.
        let news = self.scan.news;
        self.move_to(key.item, Place::Proposed);
        self.scan.news = news;
        Action::Propose(Proposal {
            item: ItemId(key.item),
            repair,
            stripe: self.stripes.get(stripe).id.clone(),
            kind,
            wanted,
            helpers,
            stretches,
        })
    }

    /// Chains over the sources with room, if the policy deals them and the code may read any of them.
    fn stretches(&self, kind: Kind, stripe: u32, repair: RepairId, roomy: &[NodeNo]) -> Vec<Stretch> {
        let stripe = self.stripes.get(stripe);
        let free = matches!(stripe.code.spec(), CodeSpec::ReedSolomon { .. });
        let copies = matches!(kind, Kind::Migrate { .. });
        match self.repairs[&repair].spec.helpers.deals() && free && !copies {
            true => dealing::deal(stripe, roomy, &self.table),
            false => Vec::new(),
        }
    }

    /// The survivors in the order of the repair's policy, each once, however many blocks it has; those without room or that were
    /// late last; and how many are before those.
    fn helpers(&self, kind: Kind, no: u32, class: Class) -> (Vec<NodeNo>, usize) {
        let item = self.item(no);
        let (stripe, repair) = (self.stripes.get(item.stripe), item.repair);
        let mut sources: Vec<_> = self.sources(kind, stripe).collect();
        self.repairs[&repair].spec.helpers.sort(&mut sources, stripe, &self.table);
        let mut seen = BTreeSet::new();
        let nodes = sources.into_iter().map(|(_, node)| node).filter(|&node| seen.insert(node));
        let (mut roomy, full): (Vec<NodeNo>, Vec<NodeNo>) = nodes.partition(|&no| {
            let node = self.table.get(no);
            let has_room = node.has_room(stripe.block_bytes, 0, stripe.block_bytes);
            has_room && !node.is_claimed(self.scan.number, class) && !item.slow.contains(&no)
        });
        let count = roomy.len();
        roomy.extend(full);
        (roomy, count)
    }

    /// What is to leave a node that cannot be read from is reconstructed.
    pub(super) fn kind_now(&self, item: &Item) -> Kind {
        let Some(from) = item.kind.leaves() else { return Kind::Reconstruct };
        let stripe = self.stripes.get(item.stripe);
        let from_no = self.table.find(from).filter(|&no| self.table.get(no).facts.alive);
        let readable = |no| stripe.survivors(&self.table).any(|(_, node)| node == no);
        if from_no.is_some_and(readable) { item.kind } else { Kind::Reconstruct }
    }
}
