//! One node as the planner sees it.

use serde::{Deserialize, Serialize};

/// The way to reach a node's data port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Reach {
    /// A helper with an unknown address. It is down, so no node has to dial it.
    #[default]
    Unknown,
    /// A helper, dialled at this address.
    Listens(String),
    /// A client, which dials all its peers.
    DialsOut,
}

impl Reach {
    /// The address, if the node can be dialled.
    pub fn address(&self) -> Option<&str> {
        match self {
            Self::Listens(address) => Some(address),
            Self::Unknown | Self::DialsOut => None,
        }
    }

    /// The host in the address. One machine may run several helpers.
    pub fn host(&self) -> Option<&str> {
        self.address().map(host_of)
    }
}

/// The host of an address, without the port and without the brackets of an IPv6 address.
pub fn host_of(address: &str) -> &str {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    host.trim_start_matches('[').trim_end_matches(']')
}

/// The blocks that may be placed on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accepts {
    /// Any block.
    All,
    /// Only lost blocks that were on this node before. The node has returned without most of its blocks,
    /// perhaps because its disk is not mounted. Once the disk is mounted, everything written before then
    /// disappears, and the lost blocks are back.
    Own,
    /// No block: the node is being drained, it cannot write, or its server is out of service.
    Nothing,
}

/// The profile of one node.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeProfile {
    /// The node's name, for people.
    pub name: String,
    /// The way to reach the node's data port.
    pub reach: Reach,
    /// The name in the node's certificate, which the peer verifies when an edge is encrypted.
    pub tls_name: String,
    /// Whether the node currently takes tasks.
    pub alive: bool,
    /// The node's rack, if known.
    pub rack: Option<String>,
    /// The rates of the node's ports and disk.
    pub rates: Rates,
    /// Whether the port rates are known rather than assumed.
    pub knows_links: bool,
    /// The number of running tasks; less loaded nodes are preferred.
    pub load: u32,
    /// Free space for blocks, in bytes.
    pub free_bytes: u64,
    /// The blocks that may be placed on the node.
    pub accepts: Accepts,
}

impl NodeProfile {
    /// Creates the profile of a node about which nothing else is known.
    pub fn unknown(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            reach: Reach::Unknown,
            tls_name: String::new(),
            alive: true,
            rack: None,
            rates: Rates::default(),
            knows_links: false,
            load: 0,
            free_bytes: u64::MAX,
            accepts: Accepts::All,
        }
    }

    /// Creates the profile of a helper at `address`; all else is unknown.
    pub fn helper(name: impl Into<String>, address: impl Into<String>) -> Self {
        Self { reach: Reach::Listens(address.into()), ..Self::unknown(name) }
    }

    /// Creates the profile of a client; all else is unknown.
    pub fn client(name: impl Into<String>) -> Self {
        Self { reach: Reach::DialsOut, ..Self::unknown(name) }
    }
}

/// The rates of a node's ports and disk, in bytes per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rates {
    /// The rate at which the node can send.
    pub up: f64,
    /// The rate at which the node can receive.
    pub down: f64,
    /// The rate at which the node's disk reads.
    pub read: f64,
    /// The rate at which the node's disk writes.
    pub write: f64,
}

impl Rates {
    /// The rate of the disk for mixed reads and writes.
    pub fn disk(&self) -> f64 {
        self.read.min(self.write)
    }
}

impl Default for Rates {
    /// The assumption for unknown nodes: 1 Gb/s each way, and a disk of 500 MB/s.
    fn default() -> Self {
        Self { up: 125e6, down: 125e6, read: 500e6, write: 500e6 }
    }
}

/// The rates of ports and disk in a node's own configuration, in bytes per second; `None` or 0 means unset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StatedRates {
    /// The uplink.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub up: Option<u64>,
    /// The downlink.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub down: Option<u64>,
    /// The disk's read rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read: Option<u64>,
    /// The disk's write rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write: Option<u64>,
}
