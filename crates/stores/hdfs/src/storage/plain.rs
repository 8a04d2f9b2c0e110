//! [`Plain`]: a group without damage, as it is kept in memory. Nearly all groups are plain.

use std::time::Duration;

use repair::NodeId;

use super::coded::Coded;
use super::groups::Listed;
use super::names::Place;
use super::pages::{Record, get, get_difference, put, put_difference};
use crate::blocks::{BlockGroup, Policy};
use crate::listing::{FileRef, Phase};

/// The numbers of groups are multiples of this.
const STEP: u64 = 16;

/// Values that a group shares with its predecessor, or that are usual.
const SAME_FILE: u8 = 1;
const SAME_BYTES: u8 = 1 << 1;
const SAME_POLICY: u8 = 1 << 2;
const SAME_INDICES: u8 = 1 << 3;
const SAME_TIME: u8 = 1 << 4;
const AT_START: u8 = 1 << 5;
const HAS_PLACE: u8 = 1 << 6;

/// A group that has exactly one healthy replica of each block, each on a DataNode of its own, in a file outside of
/// snapshots that was closed long enough ago.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Plain {
    number: i64,
    stamp: u64,
    bytes: u64,
    policy: u64,
    inode: u64,
    place: Option<Place>,
    start: u64,
    /// The time at which the query for the last answer was sent, in milliseconds.
    asked: u64,
    /// The indices of the blocks, as bits.
    indices: u16,
    /// The DataNodes, in the order of indices.
    nodes: Nodes,
}

/// The DataNodes of a group: at most 16, so that decoding allocates nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Nodes([u32; 16]);

impl Plain {
    /// Returns the record of a group; `None` if the group is not plain.
    pub fn of(listed: &Listed, asked: Duration) -> Option<Self> {
        let Coded::Group(group) = &listed.group else { return None };
        let shape = group.stripe()?;
        if listed.file.held_at.is_some() || listed.homes.len() != shape.blocks.len() {
            return None;
        }
        let (mut indices, mut nodes) = (0u16, Nodes::default());
        for (block, place) in shape.blocks.iter().zip(&mut nodes.0) {
            let index = block.index.0 as u8;
            let &(_, node) = listed.homes.iter().find(|&&(other, _)| other == index)?;
            if listed.has_other(index, node) {
                return None;
            }
            indices |= 1 << index;
            *place = node.0;
        }
        Some(Self {
            number: group.number,
            stamp: group.stamp,
            bytes: group.bytes,
            policy: group.policy.to_bits(),
            inode: listed.file.inode,
            place: listed.place,
            start: listed.start,
            asked: asked.as_millis() as u64,
            indices,
            nodes,
        })
    }

    /// Returns the group as it was listed.
    pub fn listed(&self) -> Listed {
        let policy = Policy::from_bits(self.policy);
        let group = BlockGroup { number: self.number, stamp: self.stamp, bytes: self.bytes, policy };
        let homes = self.indices().zip(self.nodes.0).map(|(index, node)| (index, NodeId(node)));
        Listed {
            file: FileRef { inode: self.inode, held_at: None },
            place: self.place,
            phase: Phase::Old,
            start: self.start,
            group: group.into(),
            homes: homes.collect(),
        }
    }

    /// Returns the group's file.
    pub fn inode(&self) -> u64 {
        self.inode
    }

    /// Returns the time at which the query for the last answer was sent.
    pub fn asked(&self) -> Duration {
        Duration::from_millis(self.asked)
    }

    fn indices(&self) -> impl Iterator<Item = u8> + use<> {
        let indices = self.indices;
        (0..16).filter(move |index| indices >> index & 1 != 0)
    }
}

impl Record for Plain {
    type Key = i64;

    fn key(&self) -> i64 {
        self.number
    }

    fn encode(&self, before: Option<&Self>, bytes: &mut Vec<u8>) {
        let same = |is_same: fn(&Self, &Self) -> bool, flag: u8| {
            before.filter(|before| is_same(before, self)).map_or(0, |_| flag)
        };
        let flags = same(|a, b| (a.inode, a.place) == (b.inode, b.place), SAME_FILE)
            | same(|a, b| a.bytes == b.bytes, SAME_BYTES)
            | same(|a, b| a.policy == b.policy, SAME_POLICY)
            | same(|a, b| a.indices == b.indices, SAME_INDICES)
            | same(|a, b| a.asked == b.asked, SAME_TIME)
            | if self.start == 0 { AT_START } else { 0 }
            | if self.place.is_some() { HAS_PLACE } else { 0 };
        let of = |value: fn(&Self) -> u64| before.map_or(0, value);
        bytes.push(flags);
        put_difference(self.number as u64 / STEP, of(|it| it.number as u64 / STEP), bytes);
        put_difference(self.stamp, of(|it| it.stamp), bytes);
        if flags & SAME_FILE == 0 {
            put_difference(self.inode, of(|it| it.inode), bytes);
            if let Some(Place { folder, name }) = self.place {
                put_difference(folder.into(), of(Self::folder), bytes);
                bytes.extend(name.to_le_bytes());
            }
        }
        if flags & SAME_BYTES == 0 {
            put(self.bytes, bytes);
        }
        if flags & SAME_POLICY == 0 {
            put(self.policy, bytes);
        }
        if flags & SAME_INDICES == 0 {
            put(self.indices.into(), bytes);
        }
        if flags & SAME_TIME == 0 {
            put_difference(self.asked, of(|it| it.asked), bytes);
        }
        if flags & AT_START == 0 {
            put(self.start, bytes);
        }
        for &node in &self.nodes.0[..self.indices.count_ones() as usize] {
            put(node.into(), bytes);
        }
    }

    fn decode(before: Option<&Self>, bytes: &mut &[u8]) -> Self {
        let flags = get(bytes) as u8;
        let of = |value: fn(&Self) -> u64| before.map_or(0, value);
        let has = |flag: u8| flags & flag != 0;
        let number = (get_difference(of(|it| it.number as u64 / STEP), bytes) * STEP) as i64;
        let stamp = get_difference(of(|it| it.stamp), bytes);
        let (mut inode, mut place) = (of(|it| it.inode), before.and_then(|it| it.place));
        if !has(SAME_FILE) {
            inode = get_difference(inode, bytes);
            place = has(HAS_PLACE).then(|| {
                let folder = get_difference(of(Self::folder), bytes) as u32;
                let (name, rest) = bytes.split_first_chunk().expect("a name");
                *bytes = rest;
                Place { folder, name: u32::from_le_bytes(*name) }
            });
        }
        let group_bytes = if has(SAME_BYTES) { of(|it| it.bytes) } else { get(bytes) };
        let policy = if has(SAME_POLICY) { of(|it| it.policy) } else { get(bytes) };
        let indices = if has(SAME_INDICES) { of(|it| it.indices.into()) } else { get(bytes) } as u16;
        let asked = of(|it| it.asked);
        let asked = if has(SAME_TIME) { asked } else { get_difference(asked, bytes) };
        let start = if has(AT_START) { 0 } else { get(bytes) };
        let mut plain = Self {
            number,
            stamp,
            bytes: group_bytes,
            policy,
            inode,
            place,
            start,
            asked,
            indices,
            nodes: Nodes::default(),
        };
        for node in &mut plain.nodes.0[..indices.count_ones() as usize] {
            *node = get(bytes) as u32;
        }
        plain
    }
}

impl Plain {
    fn folder(&self) -> u64 {
        self.place.map_or(0, |place| place.folder.into())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    prop_compose! {
        fn listed()(
            group in 1i64..1000,
            stamp in 1000u64..1100,
            bytes in prop_oneof![Just(6u64 << 20), 1u64..8 << 20],
            policy in prop::sample::select(vec!["RS-6-3-1024k", "XOR-2-1-64k", "RS-LEGACY-10-4-1024k"]),
            inode in 1u64..1 << 40,
            place in prop::option::of((any::<u32>(), any::<u32>())),
            start in 0u64..3,
            nodes in prop::collection::btree_set(0u32..100_000, 14),
        ) -> Listed {
            let policy: Policy = policy.parse().expect("a policy");
            let group = BlockGroup { number: i64::MIN + 16 * group, stamp, bytes, policy };
            let blocks = group.stripe().expect("not empty").blocks;
            let homes = blocks.iter().zip(nodes).map(|(block, node)| (block.index.0 as u8, NodeId(node)));
            Listed {
                file: FileRef { inode, held_at: None },
                place: place.map(|(folder, name)| Place { folder, name }),
                phase: Phase::Old,
                start: start << 33,
                group: group.into(),
                homes: homes.collect(),
            }
        }
    }

    proptest! {
        #[test]
        fn groups_are_decoded_as_they_were(mut all in prop::collection::vec((listed(), 0u64..3), 1..20)) {
            all.sort_by_key(|(listed, _)| listed.group.number());
            let (mut bytes, mut before) = (Vec::new(), None);
            for (listed, asked) in &all {
                let plain = Plain::of(listed, Duration::from_secs(*asked)).expect("plain");
                plain.encode(before.as_ref(), &mut bytes);
                before = Some(plain);
            }
            let (mut rest, mut before) = (&bytes[..], None);
            for (listed, asked) in all {
                let plain = Plain::decode(before.as_ref(), &mut rest);
                prop_assert_eq!((plain.listed(), plain.asked()), (listed, Duration::from_secs(asked)));
                before = Some(plain);
            }
            prop_assert!(rest.is_empty());
        }
    }
}
