//! Jobs of paused repairs. Each stops between two slices and keeps what it has delivered. Once its repair is
//! resumed, it continues as soon as there is room for what it moves, before any new job starts. A paused job
//! gives way when another repair waits for its stripe.

use std::collections::BTreeSet;

use repair::JobId;

/// The jobs that are paused.
#[derive(Default)]
pub(crate) struct PausedJobs(pub(crate) BTreeSet<JobId>);
