//! Unmounts a server's shards of a volume for a moment: to replace the index, to make a deletion on each disk, or
//! to make the server drop its cached locations of other shards.
//!
//! A server that has mounted no shards of a volume answers a client's deletion with success, and does not record it. So
//! as little as possible happens while none are mounted. If the shards are on several disks, some stay mounted, unless an
//! index is replaced, because all disks may use the same one, or the journal is of another encoding.
//!
//! **Invariants:** the shards are mounted again however the work in between ends. Before another server unmounts
//! shards of the volume, the master's listing shows whether these are mounted again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::claims::Hold;
use super::deletions::note_late_on_disks;
use super::needles::journalled;
use super::publishing::check_mounted_again;
use super::state::Shared;
use crate::blocks::VolumeName;
use crate::error::AskError;
use crate::listing::ServerId;
use crate::server::{SmallFile, VolumeServer};
use crate::volumes::Volumes;

/// Number and interval of the attempts to mount a shard again.
const MOUNT_TRIES: usize = 5;
const MOUNT_AGAIN: Duration = Duration::from_millis(200);
/// Why deletions of the first turn may be missing on the first disk although none was seen.
const IDLE_DISK: &str = "the journal that it returns may be on a disk without shards of the volume";

/// Why a brief unmount has failed.
#[derive(Debug)]
pub(super) enum RemountError {
    /// The server has unmounted nothing, or has mounted its shards again.
    Failed(String),
    /// The server has not mounted all its shards again, or the master cannot be asked. Other servers must keep their
    /// shards mounted.
    Unsettled(String),
}

impl From<String> for RemountError {
    fn from(why: String) -> Self {
        Self::Failed(why)
    }
}

impl From<RemountError> for String {
    fn from(error: RemountError) -> Self {
        match error {
            RemountError::Failed(why) | RemountError::Unsettled(why) => why,
        }
    }
}

/// Shards that servers have unmounted for a moment and not mounted again, by volume and server, with a sentence for
/// the status.
#[derive(Default)]
pub(super) struct Unmounted(BTreeMap<(u32, ServerId), (BTreeSet<u8>, String)>);

impl Unmounted {
    /// Returns one sentence for each volume and server.
    pub fn lines(&self) -> impl Iterator<Item = &String> {
        self.0.values().map(|(_, line)| line)
    }

    /// Records which shards a server has not mounted again, and why. Returns the sentence, if there are such shards.
    fn note(
        &mut self,
        name: &VolumeName,
        server: &ServerId,
        failed: &BTreeMap<u8, String>,
    ) -> Option<String> {
        let key = (name.id(), server.clone());
        if failed.is_empty() {
            self.0.remove(&key);
            return None;
        }
        let each: Vec<String> = failed.iter().map(|(shard, why)| format!("shard {shard}: {why}")).collect();
        let line = format!(
            "volume server {server} has unmounted shards of volume {name} for a moment and does not mount them again \
             ({}); Mend puts them into service or rebuilds them; if this persists, restart the volume server",
            each.join("; ")
        );
        self.0.insert(key, (failed.keys().copied().collect(), line.clone()));
        Some(line)
    }

    /// Forgets shards that some server is listed with again.
    pub fn forget_found(&mut self, volumes: &Volumes) {
        self.0.retain(|&(id, _), (shards, _)| {
            volumes.may_exist(id) && shards.iter().any(|&shard| volumes.homes(id, shard).is_empty())
        });
    }
}

/// The calls with which a server unmounts shards for a moment.
pub(super) trait Mounts: Sync {
    /// See [`VolumeServer::unmount`].
    fn unmount_all(
        &self,
        volume: &VolumeName,
        shards: &[u8],
    ) -> impl Future<Output = Result<(), AskError>> + Send;

    /// See [`VolumeServer::mount`].
    fn mount_one(&self, volume: &VolumeName, shard: u8) -> impl Future<Output = Result<(), AskError>> + Send;
}

impl Mounts for VolumeServer {
    async fn unmount_all(&self, volume: &VolumeName, shards: &[u8]) -> Result<(), AskError> {
        self.unmount(volume, shards).await
    }

    async fn mount_one(&self, volume: &VolumeName, shard: u8) -> Result<(), AskError> {
        self.mount(volume, &[shard]).await
    }
}

/// Returns the shards that stay mounted in each turn of a [`remount`](Shared::remount), given the mounted ones by disk:
/// those of the last disk, and then all others. If they are on one disk, there is one turn, and none stay.
fn kept_by_turn(disks: &BTreeMap<u32, Vec<u8>>) -> Vec<Vec<u8>> {
    let mut others: Vec<Vec<u8>> = disks.values().cloned().collect();
    match others.pop() {
        Some(last) if !others.is_empty() => vec![last, others.concat()],
        _ => vec![Vec::new()],
    }
}

/// Unmounts shards of a server while `work` runs, and mounts them again. Returns the result of the work, and the
/// shards that the server does not mount again, with the reasons.
pub(super) async fn unmounted_during<S: Mounts>(
    server: &S,
    name: &VolumeName,
    shards: &[u8],
    work: impl Future<Output = Result<(), String>>,
) -> (Result<(), String>, BTreeMap<u8, String>) {
    let done = match server.unmount_all(name, shards).await {
        Ok(()) => work.await,
        Err(error) => Err(error.to_string()), // The server may have unmounted some shards, or all.
    };
    let mut failed = BTreeMap::new();
    // One call per shard: SeaweedFS stops at the first shard that it cannot mount.
    for &shard in shards {
        if let Err(error) = mount_again(server, name, shard).await {
            failed.insert(shard, error.to_string());
        }
    }
    (done, failed)
}

async fn mount_again<S: Mounts>(server: &S, name: &VolumeName, shard: u8) -> Result<(), AskError> {
    let mut tries = 0;
    while let Err(error) = server.mount_one(name, shard).await {
        tries += 1;
        // While the disk of this shard hangs, shards on other disks can be mounted.
        if tries == MOUNT_TRIES || matches!(error, AskError::TimedOut { .. }) {
            return Err(error);
        }
        tokio::time::sleep(MOUNT_AGAIN).await;
    }
    Ok(())
}

/// The calls with which a server remounts its shards in turns.
trait Turns: Sync {
    /// Unmounts and mounts all shards except these.
    fn remount_except(&self, kept: &[u8]) -> impl Future<Output = Result<(), RemountError>> + Send;

    /// Returns the deletions in the journal on the server's last disk.
    fn journal(&self) -> impl Future<Output = Result<BTreeSet<u64>, String>> + Send;

    /// Makes a deletion, which a server does on its first disk with mounted shards.
    fn delete(&self, needle: u64) -> impl Future<Output = Result<(), String>> + Send;
}

/// A server whose shards of a volume are remounted under the cluster's lock.
struct Remount<'r> {
    shared: &'r Shared,
    hold: &'r Hold,
    name: &'r VolumeName,
    server: &'r ServerId,
    connection: &'r VolumeServer,
}

impl Turns for Remount<'_> {
    async fn remount_except(&self, kept: &[u8]) -> Result<(), RemountError> {
        let kept = (self.connection, kept);
        self.shared.remounted_except(self.hold, self.name, self.server, kept, async { Ok(()) }).await
    }

    async fn journal(&self) -> Result<BTreeSet<u64>, String> {
        let expected = self.shared.known.state().view.expected(self.name.id());
        let expected = expected.ok_or("the state of the volume is unknown")?;
        journalled(self.connection, self.name, expected.encoding).await
    }

    async fn delete(&self, needle: u64) -> Result<(), String> {
        self.shared.lock.check(self.hold).await?;
        let done = self.connection.delete_needle(self.name, needle).await;
        done.map(drop).map_err(|error| error.to_string())
    }
}

/// Remounts a server's shards of several disks in turns. Then makes the deletions again that the last disk has recorded
/// meanwhile: the disks that were unmounted do not heed them. Returns the result of the turns, and that of these
/// deletions.
async fn in_turns<T: Turns>(
    turns: &T,
    disks: &BTreeMap<u32, Vec<u8>>,
) -> (Result<(), RemountError>, Result<(), String>) {
    let before = turns.journal().await;
    let mut done = Ok(());
    for kept in kept_by_turn(disks) {
        done = turns.remount_except(&kept).await;
        if done.is_err() {
            break;
        }
    }
    let repeated = match before {
        Ok(before) => repeat_deletions(turns, &before).await,
        Err(why) => Err(format!("cannot read its journal: {why}")),
    };
    (done, repeated)
}

/// Makes the deletions again that were added to the journal since `before`. Goes on after one that fails.
async fn repeat_deletions<T: Turns>(turns: &T, before: &BTreeSet<u64>) -> Result<(), String> {
    let after = turns.journal().await.map_err(|why| format!("cannot read its journal: {why}"))?;
    let mut done = Ok(());
    for &needle in after.difference(before) {
        let repeated = turns.delete(needle).await;
        done = done.and(repeated.map_err(|why| format!("cannot repeat a deletion on its first disk: {why}")));
    }
    done
}

impl Shared {
    /// Unmounts and mounts all of a server's shards of a volume, so that the server drops its cached locations of other
    /// shards and opens its files again. If they are on several disks, the shards of the last disk stay mounted while the
    /// others are unmounted, and then the others. The caller must hold the cluster's lock for the volume.
    ///
    /// # Errors
    /// As for [`remounted`](Self::remounted).
    pub(super) async fn remount(
        &self,
        hold: &Hold,
        name: &VolumeName,
        server: &ServerId,
        connection: &VolumeServer,
    ) -> Result<(), RemountError> {
        let disks = self.known.state().view.volumes().shards_by_disk(name.id(), server);
        // A deletion of the first turn would make a journal of another encoding look like a current one.
        if disks.len() < 2 || self.foreign_journal_on(name, server).await?.is_some() {
            return self.remounted(hold, name, server, connection, async { Ok(()) }).await;
        }
        let has_idle_disk = self.known.state().view.volumes().has_idle_disk(name.id(), server);
        let turns = Remount { shared: self, hold, name, server, connection };
        let (done, repeated) = in_turns(&turns, &disks).await;
        let is_sure = if has_idle_disk { Err(IDLE_DISK.to_owned()) } else { Ok(()) };
        if let Err(why) = repeated.and(is_sure) {
            note_late_on_disks(&mut self.known.state(), name, server, &disks, &why);
        }
        done
    }

    /// Unmounts all of a server's shards of a volume while `work` runs, then mounts them again. The server
    /// thereby drops its cached locations of other shards. The caller must hold the cluster's lock for the
    /// volume.
    ///
    /// # Errors
    /// The reason for the failure. If the volume would have become unreadable meanwhile, the server is left unchanged.
    pub(super) async fn remounted(
        &self,
        hold: &Hold,
        name: &VolumeName,
        server: &ServerId,
        connection: &VolumeServer,
        work: impl Future<Output = Result<(), String>>,
    ) -> Result<(), RemountError> {
        self.remounted_except(hold, name, server, (connection, &[]), work).await
    }

    /// Like [`remounted`](Self::remounted), except that these shards stay mounted.
    ///
    /// # Errors
    /// As for [`remounted`](Self::remounted).
    pub(super) async fn remounted_except(
        &self,
        hold: &Hold,
        name: &VolumeName,
        server: &ServerId,
        (connection, kept): (&VolumeServer, &[u8]),
        work: impl Future<Output = Result<(), String>>,
    ) -> Result<(), RemountError> {
        let mounting = self.mounting(name.id());
        let _alone = mounting.lock().await;
        self.lock.check(hold).await?;
        let named = self.known.state().view.named(name.id());
        let (_, expected) = named.ok_or_else(|| "the state of the volume is unknown".to_owned())?;
        if !self.known.state().view.can_spare(name.id(), None, server) {
            return Err("the volume would be unreadable meanwhile".to_owned().into());
        }
        let mounted = connection.mounted(name.id()).await.map_err(|error| error.to_string())?;
        let shards: Vec<u8> = mounted.shards.into_keys().filter(|shard| !kept.contains(shard)).collect();
        self.known.state().view.begin_unmount(name.id(), server, &shards);
        let (done, failed) = unmounted_during(connection, name, &shards, work).await;
        let listed = self.known.refresh(name.id()).await;
        self.known.state().view.end_unmount(name.id(), server, &failed);
        if let Some(line) = self.known.state().inspection.unmounted.note(name, server, &failed) {
            return Err(RemountError::Unsettled(line));
        }
        listed.map_err(RemountError::Unsettled)?;
        check_mounted_again(connection, name, &shards, expected).await?;
        Ok(done?)
    }

    /// Makes servers drop their cached locations of a volume's shards after some have moved. Otherwise
    /// servers use stale locations for up to 37 minutes, and reads that need several moved shards fail. The
    /// caller must hold the cluster's lock for the volume.
    pub(super) async fn refresh_locations(self: &Arc<Self>, hold: &Hold, name: &VolumeName) {
        let Some((_, expected)) = self.known.state().view.named(name.id()) else { return };
        // Remount only servers with a good `.vif`: without one, a server could not mount its shards again.
        let vif = self.small_files.copies(name, SmallFile::Vif, None).await.verdict(SmallFile::Vif, expected);
        for server in &vif.good {
            let done = async {
                let connection = self.known.connect(server).await?;
                self.remount(hold, name, server, &connection).await
            };
            match done.await {
                Ok(()) => {}
                Err(RemountError::Failed(why)) => tracing::info!(
                    volume = %name, %server, why,
                    "the server may use stale locations of shards for up to 37 minutes"
                ),
                Err(RemountError::Unsettled(why)) => {
                    tracing::warn!(
                        volume = %name, %server, why,
                        "servers may use stale locations of shards until the volume is whole again"
                    );
                    return self.known.state().inspection.note_move(name.id());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use tokio::time::Instant;

    use super::*;
    use crate::blocks::{Encoding, Ratio};
    use crate::storage::doubles::{LIST_EVERY, Paper, listing, start};
    use crate::storage::encoding_files::Known;

    /// A server with mounted shards, one of which it cannot mount again.
    struct Server {
        mounted: Mutex<BTreeSet<u8>>,
        lost: u8,
        /// Whether the answer to a request to unmount is lost.
        is_cut_off: bool,
    }

    impl Server {
        fn new(is_cut_off: bool) -> Self {
            Self { mounted: Mutex::new([1, 4, 7].into()), lost: 1, is_cut_off }
        }

        fn mounted(&self) -> Vec<u8> {
            self.mounted.lock().expect("not poisoned").iter().copied().collect()
        }

        fn error(why: &str) -> AskError {
            let address = "a:8080".parse().expect("an address");
            AskError::Refused { address, call: "a test", why: why.to_owned() }
        }
    }

    impl Mounts for Server {
        async fn unmount_all(&self, _: &VolumeName, shards: &[u8]) -> Result<(), AskError> {
            self.mounted.lock().expect("not poisoned").retain(|shard| !shards.contains(shard));
            if self.is_cut_off { Err(Self::error("cut off")) } else { Ok(()) }
        }

        async fn mount_one(&self, _: &VolumeName, shard: u8) -> Result<(), AskError> {
            if shard == self.lost {
                return Err(Self::error("no such file"));
            }
            self.mounted.lock().expect("not poisoned").insert(shard);
            Ok(())
        }
    }

    fn volume() -> VolumeName {
        VolumeName::new("c", 5).expect("a name")
    }

    #[tokio::test]
    async fn a_shard_that_cannot_be_mounted_again_does_not_keep_others_unmounted() {
        for is_cut_off in [false, true] {
            let server = Server::new(is_cut_off);
            let seen = Mutex::new(None);
            let work = async {
                *seen.lock().expect("not poisoned") = Some(server.mounted());
                Ok(())
            };
            let (done, failed) = unmounted_during(&server, &volume(), &[1, 4, 7], work).await;
            assert_eq!(done.is_err(), is_cut_off);
            assert_eq!(seen.into_inner().expect("not poisoned"), (!is_cut_off).then(Vec::new));
            assert_eq!((server.mounted(), failed.into_keys().collect::<Vec<_>>()), (vec![4, 7], vec![1]));
        }
    }

    /// A remount of a server with shards on three disks. During the first turn, a client deletes needle 8.
    struct Turning {
        server: Server,
        has_journal: bool,
        /// The shards that stayed mounted in each turn.
        kept: Mutex<Vec<Vec<u8>>>,
        repeated: Mutex<Vec<u64>>,
    }

    impl Turns for Turning {
        async fn remount_except(&self, kept: &[u8]) -> Result<(), RemountError> {
            self.kept.lock().expect("not poisoned").push(kept.to_vec());
            let mut shards = self.server.mounted();
            shards.retain(|shard| !kept.contains(shard));
            let work = async {
                assert!(!kept.is_empty());
                assert_eq!(self.server.mounted(), kept);
                Ok(())
            };
            let (done, mut failed) = unmounted_during(&self.server, &volume(), &shards, work).await;
            done?;
            failed.pop_first().map_or(Ok(()), |(_, why)| Err(RemountError::Unsettled(why)))
        }

        async fn journal(&self) -> Result<BTreeSet<u64>, String> {
            let is_before = self.kept.lock().expect("not poisoned").is_empty();
            match self.has_journal {
                true if is_before => Ok([3].into()),
                true => Ok([3, 8].into()),
                false => Err("it cannot be read".to_owned()),
            }
        }

        async fn delete(&self, needle: u64) -> Result<(), String> {
            self.repeated.lock().expect("not poisoned").push(needle);
            Ok(())
        }
    }

    fn disks() -> BTreeMap<u32, Vec<u8>> {
        [(0, vec![1]), (1, vec![4]), (3, vec![7])].into()
    }

    /// Remounts the shards of a server that cannot mount `lost`. Returns whether the turns have succeeded, the result of
    /// the repeated deletions, the shards that stayed mounted in each turn, and the repeated deletions.
    async fn turned(lost: u8, has_journal: bool) -> (bool, Result<(), String>, Vec<Vec<u8>>, Vec<u64>) {
        let server = Server { lost, ..Server::new(false) };
        let turns = Turning { server, has_journal, kept: Mutex::default(), repeated: Mutex::default() };
        let (done, repeated) = in_turns(&turns, &disks()).await;
        let kept = turns.kept.into_inner().expect("not poisoned");
        (done.is_ok(), repeated, kept, turns.repeated.into_inner().expect("not poisoned"))
    }

    #[tokio::test]
    async fn shards_are_mounted_in_each_turn_and_deletions_of_the_first_one_are_repeated() {
        let both = vec![vec![7], vec![1, 4]];
        assert_eq!(turned(9, true).await, (true, Ok(()), both, vec![8]));
        assert_eq!(kept_by_turn(&[(2, vec![1, 4, 7])].into()), [Vec::<u8>::new()]);
    }

    #[tokio::test]
    async fn a_shard_that_cannot_be_mounted_in_the_first_turn_prevents_the_second() {
        assert_eq!(turned(1, true).await, (false, Ok(()), vec![vec![7]], vec![8]));
    }

    #[test]
    fn deletions_that_cannot_be_repeated_are_late_on_each_disk() {
        let catalog = start(&Arc::new(Mutex::new(Paper::default())));
        let (is_done, repeated, kept, _) = catalog.runtime().block_on(turned(9, false));
        assert!(is_done && kept.len() == 2);
        let why = repeated.expect_err("the journal cannot be read");
        let mut state = catalog.system().known.state();
        note_late_on_disks(&mut state, &volume(), &ServerId("a".to_owned()), &disks(), &why);
        let lines = state.late_deletions.lines();
        assert!(lines.len() == 3 && lines.iter().all(|line| line.contains("it cannot be read")), "{lines:?}");
    }

    #[test]
    fn shards_that_stay_unmounted_are_named_until_a_server_has_them() {
        let catalog = start(&Arc::new(Mutex::new(Paper::default())));
        let known = Arc::clone(&catalog.system().known);
        let lines_after = |servers: &[&str]| {
            let mut listing = listing(["a", "b", "c"]);
            let holdings = listing.volumes.get_mut(&5).expect("listed");
            holdings.retain(|holding| servers.contains(&holding.server.0.as_str()));
            known.take_all(listing, Instant::now(), LIST_EVERY).expect("recorded");
            let mut state = known.state();
            let volumes = state.view.volumes().clone();
            state.inspection.unmounted.forget_found(&volumes);
            state.inspection.lines()
        };
        assert_eq!(lines_after(&["a", "b", "c"]), [""; 0]);
        let ratio = Ratio::new(2, 1).expect("possible");
        known.state().view.learn(5, Encoding(1), Known { ratio, shard_bytes: 100, digests: Vec::new() });
        let failed = [(0, "no such file".to_owned())].into();
        known.state().inspection.unmounted.note(&volume(), &ServerId("a".to_owned()), &failed);
        let lines = lines_after(&["b", "c"]);
        assert!(lines.len() == 1 && lines[0].contains("volume server a") && lines[0].contains("shard 0"));
        assert_eq!(lines_after(&["a", "b", "c"]), [""; 0]);
    }
}
