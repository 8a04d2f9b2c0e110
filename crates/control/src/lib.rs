//! The coordinator's decisions: one pure state machine, composed of smaller ones.
//!
//! Input is an [`Event`] with its time. Output is an [`Effect`] for the driver or an [`Ask`] for the storage.
//! A driver is one loop: wait for an event or the next tick, pass it in, and carry out the effects. This
//! crate has no locks, sockets or awaits.
//!
//! **Invariants:** a node is alive in `topology` if and only if it has a connection; a stripe has at most one
//! job that publishes blocks; the picture (the catalog in memory) shows only writes that the storage has
//! acknowledged.

#![forbid(unsafe_code)]

/// Borrows nodes, stripes and storage of a [`Control`] read-only, so that another of its state machines can
/// be changed meanwhile.
macro_rules! facts {
    ($control:ident) => {
        $crate::facts::Facts {
            base: &$control.base,
            nodes: &$control.nodes,
            capping: &$control.capping,
            stripes: &$control.stripes,
            storing: &$control.storing,
        }
    };
}

/// Borrows nodes and storage of a [`Control`] read-only, so that its stripes can be changed meanwhile.
macro_rules! outer_facts {
    ($control:ident) => {
        $crate::facts::OuterFacts {
            base: &$control.base,
            nodes: &$control.nodes,
            capping: &$control.capping,
            storing: &$control.storing,
        }
    };
}

/// Borrows all state machines of a [`Control`] as read-only [`Answers`] while its output is written.
macro_rules! answers {
    ($control:ident) => {
        $crate::answers::Answers {
            facts: facts!($control),
            jobs: &$control.jobs,
            repairs: &$control.repairs,
            scrub: &$control.scrub,
            history: &$control.history,
            conditions: &$control.conditions,
        }
    };
}

mod answers;
mod audit;
mod base;
mod commands;
mod conditions;
mod counts;
mod durations;
mod effect;
mod error;
mod facts;
mod helper_queries;
mod history;
mod jobs;
mod nodes;
mod out;
mod pace;
mod records;
mod repairs;
mod routes;
mod scrub;
mod signal;
mod storing;
mod stripes;
#[cfg(test)]
mod tests;
mod totals;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime};

use cluster::{Network, RepairAfter, Role};
use rand::rngs::StdRng;
use repair::Job;
use repair::wire::control::FromNode;
use serde_json::Value;
use store_api::{Done, OpenError, StoreChange, StoreError};

use answers::Answers;
pub use answers::metrics::{CatalogMetrics, DataMetrics, HelperMetrics, LossMetrics, Metrics, RepairMetrics};
use audit::Audit;
use base::Base;
pub use commands::{
    CatalogCommand, ClusterCommand, Command, FileCommand, NetworkCommand, NodeCommand, RepairCommand,
    ScrubCommand, StripeCommand,
};
use conditions::Conditions;
pub use effect::{Answer, Effect, Reply, RequestId};
pub use error::{
    CatalogAgeError, ConditionError, DescriptionError, ErrorKind, FileError, LayoutError, NetworkError,
    NodeError, PlanningError, RepairError, RequestError, ScrubError, SessionError, StorageError,
};
use facts::Facts;
use history::History;
use jobs::Jobs;
pub use jobs::in_flight::InFlight;
use jobs::link_tests::LinkTests;
use nodes::Nodes;
use nodes::capping::Capping;
use out::Out;
pub use repairs::ItemPage;
use repairs::Repairs;
pub use repairs::healing::HealPolicy;
pub use repairs::omitted::Omitted;
use repairs::scheduler_facts::{tell_blocks, tell_replicas, tell_space, tell_surplus, tell_trunk};
use scrub::parity_checks::Asker;
use scrub::state::Scrubs;
use signal::Signal;
use storing::Storing;
pub use storing::ask::Ask;
pub use storing::{Opened, carry_out};
use stripes::Stripes;
use stripes::surplus::Surplus;
pub use totals::{Amount, DURATION_BOUNDS, Durations, Totals};

/// The time between ticks while jobs run. This is often enough, because the timers of jobs are 250 ms or
/// longer.
const BUSY_TICK: Duration = Duration::from_millis(50);
/// The time between ticks when no job runs.
const IDLE_TICK: Duration = Duration::from_millis(500);
/// The time after a start in which known helpers may reconnect before their blocks count as lost.
const SETTLE_LIMIT: Duration = Duration::from_secs(10);
/// The largest number of bad blocks that the status lists.
const LOST_REMEMBERED: usize = 100;

/// The time of an event, by two clocks.
#[derive(Clone, Copy, Debug, Default)]
pub struct Now {
    /// The time since the start of the coordinator. Decisions use this clock.
    pub since_start: Duration,
    /// Milliseconds since 1970, for people and for records.
    pub unix_ms: u64,
}

/// A connection's number, unique within the life of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConnectionId(pub u64);

/// An input of the control plane.
#[derive(Debug)]
#[allow(missing_docs, reason = "the field names are self-explanatory")]
pub enum Event {
    /// A member has registered.
    Joined { connection: ConnectionId, role: Role, hello: Box<FromNode> },
    /// A registered member has sent a message.
    Said { connection: ConnectionId, message: Box<FromNode> },
    /// A connection has ended.
    Left { connection: ConnectionId, why: String },
    /// The storage has carried out the write with this number.
    Stored { number: u64, done: Done },
    /// The storage has rejected the write with this number; nothing has changed.
    Failed { number: u64, error: StoreError },
    /// The result of a check whether the storage works again after a fault.
    Recovered(Result<Vec<StoreChange>, OpenError>),
    /// The catalog was copied, or why that failed.
    Copied(Result<(), String>),
    /// Another program has changed the store.
    Changed(Vec<StoreChange>),
    /// A member has shown a certificate that expires at this time.
    Certificate { role: Role, expires: SystemTime },
    /// The reloaded configuration requires encrypted data edges.
    EncryptEdges,
    /// The reloaded configuration has this network.
    Network(Box<Network>),
    /// The reloaded configuration lists these helpers.
    Listed(BTreeSet<String>),
    /// A client has sent a request to the API.
    Asked(Box<Command>),
}

/// The configuration of the coordinator.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The cluster to which the blocks of helpers must belong.
    pub cluster_id: String,
    /// The code of new files.
    pub code: String,
    /// The block length of new files, in bytes.
    pub block_bytes: u64,
    /// The scheme of repairs and reads.
    pub scheme: String,
    /// The helpers that mend.toml lists; `None` if it has no list.
    pub helpers: Option<BTreeSet<String>>,
    /// The helper on each server of the storage system. The key is the address by which that system
    /// identifies the server.
    pub beside: BTreeMap<String, String>,
    /// How long a helper may be away before its blocks are rebuilt, from mend.toml.
    pub repair_after: RepairAfter,
    /// The policy of automatic repairs of single stripes; `None` turns them off.
    pub heal: Option<HealPolicy>,
    /// The rate of the background scrub, in bytes per second; `None` turns it off.
    pub scrub_bytes_per_s: Option<u64>,
    /// Whether the background scrub also checks the parity of whole stripes.
    pub scrub_parity: bool,
    /// The network between nodes, from mend.toml.
    pub network: Network,
}

/// The coordinator's state machine; see the crate's documentation.
pub struct Control {
    base: Base,
    nodes: Nodes,
    capping: Capping,
    stripes: Stripes,
    surplus: Surplus,
    jobs: Jobs,
    link_tests: LinkTests,
    repairs: Repairs,
    scrub: Scrubs,
    storing: Storing,
    history: History,
    conditions: Conditions,
    audit: Audit,
    out: Out,
}

impl Control {
    /// Creates a coordinator from the contents of its storage. Repairs that the previous coordinator left
    /// unfinished are queued again.
    pub fn new(settings: Settings, opened: Opened, rng: StdRng, unix_ms: u64) -> Self {
        let Opened { picture, store, unlisted, numbers, records, .. } = opened;
        let mut core = Self {
            base: Base { settings, store, now: Duration::ZERO, unix_ms },
            nodes: Nodes::default(),
            capping: Capping::default(),
            stripes: Stripes::new(picture, unlisted),
            surplus: Surplus::default(),
            jobs: Jobs::default(),
            link_tests: LinkTests::default(),
            repairs: Repairs::new(store),
            scrub: Scrubs::default(),
            storing: Storing::default(),
            history: History::default(),
            conditions: Conditions::default(),
            audit: Audit::default(),
            out: Out::new(rng, numbers),
        };
        core.recall(&records);
        core.pass_on();
        core
    }

    /// Restores the state that the previous coordinator recorded.
    fn recall(&mut self, records: &[(String, Value)]) {
        self.stripes.picture.nodes().values().for_each(|node| self.nodes.know_node(&self.base, node));
        self.nodes.registry.recall_leaving(records);
        self.nodes.recall_measured(records);
        self.nodes.lay_links(&self.base);
        self.capping.recall(records);
        self.capping.tell_trunks(&self.base, &mut self.out);
        self.requeue_repairs(records);
        self.scrub.recall_scrub(records);
        self.scrub.recall_background_scrub(records);
        self.stripes.condemned.recall(records);
        self.history.recall_history(records, &mut self.out);
        self.conditions.recall(records, &mut self.out);
        self.audit.recall(records, &mut self.out);
        self.stripes.recall_contradictions(outer_facts!(self), records, &mut self.out);
        self.nodes.registry.recall_outages(&self.base, records, &mut self.out);
        let repairs = &mut self.repairs;
        repairs.nodes.recall(self.nodes.registry.gone(), &repairs.queue);
        let nodes = &mut self.nodes;
        nodes.maintenance.recall((&self.base, &nodes.registry), records, &mut self.out);
        self.nodes.recall_settings(records);
        self.stripes.newer.recall(&self.stripes.picture, records);
        self.scrub.proof.recall(facts!(self), records);
        self.settle();
    }

    pub(crate) fn facts(&self) -> Facts<'_> {
        facts!(self)
    }

    fn answers(&self) -> Answers<'_> {
        answers!(self)
    }

    /// Handles an event. Afterwards, [`poll`](Self::poll) returns the effects, and
    /// [`poll_storage`](Self::poll_storage) the requests to the storage.
    pub fn handle(&mut self, event: Event, now: Now) {
        (self.base.now, self.base.unix_ms) = (now.since_start, now.unix_ms);
        match event {
            Event::Joined { connection, role, hello } => self.join(connection, role, *hello),
            Event::Said { connection, message } => self.hear(connection, *message),
            Event::Left { connection, why } => self.part(connection, &why),
            Event::Stored { number, done } => self.stored(number, done),
            Event::Failed { number, error } => self.not_stored(number, error),
            Event::Recovered(result) => self.storage_recovered(result),
            Event::Copied(result) => {
                if result.is_ok() {
                    self.storing.copied_unix_ms = Some(self.base.unix_ms);
                }
                self.storing.copy_problem = result.err();
            }
            Event::Changed(changes) => self.take_changes(changes),
            Event::Certificate { role, expires } => {
                let member = role.to_string();
                if self.nodes.certificates.note(role, expires) {
                    self.audit.note_certificate(member, expires, self.base.unix_ms, &mut self.out);
                }
            }
            // Only a restart turns encryption off again, so that an edit of mend.toml cannot do so by
            // accident.
            Event::EncryptEdges => self.nodes.encrypt_edges(),
            Event::Network(network) => self.change_network(*network),
            Event::Listed(helpers) => self.base.settings.helpers = Some(helpers),
            Event::Asked(command) => self.carry_out(*command),
        }
        self.work();
        self.pass_on();
    }

    /// Advances the timers of all state machines.
    pub fn handle_tick(&mut self, now: Now) {
        (self.base.now, self.base.unix_ms) = (now.since_start, now.unix_ms);
        self.refuse_writes();
        self.with_all_jobs(Job::handle_tick);
        let idle = self.jobs.puts.idle(self.base.now);
        self.abort_puts(&idle);
        self.expire_asks();
        self.scrub.expire_checks(facts!(self), &mut self.out);
        self.scrub.verify_reported(facts!(self), &mut self.out);
        self.stripes.expire_readers(&self.base, &self.jobs);
        self.stripes.retry_removals(outer_facts!(self), &self.jobs, &mut self.out);
        stripes::finding::retry(&mut self.stripes, outer_facts!(self), &mut self.out);
        self.stripes.inventory.expire_hollow(&self.nodes, &self.base, &mut self.out);
        let unused = answers::safety::retired_nodes(self.answers());
        self.nodes.registry.forget_retired(unused, &mut self.out);
        self.nodes.maintenance.expire(&self.base, &self.nodes.registry, &mut self.out);
        self.nodes.expire_bandwidth(&self.base, &mut self.out);
        self.repairs.begin_recoveries(facts!(self), &self.jobs, &mut self.out);
        self.history.note_all_bad(&self.nodes, &mut self.out);
        self.stripes.forget_given(outer_facts!(self), &self.jobs, &self.repairs);
        self.repairs.heal(facts!(self), &self.jobs, &mut self.out);
        self.surplus.handle_tick(facts!(self), &self.jobs, &mut self.out);
        self.repairs.mend_placement(facts!(self), &self.jobs, &mut self.out);
        self.stripes.tidy_orphans(outer_facts!(self), &mut self.out);
        // An outdated catalog is not copied, because the copy would overwrite a better one.
        if self.nodes.settled && self.facts().may_remove() && self.storing.begin_copy(self.base.now) {
            self.out.ask_storage(Ask::KeepCopy);
        }
        self.repairs.note_progress(facts!(self), &self.jobs);
        self.note_risks();
        routes::requests::note_conditions(self);
        self.tell_changes();
        let scheduler = &self.repairs.scheduler;
        self.capping.share((&self.base, &self.nodes), &self.jobs, scheduler, &mut self.out);
        self.link_tests.end_late_trial(&self.base, &mut self.out);
        let late = self.nodes.registry.take_late_stripes(self.base.now);
        self.repairs.let_go(&late);
        self.work();
        self.pass_on();
    }

    /// Returns the longest wait for an event before [`handle_tick`](Self::handle_tick) is due.
    pub fn tick(&self) -> Duration {
        if self.jobs.running.is_empty() { IDLE_TICK } else { BUSY_TICK }
    }

    /// Passes new history entries and storage requests to the state machines that process them.
    pub(crate) fn pass_on(&mut self) {
        self.history.take(self.base.unix_ms, &mut self.out);
        self.storing.take(&mut self.out);
    }

    /// Delivers each signal to the state machine that it concerns.
    pub(crate) fn route(&mut self) {
        while let Some(signal) = self.out.signals.pop_front() {
            match signal {
                Signal::Node(node) => routes::connections::note_node(self, node),
                Signal::Space(node) => tell_space(&mut self.repairs.scheduler, facts!(self), node),
                Signal::Replicas(node) => tell_replicas(&mut self.repairs.scheduler, facts!(self), node),
                Signal::Trunk(rack) => tell_trunk(&mut self.repairs.scheduler, facts!(self), &rack),
                Signal::Blocks(stripe) => tell_blocks(&mut self.repairs.scheduler, facts!(self), &stripe),
                Signal::Surplus { node, stripe, index } => {
                    tell_surplus(&mut self.repairs.scheduler, facts!(self), node, &stripe, index)
                }
                Signal::Removed(stripe) => routes::blocks::forget_stripe(self, &stripe),
                Signal::Contradiction { stripe, blocks, found_by } => {
                    routes::blocks::note_contradiction(self, &stripe, &blocks, found_by);
                }
                Signal::ContradictionAdded(stripe) => routes::jobs::check_survivors(self, &stripe),
                Signal::Doubtful(stripe) => self.scrub.doubted.doubt(&stripe, self.base.now),
                Signal::ParityHeld { stripe, read } => routes::blocks::note_parity(self, &stripe, read),
                Signal::Wrong { stripe, index, node } => {
                    self.stripes.condemn(outer_facts!(self), &stripe, index, node, &mut self.out);
                }
                Signal::Unread { stripe, index, node, known, problem } => {
                    let (outer, out) = (outer_facts!(self), &mut self.out);
                    self.stripes.apply_verdict(outer, node, (&stripe, index), &known, Some(&problem), out);
                }
                Signal::Settled => self.stripes.after_settling(outer_facts!(self), &self.jobs, &mut self.out),
                Signal::Service { node, up } => self.repairs.note_service(facts!(self), node, up),
                Signal::Gone { node, why } => self.note_outage(node, why),
                Signal::SeekHomes => self.stripes.find_all_homes(outer_facts!(self), &mut self.out),
                Signal::Start { owner, request } => self.start_job(owner, *request),
                Signal::Cancel(job) => self.jobs.cancel_job(job),
                Signal::Ended { job, result } => self.end_job(job, *result),
                Signal::Delivered { item, node } => self.repairs.scheduler.handle_delivery(item, node),
                Signal::Assigned(node) => self.nodes.note_assigned(node),
                Signal::HeldUp(nodes) => self.link_tests.note_slow(facts!(self), &nodes, &mut self.out),
                Signal::Slow { node, rate } => {
                    self.nodes.note_slow_node(&self.base, node, rate, &mut self.out);
                }
                Signal::Acquitted(node) => self.nodes.acquit(node, &mut self.out),
                Signal::Measured { link, ports, pair } => {
                    self.nodes.note_measured(&self.base, link, ports, pair);
                }
                Signal::MeasuredAll => self.nodes.keep_measured(&self.base, &mut self.out),
                Signal::GivenStored { stripe, blocks } => {
                    self.stripes.given.note_stored(&stripe, &blocks, &mut self.out);
                }
                Signal::GivenLost { stripe, index, node, state } => {
                    self.stripes.given.note_lost(&stripe, index, node, state, &mut self.out);
                }
                Signal::Unavailable { stripe, index, node, known } => {
                    routes::blocks::note_unavailable(self, node, stripe, index, known);
                }
            }
        }
    }

    /// Runs all state machines until none has work left before the next event.
    fn work(&mut self) {
        self.settle();
        loop {
            self.route();
            self.drain_jobs();
            self.route();
            self.start_repairs();
            self.scrub.ask_scrub(facts!(self), &self.jobs, &mut self.out);
            self.scrub.prove_in_background(facts!(self), &self.jobs, &mut self.out);
            self.scrub.scrub_in_background(facts!(self), &self.jobs, &mut self.out);
            self.scrub.check_stripes(facts!(self), &self.jobs, Asker::Job, &mut self.out);
            self.scrub.check_distrusted(facts!(self), &self.jobs, &mut self.out);
            if self.jobs.stirred.is_empty() && self.out.signals.is_empty() {
                return;
            }
        }
    }

    /// Removes and returns the next effect for the driver.
    pub fn poll(&mut self) -> Option<Effect> {
        self.out.pop()
    }

    /// Ends the start-up phase once the store has been listed and all expected helpers have reconnected or
    /// timed out.
    fn settle(&mut self) {
        let expected = || self.nodes.registry.awaited(&self.base).next().is_none();
        let is_listed = self.stripes.news.unlisted().is_none();
        if !self.nodes.settled && is_listed && (self.base.now >= SETTLE_LIMIT || expected()) {
            self.nodes.settled = true;
            self.nodes.registry.find_absent(&self.base, &mut self.out);
            self.stripes.after_settling(outer_facts!(self), &self.jobs, &mut self.out);
        }
    }
}
