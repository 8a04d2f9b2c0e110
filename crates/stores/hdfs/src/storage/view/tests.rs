//! Tests of the reports about block groups after sequences of listings, without a NameNode.

use std::sync::Arc;

use super::super::coded::{Coded, Extent, RaidBlock, RaidStripe};
use super::super::groups::{OPEN_SETTLING, SETTLING};
use super::*;
use crate::blocks::BlockGroup;
use crate::listing::{FileRef, Phase, Service};

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn live(reported: u64) -> Standing {
    Standing {
        uuid: "u".to_owned(),
        rack: "/r".to_owned(),
        live: true,
        is_silent: false,
        service: Service::Normal,
        reported,
    }
}

fn group(bytes: u64) -> BlockGroup {
    BlockGroup { number: -160, stamp: 7, bytes, policy: "RS-3-2-1k".parse().expect("a policy") }
}

/// Returns a group of five blocks, with block I on node I + 1. The blocks with the indices `without` are not
/// listed.
fn listed(without: &[u8]) -> Listed {
    let homes = (0..5).filter(|index| !without.contains(index));
    let homes = homes.map(|index| (index, NodeId(u32::from(index) + 1))).collect();
    Listed { file: file(), place: None, phase: Phase::Old, start: 0, group: group(9000).into(), homes }
}

fn file() -> FileRef {
    FileRef { inode: 1, held_at: None }
}

struct ViewTest {
    view: View,
    now: Duration,
}

impl ViewTest {
    fn new() -> Self {
        let mut test = Self { view: View::default(), now: seconds(1) };
        test.nodes(&[1, 2, 3, 4, 5], 10);
        test.list(vec![listed(&[])]);
        test
    }

    fn nodes(&mut self, up: &[u32], reported: u64) -> Vec<StoreChange> {
        let standings = up.iter().map(|&node| (NodeId(node), live(reported))).collect();
        self.view.take_nodes(self.now, standings)
    }

    /// Lets one of the five DataNodes have this service.
    fn serve(&mut self, node: u32, service: Service) {
        let service_of = |other| if other == node { service } else { Service::Normal };
        let standings =
            (1..=5).map(|node| (NodeId(node), Standing { service: service_of(node), ..live(10) }));
        self.view.take_nodes(self.now, standings.collect());
    }

    fn list(&mut self, groups: Vec<Listed>) -> Vec<StoreChange> {
        self.now += seconds(1);
        let changed = self.view.take_groups(self.now, self.now, groups, true);
        self.view.tell(self.now, changed)
    }

    /// Returns the holder and state of block 2.
    fn block(&mut self) -> (Option<u32>, BlockState) {
        let stripes = self.view.stripes(self.now);
        let block = &stripes[0].blocks[2];
        (block.node.map(|node| node.0), block.state)
    }
}

#[test]
fn a_group_is_reported_once() {
    let mut test = ViewTest::new();
    assert_eq!(test.list(vec![listed(&[])]), []);
    assert_eq!(test.block(), (Some(3), BlockState::Healthy));
    let stripe = test.view.stripes(test.now).remove(0);
    assert_eq!((stripe.id.0.as_str(), stripe.blocks.len()), ("group_-160_7", 5));
    assert_eq!(test.view.groups().listed(&stripe.id).map(|listed| listed.file.clone()), Some(file()));
    assert!(test.view.groups().listed(&StripeId("group_-160_8".into())).is_none());
}

#[test]
fn an_unlisted_block_of_a_live_datanode_becomes_missing() {
    let mut test = ViewTest::new();
    assert_eq!(test.list(vec![listed(&[2])]), [], "it may be a message that is late");
    assert_eq!(test.block(), (Some(3), BlockState::Healthy));
    test.now += PATIENCE;
    assert_eq!(test.list(vec![listed(&[2])]).len(), 1);
    assert_eq!(test.block(), (Some(3), BlockState::Missing));
    assert_eq!(test.list(vec![listed(&[])]).len(), 1);
    assert_eq!(test.block(), (Some(3), BlockState::Healthy));
}

#[test]
fn an_unlisted_block_is_queried_again_before_it_counts_as_missing() {
    let mut test = ViewTest::new();
    test.now += PATIENCE; // The DataNodes have reported all blocks by now.
    assert_eq!(test.list(vec![listed(&[2])]), []);
    assert_eq!(test.view.waiting(test.now, 9), []);
    test.now += CONFIRMING;
    assert_eq!(test.view.waiting(test.now, 9), [listed(&[2])]);
    assert_eq!(test.view.tell(test.now, [-160]), [], "no later answer lacks it");
    let changed = test.view.take_groups(test.now, test.now, vec![listed(&[2])], false);
    assert_eq!(test.view.tell(test.now, changed).len(), 1);
    assert_eq!((test.block(), test.view.waiting(test.now, 9)), ((Some(3), BlockState::Missing), Vec::new()));
}

#[test]
fn a_datanode_serves_when_its_blocks_or_its_losses_are_known() {
    let mut test = ViewTest::new();
    test.nodes(&[1, 2, 4, 5], 10);
    test.list(vec![listed(&[2])]);
    test.nodes(&[1, 2, 3, 4, 5], 20);
    assert!(!test.view.nodes().await_listing(test.now));
    test.now += PATIENCE;
    assert!(test.view.nodes().await_listing(test.now));
    let changed = test.view.note_losses(test.now, test.now, BTreeSet::new());
    assert_eq!(changed, BTreeSet::from([-160]));
    assert_eq!(test.view.tell_service(), [StoreChange::Service(NodeId(3), true)]);
}

#[test]
fn a_dead_datanode_keeps_its_blocks() {
    let mut test = ViewTest::new();
    let went = test.nodes(&[1, 2, 4, 5], 10);
    assert_eq!(went, [StoreChange::Service(NodeId(3), false)]);
    test.now += PATIENCE * 2;
    test.list(vec![listed(&[2])]);
    assert_eq!(test.block(), (Some(3), BlockState::Healthy));
    // The DataNode is back, but has not reported its blocks yet.
    test.nodes(&[1, 2, 3, 4, 5], 0);
    test.now += PATIENCE * 2;
    test.list(vec![listed(&[2])]);
    assert_eq!(test.block().1, BlockState::Healthy);
    test.nodes(&[1, 2, 3, 4, 5], 20);
    test.list(vec![listed(&[2])]);
    assert_eq!(test.block(), (Some(3), BlockState::Healthy));
    test.now += PATIENCE;
    test.list(vec![listed(&[2])]);
    assert_eq!(test.block(), (Some(3), BlockState::Missing), "it has told, and does not have it");
}

#[test]
fn a_group_is_removed_after_two_listings_without_it() {
    let mut test = ViewTest::new();
    assert_eq!(test.list(Vec::new()), []);
    assert_eq!(test.list(vec![listed(&[])]), []);
    assert_eq!(test.list(Vec::new()), []);
    assert_eq!(test.list(Vec::new()), [StoreChange::StripeGone(StripeId("group_-160_7".into()))]);
}

#[test]
fn another_generation_is_another_stripe() {
    let mut test = ViewTest::new();
    let again = Listed { group: BlockGroup { stamp: 8, ..group(9000) }.into(), ..listed(&[2]) };
    let changes = test.list(vec![again]);
    assert_eq!(changes, [StoreChange::StripeGone(StripeId("group_-160_7".into()))]);
    test.now += SETTLING;
    let changes =
        test.list(vec![Listed { group: BlockGroup { stamp: 8, ..group(9000) }.into(), ..listed(&[2]) }]);
    assert!(matches!(&changes[0], StoreChange::Stripe(stripe, false) if stripe.id.0 == "group_-160_8"));
    assert_eq!(test.block(), (None, BlockState::Missing), "nobody is known to have had it");
}

#[test]
fn an_outdated_answer_is_ignored() {
    let mut test = ViewTest::new();
    let asked = test.now - seconds(1);
    let changed = test.view.take_groups(test.now, asked, vec![listed(&[0, 1, 2])], true);
    assert!(changed.is_empty());
    let number = group(9000).number;
    assert_eq!(test.view.groups().get(number).expect("known").listed, listed(&[]));
}

#[test]
fn a_bad_copy_is_reported_until_it_is_unlisted() {
    let mut test = ViewTest::new();
    let stripe = StripeId("group_-160_7".into());
    let group = test.view.set_state(&stripe, BlockIndex(2), NodeId(3), BlockState::Corrupt);
    assert_eq!(test.view.tell(test.now, group).len(), 1);
    assert_eq!(test.block(), (Some(3), BlockState::Corrupt));
    // If another copy is healthy, that copy is reported.
    let mut both = listed(&[]);
    both.homes.push((2, NodeId(1)));
    test.list(vec![both]);
    assert_eq!(test.block(), (Some(1), BlockState::Healthy));
    test.now += PATIENCE;
    let mut other = listed(&[2]);
    other.homes.push((2, NodeId(1)));
    test.list(vec![other.clone()]);
    assert_eq!(test.view.take_gone(), [], "HDFS may not have deleted the copy yet");
    assert_eq!(test.view.waiting(test.now, 9), []);
    test.now += DELETING;
    assert_eq!(test.view.waiting(test.now, 9).len(), 1);
    test.list(vec![other]);
    assert_eq!(test.view.take_gone(), [(stripe, BlockIndex(2), NodeId(3))]);
    assert_eq!(test.view.waiting(test.now, 9), []);
}

/// HDFS deletes a corrupt copy only once all blocks of the group are live. A restarted NameNode takes it for good.
#[test]
fn a_bad_copy_stays_known_while_another_block_of_its_group_is_lost() {
    let mut test = ViewTest::new();
    let stripe = StripeId("group_-160_7".into());
    let group = test.view.set_state(&stripe, BlockIndex(2), NodeId(3), BlockState::Corrupt);
    test.view.tell(test.now, group);
    let mut rebuilt = listed(&[0, 2]);
    rebuilt.homes.push((2, NodeId(6)));
    for _ in 0..3 {
        test.now += DELETING;
        test.list(vec![rebuilt.clone()]);
    }
    assert_eq!(test.view.take_gone(), []);
    test.list(vec![listed(&[])]);
    assert_eq!(test.block(), (Some(3), BlockState::Corrupt));
}

#[test]
fn a_bad_copy_on_a_datanode_that_is_down_or_in_maintenance_is_still_bad() {
    for state in [BlockState::Corrupt, BlockState::Missing] {
        let mut test = ViewTest::new();
        test.view.set_state(&StripeId("group_-160_7".into()), BlockIndex(2), NodeId(3), state);
        test.now += PATIENCE;
        test.serve(3, Service::Maintenance);
        test.list(vec![listed(&[2])]);
        assert_eq!(test.block(), (Some(3), state));
        test.nodes(&[1, 2, 4, 5], 10);
        assert_eq!(test.block(), (Some(3), state));
    }
}

/// Lists the group without block 2 for the first time, while DataNode 3 is in maintenance.
fn started_during_maintenance() -> ViewTest {
    let mut test = ViewTest { view: View::default(), now: seconds(1) };
    test.serve(3, Service::Maintenance);
    test.view.note_losses(test.now, test.now, BTreeSet::new());
    test.list(vec![listed(&[2])]);
    test
}

/// The lists of losses count replicas on DataNodes in maintenance as present.
#[test]
fn a_block_that_was_never_listed_is_on_a_datanode_in_maintenance_unless_the_lists_name_its_group() {
    let mut test = started_during_maintenance();
    assert_eq!(test.block(), (Some(3), BlockState::Healthy));
    for (lacking, block) in [
        (BTreeSet::new(), (Some(3), BlockState::Healthy)),
        (BTreeSet::from([-160]), (None, BlockState::Missing)),
        (BTreeSet::new(), (Some(3), BlockState::Healthy)),
    ] {
        let changed = test.view.note_losses(test.now, test.now, lacking);
        test.view.tell(test.now, changed);
        assert_eq!(test.block(), block);
    }
    // A helper does not find it there.
    test.view.set_state(&StripeId("group_-160_7".into()), BlockIndex(2), NodeId(3), BlockState::Missing);
    assert_eq!(test.block(), (None, BlockState::Missing));
}

/// The group may lack the block, and no list tells.
#[test]
fn a_block_that_was_never_listed_is_lost_while_the_lists_cannot_be_read() {
    let mut test = started_during_maintenance();
    for _ in 0..2 {
        let changed = test.view.forget_losses();
        assert_eq!(test.view.tell(test.now, changed).len(), 1);
        assert_eq!(test.block(), (None, BlockState::Missing));
        assert_eq!(test.view.forget_losses(), BTreeSet::new());
        let changed = test.view.note_losses(test.now, test.now, BTreeSet::new());
        assert_eq!(test.view.tell(test.now, changed).len(), 1);
        assert_eq!(test.block(), (Some(3), BlockState::Healthy));
    }
    // They have not been read since the start.
    let mut test = ViewTest { view: View::default(), now: seconds(1) };
    test.serve(3, Service::Maintenance);
    test.list(vec![listed(&[2])]);
    assert_eq!(test.block(), (None, BlockState::Missing));
}

#[test]
fn blocks_that_were_never_listed_are_on_different_datanodes_in_maintenance() {
    let mut test = ViewTest { view: View::default(), now: seconds(1) };
    test.serve(3, Service::Maintenance);
    test.view.note_losses(test.now, test.now, BTreeSet::new());
    test.list(vec![listed(&[1, 2])]);
    let nodes: Vec<_> = test.view.stripes(test.now)[0].blocks.iter().map(|block| block.node).collect();
    assert_eq!(nodes[1..3], [Some(NodeId(3)), None], "one of them is lost");
    assert_eq!(test.view.doubled().len(), 0);
}

#[test]
fn blocks_are_queried_when_the_maintenance_of_their_datanode_ends() {
    let was_listed = || {
        let mut test = ViewTest::new();
        test.now += PATIENCE;
        test.serve(3, Service::Maintenance);
        test.list(vec![listed(&[2])]);
        test
    };
    for mut test in [started_during_maintenance(), was_listed()] {
        test.now += CONFIRMING;
        test.list(vec![listed(&[2])]);
        test.now += seconds(60);
        test.serve(3, Service::Normal);
        let unsure = test.view.take_unsure();
        assert_eq!(test.view.tell(test.now, unsure), [], "the answer is older");
        assert_eq!(test.block(), (Some(3), BlockState::Healthy));
        assert_eq!(test.view.waiting(test.now, 9), [listed(&[2])]);
        let changed = test.view.take_groups(test.now, test.now, vec![listed(&[2])], false);
        assert_eq!(test.view.tell(test.now, changed).len(), 1);
        assert_eq!(test.block().1, BlockState::Missing);
    }
}

/// Lets DataNode 3 die, of which the copy of block 2 is corrupt, and returns the group with the block rebuilt on
/// DataNode 6.
fn rebuilt_while_away(test: &mut ViewTest) -> Listed {
    let stripe = StripeId("group_-160_7".into());
    test.view.set_state(&stripe, BlockIndex(2), NodeId(3), BlockState::Corrupt);
    test.now += PATIENCE;
    test.nodes(&[1, 2, 4, 5], 10);
    let mut rebuilt = listed(&[2]);
    rebuilt.homes.push((2, NodeId(6)));
    test.list(vec![rebuilt.clone()]);
    assert_eq!((test.block(), test.view.take_gone()), ((Some(6), BlockState::Healthy), Vec::new()));
    rebuilt
}

/// The NameNode takes the copy for good, and may remove the rebuilt one.
#[test]
fn a_bad_copy_is_still_bad_when_its_datanode_returns() {
    let mut test = ViewTest::new();
    let mut both = rebuilt_while_away(&mut test);
    test.nodes(&[1, 2, 3, 4, 5], 20);
    both.homes.push((2, NodeId(3)));
    test.list(vec![both]);
    assert_eq!(test.block(), (Some(6), BlockState::Healthy));
    test.now += PATIENCE;
    test.list(vec![listed(&[])]);
    assert_eq!((test.block(), test.view.take_gone()), ((Some(3), BlockState::Corrupt), Vec::new()));
}

#[test]
fn a_bad_copy_is_forgotten_when_its_datanode_has_returned_without_it() {
    let mut test = ViewTest::new();
    let rebuilt = rebuilt_while_away(&mut test);
    let gone = [(StripeId("group_-160_7".into()), BlockIndex(2), NodeId(3))];
    test.nodes(&[1, 2, 3, 4, 5], 20);
    test.list(vec![rebuilt.clone()]);
    assert_eq!(test.view.waiting(test.now, 9), [], "it may not have reported all blocks");
    test.now += DELETING;
    let unsure = test.view.note_losses(test.now, test.now, BTreeSet::new());
    test.view.tell(test.now, unsure);
    assert_eq!(test.view.take_gone(), [], "the last answer is older than the report");
    assert_eq!(test.view.waiting(test.now, 9).len(), 1);
    let changed = test.view.take_groups(test.now, test.now, vec![rebuilt], false);
    test.view.tell(test.now, changed);
    assert_eq!((test.view.take_gone().as_slice(), test.view.waiting(test.now, 9).len()), (&gone[..], 0));
    // Its node was removed.
    let mut test = ViewTest::new();
    let rebuilt = rebuilt_while_away(&mut test);
    test.view.forget_node(NodeId(3));
    test.list(vec![rebuilt]);
    assert_eq!(test.view.take_gone(), gone);
}

/// The NameNode does not list a replica that it knows to be corrupt. After a restart it does, as if it were healthy.
#[test]
fn a_bad_copy_that_is_listed_again_is_still_bad() {
    let mut test = ViewTest::new();
    let stripe = StripeId("group_-160_7".into());
    let group = test.view.set_state(&stripe, BlockIndex(2), NodeId(3), BlockState::Corrupt);
    test.view.tell(test.now, group);
    for _ in 0..3 {
        test.list(vec![listed(&[2])]);
    }
    assert_eq!(test.view.take_gone(), []);
    test.list(vec![listed(&[])]);
    assert_eq!(test.block(), (Some(3), BlockState::Corrupt));
    test.view.set_state(&stripe, BlockIndex(2), NodeId(3), BlockState::Healthy);
    test.list(vec![listed(&[])]);
    assert_eq!(test.block(), (Some(3), BlockState::Healthy));
}

#[test]
fn a_leaving_datanode_holds_blocks_without_another_holder() {
    let mut test = ViewTest::new();
    let mut leaving = live(10);
    leaving.service = Service::Leaving;
    let mut standings: Vec<_> = [1, 2, 4, 5].map(|node| (NodeId(node), live(10))).to_vec();
    standings.push((NodeId(3), leaving));
    assert_eq!(test.view.take_nodes(test.now, standings), []);
    assert!(!test.view.nodes().may_take(NodeId(3)));
    assert_eq!(test.block(), (Some(3), BlockState::Healthy));
    let mut both = listed(&[]);
    both.homes.push((2, NodeId(5)));
    test.list(vec![both]);
    assert_eq!(test.block(), (Some(5), BlockState::Healthy));
}

#[test]
fn nodes_count_as_in_service_before_the_first_listing() {
    let mut view = View::default();
    assert_eq!(view.assume_service(NodeId(9)), Some(StoreChange::Service(NodeId(9), true)));
    assert_eq!(view.everything(seconds(1)), [StoreChange::Service(NodeId(9), true)]);
    let changes = view.take_nodes(seconds(1), vec![(NodeId(1), live(1))]);
    assert_eq!(changes, [StoreChange::Service(NodeId(1), true), StoreChange::Service(NodeId(9), false)]);
    assert_eq!(view.assume_service(NodeId(9)), None);
}

#[test]
fn a_file_in_a_folder_and_a_snapshot_is_queried_in_the_folder() {
    let mut test = ViewTest::new();
    let held_at = Some("%2F.snapshot%2Fs%2Ff".to_owned());
    let in_snapshot = Listed { file: FileRef { held_at, ..file() }, ..listed(&[]) };
    let asked_for = |test: &ViewTest| {
        test.view.groups().listed(&StripeId("group_-160_7".into())).expect("listed").file.held_at.is_some()
    };
    test.list(vec![listed(&[]), in_snapshot.clone()]);
    assert!(!asked_for(&test));
    test.list(vec![in_snapshot]);
    assert!(asked_for(&test));
}

/// Returns another group, in a file of this phase, whose block 2 was never listed.
fn written(phase: Phase) -> Listed {
    Listed { phase, group: BlockGroup { number: -320, ..group(9000) }.into(), ..listed(&[2]) }
}

#[test]
fn a_group_with_unreported_blocks_is_not_reported() {
    let mut test = ViewTest::new();
    assert_eq!(test.list(vec![listed(&[]), written(Phase::New)]), []);
    assert_eq!((test.view.unsettled(), test.view.due(test.now, 9).len()), (1, 0));
    test.now += SETTLING;
    assert_eq!(test.view.tell(test.now, [-320]), [], "what is known was asked for before");
    assert_eq!(test.view.due(test.now, 9), [written(Phase::New)]);
    let told = Listed { homes: listed(&[]).homes, ..written(Phase::New) };
    let changes = test.list(vec![listed(&[]), told]);
    assert!(matches!(&changes[..], [StoreChange::Stripe(stripe, false)] if stripe.id.0 == "group_-320_7"));
    assert_eq!(test.view.unsettled(), 0);
}

#[test]
fn a_removed_group_is_not_waited_for() {
    let mut test = ViewTest::new();
    test.list(vec![listed(&[2]), written(Phase::New)]);
    assert_eq!((test.view.unsettled(), test.view.groups().block_counts().get(&NodeId(1))), (1, Some(&2)));
    test.view.groups_mut().remove(test.now, &[(-320, 1), (-160, 1)]);
    assert_eq!(test.view.tell(test.now, []), [StoreChange::StripeGone(StripeId("group_-160_7".into()))]);
    test.now += CONFIRMING;
    assert_eq!((test.view.unsettled(), test.view.waiting(test.now, 9)), (0, Vec::new()));
    assert_eq!(test.view.groups().block_counts().get(&NodeId(1)), Some(&0));
}

#[test]
fn only_groups_without_damage_are_plain() {
    let mut test = ViewTest::new();
    let is_plain = |test: &ViewTest| !test.view.groups().is_held(-160);
    assert!(is_plain(&test));
    test.list(vec![listed(&[2])]);
    assert!(!is_plain(&test));
    test.list(vec![listed(&[])]);
    assert!(is_plain(&test));
    let stripe = StripeId("group_-160_7".into());
    for (state, plain) in [(BlockState::Corrupt, false), (BlockState::Healthy, true)] {
        let group = test.view.set_state(&stripe, BlockIndex(2), NodeId(3), state);
        assert_eq!(test.view.tell(test.now, group).len(), 1);
        assert_eq!(is_plain(&test), plain);
    }
    // HDFS has moved a block.
    let mut moved = listed(&[2]);
    moved.homes.push((2, NodeId(6)));
    assert_eq!(test.list(vec![moved]).len(), 1);
    assert_eq!((test.block(), is_plain(&test)), ((Some(6), BlockState::Healthy), true));
    test.list(Vec::new());
    assert!(!is_plain(&test), "the next listing may drop it");
    assert_eq!(test.view.everything(test.now).len(), 6);
}

/// The NameNode lists block 2 on the DataNode of block 0, on another disk.
#[test]
fn two_blocks_on_one_datanode_are_known() {
    let mut test = ViewTest::new();
    test.nodes(&[1, 2, 3, 4, 5, 6], 10);
    let mut both = listed(&[2]);
    both.homes.push((2, NodeId(1)));
    assert_eq!(test.list(vec![both.clone()]).len(), 1);
    assert_eq!(test.view.doubled(), &BTreeMap::from([(-160, NodeId(1))]));
    assert!(test.view.groups().is_held(-160), "it is not plain");
    assert!(
        both.is_beside(&[3], NodeId(1))
            && !both.is_beside(&[2], NodeId(1))
            && !both.is_beside(&[3], NodeId(6))
    );
    // There is another copy of block 2, on a DataNode without another block of the group.
    both.homes.push((2, NodeId(6)));
    test.list(vec![both]);
    assert_eq!((test.block(), test.view.doubled().len()), ((Some(6), BlockState::Healthy), 0));
}

/// A NameNode that lists only one block of a group for each DataNode drops block 2 when its DataNode reports block 0.
#[test]
fn a_block_that_another_one_has_displaced_is_lost_and_its_datanode_is_known() {
    let mut test = ViewTest::new();
    let mut displaced = listed(&[0, 2]);
    displaced.homes.push((0, NodeId(3)));
    test.list(vec![displaced.clone()]);
    assert_eq!(test.view.doubled(), &BTreeMap::from([(-160, NodeId(3))]));
    test.now += PATIENCE;
    test.list(vec![displaced.clone()]);
    assert_eq!(test.block(), (Some(3), BlockState::Missing), "it does not count for what the group can lose");
    displaced.homes.push((2, NodeId(1)));
    test.list(vec![displaced]);
    assert_eq!((test.block(), test.view.doubled().len()), ((Some(1), BlockState::Healthy), 0));
}

#[test]
fn a_block_that_is_not_reported_in_time_is_missing() {
    let mut test = ViewTest::new();
    test.list(vec![listed(&[]), written(Phase::New)]);
    test.now += SETTLING;
    let (asked, again) = (test.now, vec![written(Phase::New)]);
    let changed = test.view.take_groups(test.now, asked, again, false);
    let changes = test.view.tell(test.now, changed);
    let [StoreChange::Stripe(stripe, false)] = &changes[..] else { panic!("{changes:?}") };
    assert_eq!((stripe.blocks[2].node, stripe.blocks[2].state), (None, BlockState::Missing));
    assert_eq!(test.view.unsettled(), 0);
}

#[test]
fn an_open_file_has_more_time_and_settles_after_closing() {
    let mut test = ViewTest::new();
    test.list(vec![listed(&[]), written(Phase::Open)]);
    test.now += SETTLING;
    assert_eq!(test.list(vec![listed(&[]), written(Phase::Open)]), []);
    assert_eq!(test.list(vec![listed(&[]), written(Phase::New)]), [], "it was closed just now");
    test.now += SETTLING;
    assert_eq!(test.list(vec![listed(&[]), written(Phase::New)]).len(), 1);
    // A group of a file that stays open for a long time is reported even if a block was never listed.
    let mut test = ViewTest::new();
    test.list(vec![listed(&[]), written(Phase::Open)]);
    test.now += OPEN_SETTLING;
    assert_eq!(test.list(vec![listed(&[]), written(Phase::Open)]).len(), 1);
}

/// A client appends to a file of which a block was lost before the coordinator's start.
#[test]
fn a_reported_group_stays_reported_when_its_file_is_closed() {
    let mut test = ViewTest::new();
    test.list(vec![listed(&[]), written(Phase::Open)]);
    test.now += OPEN_SETTLING;
    assert_eq!(test.list(vec![listed(&[]), written(Phase::Open)]).len(), 1);
    for phase in [Phase::New, Phase::Open, Phase::New] {
        test.now += seconds(1);
        assert_eq!(test.list(vec![listed(&[]), written(phase)]), []);
        assert_eq!(test.view.unsettled(), 0);
    }
}

#[test]
fn an_old_degraded_group_is_reported_at_the_first_listing() {
    let mut view = View::default();
    view.take_nodes(seconds(1), vec![(NodeId(1), live(1))]);
    let changed = view.take_groups(seconds(1), seconds(1), vec![listed(&[2]), written(Phase::New)], true);
    let changes = view.tell(seconds(1), changed);
    assert!(matches!(&changes[..], [StoreChange::Stripe(stripe, false)] if stripe.id.0 == "group_-160_7"));
    assert_eq!(view.unsettled(), 1);
}

/// A DataNode has not reported its blocks when all groups are listed for the first time.
#[test]
fn unsettled_groups_of_the_first_listing_are_late_until_all_are_reported() {
    let mut view = View::default();
    view.take_nodes(seconds(1), vec![(NodeId(1), live(1)), (NodeId(3), live(0))]);
    let other = |without: &[u8]| Listed { homes: listed(without).homes, ..written(Phase::Old) };
    let changed = view.take_groups(seconds(1), seconds(1), vec![listed(&[2]), other(&[2])], true);
    assert_eq!(view.tell(seconds(1), changed), []);
    assert_eq!(view.note_first_told(), Some(StoreChange::LateStripes(true)));
    assert_eq!(view.everything(seconds(1)).last(), Some(&StoreChange::LateStripes(true)));
    let mut list = |at: u64, group: Listed| {
        let changed = view.take_groups(seconds(at), seconds(at), vec![group], false);
        view.tell(seconds(at), changed)
    };
    let changes = list(2, listed(&[]));
    assert!(matches!(&changes[..], [StoreChange::Stripe(..)]), "the other one is still late: {changes:?}");
    // A group that was created since is not late.
    let new = Listed { group: BlockGroup { number: -480, ..group(9000) }.into(), ..written(Phase::New) };
    assert_eq!(list(3, new), []);
    let changes = list(4, other(&[]));
    assert!(
        matches!(&changes[..], [StoreChange::Stripe(..), StoreChange::LateStripes(false)]),
        "{changes:?}"
    );
    assert_eq!(list(5, other(&[])), []);
}

/// The NameNode may still list the copy that a rebuilt block is to replace.
#[test]
fn bad_copies_and_leaving_datanodes_are_no_good_homes() {
    let mut test = ViewTest::new();
    let (stripe, at, node) = (test.view.stripes(test.now).remove(0).id, BlockIndex(2), NodeId(3));
    for (state, is_good) in [(BlockState::Corrupt, false), (BlockState::Healthy, true)] {
        test.view.set_state(&stripe, at, node, state);
        assert_eq!(test.view.is_good_home(&stripe, at, node), is_good, "{state:?}");
    }
    let leaving = Standing { service: Service::Leaving, ..live(10) };
    test.view.take_nodes(test.now, vec![(node, leaving)]);
    assert!(!test.view.is_good_home(&stripe, at, node));
}

/// Returns a stripe of a raided file: two data blocks, and a parity block.
fn raided(homes: &[(u8, u32)]) -> Listed {
    let block = |number| RaidBlock { number, stamp: 1001, bytes: 512 };
    let stripe = RaidStripe {
        code: Arc::new("xor-3-2".parse().expect("a code")),
        block_bytes: 512,
        source: 1,
        data: vec![Extent { inode: 1, start: 0, blocks: 2 }],
        parity: Extent { inode: 2, start: 0, blocks: 1 },
        blocks: [32, 33, 40].map(block).to_vec(),
    };
    let homes = homes.iter().map(|&(index, node)| (index, NodeId(node))).collect();
    Listed { group: Coded::Raid(Arc::new(stripe)), homes, ..listed(&[]) }
}

#[test]
fn stripes_of_raided_files_are_plain_until_they_are_damaged() {
    let mut test = ViewTest::new();
    let whole = raided(&[(0, 1), (1, 2), (2, 3)]);
    let changes = test.list(vec![listed(&[]), whole.clone()]);
    assert!(matches!(&changes[..], [StoreChange::Stripe(stripe, false)] if stripe.id.0 == "raid_32_1001"));
    assert!(!test.view.groups().is_held(32), "it is plain");
    assert_eq!(test.view.groups().get(32).expect("known").listed, whole);
    assert_eq!([33, 40, 41].map(|block| test.view.groups().stripe_of(block)), [Some(32), Some(32), None]);
    test.now += PATIENCE;
    test.list(vec![listed(&[]), raided(&[(0, 1), (2, 3)])]);
    let changes = test.list(vec![listed(&[]), raided(&[(0, 1), (2, 3)])]);
    let [StoreChange::Stripe(stripe, false)] = &changes[..] else { panic!("{changes:?}") };
    let states: Vec<_> = stripe.blocks.iter().map(|block| (block.node, block.state)).collect();
    assert_eq!(states[1], (Some(NodeId(2)), BlockState::Missing));
    assert_eq!(states[0], (Some(NodeId(1)), BlockState::Healthy));
    test.list(vec![listed(&[])]);
    let gone = StoreChange::StripeGone(StripeId("raid_32_1001".into()));
    assert_eq!(test.list(vec![listed(&[])]), [gone]);
    assert_eq!(test.view.groups().stripe_of(33), None);
}

/// A file whose replication has not been lowered survives the loss of a DataNode with blocks of one stripe.
#[test]
fn replicated_blocks_of_a_raided_file_are_not_misplaced() {
    let mut test = ViewTest::new();
    let blocks = [(0, 1), (0, 2), (1, 1), (1, 2), (2, 1), (2, 2)];
    test.list(vec![listed(&[]), raided(&blocks)]);
    assert_eq!(test.view.doubled().len(), 0);
    test.list(vec![listed(&[]), raided(&[(0, 1), (1, 1), (2, 1), (2, 2)])]);
    assert_eq!(test.view.doubled(), &BTreeMap::from([(32, NodeId(1))]));
}

#[test]
fn a_block_of_a_raided_file_is_read_from_a_datanode_in_service() {
    let mut test = ViewTest::new();
    test.list(vec![listed(&[]), raided(&[(0, 1), (0, 4), (1, 2), (2, 3)])]);
    let node = |test: &mut ViewTest| test.view.stripes(test.now).pop().expect("listed last").blocks[0].node;
    assert_eq!(node(&mut test), Some(NodeId(1)));
    test.nodes(&[2, 3, 4, 5], 10);
    let unsure = test.view.take_unsure();
    let told = test.view.tell(test.now, unsure);
    assert!(
        matches!(&told[..], [StoreChange::Stripe(stripe, false)] if stripe.id.0 == "raid_32_1001"),
        "{told:?}"
    );
    assert_eq!(node(&mut test), Some(NodeId(4)));
}
