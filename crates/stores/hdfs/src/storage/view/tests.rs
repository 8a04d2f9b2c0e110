//! Tests of the reports about block groups after sequences of listings, without a NameNode.

use super::super::groups::{OPEN_SETTLING, SETTLING};
use super::*;
use crate::blocks::BlockGroup;
use crate::listing::{FileRef, Phase, Service};

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn live(reported: u64) -> Standing {
    Standing { rack: "/r".to_owned(), live: true, service: Service::Normal, reported }
}

fn group(bytes: u64) -> BlockGroup {
    BlockGroup { number: -160, stamp: 7, bytes, policy: "RS-3-2-1k".parse().expect("a policy") }
}

/// Returns a group of five blocks, with block I on node I + 1. The blocks with the indices `without` are not
/// listed.
fn listed(without: &[u8]) -> Listed {
    let homes = (0..5).filter(|index| !without.contains(index));
    let homes = homes.map(|index| (index, NodeId(u32::from(index) + 1))).collect();
    Listed { file: file(), phase: Phase::Old, start: 0, group: group(9000), homes }
}

fn file() -> FileRef {
    FileRef { inode: 1, held_at: None }
}

struct Scene {
    view: View,
    now: Duration,
}

impl Scene {
    fn new() -> Self {
        let mut scene = Self { view: View::default(), now: seconds(1) };
        scene.nodes(&[1, 2, 3, 4, 5], 10);
        scene.list(vec![listed(&[])]);
        scene
    }

    fn nodes(&mut self, up: &[u32], reported: u64) -> Vec<StoreChange> {
        let standings = up.iter().map(|&node| (NodeId(node), live(reported))).collect();
        self.view.take_nodes(self.now, standings)
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
    let mut scene = Scene::new();
    assert_eq!(scene.list(vec![listed(&[])]), []);
    assert_eq!(scene.block(), (Some(3), BlockState::Healthy));
    let stripe = scene.view.stripes(scene.now).remove(0);
    assert_eq!((stripe.id.0.as_str(), stripe.blocks.len()), ("group_-160_7", 5));
    assert_eq!(scene.view.groups().listed(&stripe.id).map(|listed| listed.file.clone()), Some(file()));
    assert!(scene.view.groups().listed(&StripeId("group_-160_8".into())).is_none());
}

#[test]
fn an_unlisted_block_of_a_live_datanode_becomes_missing() {
    let mut scene = Scene::new();
    assert_eq!(scene.list(vec![listed(&[2])]), [], "it may be a message that is late");
    assert_eq!(scene.block(), (Some(3), BlockState::Healthy));
    scene.now += PATIENCE;
    assert_eq!(scene.list(vec![listed(&[2])]).len(), 1);
    assert_eq!(scene.block(), (Some(3), BlockState::Missing));
    assert_eq!(scene.list(vec![listed(&[])]).len(), 1);
    assert_eq!(scene.block(), (Some(3), BlockState::Healthy));
}

#[test]
fn a_dead_datanode_keeps_its_blocks() {
    let mut scene = Scene::new();
    let went = scene.nodes(&[1, 2, 4, 5], 10);
    assert_eq!(went, [StoreChange::Service(NodeId(3), false)]);
    scene.now += PATIENCE * 2;
    scene.list(vec![listed(&[2])]);
    assert_eq!(scene.block(), (Some(3), BlockState::Healthy));
    // The DataNode is back, but has not reported its blocks yet.
    scene.nodes(&[1, 2, 3, 4, 5], 0);
    scene.now += PATIENCE * 2;
    scene.list(vec![listed(&[2])]);
    assert_eq!(scene.block().1, BlockState::Healthy);
    scene.nodes(&[1, 2, 3, 4, 5], 20);
    scene.list(vec![listed(&[2])]);
    assert_eq!(scene.block(), (Some(3), BlockState::Healthy));
    scene.now += PATIENCE;
    scene.list(vec![listed(&[2])]);
    assert_eq!(scene.block(), (Some(3), BlockState::Missing), "it has told, and does not have it");
}

#[test]
fn a_group_is_removed_after_two_listings_without_it() {
    let mut scene = Scene::new();
    assert_eq!(scene.list(Vec::new()), []);
    assert_eq!(scene.list(vec![listed(&[])]), []);
    assert_eq!(scene.list(Vec::new()), []);
    assert_eq!(scene.list(Vec::new()), [StoreChange::StripeGone(StripeId("group_-160_7".into()))]);
}

#[test]
fn another_generation_is_another_stripe() {
    let mut scene = Scene::new();
    let again = Listed { group: BlockGroup { stamp: 8, ..group(9000) }, ..listed(&[2]) };
    let changes = scene.list(vec![again]);
    assert_eq!(changes, [StoreChange::StripeGone(StripeId("group_-160_7".into()))]);
    scene.now += SETTLING;
    let changes = scene.list(vec![Listed { group: BlockGroup { stamp: 8, ..group(9000) }, ..listed(&[2]) }]);
    assert!(matches!(&changes[0], StoreChange::Stripe(stripe, false) if stripe.id.0 == "group_-160_8"));
    assert_eq!(scene.block(), (None, BlockState::Missing), "nobody is known to have had it");
}

#[test]
fn an_outdated_answer_is_ignored() {
    let mut scene = Scene::new();
    let asked = scene.now - seconds(1);
    let changed = scene.view.take_groups(scene.now, asked, vec![listed(&[0, 1, 2])], true);
    assert!(changed.is_empty());
    let number = group(9000).number;
    assert!(scene.view.groups().fresh(number, scene.now + seconds(1)).is_none());
    assert!(scene.view.groups().fresh(number, asked).is_some());
}

#[test]
fn a_bad_copy_is_reported_until_it_is_unlisted() {
    let mut scene = Scene::new();
    let stripe = StripeId("group_-160_7".into());
    let group = scene.view.set_state(&stripe, BlockIndex(2), NodeId(3), BlockState::Corrupt);
    assert_eq!(scene.view.tell(scene.now, group).len(), 1);
    assert_eq!(scene.block(), (Some(3), BlockState::Corrupt));
    // If another copy is healthy, that copy is reported.
    let mut both = listed(&[]);
    both.homes.push((2, NodeId(1)));
    scene.list(vec![both]);
    assert_eq!(scene.block(), (Some(1), BlockState::Healthy));
    let mut other = listed(&[2]);
    other.homes.push((2, NodeId(1)));
    scene.list(vec![other]);
    assert_eq!(scene.view.take_gone(), [(stripe, BlockIndex(2), NodeId(3))]);
}

#[test]
fn a_leaving_datanode_holds_blocks_without_another_holder() {
    let mut scene = Scene::new();
    let mut leaving = live(10);
    leaving.service = Service::Leaving;
    let mut standings: Vec<_> = [1, 2, 4, 5].map(|node| (NodeId(node), live(10))).to_vec();
    standings.push((NodeId(3), leaving));
    assert_eq!(scene.view.take_nodes(scene.now, standings), []);
    assert!(!scene.view.nodes().may_take(NodeId(3)));
    assert_eq!(scene.block(), (Some(3), BlockState::Healthy));
    let mut both = listed(&[]);
    both.homes.push((2, NodeId(5)));
    scene.list(vec![both]);
    assert_eq!(scene.block(), (Some(5), BlockState::Healthy));
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
    let mut scene = Scene::new();
    let held_at = Some("%2F.snapshot%2Fs%2Ff".to_owned());
    let in_snapshot = Listed { file: FileRef { held_at, ..file() }, ..listed(&[]) };
    let asked_for = |scene: &Scene| {
        scene.view.groups().listed(&StripeId("group_-160_7".into())).expect("listed").file.held_at.is_some()
    };
    scene.list(vec![listed(&[]), in_snapshot.clone()]);
    assert!(!asked_for(&scene));
    scene.list(vec![in_snapshot]);
    assert!(asked_for(&scene));
}

/// Returns another group, in a file of this phase, whose block 2 was never listed.
fn written(phase: Phase) -> Listed {
    Listed { phase, group: BlockGroup { number: -320, ..group(9000) }, ..listed(&[2]) }
}

#[test]
fn a_group_with_unreported_blocks_is_not_reported() {
    let mut scene = Scene::new();
    assert_eq!(scene.list(vec![listed(&[]), written(Phase::New)]), []);
    assert_eq!((scene.view.unsettled(), scene.view.due(scene.now, 9).len()), (1, 0));
    scene.now += SETTLING;
    assert_eq!(scene.view.tell(scene.now, [-320]), [], "what is known was asked for before");
    assert_eq!(scene.view.due(scene.now, 9), [written(Phase::New)]);
    let told = Listed { homes: listed(&[]).homes, ..written(Phase::New) };
    let changes = scene.list(vec![listed(&[]), told]);
    assert!(matches!(&changes[..], [StoreChange::Stripe(stripe, false)] if stripe.id.0 == "group_-320_7"));
    assert_eq!(scene.view.unsettled(), 0);
}

#[test]
fn a_block_that_is_not_reported_in_time_is_missing() {
    let mut scene = Scene::new();
    scene.list(vec![listed(&[]), written(Phase::New)]);
    scene.now += SETTLING;
    let (asked, again) = (scene.now, vec![written(Phase::New)]);
    let changed = scene.view.take_groups(scene.now, asked, again, false);
    let changes = scene.view.tell(scene.now, changed);
    let [StoreChange::Stripe(stripe, false)] = &changes[..] else { panic!("{changes:?}") };
    assert_eq!((stripe.blocks[2].node, stripe.blocks[2].state), (None, BlockState::Missing));
    assert_eq!(scene.view.unsettled(), 0);
}

#[test]
fn an_open_file_has_more_time_and_settles_after_closing() {
    let mut scene = Scene::new();
    scene.list(vec![listed(&[]), written(Phase::Open)]);
    scene.now += SETTLING;
    assert_eq!(scene.list(vec![listed(&[]), written(Phase::Open)]), []);
    assert_eq!(scene.list(vec![listed(&[]), written(Phase::New)]), [], "it was closed just now");
    scene.now += SETTLING;
    assert_eq!(scene.list(vec![listed(&[]), written(Phase::New)]).len(), 1);
    // A group of a file that stays open for a long time is reported even if a block was never listed.
    let mut scene = Scene::new();
    scene.list(vec![listed(&[]), written(Phase::Open)]);
    scene.now += OPEN_SETTLING;
    assert_eq!(scene.list(vec![listed(&[]), written(Phase::Open)]).len(), 1);
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
