use super::*;

fn said(part: &mut Part, now: Duration) -> Vec<Report> {
    let report = |action| match action {
        PartAction::Report { epoch: Epoch(3), report } => report,
        other => panic!("{other:?}"),
    };
    std::iter::from_fn(|| part.poll(now)).map(report).collect()
}

#[test]
fn a_throttled_errand_is_reported_every_ten_seconds() {
    let mut part = Part::new(JobId(1), 1 << 20, BufferPool::default());
    let (block, mut now) = (BlockId("1.2".into()), Duration::ZERO);
    part.handle_message(ToNode::Reread { job: JobId(1), epoch: Epoch(3), block: block.clone() }, now);
    assert!(matches!(part.poll(now), Some(PartAction::Ask(Errand::Reread(_)))));
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
