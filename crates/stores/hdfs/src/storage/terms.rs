//! The [terms](BlockTerms) under which helpers rebuild the blocks of a group: the checksum format of the group's
//! other blocks, and the block tokens that DataNodes require for pushed blocks.
//!
//! A DataNode states the format. It is asked as soon as a group is known to lack blocks, so claims rarely wait for
//! it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use codes::BlockIndex;
use repair::{Permit, StripeId};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::coded::{Coded, RaidStripe};
use super::groups::Listed;
use super::state::HdfsSystem;
use crate::blocks::{BlockTerms, ChecksumFormat};
use crate::listing::{FileRef, Range};
use crate::namenode::{AskError, NameNode};

/// After DataNodes have not answered which checksum format a group has, none is asked for this long: a firewall may
/// make every question wait for its timeout.
const UNANSWERED_PAUSE: Duration = Duration::from_secs(60);
/// Number of questions for formats in flight, apart from those of claims.
const QUESTIONS: usize = 8;
/// Interval between checks whether the storage was dropped.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Number of groups whose formats are kept. Formats of further groups are asked for at each claim.
const KEPT: usize = 16_384;

/// The number and the generation stamp of a group, or of the first block of a file in a raided stripe.
type Key = (i64, u64);

/// The checksum formats of groups. All blocks of a group have the format with which its file was written, so
/// it stays valid until the group has another number or generation stamp. In a stripe of a raided file, the
/// parity may have another format than the data, and each file of a folder its own.
#[derive(Default)]
pub(super) struct Formats {
    /// The formats that DataNodes have stated.
    known: BTreeMap<Key, ChecksumFormat>,
    /// Groups that lack blocks, and were not asked for yet.
    wanted: BTreeSet<i64>,
    /// When DataNodes last did not answer; `None` if they answered since.
    failed: Option<Duration>,
}

impl Formats {
    /// Has the formats of these groups asked for, because blocks of them are about to be rebuilt.
    pub fn want(&mut self, groups: impl IntoIterator<Item = i64>) {
        self.wanted.extend(groups);
    }

    fn of(&self, key: Key) -> Option<ChecksumFormat> {
        self.known.get(&key).copied()
    }

    /// Whether no DataNode is asked now, because none has answered lately.
    fn is_paused(&self, now: Duration) -> bool {
        self.failed.is_some_and(|failed| now < failed + UNANSWERED_PAUSE)
    }

    /// Takes out groups whose formats are asked for next; none during a pause.
    fn take_wanted(&mut self, now: Duration, most: usize) -> Vec<i64> {
        if self.is_paused(now) {
            return Vec::new();
        }
        let next: Vec<i64> = self.wanted.iter().copied().take(most).collect();
        self.wanted.retain(|group| !next.contains(group));
        next
    }

    /// Records an answer.
    fn note(&mut self, key: Key, now: Duration, answer: &Result<Option<ChecksumFormat>, AskError>) {
        self.failed = answer.is_err().then_some(now);
        let Ok(Some(format)) = answer else { return };
        self.known.insert(key, *format);
        if self.known.len() > KEPT {
            self.known.pop_first();
        }
    }
}

/// Blocks of one file in a stripe, which have the same checksum format, and a block that a DataNode holds.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Alike {
    key: Key,
    /// The file, and the offset of the group or of the block that is held.
    file: FileRef,
    start: u64,
    blocks: Vec<BlockIndex>,
}

impl Listed {
    /// Returns these blocks of the stripe by file.
    fn alike(&self, blocks: &[BlockIndex]) -> Vec<Alike> {
        match &self.group {
            Coded::Group(group) => {
                let (file, start) = (self.file.clone(), self.start);
                vec![Alike { key: (group.number, group.stamp), file, start, blocks: blocks.to_vec() }]
            }
            Coded::Raid(stripe) => {
                let mut files: BTreeMap<usize, Vec<BlockIndex>> = BTreeMap::new();
                for &at in blocks {
                    let first = stripe.in_same_file(usize::from(at.0)).first().copied();
                    files.entry(first.unwrap_or_default()).or_default().push(at);
                }
                files.into_values().filter_map(|blocks| self.alike_in(stripe, blocks)).collect()
            }
        }
    }

    /// Describes blocks of one file in a raided stripe. If no DataNode holds a block of a small file, another file of the
    /// folder stands for it: usually the same programs have written both.
    fn alike_in(&self, stripe: &RaidStripe, blocks: Vec<BlockIndex>) -> Option<Alike> {
        let at = usize::from(blocks.first()?.0);
        let same = stripe.in_same_file(at);
        let first = *same.first()?;
        let others =
            (0..stripe.blocks.len()).filter(|&other| stripe.is_parity(other) == stripe.is_parity(at));
        let is_held = |&at: &usize| self.homes.iter().any(|&(index, _)| usize::from(index) == at);
        let held = same.iter().copied().chain(others).find(is_held).unwrap_or(first);
        let (key, Range { file, start, .. }) = (stripe.blocks[first], stripe.range_of(held)?);
        Some(Alike { key: (key.number, key.stamp), file, start, blocks })
    }
}

/// Returns the terms of these blocks, which have these checksum formats. They do not depend on the DataNode,
/// so the target of a block may change later.
pub(super) async fn permits(
    shared: &HdfsSystem,
    stripe: &StripeId,
    found: &Listed,
    blocks: &[BlockIndex],
    checksums: &BTreeMap<BlockIndex, ChecksumFormat>,
) -> Result<Vec<(BlockIndex, Permit)>, String> {
    let Some(namenode) = &shared.namenode else { return Ok(Vec::new()) };
    let indices: BTreeMap<u8, BlockIndex> = {
        let state = shared.state();
        let index = |&at: &BlockIndex| Some((state.view.groups().index_in_group(stripe, at)?, at));
        blocks.iter().filter_map(index).collect()
    };
    let asked: Vec<u8> = indices.keys().copied().collect();
    let mut tokens = tokens(shared, namenode, found, &asked).await?;
    let mut permits = Vec::new();
    for (index, at) in indices {
        let terms = BlockTerms { checksums: checksums.get(&at).copied(), token: tokens.remove(&index) };
        let permit = terms.to_permit().map_err(|error| error.to_string())?;
        permits.extend(permit.map(|permit| (at, permit)));
    }
    Ok(permits)
}

/// Returns the checksum formats of these blocks, except those that are not known, for which the configured
/// format is used. Asks a DataNode unless one has stated the format before.
pub(super) async fn checksums(
    shared: &HdfsSystem,
    listed: &Listed,
    blocks: &[BlockIndex],
) -> BTreeMap<BlockIndex, ChecksumFormat> {
    let mut formats = BTreeMap::new();
    for alike in listed.alike(blocks) {
        if let Some(format) = checksum(shared, listed, &alike).await {
            formats.extend(alike.blocks.into_iter().map(|at| (at, format)));
        }
    }
    formats
}

async fn checksum(shared: &HdfsSystem, listed: &Listed, alike: &Alike) -> Option<ChecksumFormat> {
    let namenode = shared.namenode.as_ref()?;
    {
        let formats = &shared.state().formats;
        let known = formats.of(alike.key);
        if known.is_some() || formats.is_paused(shared.now()) {
            return known;
        }
    }
    let answer = namenode.checksum(&alike.file, alike.start).await;
    shared.state().formats.note(alike.key, shared.now(), &answer);
    answer.unwrap_or_else(|error| {
        let stripe = listed.group.stripe_id();
        tracing::warn!(%stripe, %error, "no DataNode states the checksum format of a block group");
        None
    })
}

/// Asks for the checksum formats of groups that lack blocks, until the storage is dropped.
pub(super) async fn watch_formats(storage: Weak<HdfsSystem>) {
    loop {
        let Some(shared) = storage.upgrade() else { return };
        let _ = timeout(LOOK_EVERY, shared.lacking.notified()).await;
        if shared.unlisted().is_none() {
            ask_ahead(&shared).await;
        }
    }
}

async fn ask_ahead(shared: &Arc<HdfsSystem>) {
    loop {
        let wanted = shared.state().formats.take_wanted(shared.now(), QUESTIONS);
        if wanted.is_empty() {
            return;
        }
        let mut questions = JoinSet::new();
        for listed in shared.known(wanted) {
            let shared = Arc::clone(shared);
            questions.spawn(async move {
                let blocks = listed.group.stripe().map_or(0, |stripe| stripe.blocks.len() as u16);
                let blocks: Vec<BlockIndex> = (0..blocks).map(BlockIndex).collect();
                checksums(&shared, &listed, &blocks).await
            });
        }
        while questions.join_next().await.is_some() {}
    }
}

/// Requests a block token for each of these blocks, if blocks are pushed and HDFS uses tokens. Tokens are requested
/// before each repair, since keys rotate and a restarted NameNode has new keys.
async fn tokens(
    shared: &HdfsSystem,
    namenode: &NameNode,
    found: &Listed,
    indices: &[u8],
) -> Result<BTreeMap<u8, Permit>, String> {
    if !shared.attachment.pushes {
        return Ok(BTreeMap::new());
    }
    let made = match &found.group {
        Coded::Group(_) => namenode.tokens(&found.file, found.start, indices).await,
        Coded::Raid(stripe) => tokens_of_blocks(namenode, stripe, indices).await,
    };
    let made = made.map_err(|error| format!("cannot create block tokens for pushing blocks: {error}"));
    shared.state().note_troubles("tokens", made.as_ref().err().cloned().into_iter().collect());
    Ok(made?.into_iter().collect())
}

/// Requests tokens for blocks of a raided file and its parity, each by its own offset.
async fn tokens_of_blocks(
    namenode: &NameNode,
    stripe: &RaidStripe,
    indices: &[u8],
) -> Result<Vec<(u8, Permit)>, AskError> {
    let mut tokens = Vec::new();
    for &index in indices {
        let Some(Range { file, start, .. }) = stripe.range_of(usize::from(index)) else { continue };
        let made = namenode.tokens(&file, start, &[0]).await?;
        tokens.extend(made.into_iter().map(|(_, token)| (index, token)));
    }
    Ok(tokens)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use repair::NodeId;

    use super::super::coded::{Extent, RaidBlock};
    use super::*;
    use crate::blocks::ChecksumKind;
    use crate::listing::Phase;

    #[test]
    fn the_blocks_of_a_raided_file_and_of_its_parity_are_asked_about_apart() {
        let block = |number| RaidBlock { number, stamp: 1000 + number as u64, bytes: 512 };
        let stripe = RaidStripe {
            code: Arc::new("rs-5-3".parse().expect("a code")),
            block_bytes: 512,
            source: 16,
            data: vec![Extent { inode: 16, start: 1536, blocks: 3 }],
            parity: Extent { inode: 17, start: 1024, blocks: 2 },
            blocks: [30, 31, 32, 40, 41].map(block).to_vec(),
        };
        let listed = Listed {
            file: FileRef { inode: 16, held_at: None },
            place: None,
            phase: Phase::Old,
            start: 1536,
            group: Coded::Raid(Arc::new(stripe)),
            homes: vec![(1, NodeId(7)), (4, NodeId(8))],
        };
        let alike = |key, inode, start, blocks: &[u16]| Alike {
            key,
            file: FileRef { inode, held_at: None },
            start,
            blocks: blocks.iter().copied().map(BlockIndex).collect(),
        };
        let [data, parity] = [alike((30, 1030), 16, 2048, &[0, 2]), alike((40, 1040), 17, 1536, &[3])];
        assert_eq!(listed.alike(&[0, 2, 3].map(BlockIndex)), [data, parity.clone()]);
        assert_eq!(listed.alike(&[BlockIndex(3)]), [parity]);
    }

    /// Files 16, 18 and 20 of a folder have a block each. The only block of file 18 is lost.
    #[test]
    fn a_small_file_without_a_held_block_has_the_format_of_another_file() {
        let block = |number| RaidBlock { number, stamp: 1000 + number as u64, bytes: 512 };
        let file = |inode| Extent { inode, start: 0, blocks: 1 };
        let stripe = RaidStripe {
            code: Arc::new("rs-5-3".parse().expect("a code")),
            block_bytes: 512,
            source: 9,
            data: [16, 18, 20].map(file).to_vec(),
            parity: Extent { inode: 17, start: 0, blocks: 2 },
            blocks: [30, 31, 32, 40, 41].map(block).to_vec(),
        };
        let listed = Listed {
            file: FileRef { inode: 9, held_at: None },
            place: None,
            phase: Phase::Old,
            start: 0,
            group: Coded::Raid(Arc::new(stripe)),
            homes: vec![(2, NodeId(7)), (3, NodeId(8))],
        };
        let asked: Vec<_> =
            listed.alike(&[1, 2].map(BlockIndex)).into_iter().map(|it| (it.key, it.file.inode)).collect();
        assert_eq!(asked, [((31, 1031), 20), ((32, 1032), 20)]);
    }

    #[test]
    fn a_format_is_valid_for_one_generation_of_a_group() {
        let (mut formats, seconds) = (Formats::default(), Duration::from_secs);
        let format = ChecksumFormat::new(ChecksumKind::Crc32, 4096).expect("a format");
        formats.note((-16, 7), seconds(1), &Ok(Some(format)));
        assert_eq!(formats.of((-16, 7)), Some(format));
        assert_eq!((formats.of((-16, 8)), formats.of((-32, 7))), (None, None));
        formats.note((-32, 7), seconds(1), &Ok(None));
        assert_eq!(formats.of((-32, 7)), None, "no DataNode had a block");
    }

    #[test]
    fn no_datanode_is_asked_for_a_while_after_none_has_answered() {
        let (mut formats, seconds) = (Formats::default(), Duration::from_secs);
        formats.want([-16, -32, -48]);
        assert_eq!(formats.take_wanted(seconds(1), 2), vec![-48, -32]);
        formats.note((-48, 7), seconds(2), &Err(AskError::SafeMode));
        assert!(formats.take_wanted(seconds(61), 2).is_empty());
        assert_eq!(formats.take_wanted(seconds(62), 2), vec![-16]);
        assert!(formats.take_wanted(seconds(62), 2).is_empty());
    }

    #[test]
    fn a_bounded_number_of_formats_is_kept() {
        let mut formats = Formats::default();
        let format = ChecksumFormat::default();
        let last = KEPT as i64 + 1;
        (1..=last).for_each(|at| formats.note((16 * (at - last - 1), 7), Duration::ZERO, &Ok(Some(format))));
        assert_eq!((formats.known.len(), formats.of((-16, 7))), (KEPT, Some(format)));
    }
}
