//! Continuations of writes, wrapped for all machines.

use repair::StripeId;
use store_api::{RecordWrite, Write};
use views::FileView;

use crate::effect::Reply;
use crate::jobs::continuation::{Published, PutThen};
use crate::nodes::continuation::NodeThen;
use crate::repairs::continuation::RepairThen;
use crate::stripes::continuation::StripeThen;

/// The continuation of a write; the machine that asked owns its variant.
pub(crate) enum Then {
    /// No continuation; a failure is logged.
    Nothing,
    /// More numbers for jobs and repairs are there.
    Numbers,
    Put(PutThen),
    Published(Published),
    /// A file is removed.
    FileRemoved {
        stripes: Vec<StripeId>,
        reply: Reply<FileView>,
    },
    Stripe(StripeThen),
    Repair(RepairThen),
    Node(NodeThen),
    /// The store has looked at its files beside blocks for this scrub.
    Inspected {
        scrub: u64,
    },
}

/// Continuations of one machine, as those of all.
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
    /// Whether its write is held during a fault of the storage, rather than refused.
    pub(crate) fn outlasts_faults(&self, write: &Write) -> bool {
        match self {
            Self::Stripe(StripeThen::Known { .. }) | Self::Numbers => true,
            // A late discard could remove what has become the last copy.
            Self::Nothing => {
                matches!(write, Write::Records(record) if !matches!(record, RecordWrite::Discard(..)))
            }
            _ => false,
        }
    }
}
