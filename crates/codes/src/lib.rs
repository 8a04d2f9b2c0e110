//! Erasure codes over GF(2^8): which blocks to read, and which linear combination yields each lost block.
//!
//! Every code here is linear: each sub-block of a stripe is a fixed combination of the stripe's data
//! sub-blocks. A repair is therefore a [`Recipe`]: a list of sub-blocks to read and, for each wanted
//! sub-block, the coefficients of their sum. This crate knows no nodes, sockets or disks.
//!
//! The entry point is [`CodeSpec`], which is parsed from text and builds a shared [`Code`].
//!
//! ```
//! use codes::{BlockIndex, CodeSpec};
//!
//! let code = "lrc-12-2-2".parse::<CodeSpec>()?.build()?;
//! let available: Vec<BlockIndex> = (1..16).map(BlockIndex).collect();
//! let recipe = code.repair(&[BlockIndex(0)], &available)?;
//! // It reads the five other data blocks of the local group and the group's parity block; b0 is their XOR.
//! let read: Vec<u16> = recipe.sources().iter().map(|source| source.block.0).collect();
//! assert_eq!(read, [1, 2, 3, 4, 5, 12]);
//! assert!(recipe.row(0).iter().all(|&(_, coefficient)| coefficient == 1));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Each code has its own file. Most codes only define their parity rows and choose what to read; the shared
//! solver `Systematic` computes the coefficients. Clay has a solver of its own, which works plane by plane.

#![forbid(unsafe_code)]

mod clay;
mod code;
mod erasure;
mod hitchhiker;
mod less;
mod linear;
mod lrc;
mod matrix;
mod recipe;
mod rotated;
mod rs;
mod spec;
mod spec_error;
mod systematic;

pub use clay::{Clay, ClayVariant, Coupling};
pub use code::{BlockIndex, Code, DecodeError, SubBlock};
pub use hitchhiker::{Hitchhiker, HitchhikerVariant};
pub use less::Less;
pub use linear::{Generator, GeneratorError, Linear, LinearCode, LrcGlobals};
pub use matrix::Matrix;
pub use recipe::Recipe;
pub use rotated::Rotated;
pub use rs::{ReedSolomon, RsFamily};
pub use spec::CodeSpec;
pub use spec_error::SpecError;
