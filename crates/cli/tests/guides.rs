//! Runs the guides and the README as they are written.
//!
//! The fenced `sh` blocks of a page are one shell session. A `text` block after a `sh` block is the expected
//! output of this `sh` block: each line must be found in a line of the output, where `…` stands for anything.
//! The shipped binary is on PATH. Each machine of a guide is a folder, and a stand-in for `ssh`
//! (`guides/ssh`) runs commands on it. All machines run in network, mount and process namespaces that end
//! with the session.

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// Time limit of a session in seconds. The limit is high, because a session that seems to hang may only be
/// slow on a busy machine.
const SECONDS: &str = "600";

const CLUSTER: &str = include_str!("../../../docs/guides/dir-cluster.md");
const DISASTER: &str = include_str!("../../../docs/guides/disaster-recovery.md");
const UPGRADE: &str = include_str!("../../../docs/guides/upgrade.md");
const REMOVAL: &str = include_str!("../../../docs/guides/removal.md");
const README: &str = include_str!("../../../README.md");

/// Stand-ins that a session finds before the system's programs. `cargo` does nothing, because a release build
/// already exists.
const PROGRAMS: [(&str, &str); 4] = [
    ("ssh", include_str!("guides/ssh")),
    ("systemctl", include_str!("guides/systemctl")),
    ("world", include_str!("guides/world")),
    ("cargo", "#!/bin/sh\n"),
];

/// A fenced block of commands and its expected output.
#[derive(Debug, Default)]
struct Block {
    commands: String,
    prints: Vec<String>,
}

#[test]
fn the_readme_takes_five_minutes() {
    run(&[README]);
}

#[test]
fn a_cluster_on_several_machines_survives_disasters() {
    run(&[CLUSTER, DISASTER]);
}

#[test]
fn a_cluster_on_several_machines_is_upgraded_and_taken_off() {
    run(&[CLUSTER, UPGRADE, REMOVAL]);
}

/// Runs the blocks of these pages in one session, and compares the output with the expected one.
fn run(pages: &[&str]) {
    let blocks: Vec<Block> = pages.iter().flat_map(|page| blocks(page)).collect();
    let mut script = String::new();
    for (number, block) in blocks.iter().enumerate() {
        write!(script, "echo; echo '@@ {number}'\n{}", block.commands).expect("text");
    }
    let said = session(&script);
    assert!(said.contains("@@ ended"), "a command failed:\n{said}");
    for (number, block) in blocks.iter().enumerate() {
        let output = said.split(&format!("@@ {number}\n")).nth(1).expect("it ran");
        let output = output.split("\n@@ ").next().expect("its own part");
        for wanted in &block.prints {
            assert!(
                output.lines().any(|line| shows(line, wanted)),
                "no line `{wanted}` from\n{}\nbut\n{output}\n\nin all:\n{said}",
                block.commands
            );
        }
    }
}

/// Runs a script in namespaces of its own, which end with the session. Returns all output.
fn session(script: &str) -> String {
    let scratch = tempfile::tempdir().expect("a folder");
    let (tools, checkout) = (scratch.path().join("tools"), scratch.path().join("checkout"));
    let release = checkout.join("target/release");
    fs::create_dir_all(&tools).expect("a folder");
    fs::create_dir_all(&release).expect("a folder");
    for (name, text) in PROGRAMS {
        write_program(&tools.join(name), text);
    }
    strip(Path::new(env!("CARGO_BIN_EXE_mend")), &release.join("mend"));
    let file = scratch.path().join("session");
    fs::write(&file, format!("{script}\necho; echo '@@ ended'\n")).expect("written");

    let mut command = testbed::Process::command("timeout");
    command.args(["--kill-after", "5", SECONDS, "unshare", "--net", "--mount", "--pid", "--fork"]);
    command.args(["--kill-child", "--mount-proc"]);
    if !rustix::process::geteuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    command.args(["bash", "-c", r#"exec "$0" "$1" 2>&1"#]).arg(tools.join("world")).arg(&file);
    command.env("PATH", format!("{}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", tools.display()));
    command.env("MEND_MACHINES", scratch.path().join("machines")).env_remove("MEND_CLUSTER");
    let output = command.current_dir(&checkout).stdin(Stdio::null()).output().expect("it starts");
    let said = [output.stdout, output.stderr].concat();
    String::from_utf8_lossy(&said).into_owned()
}

/// Writes a script that can be executed at once.
///
/// Another process writes the file. If this process wrote it, a concurrent test could fork at the same time,
/// and its child would keep the file open for writing. Executing the script would then fail with "Text file
/// busy".
fn write_program(path: &Path, text: &str) {
    let script = r#"cat > "$0" && chmod 755 "$0""#;
    let mut writer = Command::new("sh");
    let mut writer = writer.args(["-c", script]).arg(path).stdin(Stdio::piped()).spawn().expect("sh starts");
    writer.stdin.take().expect("a pipe").write_all(text.as_bytes()).expect("written");
    assert!(writer.wait().is_ok_and(|status| status.success()), "{} must be written", path.display());
}

/// Copies the program without its debugging symbols. A release build has none, and every machine of a session
/// gets a copy.
fn strip(program: &Path, to: &Path) {
    let done = Command::new("strip").arg("-o").arg(to).arg(program).status();
    assert!(done.is_ok_and(|status| status.success()), "strip (binutils) must work");
}

/// Returns the `sh` blocks of a page, each with the `text` blocks that follow it as the expected output.
fn blocks(page: &str) -> Vec<Block> {
    let mut found: Vec<Block> = Vec::new();
    let mut fence = None;
    for line in page.lines() {
        match (fence, line.strip_prefix("```")) {
            (None, Some(kind)) => {
                fence = Some(kind);
                if kind == "sh" {
                    found.push(Block::default());
                }
            }
            (Some(_), Some(_)) => fence = None,
            (Some("sh"), None) => found.last_mut().expect("begun").commands += &format!("{line}\n"),
            (Some("text"), None) => {
                found.last_mut().expect("text follows commands").prints.push(line.to_owned());
            }
            _ => {}
        }
    }
    found
}

/// Whether a line contains all parts of `wanted`, which are separated by `…`, in their order.
fn shows(line: &str, wanted: &str) -> bool {
    let mut rest = line;
    wanted.split('…').all(|part| match rest.split_once(part.trim()) {
        Some((_, after)) => {
            rest = after;
            true
        }
        None => false,
    })
}
