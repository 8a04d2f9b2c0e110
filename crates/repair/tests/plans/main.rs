//! Tests of plans: their text, their cost, and their results.

#![forbid(unsafe_code)]

mod choice;
mod costs;
mod errors;
mod execution;
mod packed;
mod planner_input;
mod small;
mod sums;
mod text;
