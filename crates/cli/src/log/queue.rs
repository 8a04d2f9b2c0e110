//! The lines of a daemon's log on their way to stderr. A thread of its own writes them, so a reader of the log that stops
//! reading holds up no other thread. Lines for which there is no room are left out and counted.

use std::io::{self, Write};
use std::mem;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, ThreadId};
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
    /// The thread that writes the lines.
    writer: OnceLock<ThreadId>,
}

#[derive(Default)]
struct State {
    /// Whole lines, in order.
    waiting: Vec<u8>,
    /// The number of lines left out that no report has told yet.
    omitted: u64,
    /// The report of lines left out. The writing thread logs it, and writes it past the queue, which may be full.
    report: Vec<u8>,
    /// Whether lines were taken and are being written.
    is_writing: bool,
}

impl LogQueue {
    /// Starts the thread that writes the lines to `out`.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub fn start(out: impl Write + Send + 'static) -> io::Result<Self> {
        let queue = Self::default();
        let writer = queue.clone();
        let report = |lines: u64| {
            tracing::error!(
                lines,
                "left lines out of the log, because its reader is too slow or stderr cannot be written"
            );
        };
        thread::Builder::new().name("log".to_owned()).spawn(move || writer.write_to(out, report))?;
        Ok(queue)
    }

    /// Waits until all lines are written, for at most `limit`.
    pub fn flush_within(&self, limit: Duration) {
        let is_busy = |state: &mut State| state.is_writing || !state.waiting.is_empty();
        let waited = self.0.changed.wait_timeout_while(self.state(), limit, is_busy);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    /// Writes all lines to `out`. `report` logs the number of lines left out.
    fn write_to(&self, mut out: impl Write, report: impl Fn(u64)) {
        self.0.writer.get_or_init(|| thread::current().id());
        loop {
            let (lines, omitted) = self.take();
            match write_lines(&mut out, &lines) {
                0 if omitted > 0 => self.tell(omitted, &mut out, &report),
                lost => self.state().omitted += lost,
            }
            self.state().is_writing = false;
            self.0.changed.notify_all();
        }
    }

    /// Reports lines left out. If the report cannot be written, they count for the next one.
    fn tell(&self, omitted: u64, out: &mut impl Write, report: impl Fn(u64)) {
        report(omitted);
        let text = mem::take(&mut self.state().report);
        if write_lines(out, &text) == 0 {
            self.state().omitted -= omitted;
        }
    }

    /// Waits for lines and takes all of them. Also returns the number of lines left out that no report has told yet.
    fn take(&self) -> (Vec<u8>, u64) {
        let waited = self.0.changed.wait_while(self.state(), |state| state.waiting.is_empty());
        let mut state = waited.unwrap_or_else(PoisonError::into_inner);
        state.is_writing = true;
        (mem::take(&mut state.waiting), state.omitted)
    }

    fn is_report(&self) -> bool {
        self.0.writer.get() == Some(&thread::current().id())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Write for LogQueue {
    /// Takes whole lines, or leaves them out if they would not fit.
    fn write(&mut self, lines: &[u8]) -> io::Result<usize> {
        let is_report = self.is_report();
        let mut state = self.state();
        let fits = state.waiting.len() + lines.len() <= WAITING_BYTES;
        match (is_report, fits) {
            (true, _) => state.report.extend_from_slice(lines),
            (false, true) => state.waiting.extend_from_slice(lines),
            (false, false) => state.omitted += count(lines),
        }
        drop(state);
        self.0.changed.notify_all();
        Ok(lines.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes lines, until an error. Returns the number of lines that were not written completely.
fn write_lines(out: &mut impl Write, lines: &[u8]) -> u64 {
    let mut rest = lines;
    while !rest.is_empty() {
        match out.write(rest) {
            Ok(0) => break,
            Ok(written) => rest = &rest[written..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => break, // There is no other place for the error.
        }
    }
    count(rest)
}

/// Counts the ends of lines.
fn count(lines: &[u8]) -> u64 {
    lines.iter().filter(|&&byte| byte == b'\n').count() as u64
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
        assert_eq!(queue.take(), (b"c\n".to_vec(), WAITING_BYTES as u64), "no report was written");
    }

    #[test]
    fn lines_after_an_error_count_as_left_out() {
        let mut room = [0; 5];
        assert_eq!(write_lines(&mut room.as_mut_slice(), b"a\nb\nc\nd\n"), 2);
        assert_eq!(&room, b"a\nb\nc");
    }

    const FLOOD: u64 = 3000;
    const LINE_BYTES: usize = 1000;

    /// An output so slow that more lines than the queue can hold arrive during its first writes. The first write fails.
    struct Slow {
        queue: LogQueue,
        floods: u64,
        has_failed: bool,
        written: Sender<Vec<u8>>,
    }

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if self.floods > 0 {
                self.floods -= 1;
                let mut queue = self.queue.clone();
                let line = format!("{}\n", "x".repeat(LINE_BYTES - 1));
                let flood = move || (0..FLOOD).for_each(|_| queue.write_all(line.as_bytes()).unwrap());
                thread::spawn(flood).join().unwrap();
            }
            if !mem::replace(&mut self.has_failed, true) {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.written.send(bytes.to_owned()).map_err(io::Error::other)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_slow_reader_is_told_the_number_of_all_lines_left_out() {
        const FLOODS: u64 = 4;
        let (written, read) = channel();
        let mut queue = LogQueue::default();
        let out = Slow { queue: queue.clone(), floods: FLOODS, has_failed: false, written };
        let (writer, reports) = (queue.clone(), queue.clone());
        let report =
            move |lines: u64| reports.clone().write_all(format!("omitted {lines}\n").as_bytes()).unwrap();
        queue.write_all(b"x\n").unwrap();
        thread::spawn(move || writer.write_to(out, report));
        queue.flush_within(LONG);
        let text = String::from_utf8(read.try_iter().flatten().collect()).unwrap();
        let (told, kept): (Vec<&str>, Vec<&str>) = text.lines().partition(|line| line.starts_with("omitted"));
        let omitted: u64 = told.iter().map(|line| line["omitted ".len()..].parse::<u64>().unwrap()).sum();
        assert!(kept.iter().all(|line| line.len() == LINE_BYTES - 1), "lines stay whole");
        assert_eq!(kept.len() as u64 + omitted, 1 + FLOODS * FLOOD, "{told:?}");
    }
}
