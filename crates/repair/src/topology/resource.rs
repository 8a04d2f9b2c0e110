//! Limited resources that repairs share, and the errors for inconsistent descriptions of a network.

use std::collections::BTreeMap;
use std::fmt;

use crate::{NodeId, Topology};

/// A limited resource that repairs share.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Resource {
    /// The jobs that a node may run at the same time.
    Jobs(NodeId),
    /// A node's uplink.
    Uplink(NodeId),
    /// A node's downlink.
    Downlink(NodeId),
    /// A node's disk.
    Disk(NodeId),
    /// The path from one node to another.
    Pair(NodeId, NodeId),
    /// The trunk out of a rack or a region.
    TrunkOut(String),
    /// The trunk into a rack or a region.
    TrunkInto(String),
    /// The path from the nodes of one rack or region to those of another.
    Between(String, String),
}

impl Resource {
    /// The node that the resource belongs to; `None` for trunks and links.
    pub fn node(&self) -> Option<NodeId> {
        match self {
            Self::Jobs(node) | Self::Uplink(node) | Self::Downlink(node) | Self::Disk(node) => Some(*node),
            Self::Pair(..) | Self::TrunkOut(_) | Self::TrunkInto(_) | Self::Between(..) => None,
        }
    }
}

impl Resource {
    /// Describes the resource as text, with the node names that `topology` has.
    pub fn named(&self, topology: &Topology) -> String {
        match self {
            Self::Pair(from, to) => format!("link from {} to {}", topology.name(*from), topology.name(*to)),
            Self::Jobs(node) => format!("jobs of {}", topology.name(*node)),
            Self::Uplink(node) => format!("uplink of {}", topology.name(*node)),
            Self::Downlink(node) => format!("downlink of {}", topology.name(*node)),
            Self::Disk(node) => format!("disk of {}", topology.name(*node)),
            Self::TrunkOut(_) | Self::TrunkInto(_) | Self::Between(..) => self.to_string(),
        }
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Jobs(node) => write!(f, "jobs of {node}"),
            Self::Uplink(node) => write!(f, "uplink of {node}"),
            Self::Downlink(node) => write!(f, "downlink of {node}"),
            Self::Disk(node) => write!(f, "disk of {node}"),
            Self::Pair(from, to) => write!(f, "link from {from} to {to}"),
            Self::TrunkOut(domain) => write!(f, "trunk out of {domain}"),
            Self::TrunkInto(domain) => write!(f, "trunk into {domain}"),
            Self::Between(from, to) => write!(f, "link from {from} to {to}"),
        }
    }
}

/// The rates of a rack's or region's trunk, in bytes per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trunk {
    /// The rate out of the rack or region.
    pub up: f64,
    /// The rate into the rack or region.
    pub down: f64,
}

/// An inconsistency in the description of a network.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum TopologyError {
    /// The rate is negative or not a number.
    #[error("{what}: {rate} is not a rate; write bytes per second, or 0 for a link that carries nothing")]
    Rate {
        /// The resource.
        what: String,
        /// The rate as given.
        rate: f64,
    },
    /// The link connects a node, rack or region to itself.
    #[error("a link from {what} to itself carries nothing: remove it")]
    Itself {
        /// The node, rack or region.
        what: String,
    },
    /// The same link has two different rates.
    #[error("{what} has two rates, {was} and {given} bytes per second: keep one of them")]
    TwoRates {
        /// The resource.
        what: String,
        /// The first rate.
        was: f64,
        /// The second rate.
        given: f64,
    },
    /// A rack is in two regions.
    #[error("rack {rack} is in two regions, {} and {}: keep one of them", regions[0], regions[1])]
    TwoRegions {
        /// The rack.
        rack: String,
        /// The first and the second region.
        regions: [String; 2],
    },
}

/// Returns the rate if it is valid.
pub(super) fn checked(rate: f64, what: impl Fn() -> String) -> Result<f64, TopologyError> {
    match rate >= 0.0 {
        true => Ok(rate),
        false => Err(TopologyError::Rate { what: what(), rate }),
    }
}

/// Inserts a rate. Returns an error if `key` already has another rate.
pub(super) fn insert_once<K: Ord>(
    rates: &mut BTreeMap<K, f64>,
    key: K,
    given: f64,
    what: impl Fn() -> String,
) -> Result<(), TopologyError> {
    let was = *rates.entry(key).or_insert(given);
    match was == given {
        true => Ok(()),
        false => Err(TopologyError::TwoRates { what: what(), was, given }),
    }
}
