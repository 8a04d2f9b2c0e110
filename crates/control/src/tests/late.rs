//! Blocks about which a message comes late: while the storage records them, while their helper is away, and after their
//! stripe was removed.

use super::*;
use crate::commands::{FileCommand, NodeCommand, RepairCommand};
use crate::control::facts;
use crate::signal::Signal;
use crate::stripes::states;
use recovery::{BlockFacts, CopyState};

/// Returns the recorded helper and state of the first block of the file `f`.
fn first_block(cluster: &mut TestCluster) -> (Option<String>, &'static str) {
    let block = cluster.file("f").layout[0].stripe.blocks[0].clone();
    (block.node, block.state.name())
}

fn stripe_of(file: &FileLayout) -> StripeId {
    StripeId(file.layout[0].stripe.stripe.clone())
}

impl TestCluster {
    /// Returns a helper other than `except` that has this block on its disk.
    fn helper_with(&self, block: &BlockId, except: &str) -> String {
        let holds = |(name, node): &(&String, &PlayedNode)| *name != except && node.disk.contains_key(block);
        self.nodes.iter().find(holds).unwrap().0.clone()
    }

    /// Kills the holder of block 0 and rebuilds the block, but leaves the write open that records its new place. Returns
    /// the new holder.
    fn rebuild_unrecorded(&mut self, file: &FileLayout) -> String {
        let dead = home(file, 0);
        self.kill(&dead);
        let request = RepairRequest { all: true, ..RepairRequest::default() };
        self.ask(|reply| RepairCommand::Queue(request.into(), reply)).unwrap();
        self.stuck = true;
        self.play();
        self.helper_with(&block(file, 0), &dead)
    }

    /// Restarts a helper with these blocks on its disk.
    fn restart_with(&mut self, name: &str, disk: &BTreeMap<BlockId, u64>) {
        self.kill(name);
        self.node(name).disk = disk.clone();
        self.start(name);
    }

    fn record_all(&mut self) {
        self.stuck = false;
        self.pump();
        self.play();
    }

    /// Asks a helper about block 0 of a stripe, which it has stored and which is not recorded yet. It answers that the
    /// block is bad, before or after the write that records the block.
    fn rot_unrecorded(&mut self, taker: &str, stripe: StripeId, answers_before: bool) {
        let core = self.core();
        let node = core.nodes.node_named(&core.base, taker).unwrap();
        let known = core.stripes.picture.stripe(&stripe).unwrap().blocks[0].clone();
        assert_ne!(known.state_on(node), Some(store_api::BlockState::Healthy), "not recorded yet");
        let block = known.id.clone();
        facts!(core).ask_for_block(node, stripe, BlockIndex(0), known, false, &mut core.out);
        self.rotten.insert(block);
        self.deliver();
        if answers_before {
            self.play();
        }
        self.record_all();
    }
}

#[test]
fn a_rebuilt_block_that_rots_before_it_is_recorded_counts_as_bad() {
    for answers_before in [true, false] {
        let mut cluster = TestCluster::new(5);
        let file = cluster.put("f", 1);
        let taker = cluster.rebuild_unrecorded(&file);
        cluster.rot_unrecorded(&taker, stripe_of(&file), answers_before);
        assert_eq!(first_block(&mut cluster), (Some(taker), "corrupt"), "{answers_before}");
    }
}

#[test]
fn a_block_of_a_put_that_rots_before_it_is_recorded_counts_as_bad() {
    for answers_before in [true, false] {
        let mut cluster = TestCluster::new(5);
        let put = cluster.begin("f", 8192).unwrap();
        cluster.frozen.extend((1..=5).map(|at| format!("h{at}")));
        cluster.open(1, ClientRequest::PutStripe { put: put.put, position: 0 });
        cluster.frozen.clear();
        cluster.stuck = true;
        cluster.play();
        let core = cluster.core();
        let stripe = core.jobs.running.values().next().unwrap().stripe.clone();
        let first = core.stripes.picture.stripe(&stripe).unwrap().blocks[0].id.clone();
        let taker = cluster.helper_with(&first, "");
        cluster.rot_unrecorded(&taker, stripe, answers_before);
        cluster.closed(1).unwrap().unwrap();
        cluster.ask(|reply| FileCommand::CommitPut(PutId(put.put), reply)).unwrap();
        cluster.play();
        assert_eq!(first_block(&mut cluster), (Some(taker), "corrupt"), "{answers_before}");
    }
}

#[test]
fn a_rebuilt_block_is_missing_if_its_helper_returns_without_it_before_it_is_recorded() {
    let mut cluster = TestCluster::new(5);
    let file = cluster.put("f", 1);
    let taker = cluster.rebuild_unrecorded(&file);
    cluster.kill(&taker);
    cluster.node(&taker).disk.clear();
    cluster.start(&taker);
    cluster.record_all();
    assert_eq!(first_block(&mut cluster), (Some(taker), "missing"));
}

/// The disk is away for a moment. The helper may have made a block, or may hold a block that was read for it.
#[test]
fn blocks_are_healthy_if_their_helper_lists_them_again_before_the_rebuilt_one_is_recorded() {
    for is_taker in [true, false] {
        let mut cluster = TestCluster::new(5);
        let file = cluster.put("f", 1);
        let taker = cluster.rebuild_unrecorded(&file);
        let returns = if is_taker { taker } else { home(&file, 1) };
        let disk = cluster.node(&returns).disk.clone();
        cluster.restart_with(&returns, &BTreeMap::new());
        cluster.restart_with(&returns, &disk);
        cluster.play();
        cluster.record_all();
        assert_eq!(states(&cluster.file("f")), ["healthy"; 4], "{is_taker}");
    }
}

#[test]
fn a_found_block_is_missing_if_its_helper_returns_without_it_before_it_is_recorded() {
    let mut cluster = TestCluster::new(5);
    let file = cluster.put("f", 1);
    let (lost, old) = (block(&file, 0), home(&file, 0));
    let taker = cluster.rebuild_unrecorded(&file);
    cluster.record_all();
    // Block 0 is lost again, and the former helper returns with its copy.
    cluster.kill(&taker);
    cluster.stuck = true;
    cluster.start(&old);
    cluster.kill(&old);
    cluster.node(&old).disk.remove(&lost);
    cluster.start(&old);
    cluster.record_all();
    assert_ne!(first_block(&mut cluster), (Some(old), "healthy"));
}

/// A job has ended, and waits for the storage to record its block. Only then a helper reports that its block is bad.
#[test]
fn a_bad_block_that_is_reported_to_a_job_after_its_end_is_verified() {
    let mut cluster = TestCluster::new(5);
    let file = cluster.put("f", 1);
    let taker = cluster.rebuild_unrecorded(&file);
    let assigned = cluster.nodes[&taker].assigned.last().expect("it rebuilds the block");
    let (job, epoch) = (assigned.job, assigned.epoch);
    let (source, bad) = (home(&file, 1), block(&file, 1));
    let before = cluster.nodes[&source].verified;
    let report = Report::BadBlock { block: bad.clone(), problem: BlockProblem::Corrupt("page 3".into()) };
    cluster.rotten.insert(bad);
    cluster.say(&source, FromNode::Report { job, epoch, report });
    cluster.record_all();
    cluster.wait(Duration::from_secs(2));
    assert!(cluster.nodes[&source].verified > before);
}

/// A client reads a block slowly while the block's helper is drained, and the helper then has no copy any more.
#[test]
fn a_block_that_is_moved_while_it_is_read_is_read_at_its_new_place() {
    let mut cluster = TestCluster::new(5);
    let file = cluster.put("f", 1);
    let (drained, moved) = (home(&file, 0), block(&file, 0));
    cluster.frozen.insert("admin".to_owned());
    cluster.read(1, &file.layout[0].stripe.stripe, 0, &[]);
    let assigned = cluster.nodes[&drained].assigned.last().expect("it reads the block");
    let (job, epoch) = (assigned.job, assigned.epoch);
    cluster.repair(RepairRequest { drain: Some(drained.clone()), ..RepairRequest::default() });
    assert!(!cluster.nodes[&drained].disk.contains_key(&moved), "it is moved");
    let report = Report::BadBlock { block: moved.clone(), problem: BlockProblem::Missing };
    cluster.say(&drained, FromNode::Report { job, epoch, report });
    cluster.frozen.clear();
    cluster.play();
    assert!(cluster.closed(1).expect("it has ended").is_ok());
    let reads = |assignment: &Assignment| {
        assignment.job == job && assignment.locals.iter().any(|local| local.id == moved)
    };
    let now = cluster.helper_with(&moved, &drained);
    assert!(cluster.nodes[&now].assigned.iter().any(reads), "from {now}");
    assert_eq!(first_block(&mut cluster), (Some(now), "healthy"));
}

/// A drained helper keeps its copy while the stripe is not whole. Then the helper with the new copy dies.
#[test]
fn a_copy_that_was_to_be_removed_is_used_and_keeps_its_helper_from_removal() {
    let mut cluster = TestCluster::new(6);
    let file = cluster.put("f", 1);
    let drained = home(&file, 0);
    cluster.kill(&home(&file, 3));
    cluster.repair(RepairRequest { drain: Some(drained.clone()), ..RepairRequest::default() });
    let moved = cluster.file("f");
    assert_ne!(home(&moved, 0), drained);
    assert!(cluster.node(&drained).disk.contains_key(&block(&file, 0)), "the stripe is not whole");
    let is_safe = |cluster: &mut TestCluster| {
        let names = vec![drained.clone()];
        cluster.ask(|reply| NodeCommand::SafeToRemove(names, reply)).unwrap().safe
    };
    assert!(!is_safe(&mut cluster));
    cluster.kill(&home(&moved, 0));
    cluster.kill(&home(&moved, 2));
    cluster.play();
    assert_eq!(home(&cluster.file("f"), 0), drained, "the copy is in use again");
    assert!(!is_safe(&mut cluster));
}

/// A helper reports a bad block for a job that has ended, and disconnects before it has verified the block.
#[test]
fn a_reported_block_is_verified_after_its_helper_returns() {
    [true, false].into_iter().for_each(|asked| {
        let mut cluster = TestCluster::new(4);
        let file = cluster.put("f", 1);
        let helper = home(&file, 1);
        cluster.rotten.insert(block(&file, 1));
        cluster.frozen.insert(helper.clone());
        let problem = BlockProblem::Corrupt("page 3".into());
        let report = Report::BadBlock { block: block(&file, 1), problem };
        cluster.say(&helper, FromNode::Report { job: JobId(77), epoch: repair::Epoch(0), report });
        if asked {
            cluster.wait(Duration::from_secs(1));
        }
        cluster.kill(&helper);
        cluster.wait(Duration::from_secs(90));
        cluster.frozen.clear();
        cluster.start(&helper);
        cluster.wait(Duration::from_secs(2));
        assert_eq!(states(&cluster.file("f"))[1], "corrupt", "asked: {asked}");
    });
}

#[test]
fn a_stripe_stays_readable_during_a_read_that_takes_longer_than_a_lease() {
    let mut cluster = TestCluster::new(4);
    let file = cluster.put("f", 1);
    let stripe = stripe_of(&file);
    cluster.frozen.extend(["admin".to_owned()].into_iter().chain((1..=4).map(|at| format!("h{at}"))));
    cluster.read(9, &stripe.0, 0, &[]);
    cluster.wait(Duration::from_secs(40));
    cluster.ask(|reply| FileCommand::Remove("f".into(), reply)).unwrap();
    assert!(cluster.core().stripes.stripe_record(&stripe).is_ok(), "the read still runs");
    cluster.frozen.clear();
    cluster.wait(Duration::from_secs(60));
    assert!(cluster.core().stripes.stripe_record(&stripe).is_err());
}

/// A helper returns with its blocks, and then without them, while the storage is slow.
#[test]
fn a_block_that_is_gone_again_before_its_return_is_recorded_counts_as_missing() {
    let mut cluster = TestCluster::new(5);
    cluster.repair_after("never");
    let file = cluster.put("f", 1);
    let holder = home(&file, 0);
    let disk = cluster.node(&holder).disk.clone();
    cluster.restart_with(&holder, &BTreeMap::new());
    cluster.play();
    assert_eq!(states(&cluster.file("f"))[0], "missing");
    cluster.stuck = true;
    for disk in [disk, BTreeMap::new()] {
        cluster.restart_with(&holder, &disk);
        cluster.play();
    }
    cluster.record_all();
    assert_eq!(states(&cluster.file("f"))[0], "missing");
}

/// A helper returns without its blocks, and then with them, while the storage is slow.
#[test]
fn a_block_that_is_back_before_its_loss_is_recorded_counts_as_healthy() {
    for plays_before in [true, false] {
        let mut cluster = TestCluster::new(5);
        cluster.repair_after("never");
        let file = cluster.put("f", 1);
        let holder = home(&file, 0);
        let disk = cluster.node(&holder).disk.clone();
        cluster.stuck = true;
        cluster.restart_with(&holder, &BTreeMap::new());
        cluster.restart_with(&holder, &disk);
        if plays_before {
            cluster.play();
        }
        cluster.record_all();
        assert_eq!(states(&cluster.file("f"))[0], "healthy", "{plays_before}");
    }
}

/// The background scrub finds a block bad while the storage still records that it is good.
#[test]
fn a_block_that_rots_again_before_its_repair_is_recorded_counts_as_bad() {
    let mut cluster = TestCluster::new(5);
    cluster.repair_after("never");
    let file = cluster.put("f", 1);
    let (holder, rotten) = (home(&file, 0), block(&file, 0));
    let verify = |cluster: &mut TestCluster| {
        let core = cluster.core();
        let node = core.nodes.node_named(&core.base, &holder).unwrap();
        let known = core.stripes.picture.stripe(&stripe_of(&file)).unwrap().blocks[0].clone();
        facts!(core).ask_for_block(node, stripe_of(&file), BlockIndex(0), known, false, &mut core.out);
        cluster.deliver();
        cluster.play();
    };
    cluster.frozen.extend((1..=5).map(|at| format!("h{at}")).filter(|name| *name != holder)); // Nothing is rebuilt.
    cluster.rotten.insert(rotten.clone());
    verify(&mut cluster);
    assert_eq!(states(&cluster.file("f"))[0], "corrupt");
    cluster.stuck = true;
    cluster.rotten.remove(&rotten);
    verify(&mut cluster);
    cluster.rotten.insert(rotten);
    verify(&mut cluster);
    cluster.stuck = false;
    cluster.pump();
    assert_eq!(states(&cluster.file("f"))[0], "corrupt");
}

/// A helper has an old copy of a lost block, with another digest. It reads the copy once, not every few minutes.
#[test]
fn a_copy_with_another_digest_is_read_once() {
    let mut cluster = TestCluster::new(4);
    cluster.repair_after("never");
    let file = cluster.put("f", 1);
    let (lost, holder) = (block(&file, 0), home(&file, 0));
    let other = home(&file, 1);
    cluster.kill(&holder);
    cluster.node(&holder).disk.clear();
    let stripe = cluster.core().stripes.picture.stripe(&stripe_of(&file)).unwrap();
    cluster.start(&holder);
    assert_eq!(states(&cluster.file("f"))[0], "missing");
    let mut record = stripe.clone();
    (record.blocks[0].state, record.blocks[0].digest) = (store_api::BlockState::Missing, of_sum(77));
    cluster.handle(Event::Changed(vec![store_api::StoreChange::Stripe(record, false)]));
    let mut disk = cluster.node(&other).disk.clone();
    disk.insert(lost, 4096);
    cluster.restart_with(&other, &disk);
    cluster.wait(Duration::from_secs(1800));
    assert_eq!(cluster.node(&other).verified, 1);
}

/// A found copy cannot be read at first. It is tried again soon once the stripe cannot be read without it.
#[test]
fn a_copy_that_a_stripe_needs_is_tried_again_soon() {
    let mut cluster = TestCluster::new(5);
    cluster.repair_after("never");
    let file = cluster.put("f", 1);
    let (lost, holder) = (block(&file, 0), home(&file, 0));
    let other = (1..=5).map(|at| format!("h{at}")).find(|name| cluster.node(name).disk.is_empty()).unwrap();
    cluster.kill(&holder);
    cluster.node(&holder).disk.clear();
    cluster.start(&holder);
    let disk = BTreeMap::from([(lost.clone(), 4096)]);
    cluster.frozen.insert(other.clone());
    cluster.restart_with(&other, &disk);
    cluster.wait(Duration::from_secs(200)); // The question has expired.
    cluster.node(&other).backlog.clear();
    cluster.frozen.clear();
    cluster.wait(Duration::from_secs(30));
    assert_eq!(states(&cluster.file("f"))[0], "missing", "it is tried again after five minutes");
    cluster.kill(&home(&file, 1));
    cluster.kill(&home(&file, 2));
    cluster.wait(Duration::from_secs(15));
    assert_eq!(home(&cluster.file("f"), 0), other);
}

#[test]
fn the_scheduler_is_told_what_is_known_of_copies_rather_than_their_records() {
    let mut cluster = TestCluster::new(4);
    let file = cluster.put("f", 1);
    let stripe = stripe_of(&file);
    let core = cluster.core();
    let known = core.stripes.picture.stripe(&stripe).unwrap().blocks[0].clone();
    let (node, copy) = (known.node.unwrap(), (known.id.clone(), known.node.unwrap()));
    let facts_of = |copy| BlockFacts { node: Some(node), copy };
    for (state, expected) in [
        (store_api::BlockState::Missing, CopyState::Missing),
        (store_api::BlockState::Corrupt, CopyState::Bad),
    ] {
        let write = core.stripes.unrecorded.begin_write();
        core.stripes.unrecorded.note(write, copy.clone(), state);
        assert_eq!(core.facts().block_facts(&known), facts_of(expected));
    }
    // Then the copy is found good. Its record does not change, so that does not tell the scheduler.
    let write = core.stripes.unrecorded.begin_write();
    core.stripes.unrecorded.note(write, copy.clone(), store_api::BlockState::Healthy);
    assert_eq!(core.facts().block_facts(&known), facts_of(CopyState::Bad));
    states::stored(&mut core.stripes, write, &[copy], true, &mut core.out);
    assert_eq!(core.facts().block_facts(&known), facts_of(CopyState::Good));
    assert!(core.out.signals.iter().any(|signal| matches!(signal, Signal::Blocks(of) if *of == stripe)));
}

/// The catalog refuses the bad state of a copy. Later the copy is verified and found good.
#[test]
fn a_good_verdict_overrules_a_bad_one_that_could_not_be_recorded() {
    let mut cluster = TestCluster::new(4);
    let file = cluster.put("f", 1);
    let stripe = stripe_of(&file);
    let core = cluster.core();
    let known = core.stripes.picture.stripe(&stripe).unwrap().blocks[0].clone();
    let copy = (known.id.clone(), known.node.unwrap());
    let write = core.stripes.unrecorded.begin_write();
    core.stripes.unrecorded.note(write, copy.clone(), store_api::BlockState::Corrupt);
    core.stripes.unrecorded.end_write(write, &copy, false, known.state_on(copy.1));
    assert!(core.stripes.unrecorded.is_bad(&copy.0, copy.1));
    facts!(core).ask_for_block(copy.1, stripe, BlockIndex(0), known, false, &mut core.out);
    cluster.wait(Duration::from_secs(2));
    assert!(!cluster.core().stripes.unrecorded.is_bad(&copy.0, copy.1));
}

/// Helpers that mend.toml no longer lists are forgotten if they are empty, but not while the store has not been listed.
#[test]
fn a_helper_is_not_forgotten_before_the_store_is_listed() {
    use store_api::StoreChange::{Node, Unlisted};
    let mut cluster = TestCluster::new(4);
    cluster.handle(Event::Listed((1..=4).map(|at| format!("h{at}")).collect()));
    let address = Some("10.0.0.9:1".to_owned());
    let gone = store_api::NodeRecord { id: NodeId(77), name: "h9".to_owned(), address };
    cluster.stuck = true;
    cluster.handle(Event::Changed(vec![Unlisted(Some("not listed".into())), Node(gone)]));
    cluster.wait(Duration::from_secs(60));
    let is_going = |cluster: &mut TestCluster| cluster.core().nodes.registry.is_being_forgotten(NodeId(77));
    assert!(!is_going(&mut cluster));
    cluster.handle(Event::Changed(vec![Unlisted(None)]));
    cluster.wait(Duration::from_secs(60));
    assert!(is_going(&mut cluster));
}

impl TestCluster {
    /// Puts the file `f`, and has its block 3 recorded on the helper with block 2. Returns the file as it was put, and the
    /// helpers with blocks 2 and 3.
    fn put_misplaced(&mut self) -> (FileLayout, String, String) {
        self.repair_after("never");
        let file = self.put("f", 1);
        let (first, second) = (home(&file, 2), home(&file, 3));
        let mut record = self.core().stripes.picture.stripe(&stripe_of(&file)).unwrap();
        record.blocks[3].node = record.blocks[2].node;
        self.node(&first).disk.insert(block(&file, 3), 4096);
        self.handle(Event::Changed(vec![store_api::StoreChange::Stripe(record, false)]));
        (file, first, second)
    }
}

/// Two blocks of a stripe are on one helper, and another helper has a copy of one of them. The copy is put into service,
/// and no block moves at the same time: it could move to the copy, and both would be misplaced again.
#[test]
fn a_better_placed_copy_is_used_before_blocks_move() {
    let mut cluster = TestCluster::new(5);
    let (_, first, second) = cluster.put_misplaced();
    // The other helper lists its copy of block 3 as one that belongs to no stripe, and takes its time to verify it.
    let disk = cluster.node(&second).disk.clone();
    cluster.frozen.insert(second.clone());
    cluster.restart_with(&second, &disk);
    cluster.wait(Duration::from_secs(20));
    cluster.frozen.clear();
    cluster.wait(Duration::from_secs(60));
    let now = cluster.file("f");
    assert_eq!((home(&now, 2), home(&now, 3)), (first, second));
    assert!(
        cluster
            .nodes
            .values()
            .all(|node| node.assigned.iter().all(|task| task.class != repair::Class::Repair))
    );
}

/// The storage never records the block on the helper that receives it.
#[test]
fn moves_that_fail_are_repeated_at_growing_intervals() {
    let mut cluster = TestCluster::new(5);
    let (file, first, _) = cluster.put_misplaced();
    let others = cluster.nodes.iter().filter(|(name, _)| **name != first);
    let others: Vec<NodeId> = others.filter_map(|(_, node)| node.node).collect();
    cluster.distrusted.extend(others);
    cluster.wait(Duration::from_secs(150));
    let repairs: Vec<RepairView> = cluster.ask(RepairCommand::List).unwrap();
    assert!((2..=3).contains(&repairs.len()), "{} repairs", repairs.len());
    let advice = details(&cluster.status());
    assert!(advice.iter().any(|line| line.contains("the next attempt starts in")), "{advice:?}");
    cluster.distrusted.clear();
    cluster.wait(Duration::from_secs(200));
    let now = cluster.file("f");
    assert_ne!(home(&now, 2), home(&now, 3));
    assert_eq!(home(&now, 0), home(&file, 0));
}

#[test]
fn a_paused_move_of_a_misplaced_block_is_called_paused() {
    let mut cluster = TestCluster::new(5);
    cluster.put_misplaced();
    let all: Vec<String> = cluster.nodes.keys().cloned().collect();
    cluster.frozen.extend(all);
    let began = (0..40).find_map(|_| {
        cluster.wait(Duration::from_millis(250));
        let repairs: Vec<RepairView> = cluster.ask(RepairCommand::List).unwrap();
        repairs.first().map(|repair| repair.repair)
    });
    let repair = began.expect("a block moves");
    let advice = details(&cluster.status()).concat();
    assert!(advice.contains(&format!("repair {repair} is moving blocks to other helpers")), "{advice}");
    cluster.ask(|reply| RepairCommand::Pause(repair, true, reply)).unwrap();
    let advice = details(&cluster.status()).concat();
    let paused = format!("repair {repair}, which moves blocks to other helpers, is paused; ");
    assert!(advice.contains(&paused), "{advice}");
    assert!(advice.contains(&format!("to continue, run mend resume {repair}")), "{advice}");
}

/// The only copy of a lost block is put into service on a helper with another block of the stripe. The block then moves
/// to its former helper, although the catalog names a copy there, which does not exist.
#[test]
fn a_block_moves_if_its_former_helper_has_no_copy() {
    let mut cluster = TestCluster::new(4);
    let file = cluster.put("f", 4); // A helper that lost most of its blocks would receive no others.
    let (hoarder, lost, id) = (home(&file, 0), home(&file, 1), block(&file, 1));
    cluster.kill(&hoarder);
    cluster.node(&hoarder).disk.insert(id.clone(), 4096);
    cluster.kill(&lost);
    cluster.node(&lost).disk.remove(&id);
    cluster.start(&lost);
    cluster.start(&hoarder);
    cluster.wait(Duration::from_secs(60));
    assert_eq!(home(&cluster.file("f"), 1), lost);
}

/// Two blocks of a stripe are on one helper, and another helper has copies of both. Only one of them is put into service,
/// also if both are verified before the catalog has recorded the first.
#[test]
fn one_copy_of_a_misplaced_stripe_is_used_at_a_time() {
    let mut cluster = TestCluster::new(5);
    let (file, first, second) = cluster.put_misplaced();
    let mut disk = cluster.node(&second).disk.clone();
    disk.insert(block(&file, 2), 4096);
    cluster.frozen.insert(second.clone());
    cluster.restart_with(&second, &disk);
    cluster.stuck = true;
    cluster.frozen.clear();
    cluster.wait(Duration::from_secs(2));
    let core = cluster.core.as_mut().unwrap();
    let asks: Vec<Ask> = std::iter::from_fn(|| core.poll_storage()).collect();
    let is_publish =
        |ask: &&Ask| matches!(ask, Ask::Write { write: Write::Stripes(StripeWrite::Publish { .. }), .. });
    assert_eq!(asks.iter().filter(is_publish).count(), 1);
    cluster.carry_out(asks).into_iter().for_each(|answer| cluster.take(answer));
    cluster.stuck = false;
    cluster.wait(Duration::from_secs(60));
    let now = cluster.file("f");
    let homes = [home(&now, 2), home(&now, 3)];
    assert!(homes.contains(&first) && homes.contains(&second), "{homes:?}");
}
