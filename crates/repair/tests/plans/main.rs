//! Plans: as text, as costs, and as what they compute.

#![forbid(unsafe_code)]

mod costs;
mod errors;
mod execution;
mod scene;
mod sums;
mod text;
