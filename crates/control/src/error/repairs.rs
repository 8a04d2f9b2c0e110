//! Refusals of repairs.

use recovery::UnknownPolicy;
use repair::StripeId;
use views::RepairState;

use crate::error::{CORRECT_IT, ErrorKind};

/// The reason that a repair is not queued, shown or changed.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the error messages document the variants")]
pub enum RepairError {
    #[error("there is no repair {0}")]
    NoSuchRepair(u64),
    #[error("repair {repair} has ended already: it is {state}")]
    RepairEnded { repair: u64, state: RepairState },
    #[error("there is no drain method `{0}`; the methods are both, migrate and rebuild")]
    NoSuchWay(String),
    #[error("there is no priority `{0}`; the priorities are normal and background")]
    NoSuchPriority(String),
    #[error(transparent)]
    HelperPolicy(#[from] UnknownPolicy),
    #[error("helper {name} is up, so its blocks are not lost")]
    NodeIsUp { name: String },
    #[error("{open} repairs of stripe {stripe} are open already, which is the limit")]
    TooManyOrders { stripe: StripeId, open: usize },
    #[error("a repair needs exactly one of `block`, `stripe`, `node`, `drain` and `all`")]
    NoOneTarget,
}

impl RepairError {
    pub(crate) fn kind(&self) -> ErrorKind {
        match self {
            Self::NoSuchRepair(_) => ErrorKind::NotFound,
            Self::TooManyOrders { .. } => ErrorKind::InUse,
            Self::RepairEnded { .. } | Self::NodeIsUp { .. } => ErrorKind::Conflict,
            Self::NoSuchWay(_) | Self::NoSuchPriority(_) | Self::HelperPolicy(_) | Self::NoOneTarget => {
                ErrorKind::Invalid
            }
        }
    }

    pub(crate) fn next_step(&self) -> String {
        let step = match self {
            Self::NoSuchRepair(_) => "`mend status` shows open repairs, `mend history` shows finished ones",
            Self::RepairEnded { .. } => "see the result with `mend watch`, or start another repair",
            Self::NoSuchWay(_) | Self::NoSuchPriority(_) | Self::HelperPolicy(_) => {
                "choose one of the listed names"
            }
            Self::NodeIsUp { .. } => {
                "empty the helper with `mend node drain`, or repair single blocks with `mend repair`"
            }
            Self::TooManyOrders { .. } => "try again when some of them have ended: `mend status` shows them",
            Self::NoOneTarget => CORRECT_IT,
        };
        step.into()
    }
}
