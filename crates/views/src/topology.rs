//! The network as the planner sees it, and where each figure comes from.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The network as the planner sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TopologyView {
    /// Helpers, as people sort their names.
    pub nodes: Vec<NodeRates>,
    /// Racks, by name.
    pub racks: Vec<PlaceView>,
    /// Regions, by name.
    pub regions: Vec<PlaceView>,
    /// Links that carry less than the ports of their ends: of pairs of nodes, and of pairs of racks or regions.
    pub links: Vec<LinkView>,
}

/// What a helper's ports and its disk carry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeRates {
    /// Its name.
    pub node: String,
    /// Whether it is connected.
    pub up: bool,
    /// Its rack, if known.
    pub rack: Option<String>,
    /// The region of its rack, if known.
    pub region: Option<String>,
    /// What it can send.
    pub uplink: RateView,
    /// What it can receive.
    pub downlink: RateView,
    /// What its disk reads.
    pub disk_read: RateView,
    /// What its disk writes.
    pub disk_write: RateView,
    /// The most that slices made of its uplink in the last hour, in bytes per second: it carries so much at least.
    pub seen_up_bytes_per_s: Option<u64>,
    /// The same of its downlink.
    pub seen_down_bytes_per_s: Option<u64>,
}

/// A rate, and how it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RateView {
    /// Bytes per second.
    pub bytes_per_s: u64,
    /// How it is known.
    pub source: RateSource,
    /// When that was, in milliseconds since 1970, if it was measured or found to be slow.
    pub since_unix_ms: Option<u64>,
}

/// How a rate is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RateSource {
    /// mend.toml says so.
    Configured,
    /// `mend bench links` has measured it.
    Measured,
    /// A repair was held up by it a short while ago; it counts for some minutes.
    Slow,
    /// Nothing is known of it: what most others have shown, and 1 Gb/s at least; for disks 500 MB/s.
    Assumed,
}

/// A rack or a region.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PlaceView {
    /// Its name.
    pub name: String,
    /// The region of a rack, if known.
    pub region: Option<String>,
    /// What all of its nodes together can send out of it, in bytes per second, if that is limited.
    pub up_bytes_per_s: Option<u64>,
    /// What all of its nodes together can receive from outside, in bytes per second, if that is limited.
    pub down_bytes_per_s: Option<u64>,
    /// Names of its helpers.
    pub nodes: Vec<String>,
}

/// A link in one direction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LinkView {
    /// The sender: a helper or `client`, or a rack or region.
    pub from: String,
    /// The receiver.
    pub to: String,
    /// What it carries.
    pub rate: RateView,
}
