//! Measures the repair of one lost internal block in three ways: by HDFS, by Mend on the NameNode's command,
//! and by Mend on an operator's request.

use std::fs;
use std::time::Duration;

use testbed::hdfs::Cluster;
use testbed::{Mend, eventually};

use super::cluster::{HdfsLab, Replica};
use super::commands::CommandLog;
use crate::error::LabError;
use crate::experiment::{Clock, Repaired, settle, time_program, wait_for_lost_blocks, wait_while};

const LOOK_EVERY: Duration = Duration::from_millis(5);
const REPAIR: &str = "mend repair";

/// A block to lose, and the program that rebuilds it.
#[derive(Clone, Copy)]
pub(super) struct Loss<'a> {
    pub(super) who: &'a str,
    /// A file with one block group.
    pub(super) path: &'a str,
    /// The index of the block in the group.
    pub(super) index: usize,
    /// Whether all blocks are evicted from the page cache before the repair.
    pub(super) is_cold: bool,
}

/// Returns the ids of the processes whose file I/O and memory are counted.
pub(super) fn processes(lab: &HdfsLab, mend: Option<&Mend>) -> Vec<u32> {
    lab.cluster.node_ids().into_iter().chain(mend.into_iter().flat_map(Mend::helper_ids)).collect()
}

impl Loss<'_> {
    /// Returns the DataNode with the block, the block's number, and its replica.
    fn find(&self, lab: &mut HdfsLab) -> Result<(usize, i64, Vec<Replica>), LabError> {
        let (holder, number) = lab.holders(self.path)[&self.index];
        let mut before = lab.replicas(self.path, holder)?;
        before.retain(|replica| replica.number == number);
        Ok((holder, number, before))
    }

    /// Waits for idle processors, and evicts blocks. Returns whether the processors became idle.
    fn prepare(&self, lab: &HdfsLab) -> Result<bool, LabError> {
        let is_settled = settle(&lab.network)?;
        if self.is_cold {
            lab.evict()?;
        }
        Ok(is_settled)
    }
}

/// Reports a block as corrupt, as a reader would. Returns the time from the reconstruction command until the
/// NameNode lists a good replica. The command goes to another DataNode than the one with the corrupt replica.
///
/// # Errors
/// [`LabError`].
pub(super) fn commanded(
    lab: &mut HdfsLab,
    mend: Option<&Mend>,
    loss: &Loss<'_>,
) -> Result<Repaired, LabError> {
    let &Loss { who, path, index, .. } = loss;
    let (holder, number, before) = loss.find(lab)?;
    let is_settled = loss.prepare(lab)?;
    let commands = CommandLog::begin(lab);
    lab.cluster.console().run(&["distrust", path, &index.to_string()]);
    await_lacking(&mut lab.cluster, who, path, |lacking| lacking > 0)?;
    let commanded_ms = commands.await_command(lab, who)?;
    let clock = Clock::start(&lab.network, processes(lab, mend))?;
    await_lacking(&mut lab.cluster, who, path, |lacking| lacking == 0)?;
    let repaired = clock.stop()?.since(commanded_ms).after(is_settled);
    let repaired = with_timeline(repaired, who, mend)?;
    lab.check(who, &before, Some(holder))?;
    eventually("HDFS to remove the bad one", || {
        lab.cluster.nodes()[holder].block(number).is_none().then_some(())
    });
    Ok(repaired)
}

/// Adds the timeline of Mend's repairs, if there is Mend.
///
/// # Errors
/// [`LabError`] if Mend carried out no repair: a DataNode that cannot reach Mend rebuilds blocks itself.
pub(super) fn with_timeline(
    repaired: Repaired,
    who: &str,
    mend: Option<&Mend>,
) -> Result<Repaired, LabError> {
    let Some(mend) = mend else { return Ok(repaired) };
    let repaired = repaired.with_timeline(mend);
    if repaired.timeline.is_empty() {
        let reason = "blocks were rebuilt, but not by Mend".to_owned();
        return Err(LabError::Agent { who: who.to_owned(), reason });
    }
    Ok(repaired)
}

/// Deletes a block's files. Returns the time from the start of `mend repair` until the NameNode lists the
/// block.
///
/// # Errors
/// [`LabError`].
pub(super) fn asked(lab: &mut HdfsLab, mend: &Mend, loss: &Loss<'_>) -> Result<Repaired, LabError> {
    let &Loss { path, index, .. } = loss;
    let (holder, number, before) = loss.find(lab)?;
    lab.cluster.kill(holder);
    let files = lab.cluster.nodes()[holder].replica(number, &before[0].name()).expect("it has it");
    for file in files {
        fs::remove_file(&file).map_err(LabError::file("remove", &file))?;
    }
    lab.cluster.start(holder);
    lab.cluster.await_nodes(lab.cluster.nodes().len());
    lab.cluster.await_plugins();
    await_lacking(&mut lab.cluster, "the NameNode", path, |lacking| lacking > 0)?;
    wait_for_lost_blocks(mend, 1);
    let is_settled = loss.prepare(lab)?;
    let group = format!("group_{}_{}", number - index as i64, before[0].stamp);
    let (verb, counted) = (mend.verb(&["repair", &group]), processes(lab, Some(mend)));
    let HdfsLab { cluster, network, .. } = lab;
    let repaired = time_program(network, counted, REPAIR, verb, || {
        await_lacking(cluster, REPAIR, path, |lacking| lacking == 0)
    })?;
    let repaired = with_timeline(repaired.after(is_settled), REPAIR, Some(mend))?;
    lab.check(REPAIR, &before, None)?;
    Ok(repaired)
}

/// Waits until `is_so` is true for the number of missing blocks of files below `path`.
///
/// # Errors
/// If this takes too long.
pub(crate) fn await_lacking(
    cluster: &mut Cluster,
    who: &str,
    path: &str,
    is_so: impl Fn(usize) -> bool,
) -> Result<(), LabError> {
    await_lacking_every(LOOK_EVERY, cluster, who, path, is_so)
}

/// The same, with this pause between two questions.
///
/// # Errors
/// If this takes too long.
pub(super) fn await_lacking_every(
    pause: Duration,
    cluster: &mut Cluster,
    who: &str,
    path: &str,
    is_so: impl Fn(usize) -> bool,
) -> Result<(), LabError> {
    wait_while(who, pause, || {
        let lacking = cluster.console().lacking(path);
        Ok((!is_so(lacking)).then(|| format!("{lacking} blocks of {path} are missing")))
    })
}
