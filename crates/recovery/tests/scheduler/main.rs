//! Tests of the scheduler: order, room, ends, and equality with a slow reference implementation.

#![forbid(unsafe_code)]

mod cases;
mod certain_nodes;
mod drains;
mod policies;
mod reference;
mod scheduler_test;
