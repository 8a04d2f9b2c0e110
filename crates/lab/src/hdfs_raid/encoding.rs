//! Encodes a file, and measures how long the calls take that move data.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::report::{Detail, Run};
use crate::error::LabError;
use crate::experiment::{Repaired, measure};
use crate::network::Network;

const WHO: &str = "mend raid encode";
/// The texts by which the command announces the calls that move data: `PATH: encode stripe 3: …`.
const ENCODE: &str = ": encode stripe ";
const CHECK: &str = ": read the parity back";

/// A maker of parity: its name for tables and reports, and its options of `mend raid encode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Encoder {
    pub(super) name: &'static str,
    pub(super) options: &'static [&'static str],
}

/// All encoders, each a row of the table.
pub(super) const ENCODERS: [Encoder; 4] = [
    ONE_JVM,
    Encoder { name: "Mend, conventional", options: &["--encoder", "helpers", "--scheme", "conventional"] },
    Encoder { name: "Mend, ppr", options: &["--encoder", "helpers", "--scheme", "ppr"] },
    Encoder { name: "Mend, pipelined", options: &["--encoder", "helpers", "--scheme", "pipelined"] },
];
/// One JVM on the client's machine reads k blocks of each stripe and writes the parity, as HDFS-RAID's RaidNode.
const ONE_JVM: Encoder = Encoder { name: "HDFS-RAID's way: one JVM", options: &["--encoder", "jvm"] };

/// How long the calls of an encoding took that move data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Phases {
    parity: Duration,
    check: Duration,
}

/// A line that a command printed, and the time since the command was started.
type Line = (Duration, String);

/// Returns the time of each phase. A call takes until the next line is printed, the last one until `end`.
fn phases(lines: &[Line], end: Duration) -> Phases {
    let mut phases = Phases::default();
    let ends = lines.iter().skip(1).map(|(at, _)| *at).chain([end]);
    for ((begin, line), end) in lines.iter().zip(ends) {
        let took = end.saturating_sub(*begin);
        if line.contains(ENCODE) {
            phases.parity += took;
        } else if line.contains(CHECK) {
            phases.check += took;
        }
    }
    phases
}

/// Runs `mend raid encode` for one file with `stripes` stripes, and measures it. The time of the result is that of the
/// calls that move data.
///
/// # Errors
/// [`LabError`], also if the command fails or has computed no parity.
pub(super) fn time_encoding(network: &Network, command: Command, stripes: usize) -> Result<Run, LabError> {
    let mut lines = Vec::new();
    let repaired = measure(network, Vec::new(), || {
        lines = run(command)?;
        Ok(())
    })?;
    result(&repaired, &lines, stripes)
}

fn result(repaired: &Repaired, lines: &[Line], stripes: usize) -> Result<Run, LabError> {
    let Phases { parity, check } = phases(lines, repaired.time);
    if parity.is_zero() {
        let reason = format!("it announced no stripe:\n{}", text(lines));
        return Err(LabError::Agent { who: WHO.to_owned(), reason });
    }
    let (check_s, command_s) = (check.as_secs_f64(), repaired.time.as_secs_f64());
    let seconds = (parity + check).as_secs_f64();
    let run = Run::of(repaired, Detail::Encoding { stripes, check_s, command_s });
    Ok(Run { seconds, ..run })
}

fn text(lines: &[Line]) -> String {
    lines.iter().map(|(_, line)| line.as_str()).collect::<Vec<_>>().join("\n")
}

/// Runs a command to its end. Returns the lines that it printed to standard error.
///
/// # Errors
/// [`LabError`], also if the command fails.
pub(super) fn run(mut command: Command) -> Result<Vec<Line>, LabError> {
    let begun = Instant::now();
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(LabError::file("start", WHO))?;
    let mut lines = Vec::new();
    for line in BufReader::new(child.stderr.take().expect("piped")).lines() {
        lines.push((begun.elapsed(), line.map_err(LabError::file("read from", WHO))?));
    }
    let mut answer = String::new();
    let output = child.stdout.take().expect("piped").read_to_string(&mut answer);
    output.map_err(LabError::file("read from", WHO))?;
    let status = child.wait().map_err(LabError::file("wait for", WHO))?;
    if !status.success() {
        let reason = format!("{status}\n{}\n{answer}", text(&lines));
        return Err(LabError::Agent { who: WHO.to_owned(), reason });
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Usage;
    use crate::report::Sample;

    fn lines() -> Vec<Line> {
        let lines = [
            (1, "/files/a: create the folder /tmp/raidrs/files/a"),
            (2, "/files/a: encode stripe 0: parity block 0 on 10.0.0.1:9866"),
            (5, "/files/a: encode stripe 1: parity block 0 on 10.0.0.2:9866"),
            (9, "/files/a: read the parity back and check it against the data (8 files)"),
            (14, "/files/a: append 7 files to /tmp/raidrs/files/a/x"),
            (15, "/files/a: wait until HDFS has created or removed replicas"),
        ];
        lines.map(|(at, line)| (Duration::from_secs(at), line.to_owned())).into()
    }

    #[test]
    fn a_call_takes_until_the_next_line() {
        let seconds = Duration::from_secs;
        assert_eq!(phases(&lines(), seconds(40)), Phases { parity: seconds(7), check: seconds(5) });
        assert_eq!(phases(&lines()[..3], seconds(8)), Phases { parity: seconds(6), check: seconds(0) });
    }

    #[test]
    fn waiting_for_hdfs_is_not_part_of_the_time() {
        let metered = Sample::of_test(40.0, 1.0, false).metered;
        let usage = Usage { metered, received: 9, received_most: 5, written: 0, read: 0, memory: 0 };
        let repaired = Repaired::new(Duration::from_secs(40), usage);
        let run = result(&repaired, &lines(), 2).unwrap();
        let detail = Detail::Encoding { stripes: 2, check_s: 5.0, command_s: 40.0 };
        assert_eq!((run.seconds, run.detail), (12.0, detail));
        let error = result(&repaired, &lines()[..1], 2).unwrap_err().to_string();
        assert!(error.contains("announced no stripe") && error.contains("create the folder"), "{error}");
    }

    #[test]
    fn a_failed_command_is_an_error_with_its_output() {
        let shell = |script: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            command
        };
        let lines = run(shell("echo one >&2; echo answer; echo two >&2")).unwrap();
        assert_eq!(lines.iter().map(|(_, line)| line.as_str()).collect::<Vec<_>>(), ["one", "two"]);
        let error = run(shell("echo why >&2; echo answer; exit 3")).unwrap_err().to_string();
        assert!(error.contains("why") && error.contains("answer"), "{error}");
    }
}
