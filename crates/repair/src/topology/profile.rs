//! One node as the planner sees it.

use serde::{Deserialize, Serialize};

/// How others come to a node's data port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Reach {
    /// A helper that has not said yet where it listens. It is down, so nobody has to dial it.
    #[default]
    Unknown,
    /// A helper: it is dialled at this address.
    Listens(String),
    /// A client: it dials whoever it exchanges slices with.
    DialsOut,
}

impl Reach {
    /// Where to dial it, if that is possible.
    pub fn address(&self) -> Option<&str> {
        match self {
            Self::Listens(address) => Some(address),
            Self::Unknown | Self::DialsOut => None,
        }
    }
}

/// What is known of one node.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeProfile {
    /// The node's name, for people.
    pub name: String,
    /// How others come to its data port.
    pub reach: Reach,
    /// The name that its certificate carries, by which the other end of an encrypted edge knows it.
    pub tls_name: String,
    /// Whether it takes tasks now.
    pub alive: bool,
    /// Its rack, if known.
    pub rack: Option<String>,
    /// What its ports and its disk carry.
    pub rates: Rates,
    /// Whether the rates of its ports are more than an assumption.
    pub knows_links: bool,
    /// Tasks it is busy with; less busy nodes are preferred.
    pub load: u32,
    /// Bytes free for blocks.
    pub free_bytes: u64,
}

impl NodeProfile {
    /// A node of which nothing is known.
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
        }
    }

    /// A helper that listens at `address`, of which nothing else is known.
    pub fn helper(name: impl Into<String>, address: impl Into<String>) -> Self {
        Self { reach: Reach::Listens(address.into()), ..Self::unknown(name) }
    }

    /// A client, of which nothing else is known.
    pub fn client(name: impl Into<String>) -> Self {
        Self { reach: Reach::DialsOut, ..Self::unknown(name) }
    }
}

/// What the ports and the disk of a node carry, in bytes per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rates {
    /// Rate at which it can send.
    pub up: f64,
    /// Rate at which it can receive.
    pub down: f64,
    /// Rate at which its disk reads.
    pub read: f64,
    /// Rate at which its disk writes.
    pub write: f64,
}

impl Rates {
    /// The rate of the disk when reads and writes are not told apart.
    pub fn disk(&self) -> f64 {
        self.read.min(self.write)
    }
}

impl Default for Rates {
    /// What is assumed where nothing is known: 1 Gb/s each way, and a disk of 500 MB/s.
    fn default() -> Self {
        Self { up: 125e6, down: 125e6, read: 500e6, write: 500e6 }
    }
}

/// What a node's own configuration says that its ports and its disk carry, in bytes per second. Nothing is said by 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StatedRates {
    /// What it can send.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub up: Option<u64>,
    /// What it can receive.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub down: Option<u64>,
    /// What its disk reads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read: Option<u64>,
    /// What its disk writes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write: Option<u64>,
}
