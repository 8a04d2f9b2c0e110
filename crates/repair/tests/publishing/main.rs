//! Tests of a job between the last slice and the published block. The requestor's store has a process of its
//! own, which is slow, refuses blocks, or has another writer at work.

mod ahead;
mod doubt;

use std::collections::BTreeSet;
use std::time::Duration;

use codes::{BlockIndex, CodeSpec};
use repair::wire::control::ToNode;
use repair::{
    Accepts, BlockId, BlockProblem, Chunking, Copies, Digest, Job, JobAction, JobError, JobId, JobRequest,
    NodeId, NodeProfile, Outcome, Permit, Policy, Replacements, Report, Scheme, SinkProblem, SliceSet,
    Stripe, StripeBlock, StripeId, Topology, Verify, Wanted,
};

const BLOCK_BYTES: u64 = 1 << 20;
const SECOND: Duration = Duration::from_secs(1);
/// The first of the nodes that receive the lost blocks.
const REQUESTORS: u32 = 10;
/// A node that holds no block and can replace a requestor.
const SPARE: NodeId = NodeId(20);

/// A permit, which the job has for the first block only.
fn permit() -> Permit {
    Permit::new(b"a secret".to_vec()).unwrap()
}

/// The client of a put.
const CLIENT: NodeId = NodeId(30);

fn requestor(index: u16) -> NodeId {
    NodeId(REQUESTORS + u32::from(index))
}

/// An RS(6,3) stripe with these holders and recorded digests.
fn stripe(holder: impl Fn(u16) -> Option<NodeId>, digest: fn(u16) -> Option<Digest>) -> Stripe {
    let block = |index: u16| StripeBlock {
        id: id(index),
        bytes: BLOCK_BYTES,
        holder: holder(index),
        digest: digest(index),
    };
    Stripe {
        id: StripeId("s".into()),
        code: CodeSpec::reed_solomon(6, 3).build().unwrap(),
        chunking: Chunking::new(BLOCK_BYTES, BLOCK_BYTES, 1).unwrap(),
        blocks: (0..6).map(block).collect(),
        label: None,
    }
}

/// A request that stores the first `wanted` blocks of a stripe.
fn request(wanted: u16, verify: Verify) -> JobRequest {
    JobRequest {
        job: JobId(1),
        stripe: stripe(|_| None, |_| None),
        wanted: (0..wanted)
            .map(|index| Wanted { block: BlockIndex(index), requestor: requestor(index) })
            .collect(),
        window: 0..BLOCK_BYTES,
        sub_blocks: None,
        policy: Policy::default(),
        verify,
        publish: true,
        tag: None,
        permits: vec![(BlockIndex(0), permit())],
    }
}

/// An RS(6,3) stripe with its first blocks lost, and a job that repairs, reads or puts them.
struct TestJob {
    topology: Topology,
    job: Job,
    now: Duration,
    told: Vec<(NodeId, ToNode)>,
    published: Vec<(BlockIndex, NodeId)>,
    /// Recorded digests that published blocks do not have.
    replaced: Vec<(BlockIndex, Digest)>,
    lost: Vec<BlockIndex>,
    contradicted: Vec<BTreeSet<BlockIndex>>,
    ended: Option<Result<Outcome, JobError>>,
}

impl TestJob {
    fn new(lost: u16) -> Self {
        Self::verified(lost, Verify::default())
    }

    fn verified(lost: u16, verify: Verify) -> Self {
        Self::recorded(lost, verify, |_| None)
    }

    /// Like `verified`, with recorded digests.
    fn recorded(lost: u16, verify: Verify, digest: fn(u16) -> Option<Digest>) -> Self {
        Self::with(lost, Policy::default(), verify, digest, Some(SPARE), true)
    }

    /// A client's read of the lost blocks.
    fn read(lost: u16, verify: Verify) -> Self {
        Self::with(lost, Policy::default(), verify, |_| None, None, false)
    }

    /// A client's read of a stored block.
    fn read_stored(verify: Verify) -> Self {
        let mut topology = Topology::new();
        topology.set(requestor(0), NodeProfile::client("the client"));
        for node in (0..6).map(NodeId) {
            topology.set(node, NodeProfile::helper(format!("h{node}"), format!("10.0.0.{node}:1")));
        }
        let stripe = stripe(|index| Some(NodeId(index.into())), |_| None);
        Self::begin(JobRequest { stripe, publish: false, tag: Some(1), ..request(1, verify) }, topology)
    }

    /// A client's put of the whole stripe.
    fn put(spare: Option<NodeId>) -> Self {
        let verify = Verify { parity: true, ..Verify::default() };
        let mut topology = Topology::new();
        topology.set(CLIENT, NodeProfile::client("the client"));
        for node in (0..6).map(requestor).chain(spare) {
            topology.set(node, NodeProfile::helper(format!("h{node}"), format!("10.0.0.{node}:1")));
        }
        let request = JobRequest {
            stripe: stripe(|index| (index < 3).then_some(CLIENT), |_| None),
            policy: Policy { scheme: Scheme::Conventional, ..Policy::default() },
            tag: Some(1),
            ..request(6, verify)
        };
        Self::begin(request, topology)
    }

    fn with(
        lost: u16,
        policy: Policy,
        verify: Verify,
        digest: fn(u16) -> Option<Digest>,
        spare: Option<NodeId>,
        publish: bool,
    ) -> Self {
        let mut topology = Topology::new();
        let helpers = (lost..6).map(|index| NodeId(index.into()));
        for node in helpers.chain((0..lost).map(requestor)).chain(spare) {
            topology.set(node, NodeProfile::helper(format!("h{node}"), format!("10.0.0.{node}:1")));
        }
        let holder = |index: u16| (index >= lost).then_some(NodeId(index.into()));
        let stripe = stripe(holder, digest);
        let tag = (!publish).then_some(1);
        Self::begin(JobRequest { stripe, policy, publish, tag, ..request(lost, verify) }, topology)
    }

    fn begin(request: JobRequest, topology: Topology) -> Self {
        let job = Job::new(request, [7; 32], &topology, Duration::ZERO);
        let mut test = Self {
            topology,
            job,
            now: Duration::ZERO,
            told: Vec::new(),
            published: Vec::new(),
            replaced: Vec::new(),
            lost: Vec::new(),
            contradicted: Vec::new(),
            ended: None,
        };
        test.act();
        test
    }

    fn act(&mut self) {
        while let Some(action) = self.job.poll() {
            match action {
                JobAction::Tell { node, message } => self.told.push((node, message)),
                JobAction::Publish { block, node, replaces, .. } => {
                    self.published.push((block, node));
                    self.replaced.extend(replaces.map(|digest| (block, digest)));
                }
                JobAction::BlockLost { block, .. } => self.lost.push(block),
                JobAction::Contradicted { blocks } => self.contradicted.push(blocks),
                JobAction::Slow { .. } => {}
                JobAction::Finish(result) => self.ended = Some(*result),
            }
        }
    }

    /// Has a requestor of the first block fail. Returns the node that gets the block instead.
    fn fail_requestor(&mut self, node: NodeId) -> Option<NodeId> {
        self.told.clear();
        self.say(node, failed(0, SinkProblem::Process("the server refuses".into())));
        self.wait(5 * SECOND);
        let gets = |(node, message): &(NodeId, ToNode)| match message {
            ToNode::Assign(assignment) if !assignment.sinks.is_empty() => Some(*node),
            _ => None,
        };
        self.told.iter().find_map(gets)
    }

    fn say(&mut self, node: NodeId, report: Report) {
        self.job.handle_report(node, self.job.epoch(), report, &self.topology, self.now);
        self.act();
    }

    /// Lets time pass, with a tick every second.
    fn wait(&mut self, time: Duration) {
        let until = self.now + time;
        while self.now < until {
            self.now += SECOND;
            self.job.handle_tick(&self.topology, self.now);
            self.act();
        }
    }

    fn deliver_and_seal(&mut self, node: NodeId, index: u16, hand_over_ms: u32) {
        self.say(node, Report::Sealed { digests: vec![(id(index), None)], hand_over_ms });
    }

    /// Whether the node was told to forget the job.
    fn is_given_up(&self, node: NodeId) -> bool {
        self.told.iter().any(|(told, message)| *told == node && matches!(message, ToNode::Forget { .. }))
    }

    fn was_told(&self, node: NodeId, what: fn(&ToNode) -> bool) -> bool {
        self.told.iter().any(|(told, message)| *told == node && what(message))
    }
}

fn id(index: u16) -> BlockId {
    BlockId(format!("s.{index}"))
}

fn is_commit(message: &ToNode) -> bool {
    matches!(message, ToNode::Commit { .. })
}

fn failed(index: u16, problem: SinkProblem) -> Report {
    Report::SinkFailed { block: id(index), problem }
}

/// One lost block, sealed and about to be committed by a store that needs extra time to accept it.
fn committing(hand_over_ms: u32) -> (TestJob, NodeId) {
    let (mut test, node) = (TestJob::new(1), NodeId(REQUESTORS));
    test.say(node, Report::Delivered);
    test.deliver_and_seal(node, 0, hand_over_ms);
    assert!(test.was_told(node, is_commit));
    (test, node)
}

#[test]
fn a_process_gets_its_time_in_addition_to_the_disks() {
    let (mut test, node) = committing(0);
    test.wait(119 * SECOND);
    assert!(!test.is_given_up(node));
    test.wait(2 * SECOND);
    assert!(test.is_given_up(node), "a disk that hangs");

    let (mut test, node) = committing(600_000);
    test.wait(700 * SECOND);
    assert!(!test.is_given_up(node));
    test.say(node, Report::Committed);
    assert_eq!(test.published, [(BlockIndex(0), node)]);
    assert!(test.ended.expect("nothing is left to do").is_ok());

    let (mut test, node) = committing(600_000);
    test.wait(721 * SECOND);
    assert!(test.is_given_up(node));
}

/// One lost block that was committed and must now be read back.
fn rereading() -> (TestJob, NodeId) {
    let verify = Verify { reread: true, ..Verify::default() };
    let (mut test, node) = (TestJob::verified(1, verify), NodeId(REQUESTORS));
    test.say(node, Report::Delivered);
    test.deliver_and_seal(node, 0, 0);
    test.say(node, Report::Committed);
    assert!(test.was_told(node, |message| matches!(message, ToNode::Reread { .. })));
    (test, node)
}

#[test]
fn a_throttled_reread_is_awaited_while_it_is_reported() {
    let (mut test, node) = rereading();
    for _ in 0..60 {
        test.wait(60 * SECOND);
        test.say(node, Report::Limited);
    }
    let told = test.told.len();
    test.wait(119 * SECOND);
    assert_eq!((test.told.len(), test.ended.is_none()), (told, true));
    // Only the node that has the block can confirm it.
    test.say(NodeId(1), Report::Reread { block: id(0), digest: None });
    assert!(test.ended.is_none());
    test.say(node, Report::Reread { block: id(0), digest: None });
    assert!(test.ended.expect("nothing is left to do").is_ok());

    // A node that falls silent is not awaited, regardless of earlier reports.
    let (mut test, node) = rereading();
    test.say(node, Report::Limited);
    let told = test.told.len();
    test.wait(121 * SECOND);
    assert!(test.told.len() > told, "it is stopped");

    // No cap throttles sealing and committing, so a report of a cap does not extend the time limit.
    let (mut test, node) = committing(0);
    for _ in 0..3 {
        test.wait(41 * SECOND);
        test.say(node, Report::Limited);
    }
    assert!(test.is_given_up(node));
}

#[test]
fn reports_of_caps_extend_an_ending_only_from_awaited_nodes_and_for_little_more_than_an_hour() {
    let (mut test, _) = rereading();
    let told = test.told.len();
    for _ in 0..3 {
        test.wait(41 * SECOND);
        (1..6).map(NodeId).for_each(|other| test.say(other, Report::Limited));
    }
    assert!(test.told.len() > told, "it is stopped");

    let (mut test, node) = rereading();
    let told = test.told.len();
    for _ in 0..65 {
        test.wait(60 * SECOND);
        test.say(node, Report::Limited);
    }
    assert!(test.told.len() > told, "it is stopped");
}

#[test]
fn no_node_keeps_a_job_waiting_for_longer_than_an_hour() {
    let (mut test, node) = committing(u32::MAX);
    test.wait(3600 * SECOND);
    assert!(!test.is_given_up(node));
    test.wait(121 * SECOND);
    assert!(test.is_given_up(node));
}

/// A helper that claims to be throttled hides that the requestor does nothing.
#[test]
fn caps_excuse_nodes_only_while_slices_arrive_or_for_little_more_than_an_hour() {
    let (mut test, node) = (TestJob::new(1), NodeId(REQUESTORS));
    let mut claim_for = |time: Duration| {
        let until = test.now + time;
        while test.now < until {
            test.wait(2 * SECOND);
            (1..6).map(NodeId).for_each(|helper| test.say(helper, Report::Limited));
        }
        test.is_given_up(node)
    };
    assert!(!claim_for(3600 * SECOND));
    assert!(claim_for(120 * SECOND));
}

/// A requestor gets the permit of its own block only, even if it is a replacement.
#[test]
fn a_permit_goes_with_its_block() {
    let has_it = |test: &TestJob, node: u32| {
        let assigned = |message: &ToNode| match message {
            ToNode::Assign(assignment) => {
                assignment.sinks.first().map(|sink| sink.permit() == Some(&permit()))
            }
            _ => None,
        };
        test.told.iter().filter(|(told, _)| told.0 == node).find_map(|(_, message)| assigned(message))
    };
    let test = TestJob::new(2);
    assert_eq!([0, 1].map(|at| has_it(&test, REQUESTORS + at)), [Some(true), Some(false)]);
    assert!(!format!("{:?}", test.told).contains("secret"));

    let mut test = TestJob::new(1);
    test.say(NodeId(REQUESTORS), failed(0, SinkProblem::NotNow("an operator has the lock".into())));
    assert_eq!(has_it(&test, SPARE.0), Some(true));
}

#[test]
fn the_nodes_of_each_plan_are_told_that_the_stripe_is_at_risk() {
    fn is_at_risk(message: &ToNode) -> bool {
        matches!(message, ToNode::AtRisk { .. })
    }
    let mut test = TestJob::new(1);
    assert!(!test.told.iter().any(|(_, message)| is_at_risk(message)));
    for _ in 0..2 {
        test.job.handle_at_risk();
        test.act();
    }
    let told = test.told.iter().filter(|(_, message)| is_at_risk(message)).map(|(node, _)| *node);
    let told: Vec<NodeId> = told.collect();
    let nodes: Vec<NodeId> = test.job.running_plan().unwrap().nodes().into_iter().collect();
    assert_eq!(told, nodes, "each node once");
    let replacement = test.fail_requestor(NodeId(REQUESTORS)).expect("there is a spare node");
    assert!(test.was_told(replacement, is_at_risk));
}

#[test]
fn a_stripe_that_two_stores_refuse_is_left_alone() {
    let (mut test, node) = (TestJob::new(1), NodeId(REQUESTORS));
    let locked = || SinkProblem::NotNow("an operator has the lock".into());
    test.say(node, failed(0, locked()));
    assert!(test.ended.is_none() && test.is_given_up(node), "one may be wrong");
    assert!(test.was_told(SPARE, |message| matches!(message, ToNode::Assign(_))));
    // The first node repeats its report, but it no longer belongs to the job.
    test.say(node, failed(0, locked()));
    assert!(test.ended.is_none());
    test.say(SPARE, failed(0, locked()));
    let error = test.ended.expect("it is no use").unwrap_err();
    assert!(matches!(error, JobError::StoreNotReady { .. }), "{error}");
}

#[test]
fn a_block_being_accepted_is_not_reassigned_when_another_node_fails() {
    let mut test = TestJob::new(2);
    let [first, second] = [NodeId(REQUESTORS), NodeId(REQUESTORS + 1)];
    test.say(first, Report::Delivered);
    test.say(second, Report::Delivered);
    test.deliver_and_seal(first, 0, 600_000);
    test.deliver_and_seal(second, 1, 600_000);
    assert!(test.was_told(first, is_commit) && test.was_told(second, is_commit));
    test.say(second, failed(1, SinkProblem::Process("the server refuses".into())));
    assert!(test.is_given_up(second));
    test.wait(500 * SECOND);
    assert!(!test.is_given_up(first), "its store still takes the block over");
    test.say(first, Report::Committed);
    test.say(first, Report::Stopped { delivered: SliceSet::new() });
    assert_eq!(test.published, [(BlockIndex(0), first)]);
    // Only the other block goes to the spare node.
    let assigned = test.told.iter().rev().find_map(|(node, message)| match message {
        ToNode::Assign(assignment) if *node == SPARE => Some(assignment),
        _ => None,
    });
    let sinks: Vec<_> =
        assigned.expect("it takes its place").sinks.iter().map(|sink| sink.id.clone()).collect();
    assert_eq!(sinks, [id(1)]);
}

/// A requestor fails before its delivery is sealed, and the job stops. Another requestor, whose delivery is sealed,
/// claims to have committed it.
#[test]
fn a_block_is_not_published_before_its_requestor_was_told_to_commit_it() {
    let mut test = TestJob::new(2);
    let [first, second] = [NodeId(REQUESTORS), NodeId(REQUESTORS + 1)];
    test.say(first, Report::Delivered);
    test.say(second, Report::Delivered);
    test.deliver_and_seal(first, 0, 0);
    test.say(second, failed(1, SinkProblem::Process("the server refuses".into())));
    assert!(
        !test.was_told(first, is_commit) && test.was_told(first, |told| matches!(told, ToNode::Stop { .. }))
    );
    test.say(first, Report::Committed);
    assert_eq!(test.published, []);
}

/// The second requestor fails after the first has stored its block. While the other block is delivered again, the
/// first one is found lost.
#[test]
fn a_stored_block_that_is_lost_before_the_end_is_stored_again() {
    let mut test = TestJob::new(2);
    let [first, second] = [NodeId(REQUESTORS), NodeId(REQUESTORS + 1)];
    test.say(first, Report::Delivered);
    test.say(second, Report::Delivered);
    test.deliver_and_seal(first, 0, 0);
    test.deliver_and_seal(second, 1, 0);
    test.say(first, Report::Committed);
    test.say(second, failed(1, SinkProblem::Process("the server refuses".into())));
    let heard = test.told.len();
    for node in (2..6).map(NodeId).chain([first]) {
        test.say(node, Report::Stopped { delivered: SliceSet::new() });
    }
    test.say(first, Report::BadBlock { block: id(0), problem: BlockProblem::Missing });
    assert_eq!(test.lost, [BlockIndex(0)]);
    doubt::play_honest(&mut test, heard);
    assert!(matches!(test.ended, Some(Ok(_))), "{:?}", test.ended);
    let (before, after) = test.published.split_at(1);
    assert_eq!(before, [(BlockIndex(0), first)]);
    assert_eq!(
        BTreeSet::from_iter(after),
        BTreeSet::from([&(BlockIndex(0), first), &(BlockIndex(1), SPARE)])
    );
}

/// The copies of all blocks. The first block has two.
fn copies_at(other: NodeId) -> Vec<Copies> {
    let good = |index| [vec![NodeId(index)], vec![other; usize::from(index == 0)]].concat();
    (0..6).map(|index| Copies { good: good(index), bad: Vec::new() }).collect()
}

/// A block is moved while a client reads it. Its former holder has removed it, and its new one cannot read it.
#[test]
fn copies_of_a_moved_block_are_read_one_after_the_other_and_each_only_once() {
    let mut test = TestJob::read_stored(Verify::default());
    test.topology.set(SPARE, NodeProfile::helper("h20", "10.0.0.20:1"));
    let copies = copies_at(SPARE);
    let client = requestor(0);
    let readers = |test: &TestJob| {
        let reads = |message: &ToNode| match message {
            ToNode::Assign(assignment) => assignment.locals.iter().any(|local| local.id == id(0)),
            _ => false,
        };
        let readers = test.told.iter().filter(|(_, message)| reads(message));
        readers.map(|&(node, _)| node).collect::<Vec<_>>()
    };
    let mut expected = vec![NodeId(0)];
    for (holder, next) in [(NodeId(0), Some(SPARE)), (SPARE, None)] {
        test.say(holder, Report::BadBlock { block: id(0), problem: BlockProblem::Missing });
        test.job.handle_copies(&copies);
        test.say(client, Report::Stopped { delivered: SliceSet::new() });
        expected.extend(next);
        assert_eq!(readers(&test), expected);
    }
    test.say(client, Report::Delivered);
    assert!(matches!(test.ended, Some(Ok(_))), "decoded from the other blocks: {:?}", test.ended);
}

/// The plan is stopped because the reader of a copy hangs. Only then it reports that its copy is bad.
#[test]
fn a_bad_copy_is_reported_although_the_job_reads_another_one_by_now() {
    let mut test = TestJob::read_stored(Verify::default());
    test.topology.set(SPARE, NodeProfile::helper("h20", "10.0.0.20:1"));
    test.job.handle_node_lost(NodeId(0), &test.topology, test.now);
    test.job.handle_copies(&copies_at(SPARE));
    let bad = || Report::BadBlock { block: id(0), problem: BlockProblem::Corrupt("bad checksum".into()) };
    for node in [NodeId(1), NodeId(0), NodeId(0)] {
        test.say(node, bad());
    }
    assert_eq!(test.lost, [BlockIndex(0)], "once, and only as reported by its node");
    test.say(requestor(0), Report::Stopped { delivered: SliceSet::new() });
    assert_eq!(test.job.stripe().block(BlockIndex(0)).holder, Some(SPARE));
}

/// Another job found the copy bad that a read uses, and the read makes another plan.
#[test]
fn a_copy_that_is_known_to_be_bad_is_not_read_again() {
    let mut test = TestJob::read_stored(Verify::default());
    let mut copies = copies_at(SPARE);
    copies[0] = Copies { good: Vec::new(), bad: vec![NodeId(0)] };
    test.job.pause(&test.topology, test.now);
    test.act();
    test.job.handle_copies(&copies);
    assert_eq!(test.job.stripe().block(BlockIndex(0)).holder, None);
    assert_eq!(test.lost, [], "it is known");
}

#[test]
fn a_requestor_that_refuses_to_seal_is_replaced_at_once() {
    let (mut test, node) = (TestJob::new(1), NodeId(REQUESTORS));
    test.say(node, Report::Delivered);
    test.say(node, Report::Refused { why: repair::Refusal::NoStore });
    assert!(test.is_given_up(node));
    assert!(test.was_told(SPARE, |message| matches!(message, ToNode::Assign(_))));
}

/// One lost block whose requestor fails while every other node holds a block of the stripe; returns the new
/// requestor.
fn stand_in_among_holders(shares_nodes: bool, full: &[u32]) -> (TestJob, Option<NodeId>) {
    let replacements = Replacements { shares_nodes, ..Replacements::default() };
    let policy = Policy { replacements, ..Policy::default() };
    let (mut test, node) =
        (TestJob::with(1, policy, Verify::default(), |_| None, None, true), NodeId(REQUESTORS));
    for &full in full {
        let mut profile = test.topology.get(NodeId(full)).expect("it is there").clone();
        profile.free_bytes = 0;
        test.topology.set(NodeId(full), profile);
    }
    let other = test.fail_requestor(node);
    (test, other)
}

/// One lost block whose requestor fails, with these spare nodes. Returns the new requestor.
fn stand_in(replacements: Replacements, spares: &[(u32, NodeProfile)]) -> Option<NodeId> {
    let policy = Policy { replacements, ..Policy::default() };
    let mut test = TestJob::with(1, policy, Verify::default(), |_| None, None, true);
    for (node, profile) in spares {
        test.topology.set(NodeId(*node), profile.clone());
    }
    let other = test.fail_requestor(NodeId(REQUESTORS));
    assert_eq!(other.is_none(), matches!(test.ended, Some(Err(JobError::NoRequestor { .. }))));
    other
}

fn spare(rack: Option<&str>, accepts: Accepts) -> NodeProfile {
    NodeProfile { rack: rack.map(str::to_owned), accepts, ..NodeProfile::helper("spare", "10.9.9.9:1") }
}

#[test]
fn only_nodes_that_accept_new_blocks_and_that_the_policy_allows_replace_a_requestor() {
    let any = Replacements::default;
    let ready = || spare(None, Accepts::All);
    assert_eq!(stand_in(any(), &[(20, ready())]), Some(NodeId(20)));
    for accepts in [Accepts::Nothing, Accepts::Own] {
        assert_eq!(stand_in(any(), &[(20, spare(None, accepts))]), None);
        assert_eq!(stand_in(any(), &[(20, spare(None, accepts)), (21, ready())]), Some(NodeId(21)));
    }
    let spares = [(20, ready()), (21, ready())];
    let only = |node| Replacements { only: vec![NodeId(node)], ..any() };
    assert_eq!(stand_in(only(21), &spares), Some(NodeId(21)));
    assert_eq!(stand_in(only(REQUESTORS), &spares), None);
    let never = Replacements { never: vec![NodeId(20)], ..any() };
    assert_eq!(stand_in(never, &spares), Some(NodeId(21)));
}

#[test]
fn a_replacement_is_in_the_rack_and_on_the_host_with_the_fewest_blocks() {
    let policy = Policy::default();
    let mut test = TestJob::with(1, policy, Verify::default(), |_| None, None, true);
    for node in 1..6 {
        let mut profile = test.topology.get(NodeId(node)).expect("it is there").clone();
        profile.rack = Some(if node < 4 { "a" } else { "b" }.to_owned());
        test.topology.set(NodeId(node), profile);
    }
    test.topology.set(NodeId(20), NodeProfile { free_bytes: u64::MAX, ..spare(Some("a"), Accepts::All) });
    let beside = NodeProfile { load: 9, ..NodeProfile::helper("beside", format!("10.0.0.{}:2", NodeId(4))) };
    test.topology.set(NodeId(21), NodeProfile { rack: Some("b".to_owned()), ..beside });
    test.topology.set(NodeId(22), NodeProfile { load: 9, ..spare(Some("b"), Accepts::All) });
    assert_eq!(test.fail_requestor(NodeId(REQUESTORS)), Some(NodeId(22)));
    assert_eq!(test.job.targets().map(|(_, node)| node).collect::<Vec<_>>(), [NodeId(22)]);
}

#[test]
fn a_holder_replaces_a_requestor_only_if_nodes_may_share() {
    let (test, other) = stand_in_among_holders(false, &[]);
    assert!(matches!(test.ended, Some(Err(JobError::NoRequestor { .. }))), "{:?}", test.ended);
    assert_eq!(other, None);
    // Six blocks on five nodes mean two blocks on at least one of them.
    let (mut test, other) = stand_in_among_holders(true, &[1, 2]);
    assert!(test.ended.is_none());
    let other = other.expect("a holder gets it");
    assert!((3..6).contains(&other.0), "one with room, and not {other}");
    test.say(other, Report::Delivered);
    test.deliver_and_seal(other, 0, 0);
    test.say(other, Report::Committed);
    assert_eq!(test.published, [(BlockIndex(0), other)]);
}

#[test]
fn a_second_failure_does_not_cut_short_the_acceptance_of_a_block() {
    let mut test = TestJob::new(2);
    let [first, second] = [NodeId(REQUESTORS), NodeId(REQUESTORS + 1)];
    test.say(first, Report::Delivered);
    test.say(second, Report::Delivered);
    test.deliver_and_seal(first, 0, 600_000);
    test.deliver_and_seal(second, 1, 600_000);
    test.say(second, failed(1, SinkProblem::Process("the server refuses".into())));
    let reads = |(node, message): &(NodeId, ToNode)| {
        (*node < NodeId(REQUESTORS) && matches!(message, ToNode::Assign(_))).then_some(*node)
    };
    let source = test.told.iter().find_map(reads).expect("somebody reads");
    test.say(source, Report::BadBlock { block: id(source.0 as u16), problem: BlockProblem::Missing });
    test.wait(500 * SECOND);
    assert!(!test.is_given_up(first), "its store still takes the block over");
}

/// A job that is cancelled after its requestor was told to commit the only lost block.
fn cancelled_while_committing(reread: bool, spare: Option<NodeId>) -> (TestJob, NodeId) {
    let verify = Verify { reread, ..Verify::default() };
    let mut test = TestJob::with(1, Policy::default(), verify, |_| None, spare, true);
    let node = NodeId(REQUESTORS);
    test.say(node, Report::Delivered);
    test.deliver_and_seal(node, 0, 0);
    assert!(test.was_told(node, is_commit));
    test.job.cancel();
    test.act();
    assert!(test.ended.is_none() && !test.is_given_up(node), "the block may exist by now");
    (test, node)
}

fn is_assigned(test: &TestJob, node: NodeId) -> bool {
    test.was_told(node, |message| matches!(message, ToNode::Assign(_)))
}

#[test]
fn a_cancelled_job_publishes_and_reads_back_the_block_that_is_being_committed() {
    for reread in [false, true] {
        let (mut test, node) = cancelled_while_committing(reread, Some(SPARE));
        test.say(node, Report::Committed);
        assert_eq!(test.published, [(BlockIndex(0), node)]);
        assert_eq!(test.ended.is_none(), reread);
        test.say(node, Report::Reread { block: id(0), digest: None });
        let outcome = test.ended.as_ref().expect("the block is read back").as_ref().expect("and it is right");
        assert_eq!(outcome.homes.get(&BlockIndex(0)), Some(&node));
        assert!(test.is_given_up(node));
    }
}

/// The requestor does not answer before the limit.
#[test]
fn a_cancelled_job_has_its_block_read_back_again_after_a_timeout() {
    let (mut test, node) = cancelled_while_committing(true, Some(SPARE));
    test.say(node, Report::Committed);
    test.wait(121 * SECOND);
    assert!(test.was_told(node, |message| matches!(message, ToNode::Stop { .. })));
    test.told.clear();
    test.say(node, Report::Stopped { delivered: SliceSet::new() });
    assert!(test.ended.is_none() && test.was_told(node, |message| matches!(message, ToNode::Reread { .. })));
    test.say(node, Report::Reread { block: id(0), digest: None });
    assert!(matches!(test.ended, Some(Ok(_))), "{:?}", test.ended);
}

#[test]
fn a_cancelled_job_whose_commit_fails_makes_no_other_plan_and_ends_as_cancelled() {
    for spare in [Some(SPARE), None] {
        let (mut test, node) = cancelled_while_committing(true, spare);
        test.say(node, failed(0, SinkProblem::Process("the server refuses".into())));
        test.wait(5 * SECOND);
        assert!(matches!(test.ended, Some(Err(JobError::Cancelled))), "{:?}", test.ended);
        assert!(test.published.is_empty() && !is_assigned(&test, SPARE));
    }
}

#[test]
fn a_cancelled_job_whose_block_reads_back_wrong_reports_that_and_makes_no_other_plan() {
    let (mut test, node) = cancelled_while_committing(true, Some(SPARE));
    test.say(node, Report::Committed);
    test.say(node, Report::Reread { block: id(0), digest: Some(Digest::of_u32("crc32c", 5)) });
    assert_eq!(test.published, [(BlockIndex(0), node)]);
    assert_eq!(test.lost, [BlockIndex(0)]);
    assert!(matches!(test.ended, Some(Err(JobError::Cancelled))), "{:?}", test.ended);
    assert!(!is_assigned(&test, SPARE));
}

/// A job whose requestors were all told to commit their blocks.
fn all_committing(lost: u16, spare: Option<NodeId>) -> TestJob {
    let mut test = TestJob::with(lost, Policy::default(), Verify::default(), |_| None, spare, true);
    (0..lost).for_each(|index| test.say(requestor(index), Report::Delivered));
    (0..lost).for_each(|index| test.deliver_and_seal(requestor(index), index, 0));
    assert!((0..lost).all(|index| test.was_told(requestor(index), is_commit)));
    test
}

/// One of two blocks is committed after the job was cancelled. The requestor of the other one fails.
#[test]
fn a_cancelled_job_that_publishes_only_some_blocks_ends_as_cancelled() {
    for spare in [Some(SPARE), None] {
        let mut test = all_committing(2, spare);
        test.job.cancel();
        test.act();
        test.say(requestor(1), failed(1, SinkProblem::Process("the server refuses".into())));
        assert!(test.ended.is_none(), "the first requestor may have committed its block by now");
        test.say(requestor(0), Report::Committed);
        assert_eq!(test.published, [(BlockIndex(0), requestor(0))]);
        assert!(matches!(test.ended, Some(Err(JobError::Cancelled))), "{:?}", test.ended);
        assert!(!is_assigned(&test, SPARE));
    }
}

#[test]
fn a_job_without_a_node_for_a_block_publishes_the_block_that_is_being_committed() {
    for disconnects in [false, true] {
        let mut test = all_committing(2, None);
        match disconnects {
            true => test.job.handle_node_lost(requestor(1), &test.topology, test.now),
            false => test.say(requestor(1), failed(1, SinkProblem::Process("the server refuses".into()))),
        }
        test.act();
        assert!(test.ended.is_none(), "the first requestor may have committed its block by now");
        test.say(requestor(0), Report::Committed);
        assert_eq!(test.published, [(BlockIndex(0), requestor(0))]);
        assert!(matches!(test.ended, Some(Err(JobError::NoRequestor { .. }))), "{:?}", test.ended);
    }
    let mut test = all_committing(2, None);
    test.say(requestor(1), failed(1, SinkProblem::Process("the server refuses".into())));
    test.wait(5 * SECOND);
    assert!(matches!(test.ended, Some(Err(JobError::NoRequestor { .. }))), "{:?}", test.ended);
}

#[test]
fn a_job_that_two_stores_refuse_publishes_the_block_that_is_being_committed() {
    let mut test = all_committing(3, Some(SPARE));
    for index in [1, 2] {
        test.say(requestor(index), failed(index, SinkProblem::NotNow("an operator has the lock".into())));
    }
    assert!(test.ended.is_none(), "the first requestor may have committed its block by now");
    test.say(requestor(0), Report::Committed);
    assert_eq!(test.published, [(BlockIndex(0), requestor(0))]);
    assert!(matches!(test.ended, Some(Err(JobError::StoreNotReady { .. }))), "{:?}", test.ended);
}

/// A node without a delivery reports failures again and again.
#[test]
fn a_job_without_progress_publishes_the_block_that_is_being_committed() {
    let mut test = all_committing(2, Some(SPARE));
    let source = (2..6).map(NodeId).find(|&node| is_assigned(&test, node)).expect("somebody reads");
    for _ in 0..20 {
        test.say(source, failed(0, SinkProblem::Process("the server refuses".into())));
    }
    assert!(test.ended.is_none(), "both requestors may have committed their blocks by now");
    test.say(requestor(0), Report::Committed);
    assert_eq!(test.published, [(BlockIndex(0), requestor(0))]);
    test.say(requestor(1), Report::Stopped { delivered: SliceSet::new() });
    assert!(test.ended.is_none(), "it has not answered all messages");
    test.wait(5 * SECOND);
    assert!(matches!(test.ended, Some(Err(JobError::NoProgress { .. }))), "{:?}", test.ended);
    assert!(!is_assigned(&test, SPARE));
}

#[test]
fn a_cancelled_job_waits_only_for_commits() {
    let mut test = TestJob::new(1);
    test.say(NodeId(REQUESTORS), Report::Delivered);
    test.job.cancel();
    test.act();
    assert!(matches!(test.ended, Some(Err(JobError::Cancelled))), "{:?}", test.ended);
    let mut test = TestJob::new(1);
    test.say(NodeId(REQUESTORS), Report::Delivered);
    test.deliver_and_seal(NodeId(REQUESTORS), 0, 0);
    test.job.cancel();
    test.wait(500 * SECOND);
    assert!(test.ended.is_some(), "a requestor that does not answer is given up");
}
