//! Events of a whole system, apart from those of slices and disks.

use control::{Answer, ConnectionId, RequestId};
use repair::wire::control::ToNode;

use super::script::Fault;
use super::wires::Way;

/// A helper or a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProcessId(pub u32);

/// Something that happens at some time.
#[derive(Debug)]
pub(crate) enum Happening {
    /// The coordinator's process starts.
    CoordinatorStarts,
    /// The coordinator looks at the clock.
    Tick {
        run: u32,
    },
    /// The storage has carried out a batch.
    StorageDone {
        run: u32,
    },
    /// A process starts.
    Starts {
        process: ProcessId,
        life: u32,
    },
    /// A process dials the coordinator.
    Dials {
        process: ProcessId,
        life: u32,
    },
    /// The next message on a control connection arrives.
    Arrives {
        connection: ConnectionId,
        way: Way,
    },
    /// The coordinator pings, and both ends look how long the other one has been silent.
    Heartbeat {
        connection: ConnectionId,
    },
    /// A helper has done something outside of jobs that it was asked on a connection.
    ChoreDone {
        process: ProcessId,
        connection: ConnectionId,
        chore: Box<ToNode>,
    },
    /// A request of the API reaches the coordinator.
    Asked {
        request: RequestId,
    },
    /// Its answer arrives.
    Answered {
        request: RequestId,
        answer: Option<Box<Answer>>,
    },
    /// A client goes on with something after a pause.
    GoesOn {
        process: ProcessId,
        life: u32,
        flow: u64,
    },
    /// An operation of the script begins.
    Operation(usize),
    /// The time of a fault of the script has come.
    Arms(usize),
    /// A fault strikes, at a helper if its trigger was about one.
    Fault {
        number: usize,
        at: Option<ProcessId>,
    },
    FaultEnds(Fault),
    /// A backup of the catalog is made.
    Copies,
    /// All faults end.
    Calm,
    /// The operator looks at the system.
    Look,
}
