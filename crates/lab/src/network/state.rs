//! The state file of a running lab, and the detection of labs whose state file is missing.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{Names, NetworkError};
use crate::topology::Topology;

/// The state of a lab.
#[derive(Debug, Clone, PartialEq)]
pub enum Status {
    /// No lab exists.
    Down,
    /// A lab is up, and stays up although the process that created it has ended.
    Up {
        /// The lab's topology.
        topology: Box<Topology>,
        /// The folder with the lab's files, if it has a cluster.
        folder: Option<PathBuf>,
    },
    /// A process is measuring.
    Busy {
        /// The process.
        pid: u32,
    },
    /// The process that created a lab has ended without removing the lab.
    Leftovers {
        /// The remaining namespaces.
        namespaces: Vec<String>,
    },
}

/// The state file.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct State {
    /// The process that created the lab.
    pid: u32,
    /// The start time of this process in clock ticks since boot. It distinguishes the process from a later
    /// one with the same id.
    started_ticks: u64,
    /// Whether the lab outlives the process.
    pub(super) kept: bool,
    topology: Topology,
    pub(super) folder: Option<PathBuf>,
}

impl State {
    pub(super) fn begin(names: &Names, topology: &Topology) -> Result<Self, NetworkError> {
        let pid = std::process::id();
        let state = Self {
            pid,
            started_ticks: start_of(pid).unwrap_or_default(),
            kept: false,
            topology: topology.clone(),
            folder: None,
        };
        state.write(names)?;
        Ok(state)
    }

    pub(super) fn write(&self, names: &Names) -> Result<(), NetworkError> {
        // Another process must never take this lab for a dead one because it reads half of the file.
        let (path, new) = (names.state_file(), names.state_file().with_extension("new"));
        let text = serde_json::to_vec_pretty(self).expect("plain data");
        fs::write(&new, text).and_then(|()| fs::rename(&new, &path)).map_err(failed("write", &path))
    }

    fn read(names: &Names) -> Result<Option<Self>, NetworkError> {
        let path = names.state_file();
        match fs::read(&path) {
            // An unreadable file belongs to a lab that was killed while it wrote the file.
            Ok(text) => Ok(serde_json::from_slice(&text).ok()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed("read", &path)(error)),
        }
    }

    fn owner_lives(&self) -> bool {
        start_of(self.pid) == Some(self.started_ticks)
    }
}

pub(super) fn status(names: &Names) -> Result<Status, NetworkError> {
    let namespaces = namespaces(names)?;
    Ok(match State::read(names)? {
        None if namespaces.is_empty() => Status::Down,
        None => Status::Leftovers { namespaces },
        Some(state) if state.kept && !namespaces.is_empty() => {
            Status::Up { topology: Box::new(state.topology), folder: state.folder }
        }
        Some(state) if !state.kept && state.owner_lives() => Status::Busy { pid: state.pid },
        // After a reboot only the state file remains.
        Some(_) if namespaces.is_empty() => Status::Down,
        Some(_) => Status::Leftovers { namespaces },
    })
}

/// Returns the lab's namespaces, from the folder that `ip netns` maintains.
pub(super) fn namespaces(names: &Names) -> Result<Vec<String>, NetworkError> {
    let folder = Path::new("/run/netns");
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed("list", folder)(error)),
    };
    let mut found: Vec<String> = entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| names.owns(name))
        .collect();
    found.sort();
    Ok(found)
}

/// Removes the lab's folder and the state file.
pub(super) fn remove(names: &Names) -> Result<(), NetworkError> {
    // Only remove a folder with our prefix; someone may have edited the state file.
    let is_ours = |folder: &PathBuf| {
        folder.file_name().and_then(|name| name.to_str()).is_some_and(|name| names.owns(name))
    };
    if let Some(folder) = State::read(names)?.and_then(|state| state.folder).filter(is_ours) {
        match fs::remove_dir_all(&folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(failed("remove", &folder)(error));
            }
            _ => {}
        }
    }
    let path = names.state_file();
    match fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed("remove", &path)(error)),
        _ => Ok(()),
    }
}

fn failed<'a>(action: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> NetworkError + 'a {
    move |source| NetworkError::File { action, path: path.to_owned(), source }
}

/// Returns a process's start time in clock ticks since boot.
fn start_of(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The process name, in parentheses, may itself contain spaces and parentheses, so parse what follows the
    // last parenthesis.
    let (_, rest) = stat.rsplit_once(") ")?;
    rest.split_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_knows_when_it_started() {
        let own = start_of(std::process::id()).unwrap();
        assert!(own > 0);
        assert_eq!(start_of(u32::MAX), None);
    }
}
