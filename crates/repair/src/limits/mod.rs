//! Rate limits of a node: caps on its disk, on its links each way, and on each repair, across all
//! connections.
//!
//! A driver asks for a [`Grant`] before it moves bytes and reports afterwards how many moved. While a cap is
//! reached, degraded reads go first, then puts, then background repairs. Caps may change at any time.
//!
//! There are no queues and no clocks here: a caller that receives [`Grant::Wait`] asks again later.

mod bucket;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use self::bucket::Bucket;
use crate::JobId;

/// How long reports of caps may extend a time limit: this constant plus the time to read the bytes at [`SLOWEST_CAP`]
/// bytes per second. A cap that many jobs share, or that reads by clients use up, may throttle a helper for most of an
/// hour.
const CAPPED_LIMIT: Duration = Duration::from_secs(3600);
const SLOWEST_CAP: f64 = 5e4;

/// Returns how long a helper's reports that a cap throttles it may extend the time limit of a step that reads this
/// many bytes. A helper that claims this for longer blocks others.
pub fn longest_caps(bytes: u64) -> Duration {
    CAPPED_LIMIT + Duration::from_secs_f64(bytes as f64 / SLOWEST_CAP)
}

/// The purpose of a job, which decides its priority when a rate cap of a node is reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// A client waits for the bytes.
    Read,
    /// A client stores a file.
    Put,
    /// Background work, such as repairs and scrubs.
    #[default]
    Repair,
    /// A link is being measured: zeros are sent and dropped on arrival.
    Probe,
}

impl Class {
    /// The share of a bucket that is reserved for classes of higher priority.
    fn floor(self) -> f64 {
        match self {
            Self::Read => 0.0,
            Self::Put => 0.25,
            Self::Repair | Self::Probe => 0.5,
        }
    }
}

/// Caps of a node in bytes per second; absent ones are unlimited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Caps {
    /// Reads and writes of the node's disk, by jobs and scrubs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk: Option<u64>,
    /// Bytes sent, over all connections.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub up: Option<u64>,
    /// Bytes received, over all connections.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub down: Option<u64>,
    /// Bytes that each background repair sends from this node and, separately, receives on it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repair: Option<u64>,
    /// Bytes that all background repairs together send.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repairs_up: Option<u64>,
    /// Bytes that all background repairs together receive.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repairs_down: Option<u64>,
    /// Bytes that all background repairs together read from and write to the disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repairs_disk: Option<u64>,
}

impl Caps {
    /// Whether there is no cap.
    pub fn are_none(&self) -> bool {
        *self == Self::default()
    }

    /// Combines two sets of caps: the lower cap of each kind applies.
    pub fn and(&self, other: &Self) -> Self {
        let lower = |a: Option<u64>, b: Option<u64>| a.into_iter().chain(b).min();
        Self {
            disk: lower(self.disk, other.disk),
            up: lower(self.up, other.up),
            down: lower(self.down, other.down),
            repair: lower(self.repair, other.repair),
            repairs_up: lower(self.repairs_up, other.repairs_up),
            repairs_down: lower(self.repairs_down, other.repairs_down),
            repairs_disk: lower(self.repairs_disk, other.repairs_disk),
        }
    }
}

/// The resource that bytes pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Meter {
    /// The disk, in either direction.
    Disk,
    /// Sending on an edge.
    Up,
    /// Receiving on an edge.
    Down,
}

/// The answer to a request to move bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grant {
    /// No limit.
    Unlimited,
    /// The caller may move this many bytes at most; at least one.
    Bytes(usize),
    /// The caller may move nothing now and should ask again after this time.
    Wait(Duration),
}

/// A node's caps and their current levels. See the module's documentation.
#[derive(Debug, Default)]
pub struct Limits {
    caps: Caps,
    meters: BTreeMap<Meter, Bucket>,
    /// Buckets shared by all background repairs.
    background: BTreeMap<Meter, Bucket>,
    /// A bucket for each background repair and direction.
    repairs: BTreeMap<(JobId, Meter), Bucket>,
}

impl Limits {
    /// Creates limits with the given caps.
    pub fn new(caps: Caps, now: Duration) -> Self {
        let mut limits = Self::default();
        limits.set(caps, now);
        limits
    }

    /// The caps.
    pub fn caps(&self) -> Caps {
        self.caps
    }

    /// Replaces the caps.
    pub fn set(&mut self, caps: Caps, now: Duration) {
        self.caps = caps;
        let all = [(Meter::Disk, caps.disk), (Meter::Up, caps.up), (Meter::Down, caps.down)];
        let background = [
            (Meter::Disk, caps.repairs_disk),
            (Meter::Up, caps.repairs_up),
            (Meter::Down, caps.repairs_down),
        ];
        all.into_iter().for_each(|(meter, cap)| set(&mut self.meters, meter, cap, now));
        background.into_iter().for_each(|(meter, cap)| set(&mut self.background, meter, cap, now));
        match caps.repair {
            None => self.repairs.clear(),
            Some(rate) => self.repairs.values_mut().for_each(|bucket| bucket.set_rate(rate, now)),
        }
    }

    /// Returns how many bytes a job may move now. Without a job, the request is for other work such as a
    /// scrub.
    pub fn grant(&mut self, meter: Meter, class: Class, job: Option<JobId>, now: Duration) -> Grant {
        let mut bytes = usize::MAX;
        for (bucket, class) in self.buckets(meter, class, job, now).into_iter().flatten() {
            match bucket.allowance(class, now) {
                0 => return Grant::Wait(bucket.wait(class)),
                allowance => bytes = bytes.min(allowance),
            }
        }
        if bytes == usize::MAX { Grant::Unlimited } else { Grant::Bytes(bytes) }
    }

    /// Charges bytes that a job has moved, possibly more than granted if it could not stop in the middle.
    pub fn spend(&mut self, meter: Meter, class: Class, job: Option<JobId>, bytes: usize, now: Duration) {
        self.buckets(meter, class, job, now)
            .into_iter()
            .flatten()
            .for_each(|(bucket, _)| bucket.spend(bytes));
    }

    /// The unused share, from 0 to 1, of the cap on all background repairs at `meter`, since the last query
    /// or change of the cap; `None` without such a cap, or before anything could have moved.
    pub fn unused(&mut self, meter: Meter, now: Duration) -> Option<f64> {
        self.background.get_mut(&meter)?.unused(now)
    }

    /// Forgets a finished job.
    pub fn forget(&mut self, job: JobId) {
        self.repairs.retain(|&(other, _), _| other != job);
    }

    /// The buckets that a job draws from, each with the class to use. If only repairs draw from a bucket, no
    /// other class competes with them there, so they draw as the highest class.
    fn buckets(
        &mut self,
        meter: Meter,
        class: Class,
        job: Option<JobId>,
        now: Duration,
    ) -> [Option<(&mut Bucket, Class)>; 3] {
        let cap = self.caps.repair.filter(|_| class == Class::Repair && meter != Meter::Disk);
        let own = match cap.zip(job) {
            None => None,
            Some((rate, job)) => {
                let bucket = self.repairs.entry((job, meter)).or_insert_with(|| Bucket::new(rate, now));
                Some((bucket, Class::Read))
            }
        };
        let background = self.background.get_mut(&meter).filter(|_| class == Class::Repair);
        let background = background.map(|bucket| (bucket, Class::Read));
        [self.meters.get_mut(&meter).map(|bucket| (bucket, class)), own, background]
    }
}

fn set(meters: &mut BTreeMap<Meter, Bucket>, meter: Meter, cap: Option<u64>, now: Duration) {
    match (cap, meters.get_mut(&meter)) {
        (None, _) => drop(meters.remove(&meter)),
        (Some(rate), Some(bucket)) => bucket.set_rate(rate, now),
        (Some(rate), None) => drop(meters.insert(meter, Bucket::new(rate, now))),
    }
}
