//! Tests with encoded stripes in which blocks are forged, exchanged and unread.

use codes::CodeSpec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

use super::*;
use crate::Fingerprinter;

const CODES: [&str; 12] = [
    "rs-5-3",
    "rs-14-10",
    "rs-9-6-jerasure",
    "hitchhiker-xor-9-6",
    "hitchhiker-xorplus-9-6",
    "rotated-8-6-2",
    "clay-6-4-5",
    "less-7-4-2",
    "lrc-6-2-2",
    "lrc1-4-2-2",
    "ceph-shec-4-3-2",
    "ceph-lrc-4-2-3",
];
const SUB_BLOCK_BYTES: usize = 24;

type Contents = BTreeMap<BlockIndex, Vec<Vec<u8>>>;

/// Encodes a stripe of random data.
fn encoded(code: &dyn Code, seed: u64) -> Contents {
    use rand_chacha::rand_core::{Rng, SeedableRng};
    let mut random = rand_chacha::ChaCha8Rng::seed_from_u64(seed);
    let mut sub_block = || (0..SUB_BLOCK_BYTES).map(|_| random.next_u32() as u8).collect::<Vec<u8>>();
    let data = (0..code.data_blocks() as u16).map(BlockIndex);
    let mut contents: Contents =
        data.map(|block| (block, (0..code.sub_blocks()).map(|_| sub_block()).collect())).collect();
    let sources = code.encoding().sources().iter();
    let sources: Vec<&[u8]> =
        sources.map(|source| &contents[&source.block][usize::from(source.sub)][..]).collect();
    let parity = code.encoding().apply(&sources);
    for (index, sub_blocks) in (code.data_blocks() as u16..).zip(parity.chunks(code.sub_blocks())) {
        contents.insert(BlockIndex(index), sub_blocks.to_vec());
    }
    contents
}

fn fingerprints(contents: &Contents) -> BTreeMap<BlockIndex, Vec<Fingerprint>> {
    let fingerprint = |bytes: &Vec<u8>| {
        let mut fingerprinter = Fingerprinter::new(11);
        fingerprinter.update(bytes);
        fingerprinter.finish()
    };
    contents.iter().map(|(&block, subs)| (block, subs.iter().map(fingerprint).collect())).collect()
}

fn judge(code: &dyn Code, contents: &Contents) -> StripeParity {
    stripe_parity(code, &fingerprints(contents))
}

/// Judges a stripe within a limit. Returns the verdict and the work that it took.
fn judge_in(code: &dyn Code, contents: &Contents, limit: u64) -> (StripeParity, u64) {
    let mut budget = Budget(limit);
    let verdict = judge_within(code, &fingerprints(contents), &mut budget);
    (verdict, limit - budget.0)
}

/// The verdict on a stripe whose equations fail, without a limit. Eliminates the unread blocks again for each pair and
/// for each set of blocks.
fn slow_verdict(code: &dyn Code, read: &BTreeMap<BlockIndex, Vec<Fingerprint>>) -> StripeParity {
    let (known, absent): (Vec<BlockIndex>, _) = (read.keys().copied().collect(), unread(code, read));
    let is_swap = |pair: &Vec<BlockIndex>| {
        let mut swapped = read.clone();
        swapped.insert(pair[0], read[&pair[1]].clone());
        swapped.insert(pair[1], read[&pair[0]].clone());
        Equations::new(code, syndromes(code, &swapped)).without(&absent).hold
    };
    let exchanged: BTreeSet<BlockIndex> =
        subsets_of(&known, 2).into_iter().filter(is_swap).flatten().collect();
    if !exchanged.is_empty() {
        return StripeParity::Contradictory(exchanged);
    }
    let equations = Equations::new(code, syndromes(code, read));
    let left = |wrong: &Vec<BlockIndex>| equations.without(&[&absent[..], wrong].concat());
    let explains = |wrong: &Vec<BlockIndex>| left(wrong).equations == 0 || left(wrong).hold;
    for size in 1..known.len() {
        let found: Vec<_> = subsets_of(&known, size).into_iter().filter(explains).collect();
        match &found[..] {
            [] => {}
            [wrong] if left(wrong).equations > 0 => {
                return StripeParity::Wrong(wrong.iter().copied().collect());
            }
            several => return StripeParity::Contradictory(several.iter().flatten().copied().collect()),
        }
    }
    StripeParity::Contradictory(known.into_iter().collect())
}

fn subsets_of(blocks: &[BlockIndex], size: usize) -> Vec<Vec<BlockIndex>> {
    let subsets = Subsets::new(blocks.len(), size);
    subsets.map(|subset| subset.into_iter().map(|at| blocks[at]).collect()).collect()
}

fn code(spec: &str) -> std::sync::Arc<dyn Code> {
    spec.parse::<CodeSpec>().unwrap().build().unwrap()
}

/// Replaces a block's contents by other data.
fn forge(contents: &mut Contents, block: BlockIndex) {
    let other = encoded(&*code("rs-3-2"), u64::from(block.0)).remove(&BlockIndex(0)).unwrap();
    for sub_block in contents.get_mut(&block).unwrap() {
        sub_block.iter_mut().zip(&other[0]).for_each(|(byte, other)| *byte ^= other);
    }
}

fn exchange(contents: &mut Contents, [one, other]: [BlockIndex; 2]) {
    let (first, second) = (contents[&one].clone(), contents[&other].clone());
    contents.insert(one, second);
    contents.insert(other, first);
}

fn set(blocks: &[u16]) -> BTreeSet<BlockIndex> {
    blocks.iter().copied().map(BlockIndex).collect()
}

proptest! {
    /// A correct stripe is never accused. A single wrong block is always detected if a remaining equation
    /// involves it, and no other block is named in its place.
    #[test]
    fn one_wrong_block_is_found_and_no_other_is_named(
        spec in select(&CODES[..]),
        absent in prop::collection::vec(any::<Index>(), 0..4),
        liar in any::<Index>(),
        seed in any::<u64>(),
    ) {
        let code = code(spec);
        let mut contents = encoded(&*code, seed);
        for index in absent {
            contents.remove(&BlockIndex(index.index(code.blocks()) as u16));
        }
        let unproven = match judge(&*code, &contents) {
            StripeParity::Holds { unproven } => unproven,
            StripeParity::Unknown => return Ok(()),
            accused => return Err(TestCaseError::fail(format!("{accused:?} of a good stripe"))),
        };
        let known: Vec<BlockIndex> = contents.keys().copied().collect();
        let liar = *liar.get(&known);
        forge(&mut contents, liar);
        match judge(&*code, &contents) {
            StripeParity::Wrong(named) => prop_assert_eq!(named, BTreeSet::from([liar])),
            StripeParity::Contradictory(blocks) => prop_assert!(blocks.contains(&liar), "{:?}", blocks),
            StripeParity::Holds { .. } => prop_assert!(unproven.contains(&liar), "{:?} of {}", liar, spec),
            StripeParity::Unknown => prop_assert!(false, "equations do not vanish"),
        }
    }
}

proptest! {
    #[test]
    fn the_verdict_on_a_bad_stripe_is_that_of_a_slow_search(
        spec in select(&CODES[..]),
        absent in prop::collection::vec(any::<Index>(), 0..4),
        liars in prop::collection::vec(any::<Index>(), 0..4),
        exchanged in prop::option::of(any::<(Index, Index)>()),
        seed in any::<u64>(),
    ) {
        let code = code(spec);
        let mut contents = encoded(&*code, seed);
        for index in absent {
            contents.remove(&BlockIndex(index.index(code.blocks()) as u16));
        }
        let known: Vec<BlockIndex> = contents.keys().copied().collect();
        for liar in liars {
            forge(&mut contents, *liar.get(&known));
        }
        if let Some((one, other)) = exchanged {
            exchange(&mut contents, [*one.get(&known), *other.get(&known)]);
        }
        let read = fingerprints(&contents);
        let found = stripe_parity(&*code, &read);
        let is_bad = matches!(found, StripeParity::Wrong(_) | StripeParity::Contradictory(_));
        prop_assert_eq!(is_consistent(&*code, &read), !is_bad);
        if is_bad {
            prop_assert_eq!(found, slow_verdict(&*code, &read), "{}", spec);
        }
    }
}

/// Each pair of blocks is tested on few of the equations that remain without the unread block.
#[test]
fn an_unread_block_is_eliminated_once_and_not_for_each_pair() {
    let code = code("rs-120-100");
    let mut contents = encoded(&*code, 7);
    contents.remove(&BlockIndex(3));
    forge(&mut contents, BlockIndex(60));
    let (verdict, work) = judge_in(&*code, &contents, SEARCH_WORK);
    assert_eq!(verdict, StripeParity::Wrong(set(&[60])));
    let pairs = 119 * 118 / 2;
    assert!(work < pairs * 6 * FINGERPRINT_BYTES as u64, "{work} operations");
}

/// The search needs less than its limit, although the code has 256 sub-blocks.
#[test]
fn a_wrong_block_of_a_clay_code_is_named_although_another_is_unread() {
    let code = code("clay-14-10-13");
    let mut contents = encoded(&*code, 7);
    contents.remove(&BlockIndex(12));
    forge(&mut contents, BlockIndex(4));
    assert_eq!(judge(&*code, &contents), StripeParity::Wrong(set(&[4])));
}

#[test]
fn a_search_that_reaches_its_limit_names_no_block() {
    let code = code("rs-14-10");
    let whole = encoded(&*code, 7);
    let mut forged = whole.clone();
    forge(&mut forged, BlockIndex(4));
    let mut exchanged = whole;
    exchange(&mut exchanged, [2, 5].map(BlockIndex));
    for (mut contents, named) in
        [(forged, StripeParity::Wrong(set(&[4]))), (exchanged, StripeParity::Contradictory(set(&[2, 5])))]
    {
        for is_whole in [true, false] {
            if !is_whole {
                contents.remove(&BlockIndex(9));
            }
            let (verdict, work) = judge_in(&*code, &contents, SEARCH_WORK);
            assert_eq!(verdict, named);
            assert_eq!(judge_in(&*code, &contents, work).0, named);
            let all = StripeParity::Contradictory(contents.keys().copied().collect());
            for limit in [0, work / 2, work - 1] {
                let (verdict, spent) = judge_in(&*code, &contents, limit);
                assert_eq!(verdict, all);
                assert!(spent <= limit, "{spent} of {limit}");
            }
        }
    }
}

#[test]
fn naming_a_wrong_block_takes_two_spare_equations() {
    for spec in ["rs-6-4", "clay-6-4-5", "hitchhiker-xor-9-6"] {
        let code = code(spec);
        let mut contents = encoded(&*code, 3);
        forge(&mut contents, BlockIndex(1));
        let spare = code.blocks() - code.data_blocks();
        assert_eq!(judge(&*code, &contents), StripeParity::Wrong(set(&[1])), "{spec}");
        for lost in 0..spare - 1 {
            contents.remove(&BlockIndex(3 + lost as u16));
        }
        let all: BTreeSet<BlockIndex> = contents.keys().copied().collect();
        assert_eq!(judge(&*code, &contents), StripeParity::Contradictory(all), "{spec}");
        contents.remove(&BlockIndex(0));
        assert_eq!(judge(&*code, &contents), StripeParity::Unknown, "{spec}");
    }
}

#[test]
fn several_wrong_blocks_are_named_while_an_equation_is_spare() {
    let code = code("rs-14-10");
    let mut contents = encoded(&*code, 5);
    let mut wrong = BTreeSet::new();
    for (block, is_named) in [(2, true), (7, true), (12, true), (13, false)] {
        forge(&mut contents, BlockIndex(block));
        wrong.insert(BlockIndex(block));
        match judge(&*code, &contents) {
            StripeParity::Wrong(named) => assert!(is_named && named == wrong, "{named:?} of {wrong:?}"),
            StripeParity::Contradictory(blocks) => assert!(!is_named && blocks.is_superset(&wrong)),
            other => panic!("{other:?}"),
        }
    }
}

/// Identical changes in several blocks leave less evidence to tell the blocks apart, so no block is
/// named.
#[test]
fn dependent_changes_never_name_an_innocent_block() {
    let code = code("rs-14-10");
    let mut contents = encoded(&*code, 5);
    for block in [2, 7, 12] {
        contents.get_mut(&BlockIndex(block)).unwrap()[0][5] ^= 1;
    }
    let found = judge(&*code, &contents);
    let StripeParity::Contradictory(blocks) = found else { panic!("{found:?}") };
    assert!(blocks.is_superset(&set(&[2, 7, 12])), "{blocks:?}");
}

/// After a swap all blocks of the stripe still exist, only in the wrong order. A third block must not be
/// named as wrong, because it would then be rebuilt for nothing.
#[test]
fn a_swap_of_two_blocks_names_no_third_block() {
    for spec in CODES {
        let code = code(spec);
        let contents = encoded(&*code, 13);
        for pair in Subsets::new(code.blocks(), 2) {
            let pair = [pair[0] as u16, pair[1] as u16].map(BlockIndex);
            let mut exchanged = contents.clone();
            exchange(&mut exchanged, pair);
            match judge(&*code, &exchanged) {
                StripeParity::Contradictory(blocks) => {
                    assert!(pair.iter().all(|block| blocks.contains(block)), "{spec}: {blocks:?}, {pair:?}");
                }
                StripeParity::Holds { .. } => {
                    assert_eq!(contents[&pair[0]], contents[&pair[1]], "{spec}")
                }
                other => panic!("{spec}: {other:?} of {pair:?}"),
            }
        }
    }
}

#[test]
fn an_equation_of_a_local_group_accuses_the_group() {
    let code = code("lrc-6-2-2");
    let mut contents = encoded(&*code, 9);
    forge(&mut contents, BlockIndex(4));
    assert_eq!(judge(&*code, &contents), StripeParity::Wrong(set(&[4])));
    // Without the global parities only the group's own equation involves the block.
    contents.remove(&BlockIndex(8));
    contents.remove(&BlockIndex(9));
    let StripeParity::Contradictory(accused) = judge(&*code, &contents) else {
        panic!("it is one of a group")
    };
    assert!(accused.contains(&BlockIndex(4)) && accused.len() == 4, "{accused:?}");
}

#[test]
fn all_subsets_come_once() {
    let all: Vec<Vec<usize>> = Subsets::new(4, 2).collect();
    assert_eq!(all, [[0, 1], [0, 2], [0, 3], [1, 2], [1, 3], [2, 3]]);
    assert_eq!(Subsets::new(3, 3).count(), 1);
    assert_eq!(Subsets::new(2, 3).count(), 0);
}
