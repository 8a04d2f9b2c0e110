//! Searches for the cluster folder if neither `--cluster` nor `MEND_CLUSTER` names it.
//!
//! The configuration decides to which machines files go, and which programs run. The search therefore refuses a folder that
//! another user may have made: on a shared machine, everyone can create `/tmp/mend.toml`.

use std::fs;
use std::io::{Error, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::process::geteuid;

use crate::failure::{Failure, say};
use crate::format::printable;

const CONFIG: &str = "mend.toml";
const FOLDER: &str = "mend-cluster";
const ROOT: u32 = 0;
/// The permission of users who are neither the owner nor in the group.
const WRITABLE_BY_OTHERS: u32 = 0o002;

/// Returns the nearest cluster folder, that is, a folder with a `mend.toml`. Checks the current folder and
/// its subfolder `mend-cluster`, then each parent folder in the same way. If no cluster folder is found,
/// returns `mend-cluster` in the current folder. Prints a folder that was found in a parent.
///
/// # Errors
/// If the nearest cluster folder may be another user's, or cannot be determined.
pub fn nearest_folder() -> Result<PathBuf, Failure> {
    let here = std::env::current_dir().map_err(|error| unknown(Path::new("."), &error))?;
    let Some(found) = search(&here, geteuid().as_raw())? else { return Ok(here.join(FOLDER)) };
    if found != here && found != here.join(FOLDER) {
        say(&format!("note: using the cluster folder {}", text(&found)));
    }
    Ok(found)
}

/// Searches upwards from `here` for a cluster folder that `user` may trust.
fn search(here: &Path, user: u32) -> Result<Option<PathBuf>, Failure> {
    let candidates = here.ancestors().flat_map(|folder| [folder.to_owned(), folder.join(FOLDER)]);
    for folder in candidates {
        if is_cluster(&folder)? {
            check_trusted(&folder, user)?;
            return Ok(Some(folder));
        }
    }
    Ok(None)
}

/// Whether a folder has a `mend.toml`. A folder that cannot be examined is an error: to pass over it could mean to use the
/// cluster of a parent folder instead.
fn is_cluster(folder: &Path) -> Result<bool, Failure> {
    let config = folder.join(CONFIG);
    match fs::symlink_metadata(&config) {
        Ok(_) => Ok(true),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(false),
        Err(error) => Err(unknown(&config, &error)),
    }
}

/// Checks that only `user` and root decide about a cluster folder and its `mend.toml`.
fn check_trusted(folder: &Path, user: u32) -> Result<(), Failure> {
    let config = folder.join(CONFIG);
    for path in [folder, config.as_path()] {
        // The owner of a symbolic link can replace it at any time.
        for found in [fs::symlink_metadata(path), fs::metadata(path)] {
            let found = found.map_err(|error| unknown(path, &error))?;
            // The permissions of a link mean nothing.
            let mode = if found.is_symlink() { 0 } else { found.mode() };
            if let Some(why) = distrust((found.uid(), mode), user) {
                return Err(refused(folder, path, &why));
            }
        }
    }
    Ok(())
}

/// Returns why `user` cannot trust a file of this owner and mode. Members of its group may write to it: with a umask of 002,
/// which many systems have, a user's own folder is writable by the user's private group.
fn distrust((owner, mode): (u32, u32), user: u32) -> Option<String> {
    if owner != user && owner != ROOT {
        return Some(format!("belongs to another user (uid {owner})"));
    }
    (mode & WRITABLE_BY_OTHERS != 0).then(|| "can be written by all users".to_owned())
}

fn refused(folder: &Path, path: &Path, why: &str) -> Failure {
    let (folder, path) = (text(folder), text(path));
    Failure::new(format!("found the cluster folder {folder}, but {path} {why}"))
        .help(format!("if you trust it, name it with --cluster {folder} or MEND_CLUSTER={folder}"))
}

fn unknown(path: &Path, error: &Error) -> Failure {
    Failure::new(format!("cannot search for the cluster folder: {}: {error}", text(path)))
        .help("name the folder with --cluster DIR or MEND_CLUSTER=DIR")
}

/// Formats a path, whose folders other users may have named.
fn text(path: &Path) -> String {
    printable(&path.display().to_string()).into_owned()
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, chown, lchown, symlink};

    use super::*;

    const OWN: u32 = 1000;
    const ANOTHER: u32 = 1001;

    /// Creates a folder with a `mend.toml`.
    fn make(folder: PathBuf) -> PathBuf {
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(CONFIG), "").unwrap();
        allow(&folder.join(CONFIG), 0o664);
        allow(&folder, 0o775);
        folder
    }

    fn allow(path: &Path, mode: u32) {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    fn found(here: &Path) -> Result<Option<PathBuf>, String> {
        search(here, geteuid().as_raw()).map_err(|failure| failure.message().to_owned())
    }

    #[test]
    fn the_nearest_folder_comes_first() {
        let scratch = tempfile::tempdir().unwrap();
        let top = make(scratch.path().join("top"));
        let job = top.join("jobs/17");
        fs::create_dir_all(&job).unwrap();
        assert_eq!(found(&job), Ok(Some(top.clone())));
        fs::write(job.join(FOLDER), "a file").unwrap();
        assert_eq!(found(&job), Ok(Some(top.clone())), "a file is no folder");
        let below = make(top.join("jobs").join(FOLDER));
        assert_eq!(found(&job), Ok(Some(below)));
        assert_eq!(found(&make(job.clone())), Ok(Some(job)));
    }

    #[test]
    fn only_the_user_and_root_are_trusted() {
        let is_trusted = |owner, mode| distrust((owner, mode), OWN).is_none();
        for owner in [OWN, ROOT] {
            assert!(is_trusted(owner, 0o100_644) && is_trusted(owner, 0o040_775));
            assert!(!is_trusted(owner, 0o100_666) && !is_trusted(owner, 0o041_777));
        }
        assert!(!is_trusted(ANOTHER, 0o100_600) && distrust((ANOTHER, 0o100_600), ROOT).is_some());
    }

    #[test]
    fn a_folder_that_others_may_have_made_is_refused_and_not_passed_over() {
        let scratch = tempfile::tempdir().unwrap();
        let top = make(scratch.path().join("top"));
        let near = make(top.join(FOLDER));
        let config = near.join(CONFIG);
        fs::remove_file(top.join(CONFIG)).unwrap();
        assert_eq!(found(&top), Ok(Some(near.clone())));
        for (path, mode) in [(&near, 0o777), (&near, 0o1777), (&config, 0o666)] {
            let before = fs::metadata(path).unwrap().mode();
            allow(path, mode);
            let refused = found(&top).unwrap_err();
            assert!(refused.contains("can be written by all users"), "{refused}");
            allow(path, before);
        }
        if chown(&config, Some(ANOTHER), None).is_err() {
            println!("skipped: another user's files need root");
            return;
        }
        let refused = found(&top).unwrap_err();
        assert!(refused.contains("mend.toml belongs to another user (uid 1001)"), "{refused}");
    }

    #[test]
    fn another_user_cannot_choose_among_trusted_folders_by_a_link() {
        let scratch = tempfile::tempdir().unwrap();
        let trusted = make(scratch.path().join("trusted"));
        let shared = scratch.path().join("shared");
        fs::create_dir(&shared).unwrap();
        let link = shared.join(FOLDER);
        symlink(&trusted, &link).unwrap();
        assert_eq!(found(&shared), Ok(Some(link.clone())));
        if lchown(&link, Some(ANOTHER), None).is_ok() {
            assert!(found(&shared).unwrap_err().contains("belongs to another user"));
        }
    }

    #[test]
    fn a_folder_that_cannot_be_examined_is_an_error() {
        let scratch = tempfile::tempdir().unwrap();
        let top = make(scratch.path().join("top"));
        let here = top.join("here");
        fs::create_dir(&here).unwrap();
        symlink(FOLDER, here.join(FOLDER)).unwrap(); // A loop.
        let unknown = found(&here).unwrap_err();
        assert!(unknown.contains("cannot search for the cluster folder"), "{unknown}");
    }
}
