//! [`Members`]: the record of the blocks from which the parity of a folder was made.
//!
//! The record is an attribute of the parity file. Stripes are those of the record, even if files were renamed since. So a
//! stripe can still be decoded after other files of the folder were deleted, renamed or changed. HDFS never gives the number
//! of a block to another one, and gives a block a new stamp when its bytes change.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::{Block, File, Fingerprint, Member};

/// The longest record in bytes. HDFS refuses attributes above 16 KiB, including their names
/// (`dfs.namenode.fs-limits.max-xattr-size`).
const MOST_BYTES: usize = 16_000;
/// Lengths above this are no blocks of HDFS, and would overflow the length of the parity.
const MOST_BLOCK_BYTES: u64 = 1 << 40;
/// The version of the record's text.
const VERSION: &str = "1";

/// The data blocks of parity, in the order of the stripes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Members(Vec<RecordedBlock>);

/// A data block as it was when the parity was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordedBlock {
    number: i64,
    stamp: u64,
    pub(crate) bytes: u64,
}

impl Members {
    /// Returns the record of these blocks.
    pub fn of<'a>(blocks: impl IntoIterator<Item = &'a Block>) -> Self {
        let recorded =
            |block: &Block| RecordedBlock { number: block.number, stamp: block.stamp, bytes: block.bytes };
        Self(blocks.into_iter().map(recorded).collect())
    }

    /// Parses a record; `None` if this version of Mend did not write it.
    pub fn parse(text: &str) -> Option<Self> {
        let blocks = text.strip_prefix(VERSION)?.strip_prefix(' ')?;
        let mut last = RecordedBlock { number: 0, stamp: 0, bytes: 0 };
        let block = |text: &str| {
            last = last.following(text)?;
            Some(last)
        };
        let blocks: Vec<RecordedBlock> = blocks.split(',').map(block).collect::<Option<_>>()?;
        let numbers: BTreeSet<i64> = blocks.iter().map(|block| block.number).collect();
        (numbers.len() == blocks.len()).then_some(Self(blocks))
    }

    /// Whether HDFS stores the record as an attribute.
    pub(crate) fn fits(&self) -> bool {
        self.to_string().len() <= MOST_BYTES
    }

    /// Returns the fingerprint of the blocks.
    pub(crate) fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of_names(self.0.iter().map(|block| (block.number, block.stamp, block.bytes)))
    }

    pub(crate) fn blocks(&self) -> &[RecordedBlock] {
        &self.0
    }

    /// Whether a file has one of the blocks, as it was.
    pub fn are_in(&self, file: &File) -> bool {
        self.find(&[file]).iter().any(Option::is_some)
    }

    /// Returns the place of each block in these files; `None` if no file has the block as it was.
    pub(crate) fn find(&self, files: &[&File]) -> Vec<Option<Member>> {
        let places: BTreeMap<i64, Member> =
            listed(files).into_iter().map(|place| (block_at(files, place).number, place)).collect();
        let find = |block: &RecordedBlock| {
            let place = places.get(&block.number).copied()?;
            (block_at(files, place).stamp == block.stamp && place.bytes == block.bytes).then_some(place)
        };
        self.0.iter().map(find).collect()
    }
}

impl RecordedBlock {
    /// Parses a block that follows this one in a record.
    fn following(self, text: &str) -> Option<Self> {
        let mut parts = text.split('.');
        let (number, stamp, bytes) = (parts.next()?, parts.next()?, parts.next()?);
        if parts.next().is_some() {
            return None;
        }
        let step = |text: &str| if text.is_empty() { Some(1) } else { text.parse::<i64>().ok() };
        let bytes = if bytes.is_empty() { self.bytes } else { bytes.parse().ok()? };
        (bytes <= MOST_BLOCK_BYTES).then_some(Self {
            number: self.number.checked_add(step(number)?)?,
            stamp: self.stamp.checked_add_signed(step(stamp)?)?,
            bytes,
        })
    }
}

/// Writes for each block `NUMBER.STAMP.BYTES`: number and stamp as differences from the block before, which are left out if
/// they are 1; and the length, which is left out if it is that of the block before.
impl fmt::Display for Members {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let step = |step: i64| if step == 1 { String::new() } else { step.to_string() };
        let mut before = RecordedBlock { number: 0, stamp: 0, bytes: 0 };
        for (at, block) in self.0.iter().enumerate() {
            let number = step(block.number.wrapping_sub(before.number));
            let stamp = step(block.stamp.wrapping_sub(before.stamp) as i64);
            let bytes = if block.bytes == before.bytes { String::new() } else { block.bytes.to_string() };
            let start = if at == 0 { format!("{VERSION} ") } else { ",".to_owned() };
            write!(f, "{start}{number}.{stamp}.{bytes}")?;
            before = *block;
        }
        Ok(())
    }
}

/// Returns the blocks of files in the order of the files.
pub(crate) fn listed(files: &[&File]) -> Vec<Member> {
    let blocks = |(file, found): (usize, &&File)| {
        let member = move |(block, bytes)| Member { file, block, bytes };
        let lengths: Vec<u64> = found.blocks.iter().map(|block| block.bytes).collect();
        lengths.into_iter().enumerate().map(member)
    };
    files.iter().enumerate().flat_map(blocks).collect()
}

/// Returns the blocks of files in the order of their stripes: that of the record if it names exactly these blocks, or else
/// that of the files.
pub(crate) fn in_order(files: &[&File], record: Option<&Members>) -> Vec<Member> {
    let listed = listed(files);
    let same = record.filter(|record| record.0.len() == listed.len());
    let recorded = same.and_then(|record| record.find(files).into_iter().collect::<Option<Vec<_>>>());
    recorded.unwrap_or(listed)
}

pub(crate) fn block_at<'a>(files: &[&'a File], place: Member) -> &'a Block {
    &files[place.file].blocks[place.block]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{Owner, Storing};

    fn block(number: i64, stamp: u64, bytes: u64) -> Block {
        Block { number, stamp, bytes, replicas: Vec::new() }
    }

    fn file(path: &str, blocks: Vec<Block>) -> File {
        File {
            inode: 1,
            path: path.to_owned(),
            bytes: blocks.iter().map(|block| block.bytes).sum(),
            block_bytes: 512,
            replication: 1,
            modified_ms: 0,
            owner: Owner::Superuser,
            storing: Storing::Replicated,
            is_open: false,
            blocks,
        }
    }

    /// `ParityRecordTest` in `java/hdfs` reads the same text.
    #[test]
    fn a_record_is_short_and_parsed_as_written() {
        let blocks =
            [block(1_073_741_825, 1001, 512), block(1_073_741_826, 1002, 512), block(1_073_741_824, 1005, 9)];
        let record = Members::of(&blocks);
        assert_eq!(record.to_string(), "1 1073741825.1001.512,..,-2.3.9");
        assert_eq!(Members::parse(&record.to_string()), Some(record.clone()));
        assert_eq!(record.fingerprint(), Fingerprint::of(&blocks));
        assert_eq!(record.fingerprint().to_string(), Fingerprint::of(&blocks).to_string());
        for text in [
            "",
            "1",
            "1 ",
            "2 1.1.1",
            "1 1.1",
            "1 1.1.1.1",
            "1 1.x.1",
            "1 1.-1.1",
            "1 5.5.5,0..",
            "1 1.1.2000000000000",
        ] {
            assert_eq!(Members::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_record_that_hdfs_would_refuse_does_not_fit() {
        let files = |count: i64| {
            Members::of(&(0..count).map(|at| block(at, 7, 20_000 + at as u64)).collect::<Vec<_>>())
        };
        assert!(files(1000).fits() && !files(2000).fits());
    }

    #[test]
    fn blocks_are_found_under_any_name_unless_they_have_changed() {
        let old = [block(1, 11, 512), block(2, 12, 40), block(3, 13, 512), block(4, 14, 512)];
        let record = Members::of(&old);
        let renamed = file("/d/z", vec![old[0].clone(), block(2, 20, 60)]);
        let longer = file("/d/a", vec![block(4, 14, 511), block(9, 21, 512)]);
        let place = Member { file: 1, block: 0, bytes: 512 };
        assert_eq!(record.find(&[&longer, &renamed]), [Some(place), None, None, None]);
        assert_eq!([record.are_in(&renamed), record.are_in(&longer)], [true, false]);
    }

    proptest! {
        /// Blocks keep their stripes when their files are renamed; the blocks of other files have the order of the listing.
        #[test]
        fn the_order_is_that_of_the_record_for_the_same_blocks(
            lengths in prop::collection::vec(1_usize..4, 1..6),
            rotation in 0_usize..6,
            is_changed in any::<bool>(),
        ) {
            let mut number = 0;
            let mut create = |(at, &blocks): (usize, &usize)| {
                let blocks = (0..blocks).map(|_| { number += 3; block(number, 7, 100) }).collect();
                file(&format!("/d/{at}"), blocks)
            };
            let files: Vec<File> = lengths.iter().enumerate().map(&mut create).collect();
            let record = Members::of(files.iter().flat_map(|file| &file.blocks));
            let text = record.to_string();
            prop_assert_eq!(Members::parse(&text), Some(record.clone()));
            let mut renamed = files.clone();
            renamed.rotate_left(rotation % files.len());
            if is_changed {
                renamed[0].blocks[0].stamp += 1;
            }
            let renamed: Vec<&File> = renamed.iter().collect();
            let order = in_order(&renamed, Some(&record));
            let numbers: Vec<i64> = order.iter().map(|&place| block_at(&renamed, place).number).collect();
            let expected: Vec<i64> = match is_changed {
                true => renamed.iter().flat_map(|file| &file.blocks).map(|block| block.number).collect(),
                false => record.0.iter().map(|block| block.number).collect(),
            };
            prop_assert_eq!(numbers, expected);
        }
    }
}
