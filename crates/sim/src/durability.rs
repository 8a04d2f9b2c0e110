//! Mean time to data loss, from a Markov chain of one stripe. The repair times come from simulated
//! recoveries.
//!
//! A state is the number of lost blocks of the stripe. Each node with a remaining block fails at a constant
//! rate. A failure leads to the next state, or to data loss if the remaining blocks cannot be decoded. A
//! repair rebuilds all lost blocks and leads back to the first state, also at a constant rate: the inverse of
//! the mean duration of a repair. `docs/explanation/predictions.md` has the formulas.
//!
//! **Assumptions**: nodes fail independently of each other, and stripes lose data independently of each
//! other. The second assumption makes the computed time of a cluster too short, never too long. Deliberately
//! absent: bad sectors, silent corruption, failures of racks, human errors.

use codes::{BlockIndex, Code, CodeSpec};
use repair::Rates;

use crate::dice::Dice;
use crate::recovery::{Cluster, Shape};

const YEAR_SECONDS: f64 = 365.25 * 86400.0;
/// Number of random sets of lost blocks to try for each size of set. If a size has at most this many sets,
/// all are tried.
const SETS_TRIED: u64 = 5_000;
/// Maximum number of blocks in a simulated recovery. The duration of larger recoveries is extrapolated.
const MOST_PLAYED: f64 = 2_000.0;

/// The cluster and its failure rate.
#[derive(Clone, Debug)]
pub struct Durability {
    /// The code of all stripes.
    pub code: CodeSpec,
    /// The shape of the plans that rebuild lost blocks.
    pub shape: Shape,
    /// Number of nodes.
    pub nodes: u32,
    /// Number of stripes.
    pub stripes: u64,
    /// Block size in bytes.
    pub block_bytes: u64,
    /// Rates of each node's links and disk, as far as repairs may use them.
    pub rates: Rates,
    /// Fraction of all nodes that fail for good in a year.
    pub failing_in_a_year: f64,
    /// Seconds from a loss to the start of its repair.
    pub notice_seconds: f64,
}

/// Expected times to data loss.
#[derive(Clone, Debug, PartialEq)]
pub struct Lifetime {
    /// Mean number of years until one particular stripe loses data.
    pub stripe_years: f64,
    /// Mean number of years until any stripe loses data; a lower bound.
    pub cluster_years: f64,
    /// The states with one lost block, two lost blocks, and so on, in this order.
    pub states: Vec<Degraded>,
}

/// The state of a stripe with a certain number of lost blocks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Degraded {
    /// Number of lost blocks.
    pub lost: usize,
    /// Probability that the loss of one more block makes data unreadable.
    pub fatal: f64,
    /// Mean number of seconds until the lost blocks are rebuilt.
    pub repair_seconds: f64,
}

impl Durability {
    /// Simulates the recoveries and solves the Markov chain.
    ///
    /// # Panics
    /// If the code exceeds its limits, or the nodes do not outnumber the blocks of a stripe.
    pub fn lifetime(&self) -> Lifetime {
        let code = self.code.build().expect("a possible code");
        let fatal = fatal(&*code);
        let degraded = |(lost, &fatal): (usize, &f64)| Degraded {
            lost,
            fatal,
            repair_seconds: self.notice_seconds + self.rebuild_seconds(code.blocks(), lost),
        };
        let states: Vec<Degraded> = fatal.iter().enumerate().skip(1).map(degraded).collect();
        let failures = -(-self.failing_in_a_year).ln_1p() / YEAR_SECONDS;
        let seconds = mean_seconds_to_loss(code.blocks(), failures, fatal[0], &states);
        let stripe_years = seconds / YEAR_SECONDS;
        Lifetime { stripe_years, cluster_years: stripe_years / self.stripes as f64, states }
    }

    /// Returns the mean number of seconds from the start of a repair until a block is rebuilt, over all
    /// stripes that have lost `lost` blocks in the failure of `lost` nodes. These stripes are repaired before
    /// all others. The simulation treats each lost block as if it belonged to a stripe of its own.
    fn rebuild_seconds(&self, blocks: usize, lost: usize) -> f64 {
        let on_lost =
            |nodes: f64, gone: usize| nodes * (blocks - gone) as f64 / f64::from(self.nodes - gone as u32);
        let stripes = (0..lost).fold(self.stripes as f64, on_lost);
        let to_rebuild = (stripes * lost as f64).round().max(1.0);
        let played = to_rebuild.min(MOST_PLAYED) as u32;
        let cluster = Cluster {
            block_bytes: self.block_bytes,
            rates: self.rates,
            shape: self.shape,
            ..Cluster::losing(self.code.clone(), self.nodes, played)
        };
        let finish = cluster.run();
        assert!(finish.violations.is_empty(), "{:?}", finish.violations);
        // Extrapolate in proportion to the number of blocks.
        finish.mean_seconds * to_rebuild / f64::from(played)
    }
}

/// Returns the mean number of seconds until a stripe loses data. The stripe has `blocks` blocks, on nodes
/// that fail `failures` times per second each.
///
/// `fatal_at_first` is the probability that the first lost block of an intact stripe makes data unreadable.
/// `states` are the states with one lost block, two lost blocks, and so on. In the last state, every further
/// loss must be fatal.
pub fn mean_seconds_to_loss(blocks: usize, failures: f64, fatal_at_first: f64, states: &[Degraded]) -> f64 {
    // For the state with i lost blocks, `seconds` is the mean time until the stripe is whole or data is lost,
    // and `chance` the probability that data is lost. `chance` is summed up directly, because 1 minus the
    // probability of survival would lose all precision.
    let (mut seconds, mut chance) = (0.0, 1.0);
    for state in states.iter().rev() {
        let next = (blocks - state.lost) as f64 * failures;
        let leaving = next + 1.0 / state.repair_seconds;
        let survives = (1.0 - state.fatal) * next / leaving;
        seconds = 1.0 / leaving + survives * seconds;
        chance = state.fatal * next / leaving + survives * chance;
    }
    let round = 1.0 / (blocks as f64 * failures) + (1.0 - fatal_at_first) * seconds;
    round / (fatal_at_first + (1.0 - fatal_at_first) * chance)
}

/// Returns, for each number of lost blocks from 0 on, the probability that the loss of one more block makes
/// data unreadable. The last probability is 1.
fn fatal(code: &dyn Code) -> Vec<f64> {
    let (mut all, mut readable) = (Vec::new(), 1.0);
    for lost in 1..=code.blocks() - code.data_blocks() {
        let next = readable_part(code, lost);
        all.push(1.0 - next / readable);
        if next == 0.0 {
            return all;
        }
        readable = next;
    }
    all.push(1.0);
    all
}

/// Returns the fraction of the sets of `lost` blocks whose loss leaves all data readable.
fn readable_part(code: &dyn Code, lost: usize) -> f64 {
    let blocks: Vec<BlockIndex> = (0..code.blocks() as u16).map(BlockIndex).collect();
    let is_readable = |lost: &[BlockIndex]| {
        let rest: Vec<_> = blocks.iter().copied().filter(|block| !lost.contains(block)).collect();
        code.repair(lost, &rest).is_ok()
    };
    let ways = (0..lost as u64).try_fold(1, |ways: u64, at| {
        Some(ways * (blocks.len() as u64 - at) / (at + 1)).filter(|&ways| ways <= SETS_TRIED)
    });
    let sets: Vec<Vec<BlockIndex>> = match ways {
        Some(_) => subsets(&blocks, lost),
        None => drawn(&blocks, lost),
    };
    sets.iter().filter(|set| is_readable(set)).count() as f64 / sets.len() as f64
}

fn subsets(blocks: &[BlockIndex], size: usize) -> Vec<Vec<BlockIndex>> {
    match (size, blocks) {
        (0, _) => vec![Vec::new()],
        (_, []) => Vec::new(),
        (_, [first, rest @ ..]) => {
            let mut with = subsets(rest, size - 1);
            with.iter_mut().for_each(|set| set.insert(0, *first));
            with.extend(subsets(rest, size));
            with
        }
    }
}

fn drawn(blocks: &[BlockIndex], size: usize) -> Vec<Vec<BlockIndex>> {
    let (mut dice, mut blocks) = (Dice::new(size as u64), blocks.to_vec());
    let mut draw = |_| {
        dice.shuffle(&mut blocks);
        blocks[..size].to_vec()
    };
    (0..SETS_TRIED).map(&mut draw).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn degraded(lost: usize, fatal: f64, repair_seconds: f64) -> Degraded {
        Degraded { lost, fatal, repair_seconds }
    }

    #[test]
    fn mirrors_match_the_textbook_formula() {
        // Two copies fail at rate λ each and are repaired at rate μ. The mean time to data loss is (3λ + μ) /
        // 2λ²; without repairs, it is 3 / 2λ.
        let (failures, repairs): (f64, f64) = (1e-9, 1e-3);
        let found = mean_seconds_to_loss(2, failures, 0.0, &[degraded(1, 1.0, 1.0 / repairs)]);
        let known = (3.0 * failures + repairs) / (2.0 * failures * failures);
        assert!((found / known - 1.0).abs() < 1e-12, "{found} {known}");
        let alone = mean_seconds_to_loss(2, failures, 0.0, &[degraded(1, 1.0, f64::INFINITY)]);
        assert!((alone * failures - 1.5).abs() < 1e-12, "{alone}");
    }

    /// Simulates the chain many times and averages the times to data loss.
    fn played(blocks: usize, failures: f64, states: &[Degraded]) -> f64 {
        const LIVES: u32 = 20_000;
        let mut dice = Dice::new(3);
        let mut uniform = move || (dice.below(1 << 52) as f64 + 0.5) / (1u64 << 52) as f64;
        let mut seconds = 0.0;
        for _ in 0..LIVES {
            let mut lost = 0;
            loop {
                let next = -uniform().ln() / ((blocks - lost) as f64 * failures);
                let repair = lost.checked_sub(1).map(|at| -uniform().ln() * states[at].repair_seconds);
                let fatal = lost.checked_sub(1).is_some_and(|at| uniform() < states[at].fatal);
                seconds += repair.unwrap_or(next).min(next);
                match repair {
                    Some(repair) if repair < next => lost = 0,
                    _ if fatal => break,
                    _ => lost += 1,
                }
            }
        }
        seconds / f64::from(LIVES)
    }

    #[test]
    fn solved_and_simulated_chains_agree() {
        let states = [degraded(1, 0.0, 0.5), degraded(2, 0.2, 0.3), degraded(3, 1.0, 0.2)];
        let (solved, played) = (mean_seconds_to_loss(6, 0.4, 0.0, &states), played(6, 0.4, &states));
        assert!((solved / played - 1.0).abs() < 0.03, "{solved} {played}");
    }

    #[test]
    fn fatal_losses_of_a_code_are_found() {
        let fatal = |name: &str| fatal(&*name.parse::<CodeSpec>().unwrap().build().unwrap());
        assert_eq!(fatal("rs-9-6"), [0.0, 0.0, 0.0, 1.0]);
        // Data survives the loss of any three of the ten blocks, and of some sets of four.
        let lrc = fatal("lrc-6-2-2");
        assert_eq!((lrc.len(), lrc[0], lrc[1], lrc[4]), (5, 0.0, 0.0, 1.0));
        assert!(lrc[3] > 0.0 && lrc[3] < 1.0, "{lrc:?}");
    }

    fn durability(code: &str, link: f64) -> Lifetime {
        let (code, shape) = (code.parse().unwrap(), Shape::Dealt);
        let rates = Rates { up: link, down: link, read: 2e9, write: 2e9 };
        let (nodes, stripes, block_bytes) = (30, 1000, 64 << 20);
        let (failing_in_a_year, notice_seconds) = (0.05, 60.0);
        Durability { code, shape, nodes, stripes, block_bytes, rates, failing_in_a_year, notice_seconds }
            .lifetime()
    }

    #[test]
    fn more_parity_and_faster_repairs_last_longer() {
        let base = durability("rs-9-6", 125e6);
        assert_eq!(base.states.iter().map(|state| state.lost).collect::<Vec<_>>(), [1, 2, 3]);
        assert!((base.stripe_years / base.cluster_years - 1000.0).abs() < 1e-6);
        assert!(
            base.states.windows(2).all(|pair| pair[0].repair_seconds > pair[1].repair_seconds),
            "{base:?}"
        );
        assert!(durability("rs-8-6", 125e6).cluster_years < base.cluster_years / 1e3);
        let slow = durability("rs-9-6", 12.5e6);
        assert!(slow.cluster_years < base.cluster_years, "{slow:?}");
    }
}
