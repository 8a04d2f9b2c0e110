//! Cleans up after a run that was killed before it could clean up itself.

use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A shell that waits for the end of the run, then kills the processes of the run's cluster, unmounts its
/// disks and removes its folder. The shell has a session of its own, so that Ctrl-C does not end it.
pub struct Janitor(Child);

/// The shell's script. `$1` is the run's folder. Processes are identified by an environment variable that
/// only this run sets.
const SCRIPT: &str = r#"
cat >/dev/null
for found in $(grep -lszxF "MEND_CLUSTER=$1/cluster" /proc/[0-9]*/environ); do
    pid=${found#/proc/}
    kill -9 "${pid%/environ}" 2>/dev/null
done
while read -r _ place _; do
    case $place in "$1"/*) umount -l "$place";; esac
done </proc/mounts
[ -e "$1/keep" ] || rm -rf --one-file-system "$1"
"#;

impl Janitor {
    pub fn start(folder: &Path) -> Self {
        let mut shell = Command::new("setsid");
        shell.args(["sh", "-c", SCRIPT, "janitor"]).arg(folder);
        // The shell inherits only its own pipe. If it inherited the run's standard output, whoever reads that
        // output would wait until the shell ends.
        shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        Self(shell.spawn().expect("setsid and sh are there"))
    }
}

impl Drop for Janitor {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait(); // Reap our child process.
    }
}
