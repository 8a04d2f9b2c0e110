//! A plan whose slices move: a relay, and a watch over its edges.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::{Action, Assignment, Buffer, Due, Epoch, Relay, Report};

/// How often progress is reported and stalls are looked for.
pub const WATCH_EVERY: Duration = Duration::from_millis(200);
/// If so much time passed since the last look, this process was stopped or starved itself.
const ASLEEP: Duration = Duration::from_secs(1);

/// Why a plan ends here.
#[derive(Debug)]
pub(super) enum Ending {
    Finished,
    Stopped,
    Failed(Box<Report>),
}

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Moving {
    assignment: Arc<Assignment>,
    relay: Relay,
    /// When a byte last came on each inlet, or receiving was last not wanted.
    inlets: Vec<Duration>,
    outlets: Vec<OutletWatch>,
    /// Deliveries handed out that are not written yet.
    writing: u32,
    watch: Watch,
}

#[derive(Debug, Default)]
struct OutletWatch {
    /// When a byte last went, or there was last nothing to send.
    moved: Duration,
    /// The slices of the frames that wait to be sent, in order.
    queue: VecDeque<u32>,
}

/// What is remembered between two looks.
#[derive(Debug, Default)]
struct Watch {
    stall: Duration,
    /// Slices last reported as delivered.
    reported: u32,
    complained: Duration,
    /// The edges complained of last: inlets, then outlets.
    complained_of: BTreeSet<usize>,
    /// Since the last look a cap held something back.
    is_limited: bool,
    /// When that was last said.
    said_limited: Option<Duration>,
    seen: Duration,
}

impl Moving {
    pub(super) fn new(assignment: Arc<Assignment>, relay: Relay) -> Self {
        let (inlets, outlets) = (assignment.inlets.len(), assignment.outlets.len());
        let watch = Watch { stall: Duration::from_millis(assignment.stall_ms.into()), ..Watch::default() };
        Self {
            assignment,
            relay,
            inlets: vec![Duration::ZERO; inlets],
            outlets: (0..outlets).map(|_| OutletWatch::default()).collect(),
            writing: 0,
            watch,
        }
    }

    /// Slices move from now on.
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

    pub(super) fn poll(&mut self, now: Duration) -> Option<Action> {
        let action = self.relay.poll()?;
        match &action {
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
        Some(action)
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
        })
    }

    pub(super) fn sent(&mut self, outlet: usize, slice: u32, buffer: Buffer, now: Duration) {
        self.outlets[outlet].moved = now;
        self.outlets[outlet].queue.pop_front();
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

    /// Looks for stalls; what is to be reported.
    pub(super) fn watch(&mut self, now: Duration) -> Vec<Report> {
        let mut reports = Vec::new();
        let slices = self.relay.delivered().len();
        if slices != self.watch.reported && self.delivers() {
            self.watch.reported = slices;
            let whole = self.relay.delivered().ranges().first().filter(|first| first.start == 0);
            let whole = whole.map_or(0, |first| first.end);
            reports.push(Report::Progress { slices, whole });
        }
        if now >= self.watch.seen + ASLEEP {
            // This process itself did not run for a while: nobody else is to blame for that.
            self.rest_until(now);
        }
        self.watch.seen = now;
        reports.extend(self.limitation(now));
        reports.extend(self.complaint(now));
        reports
    }

    /// Says that caps hold back this node, in time before others complain of it.
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

    /// All edges count as having moved just now.
    fn rest_until(&mut self, now: Duration) {
        self.inlets.fill(now);
        self.outlets.iter_mut().for_each(|outlet| outlet.moved = now);
    }

    /// What is due on which edges: what does not come, and what is not taken.
    pub(super) fn waits(&self, now: Duration) -> (Vec<Due>, Vec<Due>) {
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
        (receive.collect(), send.collect())
    }

    /// Complains when an edge has rested for too long: once, and again whenever there is another one or as much time has
    /// passed again.
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
        let (receive, send) = self.waits(now);
        Some(Report::Waiting { receive, send })
    }
}
