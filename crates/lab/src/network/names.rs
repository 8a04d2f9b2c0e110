//! Names and addresses inside a lab. Every namespace carries the lab's prefix, so that all of it can be found
//! again; every address is of 10.77.0.0/16, which exists in these namespaces only.

use std::fmt;
use std::net::Ipv4Addr;
use std::path::PathBuf;

/// Who has a namespace of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LabNode {
    /// The coordinator; its link is never shaped, since no block crosses it except when a scenario is prepared.
    Coordinator,
    /// The client that reads.
    Client,
    /// A helper, counted from 0; its name counts from 1.
    Helper(u16),
}

impl LabNode {
    /// Everyone in a lab of so many helpers.
    pub fn all(helpers: u16) -> impl Iterator<Item = Self> + Clone {
        [Self::Coordinator, Self::Client].into_iter().chain((0..helpers).map(Self::Helper))
    }

    /// Its address.
    pub fn address(self) -> Ipv4Addr {
        match self {
            Self::Coordinator => Ipv4Addr::new(10, 77, 0, 1),
            Self::Client => Ipv4Addr::new(10, 77, 0, 2),
            Self::Helper(index) => Ipv4Addr::new(10, 77, 1, index as u8 + 1),
        }
    }

    pub(super) fn mac(self) -> String {
        let [_, _, high, low] = self.address().octets();
        format!("02:4d:4c:00:{high:02x}:{low:02x}")
    }
}

impl fmt::Display for LabNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Coordinator => f.pad("coord"),
            Self::Client => f.pad("client"),
            Self::Helper(index) => f.pad(&format!("h{}", index + 1)),
        }
    }
}

/// The names of one lab.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Names {
    prefix: String,
}

impl Names {
    /// A lab of another prefix than the usual one, for tests that run beside one.
    pub fn with_prefix(prefix: &str) -> Self {
        Self { prefix: prefix.to_owned() }
    }

    /// The namespace of the bridges.
    pub fn net(&self) -> String {
        self.namespace("net")
    }

    /// The namespace of someone.
    pub fn of(&self, place: LabNode) -> String {
        self.namespace(&place.to_string())
    }

    pub(super) fn namespace(&self, name: &str) -> String {
        format!("{}-{name}", self.prefix)
    }

    /// Whether a namespace is this lab's.
    pub fn owns(&self, namespace: &str) -> bool {
        namespace.strip_prefix(&self.prefix).is_some_and(|rest| rest.starts_with('-'))
    }

    /// Where it is written down that this lab is up.
    pub fn state_file(&self) -> PathBuf {
        PathBuf::from(format!("/run/{}.json", self.prefix))
    }

    /// The control group of its processes, if the system has such groups.
    pub fn control_group(&self) -> Option<PathBuf> {
        let roots = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"].map(PathBuf::from);
        let root = roots.into_iter().find(|root| root.join("cgroup.controllers").exists())?;
        Some(root.join(&self.prefix))
    }
}

impl Default for Names {
    fn default() -> Self {
        Self::with_prefix("mendlab")
    }
}
