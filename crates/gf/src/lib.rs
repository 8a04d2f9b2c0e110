//! Arithmetic in GF(2^8) with polynomial 0x11d, on single elements and on byte slices.
//!
//! Addition is xor. [`mul`], [`pow`] and [`inv`] serve the small matrices of codes; [`Kernel`] serves data,
//! with the fastest vector instructions of this CPU.
//!
//! ```
//! use gf::Kernel;
//!
//! let data: [&[u8]; 2] = [b"erasure", b"storage"];
//! let mut parity = [0; 7];
//! Kernel::best().combine(&[1, 2], &data, &mut [&mut parity]);
//!
//! // Without the first block: parity - 2·data[1] leaves 1·data[0].
//! Kernel::best().mul_add(2, data[1], &mut parity);
//! assert_eq!(&parity, b"erasure");
//! ```
//!
//! All `unsafe` code of the project is in this crate, in the kernels under `x86`. Matrices and codes
//! are in the crate `codes`.

#![deny(unsafe_op_in_unsafe_fn)]
#![deny(clippy::undocumented_unsafe_blocks)]

mod kernel;
mod scalar;
mod tables;
#[cfg(target_arch = "x86_64")]
mod vector;
#[cfg(target_arch = "x86_64")]
mod x86;

pub use kernel::{Kernel, Pair, Single, Terms};

/// x^8 + x^4 + x^3 + x^2 + 1, the polynomial of ISA-L, Hadoop, klauspost, jerasure (w = 8) and QFS.
pub const POLYNOMIAL: u16 = 0x11d;

/// Returns the product of `a` and `b`.
pub const fn mul(a: u8, b: u8) -> u8 {
    tables::PRODUCTS[a as usize][b as usize]
}

/// Returns `base` to the power `exponent`; 0^0 is 1.
pub const fn pow(base: u8, mut exponent: u32) -> u8 {
    let mut result = 1;
    let mut square = base;
    while exponent != 0 {
        if exponent & 1 != 0 {
            result = mul(result, square);
        }
        square = mul(square, square);
        exponent >>= 1;
    }
    result
}

/// Returns the multiplicative inverse of `a`, or `None` for zero.
pub const fn inv(a: u8) -> Option<u8> {
    // The 255 non-zero elements form a group, so a^255 is 1.
    if a == 0 { None } else { Some(pow(a, 254)) }
}
