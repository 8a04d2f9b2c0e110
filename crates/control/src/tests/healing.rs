//! Automatic repairs of single stripes, in Mend's own store.

use crate::commands::{ClusterCommand, NodeCommand, RepairCommand, ScrubCommand};
use std::time::Duration;

use super::*;
use crate::HealPolicy;
use views::{MaintenanceRequest, RepairState, SettingsRequest};

fn scene(helpers: usize) -> Scene {
    let mut scene = Scene::new(helpers);
    scene.core().base.settings.heal = Some(HealPolicy { dry_run: false });
    scene
}

impl Scene {
    fn set_repair_after(&mut self, after: &str) {
        let request = SettingsRequest { repair_after: Some(after.into()) };
        self.ask(|reply| ClusterCommand::ChangeSettings(request, reply)).unwrap();
    }

    fn all_repairs(&mut self) -> Vec<RepairView> {
        self.ask(RepairCommand::List).unwrap()
    }
}

#[test]
fn corrupt_blocks_are_repaired_at_once_unless_automatic_repair_is_off() {
    let mut scene = scene(4);
    let file = scene.put("f", 1);
    scene.set_repair_after("never");
    scene.rotten.insert(block(&file, 3));
    scene.ask(|reply| ScrubCommand::Start(false, reply)).unwrap();
    scene.play();
    scene.rotten.clear();
    scene.wait(Duration::from_secs(100));
    assert_eq!(scene.all_repairs().len(), 0);
    assert!(scene.status().advice.concat().contains("mend repair --all"));
    scene.set_repair_after("1h");
    scene.wait(Duration::from_secs(3));
    assert!(scene.status().healthy);
    let repairs = scene.all_repairs();
    assert_eq!((repairs.len(), repairs[0].state, repairs[0].by_itself), (1, RepairState::Done, true));
}

#[test]
fn stripes_without_redundancy_wait_a_minute_and_single_losses_the_full_period() {
    let mut scene = scene(8);
    let file = scene.put("f", 12);
    let (first, second) = (home(&file, 0), home(&file, 1));
    scene.set_repair_after("1h");
    scene.wait(Duration::from_secs(200)); // `START_GRACE` is over.
    scene.kill(&first);
    scene.wait(Duration::from_secs(300));
    assert_eq!((scene.all_repairs().len(), scene.status().damage.waiting.len()), (0, 0));
    scene.start(&first);
    scene.kill(&first);
    scene.kill(&second);
    scene.wait(Duration::from_secs(2));
    let status = scene.status();
    assert_eq!(
        (status.damage.waiting.len(), status.damage.waiting[0].survives),
        (1, 0),
        "{:?}",
        status.damage.waiting
    );
    assert!(
        status.advice.iter().any(|advice| *advice == status.damage.waiting[0].text),
        "{:?}",
        status.advice
    );
    scene.wait(Duration::from_secs(70));
    let status = scene.status();
    let classes = &status.stripes.redundancy;
    assert!(classes.iter().all(|class| class.survives > 0), "{classes:?}");
    assert!(classes.iter().any(|class| class.survives == 1 && class.degraded > 0), "{classes:?}");
    assert!(scene.all_repairs().iter().all(|repair| repair.by_itself && !repair.target.contains("node")));
    scene.wait(Duration::from_secs(3600));
    assert!(scene.status().healthy, "the others when their helpers are given up");
}

#[test]
fn maintenance_delays_only_the_blocks_of_its_own_helper() {
    let mut scene = scene(8);
    let file = scene.put("f", 1);
    let (tended, dead) = (home(&file, 0), home(&file, 1));
    scene.set_repair_after("30m");
    scene.wait(Duration::from_secs(200));
    let request = MaintenanceRequest { for_ms: 20 * 60_000 };
    scene.ask(|reply| NodeCommand::Maintain(tended.clone(), request, reply)).unwrap();
    scene.kill(&tended);
    scene.kill(&dead);
    scene.wait(Duration::from_secs(70));
    let states = states(&scene.file("f")).into_iter().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(states, ["down", "healthy", "healthy", "healthy"], "it can lose a block again, and waits");
    scene.wait(Duration::from_secs(600));
    assert_eq!(scene.file("f").layout[0].stripe.blocks[0].state.name(), "down");
}

#[test]
fn a_helper_that_returns_with_an_empty_disk_gets_a_grace_period() {
    let mut scene = scene(5);
    let file = scene.put("f", 6);
    let name = home(&file, 0);
    scene.set_repair_after("5m");
    scene.wait(Duration::from_secs(200));
    scene.kill(&name);
    let disk = std::mem::take(&mut scene.node(&name).disk);
    scene.start(&name);
    scene.wait(Duration::from_secs(100));
    assert_eq!(scene.all_repairs().len(), 0, "its disk may be mounted yet");
    let advice = scene.status().advice.concat();
    assert!(advice.contains(&name) && advice.contains("mounted"), "{advice}");
    scene.kill(&name);
    scene.node(&name).disk = disk;
    scene.start(&name);
    scene.wait(Duration::from_secs(5));
    assert!(scene.status().healthy && scene.all_repairs().is_empty());
    // A helper that lacks a single block of many is not treated like one with an empty disk.
    scene.node(&name).disk.remove(&block(&file, 0));
    scene.ask(|reply| ScrubCommand::Start(false, reply)).unwrap();
    scene.play();
    scene.wait(Duration::from_secs(3));
    assert!(scene.status().healthy && scene.all_repairs().len() == 1);
}

// ---- other orders of the same stripe ----

impl Scene {
    /// Has a scrub find these blocks corrupt. Afterwards they are good again on their disks.
    fn find_rot(&mut self, file: &FileLayout, indices: &[usize]) {
        self.rotten.extend(indices.iter().map(|&index| block(file, index)));
        self.ask(|reply| ScrubCommand::Start(false, reply)).unwrap();
        self.play();
        self.rotten.clear();
    }

    fn freeze_all(&mut self) {
        let all: Vec<String> = self.nodes.keys().cloned().collect();
        self.frozen.extend(all);
    }

    /// Starts a drain of the holder of block 0, and drops the messages that would make its job move slices.
    /// Returns the number of the drain.
    fn hanging_drain(&mut self, file: &FileLayout) -> u64 {
        self.freeze_all();
        let drain = Some(home(file, 0));
        let request = RepairRequest { drain, way: Some("migrate".into()), ..RepairRequest::default() };
        let drain = self.repair(request).repair;
        for node in self.nodes.values_mut() {
            node.backlog.append(&mut node.inbox);
            node.backlog.retain(|message| !matches!(message, ToNode::Assign(_)));
        }
        self.frozen.clear();
        self.play();
        assert_eq!(self.status().work.jobs.len(), 1, "its job runs");
        drain
    }

    fn pause(&mut self, repair: u64) {
        self.ask(|reply| RepairCommand::Pause(repair, true, reply)).unwrap();
    }

    fn states_of(&mut self, name: &str) -> Vec<String> {
        states(&self.file(name)).into_iter().map(str::to_owned).collect()
    }
}

#[test]
fn a_running_drain_of_the_stripe_gives_way_to_the_repair_of_rot() {
    let mut scene = scene(7);
    let file = scene.put("f", 1);
    let drain = scene.hanging_drain(&file);
    scene.find_rot(&file, &[1]);
    scene.wait(Duration::from_secs(2));
    assert_eq!(scene.states_of("f"), ["healthy"; 4]);
    let repairs = scene.all_repairs();
    assert_eq!(repairs.len(), 2, "{repairs:#?}");
    let healed = &repairs[1];
    assert!(
        healed.by_itself && healed.state == RepairState::Done && healed.counts.blocks_rebuilt == 1,
        "{healed:#?}"
    );
    scene.wait(Duration::from_secs(10));
    let drain = scene.repair_state(drain);
    assert_eq!((drain.state, drain.counts.blocks_rebuilt), (RepairState::Done, 1), "it goes on: {drain:#?}");
}

#[test]
fn a_paused_drain_of_the_stripe_does_not_hold_back_the_repair_of_rot() {
    let mut scene = scene(7);
    let file = scene.put("f", 1);
    let drain = scene.hanging_drain(&file);
    scene.pause(drain);
    scene.find_rot(&file, &[1, 2]);
    assert_eq!(scene.states_of("f"), ["healthy", "corrupt", "corrupt", "healthy"]);
    scene.wait(Duration::from_secs(12));
    assert_eq!(scene.states_of("f"), ["healthy"; 4]);
    assert_eq!(scene.repair_state(drain).state, RepairState::Paused);
}

#[test]
fn a_paused_repair_of_all_does_not_hold_back_the_repair_of_rot() {
    let mut scene = scene(7);
    let file = scene.put("f", 1);
    scene.core().base.settings.heal = None;
    scene.find_rot(&file, &[1]);
    scene.freeze_all();
    let all = scene.repair_all().repair;
    scene.pause(all);
    scene.frozen.clear();
    scene.wait(Duration::from_secs(3));
    assert!(!scene.status().healthy);
    scene.core().base.settings.heal = Some(HealPolicy { dry_run: false });
    scene.wait(Duration::from_secs(3));
    assert!(scene.status().healthy);
}

#[test]
fn a_repair_that_will_rebuild_the_block_stands_in_for_an_automatic_one() {
    let mut scene = scene(7);
    let file = scene.put("f", 1);
    scene.core().base.settings.heal = None;
    scene.find_rot(&file, &[1]);
    scene.freeze_all();
    scene.repair_all();
    scene.core().base.settings.heal = Some(HealPolicy { dry_run: false });
    scene.wait(Duration::from_secs(3));
    scene.frozen.clear();
    scene.wait(Duration::from_secs(5));
    assert!(scene.status().healthy && scene.all_repairs().len() == 1, "{:#?}", scene.all_repairs());
}

#[test]
fn a_paused_automatic_repair_is_not_repeated_and_the_status_names_it() {
    let mut scene = scene(7);
    let file = scene.put("f", 1);
    scene.freeze_all();
    scene.rotten.insert(block(&file, 1));
    scene.frozen.remove(&home(&file, 1));
    scene.ask(|reply| ScrubCommand::Start(false, reply)).unwrap();
    scene.play();
    scene.freeze_all();
    scene.wait(Duration::from_secs(2));
    let repair = scene.all_repairs()[0].repair;
    scene.pause(repair);
    for _ in 0..2 {
        scene.wait(Duration::from_secs(60));
        let advice = scene.status().advice.concat();
        assert!(
            advice.contains("1 automatic repair of lost blocks is paused"),
            "{advice} {:#?}",
            scene.status()
        );
        assert!(
            advice.contains(&format!("mend resume {repair}")) && !advice.contains("by itself"),
            "{advice}"
        );
        assert_eq!(scene.all_repairs().len(), 1);
        // The same holds after a restart.
        scene.restart();
        scene.frozen.clear();
        scene.core().base.settings.heal = Some(HealPolicy { dry_run: false });
        (1..=7).for_each(|number| scene.start(&format!("h{number}")));
    }
    scene.rotten.clear();
    scene.ask(|reply| RepairCommand::Pause(repair, false, reply)).unwrap();
    scene.wait(Duration::from_secs(5));
    assert!(scene.status().healthy);
}
