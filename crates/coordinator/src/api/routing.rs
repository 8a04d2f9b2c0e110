//! Mounts the endpoints of [`views::endpoints`]: parses a request's parameter, query and body, and answers
//! the request with the result of a command.

use std::future::Future;
use std::time::Duration;

use axum::extract::rejection::{JsonRejection, PathRejection, QueryRejection};
use axum::extract::{ConnectInfo, DefaultBodyLimit, FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::HeaderMap;
use axum::http::request::Parts;
use axum::response::IntoResponse;
use axum::routing::{MethodFilter, on};
use axum::{Json, Router};
use control::{Command, Reply};
use tokio::time::timeout;
use views::endpoints::{BeginPut, Endpoint, ExplainPlan, GetEvents, Method, PathParameter, RequestBody};

use super::asking::{ApiError, Asking, Kind};
use super::auditing::Audited;
use serving::Caller;

/// Maximum size of a request body in bytes.
pub(super) const REQUEST_BYTES: usize = 64 << 10;
/// Timeout for receiving the body of a request.
const REQUEST_LIMIT: Duration = Duration::from_secs(10);

/// A parsed request to an endpoint.
pub(super) struct Asked<E: Endpoint> {
    pub core: Asking,
    pub caller: Caller,
    pub parameter: E::Parameter,
    pub query: E::Query,
    pub body: E::Body,
    pub headers: HeaderMap,
}

/// The mounted endpoints.
#[derive(Default)]
pub(super) struct Routes {
    router: Router<Asking>,
    mounted: Vec<(Method, &'static str)>,
}

impl Routes {
    /// Mounts an endpoint that a single command answers.
    pub(super) fn on<E: Endpoint + 'static, C: Into<Command> + 'static>(
        self,
        command: fn(Asked<E>, Reply<E::Answer>) -> C,
    ) -> Self {
        self.by::<E, _, _>(move |asked: Asked<E>| async move {
            let core = asked.core.clone();
            core.ask(|reply| command(asked, reply)).await
        })
    }

    /// Mounts an endpoint with a handler function.
    pub(super) fn by<E, F, A>(mut self, answer: F) -> Self
    where
        E: Endpoint + 'static,
        F: Fn(Asked<E>) -> A + Clone + Send + Sync + 'static,
        A: Future<Output: IntoResponse> + Send + 'static,
    {
        let handler = move |asked: Asked<E>| {
            let audited = Audited::begin(&asked);
            let answering = answer(asked);
            async move {
                let Some(audited) = audited else { return answering.await.into_response() };
                // If the caller disconnects, this future is dropped, perhaps after its command was sent. The task
                // records the command nevertheless.
                let recording =
                    tokio::spawn(async move { audited.end(answering.await.into_response()).await });
                recording.await.expect("answering does not panic")
            }
        };
        self.router = self.router.route(E::PATH, on(filter(E::METHOD), handler));
        self.mounted.push((E::METHOD, E::PATH));
        self
    }

    pub(super) fn router(self) -> Router<Asking> {
        self.router.layer(DefaultBodyLimit::max(REQUEST_BYTES))
    }

    /// Returns the method and path of each mounted endpoint.
    #[cfg(test)]
    pub(super) fn mounted(&self) -> &[(Method, &'static str)] {
        &self.mounted
    }
}

fn filter(method: Method) -> MethodFilter {
    match method {
        Method::Get => MethodFilter::GET,
        Method::Post => MethodFilter::POST,
        Method::Put => MethodFilter::PUT,
        Method::Patch => MethodFilter::PATCH,
        Method::Delete => MethodFilter::DELETE,
    }
}

impl<E: Endpoint> FromRequest<Asking> for Asked<E> {
    type Rejection = ApiError;

    async fn from_request(request: Request, core: &Asking) -> Result<Self, ApiError> {
        let (mut parts, body) = request.into_parts();
        let parameter = parameter::<E>(&mut parts, core).await?;
        let unreadable = |rejection: QueryRejection| ApiError::Query { detail: rejection.body_text() };
        let query = Query::<E::Query>::from_request_parts(&mut parts, core).await.map_err(unreadable)?.0;
        let caller = parts.extensions.get::<ConnectInfo<Caller>>().expect("each connection has a caller");
        let (caller, headers) = (caller.0.clone(), parts.headers.clone());
        let body = match E::Body::ABSENT {
            Some(absent) => absent,
            None => body_of(Request::from_parts(parts, body), core).await?,
        };
        let core = core.in_turn(&caller, kind::<E>()).await?;
        Ok(Self { core, caller, parameter, query, body, headers })
    }
}

/// Returns the kind of the requests to an endpoint, which decides how they are limited.
fn kind<E: Endpoint>() -> Kind {
    match (E::METHOD, E::PATH) {
        (GetEvents::METHOD, GetEvents::PATH) => Kind::Stream,
        (BeginPut::METHOD, BeginPut::PATH) => Kind::Put,
        (Method::Get, _) | (ExplainPlan::METHOD, ExplainPlan::PATH) => Kind::Read,
        _ => Kind::Change,
    }
}

/// Parses the parameter in a request's path.
async fn parameter<E: Endpoint>(parts: &mut Parts, core: &Asking) -> Result<E::Parameter, ApiError> {
    let text = match E::PATH.contains('{') {
        true => {
            let path = Path::<String>::from_request_parts(parts, core).await;
            let unreadable = |rejection: PathRejection| ApiError::Path { detail: rejection.body_text() };
            Some(path.map_err(unreadable)?.0)
        }
        false => None,
    };
    E::Parameter::read(text).map_err(ApiError::NotANumber)
}

async fn body_of<T: RequestBody>(request: Request, core: &Asking) -> Result<T, ApiError> {
    match timeout(REQUEST_LIMIT, Json::<T>::from_request(request, core)).await {
        Ok(Ok(Json(body))) => Ok(body),
        Ok(Err(rejection)) => Err(unreadable(&rejection)),
        Err(_) => Err(ApiError::SlowBody { limit: REQUEST_LIMIT }),
    }
}

fn unreadable(rejection: &JsonRejection) -> ApiError {
    ApiError::Body { detail: rejection.body_text() }
}

#[cfg(test)]
mod tests {
    use views::endpoints::{GetRepair, PauseRepair};

    use super::*;

    #[test]
    fn requests_that_change_nothing_are_limited_as_reads() {
        assert_eq!([kind::<GetRepair>(), kind::<ExplainPlan>()], [Kind::Read; 2]);
        assert_eq!(kind::<GetEvents>(), Kind::Stream);
        assert_eq!([kind::<BeginPut>(), kind::<PauseRepair>()], [Kind::Put, Kind::Change]);
    }
}
