//! One request becomes one command to the core; its answer becomes JSON, or an error that says what to do.

use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::Json;
use axum::extract::rejection::JsonRejection;
use axum::extract::{FromRequest, Request};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::failure;
use crate::incoming::Incoming;
use control::{Command, Reply, RequestId};
use control::{ErrorKind, RequestError};

/// The body of a request must come within this time.
const REQUEST_LIMIT: Duration = Duration::from_secs(10);

/// The way to the core.
#[derive(Clone)]
pub(super) struct Asking {
    events: mpsc::Sender<Incoming>,
    next: Arc<AtomicU64>,
}

pub(super) type Answer<T> = Result<Encoded<T>, ApiError>;

/// An answer as JSON, encoded where it holds nobody up: a large one takes its time.
pub(super) struct Encoded<T> {
    json: Vec<u8>,
    _of: PhantomData<T>,
}

impl<T: Serialize + Send + 'static> Encoded<T> {
    async fn new(answer: T) -> Self {
        let encoded = tokio::task::spawn_blocking(move || {
            serde_json::to_vec(&answer).expect("views have string keys and go to memory")
        });
        Self { json: encoded.await.expect("encoding does not panic"), _of: PhantomData }
    }
}

impl<T> IntoResponse for Encoded<T> {
    fn into_response(self) -> Response {
        ([(header::CONTENT_TYPE, "application/json")], self.json).into_response()
    }
}

impl Asking {
    pub(super) fn new(events: mpsc::Sender<Incoming>) -> Self {
        Self { events, next: Arc::default() }
    }

    pub(super) async fn ask<T: Serialize + Send + 'static>(
        &self,
        command: impl FnOnce(Reply<T>) -> Command,
    ) -> Answer<T> {
        Ok(Encoded::new(self.value(command).await?).await)
    }

    /// The core's own answer.
    pub(super) async fn value<T: Send + 'static>(
        &self,
        command: impl FnOnce(Reply<T>) -> Command,
    ) -> Result<T, ApiError> {
        let request = RequestId(self.next.fetch_add(1, Ordering::Relaxed));
        let (to, answer) = oneshot::channel();
        let asked = Incoming::Asked { request, command: Box::new(command(Reply::to(request))), to };
        self.events.send(asked).await.map_err(|_| ApiError(RequestError::Stopping))?;
        let answer = answer.await.map_err(|_| ApiError(RequestError::Stopping))?;
        Ok(answer.take()?)
    }
}

pub(super) struct ApiError(pub(super) RequestError);

impl From<RequestError> for ApiError {
    fn from(error: RequestError) -> Self {
        Self(error)
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let status = match self.0.kind() {
            ErrorKind::NotFound => StatusCode::NOT_FOUND,
            ErrorKind::Invalid => StatusCode::BAD_REQUEST,
            ErrorKind::Conflict => StatusCode::CONFLICT,
            ErrorKind::InUse => StatusCode::LOCKED,
            ErrorKind::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            ErrorKind::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        };
        let answer = failure(status, self.0.to_string(), self.0.next_step());
        match self.0 {
            RequestError::Settling => ([(header::RETRY_AFTER, "1")], answer).into_response(),
            _ => answer,
        }
    }
}

/// A JSON body, whose faults are told like all others.
pub(super) struct Body<T>(pub(super) T);

impl<T, S> FromRequest<S> for Body<T>
where
    Json<T>: FromRequest<S, Rejection = JsonRejection>,
    S: Send + Sync,
{
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        match timeout(REQUEST_LIMIT, Json::<T>::from_request(request, state)).await {
            Ok(Ok(Json(body))) => Ok(Self(body)),
            Ok(Err(rejection)) => Err(ApiError(RequestError::Body { detail: rejection.body_text() })),
            Err(_) => Err(ApiError(RequestError::SlowBody { limit: REQUEST_LIMIT })),
        }
    }
}

pub(super) fn number(text: &str) -> Result<u64, ApiError> {
    let malformed = |_| ApiError(RequestError::NotANumber(text.to_owned()));
    text.parse().map_err(malformed)
}
