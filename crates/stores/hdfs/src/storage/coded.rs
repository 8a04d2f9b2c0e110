//! [`Coded`]: the blocks of a stripe, which HDFS has either as a block group or as blocks of a raided file.

use std::collections::BTreeMap;
use std::sync::Arc;

use codes::{BlockIndex, CodeSpec};
use hdfs_raid::{Block, Codec, File, NodeIndex, RaidedStripe, ShortenError, Storing};
use repair::{NodeId, StripeId};

use super::recounts::Count;
use crate::blocks::{BlockGroup, GroupBlock, GroupStripe, MAX_BLOCKS_IN_GROUP, ReplicaName};
use crate::listing::{FileRef, Range};

/// The blocks of a stripe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Coded {
    /// A group of a file that HDFS erasure-codes.
    Group(BlockGroup),
    /// Blocks of a raided file, and their parity.
    Raid(Arc<RaidStripe>),
}

/// A stripe of a raided file: blocks of the file, and blocks of its parity file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RaidStripe {
    /// The code, shortened if the stripe has fewer data blocks than the codec.
    pub code: Arc<CodeSpec>,
    /// Length of a block for the code; shorter blocks are padded with zeros.
    pub block_bytes: u64,
    /// The inode number of the file.
    pub source: u64,
    /// The offset in the file at which the stripe starts.
    pub start: u64,
    /// The inode number of the parity file.
    pub parity: u64,
    /// The offset in the parity file at which the stripe's parity starts.
    pub parity_start: u64,
    /// The data blocks, then the parity blocks.
    pub blocks: Vec<RaidBlock>,
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

    /// Returns the stripe's name. It changes when a block of the stripe is replaced.
    pub fn stripe_id(&self) -> StripeId {
        match self {
            Self::Group(group) => group.stripe_id(),
            Self::Raid(stripe) => StripeId(format!("raid_{}_{}", stripe.number(), stripe.newest_stamp())),
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
    /// Returns a listed stripe with this code.
    pub fn new(source: u64, parity: u64, stripe: &RaidedStripe<'_>, code: Arc<CodeSpec>) -> Self {
        let blocks = stripe.data.iter().chain(stripe.parity).map(RaidBlock::of).collect();
        let RaidedStripe { start, parity_start, block_bytes, .. } = *stripe;
        Self { code, block_bytes, source, start, parity, parity_start, blocks }
    }

    fn number(&self) -> i64 {
        self.blocks[0].number
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

    fn data(&self) -> usize {
        self.code.data_blocks()
    }

    /// Returns the data and the parity of the stripe.
    pub fn ranges(&self) -> [Range; 2] {
        let (data, parity) = self.blocks.split_at(self.data());
        let range = |inode, start, blocks: &[RaidBlock]| Range {
            file: FileRef { inode, held_at: None },
            start,
            bytes: blocks.iter().map(|block| block.bytes).sum(),
        };
        [range(self.source, self.start, data), range(self.parity, self.parity_start, parity)]
    }

    /// Returns where a block is: its file, its offset, and its length.
    pub fn range_of(&self, at: usize) -> Option<Range> {
        let bytes = self.blocks.get(at)?.bytes;
        let [data, parity] = self.ranges();
        let (part, position) = match at.checked_sub(self.data()) {
            None => (data, at),
            Some(position) => (parity, position),
        };
        Some(Range { start: part.start + position as u64 * self.block_bytes, bytes, ..part })
    }

    /// Whether a block is parity.
    pub fn is_parity(&self, at: usize) -> bool {
        at >= self.data()
    }

    /// Returns the holders of all blocks from an answer to a query for [`ranges`](Self::ranges), and how many
    /// replicas there should be; `None` if the parity does not protect these blocks any more. The listing of the
    /// files has decided whether they have valid parity, which then holds as long as the blocks are the same.
    pub fn homes_in(&self, files: &[File]) -> Option<(Vec<(u8, NodeIndex)>, Replication)> {
        let [source, parity] = files else { return None };
        let is_usable = |file: &File| file.storing == Storing::Replicated && !file.is_open;
        let found: Vec<&Block> = source.blocks.iter().chain(&parity.blocks).collect();
        let is_same = (source.inode, parity.inode) == (self.source, self.parity)
            && is_usable(source)
            && is_usable(parity)
            && found.iter().map(|block| RaidBlock::of(block)).eq(self.blocks.iter().copied());
        is_same.then(|| (homes(&found), Replication::of(source, parity)))
    }
}

/// The replication of a raided file and of its parity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Replication {
    pub source: u16,
    pub parity: u16,
}

impl Replication {
    /// Returns the replication of these files.
    pub fn of(source: &File, parity: &File) -> Self {
        Self { source: source.replication, parity: parity.replication }
    }

    /// Compares the listed replicas of a stripe's blocks. Replicas that HDFS may or may not count, on DataNodes
    /// that are being taken out of service, agree with either number.
    pub fn count(
        self,
        stripe: &RaidStripe,
        homes: &[(u8, NodeId)],
        counts: impl Fn(NodeId) -> bool,
    ) -> Count {
        let mut is_short = false;
        for (at, index) in (0..stripe.blocks.len()).zip(0_u8..) {
            let due = if stripe.is_parity(at) { self.parity } else { self.source };
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
}

/// Returns the holders of listed blocks.
pub(super) fn homes(blocks: &[&Block]) -> Vec<(u8, NodeIndex)> {
    let indexed = (0_u8..=u8::MAX).zip(blocks);
    indexed.flat_map(|(index, block)| block.replicas.iter().map(move |&node| (index, node))).collect()
}

/// The codes of stripes by codec and number of data blocks, so that each is computed once.
#[derive(Default)]
pub(super) struct ShortCodes(BTreeMap<(String, usize), Result<Arc<CodeSpec>, ShortenError>>);

impl ShortCodes {
    /// Returns the code of a stripe with this many data blocks.
    pub fn get(&mut self, codec: &Codec, data: usize) -> Result<Arc<CodeSpec>, ShortenError> {
        let code = self.0.entry((codec.name.clone(), data));
        code.or_insert_with(|| codec.shortened(data).map(Arc::new)).clone()
    }
}

#[cfg(test)]
mod tests {
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
            code: ShortCodes::default().get(&codec, 2).expect("a code"),
            block_bytes: 512,
            source: 16,
            start: 1536,
            parity: 17,
            parity_start: 1024,
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
        let [data, parity] = stripe().ranges();
        assert_eq!([(data.start, data.bytes), (parity.start, parity.bytes)], [(1536, 519), (1024, 1024)]);
    }

    #[test]
    fn replicas_are_compared_with_the_replication_of_each_file() {
        let count = |source, parity, homes: &[(u8, u32)]| {
            let homes: Vec<_> = homes.iter().map(|&(index, node)| (index, NodeId(node))).collect();
            // DataNode 9 is being taken out of service.
            Replication { source, parity }.count(&stripe(), &homes, |node| node != NodeId(9))
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
        assert_eq!(replication, Replication { source: 1, parity: 1 });
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
