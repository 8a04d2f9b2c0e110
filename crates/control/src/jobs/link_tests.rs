//! Jobs that move bytes over a link to learn what it carries: probes, which an operator asks for, and trials
//! of suspects.
//!
//! One of them runs at a time, since each would falsify the other's result.

use crate::jobs::probes::Probes;
use crate::jobs::suspects::Suspects;

/// The latest probes, and the trials of nodes that may be slow.
#[derive(Default)]
pub(crate) struct LinkTests {
    /// The measurement that runs, or the last one.
    pub(super) probes: Option<Probes>,
    pub(super) suspects: Suspects,
}
