//! The blocks that this helper read or wrote lately, and which of them are in memory: PPR's cache of chunks
//! (section 6.3) without a copy of the bytes. The operating system's page cache holds the bytes; this list
//! bounds the blocks that are looked up there.
//!
//! At each heartbeat, the blocks that were examined longest ago are examined again: a few bytes at places
//! spread over a block are read without waiting for the disk. The places differ from one examination to the
//! next, because a read makes the kernel keep a page for longer.
//!
//! The list outlives connections to the coordinator. After a reconnection, the coordinator is told everything again.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use codes::BlockIndex;
use repair::wire::control::{BlockHeat, HEAT_BYTES};
use repair::{BlockId, Heat, LocalBlock};
use store_api::{BlockReader, Sources};

/// The maximum number of blocks on the list. The one used longest ago leaves it first.
const MOST_BLOCKS: usize = 1024;
/// The maximum number of blocks examined at one heartbeat.
const EXAMINED_AT_ONCE: usize = 32;
/// The number of places at which a block is examined, as a power of two.
const PLACES_LOG2: u32 = 3;
const PLACES: usize = 1 << PLACES_LOG2;
/// A block that has been in memory stays so until fewer places than this are.
const PLACES_KEPT: usize = PLACES / 2;
/// A block is very hot if clients began this many reads of it within the last [`VERY_HOT_WITHIN`].
const VERY_HOT_READS: usize = 8;
const VERY_HOT_WITHIN: Duration = Duration::from_secs(60);
/// 2³² divided by the golden ratio. Its multiples modulo 2³² spread evenly.
const GOLDEN: u32 = 0x9e37_79b9;

/// The list of recently used blocks; cheap to clone, and all clones share the list.
#[derive(Clone, Debug, Default)]
pub(crate) struct RecentBlocks(Arc<Mutex<List>>);

/// The blocks that the coordinator was told of in one connection and that are not cold.
pub(crate) type Told = BTreeMap<BlockId, Heat>;

#[derive(Debug, Default)]
struct List {
    blocks: BTreeMap<BlockId, Recent>,
    /// The number of uses so far; the last use of each block.
    uses: u64,
    by_use: BTreeMap<u64, BlockId>,
    /// The number of examinations so far; the last one of each block, 0 before the first.
    examinations: u64,
    by_examination: BTreeSet<(u64, BlockId)>,
}

#[derive(Debug)]
struct Recent {
    used: u64,
    examined: u64,
    is_in_memory: bool,
    /// When clients began their last reads of the block, at most `VERY_HOT_READS` of them.
    reads: VecDeque<Instant>,
}

impl RecentBlocks {
    /// Records a use of a block. Reads for clients count towards its heat.
    pub(crate) fn touch(&self, block: &BlockId, by_client: bool, now: Instant) {
        self.list().touch(block, by_client, now);
    }

    /// Examines the blocks that are due. Opening a block may wait for its metadata; reading its bytes never
    /// waits.
    pub(crate) fn examine(&self, sources: &dyn Sources) {
        let due = self.list().due(EXAMINED_AT_ONCE);
        for (block, examination) in due {
            let found = places_in_memory(sources, &block, examination);
            self.list().note(&block, found);
        }
    }

    /// Returns the changes since the coordinator was last told, as many as fit into one message, and notes
    /// them as told.
    pub(crate) fn changes(&self, told: &mut Told, now: Instant) -> Vec<BlockHeat> {
        let mut changes = self.list().changes(told, now);
        let mut room = HEAT_BYTES;
        let fits = |change: &BlockHeat| match room.checked_sub(change.most_bytes()) {
            Some(left) => {
                room = left;
                true
            }
            None => false,
        };
        changes = changes.into_iter().take_while(fits).collect();
        for BlockHeat { id, heat } in &changes {
            match heat {
                Heat::Cold => told.remove(id),
                heat => told.insert(id.clone(), *heat),
            };
        }
        changes
    }

    fn list(&self) -> MutexGuard<'_, List> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl List {
    fn touch(&mut self, block: &BlockId, by_client: bool, now: Instant) {
        self.uses += 1;
        let mut recent = self.take(block).unwrap_or_else(Recent::new);
        recent.used = self.uses;
        if by_client {
            recent.note_read(now);
        }
        self.put(block.clone(), recent);
        while self.blocks.len() > MOST_BLOCKS {
            let oldest = self.by_use.values().next().expect("every block was used").clone();
            self.take(&oldest);
        }
    }

    /// Returns the blocks examined longest ago, each with the number of its next examination.
    fn due(&mut self, most: usize) -> Vec<(BlockId, u64)> {
        let due: Vec<BlockId> =
            self.by_examination.iter().take(most).map(|(_, block)| block.clone()).collect();
        let numbered = |block: BlockId| {
            self.examinations += 1;
            (block, self.examinations)
        };
        let due: Vec<(BlockId, u64)> = due.into_iter().map(numbered).collect();
        for (block, examination) in &due {
            let mut recent = self.take(block).expect("a block that is due is on the list");
            recent.examined = *examination;
            self.put(block.clone(), recent);
        }
        due
    }

    /// Records at how many places a block is in memory; `None` if it cannot be opened. A block that left the
    /// list meanwhile stays off it.
    fn note(&mut self, block: &BlockId, found: Option<usize>) {
        match found {
            None => drop(self.take(block)),
            Some(places) => {
                self.blocks.get_mut(block).into_iter().for_each(|recent| recent.note_places(places));
            }
        }
    }

    fn changes(&self, told: &Told, now: Instant) -> Vec<BlockHeat> {
        let gone = told.keys().filter(|block| !self.blocks.contains_key(*block));
        let gone = gone.map(|block| BlockHeat { id: block.clone(), heat: Heat::Cold });
        let differs = |(block, recent): (&BlockId, &Recent)| {
            let (heat, before) = (recent.heat(now), told.get(block).copied().unwrap_or_default());
            (heat != before).then(|| BlockHeat { id: block.clone(), heat })
        };
        gone.chain(self.blocks.iter().filter_map(differs)).collect()
    }

    /// Removes a block from the list and its orders.
    fn take(&mut self, block: &BlockId) -> Option<Recent> {
        let recent = self.blocks.remove(block)?;
        self.by_use.remove(&recent.used);
        self.by_examination.remove(&(recent.examined, block.clone()));
        Some(recent)
    }

    fn put(&mut self, block: BlockId, recent: Recent) {
        self.by_use.insert(recent.used, block.clone());
        self.by_examination.insert((recent.examined, block.clone()));
        self.blocks.insert(block, recent);
    }
}

impl Recent {
    fn new() -> Self {
        Self { used: 0, examined: 0, is_in_memory: false, reads: VecDeque::new() }
    }

    fn note_read(&mut self, now: Instant) {
        if self.reads.len() == VERY_HOT_READS {
            self.reads.pop_front();
        }
        self.reads.push_back(now);
    }

    fn note_places(&mut self, places: usize) {
        let needed = if self.is_in_memory { PLACES_KEPT } else { PLACES };
        self.is_in_memory = places >= needed;
    }

    fn heat(&self, now: Instant) -> Heat {
        let is_read_often = self.reads.len() == VERY_HOT_READS
            && self.reads.front().is_some_and(|&first| now.duration_since(first) < VERY_HOT_WITHIN);
        match (is_read_often, self.is_in_memory) {
            (true, _) => Heat::VeryHot,
            (false, true) => Heat::Hot,
            (false, false) => Heat::Cold,
        }
    }
}

/// Returns at how many places a block is in memory; `None` if it cannot be opened.
fn places_in_memory(sources: &dyn Sources, block: &BlockId, examination: u64) -> Option<usize> {
    let any = LocalBlock { index: BlockIndex(0), id: block.clone(), bytes: 0, digest: None };
    let reader = sources.open(&any).ok()?;
    let places = places(reader.bytes(), examination).into_iter();
    Some(places.filter(|&offset| is_cached(&*reader, offset)).count())
}

/// Whether a byte is in memory. A byte that differs from its checksum is not: the read that follows reports it.
fn is_cached(reader: &dyn BlockReader, offset: u64) -> bool {
    offset < reader.bytes() && reader.read_if_cached(offset, &mut [0]).unwrap_or(false)
}

/// Returns offsets spread evenly over a block. Each examination has others.
fn places(bytes: u64, examination: u64) -> [u64; PLACES] {
    let phase = (examination as u32).wrapping_mul(GOLDEN);
    std::array::from_fn(|place| {
        let part = ((place as u128) << 32) | u128::from(phase);
        ((part * u128::from(bytes)) >> (32 + PLACES_LOG2)) as u64
    })
}

#[cfg(test)]
mod tests {
    use store_api::BlockError;

    use super::*;

    fn block(number: usize) -> BlockId {
        BlockId(format!("{number:04}.0"))
    }

    fn changes(list: &List, told: &Told, now: Instant) -> Vec<(String, Heat)> {
        list.changes(told, now).into_iter().map(|change| (change.id.0, change.heat)).collect()
    }

    #[test]
    fn the_block_used_longest_ago_leaves_the_list() {
        let (mut list, now) = (List::default(), Instant::now());
        (0..MOST_BLOCKS).for_each(|number| list.touch(&block(number), false, now));
        list.touch(&block(0), false, now);
        list.touch(&block(MOST_BLOCKS), false, now);
        assert!(list.blocks.contains_key(&block(0)) && !list.blocks.contains_key(&block(1)));
        let lengths = [list.blocks.len(), list.by_use.len(), list.by_examination.len()];
        assert_eq!(lengths, [MOST_BLOCKS; 3]);
    }

    #[test]
    fn new_blocks_are_examined_first_and_all_in_turn() {
        let (mut list, now) = (List::default(), Instant::now());
        let due =
            |list: &mut List| -> Vec<BlockId> { list.due(2).into_iter().map(|(block, _)| block).collect() };
        (0..3).for_each(|number| list.touch(&block(number), false, now));
        assert_eq!(due(&mut list), [block(0), block(1)]);
        list.touch(&block(9), false, now);
        assert_eq!(due(&mut list), [block(2), block(9)]);
        list.touch(&block(0), false, now);
        assert_eq!(due(&mut list), [block(0), block(1)], "another use does not delay or hasten it");
    }

    #[test]
    fn a_block_stays_hot_until_most_of_it_has_left_the_memory() {
        let (mut list, now) = (List::default(), Instant::now());
        list.touch(&block(1), false, now);
        let heat_with = |list: &mut List, found| {
            list.note(&block(1), found);
            list.blocks.get(&block(1)).map(|recent| recent.heat(now))
        };
        assert_eq!(heat_with(&mut list, Some(PLACES - 1)), Some(Heat::Cold));
        assert_eq!(heat_with(&mut list, Some(PLACES)), Some(Heat::Hot));
        assert_eq!(heat_with(&mut list, Some(PLACES_KEPT)), Some(Heat::Hot));
        assert_eq!(heat_with(&mut list, Some(PLACES_KEPT - 1)), Some(Heat::Cold));
        assert_eq!(heat_with(&mut list, Some(PLACES - 1)), Some(Heat::Cold));
        assert_eq!(heat_with(&mut list, None), None, "it was removed from the disk");
        assert_eq!(heat_with(&mut list, Some(PLACES)), None, "the answer came too late");
    }

    #[test]
    fn a_block_that_clients_read_often_is_very_hot_for_a_while() {
        let (mut list, start) = (List::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        (0..VERY_HOT_READS as u64 - 1).for_each(|second| list.touch(&block(1), true, at(second)));
        (0..99).for_each(|_| list.touch(&block(2), false, start));
        assert!(changes(&list, &Told::new(), at(7)).is_empty(), "seven reads, and many by repairs");
        list.touch(&block(1), true, at(7));
        assert_eq!(changes(&list, &Told::new(), at(59)), [("0001.0".to_owned(), Heat::VeryHot)]);
        let told = Told::from([(block(1), Heat::VeryHot)]);
        assert_eq!(changes(&list, &told, at(60)), [("0001.0".to_owned(), Heat::Cold)]);
        list.note(&block(1), Some(PLACES));
        assert_eq!(changes(&list, &told, at(60)), [("0001.0".to_owned(), Heat::Hot)]);
    }

    #[test]
    fn only_changes_are_told_and_no_more_than_fit_into_a_message() {
        let (recent, mut told, now) = (RecentBlocks::default(), Told::new(), Instant::now());
        let name = |number: usize| BlockId(format!("{number:04}{}", "x".repeat(200)));
        for number in 0..90 {
            recent.touch(&name(number), false, now);
            recent.list().note(&name(number), Some(PLACES));
        }
        let first = recent.changes(&mut told, now).len();
        assert_eq!(first, HEAT_BYTES / (6 * 204 + 40));
        assert_eq!(recent.changes(&mut told, now).len(), 90 - first);
        assert!(recent.changes(&mut told, now).is_empty());
        recent.list().note(&name(3), None);
        let gone = BlockHeat { id: name(3), heat: Heat::Cold };
        assert_eq!(recent.changes(&mut told, now), [gone]);
        assert_eq!(told.len(), 89);
    }

    #[test]
    fn places_are_spread_over_the_block_and_move() {
        for bytes in [1, 7, 8, 4096, 64 << 20, u64::from(u32::MAX) << 20] {
            for examination in [1, 2, u64::MAX] {
                let places = places(bytes, examination);
                assert!(places.is_sorted() && places[PLACES - 1] < bytes, "{bytes}: {places:?}");
                assert!(places[0] <= bytes / PLACES as u64, "{bytes}: {places:?}");
            }
        }
        assert_ne!(places(64 << 20, 1), places(64 << 20, 2));
    }

    /// A store with one block, of which the first bytes are in memory.
    struct Partly {
        cached_bytes: u64,
    }

    impl BlockReader for Partly {
        fn bytes(&self) -> u64 {
            800
        }

        fn read_at(&self, _: u64, _: &mut [u8]) -> Result<(), BlockError> {
            unreachable!("an examination never waits for the disk")
        }

        fn read_if_cached(&self, offset: u64, _: &mut [u8]) -> Result<bool, BlockError> {
            Ok(offset < self.cached_bytes)
        }

        fn digest(&self) -> Option<repair::Digest> {
            None
        }
    }

    impl Sources for Partly {
        fn open(&self, asked: &LocalBlock) -> Result<Arc<dyn BlockReader>, BlockError> {
            match asked.id == block(1) {
                true => Ok(Arc::new(Self { cached_bytes: self.cached_bytes })),
                false => Err(BlockError::BadName(asked.id.0.clone())),
            }
        }
    }

    #[test]
    fn an_examination_tells_blocks_in_memory_from_others() {
        let (recent, now) = (RecentBlocks::default(), Instant::now());
        [1, 2].into_iter().for_each(|number| recent.touch(&block(number), false, now));
        let heat_with = |cached_bytes| {
            recent.examine(&Partly { cached_bytes });
            changes(&recent.list(), &Told::new(), now)
        };
        assert!(heat_with(700).is_empty());
        assert_eq!(heat_with(800), [("0001.0".to_owned(), Heat::Hot)]);
        assert_eq!(heat_with(600), [("0001.0".to_owned(), Heat::Hot)]);
        assert!(heat_with(300).is_empty());
        assert_eq!(recent.list().blocks.len(), 1, "there is no other block");
    }
}
