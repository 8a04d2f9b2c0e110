//! The formats of all bytes that cross a socket between Mend's own processes; `docs/reference/protocol.md`
//! shows them.
//!
//! [`edge`] is the data plane: the greeting, in which one end of an edge presents its one-time key, and the
//! frames that carry slices. [`control`] is the control plane: messages between the coordinator and a node.
//! Encoding and decoding are pure functions with bounds; sockets belong to the drivers.

pub mod control;
pub mod edge;
mod failure;

pub use failure::RequestFailure;
