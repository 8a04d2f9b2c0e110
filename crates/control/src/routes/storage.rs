//! What the storage has carried out, or has not.

use std::collections::BTreeSet;

use repair::StripeId;
use stores::dir::OpenError;
use stores::{Answer, BlockRecord, CatalogError, Done, StoreChange, StoreError};

use crate::Control;
use crate::commands::answer;
use crate::error::RequestError;
use crate::signal::Signal;
use crate::storing::{Ask, Then};

impl Control {
    /// There is no such stripe any more.
    fn forget_stripe(&mut self, stripe: &StripeId) {
        self.stripes.condemned.forget_stripe(stripe, &mut self.out);
        self.repairs.refusals.forget(stripe);
        self.repairs.looks.forget(stripe);
        self.stripes.forget_contradiction(stripe, &mut self.out);
        self.repairs.scheduler.drop_stripe(stripe);
    }

    /// The storage was asked whether it works again. An error that does not pass ends the coordinator, which is its
    /// driver's business.
    pub(crate) fn storage_recovered(&mut self, result: Result<Vec<StoreChange>, OpenError>) {
        match result {
            Ok(changes) => {
                tracing::warn!("the catalog can be written again; check its disk");
                self.take_changes(changes);
                let held = self.storing.write_path.works();
                self.storing.put_back(held.into_iter().map(|(number, write)| Ask::Write { number, write }));
            }
            Err(error) => {
                tracing::debug!(%error, "the catalog still fails");
                self.storing.write_path.still_fails(self.base.now);
            }
        }
    }

    /// While the storage fails, gives up what somebody waits for.
    pub(crate) fn refuse_writes(&mut self) {
        let Some(why) = self.storing.write_path.fault().cloned() else { return };
        for ask in self.storing.take_passing() {
            match ask {
                Ask::Write { number, .. } => self.not_stored(number, why.clone()),
                Ask::Snapshot(reply) => {
                    answer(reply, Err(RequestError::StorageFails(why.clone())), &mut self.out)
                }
                Ask::KeepCopy | Ask::Recover => {}
            }
        }
    }

    /// The next that the storage is to do.
    pub fn poll_storage(&mut self) -> Option<Ask> {
        self.pass_on();
        self.storing.poll(self.base.now)
    }

    /// The storage has carried something out.
    pub(crate) fn stored(&mut self, number: u64, done: Done) {
        let Some(then) = self.storing.waiting.remove(&number) else { return };
        self.storing.write_path.answered(number);
        if let Then::Published { job, stripe, blocks } = &then {
            self.jobs.note_former_homes(facts!(self), *job, stripe, blocks);
        }
        let Done { value, changes } = done;
        self.take_changes(changes);
        self.go_on(then, Ok(value));
    }

    /// The storage has not carried something out; nothing has changed.
    pub(crate) fn not_stored(&mut self, number: u64, error: StoreError) {
        if self.storing.hold_write(&self.base, number, &error) {
            return;
        }
        let Some(then) = self.storing.waiting.remove(&number) else { return };
        match &error {
            StoreError::Catalog(CatalogError::Storage { .. } | CatalogError::Damaged { .. })
            | StoreError::Fenced { .. } => tracing::error!(%error, "the catalog"),
            _ => tracing::debug!(%error, "refused by the catalog"),
        }
        self.go_on(then, Err(error));
    }

    /// Something is different in the storage, whoever changed it.
    pub(crate) fn take_changes(&mut self, changes: Vec<StoreChange>) {
        if changes.is_empty() {
            return;
        }
        self.storing.changes += 1;
        let (mut nodes, mut leaving) = (BTreeSet::new(), BTreeSet::new());
        for change in changes {
            let stripe = match &change {
                StoreChange::Service(node, up) => {
                    self.set_service(*node, *up);
                    continue;
                }
                StoreChange::ClaimLost(stripe) => {
                    self.repairs.claim_lost(&self.jobs, stripe, &mut self.out);
                    continue;
                }
                StoreChange::Troubles(troubles) => {
                    self.stripes.troubles.clone_from(troubles);
                    continue;
                }
                StoreChange::Spoiled { node, stripe, file, problem } => {
                    let (around, out) = (around!(self), &mut self.out);
                    self.stripes.remember_loss(around, *node, file, problem.to_owned(), out);
                    self.scrub.note_spoiled(facts!(self), *node, stripe, file, problem);
                    continue;
                }
                StoreChange::Unjudged(stripes) => {
                    self.stripes.unjudged.set(stripes);
                    continue;
                }
                StoreChange::Remarks(remarks) => {
                    self.stripes.news.set_remarks(remarks);
                    continue;
                }
                StoreChange::Unlisted(why) => {
                    self.stripes.note_unlisted(around!(self), why.as_ref(), &mut self.out);
                    continue;
                }
                StoreChange::Node(node) => {
                    self.nodes.know_node(&self.base, node);
                    None
                }
                StoreChange::Stripe(stripe, _) => Some(stripe.id.clone()),
                StoreChange::StripeGone(stripe) => Some(stripe.clone()),
                StoreChange::Discard(node, _) => {
                    leaving.insert(*node);
                    None
                }
                _ => None,
            };
            let record =
                |core: &Self| stripe.as_ref().and_then(|stripe| core.stripes.picture.stripe(stripe).ok());
            let before = record(self);
            self.stripes.picture.apply(change);
            let now = record(self);
            let homes = before.iter().chain(&now).flat_map(|record| &record.blocks);
            nodes.extend(homes.flat_map(BlockRecord::holders).map(|holder| holder.node));
            self.stripes.settle_doubts(before.as_ref(), now.as_ref());
            match (stripe, now) {
                (Some(stripe), None) => {
                    self.forget_stripe(&stripe);
                    before.into_iter().for_each(|stripe| self.stripes.retire_stripe(&self.base, stripe));
                }
                (Some(stripe), Some(now)) => {
                    self.stripes.read_displaced(around!(self), &now, &mut self.out);
                    self.out.tell(Signal::Blocks(stripe));
                }
                (None, _) => {}
            }
        }
        nodes.into_iter().for_each(|node| self.out.tell(Signal::Space(node)));
        leaving
            .into_iter()
            .for_each(|node| self.stripes.remove_discards(around!(self), &self.jobs, node, &mut self.out));
    }

    pub(crate) fn go_on(&mut self, then: Then, result: Result<Answer, StoreError>) {
        match then {
            Then::Nothing => {}
            Then::Numbers => {
                self.out.add_numbers(match result {
                    Ok(Answer::First(first)) => Some(first),
                    _ => None,
                });
            }
            Then::Join { connection, role, hello } => {
                self.join_numbered(connection, role, *hello, result.err());
            }
            Then::PutBegun(begun) => self.jobs.put_begun(&self.base, begun, result, &mut self.out),
            Then::Allocated { client, tag, put, position } => {
                self.jobs.stripe_allocated(facts!(self), client, tag, (put, position), result, &mut self.out);
            }
            Then::Committed { put, reply } => self.jobs.put_committed(put, reply, result, &mut self.out),
            Then::Aborted { put, reply } => {
                self.jobs.put_aborted(&self.base, put, reply, result, &mut self.out)
            }
            Then::Removed { stripes, reply } => self.file_removed(&stripes, reply, result),
            Then::Published { job, stripe, blocks } => {
                let error = result.err();
                if error.is_none()
                    && let Ok(record) = self.stripes.picture.stripe(&stripe)
                {
                    self.stripes.condemned.absolve(&record, &blocks, &mut self.out);
                }
                self.repairs.note_publication(facts!(self), &stripe, error.as_ref());
                if error.is_none() {
                    self.stripes.note_made(around!(self), &self.jobs, job, &stripe, &blocks, &mut self.out);
                }
                self.jobs.blocks_published(facts!(self), job, error, &mut self.out);
            }
            Then::Known { good } => {
                if result.is_ok() {
                    for block in &good {
                        self.stripes.doubted.remove(block);
                    }
                    self.stripes.find_all_homes(around!(self), &mut self.out);
                }
            }
            Then::Adopted { node, block } => {
                if result.is_ok() {
                    self.stripes.adopted(around!(self), node, &block);
                }
            }
            Then::Discarded { node, block } => {
                self.stripes.block_discarded(around!(self), &self.jobs, node, &block, &mut self.out)
            }
            Then::Needless { node, block } => {
                if result.is_ok() {
                    self.stripes.drop_orphan(node, &block);
                }
            }
            Then::Queued { id, order, reply } => match result {
                Ok(_) => answer(reply, self.begin_repair(id, *order), &mut self.out),
                Err(error) => answer(reply, Err(error.into()), &mut self.out),
            },
            Then::Capped { view, reply } => match result {
                Ok(_) => answer(
                    reply,
                    Ok(self.nodes.caps_changed(&self.base, *view, &mut self.out)),
                    &mut self.out,
                ),
                Err(error) => answer(reply, Err(error.into()), &mut self.out),
            },
            Then::Recovers { node, id, order } => self.recovery_kept(node, id, *order, result.map(drop)),
            Then::Drains { node, id, order } => self.drain_kept(node, id, *order, result.map(drop)),
            Then::Rebalances { id, order, mut view, reply } => {
                let begun = result.map_err(RequestError::from).and_then(|_| self.begin_repair(id, *order));
                view.repair = Some(id);
                answer(reply, begun.map(|_| *view), &mut self.out);
            }
            Then::Removes { node, view, reply } => {
                match result {
                    Ok(_) => {
                        tracing::info!(helper = self.nodes.name(node), "a helper is removed");
                        self.drop_node(node);
                    }
                    Err(_) => self.nodes.registry.keep_node(node),
                }
                answer(reply, result.map(|_| *view).map_err(Into::into), &mut self.out);
            }
            Then::Accepted { view, reply } => match result {
                Ok(_) => answer(
                    reply,
                    Ok(self.stripes.catalog_accepted(around!(self), *view, &mut self.out)),
                    &mut self.out,
                ),
                Err(error) => answer(reply, Err(error.into()), &mut self.out),
            },
            Then::Healed { id, order } => {
                if result.is_ok() {
                    let _ = self.begin_repair(id, *order); // Its view is for whoever asked.
                }
            }
            Then::Claimed { stripe } => self.repairs.claimed(facts!(self), &stripe, result),
            Then::Forgotten { node } => self.node_forgotten(node, result.is_ok()),
            Then::Inspected { scrub } => self.scrub.inspected_in_scrub(facts!(self), scrub, &mut self.out),
        }
    }
}
