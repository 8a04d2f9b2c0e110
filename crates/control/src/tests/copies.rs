//! The search for spare copies of lost blocks.

use store_api::BlockState;

use super::*;
use crate::control::outer_facts;

/// A helper has the only other copy of a block, and thousands of orphans whose names come before that copy's name.
#[test]
fn a_wanted_copy_among_thousands_of_others_is_found_after_some_looks() {
    let (mut cluster, _, [before, now]) = TestCluster::with_a_copy();
    cluster.kill(&before);
    let orphans = (0..3000).map(|number| (BlockId(format!("!{number:04}")), 4096));
    cluster.node(&before).disk.extend(orphans);
    cluster.start(&before);
    cluster.kill(&now);
    assert_eq!(home(&cluster.file("f"), 0), now, "a look does not get that far");
    cluster.wait(Duration::from_secs(5));
    assert_eq!((home(&cluster.file("f"), 0), states(&cluster.file("f"))[0]), (before, "healthy"));
}

/// The copy becomes wanted although no block is found bad and no helper is lost.
#[test]
fn a_copy_is_found_whatever_makes_it_wanted() {
    let (mut cluster, file, [before, _]) = TestCluster::with_a_copy();
    let id = StripeId(file.layout[0].stripe.stripe.clone());
    let mut record = cluster.core().stripes.picture.stripe(&id).unwrap();
    record.blocks[0].state = BlockState::Missing;
    cluster.handle(Event::Changed(vec![store_api::StoreChange::Stripe(record, false)]));
    cluster.wait(Duration::from_secs(65));
    assert_eq!((home(&cluster.file("f"), 0), states(&cluster.file("f"))[0]), (before, "healthy"));
}

#[test]
fn only_a_bad_state_causes_a_search_for_copies() {
    let mut cluster = TestCluster::new(5);
    let file = cluster.put("f", 2);
    let id = StripeId(file.layout[0].stripe.stripe.clone());
    for (state, looks) in [(BlockState::Healthy, 0), (BlockState::Missing, 1), (BlockState::Healthy, 1)] {
        let core = cluster.core();
        let node = core.stripes.picture.stripe(&id).unwrap().blocks[0].node.unwrap();
        core.stripes.store_states(
            outer_facts!(core),
            vec![(id.clone(), BlockIndex(0), node, state)],
            &mut core.out,
        );
        cluster.pump();
        assert_eq!(cluster.core().stripes.inventory.search.looks, looks, "{state:?}");
    }
}
