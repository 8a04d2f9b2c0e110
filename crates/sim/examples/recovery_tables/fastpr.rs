//! The simulated Experiments 1, 2, 3 and 6 from the supplement of the FastPR paper, in the paper's own model
//! of time.

use sim::Dice;
use sim::fastpr::{Chunk, Model, RoundOrder, published_sets, schedule, sets};

use super::SEEDS;

pub const SAVINGS: &str =
    "FastPR by the paper's model: 100 nodes, 64 MB, 100 MB/s disks, 1 Gb/s (Experiments 1 and 2)";
pub const STRIPES: &str = "FastPR by the number of chunks, scattered (9,6) (Experiment 3)";
pub const SETS: &str = "FastPR's numbers of sets, (9,6), of which the largest has 16 chunks (Experiment 6)";

/// Number of nodes besides the failing one.
const OTHERS: usize = 99;

pub fn savings() {
    println!(
        "| case | chunks | sets | s/chunk | optimum | above it | less than copies only | less than rebuilds only |\n|--|--|--|--|--|--|--|--|"
    );
    for (standbys, n, k) in [(None, 9, 6), (None, 14, 10), (None, 16, 12), (Some(3), 9, 6), (Some(3), 16, 12)]
    {
        for count in [100, 400, 1000] {
            let name = standbys.map_or("scattered".into(), |standbys| format!("{standbys} standbys"));
            println!("| {name} ({n},{k}) | {count} | {} |", Drain::of(standbys, n, k, count).cells());
        }
    }
}

pub fn stripes() {
    println!(
        "| chunks | sets | s/chunk | optimum | above it | less than copies only | less than rebuilds only |\n|--|--|--|--|--|--|--|"
    );
    for count in [100, 200, 400, 600, 800, 1000] {
        println!("| {count} | {} |", Drain::of(None, 9, 6, count).cells());
    }
}

/// The results of simulated drains, as means over seeds.
struct Drain {
    model: Model,
    needs: usize,
    sets: f64,
    /// Seconds per chunk if copying and rebuilding run at the same time.
    both: f64,
    /// Seconds per chunk if all chunks are rebuilt.
    rebuilds: f64,
}

impl Drain {
    fn of(standbys: Option<usize>, n: usize, k: usize, count: usize) -> Self {
        let model = Model { nodes: OTHERS + 1, chunk_bytes: 64e6, disk: 100e6, link: 128e6, standbys };
        let seconds = |set: usize| model.reconstruction(set as f64, k);
        let (mut both, mut rebuilds, mut number) = (0.0, 0.0, 0);
        for seed in 1..=SEEDS {
            let sets = sets(&chunks(seed, count, n - 1, k), OTHERS, model.largest_set(k));
            number += sets.len();
            rebuilds += sets.iter().map(|set| seconds(set.len())).sum::<f64>();
            let rounds = schedule(sets, RoundOrder::Size, model.migration(), |set| seconds(set.len()));
            both += rounds.iter().map(|round| round.seconds).sum::<f64>();
        }
        let all = (SEEDS * count as u64) as f64;
        let sets = number as f64 / SEEDS as f64;
        Self { model, needs: k, sets, both: both / all, rebuilds: rebuilds / all }
    }

    fn cells(&self) -> String {
        let percent = |part: f64| format!("{:.1} %", part * 100.0);
        let optimum = self.model.optimum(self.needs);
        format!(
            "{:.1} | {:.3} | {optimum:.3} | {} | {} | {}",
            self.sets,
            self.both,
            percent(self.both / optimum - 1.0),
            percent(1.0 - self.both / self.model.migration()),
            percent(1.0 - self.both / self.rebuilds)
        )
    }
}

pub fn numbers_of_sets() {
    println!("| chunks | filled in turn | published | fewer | ours | fewer |\n|--|--|--|--|--|--|");
    for count in [100, 200, 300, 400] {
        let mean = |find: fn(&[Chunk]) -> usize| {
            (1..=SEEDS).map(|seed| find(&chunks(seed, count, 8, 6))).sum::<usize>() as f64 / SEEDS as f64
        };
        let (first, ours) = (mean(filled_in_turn), mean(|chunks| sets(chunks, OTHERS, OTHERS / 6).len()));
        let fewer = |number: f64| format!("{number:.1} | {:.1} %", (1.0 - number / first) * 100.0);
        let published = match count {
            ..=200 => fewer(mean(|chunks| published_sets(chunks, OTHERS, OTHERS / 6).len())),
            _ => "not run | ".to_owned(),
        };
        println!("| {count} | {first:.1} | {published} | {} |", fewer(ours));
    }
}

/// Returns the number of reconstruction sets that are found without the paper's exchanges: each set gets, in
/// order, all remaining chunks that fit.
fn filled_in_turn(chunks: &[Chunk]) -> usize {
    let mut rest = chunks.to_vec();
    let mut number = 0;
    while !rest.is_empty() {
        let mut set: Vec<Chunk> = Vec::new();
        rest.retain(|chunk| {
            set.push(chunk.clone());
            let fits = set.len() <= OTHERS / 6 && sets(&set, OTHERS, OTHERS / 6).len() == 1;
            if !fits {
                set.pop();
            }
            !fits
        });
        number += 1;
    }
    number
}

fn chunks(seed: u64, count: usize, others: usize, needs: usize) -> Vec<Chunk> {
    let mut dice = Dice::new(seed);
    let mut nodes: Vec<usize> = (0..OTHERS).collect();
    let mut chunk = || {
        dice.shuffle(&mut nodes);
        Chunk { needs, nodes: nodes[..others].to_vec() }
    };
    (0..count).map(|_| chunk()).collect()
}
