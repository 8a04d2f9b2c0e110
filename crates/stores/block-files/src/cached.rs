//! The page cache: reads that never wait for the medium, read-ahead, and reads that must reach the medium.

use std::fs::File;
use std::io::IoSliceMut;
use std::num::NonZeroU64;
use std::path::Path;

use rustix::fs::{Advice, CWD, Mode, OFlags, ResolveFlags, fadvise, openat2};
use rustix::io::{ReadWriteFlags, preadv2};

/// The system is asked for so many bytes at once to read ahead. Of more it may drop what is beyond its own bound, which
/// on Linux is the device's `read_ahead_kb`, 128 unless somebody changed it, or its largest request if that is more.
pub const ASKED_AT_ONCE_BYTES: u64 = 128 << 10;

/// Asks the system to forget what it has cached of so many bytes, or of all from an offset on, so that the medium itself is
/// read. What is not on the medium yet stays.
pub fn forget(file: &File, offset: u64, bytes: Option<NonZeroU64>) {
    // Advice only: where it cannot be followed, the cache is what every reader gets.
    let _ = fadvise(file, offset, bytes, Advice::DontNeed);
}

/// Opens a file whose name can be looked up without waiting.
pub fn open_cached(path: &Path) -> Option<File> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    openat2(CWD, path, flags, Mode::empty(), ResolveFlags::CACHED).ok().map(File::from)
}

/// Fills `buffer` from the page cache; `false` if not all of it is there, or the file system cannot tell.
pub fn read_exact_cached(file: &File, buffer: &mut [u8], offset: u64) -> bool {
    let wanted = buffer.len();
    let read = preadv2(file, &mut [IoSliceMut::new(buffer)], offset, ReadWriteFlags::NOWAIT);
    // Whatever is wrong, the read that waits will find and report.
    read == Ok(wanted)
}
