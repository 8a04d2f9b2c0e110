//! The parts that are common to all stores that others own. [`AttachedCatalog`] drives a [`System`], sends
//! its changes in order through a [`Teller`], and keeps notes in a [`Ledger`]. This crate imports no store
//! and works with any records.

#![forbid(unsafe_code)]

mod aside;
mod attach;
mod catalog;
mod kind;
mod ledger;
mod telling;

use aside::Aside;
pub use attach::{BesideArgs, name, options, own_address, unit};
pub use catalog::{AttachedCatalog, StartError, System};
pub use kind::{Attached, Attaching, Kind, KindError};
pub use ledger::{CopyState, Ledger};
pub use telling::Teller;
