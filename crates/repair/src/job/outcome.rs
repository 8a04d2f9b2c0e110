//! How a job stands, and how it ends.

use std::collections::{BTreeMap, BTreeSet};

use codes::BlockIndex;
use serde::{Deserialize, Serialize};

use crate::{BlockId, Digest, NodeId, PlanError, Scheme};

/// How a job ended well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The scheme of the last plan.
    pub scheme: Scheme,
    /// The digests of the published blocks.
    pub digests: BTreeMap<BlockIndex, Digest>,
    /// Where the wanted blocks were delivered.
    pub homes: BTreeMap<BlockIndex, NodeId>,
    /// Why plans were dropped on the way.
    pub replanned: Vec<String>,
    /// Whether a parity equation was checked, or why not.
    pub parity: ParityOutcome,
    /// Blocks that were seen to be of one stripe: those delivered, and survivors that agree with them. Empty where no whole
    /// blocks were checked.
    pub proven: BTreeSet<BlockIndex>,
}

/// What came of the check of parity equations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = ParityCheck))]
#[serde(rename_all = "kebab-case")]
pub enum ParityOutcome {
    /// It was not asked for.
    NotAsked,
    /// Too few blocks survive to tell.
    NoSpareBlock,
    /// It holds, for equations that would expose any single wrong survivor.
    Holds,
    /// It does not hold, but digests prove that the rebuilt blocks are right: a block that they were not made of is wrong.
    Overruled,
}

impl ParityOutcome {
    /// Its text, as in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NotAsked => "not-asked",
            Self::NoSpareBlock => "no-spare-block",
            Self::Holds => "holds",
            Self::Overruled => "overruled",
        }
    }
}

/// Why a job failed. What it delivered and did not publish is dropped.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JobError {
    /// No plan can be made.
    #[error("{error}{}", history(.replanned))]
    Plan {
        /// Why.
        error: PlanError,
        /// What happened before.
        replanned: Vec<String>,
    },
    /// No node can take the place of a requestor that failed.
    #[error("no other node can take block {block}: {reason}{}", history(.replanned))]
    NoRequestor {
        /// The block.
        block: BlockId,
        /// The one before.
        node: NodeId,
        /// What became of it.
        reason: String,
        /// What happened before.
        replanned: Vec<String>,
    },
    /// The client that takes part is gone, or cannot go on.
    #[error("the client cannot go on: {reason}")]
    Client {
        /// Why.
        reason: String,
    },
    /// Plan after plan was dropped without a new slice.
    #[error("given up after {attempts} plans without progress{}", history(.replanned))]
    NoProgress {
        /// Plans tried.
        attempts: u32,
        /// What happened.
        replanned: Vec<String>,
    },
    /// The blocks contradict each other or the recorded digests, and nothing tells which of them is wrong.
    #[error(
        "the blocks contradict each other ({}), and too few are left to find out which is wrong{}",
        names(.blocks), history(.replanned)
    )]
    Contradiction {
        /// The blocks of which at least one is wrong.
        blocks: Vec<BlockId>,
        /// What happened.
        replanned: Vec<String>,
    },
    /// The store takes no block of this stripe now, whichever node brings it.
    #[error("the store takes no block of this stripe now: {reason}{}", history(.replanned))]
    StoreNotReady {
        /// What the last node that was asked says of it.
        reason: String,
        /// What happened before.
        replanned: Vec<String>,
    },
    /// It was called off.
    #[error("cancelled")]
    Cancelled,
}

fn names(blocks: &[BlockId]) -> String {
    blocks.iter().map(BlockId::to_string).collect::<Vec<_>>().join(", ")
}

fn history(replanned: &[String]) -> String {
    if replanned.is_empty() { String::new() } else { format!(" (before that: {})", replanned.join("; ")) }
}

/// What a job is doing, for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct JobState {
    /// What it is about.
    pub phase: JobPhase,
    /// The scheme of the current plan.
    pub scheme: Scheme,
    /// Slices delivered so far, of all wanted blocks.
    pub delivered: u32,
    /// Slices to deliver in all.
    pub slices: u32,
    /// Bytes of one slice.
    pub slice_bytes: u32,
    /// Why plans were dropped so far.
    pub replanned: Vec<String>,
}

/// What a job is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum JobPhase {
    /// Slices travel.
    MovingSlices,
    /// A plan is being stopped.
    StoppingPlan,
    /// It waits for nodes to come back.
    WaitingForNodes,
    /// It is paused.
    OnHold,
    /// What was delivered is being made durable.
    MakingDurable,
    /// A parity equation is being checked.
    CheckingParity,
    /// Blocks are being published.
    Publishing,
    /// What was published is being read back.
    ReadingBack,
    /// It is over.
    Finished,
}

impl JobPhase {
    /// Its text, as in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::MovingSlices => "moving-slices",
            Self::StoppingPlan => "stopping-plan",
            Self::WaitingForNodes => "waiting-for-nodes",
            Self::OnHold => "on-hold",
            Self::MakingDurable => "making-durable",
            Self::CheckingParity => "checking-parity",
            Self::Publishing => "publishing",
            Self::ReadingBack => "reading-back",
            Self::Finished => "finished",
        }
    }
}
