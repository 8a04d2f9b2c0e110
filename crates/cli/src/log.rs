//! The log, on stderr or in the journal of systemd. Lines that repeat are written once in ten seconds, on stderr with the
//! number of repetitions. A daemon waits for no reader of its stderr.

mod queue;

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::io::{self, IsTerminal};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tracing::field::{Field, Visit};
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::fmt::format::{Format, Writer};
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::writer::BoxMakeWriter;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::{Context, Filter, SubscriberExt as _};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer as _};

use crate::args::{Cli, LogFormat};
use crate::failure::Failure;
use queue::LogQueue;

/// A line is written again only after this time.
const REPEATED_AFTER: Duration = Duration::from_secs(10);
/// The maximum number of lines that are remembered.
const REMEMBERED: usize = 1000;
/// How long a daemon that ends waits until the last lines are written.
const END_LIMIT: Duration = Duration::from_secs(1);

/// The log of this process. Dropping it writes the last lines.
#[must_use = "dropping it ends the log"]
pub struct Log(Option<LogQueue>);

impl Drop for Log {
    fn drop(&mut self) {
        if let Some(queue) = &self.0 {
            queue.flush_within(END_LIMIT);
        }
    }
}

/// Starts the log. Without `RUST_LOG` and `--verbose`, daemons log at `info` and other verbs at `error`.
///
/// # Errors
/// If the journal cannot be reached, or the thread that writes the lines cannot be started.
pub fn start(cli: &Cli) -> Result<Log, Failure> {
    let level = match (cli.verbose, cli.verb.is_daemon()) {
        (0, true) => "info",
        (0, false) => "error",
        // HTTP frames are logged at `-vv` only.
        (1, _) => "debug,h2=info,hyper_util=info,reqwest=info,rustls=info,tonic=info,tower=info",
        _ => "trace",
    };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(level));
    let (log, writer) = writer(cli)?;
    // Reporting internal errors would panic if stderr is a file on a full disk.
    let lines = tracing_subscriber::fmt::layer().with_writer(writer).log_internal_errors(false);
    let registry = tracing_subscriber::registry().with(filter);
    let format = Format::default().with_target(false).without_time();
    match cli.log {
        LogFormat::Text => {
            let format = format.with_ansi(io::stderr().is_terminal());
            registry.with(lines.event_format(Sparing::new(format, Timestamp::First))).init();
        }
        LogFormat::Json => {
            let lines = lines.json();
            let format = format.json().flatten_event(true);
            registry.with(lines.event_format(Sparing::new(format, Timestamp::Key))).init();
        }
        LogFormat::Journald => {
            let journal = tracing_journald::layer().map_err(|error| no_journal(&error))?;
            let journal = journal.with_field_prefix(Some("MEND".to_owned()));
            registry.with(journal.with_filter(Unrepeated::default())).init();
        }
    }
    Ok(log)
}

/// Returns the writer of lines to stderr. Only a daemon leaves lines out if they are not read: other verbs end, and their
/// users may read page by page.
fn writer(cli: &Cli) -> Result<(Log, BoxMakeWriter), Failure> {
    if !cli.verb.is_daemon() || cli.log == LogFormat::Journald {
        return Ok((Log(None), BoxMakeWriter::new(io::stderr)));
    }
    let queue = LogQueue::start(io::stderr())
        .map_err(|error| Failure::new(format!("cannot start the thread that writes the log: {error}")))?;
    Ok((Log(Some(queue.clone())), BoxMakeWriter::new(move || queue.clone())))
}

fn no_journal(error: &io::Error) -> Failure {
    Failure::new(format!("cannot log to the journal of systemd: {error}"))
        .help("use --log text or --log json")
}

/// The place of the time and of the number of repetitions in a line.
#[derive(Clone, Copy)]
enum Timestamp {
    /// The time at the beginning of the line, the number at its end.
    First,
    /// Both as keys of a JSON object.
    Key,
}

/// Formats lines, and leaves out repetitions.
struct Sparing<F> {
    /// Formats an event without its time.
    format: F,
    timestamp: Timestamp,
    recent: Mutex<Recent>,
}

/// The lines of the last seconds, without their times.
#[derive(Default)]
struct Recent(BTreeMap<String, Written>);

/// When a line was written last, and how often it was left out since then.
struct Written {
    at: Instant,
    omitted: u64,
}

impl<F> Sparing<F> {
    fn new(format: F, timestamp: Timestamp) -> Self {
        Self { format, timestamp, recent: Mutex::default() }
    }
}

impl<S, N, F> FormatEvent<S, N> for Sparing<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut line = String::new();
        self.format.format_event(context, Writer::new(&mut line), event)?;
        let line = on_one_line(&line);
        let due = self.recent.lock().unwrap_or_else(PoisonError::into_inner).take(line, Instant::now());
        if due.is_empty() {
            return Ok(());
        }
        let mut now = String::new();
        SystemTime.format_time(&mut Writer::new(&mut now))?;
        due.iter().try_for_each(|(line, repeated)| {
            writer.write_str(&stamped(line, &now, *repeated, self.timestamp))
        })
    }
}

/// Lets only those events into the journal that are no repetitions. Nothing counts the others there, because an entry
/// of the journal is made of its event.
#[derive(Default)]
struct Unrepeated {
    recent: Mutex<Recent>,
}

impl Unrepeated {
    fn admits(&self, line: String, now: Instant) -> bool {
        let due = self.recent.lock().unwrap_or_else(PoisonError::into_inner).take(line.clone(), now);
        due.iter().any(|(known, _)| *known == line)
    }
}

impl<S> Filter<S> for Unrepeated {
    fn enabled(&self, _: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        true
    }

    fn event_enabled(&self, event: &Event<'_>, _: &Context<'_, S>) -> bool {
        let mut line = Fields(event.metadata().level().to_string());
        event.record(&mut line);
        self.admits(line.0, Instant::now())
    }
}

/// The level and the fields of an event as text.
struct Fields(String);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a string does not fail.
        let _ = write!(self.0, " {}={value:?}", field.name());
    }
}

impl Recent {
    /// Takes a new line. Returns the lines to write now, each with the number of its repetitions since it was written
    /// last.
    fn take(&mut self, line: String, now: Instant) -> Vec<(String, u64)> {
        let mut due = Vec::new();
        self.0.retain(|known, written| {
            let is_recent = now.duration_since(written.at) < REPEATED_AFTER;
            if !is_recent && written.omitted > 0 && *known != line {
                due.push((known.clone(), written.omitted));
            }
            is_recent || *known == line
        });
        match self.0.get_mut(&line) {
            Some(written) if now.duration_since(written.at) < REPEATED_AFTER => written.omitted += 1,
            Some(written) => {
                due.push((line, written.omitted));
                *written = Written { at: now, omitted: 0 };
            }
            None => {
                if self.0.len() < REMEMBERED {
                    self.0.insert(line.clone(), Written { at: now, omitted: 0 });
                }
                due.push((line, 0));
            }
        }
        due
    }
}

/// Escapes control characters within a line, so that a text of a peer cannot look like another line. The formatter has
/// already escaped those of terminals, other than its own colours.
fn on_one_line(line: &str) -> String {
    let escape = |letter: char| letter.is_control() && letter != '\u{1b}';
    let mut text = String::with_capacity(line.len());
    for letter in line.trim_end().chars() {
        match escape(letter) {
            true => text.extend(letter.escape_default()),
            false => text.push(letter),
        }
    }
    text
}

/// Adds the time to a line, and the number of its repetitions if there were any.
fn stamped(line: &str, now: &str, repeated: u64, timestamp: Timestamp) -> String {
    let text = line.trim_end();
    match (timestamp, repeated) {
        (Timestamp::First, 0) => format!("{now} {text}\n"),
        (Timestamp::First, repeated) => format!("{now} {text} (repeated {repeated} times)\n"),
        (Timestamp::Key, repeated) => {
            let count = if repeated == 0 { String::new() } else { format!("\"repeated\":{repeated},") };
            format!("{{\"timestamp\":\"{now}\",{count}{}\n", text.trim_start_matches('{'))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_repeats_is_written_once_in_ten_seconds() {
        let mut recent = Recent::default();
        let start = Instant::now();
        let mut take =
            |line: &str, seconds: u64| recent.take(line.to_owned(), start + Duration::from_secs(seconds));
        let line = |line: &str, repeated: u64| (line.to_owned(), repeated);
        assert_eq!(take("a", 0), [line("a", 0)]);
        assert_eq!(take("b", 1), [line("b", 0)]);
        assert_eq!(take("a", 2), []);
        assert_eq!(take("a", 9), []);
        assert_eq!(take("a", 10), [line("a", 2)], "the time is over");
        assert_eq!(take("a", 12), []);
        assert_eq!(take("c", 30), [line("a", 1), line("c", 0)], "the rest is told with the next line");
        assert_eq!(take("a", 31), [line("a", 0)]);
    }

    #[test]
    fn the_journal_gets_a_repeated_line_once_in_ten_seconds() {
        let journal = Unrepeated::default();
        let start = Instant::now();
        let admits =
            |line: &str, seconds: u64| journal.admits(line.to_owned(), start + Duration::from_secs(seconds));
        let flood: Vec<bool> = (0..10).map(|second| admits("refused", second)).collect();
        assert_eq!(flood.iter().filter(|&&admitted| admitted).count(), 1);
        assert!(flood[0] && admits("another", 5) && admits("refused", 10));
    }

    #[test]
    fn a_text_with_line_ends_stays_on_one_line() {
        let line = "WARN unknown rack=a\n2026 INFO all is well\r\u{85}b\n";
        assert_eq!(on_one_line(line), "WARN unknown rack=a\\n2026 INFO all is well\\r\\u{85}b");
    }

    #[test]
    fn lines_stay_whole_when_the_time_is_added() {
        assert_eq!(stamped("WARN slow h=1\n", "T", 0, Timestamp::First), "T WARN slow h=1\n");
        assert_eq!(stamped("WARN slow\n", "T", 3, Timestamp::First), "T WARN slow (repeated 3 times)\n");
        assert_eq!(
            stamped("{\"level\":\"WARN\"}\n", "T", 3, Timestamp::Key),
            "{\"timestamp\":\"T\",\"repeated\":3,\"level\":\"WARN\"}\n"
        );
    }
}
