//! Prints one table: every kernel and ISA-L at three tasks, with slices in cache and in memory.
//!
//! It uses plain medians rather than criterion, because contenders must be interleaved: on a shared machine
//! the memory bandwidth changes from minute to minute, and only ratios within a minute are meaningful.

// Benchmarks measure time, which the crate's lints forbid elsewhere.
#![allow(clippy::disallowed_methods)]

mod isal;

use std::hint::black_box;
use std::time::{Duration, Instant};

use gf::Kernel;
use isal::IsaL;

const SOURCES: usize = 10;
const TARGETS: usize = 4;
/// Fourteen slices of this size fit into the L2 cache of current servers.
const CACHED_BYTES: usize = 64 << 10;
const MEMORY_BYTES: usize = 64 << 20;

/// Sources and targets, each a few cache lines further into its page than the previous one.
struct Buffers {
    bytes: Vec<u8>,
    slice_bytes: usize,
}

impl Buffers {
    const STAGGER_BYTES: usize = 3 * 64;

    fn new(slice_bytes: usize) -> Self {
        let stride = slice_bytes + Self::STAGGER_BYTES;
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut bytes = vec![0; (SOURCES + TARGETS) * stride + 64];
        for chunk in bytes.chunks_mut(8) {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            chunk.copy_from_slice(&state.to_be_bytes()[..chunk.len()]);
        }
        Self { bytes, slice_bytes }
    }

    fn split(&mut self) -> (Vec<&[u8]>, Vec<&mut [u8]>) {
        let aligned = self.bytes.as_ptr().align_offset(64);
        let stride = self.slice_bytes + Self::STAGGER_BYTES;
        let slices = self.bytes[aligned..].chunks_exact_mut(stride);
        let mut slices = slices.map(|slice| &mut slice[..self.slice_bytes]);
        let sources = slices.by_ref().take(SOURCES).map(|slice| &*slice).collect();
        (sources, slices.collect())
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Task {
    /// target ^= c·source
    MulAdd,
    /// targets = coefficients·sources, for this many targets
    Combine(usize),
}

impl Task {
    const ALL: [Task; 3] = [Task::MulAdd, Task::Combine(1), Task::Combine(TARGETS)];

    fn source_bytes(self, slice_bytes: usize) -> usize {
        if self == Task::MulAdd { slice_bytes } else { SOURCES * slice_bytes }
    }
}

enum Contender {
    Copy,
    Xor(Kernel),
    Kernel(Kernel),
    IsaL(IsaL),
}

impl Contender {
    fn name(&self) -> &'static str {
        match self {
            Contender::Copy => "memcpy (limit)",
            Contender::Xor(_) => "xor (limit)",
            Contender::Kernel(kernel) => kernel.name(),
            Contender::IsaL(_) => "ISA-L",
        }
    }

    fn can(&self, task: Task) -> bool {
        task == Task::MulAdd || matches!(self, Contender::Kernel(_) | Contender::IsaL(_))
    }

    /// Returns the mean time of one run of the task over `runs` runs, in seconds.
    fn time(&self, task: Task, buffers: &mut Buffers, runs: u32) -> f64 {
        let (sources, mut targets) = buffers.split();
        let coefficients: Vec<u8> = (0..SOURCES * TARGETS).map(|i| (i * 41 + 2) as u8).collect();
        match task {
            Task::MulAdd => {
                let (source, target) = (sources[0], &mut *targets[0]);
                match self {
                    Contender::Copy => {
                        mean(runs, || black_box(&mut *target).copy_from_slice(black_box(source)))
                    }
                    Contender::Xor(kernel) => mean(runs, || kernel.xor(source, target)),
                    Contender::Kernel(kernel) => mean(runs, || kernel.mul_add(29, source, target)),
                    Contender::IsaL(isal) => {
                        let tables = isal.tables(&[29], 1);
                        mean(runs, || isal.mul_add(&tables, source, target))
                    }
                }
            }
            Task::Combine(rows) => {
                let coefficients = &coefficients[..SOURCES * rows];
                let targets = &mut targets[..rows];
                match self {
                    Contender::IsaL(isal) => {
                        let tables = isal.tables(coefficients, rows);
                        mean(runs, || isal.combine(&tables, &sources, targets))
                    }
                    Contender::Kernel(kernel) => {
                        mean(runs, || kernel.combine(coefficients, &sources, targets))
                    }
                    _ => unreachable!("limits only have a figure for the first task"),
                }
            }
        }
    }
}

fn mean(runs: u32, mut work: impl FnMut()) -> f64 {
    let start = Instant::now();
    for _ in 0..runs {
        work();
    }
    start.elapsed().as_secs_f64() / f64::from(runs)
}

/// Returns the rate of each contender, in GB/s of source bytes; `None` if the contender has no function for
/// the task.
fn column(
    contenders: &[Contender],
    task: Task,
    buffers: &mut Buffers,
    runs: u32,
    time: Duration,
) -> Vec<Option<f64>> {
    let mut samples = vec![Vec::new(); contenders.len()];
    let start = Instant::now();
    // The first round only warms up caches and page tables.
    for round in 0.. {
        for (contender, samples) in contenders.iter().zip(&mut samples) {
            if contender.can(task) {
                let seconds = contender.time(task, buffers, runs);
                if round > 0 {
                    samples.push(seconds);
                }
            }
        }
        if round >= 5 && start.elapsed() > time {
            break;
        }
    }
    let gigabytes = task.source_bytes(buffers.slice_bytes) as f64 / 1e9;
    samples.into_iter().map(|samples| Some(gigabytes / median(samples)?)).collect()
}

fn median(mut samples: Vec<f64>) -> Option<f64> {
    samples.sort_by(f64::total_cmp);
    samples.get(samples.len() / 2).copied()
}

fn contenders() -> Vec<Contender> {
    let mut contenders = vec![Contender::Copy, Contender::Xor(Kernel::available()[0])];
    contenders.extend(Kernel::available().iter().copied().map(Contender::Kernel));
    match IsaL::load() {
        Some(isal) => {
            assert_same_field(&isal);
            contenders.push(Contender::IsaL(isal));
        }
        None => println!("libisal.so.2 is not installed (Debian: libisal2); its rows are skipped"),
    }
    contenders
}

/// Checks that ISA-L multiplies in the same field as this crate. A contender that uses another field, or that
/// is called incorrectly, would make the table meaningless.
fn assert_same_field(isal: &IsaL) {
    let all: Vec<u8> = (0..=255).collect();
    for c in 0..=255 {
        let products: Vec<u8> = all.iter().map(|&x| gf::mul(c, x)).collect();
        let tables = isal.tables(&[c], 1);
        let (mut added, mut combined) = (vec![0; 256], vec![9; 256]);
        isal.mul_add(&tables, &all, &mut added);
        isal.combine(&tables, &[&all], &mut [&mut combined]);
        assert!(added == products && combined == products, "ISA-L has another product of {c}");
    }
}

fn print_row(name: &str, cells: impl IntoIterator<Item = Option<f64>>, unit: &str) {
    print!("{name:<20}");
    for cell in cells {
        match cell {
            Some(cell) if cell < 10.0 => print!("{:>9}", format!("{cell:.2}{unit}")),
            Some(cell) => print!("{:>9}", format!("{cell:.1}{unit}")),
            None => print!("{:>9}", "-"),
        }
    }
    println!();
}

fn cpu_name() -> String {
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name"));
    model.map_or("unknown CPU".into(), |name| name.trim_start_matches([' ', '\t', ':']).into())
}

fn main() {
    let contenders = contenders();
    let mut columns = Vec::new();
    for (slice_bytes, runs) in [(CACHED_BYTES, 20), (MEMORY_BYTES, 1)] {
        let mut buffers = Buffers::new(slice_bytes);
        for task in Task::ALL {
            columns.push(column(&contenders, task, &mut buffers, runs, Duration::from_secs(5)));
        }
    }
    let columns = [0, 3, 1, 4, 2, 5].map(|i| &columns[i]);

    println!("{}, one thread, GB/s of source bytes, medians", cpu_name());
    println!("A: target ^= c·source   B: 10 sources into 1   C: RS(10,4) encode");
    println!("L2: slices of 64 KiB    Mem: blocks of 64 MiB");
    println!();
    print!("{:<20}", "");
    println!("{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}", "A L2", "A Mem", "B L2", "B Mem", "C L2", "C Mem");
    for (i, contender) in contenders.iter().enumerate() {
        print_row(contender.name(), columns.map(|column| column[i]), "");
    }
    if matches!(contenders.last(), Some(Contender::IsaL(_))) {
        // The first two rows are upper limits (copying, and adding without multiplication). The third is the
        // kernel that is used by default, and the last is ISA-L.
        let ratios = columns.map(|column| Some(column[2]? / (*column.last()?)?));
        print_row(&format!("{} / ISA-L", contenders[2].name()), ratios, "x");
    }
}
