//! Processes 32 bytes at a time; multiplies each nibble by a table look-up in a register (PSHUFB).

use std::arch::x86_64::*;

use crate::kernel::{Backend, Work};
use crate::tables::NIBBLES;
use crate::vector::{self, Vector};

/// Proof that this CPU has AVX2.
#[derive(Clone, Copy)]
pub(crate) struct Avx2(());

impl Avx2 {
    pub(crate) fn detect() -> Option<&'static dyn Backend> {
        let found = is_x86_feature_detected!("avx2");
        found.then_some(&Avx2(()))
    }

    #[target_feature(enable = "avx2")]
    fn run_with_features(self, work: Work<'_, '_>) {
        vector::run(self, work);
    }
}

impl Backend for Avx2 {
    fn name(&self) -> &'static str {
        "avx2"
    }

    fn run(&self, work: Work<'_, '_>) {
        // SAFETY: `self` proves that the CPU has the features the function enables.
        unsafe { self.run_with_features(work) }
    }
}

impl Vector<32> for Avx2 {
    type Register = __m256i;
    /// The low nibbles, and the high nibbles shifted down.
    type Operand = [__m256i; 2];
    /// The products of the low nibbles, and of the high ones; each duplicated, because a shuffle works within
    /// 128-bit halves.
    type Factor = [__m256i; 2];

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
    fn factor(self, c: u8) -> [__m256i; 2] {
        let [low, high] = &NIBBLES[usize::from(c)];
        // SAFETY: `self` proves AVX2; each table is 16 readable bytes, and these loads take any alignment.
        unsafe {
            [
                _mm256_broadcastsi128_si256(_mm_loadu_si128(low.as_ptr().cast())),
                _mm256_broadcastsi128_si256(_mm_loadu_si128(high.as_ptr().cast())),
            ]
        }
    }

    #[inline(always)]
    fn operand(self, register: __m256i) -> [__m256i; 2] {
        // SAFETY: `self` proves AVX2.
        unsafe {
            let nibble = _mm256_set1_epi8(0x0f);
            let high = _mm256_srli_epi64::<4>(register);
            [_mm256_and_si256(register, nibble), _mm256_and_si256(high, nibble)]
        }
    }

    #[inline(always)]
    fn multiply(self, factor: [__m256i; 2], operand: [__m256i; 2]) -> __m256i {
        // SAFETY: `self` proves AVX2.
        unsafe {
            let low = _mm256_shuffle_epi8(factor[0], operand[0]);
            let high = _mm256_shuffle_epi8(factor[1], operand[1]);
            _mm256_xor_si256(low, high)
        }
    }
}
