//! Measures small random reads of a block whose DataNode is dead, with HDFS's own client and with the client
//! that reads lost blocks through Mend.

use std::fs;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use testbed::content;
use testbed::hdfs::Console;

use super::cluster::{CELL, HdfsLab, Policy};
use crate::error::LabError;
use crate::experiment::{Clock, Repaired, milliseconds, percentile};

/// Bytes per read.
pub(super) const BYTES: usize = 64 << 10;
/// The distance between two successive reads, in units of `BYTES`: large, so that reads are not sequential.
pub(super) const STEP: usize = 7919;
pub(crate) const STOCK: &str = "org.apache.hadoop.hdfs.DistributedFileSystem";
pub(crate) const MEND: &str = "org.apache.hadoop.hdfs.MendDistributedFileSystem";

/// The results of reads.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct SmallReads {
    pub(super) count: usize,
    pub(super) median: Duration,
    pub(super) p99: Duration,
    /// The average number of bytes per read that the reader received over its link.
    pub(super) received: u64,
    /// The average number of bytes per read that the machines of all DataNodes together sent.
    pub(super) sent: u64,
    /// Bytes served by Mend, over all reads with this file system so far.
    pub(super) through_mend: u64,
}

impl SmallReads {
    /// A one-line summary.
    pub(super) fn summary(&self) -> String {
        format!("median {} ms, p99 {} ms", milliseconds(self.median), milliseconds(self.p99))
    }
}

/// Positional reads of a file, one after the other.
pub(crate) struct Request<'a> {
    /// The class of the file system; settings may follow, each as `;KEY=VALUE`.
    pub(crate) system: &'a str,
    pub(crate) path: &'a str,
    pub(crate) offsets: &'a [usize],
    /// The number of bytes of each read.
    pub(crate) bytes: usize,
}

/// The results of positional reads.
pub(crate) struct Positional {
    /// The times of the reads, in their order.
    pub(crate) times: Vec<Duration>,
    /// Bytes served by Mend, over all reads with this file system so far.
    pub(crate) through_mend: u64,
    /// The bytes of all reads, one after the other.
    pub(crate) bytes: Vec<u8>,
}

/// Lets a console read. `local` is a file for the bytes.
///
/// # Errors
/// The console's output if the reads failed.
pub(crate) fn pread(
    console: &mut Console,
    local: &Path,
    request: &Request<'_>,
) -> Result<Positional, String> {
    let &Request { system, path, offsets, bytes } = request;
    let list = offsets.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
    let words = ["pread", system, path, &list, &bytes.to_string(), local.to_str().expect("text")];
    let said = console.ask(&words);
    let parsed = if said.code == 0 { parse(&said.text) } else { None };
    let Some((micros, through_mend)) = parsed else { return Err(said.text) };
    let bytes = fs::read(local).map_err(|error| format!("{}: {error}", local.display()))?;
    Ok(Positional { times: micros.into_iter().map(Duration::from_micros).collect(), through_mend, bytes })
}

/// Reads `count` times from internal block `index` of a file with one block group, and compares every byte
/// with the stored data. Returns the measurement of all reads together as well.
///
/// # Errors
/// [`LabError`].
pub(super) fn read(
    lab: &mut HdfsLab,
    system: &str,
    (path, policy, block): (&str, Policy, usize),
    index: usize,
    count: usize,
) -> Result<(Repaired, SmallReads), LabError> {
    let places = block / BYTES;
    let offset = |at: usize| {
        let inside = at * STEP % places * BYTES;
        (inside / CELL * policy.data + index) * CELL + inside % CELL
    };
    let offsets: Vec<usize> = (0..count).map(offset).collect();
    let local = lab.cluster.folder().join("read");
    let request = Request { system, path, offsets: &offsets, bytes: BYTES };
    let clock = Clock::start(&lab.network, Vec::new())?;
    let read = pread(lab.cluster.console(), &local, &request);
    let measured = clock.stop()?;
    let Positional { mut times, through_mend, bytes } =
        read.map_err(|reason| LabError::Agent { who: format!("a read of {path}"), reason })?;
    if !is_as_stored(&content(path, policy.data * block), &request, &bytes) {
        let reason = format!("reading {path} returned wrong bytes");
        return Err(LabError::WrongBytes { what: system.to_owned(), reason });
    }
    times.sort_unstable();
    let links = &measured.usage.metered.traffic;
    let traffic = |is_node: bool| links.iter().filter(move |(name, _)| name.starts_with('h') == is_node);
    let reads = SmallReads {
        count,
        median: percentile(&times, 0.5),
        p99: percentile(&times, 0.99),
        received: traffic(false).map(|(_, bytes)| bytes.received_bytes).sum::<u64>() / count as u64,
        sent: traffic(true).map(|(_, bytes)| bytes.sent_bytes).sum::<u64>() / count as u64,
        through_mend,
    };
    Ok((measured, reads))
}

/// Whether positional reads returned these bytes of the file `whole`.
pub(super) fn is_as_stored(whole: &[u8], request: &Request<'_>, read: &[u8]) -> bool {
    let parts = request.offsets.iter().map(|&offset| &whole[offset..offset + request.bytes]);
    parts.eq(read.chunks(request.bytes))
}

/// Parses `micros A,B,C mend N` into the times and the number of bytes.
fn parse(said: &str) -> Option<(Vec<u64>, u64)> {
    let mut words = said.split_whitespace();
    let times = words.nth(1)?.split(',').map(|micros| micros.parse().ok());
    let times = times.collect::<Option<Vec<u64>>>()?;
    Some((times, words.nth(1)?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn console_output_is_parsed() {
        assert_eq!(parse("micros 30,10,20 mend 65536\n"), Some((vec![30, 10, 20], 65536)));
        assert_eq!(parse("java.io.IOException"), None);
    }

    #[test]
    fn every_part_of_a_read_is_compared() {
        let whole: Vec<u8> = (0..100).collect();
        let request = Request { system: STOCK, path: "/a", offsets: &[90, 10], bytes: 5 };
        let is_right = |read: &[u8]| is_as_stored(&whole, &request, read);
        assert!(is_right(&[90, 91, 92, 93, 94, 10, 11, 12, 13, 14]));
        assert!(!is_right(&[90, 91, 92, 93, 94, 10, 11, 12, 13, 99]));
        assert!(!is_right(&[90, 91, 92, 93, 94]), "a read is missing");
    }
}
