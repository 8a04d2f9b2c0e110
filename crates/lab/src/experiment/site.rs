//! Creates a network of namespaces in which a real storage system is then started.

use std::path::Path;
use std::process;
use std::sync::Arc;

use tempfile::TempDir;
use testbed::{Ground, Seat};

use crate::error::LabError;
use crate::network::{Doors, LabNode, Names, Network};
use crate::topology::{Rate, Topology};

/// A network, a folder for a storage system's files, and the [`Ground`] that starts the system's processes in
/// the network's namespaces.
pub(crate) struct Site {
    pub(crate) network: Network,
    pub(crate) folder: TempDir,
    pub(crate) ground: Arc<dyn Ground>,
}

impl Site {
    /// Creates a network of `servers` servers on unshaped links, and moves this thread into the namespace of
    /// the head, which runs the system's master or NameNode.
    ///
    /// # Errors
    /// [`LabError`].
    pub(crate) fn up(names: &Names, servers: u16) -> Result<Self, LabError> {
        let mut network = Network::up(names, &Topology::flat(servers, Rate::Unshaped))?;
        let folder = tempfile::Builder::new().prefix("mendlab-").tempdir();
        let folder = folder.map_err(LabError::file("create a folder in", std::env::temp_dir()))?;
        network.owns_folder(folder.path())?;
        network.doors().enter(LabNode::Coordinator)?;
        let ground = Arc::new(Shaped(network.doors()));
        Ok(Self { network, folder, ground })
    }
}

/// Starts a system's processes in the namespaces of a lab network.
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
