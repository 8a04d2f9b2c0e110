//! Files stored in a cluster, with the contents that they must have.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::cluster::Cluster;
use crate::content;

/// The contents of stored files, by path.
#[derive(Clone, Debug, Default)]
pub struct StoredFiles(BTreeMap<String, Vec<u8>>);

impl StoredFiles {
    /// Stores a file.
    ///
    /// # Panics
    /// If HDFS refuses the file.
    pub fn put(&mut self, cluster: &mut Cluster, path: &str, bytes: usize) {
        let (content, source) = (content(path, bytes), cluster.folder().join("put"));
        fs::write(&source, &content).expect("written");
        cluster.console().run(&["dfs", "-put", text(&source), path]);
        self.0.insert(path.to_owned(), content);
    }

    /// Stores a file in blocks of `block_bytes` bytes, with one replica of each. Returns the inode number.
    ///
    /// # Panics
    /// If HDFS refuses the file.
    pub fn put_once(
        &mut self,
        cluster: &mut Cluster,
        path: &str,
        content: Vec<u8>,
        block_bytes: usize,
    ) -> u64 {
        let source = cluster.folder().join("put");
        fs::write(&source, &content).expect("written");
        let said = cluster.console().run(&["store", text(&source), path, &block_bytes.to_string(), "1"]);
        self.0.insert(path.to_owned(), content);
        said.trim().parse().expect("a number")
    }

    /// Deletes a file.
    ///
    /// # Panics
    /// If HDFS refuses.
    pub fn delete(&mut self, cluster: &mut Cluster, path: &str) {
        cluster.console().run(&["dfs", "-rm", "-skipTrash", path]);
        self.0.remove(path);
    }

    /// Forgets a file that was deleted or moved.
    pub fn forget(&mut self, path: &str) {
        self.0.remove(path);
    }

    /// The number of files.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Returns the content of a file.
    ///
    /// # Panics
    /// If the file is not stored.
    pub fn content(&self, path: &str) -> &[u8] {
        &self.0[path]
    }

    /// Reads all files through HDFS and compares their contents.
    ///
    /// # Panics
    /// If a file is missing or differs.
    pub fn assert_intact(&self, cluster: &mut Cluster) {
        let got = tempfile::tempdir_in(cluster.folder()).expect("a folder");
        cluster.console().run(&["dfs", "-get", "/*", text(got.path())]);
        for (path, content) in &self.0 {
            let got = fs::read(got.path().join(&path[1..])).expect("got");
            assert!(got == *content, "{path} differs");
        }
    }
}

/// Whether both files of a replica pass HDFS's own check.
///
/// # Panics
/// If the console has ended.
pub fn passes_check(cluster: &mut Cluster, [bytes, meta]: &[PathBuf; 2]) -> bool {
    let words = ["debug", "verifyMeta", "-meta", text(meta), "-block", text(bytes)];
    cluster.console().ask(&words).text.contains("Checksum verification succeeded")
}

fn text(path: &Path) -> &str {
    path.to_str().expect("text")
}
