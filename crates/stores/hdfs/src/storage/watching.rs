//! Background tasks that follow the cluster. DataNodes are queried every few seconds, which is cheap. All
//! groups are listed repeatedly, with pauses that bound the load on the NameNode, and also when a DataNode
//! comes or goes.

use std::collections::BTreeSet;
use std::sync::Weak;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use super::state::{ASKING, Shared};
use crate::listing::{DataNode, Listing, Snapshots};
use crate::namenode::{AskError, NameNode};

/// Interval between queries for DataNodes.
const NODES_EVERY: Duration = Duration::from_secs(2);
/// The time of the first query for the DataNodes' folders, and the interval between later ones. Each query dials
/// every DataNode.
const FOLDERS_FIRST: Duration = Duration::from_secs(30);
const FOLDERS_EVERY: Duration = Duration::from_secs(600);
/// Minimum interval between listings. Each listing is also followed by a pause of `PEACE_TIMES` times its
/// duration.
const LIST_EVERY: Duration = Duration::from_secs(5);
const PEACE_TIMES: u32 = 20;
/// Maximum number of groups with unreported blocks that are queried again per round.
const DUE_AT_ONCE: usize = 64;

/// Follows the DataNodes until the storage is dropped.
pub(super) async fn watch_nodes(storage: Weak<Shared>, namenode: NameNode) {
    loop {
        sleep(NODES_EVERY).await;
        let Some(shared) = storage.upgrade() else { return };
        let told = namenode.nodes().await;
        note(&shared, told.and_then(|listing| take(&shared, listing, None)));
        settle(&shared).await;
    }
}

/// Reports a NameNode that does not answer, until the storage is dropped. A query may wait for minutes.
pub(super) async fn watch_silence(storage: Weak<Shared>) {
    loop {
        sleep(NODES_EVERY).await;
        let Some(shared) = storage.upgrade() else { return };
        shared.tell_blindness();
    }
}

/// Reports DataNodes with folders that their helpers do not know, until the storage is dropped. Blocks in such a
/// folder would count as lost.
pub(super) async fn watch_folders(storage: Weak<Shared>, namenode: NameNode) {
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
fn unknown_folders(shared: &Shared, node: &DataNode) -> Option<String> {
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
async fn settle(shared: &Shared) {
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

/// Follows the block groups until the storage is dropped.
pub(super) async fn watch_groups(storage: Weak<Shared>, namenode: NameNode) {
    loop {
        // Starts the JVM first, because its startup is not load on the NameNode and must not lengthen the
        // pause.
        let _ = namenode.start().await; // The listing below reports the error.
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

/// Lists all DataNodes and block groups, and records the answer.
async fn list(shared: &Shared, namenode: &NameNode) {
    let asked = shared.now();
    let heard = |progress| shared.note_progress(progress);
    let listing = namenode.list(&shared.attachment.paths, &heard).await;
    note(shared, listing.and_then(|listing| take(shared, listing, Some(asked))));
}

/// Records the DataNodes, and also the groups if `asked`, the time of the query, is given. An answer in safe
/// mode is ignored, since the NameNode still waits for block reports.
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

/// Returns the problems with snapshots whose deleted files cannot be listed.
fn uncovered(snapshots: &Snapshots) -> Vec<String> {
    let line = |(folder, why): &(String, String)| {
        format!(
            "files that exist only in snapshots of {folder} are not scrubbed, repaired or counted, because \
             the NameNode does not list them: {why}; run the coordinator as a superuser of HDFS"
        )
    };
    snapshots.uncovered.iter().map(line).collect()
}

/// Returns a remark on deleted files that exist only in snapshots.
fn held(snapshots: &Snapshots) -> Vec<String> {
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
fn lonely(shared: &Shared, addresses: &BTreeSet<String>) -> Vec<String> {
    let state = shared.state();
    let counts = state.view.groups().block_counts();
    let mut lines = Vec::new();
    for node in state.ledger.nodes().unwrap_or_default() {
        let blocks = counts.get(&node.id).copied().unwrap_or(0);
        if blocks > 0 && !shared.attachment.helpers.values().any(|helper| *helper == node.name) {
            lines.push(format!(
                "DataNode {} has {blocks} blocks but no helper, so they are neither read nor repaired there; \
                 add a helper with `mend node add` and set `datanode = \"{}\"` in mend.toml",
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

/// Reports that the NameNode cannot be reached, or can be reached again.
fn note(shared: &Shared, told: Result<(), AskError>) {
    let lines = match told {
        Ok(()) => Vec::new(),
        // The JVM will be restarted; until then the last error still applies.
        Err(AskError::Pausing { .. }) => return,
        Err(error) => vec![format!("cannot list the cluster, so its state here may be outdated: {error}")],
    };
    shared.state().note_troubles(ASKING, lines);
}
