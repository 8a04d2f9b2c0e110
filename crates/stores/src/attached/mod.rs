//! What every storage that others own needs: a way for its changes to be told in order, and for what takes long to be done
//! while others go on.

mod aside;
mod telling;

pub use aside::Aside;
pub use telling::{Listener, Teller};
