//! A complete store in memory: a catalog with its own files, and blocks. The coordinator's records are stored
//! elsewhere.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use repair::wire::control::HeldBlock;
use repair::{BlockId, Digest, LocalBlock, NodeId, Sink, StripeId};
use store_api::{
    Answer, BlockError, BlockReader, BlockWriter, Blocks, Catalog, CatalogError, Delivery, Done, FileRecord,
    FileWrite, Files, Gate, Intake, Publish, PutError, PutId, PutRecord, ReadBack, Sinks, Sources,
    StoreChange, StoreError, StripeRecord, StripeWrite, Term,
};

/// The coordinator's side: catalog and files.
#[derive(Default)]
pub struct Toy {
    stripes: BTreeMap<StripeId, StripeRecord>,
    puts: BTreeMap<PutId, (PutRecord, BTreeMap<u32, StripeId>)>,
    files: BTreeMap<String, FileRecord>,
    counted: u64,
}

impl Toy {
    fn is_pending(&self, stripe: &StripeId) -> bool {
        self.puts.values().any(|(_, stripes)| stripes.values().any(|id| id == stripe))
    }

    fn told(&self, stripe: &StripeId) -> StoreChange {
        StoreChange::Stripe(self.stripes[stripe].clone(), self.is_pending(stripe))
    }

    fn count(&mut self) -> u64 {
        self.counted += 1;
        self.counted
    }

    /// Removes stripes. Returns the changes, which make the nodes remove the blocks.
    fn remove_stripes(&mut self, stripes: impl IntoIterator<Item = StripeId>) -> Vec<StoreChange> {
        let mut changes = Vec::new();
        for stripe in stripes.into_iter().filter_map(|id| self.stripes.remove(&id)) {
            let blocks = stripe.blocks.into_iter();
            changes.extend(blocks.filter_map(|block| Some(StoreChange::Discard(block.node?, block.id))));
            changes.push(StoreChange::StripeGone(stripe.id));
        }
        changes
    }

    fn take_put(&mut self, put: PutId) -> Result<(PutRecord, BTreeMap<u32, StripeId>), PutError> {
        self.puts.remove(&put).ok_or(PutError::NoSuchPut(put))
    }
}

impl Catalog for Toy {
    fn each_stripe(&self, visit: &mut dyn FnMut(StripeRecord, bool)) -> Result<(), CatalogError> {
        self.stripes.values().for_each(|stripe| visit(stripe.clone(), self.is_pending(&stripe.id)));
        Ok(())
    }

    fn write_stripes(&mut self, _: Term, write: &StripeWrite) -> Result<Done, StoreError> {
        let mut changed = Vec::new();
        match write {
            StripeWrite::Publish { stripe, blocks, .. } => {
                let missing = || CatalogError::NoSuchStripe(stripe.clone());
                let record = self.stripes.get_mut(stripe).ok_or_else(missing)?;
                for &(index, node, digest) in blocks {
                    record.blocks[usize::from(index.0)].publish(node, digest);
                }
                changed.push(stripe);
            }
            StripeWrite::SetStates(states) => {
                for (stripe, index, node, state) in states {
                    let Some(record) = self.stripes.get_mut(stripe) else { continue };
                    record.blocks[usize::from(index.0)].set_state(*node, *state);
                    changed.push(stripe);
                }
            }
            StripeWrite::Claim { .. } | StripeWrite::Release(_) | StripeWrite::Inspect => {}
        }
        Ok(Done::changed(changed.into_iter().map(|stripe| self.told(stripe))))
    }
}

impl Files for Toy {
    fn each_file(&self, visit: &mut dyn FnMut(StoreChange)) -> Result<(), CatalogError> {
        self.files.values().for_each(|file| visit(StoreChange::File(file.clone())));
        self.puts.values().for_each(|(put, _)| visit(StoreChange::Put(put.clone())));
        Ok(())
    }

    fn write_files(&mut self, _: Term, write: &FileWrite) -> Result<Done, StoreError> {
        match write {
            FileWrite::BeginPut { name, bytes, code, size, replace } => {
                let put = PutRecord::new(PutId(self.count()), name, *bytes, code, *size, *replace);
                self.puts.insert(put.id, (put.clone(), BTreeMap::new()));
                Ok(Done::with(Answer::Put(put.id), [StoreChange::Put(put)]))
            }
            FileWrite::Allocate { put, position, size, nodes } => {
                let id = StripeId(format!("toy-{}", self.count()));
                let block = |(index, &node): (usize, &NodeId)| (BlockId(format!("{id}.{index}")), node);
                let blocks: Vec<_> = nodes.iter().enumerate().map(block).collect();
                let (put, stripes) = self.puts.get_mut(put).ok_or(PutError::NoSuchPut(*put))?;
                let stripe = StripeRecord::new(id.clone(), put.code.clone(), *size, blocks);
                stripes.insert(*position, id.clone());
                self.stripes.insert(id, stripe.clone());
                Ok(Done::with(Answer::Stripe(stripe.clone()), [StoreChange::Stripe(stripe, true)]))
            }
            FileWrite::CommitPut(put) => {
                let (record, stripes) = self.take_put(*put)?;
                let file = record.into_file(stripes.into_values().collect(), 0);
                self.files.insert(file.name.clone(), file.clone());
                let mut changes: Vec<StoreChange> = file.stripes.iter().map(|id| self.told(id)).collect();
                changes.extend([StoreChange::File(file.clone()), StoreChange::PutGone(*put)]);
                Ok(Done::with(Answer::File(file), changes))
            }
            FileWrite::AbortPut(put) | FileWrite::LeavePut(put) => {
                let (_, stripes) = self.take_put(*put)?;
                let changes = self.remove_stripes(stripes.into_values()).into_iter();
                Ok(Done::changed(changes.chain([StoreChange::PutGone(*put)])))
            }
            FileWrite::BeginAfter(_) => Ok(Done::default()),
            FileWrite::RemoveFile(name) => {
                let file = self.files.remove(name).ok_or_else(|| StoreError::NoSuchFile(name.clone()))?;
                let changes = self.remove_stripes(file.stripes.clone()).into_iter();
                Ok(Done::with(Answer::File(file), changes.chain([StoreChange::FileGone(name.clone())])))
            }
        }
    }
}

/// The helper's side: the blocks of one node.
#[derive(Clone, Default)]
pub struct ToyBlocks(pub Arc<Mutex<BTreeMap<BlockId, Vec<u8>>>>);

struct Writer {
    id: BlockId,
    bytes: Vec<u8>,
    blocks: ToyBlocks,
}

impl ToyBlocks {
    fn block(&self, id: &BlockId) -> Result<Vec<u8>, BlockError> {
        let missing = || BlockError::Missing { block: id.clone(), path: "memory".to_owned() };
        self.0.lock().unwrap().get(id).cloned().ok_or_else(missing)
    }
}

impl Intake for Writer {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<(), BlockError> {
        self.bytes[offset as usize..][..bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    fn reader(&self) -> Result<Arc<dyn BlockReader>, BlockError> {
        Ok(Arc::new(self.bytes.clone()))
    }
}

impl BlockWriter for Writer {
    fn seal(&mut self) -> Result<Option<Digest>, BlockError> {
        Ok(self.bytes.digest())
    }
}

impl Publish for Writer {
    fn commit(self: Box<Self>) -> Result<Option<ReadBack>, BlockError> {
        self.blocks.0.lock().unwrap().insert(self.id, self.bytes);
        Ok(None)
    }
}

impl Sources for ToyBlocks {
    fn open(&self, block: &LocalBlock) -> Result<Arc<dyn BlockReader>, BlockError> {
        Ok(Arc::new(self.block(&block.id)?))
    }
}

impl Sinks for ToyBlocks {
    fn deliver(&self, sink: &Sink) -> Result<Delivery, BlockError> {
        let bytes = vec![0; sink.bytes as usize];
        Ok(Delivery::Published(Box::new(Writer { id: sink.id.clone(), bytes, blocks: self.clone() })))
    }
}

impl Blocks for ToyBlocks {
    fn verify(&self, block: &BlockId, _: &dyn Gate) -> Result<Option<Digest>, BlockError> {
        Ok(self.block(block)?.digest())
    }

    fn remove(&self, block: &BlockId) -> Result<bool, BlockError> {
        Ok(self.0.lock().unwrap().remove(block).is_some())
    }

    fn list(&self) -> Result<Vec<HeldBlock>, BlockError> {
        let held = |(id, block): (&BlockId, &Vec<u8>)| HeldBlock { id: id.clone(), bytes: block.bytes() };
        Ok(self.0.lock().unwrap().iter().map(held).collect())
    }

    fn free_bytes(&self) -> Result<u64, BlockError> {
        Ok(1 << 30)
    }
}
