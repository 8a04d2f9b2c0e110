//! The state of a file, or of a folder whose files are encoded together.

use std::fmt;

use crate::{Exclusion, StaleParity, Unrepairable};

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
    /// The parity is valid, but Mend cannot repair a stripe, so a lost block of it would stay lost. A file of the unit has one
    /// replica.
    Unrepairable(Unrepairable),
    /// Blocks have no intact replica.
    Damaged(Damage),
    /// There is a parity file, but it does not belong to the present contents, or has to be checked before it is used.
    Stale(StaleParity),
    /// There is no parity, and a policy requires it.
    ShouldEncode,
    /// There is no parity, and none is required, or the file cannot be encoded.
    Excluded(Exclusion),
}

/// The missing blocks of a file or folder with parity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Damage {
    /// Stripes from which the missing blocks can be rebuilt.
    pub repairable: usize,
    /// Stripes that have lost more than their code can rebuild, or for which Mend has no code.
    pub unrecoverable: usize,
    /// Data blocks without an intact replica whose parity is not valid.
    pub unprotected: usize,
}

impl Damage {
    /// Whether all data can be read, directly or by decoding.
    pub fn is_readable(&self) -> bool {
        self.unrecoverable == 0 && self.unprotected == 0
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { repairable, unrecoverable, unprotected } = self;
        match unprotected {
            0 => write!(
                f,
                "stripes with missing blocks: {repairable} repairable, {unrecoverable} unrecoverable"
            ),
            _ => write!(f, "missing blocks without valid parity: {unprotected}"),
        }
    }
}

impl State {
    /// Returns a short name: that of the state, or of the reason for which the file is excluded.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Raided => "raided",
            Self::NotLowered => "not-lowered",
            Self::Misplaced(_) => "misplaced",
            Self::Unrepairable(_) => "unrepairable",
            Self::Damaged(damage) if damage.is_readable() => "degraded",
            Self::Damaged(_) => "unreadable",
            Self::Stale(why) if why.is_unchecked() => "unchecked-parity",
            Self::Stale(_) => "stale-parity",
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
            Self::Unrepairable(why) => Some(format!(
                "Mend could not repair a lost block of it ({why}): raise its replication (hdfs dfs -setrep), or undo its \
                 encoding"
            )),
            Self::Damaged(damage) => Some(damage.to_string()),
            Self::Stale(why) => Some(why.to_string()),
            Self::Excluded(why) => Some(why.to_string()),
        }
    }
}
