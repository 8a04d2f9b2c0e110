//! The coordinator's process: the real [`Control`] over the real catalog, with a model of its driver.
//!
//! As in the driver, the storage processes one batch at a time. At random, a batch's transaction takes effect
//! either when the batch is handed over or when it is answered. So if the coordinator dies in between, the
//! batch may have been stored or not.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use cluster::{Network, RepairAfter};
use control::{
    Answer, Ask, Command, ConnectionId, Control, Effect, Event, HealPolicy, Now, Opened, RequestId, Settings,
    carry_out,
};
use dir::DirCatalog;
use rand::SeedableRng;
use rand::rngs::StdRng;
use store_api::{Catalog, Storage, StoreChange, StripeRecord, Term};

use super::platter::Platter;
use super::script::Script;
use crate::dice::Dice;

pub(crate) const CLUSTER: &str = "00000000000000000000000000000001";
const CATALOG: &str = "catalog.redb";
/// The wall clock at the start of a run: a day in 2026.
const START_UNIX_MS: u64 = 1_790_000_000_000;
/// Maximum number of requests in a batch.
const TOGETHER: usize = 256;
/// Time until a coordinator that could not start is restarted.
pub(crate) const START_AGAIN: Duration = Duration::from_secs(2);

/// The longest time that the storage takes for a batch, except where a fault changes it.
pub(crate) const STORAGE_DELAY: Duration = Duration::from_millis(3);

/// The coordinator's process and the catalog's medium.
pub(crate) struct Coordinator {
    pub(crate) platter: Platter,
    /// Number of starts so far.
    pub(crate) run: u32,
    pub(crate) running: Option<Running>,
    /// The wall clock in milliseconds since 1970, as the storage reads it.
    time: Arc<AtomicU64>,
    /// The error of the wall clock in seconds.
    pub(crate) skew_s: i64,
    /// The longest time that the storage takes for a batch.
    pub(crate) storage_delay: Duration,
    settings: Settings,
}

/// A running process.
pub(crate) struct Running {
    pub(crate) control: Control,
    storage: Storage,
    term: Term,
    pub(crate) started: Duration,
    ticked: Duration,
    /// The time of the next tick that is scheduled.
    pub(crate) tick_at: Option<Duration>,
    batch: Option<Batch>,
    /// Connections whose coordinator end is open.
    connections: BTreeSet<ConnectionId>,
    /// Requests without an answer.
    open: BTreeSet<RequestId>,
}

enum Batch {
    /// The batch is carried out, but not answered yet.
    Done(Vec<Event>, Vec<Answer>),
    /// The batch is not carried out yet.
    Waiting(Vec<Ask>),
}

impl Coordinator {
    pub(crate) fn new(script: &Script) -> Self {
        let settings = Settings {
            cluster_id: CLUSTER.into(),
            code: script.code.to_string(),
            block_bytes: script.block_bytes,
            scheme: "auto".into(),
            helpers: Some(script.helper_ids().map(super::process::name_of).collect()),
            beside: BTreeMap::new(),
            repair_after: RepairAfter::Time(script.repair_after),
            heal: script.heals.then_some(HealPolicy { dry_run: false }),
            scrub_bytes_per_s: script.scrub_bytes_per_s,
            scrub_parity: script.seed.is_multiple_of(2),
            network: Network::default(),
        };
        // Every system begins with the same empty catalog.
        static EMPTY: LazyLock<Platter> = LazyLock::new(|| {
            let platter = Platter::default();
            DirCatalog::create_on(platter.handle(), CATALOG, CLUSTER)
                .expect("the medium is new and takes all");
            platter
        });
        let platter = EMPTY.copy();
        let time = Arc::new(AtomicU64::new(START_UNIX_MS));
        Self { platter, run: 0, running: None, time, skew_s: 0, storage_delay: STORAGE_DELAY, settings }
    }

    /// Starts a process. Fails if the catalog cannot be opened.
    pub(crate) fn start(&mut self, now: Duration, dice: &mut Dice) -> Result<(), String> {
        self.run += 1;
        self.platter.let_go();
        let mut storage = self.open(&self.platter, dice)?.into_storage();
        let opened = Opened::read(&mut storage).map_err(|error| error.to_string())?;
        let term = opened.term();
        let mut seed = [0; 32];
        seed.copy_from_slice(&dice.bytes(32));
        let unix_ms = self.read_clock(now);
        let control = Control::new(self.settings.clone(), opened, StdRng::from_seed(seed), unix_ms);
        self.running = Some(Running {
            control,
            storage,
            term,
            started: now,
            ticked: Duration::ZERO,
            tick_at: None,
            batch: None,
            connections: BTreeSet::new(),
            open: BTreeSet::new(),
        });
        Ok(())
    }

    fn open(&self, platter: &Platter, dice: &mut Dice) -> Result<DirCatalog, String> {
        let (platter, era) = (platter.clone(), dice.between(1, (1 << 30) - 1) as u32);
        let time = Arc::clone(&self.time);
        let clock = move || time.load(Ordering::Relaxed);
        let opened = DirCatalog::open_on(move || platter.handle(), CATALOG, CLUSTER, era, clock);
        opened.map_err(|error| error.to_string())
    }

    /// Kills the process. With `power`, the machine loses power, and unsynced writes may be lost. Returns the
    /// requests that are not answered.
    pub(crate) fn die(&mut self, power: bool, dice: &mut Dice) -> Option<BTreeSet<RequestId>> {
        let running = self.running.take()?;
        match power {
            true => self.platter.lose_power(dice),
            false => self.platter.let_go(),
        }
        Some(running.open)
    }

    /// Reads the wall clock, and sets the time that the storage sees.
    fn read_clock(&self, now: Duration) -> u64 {
        let unix_ms = (START_UNIX_MS + now.as_millis() as u64).saturating_add_signed(self.skew_s * 1000);
        self.time.store(unix_ms, Ordering::Relaxed);
        unix_ms
    }

    /// Returns the time on the process's own clocks.
    fn clock(&self, now: Duration) -> Now {
        let started = self.running.as_ref().map_or(now, |running| running.started);
        Now { since_start: now.saturating_sub(started), unix_ms: self.read_clock(now) }
    }

    pub(crate) fn handle(&mut self, event: Event, now: Duration) {
        let clock = self.clock(now);
        if let Some(running) = &mut self.running {
            running.control.handle(event, clock);
        }
    }

    pub(crate) fn ask(&mut self, request: RequestId, command: Command, now: Duration) {
        if let Some(running) = &mut self.running {
            running.open.insert(request);
        }
        self.handle(Event::Asked(Box::new(command)), now);
    }

    /// Returns the next effect of the control plane.
    pub(crate) fn poll(&mut self) -> Option<Effect> {
        self.running.as_mut()?.control.poll()
    }

    pub(crate) fn is_connected(&self, connection: ConnectionId) -> bool {
        self.running.as_ref().is_some_and(|running| running.connections.contains(&connection))
    }

    pub(crate) fn connect(&mut self, connection: ConnectionId) {
        if let Some(running) = &mut self.running {
            running.connections.insert(connection);
        }
    }

    pub(crate) fn forget_connection(&mut self, connection: ConnectionId) {
        if let Some(running) = &mut self.running {
            running.connections.remove(&connection);
        }
    }

    /// Records that a request is answered. Returns `false` if it was answered before.
    pub(crate) fn has_answered(&mut self, request: RequestId) -> bool {
        self.running.as_mut().is_some_and(|running| running.open.remove(&request))
    }

    /// Lets the control plane handle a tick, if one is due.
    pub(crate) fn tick(&mut self, now: Duration) {
        let clock = self.clock(now);
        let Some(running) = &mut self.running else { return };
        running.tick_at = None;
        if clock.since_start >= running.ticked + running.control.tick() {
            running.ticked = clock.since_start;
            running.control.handle_tick(clock);
        }
    }

    /// Returns the time of the next tick, if the tick must be scheduled.
    pub(crate) fn next_tick(&mut self, now: Duration) -> Option<Duration> {
        let running = self.running.as_mut()?;
        let due = (running.started + running.ticked + running.control.tick()).max(now);
        if running.tick_at.is_some_and(|at| at <= due) {
            return None;
        }
        running.tick_at = Some(due);
        Some(due)
    }

    /// Hands a batch to the storage, if there is one and the previous batch is answered. Returns the time at
    /// which the storage will answer the batch.
    pub(crate) fn feed(&mut self, now: Duration, dice: &mut Dice) -> Option<Duration> {
        let delay = self.storage_delay;
        self.read_clock(now);
        let running = self.running.as_mut().filter(|running| running.batch.is_none())?;
        let asks: Vec<Ask> = std::iter::from_fn(|| running.control.poll_storage()).take(TOGETHER).collect();
        if asks.is_empty() {
            return None;
        }
        running.batch = Some(match dice.one_in(2) {
            true => running.carry_out(asks),
            false => Batch::Waiting(asks),
        });
        Some(now + dice.up_to(delay))
    }

    /// Completes the storage's batch and returns the answers to it.
    pub(crate) fn storage_done(&mut self) -> (Vec<Event>, Vec<Answer>) {
        let Some(running) = &mut self.running else { return Default::default() };
        match running.batch.take() {
            Some(Batch::Waiting(asks)) => match running.carry_out(asks) {
                Batch::Done(events, answers) => (events, answers),
                Batch::Waiting(_) => unreachable!("it was carried out"),
            },
            Some(Batch::Done(events, answers)) => (events, answers),
            None => Default::default(),
        }
    }

    /// Stops the process after the storage has carried out all requests. Returns the API requests that are
    /// not answered.
    pub(crate) fn stop(&mut self) -> Option<BTreeSet<RequestId>> {
        let mut running = self.running.take()?;
        if let Some(Batch::Waiting(asks)) = running.batch.take() {
            running.carry_out(asks);
        }
        loop {
            let asks: Vec<Ask> =
                std::iter::from_fn(|| running.control.poll_storage()).take(TOGETHER).collect();
            if asks.is_empty() {
                break;
            }
            running.carry_out(asks);
        }
        drop(running.storage);
        self.platter.let_go();
        Some(running.open)
    }

    /// Whether the storage has not answered a batch yet.
    pub(crate) fn is_storing(&self) -> bool {
        self.running.as_ref().is_some_and(|running| running.batch.is_some())
    }

    /// Returns the numbers of files and of unfinished puts in the catalog.
    pub(crate) fn files(&self) -> (u64, u64) {
        let (mut files, mut puts) = (0, 0);
        if let Some(running) = &self.running {
            let _ = running.storage.each_file(&mut |change| {
                files += u64::from(matches!(change, StoreChange::File(_)));
                puts += u64::from(matches!(change, StoreChange::Put(_)));
            });
        }
        (files, puts)
    }

    /// Copies the catalog of a medium to a new medium, as `mend catalog snapshot` does.
    pub(crate) fn snapshot_of(&self, platter: &Platter) -> Option<Platter> {
        let copy = Platter::default();
        let catalog = self.open(&platter.copy(), &mut Dice::new(1)).ok()?;
        let snapshot = catalog.snapshot().ok()?;
        snapshot.write_on(copy.handle()).ok().map(|()| copy)
    }

    /// Returns the stripes in the catalog, even while no process runs. The flag is true if the stripe belongs
    /// to a file, and false if its put is unfinished.
    pub(crate) fn stripes(&self) -> Vec<(StripeRecord, bool)> {
        let mut stripes = Vec::new();
        let mut visit = |stripe, is_pending: bool| stripes.push((stripe, !is_pending));
        match &self.running {
            Some(running) if running.storage.each_stripe(&mut visit).is_ok() => {}
            _ => {
                stripes.clear();
                let copy = self.open(&self.platter.copy(), &mut Dice::new(1));
                if let Ok(catalog) = copy {
                    let _ =
                        catalog.each_stripe(&mut |stripe, is_pending| stripes.push((stripe, !is_pending)));
                }
            }
        }
        stripes
    }
}

impl Running {
    fn carry_out(&mut self, asks: Vec<Ask>) -> Batch {
        let (events, others) = carry_out(&mut self.storage, self.term, asks);
        let answers = others.into_iter().filter_map(|ask| match ask {
            Ask::Snapshot(reply) => Some(reply.with(self.storage.snapshot().map_err(Into::into))),
            Ask::KeepCopy => None,
            Ask::Write { .. } | Ask::Recover => unreachable!("it is answered with the writes"),
        });
        Batch::Done(events, answers.collect())
    }
}
