//! The loss and recovery of a whole DataNode.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use testbed::Mend;
use testbed::hdfs::FsckFile;

use super::cluster::{HdfsLab, Replica};
use super::commands::CommandLog;
use super::losses::{await_lacking_every, processes, with_timeline};
use crate::error::LabError;
use crate::experiment::{Clock, Repaired, now_ms, time_program, wait_for_lost_blocks};

const RECOVER: &str = "mend node recover";
/// The pause between two questions for missing blocks. Each question lists all files, which takes processor time.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A lost DataNode, and the layout of the blocks before the loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LostNode {
    /// The number of blocks that the DataNode held.
    pub(crate) blocks: usize,
    /// The number of DataNodes that are left.
    pub(crate) survivors: usize,
    /// The most blocks that one DataNode has to take, because all others hold blocks of the same groups.
    pub(crate) forced: usize,
    /// The fewest and the most blocks on a DataNode.
    pub(crate) fewest: usize,
    pub(crate) most: usize,
}

impl LostNode {
    /// Returns the number of blocks that must at least cross the busiest link in one direction, with `data` data blocks in
    /// a group.
    ///
    /// A rebuilt block is a sum over `data` blocks of its group. These are on other DataNodes than the one that takes the
    /// rebuilt block, so each of them leaves its DataNode, and `data · blocks` sends share the uplinks of the survivors:
    /// `data · blocks / survivors` each if they are shared equally. A DataNode that has to take `forced` blocks receives
    /// at least as many. The bound is the larger number.
    pub(crate) fn bound(&self, data: usize) -> f64 {
        let shared = (data * self.blocks) as f64 / self.survivors as f64;
        shared.max(self.forced as f64)
    }
}

/// The DataNodes that run, and the DataNodes with the blocks of each group.
struct Layout {
    running: Vec<usize>,
    groups: Vec<Vec<usize>>,
}

impl Layout {
    fn of(lab: &HdfsLab, files: &[FsckFile]) -> Self {
        let addresses: Vec<String> = lab.cluster.nodes().iter().map(|node| node.address()).collect();
        let node = |address: &String| addresses.iter().position(|known| known == address);
        let blocks = files.iter().flat_map(|file| &file.blocks);
        let holders = blocks.map(|block| block.replicas.iter().filter_map(|(_, address)| node(address)));
        Self { running: lab.cluster.running(), groups: holders.map(Iterator::collect).collect() }
    }

    /// Returns the number of blocks on a DataNode.
    fn count(&self, node: usize) -> usize {
        self.groups.iter().flatten().filter(|&&holder| holder == node).count()
    }

    /// Returns the DataNode whose number of blocks is closest to `blocks`.
    fn nearest(&self, blocks: usize) -> usize {
        let nodes = self.running.iter().copied().filter(|&node| self.count(node) > 0);
        nodes.min_by_key(|&node| self.count(node).abs_diff(blocks)).expect("a DataNode with blocks")
    }

    /// Returns the DataNodes without a block of the group.
    fn free(&self, group: &[usize]) -> Vec<usize> {
        self.running.iter().copied().filter(|node| !group.contains(node)).collect()
    }

    /// Returns the most blocks of a DataNode that all have to go to the same other one.
    fn forced(&self, lost: usize) -> usize {
        let groups = self.groups.iter().filter(|group| group.contains(&lost));
        let mut forced: Vec<usize> = groups
            .filter_map(|group| match self.free(group)[..] {
                [only] => Some(only),
                _ => None,
            })
            .collect();
        forced.sort_unstable();
        forced.chunk_by(|one, other| one == other).map(<[usize]>::len).max().unwrap_or_default()
    }

    fn lost(&self, node: usize) -> LostNode {
        let counts = || self.running.iter().map(|&node| self.count(node));
        LostNode {
            blocks: self.count(node),
            survivors: self.running.len() - 1,
            forced: self.forced(node),
            fewest: counts().min().unwrap_or_default(),
            most: counts().max().unwrap_or_default(),
        }
    }
}

/// A DataNode that fails for good.
pub(crate) struct Gone {
    node: usize,
    path: String,
    before: Vec<Replica>,
    pub(crate) lost: LostNode,
    /// The files below the path without a block on the DataNode.
    untouched: Vec<String>,
}

/// The recovery of a DataNode.
pub(super) struct Recovery {
    /// The time from the declaration that the DataNode is dead, or from the operator's request.
    pub(super) repaired: Repaired,
    /// The time from the NameNode's first command.
    pub(super) from_command: Option<Duration>,
}

impl Gone {
    /// Chooses the DataNode whose number of blocks of files below `path` is closest to `blocks`.
    ///
    /// # Errors
    /// [`LabError`].
    pub(crate) fn choose(lab: &mut HdfsLab, path: &str, blocks: usize) -> Result<Self, LabError> {
        let files = lab.cluster.console().fsck(path);
        let layout = Layout::of(lab, &files);
        let node = layout.nearest(blocks);
        let before = lab.replicas(path, node)?;
        let address = lab.cluster.nodes()[node].address();
        let is_there = |file: &FsckFile| {
            file.blocks.iter().flat_map(|block| &block.replicas).any(|(_, holder)| *holder == address)
        };
        let untouched = files.iter().filter(|file| !is_there(file)).map(|file| file.path.clone()).collect();
        Ok(Self { node, path: path.to_owned(), before, lost: layout.lost(node), untouched })
    }

    /// Kills the DataNode and its helper.
    pub(crate) fn kill(&self, lab: &mut HdfsLab, mend: Option<&mut Mend>) {
        lab.cluster.kill(self.node);
        if let Some(mend) = mend {
            mend.kill_helper(self.node);
        }
    }

    /// Returns the files without a block on the DataNode.
    ///
    /// # Errors
    /// If there are none.
    pub(super) fn untouched(&self) -> Result<Vec<String>, LabError> {
        if self.untouched.is_empty() {
            let reason =
                "every file has a block on the lost DataNode; store more blocks (--blocks)".to_owned();
            return Err(LabError::Agent { who: "reads during a recovery".to_owned(), reason });
        }
        Ok(self.untouched.clone())
    }

    /// Waits until `is_so` is true for the number of missing blocks.
    fn await_lacking(
        &self,
        lab: &mut HdfsLab,
        who: &str,
        is_so: impl Fn(usize) -> bool,
    ) -> Result<(), LabError> {
        await_lacking_every(LOOK_EVERY, &mut lab.cluster, who, &self.path, is_so)
    }

    /// Measures the time from when the NameNode declares the DataNode dead until it lists all blocks again. The
    /// resources are counted from the first command on, because no bytes move before. No operator requests the
    /// repair.
    ///
    /// # Errors
    /// [`LabError`].
    pub(super) fn by_itself(
        &self,
        lab: &mut HdfsLab,
        who: &str,
        mend: Option<&Mend>,
    ) -> Result<Recovery, LabError> {
        let commands = CommandLog::begin(lab);
        self.await_lacking(lab, who, |lacking| lacking > 0)?;
        let declared_ms = now_ms();
        let commanded_ms = commands.await_command(lab, who)?;
        let clock = Clock::start(&lab.network, processes(lab, mend))?;
        self.await_lacking(lab, who, |lacking| lacking == 0)?;
        let repaired = clock.stop()?.since(commanded_ms);
        let from_command = Some(repaired.time);
        let repaired = with_timeline(repaired.since(declared_ms), who, mend)?;
        lab.check(who, &self.before, Some(self.node))?;
        Ok(Recovery { repaired, from_command })
    }

    /// Measures the time from the start of `mend node recover`, with these options, until the NameNode lists all
    /// blocks again. [`await_dead`](Self::await_dead) must have returned.
    ///
    /// # Errors
    /// [`LabError`].
    pub(crate) fn recover(
        &self,
        lab: &mut HdfsLab,
        mend: &Mend,
        options: &[&str],
    ) -> Result<Repaired, LabError> {
        let verb = mend.verb(&[&["node", "recover", mend.names()[self.node].as_str()], options].concat());
        let counted = processes(lab, Some(mend));
        let HdfsLab { cluster, network, .. } = lab;
        let repaired = time_program(network, counted, RECOVER, verb, || {
            await_lacking_every(LOOK_EVERY, cluster, RECOVER, &self.path, |lacking| lacking == 0)
        })?;
        let repaired = with_timeline(repaired, RECOVER, Some(mend))?;
        lab.check(RECOVER, &self.before, Some(self.node))?;
        Ok(repaired)
    }

    /// Waits until the NameNode and the coordinator count all blocks as lost. The coordinator notices the lost helper at
    /// once; the NameNode declares the DataNode dead later.
    ///
    /// # Errors
    /// [`LabError`].
    pub(crate) fn await_dead(&self, lab: &mut HdfsLab, mend: &Mend) -> Result<(), LabError> {
        self.await_lacking(lab, "the NameNode", |lacking| lacking >= self.lost.blocks)?;
        wait_for_lost_blocks(mend, self.lost.blocks);
        Ok(())
    }

    /// Restarts the DataNode with empty folders, and then the DataNode's helper. Returns when the DataNode executes commands
    /// as before.
    pub(crate) fn replace(self, lab: &mut HdfsLab, mend: Option<&mut Mend>) {
        lab.cluster.nodes()[self.node].remove_folders();
        lab.cluster.start(self.node);
        lab.cluster.await_nodes(lab.cluster.running().len());
        lab.cluster.await_plugins();
        if let Some(mend) = mend {
            mend.start_helper(self.node);
            mend.wait_for_helpers();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fifteen DataNodes, and groups of 14 blocks, of which group `at` has none on DataNode `at`.
    fn balanced() -> Layout {
        let all = 0..15;
        let without = |free: usize| all.clone().filter(|&node| node != free).collect();
        Layout { running: all.clone().collect(), groups: all.clone().map(without).collect() }
    }

    #[test]
    fn in_a_balanced_layout_the_survivors_links_are_the_bound() {
        let lost = balanced().lost(3);
        assert_eq!(lost, LostNode { blocks: 14, survivors: 14, forced: 1, fewest: 14, most: 14 });
        assert_eq!(lost.bound(10), 10.0);
    }

    #[test]
    fn an_empty_datanode_has_to_take_all_blocks() {
        // DataNode 14 is new: all groups are on the other 14.
        let layout = Layout { running: (0..15).collect(), groups: vec![(0..14).collect(); 20] };
        let lost = layout.lost(0);
        assert_eq!((lost.blocks, lost.forced, lost.fewest, lost.most), (20, 20, 0, 20));
        // Ten blocks for each would take 14.3 blocks' time on equally used links; the new DataNode's takes 20.
        assert_eq!(lost.bound(10), 20.0);
        assert_eq!(layout.nearest(0), 0, "an empty DataNode loses nothing");
    }

    #[test]
    fn several_free_datanodes_force_nothing() {
        let layout = Layout { running: (0..15).collect(), groups: vec![(0..9).collect(), (3..12).collect()] };
        let lost = layout.lost(4);
        assert_eq!((lost.blocks, lost.forced), (2, 0));
        assert_eq!(lost.bound(6), 12.0 / 14.0);
        assert_eq!(layout.nearest(1), 0);
        // A DataNode that does not run takes no block.
        let narrow = Layout { running: (0..10).collect(), ..layout };
        assert_eq!((narrow.lost(4).forced, narrow.lost(4).survivors), (1, 9));
    }
}
