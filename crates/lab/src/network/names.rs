//! Names and addresses inside a lab. Every namespace has the lab's prefix, so that it can be found again.
//! Every address is in 10.77.0.0/16, which exists only in these namespaces.

use std::fmt;
use std::net::Ipv4Addr;
use std::path::PathBuf;

/// A node of the lab, which has its own namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LabNode {
    /// The coordinator. Its link is never shaped, because blocks cross it only during preparation.
    Coordinator,
    /// The reading client.
    Client,
    /// A helper, numbered from 0; the number in its name is higher by one.
    Helper(u16),
}

impl LabNode {
    /// Returns all nodes of a lab with `helpers` helpers.
    pub fn all(helpers: u16) -> impl Iterator<Item = Self> + Clone {
        [Self::Coordinator, Self::Client].into_iter().chain((0..helpers).map(Self::Helper))
    }

    /// The node's address.
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

/// The names of a lab's namespaces and files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Names {
    prefix: String,
}

impl Names {
    /// Returns the names of a lab with this prefix. Tests use a prefix of their own, so that they can run
    /// next to a regular lab.
    pub fn with_prefix(prefix: &str) -> Self {
        Self { prefix: prefix.to_owned() }
    }

    /// The namespace of the bridges.
    pub fn net(&self) -> String {
        self.namespace("net")
    }

    /// The namespace of a node.
    pub fn of(&self, place: LabNode) -> String {
        self.namespace(&place.to_string())
    }

    pub(super) fn namespace(&self, name: &str) -> String {
        format!("{}-{name}", self.prefix)
    }

    /// Whether a namespace belongs to this lab.
    pub fn owns(&self, namespace: &str) -> bool {
        namespace.strip_prefix(&self.prefix).is_some_and(|rest| rest.starts_with('-'))
    }

    /// The path of the state file.
    pub fn state_file(&self) -> PathBuf {
        PathBuf::from(format!("/run/{}.json", self.prefix))
    }

    /// The path of the control group that limits the disks of helpers, if the system has the controller blkio
    /// of cgroups v1.
    pub fn disk_group(&self) -> Option<PathBuf> {
        let root = PathBuf::from("/sys/fs/cgroup/blkio");
        root.join("blkio.throttle.read_bps_device").exists().then(|| root.join(&self.prefix))
    }

    /// The path of the control group of the lab's processes, if the system has cgroups v2.
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
