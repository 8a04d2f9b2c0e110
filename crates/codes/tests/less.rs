//! LESS: each block, data or parity, is rebuilt from its extended sub-stripe, and any k blocks decode.

mod stripe;

use codes::CodeSpec;
use stripe::{Stripe, subsets};

/// Checks the minimum and maximum number of sub-blocks that single repairs read. The paper's formula is k +
/// (α − 1)·|group|.
#[test]
fn every_block_reads_a_part_of_its_extended_sub_stripe() {
    for (name, least, most) in [
        ("less-6-4-2", 6, 6),
        ("less-9-6-2", 9, 9),
        ("less-9-6-3", 10, 12),
        ("less-14-10-2", 14, 15),
        ("less-14-10-3", 16, 18),
        ("less-14-10-4", 16, 19),
        ("less-12-8-4", 14, 17),
    ] {
        let stripe = Stripe::named(name);
        let reads: Vec<usize> = (0..stripe.blocks()).map(|lost| stripe.reads_for(lost)).collect();
        let (n, alpha) = (stripe.blocks(), stripe.code.sub_blocks());
        let sizes = [n / (alpha + 1), n.div_ceil(alpha + 1)];
        let formula = sizes.map(|size| stripe.code.data_blocks() + (alpha - 1) * size);
        assert_eq!([least, most], formula, "{name}");
        assert_eq!((reads.iter().min(), reads.iter().max()), (Some(&least), Some(&most)), "{name}");
    }
}

#[test]
fn any_k_blocks_decode() {
    for name in ["less-6-4-2", "less-9-6-3", "less-14-10-2", "less-14-10-4"] {
        let stripe = Stripe::named(name);
        let m = stripe.blocks() - stripe.code.data_blocks();
        for lost in subsets(stripe.blocks(), m) {
            stripe.repair_lost(&lost).expect(name);
        }
    }
}

#[test]
fn sizes_that_are_not_known_to_decode_are_refused() {
    for (name, message) in [
        ("less-14-10-1", "less has from 2 to n - k = 4 sub-blocks in a block, not 1"),
        ("less-14-10-5", "less has from 2 to n - k = 4 sub-blocks in a block, not 5"),
        ("less-24-20-4", "less-24-20-4 may fail to decode some losses of 4 blocks"),
        ("less-200-190-4", "less-200-190-4 may fail to decode some losses of 10 blocks"),
    ] {
        let error = name.parse::<CodeSpec>().expect_err(name).to_string();
        assert!(error.starts_with(message), "{name}: {error}");
    }
}
