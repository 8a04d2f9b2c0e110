//! Members that ask for much over HTTP/2 and receive nothing, because their streams have no window; and members that do
//! not complete their requests.

use super::*;

/// The requests of a connection at a time, as in `serving`.
const REQUESTS: usize = 64;
/// The memory for answers of a member, as in `docs/explanation/limits.md`.
const MEMBER_BYTES: usize = 128 << 20;
/// Long answers are charged in units of this size.
const UNIT: usize = 4 << 10;
/// The streams of events of a member.
const STREAMS: usize = 32;

/// The longest time until an answer comes, or the coordinator notices the end of a connection.
const LIMIT: Duration = Duration::from_secs(10);

const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;

/// Encodes an HTTP/2 frame.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// Encodes the fields of a request, whose method is an entry of the static table.
fn fields(method: u8, path: &str) -> Vec<u8> {
    // The scheme is an entry of the static table, too. For authority and path, the entry gives only the name.
    let mut fields: Vec<u8> = vec![0x80 | method, 0x80 | 7];
    for (name, value) in [(1, "coordinator.mend"), (4, path)] {
        fields.extend([name, value.len() as u8]);
        fields.extend(value.as_bytes());
    }
    fields
}

/// Encodes a `GET` request without a body.
fn get(path: &str, stream: u32) -> Vec<u8> {
    frame(HEADERS, 0b101, stream, &fields(2, path)) // It ends the headers and the stream.
}

/// Encodes the head of a `POST` request with a body of unknown length.
fn head_of_post(path: &str, stream: u32) -> Vec<u8> {
    const JSON: &[u8] = b"application/json";
    // The name of the last field, `content-type`, is the entry 31 of the static table: 15, and 16 in a second byte.
    let content_type = [&[15, 16, JSON.len() as u8][..], JSON].concat();
    frame(HEADERS, 0b100, stream, &[fields(3, path), content_type].concat())
}

/// Opens a connection and sends requests.
async fn send(
    running: &Running,
    role: &Role,
    requests: impl Iterator<Item = Vec<u8>>,
) -> TlsStream<TcpStream> {
    let mut stream = connect(running.handle.api_addr, &running.identity(role)).await;
    let mut sent = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    sent.extend(frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0])); // The initial window of streams is 0.
    sent.extend(requests.flatten());
    stream.write_all(&sent).await.unwrap();
    stream.flush().await.unwrap();
    stream
}

/// Opens a connection and requests a path several times. Returns the connection, and how many of the requests were
/// answered with the status 200.
async fn ask_unread(
    running: &Running,
    role: &Role,
    path: &str,
    requests: usize,
) -> (TlsStream<TcpStream>, usize) {
    let mut stream = send(running, role, (0..requests as u32).map(|number| get(path, 2 * number + 1))).await;
    let (mut answered, mut accepted) = (0, 0);
    while answered < requests {
        let mut head = [0; 9];
        timeout(LIMIT, stream.read_exact(&mut head)).await.expect("all are answered").unwrap();
        let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
        stream.read_exact(&mut payload).await.unwrap();
        if head[3] == HEADERS {
            answered += 1;
            accepted += usize::from(payload[0] == 0x80 | 8); // The entry of the static table for 200.
        }
    }
    (stream, accepted)
}

async fn with_eve() -> (Running, Role) {
    let running = running().await;
    let eve = Role::Client("eve".parse().unwrap());
    running.cluster.issue(&eve).unwrap();
    (running, eve)
}

/// Waits until requests of a member are accepted again.
async fn await_accepted(running: &Running, role: &Role, path: &str) {
    let start = Instant::now();
    while ask_unread(running, role, path, 1).await.1 == 0 {
        assert!(start.elapsed() < LIMIT, "{path}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// No handler charges this answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn documents_that_are_not_received_are_charged_to_their_member() {
    const PATH: &str = "/v1/openapi.json";
    let (running, eve) = with_eve().await;
    let most = MEMBER_BYTES / UNIT / views::endpoints::openapi().len().div_ceil(UNIT);
    let (mut held, mut accepted) = (Vec::new(), 0);
    for _ in 0..=most / REQUESTS {
        let (stream, more) = ask_unread(&running, &eve, PATH, REQUESTS).await;
        held.push(stream);
        accepted += more;
    }
    assert_eq!(accepted, most);
    assert_eq!(running.http(&Role::default_client(), "GET", PATH, "").await.0, 200);
    drop(held);
    await_accepted(&running, &eve, PATH).await;
}

/// Requests whose bodies may have 64 KiB each fill the member's share, although no byte of a body has arrived.
#[tokio::test]
async fn requests_that_are_not_complete_are_charged_to_their_member() {
    const PATH: &str = "/v1/puts";
    let (running, eve) = with_eve().await;
    let mut held = Vec::new();
    for _ in 0..2 {
        let heads = (0..REQUESTS as u32).map(|number| head_of_post(PATH, 2 * number + 1));
        held.push(send(&running, &eve, heads).await);
    }
    let body = " ".repeat(4 << 10);
    let await_status = async |expected: u16| {
        let start = Instant::now();
        loop {
            let (status, answer) = running.http(&eve, "POST", PATH, &body).await;
            if status == expected {
                return answer;
            }
            assert!(start.elapsed() < LIMIT, "{status} {answer}");
        }
    };
    let refused = await_status(503).await;
    assert!(refused["error"].as_str().unwrap().contains("its 8 MiB"), "{refused}");
    assert_eq!(running.http(&Role::default_client(), "POST", PATH, &body).await.0, 400);
    drop(held);
    await_status(400).await;
}

#[tokio::test]
async fn a_member_may_have_a_number_of_streams_of_events_open() {
    const PATH: &str = "/v1/events?since_unix_ms=0";
    let (running, eve) = with_eve().await;
    let (held, accepted) = ask_unread(&running, &eve, PATH, STREAMS + 3).await;
    assert_eq!(accepted, STREAMS);
    let (code, error) = running.http(&eve, "GET", PATH, "").await;
    let said = format!("this member has {STREAMS} streams of events open, and may have no more");
    assert_eq!((code, error["error"].as_str()), (503, Some(&said[..])));
    assert_eq!(running.http(&eve, "GET", "/v1/status", "").await.0, 200);
    assert_eq!(ask_unread(&running, &Role::default_client(), PATH, 1).await.1, 1);
    drop(held);
    await_accepted(&running, &eve, PATH).await;
}
