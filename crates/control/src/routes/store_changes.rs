//! Changes in the storage, made by control or by other programs.

use std::collections::BTreeSet;

use repair::StripeId;
use store_api::StoreChange;

use crate::control::{Control, facts, outer_facts};
use crate::history;
use crate::signal::Signal;
use crate::stripes::described::COUNTS_INSTEAD_FOR;
use crate::stripes::unjudged::UnjudgedStripes;
use crate::stripes::verdicts;

impl Control {
    /// Applies changes of the storage, and informs the state machines that they concern.
    pub(crate) fn take_changes(&mut self, changes: Vec<StoreChange>) {
        if changes.is_empty() {
            return;
        }
        self.storing.changes += 1;
        let judged = take_unjudged(&mut self.stripes.unjudged, &changes);
        let (mut nodes, mut discarding) = (BTreeSet::new(), BTreeSet::new());
        for change in changes {
            let Some(change) = self.take_news(change) else { continue };
            match &change {
                StoreChange::Node(node) => self.nodes.know_node(&self.base, node),
                StoreChange::Discard(node, _) => drop(discarding.insert(*node)),
                // A plug-in may have described the stripe before the store listed it.
                StoreChange::Stripe(stripe, _) => {
                    self.stripes.given.limit(&stripe.id, self.base.now + COUNTS_INSTEAD_FOR);
                    self.scrub.distrusted.note_listed(facts!(self), &self.jobs, stripe);
                    self.scrub.proof.note_listed(facts!(self), stripe);
                }
                _ => {}
            }
            let listed = match &change {
                StoreChange::Stripe(stripe, _) if !self.stripes.condemned.is_empty() => {
                    Some(stripe.id.clone())
                }
                _ => None,
            };
            nodes.extend(self.stripes.apply_change(outer_facts!(self), change, &mut self.out));
            if let Some(stripe) = listed {
                let (outer, jobs, out) = (outer_facts!(self), &self.jobs, &mut self.out);
                verdicts::mark_condemned(&mut self.stripes, outer, jobs, &stripe, out);
            }
        }
        nodes.into_iter().for_each(|node| self.out.tell(Signal::Space(node)));
        for node in discarding {
            self.stripes.remove_discards(outer_facts!(self), &self.jobs, node, &mut self.out);
        }
        for stripe in judged {
            if self.stripes.picture.stripe(&stripe).is_err() {
                self.stripes.forget_stripe(outer_facts!(self), stripe, None, &mut self.out);
            }
        }
    }

    /// Handles changes that do not concern the picture (the catalog in memory). Returns any other change.
    fn take_news(&mut self, change: StoreChange) -> Option<StoreChange> {
        match change {
            StoreChange::Service(node, up) => {
                self.stripes.set_service(&self.nodes, node, up, &mut self.out);
            }
            StoreChange::ClaimLost(stripe) => {
                let scheduler = &mut self.repairs.scheduler;
                self.repairs.claims.lose(&self.jobs, &stripe, scheduler, &mut self.out);
            }
            StoreChange::Troubles(troubles) => self.stripes.news.troubles = troubles,
            StoreChange::Spoiled { node, stripe, file, problem } => {
                let (outer, out) = (outer_facts!(self), &mut self.out);
                self.stripes.remember_loss(outer, node, &file, problem.clone(), out);
                self.scrub.note_spoiled(facts!(self), node, &stripe, &file, &problem);
            }
            // See also `take_unjudged`.
            StoreChange::Unjudged(stripes) => self.scrub.note_unjudged(facts!(self), &stripes),
            StoreChange::Doubted(stripes) => self.scrub.distrusted.set(facts!(self), stripes),
            StoreChange::Remarks(remarks) => self.stripes.news.set_remarks(&remarks),
            StoreChange::FileWorked(work) => self.out.note(history::worked(work)),
            StoreChange::FileBacklog(backlog) => self.stripes.news.file_backlog = Some(backlog),
            StoreChange::Needed(needed) => self.stripes.news.needed = needed,
            StoreChange::Maintained(nodes) => self.stripes.news.maintained = nodes,
            StoreChange::LateStripes(late) => self.stripes.news.has_late_stripes = late,
            StoreChange::Unlisted(why) => {
                self.stripes.note_unlisted(outer_facts!(self), why.as_ref(), &mut self.out);
            }
            change => return Some(change),
        }
        None
    }
}

/// Takes the stripes of unknown state before all other changes, because a stripe that leaves the list of stripes for
/// that reason still exists. Returns the stripes whose state was unknown and is not any more.
fn take_unjudged(unjudged: &mut UnjudgedStripes, changes: &[StoreChange]) -> Vec<StripeId> {
    let listed = |change: &StoreChange| match change {
        StoreChange::Unjudged(stripes) => Some(stripes.clone()),
        _ => None,
    };
    let Some(stripes) = changes.iter().rev().find_map(listed) else { return Vec::new() };
    let before = unjudged.names();
    unjudged.set(&stripes);
    before.into_iter().filter(|stripe| !unjudged.contain(stripe)).collect()
}
