//! Automatic repairs of single stripes, in Mend's own store.

use crate::commands::{ClusterCommand, NodeCommand, RepairCommand, ScrubCommand};
use std::time::Duration;

use super::*;
use crate::HealPolicy;
use store_api::{BlockRecord, BlockState, StoreChange, StripeRecord, Writers};
use views::{FileStripe, MaintenanceRequest, RepairState, SettingsRequest};

fn cluster(helpers: usize) -> TestCluster {
    let mut cluster = TestCluster::new(helpers);
    cluster.core().base.settings.heal = Some(HealPolicy { dry_run: false });
    cluster
}

impl TestCluster {
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
    let mut cluster = cluster(4);
    let file = cluster.put("f", 1);
    cluster.set_repair_after("never");
    cluster.rotten.insert(block(&file, 3));
    cluster.ask(|reply| ScrubCommand::Start(false, reply)).unwrap();
    cluster.play();
    cluster.rotten.clear();
    cluster.wait(Duration::from_secs(100));
    assert_eq!(cluster.all_repairs().len(), 0);
    assert!(details(&cluster.status()).concat().contains("mend repair --all"));
    cluster.set_repair_after("1h");
    cluster.wait(Duration::from_secs(3));
    assert!(cluster.status().healthy);
    let repairs = cluster.all_repairs();
    assert_eq!((repairs.len(), repairs[0].state, repairs[0].by_itself), (1, RepairState::Done, true));
}

/// Orders that are being recorded count as open repairs.
#[test]
fn few_automatic_repairs_are_ordered_while_the_storage_hangs() {
    let mut cluster = cluster(4);
    let file = cluster.put("f", 50);
    cluster.set_repair_after("never");
    cluster.find_first_blocks_rotten(&file);
    cluster.set_repair_after("1h");
    cluster.stuck = true;
    cluster.wait(Duration::from_secs(30));
    assert_eq!(cluster.core().storing.orders().count(), 32);
}

/// Repairs that an earlier coordinator ordered count too.
#[test]
fn few_automatic_repairs_are_open_after_a_restart() {
    let mut cluster = cluster(4);
    let file = cluster.put("f", 50);
    cluster.set_repair_after("never");
    cluster.find_first_blocks_rotten(&file);
    cluster.freeze_all();
    cluster.set_repair_after("1h");
    let open = |cluster: &mut TestCluster| {
        cluster.all_repairs().iter().filter(|repair| !repair.state.has_ended()).count()
    };
    cluster.wait(Duration::from_secs(3));
    assert_eq!(open(&mut cluster), 32);
    cluster.restart();
    cluster.core().base.settings.heal = Some(HealPolicy { dry_run: false });
    (1..=4).for_each(|number| cluster.start(&format!("h{number}")));
    cluster.wait(Duration::from_secs(5));
    assert!(!cluster.status().settling);
    assert_eq!(open(&mut cluster), 32);
}

/// The store refuses every helper that could take the first blocks of most stripes. Of 400 stripes, more are
/// refused than may be open at a time.
#[test]
fn repairs_that_the_store_refuses_do_not_keep_others_waiting() {
    for (stripes, open_at_once) in [(80, 32), (400, 256)] {
        let mut cluster = cluster(4);
        let file = cluster.put("f", stripes);
        cluster.set_repair_after("never");
        cluster.core().base.store.writers = Writers::Others;
        cluster.find_first_blocks_rotten(&file);
        cluster.rotten.clear();
        for name in ["h1", "h2", "h3"] {
            let node = cluster.node(name).node.unwrap();
            cluster.distrusted.insert(node);
        }
        let first = |part: &FileStripe| {
            let block = &part.stripe.blocks[0];
            (block.node.clone(), block.state.name())
        };
        let is_refused = |part: &&FileStripe| first(part).0.as_deref() != Some("h4");
        let last = file.layout.iter().rposition(|part| !is_refused(&part)).expect("some can be repaired");
        assert!(file.layout[..last].iter().filter(is_refused).count() > open_at_once);
        cluster.set_repair_after("1h");
        for _ in 0..24 {
            cluster.wait(Duration::from_secs(5));
            let repairs = &cluster.core().repairs;
            let known = repairs.claims.all_stuck().count();
            assert_eq!(known, repairs.refused_by_store().len(), "those of ended repairs are forgotten");
        }
        for part in &cluster.file("f").layout {
            assert_eq!(first(part).1, if is_refused(&part) { "corrupt" } else { "healthy" });
        }
        let has_given_up = cluster.all_repairs().iter().any(|repair| repair.state == RepairState::Failed);
        assert!(has_given_up || open_at_once == 32, "more than 256 were refused");
    }
}

#[test]
fn repairs_of_stripes_that_another_program_has_locked_do_not_keep_others_waiting() {
    let mut cluster = cluster(4);
    let file = cluster.put("f", 50);
    cluster.set_repair_after("never");
    cluster.core().base.store.writers = Writers::Others;
    cluster.find_first_blocks_rotten(&file);
    cluster.rotten.clear();
    let locked = file.layout[..49].iter().map(|part| BlockId(part.stripe.blocks[0].block.clone()));
    cluster.unclaimable.extend(locked);
    cluster.set_repair_after("1h");
    cluster.wait(Duration::from_secs(30));
    let states: Vec<&str> =
        cluster.file("f").layout.iter().map(|part| part.stripe.blocks[0].state.name()).collect();
    assert_eq!(states, [vec!["corrupt"; 49], vec!["healthy"]].concat());
}

#[test]
fn stripes_without_redundancy_wait_a_minute_and_single_losses_the_full_period() {
    let mut cluster = cluster(8);
    let file = cluster.put("f", 12);
    let (first, second) = (home(&file, 0), home(&file, 1));
    cluster.set_repair_after("1h");
    cluster.wait(Duration::from_secs(200)); // `START_GRACE` is over.
    cluster.kill(&first);
    cluster.wait(Duration::from_secs(300));
    assert_eq!((cluster.all_repairs().len(), cluster.status().damage.waiting.len()), (0, 0));
    cluster.start(&first);
    cluster.kill(&first);
    cluster.kill(&second);
    cluster.wait(Duration::from_secs(2));
    let status = cluster.status();
    assert_eq!(
        (status.damage.waiting.len(), status.damage.waiting[0].survives),
        (1, 0),
        "{:?}",
        status.damage.waiting
    );
    assert!(
        details(&status).iter().any(|advice| *advice == status.damage.waiting[0].text),
        "{:?}",
        details(&status)
    );
    cluster.wait(Duration::from_secs(70));
    let status = cluster.status();
    let classes = &status.stripes.redundancy;
    assert!(classes.iter().all(|class| class.survives > 0), "{classes:?}");
    assert!(classes.iter().any(|class| class.survives == 1 && class.degraded > 0), "{classes:?}");
    assert!(cluster.all_repairs().iter().all(|repair| repair.by_itself && !repair.target.contains("node")));
    cluster.wait(Duration::from_secs(3600));
    assert!(cluster.status().healthy, "the others when their helpers are given up");
}

/// Returns a stripe with its blocks on these nodes.
fn stripe_on(number: usize, homes: [NodeId; 4]) -> StripeRecord {
    let id = StripeId(format!("{number}-abcdef"));
    let block = |(index, home): (usize, NodeId)| BlockRecord {
        id: BlockId(format!("{id}.{index}")),
        bytes: 4096,
        node: Some(home),
        state: BlockState::Healthy,
        replicas: Vec::new(),
        digest: None,
    };
    StripeRecord {
        code: "rs-4-2".parse().unwrap(),
        block_bytes: 4096,
        chunk_bytes: None,
        blocks: homes.into_iter().enumerate().map(block).collect(),
        file: None,
        id,
    }
}

/// One check considers at most 2,048 of them.
#[test]
fn all_stripes_in_a_shortened_grace_period_are_counted() {
    const STRIPES: usize = 2100;
    let mut cluster = cluster(6);
    cluster.set_repair_after("1h");
    cluster.wait(Duration::from_secs(200)); // `START_GRACE` is over.
    let node = |number: usize| cluster.nodes[&format!("h{number}")].node.unwrap();
    let homes = [[1, 2, 3, 4], [1, 2, 5, 6]].map(|homes| homes.map(node));
    let stripes = (0..STRIPES).map(|number| StoreChange::Stripe(stripe_on(number, homes[number % 2]), false));
    let stripes: Vec<StoreChange> = stripes.collect();
    cluster.handle(Event::Changed(stripes));
    cluster.kill("h1");
    cluster.kill("h2");
    cluster.wait(Duration::from_secs(1));
    for _ in 0..3 {
        cluster.wait(Duration::from_secs(1));
        let waiting = cluster.status().damage.waiting;
        let [waiting] = &waiting[..] else { panic!("{waiting:?}") };
        assert_eq!((waiting.survives, waiting.stripes), (0, STRIPES as u64));
        assert!(
            waiting.text.contains("repair of 2100 stripes that cannot lose another block"),
            "{waiting:?}"
        );
    }
}

#[test]
fn maintenance_delays_only_the_blocks_of_its_own_helper() {
    let mut cluster = cluster(8);
    let file = cluster.put("f", 1);
    let (tended, dead) = (home(&file, 0), home(&file, 1));
    cluster.set_repair_after("30m");
    cluster.wait(Duration::from_secs(200));
    let request = MaintenanceRequest { for_ms: 20 * 60_000 };
    cluster.ask(|reply| NodeCommand::Maintain(tended.clone(), request, reply)).unwrap();
    cluster.kill(&tended);
    cluster.kill(&dead);
    cluster.wait(Duration::from_secs(70));
    let states = states(&cluster.file("f")).into_iter().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(states, ["down", "healthy", "healthy", "healthy"], "it can lose a block again, and waits");
    cluster.wait(Duration::from_secs(600));
    assert_eq!(cluster.file("f").layout[0].stripe.blocks[0].state.name(), "down");
}

#[test]
fn a_helper_that_returns_with_an_empty_disk_gets_a_grace_period() {
    let mut cluster = cluster(5);
    let file = cluster.put("f", 6);
    let name = home(&file, 0);
    cluster.set_repair_after("5m");
    cluster.wait(Duration::from_secs(200));
    cluster.kill(&name);
    let disk = std::mem::take(&mut cluster.node(&name).disk);
    cluster.start(&name);
    cluster.wait(Duration::from_secs(100));
    assert_eq!(cluster.all_repairs().len(), 0, "its disk may be mounted yet");
    let advice = details(&cluster.status()).concat();
    assert!(advice.contains(&name) && advice.contains("mounted"), "{advice}");
    cluster.kill(&name);
    cluster.node(&name).disk = disk;
    cluster.start(&name);
    cluster.wait(Duration::from_secs(5));
    assert!(cluster.status().healthy && cluster.all_repairs().is_empty());
    // A helper that lacks a single block of many is not treated like one with an empty disk.
    cluster.node(&name).disk.remove(&block(&file, 0));
    cluster.ask(|reply| ScrubCommand::Start(false, reply)).unwrap();
    cluster.play();
    cluster.wait(Duration::from_secs(3));
    assert!(cluster.status().healthy && cluster.all_repairs().len() == 1);
}

// ---- other orders of the same stripe ----

impl TestCluster {
    /// Has a scrub find these blocks corrupt. Afterwards they are good again on their disks.
    fn find_rot(&mut self, file: &FileLayout, indices: &[usize]) {
        self.rotten.extend(indices.iter().map(|&index| block(file, index)));
        self.ask(|reply| ScrubCommand::Start(false, reply)).unwrap();
        self.play();
        self.rotten.clear();
    }

    /// Has a scrub find the first block of every stripe corrupt.
    fn find_first_blocks_rotten(&mut self, file: &FileLayout) {
        self.rotten.extend(file.layout.iter().map(|part| BlockId(part.stripe.blocks[0].block.clone())));
        self.ask(|reply| ScrubCommand::Start(false, reply)).unwrap();
        self.play();
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
    let mut cluster = cluster(7);
    let file = cluster.put("f", 1);
    let drain = cluster.hanging_drain(&file);
    cluster.find_rot(&file, &[1]);
    cluster.wait(Duration::from_secs(2));
    assert_eq!(cluster.states_of("f"), ["healthy"; 4]);
    let repairs = cluster.all_repairs();
    assert_eq!(repairs.len(), 2, "{repairs:#?}");
    let healed = &repairs[1];
    assert!(
        healed.by_itself && healed.state == RepairState::Done && healed.counts.blocks_rebuilt == 1,
        "{healed:#?}"
    );
    cluster.wait(Duration::from_secs(10));
    let drain = cluster.repair_state(drain);
    assert_eq!((drain.state, drain.counts.blocks_rebuilt), (RepairState::Done, 1), "it goes on: {drain:#?}");
}

/// Otherwise the copy would take the place of the rebuilt block, and so would its digest, which the repair may have
/// replaced.
#[test]
fn a_found_copy_is_not_recorded_while_a_rebuilt_block_is() {
    let mut cluster = TestCluster::new(7);
    let file = cluster.put("f", 1);
    let lost = block(&file, 3);
    cluster.kill(&home(&file, 3));
    cluster.freeze_all();
    cluster.repair_all();
    cluster.stuck = true;
    cluster.frozen.clear();
    cluster.wait(Duration::from_secs(2));
    let helpers = (1..=7).map(|number| format!("h{number}"));
    let (homes, others): (Vec<_>, Vec<_>) = helpers
        .filter(|name| (0..4).all(|index| home(&file, index) != *name))
        .partition(|name| cluster.nodes[name].disk.contains_key(&lost));
    let ([rebuilt_on], other) = (&homes[..], &others[0]) else { panic!("it is rebuilt once: {homes:?}") };
    cluster.kill(other);
    cluster.node(other).disk.insert(lost, 4096);
    cluster.start(other);
    cluster.wait(Duration::from_secs(2));
    assert!(cluster.node(other).verified > 0, "its copy was found");
    cluster.stuck = false;
    cluster.wait(Duration::from_secs(2));
    assert_eq!(home(&cluster.file("f"), 3), *rebuilt_on);
}

#[test]
fn a_paused_drain_of_the_stripe_does_not_hold_back_the_repair_of_rot() {
    let mut cluster = cluster(7);
    let file = cluster.put("f", 1);
    let drain = cluster.hanging_drain(&file);
    cluster.pause(drain);
    cluster.find_rot(&file, &[1, 2]);
    assert_eq!(cluster.states_of("f"), ["healthy", "corrupt", "corrupt", "healthy"]);
    cluster.wait(Duration::from_secs(12));
    assert_eq!(cluster.states_of("f"), ["healthy"; 4]);
    assert_eq!(cluster.repair_state(drain).state, RepairState::Paused);
}

#[test]
fn a_paused_repair_of_all_does_not_hold_back_the_repair_of_rot() {
    let mut cluster = cluster(7);
    let file = cluster.put("f", 1);
    cluster.core().base.settings.heal = None;
    cluster.find_rot(&file, &[1]);
    cluster.freeze_all();
    let all = cluster.repair_all().repair;
    cluster.pause(all);
    cluster.frozen.clear();
    cluster.wait(Duration::from_secs(3));
    assert!(!cluster.status().healthy);
    cluster.core().base.settings.heal = Some(HealPolicy { dry_run: false });
    cluster.wait(Duration::from_secs(3));
    assert!(cluster.status().healthy);
}

#[test]
fn a_repair_that_will_rebuild_the_block_stands_in_for_an_automatic_one() {
    let mut cluster = cluster(7);
    let file = cluster.put("f", 1);
    cluster.core().base.settings.heal = None;
    cluster.find_rot(&file, &[1]);
    cluster.freeze_all();
    cluster.repair_all();
    cluster.core().base.settings.heal = Some(HealPolicy { dry_run: false });
    cluster.wait(Duration::from_secs(3));
    cluster.frozen.clear();
    cluster.wait(Duration::from_secs(5));
    assert!(cluster.status().healthy && cluster.all_repairs().len() == 1, "{:#?}", cluster.all_repairs());
}

#[test]
fn a_repair_in_the_background_does_not_stand_in_for_an_automatic_one() {
    let mut cluster = cluster(7);
    let file = cluster.put("f", 1);
    cluster.hanging_drain(&file);
    cluster.core().base.settings.heal = None;
    cluster.find_rot(&file, &[1]);
    let stripe = Some(file.layout[0].stripe.stripe.clone());
    let priority = Some("background".to_owned());
    let request = RepairRequest { stripe, priority, ..RepairRequest::default() };
    cluster.ask(|reply| RepairCommand::Queue(request.into(), reply)).unwrap();
    cluster.core().base.settings.heal = Some(HealPolicy { dry_run: false });
    cluster.wait(Duration::from_secs(2));
    assert_eq!(cluster.states_of("f"), ["healthy"; 4]);
    let repairs = cluster.all_repairs();
    assert!(repairs.len() == 3 && repairs[2].by_itself, "{repairs:#?}");
}

#[test]
fn a_paused_automatic_repair_is_not_repeated_and_the_status_names_it() {
    let mut cluster = cluster(7);
    let file = cluster.put("f", 1);
    cluster.freeze_all();
    cluster.rotten.insert(block(&file, 1));
    cluster.frozen.remove(&home(&file, 1));
    cluster.ask(|reply| ScrubCommand::Start(false, reply)).unwrap();
    cluster.play();
    cluster.freeze_all();
    cluster.wait(Duration::from_secs(2));
    let repair = cluster.all_repairs()[0].repair;
    cluster.pause(repair);
    for _ in 0..2 {
        cluster.wait(Duration::from_secs(60));
        let advice = details(&cluster.status()).concat();
        assert!(
            advice.contains("1 automatic repair of lost blocks is paused"),
            "{advice} {:#?}",
            cluster.status()
        );
        assert!(
            advice.contains(&format!("mend resume {repair}")) && !advice.contains("by itself"),
            "{advice}"
        );
        assert_eq!(cluster.all_repairs().len(), 1);
        // The same holds after a restart.
        cluster.restart();
        cluster.frozen.clear();
        cluster.core().base.settings.heal = Some(HealPolicy { dry_run: false });
        (1..=7).for_each(|number| cluster.start(&format!("h{number}")));
    }
    cluster.rotten.clear();
    cluster.ask(|reply| RepairCommand::Pause(repair, false, reply)).unwrap();
    cluster.wait(Duration::from_secs(5));
    assert!(cluster.status().healthy);
}
