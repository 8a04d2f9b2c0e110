//! The page cache: reads that never wait for the medium, read-ahead, and reads that must reach the medium.

use std::fs::File;
use std::io::{self, IoSliceMut};
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{Advice, CWD, Mode, OFlags, ResolveFlags, fadvise, openat2};
use rustix::io::{ReadWriteFlags, preadv2};

/// Bytes per read-ahead request. Linux may drop the part of a larger request beyond the device's
/// `read_ahead_kb` (128 by default) or the device's largest I/O request, whichever is greater.
const ASKED_AT_ONCE_BYTES: u64 = 128 << 10;

/// Asks the system to drop cached pages of `bytes` bytes from `offset` on (`None`: to the end of the file),
/// so that later reads reach the medium. Dirty pages stay cached.
pub fn forget(file: &File, offset: u64, bytes: Option<NonZeroU64>) {
    // Advice only. If the system ignores it, reads are served from the cache.
    let _ = fadvise(file, offset, bytes, Advice::DontNeed);
}

/// Asks the system to drop all cached bytes of a file, see [`forget`].
pub fn forget_all(file: &File) {
    forget(file, 0, None);
}

/// Asks the system to read a range ahead.
pub fn read_ahead(file: &File, bytes: Range<u64>) {
    for offset in bytes.clone().step_by(ASKED_AT_ONCE_BYTES as usize) {
        let length = NonZeroU64::new(ASKED_AT_ONCE_BYTES.min(bytes.end - offset));
        // Advice only: if the system ignores it, later reads wait for the medium.
        let _ = fadvise(file, offset, length, Advice::WillNeed);
    }
}

/// Opens a regular file if its name can be looked up without waiting for the medium.
pub fn open_cached(path: &Path) -> Option<File> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = openat2(CWD, path, flags, Mode::empty(), ResolveFlags::CACHED).ok().map(File::from)?;
    file.metadata().is_ok_and(|found| found.is_file()).then_some(file)
}

/// Fills `buffer` from the page cache. Returns `false` if some bytes are not cached, or if the file system
/// does not support reads that never wait.
pub fn read_exact_cached(file: &File, buffer: &mut [u8], offset: u64) -> bool {
    let wanted = buffer.len();
    let read = preadv2(file, &mut [IoSliceMut::new(buffer)], offset, ReadWriteFlags::NOWAIT);
    // Errors are ignored here; the blocking read that follows reports them.
    read == Ok(wanted)
}

/// Whether a read may block on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Only bytes in the page cache are read.
    Never,
    /// The read waits.
    AsLongAsItTakes,
}

/// Fills `buffer`. Returns `false` if some bytes are not cached and `wait` forbids waiting for the disk.
///
/// # Errors
/// I/O errors, but only if the read may wait.
pub fn read_exact(file: &File, buffer: &mut [u8], offset: u64, wait: Wait) -> io::Result<bool> {
    match wait {
        Wait::Never => Ok(read_exact_cached(file, buffer, offset)),
        Wait::AsLongAsItTakes => file.read_exact_at(buffer, offset).map(|()| true),
    }
}
