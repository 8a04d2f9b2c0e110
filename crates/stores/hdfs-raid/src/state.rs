//! The state of a file, or of a folder whose files are encoded together.

use crate::{Exclusion, StaleParity};

/// The state of a file or folder, as far as the NameNode's listing shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// The parity is valid, no block is missing, and every stripe is well placed.
    Raided,
    /// The parity is valid, but the replication is higher than the policy requires: the encoding was
    /// interrupted, or an operator raised the replication.
    NotLowered,
    /// As [`Raided`](Self::Raided), but this many stripes would not survive as many lost DataNodes as their code
    /// tolerates losses, or the loss of a rack.
    Misplaced(usize),
    /// Blocks have no intact replica.
    Damaged(Damage),
    /// There is a parity file, but it does not belong to the present contents.
    Stale(StaleParity),
    /// There is a parity file, but the source is not encoded again, and its replication not lowered.
    Held {
        /// The state apart from this.
        state: Box<Self>,
        /// Why the source is not encoded, for example because a client is writing to it.
        why: Exclusion,
    },
    /// There is no parity, and a policy requires it.
    ShouldEncode,
    /// There is no parity, and none is required, or the file cannot be encoded.
    Excluded(Exclusion),
}

/// The stripes of a file or folder that lack blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Damage {
    /// Stripes from which the missing blocks can be rebuilt.
    pub repairable: usize,
    /// Stripes that have lost more than their code can rebuild.
    pub unrecoverable: usize,
}

impl State {
    /// Returns a short name: that of the state, or of the reason for which the file is excluded.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Raided => "raided",
            Self::NotLowered => "not-lowered",
            Self::Misplaced(_) => "misplaced",
            Self::Damaged(_) => "damaged",
            Self::Stale(_) => "stale-parity",
            Self::Held { state, .. } => state.name(),
            Self::ShouldEncode => "should-encode",
            Self::Excluded(why) => why.name(),
        }
    }

    /// Returns why the state is not the desired one; `None` if it is, or only an encoding is missing.
    pub fn reason(&self) -> Option<String> {
        match self {
            Self::Raided | Self::ShouldEncode => None,
            Self::NotLowered => Some("the replication is higher than the policy requires".to_owned()),
            Self::Misplaced(stripes) => {
                Some(format!("stripes whose blocks stand too close together: {stripes}"))
            }
            Self::Damaged(Damage { repairable, unrecoverable }) => Some(format!(
                "stripes with missing blocks: {repairable} repairable, {unrecoverable} unrecoverable"
            )),
            Self::Stale(why) => Some(why.to_string()),
            Self::Held { state, why } => {
                let reason = state.reason().map(|reason| format!("{reason}; ")).unwrap_or_default();
                Some(format!("{reason}it is not encoded again: {why}"))
            }
            Self::Excluded(why) => Some(why.to_string()),
        }
    }
}
