//! Where the processes of a cluster run, and at which addresses.

use std::fs;
use std::path::Path;
use std::process::Command;

use apart::{Process, run};
use tempfile::TempDir;

/// Somebody's place in a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seat {
    /// Of the master, the filer, S3, and Mend's coordinator.
    Head,
    /// Of a volume server and the helper beside it, counted from 0.
    Server(usize),
}

/// Where processes run.
pub trait Ground: Send + Sync {
    /// The address of a seat.
    fn host(&self, seat: Seat) -> String;
    /// A program that runs there, and ends with whoever starts it.
    fn command(&self, seat: Seat, program: &Path) -> Command;
}

/// All in one network namespace, on addresses 10.79.x of its loopback device.
#[derive(Debug)]
pub struct OneNamespace(());

impl OneNamespace {
    /// Gives the loopback device the addresses of so many volume servers, and others (`"3.1"` for 10.79.3.1).
    /// [`inside_namespace`](apart::inside_namespace) comes first.
    ///
    /// # Panics
    /// If it cannot be done.
    pub fn make(servers: usize, others: &[&str]) -> Self {
        run("ip link set lo up");
        let hosts = std::iter::once("0.1".to_owned()).chain((1..=servers).map(|at| format!("1.{at}")));
        for host in hosts.chain(others.iter().map(|&host| host.to_owned())) {
            run(&format!("ip addr add 10.79.{host}/32 dev lo"));
        }
        Self(())
    }
}

impl Ground for OneNamespace {
    fn host(&self, seat: Seat) -> String {
        match seat {
            Seat::Head => "10.79.0.1".to_owned(),
            Seat::Server(at) => format!("10.79.1.{}", at + 1),
        }
    }

    fn command(&self, _: Seat, program: &Path) -> Command {
        Process::command(program)
    }
}

/// A folder on a file system in memory, which goes with the mount namespace: SeaweedFS encodes nothing on a disk that is
/// full to nine tenths, as the one of a machine that builds things may be.
///
/// # Panics
/// If there can be none.
pub fn memory_disk(mount: &Path, size: &str) -> TempDir {
    fs::create_dir_all(mount).expect("made");
    run(&format!("mount -t tmpfs -o size={size} tmpfs {}", mount.display()));
    tempfile::tempdir_in(mount).expect("a temporary folder")
}
