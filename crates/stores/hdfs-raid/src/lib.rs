//! The layout of HDFS-RAID on HDFS 3, without I/O.
//!
//! HDFS-RAID encodes replicated files afterwards: the parity of a file is another file, whose path is the
//! file's path below a *parity root*. This crate contains every decision that this layout needs, as functions
//! of the NameNode's [`Listing`]:
//!
//! | module | decision |
//! |---|---|
//! | [`Codec`] | a code, its parity root, and whether stripes run over a file or over a folder |
//! | [`Layout`] | the stripes of a file or folder |
//! | [`StripeCodes`] | the code of a stripe, and whether Mend can repair it |
//! | [`ParityFile`] | path, length, block size and modification time of a parity file |
//! | [`Policies`] | which files are encoded, how, and why others are not |
//! | [`Cluster`] | on which DataNodes the blocks of a stripe stay, and the moves that get them there |
//! | [`raided()`] | the stripes of files and folders that are encoded |
//! | [`survey()`] | the state of every file, and the next step for it |
//! | [`Notes`] | whose parity a parity file is |
//! | [`Members`] | the blocks from which the parity of a folder was made |
//! | [`StaleParity`] | why a parity file is not valid |
//! | [`Health`] | missing blocks, and stripes whose blocks stand too close together |
//! | [`candidate()`] | which files are worked on, and towards which goal |
//! | [`Work`] | the next call for one file: to encode it, to encode it again, to undo this |
//! | [`Drive`] | when to look again, to try again, and to give up |
//! | [`forecast()`] | all calls for one file, if each of them succeeds |
//!
//! **Invariants:** pure (`clippy.toml`): no clock, socket or disk. A file that cannot be encoded has a
//! [reason](Exclusion). A plan never removes the last replica of a block. `docs/decisions/0051` gives the
//! reasons for the layout.

#![forbid(unsafe_code)]

mod action;
mod candidate;
mod codec;
mod drive;
mod encode;
mod exposure;
mod facts;
mod folder;
mod forecast;
mod glob;
mod health;
mod layout;
mod listing;
mod lower;
mod members;
mod note;
mod parity;
mod placement;
mod policy;
mod protection;
mod raided;
mod state;
mod stray;
mod stripe_codes;
mod survey;
mod undo;
mod work;

pub use action::{Action, BlockMove, DECISION_MS, End, NewBlock, Next, Waiting};
pub use candidate::{Candidate, Direction, candidate};
pub use codec::{Codec, Scope, ShortenError, punctured, shortened};
pub use drive::{Drive, Order, Pause, Refusal, Stop, TERM_BITS, Trouble};
pub use facts::{DataNodes, Draft, DraftName, Extent, FactFinder, Facts, MarkedFile};
pub use forecast::forecast;
pub use glob::{Glob, GlobError};
pub use health::{Health, Inspector, StripeHealth};
pub use layout::{Layout, LayoutError, Member};
pub use listing::{
    Block, File, Folder, Gaps, Listing, Node, NodeIndex, Omission, Owner, Renaming, Storing, is_within,
    listing_order,
};
pub use lower::SETTLED;
pub use members::Members;
pub use note::{Fingerprint, Mark, Marks, Note, UnknownMark};
pub use parity::{ParityFile, StaleParity, parity_path, source_of};
pub use placement::{Arrangement, Cluster, Crowding, Judge, Load, Move, Seat, Spread, TooFewNodes};
pub use policy::{Exclusion, Policies, PolicyError, RaidPolicy, all_codecs};
pub use protection::{Notes, ParityState, ParityUnit, Protection, parity_files};
pub use raided::{DataBlock, Raided, RaidedSource, RaidedStripe, UnusableParity, raided};
pub use state::{Damage, State};
pub use stripe_codes::{StripeCodes, Unrepairable};
pub use survey::{Saving, StripePlan, Survey, Total, Unit, survey};
pub use work::{Goal, Work};
