//! Carries out the calls that encode files or undo this, several files at a time. The commands and the coordinator share
//! this loop.
//!
//! [`hdfs_raid::Drive`] decides what comes next for a file. A [`Driver`] looks at the namespace, pauses, and makes the
//! calls, until the file's work has ended. It may be dropped at any time: the next run continues from the namespace.

use std::collections::BTreeMap;
use std::fmt;
use std::hash::{BuildHasher as _, RandomState};
use std::pin::Pin;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub(crate) use hdfs_raid::TERM_BITS;
use hdfs_raid::{Action, DECISION_MS, Drive, End, Facts, Goal, NewBlock, Note, Order, Pause, Stop, Trouble};
use store_api::FileWorkKind;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::changes::now_ms;
use super::schedule::RAISED_AT_ONCE;
use super::{RaidFile, RaidNameNode};

/// The most files whose blocks are read or written at the same time, and the most urgent ones besides.
const DATA_AT_ONCE: usize = 2;
/// DataNodes with about as many blocks are equally good places for new ones: the choice among them is random.
const ABOUT: u64 = 4;

/// A file to encode, or whose encoding is undone.
#[derive(Clone, Debug)]
pub struct Errand {
    /// The file.
    pub file: RaidFile,
    /// The decisions about the file.
    pub drive: Drive,
}

/// The end of the work on a file.
#[derive(Debug)]
pub struct Outcome {
    /// The file's path.
    pub path: String,
    /// The state that was reached, or why the work was given up.
    pub result: Result<End, Stop>,
    /// The changes that the work has made.
    pub deeds: Deeds,
}

/// The changes that the work on a file has made since it was last interrupted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Deeds {
    /// The length of the file in bytes.
    pub bytes: u64,
    /// The duration in milliseconds.
    pub took_ms: u64,
    /// Whether a call has changed HDFS.
    pub has_changed: bool,
    /// Whether parity was made, or the replication of the file was lowered.
    pub has_encoded: bool,
    /// Whether the encoding was to be undone.
    pub is_undo: bool,
}

impl Deeds {
    /// Returns the kind of work, for the history.
    pub fn kind(&self, has_failed: bool) -> FileWorkKind {
        match () {
            () if self.is_undo => FileWorkKind::Undo,
            () if self.has_encoded || has_failed => FileWorkKind::Encode,
            () => FileWorkKind::Adjust,
        }
    }
}

/// The pending result of a [`ParityMaker`] or a [`Pace`].
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Moves the bytes of an encoding: computes parity blocks, and checks parity.
pub trait ParityMaker: Send + Sync {
    /// Makes parity blocks of a stripe of this file, each as a file of one block at its DataNode. `facts` are those
    /// from which the call follows.
    ///
    /// # Errors
    /// [`Trouble`].
    fn encode<'a>(
        &'a self,
        file: &'a RaidFile,
        facts: &'a Facts,
        stripe: usize,
        blocks: &'a [NewBlock],
    ) -> Pending<'a, Result<(), Trouble>>;

    /// Returns whether the parity in these files is that of this file, if the blocks of both are those in the note.
    ///
    /// # Errors
    /// [`Trouble`].
    fn prove<'a>(
        &'a self,
        file: &'a RaidFile,
        facts: &'a Facts,
        note: Note,
        parity: &'a [String],
    ) -> Pending<'a, Result<bool, Trouble>>;

    /// Whether the parity in these files is proven already, so that [`prove`](Self::prove) reads nothing.
    fn has_proof(&self, file: &RaidFile, facts: &Facts, parity: &[String]) -> bool {
        let _ = (file, facts, parity);
        false
    }
}

/// Decides when the work on a file continues.
pub trait Pace: Send + Sync {
    /// Waits until the next look at this file, whose replication this work has lowered or not. Returns `false` if the
    /// work stops here.
    fn ready<'a>(&'a self, path: &'a str, is_lowered: bool) -> Pending<'a, bool>;

    /// Whether the work continues, given the facts of a look and the term of the work, which has none before the first
    /// look. The caller asks right after the look, before any change. If the work does not continue, it raises the replication
    /// of a file that needs this before it stops.
    fn accepts(&self, path: &str, term: Option<u64>, facts: &Facts) -> bool;

    /// Takes note that the work stops now because the pace does not [accept](Self::accepts) the facts.
    fn note_yielded(&self, path: &str) {
        let _ = path;
    }

    /// Takes the number of bytes that a call has read from DataNodes or written to them.
    fn note_moved(&self, bytes: u64);

    /// Whether the work on this file does not wait for calls for others that are not urgent. A call may take many minutes.
    fn is_urgent(&self, path: &str, is_lowered: bool) -> bool {
        let _ = path;
        is_lowered
    }

    /// Takes the event for which the work on this file waits now, if it does.
    fn note_wait(&self, path: &str, why: Option<&Pause>) {
        let _ = (path, why);
    }
}

/// Work without a limit.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unpaced;

/// Carries out the work on files; see the module's documentation.
pub struct Driver {
    namenode: RaidNameNode,
    maker: Arc<dyn ParityMaker>,
    pace: Arc<dyn Pace>,
    tell: Box<Teller>,
    /// The number of blocks on each DataNode, by address.
    blocks: Mutex<BTreeMap<String, u64>>,
    /// Places for calls that read or write blocks.
    places: Places,
}

/// Places for calls that read or write blocks.
struct Places {
    urgent: Semaphore,
    others: Semaphore,
}

/// Takes news about a file: a path, and a call, a wait or the end.
type Teller = dyn Fn(&str, &dyn fmt::Display) + Send + Sync;

/// The work on one file.
struct Worker<'a> {
    file: RaidFile,
    drive: Drive,
    driver: &'a Driver,
    /// The facts of the latest look.
    facts: Facts,
    /// The reason for the latest pause.
    said: Option<Pause>,
    /// Whether this work has lowered the replication of the file.
    is_lowered: bool,
    /// Whether this work ends once the replication of the file needs no raising.
    only_raises: bool,
    /// The time of day at which the facts are too old to set a replication, in milliseconds since 1970.
    fresh_until_ms: u64,
    /// The place for the next call that reads or writes blocks, if the work has waited for it.
    place: Option<SemaphorePermit<'a>>,
    deeds: Deeds,
}

/// Returns a term that no other process has: the time in milliseconds, and bits of the process number.
pub fn term() -> u64 {
    term_of(u64::from(std::process::id()))
}

/// Returns the term of a program that begins now: the time in milliseconds, and bits of a number that identifies the
/// program.
pub(crate) fn term_of(owner: u64) -> u64 {
    (now_ms() << TERM_BITS) | owner_of(owner)
}

/// Returns the bits of a term that identify the program.
pub(crate) fn owner_of(term: u64) -> u64 {
    term & ((1 << TERM_BITS) - 1)
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver").field("namenode", &self.namenode).finish_non_exhaustive()
    }
}

impl Driver {
    /// Creates a driver whose parity the JVM of the NameNode's handle makes. `tell` gets each call, wait and end, with
    /// the path of the file.
    pub fn new(
        namenode: RaidNameNode,
        pace: Arc<dyn Pace>,
        tell: impl Fn(&str, &dyn fmt::Display) + Send + Sync + 'static,
    ) -> Self {
        let maker = Arc::new(namenode.clone());
        let blocks = Mutex::default();
        let [urgent, others] = [(); 2].map(|()| Semaphore::new(DATA_AT_ONCE));
        Self { namenode, maker, pace, tell: Box::new(tell), blocks, places: Places { urgent, others } }
    }

    /// Has another maker make the parity.
    #[must_use]
    pub fn with_maker(self, maker: Arc<dyn ParityMaker>) -> Self {
        Self { maker, ..self }
    }

    /// Takes the number of blocks on each DataNode, by address, so that new blocks go to the emptiest ones.
    pub fn note_blocks(&self, mut blocks: BTreeMap<String, u64>) {
        let random = RandomState::new();
        blocks.iter_mut().for_each(|(address, count)| *count += random.hash_one(address) % ABOUT);
        *self.blocks() = blocks;
    }

    /// Carries out the work on a file. Returns `None` if the pace has stopped it.
    pub async fn drive(&self, errand: Errand) -> Option<Outcome> {
        self.finish(Worker::new(errand, self)).await
    }

    /// Raises the replication of a file if the work on it begins with that. Returns an outcome only if the work was given up.
    async fn raise(&self, errand: Errand) -> Option<Outcome> {
        self.finish(Worker { only_raises: true, ..Worker::new(errand, self) }).await
    }

    /// Carries out the work on a file. Returns `None` if it ends before a result.
    async fn finish(&self, mut worker: Worker<'_>) -> Option<Outcome> {
        let path = worker.file.path.clone();
        let begun = Instant::now();
        let result = worker.run().await?;
        let took_ms = begun.elapsed().as_millis() as u64;
        let is_undo = result == Ok(End::Plain) || worker.drive.goal() == Goal::Plain;
        let deeds = Deeds { took_ms, is_undo, ..worker.deeds };
        match &result {
            Ok(end) => (self.tell)(&path, end),
            Err(stop) => (self.tell)(&path, stop),
        }
        Some(Outcome { path, result, deeds })
    }

    fn blocks(&self) -> MutexGuard<'_, BTreeMap<String, u64>> {
        self.blocks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Carries out the work on all files, at most `at_once` at a time, and passes each outcome on. First, the replication of the
/// urgent files is raised if the work on them begins with that: no raise waits until HDFS has created the replicas of other
/// files, or until these are encoded. Then the urgent files precede the others.
pub async fn drive_all(
    driver: Arc<Driver>,
    [urgent, others]: [Vec<Errand>; 2],
    at_once: usize,
    mut take: impl FnMut(Outcome),
) {
    let mut left = Vec::new();
    let raise = |errand: Errand| {
        let driver = Arc::clone(&driver);
        async move { (errand.clone(), driver.raise(errand).await) }
    };
    let take_raised = |(errand, outcome): (Errand, Option<Outcome>)| match outcome {
        Some(outcome) => take(outcome),
        None => left.push(errand),
    };
    run_all(urgent, RAISED_AT_ONCE, raise, take_raised).await;
    left.extend(others);
    let drive = |errand: Errand| {
        let driver = Arc::clone(&driver);
        async move { driver.drive(errand).await }
    };
    run_all(left, at_once, drive, |outcome: Option<Outcome>| outcome.into_iter().for_each(&mut take)).await;
}

/// Runs `work` on all errands, at most `at_once` at a time, and passes each result on.
async fn run_all<T: Send + 'static, W: Future<Output = T> + Send + 'static>(
    errands: Vec<Errand>,
    at_once: usize,
    work: impl Fn(Errand) -> W,
    mut take: impl FnMut(T),
) {
    let (mut waiting, mut running) = (errands.into_iter(), JoinSet::new());
    loop {
        while running.len() < at_once
            && let Some(errand) = waiting.next()
        {
            running.spawn(work(errand));
        }
        match running.join_next().await {
            Some(result) => take(result.expect("no task panics or is cancelled")),
            None => return,
        }
    }
}

impl<'a> Worker<'a> {
    fn new(Errand { file, drive }: Errand, driver: &'a Driver) -> Self {
        let (facts, deeds) = (Facts::default(), Deeds::default());
        let (said, is_lowered, only_raises, fresh_until_ms, place) = (None, false, false, 0, None);
        Self { file, drive, driver, facts, said, is_lowered, only_raises, fresh_until_ms, place, deeds }
    }

    /// Returns the result; `None` if the pace has stopped the work, or if it only raises and nothing is left to raise.
    async fn run(&mut self) -> Option<Result<End, Stop>> {
        let mut order = Order::Look;
        loop {
            order = match order {
                Order::Look => {
                    if !self.driver.pace.ready(&self.file.path, self.is_lowered).await {
                        return None;
                    }
                    self.look().await?
                }
                Order::Pause { ms, why } => {
                    self.pause(ms, why).await;
                    Order::Look
                }
                Order::Act { action, until_ms } => self.act(&action, until_ms).await,
                Order::End(result) => return Some(result),
            };
        }
    }

    /// Looks at the namespace. Returns `None` if the pace does not accept the facts, or if the work only raises, unless the
    /// replication of the file has to be raised: this does no harm to the work of another program, which may take long.
    async fn look(&mut self) -> Option<Order> {
        let (looked_ms, at_ms) = (steady_ms(), now_ms());
        self.fresh_until_ms = at_ms + DECISION_MS;
        let look = self.driver.namenode.look(&self.file, at_ms).await;
        let (facts, mut nodes) = match look {
            Ok(look) => look,
            Err(trouble) => return Some(self.drive.handle_look(Err(trouble), looked_ms, steady_ms())),
        };
        let is_accepted = self.driver.pace.accepts(&self.file.path, self.drive.term(), &facts);
        nodes.add_blocks(&self.driver.blocks());
        self.facts = facts.clone();
        self.deeds.bytes = facts.source.as_ref().map_or(self.deeds.bytes, |source| source.file.bytes);
        let order = self.drive.handle_look(Ok((facts, &nodes)), looked_ms, steady_ms());
        if (is_accepted && !self.only_raises) || precedes_yielding(&self.facts, &order) {
            return Some(order);
        }
        if !is_accepted {
            self.driver.pace.note_yielded(&self.file.path);
        }
        None
    }

    /// Pauses; says why, unless it has said so before.
    async fn pause(&mut self, ms: u64, why: Pause) {
        self.place = None;
        self.driver.pace.note_wait(&self.file.path, Some(&why));
        if self.said.as_ref() != Some(&why) {
            (self.driver.tell)(&self.file.path, &why);
            self.said = Some(why);
        }
        tokio::time::sleep(Duration::from_millis(ms)).await;
    }

    async fn act(&mut self, action: &Action, until_ms: u64) -> Order {
        self.driver.pace.note_wait(&self.file.path, None);
        let bytes = self.bytes_of(action);
        if bytes == 0 {
            self.place = None;
        } else if self.place.is_none() && self.await_place().await {
            // The file may have changed meanwhile, and the pace may stop the work.
            return self.drive.handle_postponed();
        }
        self.said = None;
        (self.driver.tell)(&self.file.path, action);
        let result = self.carry_out(action, until_ms).await;
        self.place = None;
        self.driver.pace.note_moved(bytes);
        // A call that was not answered may have been carried out.
        let may_be_done = matches!(result, Ok(_) | Err(Trouble::Unreachable(_)));
        let is_lowered = may_be_done && lowers(&self.facts, action);
        self.is_lowered |= is_lowered;
        self.deeds.has_changed |= may_be_done && !matches!(action, Action::Prove { .. });
        self.deeds.has_encoded |= is_lowered || (may_be_done && matches!(action, Action::Write { .. }));
        if let (Ok(_), Action::Write { blocks, .. }) = (&result, action) {
            let mut counts = self.driver.blocks();
            blocks.iter().for_each(|block| *counts.entry(block.datanode.clone()).or_default() += 1);
        }
        self.drive.handle_action(result, steady_ms())
    }

    /// Takes a place for a call that reads or writes blocks. Returns whether other calls had to end first.
    async fn await_place(&mut self) -> bool {
        let driver = self.driver;
        let is_urgent = driver.pace.is_urgent(&self.file.path, self.is_lowered);
        let places = if is_urgent { &driver.places.urgent } else { &driver.places.others };
        let free = places.try_acquire().ok();
        let has_waited = free.is_none();
        self.place = match free {
            Some(place) => Some(place),
            None => Some(places.acquire().await.expect("places are never closed")),
        };
        has_waited
    }

    /// Returns how many bytes an action reads and writes, at most.
    fn bytes_of(&self, action: &Action) -> u64 {
        let is_proven = |parity: &[String]| self.driver.maker.has_proof(&self.file, &self.facts, parity);
        match action {
            Action::Prove { parity, .. } if is_proven(parity) => 0,
            _ => moved_bytes(&self.file, &self.facts, action),
        }
    }

    /// Carries an action out, unless it sets a replication and the [steady time](steady_ms) or the time of day shows that the
    /// facts are too old. The steady time does not pass while the machine is suspended.
    async fn carry_out(&self, action: &Action, until_ms: u64) -> Result<Option<bool>, Trouble> {
        let (Driver { namenode, maker, .. }, facts) = (self.driver, &self.facts);
        let until_ms = self.fresh_until_ms.min(now_ms() + until_ms.saturating_sub(steady_ms()));
        match action {
            Action::Write { stripe, blocks } => {
                maker.encode(&self.file, facts, *stripe, blocks).await.map(|()| None)
            }
            Action::Prove { note, parity } => maker.prove(&self.file, facts, *note, parity).await.map(Some),
            _ => namenode.act(&self.file, facts, action, until_ms).await,
        }
    }
}

/// Returns the time since this function was first called, in milliseconds. The waits of a file's work are measured by it, because
/// the time of day may be set.
fn steady_ms() -> u64 {
    static BEGUN: LazyLock<Instant> = LazyLock::new(Instant::now);
    BEGUN.elapsed().as_millis() as u64
}

/// Whether an action lowers the replication of the source.
fn lowers(facts: &Facts, action: &Action) -> bool {
    let Some(source) = facts.source.as_ref().map(|found| &found.file) else { return false };
    let Action::SetReplication { path, replication } = action else { return false };
    *path == source.path && *replication < source.replication
}

/// Whether an order raises the replication of the source.
fn raises(facts: &Facts, order: &Order) -> bool {
    let Order::Act { action: Action::SetReplication { path, replication }, .. } = order else { return false };
    let is_source = facts.source.as_ref().is_some_and(|found| found.file.path == *path);
    is_source && !facts.below(*replication).is_empty()
}

/// Whether an order is followed before the work gives way to another program or to other files: it raises the replication of
/// the source, or it follows from a look that took too long to set a replication.
fn precedes_yielding(facts: &Facts, order: &Order) -> bool {
    let is_late =
        matches!(order, Order::Pause { why: Pause::Retry(_), .. } | Order::End(Err(Stop::Refused { .. })));
    is_late || raises(facts, order)
}

/// Returns how many bytes an action reads and writes, at most.
fn moved_bytes(file: &RaidFile, facts: &Facts, action: &Action) -> u64 {
    let Some(source) = facts.source.as_ref().map(|found| &found.file) else { return 0 };
    let [data, parity] = [file.codec.data_blocks(), file.codec.parity_blocks()];
    match action {
        Action::Write { stripe, blocks } => {
            let read = source.blocks.chunks(data).nth(*stripe).unwrap_or_default();
            let read: u64 = read.iter().map(|block| block.bytes).sum();
            read + blocks.len() as u64 * source.block_bytes
        }
        Action::Prove { .. } => {
            let stripes = source.blocks.len().div_ceil(data);
            source.bytes + (stripes * parity) as u64 * source.block_bytes
        }
        Action::Move(moves) => moves.len() as u64 * source.block_bytes,
        _ => 0,
    }
}

impl Pace for Unpaced {
    fn ready<'a>(&'a self, _: &'a str, _: bool) -> Pending<'a, bool> {
        Box::pin(std::future::ready(true))
    }

    fn accepts(&self, _: &str, _: Option<u64>, _: &Facts) -> bool {
        true
    }

    fn note_moved(&self, _: u64) {}
}

#[cfg(test)]
mod tests {
    use hdfs_raid::{
        Block, Codec, DataNodes, Draft, DraftName, File, Listing, MarkedFile, Marks, NodeIndex, Owner, Scope,
        Storing,
    };

    use super::*;
    use crate::namenode::tests::namenode;

    /// Plays the JVM's part. `/b` and `/c` have one replica and parity of former contents, and HDFS creates no replicas of them.
    /// The folder gets a file for each whose replication was raised. Looks at other files are never answered.
    const CHANGED: &str = r#"cd "$(dirname "$0")"; echo '0 ready 9'
while read -r number word path rest; do
    name=${path#%2F} replication=1
    case "$word $name" in
        'files b' | 'files c')
            if [ -e "raised-$name" ]; then replication=3; fi
            echo "$number n 0 uuid-0 10.0.0.0:9866"
            echo "$number d 0 /rack live normal 1"
            echo "$number F 1 %2F$name 512 512 $replication 1 replicated closed -"
            echo "$number B 1 1001 512 0"
            echo "$number F 2 %2Fp%2F$name 512 512 1 1 replicated closed -"
            echo "$number B 2 1001 512 0" ;;
        attributes*) echo "$number X %2Fp%2F$name trusted.mend.source =1+1+3+0a+0b" ;;
        inodes*) echo "$number y 1" ;;
        replicate*) touch "raised-$name" ;;
        *) continue ;;
    esac
    echo "$number done"
done
"#;

    fn errand(path: &str) -> Errand {
        let codec = Codec::new("c", "rs-4-2".parse().expect("a code"), "/p", Scope::File);
        let goal = Goal::Encoded { replication: 1, parity_replication: 1 };
        let drive = Drive::new(codec.clone(), 2, goal, 9);
        Errand { file: RaidFile { path: path.to_owned(), codec, policy: None, stray: None }, drive }
    }

    /// One file at a time is in progress, and none of them ends: `/b` and `/c` wait for replicas, `/new` for an answer.
    #[tokio::test]
    async fn the_replication_of_all_urgent_files_is_raised_before_other_work() {
        let folder = tempfile::tempdir().expect("a folder");
        let namenode = RaidNameNode { namenode: namenode(folder.path(), CHANGED), repaired: None };
        let driver = Arc::new(Driver::new(namenode, Arc::new(Unpaced), |_, _| {}));
        let errands = [vec![errand("/b"), errand("/c")], vec![errand("/new")]];
        let all = drive_all(driver, errands, 1, |outcome| panic!("{outcome:?}"));
        let both_raised = async {
            while !["raised-b", "raised-c"].iter().all(|name| folder.path().join(name).exists()) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let both_raised = tokio::time::timeout(Duration::from_secs(60), both_raised);
        tokio::select! {
            () = all => panic!("no work ends"),
            raised = both_raised => raised.expect("both are raised"),
        }
    }

    /// Returns an empty file with blocks of 512 bytes.
    fn file(path: &str, replication: u16) -> File {
        File {
            inode: 1,
            path: path.to_owned(),
            bytes: 0,
            block_bytes: 512,
            replication,
            modified_ms: 0,
            owner: Owner::Superuser,
            storing: Storing::Replicated,
            is_open: false,
            blocks: Vec::new(),
        }
    }

    /// A file of three blocks of 512 bytes, the last of which is short, with two data blocks in a stripe.
    #[test]
    fn the_bytes_of_an_action_are_those_that_it_reads_and_writes() {
        let codec = Codec::new("c", "rs-4-2".parse().expect("a code"), "/p", Scope::File);
        let raided = RaidFile { path: "/a".to_owned(), codec, policy: None, stray: None };
        let block = |(number, bytes)| Block { number, stamp: 1, bytes, replicas: vec![NodeIndex(0)] };
        let source =
            File { bytes: 1100, blocks: [(1, 512), (2, 512), (3, 76)].map(block).to_vec(), ..file("/a", 3) };
        let note = Note {
            inode: 1,
            replication: 3,
            source: hdfs_raid::Fingerprint::of(&source.blocks),
            parity: hdfs_raid::Fingerprint::of([]),
            code: None,
        };
        let facts =
            Facts { source: Some(MarkedFile { file: source, marks: Marks::default() }), ..Facts::default() };
        let block = |parity| NewBlock { path: String::new(), parity, datanode: String::new() };
        let write = |stripe| Action::Write { stripe, blocks: vec![block(0), block(1)] };
        let moved = |action: &Action| moved_bytes(&raided, &facts, action);
        assert_eq!([moved(&write(0)), moved(&write(1)), moved(&write(2))], [2048, 1100, 1024]);
        assert_eq!(moved(&Action::Prove { note, parity: Vec::new() }), 1100 + 2048);
        assert_eq!(moved(&Action::Delete("/t".to_owned())), 0);
    }

    #[test]
    fn only_the_replication_of_the_source_counts_as_lowered_or_raised() {
        let file = file("/a", 3);
        let facts = Facts { source: Some(MarkedFile { file, marks: Marks::default() }), ..Facts::default() };
        let set = |path: &str, replication| Action::SetReplication { path: path.to_owned(), replication };
        assert!(lowers(&facts, &set("/a", 1)));
        assert!(!lowers(&facts, &set("/a", 4)) && !lowers(&facts, &set("/p/a", 1)));
        assert!(!lowers(&facts, &Action::Delete("/a".to_owned())));
        let raises = |action| raises(&facts, &Order::Act { action, until_ms: 0 });
        assert!(raises(set("/a", 4)));
        assert!(!raises(set("/a", 3)) && !raises(set("/a", 1)) && !raises(set("/p/a", 4)));
        assert!(!raises(Action::Delete("/a".to_owned())));
    }

    /// The NameNode took half a minute to list a changed file that another program encodes.
    #[test]
    fn a_late_raise_is_tried_again_before_the_work_gives_way() {
        let codec = Codec::new("c", "rs-4-2".parse().expect("a code"), "/p", Scope::File);
        let block = Block { number: 1, stamp: 1, bytes: 512, replicas: vec![NodeIndex(0)] };
        let marked = |path, modified_ms, note| {
            let blocks = vec![block.clone()];
            let file = File { inode: modified_ms, modified_ms, bytes: 512, blocks, ..file(path, 1) };
            Some(MarkedFile { file, marks: Marks { note, ..Marks::default() } })
        };
        let name = DraftName { inode: 1, modified_ms: 1, term: 5 };
        let drafts = vec![Draft { path: "/t".to_owned(), name, files: Vec::new() }];
        let former = hdfs_raid::Fingerprint::of([]);
        let note = Some(Note { inode: 1, replication: 3, source: former, parity: former, code: None });
        let (source, parity) = (marked("/a", 1, None), marked("/p/a", 2, note));
        let facts = Facts { source, parity, drafts, ..Facts::default() };
        let goal = Goal::Encoded { replication: 1, parity_replication: 1 };
        let nodes = DataNodes::of(&Listing::default());
        let mut drive = Drive::new(codec, 2, goal, 9);
        let mut look = |took_ms| drive.handle_look(Ok((facts.clone(), &nodes)), 0, took_ms);
        let in_time = look(1);
        assert!(raises(&facts, &in_time), "{in_time:?}");
        for is_given_up in [false, false, true] {
            let late = look(hdfs_raid::DECISION_MS);
            assert_eq!(matches!(late, Order::End(Err(_))), is_given_up, "{late:?}");
            assert!(!raises(&facts, &late) && precedes_yielding(&facts, &late));
        }
        let waits = Order::Pause { ms: 1, why: Pause::Waiting(hdfs_raid::Waiting::Replicas) };
        assert!(
            !precedes_yielding(&facts, &waits) && !precedes_yielding(&facts, &Order::End(Ok(End::Encoded)))
        );
    }

    #[test]
    fn later_terms_are_higher() {
        let first = term();
        std::thread::sleep(Duration::from_millis(2));
        assert!(term() > first);
    }
}
