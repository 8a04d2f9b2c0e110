//! Where bytes come from and where they go: the one seam between an engine and what is outside of it.
//!
//! [`Sources`] opens what an assignment reads, [`Sinks`] what it delivers to. A node's store is both ([`Blocks`] asks for
//! them); a client's request brings one of the two along. A sink is opened as a [`Delivery`], and its variant says what
//! can be done with it once everything has come:
//!
//! ```text
//!  Taken       write_at … ─▶ reader                      whoever asked has the bytes
//!  Published   write_at … ─▶ seal ─▶ reader ─▶ commit     a block of the store, by a rename of ours
//!  HandedOver  prepare ─▶ write_at … ─▶ seal ─▶ reader ─▶ hand_over
//!                                                         a block of the store, once its own process shows it
//! ```
//!
//! So nothing that is only taken can be sealed or committed, and nobody has to stub that. What shows its bytes to readers
//! while they still come fits into the last line: it is claimed in [`prepare`](HandOver::prepare), writes make it readable,
//! and [`hand_over`](HandOver::hand_over) ends it; only dropping it must take the claim back.
//!
//! [`Blocks`]: crate::Blocks

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use repair::{Digest, LocalBlock, Sink};

use crate::{BlockError, BlockReader, Gate, StoredBlock};

/// Something that is not done yet. Whoever polls it has a runtime with sockets and time; work that waits for a disk
/// belongs on a thread that may wait.
pub type Later<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What an assignment's blocks are read from. Called from threads that may wait, but for what says otherwise.
pub trait Sources: Send + Sync + 'static {
    /// Opens a block for reading at any offset.
    ///
    /// # Errors
    /// [`BlockError`]; a length that contradicts the checksums is found here.
    fn open(&self, block: &LocalBlock) -> Result<Arc<dyn BlockReader>, BlockError>;

    /// Like [`open`](Self::open), but never waits for a medium or a lock: `None` if that would take waiting, or
    /// something is wrong, which [`open`](Self::open) then says. What cannot tell leaves it at that.
    fn open_if_cached(&self, block: &LocalBlock) -> Option<Arc<dyn BlockReader>> {
        let _ = block;
        None
    }
}

/// Where an assignment's deliveries go. Called from threads that may wait.
pub trait Sinks: Send + Sync + 'static {
    /// Opens a sink. Offsets are those of the block, whatever part of it comes.
    ///
    /// # Errors
    /// [`BlockError`]; [`NoSpace`](BlockError::NoSpace) already here if the space can be seen to be short.
    fn deliver(&self, sink: &Sink) -> Result<Delivery, BlockError>;
}

/// An open sink, and what can be done with it in the end. Dropping it before that leaves nothing of it.
pub enum Delivery {
    /// The bytes are where whoever asked for them wants them. Nothing is kept.
    Taken(Box<dyn Taker>),
    /// They become a block of a store whose files are ours to rename.
    Published(Box<dyn Publish>),
    /// They become a block of a store whose own process must take it over.
    HandedOver(Box<dyn HandOver>),
}

/// What takes bytes. Writes may come in any order and may overlap; in the end every byte has been written at least once.
pub trait Intake: Send {
    /// Writes `bytes` at `offset`.
    ///
    /// # Errors
    /// [`BlockError::NoSpace`], [`BlockError::Io`].
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<(), BlockError>;

    /// Whether [`write_at`](Self::write_at) may wait for a medium. Only what goes to memory does not.
    fn may_wait(&self) -> bool {
        true
    }
}

/// A place of whoever asked for the bytes: memory, a file, a pipe.
pub trait Taker: Intake {
    /// A reader of what has come, so that it can be held against blocks that were not needed.
    ///
    /// # Errors
    /// [`BlockError`].
    fn reader(&self) -> Result<Arc<dyn BlockReader>, BlockError>;
}

/// A block of a store, being made. Nothing is visible under its name yet.
pub trait BlockWriter: Intake {
    /// Makes all that was written durable and returns the block's digest, if the store has digests. May be
    /// called again after more writes.
    ///
    /// # Errors
    /// [`BlockError`]; a byte that was never written is [`Corrupt`](BlockError::Corrupt).
    fn seal(&mut self) -> Result<Option<Digest>, BlockError>;

    /// A reader of what was sealed.
    ///
    /// # Errors
    /// [`BlockError`]; [`Corrupt`](BlockError::Corrupt) if it was written to since.
    fn reader(&self) -> Result<Arc<dyn StoredBlock>, BlockError>;
}

/// A block that becomes one of the store by a rename.
pub trait Publish: BlockWriter {
    /// Has what is written read back behind the writer, as it becomes durable and `gate` lets it pass, so that little of the
    /// block is left to read when it is committed. What reads back other bytes is an error of a later write or of the seal.
    /// A store that reads blocks back only whole leaves it at that.
    fn read_back_behind(&mut self, gate: Arc<dyn Gate>) {
        let _ = gate;
    }

    /// Makes the sealed block visible under its name, atomically and durably, replacing one that was there. What is given
    /// back knows what is left to be read back of it; without, all of it is, see [`Blocks::verify`].
    ///
    /// # Errors
    /// [`BlockError`]; then nothing has become visible.
    ///
    /// [`Blocks::verify`]: crate::Blocks::verify
    fn commit(self: Box<Self>) -> Result<Option<Box<dyn ReadBack>>, BlockError>;
}

/// A block that was just committed, and of which most may have been read back. Dropping it ends the reading.
pub trait ReadBack: Send {
    /// Reads the rest back, on a thread that may wait, and gives the digest of what stands under the block's name. All its
    /// bytes and whatever the store checks them by were read from the medium then, after they were durable. If by now
    /// something else stands there, that is read as by [`StoredBlock::verify`], as `gate` lets it pass.
    ///
    /// # Errors
    /// As [`StoredBlock::verify`].
    fn finish(self: Box<Self>, gate: &dyn Gate) -> Result<Option<Digest>, BlockError>;
}

/// A block that becomes one of the store when the store's own process has taken it over.
pub trait HandOver: BlockWriter {
    /// Asks before a byte moves whether the process would take the block: it can be reached, nobody else works on the
    /// stripe, nothing has the block's place. What it must be told beforehand it is told now; dropping the writer takes
    /// that back.
    ///
    /// # Errors
    /// [`BlockError::Process`].
    fn prepare(&mut self) -> Later<'_, Result<(), BlockError>>;

    /// Who takes it over, and for how long that may take at most.
    fn terms(&self) -> HandOverTerms;

    /// Has the process take over the sealed block; done when it has confirmed that every reader of the store finds it.
    /// Asks again first what [`prepare`](Self::prepare) asked: much may have changed since.
    ///
    /// It may be dropped before it is done, and a process may do what it was asked although its answer is lost. So
    /// whatever step it stops at, no other bytes may be served than those that were sealed, and handing the same block
    /// over again must end well.
    ///
    /// # Errors
    /// [`BlockError`]. Whether the process has the block is not known then.
    fn hand_over(self: Box<Self>) -> Later<'static, Result<(), BlockError>>;
}

/// Who takes a block over, and how patiently it is waited for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandOverTerms {
    /// The process, as people know it: `the volume server at 10.0.0.7:8080`.
    pub process: String,
    /// After this long it counts as failed.
    pub limit: Duration,
}

impl Delivery {
    /// Takes bytes, see [`Intake::write_at`].
    ///
    /// # Errors
    /// As [`Intake::write_at`].
    pub fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<(), BlockError> {
        match self {
            Self::Taken(taker) => taker.write_at(offset, bytes),
            Self::Published(writer) => writer.write_at(offset, bytes),
            Self::HandedOver(writer) => writer.write_at(offset, bytes),
        }
    }

    /// Whether writing may wait for a medium.
    pub fn may_wait(&self) -> bool {
        match self {
            Self::Taken(taker) => taker.may_wait(),
            Self::Published(writer) => writer.may_wait(),
            Self::HandedOver(writer) => writer.may_wait(),
        }
    }

    /// A reader of what has come; of a block that is being made, of what was sealed.
    ///
    /// # Errors
    /// [`BlockError`].
    pub fn reader(&self) -> Result<Arc<dyn BlockReader>, BlockError> {
        Ok(match self {
            Self::Taken(taker) => taker.reader()?,
            Self::Published(writer) => writer.reader()?,
            Self::HandedOver(writer) => writer.reader()?,
        })
    }

    /// The block that is being made; `None` if nothing is kept.
    pub fn block(&mut self) -> Option<&mut dyn BlockWriter> {
        match self {
            Self::Taken(_) => None,
            Self::Published(writer) => Some(&mut **writer),
            Self::HandedOver(writer) => Some(&mut **writer),
        }
    }

    /// How the store's own process takes it over, if one does.
    pub fn terms(&self) -> Option<HandOverTerms> {
        match self {
            Self::HandedOver(writer) => Some(writer.terms()),
            Self::Taken(_) | Self::Published(_) => None,
        }
    }
}
