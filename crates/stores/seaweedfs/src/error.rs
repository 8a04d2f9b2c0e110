//! Errors of calls to masters and volume servers, in words for operators.

use std::error::Error as _;

use tonic::{Code, Status};

use crate::address::ServerAddress;

/// Why a call to a master or volume server failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum AskError {
    /// The server cannot be reached.
    #[error("{address} cannot be reached over gRPC: {why}; is it running, and is port {} open?", address.grpc())]
    Unreachable {
        /// The server that was called.
        address: ServerAddress,
        /// The system's error.
        why: String,
    },
    /// The server requires TLS.
    #[error("{address} requires TLS on its gRPC port: name the cluster's security.toml")]
    TlsNeeded {
        /// The server that was called.
        address: ServerAddress,
    },
    /// The TLS handshake failed because one side rejected the other.
    #[error(
        "{address}: the TLS handshake failed: {why}; [grpc] ca and [grpc.client] of security.toml must be \
         this cluster's"
    )]
    Tls {
        /// The server that was called.
        address: ServerAddress,
        /// The TLS error.
        why: String,
    },
    /// The call timed out.
    #[error("{address} did not answer {call} in time")]
    TimedOut {
        /// The server that was called.
        address: ServerAddress,
        /// The call.
        call: &'static str,
    },
    /// The master is not the leader.
    #[error("{address} is not the leading master, and {}", leader.as_ref().map_or_else(
        || "does not know the leader; the masters are electing one".to_owned(), |leader| format!("{leader} is")))]
    NotLeader {
        /// The master that was called.
        address: ServerAddress,
        /// The leader, if the master knows it.
        leader: Option<ServerAddress>,
    },
    /// Another client holds the lock.
    #[error("the cluster is locked: {holder}")]
    Locked {
        /// The master's description of the holder.
        holder: String,
    },
    /// The server does not accept calls from this address.
    #[error("{address} refuses {call} from here: {why}; add this machine to its -whiteList")]
    NotAllowed {
        /// The server that was called.
        address: ServerAddress,
        /// The call.
        call: &'static str,
        /// The server's message.
        why: String,
    },
    /// The server does not implement the call.
    #[error("{address} does not support {call}: its version is too old; Mend was tested with 4.48")]
    OtherVersion {
        /// The server that was called.
        address: ServerAddress,
        /// The call.
        call: &'static str,
    },
    /// The server rejected the call for another reason.
    #[error("{address} refuses {call}: {why}")]
    Refused {
        /// The server that was called.
        address: ServerAddress,
        /// The call.
        call: &'static str,
        /// The server's message.
        why: String,
    },
    /// The response contains an impossible value.
    #[error("{address} answers {call} with {what}: Mend was not tested with its version")]
    Nonsense {
        /// The server that was called.
        address: ServerAddress,
        /// The call.
        call: &'static str,
        /// The impossible value.
        what: String,
    },
}

impl AskError {
    /// Maps a gRPC status to an error.
    pub(crate) fn of(address: &ServerAddress, call: &'static str, status: &Status) -> Self {
        let address = address.clone();
        let why = status.message().to_owned();
        let cause = || status.source().map_or_else(|| why.clone(), causes);
        if is_tls(status) {
            return Self::Tls { address, why: cause() };
        }
        match status.code() {
            Code::Unimplemented => Self::OtherVersion { address, call },
            Code::PermissionDenied | Code::Unauthenticated => Self::NotAllowed { address, call, why },
            Code::DeadlineExceeded | Code::Cancelled => Self::TimedOut { address, call },
            Code::Unavailable => Self::Unreachable { address, why: cause() },
            // SeaweedFS's own errors have no specific gRPC code, so they are recognised by their text.
            _ if why.contains("Not current leader") => Self::NotLeader { address, leader: None },
            _ if why.starts_with("already locked by") => Self::Locked { holder: why },
            Code::Unknown if status.source().is_some() => Self::Unreachable { address, why: cause() },
            _ => Self::Refused { address, call, why },
        }
    }

    /// Whether a new connection to the server may have another result.
    pub(crate) fn concerns_connection(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::Tls { .. } | Self::TimedOut { .. })
    }

    /// Whether another master may answer the call.
    pub(crate) fn concerns_one_master(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::NotLeader { .. } | Self::TimedOut { .. })
    }
}

/// Joins an error and its sources, outermost first, without repetitions.
pub(crate) fn causes(error: &dyn std::error::Error) -> String {
    let mut said: Vec<String> = Vec::new();
    let mut next = Some(error);
    while let Some(error) = next {
        let text = error.to_string();
        if !said.iter().any(|earlier| earlier.contains(&text)) {
            said.push(text);
        }
        next = error.source();
    }
    said.join(": ")
}

/// Whether TLS caused the error.
pub(crate) fn is_tls(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        // A TLS 1.3 alert may arrive late, when HTTP/2 reports it only as text.
        let refused = error.to_string().contains("received fatal alert");
        let inner = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        if refused || error.is::<rustls::Error>() || inner.is_some_and(|inner| inner.is::<rustls::Error>()) {
            return true;
        }
        next = error.source();
    }
    false
}
