//! The outputs of `mend get`: devices, FIFOs, sockets, links, full disks, and leftovers of a killed get.

use std::fs::{self, Permissions};
use std::io::Read;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, chown, lchown, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::cluster::{Cluster, finish};

/// Starts a cluster with a file of several stripes, and creates a folder for outputs.
fn scene() -> (Cluster, Vec<u8>, PathBuf) {
    let cluster = Cluster::new(4, "rs-4-2", "64KiB");
    let content = cluster.put("film", 300_001);
    let folder = cluster.path("out");
    fs::create_dir(&folder).unwrap();
    (cluster, content, folder)
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn names(folder: &Path) -> Vec<String> {
    let name = |entry: std::io::Result<fs::DirEntry>| entry.unwrap().file_name().into_string().unwrap();
    let mut names: Vec<String> = fs::read_dir(folder).unwrap().map(name).collect();
    names.sort();
    names
}

/// Creates a device; prints a message and returns false without root.
fn device(path: &Path, kind: &str, major: &str, minor: &str) -> bool {
    let made = Command::new("mknod").args([text(path), kind, major, minor]).status();
    let usable =
        made.is_ok_and(|status| status.success()) && fs::OpenOptions::new().write(true).open(path).is_ok();
    if !usable {
        println!("skipped: making a device needs root");
    }
    usable
}

/// Runs `command` in a shell in which `$MEND` is the path of `mend`.
fn shell(cluster: &Cluster, command: &str) -> std::process::Output {
    let mut shell = Command::new("sh");
    shell.args(["-c", command]).env("MEND_CLUSTER", cluster.folder());
    shell.env("MEND", env!("CARGO_BIN_EXE_mend")).output().unwrap()
}

#[test]
fn a_full_stderr_changes_no_exit_code() {
    let (cluster, content, folder) = scene();
    let kept = folder.join("kept");
    let code = |command: &str| shell(&cluster, command).status.code();
    assert_eq!(code("$MEND get nothing 2>/dev/full"), Some(1));
    assert_eq!(code("$MEND --output json get nothing -o - 2>/dev/full"), Some(1));
    assert_eq!(code("$MEND --output json no-such-verb >/dev/full"), Some(2));
    assert_eq!(code(&format!("$MEND get film -o {} 2>/dev/full", text(&kept))), Some(0));
    assert_eq!(fs::read(kept).unwrap(), content);
}

/// With a file on stdout, errors in JSON go to stderr, whatever fails and whenever.
#[test]
fn errors_in_json_stay_out_of_a_file_on_stdout() {
    let (mut cluster, content, _) = scene();
    let on_stderr = |cluster: &Cluster, arguments: &[&str], code: i32| {
        let said = cluster.mend(&[&["--output", "json"], arguments].concat());
        let facts: serde_json::Value = serde_json::from_str(&said.err).unwrap_or_default();
        assert!(said.code == code && said.out.is_empty() && facts["exit_code"] == code, "{said:?}");
    };
    for target in ["-", "/dev/stdout"] {
        on_stderr(&cluster, &["get", "nothing", "-o", target], 1);
        on_stderr(&cluster, &["get", "film", "-o", target, "--as", "stranger"], 1);
    }
    let mut slow = cluster.spawn(&["--output", "json", "get", "film", "-o", "-", "--limit-rate", "200kbit"]);
    let mut first = vec![0; 1000];
    slow.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
    testbed::signal_process(slow.id(), "INT");
    let said = finish(slow);
    assert!(first == content[..1000] && said.code == 130, "{said:?}");
    assert!(said.err.contains("exit_code") && !said.out.contains("exit_code"), "{said:?}");
    cluster.kill("coordinator");
    on_stderr(&cluster, &["get", "film", "-o", "-"], 4);
    on_stderr(&cluster, &["catalog", "backup", "/dev/stdout"], 4);
}

#[test]
fn devices_stay_devices_and_full_ones_fail() {
    let (cluster, _, folder) = scene();
    let (null, full) = (folder.join("null"), folder.join("full"));
    if !device(&null, "c", "1", "3") || !device(&full, "c", "1", "7") {
        return;
    }
    let said = cluster.mend(&["get", "film", "-o", text(&null)]).ok();
    assert!(said.out.starts_with("got film"), "{said:?}");
    let said = cluster.mend(&["get", "film", "-o", text(&full)]).fails_with(&["full", "No space left"]);
    assert_eq!(said.code, 1, "{said:?}");
    let link = folder.join("link");
    symlink("full", &link).unwrap();
    cluster.mend(&["get", "film", "-o", text(&link)]).fails_with(&["No space left"]);
    for (path, rdev) in [(&null, 0x103), (&full, 0x107)] {
        let found = fs::symlink_metadata(path).unwrap();
        assert!(found.file_type().is_char_device() && found.rdev() == rdev, "{path:?}");
    }
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(names(&folder), ["full", "link", "null"]);
}

/// The file is created while `get` waits for the coordinator, after it has found that there is none.
#[test]
fn a_get_without_a_target_never_replaces_a_file() {
    let (cluster, content, folder) = scene();
    cluster.signal("coordinator", "STOP");
    let mut get = cluster.command(&["get", "film"]);
    let get = get.current_dir(&folder).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(Duration::from_secs(1));
    fs::write(folder.join("film"), "another").unwrap();
    cluster.signal("coordinator", "CONT");
    finish(get).fails_with(&["film", "already exists"]);
    assert_eq!(fs::read(folder.join("film")).unwrap(), b"another");
    fs::remove_file(folder.join("film")).unwrap();
    finish(cluster.command(&["get", "film"]).current_dir(&folder).spawn().unwrap()).ok();
    assert!(fs::read(folder.join("film")).unwrap() == content);
    assert_eq!(names(&folder), ["film"]);
}

#[test]
fn fifos_and_sockets_are_written_to_in_order() {
    let (cluster, content, folder) = scene();
    let fifo = folder.join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let get = cluster.spawn(&["get", "film", "-o", text(&fifo)]);
    let read = fs::read(&fifo).unwrap();
    finish(get).ok();
    assert!(read == content && fs::symlink_metadata(&fifo).unwrap().file_type().is_fifo());

    let path = folder.join("socket");
    let socket = UnixListener::bind(&path).unwrap();
    let get = cluster.spawn(&["get", "film", "-o", text(&path)]);
    let mut read = Vec::new();
    socket.accept().unwrap().0.read_to_end(&mut read).unwrap();
    finish(get).ok();
    assert!(read == content);
    assert_eq!(names(&folder), ["fifo", "socket"]);
    // The reader closes the FIFO before it has read the whole file.
    let get = cluster.spawn(&["get", "film", "-o", text(&fifo)]);
    drop(fs::File::open(&fifo).unwrap());
    let said = finish(get).fails_with(&["fifo", "Broken pipe"]);
    assert_eq!(said.code, 1, "{said:?}");
}

#[test]
fn own_descriptors_are_written_to_where_they_are() {
    let (cluster, content, folder) = scene();
    let said = shell(&cluster, "\"$MEND\" get film -o /dev/stdout | cat");
    assert!(said.stdout == content, "{}", String::from_utf8_lossy(&said.stderr));
    let link = folder.join("link");
    symlink("/dev/stdout", &link).unwrap();
    let with_head = [b"head\n", &content[..]].concat();
    for (number, output) in ["/dev/stdout", "/proc/self/fd/1", "/dev/fd/7", "/proc/self/fd/7", text(&link)]
        .into_iter()
        .enumerate()
    {
        let file = folder.join(number.to_string());
        let redirection = if output.ends_with('7') { "7>&1 >/dev/null" } else { "" };
        let command =
            format!("{{ echo head; \"$MEND\" get film -o {output} {redirection}; }} > {}", text(&file));
        let said = shell(&cluster, &command);
        assert!(said.status.success(), "{output}: {}", String::from_utf8_lossy(&said.stderr));
        assert!(fs::read(&file).unwrap() == with_head, "{output}");
    }
    // The program has not inherited a descriptor 9.
    let said = shell(&cluster, "\"$MEND\" get film -o /dev/fd/9");
    assert_eq!(said.status.code(), Some(1));
    assert_eq!(names(&folder), ["0", "1", "2", "3", "4", "link"]);
}

#[test]
fn links_are_followed_and_kept() {
    let (cluster, content, folder) = scene();
    let get = |name: &str| cluster.mend(&["get", "film", "-o", text(&folder.join(name))]);
    fs::create_dir(folder.join("deep")).unwrap();
    fs::write(folder.join("deep/old"), "old").unwrap();
    symlink("deep/old", folder.join("first")).unwrap();
    symlink("first", folder.join("second")).unwrap();
    symlink("deep/new", folder.join("dangling")).unwrap();
    symlink("deep", folder.join("to-folder")).unwrap();
    symlink("no/such/folder", folder.join("nowhere")).unwrap();
    symlink("loop-b", folder.join("loop-a")).unwrap();
    symlink("loop-a", folder.join("loop-b")).unwrap();
    get("second").ok();
    get("dangling").ok();
    for (link, target) in
        [("first", "deep/old"), ("second", "first"), ("dangling", "deep/new"), ("loop-a", "loop-b")]
    {
        assert_eq!(fs::read_link(folder.join(link)).unwrap(), Path::new(target));
    }
    assert!(fs::read(folder.join("deep/old")).unwrap() == content);
    assert!(fs::read(folder.join("deep/new")).unwrap() == content);
    assert_eq!(names(&folder.join("deep")), ["new", "old"]);
    get("loop-a").fails_with(&["loop-a", "symbolic links"]);
    get("to-folder").fails_with(&["to-folder", "is a directory"]);
    get("deep/").fails_with(&["deep/", "is a directory"]);
    get("not-there/").fails_with(&["not-there/", "is a directory"]);
    get("nowhere").fails_with(&["no/such"]);
    get("to-folder/new").ok();
    assert_eq!(names(&folder.join("deep")), ["new", "old"]);
}

/// In a shared folder such as `/tmp`, another user may have placed the link. If root followed it, that user
/// could choose which file is replaced.
#[test]
fn a_strangers_link_in_a_shared_folder_is_not_followed() {
    let (cluster, content, folder) = scene();
    let (victim, link) = (cluster.path("victim"), folder.join("link"));
    fs::write(&victim, "old").unwrap();
    symlink(&victim, &link).unwrap();
    fs::set_permissions(&folder, Permissions::from_mode(0o1777)).unwrap();
    if lchown(&link, Some(12_345), Some(12_345)).is_err() {
        println!("skipped: it needs root to make a stranger's link");
        return;
    }
    cluster.mend(&["get", "film", "-o", text(&link)]).fails_with(&["link", "ermission denied"]);
    assert_eq!(fs::read(&victim).unwrap(), b"old");
    lchown(&link, Some(0), Some(0)).unwrap();
    cluster.mend(&["get", "film", "-o", text(&link)]).ok();
    assert!(fs::read(&victim).unwrap() == content);
}

#[test]
fn mode_and_owner_are_kept_and_other_names_keep_the_old_bytes() {
    let (cluster, content, folder) = scene();
    let (file, other) = (folder.join("file"), folder.join("other-name"));
    fs::write(&file, "old").unwrap();
    fs::hard_link(&file, &other).unwrap();
    fs::set_permissions(&file, Permissions::from_mode(0o1640)).unwrap();
    let owner = if chown(&file, Some(12_345), Some(12_346)).is_ok() { Some((12_345, 12_346)) } else { None };
    cluster.mend(&["get", "film", "-o", text(&file)]).ok();
    let found = fs::metadata(&file).unwrap();
    assert_eq!(found.mode() & 0o7777, 0o1640);
    assert!(owner.is_none_or(|owner| owner == (found.uid(), found.gid())));
    assert!(fs::read(&file).unwrap() == content);
    assert_eq!(fs::read(&other).unwrap(), b"old");
    // The mode of a new file is limited only by the umask.
    let new = folder.join("new");
    let said = shell(&cluster, &format!("umask 027; \"$MEND\" get film -o {}", text(&new)));
    assert!(said.status.success());
    assert_eq!(fs::metadata(&new).unwrap().mode() & 0o7777, 0o640);
}

#[test]
fn a_full_disk_keeps_the_old_file() {
    let (mut cluster, content, folder) = scene();
    let mounted =
        Command::new("mount").args(["-t", "tmpfs", "-o", "size=256k", "tmpfs"]).arg(&folder).status();
    if !mounted.is_ok_and(|status| status.success()) {
        println!("skipped: mounting a tmpfs needs root");
        return;
    }
    cluster.unmount_at_end(folder.clone());
    let file = folder.join("film");
    fs::write(&file, "old").unwrap();
    let said = cluster.mend(&["get", "film", "-o", text(&file)]).fails_with(&["out/film", "No space left"]);
    assert_eq!(said.code, 1, "{said:?}");
    assert_eq!(fs::read(&file).unwrap(), b"old");
    assert_eq!(names(&folder), ["film"]);
    let part = ["get", "film", "-o", text(&file), "--range", "0+100000"];
    cluster.mend(&part).ok();
    assert!(fs::read(&file).unwrap() == content[..100_000]);
}

#[test]
fn the_next_get_removes_leftovers_of_a_killed_get_but_no_files_in_use() {
    let (cluster, content, folder) = scene();
    cluster.put("nothing", 0);
    let drafts = || names(&folder).into_iter().filter(|name| name.starts_with('.')).collect::<Vec<_>>();
    let (killed, running, third) = (folder.join("killed"), folder.join("running"), folder.join("third"));
    let alike = ".mend-get-a-note-of-mine";
    ["h1", "h2", "h3", "h4"].iter().for_each(|helper| cluster.signal(helper, "STOP"));
    let mut get = cluster.spawn(&["get", "film", "-o", text(&killed)]);
    cluster.eventually("the get has begun", |_| drafts().len() == 1);
    get.kill().unwrap();
    get.wait().unwrap();
    let left = drafts();
    assert_eq!(left.len(), 1, "a killed get cannot tidy up");
    fs::write(folder.join(alike), "mine").unwrap();

    let get = cluster.spawn(&["get", "film", "-o", text(&running)]);
    let others = || drafts().into_iter().filter(|name| name != alike).collect::<Vec<_>>();
    cluster.eventually("the leftover is gone", |_| others().len() == 1 && others() != left);
    let in_use = others();
    cluster.mend(&["get", "nothing", "-o", text(&third)]).ok();
    assert_eq!(others(), in_use);
    ["h1", "h2", "h3", "h4"].iter().for_each(|helper| cluster.signal(helper, "CONT"));
    finish(get).ok();
    assert!(fs::read(&running).unwrap() == content);
    assert_eq!(names(&folder), [alike, "running", "third"]);
}

#[test]
fn unverified_reads_are_reported_next_to_the_data() {
    let (mut cluster, content, folder) = scene();
    let get = |cluster: &Cluster, target: &str, code: i32| {
        let read = shell(cluster, &format!("$MEND get film --verify -o {target}"));
        let said = String::from_utf8_lossy(&read.stderr).into_owned();
        assert_eq!(read.status.code(), Some(code), "{said}");
        (read.stdout, said)
    };
    assert_eq!(get(&cluster, "-", 0), (content.clone(), String::new()));
    // With two of four blocks lost, no spare block is left to verify against.
    for index in [0, 1] {
        let holder = cluster.holder(&format!("1.{index}"));
        cluster.kill(&holder);
    }
    let copy = folder.join("copy");
    for target in ["-", "/dev/stdout", text(&copy)] {
        let (out, said) = get(&cluster, target, 1);
        let is_stdout = target != text(&copy);
        assert_eq!(said.starts_with("note: not verified (no spare block): "), is_stdout, "{target}: {said}");
        assert!((out == content) == is_stdout, "{target}");
        assert!(
            is_stdout || String::from_utf8_lossy(&out).contains("not verified (no spare block)"),
            "{target}"
        );
    }
    assert!(fs::read(&copy).unwrap() == content);
}
