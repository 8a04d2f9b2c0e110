//! [`ShardBlocks`]: the shards of one volume server as Mend's blocks.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use block_files::{StoredBlock, fault, free_bytes, parent, sync_folder};
use repair::wire::control::HeldBlock;
use repair::{BlockId, Digest, LocalBlock, Sink};
use store_api::{BlockError, BlockReader, Blocks, Delivery, Gate, Publish, Sinks, Sources};

use super::ecsum::ShardSums;
use super::folders::Folders;
use super::learned::Memory;
use super::name::{ShardName, VolumeName};
use super::reader::{Check, ShardReader, open};
use super::vif::{Encoding, Ratio, VolumeInfo};
use super::writer::ShardWriter;

/// The shards in the folders of one volume server.
///
/// Blocks are named by their files: `pictures_17.ec03`.
#[derive(Debug)]
pub struct ShardBlocks {
    shared: Arc<Shared>,
}

/// What readers and writers share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) folders: Folders,
    memory: Memory,
}

/// What the bytes of a shard can be held against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protection {
    /// The volume's `.ecsum`.
    Ecsum {
        /// Names the content of the shard: equal digests are equal bytes.
        digest: Digest,
    },
    /// Nothing: the volume was encoded without checksums, or the server has none that fit. Only parity can tell whether
    /// the bytes are right.
    Unprotected,
}

/// What a shard's files say of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShardFacts {
    /// Bytes of its file.
    pub bytes: u64,
    /// The shards of its volume.
    pub ratio: Ratio,
    /// Which encoding of its volume the server keeps.
    pub encoding: Encoding,
    /// What its bytes can be held against.
    pub protection: Protection,
}

impl ShardBlocks {
    /// Takes the `-dir` folders of a volume server, in the server's order, and its `-dir.idx` folder if it has one;
    /// removes what a crash of Mend left there.
    ///
    /// # Errors
    /// [`BlockError::Io`] if a folder cannot be used, or another helper uses it.
    pub fn open(folders: &[PathBuf], index: Option<&Path>) -> Result<Self, BlockError> {
        let shared = Shared { folders: Folders::open(folders, index)?, memory: Memory::default() };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Opens a shard by its name.
    ///
    /// # Errors
    /// [`BlockError`]; a length that contradicts the volume's files is found here.
    pub fn open_block(&self, block: &BlockId) -> Result<Arc<dyn StoredBlock>, BlockError> {
        let shard = shard(block)?;
        Ok(Arc::new(self.shared.reader(&shard, &self.shared.folders.find(&shard)?)?))
    }

    /// Starts a shard. Its file has a name that SeaweedFS ignores before [`commit`](Publish::commit); dropping the writer
    /// removes it.
    ///
    /// # Errors
    /// [`BlockError`].
    pub fn create(&self, block: &Sink) -> Result<Box<dyn Publish>, BlockError> {
        let shard = shard(&block.id)?;
        self.shared.folders.settle_encoding(&shard.volume)?;
        let folder = self.folder_for(&shard, block.bytes)?;
        if free_bytes(&folder)? < block.bytes {
            return Err(BlockError::NoSpace { block: block.id.clone(), path: folder.display().to_string() });
        }
        Ok(Box::new(ShardWriter::create(Arc::clone(&self.shared), shard, &folder, block.bytes)?))
    }

    /// What a shard's files say of it, without reading the shard.
    ///
    /// # Errors
    /// [`BlockError`]; a length that contradicts the volume's files is [`Corrupt`](BlockError::Corrupt).
    pub fn facts(&self, shard: &ShardName) -> Result<ShardFacts, BlockError> {
        let path = self.shared.folders.find(shard)?;
        let reader = self.shared.reader(shard, &path)?;
        let info = self.shared.folders.info(&shard.volume, parent(&path))?;
        let protection =
            reader.digest().map_or(Protection::Unprotected, |digest| Protection::Ecsum { digest });
        let (ratio, encoding) = info.map(|info| (info.ratio, info.encoding)).unwrap_or_default();
        Ok(ShardFacts { bytes: reader.bytes(), ratio, encoding, protection })
    }

    /// What the volume's `.vif` says; `None` if the server has none.
    ///
    /// # Errors
    /// [`BlockError::Io`] if it cannot be read or is damaged.
    pub fn volume(&self, volume: &VolumeName) -> Result<Option<VolumeInfo>, BlockError> {
        self.shared.folders.info(volume, &self.shared.folders.data()[0])
    }

    /// Whether the server has the volume's index, without which it mounts no shard of it.
    ///
    /// # Errors
    /// [`BlockError::Io`].
    pub fn has_index(&self, volume: &VolumeName) -> Result<bool, BlockError> {
        self.shared.folders.has_index(volume)
    }

    /// The ids of needles that the server's journal of the volume has as deleted, in order.
    ///
    /// # Errors
    /// [`BlockError::Io`].
    pub fn deleted(&self, volume: &VolumeName) -> Result<Vec<u64>, BlockError> {
        self.shared.folders.deleted(volume)
    }

    /// All files of a shard, by the server's order of folders: more than one if several of its disks have it.
    ///
    /// # Errors
    /// [`BlockError::Io`].
    pub fn copies(&self, shard: &ShardName) -> Result<Vec<PathBuf>, BlockError> {
        self.shared.folders.copies(shard)
    }

    /// Volumes of which the server has shards and no index in any folder that this knows: its `-dir.idx` may not be named.
    ///
    /// # Errors
    /// [`BlockError::Io`].
    pub fn volumes_without_index(&self) -> Result<Vec<VolumeName>, BlockError> {
        let folders = &self.shared.folders;
        let mut volumes: Vec<VolumeName> = folders.shards()?.into_iter().map(|shard| shard.volume).collect();
        volumes.dedup();
        let mut without = Vec::new();
        for volume in volumes {
            if !folders.has_index(&volume)? {
                without.push(volume);
            }
        }
        Ok(without)
    }

    /// Where a new shard goes: where it is already, else beside the volume's `.vif`, of several beside most of its small
    /// files, else where most is free. A folder without room is the last choice.
    fn folder_for(&self, shard: &ShardName, bytes: u64) -> Result<PathBuf, BlockError> {
        let folders = &self.shared.folders;
        if let Some(path) = folders.copies(shard)?.first() {
            return Ok(parent(path).to_owned());
        }
        let mut best: Option<(_, &PathBuf)> = None;
        for folder in folders.data() {
            let has = |extension| folders.has(&shard.volume, extension, folder);
            let free = free_bytes(folder)?;
            let score = (free >= bytes, has(".vif")?, has(".ecsum")?, has(".ecx")?, free);
            if best.as_ref().is_none_or(|(other, _)| score > *other) {
                best = Some((score, folder));
            }
        }
        let none =
            || fault(Path::new("-dir"))(io::Error::new(io::ErrorKind::InvalidInput, "no folder is given"));
        best.map(|(_, folder)| folder.clone()).ok_or_else(none)
    }
}

impl Shared {
    /// The checksums of a shard in `folder`; `None` if the volume has none that fit.
    ///
    /// Those of another ratio, or of another generation, are not this volume's: SeaweedFS does without them as well.
    pub(super) fn sums(&self, shard: &ShardName, folder: &Path) -> Result<Option<ShardSums>, BlockError> {
        let Some(ecsum) = self.folders.ecsum(&shard.volume, folder)? else { return Ok(None) };
        let ratio = self.folders.info(&shard.volume, folder)?.map_or_else(Ratio::default, |info| info.ratio);
        let fits = ecsum.generation() == 0 && ecsum.ratio() == ratio;
        Ok(ecsum.shard(shard.shard).filter(|_| fits).cloned())
    }

    fn reader(&self, shard: &ShardName, path: &Path) -> Result<ShardReader, BlockError> {
        let file = open(shard, path)?;
        let check = match self.sums(shard, parent(path))? {
            Some(sums) => Check::Ecsum(self.memory.of(&file, &sums).map_err(fault(path))?),
            None => {
                let info = self.folders.info(&shard.volume, parent(path))?;
                Check::Nothing(info.and_then(|info| info.shard_bytes))
            }
        };
        ShardReader::new(shard, path, file, check)
    }
}

impl Sources for ShardBlocks {
    fn open(&self, block: &LocalBlock) -> Result<Arc<dyn BlockReader>, BlockError> {
        Ok(self.open_block(&block.id)?)
    }
}

/// As files alone: the server has to be told to mount them.
impl Sinks for ShardBlocks {
    fn deliver(&self, sink: &Sink) -> Result<Delivery, BlockError> {
        self.create(sink).map(Delivery::Published)
    }
}

impl Blocks for ShardBlocks {
    fn verify(&self, block: &BlockId, gate: &dyn Gate) -> Result<Option<Digest>, BlockError> {
        self.open_block(block)?.verify(gate)
    }

    /// Removes the shard from all of the server's disks. What the server has mounted it goes on serving, so it is to be
    /// unmounted first.
    fn remove(&self, block: &BlockId) -> Result<bool, BlockError> {
        let copies = self.shared.folders.copies(&shard(block)?)?;
        for path in &copies {
            fs::remove_file(path).map_err(fault(path))?;
            sync_folder(parent(path))?;
        }
        Ok(!copies.is_empty())
    }

    fn list(&self) -> Result<Vec<HeldBlock>, BlockError> {
        let mut held = Vec::new();
        for shard in self.shared.folders.shards()? {
            if let Some(path) = self.shared.folders.copies(&shard)?.first() {
                let bytes = fs::metadata(path).map_err(fault(path))?.len();
                held.push(HeldBlock { id: shard.block_id(), bytes });
            }
        }
        Ok(held)
    }

    /// On the disk that has most.
    fn free_bytes(&self) -> Result<u64, BlockError> {
        let mut free = self.shared.folders.data().iter().map(|folder| free_bytes(folder));
        free.try_fold(0, |most, free| Ok(most.max(free?)))
    }
}

fn shard(block: &BlockId) -> Result<ShardName, BlockError> {
    block.0.parse().map_err(|_| BlockError::BadName(block.0.clone()))
}
