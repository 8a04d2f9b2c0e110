//! `--log journald`: what the journal of systemd has of a real cluster.
//!
//! The tests need the Debian package systemd, which `scripts/setup` installs. `MEND_SKIP=journald` skips them.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::cluster::Cluster;

const SOCKET: &str = "/run/systemd/journal/socket";
const JOURNALD: &str = "/lib/systemd/systemd-journald";

/// The journal of this machine. If systemd does not run here, as in a container, journald runs until the test ends.
struct Journal(Option<Child>);

impl Journal {
    fn open(cluster: &Cluster) -> Self {
        if systemd_runs() {
            return Self(None);
        }
        fs::create_dir_all("/run/systemd/journal").expect("only root can start journald");
        let _ = fs::remove_file(SOCKET); // It stays if a journald is killed.
        let journald = Command::new(JOURNALD).stdin(Stdio::null()).stderr(Stdio::null()).spawn();
        let journal = Self(Some(journald.expect("systemd-journald; on Debian: apt-get install systemd")));
        cluster.eventually("journald listens", |_| Path::new(SOCKET).exists());
        journal
    }

    /// The entries with this field.
    fn entries(&self, field: &str) -> Vec<Value> {
        let found = Command::new("journalctl").args(["--boot", "--output", "json", field]).output().unwrap();
        let text = String::from_utf8(found.stdout).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        if let Some(journald) = &mut self.0 {
            let _ = journald.kill();
            let _ = journald.wait();
            let _ = fs::remove_file(SOCKET);
        }
    }
}

fn systemd_runs() -> bool {
    Path::new("/run/systemd/system").exists() && Path::new(SOCKET).exists()
}

#[test]
fn the_journal_has_the_ids_of_helpers_and_repairs_as_fields() {
    if testbed::is_skipped("journald") {
        return;
    }
    let mut cluster = Cluster::new(6, "rs-6-4", "64KiB");
    let journal = Journal::open(&cluster);
    cluster.kill("coordinator");
    cluster.start(&["--log", "journald", "coordinator"]);
    cluster.await_ready();
    cluster.put("film", 300_000);
    fs::remove_file(cluster.block_file("1.0")).unwrap();
    cluster.mend(&["repair", &cluster.block_name("1.0")]).ok();
    let pid = format!("_PID={}", cluster.pid("coordinator"));
    cluster.eventually("the journal has the repair", |_| {
        let entries = journal.entries(&pid);
        let has = |message: &str, field: &str| {
            entries.iter().any(|entry| entry["MESSAGE"] == message && entry[field].is_string())
        };
        has("registered", "MEND_HELPER")
            && has("a block is bad", "MEND_BLOCK")
            && has("a repair has ended", "MEND_REPAIR")
    });
    let log = cluster.log("coordinator");
    assert!(log.lines().all(|line| line.starts_with("ready: ")), "nothing else is on stderr: {log}");
}
