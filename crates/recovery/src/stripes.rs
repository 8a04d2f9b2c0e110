//! The stripes with open items: locations of their blocks, and whether a job or the driver works on them.

use std::collections::BTreeMap;
use std::sync::Arc;

use codes::{BlockIndex, Code};
use repair::{Heat, StripeId};

use super::item::{BlockFacts, CopyState, Kind, NewItem};
use super::nodes::{NodeNo, NodeTable};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BlockState {
    pub node: Option<NodeNo>,
    pub copy: CopyState,
}

impl BlockState {
    fn is_good(self) -> bool {
        self.copy == CopyState::Good
    }
}

#[derive(Debug)]
pub(super) struct Stripe {
    pub id: StripeId,
    pub code: Arc<dyn Code>,
    pub block_bytes: u64,
    pub blocks: Vec<BlockState>,
    /// The copies that are not cold.
    heats: BTreeMap<(NodeNo, BlockIndex), Heat>,
    /// Open items of the stripe.
    pub items: Vec<u32>,
    /// The item that is proposed or running.
    pub busy: Option<u32>,
}

impl Stripe {
    /// Returns the blocks that cannot be read now, in ascending order.
    pub fn lost(&self, table: &NodeTable) -> Vec<BlockIndex> {
        self.indexed().filter(|&(_, block)| reader(block, table).is_none()).map(|(index, _)| index).collect()
    }

    /// Returns the blocks that can be read now, and their nodes.
    pub fn survivors<'a>(&'a self, table: &'a NodeTable) -> impl Iterator<Item = (BlockIndex, NodeNo)> + 'a {
        self.indexed().filter_map(|(index, block)| Some((index, reader(block, table)?)))
    }

    /// Returns the blocks that an item still has to repair or move.
    pub fn wanted(
        &self,
        kind: Kind,
        only: &[BlockIndex],
        lost: &[BlockIndex],
        table: &NodeTable,
    ) -> Vec<BlockIndex> {
        let mut wanted = lost.to_vec();
        if let Some(from) = kind.leaves() {
            let from = table.find(from);
            wanted = self.indexed().filter(|(_, block)| block.node == from).map(|(index, _)| index).collect();
        }
        wanted.retain(|index| only.is_empty() || only.contains(index));
        wanted
    }

    /// Returns the nodes with a good block, whether up or not.
    pub fn nodes(&self) -> impl Iterator<Item = NodeNo> + '_ {
        self.blocks.iter().filter(|block| block.is_good()).filter_map(|block| block.node)
    }

    /// Whether every block can be read now.
    pub fn is_whole(&self, table: &NodeTable) -> bool {
        self.blocks.iter().all(|&block| reader(block, table).is_some())
    }

    /// Sets the heat of a node's copy of a block.
    pub fn set_heat(&mut self, block: BlockIndex, node: NodeNo, heat: Heat) {
        match heat {
            Heat::Cold => self.heats.remove(&(node, block)),
            heat => self.heats.insert((node, block), heat),
        };
    }

    /// Returns the heat of a node's copy of a block.
    pub fn heat(&self, block: BlockIndex, node: NodeNo) -> Heat {
        self.heats.get(&(node, block)).copied().unwrap_or_default()
    }

    /// Counts all copies on a node as cold.
    pub fn cool(&mut self, node: NodeNo) {
        self.heats.retain(|&(holder, _), _| holder != node);
    }

    pub fn has(&self, node: NodeNo) -> bool {
        self.blocks.iter().any(|block| block.node == Some(node))
    }

    fn indexed(&self) -> impl Iterator<Item = (BlockIndex, BlockState)> + '_ {
        self.blocks.iter().zip(0..).map(|(&block, index)| (BlockIndex(index), block))
    }
}

fn reader(block: BlockState, table: &NodeTable) -> Option<NodeNo> {
    block.node.filter(|&node| block.is_good() && table.get(node).facts.alive)
}

/// The stripes with open items, by number. See the module documentation.
#[derive(Debug, Default)]
pub(super) struct Stripes {
    stripes: Vec<Option<Stripe>>,
    free: Vec<u32>,
    numbers: BTreeMap<StripeId, u32>,
    /// Number of holds ([`hold`](Self::hold)) of each held stripe. A held stripe may have no open items.
    holds: BTreeMap<StripeId, u32>,
}

impl Stripes {
    pub fn find(&self, id: &StripeId) -> Option<u32> {
        self.numbers.get(id).copied()
    }

    pub fn get(&self, no: u32) -> &Stripe {
        self.stripes[no as usize].as_ref().expect("it has open items")
    }

    /// Returns a stripe; `None` if its last item has just ended.
    pub fn try_get(&self, no: u32) -> Option<&Stripe> {
        self.stripes.get(no as usize)?.as_ref()
    }

    pub fn get_mut(&mut self, no: u32) -> &mut Stripe {
        self.stripes[no as usize].as_mut().expect("it has open items")
    }

    /// Adds a hold: the driver itself works on the stripe, and no job of the stripe may start.
    pub fn hold(&mut self, id: &StripeId) {
        *self.holds.entry(id.clone()).or_insert(0) += 1;
    }

    /// Releases a hold. Returns whether there was one.
    pub fn let_go(&mut self, id: &StripeId) -> bool {
        let Some(holds) = self.holds.get_mut(id) else { return false };
        *holds -= 1;
        if *holds == 0 {
            self.holds.remove(id);
        }
        true
    }

    pub fn is_held(&self, id: &StripeId) -> bool {
        self.holds.contains_key(id)
    }

    /// Whether the stripe is present and has no open items.
    pub fn is_idle(&self, no: u32) -> bool {
        self.stripes[no as usize].as_ref().is_some_and(|stripe| stripe.items.is_empty())
    }

    /// Adds a stripe or updates it: the store may have changed its code. Returns its number, and whether a known stripe
    /// has changed.
    pub fn add(&mut self, new: &NewItem, table: &mut NodeTable) -> (u32, bool) {
        let blocks: Vec<BlockState> = new.blocks.iter().map(|&facts| state_of(facts, table)).collect();
        if let Some(no) = self.find(&new.stripe) {
            self.unindex(no, table);
            let known = self.get_mut(no);
            let changed = known.blocks != blocks || known.code.spec() != new.code.spec();
            (known.code, known.block_bytes, known.blocks) = (new.code.clone(), new.block_bytes, blocks);
            self.index(no, table);
            return (no, changed);
        }
        let stripe = Stripe {
            id: new.stripe.clone(),
            code: new.code.clone(),
            block_bytes: new.block_bytes,
            blocks,
            heats: BTreeMap::new(),
            items: Vec::new(),
            busy: None,
        };
        let no = self.free.pop().unwrap_or_else(|| {
            self.stripes.push(None);
            self.stripes.len() as u32 - 1
        });
        self.stripes[no as usize] = Some(stripe);
        self.numbers.insert(new.stripe.clone(), no);
        self.index(no, table);
        (no, false)
    }

    /// Forgets a stripe without open items.
    pub fn remove(&mut self, no: u32, table: &mut NodeTable) {
        self.unindex(no, table);
        let stripe = self.stripes[no as usize].take().expect("it was there");
        self.numbers.remove(&stripe.id);
        self.free.push(no);
    }

    /// Sets the location of a block. Returns whether it has changed.
    pub fn set_block(
        &mut self,
        no: u32,
        block: BlockIndex,
        facts: BlockFacts,
        table: &mut NodeTable,
    ) -> bool {
        let new = state_of(facts, table);
        // The store may have encoded the stripe anew, with more blocks. The items of the former encoding are
        // cancelled.
        let Some(known) = self.get_mut(no).blocks.get_mut(usize::from(block.0)) else { return false };
        if *known == new {
            return false;
        }
        if known.node == new.node {
            *known = new;
            return true;
        }
        self.unindex(no, table);
        self.get_mut(no).blocks[usize::from(block.0)] = new;
        self.index(no, table);
        true
    }

    /// Sets which item of a stripe is proposed or running.
    pub fn set_busy(&mut self, no: u32, busy: Option<u32>, table: &mut NodeTable) {
        self.unindex(no, table);
        self.get_mut(no).busy = busy;
        self.index(no, table);
    }

    fn index(&mut self, no: u32, table: &mut NodeTable) {
        let stripe = self.get(no);
        for node in stripe.blocks.iter().filter_map(|block| block.node) {
            let node = table.get_mut(node);
            if node.stripes.insert(no) {
                node.busy_stripes += u64::from(stripe.busy.is_some());
            }
        }
    }

    fn unindex(&mut self, no: u32, table: &mut NodeTable) {
        let stripe = self.get(no);
        for node in stripe.blocks.iter().filter_map(|block| block.node) {
            let node = table.get_mut(node);
            if node.stripes.remove(&no) {
                node.busy_stripes -= u64::from(stripe.busy.is_some());
            }
        }
    }
}

fn state_of(facts: BlockFacts, table: &mut NodeTable) -> BlockState {
    BlockState { node: facts.node.map(|node| table.number(node)), copy: facts.copy }
}
