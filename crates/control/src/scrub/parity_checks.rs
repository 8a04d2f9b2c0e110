//! Parity checks of whole stripes. Each helper computes fingerprints of its blocks, and the stripe's
//! equations are evaluated on the fingerprints (`repair::stripe_parity`). No block is transferred.
//!
//! Helpers see a check as a job, although it has no plan. Unreadable blocks are omitted. A contradiction must
//! be confirmed by a second reading with another seed. Afterwards, the blocks that took part and have
//! cryptographic digests are read in full. A stripe whose record has changed in the meantime gets no verdict.
//!
//! **Invariant:** a helper reads for at most one check at a time. No block is named as wrong while another one of
//! the stripe does not match its cryptographic digest.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use codes::{BlockIndex, Code};
use repair::wire::control::ToNode;
use repair::{
    BlockId, BlockProblem, Chunking, Digest, Epoch, Fingerprint, JobId, LocalBlock, NodeId, Report, Strength,
    StripeId, StripeParity, longest_caps, stripe_parity,
};
use store_api::StripeRecord;

use crate::helper_queries::{other_digest, patience, state_for};

/// The origin of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asker {
    /// A scrub on request (`mend scrub --parity`).
    Scrub,
    /// The background scrub.
    Background,
    /// A job that found a contradiction.
    Job,
    /// The checks of all stripes after the catalog was rebuilt or restored.
    Proof,
    /// The checks of stripes whose digests the store doubts.
    Distrust,
}

/// A stripe to check.
pub(crate) struct Subject {
    pub asker: Asker,
    pub record: StripeRecord,
    pub code: Arc<dyn Code>,
    pub chunking: Chunking,
    /// The readable blocks and their nodes.
    pub readable: BTreeMap<BlockIndex, (NodeId, LocalBlock)>,
}

impl Subject {
    /// Returns the readable blocks with cryptographic digests.
    fn with_strong_digests(&self) -> BTreeSet<BlockIndex> {
        let is_strong =
            |block: &LocalBlock| block.digest.is_some_and(|digest| digest.strength() == Strength::Digest);
        let strong = self.readable.iter().filter(|(_, (_, block))| is_strong(block));
        strong.map(|(&index, _)| index).collect()
    }
}

/// A finished check.
pub(crate) struct Checked {
    pub asker: Asker,
    /// The record of the stripe when the check started.
    pub record: StripeRecord,
    /// The blocks that were read, and their nodes.
    pub read: BTreeMap<BlockIndex, NodeId>,
    /// The blocks that could not be read, and the reasons.
    pub unread: Vec<(BlockIndex, NodeId, BlockProblem)>,
    pub verdict: Verdict,
}

impl Checked {
    /// Returns the node that was asked for a block. A block of the first reading may be unread in the second.
    pub(crate) fn asked(&self, index: BlockIndex) -> Option<NodeId> {
        let unread = self.unread.iter().find(|(of, ..)| *of == index);
        self.read.get(&index).copied().or(unread.map(|&(_, node, _)| node))
    }
}

/// The result of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The result of the reading, confirmed by a second reading and by full reads where needed.
    Parity(StripeParity),
    /// The first reading found a contradiction, and the second did not.
    Unsettled,
    /// Parity failed, and full reads found some of the blocks bad. The check says nothing about the others.
    BadBlocks,
}

/// The answers that a check waits for.
enum Stage {
    /// The fingerprints of the first reading.
    First,
    /// The fingerprints of the second reading, after this result of the first.
    Second { before: StripeParity },
    /// The digests of the `waiting` blocks, read in full, after this result of both readings of `all` blocks.
    FullReads { found: StripeParity, all: BTreeSet<BlockIndex>, waiting: BTreeSet<BlockIndex> },
}

struct Check {
    subject: Subject,
    stage: Stage,
    /// The number of the current reading, from 0.
    reading: u32,
    seed: u64,
    answers: BTreeMap<BlockIndex, Vec<Fingerprint>>,
    unread: Vec<(BlockIndex, NodeId, BlockProblem)>,
    until: Duration,
    /// The latest time to which reports of caps extend the current reading.
    latest: Duration,
}

/// An action that a check requires.
pub(crate) enum Step {
    Tell(NodeId, ToNode),
    End(Box<Checked>),
}

/// The running checks.
#[derive(Default)]
pub(crate) struct ParityChecks {
    open: BTreeMap<JobId, Check>,
}

impl ParityChecks {
    /// Starts a check. Returns the messages for helpers.
    pub(crate) fn begin(&mut self, job: JobId, subject: Subject, seed: u64, now: Duration) -> Vec<Step> {
        let mut check = Check {
            subject,
            stage: Stage::First,
            reading: 0,
            seed,
            answers: BTreeMap::new(),
            unread: Vec::new(),
            until: Duration::ZERO,
            latest: Duration::ZERO,
        };
        let steps = check.ask(job, now);
        self.open.insert(job, check);
        steps
    }

    /// Whether a node is reading for a check.
    pub(crate) fn occupies(&self, node: NodeId) -> bool {
        self.open.values().any(|check| check.asks(node))
    }

    /// Whether this job is a check.
    pub(crate) fn has(&self, job: JobId) -> bool {
        self.open.contains_key(&job)
    }

    /// Whether a stripe is being checked.
    pub(crate) fn has_stripe(&self, stripe: &StripeId) -> bool {
        self.open.values().any(|check| check.subject.record.id == *stripe)
    }

    /// Returns the number of running checks of one origin.
    pub(crate) fn open_for(&self, asker: Asker) -> usize {
        self.open.values().filter(|check| check.subject.asker == asker).count()
    }

    /// Cancels the checks of one origin. Returns the messages for helpers.
    pub(crate) fn give_up(&mut self, asker: Asker) -> Vec<Step> {
        let jobs = self.open.iter().filter(|(_, check)| check.subject.asker == asker);
        let jobs: Vec<JobId> = jobs.map(|(&job, _)| job).collect();
        jobs.into_iter().flat_map(|job| self.forget(job)).collect()
    }

    /// Handles a helper's report. `seed` yields the seed of a second reading, if one is needed.
    pub(crate) fn handle_report(
        &mut self,
        node: NodeId,
        (job, epoch): (JobId, Epoch),
        report: Report,
        seed: impl FnOnce() -> u64,
        now: Duration,
    ) -> Vec<Step> {
        let Some(check) = self.open.get_mut(&job).filter(|check| check.epoch() == epoch) else {
            return Vec::new();
        };
        match report {
            Report::Fingerprinted { block, seed, fingerprints } if seed == check.seed => {
                check.take(node, &block, fingerprints);
            }
            Report::Reread { block, digest } => check.take_digest(node, &block, digest),
            Report::BadBlock { block, problem } => check.leave_out_block(node, &block, problem),
            Report::Refused { why } => check.leave_out(node, &why.to_string()),
            Report::Limited if check.silent().contains(&node) => check.extend(now),
            _ => {}
        }
        self.go_on(job, seed, now)
    }

    /// Continues the checks without the blocks of a node that has disconnected.
    pub(crate) fn handle_node_lost(
        &mut self,
        node: NodeId,
        mut seed: impl FnMut() -> u64,
        now: Duration,
    ) -> Vec<Step> {
        let mut steps = Vec::new();
        for job in self.open.keys().copied().collect::<Vec<_>>() {
            self.open.get_mut(&job).expect("just listed").leave_out(node, "it is down");
            steps.extend(self.go_on(job, &mut seed, now));
        }
        steps
    }

    /// Continues the checks without helpers that have exceeded the time limit.
    pub(crate) fn handle_tick(&mut self, mut seed: impl FnMut() -> u64, now: Duration) -> Vec<Step> {
        let mut steps = Vec::new();
        let late = self.open.iter().filter(|(_, check)| check.until <= now);
        for job in late.map(|(&job, _)| job).collect::<Vec<_>>() {
            let check = self.open.get_mut(&job).expect("just listed");
            check.silent().into_iter().for_each(|node| check.leave_out(node, "it does not answer"));
            steps.extend(self.go_on(job, &mut seed, now));
        }
        steps
    }

    /// Evaluates a complete reading. Starts the next one, or ends the check.
    fn go_on(&mut self, job: JobId, seed: impl FnOnce() -> u64, now: Duration) -> Vec<Step> {
        let Some(check) = self.open.get_mut(&job).filter(|check| check.silent().is_empty()) else {
            return Vec::new();
        };
        let Some(verdict) = check.evaluate(seed) else { return check.ask(job, now) };
        let read = check.read();
        let mut steps = Vec::new();
        steps.extend(check.told().map(|node| Step::Tell(node, ToNode::Forget { job })));
        let Check { subject, unread, .. } = self.open.remove(&job).expect("the check is open");
        let checked = Checked { asker: subject.asker, record: subject.record, read, unread, verdict };
        steps.push(Step::End(Box::new(checked)));
        steps
    }

    pub(crate) fn forget(&mut self, job: JobId) -> Vec<Step> {
        let check = self.open.remove(&job);
        let told = check.iter().flat_map(Check::told).map(|node| Step::Tell(node, ToNode::Forget { job }));
        told.collect()
    }
}

/// Returns the verdict of two readings. If they do not agree on the wrong blocks, neither is trusted: the blocks
/// that they name count as contradictory.
fn confirmed(before: StripeParity, found: StripeParity) -> Verdict {
    use StripeParity::{Contradictory, Wrong};
    Verdict::Parity(match (before, found) {
        (before, found) if before == found => found,
        (Wrong(a) | Contradictory(a), Wrong(b) | Contradictory(b)) => {
            Contradictory(a.union(&b).copied().collect())
        }
        (_, StripeParity::Unknown) => StripeParity::Unknown,
        _ => return Verdict::Unsettled,
    })
}

/// Whether some equations fail.
fn fails(parity: &StripeParity) -> bool {
    matches!(parity, StripeParity::Wrong(_) | StripeParity::Contradictory(_))
}

impl Check {
    /// Evaluates a complete reading. Returns `None` if another reading must follow.
    fn evaluate(&mut self, seed: impl FnOnce() -> u64) -> Option<Verdict> {
        match std::mem::replace(&mut self.stage, Stage::First) {
            Stage::First => {
                let found = self.parity();
                if !fails(&found) {
                    return Some(Verdict::Parity(found));
                }
                self.stage = Stage::Second { before: found };
                self.seed = seed();
                self.answers.clear();
            }
            Stage::Second { before } => {
                let waiting = self.subject.with_strong_digests();
                match confirmed(before, self.parity()) {
                    Verdict::Parity(found) if fails(&found) && !waiting.is_empty() => {
                        let all = self.subject.readable.keys().copied().collect();
                        self.stage = Stage::FullReads { found, all, waiting };
                    }
                    verdict => return Some(verdict),
                }
            }
            Stage::FullReads { found, all, .. } => return Some(self.judge(found, all)),
        }
        self.reading += 1;
        None
    }

    fn parity(&self) -> StripeParity {
        stripe_parity(&*self.subject.code, &self.answers)
    }

    /// Returns the verdict after full reads: `found` by parity over `all` blocks. A block that was not read in full may be
    /// wrong too, so the others must show by themselves which block is wrong.
    fn judge(&self, found: StripeParity, all: BTreeSet<BlockIndex>) -> Verdict {
        let mut left_out = self.unread.iter().filter(|(index, ..)| all.contains(index)).peekable();
        let is_complete = left_out.peek().is_none();
        if left_out.any(|(.., problem)| state_for(problem).is_some()) {
            return Verdict::BadBlocks;
        }
        Verdict::Parity(match found {
            StripeParity::Wrong(wrong) if !is_complete && !self.others_show(&wrong) => {
                StripeParity::Contradictory(all)
            }
            found => found,
        })
    }

    /// Whether the blocks that were read in full show that these blocks are wrong.
    fn others_show(&self, wrong: &BTreeSet<BlockIndex>) -> bool {
        let is_unread = |index: &BlockIndex| self.unread.iter().any(|(unread, ..)| unread == index);
        match self.parity() {
            StripeParity::Wrong(again) => again == *wrong,
            StripeParity::Holds { .. } => wrong.iter().all(is_unread),
            StripeParity::Unknown | StripeParity::Contradictory(_) => false,
        }
    }
}

impl Check {
    fn epoch(&self) -> Epoch {
        Epoch(self.reading)
    }

    fn asks(&self, node: NodeId) -> bool {
        self.subject.readable.values().any(|&(asked, _)| asked == node)
    }

    /// Returns all nodes that received messages for this check.
    fn told(&self) -> impl Iterator<Item = NodeId> + use<> {
        let asked = self.subject.readable.values().map(|&(node, _)| node);
        let nodes: BTreeSet<NodeId> = asked.chain(self.unread.iter().map(|&(_, node, _)| node)).collect();
        nodes.into_iter()
    }

    pub(crate) fn read(&self) -> BTreeMap<BlockIndex, NodeId> {
        self.subject.readable.iter().map(|(&index, &(node, _))| (index, node)).collect()
    }

    /// Whether the answer about a block is due.
    fn awaits(&self, index: BlockIndex) -> bool {
        match &self.stage {
            Stage::First | Stage::Second { .. } => !self.answers.contains_key(&index),
            Stage::FullReads { waiting, .. } => waiting.contains(&index),
        }
    }

    /// Returns the nodes that have not answered completely.
    fn silent(&self) -> BTreeSet<NodeId> {
        let waited = self.subject.readable.iter().filter(|&(&index, _)| self.awaits(index));
        waited.map(|(_, &(node, _))| node).collect()
    }

    fn ask(&mut self, job: JobId, now: Duration) -> Vec<Step> {
        self.until = now + self.patience();
        self.latest = self.until + longest_caps(self.bytes());
        let (epoch, chunking, seed) = (self.epoch(), self.subject.chunking, self.seed);
        let window = (0, chunking.sub_block_bytes());
        let question = |block: LocalBlock| match &self.stage {
            Stage::First | Stage::Second { .. } => {
                ToNode::Fingerprint { job, epoch, block, chunking, window, seed }
            }
            Stage::FullReads { .. } => ToNode::Reread { job, epoch, block: block.id, digest: block.digest },
        };
        let asked = self.subject.readable.iter().filter(|&(&index, _)| self.awaits(index));
        asked.map(|(_, (node, block))| Step::Tell(*node, question(block.clone()))).collect()
    }

    /// Restarts the time limit, because a cap throttles a node that owes answers. A node that claims this for too long
    /// is left out, because its other checks wait meanwhile.
    fn extend(&mut self, now: Duration) {
        self.until = self.until.max(self.latest.min(now + self.patience()));
    }

    /// Returns the time limit for the answers. One node may have several blocks and reads them one after the other.
    fn patience(&self) -> Duration {
        patience(self.bytes())
    }

    fn bytes(&self) -> u64 {
        self.subject.readable.values().map(|(_, block)| block.bytes).sum()
    }

    fn take(&mut self, node: NodeId, block: &BlockId, fingerprints: Vec<Fingerprint>) {
        let is_whole = fingerprints.len() == self.subject.code.sub_blocks()
            && fingerprints.iter().all(Fingerprint::is_whole);
        match self.index_of(node, block) {
            Some(index) if is_whole => drop(self.answers.insert(index, fingerprints)),
            Some(index) => {
                let problem = BlockProblem::Unavailable("its fingerprints have the wrong size".to_owned());
                self.drop_block(index, problem);
            }
            None => {}
        }
    }

    /// Handles the digest of a block that was read in full.
    fn take_digest(&mut self, node: NodeId, block: &BlockId, digest: Option<Digest>) {
        let Some(index) = self.index_of(node, block) else { return };
        let Stage::FullReads { waiting, .. } = &mut self.stage else { return };
        let recorded = self.subject.readable[&index].1.digest;
        if !waiting.remove(&index) || digest == recorded {
            return;
        }
        let problem = match digest {
            None => BlockProblem::Unavailable("its helper has no digest of it at the moment".to_owned()),
            Some(_) => BlockProblem::Corrupt(other_digest(recorded, digest)),
        };
        self.drop_block(index, problem);
    }

    /// Returns the index of a block that this node was asked for. Answers about blocks of other nodes are
    /// ignored.
    fn index_of(&self, node: NodeId, block: &BlockId) -> Option<BlockIndex> {
        let mut asked = self.subject.readable.iter();
        asked.find(|(_, (at, asked))| *at == node && asked.id == *block).map(|(&index, _)| index)
    }

    fn leave_out_block(&mut self, node: NodeId, block: &BlockId, problem: BlockProblem) {
        if let Some(index) = self.index_of(node, block) {
            self.drop_block(index, problem);
        }
    }

    /// Omits the blocks about which a node has not answered.
    fn leave_out(&mut self, node: NodeId, why: &str) {
        let open = self.subject.readable.iter().filter(|&(&index, _)| self.awaits(index));
        let of_node = open.filter(|(_, (at, _))| *at == node).map(|(&index, _)| index);
        for index in of_node.collect::<Vec<_>>() {
            self.drop_block(index, BlockProblem::Unavailable(why.to_owned()));
        }
    }

    fn drop_block(&mut self, index: BlockIndex, problem: BlockProblem) {
        if let Some((node, _)) = self.subject.readable.remove(&index) {
            self.answers.remove(&index);
            self.unread.push((index, node, problem));
        }
    }
}
