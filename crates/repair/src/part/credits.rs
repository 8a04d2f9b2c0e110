//! Flow control of edges with [`Pacing::Serial`](crate::Pacing::Serial), by credits.
//!
//! A kernel accepts a frame to send, and receives the next one, while the process is busy with something else.
//! With back-pressure alone, a node would therefore receive a slice while it still sends the previous one. On
//! edges with serial pacing, the receiver sends credits to the sender:
//!
//! - [`Credit::Ready`] when the relay has opened a slice. A frame is passed to the driver only after that.
//! - [`Credit::Received`] for every frame. A frame counts as sent only after that.
//!
//! A serial relay works on one slice at a time, so a node becomes ready for a slice only when the next node has
//! received all of the previous one.
//!
//! **Invariant:** the frames of an outlet are first held, then moving, then confirmed, in the order in which the
//! relay produced them. There are never more confirmations than moving frames.
//!
//! This cannot deadlock. Take the slice and the stream of the argument in [`Relay`]: its receiver has finished
//! all earlier slices, has therefore opened this one, and has announced that it is ready.

use std::collections::VecDeque;

use crate::wire::edge::Credit;
use crate::{Action, Buffer, Relay};

/// The credits of all edges of a plan on one node.
#[derive(Debug)]
pub(super) struct Credits {
    /// For each inlet, the last slice for which the sender was told that this node is ready.
    ready: Vec<Option<u32>>,
    /// Confirmations of received frames that were not passed to the driver yet, with the number of the inlet.
    received: VecDeque<(usize, Credit)>,
    /// Credits that were passed to the driver and are not written yet.
    writing: usize,
    outlets: Vec<Outlet>,
    /// Whether the relay has finished and its last action was not passed on yet.
    finished: bool,
}

#[derive(Debug, Default)]
struct Outlet {
    /// The last slice for which the receiver is ready.
    ready: Option<u32>,
    /// Frames for which the receiver is not ready: slices and actions.
    held: VecDeque<(u32, Action)>,
    /// The slices of frames that were passed to the driver and are not confirmed.
    moving: VecDeque<u32>,
    /// The buffers of moving frames that the driver has written.
    written: VecDeque<Buffer>,
    /// The number of frames that were confirmed before the driver has reported that they are written.
    confirmed_early: usize,
}

/// A credit violates the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum CreditError {
    /// The plan's pacing is not serial.
    #[error("a credit arrived on an edge without credits")]
    NotSerial,
    /// No such frame was sent.
    #[error("a frame of slice {slice} was confirmed that was not sent")]
    NotSent {
        /// The slice that the credit names.
        slice: u32,
    },
}

impl Credits {
    pub(super) fn new(inlets: usize, outlets: usize) -> Self {
        Self {
            ready: vec![None; inlets],
            received: VecDeque::new(),
            writing: 0,
            outlets: (0..outlets).map(|_| Outlet::default()).collect(),
            finished: false,
        }
    }

    // ---- towards senders ----

    /// Records that a frame has arrived.
    pub(super) fn handle_received(&mut self, inlet: usize, slice: u32) {
        self.received.push_back((inlet, Credit::Received { slice }));
    }

    /// The next credit for the driver to write, with the number of its inlet.
    pub(super) fn poll_credit(&mut self, relay: &Relay) -> Option<(usize, Credit)> {
        let credit = self.received.pop_front().or_else(|| self.newly_ready(relay))?;
        self.writing += 1;
        Some(credit)
    }

    /// An inlet whose relay has opened another slice since the last call.
    fn newly_ready(&mut self, relay: &Relay) -> Option<(usize, Credit)> {
        self.ready.iter_mut().enumerate().find_map(|(inlet, ready)| {
            let slice = relay.due_slice(inlet).filter(|_| relay.wants(inlet))?;
            (ready.replace(slice) != Some(slice)).then_some((inlet, Credit::Ready { slice }))
        })
    }

    /// Records that the driver has written `count` credits.
    pub(super) fn handle_written(&mut self, count: usize) {
        self.writing = self.writing.saturating_sub(count);
    }

    // ---- towards receivers ----

    /// Takes the relay's next action. Returns it unless it has to wait; [`poll`](Self::poll) returns it later.
    pub(super) fn take(&mut self, action: Action) -> Option<Action> {
        match action {
            Action::Send { outlet, slice, .. } => self.outlets[outlet].held.push_back((slice, action)),
            Action::Finished => self.finished = true,
            other => return Some(other),
        }
        None
    }

    /// The next action that waited: a frame for which the receiver is ready, or the end once all credits are
    /// written.
    pub(super) fn poll(&mut self) -> Option<Action> {
        if let Some(frame) = self.outlets.iter_mut().find_map(Outlet::next_frame) {
            return Some(frame);
        }
        let ends = self.finished && self.writing == 0 && self.received.is_empty();
        (ends && std::mem::take(&mut self.finished)).then_some(Action::Finished)
    }

    /// Records that the driver has written a frame. Returns its buffer if the receiver has confirmed the frame.
    pub(super) fn handle_sent(&mut self, outlet: usize, buffer: Buffer) -> Option<Buffer> {
        let outlet = &mut self.outlets[outlet];
        if outlet.confirmed_early > 0 {
            outlet.confirmed_early -= 1;
            return Some(buffer);
        }
        outlet.written.push_back(buffer);
        None
    }

    /// Handles a credit. If the credit confirms a frame that the driver has written, returns the slice and the
    /// buffer of this frame.
    ///
    /// # Errors
    /// [`CreditError`] if the credit confirms a frame that was not sent.
    pub(super) fn handle_credit(
        &mut self,
        outlet: usize,
        credit: Credit,
    ) -> Result<Option<(u32, Buffer)>, CreditError> {
        let outlet = &mut self.outlets[outlet];
        match credit {
            Credit::Ready { slice } => {
                outlet.ready = outlet.ready.max(Some(slice));
                Ok(None)
            }
            Credit::Received { slice } if outlet.moving.front() == Some(&slice) => {
                outlet.moving.pop_front();
                let written = outlet.written.pop_front();
                outlet.confirmed_early += usize::from(written.is_none());
                Ok(written.map(|buffer| (slice, buffer)))
            }
            Credit::Received { slice } => Err(CreditError::NotSent { slice }),
        }
    }
}

impl Outlet {
    fn next_frame(&mut self) -> Option<Action> {
        let (slice, frame) = self.held.pop_front_if(|(slice, _)| Some(*slice) <= self.ready)?;
        self.moving.push_back(slice);
        Some(frame)
    }
}
