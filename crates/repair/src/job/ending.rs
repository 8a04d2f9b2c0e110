//! From the last slice to a published block: prove, commit, read back.
//!
//! ```text
//!  Proving ─▶ Committing ─▶ Rereading ─▶ done
//! ```
//!
//! Two proofs run at once: requestors make the deliveries durable and report their digests, and survivors
//! send fingerprints for the parity check. A client's read, which is not published, has only the parity
//! check. An ending makes no plans: if it finds a problem, it returns a [`Turn`], and the job decides what to
//! deliver again.
//!
//! If nothing but the recorded digest of a parity block is against a delivery, the digest itself may be wrong,
//! because the helper that stated it lied. Such a digest is overruled only after the survivors were read back
//! ([`Step::Confirming`]).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use codes::BlockIndex;

use super::check::{Fault, Verdict};
use super::proof::Proof;
use super::trust::{Trust, Wrong, culprit};
use super::work::{Goal, Work};
use super::{BlockProblem, JobAction, JobPhase, ParityOutcome, Report};
use crate::limits::longest_caps;
use crate::wire::control::ToNode;
use crate::{BlockId, Digest, NodeId, Strength, StripeBlock, Topology};

/// Time limit for each step of the ending: proving, committing and rereading. While proving or rereading, the
/// limit starts again whenever an awaited node reports that a cap throttles its reads, up to [`longest_caps`].
const DISK_LIMIT: Duration = Duration::from_secs(120);
/// Time limit for parity answers before other nodes are asked: this constant plus the time to read the block
/// at [`SLOW_DISK`] bytes per second.
const CHECK_LIMIT: Duration = Duration::from_secs(2);
const SLOW_DISK: f64 = 5e6;
/// The longest time that a store may take to accept a block, whatever the node announces.
const MAX_HAND_OVER: Duration = Duration::from_secs(3600);

/// The last phase of a job, once the deliveries are complete.
#[derive(Debug)]
pub(super) struct Ending {
    step: Step,
    /// The time at which the current step is given up; extended when an awaited node reports that a cap throttles it.
    until: Duration,
    /// The latest time to which reports of caps extend the current step.
    latest: Duration,
    parity: ParityOutcome,
    /// Blocks proven to belong to one stripe, including the published ones; empty for a read.
    proven: BTreeSet<BlockIndex>,
    /// Whether the job itself has reported that blocks contradict each other.
    has_reported: bool,
    /// Nodes that did not read their survivors back. Until the check begins anew, it goes without these survivors.
    unread: BTreeSet<NodeId>,
}

#[derive(Debug)]
enum Step {
    /// Waits until the nodes in `sealing` have made their deliveries durable and the parity check `check` is
    /// complete.
    Proving {
        sealing: BTreeSet<NodeId>,
        check: Option<Check>,
    },
    /// Waits until survivors are read back, because parity contradicts recorded digests. The bytes of each
    /// survivor must have its own recorded digest.
    Confirming {
        waiting: BTreeMap<BlockIndex, NodeId>,
        check: Check,
    },
    Committing {
        waiting: BTreeSet<NodeId>,
    },
    Rereading {
        waiting: BTreeSet<BlockIndex>,
    },
}

/// A parity check that is waiting for answers.
#[derive(Debug)]
struct Check {
    proof: Proof,
    /// The time at which the job asks other nodes instead of those that have not answered.
    until: Duration,
}

/// The job's next action after a step of its ending.
#[derive(Debug)]
pub(super) enum Turn {
    /// Nothing; the ending continues.
    On,
    /// The ending is complete and successful.
    Done,
    /// The delivered blocks are wrong, and the culprit is unknown.
    Wrong(Wrong),
    /// A requestor cannot continue.
    RequestorFailed { node: NodeId, reason: String },
    /// A published block reads back with different contents.
    ReadsBackWrong { node: NodeId, block: BlockId, problem: BlockProblem },
    /// A survivor that agrees with parity reads back with another digest than the recorded one.
    SurvivorReadsBackWrong { block: BlockId, problem: BlockProblem },
    /// The delivered blocks must be proven by parity, and too few other blocks are left for that.
    Unprovable,
    /// No answer arrived in time.
    Late,
}

/// Read-only context of an ending.
#[derive(Clone, Copy)]
pub(super) struct EndingContext<'job> {
    pub(super) trust: &'job Trust,
    pub(super) topology: &'job Topology,
    pub(super) now: Duration,
}

impl Ending {
    /// Starts the ending after the last delivery. `parity` is the outcome of an earlier ending that was
    /// interrupted; `ahead` is a check that began while slices were still moving.
    pub(super) fn begin(
        work: &mut Work,
        parity: ParityOutcome,
        ahead: Option<Proof>,
        scene: EndingContext<'_>,
    ) -> (Self, Turn) {
        work.take_back_commits();
        let sealing = if work.publish { uncommitted(work) } else { BTreeSet::new() };
        let (job, epoch) = (work.id, work.epoch);
        sealing.iter().for_each(|&node| work.tell(node, ToNode::Seal { job, epoch }));
        let step = Step::Proving { sealing, check: None };
        let mut ending = Self {
            step,
            until: scene.now + DISK_LIMIT,
            latest: scene.now + DISK_LIMIT + longest_caps(work.stripe.block_bytes()),
            parity,
            proven: BTreeSet::new(),
            has_reported: false,
            unread: BTreeSet::new(),
        };
        let turn = ending.begin_check(ahead, work, scene);
        (ending, turn)
    }

    /// The outcome of the parity check so far.
    pub(super) fn parity(&self) -> ParityOutcome {
        self.parity
    }

    /// Blocks proven to belong to one stripe, including the published ones; empty for a read.
    pub(super) fn proven(&self) -> &BTreeSet<BlockIndex> {
        &self.proven
    }

    /// Starts a new check that asks every survivor, because another job or a scrub found that blocks of the
    /// stripe contradict each other.
    pub(super) fn hear_of_contradiction(&mut self, work: &mut Work, scene: EndingContext<'_>) -> Turn {
        // An equation that held before proves nothing about the blocks as they are now.
        if !self.has_reported {
            self.proven.clear();
        }
        self.begin_check(None, work, scene)
    }

    pub(super) fn phase(&self) -> JobPhase {
        match &self.step {
            Step::Proving { sealing, .. } if sealing.is_empty() => JobPhase::CheckingParity,
            Step::Proving { .. } => JobPhase::MakingDurable,
            Step::Confirming { .. } => JobPhase::CheckingParity,
            Step::Committing { .. } => JobPhase::Publishing,
            Step::Rereading { .. } => JobPhase::ReadingBack,
        }
    }

    /// The nodes whose stores may be accepting a block right now.
    pub(super) fn committing(&self) -> Option<&BTreeSet<NodeId>> {
        match &self.step {
            Step::Committing { waiting } => Some(waiting),
            _ => None,
        }
    }

    pub(super) fn handle_report(
        &mut self,
        node: NodeId,
        report: Report,
        work: &mut Work,
        scene: EndingContext<'_>,
    ) -> Turn {
        match (&mut self.step, report) {
            (Step::Proving { sealing, .. }, Report::Sealed { digests, hand_over_ms }) => {
                if !sealing.remove(&node) {
                    return Turn::On;
                }
                take_sealed(work, node, &digests, Duration::from_millis(hand_over_ms.into()));
                self.after_proof(work, scene)
            }
            (
                Step::Proving { check: Some(check), .. },
                Report::Fingerprinted { block, seed, fingerprints },
            ) => {
                check.proof.take(node, &block, seed, fingerprints);
                self.after_proof(work, scene)
            }
            (Step::Committing { waiting }, Report::Committed) => {
                if !waiting.remove(&node) {
                    return Turn::On;
                }
                work.publish_at(node);
                self.after_commit(work, scene.now)
            }
            (Step::Confirming { .. }, Report::Reread { block, digest }) => {
                self.take_survivor(node, &block, digest, work, scene)
            }
            (_, Report::Limited) => {
                if self.awaits_reads(node, work) {
                    self.extend(work, scene.now);
                }
                Turn::On
            }
            (Step::Rereading { waiting }, Report::Reread { block, digest }) => {
                take_reread(waiting, node, &block, digest, work)
            }
            (
                Step::Proving { sealing: waiting, .. } | Step::Committing { waiting },
                Report::Refused { why },
            ) if waiting.contains(&node) => Turn::RequestorFailed { node, reason: why.to_string() },
            (Step::Proving { check: Some(check), .. }, Report::Refused { why })
                if work.is_requestor(node) && check.proof.asks(node) =>
            {
                Turn::RequestorFailed { node, reason: why.to_string() }
            }
            (Step::Confirming { waiting, .. }, Report::Refused { .. })
                if waiting.values().any(|&reader| reader == node) =>
            {
                self.confirm_without(BTreeSet::from([node]), work, scene)
            }
            _ => Turn::On,
        }
    }

    /// Whether the current step waits for reads of a node, or for a seal, which may wait for earlier reads.
    fn awaits_reads(&self, node: NodeId, work: &Work) -> bool {
        match &self.step {
            Step::Proving { sealing, check } => {
                let owes = |check: &Check| check.proof.silent().contains(&node);
                sealing.contains(&node) || check.as_ref().is_some_and(owes)
            }
            Step::Confirming { waiting, .. } => waiting.values().any(|&reader| reader == node),
            Step::Rereading { waiting } => {
                work.goals.iter().any(|goal| goal.requestor == node && waiting.contains(&goal.block))
            }
            Step::Committing { .. } => false,
        }
    }

    /// Gives the current step more time, because a cap throttles an awaited node.
    fn extend(&mut self, work: &Work, now: Duration) {
        self.until = self.until.max(self.latest.min(now + DISK_LIMIT));
        if let Step::Proving { check: Some(check), .. } = &mut self.step {
            // Other nodes are asked before the step is given up.
            check.until = check.until.max((self.latest - DISK_LIMIT).min(now + check_limit(work)));
        }
    }

    /// Gives the current step this much time, plus the time by which caps may extend it.
    fn allow(&mut self, limit: Duration, work: &Work, now: Duration) {
        self.until = now + limit;
        self.latest = self.until + longest_caps(work.stripe.block_bytes());
    }

    /// Handles the loss of a node that is not a requestor.
    pub(super) fn handle_node_lost(
        &mut self,
        node: NodeId,
        work: &mut Work,
        scene: EndingContext<'_>,
    ) -> Turn {
        let is_asked = match &self.step {
            Step::Proving { check: Some(check), .. } => check.proof.asks(node),
            Step::Confirming { waiting, .. } => waiting.values().any(|&reader| reader == node),
            _ => false,
        };
        match is_asked {
            true => {
                work.replanned.push(format!(
                    "{} disconnected during the parity check; asking other nodes",
                    scene.topology.name(node)
                ));
                self.begin_check(None, work, scene)
            }
            false => Turn::On,
        }
    }

    /// Handles the loss of a block that is not delivered by this job, because the parity check reads it. The
    /// deliveries are complete, so only the check begins again.
    pub(super) fn handle_block_lost(
        &mut self,
        why: String,
        work: &mut Work,
        scene: EndingContext<'_>,
    ) -> Turn {
        match &self.step {
            Step::Proving { check: Some(_), .. } | Step::Confirming { .. } => {
                work.replanned.push(format!("{why}; checking parity with other blocks"));
                self.begin_check(None, work, scene)
            }
            _ => Turn::On,
        }
    }

    pub(super) fn handle_tick(&mut self, work: &mut Work, scene: EndingContext<'_>) -> Turn {
        self.ask_others(work, scene);
        match &self.step {
            _ if scene.now < self.until => Turn::On,
            Step::Proving { sealing: waiting, .. } | Step::Committing { waiting } if !waiting.is_empty() => {
                let node = *waiting.first().expect("the set is not empty");
                Turn::RequestorFailed { node, reason: "its disk does not answer".into() }
            }
            Step::Proving { check: Some(check), .. } => {
                let silent = check.proof.silent();
                match silent.iter().find(|node| work.is_requestor(**node)) {
                    Some(&node) => {
                        Turn::RequestorFailed { node, reason: "it does not answer the parity check".into() }
                    }
                    None => Turn::Late,
                }
            }
            Step::Confirming { waiting, .. } => {
                let silent = waiting.values().copied().collect();
                self.confirm_without(silent, work, scene)
            }
            _ => Turn::Late,
        }
    }

    /// Begins the parity check again without the survivors on these nodes, because the nodes did not read them back.
    /// A node may answer with fingerprints and yet be unable to read a whole block.
    fn confirm_without(
        &mut self,
        readers: BTreeSet<NodeId>,
        work: &mut Work,
        scene: EndingContext<'_>,
    ) -> Turn {
        let names: Vec<String> = readers.iter().map(|&node| scene.topology.name(node)).collect();
        self.unread.extend(readers);
        let Some(proof) = self.proof_without(&BTreeSet::new(), work, scene) else { return Turn::Late };
        work.replanned.push(format!(
            "{} did not read back the survivors there; checking parity with other blocks",
            names.join(", ")
        ));
        self.step = Step::Proving { sealing: BTreeSet::new(), check: None };
        self.wait_for(proof, work, scene.now);
        Turn::On
    }

    /// Creates a parity check that asks neither the nodes in `silent` nor those that did not read survivors back.
    fn proof_without(
        &self,
        silent: &BTreeSet<NodeId>,
        work: &Work,
        scene: EndingContext<'_>,
    ) -> Option<Proof> {
        let check = scene.trust.parity_check(work, scene.topology, &(silent | &self.unread))?;
        Some(Proof::of_all(check, work))
    }

    /// If some nodes have not answered the parity check in time, asks other nodes instead, provided that the
    /// check is possible without the silent ones. A node may be alive while its disk hangs.
    fn ask_others(&mut self, work: &mut Work, scene: EndingContext<'_>) {
        let Step::Proving { check: Some(check), .. } = &mut self.step else { return };
        if scene.now < check.until {
            return;
        }
        check.until = Duration::MAX;
        let silent = check.proof.silent();
        let avoided = work.policy.avoid.clone();
        work.policy.avoid.extend(&silent);
        let anew = self.proof_without(&silent, work, scene);
        let Some(proof) = anew.filter(|proof| !silent.iter().any(|&node| proof.asks(node))) else {
            // No other nodes can answer, so keep waiting for the silent ones.
            work.policy.avoid = avoided;
            return;
        };
        let names: Vec<String> = silent.iter().map(|&node| scene.topology.name(node)).collect();
        work.replanned.push(format!(
            "{} did not answer the parity check in time; asking other nodes",
            names.join(", ")
        ));
        self.wait_for(proof, work, scene.now);
    }

    fn wait_for(&mut self, mut proof: Proof, work: &mut Work, now: Duration) {
        let Step::Proving { check, .. } = &mut self.step else { return };
        proof.ask_rest(work);
        *check = Some(Check { proof, until: now + check_limit(work) });
        self.allow(DISK_LIMIT, work, now);
    }

    /// Starts the parity check, if one was requested or is needed.
    fn begin_check(&mut self, ahead: Option<Proof>, work: &mut Work, scene: EndingContext<'_>) -> Turn {
        if let Step::Confirming { .. } = self.step {
            self.step = Step::Proving { sealing: BTreeSet::new(), check: None };
        }
        let Step::Proving { check: open, .. } = &mut self.step else { return Turn::On };
        *open = None;
        self.unread.clear();
        let is_due = work.verify.parity || work.verify.proven || scene.trust.needs_parity(work);
        if is_due && !work.goals.iter().all(|goal| goal.committed) {
            let anew = || self.proof_without(&BTreeSet::new(), work, scene);
            match ahead.filter(|ahead| ahead.can_go_on(scene.topology)).or_else(anew) {
                None if scene.trust.needs_parity(work) => return Turn::Wrong(unknowable()),
                None if work.verify.proven && scene.trust.is_rebuilt(work) => return Turn::Unprovable,
                None => self.parity = ParityOutcome::NoSpareBlock,
                Some(proof) => self.wait_for(proof, work, scene.now),
            }
        }
        self.after_proof(work, scene)
    }

    fn after_proof(&mut self, work: &mut Work, scene: EndingContext<'_>) -> Turn {
        let Step::Proving { sealing, check } = &self.step else { return Turn::On };
        let verdict = check.as_ref().map(|check| check.proof.verdict());
        if let (Some(Some(Verdict::Differs(fault))), Some(check)) = (verdict, check)
            && !work.is_proven_by_digests()
        {
            return Turn::Wrong(breaks_parity(fault, check, work));
        }
        // Wait for all seals and for the survivors' answers: the answers decide what to suspect if a digest
        // is wrong.
        if !sealing.is_empty() || verdict == Some(None) {
            return Turn::On;
        }
        let wrong: Vec<&Goal> =
            work.goals.iter().filter(|goal| work.publish && differs(goal, work)).collect();
        if !wrong.is_empty() {
            return match survivors_to_read(&wrong, check.as_ref(), work, scene.trust) {
                Some(waiting) => self.confirm(waiting, work, scene.now),
                None => Turn::Wrong(wrong_digest(&wrong, verdict.flatten(), check.as_ref(), work)),
            };
        }
        self.take_proof(work, scene);
        self.commit(work, scene.now)
    }

    /// Has survivors read back, because parity contradicts recorded digests.
    fn confirm(&mut self, waiting: BTreeMap<BlockIndex, NodeId>, work: &mut Work, now: Duration) -> Turn {
        let Step::Proving { check, .. } = &mut self.step else { return Turn::On };
        let Some(check) = check.take() else { return Turn::On };
        let (job, epoch) = (work.id, work.epoch);
        for (&block, &node) in &waiting {
            let StripeBlock { id: block, digest, .. } = work.stripe.block(block).clone();
            work.touched.insert(node);
            work.tell(node, ToNode::Reread { job, epoch, block, digest });
        }
        self.allow(DISK_LIMIT + check_limit(work), work, now);
        self.step = Step::Confirming { waiting, check };
        Turn::On
    }

    /// Handles the digest of a survivor that was read back. After the last one, the digests of the deliveries
    /// take the place of the recorded ones.
    fn take_survivor(
        &mut self,
        node: NodeId,
        block: &BlockId,
        digest: Option<Digest>,
        work: &mut Work,
        scene: EndingContext<'_>,
    ) -> Turn {
        let Step::Confirming { waiting, .. } = &mut self.step else { return Turn::On };
        let asked = waiting.iter().find(|&(&index, &reader)| reader == node && work.id_of(index) == block);
        let Some(index) = asked.map(|(&index, _)| index) else { return Turn::On };
        if digest != work.stripe.block(index).digest {
            let problem = BlockProblem::Corrupt("reads back different bytes".into());
            return Turn::SurvivorReadsBackWrong { block: block.clone(), problem };
        }
        waiting.remove(&index);
        if !waiting.is_empty() {
            return Turn::On;
        }
        work.confirm_digests();
        let proving = |check| Step::Proving { sealing: BTreeSet::new(), check };
        if let Step::Confirming { check, .. } = std::mem::replace(&mut self.step, proving(None)) {
            self.step = proving(Some(check));
        }
        self.after_proof(work, scene)
    }

    /// Called when the deliveries are known to be correct. Records what this proves about the blocks from
    /// which they were made, and about other blocks.
    fn take_proof(&mut self, work: &mut Work, scene: EndingContext<'_>) {
        let Step::Proving { check, .. } = &self.step else { return };
        let mut contradicting = scene.trust.contradicting().clone();
        match check.as_ref().map(|check| (check.proof.verdict(), check.proof.survivors())) {
            Some((Some(Verdict::Holds), survivors)) => {
                tell_of_left_out(work, scene.trust, &survivors);
                (self.parity, self.proven) = (ParityOutcome::Holds, survivors);
            }
            Some((Some(Verdict::Differs(fault)), survivors)) => {
                self.parity = ParityOutcome::Overruled;
                let mut blocks = survivors;
                match fault {
                    Fault::Survivor => contradicting.extend(&blocks),
                    // Some block is wrong here too, or a requestor sent false fingerprints.
                    Fault::Delivery | Fault::Unknown => {
                        blocks.extend(work.goals.iter().map(|goal| goal.block))
                    }
                }
                work.actions.push_back(JobAction::Contradicted { blocks });
            }
            _ => {}
        }
        self.has_reported =
            work.actions.iter().any(|action| matches!(action, JobAction::Contradicted { .. }));
        if !work.publish {
            // The blocks that a read delivers are at its client, so they prove nothing about any disk.
            return self.proven.clear();
        }
        if self.proven.is_empty() && work.is_proven_by_digests() {
            self.proven = scene.trust.proven_by_delivery(&work.stripe);
        }
        // A block may have changed since the delivery was made from it. So if equations fail, the delivery proves
        // something only if all blocks but one agree now.
        let code = &*work.stripe.code;
        let agree = |culprit: &BlockIndex| {
            check.as_ref().is_none_or(|check| check.proof.agrees_without(*culprit, code))
        };
        // Parity does not overrule a cryptographic digest before all blocks have been read in full. The coordinator does
        // so after the contradiction.
        let is_weak = |culprit: &BlockIndex| {
            let digest = work.stripe.block(*culprit).digest;
            digest.is_none_or(|digest| digest.strength() < Strength::Digest)
        };
        match culprit(&contradicting, &self.proven, &work.stripe).filter(agree) {
            Some(culprit) if is_weak(&culprit) => {
                let id = work.id_of(culprit).clone();
                work.lose_block(&id, &BlockProblem::ContradictsParity);
            }
            Some(_) => self.proven.clear(),
            None if self.parity == ParityOutcome::Overruled => self.proven.clear(),
            None => {}
        }
        if !self.proven.is_empty() {
            self.proven.extend(work.goals.iter().map(|goal| goal.block));
        }
        if !work.has_whole_blocks() {
            self.proven.clear();
        }
    }

    /// Commits the blocks, which makes them visible. A job that publishes nothing (a read) ends here instead.
    fn commit(&mut self, work: &mut Work, now: Duration) -> Turn {
        if !work.publish {
            return Turn::Done;
        }
        let waiting = uncommitted(work);
        work.tell_to_commit(&waiting);
        self.allow(DISK_LIMIT + work.hand_over_limit(&waiting), work, now);
        self.step = Step::Committing { waiting };
        self.after_commit(work, now)
    }

    fn after_commit(&mut self, work: &mut Work, now: Duration) -> Turn {
        if matches!(&self.step, Step::Committing { waiting } if !waiting.is_empty()) {
            return Turn::On;
        }
        if !work.verify.reread {
            return Turn::Done;
        }
        let asked = work
            .goals
            .iter()
            .map(|goal| (goal.requestor, work.id_of(goal.block).clone(), work.expected_digest(goal)));
        let (job, epoch) = (work.id, work.epoch);
        for (node, block, digest) in asked.collect::<Vec<_>>() {
            work.tell(node, ToNode::Reread { job, epoch, block, digest });
        }
        self.allow(DISK_LIMIT + work.hand_over_limit(&work.requestors()), work, now);
        self.step = Step::Rereading { waiting: work.goals.iter().map(|goal| goal.block).collect() };
        Turn::On
    }
}

/// Called when all equations hold without the block that was left out. Reports that this block contradicts
/// the others, unless the job replaces it.
fn tell_of_left_out(work: &mut Work, trust: &Trust, survivors: &BTreeSet<BlockIndex>) {
    let replaced = |block: &BlockIndex| work.publish && work.is_wanted(*block);
    if let Some(left_out) = trust.left_out().filter(|block| !replaced(block)) {
        let blocks = survivors.iter().copied().chain([left_out]).collect();
        work.actions.push_back(JobAction::Contradicted { blocks });
    }
}

/// The time limit for parity answers.
fn check_limit(work: &Work) -> Duration {
    let bytes = (work.window.end - work.window.start) * work.stripe.code.sub_blocks() as u64;
    CHECK_LIMIT + Duration::from_secs_f64(bytes as f64 / SLOW_DISK)
}

/// The requestors with deliveries that are not committed yet.
fn uncommitted(work: &Work) -> BTreeSet<NodeId> {
    work.goals.iter().filter(|goal| !goal.committed).map(|goal| goal.requestor).collect()
}

/// Whether a delivery was not sealed, or its digest differs from the recorded one.
fn differs(goal: &Goal, work: &Work) -> bool {
    let expected = work.expected_digest(goal);
    !goal.sealed || expected.is_some() && goal.digest != expected
}

/// The survivors to read back before parity overrules the recorded digests of these deliveries, with their
/// nodes; `None` if the evidence is too weak. There must be one survivor more than decoding needs, all of
/// them must agree with the deliveries, and their own digests must be at least as strong as the overruled ones.
fn survivors_to_read(
    wrong: &[&Goal],
    check: Option<&Check>,
    work: &Work,
    trust: &Trust,
) -> Option<BTreeMap<BlockIndex, NodeId>> {
    let proof = check.map(|check| &check.proof).filter(|proof| proof.verdict() == Some(Verdict::Holds))?;
    if !wrong.iter().all(|goal| is_refutable(goal, work, trust)) {
        return None;
    }
    let least = wrong.iter().filter_map(|goal| work.digest_strength(goal)).max();
    let survivors = proof.survivors().into_iter().filter(|&block| !work.is_wanted(block));
    let reader = |block: BlockIndex| {
        let survivor = work.stripe.block(block);
        let is_strong = survivor.digest.map(|digest| digest.strength()) >= least;
        Some((block, survivor.holder.filter(|_| is_strong)?))
    };
    let readers: BTreeMap<BlockIndex, NodeId> = survivors.map(reader).collect::<Option<_>>()?;
    (readers.len() > work.stripe.code.data_blocks()).then_some(readers)
}

/// Whether parity may overrule the recorded digest of a delivery. The digest of a data block was compared with
/// the client's file, so only digests of parity blocks are overruled. Another requestor must have received the
/// same bytes, because a single one can lie about them.
fn is_refutable(goal: &Goal, work: &Work, trust: &Trust) -> bool {
    let computed = work.stripe.code.encoding().outputs();
    work.verify.replaces_digests
        && work.has_whole_blocks()
        && goal.confirmed.is_none()
        && computed.iter().any(|sub_block| sub_block.block == goal.block)
        && trust.is_received_twice(goal)
}

/// The error for a stripe that needs a parity check but has too few blocks left for any equation.
fn unknowable() -> Wrong {
    Wrong {
        reason: "too few blocks are left to check the rebuilt ones".into(),
        by: Strength::Parity,
        fault: Fault::Unknown,
        contradicting: BTreeSet::new(),
        at: BTreeSet::new(),
        refuting: Vec::new(),
    }
}

/// The error for equations that fail.
fn breaks_parity(fault: Fault, check: &Check, work: &Work) -> Wrong {
    let survivors = if fault == Fault::Survivor { check.proof.survivors() } else { BTreeSet::new() };
    let reason = match fault {
        _ if work.is_put() => "the stored blocks break a parity equation",
        Fault::Survivor => {
            "the remaining blocks contradict each other: a parity equation over them does not hold"
        }
        Fault::Delivery => {
            "the remaining blocks agree with each other, but the rebuilt blocks do not match them"
        }
        Fault::Unknown => "the rebuilt blocks break a parity equation",
    };
    Wrong {
        reason: reason.into(),
        by: Strength::Parity,
        fault,
        contradicting: survivors,
        at: spoilers(check, work).unwrap_or_else(|| work.requestors()),
        refuting: Vec::new(),
    }
}

/// The requestors that received the wrong blocks of a put, if these blocks can be identified. Other jobs do not
/// ask enough blocks to tell a wrong delivery from a wrong survivor.
fn spoilers(check: &Check, work: &Work) -> Option<BTreeSet<NodeId>> {
    let wrong = if work.is_put() { check.proof.wrong_blocks(&*work.stripe.code) } else { BTreeSet::new() };
    let goals = work.goals.iter().filter(|goal| wrong.contains(&goal.block));
    let requestors: BTreeSet<NodeId> = goals.map(|goal| goal.requestor).collect();
    (!requestors.is_empty()).then_some(requestors)
}

/// The error for requestors that report other digests than the recorded ones; `verdict` is the result of the
/// parity check of these blocks.
fn wrong_digest(wrong: &[&Goal], verdict: Option<Verdict>, check: Option<&Check>, work: &Work) -> Wrong {
    let fault = match verdict {
        Some(Verdict::Differs(fault)) => fault,
        Some(Verdict::Holds) => Fault::Delivery,
        None => Fault::Unknown,
    };
    let survivors = check.filter(|_| fault == Fault::Survivor).map(|check| check.proof.survivors());
    let by = wrong.iter().filter_map(|goal| work.digest_strength(goal)).max();
    let refutes = |goal: &&Goal| Some((goal.block, goal.requestor, goal.digest?));
    let holds = verdict == Some(Verdict::Holds);
    Wrong {
        reason: format!("the rebuilt block {} differs from its recorded digest", work.id_of(wrong[0].block)),
        by: by.unwrap_or(Strength::Checksum),
        fault,
        contradicting: survivors.unwrap_or_default(),
        at: wrong.iter().map(|goal| goal.requestor).collect(),
        refuting: wrong.iter().filter(|_| holds).filter_map(refutes).collect(),
    }
}

/// Records that a requestor has made its deliveries durable.
fn take_sealed(work: &mut Work, node: NodeId, digests: &[(BlockId, Option<Digest>)], hand_over: Duration) {
    let blocks = &work.stripe.blocks;
    for goal in work.goals.iter_mut().filter(|goal| goal.requestor == node && !goal.committed) {
        let id = &blocks[usize::from(goal.block.0)].id;
        let told = digests.iter().find(|(block, _)| block == id);
        (goal.sealed, goal.digest) = (told.is_some(), told.and_then(|&(_, digest)| digest));
        goal.hand_over = hand_over.min(MAX_HAND_OVER);
    }
}

/// Compares the digest of a published block, as read back from disk, with the digest reported at the seal.
fn take_reread(
    waiting: &mut BTreeSet<BlockIndex>,
    node: NodeId,
    block: &BlockId,
    digest: Option<Digest>,
    work: &Work,
) -> Turn {
    let goal = work.goals.iter().find(|goal| goal.requestor == node && work.id_of(goal.block) == block);
    let Some(goal) = goal.filter(|goal| waiting.contains(&goal.block)) else { return Turn::On };
    if goal.digest != digest {
        let problem = BlockProblem::Corrupt("reads back different bytes".into());
        return Turn::ReadsBackWrong { node: goal.requestor, block: block.clone(), problem };
    }
    waiting.remove(&goal.block);
    if waiting.is_empty() { Turn::Done } else { Turn::On }
}
