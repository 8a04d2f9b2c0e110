//! Records requests that change something, with the caller and the result.
//!
//! Some changes take effect before the catalog has recorded them, so that they work while the catalog's disk fails or
//! hangs. The storage records in order, so the record of the request tells whether the change is recorded, too. If it is
//! not, the answer says so in a header.

use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::http::HeaderValue;
use axum::response::Response;
use cluster::Role;
use control::ClusterCommand;
use serde::Serialize;
use serde_json::{Map, Value};
use tokio::time::timeout;
use views::endpoints::{
    AcceptCatalog, CancelRepair, ChangeSettings, EndMaintenance, Endpoint, Maintain, Method, Mute,
    PathParameter, PauseRepair, ResumeRepair, StopDrain, Unmute,
};
use views::{AuditedRequest, ErrorBody};

use super::asking::Asking;
use super::routing::Asked;

/// The largest text that is recorded: of a path, of arguments, or of a reason.
const MOST_TEXT_BYTES: usize = 4096;
/// How long an answer waits for its record.
const RECORD_LIMIT: Duration = Duration::from_secs(1);
/// Requests that are not recorded although they are not `GET`: puts of new files are the store's daily work, plans change
/// nothing, and the history has its reports with their callers.
const NOT_RECORDED: [&str; 3] = ["/v1/puts", "/v1/plans", "/v1/history"];

/// Changes that take effect before they are recorded. Other changes that outlast a restart are recorded when they are
/// answered.
const IN_EFFECT_FIRST: [(Method, &str); 9] = [
    (ChangeSettings::METHOD, ChangeSettings::PATH),
    (Mute::METHOD, Mute::PATH),
    (Unmute::METHOD, Unmute::PATH),
    (Maintain::METHOD, Maintain::PATH),
    (EndMaintenance::METHOD, EndMaintenance::PATH),
    (StopDrain::METHOD, StopDrain::PATH),
    (PauseRepair::METHOD, PauseRepair::PATH),
    (ResumeRepair::METHOD, ResumeRepair::PATH),
    (CancelRepair::METHOD, CancelRepair::PATH),
];
/// The header of the answer to a change that is in effect, but not recorded. The client knows the same name.
const UNRECORDED: &str = "mend-unrecorded";

/// A request that is recorded once it is answered.
pub(super) struct Audited {
    core: Asking,
    request: AuditedRequest,
    /// Whether the change takes effect before it is recorded.
    in_effect_first: bool,
}

impl Audited {
    /// Notes a request, if it may change something. Requests of plug-ins are repairs of their own stripes, which the
    /// history has.
    pub(super) fn begin<E: Endpoint>(asked: &Asked<E>) -> Option<Self> {
        if E::METHOD == Method::Get || matches!(asked.caller.role, Some(Role::Plugin(_))) {
            return None;
        }
        let role = asked.caller.role.as_ref();
        let mut arguments = fields(&asked.body);
        // A put that may replace a file may destroy data, as `DELETE` does.
        let is_work = NOT_RECORDED.iter().any(|path| E::PATH.starts_with(path));
        if is_work && !arguments.contains_key("replace") {
            return None;
        }
        arguments.extend(fields(&asked.query));
        let in_effect_first = is_in_effect_first(E::METHOD, E::PATH, &arguments);
        let request = AuditedRequest {
            member: role.map_or_else(|| "of no known role".to_owned(), Role::to_string),
            address: asked.caller.address.to_string(),
            request: bounded(format!("{} {}", method(E::METHOD), path(E::PATH, asked.parameter.text()))),
            arguments: bounded_value(arguments),
            status: 0,
            error: None,
        };
        Some(Self { core: asked.core.clone(), request, in_effect_first })
    }

    /// Records the request with its result. Returns the answer, with a header if it reports a change that is in effect, but
    /// not recorded.
    pub(super) async fn end(self, answer: Response) -> Response {
        let Self { core, mut request, in_effect_first } = self;
        request.status = answer.status().as_u16();
        let is_done = answer.status().is_success();
        let mut answer = match is_done {
            true => answer,
            false => {
                let (answer, reason) = refusal(answer).await;
                request.error = reason.map(bounded);
                answer
            }
        };
        // The caller is answered once the record is durable, or if that takes long. The turn may belong to a long answer
        // that is not sent yet, and limits how fast a member adds records while the disk hangs.
        if !record(&core, request).await && is_done && in_effect_first {
            answer.headers_mut().insert(UNRECORDED, HeaderValue::from_static("true"));
        }
        answer
    }
}

/// Records a request in the audit. Returns whether the record is durable.
async fn record(core: &Asking, request: AuditedRequest) -> bool {
    let recorded = core.value_in_turn(|reply| ClusterCommand::NoteAudit(Box::new(request), reply));
    match timeout(RECORD_LIMIT, recorded).await {
        Ok(Ok(())) => return true,
        Ok(Err(error)) => tracing::warn!(%error, "cannot record a request in the audit"),
        Err(_) => tracing::warn!("recording a request in the audit takes long"),
    }
    false
}

/// Whether a change takes effect before it is recorded. An accepted catalog is recorded first, a rejected helper is not.
fn is_in_effect_first(method: Method, path: &str, arguments: &Map<String, Value>) -> bool {
    let is_rejection = path == AcceptCatalog::PATH && arguments.contains_key("reject");
    is_rejection || IN_EFFECT_FIRST.contains(&(method, path))
}

/// Returns the fields of a body or a query that the request has set.
fn fields(of: &impl Serialize) -> Map<String, Value> {
    let is_set = |value: &Value| match value {
        Value::Null | Value::Bool(false) => false,
        Value::Array(list) => !list.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
        _ => true,
    };
    match serde_json::to_value(of) {
        Ok(Value::Object(fields)) => fields.into_iter().filter(|(_, value)| is_set(value)).collect(),
        _ => Map::new(),
    }
}

/// Returns the fields as a JSON object, as text if they are too long, or as null if there are none.
fn bounded_value(fields: Map<String, Value>) -> Value {
    if fields.is_empty() {
        return Value::Null;
    }
    let value = Value::Object(fields);
    let text = value.to_string();
    if text.len() <= MOST_TEXT_BYTES { value } else { Value::String(bounded(text)) }
}

/// Cuts a text that is too long.
fn bounded(mut text: String) -> String {
    if text.len() > MOST_TEXT_BYTES {
        text.truncate(text.floor_char_boundary(MOST_TEXT_BYTES));
        text.push('…');
    }
    text
}

fn method(method: Method) -> &'static str {
    match method {
        Method::Get => "GET",
        Method::Post => "POST",
        Method::Put => "PUT",
        Method::Patch => "PATCH",
        Method::Delete => "DELETE",
    }
}

/// Fills in the parameter of a path.
fn path(path: &str, parameter: Option<String>) -> String {
    match (path.split_once('{'), parameter) {
        (Some((before, rest)), Some(parameter)) => {
            format!("{before}{parameter}{}", rest.split_once('}').map_or("", |(_, after)| after))
        }
        _ => path.to_owned(),
    }
}

/// Reads the reason from a refusal. Returns the refusal unchanged.
async fn refusal(answer: Response) -> (Response, Option<String>) {
    let (head, body) = answer.into_parts();
    let bytes = to_bytes(body, usize::MAX).await.expect("a refusal is in memory");
    let reason = serde_json::from_slice::<ErrorBody>(&bytes).ok().map(|body| body.error);
    (Response::from_parts(head, Body::from(bytes)), reason)
}

#[cfg(test)]
mod tests {
    use axum::http::StatusCode;

    use super::*;
    use crate::api::asking::failure;

    #[test]
    fn paths_are_filled_in() {
        assert_eq!(path("/v1/nodes/{node}/drain", Some("h3".into())), "/v1/nodes/h3/drain");
        assert_eq!(path("/v1/caps", None), "/v1/caps");
    }

    #[test]
    fn long_arguments_are_cut() {
        let homes = serde_json::json!({ "homes": "é".repeat(MOST_TEXT_BYTES) });
        let Value::String(text) = bounded_value(fields(&homes)) else { panic!("it is cut") };
        assert!(text.len() <= MOST_TEXT_BYTES + 3 && text.ends_with("é…"), "{}", text.len());
        assert_eq!(bounded("short".to_owned()), "short");
    }

    #[tokio::test]
    async fn a_long_refusal_is_returned_unchanged() {
        let error = format!("there is no file `{}`", "x".repeat(100 << 10));
        let long = failure(StatusCode::NOT_FOUND, error.clone(), "list the files".to_owned());
        let (answer, reason) = refusal(long).await;
        assert_eq!(reason.as_ref(), Some(&error));
        let body = to_bytes(answer.into_body(), usize::MAX).await.unwrap();
        let body: ErrorBody = serde_json::from_slice(&body).unwrap();
        assert_eq!((body.error, body.next_step), (error, "list the files".to_owned()));
    }

    #[test]
    fn changes_that_are_recorded_first_are_known_from_others() {
        use views::endpoints::{ChangeCaps, RemoveFile};
        let is = |method, path| is_in_effect_first(method, path, &Map::new());
        assert!(
            is(PauseRepair::METHOD, PauseRepair::PATH) && is(EndMaintenance::METHOD, EndMaintenance::PATH)
        );
        assert!(!is(RemoveFile::METHOD, RemoveFile::PATH) && !is(ChangeCaps::METHOD, ChangeCaps::PATH));
        let rejection = fields(&serde_json::json!({ "reject": "h3" }));
        assert!(is_in_effect_first(AcceptCatalog::METHOD, AcceptCatalog::PATH, &rejection));
        assert!(!is(AcceptCatalog::METHOD, AcceptCatalog::PATH));
    }

    #[test]
    fn only_fields_that_are_set_are_recorded() {
        let body =
            serde_json::json!({ "all": true, "block": null, "requestors": [], "dry_run": false, "n": 0 });
        assert_eq!(Value::Object(fields(&body)), serde_json::json!({ "all": true, "n": 0 }));
        assert!(fields(&()).is_empty());
    }
}
