//! Tests of the schedule, on a simulated clock.

use std::sync::LazyLock;

use proptest::prelude::*;

use super::*;

const MINUTE_MS: u64 = 60_000;
/// No files were listed while all were.
static NONE: BTreeSet<String> = BTreeSet::new();
const URGENCIES: [Urgency; 6] = [
    Urgency::Unsafe,
    Urgency::Changed,
    Urgency::Unfinished,
    Urgency::Misplaced,
    Urgency::New,
    Urgency::OldNote,
];

static ENCODING: LazyLock<Arc<Encoding>> = LazyLock::new(|| {
    let text = "[[policy]]\nname = \"p\"\npaths = [\"/\"]\ncodec = \"xor\"\n";
    let policies = hdfs_raid::Policies::parse(text).expect("policies");
    let policy = policies.policies()[0].clone();
    let (codec, goal) = (policies.codec_of(&policy).clone(), policy.goal());
    Arc::new(Encoding { codec, policy: Some(policy), goal, tolerated: 1 })
});

fn task(path: &str, urgency: Urgency, modified_ms: u64) -> Task {
    Task {
        path: path.to_owned(),
        bytes: 100,
        modified_ms,
        urgency,
        encoding: Arc::clone(&ENCODING),
        stray: None,
        has_parity: true,
    }
}

fn schedule(files_at_once: usize, rate: Option<u64>) -> Schedule {
    Schedule::new(Limits { files_at_once, rate })
}

fn next(schedule: &mut Schedule, now_ms: u64) -> Option<String> {
    schedule.next(now_ms, &Hold::None).map(|task| task.path)
}

#[test]
fn unsafe_files_come_first_and_of_the_others_the_oldest() {
    let mut schedule = schedule(9, None);
    let tasks = vec![
        task("/noted", Urgency::OldNote, 1),
        task("/new", Urgency::New, 5),
        task("/old", Urgency::New, 2),
        task("/moved", Urgency::Misplaced, 9),
        task("/again", Urgency::Changed, 9),
        task("/half", Urgency::Unfinished, 9),
        task("/single", Urgency::Unsafe, 9),
    ];
    schedule.take_full_listing(&NONE, tasks);
    let order: Vec<String> = std::iter::from_fn(|| next(&mut schedule, 10)).collect();
    assert_eq!(order, ["/single", "/again", "/half", "/moved", "/old", "/new", "/noted"]);
}

#[test]
fn while_repairs_run_only_unsafe_files_start() {
    let mut schedule = schedule(9, None);
    schedule
        .take_full_listing(&NONE, vec![task("/new", Urgency::New, 1), task("/single", Urgency::Unsafe, 2)]);
    let hold = |why: &str| why.to_owned();
    assert_eq!(schedule.next(9, &Hold::All(hold("safe mode"))), None);
    let background = Hold::Background(hold("repairs"));
    assert_eq!(schedule.next(9, &background).map(|task| task.path), Some("/single".to_owned()));
    assert_eq!(schedule.next(9, &background), None);
    schedule.handle_end("/single", Ending::Held, 9);
    assert_eq!(next(&mut schedule, 9), Some("/single".to_owned()), "what was interrupted is no failure");
}

#[test]
fn pauses_double_with_each_failure_until_the_file_changes() {
    let mut schedule = schedule(1, None);
    let mut now_ms = 1000;
    for minutes in [5, 10, 20] {
        schedule.take_full_listing(&NONE, vec![task("/a", Urgency::New, 1)]);
        assert_eq!(next(&mut schedule, now_ms), Some("/a".to_owned()));
        schedule.handle_end("/a", Ending::Failed("full".to_owned()), now_ms);
        schedule.take_full_listing(&NONE, vec![task("/a", Urgency::New, 1)]);
        assert_eq!(next(&mut schedule, now_ms + minutes * MINUTE_MS - 1), None);
        now_ms += minutes * MINUTE_MS;
    }
    let for_ms = (5 + 10 + 20) * MINUTE_MS;
    let failure = Failure { path: "/a".to_owned(), urgency: Urgency::New, why: "full".to_owned(), for_ms };
    assert_eq!(schedule.backlog(now_ms).failed, [failure]);
    schedule.take_full_listing(&NONE, vec![task("/a", Urgency::Changed, 2)]);
    assert_eq!(
        next(&mut schedule, now_ms - MINUTE_MS),
        Some("/a".to_owned()),
        "a changed file is tried at once"
    );
    assert_eq!(retry_ms(Urgency::New, 60), RETRY_LAST_MS);
    assert_eq!(retry_ms(Urgency::Unsafe, 60), RETRY_UNSAFE_MS);
}

/// Ends the first turns of these files, whose replication is raised then.
fn raise(schedule: &mut Schedule, paths: &[&str], now_ms: u64) {
    for path in paths {
        assert!(schedule.note_raised(path) && !schedule.note_raised(path), "{path}");
        schedule.handle_end(path, Ending::Held, now_ms);
    }
}

#[test]
fn unsafe_files_do_not_wait_for_files_in_progress() {
    let mut schedule = schedule(1, None);
    schedule.take_full_listing(&NONE, vec![task("/new", Urgency::New, 1), task("/old", Urgency::New, 2)]);
    assert_eq!(next(&mut schedule, 3), Some("/new".to_owned()));
    let unsafe_files = ["/a", "/b"].map(|path| task(path, Urgency::Unsafe, 3));
    schedule.take_full_listing(&NONE, [&unsafe_files[..], &[task("/old", Urgency::New, 2)]].concat());
    let first = [next(&mut schedule, 3), next(&mut schedule, 3), next(&mut schedule, 3)];
    assert_eq!(first, [Some("/a".to_owned()), Some("/b".to_owned()), None], "both are raised at once");
    raise(&mut schedule, &["/a", "/b"], 3);
    assert_eq!(next(&mut schedule, 3), Some("/a".to_owned()), "besides /new");
    assert_eq!(next(&mut schedule, 3), None);
    schedule.handle_end("/a", Ending::Done, 4);
    assert_eq!([next(&mut schedule, 4), next(&mut schedule, 4)], [Some("/b".to_owned()), None]);
}

/// HDFS creates no replicas of the files in progress, and the work on them fails again and again.
#[test]
fn changed_files_are_raised_whatever_other_files_wait_for() {
    let mut schedule = schedule(2, None);
    let paths: Vec<String> = (0..5).map(|at| format!("/{at}")).collect();
    let tasks =
        |paths: &[String]| paths.iter().map(|path| task(path, Urgency::Unsafe, 1)).collect::<Vec<_>>();
    schedule.take_full_listing(&NONE, tasks(&paths[..4]));
    let started: Vec<String> = std::iter::from_fn(|| next(&mut schedule, 1)).collect();
    assert_eq!(started, paths[..4]);
    raise(&mut schedule, &["/0", "/1", "/2", "/3"], 1);
    assert_eq!([next(&mut schedule, 1), next(&mut schedule, 1)].map(Option::unwrap), ["/0", "/1"]);
    assert_eq!(next(&mut schedule, 1), None, "both wait for replicas");
    // A client changes a fifth file.
    schedule.take_listing("/4", vec![task("/4", Urgency::Unsafe, 2)]);
    assert_eq!(next(&mut schedule, 2), Some("/4".to_owned()));
    raise(&mut schedule, &["/4"], 2);
    // Those that failed come after the others, once their pauses are over.
    let failed = || Ending::Failed("no replicas".to_owned());
    ["/0", "/1"].into_iter().for_each(|path| schedule.handle_end(path, failed(), 3));
    let later_ms = 3 + RETRY_FIRST_MS;
    assert_eq!(
        [next(&mut schedule, later_ms), next(&mut schedule, later_ms)].map(Option::unwrap),
        ["/2", "/3"]
    );
    schedule.handle_end("/2", failed(), later_ms);
    assert_eq!(next(&mut schedule, later_ms), Some("/4".to_owned()));
    schedule.handle_end("/3", failed(), later_ms);
    assert_eq!(next(&mut schedule, later_ms), Some("/0".to_owned()));
    // A new change is raised first again.
    schedule.take_listing("/1", vec![task("/1", Urgency::Unsafe, later_ms)]);
    assert_eq!(next(&mut schedule, later_ms), Some("/1".to_owned()));
    assert!(schedule.is_raising("/1") && !schedule.is_raising("/0"));
}

#[test]
fn many_first_turns_keep_no_other_files_waiting() {
    let mut schedule = schedule(1, None);
    let many = (0..=RAISED_AT_ONCE).map(|at| task(&format!("/{at}"), Urgency::Unsafe, 1));
    let single = Task { has_parity: false, ..task("/single", Urgency::Unsafe, 2) };
    schedule.take_full_listing(&NONE, many.chain([single, task("/new", Urgency::New, 3)]).collect());
    let started: Vec<String> = std::iter::from_fn(|| next(&mut schedule, 3)).collect();
    assert_eq!((started.len(), started.last().map(String::as_str)), (RAISED_AT_ONCE + 1, Some("/single")));
    assert!(!schedule.is_raising("/single"), "a file that never had parity needs no replicas first");
    assert_eq!(schedule.next(3, &Hold::All(String::new())), None);
}

#[test]
fn a_failure_is_told_until_an_attempt_succeeds() {
    let mut schedule = schedule(1, None);
    let list =
        |schedule: &mut Schedule| schedule.take_full_listing(&NONE, vec![task("/a", Urgency::Unsafe, 1)]);
    let failed = |for_ms| {
        let why = "full".to_owned();
        [Failure { path: "/a".to_owned(), urgency: Urgency::Unsafe, why, for_ms }]
    };
    list(&mut schedule);
    assert_eq!(next(&mut schedule, 1), Some("/a".to_owned()));
    schedule.handle_end("/a", Ending::Failed("full".to_owned()), 1);
    assert_eq!(schedule.backlog(1).failed, failed(0));
    let later_ms = 1 + RETRY_FIRST_MS;
    assert_eq!(schedule.next(later_ms, &Hold::All("safe mode".to_owned())), None);
    assert_eq!(schedule.backlog(later_ms).failed, failed(RETRY_FIRST_MS), "it waits again");
    list(&mut schedule);
    assert_eq!(next(&mut schedule, later_ms), Some("/a".to_owned()));
    assert_eq!(schedule.backlog(later_ms).failed, failed(RETRY_FIRST_MS), "it is in progress again");
    assert_eq!(schedule.failure_of("/a"), Some("full"));
    schedule.handle_end("/a", Ending::Done, later_ms);
    assert!(schedule.backlog(later_ms).failed.is_empty());
}

#[test]
fn the_time_of_a_wait_counts_from_its_beginning() {
    let mut schedule = schedule(1, None);
    schedule.take_full_listing(&NONE, vec![task("/a", Urgency::Changed, 1)]);
    assert_eq!(next(&mut schedule, 1), Some("/a".to_owned()));
    let replicas = Pause::Waiting(hdfs_raid::Waiting::Replicas);
    let waits = |schedule: &Schedule, now_ms| {
        let waits = schedule.backlog(now_ms).waits.into_iter();
        waits.map(|wait| (wait.path, wait.why, wait.for_ms)).collect::<Vec<_>>()
    };
    schedule.note_wait("/a", Some(&replicas), 1000);
    schedule.note_wait("/a", Some(&replicas), 4000);
    assert_eq!(waits(&schedule, 6000), [("/a".to_owned(), replicas.clone(), 5000)]);
    schedule.note_wait("/a", None, 7000);
    assert!(waits(&schedule, 8000).is_empty());
    schedule.note_wait("/a", Some(&replicas), 9000);
    // All the time that it waited in vain counts, not only that since it was given up.
    schedule.handle_end("/a", Ending::Failed("no replicas".to_owned()), 609_000);
    assert!(waits(&schedule, 609_000).is_empty());
    assert_eq!(schedule.backlog(609_000).failed[0].for_ms, 600_000);
}

#[test]
fn a_file_that_changes_during_the_work_is_worked_on_again() {
    let mut schedule = schedule(2, None);
    schedule.take_full_listing(&NONE, vec![task("/a", Urgency::New, 1), task("/b", Urgency::New, 2)]);
    assert_eq!([next(&mut schedule, 3), next(&mut schedule, 3)].map(Option::unwrap), ["/a", "/b"]);
    schedule.take_listing("/a", vec![task("/a", Urgency::Changed, 3)]);
    schedule.take_listing("/b", vec![task("/b", Urgency::New, 2)]);
    assert_eq!(next(&mut schedule, 3), None, "both are in progress");
    schedule.handle_end("/a", Ending::Done, 4);
    schedule.handle_end("/b", Ending::Done, 4);
    assert_eq!(next(&mut schedule, 4), Some("/a".to_owned()));
    assert_eq!(next(&mut schedule, 4), None, "the listing of /b was older than its end");
}

#[test]
fn policies_that_changed_apply_to_files_in_progress_when_their_work_ends() {
    let mut schedule = schedule(2, None);
    schedule.take_full_listing(&NONE, vec![task("/a", Urgency::New, 1), task("/b", Urgency::New, 2)]);
    assert_eq!([next(&mut schedule, 3), next(&mut schedule, 3)].map(Option::unwrap), ["/a", "/b"]);
    schedule.forget();
    schedule.take_full_listing(&NONE, vec![task("/b", Urgency::New, 2)]);
    schedule.handle_end("/a", Ending::Held, 4);
    schedule.handle_end("/b", Ending::Held, 4);
    assert_eq!(next(&mut schedule, 4), Some("/b".to_owned()));
    assert_eq!(next(&mut schedule, 4), None, "no policy covers /a any more");
}

#[test]
fn a_listing_replaces_only_what_it_covers() {
    let mut schedule = schedule(9, None);
    schedule.take_full_listing(&NONE, vec![task("/a/f", Urgency::New, 1), task("/b/f", Urgency::New, 2)]);
    assert_eq!(next(&mut schedule, 5), Some("/a/f".to_owned()));
    let later = Ending::Later { until_ms: 1 << 40, why: "too new".to_owned() };
    schedule.handle_end("/a/f", later, 5);
    assert_eq!(schedule.backlog(5).later, BTreeMap::from([("too new".to_owned(), 1)]));
    schedule.take_listing("/a", Vec::new());
    assert_eq!(schedule.backlog(5).later, BTreeMap::new(), "the file is gone, or is as it should be");
    assert_eq!(schedule.backlog(5).total(), Amount { files: 1, bytes: 100 });
    assert_eq!(next(&mut schedule, 5), Some("/b/f".to_owned()));
}

/// All files were listed while `/a/f` and the files of `/b` changed.
#[test]
fn a_full_listing_does_not_replace_newer_ones() {
    let mut schedule = schedule(1, None);
    let old = ["/a/f", "/a/ff", "/b/f"].map(|path| task(path, Urgency::New, 1));
    schedule.take_full_listing(&NONE, old.to_vec());
    schedule.take_listing("/a/f", vec![task("/a/f", Urgency::Unsafe, 2)]);
    schedule.take_listing("/b", Vec::new());
    let newer = BTreeSet::from(["/a/f", "/b"].map(str::to_owned));
    schedule.take_full_listing(&newer, old[1..].to_vec());
    assert_eq!(next(&mut schedule, 3), Some("/a/f".to_owned()));
    // It changes once more while it is worked on.
    schedule.take_listing("/a/f", vec![task("/a/f", Urgency::Changed, 4)]);
    schedule.take_full_listing(&newer, Vec::new());
    schedule.handle_end("/a/f", Ending::Done, 5);
    assert_eq!([next(&mut schedule, 5), next(&mut schedule, 5)], [Some("/a/f".to_owned()), None]);
}

#[test]
fn files_beyond_the_limit_are_counted_and_listed_again() {
    let mut schedule = schedule(1, None);
    let tasks = (0..MOST_WAITING as u64 + 3).map(|at| task(&format!("/{at}"), Urgency::New, at));
    schedule.take_full_listing(&NONE, tasks.collect());
    assert_eq!(schedule.backlog(0).left_out, Amount { files: 3, bytes: 300 });
    assert!(!schedule.is_short());
    schedule.take_listing("/", Vec::new());
    assert!(schedule.is_short());
    schedule.take_full_listing(&NONE, Vec::new());
    assert!(!schedule.is_short());
}

#[test]
fn the_rate_is_that_of_finished_files() {
    let mut schedule = schedule(1, None);
    assert_eq!(schedule.backlog(0).rate, None);
    schedule.take_full_listing(&NONE, vec![Task { bytes: 6_000_000, ..task("/a", Urgency::New, 1) }]);
    assert_eq!(next(&mut schedule, 10), Some("/a".to_owned()));
    schedule.handle_end("/a", Ending::Done, MINUTE_MS);
    assert_eq!(schedule.backlog(3 * MINUTE_MS).rate, Some(50_000));
    assert_eq!(schedule.backlog(3 * MEASURED_MS).rate, None);
}

/// An event of a step of the simulation.
#[derive(Clone, Debug)]
enum Step {
    /// A listing of all files, each with an urgency and a modification time.
    List(Vec<(u8, usize, u64)>),
    Start(u8),
    End(usize, u8),
    Move(u64),
    Wait(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let listed = (0..12u8, 0..URGENCIES.len(), 0..4u64);
    let step = prop_oneof![
        2 => prop::collection::vec(listed, 0..12).prop_map(Step::List),
        6 => (0..3u8).prop_map(Step::Start),
        5 => (any::<usize>(), 0..5u8).prop_map(|(at, how)| Step::End(at, how)),
        2 => (1..5000u64).prop_map(Step::Move),
        3 => (1..20 * MINUTE_MS).prop_map(Step::Wait),
    ];
    prop::collection::vec(step, 1..120)
}

/// A task, and its history.
#[derive(Clone)]
struct Tried {
    task: Task,
    failures: u32,
    is_raised: bool,
}

impl Tried {
    fn new(task: &Task) -> Self {
        Self { task: task.clone(), failures: 0, is_raised: false }
    }

    /// Returns the file with a newer task; without its history if it was changed.
    fn listed(&self, task: &Task) -> Self {
        match version(&self.task) == version(task) {
            true => Self { task: task.clone(), ..self.clone() },
            false => Self::new(task),
        }
    }

    fn is_unsafe(&self) -> bool {
        self.task.urgency == Urgency::Unsafe
    }

    fn is_raising(&self) -> bool {
        self.is_unsafe() && !self.is_raised
    }
}

/// A slow model of the schedule: the files that wait, those that are delayed, and those in progress.
#[derive(Default)]
struct Model {
    waiting: BTreeMap<String, Tried>,
    delayed: BTreeMap<String, (u64, Tried)>,
    running: BTreeMap<String, Tried>,
    relisted: BTreeMap<String, Task>,
}

impl Model {
    fn list(&mut self, tasks: &[Task]) {
        let (delayed, waiting) = (std::mem::take(&mut self.delayed), std::mem::take(&mut self.waiting));
        self.relisted.clear();
        for task in tasks {
            let path = task.path.clone();
            match delayed.get(&path) {
                _ if self.running.contains_key(&path) => drop(self.relisted.insert(path, task.clone())),
                Some((until_ms, old)) if version(&old.task) == version(task) => {
                    self.delayed.insert(path, (*until_ms, old.listed(task)));
                }
                _ => {
                    let old = waiting.get(&path);
                    self.waiting.insert(path, old.map_or_else(|| Tried::new(task), |old| old.listed(task)));
                }
            }
        }
    }

    fn wake(&mut self, now_ms: u64) {
        let is_due = |(until_ms, _): &(u64, Tried)| *until_ms <= now_ms;
        let due: Vec<String> =
            self.delayed.iter().filter(|(_, it)| is_due(it)).map(|(path, _)| path.clone()).collect();
        for path in due {
            let (_, tried) = self.delayed.remove(&path).expect("it is delayed");
            self.waiting.insert(path, tried);
        }
    }

    /// Returns the most urgent file that may start.
    fn first(&self, hold: &Hold) -> Option<&Tried> {
        let may_start = |tried: &&Tried| hold.why(tried.task.urgency).is_none();
        let rank = |tried: &&Tried| {
            let Task { urgency, modified_ms, path, .. } = &tried.task;
            (*urgency, !tried.is_raising(), tried.failures, *modified_ms, path.clone())
        };
        self.waiting.values().filter(may_start).min_by_key(rank)
    }

    /// Whether too many files are in progress for this one to start. Unsafe files wait only for each other, and not in their
    /// first turns.
    fn is_busy(&self, tried: &Tried, at_once: usize) -> bool {
        let others = self.running.values().filter(|other| !other.is_raising());
        !tried.is_raising()
            && others.filter(|other| !tried.is_unsafe() || other.is_unsafe()).count() >= at_once
    }
}

fn ending(how: u8, now_ms: u64) -> Ending {
    match how {
        0 => Ending::Done,
        1 | 4 => Ending::Held,
        2 => Ending::Later { until_ms: now_ms + 7 * MINUTE_MS, why: "new".to_owned() },
        _ => Ending::Failed("full".to_owned()),
    }
}

proptest! {
    /// The order, the number of files in progress, the delays and the rate, whatever happens.
    #[test]
    fn the_schedule_is_that_of_the_model(steps in steps(), at_once in 1..4usize) {
        const RATE: u64 = 1000;
        let (mut schedule, mut model) = (schedule(at_once, Some(RATE)), Model::default());
        let (mut now_ms, mut moved, mut first_ms) = (MINUTE_MS, 0, None);
        for step in steps {
            match step {
                Step::List(files) => {
                    let by_path: BTreeMap<u8, Task> = files
                        .into_iter()
                        .map(|(path, urgency, at)| (path, task(&format!("/{path}"), URGENCIES[urgency], at)))
                        .collect();
                    let tasks: Vec<Task> = by_path.into_values().collect();
                    model.list(&tasks);
                    schedule.take_full_listing(&NONE, tasks);
                }
                Step::Start(hold) => {
                    let why = String::new;
                    let hold = [Hold::None, Hold::Background(why()), Hold::All(why())][usize::from(hold)].clone();
                    model.wake(now_ms);
                    let expected = model.first(&hold).filter(|tried| !model.is_busy(tried, at_once)).cloned();
                    let task = expected.as_ref().map(|tried| tried.task.clone());
                    prop_assert_eq!(schedule.next(now_ms, &hold), task);
                    if let Some(tried) = expected {
                        model.waiting.remove(&tried.task.path);
                        model.running.insert(tried.task.path.clone(), tried);
                    }
                }
                Step::End(at, how) => {
                    let Some(path) = model.running.keys().nth(at % model.running.len().max(1)).cloned() else { continue };
                    let (mut tried, ending) = (model.running.remove(&path).expect("running"), ending(how, now_ms));
                    if how == 4 {
                        prop_assert_eq!(schedule.note_raised(&path), tried.is_raising());
                        tried.is_raised |= tried.is_unsafe();
                    }
                    let relisted = model.relisted.remove(&path);
                    let changed = relisted.filter(|new| version(new) != version(&tried.task));
                    schedule.handle_end(&path, ending.clone(), now_ms);
                    let until_ms = schedule.delayed.get(&path).map(|delayed| delayed.until_ms);
                    match (changed, ending) {
                        (Some(new), _) => drop(model.waiting.insert(path, Tried::new(&new))),
                        (None, Ending::Done) => prop_assert_eq!(until_ms, None),
                        (None, Ending::Held) => drop(model.waiting.insert(path, tried)),
                        (None, ending) => {
                            let until_ms = until_ms.expect("it is delayed");
                            prop_assert!(until_ms >= now_ms + RETRY_FIRST_MS);
                            tried.failures += u32::from(matches!(ending, Ending::Failed(_)));
                            model.delayed.insert(path, (until_ms, tried));
                        }
                    }
                }
                Step::Move(bytes) if schedule.ready_ms() <= now_ms => {
                    let since_ms = now_ms - *first_ms.get_or_insert(now_ms);
                    prop_assert!(moved * 1000 <= RATE * since_ms + 1000 * RATE, "{moved} bytes in {since_ms} ms");
                    schedule.note_moved(bytes, now_ms);
                    moved += bytes;
                }
                Step::Move(_) => {}
                Step::Wait(ms) => now_ms += ms,
            }
            let total = schedule.backlog(now_ms).total().files as usize;
            prop_assert_eq!(total, model.waiting.len() + model.running.len());
        }
    }
}
