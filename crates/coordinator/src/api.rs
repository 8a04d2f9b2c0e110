//! The HTTP/JSON API: maps each endpoint to the command that answers it. The crate `serving` serves the
//! connections.
//!
//! [`views::endpoints`] defines methods, paths and types of the endpoints. Every request becomes one command
//! to the control plane.

mod answers;
pub(crate) mod asking;
mod auditing;
mod charging;
mod pushing;
mod request_memory;
mod rights;
mod routing;

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::{Extension, middleware};
use cluster::Role;
use control::{
    CatalogCommand, ClusterCommand, DescriptionError, FileCommand, ItemPage, NetworkCommand, NodeCommand,
    RepairCommand, RequestError, ScrubCommand, StripeCommand,
};
use repair::StripeId;
use serving::{Caller, Door};
use store_api::PutId;
use tokio::net::TcpListener;
use tokio_util::io::ReaderStream;
use views::endpoints::*;
use views::{PutView, RepairView};

use crate::metrics::{self, Load};
use asking::{Answer, ApiError, Asking, failure};
use charging::Charged;
use pushing::Feed;
use request_memory::RequestMemory;
use rights::Members;
use routing::{Asked, Routes};

/// The longest time that a request may wait for a repair to change.
const MAX_WAIT: Duration = Duration::from_secs(60);

fn routes(feed: &Arc<Feed>) -> Routes {
    let feed = feed.clone();
    let routes = Routes::default()
        .on::<GetStatus, _>(|_, reply| ClusterCommand::Status(reply))
        .on::<GetHistory, _>(|asked, reply| {
            let HistoryQuery { most, since_unix_ms } = asked.query;
            ClusterCommand::History(since_unix_ms.unwrap_or(0), most.unwrap_or(usize::MAX), reply)
        })
        .on::<NoteFileWork, _>(|asked, reply| {
            let member = member_name(&asked.caller);
            ClusterCommand::NoteFileWork(asked.body, member, reply)
        })
        .on::<GetAudit, _>(|asked, reply| {
            let HistoryQuery { most, since_unix_ms } = asked.query;
            ClusterCommand::Audit(since_unix_ms.unwrap_or(0), most.unwrap_or(usize::MAX), reply)
        })
        .on::<GetSettings, _>(|_, reply| ClusterCommand::Settings(reply))
        .on::<ChangeSettings, _>(|asked, reply| ClusterCommand::ChangeSettings(asked.body, reply))
        .on::<Mute, _>(|asked, reply| ClusterCommand::Mute(asked.parameter, asked.body, reply))
        .on::<Unmute, _>(|asked, reply| ClusterCommand::Unmute(asked.parameter, reply))
        .on::<GetCaps, _>(|_, reply| NetworkCommand::Caps(reply))
        .on::<ChangeCaps, _>(|asked, reply| NetworkCommand::ChangeCaps(asked.body, reply))
        .on::<GetTopology, _>(|_, reply| NetworkCommand::Topology(reply))
        .on::<GetProbes, _>(|_, reply| NetworkCommand::Probes(reply))
        .on::<StartProbes, _>(|asked, reply| NetworkCommand::Probe(asked.body, reply))
        .on::<StopProbes, _>(|_, reply| NetworkCommand::StopProbes(reply))
        .on::<StartScrub, _>(|asked, reply| ScrubCommand::Start(asked.query.parity, reply))
        .on::<GetScrub, _>(|asked, reply| ScrubCommand::State(asked.parameter, reply))
        .on::<StopScrub, _>(|asked, reply| ScrubCommand::Stop(asked.parameter, reply))
        .on::<AcceptCatalog, _>(|asked, reply| CatalogCommand::Accept(asked.body, reply))
        .on::<RemoveOrphans, _>(|_, reply| CatalogCommand::RemoveOrphans(reply))
        .by::<GetEvents, _, _>(move |asked| pushing::events(asked, feed.clone()))
        .by::<GetCatalog, _, _>(catalog_copy)
        .by::<GetOpenApi, _, _>(openapi_document);
    repair_routes(node_routes(file_routes(routes)))
}

fn file_routes(routes: Routes) -> Routes {
    routes
        .on::<ListFiles, _>(|asked, reply| FileCommand::List(asked.query.prefix, reply))
        .on::<GetFile, _>(|asked, reply| FileCommand::Layout(asked.parameter, reply))
        .on::<RemoveFile, _>(|asked, reply| FileCommand::Remove(asked.parameter, reply))
        .by::<BeginPut, _, _>(begin_put)
        .on::<CommitPut, _>(|asked, reply| FileCommand::CommitPut(PutId(asked.parameter), reply))
        .on::<AbortPut, _>(|asked, reply| FileCommand::AbortPut(PutId(asked.parameter), reply))
        .on::<GetStripe, _>(|asked, reply| StripeCommand::View(StripeId(asked.parameter), reply))
        .on::<ListContradictions, _>(|_, reply| StripeCommand::Contradictions(reply))
        .on::<GetBlock, _>(|asked, reply| StripeCommand::Block(asked.parameter, reply))
        .on::<ExplainPlan, _>(|asked, reply| StripeCommand::Explain(asked.body, reply))
        .on::<DescribeStripe, _>(|asked, reply| {
            let owner = member_name(&asked.caller);
            StripeCommand::Describe(asked.body, owner, reply)
        })
}

fn node_routes(routes: Routes) -> Routes {
    routes
        .on::<ListNodes, _>(|_, reply| NodeCommand::List(reply))
        .on::<RemoveNode, _>(|asked, reply| NodeCommand::Remove(asked.parameter, reply))
        .on::<Maintain, _>(|asked, reply| NodeCommand::Maintain(asked.parameter, asked.body, reply))
        .on::<EndMaintenance, _>(|asked, reply| NodeCommand::EndMaintenance(asked.parameter, reply))
        .on::<ReplaceNode, _>(|asked, reply| NodeCommand::Replace(asked.parameter, asked.body, reply))
        .on::<StopDrain, _>(|asked, reply| NodeCommand::StopDrain(asked.parameter, reply))
        .on::<OkToStop, _>(|asked, reply| {
            NodeCommand::OkToStop(names(&asked.query.nodes), asked.query.leave, reply)
        })
        .on::<SafeToRemove, _>(|asked, reply| NodeCommand::SafeToRemove(names(&asked.query.nodes), reply))
}

fn repair_routes(routes: Routes) -> Routes {
    routes
        .on::<ListRepairs, _>(|_, reply| RepairCommand::List(reply))
        .on::<PauseRepair, _>(|asked, reply| RepairCommand::Pause(asked.parameter, true, reply))
        .on::<ResumeRepair, _>(|asked, reply| RepairCommand::Pause(asked.parameter, false, reply))
        .on::<Rebalance, _>(|asked, reply| RepairCommand::Rebalance(asked.body, reply))
        .on::<CancelRepair, _>(|asked, reply| match asked.caller.role {
            Some(Role::Plugin(_)) => RepairCommand::CancelGiven(asked.parameter, reply),
            _ => RepairCommand::Cancel(asked.parameter, reply),
        })
        .by::<QueueRepair, _, _>(queue_repair)
        .by::<GetRepair, _, _>(repair_state)
}

/// Splits names separated by commas.
fn names(text: &str) -> Vec<String> {
    text.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// Returns the role and name of the member that sent a request.
fn member_name(caller: &Caller) -> String {
    caller.role.as_ref().map_or_else(String::new, Role::to_string)
}

/// Begins a put. If there is no room for the answer, aborts the put, whose number the caller does not learn.
async fn begin_put(asked: Asked<BeginPut>) -> Answer<PutView> {
    let Asked { core, caller, body, .. } = asked;
    let put = core.value(|reply| FileCommand::BeginPut(body, member_name(&caller), reply)).await?;
    let number = PutId(put.put);
    let answer = core.encode(put).await;
    if answer.is_err() {
        // If this fails, the put is aborted when its time is over.
        let _ = core.value(|reply| FileCommand::AbortPut(number, reply)).await;
    }
    answer
}

/// Queues a repair. A request from a plug-in must name the helpers (`homes`) on which the blocks are to be
/// rebuilt.
async fn queue_repair(asked: Asked<QueueRepair>) -> Answer<RepairView> {
    let request = asked.body;
    if let Some(Role::Plugin(_)) = asked.caller.role
        && request.homes.is_empty()
    {
        let stripe = StripeId(request.stripe.unwrap_or_default());
        return Err(RequestError::from(DescriptionError::NoHomes(stripe)).into());
    }
    asked.core.ask(|reply| RepairCommand::Queue(request.into(), reply)).await
}

/// Returns the state of a repair. If the request sets `wait_ms`, first waits until the repair ends or its
/// version differs from `since`, for at most `wait_ms` milliseconds.
async fn repair_state(asked: Asked<GetRepair>) -> Answer<RepairView> {
    let Asked { core, caller, parameter: repair, query, .. } = asked;
    if let Some(wait_ms) = query.wait_ms {
        let limit = MAX_WAIT.min(Duration::from_millis(wait_ms));
        core.late_value(|reply| RepairCommand::Change(repair, query.since, limit, reply)).await?;
    }
    let page = ItemPage { after: query.items_after.map(StripeId), limit: query.items.unwrap_or(usize::MAX) };
    match caller.role {
        Some(Role::Plugin(_)) => core.ask(|reply| RepairCommand::GivenState(repair, reply)).await,
        _ => core.ask(|reply| RepairCommand::State(repair, page, reply)).await,
    }
}

async fn catalog_copy(asked: Asked<GetCatalog>) -> Result<Response, ApiError> {
    let copy = asked.core.late_value(CatalogCommand::Snapshot).await?;
    let file = tokio::task::spawn_blocking(move || copy.file()).await;
    let file = file.expect("copying a catalog does not panic").map_err(ApiError::Copy)?;
    // The stream has only a small piece of the file in memory.
    let bytes = Body::from_stream(ReaderStream::new(tokio::fs::File::from_std(file)));
    Ok((Extension(Charged), [("content-type", "application/octet-stream")], bytes).into_response())
}

async fn openapi_document(_: Asked<GetOpenApi>) -> Result<Response, ApiError> {
    static DOCUMENT: LazyLock<Bytes> = LazyLock::new(|| openapi().into());
    Ok(([("content-type", "application/json")], DOCUMENT.clone()).into_response())
}

// ---- serving ----

/// The server of the API.
pub(crate) struct ApiServer {
    pub listener: TcpListener,
    pub door: Arc<Door>,
    pub load: Load,
}

impl ApiServer {
    /// Serves until the future is dropped.
    pub(crate) async fn serve(self) {
        let core = Asking::new(self.load.events.clone());
        let members = Members::new(self.load.events.clone());
        let feed = Arc::<Feed>::default();
        let router: Router = routes(&feed)
            .router()
            .with_state(core.clone())
            .merge(metrics::router(core.clone(), self.load))
            .fallback(async |request: Request| no_such_path(&request))
            .layer(middleware::from_fn_with_state(members, rights::authorize))
            .layer(middleware::from_fn_with_state(core.clone(), charging::charge_rest))
            .layer(middleware::from_fn_with_state(RequestMemory::default(), request_memory::charge));
        tokio::join!(serving::serve(self.listener, self.door, router), feed.look(core));
    }
}

/// Answers a request to a path that no endpoint has.
fn no_such_path(request: &Request) -> Response {
    let error = format!("there is no {}", request.uri().path());
    failure(StatusCode::NOT_FOUND, error, "`mend openapi` lists the endpoints".into())
}

/// Answers a request with a method that no endpoint with its path has.
fn no_such_method(request: &Request) -> Response {
    let error = format!("{} is not supported on {}", request.method(), request.uri().path());
    failure(StatusCode::METHOD_NOT_ALLOWED, error, "`mend openapi` lists the supported methods".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_endpoint_is_mounted_once() {
        let mounted = routes(&Arc::default());
        let mut missing: Vec<_> = ENDPOINTS.to_vec();
        missing.retain(|&(method, path, _)| !mounted.mounted().contains(&(method, path)));
        assert!(missing.is_empty(), "not mounted: {missing:?}");
        assert_eq!(mounted.mounted().len(), ENDPOINTS.len());
    }

    /// Checks the descriptions. `scripts/openapi` validates the document against the standard, which does not
    /// require descriptions.
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
