//! Undoes failed publications: unmounts the shard and deletes its file, so that SeaweedFS neither serves the
//! shard nor finds it at its next start.
//!
//! A withdrawal stays recorded until it is complete, across restarts of the coordinator. It ends without a
//! deletion if the server turns out to serve the shard correctly. It waits while the volume would be
//! unreadable without the shard. If the volume is decoded or deleted meanwhile, SeaweedFS leaves the unmounted file,
//! and the withdrawal still removes it. If the server returns under another ID, it mounts the file again, and the
//! withdrawal continues there.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::blocks::{ShardName, VolumeName};
use repair::StripeId;
use serde::{Deserialize, Serialize};
use store_api::CatalogError;

use super::claims::Hold;
use super::deletions::Deletions;
use super::open::NOT_AUTOMATIC;
use super::publishing::{Unserved, check_mounted};
use super::state::{Knowledge, Shared, State};
use super::unwritten::Record;
use crate::listing::ServerId;

/// Prefix of the keys under which pending withdrawals are recorded.
const PREFIX: &str = "seaweedfs/withdrawal/";

/// A shard whose publication on a server failed and must be undone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Withdrawal {
    block: String,
    server: String,
}

/// Pending withdrawals, with the error of the last attempt, or [`NOT_AUTOMATIC`].
#[derive(Default)]
pub(super) struct Withdrawals(BTreeMap<Withdrawal, String>);

impl Withdrawal {
    pub fn new(shard: &ShardName, server: &ServerId) -> Self {
        Self { block: shard.to_string(), server: server.0.clone() }
    }

    fn key(&self) -> String {
        format!("{PREFIX}{}/{}", self.block, self.server)
    }

    fn record(&self) -> Record {
        (self.key(), Some(serde_json::to_value(self).expect("plain text")))
    }

    /// Returns the withdrawal of the same shard from another server.
    fn at(&self, server: &ServerId) -> Self {
        Self { server: server.0.clone(), ..self.clone() }
    }

    fn shard(&self) -> Option<ShardName> {
        self.block.parse().ok()
    }

    fn server(&self) -> ServerId {
        ServerId(self.server.clone())
    }
}

impl Withdrawals {
    /// Returns the withdrawals that have failed so far or are not tried, one sentence each.
    pub fn lines(&self) -> Vec<String> {
        let late = self.0.iter().filter(|(_, why)| !why.is_empty());
        let line = |(it, why): (&Withdrawal, &String)| {
            format!(
                "{} did not serve the rebuilt shard {} correctly, and Mend has not removed the file yet: {why}",
                it.server, it.block
            )
        };
        late.map(line).collect()
    }
}

impl State {
    fn keep_withdrawal(&mut self, it: &Withdrawal) {
        self.keep_records([it.record()]);
        self.withdrawals.0.entry(it.clone()).or_default();
    }

    /// Drops a withdrawal and its record.
    pub fn forget_withdrawal(&mut self, it: &Withdrawal) {
        if self.withdrawals.0.remove(it).is_some() {
            self.keep_records([(it.key(), None)]);
        }
    }
}

/// Continues the withdrawals at a server that is listed under another ID now. The old and new records change in one
/// commit, because the coordinator may die in between.
pub(super) fn rename(state: &mut State, former: &ServerId, server: &ServerId) {
    let renamed = state.withdrawals.0.extract_if(.., |it, _| it.server == former.0);
    let renamed: Vec<(Withdrawal, String)> = renamed.collect();
    let records: Vec<Record> =
        renamed.iter().flat_map(|(it, _)| [(it.key(), None), it.at(server).record()]).collect();
    state.keep_records(records);
    state.withdrawals.0.extend(renamed.into_iter().map(|(it, why)| (it.at(server), why)));
}

impl Knowledge {
    /// Loads the withdrawals that earlier coordinators recorded. If Mend may not change servers unasked, they are left
    /// alone.
    ///
    /// # Errors
    /// [`CatalogError`].
    pub(super) fn recall_withdrawals(&self) -> Result<(), CatalogError> {
        let mut state = self.state();
        let records = state.ledger.list(PREFIX)?;
        let kept = records.into_iter().filter_map(|(_, value)| serde_json::from_value(value).ok());
        let why = if self.attachment.may_change { "" } else { NOT_AUTOMATIC };
        state.withdrawals.0 = kept.map(|it| (it, why.to_owned())).collect();
        Ok(())
    }

    /// Whether a server is listed with this shard under the current encoding only.
    pub(super) fn serves_as_expected(&self, volume: &VolumeName, shard: u8, server: &ServerId) -> bool {
        let state = self.state();
        let expected = state.view.expected(volume.id());
        let listed = state.view.volumes().encodings_at(volume.id(), shard, server);
        expected.is_some_and(|expected| listed == [expected.encoding])
    }
}

impl Shared {
    /// Withdraws a shard whose publication failed. If this is not possible now, [`withdraw_pending`] retries.
    pub(super) async fn withdraw(self: &Arc<Self>, shard: &ShardName, server: &ServerId) {
        let it = Withdrawal::new(shard, server);
        self.known.state().keep_withdrawal(&it);
        self.try_to_withdraw(&it).await;
    }

    async fn try_to_withdraw(self: &Arc<Self>, it: &Withdrawal) {
        match self.take_back(it).await {
            Ok(()) => self.known.state().forget_withdrawal(it),
            Err(why) => {
                tracing::warn!(
                    block = it.block,
                    server = it.server,
                    why,
                    "cannot remove a badly served shard yet"
                );
                if let Some(last) = self.known.state().withdrawals.0.get_mut(it) {
                    *last = why;
                }
            }
        }
    }

    async fn take_back(self: &Arc<Self>, it: &Withdrawal) -> Result<(), String> {
        let (Some(shard), server) = (it.shard(), it.server()) else { return Ok(()) };
        let stripe = StripeId(shard.volume.to_string());
        if !self.known.state().view.volumes().may_exist(shard.volume.id()) {
            let hold = self.lock.begin_upkeep(&stripe, shard.volume.id(), false).await;
            let hold = hold.map_err(|error| error.to_string())?;
            let done = self.delete_left_over(&hold, &shard, &server).await;
            self.lock.end_upkeep(hold).await;
            return done;
        }
        let hold = self.begin_upkeep(&stripe).await.map_err(|error| error.to_string())?;
        let done = match self.preserve_deletions(&hold, &shard, &server).await {
            Ok(()) => self.unmount_and_delete(&hold, &shard, &server).await,
            Err(why) => Err(why),
        };
        self.lock.end_upkeep(hold).await;
        done
    }

    /// Deletes the file of a shard whose volume does not exist any more, under the cluster's lock.
    async fn delete_left_over(
        &self,
        hold: &Hold,
        shard: &ShardName,
        server: &ServerId,
    ) -> Result<(), String> {
        let text = |error: crate::AskError| error.to_string();
        let volume = &shard.volume;
        self.known.refresh(volume.id()).await?;
        if self.known.state().view.volumes().may_exist(volume.id()) {
            return Err("the volume exists again".to_owned());
        }
        let connection = self.known.connect(server).await?;
        if !connection.mounted(volume.id()).await.map_err(text)?.shards.is_empty() {
            return Err("the server has mounted shards of the volume".to_owned());
        }
        self.lock.check(hold).await?;
        tracing::warn!(block = %shard, %server, "removing a rebuilt shard of a volume that does not exist any more");
        connection.delete(volume, &[shard.shard]).await.map_err(text)
    }

    /// Makes the deletions that a server has recorded on another server: with the last shard of a volume,
    /// SeaweedFS deletes its journal too.
    async fn preserve_deletions(
        self: &Arc<Self>,
        hold: &Hold,
        shard: &ShardName,
        server: &ServerId,
    ) -> Result<(), String> {
        let keepers = self.known.state().view.volumes().holders_of(shard.volume.id());
        Deletions::of(self).preserve(hold, &shard.volume, server, &keepers).await
    }

    /// Whether the master lists a shard on a server under the current encoding only, and the server serves it
    /// as a shard of the right length and encoding. The master's list alone does not tell: a failed
    /// publication may be listed.
    ///
    /// # Errors
    /// Why that is unknown, as text: the server has not answered, or the volume's encoding is unknown. A shard that is
    /// served well must not be removed because its server was slow for a moment.
    pub(super) async fn serves_well(&self, shard: &ShardName, server: &ServerId) -> Result<bool, String> {
        let expected = self.known.state().view.expected(shard.volume.id());
        let expected = expected.ok_or("the volume's encoding is unknown at present")?;
        if !self.known.serves_as_expected(&shard.volume, shard.shard, server) {
            return Ok(false);
        }
        let connection = self.known.connect(server).await?;
        match check_mounted(&connection, &shard.volume, shard.shard, expected).await {
            Ok(()) => Ok(true),
            Err(Unserved::Badly(_)) => Ok(false),
            Err(Unserved::Unknown(why)) => Err(why),
        }
    }

    async fn unmount_and_delete(
        &self,
        hold: &Hold,
        shard: &ShardName,
        server: &ServerId,
    ) -> Result<(), String> {
        let volume = &shard.volume;
        let mounting = self.mounting(volume.id());
        let _alone = mounting.lock().await;
        if self.serves_well(shard, server).await? {
            return Ok(());
        }
        self.lock.check(hold).await?;
        let text = |error: crate::AskError| error.to_string();
        let connection = self.known.connect(server).await?;
        connection.unmount(volume, &[shard.shard]).await.map_err(text)?;
        self.known.refresh(volume.id()).await?;
        // A shard that the volume needs stays on the disk, unmounted.
        if !self.known.state().view.can_spare(volume.id(), Some(shard.shard), server) {
            return Err("the volume would be unreadable without it".to_owned());
        }
        self.lock.check(hold).await?;
        tracing::warn!(block = %shard, %server, "removing a rebuilt shard that was not served correctly");
        connection.delete(volume, &[shard.shard]).await.map_err(text)
    }
}

/// The next step of a pending withdrawal.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    Forget,
    Try,
    Wait,
}

impl Step {
    /// Returns the next step. A shard that is served well after all needs no withdrawal, also if withdrawals are left
    /// alone. `why` is the error of the last attempt.
    fn of(serves_well: bool, can_go: bool, why: &str) -> Self {
        match serves_well {
            true => Self::Forget,
            false if can_go && why != NOT_AUTOMATIC => Self::Try,
            false => Self::Wait,
        }
    }
}

/// Retries pending withdrawals, and drops those that are no longer needed.
pub(super) async fn withdraw_pending(shared: &Arc<Shared>) {
    let pending = shared.known.state().withdrawals.0.clone();
    for (it, why) in pending {
        let (Some(shard), server) = (it.shard(), it.server()) else { continue };
        let is_there = shared.known.state().view.volumes().servers().contains_key(&server);
        let can_go = shared.known.state().view.can_spare(shard.volume.id(), Some(shard.shard), &server);
        // A volume of which the coordinator has not seen a shard since its start may still exist, also if the operator
        // has abandoned its encoding.
        let is_abandoned = shared.known.attachment.abandoned.iter().any(|it| it.volume == shard.volume);
        let may_exist = shared.known.state().view.volumes().may_exist(shard.volume.id()) || is_abandoned;
        let serves_well = shared.serves_well(&shard, &server).await == Ok(true);
        match Step::of(serves_well, is_there && (can_go || !may_exist), &why) {
            Step::Forget => shared.known.state().forget_withdrawal(&it),
            Step::Try => shared.try_to_withdraw(&it).await,
            Step::Wait => {}
        }
    }
}

#[cfg(test)]
#[path = "withdrawals/tests.rs"]
mod tests;
