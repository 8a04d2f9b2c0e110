//! Reads a whole block of an encoded file from a client's machine: a block that is there, and a lost block by every
//! scheme.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use repair::Scheme;
use testbed::hdfs::Console;

use super::codes::RaidCode;
use super::detail::{Detail, Run};
use crate::error::LabError;
use crate::experiment::{Clock, settle};
use crate::hdfs::reads::{MEND, Positional, Request, STOCK, pread};
use crate::network::Network;

/// The name of HDFS's exception for a block without a replica.
const MISSING: &str = "BlockMissingException";
/// How long a reader waits for its next bytes. Longer than by default, so that slow schemes are not given up.
const PATIENCE: &str = "60s";

/// A program that reads a block, with its scheme.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reader {
    /// HDFS's client, which reads a block that is there.
    Plain,
    /// HDFS's client, which reads the lost block.
    Stock,
    /// The client decodes, as in HDFS-RAID: it reads k blocks.
    Decoder,
    /// Mend's helpers send the lost block by a scheme.
    Mend(Scheme),
}

/// All readers, in the order of the tables.
pub(super) const READERS: [Reader; 8] = [
    Reader::Plain,
    Reader::Stock,
    Reader::Decoder,
    Reader::Mend(Scheme::Conventional),
    Reader::Mend(Scheme::Ppr),
    Reader::Mend(Scheme::CrrR),
    Reader::Mend(Scheme::CrrS),
    Reader::Mend(Scheme::Pipelined),
];

impl Reader {
    /// Returns the name in tables and reports.
    pub(super) fn name(self) -> String {
        match self {
            Self::Plain => "a block that is there".to_owned(),
            Self::Stock => "HDFS".to_owned(),
            Self::Decoder => "HDFS-RAID's way".to_owned(),
            Self::Mend(scheme) => format!("Mend, {scheme}"),
        }
    }

    /// Returns the class of the file system, with settings. `coordinator` is the host of the coordinator.
    fn system(self, code: RaidCode, coordinator: &str) -> String {
        let (root, spec) = (code.parity_root(), code.spec());
        let mend = format!("{MEND};mend.raid.parity={root}={spec};mend.read.patience={PATIENCE}");
        match self {
            Self::Plain | Self::Stock => STOCK.to_owned(),
            // Nothing listens on port 1, so the client decodes as it does without a coordinator.
            Self::Decoder => format!("{mend};mend.coordinator.api={coordinator}:1"),
            Self::Mend(scheme) => {
                format!("{mend};mend.scheme={scheme};mend.slice-bytes={}", code.slice_bytes())
            }
        }
    }

    /// Returns how many of a block's bytes must come through Mend.
    fn through_mend(self, block_bytes: usize) -> u64 {
        if matches!(self, Self::Mend(_)) { block_bytes as u64 } else { 0 }
    }
}

/// A block of a file.
pub(super) struct Block {
    pub(super) path: String,
    /// The offset of the block in the file.
    pub(super) offset: usize,
    /// The bytes that were stored.
    pub(super) bytes: Vec<u8>,
}

/// The client's machine.
pub(super) struct Client {
    console: Console,
    /// The local file for bytes that were read.
    local: PathBuf,
    code: RaidCode,
    /// The host of the coordinator.
    coordinator: String,
    /// The bytes that came through Mend so far, by file system.
    through: BTreeMap<String, u64>,
}

impl Client {
    /// Creates a client that reads files with parity of this code.
    pub(super) fn new(console: Console, local: PathBuf, code: RaidCode, coordinator: String) -> Self {
        Self { console, local, code, coordinator, through: BTreeMap::new() }
    }

    /// Reads a block, and measures time and traffic.
    ///
    /// # Errors
    /// [`LabError`], also if HDFS alone reads a lost block, or if Mend's part in the read is not as it should be.
    pub(super) fn measure(
        &mut self,
        network: &Network,
        reader: Reader,
        block: &Block,
    ) -> Result<Run, LabError> {
        let is_settled = settle(network)?;
        let clock = Clock::start(network, Vec::new())?;
        let read = self.read(reader, block)?;
        let measured = clock.stop()?.after(is_settled);
        Ok(match read {
            Some(time) => Run::of(measured.with_time(time), Detail::Read),
            None => Run::of(measured, Detail::Failed),
        })
    }

    /// Reads a block. Returns the time, or `None` if HDFS has failed because the block is lost.
    ///
    /// # Errors
    /// As [`measure`](Self::measure).
    pub(super) fn read(&mut self, reader: Reader, block: &Block) -> Result<Option<Duration>, LabError> {
        let system = reader.system(self.code, &self.coordinator);
        let request = Request {
            system: &system,
            path: &block.path,
            offsets: &[block.offset],
            bytes: block.bytes.len(),
        };
        let read = pread(&mut self.console, &self.local, &request);
        let before = self.through.get(&system).copied().unwrap_or_default();
        if let Ok(read) = &read {
            self.through.insert(system, read.through_mend);
        }
        judge(reader, &block.bytes, read, before)
    }
}

/// Checks that a read had the result that the reader must have: the stored bytes, or for HDFS the failure. `before` are
/// the bytes that came through Mend earlier.
fn judge(
    reader: Reader,
    stored: &[u8],
    read: Result<Positional, String>,
    before: u64,
) -> Result<Option<Duration>, LabError> {
    let failed = |reason: String| Err(LabError::Agent { who: reader.name(), reason });
    let read = match (read, reader) {
        (Err(text), Reader::Stock) if text.contains(MISSING) => return Ok(None),
        (Ok(_), Reader::Stock) => return failed("read a lost block; is its DataNode back?".to_owned()),
        (Err(text), _) => return failed(text),
        (Ok(read), _) => read,
    };
    if read.bytes != stored {
        let reason = "the read returned other bytes than were stored".to_owned();
        return Err(LabError::WrongBytes { what: reader.name(), reason });
    }
    let (through, wanted) = (read.through_mend - before, reader.through_mend(stored.len()));
    if through != wanted {
        return failed(format!("{through} bytes of the block came through Mend instead of {wanted}"));
    }
    Ok(read.times.first().copied())
}

#[cfg(test)]
mod tests {
    use super::super::codes::{OF_SIZES, OWN};
    use super::*;

    fn read(bytes: &[u8], through_mend: u64) -> Result<Positional, String> {
        Ok(Positional { times: vec![Duration::from_secs(3)], through_mend, bytes: bytes.to_vec() })
    }

    #[test]
    fn readers_differ_in_their_settings() {
        let system = |reader: Reader| reader.system(OF_SIZES, "10.77.0.1");
        let parity = ";mend.raid.parity=/parity-8-6=rs-8-6-hdfs-raid;mend.read.patience=60s";
        let crr_s = format!("{MEND}{parity};mend.scheme=crr-s;mend.slice-bytes=1048576");
        assert_eq!(system(Reader::Mend(Scheme::CrrS)), crr_s);
        assert!(Reader::Mend(Scheme::Ppr).system(OWN, "c").ends_with("mend.slice-bytes=32768"));
        assert_eq!(system(Reader::Decoder), format!("{MEND}{parity};mend.coordinator.api=10.77.0.1:1"));
        assert_eq!(system(Reader::Stock), STOCK);
        assert!(Reader::Decoder.system(OWN, "c").contains("=/raidrs=rs-14-10-hdfs-raid;"));
        let names: std::collections::BTreeSet<String> = READERS.map(Reader::name).into();
        assert_eq!(names.len(), READERS.len());
    }

    #[test]
    fn a_read_counts_if_it_took_its_way_and_returned_the_stored_bytes() {
        let by_scheme = Reader::Mend(Scheme::Ppr);
        let time = Some(Duration::from_secs(3));
        assert_eq!(judge(by_scheme, b"abc", read(b"abc", 103), 100).unwrap(), time);
        assert_eq!(judge(Reader::Decoder, b"abc", read(b"abc", 0), 0).unwrap(), time);
        let wrong = judge(by_scheme, b"abc", read(b"abd", 103), 100).unwrap_err();
        assert!(matches!(wrong, LabError::WrongBytes { .. }), "{wrong}");
        // The client decoded the block itself, because the coordinator did not serve it.
        let other_way = judge(by_scheme, b"abc", read(b"abc", 100), 100).unwrap_err().to_string();
        assert!(other_way.contains("0 bytes of the block came through Mend instead of 3"), "{other_way}");
    }

    #[test]
    fn hdfs_must_fail_on_a_lost_block() {
        let text = || Err("org.apache.hadoop.hdfs.BlockMissingException: no".to_owned());
        assert_eq!(judge(Reader::Stock, b"abc", text(), 0).unwrap(), None);
        assert!(judge(Reader::Plain, b"abc", text(), 0).is_err());
        assert!(judge(Reader::Stock, b"abc", read(b"abc", 0), 0).is_err());
        assert!(judge(Reader::Stock, b"abc", Err("no route to host".to_owned()), 0).is_err());
    }
}
