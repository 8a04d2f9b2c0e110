//! Passes events, ticks and signals to the state machines that they concern.

use std::time::Duration;

use repair::Job;

use crate::answers::safety::retired_nodes;
use crate::control::{Control, facts, outer_facts};
use crate::effect::Effect;
use crate::event::{Event, Now};
use crate::repairs::scheduler_facts::{tell_space, tell_surplus, tell_trunk};
use crate::routes;
use crate::scrub::parity_checks::Asker;
use crate::signal::Signal;
use crate::storing::ask::Ask;
use crate::stripes::finding;

/// The time between ticks while jobs run. This is often enough, because the timers of jobs are 250 ms or
/// longer.
const BUSY_TICK: Duration = Duration::from_millis(50);
/// The time between ticks when no job runs.
const IDLE_TICK: Duration = Duration::from_millis(500);

impl Control {
    /// Handles an event. Afterwards, [`poll`](Self::poll) returns the effects, and
    /// [`poll_storage`](Self::poll_storage) the requests to the storage.
    pub fn handle(&mut self, event: Event, now: Now) {
        (self.base.now, self.base.unix_ms) = (now.since_start, now.unix_ms);
        match event {
            Event::Joined { connection, role, hello } => self.join(connection, role, *hello),
            Event::Said { connection, message } => self.hear(connection, *message),
            Event::Left { connection, why } => self.part(connection, &why),
            Event::Stored { number, done } => self.stored(number, done),
            Event::Failed { number, error } => self.not_stored(number, error),
            Event::Recovered(result) => self.storage_recovered(result),
            Event::Copied(result) => {
                if result.is_ok() {
                    self.storing.copied_unix_ms = Some(self.base.unix_ms);
                }
                self.storing.copy_problem = result.err();
            }
            Event::Changed(changes) => self.take_changes(changes),
            Event::Certificate { role, expires } => {
                let member = role.to_string();
                if self.nodes.certificates.note(role, expires) {
                    self.audit.note_certificate(member, expires, self.base.unix_ms, &mut self.out);
                }
            }
            // Only a restart turns encryption off again, so that an edit of mend.toml cannot do so by
            // accident.
            Event::EncryptEdges => self.nodes.encrypt_edges(),
            Event::Network(network) => self.change_network(*network),
            Event::Listed(helpers) => self.base.settings.helpers = Some(helpers),
            Event::Asked(command) => self.carry_out(*command),
        }
        self.work();
        self.pass_on();
    }

    /// Advances the timers of all state machines.
    pub fn handle_tick(&mut self, now: Now) {
        (self.base.now, self.base.unix_ms) = (now.since_start, now.unix_ms);
        self.refuse_writes();
        self.with_all_jobs(Job::handle_tick);
        let idle = self.jobs.puts.idle(self.base.now);
        self.abort_puts(&idle);
        self.expire_asks();
        self.scrub.expire_checks(facts!(self), &mut self.out);
        self.scrub.verify_reported(facts!(self), &mut self.out);
        self.stripes.expire_readers(&self.base, &self.jobs);
        self.stripes.retry_removals(outer_facts!(self), &self.jobs, &mut self.out);
        finding::retry(&mut self.stripes, outer_facts!(self), &mut self.out);
        self.stripes.look_at_copies(outer_facts!(self), &mut self.out);
        self.stripes.inventory.expire_hollow(&self.nodes, &self.base, &mut self.out);
        let unused = retired_nodes(self.answers());
        self.nodes.registry.forget_retired(unused, &mut self.out);
        self.nodes.maintenance.expire(&self.base, &self.nodes.registry, &mut self.out);
        self.nodes.expire_bandwidth(&self.base, &mut self.out);
        self.repairs.begin_recoveries(facts!(self), &self.jobs, &mut self.out);
        self.history.note_all_bad(&self.nodes, &mut self.out);
        self.stripes.forget_given(outer_facts!(self), &self.jobs, &self.repairs, &mut self.out);
        self.repairs.heal(facts!(self), &self.jobs, &mut self.out);
        self.surplus.handle_tick(facts!(self), &self.jobs, &mut self.out);
        self.repairs.mend_placement(facts!(self), &self.jobs, &mut self.out);
        self.stripes.tidy_orphans(outer_facts!(self), &mut self.out);
        // An outdated catalog is not copied, because the copy would overwrite a better one.
        if self.nodes.settled && self.facts().may_remove() && self.storing.begin_copy(self.base.now) {
            self.out.ask_storage(Ask::KeepCopy);
        }
        self.repairs.note_progress(facts!(self), &self.jobs);
        self.note_risks();
        routes::requests::note_conditions(self);
        self.tell_changes();
        let scheduler = &self.repairs.scheduler;
        self.capping.share((&self.base, &self.nodes), &self.jobs, scheduler, &mut self.out);
        self.link_tests.end_late_trial(&self.base, &mut self.out);
        let late = self.nodes.registry.take_late_stripes(self.base.now);
        self.repairs.let_go(&late);
        self.work();
        self.pass_on();
    }

    /// Returns the longest wait for an event before [`handle_tick`](Self::handle_tick) is due.
    pub fn tick(&self) -> Duration {
        if self.jobs.running.is_empty() { IDLE_TICK } else { BUSY_TICK }
    }

    /// Delivers each signal to the state machine that it concerns.
    pub(crate) fn route(&mut self) {
        while let Some(signal) = self.out.signals.pop_front() {
            match signal {
                Signal::Node(node) => routes::connections::note_node(self, node),
                Signal::Space(node) => tell_space(&mut self.repairs.scheduler, facts!(self), node),
                Signal::Replicas(node) => routes::blocks::note_replicas(self, node),
                Signal::Trunk(rack) => tell_trunk(&mut self.repairs.scheduler, facts!(self), &rack),
                Signal::Blocks(stripe) => routes::blocks::note_blocks(self, &stripe),
                Signal::Surplus { node, stripe, index } => {
                    tell_surplus(&mut self.repairs.scheduler, facts!(self), node, &stripe, index)
                }
                Signal::Removed(stripe) => routes::blocks::forget_stripe(self, &stripe),
                Signal::Contradiction { stripe, blocks, found_by } => {
                    routes::blocks::note_contradiction(self, &stripe, &blocks, found_by);
                }
                Signal::ContradictionAdded(stripe) => routes::jobs::check_survivors(self, &stripe),
                Signal::Doubtful(stripe) => self.scrub.doubt(&stripe, self.base.now),
                Signal::ParityHeld { stripe, read } => routes::blocks::note_parity(self, &stripe, read),
                Signal::Wrong { stripe, index, node } => {
                    self.stripes.condemn(outer_facts!(self), &stripe, index, node, &mut self.out);
                }
                Signal::Unread { stripe, index, node, known, problem } => {
                    let (outer, out) = (outer_facts!(self), &mut self.out);
                    self.stripes.apply_verdict(outer, node, (&stripe, index), &known, Some(&problem), out);
                }
                Signal::Settled => self.stripes.after_settling(outer_facts!(self), &self.jobs, &mut self.out),
                Signal::Service { node, up } => self.repairs.note_service(facts!(self), node, up),
                Signal::Gone { node, why } => self.note_outage(node, why),
                Signal::SeekHomes => self.stripes.seek_copies(outer_facts!(self), &mut self.out),
                Signal::Start { owner, request } => self.start_job(owner, *request),
                Signal::Cancel(job) => self.jobs.cancel_job(job),
                Signal::Ended { job, result } => self.end_job(job, *result),
                Signal::Delivered { item, node } => self.repairs.scheduler.handle_delivery(item, node),
                Signal::Assigned(node) => self.nodes.note_assigned(node),
                Signal::HeldUp(nodes) => self.link_tests.note_slow(facts!(self), &nodes, &mut self.out),
                Signal::Slow { node, rate } => {
                    self.nodes.note_slow_node(&self.base, node, rate, &mut self.out);
                }
                Signal::Acquitted(node) => self.nodes.acquit(node, &mut self.out),
                Signal::Measured { link, ports, pair } => {
                    self.nodes.note_measured(&self.base, link, ports, pair);
                }
                Signal::MeasuredAll => self.nodes.keep_measured(&self.base, &mut self.out),
                Signal::GivenStored { stripe, blocks } => {
                    self.stripes.note_given_stored(&stripe, &blocks, &mut self.out);
                }
                Signal::GivenLost { stripe, index, node, state } => {
                    self.stripes.given.note_lost(&stripe, index, node, state, &mut self.out);
                }
                Signal::Unavailable { stripe, index, node, known } => {
                    routes::blocks::note_unavailable(self, node, stripe, index, known);
                }
            }
        }
    }

    /// Runs all state machines until none has work left before the next event.
    fn work(&mut self) {
        self.settle();
        loop {
            self.route();
            self.drain_jobs();
            self.route();
            self.start_repairs();
            self.scrub.ask_scrub(facts!(self), &self.jobs, &mut self.out);
            self.scrub.prove_in_background(facts!(self), &self.jobs, &mut self.out);
            self.scrub.scrub_in_background(facts!(self), &self.jobs, &mut self.out);
            self.scrub.look_at_reopened(facts!(self));
            self.scrub.check_stripes(facts!(self), &self.jobs, Asker::Job, &mut self.out);
            self.scrub.check_distrusted(facts!(self), &self.jobs, &mut self.out);
            if self.jobs.stirred.is_empty() && self.out.signals.is_empty() {
                return;
            }
        }
    }

    /// Removes and returns the next effect for the driver.
    pub fn poll(&mut self) -> Option<Effect> {
        self.out.pop()
    }
}
