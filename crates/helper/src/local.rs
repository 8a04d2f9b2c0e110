//! The sources and sinks of an engine: a helper's store, or the sources and sinks of a client's open
//! requests.

use std::sync::Arc;

use repair::{Assignment, Brought, Class, Refusal, Report};
use store_api::{Blocks, Sinks, Sources};

use crate::probe_blocks::ProbeBlocks;

/// The sources and sinks of an engine.
#[derive(Clone)]
pub enum Local {
    /// A helper's store, which serves all jobs.
    Store(Arc<dyn Blocks>),
    /// A client's requests, each with its own sources or sinks.
    Requests(Arc<dyn Requests>),
}

/// The open requests of a client.
pub trait Requests: Send + Sync + 'static {
    /// Returns the sources or sinks of the request `tag`, and marks the request as begun. Returns `None` if
    /// it is not open.
    fn begin(&self, tag: u64) -> Option<Ends>;
}

/// Where the data of a client's request comes from or goes to: sources for a put, sinks for a read.
#[derive(Clone)]
pub enum Ends {
    /// The blocks that a put stores.
    Sources(Arc<dyn Sources>),
    /// The destinations that a read fills.
    Sinks(Arc<dyn Sinks>),
}

impl Local {
    /// Returns the sources of an assignment's local blocks.
    pub(crate) fn sources(&self, assignment: &Assignment) -> Result<Arc<dyn Sources>, Report> {
        match self {
            Self::Store(_) if assignment.class == Class::Probe => Ok(Arc::new(ProbeBlocks)),
            Self::Store(blocks) => Ok(blocks.clone()),
            Self::Requests(requests) => match assignment.tag.and_then(|tag| requests.begin(tag)) {
                Some(Ends::Sources(sources)) => Ok(sources),
                _ => Err(not_brought(Brought::Sources)),
            },
        }
    }

    /// Returns the sinks for an assignment's deliveries.
    pub(crate) fn sinks(&self, assignment: &Assignment) -> Result<Arc<dyn Sinks>, Report> {
        match self {
            Self::Store(_) if assignment.class == Class::Probe => Ok(Arc::new(ProbeBlocks)),
            Self::Store(blocks) => Ok(blocks.clone()),
            Self::Requests(requests) => match assignment.tag.and_then(|tag| requests.begin(tag)) {
                Some(Ends::Sinks(sinks)) => Ok(sinks),
                _ => Err(not_brought(Brought::Sinks)),
            },
        }
    }

    /// Returns the store; refuses if the node has none.
    pub(crate) fn store(&self) -> Result<Arc<dyn Blocks>, Report> {
        match self {
            Self::Store(blocks) => Ok(blocks.clone()),
            Self::Requests(_) => Err(Report::Refused { why: Refusal::NoStore }),
        }
    }
}

fn not_brought(what: Brought) -> Report {
    Report::Refused { why: Refusal::NotBrought { what } }
}
