//! Keeps deleted needles deleted when shards move.
//!
//! SeaweedFS records the deletion of a needle in the journal (`.ecj`) of a single server, one that has the
//! needle's first shard. All servers look there for the needle. So a server that takes over a shard also needs
//! the deletions that the shard's former server has journalled.

use std::collections::BTreeSet;
use std::sync::Arc;

use repair::StripeId;

use super::inspection::bring;
use super::state::Shared;
use crate::blocks::VolumeName;
use crate::listing::ServerId;
use crate::server::{SmallFile, VolumeServer};

/// Upper limit of a journal in bytes: 8 million deletions.
const MAX_JOURNAL_BYTES: usize = 64 << 20;
/// Size of a journal's entry in bytes: the ID of a needle.
const ENTRY_BYTES: usize = 8;

impl Shared {
    /// Copies the deletions that the other servers of a shard have journalled to a server that is to serve the
    /// shard. The caller must hold the cluster's lock for the volume.
    pub(super) async fn receive_deletions(self: &Arc<Self>, name: &VolumeName, shard: u8, to: &ServerId) {
        for from in self.other_servers(name, shard, to) {
            if let Err(why) = self.copy_deletions(name, &from, to).await {
                tracing::warn!(volume = %name, %from, server = %to, why, "cannot copy the journal of deleted needles");
            }
        }
    }

    /// Copies the deletions that a server has journalled to the other servers of a shard, because the server no
    /// longer serves the shard. The caller must hold the cluster's lock for the volume.
    ///
    /// # Errors
    /// The reason for the failure, as text.
    pub(super) async fn hand_over_deletions(
        self: &Arc<Self>,
        name: &VolumeName,
        shard: u8,
        from: &ServerId,
    ) -> Result<(), String> {
        for to in self.other_servers(name, shard, from) {
            self.copy_deletions(name, from, &to).await.map_err(|why| {
                format!("cannot copy the journal of deleted needles of {name} from {from} to {to}: {why}")
            })?;
        }
        Ok(())
    }

    fn other_servers(&self, name: &VolumeName, shard: u8, server: &ServerId) -> BTreeSet<ServerId> {
        let homes = self.known.state().view.volumes().homes(name.id(), shard);
        homes.into_iter().map(|home| home.server).filter(|other| other != server).collect()
    }

    async fn copy_deletions(
        self: &Arc<Self>,
        name: &VolumeName,
        from: &ServerId,
        to: &ServerId,
    ) -> Result<(), String> {
        let (source, target) = (self.known.connect(from).await?, self.known.connect(to).await?);
        let deleted = journal(&source, name).await?;
        if deleted.is_subset(&journal(&target, name).await?) {
            return Ok(());
        }
        tracing::info!(volume = %name, %from, server = %to, "copying the journal of deleted needles");
        for disk in self.disks_of(to) {
            // The server appends to its own journal.
            let bring = bring(&target, name, &[SmallFile::Ecj], source.address(), disk);
            let (serves, can_spare) = {
                let state = self.known.state();
                let volumes = state.view.volumes();
                (volumes.serves(name.id(), to), volumes.can_spare(name.id(), None, to))
            };
            if serves && can_spare {
                // A server reads the journal when it mounts the first shard of a volume.
                self.remounted(name, to, &target, bring).await?;
            } else {
                self.lock.check(&StripeId(name.to_string())).await?;
                bring.await?;
                if serves {
                    tracing::warn!(
                        volume = %name, server = %to,
                        "deleted needles may be readable until this server restarts: it cannot unmount its \
                         shards, because the volume would be unreadable meanwhile"
                    );
                }
            }
            if deleted.is_subset(&journal(&target, name).await?) {
                return Ok(());
            }
        }
        Err("the server still has a journal without these deletions".to_owned())
    }
}

/// Returns the IDs of the needles whose deletion a server has journalled.
async fn journal(server: &VolumeServer, name: &VolumeName) -> Result<BTreeSet<u64>, String> {
    let bytes = server.small_file(name, SmallFile::Ecj, MAX_JOURNAL_BYTES).await;
    let bytes = bytes.map_err(|error| error.to_string())?.unwrap_or_default();
    // The last entry may be incomplete, because it is being written.
    let (entries, _) = bytes.as_chunks::<ENTRY_BYTES>();
    Ok(entries.iter().map(|&entry| u64::from_be_bytes(entry)).collect())
}
