//! Tests of encrypted edges over real sockets: through a relay that records and splits the data, and against
//! intruders.

use std::future::poll_fn;
use std::sync::Mutex;
use std::task::Poll;
use std::time::Duration;

use cluster::{Cluster, InitOptions, Role};
use repair::wire::edge::{Direction, Greeting};
use repair::{Buffer, BufferPool, EdgeKey, Epoch, JobId};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use super::*;
use crate::rendezvous::{Rendezvous, Terms};
use crate::socket::{InletSocket, OutletSocket, SocketError};

/// The time limit of every wait in a test.
const PATIENCE: Duration = Duration::from_secs(30);
const SLICE_BYTES: usize = 100_000;

struct SecurePair {
    /// The listening node, `h1`.
    server: Rendezvous,
    /// The dialling node, `h2`.
    client: Rendezvous,
    address: String,
    cluster: Cluster,
    _scratch: tempfile::TempDir,
    next: u8,
}

fn cluster() -> (tempfile::TempDir, Cluster) {
    let scratch = tempfile::tempdir().unwrap();
    let options = InitOptions { helpers: 3, ..InitOptions::default() };
    let cluster = Cluster::init(&scratch.path().join("cluster"), &options).unwrap();
    (scratch, cluster)
}

fn identity(cluster: &Cluster, helper: &str) -> Identity {
    cluster.identity(&Role::Helper(helper.parse().unwrap())).unwrap()
}

fn name(helper: &str) -> Option<String> {
    Some(format!("{helper}.helper.mend"))
}

impl SecurePair {
    async fn new() -> Self {
        let (scratch, cluster) = cluster();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let server = Rendezvous::default().secured(&identity(&cluster, "h1"), true);
        let client = Rendezvous::default().secured(&identity(&cluster, "h2"), true);
        tokio::spawn(server.clone().listen(listener));
        Self { server, client, address, cluster, _scratch: scratch, next: 0 }
    }

    fn greeting(&mut self) -> Greeting {
        self.next += 1;
        let key = EdgeKey([self.next; 16]);
        Greeting { direction: Direction::Receive, job: JobId(1), epoch: Epoch(1), key }
    }

    /// Creates an edge from `h1` to `h2`, where `h2` dials `address`; returns the dialling and the accepting
    /// end.
    async fn edge(&mut self, address: &str) -> (EdgeStream, EdgeStream) {
        let greeting = self.greeting();
        let terms = Terms { direction: Direction::Receive, tls_name: name("h2") };
        let accepted = self.server.expect(greeting.key, terms);
        let dialled = self.client.clone().dial(address.to_owned(), name("h1"), greeting).await.unwrap();
        (dialled, timeout(PATIENCE, accepted).await.unwrap().unwrap())
    }
}

fn zeros(bytes: usize) -> Buffer {
    BufferPool::default().take(bytes)
}

/// Returns a slice of pseudo-random bytes, in which leaked, missing or misplaced bytes are detected.
fn slice(number: u32, bytes: usize) -> Buffer {
    let mut buffer = zeros(bytes);
    for (at, byte) in buffer.iter_mut().enumerate() {
        *byte = ((at as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15 ^ u64::from(number)) >> 56) as u8;
    }
    buffer
}

/// Sends slices of these lengths over an edge, and returns both ends of the edge.
async fn carry(dialled: EdgeStream, accepted: EdgeStream, lengths: &[usize]) -> (EdgeStream, EdgeStream) {
    let mut inlet = InletSocket::new(Box::pin(async { Ok(dialled) }));
    let mut outlet = OutletSocket::new(Box::pin(async { Ok(accepted) }));
    let sending = async {
        for (number, &bytes) in (0..).zip(lengths) {
            outlet.push(0, 0, number, slice(number, bytes));
        }
        for _ in lengths {
            poll_fn(|cx| outlet.poll_sent(cx)).await.unwrap();
        }
    };
    let receiving = async {
        for (number, &bytes) in (0..).zip(lengths) {
            let (header, buffer) = receive(&mut inlet, bytes).await.unwrap();
            assert_eq!(header.slice, number);
            assert!(buffer[..] == slice(number, bytes)[..], "slice {number}");
        }
    };
    timeout(PATIENCE, async { tokio::join!(sending, receiving) }).await.expect("an edge does not hang");
    (inlet.take().expect("nothing follows"), outlet.take().unwrap())
}

async fn receive(
    inlet: &mut InletSocket,
    bytes: usize,
) -> Result<(repair::wire::edge::FrameHeader, Buffer), SocketError> {
    poll_fn(|cx| inlet.poll_frame(cx, bytes, &mut zeros)).await
}

/// Starts a relay in front of `address` that forwards data in pieces of at most `piece` bytes and records the
/// data. Returns the relay's address and the record.
async fn relay(address: &str, piece: usize) -> (String, Arc<Mutex<Vec<u8>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (here, there) = (listener.local_addr().unwrap().to_string(), address.to_owned());
    let seen = Arc::new(Mutex::new(Vec::new()));
    let remembered = seen.clone();
    tokio::spawn(async move {
        while let Ok((near, _)) = listener.accept().await {
            let far = TcpStream::connect(&there).await.unwrap();
            for stream in [&near, &far] {
                stream.set_nodelay(true).unwrap();
            }
            let ((near_in, near_out), (far_in, far_out)) = (near.into_split(), far.into_split());
            tokio::spawn(pass(near_in, far_out, piece, remembered.clone()));
            tokio::spawn(pass(far_in, near_out, piece, remembered.clone()));
        }
    });
    (here, seen)
}

async fn pass(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    piece: usize,
    seen: Arc<Mutex<Vec<u8>>>,
) {
    let mut buffer = vec![0; piece];
    while let Ok(bytes @ 1..) = from.read(&mut buffer).await {
        seen.lock().unwrap().extend(&buffer[..bytes]);
        if to.write_all(&buffer[..bytes]).await.is_err() {
            return;
        }
        tokio::task::yield_now().await;
    }
}

fn contains(seen: &[u8], part: &[u8]) -> bool {
    seen.windows(part.len()).any(|window| window == part)
}

#[tokio::test]
async fn an_encrypted_connection_carries_edges_of_all_lengths_one_after_another() {
    let mut pair = SecurePair::new().await;
    let address = pair.address.clone();
    let mut port = None;
    let edges: [&[usize]; 5] =
        [&[SLICE_BYTES; 40], &[1], &[16_384; 9], &[4096, 65_536, 3, 0, 1 << 20], &[16_360, 16_361, 16_339]];
    for lengths in edges {
        let (dialled, accepted) = pair.edge(&address).await;
        let peer = accepted.tcp.peer_addr().unwrap().port();
        assert_eq!(*port.get_or_insert(peer), peer, "the connection was used again");
        assert_eq!((dialled.tls_name(), accepted.tls_name()), (name("h1").as_deref(), name("h2").as_deref()));
        let (dialled, accepted) = carry(dialled, accepted, lengths).await;
        pair.server.rest(accepted, None);
        pair.client.rest(dialled, Some(&address));
    }
}

#[tokio::test]
async fn bytes_survive_any_segmentation_and_none_are_seen() {
    for piece in [1, 7, 22, 1447, 16_406, 1 << 20] {
        let mut pair = SecurePair::new().await;
        let (address, seen) = relay(&pair.address, piece).await;
        let (dialled, accepted) = pair.edge(&address).await;
        let greeting = pair.greeting().encode();
        let bytes = if piece < 100 { 20_000 } else { SLICE_BYTES };
        carry(dialled, accepted, &[bytes, bytes, 5]).await;
        let seen = seen.lock().unwrap();
        assert!(seen.len() > 2 * bytes, "all of it passed here");
        assert!(!contains(&seen, &slice(1, bytes)[..16]), "pieces of {piece}");
        assert!(!contains(&seen, b"MEND") && !contains(&seen, &greeting[20..36]));
    }
}

#[tokio::test]
async fn a_plain_edge_through_the_same_relay_is_seen() {
    let (server, client) = (Rendezvous::default(), Rendezvous::default());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, seen) = relay(&listener.local_addr().unwrap().to_string(), 1447).await;
    tokio::spawn(server.clone().listen(listener));
    let key = EdgeKey([9; 16]);
    let greeting = Greeting { direction: Direction::Receive, job: JobId(1), epoch: Epoch(1), key };
    let accepted = server.expect(key, Terms { direction: Direction::Receive, tls_name: None });
    let dialled = client.dial(address, None, greeting).await.unwrap();
    carry(dialled, accepted.await.unwrap(), &[SLICE_BYTES; 3]).await;
    assert!(contains(&seen.lock().unwrap(), &slice(1, SLICE_BYTES)[..16]));
}

#[tokio::test]
async fn a_member_cannot_answer_for_the_one_that_the_plan_names() {
    let mut pair = SecurePair::new().await;
    let greeting = pair.greeting();
    let dialled = pair.client.clone().dial(pair.address.clone(), name("h3"), greeting).await;
    let error = dialled.unwrap_err().to_string();
    assert!(
        error.contains("cannot open an encrypted edge to h3.helper.mend") && error.contains("h1.helper.mend"),
        "{error}"
    );
    // A node that is unknown to the coordinator has an empty name, which matches no certificate.
    let dialled = pair.client.clone().dial(pair.address.clone(), Some(String::new()), greeting).await;
    assert!(dialled.is_err());
}

#[tokio::test]
async fn a_member_cannot_use_or_consume_the_key_of_another() {
    let mut pair = SecurePair::new().await;
    let greeting = pair.greeting();
    let terms = Terms { direction: Direction::Receive, tls_name: name("h2") };
    let accepted = pair.server.expect(greeting.key, terms);
    let thief = Rendezvous::default().secured(&identity(&pair.cluster, "h3"), true);
    let mut stolen = thief.dial(pair.address.clone(), name("h1"), greeting).await.unwrap();
    let closed = timeout(PATIENCE, stolen.read_greeting()).await.expect("it is closed at once");
    assert!(closed.is_err());
    let dialled = pair.client.clone().dial(pair.address.clone(), name("h1"), greeting).await.unwrap();
    carry(dialled, timeout(PATIENCE, accepted).await.unwrap().unwrap(), &[SLICE_BYTES]).await;
}

#[tokio::test]
async fn plain_diallers_and_strangers_are_refused() {
    let mut pair = SecurePair::new().await;
    let greeting = pair.greeting();
    let terms = Terms { direction: Direction::Receive, tls_name: name("h2") };
    let accepted = pair.server.expect(greeting.key, terms);
    // The key is right, but the connection is plain.
    let mut plain = Rendezvous::default().dial(pair.address.clone(), None, greeting).await.unwrap();
    assert!(timeout(PATIENCE, plain.read_greeting()).await.expect("it is closed at once").is_err());
    let (_scratch, other) = cluster();
    let stranger = Rendezvous::default().secured(&identity(&other, "h2"), true);
    assert!(stranger.dial(pair.address.clone(), name("h1"), greeting).await.is_err());
    // A silent connection does not delay others.
    let _silent = TcpStream::connect(&pair.address).await.unwrap();
    let dialled = pair.client.clone().dial(pair.address.clone(), name("h1"), greeting).await.unwrap();
    carry(dialled, timeout(PATIENCE, accepted).await.unwrap().unwrap(), &[SLICE_BYTES]).await;
}

#[tokio::test]
async fn a_node_that_takes_both_takes_each_edge_only_as_planned() {
    let mut pair = SecurePair::new().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let both = Rendezvous::default().secured(&identity(&pair.cluster, "h1"), false);
    tokio::spawn(both.clone().listen(listener));
    let greeting = pair.greeting();
    let plain = |greeting| Rendezvous::default().dial(address.clone(), None, greeting);
    // One plain connection arrives before the edge is awaited, another one while the edge is awaited.
    let _early = plain(greeting).await.unwrap();
    let terms = |tls_name| Terms { direction: Direction::Receive, tls_name };
    tokio::time::sleep(Duration::from_millis(50)).await;
    let mut accepted = both.expect(greeting.key, terms(name("h2")));
    let mut late = plain(greeting).await.unwrap();
    assert!(timeout(PATIENCE, late.read_greeting()).await.unwrap().is_err());
    assert!(accepted.try_recv().is_err(), "no plain connection carries it");
    let dialled = pair.client.clone().dial(address.clone(), name("h1"), greeting).await.unwrap();
    carry(dialled, accepted.await.unwrap(), &[SLICE_BYTES]).await;
    let greeting = pair.greeting();
    let accepted = both.expect(greeting.key, terms(None));
    carry(plain(greeting).await.unwrap(), accepted.await.unwrap(), &[SLICE_BYTES]).await;
}

#[tokio::test]
async fn a_byte_changed_on_the_way_ends_the_edge() {
    let mut pair = SecurePair::new().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (here, there) = (listener.local_addr().unwrap().to_string(), pair.address.clone());
    // Forwards everything, but changes one byte in the middle of the returned slice.
    tokio::spawn(async move {
        let (near, _) = listener.accept().await.unwrap();
        let far = TcpStream::connect(there).await.unwrap();
        let ((near_in, mut near_out), (mut far_in, far_out)) = (near.into_split(), far.into_split());
        tokio::spawn(pass(near_in, far_out, 1000, Arc::default()));
        let (mut buffer, mut passed) = ([0; 1000], 0);
        while let Ok(bytes @ 1..) = far_in.read(&mut buffer).await {
            if (passed..passed + bytes).contains(&60_000) {
                buffer[60_000 - passed] ^= 1;
            }
            passed += bytes;
            if near_out.write_all(&buffer[..bytes]).await.is_err() {
                return;
            }
        }
    });
    let (dialled, accepted) = pair.edge(&here).await;
    let mut inlet = InletSocket::new(Box::pin(async { Ok(dialled) }));
    let mut outlet = OutletSocket::new(Box::pin(async { Ok(accepted) }));
    outlet.push(0, 0, 0, slice(0, SLICE_BYTES));
    let sending = poll_fn(|cx| {
        let _ = outlet.poll_sent(cx).is_pending();
        Poll::<()>::Pending
    });
    let received = tokio::select! {
        received = timeout(PATIENCE, receive(&mut inlet, SLICE_BYTES)) => received.unwrap(),
        () = sending => unreachable!("it never ends"),
    };
    assert!(matches!(received, Err(SocketError::Closed(error)) if error.to_string().contains("decrypt")));
}

#[test]
fn waiting_for_bytes_never_waits_for_more_than_come() {
    let (_scratch, cluster) = cluster();
    let (client, server) = (identity(&cluster, "h1"), identity(&cluster, "h2"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut tls = runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let client = Security::new(&client, true);
        let accepting = async {
            let (tcp, _) = listener.accept().await.unwrap();
            accept(Some(&Security::new(&server, true)), tcp).await.unwrap()
        };
        let dialling = dial(Some(&client), &address, Some("h2.helper.mend"));
        let (_accepted, dialled) = tokio::join!(accepting, dialling);
        dialled.unwrap().tls.unwrap()
    });
    let overhead = RECORD_OVERHEAD_BYTES;
    assert_eq!(tls.least_to_come(1), 1 + overhead);
    assert_eq!(tls.least_to_come(16_384), 16_384 + overhead);
    assert_eq!(tls.least_to_come(65_560), 65_560 + 5 * overhead);
    // Ten bytes of a record with a payload of 100 bytes have arrived.
    tls.incoming = vec![0x17, 3, 3, 0, 117, 0, 0, 0, 0, 0];
    tls.end = 10;
    assert_eq!(tls.least_to_come(24), 112);
    assert_eq!(tls.least_to_come(100), 112);
    assert_eq!(tls.least_to_come(101), 112 + 1 + overhead);
}
