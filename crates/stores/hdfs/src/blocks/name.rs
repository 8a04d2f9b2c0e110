//! HDFS's names of replicas: the number of the block and its generation stamp.

use std::fmt;
use std::str::FromStr;

use codes::BlockIndex;
use repair::BlockId;

/// Selects the low bits of a striped block's number, which are the block's index in the group.
const INDEX_MASK: i64 = 15;
/// Maximum number of blocks in a group; indices are 0 to 15.
pub const MAX_BLOCKS_IN_GROUP: u16 = 16;

/// The name of a replica in Mend, such as `blk_-9223372036854775792_1001`: the block's number and generation
/// stamp, as HDFS writes them. A block that is rewritten after a failure gets a higher stamp, so leftovers of
/// an earlier writer are never mistaken for the new block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReplicaName {
    block: i64,
    stamp: u64,
}

/// The text is not the name of a replica.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "`{0}` is not an HDFS replica: names are like `blk_-9223372036854775792_1001`, number and generation stamp"
)]
pub struct NotAReplica(pub String);

impl ReplicaName {
    /// Creates the name of a block's replica. Returns `None` if the stamp does not fit into 63 bits.
    pub fn new(block: i64, stamp: u64) -> Option<Self> {
        i64::try_from(stamp).is_ok().then_some(Self { block, stamp })
    }

    /// Creates the name of the internal block `index` of the group `group`; `None` if the number or the index
    /// is invalid.
    pub fn internal(group: i64, stamp: u64, index: BlockIndex) -> Option<Self> {
        let fits = group < 0 && group & INDEX_MASK == 0 && index.0 < MAX_BLOCKS_IN_GROUP;
        Self::new(group | i64::from(index.0), stamp).filter(|_| fits)
    }

    /// Returns the block's number.
    pub fn block(&self) -> i64 {
        self.block
    }

    /// Returns the block's generation stamp.
    pub fn stamp(&self) -> u64 {
        self.stamp
    }

    /// Returns the number of the block's group, and its index in the group; `None` if the block is not
    /// striped.
    pub fn place(&self) -> Option<(i64, BlockIndex)> {
        let index = BlockIndex((self.block & INDEX_MASK) as u16);
        (self.block < 0).then_some((self.block & !INDEX_MASK, index))
    }

    /// Whether the two names denote different blocks of the same group.
    pub(super) fn is_beside(&self, other: &Self) -> bool {
        let group = |name: &Self| name.place().map(|(group, _)| group);
        self.block != other.block && group(self).is_some() && group(self) == group(other)
    }

    /// Returns the name as a block id.
    pub fn block_id(&self) -> BlockId {
        BlockId(self.to_string())
    }

    /// Returns the name of the file with the block's bytes.
    pub(super) fn file(&self) -> String {
        format!("blk_{}", self.block)
    }

    /// Returns the name of the checksum file.
    pub(super) fn meta_file(&self) -> String {
        format!("{self}.meta")
    }

    /// Parses the name of a checksum file into its replica.
    pub(super) fn of_meta_file(name: &str) -> Option<Self> {
        name.strip_suffix(".meta")?.parse().ok()
    }

    /// Returns the numbers of the two nested folders that contain the replica.
    pub(super) fn folders(&self) -> [u8; 2] {
        [16, 8].map(|shift| (self.block >> shift & 0x1f) as u8)
    }

    fn parse(text: &str) -> Option<Self> {
        let (block, stamp) = text.strip_prefix("blk_")?.split_once('_')?;
        let name = Self::new(block.parse().ok()?, stamp.parse().ok()?)?;
        // Only the canonical form is accepted; `blk_+1_2` and `blk_01_2` are names of other files.
        (name.to_string() == text).then_some(name)
    }
}

impl fmt::Display for ReplicaName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "blk_{}_{}", self.block, self.stamp)
    }
}

impl FromStr for ReplicaName {
    type Err = NotAReplica;

    fn from_str(text: &str) -> Result<Self, NotAReplica> {
        Self::parse(text).ok_or_else(|| NotAReplica(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_of_other_files_are_refused() {
        for text in [
            "",
            "blk_",
            "blk_1",
            "blk_1_",
            "blk__1",
            "blk_1_2_3",
            "blk_1_-2",
            "blk_+1_2",
            "blk_01_2",
            "blk_1_02",
            "blk_-0_1",
            "blk_9223372036854775808_1",
            "blk_1_9223372036854775808",
            "BLK_1_2",
            "blk_1_2.meta",
            "blk_1_2 ",
            "../blk_1_2",
        ] {
            assert_eq!(text.parse::<ReplicaName>(), Err(NotAReplica(text.to_owned())), "{text}");
        }
    }

    #[test]
    fn internal_blocks_have_the_folders_of_hdfs() {
        let name = ReplicaName::internal(-9_223_372_036_854_710_256, 1003, BlockIndex(5)).expect("a group");
        assert_eq!(name.to_string(), "blk_-9223372036854710251_1003");
        assert_eq!(name.folders(), [1, 0]);
        assert_eq!(name.place(), Some((-9_223_372_036_854_710_256, BlockIndex(5))));
        assert_eq!(ReplicaName::internal(-9_223_372_036_854_710_255, 1003, BlockIndex(5)), None);
        assert_eq!(ReplicaName::internal(-16, 1003, BlockIndex(16)), None);
        assert_eq!(ReplicaName::internal(16, 1003, BlockIndex(0)), None);
        assert_eq!(ReplicaName::new(1_073_741_825, 1001).expect("a block").place(), None);
    }

    #[test]
    fn blocks_of_replicated_files_are_of_no_group() {
        let [one, other] =
            [1_073_741_824, 1_073_741_825].map(|block| ReplicaName::new(block, 1001).expect("a block"));
        assert_eq!(one.block() & !INDEX_MASK, other.block() & !INDEX_MASK, "as if they were of one group");
        assert!(!one.is_beside(&other) && !other.is_beside(&one));
        let [one, other] =
            [0, 1].map(|index| ReplicaName::internal(-32, 1001, BlockIndex(index)).expect("a block"));
        assert!(one.is_beside(&other) && !one.is_beside(&one));
    }

    proptest! {
        #[test]
        fn a_name_reads_back(block: i64, stamp in 0..=i64::MAX as u64) {
            let name = ReplicaName::new(block, stamp).expect("it fits");
            prop_assert_eq!(name.to_string().parse(), Ok(name));
            prop_assert_eq!(ReplicaName::of_meta_file(&name.meta_file()), Some(name));
        }

        #[test]
        fn any_text_is_refused_or_reads_back(text in "blk_[-+0-9]{0,4}_[-+0-9]{0,3}") {
            if let Ok(name) = text.parse::<ReplicaName>() {
                prop_assert_eq!(name.to_string(), text);
            }
        }
    }
}
