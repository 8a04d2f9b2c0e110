//! The errors of planning.

use std::fmt;
use std::ops::Range;

use codes::{BlockIndex, DecodeError};

use crate::{Geometry, NodeId, Pacing, Scheme, SliceSet, StripeId};

/// Why no plan can be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// The readable blocks do not determine the wanted ones.
    #[error("stripe {stripe}: {source}; {missing}")]
    Decode {
        /// The stripe.
        stripe: StripeId,
        /// The decoder's error.
        source: DecodeError,
        /// The blocks that cannot be read, and why.
        missing: Box<Missing>,
    },
    /// The topology does not contain a requestor.
    #[error("requestor {requestor} is not a node of the cluster")]
    UnknownRequestor {
        /// The node.
        requestor: NodeId,
    },
    /// A requestor is down.
    #[error("requestor {requestor} ({name}) is down")]
    DeadRequestor {
        /// The node.
        requestor: NodeId,
        /// The node's name.
        name: String,
    },
    /// A requestor has a downlink of zero.
    #[error(
        "requestor {requestor} ({name}) has a downlink of 0 bytes per second: nothing can be delivered there"
    )]
    DeafRequestor {
        /// The node.
        requestor: NodeId,
        /// The node's name.
        name: String,
    },
    /// Enough blocks are readable, but no route of the scheme has a positive rate.
    #[error(
        "stripe {stripe}: {scheme} finds no route to the requestor over links with bandwidth; {missing}; try \
         another scheme"
    )]
    NoWay {
        /// The stripe.
        stripe: StripeId,
        /// The scheme.
        scheme: Scheme,
        /// The blocks that cannot be read, and why.
        missing: Box<Missing>,
    },
    /// No block is wanted.
    #[error("the request names no wanted block")]
    NothingWanted,
    /// A block is wanted twice; a plan delivers each block once.
    #[error("wanted block {block} is named twice")]
    WantedTwice {
        /// The block.
        block: BlockIndex,
    },
    /// The window is empty or ends past the sub-block.
    #[error("window {}..{} is not a part of a sub-block of {sub_block_bytes} bytes", window.start, window.end)]
    Window {
        /// The requested window.
        window: Range<u64>,
        /// Bytes of each sub-block of the stripe.
        sub_block_bytes: u64,
    },
    /// The range of sub-blocks is empty or ends past the block.
    #[error("sub-blocks {}..{} are not among the {in_block} of a block", sub_blocks.start, sub_blocks.end)]
    SubBlocks {
        /// The requested sub-blocks.
        sub_blocks: Range<u16>,
        /// The number of sub-blocks of a block.
        in_block: usize,
    },
    /// The slice size is out of bounds.
    #[error(
        "slices of {slice_bytes} bytes: the size must be a multiple of {SLICE_MULTIPLE} from {} to {}",
        Geometry::MIN_SLICE_BYTES,
        Geometry::MAX_SLICE_BYTES
    )]
    SliceSize {
        /// The requested size.
        slice_bytes: u32,
    },
    /// The window has more slices than a slice number can count.
    #[error("slices of {slice_bytes} bytes cut a window of {window_bytes} bytes into more than 2^32 slices")]
    TooManySlices {
        /// The requested size.
        slice_bytes: u32,
        /// Bytes of the window.
        window_bytes: u64,
    },
    /// The slices to resume are empty, or outside of the window.
    #[error("slices {slices} are not among the {in_window} of the window")]
    Resume {
        /// The requested slices.
        slices: SliceSet,
        /// The number of slices in the window.
        in_window: u32,
    },
    /// Migration copies a block, but no node holds it.
    #[error("stripe {stripe}: {block} cannot be migrated, because no readable node holds it; {missing}")]
    NothingToMigrate {
        /// The stripe.
        stripe: StripeId,
        /// The block.
        block: BlockIndex,
        /// The blocks that cannot be read, and why.
        missing: Box<Missing>,
    },
    /// The scheme's shape does not work with the pacing.
    #[error("{scheme} cannot run {}: {reason}", pacing_name(*pacing))]
    Pacing {
        /// The scheme.
        scheme: Scheme,
        /// The requested pacing.
        pacing: Pacing,
        /// The conflict between shape and pacing.
        reason: PacingProblem,
    },
}

/// Slice sizes are multiples of a cache line (64 bytes), so every slice but the last fills whole cache lines.
pub(super) const SLICE_MULTIPLE: u32 = 64;

/// Why a shape does not work with a pacing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PacingProblem {
    /// The scheme has a fixed pacing, and the request names a different one.
    #[error("this scheme has a fixed pacing")]
    Defined,
    /// Streams of several lanes interleave in a node.
    #[error("the slices of its {0} lanes interleave")]
    Lanes(usize),
    /// A node would have to send before it has received everything.
    #[error("{0} must send before it has received everything")]
    Cycle(NodeId),
}

/// The blocks of a stripe that cannot be read, by reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Missing {
    /// Blocks that no node holds.
    pub lost: Vec<BlockIndex>,
    /// Blocks whose holders are down, each with the holder.
    pub unreachable: Vec<(BlockIndex, NodeId)>,
    /// Blocks whose holders are on the policy's avoid list, each with the holder.
    pub avoided: Vec<(BlockIndex, NodeId)>,
    /// Blocks whose holders have no route to a requestor, each with the holder.
    pub cut_off: Vec<(BlockIndex, NodeId)>,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let held = |blocks: &[(BlockIndex, NodeId)]| -> Vec<String> {
            blocks.iter().map(|(block, node)| format!("{block} on {node}")).collect()
        };
        let lost = self.lost.iter().map(BlockIndex::to_string).collect();
        let reasons = [
            ("lost", lost),
            ("unreachable", held(&self.unreachable)),
            ("avoided", held(&self.avoided)),
            ("cut off", held(&self.cut_off)),
        ];
        let mut comma = "";
        for (reason, blocks) in reasons.iter().filter(|(_, blocks)| !blocks.is_empty()) {
            write!(f, "{comma}{reason}: {}", blocks.join(" "))?;
            comma = ", ";
        }
        if comma.is_empty() { f.write_str("no block is missing") } else { Ok(()) }
    }
}

fn pacing_name(pacing: Pacing) -> &'static str {
    match pacing {
        Pacing::Pipelined => "slice by slice",
        Pacing::Serial => "one slice at a time",
        Pacing::WholeBlock => "by whole blocks",
    }
}
