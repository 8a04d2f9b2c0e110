//! Progress bars on terminals, for what takes longer than a second; elsewhere a line now and then.

use std::cell::Cell;
use std::io::IsTerminal;
use std::sync::Arc;
use std::time::{Duration, Instant};

use client::Progress;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::format::printable;

const SHOWN_AFTER: Duration = Duration::from_secs(1);

/// Where there is no bar, a line is said this often.
const SAID_EVERY: Duration = Duration::from_secs(5);

const TEMPLATE: &str = "{msg} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec} eta {eta}";

/// The same while nothing moves: there is no rate, and nobody knows the end.
const PAUSED: &str = "{msg} {wide_bar} {bytes}/{total_bytes} paused";

/// A bar that is gone when it is dropped.
pub struct Bar {
    bar: ProgressBar,
    shown: tokio::task::JoinHandle<()>,
    said: Cell<Instant>,
    is_paused: Cell<bool>,
}

impl Bar {
    /// A bar for `bytes` bytes; `what` says what is done with them.
    pub fn new(what: &str, bytes: u64) -> Self {
        let bar = ProgressBar::with_draw_target(Some(bytes), ProgressDrawTarget::hidden());
        bar.set_style(style(TEMPLATE));
        bar.set_message(printable(what).into_owned());
        let shown = tokio::spawn(show(bar.clone()));
        Self { bar, shown, said: Cell::new(Instant::now()), is_paused: Cell::new(false) }
    }

    /// Tells the bar of bytes as they move.
    pub fn progress(&self) -> Progress {
        let bar = self.bar.clone();
        // What is moved twice because a plan was dropped does not count beyond the whole.
        Arc::new(move |bytes| {
            bar.set_position((bar.position() + bytes).min(bar.length().unwrap_or(u64::MAX)))
        })
    }

    /// Says how it goes where no bar is shown: on stderr, now and then.
    pub fn say(&self, line: &str) {
        if self.said.get().elapsed() >= SAID_EVERY && !is_shown() {
            eprintln!("{}", printable(line));
            self.said.set(Instant::now());
        }
    }

    /// Shows that nothing moves, or that it goes on.
    pub fn pause(&self, is_paused: bool) {
        if self.is_paused.replace(is_paused) != is_paused {
            self.bar.set_style(style(if is_paused { PAUSED } else { TEMPLATE }));
            self.bar.reset_eta();
        }
    }

    /// Sets the bar.
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
