//! Private network and mount namespaces.

use std::env;
use std::os::unix::process::CommandExt;
use std::process::Command;

const INSIDE: &str = "MEND_TEST_INSIDE_NAMESPACE";

/// Re-executes this program in private namespaces. Returns only in the process that runs inside them.
///
/// # Errors
/// The reason why no namespaces can be created, as text for users.
pub fn inside_namespace() -> Result<(), String> {
    if env::var_os(INSIDE).is_some() {
        return Ok(());
    }
    let probed = isolated().args(["ip", "link", "set", "lo", "up"]).output();
    let probed = probed.map_err(|error| format!("unshare: {error}"))?;
    if !probed.status.success() {
        return Err(format!("no namespaces of its own: {}", String::from_utf8_lossy(&probed.stderr)));
    }
    let myself = env::current_exe().map_err(|error| error.to_string())?;
    let again = isolated().arg(myself).args(env::args_os().skip(1)).env(INSIDE, "yes").exec();
    Err(again.to_string())
}

fn isolated() -> Command {
    let mut command = Command::new("unshare");
    command.args(["--net", "--mount"]);
    let id = Command::new("id").arg("-u").output();
    if !id.is_ok_and(|output| output.stdout == b"0\n") {
        command.args(["--user", "--map-root-user"]);
    }
    command
}
