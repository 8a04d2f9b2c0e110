//! Node recoveries, drains, pauses and caps, and helpers that return during a repair.

use crate::HealPolicy;
use crate::commands::{NetworkCommand, NodeCommand, RepairCommand, ScrubCommand};
use repair::Caps;
use store_api::{StoreChange, Writers};
use views::{CapsRequest, CapsView, ConditionCode, JobPhase, NodeView};

use super::*;

impl TestCluster {
    fn node_view(&mut self, name: &str) -> NodeView {
        let views: Vec<NodeView> = self.ask(NodeCommand::List).unwrap();
        views.into_iter().find(|view| view.name == name).unwrap()
    }

    fn drain(&mut self, name: &str, way: Option<&str>) -> RepairView {
        let way = way.map(str::to_owned);
        self.repair(RepairRequest { drain: Some(name.into()), way, ..RepairRequest::default() })
    }

    fn cap(&mut self, request: CapsRequest) -> CapsView {
        self.ask(|reply| NetworkCommand::ChangeCaps(request, reply)).unwrap()
    }

    /// Returns the last caps among the messages that a helper has not handled yet.
    fn told(&mut self, name: &str) -> Option<Caps> {
        let node = self.node(name);
        let waiting: Vec<ToNode> = node.inbox.drain(..).collect();
        let told: Vec<Caps> = std::mem::take(&mut node.backlog)
            .into_iter()
            .chain(waiting)
            .filter_map(|message| if let ToNode::Limits(caps) = message { Some(caps) } else { None })
            .collect();
        told.last().copied()
    }

    /// Restarts the coordinator and reconnects all helpers except `gone`.
    fn restart_all(&mut self, gone: &[&str]) {
        self.restart();
        let names: Vec<String> = self.nodes.keys().filter(|name| name.starts_with('h')).cloned().collect();
        names.iter().filter(|name| !gone.contains(&name.as_str())).for_each(|name| self.start(name));
        let client = FromNode::RegisterClient { version: control::VERSION, bandwidth: None, rack: None };
        self.join("admin", Role::Client("admin".parse().unwrap()), client);
        self.wait(Duration::from_secs(12));
    }

    fn freeze(&mut self) {
        let all: Vec<String> = self.nodes.keys().cloned().collect();
        self.frozen.extend(all);
    }

    fn thaw(&mut self) {
        self.frozen.clear();
        self.play();
        self.wait(Duration::from_secs(5));
    }
}

#[test]
fn a_dead_node_is_recovered_onto_the_named_helpers() {
    let mut cluster = TestCluster::new(7);
    cluster.put("f", 12);
    let request = RepairRequest { node: Some("h1".into()), ..RepairRequest::default() };
    let up = cluster.ask(|reply| RepairCommand::Queue(request.clone().into(), reply)).unwrap_err();
    assert!(up.to_string().starts_with("helper h1 is up"), "{up}");
    cluster.kill("h1");
    let lost = cluster.node_view("h1").blocks;
    let before: u64 = ["h6", "h7"].iter().map(|name| cluster.node_view(name).blocks).sum();
    let request = RepairRequest { requestors: vec!["h6".into(), "h7".into()], ..request };
    let repair = cluster.repair(request);
    let rebuilt_there = ["h6", "h7"].iter().map(|name| cluster.node_view(name).blocks).sum::<u64>() - before;
    assert!(rebuilt_there > 0 && rebuilt_there == repair.counts.blocks_rebuilt, "{repair:#?}");
    assert!(repair.counts.blocks_rebuilt <= lost);
    // An item fails if its stripe has blocks on both named helpers, because its lost block cannot be placed
    // then.
    assert!(repair.items.iter().all(|item| ["done", "failed"].contains(&item.state.name())), "{repair:#?}");
}

#[test]
fn a_drained_node_gets_no_blocks_until_its_mark_is_cleared() {
    let mut cluster = TestCluster::new(6);
    cluster.put("f", 12);
    let held = cluster.node_view("h2").blocks;
    let drain = cluster.drain("h2", None);
    assert_eq!((drain.state.name(), drain.counts.blocks_rebuilt), ("done", held), "{drain:#?}");
    let leaving = cluster.status().helpers.leaving;
    assert_eq!((leaving[0].node.as_str(), leaving[0].blocks, leaving[0].safe_to_remove), ("h2", 0, true));
    cluster.restart_all(&[]);
    cluster.put("g", 12);
    assert_eq!(cluster.node_view("h2").blocks, 0);
    cluster.kill("h1");
    cluster.repair_all();
    assert_eq!(cluster.node_view("h2").blocks, 0);
    let view = cluster.ask(|reply| NodeCommand::StopDrain("h2".into(), reply)).unwrap();
    assert!(!view.leaving && cluster.status().helpers.leaving.is_empty());
    let again = cluster.ask(|reply| NodeCommand::StopDrain("h2".into(), reply));
    assert_eq!(again.unwrap_err().to_string(), "helper h2 is not being drained");
    cluster.put("e", 12);
    assert!(cluster.node_view("h2").blocks > 0);
}

#[test]
fn a_drain_uses_the_requested_way() {
    let mut cluster = TestCluster::new(7);
    cluster.put("f", 12);
    let schemes = |repair: &RepairView| -> BTreeSet<String> {
        repair.items.iter().filter_map(|item| item.scheme.clone()).collect()
    };
    let copied = cluster.drain("h1", Some("migrate"));
    assert_eq!(schemes(&copied), BTreeSet::from(["migration".to_owned()]));
    let rebuilt = cluster.drain("h2", Some("rebuild"));
    assert_eq!(schemes(&rebuilt), BTreeSet::from(["pipelined".to_owned()]));
    let request =
        RepairRequest { drain: Some("h3".into()), way: Some("burn".into()), ..RepairRequest::default() };
    let error = cluster.ask(|reply| RepairCommand::Queue(request.into(), reply)).unwrap_err();
    assert!(error.to_string().contains("both, migrate and rebuild"), "{error}");
}

#[test]
fn a_drain_of_a_dead_node_continues_after_a_restart_and_repairs_no_block_twice() {
    let mut cluster = TestCluster::new(7);
    cluster.put("f", 30);
    let held = cluster.node_view("h3").blocks;
    cluster.freeze();
    let drain = cluster.drain("h3", None).repair;
    cluster.kill("h3");
    cluster.frozen.clear();
    cluster.restart_all(&["h3"]);
    cluster.wait(Duration::from_secs(60));
    let view = cluster.repair_state(drain);
    assert_eq!((view.state.name(), view.target.as_str()), ("done", "drain h3"), "{view:#?}");
    assert_eq!(view.counts.blocks_rebuilt, held);
    assert_eq!(cluster.node_view("h3").blocks, 0);
}

#[test]
fn blocks_in_migration_are_rebuilt_when_their_source_dies() {
    let mut cluster = TestCluster::new(7);
    cluster.put("f", 8);
    let held = cluster.node_view("h3").blocks;
    cluster.freeze();
    let drain = cluster.drain("h3", Some("migrate")).repair;
    cluster.kill("h3");
    cluster.thaw();
    cluster.wait(Duration::from_secs(10));
    let view = cluster.repair_state(drain);
    assert_eq!((view.state.name(), view.counts.blocks_rebuilt), ("done", held), "{view:#?}");
}

/// Otherwise the node that helps instead gets more work than its budget allows.
#[test]
fn a_job_that_makes_another_plan_reserves_what_that_plan_moves() {
    let mut cluster = TestCluster::new(7);
    let file = cluster.put("f", 1);
    cluster.kill(&home(&file, 0));
    cluster.freeze();
    cluster.repair_all();
    let core = cluster.core();
    let plan = core.jobs.running.values().next().unwrap().job.running_plan().unwrap();
    let helper = plan.node_costs().iter().find(|cost| cost.read_bytes > 0).unwrap().node;
    let name = core.nodes.name(helper);
    cluster.kill(&name);
    // The nodes stop the first plan. They are frozen again before they get the next one.
    cluster.frozen.clear();
    let answers = cluster.answers();
    cluster.freeze();
    answers.into_iter().for_each(|(name, answer)| cluster.say(&name, answer));
    let core = cluster.core();
    let plan = core.jobs.running.values().next().unwrap().job.running_plan().expect("it runs again");
    let loads = recovery::Loads::of(plan, true);
    let moves: BTreeMap<NodeId, u64> = loads.nodes.iter().map(|load| (load.node, load.sent_bytes)).collect();
    assert!(!moves.contains_key(&helper));
    let reserved = core.repairs.scheduler.reservations().filter(|(_, used, _)| used.jobs > 0);
    let reserved: BTreeMap<NodeId, u64> = reserved.map(|(node, used, _)| (node, used.up_bytes)).collect();
    assert_eq!(reserved, moves);
}

/// The estimated end of a repair depends on the bytes that are left.
#[test]
fn blocks_that_need_no_rebuild_any_more_are_not_left_to_move() {
    let mut cluster = TestCluster::new(7);
    cluster.put("f", 30);
    ["h1", "h2"].into_iter().for_each(|name| cluster.kill(name));
    cluster.freeze();
    let repair = cluster.repair_all().repair;
    cluster.frozen.remove("h1");
    cluster.start("h1");
    let core = cluster.core();
    let known = &core.repairs.queue.by_id[&repair];
    let has_ended = |id| matches!(core.repairs.scheduler.state(id), recovery::ItemState::Ended(_));
    let (ended, open): (Vec<_>, Vec<_>) = known.items.values().partition(|item| has_ended(item.id));
    assert!(!ended.is_empty() && !open.is_empty());
    let blocks: usize = open.iter().map(|item| item.blocks.len() - item.rebuilt.len()).sum();
    assert_eq!(known.bytes_left(0), blocks as u64 * 4096);
    let version = core.answers().repair_version(repair);
    assert_eq!(version, Some(cluster.repair_state(repair).version));
}

#[test]
fn an_ended_repair_cannot_be_cancelled_or_paused() {
    let mut cluster = TestCluster::new(5);
    cluster.put("f", 4);
    cluster.kill("h1");
    let repair = cluster.repair_all().repair;
    for error in [
        cluster.ask(|reply| RepairCommand::Cancel(repair, reply)).unwrap_err(),
        cluster.ask(|reply| RepairCommand::Pause(repair, true, reply)).unwrap_err(),
    ] {
        assert_eq!(error.to_string(), format!("repair {repair} has ended already: it is done"));
    }
}

#[test]
fn a_paused_repair_stays_paused_after_a_restart() {
    let mut cluster = TestCluster::new(6);
    cluster.put("f", 120);
    cluster.kill("h1");
    cluster.freeze();
    let repair = cluster.repair_all().repair;
    let running = cluster.status().work.jobs.len() as u64;
    assert_eq!(
        cluster.ask(|reply| RepairCommand::Pause(repair, true, reply)).unwrap().state.name(),
        "paused"
    );
    cluster.thaw();
    let view = cluster.repair_state(repair);
    assert_eq!((view.state.name(), view.counts.stripes_done), ("paused", 0), "what ran stands still");
    let jobs = cluster.status().work.jobs;
    assert!(jobs.len() as u64 == running && jobs.iter().all(|job| job.phase == JobPhase::OnHold), "{jobs:?}");
    cluster.restart_all(&["h1"]);
    assert_eq!(cluster.repair_state(repair).state.name(), "paused");
    cluster.ask(|reply| RepairCommand::Pause(repair, false, reply)).unwrap();
    cluster.wait(Duration::from_secs(30));
    assert_eq!(cluster.repair_state(repair).state.name(), "done");
}

/// A store that locks a whole cluster for a claim would be locked as long as the repair is paused.
#[test]
fn the_claims_of_jobs_on_hold_are_returned_until_the_repair_resumes() {
    let mut cluster = TestCluster::new(6);
    cluster.core().base.store.writers = Writers::Others;
    cluster.put("f", 40);
    cluster.kill("h1");
    cluster.freeze();
    let repair = cluster.repair_all().repair;
    cluster.wait(Duration::from_secs(1));
    let phases = |cluster: &mut TestCluster| -> BTreeSet<&str> {
        cluster.status().work.jobs.iter().map(|job| job.phase.name()).collect()
    };
    assert!(cluster.core().repairs.claims.granted() > 0, "{:?}", phases(&mut cluster));
    cluster.ask(|reply| RepairCommand::Pause(repair, true, reply)).unwrap();
    cluster.thaw();
    cluster.wait(Duration::from_secs(8));
    assert_eq!(cluster.core().repairs.claims.granted(), 0);
    assert_eq!(phases(&mut cluster), BTreeSet::from(["on-hold"]));
    // The store does not answer yet, so no job resumes.
    cluster.stuck = true;
    cluster.ask(|reply| RepairCommand::Pause(repair, false, reply)).unwrap();
    cluster.wait(Duration::from_secs(2));
    assert_eq!(phases(&mut cluster), BTreeSet::from(["on-hold"]));
    cluster.stuck = false;
    cluster.wait(Duration::from_secs(30));
    assert_eq!(cluster.repair_state(repair).state.name(), "done");
    cluster.wait(Duration::from_secs(8));
    assert_eq!(cluster.core().repairs.claims.granted(), 0);
}

/// Begins the repair of a stripe for which the store grants a claim. All nodes are frozen. Returns the number
/// of the repair.
fn claiming() -> (TestCluster, FileLayout, u64) {
    let mut cluster = TestCluster::new(6);
    cluster.core().base.store.writers = Writers::Others;
    let file = cluster.put("f", 1);
    cluster.kill(&home(&file, 0));
    cluster.freeze();
    let repair = cluster.repair_all().repair;
    cluster.wait(Duration::from_secs(1));
    assert_eq!(cluster.core().repairs.claims.granted(), 1);
    (cluster, file, repair)
}

/// The lock of a SeaweedFS cluster may break while a repair needs it.
#[test]
fn a_repair_whose_claim_is_lost_starts_again() {
    let (mut cluster, file, repair) = claiming();
    let stripe = StripeId(file.layout[0].stripe.stripe.clone());
    cluster.handle(Event::Changed(vec![StoreChange::ClaimLost(stripe)]));
    cluster.thaw();
    cluster.wait(Duration::from_secs(10));
    let view = cluster.repair_state(repair);
    assert_eq!((view.state.name(), view.counts.blocks_rebuilt), ("done", 1), "{view:#?}");
}

/// The lock breaks while a helper commits the block, so the store refuses to record the block. That says nothing about
/// the helper.
#[test]
fn a_repair_whose_claim_is_lost_during_a_commit_starts_again() {
    let (mut cluster, file, repair) = claiming();
    let stripe = StripeId(file.layout[0].stripe.stripe.clone());
    let core = cluster.core();
    let running = core.jobs.running.values().next().expect("it has begun");
    let (_, node) = running.job.targets().next().expect("it rebuilds a block");
    let target = core.nodes.name(node);
    cluster.frozen.clear();
    cluster.play_until_commit(&target);
    cluster.handle(Event::Changed(vec![StoreChange::ClaimLost(stripe.clone())]));
    cluster.stuck = true;
    cluster.frozen.clear();
    cluster.play();
    let core = cluster.core.as_mut().unwrap();
    let asks: Vec<Ask> = std::iter::from_fn(|| core.poll_storage()).collect();
    cluster.distrusted.insert(node);
    cluster.carry_out(asks).into_iter().for_each(|answer| cluster.take(answer));
    assert_eq!(cluster.refusals, 1);
    assert_eq!(cluster.core().repairs.refusals.of(&stripe).count(), 0);
    cluster.distrusted.clear();
    cluster.stuck = false;
    cluster.wait(Duration::from_secs(20));
    let view = cluster.repair_state(repair);
    assert_eq!((view.state.name(), view.counts.blocks_rebuilt), ("done", 1), "{view:#?}");
}

/// While the repair was paused, the node of its job has become unfit for the block.
#[test]
fn a_job_on_hold_whose_node_the_store_refuses_is_replaced_by_one_with_another_node() {
    let (mut cluster, _, repair) = claiming();
    cluster.ask(|reply| RepairCommand::Pause(repair, true, reply)).unwrap();
    cluster.thaw();
    cluster.wait(Duration::from_secs(8));
    let jobs = &cluster.core().jobs.running;
    let targets: Vec<NodeId> =
        jobs.values().flat_map(|running| running.job.targets()).map(|(_, node)| node).collect();
    assert_eq!(targets.len(), 1);
    cluster.distrusted.extend(targets);
    cluster.ask(|reply| RepairCommand::Pause(repair, false, reply)).unwrap();
    cluster.wait(Duration::from_secs(20));
    let view = cluster.repair_state(repair);
    assert_eq!((view.state.name(), view.counts.blocks_rebuilt), ("done", 1), "{view:#?}");
}

/// Returns a cluster with a stripe that has lost a block whose automatic repair the store refuses again and again.
fn refusing() -> (TestCluster, FileLayout) {
    let mut cluster = TestCluster::new(6);
    cluster.core().base.settings.heal = Some(HealPolicy { dry_run: false });
    let file = cluster.put("f", 1);
    cluster.core().base.store.writers = Writers::Others;
    cluster.rotten.insert(block(&file, 3));
    cluster.unclaimable.insert(block(&file, 3));
    cluster.ask(|reply| ScrubCommand::Start(false, reply)).unwrap();
    cluster.play();
    cluster.rotten.clear();
    cluster.wait(Duration::from_secs(5));
    assert!(cluster.refusals > 1, "the repair is refused again and again");
    let repairs: Vec<RepairView> = cluster.ask(RepairCommand::List).unwrap();
    let item = cluster.repair_state(repairs[0].repair).items.remove(0);
    assert_eq!(item.state.name(), "waiting");
    assert!(item.reason.is_some_and(|reason| reason.contains("it is being changed")));
    assert!(item.next_step.is_some_and(|next| next.starts_with("the store is asked again in")));
    (cluster, file)
}

#[test]
fn a_refused_repair_of_a_stripe_does_not_keep_a_drain_from_moving_its_blocks() {
    let (mut cluster, file) = refusing();
    let drain = cluster.drain(&home(&file, 0), Some("migrate")).repair;
    cluster.wait(Duration::from_secs(10));
    assert_eq!(cluster.repair_state(drain).state.name(), "done");
    let moved = cluster.file("f");
    assert_ne!(home(&moved, 0), home(&file, 0));
    assert_eq!(states(&moved), ["healthy", "healthy", "healthy", "corrupt"]);
    // The refused repair is tried all the time.
    cluster.unclaimable.clear();
    cluster.wait(Duration::from_secs(5));
    assert_eq!(states(&cluster.file("f")), ["healthy"; 4]);
}

#[test]
fn a_repair_that_the_store_refuses_for_long_is_reported_with_the_reason() {
    let (mut cluster, _) = refusing();
    cluster.wait(Duration::from_secs(610));
    let found = cluster.status().condition(ConditionCode::RepairStalled).cloned().expect("it has stalled");
    assert!(found.details[0].contains("the store refuses it: "), "{:?}", found.details);
}

/// Otherwise no copy that takes longer than the pause between two requests would ever end.
#[test]
fn a_drain_does_not_give_way_to_a_repair_that_the_store_has_refused() {
    let (mut cluster, file) = refusing();
    cluster.freeze();
    cluster.drain(&home(&file, 0), Some("migrate"));
    cluster.wait(Duration::from_millis(100));
    let jobs = |cluster: &mut TestCluster| -> Vec<JobId> {
        cluster.core().publishing_jobs().map(|(job, _)| job).collect()
    };
    let begun = jobs(&mut cluster);
    assert_eq!(begun.len(), 1);
    // The helpers do not answer, so the job itself ends a few seconds later.
    cluster.wait(Duration::from_millis(2200));
    assert_eq!(jobs(&mut cluster), begun, "the repair was due again within 2 s");
}

#[test]
fn caps_are_distributed_and_recorded() {
    let mut cluster = TestCluster::new(4);
    cluster.freeze();
    let request = CapsRequest {
        cluster: Some(40_000_000),
        nodes: BTreeMap::from([("h1".to_owned(), 3_000_000)]),
        disks: BTreeMap::from([("h2".to_owned(), 7_000_000)]),
        ..CapsRequest::default()
    };
    let kept = cluster.cap(request);
    let sends = |rate| Caps { repairs_up: Some(rate), ..Caps::default() };
    assert_eq!(cluster.told("h1"), Some(Caps { repairs_down: Some(3_000_000), ..sends(3_000_000) }));
    // h1 has a lower cap of its own, and the other helpers share the rest of the cluster's cap.
    let share = (40_000_000 - 3_000_000) / 3;
    assert_eq!(cluster.told("h2"), Some(Caps { repairs_disk: Some(7_000_000), ..sends(share) }));
    assert_eq!(cluster.told("h3"), Some(sends(share)));
    // After the death of h4, the remaining helpers share its part.
    cluster.kill("h4");
    assert_eq!(cluster.told("h3"), Some(sends(18_500_000)));
    assert_eq!(cluster.told("h1"), None, "nothing has changed there");
    cluster.frozen.clear();
    cluster.restart_all(&["h4"]);
    assert_eq!(cluster.ask(NetworkCommand::Caps).unwrap(), kept);
    cluster.freeze();
    let none = cluster.cap(CapsRequest { none: true, ..CapsRequest::default() });
    assert_eq!(none, CapsView::default());
    assert_eq!(cluster.told("h3"), Some(Caps::default()));
    let unknown = CapsRequest { nodes: BTreeMap::from([("h9".to_owned(), 1)]), ..CapsRequest::default() };
    let error = cluster.ask(|reply| NetworkCommand::ChangeCaps(unknown, reply)).unwrap_err();
    assert!(error.to_string().starts_with("there is no helper `h9`"), "{error}");
}

/// Two changes of caps are requested before the first one is recorded.
#[test]
fn concurrent_changes_of_caps_are_all_kept() {
    let mut cluster = TestCluster::new(4);
    cluster.stuck = true;
    let cap = |name: &str, rate| CapsRequest {
        nodes: BTreeMap::from([(name.to_owned(), rate)]),
        ..CapsRequest::default()
    };
    // After the third change, the caps are as after the first one.
    let changes = [cap("h1", 3_000_000), cap("h2", 4_000_000), cap("h2", 0), cap("h2", 5_000_000)];
    let asked =
        changes.map(|request| cluster.await_later(|reply| NetworkCommand::ChangeCaps(request, reply)));
    cluster.stuck = false;
    cluster.pump();
    asked.into_iter().for_each(|asked| drop(cluster.answered::<CapsView>(asked).unwrap().unwrap()));
    let both = BTreeMap::from([("h1".to_owned(), 3_000_000), ("h2".to_owned(), 5_000_000)]);
    assert_eq!(cluster.ask(NetworkCommand::Caps).unwrap().nodes, both);
    let kept = cluster.cap(cap("h1", 0));
    assert_eq!(kept.nodes, BTreeMap::from([("h2".to_owned(), 5_000_000)]));
}

#[test]
fn a_shared_cap_is_redistributed_by_unused_shares() {
    let mut cluster = TestCluster::new(6);
    cluster.put("f", 12);
    cluster.kill("h1");
    cluster.freeze();
    cluster.cap(CapsRequest { cluster: Some(50_000_000), ..CapsRequest::default() });
    let names = ["h2", "h3", "h4", "h5", "h6"];
    let shares =
        |cluster: &mut TestCluster| names.map(|name| cluster.told(name).and_then(|caps| caps.repairs_up));
    assert_eq!(shares(&mut cluster), [Some(10_000_000); 5]);
    cluster.wait(Duration::from_secs(3));
    assert_eq!(shares(&mut cluster), [None; 5], "no repair runs");
    cluster.repair_all();
    let mut now = [10_000_000; 5];
    for _ in 0..80 {
        cluster.wait(Duration::from_millis(100));
        for (at, name) in names.into_iter().enumerate() {
            cluster.say(name, FromNode::Unused { up: Some(if at == 0 { 0 } else { 950 }), down: None });
        }
        for (now, told) in now.iter_mut().zip(shares(&mut cluster)) {
            *now = told.unwrap_or(*now);
        }
        assert!(now.iter().sum::<u64>() <= 50_000_000, "{now:?}");
    }
    assert!(now[0] > 45_000_000, "{now:?}");
    // The share of a dead helper is redistributed.
    cluster.kill("h2");
    let left: u64 = shares(&mut cluster)[1..].iter().map(|share| share.expect("all have more now")).sum();
    assert!((49_999_990..=50_000_000).contains(&left), "{left}");
    // After some time without repairs, shares are even again: four helpers share 60 MB/s.
    cluster.thaw();
    cluster.wait(Duration::from_secs(10));
    cluster.freeze();
    cluster.cap(CapsRequest { cluster: Some(60_000_000), ..CapsRequest::default() });
    assert_eq!(cluster.told("h3").and_then(|caps| caps.repairs_up), Some(15_000_000));
}

#[test]
fn a_copy_stays_until_its_stripe_is_whole() {
    let mut cluster = TestCluster::new(7);
    let file = cluster.put("f", 1);
    let names: Vec<String> = (0..2).map(|index| home(&file, index)).collect();
    cluster.kill(&names[0]);
    assert_eq!(cluster.repair_all().state.name(), "done");
    // Another block is lost before the first node returns, so the copy of the first block may still be
    // needed.
    cluster.kill(&names[1]);
    cluster.start(&names[0]);
    cluster.wait(Duration::from_secs(90));
    assert!(cluster.node(&names[0]).disk.contains_key(&block(&file, 0)), "the stripe is not whole");
    assert_eq!(cluster.repair_all().state.name(), "done");
    cluster.wait(Duration::from_secs(90));
    assert!(!cluster.node(&names[0]).disk.contains_key(&block(&file, 0)));
}

#[test]
fn blocks_with_other_digests_on_a_returned_node_count_as_bad() {
    let mut cluster = TestCluster::new(5);
    let file = cluster.put("f", 1);
    let name = home(&file, 0);
    cluster.kill(&name);
    cluster.freeze();
    let repair = cluster.repair_all().repair;
    cluster.frozen.remove(&name);
    cluster.start_swapped(&name);
    assert_eq!(states(&cluster.file("f"))[0], "corrupt");
    cluster.thaw();
    let view = cluster.repair_state(repair);
    assert_eq!((view.state.name(), view.counts.blocks_rebuilt), ("done", 1), "{view:#?}");
    assert!(cluster.status().healthy);
}

#[test]
fn progress_is_reported_with_the_bound() {
    let mut cluster = TestCluster::new(6);
    cluster.put("f", 12);
    cluster.kill("h1");
    cluster.freeze();
    let running = cluster.repair_all();
    let progress = running.progress.expect("its stripes are known");
    // Links are assumed to carry 1 Gb/s. Each lost block needs two of four blocks of 4 KiB.
    assert!(progress.bound_ms.is_some(), "{progress:?}");
    assert_eq!(progress.soonest_ms, None, "nothing has moved");
    cluster.wait(Duration::from_secs(1));
    cluster.thaw();
    let ended = cluster.repair_state(running.repair);
    let progress = ended.progress.expect("it has ended");
    assert!(progress.rate_bytes_per_s.is_some_and(|rate| rate > 0), "{progress:?}");
}

#[test]
fn the_stripes_of_a_repair_are_paged() {
    let mut cluster = TestCluster::new(6);
    cluster.put("f", 12);
    cluster.kill("h1");
    cluster.freeze();
    let running = cluster.repair_all();
    let all: Vec<String> = running.items.iter().map(|item| item.stripe.clone()).collect();
    assert!(all.len() > 3, "{all:?}");
    let (mut paged, mut after) = (Vec::new(), None);
    loop {
        let page = ItemPage { after: after.clone(), limit: 3 };
        let view = cluster.ask(|reply| RepairCommand::State(running.repair, page, reply)).unwrap();
        let Some(last) = view.items.last() else { break };
        assert!(view.items.len() <= 3);
        after = Some(StripeId(last.stripe.clone()));
        paged.extend(view.items.into_iter().map(|item| item.stripe));
    }
    assert_eq!(paged, all);
}

/// The answers to changes are short, also for a repair of a million stripes.
#[test]
fn answers_to_changes_list_only_the_first_stripes() {
    const LISTED: usize = 16;
    let mut cluster = TestCluster::new(6);
    cluster.put("f", 60);
    cluster.kill("h1");
    cluster.freeze();
    let running = cluster.repair_all();
    assert!(running.items.len() > LISTED, "{}", running.items.len());
    let repair = running.repair;
    let paused = cluster.ask(|reply| RepairCommand::Pause(repair, true, reply)).unwrap();
    let resumed = cluster.ask(|reply| RepairCommand::Pause(repair, false, reply)).unwrap();
    let cancelled = cluster.ask(|reply| RepairCommand::Cancel(repair, reply)).unwrap();
    for view in [paused, resumed, cancelled] {
        let listed: Vec<&String> = view.items.iter().map(|item| &item.stripe).collect();
        let first: Vec<&String> = running.items.iter().take(LISTED).map(|item| &item.stripe).collect();
        assert_eq!(listed, first);
        assert_eq!(view.counts.stripes, running.counts.stripes);
    }
}

#[test]
fn a_waiting_request_is_answered_when_its_repair_changes() {
    const MINUTE: Duration = Duration::from_secs(60);
    let mut cluster = TestCluster::new(6);
    cluster.put("f", 12);
    cluster.kill("h1");
    cluster.freeze();
    let repair = cluster.repair_all().repair;
    cluster.wait(Duration::from_secs(1));
    let version = cluster.repair_state(repair).version;
    let change = cluster.await_later(|reply| RepairCommand::Change(repair, Some(version), MINUTE, reply));
    let end = cluster.await_later(|reply| RepairCommand::Change(repair, None, MINUTE, reply));
    cluster.wait(Duration::from_secs(1));
    assert!(cluster.answered::<()>(change).is_none(), "nothing has moved");
    cluster.ask(|reply| RepairCommand::Pause(repair, true, reply)).unwrap();
    cluster.wait(Duration::from_secs(1));
    cluster.answered::<()>(change).expect("it is paused").unwrap();
    assert!(cluster.answered::<()>(end).is_none(), "it has not ended");
    let late = cluster.await_later(|reply| RepairCommand::Change(repair, Some(version), MINUTE, reply));
    cluster.answered::<()>(late).expect("it differs already").unwrap();
    cluster.thaw();
    cluster.ask(|reply| RepairCommand::Pause(repair, false, reply)).unwrap();
    cluster.wait(Duration::from_secs(10));
    cluster.answered::<()>(end).expect("it has ended").unwrap();
}

/// A client waits for the end of a repair and then asks for the result. So a repair that has just ended is kept, even if
/// many later ones ended before it.
#[test]
fn a_repair_that_has_just_ended_is_known() {
    let mut cluster = TestCluster::new(6);
    let file = cluster.put("f", 120);
    cluster.kill(&home(&file, 0));
    let mut repairs = Vec::new();
    for stripe in &file.layout {
        let request =
            RepairRequest { stripe: Some(stripe.stripe.stripe.clone()), ..RepairRequest::default() };
        let repair = cluster.ask(|reply| RepairCommand::Queue(request.into(), reply)).unwrap().repair;
        if repairs.is_empty() {
            cluster.ask(|reply| RepairCommand::Pause(repair, true, reply)).unwrap();
        }
        repairs.push(repair);
    }
    cluster.wait(Duration::from_secs(60));
    let state = |cluster: &mut TestCluster, repair| {
        cluster
            .ask(|reply| RepairCommand::State(repair, ItemPage::default(), reply))
            .map(|view| view.state.name())
    };
    let known = repairs.iter().filter(|repair| state(&mut cluster, **repair).is_ok()).count();
    assert_eq!(known, 101, "the open one and the last 100 ended ones");
    cluster.ask(|reply| RepairCommand::Cancel(repairs[0], reply)).unwrap();
    cluster.wait(Duration::from_secs(1));
    assert_eq!(state(&mut cluster, repairs[0]).unwrap(), "cancelled");
}
