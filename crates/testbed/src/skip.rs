//! Skips test suites that need a real system, by the system's name.

use std::env;

/// The environment variable with the systems whose suites are skipped, separated by commas:
/// `MEND_SKIP=hdfs,lab`.
const VARIABLE: &str = "MEND_SKIP";

/// Whether `MEND_SKIP` names this system, ignoring case. A suite that is not skipped fails if its system
/// cannot start.
pub fn is_skipped(system: &str) -> bool {
    let named = env::var(VARIABLE).unwrap_or_default();
    let is_skipped = named.split(',').any(|name| name.trim().eq_ignore_ascii_case(system));
    if is_skipped {
        println!("skipped: {VARIABLE} names {system}");
    }
    is_skipped
}
