//! The numbers of jobs and writes in flight. Test harnesses check them between events.

/// The number of jobs and writes in flight. Both are bounded, and both fall to zero when no request is left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InFlight {
    /// Running jobs.
    pub jobs: usize,
    /// Writes that the storage has not answered.
    pub writes: usize,
}
