//! Rotated Reed-Solomon: the reads of minimal repairs, and decoding from any k blocks.

mod stripe;

use codes::BlockIndex;
use proptest::prelude::*;
use stripe::{Stripe, subsets};

/// Returns, for each block, how many blocks are read to rebuild that block. The numbers may be fractions.
fn blocks_read(stripe: &Stripe) -> Vec<f64> {
    let rows = stripe.code.sub_blocks() as f64;
    (0..stripe.blocks()).map(|lost| stripe.reads_for(lost) as f64 / rows).collect()
}

#[test]
fn a_data_block_reads_half_of_most_blocks() {
    for (name, k, blocks) in [
        ("rotated-16-12-4", 12, 7.5),
        ("rotated-16-12-8", 12, 7.5),
        ("rotated-15-12-4", 12, 8.0),
        ("rotated-9-6-2", 6, 4.0),
        ("rotated-9-6-4", 6, 4.0),
        ("rotated-8-6-2", 6, 4.5),
        ("rotated-8-6-4", 6, 4.5),
        ("rotated-12-8-4", 8, 5.0),
    ] {
        let reads = blocks_read(&Stripe::named(name));
        assert!(reads[..k].iter().all(|&read| read == blocks), "{name}: {reads:?}");
        assert!(reads[k..].iter().all(|&read| read == k as f64), "{name}: {reads:?}");
    }
}

#[test]
fn average_over_all_blocks_of_sixteen() {
    let reads = blocks_read(&Stripe::named("rotated-16-12-4"));
    assert_eq!(reads.iter().sum::<f64>() / 16.0, 8.625);
}

/// Checks the published example in which two parity blocks are used alternately: blocks 0–2 use parities 0
/// and 1, 3–5 use 1 and 2, 6–8 use 2 and 3, 9–11 use 0 and 3.
#[test]
fn the_published_pairs_of_parity_blocks_are_used() {
    let stripe = Stripe::named("rotated-16-12-4");
    for (lost, parities) in [(0, [12, 13]), (4, [13, 14]), (8, [14, 15]), (11, [12, 15])] {
        let recipe = stripe.repair_lost(&[lost]).expect("a single loss");
        assert_eq!(recipe.sources().len(), 30);
        let parity: Vec<BlockIndex> =
            recipe.sources().iter().map(|source| source.block).filter(|block| block.0 >= 12).collect();
        assert_eq!(parity.len(), 4);
        assert!(parity.iter().all(|block| parities.contains(&block.0)), "{lost}: {parity:?}");
    }
}

/// Counts, by the definition of the code, the sub-blocks read if row i of data block `lost` is rebuilt with
/// parity block `choice[i]`.
fn reads_of_choice(n: usize, k: usize, r: usize, lost: usize, choice: &[usize]) -> usize {
    let shift = |j: usize, i: usize| usize::from(i < k * j / (n - k));
    let mut read = std::collections::BTreeSet::new();
    for (row, &j) in choice.iter().enumerate() {
        let equation = (row + r - shift(j, lost)) % r;
        read.insert((k + j, equation));
        read.extend((0..k).filter(|&i| i != lost).map(|i| (i, (equation + shift(j, i)) % r)));
    }
    read.len()
}

/// Checks that alternating between two parity blocks reads the least among all m^r choices of one parity
/// block per row.
#[test]
fn no_choice_of_equations_reads_less() {
    for (n, k, r) in
        [(16, 12, 4), (15, 12, 4), (12, 8, 4), (9, 6, 4), (9, 6, 8), (8, 6, 2), (14, 10, 4), (11, 7, 4)]
    {
        let parities: usize = n - k;
        let stripe = Stripe::named(&format!("rotated-{n}-{k}-{r}"));
        for lost in 0..k {
            let choices = (0..parities.pow(r as u32)).map(|number| {
                let choice: Vec<usize> =
                    (0..r).map(|row| number / parities.pow(row as u32) % parities).collect();
                reads_of_choice(n, k, r, lost, &choice)
            });
            assert_eq!(Some(stripe.reads_for(lost)), choices.min(), "({n},{k}) r={r}, b{lost}");
        }
    }
}

#[test]
fn all_patterns_of_as_many_losses_as_parities_are_repaired() {
    for name in [
        "rotated-8-6-2",
        "rotated-8-6-4",
        "rotated-9-6-2",
        "rotated-9-6-4",
        "rotated-15-12-4",
        "rotated-12-8-4",
        "rotated-16-12-4",
        // Here m = n − k does not divide k, or m exceeds what the published coefficients allow.
        "rotated-10-7-2",
        "rotated-14-10-4",
        "rotated-12-6-2",
    ] {
        let stripe = Stripe::named(name);
        let (n, k) = (stripe.blocks(), stripe.code.data_blocks());
        for lost in subsets(n, n - k) {
            stripe.repair_lost(&lost).expect("an MDS code");
        }
    }
}

#[test]
fn with_one_parity_block_left_it_reads_k_blocks() {
    let stripe = Stripe::named("rotated-9-6-4");
    let recipe = stripe.repair(&[0], &[1, 2, 3, 4, 5, 8]).expect("k blocks");
    assert_eq!(recipe.sources().len(), 6 * 4);
    // Only two of the three parity blocks are available. They may not be the best pair, but still save reads.
    let recipe = stripe.repair(&[0], &[1, 2, 3, 4, 5, 6, 8]).expect("k + 1 blocks");
    assert!(recipe.sources().len() < 6 * 4);
}

#[test]
fn an_available_block_is_read_along_with_a_repair() {
    let stripe = Stripe::named("rotated-16-12-4");
    let recipe = stripe.repair(&[0, 1], &stripe.others(&[0])).expect("a single loss");
    assert!(recipe.sources().iter().filter(|source| source.block.0 == 1).count() == 4);
}

#[test]
fn wide_codes_repair() {
    for name in ["rotated-255-251-16", "rotated-60-40-8", "rotated-4-1-2", "rotated-2-1-2"] {
        let stripe = Stripe::named(name);
        let (n, k) = (stripe.blocks(), stripe.code.data_blocks());
        stripe.repair_lost(&[0]).expect("a data block");
        stripe.repair_lost(&[n - 1]).expect("a parity block");
        stripe.repair_lost(&(0..n - k).collect::<Vec<_>>()).expect("as many losses as parities");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn any_k_blocks_decode(
        (k, m, log_rows) in (1..20_usize, 1..6_usize, 1..4_u32), seed in any::<u64>(),
    ) {
        let stripe = Stripe::named(&format!("rotated-{}-{k}-{}", k + m, 1 << log_rows));
        let order = stripe::shuffled(k + m, seed);
        let (lost, available) = order.split_at(m);
        stripe.repair(lost, available).expect("k blocks of an MDS code");
    }
}
