//! Implements `mend lab …` by starting the program `mend-lab`. The lab is a program of its own because
//! machines that only run helpers do not need it.

use std::env;
use std::ffi::OsStr;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::args::LabArgs;
use crate::failure::Failure;

const PROGRAM: &str = "mend-lab";

/// Replaces this process by `mend-lab`, which measures this `mend` unless `MEND_BINARY` names another.
/// Returns only on failure.
pub fn start(args: &LabArgs) -> Failure {
    let own = env::current_exe().ok();
    let Some(lab) = find(own.as_deref(), &env::var_os("PATH").unwrap_or_default()) else {
        return Failure::new(format!("the program {PROGRAM} is neither next to mend nor on PATH"))
            .help("build it with `cargo build --release -p lab`");
    };
    let mut command = Command::new(&lab);
    command.args(&args.words);
    if let (Some(own), None) = (own, env::var_os("MEND_BINARY")) {
        command.env("MEND_BINARY", own);
    }
    let error: io::Error = command.exec();
    Failure::new(format!("cannot start {}: {error}", lab.display()))
}

fn find(own: Option<&Path>, path: &OsStr) -> Option<PathBuf> {
    let beside = own.and_then(Path::parent).map(Path::to_owned);
    let mut folders = beside.into_iter().chain(env::split_paths(path));
    folders.find_map(|folder| Some(folder.join(PROGRAM)).filter(|lab| lab.is_file()))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_lab_beside_this_program_comes_before_those_on_path() {
        let folders =
            [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let [beside, empty, other] = folders.each_ref().map(|folder| folder.path());
        let path = env::join_paths([empty, other]).unwrap();
        let own = beside.join("mend");
        assert_eq!(find(Some(&own), &path), None);
        fs::write(other.join(PROGRAM), "").unwrap();
        assert_eq!(find(Some(&own), &path), Some(other.join(PROGRAM)));
        assert_eq!(find(None, &path), Some(other.join(PROGRAM)));
        fs::write(beside.join(PROGRAM), "").unwrap();
        assert_eq!(find(Some(&own), &path), Some(beside.join(PROGRAM)));
    }
}
