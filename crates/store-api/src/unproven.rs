//! A record stating that the stripes of a rebuilt or restored catalog must still be checked against their
//! parity.

use std::collections::BTreeSet;

use repair::StripeId;
use serde::{Deserialize, Serialize};

/// The key of the record among [`Records`](crate::Records).
pub const UNPROVEN: &str = "unproven";

/// The progress of the parity check of a rebuilt or restored catalog. Such a catalog has lost the record of
/// blocks that were found wrong. Until the parity of a stripe has been checked, nothing proves that its
/// blocks belong together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unproven {
    /// The operation that replaced the catalog.
    pub since: Replaced,
    /// The first stripe outside of `also` that has not been checked, in the order of names; `None` if no stripe has been
    /// checked.
    pub from: Option<StripeId>,
    /// Whether only the stripes in `also` are left.
    #[serde(default)]
    pub done: bool,
    /// Further stripes that must be checked: those for which a block without a recorded digest was found, and some of
    /// those whose checks could not read all blocks.
    #[serde(default)]
    pub also: BTreeSet<StripeId>,
}

impl Unproven {
    /// Every stripe must be checked.
    pub fn all(since: Replaced) -> Self {
        Self { since, from: None, done: false, also: BTreeSet::new() }
    }
}

/// An operation that replaces a catalog.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Replaced {
    /// The catalog was rebuilt from the labels of blocks.
    Rebuilt,
    /// The catalog was replaced by a copy.
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
