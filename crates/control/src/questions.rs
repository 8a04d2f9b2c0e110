//! What helpers are asked about their blocks, and what their answers change.

use std::collections::BTreeMap;
use std::time::Duration;

use codes::BlockIndex;
use repair::{BlockId, BlockProblem, Digest, NodeId, StripeId};
use store_api::{BlockRecord, BlockState};

/// A question that is not answered in this time has no answer: the helper's disk may hang. For one that reads
/// a block, the time that a slow and busy disk takes for its bytes comes on top.
pub(crate) const ANSWER_LIMIT: Duration = Duration::from_secs(120);
const SLOW_BYTES_PER_SECOND: u64 = 512 << 10;

/// A question to a helper that it has not answered.
pub(crate) struct Question {
    pub node: NodeId,
    pub subject: Subject,
    /// It counts as unanswered then.
    pub until: Duration,
}

pub(crate) enum Subject {
    /// A block to be verified, and what was known of it when the question was put.
    Block { stripe: StripeId, index: BlockIndex, known: BlockRecord, scrub: bool },
    /// All its blocks, for a scrub.
    List,
    /// What its blocks say of themselves, so that its orphans can be removed.
    Orphans,
    /// The same, and only what is proven to be needless goes.
    Tidying,
    /// The same, since it was away and is back.
    Returned,
}

impl Subject {
    /// How long its answer is waited for.
    fn patience(&self) -> Duration {
        match self {
            Self::Block { known, .. } => patience(known.bytes),
            Self::List | Self::Orphans | Self::Tidying | Self::Returned => patience(0),
        }
    }
}

/// How long an answer is waited for that takes reading so many bytes.
pub(crate) fn patience(bytes: u64) -> Duration {
    ANSWER_LIMIT + Duration::from_secs(bytes / SLOW_BYTES_PER_SECOND)
}

/// Questions to helpers that are not answered.
#[derive(Default)]
pub(crate) struct Questions {
    open: BTreeMap<u64, Question>,
    last: u64,
}

impl Questions {
    /// Opens a question, and returns its number.
    pub(crate) fn open(&mut self, node: NodeId, subject: Subject, now: Duration) -> u64 {
        self.last += 1;
        let until = now + subject.patience();
        self.open.insert(self.last, Question { node, subject, until });
        self.last
    }

    /// The subject of a question to this node.
    pub(crate) fn subject(&self, node: NodeId, number: u64) -> Option<&Subject> {
        self.open.get(&number).filter(|question| question.node == node).map(|question| &question.subject)
    }

    /// Closes a question to this node.
    pub(crate) fn close(&mut self, node: NodeId, number: u64) -> Option<Subject> {
        self.subject(node, number)?;
        self.open.remove(&number).map(|question| question.subject)
    }

    /// A cap of the helper holds back what it was asked, or it has answered a part: the rest is waited for
    /// anew.
    pub(crate) fn wait(&mut self, node: NodeId, number: u64, now: Duration) {
        if let Some(question) = self.open.get_mut(&number).filter(|question| question.node == node) {
            question.until = now + question.subject.patience();
        }
    }

    /// Closes the questions that are late.
    pub(crate) fn expire(&mut self, now: Duration) -> Vec<(u64, Question)> {
        self.open.extract_if(.., |_, question| question.until <= now).collect()
    }

    /// Closes all questions to a node, and returns their numbers.
    pub(crate) fn drop_node(&mut self, node: NodeId) -> Vec<u64> {
        self.open.extract_if(.., |_, question| question.node == node).map(|(number, _)| number).collect()
    }

    /// Whether a node is asked to verify some block.
    pub(crate) fn is_verifying(&self, node: NodeId) -> bool {
        let verifies = |question: &Question| matches!(question.subject, Subject::Block { .. });
        self.open.values().any(|question| question.node == node && verifies(question))
    }

    /// Whether a node is asked to verify this block.
    pub(crate) fn is_verifying_block(&self, node: NodeId, block: &BlockId) -> bool {
        let is_it = |subject: &Subject| matches!(subject, Subject::Block { known, .. } if known.id == *block);
        self.open.values().any(|question| question.node == node && is_it(&question.subject))
    }
}

/// The state of a block of which this is wrong, if that says anything of the block.
pub(crate) fn state_for(problem: &BlockProblem) -> Option<BlockState> {
    match problem {
        BlockProblem::Missing => Some(BlockState::Missing),
        BlockProblem::Corrupt(_) | BlockProblem::Unreadable(_) => Some(BlockState::Corrupt),
        BlockProblem::Unavailable(_) => None,
    }
}

pub(crate) fn other_digest(recorded: Option<Digest>, found: Option<Digest>) -> String {
    let name = |digest: Option<Digest>| digest.map_or_else(|| "none".to_owned(), |digest| digest.to_string());
    format!("its digest is {}, and {} is recorded", name(found), name(recorded))
}
