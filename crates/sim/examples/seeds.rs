//! Simulates many whole systems, on all cores:
//!
//! `cargo run --release -p sim --example seeds -- --seeds 0..1000000`
//!
//! With `--profile seeds` instead of `--release`, the build takes ten minutes, and each seed takes a fifth
//! less time.
//!
//! The program prints one line for each piece (10,000 seeds by default) of the range, and at the end the
//! number of seeds that passed and the processor time. For every seed that fails, it prints the violation and
//! the shortest script that still fails. It stops at the first failure, or with `--keep-going` at the end of
//! the range, and exits with 1 if a seed failed.

use std::ops::Range;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use sim::system::{Summary, Violation, check, shrink};

const USAGE: &str =
    "usage: seeds --seeds FROM..TO [--piece SEEDS] [--threads N] [--keep-going] [--no-shrink]";

/// A range of seeds and options.
struct Campaign {
    seeds: Range<u64>,
    /// Seeds per line of output.
    piece: u64,
    threads: u64,
    keeps_going: bool,
    shrinks: bool,
}

/// For one piece of the range, sums over the seeds that passed.
#[derive(Default)]
struct Totals {
    events: AtomicU64,
    puts: AtomicU64,
    reads: AtomicU64,
    commits: AtomicU64,
    starts: AtomicU64,
    /// The longest virtual time of any seed.
    longest_s: AtomicU64,
}

fn main() -> ExitCode {
    let campaign = match Campaign::from_arguments(std::env::args().skip(1)) {
        Ok(campaign) => campaign,
        Err(why) => {
            eprintln!("{why}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    std::panic::set_hook(Box::new(|_| {})); // A panic is a violation, which is printed with its seed.
    let failed = campaign.run();
    if failed > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

impl Campaign {
    fn from_arguments(arguments: impl Iterator<Item = String>) -> Result<Self, String> {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get) as u64;
        let mut campaign =
            Self { seeds: 0..0, piece: 10_000, threads: cores, keeps_going: false, shrinks: true };
        let mut arguments = arguments.into_iter();
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().ok_or(format!("{argument} needs a value"));
            match argument.as_str() {
                "--seeds" => campaign.seeds = range(&value()?)?,
                "--piece" => campaign.piece = number(&value()?)?.max(1),
                "--threads" => campaign.threads = number(&value()?)?.max(1),
                "--keep-going" => campaign.keeps_going = true,
                "--no-shrink" => campaign.shrinks = false,
                _ => return Err(format!("{argument} is not an option")),
            }
        }
        if campaign.seeds.is_empty() { Err("no seeds are given".to_owned()) } else { Ok(campaign) }
    }

    /// Simulates all pieces and returns the number of seeds that failed.
    fn run(&self) -> u64 {
        let (begun, mut played, mut failed) = (Instant::now(), 0, 0);
        let mut from = self.seeds.start;
        while from < self.seeds.end && (failed == 0 || self.keeps_going) {
            let piece = from..self.seeds.end.min(from + self.piece);
            from = piece.end;
            let counts = self.play(piece);
            (played, failed) = (played + counts.0, failed + counts.1);
        }
        let passed = played - failed;
        println!(
            "{passed} seeds passed in {:.0?} and {:.0?} of processor time, {failed} failed",
            begun.elapsed(),
            processor_time()
        );
        failed
    }

    /// Simulates one piece and prints its line. Returns the number of seeds played and of those that failed.
    fn play(&self, piece: Range<u64>) -> (u64, u64) {
        let (begun, totals, next) = (Instant::now(), Totals::default(), AtomicU64::new(piece.start));
        let (failed, stops) = (AtomicU64::new(0), AtomicBool::new(false));
        let work = || {
            while !stops.load(Ordering::Relaxed) {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if seed >= piece.end {
                    break;
                }
                match check(seed) {
                    Ok(summary) => totals.add(&summary),
                    Err(violation) => {
                        failed.fetch_add(1, Ordering::Relaxed);
                        stops.fetch_or(!self.keeps_going, Ordering::Relaxed);
                        self.report(violation, seed - self.seeds.start);
                    }
                }
            }
        };
        std::thread::scope(|scope| (0..self.threads).for_each(|_| drop(scope.spawn(work))));
        let (played, failed) = (next.into_inner().min(piece.end) - piece.start, failed.into_inner());
        let rate = played as f64 / begun.elapsed().as_secs_f64();
        println!(
            "{}..{}: {failed} failed, {rate:.1} seeds a second; {totals}",
            piece.start,
            piece.start + played
        );
        (played, failed)
    }

    fn report(&self, violation: Violation, passed: u64) {
        println!("after {passed} seeds: {violation}");
        if self.shrinks {
            let shortest = shrink(violation);
            println!("the shortest script that fails: {:#?}\n{}", shortest.script, shortest.what.join("; "));
        }
    }
}

impl Totals {
    fn add(&self, summary: &Summary) {
        let counts = [
            (&self.events, summary.events),
            (&self.puts, summary.puts),
            (&self.reads, summary.reads),
            (&self.commits, summary.commits),
            (&self.starts, summary.starts.into()),
        ];
        for (total, count) in counts {
            total.fetch_add(count, Ordering::Relaxed);
        }
        self.longest_s.fetch_max(summary.after.as_secs(), Ordering::Relaxed);
    }
}

impl std::fmt::Display for Totals {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let count = |total: &AtomicU64| total.load(Ordering::Relaxed);
        write!(f, "{} events, {} puts, ", count(&self.events), count(&self.puts))?;
        write!(f, "{} reads, {} commits, ", count(&self.reads), count(&self.commits))?;
        write!(f, "{} coordinator starts, the longest {} s", count(&self.starts), count(&self.longest_s))
    }
}

/// Returns the processor time of this process so far.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn range(text: &str) -> Result<Range<u64>, String> {
    let (from, to) = text.split_once("..").ok_or(format!("{text} is not a range such as 0..1000"))?;
    Ok(number(from)?..number(to)?)
}

fn number(text: &str) -> Result<u64, String> {
    text.replace('_', "").parse().map_err(|_| format!("{text} is not a number"))
}
