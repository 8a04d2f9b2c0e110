//! Reports of helpers on how clients use them, and what m-PPR makes of these.

use repair::Heat;
use repair::wire::control::BlockHeat;
use views::{HelperUse, RepairState};

use super::*;

impl TestCluster {
    fn say_heat(&mut self, name: &str, block: &BlockId, heat: Heat) {
        let blocks = vec![BlockHeat { id: block.clone(), heat }];
        self.say(name, FromNode::Heat { blocks });
    }

    /// Returns how many assignments each node has received so far.
    fn assigned(&self) -> BTreeMap<String, usize> {
        self.nodes.iter().map(|(name, node)| (name.clone(), node.assigned.len())).collect()
    }

    /// Returns the indices of the blocks of a file's first stripe that nodes were told to read since then.
    fn read_since(&self, before: &BTreeMap<String, usize>, file: &FileLayout) -> BTreeSet<usize> {
        let since = self.nodes.iter().flat_map(|(name, node)| &node.assigned[before[name]..]);
        let read: BTreeSet<BlockId> =
            since.flat_map(|assignment| &assignment.locals).map(|local| local.id.clone()).collect();
        (0..4).filter(|&index| read.contains(&block(file, index))).collect()
    }

    /// Repairs all stripes by m-PPR. Returns the blocks of a file's first stripe that were read, and the scheme.
    fn repair_by_m_ppr(&mut self, file: &FileLayout) -> (BTreeSet<usize>, Option<String>) {
        let before = self.assigned();
        let repair = self.repair(by_m_ppr());
        assert_eq!(repair.state, RepairState::Done, "{repair:#?}");
        (self.read_since(&before, file), repair.items[0].scheme.clone())
    }
}

fn by_m_ppr() -> RepairRequest {
    RepairRequest { all: true, policy: Some("m-ppr".to_owned()), ..RepairRequest::default() }
}

/// A cluster with a file of one stripe, whose block 0 is lost.
fn damaged() -> (TestCluster, FileLayout) {
    let mut cluster = TestCluster::new(6);
    let file = cluster.put("f", 1);
    cluster.kill(&home(&file, 0));
    (cluster, file)
}

#[test]
fn m_ppr_reads_the_lowest_blocks_by_trees_if_no_helper_reports_anything() {
    let (mut cluster, file) = damaged();
    assert_eq!(cluster.repair_by_m_ppr(&file), (BTreeSet::from([1, 2]), Some("ppr".to_owned())));
}

#[test]
fn a_helper_that_reports_a_block_in_memory_is_chosen_as_a_source() {
    let (mut cluster, file) = damaged();
    cluster.say_heat(&home(&file, 3), &block(&file, 3), Heat::Hot);
    assert_eq!(cluster.repair_by_m_ppr(&file).0, BTreeSet::from([1, 3]));
}

#[test]
fn a_block_that_clients_read_often_is_avoided() {
    let (mut cluster, file) = damaged();
    cluster.say_heat(&home(&file, 1), &block(&file, 1), Heat::VeryHot);
    assert_eq!(cluster.repair_by_m_ppr(&file).0, BTreeSet::from([2, 3]));
}

#[test]
fn a_helper_from_which_clients_read_is_avoided() {
    let (mut cluster, file) = damaged();
    cluster.say(&home(&file, 2), FromNode::UserLoad { bytes_per_s: 50_000_000 });
    assert_eq!(cluster.repair_by_m_ppr(&file).0, BTreeSet::from([1, 3]));
}

#[test]
fn a_report_about_a_waiting_stripe_counts() {
    let (mut cluster, file) = damaged();
    let back = home(&file, 1);
    cluster.kill(&back);
    cluster.frozen.insert(back.clone());
    cluster.start(&back); // The stripe waits until this helper has described its blocks.
    let before = cluster.assigned();
    let waiting = cluster.repair(by_m_ppr());
    assert!(!waiting.state.has_ended(), "{waiting:#?}");
    cluster.say_heat(&home(&file, 3), &block(&file, 3), Heat::Hot);
    cluster.frozen.clear();
    cluster.wait(Duration::from_secs(2));
    let repair = cluster.repair_state(waiting.repair);
    assert_eq!(repair.state, RepairState::Done, "{repair:#?}");
    assert_eq!(cluster.read_since(&before, &file), BTreeSet::from([1, 3]));
}

#[test]
fn reports_are_shown_and_end_with_the_connection() {
    let mut cluster = TestCluster::new(6);
    let file = cluster.put("f", 1);
    let (name, held) = (home(&file, 1), block(&file, 1));
    cluster.say_heat(&name, &held, Heat::Hot);
    cluster.say_heat(&name, &BlockId("unknown".to_owned()), Heat::VeryHot);
    cluster.say(&name, FromNode::UserLoad { bytes_per_s: 7 });
    cluster.say("admin", FromNode::UserLoad { bytes_per_s: 9 });
    let expected = HelperUse { node: name.clone(), hot_blocks: 1, very_hot_blocks: 1, user_bytes_per_s: 7 };
    assert_eq!(cluster.status().helpers.in_use, [expected]);
    cluster.kill(&name);
    cluster.start(&name);
    assert!(cluster.status().helpers.in_use.is_empty(), "{:?}", cluster.status().helpers);
    cluster.kill(&home(&file, 0));
    assert_eq!(cluster.repair_by_m_ppr(&file).0, BTreeSet::from([1, 2]));
}
