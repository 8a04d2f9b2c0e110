//! Resource usage of a cluster's processes: links, files, memory.

use std::fs;

use serde::{Deserialize, Serialize};

use crate::error::LabError;
use crate::meter::{Meter, Metered};
use crate::network::Network;

/// The resources used during a measurement.
#[derive(Clone, Debug)]
pub(crate) struct Usage {
    pub(crate) metered: Metered,
    pub(crate) used: Used,
}

/// Bytes that a measurement moved, and its memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Used {
    /// Bytes received over the links of all servers.
    pub(crate) received: u64,
    /// Bytes received over the link of the server that received most.
    pub(crate) received_most: u64,
    /// Bytes that all processes obtained from `read` and similar calls: from files, the page cache and
    /// sockets.
    pub(crate) read: u64,
    /// Bytes that all processes caused to be read from block devices.
    pub(crate) from_device: u64,
    /// Bytes written to files by all processes.
    pub(crate) written: u64,
    /// The peak resident memory of the largest process, in bytes.
    pub(crate) memory: u64,
}

/// The values of the counters at the start of a measurement.
pub(crate) struct Watching {
    meter: Meter,
    processes: Vec<Process>,
}

#[derive(Clone, Copy)]
struct Process {
    id: u32,
    counts: Counts,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    read: u64,
    from_device: u64,
    written: u64,
}

impl Watching {
    /// Starts to count the traffic of all links, and the file I/O and memory of `processes`.
    ///
    /// # Errors
    /// [`LabError`].
    pub(crate) fn start(network: &Network, processes: Vec<u32>) -> Result<Self, LabError> {
        let processes = processes.into_iter().map(|id| {
            let _ = fs::write(format!("/proc/{id}/clear_refs"), "5"); // Resets the peak memory counter.
            Process { id, counts: Counts::of(id) }
        });
        let processes = processes.collect();
        Ok(Self { meter: Meter::start(network)?, processes })
    }

    /// Returns the usage since the start.
    ///
    /// # Errors
    /// [`LabError`].
    pub(crate) fn stop(self) -> Result<Usage, LabError> {
        let metered = self.meter.stop()?;
        let received: Vec<u64> = received_by_servers(&metered).map(|(_, bytes)| bytes).collect();
        let mut used = Used {
            received: received.iter().sum(),
            received_most: received.into_iter().max().unwrap_or_default(),
            ..Used::default()
        };
        for Process { id, counts } in self.processes {
            used.add(Counts::of(id).since(counts));
            used.memory = used.memory.max(peak(id));
        }
        Ok(Usage { metered, used })
    }
}

/// Returns the bytes that each server received over its link, with its name.
pub(crate) fn received_by_servers(metered: &Metered) -> impl Iterator<Item = (&str, u64)> {
    let servers = metered.traffic.iter().filter(|(node, _)| node.starts_with('h'));
    servers.map(|(node, traffic)| (node.as_str(), traffic.received_bytes))
}

impl Used {
    fn add(&mut self, counts: Counts) {
        self.read += counts.read;
        self.from_device += counts.from_device;
        self.written += counts.written;
    }

    /// Returns the bytes read from files, including the page cache.
    pub(crate) fn read_from_files(&self) -> u64 {
        self.read.saturating_sub(self.received)
    }
}

impl Counts {
    /// Reads the counters of a process; all are zero if it has ended.
    fn of(id: u32) -> Self {
        Self::parse(&fs::read_to_string(format!("/proc/{id}/io")).unwrap_or_default())
    }

    /// Parses `/proc/ID/io`. `rchar` counts the bytes returned by `read` and similar calls, also from the page
    /// cache. `read_bytes` counts reads from block devices. `write_bytes` counts file pages that became dirty.
    fn parse(io: &str) -> Self {
        let field = |name: &str| {
            let value = io.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
            value.unwrap_or_default()
        };
        Self { read: field("rchar:"), from_device: field("read_bytes:"), written: field("write_bytes:") }
    }

    fn since(self, earlier: Self) -> Self {
        Self {
            read: self.read.saturating_sub(earlier.read),
            from_device: self.from_device.saturating_sub(earlier.from_device),
            written: self.written.saturating_sub(earlier.written),
        }
    }
}

fn peak(id: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or_default() * 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_from_the_device_are_counted_separately() {
        let io = "rchar: 900\nwchar: 70\nsyscr: 1\nsyscw: 1\nread_bytes: 400\nwrite_bytes: 30\n\
                  cancelled_write_bytes: 0\n";
        let counts = Counts::parse(io);
        assert_eq!(counts, Counts { read: 900, from_device: 400, written: 30 });
        let earlier = Counts { read: 100, from_device: 400, written: 40 };
        assert_eq!(counts.since(earlier), Counts { read: 800, from_device: 0, written: 0 });
        let mut used = Used { received: 300, ..Used::default() };
        used.add(counts);
        assert_eq!((used.read_from_files(), used.from_device), (600, 400));
    }
}
