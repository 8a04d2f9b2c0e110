//! Requests of the API and of clients.

use std::collections::BTreeSet;
use std::time::Duration;

use codes::BlockIndex;
use repair::recovery::{RepairId, Target};
use repair::wire::control::ClientRequest;
use repair::{NodeId, NodeProfile, PlanRequest, Policy, StripeId, explain};
use serde_json::Value;
use stores::dir::PutId;
use stores::{Answer, FileWrite, RecordWrite, StoreError, Write};
use views::{FileLayout, FileView, HistoryEvent, NodeView, PlanRequestView, PlanView, RepairView};

use crate::base::Base;
use crate::commands::{Command, answer};
use crate::effect::Reply;
use crate::error::RequestError;
use crate::jobs::puts::file_view;
use crate::jobs::requests::{Read, policy};
use crate::repairs::plans::{SOME_CLIENT, indices, node_names};
use crate::repairs::{CHANGES_EVERY, Order, Waiting};
use crate::storing::{Ask, Then};
use crate::{Control, ItemPage};

impl Control {
    pub(crate) fn carry_out(&mut self, command: Command) {
        match command {
            Command::Status(reply) => {
                self.refresh_status();
                answer(reply, self.answers().status(), &mut self.out);
            }
            Command::Nodes(reply) => answer(reply, self.answers().node_views(), &mut self.out),
            Command::Files(prefix, reply) => answer(reply, self.answers().file_views(&prefix), &mut self.out),
            Command::File(name, reply) => answer(reply, self.open_file(&name), &mut self.out),
            Command::RemoveFile(name, reply) => self.remove_file(name, reply),
            Command::BeginPut(request, reply) => {
                self.jobs.begin_put(facts!(self), &request, reply, &mut self.out)
            }
            Command::CommitPut(put, reply) => self.jobs.commit_put(facts!(self), put, reply, &mut self.out),
            Command::AbortPut(put, reply) => self.abort_put(put, Some(reply)),
            Command::Stripe(stripe, reply) => {
                answer(reply, self.answers().stripe_view_of(&stripe), &mut self.out)
            }
            Command::Contradictions(reply) => {
                answer(reply, Ok(self.stripes.contradictions.names()), &mut self.out)
            }
            Command::Block(block, reply) => answer(reply, self.answers().block_place(&block), &mut self.out),
            Command::Describe(given, owner, reply) => answer(
                reply,
                self.stripes.describe_stripe(around!(self), &self.jobs, &self.repairs, &given, &owner),
                &mut self.out,
            ),
            Command::Repair(request, reply) => facts!(self).queue_repair(&request, reply, &mut self.out),
            Command::Repairs(reply) => answer(reply, Ok(self.answers().repair_views()), &mut self.out),
            Command::RepairState(repair, page, reply) => {
                answer(reply, self.answers().repair_page(repair, &page), &mut self.out)
            }
            Command::GivenRepairState(repair, reply) => {
                answer(reply, self.answers().given_repair_state(repair), &mut self.out)
            }
            Command::RepairChange(repair, since, limit, reply) => {
                self.await_change(repair, since, limit, reply);
            }
            Command::CancelRepair(repair, reply) => answer(reply, self.cancel_repair(repair), &mut self.out),
            Command::CancelGivenRepair(repair, reply) => {
                answer(reply, self.cancel_given_repair(repair), &mut self.out)
            }
            Command::PauseRepair(repair, paused, reply) => {
                answer(reply, self.pause_repair(repair, paused), &mut self.out)
            }
            Command::StopDrain(name, reply) => answer(reply, self.stop_drain(&name), &mut self.out),
            Command::Topology(reply) => answer(reply, Ok(self.answers().topology_view()), &mut self.out),
            Command::Probe(request, reply) => answer(
                reply,
                self.link_tests.start_probes(facts!(self), &request, &mut self.out),
                &mut self.out,
            ),
            Command::Probes(reply) => answer(reply, self.link_tests.probe_view(facts!(self)), &mut self.out),
            Command::StopProbes(reply) => {
                answer(reply, self.link_tests.stop_probes(facts!(self), &mut self.out), &mut self.out)
            }
            Command::Caps(reply) => answer(reply, Ok(self.nodes.caps_view()), &mut self.out),
            Command::ChangeCaps(request, reply) => {
                self.nodes.change_caps(&self.base, &request, reply, &mut self.out)
            }
            Command::Explain(request, reply) => answer(reply, self.explain(&request), &mut self.out),
            Command::Scrub(parity, reply) => answer(
                reply,
                self.scrub.start_scrub(facts!(self), &self.jobs, parity, &mut self.out),
                &mut self.out,
            ),
            Command::StopScrub(scrub, reply) => {
                answer(reply, self.scrub.stop_scrub(facts!(self), scrub, &mut self.out), &mut self.out)
            }
            Command::ScrubState(scrub, reply) => answer(reply, self.scrub.scrub_state(scrub), &mut self.out),
            Command::Snapshot(reply) => self.out.ask_storage(Ask::Snapshot(reply)),
            Command::AcceptCatalog(request, reply) => {
                self.stripes.accept_catalog(around!(self), request, reply, &mut self.out)
            }
            Command::RemoveOrphans(reply) => {
                answer(reply, self.stripes.remove_orphans(around!(self), &mut self.out), &mut self.out)
            }
            Command::RemoveNode(name, reply) => self.remove_node(&name, reply),
            Command::Maintain(name, request, reply) => {
                answer(reply, self.maintain(&name, request), &mut self.out)
            }
            Command::EndMaintenance(name, reply) => answer(reply, self.end_maintenance(&name), &mut self.out),
            Command::OkToStop(names, leave, reply) => {
                answer(reply, self.answers().ok_to_stop(&names, leave), &mut self.out)
            }
            Command::SafeToRemove(names, reply) => {
                answer(reply, self.answers().safe_to_remove(&names), &mut self.out)
            }
            Command::ReplaceNode(name, request, reply) => {
                facts!(self).replace_node(&name, &request, reply, &mut self.out)
            }
            Command::Rebalance(request, reply) => facts!(self).rebalance(request, reply, &mut self.out),
            Command::Settings(reply) => answer(reply, Ok(self.answers().settings_view()), &mut self.out),
            Command::ChangeSettings(request, reply) => {
                answer(reply, self.change_settings(&request), &mut self.out)
            }
            Command::History(most, reply) => answer(reply, Ok(self.history.history(most)), &mut self.out),
        }
    }

    /// Calls a repair off. A node that it was emptying gets blocks again.
    fn cancel_repair(&mut self, id: u64) -> Result<RepairView, RequestError> {
        self.answers().check_open(id)?;
        let target = self.repairs.by_id[&id].order.target.clone();
        if let Target::Drain(node) = target
            && self.repairs.open_repairs_of(&target) == [id]
        {
            self.nodes.registry.unmark_leaving(node, &mut self.out);
        }
        self.repairs.unexpanded.retain(|&other| other != id);
        self.repairs.scheduler.cancel(RepairId(id));
        self.poll_repairs();
        self.drain_jobs();
        self.poll_repairs();
        self.answers().repair_state(id)
    }

    /// Pauses or resumes a repair. Paused, also over a restart, it starts no job; running jobs stop between two slices and keep
    /// the delivered ones.
    fn pause_repair(&mut self, id: u64, paused: bool) -> Result<RepairView, RequestError> {
        self.answers().check_open(id)?;
        let repair = self.repairs.by_id.get_mut(&id).expect("just checked");
        if repair.order.paused != paused {
            repair.order.paused = paused;
            let kept = crate::repairs::kept(id, &repair.order);
            self.out.store(kept, Then::Nothing);
        }
        match paused {
            true => {
                self.repairs.scheduler.pause(RepairId(id));
                self.hold_jobs(id);
            }
            false => self.repairs.scheduler.resume(RepairId(id)),
        }
        self.repairs.pause_course(facts!(self), id, paused);
        self.resume_jobs();
        self.poll_repairs();
        self.answers().repair_state(id)
    }

    /// Answers when a repair has ended, when its version is not `since` any more, or after this time.
    fn await_change(&mut self, id: u64, since: Option<u64>, limit: Duration, reply: Reply<()>) {
        let version =
            since.and_then(|_| self.answers().repair_page(id, &ItemPage::NONE).ok()).map(|view| view.version);
        match self.repairs.by_id.get_mut(&id) {
            Some(repair) if repair.ended_unix_ms.is_none() && version == since => {
                repair.waiting.push(Waiting { since, until: self.base.now + limit, reply });
            }
            Some(_) => answer(reply, Ok(()), &mut self.out),
            None => answer(reply, Err(RequestError::NoSuchRepair(id)), &mut self.out),
        }
    }

    /// Answers requests that wait for another version of a repair, or have waited long enough.
    pub(crate) fn tell_changes(&mut self) {
        if self.base.now < self.repairs.changes_told + CHANGES_EVERY {
            return;
        }
        self.repairs.changes_told = self.base.now;
        let awaited = self.repairs.by_id.iter().filter(|(_, repair)| !repair.waiting.is_empty());
        let versions: Vec<(u64, u64)> =
            awaited.map(|(&id, _)| (id, self.answers().repair_view(id, &ItemPage::NONE).version)).collect();
        let Self { repairs, out, base: Base { now, .. }, .. } = self;
        for (id, version) in versions {
            let repair = repairs.by_id.get_mut(&id).expect("it was there");
            let is_due = |waiting: &mut Waiting| {
                waiting.until <= *now || waiting.since.is_some_and(|since| since != version)
            };
            repair.waiting.extract_if(.., is_due).for_each(|waiting| answer(waiting.reply, Ok(()), out));
        }
    }

    /// Calls a repair of a given stripe off.
    fn cancel_given_repair(&mut self, id: u64) -> Result<RepairView, RequestError> {
        self.answers().given_repair_state(id)?;
        self.cancel_repair(id)
    }

    /// An order is kept: its repair begins.
    pub(super) fn begin_repair(&mut self, id: u64, order: Order) -> Result<RepairView, RequestError> {
        let (target, by_itself) = (self.facts().target_text(&order.target), order.by_itself);
        tracing::info!(repair = id, target, scheme = %order.scheme, by_itself, "a repair is queued");
        self.out.note(HistoryEvent::RepairBegun { repair: id, target, by_itself });
        if let Target::Drain(node) = order.target {
            if !self.nodes.registry.is_leaving(node) {
                self.repairs.drains.forget(node);
            }
            self.nodes.registry.mark_leaving(&self.base, node, &order, &mut self.out);
        }
        self.repairs.add(id, order);
        self.start_repairs();
        self.answers().repair_state(id)
    }

    pub(crate) fn explain(&mut self, request: &PlanRequestView) -> Result<PlanView, RequestError> {
        let record = self.stripes.stripe_record(&StripeId(request.stripe.clone()))?;
        let scheme = self.facts().scheme(request.scheme.as_deref())?;
        let asked = indices(&request.blocks);
        let pretended = indices(&request.lost);
        crate::stripes::check_indices(&record, &asked)?;
        crate::stripes::check_indices(&record, &pretended)?;
        let lost = self.facts().lost_blocks(&record);
        let blocks = if asked.is_empty() { [lost, pretended.clone()].concat() } else { asked };
        let blocks: BTreeSet<BlockIndex> = blocks.into_iter().collect();
        if blocks.is_empty() {
            return Err(RequestError::NothingLost(record.id));
        }
        // A migration copies what is there; all other schemes are for what is lost.
        let mut taken_as_lost = pretended;
        if scheme != repair::Scheme::Migration {
            taken_as_lost.extend(&blocks);
        }
        let stripe = self.facts().stripe_now(&record, &taken_as_lost)?;
        let mut topology = self.nodes.topology.clone();
        let mut client = NodeProfile::client("client");
        (client.rates.up, client.rates.down) = (self.nodes.figures.assumed(), self.nodes.figures.assumed());
        topology.set(SOME_CLIENT, client);
        if let Err(error) = self.nodes.lay(&self.base, &mut topology) {
            tracing::error!(%error, "a link of mend.toml is left out");
        }
        self.repairs.scheduler.reserved().for_each(|(resource, bytes)| topology.reserve(resource, bytes));
        let wanted = self.jobs.plan_requestors(
            facts!(self),
            &record,
            &blocks,
            request.requestor.as_deref(),
            &mut self.out,
        )?;
        let requestors: Vec<NodeId> = wanted.iter().map(|wanted| wanted.requestor).collect();
        let planned = PlanRequest {
            wanted,
            window: 0..stripe.sub_block_bytes(),
            sub_blocks: None,
            resume: None,
            policy: policy(scheme, request.slice_bytes),
        };
        let explained = explain(&stripe, &planned, &topology)?;
        let plan = &explained.plan;
        Ok(PlanView {
            text: format!("{}{}", plan.display_with(&topology), explained.text(&topology)),
            summary: serde_json::to_value(plan.summary()).expect("a summary has string keys"),
            nodes: node_names(plan.nodes(), &topology),
            scheme: plan.scheme().name().to_owned(),
            requestors: requestors.iter().map(|&node| topology.name(node)).collect(),
            rates: self.facts().rates(plan.nodes(), &topology),
            predicted_ms: explained.forecast.time.as_millis() as u64,
        })
    }

    /// Takes a helper off the list that is down and holds nothing that is needed.
    fn remove_node(&mut self, name: &str, reply: Reply<NodeView>) {
        match self.answers().check_removal(name) {
            Ok((node, view)) => {
                self.nodes.registry.begin_forgetting(node);
                let write = Write::Records(RecordWrite::ForgetNode(node));
                self.out.store(write, Then::Removes { node, view: Box::new(view), reply });
            }
            Err(error) => answer(reply, Err(error), &mut self.out),
        }
    }

    /// A helper is forgotten in the storage: so it is here.
    pub(crate) fn drop_node(&mut self, node: NodeId) {
        let name = self.nodes.name(node);
        self.stripes.newer.forget_rejected(&self.nodes, node, &mut self.out);
        self.nodes.forget_node(&self.base, node, &mut self.out);
        self.out.note(HistoryEvent::NodeRemoved { node: name });
    }

    /// Looks at what the status tells and nobody has looked at for a while.
    fn refresh_status(&mut self) {
        self.repairs.look_for_room(facts!(self), &self.jobs);
        if self.nodes.settled && self.repairs.fullness.is_due(self.base.now) {
            let advice = self.answers().find_spare();
            self.repairs.fullness.set(advice, self.base.now);
        }
    }

    /// Tells a client where the stripes of a file are, which it is about to read.
    fn open_file(&mut self, name: &str) -> Result<FileLayout, RequestError> {
        let first = self.stripes.picture.files().get(name).and_then(|file| file.stripes.first()).cloned();
        if let Some(record) = first.and_then(|first| self.stripes.stripe_record(&first).ok()) {
            self.stripes.note_reader(&self.base, &record);
        }
        self.answers().file_layout(name)
    }

    fn abort_put(&mut self, put: PutId, reply: Option<Reply<Value>>) {
        for job in self.jobs.jobs_of(put).collect::<Vec<_>>() {
            self.jobs.cancel_job(job);
        }
        self.drain_jobs(); // What the jobs stored is asked to be recorded before it is asked to be removed.
        if self.jobs.puts.ending.contains(&put) {
            if let Some(reply) = reply {
                answer(reply, Err(RequestError::PutBusy(put)), &mut self.out);
            }
            return;
        }
        self.jobs.puts.ending.insert(put);
        self.out.store(Write::Files(FileWrite::AbortPut(put)), Then::Aborted { put, reply });
    }

    pub(crate) fn abort_idle_puts(&mut self) {
        let now = self.base.now;
        let idle = self.jobs.puts.puts.iter().filter(|(_, put)| put.until.is_some_and(|until| until <= now));
        let idle = idle.map(|(&put, _)| put).filter(|put| !self.jobs.puts.ending.contains(put));
        for put in idle.collect::<Vec<_>>() {
            tracing::info!(%put, "aborting a put that nobody goes on with");
            self.abort_put(put, None);
        }
    }

    fn remove_file(&mut self, name: String, reply: Reply<FileView>) {
        let checked = self.facts().check_not_behind().and_then(|()| self.storing.check_storage());
        let file = checked.and_then(|()| {
            let file = self.stripes.picture.files().get(&name);
            Ok(file.ok_or_else(|| RequestError::NoSuchFile(name.clone()))?.stripes.clone())
        });
        match file {
            Err(error) => answer(reply, Err(error), &mut self.out),
            Ok(stripes) => {
                // No repair of them starts meanwhile.
                stripes.iter().for_each(|stripe| self.repairs.scheduler.hold(stripe));
                self.out.store(Write::Files(FileWrite::RemoveFile(name)), Then::Removed { stripes, reply });
            }
        }
    }

    pub(crate) fn file_removed(
        &mut self,
        stripes: &[StripeId],
        reply: Reply<FileView>,
        result: Result<Answer, StoreError>,
    ) {
        stripes.iter().for_each(|stripe| self.repairs.scheduler.let_go(stripe));
        match result {
            Ok(Answer::File(file)) => {
                self.drop_repairs_of(&file.stripes);
                answer(reply, Ok(file_view(&file)), &mut self.out);
            }
            Ok(other) => unreachable!("a removal is answered by the file, not {other:?}"),
            Err(error) => answer(reply, Err(error.into()), &mut self.out),
        }
    }

    pub(crate) fn open(&mut self, client: NodeId, tag: u64, request: ClientRequest) {
        let opened = self.jobs.check_request(facts!(self), client, tag).and_then(|()| match request {
            ClientRequest::Read {
                stripe,
                blocks,
                sub_blocks,
                window,
                scheme,
                slice_bytes,
                pacing,
                verify,
                pretend_lost,
            } => {
                self.note_read(&stripe);
                let policy = Policy { pacing, ..policy(scheme, slice_bytes) };
                self.jobs.read(
                    facts!(self),
                    client,
                    tag,
                    Read { stripe, blocks, sub_blocks, window, policy, verify, pretend_lost },
                    &mut self.out,
                )
            }
            ClientRequest::PutStripe { .. } if self.nodes.is_plugin(client) => Err(RequestError::NoClient),
            ClientRequest::PutStripe { put, position } => {
                self.jobs.put_stripe(facts!(self), client, tag, PutId(put), position, &mut self.out)
            }
        });
        if let Err(error) = opened {
            self.nodes.refuse_request(client, tag, &error, &mut self.out);
        }
    }

    /// Somebody reads a stripe: what is kept for readers is kept on.
    fn note_read(&mut self, stripe: &StripeId) {
        self.stripes.touch_given(around!(self), stripe);
        if let Ok(record) = self.stripes.stripe_record(stripe) {
            self.stripes.note_reader(&self.base, &record);
        }
    }

    /// Takes the mark of a helper back, and calls off what empties it.
    fn stop_drain(&mut self, name: &str) -> Result<NodeView, RequestError> {
        let node = self.nodes.node_named(&self.base, name)?;
        for repair in self.repairs.open_repairs_of(&Target::Drain(node)) {
            self.cancel_repair(repair)?;
        }
        self.nodes.registry.unmark_leaving(node, &mut self.out);
        self.answers().node_view(node)
    }
}
