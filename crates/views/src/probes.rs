//! Measurements of links.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A request to measure links.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ProbeRequest {
    /// Names of the helpers to measure; all that are up if empty.
    pub nodes: Vec<String>,
    /// Whether to measure every pair of helpers and keep a rate for each pair. Otherwise each helper sends to
    /// a few others, which yields the rates of its own ports.
    pub pairs: bool,
    /// Bytes to send over each link; 32 MiB if absent.
    pub bytes: Option<u64>,
}

/// A measurement of links, running or ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ProbeView {
    /// Whether the measurement is running.
    pub running: bool,
    /// Whether every pair of helpers is measured.
    pub pairs: bool,
    /// Bytes sent over each link.
    pub bytes: u64,
    /// Number of links that remain to be measured.
    pub left: u64,
    /// The links measured so far.
    pub links: Vec<ProbedLink>,
    /// Start of the measurement, in milliseconds since 1970. It differs from that of any other measurement.
    #[serde(default)]
    pub started_unix_ms: u64,
}

/// The result of measuring one link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ProbedLink {
    /// The sending helper.
    pub from: String,
    /// The receiving helper.
    pub to: String,
    /// The measured rate in bytes per second; absent if the measurement failed.
    pub bytes_per_s: Option<u64>,
    /// The reason why the measurement failed.
    pub error: Option<String>,
}
