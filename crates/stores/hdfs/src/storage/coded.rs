//! [`Coded`]: the blocks of a stripe, which HDFS has either as a block group or as blocks of a raided file.

use std::sync::Arc;

use codes::{BlockIndex, CodeSpec};
use hdfs_raid::{Block, DataBlock, File, Fingerprint, NodeIndex, RaidedSource, RaidedStripe, Storing};
use repair::{NodeId, StripeId};

use super::recounts::Count;
use crate::blocks::{BlockGroup, GroupBlock, GroupStripe, MAX_BLOCKS_IN_GROUP, ReplicaName};
use crate::listing::{FileRef, Range};

/// The blocks of a stripe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Coded {
    /// A group of a file that HDFS erasure-codes.
    Group(BlockGroup),
    /// Blocks of a raided file, or of the files of a folder, and their parity.
    Raid(Arc<RaidStripe>),
}

/// A stripe of a raided file or folder: blocks of its files, and blocks of its parity file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RaidStripe {
    /// The code: that of the codec, without the data blocks that the stripe lacks, or that do not exist any more.
    pub code: Arc<CodeSpec>,
    /// Length of a block for the code; shorter blocks are padded with zeros.
    pub block_bytes: u64,
    /// The inode number of the file or folder.
    pub source: u64,
    /// The places of the data blocks, in order.
    pub data: Vec<Extent>,
    /// The place of the parity blocks.
    pub parity: Extent,
    /// The data blocks, then the parity blocks.
    pub blocks: Vec<RaidBlock>,
}

/// Consecutive blocks of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    /// The inode number of the file.
    pub inode: u64,
    /// The offset in the file at which the first block starts.
    pub start: u64,
    /// Number of blocks.
    pub blocks: usize,
}

/// A block of a raided file or of a parity file. Its number is positive, unlike that of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RaidBlock {
    pub number: i64,
    pub stamp: u64,
    pub bytes: u64,
}

impl From<BlockGroup> for Coded {
    fn from(group: BlockGroup) -> Self {
        Self::Group(group)
    }
}

impl Coded {
    /// Returns the number by which the stripe is kept: that of the group, which is negative, or that of the
    /// first data block of a raided file, which is positive.
    pub fn number(&self) -> i64 {
        match self {
            Self::Group(group) => group.number,
            Self::Raid(stripe) => stripe.number(),
        }
    }

    /// Returns the stripe's name. It changes when a block of the stripe is replaced, or ceases to exist.
    pub fn stripe_id(&self) -> StripeId {
        match self {
            Self::Group(group) => group.stripe_id(),
            Self::Raid(stripe) => stripe.stripe_id(),
        }
    }

    /// Returns the blocks and their code; `None` if HDFS has no such blocks.
    pub fn stripe(&self) -> Option<GroupStripe> {
        match self {
            Self::Group(group) => group.stripe(),
            Self::Raid(stripe) => stripe.shape(),
        }
    }

    /// Returns the number by which the NameNode's lists of losses name a block: that of the group, or that of
    /// the block itself in a raided file.
    ///
    /// # Panics
    /// If a raided stripe has no such block.
    pub fn listed_number(&self, index: u8) -> i64 {
        match self {
            Self::Group(group) => group.number,
            Self::Raid(stripe) => stripe.blocks[usize::from(index)].number,
        }
    }

    /// Returns the number of the block with this index.
    ///
    /// # Panics
    /// If a raided stripe has no such block.
    pub fn block_number(&self, index: u8) -> i64 {
        match self {
            Self::Group(group) => group.number + i64::from(index),
            Self::Raid(_) => self.listed_number(index),
        }
    }

    /// Returns the blocks of a raided file; `None` for a group.
    pub fn raid(&self) -> Option<&Arc<RaidStripe>> {
        match self {
            Self::Group(_) => None,
            Self::Raid(stripe) => Some(stripe),
        }
    }
}

/// Whether a number is that of a stripe of a raided file, or of one of its blocks.
pub(super) fn is_raid(number: i64) -> bool {
    number >= 0
}

/// Returns the number of the group that contains a block; `None` for a block of a raided file.
pub(super) fn group_of(block: i64) -> Option<i64> {
    (!is_raid(block)).then_some(block & !(i64::from(MAX_BLOCKS_IN_GROUP) - 1))
}

/// Parses a stripe's number from its name.
pub(super) fn number_of(stripe: &StripeId) -> Option<i64> {
    let rest = stripe.0.strip_prefix("group_").or_else(|| stripe.0.strip_prefix("raid_"))?;
    rest.split_once('_')?.0.parse().ok()
}

impl RaidStripe {
    /// Returns a listed stripe of a file or folder with this code.
    pub fn new(source: &RaidedSource<'_>, stripe: &RaidedStripe<'_>, code: Arc<CodeSpec>) -> Self {
        let data = stripe.data.iter().map(|data| data.block);
        let (inode, start) = (source.parity.inode, stripe.parity_start);
        Self {
            code,
            block_bytes: stripe.block_bytes,
            source: source.inode,
            data: extents(&stripe.data),
            parity: Extent { inode, start, blocks: stripe.parity.len() },
            blocks: data.chain(stripe.parity).map(RaidBlock::of).collect(),
        }
    }

    fn number(&self) -> i64 {
        self.blocks[0].number
    }

    /// Returns the name. If data blocks do not exist any more, the others have lower indices than before, although none of
    /// them was replaced. So the name also has the fingerprint of the data blocks that exist. `RaidStripe` in `java/hdfs`
    /// has the same rule.
    fn stripe_id(&self) -> StripeId {
        let name = format!("raid_{}_{}", self.number(), self.newest_stamp());
        let data = &self.blocks[..self.blocks.len() - self.parity.blocks];
        if self.code.data_blocks() == data.len() {
            return StripeId(name);
        }
        let data: Vec<Block> = data.iter().map(RaidBlock::without_replicas).collect();
        StripeId(format!("{name}_{}", Fingerprint::of(&data)))
    }

    /// Returns the highest generation stamp. A block that is written, truncated or replaced gets a higher one
    /// than any other has.
    fn newest_stamp(&self) -> u64 {
        self.blocks.iter().map(|block| block.stamp).max().unwrap_or_default()
    }

    fn shape(&self) -> Option<GroupStripe> {
        let blocks = self.blocks.iter().zip((0..).map(BlockIndex)).map(|(block, index)| {
            let name = ReplicaName::new(block.number, block.stamp)?;
            Some(GroupBlock { name, index, bytes: block.bytes })
        });
        let code = CodeSpec::clone(&self.code);
        Some(GroupStripe { code, block_bytes: self.block_bytes, blocks: blocks.collect::<Option<_>>()? })
    }

    /// Returns the offset at which the stripe starts in its first file.
    pub fn start(&self) -> u64 {
        self.data.first().map_or(0, |extent| extent.start)
    }

    /// Returns the places of all blocks, in order.
    fn extents(&self) -> impl Iterator<Item = Extent> + '_ {
        self.data.iter().copied().chain([self.parity])
    }

    /// Returns the ranges of files in which the blocks are, in order.
    pub fn ranges(&self) -> Vec<Range> {
        let mut blocks = self.blocks.iter();
        let range = |extent: Extent| Range {
            file: extent.file(),
            start: extent.start,
            bytes: blocks.by_ref().take(extent.blocks).map(|block| block.bytes).sum(),
        };
        self.extents().map(range).collect()
    }

    /// Returns where a block is: its file, its offset, and its length.
    pub fn range_of(&self, at: usize) -> Option<Range> {
        let bytes = self.blocks.get(at)?.bytes;
        let mut first = 0;
        for extent in self.extents() {
            if at < first + extent.blocks {
                let before: u64 = self.blocks[first..at].iter().map(|block| block.bytes).sum();
                return Some(Range { file: extent.file(), start: extent.start + before, bytes });
            }
            first += extent.blocks;
        }
        None
    }

    /// Whether a block is parity.
    pub fn is_parity(&self, at: usize) -> bool {
        at >= self.blocks.len() - self.parity.blocks
    }

    /// Returns the positions of the blocks in the same file as this one.
    pub fn in_same_file(&self, at: usize) -> Vec<usize> {
        let inodes: Vec<u64> =
            self.extents().flat_map(|extent| std::iter::repeat_n(extent.inode, extent.blocks)).collect();
        (0..inodes.len()).filter(|&other| inodes.get(at) == Some(&inodes[other])).collect()
    }

    /// Returns the holders of all blocks from an answer to a query for [`ranges`](Self::ranges), and how many
    /// replicas there should be; `None` if the parity does not protect these blocks any more. The listing of the
    /// files has decided whether they have valid parity, which then holds as long as the blocks are the same.
    pub fn homes_in(&self, files: &[File]) -> Option<(Vec<(u8, NodeIndex)>, Replication)> {
        let is_usable = |file: &File| file.storing == Storing::Replicated && !file.is_open;
        let found: Vec<&Block> = files.iter().flat_map(|file| &file.blocks).collect();
        let is_same = files.iter().map(|file| file.inode).eq(self.extents().map(|extent| extent.inode))
            && files.iter().all(is_usable)
            && found.iter().map(|block| RaidBlock::of(block)).eq(self.blocks.iter().copied());
        is_same.then(|| (homes(&found), Replication::of(files)))
    }
}

impl Extent {
    fn file(self) -> FileRef {
        FileRef { inode: self.inode, held_at: None }
    }
}

/// Returns the places of data blocks.
fn extents(blocks: &[DataBlock<'_>]) -> Vec<Extent> {
    let (mut extents, mut end) = (Vec::<Extent>::new(), 0);
    for DataBlock { file, start, block } in blocks {
        match extents.last_mut() {
            Some(last) if last.inode == file.inode && end == *start => last.blocks += 1,
            _ => extents.push(Extent { inode: file.inode, start: *start, blocks: 1 }),
        }
        end = start + block.bytes;
    }
    extents
}

/// The replication of the files of a stripe, extent by extent; that of the parity is the last one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Replication(Vec<u16>);

impl Replication {
    /// Returns the replication of these files, one for each extent of a stripe.
    pub fn of<'a>(files: impl IntoIterator<Item = &'a File>) -> Self {
        Self(files.into_iter().map(|file| file.replication).collect())
    }

    /// Returns how many replicas each block of a stripe should have.
    fn due<'a>(&'a self, stripe: &'a RaidStripe) -> impl Iterator<Item = u16> + 'a {
        let extents = self.0.iter().zip(stripe.extents());
        extents.flat_map(|(&due, extent)| std::iter::repeat_n(due, extent.blocks))
    }

    /// Compares the listed replicas of a stripe's blocks. Replicas that HDFS may or may not count, on DataNodes
    /// that are being taken out of service, agree with either number.
    pub fn count(
        &self,
        stripe: &RaidStripe,
        homes: &[(u8, NodeId)],
        counts: impl Fn(NodeId) -> bool,
    ) -> Count {
        let mut is_short = false;
        for (due, index) in self.due(stripe).zip(0_u8..) {
            let listed = homes.iter().filter(|&&(other, _)| other == index);
            if listed.clone().filter(|&&(_, node)| counts(node)).count() > due.into() {
                return Count::Surplus;
            }
            is_short |= listed.count() < due.into();
        }
        if is_short { Count::Short } else { Count::Agreed }
    }
}

impl RaidBlock {
    fn of(block: &Block) -> Self {
        Self { number: block.number, stamp: block.stamp, bytes: block.bytes }
    }

    fn without_replicas(&self) -> Block {
        let Self { number, stamp, bytes } = *self;
        Block { number, stamp, bytes, replicas: Vec::new() }
    }
}

/// Returns the holders of listed blocks.
pub(super) fn homes(blocks: &[&Block]) -> Vec<(u8, NodeIndex)> {
    let indexed = (0_u8..=u8::MAX).zip(blocks);
    indexed.flat_map(|(index, block)| block.replicas.iter().map(move |&node| (index, node))).collect()
}

#[cfg(test)]
mod tests {
    use hdfs_raid::{Codec, Owner};

    use super::*;

    fn block(number: i64, stamp: u64, bytes: u64, nodes: &[usize]) -> Block {
        let replicas = nodes.iter().copied().map(NodeIndex).collect();
        Block { number, stamp, bytes, replicas }
    }

    fn file(inode: u64, blocks: Vec<Block>) -> File {
        File {
            inode,
            path: String::new(),
            bytes: 0,
            block_bytes: 512,
            replication: 1,
            modified_ms: 9,
            owner: Owner::Superuser,
            storing: Storing::Replicated,
            is_open: false,
            blocks,
        }
    }

    /// The second stripe of a file with three data blocks in a stripe; it has only two.
    fn stripe() -> RaidStripe {
        let codec = Codec::new("c", "rs-5-3".parse().expect("a code"), "/p", hdfs_raid::Scope::File);
        let raid = |number, stamp, bytes| RaidBlock { number, stamp, bytes };
        RaidStripe {
            code: Arc::new(codec.punctured(2, &[]).expect("a code")),
            block_bytes: 512,
            source: 16,
            data: vec![Extent { inode: 16, start: 1536, blocks: 2 }],
            parity: Extent { inode: 17, start: 1024, blocks: 2 },
            blocks: vec![raid(32, 1004, 512), raid(33, 1005, 7), raid(48, 1020, 512), raid(49, 1021, 512)],
        }
    }

    /// An answer of the NameNode about the stripe.
    fn files() -> Vec<File> {
        let data = vec![block(32, 1004, 512, &[0]), block(33, 1005, 7, &[])];
        vec![file(16, data), file(17, vec![block(48, 1020, 512, &[1, 2]), block(49, 1021, 512, &[0])])]
    }

    #[test]
    fn a_stripe_has_the_blocks_of_both_files() {
        let coded = Coded::Raid(Arc::new(stripe()));
        assert_eq!((coded.number(), coded.stripe_id().0.as_str()), (32, "raid_32_1021"));
        assert_eq!(number_of(&coded.stripe_id()), Some(32));
        assert_eq!((coded.block_number(3), group_of(49)), (49, None));
        assert_eq!([-32, -30, -17].map(group_of), [Some(-32); 3]);
        let shape = coded.stripe().expect("a stripe");
        assert_eq!((shape.code.blocks(), shape.code.data_blocks()), (4, 2));
        let names: Vec<String> = shape.blocks.iter().map(|block| block.name.to_string()).collect();
        assert_eq!(names, ["blk_32_1004", "blk_33_1005", "blk_48_1020", "blk_49_1021"]);
        let range = |at| {
            let range = stripe().range_of(at).expect("a block");
            (range.file.inode, range.start, range.bytes)
        };
        assert_eq!(
            [0, 1, 2, 3].map(range),
            [(16, 1536, 512), (16, 2048, 7), (17, 1024, 512), (17, 1536, 512)]
        );
        let ranges = stripe().ranges();
        let [data, parity] = &ranges[..] else { panic!("{ranges:?}") };
        assert_eq!([(data.start, data.bytes), (parity.start, parity.bytes)], [(1536, 519), (1024, 1024)]);
    }

    /// A stripe over a folder: block 32 of one file, two blocks of another one, and parity. Each file may have its own
    /// replication.
    #[test]
    fn a_stripe_may_run_over_several_files() {
        let raid = |number, bytes| RaidBlock { number, stamp: 1001, bytes };
        let stripe = RaidStripe {
            code: Arc::new("rs-5-3".parse().expect("a code")),
            block_bytes: 1024,
            source: 9,
            data: vec![
                Extent { inode: 16, start: 700, blocks: 1 },
                Extent { inode: 20, start: 0, blocks: 2 },
            ],
            parity: Extent { inode: 17, start: 2048, blocks: 2 },
            blocks: vec![raid(32, 9), raid(41, 700), raid(42, 5), raid(48, 1024), raid(49, 1024)],
        };
        let places = |range: &Range| (range.file.inode, range.start, range.bytes);
        assert_eq!(
            stripe.ranges().iter().map(places).collect::<Vec<_>>(),
            [(16, 700, 9), (20, 0, 705), (17, 2048, 2048)]
        );
        let of: Vec<_> = (0..5).map(|at| places(&stripe.range_of(at).expect("a block"))).collect();
        assert_eq!(of, [(16, 700, 9), (20, 0, 700), (20, 700, 5), (17, 2048, 1024), (17, 3072, 1024)]);
        assert_eq!(
            (stripe.in_same_file(2), stripe.is_parity(2), stripe.is_parity(3)),
            (vec![1, 2], false, true)
        );
        let found = |number, bytes| block(number, 1001, bytes, &[0]);
        let mut files = vec![
            file(16, vec![found(32, 9)]),
            file(20, vec![found(41, 700), found(42, 5)]),
            file(17, vec![found(48, 1024), found(49, 1024)]),
        ];
        files[1].replication = 2;
        let (homes, replication) = stripe.homes_in(&files).expect("valid");
        let homes: Vec<_> = homes.into_iter().map(|(index, node)| (index, NodeId(node.0 as u32))).collect();
        assert_eq!(replication.count(&stripe, &homes, |_| true), Count::Short, "of the second file");
        files[1].replication = 1;
        let (_, replication) = stripe.homes_in(&files).expect("valid");
        assert_eq!(replication.count(&stripe, &homes, |_| true), Count::Agreed);
        // The second file was deleted: the answer has no line about it.
        files.remove(1);
        assert_eq!(stripe.homes_in(&files), None);
    }

    /// Otherwise, a reader and the coordinator could mean different blocks by the same index.
    #[test]
    fn a_stripe_gets_another_name_when_a_data_block_ceases_to_exist() {
        let codec = Codec::new("c", "rs-5-3".parse().expect("a code"), "/p", hdfs_raid::Scope::Folder);
        let data = [(32, 1004), (33, 1005), (34, 1006)];
        let name = |gone: &[usize]| {
            let left = (0..data.len()).filter(|at| !gone.contains(at));
            let data: Vec<_> = left.map(|at| data[at]).collect();
            let blocks = data.iter().copied().chain([(48, 1020), (49, 1021)]);
            let stripe = RaidStripe {
                code: Arc::new(codec.punctured(3, gone).expect("a code")),
                block_bytes: 512,
                source: 9,
                data: data.iter().map(|_| Extent { inode: 16, start: 0, blocks: 1 }).collect(),
                parity: Extent { inode: 17, start: 0, blocks: 2 },
                blocks: blocks.map(|(number, stamp)| RaidBlock { number, stamp, bytes: 512 }).collect(),
            };
            Coded::Raid(Arc::new(stripe)).stripe_id()
        };
        assert_eq!(name(&[]).0, "raid_32_1021");
        let [second, third] = [name(&[1]), name(&[2])];
        assert!(
            second.0.starts_with("raid_32_1021_") && third.0.starts_with("raid_32_1021_"),
            "{second} {third}"
        );
        assert_ne!(second, third);
        assert_eq!(number_of(&second), Some(32));
    }

    #[test]
    fn replicas_are_compared_with_the_replication_of_each_file() {
        let count = |source, parity, homes: &[(u8, u32)]| {
            let homes: Vec<_> = homes.iter().map(|&(index, node)| (index, NodeId(node))).collect();
            // DataNode 9 is being taken out of service.
            Replication(vec![source, parity]).count(&stripe(), &homes, |node| node != NodeId(9))
        };
        let single = [(0, 1), (1, 2), (2, 3), (3, 4)];
        assert_eq!(count(1, 1, &single), Count::Agreed);
        assert_eq!([count(2, 1, &single), count(1, 2, &single)], [Count::Short; 2]);
        assert_eq!(count(1, 1, &single[1..]), Count::Short);
        let with = |more| [&single[..], &[more]].concat();
        assert_eq!([count(1, 1, &with((0, 5))), count(1, 1, &with((3, 5)))], [Count::Surplus; 2]);
        assert_eq!(count(1, 1, &with((0, 9))), Count::Agreed, "HDFS may keep it until the DataNode has left");
        assert_eq!(count(2, 1, &with((0, 5))), Count::Short, "block 1 lacks one");
        assert_eq!(count(2, 1, &[&single[..], &[(0, 5), (1, 9)]].concat()), Count::Agreed);
    }

    #[test]
    fn a_stripe_is_valid_while_nothing_has_changed() {
        let (homes, replication) = stripe().homes_in(&files()).expect("valid");
        assert_eq!(replication, Replication(vec![1, 1]));
        assert_eq!(homes, [(0, 0), (2, 1), (2, 2), (3, 0)].map(|(at, node)| (at, NodeIndex(node))));
        type Change = fn(&mut Vec<File>);
        let changes: [(&str, Change); 6] = [
            ("the parity is gone", |files| drop(files.pop())),
            ("it was replaced", |files| files[1].inode = 18),
            ("it is being appended to", |files| files[0].is_open = true),
            ("a block was truncated", |files| files[0].blocks[1] = block(33, 1030, 6, &[])),
            ("a block is gone", |files| drop(files[0].blocks.pop())),
            ("it is encrypted", |files| files[0].storing = Storing::Encrypted),
        ];
        let mut touched = files();
        touched[0].modified_ms = 10;
        assert!(stripe().homes_in(&touched).is_some(), "the blocks are the same");
        for (what, change) in changes {
            let mut files = files();
            change(&mut files);
            assert_eq!(stripe().homes_in(&files), None, "{what}");
        }
    }
}
