//! Whole nodes recovered by the scheduler that the coordinator drives. `MEND_SIM_RUNS` and `MEND_SIM_BASE` ask for more.

use sim::recovery::{Scenario, World, check};

const BASE: u64 = 1;
const RUNS: u64 = 400;
/// No more violations are shown.
const SHOWN: usize = 6;

#[test]
fn a_node_is_recovered() {
    let ended = World::new(&Scenario::one_node(40)).run();
    assert_eq!(ended.violations, [""; 0]);
    assert!(ended.repaired >= 10 && ended.unreadable == 0, "{ended:?}");
    assert!(ended.at_once > 1, "nodes that are free are used");
}

#[test]
fn the_same_seed_does_the_same() {
    for seed in 1..20 {
        let scenario = Scenario::random(seed);
        assert_eq!(World::new(&scenario).run(), World::new(&scenario).run(), "seed {seed}");
    }
}

#[test]
fn hundreds_of_clusters() {
    let (base, runs) = (setting("MEND_SIM_BASE", BASE), setting("MEND_SIM_RUNS", RUNS));
    std::panic::set_hook(Box::new(|_| {})); // What panics is listed below, with its seed.
    let results: Vec<_> = (base..base + runs).map(check).collect();
    let _ = std::panic::take_hook();
    let bad: Vec<_> = results.iter().filter_map(|result| result.as_ref().err()).collect();
    for violation in bad.iter().take(SHOWN) {
        println!("seed {}: {}", violation.seed, violation.what.join("; "));
        println!(
            "replay with: MEND_SIM_SEED={} cargo test -p sim --test recovery replay -- --nocapture",
            violation.seed
        );
    }
    assert!(bad.is_empty(), "{} of {runs} runs went wrong; see above", bad.len());
    let good: Vec<_> = results.into_iter().flatten().collect();
    let sum = |of: fn(&sim::recovery::Ended) -> usize| good.iter().map(of).sum::<usize>();
    println!(
        "{} stripes repaired by {} jobs, {} could not be read",
        sum(|ended| ended.repaired),
        sum(|ended| ended.jobs as usize),
        sum(|ended| ended.unreadable)
    );
}

/// `MEND_SIM_SEED=… cargo test -p sim --test recovery replay -- --nocapture`
#[test]
fn replay() {
    let Ok(seed) = std::env::var("MEND_SIM_SEED") else { return };
    let scenario = Scenario::random(seed.parse().expect("a seed is a number"));
    println!("{scenario:#?}");
    let ended = World::new(&scenario).run();
    ended.log.iter().for_each(|line| println!("{line}"));
    assert!(ended.violations.is_empty(), "{:#?}", ended.violations);
}

fn setting(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |text| text.parse().expect("a number"))
}
