//! Encodes a file, and measures how long the calls take that move data, and how much they move.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::detail::{Detail, Run};
use crate::error::LabError;
use crate::experiment::report::Doubts;
use crate::experiment::{Clock, Repaired, Used, received_by_servers};
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

/// A part of an encoding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    /// The parity is made.
    Parity,
    /// The parity is read back and checked.
    Check,
    /// Replicas are moved or removed, and files are created.
    #[default]
    Other,
}

/// Time and traffic of a phase.
#[derive(Clone, Debug, Default)]
struct Spent {
    time: Duration,
    /// Bytes received over the link of each machine.
    received: BTreeMap<String, u64>,
    doubts: Doubts,
}

/// Measures the phases of a command from the lines that it prints: a call takes until the next line.
struct PhaseMeter<'a> {
    network: &'a Network,
    phase: Phase,
    clock: Option<Clock>,
    parity: Spent,
    check: Spent,
}

impl Phase {
    /// Returns the phase that begins with a line.
    fn of(line: &str) -> Self {
        match () {
            () if line.contains(ENCODE) => Self::Parity,
            () if line.contains(CHECK) => Self::Check,
            () => Self::Other,
        }
    }
}

impl Spent {
    fn add(&mut self, measured: &Repaired) {
        self.time += measured.time;
        for (machine, bytes) in received_by_servers(&measured.usage.metered) {
            *self.received.entry(machine.to_owned()).or_default() += bytes;
        }
        self.doubts.disturbed |= measured.usage.metered.disturbed;
        self.doubts.processors |= measured.usage.metered.cpu_bound;
    }

    fn seconds(&self) -> f64 {
        self.time.as_secs_f64()
    }

    /// Returns the bytes received by all machines, and by the one that received most.
    fn used(&self) -> Used {
        let most = self.received.values().copied().max().unwrap_or_default();
        Used { received: self.received.values().sum(), received_most: most, ..Used::default() }
    }
}

impl<'a> PhaseMeter<'a> {
    fn new(network: &'a Network) -> Self {
        let (parity, check) = <(Spent, Spent)>::default();
        Self { network, phase: Phase::Other, clock: None, parity, check }
    }

    /// Ends the current phase and begins another one.
    fn enter(&mut self, phase: Phase) -> Result<(), LabError> {
        if phase == self.phase {
            return Ok(());
        }
        if let Some(clock) = self.clock.take() {
            let spent = if self.phase == Phase::Check { &mut self.check } else { &mut self.parity };
            spent.add(&clock.stop()?);
        }
        self.phase = phase;
        if phase != Phase::Other {
            self.clock = Some(Clock::start(self.network, Vec::new())?);
        }
        Ok(())
    }
}

/// Runs `mend raid encode` for one file with `stripes` stripes, and measures it. Time and traffic of the result are those
/// of making the parity.
///
/// # Errors
/// [`LabError`], also if the command fails or has computed no parity.
pub(super) fn time_encoding(network: &Network, command: Command, stripes: usize) -> Result<Run, LabError> {
    let (mut meter, begun) = (PhaseMeter::new(network), Instant::now());
    let lines = run(command, |line| meter.enter(Phase::of(line)))?;
    meter.enter(Phase::Other)?;
    let command_s = begun.elapsed().as_secs_f64();
    result(&meter.parity, &meter.check, command_s, stripes).ok_or_else(|| {
        let reason = format!("it announced no stripe:\n{}", lines.join("\n"));
        LabError::Agent { who: WHO.to_owned(), reason }
    })
}

/// Returns the result of an encoding; `None` if it made no parity.
fn result(parity: &Spent, check: &Spent, command_s: f64, stripes: usize) -> Option<Run> {
    let check_used = check.used();
    let detail = Detail::Encoding {
        stripes,
        check_s: check.seconds(),
        check_received: check_used.received,
        check_received_most: check_used.received_most,
        command_s,
    };
    let (seconds, used, doubts) = (parity.seconds(), parity.used(), parity.doubts);
    let run = Run { seconds, used, doubts, timeline: String::new(), detail };
    (seconds > 0.0).then_some(run)
}

/// Runs a command to its end, and calls `heard` for each line that it prints to standard error. Returns the lines.
///
/// # Errors
/// [`LabError`], also if the command fails.
pub(super) fn run(
    mut command: Command,
    mut heard: impl FnMut(&str) -> Result<(), LabError>,
) -> Result<Vec<String>, LabError> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(LabError::file("start", WHO))?;
    let mut lines = Vec::new();
    for line in BufReader::new(child.stderr.take().expect("piped")).lines() {
        let line = line.map_err(LabError::file("read from", WHO))?;
        heard(&line)?;
        lines.push(line);
    }
    let mut answer = String::new();
    let output = child.stdout.take().expect("piped").read_to_string(&mut answer);
    output.map_err(LabError::file("read from", WHO))?;
    let status = child.wait().map_err(LabError::file("wait for", WHO))?;
    if !status.success() {
        let reason = format!("{status}\n{}\n{answer}", lines.join("\n"));
        return Err(LabError::Agent { who: WHO.to_owned(), reason });
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Usage;
    use crate::meter::LinkBytes;
    use crate::report::Sample;

    #[test]
    fn lines_announce_the_phases() {
        let phases = [
            ("/files/a: create the folder /tmp/raidrs/files/a", Phase::Other),
            ("/files/a: encode stripe 0: parity block 0 on 10.0.0.1:9866", Phase::Parity),
            ("/files/a: encode stripe 1: parity block 0 on 10.0.0.2:9866", Phase::Parity),
            ("/files/a: read the parity back and check it against the data (8 files)", Phase::Check),
            ("/files/a: append 7 files to /tmp/raidrs/files/a/x", Phase::Other),
        ];
        for (line, phase) in phases {
            assert_eq!(Phase::of(line), phase, "{line}");
        }
    }

    /// A measurement in which these machines received these bytes.
    fn measured(seconds: u64, received: &[(&str, u64)], is_disturbed: bool) -> Repaired {
        let mut metered = Sample::of_test(40.0, 1.0, false).metered;
        let link = |&(machine, received_bytes): &(&str, u64)| {
            (machine.to_owned(), LinkBytes { sent_bytes: 0, received_bytes })
        };
        metered.traffic = received.iter().map(link).collect();
        metered.disturbed = is_disturbed;
        Repaired::of_test(Duration::from_secs(seconds), Usage { metered, used: Used::default() })
    }

    #[test]
    fn each_phase_has_its_own_time_and_bytes() {
        let (mut parity, mut check) = (Spent::default(), Spent::default());
        parity.add(&measured(3, &[("h1", 10), ("h2", 40), ("coord", 900)], false));
        parity.add(&measured(4, &[("h1", 70), ("h2", 30)], true));
        check.add(&measured(5, &[("h1", 500)], false));
        let run = result(&parity, &check, 40.0, 2).unwrap();
        let detail = Detail::Encoding {
            stripes: 2,
            check_s: 5.0,
            check_received: 500,
            check_received_most: 500,
            command_s: 40.0,
        };
        assert_eq!((run.seconds, &run.detail), (7.0, &detail));
        assert_eq!((run.used.received, run.used.received_most), (150, 80));
        assert!(run.doubts.disturbed && !run.doubts.processors);
        assert!(result(&Spent::default(), &check, 40.0, 2).is_none(), "no stripe was announced");
    }

    #[test]
    fn a_failed_command_is_an_error_with_its_output() {
        let shell = |script: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            command
        };
        let lines = run(shell("echo one >&2; echo answer; echo two >&2"), |_| Ok(())).unwrap();
        assert_eq!(lines, ["one", "two"]);
        let error = run(shell("echo why >&2; echo answer; exit 3"), |_| Ok(())).unwrap_err().to_string();
        assert!(error.contains("why") && error.contains("answer"), "{error}");
    }
}
