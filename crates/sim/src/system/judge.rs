//! The judge checks the invariants of a whole system.
//!
//! **Always**: a stripe has at most one job that publishes; every request is answered once; a read returns
//! the stored bytes; queues are bounded; the status has the conditions of helpers that died and of blocks that
//! are lost with them, once the coordinator must have noticed.
//!
//! **In the end**, after all faults: everything is repaired within a bounded time, and the status confirms
//! it. Then, after a scrub, every block of every file is intact, where the catalog places it, on a helper
//! that is up. Every file reads as one of its possible contents, and nothing is in flight.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use codes::BlockIndex;
use repair::wire::control::FromNode;
use repair::{BlockId, BlockProblem, NodeId, Report, StripeId};
use views::{ConditionCode, ScrubState, ScrubView, Status};

use super::assembly::System;
use super::client::Clients;
use super::event::{Happening, ProcessId};
use super::operator::{Operator, Wanted};
use super::process::Process;

/// Interval between the operator's checks of the system, while the script is running and afterwards.
const LOOK_BUSY: Duration = Duration::from_secs(7);
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// The time within which a block that was reported as bad is verified.
const VERIFY: Duration = Duration::from_secs(3);
/// The time after which the coordinator has noticed the death of a helper, or has heard of everything that
/// happened before its start, and the status has the condition.
const NOTICED: Duration = Duration::from_secs(20);
/// Time limit for all repairs: many times the sum of the coordinator's timeouts and retry delays.
const BOUND: Duration = Duration::from_secs(3600);
/// The maximum numbers of concurrent jobs and of waiting writes.
const MOST_JOBS: usize = 512;
const MOST_WRITES: usize = 4096 + 64;

/// The judge's progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The script is running.
    Busy,
    /// Waiting until the status reports that all is well.
    Calming,
    /// Waiting for the end of the scrub with this number.
    Scrubbing(Option<u64>),
    /// Waiting until the status reports that all is well after the scrub.
    Settling,
    /// Waiting until all files have been read.
    Reading,
    /// Everything has been judged.
    Over,
}

/// The judge's observations and progress.
pub(crate) struct Judge {
    pub(crate) phase: Phase,
    /// The time at which all faults had ended.
    calm_since: Option<Duration>,
    /// Summary of the coordinator's last status, or a list of unfinished work, for the message of a
    /// violation.
    last_summary: String,
    /// Bad blocks, with their holders, that were reported to the running coordinator, and the time of the first
    /// report.
    told_bad: BTreeMap<(BlockId, ProcessId), Duration>,
    /// The time of the last request for a status.
    asked_at: Duration,
    /// The stripes that the coordinator knew of at that time. A stripe is unknown to it until the storage has answered.
    known: BTreeSet<StripeId>,
    /// Maximum number of concurrent jobs that publish blocks.
    pub(crate) at_once: usize,
}

impl Judge {
    pub(crate) fn new() -> Self {
        Self {
            phase: Phase::Busy,
            calm_since: None,
            last_summary: String::new(),
            told_bad: BTreeMap::new(),
            asked_at: Duration::ZERO,
            known: BTreeSet::new(),
            at_once: 0,
        }
    }

    pub(crate) fn is_calm(&self) -> bool {
        self.calm_since.is_some()
    }

    /// Handles a start of the coordinator. Reports to the previous run are dropped, since the coordinator
    /// keeps only what was stored.
    pub(crate) fn coordinator_starts(&mut self) {
        self.told_bad.clear();
    }

    /// Drops earlier reports about a block that a fault is about to strike.
    pub(crate) fn forget_told(&mut self, block: &BlockId, holder: ProcessId) {
        self.told_bad.remove(&(block.clone(), holder));
    }

    /// Records a bad block that is reported to the coordinator.
    pub(crate) fn note_bad(&mut self, process: ProcessId, message: &FromNode, now: Duration) {
        let (block, problem) = match message {
            FromNode::Verified { block, result: Err(problem), .. } => (block, problem),
            FromNode::Report { report: Report::BadBlock { block, problem }, .. } => (block, problem),
            _ => return,
        };
        if matches!(problem, BlockProblem::Missing | BlockProblem::Corrupt(_)) {
            self.told_bad.entry((block.clone(), process)).or_insert(now);
        }
    }

    /// Checks the invariants that hold after every event.
    pub(crate) fn check_always(&mut self, system: &mut System) {
        let Some(running) = &system.coordinator.running else { return };
        let in_flight = running.control.in_flight();
        if in_flight.jobs == 0 && in_flight.writes == 0 {
            return;
        }
        let mut seen = BTreeSet::new();
        self.at_once = self.at_once.max(running.control.publishing_jobs().count());
        let twice = running.control.publishing_jobs().find(|(_, stripe)| !seen.insert(*stripe));
        let twice = twice.map(|(_, stripe)| stripe.clone());
        if let Some(stripe) = twice {
            system.shared.violate(format!("two jobs publish blocks of {stripe} at the same time"));
        }
        if in_flight.jobs > MOST_JOBS || in_flight.writes > MOST_WRITES {
            system.shared.violate(format!("too many jobs or writes are in flight: {in_flight:?}"));
        }
    }

    /// Handles the end of all faults.
    pub(crate) fn calm(&mut self, system: &mut System) {
        self.calm_since = Some(system.shared.now);
        self.phase = Phase::Calming;
        Operator::of(system).take_back();
    }

    /// Has the operator check the system from time to time.
    pub(crate) fn begin(system: &mut System) {
        system.after(LOOK_BUSY, Happening::Look);
    }

    /// Makes the operator's next check of the system, as the phase requires.
    pub(crate) fn look(&mut self, clients: &Clients, system: &mut System) {
        if self.calm_since.is_some_and(|since| system.shared.now > since + BOUND) {
            let phase = self.phase;
            system.shared.violate(format!("the phase {phase:?} did not end in time: {}", self.last_summary));
            return;
        }
        match self.phase {
            Phase::Busy | Phase::Calming | Phase::Settling => {
                self.asked_at = system.shared.now;
                self.known = match system.coordinator.is_storing() {
                    true => BTreeSet::new(),
                    false => system.coordinator.stripes().into_iter().map(|(stripe, _)| stripe.id).collect(),
                };
                Operator::of(system).ask_status();
            }
            Phase::Scrubbing(None) => Operator::of(system).begin_scrub(),
            Phase::Scrubbing(Some(scrub)) => Operator::of(system).look_at_scrub(scrub),
            Phase::Reading if clients.are_idle() => self.judge_end(system),
            Phase::Reading | Phase::Over => {}
        }
        system.after(if self.is_calm() { LOOK_EVERY } else { LOOK_BUSY }, Happening::Look);
    }

    pub(crate) fn look_failed(&mut self, wanted: Wanted, system: &mut System) {
        system.shared.note(|| format!("no answer to {wanted:?}"));
        if let Phase::Scrubbing(scrub) = &mut self.phase {
            *scrub = None;
        }
    }

    /// Judges a status: enters the next phase if all is well, otherwise lets the operator react.
    pub(crate) fn judge_status(&mut self, status: &Status, clients: &mut Clients, system: &mut System) {
        judge_conditions(status, &self.known, system);
        if self.calm_since.is_none() {
            return;
        }
        self.last_summary =
            format!("{} ({})", status.summary, status.details().collect::<Vec<_>>().join("; "));
        system.shared.note(|| format!("status: {}", status.summary));
        let is_over = status.work.repairs.is_empty() && status.work.jobs.is_empty() && clients.are_idle();
        let is_well =
            status.healthy && status.catalog.write_fault.is_none() && status.catalog.newer.is_empty();
        let is_everybody_back = system.processes.iter().all(|process| process.gone || process.is_up());
        if status.settling {
            return; // The operator decides about files and helpers only after the start-up phase.
        }
        if !(is_well && is_over && is_everybody_back) {
            return Operator::of(system).help(status);
        }
        match self.phase {
            Phase::Calming if self.verifies() => {}
            Phase::Calming => {
                self.judge_told(system);
                self.phase = Phase::Scrubbing(None);
            }
            Phase::Settling => {
                let untidy = untidy(status, system);
                if !untidy.is_empty() {
                    self.last_summary =
                        format!("neither the catalog nor the status mentions {}", untidy.join(", "));
                    return;
                }
                judge_blocks(system);
                judge_counts(status, system);
                read_everything(clients, system);
                self.phase = Phase::Reading;
            }
            _ => {}
        }
    }

    pub(crate) fn judge_scrub(&mut self, scrub: &ScrubView) {
        self.phase = match scrub.state {
            // The scrub may have read blocks before the last faults, and reads none that were stored since it
            // began. The judge asks again until it has ended.
            ScrubState::Running if scrub.joined => Phase::Scrubbing(None),
            ScrubState::Running => Phase::Scrubbing(Some(scrub.scrub)),
            ScrubState::Done => Phase::Settling,
            ScrubState::Stopped => Phase::Scrubbing(None),
        };
    }

    /// Whether a report of a bad block is so recent that the coordinator may still verify the block, or that the report
    /// came after the last status was made.
    fn verifies(&self) -> bool {
        self.told_bad.values().any(|&at| at + VERIFY > self.asked_at)
    }

    /// Called when the status reports that all is well. Checks that every block that was reported as bad is
    /// good again.
    fn judge_told(&self, system: &mut System) {
        let mut wrong = Vec::new();
        for (stripe, is_of_a_file) in system.coordinator.stripes() {
            let good = system.good_blocks(&stripe);
            for (index, block) in stripe.blocks.iter().enumerate() {
                // The death of a helper may not be noticed yet, and its blocks may have been repaired before.
                let holder = block.node.and_then(|node| system.processes.of_node(node)).filter(|it| !it.gone);
                let is_good = good.iter().any(|&(at, _)| usize::from(at.0) == index);
                let told =
                    holder.is_some_and(|holder| self.told_bad.contains_key(&(block.id.clone(), holder.id)));
                if is_of_a_file && told && !is_good {
                    wrong.push(format!(
                        "the status is healthy, but {} was reported as bad and is not repaired",
                        block.id
                    ));
                }
            }
        }
        wrong.into_iter().for_each(|wrong| system.shared.violate(wrong));
    }

    /// Checks that nothing is in flight.
    fn judge_end(&mut self, system: &System) {
        let in_flight = system.coordinator.running.as_ref().map(|running| running.control.in_flight());
        let mut left: Vec<String> = system
            .processes
            .iter()
            .filter(|process| !process.tasks.is_empty())
            .map(|process| format!("{} still has {} jobs", process.name(), process.tasks.len()))
            .collect();
        if let Some(in_flight) = in_flight.filter(|in_flight| in_flight.jobs + in_flight.writes > 0) {
            left.push(format!("{in_flight:?}"));
        }
        if system.requests.open() > 0 {
            left.push(format!("{} requests are not answered", system.requests.open()));
        }
        let (_, puts) = system.coordinator.files();
        if puts > 0 {
            left.push(format!("{puts} puts are neither committed nor aborted"));
        }
        if left.is_empty() {
            self.phase = Phase::Over;
        }
        self.last_summary = left.join(", ");
    }
}

/// Checks that the status has the conditions of helpers that died some time ago, and of the blocks that were lost
/// with them.
fn judge_conditions(status: &Status, known: &BTreeSet<StripeId>, system: &mut System) {
    let Some(running) = &system.coordinator.running else { return };
    let now = system.shared.now;
    let is_noticed = |since: Duration| since + NOTICED <= now;
    if status.settling || !is_noticed(running.started) {
        return;
    }
    let helpers = || system.processes.iter().filter(|process| !process.is_client());
    let is_dead = |process: &&Process| process.dead_since.is_some_and(is_noticed);
    let mut missing = Vec::new();
    let gone = status.condition(ConditionCode::HelperGone);
    for dead in helpers().filter(is_dead).filter(|dead| !dead.gone && dead.node.is_some()) {
        if !gone.is_some_and(|gone| gone.subjects.contains(&dead.name())) {
            missing.push(format!(
                "{} is down, but {} does not say so",
                dead.name(),
                ConditionCode::HelperGone
            ));
        }
    }
    let dead: BTreeSet<NodeId> = helpers().filter(is_dead).filter_map(|dead| dead.node).collect();
    let is_elsewhere = |id: &BlockId| {
        helpers().any(|other| {
            other.disk.blocks.contains_key(id) && !other.node.is_some_and(|it| dead.contains(&it))
        })
    };
    for (stripe, is_of_a_file) in system.coordinator.stripes() {
        let is_lost = |index: &BlockIndex| {
            let block = &stripe.blocks[usize::from(index.0)];
            let mut holders = block.holders().peekable();
            holders.peek().is_some()
                && holders.all(|holder| dead.contains(&holder.node))
                && !is_elsewhere(&block.id)
        };
        let all = (0..stripe.blocks.len() as u16).map(BlockIndex);
        let (lost, left): (Vec<BlockIndex>, Vec<BlockIndex>) = all.partition(is_lost);
        if !is_of_a_file || lost.is_empty() || !known.contains(&stripe.id) {
            continue;
        }
        let codes: &[ConditionCode] = match system.decodes(&stripe, &left) {
            true => &[ConditionCode::Degraded, ConditionCode::AtRisk, ConditionCode::Unreadable],
            false => &[ConditionCode::Unreadable],
        };
        if !codes.iter().any(|&code| status.condition(code).is_some()) {
            missing.push(format!("blocks {lost:?} of {} are lost, but no condition says so", stripe.id));
        }
    }
    let summary = &status.summary;
    missing.into_iter().for_each(|what| system.shared.violate(format!("{what}: {summary}")));
}

/// Checks that the status counts all stripes and files of the catalog.
fn judge_counts(status: &Status, system: &mut System) {
    let (stripes, files) = (system.coordinator.stripes().len() as u64, system.coordinator.files().0);
    if (status.stripes.stripes, status.totals.files) != (stripes, files) {
        let known = (status.stripes.stripes, status.totals.files);
        system.shared.violate(format!(
            "the status counts {known:?} stripes and files, but the catalog has {stripes} and {files}"
        ));
    }
}

/// Called when the status reports that all is well. Checks that every block of every file is good where the
/// catalog places it.
fn judge_blocks(system: &mut System) {
    let mut wrong = Vec::new();
    for (stripe, is_of_a_file) in system.coordinator.stripes() {
        let good = system.good_blocks(&stripe);
        let up = |id: ProcessId| system.processes.get(id).is_up();
        for (index, block) in stripe.blocks.iter().enumerate() {
            let is_good = good.iter().any(|&(at, id)| usize::from(at.0) == index && up(id));
            if is_of_a_file && !is_good {
                let node =
                    block.node.and_then(|node| system.processes.of_node(node)).map(|process| process.name());
                wrong.push(format!("the status is healthy, but {} is not intact on {node:?}", block.id));
            }
        }
    }
    wrong.into_iter().for_each(|wrong| system.shared.violate(wrong));
}

/// Returns the blocks on live helpers that neither the catalog nor the status mentions.
fn untidy(status: &Status, system: &System) -> Vec<String> {
    let mut placed = BTreeSet::new();
    for (stripe, _) in system.coordinator.stripes() {
        for block in stripe.blocks {
            let nodes: Vec<NodeId> = block.holders().map(|holder| holder.node).collect();
            placed.extend(nodes.into_iter().map(|node| (node, block.id.clone())));
        }
    }
    let told = |name: &str, id: &BlockId| {
        status.catalog.orphans.iter().any(|orphan| orphan.node == name && orphan.block == id.0)
    };
    let up = system.processes.iter().filter(|process| !process.is_client() && process.is_up());
    up.filter_map(|process| Some((process, process.node?)))
        .flat_map(|(process, node)| process.disk.blocks.keys().map(move |id| (process.name(), node, id)))
        .filter(|(name, node, id)| !placed.contains(&(*node, (*id).clone())) && !told(name, id))
        .map(|(name, _, id)| format!("{id} on {name}"))
        .collect()
}

/// Starts reads of all files that may exist.
fn read_everything(clients: &mut Clients, system: &mut System) {
    let client = system.script.client_ids().next().expect("there is one at least");
    for file in system.truth.files.keys().cloned().collect::<Vec<_>>() {
        let must = !system.truth.file(&file).is_forgotten;
        clients.read(client, &file, must, system);
    }
}
