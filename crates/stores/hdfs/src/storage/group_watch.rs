//! The background task that follows the block groups.
//!
//! After one listing, the edit log tells of files, and the NameNode's own lists tell of lost blocks. The lists are read
//! concurrently, so losses become known during long queries for files. While both can be read, all groups are listed
//! rarely, except for some minutes (and at least once) after a DataNode has come or gone, and after a listing that
//! failed. Folders that the listing lacked are looked for, and cause another listing once they exist. Otherwise the groups
//! are listed again and again, with pauses that bound the load on the NameNode, and also when a DataNode comes or goes.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use super::following::{FollowError, Following};
use super::losses::Losses;
use super::state::HdfsSystem;
use super::watching::{FullListing, QUERY_FILES, READ_EDITS, list, note};
use crate::namenode::NameNode;

/// Interval between queries for changes and losses.
const FOLLOW_EVERY: Duration = Duration::from_secs(1);
/// Interval between listings while changes and losses are followed. Blocks that HDFS moves, as its balancer does,
/// are on no list, so their places become known by a listing, or earlier if a helper misses one. HDFS itself
/// trusts its DataNodes' reports of changes in the same way, and has them list all blocks every six hours
/// (`dfs.blockreport.intervalMsec`).
const RELIST_EVERY: Duration = Duration::from_secs(6 * 3600);
/// After a DataNode has entered or left service, groups are listed as often as without the edit log for this long.
/// A DataNode that returns may have old copies of blocks that were rebuilt elsewhere. HDFS then keeps one of the
/// copies, perhaps the old one, and neither the log nor the lists tell which. A listing that begins after the change
/// shows the groups with several copies, which are queried until one is left. It may be due later than this.
const UNSETTLED_FOR: Duration = Duration::from_secs(600);
/// Minimum interval between other listings. Each listing is also followed by a pause of `PEACE_TIMES` times its
/// duration.
const LIST_EVERY: Duration = Duration::from_secs(5);
const PEACE_TIMES: u32 = 20;
/// Interval between queries for folders to list that did not exist.
const MISSING_EVERY: Duration = Duration::from_secs(10);
/// The beginning of the remark that changes of the namespace become known only by listings.
const UNFOLLOWED: &str = "new and deleted files are known only after the next listing of all files, because the \
                          edit log of HDFS cannot be followed";

/// Follows the block groups until the storage is dropped.
pub(super) async fn watch_groups(storage: Weak<HdfsSystem>, namenode: NameNode) {
    let mut losses = Losses::default();
    let _ = namenode.start().await; // The first query reports the error.
    if let Some(shared) = storage.upgrade() {
        // The lists name the corrupt replicas of groups that the first listing contains.
        losses.step(&shared, &namenode).await;
    }
    tokio::join!(watch_losses(&storage, &namenode, losses), watch_files(&storage, namenode.clone()));
}

/// Follows the lists of losses until the storage is dropped. No query for files delays this.
async fn watch_losses(storage: &Weak<HdfsSystem>, namenode: &NameNode, mut losses: Losses) {
    loop {
        sleep(FOLLOW_EVERY).await;
        let Some(shared) = storage.upgrade() else { return };
        losses.step(&shared, namenode).await;
    }
}

/// Lists all groups, and follows the edit log, until the storage is dropped.
async fn watch_files(storage: &Weak<HdfsSystem>, namenode: NameNode) {
    let mut watch = Watch { namenode, following: None, last: Last::Failed, listed: Duration::ZERO };
    loop {
        // Starts the JVM first, because its startup is not load on the NameNode and must not lengthen the
        // pause.
        let _ = watch.namenode.start().await; // The listing below reports the error.
        let Some(shared) = storage.upgrade() else { return };
        let began = Instant::now();
        watch.listed = shared.now();
        watch.list(&shared).await;
        let times = if watch.last == Last::Failed { 1 } else { PEACE_TIMES };
        let pause = (began.elapsed() * times).max(LIST_EVERY);
        drop(shared);
        watch.follow_for(storage, pause).await;
    }
}

struct Watch {
    namenode: NameNode,
    /// `None` while the edit log cannot be followed.
    following: Option<Following>,
    last: Last,
    /// The beginning of the last listing, by the storage's clock.
    listed: Duration,
}

/// The result of the last listing of all groups.
#[derive(PartialEq, Eq)]
enum Last {
    Failed,
    /// These folders were missing, and were last looked for at this time.
    Incomplete {
        missing: Vec<String>,
        looked: Instant,
    },
    Complete,
}

impl Watch {
    /// Lists all groups, and starts to follow the edit log if it is not followed yet.
    async fn list(&mut self, shared: &Arc<HdfsSystem>) {
        let Self { namenode, following, last, .. } = self;
        shared.state().contact.losses.begin_listing();
        let Some(known) = following else {
            (*following, *last) = list_and_follow(shared, namenode).await;
            return;
        };
        // Events wait for no listing, which may take long.
        let listed = tokio::select! {
            listed = list(shared, namenode) => Some(listed),
            () = follow(shared, namenode, known) => None,
        };
        match listed {
            Some(listed) => *last = Last::of(listed.as_ref()),
            None => (*following, *last) = list_and_follow(shared, namenode).await,
        }
    }

    /// Follows changes until the next listing is due: after `pause`, or earlier if a change calls for one; but rarely
    /// while a complete listing would show nothing new.
    async fn follow_for(&mut self, storage: &Weak<HdfsSystem>, pause: Duration) {
        let began = Instant::now();
        let mut is_wanted = false;
        loop {
            let Some(shared) = storage.upgrade() else { return };
            is_wanted |= timeout(FOLLOW_EVERY, shared.look.notified()).await.is_ok();
            let was_followed = self.following.is_some();
            if let Some(known) = &mut self.following
                && !step(&shared, &self.namenode, known).await
            {
                self.following = None;
            }
            let is_known = self.following.is_some() && shared.state().contact.losses.are_known();
            let changed = shared.state().nodes_changed;
            let is_due = match is_known {
                true if self.last != Last::Failed && is_settled(changed, shared.now()) => {
                    began.elapsed() >= settled_pause(changed, self.listed, pause)
                        || shared.state().contact.losses.take_interrupted()
                        || self.has_folder_appeared().await
                }
                true => began.elapsed() >= pause,
                false => began.elapsed() >= pause || (is_wanted && began.elapsed() >= LIST_EVERY),
            };
            // If the NameNode deletes edits while files are listed, the next listing would be as useless.
            let is_gap = was_followed && self.following.is_none() && began.elapsed() >= LIST_EVERY;
            if is_due || is_gap {
                return;
            }
        }
    }

    /// Whether a folder that the last listing lacked exists now. Queries the NameNode only now and then.
    async fn has_folder_appeared(&mut self) -> bool {
        let Last::Incomplete { missing, looked } = &mut self.last else { return false };
        if looked.elapsed() < MISSING_EVERY {
            return false;
        }
        *looked = Instant::now();
        let still = self.namenode.missing(missing).await;
        still.is_ok_and(|still| still.len() < missing.len())
    }
}

/// Whether no DataNode has entered or left service lately.
fn is_settled(changed: Option<Duration>, now: Duration) -> bool {
    changed.is_none_or(|at| now >= at + UNSETTLED_FOR)
}

/// Returns the longest pause after the last listing once DataNodes are settled. It stays short until a listing has
/// begun after the last change of DataNodes.
fn settled_pause(changed: Option<Duration>, listed: Duration, pause: Duration) -> Duration {
    match changed {
        Some(at) if listed <= at => pause,
        _ => pause.max(RELIST_EVERY),
    }
}

/// Follows changes. Returns when the edit log cannot be followed any more.
async fn follow(shared: &HdfsSystem, namenode: &NameNode, following: &mut Following) {
    while step(shared, namenode, following).await {
        sleep(FOLLOW_EVERY).await;
    }
}

/// Reads the edit log up to its end. Returns `false` if it cannot be followed any more.
async fn step(shared: &HdfsSystem, namenode: &NameNode, following: &mut Following) -> bool {
    match following.step(shared, namenode).await {
        Ok(()) => {
            note(shared, READ_EDITS, Ok(()));
            note(shared, QUERY_FILES, Ok(()));
        }
        Err(FollowError::Edits(error)) => note(shared, READ_EDITS, Err(error)),
        Err(FollowError::Query(error)) => {
            note(shared, READ_EDITS, Ok(()));
            note(shared, QUERY_FILES, Err(error));
        }
        Err(gap @ FollowError::Gap { .. }) => {
            tracing::warn!("listing all files of HDFS again: {gap}");
            // From here on, the listing reports what is wrong.
            note(shared, READ_EDITS, Ok(()));
            note(shared, QUERY_FILES, Ok(()));
            return false;
        }
    }
    true
}

/// Lists all DataNodes and block groups. Then starts to follow the edit log from where it ended before the listing,
/// so that no change is missed. Returns also the result of the listing.
async fn list_and_follow(shared: &HdfsSystem, namenode: &NameNode) -> (Option<Following>, Last) {
    let from = namenode.position().await;
    let listed = list(shared, namenode).await;
    let last = Last::of(listed.as_ref());
    let Some(FullListing { open, .. }) = listed else {
        shared.state().note_remarks("following", vec![format!("{UNFOLLOWED}: its last listing failed")]);
        return (None, last);
    };
    let until = namenode.position().await;
    let (lines, following) = match from.and_then(|from| Ok((from.next, until?.next))) {
        Ok((from, until)) => (Vec::new(), Some(Following::new(shared, from, until, &open))),
        Err(why) => (vec![format!("{UNFOLLOWED}: {why}")], None),
    };
    shared.state().note_remarks("following", lines);
    (following, last)
}

impl Last {
    fn of(listed: Option<&FullListing>) -> Self {
        match listed {
            None => Self::Failed,
            Some(listed) if listed.missing.is_empty() => Self::Complete,
            Some(listed) => Self::Incomplete { missing: listed.missing.clone(), looked: Instant::now() },
        }
    }
}

#[cfg(test)]
mod tests;
