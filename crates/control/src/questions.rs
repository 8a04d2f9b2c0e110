//! What helpers are asked about their blocks, and what their answers change.

use std::collections::BTreeMap;
use std::time::Duration;

use codes::BlockIndex;
use repair::wire::control::{HeldBlock, StoreProblem, ToNode};
use repair::{BlockId, BlockProblem, Digest, NodeId, StripeId};
use stores::{BlockRecord, BlockState};

use crate::Control;
use crate::facts::Around;
use crate::facts::Facts;
use crate::out::Out;
use crate::stripes::Stripes;

/// A question that is not answered in this time has no answer: the helper's disk may hang. For one that reads a block,
/// the time that a slow and busy disk takes for its bytes comes on top.
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

    /// A cap of the helper holds back what it was asked, or it has answered a part: the rest is waited for anew.
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

impl Control {
    /// Goes on without answers that do not come, though the helper's connection lives.
    pub(crate) fn expire_asks(&mut self) {
        for (number, Question { node, subject, .. }) in self.out.questions.expire(self.base.now) {
            tracing::warn!(node = %self.nodes.name(node), "a helper does not answer what it is asked; its disk may hang");
            self.repairs.looked(number, node, None, None);
            match subject {
                Subject::Block { scrub: false, .. } => {
                    self.stripes.recheck_next(around!(self), node, &mut self.out)
                }
                Subject::Orphans | Subject::Tidying => {}
                // What is wrong with its blocks shows when they are read.
                Subject::Returned => self.trust_returned(node),
                Subject::Block { .. } | Subject::List => {
                    self.scrub.skip_in_scrub(facts!(self), node, "it does not answer", &mut self.out)
                }
            }
        }
    }

    pub(crate) fn take_verified(
        &mut self,
        node: NodeId,
        number: u64,
        block: &BlockId,
        result: Result<Option<Digest>, BlockProblem>,
    ) {
        let Some(Subject::Block { stripe, index, known, scrub }) = self.out.questions.close(node, number)
        else {
            return;
        };
        if known.id != *block {
            tracing::warn!(%block, asked = %known.id, "an answer about another block");
        }
        // Checksums are forged with the block: they do not overrule parity.
        let result = match self.stripes.condemned.problem(&known.id, node) {
            Some(problem) => result.and(Err(problem)),
            None => result,
        };
        let result_digest = result.as_ref().ok().copied();
        let problem = match result {
            Ok(digest) if known.digest.is_none() || known.digest == digest => None,
            // It can be read, and its node has nothing to hold it against.
            Ok(None) => Some(BlockProblem::Unavailable("its node has no checksums of it now".to_owned())),
            Ok(digest) => Some(BlockProblem::Corrupt(other_digest(known.digest, digest))),
            Err(problem) => Some(problem),
        };
        // What was learned of a block that has changed since is of no use.
        let current = self.stripes.picture.stripe(&stripe).ok();
        let current = current.and_then(|record| record.blocks.into_iter().nth(usize::from(index.0)));
        let still = current.as_ref() == Some(&known);
        let is_good = still && problem.is_none();
        match (result_digest, &current) {
            // Its home may have come back without it meanwhile, so what counts is where it belongs now.
            (Some(digest), Some(current)) if current.state_on(node).is_none() => {
                self.stripes.adopt(around!(self), node, (&stripe, index), current, digest, &mut self.out);
            }
            _ if still && known.state_on(node).is_some() => {
                self.stripes.apply_verdict(
                    around!(self),
                    node,
                    (&stripe, index),
                    &known,
                    problem.as_ref(),
                    &mut self.out,
                );
            }
            _ => {}
        }
        if is_good {
            self.stripes.drop_copies_besides(around!(self), &self.jobs, node, &stripe, index, &mut self.out);
        }
        let is_bad = problem.as_ref().and_then(state_for).is_some();
        self.repairs.looked(
            number,
            node,
            Some(index),
            still.then_some(is_good).filter(|good| *good || is_bad),
        );
        if scrub {
            self.scrub.count_in_scrub(facts!(self), node, number, &stripe, &known, problem.filter(|_| still));
        } else {
            self.stripes.recheck_next(around!(self), node, &mut self.out);
        }
    }

    pub(crate) fn take_listed(&mut self, node: NodeId, number: u64, blocks: &[HeldBlock]) {
        if self.out.questions.close(node, number).is_some() {
            self.stripes.note_orphans(around!(self), node, blocks, &mut self.out);
            self.scrub.listed_in_scrub(node);
        }
    }

    /// A helper cannot say what it holds: the scrub goes on without its list.
    pub(crate) fn take_unlisted(&mut self, node: NodeId, number: u64, problem: &StoreProblem) {
        if self.out.questions.close(node, number).is_some() {
            tracing::warn!(node = %self.nodes.name(node), %problem, "cannot list the blocks of a helper");
            self.scrub.unlisted_in_scrub(
                facts!(self),
                node,
                format!("it cannot list its blocks: {problem}"),
                &mut self.out,
            );
        }
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
        if !out.questions.is_verifying_block(node, &known.id) && around.nodes.peers.contains_key(&node) {
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

fn other_digest(recorded: Option<Digest>, found: Option<Digest>) -> String {
    let name = |digest: Option<Digest>| digest.map_or_else(|| "none".to_owned(), |digest| digest.to_string());
    format!("its digest is {}, and {} is recorded", name(found), name(recorded))
}
