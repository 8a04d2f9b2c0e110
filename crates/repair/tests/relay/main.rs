//! Tests that drive the relay directly.

mod announcements;
mod assignments;
mod hostile;
mod pacing;
mod portions;
mod window;
