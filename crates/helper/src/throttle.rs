//! The caps of this node, asked by all its jobs.
//!
//! Without caps nothing is locked on the way of a slice: one flag is read.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use repair::{Caps, Class, Grant, JobId, Limits, Meter};
use tokio::time::Instant;

/// Whoever waits asks again after this long at the latest: the caps may have changed.
const ASK_AGAIN: Duration = Duration::from_millis(50);

/// Limits that all jobs of a node share; cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Throttle {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// Caps of the node's own configuration, below which no message goes.
    own: Caps,
    is_limited: AtomicBool,
    limits: Mutex<Limits>,
    start: Instant,
}

/// What one job may do.
#[derive(Clone, Debug)]
pub(crate) struct Allowance {
    throttle: Throttle,
    job: JobId,
    class: Class,
}

impl Throttle {
    pub(crate) fn new(own: Caps) -> Self {
        let limits = Mutex::new(Limits::new(own, Duration::ZERO));
        let is_limited = AtomicBool::new(!own.are_none());
        Self { shared: Arc::new(Shared { own, is_limited, limits, start: Instant::now() }) }
    }

    /// Keeps to these caps from now on, and to its own where they are lower.
    pub(crate) fn set(&self, caps: Caps) {
        let caps = self.shared.own.and(&caps);
        self.limits().set(caps, self.now());
        self.shared.is_limited.store(!caps.are_none(), Ordering::Relaxed);
    }

    pub(crate) fn forget(&self, job: JobId) {
        if self.is_limited() {
            self.limits().forget(job);
        }
    }

    fn is_limited(&self) -> bool {
        self.shared.is_limited.load(Ordering::Relaxed)
    }

    fn now(&self) -> Duration {
        self.shared.start.elapsed()
    }

    fn limits(&self) -> std::sync::MutexGuard<'_, Limits> {
        self.shared.limits.lock().expect("no holder panics")
    }
}

impl Allowance {
    pub(crate) fn new(throttle: Throttle, job: JobId, class: Class) -> Self {
        Self { throttle, job, class }
    }

    /// Whether there is any cap.
    pub(crate) fn is_limited(&self) -> bool {
        self.throttle.is_limited()
    }

    /// How many bytes may move now; [`usize::MAX`] if nothing limits them. Otherwise, how long to wait.
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

    /// So many bytes have moved.
    pub(crate) fn spend(&self, meter: Meter, bytes: usize) {
        if bytes > 0 && self.throttle.is_limited() {
            self.throttle.limits().spend(meter, self.class, self.job, bytes, self.throttle.now());
        }
    }

    /// Moves so many bytes on a thread that may wait, once it may.
    pub(crate) fn wait_for(&self, meter: Meter, bytes: usize) {
        while let Err(wait) = self.ask(meter) {
            std::thread::sleep(wait);
        }
        self.spend(meter, bytes);
    }
}
