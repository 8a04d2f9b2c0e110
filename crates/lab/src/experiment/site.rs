//! A network of shaped links, on which a real system is about to boot.

use std::path::Path;
use std::process;
use std::sync::Arc;

use tempfile::TempDir;
use testbed::{Ground, Seat};

use crate::error::LabError;
use crate::network::{Doors, LabNode, Names, Network};
use crate::topology::{Rate, Topology};

/// A network, a folder for the system's files, and the ground for its processes.
pub(crate) struct Site {
    pub(crate) network: Network,
    pub(crate) folder: TempDir,
    pub(crate) ground: Arc<dyn Ground>,
}

impl Site {
    /// Makes a network of so many servers on unshaped links, and moves this thread to the head's namespace.
    ///
    /// # Errors
    /// [`LabError`].
    pub(crate) fn up(names: &Names, servers: u16) -> Result<Self, LabError> {
        let mut network = Network::up(names, &Topology::flat(servers, Rate::Unshaped))?;
        let folder = tempfile::Builder::new().prefix("mendlab-").tempdir();
        let folder = folder.map_err(LabError::file("make a folder in", std::env::temp_dir()))?;
        network.owns_folder(folder.path())?;
        network.doors().enter(LabNode::Coordinator)?;
        let ground = Arc::new(Shaped(network.doors()));
        Ok(Self { network, folder, ground })
    }
}

/// The namespaces as seats of a system.
struct Shaped(Doors);

fn node(seat: Seat) -> LabNode {
    match seat {
        Seat::Head => LabNode::Coordinator,
        Seat::Server(at) => LabNode::Helper(u16::try_from(at).expect("a few")),
    }
}

impl Ground for Shaped {
    fn host(&self, seat: Seat) -> String {
        node(seat).address().to_string()
    }

    fn command(&self, seat: Seat, program: &Path) -> process::Command {
        self.0.command(node(seat), program)
    }
}
