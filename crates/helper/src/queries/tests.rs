//! Tests with a store whose disk is slow or fails.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Condvar, Mutex};

use repair::wire::control::HeldBlock;
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
    /// Whether blocks can be stored.
    is_writable: bool,
    /// Whether writes to the disk stall.
    stalls: Mutex<bool>,
    resumed: Condvar,
    /// The recorded digests of the blocks that were verified.
    recorded: Mutex<Vec<Option<Digest>>>,
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

    fn describe(&self, block: &BlockId) -> Result<Description, BlockError> {
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
        if self.is_writable { Ok(()) } else { Err(failed(libc::EROFS)) }
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

/// Describes blocks of a disk that works, except that block b fails with these errors. Returns the names that
/// arrive; `None` if the last message never comes.
async fn described(errors: &[i32]) -> Option<Vec<String>> {
    described_on(true, &[("b", errors)]).await
}

/// Describes blocks that fail with these errors, on a disk that can or cannot be written.
async fn described_on(is_writable: bool, errors: &[(&str, &[i32])]) -> Option<Vec<String>> {
    let errors = errors.iter().map(|&(name, errors)| (BlockId(name.to_owned()), errors.to_vec()));
    let errors = Mutex::new(errors.collect());
    let (queries, mut outgoing) =
        queries(Arc::new(Faulty { errors, is_writable, ..Faulty::default() })).await;
    queries.handle(ToNode::Describe { ask: 1 });
    match next_within(&mut outgoing, Duration::from_secs(4)).await? {
        FromNode::Described { blocks, last: true, .. } => {
            Some(blocks.into_iter().map(|block| block.id.0).collect())
        }
        other => panic!("unexpected: {other:?}"),
    }
}

#[tokio::test]
async fn an_unreadable_description_is_omitted_after_three_attempts() {
    let names = |names: &[&str]| Some(names.iter().map(|&name| name.to_owned()).collect());
    assert_eq!(described(&[libc::EIO; 2]).await, names(&["a", "b", "c"]));
    assert_eq!(described(&[libc::EIO; 3]).await, names(&["a", "c"]));
    assert_eq!(described(&[libc::ELOOP]).await, names(&["a", "c"]));
    assert_eq!(described(&[libc::EMFILE; 3]).await, None, "the machine has too few descriptors");
}

/// The errors of a disk that fails as a whole prove nothing about its blocks.
#[tokio::test]
async fn a_disk_that_fails_does_not_count_as_described() {
    let bad: &[i32] = &[libc::EIO; 3];
    let one = Some(vec!["b".to_owned(), "c".to_owned()]);
    assert_eq!(described_on(false, &[("a", bad)]).await, one, "one bad sector");
    assert_eq!(described_on(true, &[("a", bad), ("b", bad)]).await, Some(vec!["c".to_owned()]));
    assert_eq!(described_on(false, &[("a", bad), ("b", bad)]).await, None);
}

/// Without repeated attempts, an error may be transient.
#[test]
fn a_disk_with_too_many_errors_does_not_count_as_described() {
    let blocks = Faulty { is_writable: true, ..Faulty::default() };
    let block = BlockId("b".to_owned());
    let mut errors = DescribeErrors { repeated: DESCRIBE_ATTEMPTS - 1, unreadable: 0 };
    assert!(!errors.are_of_the_disk(&blocks));
    blocks.errors.lock().unwrap().insert(block.clone(), vec![libc::EIO; 3]);
    let error = described_patiently(&blocks, &block, &mut errors).expect_err("its medium fails");
    assert!(is_medium(&error) && errors.are_of_the_disk(&blocks));
}

/// An omitted block would count as missing.
#[tokio::test]
async fn a_description_that_the_helper_may_not_read_is_not_omitted() {
    assert_eq!(described(&[libc::EACCES]).await, None);
}

#[tokio::test]
async fn a_list_that_fails_is_reported() {
    let blocks = Arc::new(Faulty { list_error: Some(libc::EMFILE), ..Faulty::default() });
    let (queries, mut outgoing) = queries(blocks).await;
    queries.handle(ToNode::List { ask: 7 });
    assert!(matches!(next(&mut outgoing).await, Some(FromNode::ListFailed { ask: 7, .. })));
}

/// Verifies a block whose reads fail with an error of the medium.
async fn verified_on(is_writable: bool) -> Result<Option<Digest>, BlockProblem> {
    let blocks = Arc::new(Faulty { is_writable, ..Faulty::default() });
    let block = BlockId("b".to_owned());
    blocks.errors.lock().unwrap().insert(block.clone(), vec![libc::ENODATA, libc::EIO, libc::EIO]);
    let (queries, mut outgoing) = queries(blocks).await;
    queries.handle(ToNode::Verify { ask: 1, block, digest: None });
    match next(&mut outgoing).await.unwrap() {
        FromNode::Verified { result, .. } => result,
        other => panic!("unexpected: {other:?}"),
    }
}

#[tokio::test]
async fn a_block_is_unreadable_only_if_its_disk_works_otherwise() {
    assert!(matches!(verified_on(true).await, Err(BlockProblem::Unreadable(_))));
    assert!(matches!(verified_on(false).await, Err(BlockProblem::Unavailable(_))));
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
