//! Automatic repairs, and the requests of operators.

use crate::commands::{ClusterCommand, NodeCommand, RepairCommand};
use views::{
    GoneNode, HistoryEntry, HistoryEvent, MaintenanceRequest, RebalanceRequest, RebalanceView, RecoveryState,
    RepairState, ReplaceRequest, SafetyView, SettingsRequest, Severity,
};

use super::*;
use crate::history::KEPT;

impl Scene {
    fn repair_after(&mut self, after: &str) {
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
            self.ask(|reply| ClusterCommand::History(usize::MAX, reply)).unwrap();
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

    fn blocks_on(&mut self, name: &str) -> u64 {
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
    let mut scene = Scene::new(6);
    let file = scene.put("f", 2);
    let dead = home(&file, 0);
    scene.repair_after("30s");
    scene.kill(&dead);
    let gone = scene.gone(&dead);
    assert_eq!((gone.recovery, gone.starts_in_ms), (RecoveryState::Waiting, Some(30_000)));
    let status = scene.status();
    assert!(status.advice[0].starts_with(&format!("repair of {dead} starts in 30 s")), "{:?}", status.advice);
    assert!(!status.advice.concat().contains("mend repair"), "{:?}", status.advice);
    assert_eq!(status.severity, Severity::Warning);
    scene.wait(Duration::from_secs(29));
    assert!(!scene.status().healthy && scene.repairs().is_empty(), "it may still come back");
    scene.wait(Duration::from_secs(3));
    assert!(scene.status().healthy);
    assert_eq!(scene.gone(&dead).recovery, RecoveryState::Needless);
    scene.wait(Duration::from_secs(300));
    let repairs = scene.repairs();
    assert_eq!(repairs.len(), 1, "{repairs:?}");
    assert!(repairs[0].by_itself && repairs[0].target == format!("node {dead}"), "{repairs:?}");
    let history = scene.history();
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
    let mut scene = Scene::new(6);
    let dead = home(&scene.put("f", 1), 0);
    scene.repair_after("30s");
    for _ in 0..3 {
        scene.kill(&dead);
        scene.wait(Duration::from_secs(20));
        scene.start(&dead);
    }
    scene.wait(Duration::from_secs(60));
    assert!(scene.repairs().is_empty() && scene.status().helpers.gone.is_empty());
    scene.repair_after("never");
    scene.kill(&dead);
    scene.wait(Duration::from_secs(120));
    assert!(scene.repairs().is_empty());
    assert_eq!(scene.gone(&dead).recovery, RecoveryState::Off);
}

#[test]
fn maintenance_postpones_a_recovery_and_its_advice() {
    let mut scene = Scene::new(6);
    let dead = home(&scene.put("f", 1), 0);
    scene.repair_after("10s");
    scene.maintain(&dead, Duration::from_secs(60));
    scene.kill(&dead);
    scene.wait(Duration::from_secs(50));
    let status = scene.status();
    assert!(scene.repairs().is_empty());
    assert_eq!(status.helpers.gone[0].recovery, RecoveryState::Maintenance);
    assert!(!format!("{}{:?}", status.summary, status.advice).contains("mend repair"), "{status:?}");
    scene.wait(Duration::from_secs(15));
    assert!(scene.status().healthy, "maintenance is over, and so is the grace period");
    // Ending the maintenance early starts the recovery immediately.
    let dead = home(&scene.file("f"), 1);
    scene.maintain(&dead, Duration::from_secs(1000));
    scene.kill(&dead);
    scene.wait(Duration::from_secs(30));
    assert!(!scene.status().healthy);
    scene.ask(|reply| NodeCommand::EndMaintenance(dead.clone(), reply)).unwrap();
    scene.wait(Duration::from_secs(2));
    assert!(scene.status().healthy);
    let again = scene.ask(|reply| NodeCommand::EndMaintenance(dead, reply));
    assert!(matches!(again, Err(RequestError::Node(NodeError::NotInMaintenance(_)))));
}

#[test]
fn settings_maintenance_and_outages_survive_a_restart() {
    let mut scene = Scene::new(6);
    let file = scene.put("f", 1);
    let (dead, tended) = (home(&file, 0), home(&file, 1));
    scene.repair_after("20s");
    scene.maintain(&tended, Duration::from_secs(3600));
    scene.kill(&dead);
    let since = scene.gone(&dead).since_unix_ms;
    scene.restart();
    scene.come_back_without(&[&dead]);
    scene.wait(Duration::from_secs(11));
    assert_eq!(scene.gone(&dead).since_unix_ms, since);
    assert_eq!(scene.ask(ClusterCommand::Settings).unwrap().repair_after, "20s");
    let nodes = scene.ask(NodeCommand::List).unwrap();
    let in_maintenance = |node: &&views::NodeView| node.maintenance_until_unix_ms.is_some();
    assert_eq!(nodes.iter().filter(in_maintenance).map(|node| &node.name).collect::<Vec<_>>(), [&tended]);
    scene.wait(Duration::from_secs(15));
    assert!(scene.status().healthy);
}

#[test]
fn an_automatic_repair_is_not_started_twice_after_a_restart() {
    let mut scene = Scene::new(6);
    let dead = home(&scene.put("f", 1), 0);
    scene.repair_after("5s");
    scene.kill(&dead);
    scene.frozen = scene.nodes.keys().cloned().collect();
    scene.wait(Duration::from_secs(6));
    let before = scene.repairs();
    assert_eq!((before.len(), before[0].state), (1, RepairState::Running));
    scene.frozen.clear();
    scene.restart();
    scene.come_back_without(&[&dead]);
    scene.wait(Duration::from_secs(120));
    assert!(scene.status().healthy);
    let after = scene.repairs();
    assert_eq!(after.iter().map(|repair| repair.repair).collect::<Vec<_>>(), [before[0].repair]);
    assert_eq!(after[0].started_unix_ms, before[0].started_unix_ms);
}

#[test]
fn a_cancelled_recovery_does_not_restart_automatically() {
    let mut scene = Scene::new(6);
    let dead = home(&scene.put("f", 1), 0);
    scene.repair_after("5s");
    scene.kill(&dead);
    scene.frozen = scene.nodes.keys().cloned().collect();
    scene.wait(Duration::from_secs(6));
    let repair = scene.repairs()[0].repair;
    scene.ask(|reply| RepairCommand::Cancel(repair, reply)).unwrap();
    scene.frozen.clear();
    scene.play();
    scene.wait(Duration::from_secs(300));
    assert_eq!((scene.repairs().len(), scene.gone(&dead).recovery), (1, RecoveryState::Cancelled));
    scene.restart();
    scene.come_back_without(&[&dead]);
    scene.wait(Duration::from_secs(60));
    assert_eq!(scene.gone(&dead).recovery, RecoveryState::Cancelled);
    // A new outage starts a new recovery.
    scene.start(&dead);
    scene.kill(&dead);
    scene.wait(Duration::from_secs(10));
    assert!(scene.status().healthy);
}

#[test]
fn a_recovery_without_room_starts_when_a_helper_has_room() {
    let mut scene = Scene::new(4);
    let dead = home(&scene.put("f", 1), 0);
    scene.repair_after("5s");
    scene.kill(&dead); // No helper is left that could accept the block.
    scene.wait(Duration::from_secs(30));
    assert_eq!((scene.repairs().len(), scene.gone(&dead).recovery), (0, RecoveryState::NoRoom));
    let text = scene.gone(&dead).text;
    assert!(text.contains("no helper can take any of them") && text.contains("mend node add"), "{text}");
    // A manual attempt fails, and its reason stays in the status until everything is whole.
    assert_eq!(scene.repair_all().state, RepairState::Failed);
    let told = |scene: &mut Scene| {
        scene.status().advice.concat().contains("failed: 1 stripe: no helper can take 1 block")
    };
    assert!(told(&mut scene));
    scene.start("h5");
    scene.wait(Duration::from_secs(5));
    assert!(scene.status().healthy && !told(&mut scene));
}

#[test]
fn no_recovery_starts_while_most_helpers_are_absent() {
    let mut scene = Scene::new(7);
    scene.put("f", 8);
    scene.repair_after("5s");
    for name in ["h1", "h2", "h3", "h4"] {
        scene.kill(name);
    }
    scene.wait(Duration::from_secs(60));
    assert!(scene.repairs().is_empty());
    let gone = scene.gone("h1");
    assert!(
        gone.recovery == RecoveryState::Held && gone.text.contains("4 helpers are down and only 3 are up")
    );
    scene.start("h1");
    scene.wait(Duration::from_secs(2));
    assert!(!scene.repairs().is_empty());
}

#[test]
fn stop_and_removal_checks_follow_from_the_stripes() {
    let mut scene = Scene::new(5);
    let file = scene.put("f", 1);
    let homes: Vec<String> = (0..4).map(|index| home(&file, index)).collect();
    let spare = (1..=5).map(|n| format!("h{n}")).find(|name| !homes.contains(name)).unwrap();
    let two = scene.ok_to_stop(&[&homes[0], &homes[1]]);
    assert!(two.safe && two.survives == Some(0), "{two:?}");
    let two = scene.ok_to_stop_and_leave(&[&homes[0], &homes[1]], 1);
    assert!(
        !two.safe && two.unreadable == 0 && two.text.contains("could not lose another helper"),
        "{two:?}"
    );
    assert!(scene.ok_to_stop_and_leave(&[&homes[0]], 1).safe);
    let three = scene.ok_to_stop(&[&homes[0], &homes[1], &homes[2]]);
    assert!(!three.safe && three.unreadable_stripes.len() == 1, "{three:?}");
    scene.kill(&homes[3]);
    assert!(scene.ok_to_stop(&[&homes[0]]).safe);
    assert!(!scene.ok_to_stop(&[&homes[0], &homes[1]]).safe, "one is down already");
    assert!(scene.safe_to_remove(&spare) && !scene.safe_to_remove(&homes[0]));
    let unknown = scene.ask(|reply| NodeCommand::OkToStop(vec!["h77".into()], 1, reply));
    assert!(matches!(unknown, Err(RequestError::Node(NodeError::NoSuchNode { .. }))));

    let remove = |scene: &mut Scene, name: &str| scene.ask(|reply| NodeCommand::Remove(name.into(), reply));
    let needed = remove(&mut scene, &homes[3]).unwrap_err();
    assert!(needed.to_string().contains("1 block") && needed.next_step().contains("mend repair --all"));
    assert!(matches!(remove(&mut scene, &spare), Err(RequestError::Node(NodeError::NodeUp(_)))));
    scene.repair_all();
    assert!(scene.safe_to_remove(&homes[3]));
    remove(&mut scene, &homes[3]).unwrap();
    let status = scene.status();
    assert!(
        status.helpers.nodes_down.is_empty() && status.helpers.gone.is_empty() && status.healthy,
        "{status:?}"
    );
    scene.restart();
    scene.come_back_without(&[&homes[3]]);
    assert!(!scene.status().settling, "nobody waits for one that was removed");
}

#[test]
fn unreadable_parts_are_listed_by_file_and_bytes_with_the_helpers_to_start() {
    let mut scene = Scene::new(4);
    let file = scene.put("f", 2);
    let homes: Vec<String> = (0..3).map(|index| home(&file, index)).collect();
    homes.iter().for_each(|home| scene.kill(home));
    let status = scene.status();
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
    scene.start(&homes[0]);
    assert!(scene.status().damage.unreadable.is_empty());
}

#[test]
fn the_history_survives_restarts_and_is_bounded() {
    let mut scene = Scene::new(4);
    scene.put("f", 1);
    scene.kill("h1");
    scene.start("h1");
    let before = scene.history();
    assert!(before.len() >= 6, "four came, one went and came back: {before:?}");
    scene.restart();
    assert_eq!(scene.history(), before);
    for _ in 0..KEPT {
        scene.core().out.note(HistoryEvent::NodeRemoved { node: "h9".into() });
    }
    scene.pump();
    assert_eq!(scene.history().len(), KEPT);
    scene.restart();
    let after = scene.history();
    assert_eq!(after.len(), KEPT);
    assert!(after.iter().all(|event| matches!(event, HistoryEvent::NodeRemoved { .. })));
}

#[test]
fn bad_blocks_of_a_helper_share_one_history_entry() {
    let mut scene = Scene::new(4);
    let file = scene.put("f", 9);
    let bad = home(&file, 0);
    scene.kill(&bad);
    scene.node(&bad).disk.clear();
    scene.start(&bad);
    scene.wait(Duration::from_secs(1));
    let history = scene.history();
    let lost: Vec<_> =
        history.iter().filter(|event| matches!(event, HistoryEvent::BlocksLost { .. })).collect();
    assert!(
        matches!(lost[..], [HistoryEvent::BlocksLost { blocks: 9, first, .. }] if first.len() == 5),
        "{history:?}"
    );
    assert!(
        scene
            .status()
            .advice
            .concat()
            .contains("9 blocks missing or corrupt on helpers that are up: run mend repair --all")
    );
}

#[test]
fn blocks_move_from_full_helpers_to_empty_ones() {
    let mut scene = Scene::new(4);
    scene.put("f", 12);
    scene.start("h5");
    scene.start("h6");
    let plan = scene.rebalance(true);
    assert!(plan.repair.is_none() && !plan.moves.is_empty());
    assert_eq!(scene.blocks_on("h5"), 0, "it was only asked about");
    let done = scene.rebalance(false);
    scene.play();
    let view = scene.repair_state(done.repair.unwrap());
    assert_eq!((view.state, view.target.as_str()), (RepairState::Done, "rebalance"), "{view:#?}");
    assert_eq!(done.moves.len(), 12, "one of each stripe");
    scene.rebalance(false);
    scene.wait(Duration::from_secs(1));
    assert_eq!(scene.rebalance(true).moves, [], "what is even stays");
    let blocks: Vec<u64> = (1..=6).map(|n| scene.blocks_on(&format!("h{n}"))).collect();
    assert!(blocks.iter().all(|blocks| (7..=9).contains(blocks)), "{blocks:?}");
    assert!(scene.status().healthy);
    assert_eq!(scene.nodes["h1"].disk.len() as u64, blocks[0], "the old copies are gone");
    for stripe in scene.file("f").layout {
        let homes: BTreeSet<_> = stripe.stripe.blocks.iter().map(|block| block.node.clone()).collect();
        assert_eq!(homes.len(), 4, "{stripe:?}");
    }
}

#[test]
fn a_dead_helper_is_replaced_by_the_named_one() {
    let mut scene = Scene::new(6);
    let file = scene.put("f", 4);
    let dead = home(&file, 0);
    scene.start("h7");
    scene.kill(&dead);
    let held = scene.blocks_on(&dead);
    let replace = |scene: &mut Scene, by: &str| {
        let request = ReplaceRequest { by: by.into() };
        scene.ask(|reply| NodeCommand::Replace(dead.clone(), request, reply))
    };
    assert!(matches!(replace(&mut scene, &dead), Err(RequestError::Node(NodeError::NoReplacement { .. }))));
    replace(&mut scene, "h7").unwrap();
    scene.play();
    assert_eq!((scene.blocks_on("h7"), scene.blocks_on(&dead)), (held, 0));
    assert!(scene.status().healthy);
}

#[test]
fn no_helper_is_ok_to_stop_while_others_are_registering() {
    let mut scene = Scene::new(4);
    scene.put("f", 1);
    scene.restart();
    scene.start("h1");
    let asked = scene.ask(|reply| NodeCommand::OkToStop(vec!["h1".into()], 1, reply));
    assert!(matches!(asked, Err(RequestError::Settling)), "{asked:?}");
}

#[test]
fn automatic_repairs_leave_helpers_in_maintenance_alone() {
    let mut scene = Scene::new(8);
    let file = scene.put("f", 1);
    let (dead, tended) = (home(&file, 0), home(&file, 1));
    scene.repair_after("5s");
    scene.maintain(&tended, Duration::from_secs(3600));
    scene.kill(&tended);
    scene.kill(&dead);
    scene.wait(Duration::from_secs(30));
    let file = scene.file("f");
    assert_ne!(home(&file, 0), dead, "its time is over");
    assert_eq!(home(&file, 1), tended, "its time is not");
}

#[test]
fn a_recovery_cancelled_after_a_restart_does_not_start_again() {
    let mut scene = Scene::new(6);
    let dead = home(&scene.put("f", 1), 0);
    scene.repair_after("5s");
    scene.kill(&dead);
    scene.frozen = scene.nodes.keys().cloned().collect();
    scene.wait(Duration::from_secs(6));
    let repair = scene.repairs()[0].repair;
    scene.restart();
    scene.ask(|reply| RepairCommand::Cancel(repair, reply)).unwrap();
    scene.frozen.clear();
    scene.come_back_without(&[&dead]);
    scene.wait(Duration::from_secs(300));
    assert_eq!((scene.repairs().len(), scene.gone(&dead).recovery), (1, RecoveryState::Cancelled));
}

#[test]
fn a_rebalance_moves_no_block_to_a_drained_helper() {
    let mut scene = Scene::new(5);
    scene.put("f", 12);
    let drain = RepairRequest { drain: Some("h5".into()), ..RepairRequest::default() };
    assert_eq!(scene.repair(drain).state, RepairState::Done);
    assert_eq!(scene.blocks_on("h5"), 0);
    let view = scene.rebalance(true);
    assert!(view.moves.iter().all(|moved| moved.to != "h5"), "{view:?}");
}

#[test]
fn a_paused_recovery_of_an_absent_helper_is_not_bypassed() {
    let mut scene = Scene::new(6);
    let dead = home(&scene.put("f", 4), 0);
    scene.repair_after("30s");
    scene.kill(&dead);
    let names: Vec<String> = scene.nodes.keys().cloned().collect();
    scene.frozen.extend(names);
    let request = RepairRequest { node: Some(dead.clone()), ..RepairRequest::default() };
    let repair = scene.repair(request).repair;
    scene.ask(|reply| RepairCommand::Pause(repair, true, reply)).unwrap();
    scene.frozen.clear();
    let is_paused = |gone: &GoneNode| (gone.recovery, gone.starts_in_ms, gone.repair);
    let paused = (RecoveryState::Paused, None, Some(repair));
    assert_eq!(is_paused(&scene.gone(&dead)), paused);
    let advice = scene.status().advice.concat();
    let text =
        format!("repair {repair} of the blocks of {dead} is paused; to continue, run mend resume {repair}");
    assert!(advice.contains(&text) && !advice.contains("starts in"), "{advice}");
    scene.wait(Duration::from_secs(100));
    assert_eq!((scene.repairs().len(), is_paused(&scene.gone(&dead))), (1, paused));
    scene.ask(|reply| RepairCommand::Pause(repair, false, reply)).unwrap();
    assert_eq!(scene.gone(&dead).recovery, RecoveryState::Running);
    scene.wait(Duration::from_secs(10));
    assert!(scene.status().healthy);
    // The pause counts neither in the duration nor in the rate.
    let took = scene.history().iter().find_map(|event| match event {
        HistoryEvent::RepairEnded { took_ms, .. } => Some(*took_ms),
        _ => None,
    });
    assert!(took.is_some_and(|took| took < 20_000), "{took:?}");
}

#[test]
fn a_drain_without_room_is_a_warning_and_names_a_step_that_works() {
    let mut scene = Scene::new(4);
    scene.put("f", 1);
    let drain = RepairRequest { drain: Some("h3".into()), ..RepairRequest::default() };
    let to_one = RepairRequest { requestors: vec!["h1".into()], ..drain.clone() };
    let failed = scene.repair(to_one);
    assert_eq!(failed.state, RepairState::Failed, "{failed:#?}");
    scene.start("h5");
    scene.wait(Duration::from_secs(70));
    let status = scene.status();
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
    let lost = scene.history().into_iter().find_map(|event| match event {
        HistoryEvent::RepairEnded { lost_from, .. } => Some(lost_from),
        _ => None,
    });
    assert_eq!(lost, Some(BTreeMap::new()), "a drain has lost nothing");
    assert_eq!(scene.repair(drain).state, RepairState::Done);
    scene.wait(Duration::from_secs(2));
    assert_eq!(scene.status().severity, Severity::Ok);
}
