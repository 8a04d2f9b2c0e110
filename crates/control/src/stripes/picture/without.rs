//! The consequences of losing some nodes.

use std::collections::{BTreeMap, BTreeSet};

use codes::{BlockIndex, CodeSpec};
use repair::NodeId;

use crate::stripes::picture::{Picture, Slot, Together};

/// The code, the blocks lost now, the blocks lost without the nodes, and how the rest would share helpers.
type KindWithout = (u16, Vec<u16>, Vec<u16>, Together);

/// Stripes that have lost the same blocks now, and would have lost the same blocks without some nodes.
pub(crate) struct Loss<'p> {
    pub code: &'p CodeSpec,
    pub lost: Vec<BlockIndex>,
    pub lost_without: Vec<BlockIndex>,
    pub together_without: Together,
    /// The names of the stripes.
    pub stripes: Vec<&'p str>,
}

impl Picture {
    /// The stripes of files with blocks on these nodes, grouped by what they would lose.
    pub(crate) fn without(&self, nodes: &BTreeSet<NodeId>) -> Vec<Loss<'_>> {
        let held = nodes.iter().filter_map(|node| self.holders.get(node));
        let slots: BTreeSet<Slot> = held.flatten().map(|&(slot, _)| slot).collect();
        let mut kinds: BTreeMap<KindWithout, Vec<&str>> = BTreeMap::new();
        for slot in slots {
            let entry = self.stripes[slot as usize].as_ref().expect("listed stripes exist");
            if !entry.pending {
                let lost = entry.lost(|node| self.fleet.is_up(node));
                let stays = |node| self.fleet.is_up(node) && !nodes.contains(&node);
                let together = self.fleet.together(&entry.readers(stays));
                let kind = (entry.code, lost, entry.lost(stays), together);
                kinds.entry(kind).or_default().push(entry.name());
            }
        }
        let indices = |lost: Vec<u16>| lost.into_iter().map(BlockIndex).collect();
        let loss = |((code, lost, lost_without, together_without), stripes)| Loss {
            code: self.shared.code_of(code),
            lost: indices(lost),
            lost_without: indices(lost_without),
            together_without,
            stripes,
        };
        kinds.into_iter().map(loss).collect()
    }

    /// The total bytes of the blocks whose recorded place is this node, including missing and corrupt ones.
    pub(crate) fn bytes_on(&self, node: NodeId) -> u64 {
        let slots = self.holders.get(&node).into_iter().flatten();
        let entry = |slot: Slot| self.stripes[slot as usize].as_ref().expect("listed stripes exist");
        slots.map(|&(slot, _)| entry(slot).block_bytes).sum()
    }
}
