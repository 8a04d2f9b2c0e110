//! Where bytes come from and where they go: the seam between a helper's or client's engine and everything outside of it.
//!
//! [`Sources`] opens the blocks that an assignment reads, [`Sinks`] the places that it delivers to. A node's store is both
//! ([`Blocks`] extends them); a client's request brings one of the two along. An open sink is a [`Delivery`], whose variant
//! fixes what can happen once all bytes have come:
//!
//! ```text
//!  Taken       write_at … ─▶ reader                      the client has the bytes; nothing is stored
//!  Published   write_at … ─▶ seal ─▶ reader ─▶ commit     Mend renames the block into the store
//!  HandedOver  prepare ─▶ write_at … ─▶ seal ─▶ reader ─▶ hand_over
//!                                                         the store's own process takes the block over
//! ```
//!
//! A [`Delivery::Taken`] has only [`Intake`], which can neither seal nor commit, so no implementation needs a stub for
//! that. A store that shows bytes to readers while they still come uses the last line: `prepare` claims the block, writes
//! make it readable, `hand_over` ends it, and dropping the writer withdraws the claim.
//!
//! [`Blocks`]: crate::Blocks

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use repair::{Digest, LocalBlock, Sink};

use crate::{BlockError, BlockReader, Gate};

/// A future. It is polled on a runtime with sockets and timers; disk I/O belongs on a thread that may wait.
pub type Later<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Opens the blocks that an assignment reads. Called on threads that may wait, except where noted.
pub trait Sources: Send + Sync + 'static {
    /// Opens a block for reading at any offset. A store finds it by its name alone.
    ///
    /// # Errors
    /// [`BlockError`]; a length that contradicts the checksums is found here.
    fn open(&self, block: &LocalBlock) -> Result<Arc<dyn BlockReader>, BlockError>;

    /// Like [`open`](Self::open), but never waits for a medium or a lock: `None` if it would have to wait, or if something
    /// is wrong, which [`open`](Self::open) then reports.
    fn open_if_cached(&self, block: &LocalBlock) -> Option<Arc<dyn BlockReader>> {
        let _ = block;
        None
    }
}

/// Opens the sinks of an assignment. Called on threads that may wait.
pub trait Sinks: Send + Sync + 'static {
    /// Opens a sink. Offsets are those of the block, even if only a part of it is delivered.
    ///
    /// # Errors
    /// [`BlockError`]; [`NoSpace`](BlockError::NoSpace) already here if the medium is visibly too full.
    fn deliver(&self, sink: &Sink) -> Result<Delivery, BlockError>;
}

/// An open sink, by how its bytes end up. Dropping it before its end leaves nothing behind.
pub enum Delivery {
    /// The requestor takes the bytes; nothing is stored.
    Taken(Box<dyn Intake>),
    /// The bytes become a block of a store whose files Mend may rename.
    Published(Box<dyn Publish>),
    /// The bytes become a block of a store whose own process takes them over.
    HandedOver(Box<dyn HandOver>),
}

/// Takes bytes. Writes may come in any order and may overlap; in the end every byte was written at least once.
pub trait Intake: Send {
    /// Writes `bytes` at `offset`.
    ///
    /// # Errors
    /// [`BlockError::NoSpace`], [`BlockError::Io`].
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<(), BlockError>;

    /// Whether [`write_at`](Self::write_at) may wait for a medium. Memory does not.
    fn may_wait(&self) -> bool {
        true
    }

    /// A reader of the bytes so far, or of the sealed block if this is a [`BlockWriter`]: parity checks need it.
    ///
    /// # Errors
    /// [`BlockError`]; [`Corrupt`](BlockError::Corrupt) if a block was written to after it was sealed.
    fn reader(&self) -> Result<Arc<dyn BlockReader>, BlockError>;
}

/// A block in the making. It has no visible name yet.
pub trait BlockWriter: Intake {
    /// Makes all writes durable and returns the block's digest, if the store has digests. May be called again after more
    /// writes.
    ///
    /// # Errors
    /// [`BlockError`]; a byte that was never written is [`Corrupt`](BlockError::Corrupt).
    fn seal(&mut self) -> Result<Option<Digest>, BlockError>;
}

/// A block that a rename makes visible.
pub trait Publish: BlockWriter {
    /// Verifies the block behind the writer, as its parts become durable and `gate` lets them pass, so that little is left
    /// to read back after the commit. A mismatch fails a later write or the seal. By default nothing happens: the block is
    /// read back whole.
    fn read_back_behind(&mut self, gate: Arc<dyn Gate>) {
        let _ = gate;
    }

    /// Makes the sealed block visible under its name, atomically and durably, and replaces an earlier one. Returns the
    /// rest of the read-back; without one, [`Blocks::verify`](crate::Blocks::verify) reads the whole block.
    ///
    /// # Errors
    /// [`BlockError`]; nothing has become visible then.
    fn commit(self: Box<Self>) -> Result<Option<ReadBack>, BlockError>;
}

/// Reads back the rest of a block that was just committed, on a thread that may wait, and returns the digest of the block
/// that now stands under the name. By then all its bytes and checksums were read from the medium after they were durable.
/// Fails as [`Blocks::verify`](crate::Blocks::verify) does. Dropping it ends the reading.
pub type ReadBack = Box<dyn FnOnce(&dyn Gate) -> Result<Option<Digest>, BlockError> + Send>;

/// A block that the store's own process takes over.
pub trait HandOver: BlockWriter {
    /// Asks the process, before a byte moves, whether it would take the block: it is reachable, the stripe is not locked
    /// by another writer, and the block's place is free. Announces the block if the process wants that; dropping the writer
    /// withdraws the announcement.
    ///
    /// # Errors
    /// [`BlockError::Process`].
    fn prepare(&mut self) -> Later<'_, Result<(), BlockError>>;

    /// The process that takes it over, and its timeout.
    fn terms(&self) -> HandOverTerms;

    /// Hands the sealed block over, and completes when the process has confirmed that every reader of the store finds it.
    /// First repeats the questions of [`prepare`](Self::prepare), as much may have changed since.
    ///
    /// The future may be dropped at any step, and the process may carry out a request whose answer is lost. Whatever step
    /// it stops at, only the sealed bytes may be served, and handing the same block over again must succeed.
    ///
    /// # Errors
    /// [`BlockError`]. Whether the process has the block is unknown then.
    fn hand_over(self: Box<Self>) -> Later<'static, Result<(), BlockError>>;
}

/// The process that takes a block over, and its timeout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandOverTerms {
    /// The process, as operators know it: `the volume server at 10.0.0.7:8080`.
    pub process: String,
    /// Its timeout.
    pub limit: Duration,
}

impl Delivery {
    /// Writes bytes, see [`Intake::write_at`].
    ///
    /// # Errors
    /// As [`Intake::write_at`].
    pub fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<(), BlockError> {
        match self {
            Self::Taken(intake) => intake.write_at(offset, bytes),
            Self::Published(writer) => writer.write_at(offset, bytes),
            Self::HandedOver(writer) => writer.write_at(offset, bytes),
        }
    }

    /// Whether writing may wait for a medium.
    pub fn may_wait(&self) -> bool {
        match self {
            Self::Taken(intake) => intake.may_wait(),
            Self::Published(writer) => writer.may_wait(),
            Self::HandedOver(writer) => writer.may_wait(),
        }
    }

    /// A reader, see [`Intake::reader`].
    ///
    /// # Errors
    /// [`BlockError`].
    pub fn reader(&self) -> Result<Arc<dyn BlockReader>, BlockError> {
        match self {
            Self::Taken(intake) => intake.reader(),
            Self::Published(writer) => writer.reader(),
            Self::HandedOver(writer) => writer.reader(),
        }
    }

    /// The block in the making; `None` if nothing is stored.
    pub fn block(&mut self) -> Option<&mut dyn BlockWriter> {
        match self {
            Self::Taken(_) => None,
            Self::Published(writer) => Some(&mut **writer),
            Self::HandedOver(writer) => Some(&mut **writer),
        }
    }

    /// The terms of the hand-over, if the store's own process takes the block over.
    pub fn terms(&self) -> Option<HandOverTerms> {
        match self {
            Self::HandedOver(writer) => Some(writer.terms()),
            Self::Taken(_) | Self::Published(_) => None,
        }
    }
}
