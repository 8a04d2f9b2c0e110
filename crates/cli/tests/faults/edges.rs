//! The bytes on data edges. Every helper is dialled through a proxy, the tap, which records the traffic.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use crate::cluster::Cluster;

const HELPERS: u16 = 5;
const BYTES: usize = 700_000;

type Seen = Arc<Mutex<Vec<u8>>>;

/// Creates a cluster with the given `data_tls` and a tap in front of every helper. Returns the cluster and
/// the recorded traffic.
fn tapped(data_tls: bool) -> (Cluster, Seen) {
    let cluster = Cluster::init(HELPERS, "rs-4-2", "128KiB");
    let seen = Seen::default();
    let taps: Vec<u16> = (0..HELPERS).map(|helper| tap(cluster.base_port() + 2 + helper, &seen)).collect();
    set_data_tls(&cluster, data_tls);
    edit(&cluster, |line| {
        let port: Option<u16> =
            line.strip_prefix("listen = \"127.0.0.1:")?.trim_end_matches('"').parse().ok();
        let tap = taps[usize::from(port? - cluster.base_port() - 2)];
        Some(format!("{line}\nadvertise = \"127.0.0.1:{tap}\""))
    });
    (cluster, seen)
}

fn start(cluster: &mut Cluster, helpers: u16) {
    cluster.start(&["coordinator"]);
    (1..=helpers).for_each(|helper| cluster.start(&["helper", &format!("h{helper}")]));
    cluster.await_ready();
}

fn restart(cluster: &mut Cluster, helper: &str) {
    cluster.kill(helper);
    cluster.start(&["helper", helper]);
    cluster.await_ready();
}

fn set_data_tls(cluster: &Cluster, data_tls: bool) {
    let is_setting = |line: &str| line.trim_start_matches("# ").starts_with("data_tls = ");
    edit(cluster, |line| is_setting(line).then(|| format!("data_tls = {data_tls}")));
}

/// Replaces each line of mend.toml for which `change` returns another line.
fn edit(cluster: &Cluster, change: impl Fn(&str) -> Option<String>) {
    let path = cluster.folder().join("mend.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    let lines = text.lines().map(|line| change(line).unwrap_or_else(|| line.to_owned()));
    let changed = lines.collect::<Vec<_>>().join("\n");
    assert_ne!(changed.trim(), text.trim(), "there is a line to change");
    testbed::replace_file(&path, changed);
}

/// Opens a port that forwards traffic to and from `port` and records it. Returns the new port.
fn tap(port: u16, seen: &Seen) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let here = listener.local_addr().unwrap().port();
    let seen = seen.clone();
    // The thread ends with the test's process.
    thread::spawn(move || {
        for near in listener.incoming().map_while(Result::ok) {
            let Ok(far) = TcpStream::connect(("127.0.0.1", port)) else { continue };
            for (from, to) in [(&near, &far), (&far, &near)] {
                let (from, to, seen) = (from.try_clone().unwrap(), to.try_clone().unwrap(), seen.clone());
                thread::spawn(move || pass(from, to, &seen));
            }
        }
    });
    here
}

fn pass(mut from: TcpStream, mut to: TcpStream, seen: &Seen) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(bytes @ 1..) = from.read(&mut buffer) {
        seen.lock().unwrap().extend(&buffer[..bytes]);
        if to.write_all(&buffer[..bytes]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write); // The connection may be closed already.
    let _ = from.shutdown(Shutdown::Read);
}

/// Puts a file, reads it, loses a block, reads the file with several schemes, repairs it, and reads it again.
/// Returns the file's content.
fn use_it(cluster: &Cluster, name: &str) -> Vec<u8> {
    let content = cluster.put(name, BYTES);
    cluster.assert_reads(name, &content, &[]);
    let stripe = cluster.mend(&["stat", name, "--output", "json"]).ok().json();
    let stripe = stripe["layout"][0]["stripe"].as_str().unwrap().to_owned();
    let block = format!("{stripe}.0");
    std::fs::remove_file(cluster.block_file(&block)).unwrap();
    for scheme in ["pipelined", "conventional", "ppr", "crr-s"] {
        cluster.assert_reads(name, &content, &["--scheme", scheme]);
    }
    cluster.mend(&["repair", &block]).ok();
    assert!(cluster.mend(&["scrub"]).ok().out.contains("blocks"));
    cluster.assert_reads(name, &content, &[]);
    content
}

/// Whether parts of the content or a greeting were sent in the clear.
fn is_seen(seen: &[u8], content: &[u8]) -> bool {
    let contains = |part: &[u8]| seen.windows(part.len()).any(|window| window == part);
    contains(&content[1000..1024]) || contains(&content[500_000..500_024]) || contains(b"MEND\x01")
}

#[test]
fn encrypted_edges_carry_everything_and_show_nothing() {
    let (mut cluster, seen) = tapped(true);
    start(&mut cluster, HELPERS);
    let content = use_it(&cluster, "secret");
    let seen = seen.lock().unwrap();
    assert!(seen.len() > 4 * BYTES, "all of it passed the taps: {} bytes", seen.len());
    assert!(!is_seen(&seen, &content));
}

#[test]
fn encryption_that_is_turned_on_holds_from_the_next_registration_on() {
    let (mut cluster, seen) = tapped(false);
    start(&mut cluster, HELPERS);
    let open = use_it(&cluster, "open");
    assert!(is_seen(&seen.lock().unwrap(), &open), "the taps see what is not encrypted");
    set_data_tls(&cluster, true);
    restart(&mut cluster, "h3");
    seen.lock().unwrap().clear();
    let secret = use_it(&cluster, "secret");
    let seen = seen.lock().unwrap();
    assert!(seen.len() > 4 * BYTES && !is_seen(&seen, &secret));
}

#[test]
fn a_helper_cannot_answer_in_place_of_another() {
    let mut cluster = Cluster::init(4, "rs-4-2", "128KiB");
    set_data_tls(&cluster, true);
    start(&mut cluster, 4);
    let content = cluster.put("film", BYTES);
    // Connections to h1 are redirected to h2, which has a valid certificate of this cluster.
    let (h1, h2) = (cluster.base_port() + 2, cluster.base_port() + 3);
    edit(&cluster, |line| {
        let is_h1 = line == format!("listen = \"127.0.0.1:{h1}\"");
        is_h1.then(|| format!("{line}\nadvertise = \"127.0.0.1:{h2}\""))
    });
    restart(&mut cluster, "h1");
    cluster.assert_reads("film", &content, &[]);
    // With h3 and h4 down, a read needs h1's block and cannot use another one instead.
    cluster.kill("h3");
    cluster.kill("h4");
    let copy = cluster.path("none");
    let said = cluster.mend(&["get", "film", "-o", copy.to_str().unwrap()]);
    said.fails_with(&["cannot open an encrypted edge to h1.helper.mend", "h2.helper.mend"]);
    assert!(!copy.exists());
}
