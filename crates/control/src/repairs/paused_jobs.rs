//! Jobs of paused repairs. Each stops between two slices and keeps the slices that it has delivered. After
//! its repair is resumed, the job continues when there is budget for it, before any new job starts. A paused
//! job is cancelled if another repair waits for its stripe.

use std::collections::BTreeSet;

use repair::JobId;

/// The paused jobs.
#[derive(Default)]
pub(crate) struct PausedJobs(pub(crate) BTreeSet<JobId>);
