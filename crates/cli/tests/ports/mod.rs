//! Ports for the daemons of a test.

use std::net::TcpListener;
use std::ops::Range;

/// Ports that belong to one test.
const ROW: u16 = 32;

/// Ports in a row, of which no other test takes one.
///
/// That a port is free now does not keep it free: the system gives ports to outgoing connections as it likes. So
/// these are from where it never takes them, and a listener on the one before the first marks the row as taken for
/// every other test, in this process or another, until this is dropped.
pub struct Ports {
    first: u16,
    _mark: TcpListener,
}

impl Ports {
    /// `count` ports that nobody uses.
    pub fn take(count: u16) -> Self {
        assert!(count < ROW);
        let taken = rows().into_iter().find_map(|mark| {
            let _mark = listen(mark)?;
            let first = mark + 1;
            (first..first + count).all(|port| listen(port).is_some()).then_some(Self { first, _mark })
        });
        taken.expect("some ports are free")
    }

    /// The first of them.
    pub fn first(&self) -> u16 {
        self.first
    }
}

fn listen(port: u16) -> Option<TcpListener> {
    TcpListener::bind(("127.0.0.1", port)).ok()
}

/// The first ports of rows that outgoing connections never get, from some place on and then around, so that tests
/// which begin at once seldom try the same ones.
fn rows() -> Vec<u16> {
    const LOWEST: u16 = 10_000;
    let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let mut bounds = range.split_whitespace().map(|bound| bound.parse().unwrap_or(u16::MAX));
    let (low, high) = (bounds.next().unwrap_or(32_768), bounds.next().unwrap_or(60_999));
    let rows = |ports: Range<u16>| ports.step_by(usize::from(ROW));
    let mut free: Vec<u16> = rows(LOWEST..low.saturating_sub(ROW)).collect();
    free.extend(rows(high.saturating_add(1)..u16::MAX - ROW));
    if free.is_empty() {
        // Everything is given to outgoing connections: what is left is to be lucky.
        free = rows(LOWEST..u16::MAX - ROW).collect();
    }
    let from = std::process::id() as usize * 7 % free.len();
    free.rotate_left(from);
    free
}
