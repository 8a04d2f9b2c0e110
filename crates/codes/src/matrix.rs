//! Dense matrices over GF(2^8): product, inverse, rank and solving.
