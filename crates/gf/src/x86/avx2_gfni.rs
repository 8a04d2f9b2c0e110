//! Processes 32 bytes at a time; multiplies each register with one bit-matrix instruction.

use std::arch::x86_64::*;

use crate::kernel::{Backend, Work};
use crate::tables::MATRICES;
use crate::vector::{self, Vector};

/// Proof that this CPU has AVX2 and GFNI.
#[derive(Clone, Copy)]
pub(crate) struct Avx2Gfni(());

impl Avx2Gfni {
    pub(crate) fn detect() -> Option<&'static dyn Backend> {
        let found = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("gfni");
        found.then_some(&Avx2Gfni(()))
    }

    #[target_feature(enable = "avx2,gfni")]
    fn run_with_features(self, work: Work<'_, '_>) {
        vector::run(self, work);
    }
}

impl Backend for Avx2Gfni {
    fn name(&self) -> &'static str {
        "gfni-avx2"
    }

    fn run(&self, work: Work<'_, '_>) {
        // SAFETY: `self` proves that the CPU has the features the function enables.
        unsafe { self.run_with_features(work) }
    }
}

impl Vector<32> for Avx2Gfni {
    type Register = __m256i;
    type Operand = __m256i;
    type Factor = __m256i;

    const IS_AVX512: bool = false;

    #[inline(always)]
    fn zero(self) -> __m256i {
        // SAFETY: `self` proves AVX2.
        unsafe { _mm256_setzero_si256() }
    }

    #[inline(always)]
    fn load(self, bytes: &[u8; 32]) -> __m256i {
        // SAFETY: `self` proves AVX2; the array is 32 readable bytes, and this load takes any alignment.
        unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
    }

    #[inline(always)]
    fn store(self, register: __m256i, bytes: &mut [u8; 32]) {
        // SAFETY: `self` proves AVX2; the array is 32 writable bytes, and this store takes any alignment.
        unsafe { _mm256_storeu_si256(bytes.as_mut_ptr().cast(), register) }
    }

    #[inline(always)]
    fn xor(self, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: `self` proves AVX2.
        unsafe { _mm256_xor_si256(a, b) }
    }

    #[inline(always)]
    fn factor(self, c: u8) -> __m256i {
        // SAFETY: `self` proves AVX2.
        unsafe { _mm256_set1_epi64x(MATRICES[usize::from(c)].cast_signed()) }
    }

    #[inline(always)]
    fn operand(self, register: __m256i) -> __m256i {
        register
    }

    #[inline(always)]
    fn multiply(self, factor: __m256i, operand: __m256i) -> __m256i {
        // SAFETY: `self` proves AVX2 and GFNI.
        unsafe { _mm256_gf2p8affine_epi64_epi8::<0>(operand, factor) }
    }
}
