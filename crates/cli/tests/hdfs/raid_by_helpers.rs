//! `mend raid encode` with parity that the helpers make, on a real HDFS.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::Stdio;

use testbed::{Mend, eventually, replace_file};

use crate::mend;
use crate::ports::Ports;
use crate::raid_encoding::{BLOCK, clean_up, holders, policy, put};
use crate::world::World;

/// The number of data blocks and of parity blocks in a stripe.
const STRIPE: [usize; 2] = [10, 4];

/// Helpers make the parity of a file in pipelines: every one of them receives fewer bytes than the data of the stripe.
/// With the conventional scheme, one helper receives them all.
pub fn pipelined(world: &mut World) {
    const FILE: &str = "/by-helpers/file";
    let mut mend = mend::attach(world, &["--raid", "--repair-after", "30m"], true);
    let ports = serve_metrics(&mut mend);
    for (scheme, is_spread) in [("pipelined", true), ("conventional", false)] {
        put(world, FILE, STRIPE[0] * BLOCK - 777);
        let policy = policy(&mend, "/by-helpers");
        let before = received(&ports, mend.names().len());
        let said = encode(&mend, "/by-helpers", &policy, &["--encoder", "helpers", "--scheme", scheme]);
        assert!(said.contains("the helpers have checked the parity"), "{said}");
        let after = received(&ports, mend.names().len());
        let received: Vec<u64> = after.iter().zip(&before).map(|(now, before)| now - before).collect();
        let most = received.iter().copied().max().expect("helpers");
        // The last data block is shorter; slices of it that are only zeros need not be sent.
        let of_stripe = ((STRIPE[0] - 1) * BLOCK) as u64;
        assert!(received.iter().sum::<u64>() >= of_stripe, "the parity crossed the network: {received:?}");
        assert_eq!(most < of_stripe, is_spread, "{scheme}: {received:?}");
        assert_encoded(world, FILE, 1);
        clean_up(world, &["/by-helpers"]);
    }
}

/// A helper is killed while helpers make parity. The rest of the file is encoded without it, and all bytes are right.
pub fn a_helper_killed(world: &mut World) {
    const FILE: &str = "/killed-helper/file";
    let mut mend = mend::attach(world, &["--raid", "--repair-after", "30m"], true);
    mend.wait_for_helpers();
    put(world, FILE, 4 * STRIPE[0] * BLOCK);
    // The second stripe takes seconds, so its parity is not finished before the helper is killed.
    assert!(mend.run(&["caps", "--total", "40Mbit"]).status.success());
    let policy = policy(&mend, "/killed-helper");
    let words = ["raid", "encode", "/killed-helper", "--policy", &policy];
    let mut command =
        mend.verb(&words).stderr(Stdio::piped()).stdout(Stdio::null()).spawn().expect("mend runs");
    let mut said = BufReader::new(command.stderr.take().expect("piped")).lines();
    let is_second =
        |line: &std::io::Result<String>| line.as_ref().is_ok_and(|line| line.contains("encode stripe 1:"));
    let second = said.find(is_second).expect("the second stripe is encoded").expect("text");
    // The first DataNode that the line names receives parity of the stripe that is being encoded.
    let target = (0..mend.names().len()).find(|&at| second.contains(&world.cluster.nodes()[at].address()));
    let target = target.expect("the line names a DataNode");
    mend.kill_helper(target);
    assert!(mend.run(&["caps", "--total", "none"]).status.success());
    let rest: Vec<String> = said.map_while(Result::ok).collect();
    assert!(command.wait().expect("it has ended").success(), "{second}\n{}", rest.join("\n"));
    assert!(
        rest.iter().any(|line| line.contains("the JVM makes the parity of stripe")),
        "{}",
        rest.join("\n")
    );
    mend.start_helper(target);
    mend.wait_for_helpers();
    assert_encoded(world, FILE, 4);
    clean_up(world, &["/killed-helper"]);
}

/// Without a running coordinator, the JVM makes the parity, unless the helpers are required.
pub fn without_a_coordinator(world: &mut World) {
    const FILE: &str = "/no-coordinator/file";
    let mut mend = mend::attach(world, &["--raid", "--dry-run"], true);
    mend.wait_for_helpers();
    put(world, FILE, STRIPE[0] * BLOCK);
    mend.kill_coordinator();
    let policy = policy(&mend, "/no-coordinator");
    let words = ["raid", "encode", "/no-coordinator", "--policy", &policy];
    let required = mend.run(&[&words[..], &["--encoder", "helpers"]].concat());
    assert!(!required.status.success(), "{}", String::from_utf8_lossy(&required.stderr));
    assert!(holders(world, FILE).iter().all(|nodes| nodes.len() == 3), "the file is as before");
    let said = encode(&mend, "/no-coordinator", &policy, &[]);
    assert!(said.contains("the JVM makes the parity of stripe 0"), "{said}");
    assert_encoded(world, FILE, 1);
    clean_up(world, &["/no-coordinator"]);
}

/// Encodes a folder with one file; returns the progress lines.
fn encode(mend: &Mend, folder: &str, policy: &str, options: &[&str]) -> String {
    let output = mend.run(&[&["raid", "encode", folder, "--policy", policy], options].concat());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{}\n{said}", String::from_utf8_lossy(&output.stdout));
    said
}

/// Asserts that each block of the file and of its parity has one replica, that HDFS's own client reads the file, and
/// that the parity is that of the data.
fn assert_encoded(world: &mut World, path: &str, stripes: usize) {
    let (data, parity) = (holders(world, path), holders(world, &format!("/raidrs{path}")));
    assert_eq!([data.len(), parity.len()], [STRIPE[0] * stripes, STRIPE[1] * stripes]);
    assert!(data.iter().chain(&parity).all(|nodes| nodes.len() == 1), "{data:?} {parity:?}");
    assert!(!world.cluster.console().exists("/tmp/raidrs"), "nothing is left of the encoding");
    world.assert_files();
    let local = tempfile::tempdir_in(world.cluster.folder()).expect("a folder");
    let local = local.path().join("parity");
    let from = format!("/raidrs{path}");
    world.cluster.console().run(&["dfs", "-get", &from, local.to_str().expect("text")]);
    let expected = crate::raid::parity_of(world.files.content(path));
    assert!(fs::read(&local).expect("got") == expected, "the parity differs");
}

/// Has all helpers serve metrics on consecutive ports, and restarts them.
fn serve_metrics(mend: &mut Mend) -> Ports {
    let names = mend.names().to_vec();
    let ports = Ports::take(u16::try_from(names.len()).expect("few helpers"));
    let path = mend.folder().join("mend.toml");
    let mut text = fs::read_to_string(&path).expect("its configuration");
    for (name, port) in names.iter().zip(ports.first()..) {
        let line = format!("name = \"{name}\"\n");
        assert!(text.contains(&line), "{name}: {text}");
        text = text.replacen(&line, &format!("{line}metrics = \"127.0.0.1:{port}\"\n"), 1);
    }
    replace_file(&path, text);
    for at in 0..names.len() {
        mend.kill_helper(at);
        mend.start_helper(at);
    }
    mend.wait_for_helpers();
    ports
}

/// Returns the bytes of blocks that each helper has received for repairs.
fn received(ports: &Ports, helpers: usize) -> Vec<u64> {
    const METRIC: &str = "mend_node_received_bytes_total{purpose=\"repair\"} ";
    let of = |port: u16| {
        let mut stream = eventually("the helper to listen", || TcpStream::connect(("127.0.0.1", port)).ok());
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").expect("sent");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("an answer");
        let line = text.lines().find_map(|line| line.strip_prefix(METRIC));
        line.map_or(0, |bytes| bytes.parse::<f64>().expect("a number") as u64)
    };
    (ports.first()..).take(helpers).map(of).collect()
}
