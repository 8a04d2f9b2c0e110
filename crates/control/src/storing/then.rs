//! Continuations of writes (what to do once the storage has answered), as one enum for all state machines.

use repair::StripeId;
use store_api::{RecordWrite, Write};
use views::FileView;

use crate::effect::Reply;
use crate::jobs::continuation::{Published, PutThen};
use crate::nodes::continuation::NodeThen;
use crate::repairs::continuation::RepairThen;
use crate::stripes::continuation::StripeThen;

/// The continuation of any write. Each state machine defines the continuations of its own writes.
pub(crate) enum Then {
    /// No continuation; a failure is logged.
    Nothing,
    /// More numbers for jobs and repairs are reserved.
    Numbers,
    Put(PutThen),
    Published(Published),
    /// A file was removed.
    FileRemoved {
        stripes: Vec<StripeId>,
        reply: Reply<FileView>,
    },
    Stripe(StripeThen),
    Repair(RepairThen),
    Node(NodeThen),
    /// An audited request is recorded, so its caller can be answered.
    Audited(Reply<()>),
    /// The store has inspected the files that it keeps next to blocks, for this scrub.
    Inspected {
        scrub: u64,
    },
}

/// Wraps the continuations of each state machine.
macro_rules! continuations {
    ($($variant:ident($then:ty)),+) => { $(
        impl From<$then> for Then {
            fn from(then: $then) -> Self {
                Self::$variant(then)
            }
        }
    )+ };
}

continuations!(Put(PutThen), Published(Published), Stripe(StripeThen), Repair(RepairThen), Node(NodeThen));

impl Then {
    /// Whether the write of this continuation is kept during a fault of the storage instead of being refused.
    pub(crate) fn outlasts_faults(&self, write: &Write) -> bool {
        match self {
            Self::Stripe(StripeThen::Known { .. }) | Self::Numbers => true,
            // A `Discard` is refused: after the fault, the block to remove could have become the last copy.
            Self::Nothing => {
                matches!(write, Write::Records(record) if !matches!(record, RecordWrite::Discard(..)))
            }
            _ => false,
        }
    }
}
