//! The pacing of a node in a chain: slice by slice, one slice at a time (by credits), or by whole blocks.

use std::time::Duration;

use repair::wire::control::ToNode;
use repair::wire::edge::Credit;
use repair::{Action, Assignment, Buffer, BufferPool, JobId, Part, PartAction, Report, Scheme};

use crate::assignments::assignments;

const SLICE_BYTES: u32 = 8192;
const SLICES: u32 = 5;
const NOW: Duration = Duration::ZERO;

/// An action of a node on its edges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Ready(u32),
    Received(u32),
    Send(u32),
}

/// A node whose reads and writes take no time.
struct Node {
    part: Part,
    /// Whether frames and credits are written at once. Otherwise they wait in `frames` and `credits`.
    writes: bool,
    frames: Vec<(u32, Buffer)>,
    credits: usize,
    reports: Vec<Report>,
}

impl Node {
    fn new(assignment: Assignment) -> Self {
        let mut part = Part::new(JobId(1), 512 << 10, BufferPool::default());
        part.handle_message(ToNode::Assign(Box::new(assignment)), NOW);
        assert!(matches!(part.poll(NOW), Some(PartAction::Begin(_))));
        part.handle_begun(NOW);
        Self { part, writes: true, frames: Vec::new(), credits: 0, reports: Vec::new() }
    }

    /// Carries out all actions.
    fn steps(&mut self) -> Vec<Step> {
        let mut steps = Vec::new();
        while let Some(action) = self.part.poll(NOW) {
            match action {
                PartAction::Credit { credit, .. } => {
                    steps.push(match credit {
                        Credit::Ready { slice } => Step::Ready(slice),
                        Credit::Received { slice } => Step::Received(slice),
                    });
                    self.credits += 1;
                }
                PartAction::Move(Action::Read { slice, locals, transfer }) => {
                    let buffer = self.part.buffer(transfer.buffer_bytes());
                    self.part.handle_read(slice, locals.start, buffer, NOW);
                }
                PartAction::Move(Action::Send { slice, buffer, .. }) => {
                    steps.push(Step::Send(slice));
                    self.frames.push((slice, buffer));
                }
                PartAction::Move(Action::Deliver { slice, buffer, .. }) => {
                    self.part.handle_delivered(slice, buffer);
                }
                PartAction::Report { report, .. } => self.reports.push(report),
                PartAction::Disconnect => {}
                other => panic!("{other:?}"),
            }
            if self.writes {
                self.write();
            }
        }
        steps
    }

    /// Reports all frames and credits as written.
    fn write(&mut self) {
        self.part.handle_credits_written(std::mem::take(&mut self.credits));
        for (slice, buffer) in self.frames.drain(..) {
            self.part.handle_sent(0, slice, buffer, NOW);
        }
    }

    /// A frame arrives.
    fn receive(&mut self, slice: u32) -> Vec<Step> {
        let buffer = self.part.buffer(SLICE_BYTES as usize);
        self.part.handle_received(0, 0, slice, buffer, NOW);
        self.steps()
    }

    /// A credit arrives.
    fn credit(&mut self, credit: Credit) -> Vec<Step> {
        self.part.handle_credit(0, credit, NOW);
        self.steps()
    }
}

fn chain(scheme: Scheme) -> Vec<Assignment> {
    assignments("rs-6-4", u64::from(SLICES * SLICE_BYTES), scheme, SLICE_BYTES)
}

/// A helper that receives and sends.
fn middle(scheme: Scheme) -> Node {
    let all = chain(scheme).into_iter();
    Node::new(
        all.rev().find(|one| !one.inlets.is_empty() && !one.outlets.is_empty()).expect("a chain of four"),
    )
}

#[test]
fn a_serial_helper_is_ready_for_a_slice_when_the_next_node_has_the_previous_one() {
    let mut helper = middle(Scheme::PipeS);
    assert_eq!(helper.steps(), [Step::Ready(0)]);
    for slice in 0..SLICES {
        assert_eq!(helper.receive(slice), [Step::Received(slice)], "the next node is not ready");
        assert_eq!(helper.credit(Credit::Ready { slice }), [Step::Send(slice)], "the frame is written only");
        let next: &[Step] = if slice + 1 < SLICES { &[Step::Ready(slice + 1)] } else { &[] };
        assert_eq!(helper.credit(Credit::Received { slice }), next);
    }
    assert!(helper.part.is_over() && helper.reports.is_empty());
}

#[test]
fn a_confirmation_may_precede_the_end_of_the_write() {
    let mut helper = middle(Scheme::PipeS);
    helper.steps();
    helper.receive(0);
    helper.writes = false;
    assert_eq!(helper.credit(Credit::Ready { slice: 0 }), [Step::Send(0)]);
    assert_eq!(helper.credit(Credit::Received { slice: 0 }), []);
    helper.write();
    assert_eq!(helper.steps(), [Step::Ready(1)]);
}

#[test]
fn a_plan_ends_when_its_last_credit_is_written() {
    let requestor = chain(Scheme::PipeS).into_iter().find(|one| one.outlets.is_empty());
    let mut requestor = Node::new(requestor.expect("somebody delivers"));
    requestor.steps();
    (0..SLICES - 1).for_each(|slice| assert_eq!(requestor.receive(slice).len(), 2));
    requestor.writes = false;
    assert_eq!(requestor.receive(SLICES - 1), [Step::Received(SLICES - 1)]);
    assert!(!requestor.reports.contains(&Report::Delivered));
    requestor.write();
    assert_eq!(requestor.steps(), []);
    assert!(requestor.reports.contains(&Report::Delivered));
}

#[test]
fn other_pacings_use_no_credits() {
    let mut helper = middle(Scheme::Pipelined);
    assert_eq!(helper.steps(), []);
    assert_eq!(helper.receive(0), [Step::Send(0)]);
    assert_eq!(helper.receive(1), [Step::Send(1)]);
}

#[test]
fn a_false_credit_fails_the_plan() {
    for (scheme, credit) in [
        (Scheme::PipeS, Credit::Received { slice: 0 }),
        (Scheme::Pipelined, Credit::Ready { slice: 0 }),
        (Scheme::Pipelined, Credit::Received { slice: 0 }),
    ] {
        let mut helper = middle(scheme);
        helper.steps();
        assert_eq!(helper.credit(credit), []);
        assert!(matches!(helper.reports[..], [Report::BadFrame { .. }]), "{credit:?}: {:?}", helper.reports);
    }
}

#[test]
fn a_helper_of_pipe_b_forwards_a_block_when_it_has_all_of_it() {
    let mut helper = middle(Scheme::PipeB);
    assert_eq!(helper.steps(), []);
    (0..SLICES - 1).for_each(|slice| assert_eq!(helper.receive(slice), []));
    assert_eq!(helper.receive(SLICES - 1), (0..SLICES).map(Step::Send).collect::<Vec<_>>());
}
