//! The record that the stripes of a catalog are still to be compared with their parity.

use repair::StripeId;
use serde::{Deserialize, Serialize};

/// The key of the record among [`Records`](crate::Records).
pub const UNPROVEN: &str = "unproven";

/// A catalog that was rebuilt or restored has lost the findings about wrong blocks. Until parity has been
/// compared, nothing proves that the blocks of a stripe belong together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unproven {
    /// The operation that replaced the catalog.
    pub since: Replaced,
    /// The first stripe that has not been compared, in the order of names; `None` if none has been.
    pub from: Option<StripeId>,
}

/// An operation that replaces a catalog.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Replaced {
    /// The catalog was made from the labels of blocks.
    Rebuilt,
    /// A copy took the place of the catalog.
    Restored,
}

impl std::fmt::Display for Replaced {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Rebuilt => "rebuilt",
            Self::Restored => "restored",
        })
    }
}
