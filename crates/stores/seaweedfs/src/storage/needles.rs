//! The needles (stored objects) that a server treats as deleted, and the calls that make deletions on a
//! server.
//!
//! On each disk that has or had shards of a volume, a server has a journal and an index of the volume. It returns
//! only those of its last disk, and makes a deletion on the first disk that has mounted shards. So the files that a
//! server with several disks returns may be older than those next to its shards. About all disks it answers only
//! single questions: whether a needle is deleted when it is read from a shard.
//!
//! Neither file names its encoding. A file is of another encoding if the `.vif` that the server returns names
//! another one, or if the file was modified more than a day before the time of the encoding. The server may return the
//! `.vif` of one disk and the journal of another. So if it has a disk without shards of the volume, a `.vif` of another
//! encoding may be left over there, and says nothing about the journal.

use std::collections::BTreeSet;

use tokio::task::JoinSet;

use super::side_files::{entries, entry_bytes};
use super::small_files::WINDOW_BYTES;
use crate::blocks::{Encoding, VolumeInfo, VolumeName, predates};
use crate::error::AskError;
use crate::server::{SmallFile, VolumeServer};

/// Upper limit of a journal in bytes: 8 million deletions.
pub(super) const MAX_JOURNAL_BYTES: usize = 64 << 20;
/// Size of a journal's entry in bytes: the ID of a needle.
const ENTRY_BYTES: usize = 8;
/// Upper limit of a `.vif` in bytes.
const MAX_VIF_BYTES: usize = 1 << 20;
/// Why a journal is not of the volume's encoding.
const OLDER: &str = "is older than the volume's encoding";
const OTHER: &str = "is beside the .vif of another encoding";
/// The number of needles about which a server is asked at the same time.
const AT_ONCE: usize = 16;

/// The needles that a server treats as deleted.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Deleted {
    pub needles: BTreeSet<u64>,
    /// Whether parts of the server's index are damaged. It is unknown which of the needles there are deleted.
    pub is_damaged: bool,
    /// Whether the server has a journal of the encoding.
    pub has_journal: bool,
    /// The number of needles that one of the server's disks treats as deleted, and that a journal of an earlier
    /// encoding contains. It is unknown whether they were deleted again since.
    pub unclear: usize,
    /// The needles in a journal that an earlier encoding has left.
    outdated: BTreeSet<u64>,
}

/// A server's journal of a volume.
#[derive(Debug, Default, PartialEq, Eq)]
struct Journal {
    needles: BTreeSet<u64>,
    /// Whether an earlier encoding has left it.
    is_outdated: bool,
}

impl Journal {
    /// Reads a journal that was modified at this time, in nanoseconds since 1970; 0 if that is unknown.
    fn of(bytes: &[u8], modified_ns: i64, encoding: Encoding) -> Self {
        // The last entry may be incomplete, because it is being written.
        let (needles, _) = bytes.as_chunks::<ENTRY_BYTES>();
        let needles = needles.iter().map(|&needle| u64::from_be_bytes(needle)).collect();
        Self { needles, is_outdated: predates(modified_ns, encoding) }
    }

    async fn read(server: &VolumeServer, name: &VolumeName, encoding: Encoding) -> Result<Self, String> {
        let found = server.dated_small_file(name, SmallFile::Ecj, MAX_JOURNAL_BYTES).await;
        let (bytes, modified_ns) = found.map_err(|error| error.to_string())?.unwrap_or_default();
        Ok(Self::of(&bytes, modified_ns, encoding))
    }
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

/// Returns the needles in a server's journal of an encoding; none if the journal is of another one.
///
/// # Errors
/// The reason for the failure, as text.
pub(super) async fn journalled(
    server: &VolumeServer,
    name: &VolumeName,
    encoding: Encoding,
) -> Result<BTreeSet<u64>, String> {
    let journal = Journal::read(server, name, encoding).await?;
    let counts = !journal.is_outdated && !journal.needles.is_empty() && is_of(server, name, encoding).await?;
    Ok(if counts { journal.needles } else { BTreeSet::new() })
}

/// Returns why the journal that a server returns is of another encoding than this one; `None` if it may be of this one,
/// or if there is no deletion in it. `has_idle_disk`: see [`Volumes::has_idle_disk`](crate::Volumes::has_idle_disk).
///
/// # Errors
/// The reason for the failure, as text.
pub(super) async fn foreign_journal(
    server: &VolumeServer,
    name: &VolumeName,
    encoding: Encoding,
    has_idle_disk: bool,
) -> Result<Option<&'static str>, String> {
    let modified_ns = server.modified_ns(name, SmallFile::Ecj).await.map_err(|error| error.to_string())?;
    let Some(modified_ns) = modified_ns else { return Ok(None) };
    if predates(modified_ns, encoding) {
        return Ok(Some(OLDER));
    }
    if has_idle_disk {
        return Ok(None);
    }
    Ok((!is_of(server, name, encoding).await?).then_some(OTHER))
}

/// Returns the number of needles in the journal that a server returns whose deletion the server does not heed for all
/// these shards. If there are any, the journal is not that of the shards.
///
/// # Errors
/// The reason for the failure, as text.
pub(super) async fn unheeded(
    server: &VolumeServer,
    name: &VolumeName,
    shards: &[u8],
    encoding: Encoding,
) -> Result<usize, String> {
    let journal = Journal::read(server, name, encoding).await?;
    let needles: Vec<u64> = journal.needles.into_iter().collect();
    let open = not_heeded(server, name, shards, &needles).await;
    open.map(|open| open.len()).map_err(|error| error.to_string())
}

/// Whether a server's metadata files of a volume may be of this encoding.
async fn is_of(server: &VolumeServer, name: &VolumeName, encoding: Encoding) -> Result<bool, String> {
    let vif = server.small_file(name, SmallFile::Vif, MAX_VIF_BYTES).await;
    Ok(may_be_beside(vif.map_err(|error| error.to_string())?.as_deref(), encoding))
}

/// Whether files of this encoding may be beside such a `.vif`. One that is missing or damaged, or that does not name
/// its encoding, says nothing.
fn may_be_beside(vif: Option<&[u8]>, encoding: Encoding) -> bool {
    let named = vif.and_then(|bytes| VolumeInfo::decode(bytes).ok()).map(|info| info.encoding);
    named.is_none_or(|named| named == encoding || !named.is_known() || !encoding.is_known())
}

/// The mounted shards through which a server is asked about deletions.
#[derive(Debug)]
pub(super) struct Asked {
    /// A shard of the encoding for each disk with mounted ones.
    pub shards: Vec<u8>,
    /// Whether the server has several disks, so that it may return the files of a disk other than the shards'.
    pub has_several_disks: bool,
}

/// Returns the needles that a server treats as deleted in an encoding: those in its journal, those that its index
/// marks and, if it has several disks, all others that it says are deleted. If it has mounted no shards, files of
/// another encoding do not count.
///
/// # Errors
/// The reason for the failure, as text.
pub(super) async fn deleted_on(
    server: &VolumeServer,
    name: &VolumeName,
    asked: &Asked,
    encoding: Encoding,
) -> Result<Deleted, String> {
    let deleted = found_on(server, name, asked, encoding).await?;
    if deleted == Deleted::default() || is_of(server, name, encoding).await? {
        return Ok(deleted);
    }
    match asked.shards.is_empty() {
        true => Ok(Deleted::default()),
        false => Err(format!("its {name}.vif is of another encoding of the volume")),
    }
}

/// Returns the needles that a server treats as deleted, if its metadata files are of this encoding.
async fn found_on(
    server: &VolumeServer,
    name: &VolumeName,
    asked: &Asked,
    encoding: Encoding,
) -> Result<Deleted, String> {
    let text = |error: AskError| error.to_string();
    let mut deleted = Deleted::from(Journal::read(server, name, encoding).await?);
    let mut index = server.open_small_file(name, SmallFile::Ecx).await.map_err(text)?;
    loop {
        let window = index.next_window(WINDOW_BYTES).await.map_err(text)?;
        if window.is_empty() {
            return Ok(deleted);
        }
        let marks_count = !predates(index.modified_ns(), encoding);
        add_deleted(server, name, asked, (&window, marks_count), &mut deleted).await.map_err(text)?;
    }
}

impl From<Journal> for Deleted {
    fn from(journal: Journal) -> Self {
        let has_journal = !journal.is_outdated && !journal.needles.is_empty();
        match journal.is_outdated {
            true => Self { outdated: journal.needles, ..Self::default() },
            false => Self { needles: journal.needles, has_journal, ..Self::default() },
        }
    }
}

/// Adds the needles in a window of a server's index that the server treats as deleted. The window is passed with
/// whether its marks count: an earlier encoding may have left the index.
async fn add_deleted<S: Deletes>(
    server: &S,
    name: &VolumeName,
    asked: &Asked,
    (window, marks_count): (&[u8], bool),
    deleted: &mut Deleted,
) -> Result<(), AskError> {
    let Some(bytes) = entry_bytes(window) else {
        deleted.is_damaged = true;
        return Ok(());
    };
    let mut open = Vec::new();
    for (needle, is_marked) in entries(window, bytes) {
        if is_marked && marks_count {
            deleted.needles.insert(needle);
        } else if !deleted.needles.contains(&needle) {
            open.push(needle);
        }
    }
    if asked.has_several_disks {
        let heeded = times_heeded(server, name, &asked.shards, &open).await?;
        let heeded = heeded.into_iter().filter(|&(_, times)| times > 0).map(|(needle, _)| needle);
        let (unclear, clear): (Vec<u64>, Vec<u64>) =
            heeded.partition(|needle| deleted.outdated.contains(needle));
        deleted.unclear += unclear.len();
        deleted.needles.extend(clear);
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
