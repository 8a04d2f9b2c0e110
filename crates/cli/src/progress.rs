//! Shows the progress of transfers that take longer than a second: a bar on terminals, a line every few
//! seconds elsewhere.

use std::cell::Cell;
use std::io::IsTerminal;
use std::sync::Arc;
use std::time::{Duration, Instant};

use client::Progress;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::failure::say;
use crate::format::printable;

const SHOWN_AFTER: Duration = Duration::from_secs(1);

/// Interval of progress lines if no bar is shown.
const SAID_EVERY: Duration = Duration::from_secs(5);

const TEMPLATE: &str = "{msg} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec} eta {eta}";

/// The template for a paused transfer, which has no rate and no estimated end.
const PAUSED: &str = "{msg} {wide_bar} {bytes}/{total_bytes} paused";

/// A progress bar; dropping it clears the bar.
pub struct Bar {
    bar: ProgressBar,
    shown: tokio::task::JoinHandle<()>,
    said: Cell<Instant>,
    is_paused: Cell<bool>,
}

impl Bar {
    /// Creates a bar for `bytes` bytes. `what` names the operation.
    pub fn new(what: &str, bytes: u64) -> Self {
        let bar = ProgressBar::with_draw_target(Some(bytes), ProgressDrawTarget::hidden());
        bar.set_style(style(TEMPLATE));
        bar.set_message(printable(what).into_owned());
        let shown = tokio::spawn(show(bar.clone()));
        Self { bar, shown, said: Cell::new(Instant::now()), is_paused: Cell::new(false) }
    }

    /// Returns a callback that advances the bar by the bytes moved.
    pub fn progress(&self) -> Progress {
        let bar = self.bar.clone();
        // A replanned repair may move some bytes twice; the bar stops at its length.
        Arc::new(move |bytes| {
            bar.set_position((bar.position() + bytes).min(bar.length().unwrap_or(u64::MAX)))
        })
    }

    /// Prints `line` to stderr if no bar is shown and `SAID_EVERY` has passed since the last line.
    pub fn say(&self, line: &str) {
        if self.said.get().elapsed() >= SAID_EVERY && !is_shown() {
            say(&printable(line));
            self.said.set(Instant::now());
        }
    }

    /// Switches between the paused and the running display.
    pub fn pause(&self, is_paused: bool) {
        if self.is_paused.replace(is_paused) != is_paused {
            self.bar.set_style(style(if is_paused { PAUSED } else { TEMPLATE }));
            self.bar.reset_eta();
        }
    }

    /// Sets the bytes moved so far to `bytes`, and the total to `of`.
    pub fn set(&self, bytes: u64, of: u64) {
        self.bar.set_length(of);
        self.bar.set_position(bytes.min(of));
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.shown.abort();
        self.bar.finish_and_clear();
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).expect("the template is right")
}

async fn show(bar: ProgressBar) {
    if is_shown() {
        tokio::time::sleep(SHOWN_AFTER).await;
        bar.set_draw_target(ProgressDrawTarget::stderr());
        bar.enable_steady_tick(Duration::from_millis(200));
    }
}

fn is_shown() -> bool {
    std::io::stdout().is_terminal() && std::io::stderr().is_terminal()
}
