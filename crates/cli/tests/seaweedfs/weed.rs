//! The program `weed`: installed, started, and gone with whoever started it.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Where the program is, installed now if it was not.
pub fn install() -> Result<PathBuf, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folder = std::env::var_os("MEND_WEED").map_or_else(|| root.join("target/seaweedfs"), PathBuf::from);
    let installed = Command::new(root.join("scripts/seaweedfs")).arg(&folder).status();
    match installed {
        Ok(status) if status.success() => Ok(folder.join("weed")),
        Ok(status) => Err(format!("scripts/seaweedfs failed ({status})")),
        Err(error) => Err(format!("scripts/seaweedfs: {error}")),
    }
}

pub fn is_root() -> bool {
    let asked = Command::new("id").arg("-u").output();
    asked.is_ok_and(|output| output.stdout == b"0\n")
}

/// A running `weed`.
pub struct Weed {
    child: Child,
    log: PathBuf,
}

impl Weed {
    /// Starts it; what it says goes to `log`. The main thread starts all, so it dies when this process does.
    pub fn start(weed: &Path, log: PathBuf, arguments: &[String], folder: &Path) -> Self {
        let said = File::create(&log).expect("a log");
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]).arg(weed).args(arguments).current_dir(folder);
        let (stdout, stderr) = (said.try_clone().expect("one more"), said);
        let child = command.stdin(Stdio::null()).stdout(stdout).stderr(stderr).spawn();
        Self { child: child.expect("setpriv (util-linux) and weed"), log }
    }

    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// The end of what it said.
    pub fn said(&self) -> String {
        let said = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<_> = said.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }
}

impl Drop for Weed {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Carries out commands of `weed shell`; what it prints.
pub fn shell(weed: &Path, master: &str, commands: &[&str]) -> String {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL"]).arg(weed).arg("shell").arg(format!("-master={master}"));
    let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = child.expect("weed shell");
    let mut input = child.stdin.take().expect("piped");
    input.write_all((commands.join("\n") + "\n").as_bytes()).expect("it reads");
    drop(input);
    let output = child.wait_with_output().expect("it ends");
    String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
}
