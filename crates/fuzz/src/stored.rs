//! Data on disks: checksum files, names of block files, records of the catalog.

use std::fmt::Debug;

use dir::fuzzing;
use hdfs::fuzzing as replicas;
use repair::wire::edge::crc32c;
use seaweedfs::fuzzing as seaweedfs;
use serde::Serialize;
use serde::de::DeserializeOwned;
use store_api::{FileRecord, NodeRecord, PutRecord, StripeRecord};

pub(crate) fn checksum_file(bytes: &[u8]) -> bool {
    let accepted = fuzzing::checksum_file(bytes);
    // Decode again with a valid file checksum, because mutations rarely produce one.
    if let Some((body, _)) = bytes.split_last_chunk::<4>() {
        fuzzing::checksum_file(&[body, &crc32c(&[body]).to_be_bytes()].concat());
    }
    accepted
}

pub(crate) fn block_name(bytes: &[u8]) -> bool {
    let Ok(name) = std::str::from_utf8(bytes) else { return false };
    let accepted = fuzzing::is_block_name(name);
    if accepted {
        assert!(
            !name.contains(['/', '\0']) && !matches!(name, "" | "." | ".."),
            "{name:?} is not a file's name"
        );
    }
    accepted
}

pub(crate) fn ecsum(bytes: &[u8]) -> bool {
    let accepted = seaweedfs::ecsum(bytes);
    // Decode again with a valid file checksum, because mutations rarely produce one.
    if let Some(payload) = bytes.get(14..) {
        let length = u32::try_from(payload.len()).expect("a small input").to_be_bytes();
        let sum = crc32c(&[payload]).to_be_bytes();
        return accepted | seaweedfs::ecsum(&[&b"ECSU\0\x01"[..], &length, &sum, payload].concat());
    }
    accepted
}

pub(crate) fn vif(bytes: &[u8]) -> bool {
    seaweedfs::vif(bytes)
}

pub(crate) fn shard_name(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_ok_and(seaweedfs::is_shard_name)
}

pub(crate) fn hdfs_meta(bytes: &[u8]) -> bool {
    replicas::meta_header(bytes)
}

pub(crate) fn hdfs_name(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes)
        .is_ok_and(|name| replicas::is_replica_name(name) | replicas::is_policy_name(name))
}

/// Decodes a DataNode's response to a read or a write of a block.
pub(crate) fn datanode_answer(bytes: &[u8]) -> bool {
    replicas::datanode_answer(bytes)
}

/// Decodes an answer of a NameNode, line by line. Every accepted group must yield a stripe with all its blocks, or
/// no stripe, and every replica of a block must be on a DataNode of the answer.
pub(crate) fn namenode_answer(bytes: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else { return false };
    let mut listing = hdfs::Listing::default();
    if !text.lines().all(|line| listing.take(line).is_ok()) {
        return false;
    }
    for group in &listing.groups {
        assert!(group.homes.iter().all(|&(_, node)| node < listing.nodes.len()));
        if let Some(stripe) = group.group.stripe() {
            assert_eq!(stripe.blocks.len(), stripe.code.blocks());
        }
    }
    let raid = listing.into_raid();
    let blocks = raid.files.iter().flat_map(|file| &file.blocks);
    assert!(blocks.flat_map(|block| &block.replicas).all(|node| node.0 < raid.nodes.len()));
    true
}

pub(crate) fn catalog_record(bytes: &[u8]) -> bool {
    let put = record::<PutRecord>(bytes);
    if let Some(put) = &put {
        let _ = put.stripes();
    }
    let stripe = record::<StripeRecord>(bytes).is_some();
    let file = record::<FileRecord>(bytes).is_some();
    let node = record::<NodeRecord>(bytes).is_some();
    put.is_some() || stripe || file || node
}

/// Decodes a record and checks that it survives re-encoding, as in the catalog.
fn record<T: Serialize + DeserializeOwned + PartialEq + Debug>(bytes: &[u8]) -> Option<T> {
    let record: T = serde_json::from_slice(bytes).ok()?;
    let encoded = serde_json::to_vec(&record).expect("records have string keys");
    assert_eq!(serde_json::from_slice::<T>(&encoded).expect("what we encode can be decoded"), record);
    Some(record)
}
