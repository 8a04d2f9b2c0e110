//! The BLAKE3 digest of a block, computed window by window.
//!
//! BLAKE3 is a hash tree over its input. All windows but the last have the same length, a power of two, and
//! each window begins at a multiple of this length. A window is therefore a subtree, and its hash depends
//! only on the window's bytes and position. Windows are hashed in the order in which they arrive; a window
//! that is overwritten is hashed again. Only the hashes are kept: 32 bytes per 2 MiB of the block.

use blake3::Hasher;
use blake3::hazmat::{ChainingValue, HasherExt, Mode, merge_subtrees_non_root, merge_subtrees_root};
use repair::Digest;
use store_api::{BlockHash, DIGEST_KIND};

use super::checksums::CHUNK_BYTES;

/// Chunks per window; a window has 2 MiB.
pub(super) const WINDOW_CHUNKS: usize = 512;
const WINDOW_BYTES: u64 = (WINDOW_CHUNKS * CHUNK_BYTES) as u64;

/// The hash of a window as a subtree of the block.
pub(super) type Sum = ChainingValue;

/// Hashes one window from start to end.
pub(super) struct WindowHash {
    hasher: Hasher,
    is_only: bool,
}

impl WindowHash {
    /// Starts the hash of window `number` of a block of `chunks` chunks.
    pub(super) fn new(number: usize, chunks: usize) -> Self {
        let mut hasher = Hasher::new();
        hasher.set_input_offset(number as u64 * WINDOW_BYTES);
        Self { hasher, is_only: chunks <= WINDOW_CHUNKS }
    }

    pub(super) fn update(&mut self, bytes: &[u8]) {
        self.hasher.update(bytes);
    }

    pub(super) fn finish(&self) -> Sum {
        // A single window is the root of the tree, not a subtree.
        if self.is_only { *self.hasher.finalize().as_bytes() } else { self.hasher.finalize_non_root() }
    }
}

/// The hashes of a block's windows, as far as they are known.
#[derive(Debug)]
pub(super) struct Tree {
    sums: Vec<Option<Sum>>,
}

impl Tree {
    /// Creates the tree of a block of `chunks` chunks; no hash is known yet.
    pub(super) fn new(chunks: usize) -> Self {
        Self { sums: vec![None; chunks.div_ceil(WINDOW_CHUNKS)] }
    }

    /// Forgets the hashes of windows that are being overwritten.
    pub(super) fn forget(&mut self, windows: impl Iterator<Item = usize>) {
        windows.for_each(|number| self.sums[number] = None);
    }

    pub(super) fn set(&mut self, number: usize, sum: Sum) {
        self.sums[number] = Some(sum);
    }

    /// Returns the hash of a window, if known.
    pub(super) fn sum(&self, number: usize) -> Option<Sum> {
        self.sums[number]
    }

    /// Returns the windows without a known hash.
    pub(super) fn unknown(&self) -> Vec<usize> {
        (0..self.sums.len()).filter(|&number| self.sums[number].is_none()).collect()
    }

    /// Returns the block's digest.
    ///
    /// # Panics
    /// If the hash of a window is unknown.
    pub(super) fn digest(&self) -> Digest {
        let sums: Vec<Sum> = self.sums.iter().map(|sum| sum.expect("every window is hashed")).collect();
        match &sums[..] {
            [] => BlockHash::default().finish(),
            [only] => digest(only),
            _ => {
                let (left, right) = sums.split_at(left_windows(sums.len()));
                digest(merge_subtrees_root(&merged(left), &merged(right), Mode::Hash).as_bytes())
            }
        }
    }
}

/// Returns the hash of the subtree over several windows. The recursion is as deep as the tree: at most 17
/// levels, for the largest block.
fn merged(sums: &[Sum]) -> Sum {
    match sums {
        [only] => *only,
        _ => {
            let (left, right) = sums.split_at(left_windows(sums.len()));
            merge_subtrees_non_root(&merged(left), &merged(right), Mode::Hash)
        }
    }
}

/// Returns the number of windows in the left subtree: the largest power of two below `windows`.
fn left_windows(windows: usize) -> usize {
    windows.next_power_of_two() / 2
}

fn digest(bytes: &[u8; 32]) -> Digest {
    Digest::new(DIGEST_KIND, bytes).expect("32 bytes are a digest")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn whole(bytes: &[u8]) -> Digest {
        let mut hash = BlockHash::default();
        hash.update(bytes);
        hash.finish()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn windows_in_any_order_make_the_digest_of_the_whole(
            windows in 0usize..9,
            short in prop_oneof![Just(0), 0..WINDOW_BYTES as usize],
            backwards: bool,
        ) {
            let length = (windows * WINDOW_BYTES as usize).saturating_sub(short);
            let bytes: Vec<u8> = (0..length).map(|at| (at.wrapping_mul(0x9e37_79b9) >> 13) as u8).collect();
            let chunks = length.div_ceil(CHUNK_BYTES);
            let mut tree = Tree::new(chunks);
            let mut unknown = tree.unknown();
            if backwards {
                unknown.reverse();
            }
            for number in unknown {
                let start = number * WINDOW_BYTES as usize;
                let mut hash = WindowHash::new(number, chunks);
                bytes[start..length.min(start + WINDOW_BYTES as usize)].chunks(70_001).for_each(|piece| hash.update(piece));
                tree.set(number, hash.finish());
            }
            prop_assert_eq!(tree.digest(), whole(&bytes));
        }
    }
}
