//! A node's disk: blocks that may be bad, and deliveries that are not blocks yet.

use std::collections::BTreeMap;
use std::time::Duration;

use repair::wire::edge::crc32c;
use repair::{BlockId, BlockProblem, Buffer, Chunking, Digest, Fingerprint, SinkProblem, Transfer};

use crate::scene::Scene;

/// What survives the end of the process: blocks. What does not: sinks.
#[derive(Debug)]
pub(crate) struct Disk {
    /// The longest that an operation takes beyond moving its bytes.
    pub(crate) latency: Duration,
    /// Bytes per second.
    pub(crate) rate: f64,
    pub(crate) full: bool,
    pub(crate) blocks: BTreeMap<BlockId, Stored>,
    pub(crate) sinks: BTreeMap<BlockId, Vec<u8>>,
    busy_until: Duration,
}

/// What each sealed block's digest is.
type Digests = Vec<(BlockId, Option<Digest>)>;

/// A block on a disk.
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    pub(crate) bytes: Vec<u8>,
    /// The byte from which on the store's checksums do not hold, if they do not.
    pub(crate) corrupt_at: Option<u64>,
}

impl Stored {
    pub(crate) fn good(bytes: Vec<u8>) -> Self {
        Self { bytes, corrupt_at: None }
    }

    /// Fills `target` from `offset` on; what lies beyond the end is zeros.
    fn read(&self, offset: u64, target: &mut [u8]) -> Result<(), BlockProblem> {
        let end = offset + target.len() as u64;
        if let Some(at) = self.corrupt_at.filter(|at| (offset..end).contains(at)) {
            return Err(BlockProblem::Corrupt(format!("checksum at byte {at}")));
        }
        let start = self.bytes.len().min(offset as usize);
        let end = self.bytes.len().min(end as usize);
        let (head, tail) = target.split_at_mut(end - start);
        head.copy_from_slice(&self.bytes[start..end]);
        tail.fill(0);
        Ok(())
    }
}

impl Disk {
    pub(crate) fn new(latency: Duration, rate: f64) -> Self {
        let (blocks, sinks) = (BTreeMap::new(), BTreeMap::new());
        Self { latency, rate, full: false, blocks, sinks, busy_until: Duration::ZERO }
    }

    /// When an operation on `bytes` that starts now will be done, from now on. Operations that are under
    /// way together end in any order.
    pub(crate) fn takes(&mut self, bytes: u64, scene: &mut Scene) -> Duration {
        self.busy_until = self.busy_until.max(scene.now) + Duration::from_secs_f64(bytes as f64 / self.rate);
        self.busy_until - scene.now + scene.dice.up_to(self.latency)
    }

    pub(crate) fn read(
        &self,
        block: &BlockId,
        transfer: &Transfer,
        buffers: &mut [Buffer],
    ) -> Result<(), BlockProblem> {
        let stored = self.blocks.get(block).ok_or(BlockProblem::Missing)?;
        let read = |offset: u64, target: &mut [u8]| stored.read(offset, target).map(|()| true);
        transfer.read(stored.bytes.len() as u64, buffers, read).map(drop)
    }

    /// Writes to a sink; what lies beyond its end is padding.
    pub(crate) fn write(&mut self, block: &BlockId, transfer: &Transfer, buffers: &[Buffer]) -> bool {
        let Some(sink) = self.sinks.get_mut(block).filter(|_| !self.full) else { return false };
        let written = transfer.write(sink.len() as u64, buffers, |offset, bytes| {
            sink[offset as usize..][..bytes.len()].copy_from_slice(bytes);
            Ok::<(), std::convert::Infallible>(())
        });
        written.is_ok()
    }

    /// The digests of all sinks, which are durable from now on.
    pub(crate) fn seal(&self) -> Result<Digests, (BlockId, SinkProblem)> {
        match self.sinks.first_key_value() {
            Some((block, _)) if self.full => Err((block.clone(), SinkProblem::NoSpace)),
            _ => {
                Ok(self.sinks.iter().map(|(block, bytes)| (block.clone(), Some(digest_of(bytes)))).collect())
            }
        }
    }

    /// Makes every sink a block.
    pub(crate) fn commit(&mut self) {
        for (block, bytes) in std::mem::take(&mut self.sinks) {
            self.blocks.insert(block, Stored::good(bytes));
        }
    }

    /// The fingerprints of a sink's or a block's sub-blocks, of `window` in each of them.
    pub(crate) fn fingerprints(
        &self,
        block: &BlockId,
        chunking: &Chunking,
        window: (u64, u64),
        seed: u64,
    ) -> Result<Vec<Fingerprint>, BlockProblem> {
        let sink = self.sinks.get(block).cloned().map(Stored::good);
        let stored = sink.as_ref().or_else(|| self.blocks.get(block)).ok_or(BlockProblem::Missing)?;
        let (window, bytes) = (window.0..window.1, stored.bytes.len() as u64);
        repair::fingerprints(chunking, &window, seed, bytes, |offset, target| stored.read(offset, target))
    }

    /// The digest of what a block reads back as.
    pub(crate) fn reread(&self, block: &BlockId) -> Result<Option<Digest>, BlockProblem> {
        let stored = self.blocks.get(block).ok_or(BlockProblem::Missing)?;
        let mut bytes = vec![0; stored.bytes.len()];
        stored.read(0, &mut bytes)?;
        Ok(Some(digest_of(&bytes)))
    }
}

/// What the simulated stores say of a block.
pub(crate) fn digest_of(bytes: &[u8]) -> Digest {
    Digest::of_u32("crc32c", crc32c(&[bytes]))
}
