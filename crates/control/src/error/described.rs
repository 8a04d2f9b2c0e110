//! Refusals of requests about stripes that plug-ins describe (given stripes).

use cluster::ByteSize;
use repair::StripeId;

use crate::error::{CORRECT_IT, ErrorKind};

/// The reason that a plug-in's stripe cannot be described, read or repaired.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the error messages document the variants")]
pub enum DescriptionError {
    #[error("stripe {0} was not described to this coordinator, or its description has expired")]
    NotGiven(StripeId),
    #[error("stripe {0} is being read or repaired according to its earlier description")]
    GivenInUse(StripeId),
    #[error("stripe {0} waits for a repair, but too few helpers with its blocks are up now")]
    TooFewHelpers(StripeId),
    #[error("the lost blocks of stripe {0} were rebuilt a moment ago")]
    Rebuilt(StripeId),
    #[error("{0} stripes are described already, which is the limit")]
    TooManyGiven(usize),
    #[error("the stripes described by {whose} exceed the memory limit of {}", ByteSize::from_bytes(*most))]
    DescribedBytes { whose: String, most: u64 },
    #[error("the name `{0}` is in use in this cluster's own catalog")]
    Catalogued(String),
    #[error("a stripe of {code} has {needed} blocks, but {blocks} are described")]
    GivenBlocks { code: String, needed: usize, blocks: usize },
    #[error("the description contains block `{0}` twice")]
    GivenTwice(String),
    #[error("block {block} has {bytes} bytes, but blocks of its stripe have at most {block_bytes}")]
    GivenTooLong { block: String, bytes: u64, block_bytes: u64 },
    #[error(
        "blocks of {} are too large: the limit is {}",
        ByteSize::from_bytes(*asked),
        ByteSize::from_bytes(*most)
    )]
    GivenBlockBytes { asked: u64, most: u64 },
    #[error("`{0}` is not a digest: write one such as crc32c:0a1b2c3d")]
    NoDigest(String),
    #[error("`{0}` is not a valid name: it needs 1 to 255 bytes without control characters")]
    NoName(String),
    #[error("block {block} is not lost: the description of its stripe places it on {holder}")]
    NotLost { block: String, holder: String },
    #[error(
        "stripe {0} was described by a plug-in: name each lost block together with the helper that should \
         store it"
    )]
    NoHomes(StripeId),
}

impl DescriptionError {
    pub(crate) fn kind(&self) -> ErrorKind {
        match self {
            Self::NotGiven(_) => ErrorKind::NotFound,
            Self::Catalogued(_) | Self::NotLost { .. } | Self::TooFewHelpers(_) => ErrorKind::Conflict,
            Self::GivenInUse(_) | Self::Rebuilt(_) => ErrorKind::InUse,
            Self::TooManyGiven(_) | Self::DescribedBytes { .. } => ErrorKind::Unavailable,
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
            Self::NotGiven(_) => "describe the stripe again, then repeat the request".into(),
            Self::GivenInUse(_) => {
                "wait until the read or repair ends, or use the earlier description".into()
            }
            Self::TooFewHelpers(_) => {
                "start helpers that are down (mend status); meanwhile, let the store rebuild the blocks itself".into()
            }
            Self::Rebuilt(_) => "read the blocks where the store lists them now".into(),
            Self::TooManyGiven(_) | Self::DescribedBytes { .. } => {
                "try again in a few minutes: unused descriptions expire".into()
            }
            Self::Catalogued(_) => "repair the stripe without describing it, or choose another name".into(),
            Self::NotLost { .. } => "describe the stripe again; leave out the node of each lost block".into(),
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
