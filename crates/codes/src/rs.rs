//! Reed-Solomon in five matrix families.
