//! Azure-LRC and LRC+1: the blocks that local repairs read, and which losses are repaired or refused.

mod stripe;

use codes::{BlockIndex, DecodeError};
use stripe::{Stripe, subsets};

fn reads(name: &str) -> Vec<usize> {
    let stripe = Stripe::named(name);
    (0..stripe.blocks()).map(|lost| stripe.reads_for(lost)).collect()
}

/// Checks how many blocks are read to rebuild each block: `local` for each of the first `locals` blocks of
/// the stripe, `global` for each of the last `globals` blocks.
fn check_reads(name: &str, local: usize, locals: usize, global: usize, globals: usize) {
    let expected = [vec![local; locals], vec![global; globals]].concat();
    assert_eq!(reads(name), expected, "{name}");
}

#[test]
fn single_losses_read_their_group() {
    check_reads("lrc-12-2-2", 6, 14, 12, 2);
    check_reads("lrc-6-2-2", 3, 8, 6, 2);
    check_reads("lrc-10-2-2", 5, 12, 10, 2);
    check_reads("lrc-12-3-2", 4, 15, 12, 2);
    check_reads("lrc-10-2-3", 5, 12, 10, 3);
}

#[test]
fn plus_one_makes_a_group_of_the_globals() {
    check_reads("lrc1-12-2-2", 6, 14, 2, 3);
    check_reads("lrc1-6-2-2", 3, 8, 2, 3);
    check_reads("lrc1-10-2-3", 5, 12, 3, 4);
}

#[test]
fn average_reads_over_the_stripe() {
    for (name, hundredths) in [
        ("lrc-12-2-2", 675),
        ("lrc-6-2-2", 360),
        ("lrc-10-2-2", 571),
        ("lrc-12-3-2", 494),
        ("lrc1-12-2-2", 529),
        ("lrc1-6-2-2", 273),
        ("lrc1-10-2-3", 450),
    ] {
        let reads = reads(name);
        let average = reads.iter().sum::<usize>() as f64 * 100.0 / reads.len() as f64;
        assert_eq!(average.round() as usize, hundredths, "{name}");
    }
}

/// Checks that the repair sets are minimal: no combination of fewer blocks yields a block of (6,2,2).
#[test]
fn repair_sets_are_minimal() {
    let stripe = Stripe::named("lrc-6-2-2");
    for lost in 0..10 {
        let others = stripe.others(&[lost]);
        let reads = stripe.reads_for(lost);
        let fewer = subsets(others.len(), reads - 1);
        assert!(fewer.iter().all(|set| {
            let set: Vec<usize> = set.iter().map(|&position| others[position]).collect();
            stripe.repair(&[lost], &set).is_err()
        }));
    }
}

/// Counts the sets of `size` lost blocks that are repaired correctly. All other sets must be refused as
/// undecodable.
fn repaired(stripe: &Stripe, size: usize) -> usize {
    let k = stripe.code.data_blocks();
    let outcome = |lost: &Vec<usize>| match stripe.repair_lost(lost) {
        Ok(recipe) => {
            assert!(recipe.sources().len() <= k, "{lost:?} reads more than k");
            true
        }
        Err(DecodeError::Undecodable { block, available }) => {
            assert!(lost.contains(&usize::from(block.0)));
            assert_eq!(available, stripe.blocks() - size);
            false
        }
        Err(error) => panic!("{lost:?}: {error}"),
    };
    subsets(stripe.blocks(), size).iter().filter(|lost| outcome(lost)).count()
}

#[test]
fn as_many_losses_are_repaired_as_the_shape_allows() {
    for (name, by_size) in [
        ("lrc-12-2-2", &[16, 120, 560, 1568][..]),
        ("lrc-6-2-2", &[10, 45, 120, 180]),
        ("lrc-10-2-2", &[14, 91, 364, 861]),
        ("lrc-10-2-3", &[15, 105, 455, 1365, 2744]),
        ("lrc1-12-2-2", &[17, 136, 680, 2307]),
        // With the published coefficients of other authors, fewer losses are repairable than with Azure's.
        ("lrc-12-2-2-cauchy", &[16, 120, 560, 1557]),
        ("lrc-6-2-2-cauchy", &[10, 45, 120, 179]),
        ("lrc-10-2-3-cauchy", &[15, 105, 455, 1365]),
        ("lrc-12-2-2-powers", &[16, 120, 554, 1471]),
        ("lrc-6-2-2-powers", &[10, 45, 120, 172]),
        ("lrc-10-2-3-powers", &[15, 105, 455, 1346]),
    ] {
        let stripe = Stripe::named(name);
        for (size, &expected) in (1..).zip(by_size) {
            assert_eq!(repaired(&stripe, size), expected, "{name}, {size} losses");
        }
    }
}

#[test]
fn every_loss_of_one_more_than_the_globals_is_repaired() {
    for name in
        ["lrc-12-3-2", "lrc-4-2-1", "lrc-6-1-2", "lrc-6-6-2", "lrc-9-3-3", "lrc-40-2-2", "lrc1-12-3-2"]
    {
        let stripe = Stripe::named(name);
        let globals =
            name.rsplit('-').next().and_then(|g| g.parse::<usize>().ok()).expect("a name ends in g");
        for lost in subsets(stripe.blocks(), globals + 1) {
            stripe.repair_lost(&lost).unwrap_or_else(|error| panic!("{name} {lost:?}: {error}"));
        }
    }
}

#[test]
fn losses_in_different_groups_are_repaired_locally() {
    let stripe = Stripe::named("lrc-12-2-2");
    let recipe = stripe.repair_lost(&[0, 6]).expect("both groups are intact");
    assert_eq!((recipe.row(0).len(), recipe.row(1).len(), recipe.sources().len()), (6, 6, 12));
    // Blocks 6 and 14 are lost too but not wanted, so they do not widen the repair of block 0.
    let available: Vec<usize> = (1..16).filter(|&block| block != 6 && block != 14).collect();
    assert_eq!(stripe.repair(&[0], &available).expect("its group is intact").sources().len(), 6);
}

#[test]
fn a_broken_group_falls_back_to_all_the_data() {
    let stripe = Stripe::named("lrc-12-2-2");
    let recipe = stripe.repair_lost(&[0, 1]).expect("two globals and a local");
    assert_eq!(recipe.sources().len(), 12);
    let recipe = stripe.repair(&[0], &stripe.others(&[0, 12])).expect("a global");
    assert_eq!(recipe.sources().len(), 12);
    // Block 6 is repaired locally in the same request and adds no reads.
    let recipe = stripe.repair_lost(&[0, 1, 6]).expect("decodable");
    assert_eq!(recipe.sources().len(), 12);
}

#[test]
fn wanted_blocks_are_read_even_if_they_add_nothing() {
    let stripe = Stripe::named("lrc-12-2-2");
    let whole_group = [6, 7, 8, 9, 10, 11, 13];
    let wanted = [&[0, 1][..], &whole_group].concat();
    let recipe = stripe.repair(&wanted, &stripe.others(&[0, 1])).expect("decodable");
    assert_eq!(recipe.sources().len(), 12 + 1, "local parity 13 is the sum of its group");
}

#[test]
fn the_fallback_follows_preference() {
    let stripe = Stripe::named("lrc-12-2-2");
    let mut order = stripe.others(&[0, 12]);
    order.reverse();
    let recipe = stripe.repair(&[0], &order).expect("decodable");
    let read: Vec<u16> = recipe.sources().iter().map(|source| source.block.0).collect();
    // Local parity 13 and the data of its group are dependent, so data block 6 is not needed.
    assert_eq!(read, [15, 14, 13, 11, 10, 9, 8, 7, 5, 4, 3, 2]);
}

#[test]
fn few_blocks_are_enough_for_a_group_and_too_few_beyond() {
    let stripe = Stripe::named("lrc-12-2-2");
    stripe.repair(&[0], &[1, 2, 3, 4, 5, 12]).expect("its group");
    assert_eq!(
        stripe.repair(&[0], &[1, 2, 3, 4, 12, 14]).expect_err("its group lacks one"),
        DecodeError::NotEnoughBlocks { needed: 12, available: 6 }
    );
    let lost = [0, 1, 2, 3];
    assert_eq!(
        stripe.repair_lost(&lost).expect_err("one group, three equations"),
        DecodeError::Undecodable { block: BlockIndex(0), available: 12 }
    );
}
