//! [`HdfsBlocks`]: the replicas of one DataNode as Mend's blocks.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use block_files::StoredBlock;
use repair::wire::control::HeldBlock;
use repair::{BlockId, Digest, LocalBlock, Sink};
use store_api::{BlockError, BlockReader, Blocks, Delivery, Gate, Publish, Sinks, Sources};

use super::datanode::{Plugin, ToldWriter};
use super::meta::ChecksumFormat;
use super::name::ReplicaName;
use super::push::{PushedWriter, Pusher};
use super::reader::ReplicaReader;
use super::volumes::Volumes;
use super::writer::{Place, ReplicaWriter, Shared};

/// The finalized replicas of one block pool in the folders of one DataNode.
///
/// Blocks are named as HDFS names replicas, `blk_-9223372036854775792_1001`. Removing and making them behind a DataNode
/// that runs is not enough: it has to be told (`docs/reference/hdfs.md`).
#[derive(Debug)]
pub struct HdfsBlocks {
    shared: Arc<Shared>,
    made: ChecksumFormat,
    adopter: Option<Adopter>,
}

/// How a DataNode that runs gets what is made.
#[derive(Clone, Copy, Debug)]
enum Adopter {
    /// It looks at files that Mend gave their names.
    Plugin(Plugin),
    /// It writes the block itself.
    Push(Pusher),
}

impl HdfsBlocks {
    /// Takes the folders of a DataNode (`dfs.datanode.data.dir`), in its order, and the replicas of the block pool
    /// `pool` in them, which may be left out if there is one pool only; removes what a crash of Mend left there.
    ///
    /// # Errors
    /// [`BlockError::Io`] if a folder cannot be used, no DataNode has run there, or another helper uses it.
    pub fn open(folders: &[PathBuf], pool: Option<&str>) -> Result<Self, BlockError> {
        let shared = Shared::new(Volumes::open(folders, pool)?);
        Ok(Self { shared: Arc::new(shared), made: ChecksumFormat::default(), adopter: None })
    }

    /// The same, but with blocks that are made here having such checksums, unless they replace one that has others.
    /// Those of a group have to be alike.
    #[must_use]
    pub fn with_checksums(self, made: ChecksumFormat) -> Self {
        Self { made, ..self }
    }

    /// The same, but what is made is handed over to the DataNode, whose plug-in listens at this address of the machine.
    /// Without, the DataNode finds it when it next scans its folders, or starts.
    #[must_use]
    pub fn with_datanode(self, address: SocketAddr) -> Self {
        Self { adopter: Some(Adopter::Plugin(Plugin(address))), ..self }
    }

    /// The same, but what is made is pushed to the DataNode by HDFS's own write, at the address by which the NameNode knows
    /// it: it needs no plug-in, and writes the block once more.
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

    /// Why there is no such replica.
    fn not_here(&self, name: &ReplicaName) -> Result<BlockError, BlockError> {
        let block = name.block_id();
        if let Some(volume) = self.shared.volumes.with(name)?.first() {
            let detail = format!("it is of generation stamp {:?}", volume.stamps(name)?);
            return Ok(BlockError::Other { block, detail });
        }
        let volumes = self.shared.volumes.all().iter();
        let paths: Vec<_> = volumes.map(|volume| volume.files(name).bytes.display().to_string()).collect();
        Ok(BlockError::Missing { block, path: paths.join(", ") })
    }

    /// Where a replica that is made goes: where the block is already, else where most is free.
    fn volume_for(&self, name: &ReplicaName) -> Result<usize, BlockError> {
        let volumes = self.shared.volumes.all();
        if let Some(&has) = self.shared.volumes.with(name)?.first() {
            return Ok(volumes.iter().position(|volume| std::ptr::eq(volume, has)).expect("one of them"));
        }
        let mut most = (0, volumes[0].free_bytes()?);
        for (at, volume) in volumes.iter().enumerate().skip(1) {
            let free = volume.free_bytes()?;
            if free > most.1 {
                most = (at, free);
            }
        }
        Ok(most.0)
    }
}

impl HdfsBlocks {
    /// Opens a replica by its name.
    ///
    /// # Errors
    /// [`BlockError`]; lengths that contradict each other are found here.
    pub fn open_block(&self, block: &BlockId) -> Result<Arc<dyn StoredBlock>, BlockError> {
        Ok(Arc::new(self.reader(&replica(block)?)?))
    }

    /// Starts a replica. Its files have names that the DataNode does not look at before [`commit`](Publish::commit), which
    /// tells nobody; dropping the writer removes them.
    ///
    /// # Errors
    /// [`BlockError`]; [`NoSpace`](BlockError::NoSpace) already here if the space can be seen to be short;
    /// [`Beside`](BlockError::Beside) where the DataNode has another block of the group.
    pub fn create(&self, block: &Sink) -> Result<Box<dyn Publish>, BlockError> {
        Ok(Box::new(self.writer(block)?))
    }

    /// As [`create`](Self::create), for whoever hands it over.
    pub(super) fn writer(&self, block: &Sink) -> Result<ReplicaWriter, BlockError> {
        let name = replica(&block.id)?;
        self.shared.volumes.check_group(&name)?;
        let made = self.reader(&name).map_or(self.made, |replaced| replaced.format());
        let place = Place { volume: self.volume_for(&name)?, name };
        let volume = &self.shared.volumes.all()[place.volume];
        let needed = block.bytes.saturating_add(made.file_bytes(block.bytes));
        if volume.free_bytes()? < needed {
            let path = volume.files(&name).bytes.display().to_string();
            return Err(BlockError::NoSpace { block: block.id.clone(), path });
        }
        ReplicaWriter::create(Arc::clone(&self.shared), place, block.bytes, made)
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
        let writer = self.writer(sink)?;
        Ok(match self.adopter {
            Some(Adopter::Plugin(plugin)) => Delivery::HandedOver(Box::new(ToldWriter::new(writer, plugin))),
            Some(Adopter::Push(pusher)) => {
                let permit = sink.permit().cloned();
                Delivery::HandedOver(Box::new(PushedWriter::new(writer, pusher, permit)))
            }
            None => Delivery::Published(Box::new(writer)),
        })
    }
}

impl Blocks for HdfsBlocks {
    fn verify(&self, block: &BlockId, gate: &dyn Gate) -> Result<Option<Digest>, BlockError> {
        self.open_block(block)?.verify(gate)
    }

    /// Removes the replica from all of the DataNode's disks. A DataNode that runs has to be told.
    fn remove(&self, block: &BlockId) -> Result<bool, BlockError> {
        self.shared.volumes.remove(&replica(block)?)
    }

    /// Those of block groups: what is replicated is no business of Mend's.
    fn list(&self) -> Result<Vec<HeldBlock>, BlockError> {
        let replicas = self.shared.volumes.list()?.into_iter().filter(|(name, _)| name.place().is_some());
        Ok(replicas.map(|(name, bytes)| HeldBlock { id: name.block_id(), bytes }).collect())
    }

    /// On the disk that has most. What `dfs.datanode.du.reserved` keeps free counts as free.
    fn free_bytes(&self) -> Result<u64, BlockError> {
        let mut free = self.shared.volumes.all().iter().map(|volume| volume.free_bytes());
        free.try_fold(0, |most, free| Ok(most.max(free?)))
    }
}

fn replica(block: &BlockId) -> Result<ReplicaName, BlockError> {
    block.0.parse().map_err(|_| BlockError::BadName(block.0.clone()))
}
