//! Reed-Solomon: every family correctly rebuilds every loss that an MDS code must.

mod stripe;

use codes::{BlockIndex, CodeSpec, DecodeError, RsFamily, SubBlock};
use proptest::prelude::*;
use stripe::{Stripe, subsets};

fn stripes(n: usize, k: usize) -> impl Iterator<Item = Stripe> {
    RsFamily::ALL
        .into_iter()
        .map(move |family| CodeSpec::ReedSolomon { family, n, k })
        .filter(|spec| spec.check().is_ok())
        .map(|spec| Stripe::of(&spec))
}

#[test]
fn all_patterns_of_as_many_losses_as_parities_are_repaired() {
    for (n, k, patterns) in [(6, 4, 15), (9, 6, 84), (11, 8, 165), (14, 10, 1001), (16, 12, 1820)] {
        let losses = subsets(n, n - k);
        assert_eq!(losses.len(), patterns);
        for stripe in stripes(n, k) {
            for lost in &losses {
                let recipe = stripe.repair_lost(lost).expect("an MDS code");
                assert_eq!(recipe.sources().len(), k);
            }
        }
    }
}

#[test]
fn all_patterns_of_small_codes_are_repaired_or_refused() {
    for (n, k) in [(2, 1), (3, 1), (4, 2), (5, 4), (6, 3), (7, 4)] {
        for stripe in stripes(n, k) {
            for size in 1..=n {
                for lost in subsets(n, size) {
                    let available = n - size;
                    match stripe.repair_lost(&lost) {
                        Ok(_) => assert!(available >= k),
                        Err(error) => {
                            assert!(available < k);
                            assert_eq!(error, DecodeError::NotEnoughBlocks { needed: k, available });
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn qfs_rows_are_mds_to_its_limit() {
    let stripe = Stripe::named("rs-67-64-qfs");
    for lost in subsets(67, 3) {
        stripe
            .code
            .repair(&stripe::indices(&lost), &stripe::indices(&stripe.others(&lost)))
            .expect("an MDS code");
    }
}

#[test]
fn powers_of_the_generator_are_mds_to_their_limit() {
    for n in [7, 12, 20, 25] {
        let stripe = Stripe::of(&CodeSpec::ReedSolomon { family: RsFamily::Isal, n, k: n - 4 });
        for lost in subsets(n, 4) {
            let (lost, others) = (stripe::indices(&lost), stripe::indices(&stripe.others(&lost)));
            stripe.code.repair(&lost, &others).expect("an MDS code");
        }
    }
}

#[test]
fn powers_of_the_generator_are_refused_beyond() {
    for (n, k, is_taken) in [
        (255, 252, true),
        (25, 21, true),
        (26, 22, false),
        (10, 5, false),
        (255, 254, true),
        (255, 251, false),
    ] {
        let spec = CodeSpec::ReedSolomon { family: RsFamily::Isal, n, k };
        assert_eq!(spec.check().is_ok(), is_taken, "({n}, {k})");
    }
    // Losses that the matrix cannot repair. For k = 22 and m = 4: three data blocks and parity block 2. For
    // k = 6 and m = 5: three data blocks and parity blocks 1 and 2.
    for (rows, data) in [([0, 1, 3], [0, 10, 21]), ([0, 3, 4], [0, 2, 5])] {
        let minor = codes::Matrix::from_fn(3, 3, |i, j| gf::pow(2, rows[i] * data[j]));
        assert!(minor.rank() < 3);
    }
}

#[test]
fn a_plain_xor_has_its_own_name() {
    let stripe = Stripe::named("xor-3-2");
    assert!((0..3).all(|lost| stripe.reads_for(lost) == 2));
    assert!(stripe.code.encoding().row(0).iter().all(|&(_, coefficient)| coefficient == 1));
    assert_eq!(stripe.code.spec().to_string(), "xor-3-2");
    let error = "xor-4-2".parse::<CodeSpec>().expect_err("two parity blocks").to_string();
    assert_eq!(error, "xor has exactly 1 parity block, so n = k + 1; n = 4 and k = 2 make 2");
}

#[test]
fn the_widest_codes_repair() {
    for k in [1, 2, 100, 128, 200, 252, 253, 254] {
        for stripe in stripes(255, k) {
            stripe.repair_lost(&[0]).expect("one data block");
            stripe.repair_lost(&[254]).expect("one parity block");
            let lost: Vec<usize> = (0..255 - k).map(|i| (i * 2) % 255).collect();
            stripe.repair_lost(&lost).expect("as many losses as parities");
            assert_eq!(
                stripe.repair(&[254], &(0..k - 1).collect::<Vec<_>>()).expect_err("k − 1 blocks"),
                DecodeError::NotEnoughBlocks { needed: k, available: k - 1 }
            );
        }
    }
}

#[test]
fn blocks_earlier_in_preference_are_read() {
    let stripe = Stripe::named("rs-9-6");
    let recipe = stripe.repair(&[0], &[8, 1, 7, 2, 6, 3, 5, 4]).expect("enough blocks");
    let read: Vec<u16> = recipe.sources().iter().map(|source| source.block.0).collect();
    assert_eq!(read, [8, 1, 7, 2, 6, 3]);
}

#[test]
fn an_available_block_is_read_as_it_is() {
    let stripe = Stripe::named("rs-9-6");
    let recipe = stripe.repair(&[3], &[4, 3]).expect("nothing to decode");
    assert_eq!(recipe.sources(), [SubBlock::first(BlockIndex(3))]);
    assert_eq!(recipe.row(0), [(0, 1)]);
    // The wanted block that is available is one of the k blocks read for the lost one, so no further block is
    // read.
    let recipe = stripe.repair(&[0, 8], &[1, 2, 3, 4, 5, 6, 7, 8]).expect("enough blocks");
    assert_eq!(recipe.sources().len(), 6);
    let everything: Vec<usize> = (0..9).collect();
    let recipe = stripe.repair(&everything, &everything[..8]).expect("enough blocks");
    assert_eq!(recipe.sources().len(), 8);
    assert!(stripe.repair(&[], &[]).expect("nothing to do").outputs().is_empty());
}

#[test]
fn blocks_that_do_not_exist_are_refused() {
    let code = CodeSpec::reed_solomon(9, 6).build().expect("within limits");
    let beyond = BlockIndex(9);
    let expected = DecodeError::NoSuchBlock { block: beyond, blocks: 9 };
    assert_eq!(code.repair(&[beyond], &[BlockIndex(0)]).expect_err("no such block"), expected);
    assert_eq!(code.repair(&[BlockIndex(0)], &[beyond]).expect_err("no such block"), expected);
}

#[test]
fn a_block_named_twice_counts_once() {
    let code = CodeSpec::reed_solomon(6, 4).build().expect("within limits");
    let available = [1, 2, 3, 3, 3].map(BlockIndex);
    assert_eq!(
        code.repair(&[BlockIndex(0)], &available).expect_err("three blocks"),
        DecodeError::NotEnoughBlocks { needed: 4, available: 3 }
    );
}

#[derive(Debug)]
struct RepairCase {
    spec: CodeSpec,
    wanted: Vec<usize>,
    available: Vec<usize>,
}

/// Generates cases with any family, up to 40 blocks (sometimes up to 255), any losses, and any order of
/// preference.
fn case() -> impl Strategy<Value = RepairCase> {
    let size = prop_oneof![9 => 2..40_usize, 1 => 200..=255_usize];
    (size, prop::sample::select(RsFamily::ALL.to_vec()))
        .prop_flat_map(|(n, family)| (1..n, Just(n), Just(family)))
        .prop_flat_map(|(k, n, family)| {
            let (n, k) = match family {
                RsFamily::Qfs => (k.min(64) + 3, k.min(64)),
                RsFamily::Isal if n - k > 3 => (k.min(21) + 4, k.min(21)),
                _ => (n, k),
            };
            let order = Just((0..n).collect::<Vec<_>>()).prop_shuffle();
            (Just(CodeSpec::ReedSolomon { family, n, k }), order, 0..=n - k + 1, 1..=n.min(6), any::<bool>())
        })
        .prop_map(|(spec, order, missing, wanted, only_lost)| {
            let (lost, available) = order.split_at(missing.min(order.len()));
            let candidates = if only_lost && !lost.is_empty() { lost } else { &order[..] };
            let wanted = candidates.iter().copied().take(wanted).collect();
            RepairCase { spec, wanted, available: available.to_vec() }
        })
}

proptest! {
    #[test]
    fn any_repair_gives_the_bytes_or_lacks_blocks(case in case()) {
        let stripe = Stripe::of(&case.spec);
        let (n, k) = (stripe.blocks(), stripe.code.data_blocks());
        let something_lost = case.wanted.iter().any(|block| !case.available.contains(block));
        match stripe.repair(&case.wanted, &case.available) {
            Ok(recipe) => {
                prop_assert!(!something_lost || case.available.len() >= k);
                let at_most = if something_lost { k.max(case.wanted.len()) } else { case.wanted.len() };
                prop_assert!(recipe.sources().len() <= at_most);
            }
            Err(error) => {
                prop_assert!(something_lost && case.available.len() < k, "{n} {k}");
                let expected = DecodeError::NotEnoughBlocks { needed: k, available: case.available.len() };
                prop_assert_eq!(error, expected);
            }
        }
    }
}
