//! Syncing a block while it is still being made, so that little is left to wait for when it is sealed.
//!
//! A thread syncs what was written so far, each time that a stretch is full and the last sync is over. What it says counts:
//! the system tells of a failed write once, and a later sync of the same file would succeed.

use std::fs::File;
use std::io;
use std::thread::{self, JoinHandle};

/// So many bytes are worth a sync of their own.
const STRETCH_BYTES: u64 = 8 << 20;

#[derive(Default)]
pub(super) struct WriteBack {
    /// Bytes written since the last sync began.
    since: u64,
    running: Option<JoinHandle<io::Result<()>>>,
}

impl WriteBack {
    /// Bytes were written to the file.
    ///
    /// # Errors
    /// What an earlier sync found.
    pub(super) fn wrote(&mut self, file: &File, bytes: usize) -> io::Result<()> {
        self.since += bytes as u64;
        if self.since < STRETCH_BYTES || self.running.as_ref().is_some_and(|sync| !sync.is_finished()) {
            return Ok(());
        }
        self.join()?;
        let file = file.try_clone()?;
        let named = thread::Builder::new().name("write-back".to_owned());
        // Without a thread the bytes are synced in the end.
        self.running = named.spawn(move || file.sync_data()).ok();
        self.since = 0;
        Ok(())
    }

    /// Waits for the sync that runs.
    ///
    /// # Errors
    /// What it found.
    pub(super) fn join(&mut self) -> io::Result<()> {
        match self.running.take() {
            Some(sync) => sync.join().unwrap_or_else(|_| Err(io::Error::other("the sync's thread panicked"))),
            None => Ok(()),
        }
    }
}
