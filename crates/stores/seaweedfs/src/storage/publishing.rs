//! Puts a rebuilt shard into service: mounts it under the lock and waits until the master lists it. Also
//! takes bad copies out of service.

use std::sync::Arc;
use std::time::Duration;

use crate::blocks::{ShardName, VolumeName};
use codes::BlockIndex;
use repair::{BlockId, Digest, NodeId, StripeId};
use store_api::{BlockRecord, BlockState, Origin, RecordWrite, StoreChange, StoreError, Term};
use tokio::time::Instant;

use super::claims::Hold;
use super::deletions::Deletions;
use super::state::Shared;
use super::view::{Expected, shard_number, shard_of};
use super::withdrawals::Withdrawal;
use crate::error::AskError;
use crate::listing::ServerId;
use crate::server::{MountedShards, VolumeServer};

/// Timeout for the master to list a mounted shard. It usually does so at once.
const LISTED_LIMIT: Duration = Duration::from_secs(20);
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// The number of bytes read from the start and the end of a mounted shard as a test.
const TRIED_BYTES: u64 = 4096;

impl Shared {
    /// Mounts shards whose files are in place, and waits until the master lists them. A server that serves
    /// another file under a shard's name unmounts that file first.
    ///
    /// A repair that has written the files has claimed the stripe. For files that were found on the servers'
    /// disks (adoption), this call takes the lock itself.
    ///
    /// # Errors
    /// [`StoreError::NotServed`] if a server does not serve its shard correctly. The shard is then unmounted.
    /// The file is deleted only if a repair has written it. Shards mounted before it stay mounted. The same
    /// error is returned for a found shard without a checksum that can be rebuilt.
    pub async fn publish(
        self: &Arc<Self>,
        term: Term,
        stripe: &StripeId,
        blocks: &[(BlockIndex, NodeId, Option<Digest>)],
        origin: Origin,
    ) -> Result<(), StoreError> {
        for &(index, node, digest) in blocks {
            if origin == Origin::Found && digest.is_none() {
                self.check_need(stripe, index, node)?;
            }
            self.note_move(stripe, index, node);
            let copy = (stripe.clone(), index, node);
            self.known.state().view.begin_publication(copy.clone());
            let done = self.publish_copy(term, stripe, (index, node), origin).await;
            self.known.state().view.end_publication(&copy);
            done?;
        }
        self.refresh_if_due(stripe).await;
        Ok(())
    }

    /// Mounts one shard, written by a repair or found on the server's disk.
    async fn publish_copy(
        self: &Arc<Self>,
        term: Term,
        stripe: &StripeId,
        (index, node): (BlockIndex, NodeId),
        origin: Origin,
    ) -> Result<(), StoreError> {
        match origin {
            Origin::Written => {
                let hold = self.lock.claimed(stripe).await;
                self.serve(&hold, (term, stripe, index, node), origin).await
            }
            Origin::Found => self.adopt(term, stripe, index, node).await,
        }
    }

    /// Refuses a shard that was found, and that no checksum proves, if the shard can be rebuilt from others.
    /// It may be left from an earlier encoding.
    fn check_need(&self, stripe: &StripeId, index: BlockIndex, node: NodeId) -> Result<(), StoreError> {
        let state = self.known.state();
        let Some(volume) = state.view.volume_of(stripe) else { return Ok(()) };
        let can_be_rebuilt = state.view.stripe(volume).is_some_and(|stripe| {
            let is_healthy =
                |block: &&BlockRecord| block.holders().any(|holder| holder.state == BlockState::Healthy);
            stripe.blocks.iter().filter(is_healthy).count() >= stripe.code.data_blocks()
        });
        if !can_be_rebuilt {
            return Ok(());
        }
        let server = state.view.nodes().server(node).map_or_else(|| node.to_string(), ServerId::to_string);
        let why =
            "the volume has no checksums, so the shard may belong to an earlier encoding; Mend rebuilds it";
        Err(StoreError::NotServed { block: block_of(stripe, index), node, server, why: why.to_owned() })
    }

    /// Records that the shard moves to another server, which makes the locations cached by servers stale.
    fn note_move(&self, stripe: &StripeId, index: BlockIndex, node: NodeId) {
        let mut state = self.known.state();
        let (Some(volume), Some(server)) = (state.view.volume_of(stripe), state.view.nodes().server(node))
        else {
            return;
        };
        if !state.view.volumes().is_home(volume, shard_number(index), server) {
            state.inspection.note_move(volume);
        }
    }

    /// Puts a shard into service whose file was found on a server's disk: brings the metadata files that the
    /// server lacks, and mounts the shard.
    async fn adopt(
        self: &Arc<Self>,
        term: Term,
        stripe: &StripeId,
        index: BlockIndex,
        node: NodeId,
    ) -> Result<(), StoreError> {
        let hold = self.begin_upkeep(stripe).await?;
        let done = match self.prepare_for_upkeep(&hold, node).await {
            Ok(()) => self.serve(&hold, (term, stripe, index, node), Origin::Found).await,
            Err(error) => Err(error),
        };
        self.lock.end_upkeep(hold).await;
        done
    }

    async fn serve(
        self: &Arc<Self>,
        hold: &Hold,
        (term, stripe, index, node): (Term, &StripeId, BlockIndex, NodeId),
        origin: Origin,
    ) -> Result<(), StoreError> {
        let server = self.known.state().view.nodes().server(node).cloned();
        let block =
            |volume: &VolumeName| ShardName { volume: volume.clone(), shard: shard_number(index) }.block_id();
        let not_served = |block: BlockId, why: String| StoreError::NotServed {
            block,
            node,
            server: server.as_ref().map_or_else(|| node.to_string(), ServerId::to_string),
            why,
        };
        let Ok(volume) = stripe.0.parse::<VolumeName>() else {
            return Err(store_api::CatalogError::NoSuchStripe(stripe.clone()).into());
        };
        let name = block(&volume);
        let Some(server) = &server else {
            return Err(not_served(name, "it is not a volume server".to_owned()));
        };
        let shard = ShardName { volume: volume.clone(), shard: shard_number(index) };
        self.known.state().forget_withdrawal(&Withdrawal::new(&shard, server));
        Deletions::of(self).receive(hold, &shard, server).await;
        if let Err(why) = self.mount(hold, &volume, shard.shard, server).await {
            tracing::warn!(block = %name, %server, why, "cannot put a shard into service");
            match origin {
                Origin::Written => self.withdraw(&shard, server).await,
                Origin::Found => self.leave_unmounted(hold, &shard, server).await,
            }
            return Err(not_served(name, why));
        }
        Deletions::of(self).settle(hold, &shard, server).await;
        let mended = (stripe.clone(), index, node, BlockState::Healthy);
        self.known.state().record_states(term, &[mended])?;
        self.settle(term, stripe, &volume, index, node).await
    }

    /// Unmounts a found shard that the server does not serve correctly. Its file stays: it may be good.
    async fn leave_unmounted(&self, hold: &Hold, shard: &ShardName, server: &ServerId) {
        let mounting = self.mounting(shard.volume.id());
        let _alone = mounting.lock().await;
        if self.lock.check(hold).await.is_err() || self.serves_well(shard, server).await == Ok(true) {
            return;
        }
        if let Ok(connection) = self.known.connect(server).await
            && let Err(error) = connection.unmount(&shard.volume, &[shard.shard]).await
        {
            tracing::warn!(%shard, %server, %error, "cannot unmount a shard");
        }
    }

    /// Mounts one shard, checks what the server reports about it, and waits until the master lists it.
    async fn mount(
        &self,
        hold: &Hold,
        volume: &VolumeName,
        shard: u8,
        server: &ServerId,
    ) -> Result<(), String> {
        let text = |error: AskError| error.to_string();
        let expected = self.known.state().view.expected(volume.id());
        let expected = expected.ok_or("the state of the volume is no longer known")?;
        let connection = self.known.connect(server).await?;
        let mounting = self.mounting(volume.id());
        let _alone = mounting.lock().await;
        self.lock.check(hold).await?;
        // If the shard is already mounted, the server would continue to serve the old file.
        connection.unmount(volume, &[shard]).await.map_err(text)?;
        self.lock.check(hold).await?; // The lock may have been lost while the server was busy.
        connection.mount(volume, &[shard]).await.map_err(text)?;
        check_mounted(&connection, volume, shard, expected).await?;
        self.wait_until_listed(volume, shard, server).await
    }

    async fn wait_until_listed(
        &self,
        volume: &VolumeName,
        shard: u8,
        server: &ServerId,
    ) -> Result<(), String> {
        let until = Instant::now() + LISTED_LIMIT;
        loop {
            self.known.refresh(volume.id()).await?;
            if self.known.serves_as_expected(volume, shard, server) {
                return Ok(());
            }
            if Instant::now() >= until {
                let listed = self.known.state().view.volumes().encodings_at(volume.id(), shard, server);
                return Err(match listed.first() {
                    None => format!("the master did not list it within {} s", LISTED_LIMIT.as_secs()),
                    Some(other) => format!("the master lists it under another encoding ({})", other.0),
                });
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Records that this copy is healthy. Unmounts the corrupt copies on other servers, and marks them for
    /// removal.
    async fn settle(
        self: &Arc<Self>,
        term: Term,
        stripe: &StripeId,
        volume: &VolumeName,
        index: BlockIndex,
        node: NodeId,
    ) -> Result<(), StoreError> {
        let others: Vec<NodeId> = {
            let mut state = self.known.state();
            state.view.set_state(stripe, index, node, BlockState::Healthy);
            state.tell_volumes([volume.id()]);
            let record = state.view.stripe(volume.id());
            let block = record.and_then(|record| record.blocks.into_iter().nth(usize::from(index.0)));
            let holders = block.iter().flat_map(|block| block.holders()).collect::<Vec<_>>();
            holders
                .iter()
                .filter(|it| {
                    it.node != node && matches!(it.state, BlockState::Corrupt | BlockState::Unreadable)
                })
                .map(|it| it.node)
                .collect()
        };
        let block = ShardName { volume: volume.clone(), shard: shard_number(index) }.block_id();
        for other in others {
            if let Err(error) = self.take_out_of_service(other, &block).await {
                // The good copy is served anyway, and this copy stays listed as bad.
                tracing::warn!(%block, %error, "cannot take a bad copy out of service");
                continue;
            }
            self.known.state().ledger.write(term, RecordWrite::Discard(other, block.clone()))?;
            self.known.state().tell(vec![StoreChange::Discard(other, block.clone())]);
        }
        Ok(())
    }

    /// Unmounts a shard on a node's server, so that the node can delete the file.
    ///
    /// # Errors
    /// [`StoreError::Taken`] if another client works on the volume.
    pub async fn take_out_of_service(
        self: &Arc<Self>,
        node: NodeId,
        block: &BlockId,
    ) -> Result<(), StoreError> {
        let Some(shard) = shard_of(block) else { return Ok(()) };
        let Some(server) = self.known.state().view.nodes().server(node).cloned() else { return Ok(()) };
        let stripe = StripeId(shard.volume.to_string());
        let hold = self.begin_upkeep(&stripe).await?;
        let done = self.unmount(&hold, &shard, &server).await;
        self.lock.end_upkeep(hold).await;
        done.map_err(|why| StoreError::Taken { stripe, why })
    }

    async fn unmount(
        self: &Arc<Self>,
        hold: &Hold,
        shard: &ShardName,
        server: &ServerId,
    ) -> Result<(), String> {
        let connection = self.known.connect(server).await?;
        if !self.known.state().view.has_good_copy_elsewhere(shard, server) {
            return Err(format!("no other server has a good copy of {shard}, so it stays on {server}"));
        }
        Deletions::of(self).hand_over(hold, shard, server).await?;
        {
            let mounting = self.mounting(shard.volume.id());
            let _alone = mounting.lock().await;
            // Reading the deletions of a large volume takes minutes.
            self.lock.check(hold).await?;
            if !self.known.state().view.has_good_copy_elsewhere(shard, server) {
                return Err(format!("the other good copy of {shard} is gone, so it stays on {server}"));
            }
            connection.unmount(&shard.volume, &[shard.shard]).await.map_err(|error| error.to_string())?;
            self.known.refresh(shard.volume.id()).await?;
        }
        self.refresh_locations(hold, &shard.volume).await;
        // Until then, other servers sent deletions for this shard here.
        Deletions::of(self).hand_over(hold, shard, server).await
    }
}

/// Returns the name of a stripe's block.
fn block_of(stripe: &StripeId, index: BlockIndex) -> BlockId {
    BlockId(format!("{stripe}.ec{:02}", shard_number(index)))
}

/// Why a shard that a server should have mounted does not count as served well.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unserved {
    /// The server reports other facts about the shard, or cannot read it as a shard of its encoding.
    Badly(String),
    /// The server has not answered.
    Unknown(String),
}

impl From<Unserved> for String {
    fn from(unserved: Unserved) -> Self {
        match unserved {
            Unserved::Badly(why) | Unserved::Unknown(why) => why,
        }
    }
}

impl Unserved {
    /// Classifies the error of a read of the shard.
    fn unread(error: &AskError) -> Self {
        let why = format!("the server cannot read it as a shard of this encoding: {error}");
        match error {
            AskError::Refused { .. } => Self::Badly(why),
            _ => Self::Unknown(why),
        }
    }
}

/// Checks that a server reports the expected size and ratio of a shard that it has just mounted, and that it
/// can read the shard's first and last bytes.
pub(super) async fn check_mounted(
    server: &VolumeServer,
    volume: &VolumeName,
    shard: u8,
    expected: Expected,
) -> Result<(), Unserved> {
    let unknown = |error: AskError| Unserved::Unknown(error.to_string());
    let mounted = server.mounted(volume.id()).await.map_err(unknown)?;
    check_facts(&mounted, shard, expected).map_err(Unserved::Badly)?;
    let bytes = TRIED_BYTES.min(expected.shard_bytes);
    for offset in [0, expected.shard_bytes - bytes] {
        server
            .read_shard(volume.id(), shard, expected.encoding, offset, bytes as usize)
            .await
            .map_err(|error| Unserved::unread(&error))?;
    }
    Ok(())
}

/// Checks that a server reports the expected size and ratio of shards that were mounted on it before, and are mounted
/// again.
pub(super) async fn check_mounted_again(
    server: &VolumeServer,
    volume: &VolumeName,
    shards: &[u8],
    expected: Expected,
) -> Result<(), String> {
    let mounted = server.mounted(volume.id()).await.map_err(|error| error.to_string())?;
    shards.iter().try_for_each(|&shard| check_facts(&mounted, shard, expected))
}

/// Checks what a server reports about a shard.
fn check_facts(mounted: &MountedShards, shard: u8, expected: Expected) -> Result<(), String> {
    match mounted.shards.get(&shard) {
        None => return Err("the server reports that the shard is not mounted".to_owned()),
        Some(&bytes) if bytes != expected.shard_bytes => {
            return Err(format!(
                "the server reports {bytes} bytes, and the shard has {}",
                expected.shard_bytes
            ));
        }
        Some(_) => {}
    }
    match mounted.ratio {
        Some(ratio) if ratio != expected.ratio => {
            let (data, parity) = (ratio.data(), ratio.parity());
            Err(format!("the server reports that the volume has {data}+{parity} shards"))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
#[path = "publishing/tests.rs"]
mod tests;
