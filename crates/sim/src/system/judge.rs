//! What must hold.
//!
//! **Always**: a stripe has at most one job that publishes; every request is answered once; what is read is what was stored;
//! what waits is bounded.
//!
//! **In the end**, when all faults have ceased: everything is repaired within a bounded time, and the status says so; then,
//! after a scrub, every block of every file is where the catalog says, on a helper that is up, and what it has to be; every
//! file that may be there reads as what it may be; nothing is in flight.

use std::collections::BTreeSet;
use std::time::Duration;

use repair::{BlockId, NodeId};
use views::{ScrubState, ScrubView, Status};

use super::event::{Happening, ProcessId};
use super::process::name_of;
use super::world::World;

/// The operator looks this often.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Everything is repaired within this time: the sum of all pauses that the coordinator makes, many times over.
const BOUND: Duration = Duration::from_secs(3600);
/// No more jobs run at once, and no more writes wait.
const MOST_JOBS: usize = 512;
const MOST_WRITES: usize = 4096 + 64;

/// What the operator waits for.
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

impl World {
    /// What must hold after every event.
    pub(crate) fn check_always(&mut self) {
        let Some(running) = &self.coordinator.running else { return };
        let mut seen = BTreeSet::new();
        let twice = running.control.publishing_jobs().find(|(_, stripe)| !seen.insert(*stripe));
        let twice = twice.map(|(_, stripe)| stripe.clone());
        let in_flight = running.control.in_flight();
        if let Some(stripe) = twice {
            self.scene.violate(format!("two jobs publish blocks of {stripe}"));
        }
        if in_flight.jobs > MOST_JOBS || in_flight.writes > MOST_WRITES {
            self.scene.violate(format!("too much is in flight: {in_flight:?}"));
        }
    }

    /// All faults cease.
    pub(crate) fn calm(&mut self) {
        self.scene.note(|| "calm".to_owned());
        self.calm_since = Some(self.scene.now);
        self.cease();
        self.take_back();
        self.phase = Phase::Calming;
        self.after(LOOK_EVERY, Happening::Look);
    }

    /// The operator looks.
    pub(crate) fn look(&mut self) {
        if self.calm_since.is_some_and(|since| self.scene.now > since + BOUND) {
            let phase = self.phase;
            self.scene.violate(format!("not over in time: {phase:?}, {}", self.last_summary));
            return;
        }
        match self.phase {
            Phase::Calming | Phase::Settling => self.ask_status(),
            Phase::Scrubbing(None) => self.begin_scrub(),
            Phase::Scrubbing(Some(scrub)) => self.look_at_scrub(scrub),
            Phase::Reading if self.is_idle() => self.judge_end(),
            Phase::Busy | Phase::Reading | Phase::Over => {}
        }
        self.after(LOOK_EVERY, Happening::Look);
    }

    pub(crate) fn look_failed(&mut self, wanted: super::operator::Wanted) {
        self.scene.note(|| format!("no answer for {wanted:?}"));
        if let Phase::Scrubbing(scrub) = &mut self.phase {
            *scrub = None;
        }
    }

    /// Whether no client does anything.
    fn is_idle(&self) -> bool {
        let mut clients = self.processes.values().filter_map(|process| process.client.as_ref());
        clients.all(|client| client.flows.is_empty())
    }

    pub(crate) fn judge_status(&mut self, status: &Status) {
        if self.calm_since.is_none() {
            return;
        }
        self.last_summary = format!("{} ({})", status.summary, status.advice.join("; "));
        self.scene.note(|| format!("status: {}", status.summary));
        let is_over = status.repairs.is_empty() && status.jobs.is_empty() && self.is_idle();
        let is_well = status.healthy && !status.settling && status.write_fault.is_none();
        if !(is_well && is_over && self.is_everybody_back()) {
            return self.help(status);
        }
        match self.phase {
            Phase::Calming => {
                self.judge_told();
                self.phase = Phase::Scrubbing(None);
            }
            Phase::Settling => {
                let untidy = self.untidy(status);
                if !untidy.is_empty() {
                    self.last_summary = format!("nobody speaks of {}", untidy.join(", "));
                    return;
                }
                self.judge_blocks();
                self.judge_counts(status);
                self.read_everything();
                self.phase = Phase::Reading;
            }
            _ => {}
        }
    }

    fn is_everybody_back(&self) -> bool {
        self.processes.values().all(|process| process.gone || process.is_up())
    }

    pub(crate) fn judge_scrub(&mut self, scrub: &ScrubView) {
        self.phase = match scrub.state {
            ScrubState::Running => Phase::Scrubbing(Some(scrub.scrub)),
            ScrubState::Done => Phase::Settling,
            ScrubState::Stopped => Phase::Scrubbing(None),
        };
    }

    /// The status says that all is well: nothing that the coordinator was told to be bad counts as good.
    fn judge_told(&mut self) {
        let mut wrong = Vec::new();
        for (stripe, is_of_a_file) in self.coordinator.stripes() {
            let good = self.good_blocks(&stripe);
            for (index, block) in stripe.blocks.iter().enumerate() {
                let holder = block.node.and_then(|node| self.ids.get(&node)).copied();
                let is_good = good.iter().any(|&(at, _)| usize::from(at.0) == index);
                let told = holder.is_some_and(|id| self.told_bad.contains(&(block.id.clone(), id)));
                if is_of_a_file && told && !is_good {
                    wrong.push(format!("all is said to be well, and {} was said to be bad", block.id));
                }
            }
        }
        wrong.into_iter().for_each(|wrong| self.scene.violate(wrong));
    }

    /// What the coordinator knows is what its catalog has.
    fn judge_counts(&mut self, status: &Status) {
        let (stripes, files) = (self.coordinator.stripes().len() as u64, self.coordinator.files().0);
        if (status.stripes.stripes, status.files) != (stripes, files) {
            let known = (status.stripes.stripes, status.files);
            self.scene.violate(format!(
                "{known:?} stripes and files are known, and there are {stripes} and {files}"
            ));
        }
    }

    /// The status says that all is well: so it is.
    fn judge_blocks(&mut self) {
        let mut wrong = Vec::new();
        for (stripe, is_of_a_file) in self.coordinator.stripes() {
            let good = self.good_blocks(&stripe);
            let up = |id: ProcessId| self.processes[&id].is_up();
            for (index, block) in stripe.blocks.iter().enumerate() {
                let is_good = good.iter().any(|&(at, id)| usize::from(at.0) == index && up(id));
                if is_of_a_file && !is_good {
                    let node = block.node.and_then(|node| self.ids.get(&node)).map(|&id| name_of(id));
                    wrong.push(format!("all is said to be well, and {} is not good on {node:?}", block.id));
                }
            }
        }
        wrong.into_iter().for_each(|wrong| self.scene.violate(wrong));
    }

    /// Blocks on helpers that are up which the catalog does not place there, and of which the status does not speak.
    fn untidy(&self, status: &Status) -> Vec<String> {
        let mut placed = BTreeSet::new();
        for (stripe, _) in self.coordinator.stripes() {
            for block in stripe.blocks {
                let nodes: Vec<NodeId> = block.holders().map(|holder| holder.node).collect();
                placed.extend(nodes.into_iter().map(|node| (node, block.id.clone())));
            }
        }
        let told = |name: &str, id: &BlockId| {
            status.orphans.iter().any(|orphan| orphan.node == name && orphan.block == id.0)
        };
        let up = self.processes.values().filter(|process| process.client.is_none() && process.is_up());
        up.filter_map(|process| Some((process, process.node?)))
            .flat_map(|(process, node)| process.disk.blocks.keys().map(move |id| (process.name(), node, id)))
            .filter(|(name, node, id)| !placed.contains(&(*node, (*id).clone())) && !told(name, id))
            .map(|(name, _, id)| format!("{id} on {name}"))
            .collect()
    }

    /// Every file that may be there can be read.
    fn read_everything(&mut self) {
        let client = self.script.client_ids().next().expect("there is one at least");
        for file in self.truth.files.keys().cloned().collect::<Vec<_>>() {
            let must = !self.truth.file(&file).is_forgotten;
            self.read(client, &file, must);
        }
    }

    /// Nothing is left of all that was done; what the steady scrub does at the moment ends before it does the next.
    fn judge_end(&mut self) {
        let in_flight = self.coordinator.running.as_ref().map(|running| running.control.in_flight());
        let mut left: Vec<String> = self
            .processes
            .values()
            .filter(|process| !process.tasks.is_empty())
            .map(|process| format!("{} knows {} jobs", process.name(), process.tasks.len()))
            .collect();
        if let Some(in_flight) = in_flight.filter(|in_flight| in_flight.jobs + in_flight.writes > 0) {
            left.push(format!("{in_flight:?}"));
        }
        if self.requests.open() > 0 {
            left.push(format!("{} requests are not answered", self.requests.open()));
        }
        let (_, puts) = self.coordinator.files();
        if puts > 0 {
            left.push(format!("{puts} puts that nobody goes on with"));
        }
        if left.is_empty() {
            self.phase = Phase::Over;
        }
        self.last_summary = left.join(", ");
    }
}
