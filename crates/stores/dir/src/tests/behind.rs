//! Tests of reading a block back while it is still being written: every byte is read back, and no block that
//! reads back wrong is published.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use proptest::prelude::*;
use store_api::{Closed, Gate, Publish};

use super::*;

const MIB: usize = 1 << 20;
/// The length of a block: long enough that some bytes are read back before the last byte is written.
const LENGTH: usize = 19 * MIB + 5000;

/// A gate that counts the bytes that are read back, and can corrupt a byte on the medium first.
#[derive(Default)]
struct Watched {
    passed: AtomicU64,
    closed: AtomicBool,
    /// A byte of a file to corrupt before the next piece is read.
    rot: Mutex<Option<(File, u64)>>,
}

impl Watched {
    fn passed(&self) -> u64 {
        self.passed.load(Ordering::Acquire)
    }

    fn await_passed(&self, bytes: u64) {
        let limit = Instant::now() + Duration::from_secs(60);
        while self.passed() < bytes {
            assert!(Instant::now() < limit, "{} of {bytes} bytes were read back", self.passed());
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Gate for Watched {
    fn pass(&self, bytes: usize) -> Result<(), Closed> {
        if self.closed.load(Ordering::Acquire) {
            return Err(Closed);
        }
        if let Some((file, offset)) = self.rot.lock().expect("never poisoned").take() {
            flip(&file, offset);
        }
        self.passed.fetch_add(bytes as u64, Ordering::AcqRel);
        Ok(())
    }
}

fn flip(file: &File, offset: u64) {
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).expect("inside");
    file.write_all_at(&[byte[0] ^ 0x10], offset).expect("inside");
}

/// Returns the writer of a block that is read back through a gate, and the gate.
fn making(test: &TestStore, length: usize) -> (Box<dyn Publish>, Arc<Watched>) {
    let mut writer = test.blocks.create(&sink(&id("a"), length as u64)).expect("space");
    let gate = Arc::new(Watched::default());
    writer.read_back_behind(gate.clone());
    (writer, gate)
}

fn write(writer: &mut dyn Publish, bytes: &[u8]) -> Result<(), BlockError> {
    (0..bytes.len()).step_by(MIB).try_for_each(|at| {
        let piece = &bytes[at..bytes.len().min(at + MIB)];
        writer.write_at(at as u64, piece)
    })
}

fn finish(writer: Box<dyn Publish>, gate: &Watched) -> Result<Option<repair::Digest>, BlockError> {
    let rest = writer.commit()?.expect("it knows what was read back");
    rest(gate)
}

fn open(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).open(path).expect("there")
}

/// Returns the file of a writer's bytes.
fn temporary(test: &TestStore) -> File {
    let names = test.files();
    let name = names.iter().find(|name| name.starts_with(".tmp-") && !name.ends_with(".crc"));
    open(&test.place(&id("a")).folder.join(name.expect("a writer has one")))
}

#[test]
fn every_byte_is_read_back_once_and_many_before_the_last_write() {
    let test = TestStore::new();
    let bytes = pattern(1, LENGTH);
    let (mut writer, gate) = making(&test, LENGTH);
    write(&mut *writer, &bytes[..16 * MIB]).expect("written");
    gate.await_passed(8 * MIB as u64);
    for at in (16 * MIB..LENGTH).step_by(70_000) {
        writer.write_at(at as u64, &bytes[at..LENGTH.min(at + 70_000)]).expect("written");
    }
    let digest = writer.seal().expect("complete");
    assert_eq!(finish(writer, &gate).expect("good"), digest);
    assert_eq!(gate.passed(), LENGTH as u64);
    assert_eq!(test.load(&id("a")).expect("whole"), bytes);
}

#[test]
fn overwritten_windows_are_read_back_again() {
    let test = TestStore::new();
    let (mut writer, gate) = making(&test, LENGTH);
    write(&mut *writer, &pattern(1, 8 * MIB)).expect("written");
    gate.await_passed(8 * MIB as u64);
    let bytes = pattern(2, LENGTH);
    write(&mut *writer, &bytes).expect("written");
    writer.seal().expect("complete");
    writer.write_at(3 * MIB as u64 + 1, &bytes[3 * MIB + 1..3 * MIB + 11]).expect("written");
    let digest = writer.seal().expect("complete");
    assert_eq!(finish(writer, &gate).expect("good"), digest);
    assert!(gate.passed() >= (LENGTH + 8 * MIB) as u64, "{}", gate.passed());
    assert_eq!(test.load(&id("a")).expect("whole"), bytes);
}

#[test]
fn a_block_that_reads_back_wrong_is_not_sealed() {
    let test = TestStore::new();
    let (mut writer, gate) = making(&test, LENGTH);
    *gate.rot.lock().unwrap() = Some((temporary(&test), 7 * MIB as u64));
    let bytes = pattern(1, LENGTH);
    write(&mut *writer, &bytes[..8 * MIB]).expect("nothing was read back yet");
    gate.await_passed(1);
    let written = (8 * MIB..LENGTH)
        .step_by(MIB)
        .try_for_each(|at| writer.write_at(at as u64, &bytes[at..LENGTH.min(at + MIB)]));
    let error = written.and_then(|()| writer.seal().map(drop)).expect_err("it is not what was written");
    let text = error.to_string();
    assert!(matches!(error, BlockError::Corrupt { .. }), "{text}");
    assert!(text.contains("bytes 7340032 to 7344128 did not read back as they were written"), "{text}");
    assert!(writer.seal().is_err(), "a second look does not make it good");
    assert!(writer.commit().is_err());
    assert_eq!(test.files(), [""; 0]);
}

#[test]
fn damage_after_the_seal_is_reported_by_the_read_back() {
    for offset in [0, 4095, 3_000_000, 3_145_730] {
        let test = TestStore::new();
        let (mut writer, gate) = making(&test, 3 * MIB + 3);
        *gate.rot.lock().unwrap() = Some((temporary(&test), offset));
        write(&mut *writer, &pattern(1, 3 * MIB + 3)).expect("written");
        writer.seal().expect("what is read is not known yet");
        let error = finish(writer, &gate).expect_err("it is not what was written");
        assert!(matches!(error, BlockError::Corrupt { .. }), "{error}");
    }
}

#[test]
fn a_closed_gate_ends_the_read_back() {
    let test = TestStore::new();
    let (mut writer, gate) = making(&test, LENGTH);
    gate.closed.store(true, Ordering::Release);
    write(&mut *writer, &pattern(1, LENGTH)).expect("written");
    let digest = writer.seal().expect("complete");
    let rest = writer.commit().expect("committed").expect("nothing was read");
    assert!(matches!(rest(&*gate), Err(BlockError::GivenUp(_))));
    assert_eq!(test.open(&id("a")).expect("there").verify(&OpenGate).expect("whole"), digest);
}

/// A gate that blocks all reads until a test sets `open`.
#[derive(Default)]
struct Shut {
    asked: AtomicU64,
    open: AtomicBool,
}

impl Gate for Shut {
    fn pass(&self, _bytes: usize) -> Result<(), Closed> {
        self.asked.fetch_add(1, Ordering::AcqRel);
        while !self.open.load(Ordering::Acquire) {
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }
}

#[test]
fn dropping_a_writer_stops_its_read_back() {
    let test = TestStore::new();
    let mut writer = test.blocks.create(&sink(&id("a"), LENGTH as u64)).expect("space");
    let gate = Arc::new(Shut::default());
    writer.read_back_behind(gate.clone());
    write(&mut *writer, &pattern(1, 9 * MIB)).expect("written, whatever the gate does");
    while gate.asked.load(Ordering::Acquire) == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    drop(writer);
    gate.open.store(true, Ordering::Release);
    while Arc::strong_count(&gate) > 1 {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(gate.asked.load(Ordering::Acquire), 1);
    assert_eq!(test.files(), [""; 0]);
}

#[test]
fn a_block_replaced_meanwhile_is_verified_completely() {
    let test = TestStore::new();
    let (mut writer, gate) = making(&test, 5000);
    write(&mut *writer, &pattern(1, 5000)).expect("written");
    writer.seal().expect("complete");
    let rest = writer.commit().expect("committed").expect("it was read back behind");
    let other = test.store(&id("a"), &pattern(2, 6000));
    let passed = gate.passed();
    assert_eq!(rest(&*gate).expect("whole"), other);
    assert!(gate.passed() >= passed + 6000);
}

#[test]
fn a_changed_checksum_file_is_detected() {
    let test = TestStore::new();
    for offset in [0, 24, 40] {
        let (mut writer, gate) = making(&test, 50_000);
        write(&mut *writer, &pattern(1, 50_000)).expect("written");
        writer.seal().expect("complete");
        let rest = writer.commit().expect("committed").expect("it was read back behind");
        flip(&open(&test.place(&id("a")).checksums), offset);
        assert!(matches!(rest(&*gate), Err(BlockError::Corrupt { .. })));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn bytes_written_in_any_order_are_read_back(
        pieces in prop::collection::vec((0usize..LENGTH, 1usize..3 * MIB, any::<u64>()), 0..24),
        grain in 50_000usize..4 * MIB,
        backwards: bool,
    ) {
        let test = TestStore::new();
        let (mut writer, gate) = making(&test, LENGTH);
        let mut model = vec![0; LENGTH];
        let mut starts: Vec<usize> = (0..LENGTH).step_by(grain).collect();
        if backwards {
            starts.reverse();
        }
        let all = starts.into_iter().map(|start| (start, grain, start as u64));
        let (early, late) = pieces.split_at(pieces.len() / 2);
        for (start, length, seed) in early.iter().copied().chain(all).chain(late.iter().copied()) {
            let range = start..LENGTH.min(start + length);
            model[range.clone()].copy_from_slice(&pattern(seed, range.len()));
            writer.write_at(start as u64, &model[range]).expect("written");
        }
        let digest = writer.seal().expect("complete");
        prop_assert_eq!(finish(writer, &gate).expect("good"), digest);
        prop_assert!(gate.passed() >= LENGTH as u64);
        prop_assert_eq!(test.load(&id("a")).expect("whole"), model);
    }
}
