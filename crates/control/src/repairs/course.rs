//! The course of one repair: its progress, pauses, bound and limiting resources.

use std::collections::BTreeMap;
use std::time::Duration;

use recovery::Progress;
use repair::Resource;

/// How often progress is recorded.
const NOTE_EVERY: Duration = Duration::from_secs(1);

/// The progress of a repair, its pauses and its limits.
#[derive(Default)]
pub(crate) struct Course {
    pub(crate) progress: Progress,
    /// The most bytes that were done so far.
    most: u64,
    /// The time of the last progress, of the end of the last pause, or at which the repair last waited for its turn.
    last_progress: Duration,
    pub(crate) noted: Duration,
    /// The start of the current pause.
    pub(crate) paused: Option<Duration>,
    /// The total length of earlier pauses.
    paused_for: Duration,
    pub(crate) began: Option<Duration>,
    pub(crate) ended: Option<Duration>,
    /// A lower bound for the repair's duration, computed at its start from the rates of links and disks and
    /// from caps.
    pub(crate) bound: Option<Duration>,
    /// The resources that were found to limit the repair, and how often each did.
    pub(crate) limits: BTreeMap<Resource, u32>,
}

impl Course {
    /// Returns the duration so far, without pauses.
    pub(crate) fn lasts(&self, now: Duration) -> Duration {
        let until = self.ended.unwrap_or(now);
        let pause = self.paused.map_or(Duration::ZERO, |since| until.saturating_sub(since));
        self.began.map_or(Duration::ZERO, |began| until.saturating_sub(began + self.paused_for + pause))
    }

    /// Records the bytes of blocks that are rebuilt by now.
    pub(crate) fn note(&mut self, now: Duration, bytes: u64) {
        self.noted = now;
        self.progress.note(now, bytes);
        if bytes > self.most {
            (self.most, self.last_progress) = (bytes, now);
        }
    }

    /// Records that the repair only waits for its turn.
    pub(crate) fn note_waits_for_turn(&mut self, now: Duration) {
        self.last_progress = now;
    }

    /// Returns the time without progress, which begins when it is the repair's turn; `None` if the repair is paused, has
    /// ended or has not begun.
    pub(crate) fn stalled_for(&self, now: Duration) -> Option<Duration> {
        let began = self.began.filter(|_| self.ended.is_none() && self.paused.is_none())?;
        Some(now.saturating_sub(self.last_progress.max(began)))
    }

    /// Pauses or resumes. Rates from before a pause say nothing about the time after it, so they are dropped.
    pub(crate) fn set_paused(&mut self, paused: bool, now: Duration) {
        match (paused, self.paused) {
            (true, None) => self.paused = Some(now),
            (false, Some(since)) => {
                self.paused = None;
                self.paused_for += now.saturating_sub(since.max(self.began.unwrap_or(now)));
                self.progress = Progress::default();
                self.last_progress = now;
            }
            (true, Some(_)) | (false, None) => {}
        }
    }

    /// Whether it is time to record progress.
    pub(crate) fn is_due(&self, now: Duration) -> bool {
        self.began.is_some()
            && self.ended.is_none()
            && self.paused.is_none()
            && now >= self.noted + NOTE_EVERY
    }
}
