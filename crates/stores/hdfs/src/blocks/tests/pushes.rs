//! Tests of pushing replicas to a fake DataNode.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread::JoinHandle;
use std::time::Duration;

use repair::Permit;
use store_api::HandOver;

use super::*;
use crate::blocks::push::{PushedWriter, Pusher};

const SUCCESS: &[u8] = b"\x02\x08\x00";
const TOKEN_WANTED: &[u8] = b"\x02\x08\x05";
const NOT_FOUND: &[u8] = b"\x15\x08\x01\x2a\x11Replica not found";
const LOST_FILES: &[u8] = b"\x1c\x08\x01\x2a\x18...FileNotFoundException";
const NOT_READABLE: &[u8] = b"\x1b\x08\x01\x2a\x17Replica is not readable";

/// The reaction of the fake DataNode to a connection.
enum Does {
    /// Receives a read request and sends this answer.
    Reads(&'static [u8]),
    /// Receives a block and confirms it.
    Takes,
    /// Receives a block and closes the connection without an answer.
    TakesSilently,
    /// Receives a write request and closes the connection.
    HangsUp,
    /// Sends no answer, and waits until the caller closes the connection.
    Hangs,
}

/// Starts a fake DataNode that reacts to each connection with the next of these reactions. Its thread ends
/// after the last reaction, and returns the requests that it received.
fn datanode(node: &DataNode, does: Vec<Does>) -> (Pusher, JoinHandle<Vec<Vec<u8>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address: SocketAddr = listener.local_addr().expect("bound");
    let [disk, _] = node.folders();
    let folder = disk.join(format!("current/{POOL}/current/finalized/subdir0/subdir0"));
    let running = std::thread::spawn(move || {
        let called = does.into_iter().map(|does| {
            let (stream, _) = listener.accept().expect("called");
            call(stream, &does, &folder)
        });
        called.collect()
    });
    (Pusher::new(address), running)
}

fn call(mut stream: TcpStream, does: &Does, folder: &Path) -> Vec<u8> {
    let (code, message) = operation(&mut stream);
    assert_eq!(code, if matches!(does, Does::Reads(_)) { 81 } else { 80 });
    match does {
        Does::Reads(answer) => stream.write_all(answer).expect("answered"),
        Does::Takes => {
            take(&mut stream, folder);
            stream.write_all(SUCCESS).expect("answered");
        }
        Does::TakesSilently => take(&mut stream, folder),
        Does::HangsUp => {}
        // Blocks until the caller closes the connection.
        Does::Hangs => drop(stream.read_to_end(&mut Vec::new())),
    }
    message
}

fn operation(stream: &mut TcpStream) -> (u8, Vec<u8>) {
    let mut start = [0; 4];
    stream.read_exact(&mut start).expect("an operation");
    assert_eq!(start[..2], [0, 28]);
    let mut message = vec![0; start[3].into()];
    assert!(start[3] < 0x80, "short enough for one byte of length");
    stream.read_exact(&mut message).expect("a message");
    (start[2], message)
}

/// Receives packets up to the last one, and stores them as a replica.
fn take(stream: &mut TcpStream, folder: &Path) {
    let (mut bytes, mut sums) = (Vec::new(), ChecksumFormat::default().encode().to_vec());
    loop {
        let mut start = [0; 33];
        stream.read_exact(&mut start).expect("a packet's header");
        let length = u32::from_be_bytes([start[0], start[1], start[2], start[3]]) as usize - 4;
        let here = u32::from_le_bytes([start[27], start[28], start[29], start[30]]) as usize;
        let mut packet = vec![0; length];
        stream.read_exact(&mut packet).expect("a packet");
        if here == 0 {
            break;
        }
        sums.extend_from_slice(&packet[..length - here]);
        bytes.extend_from_slice(&packet[length - here..]);
    }
    fs::create_dir_all(folder).expect("made");
    fs::write(folder.join("blk_-9223372036854775792_1001.meta"), sums).expect("written");
    fs::write(folder.join("blk_-9223372036854775792"), bytes).expect("written");
}

/// Pushes a replica to the fake DataNode: prepares, writes, seals and hands it over.
fn push(node: &DataNode, pusher: Pusher) -> Result<(), BlockError> {
    push_with(node, pusher, None)
}

/// Like [`push`], with a block token.
fn push_with(node: &DataNode, pusher: Pusher, permit: Option<Permit>) -> Result<(), BlockError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let bytes = pattern(70_000);
    let blocks = node.open();
    let mut writer = Box::new(PushedWriter::new(blocks.writer(&sink(NAME, bytes.len()))?, pusher, permit));
    runtime.block_on(writer.prepare())?;
    writer.write_at(0, &bytes)?;
    writer.seal()?;
    runtime.block_on(writer.hand_over())
}

/// Checks that the replica is intact and that there are no other files.
fn assert_whole(node: &DataNode) {
    let all = [node.names("a"), node.names("b")].concat();
    assert_eq!(all, ["blk_-9223372036854775792", "blk_-9223372036854775792_1001.meta"]);
    assert_eq!(read(&node.open(), NAME, 0, 70_000).expect("whole"), pattern(70_000));
}

fn assert_empty(node: &DataNode) {
    assert_eq!([node.names("a"), node.names("b")].concat(), [""; 0]);
}

#[test]
fn a_datanode_without_the_plugin_accepts_pushed_blocks() {
    let node = DataNode::new();
    let (pusher, running) =
        datanode(&node, vec![Does::Reads(NOT_FOUND), Does::Reads(NOT_FOUND), Does::Takes]);
    push(&node, pusher).expect("taken");
    running.join().expect("called as often as that");
    assert_whole(&node);
}

#[test]
fn a_refused_push_leaves_no_files_and_is_explained() {
    let node = DataNode::new();
    let asked = || vec![Does::Reads(NOT_FOUND), Does::Reads(NOT_FOUND), Does::HangsUp];
    says(push(&node, datanode(&node, asked()).0), "no folder of type DISK has room");
    assert_empty(&node);
    says(push(&node, datanode(&node, asked()).0), "a request for the block with: Replica not found");
    says(push(&node, datanode(&node, vec![Does::Reads(TOKEN_WANTED)]).0), "dfs.block.access.token.enable");
    says(push(&node, datanode(&node, vec![Does::Reads(b"")]).0), "dfs.data.transfer.protection");
    says(push(&node, datanode(&node, vec![Does::Reads(b"\x02\x10\x00")]).0), "not valid in HDFS's");
    let coming = vec![Does::Reads(NOT_READABLE), Does::Reads(NOT_READABLE)];
    says(push(&node, datanode(&node, coming).0), "another client is writing the block there");
    says(push(&node, Pusher::new("127.0.0.1:1".parse().expect("an address"))), "cannot be reached");
    assert_empty(&node);
}

#[test]
fn every_request_carries_the_token() {
    let node = DataNode::new();
    let (pusher, running) =
        datanode(&node, vec![Does::Reads(NOT_FOUND), Does::Reads(NOT_FOUND), Does::Takes]);
    let token = Permit::new(b"a token".to_vec()).expect("short");
    push_with(&node, pusher, Some(token.clone())).expect("taken");
    let asked = running.join().expect("called as often as that");
    assert_eq!(asked.len(), 3);
    assert!(asked.iter().all(|message| message.windows(9).any(|part| part == b"\x12\x07a token")));
    assert_whole(&node);

    let node = DataNode::new();
    let refused = push_with(&node, datanode(&node, vec![Does::Reads(TOKEN_WANTED)]).0, Some(token));
    let refused = refused.expect_err("it has expired").to_string();
    assert!(refused.contains("dfs.block.access.token.lifetime"), "{refused}");
    assert!(!refused.contains("a token"), "{refused}");
    assert_empty(&node);
}

#[test]
fn a_hanging_datanode_is_abandoned() {
    let node = DataNode::new();
    let (pusher, running) =
        datanode(&node, vec![Does::Reads(NOT_FOUND), Does::Reads(NOT_FOUND), Does::Hangs]);
    let given_up = push(&node, pusher.with_patience(Duration::from_millis(300)));
    assert!(matches!(given_up, Err(BlockError::Process { error: ProcessError::TimedOut { .. }, .. })));
    running.join().expect("the connection is closed");
    assert_empty(&node);
}

#[test]
fn a_replica_that_was_pushed_before_is_recognised() {
    let node = DataNode::new();
    node.put("a", NAME, ChecksumFormat::default(), &pattern(70_000));
    let (pusher, running) = datanode(&node, vec![Does::Reads(SUCCESS), Does::Reads(SUCCESS)]);
    push(&node, pusher).expect("it is there");
    running.join().expect("asked, and given nothing");
    assert_whole(&node);
}

#[test]
fn a_lost_answer_is_checked_again() {
    let node = DataNode::new();
    let does =
        vec![Does::Reads(NOT_FOUND), Does::Reads(NOT_FOUND), Does::TakesSilently, Does::Reads(SUCCESS)];
    let (pusher, running) = datanode(&node, does);
    push(&node, pusher).expect("it is there");
    running.join().expect("called as often as that");
    assert_whole(&node);
}

#[test]
fn a_block_stored_in_another_folder_is_not_confirmed() {
    let (node, other) = (DataNode::new(), DataNode::new());
    let (pusher, _) = datanode(&other, vec![Does::Reads(NOT_FOUND), Does::Reads(NOT_FOUND), Does::Takes]);
    says(push(&node, pusher), "none of the `folders` of this helper has it");
}

#[test]
fn a_corrupt_replica_is_removed_and_the_datanode_forgets_it() {
    let node = DataNode::new();
    node.put("a", NAME, ChecksumFormat::default(), &pattern(70_000));
    flip(&node.path("a", "blk_-9223372036854775792"), 80_001);
    let asked = || vec![Does::Reads(SUCCESS), Does::Reads(SUCCESS), Does::Reads(LOST_FILES)];
    let (pusher, running) = datanode(&node, asked().into_iter().chain([Does::HangsUp]).collect());
    says(push(&node, pusher), "closed the connection");
    running.join().expect("called as often as that");
    assert_whole(&node); // The right bytes are in place, whether or not the DataNode knows the replica.

    flip(&node.path("a", "blk_-9223372036854775792"), 80_001);
    let (pusher, running) = datanode(&node, asked().into_iter().chain([Does::Takes]).collect());
    push(&node, pusher).expect("taken");
    running.join().expect("called as often as that");
    assert_whole(&node);
}

/// After the corrupt replica was removed, the DataNode has no other copy.
#[test]
fn the_new_copy_stays_whatever_fails_after_the_corrupt_replica_was_removed() {
    for beside in [false, true] {
        for failure in [Does::Reads(b""), Does::Reads(TOKEN_WANTED), Does::HangsUp] {
            let node = DataNode::new();
            node.put("a", NAME, ChecksumFormat::default(), &pattern(70_000));
            flip(&node.path("a", "blk_-9223372036854775792"), 80_001);
            if beside {
                // The NameNode has not had this block deleted yet. The old replica was here as well.
                node.put("a", "blk_-9223372036854775791_1001", ChecksumFormat::default(), b"beside");
            }
            let mut does = vec![Does::Reads(SUCCESS), Does::Reads(SUCCESS)];
            if matches!(failure, Does::HangsUp) {
                does.push(Does::Reads(LOST_FILES));
            }
            does.push(failure);
            let (pusher, running) = datanode(&node, does);
            push(&node, pusher).expect_err("the DataNode does not take it");
            running.join().expect("called as often as that");
            let kept = read(&node.open(), NAME, 0, 70_000).expect("the new copy");
            assert!(kept == pattern(70_000), "{beside}");
        }
    }
}

#[test]
fn checksums_without_bytes_are_removed_before_a_push() {
    let node = DataNode::new();
    node.put("a", NAME, ChecksumFormat::default(), &pattern(70_000));
    fs::remove_file(node.path("a", "blk_-9223372036854775792")).expect("removed");
    let lost = || Does::Reads(LOST_FILES);
    let (pusher, running) = datanode(&node, vec![lost(), lost(), Does::Reads(NOT_FOUND), Does::Takes]);
    push(&node, pusher).expect("taken");
    running.join().expect("called as often as that");
    assert_whole(&node);
}
