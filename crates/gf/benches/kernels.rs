//! The tasks of `table.rs` with criterion's statistics, to examine a single figure.

mod isal;

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput};
use gf::Kernel;
use isal::IsaL;

const SOURCES: usize = 10;
const SIZES: [(&str, usize); 2] = [("64 KiB", 64 << 10), ("64 MiB", 64 << 20)];

/// Returns buffers at different offsets within a page. Equal offsets would make operations on many sources a
/// third slower.
fn buffers(count: usize, bytes: usize) -> Vec<Vec<u8>> {
    (0..count).map(|i| (0..bytes + 192 * i).map(|b| (b * 131 + i) as u8).collect()).collect()
}

fn sources(buffers: &[Vec<u8>], bytes: usize) -> Vec<&[u8]> {
    buffers.iter().enumerate().map(|(i, buffer)| &buffer[192 * i..][..bytes]).collect()
}

fn mul_add(criterion: &mut Criterion) {
    for (size, bytes) in SIZES {
        let mut group = criterion.benchmark_group(format!("A mul_add/{size}"));
        group.throughput(Throughput::Bytes(bytes as u64)).sample_size(20);
        let (source, mut target) = (vec![7; bytes], vec![9; bytes]);
        group.bench_function("limit: memcpy", |b| {
            b.iter(|| black_box(&mut target).copy_from_slice(black_box(&source)))
        });
        group.bench_function("limit: xor", |b| b.iter(|| Kernel::best().xor(&source, &mut target)));
        for kernel in Kernel::available() {
            group.bench_function(kernel.name(), |b| b.iter(|| kernel.mul_add(29, &source, &mut target)));
        }
        if let Some(isal) = IsaL::load() {
            let tables = isal.tables(&[29], 1);
            group.bench_function("ISA-L", |b| b.iter(|| isal.mul_add(&tables, &source, &mut target)));
        }
    }
}

fn combine(criterion: &mut Criterion) {
    for (title, rows) in [("B combine 10 to 1", 1), ("C combine 10 to 4", 4)] {
        let coefficients: Vec<u8> = (0..SOURCES * rows).map(|i| (i * 41 + 2) as u8).collect();
        for (size, bytes) in SIZES {
            let mut group = criterion.benchmark_group(title);
            group.throughput(Throughput::Bytes((SOURCES * bytes) as u64)).sample_size(10);
            let read = buffers(SOURCES, bytes);
            let sources = sources(&read, bytes);
            let mut written = vec![vec![0; bytes]; rows];
            let mut targets: Vec<&mut [u8]> = written.iter_mut().map(|t| &mut t[..]).collect();
            for kernel in Kernel::available() {
                group.bench_function(BenchmarkId::new(kernel.name(), size), |b| {
                    b.iter(|| kernel.combine(&coefficients, &sources, &mut targets))
                });
            }
            if let Some(isal) = IsaL::load() {
                let tables = isal.tables(&coefficients, rows);
                group.bench_function(BenchmarkId::new("ISA-L", size), |b| {
                    b.iter(|| isal.combine(&tables, &sources, &mut targets))
                });
            }
        }
    }
}

fn main() {
    if IsaL::load().is_none() {
        println!("libisal.so.2 is not installed (Debian: libisal2); its rows are skipped");
    }
    let mut criterion = Criterion::default().configure_from_args();
    mul_add(&mut criterion);
    combine(&mut criterion);
    criterion.final_summary();
}
