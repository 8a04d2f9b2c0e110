//! Coordinators that hang, are busy, or reset connections; helpers that cannot answer.

use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use cluster::Role;
use repair::NodeId;
use repair::wire::control::{self, FromNode, ToNode};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::TlsAcceptor;

use crate::cluster::{Cluster, LIMIT, finish};

/// Mend promises that a verb reports a hanging coordinator within 5 s, and that helpers notice it within
/// 10 s. The tests allow four times as long, because the machine may be busy.
const TOLD_LIMIT: Duration = Duration::from_secs(4 * 5);
const NOTICED_LIMIT: Duration = Duration::from_secs(4 * 10);

#[test]
fn helpers_notice_a_coordinator_that_stopped_and_come_back_to_it() {
    let cluster = Cluster::new(4, "rs-4-2", "64KiB");
    let content = cluster.put("film", 300_000);
    cluster.signal("coordinator", "STOP");
    let stopped = Instant::now();
    cluster.eventually("all helpers notice", |cluster| {
        (1..=4).all(|helper| {
            cluster.log(&format!("h{helper}")).contains("lost the connection to the coordinator")
        })
    });
    assert!(stopped.elapsed() < NOTICED_LIMIT, "{:?}", stopped.elapsed());
    // The helpers keep trying to reconnect and log the reason only once.
    let waits = |cluster: &Cluster| cluster.log("h1").matches("has not answered").count();
    cluster.eventually("a helper says what it waits for", |cluster| waits(cluster) > 0);
    std::thread::sleep(Duration::from_secs(10));
    assert_eq!(waits(&cluster), 1, "{}", cluster.log("h1"));
    cluster.signal("coordinator", "CONT");
    let back = Instant::now();
    cluster.eventually("the helpers are back", |cluster| cluster.mend(&["status"]).out.starts_with("safe"));
    assert!(back.elapsed() < TOLD_LIMIT, "{:?}", back.elapsed());
    cluster.assert_reads("film", &content, &[]);
}

#[test]
fn every_verb_says_that_the_coordinator_does_not_answer() {
    let cluster = Cluster::new(4, "rs-4-2", "64KiB");
    cluster.put("film", 300_000);
    let film = cluster.path("film");
    cluster.signal("coordinator", "STOP");
    let started = Instant::now();
    let verbs = [
        &["status"][..],
        &["node", "list"],
        &["ls"],
        &["put", film.to_str().unwrap(), "--name", "more"],
        &["get", "film", "-o", "-"],
        &["rm", "film"],
        &["stat", "film"],
        &["stat", "1.0"],
        &["repair", "1.0"],
        &["repair", "--all"],
        &["cancel", "1"],
        &["pause", "1"],
        &["resume", "1"],
        &["watch"],
        &["caps", "--none"],
        &["node", "recover", "h1"],
        &["node", "drain", "h1"],
        &["plan", "1.0"],
        &["compare", "1.0"],
        &["scrub"],
    ];
    let running: Vec<_> = verbs.iter().map(|verb| cluster.spawn(verb)).collect();
    for child in running {
        let said = finish(child).fails_with(&["cannot reach the coordinator", "has not answered"]);
        assert_eq!(said.code, 4, "{said:?}");
    }
    assert!(started.elapsed() < TOLD_LIMIT, "{:?}", started.elapsed());
    cluster.signal("coordinator", "CONT");
    cluster.eventually("it answers again", |cluster| cluster.mend(&["ls"]).out.contains("film"));
}

#[test]
fn a_get_and_a_put_end_when_the_coordinator_falls_silent() {
    let cluster = Cluster::new(6, "rs-6-4", "1MiB");
    cluster.put("film", 8 << 20);
    let film = cluster.path("film");
    // Both the get and the put need this helper, which the coordinator declares lost only after five seconds.
    let needed = cluster.holder("1.0");
    cluster.signal(&needed, "STOP");
    let get = cluster.spawn(&["get", "film", "-o", cluster.path("copy").to_str().unwrap()]);
    let put = cluster.spawn(&["put", film.to_str().unwrap(), "--name", "more"]);
    std::thread::sleep(Duration::from_millis(1500));
    cluster.signal("coordinator", "STOP");
    for child in [get, put] {
        let said = finish(child).fails_with(&["coordinator"]);
        assert_eq!(said.code, 4, "{said:?}");
    }
    assert!(!cluster.path("copy").exists());
    cluster.signal("coordinator", "CONT");
    cluster.signal(&needed, "CONT");
}

/// Imitates a coordinator that completes the handshake, reads the hello, sends pings for a while as if it
/// were busy, and then answers.
fn play_busy_coordinator(cluster: &Cluster) {
    let opened = ::cluster::Cluster::open(&cluster.folder()).unwrap();
    let tls = TlsAcceptor::from(opened.identity(&Role::Coordinator).unwrap().server_config());
    let listener = TcpListener::bind(("127.0.0.1", cluster.base_port() + 1)).unwrap();
    listener.set_nonblocking(true).unwrap();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            while let Ok((socket, _)) = listener.accept().await {
                let Ok(mut stream) = tls.accept(socket).await else { continue };
                let mut length = [0; 4];
                stream.read_exact(&mut length).await.unwrap();
                let mut hello = vec![0; u32::from_be_bytes(length) as usize];
                stream.read_exact(&mut hello).await.unwrap();
                assert!(matches!(control::decode(&hello).unwrap(), FromNode::RegisterHelper { .. }));
                for _ in 0..8 {
                    stream.write_all(&control::encode(&ToNode::Ping)).await.unwrap();
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
                stream.write_all(&control::encode(&ToNode::Registered { node: NodeId(1) })).await.unwrap();
                tokio::time::sleep(Duration::from_secs(3)).await;
            }
        });
    });
}

#[test]
fn a_helper_waits_for_a_coordinator_that_is_busy() {
    let mut cluster = Cluster::init(4, "rs-4-2", "64KiB");
    play_busy_coordinator(&cluster);
    cluster.start(&["helper", "h1"]);
    cluster.await_ready();
    assert!(cluster.runs("h1"));
}

/// Accepts the next connection. If the helper never connects, the test fails instead of hanging.
fn accept(listener: &TcpListener) -> TcpStream {
    listener.set_nonblocking(true).unwrap();
    let started = Instant::now();
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false).unwrap();
                return stream;
            }
            Err(_) => assert!(started.elapsed() < LIMIT, "nobody tries again"),
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_helper_whose_handshakes_are_reset_tries_again_and_says_so_once() {
    let mut cluster = Cluster::init(4, "rs-4-2", "64KiB");
    let listener = TcpListener::bind(("127.0.0.1", cluster.base_port() + 1)).unwrap();
    cluster.start(&["helper", "h1"]);
    for taken in [0, 5, 50] {
        for _ in 0..2 {
            let mut stream = accept(&listener);
            stream.read_exact(&mut vec![0; taken]).unwrap();
            std::thread::sleep(Duration::from_millis(50));
            // Closing a socket with unread bytes resets the connection.
        }
    }
    assert!(cluster.runs("h1"), "{}", cluster.log("h1"));
    drop(listener);
    cluster.start(&["coordinator"]);
    for helper in ["h2", "h3", "h4"] {
        cluster.start(&["helper", helper]);
    }
    cluster.await_ready();
    let log = cluster.log("h1");
    assert!((1..=4).contains(&log.matches("trying again").count()), "{log}");
}

#[test]
fn a_file_in_place_of_a_folder_of_blocks_does_not_hold_up_a_scrub() {
    let cluster = Cluster::new(4, "rs-4-2", "64KiB");
    cluster.put("film", 300_000);
    let blocks = cluster.folder().join("helpers/h1/blocks");
    let free = (0..256).map(|shard| blocks.join(format!("{shard:02x}"))).find(|path| !path.exists());
    std::fs::write(free.as_ref().unwrap(), "").unwrap();
    let scrub = cluster.mend(&["scrub"]).ok();
    assert!(scrub.out.contains("all checksums match"), "{scrub:?}");
    let (log, name) = (cluster.log("h1"), free.unwrap().display().to_string());
    assert!(log.lines().any(|line| line.contains("WARN") && line.contains(&name)), "{log}");
}

#[test]
fn a_helper_whose_block_folder_is_gone_is_down_until_it_is_back() {
    let cluster = Cluster::new(6, "rs-6-4", "64KiB");
    let content = cluster.put("film", 300_000);
    let (blocks, aside) = (cluster.folder().join("helpers/h2/blocks"), cluster.path("aside"));
    std::fs::rename(&blocks, &aside).unwrap();
    cluster.eventually("it is down", |cluster| {
        let status = cluster.mend(&["status"]).out;
        status.contains("down: h2")
            && status.contains("can lose only 1 more block")
            && !status.contains("full: h2")
    });
    assert!(cluster.log("h2").contains("cannot use the folder of blocks"), "{}", cluster.log("h2"));
    cluster.assert_reads("film", &content, &[]);
    // The empty folder that remains when a disk is unmounted is no better than none.
    std::fs::create_dir(&blocks).unwrap();
    std::thread::sleep(Duration::from_secs(6));
    let status = cluster.mend(&["status"]).out;
    assert!(status.contains("down: h2"), "{status}");
    std::fs::remove_dir(&blocks).unwrap();
    std::fs::rename(&aside, &blocks).unwrap();
    cluster.eventually("it is back", |cluster| cluster.mend(&["status"]).out.starts_with("safe  all"));
    assert_eq!(cluster.block_files().len(), 12, "nothing was rebuilt");
}

#[test]
fn a_helper_that_cannot_open_an_exchanged_folder_stops_on_a_signal() {
    let mut cluster = Cluster::new(3, "rs-3-2", "64KiB");
    let blocks = cluster.folder().join("helpers/h2/blocks");
    std::fs::rename(&blocks, cluster.path("aside")).unwrap();
    std::fs::create_dir(&blocks).unwrap();
    // Another process uses the new folder.
    let lock = std::fs::File::create(blocks.join(".lock")).unwrap();
    lock.lock().unwrap();
    cluster.eventually("it tries", |cluster| cluster.log("h2").contains("cannot open the folder of blocks"));
    cluster.signal("h2", "TERM");
    let sent = Instant::now();
    while cluster.runs("h2") {
        assert!(sent.elapsed() < Duration::from_secs(10), "{}", cluster.log("h2"));
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A helper starts before its disk is mounted. Blocks that are written into the empty folder would disappear
/// once the disk is mounted.
#[test]
fn a_helper_that_returns_without_its_blocks_receives_no_blocks_of_puts() {
    let mut cluster = Cluster::new(5, "rs-4-2", "64KiB");
    let helpers = cluster.folder().join("helpers");
    let content = cluster.put("film", 300_000);
    let victim = cluster.holder("1.0");
    let (blocks, aside) = (helpers.join(&victim).join("blocks"), cluster.path("aside"));
    cluster.kill(&victim);
    std::fs::rename(&blocks, &aside).unwrap();
    std::fs::create_dir(&blocks).unwrap();
    cluster.start(&["helper", &victim]);
    cluster.await_ready();
    let told = format!("{victim} returned without most of its blocks");
    cluster.eventually("it is told", |cluster| cluster.mend(&["status"]).out.contains(&told));
    let more = cluster.put("more", 300_000);
    let layout = cluster.mend(&["stat", "more"]).ok().out;
    assert!(!layout.contains(&victim), "{layout}");
    let film = cluster.path("film");
    let film = film.to_str().unwrap();
    let refused = cluster.mend(&["put", film, "--name", "wide", "--code", "rs-5-3"]);
    refused.fails_with(&[
        &format!("returned without most of its blocks: {victim}"),
        &format!("mount the disk of {victim}"),
    ]);
    // The running helper opens the disk once it is mounted.
    std::fs::rename(&blocks, cluster.path("empty")).unwrap();
    std::fs::rename(&aside, &blocks).unwrap();
    cluster.eventually("it is whole", |cluster| cluster.mend(&["status"]).out.starts_with("safe  all"));
    cluster.assert_reads("film", &content, &[]);
    cluster.assert_reads("more", &more, &[]);
    cluster.mend(&["put", film, "--name", "wide", "--code", "rs-5-3"]).ok();
}

/// Opening a pipe waits for its writer.
#[test]
fn a_pipe_in_place_of_a_block_does_not_hang_its_helper() {
    let cluster = Cluster::new(5, "rs-4-2", "64KiB");
    let content = cluster.put("film", 300_000);
    let block = cluster.block_file("1.0");
    std::fs::remove_file(&block).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(&block).status().unwrap().success());
    cluster.assert_reads("film", &content, &[]);
    cluster.mend(&["scrub"]).fails_with(&[&cluster.block_name("1.0"), "not a regular file"]);
    cluster.mend(&["repair", "--all"]).ok();
    cluster.mend(&["scrub"]).ok();
    cluster.assert_reads("film", &content, &[]);
}

#[test]
fn a_block_that_cannot_be_removed_is_asked_for_again() {
    let cluster = Cluster::new(4, "rs-4-2", "64KiB");
    cluster.put("film", 100_000);
    let file = cluster.block_file("1.0");
    std::fs::remove_file(&file).unwrap();
    std::fs::create_dir(&file).unwrap();
    std::fs::write(file.join("in the way"), "").unwrap();
    cluster.mend(&["rm", "film"]).ok();
    cluster.eventually("it is told", |cluster| cluster.log("coordinator").contains("cannot remove a block"));
    std::fs::remove_dir_all(&file).unwrap();
    std::fs::write(&file, "old").unwrap();
    cluster.eventually("it is removed", |cluster| cluster.block_files().is_empty());
}
