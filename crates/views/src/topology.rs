//! The network as the planner sees it, with the source of each rate.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The network as the planner sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TopologyView {
    /// Helpers in natural order of their names.
    pub nodes: Vec<NodeRates>,
    /// Racks, by name.
    pub racks: Vec<PlaceView>,
    /// Regions, by name.
    pub regions: Vec<PlaceView>,
    /// Links that are slower than the ports at their ends: between pairs of nodes, racks or regions.
    pub links: Vec<LinkView>,
}

/// Rates of a helper's ports and disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeRates {
    /// The helper's name.
    pub node: String,
    /// Whether the helper is connected.
    pub up: bool,
    /// The helper's rack, if known.
    pub rack: Option<String>,
    /// The region of the helper's rack, if known.
    pub region: Option<String>,
    /// Rate at which the helper can send.
    pub uplink: RateView,
    /// Rate at which the helper can receive.
    pub downlink: RateView,
    /// Rate at which the helper's disk reads.
    pub disk_read: RateView,
    /// Rate at which the helper's disk writes.
    pub disk_write: RateView,
    /// Highest rate of slices on the uplink in the last hour, in bytes per second: a lower bound on the rate
    /// of the uplink.
    pub seen_up_bytes_per_s: Option<u64>,
    /// Highest rate of slices on the downlink in the last hour, in bytes per second.
    pub seen_down_bytes_per_s: Option<u64>,
}

/// A rate and its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RateView {
    /// Bytes per second.
    pub bytes_per_s: u64,
    /// The source of the rate.
    pub source: RateSource,
    /// Time of the measurement or of the discovery that the link is slow, in milliseconds since 1970; absent
    /// for other sources.
    pub since_unix_ms: Option<u64>,
}

/// The source of a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RateSource {
    /// Configured in `mend.toml`.
    Configured,
    /// Measured by `mend bench links`.
    Measured,
    /// Observed as slow: the resource recently delayed a repair. This rate expires after some minutes.
    Slow,
    /// Assumed, since nothing is known of this port or disk: 1 Gb/s for ports, adjusted to the rates observed
    /// on other helpers; 500 MB/s for disks.
    Assumed,
}

/// A rack or a region.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PlaceView {
    /// Name of the rack or region.
    pub name: String,
    /// The region that a rack belongs to, if known.
    pub region: Option<String>,
    /// Rate in bytes per second at which all nodes inside together can send to nodes outside; absent if
    /// unlimited.
    pub up_bytes_per_s: Option<u64>,
    /// Rate in bytes per second at which all nodes inside together can receive from nodes outside; absent if
    /// unlimited.
    pub down_bytes_per_s: Option<u64>,
    /// Names of the helpers inside.
    pub nodes: Vec<String>,
}

/// A link in one direction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LinkView {
    /// The sender: a helper, `client`, a rack or a region.
    pub from: String,
    /// The receiver: a helper, `client`, a rack or a region.
    pub to: String,
    /// The rate of the link.
    pub rate: RateView,
}
