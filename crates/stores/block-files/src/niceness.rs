//! Threads that are not to keep slices waiting: they check and read back what is there anyway, while the rest still moves.
//!
//! Where processors are scarce, each page of a block that is looked at early would otherwise hold up a chain at one of its nodes.

/// The niceness of such threads.
const NICE: i32 = 10;

/// Lets other threads have the processors rather than this one, for as long as it lives: to take that back takes privileges.
pub fn yield_processors() {
    // Where it may not be done, as in some sandboxes, the thread takes its part like the others.
    let _ = rustix::process::setpriority_process(None, NICE);
}
