//! [`Schedule`]: which file the coordinator encodes next. Pure: time comes in as an argument, in milliseconds since 1970.
//!
//! The driver passes listed files in, starts what [`next`](Schedule::next) returns, and reports each end. A file whose
//! work failed waits for a time that doubles with each failure.
//!
//! The work on a file with parity, but without enough redundancy, begins with a turn of its own, in which only its replication
//! is raised. HDFS then creates replicas while the file waits for its next turn.
//!
//! **Invariants:**
//! - At most `files_at_once` files are in progress, and each only once. Files without enough redundancy do not wait for
//!   others, which may take hours: as many of them are in progress in addition.
//! - The first turns count towards neither limit: no file waits for its replication to be raised because HDFS creates no
//!   replicas of others.
//! - A file never starts before a more urgent one that may start too. Of files of the same urgency, those start first whose
//!   replication was not raised yet, then those that have failed least often, then those modified first.
//! - At most [`MOST_WAITING`] files wait. Further ones are counted, and a later listing finds them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use hdfs_raid::{Codec, Goal, Pause, RaidPolicy, is_within};

/// The most files that wait. One takes some 300 bytes.
pub(crate) const MOST_WAITING: usize = 100_000;
/// The wait after the first failure, and the longest one. Files without enough redundancy do not wait as long.
const RETRY_FIRST_MS: u64 = 5 * 60_000;
const RETRY_LAST_MS: u64 = 24 * 3_600_000;
const RETRY_UNSAFE_MS: u64 = 15 * 60_000;
/// The most files whose replication is being raised. Each takes a look and a call.
pub(crate) const RAISED_AT_ONCE: usize = 64;
/// The time over which the rate is measured, and the length of its parts.
const MEASURED_MS: u64 = 3_600_000;
const PART_MS: u64 = 60_000;

/// Why a file is worked on, the most urgent reason first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Urgency {
    /// The loss of one DataNode could cost data: it has one replica, and no valid parity; or a DataNode has too many blocks of a
    /// stripe.
    Unsafe,
    /// It was changed since it was encoded.
    Changed,
    /// Its encoding, or the undoing of it, was interrupted; or its parity is not proven yet.
    Unfinished,
    /// Blocks of a stripe stand too close together.
    Misplaced,
    /// It was never encoded.
    New,
    /// Its parity has a note of an earlier version, which proves the blocks, but not the code.
    OldNote,
}

/// How a file is encoded.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Encoding {
    /// The codec.
    pub codec: Codec,
    /// The policy, if one covers the files.
    pub policy: Option<RaidPolicy>,
    /// The desired state.
    pub goal: Goal,
    /// The number of losses that the codec tolerates.
    pub tolerated: usize,
}

/// A file to work on.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Task {
    /// The path.
    pub path: String,
    /// The length in bytes.
    pub bytes: u64,
    /// The time of the last modification, in milliseconds since 1970.
    pub modified_ms: u64,
    /// Why it is worked on.
    pub urgency: Urgency,
    /// How it is encoded.
    pub encoding: Arc<Encoding>,
    /// The path of its parity, if it was renamed without it.
    pub stray: Option<String>,
    /// Whether there is parity, of whatever contents. Without any, the replication is never raised.
    pub has_parity: bool,
}

/// The limits that operators set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// The most files in progress.
    pub files_at_once: usize,
    /// The most bytes that are read and written in a second, in the long run; `None` without a limit.
    pub rate: Option<u64>,
}

/// Whether work has to wait, with the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Hold {
    /// Nothing waits.
    None,
    /// Only files without enough redundancy are worked on.
    Background(String),
    /// Everything waits.
    All(String),
}

/// How the work on a file has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The file is as its policy requires, or is gone.
    Done,
    /// The work was interrupted. It continues once nothing holds it.
    Held,
    /// The file is left as it is until this time.
    Later {
        /// Milliseconds since 1970.
        until_ms: u64,
        /// The reason.
        why: String,
    },
    /// The work has failed, with the reason.
    Failed(String),
}

/// A number of files, and their length in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Amount {
    pub files: u64,
    pub bytes: u64,
}

/// A file that is left alone until a time.
#[derive(Clone, Debug)]
struct Delayed {
    entry: Entry,
    until_ms: u64,
    why: String,
    is_failure: bool,
}

/// A task, and how often it has failed in a row.
#[derive(Clone, Debug)]
struct Entry {
    task: Task,
    failures: u32,
    /// Why the last attempt has failed, if it has, and the time since which all have failed.
    failure: Option<(String, u64)>,
    /// The event for which the work waits, and the time since which it has waited.
    wait: Option<(Pause, u64)>,
    /// Whether the first turn is over, in which the replication is raised.
    is_raised: bool,
    /// Whether the policies have changed since the work has begun.
    is_forgotten: bool,
}

/// The position of a file that waits: its urgency, whether no first turn is left, its failures, and its modification time.
type Turn = (Urgency, bool, u32, u64);

/// The files to work on; see the module's documentation.
#[derive(Debug)]
pub(crate) struct Schedule {
    limits: Limits,
    /// The files that wait, by their turns and paths.
    waiting: BTreeMap<(Turn, String), Entry>,
    /// The turn of each file that waits.
    turns: BTreeMap<String, Turn>,
    running: BTreeMap<String, Entry>,
    /// New facts about files in progress, for when their work ends.
    relisted: BTreeMap<String, Task>,
    delayed: BTreeMap<String, Delayed>,
    due: BTreeSet<(u64, String)>,
    /// Files that were listed, but not recorded.
    left_out: Amount,
    /// The time until which the bytes that were moved use the rate up.
    used_until_ms: u64,
    /// Bytes of finished files, by the part of the time in which they ended.
    finished: VecDeque<(u64, u64)>,
}

/// A file whose last attempt has failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// The path.
    pub path: String,
    /// Why it is worked on.
    pub urgency: Urgency,
    /// Why the attempt has failed.
    pub why: String,
    /// How long all attempts have failed.
    pub for_ms: u64,
}

/// A file in progress that waits for HDFS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wait {
    /// The path.
    pub path: String,
    /// The event.
    pub why: Pause,
    /// How long it has waited.
    pub for_ms: u64,
}

/// The state of the work, for operators.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Backlog {
    /// Files that wait, by urgency.
    pub waiting: BTreeMap<Urgency, Amount>,
    /// Files that wait and are not recorded one by one.
    pub left_out: Amount,
    /// Files in progress.
    pub running: Amount,
    /// Files whose last attempt failed. Some of them wait or are in progress again.
    pub failed: Vec<Failure>,
    /// Files in progress that wait for HDFS.
    pub waits: Vec<Wait>,
    /// Files that are left as they are, by the reason.
    pub later: BTreeMap<String, u64>,
    /// Bytes of files that were finished in a second, over the last hour; `None` if there were none.
    pub rate: Option<u64>,
}

impl Backlog {
    /// Returns all files that wait or are in progress.
    pub fn total(&self) -> Amount {
        let amounts = self.waiting.values().chain([&self.left_out, &self.running]);
        amounts.fold(Amount::default(), |sum, one| Amount {
            files: sum.files + one.files,
            bytes: sum.bytes + one.bytes,
        })
    }
}

impl Entry {
    fn new(task: Task) -> Self {
        Self { task, failures: 0, failure: None, wait: None, is_raised: false, is_forgotten: false }
    }

    /// Whether only the replication of the file is raised now.
    fn is_raising(&self) -> bool {
        self.task.urgency == Urgency::Unsafe && self.task.has_parity && !self.is_raised
    }

    fn turn(&self) -> Turn {
        (self.task.urgency, !self.is_raising(), self.failures, self.task.modified_ms)
    }
}

impl Amount {
    fn add(&mut self, bytes: u64) {
        self.files += 1;
        self.bytes += bytes;
    }
}

impl Hold {
    /// Returns the reason for which a file of this urgency has to wait.
    pub fn why(&self, urgency: Urgency) -> Option<&str> {
        match self {
            Self::None => None,
            Self::Background(_) if urgency == Urgency::Unsafe => None,
            Self::Background(why) | Self::All(why) => Some(why),
        }
    }
}

impl Schedule {
    /// Creates an empty schedule.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            waiting: BTreeMap::new(),
            turns: BTreeMap::new(),
            running: BTreeMap::new(),
            relisted: BTreeMap::new(),
            delayed: BTreeMap::new(),
            due: BTreeSet::new(),
            left_out: Amount::default(),
            used_until_ms: 0,
            finished: VecDeque::new(),
        }
    }

    /// Takes the files to work on in the whole namespace, which replace those known. `newer` are files and folders that were
    /// listed after this listing had begun: what is known of them stays.
    pub fn take_full_listing(&mut self, newer: &BTreeSet<String>, mut tasks: Vec<Task>) {
        self.left_out = Amount::default();
        tasks.retain(|task| !is_in_one_of(&task.path, newer));
        self.take(|path| !is_in_one_of(path, newer), tasks);
    }

    /// Takes the files to work on at or below a path, which replace those known there.
    pub fn take_listing(&mut self, within: &str, tasks: Vec<Task>) {
        self.take(|path| is_within(path, within), tasks);
    }

    /// Takes the files to work on among those that were listed. Files that failed, and have not changed since, keep waiting.
    fn take(&mut self, is_listed: impl Fn(&str) -> bool, tasks: Vec<Task>) {
        let known: Vec<String> = self.turns.keys().filter(|path| is_listed(path)).cloned().collect();
        let taken = known.into_iter().filter_map(|path| self.remove_waiting(&path));
        let before: BTreeMap<String, Entry> = taken.map(|entry| (entry.task.path.clone(), entry)).collect();
        self.relisted.retain(|path, _| !is_listed(path));
        let paths: BTreeSet<&str> = tasks.iter().map(|task| task.path.as_str()).collect();
        let gone = self.delayed.keys().filter(|path| is_listed(path) && !paths.contains(path.as_str()));
        for path in gone.cloned().collect::<Vec<_>>() {
            self.remove_delayed(&path);
        }
        for task in tasks {
            let before = before.get(&task.path).filter(|before| version(&before.task) == version(&task));
            self.add(match before.cloned() {
                Some(before) => Entry { task, ..before },
                None => Entry::new(task),
            });
        }
    }

    /// Forgets all files, because the policies have changed. Files in progress are forgotten when their work ends.
    pub fn forget(&mut self) {
        self.waiting.clear();
        self.turns.clear();
        self.relisted.clear();
        self.delayed.clear();
        self.due.clear();
        self.running.values_mut().for_each(|entry| entry.is_forgotten = true);
        self.left_out = Amount::default();
    }

    /// Returns a file to begin with now, which counts as in progress until [`handle_end`](Self::handle_end).
    pub fn next(&mut self, now_ms: u64, hold: &Hold) -> Option<Task> {
        self.wake(now_ms);
        // Many first turns keep no other ones waiting.
        let others = self.waiting.range(((Urgency::Unsafe, true, 0, 0), String::new())..).next();
        let mut most_urgent = self.waiting.first_key_value().into_iter().chain(others);
        let ((_, path), _) = most_urgent.find(|(_, entry)| self.may_start(entry, hold))?;
        let path = path.clone();
        let entry = self.remove_waiting(&path).expect("it waits");
        let task = entry.task.clone();
        self.running.insert(path, entry);
        Some(task)
    }

    fn may_start(&self, next: &Entry, hold: &Hold) -> bool {
        hold.why(next.task.urgency).is_none() && !self.is_busy(next)
    }

    /// Whether as many files are in progress as may be, for this one to start.
    fn is_busy(&self, next: &Entry) -> bool {
        let (raising, others): (Vec<&Entry>, Vec<&Entry>) =
            self.running.values().partition(|entry| entry.is_raising());
        if next.is_raising() {
            return raising.len() >= RAISED_AT_ONCE;
        }
        let is_unsafe = |entry: &Entry| entry.task.urgency == Urgency::Unsafe;
        let counts = |entry: &&&Entry| !is_unsafe(next) || is_unsafe(entry);
        others.iter().filter(counts).count() >= self.limits.files_at_once
    }

    /// Whether only the replication of a file in progress is raised now.
    pub fn is_raising(&self, path: &str) -> bool {
        self.running.get(path).is_some_and(Entry::is_raising)
    }

    /// Takes note that the replication of a file in progress needs no raising any more. Returns whether this was its first turn,
    /// which ends now.
    pub fn note_raised(&mut self, path: &str) -> bool {
        let running = self.running.get_mut(path).filter(|entry| entry.is_raising());
        let Some(entry) = running else { return false };
        entry.is_raised = true;
        true
    }

    /// Takes the end of the work on a file.
    pub fn handle_end(&mut self, path: &str, ending: Ending, now_ms: u64) {
        let Some(mut entry) = self.running.remove(path) else { return };
        let waited = entry.wait.take();
        if ending == Ending::Done {
            self.note_finished(entry.task.bytes, now_ms);
        }
        if let Some(task) = self.relisted.remove(path) {
            let is_same = version(&task) == version(&entry.task);
            match ending {
                // The listing may be older than the end.
                Ending::Done if is_same => {}
                _ if is_same => (entry.task, entry.is_forgotten) = (task, false),
                _ => return self.add(Entry::new(task)),
            }
        }
        if entry.is_forgotten {
            return;
        }
        match ending {
            Ending::Done => {}
            Ending::Held => self.add(entry),
            Ending::Later { until_ms, why } => {
                entry.failure = None;
                self.delay(entry, until_ms, why, false);
            }
            Ending::Failed(why) => {
                let first_ms = waited.map_or(now_ms, |(_, since_ms)| since_ms);
                let since_ms = entry.failure.take().map_or(first_ms, |(_, since_ms)| since_ms);
                entry.failures += 1;
                entry.failure = Some((why.clone(), since_ms));
                let pause_ms = retry_ms(entry.task.urgency, entry.failures);
                self.delay(entry, now_ms + pause_ms, why, true);
            }
        }
    }

    /// Takes the event for which the work on a file waits now, if it does.
    pub fn note_wait(&mut self, path: &str, why: Option<&Pause>, now_ms: u64) {
        let Some(entry) = self.running.get_mut(path) else { return };
        let since_ms =
            entry.wait.take().filter(|(before, _)| Some(before) == why).map(|(_, since_ms)| since_ms);
        entry.wait = why.map(|why| (why.clone(), since_ms.unwrap_or(now_ms)));
    }

    /// Returns why the attempt before the present one has failed, if it has.
    pub fn failure_of(&self, path: &str) -> Option<&str> {
        let (why, _) = self.running.get(path)?.failure.as_ref()?;
        Some(why)
    }

    /// Takes the number of bytes that a call has read and written.
    pub fn note_moved(&mut self, bytes: u64, now_ms: u64) {
        let Some(rate) = self.limits.rate else { return };
        let ms = u128::from(bytes) * 1000 / u128::from(rate.max(1));
        let ms = u64::try_from(ms).unwrap_or(u64::MAX);
        self.used_until_ms = self.used_until_ms.max(now_ms).saturating_add(ms);
    }

    /// Returns the time before which no call is made, so that the rate is kept.
    pub fn ready_ms(&self) -> u64 {
        self.used_until_ms
    }

    /// Returns why a file in progress is worked on.
    pub fn urgency_of(&self, path: &str) -> Option<Urgency> {
        self.running.get(path).map(|entry| entry.task.urgency)
    }

    /// Whether the files that were left out of the schedule should be listed again now.
    pub fn is_short(&self) -> bool {
        self.waiting.is_empty() && self.left_out.files > 0
    }

    /// Returns the state of the work.
    pub fn backlog(&self, now_ms: u64) -> Backlog {
        let mut backlog = Backlog { left_out: self.left_out, ..Backlog::default() };
        for entry in self.waiting.values() {
            backlog.waiting.entry(entry.task.urgency).or_default().add(entry.task.bytes);
        }
        self.running.values().for_each(|entry| backlog.running.add(entry.task.bytes));
        // What has failed is told until an attempt succeeds.
        let retried = self.waiting.values().chain(self.running.values());
        let failed = |entry: &Entry| {
            let (why, since_ms) = entry.failure.clone()?;
            let (path, for_ms) = (entry.task.path.clone(), now_ms.saturating_sub(since_ms));
            Some(Failure { path, urgency: entry.task.urgency, why, for_ms })
        };
        backlog.failed.extend(retried.filter_map(failed));
        for delayed in self.delayed.values() {
            if delayed.is_failure {
                backlog.failed.extend(failed(&delayed.entry));
            } else {
                *backlog.later.entry(delayed.why.clone()).or_default() += 1;
            }
        }
        let wait = |(path, entry): (&String, &Entry)| {
            let (why, since_ms) = entry.wait.clone()?;
            Some(Wait { path: path.clone(), why, for_ms: now_ms.saturating_sub(since_ms) })
        };
        backlog.waits = self.running.iter().filter_map(wait).collect();
        backlog.rate = self.rate(now_ms);
        backlog
    }

    /// Adds a file that is to wait, or notes it for the end of the work on it.
    fn add(&mut self, entry: Entry) {
        let path = entry.task.path.clone();
        if self.running.contains_key(&path) {
            self.relisted.insert(path, entry.task);
            return;
        }
        if let Some(delayed) = self.delayed.get_mut(&path) {
            if version(&delayed.entry.task) == version(&entry.task) {
                delayed.entry.task = entry.task;
                return;
            }
            self.remove_delayed(&path);
        }
        self.remove_waiting(&path);
        self.turns.insert(path.clone(), entry.turn());
        self.waiting.insert((entry.turn(), path), entry);
        if self.waiting.len() > MOST_WAITING
            && let Some(((_, path), entry)) = self.waiting.pop_last()
        {
            self.turns.remove(&path);
            self.left_out.add(entry.task.bytes);
        }
    }

    fn delay(&mut self, entry: Entry, until_ms: u64, why: String, is_failure: bool) {
        let path = entry.task.path.clone();
        self.due.insert((until_ms, path.clone()));
        self.delayed.insert(path, Delayed { entry, until_ms, why, is_failure });
    }

    /// Lets files wait again whose delay is over.
    fn wake(&mut self, now_ms: u64) {
        while let Some((until_ms, _)) = self.due.first()
            && *until_ms <= now_ms
        {
            let (_, path) = self.due.pop_first().expect("there is one");
            if let Some(delayed) = self.delayed.remove(&path) {
                self.add(delayed.entry);
            }
        }
    }

    fn remove_waiting(&mut self, path: &str) -> Option<Entry> {
        let turn = self.turns.remove(path)?;
        self.waiting.remove(&(turn, path.to_owned()))
    }

    fn remove_delayed(&mut self, path: &str) {
        if let Some(delayed) = self.delayed.remove(path) {
            self.due.remove(&(delayed.until_ms, path.to_owned()));
        }
    }

    fn note_finished(&mut self, bytes: u64, now_ms: u64) {
        let part = now_ms / PART_MS;
        match self.finished.back_mut() {
            Some((last, sum)) if *last == part => *sum += bytes,
            _ => self.finished.push_back((part, bytes)),
        }
        let oldest = now_ms.saturating_sub(MEASURED_MS) / PART_MS;
        self.finished.retain(|&(part, _)| part >= oldest);
    }

    /// Returns the bytes of files that were finished in a second, since the first one of the last hour.
    fn rate(&self, now_ms: u64) -> Option<u64> {
        let oldest = now_ms.saturating_sub(MEASURED_MS) / PART_MS;
        let mut recent = self.finished.iter().filter(|&&(part, _)| part >= oldest).peekable();
        let first_ms = recent.peek()?.0 * PART_MS;
        let bytes: u64 = recent.map(|&(_, bytes)| bytes).sum();
        let seconds = now_ms.saturating_sub(first_ms).max(PART_MS) / 1000;
        Some(bytes / seconds)
    }
}

/// Whether a path is one of these files and folders, or below one.
fn is_in_one_of(path: &str, folders: &BTreeSet<String>) -> bool {
    let mut paths = std::iter::successors(Some(path), |path| path.rsplit_once('/').map(|(above, _)| above));
    !folders.is_empty() && paths.any(|path| folders.contains(path))
}

/// Returns what shows that a file was not changed, and has to be worked on for the same reason.
fn version(task: &Task) -> (u64, u64, Urgency, &Encoding) {
    (task.modified_ms, task.bytes, task.urgency, task.encoding.as_ref())
}

/// Returns the pause after this many failures in a row.
fn retry_ms(urgency: Urgency, failures: u32) -> u64 {
    let last_ms = if urgency == Urgency::Unsafe { RETRY_UNSAFE_MS } else { RETRY_LAST_MS };
    let doubled = RETRY_FIRST_MS.saturating_mul(1 << failures.saturating_sub(1).min(20));
    doubled.min(last_ms)
}

#[cfg(test)]
mod tests;
