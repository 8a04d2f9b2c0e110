//! The loss and recovery of a whole DataNode.

use std::time::{Duration, Instant};

use testbed::Mend;

use super::cluster::{HdfsLab, Replica};
use super::losses::{await_lacking, processes};
use crate::error::LabError;
use crate::experiment::{Repaired, Watching, time_program, wait_for_lost_blocks};

const RECOVER: &str = "mend node recover";

/// Returns the least time in which the links carry a recovery: each rebuilt block is the sum of `data` blocks, each of
/// which a surviving DataNode receives over its link. `direct` is the time to send all rebuilt blocks over one link.
pub(crate) fn bound(direct: Duration, data: usize, survivors: usize) -> Duration {
    direct * data as u32 / survivors as u32
}

/// A permanently failed DataNode.
pub(crate) struct Gone {
    node: usize,
    path: String,
    before: Vec<Replica>,
}

impl Gone {
    /// Chooses the DataNode whose number of blocks of files below `path` is closest to `blocks`, and kills
    /// that DataNode and its helper.
    ///
    /// # Errors
    /// [`LabError`].
    pub(crate) fn kill(
        lab: &mut HdfsLab,
        mend: Option<&mut Mend>,
        path: &str,
        blocks: usize,
    ) -> Result<Self, LabError> {
        let files = lab.cluster.console().fsck(path);
        let replicas = || files.iter().flat_map(|file| &file.blocks).flat_map(|block| &block.replicas);
        let has = |node: &usize| {
            let address = lab.cluster.nodes()[*node].address();
            replicas().filter(|(_, holder)| *holder == address).count()
        };
        let nodes = 0..lab.cluster.nodes().len();
        let node = nodes.min_by_key(|node| has(node).abs_diff(blocks)).expect("a DataNode");
        let before = lab.replicas(path, node)?;
        lab.cluster.kill(node);
        if let Some(mend) = mend {
            mend.kill_helper(node);
        }
        Ok(Self { node, path: path.to_owned(), before })
    }

    /// Returns the number of blocks that the DataNode held.
    pub(crate) fn blocks(&self) -> usize {
        self.before.len()
    }

    /// Measures the time from when the NameNode reports the blocks missing until it lists all of them again.
    /// No operator requests the repair.
    ///
    /// # Errors
    /// [`LabError`].
    pub(super) fn by_itself(
        &self,
        lab: &mut HdfsLab,
        who: &str,
        mend: Option<&Mend>,
    ) -> Result<Repaired, LabError> {
        let processes = processes(lab, mend);
        let watching = Watching::start(&lab.network, processes)?;
        await_lacking(&mut lab.cluster, who, &self.path, |lacking| lacking > 0)?;
        let begun = Instant::now();
        await_lacking(&mut lab.cluster, who, &self.path, |lacking| lacking == 0)?;
        let (time, usage) = (begun.elapsed(), watching.stop()?);
        lab.check(who, &self.before, Some(self.node))?;
        let repaired = Repaired::new(time, usage);
        Ok(match mend {
            Some(mend) => repaired.with_timeline(mend),
            None => repaired,
        })
    }

    /// Measures the time from the start of `mend node recover`, with these options, until the NameNode lists all
    /// blocks again.
    ///
    /// # Errors
    /// [`LabError`].
    pub(crate) fn recover(
        &self,
        lab: &mut HdfsLab,
        mend: &Mend,
        options: &[&str],
    ) -> Result<Repaired, LabError> {
        // The coordinator notices the lost helper at once; the NameNode declares the DataNode dead later.
        await_lacking(&mut lab.cluster, "the NameNode", &self.path, |lacking| lacking >= self.blocks())?;
        wait_for_lost_blocks(mend, self.blocks());
        let verb = mend.verb(&[&["node", "recover", mend.names()[self.node].as_str()], options].concat());
        let counted = processes(lab, Some(mend));
        let HdfsLab { cluster, network, .. } = lab;
        let repaired = time_program(network, counted, RECOVER, verb, || {
            await_lacking(cluster, RECOVER, &self.path, |lacking| lacking == 0)
        })?;
        lab.check(RECOVER, &self.before, Some(self.node))?;
        Ok(repaired.with_timeline(mend))
    }

    /// Restarts the DataNode with empty folders, and then the DataNode's helper.
    pub(crate) fn replace(self, lab: &mut HdfsLab, mend: Option<&mut Mend>) {
        lab.cluster.nodes()[self.node].remove_folders();
        lab.cluster.start(self.node);
        lab.cluster.await_nodes(lab.cluster.nodes().len());
        if let Some(mend) = mend {
            mend.start_helper(self.node);
            mend.wait_for_helpers();
        }
    }
}
