//! The machine on which a measurement ran, Mend's version, and the machine's load.

use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::checkout::Checkout;

/// The machine and Mend's version, which readers need to interpret figures. Two values are equal if they
/// describe the same machine and version, at whatever time.
#[derive(Debug, Clone, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// The processor model.
    pub processor: String,
    /// The processor's instruction set extensions that Mend's kernels and checksums use.
    #[serde(default)]
    pub features: Vec<String>,
    /// The number of online processors.
    pub processors: usize,
    /// The kernel version.
    pub kernel: String,
    /// The memory size in bytes.
    pub memory_bytes: u64,
    /// Mend's version.
    pub version: String,
    /// The last commit that changed the code in the lab's checkout, with `+` for local changes of the code;
    /// `unknown` outside a checkout.
    pub commit: String,
    /// The time of the measurement, in milliseconds since 1970; 0 in reports that do not have it.
    #[serde(default)]
    pub measured_unix_ms: u64,
}

/// Processor time of the whole machine since boot, in seconds summed over all processors.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CpuTimes {
    /// Time in user programs.
    pub user: f64,
    /// Time in the kernel, including interrupts.
    pub system: f64,
    /// Idle time, including waits for I/O.
    pub idle: f64,
    /// Time that the host gave to other virtual machines.
    pub stolen: f64,
}

/// The words before the day of the measurement in a summary.
pub(crate) const MEASURED_ON: &str = "; measured on ";

/// Ticks per second in /proc/stat; fixed by the kernel's interface.
const TICKS: f64 = 100.0;

/// The processor features to report, named as in /proc/cpuinfo.
const FEATURES: [&str; 9] =
    ["ssse3", "avx2", "avx512bw", "gfni", "pclmulqdq", "vpclmulqdq", "aes", "asimd", "pmull"];

impl Machine {
    /// A one-line summary for the head of a page, with the day of the measurement (UTC).
    pub fn summary(&self) -> String {
        let Self { processor, features, processors, kernel, commit, .. } = self;
        let memory = self.memory_bytes as f64 / f64::from(1 << 30);
        let day = match self.measured_unix_ms {
            0 => String::new(),
            time => format!("{MEASURED_ON}{}", day_of(time)),
        };
        format!(
            "Machine: {processors} cores of {processor} ({}), {memory:.0} GiB, Linux {kernel}; commit \
             {commit}{day}.",
            features.join(" "),
        )
    }

    /// Describes this machine and Mend's version, now.
    pub fn this() -> Self {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let field = |text: &str, name: &str| {
            let line = text.lines().find(|line| line.starts_with(name))?;
            Some(line.split_once(':')?.1.trim().to_owned())
        };
        let memory_kib = field(&meminfo, "MemTotal").and_then(|text| text.split(' ').next()?.parse().ok());
        Self {
            processor: field(&cpuinfo, "model name").unwrap_or_else(|| "unknown".to_owned()),
            features: features(&field(&cpuinfo, "flags").or(field(&cpuinfo, "Features")).unwrap_or_default()),
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            kernel: kernel.trim().to_owned(),
            memory_bytes: memory_kib.unwrap_or(0u64) * 1024,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            commit: Checkout::here().commit().unwrap_or_else(|| "unknown".to_owned()),
            measured_unix_ms: unix_ms(),
        }
    }

    fn timeless(&self) -> impl PartialEq + '_ {
        let Self {
            processor,
            features,
            processors,
            kernel,
            memory_bytes,
            version,
            commit,
            measured_unix_ms: _,
        } = self;
        (processor, features, processors, kernel, memory_bytes, version, commit)
    }
}

impl PartialEq for Machine {
    fn eq(&self, other: &Self) -> bool {
        self.timeless() == other.timeless()
    }
}

/// Returns the time now, in milliseconds since 1970.
fn unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64
}

/// Returns the day of a time in milliseconds since 1970, as YYYY-MM-DD in UTC.
fn day_of(unix_ms: u64) -> String {
    let (mut day, mut month) = (unix_ms / 86_400_000, 0);
    while day >= days_in(month) {
        day -= days_in(month);
        month += 1;
    }
    format!("{}-{:02}-{:02}", 1970 + month / 12, month % 12 + 1, day + 1)
}

/// Returns the number of days in a month, counted from January 1970.
fn days_in(month: u64) -> u64 {
    let year = 1970 + month / 12;
    let is_leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    match month % 12 {
        1 => 28 + u64::from(is_leap),
        3 | 5 | 8 | 10 => 30,
        _ => 31,
    }
}

fn features(flags: &str) -> Vec<String> {
    let has = |feature: &&str| flags.split_whitespace().any(|flag| flag == *feature);
    FEATURES.into_iter().filter(has).map(str::to_owned).collect()
}

impl CpuTimes {
    /// Returns the times since boot; all are zero if /proc/stat cannot be read.
    pub fn now() -> Self {
        Self::parse(&fs::read_to_string("/proc/stat").unwrap_or_default())
    }

    fn parse(stat: &str) -> Self {
        let line = stat.lines().find(|line| line.starts_with("cpu ")).unwrap_or_default();
        let ticks: Vec<f64> = line.split_whitespace().skip(1).filter_map(|text| text.parse().ok()).collect();
        let at = |index: usize| ticks.get(index).copied().unwrap_or_default() / TICKS;
        // The fields of the line: user nice system idle iowait irq softirq steal.
        Self { user: at(0) + at(1), system: at(2) + at(5) + at(6), idle: at(3) + at(4), stolen: at(7) }
    }

    /// Returns the times since `earlier`.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self {
            user: self.user - earlier.user,
            system: self.system - earlier.system,
            idle: self.idle - earlier.idle,
            stolen: self.stolen - earlier.stolen,
        }
    }

    /// The busy fraction of all processors' time, from 0 to 1.
    pub fn busy(self) -> f64 {
        let spent = self.user + self.system + self.stolen;
        if spent + self.idle > 0.0 { spent / (spent + self.idle) } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_times_are_read_in_seconds() {
        let earlier = CpuTimes::parse("cpu  100 100 100 500 100 0 100 0 0 0\ncpu0 1 1 1 1\n");
        let later = CpuTimes::parse("cpu  200 100 200 600 100 100 100 100 0 0\n");
        let spent = later.since(earlier);
        assert_eq!(spent, CpuTimes { user: 1.0, system: 2.0, idle: 1.0, stolen: 1.0 });
        assert!((spent.busy() - 0.8).abs() < 1e-9);
        assert_eq!(CpuTimes::parse(""), CpuTimes { user: 0.0, system: 0.0, idle: 0.0, stolen: 0.0 });
    }

    #[test]
    fn this_machine_is_described() {
        let machine = Machine::this();
        assert!(machine.summary().contains(&machine.processor), "{}", machine.summary());
        assert_eq!(features("fpu avx2 avx512f gfni"), ["avx2", "gfni"]);
        assert!(machine.processors > 0 && machine.memory_bytes > 1 << 20, "{machine:?}");
    }

    #[test]
    fn summaries_have_the_day_of_the_measurement() {
        let machine = Machine { measured_unix_ms: 1_795_996_799_999, ..Machine::this() };
        assert!(machine.summary().ends_with("; measured on 2026-11-29."), "{}", machine.summary());
        let untimed = Machine { measured_unix_ms: 0, ..machine.clone() };
        assert!(!untimed.summary().contains("measured"), "{}", untimed.summary());
        assert_eq!(machine, untimed);
        assert_ne!(machine, Machine { commit: "0123456789ab".to_owned(), ..machine.clone() });
    }

    #[test]
    fn days_are_those_of_the_calendar() {
        let days = [0, 58, 59, 789, 790, 11_016, 11_017, 20_787, 20_788].map(|day| day_of(day * 86_400_000));
        let expected = [
            "1970-01-01",
            "1970-02-28",
            "1970-03-01",
            "1972-02-29",
            "1972-03-01",
            "2000-02-29",
            "2000-03-01",
            "2026-11-30",
            "2026-12-01",
        ];
        assert_eq!(days, expected);
    }
}
