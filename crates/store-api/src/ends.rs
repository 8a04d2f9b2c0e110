//! Sources and sinks of bytes: the interface between the engine of a helper or client and its storage.
//!
//! [`Sources`] opens the blocks that an assignment reads, [`Sinks`] the destinations to which it delivers. A
//! node's store implements both ([`Blocks`] extends them); a client's request implements one of the two. An
//! open sink is a [`Delivery`], whose variant determines the steps after all bytes have arrived:
//!
//! ```text
//!  Taken       write_at … ─▶ reader                      the client has the bytes; nothing is stored
//!  Published   write_at … ─▶ seal ─▶ reader ─▶ commit     Mend renames the block into the store
//!  HandedOver  prepare ─▶ write_at … ─▶ seal ─▶ reader ─▶ hand_over
//!                                                         the store's own process takes the block over
//! ```
//!
//! [`Delivery::Taken`] has only [`Intake`], which can neither seal nor commit, so an intake needs no stubs
//! for these steps. A store that lets readers see a block while it is being written uses
//! [`Delivery::HandedOver`]: `prepare` claims the block, each write becomes readable, `hand_over` completes
//! the block, and dropping the writer withdraws the claim.
//!
//! [`Blocks`]: crate::Blocks

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use repair::{Digest, LocalBlock, Sink};

use crate::{BlockError, BlockReader, Gate};

/// A boxed future. It is polled on an async runtime with sockets and timers, so it must move disk I/O to a
/// thread that may block.
pub type Later<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Opens the blocks that an assignment reads. Called on threads that may block, except where noted.
pub trait Sources: Send + Sync + 'static {
    /// Opens a block for reads at any offset.
    ///
    /// # Errors
    /// [`BlockError`]; a length that contradicts the checksums is detected here.
    fn open(&self, block: &LocalBlock) -> Result<Arc<dyn BlockReader>, BlockError>;

    /// Like [`open`](Self::open), but never waits for a medium or a lock. Returns `None` if it would have to
    /// wait, or on an error, which [`open`](Self::open) then reports.
    fn open_if_cached(&self, block: &LocalBlock) -> Option<Arc<dyn BlockReader>> {
        let _ = block;
        None
    }
}

/// Opens the sinks of an assignment. Called on threads that may block.
pub trait Sinks: Send + Sync + 'static {
    /// Opens a sink. Offsets are relative to the start of the block, even if only a part of the block is
    /// delivered.
    ///
    /// # Errors
    /// [`BlockError`]; [`NoSpace`](BlockError::NoSpace) if the medium already has too little free space.
    fn deliver(&self, sink: &Sink) -> Result<Delivery, BlockError>;
}

/// An open sink. The variant determines how the bytes are published. Dropping an unfinished sink discards its
/// bytes.
pub enum Delivery {
    /// The requestor receives the bytes; nothing is stored.
    Taken(Box<dyn Intake>),
    /// The bytes become a block of a store in which Mend may rename files.
    Published(Box<dyn Publish>),
    /// The bytes become a block that Mend hands over to the store's own process.
    HandedOver(Box<dyn HandOver>),
}

/// Receives bytes. Writes may arrive in any order and may overlap. A delivery that succeeds has written every
/// byte at least once.
pub trait Intake: Send {
    /// Writes `bytes` at `offset`.
    ///
    /// # Errors
    /// [`BlockError::NoSpace`], [`BlockError::Io`].
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<(), BlockError>;

    /// Whether [`write_at`](Self::write_at) may wait for a medium; `false` for sinks in memory.
    fn may_wait(&self) -> bool {
        true
    }

    /// Returns a reader of the bytes written so far, or of the sealed block if this is a [`BlockWriter`].
    /// Parity checks use this reader.
    ///
    /// # Errors
    /// [`BlockError`]; [`Corrupt`](BlockError::Corrupt) if the block was written to after it was sealed.
    fn reader(&self) -> Result<Arc<dyn BlockReader>, BlockError>;
}

/// A block that is being written and has no visible name yet.
pub trait BlockWriter: Intake {
    /// Makes all writes durable and returns the block's digest if the store has digests. May be called again
    /// after further writes.
    ///
    /// # Errors
    /// [`BlockError`]; [`Corrupt`](BlockError::Corrupt) if some byte was never written.
    fn seal(&mut self) -> Result<Option<Digest>, BlockError>;
}

/// A block that becomes visible by a rename.
pub trait Publish: BlockWriter {
    /// Verifies durable parts of the block while later parts are still being written, so that little is left
    /// to read back after the commit. `gate` limits the rate. If a mismatch is found, a later write or the
    /// seal fails. The default does nothing; the whole block is then read back after the commit.
    fn read_back_behind(&mut self, gate: Arc<dyn Gate>) {
        let _ = gate;
    }

    /// Makes the sealed block visible under its name, atomically and durably, and replaces an earlier block
    /// of that name. Returns the rest of the read-back that [`read_back_behind`](Self::read_back_behind)
    /// began. If there is none, the caller must read the whole block with
    /// [`Blocks::verify`](crate::Blocks::verify).
    ///
    /// # Errors
    /// [`BlockError`]; the block is not visible then.
    fn commit(self: Box<Self>) -> Result<Option<ReadBack>, BlockError>;
}

/// The rest of the read-back of a block that was just committed; runs on a thread that may block. It returns
/// the digest of the block that is now visible under the name. When it returns, all bytes and checksums of
/// the block have become durable and have then been read from the medium. Errors are those of
/// [`Blocks::verify`](crate::Blocks::verify). Dropping the value cancels the read-back.
pub type ReadBack = Box<dyn FnOnce(&dyn Gate) -> Result<Option<Digest>, BlockError> + Send>;

/// A block that is handed over to the store's own process.
pub trait HandOver: BlockWriter {
    /// Checks, before any byte moves, that the store's process would accept the block: that the process is
    /// reachable, that no other writer has locked the stripe, and that the block's place is free. Announces
    /// the block if the process requires that; dropping the writer withdraws the announcement.
    ///
    /// # Errors
    /// [`BlockError::Process`].
    fn prepare(&mut self) -> Later<'_, Result<(), BlockError>>;

    /// Returns the name of the process that accepts the block, and the timeout of the hand-over.
    fn terms(&self) -> HandOverTerms;

    /// Hands the sealed block over. Completes when the process has confirmed that all readers of the store
    /// find the block. First repeats the checks of [`prepare`](Self::prepare), since their results may be
    /// outdated.
    ///
    /// The future may be dropped at any step, and the process may carry out a request whose response is lost.
    /// At every step, the store must serve only sealed bytes, and a second hand-over of the same block must
    /// succeed.
    ///
    /// # Errors
    /// [`BlockError`]. The process may or may not have the block then.
    fn hand_over(self: Box<Self>) -> Later<'static, Result<(), BlockError>>;
}

/// The process that accepts a block, and the timeout of the hand-over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandOverTerms {
    /// The process, as messages name it: `the volume server at 10.0.0.7:8080`.
    pub process: String,
    /// The timeout.
    pub limit: Duration,
}

impl Delivery {
    /// Writes bytes; see [`Intake::write_at`].
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

    /// Whether a write may wait for a medium.
    pub fn may_wait(&self) -> bool {
        match self {
            Self::Taken(intake) => intake.may_wait(),
            Self::Published(writer) => writer.may_wait(),
            Self::HandedOver(writer) => writer.may_wait(),
        }
    }

    /// Returns a reader of the bytes; see [`Intake::reader`].
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

    /// Returns the block that is being written; `None` if nothing is stored.
    pub fn block(&mut self) -> Option<&mut dyn BlockWriter> {
        match self {
            Self::Taken(_) => None,
            Self::Published(writer) => Some(&mut **writer),
            Self::HandedOver(writer) => Some(&mut **writer),
        }
    }

    /// Returns the terms of the hand-over; `None` if the block is not handed over.
    pub fn terms(&self) -> Option<HandOverTerms> {
        match self {
            Self::HandedOver(writer) => Some(writer.terms()),
            Self::Taken(_) | Self::Published(_) => None,
        }
    }
}
