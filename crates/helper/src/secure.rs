//! Encrypted edges: the handshake, and a TLS session driven together with the edge's socket.
//!
//! Both ends authenticate: the plan names the certificate that the other end must have. tokio-rustls performs
//! the handshake. Afterwards the session is a state machine over the same non-blocking socket that a plain
//! edge uses. It buffers at most one read of incoming data and one write of outgoing data, so the memory of
//! an encrypted edge is bounded like that of a plain one.

use std::fmt;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use cluster::{Identity, peer_role};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, Connection, ServerConfig};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::stream::{EdgeStream, Receiver};

/// The first byte of a TLS client's first record; a plain greeting begins with an `M`.
const TLS_HANDSHAKE: u8 = 0x16;
/// The length of a record's header in bytes; the header's last two bytes are the length of the rest of the
/// record.
const RECORD_HEADER_BYTES: usize = 5;
/// The bytes of a record beyond its payload: header, type, and authentication tag.
const RECORD_OVERHEAD_BYTES: usize = RECORD_HEADER_BYTES + 1 + 16;
/// The maximum payload of a record, in bytes.
const RECORD_PAYLOAD_BYTES: usize = 16 << 10;
/// The maximum length of a record in bytes, from RFC 8446, section 5.2.
const MAX_RECORD_BYTES: usize = RECORD_HEADER_BYTES + RECORD_PAYLOAD_BYTES + 256;
/// The size of a socket read in bytes; larger than one record.
const INCOMING_BYTES: usize = 64 << 10;

/// The TLS configuration of this node's edges.
#[derive(Clone)]
pub(crate) struct Security {
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
    /// Whether plain connections are refused.
    pub(crate) refuses_plain: bool,
}

impl Security {
    pub(crate) fn new(identity: &Identity, refuses_plain: bool) -> Self {
        Self { client: identity.edge_client_config(), server: identity.edge_server_config(), refuses_plain }
    }

    /// Encrypts a connection that this end dialled. The other end's certificate must contain `name`.
    async fn connect(&self, tcp: TcpStream, name: &str) -> io::Result<EdgeStream> {
        let wanted = ServerName::try_from(name.to_owned()).map_err(io::Error::other)?;
        let connector = TlsConnector::from(self.client.clone());
        let (records, connection) = connector.connect(wanted, Records::new(tcp)).await?.into_inner();
        Ok(Tls::over(records, connection.into(), name.to_owned()))
    }

    /// Encrypts a connection that another member of the cluster dialled.
    async fn accept(&self, tcp: TcpStream) -> io::Result<EdgeStream> {
        let acceptor = TlsAcceptor::from(self.server.clone());
        let (records, connection) = acceptor.accept(Records::new(tcp)).await?.into_inner();
        let role = connection.peer_certificates().and_then(peer_role);
        let role =
            role.ok_or_else(|| io::Error::other("its certificate is not of a member of this cluster"))?;
        Ok(Tls::over(records, connection.into(), role.dns_name()))
    }
}

impl fmt::Debug for Security {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Security").field("refuses_plain", &self.refuses_plain).finish_non_exhaustive()
    }
}

/// Dials `address`. If `tls_name` is given, the connection is encrypted, and the other end's certificate must
/// contain this name.
pub(crate) async fn dial(
    security: Option<&Security>,
    address: &str,
    tls_name: Option<&str>,
) -> io::Result<EdgeStream> {
    let tcp = TcpStream::connect(address)
        .await
        .map_err(|error| io::Error::new(error.kind(), format!("cannot reach {address}: {error}")))?;
    tcp.set_nodelay(true)?;
    let Some(name) = tls_name else { return Ok(EdgeStream { tcp, tls: None }) };
    let failed = |error: io::Error| {
        io::Error::new(error.kind(), format!("cannot open an encrypted edge to {name} at {address}: {error}"))
    };
    let security = security.ok_or_else(|| failed(io::Error::other("this node has no certificate")))?;
    security.connect(tcp, name).await.map_err(failed)
}

/// Accepts an incoming connection, plain or encrypted, depending on its first byte.
pub(crate) async fn accept(security: Option<&Security>, tcp: TcpStream) -> io::Result<EdgeStream> {
    tcp.set_nodelay(true)?;
    let mut first = [0];
    if tcp.peek(&mut first).await? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    match (first[0] == TLS_HANDSHAKE, security) {
        (true, Some(security)) => security.accept(tcp).await,
        (true, None) => Err(io::Error::other("it is encrypted, but this node has no certificate")),
        (false, Some(security)) if security.refuses_plain => Err(io::Error::other(
            "it is not encrypted, but this node requires encrypted data edges (data_tls)",
        )),
        (false, _) => Ok(EdgeStream { tcp, tls: None }),
    }
}

/// A TLS session after its handshake.
pub(crate) struct Tls {
    connection: Connection,
    /// The name in the certificate of the other end.
    name: String,
    /// Received bytes that are not decrypted yet: whole records, and the beginning of the next one.
    incoming: Vec<u8>,
    begin: usize,
    end: usize,
    /// The number of payload bytes that were encrypted but not completely sent.
    going: usize,
}

impl Tls {
    /// Creates an encrypted connection from a session after its handshake.
    fn over(records: Records, connection: Connection, name: String) -> EdgeStream {
        let Records { tcp, record: mut incoming, .. } = records;
        let end = incoming.len();
        if end > 0 {
            incoming.resize(INCOMING_BYTES, 0);
        }
        let tls = Self { connection, name, incoming, begin: 0, end, going: 0 };
        EdgeStream { tcp, tls: Some(Box::new(tls)) }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Reads decrypted bytes into `parts`, in order. Returns 0 if data arrived but not yet a whole record.
    /// `missing` is a lower bound on the decrypted bytes that must still arrive; the kernel wakes the task
    /// only when that many can have arrived.
    pub(crate) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        tcp: &TcpStream,
        receiver: &mut Receiver,
        parts: [&mut [u8]; 2],
        missing: Option<usize>,
    ) -> Poll<io::Result<usize>> {
        let [mut first, mut second] = parts;
        let mut bytes = 0;
        loop {
            for part in [&mut first, &mut second] {
                let read = self.read_decrypted(part)?;
                *part = &mut std::mem::take(part)[read..];
                bytes += read;
            }
            if bytes > 0 && first.is_empty() && second.is_empty() {
                return Poll::Ready(Ok(bytes));
            }
            if self.decrypt_next()? {
                // A key update by the other end may require an answer. The answer is sent as soon as the
                // socket accepts it, without waiting.
                let _ = self.poll_flush(cx, tcp)?;
                continue;
            }
            if bytes > 0 {
                return Poll::Ready(Ok(bytes));
            }
            let wake_at = missing.map_or(1, |missing| self.least_to_come(missing));
            ready!(self.poll_receive(cx, tcp, receiver, wake_at))?;
            if self.next_record()?.is_none() {
                return Poll::Ready(Ok(0));
            }
        }
    }

    /// Copies decrypted bytes; returns 0 if there are none.
    fn read_decrypted(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        while filled < into.len() {
            match self.connection.reader().read(&mut into[filled..]) {
                // Both ends know where the data ends, so even an orderly close is premature here.
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(bytes) => filled += bytes,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }

    /// Returns the length of the next record, if it has arrived completely.
    fn next_record(&self) -> io::Result<Option<usize>> {
        let here = &self.incoming[self.begin..self.end];
        Ok(record_bytes(here)?.filter(|&bytes| bytes <= here.len()))
    }

    /// Decrypts the next record if it has arrived completely; returns whether it had.
    fn decrypt_next(&mut self) -> io::Result<bool> {
        let Some(bytes) = self.next_record()? else { return Ok(false) };
        let mut record = &self.incoming[self.begin..self.begin + bytes];
        while !record.is_empty() {
            if self.connection.read_tls(&mut record)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into()); // The session ended early.
            }
        }
        self.begin += bytes;
        let processed = self.connection.process_new_packets();
        processed.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        Ok(true)
    }

    fn poll_receive(
        &mut self,
        cx: &mut Context<'_>,
        tcp: &TcpStream,
        receiver: &mut Receiver,
        wake_at: usize,
    ) -> Poll<io::Result<()>> {
        self.incoming.copy_within(self.begin..self.end, 0);
        (self.begin, self.end) = (0, self.end - self.begin);
        if self.incoming.is_empty() {
            ready!(tcp.poll_read_ready(cx))?; // Until data arrives, an idle connection needs no buffer.
            self.incoming = vec![0; INCOMING_BYTES];
        }
        let free = &mut self.incoming[self.end..];
        let wanted = free.len();
        let bytes = ready!(receiver.poll(cx, tcp, &mut [IoSliceMut::new(free)], wanted, wake_at))?;
        self.end += bytes;
        Poll::Ready(Ok(()))
    }

    /// Returns a lower bound on the bytes that must still arrive before `missing` decrypted bytes are
    /// available. With an overestimate, the task would wait for bytes that never come.
    fn least_to_come(&self, missing: usize) -> usize {
        let here = &self.incoming[self.begin..self.end];
        let records =
            |payload: usize| payload + payload.div_ceil(RECORD_PAYLOAD_BYTES) * RECORD_OVERHEAD_BYTES;
        let least = match record_bytes(here) {
            Ok(Some(record)) => {
                let carried = record.saturating_sub(RECORD_OVERHEAD_BYTES);
                record.saturating_sub(here.len()) + records(missing.saturating_sub(carried))
            }
            _ => records(missing) - here.len(),
        };
        least.max(1)
    }

    /// Sends bytes of `parts`; returns the number of bytes sent. Returns 0 if some encrypted bytes were sent
    /// and others are still buffered; then the same parts must be passed again.
    pub(crate) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        tcp: &TcpStream,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.going == 0 {
            self.going = self.connection.writer().write_vectored(parts)?;
        }
        match self.poll_flush(cx, tcp)? {
            Flushed::All => Poll::Ready(Ok(std::mem::take(&mut self.going))),
            Flushed::Some => Poll::Ready(Ok(0)),
            Flushed::Nothing => Poll::Pending,
        }
    }

    /// Sends encrypted bytes until the socket would block.
    fn poll_flush(&mut self, cx: &mut Context<'_>, tcp: &TcpStream) -> io::Result<Flushed> {
        let mut flushed = Flushed::Nothing;
        while self.connection.wants_write() {
            if tcp.poll_write_ready(cx)?.is_pending() {
                return Ok(flushed);
            }
            match self.connection.write_tls(&mut Socket(tcp)) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(_) => flushed = Flushed::Some,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Flushed::All)
    }

    /// Encrypts a few bytes and returns them; the caller sends them itself, because an idle connection
    /// belongs to no async runtime.
    pub(crate) fn encrypted(&mut self, bytes: &[u8]) -> io::Result<Vec<u8>> {
        self.connection.writer().write_all(bytes)?;
        let mut encrypted = Vec::new();
        while self.connection.wants_write() {
            self.connection.write_tls(&mut encrypted)?;
        }
        Ok(encrypted)
    }

    /// Whether all received bytes were read.
    pub(crate) fn is_drained(&mut self) -> bool {
        let state = self.connection.process_new_packets();
        self.begin == self.end && state.is_ok_and(|state| state.plaintext_bytes_to_read() == 0)
    }

    /// Frees the receive buffer if it is empty.
    pub(crate) fn shrink(&mut self) {
        if self.begin == self.end {
            (self.incoming, self.begin, self.end) = (Vec::new(), 0, 0);
        }
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The progress of sending encrypted bytes.
enum Flushed {
    All,
    Some,
    Nothing,
}

/// Returns the length of the record at the beginning of `here`, if its header has arrived.
fn record_bytes(here: &[u8]) -> io::Result<Option<usize>> {
    let Some(header) = here.first_chunk::<RECORD_HEADER_BYTES>() else { return Ok(None) };
    let bytes = RECORD_HEADER_BYTES + usize::from(u16::from_be_bytes([header[3], header[4]]));
    if bytes > MAX_RECORD_BYTES {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("a TLS record of {bytes} bytes")));
    }
    Ok(Some(bytes))
}

/// Adapts a non-blocking socket for rustls.
struct Socket<'a>(&'a TcpStream);

impl Write for Socket<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.try_write_vectored(parts)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A socket that returns bytes only of records that have arrived completely. If a handshake reads beyond its
/// own last record, it therefore consumes whole records, and no partial record is lost.
struct Records {
    tcp: TcpStream,
    /// The received part of the next record.
    record: Vec<u8>,
    /// The number of bytes of `record` that were already returned.
    given: usize,
}

impl Records {
    fn new(tcp: TcpStream) -> Self {
        Self { tcp, record: Vec::new(), given: 0 }
    }

    /// Waits until the next record is complete; returns false if the other end has closed instead.
    fn poll_record(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        loop {
            let known = self.record.len();
            let wanted = record_bytes(&self.record)?.unwrap_or(RECORD_HEADER_BYTES);
            if known >= RECORD_HEADER_BYTES && known == wanted {
                return Poll::Ready(Ok(true));
            }
            self.record.resize(wanted, 0);
            let mut rest = ReadBuf::new(&mut self.record[known..]);
            let polled = Pin::new(&mut self.tcp).poll_read(cx, &mut rest);
            let bytes = rest.filled().len();
            self.record.truncate(known + bytes);
            ready!(polled)?;
            if bytes == 0 {
                return Poll::Ready(Ok(false));
            }
        }
    }
}

impl AsyncRead for Records {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if ready!(self.poll_record(cx))? {
            let rest = &self.record[self.given..];
            let bytes = rest.len().min(buffer.remaining());
            buffer.put_slice(&rest[..bytes]);
            self.given += bytes;
            if self.given == self.record.len() {
                (self.record, self.given) = (Vec::new(), 0);
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Records {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.tcp).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests;
