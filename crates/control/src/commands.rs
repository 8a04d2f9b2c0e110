//! What the API may ask, each with the place where the answer goes.

use std::time::Duration;

use repair::StripeId;
use serde_json::Value;
use store_api::{PutId, Snapshot};

use crate::ItemPage;
use crate::effect::Reply;
use crate::error::RequestError;
use crate::out::Out;
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
    Snapshot(Reply<Box<dyn Snapshot>>),
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

/// Answers a request, with what is worked out first.
pub(crate) fn answer<T: Send + 'static>(reply: Reply<T>, result: Result<T, RequestError>, out: &mut Out) {
    out.answer(reply, result);
}
