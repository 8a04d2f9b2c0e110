//! Kernels for x86-64, one file each, fastest first in the list in `kernel.rs`.
//!
//! A kernel is a type that can only be made by its `detect`, so a value is the proof that the CPU has
//! the features which its methods use. That proof is what every `unsafe` block in these files leans on.

use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};

pub(crate) mod avx2;
pub(crate) mod avx2_gfni;
pub(crate) mod avx512_gfni;
pub(crate) mod ssse3;

/// Starts to bring the cache line at `address` into the first-level cache, if there is one at all.
#[inline(always)]
pub(crate) fn prefetch(address: *const u8) {
    // SAFETY: a prefetch is a hint that faults on no address; its feature, SSE, is part of x86-64.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) }
}
