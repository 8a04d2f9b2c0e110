//! Compares blocks with a plain byte vector: bytes written in any order must read back the same.

use proptest::prelude::*;
use store_api::{BlockHash, BlockReader};

use super::*;
use crate::checksums::{CHUNK_BYTES, Checksums};
use crate::label::Label;

/// A write. `start` is a fraction of the block, `length` a fraction of the bytes after the start, and `seed`
/// determines the content.
#[derive(Clone, Debug)]
struct Piece {
    start: f64,
    length: f64,
    aligned: bool,
    seed: u64,
}

fn lengths() -> impl Strategy<Value = usize> {
    prop_oneof![
        prop::sample::select(vec![0, 1, 4095, 4096, 4097, 8191, 8192, 8193, 65_536, 300_000]),
        0usize..40_000,
    ]
}

fn pieces() -> impl Strategy<Value = Vec<Piece>> {
    let piece = (0.0..=1.0, 0.0..=1.0, any::<bool>(), any::<u64>());
    let piece = piece.prop_map(|(start, length, aligned, seed)| Piece { start, length, aligned, seed });
    prop::collection::vec(piece, 0..12)
}

/// Returns the byte range of a piece, rounded to chunk boundaries if `aligned`.
fn range(piece: &Piece, bytes: usize) -> std::ops::Range<usize> {
    let mut start = (piece.start * bytes as f64) as usize;
    let mut end = (start + (piece.length * (bytes - start) as f64) as usize).min(bytes);
    if piece.aligned {
        start -= start % CHUNK_BYTES;
        end = end.next_multiple_of(CHUNK_BYTES).min(bytes);
    }
    start..end
}

/// Returns the digest that the store must report for a block of these bytes.
fn digest(bytes: &[u8]) -> Option<repair::Digest> {
    let mut hash = BlockHash::default();
    hash.update(bytes);
    Some(hash.finish())
}

/// Returns the digest that old versions recorded: the digest of the checksum list.
fn list_digest(bytes: &[u8]) -> Option<repair::Digest> {
    let label = Label::of(&sink(&id("a"), 0)); // The digest does not depend on the label.
    let mut checksums = Checksums::unknown(bytes.len() as u64, label);
    bytes.chunks(CHUNK_BYTES).enumerate().for_each(|(index, chunk)| checksums.set(index, chunk));
    Some(checksums.block_digest())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn written_pieces_read_back(
        length in lengths(),
        early in pieces(),
        late in pieces(),
        reads in pieces(),
        grain in 1usize..20_000,
    ) {
        let test = TestStore::new();
        let block = id("17.3");
        let mut writer = test.blocks.create(&sink(&block, length as u64)).expect("space");
        let mut model = vec![0; length];
        let mut write = |writer: &mut dyn store_api::BlockWriter, range: std::ops::Range<usize>, seed| {
            model[range.clone()].copy_from_slice(&pattern(seed, range.len()));
            writer.write_at(range.start as u64, &model[range]).expect("written");
        };
        for piece in &early {
            write(&mut *writer, range(piece, length), piece.seed);
        }
        // Writes every byte once, back to front.
        for start in (0..length).step_by(grain).rev() {
            write(&mut *writer, start..length.min(start + grain), start as u64);
        }
        writer.seal().expect("complete");
        for piece in &late {
            write(&mut *writer, range(piece, length), piece.seed);
        }
        let sealed = writer.seal().expect("complete");
        prop_assert_eq!(sealed, digest(&model));
        let early_reader = writer.reader().expect("sealed");
        writer.commit().expect("committed");

        let stored = test.open(&block).expect("committed");
        prop_assert_eq!(stored.verify(&OpenGate).expect("whole"), sealed);
        let cached = test.blocks.open_block_if_cached(&block);
        let cached = cached.map(|reader| reader as Arc<dyn BlockReader>);
        let readers = [early_reader, stored as Arc<dyn BlockReader>];
        for reader in readers.into_iter().chain(cached) {
            prop_assert_eq!(reader.bytes(), length as u64);
            prop_assert_eq!(reader.digest(), sealed);
            for piece in &reads {
                let range = range(piece, length);
                let mut buffer = vec![0xa5; range.len()];
                reader.read_ahead(range.start as u64..range.end as u64 + piece.seed % 9000);
                reader.read_at(range.start as u64, &mut buffer).expect("readable");
                prop_assert_eq!(&buffer[..], &model[range.clone()]);
                buffer.fill(0xa5);
                if reader.read_if_cached(range.start as u64, &mut buffer).expect("readable") {
                    prop_assert_eq!(&buffer[..], &model[range]);
                }
            }
        }
    }

    #[test]
    fn every_short_range_reads_correctly(start in 0usize..9000, length in 0usize..9000) {
        let test = TestStore::new();
        let bytes = pattern(1, 9000);
        test.store(&id("a"), &bytes);
        let end = (start + length).min(bytes.len());
        let mut buffer = vec![0; end - start];
        test.open(&id("a")).expect("stored").read_at(start as u64, &mut buffer).expect("readable");
        prop_assert_eq!(&buffer[..], &bytes[start..end]);
    }
}

/// A rebuilt block must get the same kind of digest as the catalog has recorded, even if an old version
/// recorded that digest.
#[test]
fn a_rebuilt_block_gets_the_recorded_kind_of_digest() {
    let test = TestStore::new();
    let bytes = pattern(1, 300_000);
    for (recorded, expected) in [
        (None, digest(&bytes)),
        (digest(b"another"), digest(&bytes)),
        (list_digest(b"another"), list_digest(&bytes)),
    ] {
        let sink = repair::Sink { digest: recorded, ..sink(&id("a"), bytes.len() as u64) };
        let mut writer = test.blocks.create(&sink).expect("space");
        writer.read_back_behind(Arc::new(OpenGate));
        writer.write_at(0, &bytes).expect("written");
        assert_eq!(writer.seal().expect("complete"), expected);
        let rest = writer.commit().expect("committed").expect("it was read back behind");
        assert_eq!(rest(&OpenGate).expect("good"), expected);
        let reader = test.open(&id("a")).expect("there");
        assert_eq!((reader.digest(), reader.verify(&OpenGate).expect("whole")), (expected, expected));
    }
}

#[test]
fn unwritten_bytes_prevent_the_seal() {
    let test = TestStore::new();
    let mut writer = test.blocks.create(&sink(&id("a"), 10_000)).expect("space");
    writer.write_at(0, &[1; 4096]).expect("written");
    writer.write_at(5000, &[1; 5000]).expect("written");
    let error = writer.seal().expect_err("a hole").to_string();
    assert!(error.contains("bytes 4096 to 5000 were never written"), "{error}");
    assert!(writer.reader().is_err());
    writer.write_at(4000, &[1; 1000]).expect("written");
    writer.seal().expect("complete");
}

#[test]
fn ranges_beyond_the_block_are_refused() {
    let test = TestStore::new();
    let mut writer = test.blocks.create(&sink(&id("a"), 10)).expect("space");
    for (offset, length) in [(0, 11), (10, 1), (11, 0), (u64::MAX, 2)] {
        let error = writer.write_at(offset, &vec![0; length]).expect_err("beyond").to_string();
        assert!(error.contains("exceed the block's 10 bytes"), "{error}");
    }
    writer.write_at(0, &[0; 10]).expect("written");
    writer.seal().expect("complete");
    let reader = writer.reader().expect("sealed");
    for (offset, length) in [(0, 11), (10, 1), (11, 0), (u64::MAX, 2)] {
        let error = reader.read_at(offset, &mut vec![0; length]).expect_err("beyond").to_string();
        assert!(error.contains("exceed the block's 10 bytes"), "{error}");
    }
}

#[test]
fn a_block_written_to_after_the_seal_is_not_committed() {
    let test = TestStore::new();
    let mut writer = test.blocks.create(&sink(&id("a"), 3)).expect("space");
    writer.write_at(0, b"abc").expect("written");
    writer.seal().expect("complete");
    writer.write_at(0, b"x").expect("written");
    let error = writer.commit().map(drop).expect_err("not sealed").to_string();
    assert!(error.contains("not sealed after the last write"), "{error}");
    assert_eq!(test.files(), [""; 0]);
}
