//! Stores files, encodes them, and loses one of their blocks.

use std::fs;
use std::process::Command;

use testbed::hdfs::FsckBlock;
use testbed::{Mend, Seat, content, eventually};

use super::codes::RaidCode;
use super::encoding;
use super::readers::Block;
use crate::error::LabError;
use crate::hdfs::cluster::{HdfsLab, REPLICATION};
use crate::hdfs::losses::await_lacking;

/// The folder of all files.
const FOLDER: &str = "/files";
/// The index of the block that is lost, and of the block whose DataNode stays.
const LOST: usize = 1;
const KEPT: usize = 0;
/// How often a file is encoded until its blocks are well placed.
const ATTEMPTS: usize = 3;

/// An encoded file, or one that is to be encoded.
#[derive(Clone, Debug)]
pub(super) struct RaidFile {
    pub(super) path: String,
    pub(super) code: RaidCode,
    pub(super) stripes: usize,
    pub(super) block_bytes: usize,
}

/// Returns the seat of the client, which is the one after those of the DataNodes.
pub(super) fn client_seat(lab: &HdfsLab) -> Seat {
    Seat::Server(lab.cluster.nodes().len())
}

impl RaidFile {
    /// Describes a file of this name.
    pub(super) fn new(name: &str, code: RaidCode, stripes: usize, block_mib: usize) -> Self {
        Self { path: format!("{FOLDER}/{name}"), code, stripes, block_bytes: block_mib << 20 }
    }

    fn parity(&self) -> String {
        format!("{}{}", self.code.parity_root(), self.path)
    }

    fn bytes(&self) -> usize {
        self.stripes * self.code.k * self.block_bytes
    }

    /// Stores the file with HDFS's default replication, and waits for all replicas.
    ///
    /// # Errors
    /// [`LabError`].
    pub(super) fn store(&self, lab: &mut HdfsLab) -> Result<(), LabError> {
        lab.cluster.console().run(&["dfs", "-mkdir", "-p", FOLDER]);
        lab.put(&self.path, self.bytes(), self.block_bytes)?;
        eventually("all replicas", || {
            let blocks = blocks(lab, &self.path);
            let has_all = |block: &FsckBlock| block.replicas.len() == REPLICATION;
            (!blocks.is_empty() && blocks.iter().all(has_all)).then_some(())
        });
        Ok(())
    }

    /// Returns the command that encodes the file, on the client's machine, with these options.
    ///
    /// # Errors
    /// [`LabError::File`] if the file with the policy cannot be written.
    pub(super) fn encode_command(
        &self,
        lab: &HdfsLab,
        mend: &Mend,
        options: &[&str],
    ) -> Result<Command, LabError> {
        let policies = lab.cluster.folder().join("raid.toml");
        fs::write(&policies, self.code.policies(&self.path)).map_err(LabError::file("write", &policies))?;
        let policies = policies.to_str().expect("text");
        let words = [&["raid", "encode", self.path.as_str(), "--policy", policies], options].concat();
        Ok(mend.verb_at(client_seat(lab), &words))
    }

    /// Encodes the file. If a move was refused, for example by a busy DataNode, the command is repeated.
    ///
    /// # Errors
    /// [`LabError`] of the last attempt, also if blocks of a stripe share a DataNode.
    pub(super) fn encode(&self, lab: &mut HdfsLab, mend: &Mend) -> Result<(), LabError> {
        let mut attempt = || {
            encoding::run(self.encode_command(lab, mend, &["--encoder", "jvm"])?, |_| Ok(()))?;
            self.check_spread(lab)
        };
        let first = attempt();
        (1..ATTEMPTS).fold(first, |last, _| last.or_else(|_| attempt()))
    }

    /// Checks that the file is encoded, and each stripe has its blocks on as many DataNodes.
    fn check_spread(&self, lab: &mut HdfsLab) -> Result<(), LabError> {
        let [data, parity] = [&self.path, &self.parity()].map(|path| holders(&blocks(lab, path)));
        let parities = self.code.n - self.code.k;
        if is_spread(&data, &parity, (self.code.k, parities), self.stripes) {
            return Ok(());
        }
        let reason = format!("{} is encoded, but data are on {data:?} and parity on {parity:?}", self.path);
        Err(LabError::Agent { who: "mend raid encode".to_owned(), reason })
    }

    /// Removes the file and its parity.
    pub(super) fn remove(&self, lab: &mut HdfsLab) {
        lab.cluster.console().run(&["dfs", "-rm", "-f", "-skipTrash", &self.path, &self.parity()]);
    }

    /// Returns two blocks of a file with one stripe: the one that [`lose`](Self::lose) loses, and one that stays.
    pub(super) fn lost_and_kept(&self) -> [Block; 2] {
        let whole = content(&self.path, self.bytes());
        [LOST, KEPT].map(|index| {
            let offset = index * self.block_bytes;
            let bytes = whole[offset..offset + self.block_bytes].to_vec();
            Block { path: self.path.clone(), offset, bytes }
        })
    }

    /// Kills the DataNode with a block of the file, and its helper, and waits until the NameNode lists the block as lost.
    /// Returns the DataNode.
    ///
    /// # Errors
    /// [`LabError`].
    pub(super) fn lose(&self, lab: &mut HdfsLab, mend: &mut Mend) -> Result<usize, LabError> {
        let address = blocks(lab, &self.path)[LOST].replicas[0].1.clone();
        let node = lab.cluster.node_at(&address);
        lab.cluster.kill(node);
        mend.kill_helper(node);
        await_lacking(&mut lab.cluster, "the NameNode", &self.path, |lacking| lacking == 1)?;
        Ok(node)
    }
}

/// Starts a DataNode and its helper again.
pub(super) fn revive(lab: &mut HdfsLab, mend: &mut Mend, node: usize) {
    lab.cluster.start(node);
    lab.cluster.await_nodes(lab.cluster.nodes().len());
    mend.start_helper(node);
    mend.wait_for_helpers();
}

fn blocks(lab: &mut HdfsLab, path: &str) -> Vec<FsckBlock> {
    lab.cluster.console().fsck(path).into_iter().flat_map(|file| file.blocks).collect()
}

/// Returns the DataNodes of each block.
fn holders(blocks: &[FsckBlock]) -> Vec<Vec<String>> {
    let of = |block: &FsckBlock| block.replicas.iter().map(|(_, address)| address.clone()).collect();
    blocks.iter().map(of).collect()
}

/// Whether each block has one replica, and no DataNode has two blocks of a stripe.
fn is_spread(data: &[Vec<String>], parity: &[Vec<String>], (k, m): (usize, usize), stripes: usize) -> bool {
    let is_spread = |(data, parity): (&[Vec<String>], &[Vec<String>])| {
        let mut nodes: Vec<&String> = data.iter().chain(parity).flatten().collect();
        let replicas = nodes.len();
        nodes.sort_unstable();
        nodes.dedup();
        replicas == k + m && nodes.len() == k + m && data.iter().chain(parity).all(|block| block.len() == 1)
    };
    let sizes = (data.len(), parity.len());
    sizes == (stripes * k, stripes * m) && data.chunks(k).zip(parity.chunks(m)).all(is_spread)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on(nodes: &[&[u8]]) -> Vec<Vec<String>> {
        nodes.iter().map(|nodes| nodes.iter().map(u8::to_string).collect()).collect()
    }

    #[test]
    fn stripes_must_be_spread_over_datanodes() {
        let (data, parity) = (on(&[&[1], &[2], &[1], &[4]]), on(&[&[3], &[2]]));
        assert!(is_spread(&data, &parity, (2, 1), 2));
        assert!(!is_spread(&data, &parity, (2, 1), 1), "a stripe too many");
        assert!(!is_spread(&data, &on(&[&[3], &[4]]), (2, 1), 2), "two blocks on one DataNode");
        assert!(!is_spread(&data, &on(&[&[3], &[2, 3]]), (2, 1), 2), "two replicas");
        assert!(!is_spread(&data, &on(&[&[3], &[]]), (2, 1), 2), "no replica");
    }

    #[test]
    fn the_blocks_of_a_file_are_parts_of_its_content() {
        let file = RaidFile { block_bytes: 100, ..RaidFile::new("f", super::super::codes::OF_SIZES, 1, 1) };
        let whole = content("/files/f", 600);
        let [lost, kept] = file.lost_and_kept();
        assert_eq!((lost.offset, &lost.bytes[..]), (100, &whole[100..200]));
        assert_eq!((kept.offset, &kept.bytes[..]), (0, &whole[..100]));
        assert_eq!(file.parity(), "/parity-8-6/files/f");
    }
}
