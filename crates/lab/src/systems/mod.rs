//! What measurements beside any real system need: its processes in shaped namespaces, what they use, and the yardstick.

mod timed;
mod usage;

use std::net::SocketAddr;
use std::path::Path;
use std::process;
use std::thread;
use std::time::Duration;

use testbed::{Ground, Seat};

pub(crate) use timed::{Repaired, time_program};
pub(crate) use usage::{Usage, Watching};

use crate::direct;
use crate::error::LabError;
use crate::network::{Doors, LabNode, Network};

/// Direct sends of which the median counts.
const SENDS: usize = 3;

/// The namespaces as seats of a system.
pub(crate) struct Shaped(pub(crate) Doors);

fn place(seat: Seat) -> LabNode {
    match seat {
        Seat::Head => LabNode::Coordinator,
        Seat::Server(at) => LabNode::Helper(u16::try_from(at).expect("a few")),
    }
}

impl Ground for Shaped {
    fn host(&self, seat: Seat) -> String {
        place(seat).address().to_string()
    }

    fn command(&self, seat: Seat, program: &Path) -> process::Command {
        self.0.command(place(seat), program)
    }
}

/// The time of so many bytes from the first server over one connection, by nobody's protocol: what reading one block takes.
///
/// # Errors
/// [`LabError`].
pub(crate) fn direct_send(network: &Network, bytes: u64) -> Result<Duration, LabError> {
    let address = SocketAddr::from((LabNode::Helper(0).address(), direct::PORT));
    let serving = network.doors();
    // It ends with this process. If there is one already, its port is taken.
    thread::spawn(move || serving.enter(LabNode::Helper(0)).map(|()| direct::serve(address)));
    let doors = network.doors();
    let receive = move || -> Result<Vec<Duration>, LabError> {
        doors.enter(LabNode::Client)?;
        let sent = (0..SENDS).map(|_| direct::fetch(address, bytes));
        sent.collect::<Result<_, _>>().map_err(LabError::file("receive from", address.to_string()))
    };
    let mut times = thread::scope(|scope| scope.spawn(receive).join().expect("no panic"))?;
    times.sort();
    Ok(times[SENDS / 2])
}
