//! A plan with moving slices: a relay, and a watch over its edges.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::credits::{CreditError, Credits};
use crate::wire::edge::Credit;
use crate::{Action, Assignment, Buffer, Due, Epoch, Pacing, Relay, Report, Sent};

/// The interval for reporting progress and checking for stalls.
pub const WATCH_EVERY: Duration = Duration::from_millis(200);
/// If the last check is longer ago than this, this process itself was stopped or got no CPU time.
const ASLEEP: Duration = Duration::from_secs(1);

/// How a plan ended on this node.
#[derive(Debug)]
pub(super) enum Ending {
    Finished,
    Stopped,
    Failed(Box<Report>),
}

/// A plan whose slices are moving; see the module's documentation.
#[derive(Debug)]
pub(super) struct Moving {
    assignment: Arc<Assignment>,
    relay: Relay,
    /// For each inlet, the last time at which a byte arrived, or at which the relay accepted no frame.
    inlets: Vec<Duration>,
    outlets: Vec<OutletWatch>,
    /// Deliveries passed to the driver that are not written yet.
    writing: u32,
    /// Present if the plan's pacing is serial.
    credits: Option<Box<Credits>>,
    watch: Watch,
}

#[derive(Debug, Default)]
struct OutletWatch {
    /// The last time that a byte was sent, or that there was nothing to send.
    moved: Duration,
    /// The slices of the queued frames, in order. With serial pacing, a frame is queued until the receiver has
    /// confirmed it.
    queue: VecDeque<u32>,
    /// The first slice of which no frame has been sent.
    sent: u32,
}

/// The slices that a node waits for, and how far it has sent.
#[derive(Debug, Default)]
pub(super) struct Waits {
    receive: Vec<Due>,
    send: Vec<Due>,
    sent: Vec<Sent>,
}

impl From<Waits> for Report {
    fn from(Waits { receive, send, sent }: Waits) -> Self {
        Self::Waiting { receive, send, sent }
    }
}

/// The state kept between two checks.
#[derive(Debug, Default)]
struct Watch {
    stall: Duration,
    /// The number of delivered slices in the last report.
    reported: u32,
    complained: Duration,
    /// The edges in the last complaint: indices of inlets, then of outlets.
    complained_of: BTreeSet<usize>,
    /// Whether a cap has delayed something since the last check.
    is_limited: bool,
    /// The time of the last `Limited` report.
    said_limited: Option<Duration>,
    seen: Duration,
}

impl Moving {
    pub(super) fn new(assignment: Arc<Assignment>, relay: Relay) -> Self {
        let (inlets, outlets) = (assignment.inlets.len(), assignment.outlets.len());
        let watch = Watch { stall: Duration::from_millis(assignment.stall_ms.into()), ..Watch::default() };
        Self {
            relay,
            inlets: vec![Duration::ZERO; inlets],
            outlets: (0..outlets).map(|_| OutletWatch::default()).collect(),
            writing: 0,
            credits: (assignment.pacing == Pacing::Serial).then(|| Box::new(Credits::new(inlets, outlets))),
            assignment,
            watch,
        }
    }

    /// Starts the watch over the edges: slices may move from now on.
    pub(super) fn begin(&mut self, now: Duration) {
        self.rest_until(now);
        (self.watch.complained, self.watch.seen) = (now, now);
    }

    pub(super) fn epoch(&self) -> Epoch {
        self.assignment.epoch
    }

    pub(super) fn delivers(&self) -> bool {
        !self.assignment.sinks.is_empty()
    }

    pub(super) fn is_writing(&self) -> bool {
        self.writing > 0
    }

    pub(super) fn relay(&self) -> &Relay {
        &self.relay
    }

    pub(super) fn relay_mut(&mut self) -> &mut Relay {
        &mut self.relay
    }

    pub(super) fn into_relay(self) -> Relay {
        self.relay
    }

    /// The next credit for the driver to write, with the number of its inlet.
    pub(super) fn poll_credit(&mut self) -> Option<(usize, Credit)> {
        self.credits.as_mut()?.poll_credit(&self.relay)
    }

    pub(super) fn poll(&mut self, now: Duration) -> Option<Action> {
        loop {
            if let Some(action) = self.credits.as_mut().and_then(|credits| credits.poll()) {
                return Some(action);
            }
            let action = self.relay.poll()?;
            self.count(&action, now);
            let Some(credits) = &mut self.credits else { return Some(action) };
            if let Some(action) = credits.take(action) {
                return Some(action);
            }
        }
    }

    /// Counts a frame or a delivery that the relay has produced.
    fn count(&mut self, action: &Action, now: Duration) {
        match action {
            Action::Send { outlet, slice, .. } => {
                let outlet = &mut self.outlets[*outlet];
                if outlet.queue.is_empty() {
                    outlet.moved = now;
                }
                outlet.queue.push_back(*slice);
            }
            Action::Deliver { .. } => self.writing += 1,
            Action::ReadAhead { .. } | Action::Read { .. } | Action::Finished => {}
        }
    }

    pub(super) fn received(
        &mut self,
        inlet: usize,
        stream: u16,
        slice: u32,
        buffer: Buffer,
        now: Duration,
    ) -> Result<(), Box<Report>> {
        self.inlets[inlet] = now;
        self.relay.handle_received(inlet, stream, slice, buffer).map_err(|error| {
            let from = self.assignment.inlets[inlet].from;
            Box::new(Report::BadFrame { from, detail: error.to_string() })
        })?;
        self.credits.iter_mut().for_each(|credits| credits.handle_received(inlet, slice));
        Ok(())
    }

    pub(super) fn sent(&mut self, outlet: usize, slice: u32, buffer: Buffer, now: Duration) {
        let buffer = match &mut self.credits {
            Some(credits) => credits.handle_sent(outlet, buffer),
            None => Some(buffer),
        };
        match buffer {
            Some(buffer) => self.has_left(outlet, slice, buffer, now),
            None => self.outlet_moved(outlet, now),
        }
    }

    pub(super) fn credits_written(&mut self, count: usize) {
        self.credits.iter_mut().for_each(|credits| credits.handle_written(count));
    }

    /// Handles a credit that the receiver of outlet `outlet` has sent.
    pub(super) fn credit(&mut self, outlet: usize, credit: Credit, now: Duration) -> Result<(), Box<Report>> {
        let credits = self.credits.as_mut().ok_or(CreditError::NotSerial);
        let confirmed =
            credits.and_then(|credits| credits.handle_credit(outlet, credit)).map_err(|error| {
                let from = self.assignment.outlets[outlet].to;
                Box::new(Report::BadFrame { from, detail: error.to_string() })
            })?;
        self.outlet_moved(outlet, now);
        if let Some((slice, buffer)) = confirmed {
            self.has_left(outlet, slice, buffer, now);
        }
        Ok(())
    }

    /// Counts a frame as sent.
    fn has_left(&mut self, outlet: usize, slice: u32, buffer: Buffer, now: Duration) {
        let watch = &mut self.outlets[outlet];
        watch.moved = now;
        watch.queue.pop_front();
        watch.sent = watch.sent.max(slice + 1);
        self.relay.handle_sent(slice, buffer);
    }

    pub(super) fn delivered(&mut self, slice: u32, buffer: Buffer) {
        self.writing -= 1;
        self.relay.handle_delivered(slice, buffer);
    }

    pub(super) fn inlet_moved(&mut self, inlet: usize, now: Duration) {
        self.inlets[inlet] = now;
    }

    pub(super) fn outlet_moved(&mut self, outlet: usize, now: Duration) {
        self.outlets[outlet].moved = now;
    }

    pub(super) fn outlet_is_complete(&self, outlet: usize) -> bool {
        self.outlets[outlet].queue.is_empty() && self.relay.outlet_is_complete(outlet)
    }

    /// Returns the first report on deliveries, once a slice is delivered. It shows how long the plan took to
    /// get going.
    pub(super) fn first_delivery(&mut self) -> Option<Report> {
        if self.watch.reported == 0 { self.progress() } else { None }
    }

    /// Returns a report on the deliveries, if there are new ones.
    fn progress(&mut self) -> Option<Report> {
        let slices = self.relay.delivered().len();
        if slices == self.watch.reported || !self.delivers() {
            return None;
        }
        self.watch.reported = slices;
        let whole = self.relay.delivered().ranges().first().filter(|first| first.start == 0);
        Some(Report::Progress { slices, whole: whole.map_or(0, |first| first.end) })
    }

    /// Checks for stalls; returns the reports to send.
    pub(super) fn watch(&mut self, now: Duration) -> Vec<Report> {
        let mut reports: Vec<Report> = self.progress().into_iter().collect();
        if now >= self.watch.seen + ASLEEP {
            // This process itself was not running, so no other node is to blame.
            self.rest_until(now);
        }
        self.watch.seen = now;
        reports.extend(self.limitation(now));
        reports.extend(self.complaint(now));
        reports
    }

    /// Reports that this node's caps slow it down, before other nodes complain about it.
    fn limitation(&mut self, now: Duration) -> Option<Report> {
        let is_due = self.watch.said_limited.is_none_or(|said| now >= said + self.watch.stall / 2);
        if !std::mem::take(&mut self.watch.is_limited) || !is_due {
            return None;
        }
        self.watch.said_limited = Some(now);
        Some(Report::Limited)
    }

    pub(super) fn limit(&mut self) {
        self.watch.is_limited = true;
    }

    /// Resets the idle time of all edges.
    fn rest_until(&mut self, now: Duration) {
        self.inlets.fill(now);
        self.outlets.iter_mut().for_each(|outlet| outlet.moved = now);
    }

    /// The slices due on each edge: expected ones that have not arrived, and queued ones that have not been
    /// sent. Also returns how far each outlet has sent.
    pub(super) fn waits(&self, now: Duration) -> Waits {
        let rested_ms = |moved: Duration| now.saturating_sub(moved).as_millis() as u32;
        let inlets = self.inlets.iter().zip(&self.assignment.inlets).enumerate();
        let receive =
            inlets.filter(|&(index, _)| self.relay.wants(index)).filter_map(|(index, (&moved, inlet))| {
                let slice = self.relay.due_slice(index)?;
                Some(Due { node: inlet.from, slice, rested_ms: rested_ms(moved) })
            });
        let outlets = self.outlets.iter().zip(&self.assignment.outlets);
        let send = outlets.filter_map(|(watch, outlet)| {
            let slice = *watch.queue.front()?;
            Some(Due { node: outlet.to, slice, rested_ms: rested_ms(watch.moved) })
        });
        let sent = self.outlets.iter().zip(&self.assignment.outlets);
        let sent = sent.map(|(watch, outlet)| Sent { node: outlet.to, before: watch.sent });
        Waits { receive: receive.collect(), send: send.collect(), sent: sent.collect() }
    }

    /// Complains if an edge has been idle for too long: at once for each newly stalled edge, and again after
    /// every further stall period.
    fn complaint(&mut self, now: Duration) -> Option<Report> {
        for (index, moved) in self.inlets.iter_mut().enumerate() {
            if !self.relay.wants(index) {
                *moved = now;
            }
        }
        for outlet in self.outlets.iter_mut().filter(|outlet| outlet.queue.is_empty()) {
            outlet.moved = now;
        }
        let moved = self.inlets.iter().copied().chain(self.outlets.iter().map(|outlet| outlet.moved));
        let stall = self.watch.stall;
        let stalled: BTreeSet<usize> =
            moved.enumerate().filter(|&(_, moved)| now >= moved + stall).map(|(edge, _)| edge).collect();
        let is_due = now >= self.watch.complained + stall || !stalled.is_subset(&self.watch.complained_of);
        if stalled.is_empty() || !is_due {
            return None;
        }
        self.watch.complained = now;
        self.watch.complained_of = stalled;
        Some(self.waits(now).into())
    }
}
