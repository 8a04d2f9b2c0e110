//! Clay: the repair of a single loss reads d/(d−k+1) blocks, and any k blocks decode.

mod stripe;

use codes::{CodeSpec, DecodeError, SubBlock};
use stripe::{Stripe, subsets};

/// For each code, α and the number of sub-blocks that a single repair reads.
const COUNTS: [(&str, usize, usize); 9] = [
    ("clay-4-2-3", 4, 6),
    ("clay-5-3-4", 8, 16),
    ("clay-6-4-5", 8, 20),
    ("clay-6-3-5", 9, 15),
    ("clay-6-3-4", 8, 16),
    ("clay-9-6-8", 27, 72),
    ("clay-8-4-6", 27, 54),
    ("clay-12-8-11", 64, 176),
    ("clay-14-10-13", 256, 832),
];

#[test]
fn a_single_loss_reads_a_part_of_each_helper() {
    for (name, sub_blocks, reads) in COUNTS {
        let stripe = Stripe::named(name);
        assert_eq!(stripe.code.sub_blocks(), sub_blocks, "{name}");
        for lost in 0..stripe.blocks() {
            assert_eq!(stripe.reads_for(lost), reads, "{name}, b{lost}");
        }
    }
}

/// Planes are numbered so that blocks of the grid's first rows, which hold data, are rebuilt with long reads.
#[test]
fn a_helper_reads_few_runs_for_the_first_blocks() {
    let stripe = Stripe::named("clay-14-10-13");
    for (lost, runs_per_helper) in [(0, 1), (3, 1), (4, 4), (7, 4), (8, 16), (9, 16), (10, 64), (13, 64)] {
        let recipe = stripe.repair_lost(&[lost]).expect("a single loss");
        let adjoin = |a: &SubBlock, b: &SubBlock| a.block == b.block && a.sub + 1 == b.sub;
        assert_eq!(recipe.sources().chunk_by(adjoin).count(), 13 * runs_per_helper, "b{lost}");
    }
}

#[test]
fn helpers_beyond_the_grid_row_are_taken_by_preference() {
    // Six of the seven other blocks help (d = 6). The grid row of b0 contains b0, b1 and b2.
    let stripe = Stripe::named("clay-8-4-6");
    for aloof in 3..8 {
        let mut order = stripe.others(&[0, aloof]);
        order.push(aloof);
        let recipe = stripe.repair(&[0], &order).expect("a single loss");
        assert_eq!(recipe.sources().len(), 54);
        assert!(recipe.sources().iter().all(|source| usize::from(source.block.0) != aloof));
        // The repair reads equally little if the block that does not help is unavailable.
        assert_eq!(stripe.repair(&[0], &stripe.others(&[0, aloof])).expect("6 blocks").sources().len(), 54);
    }
    // If a block of the lost block's grid row is unavailable, the repair reads k whole blocks.
    assert_eq!(stripe.repair(&[0], &stripe.others(&[0, 1])).expect("6 blocks").sources().len(), 4 * 27);
}

#[test]
fn all_losses_of_small_codes_are_repaired() {
    for name in
        ["clay-4-2-3", "clay-5-3-4", "clay-6-4-5", "clay-6-3-5", "clay-6-3-4", "clay-8-4-6", "clay-7-4-5"]
    {
        let stripe = Stripe::with_sub_block_bytes(&name.parse().expect(name), 1);
        let (n, k) = (stripe.blocks(), stripe.code.data_blocks());
        for size in 1..=n - k {
            for lost in subsets(n, size) {
                let recipe = stripe.repair_lost(&lost).expect("an MDS code");
                assert!(recipe.sources().len() <= k * stripe.code.sub_blocks());
            }
        }
        assert_eq!(
            stripe.repair(&[0], &(1..k).collect::<Vec<_>>()).expect_err("k − 1 blocks"),
            DecodeError::NotEnoughBlocks { needed: k, available: k - 1 }
        );
    }
}

/// Returns sampled losses for large codes: the first blocks, the last ones, blocks spread over the grid rows,
/// and random ones.
fn sampled_losses(n: usize, most: usize, samples: u64) -> Vec<Vec<usize>> {
    let mut losses =
        vec![(0..most).collect(), (n - most..n).collect(), (0..most).map(|i| i * n / most).collect()];
    for seed in 0..samples {
        let size = 2 + seed as usize % (most - 1);
        losses.push(stripe::shuffled(n, seed)[..size].to_vec());
    }
    losses
}

#[test]
fn sampled_losses_of_large_codes_are_repaired() {
    for (name, samples) in
        [("clay-9-6-8", 40), ("clay-12-8-11", 20), ("clay-14-10-13", 10), ("clay-14-10-12", 10)]
    {
        let stripe = Stripe::with_sub_block_bytes(&name.parse().expect(name), 1);
        let (n, k) = (stripe.blocks(), stripe.code.data_blocks());
        for lost in sampled_losses(n, n - k, samples) {
            stripe.repair_lost(&lost).expect("an MDS code");
        }
    }
}

#[test]
fn available_blocks_are_read_along_with_a_repair() {
    let stripe = Stripe::named("clay-8-4-6");
    let recipe = stripe.repair(&[7, 0, 3], &stripe.others(&[0])).expect("a single loss");
    assert_eq!(recipe.sources().len(), 2 * 27 + 4 * 9, "two whole blocks and the planes of four more");
    let everything: Vec<usize> = (0..8).collect();
    let recipe = stripe.repair(&everything, &everything).expect("nothing is lost");
    assert_eq!(recipe.sources().len(), 8 * 27);
    // All blocks are wanted, which is more than k, and two of them are lost.
    let recipe = stripe.repair(&everything, &everything[2..]).expect("6 blocks");
    assert_eq!(recipe.sources().len(), 6 * 27);
}

/// Checks that single repairs do not need the dense generator, so that plans for wide codes are made quickly.
#[test]
fn recipes_of_single_repairs_are_sparse() {
    let code = "clay-14-10-13".parse::<CodeSpec>().expect("a code").build().expect("within limits");
    let available: Vec<usize> = (1..14).collect();
    let recipe = code.repair(&stripe::indices(&[0]), &stripe::indices(&available)).expect("a single loss");
    let longest = (0..recipe.outputs().len()).map(|output| recipe.row(output).len()).max();
    assert!(longest <= Some(2 * 12 + 1), "{longest:?}");
    let encoding = code.encoding();
    let longest = (0..encoding.outputs().len()).map(|output| encoding.row(output).len()).max();
    assert!(longest <= Some(4 * 12), "{longest:?}");
}

/// Checks variants with different couplings and plane codes: all read equally little in a repair, and any k
/// blocks decode.
#[test]
fn every_variant_repairs_alike() {
    for suffix in
        ["", "-ceph-jerasure", "-ceph-isa", "-ceph-cauchy", "-vandermonde-7-9-200-3", "-hdfs-raid-1-1-1-2"]
    {
        for (name, reads) in [("clay-6-4-5", 20), ("clay-8-4-6", 54), ("clay-5-3-4", 16)] {
            let stripe = Stripe::with_sub_block_bytes(&format!("{name}{suffix}").parse().expect(suffix), 1);
            assert!((0..stripe.blocks()).all(|lost| stripe.reads_for(lost) == reads), "{name}{suffix}");
            for lost in subsets(stripe.blocks(), stripe.blocks() - stripe.code.data_blocks()) {
                stripe.repair_lost(&lost).expect("an MDS code");
            }
        }
    }
}

#[test]
fn variants_round_trip() {
    for (name, printed) in [
        ("clay-6-4-5-cauchy-1-2-1-2", "clay-6-4-5"),
        ("Clay(6,4,5)-ceph-jerasure", "clay-6-4-5-ceph-jerasure"),
        ("clay-6-4-5-jerasure-1-1-143-1", "clay-6-4-5-ceph-jerasure"),
        ("clay-6-4-5-hdfs-raid-1-1-1-2", "clay-6-4-5-hdfs-raid-1-1-1-2"),
    ] {
        assert_eq!(name.parse::<CodeSpec>().expect(name).to_string(), printed);
    }
    for (name, message) in [
        ("clay-6-4-5-cauchy-1-1-1-1", "the coupling [1, 1, 1, 1] is not invertible"),
        ("clay-6-4-5-cauchy-1-0-1-1", "the coupling [1, 0, 1, 1] is not invertible"),
        ("clay-6-4-5-qfs-1-2-1-2", "qfs has exactly 3 parity blocks"),
        ("clay-40-36-39-ceph-isa", "isal with 4 parity blocks has at most 21 data blocks"),
        ("clay-6-4-5-ceph", "`clay-6-4-5-ceph` is not of the form"),
        ("clay-6-4-5-leopard-1-2-1-2", "there is no Reed-Solomon family `leopard`"),
    ] {
        let error = name.parse::<CodeSpec>().expect_err(name).to_string();
        assert!(error.starts_with(message) || error.contains("sub-blocks"), "{name}: {error}");
    }
}
