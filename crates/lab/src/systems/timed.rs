//! Times a repair from start to end and records resource usage.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::{Usage, Watching};
use crate::error::LabError;
use crate::network::Network;

/// The result of a repair.
#[derive(Clone, Debug)]
pub(crate) struct Repaired {
    pub(crate) time: Duration,
    pub(crate) usage: Usage,
}

/// The time from the start of a program until a condition holds, with the usage of links and processes
/// meanwhile.
///
/// # Errors
/// [`LabError`], also if the program fails.
pub(crate) fn time_program(
    network: &Network,
    processes: Vec<u32>,
    who: &str,
    mut program: Command,
    until: impl FnOnce() -> Result<(), LabError>,
) -> Result<Repaired, LabError> {
    program.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let watching = Watching::start(network, processes)?;
    let begun = Instant::now();
    let child = program.spawn().map_err(LabError::file("start", who))?;
    until()?;
    let (time, usage) = (begun.elapsed(), watching.stop()?);
    let output = child.wait_with_output().map_err(LabError::file("wait for", who))?;
    if !output.status.success() {
        let reason = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(LabError::Agent { who: who.to_owned(), reason });
    }
    Ok(Repaired { time, usage })
}
