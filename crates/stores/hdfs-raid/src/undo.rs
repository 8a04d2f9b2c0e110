//! Undoes an encoding: raises the replication, waits for the replicas, and deletes the parity.

use crate::action::DECISION_MS;
use crate::facts::{DataNodes, Facts};
use crate::work::{Pair, Work, foreign_inode, raise};
use crate::{Action, End, Exclusion, Mark, Next, Waiting};

/// The parity is deleted only after the replicas have not changed for this long. A coordinator that has not
/// seen the mark on the parity may lower the replication until [`DECISION_MS`] after its last look.
const UNCHANGED_MS: u64 = 2 * DECISION_MS;

impl Work {
    /// Returns the next step. The wish is recorded on the parity first, so that it outlives this coordinator.
    pub(crate) fn undo(&mut self, facts: &Facts, pair: Pair<'_>, nodes: &DataNodes, now_ms: u64) -> Next {
        if let Some(inode) = foreign_inode(facts, pair.source) {
            return self.discard_drafts(facts, End::Occupied { inode });
        }
        if let Some(folder) = &facts.snapshots {
            // The parity also protects blocks that are only in snapshots.
            return self.discard_drafts(facts, End::Unfit(Exclusion::Snapshots(folder.clone())));
        }
        let path = pair.parity.file.path.clone();
        if !pair.parity.marks.is_undone {
            return Next::Act(Action::Mark { path, mark: Mark::Undo });
        }
        let is_never_encoded = facts.source.as_ref().is_some_and(|source| source.marks.is_never_encoded);
        if !is_never_encoded {
            // Otherwise, a policy would encode the file again.
            return Next::Act(Action::Mark { path: pair.source.path.clone(), mark: Mark::Never });
        }
        self.former = Some((pair.source.inode, pair.replication));
        if let Some(next) = raise(pair.source, pair.replication, nodes) {
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
}
