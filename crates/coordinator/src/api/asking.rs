//! Sends commands to the control plane and encodes the answers as JSON. An error's JSON includes the next
//! step for the user.

use std::convert::Infallible;
use std::marker::PhantomData;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use cluster::Role;
use serde::Serialize;
use serving::Caller;
use store_api::OpenError;
use tokio::sync::oneshot;
use views::ErrorBody;

pub(crate) use super::answers::Kind;
use super::answers::{self, Account, Answers, NoRoom};
use super::charging::Charged;
use super::request_memory::Crowded;
use crate::incoming::{Events, Incoming};
use crate::shares::Turn;
use control::{Command, ErrorKind, Reply, RequestError};

/// A handle for sending commands to the control plane.
#[derive(Clone)]
pub(crate) struct Asking {
    events: Events,
    answers: Answers,
    /// The account of a request, with its turn; without one, answers have no limit.
    account: Option<Account>,
}

pub(crate) type Answer<T> = Result<Encoded<T>, ApiError>;

/// An answer encoded as JSON. Encoding a large answer takes long, so the encoding runs on a blocking thread.
pub(crate) struct Encoded<T> {
    json: Vec<Bytes>,
    _of: PhantomData<T>,
}

impl<T> IntoResponse for Encoded<T> {
    fn into_response(self) -> Response {
        let length = self.json.iter().map(Bytes::len).sum::<usize>();
        let headers = [
            (header::CONTENT_TYPE, HeaderValue::from_static("application/json")),
            (header::CONTENT_LENGTH, HeaderValue::from(length)),
        ];
        let body = match <[Bytes; 1]>::try_from(self.json) {
            Ok([only]) => Body::from(only),
            Err(pieces) => Body::from_stream(tokio_stream::iter(pieces.into_iter().map(Ok::<_, Infallible>))),
        };
        (Extension(Charged), headers, body).into_response()
    }
}

impl Asking {
    pub(crate) fn new(events: Events) -> Self {
        Self { events, answers: Answers::default(), account: None }
    }

    /// Returns a handle for a request of this kind, once it is the caller's turn.
    ///
    /// # Errors
    /// If the caller has too many streams of events, or a change has waited too long.
    pub(crate) async fn in_turn(&self, caller: &Caller, kind: Kind) -> Result<Self, NoRoom> {
        let Some(member) = &caller.role else { return Ok(self.clone()) };
        let account = self.answers.account(member, kind);
        account.take_turn().await?;
        Ok(Self { account: Some(account), ..self.clone() })
    }

    /// Returns a member's account for an answer that is in memory.
    pub(super) fn account(&self, member: &Role) -> Account {
        self.answers.account(member, Kind::Read)
    }

    /// Charges bytes of an answer to the account.
    pub(super) fn charge(&self, bytes: Bytes) -> Result<Bytes, NoRoom> {
        answers::charge(bytes, self.account.clone())
    }

    /// Encodes an answer, and charges it to the account.
    pub(super) async fn encode<T: Serialize + Send + 'static>(&self, answer: T) -> Answer<T> {
        // The closure has a clone of the account and thereby keeps the turn, because it continues if the caller
        // disconnects.
        let account = self.account.clone();
        let encoded = tokio::task::spawn_blocking(move || answers::encode(&answer, account));
        Ok(Encoded { json: encoded.await.expect("encoding does not panic")?, _of: PhantomData })
    }

    pub(crate) async fn ask<T: Serialize + Send + 'static, C: Into<Command>>(
        &self,
        command: impl FnOnce(Reply<T>) -> C,
    ) -> Answer<T> {
        let answer = self.value(command).await?;
        self.encode(answer).await
    }

    /// Like [`value`](Self::value), for a command whose answer may take long. Meanwhile, others have the turn.
    pub(super) async fn late_value<T: Send + 'static, C: Into<Command>>(
        &self,
        command: impl FnOnce(Reply<T>) -> C,
    ) -> Result<T, ApiError> {
        if let Some(account) = &self.account {
            account.end_turn();
        }
        let answer = self.value(command).await?;
        if let Some(account) = &self.account {
            account.take_turn().await?;
        }
        Ok(answer)
    }

    /// Sends a command and returns the answer as a value. While a change waits for the storage, others have its turn.
    pub(crate) async fn value<T: Send + 'static, C: Into<Command>>(
        &self,
        command: impl FnOnce(Reply<T>) -> C,
    ) -> Result<T, ApiError> {
        let turn = self.account.as_ref().and_then(Account::turn_of_change);
        let answer = self.answer(command, turn).await?;
        if let Some(account) = &self.account {
            account.resume_turn().await;
        }
        Ok(answer)
    }

    /// Like [`value`](Self::value), but keeps the turn while the command waits for the storage.
    pub(super) async fn value_in_turn<T: Send + 'static, C: Into<Command>>(
        &self,
        command: impl FnOnce(Reply<T>) -> C,
    ) -> Result<T, ApiError> {
        self.answer(command, None).await
    }

    /// Sends a command and returns the answer. Ends the turn when the command begins to wait for the storage.
    async fn answer<T: Send + 'static, C: Into<Command>>(
        &self,
        command: impl FnOnce(Reply<T>) -> C,
        turn: Option<Turn>,
    ) -> Result<T, ApiError> {
        let request = self.events.next_request();
        let (to, answer) = oneshot::channel();
        let command = Box::new(command(Reply::to(request)).into());
        let is_read = self.account.as_ref().is_some_and(Account::is_read);
        let asked = Incoming::Asked { request, command, to, is_read, turn };
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
    #[error("cannot read the path of the request: {detail}")]
    Path { detail: String },
    #[error("cannot read the query of the request: {detail}")]
    Query { detail: String },
    #[error("cannot read the body of the request: {detail}")]
    Body { detail: String },
    #[error("the body of the request did not arrive within {} s", limit.as_secs())]
    SlowBody { limit: Duration },
    #[error("`{0}` is not a number")]
    NotANumber(String),
    #[error("cannot copy the catalog: {0}")]
    Copy(#[source] OpenError),
    #[error(transparent)]
    NoRoom(#[from] NoRoom),
    #[error(transparent)]
    Crowded(#[from] Crowded),
    #[error("the coordinator is stopping")]
    Stopping,
}

impl ApiError {
    fn status(&self) -> StatusCode {
        match self {
            Self::Request(error) => status_of(error.kind()),
            Self::Path { .. }
            | Self::Query { .. }
            | Self::Body { .. }
            | Self::SlowBody { .. }
            | Self::NotANumber(_) => StatusCode::BAD_REQUEST,
            Self::Copy(_) => StatusCode::INTERNAL_SERVER_ERROR,
            Self::NoRoom(_) | Self::Crowded(_) | Self::Stopping => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    fn next_step(&self) -> String {
        let step = match self {
            Self::Request(error) => return error.next_step(),
            Self::Path { .. }
            | Self::Query { .. }
            | Self::Body { .. }
            | Self::SlowBody { .. }
            | Self::NotANumber(_) => "correct the request; `mend openapi` describes every request",
            Self::Copy(_) => "check the coordinator's log and disk",
            Self::NoRoom(why) => why.next_step(),
            Self::Crowded(why) => why.next_step(),
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
            Self::Request(RequestError::Settling { .. }) | Self::NoRoom(_) | Self::Crowded(_) => {
                ([(header::RETRY_AFTER, "1")], answer).into_response()
            }
            _ => answer,
        }
    }
}

pub(crate) fn failure(status: StatusCode, error: String, next_step: String) -> Response {
    (status, Json(ErrorBody { error, next_step })).into_response()
}
