//! The page of an experiment: heading, file, and cells of its tables.

use std::env;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::command::write_page;
use crate::error::LabError;
use crate::figure::plot::Drawing;
use crate::machine::Machine;

/// The heading of a page, and the file that the page is written to.
pub(crate) struct Results {
    file: PathBuf,
    heading: String,
}

/// A run that contributed to a page.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Session {
    /// The command as a user types it.
    pub(crate) command: String,
    /// The load averages at its beginning.
    pub(crate) load: String,
}

impl Session {
    /// Describes this process. `command` makes the page with default options; if this process was started with options,
    /// the page shows these instead. Call this before anything is measured, so that the load average is that of the idle
    /// machine.
    pub(crate) fn this(command: &str) -> Self {
        let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
        let load = load.split(' ').take(3).collect::<Vec<_>>().join(" ");
        let arguments: Vec<String> = env::args().skip(1).collect();
        Self { command: command_of(command, &arguments), load }
    }
}

/// Returns the command with these arguments, or the one without options.
fn command_of(without_options: &str, arguments: &[String]) -> String {
    if !arguments.iter().any(|argument| argument.starts_with('-')) {
        return without_options.to_owned();
    }
    let quoted = |argument: &String| match argument.contains(' ') {
        true => format!("\"{argument}\""),
        false => argument.clone(),
    };
    format!("mend lab {}", arguments.iter().map(quoted).collect::<Vec<_>>().join(" "))
}

fn heading(title: &str, sessions: &[Session], machine: &Machine) -> String {
    let commands: Vec<String> = sessions.iter().map(|session| format!("`{}`", session.command)).collect();
    let loads: Vec<&str> = sessions.iter().map(|session| session.load.as_str()).collect();
    let (commands, machine, loads) = (commands.join(", "), machine.summary(), loads.join("; "));
    format!("# {title}\n\n{commands}. {machine}\nLoad average at the beginning: {loads}.")
}

impl Results {
    /// Starts a page to which several runs on one machine contribute.
    pub(crate) fn of(title: &str, sessions: &[Session], machine: &Machine, file: PathBuf) -> Self {
        Self { file, heading: heading(title, sessions, machine) }
    }

    /// Writes the page. The body continues the last line of the heading.
    ///
    /// # Errors
    /// [`LabError`].
    pub(crate) fn save(&self, body: &str) -> Result<(), LabError> {
        write_page(&self.file, &self.text(body))
    }

    /// Prints the finished page, and writes it and its drawings.
    ///
    /// # Errors
    /// [`LabError`].
    pub(crate) fn publish(&self, body: &str, drawings: &[Drawing]) -> Result<ExitCode, LabError> {
        print!("{}", self.text(body));
        self.save(body)?;
        for Drawing { name, chart } in drawings {
            chart.draw(&self.file.with_file_name(format!("{name}.svg")))?;
        }
        Ok(ExitCode::SUCCESS)
    }

    fn text(&self, body: &str) -> String {
        format!("{}{body}", self.heading)
    }
}

/// Formats a table cell in megabytes.
pub(crate) fn megabytes(bytes: u64) -> String {
    format!("{:.0}", bytes as f64 / 1e6)
}

/// Formats a table cell in milliseconds.
pub(crate) fn milliseconds(time: Duration) -> String {
    format!("{:.1}", time.as_secs_f64() * 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_part_of_the_command() {
        let command = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
            command_of("make bench-hdfs", &words)
        };
        assert_eq!(command(&["hdfs", "bench"]), "make bench-hdfs");
        let expected = "mend lab hdfs bench --by \"Mend, asked\" --rates 100mbit";
        assert_eq!(command(&["hdfs", "bench", "--by", "Mend, asked", "--rates", "100mbit"]), expected);
    }

    #[test]
    fn a_page_names_all_commands_that_contributed() {
        let session =
            |command: &str, load: &str| Session { command: command.to_owned(), load: load.to_owned() };
        let machine = Machine::this();
        let text = heading("T", &[session("a", "0.1 0.2 0.3"), session("b --c", "1 2 3")], &machine);
        let expected = format!(
            "# T\n\n`a`, `b --c`. {}\nLoad average at the beginning: 0.1 0.2 0.3; 1 2 3.",
            machine.summary()
        );
        assert_eq!(text, expected);
    }
}
