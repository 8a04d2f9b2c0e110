//! Repairs that are timed from beginning to end, with the resources that they use.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use client::{RepairView, Timeline};
use testbed::Mend;

use super::{Usage, Watching};
use crate::error::LabError;
use crate::network::Network;
use crate::report::median;

/// A repair may begin this much earlier than the measurement notices the loss.
const NOTICED_LATE_MS: u128 = 3000;

/// Time and resources of a repair.
#[derive(Clone, Debug)]
pub(crate) struct Repaired {
    pub(crate) time: Duration,
    pub(crate) usage: Usage,
    /// The time of the beginning, in milliseconds since 1970.
    begun_unix_ms: u128,
    /// A table of the time that each step took; empty for repairs that are not Mend's.
    pub(crate) timeline: String,
}

impl Repaired {
    /// Creates the result of a repair that has just ended.
    pub(crate) fn new(time: Duration, usage: Usage) -> Self {
        let begun = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().saturating_sub(time);
        Self { time, usage, begun_unix_ms: begun.as_millis(), timeline: String::new() }
    }

    /// Adds the timeline of the repairs of `mend` that were ordered during this repair.
    pub(crate) fn with_timeline(self, mend: &Mend) -> Self {
        let views = mend.ask(&["timeline", "--last", "100"]);
        let views: Option<Vec<RepairView>> = views.and_then(|views| serde_json::from_value(views).ok());
        let mut views = views.unwrap_or_default();
        views.retain(|view| u128::from(view.started_unix_ms) + NOTICED_LATE_MS >= self.begun_unix_ms);
        Self { timeline: Timeline::of(&views).table(), ..self }
    }

    /// Returns the timeline with a heading, as a block of a page; empty if there is none.
    pub(crate) fn timeline_block(&self, heading: &str) -> String {
        match &self.timeline[..] {
            "" => String::new(),
            timeline => format!("{heading}:\n\n```text\n{timeline}```\n\n"),
        }
    }

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
    Ok(Repaired::new(begun.elapsed(), watching.stop()?))
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
