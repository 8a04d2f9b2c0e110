//! What the storage says, in memory: Control decides by this and never waits for a store.
//!
//! It is made of [`StoreChange`]s, at the start and ever after, and holds what is durable and nothing else: what was asked
//! for and is not stored yet is not in it, and what failed never was.
//!
//! A stripe of 14 blocks takes some 700 bytes (`docs/decisions/0013`): nodes are numbers, block names are made of the
//! stripe's and the index where the store's are, further holders of a block cost only where there are some, digests are packed, and what all stripes of a put say
//! of their file is kept once.

mod census;
mod domains;
mod entry;
mod files;
#[cfg(test)]
mod tests;
mod without;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use codes::BlockIndex;
use repair::{BlockId, NodeId, StripeId};
use store_api::{CatalogError, Eras, NodeRecord, StoreChange, StripeRecord, is_from_the_future};

use census::Counts;
pub(crate) use census::Kind;
use domains::{Fleet, host_of};
pub(crate) use domains::{Survives, Together};
use entry::{Entry, Shared};
use files::FilesPicture;
pub(crate) use without::Loss;

/// A stripe's place in memory.
pub(crate) type Slot = u32;

/// See the module's documentation.
#[derive(Default)]
pub(crate) struct Picture {
    stripes: Vec<Option<Entry>>,
    free: Vec<Slot>,
    names: BTreeMap<Arc<str>, Slot>,
    /// Blocks whose names say nothing of their stripes.
    odd: BTreeMap<BlockId, (Slot, BlockIndex)>,
    /// Stripes of which some block is on several nodes.
    replicated: BTreeSet<Slot>,
    /// Stripes of files with a block that is good nowhere, even if all nodes are up.
    rotten: BTreeSet<Slot>,
    /// The blocks that each node holds or held last.
    holders: BTreeMap<NodeId, BTreeSet<(Slot, u16)>>,
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
    /// Takes in how something is from now on.
    pub(crate) fn apply(&mut self, change: StoreChange) {
        match change {
            StoreChange::Stripe(stripe, pending) => self.set_stripe(&stripe, pending),
            StoreChange::StripeGone(stripe) => self.drop_stripe(&stripe),
            StoreChange::Node(node) => {
                self.set_host(node.id, node.address.as_deref().map(host_of));
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
            self.holders.entry(node).or_default().insert((slot, index));
        }
        if entry.is_odd() {
            let odd =
                stripe.blocks.iter().zip(0..).map(|(block, at)| (block.id.clone(), (slot, BlockIndex(at))));
            self.odd.extend(odd);
        }
        if entry.has_replicas() {
            self.replicated.insert(slot);
        }
        if !entry.pending && !entry.lost(|_| true).is_empty() {
            self.rotten.insert(slot);
        }
        self.counts.add(slot, &entry, &self.fleet);
        if slot as usize == self.stripes.len() {
            self.stripes.push(Some(entry));
        } else {
            self.stripes[slot as usize] = Some(entry);
        }
    }

    /// Takes a stripe out of everything but the list of names.
    fn take(&mut self, slot: Slot) {
        let entry = self.stripes[slot as usize].take().expect("a name has a stripe");
        self.replicated.remove(&slot);
        self.rotten.remove(&slot);
        self.counts.remove(slot, &entry, &self.fleet);
        for (index, node) in entry.holders() {
            if let Some(blocks) = self.holders.get_mut(&node) {
                blocks.remove(&(slot, index));
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

    /// Whether what a node holds is in service.
    pub(crate) fn is_up(&self, node: NodeId) -> bool {
        self.fleet.is_up(node)
    }

    /// What a node holds is in service from now on, or is not.
    pub(crate) fn set_up(&mut self, node: NodeId, up: bool) {
        if self.fleet.is_up(node) != up {
            self.recount(node, |fleet| fleet.set_up(node, up));
        }
    }

    fn set_host(&mut self, node: NodeId, host: Option<&str>) {
        if !self.fleet.stands(node, host) {
            self.recount(node, |fleet| fleet.set_host(node, host));
        }
    }

    /// A node is in this rack, or in none that is known.
    pub(crate) fn set_rack(&mut self, node: NodeId, rack: Option<&str>) {
        if !self.fleet.is_in_rack(node, rack) {
            self.recount(node, |fleet| fleet.set_rack(node, rack));
        }
    }

    /// Counts the stripes of a node anew, as something else is known of it.
    fn recount(&mut self, node: NodeId, change: impl FnOnce(&mut Fleet)) {
        let mut slots: Vec<Slot> =
            self.holders.get(&node).into_iter().flatten().map(|&(slot, _)| slot).collect();
        slots.dedup();
        let entry = |slot: Slot| self.stripes[slot as usize].as_ref().expect("it holds blocks of stripes");
        slots.iter().for_each(|&slot| self.counts.remove(slot, entry(slot), &self.fleet));
        change(&mut self.fleet);
        slots.iter().for_each(|&slot| self.counts.add(slot, entry(slot), &self.fleet));
    }

    /// The nodes from which the blocks of a stripe can be read, one for each.
    pub(crate) fn readers_of(&self, stripe: &StripeId) -> Vec<NodeId> {
        self.entry(stripe).map_or_else(|_| Vec::new(), |entry| entry.readers(|node| self.is_up(node)))
    }

    /// How blocks that are read from these nodes share domains.
    pub(crate) fn together(&self, readers: &[NodeId]) -> Together {
        self.fleet.together(readers)
    }

    /// Whether several hosts are known, and several racks.
    pub(crate) fn knows_domains(&self) -> (bool, bool) {
        (self.fleet.has_hosts(), self.fleet.has_racks())
    }

    /// Stripes of files of which some helper has several readable blocks.
    pub(crate) fn doubled(&self) -> impl Iterator<Item = StripeRecord> + '_ {
        self.counts.doubled().map(|slot| self.record(slot))
    }

    fn slot(&self, id: &StripeId) -> Result<Slot, CatalogError> {
        match self.names.get(id.0.as_str()) {
            Some(&slot) => Ok(slot),
            None => self.slot_of_count(id),
        }
    }

    /// The one stripe of a count, for people who leave the era out.
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
        let slot = self.slot(id)?;
        Ok(self.stripes[slot as usize].as_ref().expect("a slot in use"))
    }

    fn record(&self, slot: Slot) -> StripeRecord {
        self.stripes[slot as usize].as_ref().expect("a slot in use").record(&self.shared)
    }

    /// A stripe by name.
    pub(crate) fn stripe(&self, id: &StripeId) -> Result<StripeRecord, CatalogError> {
        Ok(self.record(self.slot(id)?))
    }

    /// The stripe and index of a block.
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

    /// Whether a stripe is part of a put that is not committed, so that it need not be repaired; `None` if there is none.
    pub(crate) fn is_pending(&self, id: &StripeId) -> Option<bool> {
        self.entry(id).ok().map(|entry| entry.pending)
    }

    /// The blocks that a node holds or held last.
    pub(crate) fn blocks_of(&self, node: NodeId) -> Vec<(StripeId, BlockIndex)> {
        let name =
            |slot: Slot| self.stripes[slot as usize].as_ref().expect("a slot in use").name().to_string();
        let blocks = self.holders.get(&node).into_iter().flatten();
        blocks.map(|&(slot, index)| (StripeId(name(slot)), BlockIndex(index))).collect()
    }

    /// The stripes of files, by name.
    pub(crate) fn of_files(&self) -> impl Iterator<Item = StripeId> {
        let entry = |&slot: &Slot| self.stripes[slot as usize].as_ref().expect("a slot in use");
        let names = self.names.iter().filter(move |(_, slot)| !entry(slot).pending);
        names.map(|(name, _)| StripeId(name.to_string()))
    }

    /// The stripes of which some block is on several nodes.
    pub(crate) fn replicated(&self) -> Vec<StripeRecord> {
        self.replicated.iter().map(|&slot| self.record(slot)).collect()
    }

    /// The stripes with a block on this node of which some block is on other nodes as well.
    pub(crate) fn replicated_on(&self, node: NodeId) -> Vec<StripeId> {
        if self.replicated.is_empty() {
            return Vec::new();
        }
        let mut slots: Vec<Slot> =
            self.holders.get(&node).into_iter().flatten().map(|&(slot, _)| slot).collect();
        slots.dedup();
        let entries = slots.into_iter().filter(|slot| self.replicated.contains(slot));
        let replicated = entries.map(|slot| self.stripes[slot as usize].as_ref().expect("in use"));
        replicated.map(|entry| StripeId(entry.name().to_string())).collect()
    }

    /// How many blocks a node holds or held last.
    pub(crate) fn block_count(&self, node: NodeId) -> usize {
        self.holders.get(&node).map_or(0, BTreeSet::len)
    }

    /// Stripes of files, no more than `most`, taken evenly.
    pub(crate) fn sample(&self, most: usize) -> Vec<StripeRecord> {
        let step = self.stripes.len().div_ceil(most).max(1);
        let of_files = self.stripes.iter().step_by(step).flatten().filter(|entry| !entry.pending);
        of_files.map(|entry| entry.record(&self.shared)).collect()
    }

    /// The stripes of files that lack a block now, by name.
    pub(crate) fn damaged(&self) -> Vec<StripeRecord> {
        let mut damaged: Vec<StripeRecord> = self.counts.damaged().map(|slot| self.record(slot)).collect();
        damaged.sort_by(|a, b| a.id.cmp(&b.id));
        damaged
    }

    /// The stripes of files with a block that is good nowhere, even if all nodes are up.
    pub(crate) fn rotten(&self) -> &BTreeSet<Slot> {
        &self.rotten
    }

    /// The stripe in a place.
    pub(crate) fn stripe_in(&self, slot: Slot) -> StripeRecord {
        self.record(slot)
    }

    /// The kinds of stripes that there are, and how many of each.
    pub(crate) fn kinds(&self) -> impl Iterator<Item = Kind<'_>> {
        self.counts.kinds(&self.shared)
    }

    /// The blocks that a stripe of a file lacks by what is stored.
    pub(crate) fn lost_of(&self, id: &StripeId) -> Option<Vec<BlockIndex>> {
        let entry = self.entry(id).ok().filter(|entry| !entry.pending)?;
        Some(entry.lost(|node| self.fleet.is_up(node)).into_iter().map(BlockIndex).collect())
    }

    /// The name of a stripe of a [`Kind`].
    pub(crate) fn name_of(&self, slot: Slot) -> String {
        self.stripes[slot as usize].as_ref().expect("a slot in use").name().to_string()
    }

    /// What files there are, and what goes with them.
    pub(crate) fn files(&self) -> &FilesPicture {
        &self.files
    }

    /// All nodes that have a number.
    pub(crate) fn nodes(&self) -> &BTreeMap<NodeId, NodeRecord> {
        &self.nodes
    }

    /// The number of a node.
    pub(crate) fn node_named(&self, name: &str) -> Option<&NodeRecord> {
        self.nodes.values().find(|node| node.name == name)
    }

    /// Whether a block of this name would be of a stripe that is yet to be counted, by a coordinator that this catalog knows
    /// nothing of.
    pub(crate) fn is_from_the_future(&self, block: &BlockId) -> bool {
        is_from_the_future(block, self.counted.max(1)) && self.eras.may_be_lost(block)
    }

    /// Whether a coordinator over this catalog gave a block its name: what no stripe has of it was removed, or never became
    /// part of a file.
    pub(crate) fn was_given(&self, block: &BlockId) -> bool {
        self.eras.were_given(block, self.counted.max(1))
    }
}
