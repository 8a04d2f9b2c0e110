//! What helpers are asked about their blocks, and what their answers change.

use std::time::Duration;

use codes::BlockIndex;
use repair::wire::control::{HeldBlock, StoreProblem, ToNode};
use repair::{BlockId, BlockProblem, Digest, NodeId, StripeId};
use stores::{BlockRecord, BlockState};

use super::Control;

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

impl Control {
    /// Has a block verified.
    pub(crate) fn ask_for_block(
        &mut self,
        node: NodeId,
        stripe: StripeId,
        index: BlockIndex,
        known: BlockRecord,
        scrub: bool,
    ) -> u64 {
        let block = known.id.clone();
        let ask = self.ask(node, Subject::Block { stripe, index, known, scrub });
        self.nodes.send(node, ToNode::Verify { ask, block }, &mut self.out);
        ask
    }

    pub(crate) fn ask(&mut self, node: NodeId, subject: Subject) -> u64 {
        self.stripes.next_ask += 1;
        let until = self.base.now + subject.patience();
        self.stripes.asks.insert(self.stripes.next_ask, Question { node, subject, until });
        self.stripes.next_ask
    }

    /// A cap of the helper holds back what it was asked: it is waited for anew.
    pub(crate) fn wait_for_ask(&mut self, node: NodeId, number: u64) {
        if let Some(ask) = self.stripes.asks.get_mut(&number).filter(|ask| ask.node == node) {
            ask.until = self.base.now + ask.subject.patience();
        }
    }

    /// Goes on without answers that do not come, though the helper's connection lives.
    pub(crate) fn expire_asks(&mut self) {
        let late = self.stripes.asks.iter().filter(|(_, ask)| ask.until <= self.base.now);
        for number in late.map(|(&number, _)| number).collect::<Vec<_>>() {
            let Some(Question { node, subject, .. }) = self.stripes.asks.remove(&number) else { continue };
            tracing::warn!(node = %self.nodes.name(node), "a helper does not answer what it is asked; its disk may hang");
            self.looked(number, node, None, None);
            match subject {
                Subject::Block { scrub: false, .. } => self.recheck_next(node),
                Subject::Orphans | Subject::Tidying => {}
                // What is wrong with its blocks shows when they are read.
                Subject::Returned => self.trust_returned(node),
                Subject::Block { .. } | Subject::List => self.skip_in_scrub(node, "it does not answer"),
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
        let Some(ask) = self.take_ask(node, number) else { return };
        let Subject::Block { stripe, index, known, scrub } = ask.subject else { return };
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
                self.adopt(node, &stripe, index, current, digest);
            }
            _ if still && known.state_on(node).is_some() => {
                self.apply_verdict(node, &stripe, index, &known, problem.as_ref());
            }
            _ => {}
        }
        if is_good {
            self.drop_copies_besides(node, &stripe, index);
        }
        let is_bad = problem.as_ref().and_then(state_for).is_some();
        self.looked(number, node, Some(index), still.then_some(is_good).filter(|good| *good || is_bad));
        if scrub {
            self.count_in_scrub(node, number, &stripe, &known, problem.filter(|_| still));
        } else {
            self.recheck_next(node);
        }
    }

    pub(crate) fn take_ask(&mut self, node: NodeId, number: u64) -> Option<Question> {
        if self.stripes.asks.get(&number)?.node != node {
            return None;
        }
        self.stripes.asks.remove(&number)
    }

    pub(crate) fn take_listed(&mut self, node: NodeId, number: u64, blocks: &[HeldBlock]) {
        if self.take_ask(node, number).is_some() {
            self.note_orphans(node, blocks);
            self.listed_in_scrub(node);
        }
    }

    /// A helper cannot say what it holds: the scrub goes on without its list.
    pub(crate) fn take_unlisted(&mut self, node: NodeId, number: u64, problem: &StoreProblem) {
        if self.take_ask(node, number).is_some() {
            tracing::warn!(node = %self.nodes.name(node), %problem, "cannot list the blocks of a helper");
            self.unlisted_in_scrub(node, format!("it cannot list its blocks: {problem}"));
        }
    }

    /// Has a block looked at that could not be read for a reason that says nothing of it.
    pub(crate) fn look_again(
        &mut self,
        node: NodeId,
        stripe: StripeId,
        index: BlockIndex,
        known: BlockRecord,
    ) {
        let is_this = |ask: &Question| {
            let same = matches!(&ask.subject, Subject::Block { known: other, .. } if other.id == known.id);
            same && ask.node == node
        };
        if !self.stripes.asks.values().any(is_this) && self.nodes.peers.contains_key(&node) {
            self.ask_for_block(node, stripe, index, known, false);
        }
    }

    pub(crate) fn apply_verdict(
        &mut self,
        node: NodeId,
        stripe: &StripeId,
        index: BlockIndex,
        known: &BlockRecord,
        problem: Option<&BlockProblem>,
    ) {
        let Some(state) = problem.map_or(Some(BlockState::Healthy), state_for) else { return };
        if [Some(state), Some(BlockState::NotStored)].contains(&known.state_on(node)) {
            return;
        }
        if let Some(problem) = problem {
            self.remember_loss(node, &known.id, problem.to_string());
        }
        self.store_states(vec![(stripe.clone(), index, node, state)]);
    }

    pub(crate) fn note_loss(&mut self, node: NodeId, block: &BlockId, state: BlockState) {
        let problem = if state == BlockState::Missing { "missing" } else { "of another length" };
        self.remember_loss(node, block, problem.to_owned());
    }

    /// Remembers a bad block for the status.
    pub(crate) fn remember_loss(&mut self, node: NodeId, block: &BlockId, problem: String) {
        self.note_bad(node, block, &problem);
        let node = self.nodes.name(node);
        tracing::warn!(%block, %node, problem, "a block is bad");
        if self.stripes.lost_lately.len() == super::LOST_REMEMBERED {
            self.stripes.lost_lately.pop_front();
        }
        self.stripes.lost_lately.push_back(views::LostBlock {
            block: block.to_string(),
            node,
            problem,
            at_unix_ms: self.base.unix_ms,
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
