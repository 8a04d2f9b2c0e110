//! The [terms](BlockTerms) under which helpers rebuild the blocks of a group: the checksum format of the group's
//! other blocks, and the block tokens that DataNodes require for pushed blocks.

use std::collections::BTreeMap;
use std::time::Duration;

use codes::BlockIndex;
use repair::{Permit, StripeId};

use super::groups::Listed;
use super::state::Shared;
use crate::blocks::{BlockTerms, ChecksumFormat};
use crate::namenode::NameNode;

/// After DataNodes have not answered which checksum format a group has, none is asked for this long: a firewall may
/// make every question wait for its timeout.
const UNANSWERED_PAUSE: Duration = Duration::from_secs(60);

/// Returns the terms of these blocks. They do not depend on the DataNode, so the target of a block may change later.
pub(super) async fn permits(
    shared: &Shared,
    stripe: &StripeId,
    found: &Listed,
    blocks: &[BlockIndex],
) -> Result<Vec<(BlockIndex, Permit)>, String> {
    let Some(namenode) = &shared.namenode else { return Ok(Vec::new()) };
    let indices: BTreeMap<u8, BlockIndex> = {
        let state = shared.state();
        let index = |&at: &BlockIndex| Some((state.view.groups().index_in_group(stripe, at)?, at));
        blocks.iter().filter_map(index).collect()
    };
    let asked: Vec<u8> = indices.keys().copied().collect();
    let mut tokens = tokens(shared, namenode, found, &asked).await?;
    let checksums = checksums(shared, namenode, found).await;
    let mut permits = Vec::new();
    for (index, at) in indices {
        let terms = BlockTerms { checksums, token: tokens.remove(&index) };
        let permit = terms.to_permit().map_err(|error| error.to_string())?;
        permits.extend(permit.map(|permit| (at, permit)));
    }
    Ok(permits)
}

/// Queries the checksum format of a group. Returns `None` if it is not known; the configured format is used then.
async fn checksums(shared: &Shared, namenode: &NameNode, found: &Listed) -> Option<ChecksumFormat> {
    let failed = shared.state().checksums_failed;
    if failed.is_some_and(|at| shared.now() < at + UNANSWERED_PAUSE) {
        return None;
    }
    let asked = namenode.checksum(&found.file, found.start).await;
    shared.state().checksums_failed = asked.is_err().then(|| shared.now());
    asked.unwrap_or_else(|error| {
        let stripe = found.group.stripe_id();
        tracing::warn!(%stripe, %error, "rebuilding blocks with the configured checksum format");
        None
    })
}

/// Requests a block token for each of these blocks, if blocks are pushed and HDFS uses tokens. Tokens are requested
/// before each repair, since keys rotate and a restarted NameNode has new keys.
async fn tokens(
    shared: &Shared,
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
