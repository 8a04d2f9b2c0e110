//! The caps of this node, shared by all its jobs.
//!
//! Without caps, no lock is taken on the path of a slice: only one flag is read.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use repair::{Caps, Class, Grant, JobId, Limits, Meter};
use tokio::time::Instant;

/// The longest wait before a denied request is repeated. It is short, because the caps may change in the
/// meantime.
const ASK_AGAIN: Duration = Duration::from_millis(50);

/// The limits shared by all jobs of a node; cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Throttle {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// The caps from the node's own configuration; the coordinator can only lower them.
    own: Caps,
    is_limited: AtomicBool,
    limits: Mutex<Limits>,
    clock: Clock,
}

#[derive(Debug)]
enum Clock {
    /// Real time since this instant.
    Running(Instant),
    /// A clock advanced by tests.
    #[cfg(test)]
    Standing(Mutex<Duration>),
}

/// Access to the limits for one job, or for work outside jobs.
#[derive(Clone, Debug)]
pub(crate) struct Allowance {
    throttle: Throttle,
    job: Option<JobId>,
    class: Class,
}

impl Throttle {
    pub(crate) fn new(own: Caps) -> Self {
        Self::by(Clock::Running(Instant::now()), own)
    }

    fn by(clock: Clock, own: Caps) -> Self {
        let limits = Mutex::new(Limits::new(own, Duration::ZERO));
        let is_limited = AtomicBool::new(!own.are_none());
        Self { shared: Arc::new(Shared { own, is_limited, limits, clock }) }
    }

    /// Applies these caps from now on, or the caps of the node's own configuration where those are lower.
    pub(crate) fn set(&self, caps: Caps) {
        let caps = self.shared.own.and(&caps);
        self.limits().set(caps, self.now());
        self.shared.is_limited.store(!caps.are_none(), Ordering::Relaxed);
    }

    /// Returns the unused share of the cap on repairs, see [`Limits::unused`].
    pub(crate) fn unused(&self, meter: Meter) -> Option<f64> {
        if self.is_limited() { self.limits().unused(meter, self.now()) } else { None }
    }

    pub(crate) fn forget(&self, job: JobId) {
        if self.is_limited() {
            self.limits().forget(job);
        }
    }

    fn is_limited(&self) -> bool {
        self.shared.is_limited.load(Ordering::Relaxed)
    }

    pub(crate) fn now(&self) -> Duration {
        match &self.shared.clock {
            Clock::Running(start) => start.elapsed(),
            #[cfg(test)]
            Clock::Standing(now) => *now.lock().expect("never poisoned"),
        }
    }

    fn limits(&self) -> std::sync::MutexGuard<'_, Limits> {
        self.shared.limits.lock().expect("never poisoned")
    }
}

#[cfg(test)]
impl Throttle {
    /// Creates a throttle whose clock is advanced by [`let_pass`](Self::let_pass).
    pub(crate) fn standing(own: Caps) -> Self {
        Self::by(Clock::Standing(Mutex::default()), own)
    }

    pub(crate) fn let_pass(&self, time: Duration) {
        let Clock::Standing(now) = &self.shared.clock else { panic!("that clock runs by itself") };
        *now.lock().unwrap() += time;
    }
}

impl Allowance {
    pub(crate) fn new(throttle: Throttle, job: Option<JobId>, class: Class) -> Self {
        Self { throttle, job, class }
    }

    /// Whether any cap is set.
    pub(crate) fn is_limited(&self) -> bool {
        self.throttle.is_limited()
    }

    /// Returns the number of bytes that may move now ([`usize::MAX`] if unlimited), or as an error the time
    /// to wait before asking again.
    pub(crate) fn ask(&self, meter: Meter) -> Result<usize, Duration> {
        if !self.throttle.is_limited() {
            return Ok(usize::MAX);
        }
        match self.throttle.limits().grant(meter, self.class, self.job, self.throttle.now()) {
            Grant::Unlimited => Ok(usize::MAX),
            Grant::Bytes(bytes) => Ok(bytes),
            Grant::Wait(wait) => Err(wait.min(ASK_AGAIN)),
        }
    }

    /// Charges bytes that have moved.
    pub(crate) fn spend(&self, meter: Meter, bytes: usize) {
        if bytes > 0 && self.throttle.is_limited() {
            self.throttle.limits().spend(meter, self.class, self.job, bytes, self.throttle.now());
        }
    }
}
