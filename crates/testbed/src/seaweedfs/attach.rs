//! Attaches Mend to the SeaweedFS cluster.

use std::path::Path;
use std::sync::Arc;

use crate::{AttachCommand, Mend};
use seaweedfs::ServerAddress;

use super::cluster::Cluster;

/// Options for attaching Mend.
#[derive(Clone, Debug)]
pub struct Attaching<'a> {
    /// Path of the program `mend`.
    pub program: &'a Path,
    /// Further arguments of `mend attach seaweedfs`, such as `--repair-after` and its value.
    pub arguments: &'a [&'a str],
    /// The number of erasure-coded volumes in the cluster.
    pub volumes: usize,
}

impl Cluster {
    /// Attaches Mend, starts its coordinator and helpers, and waits until the coordinator reports all volumes
    /// as whole.
    ///
    /// # Panics
    /// If `mend attach` fails, or a volume is not whole in time.
    pub fn attach(&self, attaching: &Attaching<'_>) -> Mend {
        let mend = self.attach_damaged(attaching);
        mend.wait_until_safe(attaching.volumes);
        mend
    }

    /// Attaches Mend and starts its coordinator and helpers, whatever the state of the volumes is.
    ///
    /// # Panics
    /// If `mend attach` fails.
    pub fn attach_damaged(&self, attaching: &Attaching<'_>) -> Mend {
        let master = self.weed.master_address();
        let arguments =
            ["seaweedfs", "--master", &master].into_iter().chain(attaching.arguments.iter().copied());
        let mut mend = Mend::attach(AttachCommand {
            program: attaching.program,
            arguments: arguments.map(str::to_owned).collect(),
            names: self.servers.iter().map(|server| name(&server.address)).collect(),
            ground: Arc::clone(&self.weed.ground),
            root: &self.weed.root,
        });
        mend.start();
        mend
    }
}

/// Returns the name that `mend attach` gives the helper of a server.
fn name(address: &ServerAddress) -> String {
    format!("vs-{}", address.http().replace(['.', ':'], "-"))
}
