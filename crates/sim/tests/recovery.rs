//! Recoveries of whole nodes by the real coordinator. `MEND_SIM_RUNS` sets the number of runs,
//! `MEND_SIM_BASE` the first seed.

use sim::Tracing;
use sim::system::{Script, Summary, Violation, play};

const BASE: u64 = 1;
const RUNS: u64 = 200;
/// Maximum number of violations to print.
const SHOWN: usize = 6;

#[test]
fn a_node_is_recovered() {
    let ended = play(&Script::one_node(40), Tracing::Off).unwrap_or_else(|violation| panic!("{violation}"));
    assert!(
        ended.commits >= 40 * 6 + 10,
        "40 stripes of six blocks, and those of a twelfth of the nodes: {ended:?}"
    );
    assert!(ended.at_once > 1, "nodes that are free are used: {ended:?}");
}

#[test]
fn the_same_seed_does_the_same() {
    for seed in 1..20 {
        let script = Script::recovery(seed);
        assert_eq!(play(&script, Tracing::Off), play(&script, Tracing::Off), "seed {seed}");
    }
}

#[test]
fn hundreds_of_clusters() {
    let (base, runs) = (setting("MEND_SIM_BASE", BASE), setting("MEND_SIM_RUNS", RUNS));
    std::panic::set_hook(Box::new(|_| {})); // Panics are printed as violations with their seeds.
    let results: Vec<Result<Summary, Violation>> =
        (base..base + runs).map(|seed| play(&Script::recovery(seed), Tracing::Off)).collect();
    let _ = std::panic::take_hook();
    let bad: Vec<_> = results.iter().filter_map(|result| result.as_ref().err()).collect();
    for violation in bad.iter().take(SHOWN) {
        let (seed, what) = (violation.script.seed, violation.what.join("; "));
        println!("seed {seed}: {what}");
        println!("replay with: MEND_SIM_SEED={seed} cargo test -p sim --test recovery replay -- --nocapture");
    }
    assert!(bad.is_empty(), "{} of {runs} runs went wrong; see above", bad.len());
    let good: Vec<Summary> = results.into_iter().flatten().collect();
    let at_once = good.iter().map(|one| one.at_once).max().unwrap_or_default();
    println!("{} commits, {at_once} jobs at once", good.iter().map(|one| one.commits).sum::<u64>());
}

/// Replays the run of a seed: `MEND_SIM_SEED=… cargo test -p sim --test recovery replay -- --nocapture`
#[test]
fn replay() {
    let Ok(seed) = std::env::var("MEND_SIM_SEED") else { return };
    let script = Script::recovery(seed.parse().expect("a seed is a number"));
    println!("{script:#?}");
    if let Err(violation) = play(&script, Tracing::Print) {
        panic!("{violation}");
    }
}

fn setting(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |text| text.parse().expect("a number"))
}
