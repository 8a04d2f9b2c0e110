//! Repairs that are timed from beginning to end, with the resources that they use.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::{Usage, Watching};
use crate::error::LabError;
use crate::network::Network;
use crate::report::median;

/// Time and resources of a repair.
#[derive(Clone, Debug)]
pub(crate) struct Repaired {
    pub(crate) time: Duration,
    pub(crate) usage: Usage,
}

impl Repaired {
    /// Returns a table cell that marks a repair whose bottleneck was the processors rather than the links.
    pub(crate) fn bound_by(&self) -> String {
        if self.usage.metered.cpu_bound { "processors" } else { "" }.to_owned()
    }
}

/// Repeated repairs of the same loss.
#[derive(Clone, Debug, Default)]
pub(crate) struct Repetitions(Vec<Repaired>);

impl Repetitions {
    pub(crate) fn push(&mut self, repaired: Repaired) {
        self.0.push(repaired);
    }

    /// The median time, in seconds.
    pub(crate) fn seconds(&self) -> f64 {
        median(&self.0.iter().map(|one| one.time.as_secs_f64()).collect::<Vec<_>>())
    }

    /// The repetition whose time is nearest to the median.
    pub(crate) fn middle(&self) -> Option<&Repaired> {
        let seconds = self.seconds();
        let far = |one: &Repaired| (one.time.as_secs_f64() - seconds).abs();
        self.0.iter().min_by(|a, b| far(a).total_cmp(&far(b)))
    }
}

/// Measures the duration of `work`, and meanwhile the traffic of all links and the file I/O and memory of
/// `processes`.
///
/// # Errors
/// [`LabError`].
pub(crate) fn measure(
    network: &Network,
    processes: Vec<u32>,
    work: impl FnOnce() -> Result<(), LabError>,
) -> Result<Repaired, LabError> {
    let watching = Watching::start(network, processes)?;
    let begun = Instant::now();
    work()?;
    Ok(Repaired { time: begun.elapsed(), usage: watching.stop()? })
}

/// Starts `program` and measures time and resources until `until` returns. Then waits for the program to end.
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
    let mut child = None;
    let repaired = measure(network, processes, || {
        child = Some(program.spawn().map_err(LabError::file("start", who))?);
        until()
    })?;
    let child = child.expect("it was started");
    let output = child.wait_with_output().map_err(LabError::file("wait for", who))?;
    if !output.status.success() {
        let reason = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(LabError::Agent { who: who.to_owned(), reason });
    }
    Ok(repaired)
}
