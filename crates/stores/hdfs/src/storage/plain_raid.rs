//! [`PlainRaid`]: a stripe of a raided file without damage, as it is kept in memory.

use std::sync::Arc;
use std::time::Duration;

use codes::CodeSpec;
use repair::NodeId;

use super::coded::{Coded, Extent, RaidBlock, RaidStripe};
use super::groups::Listed;
use super::names::Place;
use super::pages::{Record, get, get_difference, put, put_difference};
use crate::listing::{FileRef, Phase};

/// Values that a stripe shares with its predecessor, or that are usual.
const SAME_FILE: u8 = 1;
const SAME_CODE: u8 = 1 << 1;
const SAME_TIME: u8 = 1 << 2;
const HAS_PLACE: u8 = 1 << 3;
/// The numbers and stamps of the data blocks, or of the parity blocks, are consecutive.
const DATA_RUN: u8 = 1 << 4;
const PARITY_RUN: u8 = 1 << 5;
/// The last data block is not shorter than the others.
const FULL: u8 = 1 << 6;
/// The stripe follows its predecessor in both files.
const NEXT: u8 = 1 << 7;
/// The flags that only a stripe with a predecessor has.
const OF_PREDECESSOR: u8 = SAME_FILE | SAME_CODE | SAME_TIME | NEXT;

/// The number and the generation stamp of a block.
type Name = (u64, u64);

/// A stripe of one file with exactly one healthy replica of each block, where at most the last data block is short.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PlainRaid {
    /// The number of the code in the table of codes.
    code: u64,
    block_bytes: u64,
    /// Number of data blocks.
    data: u64,
    source: u64,
    parity: u64,
    place: Option<Place>,
    start: u64,
    parity_start: u64,
    /// The length of the last data block.
    last_bytes: u64,
    /// The time at which the query for the last answer was sent, in milliseconds.
    asked: u64,
    /// The data blocks, then the parity blocks, each with its DataNode.
    blocks: Vec<(Name, u32)>,
}

impl PlainRaid {
    /// Returns the record of a stripe whose code has this number; `None` if the stripe is not plain.
    pub fn of(listed: &Listed, stripe: &RaidStripe, code: u64, asked: Duration) -> Option<Self> {
        // Stripes over the files of a folder are few, and have blocks of any lengths.
        let [Extent { inode, start, blocks: data }] = stripe.data[..] else { return None };
        let last = stripe.blocks.get(data.checked_sub(1)?)?;
        let is_full = |(at, block): (usize, &RaidBlock)| at + 1 == data || block.bytes == stripe.block_bytes;
        let is_single = listed.homes.len() == stripe.blocks.len()
            && listed.homes.iter().zip(0..).all(|(&(index, _), at)| usize::from(index) == at);
        let is_plain = is_single && inode == stripe.source && listed.file.held_at.is_none();
        if !is_plain || !stripe.blocks.iter().enumerate().all(is_full) {
            return None;
        }
        let names = stripe.blocks.iter().map(|block| (block.number as u64, block.stamp));
        Some(Self {
            code,
            block_bytes: stripe.block_bytes,
            data: data as u64,
            source: stripe.source,
            parity: stripe.parity.inode,
            place: listed.place,
            start,
            parity_start: stripe.parity.start,
            last_bytes: last.bytes,
            asked: asked.as_millis() as u64,
            blocks: names.zip(listed.homes.iter().map(|&(_, node)| node.0)).collect(),
        })
    }

    /// Returns the stripe as it was listed, with its code.
    pub fn listed(&self, code: Arc<CodeSpec>) -> Listed {
        let block = |(at, &((number, stamp), _)): (u64, &(Name, u32))| {
            let bytes = if at + 1 == self.data { self.last_bytes } else { self.block_bytes };
            RaidBlock { number: number as i64, stamp, bytes }
        };
        let stripe = RaidStripe {
            code,
            block_bytes: self.block_bytes,
            source: self.source,
            data: vec![Extent { inode: self.source, start: self.start, blocks: self.data as usize }],
            parity: Extent {
                inode: self.parity,
                start: self.parity_start,
                blocks: self.blocks.len() - self.data as usize,
            },
            blocks: (0..).zip(&self.blocks).map(block).collect(),
        };
        Listed {
            file: FileRef { inode: self.source, held_at: None },
            place: self.place,
            phase: Phase::Old,
            start: self.start,
            group: Coded::Raid(Arc::new(stripe)),
            homes: (0..=u8::MAX).zip(&self.blocks).map(|(index, &(_, node))| (index, NodeId(node))).collect(),
        }
    }

    /// Returns the number of the stripe's code in the table of codes.
    pub fn code(&self) -> u64 {
        self.code
    }

    /// Returns the inode number of the raided file.
    pub fn inode(&self) -> u64 {
        self.source
    }

    /// Returns the time at which the query for the last answer was sent.
    pub fn asked(&self) -> Duration {
        Duration::from_millis(self.asked)
    }

    fn parts(&self) -> [&[(Name, u32)]; 2] {
        let (data, parity) = self.blocks.split_at(self.data as usize);
        [data, parity]
    }

    fn folder(&self) -> u64 {
        self.place.map_or(0, |place| place.folder.into())
    }

    /// Returns the offsets of the following stripe.
    fn following(&self) -> (u64, u64) {
        let parities = self.blocks.len() as u64 - self.data;
        (self.start + self.data * self.block_bytes, self.parity_start + parities * self.block_bytes)
    }

    fn flags(&self, before: Option<&Self>) -> u8 {
        let same = |is_same: fn(&Self, &Self) -> bool, flag: u8| {
            before.filter(|before| is_same(before, self)).map_or(0, |_| flag)
        };
        let is_run = |blocks: &[(Name, u32)]| {
            blocks.windows(2).all(|pair| pair[1].0 == (pair[0].0.0 + 1, pair[0].0.1 + 1))
        };
        let [data, parity] = self.parts();
        let when = |holds: bool, flag: u8| if holds { flag } else { 0 };
        same(|a, b| a.file() == b.file(), SAME_FILE)
            | same(|a, b| a.shape() == b.shape(), SAME_CODE)
            | same(|a, b| a.asked == b.asked, SAME_TIME)
            | same(|a, b| a.following() == (b.start, b.parity_start), NEXT)
            | when(self.place.is_some(), HAS_PLACE)
            | when(is_run(data), DATA_RUN)
            | when(is_run(parity), PARITY_RUN)
            | when(self.last_bytes == self.block_bytes, FULL)
    }

    fn file(&self) -> (u64, u64, Option<Place>) {
        (self.source, self.parity, self.place)
    }

    fn shape(&self) -> (u64, u64, u64, usize) {
        (self.code, self.block_bytes, self.data, self.blocks.len())
    }
}

impl Record for PlainRaid {
    type Key = i64;

    fn key(&self) -> i64 {
        self.blocks[0].0.0 as i64
    }

    fn encode(&self, before: Option<&Self>, bytes: &mut Vec<u8>) {
        let flags = self.flags(before);
        let of = |value: fn(&Self) -> u64| before.map_or(0, value);
        bytes.push(flags);
        if flags & SAME_CODE == 0 {
            for number in [self.code, self.block_bytes, self.data, self.blocks.len() as u64] {
                put(number, bytes);
            }
        }
        if flags & SAME_FILE == 0 {
            put_difference(self.source, of(|it| it.source), bytes);
            put_difference(self.parity, of(|it| it.parity), bytes);
            if let Some(Place { folder, name }) = self.place {
                put_difference(folder.into(), of(Self::folder), bytes);
                bytes.extend(name.to_le_bytes());
            }
        }
        if flags & NEXT == 0 {
            put(self.start, bytes);
            put(self.parity_start, bytes);
        }
        if flags & FULL == 0 {
            put(self.last_bytes, bytes);
        }
        if flags & SAME_TIME == 0 {
            put_difference(self.asked, of(|it| it.asked), bytes);
        }
        for (at, run) in [(0, DATA_RUN), (1, PARITY_RUN)] {
            let first = before.map_or((0, 0), |before| first_name(before.parts()[at]));
            put_names(self.parts()[at], first, flags & run != 0, bytes);
        }
        self.blocks.iter().for_each(|&(_, node)| put(node.into(), bytes));
    }

    fn decode(before: Option<&Self>, bytes: &mut &[u8]) -> Self {
        // All eight bits are in use, so the byte is not a number as `put` writes them.
        let (&flags, rest) = bytes.split_first().expect("flags");
        *bytes = rest;
        let of = |value: fn(&Self) -> u64| before.map_or(0, value);
        let has = |flag: u8| flags & flag != 0;
        assert!(
            before.is_some() || !has(OF_PREDECESSOR),
            "flags {flags:#x} refer to a stripe before the first"
        );
        let (code, block_bytes, data, count) = match before.filter(|_| has(SAME_CODE)) {
            Some(before) => before.shape(),
            None => (get(bytes), get(bytes), get(bytes), get(bytes) as usize),
        };
        let (mut source, mut parity, mut place) = before.map_or((0, 0, None), Self::file);
        if !has(SAME_FILE) {
            source = get_difference(source, bytes);
            parity = get_difference(parity, bytes);
            place = has(HAS_PLACE).then(|| {
                let folder = get_difference(of(Self::folder), bytes) as u32;
                let (name, rest) = bytes.split_first_chunk().expect("a name");
                *bytes = rest;
                Place { folder, name: u32::from_le_bytes(*name) }
            });
        }
        let (start, parity_start) = match before.filter(|_| has(NEXT)) {
            Some(before) => before.following(),
            None => (get(bytes), get(bytes)),
        };
        let last_bytes = if has(FULL) { block_bytes } else { get(bytes) };
        let asked = of(|it| it.asked);
        let asked = if has(SAME_TIME) { asked } else { get_difference(asked, bytes) };
        let mut names = Vec::with_capacity(count);
        for (at, run, count) in [(0, DATA_RUN, data as usize), (1, PARITY_RUN, count - data as usize)] {
            let first = before.map_or((0, 0), |before| first_name(before.parts()[at]));
            get_names(count, first, has(run), bytes, &mut names);
        }
        let blocks = names.into_iter().map(|name| (name, get(bytes) as u32)).collect();
        Self {
            code,
            block_bytes,
            data,
            source,
            parity,
            place,
            start,
            parity_start,
            last_bytes,
            asked,
            blocks,
        }
    }
}

fn first_name(blocks: &[(Name, u32)]) -> Name {
    blocks.first().map_or((0, 0), |&(name, _)| name)
}

/// Appends names of blocks, the first one relative to `before`, and the others unless they are a run.
fn put_names(blocks: &[(Name, u32)], mut before: Name, is_run: bool, bytes: &mut Vec<u8>) {
    let count = if is_run { 1 } else { blocks.len() };
    for &(name, _) in blocks.iter().take(count) {
        put_difference(name.0, before.0, bytes);
        put_difference(name.1, before.1, bytes);
        before = name;
    }
}

/// Reads names that [`put_names`] has written.
fn get_names(count: usize, mut before: Name, is_run: bool, bytes: &mut &[u8], names: &mut Vec<Name>) {
    for at in 0..count {
        before = match is_run && at > 0 {
            true => (before.0 + 1, before.1 + 1),
            false => (get_difference(before.0, bytes), get_difference(before.1, bytes)),
        };
        names.push(before);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    prop_compose! {
        fn listed()(
            first in 1_i64..500,
            data_gaps in prop::collection::vec(prop_oneof![8 => Just(1_i64), 1 => 1_i64..9], 3),
            parity_first in 10_000_i64..20_000,
            parity_gap in prop_oneof![Just(1_i64), 1_i64..9],
            stamp in 1000_u64..1100,
            last_bytes in prop_oneof![Just(512_u64), 1_u64..513],
            (source, parity) in prop_oneof![Just((16_u64, 17_u64)), (1_u64..1 << 40, 1_u64..1 << 40)],
            place in prop::option::of((any::<u32>(), any::<u32>())),
            stripe in 0_u64..3,
            nodes in prop::collection::vec(0_u32..100_000, 5),
        ) -> Listed {
            let mut numbers = vec![10 * first];
            for gap in &data_gaps[..2] {
                numbers.push(numbers[numbers.len() - 1] + gap);
            }
            numbers.extend([parity_first, parity_first + parity_gap]);
            let block = |(number, at): (i64, u64)| RaidBlock {
                number,
                stamp: stamp + at,
                bytes: if at == 2 { last_bytes } else { 512 },
            };
            let stripe = RaidStripe {
                code: Arc::new("rs-5-3".parse().expect("a code")),
                block_bytes: 512,
                source,
                data: vec![Extent { inode: source, start: stripe * 1536, blocks: 3 }],
                parity: Extent { inode: parity, start: stripe * 1024, blocks: 2 },
                blocks: numbers.into_iter().zip(0..).map(block).collect(),
            };
            Listed {
                file: FileRef { inode: source, held_at: None },
                place: place.map(|(folder, name)| Place { folder, name }),
                phase: Phase::Old,
                start: stripe.start(),
                homes: nodes.into_iter().zip(0..).map(|(node, index)| (index, NodeId(node))).collect(),
                group: Coded::Raid(Arc::new(stripe)),
            }
        }
    }

    fn plain(listed: &Listed, asked: u64) -> PlainRaid {
        let stripe = listed.group.raid().expect("a raided file");
        PlainRaid::of(listed, stripe, 7, Duration::from_secs(asked)).expect("plain")
    }

    proptest! {
        #[test]
        fn stripes_are_decoded_as_they_were(mut all in prop::collection::vec((listed(), 0_u64..3), 1..20)) {
            all.sort_by_key(|(listed, _)| listed.group.number());
            let (mut bytes, mut before) = (Vec::new(), None);
            for (listed, asked) in &all {
                let plain = plain(listed, *asked);
                plain.encode(before.as_ref(), &mut bytes);
                before = Some(plain);
            }
            let (mut rest, mut before) = (&bytes[..], None);
            for (listed, asked) in all {
                let plain = PlainRaid::decode(before.as_ref(), &mut rest);
                let code = Arc::clone(&listed.group.raid().expect("a raided file").code);
                prop_assert_eq!((plain.code(), plain.asked()), (7, Duration::from_secs(asked)));
                prop_assert_eq!(plain.listed(code), listed);
                before = Some(plain);
            }
            prop_assert!(rest.is_empty());
        }
    }

    #[test]
    #[should_panic(expected = "flags 0x80 refer to a stripe before the first")]
    fn flags_without_a_predecessor_are_refused() {
        PlainRaid::decode(None, &mut &[NEXT, 0, 1, 1, 2][..]);
    }

    /// Each stripe follows the previous one, as in a file that was written by one client.
    #[test]
    fn a_stripe_takes_little_more_than_its_datanodes() {
        let (mut bytes, mut before): (Vec<u8>, Option<PlainRaid>) = (Vec::new(), None);
        for stripe in 0..32 {
            let name = |at: u64| match at {
                0..10 => (1 << 30 | (10 * stripe + at), 1001 + 10 * stripe + at),
                _ => (1 << 31 | (4 * stripe + at), 9001 + 4 * stripe + at),
            };
            let plain = PlainRaid {
                code: 0,
                block_bytes: 128 << 20,
                data: 10,
                source: 16_386,
                parity: 17_000,
                place: Some(Place { folder: 7, name: 9 }),
                start: stripe * 10 * (128 << 20),
                parity_start: stripe * 4 * (128 << 20),
                last_bytes: 128 << 20,
                asked: 99,
                blocks: (0..14).map(|at| (name(at), 1000)).collect(),
            };
            plain.encode(before.as_ref(), &mut bytes);
            before = Some(plain);
        }
        assert!(bytes.len() / 32 <= 14 * 2 + 8, "{} bytes for 32 stripes", bytes.len());
    }
}
