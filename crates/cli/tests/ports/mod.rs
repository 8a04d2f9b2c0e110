//! Ports for the daemons of a test.

use std::net::TcpListener;
use std::ops::Range;

/// The number of consecutive ports that a test reserves.
const ROW: u16 = 32;

/// Consecutive ports that no other test uses.
///
/// Binding a free port in advance is not enough, because the system may assign it to an outgoing connection.
/// These ports lie outside the ephemeral range. A listener on the port before the first one keeps other
/// tests, in this process or another, from using the same ports until this value is dropped.
pub struct Ports {
    first: u16,
    _mark: TcpListener,
}

impl Ports {
    /// Reserves `count` unused ports.
    pub fn take(count: u16) -> Self {
        assert!(count < ROW);
        let taken = rows().into_iter().find_map(|mark| {
            let _mark = listen(mark)?;
            let first = mark + 1;
            (first..first + count).all(|port| listen(port).is_some()).then_some(Self { first, _mark })
        });
        taken.expect("some ports are free")
    }

    /// Returns the first port.
    pub fn first(&self) -> u16 {
        self.first
    }
}

fn listen(port: u16) -> Option<TcpListener> {
    TcpListener::bind(("127.0.0.1", port)).ok()
}

/// Returns the first port of every row outside the ephemeral range. The list starts with a different row in
/// each process, so that concurrent tests rarely try the same one.
fn rows() -> Vec<u16> {
    const LOWEST: u16 = 10_000;
    let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let mut bounds = range.split_whitespace().map(|bound| bound.parse().unwrap_or(u16::MAX));
    let (low, high) = (bounds.next().unwrap_or(32_768), bounds.next().unwrap_or(60_999));
    let rows = |ports: Range<u16>| ports.step_by(usize::from(ROW));
    let mut free: Vec<u16> = rows(LOWEST..low.saturating_sub(ROW)).collect();
    free.extend(rows(high.saturating_add(1)..u16::MAX - ROW));
    if free.is_empty() {
        // The ephemeral range covers all ports, so use its ports although they may be taken.
        free = rows(LOWEST..u16::MAX - ROW).collect();
    }
    let from = std::process::id() as usize * 7 % free.len();
    free.rotate_left(from);
    free
}
