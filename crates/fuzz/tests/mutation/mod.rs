//! Mutated inputs: seeds in which bytes, numbers and tokens are changed, cut, repeated or spliced in.

mod json;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// The maximum size of an input.
const MAX_BYTES: usize = 16 << 10;

/// Tokens that are significant to decoders.
const TOKENS: [&[u8]; 24] = [
    b"null",
    b"true",
    b"[]",
    b"{}",
    b"\"\"",
    b"-1",
    b"0",
    b"1",
    b"255",
    b"256",
    b"65535",
    b"65536",
    b"4294967295",
    b"4294967296",
    b"18446744073709551615",
    b"18446744073709551616",
    b"9223372036854775808",
    b"1e300",
    b"0.5",
    b".",
    b"-",
    b"+",
    b"\n",
    "\u{202e}é".as_bytes(),
];

/// A source of mutations that depends only on its seed.
pub struct Mutator {
    dice: ChaCha8Rng,
}

impl Mutator {
    pub fn new(seed: &str) -> Self {
        let mut key = [0; 32];
        seed.bytes().zip(&mut key).for_each(|(byte, key)| *key = byte);
        Self { dice: ChaCha8Rng::from_seed(key) }
    }

    /// Returns a seed with one to six changes.
    pub fn mutated(&mut self, corpus: &[Vec<u8>]) -> Vec<u8> {
        let mut input = self.pick(corpus).clone();
        // Mutate JSON structurally; most byte-level changes would be rejected early.
        if self.below(4) > 0
            && let Ok(mut document) = serde_json::from_slice(&input)
        {
            for _ in 0..=self.below(3) {
                json::change(&mut document, &mut self.dice);
            }
            return serde_json::to_vec(&document).expect("documents have string keys");
        }
        for _ in 0..=self.below(6) {
            self.change(&mut input, corpus);
            input.truncate(MAX_BYTES);
        }
        input
    }

    fn change(&mut self, input: &mut Vec<u8>, corpus: &[Vec<u8>]) {
        let at = self.below(input.len() + 1);
        match self.below(9) {
            0 => input.truncate(at),
            1 => input.insert(at, self.below(256) as u8),
            2 => {
                let token = *self.pick(&TOKENS);
                input.splice(at..at, token.iter().copied());
            }
            3 => {
                let other = self.pick(corpus).clone();
                let part = self.part(other.len());
                input.splice(at..at, other[part].iter().copied());
            }
            4 => {
                let part = self.part(input.len());
                input.drain(part);
            }
            5 => {
                let part = self.part(input.len());
                let repeated = input[part].to_vec();
                input.splice(at..at, repeated);
            }
            6 | 7 => self.change_number(input, at),
            _ => {
                if let Some(byte) = input.get_mut(at) {
                    *byte ^= 1 << self.below(8);
                }
            }
        }
    }

    /// Replaces the first decimal number from `at` on by a token. If there is no number, replaces the byte at
    /// `at`.
    fn change_number(&mut self, input: &mut Vec<u8>, at: usize) {
        let digit = |byte: &u8| byte.is_ascii_digit();
        let Some(start) = input[at..].iter().position(digit).map(|start| at + start) else {
            if let Some(byte) = input.get_mut(at) {
                *byte = self.below(256) as u8;
            }
            return;
        };
        let length = input[start..].iter().take_while(|byte| digit(byte)).count();
        let token = *self.pick(&TOKENS);
        input.splice(start..start + length, token.iter().copied());
    }

    /// Returns a random range within `0..length`, mostly a short one.
    fn part(&mut self, length: usize) -> std::ops::Range<usize> {
        let start = self.below(length + 1);
        let most = if self.below(4) == 0 { length } else { 16 };
        start..(start + self.below(most + 1)).min(length)
    }

    fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }

    fn below(&mut self, bound: usize) -> usize {
        below(&mut self.dice, bound)
    }
}

fn below(dice: &mut ChaCha8Rng, bound: usize) -> usize {
    (dice.next_u64() % bound as u64) as usize
}
