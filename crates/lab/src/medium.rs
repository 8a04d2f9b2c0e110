//! [`Medium`]: the block device that stores the lab's blocks, and eviction of the blocks from the page cache.

use std::fs::{self, File};
use std::io;
use std::ops::Sub;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Advice, fadvise, major, minor};
use serde::{Deserialize, Serialize};

/// The size in bytes of the unit in which the kernel counts a device's reads. It does not depend on the
/// device's sector size.
const SECTOR_BYTES: u64 = 512;

/// A device's read counters, including reads by other programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DeviceReads {
    /// Completed reads, after merging by the kernel.
    pub reads: u64,
    /// Bytes read.
    pub bytes: u64,
}

/// The block device of a folder.
#[derive(Debug)]
pub(crate) struct Medium {
    counters: PathBuf,
}

impl Medium {
    /// Returns the device of a folder; `None` for a file system in memory or on several devices.
    pub(crate) fn of(folder: &Path) -> Option<Self> {
        let device = fs::metadata(folder).ok()?.dev();
        let medium =
            Self { counters: format!("/sys/dev/block/{}:{}/stat", major(device), minor(device)).into() };
        medium.reads().map(|_| medium)
    }

    /// The current counters.
    pub(crate) fn reads(&self) -> Option<DeviceReads> {
        parse(&fs::read_to_string(&self.counters).ok()?)
    }
}

/// Returns the number `MAJOR:MINOR` of the device of a folder, or of the whole disk if the device is a
/// partition. `None` for a file system in memory or on several devices.
pub(crate) fn whole_device(folder: &Path) -> Option<String> {
    let device = fs::metadata(folder).ok()?.dev();
    let number = format!("{}:{}", major(device), minor(device));
    let entry = Path::new("/sys/dev/block").join(&number);
    if !entry.exists() {
        return None;
    }
    match entry.join("partition").exists() {
        true => Some(fs::read_to_string(entry.join("../dev")).ok()?.trim().to_owned()),
        false => Some(number),
    }
}

fn parse(stat: &str) -> Option<DeviceReads> {
    let mut fields = stat.split_whitespace().map(str::parse);
    let reads = fields.next()?.ok()?;
    let sectors: u64 = fields.nth(1)?.ok()?;
    Some(DeviceReads { reads, bytes: sectors * SECTOR_BYTES })
}

impl Sub for DeviceReads {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self { reads: self.reads - before.reads, bytes: self.bytes - before.bytes }
    }
}

/// Evicts all files below a folder from the page cache.
pub(crate) fn forget_cached(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            forget_cached(&entry.path())?;
            continue;
        }
        match File::open(entry.path()) {
            Ok(file) => {
                // Sync first: dirty pages cannot be evicted.
                file.sync_all()?;
                fadvise(&file, 0, None, Advice::DontNeed)?;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {} // A helper has just removed it.
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Reads the files with this name below a folder into the page cache.
pub(crate) fn load_cached(folder: &Path, name: &str) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            load_cached(&entry.path(), name)?;
        } else if entry.file_name() == name {
            io::copy(&mut File::open(entry.path())?, &mut io::sink())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_those_of_reads() {
        let stat =
            " 2055737    65533 152353906  3361372   789040   389220 621996840  4806369  0 366136 8553889\n";
        assert_eq!(parse(stat), Some(DeviceReads { reads: 2_055_737, bytes: 152_353_906 * 512 }));
        assert_eq!(parse(""), None);
    }

    #[test]
    fn a_folder_in_memory_is_on_no_device() {
        assert!(Medium::of(Path::new("/proc")).is_none() && whole_device(Path::new("/proc")).is_none());
    }
}
