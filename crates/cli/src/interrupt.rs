//! SIGINT and SIGTERM.

use tokio::signal::unix::{SignalKind, signal};

/// Waits until somebody wants this process to end.
pub async fn interrupted() {
    let (Ok(mut interrupt), Ok(mut terminate)) =
        (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
    else {
        // Then the system's own way of ending a process stays in force.
        return std::future::pending().await;
    };
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
}
