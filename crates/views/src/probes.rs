//! Measurements of links.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What is to be measured.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ProbeRequest {
    /// Helpers; all that are up if empty.
    pub nodes: Vec<String>,
    /// Whether every pair of them is measured, and what a pair carries is kept for the pair. Otherwise each sends to a few
    /// others, which tells what its own ports carry.
    pub pairs: bool,
    /// Bytes of each measurement; 32 MiB if absent.
    pub bytes: Option<u64>,
}

/// A measurement of links, running or ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ProbeView {
    /// Whether it runs.
    pub running: bool,
    /// Whether pairs are measured.
    pub pairs: bool,
    /// Bytes of each measurement.
    pub bytes: u64,
    /// Links that are still to be measured.
    pub left: u64,
    /// Links that were measured.
    pub links: Vec<ProbedLink>,
}

/// A link that was measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ProbedLink {
    /// The sender.
    pub from: String,
    /// The receiver.
    pub to: String,
    /// What came in a second.
    pub bytes_per_s: Option<u64>,
    /// Why that is not known.
    pub error: Option<String>,
}
