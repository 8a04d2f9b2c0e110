//! What the API may ask, each with the place where the answer goes.

use std::time::Duration;

use repair::StripeId;
use serde_json::Value;
use stores::dir::{PutId, Snapshot};

use crate::effect::Reply;
use crate::error::RequestError;
use crate::out::Out;
use crate::storing::Ask;
use crate::{Control, ItemPage};
use views::{
    AcceptRequest, AcceptedView, BlockPlace, CapsRequest, CapsView, ContradictoryStripes, FileLayout,
    FileView, GivenStripe, HistoryEntry, MaintenanceRequest, NodeView, OrphansView, PlanRequestView,
    PlanView, ProbeRequest, ProbeView, PutRequest, PutView, RebalanceRequest, RebalanceView, RepairRequest,
    RepairView, ReplaceRequest, SafetyView, ScrubView, SettingsRequest, SettingsView, Status, StripeView,
    TopologyView,
};

/// What the API may ask.
#[derive(Debug)]
#[allow(missing_docs, reason = "each is named after the method of `Control` that carries it out")]
pub enum Command {
    Status(Reply<Status>),
    Nodes(Reply<Vec<NodeView>>),
    Files(String, Reply<Vec<FileView>>),
    File(String, Reply<FileLayout>),
    RemoveFile(String, Reply<FileView>),
    BeginPut(PutRequest, Reply<PutView>),
    CommitPut(PutId, Reply<FileView>),
    AbortPut(PutId, Reply<Value>),
    Stripe(StripeId, Reply<StripeView>),
    Contradictions(Reply<ContradictoryStripes>),
    Block(String, Reply<BlockPlace>),
    /// A stripe, described by this member.
    Describe(GivenStripe, String, Reply<StripeView>),
    Repair(RepairRequest, Reply<RepairView>),
    Repairs(Reply<Vec<RepairView>>),
    RepairState(u64, ItemPage, Reply<RepairView>),
    /// The same for a plug-in, which sees repairs of given stripes only.
    GivenRepairState(u64, Reply<RepairView>),
    /// Answered when a repair has ended, when its version is not the given one any more, or after this time.
    RepairChange(u64, Option<u64>, Duration, Reply<()>),
    CancelRepair(u64, Reply<RepairView>),
    CancelGivenRepair(u64, Reply<RepairView>),
    /// Whether it is paused from now on.
    PauseRepair(u64, bool, Reply<RepairView>),
    StopDrain(String, Reply<NodeView>),
    Topology(Reply<TopologyView>),
    Probe(ProbeRequest, Reply<ProbeView>),
    Probes(Reply<ProbeView>),
    StopProbes(Reply<ProbeView>),
    Caps(Reply<CapsView>),
    ChangeCaps(CapsRequest, Reply<CapsView>),
    Explain(PlanRequestView, Reply<PlanView>),
    /// Whether the parity of whole stripes is checked as well.
    Scrub(bool, Reply<ScrubView>),
    StopScrub(u64, Reply<ScrubView>),
    ScrubState(u64, Reply<ScrubView>),
    Snapshot(Reply<Snapshot>),
    AcceptCatalog(AcceptRequest, Reply<AcceptedView>),
    RemoveOrphans(Reply<OrphansView>),
    RemoveNode(String, Reply<NodeView>),
    Maintain(String, MaintenanceRequest, Reply<NodeView>),
    EndMaintenance(String, Reply<NodeView>),
    /// With the further blocks that each stripe must still be able to lose.
    OkToStop(Vec<String>, u32, Reply<SafetyView>),
    SafeToRemove(Vec<String>, Reply<SafetyView>),
    ReplaceNode(String, ReplaceRequest, Reply<RepairView>),
    Rebalance(RebalanceRequest, Reply<RebalanceView>),
    Settings(Reply<SettingsView>),
    ChangeSettings(SettingsRequest, Reply<SettingsView>),
    History(usize, Reply<Vec<HistoryEntry>>),
}

impl Control {
    pub(crate) fn carry_out(&mut self, command: Command) {
        match command {
            Command::Status(reply) => {
                self.refresh_status();
                answer(reply, self.answers().status(), &mut self.out);
            }
            Command::Nodes(reply) => answer(reply, self.answers().node_views(), &mut self.out),
            Command::Files(prefix, reply) => answer(reply, self.answers().file_views(&prefix), &mut self.out),
            Command::File(name, reply) => answer(reply, self.open_file(&name), &mut self.out),
            Command::RemoveFile(name, reply) => self.remove_file(name, reply),
            Command::BeginPut(request, reply) => {
                self.jobs.begin_put(facts!(self), &request, reply, &mut self.out)
            }
            Command::CommitPut(put, reply) => self.jobs.commit_put(facts!(self), put, reply, &mut self.out),
            Command::AbortPut(put, reply) => self.abort_put(put, Some(reply)),
            Command::Stripe(stripe, reply) => {
                answer(reply, self.answers().stripe_view_of(&stripe), &mut self.out)
            }
            Command::Contradictions(reply) => {
                answer(reply, Ok(self.stripes.contradictions.names()), &mut self.out)
            }
            Command::Block(block, reply) => answer(reply, self.answers().block_place(&block), &mut self.out),
            Command::Describe(given, owner, reply) => answer(
                reply,
                self.stripes.describe_stripe(around!(self), &self.jobs, &self.repairs, &given, &owner),
                &mut self.out,
            ),
            Command::Repair(request, reply) => facts!(self).queue_repair(&request, reply, &mut self.out),
            Command::Repairs(reply) => answer(reply, Ok(self.answers().repair_views()), &mut self.out),
            Command::RepairState(repair, page, reply) => {
                answer(reply, self.answers().repair_page(repair, &page), &mut self.out)
            }
            Command::GivenRepairState(repair, reply) => {
                answer(reply, self.answers().given_repair_state(repair), &mut self.out)
            }
            Command::RepairChange(repair, since, limit, reply) => {
                self.await_change(repair, since, limit, reply);
            }
            Command::CancelRepair(repair, reply) => answer(reply, self.cancel_repair(repair), &mut self.out),
            Command::CancelGivenRepair(repair, reply) => {
                answer(reply, self.cancel_given_repair(repair), &mut self.out)
            }
            Command::PauseRepair(repair, paused, reply) => {
                answer(reply, self.pause_repair(repair, paused), &mut self.out)
            }
            Command::StopDrain(name, reply) => answer(reply, self.stop_drain(&name), &mut self.out),
            Command::Topology(reply) => answer(reply, Ok(self.answers().topology_view()), &mut self.out),
            Command::Probe(request, reply) => {
                answer(reply, self.jobs.start_probes(facts!(self), &request, &mut self.out), &mut self.out)
            }
            Command::Probes(reply) => answer(reply, self.jobs.probe_view(facts!(self)), &mut self.out),
            Command::StopProbes(reply) => {
                answer(reply, self.jobs.stop_probes(facts!(self), &mut self.out), &mut self.out)
            }
            Command::Caps(reply) => answer(reply, Ok(self.nodes.caps_view()), &mut self.out),
            Command::ChangeCaps(request, reply) => {
                self.nodes.change_caps(&self.base, &request, reply, &mut self.out)
            }
            Command::Explain(request, reply) => answer(reply, self.explain(&request), &mut self.out),
            Command::Scrub(parity, reply) => answer(
                reply,
                self.scrub.start_scrub(facts!(self), &self.jobs, parity, &mut self.out),
                &mut self.out,
            ),
            Command::StopScrub(scrub, reply) => {
                answer(reply, self.scrub.stop_scrub(facts!(self), scrub, &mut self.out), &mut self.out)
            }
            Command::ScrubState(scrub, reply) => answer(reply, self.scrub.scrub_state(scrub), &mut self.out),
            Command::Snapshot(reply) => self.out.ask_storage(Ask::Snapshot(reply)),
            Command::AcceptCatalog(request, reply) => {
                self.stripes.accept_catalog(around!(self), request, reply, &mut self.out)
            }
            Command::RemoveOrphans(reply) => {
                answer(reply, self.stripes.remove_orphans(around!(self), &mut self.out), &mut self.out)
            }
            Command::RemoveNode(name, reply) => self.remove_node(&name, reply),
            Command::Maintain(name, request, reply) => {
                answer(reply, self.maintain(&name, request), &mut self.out)
            }
            Command::EndMaintenance(name, reply) => answer(reply, self.end_maintenance(&name), &mut self.out),
            Command::OkToStop(names, leave, reply) => {
                answer(reply, self.answers().ok_to_stop(&names, leave), &mut self.out)
            }
            Command::SafeToRemove(names, reply) => {
                answer(reply, self.answers().safe_to_remove(&names), &mut self.out)
            }
            Command::ReplaceNode(name, request, reply) => {
                facts!(self).replace_node(&name, &request, reply, &mut self.out)
            }
            Command::Rebalance(request, reply) => facts!(self).rebalance(request, reply, &mut self.out),
            Command::Settings(reply) => answer(reply, Ok(self.answers().settings_view()), &mut self.out),
            Command::ChangeSettings(request, reply) => {
                answer(reply, self.change_settings(&request), &mut self.out)
            }
            Command::History(most, reply) => answer(reply, Ok(self.history.history(most)), &mut self.out),
        }
    }
}

/// Answers a request, with what is worked out first.
pub(crate) fn answer<T: Send + 'static>(reply: Reply<T>, result: Result<T, RequestError>, out: &mut Out) {
    out.answer(reply, result);
}
