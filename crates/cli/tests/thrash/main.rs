//! The thrash test: a cluster of real processes under random use and random faults, and a model that knows
//! the possible contents of every file. `docs/reference/thrash.md` describes the test, and how to repeat a
//! run.

mod catalog_probes;
mod clients;
mod cluster;
mod content;
mod disk;
mod faults;
#[path = "../forging/mod.rs"]
mod forging;
mod healing;
mod helpers;
mod janitor;
mod judge;
#[path = "../limits/mod.rs"]
mod limits;
mod lost_catalogs;
mod model;
mod network;
mod operations;
mod parity;
mod pauses;
#[path = "../ports/mod.rs"]
mod ports;
mod report;
mod rounds;
mod switches;
mod truth;

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use report::say;
use rounds::Thrash;

/// The default duration of a run.
const DEFAULT_SECONDS: u64 = 30;

#[test]
fn reads_are_correct_and_daemons_survive() {
    let seed = number("MEND_THRASH_SEED").unwrap_or_else(random_seed);
    let seconds = number("MEND_THRASH_SECONDS").unwrap_or(DEFAULT_SECONDS);
    say(&format!("thrash: {seconds} s with MEND_THRASH_SEED={seed}"));
    let until = Instant::now() + Duration::from_secs(seconds);
    let mut thrash = Thrash::start(seed);
    while Instant::now() < until {
        thrash.round();
    }
    thrash.finish();
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok().filter(|text| !text.is_empty())?;
    Some(text.parse().unwrap_or_else(|error| panic!("{variable}={text}: {error}")))
}

fn random_seed() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is after 1970");
    u64::from(now.subsec_nanos()) ^ u64::from(std::process::id()) << 32
}
