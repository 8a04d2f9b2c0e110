//! What an engine reads from and delivers to: a helper its store, a client what its requests brought along.

use std::sync::Arc;

use repair::{Assignment, Brought, Class, Refusal, Report};
use store_api::{Blocks, Sinks, Sources};

use crate::nowhere::Nowhere;

/// What an engine reads from and delivers to.
#[derive(Clone)]
pub enum Local {
    /// A store, whatever job it is.
    Store(Arc<dyn Blocks>),
    /// What each request brought along.
    Requests(Arc<dyn Requests>),
}

/// The open requests of a client.
pub trait Requests: Send + Sync + 'static {
    /// What the request with this number brought along; `None` if it is not open. From now on it counts as begun.
    fn begin(&self, tag: u64) -> Option<Ends>;
}

/// What a request brings along: a put reads, and a read delivers.
#[derive(Clone)]
pub enum Ends {
    /// The blocks that a put stores.
    Sources(Arc<dyn Sources>),
    /// The places that a read fills.
    Sinks(Arc<dyn Sinks>),
}

impl Local {
    /// Where the blocks of an assignment are opened.
    pub(crate) fn sources(&self, assignment: &Assignment) -> Result<Arc<dyn Sources>, Report> {
        match self {
            Self::Store(_) if assignment.class == Class::Probe => Ok(Arc::new(Nowhere)),
            Self::Store(blocks) => Ok(blocks.clone()),
            Self::Requests(requests) => match assignment.tag.and_then(|tag| requests.begin(tag)) {
                Some(Ends::Sources(sources)) => Ok(sources),
                _ => Err(not_brought(Brought::Sources)),
            },
        }
    }

    /// Where the deliveries of an assignment go.
    pub(crate) fn sinks(&self, assignment: &Assignment) -> Result<Arc<dyn Sinks>, Report> {
        match self {
            Self::Store(_) if assignment.class == Class::Probe => Ok(Arc::new(Nowhere)),
            Self::Store(blocks) => Ok(blocks.clone()),
            Self::Requests(requests) => match assignment.tag.and_then(|tag| requests.begin(tag)) {
                Some(Ends::Sinks(sinks)) => Ok(sinks),
                _ => Err(not_brought(Brought::Sinks)),
            },
        }
    }

    /// The store, of a node that has one.
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
