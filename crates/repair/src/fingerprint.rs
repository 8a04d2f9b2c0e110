//! Linear fingerprints: a parity equation checked without moving blocks.
//!
//! The fingerprint of a byte stream is a few bytes that depend on it linearly over GF(2^8). If blocks obey
//! `Σ c_i · block_i = 0`, then so do their fingerprints, whatever the coefficients chosen for the
//! fingerprint; so a repaired block can be held against the survivors by moving 64 bytes per block. The stream is cut in pages; page `j` is multiplied by a pseudo-random non-zero
//! element and summed, then the summed page is folded the same way, word by word. A difference confined
//! to one byte always shows; independent differences escape with probability 256^-64 per run of a fresh
//! seed.

use gf::Kernel;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use serde::{Deserialize, Serialize};

/// Bytes of a fingerprint.
pub const FINGERPRINT_BYTES: usize = 64;

const PAGE_BYTES: usize = 4096;

/// A fingerprint; those of one seed may be summed with coefficients.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fingerprint(pub Vec<u8>);

impl Fingerprint {
    /// The fingerprint of zeros.
    pub fn zero() -> Self {
        Self(vec![0; FINGERPRINT_BYTES])
    }

    /// `self += coefficient · other`.
    pub fn add(&mut self, coefficient: u8, other: &Self) {
        for (sum, &byte) in self.0.iter_mut().zip(&other.0) {
            *sum ^= gf::mul(coefficient, byte);
        }
    }
}

/// Computes a fingerprint from a stream that comes in order, in pieces of any size.
#[derive(Debug)]
pub struct Fingerprinter {
    coefficients: ChaCha8Rng,
    fold: Vec<u8>,
    sum: Vec<u8>,
    filled: usize,
    coefficient: u8,
}

impl Fingerprinter {
    /// A fingerprinter whose coefficients come from `seed`.
    pub fn new(seed: u64) -> Self {
        let mut coefficients = ChaCha8Rng::seed_from_u64(seed);
        let fold = (0..PAGE_BYTES / FINGERPRINT_BYTES).map(|_| nonzero(&mut coefficients)).collect();
        let coefficient = nonzero(&mut coefficients);
        Self { coefficients, fold, sum: vec![0; PAGE_BYTES], filled: 0, coefficient }
    }

    /// Takes the next bytes of the stream.
    pub fn update(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(PAGE_BYTES - self.filled));
            let sum = &mut self.sum[self.filled..self.filled + now.len()];
            Kernel::best().mul_add(self.coefficient, now, sum);
            self.filled += now.len();
            if self.filled == PAGE_BYTES {
                self.filled = 0;
                self.coefficient = nonzero(&mut self.coefficients);
            }
            bytes = later;
        }
    }

    /// The fingerprint of all that came.
    pub fn finish(self) -> Fingerprint {
        let mut fingerprint = vec![0; FINGERPRINT_BYTES];
        for (part, &coefficient) in self.sum.chunks(FINGERPRINT_BYTES).zip(&self.fold) {
            Kernel::best().mul_add(coefficient, part, &mut fingerprint);
        }
        Fingerprint(fingerprint)
    }
}

fn nonzero(coefficients: &mut ChaCha8Rng) -> u8 {
    1 + (coefficients.next_u32() % 255) as u8
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn fingerprint(seed: u64, pieces: &[&[u8]]) -> Fingerprint {
        let mut fingerprinter = Fingerprinter::new(seed);
        pieces.iter().for_each(|piece| fingerprinter.update(piece));
        fingerprinter.finish()
    }

    proptest! {
        #[test]
        fn is_linear_and_does_not_mind_the_cut(
            pairs in prop::collection::vec(any::<(u8, u8)>(), 1..20_000),
            c: u8, seed: u64, cut: prop::sample::Index,
        ) {
            let (a, b): (Vec<u8>, Vec<u8>) = pairs.into_iter().unzip();
            let sum: Vec<u8> = a.iter().zip(&b).map(|(&a, &b)| a ^ gf::mul(c, b)).collect();
            let mut expected = fingerprint(seed, &[&a]);
            expected.add(c, &fingerprint(seed, &[&b]));
            let (head, tail) = sum.split_at(cut.index(sum.len()));
            prop_assert_eq!(fingerprint(seed, &[head, tail]), expected);
        }

        #[test]
        fn one_wrong_byte_always_shows(
            bytes in prop::collection::vec(any::<u8>(), 1..20_000),
            at: prop::sample::Index, flip in 1u8.., seed: u64,
        ) {
            let mut wrong = bytes.clone();
            wrong[at.index(bytes.len())] ^= flip;
            prop_assert_ne!(fingerprint(seed, &[&bytes]), fingerprint(seed, &[&wrong]));
        }
    }
}
