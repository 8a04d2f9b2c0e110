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
use views::endpoints::{
    CancelRepair, DescribeStripe, ENDPOINTS, Endpoint, GetOpenApi, GetRepair, ListContradictions, Method,
    QueueRepair, Right,
};

use super::asking::failure;
use super::{no_such_method, no_such_path};
use crate::incoming::{Events, Incoming};
use crate::metrics;

/// The members that have sent requests, with the expiry of their certificates.
pub(super) struct Members {
    events: Events,
    known: Mutex<BTreeMap<Role, SystemTime>>,
}

impl Members {
    pub(super) fn new(events: Events) -> Arc<Self> {
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
    if let Some(expired) = expired_certificate(&caller, SystemTime::now()) {
        return expired;
    }
    members.note(&caller).await;
    let path = request.extensions().get::<MatchedPath>().map(|path| path.as_str().to_owned());
    match verdict(caller.role.as_ref(), request.method(), path.as_deref()) {
        Verdict::Permitted => return next.run(request).await,
        Verdict::NoSuchPath => return no_such_path(&request),
        Verdict::NoSuchMethod => return no_such_method(&request),
        Verdict::Refused => {}
    }
    let role = caller.role.map_or_else(|| "of no known role".to_owned(), |role| format!("that of {role}"));
    // Not in the audit: a member without rights could push everything else out of it.
    // A known method, and the path of the endpoint without parameters: one member then causes few different lines, and
    // the log writes each of them once in ten seconds.
    let address = caller.address;
    let method = method_of(request.method()).map_or("another method", |_| request.method().as_str());
    tracing::warn!(%address, method, path, "refused a request: the certificate is {role}");
    let error = format!("this certificate is {role} and does not permit this request");
    let next_step =
        "use another certificate (mend --as NAME); docs/reference/roles.md lists what each role may do";
    failure(StatusCode::FORBIDDEN, error, next_step.into())
}

/// Refuses a caller whose certificate has expired since the handshake. Its connection is about to be closed.
fn expired_certificate(caller: &Caller, now: SystemTime) -> Option<Response> {
    let expired = now.duration_since(caller.expires?).ok()?;
    let role = caller.role.as_ref().map_or_else(|| "this member".to_owned(), Role::to_string);
    let error = format!("the certificate of {role} expired {} s ago", expired.as_secs());
    let next_step = "run `mend renew` on the machine with ca.key, and connect with the new certificate";
    Some(failure(StatusCode::UNAUTHORIZED, error, next_step.into()))
}

/// Whether a request may be carried out.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Permitted,
    Refused,
    /// No endpoint has the path.
    NoSuchPath,
    /// No endpoint with the path has the method.
    NoSuchMethod,
}

/// Decides about a request by the path of its endpoint. Only requests to a known endpoint are ever permitted.
fn verdict(role: Option<&Role>, method: &axum::http::Method, path: Option<&str>) -> Verdict {
    let Some(role) = role else { return Verdict::Refused };
    let knows_the_api = !matches!(role, Role::Monitor(_) | Role::Coordinator);
    let refused = |verdict| if knows_the_api { verdict } else { Verdict::Refused };
    let Some(path) = path else { return refused(Verdict::NoSuchPath) };
    let Some(method) = method_of(method) else { return refused(Verdict::NoSuchMethod) };
    if metrics::PATHS.contains(&path) {
        return match (role, method) {
            (Role::Coordinator, _) => Verdict::Refused,
            (_, Method::Get) => Verdict::Permitted,
            _ => Verdict::NoSuchMethod,
        };
    }
    match ENDPOINTS.iter().find(|&&(of, at, _)| (of, at) == (method, path)) {
        Some(&(method, path, right)) if permits(role, method, path, right) => Verdict::Permitted,
        Some(_) => Verdict::Refused,
        None => refused(Verdict::NoSuchMethod),
    }
}

/// Returns the method of the endpoint that a request reaches. The handlers of `GET` also answer `HEAD`.
fn method_of(method: &axum::http::Method) -> Option<Method> {
    use axum::http::Method as Http;
    let methods = [
        (Http::GET, Method::Get),
        (Http::HEAD, Method::Get),
        (Http::POST, Method::Post),
        (Http::PUT, Method::Put),
        (Http::PATCH, Method::Patch),
        (Http::DELETE, Method::Delete),
    ];
    methods.into_iter().find(|(http, _)| http == method).map(|(_, method)| method)
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use axum::body::to_bytes;
    use axum::http::Method as Http;

    use super::*;

    /// The roles, each with the rights that `docs/reference/roles.md` states, other than those of plug-ins.
    fn roles() -> [(Role, &'static [Right]); 8] {
        let name = || "x".parse().unwrap();
        let all = &[Right::Read, Right::Store, Right::Operate, Right::Administer, Right::Describe];
        [
            (Role::Client(name()), &[Right::Read, Right::Store]),
            (Role::Operator(name()), &[Right::Read, Right::Operate]),
            (Role::Admin(name()), all),
            (Role::default_client(), all),
            (Role::Helper(name()), &[Right::Read]),
            (Role::Monitor(name()), &[]),
            (Role::Plugin(name()), &[]),
            (Role::Coordinator, &[]),
        ]
    }

    fn http(method: Method) -> Http {
        [Http::GET, Http::POST, Http::PUT, Http::PATCH, Http::DELETE]
            .into_iter()
            .find(|http| method_of(http) == Some(method))
            .unwrap()
    }

    #[test]
    fn each_role_may_use_the_endpoints_of_its_rights_with_head_as_with_get() {
        for (role, rights) in roles() {
            for &(method, path, right) in ENDPOINTS {
                let said = verdict(Some(&role), &http(method), Some(path));
                let is_for_plugins = FOR_PLUGINS.contains(&(method, path));
                let is_permitted = match role {
                    Role::Plugin(_) => is_for_plugins,
                    Role::Helper(_) => rights.contains(&right) && method == Method::Get,
                    _ => rights.contains(&right),
                };
                assert_eq!(said == Verdict::Permitted, is_permitted, "{role}: {method:?} {path}: {said:?}");
                let head = verdict(Some(&role), &Http::HEAD, Some(path));
                let get = verdict(Some(&role), &Http::GET, Some(path));
                assert_eq!(head, get, "{role}: {path}");
                assert_eq!(verdict(None, &http(method), Some(path)), Verdict::Refused);
            }
        }
    }

    #[tokio::test]
    async fn an_expired_certificate_is_refused_with_its_role() {
        let expires = SystemTime::UNIX_EPOCH + Duration::from_secs(1000);
        let role = Some(Role::Operator("olga".parse().unwrap()));
        let caller = Caller { role, expires: Some(expires), address: [127, 0, 0, 1].into() };
        assert!(expired_certificate(&caller, expires - Duration::from_secs(1)).is_none());
        let refusal = expired_certificate(&caller, expires + Duration::from_secs(3)).unwrap();
        assert_eq!(refusal.status(), StatusCode::UNAUTHORIZED);
        let body = to_bytes(refusal.into_body(), usize::MAX).await.unwrap();
        let text = String::from_utf8(body.to_vec()).unwrap();
        assert!(text.contains("certificate of operator olga expired 3 s ago"), "{text}");
        assert!(text.contains("mend renew"), "{text}");
    }

    #[test]
    fn requests_to_unknown_endpoints_reach_no_handler() {
        for (role, _) in roles() {
            for (method, path) in [
                (Http::OPTIONS, Some("/v1/files")),
                (Http::PUT, Some("/v1/status")),
                (Http::HEAD, Some("/v1/puts")),
                (Http::GET, Some("/v1/secret")),
                (Http::TRACE, Some("/metrics")),
                (Http::POST, Some("/metrics")),
                (Http::HEAD, None),
            ] {
                let said = verdict(Some(&role), &method, path);
                assert_ne!(said, Verdict::Permitted, "{role}: {method} {path:?}");
            }
            for path in metrics::PATHS {
                for method in [Http::GET, Http::HEAD] {
                    let said = verdict(Some(&role), &method, Some(path));
                    assert_eq!(said == Verdict::Permitted, role != Role::Coordinator, "{role}: {path}");
                }
            }
        }
    }
}
