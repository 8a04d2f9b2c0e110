//! Kernels for x86-64, one file each, fastest first in the list in `kernel.rs`.
//!
//! A kernel is a type that can only be made by its `detect`, so a value is the proof that the CPU has
//! the features which its methods use. That proof is what every `unsafe` block in these files leans on.

pub(crate) mod avx2;
pub(crate) mod avx2_gfni;
pub(crate) mod avx512_gfni;
pub(crate) mod ssse3;
