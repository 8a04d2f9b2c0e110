//! Starts JVMs.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use crate::{Ground, Seat};

/// A command that runs a class at a seat with these options and arguments. The class logs its times in UTC.
pub(crate) fn command(
    ground: &dyn Ground,
    seat: Seat,
    options: &[OsString],
    class: &str,
    arguments: &[String],
) -> Command {
    let mut command = ground.command(seat, Path::new("java"));
    command.env("TZ", "UTC").args(options).arg(class).args(arguments);
    command
}
