//! Hands a replica over to a running DataNode without a plug-in, with the protocol that DataNodes use to
//! write blocks to each other.
//!
//! Like every replica that Mend writes, the replica is first written to the DataNode's folder of unfinished
//! files. It stays there during the push. The DataNode writes files of its own, which become visible once
//! they are complete. An interrupted push is therefore never visible, and Mend keeps its copy if the DataNode
//! refuses the block.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use block_files::{StoredBlock, is_shortage};
use repair::{Digest, Permit};
use store_api::{
    BlockError, BlockReader, BlockWriter, HandOver, HandOverTerms, Intake, Later, OpenGate, ProcessError,
};

use super::reader::ReplicaReader;
use super::transfer::{Transfer, TransferError, Wanted};
use super::volumes::Files;
use super::writer::ReplicaWriter;

/// Timeout for each step. A DataNode may wait for a disk, and syncs the whole block in the last step.
const PATIENCE: Duration = Duration::from_secs(60);
/// Timeout for the whole hand-over, not including the time to transfer the bytes at [`SLOWEST_BYTES_PER_S`].
const LIMIT: Duration = Duration::from_secs(180);
/// The lowest expected throughput. The bytes are read, sent, checked, written and synced on one machine,
/// possibly on a single busy disk.
const SLOWEST_BYTES_PER_S: u64 = 4 << 20;

/// Part of a DataNode's error message for a replica that is being written.
const UNFINISHED: &str = "Replica is not readable";
/// Parts of a DataNode's error message for a replica whose files are missing.
const LOST_FILES: [&str; 2] = ["FileNotFoundException", "NoSuchFileException"];

/// A DataNode that accepts blocks with the protocol between DataNodes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pusher {
    address: SocketAddr,
    patience: Duration,
}

/// A DataNode's answer about a replica.
#[derive(Debug)]
enum Held {
    /// The DataNode serves the replica to readers.
    Served,
    /// The DataNode does not serve the replica, and answered with this error message.
    Not(String),
}

impl Pusher {
    pub(super) fn new(address: SocketAddr) -> Self {
        Self { address, patience: PATIENCE }
    }

    /// Sets another timeout for each step.
    #[cfg(test)]
    pub(super) fn with_patience(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    fn process(&self) -> String {
        format!("the DataNode at {}", self.address)
    }

    fn open(&self) -> Result<Transfer<std::net::TcpStream>, TransferError> {
        Transfer::open(self.address, self.patience)
    }

    /// Finds out whether the DataNode serves a replica, by requesting the replica's last byte. The request
    /// makes the DataNode forget a replica whose files are missing.
    fn ask(&self, wanted: &Wanted) -> Result<Held, BlockError> {
        match self.open().and_then(|transfer| transfer.read_last_byte(wanted)) {
            Ok(()) => Ok(Held::Served),
            Err(TransferError::Refused { message, .. }) => Ok(Held::Not(message)),
            Err(TransferError::Closed) => {
                let why = format!(
                    "it closed the connection on a request for a block: it has no pool {}, or it requires \
                     protected connections (dfs.data.transfer.protection, dfs.encrypt.data.transfer), for \
                     which Mend needs the plug-in; the DataNode's log has the reason",
                    wanted.pool
                );
                Err(process(wanted, ProcessError::Refused { process: self.process(), why }))
            }
            Err(error) => Err(self.failed(wanted, error)),
        }
    }

    /// Writes a replica to the DataNode. `before` is the DataNode's earlier answer about the replica, and is
    /// quoted in error messages.
    fn write(&self, wanted: &Wanted, source: &ReplicaReader, before: &str) -> Result<(), BlockError> {
        match self.open().and_then(|transfer| transfer.write(wanted, source.format(), source)) {
            Err(TransferError::Closed) => {
                let why = format!(
                    "it closed the connection: no folder of type DISK has room, or it has another replica \
                     with this number; its log has the reason. Before the write it answered a request for \
                     the block with: {before}"
                );
                Err(process(wanted, ProcessError::Refused { process: self.process(), why }))
            }
            done => done.map_err(|error| self.failed(wanted, error)),
        }
    }

    fn failed(&self, wanted: &Wanted, error: TransferError) -> BlockError {
        let (why, name) = (error.to_string(), self.process());
        let error = match error {
            TransferError::Source(error) => return error,
            TransferError::Io(error) if is_timeout(&error) => {
                ProcessError::TimedOut { process: name, limit: self.patience }
            }
            TransferError::Io(_) | TransferError::NotAnAnswer(_) => {
                ProcessError::Unreachable { process: name, why }
            }
            TransferError::Closed
            | TransferError::TokenWanted
            | TransferError::TokenRefused
            | TransferError::Refused { .. } => ProcessError::Refused { process: name, why },
        };
        process(wanted, error)
    }
}

/// Whether this is a socket timeout, which the system reports as one of two kinds of error.
fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock)
}

fn process(wanted: &Wanted, error: ProcessError) -> BlockError {
    BlockError::Process { block: wanted.name.block_id(), error }
}

/// Writes a replica that is pushed to the DataNode once it is complete.
pub(super) struct PushedWriter {
    writer: Box<ReplicaWriter>,
    pusher: Pusher,
    permit: Option<Permit>,
}

impl PushedWriter {
    /// Creates a writer. `permit` is a block token, if HDFS uses block tokens.
    pub(super) fn new(writer: ReplicaWriter, pusher: Pusher, permit: Option<Permit>) -> Self {
        Self { writer: Box::new(writer), pusher, permit }
    }

    fn wanted(&self) -> Wanted {
        let writer = &self.writer;
        let permit = self.permit.clone();
        Wanted { pool: writer.pool().to_owned(), name: writer.name(), bytes: writer.bytes(), permit }
    }

    /// Pushes the sealed replica to the DataNode. Does nothing if the DataNode already serves exactly this
    /// block: an earlier push has then succeeded, but the response was lost.
    fn publish(self) -> Result<(), BlockError> {
        let (wanted, sealed) = (self.wanted(), self.writer.check_sealed()?);
        self.writer.check_others()?;
        let held = self.pusher.ask(&wanted)?;
        self.check_finished(&wanted, &held)?;
        if matches!(held, Held::Served) && self.finds(&wanted, sealed, true)? {
            return Ok(());
        }
        let replaces = !self.writer.volumes().with(&wanted.name)?.is_empty();
        match self.replace(&wanted, sealed, held) {
            Err(error) if replaces => {
                self.take_place(&wanted, sealed)?;
                Err(error)
            }
            done => done,
        }
    }

    /// Removes the replica's old files, if there are any, and pushes the new ones.
    fn replace(&self, wanted: &Wanted, sealed: Digest, mut held: Held) -> Result<(), BlockError> {
        let was_there = self.writer.volumes().remove(&wanted.name)?;
        if was_there || knows_lost_files(&held) {
            held = self.pusher.ask(wanted)?; // This request makes the DataNode notice missing files.
        }
        self.write(wanted, sealed, &held)
    }

    /// Moves the new files to the place of the old replica, which was removed before the push failed. The
    /// DataNode finds them there at its next scan. Otherwise it would have no copy at all.
    fn take_place(self, wanted: &Wanted, sealed: Digest) -> Result<(), BlockError> {
        match self.finds(wanted, sealed, true) {
            Ok(true) => Ok(()), // The DataNode has written the block, but has not confirmed that.
            Ok(false) | Err(_) => self.writer.take_place().map(drop),
        }
    }

    /// Refuses to interfere with a block that another writer is sending to the DataNode.
    fn check_finished(&self, wanted: &Wanted, held: &Held) -> Result<(), BlockError> {
        match held {
            Held::Not(why) if why.contains(UNFINISHED) => {
                let why = format!("another client is writing the block there: {why}");
                Err(process(wanted, ProcessError::Refused { process: self.pusher.process(), why }))
            }
            _ => Ok(()),
        }
    }

    fn write(&self, wanted: &Wanted, sealed: Digest, held: &Held) -> Result<(), BlockError> {
        let before = match held {
            Held::Served => "success",
            Held::Not(why) => why,
        };
        let written = self.pusher.write(wanted, &self.writer.open()?, before);
        // Look for the block even after an error: the response may have been lost, or another writer may have
        // created the block meanwhile.
        let is_there = self.finds(wanted, sealed, written.is_err())?;
        match written {
            Ok(()) if !is_there => {
                let why = "it accepted the block, but none of the `folders` of this helper has it".to_owned();
                Err(process(wanted, ProcessError::Unconfirmed { process: self.pusher.process(), why }))
            }
            Err(_) if is_there && matches!(self.pusher.ask(wanted), Ok(Held::Served)) => Ok(()),
            done => done,
        }
    }

    /// Whether the DataNode's folders contain the sealed block. With `read_through`, this verifies all bytes
    /// of the files, since they may be older than the push. A lack of descriptors or memory is an error: a good
    /// replica must not be removed because of it.
    fn finds(&self, wanted: &Wanted, sealed: Digest, read_through: bool) -> Result<bool, BlockError> {
        let is_it = |files: Files| {
            let found = ReplicaReader::open(&wanted.name, files)?;
            let digest = if read_through { found.verify(&OpenGate)? } else { found.digest() };
            Ok::<_, BlockError>(found.bytes() == wanted.bytes && digest == Some(sealed))
        };
        for files in self.writer.volumes().find(&wanted.name)? {
            match is_it(files) {
                Ok(true) => return Ok(true),
                Err(error) if is_shortage(&error) => return Err(error),
                Ok(false) | Err(_) => {} // A replica that cannot be read is not the sealed block.
            }
        }
        Ok(false)
    }
}

/// Whether a DataNode lists a replica but cannot find its files.
fn knows_lost_files(held: &Held) -> bool {
    matches!(held, Held::Not(why) if LOST_FILES.iter().any(|lost| why.contains(lost)))
}

impl Intake for PushedWriter {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<(), BlockError> {
        self.writer.write_at(offset, bytes)
    }

    fn reader(&self) -> Result<Arc<dyn BlockReader>, BlockError> {
        self.writer.reader()
    }
}

impl BlockWriter for PushedWriter {
    fn seal(&mut self) -> Result<Option<Digest>, BlockError> {
        self.writer.seal()
    }
}

impl HandOver for PushedWriter {
    /// Requests the replica from the DataNode, only to find out whether the DataNode answers, and whether it
    /// requires tokens or protected connections. The DataNode need not have the replica.
    fn prepare(&mut self) -> Later<'_, Result<(), BlockError>> {
        let (pusher, wanted) = (self.pusher, self.wanted());
        Box::pin(async move { waiting(move || pusher.ask(&wanted)).await.map(drop) })
    }

    fn terms(&self) -> HandOverTerms {
        let bytes = Duration::from_secs(self.writer.bytes() / SLOWEST_BYTES_PER_S);
        HandOverTerms { process: self.pusher.process(), limit: LIMIT + bytes }
    }

    fn hand_over(self: Box<Self>) -> Later<'static, Result<(), BlockError>> {
        Box::pin(waiting(move || self.publish()))
    }
}

async fn waiting<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.expect("pushing does not panic")
}
