//! The connection of an edge: TCP, with TLS on top if the edge is encrypted.

use std::future::poll_fn;
use std::io::{self, IoSlice, IoSliceMut, Write};
use std::net::SocketAddr;
use std::task::{Context, Poll, ready};

use nix::sys::socket::SetSockOpt;
use nix::{setsockopt_impl, sockopt_impl};
use repair::wire::edge::{GREETING_BYTES, Greeting};
use rustix::io::readv;
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::TcpStream;

use crate::secure::Tls;

sockopt_impl!(
    /// `SO_RCVLOWAT`: the number of bytes that make a socket readable. The end of the stream and errors
    /// always make it readable.
    RecvLowWater, SetOnly, libc::SOL_SOCKET, libc::SO_RCVLOWAT, i32
);

sockopt_impl!(
    /// `TCP_NOTSENT_LOWAT`: a socket with this number of unsent bytes accepts no more. 0 means the system's
    /// default.
    UnsentLowWater, SetOnly, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, i32
);

/// A connection that carries edges.
#[derive(Debug)]
pub(crate) struct EdgeStream {
    pub(crate) tcp: TcpStream,
    pub(crate) tls: Option<Box<Tls>>,
}

/// A connection that is idle after one edge and before the next. It is registered with no async runtime.
#[derive(Debug)]
pub(crate) struct Resting {
    tcp: std::net::TcpStream,
    tls: Option<Box<Tls>>,
}

/// The state of reading from a socket: when to read, and when the kernel wakes the task.
#[derive(Debug)]
pub(crate) struct Receiver {
    /// Whether probably no more bytes are available, as after a read that took all of them.
    drained: bool,
    /// The number of bytes that must arrive before the kernel wakes the task.
    wake_at: usize,
}

impl EdgeStream {
    /// Returns the name in the other end's certificate, if the connection is encrypted.
    pub(crate) fn tls_name(&self) -> Option<&str> {
        self.tls.as_ref().map(|tls| tls.name())
    }

    /// Bounds the bytes that wait in the kernel, apart from those in flight; 0 stands for the system's bound.
    pub(crate) fn bound_unsent(&self, bytes: i32) {
        // A system without this option only keeps more bytes.
        let _ = UnsentLowWater.set(&self.tcp, &bytes);
    }

    /// Reads the first bytes of an edge that the other end dialled.
    pub(crate) async fn read_greeting(&mut self) -> io::Result<[u8; GREETING_BYTES]> {
        let mut bytes = [0; GREETING_BYTES];
        let Some(tls) = &mut self.tls else {
            self.tcp.read_exact(&mut bytes).await?;
            return Ok(bytes);
        };
        let (mut receiver, mut filled) = (Receiver::new(), 0);
        while filled < GREETING_BYTES {
            let rest = &mut bytes[filled..];
            filled +=
                poll_fn(|cx| tls.poll_read(cx, &self.tcp, &mut receiver, [rest, &mut []], None)).await?;
        }
        tls.shrink();
        Ok(bytes)
    }

    /// Sends the greeting with the key of an edge.
    pub(crate) async fn write_greeting(&mut self, greeting: &Greeting) -> io::Result<()> {
        let bytes = greeting.encode();
        let Some(tls) = &mut self.tls else { return self.tcp.write_all(&bytes).await };
        let mut sent = 0;
        while sent < bytes.len() {
            sent += poll_fn(|cx| tls.poll_write(cx, &self.tcp, &[IoSlice::new(&bytes[sent..])])).await?;
        }
        Ok(())
    }

    /// Sends bytes of `parts`; returns the number of bytes sent. After 0, the same parts must be passed again.
    pub(crate) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let Self { tcp, tls } = self;
        if let Some(tls) = tls {
            return tls.poll_write(cx, tcp, parts);
        }
        loop {
            ready!(tcp.poll_write_ready(cx))?;
            match tcp.try_write_vectored(parts) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Ok(0) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                result => return Poll::Ready(result),
            }
        }
    }

    /// Whether no unexpected bytes have arrived, so that another edge may follow. Also resets the low-water
    /// mark, so that every byte wakes the reader.
    pub(crate) fn is_drained(&mut self) -> bool {
        self.tls.as_mut().is_none_or(|tls| tls.is_drained()) && RecvLowWater.set(&self.tcp, &1).is_ok()
    }

    /// Detaches the connection from its runtime.
    pub(crate) fn rest(mut self) -> io::Result<Resting> {
        if let Some(tls) = &mut self.tls {
            tls.shrink();
        }
        Ok(Resting { tcp: self.tcp.into_std()?, tls: self.tls })
    }

    /// Moves the connection to the caller's runtime.
    pub(crate) fn moved_here(self) -> io::Result<Self> {
        Ok(Self { tcp: TcpStream::from_std(self.tcp.into_std()?)?, tls: self.tls })
    }
}

impl Resting {
    /// Returns the address of the other end.
    pub(crate) fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.tcp.peer_addr()
    }

    /// Attaches the connection to the caller's runtime.
    pub(crate) fn wake(self) -> io::Result<EdgeStream> {
        Ok(EdgeStream { tcp: TcpStream::from_std(self.tcp)?, tls: self.tls })
    }

    /// Sends the greeting of the next edge. Returns `None` if the other end has closed the connection or sent
    /// unexpected data.
    pub(crate) fn use_again(mut self, greeting: &Greeting) -> Option<EdgeStream> {
        let quiet = self.tcp.peek(&mut [0]).is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock);
        let bytes = match &mut self.tls {
            Some(tls) => tls.encrypted(&greeting.encode()).ok()?,
            None => greeting.encode().to_vec(),
        };
        let sent = quiet && (&self.tcp).write(&bytes).is_ok_and(|sent| sent == bytes.len());
        sent.then(|| self.wake().ok())?
    }
}

impl Receiver {
    /// Creates the state of a socket from which nothing was read. It counts as drained: the kernel then wakes
    /// the task only when the first slice is complete.
    pub(crate) fn new() -> Self {
        Self { drained: true, wake_at: 1 }
    }

    /// Reads the available bytes into `parts`, which hold `wanted` bytes in total, at least one. If no bytes
    /// are available, the kernel wakes the task once `wake_at` bytes have arrived. The end of the stream is
    /// an error, since both ends know how many bytes follow.
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        tcp: &TcpStream,
        parts: &mut [IoSliceMut<'_>],
        wanted: usize,
        wake_at: usize,
    ) -> Poll<io::Result<usize>> {
        loop {
            if self.drained && wake_at != self.wake_at {
                // A slice arrives in many pieces; waking for each one would cost more than the slice itself.
                RecvLowWater.set(tcp, &(wake_at as i32))?;
                self.wake_at = wake_at;
            }
            ready!(tcp.poll_read_ready(cx))?;
            let mut bytes = None;
            let done = tcp.try_io(Interest::READABLE, || {
                let read = readv(tcp, parts)?;
                bytes = Some(read);
                match read {
                    // All available bytes were read; another read would only return `WouldBlock`. Returning
                    // that error makes tokio wait until more bytes arrive.
                    1.. if read < wanted => Err(io::ErrorKind::WouldBlock.into()),
                    _ => Ok(()),
                }
            });
            match (bytes, done) {
                (Some(0), _) => return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
                (Some(bytes), _) => {
                    self.drained = bytes < wanted;
                    return Poll::Ready(Ok(bytes));
                }
                (None, Err(error)) if error.kind() != io::ErrorKind::WouldBlock => {
                    return Poll::Ready(Err(error));
                }
                (None, _) => self.drained = true,
            }
        }
    }
}
