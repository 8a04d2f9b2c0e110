//! Thousands of random runs. `MEND_SIM_RUNS` sets the number of runs, `MEND_SIM_BASE` the first seed.

use std::time::Instant;

use sim::{Summary, Violation, check};

/// The first seed.
const BASE: u64 = 20_000;
/// Number of runs, which take well under a minute on two cores.
const RUNS: u64 = 3_000;
/// Maximum number of violations to print.
const SHOWN: usize = 12;

#[test]
fn thousands() {
    let (base, runs) = (setting("MEND_SIM_BASE", BASE), setting("MEND_SIM_RUNS", RUNS));
    let threads = std::thread::available_parallelism().map_or(1, |threads| threads.get() as u64);
    let begun = Instant::now();
    std::panic::set_hook(Box::new(|_| {})); // Panics are listed below with their seeds.
    let workers: Vec<_> = (0..threads)
        .map(|first| {
            std::thread::spawn(move || {
                (base + first..base + runs).step_by(threads as usize).map(check).collect::<Vec<_>>()
            })
        })
        .collect();
    let results = workers.into_iter().flat_map(|worker| worker.join().expect("it catches panics"));
    let (good, bad): (Vec<_>, Vec<_>) = results.partition(Result::is_ok);
    let _ = std::panic::take_hook();
    report(&good.into_iter().flatten().collect::<Vec<_>>(), begun);
    let bad: Vec<Violation> = bad.into_iter().filter_map(Result::err).collect();
    bad.iter().take(SHOWN).for_each(|violation| println!("{violation}"));
    assert!(bad.is_empty(), "{} of {runs} runs went wrong; see above", bad.len());
}

fn report(summaries: &[Summary], begun: Instant) {
    let succeeded = summaries.iter().filter(|summary| summary.succeeded).count();
    let replanned = summaries.iter().filter(|summary| summary.replanned > 0).count();
    let longest = summaries.iter().map(|summary| summary.after).max().unwrap_or_default();
    let events: u64 = summaries.iter().map(|summary| summary.events).sum();
    let rate = summaries.len() as f64 / begun.elapsed().as_secs_f64();
    println!(
        "{} good runs, {rate:.0} a second: {succeeded} succeeded ({replanned} after planning anew), \
         {events} events, the longest {longest:?} of virtual time",
        summaries.len()
    );
}

fn setting(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |text| text.parse().expect("a number"))
}
