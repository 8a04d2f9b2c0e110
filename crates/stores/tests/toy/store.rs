//! A complete store in memory: a catalog with its own files, and blocks. The records are separate.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use repair::wire::control::{Description, HeldBlock};
use repair::{BlockId, Digest, LocalBlock, NodeId, Sink, StripeId};
use store_api::{
    Answer, BlockError, BlockHash, BlockReader, BlockRecord, BlockState, BlockWriter, Blocks, Catalog,
    CatalogError, Delivery, Done, FileRecord, FileWrite, Files, Gate, Intake, Publish, PutError, PutId,
    PutRecord, ReadBack, Sinks, Sources, StoreChange, StoreError, StripeRecord, StripeWrite, Term,
};

/// The coordinator's side: catalog and files.
#[derive(Default)]
pub struct Toy {
    stripes: BTreeMap<StripeId, StripeRecord>,
    puts: BTreeMap<PutId, (PutRecord, BTreeMap<u32, StripeId>)>,
    files: BTreeMap<String, FileRecord>,
    counted: u64,
}

fn done(value: Answer, changes: Vec<StoreChange>) -> Result<Done, StoreError> {
    Ok(Done { value, changes })
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

    /// Removes a stripe. Its nodes are told to remove its blocks.
    fn remove_stripe(&mut self, stripe: StripeId) -> Vec<StoreChange> {
        let blocks = self.stripes.remove(&stripe).map(|record| record.blocks).unwrap_or_default();
        let discards =
            blocks.into_iter().filter_map(|block| Some(StoreChange::Discard(block.node?, block.id)));
        discards.chain([StoreChange::StripeGone(stripe)]).collect()
    }

    fn take_put(&mut self, put: PutId) -> Result<(PutRecord, BTreeMap<u32, StripeId>), StoreError> {
        Ok(self.puts.remove(&put).ok_or(PutError::NoSuchPut(put))?)
    }

    fn new_stripe(&mut self, put: &PutRecord, block_bytes: u64, nodes: &[NodeId]) -> StripeRecord {
        let id = StripeId(format!("toy-{}", self.count()));
        let block = |(index, &node): (usize, &NodeId)| BlockRecord {
            id: BlockId(format!("{id}.{index}")),
            bytes: block_bytes,
            node: Some(node),
            state: BlockState::NotStored,
            replicas: Vec::new(),
            digest: None,
        };
        let blocks = nodes.iter().enumerate().map(block).collect();
        StripeRecord {
            id,
            code: put.code.clone(),
            block_bytes,
            chunk_bytes: put.chunk_bytes,
            blocks,
            file: None,
        }
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
            StripeWrite::Publish { stripe, blocks } => {
                let missing = || CatalogError::NoSuchStripe(stripe.clone());
                let record = self.stripes.get_mut(stripe).ok_or_else(missing)?;
                for &(index, node, digest) in blocks {
                    let block = &mut record.blocks[usize::from(index.0)];
                    (block.node, block.state, block.digest) = (Some(node), BlockState::Healthy, digest);
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
        done(Answer::Nothing, changed.into_iter().map(|stripe| self.told(stripe)).collect())
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
                let id = PutId(self.count());
                let put = PutRecord {
                    id,
                    name: name.clone(),
                    bytes: *bytes,
                    code: code.clone(),
                    block_bytes: size.block_bytes,
                    chunk_bytes: size.chunk_bytes,
                    replace: *replace,
                    name_of_put: id.to_string(),
                    begun_unix_ms: 0,
                };
                self.puts.insert(id, (put.clone(), BTreeMap::new()));
                done(Answer::Put(id), vec![StoreChange::Put(put)])
            }
            FileWrite::Allocate { put, position, size, nodes } => {
                let (record, _) = self.puts.get(put).cloned().ok_or(PutError::NoSuchPut(*put))?;
                let stripe = self.new_stripe(&record, size.block_bytes, nodes);
                self.stripes.insert(stripe.id.clone(), stripe.clone());
                self.puts.get_mut(put).expect("it is open").1.insert(*position, stripe.id.clone());
                done(Answer::Stripe(stripe.clone()), vec![StoreChange::Stripe(stripe, true)])
            }
            FileWrite::CommitPut(put) => {
                let (record, stripes) = self.take_put(*put)?;
                let file = FileRecord {
                    name: record.name,
                    bytes: record.bytes,
                    code: record.code,
                    block_bytes: record.block_bytes,
                    chunk_bytes: record.chunk_bytes,
                    stripes: stripes.into_values().collect(),
                    created_unix_ms: 0,
                };
                self.files.insert(file.name.clone(), file.clone());
                let mut changes: Vec<StoreChange> = file.stripes.iter().map(|id| self.told(id)).collect();
                changes.extend([StoreChange::File(file.clone()), StoreChange::PutGone(*put)]);
                done(Answer::File(file), changes)
            }
            FileWrite::AbortPut(put) | FileWrite::LeavePut(put) => {
                let (_, stripes) = self.take_put(*put)?;
                let mut changes: Vec<_> =
                    stripes.into_values().flat_map(|id| self.remove_stripe(id)).collect();
                changes.push(StoreChange::PutGone(*put));
                done(Answer::Nothing, changes)
            }
            FileWrite::RemoveFile(name) => {
                let file = self.files.remove(name).ok_or_else(|| StoreError::NoSuchFile(name.clone()))?;
                let stripes = file.stripes.clone().into_iter();
                let mut changes: Vec<_> = stripes.flat_map(|id| self.remove_stripe(id)).collect();
                changes.push(StoreChange::FileGone(name.clone()));
                done(Answer::File(file), changes)
            }
        }
    }
}

/// The helper's side: the blocks of one node.
#[derive(Clone, Default)]
pub struct ToyBlocks(pub Arc<Mutex<BTreeMap<BlockId, Vec<u8>>>>);

struct Reader(Vec<u8>);

struct Writer {
    id: BlockId,
    bytes: Vec<u8>,
    blocks: ToyBlocks,
}

fn digest(bytes: &[u8]) -> Option<Digest> {
    let mut hash = BlockHash::default();
    hash.update(bytes);
    Some(hash.finish())
}

impl ToyBlocks {
    fn block(&self, id: &BlockId) -> Result<Reader, BlockError> {
        let missing = || BlockError::Missing { block: id.clone(), path: "memory".to_owned() };
        self.0.lock().unwrap().get(id).cloned().map(Reader).ok_or_else(missing)
    }
}

impl BlockReader for Reader {
    fn bytes(&self) -> u64 {
        self.0.len() as u64
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), BlockError> {
        buffer.copy_from_slice(&self.0[offset as usize..][..buffer.len()]);
        Ok(())
    }

    fn digest(&self) -> Option<Digest> {
        digest(&self.0)
    }
}

impl Intake for Writer {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<(), BlockError> {
        self.bytes[offset as usize..][..bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    fn reader(&self) -> Result<Arc<dyn BlockReader>, BlockError> {
        Ok(Arc::new(Reader(self.bytes.clone())))
    }
}

impl BlockWriter for Writer {
    fn seal(&mut self) -> Result<Option<Digest>, BlockError> {
        Ok(digest(&self.bytes))
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
        let held =
            |(id, bytes): (&BlockId, &Vec<u8>)| HeldBlock { id: id.clone(), bytes: bytes.len() as u64 };
        Ok(self.0.lock().unwrap().iter().map(held).collect())
    }

    fn describe(&self, block: &BlockId) -> Result<Description, BlockError> {
        let reader = self.block(block)?;
        Ok(Description { id: block.clone(), bytes: reader.bytes(), digest: reader.digest(), label: None })
    }

    fn free_bytes(&self) -> Result<u64, BlockError> {
        Ok(1 << 30)
    }
}
