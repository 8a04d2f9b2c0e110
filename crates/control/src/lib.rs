//! All state of the coordinator, owned by one thread.
//!
//! Everything comes in as an [`Event`], with the time; everything goes out as a message in a connection's
//! outbox, as an [`Ask`] to the storage or as the answer to a command. A driver is one loop: wait for an event or the next tick, hand it
//! over. There is no lock, no socket and no await in here.
//!
//! **Always true:** a node is in `topology` as alive if and only if it has a connection; a stripe has at most
//! one job that publishes blocks; the picture is what the storage says.

#![forbid(unsafe_code)]

mod absences;
mod attempts;
mod balance;
mod beside;
mod caps;
mod certificates;
mod claims;
mod commands;
mod condemned;
mod contradictions;
mod durations;
mod effect;
mod error;
mod figures;
mod fullness;
mod given;
mod given_bytes;
mod grace;
mod healing;
mod history;
mod inventory;
mod jobs;
mod joining;
mod layout;
mod leaving;
mod made_lately;
mod maintenance;
mod misplaced;
mod network;
mod newer;
mod nodes;
mod omitted;
mod orphans;
mod parity_checks;
mod parity_scrub;
mod picture;
mod placement;
mod plans;
mod probes;
mod puts;
mod questions;
mod readers;
mod removals;
mod repairs;
mod requests;
mod room;
mod safety;
mod scrubs;
mod status;
mod steady;
mod store_news;
mod storing;
mod stripes;
mod surplus;
mod suspects;
#[cfg(test)]
mod tests;
mod unjudged;
mod unreadable;
mod write_path;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, SystemTime};

use cluster::{Network, RepairAfter, Role};
use rand::rngs::StdRng;
use repair::recovery::Redundancy;
use repair::wire::control::FromNode;
use repair::{Job, JobId, NodeId, Topology};
use stores::dir::OpenError;
use stores::{Done, Nature, StoreChange, StoreError};

use absences::Absences;
use caps::Capping;
use certificates::Certificates;
use claims::Claims;
pub use commands::Command;
use condemned::Condemned;
use contradictions::Contradictions;
use effect::Effects;
pub use effect::{Answer, Effect, Reply, RequestId};
pub use error::{ErrorKind, RequestError};
use figures::Figures;
use fullness::Fullness;
use given::Given;
pub use healing::HealPolicy;
use healing::Healing;
use history::History;
use jobs::RunningJob;
use leaving::Leaving;
use made_lately::MadeLately;
use maintenance::Maintenance;
use misplaced::Misplaced;
use newer::Newer;
use nodes::Peer;
pub use omitted::Omitted;
use orphans::Orphans;
use parity_checks::ParityChecks;
use picture::Picture;
use probes::Probes;
use puts::OpenPuts;
use questions::Question;
use readers::Readers;
pub use repairs::ItemPage;
use repairs::{Repairs, Unproven};
use room::Rooms;
use scrubs::Scrub;
use steady::Steady;
use store_news::StoreNews;
use storing::Storing;
pub use storing::{Ask, Opened, carry_out};
use stripes::Codes;
use surplus::Surplus;
use suspects::Suspects;
use unjudged::UnjudgedStripes;

use views::{LostBlock, ScrubView};

/// While jobs run, time is looked at this often: jobs wait for 250 ms and more.
const BUSY_TICK: Duration = Duration::from_millis(50);
/// Otherwise this often.
const IDLE_TICK: Duration = Duration::from_millis(500);
/// After a start, helpers that were known before have this long to come back before what they hold counts
/// as lost for repairs.
const SETTLE_LIMIT: Duration = Duration::from_secs(10);
/// A catalog that changes is copied this often.
const COPY_EVERY: Duration = Duration::from_secs(600);
/// Bad blocks that are remembered for the status.
const LOST_REMEMBERED: usize = 100;

/// The time of an event.
#[derive(Clone, Copy, Debug, Default)]
pub struct Now {
    /// Since the start of the coordinator: what is decided by time is decided by this.
    pub since_start: Duration,
    /// Milliseconds since 1970, for people and for records that outlive the coordinator.
    pub unix_ms: u64,
}

/// A connection, unique in the life of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConnectionId(pub u64);

/// What happens to a coordinator.
#[derive(Debug)]
#[allow(missing_docs, reason = "the fields say no more than their names")]
pub enum Event {
    /// Somebody said hello.
    Joined { connection: ConnectionId, role: Role, hello: Box<FromNode> },
    /// A message of somebody who joined.
    Said { connection: ConnectionId, message: Box<FromNode> },
    /// A connection ended.
    Left { connection: ConnectionId, why: String },
    /// The storage has carried out the ask of this number.
    Stored { number: u64, done: Done },
    /// The storage has not carried out the ask of this number, and nothing has changed.
    Failed { number: u64, error: StoreError },
    /// The storage was asked whether it works again after a fault.
    Recovered(Result<Vec<StoreChange>, OpenError>),
    /// Somebody else has changed something in the store.
    Changed(Vec<StoreChange>),
    /// A member has shown a certificate that is valid until then.
    Certificate { role: Role, expires: SystemTime },
    /// The configuration, read again, asks for encrypted data edges.
    EncryptEdges,
    /// The configuration, read again, says this of what lies between nodes.
    Network(Box<Network>),
    /// The API wants something.
    Asked(Box<Command>),
}

/// What is used when a request does not say.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The cluster that helpers' blocks must belong to.
    pub cluster_id: String,
    /// The code of puts.
    pub code: String,
    /// The length of the blocks of puts.
    pub block_bytes: u64,
    /// The scheme of repairs and reads.
    pub scheme: String,
    /// The helpers of mend.toml; `None` where nobody keeps that list.
    pub helpers: Option<BTreeSet<String>>,
    /// The helper beside each server of the storage system, by the address that this system knows the server by.
    pub beside: BTreeMap<String, String>,
    /// How long a helper may be gone, as mend.toml says.
    pub repair_after: RepairAfter,
    /// What is done about damage by itself; nothing if `None`.
    pub heal: Option<HealPolicy>,
    /// What the steady scrub reads in a second; nothing if `None`.
    pub scrub_bytes_per_s: Option<u64>,
    /// Whether it checks the parity of whole stripes as well.
    pub scrub_parity: bool,
    /// What mend.toml says of what lies between nodes.
    pub network: Network,
}

/// See the module's documentation.
pub struct Control {
    settings: Settings,
    /// What the storage says.
    picture: Picture,
    /// What kind of store that is.
    nature: Nature,
    storing: Storing,
    claims: Claims,
    contradictions: Contradictions,
    codes: Codes,
    topology: Topology,
    figures: Figures,
    /// Links that are being measured, or were last.
    probes: Option<Probes>,
    suspects: Suspects,
    names: BTreeMap<NodeId, String>,
    peers: BTreeMap<NodeId, Peer>,
    connections: BTreeMap<ConnectionId, NodeId>,
    next_client: u32,
    jobs: BTreeMap<JobId, RunningJob>,
    /// Jobs that may have something to do.
    stirred: BTreeSet<JobId>,
    asks: BTreeMap<u64, Question>,
    next_ask: u64,
    puts: OpenPuts,
    readers: Readers,
    given: Given,
    repairs: Repairs,
    healing: Healing,
    surplus: Surplus,
    misplaced: Misplaced,
    orphans: Orphans,
    scrub: Option<Scrub>,
    past_scrubs: VecDeque<ScrubView>,
    steady: Steady,
    checks: ParityChecks,
    condemned: Condemned,
    lost_lately: VecDeque<LostBlock>,
    certificates: Certificates,
    /// What the store says keeps it from its work.
    troubles: Vec<String>,
    unjudged: UnjudgedStripes,
    news: StoreNews,
    made_lately: MadeLately,
    newer: Newer,
    /// Helpers that are to be emptied, and get no blocks.
    leaving: Leaving,
    rooms: Rooms,
    fullness: Fullness,
    capping: Capping,
    /// Helpers that are back and have not said what their blocks are.
    unproven: BTreeMap<NodeId, Unproven>,
    /// Helpers that the catalog knows and mend.toml does not.
    retired: BTreeSet<NodeId>,
    absences: Absences,
    maintenance: BTreeMap<NodeId, Maintenance>,
    /// How long a helper may be gone, if somebody has set it.
    repair_after_set: Option<RepairAfter>,
    history: History,
    risks: Redundancy,
    settled: bool,
    /// When removals that had to wait are looked at again.
    removals_due: Duration,
    /// When the catalog was last copied, and how many changes it had seen then.
    copied: Option<(Duration, u64)>,
    now: Duration,
    unix_ms: u64,
    rng: StdRng,
    effects: Effects,
}

impl Control {
    /// A coordinator over a storage that was read. Repairs that an earlier one did not end are queued again.
    pub fn new(settings: Settings, opened: Opened, rng: StdRng, unix_ms: u64) -> Self {
        let Opened { picture, nature, unlisted, numbers, records, .. } = opened;
        let mut core = Self {
            settings,
            picture,
            nature,
            storing: Storing::new(numbers),
            claims: Claims::default(),
            contradictions: Contradictions::default(),
            codes: Codes::default(),
            topology: Topology::new(),
            figures: Figures::default(),
            probes: None,
            suspects: Suspects::default(),
            names: BTreeMap::new(),
            peers: BTreeMap::new(),
            connections: BTreeMap::new(),
            next_client: nodes::FIRST_CLIENT,
            jobs: BTreeMap::new(),
            stirred: BTreeSet::new(),
            asks: BTreeMap::new(),
            next_ask: 0,
            puts: OpenPuts::default(),
            readers: Readers::default(),
            given: Given::default(),
            repairs: Repairs::new(nature),
            healing: Healing::default(),
            surplus: Surplus::default(),
            misplaced: Misplaced::default(),
            orphans: Orphans::default(),
            scrub: None,
            past_scrubs: VecDeque::new(),
            steady: Steady::default(),
            checks: ParityChecks::default(),
            condemned: Condemned::default(),
            lost_lately: VecDeque::new(),
            certificates: Certificates::default(),
            troubles: Vec::new(),
            unjudged: UnjudgedStripes::default(),
            news: StoreNews::new(unlisted),
            made_lately: MadeLately::default(),
            newer: Newer::default(),
            leaving: Leaving::default(),
            rooms: Rooms::default(),
            fullness: Fullness::default(),
            capping: Capping::default(),
            unproven: BTreeMap::new(),
            retired: BTreeSet::new(),
            absences: Absences::new(),
            maintenance: BTreeMap::new(),
            repair_after_set: None,
            history: History::default(),
            risks: Redundancy::default(),
            settled: false,
            removals_due: Duration::ZERO,
            copied: None,
            now: Duration::ZERO,
            unix_ms,
            rng,
            effects: Effects::default(),
        };
        core.know_nodes();
        core.recall_leaving(&records);
        core.recall_measured(&records);
        core.lay_links();
        core.recall_caps(&records);
        core.tell_trunks();
        core.requeue_repairs(&records);
        core.recall_scrub(&records);
        core.recall_steady_scrub(&records);
        core.recall_condemned(&records);
        core.recall_history(&records);
        core.recall_contradictions(&records);
        core.recall_absences(&records);
        core.recall_maintenance(&records);
        core.recall_rejected(&records);
        core.settle();
        core
    }

    /// Takes what happened.
    pub fn handle(&mut self, event: Event, now: Now) {
        (self.now, self.unix_ms) = (now.since_start, now.unix_ms);
        match event {
            Event::Joined { connection, role, hello } => self.join(connection, role, *hello),
            Event::Said { connection, message } => self.hear(connection, *message),
            Event::Left { connection, why } => self.part(connection, &why),
            Event::Stored { number, done } => self.stored(number, done),
            Event::Failed { number, error } => self.not_stored(number, error),
            Event::Recovered(result) => self.storage_recovered(result),
            Event::Changed(changes) => self.take_changes(changes),
            Event::Certificate { role, expires } => self.certificates.note(role, expires),
            Event::EncryptEdges => self.encrypt_edges(),
            Event::Network(network) => self.change_network(*network),
            Event::Asked(command) => self.carry_out(*command),
        }
        self.work();
    }

    /// From now on the edges of all new plans are encrypted. There is no way back but a restart, so that nobody who
    /// edits a file turns it off by accident.
    pub fn encrypt_edges(&mut self) {
        if !self.topology.encrypts_edges() {
            tracing::info!("data edges are encrypted");
            self.topology.encrypt_edges();
        }
    }

    /// Time has passed.
    pub fn handle_tick(&mut self, now: Now) {
        (self.now, self.unix_ms) = (now.since_start, now.unix_ms);
        self.refuse_writes();
        self.with_all_jobs(Job::handle_tick);
        self.abort_idle_puts();
        self.expire_asks();
        self.expire_checks();
        self.expire_readers();
        self.retry_removals();
        self.forget_retired();
        self.expire_maintenance();
        self.expire_figures();
        self.look_for_room();
        self.begin_recoveries();
        self.drain_again();
        self.note_all_bad();
        self.forget_given();
        self.look_at_claims();
        self.heal();
        self.look_for_surplus();
        self.mend_placement();
        self.tidy_orphans();
        self.keep_copy();
        self.note_progress();
        self.tell_changes();
        self.share_caps();
        self.end_late_trial();
        self.stop_waiting_for_returned();
        self.work();
    }

    /// How long to wait for an event before time is looked at.
    pub fn tick(&self) -> Duration {
        if self.jobs.is_empty() { IDLE_TICK } else { BUSY_TICK }
    }

    /// Does all that can be done now.
    fn work(&mut self) {
        self.settle();
        loop {
            self.drain_jobs();
            self.start_repairs();
            self.ask_scrub();
            self.scrub_steadily();
            if self.stirred.is_empty() {
                return;
            }
        }
    }

    /// The next thing for the driver to do, apart from what the storage is asked.
    pub fn poll(&mut self) -> Option<Effect> {
        self.effects.pop()
    }

    /// After a start, helpers come back one by one, and the coordinator lists a store that others run.
    fn settle(&mut self) {
        let gone = |node: &NodeId| {
            self.retired.contains(node) || self.peers.contains_key(node) || self.has_no_helper(*node)
        };
        let expected = || self.names.keys().all(gone);
        let is_listed = self.news.unlisted().is_none();
        if !self.settled && is_listed && (self.now >= SETTLE_LIMIT || expected()) {
            self.settled = true;
            self.find_absent();
            self.after_settling();
        }
    }

    /// Keeps a copy of the catalog at the start and from time to time, on another thread. One that is older than some
    /// block is not worth it, and would take the place of a better one.
    fn keep_copy(&mut self) {
        let (changes, kept) = (self.storing.changes, self.copied);
        if kept.is_some_and(|(at, kept)| self.now < at + COPY_EVERY || changes == kept)
            || !self.settled
            || !self.may_remove()
        {
            return;
        }
        self.copied = Some((self.now, changes));
        self.ask_storage(Ask::KeepCopy);
    }

    fn name(&self, node: NodeId) -> String {
        self.topology.name(node)
    }
}
