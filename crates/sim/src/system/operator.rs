//! The operator: what is asked of the coordinator by hand, and what is looked at in the end.

use control::{
    CatalogCommand, ClusterCommand, FileCommand, NetworkCommand, NodeCommand, RepairCommand, ScrubCommand,
    StripeCommand,
};
use std::time::Duration;

use control::{Answer, Command, ItemPage};
use stores::dir::Snapshot;
use views::{
    AcceptRequest, CapsRequest, MaintenanceRequest, ProbeRequest, RebalanceRequest, RecoveryState,
    RepairRequest, RepairState, RepairView, ScrubState, ScrubView, Status,
};

use super::api::Asker;
use super::event::ProcessId;
use super::process::name_of;
use super::script::Operation;
use super::world::World;

/// What the operator wants of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// Nothing.
    Nothing,
    /// To pause all repairs that are open, or let them go on.
    Pause(bool),
    /// To call off all repairs that are open.
    Cancel,
    /// To see whether all is well.
    Status,
    /// To know the scrub that was begun, and how far it is.
    Scrub,
}

impl World {
    pub(crate) fn operate(&mut self, operation: Operation) {
        match operation {
            Operation::Put { client, file, bytes, replace } => {
                let bytes = self.scene.dice.bytes(bytes as usize);
                self.put(client, &format!("f{file}"), bytes, replace);
            }
            Operation::Read { client, file } => self.read(client, &format!("f{file}"), false),
            Operation::Remove { client, file } => self.remove(client, &format!("f{file}")),
            Operation::RepairAll => self.repair(RepairRequest { all: true, ..RepairRequest::default() }),
            Operation::RepairNode { helper } => {
                self.repair(RepairRequest { node: Some(name_of(helper)), ..RepairRequest::default() });
            }
            Operation::Drain { helper } => {
                self.repair(RepairRequest { drain: Some(name_of(helper)), ..RepairRequest::default() });
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

    /// Asks for something whose answer does not matter.
    fn order<T: Send + 'static, C: Into<Command>>(&mut self, command: impl FnOnce(control::Reply<T>) -> C) {
        self.ask(Asker::Operator(Wanted::Nothing), command);
    }

    pub(crate) fn repair(&mut self, request: RepairRequest) {
        self.order(|reply| RepairCommand::Queue(request, reply));
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
        self.ask(Asker::Operator(wanted), RepairCommand::List);
    }

    /// Asks for every view.
    fn look_around(&mut self) {
        let names: Vec<String> = self.processes.keys().map(|&process| name_of(process)).take(2).collect();
        let safe = names.clone();
        self.order(ClusterCommand::Status);
        self.order(NodeCommand::List);
        self.order(|reply| FileCommand::List(String::new(), reply));
        self.order(NetworkCommand::Topology);
        self.order(NetworkCommand::Caps);
        self.order(StripeCommand::Contradictions);
        self.order(|reply| NodeCommand::OkToStop(names, 0, reply));
        self.order(|reply| NodeCommand::SafeToRemove(safe, reply));
        self.order(|reply| ClusterCommand::History(100, reply));
        self.order::<Snapshot, _>(CatalogCommand::Snapshot);
        self.order(|reply| RepairCommand::State(1, ItemPage::default(), reply));
        self.order(|reply| RepairCommand::Change(1, None, Duration::from_secs(3), reply));
    }

    /// Takes back all that the operator has asked for and that would keep the system from being whole.
    pub(crate) fn take_back(&mut self) {
        self.look_at_repairs(Wanted::Pause(false));
        self.cap(None);
        for helper in self.script.helper_ids() {
            self.stop_drain(name_of(helper));
            self.order(|reply| NodeCommand::EndMaintenance(name_of(helper), reply));
        }
    }

    /// Has all that is lost repaired, or decides about a catalog that is older than some blocks.
    pub(crate) fn help(&mut self, status: &Status) {
        if !status.newer.is_empty() {
            return self.order(|reply| CatalogCommand::Accept(AcceptRequest { reject: None }, reply));
        }
        let called_off = status.gone.iter().any(|gone| gone.recovery == RecoveryState::Cancelled);
        if (called_off || !self.script.heals)
            && status.repairs.is_empty()
            && status.stripes.intact < status.stripes.stripes
        {
            self.repair(RepairRequest { all: true, ..RepairRequest::default() });
        }
        let scrubs = status.last_scrub.as_ref().is_some_and(|scrub| scrub.state == ScrubState::Running);
        if status.stripes.contradictory > 0 && !scrubs {
            self.order(|reply| ScrubCommand::Start(true, reply)); // It tells which of the blocks is wrong.
        }
        for part in &status.unreadable {
            // What was removed, and is back with an old catalog, goes again.
            if let Some(file) = part.file.clone().filter(|file| self.truth.file(file).is_forgotten) {
                self.order(|reply| FileCommand::Remove(file, reply));
            }
        }
        for leaving in &status.leaving {
            self.stop_drain(leaving.node.clone());
        }
        if status.repairs.iter().any(|repair| repair.state == RepairState::Paused) {
            self.look_at_repairs(Wanted::Pause(false));
        }
    }

    pub(crate) fn ask_status(&mut self) {
        self.ask(Asker::Operator(Wanted::Status), ClusterCommand::Status);
    }

    pub(crate) fn begin_scrub(&mut self) {
        self.ask(Asker::Operator(Wanted::Scrub), |reply| ScrubCommand::Start(true, reply));
    }

    pub(crate) fn look_at_scrub(&mut self, scrub: u64) {
        self.ask(Asker::Operator(Wanted::Scrub), |reply| ScrubCommand::State(scrub, reply));
    }

    pub(crate) fn operator_answered(&mut self, wanted: Wanted, answer: Option<Answer>) {
        let Some(answer) = answer else { return self.look_failed(wanted) };
        match wanted {
            Wanted::Nothing => {}
            Wanted::Pause(paused) => {
                for repair in open_repairs(answer) {
                    self.order(|reply| RepairCommand::Pause(repair, paused, reply));
                }
            }
            Wanted::Cancel => {
                for repair in open_repairs(answer) {
                    self.order(|reply| RepairCommand::Cancel(repair, reply));
                }
            }
            Wanted::Status => match answer.take::<Status>() {
                Ok(status) => self.judge_status(&status),
                Err(error) => self.scene.violate(format!("there is no status: {error}")),
            },
            Wanted::Scrub => match answer.take::<ScrubView>() {
                Ok(scrub) => self.judge_scrub(&scrub),
                Err(_) => self.look_failed(wanted),
            },
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
