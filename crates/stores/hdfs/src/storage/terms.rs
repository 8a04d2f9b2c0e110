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

use super::groups::Listed;
use super::state::HdfsSystem;
use crate::blocks::{BlockGroup, BlockTerms, ChecksumFormat};
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

/// The checksum formats of groups. All blocks of a group have the format with which its file was written, so it stays
/// valid until the group has another number or generation stamp.
#[derive(Default)]
pub(super) struct Formats {
    /// The formats by the group's number and generation stamp.
    known: BTreeMap<(i64, u64), ChecksumFormat>,
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

    fn of(&self, group: &BlockGroup) -> Option<ChecksumFormat> {
        self.known.get(&key(group)).copied()
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
    fn note(&mut self, group: &BlockGroup, now: Duration, answer: &Result<Option<ChecksumFormat>, AskError>) {
        self.failed = answer.is_err().then_some(now);
        let Ok(Some(format)) = answer else { return };
        self.known.insert(key(group), *format);
        if self.known.len() > KEPT {
            self.known.pop_first();
        }
    }
}

fn key(group: &BlockGroup) -> (i64, u64) {
    (group.number, group.stamp)
}

/// Returns the terms of these blocks, of which `checksums` is the group's format. They do not depend on the DataNode,
/// so the target of a block may change later.
pub(super) async fn permits(
    shared: &HdfsSystem,
    stripe: &StripeId,
    found: &Listed,
    blocks: &[BlockIndex],
    checksums: Option<ChecksumFormat>,
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
        let terms = BlockTerms { checksums, token: tokens.remove(&index) };
        let permit = terms.to_permit().map_err(|error| error.to_string())?;
        permits.extend(permit.map(|permit| (at, permit)));
    }
    Ok(permits)
}

/// Returns the checksum format of a group; `None` if it is not known, and the configured format is used. Asks a
/// DataNode unless one has stated it before.
pub(super) async fn checksums(shared: &HdfsSystem, listed: &Listed) -> Option<ChecksumFormat> {
    let namenode = shared.namenode.as_ref()?;
    {
        let formats = &shared.state().formats;
        let known = formats.of(&listed.group);
        if known.is_some() || formats.is_paused(shared.now()) {
            return known;
        }
    }
    let answer = namenode.checksum(&listed.file, listed.start).await;
    shared.state().formats.note(&listed.group, shared.now(), &answer);
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
            questions.spawn(async move { checksums(&shared, &listed).await });
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
    let made = namenode.tokens(&found.file, found.start, indices).await;
    let made = made.map_err(|error| format!("cannot create block tokens for pushing blocks: {error}"));
    shared.state().note_troubles("tokens", made.as_ref().err().cloned().into_iter().collect());
    Ok(made?.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocks::ChecksumKind;

    fn group(number: i64, stamp: u64) -> BlockGroup {
        BlockGroup { number, stamp, bytes: 1, policy: "RS-3-2-1k".parse().expect("a policy") }
    }

    #[test]
    fn a_format_is_valid_for_one_generation_of_a_group() {
        let (mut formats, seconds) = (Formats::default(), Duration::from_secs);
        let format = ChecksumFormat::new(ChecksumKind::Crc32, 4096).expect("a format");
        formats.note(&group(-16, 7), seconds(1), &Ok(Some(format)));
        assert_eq!(formats.of(&group(-16, 7)), Some(format));
        assert_eq!((formats.of(&group(-16, 8)), formats.of(&group(-32, 7))), (None, None));
        formats.note(&group(-32, 7), seconds(1), &Ok(None));
        assert_eq!(formats.of(&group(-32, 7)), None, "no DataNode had a block");
    }

    #[test]
    fn no_datanode_is_asked_for_a_while_after_none_has_answered() {
        let (mut formats, seconds) = (Formats::default(), Duration::from_secs);
        formats.want([-16, -32, -48]);
        assert_eq!(formats.take_wanted(seconds(1), 2), vec![-48, -32]);
        formats.note(&group(-48, 7), seconds(2), &Err(AskError::SafeMode));
        assert!(formats.take_wanted(seconds(61), 2).is_empty());
        assert_eq!(formats.take_wanted(seconds(62), 2), vec![-16]);
        assert!(formats.take_wanted(seconds(62), 2).is_empty());
    }

    #[test]
    fn a_bounded_number_of_formats_is_kept() {
        let mut formats = Formats::default();
        let format = ChecksumFormat::default();
        let last = KEPT as i64 + 1;
        (1..=last)
            .for_each(|at| formats.note(&group(16 * (at - last - 1), 7), Duration::ZERO, &Ok(Some(format))));
        assert_eq!((formats.known.len(), formats.of(&group(-16, 7))), (KEPT, Some(format)));
    }
}
