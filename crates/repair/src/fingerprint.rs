//! Linear fingerprints: a parity equation checked without moving blocks.
//!
//! The fingerprint of a byte stream is a few bytes that depend on it linearly over GF(2^8). If blocks obey `Σ
//! c_i · block_i = 0`, so do their fingerprints, whatever coefficients the fingerprint uses. So a repaired
//! block can be compared with the survivors by moving 64 bytes per sub-block.
//!
//! The stream is cut into segments of 512 bytes. Each segment is multiplied by its own pseudo-random non-zero
//! element, and the products are added up to one page of 4 KiB, segment by segment in turn. Each byte of this page is
//! multiplied by an element of its own, and every 64th product is added up to one byte of the fingerprint.
//!
//! A difference in a single byte always shows. Random differences in the whole stream go unnoticed with a probability
//! of 256^-64. A difference that is the same everywhere, such as zeros instead of a constant, has to cancel in all
//! eight kinds of segments, which has a probability of about 256^-8. In the worst case, two wrong bytes that are a
//! multiple of 64 bytes apart, the probability is 1/255. Each check uses coefficients of its own, so a later check very
//! probably finds what one has missed.

use std::collections::BTreeMap;
use std::ops::Range;

use gf::Kernel;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use serde::{Deserialize, Serialize};

use crate::Chunking;
use crate::transfer::joined;

/// Bytes of a fingerprint.
pub const FINGERPRINT_BYTES: usize = 64;

const PAGE_BYTES: usize = 4096;

/// Bytes that are multiplied by one element.
const SEGMENT_BYTES: usize = 512;

/// Bytes per read when a whole block is fingerprinted.
const READ_THROUGH_BYTES: usize = 1 << 20;

/// A fingerprint; fingerprints of one seed may be combined linearly.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fingerprint(pub Vec<u8>);

impl Fingerprint {
    /// The fingerprint of zeros.
    pub fn zero() -> Self {
        Self(vec![0; FINGERPRINT_BYTES])
    }

    /// Whether it has the right length. One that a node has sent may have any length.
    pub fn is_whole(&self) -> bool {
        self.0.len() == FINGERPRINT_BYTES
    }

    /// `self += coefficient · other`.
    pub fn add(&mut self, coefficient: u8, other: &Self) {
        for (sum, &byte) in self.0.iter_mut().zip(&other.0) {
            *sum ^= gf::mul(coefficient, byte);
        }
    }
}

/// Computes the fingerprint of a stream whose bytes arrive in order, in pieces of any size.
#[derive(Debug)]
pub struct Fingerprinter {
    coefficients: ChaCha8Rng,
    /// The coefficient of the current segment.
    coefficient: u8,
    /// The sum of all pages so far.
    page: Vec<u8>,
    /// The position in the page of the next byte.
    at: usize,
    /// The generator of the coefficients of the page's bytes.
    of_page: ChaCha8Rng,
}

impl Fingerprinter {
    /// Creates a fingerprinter whose coefficients are generated from `seed`.
    pub fn new(seed: u64) -> Self {
        let mut coefficients = ChaCha8Rng::seed_from_u64(seed);
        let mut of_page = coefficients.clone();
        of_page.set_stream(1);
        let coefficient = nonzero(&mut coefficients);
        Self { coefficients, coefficient, page: Vec::new(), at: 0, of_page }
    }

    /// Adds the next bytes of the stream.
    pub fn update(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(SEGMENT_BYTES - self.at % SEGMENT_BYTES));
            let end = self.at + now.len();
            if self.page.len() < end {
                self.page.resize(end, 0);
            }
            Kernel::best().mul_add(self.coefficient, now, &mut self.page[self.at..end]);
            self.at = end % PAGE_BYTES;
            if end.is_multiple_of(SEGMENT_BYTES) {
                self.coefficient = nonzero(&mut self.coefficients);
            }
            bytes = later;
        }
    }

    /// Returns the fingerprint of all bytes so far.
    pub fn finish(mut self) -> Fingerprint {
        let mut fingerprint = vec![0; FINGERPRINT_BYTES];
        let mut random = [0; FINGERPRINT_BYTES];
        for word in self.page.chunks(FINGERPRINT_BYTES) {
            self.of_page.fill_bytes(&mut random);
            for ((sum, &byte), &random) in fingerprint.iter_mut().zip(word).zip(&random) {
                *sum ^= gf::mul(1 + random % 255, byte);
            }
        }
        Fingerprint(fingerprint)
    }
}

/// Computes the fingerprints of all sub-blocks of a block of `block_bytes` bytes, over the bytes `window` of
/// each. `read` receives an offset and a buffer to fill; offsets ascend. Bytes beyond the end of the block
/// count as zeros.
///
/// # Errors
///
/// The first error of `read`.
pub fn fingerprints<E>(
    chunking: &Chunking,
    window: &Range<u64>,
    seed: u64,
    block_bytes: u64,
    mut read: impl FnMut(u64, &mut [u8]) -> Result<(), E>,
) -> Result<Vec<Fingerprint>, E> {
    // The part of the window beyond the end of the sub-blocks is ignored: the code does not cover it.
    let end = window.end.min(chunking.sub_block_bytes());
    let window = window.start.min(end)..end;
    let subs: Vec<u16> = (0..chunking.sub_blocks()).collect();
    let mut done = vec![Fingerprint::zero(); subs.len()];
    let mut begun: BTreeMap<u16, Fingerprinter> = BTreeMap::new();
    let mut buffer = vec![0; READ_THROUGH_BYTES.min(block_bytes as usize)];
    for range in joined(chunking, &subs, &window, 1) {
        let range = range.start..range.end.min(block_bytes);
        for start in range.clone().step_by(READ_THROUGH_BYTES) {
            let bytes = &mut buffer[..(range.end - start).min(READ_THROUGH_BYTES as u64) as usize];
            read(start, bytes)?;
            let mut rest = &bytes[..];
            for piece in chunking.pieces(start..start + bytes.len() as u64) {
                let (now, later) = rest.split_at((piece.within.end - piece.within.start) as usize);
                begun.entry(piece.sub).or_insert_with(|| Fingerprinter::new(seed)).update(now);
                if piece.within.end == window.end {
                    let whole = begun.remove(&piece.sub).expect("the fingerprint was just updated");
                    done[usize::from(piece.sub)] = whole.finish();
                }
                rest = later;
            }
        }
    }
    for (sub, fingerprinter) in begun {
        done[usize::from(sub)] = fingerprinter.finish();
    }
    Ok(done)
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
        fn is_linear_and_independent_of_piece_sizes(
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
        fn block_fingerprints_equal_those_of_its_sub_blocks(
            (sub_blocks, part, chunks) in (1u16..6, prop::sample::select(vec![1u64, 7, 64, 9000, 700_000]), 1u64..5),
            (a, b) in (any::<prop::sample::Index>(), any::<prop::sample::Index>()), cut in 0u64..3_000, seed: u64,
        ) {
            let chunk_bytes = part * u64::from(sub_blocks);
            let chunking = Chunking::new(chunk_bytes * chunks, chunk_bytes, sub_blocks).expect("it divides");
            let block_bytes = chunking.block_bytes().saturating_sub(cut);
            let byte = |at: u64| if at < block_bytes { (at * 13 % 241) as u8 + 1 } else { 0 };
            let read = |at: u64, bytes: &mut [u8]| -> Result<(), std::convert::Infallible> {
                assert!(at + bytes.len() as u64 <= block_bytes);
                (at..).zip(bytes).for_each(|(at, target)| *target = byte(at));
                Ok(())
            };
            let (a, b) = (a.index(1 + chunking.sub_block_bytes() as usize), b.index(1 + chunking.sub_block_bytes() as usize));
            let window = a.min(b) as u64..a.max(b) as u64;
            let found = fingerprints(&chunking, &window, seed, block_bytes, read).expect("it cannot fail");
            let expected = (0..sub_blocks).map(|sub| {
                let bytes: Vec<u8> = chunking.ranges(sub, window.clone()).flatten().map(byte).collect();
                fingerprint(seed, &[&bytes])
            });
            prop_assert_eq!(found, expected.collect::<Vec<_>>());
        }

        /// A difference that is the same in every word used to cancel in one of 128 fingerprints.
        #[test]
        fn zeros_instead_of_a_constant_show(bytes in 4096usize..20_000, constant in 1u8.., seed: u64) {
            prop_assert_ne!(fingerprint(seed, &[&vec![constant; bytes]]), Fingerprint::zero());
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
