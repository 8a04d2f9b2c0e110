//! Helpers: who there is, what an operator does with them, and what the coordinator does by itself.

use axum::extract::{Path, Query, State};
use serde::Deserialize;
use utoipa::IntoParams;
use views::{
    ErrorBody, HistoryEntry, MaintenanceRequest, NodeView, ProbeRequest, ProbeView, RebalanceRequest,
    RebalanceView, RepairView, ReplaceRequest, SafetyView, SettingsRequest, SettingsView, TopologyView,
};

use super::asking::{Answer, Asking, Body};
use control::Command;

/// The helpers.
#[utoipa::path(get, path = "/v1/nodes", responses((status = 200, description = "The helpers, as people sort their names", body = [NodeView])))]
pub(super) async fn nodes(State(core): State<Asking>) -> Answer<Vec<NodeView>> {
    core.ask(Command::Nodes).await
}

/// The network as the planner sees it: what ports, disks, racks and links carry, and how that is known.
#[utoipa::path(get, path = "/v1/topology", responses((status = 200, description = "The network", body = TopologyView)))]
pub(super) async fn topology(State(core): State<Asking>) -> Answer<TopologyView> {
    core.ask(Command::Topology).await
}

/// The measurement of links that runs, or the last one.
#[utoipa::path(get, path = "/v1/probes", responses((status = 200, description = "The measurement", body = ProbeView), (status = 404, description = "Nothing was measured since the coordinator was started", body = ErrorBody)))]
pub(super) async fn probes(State(core): State<Asking>) -> Answer<ProbeView> {
    core.ask(Command::Probes).await
}

/// Begins to measure links: one helper sends to another as a repair would, one at a time.
#[utoipa::path(
    post,
    path = "/v1/probes",
    request_body = ProbeRequest,
    responses(
        (status = 200, description = "The measurement", body = ProbeView),
        (status = 400, description = "The request can never be carried out", body = ErrorBody),
        (status = 404, description = "There is nothing of this name or number", body = ErrorBody),
        (status = 409, description = "One runs already, or a helper is down", body = ErrorBody)
    )
)]
pub(super) async fn probe(
    State(core): State<Asking>,
    Body(request): Body<ProbeRequest>,
) -> Answer<ProbeView> {
    core.ask(|reply| Command::Probe(request, reply)).await
}

/// Ends the measurement of links; what was found counts.
#[utoipa::path(delete, path = "/v1/probes", responses((status = 200, description = "The measurement", body = ProbeView), (status = 404, description = "Nothing was measured since the coordinator was started", body = ErrorBody)))]
pub(super) async fn stop_probes(State(core): State<Asking>) -> Answer<ProbeView> {
    core.ask(Command::StopProbes).await
}

/// Takes a helper off the list that is down and holds nothing that is needed.
#[utoipa::path(
    delete,
    path = "/v1/nodes/{node}",
    params(("node" = String, Path, description = "The helper's name")),
    responses(
        (status = 200, description = "The helper", body = NodeView),
        (status = 404, description = "There is nothing of this name or number", body = ErrorBody),
        (status = 409, description = "It is up, or the catalog counts on blocks on it", body = ErrorBody),
        (status = 503, description = "It cannot be carried out now", body = ErrorBody)
    )
)]
pub(super) async fn remove_node(State(core): State<Asking>, Path(node): Path<String>) -> Answer<NodeView> {
    core.ask(|reply| Command::RemoveNode(node, reply)).await
}

/// Begins the maintenance of a helper, or makes it end at another time: what it holds is not rebuilt elsewhere before that.
#[utoipa::path(
    put,
    path = "/v1/nodes/{node}/maintenance",
    params(("node" = String, Path, description = "The helper's name")),
    request_body = MaintenanceRequest,
    responses((status = 200, description = "The helper", body = NodeView), (status = 400, description = "The request can never be carried out", body = ErrorBody), (status = 404, description = "There is nothing of this name or number", body = ErrorBody))
)]
pub(super) async fn maintain(
    State(core): State<Asking>,
    Path(node): Path<String>,
    Body(request): Body<MaintenanceRequest>,
) -> Answer<NodeView> {
    core.ask(|reply| Command::Maintain(node, request, reply)).await
}

/// Ends the maintenance of a helper.
#[utoipa::path(
    delete,
    path = "/v1/nodes/{node}/maintenance",
    params(("node" = String, Path, description = "The helper's name")),
    responses(
        (status = 200, description = "The helper", body = NodeView),
        (status = 404, description = "There is nothing of this name or number", body = ErrorBody),
        (status = 409, description = "It is not in maintenance", body = ErrorBody)
    )
)]
pub(super) async fn end_maintenance(
    State(core): State<Asking>,
    Path(node): Path<String>,
) -> Answer<NodeView> {
    core.ask(|reply| Command::EndMaintenance(node, reply)).await
}

/// Queues a repair that brings all that a helper has, or had, to another one.
#[utoipa::path(
    post,
    path = "/v1/nodes/{node}/replace",
    params(("node" = String, Path, description = "The name of the helper that leaves")),
    request_body = ReplaceRequest,
    responses(
        (status = 200, description = "The repair", body = RepairView),
        (status = 404, description = "There is nothing of this name or number", body = ErrorBody),
        (status = 409, description = "The other one is not up", body = ErrorBody)
    )
)]
pub(super) async fn replace_node(
    State(core): State<Asking>,
    Path(node): Path<String>,
    Body(request): Body<ReplaceRequest>,
) -> Answer<RepairView> {
    core.ask(|reply| Command::ReplaceNode(node, request, reply)).await
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct NodesQuery {
    /// Names of helpers, separated by commas.
    nodes: String,
}

impl NodesQuery {
    fn names(&self) -> Vec<String> {
        self.nodes.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect()
    }
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct StopQuery {
    /// Names of helpers, separated by commas.
    nodes: String,
    /// Further blocks that each stripe must still be able to lose; 1 if absent.
    #[serde(default = "some_redundancy")]
    leave: u32,
}

fn some_redundancy() -> u32 {
    1
}

/// Whether helpers may be stopped for a while: every stripe that can be read now still could, and lose another block.
#[utoipa::path(
    get,
    path = "/v1/checks/ok-to-stop",
    params(StopQuery),
    responses((status = 200, description = "Whether they may, and why not", body = SafetyView), (status = 400, description = "The request can never be carried out", body = ErrorBody), (status = 404, description = "There is nothing of this name or number", body = ErrorBody))
)]
pub(super) async fn ok_to_stop(
    State(core): State<Asking>,
    Query(StopQuery { nodes, leave }): Query<StopQuery>,
) -> Answer<SafetyView> {
    let names = NodesQuery { nodes }.names();
    core.ask(|reply| Command::OkToStop(names, leave, reply)).await
}

/// Whether helpers may be taken away for good: no stripe has a block there.
#[utoipa::path(
    get,
    path = "/v1/checks/safe-to-remove",
    params(NodesQuery),
    responses((status = 200, description = "Whether they may, and why not", body = SafetyView), (status = 400, description = "The request can never be carried out", body = ErrorBody), (status = 404, description = "There is nothing of this name or number", body = ErrorBody))
)]
pub(super) async fn safe_to_remove(
    State(core): State<Asking>,
    Query(query): Query<NodesQuery>,
) -> Answer<SafetyView> {
    core.ask(|reply| Command::SafeToRemove(query.names(), reply)).await
}

/// Moves blocks from full helpers to empty ones, or says what would move.
#[utoipa::path(
    post,
    path = "/v1/rebalances",
    request_body = RebalanceRequest,
    responses((status = 200, description = "What moves", body = RebalanceView), (status = 503, description = "It cannot be carried out now", body = ErrorBody))
)]
pub(super) async fn rebalance(
    State(core): State<Asking>,
    Body(request): Body<RebalanceRequest>,
) -> Answer<RebalanceView> {
    core.ask(|reply| Command::Rebalance(request, reply)).await
}

/// What the coordinator does by itself.
#[utoipa::path(get, path = "/v1/settings", responses((status = 200, description = "The settings as they are now", body = SettingsView)))]
pub(super) async fn settings(State(core): State<Asking>) -> Answer<SettingsView> {
    core.ask(Command::Settings).await
}

/// Changes what the coordinator does by itself; it holds until it is changed again.
#[utoipa::path(
    patch,
    path = "/v1/settings",
    request_body = SettingsRequest,
    responses((status = 200, description = "The settings as they are now", body = SettingsView), (status = 400, description = "The request can never be carried out", body = ErrorBody))
)]
pub(super) async fn change_settings(
    State(core): State<Asking>,
    Body(request): Body<SettingsRequest>,
) -> Answer<SettingsView> {
    core.ask(|reply| Command::ChangeSettings(request, reply)).await
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct HistoryQuery {
    /// How many entries at most; all that are kept if absent.
    most: Option<usize>,
}

/// What has happened, oldest first.
#[utoipa::path(get, path = "/v1/history", params(HistoryQuery), responses((status = 200, description = "What has happened, oldest first", body = [HistoryEntry])))]
pub(super) async fn history(
    State(core): State<Asking>,
    Query(query): Query<HistoryQuery>,
) -> Answer<Vec<HistoryEntry>> {
    core.ask(|reply| Command::History(query.most.unwrap_or(usize::MAX), reply)).await
}

/// A helper gets blocks again that was to be emptied; what empties it is called off.
#[utoipa::path(
    delete,
    path = "/v1/nodes/{name}/drain",
    params(("name" = String, Path, description = "The helper's name")),
    responses(
        (status = 200, description = "The helper", body = NodeView),
        (status = 404, description = "There is none", body = ErrorBody)
    )
)]
pub(super) async fn stop_drain(State(core): State<Asking>, Path(name): Path<String>) -> Answer<NodeView> {
    core.ask(|reply| Command::StopDrain(name, reply)).await
}
