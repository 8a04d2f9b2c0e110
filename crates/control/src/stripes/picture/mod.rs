//! The picture: the storage's contents in memory. Control decides by it and never waits for a store.
//!
//! It is built only from [`StoreChange`]s, at the start and afterwards, and contains only what is durable: no
//! write in flight and no failed write.
//!
//! A stripe of 14 blocks needs about 700 bytes (`docs/decisions/0013`). To save memory, nodes are stored as
//! numbers. Block names are derived from the stripe's name and the index where possible. Further copies of
//! blocks take memory only where they exist. Digests are packed, and all stripes of a put share their file's
//! data.

mod census;
mod domains;
mod entry;
mod files;
mod holders;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use codes::{BlockIndex, CodeSpec};
use repair::{BlockId, NodeId, StripeId};
use store_api::{CatalogError, Eras, NodeRecord, StoreChange, StripeRecord};

use census::Counts;
pub(crate) use census::Kind;
use domains::Fleet;
pub(crate) use domains::{Survives, Together};
pub(crate) use entry::Slot;
use entry::{Entry, Shared};
use files::FilesPicture;
use holders::Held;

/// The contents of the storage.
#[derive(Default)]
pub(crate) struct Picture {
    stripes: Vec<Option<Entry>>,
    free: Vec<Slot>,
    names: BTreeMap<Arc<str>, Slot>,
    /// Blocks whose stripe cannot be derived from their name.
    odd: BTreeMap<BlockId, (Slot, BlockIndex)>,
    /// Stripes in which some block has copies on several nodes.
    replicated: BTreeSet<Slot>,
    /// Stripes (of files) in which some block would have no healthy copy even if all nodes were in service.
    rotten: BTreeSet<Slot>,
    /// The same of open puts, with the stripes that are being stored.
    rotten_pending: BTreeSet<Slot>,
    holders: BTreeMap<NodeId, Held>,
    fleet: Fleet,
    shared: Shared,
    counts: Counts,
    files: FilesPicture,
    nodes: BTreeMap<NodeId, NodeRecord>,
    /// The number of the next stripe.
    counted: u64,
    eras: Eras,
}

impl Picture {
    /// Applies a change of the storage.
    pub(crate) fn apply(&mut self, change: StoreChange) {
        match change {
            StoreChange::Stripe(stripe, pending) => self.set_stripe(&stripe, pending),
            StoreChange::StripeGone(stripe) => self.drop_stripe(&stripe),
            StoreChange::Node(node) => {
                self.set_host(node.id, node.address.as_deref().map(repair::host_of));
                self.nodes.insert(node.id, node);
            }
            StoreChange::NodeGone(node) => {
                self.set_host(node, None);
                self.set_rack(node, None);
                self.nodes.remove(&node);
            }
            StoreChange::Counted(next) => self.counted = self.counted.max(next),
            StoreChange::Eras(eras) => self.eras = eras,
            StoreChange::Service(node, up) => self.set_up(node, up),
            change => self.files.apply(change),
        }
    }

    fn set_stripe(&mut self, stripe: &StripeRecord, pending: bool) {
        let entry = Entry::new(stripe, pending, &mut self.shared);
        let slot = match self.names.get(stripe.id.0.as_str()) {
            Some(&slot) => {
                self.take(slot);
                slot
            }
            None => {
                let slot = self.free.pop().unwrap_or(self.stripes.len() as Slot);
                self.names.insert(entry.name().clone(), slot);
                slot
            }
        };
        for (index, node) in entry.holders() {
            self.holders.entry(node).or_default().insert(slot, index, entry.block_bytes);
        }
        if entry.is_odd() {
            let odd =
                stripe.blocks.iter().zip(0..).map(|(block, at)| (block.id.clone(), (slot, BlockIndex(at))));
            self.odd.extend(odd);
        }
        if entry.has_replicas() {
            self.replicated.insert(slot);
        }
        if !entry.lost(|_, _| true).is_empty() {
            if entry.pending { &mut self.rotten_pending } else { &mut self.rotten }.insert(slot);
        }
        self.counts.add(slot, &entry, &self.fleet);
        if slot as usize == self.stripes.len() {
            self.stripes.push(Some(entry));
        } else {
            self.stripes[slot as usize] = Some(entry);
        }
    }

    /// Removes a stripe from every index but the names.
    fn take(&mut self, slot: Slot) {
        let entry = self.stripes[slot as usize].take().expect("each name belongs to a stripe");
        self.replicated.remove(&slot);
        self.rotten.remove(&slot);
        self.rotten_pending.remove(&slot);
        self.counts.remove(slot, &entry, &self.fleet);
        for (index, node) in entry.holders() {
            if let Some(held) = self.holders.get_mut(&node) {
                held.remove(slot, index, entry.block_bytes);
            }
        }
        for block in entry.odd_names() {
            self.odd.remove(block);
        }
        self.shared.forget(&entry);
    }

    fn drop_stripe(&mut self, stripe: &StripeId) {
        if let Some(slot) = self.names.remove(stripe.0.as_str()) {
            self.take(slot);
            self.free.push(slot);
        }
    }

    /// Whether a node's blocks are in service.
    pub(crate) fn is_up(&self, node: NodeId) -> bool {
        self.fleet.is_up(node)
    }

    /// Sets whether a node's blocks are in service.
    pub(crate) fn set_up(&mut self, node: NodeId, up: bool) {
        if self.fleet.is_up(node) != up {
            self.recount(node, |fleet| fleet.set_up(node, up));
        }
    }

    /// Sets the host of a node; `None` if it is unknown.
    pub(crate) fn set_host(&mut self, node: NodeId, host: Option<&str>) {
        if !self.fleet.stands(node, host) {
            self.recount(node, |fleet| fleet.set_host(node, host));
        }
    }

    /// Sets the rack of a node; `None` if it is unknown.
    pub(crate) fn set_rack(&mut self, node: NodeId, rack: Option<&str>) {
        if !self.fleet.is_in_rack(node, rack) {
            self.recount(node, |fleet| fleet.set_rack(node, rack));
        }
    }

    /// Changes a property of a node and updates the counts of its stripes.
    fn recount(&mut self, node: NodeId, change: impl FnOnce(&mut Fleet)) {
        let slots: Vec<Slot> = self.held(node).slots().collect();
        let entry = |slot: Slot| self.stripes[slot as usize].as_ref().expect("listed stripes exist");
        slots.iter().for_each(|&slot| self.counts.remove(slot, entry(slot), &self.fleet));
        change(&mut self.fleet);
        slots.iter().for_each(|&slot| self.counts.add(slot, entry(slot), &self.fleet));
    }

    /// Returns how blocks that are read from these nodes share failure domains.
    pub(crate) fn together(&self, readers: &[NodeId]) -> Together {
        self.fleet.together(readers)
    }

    /// Returns whether the nodes are on several hosts, and whether they are in several racks.
    pub(crate) fn knows_domains(&self) -> (bool, bool) {
        (self.fleet.has_hosts(), self.fleet.has_racks())
    }

    /// Returns the stripes (of files) that have several readable blocks on the same helper.
    pub(crate) fn doubled(&self) -> impl Iterator<Item = StripeRecord> + '_ {
        self.counts.doubled().map(|slot| self.record(slot))
    }

    fn slot(&self, id: &StripeId) -> Result<Slot, CatalogError> {
        match self.names.get(id.0.as_str()) {
            Some(&slot) => Ok(slot),
            None => self.slot_of_count(id),
        }
    }

    /// Returns the only stripe with this number, for people who omit the part of the name after the hyphen.
    /// Several matches are an error.
    fn slot_of_count(&self, id: &StripeId) -> Result<Slot, CatalogError> {
        let count: Option<u64> = id.0.parse().ok();
        if count.is_none_or(|count| count.to_string() != id.0) {
            return Err(CatalogError::NoSuchStripe(id.clone()));
        }
        let prefix = format!("{id}-");
        let from = (Bound::Included(prefix.as_str()), Bound::Unbounded);
        let found = self.names.range::<str, _>(from).take_while(|(name, _)| name.starts_with(&prefix));
        let found: Vec<(&Arc<str>, &Slot)> = found.collect();
        match found[..] {
            [] => Err(CatalogError::NoSuchStripe(id.clone())),
            [(_, &slot)] => Ok(slot),
            _ => {
                let candidates = found.iter().map(|(name, _)| StripeId(name.to_string())).collect();
                Err(CatalogError::Ambiguous { name: id.clone(), candidates })
            }
        }
    }

    fn entry(&self, id: &StripeId) -> Result<&Entry, CatalogError> {
        Ok(self.entry_in(self.slot(id)?))
    }

    fn entry_in(&self, slot: Slot) -> &Entry {
        self.stripes[slot as usize].as_ref().expect("slots of listed stripes are in use")
    }

    fn record(&self, slot: Slot) -> StripeRecord {
        self.stripes[slot as usize].as_ref().expect("slots of listed stripes are in use").record(&self.shared)
    }

    /// Returns the record of a stripe, by name.
    pub(crate) fn stripe(&self, id: &StripeId) -> Result<StripeRecord, CatalogError> {
        Ok(self.record(self.slot(id)?))
    }

    /// Returns the stripe and the index of a block, by name.
    pub(crate) fn find_block(&self, block: &BlockId) -> Result<(StripeId, BlockIndex), CatalogError> {
        let missing = || CatalogError::NoSuchBlock(block.clone());
        if let Some(&(slot, index)) = self.odd.get(block) {
            return Ok((self.record(slot).id, index));
        }
        let (stripe, index) = entry::parse_name(block).ok_or_else(missing)?;
        let entry = match self.entry(&stripe) {
            Err(CatalogError::NoSuchStripe(_)) => return Err(missing()),
            found => found?,
        };
        if usize::from(index) >= entry.blocks() || !entry.names_so(block, index) {
            return Err(missing());
        }
        Ok((StripeId(entry.name().to_string()), BlockIndex(index)))
    }

    /// Whether a stripe belongs to an uncommitted put, and therefore needs no repair; `None` if the stripe
    /// does not exist.
    pub(crate) fn is_pending(&self, id: &StripeId) -> Option<bool> {
        self.entry(id).ok().map(|entry| entry.pending)
    }

    /// Returns the blocks whose recorded place is this node, including missing and corrupt ones.
    pub(crate) fn blocks_of(&self, node: NodeId) -> Vec<(StripeId, BlockIndex)> {
        let name = |slot: Slot| {
            self.stripes[slot as usize]
                .as_ref()
                .expect("slots of listed stripes are in use")
                .name()
                .to_string()
        };
        self.held(node).blocks().map(|(slot, index)| (StripeId(name(slot)), BlockIndex(index))).collect()
    }

    /// Returns the stripes of files, in the order of their names.
    pub(crate) fn of_files(&self) -> impl Iterator<Item = StripeId> {
        let entry =
            |&slot: &Slot| self.stripes[slot as usize].as_ref().expect("slots of listed stripes are in use");
        let names = self.names.iter().filter(move |(_, slot)| !entry(slot).pending);
        names.map(|(name, _)| StripeId(name.to_string()))
    }

    /// Returns the stripes in which some block has copies on several nodes.
    pub(crate) fn replicated(&self) -> Vec<StripeRecord> {
        self.replicated.iter().map(|&slot| self.record(slot)).collect()
    }

    /// Returns the stripes that have a block on this node and in which some block has copies on several
    /// nodes.
    pub(crate) fn replicated_on(&self, node: NodeId) -> Vec<StripeId> {
        if self.replicated.is_empty() {
            return Vec::new();
        }
        let entries = self.held(node).slots().filter(|slot| self.replicated.contains(slot));
        let replicated = entries.map(|slot| self.stripes[slot as usize].as_ref().expect("in use"));
        replicated.map(|entry| StripeId(entry.name().to_string())).collect()
    }

    /// Returns the number of blocks whose recorded place is this node, including missing and corrupt ones.
    pub(crate) fn block_count(&self, node: NodeId) -> usize {
        self.held(node).count()
    }

    /// Returns the blocks whose recorded place is this node.
    fn held(&self, node: NodeId) -> &Held {
        self.holders.get(&node).unwrap_or(Held::NONE)
    }

    /// Returns the stripes of files and of open puts that have a block on at least one of these nodes.
    pub(crate) fn stripes_on(&self, nodes: &BTreeSet<NodeId>) -> BTreeSet<Slot> {
        nodes.iter().flat_map(|&node| self.held(node).slots()).collect()
    }

    /// Returns the stripes of open puts that have a block on at least one of these nodes.
    pub(crate) fn pending_on(&self, nodes: &BTreeSet<NodeId>) -> BTreeSet<Slot> {
        let slots = nodes.iter().flat_map(|&node| self.held(node).slots());
        slots.filter(|&slot| self.entry_in(slot).pending).collect()
    }

    /// Returns the index in memory of a file's stripe. `None` if the stripe does not exist or belongs to an
    /// uncommitted put.
    pub(crate) fn slot_of_file(&self, stripe: &StripeId) -> Option<Slot> {
        self.slot(stripe).ok().filter(|&slot| !self.entry_in(slot).pending)
    }

    /// Returns a stripe's code and the length of its blocks.
    pub(crate) fn code_of(&self, slot: Slot) -> (&CodeSpec, u64) {
        let entry = self.entry_in(slot);
        (self.shared.code_of(entry.code), entry.block_bytes)
    }

    /// Returns the blocks that a stripe would have lost, and how its other blocks would share failure
    /// domains, if only the copies that `counts` accepts could be read.
    pub(crate) fn losses(
        &self,
        slot: Slot,
        counts: impl Fn(u16, NodeId) -> bool,
    ) -> (Vec<BlockIndex>, Together) {
        let entry = self.entry_in(slot);
        let lost = entry.lost(&counts).into_iter().map(BlockIndex).collect();
        (lost, self.fleet.together(&entry.readers(counts)))
    }

    /// Returns the total bytes of the blocks whose recorded place is this node, including missing and corrupt
    /// ones.
    pub(crate) fn bytes_on(&self, node: NodeId) -> u64 {
        self.held(node).bytes()
    }

    /// Returns an evenly spaced sample of at most `most` stripes of files.
    pub(crate) fn sample(&self, most: usize) -> Vec<StripeRecord> {
        let step = self.stripes.len().div_ceil(most).max(1);
        let of_files = self.stripes.iter().step_by(step).flatten().filter(|entry| !entry.pending);
        of_files.map(|entry| entry.record(&self.shared)).collect()
    }

    /// Returns the stripes (of files) that have lost blocks, in the order of the stripes' names.
    pub(crate) fn damaged(&self) -> Vec<StripeRecord> {
        let mut damaged: Vec<StripeRecord> = self.counts.damaged().map(|slot| self.record(slot)).collect();
        damaged.sort_by(|a, b| a.id.cmp(&b.id));
        damaged
    }

    /// Returns the names of the lost blocks (of files). The blocks whose home is a node that is down are replaced
    /// by the name of that node.
    pub(crate) fn lost_names(&self, name: impl Fn(NodeId) -> String) -> BTreeSet<String> {
        let (mut blocks, mut down) = (BTreeSet::new(), BTreeSet::new());
        for slot in self.counts.damaged() {
            let entry = self.entry_in(slot);
            for index in entry.lost(|_, node| self.fleet.is_up(node)) {
                match entry.home(index).filter(|&node| !self.fleet.is_up(node)) {
                    Some(node) => drop(down.insert(node)),
                    None => drop(blocks.insert(format!("{}.{index}", entry.name()))),
                }
            }
        }
        blocks.extend(down.into_iter().map(name));
        blocks
    }

    /// Returns the names of the stripes (of files) with several blocks on the same helper.
    pub(crate) fn doubled_names(&self) -> BTreeSet<String> {
        self.counts.doubled().map(|slot| self.entry_in(slot).name().to_string()).collect()
    }

    /// Returns the stripes (of files) in which some block would have no healthy copy even if all nodes were
    /// in service.
    pub(crate) fn rotten(&self) -> &BTreeSet<Slot> {
        &self.rotten
    }

    /// Like [`rotten`](Self::rotten), of open puts.
    pub(crate) fn rotten_pending(&self) -> &BTreeSet<Slot> {
        &self.rotten_pending
    }

    /// Returns the stripe with this index in memory.
    pub(crate) fn stripe_in(&self, slot: Slot) -> StripeRecord {
        self.record(slot)
    }

    /// Returns the distinct combinations of code, lost blocks and shared helpers, with their counts.
    pub(crate) fn kinds(&self) -> impl Iterator<Item = Kind<'_>> {
        self.counts.kinds_without(std::iter::empty(), &self.fleet, &self.shared)
    }

    /// Like [`kinds`](Self::kinds), but does not count these stripes.
    pub(crate) fn kinds_without(&self, apart: &BTreeSet<Slot>) -> impl Iterator<Item = Kind<'_>> {
        let apart = apart.iter().map(|&slot| self.entry_in(slot));
        self.counts.kinds_without(apart, &self.fleet, &self.shared)
    }

    /// Returns the name of a stripe of a [`Kind`].
    pub(crate) fn name_of(&self, slot: Slot) -> String {
        self.stripes[slot as usize].as_ref().expect("slots of listed stripes are in use").name().to_string()
    }

    /// Returns the files, puts and blocks to remove.
    pub(crate) fn files(&self) -> &FilesPicture {
        &self.files
    }

    /// Whether a stripe has a block without a recorded home, so that any absent helper may hold the block.
    pub(crate) fn has_homeless_blocks(&self) -> bool {
        let is_homeless = |slot: &Slot| self.stripe_in(*slot).blocks.iter().any(|block| block.node.is_none());
        self.rotten().iter().any(is_homeless)
    }

    /// Returns all registered nodes.
    pub(crate) fn nodes(&self) -> &BTreeMap<NodeId, NodeRecord> {
        &self.nodes
    }

    /// Returns the node with this name.
    pub(crate) fn node_named(&self, name: &str) -> Option<&NodeRecord> {
        self.nodes.values().find(|node| node.name == name)
    }

    /// Whether a block is newer than the catalog: no stripe contains the block, and its name does not come
    /// from a coordinator that used this catalog; see [`Eras::are_newer`].
    pub(crate) fn is_from_the_future(&self, block: &BlockId) -> bool {
        self.eras.are_newer(block, self.counted.max(1)) && self.find_block(block).is_err()
    }

    /// Whether a coordinator that used this catalog assigned this block's name. If so, and if no stripe
    /// contains the block, its file was removed or never committed.
    pub(crate) fn was_given(&self, block: &BlockId) -> bool {
        self.eras.were_given(block, self.counted.max(1))
    }
}
