//! Keeps the small files of volumes alike: inspects one volume after the other, and names and replaces copies that are not
//! the majority's. A server that is to get a shard is inspected first.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::blocks::VolumeName;
use repair::{BlockId, StripeId};
use store_api::StoreChange;
use tokio::time::Instant;

use super::publishing::check_mounted;
use super::side_files::{Problem, Verdict};
use super::state::{Shared, State};
use super::view::Expected;
use crate::address::ServerAddress;
use crate::error::AskError;
use crate::listing::ServerId;
use crate::server::{SmallFile, VolumeServer};

/// A server of which nobody can tell whether it has the right files is asked again so often, after so long.
const TRIES: u32 = 5;
const TRY_AGAIN_AFTER: Duration = Duration::from_secs(1);
/// A volume is looked at so often, one after the other.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// After a look at large indexes there is a rest of so many times as long.
const REST: u32 = 9;
/// It has fetched a file by then.
const BRING_LIMIT: Duration = Duration::from_secs(60);
const BRING_INDEX_LIMIT: Duration = Duration::from_secs(600);
/// A server that has let go of shards for a moment is asked so often to take them again.
const MOUNT_TRIES: usize = 5;
const MOUNT_AGAIN: Duration = Duration::from_millis(200);
/// In this order, as SeaweedFS needs the index first.
const FILES: [SmallFile; 3] = [SmallFile::Ecx, SmallFile::Vif, SmallFile::Ecsum];

/// What was found last.
#[derive(Default)]
pub(super) struct Inspection {
    /// The last volume that was looked at.
    last: u32,
    /// By volume, server and file: what is wrong, and why that is still so.
    standing: BTreeMap<(u32, ServerId, SmallFile), String>,
    /// Files of volumes of which no more than half of the servers have the same, by volume and file.
    split: BTreeMap<(u32, SmallFile), String>,
    /// Volumes of which shards have moved since servers forgot where they were.
    moved: BTreeSet<u32>,
}

/// Looks at one volume after the other until the storage is dropped.
pub(super) async fn inspect(storage: Weak<Shared>) {
    let mut rest = LOOK_EVERY;
    loop {
        tokio::time::sleep(rest).await;
        let Some(shared) = storage.upgrade() else { return };
        let (began, next) = (Instant::now(), shared.known.state().next_to_inspect());
        if let Some(volume) = next {
            shared.inspect(volume).await;
        }
        rest = LOOK_EVERY.max(began.elapsed() * REST);
    }
}

impl Inspection {
    /// A shard of a volume is about to be somewhere else.
    pub fn note_move(&mut self, volume: u32) {
        self.moved.insert(volume);
    }

    /// What is wrong and could not be put right, a sentence each.
    pub fn lines(&self) -> Vec<String> {
        self.standing.values().chain(self.split.values()).cloned().collect()
    }
}

impl State {
    fn next_to_inspect(&mut self) -> Option<u32> {
        let ids: Vec<u32> = self.view.volumes().iter().map(|(id, _)| id).collect();
        let next = ids.iter().copied().find(|&id| id > self.inspection.last).or(ids.first().copied());
        self.inspection.last = next.unwrap_or_default();
        let is_there = |id: &u32| ids.contains(id);
        self.inspection.standing.retain(|(id, ..), _| is_there(id));
        self.inspection.split.retain(|(id, _), _| is_there(id));
        next
    }
}

impl State {
    /// The volume that a stripe is, if servers are to forget now where its shards were.
    pub(super) fn next_to_refresh(&mut self, stripe: &StripeId) -> Option<VolumeName> {
        let id = self.view.volume_of(stripe)?;
        let is_due = self.view.volumes().is_whole(id) && self.inspection.moved.remove(&id);
        if is_due { Some(self.view.named(id)?.0) } else { None }
    }

    /// Tells that a server's copy of a file is not what it should be.
    fn tell_spoiled(&mut self, name: &VolumeName, server: &ServerId, file: SmallFile, problem: &Problem) {
        let Some(node) = self.view.nodes().node(server) else { return };
        let (stripe, file) = (StripeId(name.to_string()), BlockId(file.of(name)));
        self.tell(vec![StoreChange::Spoiled { node, stripe, file, problem: problem.to_string() }]);
    }
}

impl Shared {
    /// Inspects all volumes, and tells what is found.
    pub(super) async fn inspect_all(self: &Arc<Self>) {
        let volumes: Vec<u32> = {
            let mut state = self.known.state();
            state.inspection.standing.clear(); // It is told again.
            state.view.volumes().iter().map(|(id, _)| id).collect()
        };
        for volume in volumes {
            self.inspect(volume).await;
        }
    }

    /// Looks at the small files of a volume, and replaces what is not as most servers have it.
    pub(super) async fn inspect(self: &Arc<Self>, volume: u32) {
        let Some((name, expected)) = self.known.state().view.named(volume) else { return };
        for file in FILES {
            let copies = self.small_files.copies(&name, file, None).await;
            let verdict = copies.verdict(file, expected.encoding);
            {
                let mut state = self.known.state();
                let is_split = verdict.good.is_empty() && copies.is_split();
                let why = format!(
                    "servers have different {}, and no more than half of them agree: look at these files",
                    file.of(&name)
                );
                state.inspection.split.remove(&(volume, file));
                if is_split {
                    state.inspection.split.insert((volume, file), why);
                }
                let good = |server: &ServerId| verdict.good.contains(server);
                state
                    .inspection
                    .standing
                    .retain(|(id, server, it), _| *id != volume || *it != file || !good(server));
            }
            for (server, problem) in &verdict.bad {
                self.put_right(&name, server, file, problem).await;
            }
        }
    }

    async fn put_right(
        self: &Arc<Self>,
        name: &VolumeName,
        server: &ServerId,
        file: SmallFile,
        problem: &Problem,
    ) {
        let key = (name.id(), server.clone(), file);
        let is_known = self.known.state().inspection.standing.contains_key(&key);
        if !is_known {
            tracing::warn!(file = file.of(name), %server, %problem, "a small file of a volume is not as it should be");
            self.known.state().tell_spoiled(name, server, file, problem);
        }
        let stripe = StripeId(name.to_string());
        let done = match self.begin_upkeep(&stripe).await {
            Ok(()) => {
                let done = self.look_again(name, server, file).await;
                self.lock.end_upkeep(&stripe).await;
                done
            }
            Err(error) => Err(error.to_string()),
        };
        let mut state = self.known.state();
        match done {
            Ok(()) => drop(state.inspection.standing.remove(&key)),
            Err(why) => {
                let line = format!(
                    "{} on {server}: {problem}; it is not replaced yet: {why}; if that stays so, copy it by hand from \
                     another server",
                    file.of(name)
                );
                state.inspection.standing.insert(key, line);
            }
        }
    }

    /// Replaces a server's copy of a file if it still is not the majority's: somebody else may have worked on the volume
    /// until it was locked.
    async fn look_again(
        self: &Arc<Self>,
        name: &VolumeName,
        server: &ServerId,
        file: SmallFile,
    ) -> Result<(), String> {
        let (_, expected) =
            self.known.state().view.named(name.id()).ok_or("it is not known how the volume stands")?;
        let verdict = self.small_files.copies(name, file, None).await.verdict(file, expected.encoding);
        match verdict.bad.get(server) {
            Some(problem) => self.replace(name, server, file, &verdict, problem).await,
            None => Ok(()),
        }
    }

    /// Makes sure that a server has the small files of a volume as most have them; the volume is claimed.
    ///
    /// # Errors
    /// Why it has not, in words.
    pub(super) async fn complete(
        self: &Arc<Self>,
        name: &VolumeName,
        server: &ServerId,
        serves: bool,
    ) -> Result<(), String> {
        let files = if serves { &FILES[1..] } else { &FILES };
        for &file in files {
            let (_, expected) =
                self.known.state().view.named(name.id()).ok_or("it is not known how the volume stands")?;
            let mut verdict =
                self.small_files.copies(name, file, Some(server)).await.verdict(file, expected.encoding);
            // A server that has just started, or whose copy is being replaced, can be judged a little later.
            for _ in 0..TRIES {
                let is_known = verdict.good.contains(server) || verdict.bad.contains_key(server);
                if is_known || serves || file == SmallFile::Ecsum {
                    break;
                }
                tokio::time::sleep(TRY_AGAIN_AFTER).await;
                verdict =
                    self.small_files.copies(name, file, Some(server)).await.verdict(file, expected.encoding);
            }
            if verdict.good.contains(server) {
                continue;
            }
            match verdict.bad.get(server) {
                Some(problem) => {
                    if *problem != Problem::Missing {
                        self.known.state().tell_spoiled(name, server, file, problem);
                    }
                    self.replace(name, server, file, &verdict, problem).await?;
                }
                None if serves || file == SmallFile::Ecsum => {}
                None => return Err(format!("nobody can tell whether its {} is right", file.of(name))),
            }
        }
        Ok(())
    }

    /// Replaces a file by a copy of what most servers have; the volume is claimed.
    async fn replace(
        self: &Arc<Self>,
        name: &VolumeName,
        server: &ServerId,
        file: SmallFile,
        verdict: &Verdict,
        problem: &Problem,
    ) -> Result<(), String> {
        let source = verdict.good.first().ok_or("nobody has a good one")?;
        let (connection, source) = (self.known.connect(server).await?, self.known.connect(source).await?);
        let files: &[SmallFile] = match (file, problem) {
            (SmallFile::Ecx, Problem::Missing) => &[SmallFile::Ecx, SmallFile::Ecj],
            (SmallFile::Ecx, _) => &[SmallFile::Ecx],
            (SmallFile::Vif, _) => &[SmallFile::Vif],
            _ => &[SmallFile::Ecsum],
        };
        tracing::info!(file = file.of(name), %server, from = %source.address(), %problem, "bringing it anew");
        // The server's own choice may be another disk than the one that is read first.
        for disk in self.disks_of(server) {
            let bring = bring(&connection, name, files, source.address(), disk);
            let serves = self.known.state().view.volumes().serves(name.id(), server);
            match file {
                // An index that is in use is not to change under its reader.
                SmallFile::Ecx if serves => self.remounted(name, server, &connection, bring).await?,
                _ => bring.await?,
            }
            let (_, expected) =
                self.known.state().view.named(name.id()).ok_or("it is not known how the volume stands")?;
            let again =
                self.small_files.copies(name, file, Some(server)).await.verdict(file, expected.encoding);
            if again.good.contains(server) {
                return Ok(());
            }
        }
        Err("the server still has another one".to_owned())
    }

    /// What stands for the disks of a server in orders: 0 leaves the choice to the server, and so is no disk.
    fn disks_of(&self, server: &ServerId) -> Vec<u32> {
        let state = self.known.state();
        let disks = state.view.volumes().servers().get(server).map(|server| &server.disks);
        [0].into_iter()
            .chain(disks.into_iter().flatten().map(|(&disk, _)| disk).filter(|&disk| disk > 0))
            .collect()
    }

    /// Has a server let go of all its shards of a volume for as long as `work` takes; the volume is claimed. The server
    /// forgets then where other shards were.
    ///
    /// # Errors
    /// Why not, in words; nothing has happened if the volume could not be read meanwhile.
    pub(super) async fn remounted(
        &self,
        name: &VolumeName,
        server: &ServerId,
        connection: &VolumeServer,
        work: impl Future<Output = Result<(), String>>,
    ) -> Result<(), String> {
        let text = |error: AskError| error.to_string();
        let stripe = StripeId(name.to_string());
        let mounting = self.mounting(name.id());
        let _alone = mounting.lock().await;
        self.lock.check(&stripe).await?;
        let (_, expected) =
            self.known.state().view.named(name.id()).ok_or("it is not known how the volume stands")?;
        if !self.known.state().view.volumes().can_spare(name.id(), None, server) {
            return Err("the volume could not be read meanwhile".to_owned());
        }
        let shards: Vec<u8> = connection.mounted(name.id()).await.map_err(text)?.shards.into_keys().collect();
        connection.unmount(name, &shards).await.map_err(text)?;
        let done = work.await;
        mount_again(connection, name, &shards, expected).await?;
        self.known.refresh(name.id()).await?;
        done
    }

    /// Has servers forget where shards of a volume were that are elsewhere now; the volume is claimed. They remember it for
    /// up to 37 minutes otherwise, and fail to read what they need several such shards for.
    pub(super) async fn refresh_locations(self: &Arc<Self>, name: &VolumeName) {
        let Some((_, expected)) = self.known.state().view.named(name.id()) else { return };
        // A server would not know its shards again without this file.
        let vif = self
            .small_files
            .copies(name, SmallFile::Vif, None)
            .await
            .verdict(SmallFile::Vif, expected.encoding);
        for server in &vif.good {
            let done = async {
                let connection = self.known.connect(server).await?;
                self.remounted(name, server, &connection, async { Ok(()) }).await
            };
            if let Err(why) = done.await {
                tracing::info!(volume = %name, %server, why, "it may look for shards where they were, for up to 37 minutes");
            }
        }
    }
}

async fn bring(
    server: &VolumeServer,
    name: &VolumeName,
    files: &[SmallFile],
    from: &ServerAddress,
    disk: u32,
) -> Result<(), String> {
    let limit = if files.contains(&SmallFile::Ecx) { BRING_INDEX_LIMIT } else { BRING_LIMIT };
    let brought = tokio::time::timeout(limit, server.bring(name, files, from, disk)).await;
    brought.map_err(|_| "it does not get it in time".to_owned())?.map_err(|error| error.to_string())
}

async fn mount_again(
    server: &VolumeServer,
    name: &VolumeName,
    shards: &[u8],
    expected: Expected,
) -> Result<(), String> {
    let mut tries = 0;
    while let Err(error) = server.mount(name, shards).await {
        tries += 1;
        if tries == MOUNT_TRIES {
            return Err(format!("it does not mount again what it had: {error}"));
        }
        tokio::time::sleep(MOUNT_AGAIN).await;
    }
    for &shard in shards {
        check_mounted(server, name, shard, expected).await?;
    }
    Ok(())
}
