//! Keeps the block groups up to date by the NameNode's edit log, after one listing of all files.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::replay::Replay;
use super::state::HdfsSystem;
use super::watching::{held, uncovered};
use crate::namenode::{AskError, NameNode};

/// The pause after a query for files in snapshots is this many times the time that it took.
const PEACE_TIMES: u32 = 20;
/// The interval of queries for files in snapshots while some exist only there. The edit log has no events that
/// tell of deleted snapshots.
const IN_SNAPSHOTS_EVERY: Duration = Duration::from_secs(10);

/// Why the edit log could not be followed to its end.
#[derive(Debug, thiserror::Error)]
pub(super) enum FollowError {
    /// Edits are missing, so all files must be listed again.
    #[error("the NameNode's edit log now begins at transaction {first}, and edits from {next} on are needed")]
    Gap {
        /// The first transaction that the NameNode has.
        first: u64,
        /// The first transaction that is needed.
        next: u64,
    },
    /// The edit log cannot be read; the next step tries it again.
    #[error(transparent)]
    Edits(AskError),
    /// The edit log was read, but a query that it calls for failed; the next step tries it again.
    #[error(transparent)]
    Query(#[from] AskError),
}

/// The state of following the edit log.
pub(super) struct Following {
    replay: Replay,
    /// Groups whose files no longer exist outside of snapshots, with the files.
    absent: BTreeMap<i64, u64>,
    /// The time of the last query for files in snapshots, and the time before which there is no other one.
    surveyed: Duration,
    survey_after: Duration,
}

impl Following {
    /// Starts to follow the log after a listing. `from` and `until` are the ends of the log before and after
    /// the listing, and `open` names the files that were being written.
    pub fn new(shared: &HdfsSystem, from: u64, until: u64, open: &[String]) -> Self {
        let roots = shared.attachment.parity_roots().map(str::to_owned).collect();
        let mut replay = Replay::new(&shared.attachment.paths, from, until).with_parity(roots);
        replay.note_open(shared.now(), open);
        Self { replay, absent: BTreeMap::new(), surveyed: Duration::ZERO, survey_after: Duration::ZERO }
    }

    /// Reads the log up to the end that it has now, and queries the files that it concerns. Later edits are left to
    /// the next call: if clients never stop changing files, there is always another edit, and the caller has to look
    /// for lost blocks too.
    ///
    /// # Errors
    /// [`FollowError`]. After an error of a query, the next call continues.
    pub async fn step(&mut self, shared: &HdfsSystem, namenode: &NameNode) -> Result<(), FollowError> {
        let mut end = None;
        loop {
            let edits = namenode.edits(self.replay.next()).await.map_err(FollowError::Edits)?;
            if let Some(first) = edits.gap {
                return Err(FollowError::Gap { first, next: self.replay.next() });
            }
            let mut is_end = edits.next <= self.replay.next();
            if !is_end {
                let end = match end {
                    Some(end) => end,
                    None => *end.insert(namenode.position().await.map_err(FollowError::Edits)?.next),
                };
                is_end = edits.next >= end;
            }
            shared.take_edits(&mut self.replay, edits);
            shared.note_touched(self.replay.touched());
            self.absent.append(&mut self.replay.take_left());
            self.query_files(shared, namenode).await?;
            self.query_raided(shared, namenode).await?;
            if is_end {
                break;
            }
        }
        self.judge(shared, namenode).await?;
        Ok(self.survey(shared, namenode).await?)
    }

    /// Queries the files that events have named.
    async fn query_files(&mut self, shared: &HdfsSystem, namenode: &NameNode) -> Result<(), AskError> {
        loop {
            let asked = shared.now();
            let paths = self.replay.paths(asked);
            if paths.is_empty() {
                return Ok(());
            }
            let mut listing = namenode.walk(&paths).await?.outside_safe_mode()?;
            let end = namenode.position().await?.next;
            self.replay.note_answer(shared.now(), &paths, &listing.seen.open, end);
            for group in &listing.groups {
                self.absent.remove(&group.group.number); // It has moved back.
            }
            let (folders, files) = (listing.seen.folders.clone(), std::mem::take(&mut listing.seen.files));
            shared.take_groups(asked, listing, false).map_err(failed)?;
            self.absent.extend(shared.unlisted_groups(asked, &folders, &files));
        }
    }

    /// Queries the raided files that events have named.
    async fn query_raided(&mut self, shared: &HdfsSystem, namenode: &NameNode) -> Result<(), AskError> {
        loop {
            let sources = self.replay.touched().sources();
            if sources.is_empty() {
                return Ok(());
            }
            shared.query_raided(namenode, &sources).await?;
            self.replay.touched().note_answer(&sources);
            shared.state().encoding.note_changed(&sources);
        }
    }

    /// Determines which groups' files no longer exist.
    async fn judge(&mut self, shared: &HdfsSystem, namenode: &NameNode) -> Result<(), AskError> {
        loop {
            let more = std::mem::take(&mut shared.state().doubted);
            self.replay.note_doubted(more);
            let doubted = self.replay.doubted();
            if doubted.is_empty() {
                return Ok(());
            }
            let inodes: BTreeSet<u64> = doubted.iter().map(|&(_, inode)| inode).collect();
            let existing = namenode.existing(&inodes.into_iter().collect::<Vec<_>>()).await?;
            self.absent
                .extend(doubted.iter().copied().filter(|(_, inode)| !existing.present.contains(inode)));
            self.replay.note_judged(&doubted);
        }
    }

    /// Removes groups that are not in snapshots either. Snapshots are queried only if a group may be there.
    async fn survey(&mut self, shared: &HdfsSystem, namenode: &NameNode) -> Result<(), AskError> {
        let asked = shared.now();
        let is_due = asked >= self.surveyed + IN_SNAPSHOTS_EVERY
            && !shared.state().view.groups().in_snapshots().is_empty();
        if asked < self.survey_after || (self.absent.is_empty() && !is_due) {
            return Ok(());
        }
        let mut gone = shared.state().view.groups().in_snapshots().clone();
        gone.append(&mut self.absent.clone());
        let mut listing = namenode.snapshots(&shared.attachment.paths).await?.outside_safe_mode()?;
        // A file that was moved out of a folder with snapshots is listed too, but is asked for where it is now.
        listing.groups.retain(|group| gone.contains_key(&group.group.number));
        for group in &listing.groups {
            gone.remove(&group.group.number);
        }
        let snapshots = listing.snapshots.clone();
        shared.take_groups(asked, listing, false).map_err(failed)?;
        shared.remove_groups(&gone.into_iter().collect::<Vec<_>>()).map_err(failed)?;
        self.absent.clear();
        let mut state = shared.state();
        state.note_troubles("snapshots", uncovered(&snapshots));
        state.note_remarks("snapshots", held(&snapshots));
        drop(state);
        self.surveyed = shared.now();
        self.survey_after = self.surveyed + (self.surveyed - asked) * PEACE_TIMES;
        Ok(())
    }
}

pub(super) fn failed(error: store_api::CatalogError) -> AskError {
    AskError::Failed(error.to_string())
}
