//! Kernels for x86-64, one file each, listed fastest first in `kernel.rs`.
//!
//! A kernel is a type that only its `detect` can create, so a value proves that the CPU has the features
//! which its methods use. Every `unsafe` block in these files relies on that proof.

use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};

pub(crate) mod avx2;
pub(crate) mod avx2_gfni;
pub(crate) mod avx512_gfni;
pub(crate) mod ssse3;

/// Starts to load the cache line at `address` into the L1 cache, if the address is valid.
#[inline(always)]
pub(crate) fn prefetch(address: *const u8) {
    // SAFETY: a prefetch is a hint that never faults; its feature, SSE, is part of x86-64.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) }
}
