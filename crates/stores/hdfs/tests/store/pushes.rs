//! Tests of pushing blocks to a DataNode without a plug-in.

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::thread::JoinHandle;

use hdfs::ReplicaName;
use store_api::{BlockError, ProcessError};
use testbed::eventually;

use crate::cases::largest;
use crate::world::{Group, World};

const POLICY: &str = "RS-6-3-1024k";

/// A block of a group, and its DataNode, which runs without the plug-in during the test.
struct Subject {
    group: Group,
    at: usize,
    node: usize,
}

impl Subject {
    fn name(&self) -> ReplicaName {
        self.group.stripe.blocks[self.at].name
    }

    /// Removes the block and restarts its DataNode without the plug-in.
    fn lose(world: &mut World, at: usize) -> Self {
        let group = largest(world, POLICY);
        let node = group.holders[at].expect("held");
        let subject = Self { group, at, node };
        let files = world.replica(node, &subject.name());
        world.cluster.kill(node);
        files.iter().for_each(|path| fs::remove_file(path).expect("removed"));
        world.cluster.start_without_plugin(node);
        subject.await_lost(world);
        subject.push_to(world, address(world, node));
        subject
    }

    fn await_lost(&self, world: &mut World) {
        eventually("the NameNode misses it", || {
            (!world.cluster.console().is_healthy("/RS-6-3-1024k")).then_some(())
        });
        eventually("its DataNode is back", || {
            TcpStream::connect(address(world, self.node)).is_ok().then_some(())
        });
        // If it took long to start, the NameNode missed the block before the DataNode was registered again.
        world.cluster.await_nodes(world.cluster.nodes().len());
        world.cluster.await_plugins();
    }

    fn push_to(&self, world: &mut World, to: SocketAddr) {
        let folders = world.cluster.nodes()[self.node].folders().to_vec();
        world.reopen_to_push(self.node, &folders, to);
    }

    /// Rebuilds the block, and hands it over in the way that the helper is currently configured for.
    fn push(&self, world: &World) -> Result<(), BlockError> {
        self.group.rebuild(world, self.at, &[self.at], self.node)
    }

    /// Checks with all of HDFS's own tools that the block is intact, and that no temporary file is left.
    fn assert_whole(&self, world: &mut World) {
        world.await_whole();
        world.verify_meta(self.node, &self.name());
        self.assert_nothing_unfinished(world);
    }

    /// Checks that no temporary file of the block is left, neither Mend's nor the DataNode's.
    fn assert_nothing_unfinished(&self, world: &World) {
        let file = format!("blk_{}", self.name().block());
        eventually("nothing unfinished is left", || {
            let folders = world.cluster.nodes()[self.node].folders().iter();
            folders.flat_map(|folder| unfinished(folder)).all(|name| !name.contains(&file)).then_some(())
        });
    }

    /// Restarts the DataNode with the plug-in.
    fn end(self, world: &mut World) {
        world.cluster.stop(self.node);
        world.cluster.start(self.node);
        world.cluster.await_nodes(world.cluster.nodes().len());
        world.cluster.await_plugins();
        world.reopen(self.node, true);
        world.await_whole();
        world.assert_files();
    }
}

fn address(world: &World, node: usize) -> SocketAddr {
    world.cluster.nodes()[node].address().parse().expect("an address")
}

/// Returns the file names in the `tmp` folders of the block pools.
fn unfinished(folder: &Path) -> Vec<String> {
    let pools = fs::read_dir(folder.join("current")).expect("a folder");
    let tmp = pools.map(|pool| pool.expect("an entry").path().join("tmp")).filter(|tmp| tmp.is_dir());
    let names = tmp.flat_map(|tmp| fs::read_dir(tmp).expect("a folder"));
    names.map(|name| name.expect("an entry").file_name().into_string().expect("text")).collect()
}

/// Pushes one data block and one parity block.
pub fn a_lost_block(world: &mut World) {
    for at in [0, 8] {
        let group = largest(world, POLICY);
        let (node, name) = (group.holders[at].expect("held"), group.stripe.blocks[at].name);
        let before = world.replica(node, &name).map(|path| fs::read(path).expect("readable"));
        let subject = Subject::lose(world, at);
        subject.push(world).expect("taken");
        let after = world.replica(node, &name).map(|path| fs::read(path).expect("readable"));
        assert!(before == after, "byte for byte what HDFS had, its checksums too");
        subject.assert_whole(world);
        subject.end(world);
    }
}

/// Interrupts a push in the middle of the block. No part of it becomes visible, and a second push succeeds.
pub fn a_push_that_breaks_off(world: &mut World) {
    let subject = Subject::lose(world, 1);
    let bytes = subject.group.stripe.blocks[1].bytes as usize;
    let (proxy, cut) = proxy_that_cuts(address(world, subject.node), bytes / 2);
    subject.push_to(world, proxy);
    let broken = subject.push(world).expect_err("it broke off");
    let refused = matches!(&broken, BlockError::Process { error: ProcessError::Refused { .. }, .. });
    assert!(refused, "{broken}");
    assert!(cut.join().expect("it ran") > bytes / 4, "some of it came through");
    subject.assert_nothing_unfinished(world);
    let name = subject.name();
    assert_eq!(world.cluster.nodes()[subject.node].replica(name.block(), &name.to_string()), None);
    assert!(!world.cluster.console().is_healthy("/RS-6-3-1024k"));
    subject.push_to(world, address(world, subject.node));
    subject.push(world).expect("taken");
    subject.assert_whole(world);
    subject.end(world);
}

/// Starts a proxy in front of a DataNode. The proxy forwards two queries and then cuts the transfer of the
/// block after about `after` bytes. Its thread returns the number of bytes of the block that it forwarded.
fn proxy_that_cuts(to: SocketAddr, after: usize) -> (SocketAddr, JoinHandle<usize>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound");
    let running = std::thread::spawn(move || {
        for limit in [usize::MAX, usize::MAX] {
            forward(&listener, to, limit);
        }
        forward(&listener, to, after)
    });
    (address, running)
}

/// Forwards one connection, but closes it after about `limit` bytes from the caller. Returns the number of
/// bytes forwarded from the caller.
fn forward(listener: &TcpListener, to: SocketAddr, limit: usize) -> usize {
    let (mut caller, _) = listener.accept().expect("called");
    let mut called = TcpStream::connect(to).expect("it listens");
    let (mut answers, mut back) =
        (called.try_clone().expect("one more"), caller.try_clone().expect("one more"));
    let answering = std::thread::spawn(move || {
        // Either end may close first.
        let _ = std::io::copy(&mut answers, &mut back);
        let _ = back.shutdown(Shutdown::Both);
    });
    let (mut carried, mut buffer) = (0, vec![0; 16 << 10]);
    while carried < limit {
        let Ok(bytes @ 1..) = caller.read(&mut buffer) else { break };
        called.write_all(&buffer[..bytes]).expect("carried");
        carried += bytes;
    }
    let _ = called.shutdown(Shutdown::Both);
    let _ = caller.shutdown(Shutdown::Both);
    answering.join().expect("it ran");
    carried
}

/// Deletes or corrupts files of a replica that a running DataNode lists, then pushes the block. The DataNode
/// refuses the block until it notices the damage, so the push must make it notice.
pub fn what_it_believes_to_have(world: &mut World) {
    let subject = Subject::lose(world, 2);
    let name = subject.name();
    let damages: [fn(&[std::path::PathBuf; 2]); 4] = [
        |files| files.iter().for_each(|path| fs::remove_file(path).expect("removed")),
        |[bytes, _]| fs::remove_file(bytes).expect("removed"),
        |[_, meta]| fs::remove_file(meta).expect("removed"),
        |[bytes, _]| {
            let file = fs::File::options().read(true).write(true).open(bytes).expect("there");
            file.write_all_at(b"rot", 1_000_001).expect("written");
        },
    ];
    subject.push(world).expect("taken");
    world.await_whole();
    for damage in damages {
        damage(&world.replica(subject.node, &name));
        subject.push(world).expect("taken");
        subject.assert_whole(world);
        assert!(subject.group.padded(world, subject.at).iter().any(|&byte| byte != 0), "it reads");
    }
    subject.end(world);
}

/// Pushes a block twice; the second push must have no effect. Then pushes the block from a helper whose
/// configuration lacks the folder with the replica, so that the helper does not find it. The DataNode must
/// refuse this push and keep the replica.
pub fn a_block_that_is_there(world: &mut World) {
    let subject = Subject::lose(world, 3);
    subject.push(world).expect("taken");
    let inodes = |world: &World| {
        world.replica(subject.node, &subject.name()).map(|path| fs::metadata(path).expect("there").ino())
    };
    let before = inodes(world);
    subject.push(world).expect("it is there");
    assert_eq!(inodes(world), before, "it was not written again");
    let [bytes, _] = world.replica(subject.node, &subject.name());
    let folders = world.cluster.nodes()[subject.node].folders().iter();
    let others: Vec<_> = folders.filter(|folder| !bytes.starts_with(folder)).cloned().collect();
    world.reopen_to_push(subject.node, &others, address(world, subject.node));
    let refused = subject.push(world).expect_err("its DataNode has one").to_string();
    assert!(refused.contains("it closed the connection"), "{refused}");
    assert!(refused.contains("a request for the block with: success"), "{refused}");
    assert_eq!(inodes(world), before, "the one that was there is left alone");
    subject.assert_whole(world);
    subject.end(world);
}

/// Enables block tokens. A push without a token is refused before any byte of the block is sent, while the
/// plug-in adopts a block without a token.
pub fn block_tokens(world: &mut World) {
    world.want_tokens();
    world.await_whole();
    let group = largest(world, POLICY);
    let (at, node) = (5, group.holders[5].expect("held"));
    let subject = Subject { group, at, node };
    let files = world.replica(node, &subject.name());
    world.cluster.kill(node);
    files.iter().for_each(|path| fs::remove_file(path).expect("removed"));
    world.cluster.start(node);
    subject.await_lost(world);
    subject.push_to(world, address(world, node));
    let refused = subject.push(world).expect_err("it has no token").to_string();
    assert!(refused.contains("dfs.block.access.token.enable"), "{refused}");
    subject.assert_nothing_unfinished(world);
    world.reopen(node, true);
    subject.push(world).expect("adopted");
    subject.assert_whole(world);
    world.assert_files();
}
