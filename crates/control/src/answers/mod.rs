//! The API's views, computed from a read-only view of all state machines.

pub(crate) mod conditions;
mod explain;
pub(crate) mod gone;
pub(crate) mod metrics;
pub(crate) mod nodes;
pub(crate) mod repairs;
pub(crate) mod room;
pub(crate) mod safety;
pub(crate) mod status;
pub(crate) mod stripes;
pub(crate) mod unreadable;

use crate::conditions::Conditions;
use crate::facts::Facts;
use crate::history::History;
use crate::jobs::Jobs;
use crate::repairs::Repairs;
use crate::scrub::state::Scrubs;

/// A read-only view of all state machines.
#[derive(Clone, Copy)]
pub(crate) struct Answers<'a> {
    pub facts: Facts<'a>,
    pub jobs: &'a Jobs,
    pub repairs: &'a Repairs,
    pub scrub: &'a Scrubs,
    pub history: &'a History,
    pub conditions: &'a Conditions,
}
