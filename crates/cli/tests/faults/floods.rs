//! Members of the cluster, and strangers without a certificate, that open many connections, announce large
//! messages, or stay silent.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ::cluster::Role;
use repair::wire::control::{self, FromNode};
use repair::wire::edge::{Direction, Greeting};
use repair::{EdgeKey, Epoch, JobId};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::client::ResolvesClientCert;
use tokio_rustls::rustls::sign::CertifiedKey;
use tokio_rustls::rustls::{ClientConfig, SignatureScheme};

use crate::cluster::Cluster;

/// The file descriptor limit of the helper under attack.
const DESCRIPTORS: u32 = 256;

/// Opens connections to a helper's data port. Each one sends a valid greeting with an unknown key.
fn strangers(port: u16, count: u32) -> Vec<TcpStream> {
    let greeting = |number: u32| {
        let mut key = [0x5a; 16];
        key[..4].copy_from_slice(&number.to_be_bytes());
        Greeting { direction: Direction::Receive, job: JobId(1), epoch: Epoch(1), key: EdgeKey(key) }
    };
    let dial = |number| {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let _ = stream.write_all(&greeting(number).encode()); // The connection may have been rejected.
        stream
    };
    (0..count).map(dial).collect()
}

fn descriptors_of(pid: u32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count()
}

#[test]
fn strangers_at_the_data_port_cannot_disable_a_helper() {
    let mut cluster = Cluster::new(4, "rs-4-2", "64KiB");
    let content = cluster.put("film", 300_000);
    cluster.kill("h1");
    cluster.start_limited(&["helper", "h1"], DESCRIPTORS);
    cluster.await_ready();
    let before = descriptors_of(cluster.pid("h1"));
    // During the attack and after it, the helper lists its blocks for a scrub and serves reads.
    let port = cluster.base_port() + 2;
    let besieging = strangers(port, 1137);
    for besieging in [Some(besieging), None] {
        let scrub = cluster.mend(&["scrub"]).ok();
        assert!(scrub.out.contains("all checksums match") && !scrub.out.contains("not checked"), "{scrub:?}");
        cluster.assert_reads("film", &content, &[]);
        drop(besieging);
    }
    cluster.eventually("the strangers' descriptors are free again", |cluster| {
        descriptors_of(cluster.pid("h1")) <= before + 40
    });
    let log = cluster.log("coordinator");
    assert!(!log.contains("a block is bad"), "{log}");
    assert!(cluster.log("h1").contains(&format!("limit={DESCRIPTORS}")), "{}", cluster.log("h1"));
}

#[test]
fn a_stranger_who_holds_on_is_closed_by_a_timer() {
    let cluster = Cluster::new(4, "rs-4-2", "64KiB");
    let mut stranger = strangers(cluster.base_port() + 2, 1).remove(0);
    stranger.set_read_timeout(Some(Duration::from_secs(4 * 10))).unwrap();
    assert_eq!(stranger.read(&mut [0]).unwrap(), 0, "closed, with nothing sent");
}

#[test]
fn a_machine_short_of_descriptors_has_no_bad_blocks() {
    let mut cluster = Cluster::new(5, "rs-4-2", "64KiB");
    let content = cluster.put("film", 1 << 20);
    let victim = cluster.holder("1.0");
    // Allow enough descriptors to start and listen, but few more, so that some operations fail with EMFILE.
    let enough = descriptors_of(cluster.pid(&victim)) as u32 + 2;
    cluster.kill(&victim);
    cluster.start_limited(&["helper", &victim], enough);
    cluster.await_ready();
    cluster.mend(&["scrub"]);
    cluster.assert_reads("film", &content, &[]);
    cluster.kill(&victim);
    cluster.start(&["helper", &victim]);
    cluster.await_ready();
    cluster.eventually("all is well", |cluster| cluster.mend(&["status"]).out.starts_with("safe"));
    assert!(!cluster.log("coordinator").contains("a block is bad"), "{}", cluster.log("coordinator"));
    cluster.mend(&["scrub"]).ok();
}

async fn connect(cluster: &Cluster, role: &Role, port: u16) -> TlsStream<tokio::net::TcpStream> {
    let opened = ::cluster::Cluster::open(&cluster.folder()).unwrap();
    let identity = opened.identity(role).unwrap();
    let socket = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    TlsConnector::from(identity.client_config())
        .connect(Role::Coordinator.server_name(), socket)
        .await
        .unwrap()
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// Returns the peak memory of a process in bytes.
fn peak_memory(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}

#[test]
fn members_cannot_fill_the_coordinators_memory() {
    const MEMBERS: usize = 6;
    const ANNOUNCED: u32 = 128 << 20;
    let cluster = Cluster::new(4, "rs-4-2", "64KiB");
    runtime().block_on(async {
        let mut members = Vec::new();
        for number in 0..MEMBERS {
            let mut stream = connect(&cluster, &Role::default_client(), cluster.base_port() + 1).await;
            // Half of the members register first. Then all members, registered or not, announce a message of
            // 128 MiB of one of two kinds, and send it.
            if number % 2 == 0 {
                let hello =
                    FromNode::RegisterClient { version: control::VERSION, bandwidth: None, rack: None };
                stream.write_all(&control::encode(&hello)).await.unwrap();
            }
            let start = if number % 3 == 0 { &b"{\"open\":{"[..] } else { b"{\"report\":{" };
            members.push(tokio::spawn(async move {
                let mut sent = stream.write_all(&ANNOUNCED.to_be_bytes()).await;
                sent = sent.and(stream.write_all(start).await);
                let spaces = vec![b' '; 1 << 20];
                for _ in 0..(ANNOUNCED >> 20) {
                    if sent.is_err() {
                        break;
                    }
                    sent = stream.write_all(&spaces).await;
                }
                stream
            }));
        }
        for member in members {
            drop(member.await);
        }
    });
    let peak = peak_memory(cluster.pid("coordinator"));
    assert!(peak < 300 << 20, "{peak} bytes");
    cluster.mend(&["status"]).ok();
}

/// A client begins puts of files with 700,000 stripes each, and does not receive the answers, which list all stripes.
#[test]
fn answers_that_are_not_received_cannot_fill_the_coordinators_memory() {
    const REQUESTS: usize = 32;
    let cluster = Cluster::new(4, "rs-4-2", "64KiB");
    cluster.mend(&["issue", "client", "eve"]).ok();
    let eve = Role::Client("eve".parse().unwrap());
    runtime().block_on(async {
        let mut held = Vec::new();
        for number in 0..REQUESTS {
            let mut stream = connect(&cluster, &eve, cluster.base_port()).await;
            let bytes = 700_000_u64 * 2 * 4096;
            let body =
                format!(r#"{{"name":"f{number}","bytes":{bytes},"code":"rs-3-2","block_bytes":4096}}"#);
            let request = format!(
                "POST /v1/puts HTTP/1.1\r\nhost: coordinator.mend\r\ncontent-type: application/json\r\n\
                 content-length: {}\r\n\r\n{body}",
                body.len()
            );
            stream.write_all(request.as_bytes()).await.unwrap();
            stream.flush().await.unwrap();
            held.push(stream);
        }
        let mut answers = Vec::new();
        for stream in &mut held {
            let mut status = [0; 12];
            stream.read_exact(&mut status).await.unwrap();
            answers.push(String::from_utf8(status.to_vec()).unwrap());
        }
        let of = |status: &str| answers.iter().filter(|answer| answer.ends_with(status)).count();
        assert!(of("200") > 0 && of("503") > 0 && of("200") + of("503") == REQUESTS, "{answers:?}");
        // Other members are not affected.
        cluster.mend(&["status"]).ok();
        cluster.put("film", 300_000);
    });
    let peak = peak_memory(cluster.pid("coordinator"));
    assert!(peak < 900 << 20, "{peak} bytes");
    cluster.eventually("the client gets answers again", |cluster| {
        cluster.mend(&["--as", "eve", "ls"]).code == 0
    });
}

#[test]
fn a_helper_with_very_many_blocks_registers_and_is_listed() {
    const BLOCKS: usize = 20_000;
    let mut cluster = Cluster::new(4, "rs-4-2", "64KiB");
    cluster.put("film", 300_000);
    cluster.kill("h1");
    // Create block files that the coordinator does not know. Their long names make the helper's list of
    // blocks several megabytes long.
    let folder = cluster.folder().join("helpers/h1/blocks/00");
    std::fs::create_dir_all(&folder).unwrap();
    for number in 0..BLOCKS {
        let name = format!("stray-{number}-{}", "x".repeat(120));
        std::fs::write(folder.join(&name), "").unwrap();
        std::fs::write(folder.join(format!("{name}.crc")), "").unwrap();
    }
    cluster.start(&["helper", "h1"]);
    cluster.await_ready();
    let scrub = cluster.mend(&["scrub", "--output", "json"]).ok().json();
    assert_eq!(scrub["orphans"].as_array().unwrap().len(), 10_000);
    assert_eq!(scrub["more_orphans"], BLOCKS - 10_000);
    assert_eq!(scrub["skipped"].as_array().unwrap().len(), 0);
}

#[test]
fn idle_api_connections_end_and_bad_handshakes_are_counted() {
    let cluster = Cluster::new(4, "rs-4-2", "64KiB");
    for port in [cluster.base_port(), cluster.base_port() + 1] {
        for _ in 0..200 {
            let mut stranger = TcpStream::connect(("127.0.0.1", port)).unwrap();
            let _ = stranger.write_all(b"GET / HTTP/1.1\r\n\r\n");
            let _ = stranger.read_to_end(&mut Vec::new());
        }
    }
    let log = cluster.log("coordinator");
    let told = log.matches("refused connections").count();
    assert!((2..=12).contains(&told), "{log}");
    runtime().block_on(async {
        let admin = Role::default_client();
        let mut silent = connect(&cluster, &admin, cluster.base_port()).await;
        let mut asked = connect(&cluster, &admin, cluster.base_port()).await;
        let request = b"GET /v1/status HTTP/1.1\r\nhost: coordinator.mend\r\n\r\n";
        asked.write_all(request).await.unwrap();
        let (started, limit) = (Instant::now(), Duration::from_secs(4 * 30));
        let mut answer = Vec::new();
        for stream in [&mut silent, &mut asked] {
            let left = limit.saturating_sub(started.elapsed());
            let _ = tokio::time::timeout(left, stream.read_to_end(&mut answer)).await.expect("it ends");
        }
        assert!(answer.starts_with(b"HTTP/1.1 200"), "the answer came first");
    });
    cluster.mend(&["status"]).ok();
}

/// Opens connections from the address of the cluster's members, but not as a member: some stay silent, others
/// attempt handshakes without a certificate as fast as they can. Dropping the `Burst` stops it.
struct Burst {
    ends: Arc<AtomicBool>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

impl Burst {
    fn begin(cluster: &Cluster, silent: usize, shaking: usize) -> Self {
        let ends = Arc::new(AtomicBool::new(false));
        let opened = ::cluster::Cluster::open(&cluster.folder()).unwrap();
        let mut tls = (*opened.identity(&Role::default_client()).unwrap().client_config()).clone();
        tls.client_auth_cert_resolver = Arc::new(NoCertificate);
        let tls = Arc::new(tls);
        let ports = [cluster.base_port(), cluster.base_port() + 1];
        let mut threads = Vec::new();
        for port in ports {
            let ended = ends.clone();
            threads.push(std::thread::spawn(move || hold_on(port, silent, &ended)));
            for _ in 0..shaking {
                let (ended, tls) = (ends.clone(), tls.clone());
                threads.push(std::thread::spawn(move || runtime().block_on(shake_hands(port, tls, &ended))));
            }
        }
        Self { ends, threads }
    }
}

impl Drop for Burst {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }
}

#[derive(Debug)]
struct NoCertificate;

impl ResolvesClientCert for NoCertificate {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        None
    }

    fn has_certs(&self) -> bool {
        false
    }
}

/// Keeps `connections` connections open; replaces those that the other end has closed.
fn hold_on(port: u16, connections: usize, ended: &AtomicBool) {
    let mut held: Vec<TcpStream> = Vec::new();
    while !ended.load(Ordering::Relaxed) {
        held.retain_mut(|stream| {
            stream.set_nonblocking(true).unwrap();
            matches!(stream.read(&mut [0]), Err(error) if error.kind() == std::io::ErrorKind::WouldBlock)
        });
        while held.len() < connections && !ended.load(Ordering::Relaxed) {
            match TcpStream::connect(("127.0.0.1", port)) {
                Ok(stream) => held.push(stream),
                Err(_) => break,
            }
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

async fn shake_hands(port: u16, tls: Arc<ClientConfig>, ended: &AtomicBool) {
    while !ended.load(Ordering::Relaxed) {
        let Ok(socket) = tokio::net::TcpStream::connect(("127.0.0.1", port)).await else { continue };
        let connector = TlsConnector::from(tls.clone());
        if let Ok(mut stream) = connector.connect(Role::Coordinator.server_name(), socket).await {
            let _ = stream.read(&mut [0]).await; // Read the TLS alert.
        }
    }
}

/// A cluster whose coordinator has 1,024 descriptors: few enough that a test can use up its slots.
fn with_few_descriptors() -> Cluster {
    let mut cluster = Cluster::init(4, "rs-4-2", "64KiB");
    cluster.start_limited(&["coordinator"], 1024);
    for helper in 1..=4 {
        cluster.start(&["helper", &format!("h{helper}")]);
    }
    cluster.await_ready();
    cluster
}

/// The coordinator has so few descriptors that the burst exceeds the share that is open to strangers.
#[test]
fn members_get_in_through_a_burst_of_strangers_from_their_own_address() {
    let mut cluster = with_few_descriptors();
    let content = cluster.put("film", 300_000);
    let burst = Burst::begin(&cluster, 300, 1);
    std::thread::sleep(Duration::from_secs(1));
    for _ in 0..10 {
        cluster.mend(&["status"]).ok();
        cluster.assert_reads("film", &content, &[]);
    }
    // Helpers also reconnect during the burst.
    cluster.kill("h1");
    cluster.start(&["helper", "h1"]);
    cluster.await_ready();
    drop(burst);
    let log = cluster.log("coordinator");
    assert!(log.contains("refused connections"), "{log}");
    cluster.mend(&["status"]).ok();
}

/// A plug-in opens more connections than the coordinator has slots for members, and keeps them idle.
#[test]
fn a_member_with_very_many_connections_does_not_shut_others_out() {
    let mut cluster = with_few_descriptors();
    let content = cluster.put("film", 300_000);
    cluster.mend(&["issue", "plugin", "leaky"]).ok();
    let leaky = Role::Plugin("leaky".parse().unwrap());
    runtime().block_on(async {
        let mut held = Vec::new();
        for port in [cluster.base_port(), cluster.base_port() + 1] {
            for _ in 0..300 {
                held.push(connect(&cluster, &leaky, port).await);
            }
        }
        for _ in 0..3 {
            cluster.mend(&["status"]).ok();
            cluster.assert_reads("film", &content, &[]);
        }
        // Helpers also reconnect.
        cluster.kill("h1");
        cluster.start(&["helper", "h1"]);
        cluster.await_ready();
        drop(held);
    });
    let log = cluster.log("coordinator");
    assert!(log.contains("plugin leaky: closed the oldest connection"), "{log}");
}
