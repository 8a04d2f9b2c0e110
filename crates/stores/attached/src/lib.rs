//! Code for attached stores: running storage systems, such as HDFS, that Mend does not own.
//!
//! A store's crate implements the trait [`System`], and [`AttachedCatalog`] makes it a coordinator's catalog.
//! Changes of the store are reported in order through a [`Teller`]. A [`Ledger`] keeps Mend's own records
//! about the store. This crate imports no store and works with any records.

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
pub use kind::{Attached, Attaching, Findings, Kind, KindError, settings_of};
pub use ledger::{CopyState, Ledger};
pub use service::ServiceReport;
pub use telling::Teller;
