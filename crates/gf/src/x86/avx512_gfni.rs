//! Processes 64 bytes at a time; multiplies each register with one bit-matrix instruction.

use std::arch::x86_64::*;

use crate::kernel::{Backend, Work};
use crate::tables::MATRICES;
use crate::vector::{self, Vector};

/// Proof that this CPU has AVX-512F, AVX-512BW and GFNI.
#[derive(Clone, Copy)]
pub(crate) struct Avx512Gfni(());

impl Avx512Gfni {
    pub(crate) fn detect() -> Option<&'static dyn Backend> {
        let found = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("gfni");
        found.then_some(&Avx512Gfni(()))
    }

    #[target_feature(enable = "avx512f,avx512bw,gfni")]
    fn run_with_features(self, work: Work<'_, '_>) {
        vector::run(self, work);
    }
}

impl Backend for Avx512Gfni {
    fn name(&self) -> &'static str {
        "gfni-avx512"
    }

    fn run(&self, work: Work<'_, '_>) {
        // SAFETY: `self` proves that the CPU has the features the function enables.
        unsafe { self.run_with_features(work) }
    }
}

impl Vector<64> for Avx512Gfni {
    type Register = __m512i;
    type Operand = __m512i;
    type Factor = __m512i;

    const IS_AVX512: bool = true;

    #[inline(always)]
    fn zero(self) -> __m512i {
        // SAFETY: `self` proves AVX-512F.
        unsafe { _mm512_setzero_si512() }
    }

    #[inline(always)]
    fn load(self, bytes: &[u8; 64]) -> __m512i {
        // SAFETY: `self` proves AVX-512F; the array is 64 readable bytes, and this load takes any alignment.
        unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) }
    }

    #[inline(always)]
    fn store(self, register: __m512i, bytes: &mut [u8; 64]) {
        // SAFETY: `self` proves AVX-512F; the array is 64 writable bytes, and this store takes any alignment.
        unsafe { _mm512_storeu_si512(bytes.as_mut_ptr().cast(), register) }
    }

    #[inline(always)]
    fn xor(self, a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: `self` proves AVX-512F.
        unsafe { _mm512_xor_si512(a, b) }
    }

    #[inline(always)]
    fn factor(self, c: u8) -> __m512i {
        // SAFETY: `self` proves AVX-512F.
        unsafe { _mm512_set1_epi64(MATRICES[usize::from(c)].cast_signed()) }
    }

    #[inline(always)]
    fn operand(self, register: __m512i) -> __m512i {
        register
    }

    #[inline(always)]
    fn multiply(self, factor: __m512i, operand: __m512i) -> __m512i {
        // SAFETY: `self` proves AVX-512F and GFNI.
        unsafe { _mm512_gf2p8affine_epi64_epi8::<0>(operand, factor) }
    }
}
