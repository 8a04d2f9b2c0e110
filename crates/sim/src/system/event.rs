//! Events of a whole system, except those of slices and disks.

use control::{Answer, ConnectionId, RequestId};
use repair::wire::control::ToNode;

use super::script::Fault;
use super::wires::Way;

/// Identifies a helper or a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProcessId(pub u32);

/// An event of a whole system.
#[derive(Debug)]
pub(crate) enum Happening {
    /// The coordinator's process starts.
    CoordinatorStarts,
    /// The coordinator's timer fires.
    Tick {
        run: u32,
    },
    /// The storage has completed a batch.
    StorageDone {
        run: u32,
    },
    /// A process starts.
    Starts {
        process: ProcessId,
        life: u32,
    },
    /// A process connects to the coordinator.
    Dials {
        process: ProcessId,
        life: u32,
    },
    /// The next message on a control connection arrives.
    Arrives {
        connection: ConnectionId,
        way: Way,
    },
    /// The coordinator sends a ping, and both ends check for how long the peer has been silent.
    Heartbeat {
        connection: ConnectionId,
    },
    /// A helper has completed a request that belongs to no job. The request came on this connection.
    ChoreDone {
        process: ProcessId,
        connection: ConnectionId,
        chore: Box<ToNode>,
    },
    /// An API request reaches the coordinator.
    Asked {
        request: RequestId,
    },
    /// The answer to an API request arrives.
    Answered {
        request: RequestId,
        answer: Option<Box<Answer>>,
    },
    /// A client continues an operation after a pause.
    GoesOn {
        process: ProcessId,
        life: u32,
        flow: u64,
    },
    /// An operation of the script begins.
    Operation(usize),
    /// A fault of the script is due: it strikes now or starts to wait for its trigger.
    Arms(usize),
    /// A fault strikes. If it waited for a trigger at a helper, it strikes that helper.
    Fault {
        number: usize,
        at: Option<ProcessId>,
    },
    FaultEnds(Fault),
    /// A backup of the catalog is made.
    Copies,
    /// All faults end.
    Calm,
    /// The operator checks the system.
    Look,
}
