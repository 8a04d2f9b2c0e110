//! Contradicting blocks, checksums that match wrong blocks, and requestors that corrupt their deliveries.

use repair::{Fingerprint, ParityOutcome};

use super::*;

const PARITY: Verify = Verify { parity: true, stretch_bytes: u64::MAX, reread: false, doubted: false };
const DOUBTED: Verify = Verify { doubted: true, ..PARITY };

/// A digest that different blocks can share.
fn weak(index: u16) -> Option<Digest> {
    Some(Digest::of_u32("crc32c", index.into()))
}

/// A digest unique to its block.
fn strong(index: u16) -> Option<Digest> {
    Some(Digest::new("blake3", &[index as u8; 32]).unwrap())
}

/// Simulated nodes, some of them faulty.
struct Cast {
    /// A forged block, which contradicts all others.
    forged: Option<u16>,
    /// Whether the block is forged only after deliveries have been made from it.
    late: bool,
    /// Requestors that corrupt what they write.
    spoils: Vec<NodeId>,
    /// Requestors that report wrong digests.
    misstates: Vec<NodeId>,
    digest: fn(u16) -> Option<Digest>,
}

impl Cast {
    fn honest(digest: fn(u16) -> Option<Digest>) -> Self {
        Self { forged: None, late: false, spoils: Vec::new(), misstates: Vec::new(), digest }
    }

    /// Runs a job to its end.
    fn play(&self, test: &mut TestJob) {
        self.play_from(test, 0);
    }

    /// Runs a job to its end. The first `heard` messages are answered already.
    fn play_from(&self, test: &mut TestJob, mut heard: usize) {
        for _ in 0..10_000 {
            if test.ended.is_some() {
                return;
            }
            match test.told.get(heard).cloned() {
                Some((node, message)) => self.answer(test, node, message),
                None => test.wait(SECOND),
            }
            heard = (heard + 1).min(test.told.len());
        }
        panic!("no end: {:?}", test.job.state());
    }

    fn answer(&self, test: &mut TestJob, node: NodeId, message: ToNode) {
        match message {
            ToNode::Assign(assignment) if !assignment.sinks.is_empty() => test.say(node, Report::Delivered),
            ToNode::Stop { .. } => test.say(node, Report::Stopped { delivered: SliceSet::new() }),
            ToNode::Seal { .. } => {
                let digests = self.digests(test, node);
                test.say(node, Report::Sealed { digests, hand_over_ms: 0 });
            }
            ToNode::Fingerprint { block, seed, .. } => {
                let is_false = match self.forged {
                    Some(forged) if block.index.0 == forged => true,
                    _ => self.is_spoilt(test, node),
                };
                let fingerprint = match is_false {
                    true => Fingerprint(vec![1; repair::FINGERPRINT_BYTES]),
                    false => Fingerprint::zero(),
                };
                let fingerprints = vec![fingerprint];
                test.say(node, Report::Fingerprinted { block: block.id, seed, fingerprints });
            }
            ToNode::Commit { .. } => test.say(node, Report::Committed),
            _ => {}
        }
    }

    /// Whether a requestor holds something other than the lost block.
    fn is_spoilt(&self, test: &TestJob, node: NodeId) -> bool {
        node.0 >= REQUESTORS && (self.spoils.contains(&node) || !self.late && self.reads_forged(test))
    }

    /// Whether the current plan reads the forged block.
    fn reads_forged(&self, test: &TestJob) -> bool {
        let epoch = test.job.epoch();
        let reads = |(_, message): &(NodeId, ToNode)| match message {
            ToNode::Assign(assignment) if assignment.epoch == epoch => {
                assignment.locals.iter().any(|local| Some(local.index.0) == self.forged)
            }
            _ => false,
        };
        test.told.iter().any(reads)
    }

    fn digests(&self, test: &TestJob, node: NodeId) -> Vec<(BlockId, Option<Digest>)> {
        let made = |index: u16| {
            let is_weak = (self.digest)(index).is_some_and(|digest| digest.kind() == "crc32c");
            let is_false = self.misstates.contains(&node)
                // A checksum does not detect a forgery, but it detects corruption by the requestor.
                || self.spoils.contains(&node)
                || !is_weak && self.is_spoilt(test, node);
            (id(index), (self.digest)(if is_false { 99 } else { index }))
        };
        let sinks = test.told.iter().rev().find_map(|(told, message)| match message {
            ToNode::Assign(assignment) if *told == node => Some(assignment.sinks.clone()),
            _ => None,
        });
        sinks.unwrap_or_default().into_iter().map(|sink| made(sink.index.0)).collect()
    }
}

/// Runs a job to its end with faultless nodes. The first `heard` messages are answered already.
pub(super) fn play_honest(test: &mut TestJob, heard: usize) {
    Cast::honest(|_| None).play_from(test, heard);
}

fn succeeded(test: &TestJob) -> &Outcome {
    test.ended.as_ref().expect("it has ended").as_ref().expect("it went well")
}

/// Asserts that nothing was published and that the job names these contradicting blocks.
fn assert_contradiction(test: &TestJob, blocks: &[u16]) {
    assert_eq!(test.published, []);
    let Some(Err(JobError::Contradiction { blocks: named, .. })) = &test.ended else {
        panic!("{:?}", test.ended)
    };
    assert_eq!(*named, blocks.iter().map(|&index| id(index)).collect::<Vec<_>>());
}

#[test]
fn with_one_block_to_spare_a_checksum_does_not_overrule_parity() {
    for forged in 2..6 {
        let mut test = TestJob::recorded(2, PARITY, weak);
        Cast { forged: Some(forged), ..Cast::honest(weak) }.play(&mut test);
        assert_contradiction(&test, &[2, 3, 4, 5]);
        assert_eq!(
            test.contradicted,
            [(2..6).map(BlockIndex).collect()],
            "whoever drives it is told at once"
        );
        assert_eq!(test.lost, [], "nobody is accused at a guess");
    }
}

#[test]
fn with_two_blocks_to_spare_the_one_that_is_wrong_is_found_and_named() {
    for forged in 1..6 {
        let mut test = TestJob::recorded(1, PARITY, weak);
        Cast { forged: Some(forged), ..Cast::honest(weak) }.play(&mut test);
        let outcome = succeeded(&test);
        let asked = test.contradicted.iter().flatten().any(|block| block.0 == forged);
        // A forged block that no check asked about does no harm.
        assert_eq!(test.lost, if asked { vec![BlockIndex(forged)] } else { vec![] }, "{outcome:?}");
        assert_eq!(outcome.parity, ParityOutcome::Holds);
        assert!(!outcome.proven.contains(&BlockIndex(forged)), "{outcome:?}");
    }
}

/// The deliveries of a read are at the client, so the job reports a contradiction but does not decide which
/// block on a disk is wrong.
#[test]
fn a_read_tells_which_block_it_left_out_and_settles_nothing() {
    for (verify, forged) in
        [PARITY, DOUBTED].into_iter().flat_map(|verify| (1..6).map(move |at| (verify.clone(), at)))
    {
        let mut test = TestJob::read(1, verify.clone());
        Cast { forged: Some(forged), ..Cast::honest(|_| None) }.play(&mut test);
        let outcome = succeeded(&test);
        assert_eq!(outcome.parity, ParityOutcome::Holds);
        assert_eq!((outcome.proven.len(), &test.lost[..]), (0, &[][..]), "{outcome:?}");
        let is_left_out =
            outcome.replanned.iter().any(|why| why.contains(&format!("{} is not used", id(forged))));
        let is_told = test.contradicted.iter().any(|blocks| blocks.contains(&BlockIndex(forged)));
        assert_eq!(is_told, is_left_out, "{outcome:?}");
        assert!(is_told || !verify.doubted, "in doubt every survivor is asked: {outcome:?}");
    }
}

#[test]
fn a_unique_digest_identifies_the_wrong_block_with_one_to_spare() {
    for forged in 2..6 {
        let mut test = TestJob::recorded(2, PARITY, strong);
        Cast { forged: Some(forged), ..Cast::honest(strong) }.play(&mut test);
        let outcome = succeeded(&test);
        assert_eq!(test.published.len(), 2, "{outcome:?}");
        assert_eq!(test.lost, [BlockIndex(forged)], "{outcome:?}");
        let others: BTreeSet<BlockIndex> = (0..6).map(BlockIndex).filter(|block| block.0 != forged).collect();
        assert_eq!(outcome.proven, others);
    }
}

/// The delivery was made from the block before the block was forged, so the delivery is right, and the block now
/// contradicts the others. That must not be held against any of them.
#[test]
fn a_block_that_is_forged_after_it_was_read_accuses_no_other() {
    for forged in 1..6 {
        let mut test = TestJob::recorded(1, PARITY, strong);
        Cast { forged: Some(forged), late: true, ..Cast::honest(strong) }.play(&mut test);
        let outcome = succeeded(&test);
        assert!(test.lost.iter().all(|block| block.0 == forged), "{forged}: {:?}", test.lost);
        assert!(!outcome.proven.contains(&BlockIndex(forged)), "{forged}: {:?}", outcome.proven);
    }
}

#[test]
fn a_stripe_in_doubt_is_repaired_if_every_survivor_agrees() {
    let mut test = TestJob::recorded(1, DOUBTED, weak);
    Cast::honest(weak).play(&mut test);
    assert_eq!(succeeded(&test).proven, (0..6).map(BlockIndex).collect(), "all of them were asked");
}

#[test]
fn a_stripe_in_doubt_is_not_repaired_without_proof() {
    for digest in [weak, |_| None] {
        let mut test = TestJob::recorded(3, DOUBTED, digest);
        Cast::honest(digest).play(&mut test);
        assert_contradiction(&test, &[3, 4, 5]);
    }
    let mut test = TestJob::recorded(3, DOUBTED, strong);
    Cast::honest(strong).play(&mut test);
    assert_eq!(test.published.len(), 3);
}

/// Another job or a scrub finds the contradiction during a repair that would have asked fewer survivors.
#[test]
fn after_a_contradiction_every_survivor_is_asked() {
    let mut test = TestJob::recorded(1, PARITY, weak);
    test.job.handle_contradiction(&test.topology, test.now);
    Cast::honest(weak).play(&mut test);
    assert_eq!(succeeded(&test).proven.len(), 6);
}

#[test]
fn a_requestor_with_a_wrong_digest_is_suspected_before_any_source() {
    for parity in [true, false] {
        let mut test = TestJob::recorded(1, Verify { parity, ..PARITY }, weak);
        let first = NodeId(REQUESTORS);
        Cast { misstates: vec![first], ..Cast::honest(weak) }.play(&mut test);
        assert_eq!(test.published, [(BlockIndex(0), SPARE)]);
        let [why] = &succeeded(&test).replanned[..] else { panic!("{:?}", succeeded(&test)) };
        assert!(why.ends_with(&format!("this repair avoids h{first} as a target from now on")), "{why}");
        assert_eq!((test.lost, test.contradicted), (vec![], vec![]));
    }
}

#[test]
fn a_requestor_that_spoils_a_block_is_replaced_though_only_one_block_is_to_spare() {
    let mut test = TestJob::recorded(2, PARITY, |_| None);
    let other = NodeId(21);
    test.topology.set(other, NodeProfile::helper("h21", "10.0.0.21:1"));
    let spoils = vec![NodeId(REQUESTORS)];
    Cast { spoils, ..Cast::honest(|_| None) }.play(&mut test);
    assert_eq!(test.published.len(), 2);
    assert!(test.published.iter().all(|&(_, node)| node != NodeId(REQUESTORS)), "{:?}", test.published);
    assert_eq!((&test.lost[..], &test.contradicted[..]), (&[][..], &[][..]));
}

#[test]
fn if_two_requestors_agree_sources_are_suspected() {
    let mut test = TestJob::recorded(1, PARITY, weak);
    Cast { misstates: vec![NodeId(REQUESTORS), SPARE], ..Cast::honest(weak) }.play(&mut test);
    assert_contradiction(&test, &[1, 2, 3, 4, 5]);
}
