//! Plans: as text, as costs, and as what they compute.

#![forbid(unsafe_code)]

mod choice;
mod costs;
mod errors;
mod execution;
mod packed;
mod scene;
mod small;
mod sums;
mod text;
