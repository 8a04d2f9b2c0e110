//! Keeping up with the cluster. DataNodes are asked about every few seconds, which is cheap; all groups are listed again and
//! again, at a share of the NameNode's time that stays small however many there are, and when a DataNode comes or goes.

use std::collections::BTreeSet;
use std::sync::Weak;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use super::state::Shared;
use crate::listing::{Listing, Snapshots};
use crate::namenode::{AskError, NameNode};

/// How often DataNodes are asked about.
const NODES_EVERY: Duration = Duration::from_secs(2);
/// Everything is listed no more often than this, and the NameNode is left in peace for many times as long as it took.
const LIST_EVERY: Duration = Duration::from_secs(5);
const PEACE_TIMES: u32 = 20;
/// Unsettled groups that are asked for again at a time.
const DUE_AT_ONCE: usize = 64;

/// Keeps up with DataNodes until the storage is dropped.
pub(super) async fn watch_nodes(storage: Weak<Shared>, namenode: NameNode) {
    loop {
        sleep(NODES_EVERY).await;
        let Some(shared) = storage.upgrade() else { return };
        let told = namenode.nodes().await;
        note(&shared, told.and_then(|listing| take(&shared, listing, None)));
        settle(&shared).await;
    }
}

/// Asks again for groups with blocks that DataNodes may not have reported yet.
async fn settle(shared: &Shared) {
    let due = shared.state().view.due(shared.now(), DUE_AT_ONCE);
    for group in due {
        if let Err(why) = shared.look_up(&group).await {
            return tracing::debug!(why, "groups of which not all is known are asked for again");
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
    format!("{groups} written a moment ago, and {count} once DataNodes have told the NameNode of all blocks")
}

/// Keeps up with block groups until the storage is dropped.
pub(super) async fn watch_groups(storage: Weak<Shared>, namenode: NameNode) {
    loop {
        // The time that a JVM takes to start is not the NameNode's.
        let _ = namenode.start().await; // An error is met again, and told, below.
        let began = Instant::now();
        {
            let Some(shared) = storage.upgrade() else { return };
            list(&shared, &namenode).await;
        }
        let peace = (began.elapsed() * PEACE_TIMES).max(LIST_EVERY);
        sleep(LIST_EVERY).await;
        let Some(shared) = storage.upgrade() else { return };
        let patience = if shared.unlisted().is_some() { Duration::ZERO } else { peace - LIST_EVERY };
        let _ = timeout(patience, shared.look.notified()).await;
    }
}

/// Lists everything.
async fn list(shared: &Shared, namenode: &NameNode) {
    let asked = shared.now();
    let heard = |progress| shared.note_progress(progress);
    let listing = namenode.list(&shared.attachment.paths, &heard).await;
    note(shared, listing.and_then(|listing| take(shared, listing, Some(asked))));
}

/// Takes in DataNodes, and everything else if `asked` says since when it is known. In safe mode the NameNode has yet to hear
/// from DataNodes, and what was known before counts.
fn take(shared: &Shared, listing: Listing, asked: Option<Duration>) -> Result<(), AskError> {
    if listing.safe_mode {
        return Err(AskError::Failed("it is in safe mode".to_owned()));
    }
    let failed = |error: store_api::CatalogError| AskError::Failed(error.to_string());
    shared.take_nodes(&listing).map_err(failed)?;
    if let Some(asked) = asked {
        let refused = listing.refused.iter();
        let refused = refused.map(|(why, groups)| format!("{groups} block groups cannot be repaired: {why}"));
        let mut lines: Vec<String> = refused.collect();
        lines.extend(uncovered(&listing.snapshots));
        let held = held(&listing.snapshots);
        let addresses = listing.nodes.iter().map(|node| node.address.clone()).collect();
        shared.take_groups(asked, listing, true).map_err(failed)?;
        lines.extend(lonely(shared, &addresses));
        let mut state = shared.state();
        state.note_troubles("listing", lines);
        state.note_remarks("snapshots", held);
    }
    Ok(())
}

/// Warnings about snapshots whose deleted files are not listed.
fn uncovered(snapshots: &Snapshots) -> Vec<String> {
    let line = |(folder, why): &(String, String)| {
        format!(
            "files that only snapshots of {folder} hold are neither scrubbed nor repaired nor counted, as the NameNode does not \
             list them: {why}; run the coordinator as a user who may list all of HDFS"
        )
    };
    snapshots.uncovered.iter().map(line).collect()
}

/// A remark on deleted files that only snapshots hold.
fn held(snapshots: &Snapshots) -> Vec<String> {
    match snapshots.files {
        0 => Vec::new(),
        files => vec![format!(
            "deleted files that only snapshots hold are counted too: {files}, in {} snapshots of {} folders",
            snapshots.snapshots, snapshots.folders
        )],
    }
}

/// DataNodes without a helper, and helpers without a DataNode.
fn lonely(shared: &Shared, addresses: &BTreeSet<String>) -> Vec<String> {
    let state = shared.state();
    let counts = state.view.groups().block_counts();
    let mut lines = Vec::new();
    for node in state.ledger.nodes().unwrap_or_default() {
        let blocks = counts.get(&node.id).copied().unwrap_or(0);
        if blocks > 0 && !shared.attachment.helpers.values().any(|helper| *helper == node.name) {
            lines.push(format!(
                "no helper works beside DataNode {}, which has {blocks} blocks: they are neither read nor repaired there; add \
                 one with `mend node add` and say `datanode = \"{}\"` in mend.toml",
                node.name, node.name
            ));
        }
    }
    for (address, helper) in &shared.attachment.helpers {
        if !addresses.contains(address) {
            lines.push(format!(
                "helper {helper} is said to work beside DataNode {address}, and the NameNode has none of that address: \
                 `hdfs dfsadmin -report` lists them"
            ));
        }
    }
    lines
}

/// Says that the NameNode is not seen, or is seen again.
fn note(shared: &Shared, told: Result<(), AskError>) {
    let lines = match told {
        Ok(()) => Vec::new(),
        // It comes up again, and what was said of it last is still so.
        Err(AskError::Pausing { .. }) => return,
        Err(error) => vec![format!("the cluster is not seen, and what is said of it is old: {error}")],
    };
    shared.state().note_troubles("asking", lines);
}
