//! Figures for metrics: what they count, and that counters never decrease.

use store_api::{EncodedFiles, FileBacklog, FileWork, FileWorkKind, StoreChange};
use views::{HistoryEntry, HistoryEvent};

use crate::answers::metrics::Metrics;
use crate::totals::Amount;

use super::*;

impl TestCluster {
    fn metrics(&mut self) -> Metrics {
        self.ask(ClusterCommand::Metrics).unwrap()
    }
}

#[test]
fn blocks_are_lost_since_the_first_loss_whatever_the_condition_is_called() {
    let mut cluster = TestCluster::new(6);
    let file = cluster.put("f", 1);
    cluster.wait(Duration::from_secs(2));
    assert_eq!(cluster.metrics().loss.since_unix_ms, None);
    cluster.kill(&home(&file, 0));
    cluster.wait(Duration::from_secs(2));
    let began = cluster.metrics().loss.since_unix_ms.unwrap();
    cluster.wait(Duration::from_secs(60));
    cluster.kill(&home(&file, 1));
    cluster.wait(Duration::from_secs(60));
    assert_eq!(cluster.metrics().loss.since_unix_ms, Some(began), "AT_RISK");
    cluster.start(&home(&file, 1));
    cluster.wait(Duration::from_secs(60));
    assert_eq!(cluster.metrics().loss.since_unix_ms, Some(began), "DEGRADED again");
    cluster.start(&home(&file, 0));
    cluster.wait(Duration::from_secs(5));
    let loss = cluster.metrics().loss;
    assert_eq!((loss.since_unix_ms, loss.whole_again.buckets.iter().sum::<u64>()), (None, 1));
    assert!((180.0..190.0).contains(&loss.whole_again.sum_s), "{loss:?}");
}

#[test]
fn work_on_files_that_the_store_reports_is_in_the_history_and_the_metrics() {
    let mut cluster = TestCluster::new(4);
    assert_eq!(cluster.metrics().file_backlog, None, "this store does not work on files");
    let work = |file: &str, failure: Option<&str>| {
        StoreChange::FileWorked(FileWork {
            file: file.to_owned(),
            kind: FileWorkKind::Encode,
            bytes: 1 << 30,
            took_ms: 20_000,
            by: "policy warehouse".to_owned(),
            failure: failure.map(str::to_owned),
        })
    };
    let encoded = EncodedFiles { files: 3, bytes: 3 << 30, saved_bytes: 5 << 30 };
    let backlog = FileBacklog { files: 2, bytes: 7, failed: 1, encoded: Some(encoded) };
    let changes = vec![
        work("/a", None),
        work("/b", Some("the quota is exceeded")),
        StoreChange::FileBacklog(backlog.clone()),
    ];
    cluster.handle(Event::Changed(changes));
    let metrics = cluster.metrics();
    let works = metrics.totals.file_works[&views::FileWorkKind::Encode];
    assert_eq!((works.done, works.failed, works.bytes), (1, 1, 1 << 30));
    assert_eq!(metrics.file_backlog, Some(backlog));
    let entries: Vec<HistoryEntry> =
        cluster.ask(|reply| ClusterCommand::History(0, usize::MAX, reply)).unwrap();
    let told = entries.into_iter().filter_map(|entry| match entry.what {
        HistoryEvent::FileWorked { file, failure, .. } => Some((file, failure)),
        _ => None,
    });
    let expected = [("/a", None), ("/b", Some("the quota is exceeded"))];
    assert!(told.eq(expected.map(|(file, why)| (file.to_owned(), why.map(str::to_owned)))));
}

#[test]
fn a_command_reports_its_work_and_the_history_names_who_has_run_it() {
    let mut cluster = TestCluster::new(4);
    let report = views::FileWorkReport {
        file: "/a".to_owned(),
        work: views::FileWorkKind::Undo,
        bytes: 7,
        took_ms: 9,
        failure: Some("é".repeat(4096)),
    };
    cluster.ask(|reply| ClusterCommand::NoteFileWork(report, "admin ada".to_owned(), reply)).unwrap();
    let entries: Vec<HistoryEntry> =
        cluster.ask(|reply| ClusterCommand::History(0, usize::MAX, reply)).unwrap();
    let Some(HistoryEvent::FileWorked { by, failure, .. }) = entries.last().map(|entry| &entry.what) else {
        panic!("{entries:?}")
    };
    assert_eq!((by.as_str(), failure.as_ref().map(String::len)), ("a command of admin ada", Some(4096)));
    assert_eq!(cluster.metrics().totals.file_works[&views::FileWorkKind::Undo].failed, 1);
}

#[test]
fn impossible_lengths_in_reports_do_no_harm() {
    let mut cluster = TestCluster::new(4);
    for _ in 0..2 {
        let report = views::FileWorkReport {
            file: "/a".to_owned(),
            work: views::FileWorkKind::Encode,
            bytes: u64::MAX,
            took_ms: u64::MAX,
            failure: None,
        };
        cluster.ask(|reply| ClusterCommand::NoteFileWork(report, "admin ada".to_owned(), reply)).unwrap();
    }
    let works = cluster.metrics().totals.file_works[&views::FileWorkKind::Encode];
    assert_eq!((works.done, works.bytes), (2, u64::MAX));
}

#[test]
fn rebuilt_bytes_do_not_decrease_when_a_repair_is_cancelled() {
    let mut cluster = TestCluster::new(6);
    let file = cluster.put("f", 1);
    cluster.kill(&home(&file, 0));
    cluster.wait(Duration::from_secs(2));
    cluster.frozen.extend((1..=6).map(|number| format!("h{number}")));
    let repair = cluster.repair_all().repair;
    let assigned = cluster.nodes.iter().find_map(|(name, node)| {
        let mut assignments = node.backlog.iter().filter_map(|message| match message {
            ToNode::Assign(assignment) => Some(assignment),
            _ => None,
        });
        let with_sink = assignments.rfind(|assignment| !assignment.sinks.is_empty())?;
        Some((name.clone(), with_sink.job, with_sink.epoch))
    });
    let (requestor, job, epoch) = assigned.expect("a helper shall rebuild the block");
    let report = Report::Progress { slices: 1, whole: 1 };
    cluster.say(&requestor, FromNode::Report { job, epoch, report });
    assert!(cluster.repair_state(repair).counts.bytes_rebuilt > 0, "the repair has made progress");
    let bytes = |metrics: Metrics| metrics.totals.rebuilt.bytes + metrics.repairs.rebuilt.bytes;
    let before = bytes(cluster.metrics());
    cluster.ask(|reply| RepairCommand::Cancel(repair, reply)).unwrap();
    cluster.pump();
    assert_eq!((before, bytes(cluster.metrics())), (0, 0), "only published blocks count");
}

#[test]
fn moved_blocks_are_those_that_were_not_lost() {
    let mut cluster = TestCluster::new(7);
    let file = cluster.put("f", 4);
    cluster.kill(&home(&file, 0));
    let dead = RepairRequest { node: Some(home(&file, 0)), ..RepairRequest::default() };
    assert_eq!(cluster.repair(dead).state, views::RepairState::Done);
    let rebuilt = cluster.metrics().totals.rebuilt;
    assert!(rebuilt.blocks > 0 && rebuilt.bytes > 0);
    assert_eq!(cluster.metrics().totals.moved, Amount::default());
    let drained = home(&file, 1);
    let blocks = cluster.blocks_on(&drained);
    let drain = RepairRequest { drain: Some(drained), ..RepairRequest::default() };
    assert_eq!(cluster.repair(drain).state, views::RepairState::Done);
    let totals = cluster.metrics().totals;
    assert_eq!((totals.moved.blocks, totals.rebuilt.blocks), (blocks, rebuilt.blocks + blocks));
    assert_eq!(totals.moved.bytes, totals.rebuilt.bytes - rebuilt.bytes);
}
