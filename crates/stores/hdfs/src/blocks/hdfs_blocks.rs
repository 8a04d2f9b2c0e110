//! [`HdfsBlocks`]: the replicas of one DataNode as Mend's blocks.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use block_files::{StoredBlock, is_of_disk};
use repair::wire::control::HeldBlock;
use repair::{BlockId, Digest, LocalBlock, Sink};
use store_api::{BlockError, BlockList, BlockReader, Blocks, Delivery, Gate, Publish, Sinks, Sources};

use super::datanode::{Plugin, ToldWriter};
use super::meta::ChecksumFormat;
use super::name::ReplicaName;
use super::push::{PushedWriter, Pusher};
use super::reader::ReplicaReader;
use super::terms::BlockTerms;
use super::volumes::{Volume, Volumes};
use super::writer::{Destination, ReplicaWriter, Shared};

/// The finalized replicas of one block pool, in the folders of one DataNode.
///
/// Blocks have HDFS's names of replicas, such as `blk_-9223372036854775792_1001`. A program that creates
/// or removes replicas in the folders of a running DataNode must notify the DataNode
/// (`docs/reference/hdfs.md`).
#[derive(Debug)]
pub struct HdfsBlocks {
    shared: Arc<Shared>,
    made: ChecksumFormat,
    adopter: Option<Adopter>,
    /// Whether blocks of replicated files are listed too.
    has_raid: bool,
}

/// How a running DataNode receives a rebuilt block.
#[derive(Clone, Copy, Debug)]
enum Adopter {
    /// The plug-in adopts files that Mend has renamed into place.
    Plugin(Plugin),
    /// The DataNode writes the block itself.
    Push(Pusher),
}

impl HdfsBlocks {
    /// Opens the folders of a DataNode (`dfs.datanode.data.dir`), in the DataNode's order. `pool` selects the
    /// block pool, and may be omitted if there is only one. Removes files that a crash of Mend left behind.
    ///
    /// # Errors
    /// [`BlockError::Io`] if a folder cannot be used, no DataNode has run there, or another helper uses it.
    pub fn open(folders: &[PathBuf], pool: Option<&str>) -> Result<Self, BlockError> {
        let shared = Shared::new(Volumes::open(folders, pool)?);
        let (shared, made) = (Arc::new(shared), ChecksumFormat::default());
        Ok(Self { shared, made, adopter: None, has_raid: false })
    }

    /// Sets whether blocks of replicated files are listed too, because some of these files have parity.
    #[must_use]
    pub fn with_raid(self, has_raid: bool) -> Self {
        Self { has_raid, ..self }
    }

    /// Sets the checksum format of new blocks, for blocks whose [terms](BlockTerms) do not state the format of the
    /// group's other blocks. A block that replaces another one then keeps the format of the replaced block. All
    /// blocks of a group need the same format.
    #[must_use]
    pub fn with_checksums(self, made: ChecksumFormat) -> Self {
        Self { made, ..self }
    }

    /// Hands new blocks over to the DataNode's plug-in, which listens at this address. Without a plug-in, the
    /// DataNode finds new blocks at its next scan or start.
    #[must_use]
    pub fn with_datanode(self, address: SocketAddr) -> Self {
        Self { adopter: Some(Adopter::Plugin(Plugin(address))), ..self }
    }

    /// Pushes new blocks to the DataNode with HDFS's own write protocol; `address` is the address under which
    /// the DataNode is registered with the NameNode. This needs no plug-in, but each block is written to disk
    /// twice.
    #[must_use]
    pub fn with_pushes(self, address: SocketAddr) -> Self {
        Self { adopter: Some(Adopter::Push(Pusher::new(address))), ..self }
    }

    fn reader(&self, name: &ReplicaName) -> Result<ReplicaReader, BlockError> {
        match self.shared.volumes.find(name)?.into_iter().next() {
            Some(files) => ReplicaReader::open(name, files),
            None => Err(self.not_here(name)?),
        }
    }

    /// Returns the error for a replica that does not exist. The error says if the block exists with another
    /// generation stamp.
    fn not_here(&self, name: &ReplicaName) -> Result<BlockError, BlockError> {
        let block = name.block_id();
        if let Some(volume) = self.shared.volumes.with(name)?.first() {
            let detail = format!("its generation stamp is {:?}", volume.stamps(name)?);
            return Ok(BlockError::Other { block, detail });
        }
        let volumes = self.shared.volumes.all().iter();
        let paths: Vec<_> = volumes.map(|volume| volume.files(name).bytes.display().to_string()).collect();
        Ok(BlockError::Missing { block, path: paths.join(", ") })
    }

    /// Returns the volumes for a new replica, the best one first: the volume that already has the block, or else
    /// all working volumes, those with the most free space first.
    fn volumes_for(&self, name: &ReplicaName) -> Result<Vec<usize>, BlockError> {
        let volumes = self.shared.volumes.all();
        if let Some(&has) = self.shared.volumes.with(name)?.first() {
            let is_it = |volume: &Volume| std::ptr::eq(volume, has);
            return Ok(vec![volumes.iter().position(is_it).expect("the volume is in the list")]);
        }
        Ok(self.shared.volumes.by_space()?.into_iter().map(|(volume, _)| volume).collect())
    }
}

impl HdfsBlocks {
    /// Opens a replica by name.
    ///
    /// # Errors
    /// [`BlockError`]; lengths that contradict each other are detected here.
    pub fn open_block(&self, block: &BlockId) -> Result<Arc<dyn StoredBlock>, BlockError> {
        Ok(Arc::new(self.reader(&replica(block)?)?))
    }

    /// Creates a writer for a replica. Its files have temporary names that the DataNode ignores.
    /// [`commit`](Publish::commit) renames the files without notifying the DataNode. Dropping the writer
    /// earlier removes the files.
    ///
    /// # Errors
    /// [`BlockError`]. It is [`NoSpace`](BlockError::NoSpace) if the volume already has too little free space, and
    /// [`Beside`](BlockError::Beside) if the DataNode has another block of the group.
    pub fn create(&self, block: &Sink) -> Result<Box<dyn Publish>, BlockError> {
        Ok(Box::new(self.writer(block)?))
    }

    /// Like [`create`](Self::create), but returns the type that the hand-over writers wrap.
    pub(super) fn writer(&self, block: &Sink) -> Result<ReplicaWriter, BlockError> {
        let name = replica(&block.id)?;
        self.shared.volumes.check_group(&name)?;
        let replaced = || self.reader(&name).ok().map(|replaced| replaced.format());
        let made = BlockTerms::of(block.permit()).checksums.or_else(replaced).unwrap_or(self.made);
        let mut failed = None;
        for volume in self.volumes_for(&name)? {
            match self.writer_on(Destination { volume, name }, block, made) {
                // A disk may fail although it reports free space: XFS does after an error.
                Err(error) if is_of_disk(&error) => failed = failed.or(Some(error)),
                done => return done,
            }
        }
        Err(failed.expect("there is a volume that works"))
    }

    /// Creates a writer on a volume that has room.
    fn writer_on(
        &self,
        place: Destination,
        block: &Sink,
        made: ChecksumFormat,
    ) -> Result<ReplicaWriter, BlockError> {
        let volume = &self.shared.volumes.all()[place.volume];
        let needed = block.bytes.saturating_add(made.file_bytes(block.bytes));
        if volume.free_bytes()? < needed {
            let path = volume.files(&place.name).bytes.display().to_string();
            return Err(BlockError::NoSpace { block: block.id.clone(), path });
        }
        let writer = ReplicaWriter::create(Arc::clone(&self.shared), place, block.bytes, made)?;
        // If the disk was unmounted meanwhile, the files are on the disk of the mount point. Dropping the writer
        // removes them.
        volume.check().map(|()| writer)
    }

    /// Has the NameNode told of a block because of which another one of its group was refused. The NameNode does not
    /// list it here, as it would otherwise not want the other one here. Once it lists the block or has it deleted, this
    /// DataNode or another one can get a block of the group.
    fn tell_of_beside(&self, error: &BlockError) {
        let (Some(Adopter::Plugin(plugin)), BlockError::Beside { beside, .. }) = (self.adopter, error) else {
            return;
        };
        if let Ok(name) = replica(beside) {
            plugin.tell(self.shared.volumes.pool(), name.block());
        }
    }
}

impl Sources for HdfsBlocks {
    fn open(&self, block: &LocalBlock) -> Result<Arc<dyn BlockReader>, BlockError> {
        Ok(self.open_block(&block.id)?)
    }

    fn open_if_cached(&self, block: &LocalBlock) -> Option<Arc<dyn BlockReader>> {
        let name = replica(&block.id).ok()?;
        let mut all = self.shared.volumes.all().iter().map(|volume| volume.files(&name));
        let found = all.find_map(|files| ReplicaReader::open_if_cached(&name, files))?;
        Some(Arc::new(found))
    }
}

impl Sinks for HdfsBlocks {
    fn deliver(&self, sink: &Sink) -> Result<Delivery, BlockError> {
        let writer = self.writer(sink).inspect_err(|error| self.tell_of_beside(error))?;
        Ok(match self.adopter {
            Some(Adopter::Plugin(plugin)) => Delivery::HandedOver(Box::new(ToldWriter::new(writer, plugin))),
            Some(Adopter::Push(pusher)) => {
                let token = BlockTerms::of(sink.permit()).token;
                Delivery::HandedOver(Box::new(PushedWriter::new(writer, pusher, token)))
            }
            None => Delivery::Published(Box::new(writer)),
        })
    }
}

impl Blocks for HdfsBlocks {
    fn verify(&self, block: &BlockId, gate: &dyn Gate) -> Result<Option<Digest>, BlockError> {
        self.open_block(block)?.verify(gate)
    }

    /// Removes the replica from all disks of the DataNode. The caller must notify a running DataNode.
    fn remove(&self, block: &BlockId) -> Result<bool, BlockError> {
        self.shared.volumes.remove(&replica(block)?)
    }

    /// Lists the blocks of block groups. Blocks of replicated files are listed only if
    /// [some](HdfsBlocks::with_raid) of these files have parity; Mend does not repair others.
    fn list(&self) -> Result<Vec<HeldBlock>, BlockError> {
        let list = self.list_answering()?;
        match list.silent.into_iter().next() {
            Some(path) => Err(BlockError::Hangs { path }),
            None => Ok(list.held),
        }
    }

    fn list_answering(&self) -> Result<BlockList, BlockError> {
        let (replicas, silent) = self.shared.volumes.list()?;
        let replicas = replicas.into_iter().filter(|(name, _)| self.has_raid || name.place().is_some());
        let held = replicas.map(|(name, bytes)| HeldBlock { id: name.block_id(), bytes }).collect();
        Ok(BlockList { held, silent })
    }

    fn silent_folders(&self) -> Vec<String> {
        self.shared.volumes.silent_folders()
    }

    /// Whether a folder can be used again that was left out because its disk did not answer, or another disk is mounted
    /// in the place of a folder.
    fn is_displaced(&self) -> bool {
        self.shared.volumes.has_returned()
    }

    /// Returns the free bytes of the disk with the most free space. Does not subtract the reserve
    /// `dfs.datanode.du.reserved`.
    fn free_bytes(&self) -> Result<u64, BlockError> {
        Ok(self.shared.volumes.by_space()?.first().map_or(0, |&(_, bytes)| bytes))
    }
}

fn replica(block: &BlockId) -> Result<ReplicaName, BlockError> {
    block.0.parse().map_err(|_| BlockError::BadName(block.0.clone()))
}
