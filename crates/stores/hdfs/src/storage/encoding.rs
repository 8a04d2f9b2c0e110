//! Evaluates policies steadily: lists files, and has them encoded one after the other, as long as this coordinator is in
//! charge and nothing more important is going on.
//!
//! The namespace of HDFS is the only record (`docs/decisions/0058`), so this task may end at any time. It uses a JVM of its
//! own: reading and writing of data must not delay queries for lost blocks.

mod listings;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use hdfs_raid::{DataNodes, Draft, Drive, End, Exclusion, Facts, Pause, Policies, Stop, is_within};
use store_api::{EncodedFiles, FileBacklog, FileWork, StoreChange};
use tokio::task::{JoinHandle, JoinSet, spawn_blocking};
use tokio::time::sleep;

use self::listings::Listings;
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
/// The clocks of machines differ by less than this, as for Kerberos. A later time in the name of a draft is none.
const AHEAD_MS: u64 = 5 * 60_000;
/// The wait before another look at a file that should not be encoded now.
const UNFIT_MS: u64 = 6 * 3_600_000;
/// The wait before another attempt with a file whose replicas HDFS keeps. It does so for some hours after a failover.
const KEPT_MS: u64 = 3_600_000;
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
    /// The time without changes after which the replicas of a file may be moved.
    pub settled_after: Duration,
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
    settled_after: Duration,
    file: PolicyFile,
    encodings: Arc<Encodings>,
    listings: Listings,
    /// The listing of the policies' folders that is in progress.
    folders: Option<Finding>,
    /// The listing of changed files that is in progress.
    changed: Option<Finding>,
    running: JoinSet<(Task, Option<Outcome>)>,
    /// The encoded files of the last listing of the folders.
    encoded: Option<EncodedFiles>,
}

/// A listing in progress.
type Finding = JoinHandle<Result<Found, String>>;

/// The result of a listing.
struct Found {
    /// The files that need work, by the paths that were listed.
    tasks: Vec<(String, Vec<Task>)>,
    /// The number of blocks on each DataNode.
    blocks: BTreeMap<String, u64>,
    /// The files with valid parity.
    encoded: EncodedFiles,
    /// Whether a listing of all folders has to decide about files.
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
            settled_after: settings.settled_after,
            file,
            encodings: Arc::new(Encodings::of(&Policies::none())),
            listings: Listings::new(settings.interval.as_millis() as u64),
            folders: None,
            changed: None,
            running: JoinSet::new(),
            encoded: None,
        }
    }

    async fn step(&mut self, system: &Arc<HdfsSystem>) {
        self.read_policies();
        self.take_ends(system);
        let hold = system.hold();
        self.take_listings().await;
        if let (Some(policies), false) = (self.file.policies().cloned(), matches!(hold, Hold::All(_))) {
            self.list(system, &policies);
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
        [&mut self.folders, &mut self.changed]
            .into_iter()
            .filter_map(Option::take)
            .for_each(|finding| finding.abort());
        self.shared.schedule().forget();
        self.listings.forget();
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

    /// Takes the results of listings that have ended.
    async fn take_listings(&mut self) {
        if let Some(found) = ended(&mut self.changed).await {
            self.take_changed(found);
        }
        if let Some(found) = ended(&mut self.folders).await {
            self.take_folders(found);
        }
    }

    /// Takes the result of a listing of the policies' folders.
    fn take_folders(&mut self, found: Result<Found, String>) {
        let Found { tasks, blocks, encoded, .. } = match found {
            Ok(found) => found,
            Err(why) => return self.listings.fail_folders(why, now_ms()),
        };
        let newer = self.listings.end_folders(now_ms());
        let tasks = tasks.into_iter().flat_map(|(_, tasks)| tasks).collect();
        self.shared.schedule().take_full_listing(&newer, tasks);
        self.driver.note_blocks(blocks);
        self.encoded = Some(encoded);
    }

    /// Takes the result of a listing of changed files.
    fn take_changed(&mut self, found: Result<Found, String>) {
        let Found { tasks, is_doubtful, .. } = match found {
            Ok(found) => found,
            Err(why) => return self.listings.fail_changed(why, now_ms()),
        };
        self.listings.end_changed();
        let mut schedule = self.shared.schedule();
        tasks.into_iter().for_each(|(path, tasks)| schedule.take_listing(&path, tasks));
        if is_doubtful {
            self.listings.note_doubtful();
        }
    }

    /// Lists the policies' folders if that is due, and the files that have changed.
    fn list(&mut self, system: &Arc<HdfsSystem>, policies: &Arc<Policies>) {
        let now_ms = now_ms();
        if !self.listings.is_listing_folders() && self.shared.schedule().is_short() {
            self.listings.note_left_out();
        }
        let may_list = self.listings.may_list_changed(now_ms);
        let changed = if may_list { self.changed_files(system) } else { Vec::new() };
        if self.listings.are_folders_due(now_ms) {
            self.listings.begin_folders();
            self.folders = Some(self.find(system, policies, self.encodings.roots(), true));
        }
        if !changed.is_empty() {
            self.listings.begin_changed(&changed);
            self.changed = Some(self.find(system, policies, changed, false));
        }
    }

    /// Returns the changed files and folders within those of the policies. Other changes cause a listing of all these folders.
    fn changed_files(&mut self, system: &HdfsSystem) -> Vec<String> {
        let changed = {
            let schedule = self.shared.schedule();
            system.state().encoding.take_changed(|path| schedule.urgency_of(path).is_some())
        };
        let roots = self.encodings.roots();
        let Changed { paths, everything } = changed;
        let is_above = |path: &String| roots.iter().any(|root| root != path && is_within(root, path));
        let (above, mut inside): (Vec<String>, Vec<String>) = paths.into_iter().partition(is_above);
        inside.retain(|path| roots.iter().any(|root| is_within(path, root)));
        if everything || !above.is_empty() {
            self.listings.note_left_out();
        }
        inside
    }

    /// Begins to list these paths.
    fn find(
        &self,
        system: &HdfsSystem,
        policies: &Arc<Policies>,
        paths: Vec<String>,
        is_full: bool,
    ) -> Finding {
        let (encodings, policies) = (Arc::clone(&self.encodings), Arc::clone(policies));
        let covered = system.attachment.paths.clone();
        tokio::spawn(find(self.namenode.clone(), encodings, policies, covered, paths, is_full))
    }

    /// Starts the work on as many files as possible.
    fn start(&mut self, hold: &Hold) {
        loop {
            let Some(task) = self.shared.schedule().next(now_ms(), hold) else { return };
            let errand = errand(&task, self.shared.term, self.settled_after);
            let driver = Arc::clone(&self.driver);
            self.running.spawn(async move { (task, driver.drive(errand).await) });
        }
    }

    fn report(&self, system: &HdfsSystem, hold: &Hold) {
        let now_ms = now_ms();
        let backlog = self.shared.schedule().backlog(now_ms);
        let listed = self.listings.listed_ms().map(|listed_ms| now_ms.saturating_sub(listed_ms));
        let remarks = match self.file.policies() {
            Some(_) => backlog.remarks(hold, listed),
            None => Vec::new(),
        };
        let problems = self.file.problem().map(str::to_owned).into_iter().chain(self.listings.problem());
        let troubles = problems.chain(backlog.troubles()).collect();
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
    Ok(Found { tasks, blocks, encoded, is_doubtful })
}

/// Returns the result of a listing that has ended.
async fn ended(finding: &mut Option<Finding>) -> Option<Result<Found, String>> {
    if !finding.as_ref().is_some_and(JoinHandle::is_finished) {
        return None;
    }
    let ended = finding.take()?.await;
    Some(ended.unwrap_or_else(|error| Err(error.to_string())))
}

/// Returns the work on a file.
fn errand(task: &Task, term: u64, settled_after: Duration) -> Errand {
    let Encoding { codec, policy, goal, tolerated } = task.encoding.as_ref().clone();
    let drive = Drive::new(codec.clone(), tolerated, goal, term).with_settled(settled_after);
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
            Stop::Kept => later(KEPT_MS, &stop.to_string()),
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
    let changes_ms = draft.files.iter().map(|file| file.file.modified_ms).chain([begun_ms]);
    let last_ms = changes_ms.filter(|&ms| ms <= now_ms + AHEAD_MS).max().unwrap_or(0);
    begun_ms != ours >> TERM_BITS && last_ms + ABANDONED_MS > now_ms
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
        let is_of_others = |draft: &Draft| is_of_others(draft, self.term, term, now_ms());
        !self.schedule().is_raising(path) && !facts.drafts.iter().any(is_of_others)
    }

    fn note_yielded(&self, path: &str) {
        // In its first turn, the work gives way to the work on other files, and not to another program.
        if !self.schedule().note_raised(path) {
            self.yielded().insert(path.to_owned());
        }
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
