//! The Java requestor (`java/client`) with a real cluster: it reads the stored bytes despite failures, and
//! reports missing permissions. `javac` compiles the requestor together with the console program that these
//! tests drive.
//!
//! Without a JDK the tests are skipped with a message; in CI (`CI=true`) that is a failure.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::OnceLock;
use std::thread;
use std::time::Duration;

use crate::cluster::Cluster;
use crate::requestors::Film;

/// Returns the folder of the compiled Java classes, or `None` without a JDK. Compiles them only once.
fn classes() -> Option<&'static Path> {
    static BUILT: OnceLock<Option<PathBuf>> = OnceLock::new();
    BUILT.get_or_init(build).as_deref()
}

fn build() -> Option<PathBuf> {
    if testbed::is_skipped("java") {
        return None;
    }
    let is_there = |program| Command::new(program).arg("-version").output().is_ok();
    if !is_there("javac") || !is_there("java") {
        panic!("there is no JDK: apt-get install default-jdk-headless, or MEND_SKIP=java");
    }
    let client = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../java/client/src");
    let mut sources = vec![client.join("test/java/mend/client/Console.java")];
    let main = std::fs::read_dir(client.join("main/java/mend/client")).expect("the sources");
    sources.extend(main.map(|entry| entry.expect("an entry").path()));
    let classes = Path::new(env!("CARGO_TARGET_TMPDIR")).join("java-client");
    let said = Command::new("javac")
        .args(["--release", "11", "-proc:none", "-Xlint:all", "-Werror", "-d"])
        .arg(&classes)
        .args(&sources)
        .output()
        .expect("javac");
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    Some(classes)
}

/// A JVM that runs the requestor and reads on command.
struct Requestor {
    jvm: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Requestor {
    /// Starts a JVM with the certificate in `member` of the cluster folder `folder`; returns `None` without a
    /// JDK.
    fn start_as(cluster: &Cluster, folder: &Path, member: &str) -> Option<Self> {
        let address = |above: u16| format!("127.0.0.1:{}", cluster.base_port() + above);
        let mut command = Command::new("java");
        command
            .args(["-XX:TieredStopAtLevel=1", "-Xmx64m", "-cp"])
            .arg(classes()?)
            .arg("mend.client.Console");
        command.args([address(0), address(1)]).arg(folder).arg(member);
        let mut jvm = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("java");
        let (input, output) = (jvm.stdin.take().expect("piped"), jvm.stdout.take().expect("piped"));
        Some(Self { jvm, input, output: BufReader::new(output) })
    }

    fn start(cluster: &Cluster) -> Option<Self> {
        Self::start_as(cluster, &cluster.folder(), "client")
    }

    fn tell(&mut self, command: &str) {
        writeln!(self.input, "{command}").expect("it listens");
    }

    fn answer(&mut self) -> Result<Vec<u8>, String> {
        let mut head = String::new();
        self.output.read_line(&mut head).expect("it answers");
        let Some(bytes) = head.strip_prefix("ok ") else { return Err(head) };
        let mut said = vec![0; bytes.trim().parse().expect("a number")];
        self.output.read_exact(&mut said).expect("it answers");
        Ok(said)
    }

    fn ask(&mut self, command: &str) -> Result<Vec<u8>, String> {
        self.tell(command);
        self.answer()
    }

    #[track_caller]
    fn fails_with(&mut self, command: &str, texts: &[&str]) {
        let said = self.ask(command).map(|bytes| bytes.len()).expect_err("it should fail");
        assert!(texts.iter().all(|text| said.contains(text)), "{said}");
    }
}

impl Drop for Requestor {
    fn drop(&mut self) {
        let _ = self.jvm.kill();
        let _ = self.jvm.wait();
    }
}

impl Film {
    #[track_caller]
    fn assert_reads(&self, requestor: &mut Requestor, how: &str, block: usize, from: usize, to: usize) {
        let said = requestor.ask(&format!("{how} {} {block} {from} {to}", self.stripe));
        let said = said.unwrap_or_else(|problem| panic!("{how} {block} {from}-{to}: {problem}"));
        assert!(said == self.bytes(block, from, to), "{how} {block} {from}-{to}: other bytes");
    }
}

#[test]
fn a_java_program_reads_what_is_lost_by_every_scheme() {
    let mut cluster = Cluster::new(9, "rs-7-4", "1MiB");
    let Some(mut requestor) = Requestor::start(&cluster) else { return };
    let film = Film::put(&cluster, 4_111_111);
    for block in 0..4 {
        film.assert_reads(&mut requestor, "read", block, 0, film.block);
    }
    for block in ["1.1", "1.3", "1.5"] {
        let holder = cluster.holder(block);
        cluster.kill(&holder);
    }
    let schemes = [
        "auto",
        "conventional",
        "ppr",
        "crr-r",
        "crr-s",
        "crr-s-direct",
        "scatter",
        "pipelined",
        "cyclic",
        "packed",
    ];
    for scheme in schemes {
        requestor.ask(&format!("scheme {scheme}")).expect("taken");
        for (from, to) in film.ranges() {
            film.assert_reads(&mut requestor, "read", 3, from, to);
        }
        film.assert_reads(&mut requestor, "stream", 1, 0, film.block);
        film.assert_reads(&mut requestor, "stream", 2, 5, film.block - 5);
    }
    requestor.fails_with("read 99-nosuch 0 0 1", &["REFUSED", "99-nosuch"]);
    let holder = cluster.holder("1.0");
    cluster.kill(&holder);
    requestor.fails_with(&format!("read {} 0 0 1", film.stripe), &["TOO_MUCH_LOST"]);
}

#[test]
fn a_java_program_reads_on_when_helpers_stop_and_die() {
    let mut cluster = Cluster::new(9, "rs-7-4", "8MiB");
    let Some(mut requestor) = Requestor::start(&cluster) else { return };
    let film = Film::put(&cluster, 33_333_333);
    let lost = cluster.holder("1.0");
    cluster.kill(&lost);
    film.assert_reads(&mut requestor, "stream", 0, 0, film.block);
    // A read uses four of six holders, so it almost always includes one of these two.
    let stopped = ["1.2", "1.4"].map(|block| cluster.holder(block));
    for helper in &stopped {
        cluster.signal(helper, "STOP");
    }
    requestor.tell(&format!("stream {} 0 0 {}", film.stripe, film.block));
    thread::sleep(Duration::from_millis(700));
    cluster.kill(&stopped[0]);
    let said = requestor.answer().expect("others take their places");
    assert!(said == film.bytes(0, 0, film.block), "other bytes");
    cluster.signal(&stopped[1], "CONT");
    // Abandoned reads leave no job behind.
    for _ in 0..20 {
        requestor.ask(&format!("give-up {} 0 0 {}", film.stripe, film.block)).expect("one byte comes");
    }
    cluster.eventually("no job is left", |cluster| {
        cluster.mend(&["status", "--output", "json"]).json()["jobs"].as_array().is_some_and(Vec::is_empty)
    });
    film.assert_reads(&mut requestor, "read", 0, 8_000_000, 8_000_100);
}

#[test]
fn a_java_program_hears_of_a_coordinator_that_is_gone_and_finds_it_again() {
    let mut cluster = Cluster::new(7, "rs-7-4", "1MiB");
    let Some(mut requestor) = Requestor::start(&cluster) else { return };
    let film = Film::put(&cluster, 4_111_111);
    film.assert_reads(&mut requestor, "read", 0, 7, 77);
    requestor.ask("check").expect("it answers");
    cluster.kill("coordinator");
    requestor.fails_with("check", &["UNREACHABLE"]);
    requestor.fails_with(&format!("read {} 0 0 1", film.stripe), &["UNREACHABLE", "mend coordinator"]);
    cluster.start(&["coordinator"]);
    cluster.await_ready();
    cluster.eventually("the helpers are back", |cluster| cluster.mend(&["status"]).out.starts_with("safe"));
    film.assert_reads(&mut requestor, "read", 0, 7, 77);
    // The coordinator hangs: the session times out and no new one can be opened.
    cluster.signal("coordinator", "STOP");
    requestor.fails_with(&format!("read {} 0 0 1", film.stripe), &["UNREACHABLE", "timed out"]);
    cluster.signal("coordinator", "CONT");
    film.assert_reads(&mut requestor, "read", 1, 7, 77);
}

#[test]
fn a_java_program_without_the_right_certificate_is_told_so() {
    let cluster = Cluster::new(7, "rs-7-4", "1MiB");
    let film = Film::put(&cluster, 4_111_111);
    let read = format!("read {} 0 0 1", film.stripe);
    let other = Cluster::init(7, "rs-7-4", "1MiB");
    // The stranger's certificate was issued by another cluster's CA. The second requestor uses a helper's
    // certificate, with which nobody may read as a client.
    let Some(mut stranger) = Requestor::start_as(&cluster, &other.folder(), "client") else { return };
    stranger.fails_with(&read, &["UNTRUSTED"]);
    let helper = Requestor::start_as(&cluster, &cluster.folder(), "helpers/h1");
    helper.expect("a JDK").fails_with(&read, &["REFUSED"]);
    // A plug-in may read stripes described by plug-ins, but none of the cluster's own.
    cluster.mend(&["issue", "plugin", "hdfs"]).ok();
    let plugin = Requestor::start_as(&cluster, &cluster.folder(), "plugins/hdfs");
    plugin.expect("a JDK").fails_with(&read, &["REFUSED"]);
    let none = Requestor::start_as(&cluster, &cluster.folder(), "nobody");
    let said = none.expect("a JDK").answer().expect_err("there is no certificate");
    assert!(said.contains("UNTRUSTED") && said.contains("mend issue"), "{said}");
    // A program goes on with its certificate after this was renewed.
    cluster.mend(&["issue", "client", "ann", "--valid-for", "10d"]).ok();
    let mut ann = Requestor::start_as(&cluster, &cluster.folder(), "clients/ann").expect("a JDK");
    ann.ask("check").expect("it answers");
    let expires = |cluster: &Cluster| cluster.mend(&["status"]).out.contains("the certificate of client ann");
    cluster.eventually("the certificate is about to expire", expires);
    cluster.mend(&["issue", "client", "ann"]).ok();
    cluster.eventually("the program presents the new one", |cluster| {
        ann.ask("check").expect("it answers");
        !expires(cluster)
    });
}

#[test]
fn a_java_program_reads_over_encrypted_edges() {
    let mut cluster = Cluster::init(7, "rs-7-4", "1MiB");
    let file = cluster.folder().join("mend.toml");
    let text = std::fs::read_to_string(&file).expect("mend.toml");
    std::fs::write(&file, format!("data_tls = true\n{text}")).expect("written");
    cluster.start(&["coordinator"]);
    (1..=7).for_each(|helper| cluster.start(&["helper", &format!("h{helper}")]));
    cluster.await_ready();
    let Some(mut requestor) = Requestor::start(&cluster) else { return };
    let film = Film::put(&cluster, 4_111_111);
    let lost = cluster.holder("1.2");
    cluster.kill(&lost);
    for scheme in ["conventional", "pipelined", "pipe-s", "cyclic"] {
        requestor.ask(&format!("scheme {scheme}")).expect("taken");
        for (from, to) in film.ranges() {
            film.assert_reads(&mut requestor, "read", 2, from, to);
        }
    }
}
