//! Installs the programs of a system on first use.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Runs `script`, which installs a system into a folder unless that folder already contains the system.
/// Returns the folder: the value of the environment variable `variable` or, by default, `folder` in the
/// checkout of the repository.
///
/// # Errors
/// The reason for the failure, as text for users.
pub fn installed(script: &str, variable: &str, folder: &str) -> Result<PathBuf, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folder = std::env::var_os(variable).map_or_else(|| root.join(folder), PathBuf::from);
    match Command::new(root.join(script)).arg(&folder).status() {
        Ok(status) if status.success() => Ok(folder),
        Ok(status) => Err(format!("{script} failed ({status})")),
        Err(error) => Err(format!("{script}: {error}")),
    }
}
