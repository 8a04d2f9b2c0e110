//! A minimal HTTP client, to store and read objects.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// Timeout for reading a response.
const LIMIT: Duration = Duration::from_secs(60);

/// Sends an HTTP/1.0 request and returns the body of a successful response.
///
/// # Errors
/// The head of an unsuccessful response, or the I/O error.
pub fn http(method: &str, host: &str, path: &str, body: &[u8]) -> Result<Vec<u8>, String> {
    let asked = || {
        let mut stream = TcpStream::connect(host)?;
        stream.set_read_timeout(Some(LIMIT))?;
        write!(stream, "{method} {path} HTTP/1.0\r\nHost: {host}\r\nContent-Length: {}\r\n\r\n", body.len())?;
        stream.write_all(body)?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        Ok::<_, std::io::Error>(answer)
    };
    let answer = asked().map_err(|error| error.to_string())?;
    let end = answer.windows(4).position(|window| window == b"\r\n\r\n").ok_or("no answer")?;
    let head = String::from_utf8_lossy(&answer[..end]).into_owned();
    if head.split(' ').nth(1).is_some_and(|status| status.starts_with('2')) {
        Ok(answer[end + 4..].to_vec())
    } else {
        Err(head)
    }
}
