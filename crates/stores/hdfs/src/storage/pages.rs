//! [`Pages`]: an ordered map of small records in little memory.
//!
//! Records are kept in pages, sorted by key. In a page, each record is encoded relative to its predecessor, so
//! values that it shares with it take no bytes. Looking up a record decodes a part of a page, and changing one
//! encodes a page again, which takes a few microseconds.

use std::collections::BTreeMap;
use std::fmt::Debug;

/// A page with more records is split.
const MOST: usize = 32;
/// Bits of a number per byte of its encoding.
const BITS: u32 = 7;

/// A record that is encoded relative to its predecessor in the order of keys.
pub(super) trait Record: Sized {
    /// The key.
    type Key: Ord + Copy + Debug;

    /// Returns the record's key.
    fn key(&self) -> Self::Key;

    /// Appends the record to `bytes`.
    fn encode(&self, before: Option<&Self>, bytes: &mut Vec<u8>);

    /// Decodes a record that follows `before` from the beginning of `bytes`.
    fn decode(before: Option<&Self>, bytes: &mut &[u8]) -> Self;
}

/// An ordered map of records.
#[derive(Debug)]
pub(super) struct Pages<R: Record> {
    /// The pages by the keys of their first records.
    pages: BTreeMap<R::Key, Box<[u8]>>,
}

impl<R: Record> Default for Pages<R> {
    fn default() -> Self {
        Self { pages: BTreeMap::new() }
    }
}

impl<R: Record> Pages<R> {
    /// Returns the record with this key.
    pub fn get(&self, key: R::Key) -> Option<R> {
        let (_, page) = self.pages.range(..=key).next_back()?;
        records(page).find(|record: &R| record.key() >= key).filter(|record| record.key() == key)
    }

    /// Returns the last record whose key is not above this one.
    pub fn at_or_before(&self, key: R::Key) -> Option<R> {
        let (_, page) = self.pages.range(..=key).next_back()?;
        records(page).take_while(|record: &R| record.key() <= key).last()
    }

    /// Inserts a record, or replaces the one with the same key.
    pub fn insert(&mut self, record: R) {
        let key = record.key();
        let mut page = self.take_page(key);
        match page.binary_search_by_key(&key, R::key) {
            Ok(at) => page[at] = record,
            Err(at) => page.insert(at, record),
        }
        if page.len() > MOST {
            // Keys usually ascend, so a split in the middle would leave half-empty pages.
            let at = if page.last().is_some_and(|last| last.key() == key) { MOST } else { page.len() / 2 };
            let rest = page.split_off(at);
            self.put_page(&rest);
        }
        self.put_page(&page);
    }

    /// Removes the record with this key.
    pub fn remove(&mut self, key: R::Key) -> Option<R> {
        let mut page = self.take_page(key);
        let at = page.binary_search_by_key(&key, R::key).ok();
        let removed = at.map(|at| page.remove(at));
        self.put_page(&page);
        removed
    }

    /// Returns the records from this key on, in order.
    pub fn from(&self, key: R::Key) -> impl Iterator<Item = R> + '_ {
        let first = self.pages.range(..=key).next_back().map_or(key, |(first, _)| *first);
        let pages = self.pages.range(first..);
        pages.flat_map(|(_, page)| records(page)).skip_while(move |record: &R| record.key() < key)
    }

    /// Returns all records in order.
    pub fn iter(&self) -> impl Iterator<Item = R> + '_ {
        self.pages.values().flat_map(|page| records(page))
    }

    /// Takes out the page in which a record with this key is or would be.
    fn take_page(&mut self, key: R::Key) -> Vec<R> {
        let Some(first) = self.pages.range(..=key).next_back().map(|(first, _)| *first) else {
            // The key is below all others.
            return self.pages.pop_first().map(|(_, page)| records(&page).collect()).unwrap_or_default();
        };
        let page = self.pages.remove(&first).expect("found above");
        records(&page).collect()
    }

    fn put_page(&mut self, page: &[R]) {
        let Some(first) = page.first() else { return };
        let (mut bytes, mut before) = (Vec::new(), None);
        for record in page {
            record.encode(before, &mut bytes);
            before = Some(record);
        }
        self.pages.insert(first.key(), bytes.into_boxed_slice());
    }
}

fn records<R: Record>(page: &[u8]) -> Decoder<'_, R> {
    Decoder { bytes: page, next: None, is_begun: false }
}

/// Decodes a page.
struct Decoder<'a, R> {
    bytes: &'a [u8],
    /// The record that is returned next, decoded ahead because it is needed to decode its successor.
    next: Option<R>,
    is_begun: bool,
}

impl<R: Record> Decoder<'_, R> {
    fn decode_next(&mut self, before: Option<&R>) -> Option<R> {
        (!self.bytes.is_empty()).then(|| R::decode(before, &mut self.bytes))
    }
}

impl<R: Record> Iterator for Decoder<'_, R> {
    type Item = R;

    fn next(&mut self) -> Option<R> {
        if !self.is_begun {
            self.is_begun = true;
            self.next = self.decode_next(None);
        }
        let record = self.next.take()?;
        self.next = self.decode_next(Some(&record));
        Some(record)
    }
}

/// Appends a number, in fewer bytes if it is small.
pub(super) fn put(mut number: u64, bytes: &mut Vec<u8>) {
    while number >> BITS != 0 {
        bytes.push(number as u8 | 1 << BITS);
        number >>= BITS;
    }
    bytes.push(number as u8);
}

/// Reads a number that [`put`] has written.
pub(super) fn get(bytes: &mut &[u8]) -> u64 {
    let (mut number, mut shift) = (0, 0);
    loop {
        let (first, rest) = bytes.split_first().expect("a page ends with a record");
        *bytes = rest;
        number |= u64::from(first & !(1 << BITS)) << shift;
        if first >> BITS == 0 {
            return number;
        }
        shift += BITS;
    }
}

/// Appends the difference between a number and another one, in fewer bytes if they are close.
pub(super) fn put_difference(number: u64, before: u64, bytes: &mut Vec<u8>) {
    let difference = number.wrapping_sub(before) as i64;
    put((difference << 1 ^ difference >> 63) as u64, bytes);
}

/// Reads a number that [`put_difference`] has written.
pub(super) fn get_difference(before: u64, bytes: &mut &[u8]) -> u64 {
    let folded = get(bytes);
    before.wrapping_add(folded >> 1 ^ (folded & 1).wrapping_neg())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug, PartialEq, Eq)]
    struct Pair(u16, u64);

    impl Record for Pair {
        type Key = u16;

        fn key(&self) -> u16 {
            self.0
        }

        fn encode(&self, before: Option<&Self>, bytes: &mut Vec<u8>) {
            put(u64::from(self.0 - before.map_or(0, |before| before.0)), bytes);
            put_difference(self.1, before.map_or(0, |before| before.1), bytes);
        }

        fn decode(before: Option<&Self>, bytes: &mut &[u8]) -> Self {
            let key = get(bytes) as u16 + before.map_or(0, |before| before.0);
            Self(key, get_difference(before.map_or(0, |before| before.1), bytes))
        }
    }

    proptest! {
        #[test]
        fn pages_are_an_ordered_map(changes in prop::collection::vec((0u16..500, any::<Option<u64>>()), 0..1500)) {
            let (mut pages, mut map) = (Pages::<Pair>::default(), BTreeMap::new());
            for (key, value) in changes {
                match value {
                    Some(value) => {
                        pages.insert(Pair(key, value));
                        map.insert(key, value);
                    }
                    None => prop_assert_eq!(pages.remove(key).map(|pair| pair.1), map.remove(&key)),
                }
                prop_assert_eq!(pages.get(key).map(|pair| pair.1), map.get(&key).copied());
            }
            let all: Vec<_> = map.iter().map(|(key, value)| Pair(*key, *value)).collect();
            prop_assert_eq!(pages.iter().collect::<Vec<_>>(), all);
            for key in [0, 100, 250, 499] {
                let rest: Vec<_> = map.range(key..).map(|(key, value)| Pair(*key, *value)).collect();
                prop_assert_eq!(pages.from(key).collect::<Vec<_>>(), rest);
                let last = map.range(..=key).next_back().map(|(key, value)| Pair(*key, *value));
                prop_assert_eq!(pages.at_or_before(key), last);
            }
        }

        #[test]
        fn numbers_round_trip(number: u64, before: u64) {
            let mut bytes = Vec::new();
            put(number, &mut bytes);
            put_difference(number, before, &mut bytes);
            let mut rest = &bytes[..];
            prop_assert_eq!((get(&mut rest), get_difference(before, &mut rest)), (number, number));
            prop_assert!(rest.is_empty());
        }
    }

    #[test]
    fn ascending_keys_fill_pages() {
        let mut pages = Pages::default();
        (0..10 * MOST as u16).for_each(|key| pages.insert(Pair(key, 0)));
        assert_eq!(pages.pages.len(), 10);
    }
}
