//! Tests that DataNodes count the NameNode's reconstruction commands correctly.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;

use testbed::eventually;

use crate::cases::largest;
use crate::world::World;

/// The sum of all DataNodes' counters since their start.
#[derive(Debug, PartialEq, Eq)]
struct Counted {
    tasks: i64,
    failed: i64,
    bytes_written: i64,
    transfers_in_progress: i64,
}

impl Counted {
    fn now(world: &World) -> Self {
        let said: Vec<_> = (0..world.cluster.nodes().len()).map(|node| beans(world, node)).collect();
        let sum = |key: &str| said.iter().map(|beans| number(beans, key)).sum();
        Self {
            tasks: sum("EcReconstructionTasks"),
            failed: sum("EcFailedReconstructionTasks"),
            bytes_written: sum("EcReconstructionBytesWritten"),
            transfers_in_progress: sum("XmitsInProgress"),
        }
    }
}

/// Returns all metrics of a DataNode, as JSON.
fn beans(world: &World, node: usize) -> String {
    let mut stream = TcpStream::connect(world.cluster.nodes()[node].http_address()).expect("it listens");
    // With HTTP/1.0, the response is not split into chunks.
    stream
        .write_all(b"GET /jmx?qry=Hadoop:service=DataNode,name=* HTTP/1.0\r\nHost: node\r\n\r\n")
        .expect("asked");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("answered");
    answer
}

fn number(beans: &str, key: &str) -> i64 {
    let (_, rest) = beans.split_once(&format!("\"{key}\" : ")).unwrap_or_else(|| panic!("no {key}: {beans}"));
    let end = rest.find(|c: char| !c.is_ascii_digit() && c != '-').expect("something follows");
    rest[..end].parse().expect("a number")
}

/// The plug-in takes over a command but cannot execute it, since it has no certificate. HDFS then executes
/// the command, and counts the task and its transfers once.
pub fn a_command_that_falls_back(world: &mut World) {
    let group = largest(world, "RS-6-3-1024k");
    let (node, block) = (group.holders[4].expect("held"), &group.stripe.blocks[4]);
    let files = world.replica(node, &block.name);
    world.cluster.kill(node);
    files.iter().for_each(|path| fs::remove_file(path).expect("removed"));
    world.cluster.start(node);
    eventually("the NameNode misses it", || {
        (!world.cluster.console().is_healthy("/RS-6-3-1024k")).then_some(())
    });
    eventually("its DataNode is back", || {
        TcpStream::connect(world.cluster.nodes()[node].http_address()).is_ok().then_some(())
    });
    let before = Counted::now(world);
    world.let_hdfs_repair(true);
    world.await_whole();
    let expected = Counted {
        tasks: before.tasks + 1,
        failed: before.failed,
        bytes_written: before.bytes_written + block.bytes as i64,
        transfers_in_progress: 0,
    };
    eventually("it is counted", || (Counted::now(world) == expected).then_some(()));
    let logs = (0..world.cluster.nodes().len()).map(|node| world.cluster.log(node));
    let fell_back: usize = logs.map(|log| log.matches("Mend did not reconstruct").count()).sum();
    assert_eq!(fell_back, 1, "it was offered to Mend first");
    world.let_hdfs_repair(false);
    world.await_whole();
    world.assert_files();
}
