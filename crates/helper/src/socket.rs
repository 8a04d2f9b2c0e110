//! The two ends of an edge, as state machines over a non-blocking socket.
//!
//! Payloads are received directly into slice buffers and sent directly from them. One system call reads the
//! rest of a payload together with the next header; one system call writes several frames.
//!
//! Credits, which only edges with serial pacing have, take the opposite direction on the same connection. A
//! reader of credits never reads beyond the one that it expects.

use std::collections::VecDeque;
use std::future::Future;
use std::io::{self, IoSlice, IoSliceMut};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use repair::Buffer;
use repair::wire::edge::{CREDIT_BYTES, Credit, EdgeError, FrameHeader, HEADER_BYTES};

use crate::background_pacing::{PathSample, PathWatch};
use crate::stream::{EdgeStream, Receiver};

/// A connection being established.
pub(crate) type Connecting = Pin<Box<dyn Future<Output = io::Result<EdgeStream>> + Send>>;

/// The maximum number of frames in one system call.
const MAX_FRAMES_AT_ONCE: usize = 8;

/// Why an edge ended before it was complete.
#[derive(Debug)]
pub(crate) enum SocketError {
    /// The connection broke or could not be established.
    Closed(io::Error),
    /// The received data violates the protocol.
    Bad(EdgeError),
}

/// A connection, established or not.
enum Link {
    Connecting(Connecting),
    Open(EdgeStream),
    /// The connection could not be established; the next [`poll`](Self::poll) returns the error.
    Failed(io::Error),
    /// The connection was taken when the edge was complete.
    Gone,
}

impl Link {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<&mut EdgeStream>> {
        self.poll_connecting(cx);
        match self {
            Self::Connecting(_) => Poll::Pending,
            Self::Open(stream) => Poll::Ready(Ok(stream)),
            Self::Failed(error) => {
                let again = io::Error::from(error.kind());
                Poll::Ready(Err(std::mem::replace(error, again)))
            }
            Self::Gone => unreachable!("it is not polled when gone"),
        }
    }

    /// Establishes the connection, as far as that is possible without waiting.
    fn poll_connecting(&mut self, cx: &mut Context<'_>) {
        if let Self::Connecting(connecting) = self
            && let Poll::Ready(connected) = connecting.as_mut().poll(cx)
        {
            *self = connected.map_or_else(Self::Failed, Self::Open);
        }
    }

    fn take(&mut self) -> Option<EdgeStream> {
        match std::mem::replace(self, Self::Gone) {
            Self::Open(stream) => Some(stream),
            Self::Connecting(_) | Self::Failed(_) | Self::Gone => None,
        }
    }
}

/// The receiving end of an edge.
pub(crate) struct InletSocket {
    link: Link,
    receiver: Receiver,
    header: [u8; HEADER_BYTES],
    header_filled: usize,
    frame: Option<Partial>,
    /// Encoded credits that are not sent completely, and the number of their bytes that were sent.
    credits: Vec<u8>,
    credits_gone: usize,
    /// Bytes that may be received before the next grant, and bytes received since the last query.
    granted: usize,
    moved: usize,
}

struct Partial {
    header: FrameHeader,
    buffer: Buffer,
    filled: usize,
}

impl InletSocket {
    pub(crate) fn new(connecting: Connecting) -> Self {
        let link = Link::Connecting(connecting);
        Self {
            link,
            receiver: Receiver::new(),
            header: [0; HEADER_BYTES],
            header_filled: 0,
            frame: None,
            credits: Vec::new(),
            credits_gone: 0,
            granted: usize::MAX,
            moved: 0,
        }
    }

    pub(crate) fn push_credit(&mut self, credit: Credit) {
        self.credits.extend(credit.encode());
    }

    /// Sends all queued credits; returns their number.
    pub(crate) fn poll_credits(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        while self.credits_gone < self.credits.len() {
            let stream = ready!(self.link.poll(cx))?;
            let rest = IoSlice::new(&self.credits[self.credits_gone..]);
            self.credits_gone += ready!(stream.poll_write(cx, &[rest]))?;
        }
        let credits = self.credits.len() / CREDIT_BYTES;
        self.credits.clear();
        self.credits_gone = 0;
        Poll::Ready(Ok(credits))
    }

    /// Establishes the connection, as far as that is possible without waiting.
    pub(crate) fn poll_connecting(&mut self, cx: &mut Context<'_>) {
        self.link.poll_connecting(cx);
    }

    /// Receives until a whole frame is available, and verifies its checksum. `take` allocates the frame's
    /// buffer. A frame with more than `due_bytes` of payload is an error.
    pub(crate) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
        due_bytes: usize,
        take: &mut dyn FnMut(usize) -> Buffer,
    ) -> Poll<Result<(FrameHeader, Buffer), SocketError>> {
        loop {
            if self.frame.is_none() && self.header_filled == HEADER_BYTES {
                self.frame = Some(self.begin(due_bytes, take)?);
            }
            if let Some(frame) = self.frame.take_if(|frame| frame.filled == frame.buffer.len()) {
                frame.header.verify(&frame.buffer).map_err(SocketError::Bad)?;
                return Poll::Ready(Ok((frame.header, frame.buffer)));
            }
            ready!(self.poll_fill(cx, due_bytes)).map_err(SocketError::Closed)?;
        }
    }

    /// Whether data may be available, as far as that is known without reading.
    pub(crate) fn could_receive(&self, cx: &mut Context<'_>) -> bool {
        let Link::Open(stream) = &self.link else { return false };
        stream.tcp.poll_read_ready(cx).is_ready()
    }

    /// Limits reception to `bytes` until the next grant.
    pub(crate) fn grant(&mut self, bytes: usize) {
        self.granted = bytes;
    }

    /// Returns and resets the bytes received since the last query.
    pub(crate) fn take_moved(&mut self) -> usize {
        std::mem::take(&mut self.moved)
    }

    fn begin(
        &mut self,
        due_bytes: usize,
        take: &mut dyn FnMut(usize) -> Buffer,
    ) -> Result<Partial, SocketError> {
        let limit = due_bytes as u32;
        let header = FrameHeader::decode(&self.header, limit).map_err(SocketError::Bad)?;
        self.header_filled = 0;
        Ok(Partial { header, buffer: take(header.bytes as usize), filled: 0 })
    }

    /// Reads the available data: the rest of the payload, and as much of the next header as follows.
    fn poll_fill(&mut self, cx: &mut Context<'_>, due_bytes: usize) -> Poll<io::Result<()>> {
        let missing = self.missing(due_bytes).min(self.granted);
        let EdgeStream { tcp, tls } = ready!(self.link.poll(cx))?;
        if self.granted == 0 {
            return Poll::Pending; // The next grant is followed by another poll.
        }
        let payload: &mut [u8] = match &mut self.frame {
            Some(frame) => &mut frame.buffer[frame.filled..],
            None => &mut [],
        };
        let payload_bytes = payload.len().min(self.granted);
        let payload = &mut payload[..payload_bytes];
        let header = &mut self.header[self.header_filled..];
        let header_bytes = header.len().min(self.granted - payload_bytes);
        let header = &mut header[..header_bytes];
        let bytes = match tls {
            None => {
                let wanted = payload_bytes + header.len();
                let mut parts = [IoSliceMut::new(payload), IoSliceMut::new(header)];
                ready!(self.receiver.poll(cx, tcp, &mut parts, wanted, missing))?
            }
            Some(tls) => {
                ready!(tls.poll_read(cx, tcp, &mut self.receiver, [payload, header], Some(missing)))?
            }
        };
        if let Some(frame) = &mut self.frame {
            frame.filled += bytes.min(payload_bytes);
        }
        self.header_filled += bytes.saturating_sub(payload_bytes);
        self.moved += bytes;
        self.granted = self.granted.saturating_sub(if self.granted == usize::MAX { 0 } else { bytes });
        Poll::Ready(Ok(()))
    }

    /// Takes the connection of a complete edge, if it can carry another edge.
    pub(crate) fn take(&mut self) -> Option<EdgeStream> {
        let mut stream = self.link.take()?;
        // Bytes after the last frame violate the protocol.
        (self.header_filled == 0 && stream.is_drained()).then_some(stream)
    }

    /// Returns the number of bytes still missing from the current frame.
    fn missing(&self, due_bytes: usize) -> usize {
        match &self.frame {
            Some(frame) => frame.buffer.len() - frame.filled,
            None => HEADER_BYTES - self.header_filled + due_bytes,
        }
    }
}

/// The sending end of an edge.
pub(crate) struct OutletSocket {
    link: Link,
    queue: VecDeque<Outgoing>,
    /// The number of bytes of the first queued frame that were sent.
    gone: usize,
    credits: CreditReader,
    /// Bytes that may be sent before the next grant, and bytes sent since the last query.
    granted: usize,
    moved: usize,
    path: PathWatch,
}

/// The part of the next credit that has arrived.
struct CreditReader {
    receiver: Receiver,
    bytes: [u8; CREDIT_BYTES],
    filled: usize,
}

struct Outgoing {
    header: [u8; HEADER_BYTES],
    slice: u32,
    buffer: Buffer,
}

impl OutletSocket {
    pub(crate) fn new(connecting: Connecting) -> Self {
        Self {
            link: Link::Connecting(connecting),
            queue: VecDeque::new(),
            gone: 0,
            credits: CreditReader { receiver: Receiver::new(), bytes: [0; CREDIT_BYTES], filled: 0 },
            granted: usize::MAX,
            moved: 0,
            path: PathWatch::default(),
        }
    }

    /// Establishes the connection, as far as that is possible without waiting.
    pub(crate) fn poll_connecting(&mut self, cx: &mut Context<'_>) {
        self.link.poll_connecting(cx);
    }

    pub(crate) fn push(&mut self, lane: u16, stream: u16, slice: u32, buffer: Buffer) {
        let header = FrameHeader::slice(lane, stream, slice, &buffer).encode();
        self.queue.push_back(Outgoing { header, slice, buffer });
    }

    /// Limits sending to `bytes` until the next grant.
    pub(crate) fn grant(&mut self, bytes: usize) {
        self.granted = bytes;
    }

    /// Returns and resets the bytes sent since the last query.
    pub(crate) fn take_moved(&mut self) -> usize {
        std::mem::take(&mut self.moved)
    }

    /// Returns the recent round-trip time of the connection, if enough has happened since the last call.
    pub(crate) fn observe_path(&mut self) -> Option<PathSample> {
        let Link::Open(stream) = &self.link else { return None };
        self.path.look(&stream.tcp)
    }

    /// Whether frames are queued and the socket accepts data.
    pub(crate) fn could_send(&self, cx: &mut Context<'_>) -> bool {
        let Link::Open(stream) = &self.link else { return false };
        !self.queue.is_empty() && stream.tcp.poll_write_ready(cx).is_ready()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Takes the connection of a complete edge.
    pub(crate) fn take(&mut self) -> Option<EdgeStream> {
        self.link.take()
    }

    pub(crate) fn is_gone(&self) -> bool {
        matches!(self.link, Link::Gone)
    }

    /// Receives the next credit.
    pub(crate) fn poll_credit(&mut self, cx: &mut Context<'_>) -> Poll<Result<Credit, SocketError>> {
        let CreditReader { receiver, bytes, filled } = &mut self.credits;
        while *filled < CREDIT_BYTES {
            let EdgeStream { tcp, tls } = ready!(self.link.poll(cx)).map_err(SocketError::Closed)?;
            let rest = &mut bytes[*filled..];
            let wanted = rest.len();
            let read = match tls {
                None => receiver.poll(cx, tcp, &mut [IoSliceMut::new(rest)], wanted, wanted),
                Some(tls) => tls.poll_read(cx, tcp, receiver, [rest, &mut []], Some(wanted)),
            };
            *filled += ready!(read).map_err(SocketError::Closed)?;
        }
        *filled = 0;
        Poll::Ready(Credit::decode(bytes).map_err(SocketError::Bad))
    }

    /// Sends until a frame has been sent completely; returns its slice and buffer.
    pub(crate) fn poll_sent(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<(u32, Buffer)>> {
        loop {
            if self.queue.front().is_some_and(|frame| self.gone >= HEADER_BYTES + frame.buffer.len()) {
                let frame = self.queue.pop_front().expect("the queue is not empty");
                self.gone -= HEADER_BYTES + frame.buffer.len();
                return Poll::Ready(Ok((frame.slice, frame.buffer)));
            }
            if self.queue.is_empty() {
                // The link is polled even without frames, so that it is connected by the time one is ready.
                ready!(self.link.poll(cx))?;
                return Poll::Pending;
            }
            let bytes = ready!(self.poll_write(cx))?;
            self.gone += bytes;
            self.moved += bytes;
            self.granted = self.granted.saturating_sub(if self.granted == usize::MAX { 0 } else { bytes });
        }
    }

    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let stream = ready!(self.link.poll(cx))?;
        let mut parts: Vec<IoSlice<'_>> = Vec::with_capacity(2 * MAX_FRAMES_AT_ONCE);
        if self.granted == 0 {
            return Poll::Pending; // The next grant is followed by another poll.
        }
        let (mut skip, mut room) = (self.gone, self.granted);
        for frame in self.queue.iter().take(MAX_FRAMES_AT_ONCE) {
            for part in [&frame.header[..], &frame.buffer[..]] {
                let skipped = skip.min(part.len());
                skip -= skipped;
                let part = &part[skipped..];
                let part = &part[..part.len().min(room)];
                room -= part.len();
                if !part.is_empty() {
                    parts.push(IoSlice::new(part));
                }
            }
        }
        stream.poll_write(cx, &parts)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::task::Waker;
    use std::time::Duration;

    use repair::BufferPool;
    use tokio::io::AsyncWriteExt;
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    const SLICE_BYTES: usize = 16 << 10;

    /// Connects two sockets.
    async fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (near, listener.accept().await.unwrap().0)
    }

    #[tokio::test]
    async fn the_pieces_of_the_first_slice_do_not_wake_the_receiver() {
        let (tcp, mut far) = pair().await;
        let mut inlet = InletSocket::new(Box::pin(async move { Ok(EdgeStream { tcp, tls: None }) }));
        let mut pool = BufferPool::default();
        let slice = pool.take(SLICE_BYTES);
        let frame = [&FrameHeader::slice(0, 0, 0, &slice).encode()[..], &slice[..]].concat();
        let sending = tokio::spawn(async move {
            for piece in frame.chunks(SLICE_BYTES / 4) {
                tokio::time::sleep(Duration::from_millis(20)).await;
                far.write_all(piece).await.unwrap();
            }
            far
        });
        let mut polls = 0;
        let (header, buffer) = poll_fn(|cx| {
            polls += 1;
            inlet.poll_frame(cx, SLICE_BYTES, &mut |bytes| pool.take(bytes))
        })
        .await
        .unwrap();
        assert_eq!((header.slice, buffer.len()), (0, SLICE_BYTES));
        assert!(polls <= 2, "{polls} polls: one before the slice has arrived, and one afterwards");
        drop(sending.await.unwrap());
    }

    fn refused() -> Connecting {
        Box::pin(async { Err(io::ErrorKind::ConnectionRefused.into()) })
    }

    #[test]
    fn a_connection_that_fails_early_is_an_error_of_the_first_transfer() {
        let cx = &mut Context::from_waker(Waker::noop());
        let (mut inlet, mut outlet) = (InletSocket::new(refused()), OutletSocket::new(refused()));
        for _ in 0..2 {
            inlet.poll_connecting(cx);
            outlet.poll_connecting(cx);
        }
        let Poll::Ready(Err(SocketError::Closed(error))) =
            inlet.poll_frame(cx, 1, &mut |_| unreachable!("no frame arrives"))
        else {
            panic!("the connection was refused")
        };
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        let Poll::Ready(Err(error)) = outlet.poll_sent(cx) else { panic!("the connection was refused") };
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    }
}
