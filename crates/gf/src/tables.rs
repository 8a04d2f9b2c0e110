//! The products of the field, computed at compile time in the three forms that kernels use.

use crate::POLYNOMIAL;

/// Computes the product by schoolbook shifts, which is too slow for data, but the basis of all tables.
const fn shift_and_add(a: u8, b: u8) -> u8 {
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

/// `NIBBLES[c]` contains c·x for the sixteen low nibbles x, then c·(x << 4) for the sixteen high ones.
///
/// A byte is the sum of its nibbles, so two look-ups (one byte shuffle each) yield a product.
#[cfg(target_arch = "x86_64")]
pub(crate) static NIBBLES: [[[u8; 16]; 2]; 256] = NIBBLE_PRODUCTS;

const NIBBLE_PRODUCTS: [[[u8; 16]; 2]; 256] = {
    let mut table = [[[0; 16]; 2]; 256];
    let mut c = 0;
    while c < 256 {
        let mut x = 0;
        while x < 16 {
            table[c][0][x] = shift_and_add(c as u8, x as u8);
            table[c][1][x] = shift_and_add(c as u8, (x << 4) as u8);
            x += 1;
        }
        c += 1;
    }
    table
};

/// `PRODUCTS[c][x]` is c·x.
pub(crate) static PRODUCTS: [[u8; 256]; 256] = {
    let mut table = [[0; 256]; 256];
    let mut c = 0;
    while c < 256 {
        let [low, high] = NIBBLE_PRODUCTS[c];
        let mut x = 0;
        while x < 256 {
            table[c][x] = low[x & 15] ^ high[x >> 4];
            x += 1;
        }
        c += 1;
    }
    table
};

/// `MATRICES[c]` is multiplication by c as the 8×8 bit matrix that `GF2P8AFFINEQB` takes.
///
/// That instruction works for any polynomial, whereas `GF2P8MULB` is limited to the polynomial of AES.
#[cfg(target_arch = "x86_64")]
pub(crate) static MATRICES: [u64; 256] = {
    let mut table = [0; 256];
    let mut c = 0;
    while c < 256 {
        table[c] = bit_matrix(c as u8);
        c += 1;
    }
    table
};

/// Returns the bit matrix of multiplication by c. Byte 7 - i is the row for bit i of the product; bit j of
/// this byte is bit i of c·x^j.
#[cfg(target_arch = "x86_64")]
const fn bit_matrix(c: u8) -> u64 {
    let mut matrix = 0;
    let mut j = 0;
    while j < 8 {
        let column = shift_and_add(c, 1 << j);
        let mut i = 0;
        while i < 8 {
            let bit = (column >> i & 1) as u64;
            matrix |= bit << (8 * (7 - i) + j);
            i += 1;
        }
        j += 1;
    }
    matrix
}
