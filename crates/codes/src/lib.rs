//! Erasure codes over GF(2^8): what to read from whom, and which linear combination gives each lost block.
//!
//! Every code here is linear: each sub-block of a stripe is a fixed combination of the stripe's data
//! sub-blocks. A repair is therefore a [`Recipe`]: a list of sub-blocks to read and, for each wanted
//! sub-block, the coefficients to sum them with. Nothing in this crate knows about nodes, sockets or disks.

#![forbid(unsafe_code)]

mod clay;
mod code;
mod erasure;
mod hitchhiker;
mod lrc;
mod matrix;
mod recipe;
mod rotated;
mod rs;
mod spec;
mod systematic;

pub use clay::Clay;
pub use code::{BlockIndex, Code, DecodeError, SubBlock};
pub use hitchhiker::{Hitchhiker, HitchhikerVariant};
pub use lrc::Lrc;
pub use matrix::Matrix;
pub use recipe::Recipe;
pub use rotated::Rotated;
pub use rs::{ReedSolomon, RsFamily};
pub use spec::{CodeSpec, SpecError};
