//! Programs that embed the client.

use std::sync::Arc;
use std::time::Duration;

use client::blocking::{self, ErrorKind};
use client::{Client, Memory, MemorySink, ReadRequest};
use codes::BlockIndex;
use repair::{Scheme, StripeId};

use crate::cluster::Cluster;

const BLOCK_BYTES: usize = 64 << 10;

/// The program has no other threads, so its async runtime runs only during calls of the client.
#[test]
fn a_program_that_blocks_between_calls_reads_on() {
    let mut cluster = Cluster::new(5, "rs-5-3", "64KiB");
    let content = cluster.put("film", 3 * BLOCK_BYTES);
    cluster.kill(&cluster.holder("1.1"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let opened = ::cluster::Cluster::open(&cluster.folder()).unwrap();
    let client = Client::connect(&opened, &::cluster::Role::default_client()).unwrap();
    let request = ReadRequest {
        stripe: StripeId("1".to_owned()),
        blocks: vec![BlockIndex(1)],
        sub_blocks: None,
        window: 0..BLOCK_BYTES as u64,
        scheme: Scheme::Auto,
        slice_bytes: None,
        pacing: None,
        verify: false,
        pretend_lost: Vec::new(),
        expected: Vec::new(),
    };
    for pause in [6, 0] {
        let memory = Memory::new(0, BLOCK_BYTES);
        runtime.block_on(client.read(request.clone(), Arc::new(MemorySink(memory.clone())))).unwrap();
        assert!(memory.take() == content[BLOCK_BYTES..2 * BLOCK_BYTES], "other bytes");
        // The first pause is longer than the coordinator waits for a silent client.
        std::thread::sleep(Duration::from_secs(pause));
    }
}

/// The blocking client, which the libraries for C and Python use as well.
#[test]
fn a_program_without_an_async_runtime_reads_with_limits_and_cancels() {
    let mut cluster = Cluster::new(5, "rs-5-3", "64KiB");
    let content = cluster.put("film", 3 * BLOCK_BYTES);
    cluster.kill(&cluster.holder("1.1"));
    let client = blocking::Connection::connect(&cluster.folder(), blocking::Options::default(), &mut || true);
    let client = client.unwrap();
    let film = client.open_file("film", &mut || true).unwrap();
    drop(client);
    let mut bytes = vec![0; content.len() - 7];
    film.read(7, &mut bytes, &mut || true).unwrap();
    assert!(bytes == content[7..], "other bytes");
    assert_eq!(film.read(8, &mut bytes, &mut || true).unwrap_err().kind, ErrorKind::OutOfRange);

    cluster.signal("coordinator", "STOP");
    let mut checks = 0;
    let cancelled = film.read(0, &mut bytes, &mut || {
        checks += 1;
        checks < 3
    });
    assert_eq!((cancelled.unwrap_err().kind, checks), (ErrorKind::Interrupted, 3));
    let options =
        blocking::Options { time_limit: Some(Duration::from_millis(150)), ..blocking::Options::default() };
    let late = blocking::Connection::connect(&cluster.folder(), options, &mut || true);
    assert_eq!(late.unwrap_err().kind, ErrorKind::TimedOut);
    cluster.signal("coordinator", "CONT");
    film.read(7, &mut bytes, &mut || true).unwrap();
    assert!(bytes == content[7..], "other bytes after a cancelled read");
}
