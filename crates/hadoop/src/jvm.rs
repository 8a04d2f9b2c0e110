//! How a JVM is started.

use std::ffi::OsString;
use std::process::Command;

use apart::Process;

/// A class that is run with these options and arguments.
pub(crate) fn command(options: &[OsString], class: &str, arguments: &[String]) -> Command {
    let mut command = Process::command("java");
    command.args(options).arg(class).args(arguments);
    command
}
