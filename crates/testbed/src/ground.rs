//! Where the processes of a system run, and at which addresses.

use std::path::Path;
use std::process::Command;

use crate::{Process, run};

/// Somebody's place in a system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seat {
    /// Of those that there is one of: what leads the system, its users, and Mend's coordinator.
    Head,
    /// Of a storage server and the helper beside it, counted from 0.
    Server(usize),
}

/// Where processes run.
pub trait Ground: Send + Sync {
    /// The address of a seat.
    fn host(&self, seat: Seat) -> String;
    /// A program that runs there, and ends with whoever starts it.
    fn command(&self, seat: Seat, program: &Path) -> Command;
}

/// All in one network namespace, each on its own address 10.79.x of its loopback device.
#[derive(Debug)]
pub struct OneNamespace(());

impl OneNamespace {
    /// Gives the loopback device the addresses of so many servers, and others (`"3.1"` for 10.79.3.1).
    /// [`inside_namespace`](crate::inside_namespace) comes first.
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

/// All in one network namespace and on one address, for servers that call from the same address whichever they listen at.
#[derive(Debug)]
pub struct OneAddress(());

impl OneAddress {
    /// Takes the loopback device into use. [`inside_namespace`](crate::inside_namespace) comes first.
    ///
    /// # Panics
    /// If it cannot be done.
    pub fn make() -> Self {
        run("ip link set lo up");
        Self(())
    }
}

impl Ground for OneAddress {
    fn host(&self, _: Seat) -> String {
        "127.0.0.1".to_owned()
    }

    fn command(&self, _: Seat, program: &Path) -> Command {
        Process::command(program)
    }
}
