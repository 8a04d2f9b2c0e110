//! Mend beside the cluster.

use std::path::Path;
use std::sync::Arc;

use crate::{AttachCommand, Mend};
use seaweedfs::ServerAddress;

use super::cluster::Cluster;

/// How Mend is attached.
#[derive(Clone, Debug)]
pub struct Attaching<'a> {
    /// The program.
    pub program: &'a Path,
    /// More arguments of `mend attach seaweedfs`, such as `--repair-after` and its value.
    pub arguments: &'a [&'a str],
    /// Volumes that are encoded.
    pub volumes: usize,
}

impl Cluster {
    /// Attaches Mend, starts everything, and waits until all volumes are known to be whole.
    ///
    /// # Panics
    /// If `mend attach` fails, or a volume is not whole.
    pub fn attach(&self, attaching: &Attaching<'_>) -> Mend {
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
        mend.wait_until_safe(attaching.volumes);
        mend
    }
}

/// What `mend attach` calls the helper beside a server.
fn name(address: &ServerAddress) -> String {
    format!("vs-{}", address.http().replace(['.', ':'], "-"))
}
