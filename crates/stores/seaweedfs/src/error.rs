//! Why a question was not answered, in the words of somebody who runs the cluster.

use std::error::Error as _;

use tonic::{Code, Status};

use crate::address::ServerAddress;

/// Why a master or a volume server did not do what it was asked.
#[derive(Clone, Debug, thiserror::Error)]
pub enum AskError {
    /// Nobody answers at the address.
    #[error("{address} cannot be reached over gRPC: {why}; is it running, and is port {} open?", address.grpc())]
    Unreachable {
        /// Who was asked.
        address: ServerAddress,
        /// What the system says.
        why: String,
    },
    /// Somebody answers, who wants TLS.
    #[error("{address} wants TLS on its gRPC port: name the cluster's security.toml")]
    TlsNeeded {
        /// Who was asked.
        address: ServerAddress,
    },
    /// TLS was tried, and one side does not accept the other.
    #[error(
        "{address}: no TLS with it: {why}; [grpc] ca and [grpc.client] of security.toml must be this cluster's"
    )]
    Tls {
        /// Who was asked.
        address: ServerAddress,
        /// What TLS says.
        why: String,
    },
    /// It took too long.
    #[error("{address} did not answer {call} in time")]
    TimedOut {
        /// Who was asked.
        address: ServerAddress,
        /// For what.
        call: &'static str,
    },
    /// The master follows another one.
    #[error("{address} is not the leader of the masters, and {}", leader.as_ref().map_or_else(
        || "does not know who is; they are electing one".to_owned(), |leader| format!("{leader} is")))]
    NotLeader {
        /// Who was asked.
        address: ServerAddress,
        /// Who leads, if it knows.
        leader: Option<ServerAddress>,
    },
    /// Somebody else has the lock.
    #[error("the cluster is locked: {holder}")]
    Locked {
        /// What the master says of who has it.
        holder: String,
    },
    /// The server does not take orders from this address.
    #[error("{address} refuses {call} from here: {why}; add this machine to its -whiteList")]
    NotAllowed {
        /// Who was asked.
        address: ServerAddress,
        /// For what.
        call: &'static str,
        /// What it says.
        why: String,
    },
    /// It does not know the question.
    #[error("{address} does not know {call}: its version is too old; Mend was tested with 4.48")]
    OtherVersion {
        /// Who was asked.
        address: ServerAddress,
        /// For what.
        call: &'static str,
    },
    /// It says no, in its own words.
    #[error("{address} refuses {call}: {why}")]
    Refused {
        /// Who was asked.
        address: ServerAddress,
        /// For what.
        call: &'static str,
        /// What it says.
        why: String,
    },
    /// It answers what cannot be.
    #[error("{address} answers {call} with {what}: it is of a version that Mend was not tested with")]
    Nonsense {
        /// Who was asked.
        address: ServerAddress,
        /// For what.
        call: &'static str,
        /// What.
        what: String,
    },
}

impl AskError {
    /// What an answer that is none means.
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
            // SeaweedFS gives its own errors no code.
            _ if why.contains("Not current leader") => Self::NotLeader { address, leader: None },
            _ if why.starts_with("already locked by") => Self::Locked { holder: why },
            Code::Unknown if status.source().is_some() => Self::Unreachable { address, why: cause() },
            _ => Self::Refused { address, call, why },
        }
    }

    /// Whether another master may answer.
    pub(crate) fn concerns_one_master(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::NotLeader { .. } | Self::TimedOut { .. })
    }
}

/// All that is known of why, from the outside in, nothing twice.
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

/// Whether it is TLS that failed.
pub(crate) fn is_tls(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        // What TLS 1.3 refuses is heard of later, when HTTP/2 has made text of it.
        let refused = error.to_string().contains("received fatal alert");
        let inner = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        if refused || error.is::<rustls::Error>() || inner.is_some_and(|inner| inner.is::<rustls::Error>()) {
            return true;
        }
        next = error.source();
    }
    false
}
