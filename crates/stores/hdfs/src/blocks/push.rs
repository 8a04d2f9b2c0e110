//! Handing a replica over to a DataNode that runs and has no plug-in: by the write with which DataNodes give each other
//! blocks.
//!
//! The replica is made among what the DataNode has not finished, as always, and stays there while it is pushed: the DataNode
//! writes files of its own, which have no name before all is there. So nothing of a push that breaks off is seen, and what
//! the DataNode does not take is not lost to it either.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use block_files::StoredBlock;
use repair::{Digest, Permit};
use store_api::{
    BlockError, BlockReader, BlockWriter, HandOver, HandOverTerms, Intake, Later, OpenGate, ProcessError,
};

use super::reader::ReplicaReader;
use super::transfer::{Transfer, TransferError, Wanted};
use super::volumes::Files;
use super::writer::ReplicaWriter;

/// How long a DataNode may take for a step: it may wait for a disk, and syncs all of a block in the last one.
const PATIENCE: Duration = Duration::from_secs(60);
/// That a few times over, besides what the bytes take.
const LIMIT: Duration = Duration::from_secs(180);
/// The bytes are read, sent, checked, written and synced on one machine, maybe on one disk that does other things as well.
const SLOWEST_BYTES_PER_S: u64 = 4 << 20;

/// How a DataNode says that a replica comes just now.
const UNFINISHED: &str = "Replica is not readable";
/// And that it knows one whose files are gone.
const LOST_FILES: [&str; 2] = ["FileNotFoundException", "NoSuchFileException"];

/// A DataNode that takes blocks as other DataNodes do.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pusher {
    address: SocketAddr,
    patience: Duration,
}

/// What a DataNode has of a replica.
#[derive(Debug)]
enum Held {
    /// It would serve it to readers.
    Served,
    /// It would not, and says why.
    Not(String),
}

impl Pusher {
    pub(super) fn new(address: SocketAddr) -> Self {
        Self { address, patience: PATIENCE }
    }

    /// The same with another limit for each step.
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

    /// Whether it serves a replica. It forgets one whose files are gone.
    fn ask(&self, wanted: &Wanted) -> Result<Held, BlockError> {
        match self.open().and_then(|transfer| transfer.read_last_byte(wanted)) {
            Ok(()) => Ok(Held::Served),
            Err(TransferError::Refused { message, .. }) => Ok(Held::Not(message)),
            Err(TransferError::Closed) => {
                let why = format!(
                    "it closed the connection when it was asked for a block: it has no pool {}, or wants its connections \
                     protected (dfs.data.transfer.protection, dfs.encrypt.data.transfer), which takes the plug-in; its log says which",
                    wanted.pool
                );
                Err(process(wanted, ProcessError::Refused { process: self.process(), why }))
            }
            Err(error) => Err(self.failed(wanted, error)),
        }
    }

    /// Writes a replica, of which it said `before` when it was asked for it.
    fn write(&self, wanted: &Wanted, source: &ReplicaReader, before: &str) -> Result<(), BlockError> {
        match self.open().and_then(|transfer| transfer.write(wanted, source.format(), source)) {
            Err(TransferError::Closed) => {
                let why = format!(
                    "it closed the connection: no folder of type DISK has room, or it has something else of this number. \
                     Its log says which; asked for the block, it said: {before}"
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

/// What the system calls a socket's limit depends on the step.
fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock)
}

fn process(wanted: &Wanted, error: ProcessError) -> BlockError {
    BlockError::Process { block: wanted.name.block_id(), error }
}

/// A replica that a DataNode writes itself when it is whole.
pub(super) struct PushedWriter {
    writer: Box<ReplicaWriter>,
    pusher: Pusher,
    permit: Option<Permit>,
}

impl PushedWriter {
    /// `permit` is a block token, if HDFS wants them.
    pub(super) fn new(writer: ReplicaWriter, pusher: Pusher, permit: Option<Permit>) -> Self {
        Self { writer: Box::new(writer), pusher, permit }
    }

    fn wanted(&self) -> Wanted {
        let writer = &self.writer;
        let permit = self.permit.clone();
        Wanted { pool: writer.pool().to_owned(), name: writer.name(), bytes: writer.bytes(), permit }
    }

    /// Has the DataNode take the sealed replica. If it served this very block before, it was pushed already, and its answer
    /// was lost.
    fn publish(self) -> Result<(), BlockError> {
        let (wanted, sealed) = (self.wanted(), self.writer.check_sealed()?);
        self.writer.check_others()?;
        let mut held = self.pusher.ask(&wanted)?;
        self.check_finished(&wanted, &held)?;
        if matches!(held, Held::Served) && self.finds(&wanted, sealed, true)? {
            return Ok(());
        }
        let replaces = self.writer.volumes().remove(&wanted.name)?;
        if replaces || knows_lost_files(&held) {
            held = self.pusher.ask(&wanted)?; // Now it notices that it has none.
        }
        match self.write(&wanted, sealed, &held) {
            Err(error) if replaces => {
                // What was there was of some use, and its DataNode finds this one in its place.
                self.writer.give_names()?;
                Err(error)
            }
            done => done,
        }
    }

    /// What the DataNode is writing itself is left to it.
    fn check_finished(&self, wanted: &Wanted, held: &Held) -> Result<(), BlockError> {
        match held {
            Held::Not(why) if why.contains(UNFINISHED) => {
                let why = format!("somebody else is giving it the block: {why}");
                Err(process(wanted, ProcessError::Refused { process: self.pusher.process(), why }))
            }
            _ => Ok(()),
        }
    }

    fn write(&self, wanted: &Wanted, sealed: Digest, held: &Held) -> Result<(), BlockError> {
        let before = match held {
            Held::Served => "here it is",
            Held::Not(why) => why,
        };
        let written = self.pusher.write(wanted, &self.writer.open()?, before);
        // Another may have made it meanwhile, or the answer was lost.
        let is_there = self.finds(wanted, sealed, written.is_err())?;
        match written {
            Ok(()) if !is_there => {
                let why = "it took the block, and none of the `folders` of this helper has it".to_owned();
                Err(process(wanted, ProcessError::Unconfirmed { process: self.pusher.process(), why }))
            }
            Err(_) if is_there && matches!(self.pusher.ask(wanted), Ok(Held::Served)) => Ok(()),
            done => done,
        }
    }

    /// Whether the DataNode's folders have the block that was sealed, read through if it may be an older one.
    fn finds(&self, wanted: &Wanted, sealed: Digest, read_through: bool) -> Result<bool, BlockError> {
        let is_it = |files: Files| {
            let found = ReplicaReader::open(&wanted.name, files)?;
            let digest = if read_through { found.verify(&OpenGate)? } else { found.digest() };
            Ok::<_, BlockError>(found.bytes() == wanted.bytes && digest == Some(sealed))
        };
        // What cannot be read is not it.
        let found = self.writer.volumes().find(&wanted.name)?;
        Ok(found.into_iter().any(|files| is_it(files).unwrap_or(false)))
    }
}

/// Whether a DataNode believes that it has a replica, and does not find its files.
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
    /// Finds also whether tokens or protected connections are wanted.
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
