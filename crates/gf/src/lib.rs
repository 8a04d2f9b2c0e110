//! Arithmetic in GF(2^8) with polynomial 0x11d, on single elements and on byte slices.

/// x^8 + x^4 + x^3 + x^2 + 1, the polynomial of ISA-L, Hadoop, klauspost, jerasure (w = 8) and QFS.
pub const POLYNOMIAL: u16 = 0x11d;

/// The product of `a` and `b`.
pub const fn mul(a: u8, b: u8) -> u8 {
    let mut product: u16 = 0;
    let mut shifted = a as u16;
    let mut rest = b;
    while rest != 0 {
        if rest & 1 != 0 {
            product ^= shifted;
        }
        shifted <<= 1;
        if shifted & 0x100 != 0 {
            shifted ^= POLYNOMIAL;
        }
        rest >>= 1;
    }
    product as u8
}

/// `base` to the power `exponent`; 0^0 is 1.
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

/// The multiplicative inverse of `a`, or `None` for zero.
pub const fn inv(a: u8) -> Option<u8> {
    if a == 0 { None } else { Some(pow(a, 254)) }
}
