//! The stripes of a file, and of all files of a folder.

use crate::members::{in_order, listed};
use crate::{Codec, File, Members, Scope, listing_order};

/// HDFS checksums blocks in pieces of this many bytes. HDFS-RAID rounds the block size of a folder's parity
/// up to a multiple.
const CHECKSUM_BYTES: u64 = 512;

/// The stripes of one file, or of a folder's files together.
///
/// A stripe is k consecutive blocks; the last one may have fewer. Blocks shorter than
/// [`block_bytes`](Self::block_bytes), and blocks that the last stripe lacks, count as zeros. Each stripe has m
/// parity blocks of full length, which follow each other in the parity file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    members: Vec<Member>,
    data_blocks: usize,
    parity_blocks: usize,
    block_bytes: u64,
}

/// A data block of a stripe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Member {
    /// Position of the file among the files of the layout.
    pub file: usize,
    /// Position of the block in the file.
    pub block: usize,
    /// The block's length in bytes.
    pub bytes: u64,
}

/// Why a file or folder cannot be divided into stripes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// There is no block.
    #[error("it has no block")]
    Empty,
    /// A block has another length than HDFS-RAID expects at its position, for example because the file was made
    /// by `concat`. HDFS-RAID would look for the following blocks at wrong offsets.
    #[error("block {block} of {path} has {bytes} bytes instead of {expected}")]
    Ragged {
        /// The file.
        path: String,
        /// Position of the block in the file.
        block: usize,
        /// The block's length.
        bytes: u64,
        /// The expected length.
        expected: u64,
    },
    /// The block size cannot be divided into the code's sub-blocks.
    #[error(
        "blocks of {block_bytes} bytes cannot be divided into {sub_blocks} equal parts, as the code requires"
    )]
    SubBlocks {
        /// The block size.
        block_bytes: u64,
        /// The code's number of sub-blocks in a block.
        sub_blocks: usize,
    },
}

impl Layout {
    /// Returns the stripes of a file.
    ///
    /// # Errors
    /// [`LayoutError`].
    pub fn of_file(file: &File, codec: &Codec) -> Result<Self, LayoutError> {
        check_lengths(file)?;
        Self::of(listed(&[file]), file.block_bytes, codec)
    }

    /// Returns the stripes over several files of a folder, which are in [`listing_order`]. The blocks have the order of
    /// the record if it names exactly these blocks, or else that of the files. The block size is that of the largest block,
    /// rounded up to whole checksums.
    ///
    /// # Errors
    /// [`LayoutError`].
    ///
    /// # Panics
    /// If the files are in another order.
    pub fn of_folder(files: &[&File], record: Option<&Members>, codec: &Codec) -> Result<Self, LayoutError> {
        let is_in_order = |one: &&File, other: &&File| listing_order(&one.path, &other.path).is_le();
        assert!(files.is_sorted_by(is_in_order), "files in the order in which HDFS lists them");
        let members = in_order(files, record);
        let block_bytes = block_bytes_of(members.iter().map(|member| member.bytes));
        Self::of(members, block_bytes, codec)
    }

    /// Returns the stripes of a file, or of a folder as one file ([`Facts::source`](crate::Facts::source)).
    ///
    /// # Errors
    /// [`LayoutError`].
    pub fn of_source(source: &File, codec: &Codec) -> Result<Self, LayoutError> {
        match codec.scope {
            Scope::File => Self::of_file(source, codec),
            Scope::Folder => Self::of(listed(&[source]), source.block_bytes, codec),
        }
    }

    fn of(members: Vec<Member>, block_bytes: u64, codec: &Codec) -> Result<Self, LayoutError> {
        if members.is_empty() {
            return Err(LayoutError::Empty);
        }
        let sub_blocks = codec.code.sub_blocks();
        if !block_bytes.is_multiple_of(sub_blocks as u64) {
            return Err(LayoutError::SubBlocks { block_bytes, sub_blocks });
        }
        let (data_blocks, parity_blocks) = (codec.data_blocks(), codec.parity_blocks());
        Ok(Self { members, data_blocks, parity_blocks, block_bytes })
    }

    /// Returns the length of a block as the code sees it, which is also the length of each parity block and the
    /// block size of the parity file.
    pub fn block_bytes(&self) -> u64 {
        self.block_bytes
    }

    /// Returns all data blocks in order.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// Returns the data blocks of each stripe.
    pub fn stripes(&self) -> impl ExactSizeIterator<Item = &[Member]> {
        self.members.chunks(self.data_blocks)
    }

    /// Returns the positions in the parity file of the parity blocks of a stripe.
    pub fn parity_positions(&self, stripe: usize) -> std::ops::Range<usize> {
        let first = stripe * self.parity_blocks;
        first..first + self.parity_blocks
    }

    /// Returns the length of the parity file in bytes.
    pub fn parity_bytes(&self) -> u64 {
        (self.stripes().len() * self.parity_blocks) as u64 * self.block_bytes
    }
}

/// Returns the block size of a folder's parity, given the lengths of the data blocks.
pub(crate) fn block_bytes_of(lengths: impl Iterator<Item = u64>) -> u64 {
    lengths.max().unwrap_or(0).next_multiple_of(CHECKSUM_BYTES)
}

/// Checks that all blocks of a file except the last are full, as HDFS-RAID assumes.
///
/// # Errors
/// [`LayoutError::Ragged`].
pub(crate) fn check_lengths(file: &File) -> Result<(), LayoutError> {
    let mut left = file.bytes;
    for (at, block) in file.blocks.iter().enumerate() {
        let expected = left.min(file.block_bytes);
        if block.bytes != expected {
            let path = file.path.clone();
            return Err(LayoutError::Ragged { path, block: at, bytes: block.bytes, expected });
        }
        left -= expected;
    }
    if left > 0 {
        let (path, block) = (file.path.clone(), file.blocks.len());
        let expected = left.min(file.block_bytes);
        return Err(LayoutError::Ragged { path, block, bytes: 0, expected });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{Block, Owner, Storing};

    fn file(path: &str, block_bytes: u64, bytes: u64) -> File {
        let block = |at: u64| {
            let bytes = (bytes - at * block_bytes).min(block_bytes);
            Block { number: at as i64, stamp: 1, bytes, replicas: Vec::new() }
        };
        File {
            inode: 1,
            path: path.to_owned(),
            bytes,
            block_bytes,
            replication: 3,
            modified_ms: 0,
            owner: Owner::Superuser,
            storing: Storing::Replicated,
            is_open: false,
            blocks: (0..bytes.div_ceil(block_bytes)).map(block).collect(),
        }
    }

    fn codec(code: &str) -> Codec {
        Codec::new("c", code.parse().expect("a code"), "/p", Scope::File)
    }

    #[test]
    fn the_last_stripe_of_a_file_may_be_short() {
        let layout = Layout::of_file(&file("/f", 512, 512 * 23 - 100), &codec("rs-14-10-hdfs-raid"));
        let layout = layout.expect("full blocks");
        assert_eq!(layout.stripes().map(<[Member]>::len).collect::<Vec<_>>(), [10, 10, 3]);
        assert_eq!(layout.members()[22], Member { file: 0, block: 22, bytes: 412 });
        assert_eq!((layout.parity_positions(2), layout.parity_bytes()), (8..12, 12 * 512));
    }

    #[test]
    fn stripes_run_over_the_files_of_a_folder() {
        let files = [file("/d/a", 1024, 700), file("/d/b", 2048, 5000), file("/d/c", 4096, 1)];
        let layout = Layout::of_folder(&files.each_ref(), None, &codec("xor-3-2")).expect("full blocks");
        assert_eq!(layout.block_bytes(), 2048);
        let members: Vec<_> = layout.members().iter().map(|member| (member.file, member.block)).collect();
        assert_eq!(members, [(0, 0), (1, 0), (1, 1), (1, 2), (2, 0)]);
        // The largest block has 700 bytes, which is two pieces with checksums.
        let small = Layout::of_folder(&[&files[0], &files[2]], None, &codec("xor-3-2")).expect("full blocks");
        assert_eq!((small.block_bytes(), small.parity_bytes()), (1024, 1024));
    }

    #[test]
    fn other_files_are_refused() {
        let rs = codec("rs-14-10-hdfs-raid");
        assert_eq!(Layout::of_file(&file("/f", 512, 0), &rs), Err(LayoutError::Empty));
        let mut joined = file("/f", 512, 1500);
        joined.blocks[0].bytes = 500;
        let error = Layout::of_file(&joined, &rs).expect_err("a short block").to_string();
        assert_eq!(error, "block 0 of /f has 500 bytes instead of 512");
        let mut lacking = file("/f", 512, 1500);
        lacking.blocks.pop();
        let error = Layout::of_file(&lacking, &rs).expect_err("no third block").to_string();
        assert_eq!(error, "block 2 of /f has 0 bytes instead of 476");
        let error = Layout::of_file(&file("/f", 516, 1500), &codec("clay-6-4-5"));
        let expected = "blocks of 516 bytes cannot be divided into 8 equal parts, as the code requires";
        assert_eq!(error.map_err(|error| error.to_string()), Err(expected.to_owned()));
    }

    proptest! {
        /// The slow reference deals the blocks out one by one.
        #[test]
        fn stripes_agree_with_the_slow_reference(
            lengths in prop::collection::vec(0_u64..4000, 1..8),
            k in 1_usize..6,
        ) {
            let paths: Vec<String> = (0..lengths.len()).map(|at| format!("/d/{at}")).collect();
            let files: Vec<File> = paths.iter().zip(&lengths).map(|(path, &bytes)| file(path, 512, bytes)).collect();
            let files: Vec<&File> = files.iter().collect();
            let codec = codec(&format!("rs-{}-{k}", k + 2));
            let Ok(layout) = Layout::of_folder(&files, None, &codec) else {
                prop_assert!(lengths.iter().all(|&bytes| bytes == 0));
                return Ok(());
            };
            let (mut stripe, mut index) = (0, 0);
            for (at, file) in files.iter().enumerate() {
                for block in 0..file.blocks.len() {
                    if index == k {
                        (stripe, index) = (stripe + 1, 0);
                    }
                    let member = layout.stripes().nth(stripe).expect("a stripe")[index];
                    prop_assert_eq!((member.file, member.block, member.bytes), (at, block, file.blocks[block].bytes));
                    index += 1;
                }
            }
            prop_assert_eq!(layout.stripes().len(), stripe + 1);
            prop_assert_eq!(layout.parity_bytes(), (stripe as u64 + 1) * 2 * layout.block_bytes());
        }
    }
}
