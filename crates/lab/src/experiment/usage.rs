//! Resource usage of a cluster's processes: links, files, memory.

use std::fs;

use crate::error::LabError;
use crate::meter::{Meter, Metered};
use crate::network::Network;

/// The resources used during a measurement.
#[derive(Clone, Debug)]
pub(crate) struct Usage {
    pub(crate) metered: Metered,
    /// Bytes received over the links of all servers.
    pub(crate) received: u64,
    /// Bytes received over the link of the server that received most.
    pub(crate) received_most: u64,
    /// Bytes written to files by all processes.
    pub(crate) written: u64,
    /// Bytes that all processes obtained from `read` and similar calls: from files, the page cache and
    /// sockets.
    pub(crate) read: u64,
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

#[derive(Clone, Copy, Default)]
struct Counts {
    read: u64,
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
        let servers = metered.traffic.iter().filter(|(node, _)| node.starts_with('h'));
        let received: Vec<u64> = servers.map(|(_, traffic)| traffic.received_bytes).collect();
        let mut usage = Usage {
            received: received.iter().sum(),
            received_most: received.into_iter().max().unwrap_or_default(),
            metered,
            written: 0,
            read: 0,
            memory: 0,
        };
        for Process { id, counts } in self.processes {
            let now = Counts::of(id);
            usage.written += now.written.saturating_sub(counts.written);
            usage.read += now.read.saturating_sub(counts.read);
            usage.memory = usage.memory.max(peak(id));
        }
        Ok(usage)
    }
}

impl Counts {
    /// Reads the counters of a process. `rchar` counts the bytes returned by `read` and similar calls, also
    /// from the page cache. `write_bytes` counts file pages that became dirty.
    fn of(id: u32) -> Self {
        let io = fs::read_to_string(format!("/proc/{id}/io")).unwrap_or_default();
        let field = |name: &str| {
            let value = io.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
            value.unwrap_or_default()
        };
        Self { read: field("rchar:"), written: field("write_bytes:") }
    }
}

fn peak(id: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or_default() * 1024
}
