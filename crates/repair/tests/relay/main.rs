//! The relay, driven directly.

mod announcements;
mod assignments;
mod hostile;
mod pacing;
mod portions;
