//! [`ShardBlocks`]: serves the shards of one volume server as Mend's blocks.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use block_files::{StoredBlock, fault, most_free, parent};
use repair::wire::control::{Description, HeldBlock};
use repair::{BlockId, Digest, LocalBlock, Sink};
use store_api::{BlockError, BlockList, BlockReader, Blocks, Delivery, Gate, Publish, Sinks, Sources};

use super::ecsum::ShardSums;
use super::folders::Folders;
use super::learned::Memory;
use super::name::{ShardName, VolumeName};
use super::reader::{Check, ShardReader, open};
use super::vif::{Encoding, Ratio, VolumeInfo};
use super::writer::ShardWriter;

/// The shards in the folders of one volume server.
///
/// A block's ID is its file name, as in `pictures_17.ec03`.
#[derive(Debug)]
pub struct ShardBlocks {
    shared: Arc<Shared>,
}

/// State shared by readers and writers.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) folders: Folders,
    memory: Memory,
    /// The volumes for which the coordinator uses no checksums, according to its last request for a shard, each with
    /// the encoding to which that applies. Volumes without shards are forgotten.
    unchecked: Mutex<BTreeMap<VolumeName, Encoding>>,
}

/// The checksums that protect the bytes of a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protection {
    /// The volume's `.ecsum`.
    Ecsum {
        /// Identifies the shard's content: equal digests mean equal bytes.
        digest: Digest,
    },
    /// No checksums: the volume was encoded without them, or the server has none that match. Only parity can
    /// reveal wrong bytes.
    Unprotected,
}

/// Facts about a shard from the volume's metadata files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShardFacts {
    /// Length of the file in bytes.
    pub bytes: u64,
    /// The volume's numbers of data and parity shards.
    pub ratio: Ratio,
    /// The encoding that the server's `.vif` of the volume contains.
    pub encoding: Encoding,
    /// The checksums that protect the shard's bytes.
    pub protection: Protection,
}

impl ShardBlocks {
    /// Opens the `-dir` folders of a volume server, given in the server's order, and its `-dir.idx` folder if
    /// it has one. Removes temporary files that a crash of Mend left there. Folders whose disks hang or fail are
    /// left out if there are others.
    ///
    /// # Errors
    /// [`BlockError::Io`] if a folder cannot be used, or another helper uses it; the error of the first disk if no
    /// disk works.
    pub fn open(folders: &[PathBuf], index: Option<&Path>) -> Result<Self, BlockError> {
        let shared = Shared::new(Folders::open(folders, index)?);
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Opens a shard by its block ID.
    ///
    /// # Errors
    /// [`BlockError`], also if the file's length contradicts the volume's files.
    pub fn open_block(&self, block: &BlockId) -> Result<Arc<dyn StoredBlock>, BlockError> {
        let shard = shard(block)?;
        Ok(Arc::new(self.shared.reader(&shard, &self.shared.folders.find(&shard)?)?))
    }

    /// Opens a shard that the coordinator records with this digest. If the server has the shard on several
    /// disks, one of them may have an outdated encoding of it; the copy with this digest counts. If there is
    /// none, and the first copy has no checksums, it is opened all the same: a scrub finds out whether it can be
    /// read, and the helper serves none of its bytes.
    fn open_recorded(
        &self,
        block: &BlockId,
        recorded: Option<Digest>,
    ) -> Result<Arc<dyn StoredBlock>, BlockError> {
        let opened = self.open_block(block);
        let Some(recorded) = recorded else { return opened };
        match opened {
            Ok(reader) if reader.digest() == Some(recorded) => Ok(reader),
            Err(
                error
                @ (BlockError::Missing { .. } | BlockError::Hangs { .. } | BlockError::Unmounted { .. }),
            ) => Err(error),
            other => match self.copy_with(&shard(block)?, recorded) {
                Some(reader) => Ok(reader),
                None => other.and_then(|reader| match reader.digest() {
                    Some(_) => Err(other_checksums(block)),
                    None => Ok(reader),
                }),
            },
        }
    }

    /// Opens the copy of a shard whose checksums have this digest.
    fn copy_with(&self, shard: &ShardName, digest: Digest) -> Option<Arc<dyn StoredBlock>> {
        let (copies, _) = self.shared.folders.copies_found(shard);
        let mut readers = copies.iter().skip(1).filter_map(|path| self.shared.reader(shard, path).ok());
        readers
            .find(|reader| reader.digest() == Some(digest))
            .map(|reader| Arc::new(reader) as Arc<dyn StoredBlock>)
    }

    /// Creates a shard. Until [`commit`](Publish::commit), its file has a name that SeaweedFS ignores.
    /// Dropping the writer removes the file.
    ///
    /// # Errors
    /// [`BlockError`].
    pub fn create(&self, block: &Sink) -> Result<Box<dyn Publish>, BlockError> {
        let shard = shard(&block.id)?;
        self.shared.folders.settle_encoding(&shard.volume)?;
        self.shared.folders.check_journals(&shard.volume)?;
        self.shared.heed(&shard, block.digest)?;
        let folder = self.folder_for(&shard, block.bytes)?;
        if self.shared.folders.free_bytes(&folder)? < block.bytes {
            return Err(BlockError::NoSpace { block: block.id.clone(), path: folder.display().to_string() });
        }
        let shared = Arc::clone(&self.shared);
        Ok(Box::new(ShardWriter::create(shared, shard, &folder, block.bytes, block.digest.is_some())?))
    }

    /// Returns facts about a shard from the volume's metadata files, without reading the shard itself.
    ///
    /// # Errors
    /// [`BlockError`]; [`Corrupt`](BlockError::Corrupt) if the file's length contradicts the volume's files.
    pub fn facts(&self, shard: &ShardName) -> Result<ShardFacts, BlockError> {
        let path = self.shared.folders.find(shard)?;
        let reader = self.shared.reader(shard, &path)?;
        let info = self.shared.folders.info(&shard.volume, parent(&path))?;
        let protection =
            reader.digest().map_or(Protection::Unprotected, |digest| Protection::Ecsum { digest });
        let (ratio, encoding) = info.map(|info| (info.ratio, info.encoding)).unwrap_or_default();
        Ok(ShardFacts { bytes: reader.bytes(), ratio, encoding, protection })
    }

    /// Returns the content of the volume's `.vif`; `None` if the server has none.
    ///
    /// # Errors
    /// [`BlockError::Io`] if the file cannot be read or is damaged.
    pub fn volume(&self, volume: &VolumeName) -> Result<Option<VolumeInfo>, BlockError> {
        self.shared.folders.info(volume, &self.shared.folders.data()[0])
    }

    /// Whether the server has the volume's index, without which it cannot mount the volume's shards.
    ///
    /// # Errors
    /// [`BlockError::Io`].
    pub fn has_index(&self, volume: &VolumeName) -> Result<bool, BlockError> {
        self.shared.folders.has_index(volume)
    }

    /// Returns the IDs of deleted needles (stored objects) from the server's journals of the volume, in
    /// ascending order.
    ///
    /// # Errors
    /// [`BlockError::Io`].
    pub fn deleted(&self, volume: &VolumeName) -> Result<Vec<u64>, BlockError> {
        self.shared.folders.deleted(volume)
    }

    /// Returns all files of a shard in the order of the server's folders; there are several if the shard is
    /// on several disks.
    ///
    /// # Errors
    /// [`BlockError`], also if the disk of any folder does not work.
    pub fn copies(&self, shard: &ShardName) -> Result<Vec<PathBuf>, BlockError> {
        self.shared.folders.copies(shard)
    }

    /// Returns the volumes that have shards on the server but no index in any configured folder. The
    /// `-dir.idx` folder is then probably missing in the configuration.
    ///
    /// # Errors
    /// [`BlockError`], also if a disk does not work.
    pub fn volumes_without_index(&self) -> Result<Vec<VolumeName>, BlockError> {
        let folders = &self.shared.folders;
        let indexed = folders.indexed()?;
        let mut volumes: Vec<VolumeName> = folders.shards()?.into_iter().map(|shard| shard.volume).collect();
        volumes.dedup();
        volumes.retain(|volume| !indexed.contains(volume));
        Ok(volumes)
    }

    /// Chooses the folder of a new shard. If a copy of the shard exists, returns the copy's folder. Otherwise
    /// compares the folders by these criteria, in this order: enough space; a copy of the volume's `.vif`, of
    /// its `.ecsum`, of its `.ecx`; the most free space. Folders that cannot be examined are left out if there are
    /// others.
    fn folder_for(&self, shard: &ShardName, bytes: u64) -> Result<PathBuf, BlockError> {
        let folders = &self.shared.folders;
        if let Some(path) = folders.copies(shard)?.first() {
            return Ok(parent(path).to_owned());
        }
        let score = |folder: &Path| {
            let has = |extension| folders.has(&shard.volume, extension, folder);
            let free = folders.free_bytes(folder)?;
            Ok::<_, BlockError>((free >= bytes, has(".vif")?, has(".ecsum")?, has(".ecx")?, free))
        };
        let (mut best, mut failed) = (None::<(_, &PathBuf)>, None);
        for folder in folders.data() {
            match score(folder.as_path()) {
                Ok(score) if best.as_ref().is_none_or(|(other, _)| score > *other) => {
                    best = Some((score, folder));
                }
                Ok(_) => {}
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        let none =
            || fault(Path::new("-dir"))(io::Error::new(io::ErrorKind::InvalidInput, "no folder is given"));
        best.map(|(_, folder)| folder.clone()).ok_or_else(|| failed.unwrap_or_else(none))
    }
}

impl Shared {
    pub(super) fn new(folders: Folders) -> Self {
        Self { folders, memory: Memory::default(), unchecked: Mutex::default() }
    }

    fn unchecked(&self) -> MutexGuard<'_, BTreeMap<VolumeName, Encoding>> {
        self.unchecked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes whether the coordinator has a digest of a shard. If it has none, servers have different `.ecsum` files or
    /// these contradict too many shards. So this server's file proves nothing about any shard of the encoding, and
    /// only parity can.
    fn heed(&self, shard: &ShardName, digest: Option<Digest>) -> Result<(), BlockError> {
        if digest.is_some() {
            self.unchecked().remove(&shard.volume);
            return Ok(());
        }
        let found = self.folders.find(shard).ok();
        let folder = found.as_deref().map(parent).or(self.folders.data().first().map(PathBuf::as_path));
        let Some(folder) = folder else { return Ok(()) };
        let encoding = self.encoding(&shard.volume, folder)?;
        self.unchecked().insert(shard.volume.clone(), encoding);
        Ok(())
    }

    /// Whether the coordinator uses no checksums for the volume's encoding in `folder`. A request about an earlier
    /// encoding says nothing about this one.
    fn is_unchecked(&self, volume: &VolumeName, folder: &Path) -> Result<bool, BlockError> {
        let told = self.unchecked().get(volume).copied();
        told.map_or(Ok(false), |told| Ok(self.encoding(volume, folder)? == told))
    }

    /// Forgets which volumes are unchecked that have none of these shards.
    fn forget_absent<'s>(&self, shards: impl Iterator<Item = &'s ShardName>) {
        let mut unchecked = self.unchecked();
        if unchecked.is_empty() {
            return;
        }
        let present: BTreeSet<&VolumeName> = shards.map(|shard| &shard.volume).collect();
        unchecked.retain(|volume, _| present.contains(volume));
    }

    /// Returns the encoding in the volume's `.vif`, preferably of the copy in `folder`; 0 if there is none.
    pub(super) fn encoding(&self, volume: &VolumeName, folder: &Path) -> Result<Encoding, BlockError> {
        Ok(self.folders.info(volume, folder)?.map_or_else(Encoding::default, |info| info.encoding))
    }

    /// Returns the checksums of a shard in `folder`; `None` if the volume has none that match.
    pub(super) fn sums(&self, shard: &ShardName, folder: &Path) -> Result<Option<ShardSums>, BlockError> {
        let ecsum = self.folders.ecsum(&shard.volume, folder)?;
        Ok(ecsum.and_then(|ecsum| ecsum.shard(shard.shard).cloned()))
    }

    /// Like [`sums`](Self::sums), but `None` if the coordinator does not use the checksums.
    fn used_sums(&self, shard: &ShardName, folder: &Path) -> Result<Option<ShardSums>, BlockError> {
        match self.is_unchecked(&shard.volume, folder)? {
            true => Ok(None),
            false => self.sums(shard, folder),
        }
    }

    fn reader(&self, shard: &ShardName, path: &Path) -> Result<ShardReader, BlockError> {
        self.reader_of(shard, path).map_err(|error| self.folders.watch(parent(path)).explained(error))
    }

    fn reader_of(&self, shard: &ShardName, path: &Path) -> Result<ShardReader, BlockError> {
        let watch = self.folders.watch(parent(path));
        let file = watch.read(|| open(shard, path))?;
        let check = match self.used_sums(shard, parent(path))? {
            Some(sums) => Check::Ecsum(self.memory.of(&file, &sums).map_err(fault(path))?),
            None => {
                let info = self.folders.info(&shard.volume, parent(path))?;
                Check::Nothing(info.and_then(|info| info.shard_bytes))
            }
        };
        ShardReader::new(shard, path, (file, check), watch)
    }
}

impl Sources for ShardBlocks {
    fn open(&self, block: &LocalBlock) -> Result<Arc<dyn BlockReader>, BlockError> {
        // The helper also opens blocks to look at the page cache. Then it names neither a length nor a digest.
        if block.bytes > 0 {
            self.shared.heed(&shard(&block.id)?, block.digest)?;
        }
        Ok(self.open_recorded(&block.id, block.digest)?)
    }
}

/// Only writes the files of shards; the coordinator must then make the server mount them.
impl Sinks for ShardBlocks {
    fn deliver(&self, sink: &Sink) -> Result<Delivery, BlockError> {
        self.create(sink).map(Delivery::Published)
    }
}

impl Blocks for ShardBlocks {
    fn verify(&self, block: &BlockId, gate: &dyn Gate) -> Result<Option<Digest>, BlockError> {
        self.open_block(block)?.verify(gate)
    }

    fn verify_recorded(
        &self,
        block: &BlockId,
        recorded: Option<Digest>,
        gate: &dyn Gate,
    ) -> Result<Option<Digest>, BlockError> {
        self.shared.heed(&shard(block)?, recorded)?;
        self.open_recorded(block, recorded)?.verify(gate)
    }

    /// Removes the shard from all of the server's disks. The shard must be unmounted first, since the server
    /// continues to serve a mounted file.
    fn remove(&self, block: &BlockId) -> Result<bool, BlockError> {
        self.shared.folders.remove(&shard(block)?)
    }

    fn list(&self) -> Result<Vec<HeldBlock>, BlockError> {
        let list = self.list_answering()?;
        match list.silent.into_iter().next() {
            Some(path) => Err(BlockError::Hangs { path }),
            None => Ok(list.held),
        }
    }

    fn list_answering(&self) -> Result<BlockList, BlockError> {
        let (shards, silent) = self.shared.folders.list()?;
        if silent.is_empty() {
            self.shared.forget_absent(shards.keys());
        }
        let held = shards.into_iter().map(|(shard, bytes)| HeldBlock { id: shard.block_id(), bytes });
        Ok(BlockList { held: held.collect(), silent })
    }

    fn describe(&self, block: &BlockId) -> Result<Description, BlockError> {
        let reader = self.open_block(block)?;
        Ok(Description { id: block.clone(), bytes: reader.bytes(), digest: reader.digest(), label: None })
    }

    fn silent_folders(&self) -> Vec<String> {
        self.shared.folders.silent()
    }

    /// Whether a folder can be used again that was left out because its disk did not work, or another disk is mounted
    /// in the place of a folder.
    fn is_displaced(&self) -> bool {
        self.shared.folders.has_returned()
    }

    /// Returns the free bytes of the disk with the most free space.
    fn free_bytes(&self) -> Result<u64, BlockError> {
        let free = self.shared.folders.data().iter().map(|folder| self.shared.folders.free_bytes(folder));
        most_free(free)
    }
}

/// Returns the error for a shard that cannot be checked, because its server's `.ecsum` is not the one that most
/// servers have. That proves nothing about the shard.
fn other_checksums(block: &BlockId) -> BlockError {
    let text = "the .ecsum beside it differs from the one on most other servers, which replaces it soon";
    fault(Path::new(&block.0))(io::Error::new(io::ErrorKind::Unsupported, text))
}

fn shard(block: &BlockId) -> Result<ShardName, BlockError> {
    block.0.parse().map_err(|_| BlockError::BadName(block.0.clone()))
}
