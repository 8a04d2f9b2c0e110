//! SIGINT and SIGTERM.

use std::future::pending;
use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Waits for SIGINT or SIGTERM.
pub async fn interrupted() {
    Interrupts::listen().next().await;
}

/// SIGINT and SIGTERM since [`listen`](Self::listen). From then on they no longer terminate the process, so the
/// caller must wait for [`next`](Self::next) all the time.
pub struct Interrupts(Option<(Signal, Signal)>);

impl Interrupts {
    /// Starts to listen. Without handlers, the signals' default actions still terminate the process.
    pub fn listen() -> Self {
        let handlers = || -> io::Result<(Signal, Signal)> {
            Ok((signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?))
        };
        Self(handlers().ok())
    }

    /// Waits for the next signal. Returns at once if one has arrived since the last call.
    pub async fn next(&mut self) {
        let Some((interrupt, terminate)) = &mut self.0 else { return pending().await };
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    }
}
