//! Effects of the control plane, and the addresses of answers.

use std::any::Any;
use std::marker::PhantomData;

use repair::wire::control::ToNode;

use crate::ConnectionId;
use crate::error::RequestError;

/// A task of the driver; effects are carried out in order.
#[derive(Debug)]
#[allow(missing_docs, reason = "the fields say no more than their names")]
pub enum Effect {
    /// Sends a message on a connection. If the connection cannot take it, the driver reports the connection
    /// as left.
    Send { connection: ConnectionId, message: Box<ToNode> },
    /// Closes a connection once what was sent before is written.
    Close { connection: ConnectionId },
    /// Answers a request of the API.
    Answer(Answer),
}

/// A request of the API, unique in the life of the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestId(pub u64);

/// The request that an answer of this type goes to.
#[derive(Debug)]
pub struct Reply<T> {
    request: RequestId,
    _answer: PhantomData<fn() -> T>,
}

impl<T: Send + 'static> Reply<T> {
    /// A reply to this request.
    pub fn to(request: RequestId) -> Self {
        Self { request, _answer: PhantomData }
    }

    /// The answer to the request.
    pub fn with(self, result: Result<T, RequestError>) -> Answer {
        Answer { request: self.request, result: result.map(|value| Box::new(value) as Box<dyn Any + Send>) }
    }
}

/// The answer to a request.
#[derive(Debug)]
pub struct Answer {
    /// The request that it answers.
    pub request: RequestId,
    result: Result<Box<dyn Any + Send>, RequestError>,
}

impl Answer {
    /// The result, of the type that the request's [`Reply`] has.
    pub fn take<T: 'static>(self) -> Result<T, RequestError> {
        self.result.map(|value| *value.downcast().expect("an answer has the type of its reply"))
    }
}
