//! Repairs avoid links that are known to be slow, and helpers that become slow during a repair.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::cluster::Cluster;

const MIB: usize = 1 << 20;

/// A proxy that limits the rate at which the helper behind it sends.
#[derive(Default)]
pub struct Gate {
    pub bytes_per_s: AtomicU64,
    pub passed: AtomicU64,
    /// Makes all connections take turns, because they share the rate.
    turn: Mutex<()>,
}

impl Gate {
    /// Opens a gate in front of a port and returns the gate's own port.
    pub fn open(self: Arc<Self>, port: u16) -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let here = listener.local_addr().unwrap().port();
        // The thread ends with the test's process.
        thread::spawn(move || {
            for near in listener.incoming().map_while(Result::ok) {
                let Ok(far) = TcpStream::connect(("127.0.0.1", port)) else { continue };
                let (asks, answers) = (near.try_clone().unwrap(), far.try_clone().unwrap());
                thread::spawn(move || pass(asks, far, |_| {}));
                let gate = self.clone();
                thread::spawn(move || pass(answers, near, |bytes| gate.wait(bytes)));
            }
        });
        here
    }

    fn wait(&self, bytes: usize) {
        let _turn = self.turn.lock().unwrap();
        let rate = self.bytes_per_s.load(Ordering::Relaxed);
        thread::sleep(Duration::from_secs_f64(bytes as f64 / rate as f64));
        self.passed.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, wait: impl Fn(usize)) {
    let mut buffer = vec![0; 16 << 10];
    while let Ok(bytes @ 1..) = from.read(&mut buffer) {
        wait(bytes);
        if to.write_all(&buffer[..bytes]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write); // The connection may be closed already.
    let _ = from.shutdown(Shutdown::Read);
}

/// Starts a cluster in which every helper is dialled through a gate with the given rate.
fn gated(helpers: u16, code: &str, bytes_per_s: u64) -> (Cluster, Vec<Arc<Gate>>) {
    let mut cluster = Cluster::init(helpers, code, "16MiB");
    let path = cluster.folder().join("mend.toml");
    let mut text = std::fs::read_to_string(&path).unwrap();
    let mut gates = Vec::new();
    for port in cluster.base_port() + 2..cluster.base_port() + 2 + helpers {
        let gate = Arc::new(Gate { bytes_per_s: bytes_per_s.into(), ..Gate::default() });
        let line = format!("listen = \"127.0.0.1:{port}\"");
        assert!(text.contains(&line), "{text}");
        let here = gate.clone().open(port);
        text = text.replace(&line, &format!("{line}\nadvertise = \"127.0.0.1:{here}\""));
        gates.push(gate);
    }
    std::fs::write(path, text).unwrap();
    cluster.start(&["coordinator"]);
    (1..=helpers).for_each(|helper| cluster.start(&["helper", &format!("h{helper}")]));
    cluster.await_ready();
    (cluster, gates)
}

fn json(cluster: &Cluster, verb: &[&str]) -> Value {
    cluster.mend(&[verb, &["--output", "json"]].concat()).ok().json()
}

/// Whether the first running job has delivered a quarter of its slices.
fn is_under_way(cluster: &Cluster) -> bool {
    let status = cluster.mend(&["status", "--output", "json"]).json();
    let number = |name: &str| status["jobs"][0][name].as_u64().unwrap_or(0);
    number("slices") > 0 && number("delivered_slices") * 4 >= number("slices")
}

#[test]
fn a_repair_goes_on_without_a_helper_that_becomes_slow() {
    // The gates are slow enough to be the bottleneck even on a busy machine. Otherwise a helper that becomes
    // slow would not stand out.
    let (mut cluster, gates) = gated(8, "rs-6-3", 2_000_000);
    let content = cluster.put("film", 3 * 16 * MIB);
    cluster.kill(&cluster.holder("1.0"));
    gates.iter().for_each(|gate| gate.passed.store(0, Ordering::Relaxed));
    let repair = json(&cluster, &["repair", "1.0", "--no-wait"])["repair"].to_string();
    cluster.eventually("a quarter is there", is_under_way);
    // The helper that has sent the most bytes certainly takes part in the plan.
    let passed = |gate: &Arc<Gate>| gate.passed.load(Ordering::Relaxed);
    let (gate, slow) = gates.iter().zip(1..).max_by_key(|(gate, _)| passed(gate)).unwrap();
    assert!(passed(gate) > MIB as u64, "h{slow} sent {} bytes", passed(gate));
    gate.bytes_per_s.store(200_000, Ordering::Relaxed);
    let view = cluster.mend(&["watch", &repair, "--output", "json"]).ok().json();
    gate.bytes_per_s.store(2_000_000, Ordering::Relaxed);
    assert_eq!(view["state"], "done", "{view:#}");
    let dropped: Vec<&str> =
        view["items"][0]["replanned"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    let named = |text: &&str| text.contains("slow") && text.contains(&format!("h{slow}"));
    assert!(dropped.iter().any(named), "h{slow} became slow: {view:#}");
    cluster.assert_reads("film", &content, &[]);
}

/// Helpers without blocks of the stripe relay data between nodes whose direct links are slow.
#[test]
fn a_repair_goes_over_helpers_with_better_links() {
    let (mut cluster, gates) = gated(7, "rs-4-2", 1_000_000_000);
    let content = cluster.put("film", 2 * 16 * MIB);
    cluster.mend(&["node", "repair-after", "never"]).ok();
    std::fs::remove_file(cluster.block_file("1.0")).unwrap();
    cluster.assert_reads("film", &content, &[]);
    let home = cluster.holder("1.0");
    let holders: Vec<String> = (0..4).map(|index| cluster.holder(&format!("1.{index}"))).collect();
    let others = (1..=7).map(|helper| format!("h{helper}")).filter(|name| !holders.contains(name));
    let spare: Vec<String> = others.collect();
    let path = cluster.folder().join("mend.toml");
    let mut text = std::fs::read_to_string(&path).unwrap();
    for from in holders.iter().filter(|&from| *from != home) {
        text += &format!("\n[[link]]\nfrom = \"{from}\"\nto = \"{home}\"\nrate = \"1mbit\"\n");
    }
    testbed::replace_file(&path, text);
    // The coordinator rereads mend.toml when a helper registers.
    cluster.kill(&spare[0]);
    cluster.start(&["helper", &spare[0]]);
    cluster.await_ready();
    cluster.eventually("it is back", |cluster| cluster.mend(&["status"]).out.contains("7 helpers"));
    let plan = json(&cluster, &["plan", "1.0", "--requestor", &home]);
    let nodes: Vec<&str> = plan["nodes"].as_object().unwrap().values().filter_map(Value::as_str).collect();
    assert!(nodes.iter().any(|name| spare.iter().any(|spare| spare == name)), "{plan:#}");
    let view = json(&cluster, &["repair", "1.0"]);
    assert_eq!((&view["state"], &view["items"][0]["scheme"]), (&"done".into(), &"packed".into()), "{view:#}");
    assert_eq!(view["items"][0]["rebuilt"][0]["node"].as_str(), Some(&home[..]), "{view:#}");
    assert_eq!(view["items"][0]["replanned"], Value::Array(Vec::new()), "{view:#}");
    // The spare helpers hold no blocks of the file, so traffic through their gates proves that they relay
    // data.
    let sent = |(gate, helper): (&Arc<Gate>, u16)| {
        let is_spare = spare.contains(&format!("h{helper}"));
        if is_spare { gate.passed.load(Ordering::Relaxed) } else { 0 }
    };
    let sent: u64 = gates.iter().zip(1..).map(sent).sum();
    assert!(sent > MIB as u64, "{sent} bytes over {spare:?}: {plan:#}");
    cluster.assert_reads("film", &content, &[]);
    cluster.mend(&["scrub"]).ok();
}
