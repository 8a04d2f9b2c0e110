//! Invariants.
//!
//! **Always**: a stripe has at most one job that publishes; every request is answered once; a read returns
//! the bytes that were stored; queues are bounded.
//!
//! **In the end**, when all faults have ceased: everything is repaired within a bounded time, and the status
//! says so; then, after a scrub, every block of every file is where the catalog says, on a helper that is up,
//! and what it has to be; every file that may be there reads as what it may be; nothing is in flight.

use std::collections::BTreeSet;
use std::time::Duration;

use repair::wire::control::FromNode;
use repair::{BlockId, BlockProblem, NodeId, Report};
use views::{ScrubState, ScrubView, Status};

use super::assembly::System;
use super::client::Clients;
use super::event::{Happening, ProcessId};
use super::operator::{Operator, Wanted};

/// The operator looks this often.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Everything is repaired within this time: the sum of all pauses that the coordinator makes, many times
/// over.
const BOUND: Duration = Duration::from_secs(3600);
/// No more jobs run at once, and no more writes wait.
const MOST_JOBS: usize = 512;
const MOST_WRITES: usize = 4096 + 64;

/// The judge's progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The script is being played.
    Busy,
    /// That the status says that all is well.
    Calming,
    /// A scrub, which has this number.
    Scrubbing(Option<u64>),
    /// That all is well after the scrub.
    Settling,
    /// That all files are read.
    Reading,
    /// Nothing: everything was judged.
    Over,
}

/// Observations of the system, and the progress of its judgement.
pub(crate) struct Judge {
    pub(crate) phase: Phase,
    /// When the last fault ceased.
    calm_since: Option<Duration>,
    /// The coordinator's last status, or what is left to do, for the message of a violation.
    last_summary: String,
    /// Bad blocks that the running coordinator was told of, with their holders.
    told_bad: BTreeSet<(BlockId, ProcessId)>,
    /// The most jobs that published blocks at the same time.
    pub(crate) at_once: usize,
}

impl Judge {
    pub(crate) fn new() -> Self {
        let (last_summary, told_bad) = (String::new(), BTreeSet::new());
        Self { phase: Phase::Busy, calm_since: None, last_summary, told_bad, at_once: 0 }
    }

    pub(crate) fn is_calm(&self) -> bool {
        self.calm_since.is_some()
    }

    /// A coordinator starts, which knows only what the one before it has stored.
    pub(crate) fn coordinator_starts(&mut self) {
        self.told_bad.clear();
    }

    /// A fault strikes a block: earlier reports about it no longer count.
    pub(crate) fn forget_told(&mut self, block: &BlockId, holder: ProcessId) {
        self.told_bad.remove(&(block.clone(), holder));
    }

    /// Notes the bad blocks that the coordinator is told of.
    pub(crate) fn note_bad(&mut self, process: ProcessId, message: &FromNode) {
        let (block, problem) = match message {
            FromNode::Verified { block, result: Err(problem), .. } => (block, problem),
            FromNode::Report { report: Report::BadBlock { block, problem }, .. } => (block, problem),
            _ => return,
        };
        if matches!(problem, BlockProblem::Missing | BlockProblem::Corrupt(_)) {
            self.told_bad.insert((block.clone(), process));
        }
    }

    /// Checks the invariants that hold after every event.
    pub(crate) fn check_always(&mut self, system: &mut System) {
        let Some(running) = &system.coordinator.running else { return };
        let mut seen = BTreeSet::new();
        self.at_once = self.at_once.max(running.control.publishing_jobs().count());
        let twice = running.control.publishing_jobs().find(|(_, stripe)| !seen.insert(*stripe));
        let twice = twice.map(|(_, stripe)| stripe.clone());
        let in_flight = running.control.in_flight();
        if let Some(stripe) = twice {
            system.scene.violate(format!("two jobs publish blocks of {stripe}"));
        }
        if in_flight.jobs > MOST_JOBS || in_flight.writes > MOST_WRITES {
            system.scene.violate(format!("too much is in flight: {in_flight:?}"));
        }
    }

    /// All faults have ceased.
    pub(crate) fn calm(&mut self, system: &mut System) {
        self.calm_since = Some(system.scene.now);
        self.phase = Phase::Calming;
        Operator::of(system).take_back();
        system.after(LOOK_EVERY, Happening::Look);
    }

    /// The operator looks.
    pub(crate) fn look(&mut self, clients: &Clients, system: &mut System) {
        if self.calm_since.is_some_and(|since| system.scene.now > since + BOUND) {
            let phase = self.phase;
            system.scene.violate(format!("not over in time: {phase:?}, {}", self.last_summary));
            return;
        }
        match self.phase {
            Phase::Calming | Phase::Settling => Operator::of(system).ask_status(),
            Phase::Scrubbing(None) => Operator::of(system).begin_scrub(),
            Phase::Scrubbing(Some(scrub)) => Operator::of(system).look_at_scrub(scrub),
            Phase::Reading if clients.are_idle() => self.judge_end(system),
            Phase::Busy | Phase::Reading | Phase::Over => {}
        }
        system.after(LOOK_EVERY, Happening::Look);
    }

    pub(crate) fn look_failed(&mut self, wanted: Wanted, system: &mut System) {
        system.scene.note(|| format!("no answer for {wanted:?}"));
        if let Phase::Scrubbing(scrub) = &mut self.phase {
            *scrub = None;
        }
    }

    /// Judges a status: goes on to the next phase if all is well, or has the operator help.
    pub(crate) fn judge_status(&mut self, status: &Status, clients: &mut Clients, system: &mut System) {
        if self.calm_since.is_none() {
            return;
        }
        self.last_summary = format!("{} ({})", status.summary, status.advice.join("; "));
        system.scene.note(|| format!("status: {}", status.summary));
        let is_over = status.work.repairs.is_empty() && status.work.jobs.is_empty() && clients.are_idle();
        let is_well = status.healthy && !status.settling && status.catalog.write_fault.is_none();
        let is_everybody_back = system.processes.iter().all(|process| process.gone || process.is_up());
        if !(is_well && is_over && is_everybody_back) {
            return Operator::of(system).help(status);
        }
        match self.phase {
            Phase::Calming => {
                self.judge_told(system);
                self.phase = Phase::Scrubbing(None);
            }
            Phase::Settling => {
                let untidy = untidy(status, system);
                if !untidy.is_empty() {
                    self.last_summary = format!("nobody speaks of {}", untidy.join(", "));
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
            ScrubState::Running => Phase::Scrubbing(Some(scrub.scrub)),
            ScrubState::Done => Phase::Settling,
            ScrubState::Stopped => Phase::Scrubbing(None),
        };
    }

    /// The status says that all is well: no block that the coordinator was told to be bad counts as good.
    fn judge_told(&self, system: &mut System) {
        let mut wrong = Vec::new();
        for (stripe, is_of_a_file) in system.coordinator.stripes() {
            let good = system.good_blocks(&stripe);
            for (index, block) in stripe.blocks.iter().enumerate() {
                let holder = block.node.and_then(|node| system.processes.of_node(node));
                let is_good = good.iter().any(|&(at, _)| usize::from(at.0) == index);
                let told =
                    holder.is_some_and(|holder| self.told_bad.contains(&(block.id.clone(), holder.id)));
                if is_of_a_file && told && !is_good {
                    wrong.push(format!("all is said to be well, and {} was said to be bad", block.id));
                }
            }
        }
        wrong.into_iter().for_each(|wrong| system.scene.violate(wrong));
    }

    /// Checks that nothing is in flight any more. A read of the steady scrub ends before the next one begins.
    fn judge_end(&mut self, system: &System) {
        let in_flight = system.coordinator.running.as_ref().map(|running| running.control.in_flight());
        let mut left: Vec<String> = system
            .processes
            .iter()
            .filter(|process| !process.tasks.is_empty())
            .map(|process| format!("{} knows {} jobs", process.name(), process.tasks.len()))
            .collect();
        if let Some(in_flight) = in_flight.filter(|in_flight| in_flight.jobs + in_flight.writes > 0) {
            left.push(format!("{in_flight:?}"));
        }
        if system.requests.open() > 0 {
            left.push(format!("{} requests are not answered", system.requests.open()));
        }
        let (_, puts) = system.coordinator.files();
        if puts > 0 {
            left.push(format!("{puts} puts that nobody goes on with"));
        }
        if left.is_empty() {
            self.phase = Phase::Over;
        }
        self.last_summary = left.join(", ");
    }
}

/// The coordinator knows the stripes and files of its catalog.
fn judge_counts(status: &Status, system: &mut System) {
    let (stripes, files) = (system.coordinator.stripes().len() as u64, system.coordinator.files().0);
    if (status.stripes.stripes, status.totals.files) != (stripes, files) {
        let known = (status.stripes.stripes, status.totals.files);
        system
            .scene
            .violate(format!("{known:?} stripes and files are known, and there are {stripes} and {files}"));
    }
}

/// The status says that all is well: every block of every file is good where the catalog places it.
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
                wrong.push(format!("all is said to be well, and {} is not good on {node:?}", block.id));
            }
        }
    }
    wrong.into_iter().for_each(|wrong| system.scene.violate(wrong));
}

/// Blocks on helpers that are up which the catalog does not place there, and of which the status does not
/// speak.
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

/// Every file that may be there can be read.
fn read_everything(clients: &mut Clients, system: &mut System) {
    let client = system.script.client_ids().next().expect("there is one at least");
    for file in system.truth.files.keys().cloned().collect::<Vec<_>>() {
        let must = !system.truth.file(&file).is_forgotten;
        clients.read(client, &file, must, system);
    }
}
