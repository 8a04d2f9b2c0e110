//! The lines of a daemon's log on their way to stderr. A thread of its own writes them, so a reader of the log that stops
//! reading holds up no other thread. Lines for which there is no room are left out and counted.

use std::io::{self, Write};
use std::mem;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// The maximum size of the lines that wait. While they are written, as many again may wait.
const WAITING_BYTES: usize = 1 << 20;

/// A queue of lines. Writing to it never waits for the output.
#[derive(Clone, Default)]
pub struct LogQueue(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Whole lines, in order.
    waiting: Vec<u8>,
    /// The number of lines left out since lines were taken last.
    omitted: u64,
    /// Whether lines were taken and are being written.
    is_writing: bool,
}

impl State {
    fn has_news(&self) -> bool {
        !self.waiting.is_empty() || self.omitted > 0
    }
}

impl LogQueue {
    /// Starts the thread that writes the lines to `out`.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub fn start(out: impl Write + Send + 'static) -> io::Result<Self> {
        let queue = Self::default();
        let writer = queue.clone();
        thread::Builder::new().name("log".to_owned()).spawn(move || writer.write_to(out))?;
        Ok(queue)
    }

    /// Waits until all lines are written, for at most `limit`.
    pub fn flush_within(&self, limit: Duration) {
        let is_busy = |state: &mut State| state.is_writing || state.has_news();
        let waited = self.0.changed.wait_timeout_while(self.state(), limit, is_busy);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    fn write_to(&self, mut out: impl Write) {
        loop {
            let (lines, omitted) = self.take();
            // Ignore the error: there is no other place for the lines.
            let _ = out.write_all(&lines).and_then(|()| out.flush());
            if omitted > 0 {
                tracing::error!(lines = omitted, "left lines out of the log, because its reader is too slow");
            }
            self.state().is_writing = false;
            self.0.changed.notify_all();
        }
    }

    /// Waits for lines and takes all of them, with the number of lines that were left out meanwhile.
    fn take(&self) -> (Vec<u8>, u64) {
        let waited = self.0.changed.wait_while(self.state(), |state| !state.has_news());
        let mut state = waited.unwrap_or_else(PoisonError::into_inner);
        state.is_writing = true;
        (mem::take(&mut state.waiting), mem::take(&mut state.omitted))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Write for LogQueue {
    /// Takes whole lines, or leaves them out if they would not fit.
    fn write(&mut self, lines: &[u8]) -> io::Result<usize> {
        let mut state = self.state();
        match state.waiting.len() + lines.len() <= WAITING_BYTES {
            true => state.waiting.extend_from_slice(lines),
            false => state.omitted += lines.iter().filter(|&&byte| byte == b'\n').count() as u64,
        }
        drop(state);
        self.0.changed.notify_all();
        Ok(lines.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::time::Instant;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    /// An output whose reader permits each write.
    struct Output {
        permits: Receiver<()>,
        written: Sender<Vec<u8>>,
    }

    impl Write for Output {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.permits.recv().map_err(io::Error::other)?;
            self.written.send(bytes.to_owned()).map_err(io::Error::other)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_reader_that_stops_reading_holds_up_no_writer() {
        let ((permit, permits), (written, read)) = (channel(), channel());
        let mut queue = LogQueue::start(Output { permits, written }).unwrap();
        let line = format!("{}\n", "x".repeat(999));
        let lines = 4 * WAITING_BYTES / line.len();
        queue.write_all(line.as_bytes()).unwrap();
        while !queue.state().is_writing {
            thread::yield_now();
        }
        (1..lines).for_each(|_| queue.write_all(line.as_bytes()).unwrap());
        let begun = Instant::now();
        queue.flush_within(Duration::from_millis(10));
        assert!(begun.elapsed() < LONG, "the end of the program waits for a moment only");
        let omitted = queue.state().omitted;
        assert!(omitted > lines as u64 / 2, "{omitted} of {lines}");
        (0..10).for_each(|_| permit.send(()).unwrap());
        queue.flush_within(LONG);
        let text: Vec<u8> = read.try_iter().flatten().collect();
        let kept = text.len() / line.len();
        assert!(text == line.repeat(kept).into_bytes(), "lines stay whole");
        assert_eq!(kept as u64 + omitted, lines as u64);
    }

    #[test]
    fn lines_are_taken_in_order_with_the_number_of_those_left_out() {
        let mut queue = LogQueue::default();
        queue.write_all(b"a\n").unwrap();
        queue.write_all(&vec![b'\n'; WAITING_BYTES]).unwrap();
        queue.write_all(b"b\n").unwrap();
        assert_eq!(queue.take(), (b"a\nb\n".to_vec(), WAITING_BYTES as u64));
        assert!(queue.state().is_writing);
        queue.write_all(b"c\n").unwrap();
        assert_eq!(queue.take(), (b"c\n".to_vec(), 0));
    }
}
