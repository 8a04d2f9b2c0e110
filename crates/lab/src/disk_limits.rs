//! [`DiskLimits`]: limits the rate at which helpers read from their disks. Reads from the page cache are not
//! limited.
//!
//! Each helper is in a control group of its own, with the controller blkio of cgroups v1. (In cgroups v2, the
//! lab's own group has processes, so its children cannot have controllers.)

use std::fs;
use std::path::{Path, PathBuf};

use cluster::Bandwidth;

use crate::error::LabError;
use crate::medium::whole_device;
use crate::network::Names;

/// The file of a group with the limit in bytes per second of each device.
const LIMIT: &str = "blkio.throttle.read_bps_device";

/// The control groups of helpers, and their limit. They are removed with the network.
#[derive(Debug)]
pub(crate) struct DiskLimits {
    groups: PathBuf,
    device: String,
    bytes_per_s: u64,
}

impl DiskLimits {
    /// Moves helpers, given by name and process id, into groups without a limit so far. `folder` is on the
    /// device whose reads will be limited.
    ///
    /// # Errors
    /// [`LabError::NoDiskLimits`], [`LabError::File`].
    pub(crate) fn new<'a>(
        names: &Names,
        folder: &Path,
        rate: Bandwidth,
        helpers: impl Iterator<Item = (&'a str, u32)>,
    ) -> Result<Self, LabError> {
        let cannot = || LabError::NoDiskLimits { path: folder.to_owned() };
        let groups = names.disk_group().ok_or_else(cannot)?;
        let device = whole_device(folder).ok_or_else(cannot)?;
        let limits = Self { groups, device, bytes_per_s: rate.bytes_per_second() as u64 };
        for (helper, process) in helpers {
            limits.add(helper, process)?;
        }
        Ok(limits)
    }

    fn add(&self, helper: &str, process: u32) -> Result<(), LabError> {
        let group = self.groups.join(helper);
        fs::create_dir_all(&group).map_err(LabError::file("create", &group))?;
        let processes = group.join("cgroup.procs");
        fs::write(&processes, process.to_string()).map_err(LabError::file("write", &processes))
    }

    /// Limits the reads of these helpers, or ends the limit.
    ///
    /// # Errors
    /// [`LabError::File`].
    pub(crate) fn set(&self, helpers: &[String], limited: bool) -> Result<(), LabError> {
        let bytes_per_s = if limited { self.bytes_per_s } else { 0 }; // The kernel takes 0 as no limit.
        for helper in helpers {
            let file = self.groups.join(helper).join(LIMIT);
            let text = format!("{} {bytes_per_s}", self.device);
            fs::write(&file, text).map_err(LabError::file("write", &file))?;
        }
        Ok(())
    }
}
