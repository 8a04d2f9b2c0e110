//! Evaluates policies steadily: lists files, and has them encoded one after the other, as long as this coordinator is in
//! charge and nothing more important is going on.
//!
//! The namespace of HDFS is the only record (`docs/decisions/0058`), so this task may end at any time. It uses a JVM of its
//! own: reading and writing of data must not delay queries for lost blocks.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use hdfs_raid::{DataNodes, Draft, Drive, End, Exclusion, Facts, Pause, Policies, Stop, is_within};
use store_api::{EncodedFiles, FileBacklog, FileWork, StoreChange};
use tokio::task::{JoinHandle, JoinSet, spawn_blocking};
use tokio::time::sleep;

use super::encoding_state::Changed;
use super::open::Attachment;
use super::state::HdfsSystem;
use crate::namenode::NameNodeSettings;
use crate::raid::by_helpers::HelperParity;
use crate::raid::changes::now_ms;
use crate::raid::choosing::{Encodings, not_renamed};
use crate::raid::driving::{Deeds, Driver, Errand, Outcome, Pace, Pending, TERM_BITS, owner_of, term_of};
use crate::raid::policy_file::PolicyFile;
use crate::raid::schedule::{Amount, Encoding, Ending, Hold, Limits, Schedule, Task, Urgency};
use crate::raid::{RaidFile, RaidNameNode};

/// The interval between two looks at the state of the work.
const TICK: Duration = Duration::from_secs(2);
/// The longest pause between two looks at whether work has to stop.
const LOOK_MS: u64 = 2_000;
/// After this time without a change, a draft of another program counts as left behind.
const ABANDONED_MS: u64 = 10 * 60_000;
/// The wait before another look at a file that should not be encoded now.
const UNFIT_MS: u64 = 6 * 3_600_000;
/// The pause after a listing that failed.
const LIST_AGAIN_MS: u64 = 60_000;
/// Listings that changes cause are at least this part of the interval apart.
const EARLY: u64 = 10;
/// Listings that decide about unsafe files are at least this far apart, unless the interval requires less.
const DOUBTFUL_MS: u64 = 5 * 60_000;
/// The name under which problems and remarks are reported.
const FINDER: &str = "encoding by policies";

/// How files are encoded by policies.
#[derive(Clone, Debug)]
pub struct EncodingSettings {
    /// The file with the policies.
    pub policies: PathBuf,
    /// The most bytes that are read and written in a second; `None` without a limit.
    pub rate: Option<u64>,
    /// The most files in progress.
    pub files_at_once: usize,
    /// The time between two listings of the policies' folders.
    pub interval: Duration,
    /// A number that identifies the cluster, and shows a coordinator the drafts of its predecessors.
    pub owner: u64,
}

/// The state that this task shares with the work on files.
struct Shared {
    storage: Weak<HdfsSystem>,
    schedule: Mutex<Schedule>,
    /// Whether there are no policies.
    is_stopped: AtomicBool,
    /// The files whose work was left to another program.
    yielded: Mutex<BTreeSet<String>>,
    term: u64,
}

/// The evaluation of policies; see the module's documentation.
struct Evaluation {
    shared: Arc<Shared>,
    driver: Arc<Driver>,
    namenode: RaidNameNode,
    interval_ms: u64,
    file: PolicyFile,
    encodings: Arc<Encodings>,
    listing: Option<JoinHandle<Result<Found, String>>>,
    /// The time at which the last full listing ended, and that of the next one.
    listed_ms: Option<u64>,
    list_at_ms: u64,
    /// Why the last listing failed.
    problem: Option<String>,
    running: JoinSet<(Task, Option<Outcome>)>,
    /// The encoded files of the last full listing.
    encoded: Option<EncodedFiles>,
}

/// The result of a listing.
struct Found {
    /// The files that need work, by the paths that were listed.
    tasks: Vec<(String, Vec<Task>)>,
    /// The number of blocks on each DataNode.
    blocks: BTreeMap<String, u64>,
    /// The files with valid parity.
    encoded: EncodedFiles,
    is_full: bool,
    /// Whether a full listing has to decide about files.
    is_doubtful: bool,
}

/// Evaluates policies until the storage is dropped.
pub(super) async fn watch_policies(
    storage: Weak<HdfsSystem>,
    settings: EncodingSettings,
    namenode: NameNodeSettings,
) {
    let Some(system) = storage.upgrade() else { return };
    let file = PolicyFile::new(settings.policies.clone(), system.attachment.raid.clone());
    let namenode = RaidNameNode::new(namenode);
    let maker = system.parity_maker(namenode.clone());
    drop(system);
    let mut evaluation = Evaluation::new(storage.clone(), &settings, (namenode, maker), file);
    loop {
        sleep(TICK).await;
        let Some(system) = storage.upgrade() else { return };
        evaluation.step(&system).await;
    }
}

impl HdfsSystem {
    /// Returns the maker of parity: the helpers, or the JVM where they cannot.
    fn parity_maker(&self, jvm: RaidNameNode) -> HelperParity {
        let tell = |path: &str, what: &dyn std::fmt::Display| tracing::info!("{path}: {what}");
        let Attachment { helpers, pushes, .. } = &self.attachment;
        HelperParity::new(jvm, Arc::clone(&self.rebuilder), Box::new(tell), helpers.clone(), *pushes)
    }
}

impl Evaluation {
    fn new(
        storage: Weak<HdfsSystem>,
        settings: &EncodingSettings,
        (namenode, maker): (RaidNameNode, HelperParity),
        file: PolicyFile,
    ) -> Self {
        let limits = Limits { files_at_once: settings.files_at_once, rate: settings.rate };
        let schedule = Mutex::new(Schedule::new(limits));
        let (is_stopped, yielded) = (AtomicBool::new(true), Mutex::default());
        let term = term_of(settings.owner);
        let shared = Arc::new(Shared { storage, schedule, is_stopped, yielded, term });
        let tell = |path: &str, what: &dyn std::fmt::Display| tracing::debug!("{path}: {what}");
        let driver = Driver::new(namenode.clone(), Arc::clone(&shared) as Arc<dyn Pace>, tell);
        let driver = driver.with_maker(Arc::new(maker));
        Self {
            shared,
            driver: Arc::new(driver),
            namenode,
            interval_ms: settings.interval.as_millis() as u64,
            file,
            encodings: Arc::new(Encodings::of(&Policies::none())),
            listing: None,
            listed_ms: None,
            list_at_ms: 0,
            problem: None,
            running: JoinSet::new(),
            encoded: None,
        }
    }

    async fn step(&mut self, system: &Arc<HdfsSystem>) {
        self.read_policies();
        self.take_ends(system);
        let hold = system.hold();
        self.take_listing().await;
        if let (Some(policies), false) = (self.file.policies().cloned(), matches!(hold, Hold::All(_))) {
            self.list_if_due(system, policies);
            self.start(&hold);
        }
        self.report(system, &hold);
    }

    /// Reads the policies. Other policies take effect at once, except for files in progress. Without policies, these
    /// are left as they are.
    fn read_policies(&mut self) {
        let read = std::fs::read_to_string(self.file.path()).map_err(|error| error.to_string());
        if !self.file.take(read) {
            return;
        }
        let none = Policies::none();
        let policies = self.file.policies().map_or(&none, |policies| policies);
        self.encodings = Arc::new(Encodings::of(policies));
        self.shared.is_stopped.store(self.file.policies().is_none(), Ordering::Relaxed);
        if let Some(listing) = self.listing.take() {
            listing.abort();
        }
        self.shared.schedule().forget();
        (self.listed_ms, self.list_at_ms, self.problem) = (None, 0, None);
        self.encoded = None;
    }

    /// Takes the ends of the work on files, and reports them for the history.
    fn take_ends(&mut self, system: &HdfsSystem) {
        let mut works = Vec::new();
        while let Some(ended) = self.running.try_join_next() {
            let (task, outcome) = ended.expect("no task panics or is cancelled");
            let has_yielded = self.shared.yielded().remove(&task.path);
            let now_ms = now_ms();
            // A file that was deleted meanwhile was not encoded.
            let has_file = |outcome: &&Outcome| outcome.result != Ok(End::SourceMissing);
            let deeds = outcome.as_ref().filter(has_file).map(|outcome| outcome.deeds);
            let ending = ending(outcome, has_yielded, now_ms);
            let mut schedule = self.shared.schedule();
            works
                .extend(deeds.and_then(|deeds| work(&task, deeds, &ending, schedule.failure_of(&task.path))));
            schedule.handle_end(&task.path, ending, now_ms);
        }
        if !works.is_empty() {
            system.state().tell(works.into_iter().map(StoreChange::FileWorked).collect());
        }
    }

    /// Takes the result of a listing that has ended.
    async fn take_listing(&mut self) {
        if !self.listing.as_ref().is_some_and(JoinHandle::is_finished) {
            return;
        }
        let ended = self.listing.take().expect("there is one").await;
        let found = ended.unwrap_or_else(|error| Err(error.to_string()));
        let now_ms = now_ms();
        let Found { tasks, blocks, encoded, is_full, is_doubtful } = match found {
            Ok(found) => found,
            Err(why) => {
                self.problem = Some(why);
                self.list_at_ms = now_ms + LIST_AGAIN_MS.min(self.interval_ms);
                return;
            }
        };
        let mut schedule = self.shared.schedule();
        if is_full {
            schedule.take_listing(None, tasks.into_iter().flat_map(|(_, tasks)| tasks).collect());
            drop(schedule);
            self.driver.note_blocks(blocks);
            self.encoded = Some(encoded);
            (self.listed_ms, self.list_at_ms, self.problem) = (Some(now_ms), now_ms + self.interval_ms, None);
        } else {
            tasks.into_iter().for_each(|(path, tasks)| schedule.take_listing(Some(&path), tasks));
            drop(schedule);
            if is_doubtful {
                self.list_after((self.interval_ms / EARLY).min(DOUBTFUL_MS));
            }
        }
    }

    /// Has the policies' folders listed this long after their last listing, if that is earlier than planned.
    fn list_after(&mut self, pause_ms: u64) {
        let soon_ms = self.listed_ms.map_or(0, |listed_ms| listed_ms + pause_ms);
        self.list_at_ms = self.list_at_ms.min(soon_ms);
    }

    /// Lists the policies' folders if that is due, or else the files that have changed.
    fn list_if_due(&mut self, system: &Arc<HdfsSystem>, policies: Arc<Policies>) {
        if self.listing.is_some() {
            return;
        }
        let is_short = self.shared.schedule().is_short();
        let changed = {
            let schedule = self.shared.schedule();
            system.state().encoding.take_changed(|path| schedule.urgency_of(path).is_some())
        };
        let roots = self.encodings.roots();
        let Changed { paths, everything } = changed;
        let is_above = |path: &String| roots.iter().any(|root| root != path && is_within(root, path));
        let (above, mut inside): (Vec<String>, Vec<String>) = paths.into_iter().partition(is_above);
        inside.retain(|path| roots.iter().any(|root| is_within(path, root)));
        if everything || is_short || !above.is_empty() {
            self.list_after(self.interval_ms / EARLY);
        }
        let is_full = now_ms() >= self.list_at_ms;
        let paths = if is_full { roots } else { inside };
        if paths.is_empty() && !is_full {
            return;
        }
        let covered = system.attachment.paths.clone();
        let find =
            find(self.namenode.clone(), Arc::clone(&self.encodings), policies, covered, paths, is_full);
        self.listing = Some(tokio::spawn(find));
    }

    /// Starts the work on as many files as possible.
    fn start(&mut self, hold: &Hold) {
        loop {
            let Some(task) = self.shared.schedule().next(now_ms(), hold) else { return };
            let (driver, errand) = (Arc::clone(&self.driver), errand(&task, self.shared.term));
            self.running.spawn(async move { (task, driver.drive(errand).await) });
        }
    }

    fn report(&self, system: &HdfsSystem, hold: &Hold) {
        let now_ms = now_ms();
        let backlog = self.shared.schedule().backlog(now_ms);
        let listed = self.listed_ms.map(|listed_ms| now_ms.saturating_sub(listed_ms));
        let remarks = match self.file.policies() {
            Some(_) => backlog.remarks(hold, listed),
            None => Vec::new(),
        };
        let listing = self.problem.iter().map(|why| {
            format!("the folders of policies cannot be listed, so files are not encoded; this will be tried again: {why}")
        });
        let troubles =
            self.file.problem().map(str::to_owned).into_iter().chain(listing).chain(backlog.troubles());
        let troubles = troubles.collect();
        let mut state = system.state();
        state.note_remarks(FINDER, remarks);
        state.note_troubles(FINDER, troubles);
        let Amount { files, bytes } = backlog.total();
        let (failed, encoded) = (backlog.failed.len() as u64, self.encoded);
        state.note_file_backlog(FileBacklog { files, bytes, failed, encoded });
    }
}

/// Lists these paths, and returns the files there that need work. `covered` are the folders whose files the coordinator
/// repairs.
async fn find(
    namenode: RaidNameNode,
    encodings: Arc<Encodings>,
    policies: Arc<Policies>,
    covered: Vec<String>,
    paths: Vec<String>,
    is_full: bool,
) -> Result<Found, String> {
    let missing = namenode.missing(&paths).await.map_err(|error| error.to_string())?;
    let (mut tasks, mut blocks, mut is_doubtful) = (Vec::new(), BTreeMap::<String, u64>::new(), false);
    let mut encoded = EncodedFiles::default();
    for path in paths {
        if missing.contains(&path) {
            tasks.push((path, Vec::new()));
            continue;
        }
        let listing = match namenode.listing_with(&path, &policies, &|_| {}).await {
            Ok(listing) => listing,
            Err(error) => {
                // It may have been deleted while other paths were listed.
                let is_gone = namenode.missing(std::slice::from_ref(&path)).await;
                if is_gone.is_ok_and(|missing| !missing.is_empty()) {
                    tasks.push((path, Vec::new()));
                    continue;
                }
                return Err(error.to_string());
            }
        };
        let (encodings, policies, covered) = (Arc::clone(&encodings), Arc::clone(&policies), covered.clone());
        let survey = move || {
            let survey = hdfs_raid::survey(&listing, &policies, now_ms());
            let is_covered = |path: &str| covered.iter().any(|folder| is_within(path, folder));
            let tasks = encodings.tasks(&survey, &listing, is_covered);
            let (tasks, is_less) = if is_full { (tasks, false) } else { not_renamed(tasks, &listing) };
            (tasks, is_less, DataNodes::of(&listing).blocks(), survey.saving())
        };
        let (found, is_less, on_nodes, saving) =
            spawn_blocking(survey).await.map_err(|error| error.to_string())?;
        tasks.push((path, found));
        is_doubtful |= is_less;
        encoded.files += saving.files;
        encoded.bytes += saving.bytes;
        encoded.saved_bytes += saving.before as i64 - saving.after as i64;
        for (address, count) in on_nodes {
            *blocks.entry(address).or_default() += count;
        }
    }
    Ok(Found { tasks, blocks, encoded, is_full, is_doubtful })
}

/// Returns the work on a file.
fn errand(task: &Task, term: u64) -> Errand {
    let Encoding { codec, policy, goal, tolerated } = task.encoding.as_ref().clone();
    let drive = Drive::new(codec.clone(), tolerated, goal, term);
    let (path, stray) = (task.path.clone(), task.stray.clone());
    Errand { file: RaidFile { path, codec, policy, stray }, drive }
}

/// Returns how the work on a file has ended; `None` stands for work that was interrupted.
fn ending(outcome: Option<Outcome>, has_yielded: bool, now_ms: u64) -> Ending {
    let later = |ms: u64, why: &str| Ending::Later { until_ms: now_ms + ms, why: why.to_owned() };
    let others = || later(ABANDONED_MS, "another program encodes them");
    let Some(Outcome { result, .. }) = outcome else {
        return if has_yielded { others() } else { Ending::Held };
    };
    match result {
        Ok(End::Encoded | End::Plain | End::SourceMissing) => Ending::Done,
        Ok(End::Unfit(Exclusion::TooNew { age, least })) => {
            later(least.saturating_sub(age).as_millis() as u64 + LOOK_MS, "they were modified recently")
        }
        Ok(End::Unfit(why)) => later(UNFIT_MS, &why.to_string()),
        Ok(End::Superseded) => others(),
        Ok(end) => Ending::Failed(end.to_string()),
        // While HDFS does not answer at all, files are held. Here, only the calls for this file have failed.
        Err(stop) => match &stop {
            Stop::Stalled(waiting) => Ending::Failed(format!("{stop}; {}", waiting.advice())),
            _ => Ending::Failed(stop.to_string()),
        },
    }
}

/// Returns the end of the work on a file for the history; `None` if nothing was done, or if the file failed before for the
/// same reason.
fn work(task: &Task, deeds: Deeds, ending: &Ending, failed_before: Option<&str>) -> Option<FileWork> {
    let failure = match ending {
        Ending::Done if deeds.has_changed => None,
        Ending::Failed(why) if failed_before != Some(why.as_str()) => Some(why.clone()),
        Ending::Done | Ending::Failed(_) | Ending::Held | Ending::Later { .. } => return None,
    };
    let kind = deeds.kind(failure.is_some());
    let policy = task.encoding.policy.as_ref();
    let by = policy.map_or_else(|| "the coordinator".to_owned(), |policy| format!("policy {}", policy.name));
    let Deeds { bytes, took_ms, .. } = deeds;
    Some(FileWork { file: task.path.clone(), kind, bytes, took_ms, by, failure })
}

/// Whether another program is making parity in a draft. `ours` is the term with which this program has begun, and `own`
/// that of the work on the file. It is higher than `ours` if the draft was taken over from a program that began later.
/// A former coordinator of the same cluster is no other program: it has stopped, or the next look at its term stops it.
fn is_of_others(draft: &Draft, ours: u64, own: Option<u64>, now_ms: u64) -> bool {
    let term = draft.name.term;
    if own == Some(term) || owner_of(term) == owner_of(ours) {
        return false;
    }
    let begun_ms = term >> TERM_BITS;
    let changed_ms = draft.files.iter().map(|file| file.file.modified_ms).max().unwrap_or(0);
    begun_ms != ours >> TERM_BITS && begun_ms.max(changed_ms).saturating_add(ABANDONED_MS) > now_ms
}

impl Shared {
    fn schedule(&self) -> MutexGuard<'_, Schedule> {
        self.schedule.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn yielded(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.yielded.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the time after which a look at this file may follow; `None` if its work stops. Files without enough
    /// redundancy do not wait for the rate, nor do those whose replication was lowered: HDFS may have left several blocks
    /// of a stripe on one DataNode, which have to be moved apart.
    fn ready_ms(&self, path: &str, is_lowered: bool) -> Option<u64> {
        if self.is_stopped.load(Ordering::Relaxed) {
            return None;
        }
        let hold = self.storage.upgrade()?.hold();
        let schedule = self.schedule();
        let urgency = schedule.urgency_of(path)?;
        let urgency = if is_lowered { Urgency::Unsafe } else { urgency };
        if hold.why(urgency).is_some() {
            return None;
        }
        Some(if urgency == Urgency::Unsafe { 0 } else { schedule.ready_ms() })
    }
}

impl Pace for Shared {
    fn ready<'a>(&'a self, path: &'a str, is_lowered: bool) -> Pending<'a, bool> {
        Box::pin(async move {
            loop {
                let Some(ready_ms) = self.ready_ms(path, is_lowered) else { return false };
                let wait_ms = ready_ms.saturating_sub(now_ms());
                if wait_ms == 0 {
                    return true;
                }
                sleep(Duration::from_millis(wait_ms.min(LOOK_MS))).await;
            }
        })
    }

    fn accepts(&self, path: &str, term: Option<u64>, facts: &Facts) -> bool {
        let is_free = !facts.drafts.iter().any(|draft| is_of_others(draft, self.term, term, now_ms()));
        if !is_free {
            self.yielded().insert(path.to_owned());
        }
        is_free
    }

    fn note_moved(&self, bytes: u64) {
        self.schedule().note_moved(bytes, now_ms());
    }

    fn is_urgent(&self, path: &str, is_lowered: bool) -> bool {
        is_lowered || self.schedule().urgency_of(path) == Some(Urgency::Unsafe)
    }

    fn note_wait(&self, path: &str, why: Option<&Pause>) {
        self.schedule().note_wait(path, why, now_ms());
    }
}

#[cfg(test)]
mod tests;
