//! Processes 16 bytes at a time; multiplies each nibble by a table look-up in a register (PSHUFB).

use std::arch::x86_64::*;

use crate::kernel::{Backend, Work};
use crate::tables::NIBBLES;
use crate::vector::{self, Vector};

/// Proof that this CPU has SSSE3.
#[derive(Clone, Copy)]
pub(crate) struct Ssse3(());

impl Ssse3 {
    pub(crate) fn detect() -> Option<&'static dyn Backend> {
        let found = is_x86_feature_detected!("ssse3");
        found.then_some(&Ssse3(()))
    }

    #[target_feature(enable = "ssse3")]
    fn run_with_features(self, work: Work<'_, '_>) {
        vector::run(self, work);
    }
}

impl Backend for Ssse3 {
    fn name(&self) -> &'static str {
        "ssse3"
    }

    fn run(&self, work: Work<'_, '_>) {
        // SAFETY: `self` proves that the CPU has the features the function enables.
        unsafe { self.run_with_features(work) }
    }
}

impl Vector<16> for Ssse3 {
    type Register = __m128i;
    /// The low nibbles, and the high nibbles shifted down.
    type Operand = [__m128i; 2];
    /// The products of the low nibbles, and of the high ones.
    type Factor = [__m128i; 2];

    const IS_AVX512: bool = false;

    #[inline(always)]
    fn zero(self) -> __m128i {
        // SAFETY: `self` proves SSSE3.
        unsafe { _mm_setzero_si128() }
    }

    #[inline(always)]
    fn load(self, bytes: &[u8; 16]) -> __m128i {
        // SAFETY: `self` proves SSSE3; the array is 16 readable bytes, and this load takes any alignment.
        unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) }
    }

    #[inline(always)]
    fn store(self, register: __m128i, bytes: &mut [u8; 16]) {
        // SAFETY: `self` proves SSSE3; the array is 16 writable bytes, and this store takes any alignment.
        unsafe { _mm_storeu_si128(bytes.as_mut_ptr().cast(), register) }
    }

    #[inline(always)]
    fn xor(self, a: __m128i, b: __m128i) -> __m128i {
        // SAFETY: `self` proves SSSE3.
        unsafe { _mm_xor_si128(a, b) }
    }

    #[inline(always)]
    fn factor(self, c: u8) -> [__m128i; 2] {
        let [low, high] = &NIBBLES[usize::from(c)];
        // SAFETY: `self` proves SSSE3; each table is 16 readable bytes, and these loads take any alignment.
        unsafe { [_mm_loadu_si128(low.as_ptr().cast()), _mm_loadu_si128(high.as_ptr().cast())] }
    }

    #[inline(always)]
    fn operand(self, register: __m128i) -> [__m128i; 2] {
        // SAFETY: `self` proves SSSE3.
        unsafe {
            let nibble = _mm_set1_epi8(0x0f);
            let high = _mm_srli_epi64::<4>(register);
            [_mm_and_si128(register, nibble), _mm_and_si128(high, nibble)]
        }
    }

    #[inline(always)]
    fn multiply(self, factor: [__m128i; 2], operand: [__m128i; 2]) -> __m128i {
        // SAFETY: `self` proves SSSE3.
        unsafe {
            let low = _mm_shuffle_epi8(factor[0], operand[0]);
            let high = _mm_shuffle_epi8(factor[1], operand[1]);
            _mm_xor_si128(low, high)
        }
    }
}
