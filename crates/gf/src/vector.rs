//! The loops shared by all vector kernels, written once over a small trait, [`Vector`].
//!
//! This module has no `unsafe`: a `Vector` value proves that its CPU features were detected, and its loads
//! and stores take references to whole arrays. Everything is `#[inline(always)]`, because code gets vector
//! instructions only by being inlined into the `#[target_feature]` function of a kernel; a loop outside runs
//! at a fifth of the speed.

// Plain index loops over registers: iterator closures would not inherit the target features.
#![allow(clippy::needless_range_loop)]

use crate::kernel::{Pair, Single, Terms, Work};
use crate::x86;

/// A CPU's vector instructions over registers of `N` bytes. A value exists only if these instructions were
/// detected.
pub(crate) trait Vector<const N: usize>: Copy {
    /// `N` bytes of data.
    type Register: Copy;
    /// A register prepared for several multiplications.
    type Operand: Copy;
    /// A coefficient prepared for several multiplications.
    type Factor: Copy;

    /// Whether this is AVX-512, which has 32 registers instead of 16, and xors three of them at once.
    const IS_AVX512: bool;

    fn zero(self) -> Self::Register;
    fn load(self, bytes: &[u8; N]) -> Self::Register;
    fn store(self, register: Self::Register, bytes: &mut [u8; N]);
    fn xor(self, a: Self::Register, b: Self::Register) -> Self::Register;
    fn factor(self, c: u8) -> Self::Factor;
    fn operand(self, register: Self::Register) -> Self::Operand;
    fn multiply(self, factor: Self::Factor, operand: Self::Operand) -> Self::Register;
}

/// Executes `work`. The caller must be a function that enables the target features of `V`.
#[inline(always)]
pub(crate) fn run<V: Vector<N>, const N: usize>(v: V, work: Work<'_, '_>) {
    match work {
        Work::Xor { source, target } => xor(v, source, target),
        Work::Scale { c, buffer } => scale(v, c, buffer),
        Work::Mix { ratios, first, second } => mix(v, ratios, first, second),
        // A single source is a separate case, in which the compiler drops the loop over sources. Plain
        // sources without pairs and singles are a separate case too, because most sums have that form.
        Work::Combine { terms, targets, accumulate } => match terms {
            Terms { coefficients, sources: &[source], pairs: &[], singles: &[] } => {
                let terms = Terms { coefficients, sources: &[source], ..Terms::default() };
                combine(v, terms, targets, accumulate)
            }
            Terms { coefficients, sources, pairs: &[], singles: &[] } => {
                combine(v, Terms { coefficients, sources, ..Terms::default() }, targets, accumulate)
            }
            _ => combine(v, terms, targets, accumulate),
        },
    }
}

#[inline(always)]
fn xor<V: Vector<N>, const N: usize>(v: V, source: &[u8], target: &mut [u8]) {
    let (sources, source_tail) = source.as_chunks::<N>();
    let (targets, target_tail) = target.as_chunks_mut::<N>();
    for (t, s) in targets.iter_mut().zip(sources) {
        v.store(v.xor(v.load(t), v.load(s)), t);
    }
    for (t, s) in target_tail.iter_mut().zip(source_tail) {
        *t ^= s;
    }
}

#[inline(always)]
fn scale<V: Vector<N>, const N: usize>(v: V, c: u8, buffer: &mut [u8]) {
    let factor = v.factor(c);
    let (chunks, tail) = buffer.as_chunks_mut::<N>();
    for chunk in chunks {
        v.store(v.multiply(factor, v.operand(v.load(chunk))), chunk);
    }
    if !tail.is_empty() {
        let mut chunk = padded(tail);
        v.store(v.multiply(factor, v.operand(v.load(&chunk))), &mut chunk);
        tail.copy_from_slice(&chunk[..tail.len()]);
    }
}

#[inline(always)]
fn mix<V: Vector<N>, const N: usize>(v: V, ratios: [u8; 2], first: &mut [u8], second: &mut [u8]) {
    let factors = [v.factor(ratios[0]), v.factor(ratios[1])];
    let (firsts, first_tail) = first.as_chunks_mut::<N>();
    let (seconds, second_tail) = second.as_chunks_mut::<N>();
    for (a, b) in firsts.iter_mut().zip(seconds) {
        mix_registers(v, factors, a, b);
    }
    if !first_tail.is_empty() {
        let (mut a, mut b) = (padded(first_tail), padded(second_tail));
        mix_registers(v, factors, &mut a, &mut b);
        first_tail.copy_from_slice(&a[..first_tail.len()]);
        second_tail.copy_from_slice(&b[..second_tail.len()]);
    }
}

#[inline(always)]
fn mix_registers<V: Vector<N>, const N: usize>(
    v: V,
    factors: [V::Factor; 2],
    first: &mut [u8; N],
    second: &mut [u8; N],
) {
    let (a, b) = (v.load(first), v.load(second));
    v.store(v.xor(a, b), first);
    v.store(v.xor(v.multiply(factors[0], v.operand(a)), v.multiply(factors[1], v.operand(b))), second);
}

/// Walks all sources once for every four targets.
///
/// The last number in each call of `walk` is the width of a tile in registers: the largest width, up to
/// eight, at which all sums of a tile stay in registers. Wide tiles share the bounds checks and table
/// look-ups of a source.
#[inline(always)]
fn combine<V: Vector<N>, const N: usize>(
    v: V,
    terms: Terms<'_>,
    targets: &mut [&mut [u8]],
    accumulate: bool,
) {
    let (fours, rest) = targets.as_chunks_mut::<4>();
    let first_of_rest = 4 * fours.len();
    for (i, four) in fours.iter_mut().enumerate() {
        let rows = Rows::new(terms, 4 * i, accumulate);
        if V::IS_AVX512 {
            walk::<V, N, 4, 4>(v, rows, four);
        } else {
            walk::<V, N, 4, 2>(v, rows, four);
        }
    }
    if let Some(three) = rest.first_chunk_mut::<3>() {
        walk::<V, N, 3, 2>(v, Rows::new(terms, first_of_rest, accumulate), three);
    } else if let Some(two) = rest.first_chunk_mut::<2>() {
        walk::<V, N, 2, 4>(v, Rows::new(terms, first_of_rest, accumulate), two);
    } else if let Some(one) = rest.first_chunk_mut::<1>() {
        walk::<V, N, 1, 8>(v, Rows::new(terms, first_of_rest, accumulate), one);
    }
}

/// The input of a walk: `R` rows of coefficients, each with one column for each source, then one for each
/// pair. A row may also have further terms that no other row has (`singles`).
#[derive(Clone, Copy)]
struct Rows<'a, const R: usize> {
    coefficients: [&'a [u8]; R],
    sources: &'a [&'a [u8]],
    pairs: &'a [Pair<'a>],
    singles: [&'a [Single<'a>]; R],
    accumulate: bool,
}

impl<'a, const R: usize> Rows<'a, R> {
    /// Selects `R` rows of `terms`, starting with row `first`.
    #[inline(always)]
    fn new(terms: Terms<'a>, first: usize, accumulate: bool) -> Self {
        let Terms { coefficients, sources, pairs, singles } = terms;
        let columns = sources.len() + pairs.len();
        let mut rows = Self { coefficients: [&[]; R], sources, pairs, singles: [&[]; R], accumulate };
        for r in 0..R {
            rows.coefficients[r] = &coefficients[(first + r) * columns..][..columns];
            let start = singles.partition_point(|single| single.target < first + r);
            let end = singles.partition_point(|single| single.target <= first + r);
            rows.singles[r] = &singles[start..end];
        }
        rows
    }
}

/// Computes `R` targets: first tiles of `U` registers, then single registers, then the last partial register.
#[inline(always)]
fn walk<V: Vector<N>, const N: usize, const R: usize, const U: usize>(
    v: V,
    rows: Rows<'_, R>,
    targets: &mut [&mut [u8]; R],
) {
    let bytes = targets[0].len();
    let mut offset = 0;
    while bytes - offset >= U * N {
        tile::<V, N, R, U>(v, rows, targets, offset);
        offset += U * N;
    }
    while bytes - offset >= N {
        tile::<V, N, R, 1>(v, rows, targets, offset);
        offset += N;
    }
    if offset < bytes {
        tail(v, rows, targets, offset);
    }
}

/// Computes `U` registers of each of `R` targets. All loads come before any store: targets are often equally
/// aligned, and a load after a store to the same page offset waits for that store.
#[inline(always)]
fn tile<V: Vector<N>, const N: usize, const R: usize, const U: usize>(
    v: V,
    rows: Rows<'_, R>,
    targets: &mut [&mut [u8]; R],
    offset: usize,
) {
    let mut sums = [[v.zero(); U]; R];
    if rows.accumulate {
        for r in 0..R {
            sums[r] = load(v, registers(targets[r], offset));
        }
    }
    add_products(v, rows, &mut sums, offset);
    for r in 0..R {
        let chunks = registers_mut::<N, U>(targets[r], offset);
        for u in 0..U {
            v.store(sums[r][u], &mut chunks[u]);
        }
    }
}

/// Adds the products of all sources, pairs and single terms. If the CPU can xor three registers at once, adds
/// the products of two sources in each step.
#[inline(always)]
fn add_products<V: Vector<N>, const N: usize, const R: usize, const U: usize>(
    v: V,
    rows: Rows<'_, R>,
    sums: &mut [[V::Register; U]; R],
    offset: usize,
) {
    let k = rows.sources.len();
    let mut j = 0;
    while V::IS_AVX512 && j + 1 < k {
        let a = read_operands::<V, N, R, U>(v, rows.sources[j], offset);
        let b = read_operands::<V, N, R, U>(v, rows.sources[j + 1], offset);
        for r in 0..R {
            let c = v.factor(rows.coefficients[r][j]);
            let d = v.factor(rows.coefficients[r][j + 1]);
            for u in 0..U {
                let pair = v.xor(v.multiply(c, a[u]), v.multiply(d, b[u]));
                sums[r][u] = v.xor(sums[r][u], pair);
            }
        }
        j += 2;
    }
    while j < k {
        let a = read_operands::<V, N, R, U>(v, rows.sources[j], offset);
        add_product(v, rows, sums, j, a);
        j += 1;
    }
    for (i, pair) in rows.pairs.iter().enumerate() {
        let a = read_pair::<V, N, R, U>(v, pair, offset);
        add_product(v, rows, sums, k + i, a);
    }
    for r in 0..R {
        for single in rows.singles[r] {
            add_single::<V, N, R, U>(v, single, &mut sums[r], offset);
        }
    }
}

/// Adds a term of a single sum; most such terms have coefficient 1.
#[inline(always)]
fn add_single<V: Vector<N>, const N: usize, const R: usize, const U: usize>(
    v: V,
    single: &Single<'_>,
    sum: &mut [V::Register; U],
    offset: usize,
) {
    let registers = read::<V, N, R, U>(v, single.source, offset);
    let factor = v.factor(single.c);
    for u in 0..U {
        let product = match single.c {
            1 => registers[u],
            _ => v.multiply(factor, v.operand(registers[u])),
        };
        sum[u] = v.xor(sum[u], product);
    }
}

/// Adds the products of one column, which is a source or a pair, to all sums.
#[inline(always)]
fn add_product<V: Vector<N>, const N: usize, const R: usize, const U: usize>(
    v: V,
    rows: Rows<'_, R>,
    sums: &mut [[V::Register; U]; R],
    column: usize,
    operands: [V::Operand; U],
) {
    for r in 0..R {
        let c = v.factor(rows.coefficients[r][column]);
        for u in 0..U {
            sums[r][u] = v.xor(sums[r][u], v.multiply(c, operands[u]));
        }
    }
}

/// How far ahead of a read the source is prefetched, in bytes.
const AHEAD_BYTES: usize = 512;

/// Loads `U` registers of a source that is read for `R` targets.
///
/// With three targets or more, arithmetic leaves time to prefetch, which makes reads from memory 5% faster.
/// With fewer targets, loads are the bottleneck if the source is in cache, and each prefetch is another load.
#[inline(always)]
fn read<V: Vector<N>, const N: usize, const R: usize, const U: usize>(
    v: V,
    source: &[u8],
    offset: usize,
) -> [V::Register; U] {
    let chunks = registers::<N, U>(source, offset);
    if R > 2 {
        for u in 0..U {
            x86::prefetch(chunks[u].as_ptr().wrapping_add(AHEAD_BYTES));
        }
    }
    load(v, chunks)
}

/// Loads `U` registers of a source, ready for multiplication.
#[inline(always)]
fn read_operands<V: Vector<N>, const N: usize, const R: usize, const U: usize>(
    v: V,
    source: &[u8],
    offset: usize,
) -> [V::Operand; U] {
    let loaded = read::<V, N, R, U>(v, source, offset);
    let mut operands = [v.operand(v.zero()); U];
    for u in 0..U {
        operands[u] = v.operand(loaded[u]);
    }
    operands
}

/// Loads `U` registers of each half of a pair and adds them, ready for multiplication.
#[inline(always)]
fn read_pair<V: Vector<N>, const N: usize, const R: usize, const U: usize>(
    v: V,
    pair: &Pair<'_>,
    offset: usize,
) -> [V::Operand; U] {
    let seconds = read_operands::<V, N, R, U>(v, pair.second, offset);
    let firsts = read::<V, N, R, U>(v, pair.first, offset);
    let factor = v.factor(pair.c);
    let mut operands = [v.operand(v.zero()); U];
    for u in 0..U {
        operands[u] = v.operand(v.xor(firsts[u], v.multiply(factor, seconds[u])));
    }
    operands
}

/// Computes the last partial register of each of `R` targets, using zero-padded copies.
#[inline(always)]
fn tail<V: Vector<N>, const N: usize, const R: usize>(
    v: V,
    rows: Rows<'_, R>,
    targets: &mut [&mut [u8]; R],
    offset: usize,
) {
    let mut sums = [v.zero(); R];
    for (j, source) in rows.sources.iter().enumerate() {
        let operand = v.operand(v.load(&padded(&source[offset..])));
        for r in 0..R {
            let c = v.factor(rows.coefficients[r][j]);
            sums[r] = v.xor(sums[r], v.multiply(c, operand));
        }
    }
    for (i, pair) in rows.pairs.iter().enumerate() {
        let second = v.operand(v.load(&padded(&pair.second[offset..])));
        let product = v.multiply(v.factor(pair.c), second);
        let operand = v.operand(v.xor(v.load(&padded(&pair.first[offset..])), product));
        for r in 0..R {
            let c = v.factor(rows.coefficients[r][rows.sources.len() + i]);
            sums[r] = v.xor(sums[r], v.multiply(c, operand));
        }
    }
    for r in 0..R {
        for single in rows.singles[r] {
            let operand = v.operand(v.load(&padded(&single.source[offset..])));
            sums[r] = v.xor(sums[r], v.multiply(v.factor(single.c), operand));
        }
        let end = &mut targets[r][offset..];
        if rows.accumulate {
            sums[r] = v.xor(sums[r], v.load(&padded(end)));
        }
        let mut chunk = [0; N];
        v.store(sums[r], &mut chunk);
        end.copy_from_slice(&chunk[..end.len()]);
    }
}

#[inline(always)]
fn registers<const N: usize, const U: usize>(bytes: &[u8], offset: usize) -> &[[u8; N]; U] {
    let (chunks, _) = bytes[offset..][..U * N].as_chunks();
    chunks.first_chunk().expect("U * N bytes are U chunks")
}

#[inline(always)]
fn registers_mut<const N: usize, const U: usize>(bytes: &mut [u8], offset: usize) -> &mut [[u8; N]; U] {
    let (chunks, _) = bytes[offset..][..U * N].as_chunks_mut();
    chunks.first_chunk_mut().expect("U * N bytes are U chunks")
}

#[inline(always)]
fn load<V: Vector<N>, const N: usize, const U: usize>(v: V, chunks: &[[u8; N]; U]) -> [V::Register; U] {
    let mut loaded = [v.zero(); U];
    for u in 0..U {
        loaded[u] = v.load(&chunks[u]);
    }
    loaded
}

#[inline(always)]
fn padded<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut chunk = [0; N];
    chunk[..bytes.len()].copy_from_slice(bytes);
    chunk
}
