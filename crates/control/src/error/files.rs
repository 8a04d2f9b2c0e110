//! Refusals of puts and of requests about files.

use cluster::ByteSize;
use repair::StripeId;
use store_api::{PutError, PutId};

use crate::error::{ErrorKind, Omitted, list};

/// The reason that a request about a file or a put is refused.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the error messages document the variants")]
pub enum FileError {
    #[error("there is no file `{0}`")]
    NoSuchFile(String),
    #[error("the file needs {stripes} stripes, but the limit with this code is {most}")]
    TooManyStripes { stripes: u64, most: u64, block_bytes: u64 },
    #[error(
        "{code} needs {needed} helpers that are up and have {} free each, but only {usable} qualify; \
         {omitted}",
        ByteSize::from_bytes(*block_bytes)
    )]
    TooFewHelpers { code: String, needed: usize, usable: usize, block_bytes: u64, omitted: Box<Omitted> },
    #[error("{member} has {most} open puts, which is the limit of a member")]
    TooManyPuts { member: String, most: usize },
    #[error("stripe {position} of put {put} is being stored already")]
    StripeBusy { put: PutId, position: u32 },
    #[error("stripes of put {0} are still being stored")]
    PutBusy(PutId),
    #[error("stripe {stripe} of the file cannot be read any more; {}", why_unreadable(down))]
    Unreadable { stripe: StripeId, down: Vec<String> },
    #[error(transparent)]
    Put(PutError),
    #[error("{0} manages its files itself: put, get and remove them there")]
    OwnFiles(&'static str),
}

fn why_unreadable(down: &[String]) -> String {
    match down {
        [] => "helpers have lost its blocks".to_owned(),
        down => format!("helpers that are down: {}", list(down)),
    }
}

impl FileError {
    pub(crate) fn kind(&self) -> ErrorKind {
        match self {
            Self::NoSuchFile(_) | Self::Put(PutError::NoSuchPut(_)) => ErrorKind::NotFound,
            Self::Put(
                PutError::Exists { .. } | PutError::MissingStripe { .. } | PutError::Unpublished { .. },
            )
            | Self::StripeBusy { .. }
            | Self::PutBusy(_) => ErrorKind::Conflict,
            Self::TooFewHelpers { .. } | Self::TooManyPuts { .. } | Self::Unreadable { .. } => {
                ErrorKind::Unavailable
            }
            Self::TooManyStripes { .. } | Self::OwnFiles(_) | Self::Put(_) => ErrorKind::Invalid,
        }
    }

    pub(crate) fn next_step(&self) -> String {
        match self {
            Self::NoSuchFile(_) => "list the files with `mend ls`".into(),
            Self::TooManyStripes { block_bytes, .. } => {
                format!("choose larger blocks (--block-size {})", ByteSize::from_bytes(*block_bytes))
            }
            Self::TooFewHelpers { omitted, .. } => {
                format!("{}; or choose a code with fewer blocks", omitted.remedy())
            }
            Self::TooManyPuts { .. } => {
                "commit or abort some of these puts; one that no client stores is aborted after ten minutes"
                    .into()
            }
            Self::StripeBusy { .. } | Self::PutBusy(_) => {
                "wait until these stripes are stored, or abort the put".into()
            }
            Self::Put(PutError::Exists { .. }) => {
                "choose another name (--name), or replace the existing file (--replace)".into()
            }
            Self::Put(_) => "put the file again".into(),
            Self::Unreadable { .. } => "put the file again, or bring its helpers back first".into(),
            Self::OwnFiles(_) => "use the tools of that system".into(),
        }
    }
}
