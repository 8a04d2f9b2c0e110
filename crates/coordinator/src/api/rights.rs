//! Which requests a certificate permits: each role has rights, and each endpoint needs one.
//!
//! `docs/reference/roles.md` has the table.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use axum::extract::{ConnectInfo, MatchedPath, Request, State};
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::Response;
use cluster::Role;
use control::Event;
use serving::Caller;
use tokio::sync::mpsc;
use views::endpoints::{
    CancelRepair, DescribeStripe, ENDPOINTS, Endpoint, GetOpenApi, GetRepair, ListContradictions, Method,
    QueueRepair, Right,
};

use super::asking::failure;
use crate::incoming::Incoming;
use crate::metrics;

/// The members that have sent requests, with the expiry of their certificates.
pub(super) struct Members {
    events: mpsc::Sender<Incoming>,
    known: Mutex<BTreeMap<Role, SystemTime>>,
}

impl Members {
    pub(super) fn new(events: mpsc::Sender<Incoming>) -> Arc<Self> {
        Arc::new(Self { events, known: Mutex::default() })
    }

    /// Tells the control plane when a member's certificate expires, if the member has not shown this one before.
    async fn note(&self, caller: &Caller) {
        let (Some(role), Some(expires)) = (caller.role.clone(), caller.expires) else { return };
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner).insert(role.clone(), expires);
        if known != Some(expires) {
            // An error means that the coordinator is stopping.
            let _ = self.events.send(Incoming::Event(Event::Certificate { role, expires })).await;
        }
    }
}

/// Refuses requests that the caller's certificate does not permit.
pub(super) async fn authorize(
    State(members): State<Arc<Members>>,
    ConnectInfo(caller): ConnectInfo<Caller>,
    request: Request,
    next: Next,
) -> Response {
    members.note(&caller).await;
    let path = request.extensions().get::<MatchedPath>().map(MatchedPath::as_str);
    let is_permitted = match (&caller.role, path) {
        (None, _) => false,
        (Some(role), Some(path)) if metrics::PATHS.contains(&path) => *role != Role::Coordinator,
        // No endpoint has this path; the fallback answers with 404.
        (Some(role), None) => !matches!(role, Role::Monitor(_) | Role::Coordinator),
        (Some(role), Some(path)) => {
            let endpoint =
                ENDPOINTS.iter().find(|(method, at, _)| *at == path && is(*method, request.method()));
            // A method that the path does not support is refused later.
            endpoint.is_none_or(|&(method, path, right)| permits(role, method, path, right))
        }
    };
    if is_permitted {
        return next.run(request).await;
    }
    let role = caller.role.map_or_else(|| "of no known role".to_owned(), |role| format!("that of {role}"));
    // Not in the audit: a member without rights could push everything else out of it.
    // The path of the endpoint, without parameters: one member then causes few different lines.
    let (address, method) = (caller.address, request.method());
    tracing::warn!(%address, %method, path, "refused a request: the certificate is {role}");
    let error = format!("this certificate is {role} and does not permit this request");
    let next_step =
        "use another certificate (mend --as NAME); docs/reference/roles.md lists what each role may do";
    failure(StatusCode::FORBIDDEN, error, next_step.into())
}

fn is(method: Method, of: &axum::http::Method) -> bool {
    let name = match method {
        Method::Get => axum::http::Method::GET,
        Method::Post => axum::http::Method::POST,
        Method::Put => axum::http::Method::PUT,
        Method::Patch => axum::http::Method::PATCH,
        Method::Delete => axum::http::Method::DELETE,
    };
    name == *of
}

/// Whether a role has the right that an endpoint needs.
fn permits(role: &Role, method: Method, path: &str, right: Right) -> bool {
    match role {
        Role::Admin(_) => true,
        client if *client == Role::default_client() => true,
        Role::Operator(_) => matches!(right, Right::Read | Right::Operate),
        Role::Client(_) => matches!(right, Right::Read | Right::Store),
        Role::Helper(_) => right == Right::Read && method == Method::Get,
        // A plug-in sees and repairs only stripes that plug-ins described; the handlers check that.
        Role::Plugin(_) => FOR_PLUGINS.contains(&(method, path)),
        Role::Monitor(_) | Role::Coordinator => false,
    }
}

/// The endpoints for plug-ins.
const FOR_PLUGINS: [(Method, &str); 6] = [
    (DescribeStripe::METHOD, DescribeStripe::PATH),
    (ListContradictions::METHOD, ListContradictions::PATH),
    (QueueRepair::METHOD, QueueRepair::PATH),
    (GetRepair::METHOD, GetRepair::PATH),
    (CancelRepair::METHOD, CancelRepair::PATH),
    (GetOpenApi::METHOD, GetOpenApi::PATH),
];
