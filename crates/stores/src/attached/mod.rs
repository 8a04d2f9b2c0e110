//! Stores that others own, beside which a coordinator works: what is the same of all of them. [`AttachedStorage`] drives a
//! [`System`], whose changes are told in order by a [`Teller`] and of which a [`Ledger`] is kept.

mod aside;
mod ledger;
mod storage;
mod telling;

use aside::Aside;
pub use ledger::{CopyState, Ledger};
pub use storage::{AttachedStorage, StartError, System};
pub use telling::{Listener, Teller};
