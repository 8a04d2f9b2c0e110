//! Measures reads while nothing happens, while a helper is down, and while it is being recovered.

use std::thread;
use std::time::{Duration, Instant};

use client::{RepairStep, RepairView};

use super::cluster::LOST;
use super::measure::{Measuring, bound_s, view_of};
use super::report::{Meanwhile, Part, ReadsRow, ReadsRun, RecoveryRun, helpers};
use super::{LATER, TOTAL_CAPS};
use crate::error::LabError;
use crate::experiment::{Reads, percentile, wait_while};
use crate::instruction::{Answer, Instruction, SteadyRead};
use crate::meter::{Meter, Metered};
use crate::run::undisturbed;
use crate::scenario::RETRIES;

/// The duration of the window in which reads are counted.
const WINDOW: Duration = Duration::from_secs(8);
/// Clients stop a little after the window, so that they read until its end.
const SLACK: Duration = Duration::from_secs(1);
/// The time in which a recovery that begins during reads has to move its first bytes.
const STARTS_WITHIN: Duration = Duration::from_secs(4);
/// The time for which a recovery has filled the links before reads begin.
const EARLIER: Duration = Duration::from_secs(2);
/// The interval between queries for the first bytes of a recovery.
const LOOK_EVERY: Duration = Duration::from_millis(50);
const READERS: usize = 4;
const READ_BYTES: u64 = 64 << 10;
/// The arguments of a recovery that runs during reads.
const RECOVERY: [&str; 2] = ["--policy", "even"];

/// Reads that have begun.
struct Reading {
    begun: Instant,
    last: Duration,
}

/// The time in which reads are counted, since they began.
#[derive(Clone, Copy)]
struct Window {
    from: Duration,
    until: Duration,
}

impl Measuring<'_> {
    pub(super) fn reads(&mut self) -> Result<Part, LabError> {
        let mut rows: Vec<ReadsRow> = Meanwhile::ALL.map(ReadsRow::new).into();
        for _ in 0..self.args.repetitions {
            for row in &mut rows {
                (self.say)(&format!("reads while {}", row.meanwhile));
                let run =
                    undisturbed(RETRIES, |run: &ReadsRun| &run.metered, || self.reads_while(row.meanwhile))?;
                row.runs.push(run);
            }
        }
        Ok(Part { reads: rows, ..Part::default() })
    }

    fn reads_while(&mut self, meanwhile: Meanwhile) -> Result<ReadsRun, LabError> {
        self.lab.fresh()?;
        if meanwhile != Meanwhile::AllUp {
            self.lab.lose(LOST)?;
        }
        match meanwhile {
            Meanwhile::AllUp | Meanwhile::OneDown => self.reads_alone(),
            Meanwhile::RecoveredLater => self.reads_before_a_recovery(),
            Meanwhile::Recovered => self.reads_during_a_recovery(),
            Meanwhile::RecoveredCapped => {
                self.lab.mend(&["caps", "--total", TOTAL_CAPS[0].0])?;
                self.reads_during_a_recovery()
            }
        }
    }

    fn reads_alone(&mut self) -> Result<ReadsRun, LabError> {
        let reading = self.begin_reads(WINDOW + SLACK)?;
        let (window, metered) = self.window_of(&reading)?;
        self.end_reads(window, metered)
    }

    /// Reads once a recovery has filled the links.
    fn reads_during_a_recovery(&mut self) -> Result<ReadsRun, LabError> {
        let repair = self.begin(&RECOVERY)?;
        thread::sleep(EARLIER);
        let reading = self.begin_reads(WINDOW + SLACK)?;
        self.window_with(&reading, &repair)
    }

    /// Reads before and while a recovery runs. The window begins when the recovery has moved its first bytes.
    fn reads_before_a_recovery(&mut self) -> Result<ReadsRun, LabError> {
        let reading = self.begin_reads(LATER + STARTS_WITHIN + WINDOW + SLACK)?;
        thread::sleep(LATER);
        let repair = self.begin(&RECOVERY)?;
        wait_while("coordinator", LOOK_EVERY, || {
            let moves = moves_bytes(&self.seen(&repair)?);
            Ok((!moves).then(|| "the recovery has not moved any bytes".to_owned()))
        })?;
        self.window_with(&reading, &repair)
    }

    /// Counts reads while a recovery runs, and then waits for the recovery's end.
    fn window_with(&mut self, reading: &Reading, repair: &str) -> Result<ReadsRun, LabError> {
        let (window, metered) = self.window_of(reading)?;
        let outlasts = !self.seen(repair)?.state.has_ended();
        let run = self.end_reads(window, metered)?;
        self.lab.mend(&["caps", "--none"])?;
        let view = self.end(repair)?;
        self.lab.compare("recovery during reads")?;
        let took_ms = view.ended_unix_ms.unwrap_or_default().saturating_sub(view.started_unix_ms);
        let recovery = RecoveryRun { outlasts, took_s: took_ms as f64 / 1e3, bound_s: bound_s(&view) };
        Ok(ReadsRun { recovery: Some(recovery), ..run })
    }

    /// Returns the present state of a repair.
    fn seen(&self, repair: &str) -> Result<RepairView, LabError> {
        let views = self.lab.mend(&["timeline", repair])?;
        view_of(views[0].clone())
    }

    fn begin_reads(&mut self, last: Duration) -> Result<Reading, LabError> {
        let order = Instruction::Steady {
            pieces: self.lab.pieces.clone(),
            block_bytes: self.lab.setup.block_bytes,
            clients: READERS,
            bytes: READ_BYTES,
            last_ms: last.as_millis() as u64,
        };
        // Starts the client, which takes a while.
        self.lab.fleet.ask(&self.lab.network, &Instruction::Nodes)?;
        self.lab.fleet.begin(&self.lab.network, &order)?;
        Ok(Reading { begun: Instant::now(), last })
    }

    /// Waits for the duration of a window. Returns when it was, and the resources used.
    fn window_of(&self, reading: &Reading) -> Result<(Window, Metered), LabError> {
        let meter = Meter::start(&self.lab.network)?;
        let from = reading.begun.elapsed();
        thread::sleep(WINDOW);
        let until = reading.begun.elapsed();
        let metered = meter.stop()?;
        if until > reading.last {
            let reason = "the recovery moved its first bytes too late: the reads had ended".to_owned();
            return Err(LabError::Agent { who: "coordinator".to_owned(), reason });
        }
        Ok((Window { from, until }, metered))
    }

    /// Waits until the clients stop, and sums up their reads in the window.
    fn end_reads(&mut self, window: Window, metered: Metered) -> Result<ReadsRun, LabError> {
        match self.lab.fleet.finish(&self.lab.network)? {
            Answer::Steady { reads } => {
                let (latencies, failed) = window.of(&reads);
                (self.say)(&Reads::of(latencies.clone(), window.length(), failed).summary());
                Ok(ReadsRun::of(&latencies, failed, window, metered))
            }
            other => {
                let reason = format!("an answer to something else: {other:?}");
                Err(LabError::Agent { who: "client".to_owned(), reason })
            }
        }
    }
}

/// Whether the recovery has moved bytes of a block.
fn moves_bytes(view: &RepairView) -> bool {
    let moved = |step: &RepairStep| *step >= RepairStep::FirstSlice;
    view.state.has_ended() || view.items.iter().any(|item| item.timeline_us.keys().any(moved))
}

impl Window {
    fn length(self) -> Duration {
        self.until - self.from
    }

    /// Returns the latencies of the successful reads that ended in the window, in ascending order, and the
    /// number of failed reads.
    fn of(self, reads: &[SteadyRead]) -> (Vec<Duration>, usize) {
        let is_inside =
            |read: &&SteadyRead| (self.from..self.until).contains(&Duration::from_nanos(read.ended_ns));
        let inside: Vec<&SteadyRead> = reads.iter().filter(is_inside).collect();
        let took = inside.iter().filter_map(|read| read.took_ns).map(Duration::from_nanos);
        let mut latencies: Vec<Duration> = took.collect();
        latencies.sort_unstable();
        let failed = inside.len() - latencies.len();
        (latencies, failed)
    }
}

impl ReadsRun {
    /// Sums up the reads of a window; `latencies` are in ascending order.
    fn of(latencies: &[Duration], failed: usize, window: Window, metered: Metered) -> Self {
        let seconds = window.length().as_secs_f64();
        let ms = |part: f64| percentile(latencies, part).as_secs_f64() * 1e3;
        let sent: u64 = helpers(&metered).map(|link| link.sent_bytes).sum();
        Self {
            per_second: latencies.len() as f64 / seconds,
            median_ms: ms(0.5),
            p99_ms: ms(0.99),
            failed,
            sent: sent as f64 * 8.0 / seconds,
            recovery: None,
            metered,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::report::tests::metered;
    use super::*;

    fn read(ended_ms: u64, took_ms: Option<u64>) -> SteadyRead {
        SteadyRead { ended_ns: ended_ms * 1_000_000, took_ns: took_ms.map(|ms| ms * 1_000_000) }
    }

    #[test]
    fn only_reads_within_the_window_count() {
        let reads = [
            read(900, Some(500)),
            read(1000, Some(10)),
            read(1500, Some(30)),
            read(2000, None),
            read(2999, Some(20)),
            read(3000, Some(700)),
        ];
        let window = Window { from: Duration::from_secs(1), until: Duration::from_secs(3) };
        let (latencies, failed) = window.of(&reads);
        let run = ReadsRun::of(&latencies, failed, window, metered(false));
        assert_eq!((run.per_second, run.median_ms, run.p99_ms, run.failed), (1.5, 20.0, 30.0, 1));
    }

    #[test]
    fn a_recovery_moves_bytes_once_a_first_slice_has_arrived() {
        let view = |steps: &[&str]| -> RepairView {
            let timeline: std::collections::BTreeMap<_, _> = steps.iter().map(|step| (step, 1)).collect();
            let item = serde_json::json!({
                "stripe": "1-a", "state": "running", "blocks": [], "rebuilt": [], "scheme": null, "parity": null,
                "reason": null, "next_step": null, "replanned": [], "job": null, "timeline_us": timeline,
            });
            let view = serde_json::json!({
                "repair": 1, "target": "node h1", "by_itself": false, "scheme": "auto", "policy": "even",
                "state": "running", "stripes": 1, "stripes_done": 0, "stripes_failed": 0, "blocks_rebuilt": 0,
                "bytes_rebuilt": 0, "bytes": 8, "started_unix_ms": 0, "ended_unix_ms": null, "progress": null,
                "items": [item],
            });
            view_of(view).unwrap()
        };
        assert!(!moves_bytes(&view(&["planned", "started"])));
        assert!(moves_bytes(&view(&["planned", "started", "first-slice"])));
    }
}
