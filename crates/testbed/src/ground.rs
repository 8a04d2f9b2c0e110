//! The environment in which the processes of a system run, and their addresses.

use std::path::Path;
use std::process::Command;

use crate::{Process, run};

/// The place of a process in a storage system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seat {
    /// The place of the system's master or NameNode, of users, and of Mend's coordinator.
    Head,
    /// The place of a storage server and its helper, counted from 0.
    Server(usize),
}

/// The environment in which processes run.
pub trait Ground: Send + Sync {
    /// Returns the address of a seat.
    fn host(&self, seat: Seat) -> String;
    /// Returns a command that runs a program at a seat. The process is killed when its parent ends.
    fn command(&self, seat: Seat, program: &Path) -> Command;
}

/// A [`Ground`] whose processes share one network namespace. Each seat has its own address in 10.79.0.0/16 on
/// the loopback device.
#[derive(Debug)]
pub struct OneNamespace(());

impl OneNamespace {
    /// Adds addresses to the loopback device: those of the head and of `servers` servers, and those in
    /// `others` (`"3.1"` means 10.79.3.1). Call [`inside_namespace`](crate::inside_namespace) first.
    ///
    /// # Panics
    /// If an address cannot be added.
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

/// A [`Ground`] whose processes share one network namespace and one address. Some servers need this, because
/// they always connect from the same address, whatever address they listen on.
#[derive(Debug)]
pub struct OneAddress(());

impl OneAddress {
    /// Brings the loopback device up. Call [`inside_namespace`](crate::inside_namespace) first.
    ///
    /// # Panics
    /// If the device cannot be brought up.
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
