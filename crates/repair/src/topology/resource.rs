//! Things of which there is only so much, and what cannot be true of them.

use std::collections::BTreeMap;
use std::fmt;

use crate::{NodeId, Topology};

/// Something that repairs share, and of which there is only so much.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Resource {
    /// A node's jobs at once.
    Jobs(NodeId),
    /// A node's uplink.
    Uplink(NodeId),
    /// A node's downlink.
    Downlink(NodeId),
    /// A node's disk.
    Disk(NodeId),
    /// What one node can send another.
    Pair(NodeId, NodeId),
    /// The trunk out of a rack or a region.
    TrunkOut(String),
    /// The trunk into a rack or a region.
    TrunkInto(String),
    /// What the nodes of one rack or region together can send to those of another.
    Between(String, String),
}

impl Resource {
    /// The node whose port or disk it is.
    pub fn node(&self) -> Option<NodeId> {
        match self {
            Self::Jobs(node) | Self::Uplink(node) | Self::Downlink(node) | Self::Disk(node) => Some(*node),
            Self::Pair(..) | Self::TrunkOut(_) | Self::TrunkInto(_) | Self::Between(..) => None,
        }
    }
}

impl Resource {
    /// What it is, with the names that `topology` gives to nodes.
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

/// What the trunk of a rack or a region carries, in bytes per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trunk {
    /// Out of it.
    pub up: f64,
    /// Into it.
    pub down: f64,
}

/// What cannot be true of a network.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum TopologyError {
    /// Not a rate.
    #[error("{what}: {rate} is no rate; give bytes per second, or 0 where nothing passes")]
    Rate {
        /// Of what.
        what: String,
        /// What was given.
        rate: f64,
    },
    /// A link from something to itself.
    #[error("a link from {what} to itself carries nothing: leave it out")]
    Itself {
        /// The node, rack or region.
        what: String,
    },
    /// Two rates for the same link.
    #[error("{what} has two rates, {was} and {given} bytes per second: say one")]
    TwoRates {
        /// Of what.
        what: String,
        /// What was said first.
        was: f64,
        /// What was said then.
        given: f64,
    },
    /// A rack in two regions.
    #[error("rack {rack} is in two regions, {} and {}: say one", regions[0], regions[1])]
    TwoRegions {
        /// The rack.
        rack: String,
        /// What was said first, and then.
        regions: [String; 2],
    },
}

/// The rate, if it is one.
pub(super) fn checked(rate: f64, what: impl Fn() -> String) -> Result<f64, TopologyError> {
    match rate >= 0.0 {
        true => Ok(rate),
        false => Err(TopologyError::Rate { what: what(), rate }),
    }
}

/// Sets a rate that was not set to another before.
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
