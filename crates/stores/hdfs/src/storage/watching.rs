//! Background tasks that follow the DataNodes, and the listing of all groups.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::following::failed;
use super::state::{ASKING, HdfsSystem, LISTING_FILES, QUERYING_FILES, READING_EDITS};
use crate::listing::{DataNode, Listing, Snapshots};
use crate::namenode::{AskError, NameNode, PART};

/// The pause between queries for DataNodes is this many times the duration of the last one, within these bounds. A
/// dead DataNode is recovered once it is known to be dead.
const NODES_PEACE_TIMES: u32 = 50;
const NODES_FIRST: Duration = Duration::from_millis(500);
const NODES_LAST: Duration = Duration::from_secs(2);
/// Interval between queries for groups with blocks that may be unreported.
const SETTLE_EVERY: Duration = Duration::from_secs(2);
/// The time of the first query for the DataNodes' folders, and the interval between later ones. Each query dials
/// every DataNode.
const FOLDERS_FIRST: Duration = Duration::from_secs(30);
const FOLDERS_EVERY: Duration = Duration::from_secs(600);
/// Maximum number of groups with unreported blocks that are queried again per round.
const DUE_AT_ONCE: usize = 64;

/// Follows the DataNodes until the storage is dropped.
pub(super) async fn watch_nodes(storage: Weak<HdfsSystem>, namenode: NameNode) {
    let mut pause = NODES_FIRST;
    loop {
        sleep(pause).await;
        let Some(shared) = storage.upgrade() else { return };
        let began = Instant::now();
        let told = namenode.nodes().await;
        pause = pause_after(began.elapsed());
        note(&shared, ASK_NODES, told.and_then(|listing| take(&shared, listing, None)));
    }
}

/// Returns the pause after a query for DataNodes that took this long.
fn pause_after(took: Duration) -> Duration {
    (took * NODES_PEACE_TIMES).clamp(NODES_FIRST, NODES_LAST)
}

/// Queries groups with blocks that may be unreported, and remarks on the placement of blocks, until the storage is
/// dropped.
pub(super) async fn watch_unsettled(storage: Weak<HdfsSystem>) {
    loop {
        sleep(SETTLE_EVERY).await;
        let Some(shared) = storage.upgrade() else { return };
        settle(&shared).await;
        let lines = [doubled(&shared), misplaced(&shared)].into_iter().flatten().collect();
        shared.state().note_remarks("placement", lines);
    }
}

/// Reports a NameNode that does not answer, or whose lists of losses are not read, until the storage is dropped. A
/// query may wait for minutes.
pub(super) async fn watch_silence(storage: Weak<HdfsSystem>) {
    loop {
        sleep(NODES_LAST).await;
        let Some(shared) = storage.upgrade() else { return };
        shared.tell_blindness();
        shared.tell_unread_losses();
    }
}

/// Reports DataNodes with folders that their helpers do not know, until the storage is dropped. Blocks in such a
/// folder would count as lost.
pub(super) async fn watch_folders(storage: Weak<HdfsSystem>, namenode: NameNode) {
    let mut pause = FOLDERS_FIRST;
    loop {
        sleep(pause).await;
        pause = FOLDERS_EVERY;
        let Some(shared) = storage.upgrade() else { return };
        // DataNodes that do not report their folders are ignored here; `mend attach` names them.
        if let Ok(listing) = namenode.volumes().await {
            let lines = listing.nodes.iter().filter_map(|node| unknown_folders(&shared, node)).collect();
            shared.state().note_troubles("folders", lines);
        }
    }
}

/// Returns the problem that a DataNode has more folders than its helper knows. If the helper sees the same folders
/// under other paths, their number is the same.
fn unknown_folders(shared: &HdfsSystem, node: &DataNode) -> Option<String> {
    let known = shared.attachment.folders.get(&node.address)?;
    if node.folders.len() <= known.len() {
        return None;
    }
    let unknown = node.folders.iter().filter(|folder| !known.contains(*folder));
    let unknown: Vec<String> = unknown.map(|folder| folder.display().to_string()).collect();
    let helper = shared.attachment.name_of(&node.address);
    Some(format!(
        "DataNode {} has folders that its helper does not know, so blocks there count as lost: {}; add them to \
         `folders` of {helper} in mend.toml on the coordinator's machine and on the helper's, and restart both",
        node.address,
        unknown.join(", ")
    ))
}

/// Queries the NameNode again for groups with blocks that may be unreported.
async fn settle(shared: &HdfsSystem) {
    let due = shared.state().view.due(shared.now(), DUE_AT_ONCE);
    for group in due {
        if let Err(why) = shared.look_up(&group).await {
            return tracing::debug!(
                why,
                "cannot query incompletely known block groups yet; trying again later"
            );
        }
    }
    let mut state = shared.state();
    let waiting = match state.view.unsettled() {
        0 => Vec::new(),
        1 => vec![unsettled("1 block group was", "counts")],
        groups => vec![unsettled(&format!("{groups} block groups were"), "count")],
    };
    state.note_remarks("settling", waiting);
}

fn unsettled(groups: &str, count: &str) -> String {
    format!(
        "{groups} written recently and {count} as soon as the DataNodes have reported all blocks to the \
         NameNode"
    )
}

/// Returns a remark on groups with several blocks on one DataNode.
fn doubled(shared: &HdfsSystem) -> Option<String> {
    let (first, more) = doubled_among(shared, i64::MIN..0, "groups")?;
    Some(format!(
        "several blocks of one group are on one DataNode, whose loss would be that of all of them: {first}{more}; HDFS \
         lists only one of them there, and the others are rebuilt on other DataNodes"
    ))
}

/// Returns a remark on stripes of raided files with several blocks on one DataNode.
fn misplaced(shared: &HdfsSystem) -> Option<String> {
    let (first, more) = doubled_among(shared, 0..i64::MAX, "stripes")?;
    Some(format!(
        "several blocks of one stripe of a raided file are on one DataNode, whose loss would be that of all of them: \
         {first}{more}; mend raid plan -v names the blocks that should move"
    ))
}

/// Returns the first of these stripes that has several blocks on one DataNode, with the DataNode, and the
/// number of the others as text.
fn doubled_among(shared: &HdfsSystem, numbers: Range<i64>, what: &str) -> Option<(String, String)> {
    let (count, stripe, node) = {
        let state = shared.state();
        let mut doubled = state.view.doubled().range(numbers);
        let (&number, &node) = doubled.next()?;
        let stripe = state.view.groups().get(number)?.listed.group.stripe_id();
        (doubled.count() + 1, stripe, node)
    };
    let address = shared.address_of(node)?;
    let more = if count > 1 { format!(", and {} more {what}", count - 1) } else { String::new() };
    Some((format!("{stripe} on {address}"), more))
}

/// A listing of all groups that was recorded.
pub(super) struct FullListing {
    /// The files that are being written.
    pub open: Vec<String>,
    /// The folders to list that do not exist.
    pub missing: Vec<String>,
}

/// Lists all DataNodes and block groups, and records the answer. Returns `None` if that failed.
pub(super) async fn list(shared: &HdfsSystem, namenode: &NameNode) -> Option<FullListing> {
    let asked = shared.now();
    if let Err(error) = list_raided(shared, namenode).await {
        note(shared, LIST_FILES, Err(error));
        return None;
    }
    let (is_begun, failure) = (AtomicBool::new(false), Mutex::new(None));
    let heard = |listing: &mut Listing| {
        shared.note_progress(listing.progress);
        if listing.groups.len() >= PART
            && let Err(error) = take_part(shared, listing, asked, !is_begun.swap(true, Ordering::Relaxed))
        {
            // The listing goes on, but does not count as one of all groups.
            failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        }
    };
    let mut listing = namenode.list_in_parts(&shared.attachment.paths, &heard).await;
    let listed = listing.as_mut().ok().map(|listing| FullListing {
        open: std::mem::take(&mut listing.seen.open),
        missing: listing.missing.clone(),
    });
    let told = match failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(error) => Err(error),
        None => listing.and_then(|listing| take(shared, listing, Some(asked))),
    };
    let listed = listed.filter(|_| told.is_ok());
    if listed.is_some() {
        let now = shared.now();
        shared.state().contact.losses.end_listing(now);
    }
    note(shared, LIST_FILES, told);
    listed
}

/// Lists all raided files, and records the answer. They are listed before the groups, so that a complete
/// listing of groups, which drops what was not listed, keeps them.
async fn list_raided(shared: &HdfsSystem, namenode: &NameNode) -> Result<(), AskError> {
    let paths = shared.attachment.parity_of(&BTreeSet::from(["/".to_owned()]));
    if paths.is_empty() {
        return Ok(());
    }
    if shared.state().contact.nodes_heard().is_none() {
        take(shared, namenode.nodes().await?, None)?; // Whether blocks may be unreported depends on the DataNodes.
    }
    let asked = shared.now();
    shared.state().raiding.changed.clear(); // All are queried now.
    let listing = namenode.raided(&paths, &|progress| shared.note_progress(progress)).await?;
    shared.take_raided(asked, listing, None).map_err(failed)
}

/// Whether no answer about all DataNodes is newer than a query that was sent at `asked`.
fn is_current(shared: &HdfsSystem, asked: Duration) -> bool {
    shared.state().contact.nodes_heard().is_none_or(|heard| asked >= heard)
}

/// Records the groups of a listing so far. The answer begins with the states of the DataNodes. A listing in safe
/// mode is refused at its end.
fn take_part(
    shared: &HdfsSystem,
    listing: &mut Listing,
    asked: Duration,
    is_first: bool,
) -> Result<(), AskError> {
    let part = listing.take_part();
    if part.safe_mode {
        return Ok(());
    }
    if is_first && is_current(shared, asked) {
        shared.take_nodes(&part).map_err(failed)?;
    }
    shared.take_groups(asked, part, false).map_err(failed)
}

/// Records the DataNodes, and also the groups if `asked`, the time of the query, is given. An answer in safe
/// mode is ignored, since the NameNode still waits for block reports.
fn take(shared: &HdfsSystem, listing: Listing, asked: Option<Duration>) -> Result<(), AskError> {
    let listing = listing.outside_safe_mode()?;
    // The states of DataNodes are as old as the beginning of the answer, and other queries may have told newer ones.
    let is_current = asked.is_none_or(|asked| is_current(shared, asked));
    let is_changed = is_current && shared.take_nodes(&listing).map_err(failed)?;
    let addresses: BTreeSet<String> = listing.nodes.iter().map(|node| node.address.clone()).collect();
    if let Some(asked) = asked {
        let refused = listing.refused.iter();
        let refused = refused.map(|(why, groups)| format!("{groups} block groups cannot be repaired: {why}"));
        let lines: Vec<String> = refused.collect();
        let (uncovered, held) = (uncovered(&listing.snapshots), held(&listing.snapshots));
        let missing = missing(&listing.missing);
        shared.take_groups(asked, listing, missing.is_empty()).map_err(failed)?;
        let mut state = shared.state();
        state.note_troubles("listing", lines);
        state.note_troubles("missing", missing);
        state.note_troubles("snapshots", uncovered);
        state.note_remarks("snapshots", held);
    }
    if is_changed || asked.is_some() {
        let lines = lonely(shared, &addresses);
        shared.state().note_troubles("lonely", lines);
    }
    Ok(())
}

/// Returns the problems with folders that do not exist. Without them, the listing is incomplete.
fn missing(folders: &[String]) -> Vec<String> {
    let line = |folder: &String| {
        format!(
            "HDFS has no folder {folder}, so its files are not watched, scrubbed or repaired; correct `paths` in \
             [store.namenode] of mend.toml, and restart the coordinator"
        )
    };
    folders.iter().map(line).collect()
}

/// Returns the problems with snapshots whose deleted files cannot be listed.
pub(super) fn uncovered(snapshots: &Snapshots) -> Vec<String> {
    let line = |(folder, why): &(String, String)| {
        format!(
            "files that exist only in snapshots of {folder} are not scrubbed, repaired or counted, because \
             the NameNode does not list them: {why}; run the coordinator as a superuser of HDFS"
        )
    };
    snapshots.uncovered.iter().map(line).collect()
}

/// Returns a remark on deleted files that exist only in snapshots.
pub(super) fn held(snapshots: &Snapshots) -> Vec<String> {
    match snapshots.files {
        0 => Vec::new(),
        files => vec![format!(
            "deleted files that exist only in snapshots are counted too: {files}, in {} snapshots of {} \
             folders",
            snapshots.snapshots, snapshots.folders
        )],
    }
}

/// Returns the problems with DataNodes without a helper, and with helpers without a DataNode.
fn lonely(shared: &HdfsSystem, addresses: &BTreeSet<String>) -> Vec<String> {
    let state = shared.state();
    let counts = state.view.groups().block_counts();
    let mut lines = Vec::new();
    for node in state.ledger.nodes().unwrap_or_default() {
        let blocks = counts.get(&node.id).copied().unwrap_or(0);
        if blocks > 0 && !shared.attachment.helpers.values().any(|helper| *helper == node.name) {
            lines.push(format!(
                "DataNode {} has {blocks} blocks but no helper, so they are neither read nor repaired there; \
                 add a helper with `mend node add`, set `datanode = \"{}\"` and `folders` in mend.toml, and restart the \
                 coordinator",
                node.name, node.name
            ));
        }
    }
    for (address, helper) in &shared.attachment.helpers {
        if !addresses.contains(address) {
            lines.push(format!(
                "mend.toml assigns helper {helper} to DataNode {address}, but the NameNode lists no such \
                 DataNode: see `hdfs dfsadmin -report`"
            ));
        }
    }
    lines
}

/// A repeated query, as a finder of problems.
#[derive(Clone, Copy)]
pub(super) struct Task {
    name: &'static str,
    /// The text for a failure, followed by the error.
    failure: &'static str,
}

const ASK_NODES: Task = Task {
    name: ASKING,
    failure: "cannot ask the NameNode about its DataNodes, so their state here may be outdated",
};
const LIST_FILES: Task =
    Task { name: LISTING_FILES, failure: "cannot list all files of HDFS; this will be tried again" };
pub(super) const READ_EDITS: Task = Task {
    name: READING_EDITS,
    failure: "cannot read the edit log of HDFS, so new and deleted files are unknown at the moment",
};
pub(super) const QUERY_FILES: Task = Task {
    name: QUERYING_FILES,
    failure: "cannot query files of HDFS that have changed, so what is known of them may be outdated",
};

/// Reports that a query failed, or succeeds again.
pub(super) fn note(shared: &HdfsSystem, task: Task, told: Result<(), AskError>) {
    let lines = match told {
        Ok(()) => Vec::new(),
        // The JVM will be restarted; until then the last error still applies.
        Err(AskError::Pausing { .. }) => return,
        Err(error) => vec![format!("{}: {error}", task.failure)],
    };
    shared.state().note_troubles(task.name, lines);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datanodes_are_queried_often_if_the_answer_is_quick() {
        let ms = Duration::from_millis;
        assert_eq!([0, 9, 20, 900].map(|took| pause_after(ms(took))), [ms(500), ms(500), ms(1000), ms(2000)]);
    }
}
