//! Low priority for threads that must not delay slices: verification and read-back of blocks while a repair
//! is running.
//!
//! At normal priority on busy processors, such a thread would delay a slice at one node, and with it the
//! whole chain.

/// The niceness of low-priority threads.
const NICE: i32 = 10;

/// Lowers the priority of the current thread for the rest of its life; raising it again requires privileges.
pub fn yield_processors() {
    // If the call is forbidden, as in some sandboxes, the thread keeps its normal priority.
    let _ = rustix::process::setpriority_process(None, NICE);
}
