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

/// Creates a file of one stripe, rs-4-2, whose blocks were found to contradict each other.
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

/// A job cannot judge all blocks of a stripe; the check that follows reads all of them from their disks.
#[test]
fn a_contradiction_that_a_job_finds_is_checked_at_once() {
    for found_by in [FoundBy::Read, FoundBy::Repair] {
        for is_forged in [true, false] {
            let mut scene = Scene::new(4);
            let file = scene.put("f", 1);
            if is_forged {
                scene.node(&home(&file, 1)).forged.insert(block(&file, 1));
            }
            let stripe = StripeId(file.layout[0].stripe.stripe.clone());
            tell(&mut scene, Signal::Contradiction { stripe, blocks: blocks(0..4), found_by });
            assert!(!scene.status().healthy, "until it is settled");
            scene.wait(Duration::from_secs(1));
            let status = scene.status();
            assert_eq!((status.stripes.contradictory, status.healthy), (0, !is_forged), "{}", status.summary);
            let state = if is_forged { "corrupt" } else { "healthy" };
            assert_eq!(states(&scene.file("f")), ["healthy", state, "healthy", "healthy"]);
        }
    }
}

impl Scene {
    /// Returns how many verifications helpers were asked for since the last call, and lets the helpers
    /// answer.
    fn verifications(&mut self) -> usize {
        let mut count = 0;
        for node in self.nodes.values_mut() {
            node.backlog.append(&mut node.inbox);
            count += node.backlog.iter().filter(|message| matches!(message, ToNode::Verify { .. })).count();
        }
        self.play();
        count
    }

    /// Reports blocks 20 times a second for this long; returns the number of verifications.
    fn report(&mut self, reporter: &str, reported: &[(StripeId, BlockIndex)], time: Duration) -> usize {
        let (end, mut count) = (self.now + time, 0);
        while self.now < end {
            for (stripe, block) in reported.iter().cloned() {
                self.say(reporter, FromNode::Garbled { stripe, block });
            }
            self.now += Duration::from_millis(50);
            self.tick();
            self.pump();
            count += self.verifications();
        }
        count
    }
}

#[test]
fn a_block_that_a_client_reports_is_verified_by_its_helper() {
    let mut scene = Scene::new(4);
    let file = scene.put("f", 1);
    let stripe = StripeId(file.layout[0].stripe.stripe.clone());
    let second = Duration::from_secs(1);
    scene.rotten.insert(block(&file, 1));
    assert_eq!(scene.report("h2", &[(stripe.clone(), BlockIndex(1))], second), 0, "helpers report nothing");
    let nonsense = [(stripe.clone(), BlockIndex(4)), (StripeId("999".into()), BlockIndex(0))];
    assert_eq!(scene.report("admin", &nonsense, second), 0);
    let reported = [(stripe.clone(), BlockIndex(0)), (stripe, BlockIndex(1))];
    assert_eq!(scene.report("admin", &reported, second), 2);
    assert_eq!(
        states(&scene.file("f")),
        ["healthy", "corrupt", "healthy", "healthy"],
        "a report is no verdict"
    );
}

#[test]
fn reports_of_clients_are_bounded_in_rate_and_number() {
    let mut scene = Scene::new(4);
    let file = scene.put("f", 60);
    let stripes: Vec<StripeId> =
        file.layout.iter().map(|part| StripeId(part.stripe.stripe.clone())).collect();
    let all: Vec<_> = stripes
        .into_iter()
        .flat_map(|stripe| (0..4).map(move |at| (stripe.clone(), BlockIndex(at))))
        .collect();
    // A helper verifies one reported block at a time.
    let slow = home(&file, 0);
    scene.frozen.insert(slow.clone());
    scene.report("admin", &all[..80], Duration::from_secs(5));
    let waiting = scene.node(&slow).backlog.iter().filter(|message| matches!(message, ToNode::Verify { .. }));
    assert_eq!(waiting.count(), 1);
    scene.frozen.clear();
    scene.wait(Duration::from_secs(70));
    // A block is verified at most once a minute.
    assert_eq!(scene.report("admin", &all[..1], Duration::from_secs(50)), 1);
    scene.wait(Duration::from_secs(70));
    let count = scene.report("admin", &all, Duration::from_secs(50));
    assert!((50..=100).contains(&count), "{count} verifications in a minute");
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
