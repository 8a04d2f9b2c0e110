//! Refusals of given stripes, which plug-ins describe.

use repair::StripeId;

use crate::error::{CORRECT_IT, ErrorKind};

/// The reason that a plug-in's stripe cannot be described, read or repaired.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "each is told by its message")]
pub enum GivenError {
    #[error("stripe {0} is none that was described to this coordinator, or not lately")]
    NotGiven(StripeId),
    #[error("stripe {0} is being read or repaired, as it was described before")]
    GivenInUse(StripeId),
    #[error("{0} stripes are described already")]
    TooManyGiven(usize),
    #[error("the stripes that {whose} described fill the {most} bytes there are for them")]
    GivenBytes { whose: String, most: u64 },
    #[error("`{0}` is in this cluster's own catalog")]
    Catalogued(String),
    #[error("a stripe of {code} has {needed} blocks, and {blocks} are described")]
    GivenBlocks { code: String, needed: usize, blocks: usize },
    #[error("`{0}` is named twice")]
    GivenTwice(String),
    #[error("block {block} has {bytes} bytes, and blocks of its stripe have at most {block_bytes}")]
    GivenTooLong { block: String, bytes: u64, block_bytes: u64 },
    #[error("blocks of {asked} bytes are not possible: the most is {most}")]
    GivenBlockBytes { asked: u64, most: u64 },
    #[error("`{0}` is no digest, such as crc32c:0a1b2c3d")]
    NoDigest(String),
    #[error("`{0}` cannot be a name: it needs 1 to 255 bytes without control characters")]
    NoName(String),
    #[error("block {block} is not lost: {holder} has it, as the stripe was described")]
    NotLost { block: String, holder: String },
    #[error(
        "stripe {0} was described by a plug-in: its lost blocks have to be named, each with the helper that shall have it"
    )]
    NoHomes(StripeId),
}

impl GivenError {
    pub(crate) fn kind(&self) -> ErrorKind {
        match self {
            Self::NotGiven(_) => ErrorKind::NotFound,
            Self::Catalogued(_) | Self::NotLost { .. } => ErrorKind::Conflict,
            Self::GivenInUse(_) => ErrorKind::InUse,
            Self::TooManyGiven(_) | Self::GivenBytes { .. } => ErrorKind::Unavailable,
            Self::GivenBlocks { .. }
            | Self::GivenTwice(_)
            | Self::GivenTooLong { .. }
            | Self::GivenBlockBytes { .. }
            | Self::NoDigest(_)
            | Self::NoName(_)
            | Self::NoHomes(_) => ErrorKind::Invalid,
        }
    }

    pub(crate) fn next_step(&self) -> String {
        match self {
            Self::NotGiven(_) => "have whoever described it do so again, then ask again".into(),
            Self::GivenInUse(_) => {
                "wait for that to end, or go on with the stripe as it was described".into()
            }
            Self::TooManyGiven(_) | Self::GivenBytes { .. } => {
                "try again in a few minutes: those that nobody asks for are forgotten".into()
            }
            Self::Catalogued(_) => "ask for it without describing it, or choose another name".into(),
            Self::NotLost { .. } => "describe the stripe as it is now: a lost block has no node".into(),
            Self::GivenBlocks { .. }
            | Self::GivenTwice(_)
            | Self::GivenTooLong { .. }
            | Self::GivenBlockBytes { .. }
            | Self::NoDigest(_)
            | Self::NoName(_)
            | Self::NoHomes(_) => CORRECT_IT.into(),
        }
    }
}
