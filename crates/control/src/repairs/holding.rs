//! Jobs of paused repairs: they stop between two slices and keep what was delivered. Once their repair is resumed they go on
//! as there is room for what they move, before anything new starts. A stripe that another repair waits for is not kept from it.

use std::collections::BTreeSet;

use repair::JobId;

/// Jobs that rest.
#[derive(Default)]
pub(crate) struct Held(pub(crate) BTreeSet<JobId>);
