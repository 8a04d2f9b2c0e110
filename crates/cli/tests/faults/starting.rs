//! An operator's first steps: using a cluster that is just starting or whose coordinator is stopped, and
//! files of other users.

use std::fs::OpenOptions;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::fs::OFlags;

use crate::cluster::{Cluster, finish};

/// Does what the commands of the README do if they are all pasted at once.
#[test]
fn a_put_right_after_everything_was_started_waits_for_the_cluster() {
    for _ in 0..3 {
        let mut cluster = Cluster::init(6, "rs-6-4", "64KiB");
        let content = crate::cluster::noise(300_000);
        std::fs::write(cluster.path("film"), &content).unwrap();
        // The put starts before the coordinator listens and before any helper has registered.
        let put = cluster.spawn(&["put", cluster.path("film").to_str().unwrap(), "--name", "film"]);
        cluster.start(&["coordinator"]);
        for helper in 1..=6 {
            cluster.start(&["helper", &format!("h{helper}")]);
        }
        finish(put).ok();
        cluster.assert_reads("film", &content, &[]);
    }
}

/// A file that cannot be read stands for a disk that hangs.
#[test]
fn a_coordinator_that_cannot_finish_its_start_stops_on_a_signal() {
    let mut cluster = Cluster::init(3, "rs-3-2", "64KiB");
    let certificate = cluster.folder().join("coordinator/cert.pem");
    for _ in 0..3 {
        // Each round has a FIFO of its own. A process that another test forks may keep the writer of a former round open
        // for a moment.
        std::fs::remove_file(&certificate).unwrap();
        assert!(Command::new("mkfifo").arg(&certificate).status().unwrap().success());
        cluster.start(&["coordinator"]);
        let mut writer = None;
        cluster.eventually("it reads its certificate", |_| {
            // Fails while no process has opened the FIFO for reading.
            let flags = OFlags::NONBLOCK.bits() as i32;
            writer = OpenOptions::new().write(true).custom_flags(flags).open(&certificate).ok();
            writer.is_some()
        });
        cluster.signal("coordinator", "TERM");
        let sent = Instant::now();
        while cluster.runs("coordinator") {
            assert!(sent.elapsed() < Duration::from_secs(10), "{}", cluster.log("coordinator"));
            std::thread::sleep(Duration::from_millis(50));
        }
        let log = cluster.log("coordinator");
        assert!(log.contains("stopping"), "the signal reached the program: {log}");
    }
}

#[test]
fn a_check_of_a_coordinator_that_is_down_is_one_line_on_stdout() {
    let cluster = Cluster::init(3, "rs-3-2", "64KiB");
    let nowhere = cluster.path("nowhere");
    for folder in [cluster.folder(), nowhere] {
        let said = cluster.mend(&["status", "--check", "--cluster", folder.to_str().unwrap()]);
        assert_eq!(said.code, 3, "{said:?}");
        assert!(said.out.starts_with("MEND UNKNOWN - ") && said.out.lines().count() == 1, "{said:?}");
    }
}

#[test]
fn a_certificate_of_another_client_is_used_by_name() {
    let cluster = Cluster::new(3, "rs-3-2", "64KiB");
    cluster.mend(&["--as", "ann", "status"]).fails_with(&["clients/ann"]);
    let issued = cluster.mend(&["issue", "client", "ann"]).ok();
    assert!(issued.out.contains("--as ann"), "{issued:?}");
    std::fs::rename(cluster.folder().join("client"), cluster.folder().join("client-of-admin")).unwrap();
    cluster.mend(&["status"]).fails_with(&["client/cert.pem"]);
    cluster.mend(&["--as", "ann", "status"]).ok();
}

/// Root may read everything, so the test runs `mend` as another user.
#[test]
fn a_folder_that_may_not_be_read_is_not_called_missing() {
    let cluster = Cluster::init(3, "rs-3-2", "64KiB");
    let open = |folder: &std::path::Path, mode| {
        std::fs::set_permissions(folder, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    open(cluster.folder().parent().unwrap(), 0o755);
    open(&cluster.folder(), 0o755);
    open(&cluster.folder().join("ca"), 0o700);
    let Some(said) = cluster.mend_as_nobody(&["status"]) else { return };
    let said = said.fails_with(&["ca.pem", "permission denied"]);
    assert!(!said.err.contains("missing"), "{said:?}");
}

#[test]
fn helps_name_verbs() {
    let cluster = Cluster::new(3, "rs-3-2", "64KiB");
    for verb in ["pause", "cancel", "watch"] {
        let said = cluster.mend(&[verb, "77"]);
        assert!(said.err.contains("mend ") && !said.err.contains("/v1/"), "{said:?}");
    }
}
