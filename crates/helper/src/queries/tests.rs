//! Tests with a store whose disk is slow or fails.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::AtomicU32;
use std::sync::{Condvar, Mutex};

use repair::{LocalBlock, Sink};
use store_api::{BlockReader, Delivery, Gate, Sinks, Sources};
use tokio::time::timeout;

use super::*;
use crate::local::Local;
use crate::outbox::{Outgoing, outbox};
use crate::removals::Removals;
use crate::rendezvous::Rendezvous;
use crate::workers::Workers;

/// A store whose operations fail with the given error codes.
#[derive(Default)]
struct Faulty {
    /// The errors of each block's descriptions, the last one first. A block without an entry is intact.
    errors: Mutex<BTreeMap<BlockId, Vec<i32>>>,
    /// The error of the list of all blocks.
    list_error: Option<i32>,
    /// The folders that the list leaves out.
    silent: Vec<String>,
    /// Whether blocks can be stored.
    is_writable: bool,
    /// The error if they cannot; by default that of a read-only file system.
    write_error: Option<i32>,
    /// Whether writes to the disk stall.
    stalls: Mutex<bool>,
    resumed: Condvar,
    /// The recorded digests of the blocks that were verified.
    recorded: Mutex<Vec<Option<Digest>>>,
    /// The time that a description of a block takes.
    delay: Duration,
    /// The number of blocks that are being described, and its maximum so far.
    describing: AtomicU32,
    most: AtomicU32,
}

impl Sources for Faulty {
    fn open(&self, _: &LocalBlock) -> Result<Arc<dyn BlockReader>, BlockError> {
        unreachable!("no block is read")
    }
}

impl Sinks for Faulty {
    fn deliver(&self, _: &Sink) -> Result<Delivery, BlockError> {
        unreachable!("no block is stored")
    }
}

impl Blocks for Faulty {
    fn verify(&self, block: &BlockId, _: &dyn Gate) -> Result<Option<Digest>, BlockError> {
        self.describe(block).map(|_| None)
    }

    fn verify_recorded(
        &self,
        block: &BlockId,
        recorded: Option<Digest>,
        gate: &dyn Gate,
    ) -> Result<Option<Digest>, BlockError> {
        self.recorded.lock().unwrap().push(recorded);
        self.verify(block, gate)
    }

    fn remove(&self, _: &BlockId) -> Result<bool, BlockError> {
        unreachable!("no block is removed")
    }

    fn list(&self) -> Result<Vec<HeldBlock>, BlockError> {
        if let Some(code) = self.list_error {
            return Err(failed(code));
        }
        Ok(["a", "b", "c"].map(|name| HeldBlock { id: BlockId(name.to_owned()), bytes: 1 }).to_vec())
    }

    fn list_answering(&self) -> Result<BlockList, BlockError> {
        Ok(BlockList { held: self.list()?, silent: self.silent.clone() })
    }

    fn describe(&self, block: &BlockId) -> Result<Description, BlockError> {
        self.most.fetch_max(self.describing.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
        thread::sleep(self.delay);
        self.describing.fetch_sub(1, Ordering::Relaxed);
        match self.errors.lock().unwrap().get_mut(block).and_then(Vec::pop) {
            Some(code) => Err(failed(code)),
            None => Ok(Description { id: block.clone(), bytes: 1, digest: None, label: None }),
        }
    }

    fn free_bytes(&self) -> Result<u64, BlockError> {
        Ok(7)
    }

    fn check_writable(&self) -> Result<(), BlockError> {
        let (stalls, limit) = (self.stalls.lock().unwrap(), Duration::from_secs(20));
        drop(self.resumed.wait_timeout_while(stalls, limit, |stalls| *stalls).unwrap());
        if self.is_writable { Ok(()) } else { Err(failed(self.write_error.unwrap_or(libc::EROFS))) }
    }
}

fn failed(code: i32) -> BlockError {
    BlockError::Io { path: "a.crc".to_owned(), source: io::Error::from_raw_os_error(code) }
}

async fn queries(blocks: Arc<Faulty>) -> (Queries, Outgoing) {
    let (reports, outgoing) = outbox();
    let local = Local::Store(blocks.clone());
    let engine = Engine::new(local, Rendezvous::within(64), reports.clone(), Workers::here());
    let removals = Removals::default().next_connection().await;
    let recent = RecentBlocks::default();
    (Queries::new(blocks, reports, engine, recent, WriteChecks::default(), removals), outgoing)
}

async fn next(outgoing: &mut Outgoing) -> Option<FromNode> {
    next_within(outgoing, Duration::from_secs(2)).await
}

async fn next_within(outgoing: &mut Outgoing, limit: Duration) -> Option<FromNode> {
    timeout(limit, outgoing.recv()).await.ok().flatten()
}

/// Pings until there is an answer; returns the problem in it.
async fn write_problem(queries: &Queries, outgoing: &mut Outgoing) -> Option<String> {
    // A ping that arrives just before the last one counts as answered gets no answer.
    for _ in 0..50 {
        queries.handle(ToNode::Ping);
        let answer = timeout(Duration::from_millis(100), outgoing.recv()).await;
        if let Ok(Some(FromNode::Pong { write_problem, .. })) = answer {
            return write_problem;
        }
    }
    panic!("no answer to 50 pings")
}

#[tokio::test]
async fn pings_are_answered_while_a_write_stalls() {
    let blocks = Arc::new(Faulty { stalls: Mutex::new(true), ..Faulty::default() });
    let (queries, mut outgoing) = queries(blocks.clone()).await;
    for _ in 0..3 {
        assert_eq!(write_problem(&queries, &mut outgoing).await, None);
    }
    *blocks.stalls.lock().unwrap() = false;
    blocks.resumed.notify_all();
    let mut problem = None;
    for _ in 0..100 {
        tokio::time::sleep(Duration::from_millis(10)).await;
        problem = problem.or(write_problem(&queries, &mut outgoing).await);
    }
    assert!(problem.expect("the check has ended").contains("a.crc"));
}

/// Returns the names in the answer to a request to describe all blocks, and whether the answer is complete.
async fn described(blocks: Faulty) -> (Vec<String>, bool) {
    let (queries, mut outgoing) = queries(Arc::new(blocks)).await;
    queries.handle(ToNode::Describe { ask: 1 });
    match next_within(&mut outgoing, Duration::from_secs(4)).await {
        Some(FromNode::Described { blocks, last, .. }) => {
            assert_eq!(next_within(&mut outgoing, Duration::from_millis(100)).await, None);
            (blocks.into_iter().map(|block| block.id.0).collect(), last)
        }
        other => panic!("unexpected: {other:?}"),
    }
}

/// Describes blocks that fail with these errors, on a disk that can or cannot be written.
async fn described_on(is_writable: bool, errors: &[(&str, &[i32])]) -> (Vec<String>, bool) {
    let errors = errors.iter().map(|&(name, errors)| (BlockId(name.to_owned()), errors.to_vec()));
    let errors = Mutex::new(errors.collect());
    described(Faulty { errors, is_writable, ..Faulty::default() }).await
}

/// A complete or an incomplete answer.
fn answer(names: &[&str], is_complete: bool) -> (Vec<String>, bool) {
    (names.iter().map(|&name| name.to_owned()).collect(), is_complete)
}

#[tokio::test]
async fn an_unreadable_description_is_omitted_after_three_attempts() {
    for (errors, expected) in [
        (&[libc::EIO; 2][..], answer(&["a", "b", "c"], true)),
        (&[libc::EIO; 3][..], answer(&["a", "c"], true)),
        (&[libc::ELOOP][..], answer(&["a", "c"], true)),
        (&[libc::EMFILE; 3][..], answer(&["a", "c"], false)), // The machine has too few descriptors.
    ] {
        assert_eq!(described_on(true, &[("b", errors)]).await, expected);
    }
}

/// The errors of a disk that fails as a whole prove nothing about its blocks. The others are described nevertheless.
#[tokio::test]
async fn a_disk_that_fails_does_not_count_as_described() {
    let bad: &[i32] = &[libc::EIO; 3];
    assert_eq!(described_on(false, &[("a", bad)]).await, answer(&["b", "c"], true), "one bad sector");
    assert_eq!(described_on(true, &[("a", bad), ("b", bad)]).await, answer(&["c"], true));
    assert_eq!(described_on(false, &[("a", bad), ("b", bad)]).await, answer(&["c"], false));
}

/// The coordinator must not take the blocks that are not listed for missing, nor for good.
#[tokio::test]
async fn a_description_by_an_incomplete_list_is_incomplete() {
    let silent = vec!["/d2".to_owned()];
    assert_eq!(described(Faulty { silent, ..Faulty::default() }).await, answer(&["a", "b", "c"], false));
    let list_error = Some(libc::EMFILE);
    assert_eq!(described(Faulty { list_error, ..Faulty::default() }).await, answer(&[], false));
}

const SAY_SOON: Duration = Duration::from_millis(50);

/// Queries to a store that describes a block in twice the interval of messages.
async fn slow_queries(given_up_after: Duration) -> (Arc<Faulty>, Queries, Outgoing) {
    let blocks = Arc::new(Faulty { delay: 2 * SAY_SOON, ..Faulty::default() });
    let (mut queries, outgoing) = queries(blocks.clone()).await;
    queries.descriptions = Descriptions::with_limits(SAY_SOON, given_up_after);
    (blocks, queries, outgoing)
}

/// Returns the request, the number of blocks and whether it is the last part.
async fn next_part(outgoing: &mut Outgoing) -> (u64, usize, bool) {
    match next(outgoing).await {
        Some(FromNode::Described { ask, blocks, last }) => (ask, blocks.len(), last),
        other => panic!("unexpected: {other:?}"),
    }
}

/// The coordinator would not wait for the first part of a description by a disk that is dying.
#[tokio::test]
async fn slow_descriptions_are_sent_before_a_part_is_complete() {
    let (_, queries, mut outgoing) = slow_queries(Duration::from_secs(60)).await;
    queries.handle(ToNode::Describe { ask: 1 });
    for last in [false, false, true] {
        assert_eq!(next_part(&mut outgoing).await, (1, 1, last));
    }
}

#[tokio::test]
async fn a_description_waits_for_the_one_before_it_and_says_so() {
    let (blocks, queries, mut outgoing) = slow_queries(Duration::from_secs(60)).await;
    for ask in [1, 2] {
        queries.handle(ToNode::Describe { ask });
    }
    let mut parts = Vec::new();
    while parts.last() != Some(&(2, 1, true)) {
        parts.push(next_part(&mut outgoing).await);
    }
    let first_ends = parts.iter().position(|part| *part == (1, 1, true)).expect("it is complete");
    assert!(parts[..first_ends].contains(&(2, 0, false)), "{parts:?}");
    assert_eq!(blocks.most.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn a_description_ends_when_the_coordinator_no_longer_waits() {
    let (blocks, queries, mut outgoing) = slow_queries(Duration::ZERO).await;
    queries.handle(ToNode::Describe { ask: 1 });
    assert_eq!(next_within(&mut outgoing, 4 * SAY_SOON).await, None);
    assert_eq!(blocks.most.load(Ordering::Relaxed), 0, "no block is read");
}

/// Without repeated attempts, an error may be transient.
#[test]
fn a_disk_with_too_many_errors_does_not_count_as_described() {
    let blocks = Faulty { is_writable: true, ..Faulty::default() };
    let block = BlockId("b".to_owned());
    let mut errors = DescribeErrors { repeated: DESCRIBE_ATTEMPTS - 1, ..DescribeErrors::default() };
    assert!(!errors.are_of_the_disk(&blocks));
    blocks.errors.lock().unwrap().insert(block.clone(), vec![libc::EIO; 3]);
    let error = described_patiently(&blocks, &block, &mut errors).expect_err("its medium fails");
    assert!(is_medium(&error) && errors.are_of_the_disk(&blocks));
}

/// An omitted block would count as missing.
#[tokio::test]
async fn an_answer_without_a_description_that_the_helper_may_not_read_is_incomplete() {
    assert_eq!(described_on(true, &[("b", &[libc::EACCES])]).await, answer(&["a", "c"], false));
}

#[tokio::test]
async fn a_list_that_fails_is_reported() {
    let blocks = Arc::new(Faulty { list_error: Some(libc::EMFILE), ..Faulty::default() });
    let (queries, mut outgoing) = queries(blocks).await;
    queries.handle(ToNode::List { ask: 7 });
    assert!(matches!(next(&mut outgoing).await, Some(FromNode::ListFailed { ask: 7, .. })));
}

/// Verifies a block whose first reads fail with these errors.
async fn verified_on(is_writable: bool, errors: &[i32]) -> Result<Option<Digest>, BlockProblem> {
    let blocks = Arc::new(Faulty { is_writable, ..Faulty::default() });
    let block = BlockId("b".to_owned());
    blocks.errors.lock().unwrap().insert(block.clone(), errors.to_vec());
    let (queries, mut outgoing) = queries(blocks).await;
    queries.handle(ToNode::Verify { ask: 1, block, digest: None });
    match next(&mut outgoing).await.unwrap() {
        FromNode::Verified { result, .. } => result,
        other => panic!("unexpected: {other:?}"),
    }
}

#[tokio::test]
async fn a_block_is_unreadable_only_if_its_disk_works_otherwise() {
    let errors = [libc::ENODATA, libc::EIO, libc::EIO, libc::EIO];
    assert!(matches!(verified_on(true, &errors).await, Err(BlockProblem::Unreadable(_))));
    assert!(matches!(verified_on(false, &errors).await, Err(BlockProblem::Unavailable(_))));
}

/// The disk may work again when it is checked.
#[tokio::test]
async fn a_short_failure_of_a_disk_condemns_no_block() {
    assert_eq!(verified_on(true, &[libc::EIO; 3]).await, Ok(None));
}

/// A quota may be used up while the file system has free space.
#[tokio::test]
async fn a_store_that_refuses_blocks_as_full_has_no_free_space() {
    let full = Faulty { write_error: Some(libc::EDQUOT), ..Faulty::default() };
    for (blocks, expected) in [(full, 0), (Faulty { is_writable: true, ..Faulty::default() }, 7)] {
        let blocks = Arc::new(blocks);
        let (queries, mut outgoing) = queries(blocks.clone()).await;
        let store: Arc<dyn Blocks> = blocks;
        queries.write_checks.check_before_registering(&store).await;
        queries.handle(ToNode::Ping);
        let answer = loop {
            let message = next(&mut outgoing).await.expect("a ping is answered");
            if let FromNode::Pong { free_bytes, write_problem, .. } = message {
                break (free_bytes, write_problem);
            }
        };
        assert_eq!(answer, (expected, None));
    }
}

#[tokio::test]
async fn the_store_learns_which_digest_the_coordinator_uses() {
    let blocks = Arc::new(Faulty { is_writable: true, ..Faulty::default() });
    let (queries, mut outgoing) = queries(blocks.clone()).await;
    let digest = Some(Digest::of_u32("ecsum", 1));
    for digest in [digest, None] {
        queries.handle(ToNode::Verify { ask: 1, block: BlockId("b".to_owned()), digest });
        assert!(matches!(next(&mut outgoing).await, Some(FromNode::Verified { result: Ok(None), .. })));
    }
    assert_eq!(*blocks.recorded.lock().unwrap(), [digest, None]);
}

#[tokio::test]
async fn a_verification_without_progress_is_given_up() {
    const PERIOD: Duration = Duration::from_millis(200);
    let (queries, _outgoing) = queries(Arc::default()).await;
    let counting = queries.engine.traffic().for_purpose(Purpose::Scrub);
    let gate = queries.interest.gate(queries.engine.allowance(Class::Repair), counting);
    let (slow, reading) = (gate.clone(), Instant::now());
    let slow = async move {
        for _ in 0..40 {
            tokio::time::sleep(PERIOD / 20).await;
            slow.pass(1).unwrap();
        }
        Ok(7)
    };
    assert_eq!(unless_stuck(slow, &gate, PERIOD).await, Ok(7));
    assert!(reading.elapsed() > PERIOD);
    let hung = std::future::pending::<Result<u32, BlockProblem>>();
    assert!(matches!(unless_stuck(hung, &gate, PERIOD).await, Err(BlockProblem::Unavailable(_))));
}
