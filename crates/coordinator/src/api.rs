//! The HTTP/JSON API: its paths, requests and answers. Connections are the business of `http`.
//!
//! Every request becomes one command to the core. The OpenAPI document is generated from the same
//! definitions.

mod asking;
mod files;
mod nodes;

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{ConnectInfo, DefaultBodyLimit, Path, Query, Request, State};
use axum::http::{Method, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};
use cluster::Role;
use repair::StripeId;
use serde::Deserialize;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_util::io::ReaderStream;
use utoipa::{IntoParams, OpenApi};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::door::Door;
use crate::http::{self, Caller};
use crate::incoming::Incoming;
use asking::{Answer, ApiError, Asking, Body, number};
use control::{Command, ItemPage, RequestError};
use views::{
    AcceptRequest, AcceptedView, BlockPlace, CapsRequest, CapsView, ContradictoryStripes, ErrorBody,
    GivenStripe, OrphansView, PlanRequestView, PlanView, RepairRequest, RepairView, ScrubView, Status,
    StripeView,
};

/// No request is longer.
const REQUEST_BYTES: usize = 64 << 10;
/// No request waits longer for the end of a repair.
const MAX_WAIT: Duration = Duration::from_secs(60);

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Mend coordinator",
        description = "Files, stripes, repairs and scrubs of a Mend cluster. All requests go over mutual TLS \
                       with a certificate of the cluster; a helper's certificate may only read, and not the catalog; a plug-in's is for stripes that it describes. A failed \
                       request is answered by an `ErrorBody` that says what is wrong and what to do.",
        license(name = "Apache-2.0", identifier = "Apache-2.0")
    ),
    components(schemas(ErrorBody))
)]
struct ApiDoc;

/// The OpenAPI document of the API, as JSON text.
pub fn openapi() -> String {
    let (_, document) = routes().split_for_parts();
    let mut text = document.to_pretty_json().expect("a document has string keys");
    text.push('\n');
    text
}

fn routes() -> OpenApiRouter<Asking> {
    OpenApiRouter::with_openapi(ApiDoc::openapi())
        .routes(routes!(status))
        .routes(routes!(nodes::nodes))
        .routes(routes!(nodes::remove_node))
        .routes(routes!(nodes::maintain, nodes::end_maintenance))
        .routes(routes!(nodes::replace_node))
        .routes(routes!(nodes::ok_to_stop))
        .routes(routes!(nodes::safe_to_remove))
        .routes(routes!(nodes::rebalance))
        .routes(routes!(nodes::settings, nodes::change_settings))
        .routes(routes!(nodes::history))
        .routes(routes!(files::files))
        .routes(routes!(files::file, files::remove_file))
        .routes(routes!(files::begin_put))
        .routes(routes!(files::commit_put))
        .routes(routes!(files::abort_put))
        .routes(routes!(describe))
        .routes(routes!(stripe))
        .routes(routes!(contradictions))
        .routes(routes!(block))
        .routes(routes!(repair, repairs))
        .routes(routes!(repair_state, cancel_repair))
        .routes(routes!(pause_repair))
        .routes(routes!(resume_repair))
        .routes(routes!(nodes::stop_drain))
        .routes(routes!(caps, change_caps))
        .routes(routes!(nodes::topology))
        .routes(routes!(nodes::probes, nodes::probe, nodes::stop_probes))
        .routes(routes!(explain))
        .routes(routes!(scrub))
        .routes(routes!(scrub_state, stop_scrub))
        .routes(routes!(catalog_copy))
        .routes(routes!(accept_catalog))
        .routes(routes!(remove_orphans))
        .routes(routes!(openapi_document))
}

// ---- serving ----

/// Serves the API.
pub(crate) struct ApiServer {
    pub listener: TcpListener,
    pub door: Arc<Door>,
    pub events: mpsc::Sender<Incoming>,
}

impl ApiServer {
    /// Serves until it is dropped.
    pub(crate) async fn serve(self) {
        let (router, _) = routes().split_for_parts();
        let router: Router = router
            .fallback(no_such_path)
            .method_not_allowed_fallback(no_such_method)
            .layer(middleware::from_fn(authorize))
            .layer(DefaultBodyLimit::max(REQUEST_BYTES))
            .with_state(Asking::new(self.events));
        http::serve(self.listener, self.door, router).await;
    }
}

/// Clients may do everything, helpers may look, plug-ins have theirs, and nobody else has business here.
async fn authorize(ConnectInfo(caller): ConnectInfo<Caller>, request: Request, next: Next) -> Response {
    let allowed = match &caller.role {
        Some(Role::Client(_)) => true,
        // Who has the catalog knows all names; a helper needs none of them.
        Some(Role::Helper(_)) => request.method() == Method::GET && request.uri().path() != "/v1/catalog",
        Some(Role::Plugin(_)) => is_for_plugins(request.method(), request.uri().path()),
        Some(Role::Coordinator) | None => false,
    };
    if allowed {
        return next.run(request).await;
    }
    let role = caller.role.map_or_else(|| "no role's".to_owned(), |role| format!("that of {role}"));
    let error = format!("this certificate is {role} and may not do this");
    failure(StatusCode::FORBIDDEN, error, "use a client's certificate, such as DIR/client/cert.pem".into())
}

/// What a plug-in has to do with: stripes that it describes, and their repairs. Which stripe a repair is of, the route
/// itself looks at.
fn is_for_plugins(method: &Method, path: &str) -> bool {
    match *method {
        Method::POST => ["/v1/stripes", "/v1/repairs"].contains(&path),
        Method::GET => {
            ["/v1/openapi.json", "/v1/contradictions"].contains(&path) || path.starts_with("/v1/repairs/")
        }
        Method::DELETE => path.starts_with("/v1/repairs/"),
        _ => false,
    }
}

async fn no_such_path(request: Request) -> Response {
    let error = format!("there is no {}", request.uri().path());
    failure(StatusCode::NOT_FOUND, error, "`mend openapi` lists what there is".into())
}

async fn no_such_method(request: Request) -> Response {
    let error = format!("{} is not possible on {}", request.method(), request.uri().path());
    failure(StatusCode::METHOD_NOT_ALLOWED, error, "`mend openapi` lists what is".into())
}

fn failure(status: StatusCode, error: String, next_step: String) -> Response {
    (status, Json(ErrorBody { error, next_step })).into_response()
}

// ---- the routes ----

/// Answers "am I safe?".
#[utoipa::path(get, path = "/v1/status", responses((status = 200, description = "The state of the cluster", body = Status)))]
async fn status(State(core): State<Asking>) -> Answer<Status> {
    core.ask(Command::Status).await
}

/// Describes a stripe of another system, in place of an earlier description, so that it can be read and repaired by its
/// name. It is forgotten ten minutes after it was last asked for.
#[utoipa::path(
    post,
    path = "/v1/stripes",
    request_body = GivenStripe,
    responses(
        (status = 200, description = "The stripe", body = StripeView),
        (status = 400, description = "The request can never be carried out", body = ErrorBody),
        (status = 404, description = "A helper that is not known", body = ErrorBody),
        (status = 409, description = "It is in the catalog", body = ErrorBody),
        (status = 423, description = "It is being read or repaired, as it was described before", body = ErrorBody),
        (status = 503, description = "Too many are described, or their descriptions take too much memory", body = ErrorBody)
    )
)]
async fn describe(
    State(core): State<Asking>,
    ConnectInfo(caller): ConnectInfo<Caller>,
    Body(given): Body<GivenStripe>,
) -> Answer<StripeView> {
    let owner = caller.role.map_or_else(String::new, |role| role.to_string());
    core.ask(|reply| Command::Describe(given, owner, reply)).await
}

/// A stripe.
#[utoipa::path(
    get,
    path = "/v1/stripes/{stripe}",
    params(("stripe" = String, Path, description = "The stripe's name")),
    responses((status = 200, description = "The stripe", body = StripeView), (status = 404, description = "There is nothing of this name or number", body = ErrorBody))
)]
async fn stripe(State(core): State<Asking>, Path(stripe): Path<String>) -> Answer<StripeView> {
    core.ask(|reply| Command::Stripe(StripeId(stripe), reply)).await
}

/// The stripes whose blocks contradict each other: a plug-in keeps its own system from rebuilding from them.
#[utoipa::path(get, path = "/v1/contradictions", responses((status = 200, description = "Their names", body = ContradictoryStripes)))]
async fn contradictions(State(core): State<Asking>) -> Answer<ContradictoryStripes> {
    core.ask(Command::Contradictions).await
}

/// The stripe of a block, and its index there.
#[utoipa::path(
    get,
    path = "/v1/blocks/{block}",
    params(("block" = String, Path, description = "The block's name")),
    responses((status = 200, description = "The stripe of the block, and its index", body = BlockPlace), (status = 404, description = "There is nothing of this name or number", body = ErrorBody))
)]
async fn block(State(core): State<Asking>, Path(block): Path<String>) -> Answer<BlockPlace> {
    core.ask(|reply| Command::Block(block, reply)).await
}

/// Queues a repair.
#[utoipa::path(
    post,
    path = "/v1/repairs",
    request_body = RepairRequest,
    responses(
        (status = 200, description = "The repair", body = RepairView),
        (status = 400, description = "The request can never be carried out", body = ErrorBody),
        (status = 404, description = "There is nothing of this name or number", body = ErrorBody)
    )
)]
async fn repair(
    State(core): State<Asking>,
    ConnectInfo(caller): ConnectInfo<Caller>,
    Body(request): Body<RepairRequest>,
) -> Answer<RepairView> {
    if let Some(Role::Plugin(_)) = caller.role
        && request.homes.is_empty()
    {
        return Err(ApiError(RequestError::NoHomes(StripeId(request.stripe.unwrap_or_default()))));
    }
    core.ask(|reply| Command::Repair(request, reply)).await
}

/// The repairs since the coordinator's start, without their stripes.
#[utoipa::path(get, path = "/v1/repairs", responses((status = 200, description = "The repairs", body = [RepairView])))]
async fn repairs(State(core): State<Asking>) -> Answer<Vec<RepairView>> {
    core.ask(Command::Repairs).await
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct RepairQuery {
    /// Milliseconds to wait for its end, a minute at most; it is answered at once if absent.
    wait_ms: Option<u64>,
    /// Ends the wait as soon as its `version` is not this one.
    since: Option<u64>,
    /// The most stripes in the answer; all if absent.
    items: Option<usize>,
    /// Leaves out stripes up to this one, by name.
    items_after: Option<String>,
}

/// A repair with its stripes.
#[utoipa::path(
    get,
    path = "/v1/repairs/{repair}",
    params(("repair" = u64, Path, description = "The repair's number"), RepairQuery),
    responses((status = 200, description = "The repair", body = RepairView), (status = 404, description = "There is nothing of this name or number", body = ErrorBody))
)]
async fn repair_state(
    State(core): State<Asking>,
    ConnectInfo(caller): ConnectInfo<Caller>,
    Path(repair): Path<String>,
    Query(query): Query<RepairQuery>,
) -> Answer<RepairView> {
    let repair = number(&repair)?;
    if let Some(wait_ms) = query.wait_ms {
        let limit = MAX_WAIT.min(Duration::from_millis(wait_ms));
        core.value(|reply| Command::RepairChange(repair, query.since, limit, reply)).await?;
    }
    let page = ItemPage { after: query.items_after.map(StripeId), limit: query.items.unwrap_or(usize::MAX) };
    match caller.role {
        Some(Role::Plugin(_)) => core.ask(|reply| Command::GivenRepairState(repair, reply)).await,
        _ => core.ask(|reply| Command::RepairState(repair, page, reply)).await,
    }
}

/// Nothing of a repair starts until it is resumed; what runs goes to its end.
#[utoipa::path(
    post,
    path = "/v1/repairs/{repair}/pause",
    params(("repair" = u64, Path, description = "The repair's number")),
    responses(
        (status = 200, description = "The repair", body = RepairView),
        (status = 404, description = "There is none", body = ErrorBody),
        (status = 409, description = "It has ended", body = ErrorBody)
    )
)]
async fn pause_repair(State(core): State<Asking>, Path(repair): Path<String>) -> Answer<RepairView> {
    let repair = number(&repair)?;
    core.ask(|reply| Command::PauseRepair(repair, true, reply)).await
}

/// A repair that was paused goes on.
#[utoipa::path(
    post,
    path = "/v1/repairs/{repair}/resume",
    params(("repair" = u64, Path, description = "The repair's number")),
    responses(
        (status = 200, description = "The repair", body = RepairView),
        (status = 404, description = "There is none", body = ErrorBody),
        (status = 409, description = "It has ended", body = ErrorBody)
    )
)]
async fn resume_repair(State(core): State<Asking>, Path(repair): Path<String>) -> Answer<RepairView> {
    let repair = number(&repair)?;
    core.ask(|reply| Command::PauseRepair(repair, false, reply)).await
}

/// The caps on what repairs may move.
#[utoipa::path(get, path = "/v1/caps", responses((status = 200, description = "The caps", body = CapsView)))]
async fn caps(State(core): State<Asking>) -> Answer<CapsView> {
    core.ask(Command::Caps).await
}

/// Changes caps, also while repairs run. What is not named stays.
#[utoipa::path(
    post,
    path = "/v1/caps",
    request_body = CapsRequest,
    responses(
        (status = 200, description = "The caps from now on", body = CapsView),
        (status = 400, description = "The request makes no sense", body = ErrorBody),
        (status = 404, description = "There is no such helper", body = ErrorBody)
    )
)]
async fn change_caps(State(core): State<Asking>, Body(request): Body<CapsRequest>) -> Answer<CapsView> {
    core.ask(|reply| Command::ChangeCaps(request, reply)).await
}

/// Calls a repair off; blocks that were rebuilt stay.
#[utoipa::path(
    delete,
    path = "/v1/repairs/{repair}",
    params(("repair" = u64, Path, description = "The repair's number")),
    responses(
        (status = 200, description = "The repair", body = RepairView),
        (status = 404, description = "There is nothing of this name or number", body = ErrorBody),
        (status = 409, description = "It has ended", body = ErrorBody)
    )
)]
async fn cancel_repair(
    State(core): State<Asking>,
    ConnectInfo(caller): ConnectInfo<Caller>,
    Path(repair): Path<String>,
) -> Answer<RepairView> {
    let repair = number(&repair)?;
    match caller.role {
        Some(Role::Plugin(_)) => core.ask(|reply| Command::CancelGivenRepair(repair, reply)).await,
        _ => core.ask(|reply| Command::CancelRepair(repair, reply)).await,
    }
}

/// Explains a plan without carrying it out.
#[utoipa::path(
    post,
    path = "/v1/plans",
    request_body = PlanRequestView,
    responses(
        (status = 200, description = "The plan", body = PlanView),
        (status = 400, description = "The request can never be carried out", body = ErrorBody),
        (status = 404, description = "There is nothing of this name or number", body = ErrorBody),
        (status = 409, description = "Too much is lost", body = ErrorBody)
    )
)]
async fn explain(State(core): State<Asking>, Body(request): Body<PlanRequestView>) -> Answer<PlanView> {
    core.ask(|reply| Command::Explain(request, reply)).await
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct ScrubQuery {
    /// Whether whole stripes are held against their code's equations as well, after their blocks.
    #[serde(default)]
    parity: bool,
}

/// Starts a scrub, or tells of the one that runs.
#[utoipa::path(
    post,
    path = "/v1/scrubs",
    params(ScrubQuery),
    responses(
        (status = 200, description = "The scrub", body = ScrubView),
        (status = 409, description = "One runs that does not check parity", body = ErrorBody)
    )
)]
async fn scrub(State(core): State<Asking>, Query(query): Query<ScrubQuery>) -> Answer<ScrubView> {
    core.ask(|reply| Command::Scrub(query.parity, reply)).await
}

/// Stops a scrub; what it has found stays.
#[utoipa::path(
    delete,
    path = "/v1/scrubs/{scrub}",
    params(("scrub" = u64, Path, description = "The scrub's number")),
    responses(
        (status = 200, description = "The scrub", body = ScrubView),
        (status = 404, description = "There is nothing of this name or number", body = ErrorBody),
        (status = 409, description = "It has ended", body = ErrorBody)
    )
)]
async fn stop_scrub(State(core): State<Asking>, Path(scrub): Path<String>) -> Answer<ScrubView> {
    let scrub = number(&scrub)?;
    core.ask(|reply| Command::StopScrub(scrub, reply)).await
}

/// The scrub that runs or ran last.
#[utoipa::path(
    get,
    path = "/v1/scrubs/{scrub}",
    params(("scrub" = u64, Path, description = "The scrub's number")),
    responses((status = 200, description = "The scrub", body = ScrubView), (status = 404, description = "There is nothing of this name or number", body = ErrorBody))
)]
async fn scrub_state(State(core): State<Asking>, Path(scrub): Path<String>) -> Answer<ScrubView> {
    let scrub = number(&scrub)?;
    core.ask(|reply| Command::ScrubState(scrub, reply)).await
}

/// A copy of the catalog as it is now: a file for `mend catalog restore`.
#[utoipa::path(
    get,
    path = "/v1/catalog",
    responses(
        (status = 200, description = "The catalog's file", body = Vec<u8>, content_type = "application/octet-stream"),
        (status = 500, description = "The coordinator's own disk fails, or the catalog is damaged", body = ErrorBody)
    )
)]
async fn catalog_copy(State(core): State<Asking>) -> Result<Response, ApiError> {
    let copy = core.value(Command::Snapshot).await?;
    let file = tokio::task::spawn_blocking(move || copy.file()).await;
    let file = file.expect("copying a catalog does not panic").map_err(RequestError::Copy)?;
    let bytes = axum::body::Body::from_stream(ReaderStream::new(tokio::fs::File::from_std(file)));
    Ok(([("content-type", "application/octet-stream")], bytes).into_response())
}

/// Goes on with the catalog as it is, though some helper holds blocks that are newer; those belong to no stripe then.
/// Or a helper's claims are rejected.
#[utoipa::path(
    post,
    path = "/v1/catalog/accept",
    request_body = AcceptRequest,
    responses((status = 200, description = "What was decided", body = AcceptedView), (status = 404, description = "There is no such helper", body = ErrorBody))
)]
async fn accept_catalog(
    State(core): State<Asking>,
    Body(request): Body<AcceptRequest>,
) -> Answer<AcceptedView> {
    core.ask(|reply| Command::AcceptCatalog(request, reply)).await
}

/// Begins to remove the blocks that no stripe knows, if it can be shown of them that nothing refers to them: they say that
/// they are of this cluster, and are older than the catalog.
#[utoipa::path(
    post,
    path = "/v1/orphans/remove",
    responses((status = 200, description = "How many there are", body = OrphansView), (status = 409, description = "It contradicts what is there", body = ErrorBody), (status = 503, description = "It cannot be carried out now", body = ErrorBody))
)]
async fn remove_orphans(State(core): State<Asking>) -> Answer<OrphansView> {
    core.ask(Command::RemoveOrphans).await
}

/// This document.
#[utoipa::path(get, path = "/v1/openapi.json", responses((status = 200, description = "The document", body = Value)))]
async fn openapi_document() -> Response {
    ([("content-type", "application/json")], openapi()).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `UPDATE_OPENAPI=1 cargo test -p coordinator openapi` writes it.
    #[test]
    fn the_openapi_document_is_kept_up_to_date() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/openapi.json");
        if std::env::var_os("UPDATE_OPENAPI").is_some() {
            std::fs::write(path, openapi()).unwrap();
        }
        let kept = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            kept == openapi(),
            "docs/reference/openapi.json is stale: run the tests once with UPDATE_OPENAPI=1"
        );
    }

    /// What `scripts/openapi` does not ask for: it holds the document against the standard.
    #[test]
    fn every_operation_and_response_of_the_openapi_document_is_described() {
        let document: serde_json::Value = serde_json::from_str(&openapi()).unwrap();
        let said = |value: &serde_json::Value| value.as_str().is_some_and(|text| !text.trim().is_empty());
        let mut responses = 0;
        for (path, operations) in document["paths"].as_object().unwrap() {
            for (method, operation) in operations.as_object().unwrap() {
                assert!(said(&operation["summary"]), "{method} {path} has no summary");
                for (status, response) in operation["responses"].as_object().unwrap() {
                    assert!(said(&response["description"]), "{method} {path} {status} is not described");
                    responses += 1;
                }
            }
        }
        assert!(responses > 50, "{responses}");
    }
}
