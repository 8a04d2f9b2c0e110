//! Chooses the next item to start: the most urgent one with room.
//!
//! A walk goes through the queue from its most urgent end. Less urgent items must not take resources that an
//! item waits for. Items of the same class may overtake it. There are two kinds of items without room:
//!
//! - An item that waits for room *at certain nodes* claims these nodes. Examples: only some nodes may get its
//!   blocks, its block returns to its old node, or its block is copied from one node. The other items of its
//!   repair probably wait for the same nodes, so after [`Limits::look_ahead`] such items of a run, the walk
//!   goes on after the run. A run is the items of one class, number of lost blocks and repair.
//! - Any other item claims the nodes with its survivors. If every node that could store its blocks is busy, no
//!   less urgent item starts at all. After [`Limits::look_ahead`] such items, the walk ends, because the nodes
//!   are busy.
//!
//! An item whose sources are busy also claims the nodes to which its blocks must go. Otherwise others would take
//! these nodes until the sources have room, and then the sources until the nodes have room, and so on.

use std::collections::BTreeSet;

use codes::CodeSpec;
use repair::{Stretch, Wanted};

use super::backlog::Backlog;
use super::dealing;
use super::item::{Kind, Proposal};
use super::nodes::{NodeNo, NodeTable};
use super::placement::Placer;
use super::queue::{Class, Key};
use super::redundancy::Redundancy;
use super::stripes::Stripes;
use super::view::ItemView;
use super::{ItemId, Limits};

/// State between walks over the queue.
#[derive(Debug, Default)]
pub(super) struct Scan {
    pub claims: Claims,
    /// Counts events that may allow a waiting item to start.
    news: u64,
    /// Whether the last walk found nothing and there was no news since.
    idle: bool,
}

impl Scan {
    /// Records news: resources were given back, or facts have changed.
    pub fn restart(&mut self) {
        self.news += 1;
        self.idle = false;
    }

    /// Allows the next walk, because the last proposal was answered.
    pub fn go_on(&mut self) {
        self.idle = false;
    }

    /// Returns the number of news events so far.
    pub fn news(&self) -> u64 {
        self.news
    }

    /// Sets the news count back to `news`, because the events since then cannot let a waiting item start.
    pub fn forget_since(&mut self, news: u64) {
        self.news = news;
    }

    /// Returns the next proposal, if there is one. If the last walk found nothing and there was no news
    /// since, the queue is not walked again.
    pub fn next(&mut self, known: Known<'_>) -> Option<Proposal> {
        if self.idle {
            return None;
        }
        self.claims.clear();
        let proposal = Walk { known, claims: &mut self.claims, news: self.news }.run();
        self.idle = proposal.is_none();
        proposal
    }
}

/// Nodes kept free for waiting items, from one walk to the next.
#[derive(Debug, Default)]
pub(super) struct Claims {
    /// Number of the current walk, to tell its claims from earlier ones.
    walk: u64,
    /// For each node: the number of the last walk that claimed it, and the class of the first item that
    /// claimed it in that walk.
    of: Vec<(u64, Option<Class>)>,
}

impl Claims {
    fn clear(&mut self) {
        self.walk += 1;
    }

    fn add(&mut self, node: NodeNo, class: Class) {
        let at = node as usize;
        if self.of.len() <= at {
            self.of.resize(at + 1, (0, None));
        }
        if self.of[at].0 != self.walk {
            self.of[at] = (self.walk, Some(class));
        }
    }

    /// Whether a node is kept free for a class more urgent than `class`.
    pub fn keep(&self, node: NodeNo, class: Class) -> bool {
        let claim = self.of.get(node as usize).filter(|(walk, _)| *walk == self.walk);
        claim.and_then(|(_, claimed)| *claimed).is_some_and(|claimed| claimed < class)
    }
}

/// The data that a walk looks at.
pub(super) struct Known<'a> {
    pub limits: &'a Limits,
    pub backlog: &'a Backlog,
    pub stripes: &'a Stripes,
    pub table: &'a NodeTable,
    pub redundancy: &'a mut Redundancy,
}

/// Whether an item can start.
pub(super) enum Check {
    Ready(Kind, Vec<Wanted>),
    /// Too few of the item's survivors have room.
    NoHelpers,
    /// Too few nodes that could take the item's blocks have room: of these nodes, or of all if the list is empty.
    NoRequestors(Vec<NodeNo>),
}

/// The items without room that a walk has seen.
#[derive(Default)]
struct Blocked {
    /// Number of items that wait for room at certain nodes.
    at_nodes: usize,
    /// Number of the other items.
    anywhere: usize,
    /// The end of the current run, and its number of items that wait for room at certain nodes.
    run: Option<(Key, usize)>,
}

impl Blocked {
    /// Adds an item. Returns the key after which the walk goes on.
    fn add(&mut self, key: Key, waits_at_nodes: bool, limits: &Limits) -> Key {
        if !waits_at_nodes {
            self.anywhere += 1;
            return key;
        }
        self.at_nodes += 1;
        let end = key.end_of_run();
        let before = self.run.filter(|&(run, _)| run == end).map_or(0, |(_, items)| items);
        self.run = Some((end, before + 1));
        if before + 1 >= limits.look_ahead { end } else { key }
    }

    /// Whether the walk has seen enough items.
    fn is_enough(&self, limits: &Limits) -> bool {
        self.anywhere >= limits.look_ahead || self.at_nodes >= limits.look_past
    }
}

/// One walk over the queue.
pub(super) struct Walk<'a> {
    pub known: Known<'a>,
    claims: &'a mut Claims,
    news: u64,
}

impl<'a> Walk<'a> {
    fn run(&mut self) -> Option<Proposal> {
        let (backlog, limits) = (self.known.backlog, self.known.limits);
        let (mut blocked, mut closed) = (Blocked::default(), None);
        let mut next = backlog.next(None);
        while let Some(key) = next {
            if closed.is_some_and(|class| class < key.class) || blocked.is_enough(limits) {
                return None;
            }
            if backlog.repair_of(key.item).paused {
                next = backlog.next(Some(key.end_of_run()));
                continue;
            }
            let of = self.view(key.item);
            let (nodes, waits_at_nodes): (Vec<NodeNo>, bool) = match self.check(&of, key.class) {
                Check::Ready(kind, wanted) => return Some(self.proposal(&of, key.class, kind, wanted)),
                Check::NoHelpers => (self.needed(&of, key.class), of.only_source().is_some()),
                Check::NoRequestors(nodes) if nodes.is_empty() => {
                    closed = closed.or(Some(key.class));
                    (of.stripe.nodes().collect(), false)
                }
                Check::NoRequestors(nodes) => (nodes, true),
            };
            let after = blocked.add(key, waits_at_nodes, limits);
            nodes.into_iter().for_each(|node| self.claims.add(node, key.class));
            next = backlog.next(Some(after));
        }
        None
    }

    fn view(&self, no: u32) -> ItemView<'a> {
        ItemView::of(no, self.known.backlog, self.known.stripes, self.known.table)
    }

    /// Returns the nodes that an item needs whose sources are busy: the sources, and the nodes to which its blocks must
    /// go.
    fn needed(&self, of: &ItemView<'_>, class: Class) -> Vec<NodeNo> {
        let placer = Placer::of(of, self.known.limits, class, self.claims, &[]);
        let mut nodes = placer.certain(&of.wanted());
        match of.only_source() {
            Some(source) => nodes.push(source),
            None => nodes.extend(of.stripe.nodes()),
        }
        nodes
    }

    fn check(&mut self, of: &ItemView<'_>, class: Class) -> Check {
        if let Some(lack) = of.item.lack.as_ref().filter(|lack| of.table.still_lacks(lack)) {
            let is_allowed = |node| of.repair.spec.requestors.contains(&node);
            return match lack.resource.node().is_some_and(is_allowed) {
                true => Check::NoRequestors(of.allowed().collect()),
                false => Check::NoHelpers,
            };
        }
        if of.item.sat_out == Some(self.news) {
            return Check::NoHelpers;
        }
        match of.kind_now() {
            Kind::Drain { from } => self.check_drain(of, from, class),
            Kind::Rebuild { from } if !of.others_suffice(from, self.known.redundancy) => {
                self.check_as(of, Kind::Migrate { from }, class)
            }
            kind => self.check_as(of, kind, class),
        }
    }

    pub fn check_as(&mut self, of: &ItemView<'_>, kind: Kind, class: Class) -> Check {
        let code = &*of.stripe.code;
        let (up, roomy) = self.count_sources(of, kind, class);
        let least = match kind {
            Kind::Migrate { .. } => 1,
            _ => self.known.redundancy.least_sources(code),
        };
        // If too few nodes are up, the item is proposed anyway, so that the planner reports the reason.
        if up >= least && roomy < least {
            return Check::NoHelpers;
        }
        let (lost, wanted) = of.losses(kind);
        if !matches!(kind, Kind::Migrate { .. }) {
            let needed = self.known.redundancy.sources(code, &lost, &wanted);
            if up >= needed && roomy < needed {
                return Check::NoHelpers;
            }
        }
        match Placer::of(of, self.known.limits, class, self.claims, &[]).choose(&wanted) {
            Ok(wanted) => Check::Ready(kind, wanted),
            Err(busy) => Check::NoRequestors(busy),
        }
    }

    /// Returns the number of blocks that an item may read, and how many of them are on nodes with room.
    fn count_sources(&self, of: &ItemView<'_>, kind: Kind, class: Class) -> (usize, usize) {
        let sources = of.sources(kind);
        sources.fold((0, 0), |(all, roomy), (_, node)| {
            (all + 1, roomy + usize::from(self.may_send(of, node, class)))
        })
    }

    /// Whether a node has room to send one block, the minimum for any plan.
    fn may_send(&self, of: &ItemView<'_>, node: NodeNo, class: Class) -> bool {
        let bytes = of.stripe.block_bytes;
        of.table.get(node).has_room(bytes, 0, bytes) && !self.claims.keep(node, class)
    }

    fn proposal(&self, of: &ItemView<'_>, class: Class, kind: Kind, wanted: Vec<Wanted>) -> Proposal {
        let (sources, roomy) = self.helpers(of, kind, class);
        Proposal {
            item: ItemId(of.no),
            repair: of.item.repair,
            stripe: of.stripe.id.clone(),
            kind,
            wanted,
            stretches: stretches(of, kind, &sources[..roomy]),
            helpers: sources.into_iter().map(|node| of.table.get(node).id).collect(),
        }
    }

    /// Returns the nodes with survivors, and the number of usable ones: those with room that took part in no
    /// late job.
    ///
    /// The usable nodes come first, then the others; both groups are in the order of the repair's policy.
    /// Each node is listed once, however many blocks it has.
    fn helpers(&self, of: &ItemView<'_>, kind: Kind, class: Class) -> (Vec<NodeNo>, usize) {
        let mut sources: Vec<_> = of.sources(kind).collect();
        of.repair.spec.helpers.sort(&mut sources, of.stripe, of.table);
        let mut seen = BTreeSet::new();
        let nodes = sources.into_iter().map(|(_, node)| node).filter(|&node| seen.insert(node));
        let (mut roomy, full): (Vec<NodeNo>, Vec<NodeNo>) =
            nodes.partition(|&node| self.may_send(of, node, class) && !of.item.late.nodes.contains(&node));
        let count = roomy.len();
        roomy.extend(full);
        (roomy, count)
    }
}

/// Computes chains over the sources with room, if the policy divides work into shares and the code can
/// rebuild from any k sources.
fn stretches(of: &ItemView<'_>, kind: Kind, roomy: &[NodeNo]) -> Vec<Stretch> {
    let free = matches!(of.stripe.code.spec(), CodeSpec::ReedSolomon { .. });
    let copies = matches!(kind, Kind::Migrate { .. });
    match of.repair.spec.helpers.deals() && free && !copies {
        true => dealing::deal(of.stripe, roomy, of.table),
        false => Vec::new(),
    }
}
