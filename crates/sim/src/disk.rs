//! A model of a node's disk: its blocks, which may be bad, and deliveries that are not committed yet.

use std::collections::BTreeMap;
use std::time::Duration;

use codes::BlockIndex;
use repair::wire::edge::crc32c;
use repair::{
    BlockId, BlockProblem, Buffer, Digest, Fingerprint, FingerprintErrand, LocalBlock, Sink, SinkProblem,
    StripeLabel, Transfer,
};
use store_api::BlockHash;

use crate::shared::Shared;

/// A disk with its blocks. Blocks survive the end of the process.
#[derive(Debug)]
pub(crate) struct Disk {
    /// The longest latency of an operation, in addition to the transfer of its bytes.
    pub(crate) latency: Duration,
    /// Transfer rate in bytes per second.
    pub(crate) rate: f64,
    pub(crate) full: bool,
    digests: Digests,
    pub(crate) blocks: BTreeMap<BlockId, Stored>,
    /// The blocks of a disk that is not mounted; `blocks` are those in the empty folder instead.
    pub(crate) unmounted: Option<BTreeMap<BlockId, Stored>>,
    busy_until: Duration,
}

/// Uncommitted deliveries of a job. They are lost when the process ends.
#[derive(Clone, Debug, Default)]
pub(crate) struct Deliveries(BTreeMap<BlockId, Delivery>);

/// A block that is being delivered to a store or a reader.
#[derive(Clone, Debug)]
pub(crate) struct Delivery {
    pub(crate) bytes: Vec<u8>,
    /// The label that the store keeps with the block.
    pub(crate) label: Option<(BlockIndex, StripeLabel)>,
}

impl Deliveries {
    /// Opens a sink unless it is open already. If `keeps` is false, the sink drops all written bytes.
    pub(crate) fn open(&mut self, sink: &Sink, keeps: bool) {
        let label = sink.label().map(|label| (sink.index, label.clone()));
        let bytes = if keeps { sink.bytes as usize } else { 0 };
        let open = || Delivery { bytes: vec![0; bytes], label };
        self.0.entry(sink.id.clone()).or_insert_with(open);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the delivered bytes of a block.
    pub(crate) fn get(&self, block: &BlockId) -> Option<&[u8]> {
        self.0.get(block).map(|delivery| &delivery.bytes[..])
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.0.values().map(|delivery| delivery.bytes.len() as u64).sum()
    }
}

/// A function that computes a store's digest of a block.
type Digests = fn(&[u8]) -> Digest;

/// Sealed blocks and their digests.
type Sealed = Vec<(BlockId, Option<Digest>)>;

/// A block on a disk.
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    pub(crate) bytes: Vec<u8>,
    /// Offset of the first byte whose checksum does not match; `None` if all checksums match.
    pub(crate) corrupt_at: Option<u64>,
    /// The label stored with the block, if any.
    pub(crate) label: Option<(BlockIndex, StripeLabel)>,
    /// The digest in the block's checksum file. It matches the bytes unless the disk corrupts data silently.
    pub(crate) digest: Digest,
}

impl Stored {
    pub(crate) fn good(bytes: Vec<u8>) -> Self {
        Self::with(bytes, digest_of)
    }

    /// Returns a good block of a store that computes digests with `digests`.
    pub(crate) fn with(bytes: Vec<u8>, digests: Digests) -> Self {
        Self { corrupt_at: None, label: None, digest: digests(&bytes), bytes }
    }

    fn read(&self, offset: u64, target: &mut [u8]) -> Result<(), BlockProblem> {
        read_checked(&self.bytes, self.corrupt_at, offset, target)
    }
}

/// Fills `target` with the bytes from `offset` on, and with zeros beyond the end of the block. Fails if the
/// range contains a corrupt byte.
fn read_checked(
    bytes: &[u8],
    corrupt_at: Option<u64>,
    offset: u64,
    target: &mut [u8],
) -> Result<(), BlockProblem> {
    let end = offset + target.len() as u64;
    if let Some(at) = corrupt_at.filter(|at| (offset..end).contains(at)) {
        return Err(BlockProblem::Corrupt(format!("checksum at byte {at}")));
    }
    let (start, end) = (bytes.len().min(offset as usize), bytes.len().min(end as usize));
    let (head, tail) = target.split_at_mut(end - start);
    head.copy_from_slice(&bytes[start..end]);
    tail.fill(0);
    Ok(())
}

impl Disk {
    pub(crate) fn new(latency: Duration, rate: f64) -> Self {
        let (blocks, busy_until) = (BTreeMap::new(), Duration::ZERO);
        Self { latency, rate, full: false, digests: digest_of, blocks, unmounted: None, busy_until }
    }

    /// Creates a disk of the `dir` store.
    pub(crate) fn of_dir(latency: Duration, rate: f64) -> Self {
        Self { digests: hash_of, ..Self::new(latency, rate) }
    }

    /// Starts an operation on `bytes` bytes. Returns the time from now until the operation completes.
    /// Concurrent operations may complete in any order.
    pub(crate) fn takes(&mut self, bytes: u64, shared: &mut Shared) -> Duration {
        self.busy_until = self.busy_until.max(shared.now) + Duration::from_secs_f64(bytes as f64 / self.rate);
        self.busy_until - shared.now + shared.dice.up_to(self.latency)
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

    /// Writes to a sink. Bytes beyond the sink's end are padding and are dropped.
    pub(crate) fn write(
        &self,
        deliveries: &mut Deliveries,
        block: &BlockId,
        transfer: &Transfer,
        buffers: &[Buffer],
    ) -> bool {
        let Some(delivery) = deliveries.0.get_mut(block).filter(|_| !self.full) else { return false };
        let sink = &mut delivery.bytes;
        let written = transfer.write(sink.len() as u64, buffers, |offset, bytes| {
            sink[offset as usize..][..bytes.len()].copy_from_slice(bytes);
            Ok::<(), std::convert::Infallible>(())
        });
        written.is_ok()
    }

    /// Makes all deliveries durable and returns their digests.
    pub(crate) fn seal(&self, deliveries: &Deliveries) -> Result<Sealed, (BlockId, SinkProblem)> {
        let digest =
            |(block, delivery): (&BlockId, &Delivery)| (block.clone(), Some((self.digests)(&delivery.bytes)));
        match deliveries.0.first_key_value() {
            Some((block, _)) if self.full => Err((block.clone(), SinkProblem::NoSpace)),
            _ => Ok(deliveries.0.iter().map(digest).collect()),
        }
    }

    /// Turns every delivery into a block.
    pub(crate) fn commit(&mut self, deliveries: &mut Deliveries) {
        for (block, Delivery { bytes, label }) in std::mem::take(&mut deliveries.0) {
            self.blocks.insert(block, Stored { label, ..Stored::with(bytes, self.digests) });
        }
    }

    /// Computes the fingerprints of a delivery or a block: one for each sub-block, over the requested range
    /// of the sub-block.
    pub(crate) fn fingerprints(
        &self,
        deliveries: &Deliveries,
        asked: &FingerprintErrand,
    ) -> Result<Vec<Fingerprint>, BlockProblem> {
        let window = asked.window.0..asked.window.1;
        let (bytes, corrupt_at) = match deliveries.get(&asked.block.id) {
            Some(delivery) => (delivery, None),
            None => {
                let stored = self.open(&asked.block)?;
                (&stored.bytes[..], stored.corrupt_at)
            }
        };
        let read = |offset: u64, target: &mut [u8]| read_checked(bytes, corrupt_at, offset, target);
        repair::fingerprints(&asked.chunking, &window, asked.seed, bytes.len() as u64, read)
    }

    /// Returns a block if it exists and matches the recorded size and digest.
    pub(crate) fn open(&self, asked: &LocalBlock) -> Result<&Stored, BlockProblem> {
        let stored = self.blocks.get(&asked.id).ok_or(BlockProblem::Missing)?;
        let is_it = asked.digest.is_none_or(|recorded| recorded == stored.digest)
            && asked.bytes == stored.bytes.len() as u64;
        if is_it { Ok(stored) } else { Err(BlockProblem::Corrupt("it is another block".to_owned())) }
    }

    /// Reads a whole block, checks it against its checksums and its digest, and returns the digest.
    pub(crate) fn verify(&self, block: &BlockId) -> Result<Option<Digest>, BlockProblem> {
        let stored = self.blocks.get(block).ok_or(BlockProblem::Missing)?;
        let mut bytes = vec![0; stored.bytes.len()];
        stored.read(0, &mut bytes)?;
        match (self.digests)(&bytes) == stored.digest {
            true => Ok(Some(stored.digest)),
            false => Err(BlockProblem::Corrupt("its bytes have another digest".to_owned())),
        }
    }
}

/// Computes a block's digest, a CRC32C, as the simulated stores do in scenarios of one stripe.
pub(crate) fn digest_of(bytes: &[u8]) -> Digest {
    Digest::of_u32("crc32c", crc32c(&[bytes]))
}

/// Computes a block's digest as the `dir` store does.
pub(crate) fn hash_of(bytes: &[u8]) -> Digest {
    let mut hash = BlockHash::default();
    hash.update(bytes);
    hash.finish()
}
