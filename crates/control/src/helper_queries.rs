//! Queries to helpers about their blocks, and the effects of the answers.

use std::collections::BTreeMap;
use std::time::Duration;

use codes::BlockIndex;
use repair::{BlockId, BlockProblem, Digest, NodeId, StripeId, longest_caps};
use store_api::{BlockRecord, BlockState};

/// The time limit of a query, because a helper's disk may hang. A query that reads a block gets additional
/// time, enough for a slow and busy disk to read the block.
pub(crate) const ANSWER_LIMIT: Duration = Duration::from_secs(120);
const SLOW_BYTES_PER_SECOND: u64 = 512 << 10;

/// A query that the helper has not answered yet.
pub(crate) struct Query {
    pub node: NodeId,
    pub subject: Subject,
    /// The time at which the query expires.
    pub until: Duration,
    /// The latest time to which reports of caps extend a query about a block.
    latest: Duration,
    /// Whether a part of the answer has arrived.
    pub has_begun: bool,
}

pub(crate) enum Subject {
    /// Verify a block; `known` is the block's record at the time of the query.
    Block { stripe: StripeId, index: BlockIndex, known: BlockRecord, scrub: bool },
    /// List all blocks, for a scrub.
    List,
    /// Describe all blocks, so that orphans (blocks that the catalog does not place on the helper) can be
    /// removed at an operator's request.
    Orphans,
    /// Describe all blocks, so that proven orphans can be removed automatically.
    Tidying,
    /// Describe all blocks after the helper's return.
    Returned,
    /// Describe all blocks, because some of them are newer than the catalog.
    Newer,
}

impl Subject {
    /// Returns the time limit for the answer.
    fn patience(&self) -> Duration {
        patience(self.bytes())
    }

    /// Returns the number of bytes that the helper must read for the answer.
    fn bytes(&self) -> u64 {
        match self {
            Self::Block { known, .. } => known.bytes,
            Self::List | Self::Orphans | Self::Tidying | Self::Returned | Self::Newer => 0,
        }
    }
}

/// Returns the time limit for an answer that requires reading this many bytes.
pub(crate) fn patience(bytes: u64) -> Duration {
    ANSWER_LIMIT + Duration::from_secs(bytes / SLOW_BYTES_PER_SECOND)
}

/// The open queries to helpers, by number.
#[derive(Default)]
pub(crate) struct Queries {
    open: BTreeMap<u64, Query>,
    last: u64,
}

impl Queries {
    /// Opens a query. Returns its number.
    pub(crate) fn open(&mut self, node: NodeId, subject: Subject, now: Duration) -> u64 {
        self.last += 1;
        let until = now + subject.patience();
        let latest = until + longest_caps(subject.bytes());
        self.open.insert(self.last, Query { node, subject, until, latest, has_begun: false });
        self.last
    }

    /// Returns the subject of an open query to this node.
    pub(crate) fn subject(&self, node: NodeId, number: u64) -> Option<&Subject> {
        self.open.get(&number).filter(|question| question.node == node).map(|question| &question.subject)
    }

    /// Closes an open query to this node. Returns its subject.
    pub(crate) fn close(&mut self, node: NodeId, number: u64) -> Option<Subject> {
        self.subject(node, number)?;
        self.open.remove(&number).map(|question| question.subject)
    }

    /// Restarts the time limit of a query, because a part of the answer has arrived.
    pub(crate) fn wait(&mut self, node: NodeId, number: u64, now: Duration) {
        if let Some(question) = self.open.get_mut(&number).filter(|question| question.node == node) {
            question.until = now + question.subject.patience();
            question.has_begun = true;
        }
    }

    /// Extends the time limit of a query about a single block, because a cap delays its verification.
    pub(crate) fn wait_for_block(&mut self, node: NodeId, number: u64, now: Duration) {
        if let Some(question) = self.open.get_mut(&number).filter(|question| question.node == node)
            && matches!(question.subject, Subject::Block { .. })
        {
            let until = now + question.subject.patience();
            question.until = question.until.max(until.min(question.latest));
        }
    }

    /// Closes and returns the queries that have expired.
    pub(crate) fn expire(&mut self, now: Duration) -> Vec<(u64, Query)> {
        self.open.extract_if(.., |_, question| question.until <= now).collect()
    }

    /// Closes and returns all queries to a node.
    pub(crate) fn drop_node(&mut self, node: NodeId) -> Vec<(u64, Subject)> {
        let dropped = self.open.extract_if(.., |_, question| question.node == node);
        dropped.map(|(number, question)| (number, question.subject)).collect()
    }

    /// Whether a node is verifying any block.
    pub(crate) fn is_verifying(&self, node: NodeId) -> bool {
        let verifies = |question: &Query| matches!(question.subject, Subject::Block { .. });
        self.open.values().any(|question| question.node == node && verifies(question))
    }

    /// Whether a node is verifying a block outside of a scrub. After the answer, it verifies the next queued block.
    pub(crate) fn is_rechecking(&self, node: NodeId) -> bool {
        let rechecks = |subject: &Subject| matches!(subject, Subject::Block { scrub: false, .. });
        self.open.values().any(|question| question.node == node && rechecks(&question.subject))
    }

    /// Whether a node is describing its blocks so that orphans can be removed automatically.
    pub(crate) fn is_tidying(&self, node: NodeId) -> bool {
        let tidies = |question: &Query| matches!(question.subject, Subject::Tidying);
        self.open.values().any(|question| question.node == node && tidies(question))
    }

    /// Whether a node is verifying this block.
    pub(crate) fn is_verifying_block(&self, node: NodeId, block: &BlockId) -> bool {
        let is_it = |subject: &Subject| matches!(subject, Subject::Block { known, .. } if known.id == *block);
        self.open.values().any(|question| question.node == node && is_it(&question.subject))
    }
}

/// Returns the state of a block with this problem; `None` if the problem says nothing about the block.
pub(crate) fn state_for(problem: &BlockProblem) -> Option<BlockState> {
    match problem {
        BlockProblem::Missing => Some(BlockState::Missing),
        BlockProblem::Corrupt(_) | BlockProblem::ContradictsParity => Some(BlockState::Corrupt),
        BlockProblem::Unreadable(_) => Some(BlockState::Unreadable),
        BlockProblem::Unavailable(_) => None,
    }
}

pub(crate) fn other_digest(recorded: Option<Digest>, found: Option<Digest>) -> String {
    let name = |digest: Option<Digest>| digest.map_or_else(|| "none".to_owned(), |digest| digest.to_string());
    format!("its digest is {}, but the recorded one is {}", name(found), name(recorded))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Otherwise the helper could keep a repair waiting that first has the block read.
    #[test]
    fn a_capped_verification_is_awaited_for_little_more_than_an_hour() {
        let node = NodeId(1);
        let known = BlockRecord {
            id: BlockId("1.0".to_owned()),
            bytes: 4096,
            node: Some(node),
            replicas: Vec::new(),
            state: BlockState::Healthy,
            digest: None,
        };
        let stripe = StripeId("1".to_owned());
        let subject = Subject::Block { stripe, index: BlockIndex(0), known, scrub: false };
        let mut queries = Queries::default();
        let number = queries.open(node, subject, Duration::ZERO);
        let mut expire_at = |minutes: u64| {
            let now = Duration::from_secs(60 * minutes);
            queries.wait_for_block(node, number, now);
            queries.expire(now).len()
        };
        assert!((0..62).all(|minutes| expire_at(minutes) == 0));
        assert_eq!(expire_at(63), 1);
    }

    /// A bad sector is no evidence about checksums, so the store must be able to tell it from wrong bytes.
    #[test]
    fn a_block_that_cannot_be_read_is_not_recorded_as_corrupt() {
        let unreadable = BlockProblem::Unreadable("a bad sector".to_owned());
        assert_eq!(state_for(&unreadable), Some(BlockState::Unreadable));
        assert_eq!(state_for(&BlockProblem::ContradictsParity), Some(BlockState::Corrupt));
    }
}
