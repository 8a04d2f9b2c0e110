//! The random number generator of a simulation. All random choices come from one seed.

use std::time::Duration;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// A seeded source of random choices.
#[derive(Debug)]
pub struct Dice {
    rng: ChaCha8Rng,
}

impl Dice {
    /// Creates a source. The same seed always leads to the same choices.
    pub fn new(seed: u64) -> Self {
        Self { rng: ChaCha8Rng::seed_from_u64(seed) }
    }

    /// Returns a number below `bound`, which must not be zero. The modulo bias does not matter here.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.rng.next_u64() % bound
    }

    /// Returns a number from `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// Returns true with probability 1 / `times`.
    pub fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// Returns one of `items`, which must not be empty.
    pub fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len() as u64) as usize]
    }

    /// Shuffles the items.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last as u64 + 1) as usize);
        }
    }

    /// Returns a duration from 0 to `limit`, in whole microseconds.
    pub fn up_to(&mut self, limit: Duration) -> Duration {
        Duration::from_micros(self.below(limit.as_micros() as u64 + 1))
    }

    /// Returns `count` random bytes.
    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.rng.fill_bytes(&mut bytes);
        bytes
    }
}
