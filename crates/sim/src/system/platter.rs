//! The medium of the coordinator's catalog, as a storage backend of redb: synced writes stay, others may be
//! lost with the machine, and writes may fail.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redb::StorageBackend;

use crate::dice::Dice;

/// A medium, which outlives the processes that use it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Platter(Arc<Mutex<Medium>>);

/// A process's access to a platter, which ends with the process.
#[derive(Debug)]
pub(crate) struct Handle {
    platter: Platter,
    life: u32,
}

#[derive(Debug, Default)]
struct Medium {
    bytes: Vec<u8>,
    /// Writes since the last sync, with what was there before.
    unsynced: Vec<Unsynced>,
    /// Counts processes: handles of earlier ones are of no use.
    life: u32,
    /// How many writes and syncs go well before one fails, and whether only that one does.
    fails_after: Option<(u32, bool)>,
}

#[derive(Debug)]
struct Unsynced {
    offset: usize,
    before: Vec<u8>,
    after: Vec<u8>,
}

impl Platter {
    /// A copy of its contents.
    pub(crate) fn copy(&self) -> Self {
        let bytes = self.medium().bytes.clone();
        Self(Arc::new(Mutex::new(Medium { bytes, ..Medium::default() })))
    }

    /// Access for the process that runs now.
    pub(crate) fn handle(&self) -> Handle {
        let life = self.medium().life;
        Handle { platter: self.clone(), life }
    }

    /// The process that uses it has ended; its writes stay.
    pub(crate) fn let_go(&self) {
        self.medium().life += 1;
    }

    /// The machine loses power, and any part of the unsynced writes.
    pub(crate) fn lose_power(&self, dice: &mut Dice) {
        let medium = &mut *self.medium();
        medium.life += 1;
        let unsynced = std::mem::take(&mut medium.unsynced);
        for write in unsynced.iter().rev() {
            medium.put(write.offset, &write.before);
        }
        let keeps = dice.below(3);
        for write in &unsynced {
            if keeps == 0 || (keeps == 1 && dice.one_in(2)) {
                medium.put(write.offset, &write.after);
            }
        }
    }

    /// The write or sync after so many fails, alone (`true`) or with all that follow; `None`: none does any
    /// more.
    pub(crate) fn fail_after(&self, writes: Option<(u32, bool)>) {
        self.medium().fails_after = writes;
    }

    /// Another catalog is put in its place.
    pub(crate) fn replace(&self, other: &Self) {
        let bytes = other.medium().bytes.clone();
        let medium = &mut *self.medium();
        (medium.bytes, medium.unsynced) = (bytes, Vec::new());
    }

    fn medium(&self) -> MutexGuard<'_, Medium> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Medium {
    fn put(&mut self, offset: usize, bytes: &[u8]) {
        let end = self.bytes.len().min(offset + bytes.len());
        if offset < end {
            self.bytes[offset..end].copy_from_slice(&bytes[..end - offset]);
        }
    }

    /// Whether a write may be carried out.
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
        medium.unsynced.clear();
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut medium = self.medium()?;
        medium.check_write()?;
        let (start, end) = (offset as usize, offset as usize + data.len());
        let before = medium.bytes.get(start..end).ok_or(io::ErrorKind::UnexpectedEof)?.to_vec();
        medium.unsynced.push(Unsynced { offset: start, before, after: data.to_vec() });
        medium.bytes[start..end].copy_from_slice(data);
        Ok(())
    }
}
