//! Chooses the next item to start: the most urgent one with room.
//!
//! A walk goes through the queue from its most urgent end. Less urgent items must not take resources that an
//! item waits for: the nodes with its survivors are claimed for it, and if the best nodes to store its blocks
//! have no room, no less urgent item starts at all. Items of the same class may overtake it. After
//! [`Limits::look_ahead`] items without room, the walk ends, because the nodes are busy.

use std::collections::BTreeSet;

use codes::CodeSpec;
use repair::{Stretch, Wanted};

use super::backlog::Backlog;
use super::dealing;
use super::item::{Kind, Proposal};
use super::nodes::{NodeNo, NodeTable};
use super::placement::{Placement, Placer};
use super::queue::Class;
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
    /// The nodes that could take the item's blocks have no room.
    NoRequestors,
}

/// One walk over the queue.
pub(super) struct Walk<'a> {
    pub known: Known<'a>,
    claims: &'a mut Claims,
    news: u64,
}

impl<'a> Walk<'a> {
    fn run(&mut self) -> Option<Proposal> {
        let backlog = self.known.backlog;
        let (mut blocked, mut closed) = (0, None);
        let mut next = backlog.next(None);
        while let Some(key) = next {
            if closed.is_some_and(|class| class < key.class) {
                return None;
            }
            let paused = backlog.repair_of(key.item).paused;
            if !paused {
                let of = self.view(key.item);
                match self.check(&of, key.class) {
                    Check::Ready(kind, wanted) => return Some(self.proposal(&of, key.class, kind, wanted)),
                    Check::NoHelpers => {}
                    Check::NoRequestors => closed = closed.or(Some(key.class)),
                }
                self.claim(&of, key.class);
                blocked += 1;
                if blocked >= self.known.limits.look_ahead {
                    return None;
                }
            }
            let after = if paused { key.end_of_run() } else { key };
            next = backlog.next(Some(after));
        }
        None
    }

    fn view(&self, no: u32) -> ItemView<'a> {
        ItemView::of(no, self.known.backlog, self.known.stripes, self.known.table)
    }

    /// Claims the nodes that an item waits for.
    fn claim(&mut self, of: &ItemView<'_>, class: Class) {
        let from = match of.kind_now() {
            Kind::Migrate { from } => of.table.find(from),
            Kind::Reconstruct | Kind::Rebuild { .. } | Kind::Drain { .. } => None,
        };
        for node in of.stripe.nodes().filter(|&node| from.is_none_or(|from| from == node)) {
            self.claims.add(node, class);
        }
    }

    fn check(&mut self, of: &ItemView<'_>, class: Class) -> Check {
        let lacks = of.item.lack.as_ref().is_some_and(|lack| of.table.still_lacks(lack));
        if lacks || of.item.sat_out == Some(self.news) {
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
        match Placer::of(of, self.known.limits, class, self.claims, &[]).place(&wanted) {
            Placement::Chosen(wanted) => Check::Ready(kind, wanted),
            Placement::Busy => Check::NoRequestors,
            Placement::Nowhere => Check::Ready(kind, Vec::new()),
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
            nodes.partition(|&node| self.may_send(of, node, class) && !of.item.slow.contains(&node));
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
