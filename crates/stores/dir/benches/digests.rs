//! Measures the CPU time of computing a block's digest, and that of computing the checksums that every block
//! has: `cargo bench -p dir --bench digests`. CPU time stays meaningful on a busy machine.

#![allow(missing_docs)] // The criterion macros generate undocumented items.

use std::hint::black_box;
use std::time::Duration;

use codes::BlockIndex;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use dir::DirBlocks;
use repair::{BlockId, Digest, Sink, SinkEnd};
use rustix::time::{ClockId, clock_gettime};
use store_api::BlockHash;

const BLOCK_BYTES: usize = 64 << 20;
/// Bytes per hash update or write.
const PIECE_BYTES: usize = 256 << 10;

fn block() -> Vec<u8> {
    (0..BLOCK_BYTES).map(|at| (at.wrapping_mul(0x9e37_79b9) >> 13) as u8).collect()
}

/// Runs `work` `times` times. Returns the CPU time that all threads of this process spent meanwhile.
fn processors<T>(times: u64, mut work: impl FnMut() -> T) -> Duration {
    let spent = || Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).expect("it is positive");
    let before = spent();
    (0..times).for_each(|_| drop(black_box(work())));
    spent() - before
}

fn hashes(c: &mut Criterion) {
    let block = block();
    let mut group = c.benchmark_group("64 MiB");
    group.sample_size(10).throughput(Throughput::Bytes(BLOCK_BYTES as u64));
    let blake3 = || {
        let mut hash = BlockHash::default();
        black_box(&block).chunks(PIECE_BYTES).for_each(|piece| hash.update(piece));
        hash.finish()
    };
    let crc32c = || {
        let sums = black_box(&block).chunks(4096).map(|chunk| repair::wire::edge::crc32c(&[chunk]));
        sums.fold(0, |all, sum| all ^ sum)
    };
    group.bench_function("blake3", |b| b.iter_custom(|times| processors(times, blake3)));
    group.bench_function("crc32c of each 4 KiB", |b| b.iter_custom(|times| processors(times, crc32c)));
}

/// Measures everything that a helper does with a block before the commit: write, sync, hash, seal.
fn seals(c: &mut Criterion) {
    let block = block();
    let folder = tempfile::tempdir().expect("a folder");
    let blocks = DirBlocks::open(folder.path()).expect("a new folder");
    let mut group = c.benchmark_group("64 MiB written and sealed");
    group.sample_size(10).throughput(Throughput::Bytes(BLOCK_BYTES as u64));
    let seal = |digest: Option<Digest>| {
        let end = SinkEnd::Kept { label: None, permit: None };
        let (index, id) = (BlockIndex(0), BlockId("b".to_owned()));
        let sink = Sink { index, id, bytes: BLOCK_BYTES as u64, digest, end };
        let mut writer = blocks.create(&sink).expect("room");
        for (at, piece) in block.chunks(PIECE_BYTES).enumerate() {
            writer.write_at((at * PIECE_BYTES) as u64, piece).expect("room");
        }
        writer.seal().expect("complete")
    };
    for (name, recorded) in [("blake3", None), ("crc32c-list", Some(Digest::of_u32("crc32c-list", 0)))] {
        group.bench_with_input(BenchmarkId::from_parameter(name), &recorded, |b, &digest| {
            b.iter_custom(|times| processors(times, || seal(digest)));
        });
    }
}

criterion_group!(benches, hashes, seals);
criterion_main!(benches);
