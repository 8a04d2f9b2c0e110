//! Properties of every code: any request yields the right bytes or is refused for a valid reason.

mod stripe;

use std::sync::LazyLock;

use codes::DecodeError;
use proptest::prelude::*;
use stripe::Stripe;

static STRIPES: LazyLock<Vec<Stripe>> = LazyLock::new(|| {
    [
        "rs-14-10",
        "rs-9-6-jerasure",
        "lrc-12-2-2",
        "lrc-12-3-2",
        "lrc1-10-2-3",
        "rotated-16-12-4",
        "rotated-14-10-2",
        "hitchhiker-xor-14-10",
        "hitchhiker-xorplus-9-6",
        "hitchhiker-nonxor-12-8",
        "clay-8-4-6",
        "clay-9-6-8",
        "clay-6-3-4",
        "clay-6-4-5-ceph-jerasure",
        "xor-7-6",
        "rs-9-6-isal",
        "hitchhiker-xor-12-8-hadoop",
        "less-9-6-3",
        "ceph-lrc-4-2-3",
        "ceph-shec-6-4-2",
        "uniform-lrc-12-2-2",
        "par1-9-5",
    ]
    .map(Stripe::named)
    .into()
});

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]
    #[test]
    fn any_request_gives_the_bytes_or_a_true_reason(
        code in 0..STRIPES.len(), missing in 0..6_usize, wanted in 1..5_usize,
        (order, choice) in (any::<u64>(), any::<u64>()), only_lost in any::<bool>(),
    ) {
        let stripe = &STRIPES[code];
        let (n, k) = (stripe.blocks(), stripe.code.data_blocks());
        let order = stripe::shuffled(n, order);
        let (lost, available) = order.split_at(missing);
        let chosen = stripe::shuffled(n, choice);
        let is_candidate = |block: &usize| !only_lost || missing == 0 || lost.contains(block);
        let wanted: Vec<usize> = chosen.into_iter().filter(is_candidate).take(wanted).collect();
        let sub_blocks = stripe.code.sub_blocks();
        match stripe.repair(&wanted, available) {
            Ok(recipe) => {
                let read_anyway = wanted.iter().filter(|block| available.contains(block)).count();
                let most = (k + read_anyway) * sub_blocks;
                prop_assert!(recipe.sources().len() <= most, "reads {} of {most}", recipe.sources().len());
            }
            Err(DecodeError::NotEnoughBlocks { needed, available: counted }) => {
                prop_assert_eq!((needed, counted), (k, available.len()));
                prop_assert!(counted < needed);
            }
            Err(DecodeError::Undecodable { block, .. }) => {
                prop_assert!(!stripe.code.spec().is_mds());
                prop_assert!(wanted.contains(&usize::from(block.0)) && available.len() >= k);
            }
            Err(error) => prop_assert!(false, "{error}"),
        }
    }
}
