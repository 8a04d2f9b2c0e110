//! One volume server of a cluster.

use std::fs;
use std::path::{Path, PathBuf};

use crate::{Ground, Process, Seat};
use seaweedfs::{ServerAddress, ShardBlocks};

pub(crate) const PORT: u16 = 8080;

/// A volume server, running or stopped.
pub struct VolumeProcess {
    /// The server's address.
    pub address: ServerAddress,
    /// The folders of the server's option `-dir`, which hold volumes and shards.
    pub folders: Vec<PathBuf>,
    /// The folder of the server's option `-dir.idx`, which holds the indexes, if they are kept separately.
    pub index_folder: Option<PathBuf>,
    pub(crate) arguments: Vec<String>,
    pub(crate) seat: Seat,
    process: Option<Process>,
}

impl VolumeProcess {
    /// Returns a volume server that is not running yet, and creates `disks` folders for it below `root`.
    pub(crate) fn new(
        ground: &dyn Ground,
        root: &Path,
        at: usize,
        disks: usize,
        arguments: Vec<String>,
    ) -> Self {
        let disk = |disk| root.join(format!("v{}{}", at + 1, char::from(b'a' + disk as u8)));
        let folders: Vec<_> = (0..disks).map(disk).collect();
        folders.iter().for_each(|folder| fs::create_dir(folder).expect("made"));
        let seat = Seat::Server(at);
        let host = ground.host(seat);
        let dirs: Vec<_> = folders.iter().map(|folder| folder.display().to_string()).collect();
        let own = [
            "volume".to_owned(),
            format!("-ip={host}"),
            format!("-port={PORT}"),
            format!("-dir={}", dirs.join(",")),
        ];
        let arguments = own.into_iter().chain(arguments).collect();
        let address = format!("{host}:{PORT}").parse().expect("an address");
        Self { address, folders, index_folder: None, arguments, seat, process: None }
    }

    pub(crate) fn started(&mut self, process: Process) {
        self.process = Some(process);
    }

    /// Kills the server.
    pub fn kill(&mut self) {
        self.process = None;
    }

    /// Makes the server keep its indexes in a separate folder (`-dir.idx`) from its next start on.
    ///
    /// # Panics
    /// If the folder cannot be created.
    pub fn keep_indexes_in(&mut self, folder: PathBuf) {
        fs::create_dir_all(&folder).expect("made");
        self.arguments.push(format!("-dir.idx={}", folder.display()));
        self.index_folder = Some(folder);
    }

    /// The server's process ID, if it is running.
    pub fn id(&self) -> Option<u32> {
        self.process.as_ref().map(Process::id)
    }

    /// Opens the blocks that a helper on the same machine would serve.
    ///
    /// # Panics
    /// If the server's folders do not exist.
    pub fn blocks(&self) -> ShardBlocks {
        ShardBlocks::open(&self.folders, self.index_folder.as_deref()).expect("its folders")
    }
}
