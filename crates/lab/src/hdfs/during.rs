//! A client that reads healthy files, on a machine of its own, while a DataNode is recovered.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use testbed::hdfs::Console;

use super::reads::{BYTES, Positional, Request, STEP, STOCK, is_as_stored, pread};
use crate::error::LabError;
use crate::experiment::ReadLog;

/// The number of reads of a file before the client opens the next one.
const BATCH: usize = 16;

/// HDFS's own client. It reads 64 KiB at random places, one read after another.
pub(super) struct Client {
    console: Console,
    /// The local file for bytes that were read.
    local: PathBuf,
    /// The files to read, which all have the bytes `stored`.
    files: Vec<String>,
    stored: Vec<u8>,
    /// The number of batches so far.
    batches: usize,
    wrong: Option<String>,
}

impl Client {
    /// Creates a client.
    pub(super) fn new(console: Console, local: PathBuf, files: Vec<String>, stored: Vec<u8>) -> Self {
        Self { console, local, files, stored, batches: 0, wrong: None }
    }

    /// Reads a batch and compares its bytes.
    pub(super) fn read(&mut self, log: &mut ReadLog) {
        let offsets = offsets(self.batches, self.stored.len());
        let path = &self.files[self.batches % self.files.len()];
        let request = Request { system: STOCK, path, offsets: &offsets, bytes: BYTES };
        self.batches += 1;
        let begun = Instant::now();
        match pread(&mut self.console, &self.local, &request) {
            Err(_) => log.failures.push(begun),
            Ok(read) if is_as_stored(&self.stored, &request, &read.bytes) => {
                log.reads.extend(timed(begun, &read))
            }
            Ok(_) => self.wrong = Some(format!("reading {path} returned wrong bytes")),
        }
    }

    /// Checks that all bytes were as stored.
    ///
    /// # Errors
    /// [`LabError::WrongBytes`].
    pub(super) fn check(&self) -> Result<(), LabError> {
        match &self.wrong {
            None => Ok(()),
            Some(reason) => {
                let what = "reads during a recovery".to_owned();
                Err(LabError::WrongBytes { what, reason: reason.clone() })
            }
        }
    }
}

/// Returns the places of a batch in a file of this length.
fn offsets(batch: usize, bytes: usize) -> Vec<usize> {
    let places = bytes / BYTES;
    (0..BATCH).map(|at| (batch * BATCH + at) * STEP % places * BYTES).collect()
}

/// Returns the beginning and the latency of each read of a batch, which are one after another.
fn timed(begun: Instant, read: &Positional) -> Vec<(Instant, Duration)> {
    let mut at = begun;
    let one = |&latency: &Duration| {
        let began = at;
        at += latency;
        (began, latency)
    };
    read.times.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_of_a_batch_follow_each_other() {
        let (begun, ms) = (Instant::now(), Duration::from_millis);
        let read = Positional { times: vec![ms(3), ms(1), ms(2)], through_mend: 0, bytes: Vec::new() };
        let expected = [(begun, ms(3)), (begun + ms(3), ms(1)), (begun + ms(4), ms(2))];
        assert_eq!(timed(begun, &read), expected);
    }

    #[test]
    fn places_differ_and_are_inside_the_file() {
        let bytes = 48 << 20;
        let mut places: Vec<usize> = (0..8).flat_map(|batch| offsets(batch, bytes)).collect();
        assert!(places.iter().all(|offset| offset % BYTES == 0 && offset + BYTES <= bytes));
        places.sort_unstable();
        places.dedup();
        assert_eq!(places.len(), 8 * BATCH);
    }
}
