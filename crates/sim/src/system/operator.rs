//! The operator: a person's requests to the coordinator, and the reactions to an unhealthy status.

use std::time::Duration;

use control::{
    Answer, CatalogCommand, ClusterCommand, Command, FileCommand, ItemPage, NetworkCommand, NodeCommand,
    RepairCommand, ScrubCommand, StripeCommand,
};
use recovery::HelperPolicy;
use repair::Scheme;
use store_api::Snapshot;
use views::{
    AcceptRequest, CapsRequest, MaintenanceRequest, ProbeRequest, RebalanceRequest, RecoveryState,
    RepairRequest, RepairState, RepairView, ScrubState, Status,
};

use super::api::Asker;
use super::assembly::System;
use super::event::ProcessId;
use super::process::name_of;
use super::script::Operation;

/// The purpose for which the operator wants an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// The answer is ignored.
    Nothing,
    /// All open repairs in the answer are paused or resumed.
    Pause(bool),
    /// All open repairs in the answer are cancelled.
    Cancel,
    /// The status in the answer is judged.
    Status,
    /// The scrub's number and state in the answer are recorded.
    Scrub,
}

/// The operator of a system.
pub(crate) struct Operator<'s> {
    system: &'s mut System,
}

impl<'s> Operator<'s> {
    pub(crate) fn of(system: &'s mut System) -> Self {
        Self { system }
    }

    /// Carries out an operation of the script, if it is the operator's. Ignores operations of clients.
    pub(crate) fn operate(&mut self, operation: Operation) {
        match operation {
            Operation::Put { .. } | Operation::Read { .. } | Operation::Remove { .. } => {}
            Operation::RepairAll => {
                let how = self.any_way();
                self.repair(RepairRequest { all: true, ..how });
            }
            Operation::RepairNode { helper } => {
                let how = self.any_way();
                self.repair(RepairRequest { node: Some(name_of(helper)), ..how });
            }
            Operation::Drain { helper } => {
                let way = self.system.shared.dice.pick(&[None, None, Some("migrate"), Some("rebuild")]);
                let (drain, way) = (Some(name_of(helper)), way.map(str::to_owned));
                let how = self.any_way();
                self.repair(RepairRequest { drain, way, ..how });
            }
            Operation::StopDrain { helper } => self.stop_drain(name_of(helper)),
            Operation::PauseRepairs { paused } => self.look_at_repairs(Wanted::Pause(paused)),
            Operation::CancelRepairs => self.look_at_repairs(Wanted::Cancel),
            Operation::Scrub { parity } => self.order(|reply| ScrubCommand::Start(parity, reply)),
            Operation::Maintain { helper, lasts } => self.maintain(helper, lasts),
            Operation::EndMaintenance { helper } => {
                self.order(|reply| NodeCommand::EndMaintenance(name_of(helper), reply));
            }
            Operation::Cap { bytes_per_s } => self.cap(bytes_per_s),
            Operation::Rebalance => {
                self.order(|reply| RepairCommand::Rebalance(RebalanceRequest { dry_run: false }, reply));
            }
            Operation::RemoveOrphans => self.order(CatalogCommand::RemoveOrphans),
            Operation::Probe => {
                let probe = ProbeRequest { bytes: Some(256 << 10), ..ProbeRequest::default() };
                self.order(|reply| NetworkCommand::Probe(probe, reply));
            }
            Operation::Look => self.look_around(),
        }
    }

    /// Returns a repair request with a random scheme and helper policy, or in half of the cases with the
    /// defaults.
    fn any_way(&mut self) -> RepairRequest {
        let dice = &mut self.system.shared.dice;
        if dice.one_in(2) {
            return RepairRequest::default();
        }
        let rebuilds = |&scheme: &Scheme| scheme != Scheme::Migration;
        let schemes: Vec<Scheme> = Scheme::ALL.into_iter().filter(rebuilds).collect();
        let (scheme, policy) = (dice.pick(&schemes), dice.pick(&HelperPolicy::ALL));
        let (scheme, policy) = (Some(scheme.name().to_owned()), Some(policy.to_string()));
        RepairRequest { scheme, policy, ..RepairRequest::default() }
    }

    /// Sends a request and ignores the answer.
    fn order<T: Send + 'static, C: Into<Command>>(&mut self, command: impl FnOnce(control::Reply<T>) -> C) {
        self.system.ask(Asker::Operator(Wanted::Nothing), command);
    }

    pub(crate) fn repair(&mut self, request: RepairRequest) {
        self.order(|reply| RepairCommand::Queue(request.into(), reply));
    }

    fn stop_drain(&mut self, name: String) {
        self.order(|reply| NodeCommand::StopDrain(name, reply));
    }

    fn maintain(&mut self, helper: ProcessId, lasts: Duration) {
        let request = MaintenanceRequest { for_ms: lasts.as_millis() as u64 };
        self.order(|reply| NodeCommand::Maintain(name_of(helper), request, reply));
    }

    fn cap(&mut self, bytes_per_s: Option<u64>) {
        let request =
            CapsRequest { none: bytes_per_s.is_none(), cluster: bytes_per_s, ..CapsRequest::default() };
        self.order(|reply| NetworkCommand::ChangeCaps(request, reply));
    }

    fn look_at_repairs(&mut self, wanted: Wanted) {
        self.system.ask(Asker::Operator(wanted), RepairCommand::List);
    }

    /// Requests every kind of view.
    fn look_around(&mut self) {
        let names: Vec<String> = self.system.processes.ids().into_iter().map(name_of).take(2).collect();
        let safe = names.clone();
        self.order(ClusterCommand::Status);
        self.order(NodeCommand::List);
        self.order(|reply| FileCommand::List(String::new(), reply));
        self.order(NetworkCommand::Topology);
        self.order(NetworkCommand::Caps);
        self.order(StripeCommand::Contradictions);
        self.order(|reply| NodeCommand::OkToStop(names, 0, reply));
        self.order(|reply| NodeCommand::SafeToRemove(safe, reply));
        self.order(|reply| ClusterCommand::History(0, 100, reply));
        self.order::<Box<dyn Snapshot>, _>(CatalogCommand::Snapshot);
        self.order(|reply| RepairCommand::State(1, ItemPage::default(), reply));
        self.order(|reply| RepairCommand::Change(1, None, Duration::from_secs(3), reply));
    }

    /// Reverts all orders that would keep the system from becoming healthy.
    pub(crate) fn take_back(&mut self) {
        self.look_at_repairs(Wanted::Pause(false));
        self.cap(None);
        for helper in self.system.script.helper_ids() {
            self.stop_drain(name_of(helper));
            self.order(|reply| NodeCommand::EndMaintenance(name_of(helper), reply));
        }
    }

    /// Reacts to an unhealthy status as an operator would.
    pub(crate) fn help(&mut self, status: &Status) {
        if !status.catalog.newer.is_empty() {
            return self.order(|reply| CatalogCommand::Accept(AcceptRequest { reject: None }, reply));
        }
        let called_off = status.helpers.gone.iter().any(|gone| gone.recovery == RecoveryState::Cancelled);
        if (called_off || !self.system.script.heals)
            && status.work.repairs.is_empty()
            && status.stripes.intact < status.stripes.stripes
        {
            self.repair(RepairRequest { all: true, ..RepairRequest::default() });
        }
        let scrubs = status.work.last_scrub.as_ref().is_some_and(|scrub| scrub.state == ScrubState::Running);
        if status.stripes.contradictory > 0 && !scrubs {
            self.order(|reply| ScrubCommand::Start(true, reply)); // A scrub identifies the wrong block.
        }
        for part in &status.damage.unreadable {
            // After a catalog was restored, a file that had been removed or replaced since the backup may be
            // unreadable, because its blocks are gone. The operator removes it.
            if let Some(file) = part.file.clone().filter(|file| self.system.truth.file(file).is_forgotten) {
                self.order(|reply| FileCommand::Remove(file, reply));
            }
        }
        for leaving in &status.helpers.leaving {
            self.stop_drain(leaving.node.clone());
        }
        if status.work.repairs.iter().any(|repair| repair.state == RepairState::Paused) {
            self.look_at_repairs(Wanted::Pause(false));
        }
    }

    pub(crate) fn ask_status(&mut self) {
        self.system.ask(Asker::Operator(Wanted::Status), ClusterCommand::Status);
    }

    pub(crate) fn begin_scrub(&mut self) {
        self.system.ask(Asker::Operator(Wanted::Scrub), |reply| ScrubCommand::Start(true, reply));
    }

    pub(crate) fn look_at_scrub(&mut self, scrub: u64) {
        self.system.ask(Asker::Operator(Wanted::Scrub), |reply| ScrubCommand::State(scrub, reply));
    }

    /// Pauses, resumes or cancels the open repairs in an answer.
    pub(crate) fn change_repairs(&mut self, wanted: Wanted, listed: Answer) {
        for repair in open_repairs(listed) {
            match wanted {
                Wanted::Pause(paused) => self.order(|reply| RepairCommand::Pause(repair, paused, reply)),
                Wanted::Cancel => self.order(|reply| RepairCommand::Cancel(repair, reply)),
                Wanted::Nothing | Wanted::Status | Wanted::Scrub => {}
            }
        }
    }
}

fn open_repairs(answer: Answer) -> Vec<u64> {
    let repairs = answer.take::<Vec<RepairView>>().unwrap_or_default();
    let open = |repair: &&RepairView| {
        matches!(repair.state, RepairState::Waiting | RepairState::Running | RepairState::Paused)
    };
    repairs.iter().filter(open).map(|repair| repair.repair).collect()
}
