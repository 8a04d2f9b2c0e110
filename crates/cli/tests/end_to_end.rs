//! End-to-end test with real processes: a cluster of six helpers, of which two are killed.

mod ports;

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use tempfile::TempDir;

use ports::Ports;

/// A coordinator and its helpers. All processes are killed when the value is dropped.
struct Cluster {
    scratch: TempDir,
    _ports: Ports,
    coordinator: Option<Daemon>,
    helpers: Vec<Option<Daemon>>,
}

/// A process that is killed on drop.
struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill(); // The process may have ended already.
        let _ = self.0.wait();
    }
}

impl Cluster {
    fn start(helpers: usize, code: &str) -> Self {
        let scratch = tempfile::tempdir().unwrap();
        let ports = Ports::take(2);
        let (count, port) = (helpers.to_string(), ports.first().to_string());
        let mut cluster = Self { scratch, _ports: ports, coordinator: None, helpers: Vec::new() };
        let made = cluster.mend(&[
            "init",
            "--helpers",
            &count,
            "--code",
            code,
            "--block-size",
            "256KiB",
            "--base-port",
            "0",
            "--coordinator-port",
            &port,
        ]);
        succeeded(&made);
        cluster.coordinator = Some(cluster.daemon(&["coordinator"]));
        cluster.helpers = (1..=helpers).map(|number| Some(cluster.helper(number))).collect();
        cluster
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_mend"));
        command.args(args).env("MEND_CLUSTER", self.scratch.path().join("cluster")).env_remove("RUST_LOG");
        command.current_dir(self.scratch.path()).stdin(Stdio::null());
        command
    }

    fn mend(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    /// Starts a daemon and waits for its ready line.
    fn daemon(&self, args: &[&str]) -> Daemon {
        let mut command = self.command(args);
        let mut daemon = Daemon(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
        let mut line = String::new();
        BufReader::new(daemon.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.starts_with("ready"), "{args:?} said {line:?}");
        // Drain the log, because the last lines are written when the daemon ends.
        let mut log = daemon.0.stderr.take().unwrap();
        std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
        daemon
    }

    fn helper(&self, number: usize) -> Daemon {
        self.daemon(&["helper", &format!("h{number}")])
    }

    fn kill(&mut self, number: usize) {
        self.helpers[number - 1] = None;
    }

    fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.scratch.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    }

    fn get(&self, args: &[&str]) -> Vec<u8> {
        let output = self.mend(&[&["get"], args, &["-o", "-"]].concat());
        succeeded(&output);
        output.stdout
    }

    fn first_line_of_status(&self) -> String {
        text(&self.mend(&["status"]).stdout).lines().next().unwrap_or_default().to_owned()
    }

    fn wait_for_status(&self, wanted: &str) {
        for _ in 0..100 {
            if self.first_line_of_status().contains(wanted) {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        panic!("`{wanted}` never came; it is {}", self.first_line_of_status());
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[track_caller]
fn succeeded(output: &Output) -> String {
    assert!(output.status.success(), "{}\n{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

#[track_caller]
fn failed(output: &Output, code: i32, says: &str) {
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{said}");
    assert!(said.contains(says), "{said}");
}

/// Generates bytes without a repeating pattern, so that a misplaced block is noticed.
fn bytes(count: usize) -> Vec<u8> {
    (0..count as u64).map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}

fn json(output: &Output) -> serde_json::Value {
    serde_json::from_str(&succeeded(output)).unwrap()
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn a_file_survives_two_of_six_helpers_and_is_repaired() {
    let mut cluster = Cluster::start(6, "rs-6-4");
    let content = bytes(2_500_000);
    let file = cluster.file("film", &content);
    assert!(succeeded(&cluster.mend(&["put", path(&file)])).starts_with("put film: 2.38 MiB in 3 stripes"));
    let empty = cluster.file("nothing", b"");
    succeeded(&cluster.mend(&["put", path(&empty), "--name", "a/b c"]));
    assert_eq!(succeeded(&cluster.mend(&["ls"])), "a/b c\nfilm\n");
    cluster.wait_for_status("safe  all 3 stripes");

    assert!(cluster.get(&["film"]) == content);
    assert!(cluster.get(&["a/b c"]).is_empty());
    // Read a range that crosses the boundaries of blocks and stripes.
    assert!(cluster.get(&["film", "--range", "262100+900000"]) == content[262_100..1_162_100]);
    failed(&cluster.mend(&["get", "film", "--range", "2500000-2500000", "-o", "-"]), 1, "has 2500000 bytes");
    failed(&cluster.mend(&["put", path(&file)]), 1, "there is a file `film` already");

    cluster.kill(2);
    cluster.kill(5);
    cluster.wait_for_status("AT RISK");
    for scheme in ["auto", "conventional", "ppr", "crr-s", "pipelined", "cyclic"] {
        assert!(cluster.get(&["film", "--scheme", scheme]) == content, "{scheme}");
    }
    let copy = cluster.scratch.path().join("copy");
    succeeded(&cluster.mend(&["get", "film", "-o", path(&copy), "--range", "1000-"]));
    assert!(std::fs::read(&copy).unwrap() == content[1000..]);
    let plan = json(&cluster.mend(&["plan", "1", "--scheme", "conventional", "--output", "json"]));
    assert_eq!(plan["summary"]["scheme"], "conventional");
    let schemes = succeeded(&cluster.mend(&["plan", "1", "--compare"]));
    assert!(
        ["pipelined", "auto chooses", "busiest", "disk reads"].iter().all(|word| schemes.contains(word)),
        "{schemes}"
    );
    let compared = json(&cluster.mend(&["compare", "film", "--repeat", "1", "--output", "json"]));
    let schemes = compared["schemes"].as_array().unwrap();
    assert!(schemes.len() >= 8 && schemes.iter().all(|row| row["bytes_agree"] == true), "{compared}");

    // The helpers return with empty disks.
    for number in [2, 5] {
        let blocks = cluster.scratch.path().join(format!("cluster/helpers/h{number}/blocks"));
        std::fs::remove_dir_all(blocks).unwrap();
        cluster.helpers[number - 1] = Some(cluster.helper(number));
    }
    let repaired = succeeded(&cluster.mend(&["repair", "--all"]));
    assert!(repaired.contains("done after") && repaired.contains(": 6 blocks"), "{repaired}");
    cluster.wait_for_status("safe  all 3 stripes");
    assert!(succeeded(&cluster.mend(&["scrub"])).contains("18 of 18 blocks"));
    assert!(cluster.get(&["film"]) == content);
    succeeded(&cluster.mend(&["rm", "film", "a/b c"]));
    assert_eq!(succeeded(&cluster.mend(&["ls"])), "");
}

#[test]
fn impossible_requests_fail_with_their_exit_code() {
    let scratch = tempfile::tempdir().unwrap();
    let mend_in = |folder: &Path, args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_mend"));
        command.args(args).env_remove("MEND_CLUSTER").current_dir(folder).output().unwrap()
    };
    let mend = |args: &[&str]| mend_in(scratch.path(), args);
    failed(&mend(&["status"]), 1, "there is no folder");
    failed(&mend(&["frobnicate"]), 2, "unrecognized subcommand");
    failed(&mend(&["init", "--code", "rs-4-6"]), 2, "n = 4");
    let ports = Ports::take(2);
    let port = ports.first().to_string();
    let made = mend(&[
        "init",
        "--helpers",
        "2",
        "--code",
        "rs-3-2",
        "--coordinator-port",
        &port,
        "--base-port",
        "0",
    ]);
    assert!(succeeded(&made).contains("rs-3-2 needs 3 helpers"));
    failed(&mend(&["init"]), 1, "already holds a cluster");
    // Without --cluster, the nearest cluster folder is used.
    failed(&mend(&["status"]), 4, "cannot reach the coordinator");
    let below = scratch.path().join("below");
    std::fs::create_dir(&below).unwrap();
    let (here, in_parent) = (mend(&["helper", "h9"]), mend_in(&below, &["helper", "h9"]));
    failed(&in_parent, 1, "note: using the cluster folder");
    assert!(!text(&here.stderr).contains("note"), "{here:?}");
    std::os::unix::fs::symlink("mend-cluster", below.join("mend-cluster")).unwrap();
    failed(&mend_in(&below, &["helper", "h9"]), 1, "cannot search for the cluster folder");
    failed(&mend(&["helper", "h9"]), 1, "it has h1, h2");
    let added = mend(&["node", "add", "h3", "--listen", "127.0.0.1:0", "--rack", "r1"]);
    assert!(succeeded(&added).contains("added helper h3"));
    failed(&mend(&["node", "add", "h3", "--listen", "127.0.0.1:0"]), 1, "helper h3 exists already");
    let taken = TcpListener::bind(("127.0.0.1", port.parse().unwrap())).unwrap();
    failed(&mend(&["coordinator"]), 1, "cannot listen on");
    drop(taken);
    // A monitor reads stdout only. If the journal of systemd cannot be reached, the check ends before it has begun.
    for log in ["text", "journald"] {
        let check = mend(&["status", "--check", "--log", log]);
        let line = String::from_utf8_lossy(&check.stdout).into_owned();
        assert!(check.status.code() == Some(3) && line.starts_with("MEND UNKNOWN"), "{log}: {check:?}");
    }
    std::fs::remove_file(scratch.path().join("mend-cluster/coordinator/catalog.redb")).unwrap();
    failed(&mend(&["coordinator"]), 1, "there is no catalog at");
}
