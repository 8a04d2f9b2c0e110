//! Sends commands to the control plane and encodes the answers as JSON. An error's JSON includes the next
//! step for the user.

use std::marker::PhantomData;
use std::time::Duration;

use axum::Json;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use store_api::OpenError;
use tokio::sync::oneshot;
use views::ErrorBody;

use crate::incoming::{Events, Incoming};
use control::{Command, ErrorKind, Reply, RequestError};

/// A handle for sending commands to the control plane.
#[derive(Clone)]
pub(crate) struct Asking {
    events: Events,
}

pub(crate) type Answer<T> = Result<Encoded<T>, ApiError>;

/// An answer encoded as JSON. Encoding a large answer takes long, so the encoding runs on a blocking thread.
pub(crate) struct Encoded<T> {
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
    pub(crate) fn new(events: Events) -> Self {
        Self { events }
    }

    pub(crate) async fn ask<T: Serialize + Send + 'static, C: Into<Command>>(
        &self,
        command: impl FnOnce(Reply<T>) -> C,
    ) -> Answer<T> {
        Ok(Encoded::new(self.value(command).await?).await)
    }

    /// Sends a command and returns the answer as a value.
    pub(crate) async fn value<T: Send + 'static, C: Into<Command>>(
        &self,
        command: impl FnOnce(Reply<T>) -> C,
    ) -> Result<T, ApiError> {
        let request = self.events.next_request();
        let (to, answer) = oneshot::channel();
        let command = Box::new(command(Reply::to(request)).into());
        let asked = Incoming::Asked { request, command, to };
        self.events.send(asked).await.map_err(|_| ApiError::Stopping)?;
        let answer = answer.await.map_err(|_| ApiError::Stopping)?;
        Ok(answer.take()?)
    }
}

/// Why the API rejects a request.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ApiError {
    #[error(transparent)]
    Request(#[from] RequestError),
    #[error("cannot read the body of the request: {detail}")]
    Body { detail: String },
    #[error("the body of the request did not arrive within {} s", limit.as_secs())]
    SlowBody { limit: Duration },
    #[error("`{0}` is not a number")]
    NotANumber(String),
    #[error("cannot copy the catalog: {0}")]
    Copy(#[source] OpenError),
    #[error("the coordinator is stopping")]
    Stopping,
}

impl ApiError {
    fn status(&self) -> StatusCode {
        match self {
            Self::Request(error) => status_of(error.kind()),
            Self::Body { .. } | Self::SlowBody { .. } | Self::NotANumber(_) => StatusCode::BAD_REQUEST,
            Self::Copy(_) => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Stopping => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    fn next_step(&self) -> String {
        let step = match self {
            Self::Request(error) => return error.next_step(),
            Self::Body { .. } | Self::SlowBody { .. } | Self::NotANumber(_) => {
                "correct the request; `mend openapi` describes every request"
            }
            Self::Copy(_) => "check the coordinator's log and disk",
            Self::Stopping => "connect again when the coordinator is running",
        };
        step.to_owned()
    }
}

fn status_of(kind: ErrorKind) -> StatusCode {
    match kind {
        ErrorKind::NotFound => StatusCode::NOT_FOUND,
        ErrorKind::Invalid => StatusCode::BAD_REQUEST,
        ErrorKind::Conflict => StatusCode::CONFLICT,
        ErrorKind::InUse => StatusCode::LOCKED,
        ErrorKind::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        ErrorKind::Internal => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let answer = failure(self.status(), self.to_string(), self.next_step());
        match self {
            Self::Request(RequestError::Settling { .. }) => {
                ([(header::RETRY_AFTER, "1")], answer).into_response()
            }
            _ => answer,
        }
    }
}

pub(crate) fn failure(status: StatusCode, error: String, next_step: String) -> Response {
    (status, Json(ErrorBody { error, next_step })).into_response()
}
