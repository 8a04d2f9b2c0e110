//! Automatic repairs, and the requests of operators.

use crate::commands::{ClusterCommand, NodeCommand, RepairCommand};
use views::{
    GoneNode, HistoryEntry, HistoryEvent, MaintenanceRequest, RebalanceRequest, RebalanceView, RecoveryState,
    RepairState, ReplaceRequest, SafetyView, SettingsRequest, Severity,
};

use super::*;
use crate::HealPolicy;
use crate::history::KEPT_BYTES;

impl TestCluster {
    pub(super) fn repair_after(&mut self, after: &str) {
        let request = SettingsRequest { repair_after: Some(after.into()) };
        let set = self.ask(|reply| ClusterCommand::ChangeSettings(request, reply)).unwrap();
        assert_eq!(set.repair_after, after);
    }

    fn gone(&mut self, name: &str) -> GoneNode {
        let gone = self.status().helpers.gone;
        gone.into_iter().find(|gone| gone.node == name).unwrap_or_else(|| panic!("{name} is not gone"))
    }

    fn history(&mut self) -> Vec<HistoryEvent> {
        let entries: Vec<HistoryEntry> =
            self.ask(|reply| ClusterCommand::History(0, usize::MAX, reply)).unwrap();
        entries.into_iter().map(|entry| entry.what).collect()
    }

    fn repairs(&mut self) -> Vec<RepairView> {
        self.ask(RepairCommand::List).unwrap()
    }

    fn maintain(&mut self, name: &str, time: Duration) {
        let request = MaintenanceRequest { for_ms: time.as_millis() as u64 };
        self.ask(|reply| NodeCommand::Maintain(name.into(), request, reply)).unwrap();
    }

    fn ok_to_stop(&mut self, names: &[&str]) -> SafetyView {
        self.ok_to_stop_and_leave(names, 0)
    }

    fn ok_to_stop_and_leave(&mut self, names: &[&str], leave: u32) -> SafetyView {
        let names = names.iter().map(|&name| name.into()).collect();
        self.ask(|reply| NodeCommand::OkToStop(names, leave, reply)).unwrap()
    }

    fn safe_to_remove(&mut self, name: &str) -> bool {
        self.ask(|reply| NodeCommand::SafeToRemove(vec![name.into()], reply)).unwrap().safe
    }

    fn rebalance(&mut self, dry_run: bool) -> RebalanceView {
        self.ask(|reply| RepairCommand::Rebalance(RebalanceRequest { dry_run }, reply)).unwrap()
    }

    pub(super) fn blocks_on(&mut self, name: &str) -> u64 {
        let nodes = self.ask(NodeCommand::List).unwrap();
        nodes.iter().find(|node| node.name == name).unwrap().blocks
    }

    /// Reconnects all helpers except `dead` to a restarted coordinator.
    fn come_back_without(&mut self, dead: &[&str]) {
        let names: Vec<String> = self.nodes.keys().filter(|name| name.starts_with('h')).cloned().collect();
        names.iter().filter(|name| !dead.contains(&name.as_str())).for_each(|name| self.start(name));
    }
}

#[test]
fn an_absent_helper_is_rebuilt_automatically_and_once() {
    let mut cluster = TestCluster::new(6);
    let file = cluster.put("f", 2);
    let dead = home(&file, 0);
    cluster.repair_after("30s");
    cluster.kill(&dead);
    let gone = cluster.gone(&dead);
    assert_eq!((gone.recovery, gone.starts_in_ms), (RecoveryState::Waiting, Some(30_000)));
    let status = cluster.status();
    assert!(
        details(&status)[0].starts_with(&format!("repair of {dead} starts in 30 s")),
        "{:?}",
        details(&status)
    );
    assert!(!details(&status).concat().contains("mend repair"), "{:?}", details(&status));
    assert_eq!(status.severity, Severity::Warning);
    cluster.wait(Duration::from_secs(29));
    assert!(!cluster.status().healthy && cluster.repairs().is_empty(), "it may still come back");
    cluster.wait(Duration::from_secs(3));
    assert!(cluster.status().healthy);
    assert_eq!(cluster.gone(&dead).recovery, RecoveryState::Needless);
    cluster.wait(Duration::from_secs(300));
    let repairs = cluster.repairs();
    assert_eq!(repairs.len(), 1, "{repairs:?}");
    assert!(repairs[0].by_itself && repairs[0].target == format!("node {dead}"), "{repairs:?}");
    let history = cluster.history();
    let ended = history.iter().find_map(|event| match event {
        HistoryEvent::RepairEnded { state, lost_from, rebuilt_on, blocks, .. } => {
            Some((*state, lost_from.clone(), rebuilt_on.values().sum::<u64>(), *blocks))
        }
        _ => None,
    });
    let blocks = repairs[0].counts.blocks_rebuilt;
    let lost_from = BTreeMap::from([(dead.clone(), blocks)]);
    assert_eq!(ended, Some((RepairState::Done, lost_from, blocks, blocks)), "{history:?}");
    assert!(
        history.iter().any(|event| matches!(event, HistoryEvent::NodeLost { node, .. } if *node == dead))
    );
}

#[test]
fn a_helper_that_returns_in_time_is_not_rebuilt() {
    let mut cluster = TestCluster::new(6);
    let dead = home(&cluster.put("f", 1), 0);
    cluster.repair_after("30s");
    for _ in 0..3 {
        cluster.kill(&dead);
        cluster.wait(Duration::from_secs(20));
        cluster.start(&dead);
    }
    cluster.wait(Duration::from_secs(60));
    assert!(cluster.repairs().is_empty() && cluster.status().helpers.gone.is_empty());
    cluster.repair_after("never");
    cluster.kill(&dead);
    cluster.wait(Duration::from_secs(120));
    assert!(cluster.repairs().is_empty());
    assert_eq!(cluster.gone(&dead).recovery, RecoveryState::Off);
}

#[test]
fn a_dry_run_recovers_no_helper() {
    for dry_run in [true, false] {
        let mut cluster = TestCluster::new(6);
        let dead = home(&cluster.put("f", 1), 0);
        cluster.core().base.settings.heal = Some(HealPolicy { dry_run });
        cluster.repair_after("10s");
        cluster.kill(&dead);
        cluster.wait(Duration::from_secs(60));
        assert_eq!(cluster.repairs().is_empty(), dry_run);
        assert!(!dry_run || cluster.gone(&dead).recovery == RecoveryState::Off);
    }
}

#[test]
fn maintenance_postpones_a_recovery_and_its_advice() {
    let mut cluster = TestCluster::new(6);
    let dead = home(&cluster.put("f", 1), 0);
    cluster.repair_after("10s");
    cluster.maintain(&dead, Duration::from_secs(60));
    cluster.kill(&dead);
    cluster.wait(Duration::from_secs(50));
    let status = cluster.status();
    assert!(cluster.repairs().is_empty());
    assert_eq!(status.helpers.gone[0].recovery, RecoveryState::Maintenance);
    assert!(!format!("{}{:?}", status.summary, details(&status)).contains("mend repair"), "{status:?}");
    cluster.wait(Duration::from_secs(15));
    assert!(cluster.status().healthy, "maintenance is over, and so is the grace period");
    // Ending the maintenance early starts the recovery immediately.
    let dead = home(&cluster.file("f"), 1);
    cluster.maintain(&dead, Duration::from_secs(1000));
    cluster.kill(&dead);
    cluster.wait(Duration::from_secs(30));
    assert!(!cluster.status().healthy);
    cluster.ask(|reply| NodeCommand::EndMaintenance(dead.clone(), reply)).unwrap();
    cluster.wait(Duration::from_secs(2));
    assert!(cluster.status().healthy);
    let again = cluster.ask(|reply| NodeCommand::EndMaintenance(dead, reply));
    assert!(matches!(again, Err(RequestError::Node(NodeError::NotInMaintenance(_)))));
}

#[test]
fn settings_maintenance_and_outages_survive_a_restart() {
    let mut cluster = TestCluster::new(6);
    let file = cluster.put("f", 1);
    let (dead, tended) = (home(&file, 0), home(&file, 1));
    cluster.repair_after("20s");
    cluster.maintain(&tended, Duration::from_secs(3600));
    cluster.kill(&dead);
    let since = cluster.gone(&dead).since_unix_ms;
    cluster.restart();
    cluster.come_back_without(&[&dead]);
    cluster.wait(Duration::from_secs(11));
    assert_eq!(cluster.gone(&dead).since_unix_ms, since);
    assert_eq!(cluster.ask(ClusterCommand::Settings).unwrap().repair_after, "20s");
    let nodes = cluster.ask(NodeCommand::List).unwrap();
    let in_maintenance = |node: &&views::NodeView| node.maintenance_until_unix_ms.is_some();
    assert_eq!(nodes.iter().filter(in_maintenance).map(|node| &node.name).collect::<Vec<_>>(), [&tended]);
    cluster.wait(Duration::from_secs(15));
    assert!(cluster.status().healthy);
}

#[test]
fn an_automatic_repair_is_not_started_twice_after_a_restart() {
    let mut cluster = TestCluster::new(6);
    let dead = home(&cluster.put("f", 1), 0);
    cluster.repair_after("5s");
    cluster.kill(&dead);
    cluster.frozen = cluster.nodes.keys().cloned().collect();
    cluster.wait(Duration::from_secs(6));
    let before = cluster.repairs();
    assert_eq!((before.len(), before[0].state), (1, RepairState::Running));
    cluster.frozen.clear();
    cluster.restart();
    cluster.come_back_without(&[&dead]);
    cluster.wait(Duration::from_secs(120));
    assert!(cluster.status().healthy);
    let after = cluster.repairs();
    assert_eq!(after.iter().map(|repair| repair.repair).collect::<Vec<_>>(), [before[0].repair]);
    assert_eq!(after[0].started_unix_ms, before[0].started_unix_ms);
}

#[test]
fn a_cancelled_recovery_does_not_restart_automatically() {
    let mut cluster = TestCluster::new(6);
    let dead = home(&cluster.put("f", 1), 0);
    cluster.repair_after("5s");
    cluster.kill(&dead);
    cluster.frozen = cluster.nodes.keys().cloned().collect();
    cluster.wait(Duration::from_secs(6));
    let repair = cluster.repairs()[0].repair;
    cluster.ask(|reply| RepairCommand::Cancel(repair, reply)).unwrap();
    cluster.frozen.clear();
    cluster.play();
    cluster.wait(Duration::from_secs(300));
    assert_eq!((cluster.repairs().len(), cluster.gone(&dead).recovery), (1, RecoveryState::Cancelled));
    cluster.restart();
    cluster.come_back_without(&[&dead]);
    cluster.wait(Duration::from_secs(60));
    assert_eq!(cluster.gone(&dead).recovery, RecoveryState::Cancelled);
    // A new outage starts a new recovery.
    cluster.start(&dead);
    cluster.kill(&dead);
    cluster.wait(Duration::from_secs(10));
    assert!(cluster.status().healthy);
}

#[test]
fn room_for_the_next_failure_is_checked_as_soon_as_a_helper_joins_or_leaves() {
    let mut cluster = TestCluster::new(4);
    cluster.put("f", 1);
    let warned = |cluster: &mut TestCluster| {
        details(&cluster.status()).concat().contains("no room to repair: if a helper failed")
    };
    assert!(warned(&mut cluster));
    cluster.start("h5");
    assert!(!warned(&mut cluster));
    cluster.kill("h5");
    cluster.ask(|reply| NodeCommand::Remove("h5".into(), reply)).unwrap();
    assert!(warned(&mut cluster));
}

#[test]
fn a_recovery_without_room_starts_when_a_helper_has_room() {
    let mut cluster = TestCluster::new(4);
    let dead = home(&cluster.put("f", 1), 0);
    cluster.repair_after("5s");
    cluster.kill(&dead); // No helper is left that could accept the block.
    cluster.wait(Duration::from_secs(30));
    assert_eq!((cluster.repairs().len(), cluster.gone(&dead).recovery), (0, RecoveryState::NoRoom));
    let text = cluster.gone(&dead).text;
    assert!(text.contains("no helper can take any of them") && text.contains("mend node add"), "{text}");
    // A manual attempt fails, and its reason stays in the status until everything is whole.
    assert_eq!(cluster.repair_all().state, RepairState::Failed);
    let told = |cluster: &mut TestCluster| {
        details(&cluster.status()).concat().contains("failed: 1 stripe: no helper can take 1 block")
    };
    assert!(told(&mut cluster));
    cluster.start("h5");
    cluster.wait(Duration::from_secs(5));
    assert!(cluster.status().healthy && !told(&mut cluster));
}

#[test]
fn no_recovery_starts_while_most_helpers_are_absent() {
    let mut cluster = TestCluster::new(7);
    cluster.put("f", 8);
    cluster.repair_after("5s");
    for name in ["h1", "h2", "h3", "h4"] {
        cluster.kill(name);
    }
    cluster.wait(Duration::from_secs(60));
    assert!(cluster.repairs().is_empty());
    let gone = cluster.gone("h1");
    assert!(
        gone.recovery == RecoveryState::Held && gone.text.contains("4 helpers are down and only 3 are up")
    );
    cluster.start("h1");
    cluster.wait(Duration::from_secs(2));
    assert!(!cluster.repairs().is_empty());
}

#[test]
fn stop_and_removal_checks_follow_from_the_stripes() {
    let mut cluster = TestCluster::new(5);
    let file = cluster.put("f", 1);
    let homes: Vec<String> = (0..4).map(|index| home(&file, index)).collect();
    let spare = (1..=5).map(|n| format!("h{n}")).find(|name| !homes.contains(name)).unwrap();
    let two = cluster.ok_to_stop(&[&homes[0], &homes[1]]);
    assert!(two.safe && two.survives == Some(0), "{two:?}");
    let two = cluster.ok_to_stop_and_leave(&[&homes[0], &homes[1]], 1);
    assert!(
        !two.safe && two.unreadable == 0 && two.text.contains("could not lose another helper"),
        "{two:?}"
    );
    assert!(cluster.ok_to_stop_and_leave(&[&homes[0]], 1).safe);
    let three = cluster.ok_to_stop(&[&homes[0], &homes[1], &homes[2]]);
    assert!(!three.safe && three.unreadable_stripes.len() == 1, "{three:?}");
    cluster.kill(&homes[3]);
    assert!(cluster.ok_to_stop(&[&homes[0]]).safe);
    assert!(!cluster.ok_to_stop(&[&homes[0], &homes[1]]).safe, "one is down already");
    assert!(cluster.safe_to_remove(&spare) && !cluster.safe_to_remove(&homes[0]));
    let unknown = cluster.ask(|reply| NodeCommand::OkToStop(vec!["h77".into()], 1, reply));
    assert!(matches!(unknown, Err(RequestError::Node(NodeError::NoSuchNode { .. }))));

    let remove =
        |cluster: &mut TestCluster, name: &str| cluster.ask(|reply| NodeCommand::Remove(name.into(), reply));
    let needed = remove(&mut cluster, &homes[3]).unwrap_err();
    assert!(needed.to_string().contains("1 block") && needed.next_step().contains("mend repair --all"));
    assert!(matches!(remove(&mut cluster, &spare), Err(RequestError::Node(NodeError::NodeUp(_)))));
    cluster.repair_all();
    assert!(cluster.safe_to_remove(&homes[3]));
    remove(&mut cluster, &homes[3]).unwrap();
    let status = cluster.status();
    assert!(
        status.helpers.nodes_down.is_empty() && status.helpers.gone.is_empty() && status.healthy,
        "{status:?}"
    );
    cluster.restart();
    cluster.come_back_without(&[&homes[3]]);
    assert!(!cluster.status().settling, "nobody waits for one that was removed");
}

#[test]
fn unreadable_parts_are_listed_by_file_and_bytes_with_the_helpers_to_start() {
    let mut cluster = TestCluster::new(4);
    let file = cluster.put("f", 2);
    let homes: Vec<String> = (0..3).map(|index| home(&file, index)).collect();
    homes.iter().for_each(|home| cluster.kill(home));
    let status = cluster.status();
    assert_eq!(status.severity, Severity::Critical);
    assert_eq!(status.damage.unreadable.len(), 2);
    let mut sorted = homes.clone();
    sorted.sort_by(|a, b| views::natural(a, b));
    let first = &status.damage.unreadable[0];
    assert_eq!(
        (first.file.as_deref(), &first.any_of),
        (Some("f"), &sorted),
        "any one of the three is enough"
    );
    let bytes: u64 = first.ranges.iter().map(|range| range.last - range.first + 1).sum();
    assert!(bytes == 4096 || bytes == 8192, "{first:?}");
    // After the return of one of these helpers, all stripes are readable again.
    cluster.start(&homes[0]);
    assert!(cluster.status().damage.unreadable.is_empty());
}

#[test]
fn the_history_survives_restarts_and_is_bounded() {
    let mut cluster = TestCluster::new(4);
    cluster.put("f", 1);
    cluster.kill("h1");
    cluster.start("h1");
    let before = cluster.history();
    assert!(before.len() >= 6, "four came, one went and came back: {before:?}");
    cluster.restart();
    assert_eq!(cluster.history(), before);
    let long = "x".repeat(KEPT_BYTES / 8);
    for _ in 0..8 {
        cluster.core().out.note(HistoryEvent::NodeRemoved { node: long.clone() });
    }
    cluster.pump();
    assert_eq!(cluster.history().len(), 7, "eight of them exceed the limit by their other fields");
    cluster.restart();
    let after = cluster.history();
    assert_eq!(after.len(), 7);
    assert!(after.iter().all(|event| matches!(event, HistoryEvent::NodeRemoved { .. })));
}

fn is_of(event: &HistoryEvent, helper: &str) -> bool {
    match event {
        HistoryEvent::NodeLost { node, .. }
        | HistoryEvent::NodeBack { node, .. }
        | HistoryEvent::NodeFlapped { node, .. } => node == helper,
        _ => false,
    }
}

#[test]
fn losses_of_a_flapping_helper_share_one_history_entry() {
    let mut cluster = TestCluster::new(4);
    let losses = |cluster: &mut TestCluster| -> Vec<HistoryEvent> {
        cluster.history().into_iter().filter(|event| is_of(event, "h2")).collect()
    };
    for expected in [2, 4, 1, 1] {
        cluster.kill("h2");
        cluster.wait(Duration::from_secs(2));
        cluster.start("h2");
        cluster.wait(Duration::from_secs(2));
        assert_eq!(losses(&mut cluster).len(), expected, "{:#?}", losses(&mut cluster));
    }
    let back = losses(&mut cluster);
    assert!(matches!(&back[..], [HistoryEvent::NodeFlapped { times: 4, away_ms: Some(_), .. }]), "{back:#?}");
    cluster.kill("h2");
    cluster.restart();
    cluster.come_back_without(&["h2"]);
    let down = losses(&mut cluster);
    assert!(matches!(&down[..], [HistoryEvent::NodeFlapped { times: 5, away_ms: None, .. }]), "{down:#?}");
    cluster.wait(Duration::from_secs(3601));
    cluster.start("h2");
    let later = losses(&mut cluster);
    assert!(matches!(&later[1..], [HistoryEvent::NodeBack { .. }]), "an hour later: {later:#?}");
}

#[test]
fn bad_blocks_of_a_helper_share_one_history_entry() {
    let mut cluster = TestCluster::new(4);
    let file = cluster.put("f", 9);
    let bad = home(&file, 0);
    cluster.kill(&bad);
    cluster.node(&bad).disk.clear();
    cluster.start(&bad);
    cluster.wait(Duration::from_secs(1));
    let history = cluster.history();
    let lost: Vec<_> =
        history.iter().filter(|event| matches!(event, HistoryEvent::BlocksLost { .. })).collect();
    assert!(
        matches!(lost[..], [HistoryEvent::BlocksLost { blocks: 9, first, .. }] if first.len() == 5),
        "{history:?}"
    );
    assert!(
        details(&cluster.status())
            .concat()
            .contains("9 blocks missing or corrupt on helpers that are up: run mend repair --all")
    );
}

#[test]
fn blocks_move_from_full_helpers_to_empty_ones() {
    let mut cluster = TestCluster::new(4);
    cluster.put("f", 12);
    cluster.start("h5");
    cluster.start("h6");
    let plan = cluster.rebalance(true);
    assert!(plan.repair.is_none() && !plan.moves.is_empty());
    assert_eq!(cluster.blocks_on("h5"), 0, "it was only asked about");
    let done = cluster.rebalance(false);
    cluster.play();
    let view = cluster.repair_state(done.repair.unwrap());
    assert_eq!((view.state, view.target.as_str()), (RepairState::Done, "rebalance"), "{view:#?}");
    assert_eq!(done.moves.len(), 12, "one of each stripe");
    cluster.rebalance(false);
    cluster.wait(Duration::from_secs(1));
    assert_eq!(cluster.rebalance(true).moves, [], "what is even stays");
    let blocks: Vec<u64> = (1..=6).map(|n| cluster.blocks_on(&format!("h{n}"))).collect();
    assert!(blocks.iter().all(|blocks| (7..=9).contains(blocks)), "{blocks:?}");
    assert!(cluster.status().healthy);
    assert_eq!(cluster.nodes["h1"].disk.len() as u64, blocks[0], "the old copies are gone");
    for stripe in cluster.file("f").layout {
        let homes: BTreeSet<_> = stripe.stripe.blocks.iter().map(|block| block.node.clone()).collect();
        assert_eq!(homes.len(), 4, "{stripe:?}");
    }
}

#[test]
fn a_dead_helper_is_replaced_by_the_named_one() {
    let mut cluster = TestCluster::new(6);
    let file = cluster.put("f", 4);
    let dead = home(&file, 0);
    cluster.start("h7");
    cluster.kill(&dead);
    let held = cluster.blocks_on(&dead);
    let replace = |cluster: &mut TestCluster, by: &str| {
        let request = ReplaceRequest { by: by.into() };
        cluster.ask(|reply| NodeCommand::Replace(dead.clone(), request, reply))
    };
    assert!(matches!(replace(&mut cluster, &dead), Err(RequestError::Node(NodeError::ReplacesItself(_)))));
    replace(&mut cluster, "h7").unwrap();
    cluster.play();
    assert_eq!((cluster.blocks_on("h7"), cluster.blocks_on(&dead)), (held, 0));
    assert!(cluster.status().healthy);
}

#[test]
fn no_helper_is_ok_to_stop_while_others_are_registering() {
    let mut cluster = TestCluster::new(4);
    cluster.put("f", 1);
    cluster.restart();
    cluster.start("h1");
    let asked = cluster.ask(|reply| NodeCommand::OkToStop(vec!["h1".into()], 1, reply));
    let text = asked.unwrap_err().to_string();
    assert!(text.ends_with("waits for helpers to register: h2, h3, h4"), "{text}");
    assert!(cluster.status().conditions.iter().any(|condition| condition.text == text));
}

#[test]
fn automatic_repairs_leave_helpers_in_maintenance_alone() {
    let mut cluster = TestCluster::new(8);
    let file = cluster.put("f", 1);
    let (dead, tended) = (home(&file, 0), home(&file, 1));
    cluster.repair_after("5s");
    cluster.maintain(&tended, Duration::from_secs(3600));
    cluster.kill(&tended);
    cluster.kill(&dead);
    cluster.wait(Duration::from_secs(30));
    let file = cluster.file("f");
    assert_ne!(home(&file, 0), dead, "its time is over");
    assert_eq!(home(&file, 1), tended, "its time is not");
}

#[test]
fn a_recovery_cancelled_after_a_restart_does_not_start_again() {
    let mut cluster = TestCluster::new(6);
    let dead = home(&cluster.put("f", 1), 0);
    cluster.repair_after("5s");
    cluster.kill(&dead);
    cluster.frozen = cluster.nodes.keys().cloned().collect();
    cluster.wait(Duration::from_secs(6));
    let repair = cluster.repairs()[0].repair;
    cluster.restart();
    cluster.ask(|reply| RepairCommand::Cancel(repair, reply)).unwrap();
    cluster.frozen.clear();
    cluster.come_back_without(&[&dead]);
    cluster.wait(Duration::from_secs(300));
    assert_eq!((cluster.repairs().len(), cluster.gone(&dead).recovery), (1, RecoveryState::Cancelled));
}

#[test]
fn a_rebalance_moves_no_block_to_a_drained_helper() {
    let mut cluster = TestCluster::new(5);
    cluster.put("f", 12);
    let drain = RepairRequest { drain: Some("h5".into()), ..RepairRequest::default() };
    assert_eq!(cluster.repair(drain).state, RepairState::Done);
    assert_eq!(cluster.blocks_on("h5"), 0);
    let view = cluster.rebalance(true);
    assert!(view.moves.iter().all(|moved| moved.to != "h5"), "{view:?}");
}

#[test]
fn a_paused_recovery_of_an_absent_helper_is_not_bypassed() {
    let mut cluster = TestCluster::new(6);
    let dead = home(&cluster.put("f", 4), 0);
    cluster.repair_after("30s");
    cluster.kill(&dead);
    let names: Vec<String> = cluster.nodes.keys().cloned().collect();
    cluster.frozen.extend(names);
    let request = RepairRequest { node: Some(dead.clone()), ..RepairRequest::default() };
    let repair = cluster.repair(request).repair;
    cluster.ask(|reply| RepairCommand::Pause(repair, true, reply)).unwrap();
    cluster.frozen.clear();
    let is_paused = |gone: &GoneNode| (gone.recovery, gone.starts_in_ms, gone.repair);
    let paused = (RecoveryState::Paused, None, Some(repair));
    assert_eq!(is_paused(&cluster.gone(&dead)), paused);
    let advice = details(&cluster.status()).concat();
    let text =
        format!("repair {repair} of the blocks of {dead} is paused; to continue, run mend resume {repair}");
    assert!(advice.contains(&text) && !advice.contains("starts in"), "{advice}");
    cluster.wait(Duration::from_secs(100));
    assert_eq!((cluster.repairs().len(), is_paused(&cluster.gone(&dead))), (1, paused));
    cluster.ask(|reply| RepairCommand::Pause(repair, false, reply)).unwrap();
    assert_eq!(cluster.gone(&dead).recovery, RecoveryState::Running);
    cluster.wait(Duration::from_secs(10));
    assert!(cluster.status().healthy);
    // The pause counts neither in the duration nor in the rate.
    let took = cluster.history().iter().find_map(|event| match event {
        HistoryEvent::RepairEnded { took_ms, .. } => Some(*took_ms),
        _ => None,
    });
    assert!(took.is_some_and(|took| took < 20_000), "{took:?}");
}

/// It waits for all other repairs.
#[test]
fn a_recovery_in_the_background_does_not_stand_in_for_the_automatic_one() {
    let mut cluster = TestCluster::new(6);
    let dead = home(&cluster.put("f", 1), 0);
    cluster.repair_after("5s");
    cluster.kill(&dead);
    cluster.frozen = cluster.nodes.keys().cloned().collect();
    let priority = Some("background".to_owned());
    let request = RepairRequest { node: Some(dead.clone()), priority, ..RepairRequest::default() };
    let background = cluster.repair(request).repair;
    assert_eq!(cluster.gone(&dead).repair, None);
    cluster.wait(Duration::from_secs(6));
    assert!(cluster.gone(&dead).repair.is_some_and(|automatic| automatic != background));
}

#[test]
fn a_drain_without_room_is_a_warning_and_names_a_step_that_works() {
    let mut cluster = TestCluster::new(4);
    cluster.put("f", 1);
    let drain = RepairRequest { drain: Some("h3".into()), ..RepairRequest::default() };
    let to_one = RepairRequest { requestors: vec!["h1".into()], ..drain.clone() };
    let failed = cluster.repair(to_one);
    assert_eq!(failed.state, RepairState::Failed, "{failed:#?}");
    cluster.start("h5");
    cluster.wait(Duration::from_secs(70));
    let status = cluster.status();
    assert_eq!((status.severity, status.healthy), (Severity::Warning, true), "{}", status.summary);
    assert!(status.summary.ends_with("; no room to empty h3"), "{}", status.summary);
    let step = "allow any helper to take the blocks (mend node drain h3)";
    let text = &status.helpers.leaving[0].text;
    assert!(
        text.contains("(only h1 may take blocks; each of these helpers holds a block of the stripe already)"),
        "{text}"
    );
    assert!(text.contains(step) && !text.contains("mend node add"), "{text}");
    assert_eq!(failed.items[0].next_step.as_deref(), Some(step));
    let lost = cluster.history().into_iter().find_map(|event| match event {
        HistoryEvent::RepairEnded { lost_from, .. } => Some(lost_from),
        _ => None,
    });
    assert_eq!(lost, Some(BTreeMap::new()), "a drain has lost nothing");
    assert_eq!(cluster.repair(drain).state, RepairState::Done);
    cluster.wait(Duration::from_secs(2));
    assert_eq!(cluster.status().severity, Severity::Ok);
}
