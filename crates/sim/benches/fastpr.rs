//! Compares two algorithms for FastPR's reconstruction sets, the paper's and ours: the number of sets, and
//! the running time.
//!
//! `cargo bench -p sim --bench fastpr` prints a line for each code and number of chunks among 100 nodes,
//! averaged over seeds. The paper's algorithm runs only up to `FASTPR_PUBLISHED` chunks (100 by default),
//! because it takes minutes for more.

// A benchmark measures time, which the crate's lints forbid elsewhere.
#![allow(clippy::disallowed_methods)]

use std::time::Instant;

use sim::fastpr::{Chunk, published_sets, sets};

const NODES: usize = 99;
const SEEDS: u64 = 5;

fn main() {
    let most: usize = std::env::var("FASTPR_PUBLISHED").map_or(100, |text| text.parse().expect("a number"));
    for (n, k) in [(9, 6), (14, 10), (16, 12)] {
        for count in [50, 100, 200, 1000] {
            let (mut ours, mut theirs, mut longest, mut slow) = (0, 0, 0.0f64, 0.0f64);
            for seed in 1..=SEEDS {
                let chunks = chunks(seed, count, n - 1, k);
                let begun = Instant::now();
                ours += sets(&chunks, NODES, NODES / k).len();
                longest = longest.max(begun.elapsed().as_secs_f64());
                if count <= most {
                    let begun = Instant::now();
                    theirs += published_sets(&chunks, NODES, NODES / k).len();
                    slow = slow.max(begun.elapsed().as_secs_f64());
                }
            }
            let least = count.div_ceil(NODES / k);
            print!(
                "rs-{n}-{k}, {count:>4} chunks: {:>6.1} sets in {longest:.3} s",
                ours as f64 / SEEDS as f64
            );
            print!(" (no fewer than {least} are possible)");
            match count <= most {
                true => println!("; published: {:.1} in {slow:.3} s", theirs as f64 / SEEDS as f64),
                false => println!(),
            }
        }
    }
}

/// Generates `count` chunks. Each can be rebuilt with any `needs` of `others` random nodes.
fn chunks(seed: u64, count: usize, others: usize, needs: usize) -> Vec<Chunk> {
    let mut state = seed;
    let mut random = move |below: usize| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as usize % below
    };
    let mut chunk = || {
        let mut nodes = Vec::with_capacity(others);
        while nodes.len() < others {
            let node = random(NODES);
            if !nodes.contains(&node) {
                nodes.push(node);
            }
        }
        Chunk { needs, nodes }
    };
    (0..count).map(|_| chunk()).collect()
}
