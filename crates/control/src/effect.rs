//! Effects of the control plane, and the typed destinations of API answers.

use std::any::Any;
use std::marker::PhantomData;

use repair::wire::control::ToNode;

use crate::error::RequestError;

/// A connection's number, unique within the life of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConnectionId(pub u64);

/// An instruction to the driver, which carries out effects in order.
#[derive(Debug)]
#[allow(missing_docs, reason = "the field names are self-explanatory")]
pub enum Effect {
    /// Sends a message on a connection. If the connection cannot accept it, the driver reports the connection
    /// as ended.
    Send { connection: ConnectionId, message: Box<ToNode> },
    /// Closes a connection after all earlier messages are written.
    Close { connection: ConnectionId },
    /// Answers an API request.
    Answer(Answer),
}

/// An API request's number, unique within the life of the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestId(pub u64);

/// Ties an answer of type `T` to the request that it belongs to.
#[derive(Debug)]
pub struct Reply<T> {
    request: RequestId,
    _answer: PhantomData<fn() -> T>,
}

impl<T: Send + 'static> Reply<T> {
    /// Creates the reply to this request.
    pub fn to(request: RequestId) -> Self {
        Self { request, _answer: PhantomData }
    }

    /// Makes the answer to the request.
    pub fn with(self, result: Result<T, RequestError>) -> Answer {
        Answer { request: self.request, result: result.map(|value| Box::new(value) as Box<dyn Any + Send>) }
    }
}

/// The answer to an API request.
#[derive(Debug)]
pub struct Answer {
    /// The request to which this is the answer.
    pub request: RequestId,
    result: Result<Box<dyn Any + Send>, RequestError>,
}

impl Answer {
    /// Returns the result, whose type is that of the request's [`Reply`].
    pub fn take<T: 'static>(self) -> Result<T, RequestError> {
        self.result.map(|value| *value.downcast().expect("an answer has the type of its reply"))
    }
}
