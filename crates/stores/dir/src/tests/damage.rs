//! Tests that every changed byte, missing byte and missing file is detected.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::*;

fn flip(path: &Path, offset: u64) {
    let file = OpenOptions::new().read(true).write(true).open(path).expect("there");
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).expect("inside");
    file.write_all_at(&[byte[0] ^ 0x10], offset).expect("inside");
}

fn is_corrupt<T: std::fmt::Debug>(result: Result<T, BlockError>) -> String {
    match result {
        Err(error @ BlockError::Corrupt { .. }) => error.to_string(),
        other => panic!("not corrupt: {other:?}"),
    }
}

#[test]
fn every_flipped_byte_of_a_block_is_detected() {
    let test = TestStore::new();
    test.store(&id("a"), &pattern(1, 8193));
    let place = test.place(&id("a"));
    let reader = test.open(&id("a")).expect("good");
    for offset in 0..8193 {
        flip(&place.block, offset);
        is_corrupt(reader.verify(&OpenGate));
        is_corrupt(reader.read_at(offset, &mut [0]));
        flip(&place.block, offset);
    }
    reader.verify(&OpenGate).expect("good again");
}

#[test]
fn a_flipped_byte_fails_only_reads_of_its_chunk() {
    let test = TestStore::new();
    let bytes = pattern(1, 3 * 4096);
    test.store(&id("a"), &bytes);
    flip(&test.place(&id("a")).block, 5000);
    let reader = test.open(&id("a")).expect("its length is right");
    let mut buffer = vec![0; 4096];
    for good in [0, 8192] {
        reader.read_at(good, &mut buffer).expect("another chunk");
        assert_eq!(buffer, &bytes[good as usize..][..4096]);
    }
    for (offset, length) in [(4096, 1), (8191, 1), (0, 4097), (8191, 2), (4096, 4096), (0, 12_288)] {
        let error = is_corrupt(reader.read_at(offset, &mut vec![0; length]));
        assert!(error.contains("bytes 4096 to 8192 do not match their checksum"), "{error}");
        let cached = reader.read_if_cached(offset, &mut vec![0; length]);
        assert!(!matches!(cached, Ok(true)), "a cached read is held against its checksum as well");
    }
}

#[test]
fn every_flipped_byte_of_a_checksum_file_is_detected() {
    let test = TestStore::new();
    test.store(&id("a"), &pattern(1, 8193));
    let place = test.place(&id("a"));
    let reader = test.open(&id("a")).expect("good");
    let length = fs::metadata(&place.checksums).expect("there").len();
    for offset in 0..length {
        flip(&place.checksums, offset);
        is_corrupt(test.open(&id("a")).map(|_| ()));
        assert!(test.blocks.open_block_if_cached(&id("a")).is_none());
        is_corrupt(reader.verify(&OpenGate));
        flip(&place.checksums, offset);
    }
    reader.verify(&OpenGate).expect("good again");
}

#[test]
fn a_wrong_length_is_corrupt_and_both_lengths_are_reported() {
    for length in [0, 1, 4095, 4096, 8191, 8193, 100_000] {
        let test = TestStore::new();
        test.store(&id("a"), &pattern(1, 8192));
        let place = test.place(&id("a"));
        let reader = test.open(&id("a")).expect("good");
        OpenOptions::new().write(true).open(&place.block).expect("there").set_len(length).expect("resized");
        for error in [is_corrupt(test.open(&id("a")).map(|_| ())), is_corrupt(reader.verify(&OpenGate))] {
            assert!(error.contains(&format!("has {length} bytes")), "{error}");
            assert!(error.contains("for 8192"), "{error}");
        }
        if length < 8192 {
            is_corrupt(reader.read_at(0, &mut [0; 8192]));
        }
        assert_eq!(test.blocks.list().expect("readable")[0].bytes, length);
    }
}

#[test]
fn a_checksum_file_of_another_length_is_corrupt() {
    let test = TestStore::new();
    test.store(&id("a"), &pattern(1, 8192));
    let place = test.place(&id("a"));
    let whole = fs::read(&place.checksums).expect("there");
    for length in [0, 3, 4, 24, 28, whole.len() - 1] {
        fs::write(&place.checksums, &whole[..length]).expect("written");
        is_corrupt(test.open(&id("a")).map(|_| ()));
    }
    fs::write(&place.checksums, [&whole[..], &[0]].concat()).expect("written");
    is_corrupt(test.open(&id("a")).map(|_| ()));
}

#[test]
fn a_block_without_checksums_is_corrupt_and_not_listed() {
    let test = TestStore::new();
    test.store(&id("a"), b"abc");
    let place = test.place(&id("a"));
    fs::remove_file(&place.checksums).expect("there");
    let test = test.restart();
    assert!(is_corrupt(test.open(&id("a")).map(|_| ())).contains("checksum file"));
    assert_eq!(test.blocks.list().expect("readable"), []);
    assert!(place.block.exists(), "it is not ours to remove");
    test.store(&id("a"), b"new"); // A repair restores the block.
    assert_eq!(test.load(&id("a")).expect("repaired"), b"new");
}

#[test]
fn newer_checksums_do_not_make_a_block_corrupt() {
    let test = TestStore::new();
    test.store(&id("a"), b"abc");
    let place = test.place(&id("a"));
    let mut bytes = fs::read(&place.checksums).expect("there");
    bytes[11] = 3;
    let body = bytes.len() - 4;
    let own = crate::checksums::crc32c(&bytes[..body]);
    bytes[body..].copy_from_slice(&own.to_be_bytes());
    fs::write(&place.checksums, bytes).expect("written");
    let error = test.open(&id("a")).map(|_| ()).expect_err("newer");
    assert!(matches!(error, BlockError::Io { .. }));
    assert!(error.to_string().contains("version 3, but this program reads version 2"), "{error}");
}
