//! Repairs that are timed from beginning to end, with the resources that they use.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use client::{RepairView, Timeline};
use testbed::Mend;

use super::{Usage, Watching};
use crate::error::LabError;
use crate::network::Network;

/// A repair may begin this much earlier than the measurement notices the loss.
const NOTICED_LATE_MS: u64 = 3000;

/// A point in time, by the clock that measures durations and by the one of logs.
#[derive(Clone, Copy, Debug)]
struct Moment {
    instant: Instant,
    unix_ms: u64,
}

/// A measurement that has begun.
pub(crate) struct Clock {
    begun: Moment,
    watching: Watching,
}

/// Time and resources of a repair.
#[derive(Clone, Debug)]
pub(crate) struct Repaired {
    pub(crate) time: Duration,
    pub(crate) usage: Usage,
    begun: Moment,
    /// A table and a drawing of the time of each step; empty for repairs that are not Mend's.
    pub(crate) timeline: String,
    /// Whether the lab's processes were still busy when the measurement began.
    pub(crate) is_unsettled: bool,
}

/// Returns the time in milliseconds since 1970.
pub(crate) fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).expect("no such year")
}

impl Moment {
    fn now() -> Self {
        Self { instant: Instant::now(), unix_ms: now_ms() }
    }
}

impl Clock {
    /// Starts to measure the time, the traffic of all links, and the file I/O and memory of `processes`.
    ///
    /// # Errors
    /// [`LabError`].
    pub(crate) fn start(network: &Network, processes: Vec<u32>) -> Result<Self, LabError> {
        let begun = Moment::now();
        Ok(Self { begun, watching: Watching::start(network, processes)? })
    }

    /// Returns the time and the resources since the start.
    ///
    /// # Errors
    /// [`LabError`].
    pub(crate) fn stop(self) -> Result<Repaired, LabError> {
        let time = self.begun.instant.elapsed();
        Ok(Repaired::new(time, self.watching.stop()?, self.begun))
    }
}

impl Repaired {
    fn new(time: Duration, usage: Usage, begun: Moment) -> Self {
        Self { time, usage, begun, timeline: String::new(), is_unsettled: false }
    }

    /// The result of a measurement that begins now.
    #[cfg(test)]
    pub(crate) fn of_test(time: Duration, usage: Usage) -> Self {
        Self::new(time, usage, Moment::now())
    }

    /// Moves the beginning to an earlier time, in milliseconds since 1970. The resources stay those of the
    /// measurement.
    pub(crate) fn since(mut self, unix_ms: u64) -> Self {
        let earlier = Duration::from_millis(self.begun.unix_ms.saturating_sub(unix_ms));
        self.time += earlier;
        self.begun.unix_ms = self.begun.unix_ms.min(unix_ms);
        self.begun.instant = self.begun.instant.checked_sub(earlier).unwrap_or(self.begun.instant);
        self
    }

    /// Sets the time, if the measured one contains something else.
    pub(crate) fn with_time(self, time: Duration) -> Self {
        Self { time, ..self }
    }

    /// Records whether the lab's processes were idle before the measurement.
    pub(crate) fn after(self, is_settled: bool) -> Self {
        Self { is_unsettled: !is_settled, ..self }
    }

    /// The time of the beginning.
    pub(crate) fn begun(&self) -> Instant {
        self.begun.instant
    }

    /// Adds the timeline of the repairs of `mend` that were ordered during this repair.
    pub(crate) fn with_timeline(self, mend: &Mend) -> Self {
        let views = mend.ask(&["timeline", "--last", "100"]);
        let views: Option<Vec<RepairView>> = views.and_then(|views| serde_json::from_value(views).ok());
        let mut views = views.unwrap_or_default();
        views.retain(|view| view.started_unix_ms + NOTICED_LATE_MS >= self.begun.unix_ms);
        let timeline = if views.is_empty() { String::new() } else { Timeline::of(&views).to_string() };
        Self { timeline, ..self }
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
    let clock = Clock::start(network, processes)?;
    work()?;
    clock.stop()
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

#[cfg(test)]
mod tests {
    use super::super::Used;
    use super::*;
    use crate::report::Sample;

    #[test]
    fn a_repair_may_have_begun_before_its_measurement() {
        let usage = Usage { metered: Sample::of_test(2.0, 1.0, false).metered, used: Used::default() };
        let repaired = Repaired::of_test(Duration::from_secs(2), usage);
        let (instant, unix_ms) = (repaired.begun(), repaired.begun.unix_ms);
        let repaired = repaired.since(unix_ms - 500);
        assert_eq!(repaired.time, Duration::from_millis(2500));
        assert_eq!(instant - repaired.begun(), Duration::from_millis(500));
        // A log entry after the beginning changes nothing.
        let later = repaired.since(unix_ms + 500);
        assert_eq!((later.time, later.begun.unix_ms), (Duration::from_millis(2500), unix_ms - 500));
        assert!(later.clone().after(false).is_unsettled && !later.after(true).is_unsettled);
    }
}
