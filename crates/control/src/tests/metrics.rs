//! Figures for metrics: what they count, and that counters never decrease.

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
