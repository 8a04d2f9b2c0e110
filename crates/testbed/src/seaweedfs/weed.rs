//! Starts the program `weed`: the master, the filer, and further processes other than volume servers.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use crate::{Ground, Process, Seat};

const MASTER_PORT: u16 = 9333;
const FILER_PORT: u16 = 8888;
const S3_PORT: u16 = 8333;

/// The program, the folder for its files, and the [`Ground`] on which its processes run.
pub struct Weed {
    program: PathBuf,
    /// The folder for all files of the cluster.
    pub root: PathBuf,
    pub(super) ground: Arc<dyn Ground>,
}

impl Weed {
    pub(super) fn new(program: &Path, root: &Path, ground: Arc<dyn Ground>) -> Self {
        Self { program: program.to_owned(), root: root.to_owned(), ground }
    }

    /// Returns the command for a process at a seat.
    pub(super) fn command(&self, seat: Seat) -> Command {
        self.ground.command(seat, &self.program)
    }

    /// Starts another `weed` process with the working directory `folder`, and writes its output to `NAME.log`
    /// there.
    pub fn start(&self, name: &str, folder: &Path, arguments: &[impl AsRef<str>]) -> Process {
        let mut command = self.command(Seat::Head);
        command.current_dir(folder).args(arguments.iter().map(AsRef::as_ref));
        Process::start(command, &folder.join(format!("{name}.log")))
    }

    /// Starts the master.
    pub(super) fn start_master(&self, volume_limit_mb: u32) -> Process {
        let meta = self.root.join("master");
        fs::create_dir_all(&meta).expect("made");
        let arguments = [
            "master".to_owned(),
            format!("-ip={}", self.ground.host(Seat::Head)),
            format!("-port={MASTER_PORT}"),
            format!("-mdir={}", meta.display()),
            format!("-volumeSizeLimitMB={volume_limit_mb}"),
            "-peers=none".to_owned(),
        ];
        self.start("master", &self.root, &arguments)
    }

    /// Starts the filer with S3.
    pub(super) fn start_filer(&self) -> Process {
        let arguments = [
            "filer".to_owned(),
            format!("-ip={}", self.ground.host(Seat::Head)),
            format!("-port={FILER_PORT}"),
            format!("-master={}", self.master_address()),
            "-s3".to_owned(),
            format!("-s3.port={S3_PORT}"),
        ];
        self.start("filer", &self.root, &arguments)
    }

    fn host(&self, port: u16) -> String {
        format!("{}:{port}", self.ground.host(Seat::Head))
    }

    /// The master's address.
    pub fn master_address(&self) -> String {
        self.host(MASTER_PORT)
    }

    /// The filer's address.
    pub fn filer_address(&self) -> String {
        self.host(FILER_PORT)
    }

    /// The address of the S3 gateway.
    pub fn s3_address(&self) -> String {
        self.host(S3_PORT)
    }
}
