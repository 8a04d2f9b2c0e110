use codes::BlockIndex;

use super::*;
use crate::{Dealing, Geometry, Lanes, Pacing, Sink, SinkEnd};

fn said(part: &mut Part, now: Duration) -> Vec<Report> {
    let report = |action| match action {
        PartAction::Report { epoch: Epoch(3), report } => report,
        other => panic!("{other:?}"),
    };
    std::iter::from_fn(|| part.poll(now)).map(report).collect()
}

fn reread(block: &BlockId) -> ToNode {
    ToNode::Reread { job: JobId(1), epoch: Epoch(3), block: block.clone(), digest: None }
}

#[test]
fn a_throttled_errand_is_reported_every_ten_seconds() {
    let mut part = Part::new(JobId(1), 1 << 20, BufferPool::default());
    let (block, mut now) = (BlockId("1.2".into()), Duration::ZERO);
    part.handle_message(reread(&block), now);
    assert!(matches!(part.poll(now), Some(PartAction::Ask(Errand::Reread { .. }))));
    let mut times = Vec::new();
    for held_back in (0..200).map(|look| look % 3 == 0) {
        if held_back {
            part.handle_errand_limited();
        }
        part.handle_tick(now);
        let reports = said(&mut part, now);
        assert!(reports.iter().all(|report| *report == Report::Limited));
        times.extend(reports.iter().map(|_| now.as_millis()));
        now += WATCH_EVERY;
    }
    assert_eq!(times, [0, 10_000, 20_000, 30_000]);
    part.handle_errand_limited();
    part.handle_answer(Report::Reread { block: block.clone(), digest: None }, now);
    part.handle_tick(now + LIMITED_EVERY);
    assert_eq!(
        said(&mut part, now),
        [Report::Reread { block, digest: None }],
        "nothing is held back any more"
    );
    // A hanging disk produces no `Limited` reports.
    part.handle_message(ToNode::Seal { job: JobId(1), epoch: Epoch(3) }, now);
    assert!(matches!(part.poll(now), Some(PartAction::Ask(Errand::Seal))));
    part.handle_tick(now + LIMITED_EVERY * 5);
    assert_eq!(said(&mut part, now), []);
}

/// An assignment that moves nothing on this node.
fn assignment(class: Class, sinks: Vec<Sink>) -> Box<Assignment> {
    Box::new(Assignment {
        job: JobId(1),
        epoch: Epoch(3),
        class,
        tag: None,
        geometry: Geometry { window: 0..1, slice_bytes: 1 },
        slices: SliceSet::all(1),
        pacing: Pacing::Pipelined,
        chunking: Chunking::new(1, 1, 1).expect("one byte"),
        lanes: Lanes { dealing: Dealing::even(1), tasks: vec![None] },
        locals: Vec::new(),
        inlets: Vec::new(),
        outlets: Vec::new(),
        outputs: Vec::new(),
        sinks,
        stall_ms: 1500,
    })
}

/// Runs a plan that moves nothing to its end.
fn run(part: &mut Part, assignment: Box<Assignment>) {
    let now = Duration::ZERO;
    part.handle_message(ToNode::Assign(assignment), now);
    assert!(matches!(part.poll(now), Some(PartAction::Begin(_))));
    assert!(!part.is_over(), "the plan has not begun");
    part.handle_begun(now);
    while part.poll(now).is_some() {}
}

#[test]
fn only_a_part_that_delivers_or_works_for_a_client_lasts_until_it_is_told_to_forget() {
    let sink = Sink {
        index: BlockIndex(0),
        id: BlockId("1.0".into()),
        bytes: 1,
        digest: None,
        end: SinkEnd::Kept { label: None, permit: None },
    };
    for (class, sinks, lasts) in [
        (Class::Repair, Vec::new(), false),
        (Class::Repair, vec![sink.clone()], true),
        (Class::Read, Vec::new(), true),
        (Class::Put, vec![sink], true),
    ] {
        let mut part = Part::new(JobId(1), 1 << 20, BufferPool::default());
        run(&mut part, assignment(class, sinks));
        assert_eq!(part.is_over(), !lasts, "{class:?}");
        part.handle_message(ToNode::Forget { job: JobId(1) }, Duration::ZERO);
        while part.poll(Duration::ZERO).is_some() {}
        assert!(part.is_over());
    }
}

#[test]
fn a_part_that_is_only_asked_is_over_when_its_answer_has_left() {
    let mut part = Part::new(JobId(1), 1 << 20, BufferPool::default());
    let (block, now) = (BlockId("1.2".into()), Duration::ZERO);
    part.handle_message(reread(&block), now);
    assert!(matches!(part.poll(now), Some(PartAction::Ask(Errand::Reread { .. }))));
    assert!(!part.is_over());
    part.handle_answer(Report::Reread { block, digest: None }, now);
    assert!(!part.is_over());
    assert_eq!(said(&mut part, now).len(), 1);
    assert!(part.is_over());
}
