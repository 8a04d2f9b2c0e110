//! Files that are replaced during a read, and lost blocks that nobody has noticed yet.

use std::fs;
use std::io::Read;
use std::process::{Child, ChildStdout, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use client::{ByteRange, Client, GetOptions, GetTarget};
use tokio::io::AsyncReadExt;

use crate::cluster::{Cluster, finish, noise};

#[test]
fn a_reader_sees_the_old_or_the_new_file_and_never_an_error() {
    let cluster = Cluster::new(6, "rs-6-4", "64KiB");
    let versions: Vec<Vec<u8>> = (0..2).map(|version| noise(1_500_000 + version)).collect();
    for (version, content) in versions.iter().enumerate() {
        fs::write(cluster.path(&format!("v{version}")), content).unwrap();
    }
    let put = |version: usize| {
        let path = cluster.path(&format!("v{version}"));
        cluster.mend(&["put", path.to_str().unwrap(), "--name", "film", "--replace"]).ok();
    };
    put(0);
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for reader in 0..3 {
            let (cluster, versions, ended) = (&cluster, &versions, &ended);
            scope.spawn(move || {
                let copy = cluster.path(&format!("copy-{reader}"));
                while !ended.load(Ordering::Relaxed) {
                    cluster.mend(&["get", "film", "-o", copy.to_str().unwrap()]).ok();
                    assert!(versions.contains(&fs::read(&copy).unwrap()), "neither the old nor the new file");
                    fs::remove_file(&copy).unwrap();
                }
            });
        }
        (1..25).for_each(|round| put(round % 2));
        ended.store(true, Ordering::Relaxed);
    });
    // Blocks of versions without readers are removed.
    let needed = 6 * versions[0].len().div_ceil(4 * (64 << 10));
    cluster.eventually("old blocks are removed", |cluster| cluster.block_files().len() == needed);
}

/// A file is replaced while a streaming read of it is running. The read must deliver the old version.
#[test]
fn a_long_read_goes_on_with_the_file_that_it_began() {
    let cluster = Cluster::new(6, "rs-6-4", "1MiB");
    let old = cluster.put("film", 96 << 20);
    let (child, mut out, mut read) = begin_read(&cluster);
    replace(&cluster);
    out.read_to_end(&mut read).unwrap();
    let said = finish(child);
    assert_eq!(said.code, 0, "{said:?}");
    assert!(read == old, "{} bytes", read.len());
    cluster.eventually("old blocks are removed", |cluster| cluster.block_files().len() == 6);
}

/// A restarted coordinator no longer keeps the old version for its readers.
#[test]
fn a_long_read_ends_in_an_error_if_the_coordinator_restarts() {
    let mut cluster = Cluster::new(6, "rs-6-4", "1MiB");
    let old = cluster.put("film", 96 << 20);
    let (child, mut out, mut read) = begin_read(&cluster);
    replace(&cluster);
    cluster.eventually("the reader is ahead of us as far as it goes", |cluster| {
        cluster.mend(&["status", "--output", "json"]).json()["jobs"].as_array().unwrap().is_empty()
    });
    cluster.kill("coordinator");
    cluster.start(&["coordinator"]);
    cluster.await_ready();
    out.read_to_end(&mut read).unwrap();
    finish(child).fails_with(&["`film` was replaced during the read", "run `mend get` again"]);
    assert!(read.len() < old.len() && old.starts_with(&read), "{} bytes", read.len());
}

/// A get that has not delivered anything yet may switch to the new version.
#[test]
fn a_read_of_a_version_that_is_gone_delivers_the_new_one() {
    let mut cluster = Cluster::new(6, "rs-6-4", "64KiB");
    let opened = ::cluster::Cluster::open(&cluster.folder()).unwrap();
    let client = Client::connect(&opened, &::cluster::Role::default_client()).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let (range, options): (ByteRange, _) = ("1000+200000".parse().unwrap(), GetOptions::default());
    let copy = cluster.path("copy");
    for to_stream in [true, false] {
        cluster.put("old", 300_000);
        cluster.mend(&["put", cluster.path("old").to_str().unwrap(), "--name", "film", "--replace"]).ok();
        let found = runtime.block_on(client.find("film", range)).unwrap();
        replace(&cluster);
        // A restarted coordinator no longer keeps the old version for its readers.
        cluster.kill("coordinator");
        cluster.start(&["coordinator"]);
        cluster.await_ready();
        let (mut read, out) = tokio::io::duplex(1 << 20);
        let target = if to_stream { GetTarget::Stream(Box::new(out)) } else { GetTarget::File(copy.clone()) };
        runtime.block_on(client.get(&found, &options, target, client::no_progress())).unwrap();
        let mut bytes = Vec::new();
        match to_stream {
            true => drop(runtime.block_on(read.read_to_end(&mut bytes)).unwrap()),
            false => bytes = fs::read(&copy).unwrap(),
        }
        let new = fs::read(cluster.path("new")).unwrap();
        assert!(bytes == new[1000..201_000], "{} bytes", bytes.len());
        cluster.mend(&["rm", "old"]).ok();
    }
}

/// Starts a get to a pipe and reads its first bytes.
fn begin_read(cluster: &Cluster) -> (Child, ChildStdout, Vec<u8>) {
    let mut get = cluster.command(&["get", "film", "-o", "-"]);
    let mut child = get.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut out = child.stdout.take().unwrap();
    let mut read = vec![0; 1 << 20];
    out.read_exact(&mut read).unwrap();
    (child, out, read)
}

fn replace(cluster: &Cluster) {
    let new = cluster.path("new");
    fs::write(&new, noise(1 << 20)).unwrap();
    cluster.mend(&["put", new.to_str().unwrap(), "--name", "film", "--replace"]).ok();
}

#[test]
fn a_repair_of_a_block_looks_at_it_first() {
    let cluster = Cluster::new(7, "rs-6-4", "64KiB");
    let content = cluster.put("film", 300_000);
    fs::remove_file(cluster.block_file("1.2")).unwrap();
    let lost = cluster.block_name("1.2");
    let said = cluster.mend(&["repair", "1.2"]).ok();
    assert!(said.out.contains("1 block"), "{said:?}");
    assert!(cluster.block_files().iter().any(|file| file.ends_with(&lost)), "{said:?}");
    cluster.assert_reads("film", &content, &[]);
    // A repair of the whole stripe finds a block with changed bytes in the same way.
    let file = cluster.block_file("1.3");
    let mut bytes = fs::read(&file).unwrap();
    bytes[5000] ^= 4;
    fs::write(&file, &bytes).unwrap();
    let said = cluster.mend(&["repair", "1"]).ok();
    assert!(said.out.contains("1 block"), "{said:?}");
    cluster.mend(&["scrub"]).ok();
    // A healthy block is reported as healthy.
    let said = cluster.mend(&["repair", "1.2", "-v"]).ok();
    assert!(format!("{}{}", said.out, said.err).contains("has just read its block"), "{said:?}");
}
