//! The needles (stored objects) that a server treats as deleted, and the calls that make deletions on a
//! server.
//!
//! On each disk with shards of a volume, a server has a journal and an index of the volume. It returns only
//! those of its last disk, and makes a deletion on the first disk that has mounted shards. About all disks it
//! answers only single questions: whether a needle is deleted when it is read from a shard.

use std::collections::BTreeSet;

use tokio::task::JoinSet;

use super::side_files::{entries, entry_bytes};
use super::small_files::WINDOW_BYTES;
use crate::blocks::VolumeName;
use crate::error::AskError;
use crate::server::{SmallFile, VolumeServer};

/// Upper limit of a journal in bytes: 8 million deletions.
pub(super) const MAX_JOURNAL_BYTES: usize = 64 << 20;
/// Size of a journal's entry in bytes: the ID of a needle.
const ENTRY_BYTES: usize = 8;
/// The number of needles about which a server is asked at the same time.
const AT_ONCE: usize = 16;

/// The needles that a server treats as deleted.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Deleted {
    pub needles: BTreeSet<u64>,
    /// Whether parts of the server's index are damaged. It is unknown which of the needles there are deleted.
    pub is_damaged: bool,
}

/// The calls with which deletions are made and verified on a server.
pub(super) trait Deletes: Clone + Send + Sync + 'static {
    /// See [`VolumeServer::is_deleted`].
    fn heeds(
        &self,
        volume: &VolumeName,
        shard: u8,
        needle: u64,
    ) -> impl Future<Output = Result<bool, AskError>> + Send;

    /// See [`VolumeServer::delete_needle`].
    fn make(&self, volume: &VolumeName, needle: u64) -> impl Future<Output = Result<bool, AskError>> + Send;
}

impl Deletes for VolumeServer {
    async fn heeds(&self, volume: &VolumeName, shard: u8, needle: u64) -> Result<bool, AskError> {
        self.is_deleted(volume.id(), shard, needle).await
    }

    async fn make(&self, volume: &VolumeName, needle: u64) -> Result<bool, AskError> {
        self.delete_needle(volume, needle).await
    }
}

/// Returns the needles in a server's journal.
///
/// # Errors
/// The reason for the failure, as text.
pub(super) async fn journalled(server: &VolumeServer, name: &VolumeName) -> Result<BTreeSet<u64>, String> {
    let bytes = server.small_file(name, SmallFile::Ecj, MAX_JOURNAL_BYTES).await;
    let bytes = bytes.map_err(|error| error.to_string())?.unwrap_or_default();
    // The last entry may be incomplete, because it is being written.
    let (needles, _) = bytes.as_chunks::<ENTRY_BYTES>();
    Ok(needles.iter().map(|&needle| u64::from_be_bytes(needle)).collect())
}

/// Returns the needles that a server treats as deleted: those in its journal, those that its index marks and,
/// if it has mounted shards on several disks, all others that it says are deleted. `shards` has a shard of
/// each disk.
///
/// # Errors
/// The reason for the failure, as text.
pub(super) async fn deleted_on(
    server: &VolumeServer,
    name: &VolumeName,
    shards: &[u8],
) -> Result<Deleted, String> {
    let text = |error: AskError| error.to_string();
    let mut deleted = Deleted { needles: journalled(server, name).await?, is_damaged: false };
    let mut index = server.open_small_file(name, SmallFile::Ecx).await.map_err(text)?;
    loop {
        let window = index.next_window(WINDOW_BYTES).await.map_err(text)?;
        if window.is_empty() {
            return Ok(deleted);
        }
        add_deleted(server, name, shards, &window, &mut deleted).await.map_err(text)?;
    }
}

/// Adds the needles in a window of a server's index that the server treats as deleted.
async fn add_deleted<S: Deletes>(
    server: &S,
    name: &VolumeName,
    shards: &[u8],
    window: &[u8],
    deleted: &mut Deleted,
) -> Result<(), AskError> {
    let Some(bytes) = entry_bytes(window) else {
        deleted.is_damaged = true;
        return Ok(());
    };
    let mut open = Vec::new();
    for (needle, is_marked) in entries(window, bytes) {
        if is_marked {
            deleted.needles.insert(needle);
        } else if !deleted.needles.contains(&needle) {
            open.push(needle);
        }
    }
    if shards.len() > 1 {
        let heeded = times_heeded(server, name, shards, &open).await?;
        let heeded = heeded.into_iter().filter(|&(_, times)| times > 0);
        deleted.needles.extend(heeded.map(|(needle, _)| needle));
    }
    Ok(())
}

/// Makes deletions on a server, as far as none of its disks has them. Returns the number of needles whose
/// deletion is not recorded there.
pub(super) async fn record<S: Deletes>(
    server: &S,
    name: &VolumeName,
    shards: &[u8],
    needles: &[u64],
) -> Result<usize, AskError> {
    let mut made = Vec::new();
    for (needle, times) in times_heeded(server, name, shards, needles).await? {
        // A needle that is not in the index cannot be read.
        if times == 0 && server.make(name, needle).await? {
            made.push(needle);
        }
    }
    let again = times_heeded(server, name, shards, &made).await?;
    Ok(again.into_iter().filter(|&(_, times)| times == 0).count())
}

/// Makes deletions on a server, as far as it does not heed them yet for all these shards. Returns the needles
/// that it still serves for some of the shards.
pub(super) async fn delete<S: Deletes>(
    server: &S,
    name: &VolumeName,
    shards: &[u8],
    needles: &[u64],
) -> Result<Vec<u64>, AskError> {
    let mut made = Vec::new();
    for needle in not_heeded(server, name, shards, needles).await? {
        // A needle that is not in the index cannot be read.
        if server.make(name, needle).await? {
            made.push(needle);
        }
    }
    not_heeded(server, name, shards, &made).await
}

/// Returns the needles whose deletion a server does not heed for all these shards.
pub(super) async fn not_heeded<S: Deletes>(
    server: &S,
    name: &VolumeName,
    shards: &[u8],
    needles: &[u64],
) -> Result<Vec<u64>, AskError> {
    let heeded = times_heeded(server, name, shards, needles).await?;
    Ok(heeded.into_iter().filter(|&(_, times)| times < shards.len()).map(|(needle, _)| needle).collect())
}

/// Returns for how many of the shards a server heeds the deletion of each needle.
async fn times_heeded<S: Deletes>(
    server: &S,
    name: &VolumeName,
    shards: &[u8],
    needles: &[u64],
) -> Result<Vec<(u64, usize)>, AskError> {
    let mut asking = JoinSet::new();
    for part in needles.chunks(needles.len().div_ceil(AT_ONCE).max(1)) {
        let (server, name, shards, part) = (server.clone(), name.clone(), shards.to_vec(), part.to_vec());
        asking.spawn(async move {
            let mut heeded = Vec::with_capacity(part.len());
            for needle in part {
                let mut times = 0;
                for &shard in &shards {
                    times += usize::from(server.heeds(&name, shard, needle).await?);
                }
                heeded.push((needle, times));
            }
            Ok::<Vec<(u64, usize)>, AskError>(heeded)
        });
    }
    let mut all = Vec::with_capacity(needles.len());
    for heeded in asking.join_all().await {
        all.extend(heeded?);
    }
    all.sort_unstable();
    Ok(all)
}

#[cfg(test)]
#[path = "needles/tests.rs"]
mod tests;
