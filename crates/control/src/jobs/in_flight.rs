//! State for test harnesses, which check it between two events: jobs and writes in flight.

/// The number of jobs and writes in flight. Both are bounded, and both fall to zero when no request is left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InFlight {
    /// Running jobs.
    pub jobs: usize,
    /// Writes that the storage has not answered.
    pub writes: usize,
}
