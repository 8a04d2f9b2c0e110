//! Scripts: a cluster, the operations of its clients and its operator, and faults. A seed decides them all.

use std::time::Duration;

use codes::CodeSpec;
use repair::Report;
use repair::wire::control::{FromNode, ToNode};

use super::event::ProcessId;
use crate::dice::Dice;

/// Length of the period in which operations and faults start.
const BUSY: Duration = Duration::from_secs(60);
/// The number of the first client.
pub(crate) const FIRST_CLIENT: u32 = 1000;

/// Codes of random scripts, all small.
const CODES: [&str; 9] = [
    "rs-3-2",
    "rs-4-2",
    "rs-4-2",
    "rs-5-3",
    "rs-6-4",
    "lrc-4-2-1",
    "clay-4-2-3",
    "hitchhiker-xor-7-5",
    "rotated-6-4-2",
];

/// Codes of scripts with many stripes.
const RECOVERED: [&str; 4] = ["rs-4-2", "rs-6-4", "rs-9-6", "lrc-4-2-2"];

/// The script of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    /// The seed that decides all delays, bytes and choices.
    pub seed: u64,
    /// The code of all puts.
    pub code: CodeSpec,
    /// Block size in bytes.
    pub block_bytes: u64,
    /// Number of helpers.
    pub helpers: u32,
    /// Number of clients.
    pub clients: u32,
    /// The grace period: how long a helper may be absent before its blocks are rebuilt.
    pub repair_after: Duration,
    /// Whether damage is repaired automatically.
    pub heals: bool,
    /// Rate of the background scrub in bytes per second, if it runs.
    pub scrub_bytes_per_s: Option<u64>,
    /// Rate of each link in bytes per second.
    pub link_rate: u64,
    /// The longest latency of a disk operation, in addition to the transfer of its bytes.
    pub disk_latency: Duration,
    /// The longest delay of a control message, except where a fault changes it.
    pub message_delay: Duration,
    /// Whether control messages are encoded and decoded on their way.
    pub json: bool,
    /// Operations, each with its start time.
    pub operations: Vec<(Duration, Operation)>,
    /// Faults, each with the time at which it strikes.
    pub faults: Vec<(When, Fault)>,
}

/// The time at which a fault strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct When {
    /// The time at which the fault strikes, or starts to wait for `on`.
    pub at: Duration,
    /// The trigger that the fault waits for, if any.
    pub on: Option<Trigger>,
}

/// An activity in the middle of which a waiting fault strikes. A fault that names a helper then strikes the
/// helper of this activity instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Trigger {
    /// A helper registers.
    Registers,
    /// A helper receives its tasks of a plan.
    Assigned,
    /// The coordinator orders a helper to commit its deliveries.
    Commits,
    /// A helper has committed its deliveries.
    Committed,
    /// The coordinator orders a helper to read a block back.
    Rereads,
    /// The coordinator orders a helper to remove a block.
    Removes,
    /// The coordinator orders a helper to verify a block.
    Verifies,
    /// The coordinator orders a helper to describe its blocks.
    Describes,
    /// A helper reports a bad block.
    FindsBad,
    /// The storage receives a batch.
    Stores,
}

impl Trigger {
    const ALL: [Self; 10] = [
        Self::Registers,
        Self::Assigned,
        Self::Commits,
        Self::Committed,
        Self::Rereads,
        Self::Removes,
        Self::Verifies,
        Self::Describes,
        Self::FindsBad,
        Self::Stores,
    ];

    /// Returns the trigger that an order to a helper sets off, if any.
    pub(crate) fn of_order(message: &ToNode) -> Option<Self> {
        Some(match message {
            ToNode::Registered { .. } => Self::Registers,
            ToNode::Assign(_) => Self::Assigned,
            ToNode::Commit { .. } => Self::Commits,
            ToNode::Reread { .. } => Self::Rereads,
            ToNode::Remove { .. } => Self::Removes,
            ToNode::Verify { .. } => Self::Verifies,
            ToNode::Describe { .. } => Self::Describes,
            _ => return None,
        })
    }

    /// Returns the trigger that a helper's report sets off, if any.
    pub(crate) fn of_report(message: &FromNode) -> Option<Self> {
        match message {
            FromNode::Report { report: Report::Committed, .. } => Some(Self::Committed),
            FromNode::Verified { result: Err(_), .. }
            | FromNode::Report { report: Report::BadBlock { .. }, .. } => Some(Self::FindsBad),
            _ => None,
        }
    }
}

/// An operation of a client or the operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the field names are self-explanatory")]
pub enum Operation {
    /// A client puts a file.
    Put {
        client: ProcessId,
        file: u32,
        bytes: u64,
        replace: bool,
    },
    /// A client reads a file.
    Read {
        client: ProcessId,
        file: u32,
    },
    /// A client removes a file.
    Remove {
        client: ProcessId,
        file: u32,
    },
    /// The operator requests the repair of all lost blocks.
    RepairAll,
    /// The operator requests the recovery of a helper that is down.
    RepairNode {
        helper: ProcessId,
    },
    /// The operator drains a helper.
    Drain {
        helper: ProcessId,
    },
    StopDrain {
        helper: ProcessId,
    },
    /// The operator pauses or resumes all open repairs.
    PauseRepairs {
        paused: bool,
    },
    CancelRepairs,
    /// The operator starts a scrub, with parity checks or without.
    Scrub {
        parity: bool,
    },
    /// The operator begins the maintenance of a helper.
    Maintain {
        helper: ProcessId,
        lasts: Duration,
    },
    EndMaintenance {
        helper: ProcessId,
    },
    /// The operator caps the total sending rate of all helpers.
    Cap {
        bytes_per_s: Option<u64>,
    },
    /// The operator rebalances helpers.
    Rebalance,
    /// The operator removes orphans.
    RemoveOrphans,
    /// The operator measures links.
    Probe,
    /// The operator requests every kind of view.
    Look,
}

/// A fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the field names are self-explanatory")]
pub enum Fault {
    /// The coordinator's process is killed. If `power`, the machine loses power, and unsynced writes may be
    /// lost.
    CoordinatorDies { power: bool, back_after: Duration },
    /// The coordinator is shut down properly and restarted.
    CoordinatorRestarts { back_after: Duration },
    /// A helper's process is killed. If `unheard`, the whole machine vanishes without closing connections.
    /// Without `back_after` the helper and its disk leave for good.
    HelperDies { helper: ProcessId, unheard: bool, back_after: Option<Duration> },
    /// A client's process is killed and restarted.
    ClientDies { client: ProcessId, back_after: Duration },
    /// A control connection is reset.
    WireBreaks { process: ProcessId },
    /// A partition between a process and the coordinator, in one direction or both.
    Partition { process: ProcessId, up: bool, down: bool, lasts: Duration },
    /// A partition of the data path between two helpers.
    DataPartition { a: ProcessId, b: ProcessId, lasts: Duration },
    /// Control messages of a process become slow.
    SlowControl { process: ProcessId, limit: Duration, lasts: Duration },
    /// A bit flips in a frame that a helper sends.
    FlipFrame { from: ProcessId },
    /// The links and the disk of a helper become slow.
    Slow { helper: ProcessId, factor: u32, lasts: Duration },
    /// A write or sync to the catalog's medium fails after `after_writes` successful ones. If `once`, later
    /// ones succeed; otherwise they fail as well.
    StorageFails { after_writes: u32, once: bool, lasts: Duration },
    /// The catalog's medium becomes slow.
    StorageSlow { limit: Duration, lasts: Duration },
    /// A helper's disk is full.
    DiskFull { helper: ProcessId, lasts: Duration },
    /// A helper is restarted without its disk, and again with it when the fault ends.
    DiskAway { helper: ProcessId, lasts: Duration },
    /// A helper loses a block.
    BlockLost { helper: ProcessId, nth: u32 },
    /// A block of a helper no longer matches its checksums.
    BlockCorrupt { helper: ProcessId, nth: u32 },
    /// A block of a helper is corrupted silently: its checksums match the wrong bytes.
    BlockForged { helper: ProcessId, nth: u32 },
    /// The catalog is replaced by the newest backup of at least this age. If all backups are newer, it is
    /// replaced by the oldest one.
    CatalogRestored { age: Duration, back_after: Duration },
    /// The coordinator's wall clock jumps.
    ClockJumps { by_s: i32 },
}

/// The severity of a script's faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Weather {
    /// No faults.
    Calm,
    /// Processes die and come back.
    Crashes,
    /// Processes die and come back, and networks break.
    Storms,
    /// Processes die and come back, networks break, and disks fail.
    Disasters,
}

impl Script {
    /// Generates the script of a seed. The seed also decides the severity of the faults.
    pub fn random(seed: u64) -> Self {
        let weather = [Weather::Calm, Weather::Crashes, Weather::Storms, Weather::Disasters];
        Self::in_weather(seed, weather[[0, 1, 2, 2, 3, 3, 3, 3][(seed % 8) as usize]])
    }

    /// Generates the script of a seed with faults of this severity.
    ///
    /// # Panics
    /// If a name in `CODES` is not a code.
    pub fn in_weather(seed: u64, weather: Weather) -> Self {
        let dice = &mut Dice::new(seed ^ 0x7379_7374);
        let code: CodeSpec = dice.pick(&CODES).parse().expect("it is a code");
        let unit = 4096 * code.sub_blocks() as u64;
        let mut script = Self {
            seed,
            helpers: code.blocks() as u32 + dice.between(1, 3) as u32,
            clients: dice.between(1, 2) as u32,
            block_bytes: unit * dice.pick(&[1, 1, 1, 2, 3]),
            repair_after: Duration::from_secs(dice.pick(&[5, 15, 40])),
            heals: !dice.one_in(4),
            scrub_bytes_per_s: dice.one_in(3).then(|| dice.pick(&[1_000, 20_000])),
            link_rate: dice.pick(&[50_000_000, 5_000_000, 500_000, 100_000]),
            disk_latency: Duration::from_millis(dice.pick(&[1, 5, 30, 200])),
            message_delay: Duration::from_millis(dice.pick(&[1, 2, 20, 150])),
            json: dice.one_in(10),
            operations: Vec::new(),
            faults: Vec::new(),
            code,
        };
        // Some files exist before anything else happens.
        for file in 0..4 {
            let put = script.put(dice, file);
            script.operations.push((Duration::from_secs(2), put));
        }
        for _ in 0..dice.between(4, 20) {
            let operation = script.operation(dice, weather);
            let at = match dice.one_in(2) {
                true => Duration::from_secs(3) + dice.up_to(BUSY),
                false => script.soon_after_another(dice),
            };
            script.operations.push((at, operation));
        }
        if weather > Weather::Calm {
            for _ in 0..dice.pick(&[1, 1, 2, 2, 3, 4, 6, 8]) {
                let fault = script.fault(dice, weather);
                let when = script.moment(dice);
                script.faults.push((when, fault));
                // The catalog may still record the first return of the helper when it returns again.
                if let Fault::DiskAway { lasts, .. } = fault
                    && dice.one_in(2)
                {
                    let limit = Duration::from_millis(dice.between(1, 20_000));
                    script.faults.push((when, Fault::StorageSlow { limit, lasts: lasts + limit }));
                }
            }
        }
        script.operations.sort_by_key(|&(at, _)| at);
        script.faults.sort_by_key(|&(when, _)| when.at);
        script
    }

    /// Generates a script with many stripes on nodes that die and may come back. The operator requests the
    /// recovery of each dead node. There are no other faults.
    pub fn recovery(seed: u64) -> Self {
        let dice = &mut Dice::new(seed ^ 0x7265_636f);
        let base = Self::in_weather(seed, Weather::Calm);
        let code: CodeSpec = dice.pick(&RECOVERED).parse().expect("it is a code");
        let helpers = code.blocks() as u32 + dice.between(2, 8) as u32;
        let mut script =
            Self { code, helpers, block_bytes: 4096, heals: true, operations: Vec::new(), ..base };
        script.put_stripes(dice.between(3, 16));
        for _ in 0..dice.between(1, 4) {
            let (helper, at) = (script.helper(dice), Duration::from_secs(10) + dice.up_to(BUSY / 4));
            let back_after = dice.one_in(2).then(|| dice.up_to(BUSY / 2));
            let fault = Fault::HelperDies { helper, unheard: dice.one_in(2), back_after };
            script.faults.push((When { at, on: None }, fault));
            script.operations.push((at + dice.up_to(BUSY / 10), Operation::RepairNode { helper }));
        }
        script
    }

    /// Returns a script in which one of twelve helpers dies and is recovered, without other faults.
    pub fn one_node(stripes: u64) -> Self {
        let base = Self::in_weather(0, Weather::Calm);
        let mut script = Self {
            code: "rs-6-4".parse().expect("it is a code"),
            helpers: 12,
            block_bytes: 64 << 10,
            repair_after: Duration::from_secs(5),
            heals: true,
            scrub_bytes_per_s: None,
            link_rate: 5_000_000,
            operations: Vec::new(),
            ..base
        };
        script.put_stripes(stripes);
        let dies = Fault::HelperDies { helper: ProcessId(0), unheard: false, back_after: None };
        script.faults.push((When { at: BUSY / 2, on: None }, dies));
        script
    }

    /// Adds puts of files with four stripes each, one after the other.
    fn put_stripes(&mut self, stripes: u64) {
        let (stripe, client) = (self.block_bytes * self.code.data_blocks() as u64, ProcessId(FIRST_CLIENT));
        for file in 0..stripes.div_ceil(4) {
            let at = Duration::from_secs(2) + Duration::from_millis(200) * file as u32;
            let bytes = stripe * (stripes - file * 4).min(4);
            let put = Operation::Put { client, file: file as u32, bytes, replace: false };
            self.operations.push((at, put));
        }
    }

    /// Returns the time at which all faults end. All operations have started by then.
    pub fn calm_at(&self) -> Duration {
        BUSY + Duration::from_secs(10)
    }

    /// Returns the ids of all helpers.
    pub fn helper_ids(&self) -> impl Iterator<Item = ProcessId> + use<> {
        (0..self.helpers).map(ProcessId)
    }

    /// Returns the ids of all clients.
    pub fn client_ids(&self) -> impl Iterator<Item = ProcessId> + use<> {
        (0..self.clients).map(|client| ProcessId(FIRST_CLIENT + client))
    }

    /// Whether all processes that the operations and faults name exist.
    pub(crate) fn is_possible(&self) -> bool {
        let is_there = |process: ProcessId| match process.0.checked_sub(FIRST_CLIENT) {
            Some(client) => client < self.clients,
            None => process.0 < self.helpers,
        };
        let operations = self.operations.iter().flat_map(|(_, operation)| operation.processes());
        let faults = self.faults.iter().flat_map(|(_, fault)| fault.processes());
        operations.chain(faults).all(is_there)
    }

    /// Returns a random time shortly after the start of another operation.
    fn soon_after_another(&self, dice: &mut Dice) -> Duration {
        let other = self.operations[dice.below(self.operations.len() as u64) as usize].0;
        let soon = Duration::from_millis(dice.pick(&[10, 100, 1_000, 10_000]));
        other + dice.up_to(soon)
    }

    /// Returns a random time for a fault, mostly shortly after another operation or fault.
    fn moment(&self, dice: &mut Dice) -> When {
        let at = match dice.below(4) {
            0 => Duration::from_secs(3) + dice.up_to(BUSY),
            1 if !self.faults.is_empty() => {
                let other = self.faults[dice.below(self.faults.len() as u64) as usize].0.at;
                other + dice.up_to(Duration::from_secs(1))
            }
            _ => self.soon_after_another(dice),
        };
        When { at, on: dice.one_in(2).then(|| self.trigger(dice)) }
    }

    /// Returns a random trigger: often the discovery of a bad block, if some fault makes blocks bad.
    fn trigger(&self, dice: &mut Dice) -> Trigger {
        match self.faults.iter().any(|(_, fault)| fault.spoils()) && dice.one_in(2) {
            true => Trigger::FindsBad,
            false => dice.pick(&Trigger::ALL),
        }
    }

    fn put(&self, dice: &mut Dice, file: u32) -> Operation {
        let stripe = self.block_bytes * self.code.data_blocks() as u64;
        let bytes = match dice.below(4) {
            0 => dice.between(0, 100),
            1 => stripe,
            _ => dice.between(1, stripe * 3),
        };
        Operation::Put { client: self.client(dice), file, bytes, replace: dice.one_in(2) }
    }

    fn client(&self, dice: &mut Dice) -> ProcessId {
        ProcessId(FIRST_CLIENT + dice.below(self.clients.into()) as u32)
    }

    /// Returns the helper that most operations and faults concern; `None` in half of the scripts. A script
    /// with such a helper also uses fewer files. Both make collisions likely.
    fn focus(&self) -> Option<ProcessId> {
        (self.seed / 8)
            .is_multiple_of(2)
            .then(|| ProcessId((self.seed / 16 % u64::from(self.helpers)) as u32))
    }

    fn helper(&self, dice: &mut Dice) -> ProcessId {
        let any = ProcessId(dice.below(self.helpers.into()) as u32);
        self.focus().filter(|_| !dice.one_in(3)).unwrap_or(any)
    }

    fn file(&self, dice: &mut Dice) -> u32 {
        dice.below(if self.focus().is_some() { 2 } else { 5 }) as u32
    }

    fn operation(&self, dice: &mut Dice, weather: Weather) -> Operation {
        let (client, file, helper) = (self.client(dice), self.file(dice), self.helper(dice));
        // Only the first few helpers are drained, so that n others remain for the blocks of each stripe.
        let drained = ProcessId(dice.below(u64::from(self.helpers) - self.code.blocks() as u64) as u32);
        let operates = weather > Weather::Calm || dice.one_in(2);
        match dice.below(if operates { 28 } else { 14 }) {
            0..6 => self.put(dice, file),
            6..11 => Operation::Read { client, file },
            11..13 => Operation::Remove { client, file },
            13 => Operation::RepairAll,
            14 => Operation::RepairNode { helper },
            15..17 => Operation::Drain { helper: drained },
            17 => Operation::StopDrain { helper: drained },
            18 => Operation::PauseRepairs { paused: true },
            19 => Operation::PauseRepairs { paused: false },
            20 => Operation::CancelRepairs,
            21..23 => Operation::Scrub { parity: dice.one_in(2) },
            23 => Operation::Maintain { helper, lasts: Duration::from_secs(dice.between(1, 60)) },
            24 => Operation::EndMaintenance { helper },
            25 => Operation::Cap { bytes_per_s: (!dice.one_in(3)).then(|| dice.between(20_000, 1_000_000)) },
            26 => dice.pick(&[Operation::Rebalance, Operation::RemoveOrphans, Operation::Probe]),
            _ => Operation::Look,
        }
    }

    fn fault(&self, dice: &mut Dice, weather: Weather) -> Fault {
        let helper = self.helper(dice);
        let other = ProcessId((helper.0 + 1 + dice.below(u64::from(self.helpers) - 1) as u32) % self.helpers);
        let client = self.client(dice);
        let process = if dice.one_in(4) { client } else { helper };
        let seconds = |dice: &mut Dice, most: u64| Duration::from_millis(dice.between(1, most * 1000));
        let nth = dice.below(64) as u32;
        let kinds = match weather {
            Weather::Calm | Weather::Crashes => 12,
            Weather::Storms => 24,
            Weather::Disasters => 46,
        };
        match dice.below(kinds) {
            0..3 => Fault::CoordinatorDies { power: dice.one_in(2), back_after: seconds(dice, 20) },
            3 => Fault::CoordinatorRestarts { back_after: seconds(dice, 5) },
            4..10 => {
                let back_after = (!dice.one_in(4)).then(|| seconds(dice, 60));
                Fault::HelperDies { helper, unheard: dice.one_in(3), back_after }
            }
            10..12 => Fault::ClientDies { client, back_after: seconds(dice, 5) },
            12..15 => Fault::WireBreaks { process },
            15..18 => {
                let (up, down) = dice.pick(&[(true, true), (true, false), (false, true)]);
                Fault::Partition { process, up, down, lasts: seconds(dice, 30) }
            }
            18..20 => Fault::DataPartition { a: helper, b: other, lasts: seconds(dice, 40) },
            20 => Fault::SlowControl { process, limit: seconds(dice, 3), lasts: seconds(dice, 30) },
            21 => Fault::FlipFrame { from: helper },
            22 => Fault::Slow { helper, factor: dice.pick(&[3, 20, 300]), lasts: seconds(dice, 40) },
            23 => Fault::ClockJumps { by_s: dice.between(0, 20_000) as i32 - 10_000 },
            24..28 => {
                let most = dice.pick(&[1, 10, 50]);
                let after_writes = dice.below(most) as u32;
                Fault::StorageFails { after_writes, once: dice.one_in(2), lasts: seconds(dice, 20) }
            }
            28..30 => Fault::StorageSlow { limit: seconds(dice, 5), lasts: seconds(dice, 30) },
            30 => Fault::DiskFull { helper, lasts: seconds(dice, 60) },
            31..34 => Fault::BlockLost { helper, nth },
            34..37 => Fault::BlockCorrupt { helper, nth },
            37..40 => Fault::BlockForged { helper, nth },
            40..44 => Fault::DiskAway { helper, lasts: seconds(dice, 20) },
            _ => Fault::CatalogRestored { age: seconds(dice, 60), back_after: seconds(dice, 5) },
        }
    }
}

impl Operation {
    fn processes(&self) -> Option<ProcessId> {
        match *self {
            Self::Put { client: id, .. }
            | Self::Read { client: id, .. }
            | Self::Remove { client: id, .. }
            | Self::RepairNode { helper: id }
            | Self::Drain { helper: id }
            | Self::StopDrain { helper: id }
            | Self::Maintain { helper: id, .. }
            | Self::EndMaintenance { helper: id } => Some(id),
            _ => None,
        }
    }
}

impl Fault {
    /// Returns the duration of the fault, if it ends.
    pub(crate) fn lasts(&self) -> Option<Duration> {
        match *self {
            Self::Partition { lasts, .. }
            | Self::DataPartition { lasts, .. }
            | Self::SlowControl { lasts, .. }
            | Self::Slow { lasts, .. }
            | Self::StorageFails { lasts, .. }
            | Self::StorageSlow { lasts, .. }
            | Self::DiskFull { lasts, .. }
            | Self::DiskAway { lasts, .. } => Some(lasts),
            _ => None,
        }
    }

    /// Whether the fault makes a block bad.
    fn spoils(&self) -> bool {
        matches!(self, Self::BlockLost { .. } | Self::BlockCorrupt { .. } | Self::BlockForged { .. })
    }

    /// Directs the fault at another helper, if the fault concerns a helper.
    pub(crate) fn aimed_at(mut self, id: ProcessId) -> Self {
        match &mut self {
            Self::HelperDies { helper, .. }
            | Self::Slow { helper, .. }
            | Self::DiskFull { helper, .. }
            | Self::DiskAway { helper, .. }
            | Self::BlockLost { helper, .. }
            | Self::BlockCorrupt { helper, .. }
            | Self::BlockForged { helper, .. } => *helper = id,
            Self::WireBreaks { process }
            | Self::Partition { process, .. }
            | Self::SlowControl { process, .. } => *process = id,
            _ => {}
        }
        self
    }

    fn processes(&self) -> Vec<ProcessId> {
        match *self {
            Self::HelperDies { helper: id, .. }
            | Self::ClientDies { client: id, .. }
            | Self::WireBreaks { process: id }
            | Self::Partition { process: id, .. }
            | Self::SlowControl { process: id, .. }
            | Self::FlipFrame { from: id }
            | Self::Slow { helper: id, .. }
            | Self::DiskFull { helper: id, .. }
            | Self::DiskAway { helper: id, .. }
            | Self::BlockLost { helper: id, .. }
            | Self::BlockCorrupt { helper: id, .. }
            | Self::BlockForged { helper: id, .. } => vec![id],
            Self::DataPartition { a, b, .. } => vec![a, b],
            _ => Vec::new(),
        }
    }
}
