//! [`LostFiles`]: learns of lost blocks of raided files and folders while the NameNode's lists of blocks that lack redundancy are
//! too long to be read, for example because of many replicated files that are not raided. The NameNode also lists
//! the files with blocks that have no intact replica, page by page, without blocking changes for long.

use std::collections::BTreeSet;
use std::time::Duration;

use super::coded::is_raid;
use super::following::failed;
use super::names::split;
use super::state::HdfsSystem;
use crate::namenode::{AskError, NameNode};

/// The pause after a query is this many times the time that it took, and at least this long.
const PEACE_TIMES: u32 = 20;
const PEACE_LEAST: Duration = Duration::from_secs(3);
/// Maximum number of files in a query for their blocks.
const FILES_AT_ONCE: usize = 200;

/// The raided files with lost blocks, as they were last listed.
#[derive(Debug, Default)]
pub(super) struct LostFiles {
    sources: BTreeSet<String>,
    /// The time before which there is no other query.
    due: Duration,
}

impl LostFiles {
    /// Queries the blocks of the raided files that have lost blocks, or had some at the last call.
    pub async fn step(&mut self, shared: &HdfsSystem, namenode: &NameNode) {
        let asked = shared.now();
        if asked < self.due || shared.attachment.parity_roots().next().is_none() {
            return;
        }
        if let Err(error) = self.query(shared, namenode).await {
            // The listings of all files go on meanwhile.
            tracing::debug!(%error, "cannot query raided files with lost blocks yet; trying again");
        }
        let now = shared.now();
        self.due = now + ((now - asked) * PEACE_TIMES).max(PEACE_LEAST);
    }

    async fn query(&mut self, shared: &HdfsSystem, namenode: &NameNode) -> Result<(), AskError> {
        let sources = shared.raided_among(&namenode.lost_files().await?);
        let all: Vec<&String> = self.sources.union(&sources).collect();
        for some in all.chunks(FILES_AT_ONCE) {
            let some: BTreeSet<String> = some.iter().map(|&source| source.clone()).collect();
            shared.query_raided(namenode, &some).await?;
        }
        self.sources = sources;
        Ok(())
    }
}

impl HdfsSystem {
    /// Queries these raided files, and all below these folders, and records the answer.
    pub(super) async fn query_raided(
        &self,
        namenode: &NameNode,
        sources: &BTreeSet<String>,
    ) -> Result<(), AskError> {
        let (asked, paths) = (self.now(), self.attachment.parity_of(sources));
        let listing = namenode.raided(&paths, &|_| {}).await?;
        self.take_raided(asked, listing, Some(&paths)).map_err(failed)
    }

    /// Returns the known raided files and folders to which these files belong, as data or as parity.
    fn raided_among(&self, paths: &BTreeSet<String>) -> BTreeSet<String> {
        let state = self.state();
        let names = state.view.groups().names();
        let sources = paths.iter().map(|path| self.attachment.source_of(path).unwrap_or(path));
        let is_known = |source: &&str| names.at(source).into_iter().any(is_raid);
        let sources = sources.flat_map(|source| [source, split(source).0]);
        sources.filter(is_known).map(str::to_owned).collect()
    }
}
