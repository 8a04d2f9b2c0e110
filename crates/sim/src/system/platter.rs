//! The medium of the coordinator's catalog, as a storage backend of redb. Synced writes are durable, other
//! writes may be lost in a power failure, and any write may fail.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redb::StorageBackend;

use crate::dice::Dice;

/// A medium. It outlives the processes that use it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Platter(Arc<Mutex<Medium>>);

/// A process's access to a medium. It becomes invalid when the process ends.
#[derive(Debug)]
pub(crate) struct Handle {
    platter: Platter,
    life: u32,
}

#[derive(Debug, Default)]
struct Medium {
    bytes: Vec<u8>,
    /// Writes since the last sync.
    unsynced: Vec<Unsynced>,
    /// For each unsynced write, the overwritten bytes and the written bytes.
    log: Vec<u8>,
    /// Number of processes so far. Handles of earlier processes are invalid.
    life: u32,
    /// Number of writes and syncs that still succeed before one fails, and whether only that one fails.
    fails_after: Option<(u32, bool)>,
}

/// A write that may be lost.
#[derive(Debug)]
struct Unsynced {
    offset: usize,
    bytes: usize,
    /// Position of the overwritten bytes in the log; the written bytes follow.
    logged: usize,
}

impl Platter {
    /// Copies the contents to a new medium.
    pub(crate) fn copy(&self) -> Self {
        let bytes = self.medium().bytes.clone();
        Self(Arc::new(Mutex::new(Medium { bytes, ..Medium::default() })))
    }

    /// Opens the medium for the running process.
    pub(crate) fn handle(&self) -> Handle {
        let life = self.medium().life;
        Handle { platter: self.clone(), life }
    }

    /// Handles the end of the process. All writes of the process are kept.
    pub(crate) fn let_go(&self) {
        self.medium().life += 1;
    }

    /// Handles a power failure: any part of the unsynced writes is lost.
    pub(crate) fn lose_power(&self, dice: &mut Dice) {
        let medium = &mut *self.medium();
        medium.life += 1;
        let unsynced = std::mem::take(&mut medium.unsynced);
        let log = std::mem::take(&mut medium.log);
        for write in unsynced.iter().rev() {
            medium.put(write.offset, &log[write.logged..][..write.bytes]);
        }
        let keeps = dice.below(3);
        for write in &unsynced {
            if keeps == 0 || (keeps == 1 && dice.one_in(2)) {
                medium.put(write.offset, &log[write.logged + write.bytes..][..write.bytes]);
            }
        }
    }

    /// Makes a write or sync fail after the given number of successful ones. If the flag is true, later ones
    /// succeed again; otherwise they fail as well. `None` ends the failures.
    pub(crate) fn fail_after(&self, writes: Option<(u32, bool)>) {
        self.medium().fails_after = writes;
    }

    /// Replaces the contents by those of another medium.
    pub(crate) fn replace(&self, other: &Self) {
        let bytes = other.medium().bytes.clone();
        let medium = &mut *self.medium();
        medium.bytes = bytes;
        medium.forget_writes();
    }

    fn medium(&self) -> MutexGuard<'_, Medium> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Medium {
    /// Makes all writes durable.
    fn forget_writes(&mut self) {
        self.unsynced.clear();
        self.log.clear();
    }

    fn put(&mut self, offset: usize, bytes: &[u8]) {
        let end = self.bytes.len().min(offset + bytes.len());
        if offset < end {
            self.bytes[offset..end].copy_from_slice(&bytes[..end - offset]);
        }
    }

    /// Returns an error if the write or sync must fail.
    fn check_write(&mut self) -> io::Result<()> {
        match &mut self.fails_after {
            None => Ok(()),
            Some((0, once)) => {
                if *once {
                    self.fails_after = None;
                }
                Err(io::ErrorKind::StorageFull.into())
            }
            Some((left, _)) => {
                *left -= 1;
                Ok(())
            }
        }
    }
}

impl Handle {
    fn medium(&self) -> io::Result<MutexGuard<'_, Medium>> {
        let medium = self.platter.medium();
        if medium.life == self.life { Ok(medium) } else { Err(io::Error::other("the process is gone")) }
    }
}

impl StorageBackend for Handle {
    fn len(&self) -> io::Result<u64> {
        Ok(self.medium()?.bytes.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let medium = self.medium()?;
        let found = medium.bytes.get(offset as usize..).and_then(|bytes| bytes.get(..out.len()));
        out.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut medium = self.medium()?;
        medium.check_write()?;
        medium.bytes.resize(len as usize, 0);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut medium = self.medium()?;
        medium.check_write()?;
        medium.forget_writes();
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut medium = self.medium()?;
        medium.check_write()?;
        let Medium { bytes: held, unsynced, log, .. } = &mut *medium;
        let (offset, bytes) = (offset as usize, data.len());
        let before = held.get_mut(offset..offset + bytes).ok_or(io::ErrorKind::UnexpectedEof)?;
        unsynced.push(Unsynced { offset, bytes, logged: log.len() });
        log.extend_from_slice(before);
        log.extend_from_slice(data);
        before.copy_from_slice(data);
        Ok(())
    }
}
