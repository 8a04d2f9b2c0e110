//! Hitchhiker: the half blocks that each repair reads, and decoding from any k blocks.

mod stripe;

use codes::{CodeSpec, DecodeError, HitchhikerVariant};
use proptest::prelude::*;
use stripe::{Stripe, subsets};

/// Returns one stripe for each variant that exists with these numbers of blocks.
fn stripes(n: usize, k: usize) -> impl Iterator<Item = Stripe> {
    HitchhikerVariant::ALL
        .into_iter()
        .map(move |variant| CodeSpec::Hitchhiker { variant, n, k })
        .filter(|spec| spec.check().is_ok())
        .map(|spec| Stripe::of(&spec))
}

/// Checks how many half blocks are read to rebuild each block: `data[i]` for data block i, 2k for a parity
/// block.
fn check_reads(name: &str, data: &[usize]) {
    let stripe = Stripe::named(name);
    let parities = stripe.blocks() - data.len();
    let expected = [data, &vec![2 * data.len(); parities]].concat();
    let reads: Vec<usize> = (0..stripe.blocks()).map(|lost| stripe.reads_for(lost)).collect();
    assert_eq!(reads, expected, "{name}");
}

#[test]
fn a_data_block_reads_half_of_most_blocks() {
    check_reads("hitchhiker-xor-14-10", &[13, 13, 13, 13, 13, 13, 14, 14, 14, 14]);
    check_reads("hitchhiker-xor-16-12", &[16; 12]);
    check_reads("hitchhiker-xor-9-6", &[9; 6]);
    check_reads("hitchhiker-xor-11-8", &[12; 8]);
    check_reads("hitchhiker-xor-6-4", &[8; 4]);
    for variant in ["xorplus", "nonxor"] {
        check_reads(&format!("hitchhiker-{variant}-14-10"), &[13; 10]);
        check_reads(
            &format!("hitchhiker-{variant}-16-12"),
            &[15, 15, 15, 16, 16, 16, 16, 16, 16, 16, 16, 15],
        );
        check_reads(&format!("hitchhiker-{variant}-9-6"), &[8, 8, 9, 9, 9, 8]);
        check_reads(&format!("hitchhiker-{variant}-11-8"), &[11, 11, 11, 12, 12, 12, 12, 10]);
        check_reads(&format!("hitchhiker-{variant}-6-4"), &[7, 7, 7, 5]);
    }
}

/// Hadoop's groups have the same size, except the last, which also takes the remainder.
#[test]
fn hadoop_puts_the_remainder_into_the_last_group() {
    check_reads("hitchhiker-xor-12-8-hadoop", &[10, 10, 10, 10, 12, 12, 12, 12]);
    check_reads("hitchhiker-xor-15-11-hadoop", &[14, 14, 14, 14, 14, 14, 16, 16, 16, 16, 16]);
    check_reads("hitchhiker-xor-15-10-hadoop", &[12, 12, 12, 12, 12, 12, 14, 14, 14, 14]);
    // With a remainder of one, Hadoop's variant and XOR are the same code.
    let [ours, hadoop] = ["hitchhiker-xor-14-10", "hitchhiker-xor-14-10-hadoop"].map(Stripe::named);
    assert_eq!(ours.code.encoding(), hadoop.code.encoding());
}

#[test]
fn parameters_on_which_hadoop_fails_are_refused() {
    for (name, is_taken) in [
        ("hitchhiker-xor-5-3-hadoop", true),
        ("hitchhiker-xor-14-9-hadoop", true),
        ("hitchhiker-xor-12-7-hadoop", false),
        ("hitchhiker-xor-8-3-hadoop", false),
    ] {
        assert_eq!(name.parse::<CodeSpec>().is_ok(), is_taken, "{name}");
    }
}

/// Checks how much the repair of a data block reads on average, in thousandths of the reads of plain
/// Reed-Solomon.
#[test]
fn average_fraction_of_reed_solomon() {
    for (name, thousandths) in [
        ("hitchhiker-xor-14-10", 670),
        ("hitchhiker-xorplus-14-10", 650),
        ("hitchhiker-nonxor-14-10", 650),
        ("hitchhiker-xor-16-12", 667),
        ("hitchhiker-xorplus-16-12", 653),
        ("hitchhiker-xor-9-6", 750),
        ("hitchhiker-xorplus-9-6", 708),
        ("hitchhiker-xor-11-8", 750),
        ("hitchhiker-xorplus-11-8", 711),
        ("hitchhiker-xor-6-4", 1000),
        ("hitchhiker-xorplus-6-4", 813),
        ("hitchhiker-xor-15-10", 630),
        ("hitchhiker-xor-21-14", 587),
    ] {
        let stripe = Stripe::named(name);
        let k = stripe.code.data_blocks();
        let reads: usize = (0..k).map(|lost| stripe.reads_for(lost)).sum();
        let fraction = reads as f64 / (2 * k * k) as f64;
        assert_eq!((fraction * 1000.0).round() as usize, thousandths, "{name}");
    }
}

/// Each half of a block is contiguous (a hop of half a block), so a repair reads half a block in one piece.
#[test]
fn half_blocks_are_first_or_second_halves() {
    let stripe = Stripe::named("hitchhiker-xorplus-14-10");
    let recipe = stripe.repair_lost(&[0]).expect("a single loss");
    let second_halves = recipe.sources().iter().filter(|source| source.sub == 1).count();
    // The repair reads the b halves of nine data blocks and two parity blocks, and the a halves of the two
    // other members of block 0's group.
    assert_eq!((second_halves, recipe.sources().len()), (11, 13));
    let recipe = stripe.repair_lost(&[9]).expect("the block outside the groups");
    let first_halves: Vec<u16> =
        recipe.sources().iter().filter(|source| source.sub == 0).map(|source| source.block.0).collect();
    assert_eq!(first_halves, [11], "the coupled half of parity 1");
}

#[test]
fn any_k_blocks_decode_in_small_codes() {
    for (n, k) in [(14, 10), (16, 12), (11, 8), (9, 6), (6, 4), (7, 5), (8, 3)] {
        for stripe in stripes(n, k) {
            for lost in subsets(n, n - k) {
                stripe.repair_lost(&lost).expect("an MDS code");
            }
        }
    }
}

#[test]
fn fewer_than_k_blocks_are_refused() {
    let stripe = Stripe::named("hitchhiker-xor-9-6");
    assert_eq!(
        stripe.repair_lost(&[0, 1, 2, 3]).expect_err("five blocks"),
        DecodeError::NotEnoughBlocks { needed: 6, available: 5 }
    );
}

#[test]
fn without_the_blocks_of_its_repair_it_reads_k_blocks() {
    let stripe = Stripe::named("hitchhiker-xorplus-14-10");
    for missing in [1, 10, 11] {
        let recipe = stripe.repair(&[0], &stripe.others(&[0, missing])).expect("12 blocks");
        assert_eq!(recipe.sources().len(), 20, "without b{missing}");
    }
    // Block 13 (parity 3) belongs to another group, so the repair of block 0 does without it.
    assert_eq!(stripe.repair(&[0], &stripe.others(&[0, 13])).expect("12 blocks").sources().len(), 13);
}

#[test]
fn an_available_block_is_read_along_with_a_repair() {
    let stripe = Stripe::named("hitchhiker-xor-14-10");
    let recipe = stripe.repair(&[9, 0, 13], &stripe.others(&[0])).expect("a single loss");
    assert_eq!(recipe.sources().len(), 13 + 1 + 2, "the a half of b9 and both halves of b13 more");
}

#[test]
fn odd_shapes_repair() {
    for (n, k) in [(3, 1), (5, 1), (9, 2), (12, 3), (255, 253), (255, 200), (255, 128)] {
        for stripe in stripes(n, k) {
            for lost in [0, k - 1, k, k + 1, n - 1] {
                assert!(stripe.reads_for(lost) <= 2 * k);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn any_k_blocks_decode(
        (k, m) in (1..24_usize, 2..8_usize), seed in any::<u64>(), lost in 1..8_usize,
        variant in prop::sample::select(HitchhikerVariant::ALL.to_vec()),
    ) {
        let spec = CodeSpec::Hitchhiker { variant, n: k + m, k };
        prop_assume!(spec.check().is_ok());
        let stripe = Stripe::of(&spec);
        let order = stripe::shuffled(k + m, seed);
        let (lost, available) = order.split_at(lost.min(m));
        stripe.repair(lost, available).expect("at least k blocks of an MDS code");
    }
}
