//! Reports that are kept as JSON files, so that an interrupted measurement continues.
//!
//! Results add up if they have the same commit and machine. The report of another commit or machine is set aside. Results
//! of code with local changes go to a file of their own, and are never continued.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::command::write_json;
use crate::error::LabError;
use crate::machine::Machine;

/// A report of one machine and one commit.
pub(crate) trait Kept: Serialize + DeserializeOwned {
    /// Creates a report without results.
    fn begin(machine: Machine) -> Self;
    /// Returns the machine and the commit of the results.
    fn machine(&self) -> &Machine;
}

/// Reads the report in a file, or begins one.
///
/// # Errors
/// [`LabError::File`], also if the file is no report.
pub(crate) fn resume<R: Kept>(file: &Path, machine: Machine) -> Result<R, LabError> {
    let Some(kept) = read::<R>(file)? else { return Ok(R::begin(machine)) };
    if is_settled(&machine) && *kept.machine() == machine {
        return Ok(kept);
    }
    if is_settled(&machine) {
        let aside = file.with_extension(format!("{}.json", kept.machine().commit));
        fs::rename(file, &aside).map_err(LabError::file("set aside", file))?;
    }
    Ok(R::begin(machine))
}

/// Writes a report.
///
/// # Errors
/// [`LabError::File`].
pub(crate) fn save<R: Kept>(report: &R, file: &Path) -> Result<(), LabError> {
    write_json(&file_of(report, file), report)
}

fn file_of<R: Kept>(report: &R, file: &Path) -> PathBuf {
    if is_settled(report.machine()) { file.to_owned() } else { file.with_extension("modified.json") }
}

fn read<R: Kept>(file: &Path) -> Result<Option<R>, LabError> {
    match fs::read(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        text => {
            let text = text.map_err(LabError::file("read", file))?;
            serde_json::from_slice(&text)
                .map(Some)
                .map_err(|error| LabError::file("understand", file)(error.into()))
        }
    }
}

/// Whether the commit is known and the code had no local changes.
fn is_settled(machine: &Machine) -> bool {
    !machine.commit.ends_with('+') && machine.commit != "unknown"
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    struct Noted {
        machine: Machine,
        results: Vec<u32>,
    }

    impl Kept for Noted {
        fn begin(machine: Machine) -> Self {
            Self { machine, results: Vec::new() }
        }
        fn machine(&self) -> &Machine {
            &self.machine
        }
    }

    fn noted(commit: &str, results: &[u32]) -> Noted {
        Noted {
            machine: Machine { commit: commit.to_owned(), ..Machine::this() },
            results: results.to_owned(),
        }
    }

    fn resumed(file: &Path, commit: &str) -> Noted {
        resume(file, noted(commit, &[]).machine).unwrap()
    }

    #[test]
    fn results_of_another_commit_are_set_aside() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("reports/x.json");
        let first = noted("0123456789ab", &[1, 2]);
        save(&first, &file).unwrap();
        assert_eq!(resumed(&file, "0123456789ab"), first);
        assert!(resumed(&file, "ba9876543210").results.is_empty());
        assert!(!file.exists());
        assert_eq!(read(&folder.path().join("reports/x.0123456789ab.json")).unwrap(), Some(first));
    }

    #[test]
    fn results_with_local_changes_replace_no_others() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("x.json");
        let settled = noted("0123456789ab", &[1]);
        save(&settled, &file).unwrap();
        save(&noted("0123456789ab+", &[9]), &file).unwrap();
        assert!(resumed(&file, "0123456789ab+").results.is_empty());
        assert_eq!(resumed(&file, "0123456789ab"), settled);
    }

    #[test]
    fn a_file_that_is_no_report_is_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("x.json");
        fs::write(&file, "{\"machine\":").unwrap();
        let error = resume::<Noted>(&file, Machine::this()).unwrap_err().to_string();
        assert!(error.contains("x.json"), "{error}");
        assert_eq!(fs::read_to_string(&file).unwrap(), "{\"machine\":");
    }
}
