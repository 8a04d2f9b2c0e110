//! A verb's result, printed as text or JSON.

use std::io::{self, Write};
use std::process::ExitCode;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::args::Format;
use crate::failure::{Exit, Failure, say};
use crate::format::{printable_lines, shown};

/// A verb's result: text for people, JSON for programs, a note for stderr and the exit code.
#[derive(Debug, Default)]
pub struct Answer {
    text: String,
    json: serde_json::Value,
    note: Option<String>,
    /// The failure of a step after the result was known.
    failure: Option<Failure>,
    exit: Exit,
}

impl Answer {
    /// Creates a result from a view of the API. `text` gets the view with [escaped names](shown).
    pub fn of<T: Serialize + DeserializeOwned>(view: &T, text: impl FnOnce(&T) -> String) -> Self {
        Self::new(shown(view, text), view)
    }

    /// Creates a result with a text form and a JSON form. The text must have escaped names and messages.
    pub fn new(text: impl Into<String>, facts: &impl Serialize) -> Self {
        let json = serde_json::to_value(facts).expect("facts have string keys");
        Self { text: text.into(), json, ..Self::default() }
    }

    /// Creates an empty result, which prints nothing.
    pub fn silent() -> Self {
        Self::default()
    }

    /// Creates a result that is only a note for stderr, for verbs whose stdout carries file data.
    pub fn note(note: impl Into<String>) -> Self {
        Self { note: Some(note.into()), ..Self::default() }
    }

    /// Prepends `text` and merges `facts` into the JSON object.
    pub fn after(mut self, text: &str, facts: &impl Serialize) -> Self {
        self.text.insert_str(0, text);
        let facts = serde_json::to_value(facts).expect("facts have string keys");
        if let (serde_json::Value::Object(all), serde_json::Value::Object(more)) = (&mut self.json, facts) {
            all.extend(more);
        }
        self
    }

    /// Replaces the exit code.
    pub fn with_exit(self, exit: Exit) -> Self {
        Self { exit, ..self }
    }

    /// Appends `line` to the text form.
    pub fn with_line(mut self, line: &str) -> Self {
        if !self.text.is_empty() && !self.text.ends_with('\n') {
            self.text.push('\n');
        }
        self.text += line;
        self
    }

    /// Adds a note for stderr.
    pub fn with_note(self, note: impl Into<String>) -> Self {
        let notes: Vec<String> = self.note.into_iter().chain([note.into()]).collect();
        Self { note: Some(notes.join("\n")), ..self }
    }

    /// Adds the failure of a step after the result was known. It is printed on stderr, and the exit code is the worse one.
    pub fn but(self, failure: Failure) -> Self {
        let exit = self.exit.or_worse(failure.exit_code());
        Self { failure: Some(failure.beside_stdout()), exit, ..self }
    }

    /// Sets the exit code if it is that of a success.
    pub fn or_exit(self, exit: Exit) -> Self {
        if self.exit == Exit::Done { self.with_exit(exit) } else { self }
    }

    /// Returns the text form.
    #[cfg(test)]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the JSON form.
    #[cfg(test)]
    pub fn facts(&self) -> &serde_json::Value {
        &self.json
    }

    /// Returns the exit code.
    #[cfg(test)]
    pub fn exit(&self) -> Exit {
        self.exit
    }

    /// Prints the result on stdout, and the note and the failure on stderr.
    pub fn print(self, format: Format) -> ExitCode {
        if let Some(note) = &self.note {
            say(&format!("note: {}", printable_lines(note)));
        }
        let mut text = match format {
            Format::Text => printable_lines(&self.text).into_owned(),
            Format::Json if self.json.is_null() => String::new(),
            Format::Json => serde_json::to_string_pretty(&self.json).expect("values are JSON"),
        };
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        let mut out = io::stdout().lock();
        let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
        if let Some(failure) = self.failure {
            let _ = failure.print(format); // `exit` includes its exit code.
        }
        match written {
            // A reader such as `head` may close the pipe early; this is no failure.
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                say(&format!("error: cannot write to stdout: {error}"));
                self.exit.unwritten().into()
            }
            _ => self.exit.into(),
        }
    }
}
