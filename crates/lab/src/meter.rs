//! [`Meter`]: reads kernel counters during a measurement: the lab's processor time, other load, and traffic
//! per node.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::machine::CpuTimes;
use crate::network::Network;
use crate::shell::{Script, ScriptError};

/// Above this busy fraction the processors may be the bottleneck instead of the network. The threshold leaves
/// a margin, because /proc/stat misses about a tenth of the time that the timers of shaped links take.
pub const CPU_BOUND: f64 = 0.85;
/// The share of all processors' time that other programs may use before a measurement counts as disturbed.
const DISTURBED: f64 = 0.02;
/// The time in seconds that is tolerated on top of the `DISTURBED` share, because /proc/stat counts in ticks
/// of 10 ms.
const COUNTING_ERROR: f64 = 0.03;

/// Bytes over a node's link, including headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LinkBytes {
    /// Bytes that the node sent.
    pub sent_bytes: u64,
    /// Bytes that the node received.
    pub received_bytes: u64,
}

/// The counts of one measurement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Metered {
    /// Processor seconds of all the lab's processes.
    pub cpu_s: f64,
    /// The busy fraction of all processors' time.
    pub busy: f64,
    /// Processor seconds of other programs and other virtual machines.
    pub foreign_s: f64,
    /// Whether the load of other programs makes the measured time doubtful.
    pub disturbed: bool,
    /// Whether the processors may have been the bottleneck instead of the links.
    pub cpu_bound: bool,
    /// Traffic by node name.
    pub traffic: BTreeMap<String, LinkBytes>,
    /// Bytes that each helper read from its disk or the page cache.
    pub disk: BTreeMap<String, u64>,
}

/// A snapshot of the kernel's counters.
pub struct Meter {
    machine: CpuTimes,
    own: OwnCpu,
    traffic: BTreeMap<String, LinkBytes>,
    read: BTreeMap<String, u64>,
    started: Instant,
    group: Option<PathBuf>,
    net: String,
}

/// The lab's processor time in seconds.
#[derive(Clone, Copy, Default)]
struct OwnCpu {
    total: f64,
    user: f64,
}

impl Meter {
    /// Takes a snapshot of the counters.
    ///
    /// # Errors
    /// [`ScriptError`] if the network's counters cannot be read.
    pub fn start(network: &Network) -> Result<Self, ScriptError> {
        let (group, net) = (network.control_group(), network.names().net());
        let traffic = traffic(&net)?;
        let own = OwnCpu::of(group.as_deref());
        let read = read_by_helpers(group.as_deref());
        Ok(Self { machine: CpuTimes::now(), own, traffic, read, started: Instant::now(), group, net })
    }

    /// Reads the counters again and returns the differences.
    ///
    /// # Errors
    /// [`ScriptError`] if the network's counters cannot be read.
    pub fn stop(self) -> Result<Metered, ScriptError> {
        let elapsed = self.started.elapsed();
        let machine = CpuTimes::now().since(self.machine);
        let own = OwnCpu::of(self.group.as_deref());
        let own = OwnCpu { total: own.total - self.own.total, user: own.user - self.own.user };
        let mut traffic = traffic(&self.net)?;
        for (node, now) in &mut traffic {
            let before = self.traffic.get(node).copied().unwrap_or_default();
            now.sent_bytes -= before.sent_bytes;
            now.received_bytes -= before.received_bytes;
        }
        let mut disk = read_by_helpers(self.group.as_deref());
        for (helper, now) in &mut disk {
            let before = self.read.get(helper).copied().unwrap_or_default();
            let received = traffic.get(helper).copied().unwrap_or_default().received_bytes;
            *now = now.saturating_sub(before + received);
        }
        let foreign_s = foreign(machine, own);
        let processors = std::thread::available_parallelism().map_or(1, usize::from) as f64;
        let disturbed = is_disturbed(foreign_s, elapsed, processors);
        let own_busy = own.total / (elapsed.as_secs_f64() * processors);
        Ok(Metered {
            cpu_s: own.total,
            busy: machine.busy(),
            foreign_s,
            disturbed,
            // With load from other programs, a busy machine does not show that our processes are the
            // bottleneck.
            cpu_bound: own_busy > CPU_BOUND || (!disturbed && machine.busy() > CPU_BOUND),
            traffic,
            disk,
        })
    }
}

/// Returns the user time of other programs plus stolen time, in seconds. Kernel time is left out, because the
/// kernel charges its work for the links to whichever process is running.
fn foreign(machine: CpuTimes, own: OwnCpu) -> f64 {
    (machine.user - own.user).max(0.0) + machine.stolen
}

fn is_disturbed(foreign_s: f64, elapsed: Duration, processors: f64) -> bool {
    foreign_s > COUNTING_ERROR + DISTURBED * elapsed.as_secs_f64() * processors
}

impl OwnCpu {
    fn of(group: Option<&Path>) -> Self {
        let stat =
            group.and_then(|group| fs::read_to_string(group.join("cpu.stat")).ok()).unwrap_or_default();
        let seconds = |name: &str| {
            let value = stat.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<f64>().ok());
            value.unwrap_or_default() / 1e6
        };
        Self { total: seconds("usage_usec"), user: seconds("user_usec") }
    }
}

/// Returns the bytes that each helper's process obtained from `read` and similar calls: from the disk, the
/// page cache and data connections. The caller subtracts the traffic over the helper's link.
fn read_by_helpers(group: Option<&Path>) -> BTreeMap<String, u64> {
    let processes = group.and_then(|group| fs::read_to_string(group.join("cgroup.procs")).ok());
    let read = |process: &str| {
        let helper = helper_named(&fs::read_to_string(format!("/proc/{process}/cmdline")).ok()?)?;
        let io = fs::read_to_string(format!("/proc/{process}/io")).ok()?;
        let bytes = io.lines().find_map(|line| line.strip_prefix("rchar:"))?.trim().parse().ok()?;
        Some((helper, bytes))
    };
    processes.unwrap_or_default().lines().filter_map(read).collect()
}

/// Extracts the name from `mend helper NAME`.
fn helper_named(command_line: &str) -> Option<String> {
    let mut words = command_line.split('\0').skip(1);
    (words.next()? == "helper").then(|| words.next().map(str::to_owned))?
}

#[derive(Deserialize)]
struct Link {
    ifname: String,
    #[serde(default)]
    stats64: Option<Stats>,
}

#[derive(Deserialize)]
struct Stats {
    rx: Count,
    tx: Count,
}

#[derive(Deserialize)]
struct Count {
    bytes: u64,
}

/// Reads the traffic of each node from the counters of the bridge's ports. The bytes that a port receives are
/// those that its node sent.
fn traffic(net: &str) -> Result<BTreeMap<String, LinkBytes>, ScriptError> {
    let text = Script::new(format!("ip -n {net} -json -stats link show")).run()?;
    Ok(parse_traffic(&text))
}

fn parse_traffic(text: &str) -> BTreeMap<String, LinkBytes> {
    let links: Vec<Link> = serde_json::from_str(text).unwrap_or_default();
    let is_node = |name: &str| {
        matches!(name, "client" | "coord")
            || name.strip_prefix('h').is_some_and(|rest| rest.parse::<u16>().is_ok())
    };
    links
        .into_iter()
        .filter(|link| is_node(&link.ifname))
        .filter_map(|link| {
            let stats = link.stats64?;
            let traffic = LinkBytes { sent_bytes: stats.rx.bytes, received_bytes: stats.tx.bytes };
            Some((link.ifname, traffic))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_of_nodes_are_counted() {
        let text = r#"[{"ifname":"lo"},{"ifname":"core","stats64":{"rx":{"bytes":9},"tx":{"bytes":9}}},
            {"ifname":"h1","link_index":2,"stats64":{"rx":{"bytes":5,"packets":1},"tx":{"bytes":7}}}]"#;
        let expected = LinkBytes { sent_bytes: 5, received_bytes: 7 };
        assert_eq!(parse_traffic(text), BTreeMap::from([("h1".to_owned(), expected)]));
    }

    #[test]
    fn helpers_are_told_by_their_command_lines() {
        assert_eq!(helper_named("/usr/bin/mend\0helper\0h12\0"), Some("h12".to_owned()));
        assert_eq!(helper_named("mend\0coordinator\0"), None);
        assert_eq!(helper_named("mend\0lab\0agent\0--cluster\0helper\0"), None);
        assert_eq!(helper_named(""), None);
    }

    #[test]
    fn other_programs_disturb_and_counting_errors_do_not() {
        let second = Duration::from_secs(1);
        assert!(!is_disturbed(0.06, second, 2.0));
        assert!(is_disturbed(0.08, second, 2.0));
        assert!(!is_disturbed(0.02, Duration::from_millis(10), 2.0));
        let machine = CpuTimes { user: 1.0, system: 5.0, idle: 0.0, stolen: 0.25 };
        assert_eq!(foreign(machine, OwnCpu { total: 3.0, user: 0.5 }), 0.75);
        assert_eq!(foreign(machine, OwnCpu { total: 3.0, user: 1.5 }), 0.25);
    }
}
