//! Replays one run and prints all events.

use sim::{Scenario, Tracing, World};

/// Replays the run of a seed: `MEND_SIM_SEED=… cargo test -p sim replay -- --nocapture`
#[test]
fn replay() {
    let Ok(seed) = std::env::var("MEND_SIM_SEED") else { return };
    let scenario = Scenario::random(seed.parse().expect("a seed is a number"));
    println!("{scenario:#?}");
    match scenario.plan() {
        Ok(plan) => println!("{plan}"),
        Err(error) => println!("no plan: {error}"),
    }
    let ended = World::new(&scenario, Tracing::Print).run();
    println!("{:?} after {:?}", ended.result, ended.after);
    assert!(ended.violations.is_empty(), "{:#?}", ended.violations);
}

#[test]
fn the_same_seed_makes_the_same_trace() {
    for seed in 0..40 {
        let scenario = Scenario::random(seed);
        let trace = || World::new(&scenario, Tracing::Keep).run().trace;
        assert_eq!(trace(), trace(), "seed {seed}");
    }
}
