//! What a verb has to say, for people and for machines.

use std::io::{self, Write};
use std::process::ExitCode;

use serde::Serialize;

use crate::args::Format;
use crate::failure::Exit;
use crate::format::printable_lines;

/// What a verb has to say.
#[derive(Debug, Default)]
pub struct Answer {
    text: String,
    json: serde_json::Value,
    note: Option<String>,
    exit: Exit,
}

impl Answer {
    /// An answer in both forms.
    pub fn new(text: impl Into<String>, facts: &impl Serialize) -> Self {
        let json = serde_json::to_value(facts).expect("facts have string keys");
        Self { text: text.into(), json, note: None, exit: Exit::Done }
    }

    /// Nothing to say in either form.
    pub fn silent() -> Self {
        Self::default()
    }

    /// Nothing to say but this, on stderr: stdout is taken.
    pub fn note(note: impl Into<String>) -> Self {
        Self { note: Some(note.into()), ..Self::default() }
    }

    /// The same with something said before it, and more facts beside its own.
    pub fn after(mut self, text: &str, facts: &impl Serialize) -> Self {
        self.text.insert_str(0, text);
        let facts = serde_json::to_value(facts).expect("facts have string keys");
        if let (serde_json::Value::Object(all), serde_json::Value::Object(more)) = (&mut self.json, facts) {
            all.extend(more);
        }
        self
    }

    /// The same with another exit code.
    pub fn with_exit(self, exit: Exit) -> Self {
        Self { exit, ..self }
    }

    /// The same with one more line for people.
    pub fn with_line(mut self, line: &str) -> Self {
        self.text += line;
        self
    }

    /// Its facts.
    #[cfg(test)]
    pub fn facts(&self) -> &serde_json::Value {
        &self.json
    }

    /// Prints it on stdout, and its note on stderr.
    pub fn print(self, format: Format) -> ExitCode {
        if let Some(note) = &self.note {
            eprintln!("note: {}", printable_lines(note));
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
        match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
            // Whoever read from us has seen enough.
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                eprintln!("error: cannot write to stdout: {error}");
                Exit::Failed.into()
            }
            _ => self.exit.into(),
        }
    }
}
