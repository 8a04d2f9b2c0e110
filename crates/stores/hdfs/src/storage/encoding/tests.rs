//! Tests of the ends of work on files: for the schedule, for the history, and for drafts of others.

use hdfs_raid::{DraftName, File, Goal, MarkedFile, Marks, Owner, Refusal, Storing, Trouble, Waiting};
use store_api::FileWorkKind;

use super::*;

const NOW_MS: u64 = 1 << 41;

fn outcome(result: Result<End, Stop>) -> Option<Outcome> {
    Some(Outcome { path: "/a".to_owned(), result, deeds: Deeds::default() })
}

/// Returns the state of a coordinator that works on one file at a time.
fn one_at_a_time() -> Shared {
    Shared {
        storage: Weak::new(),
        schedule: Mutex::new(Schedule::new(Limits { files_at_once: 1, rate: None })),
        is_stopped: AtomicBool::new(false),
        yielded: Mutex::default(),
        term: term_of(77),
    }
}

#[test]
fn ends_that_leave_a_file_as_it_is_are_no_failures() {
    let end = |end| ending(outcome(Ok(end)), false, NOW_MS);
    assert_eq!([end(End::Encoded), end(End::SourceMissing)], [Ending::Done, Ending::Done]);
    let hours = |hours: u64| Duration::from_secs(hours * 3600);
    let young = end(End::Unfit(Exclusion::TooNew { age: hours(1), least: hours(24) }));
    let until_ms = NOW_MS + 23 * 3_600_000 + LOOK_MS;
    assert_eq!(young, Ending::Later { until_ms, why: "they were modified recently".to_owned() });
    assert!(matches!(end(End::Unfit(Exclusion::Undone)), Ending::Later { .. }));
    assert!(matches!(end(End::Occupied { inode: 7 }), Ending::Failed(_)));
}

#[test]
fn interrupted_work_continues_and_work_of_others_is_left_alone() {
    assert_eq!(ending(None, false, NOW_MS), Ending::Held);
    let others =
        Ending::Later { until_ms: NOW_MS + ABANDONED_MS, why: "another program encodes them".to_owned() };
    assert_eq!(ending(None, true, NOW_MS), others);
    assert_eq!(ending(outcome(Ok(End::Superseded)), false, NOW_MS), others);
    let stop = |stop| ending(outcome(Err(stop)), false, NOW_MS);
    let unanswered = stop(Stop::Unavailable(Trouble::Unreachable("the JVM has exited".to_owned())));
    assert!(matches!(unanswered, Ending::Failed(why) if why.contains("the JVM has exited")));
    let full = Stop::Refused { action: None, kind: Refusal::Space, text: "full".to_owned() };
    assert_eq!(stop(full), Ending::Failed("look at the file: full".to_owned()));
    let stalled = stop(Stop::Stalled(Waiting::Replicas));
    assert!(
        matches!(&stalled, Ending::Failed(why) if why.contains("dfs.namenode.replication.max-streams")),
        "{stalled:?}"
    );
    // It has its replicas.
    let kept = Ending::Later { until_ms: NOW_MS + KEPT_MS, why: Stop::Kept.to_string() };
    assert_eq!(stop(Stop::Kept), kept);
    assert!(Stop::Kept.to_string().contains("failover"));
}

#[test]
fn the_history_names_the_policy_and_what_was_done() {
    let policies =
        Policies::parse("[[policy]]\nname = \"p\"\npaths = [\"/\"]\ncodec = \"xor\"\n").expect("policies");
    let (policy, codec) = (policies.policies()[0].clone(), policies.codec("xor").expect("it is known"));
    let encoding = |policy: Option<hdfs_raid::RaidPolicy>| Encoding {
        codec: codec.clone(),
        goal: Goal::Protected,
        policy,
        tolerated: 1,
    };
    let task = |policy| Task {
        path: "/a".to_owned(),
        bytes: 7,
        modified_ms: 1,
        urgency: Urgency::New,
        encoding: Arc::new(encoding(policy)),
        stray: None,
        has_parity: true,
    };
    let own = task(Some(policy));
    let deeds =
        |has_changed, has_encoded| Deeds { bytes: 7, took_ms: 9, has_changed, has_encoded, is_undo: false };
    let told = |task: &Task, deeds, ending: &Ending, before: Option<&str>| {
        work(task, deeds, ending, before).map(|work| (work.kind, work.by, work.failure))
    };
    let done = Some((FileWorkKind::Encode, "policy p".to_owned(), None));
    assert_eq!(told(&own, deeds(true, true), &Ending::Done, Some("full")), done);
    assert_eq!(told(&own, deeds(false, false), &Ending::Done, None), None, "it was encoded already");
    let renamed = Some((FileWorkKind::Adjust, "the coordinator".to_owned(), None));
    assert_eq!(told(&task(None), deeds(true, false), &Ending::Done, None), renamed);
    let undone = Deeds { is_undo: true, ..deeds(true, false) };
    assert_eq!(told(&own, undone, &Ending::Done, None).map(|it| it.0), Some(FileWorkKind::Undo));
    let full = Ending::Failed("full".to_owned());
    let failed = Some((FileWorkKind::Encode, "policy p".to_owned(), Some("full".to_owned())));
    assert_eq!(told(&own, deeds(false, false), &full, Some("busy")), failed);
    assert_eq!(told(&own, deeds(false, false), &full, Some("full")), None, "it is known");
    assert_eq!(told(&own, deeds(true, true), &Ending::Held, None), None);
}

#[test]
fn drafts_of_others_are_respected_until_nothing_changes_them() {
    let ours = NOW_MS << TERM_BITS | 77;
    let draft = |term: u64, written_ms: Option<u64>| {
        let file = |modified_ms| File {
            inode: 1,
            path: "/t/0-0".to_owned(),
            bytes: 0,
            block_bytes: 512,
            replication: 1,
            modified_ms,
            owner: Owner::Superuser,
            storing: Storing::Replicated,
            is_open: false,
            blocks: Vec::new(),
        };
        let files = written_ms.map(|ms| MarkedFile { file: file(ms), marks: Marks::default() });
        let name = DraftName { inode: 1, modified_ms: 2, term };
        Draft { path: "/t".to_owned(), name, files: files.into_iter().collect() }
    };
    let is_taken_over = |draft: &Draft, now_ms, own| !super::is_of_others(draft, ours, Some(own), now_ms);
    let is_of_others = |draft: &Draft, now_ms| is_of_others(draft, ours, None, now_ms);
    assert!(!is_of_others(&draft(ours, None), NOW_MS) && !is_of_others(&draft(ours + 2, None), NOW_MS));
    let others = (NOW_MS + 1000) << TERM_BITS | 5;
    assert!(is_of_others(&draft(others, None), NOW_MS + 2000));
    assert!(!is_of_others(&draft(others, None), NOW_MS + 1000 + ABANDONED_MS));
    let written_ms = NOW_MS + ABANDONED_MS;
    assert!(is_of_others(&draft(others, Some(written_ms)), written_ms + 1000));
    assert!(!is_of_others(&draft(1, Some(0)), NOW_MS), "an old term is no time");
    let ahead = |ms| draft((NOW_MS + ms) << TERM_BITS | 5, None);
    assert!(is_of_others(&ahead(AHEAD_MS), NOW_MS), "its clock is ahead");
    assert!(!is_of_others(&ahead(AHEAD_MS + 1), NOW_MS) && !is_of_others(&draft(u64::MAX, None), NOW_MS));
    assert!(is_of_others(&draft(u64::MAX, Some(NOW_MS)), NOW_MS), "its files are new");
    // A coordinator of the same cluster was killed a moment ago.
    let former = (NOW_MS - 5000) << TERM_BITS | 77;
    assert!(!is_of_others(&draft(former, Some(NOW_MS)), NOW_MS + 1000));
    // A draft that the work has taken over from a command, and in which it writes.
    let taken_over = draft(others + 1, Some(written_ms));
    assert!(is_taken_over(&taken_over, written_ms + 1000, others + 1));
    assert!(!is_taken_over(&taken_over, written_ms + 1000, others), "a later command has it");
}

/// Changed files only have their replication raised at first, whatever other files wait for.
#[test]
fn the_first_turn_of_an_unsafe_file_ends_once_nothing_is_to_be_raised() {
    let policies =
        Policies::parse("[[policy]]\nname = \"p\"\npaths = [\"/\"]\ncodec = \"xor\"\n").expect("policies");
    let encoding = Encoding {
        codec: policies.codec("xor").expect("it is known").clone(),
        goal: Goal::Protected,
        policy: None,
        tolerated: 1,
    };
    let task = Task {
        path: "/a".to_owned(),
        bytes: 7,
        modified_ms: 1,
        urgency: Urgency::Unsafe,
        encoding: Arc::new(encoding),
        stray: None,
        has_parity: true,
    };
    let shared = one_at_a_time();
    shared.schedule().take_listing("/", vec![task]);
    assert!(shared.schedule().next(NOW_MS, &Hold::None).is_some());
    assert!(
        !shared.accepts("/a", None, &Facts::default()),
        "only a call that raises the replication is made"
    );
    shared.note_yielded("/a");
    assert!(shared.yielded().is_empty(), "no other program works on it");
    shared.schedule().handle_end("/a", ending(None, false, NOW_MS), NOW_MS);
    assert!(shared.schedule().next(NOW_MS, &Hold::None).is_some());
    assert!(shared.accepts("/a", None, &Facts::default()));
}

/// The work that raises the replication of a file has not given way yet. If it is interrupted then, for example because the
/// NameNode does not answer, it is held.
#[test]
fn a_file_is_left_to_others_only_once_its_work_has_given_way() {
    let shared = one_at_a_time();
    let name = DraftName { inode: 1, modified_ms: 2, term: term_of(5) + (1 << TERM_BITS) };
    let draft = Draft { path: "/t".to_owned(), name, files: Vec::new() };
    assert!(!shared.accepts("/a", None, &Facts { drafts: vec![draft], ..Facts::default() }));
    assert!(shared.yielded().is_empty(), "it may raise the replication first");
    assert!(shared.accepts("/a", None, &Facts::default()));
    shared.note_yielded("/a");
    assert!(shared.yielded().contains("/a"));
}
