//! Measures the repair of one lost internal block in three ways: by HDFS, by Mend on the NameNode's command,
//! and by Mend on an operator's request.

use std::fs;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use testbed::hdfs::Cluster;
use testbed::{Mend, eventually};

use super::cluster::{HdfsLab, Replica};
use crate::error::LabError;
use crate::experiment::{Repaired, Watching, time_program, wait_for_lost_blocks, wait_while};

const LOOK_EVERY: Duration = Duration::from_millis(5);
const DAY_MS: u64 = 24 * 60 * 60 * 1000;
/// The DataNode's log message for a reconstruction command of the NameNode.
const COMMAND: &str = "DatanodeCommand action: DNA_ERASURE_CODING_RECOVERY";

/// Returns the ids of the processes whose file I/O and memory are counted.
pub(super) fn processes(lab: &HdfsLab, mend: Option<&Mend>) -> Vec<u32> {
    lab.cluster.node_ids().into_iter().chain(mend.into_iter().flat_map(Mend::helper_ids)).collect()
}

/// Reports a block of a file's first group as corrupt, as a reader would. Returns the time from the
/// reconstruction command until the NameNode lists a good replica. The command goes to another DataNode than
/// the one with the corrupt replica.
///
/// # Errors
/// [`LabError`].
pub(super) fn commanded(
    lab: &mut HdfsLab,
    who: &str,
    mend: Option<&Mend>,
    path: &str,
    index: usize,
) -> Result<Repaired, LabError> {
    let (holder, number) = lab.holders(path)[&index];
    let before: Vec<Replica> = of_number(lab.replicas(path, holder)?, number);
    let processes = processes(lab, mend);
    let watching = Watching::start(&lab.network, processes)?;
    let told = now_ms();
    lab.cluster.console().run(&["distrust", path, &index.to_string()]);
    await_lacking(&mut lab.cluster, who, path, |lacking| lacking > 0)?;
    await_lacking(&mut lab.cluster, who, path, |lacking| lacking == 0)?;
    let (ended, usage) = (now_ms(), watching.stop()?);
    let begun = first_command(lab, told).ok_or_else(|| LabError::Agent {
        who: who.to_owned(),
        reason: "no DataNode logged a command".to_owned(),
    })?;
    lab.check(who, &before, Some(holder))?;
    eventually("HDFS to remove the bad one", || {
        lab.cluster.nodes()[holder].block(number).is_none().then_some(())
    });
    Ok(Repaired::new(Duration::from_millis(ended - begun), usage))
}

/// Deletes a block's files. Returns the time from the start of `mend repair` until the NameNode lists the
/// block.
///
/// # Errors
/// [`LabError`].
pub(super) fn asked(lab: &mut HdfsLab, mend: &Mend, path: &str, index: usize) -> Result<Repaired, LabError> {
    let (holder, number) = lab.holders(path)[&index];
    let before: Vec<Replica> = of_number(lab.replicas(path, holder)?, number);
    lab.cluster.kill(holder);
    let files = lab.cluster.nodes()[holder].replica(number, &before[0].name()).expect("it has it");
    for file in files {
        fs::remove_file(&file).map_err(LabError::file("remove", &file))?;
    }
    lab.cluster.start(holder);
    lab.cluster.await_nodes(lab.cluster.nodes().len());
    wait_for_lost_blocks(mend, 1);
    let group = format!("group_{}_{}", number - index as i64, before[0].stamp);
    let (verb, counted) = (mend.verb(&["repair", &group]), processes(lab, Some(mend)));
    let HdfsLab { cluster, network, .. } = lab;
    let repaired = time_program(network, counted, "mend repair", verb, || {
        await_lacking(cluster, "mend repair", path, |lacking| lacking == 0)
    })?;
    lab.check("mend repair", &before, None)?;
    Ok(repaired)
}

fn of_number(replicas: Vec<Replica>, number: i64) -> Vec<Replica> {
    replicas.into_iter().filter(|replica| replica.number == number).collect()
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
    wait_while(who, LOOK_EVERY, || {
        let lacking = cluster.console().lacking(path);
        Ok((!is_so(lacking)).then(|| format!("{lacking} blocks of {path} are missing")))
    })
}

fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).expect("no such year")
}

/// Returns the time at which any DataNode logged the first reconstruction command at or after `from`. Both
/// times are in milliseconds since 1970.
fn first_command(lab: &HdfsLab, from: u64) -> Option<u64> {
    let logs = (0..lab.cluster.nodes().len()).map(|node| lab.cluster.log(node));
    let since = |log: String| {
        let lines = log.lines().filter(|line| line.contains(COMMAND));
        let ages = lines.filter_map(|line| (time_of_day(line)? + DAY_MS).checked_sub(from % DAY_MS));
        ages.map(|age| age % DAY_MS).filter(|&age| age < DAY_MS / 2).min()
    };
    logs.filter_map(since).min().map(|age| from + age)
}

/// Parses the time of day, in milliseconds, of a log line such as `2026-11-22 16:09:47,244 INFO …`.
fn time_of_day(line: &str) -> Option<u64> {
    let time = line.split(' ').nth(1)?;
    let (clock, ms) = time.split_once(',')?;
    let seconds = clock.split(':').try_fold(0, |sum: u64, part| Some(sum * 60 + part.parse::<u64>().ok()?));
    Some(seconds? * 1000 + ms.parse::<u64>().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_line_is_read() {
        let line = "2026-11-22 16:09:47,244 INFO datanode.DataNode: DatanodeCommand";
        assert_eq!(time_of_day(line), Some(((16 * 60 + 9) * 60 + 47) * 1000 + 244));
        assert_eq!(time_of_day("\tat org.apache.hadoop"), None);
    }
}
