//! The sockets and the disk I/O of a running plan on one node.

use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use repair::wire::edge::{Credit, Direction, Greeting};
use repair::{Action, Assignment, Class, EdgeKey, Meter, NodeId, Pacing, Part, Report};
use tokio::sync::OwnedSemaphorePermit;

use crate::background_pacing::AtRisk;
use crate::block_io::BlockIo;
use crate::cap_gate::CapGate;
use crate::engine::Node;
use crate::opening::Opened;
use crate::rendezvous::{Rendezvous, Terms};
use crate::socket::{Connecting, InletSocket, OutletSocket, SocketError};
use crate::throttle::Allowance;
use crate::traffic::Counting;

/// The edges and open blocks of one running plan.
pub(crate) struct Motion {
    assignment: Arc<Assignment>,
    inlets: Vec<InletSocket>,
    outlets: Vec<OutletSocket>,
    blocks: BlockIo,
    caps: CapGate,
    counting: Counting,
    rendezvous: Rendezvous,
    /// The memory reserved for the plan, if it buffers whole blocks.
    _memory: Option<OwnedSemaphorePermit>,
}

impl Motion {
    /// Prepares to dial or await the edges of an assignment; [`poll_connecting`](Self::poll_connecting) and
    /// the first transfer on an edge establish its connection.
    pub(crate) fn new(
        assignment: Arc<Assignment>,
        node: &Node,
        at_risk: &AtRisk,
        memory: Option<OwnedSemaphorePermit>,
    ) -> Self {
        let rendezvous = node.rendezvous.clone();
        let inlets = assignment.inlets.iter().map(|inlet| {
            let (dial, tls_name) = (inlet.dial.clone(), inlet.tls_name.clone());
            InletSocket::new(connect(&rendezvous, &assignment, inlet.key, dial, tls_name, Direction::Receive))
        });
        let unsent_bytes = if assignment.class == Class::Repair { node.pacing.unsent_bytes() } else { 0 };
        let outlets = assignment.outlets.iter().map(|outlet| {
            let (dial, tls_name) = (outlet.dial.clone(), outlet.tls_name.clone());
            let link = connect(&rendezvous, &assignment, outlet.key, dial, tls_name, Direction::Send);
            OutletSocket::new(bounded(link, unsent_bytes))
        });
        let counting = node.traffic.for_purpose(assignment.class);
        Self {
            inlets: inlets.collect(),
            outlets: outlets.collect(),
            blocks: BlockIo::new(
                &assignment,
                counting.clone(),
                node.pacing.disk_batches(assignment.class, at_risk),
            ),
            caps: CapGate::new(
                Allowance::new(node.throttle.clone(), Some(assignment.job), assignment.class),
                node.pacing.for_plan(assignment.class, at_risk),
            ),
            counting,
            rendezvous: node.rendezvous.clone(),
            _memory: memory,
            assignment,
        }
    }

    /// Establishes connections before slices move. An error is reported by the first transfer on the edge.
    pub(crate) fn poll_connecting(&mut self, cx: &mut Context<'_>) {
        self.inlets.iter_mut().for_each(|inlet| inlet.poll_connecting(cx));
        self.outlets.iter_mut().for_each(|outlet| outlet.poll_connecting(cx));
    }

    pub(crate) fn use_opened(&mut self, opened: Opened) {
        self.blocks.use_opened(opened);
    }

    /// If a cap denied a request, polls the timer for the next attempt; returns whether it fired.
    pub(crate) fn poll_timer(&mut self, cx: &mut Context<'_>) -> bool {
        self.caps.poll_timer(cx)
    }

    pub(crate) fn poll_reads(&mut self, cx: &mut Context<'_>, part: &mut Part, now: Duration) -> bool {
        self.blocks.poll_reads(cx, &mut self.caps, part, now)
    }

    pub(crate) fn poll_writes(&mut self, cx: &mut Context<'_>, part: &mut Part, now: Duration) -> bool {
        self.blocks.poll_writes(cx, part, now)
    }

    /// Drops all reads and writes that have not begun.
    pub(crate) fn drop_queued(&mut self) {
        self.blocks.drop_queued();
    }

    /// Waits for writes in flight. Afterwards the count of delivered slices is exact, and no write can touch
    /// a sink any more.
    pub(crate) fn poll_settled(&mut self, cx: &mut Context<'_>, part: &mut Part) -> Poll<()> {
        self.blocks.poll_settled(cx, part)
    }

    /// Carries out a relay's action.
    pub(crate) fn act(&mut self, action: Action, part: &mut Part, now: Duration) {
        match action {
            Action::Send { outlet, lane, stream, slice, buffer } => {
                self.outlets[outlet].push(lane, stream, slice, buffer);
            }
            action => self.blocks.act(action, &mut self.caps, part, now),
        }
    }

    /// Queues a credit for the sender of inlet number `inlet`.
    pub(crate) fn queue_credit(&mut self, inlet: usize, credit: Credit) {
        self.inlets[inlet].push_credit(credit);
    }

    // ---- sockets ----

    fn has_credits(&self) -> bool {
        self.assignment.pacing == Pacing::Serial
    }

    /// Sends the queued credits of an inlet; returns whether there were any.
    fn send_credits(&mut self, index: usize, cx: &mut Context<'_>, part: &mut Part, now: Duration) -> bool {
        match self.inlets[index].poll_credits(cx) {
            Poll::Pending | Poll::Ready(Ok(0)) => false,
            Poll::Ready(Ok(credits)) => {
                part.handle_credits_written(credits);
                true
            }
            Poll::Ready(Err(error)) => {
                part.fail(broken(self.assignment.inlets[index].from, SocketError::Closed(error)), now);
                true
            }
        }
    }

    /// Receives credits for an outlet, unless it is complete; returns whether there were any.
    fn take_credits(&mut self, index: usize, cx: &mut Context<'_>, part: &mut Part, now: Duration) -> bool {
        let mut moved = false;
        while part.is_moving()
            && !part.outlet_is_complete(index)
            && let Poll::Ready(credit) = self.outlets[index].poll_credit(cx)
        {
            moved = true;
            match credit {
                Ok(credit) => part.handle_credit(index, credit, now),
                Err(error) => part.fail(broken(self.assignment.outlets[index].to, error), now),
            }
        }
        moved
    }

    pub(crate) fn poll_inlets(&mut self, cx: &mut Context<'_>, part: &mut Part, now: Duration) -> bool {
        let mut moved = false;
        for index in 0..self.inlets.len() {
            if self.has_credits() {
                moved |= self.send_credits(index, cx, part, now);
            }
            while let Some(due) = part.due_bytes(index) {
                // Checks the cap only if data may have arrived: an edge without data does not count as
                // throttled.
                let is_held = self.caps.is_limited() && self.inlets[index].could_receive(cx);
                let granted = if is_held { self.caps.ask(Meter::Down, part) } else { Some(usize::MAX) };
                let Some(granted) = granted else {
                    part.handle_inlet_moved(index, now);
                    break;
                };
                let inlet = &mut self.inlets[index];
                inlet.grant(granted);
                let polled = inlet.poll_frame(cx, due, &mut |bytes| part.buffer(bytes));
                let bytes = inlet.take_moved();
                if bytes > 0 {
                    self.caps.spend(Meter::Down, bytes);
                    part.handle_inlet_moved(index, now);
                    moved |= granted != usize::MAX;
                }
                let Poll::Ready(result) = polled else { break };
                moved = true;
                match result {
                    Ok((header, buffer)) => {
                        self.counting.received(buffer.len());
                        part.handle_received(index, header.stream, header.slice, buffer, now);
                    }
                    Err(error) => part.fail(broken(self.assignment.inlets[index].from, error), now),
                }
            }
            if part.inlet_is_complete(index) {
                self.release_inlet(index);
            }
        }
        moved
    }

    pub(crate) fn poll_outlets(&mut self, cx: &mut Context<'_>, part: &mut Part, now: Duration) -> bool {
        let mut moved = false;
        for index in 0..self.outlets.len() {
            if self.outlets[index].is_gone() {
                continue;
            }
            if self.has_credits() {
                moved |= self.take_credits(index, cx, part, now);
            }
            loop {
                let is_held = self.caps.is_limited() && self.outlets[index].could_send(cx);
                let granted = if is_held { self.caps.ask(Meter::Up, part) } else { Some(usize::MAX) };
                let Some(granted) = granted else {
                    part.handle_outlet_moved(index, now);
                    break;
                };
                self.outlets[index].grant(granted);
                let polled = self.outlets[index].poll_sent(cx);
                let bytes = self.outlets[index].take_moved();
                if bytes > 0 {
                    self.caps.spend(Meter::Up, bytes);
                    self.caps.observe(&mut self.outlets[index]);
                    part.handle_outlet_moved(index, now);
                    moved |= granted != usize::MAX;
                }
                let Poll::Ready(sent) = polled else { break };
                moved = true;
                match sent {
                    Ok((slice, buffer)) => {
                        self.counting.sent(buffer.len());
                        part.handle_sent(index, slice, buffer, now);
                    }
                    Err(error) => {
                        let peer = self.assignment.outlets[index].to;
                        part.fail(Report::Closed { peer, detail: error.to_string() }, now);
                        return true;
                    }
                }
            }
            if part.outlet_is_complete(index) && self.outlets[index].is_empty() {
                self.release_outlet(index);
            }
        }
        moved
    }

    /// Releases the connection of a complete inlet. If the sender dialled it, the connection is not reused:
    /// the bytes after the last frame would be the next greeting, and reading ahead may have consumed some of
    /// them. A connection with credits is kept until the plan ends, because the last credit may not be sent
    /// yet. It is not reused either: an encrypted greeting could arrive together with that credit.
    fn release_inlet(&mut self, index: usize) {
        if self.has_credits() {
            return;
        }
        let dialled = self.assignment.inlets[index].dial.as_deref();
        if let (Some(stream), Some(address)) = (self.inlets[index].take(), dialled) {
            self.rendezvous.rest(stream, Some(address));
        }
    }

    /// Releases the connection of a complete outlet. If the receiver dialled it, it is kept for reuse. If
    /// this end dialled it, it is closed, because the receiver may have read beyond the last frame (see
    /// `release_inlet`).
    fn release_outlet(&mut self, index: usize) {
        let stream = self.outlets[index].take();
        if self.has_credits() {
            return;
        }
        if let (Some(stream), None) = (stream, &self.assignment.outlets[index].dial) {
            self.rendezvous.rest(stream, None);
        }
    }
}

/// Returns a future that yields the connection of an edge. If `address` is given, this end dials that
/// address; otherwise the other end dials, and the future waits for that. `ours` says whether this end sends
/// or receives.
fn connect(
    rendezvous: &Rendezvous,
    assignment: &Assignment,
    key: EdgeKey,
    address: Option<String>,
    tls_name: Option<String>,
    ours: Direction,
) -> Connecting {
    match address {
        Some(address) => {
            let greeting = Greeting { direction: ours, job: assignment.job, epoch: assignment.epoch, key };
            Box::pin(rendezvous.clone().dial(address, tls_name, greeting))
        }
        None => {
            let theirs = match ours {
                Direction::Receive => Direction::Send,
                Direction::Send => Direction::Receive,
            };
            let coming = rendezvous.expect(key, Terms { direction: theirs, tls_name });
            let rendezvous = rendezvous.clone();
            Box::pin(async move {
                let stream = coming.await.map_err(|_| io::Error::from(io::ErrorKind::ConnectionAborted))?;
                // The listener's thread accepted the connection; from now on this job's thread polls it.
                rendezvous.bring_here(stream)
            })
        }
    }
}

/// Bounds the unsent bytes of a connection once it is established. A connection that is used again may have
/// another bound from the edge before.
fn bounded(connecting: Connecting, unsent_bytes: i32) -> Connecting {
    Box::pin(async move {
        let stream = connecting.await?;
        stream.bound_unsent(unsent_bytes);
        Ok(stream)
    })
}

fn broken(from: NodeId, error: SocketError) -> Report {
    match error {
        SocketError::Closed(error) => Report::Closed { peer: from, detail: error.to_string() },
        SocketError::Bad(error) => Report::BadFrame { from, detail: error.to_string() },
    }
}
