//! Forgeries that no CRC32C detects, not even in blocks that are decoded from the forged bytes, and
//! replacement of blocks together with their checksums.

use std::path::Path;

use codes::BlockIndex;
use dir::DirBlocks;
use repair::{BlockId, Digest, Sink, SinkEnd};
use store_api::Blocks;

/// CRC32C's generator polynomial, highest power first.
const GENERATOR: u64 = 0x1_1edc_6f41;
/// The length of a forgery in bytes. A forgery changes only bytes in a window of this length.
pub const FORGED_BYTES: usize = 33;

/// Whether a forgery changes the byte at this position of the window.
fn changes(at: usize) -> bool {
    GENERATOR >> (FORGED_BYTES - 1 - at) & 1 == 1
}

/// XORs `factor` times the generator's coefficients into the bytes. No CRC32C detects this, not even in a
/// block that is decoded from these bytes: because `G(x^8) = G(x)^8`, the difference is a multiple of the
/// generator in each of the eight bit planes, and stays a multiple after any multiplication in GF(2^8).
pub fn forge(bytes: &mut [u8; FORGED_BYTES], factor: u8) {
    bytes.iter_mut().enumerate().filter(|(at, _)| changes(*at)).for_each(|(_, byte)| *byte ^= factor);
}

/// Replaces a block by pseudo-random bytes. The store's own writer writes them, with matching checksums and a
/// matching label. Returns the new digest. The folder's helper must be stopped.
pub fn replace_pair(folder: &Path, id: &BlockId, seed: u64) -> Digest {
    let blocks = DirBlocks::open(folder).expect("no helper uses it");
    let known = blocks.describe(id).expect("it is there");
    let (index, label) = known.label.expect("blocks of files have labels");
    let end = SinkEnd::Kept { label: Some(Box::new(label)), permit: None };
    let sink = Sink { index: BlockIndex(index.0), id: id.clone(), bytes: known.bytes, digest: None, end };
    let mut bytes = vec![0; known.bytes as usize];
    fastrand::Rng::with_seed(seed).fill(&mut bytes);
    let mut writer = blocks.create(&sink).expect("there is room");
    writer.write_at(0, &bytes).expect("written");
    writer.seal().expect("sealed");
    writer.commit().expect("committed");
    blocks.describe(id).expect("it is there").digest.expect("blocks of files have digests")
}

/// Whether the bytes differ only by forgeries or parts of them, each possibly multiplied by a factor.
#[allow(dead_code)] // One of the test programs only uses `forge`.
pub fn differ_by_forgeries(found: &[u8], wanted: &[u8]) -> bool {
    if found.len() != wanted.len() {
        return false;
    }
    let difference: Vec<u8> = found.iter().zip(wanted).map(|(found, wanted)| found ^ wanted).collect();
    let mut rest = &difference[..];
    while let Some(start) = rest.iter().position(|&byte| byte != 0) {
        let piece = &rest[start..rest.len().min(start + FORGED_BYTES)];
        let length = piece.iter().rposition(|&byte| byte != 0).expect("the first is not zero") + 1;
        let fits = |from: usize| {
            let mut bytes = piece[..length].iter().enumerate();
            bytes.all(|(at, &byte)| byte == if changes(from + at) { piece[0] } else { 0 })
        };
        if !(0..=FORGED_BYTES - length).any(fits) {
            return false;
        }
        rest = &rest[start + length..];
    }
    true
}

#[test]
fn forgeries_are_told_from_other_changes() {
    let wanted: Vec<u8> = (0..300).map(|at| at as u8).collect();
    let mut found = wanted.clone();
    for (at, factor) in [(10, 7), (100, 200)] {
        forge(found[at..].first_chunk_mut().unwrap(), factor);
    }
    for range in [0..300, 20..300, 0..115, 30..31] {
        assert!(differ_by_forgeries(&found[range.clone()], &wanted[range]));
    }
    found[12] ^= 1;
    assert!(!differ_by_forgeries(&found, &wanted));
    assert!(!differ_by_forgeries(&found[1..], &wanted));
}
