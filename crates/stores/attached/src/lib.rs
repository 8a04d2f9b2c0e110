//! The parts that are common to all stores that others own. [`AttachedCatalog`] drives a [`System`], reports
//! its changes in order through a [`Teller`], and keeps records in a [`Ledger`]. This crate imports no store
//! and works with any records.

#![forbid(unsafe_code)]

mod aside;
mod attach;
mod bad_copies;
mod catalog;
mod kind;
mod ledger;
mod service;
mod telling;

use aside::Aside;
pub use attach::{BesideArgs, name, options, own_address, unit};
pub use bad_copies::{BadCopies, CopyId};
pub use catalog::{AttachedCatalog, StartError, System};
pub use kind::{Attached, Attaching, Kind, KindError, settings_of};
pub use ledger::{CopyState, Ledger};
pub use service::ServiceReport;
pub use telling::Teller;
