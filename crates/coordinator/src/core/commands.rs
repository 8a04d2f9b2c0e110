//! What the API may ask, each with the place where the answer goes.

use repair::StripeId;
use serde_json::Value;
use stores::CatalogError;
use stores::dir::{PutId, Snapshot};
use tokio::sync::oneshot;

use super::Core;
use super::storing::Ask;
use crate::error::RequestError;
use views::{
    AcceptedView, BlockPlace, FileLayout, FileView, GivenStripe, NodeView, OrphansView, PlanRequestView,
    PlanView, PutRequest, PutView, RepairRequest, RepairView, ScrubView, Status, StripeView,
};

/// Where an answer goes.
pub(crate) type Reply<T> = oneshot::Sender<Result<T, RequestError>>;

/// What the API may ask.
#[derive(Debug)]
pub(crate) enum Command {
    Status(Reply<Status>),
    Nodes(Reply<Vec<NodeView>>),
    Files(String, Reply<Vec<FileView>>),
    File(String, Reply<FileLayout>),
    RemoveFile(String, Reply<FileView>),
    BeginPut(PutRequest, Reply<PutView>),
    CommitPut(PutId, Reply<FileView>),
    AbortPut(PutId, Reply<Value>),
    Stripe(StripeId, Reply<StripeView>),
    Block(String, Reply<BlockPlace>),
    Describe(GivenStripe, Reply<StripeView>),
    Repair(RepairRequest, Reply<RepairView>),
    Repairs(Reply<Vec<RepairView>>),
    RepairState(u64, Reply<RepairView>),
    CancelRepair(u64, Reply<RepairView>),
    Explain(PlanRequestView, Reply<PlanView>),
    Scrub(Reply<ScrubView>),
    ScrubState(u64, Reply<ScrubView>),
    Snapshot(Reply<Snapshot>),
    AcceptCatalog(Reply<AcceptedView>),
    RemoveOrphans(Reply<OrphansView>),
}

impl Core {
    pub(super) fn carry_out(&mut self, command: Command) {
        match command {
            Command::Status(reply) => answer(reply, self.status()),
            Command::Nodes(reply) => answer(reply, self.node_views()),
            Command::Files(prefix, reply) => answer(reply, self.file_views(&prefix)),
            Command::File(name, reply) => answer(reply, self.file_layout(&name)),
            Command::RemoveFile(name, reply) => self.remove_file(name, reply),
            Command::BeginPut(request, reply) => self.begin_put(&request, reply),
            Command::CommitPut(put, reply) => self.commit_put(put, reply),
            Command::AbortPut(put, reply) => self.abort_put(put, Some(reply)),
            Command::Stripe(stripe, reply) => answer(reply, self.stripe_view_of(&stripe)),
            Command::Block(block, reply) => answer(reply, self.block_place(&block)),
            Command::Describe(given, reply) => answer(reply, self.describe_stripe(&given)),
            Command::Repair(request, reply) => self.queue_repair(&request, reply),
            Command::Repairs(reply) => answer(reply, Ok(self.repair_views())),
            Command::RepairState(repair, reply) => answer(reply, self.repair_state(repair)),
            Command::CancelRepair(repair, reply) => answer(reply, self.cancel_repair(repair)),
            Command::Explain(request, reply) => answer(reply, self.explain(&request)),
            Command::Scrub(reply) => answer(reply, self.start_scrub()),
            Command::ScrubState(scrub, reply) => answer(reply, self.scrub_state(scrub)),
            Command::Snapshot(reply) => self.ask_storage(Ask::Snapshot(reply)),
            Command::AcceptCatalog(reply) => self.accept_catalog(reply),
            Command::RemoveOrphans(reply) => answer(reply, self.remove_orphans()),
        }
    }
}

pub(super) fn answer<T>(reply: Reply<T>, result: Result<T, RequestError>) {
    if let Err(RequestError::Catalog(error @ (CatalogError::Storage { .. } | CatalogError::Damaged { .. }))) =
        &result
    {
        tracing::error!(%error, "the catalog");
    }
    let _ = reply.send(result); // Whoever asked may have gone.
}
