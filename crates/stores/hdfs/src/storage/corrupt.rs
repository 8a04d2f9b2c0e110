//! Corrupt replicas that the NameNode knows of. A listing says only which groups have some; the NameNode's lists say
//! on which DataNodes.

use std::collections::{BTreeMap, BTreeSet};

use store_api::{StoreChange, Unjudged};

use crate::listing::{DataNode, Group, Shortage};

/// The groups with corrupt replicas.
#[derive(Default)]
pub(super) struct Corrupt {
    /// The addresses of the DataNodes with corrupt replicas, of groups and of blocks of raided files on the
    /// NameNode's lists.
    named: BTreeMap<i64, BTreeSet<String>>,
    /// Groups whose corrupt replicas the lists have not named. Any of their replicas may be corrupt.
    unnamed: BTreeMap<i64, Unjudged>,
    /// The last report of these groups.
    told: Vec<Unjudged>,
}

impl Corrupt {
    /// Takes in the NameNode's lists.
    pub fn take_lists(&mut self, listed: &BTreeMap<i64, Shortage>) {
        let named = listed.iter().filter(|(_, shortage)| !shortage.corrupt.is_empty());
        self.named = named.map(|(&group, shortage)| (group, shortage.corrupt.clone())).collect();
    }

    /// Forgets the names of corrupt replicas, because the lists cannot be read any more. A group may have others since.
    pub fn forget_lists(&mut self) {
        self.named.clear();
    }

    /// Takes in a listed group. Returns the addresses of the DataNodes with corrupt replicas.
    pub fn take_group(&mut self, group: &Group, nodes: &[DataNode]) -> Option<&BTreeSet<String>> {
        let number = group.group.number;
        let named = self.named.get(&number).filter(|_| group.has_corrupt);
        if group.has_corrupt && named.is_none() {
            self.unnamed.insert(number, unjudged(group, nodes));
        } else {
            self.unnamed.remove(&number);
        }
        named
    }

    /// Whether the lists name a DataNode's replica of a group, or of a block of a raided file, as corrupt.
    pub fn names(&self, number: i64, address: &str) -> bool {
        self.named.get(&number).is_some_and(|addresses| addresses.contains(address))
    }

    /// Returns the groups and blocks on the lists, with the addresses of the DataNodes with corrupt replicas.
    pub fn named(&self) -> &BTreeMap<i64, BTreeSet<String>> {
        &self.named
    }

    /// Returns the groups whose corrupt replicas the lists have not named.
    pub fn unnamed(&self) -> impl Iterator<Item = i64> {
        self.unnamed.keys().copied()
    }

    /// Returns a report of the groups with unnamed corrupt replicas, if they have changed since the last one. Drops
    /// groups that no longer exist.
    pub fn tell(&mut self, exists: impl Fn(i64) -> bool) -> Option<StoreChange> {
        self.unnamed.retain(|&number, _| exists(number));
        if self.unnamed.values().eq(self.told.iter()) {
            return None;
        }
        self.told = self.unnamed.values().cloned().collect();
        Some(self.told())
    }

    /// Returns the last report of the groups with unnamed corrupt replicas.
    pub fn told(&self) -> StoreChange {
        StoreChange::Unjudged(self.told.clone())
    }
}

/// Describes a group whose corrupt replicas the lists have not named.
fn unjudged(group: &Group, nodes: &[DataNode]) -> Unjudged {
    let blocks = group.group.stripe().into_iter().flat_map(|shape| shape.blocks);
    Unjudged {
        stripe: group.group.stripe_id(),
        blocks: blocks.map(|block| block.name.block_id()).collect(),
        servers: group.homes.iter().map(|&(_, node)| nodes[node].address.clone()).collect(),
        why: "too few of its replicas are intact, and only the NameNode's lists, which have not been read, tell \
              which ones are corrupt"
            .to_owned(),
        next_step: "mend scrub, which finds the corrupt replicas; if a note in mend status says why the NameNode's \
                    lists cannot be read, correct that"
            .to_owned(),
    }
}
