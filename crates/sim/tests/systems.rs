//! Whole systems: the real coordinator, catalog, jobs and parts on virtual time. `MEND_SIM_RUNS` sets the
//! number of runs, `MEND_SIM_BASE` the first seed, and `MEND_SIM_SEED` replays one run.

use std::time::Instant;

use sim::Tracing;
use sim::system::{Script, Summary, Violation, Weather, play, shrink};

/// The first seed.
const BASE: u64 = 40_000;
/// Number of runs, which take about a minute on two cores.
const RUNS: u64 = 2_000;

/// Replays the run of a seed: `MEND_SIM_SEED=… cargo test -p sim --test systems replay -- --nocapture`
#[test]
fn replay() {
    let Ok(seed) = std::env::var("MEND_SIM_SEED") else { return };
    let script = Script::random(seed.parse().expect("a seed is a number"));
    println!("{script:#?}");
    if let Err(violation) = play(&script, Tracing::Print) {
        let shortest = shrink(violation.clone());
        println!(
            "{violation}\n\nthe shortest script that fails: {:#?}\n{:?}\n\nits events:",
            shortest.script, shortest.what
        );
        let _ = play(&shortest.script, Tracing::Print);
        panic!("{violation}");
    }
}

#[test]
fn the_same_seed_makes_the_same_trace() {
    for seed in 0..8 {
        let script = Script::random(seed);
        let trace = || play(&script, Tracing::Keep).map(|summary| summary.trace);
        assert_eq!(trace(), trace(), "seed {seed}");
    }
}

#[test]
fn systems_without_faults_keep_their_invariants() {
    judge((0..50).map(|seed| Script::in_weather(seed, Weather::Calm)).collect());
}

#[test]
fn random_systems_keep_their_invariants() {
    let (base, runs) = (setting("MEND_SIM_BASE", BASE), setting("MEND_SIM_RUNS", RUNS));
    judge((base..base + runs).map(Script::random).collect());
}

/// Simulates all scripts and prints those that fail.
fn judge(scripts: Vec<Script>) {
    let begun = Instant::now();
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    std::panic::set_hook(Box::new(|_| {})); // Panics are listed below with their seeds.
    let results: Vec<Result<Summary, Violation>> = std::thread::scope(|scope| {
        let worker = |first: usize| {
            let scripts = &scripts;
            scope.spawn(move || {
                scripts
                    .iter()
                    .skip(first)
                    .step_by(threads)
                    .map(|script| play(script, Tracing::Off))
                    .collect::<Vec<_>>()
            })
        };
        let workers: Vec<_> = (0..threads).map(worker).collect();
        workers.into_iter().flat_map(|worker| worker.join().expect("it catches panics")).collect()
    });
    let _ = std::panic::take_hook();
    let (good, bad): (Vec<_>, Vec<_>) = results.into_iter().partition(Result::is_ok);
    let good: Vec<Summary> = good.into_iter().flatten().collect();
    let sum = |of: fn(&Summary) -> u64| good.iter().map(of).sum::<u64>();
    let (events, puts, reads) = (sum(|one| one.events), sum(|one| one.puts), sum(|one| one.reads));
    let (commits, starts) = (sum(|one| one.commits), sum(|one| one.starts.into()));
    let longest = good.iter().map(|one| one.after).max().unwrap_or_default();
    let rate = scripts.len() as f64 / begun.elapsed().as_secs_f64();
    println!(
        "{} good runs, {rate:.1} a second: {events} events, {puts} puts, {reads} reads, {commits} commits, {starts} starts, \
         the longest {longest:?}",
        good.len()
    );
    let bad: Vec<Violation> = bad.into_iter().filter_map(Result::err).collect();
    bad.iter().take(12).for_each(|violation| println!("{violation}"));
    assert!(bad.is_empty(), "{} of {} runs went wrong; see above", bad.len(), scripts.len());
}

fn setting(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |text| text.parse().expect("a number"))
}
