//! [`Covered`]: the folders whose files the coordinator repairs.

use attached::KindError;
use cluster::Cluster;
use hdfs_raid::is_within;

use super::check_absolute;
use crate::kind::config;

/// The folders whose files the coordinator repairs: `paths` in `[store.namenode]` of `mend.toml`. Files elsewhere are not
/// encoded, because nothing would rebuild their lost blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Covered(Vec<String>);

impl Covered {
    /// Returns the folders of a cluster.
    ///
    /// # Errors
    /// [`KindError`].
    pub fn of(cluster: &Cluster) -> Result<Self, KindError> {
        Ok(Self(config(cluster)?.namenode.map(|namenode| namenode.paths).unwrap_or_default()))
    }

    /// Creates the set of these folders.
    pub fn new(folders: &[&str]) -> Self {
        Self(folders.iter().map(|&folder| folder.to_owned()).collect())
    }

    /// Whether the coordinator repairs the file or folder at this path.
    pub fn contains(&self, path: &str) -> bool {
        self.0.iter().any(|folder| is_within(path, folder))
    }

    /// Checks that the coordinator repairs some files of a folder.
    ///
    /// # Errors
    /// [`KindError`], also if the path is not absolute.
    pub fn check(&self, folder: &str) -> Result<(), KindError> {
        check_absolute(folder)?;
        let is_above = self.0.iter().any(|covered| is_within(covered, folder));
        if is_above || self.contains(folder) {
            return Ok(());
        }
        let why = format!(
            "{folder} is outside of `paths` in [store.namenode] of mend.toml, so files there would not be repaired"
        );
        let next = format!(
            "add {folder} (or its folder, if it is a file) to `paths`, on this machine and on the coordinator's; restart the \
             coordinator; then run the command again. If files there are encoded already, `mend raid undo` gives them their \
             former replicas instead"
        );
        Err(KindError::new(why).help(next))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_outside_of_the_folders_are_not_covered() {
        let covered = Covered::new(&["/a/b", "/c/"]);
        assert!(["/a/b", "/a/b/f", "/c/f"].iter().all(|path| covered.contains(path)));
        assert!(!["/", "/a", "/a/bc", "/d"].iter().any(|path| covered.contains(path)));
        assert!(Covered::new(&["/"]).contains("/d") && !Covered::new(&[]).contains("/d"));
    }

    #[test]
    fn a_folder_without_covered_files_is_refused() {
        let covered = Covered::new(&["/a/b"]);
        assert!(["/", "/a", "/a/b", "/a/b/c/"].iter().all(|folder| covered.check(folder).is_ok()));
        let error = covered.check("/d").expect_err("it is elsewhere");
        assert!(error.message.contains("`paths` in [store.namenode]"), "{error:?}");
        let next = error.help.expect("a next step");
        assert!(
            ["add /d ", "restart the coordinator", "mend raid undo"].iter().all(|it| next.contains(it)),
            "{next}"
        );
    }

    #[test]
    fn a_path_that_is_not_absolute_is_refused_as_such() {
        let error = Covered::new(&["/"]).check("d").expect_err("a mistake");
        assert_eq!(error.message, "`d` is not an absolute path");
    }
}
