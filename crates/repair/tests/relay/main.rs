//! Tests that drive the relay, or the part around it, directly.

mod announcements;
mod assignments;
mod chain;
mod hostile;
mod pacing;
mod portions;
mod window;
