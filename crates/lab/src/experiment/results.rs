//! The page of an experiment: heading, file, and cells of its tables.

use std::env;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use crate::command::write_page;
use crate::error::LabError;
use crate::figure::plot::Drawing;
use crate::machine::Machine;

/// The heading of a page, and the file that the page is written to.
pub(crate) struct Results {
    file: PathBuf,
    heading: String,
}

impl Results {
    /// Starts a page. `command` makes the page with default options; if this process was started with options, the
    /// page shows these instead. Call this before anything is measured, so that the load average is that of the idle
    /// machine.
    pub(crate) fn begin(title: &str, command: &str, file: PathBuf) -> Self {
        let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
        let load = load.split(' ').take(3).collect::<Vec<_>>().join(" ");
        let machine = Machine::this().summary();
        let arguments: Vec<String> = env::args().skip(1).collect();
        let has_options = arguments.iter().any(|argument| argument.starts_with('-'));
        let own = format!("mend lab {}", arguments.join(" "));
        let command = if has_options { own.as_str() } else { command };
        let heading = format!("# {title}\n\n`{command}`. {machine}\nLoad average at the beginning: {load}.");
        Self { file, heading }
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
