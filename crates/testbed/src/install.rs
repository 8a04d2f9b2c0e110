//! Where a system's programs are.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The folder that a script of this repository installs into, installed now if it was not: the one that `variable` of the
/// environment names, or else `folder` of the checkout.
///
/// # Errors
/// Why it is not there, for people.
pub fn installed(script: &str, variable: &str, folder: &str) -> Result<PathBuf, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folder = std::env::var_os(variable).map_or_else(|| root.join(folder), PathBuf::from);
    match Command::new(root.join(script)).arg(&folder).status() {
        Ok(status) if status.success() => Ok(folder),
        Ok(status) => Err(format!("{script} failed ({status})")),
        Err(error) => Err(format!("{script}: {error}")),
    }
}
