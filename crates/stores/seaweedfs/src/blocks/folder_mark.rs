//! The mark that a helper leaves in each folder of its volume server.
//!
//! A server may use a folder by another path than its helper: through a symbolic link, in a container, or relative to
//! its working directory. If the server returns the helper's mark of a folder, both use the same folder. The file is
//! named like that of a volume, so a server returns it (`CopyFile`); SeaweedFS ignores it otherwise.

use std::fs;
use std::path::Path;

use block_files::{exists, fault, names, remove_all};
use store_api::BlockError;

use super::ecsum::crc32c;
use super::name::VolumeName;

/// The file of a mark is `.mend-folder_NUMBER.mark`.
const COLLECTION: &str = ".mend-folder";
const EXTENSION: &str = ".mark";
/// The file by which SeaweedFS recognizes a `-dir` folder. It creates none in a `-dir.idx` folder, from which a server
/// returns files too.
const OF_SERVER: &str = "vol_dir.uuid";

/// A helper's mark of one folder. It contains the names of the helper and of the folder in `mend.toml`, so a mark that
/// another helper or a former setting has left is another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FolderMark {
    volume: VolumeName,
    content: Vec<u8>,
}

impl FolderMark {
    /// Returns the mark of a helper for a folder, whose path is that of `mend.toml`.
    pub(crate) fn new(helper: &str, path: &Path) -> Self {
        let content =
            format!("helper {helper} of Mend uses this folder as {}\n", path.display()).into_bytes();
        let number = crc32c(&content).max(1); // No volume has the number 0.
        Self { volume: VolumeName::new(COLLECTION, number).expect("a short name"), content }
    }

    /// Returns the volume as whose file a server returns the mark.
    pub(crate) fn volume(&self) -> &VolumeName {
        &self.volume
    }

    /// Returns the extension of the file.
    pub(crate) fn extension(&self) -> &'static str {
        EXTENSION
    }

    /// Returns the content of the file.
    pub(crate) fn content(&self) -> &[u8] {
        &self.content
    }

    /// Writes the mark into a folder, and removes other marks. Writes none unless a server has used the folder as
    /// `-dir`.
    pub(super) fn write(&self, folder: &Path) -> Result<(), BlockError> {
        let (own, is_of_server) = (self.volume.file(EXTENSION), exists(&folder.join(OF_SERVER))?);
        let files = names(folder)?;
        let is_other = |name: &&String| is_mark(name) && !(is_of_server && **name == own);
        remove_all(folder, files.iter().filter(is_other))?;
        let path = folder.join(&own);
        if !is_of_server || fs::read(&path).is_ok_and(|found| found == self.content) {
            return Ok(());
        }
        fs::write(&path, &self.content).map_err(fault(&path))
    }
}

fn is_mark(name: &str) -> bool {
    name.starts_with(COLLECTION) && name.ends_with(EXTENSION)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marks(folder: &Path) -> Vec<String> {
        names(folder).unwrap().into_iter().filter(|name| is_mark(name)).collect()
    }

    #[test]
    fn a_folder_of_a_server_has_the_mark_of_its_present_helper_only() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let mark = |helper: &str, path: &str| FolderMark::new(helper, Path::new(path));
        let all = [mark("vs-a", "/data/1"), mark("vs-a", "/mnt/1"), mark("vs-b", "/mnt/1")];
        all[0].write(folder).unwrap();
        assert_eq!(marks(folder), [""; 0], "it may be a -dir.idx folder");
        fs::write(folder.join(OF_SERVER), "3f2a").unwrap();
        for mark in &all {
            mark.write(folder).unwrap();
            assert_eq!(marks(folder), [mark.volume.file(EXTENSION)]);
            assert_eq!(fs::read(folder.join(&marks(folder)[0])).unwrap(), mark.content());
        }
        fs::write(folder.join(&marks(folder)[0]), "the disk was full").unwrap();
        all[2].write(folder).unwrap();
        assert_eq!(fs::read(folder.join(&marks(folder)[0])).unwrap(), all[2].content());
        fs::remove_file(folder.join(OF_SERVER)).unwrap();
        all[2].write(folder).unwrap();
        assert_eq!(marks(folder), [""; 0], "a mark in a folder of no server proves nothing");
    }
}
