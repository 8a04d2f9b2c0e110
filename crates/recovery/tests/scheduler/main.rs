//! The scheduler of many repairs: order, room, ends, and the same as a slow one does.

#![forbid(unsafe_code)]

mod cases;
mod drains;
mod policies;
mod reference;
mod scene;
