//! Parity checks that run while slices are still moving.

use std::collections::BTreeSet;

use repair::{Fingerprint, LocalBlock};

use super::*;

const REQUESTOR: NodeId = NodeId(REQUESTORS);
const STRETCHES: u64 = 4;

/// A requested fingerprint.
#[derive(Clone, Debug)]
struct Asked {
    node: NodeId,
    block: LocalBlock,
    window: (u64, u64),
    seed: u64,
}

/// One lost block, checked in four stretches.
fn moving() -> TestJob {
    let verify = Verify { parity: true, stretch_bytes: BLOCK_BYTES / STRETCHES, ..Verify::default() };
    TestJob::verified(1, verify)
}

impl TestJob {
    fn asked(&self) -> Vec<Asked> {
        let asked = |(node, message): &(NodeId, ToNode)| match message {
            ToNode::Fingerprint { block, window, seed, .. } => {
                Some(Asked { node: *node, block: block.clone(), window: *window, seed: *seed })
            }
            _ => None,
        };
        self.told.iter().filter_map(asked).collect()
    }

    /// Reports that the requestor has written this share of all slices.
    fn write(&mut self, part: f64) {
        let whole = (f64::from(self.job.state().slices) * part) as u32;
        self.say(REQUESTOR, Report::Progress { slices: whole, whole });
    }

    fn answer(&mut self, asked: &Asked, fingerprint: Fingerprint) {
        let (block, seed) = (asked.block.id.clone(), asked.seed);
        self.say(asked.node, Report::Fingerprinted { block, seed, fingerprints: vec![fingerprint] });
    }

    fn deliver(&mut self) {
        self.say(REQUESTOR, Report::Delivered);
        self.deliver_and_seal(REQUESTOR, 0, 0);
    }

    /// A survivor that takes part in the check but not in the plan.
    fn beside(&self) -> Asked {
        let plan = self.job.running_plan().expect("it runs").nodes();
        self.asked().into_iter().find(|asked| !plan.contains(&asked.node)).expect("one more than is read")
    }
}

#[test]
fn survivors_learn_the_seed_only_after_the_stretch_is_written() {
    let mut test = moving();
    test.write(0.2);
    assert!(test.asked().is_empty(), "nothing is complete yet");
    test.write(0.6);
    let asked = test.asked();
    let windows: BTreeSet<_> = asked.iter().map(|asked| asked.window).collect();
    let stretch = BLOCK_BYTES / STRETCHES;
    assert_eq!(windows.into_iter().collect::<Vec<_>>(), [(0, stretch), (stretch, 2 * stretch)]);
    assert_eq!(asked.len(), 2 * 4, "k + 1 survivors each");
    assert!(asked.iter().all(|asked| asked.node != REQUESTOR), "a requestor has nothing sealed yet");

    test.deliver();
    let seeds: BTreeSet<_> = test.asked().iter().map(|asked| (asked.window, asked.seed)).collect();
    let distinct: BTreeSet<_> = seeds.iter().map(|(_, seed)| seed).collect();
    assert_eq!((seeds.len(), distinct.len()), (4, 4), "each stretch has a seed of its own");
    let asked = test.asked();
    assert_eq!(asked.len(), 4 * 5, "k + 1 survivors and what was rebuilt, each once for a stretch");
    for asked in &asked[..19] {
        test.answer(asked, Fingerprint::zero());
    }
    assert!(!test.was_told(REQUESTOR, is_commit), "an answer is missing");
    test.answer(&asked[19], Fingerprint::zero());
    assert!(test.was_told(REQUESTOR, is_commit));
}

#[test]
fn an_error_in_an_early_stretch_prevents_publication() {
    let mut test = moving();
    test.write(0.3);
    let early = test.asked();
    test.answer(&early[0], Fingerprint(vec![1; repair::FINGERPRINT_BYTES]));
    for asked in &early[1..] {
        test.answer(asked, Fingerprint::zero());
    }
    test.deliver();
    for asked in &test.asked()[early.len()..] {
        test.answer(asked, Fingerprint::zero());
    }
    assert!(!test.was_told(REQUESTOR, is_commit));
    assert!(test.is_given_up(REQUESTOR), "it is delivered anew");
}

#[test]
fn answers_with_another_seed_are_ignored() {
    let mut test = moving();
    test.write(1.0);
    test.deliver();
    let asked = test.asked();
    for asked in &asked {
        let stale = Asked { seed: asked.seed ^ 1, ..asked.clone() };
        test.answer(&stale, Fingerprint::zero());
    }
    assert!(!test.was_told(REQUESTOR, is_commit));
}

#[test]
fn answers_for_another_nodes_block_are_ignored() {
    let mut test = moving();
    test.write(1.0);
    test.deliver();
    let asked = test.asked();
    let liar = asked[0].node;
    for asked in &asked {
        test.answer(&Asked { node: liar, ..asked.clone() }, Fingerprint::zero());
    }
    assert!(!test.was_told(REQUESTOR, is_commit));
    for asked in &asked {
        test.answer(asked, Fingerprint::zero());
    }
    assert!(test.was_told(REQUESTOR, is_commit));
}

#[test]
fn failures_of_nodes_that_only_answer_for_parity_do_not_harm_the_plan() {
    let lost: fn(&mut TestJob, &Asked) = |test, beside| {
        let gone = NodeProfile { alive: false, ..test.topology.get(beside.node).expect("known").clone() };
        test.topology.set(beside.node, gone);
        test.job.handle_node_lost(beside.node, &test.topology, test.now);
        test.act();
    };
    let rotten: fn(&mut TestJob, &Asked) = |test, beside| {
        let problem = BlockProblem::Corrupt("a checksum".into());
        test.say(beside.node, Report::BadBlock { block: beside.block.id.clone(), problem });
    };
    for fail in [lost, rotten] {
        let mut test = moving();
        test.write(0.6);
        let beside = test.beside();
        let (epoch, told) = (test.job.epoch(), test.told.len());
        fail(&mut test, &beside);
        assert_eq!((test.job.epoch(), test.told.len()), (epoch, told), "the plan goes on");
        test.deliver();
        let anew = test.asked().split_off(8);
        assert_eq!(anew.len(), 5, "all of it at once, of others");
        assert!(anew.iter().all(|asked| asked.node != beside.node));
        for asked in &anew {
            test.answer(asked, Fingerprint::zero());
        }
        assert!(test.was_told(REQUESTOR, is_commit));
    }
}

#[test]
fn others_are_asked_about_parity_if_one_does_not_answer() {
    let mut test = moving();
    test.write(1.0);
    let silent = test.beside().node;
    test.deliver();
    let asked = test.asked();
    for asked in asked.iter().filter(|asked| asked.node != silent) {
        test.answer(asked, Fingerprint::zero());
    }
    test.wait(2 * SECOND);
    assert_eq!(test.asked().len(), asked.len(), "it may be slow");
    test.wait(SECOND);
    let anew = test.asked().split_off(asked.len());
    assert_eq!(anew.len(), 5, "all of it at once, of others");
    assert!(anew.iter().all(|asked| asked.node != silent));
    for asked in &anew {
        test.answer(asked, Fingerprint::zero());
    }
    test.say(REQUESTOR, Report::Committed);
    let outcome = test.ended.expect("nothing is left to do").expect("it is good");
    assert_eq!(
        outcome.replanned,
        [format!("h{silent} did not answer the parity check in time; asking other nodes")]
    );
}

#[test]
fn the_only_node_that_can_answer_about_parity_is_awaited() {
    let verify = Verify { parity: true, ..Verify::default() };
    let mut test = TestJob::verified(2, verify);
    let requestors = [REQUESTOR, NodeId(REQUESTORS + 1)];
    requestors.iter().for_each(|&node| test.say(node, Report::Delivered));
    (0..2).zip(requestors).for_each(|(index, node)| test.deliver_and_seal(node, index, 0));
    let asked = test.asked();
    assert_eq!(asked.len(), 6, "all survivors, and what was rebuilt");
    test.wait(100 * SECOND);
    assert_eq!(test.asked().len(), asked.len());
    for asked in &asked {
        test.answer(asked, Fingerprint::zero());
    }
    assert!(test.was_told(REQUESTOR, is_commit));
}
