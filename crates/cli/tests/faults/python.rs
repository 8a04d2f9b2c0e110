//! The Python library (`python`) with a real cluster. `scripts/python-wheel` builds the wheel and installs it
//! in a virtual environment. The tests in `python/tests` run there, while this module breaks the cluster.
//!
//! `MEND_SKIP=python` skips the tests.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use crate::cluster::Cluster;
use crate::requestors::{Film, build_script};

/// The Python interpreter of the environment; `None` if the tests are skipped. Builds the wheel only once.
fn python() -> Option<&'static Path> {
    static BUILT: OnceLock<Option<PathBuf>> = OnceLock::new();
    BUILT.get_or_init(build).as_deref()
}

fn build() -> Option<PathBuf> {
    if testbed::is_skipped("python") {
        return None;
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("python");
    let output = build_script("python-wheel").arg(&folder).arg("dev").output().expect("bash");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(folder.join("venv/bin/python"))
}

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../python")
}

/// Runs the tests of a class of `python/tests/test_mend.py`.
#[track_caller]
fn assert_passes(cluster: &Cluster, film: &Film, class: &str) {
    let Some(python) = python() else { return };
    let mut command = Command::new(python);
    command.args(["-B", "-W", "error", "-m", "unittest", "-v", &format!("test_mend.{class}")]);
    command.current_dir(sources().join("tests")).env("MEND_TEST_CLUSTER", cluster.folder());
    command.env("MEND_TEST_STRIPE", &film.stripe).env("MEND_TEST_CONTENT", cluster.path("film"));
    let output = command.output().expect("python");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !said.contains("Ran 0 tests"), "{said}");
}

/// Runs the example. The cluster folder replaces the argument `@`.
fn read_range(cluster: &Cluster, arguments: &[&str]) -> Option<Output> {
    let mut command = Command::new(python()?);
    command.arg("-B").arg(sources().join("examples/read_range.py"));
    for argument in arguments {
        match *argument {
            "@" => command.arg(cluster.folder()),
            argument => command.arg(argument),
        };
    }
    Some(command.output().expect("python"))
}

#[test]
fn a_python_program_reads_ranges_of_files_and_blocks_that_are_lost() {
    let mut cluster = Cluster::new(9, "rs-7-4", "1MiB");
    let film = Film::put(&cluster, 4_111_111);
    cluster.mend(&["node", "repair-after", "never"]).ok(); // The blocks stay lost however long this takes.
    for block in ["1.1", "1.3", "1.5"] {
        let holder = cluster.holder(block);
        cluster.kill(&holder);
    }
    assert_passes(&cluster, &film, "Degraded");
    let Some(output) = read_range(&cluster, &["@", "film", "1000000", "3000000"]) else { return };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.stdout == film.content[1_000_000..4_000_000], "other bytes");
    let output = read_range(&cluster, &["--block", "3", "@", &film.stripe, "5", "70000"]).expect("python");
    assert!(output.stdout == film.bytes(3, 5, 70_005), "other bytes");
    let holder = cluster.holder("1.0");
    cluster.kill(&holder);
    assert_passes(&cluster, &film, "TooMuchLost");
    cluster.signal("coordinator", "STOP");
    assert_passes(&cluster, &film, "Silent");
    cluster.kill("coordinator");
    assert_passes(&cluster, &film, "Down");
    let output = read_range(&cluster, &["@", "film", "0", "1"]).expect("python");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && said.starts_with("read_range: UNREACHABLE: "), "{said}");
}
