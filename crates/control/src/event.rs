//! Events: the input of the state machine.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use cluster::{Network, Role};
use repair::wire::control::FromNode;
use store_api::{Done, OpenError, StoreChange, StoreError};

use crate::commands::Command;
use crate::effect::ConnectionId;

/// The time of an event, by two clocks.
#[derive(Clone, Copy, Debug, Default)]
pub struct Now {
    /// The time since the start of the coordinator. Decisions use this clock.
    pub since_start: Duration,
    /// Milliseconds since 1970, for people and for records.
    pub unix_ms: u64,
}

/// An input of the control plane.
#[derive(Debug)]
#[allow(missing_docs, reason = "the field names are self-explanatory")]
pub enum Event {
    /// A member has registered.
    Joined { connection: ConnectionId, role: Role, hello: Box<FromNode> },
    /// A registered member has sent a message.
    Said { connection: ConnectionId, message: Box<FromNode> },
    /// A connection has ended.
    Left { connection: ConnectionId, why: String },
    /// The storage has carried out the write with this number.
    Stored { number: u64, done: Done },
    /// The storage has rejected the write with this number; nothing has changed.
    Failed { number: u64, error: StoreError },
    /// The result of a check whether the storage works again after a fault.
    Recovered(Result<Vec<StoreChange>, OpenError>),
    /// The catalog was copied, or why that failed.
    Copied(Result<(), String>),
    /// Another program has changed the store.
    Changed(Vec<StoreChange>),
    /// A member has shown a certificate that expires at this time.
    Certificate { role: Role, expires: SystemTime },
    /// The reloaded configuration requires encrypted data edges.
    EncryptEdges,
    /// The reloaded configuration has this network.
    Network(Box<Network>),
    /// The reloaded configuration lists these helpers.
    Listed(BTreeSet<String>),
    /// A client has sent a request to the API.
    Asked(Box<Command>),
}

impl Event {
    /// Creates the event for the result of a write.
    pub fn of_write(number: u64, result: Result<Done, StoreError>) -> Self {
        match result {
            Ok(done) => Self::Stored { number, done },
            Err(error) => Self::Failed { number, error },
        }
    }
}
