//! Contradicting blocks, checksums that match wrong blocks, and requestors that corrupt their deliveries.

use repair::{Fingerprint, ParityOutcome, SinkEnd};

use super::*;

const PARITY: Verify = Verify {
    parity: true,
    stretch_bytes: u64::MAX,
    reread: false,
    doubted: false,
    replaces_digests: false,
    proven: false,
};
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
    /// Requestors that corrupt their deliveries.
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
    fn play_from(&self, test: &mut TestJob, heard: usize) {
        self.play_except(test, heard, |_, _, _| false);
    }

    /// Like `play_from`. If `differs` returns true, it has answered the message itself.
    fn play_except(
        &self,
        test: &mut TestJob,
        mut heard: usize,
        mut differs: impl FnMut(&mut TestJob, NodeId, &ToNode) -> bool,
    ) {
        for _ in 0..10_000 {
            if test.ended.is_some() {
                return;
            }
            match test.told.get(heard).cloned() {
                Some((node, message)) if differs(test, node, &message) => heard += 1,
                Some(_) => {
                    self.answer_at(test, heard);
                    heard += 1;
                }
                None => test.wait(SECOND),
            }
        }
        panic!("no end: {:?}", test.job.state());
    }

    /// Answers the message with this number.
    fn answer_at(&self, test: &mut TestJob, heard: usize) {
        match test.told[heard].clone() {
            (node, ToNode::Stop { .. }) => {
                let delivered = delivered(&test.told[..heard], node);
                test.say(node, Report::Stopped { delivered });
            }
            (node, message) => self.answer(test, node, message),
        }
    }

    fn answer(&self, test: &mut TestJob, node: NodeId, message: ToNode) {
        match message {
            ToNode::Assign(assignment) if !assignment.sinks.is_empty() => test.say(node, Report::Delivered),
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
        // A committed delivery is a block of the store, and no delivery any more.
        let told = test.told.iter().rev().filter(|(told, _)| *told == node).map(|(_, message)| message);
        let sinks =
            told.take_while(|message| !matches!(message, ToNode::Commit { .. })).find_map(|message| {
                match message {
                    ToNode::Assign(assignment) => Some(assignment.sinks.clone()),
                    _ => None,
                }
            });
        sinks.unwrap_or_default().into_iter().map(|sink| made(sink.index.0)).collect()
    }
}

/// Returns the slices that a requestor has after these messages, like a helper: until it is told to forget the job, it
/// keeps what was delivered.
fn delivered(told: &[(NodeId, ToNode)], node: NodeId) -> SliceSet {
    let mut delivered = SliceSet::new();
    for (_, message) in told.iter().filter(|(other, _)| *other == node) {
        match message {
            ToNode::Assign(assignment) if !assignment.sinks.is_empty() => {
                delivered = delivered.union(&assignment.slices);
            }
            ToNode::Forget { .. } => delivered = SliceSet::new(),
            _ => {}
        }
    }
    delivered
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

/// A node that holds a survivor answers with a fingerprint of a wrong size. Its answer does not count.
#[test]
fn a_fingerprint_of_a_wrong_size_counts_as_none() {
    let mut test = TestJob::recorded(1, PARITY, strong);
    let mut answered = 0;
    Cast::honest(strong).play_except(&mut test, 0, |test, node, message| {
        answered += u32::from(answer_too_briefly(test, node, message, 3));
        matches!(message, ToNode::Fingerprint { block, .. } if block.index.0 == 3)
    });
    assert!(answered > 0 && succeeded(&test).parity == ParityOutcome::Holds, "{:?}", test.ended);
}

/// Answers a request for the fingerprints of this block with one of a wrong size.
fn answer_too_briefly(test: &mut TestJob, node: NodeId, message: &ToNode, index: u16) -> bool {
    let ToNode::Fingerprint { block, seed, .. } = message else { return false };
    if block.index.0 != index {
        return false;
    }
    let fingerprints = vec![Fingerprint(Vec::new())];
    test.say(node, Report::Fingerprinted { block: block.id.clone(), seed: *seed, fingerprints });
    true
}

/// A helper that stores a block of a put answers with a fingerprint of a wrong size. Another one takes its place.
#[test]
fn a_helper_whose_fingerprints_do_not_count_is_replaced_in_a_put() {
    let mut test = TestJob::put(Some(SPARE));
    Cast::honest(|_| None).play_except(&mut test, 0, |test, node, message| {
        node == requestor(4) && answer_too_briefly(test, node, message, 4)
    });
    assert!(succeeded(&test).homes[&BlockIndex(4)] == SPARE, "{:?}", test.ended);
}

/// A helper cannot read the block that it has just received. Another one takes its place, and the block's holder, from
/// which it was moved, is not accused.
#[test]
fn a_helper_that_cannot_read_its_delivery_is_replaced() {
    let moved = || {
        let mut topology = Topology::new();
        for node in (0..6).map(NodeId).chain([requestor(0), SPARE]) {
            topology.set(node, NodeProfile::helper(format!("h{node}"), format!("10.0.0.{node}:1")));
        }
        let stripe = stripe(|index| Some(NodeId(index.into())), |_| None);
        TestJob::begin(JobRequest { stripe, ..request(1, PARITY) }, topology)
    };
    for (mut test, index) in [(moved(), 0), (TestJob::put(Some(SPARE)), 0), (TestJob::put(Some(SPARE)), 4)] {
        Cast::honest(|_| None).play_except(&mut test, 0, |test, node, message| match message {
            ToNode::Fingerprint { block, .. } if node == requestor(index) => {
                let problem = BlockProblem::Corrupt("bad checksum".to_owned());
                test.say(node, Report::BadBlock { block: block.id.clone(), problem });
                true
            }
            _ => false,
        });
        assert_eq!(succeeded(&test).homes[&BlockIndex(index)], SPARE);
        assert_eq!(test.lost, [], "its holder has not lost it");
    }
}

/// A stored block reads back wrong. All of its slices are moved again, because its helper has no delivery any more.
#[test]
fn a_stored_block_that_reads_back_wrong_is_moved_again() {
    let (mut test, node) =
        (TestJob::recorded(1, Verify { reread: true, ..PARITY }, strong), NodeId(REQUESTORS));
    let mut read = 0;
    Cast::honest(strong).play_except(&mut test, 0, |test, node, message| {
        let ToNode::Reread { block, .. } = message else { return false };
        read += 1;
        let report = match read {
            1 => Report::BadBlock { block: block.clone(), problem: BlockProblem::Missing },
            _ => Report::Reread { block: block.clone(), digest: strong(0) },
        };
        test.say(node, report);
        true
    });
    succeeded(&test);
    assert_eq!((read, test.published.len()), (2, 2));
    let moves = |(told, message): &&(NodeId, ToNode)| *told == node && matches!(message, ToNode::Assign(_));
    assert_eq!(test.told.iter().filter(moves).count(), 2);
}

/// A stored block reads back wrong while another helper's failure stops the job. The helper's answer to the first
/// message to stop is older than the message to discard the block, so its slices do not count.
#[test]
fn slices_of_a_discarded_block_do_not_count() {
    let mut test = TestJob::recorded(2, Verify { reread: true, ..PARITY }, |_| None);
    let other = NodeId(21);
    test.topology.set(other, NodeProfile::helper("h21", "10.0.0.21:1"));
    let (first, second) = (requestor(0), requestor(1));
    let mut failed = false;
    Cast::honest(|_| None).play_except(&mut test, 0, |test, node, message| {
        let ToNode::Reread { block, .. } = message else { return false };
        if failed {
            test.say(node, Report::Reread { block: block.clone(), digest: None });
        } else if node == second {
            failed = true;
            let heard = test.told.len();
            test.topology.remove(second);
            test.job.handle_node_lost(second, &test.topology, test.now);
            test.act();
            let stop = test.told[heard..]
                .iter()
                .any(|(node, message)| *node == first && matches!(message, ToNode::Stop { .. }));
            assert!(stop, "the first requestor is told to stop");
            test.say(first, Report::BadBlock { block: id(0), problem: BlockProblem::Missing });
        }
        true
    });
    assert_eq!(test.published.iter().filter(|(block, _)| block.0 == 0).count(), 2, "{:?}", test.published);
    assert_eq!((succeeded(&test).homes.len(), &test.contradicted[..]), (2, &[][..]));
    let moves = |(told, message): &&(NodeId, ToNode)| *told == first && matches!(message, ToNode::Assign(_));
    assert_eq!(test.told.iter().filter(moves).count(), 2, "{:?}", succeeded(&test).replanned);
}

/// A survivor turns out to be bad while parity is checked. The check goes on with the others, and no delivery is
/// stopped.
#[test]
fn a_bad_survivor_during_the_check_costs_no_delivery() {
    let mut test = TestJob::recorded(1, PARITY, |_| None);
    Cast::honest(|_| None).play_except(&mut test, 0, |test, node, message| match message {
        ToNode::Fingerprint { block, .. } if test.lost.is_empty() && node.0 < REQUESTORS => {
            test.say(node, Report::BadBlock { block: block.id.clone(), problem: BlockProblem::Missing });
            true
        }
        _ => false,
    });
    let outcome = succeeded(&test);
    assert_eq!((outcome.parity, test.lost.len(), test.published.len()), (ParityOutcome::Holds, 1, 1));
    let stopped = test.told.iter().any(|(_, message)| matches!(message, ToNode::Stop { .. }));
    assert!(!stopped, "{:?}", outcome.replanned);
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

/// A stored block is read as it is. If it turns out to be bad, it is decoded, and every survivor is asked.
#[test]
fn a_plain_read_in_doubt_decodes_nothing_without_proof() {
    let plain = Verify { parity: false, ..DOUBTED };
    let is_asked =
        |test: &TestJob| test.told.iter().any(|(_, message)| matches!(message, ToNode::Fingerprint { .. }));
    let mut test = TestJob::read_stored(plain.clone());
    Cast::honest(|_| None).play(&mut test);
    assert!(succeeded(&test).parity == ParityOutcome::NotAsked && !is_asked(&test), "{:?}", test.ended);
    for forged in 1..6 {
        // The contradiction is known before the read begins, or found during the read.
        for is_known in [true, false] {
            let verify = Verify { doubted: is_known, ..plain.clone() };
            let mut test = TestJob::read_stored(verify);
            if !is_known {
                test.job.handle_contradiction(&test.topology, test.now);
                test.act();
            }
            let (heard, problem) = (test.told.len(), BlockProblem::Corrupt("page 3".into()));
            test.say(NodeId(0), Report::BadBlock { block: id(0), problem });
            Cast { forged: Some(forged), ..Cast::honest(|_| None) }.play_except(
                &mut test,
                heard,
                |test, node, message| {
                    // Nothing of the bad block had arrived.
                    let is_it = matches!(message, ToNode::Stop { .. }) && node == requestor(0);
                    if is_it {
                        test.say(node, Report::Stopped { delivered: SliceSet::new() });
                    }
                    is_it
                },
            );
            let outcome = succeeded(&test);
            assert!(outcome.parity == ParityOutcome::Holds && is_asked(&test), "{outcome:?}");
        }
    }
}

/// A requestor that cannot check parity refuses a delivery that must be checked, or its fingerprint.
#[test]
fn a_read_in_doubt_fails_at_once_if_its_client_cannot_check_it() {
    for verify in [DOUBTED, Verify::default()] {
        let test = TestJob::read(1, verify.clone());
        let assigned = test.told.iter().filter(|(node, _)| *node == requestor(0));
        let is_checked = assigned.filter_map(|(_, message)| match message {
            ToNode::Assign(assignment) => {
                Some(matches!(assignment.sinks[0].end, SinkEnd::Taken { checked: true }))
            }
            _ => None,
        });
        assert_eq!(is_checked.collect::<Vec<_>>(), [verify.doubted]);
    }
    let mut test = TestJob::read(1, DOUBTED);
    let (before, detail) = (test.now, "this client does not support `fingerprint`".to_owned());
    Cast::honest(|_| None).play_except(&mut test, 0, |test, node, message| {
        let is_its = node == requestor(0) && matches!(message, ToNode::Fingerprint { .. });
        if is_its {
            test.say(node, Report::Refused { why: repair::Refusal::Assignment { detail: detail.clone() } });
        }
        is_its
    });
    assert!(matches!(test.ended, Some(Err(_))), "{:?}", test.ended);
    assert!(test.now < before + 5 * SECOND, "{:?}", test.now);
}

/// An equation that held before another job found a contradiction proves nothing any more.
#[test]
fn a_contradiction_found_during_the_publication_leaves_nothing_proven() {
    for is_found in [false, true] {
        let mut test = TestJob::verified(1, PARITY);
        Cast::honest(|_| None).play_except(&mut test, 0, |test, _, message| {
            if is_found && is_commit(message) {
                test.job.handle_contradiction(&test.topology, test.now);
                test.act();
            }
            false
        });
        assert_eq!(succeeded(&test).proven.is_empty(), is_found);
    }
}

/// The lost blocks have unique digests, the others do not.
fn strong_if_lost(index: u16) -> Option<Digest> {
    if index < 2 { strong(index) } else { weak(index) }
}

#[test]
fn a_unique_digest_of_a_rebuilt_block_identifies_a_wrong_block_without_one() {
    for forged in 2..6 {
        let mut test = TestJob::recorded(2, PARITY, strong_if_lost);
        Cast { forged: Some(forged), ..Cast::honest(strong_if_lost) }.play(&mut test);
        let outcome = succeeded(&test);
        assert_eq!(test.published.len(), 2, "{outcome:?}");
        assert_eq!(test.lost, [BlockIndex(forged)], "{outcome:?}");
        let others: BTreeSet<BlockIndex> = (0..6).map(BlockIndex).filter(|block| block.0 != forged).collect();
        assert_eq!(outcome.proven, others);
    }
}

/// Two others may have been replaced so that the right block seems to be wrong. Only full reads can tell.
#[test]
fn a_job_names_no_block_as_wrong_that_has_a_unique_digest() {
    for forged in 2..6 {
        let mut test = TestJob::recorded(2, PARITY, strong);
        Cast { forged: Some(forged), ..Cast::honest(strong) }.play(&mut test);
        let outcome = succeeded(&test);
        assert_eq!(test.published.len(), 2, "{outcome:?}");
        assert_eq!((&test.lost[..], outcome.proven.len()), (&[][..], 0), "{outcome:?}");
        assert!(!test.contradicted.is_empty(), "so the whole stripe is checked");
    }
}

/// A digest proves the rebuilt block, but some block of the stripe breaks parity, so the stripe must be checked.
#[test]
fn a_stripe_whose_parity_is_overruled_is_in_doubt() {
    let mut test = TestJob::recorded(1, PARITY, strong);
    Cast::honest(strong).play_except(&mut test, 0, |test, node, message| {
        let ToNode::Fingerprint { block, seed, .. } = message else { return false };
        if node != requestor(0) {
            return false;
        }
        let fingerprints = vec![Fingerprint(vec![1; repair::FINGERPRINT_BYTES])];
        test.say(node, Report::Fingerprinted { block: block.id.clone(), seed: *seed, fingerprints });
        true
    });
    let outcome = succeeded(&test);
    assert_eq!((outcome.parity, outcome.proven.len()), (ParityOutcome::Overruled, 0), "{outcome:?}");
    let [blocks] = &test.contradicted[..] else { panic!("{:?}", test.contradicted) };
    assert!(blocks.contains(&BlockIndex(0)) && blocks.len() > 4, "{blocks:?}");
}

/// A read-back that is not answered begins the ending again. This proves nothing about the sources.
#[test]
fn an_ending_that_begins_again_proves_no_source() {
    let mut test = TestJob::recorded(3, Verify { reread: true, ..PARITY }, |_| None);
    let mut asked = 0;
    Cast::honest(|_| None).play_except(&mut test, 0, |test, node, message| {
        let ToNode::Reread { block, .. } = message else { return false };
        asked += 1;
        if asked > 3 {
            test.say(node, Report::Reread { block: block.clone(), digest: None });
        }
        true
    });
    assert!(asked > 3 && succeeded(&test).proven.is_empty(), "{:?}", succeeded(&test).proven);
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
        assert!(why.ends_with(&format!("this job avoids h{first} as a target from now on")), "{why}");
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

#[test]
fn a_helper_that_stores_a_wrong_block_of_a_put_is_replaced() {
    for index in 0..6 {
        let mut test = TestJob::put(Some(SPARE));
        Cast { spoils: vec![requestor(index)], ..Cast::honest(|_| None) }.play(&mut test);
        let [why] = &succeeded(&test).replanned[..] else { panic!("{:?}", succeeded(&test)) };
        let expected = "the stored blocks break a parity equation; this job avoids h";
        assert_eq!(*why, format!("{expected}{} as a target from now on", requestor(index)));
        let node = |at: u16| if at == index { SPARE } else { requestor(at) };
        let mut published = test.published;
        published.sort_unstable();
        assert_eq!(published, (0..6).map(|at| (BlockIndex(at), node(at))).collect::<Vec<_>>());
    }
}

/// A helper of a put fails after others have stored their blocks. A stored block may have been replaced since, together
/// with its checksums, and parity computed from it would agree with it.
#[test]
fn a_put_reads_nothing_that_it_has_stored() {
    let mut test = TestJob::put(Some(SPARE));
    Cast::honest(strong).play_except(&mut test, 0, |test, node, message| {
        let fails = node == requestor(4) && is_commit(message);
        if fails {
            test.say(node, failed(4, SinkProblem::Process("the server refuses".into())));
        }
        fails
    });
    assert_eq!(succeeded(&test).homes[&BlockIndex(4)], SPARE);
    for (node, message) in &test.told {
        let ToNode::Assign(assignment) = message else { continue };
        assert!(*node == CLIENT || assignment.locals.is_empty(), "{node} reads {:?}", assignment.locals);
    }
}

/// One of two lost blocks is stored, and the requestor of the other one fails. No digests are recorded.
#[test]
fn a_repair_reads_blocks_that_it_has_stored_only_with_the_digests_of_their_seals() {
    let mut test = TestJob::with(2, Policy::default(), Verify::default(), |_| None, Some(SPARE), true);
    let mut lost = false;
    Cast::honest(strong).play_except(&mut test, 0, |test, node, message| {
        let fails = node == requestor(1) && is_commit(message);
        if fails {
            test.say(node, failed(1, SinkProblem::Process("the server refuses".into())));
            // Only three blocks are left with the stored one, as many as decoding needs.
            for away in [4, 5] {
                test.job.handle_node_lost(NodeId(away), &test.topology, test.now);
                test.topology.remove(NodeId(away));
            }
            lost = true;
        }
        fails
    });
    assert!(lost);
    succeeded(&test);
    let read = test.told.iter().flat_map(|(node, message)| match message {
        ToNode::Assign(assignment) if *node == requestor(0) => assignment.locals.clone(),
        _ => Vec::new(),
    });
    let read: Vec<_> = read.collect();
    assert!(!read.is_empty(), "the stored block is needed");
    for local in read {
        assert_eq!(local.digest, strong(0), "{}", local.id);
    }
}

#[test]
fn a_put_fails_if_nobody_can_replace_the_helper_that_stored_a_wrong_block() {
    let mut test = TestJob::put(None);
    Cast { spoils: vec![requestor(4)], ..Cast::honest(|_| None) }.play(&mut test);
    let Some(Err(error @ JobError::StoredWrong { .. })) = &test.ended else { panic!("{:?}", test.ended) };
    let expected = "the stored blocks break a parity equation: a wrong block was computed or stored by hn14";
    assert_eq!(error.to_string(), expected);
    assert_eq!((test.published, test.contradicted), (vec![], vec![]));
}

#[test]
fn a_put_fails_if_two_helpers_in_a_row_store_a_wrong_block() {
    let mut test = TestJob::put(Some(SPARE));
    Cast { spoils: vec![requestor(4), SPARE], ..Cast::honest(|_| None) }.play(&mut test);
    assert!(matches!(test.ended, Some(Err(JobError::StoredWrong { .. }))), "{:?}", test.ended);
    assert_eq!(test.published, []);
}

/// A recorded digest that the block does not have, because the helper that stored the block lied.
fn lie() -> Option<Digest> {
    strong(98)
}

/// A job that rebuilds the last block, which is a parity block. It has no digest that the block could match.
fn falsely_recorded(
    digest: fn(u16) -> Option<Digest>,
    replaces_digests: bool,
    spare: Option<NodeId>,
) -> TestJob {
    let mut topology = Topology::new();
    for node in (0..5).map(NodeId).chain([requestor(5)]).chain(spare) {
        topology.set(node, NodeProfile::helper(format!("h{node}"), format!("10.0.0.{node}:1")));
    }
    let stripe = stripe(|index| (index < 5).then_some(NodeId(index.into())), digest);
    let wanted = vec![Wanted { block: BlockIndex(5), requestor: requestor(5) }];
    let verify = Verify { replaces_digests, ..PARITY };
    TestJob::begin(JobRequest { stripe, wanted, ..request(1, verify) }, topology)
}

/// Runs a job to its end. Blocks that are read back have their digests, except the blocks `bad`.
fn play_read_back(test: &mut TestJob, bad: &[u16], digest: fn(u16) -> Option<Digest>) {
    Cast::honest(strong).play_except(test, 0, |test, node, message| {
        let ToNode::Reread { block, .. } = message else { return false };
        let index = (0..6).find(|&index| id(index) == *block).expect("a block of the stripe");
        let digest = if bad.contains(&index) { strong(97) } else { digest(index) };
        test.say(node, Report::Reread { block: block.clone(), digest });
        true
    });
}

fn true_but_last(index: u16) -> Option<Digest> {
    if index == 5 { lie() } else { strong(index) }
}

fn weak_but_last(index: u16) -> Option<Digest> {
    if index == 5 { lie() } else { weak(index) }
}

fn true_but_first(index: u16) -> Option<Digest> {
    if index == 0 { lie() } else { strong(index) }
}

/// A helper stored a parity block, stated a false digest, and was lost. The block can be rebuilt once two helpers
/// have received the same bytes and all survivors were read.
#[test]
fn parity_overrules_the_false_digest_of_a_parity_block() {
    let mut test = falsely_recorded(true_but_last, true, Some(SPARE));
    play_read_back(&mut test, &[], strong);
    assert_eq!(test.published, [(BlockIndex(5), SPARE)]);
    assert_eq!(test.replaced, [(BlockIndex(5), lie().unwrap())]);
    let outcome = succeeded(&test);
    assert_eq!(outcome.digests[&BlockIndex(5)], strong(5).unwrap());
    assert_eq!((outcome.parity, &test.lost[..]), (ParityOutcome::Holds, &[][..]));
    assert!(outcome.replanned.last().unwrap().contains("the recorded digest of"), "{:?}", outcome.replanned);
}

#[test]
fn a_survivor_whose_bytes_have_another_digest_supports_no_parity() {
    let mut test = falsely_recorded(true_but_last, true, Some(SPARE));
    play_read_back(&mut test, &[0], strong);
    assert_eq!((&test.published[..], &test.lost[..]), (&[(BlockIndex(5), SPARE)][..], &[BlockIndex(0)][..]));
    // Now no survivor is to spare.
    let mut test = falsely_recorded(true_but_last, true, Some(SPARE));
    play_read_back(&mut test, &[0, 1], strong);
    assert_eq!((&test.published[..], test.lost.len()), (&[][..], 2));
    assert!(test.ended.as_ref().is_some_and(Result::is_err), "{:?}", test.ended);
}

/// Helpers answer with fingerprints of their survivors, but do not read the survivors back.
#[test]
fn a_survivor_that_is_not_read_back_is_left_out() {
    for refuses in [true, false] {
        // One survivor is to spare, and a second one is not.
        for unread in [1, 2] {
            let mut test = falsely_recorded(true_but_last, true, Some(SPARE));
            Cast::honest(strong).play_except(&mut test, 0, |test, node, message| {
                let ToNode::Reread { block, .. } = message else { return false };
                if node.0 >= unread {
                    let digest = strong(node.0 as u16);
                    test.say(node, Report::Reread { block: block.clone(), digest });
                } else if refuses {
                    test.say(node, Report::Refused { why: repair::Refusal::NoStore });
                }
                true
            });
            let published = if unread == 1 { vec![(BlockIndex(5), SPARE)] } else { vec![] };
            assert_eq!((&test.published, &test.lost[..]), (&published, &[][..]), "{:?}", test.ended);
            assert_eq!(test.ended.as_ref().is_some_and(Result::is_ok), unread == 1, "{:?}", test.ended);
        }
    }
}

#[test]
fn parity_overrules_no_digest_on_weak_evidence() {
    type DigestOf = fn(u16) -> Option<Digest>;
    let cases: [(TestJob, DigestOf); 3] = [
        (falsely_recorded(true_but_last, false, Some(SPARE)), strong),
        // Only one helper can receive the block.
        (falsely_recorded(true_but_last, true, None), strong),
        // The survivors' digests prove less than the overruled one.
        (falsely_recorded(weak_but_last, true, Some(SPARE)), weak),
    ];
    for (mut test, digest) in cases {
        play_read_back(&mut test, &[], digest);
        assert_contradiction(&test, &[0, 1, 2, 3, 4]);
    }
    // The digest of a data block comes from the client.
    let mut test = TestJob::recorded(1, Verify { replaces_digests: true, ..PARITY }, true_but_first);
    play_read_back(&mut test, &[], strong);
    assert_contradiction(&test, &[1, 2, 3, 4, 5]);
}

/// Nothing proves blocks that were rebuilt from exactly as many others as decoding needs.
#[test]
fn rebuilt_blocks_without_checksums_are_not_published_unproven() {
    for (proven, is_published) in [(true, false), (false, true)] {
        let mut test = TestJob::verified(3, Verify { proven, ..PARITY });
        for node in (0..3).map(requestor) {
            test.say(node, Report::Delivered);
        }
        (0..3).for_each(|index| test.deliver_and_seal(requestor(index), index, 0));
        let is_told_to_commit = |node| test.was_told(node, |it| matches!(it, ToNode::Commit { .. }));
        assert_eq!((0..3).map(requestor).any(is_told_to_commit), is_published);
        let is_refused = matches!(test.ended, Some(Err(JobError::Unproven { readable: 3, .. })));
        assert_eq!(is_refused, proven, "{:?}", test.ended);
    }
}
