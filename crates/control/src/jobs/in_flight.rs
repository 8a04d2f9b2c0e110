//! What a harness checks between two events: the jobs that publish, and what is in flight.

/// How much is in flight. All of it is bounded, and none of it is left once nobody wants anything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InFlight {
    /// Jobs that run.
    pub jobs: usize,
    /// Writes that the storage has not answered.
    pub writes: usize,
}
