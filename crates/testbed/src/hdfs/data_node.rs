//! A DataNode: its addresses, folders and process.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use super::launcher::define;
use crate::Process;

/// A DataNode, running or stopped.
#[derive(Debug)]
pub struct DataNode {
    host: String,
    port: u16,
    folders: Vec<PathBuf>,
    pub(super) process: Option<Process>,
    /// Whether the process loads Mend's plug-in.
    pub(super) loads_plugin: bool,
}

impl DataNode {
    pub(super) fn new(host: String, port: u16, folders: Vec<PathBuf>) -> Self {
        Self { host, port, folders, process: None, loads_plugin: false }
    }

    /// The address under which the NameNode lists the DataNode.
    pub fn address(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    /// The address of Mend's plug-in, if the DataNode has loaded it.
    pub fn plugin_address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port + 3))
    }

    /// The address to which `hdfs dfsadmin` sends requests for the DataNode.
    pub(super) fn ipc_address(&self) -> String {
        format!("{}:{}", self.host, self.port + 1)
    }

    /// The address of the DataNode's HTTP server, which serves its metrics.
    pub fn http_address(&self) -> SocketAddr {
        let host: Ipv4Addr = self.host.parse().expect("a ground's addresses are numbers");
        SocketAddr::from((host, self.port + 2))
    }

    /// The folders in the DataNode's setting `dfs.datanode.data.dir`.
    pub fn folders(&self) -> &[PathBuf] {
        &self.folders
    }

    /// Removes the DataNode's folders; the DataNode must be stopped.
    ///
    /// # Panics
    /// If a folder cannot be removed.
    pub fn remove_folders(&self) {
        self.folders.iter().for_each(|folder| fs::remove_dir_all(folder).expect("removed"));
    }

    /// Returns the DataNode's own settings, as arguments.
    pub(super) fn settings(&self) -> Vec<String> {
        let folders: Vec<_> =
            self.folders.iter().map(|folder| format!("file://{}", folder.display())).collect();
        let mut settings = define("dfs.datanode.data.dir", &folders.join(","));
        for (name, port) in [("address", 0), ("ipc.address", 1), ("http.address", 2)] {
            let address = format!("{}:{}", self.host, self.port + port);
            settings.extend(define(&format!("dfs.datanode.{name}"), &address));
        }
        settings.extend(define("dfs.datanode.hostname", &self.host));
        settings
    }

    /// Returns the file with a block's bytes, if the DataNode has the block.
    ///
    /// # Panics
    /// If the DataNode's folders cannot be read.
    pub fn block(&self, block: i64) -> Option<PathBuf> {
        self.file(&format!("blk_{block}"))
    }

    /// Returns both files of a replica, first the bytes and then the checksums (`.meta`). `block` is the
    /// block's number, and `name` its name with the generation stamp.
    ///
    /// # Panics
    /// If the DataNode's folders cannot be read.
    pub fn replica(&self, block: i64, name: &str) -> Option<[PathBuf; 2]> {
        Some([self.block(block)?, self.file(&format!("{name}.meta"))?])
    }

    fn file(&self, file: &str) -> Option<PathBuf> {
        let mut folders = self.folders.clone();
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder).into_iter().flatten() {
                let path = entry.expect("an entry").path();
                if path.is_dir() {
                    folders.push(path);
                } else if path.file_name().is_some_and(|name| name == file) {
                    return Some(path);
                }
            }
        }
        None
    }
}
