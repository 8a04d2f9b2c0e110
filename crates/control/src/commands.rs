//! What the API may ask, each with the place where the answer goes.

use std::time::Duration;

use repair::StripeId;
use serde_json::Value;
use stores::CatalogError;
use stores::dir::{PutId, Snapshot};

use super::effect::{Effect, Effects, Reply};
use super::storing::Ask;
use super::{Control, ItemPage};
use crate::error::RequestError;
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
            Command::Status(reply) => answer(reply, self.status(), &mut self.effects),
            Command::Nodes(reply) => answer(reply, self.answers().node_views(), &mut self.effects),
            Command::Files(prefix, reply) => {
                answer(reply, self.answers().file_views(&prefix), &mut self.effects)
            }
            Command::File(name, reply) => answer(reply, self.file_layout(&name), &mut self.effects),
            Command::RemoveFile(name, reply) => self.remove_file(name, reply),
            Command::BeginPut(request, reply) => self.begin_put(&request, reply),
            Command::CommitPut(put, reply) => self.commit_put(put, reply),
            Command::AbortPut(put, reply) => self.abort_put(put, Some(reply)),
            Command::Stripe(stripe, reply) => {
                answer(reply, self.answers().stripe_view_of(&stripe), &mut self.effects)
            }
            Command::Contradictions(reply) => {
                answer(reply, Ok(self.stripes.contradictions.names()), &mut self.effects)
            }
            Command::Block(block, reply) => {
                answer(reply, self.answers().block_place(&block), &mut self.effects)
            }
            Command::Describe(given, owner, reply) => {
                answer(reply, self.describe_stripe(&given, &owner), &mut self.effects)
            }
            Command::Repair(request, reply) => self.queue_repair(&request, reply),
            Command::Repairs(reply) => answer(reply, Ok(self.repair_views()), &mut self.effects),
            Command::RepairState(repair, page, reply) => {
                answer(reply, self.repair_page(repair, &page), &mut self.effects)
            }
            Command::GivenRepairState(repair, reply) => {
                answer(reply, self.given_repair_state(repair), &mut self.effects)
            }
            Command::RepairChange(repair, since, limit, reply) => {
                self.await_change(repair, since, limit, reply);
            }
            Command::CancelRepair(repair, reply) => {
                answer(reply, self.cancel_repair(repair), &mut self.effects)
            }
            Command::CancelGivenRepair(repair, reply) => {
                answer(reply, self.cancel_given_repair(repair), &mut self.effects)
            }
            Command::PauseRepair(repair, paused, reply) => {
                answer(reply, self.pause_repair(repair, paused), &mut self.effects)
            }
            Command::StopDrain(name, reply) => answer(reply, self.stop_drain(&name), &mut self.effects),
            Command::Topology(reply) => answer(reply, Ok(self.answers().topology_view()), &mut self.effects),
            Command::Probe(request, reply) => answer(reply, self.start_probes(&request), &mut self.effects),
            Command::Probes(reply) => answer(reply, self.probe_view(), &mut self.effects),
            Command::StopProbes(reply) => answer(reply, self.stop_probes(), &mut self.effects),
            Command::Caps(reply) => answer(reply, Ok(self.nodes.caps_view()), &mut self.effects),
            Command::ChangeCaps(request, reply) => self.change_caps(&request, reply),
            Command::Explain(request, reply) => answer(reply, self.explain(&request), &mut self.effects),
            Command::Scrub(parity, reply) => answer(reply, self.start_scrub(parity), &mut self.effects),
            Command::StopScrub(scrub, reply) => answer(reply, self.stop_scrub(scrub), &mut self.effects),
            Command::ScrubState(scrub, reply) => answer(reply, self.scrub_state(scrub), &mut self.effects),
            Command::Snapshot(reply) => self.ask_storage(Ask::Snapshot(reply)),
            Command::AcceptCatalog(request, reply) => self.accept_catalog(request, reply),
            Command::RemoveOrphans(reply) => answer(reply, self.remove_orphans(), &mut self.effects),
            Command::RemoveNode(name, reply) => self.remove_node(&name, reply),
            Command::Maintain(name, request, reply) => {
                answer(reply, self.maintain(&name, request), &mut self.effects)
            }
            Command::EndMaintenance(name, reply) => {
                answer(reply, self.end_maintenance(&name), &mut self.effects)
            }
            Command::OkToStop(names, leave, reply) => {
                answer(reply, self.answers().ok_to_stop(&names, leave), &mut self.effects)
            }
            Command::SafeToRemove(names, reply) => {
                answer(reply, self.safe_to_remove(&names), &mut self.effects)
            }
            Command::ReplaceNode(name, request, reply) => self.replace_node(&name, &request, reply),
            Command::Rebalance(request, reply) => self.rebalance(request, reply),
            Command::Settings(reply) => answer(reply, Ok(self.answers().settings_view()), &mut self.effects),
            Command::ChangeSettings(request, reply) => {
                answer(reply, self.change_settings(&request), &mut self.effects)
            }
            Command::History(most, reply) => answer(reply, Ok(self.history(most)), &mut self.effects),
        }
    }
}

pub(crate) fn answer<T: Send + 'static>(
    reply: Reply<T>,
    result: Result<T, RequestError>,
    effects: &mut Effects,
) {
    if let Err(RequestError::Catalog(error @ (CatalogError::Storage { .. } | CatalogError::Damaged { .. }))) =
        &result
    {
        tracing::error!(%error, "the catalog");
    }
    effects.push(Effect::Answer(reply.with(result)));
}
