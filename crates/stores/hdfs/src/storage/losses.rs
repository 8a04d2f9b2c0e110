//! Learns of lost blocks by the NameNode's own lists of groups and blocks that lack redundancy, and queries
//! these groups and the stripes of these blocks. So a loss is known without a listing of all groups.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use store_api::StoreError;
use tokio::task::{JoinError, JoinSet};

use super::groups::Listed;
use super::lost_files::LostFiles;
use super::state::{HdfsSystem, mark_corrupt};
use crate::listing::{LossCounts, OtherLists, Shortage};
use crate::namenode::{AskError, NameNode};

/// The lists are read again after this time while groups are on them. A second loss in a group changes no count.
const AGAIN_EVERY: Duration = Duration::from_secs(3);
/// The lists are read again after this time in any case. Blocks that HDFS is about to rebuild are on a list, but are
/// not counted.
const READ_EVERY: Duration = Duration::from_secs(60);
/// The pause after reading the lists is this many times the time that it took, and shorter if their lengths change.
const PEACE_TIMES: u32 = 20;
const PEACE_TIMES_ON_CHANGE: u32 = 5;
/// Lists with more blocks are not read, because the NameNode changes no block meanwhile.
const MOST: u64 = 10_000;
/// The NameNode writes its other lists to the same file. It describes postponed blocks as it does blocks that lack
/// redundancy, and other blocks only by their names. If it has more of them than this, no list is read.
const MOST_POSTPONED: u64 = MOST;
const MOST_NAMED: u64 = 100_000;
/// Number of queries for groups in flight.
const QUERIES: usize = 8;
/// Maximum number of groups per round that are queried again although nothing indicates a change.
const AGAIN_AT_ONCE: usize = 64;
/// Maximum number of groups per round that are queried because something indicates a change.
const SUSPECTS_AT_ONCE: usize = 1000;
/// The beginning of the remark that losses become known only by listings.
const UNKNOWN: &str = "lost blocks are known only after the next listing of all files, because the NameNode's lists of \
                       blocks that lack redundancy cannot be read";

/// Why the lists were not read.
#[derive(Debug, thiserror::Error)]
enum LossError {
    #[error("they have {total} blocks, more than {MOST}")]
    TooMany { total: u64 },
    #[error(
        "the NameNode would write {postponed} postponed blocks (at most {MOST_POSTPONED}) as well, and the names of \
         {reconstructed} blocks that are being reconstructed and of {deleted} that are waiting to be deleted (at most \
         {MOST_NAMED})"
    )]
    OthersTooLong { postponed: u64, reconstructed: u64, deleted: u64 },
    #[error(transparent)]
    Ask(#[from] AskError),
    #[error("{0}")]
    LookUp(String),
    #[error("cannot record corrupt replicas: {0}")]
    Store(#[from] StoreError),
}

/// A stripe's entries in the lists: that of its group, or those of its listed blocks. A further loss changes the
/// number of live replicas in them.
type Signs = BTreeMap<i64, Shortage>;

/// The lists of groups that lack blocks, as they were last read.
#[derive(Default)]
pub(super) struct Losses {
    /// The lengths of the lists before they were read.
    counts: LossCounts,
    /// The stripes on the lists.
    listed: BTreeMap<i64, Signs>,
    /// The last group that was queried again.
    last_again: i64,
    /// The time at which the lists were last read; `None` while they cannot be read.
    read: Option<Duration>,
    /// How long it took, counted from `read`.
    took: Duration,
    /// The raided files with lost blocks, while the lists are too long.
    files: LostFiles,
}

impl Losses {
    /// Reads the lists if they have changed, and queries the groups that were added or removed.
    pub async fn step(&mut self, shared: &Arc<HdfsSystem>, namenode: &NameNode) {
        let Err(error) = self.read(shared, namenode).await else {
            if shared.note_lists_looked_at() {
                self.read = None; // What they told may be forgotten, so they are read again at once.
            }
            return;
        };
        let is_recent = shared.state().contact.losses.is_recent(shared.now());
        if is_recent && !matches!(error, LossError::TooMany { .. }) {
            tracing::debug!(%error, "cannot read which blocks lack redundancy yet; trying again");
            return;
        }
        self.read = None;
        shared.note_lists_unread(&error.to_string());
        if matches!(error, LossError::TooMany { .. } | LossError::OthersTooLong { .. }) {
            self.files.step(shared, namenode).await;
        }
    }

    async fn read(&mut self, shared: &Arc<HdfsSystem>, namenode: &NameNode) -> Result<(), LossError> {
        let waiting = shared.state().view.waiting(shared.now(), AGAIN_AT_ONCE);
        let suspects = take_first(&mut shared.state().suspects, SUSPECTS_AT_ONCE);
        let recounts = shared.due_recounts(AGAIN_AT_ONCE);
        let asked: BTreeSet<i64> = suspects.into_iter().chain(recounts).collect();
        let due = waiting.into_iter().chain(shared.known(asked)).collect();
        if let Err(error) = look_up(shared, due).await {
            // They are queried again with the next ones. Until then, the lists tell of other groups.
            tracing::debug!(%error, "cannot query block groups again yet");
        }
        let counts = namenode.loss_counts().await?;
        if counts.total() > MOST {
            return Err(LossError::TooMany { total: counts.total() });
        }
        let asked = shared.now();
        if !self.is_due(shared, asked, counts) {
            return Ok(());
        }
        let OtherLists { postponed, reconstructed, deleted } = namenode.other_lists().await?;
        if postponed > MOST_POSTPONED || reconstructed + deleted > MOST_NAMED {
            return Err(LossError::OthersTooLong { postponed, reconstructed, deleted });
        }
        let named = namenode.losses().await?;
        let took = shared.now() - asked;
        let listed = self.take_lists(shared, named).await?;
        (self.counts, self.listed, self.read, self.took) = (counts, listed, Some(asked), took);
        shared.note_losses(asked, self.listed.keys().copied().collect());
        Ok(())
    }

    /// Takes in the lists, and queries the stripes whose entries have changed. Returns the entries of the stripes.
    async fn take_lists(
        &mut self,
        shared: &Arc<HdfsSystem>,
        named: Signs,
    ) -> Result<BTreeMap<i64, Signs>, LossError> {
        let (named, mut listed) = by_stripe(shared, named);
        shared.state().raiding.recounts.take_lists(listed.keys().copied());
        let changed = changed(&self.listed, &listed);
        let again = self.again(&listed);
        let unjudged: Vec<i64> = {
            let corrupt = &mut shared.state().corrupt;
            corrupt.take_lists(&named);
            corrupt.unnamed().take(AGAIN_AT_ONCE).collect()
        };
        let asked_again: BTreeSet<i64> = changed.iter().copied().chain(again).chain(unjudged).collect();
        let known = shared.known(asked_again);
        let numbers: BTreeSet<i64> = known.iter().map(|known| known.group.number()).collect();
        empty_unknown(&mut listed, &changed, &numbers);
        let lacking = changed.intersection(&numbers).copied().filter(|stripe| listed.contains_key(stripe));
        shared.state().formats.want(lacking);
        shared.lacking.notify_one();
        look_up(shared, known).await?;
        mark_corrupt(shared)?;
        Ok(listed)
    }

    fn is_due(&self, shared: &HdfsSystem, now: Duration, counts: LossCounts) -> bool {
        let every = if self.listed.is_empty() { READ_EVERY } else { AGAIN_EVERY };
        let state = shared.state();
        // Before a listing ended, entries of raided blocks may have concerned no known stripe.
        let is_older = self.read.is_some_and(|read| read < state.contact.losses.listed());
        let is_changed = is_older || counts != self.counts || state.view.nodes().await_listing(now);
        self.read.is_none_or(|read| match is_changed {
            true => now >= read + self.took * PEACE_TIMES_ON_CHANGE,
            false => now >= read + every.max(self.took * PEACE_TIMES),
        })
    }

    /// Returns some groups that stay on the lists, others each time.
    fn again(&mut self, listed: &BTreeMap<i64, Signs>) -> Vec<i64> {
        let (after, before) = (listed.range(self.last_again + 1..), listed.range(..=self.last_again));
        let stay = after.chain(before).map(|(&number, _)| number).filter(|at| self.listed.contains_key(at));
        let again: Vec<i64> = stay.take(AGAIN_AT_ONCE).collect();
        self.last_again = again.last().copied().unwrap_or(i64::MIN);
        again
    }
}

impl HdfsSystem {
    /// Records that a look at the lists has succeeded. Returns whether they counted as unread before.
    fn note_lists_looked_at(&self) -> bool {
        let now = self.now();
        let mut state = self.state();
        let were_unread = state.contact.losses.note_look(now);
        state.note_remarks("losses", Vec::new());
        were_unread
    }

    /// Records that the lists do not tell of losses, and why.
    fn note_lists_unread(&self, why: &str) {
        let now = self.now();
        let mut state = self.state();
        state.contact.losses.note_unread();
        state.raiding.recounts.take_lists([]);
        state.corrupt.forget_lists();
        let groups = state.view.forget_losses();
        let changes = state.view.tell(now, groups);
        state.tell(changes);
        state.note_remarks("losses", vec![format!("{UNKNOWN}: {why}")]);
    }

    /// Reports that the lists are not read, if the last look at them has not ended for long.
    pub(super) fn tell_unread_losses(&self) {
        let silence = self.state().contact.losses.silence(self.now());
        if let Some(silence) = silence {
            let seconds = silence.as_secs();
            self.note_lists_unread(&format!("the last attempt has not finished for {seconds} s"));
        }
    }
}

/// Returns the stripes whose entries are new, removed or different.
fn changed(before: &BTreeMap<i64, Signs>, now: &BTreeMap<i64, Signs>) -> BTreeSet<i64> {
    let all = before.keys().chain(now.keys()).copied();
    all.filter(|stripe| before.get(stripe) != now.get(stripe)).collect()
}

/// Empties the entries of stripes that are not known yet, for example while files are listed. An empty entry differs
/// from any that is read later, so these stripes are queried once they are known.
fn empty_unknown(listed: &mut BTreeMap<i64, Signs>, changed: &BTreeSet<i64>, known: &BTreeSet<i64>) {
    for stripe in changed.difference(known) {
        if let Some(signs) = listed.get_mut(stripe) {
            signs.clear();
        }
    }
}

/// Takes out up to `most` groups.
fn take_first(groups: &mut BTreeSet<i64>, most: usize) -> BTreeSet<i64> {
    match groups.iter().nth(most).copied() {
        Some(rest) => {
            let rest = groups.split_off(&rest);
            std::mem::replace(groups, rest)
        }
        None => std::mem::take(groups),
    }
}

/// Returns the entries of the lists that concern known stripes, and the same by stripe. The lists also
/// contain blocks of replicated files that are not raided.
fn by_stripe(shared: &HdfsSystem, mut named: Signs) -> (Signs, BTreeMap<i64, Signs>) {
    let state = shared.state();
    let mut listed: BTreeMap<i64, Signs> = BTreeMap::new();
    named.retain(|&number, shortage| {
        let stripe = state.view.groups().stripe_of(number);
        if let Some(stripe) = stripe {
            listed.entry(stripe).or_default().insert(number, shortage.clone());
        }
        stripe.is_some()
    });
    (named, listed)
}

/// Queries these groups. Groups whose queries fail are queried again with the next ones. If all fail, returns an error.
async fn look_up(shared: &Arc<HdfsSystem>, groups: Vec<Listed>) -> Result<(), LossError> {
    let mut queries = JoinSet::new();
    let (asked, mut failed, mut error) = (groups.len(), BTreeSet::new(), None);
    let mut end = |query: Result<(i64, Result<(), String>), JoinError>| match query {
        Ok((_, Ok(()))) => {}
        Ok((group, Err(why))) => {
            failed.insert(group);
            error = Some(why);
        }
        Err(why) => error = Some(why.to_string()), // The program ends, or the query has panicked.
    };
    for group in groups {
        if queries.len() == QUERIES {
            queries.join_next().await.into_iter().for_each(&mut end);
        }
        let shared = Arc::clone(shared);
        queries.spawn(async move { (group.group.number(), shared.look_up(&group).await.map(drop)) });
    }
    while let Some(query) = queries.join_next().await {
        end(query);
    }
    let all_failed = !failed.is_empty() && failed.len() == asked;
    shared.state().suspects.extend(failed);
    match error.filter(|_| all_failed) {
        Some(why) => Err(LossError::LookUp(why)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the lists with one group, of which this number of blocks is live.
    fn lists(live: Option<u32>, corrupt: &[&str]) -> BTreeMap<i64, Signs> {
        let corrupt = corrupt.iter().map(|&address| address.to_owned()).collect();
        BTreeMap::from([(-16, Signs::from([(-16, Shortage { live, corrupt })]))])
    }

    #[test]
    fn a_stripe_on_the_lists_that_is_not_known_yet_counts_as_changed_later() {
        let (mut before, now) = (lists(Some(8), &[]), lists(Some(8), &[]));
        empty_unknown(&mut before, &BTreeSet::from([-16]), &BTreeSet::from([-16]));
        assert_eq!(changed(&before, &now), BTreeSet::new());
        empty_unknown(&mut before, &BTreeSet::from([-16]), &BTreeSet::new());
        assert_eq!(changed(&before, &now), BTreeSet::from([-16]));
    }

    #[test]
    fn a_further_loss_in_a_group_on_the_lists_is_noticed() {
        let before = lists(Some(8), &[]);
        assert_eq!(changed(&before, &before.clone()), BTreeSet::new());
        let others =
            [lists(Some(7), &[]), lists(None, &[]), lists(Some(8), &["10.0.0.1:9866"]), BTreeMap::new()];
        for other in others {
            assert_eq!(changed(&before, &other), BTreeSet::from([-16]), "{other:?}");
            assert_eq!(changed(&other, &before), BTreeSet::from([-16]), "{other:?}");
        }
    }
}
