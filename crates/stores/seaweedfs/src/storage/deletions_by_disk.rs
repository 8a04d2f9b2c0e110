//! Makes deletions on each disk of a server that has mounted shards of a volume on several disks.
//!
//! A server makes a deletion on its first disk with mounted shards of the volume. So the shards of all disks except the
//! last are unmounted first, and then mounted again disk by disk, from the last to the first, with the deletions in
//! between.
//!
//! **Invariant:** some shards are mounted at every moment. A server that has mounted none answers a client's deletion
//! with success, and does not record it.

use std::collections::BTreeMap;

use super::needles::Deletes;
use super::remounts::Mounts;
use crate::blocks::VolumeName;
use crate::error::AskError;

/// The number of deletions for which shards are unmounted at a time. A server syncs its journal for each.
pub(super) const AT_ONCE: usize = 100;

/// Makes deletions on each of a server's disks. Only the shards of the last disk may be mounted when it begins; it mounts
/// the others. `check` fails once nothing may be changed any more, and is called before each disk.
///
/// # Errors
/// The reason for the failure, as text.
pub(super) async fn delete_on_each_disk<S, F, C>(
    server: &S,
    name: &VolumeName,
    disks: &BTreeMap<u32, Vec<u8>>,
    needles: &[u64],
    check: F,
) -> Result<(), String>
where
    S: Deletes + Mounts,
    F: Fn() -> C,
    C: Future<Output = Result<(), String>>,
{
    let text = |error: AskError| error.to_string();
    for (turn, shards) in disks.values().rev().enumerate() {
        check().await?;
        let unmounted: &[u8] = if turn == 0 { &[] } else { shards.as_slice() };
        for &shard in unmounted {
            server.mount_one(name, shard).await.map_err(text)?;
        }
        for &needle in needles {
            server.make(name, needle).await.map_err(text)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::collections::BTreeSet;
    use std::sync::{Arc, Mutex, PoisonError};

    use super::*;
    use crate::storage::remounts::unmounted_during;

    /// A volume server with shards 0 and 1 on its first disk, 4 on the second and 7 on the third. As in SeaweedFS, each
    /// disk has its own deletions, and a deletion is made on the first disk with mounted shards.
    #[derive(Clone, Default)]
    struct Server(Arc<Mutex<Disks>>);

    #[derive(Default)]
    struct Disks {
        mounted: BTreeSet<u8>,
        deleted: BTreeMap<u32, BTreeSet<u64>>,
        /// Whether nothing was mounted at some moment.
        was_bare: bool,
    }

    fn disks() -> BTreeMap<u32, Vec<u8>> {
        [(0, vec![0, 1]), (1, vec![4]), (3, vec![7])].into()
    }

    impl Server {
        fn with<T>(&self, work: impl FnOnce(&mut Disks) -> T) -> T {
            work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
        }
    }

    impl Mounts for Server {
        async fn unmount_all(&self, _: &VolumeName, shards: &[u8]) -> Result<(), AskError> {
            self.with(|it| {
                it.mounted.retain(|shard| !shards.contains(shard));
                it.was_bare |= it.mounted.is_empty();
            });
            Ok(())
        }

        async fn mount_one(&self, _: &VolumeName, shard: u8) -> Result<(), AskError> {
            self.with(|it| it.mounted.insert(shard));
            Ok(())
        }
    }

    impl Deletes for Server {
        async fn heeds(&self, _: &VolumeName, shard: u8, needle: u64) -> Result<bool, AskError> {
            let disk = disks().into_iter().find(|(_, shards)| shards.contains(&shard)).expect("its disk").0;
            Ok(self.with(|it| it.deleted.get(&disk).is_some_and(|deleted| deleted.contains(&needle))))
        }

        async fn make(&self, _: &VolumeName, needle: u64) -> Result<bool, AskError> {
            let is_used = |it: &Disks, shards: &[u8]| shards.iter().any(|shard| it.mounted.contains(shard));
            self.with(|it| {
                let first = disks().into_iter().find(|(_, shards)| is_used(it, shards));
                if let Some((disk, _)) = first {
                    it.deleted.entry(disk).or_default().insert(needle);
                }
            });
            Ok(true)
        }
    }

    /// Makes two deletions on each disk until the lock is lost, which happens before this turn. Returns the server and
    /// whether all were made.
    async fn deleted_until(lost_before: usize) -> (Server, bool) {
        let (server, name) = (Server::default(), VolumeName::new("c", 5).expect("a name"));
        server.with(|it| it.mounted = [0, 1, 4, 7].into());
        let turns = Cell::new(0);
        let check = || {
            turns.set(turns.get() + 1);
            std::future::ready(if turns.get() > lost_before { Err("lost".to_owned()) } else { Ok(()) })
        };
        let all = disks();
        let work = delete_on_each_disk(&server, &name, &all, &[8, 9], check);
        let (done, failed) = unmounted_during(&server, &name, &[0, 1, 4], work).await;
        assert!(failed.is_empty());
        (server, done.is_ok())
    }

    #[tokio::test]
    async fn each_disk_gets_the_deletions_and_shards_are_mounted_at_every_moment() {
        let (server, is_done) = deleted_until(3).await;
        assert!(is_done);
        let (mounted, was_bare) = server.with(|it| (it.mounted.clone(), it.was_bare));
        assert_eq!((mounted, was_bare), ([0, 1, 4, 7].into(), false));
        for shard in [0, 1, 4, 7] {
            for needle in [8, 9] {
                let name = VolumeName::new("c", 5).expect("a name");
                assert!(server.heeds(&name, shard, needle).await.expect("answered"), "shard {shard}");
            }
        }
    }

    #[tokio::test]
    async fn without_the_lock_no_deletion_is_made_and_all_shards_are_mounted_again() {
        let (server, is_done) = deleted_until(1).await;
        assert!(!is_done);
        let (mounted, deleted) = server.with(|it| (it.mounted.clone(), it.deleted.clone()));
        assert_eq!(mounted, [0, 1, 4, 7].into());
        assert_eq!(deleted.into_keys().collect::<Vec<_>>(), [3], "only the turn of the last disk has begun");
    }
}
