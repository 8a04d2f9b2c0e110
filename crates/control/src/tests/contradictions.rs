//! Contradictory blocks, from their detection to the proof that their parity holds.

use crate::commands::{FileCommand, NodeCommand, ScrubCommand};
use views::{FoundBy, HistoryEvent, Severity};

use super::*;
use crate::signal::Signal;

fn blocks(indices: std::ops::Range<u16>) -> BTreeSet<BlockIndex> {
    indices.map(BlockIndex).collect()
}

fn tell(scene: &mut Scene, signal: Signal) {
    let core = scene.core();
    core.out.tell(signal);
    core.route();
}

/// A file of one stripe, rs-4-2, whose blocks were found to contradict each other.
fn contradicted() -> (Scene, StripeId, FileLayout) {
    let mut scene = Scene::new(4);
    let file = scene.put("f", 1);
    let stripe = StripeId(file.layout[0].stripe.stripe.clone());
    tell(
        &mut scene,
        Signal::Contradiction { stripe: stripe.clone(), blocks: blocks(0..3), found_by: FoundBy::Scrub },
    );
    scene.pump();
    (scene, stripe, file)
}

fn assert_contradicted(scene: &mut Scene) {
    let status = scene.status();
    assert!(!status.healthy, "{}", status.summary);
    assert_eq!(status.stripes.contradictory, 1, "{}", status.summary);
    assert!(!status.summary.contains("safe"), "{}", status.summary);
    let [contradiction] = &status.damage.contradictions[..] else {
        panic!("{:#?}", status.damage.contradictions)
    };
    assert_eq!((contradiction.found_by, contradiction.blocks.len()), (FoundBy::Scrub, 3));
    assert_eq!(contradiction.file.as_deref(), Some("f"));
}

fn restart(scene: &mut Scene) {
    scene.restart();
    for helper in 1..=4 {
        scene.start(&format!("h{helper}"));
    }
    scene.wait(Duration::from_secs(11));
}

#[test]
fn a_contradiction_survives_restarts_until_a_check_covers_every_good_block() {
    let (mut scene, stripe, file) = contradicted();
    assert_contradicted(&mut scene);
    assert_eq!(scene.status().severity, Severity::Critical);
    assert!(scene.status().summary.starts_with("IN DOUBT  "), "{}", scene.status().summary);
    restart(&mut scene);
    assert_contradicted(&mut scene);
    assert_eq!(scene.status().severity, Severity::Critical);

    tell(&mut scene, Signal::ParityHeld { stripe: stripe.clone(), blocks: blocks(0..3) });
    assert_contradicted(&mut scene);
    let last = home(&file, 3);
    scene.kill(&last);
    tell(&mut scene, Signal::ParityHeld { stripe: stripe.clone(), blocks: blocks(0..3) });
    assert_contradicted(&mut scene);
    let next = &scene.status().damage.contradictions[0].next_step;
    assert!(next.starts_with(&format!("start {last}")), "it holds a block that was not asked: {next}");

    tell(&mut scene, Signal::ParityHeld { stripe: stripe.clone(), blocks: blocks(0..4) });
    scene.pump();
    restart(&mut scene);
    let status = scene.status();
    assert!(status.healthy && status.damage.contradictions.is_empty(), "{}", status.summary);
    let history = scene.core().history.history(10);
    let said = |what: fn(&HistoryEvent) -> bool| history.iter().filter(|entry| what(&entry.what)).count();
    assert_eq!(said(|event| matches!(event, HistoryEvent::Contradiction { .. })), 1);
    assert_eq!(said(|event| matches!(event, HistoryEvent::ContradictionSettled { .. })), 1);
}

#[test]
fn a_check_need_not_cover_blocks_known_to_be_bad() {
    let (mut scene, stripe, file) = contradicted();
    scene.rotten.insert(block(&file, 3));
    scene.ask(|reply| ScrubCommand::Start(false, reply)).unwrap();
    scene.play();
    assert_eq!(states(&scene.file("f"))[3], "corrupt");
    tell(&mut scene, Signal::ParityHeld { stripe: stripe.clone(), blocks: blocks(0..3) });
    assert!(scene.status().damage.contradictions.is_empty());
}

#[test]
fn a_contradiction_ends_with_its_stripe() {
    let (mut scene, ..) = contradicted();
    scene.ask(|reply| FileCommand::Remove("f".into(), reply)).unwrap();
    scene.pump();
    assert_eq!(scene.status().stripes.contradictory, 0);
    restart(&mut scene);
    assert!(scene.status().healthy);
}

#[test]
fn a_contradictory_stripe_can_lose_nothing() {
    let (mut scene, stripe, file) = contradicted();
    let answer = scene.ask(|reply| NodeCommand::OkToStop(vec![home(&file, 3)], 0, reply)).unwrap();
    assert!(!answer.safe && answer.contradictory == 1, "{answer:?}");
    assert!(answer.text.contains("contradict each other"), "{}", answer.text);
    let classes = scene.status().stripes.redundancy;
    assert_eq!((classes.len(), classes[0].survives, classes[0].helpers), (1, 0, 0), "{classes:?}");
    let view = &scene.file("f").layout[0].stripe;
    assert_eq!((view.readable, view.survives, view.helpers), (true, 0, 0));

    tell(&mut scene, Signal::ParityHeld { stripe, blocks: blocks(0..4) });
    let answer = scene.ask(|reply| NodeCommand::OkToStop(vec![home(&file, 3)], 0, reply)).unwrap();
    assert!(answer.safe && answer.survives == Some(1), "{answer:?}");
    assert_eq!(scene.status().stripes.redundancy[0].survives, 2);
    assert_eq!(scene.file("f").layout[0].stripe.survives, 2);
}
