//! Reconstruction commands of the NameNode, as DataNodes log them.

use std::time::Duration;

use super::cluster::HdfsLab;
use crate::error::LabError;
use crate::experiment::{now_ms, wait_while};

/// The DataNode's log message for a reconstruction command of the NameNode.
const COMMAND: &str = "DatanodeCommand action: DNA_ERASURE_CODING_RECOVERY";
const LOOK_EVERY: Duration = Duration::from_millis(10);
const DAY_MS: u64 = 24 * 60 * 60 * 1000;

/// The logs of all DataNodes from a point in time on.
pub(super) struct CommandLog {
    /// That time, in milliseconds since 1970.
    from_ms: u64,
    /// The length of each DataNode's log at that time.
    bytes: Vec<u64>,
}

impl CommandLog {
    /// Starts to watch the logs.
    pub(super) fn begin(lab: &HdfsLab) -> Self {
        let nodes = 0..lab.cluster.nodes().len();
        Self { from_ms: now_ms(), bytes: nodes.map(|node| lab.cluster.log_bytes(node)).collect() }
    }

    /// Waits until a DataNode logs a command. Returns the time of the first one, in milliseconds since 1970.
    ///
    /// # Errors
    /// [`LabError`] if no command comes.
    pub(super) fn await_command(&self, lab: &HdfsLab, who: &str) -> Result<u64, LabError> {
        let mut first = None;
        wait_while(who, LOOK_EVERY, || {
            first = self.first(lab);
            Ok(first.is_none().then(|| "no DataNode logged a command".to_owned()))
        })?;
        Ok(first.expect("the wait ended"))
    }

    fn first(&self, lab: &HdfsLab) -> Option<u64> {
        let logs = self.bytes.iter().enumerate().map(|(node, &from)| lab.cluster.log_from(node, from));
        logs.filter_map(|log| first_command(&log, self.from_ms)).min()
    }
}

/// Returns the time of the first command in a log at or after `from_ms`. Both times are in milliseconds since 1970; the
/// log has times of day.
fn first_command(log: &str, from_ms: u64) -> Option<u64> {
    let lines = log.lines().filter(|line| line.contains(COMMAND));
    let ages = lines.filter_map(|line| (time_of_day(line)? + DAY_MS).checked_sub(from_ms % DAY_MS));
    let age = ages.map(|age| age % DAY_MS).filter(|&age| age < DAY_MS / 2).min()?;
    Some(from_ms + age)
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

    #[test]
    fn the_first_later_command_counts() {
        let line = |time: &str| format!("2026-11-22 {time} INFO datanode.DataNode: {COMMAND}\n");
        let log = format!(
            "{}2026-11-22 00:00:01,000 INFO other\n{}{}",
            line("23:59:58,000"),
            line("00:00:02,500"),
            line("00:00:01,500")
        );
        // One second before midnight.
        let from_ms = 20_000 * DAY_MS - 1000;
        assert_eq!(first_command(&log, from_ms), Some(from_ms + 2500));
        assert_eq!(first_command("nothing", from_ms), None);
    }
}
