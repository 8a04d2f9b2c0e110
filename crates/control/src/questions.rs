//! What helpers are asked about their blocks, and what their answers change.

use std::collections::BTreeMap;
use std::time::Duration;

use codes::BlockIndex;
use repair::wire::control::ToNode;
use repair::{BlockId, BlockProblem, Digest, NodeId, StripeId};
use store_api::{BlockRecord, BlockState};

use crate::facts::Around;
use crate::facts::Facts;
use crate::out::Out;
use crate::stripes::Stripes;

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
    fn is_verifying_block(&self, node: NodeId, block: &BlockId) -> bool {
        let is_it = |subject: &Subject| matches!(subject, Subject::Block { known, .. } if known.id == *block);
        self.open.values().any(|question| question.node == node && is_it(&question.subject))
    }
}

impl Stripes {
    /// Has a block looked at that could not be read for a reason that says nothing of it.
    pub(crate) fn look_again(
        &mut self,
        around: Around<'_>,
        node: NodeId,
        stripe: StripeId,
        index: BlockIndex,
        known: BlockRecord,
        out: &mut Out,
    ) {
        if !out.questions.is_verifying_block(node, &known.id) && around.nodes.is_connected(node) {
            around.with(self).ask_for_block(node, stripe, index, known, false, out);
        }
    }
}

impl<'a> Facts<'a> {
    /// Has a block verified.
    pub(crate) fn ask_for_block(
        self,
        node: NodeId,
        stripe: StripeId,
        index: BlockIndex,
        known: BlockRecord,
        scrub: bool,
        out: &mut Out,
    ) -> u64 {
        let block = known.id.clone();
        let ask = out.questions.open(node, Subject::Block { stripe, index, known, scrub }, self.base.now);
        self.nodes.send(node, ToNode::Verify { ask, block }, out);
        ask
    }
}

impl Stripes {
    pub(crate) fn apply_verdict(
        &mut self,
        around: Around<'_>,
        node: NodeId,
        (stripe, index): (&StripeId, BlockIndex),
        known: &BlockRecord,
        problem: Option<&BlockProblem>,
        out: &mut Out,
    ) {
        let Some(state) = problem.map_or(Some(BlockState::Healthy), state_for) else { return };
        if [Some(state), Some(BlockState::NotStored)].contains(&known.state_on(node)) {
            return;
        }
        if let Some(problem) = problem {
            self.remember_loss(around, node, &known.id, problem.to_string(), out);
        }
        self.store_states(around, vec![(stripe.clone(), index, node, state)], out);
    }

    pub(crate) fn note_loss(
        &mut self,
        around: Around<'_>,
        node: NodeId,
        block: &BlockId,
        state: BlockState,
        out: &mut Out,
    ) {
        let problem = if state == BlockState::Missing { "missing" } else { "of another length" };
        self.remember_loss(around, node, block, problem.to_owned(), out);
    }

    /// Remembers a bad block for the status.
    pub(crate) fn remember_loss(
        &mut self,
        around: Around<'_>,
        node: NodeId,
        block: &BlockId,
        problem: String,
        out: &mut Out,
    ) {
        out.note_bad(node, block, &problem);
        let node = around.nodes.name(node);
        tracing::warn!(%block, %node, problem, "a block is bad");
        if self.lost_lately.len() == crate::LOST_REMEMBERED {
            self.lost_lately.pop_front();
        }
        self.lost_lately.push_back(views::LostBlock {
            block: block.to_string(),
            node,
            problem,
            at_unix_ms: around.base.unix_ms,
        });
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
