//! The C library (`crates/capi`) with a real cluster: C programs read the stored bytes despite failures, and
//! report errors. `scripts/c-library` installs the library as for users, and the system's C compiler compiles
//! the programs.
//!
//! `MEND_SKIP=c` skips the tests.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};
use std::sync::OnceLock;

use crate::cluster::Cluster;
use crate::requestors::{Film, build_script};

/// The folder of the compiled programs; `None` if the tests are skipped. Compiles them only once.
fn programs() -> Option<&'static Path> {
    static BUILT: OnceLock<Option<PathBuf>> = OnceLock::new();
    BUILT.get_or_init(build).as_deref()
}

fn build() -> Option<PathBuf> {
    if testbed::is_skipped("c") {
        return None;
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("c");
    run(build_script("c-library").arg(&folder).arg("dev"));
    let (include, library) = (folder.join("include"), folder.join("lib"));
    let capi = root.join("crates/capi");
    let compile = |program: &str, source: &str, more: &[&OsStr]| {
        // Other test processes may be using the program, so it is replaced by a rename.
        let draft = folder.join(format!("{program}.{}", std::process::id()));
        let mut command = Command::new("cc");
        command.args([
            "-std=c11",
            "-O1",
            "-g",
            "-Wall",
            "-Wextra",
            "-Wpedantic",
            "-Wshadow",
            "-Werror",
            "-I",
        ]);
        run(command.arg(&include).arg(capi.join(source)).args(more).arg("-o").arg(&draft));
        std::fs::rename(&draft, folder.join(program)).expect("renamed");
    };
    let run_path = format!("-Wl,-rpath,{}", library.display());
    let shared =
        ["-L".as_ref(), library.as_os_str(), "-lmend".as_ref(), "-pthread".as_ref(), run_path.as_ref()];
    compile("read_range", "examples/read_range.c", &shared);
    compile("console", "tests/console.c", &shared);
    compile("edges", "tests/edges.c", &shared);
    let archive = library.join("libmend.a");
    let fixed = [archive.as_os_str(), "-lpthread".as_ref(), "-ldl".as_ref(), "-lm".as_ref()];
    compile("read_range-static", "examples/read_range.c", &fixed);
    Some(folder)
}

#[track_caller]
fn run(command: &mut Command) {
    let output = command.output().expect("the command starts");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Runs `read_range`. The cluster folder replaces the argument `@`.
fn read_range(cluster: &Cluster, program: &str, arguments: &str) -> Option<Output> {
    let mut command = Command::new(programs()?.join(program));
    for argument in arguments.split_whitespace() {
        match argument {
            "@" => command.arg(cluster.folder()),
            _ => command.arg(argument),
        };
    }
    Some(command.output().expect("it runs"))
}

#[track_caller]
fn assert_reads(cluster: &Cluster, program: &str, arguments: &str, expected: &[u8]) {
    let Some(output) = read_range(cluster, program, arguments) else { return };
    assert!(output.status.success(), "{arguments}: {}", String::from_utf8_lossy(&output.stderr));
    assert!(output.stdout == expected, "{arguments}: other bytes");
}

#[track_caller]
fn fails_with(cluster: &Cluster, arguments: &str, code: i32, texts: &[&str]) {
    let Some(output) = read_range(cluster, "read_range", arguments) else { return };
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{arguments}: {said}");
    assert!(output.stdout.is_empty(), "{arguments}: bytes in spite of an error");
    assert!(texts.iter().all(|text| said.contains(text)), "{arguments}: {said}");
}

#[test]
fn a_c_program_reads_ranges_of_files_and_blocks_that_are_lost() {
    let mut cluster = Cluster::new(9, "rs-7-4", "1MiB");
    let film = Film::put(&cluster, 4_111_111);
    let (stripe, size) = (&film.stripe, film.block);
    let parity = read_range(&cluster, "read_range", &format!("-b 5 @ {stripe} 0 {size}"));
    for block in ["1.1", "1.3", "1.5"] {
        let holder = cluster.holder(block);
        cluster.kill(&holder);
    }
    let bytes = film.content.len();
    for (from, to) in [(0, bytes), (0, 1), (bytes - 1, bytes), (size - 3, size + 3), (1_234_567, 3_999_999)] {
        let range = format!("@ film {from} {}", to - from);
        assert_reads(&cluster, "read_range", &range, &film.content[from..to]);
    }
    assert_reads(
        &cluster,
        "read_range-static",
        "-c admin @ film 1000000 3000000",
        &film.content[1_000_000..4_000_000],
    );
    assert_reads(&cluster, "read_range", &format!("@ film {bytes} 0"), &[]);
    for (from, to) in film.ranges() {
        let range = format!("-b 3 @ {stripe} {from} {}", to - from);
        assert_reads(&cluster, "read_range", &range, &film.bytes(3, from, to));
    }
    if let Some(parity) = parity {
        assert_eq!(parity.stdout.len(), size, "{}", String::from_utf8_lossy(&parity.stderr));
        assert_reads(&cluster, "read_range", &format!("-b 5 @ {stripe} 0 {size}"), &parity.stdout);
    }

    fails_with(&cluster, "", 2, &["usage: read_range"]);
    fails_with(&cluster, "@ film 0 -1", 2, &["usage: read_range"]);
    fails_with(&cluster, "@ movie 0 1", 1, &["NOT_FOUND", "movie"]);
    fails_with(&cluster, &format!("@ film {bytes} 1"), 1, &["OUT_OF_RANGE", &bytes.to_string()]);
    fails_with(&cluster, &format!("-b 7 @ {stripe} 0 1"), 1, &["NOT_FOUND", "has no block 7"]);
    fails_with(&cluster, &format!("-b 3 @ {stripe} 0 {}", size + 1), 1, &["OUT_OF_RANGE", &size.to_string()]);
    fails_with(&cluster, "/nowhere film 0 1", 1, &["SETUP", "/nowhere"]);
    fails_with(&cluster, "-c bob @ film 0 1", 1, &["SETUP", "clients/bob"]);
    let other = Cluster::init(7, "rs-7-4", "1MiB");
    std::fs::copy(cluster.folder().join("mend.toml"), other.folder().join("mend.toml")).expect("copied");
    fails_with(&other, "@ film 0 1", 1, &["UNTRUSTED", "certificate"]);

    let holder = cluster.holder("1.0");
    cluster.kill(&holder);
    fails_with(&cluster, "@ film 0 1", 1, &["TOO_MUCH_LOST", "film"]);
    fails_with(&cluster, &format!("-b 3 @ {stripe} 0 1"), 1, &["TOO_MUCH_LOST", stripe]);
}

#[test]
fn a_c_program_reads_blocks_of_codes_with_sub_blocks() {
    let mut cluster = Cluster::new(7, "hitchhiker-xor-6-4", "1MiB");
    let film = Film::put(&cluster, 4_111_111);
    let holder = cluster.holder("1.2");
    cluster.kill(&holder);
    for (from, to) in film.ranges() {
        let range = format!("-b 2 @ {} {from} {}", film.stripe, to - from);
        assert_reads(&cluster, "read_range", &range, &film.bytes(2, from, to));
    }
}

/// The program `console`.
struct Console {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Console {
    fn start(cluster: &Cluster, file: &str) -> Option<Self> {
        let mut command = Command::new(programs()?.join("console"));
        command.arg(cluster.folder()).arg(file).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().expect("it starts");
        let (input, output) = (process.stdin.take().expect("piped"), process.stdout.take().expect("piped"));
        Some(Self { process, input, output: BufReader::new(output) })
    }

    fn ask(&mut self, offset: usize, bytes: usize) -> Result<Vec<u8>, String> {
        writeln!(self.input, "{offset} {bytes}").expect("it listens");
        let mut head = String::new();
        self.output.read_line(&mut head).expect("it answers");
        if head != "ok\n" {
            return Err(head);
        }
        let mut said = vec![0; bytes];
        self.output.read_exact(&mut said).expect("it answers");
        Ok(said)
    }

    #[track_caller]
    fn fails_with(&mut self, texts: &[&str]) {
        let said = self.ask(0, 1).expect_err("it should fail");
        assert!(texts.iter().all(|text| said.contains(text)), "{said:?}");
    }
}

impl Drop for Console {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn a_c_program_survives_a_coordinator_that_is_gone_and_a_file_that_is_replaced() {
    let mut cluster = Cluster::new(8, "rs-7-4", "1MiB");
    let film = Film::put(&cluster, 4_111_111);
    let Some(mut console) = Console::start(&cluster, "film") else { return };
    let holder = cluster.holder("1.1");
    cluster.kill(&holder);
    assert!(console.ask(1_000_000, 2_000_000).expect("bytes") == film.content[1_000_000..3_000_000]);
    cluster.kill("coordinator");
    console.fails_with(&["UNREACHABLE", "mend coordinator"]);
    fails_with(&cluster, "@ film 0 1", 1, &["UNREACHABLE", "mend coordinator"]);
    cluster.start(&["coordinator"]);
    cluster.await_ready();
    assert!(console.ask(0, 4_111_111).expect("bytes") == film.content);
    cluster.signal("coordinator", "STOP");
    fails_with(&cluster, "-t 300 @ film 0 1", 1, &["TIMED_OUT", "time limit"]);
    cluster.signal("coordinator", "CONT");

    // The open reader keeps its version of the file, until a restarted coordinator no longer has it.
    let path = cluster.path("film");
    std::fs::write(&path, "a shorter film").expect("written");
    cluster.mend(&["put", path.to_str().expect("UTF-8"), "--name", "film", "--replace"]).ok();
    assert!(console.ask(3_000_000, 1_000_000).expect("bytes") == film.content[3_000_000..4_000_000]);
    cluster.kill("coordinator");
    cluster.start(&["coordinator"]);
    cluster.await_ready();
    console.fails_with(&["REPLACED", "film", "open the file again"]);
}

#[test]
fn a_c_program_may_use_the_library_in_unusual_ways() {
    let mut cluster = Cluster::new(8, "rs-7-4", "1MiB");
    let Some(programs) = programs() else { return };
    cluster.put("film", 4_111_111);
    let holder = cluster.holder("1.1");
    cluster.kill(&holder);
    run(Command::new(programs.join("edges")).arg(cluster.folder()).arg("film").arg(cluster.path("film")));
}
