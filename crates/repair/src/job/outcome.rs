//! The state and the outcome of a job.

use std::collections::{BTreeMap, BTreeSet};

use codes::BlockIndex;
use serde::{Deserialize, Serialize};

use crate::{BlockId, Digest, NodeId, PlanError, Scheme};

/// The outcome of a successful job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The scheme of the last plan.
    pub scheme: Scheme,
    /// The digests of the published blocks.
    pub digests: BTreeMap<BlockIndex, Digest>,
    /// The node that each wanted block was delivered to.
    pub homes: BTreeMap<BlockIndex, NodeId>,
    /// Why earlier plans were dropped.
    pub replanned: Vec<String>,
    /// The outcome of the parity check.
    pub parity: ParityOutcome,
    /// Blocks whose stored bytes are proven to belong to one stripe: the published blocks and the survivors
    /// that agree with them. Empty for a read, or if no whole blocks were checked.
    pub proven: BTreeSet<BlockIndex>,
}

/// The result of the parity check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = ParityCheck))]
#[serde(rename_all = "kebab-case")]
pub enum ParityOutcome {
    /// No check was requested.
    NotAsked,
    /// Too few blocks survive for a check.
    NoSpareBlock,
    /// The check holds: the equations would show any single wrong survivor.
    Holds,
    /// The check fails, but digests prove that the rebuilt blocks are correct: a block that the repair did
    /// not use is wrong.
    Overruled,
}

impl ParityOutcome {
    /// The name of the outcome, as in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NotAsked => "not-asked",
            Self::NoSpareBlock => "no-spare-block",
            Self::Holds => "holds",
            Self::Overruled => "overruled",
        }
    }
}

/// Why a job failed. Blocks that it delivered but did not publish are dropped.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JobError {
    /// No plan is possible.
    #[error("{error}{}", history(.replanned))]
    Plan {
        /// The reason.
        error: PlanError,
        /// Why earlier plans were dropped.
        replanned: Vec<String>,
    },
    /// No node can replace a requestor that failed.
    #[error("no other node can store block {block}: {reason}{}", history(.replanned))]
    NoRequestor {
        /// The block.
        block: BlockId,
        /// The failed requestor.
        node: NodeId,
        /// The requestor's failure.
        reason: String,
        /// Why earlier plans were dropped.
        replanned: Vec<String>,
    },
    /// The client that takes part is disconnected or cannot continue.
    #[error("the client cannot continue: {reason}")]
    Client {
        /// The reason.
        reason: String,
    },
    /// Several plans in a row were dropped without a new slice.
    #[error("gave up after {attempts} plans without progress{}", history(.replanned))]
    NoProgress {
        /// The number of plans tried.
        attempts: u32,
        /// The failures.
        replanned: Vec<String>,
    },
    /// The blocks contradict each other or the recorded digests, and the wrong one cannot be identified.
    #[error(
        "the blocks contradict each other ({}), and too few are readable to identify the wrong one{}",
        names(.blocks), history(.replanned)
    )]
    Contradiction {
        /// The contradicting blocks, at least one of them wrong.
        blocks: Vec<BlockId>,
        /// Why earlier plans were dropped.
        replanned: Vec<String>,
    },
    /// The blocks have no checksums, and too few are left for a parity check of the rebuilt ones.
    #[error(
        "the rebuilt block cannot be checked: no checksums are in use, and a parity check needs at least one \
         block more than the {readable} that are readable{}",
        history(.replanned)
    )]
    Unproven {
        /// The number of readable blocks.
        readable: usize,
        /// Why earlier plans were dropped.
        replanned: Vec<String>,
    },
    /// The blocks of a put break a parity equation, so a helper has computed or stored a wrong block.
    #[error("{reason}: a wrong block was computed or stored by {}{}", any_of(.nodes), history(.replanned))]
    StoredWrong {
        /// The failed check.
        reason: String,
        /// The helpers of which at least one is at fault.
        nodes: Vec<String>,
        /// Why earlier plans were dropped.
        replanned: Vec<String>,
    },
    /// The store currently accepts no block of this stripe on any node.
    #[error("the store accepts no block of this stripe now: {reason}{}", history(.replanned))]
    StoreNotReady {
        /// The reason given by the last node that was asked.
        reason: String,
        /// Why earlier plans were dropped.
        replanned: Vec<String>,
    },
    /// The job was cancelled.
    #[error("cancelled")]
    Cancelled,
}

fn names(blocks: &[BlockId]) -> String {
    blocks.iter().map(BlockId::to_string).collect::<Vec<_>>().join(", ")
}

fn any_of(nodes: &[String]) -> String {
    if nodes.len() == 1 { nodes[0].clone() } else { format!("one of {}", nodes.join(", ")) }
}

fn history(replanned: &[String]) -> String {
    if replanned.is_empty() { String::new() } else { format!(" (before that: {})", replanned.join("; ")) }
}

/// The state of a running job, for display.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct JobState {
    /// The current phase.
    pub phase: JobPhase,
    /// The scheme of the current plan.
    pub scheme: Scheme,
    /// Slices delivered so far, of all wanted blocks.
    pub delivered: u32,
    /// Slices to deliver in all.
    pub slices: u32,
    /// Bytes of one slice.
    pub slice_bytes: u32,
    /// Why earlier plans were dropped.
    pub replanned: Vec<String>,
}

/// The phase of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum JobPhase {
    /// Slices are moving.
    MovingSlices,
    /// A plan is being stopped.
    StoppingPlan,
    /// The job waits for nodes to come back.
    WaitingForNodes,
    /// The job is paused.
    OnHold,
    /// Deliveries are being made durable.
    MakingDurable,
    /// Parity equations are being checked.
    CheckingParity,
    /// Blocks are being published.
    Publishing,
    /// Published blocks are being read back.
    ReadingBack,
    /// The job has ended.
    Finished,
}

impl JobPhase {
    /// The name of the phase, as in JSON.
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
