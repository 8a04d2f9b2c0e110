//! [`DirBlocks`]: a helper's blocks as plain files.

use std::io;
use std::path::Path;
use std::sync::Arc;

use block_files::{StoredBlock, fault, remove_file, sync_folder};
use repair::wire::control::{Description, HeldBlock};
use repair::{BlockId, Digest, LocalBlock, Sink};
use store_api::{BlockError, BlockList, BlockReader, Blocks, Delivery, Gate, Publish, Sinks, Sources};

use super::block_paths::BlockPaths;
use super::checksums::{MAX_BLOCK_BYTES, encoded_bytes};
use super::folder::Folder;
use super::label::MAX_LABEL_BYTES;
use super::reader::DirReader;
use super::writer::DirWriter;

/// A helper's blocks in a folder: each block is a plain file, with its checksums in a second file.
///
/// Blocks are atomic: after a crash at any time, every listed block has all its bytes and the matching
/// checksums. The folder stays locked until this object and all its writers are dropped.
///
/// ```
/// use codes::BlockIndex;
/// use repair::{BlockId, Sink, SinkEnd};
/// use store_api::OpenGate;
/// use dir::DirBlocks;
///
/// let folder = tempfile::tempdir()?;
/// let blocks = DirBlocks::open(folder.path())?;
/// let block = BlockId("17.3".to_owned());
/// let end = SinkEnd::Kept { label: None, permit: None };
/// let mut writer = blocks.create(&Sink { index: BlockIndex(3), id: block.clone(), bytes: 11, digest: None, end })?;
/// writer.write_at(6, b"world")?;
/// writer.write_at(0, b"hello ")?;
/// let digest = writer.seal()?;
/// writer.commit()?;
///
/// let reader = blocks.open_block(&block)?;
/// assert_eq!(reader.verify(&OpenGate)?, digest);
/// let mut word = [0; 5];
/// reader.read_at(6, &mut word)?;
/// assert_eq!(&word, b"world");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct DirBlocks {
    pub(super) folder: Arc<Folder>,
}

impl DirBlocks {
    /// Locks a folder, creates it if necessary, and finishes or removes files that a crash left behind.
    ///
    /// # Errors
    /// [`BlockError::Io`] if the folder cannot be used, or another helper has it locked.
    pub fn open(folder: impl AsRef<Path>) -> Result<Self, BlockError> {
        Ok(Self { folder: Arc::new(Folder::open(folder.as_ref())?) })
    }

    /// Opens a block by its name.
    ///
    /// # Errors
    /// [`BlockError`]; a length that contradicts the checksums is detected here.
    /// [`BlockError::Unmounted`] if the folder's disk was unmounted.
    pub fn open_block(&self, block: &BlockId) -> Result<Arc<dyn StoredBlock>, BlockError> {
        Ok(Arc::new(self.open_reader(block)?))
    }

    fn open_reader(&self, block: &BlockId) -> Result<DirReader, BlockError> {
        let place = self.folder.place(block)?;
        let _shard = self.folder.lock_shard(place.shard);
        let opened = DirReader::open(block, &place.block, &place.checksums);
        opened.map_err(|error| self.folder.explained(error))
    }

    /// Like [`open_block`](Self::open_block), but never waits; see [`Sources::open_if_cached`].
    pub(super) fn open_block_if_cached(&self, block: &BlockId) -> Option<Arc<dyn StoredBlock>> {
        let place = self.folder.place(block).ok()?;
        let _shard = self.folder.try_lock_shard(place.shard)?;
        Some(Arc::new(DirReader::open_if_cached(block, &place.block, &place.checksums)?))
    }

    /// Creates a writer for a block. The block becomes visible under its name on [`commit`](Publish::commit).
    /// Dropping the writer earlier removes its files.
    ///
    /// # Errors
    /// [`BlockError`]; [`NoSpace`](BlockError::NoSpace) if the file system already has too little free space.
    pub fn create(&self, block: &Sink) -> Result<Box<dyn Publish>, BlockError> {
        let place = self.folder.place(&block.id)?;
        self.check_space(&place, block.bytes)?;
        self.folder.create_shard(&place)?;
        Ok(Box::new(DirWriter::create(Arc::clone(&self.folder), place, block)?))
    }

    fn check_space(&self, place: &BlockPaths, bytes: u64) -> Result<(), BlockError> {
        let path = &place.block;
        if bytes > MAX_BLOCK_BYTES {
            let text = format!("a block of {bytes} bytes is too large: the limit is 256 GiB");
            return Err(fault(path)(io::Error::new(io::ErrorKind::FileTooLarge, text)));
        }
        if self.free_bytes()? < bytes + encoded_bytes(bytes, MAX_LABEL_BYTES) {
            return Err(BlockError::NoSpace { block: place.id.clone(), path: path.display().to_string() });
        }
        Ok(())
    }
}

impl Sources for DirBlocks {
    fn open(&self, block: &LocalBlock) -> Result<Arc<dyn BlockReader>, BlockError> {
        Ok(self.open_block(&block.id)?)
    }

    fn open_if_cached(&self, block: &LocalBlock) -> Option<Arc<dyn BlockReader>> {
        Some(self.open_block_if_cached(&block.id)?)
    }
}

impl Sinks for DirBlocks {
    fn deliver(&self, sink: &Sink) -> Result<Delivery, BlockError> {
        self.create(sink).map(Delivery::Published)
    }
}

impl Blocks for DirBlocks {
    fn verify(&self, block: &BlockId, gate: &dyn Gate) -> Result<Option<Digest>, BlockError> {
        self.open_reader(block)?.verify(gate).map_err(|error| self.folder.explained(error))
    }

    fn remove(&self, block: &BlockId) -> Result<bool, BlockError> {
        let place = self.folder.place(block)?;
        let _shard = self.folder.lock_shard(place.shard);
        // The block is removed first, because checksums without a block are ignored, and removed at the next
        // start.
        let removed = remove_file(&place.block)?;
        // An earlier attempt may have removed the files and failed to make this durable.
        if removed | remove_file(&place.checksums)? | place.folder.is_dir() {
            sync_folder(&place.folder)?;
        }
        // On an unmounted disk, the block still exists.
        self.folder.check()?;
        Ok(removed)
    }

    fn list(&self) -> Result<Vec<HeldBlock>, BlockError> {
        self.folder.list_all()
    }

    /// Lists the blocks in all subfolders that can be examined.
    fn list_answering(&self) -> Result<BlockList, BlockError> {
        self.folder.list()
    }

    fn silent_folders(&self) -> Vec<String> {
        self.folder.silent_folders()
    }

    fn describe(&self, block: &BlockId) -> Result<Description, BlockError> {
        Ok(self.open_reader(block)?.describe())
    }

    fn free_bytes(&self) -> Result<u64, BlockError> {
        self.folder.free_bytes()
    }

    fn check_writable(&self) -> Result<(), BlockError> {
        self.folder.check_writable()
    }

    fn is_displaced(&self) -> bool {
        self.folder.is_displaced()
    }
}
