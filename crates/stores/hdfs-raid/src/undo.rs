//! Undoes an encoding: raises the replication, waits for the replicas, and deletes the parity.
//!
//! A file with a lost block is refused before anything changes: HDFS makes no replicas of a block that it cannot
//! read, so the file would wait without end, with its parity marked for removal.
//!
//! HDFS lists a replica that it has decided to remove until its DataNode has removed it, and a higher replication does not
//! change the decision. Such replicas would count as those that replace the parity, so the replication is raised only once
//! there are no more of them.

use crate::action::DECISION_MS;
use crate::facts::{DataNodes, Facts};
use crate::lower::stripes;
use crate::stripe_codes::BuiltCode;
use crate::work::{Pair, Work, raise};
use crate::{Action, End, Exclusion, Layout, Mark, Next, Waiting};

/// The parity is deleted only after the replicas have not changed for this long. A coordinator that has not
/// seen the mark on the parity may lower the replication until [`DECISION_MS`] after its last look.
const UNCHANGED_MS: u64 = 2 * DECISION_MS;

impl Work {
    /// Returns the next step. The wish is recorded on the parity first, so that it outlives this coordinator.
    pub(crate) fn undo(&mut self, facts: &Facts, pair: Pair<'_>, nodes: &DataNodes, now_ms: u64) -> Next {
        if let Some(folder) = &facts.snapshots {
            // The parity also protects blocks that are only in snapshots.
            return self.discard_drafts(facts, End::Unfit(Exclusion::Snapshots(folder.clone())));
        }
        if let Some(end) = self.lost(facts, pair).filter(|_| self.former.is_none()) {
            return Next::End(end);
        }
        if self.is_unclaimed(facts, pair.source, pair.parity) {
            return self.leave(facts, pair, nodes);
        }
        self.former = Some((pair.source.inode, pair.replication));
        let path = pair.parity.file.path.clone();
        if !pair.parity.marks.is_undone {
            return Next::Act(Action::Mark { path, mark: Mark::Undo });
        }
        let is_never_encoded = facts.source.as_ref().is_some_and(|source| source.marks.is_never_encoded);
        if !is_never_encoded {
            // Otherwise, a policy would encode the file again.
            return Next::Act(Action::Mark { path: pair.source.path.clone(), mark: Mark::Never });
        }
        if self.waits_for_removals(facts, pair, nodes) {
            return Next::Wait(Waiting::Settled);
        }
        if let Some(next) = raise(facts, pair.source, pair.replication, nodes) {
            return next;
        }
        if let Some(draft) = facts.drafts.first() {
            return Next::Act(Action::Delete(draft.path.clone()));
        }
        match self.is_settled(pair, nodes, now_ms, UNCHANGED_MS) {
            true => Next::Act(Action::Delete(path)),
            false => Next::Wait(Waiting::Settled),
        }
    }

    /// Whether DataNodes may still have to remove replicas of a lowered file. Its parity is valid, so nothing urges.
    fn waits_for_removals(&self, facts: &Facts, pair: Pair<'_>, nodes: &DataNodes) -> bool {
        let is_lowered = !facts.below(pair.replication).is_empty();
        let is_protected = self.has_valid_parity(facts, pair.source, pair.parity);
        is_lowered && is_protected && facts.has_surplus(|replicas| nodes.in_service_among(replicas))
    }

    /// Returns the first lost block of an encoded file, and whether the parity suffices to rebuild them all.
    fn lost(&self, facts: &Facts, pair: Pair<'_>) -> Option<End> {
        let block = pair.source.missing_block()?;
        let is_decodable = self.has_valid_parity(facts, pair.source, pair.parity) && {
            let layout = Layout::of_source(pair.source, &self.codec).expect("valid parity has a layout");
            let built = BuiltCode::of(&self.codec);
            stripes(pair, &layout).iter().all(|stripe| stripe.is_decodable(built.code.as_ref()))
        };
        Some(End::Lost { block, is_decodable })
    }
}
