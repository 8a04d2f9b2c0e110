//! The drive of a file on the simulated HDFS: failures of calls, a second command at the same time, lost blocks.

use std::collections::BTreeSet;

use hdfs_raid::{Action, DECISION_MS, Drive, End, Goal, Order, Pause, Refusal, Stop, Trouble, Waiting};

use crate::{ENCODED, MOST_STEPS, PARITY, Start, World, first_words};

/// More orders than an undisturbed run has.
const MOST_ORDERS: usize = 60;

/// A command that encodes `/d/f` or undoes this.
struct Command {
    drive: Drive,
    order: Order,
}

impl Command {
    fn new(world: &World, goal: Goal, term: u64) -> Self {
        Self { drive: Drive::new(world.codec().clone(), PARITY, goal, term), order: Order::Look }
    }

    /// Carries out the next order. `trouble` may fail a look ("look") or an action (its text).
    fn step(
        &mut self,
        world: &mut World,
        trouble: &mut dyn FnMut(&str) -> Option<Trouble>,
    ) -> Option<Result<End, Stop>> {
        self.order = match self.order.clone() {
            Order::Look => {
                let now_ms = world.hdfs.now_ms;
                let (facts, nodes) = world.facts("/d/f");
                let look = trouble("look").map_or(Ok((facts, &nodes)), Err);
                self.drive.handle_look(look, now_ms, now_ms)
            }
            Order::Pause { ms, .. } => {
                world.hdfs.now_ms += ms;
                world.hdfs.heartbeat();
                Order::Look
            }
            Order::Act { action, .. } => {
                let result = match trouble(&action.to_string()) {
                    Some(trouble) => Err(trouble),
                    None => {
                        world.actions.push(action.clone());
                        let changed = Trouble::Refused { kind: Refusal::Changed, text: "changed".to_owned() };
                        world.act(&action, "/d/f").map_err(|_| changed)
                    }
                };
                self.drive.handle_action(result, world.hdfs.now_ms)
            }
            Order::End(result) => return Some(result),
        };
        None
    }

    fn run(
        &mut self,
        world: &mut World,
        trouble: &mut dyn FnMut(&str) -> Option<Trouble>,
    ) -> Result<End, Stop> {
        let mut steps = (0..MOST_STEPS).filter_map(|_| self.step(world, trouble));
        steps.next().unwrap_or_else(|| panic!("no end"))
    }
}

fn run(world: &mut World, goal: Goal, trouble: &mut dyn FnMut(&str) -> Option<Trouble>) -> Result<End, Stop> {
    Command::new(world, goal, 100).run(world, trouble)
}

fn refused(kind: Refusal) -> Trouble {
    Trouble::Refused { kind, text: "no".to_owned() }
}

#[test]
fn a_file_is_encoded_and_replicated_again() {
    for start in [Start::Replicated, Start::Foreign(true), Start::Foreign(false)] {
        let mut world = World::new(start);
        assert_eq!(run(&mut world, ENCODED, &mut |_| None), Ok(End::Encoded));
        world.assert_encoded();
        assert_eq!(run(&mut world, Goal::Plain, &mut |_| None), Ok(End::Plain));
        world.assert_end(&End::Plain);
    }
}

#[test]
fn every_call_may_fail_once() {
    let mut world = World::new(Start::Replicated);
    let mut failed = BTreeSet::new();
    let mut once = |what: &str| failed.insert(what.to_owned()).then(|| refused(Refusal::Other));
    assert_eq!(run(&mut world, ENCODED, &mut once), Ok(End::Encoded));
    world.assert_encoded();
    assert!(failed.len() > 10, "{failed:?}");
}

/// The driver is busy with other files. Calls that it postpones are no attempts.
#[test]
fn a_postponed_call_is_no_attempt() {
    let mut world = World::new(Start::Replicated);
    let (mut command, mut postponed) = (Command::new(&world, ENCODED, 100), 0);
    let end = loop {
        if postponed < 20 && matches!(&command.order, Order::Act { action: Action::Write { .. }, .. }) {
            postponed += 1;
            command.order = command.drive.handle_postponed();
        }
        if let Some(end) = command.step(&mut world, &mut |_| None) {
            break end;
        }
    };
    assert_eq!((end, postponed), (Ok(End::Encoded), 20));
    world.assert_encoded();
}

#[test]
fn a_call_that_always_fails_ends_the_work_and_nothing_is_lost() {
    let mut calls = World::new(Start::Replicated);
    assert_eq!(run(&mut calls, ENCODED, &mut |_| None), Ok(End::Encoded));
    for action in calls.actions.iter().map(ToString::to_string) {
        let mut world = World::new(Start::Replicated);
        let word = action.split(' ').next().expect("a word").to_owned();
        let mut fail = |what: &str| what.starts_with(&word).then(|| refused(Refusal::Other));
        let stop = run(&mut world, ENCODED, &mut fail);
        assert!(matches!(stop, Err(Stop::Refused { kind: Refusal::Other, .. })), "{action}: {stop:?}");
        // A later run continues.
        assert_eq!(run(&mut world, ENCODED, &mut |_| None), Ok(End::Encoded), "{action}");
        world.assert_encoded();
    }
}

#[test]
fn an_exceeded_quota_ends_the_work_at_once_and_written_parity_is_kept() {
    let mut world = World::new(Start::Replicated);
    let mut tried = 0;
    let mut full = |what: &str| {
        let is_second = what.starts_with("encode stripe 1");
        tried += u32::from(is_second);
        is_second.then(|| refused(Refusal::Quota))
    };
    let stop = run(&mut world, ENCODED, &mut full);
    assert!(matches!(stop, Err(Stop::Refused { kind: Refusal::Quota, .. })), "{stop:?}");
    assert_eq!((tried, world.hdfs.files["/d/f"].replication), (1, 3));
    world.actions.clear();
    assert_eq!(run(&mut world, ENCODED, &mut |_| None), Ok(End::Encoded));
    assert_eq!(first_words(&world.actions).iter().filter(|word| *word == "encode").count(), 1);
}

#[test]
fn safe_mode_is_waited_for_but_not_for_ever() {
    let mut world = World::new(Start::Replicated);
    let mut left = 20;
    let mut at_first = |_: &str| {
        left -= 1;
        (left > 0).then_some(Trouble::SafeMode)
    };
    assert_eq!(run(&mut world, ENCODED, &mut at_first), Ok(End::Encoded));
    world.assert_encoded();
    // The NameNode answers looks, but no action.
    let mut world = World::new(Start::Replicated);
    let mut silent = |what: &str| (what != "look").then(|| Trouble::Unreachable("no answer".to_owned()));
    let stop = run(&mut world, ENCODED, &mut silent);
    assert_eq!(stop, Err(Stop::Unavailable(Trouble::Unreachable("no answer".to_owned()))));
    let mut world = World::new(Start::Replicated);
    let before_ms = world.hdfs.now_ms;
    let stop = run(&mut world, ENCODED, &mut |_| Some(Trouble::SafeMode));
    assert_eq!(stop, Err(Stop::Unavailable(Trouble::SafeMode)));
    assert!(world.hdfs.now_ms - before_ms >= 600_000);
    assert!(world.actions.is_empty());
}

#[test]
fn the_replication_is_not_set_long_after_the_look() {
    let mut world = World::new(Start::Replicated);
    let mut command = Command::new(&world, ENCODED, 100);
    while !matches!(command.order, Order::Act { action: Action::SetReplication { .. }, .. }) {
        assert_eq!(command.step(&mut world, &mut |_| None), None);
    }
    let (facts, nodes) = world.facts("/d/f");
    let now_ms = world.hdfs.now_ms;
    let order = command.drive.handle_look(Ok((facts, &nodes)), now_ms, now_ms + DECISION_MS);
    assert!(matches!(order, Order::Pause { .. }), "{order:?}");
}

/// Whenever the second command begins, and however far it gets before the first one continues.
#[test]
fn of_two_commands_one_encodes_the_file() {
    for before in 0..MOST_ORDERS {
        for between in (0..MOST_ORDERS).step_by(3) {
            let mut world = World::new(Start::Replicated);
            let (mut first, mut second) =
                (Command::new(&world, ENCODED, 100), Command::new(&world, ENCODED, 200));
            let _ = (0..before).find_map(|_| first.step(&mut world, &mut |_| None));
            let _ = (0..between).find_map(|_| second.step(&mut world, &mut |_| None));
            let ends = [first.run(&mut world, &mut |_| None), second.run(&mut world, &mut |_| None)];
            let is_known = |end: &Result<End, Stop>| matches!(end, Ok(End::Encoded | End::Superseded));
            assert!(
                ends.iter().all(is_known) && ends.contains(&Ok(End::Encoded)),
                "{before}+{between}: {ends:?}"
            );
            world.assert_encoded();
        }
    }
}

/// HDFS cannot make replicas of a block that it cannot read.
#[test]
fn a_file_with_lost_blocks_is_not_undone() {
    for (lost, is_decodable) in [(1, true), (2, true), (3, false)] {
        let mut world = World::new(Start::Encoded);
        let blocks = &world.hdfs.files["/d/f"].blocks[..lost];
        let nodes: Vec<usize> = blocks.iter().flat_map(|block| block.replicas.iter().copied()).collect();
        nodes.into_iter().for_each(|node| world.hdfs.kill(node));
        let stop = run(&mut world, Goal::Plain, &mut |_| None);
        let Err(Stop::Lost { block: 0, is_decodable: found }) = stop else { panic!("{stop:?}") };
        assert_eq!(found, is_decodable, "{lost} lost blocks");
        assert!(world.actions.is_empty(), "{:?}", world.actions);
    }
}

#[test]
fn a_lost_block_is_not_waited_for_for_ever() {
    let mut world = World::new(Start::Encoded);
    let node = *world.hdfs.files["/d/f"].blocks[0].replicas.first().expect("a replica");
    world.hdfs.kill(node);
    assert_eq!(run(&mut world, ENCODED, &mut |_| None), Err(Stop::Stalled(Waiting::Repair)));
    assert!(world.hdfs.files.contains_key("/p/d/f"));
}

/// Another command was killed between the check of the parity and the call that lowers the replication. The NameNode
/// lists replicas on a dead DataNode for ten minutes.
#[test]
fn the_replication_is_not_lowered_while_parity_is_only_on_a_silent_datanode() {
    let mut world = World::new(Start::Replicated);
    let mut killed = Command::new(&world, ENCODED, 100);
    while !matches!(killed.order, Order::Act { action: Action::SetReplication { .. }, .. }) {
        assert_eq!(killed.step(&mut world, &mut |_| None), None);
    }
    let node = *world.hdfs.files["/p/d/f"].blocks[0].replicas.first().expect("a replica");
    world.hdfs.silence(node);
    assert_eq!(run(&mut world, ENCODED, &mut |_| None), Err(Stop::Stalled(Waiting::Repair)));
    assert_eq!(world.hdfs.files["/d/f"].replication, 3);
}

#[test]
fn replicas_on_a_silent_datanode_do_not_replace_parity() {
    let mut world = World::new(Start::Encoded);
    let mut killed = Command::new(&world, Goal::Plain, 100);
    while !matches!(killed.order, Order::Act { action: Action::Delete(_), .. }) {
        assert_eq!(killed.step(&mut world, &mut |_| None), None);
    }
    let node = *world.hdfs.files["/d/f"].blocks[0].replicas.first().expect("a replica");
    world.hdfs.silence(node);
    assert_eq!(run(&mut world, Goal::Plain, &mut |_| None), Err(Stop::Stalled(Waiting::Replicas)));
    assert!(world.hdfs.files.contains_key("/p/d/f"));
}

/// HDFS keeps the replicas on such a DataNode until it has left, beyond the replication of the file.
#[test]
fn a_file_is_encoded_while_a_datanode_is_decommissioned() {
    let mut world = World::new(Start::Replicated);
    world.hdfs.decommission(0);
    assert_eq!(run(&mut world, ENCODED, &mut |_| None), Ok(End::Encoded));
    assert_eq!(world.hdfs.files["/d/f"].replication, 1);
}

#[test]
fn surplus_parity_is_kept_while_a_block_is_lost() {
    let mut world = World::new(Start::Encoded);
    world.hdfs.set_replication("/p/d/f", 2).expect("a file");
    world.hdfs.heartbeat();
    let node = *world.hdfs.files["/d/f"].blocks[0].replicas.first().expect("a replica");
    world.hdfs.kill(node);
    assert_eq!(run(&mut world, ENCODED, &mut |_| None), Err(Stop::Stalled(Waiting::Repair)));
    assert_eq!(world.hdfs.files["/p/d/f"].replication, 2);
}

/// HDFS has kept all blocks of a stripe on one DataNode.
#[test]
fn a_file_whose_blocks_cannot_be_moved_apart_gets_its_replicas() {
    let mut world = World::new(Start::Replicated);
    let mut full = |what: &str| what.starts_with("move").then(|| refused(Refusal::Other));
    let stop = run(&mut world, ENCODED, &mut full);
    assert!(matches!(stop, Err(Stop::Refused { kind: Refusal::Other, .. })), "{stop:?}");
    assert_eq!(world.hdfs.files["/d/f"].replication, 3);
    assert_eq!(run(&mut world, ENCODED, &mut |_| None), Ok(End::Encoded));
    world.assert_encoded();
}

/// Returns a file of two stripes right after its replication was lowered. The first DataNode holds all data of the first one.
fn lowered() -> (World, Command) {
    let mut world = World::new(Start::Replicated);
    let mut command = Command::new(&world, ENCODED, 100);
    while world.hdfs.files["/d/f"].replication > 1 {
        assert_eq!(command.step(&mut world, &mut |_| None), None);
    }
    (0..3).for_each(|_| world.hdfs.heartbeat());
    (world, command)
}

fn silence_parity(world: &mut World, block: usize) {
    let node = *world.hdfs.files["/p/d/f"].blocks[block].replicas.first().expect("a replica");
    world.hdfs.silence(node);
}

/// The stripe may lose two blocks, one is on a silent DataNode, and another DataNode has three.
#[test]
fn a_silent_datanode_before_the_moves_raises_the_replication_again() {
    let (mut world, mut command) = lowered();
    silence_parity(&mut world, 0);
    assert_eq!(command.run(&mut world, &mut |_| None), Err(Stop::Stalled(Waiting::Repair)));
    assert_eq!(world.hdfs.files["/d/f"].replication, 3);
}

/// The second stripe waits for its repair. Meanwhile the first one must not depend on one DataNode.
#[test]
fn a_silent_datanode_stops_the_moves_of_its_own_stripes_only() {
    let (mut world, mut command) = lowered();
    let places = [("/d/f", vec![0, 0, 0, 0, 6]), ("/p/d/f", vec![7, 8, 1, 5])];
    for (path, nodes) in places {
        let blocks = &mut world.hdfs.files.get_mut(path).expect("a file").blocks;
        blocks.iter_mut().zip(nodes).for_each(|(block, node)| block.replicas = [node].into());
    }
    world.hdfs.silence(1);
    assert_eq!(command.run(&mut world, &mut |_| None), Err(Stop::Stalled(Waiting::Repair)));
    let file = &world.hdfs.files["/d/f"];
    let nodes: BTreeSet<usize> =
        file.blocks[..3].iter().flat_map(|block| block.replicas.iter().copied()).collect();
    assert_eq!((nodes.len(), file.replication), (3, 1), "{nodes:?}");
}

/// HDFS keeps the replication of the snapshot, whatever is asked for. The file is no longer below the folder.
#[test]
fn a_file_that_a_snapshot_keeps_gets_its_replication_back() {
    let mut world = World::new(Start::Replicated);
    let inode = world.hdfs.files["/d/f"].inode;
    world.hdfs.snapshotted.insert(inode);
    assert_eq!(run(&mut world, ENCODED, &mut |_| None), Err(Stop::Kept));
    assert_eq!(world.hdfs.files["/d/f"].replication, 3);
    assert_eq!(run(&mut world, Goal::Plain, &mut |_| None), Ok(End::Plain));
    world.assert_end(&End::Plain);
}

/// No DataNode has so many blocks of a stripe that its loss would cost data.
#[test]
fn a_file_that_survives_the_loss_of_a_datanode_keeps_its_replication() {
    let mut world = World::new(Start::Encoded);
    let to = world.hdfs.files["/d/f"].blocks[0].replicas.first().copied().expect("a replica");
    world.hdfs.files.get_mut("/d/f").expect("a file").blocks[1].replicas = [to].into();
    let mut full = |what: &str| what.starts_with("move").then(|| refused(Refusal::Other));
    let stop = run(&mut world, ENCODED, &mut full);
    assert!(matches!(stop, Err(Stop::Refused { kind: Refusal::Other, .. })), "{stop:?}");
    assert_eq!(world.hdfs.files["/d/f"].replication, 1);
}

/// Another program has deleted it after the command listed the file.
#[test]
fn a_file_whose_parity_is_gone_before_an_undo_gets_its_replicas() {
    let mut world = World::new(Start::Encoded);
    world.is_late = true; // The blocks have neither replicas nor parity now.
    world.hdfs.delete("/p/d/f");
    assert_eq!(run(&mut world, Goal::Plain, &mut |_| None), Ok(End::Plain));
    world.assert_end(&End::Plain);
}

/// The NameNode does not answer for longer than the replicas have to stay the same. They may have changed unseen meanwhile.
#[test]
fn an_undo_does_not_count_the_time_of_failed_looks() {
    let mut world = World::new(Start::Encoded);
    let mut undo = Command::new(&world, Goal::Plain, 100);
    while !matches!(&undo.order, Order::Pause { why: Pause::Waiting(Waiting::Settled), .. }) {
        assert_eq!(undo.step(&mut world, &mut |_| None), None);
    }
    let over_ms = world.hdfs.now_ms + 3 * DECISION_MS;
    while world.hdfs.now_ms < over_ms {
        let mut outage = |what: &str| (what == "look").then_some(Trouble::SafeMode);
        assert_eq!(undo.step(&mut world, &mut outage), None);
    }
    assert_eq!(undo.run(&mut world, &mut |_| None), Ok(End::Plain));
    assert!(world.hdfs.now_ms >= over_ms + 2 * DECISION_MS, "the time began again");
    world.assert_end(&End::Plain);
}

#[test]
fn a_file_whose_parity_is_deleted_during_an_undo_gets_its_replicas() {
    let mut world = World::new(Start::Encoded);
    let mut undo = Command::new(&world, Goal::Plain, 100);
    while !matches!(undo.order, Order::Act { action: Action::SetReplication { .. }, .. }) {
        assert_eq!(undo.step(&mut world, &mut |_| None), None);
    }
    world.is_late = true; // The blocks have neither replicas nor parity now.
    world.hdfs.delete("/p/d/f");
    assert_eq!(undo.run(&mut world, &mut |_| None), Ok(End::Plain));
    world.assert_end(&End::Plain);
}
