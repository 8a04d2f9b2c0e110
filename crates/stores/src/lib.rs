//! The seam to storage systems: two traits, one folder per system.
//!
//! [`Blocks`] is the helper's half: a node's own blocks, read at any offset, made, verified and removed.
//! [`Catalog`] is the coordinator's half: stripes, who holds which block, what is lost, and publishing a
//! repaired block so that the store itself sees it as healthy. Both are synchronous; their drivers decide
//! on which thread they wait.

#![forbid(unsafe_code)]

mod blocks;
mod catalog;
pub mod dir;
pub mod seaweedfs;

pub use blocks::{BlockError, BlockReader, BlockWriter, Blocks};
pub use catalog::{BlockRecord, BlockState, Catalog, CatalogError, StripeRecord};
