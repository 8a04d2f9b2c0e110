//! The baselines that do not involve Mend: sends over one plain TCP connection, and bare chains of relays.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// The port of [`serve`].
pub const PORT: u16 = 7499;
/// The number of bytes per read or write, typical of an efficient program.
const CHUNK: usize = 256 << 10;

/// Serves any number of clients; each receives as many bytes as it requests.
///
/// # Errors
/// If the port is in use.
pub fn serve(address: SocketAddr) -> io::Result<()> {
    let listener = TcpListener::bind(address)?;
    let chunk = vec![0x5a; CHUNK];
    for connection in listener.incoming() {
        // The result is ignored, because the receiver reports a broken connection.
        let _ = connection.and_then(|connection| answer(connection, &chunk));
    }
    Ok(())
}

fn answer(mut connection: TcpStream, chunk: &[u8]) -> io::Result<()> {
    let mut wanted = [0; 8];
    connection.read_exact(&mut wanted)?;
    let mut left = u64::from_be_bytes(wanted);
    while left > 0 {
        let part = left.min(chunk.len() as u64);
        connection.write_all(&chunk[..part as usize])?;
        left -= part;
    }
    Ok(())
}

/// Receives `bytes` bytes. Returns the time from the start of the successful connection attempt to the last
/// byte.
///
/// # Errors
/// If the connection fails or breaks.
pub fn fetch(address: SocketAddr, bytes: u64) -> io::Result<Duration> {
    let mut chunk = vec![0x5a; CHUNK];
    let (mut connection, started) = dial(address)?;
    connection.write_all(&bytes.to_be_bytes())?;
    let mut left = bytes;
    while left > 0 {
        let read = connection.read(&mut chunk[..left.min(CHUNK as u64) as usize])?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        left -= read as u64;
    }
    Ok(started.elapsed())
}

/// Runs one relay of a bare chain. The relay receives slices from `upstream`, if there is one, XORs them with
/// its own bytes, and sends the result to the process that dials it: the next relay or the client. A bare
/// chain uses no disks, checksums or plans, so its cost is the minimum cost of a chain.
///
/// # Errors
/// If the port is in use.
pub fn relay(listen: SocketAddr, upstream: Option<SocketAddr>, slice_bytes: usize) -> io::Result<()> {
    let listener = TcpListener::bind(listen)?;
    let own = vec![0x5a; slice_bytes];
    for connection in listener.incoming() {
        let _ = connection.and_then(|connection| pass_on(connection, upstream, &own));
    }
    Ok(())
}

fn pass_on(mut downstream: TcpStream, upstream: Option<SocketAddr>, own: &[u8]) -> io::Result<()> {
    downstream.set_nodelay(true)?;
    let mut wanted = [0; 8];
    downstream.read_exact(&mut wanted)?;
    let mut upstream = upstream.map(dial).transpose()?.map(|(connection, _)| connection);
    if let Some(upstream) = &mut upstream {
        upstream.write_all(&wanted)?;
    }
    let mut left = u64::from_be_bytes(wanted) as usize;
    let mut slice = vec![0; own.len()];
    while left > 0 {
        let part = left.min(slice.len());
        if let Some(upstream) = &mut upstream {
            upstream.read_exact(&mut slice[..part])?;
            slice[..part].iter_mut().zip(own).for_each(|(byte, own)| *byte ^= own);
            downstream.write_all(&slice[..part])?;
        } else {
            downstream.write_all(&own[..part])?;
        }
        left -= part;
    }
    Ok(())
}

/// Dials with retries, because the other end may still be starting. Also returns the start time of the
/// successful attempt.
fn dial(address: SocketAddr) -> io::Result<(TcpStream, Instant)> {
    let give_up = Instant::now() + Duration::from_secs(5);
    loop {
        let started = Instant::now();
        match TcpStream::connect(address) {
            Ok(connection) => {
                connection.set_nodelay(true)?;
                return Ok((connection, started));
            }
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused && Instant::now() < give_up => {
                std::thread::sleep(Duration::from_millis(20));
            }
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spawn(serve: impl FnOnce(SocketAddr) -> io::Result<()> + Send + 'static) -> SocketAddr {
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        std::thread::spawn(move || serve(free).unwrap());
        free
    }

    #[test]
    fn all_bytes_come_straight_and_through_a_chain() {
        let direct = spawn(serve);
        assert!(fetch(direct, 1_000_003).unwrap() > Duration::ZERO);
        assert!(fetch(direct, 0).is_ok());
        let first = spawn(|address| relay(address, None, 4096));
        let second = spawn(move |address| relay(address, Some(first), 4096));
        fetch(second, 1_000_003).unwrap();
        fetch(second, 7).unwrap();
    }
}
