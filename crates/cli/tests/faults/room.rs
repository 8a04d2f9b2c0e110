//! Clusters in which no helper can take a block. Drains and repairs report this, name the excluded helpers
//! with reasons, and continue once a helper can take the block.

use rustix::process::Pid;

use crate::cluster::{Cluster, Said};
use crate::limits::{self, REFUSALS_ARE_ERRORS};

const STRIPES: u64 = 8;

/// Starts a cluster with a file of eight stripes of rs-6-4.
fn cluster(helpers: u16) -> (Cluster, Vec<u8>) {
    let cluster = Cluster::new(helpers, "rs-6-4", "64KiB");
    let content = cluster.put("film", STRIPES as usize * 4 * (64 << 10));
    (cluster, content)
}

fn blocks_on(cluster: &Cluster, name: &str) -> u64 {
    let nodes = cluster.mend(&["node", "list", "--output", "json"]).ok().json();
    let node = nodes.as_array().unwrap().iter().find(|node| node["name"] == name).unwrap();
    node["blocks"].as_u64().unwrap()
}

fn restart_coordinator(cluster: &mut Cluster) {
    cluster.kill("coordinator");
    cluster.start(&["coordinator"]);
    cluster.await_ready();
}

fn add_helper(cluster: &mut Cluster, name: &str) {
    cluster.mend(&["node", "add", name, "--listen", "127.0.0.1:0"]).ok();
    cluster.start(&["helper", name]);
    cluster.await_ready();
}

#[track_caller]
fn assert_says(said: &Said, texts: &[&str]) {
    for text in texts {
        assert!(said.out.contains(text) || said.err.contains(text), "`{text}` is not in {said:#?}");
    }
}

#[test]
fn a_drain_is_not_done_while_a_block_remains_and_goes_on_when_there_is_room() {
    let (mut cluster, content) = cluster(6);
    for how in [&[][..], &["--migrate-only"], &["--rebuild-only"]] {
        let drain = cluster.mend(&[&["node", "drain", "h3"], how].concat());
        assert_eq!((drain.code, blocks_on(&cluster, "h3")), (1, STRIPES), "{drain:#?}");
        let of_each = cluster.block_name("1.0").split_once('.').unwrap().0.to_owned();
        assert_says(&drain, &["failed after", "8 stripes failed", "no helper can take 1 block", &of_each]);
        assert_says(&drain, &["each helper holds a block", "draining h3: 8 blocks left", "mend node add"]);
        assert!(!drain.out.contains("nothing is lost") && !drain.out.contains("done"), "{drain:#?}");
    }
    let put = cluster.mend(&["put", cluster.path("film").to_str().unwrap(), "--name", "more"]);
    put.fails_with(&["being emptied: h3", "mend node drain h3 --stop"]);
    restart_coordinator(&mut cluster);
    cluster.eventually("it is told again", |cluster| {
        cluster.mend(&["status"]).out.contains("the drain continues automatically when a helper has room")
    });
    add_helper(&mut cluster, "h7");
    cluster.eventually("it goes on by itself", |cluster| {
        cluster.mend(&["status"]).out.contains("h3 is empty and safe to remove")
    });
    assert_eq!(blocks_on(&cluster, "h3"), 0);
    assert_says(
        &cluster.mend(&["history"]).ok(),
        &["8 stripes: no helper can take 1 block", "(drain h3) done"],
    );
    cluster.assert_reads("film", &content, &[]);
    cluster.mend(&["scrub"]).ok();
}

#[test]
fn a_drain_to_a_named_helper_without_room_says_how_to_go_on() {
    let (mut cluster, content) = cluster(6);
    let to_h1 = ["node", "drain", "h3", "--requestors", "h1"];
    cluster
        .mend(&to_h1)
        .fails_with(&["8 stripes failed", "allow any helper to take the blocks (mend node drain h3)"]);
    let at_once = cluster.mend(&[&to_h1[..], &["--no-wait"]].concat());
    assert!(at_once.code == 1 && at_once.out.contains("failed"), "{at_once:?}");
    add_helper(&mut cluster, "h7");
    let status = cluster.mend(&["status"]).ok();
    assert_says(
        &status,
        &[
            "safe  all",
            "; no room to empty h3",
            "only h1 may take blocks; each of these helpers holds a block",
        ],
    );
    let check = cluster.mend(&["status", "--check"]);
    assert!(check.code == 1 && check.out.contains("no room to empty h3"), "{check:?}");
    cluster.mend(&["wait", "--for", "safe", "--timeout", "5s"]).ok();
    cluster.mend(&["node", "drain", "h3"]).ok();
    assert_eq!(blocks_on(&cluster, "h3"), 0);
    let history = cluster.mend(&["history"]).ok();
    assert!(!history.out.contains("lost from") && history.out.contains("now on h7 (8)"), "{history:?}");
    cluster.eventually("all is well", |cluster| cluster.mend(&["status", "--check"]).code == 0);
    cluster.assert_reads("film", &content, &[]);
}

#[test]
fn a_repair_that_no_helper_can_take_is_not_promised_and_says_why() {
    let (mut cluster, content) = cluster(7);
    cluster.mend(&["node", "drain", "h7"]).ok();
    let lost = blocks_on(&cluster, "h1");
    cluster.kill("h1");
    cluster.eventually("it is gone", |cluster| cluster.mend(&["status"]).out.starts_with("DEGRADED"));
    let why = ["no helper can take", "being emptied: h7", "mend node drain h7 --stop"];
    let status = cluster.mend(&["status"]).ok();
    assert!(!status.out.contains("repair of h1 starts in"), "{status:#?}");
    assert_says(&status, &why);
    cluster.mend(&["node", "recover", "h1"]).fails_with(&why);
    for verb in ["status", "history"] {
        let reason = format!("{lost} stripes: no helper can take 1 block");
        let said = cluster.mend(&[verb]).ok();
        assert_says(&said, &[&reason, "being emptied: h7"]);
    }
    cluster.mend(&["node", "repair-after", "1s"]).ok();
    std::thread::sleep(std::time::Duration::from_secs(3));
    let history = cluster.mend(&["history"]).ok();
    assert!(!history.out.contains("automatically"), "nothing begins that cannot end well: {history:#?}");
    cluster.mend(&["node", "drain", "h7", "--stop"]).ok();
    cluster.eventually("it is rebuilt once a helper can take it", |cluster| {
        cluster.mend(&["status"]).out.starts_with("safe  all")
    });
    cluster.assert_reads("film", &content, &[]);
}

#[test]
fn a_full_helper_is_told_before_there_is_no_room_to_repair() {
    let Some((cluster, content)) = with_full_disk() else { return };
    let mut cluster = cluster;
    cluster.eventually("it is full", |cluster| cluster.mend(&["status"]).out.contains("full: h1"));
    cluster.eventually("it is told", |cluster| cluster.mend(&["status"]).out.contains("no room to repair"));
    let status = cluster.mend(&["status"]).ok();
    assert!(status.out.starts_with("safe  all"), "{status:#?}");
    assert_says(&status, &["; full: h1", "(full: h1)", "free space on h1", "mend node add"]);
    let check = cluster.mend(&["status", "--check"]);
    assert!(check.code == 1 && check.out.contains("WARNING") && check.out.contains("full: h1"), "{check:?}");
    cluster.kill("h2");
    cluster.eventually("it is gone", |cluster| cluster.mend(&["status"]).out.starts_with("DEGRADED"));
    cluster.mend(&["node", "recover", "h2"]).fails_with(&[
        "no helper can take 1 block",
        "full: h1",
        "free space on h1",
    ]);
    cluster.assert_reads("film", &content, &[]);
    drop(cluster);
}

/// Starts a cluster of seven helpers, in which each stripe is on six helpers. The disk of h1 has room for
/// only one block. Returns `None` without root.
fn with_full_disk() -> Option<(Cluster, Vec<u8>)> {
    let mut cluster = Cluster::init(7, "rs-6-4", "1MiB");
    let blocks = cluster.folder().join("helpers/h1/blocks");
    std::fs::create_dir_all(&blocks).unwrap();
    let mount = ["-t", "tmpfs", "-o", "size=1800k", "tmpfs"];
    let mounted = std::process::Command::new("mount").args(mount).arg(&blocks).status();
    if !mounted.is_ok_and(|status| status.success()) {
        println!("skipped: mounting a tmpfs needs root");
        return None;
    }
    cluster.unmount_at_end(blocks);
    cluster.start(&["coordinator"]);
    (1..=7).for_each(|number| cluster.start(&["helper", &format!("h{number}")]));
    cluster.await_ready();
    // Store stripes until h1 holds a block; it has no room for more.
    let mut content = cluster.put("film", 4 << 20);
    for _ in 0..8 {
        if blocks_on(&cluster, "h1") > 0 {
            break;
        }
        cluster.mend(&["rm", "film"]).ok();
        content = cluster.put("film", 4 << 20);
    }
    cluster.eventually("it is full", |cluster| cluster.mend(&["status"]).out.contains("full: h1"));
    for name in ["more", "most"] {
        cluster.put(name, 4 << 20);
    }
    Some((cluster, content))
}

#[test]
fn a_cap_on_an_unknown_rack_is_rejected() {
    let cluster = Cluster::new(3, "rs-3-2", "64KiB");
    cluster
        .mend(&["caps", "--rack", "nowhere=5MB/s"])
        .fails_with(&["there is no rack `nowhere`; no helper has a rack", "mend node list"]);
    assert!(cluster.mend(&["caps"]).ok().out.contains("not capped"));
    // Removing a cap on a rack that no longer exists is allowed.
    cluster.mend(&["caps", "--rack", "nowhere=none"]).ok();
}

/// The disk refuses every write, as many do after an I/O error. No client has tried to write to it since.
#[test]
fn a_helper_that_cannot_write_is_named_before_it_is_needed() {
    let (mut cluster, content) = cluster(6);
    cluster.kill("h3");
    cluster.start_with(REFUSALS_ARE_ERRORS, &["helper", "h3"]);
    cluster.await_ready();
    cluster.await_helpers(6);
    let limit = |cluster: &Cluster, bytes| {
        limits::limit_files(Pid::from_raw(cluster.pid("h3") as i32), bytes).unwrap();
    };
    limit(&cluster, Some(0));
    cluster.eventually("the status names it", |cluster| {
        cluster.mend(&["status"]).out.lines().next().unwrap_or_default().contains("unable to write: h3")
    });
    assert_says(&cluster.mend(&["status"]), &["h3 gets no new blocks", "File too large"]);
    assert_eq!(cluster.mend(&["status", "--check"]).code, 1);
    let film = cluster.path("film");
    let put = ["put", film.to_str().unwrap(), "--name", "more"];
    cluster.mend(&put).fails_with(&["unable to write: h3", "make the disks of h3 writable"]);
    cluster.assert_reads("film", &content, &[]);
    limit(&cluster, None);
    cluster.eventually("it takes blocks again", |cluster| {
        !cluster.mend(&["status"]).out.contains("unable to write")
    });
    cluster.mend(&put).ok();
}
