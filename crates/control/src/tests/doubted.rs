//! Stripes whose digests the store doubts, and bad states that the store does not record.

use store_api::{Answer as StoreAnswer, BlockState, Checksums, Done, StoreChange, StorePolicy};

use super::*;
use crate::commands::NodeCommand;
use crate::control::facts;

/// A file of one stripe, and the change after which the store doubts the stripe's digests.
fn doubting(cluster: &mut TestCluster) -> (FileLayout, Event) {
    let file = cluster.put("f", 1);
    let doubt = doubt_of(cluster, &file);
    (file, doubt)
}

/// The change after which the store doubts the digests of a file's only stripe.
fn doubt_of(cluster: &mut TestCluster, file: &FileLayout) -> Event {
    let id = StripeId(file.layout[0].stripe.stripe.clone());
    let mut record = cluster.core().stripes.picture.stripe(&id).unwrap();
    record.blocks.iter_mut().for_each(|block| block.digest = None);
    Event::Changed(vec![StoreChange::Stripe(record, false), StoreChange::Doubted([id].into())])
}

#[test]
fn parity_is_checked_at_once_and_until_then_nothing_is_safe() {
    let mut cluster = TestCluster::new(5);
    let (file, doubt) = doubting(&mut cluster);
    cluster.handle(doubt);
    let is_asked =
        |node: &&PlayedNode| node.inbox.iter().any(|message| matches!(message, ToNode::Fingerprint { .. }));
    assert_eq!(cluster.nodes.values().filter(is_asked).count(), 4, "whatever the rate of the scrub");
    let summary = cluster.status().summary;
    assert!(summary.starts_with("UNPROVEN  checksums of 1 stripe doubted"), "{summary}");
    let helper = vec![home(&file, 0)];
    let answer = cluster.ask(|reply| NodeCommand::OkToStop(helper.clone(), 0, reply)).unwrap();
    assert!(!answer.safe && answer.text.contains("doubted"), "{answer:?}");
    cluster.play();
    let summary = cluster.status().summary;
    assert!(summary.starts_with("safe"), "{summary}");
    assert!(cluster.ask(|reply| NodeCommand::OkToStop(helper, 0, reply)).unwrap().safe);
}

/// The operator has removed the doubted checksums before parity could be checked. So the store doubts nothing any
/// more, and does not report its doubts again when the stripe is removed.
#[test]
fn a_removed_stripe_is_not_unproven_for_ever() {
    let mut cluster = TestCluster::new(4);
    let (file, doubt) = doubting(&mut cluster);
    let away = [home(&file, 0), home(&file, 1)];
    away.iter().for_each(|helper| cluster.kill(helper));
    cluster.handle(doubt);
    cluster.handle(Event::Changed(vec![StoreChange::Doubted(BTreeSet::new())]));
    let unproven = |cluster: &mut TestCluster| cluster.core().scrub.distrusted.names();
    let id = StripeId(file.layout[0].stripe.stripe.clone());
    assert_eq!(unproven(&mut cluster), [id.to_string()], "nothing has proven the blocks");
    cluster.handle(Event::Changed(vec![StoreChange::StripeGone(id)]));
    assert_eq!(unproven(&mut cluster), [""; 0]);
}

/// The first check has not read the block, because it was missing.
#[test]
fn a_block_that_returns_after_the_check_is_checked_too() {
    let mut cluster = TestCluster::new(5);
    let (file, doubt) = doubting(&mut cluster);
    cluster.handle(doubt);
    cluster.play();
    let unproven = |cluster: &mut TestCluster| cluster.core().scrub.distrusted.names();
    assert_eq!(unproven(&mut cluster), [""; 0]);
    let id = StripeId(file.layout[0].stripe.stripe.clone());
    let good = cluster.core().stripes.picture.stripe(&id).unwrap();
    let mut missing = good.clone();
    missing.blocks[0].state = BlockState::Missing;
    cluster.handle(Event::Changed(vec![StoreChange::Stripe(missing, false)]));
    assert_eq!(unproven(&mut cluster), [""; 0], "the other blocks were checked");
    cluster.handle(Event::Changed(vec![StoreChange::Stripe(good, false)]));
    assert_eq!(unproven(&mut cluster), [id.to_string()]);
    cluster.play();
    assert_eq!(unproven(&mut cluster), [""; 0]);
}

/// Of two copies, parity has read only the one that the store listed first.
#[test]
fn a_copy_that_the_store_lists_instead_of_the_checked_one_is_checked_too() {
    let mut cluster = TestCluster::new(5);
    let (file, doubt) = doubting(&mut cluster);
    cluster.handle(doubt);
    cluster.play();
    let unproven = |cluster: &mut TestCluster| cluster.core().scrub.distrusted.names();
    assert_eq!(unproven(&mut cluster), [""; 0]);
    let id = StripeId(file.layout[0].stripe.stripe.clone());
    let mut moved = cluster.core().stripes.picture.stripe(&id).unwrap();
    let homes: Vec<_> = moved.blocks.iter().filter_map(|block| block.node).collect();
    let nodes: Vec<_> = cluster.nodes.values().filter_map(|node| node.node).collect();
    moved.blocks[0].node = nodes.into_iter().find(|node| !homes.contains(node));
    cluster.handle(Event::Changed(vec![StoreChange::Stripe(moved, false)]));
    assert_eq!(unproven(&mut cluster), [id.to_string()]);
}

/// Without the block of a helper that is down, no check proves the stripe.
#[test]
fn checks_of_a_doubted_stripe_wait_for_a_helper_that_is_down() {
    let mut cluster = TestCluster::new(4);
    let (file, doubt) = doubting(&mut cluster);
    let away = home(&file, 0);
    cluster.kill(&away);
    cluster.handle(doubt);
    cluster.wait(Duration::from_secs(540));
    assert_eq!(cluster.core().scrub.distrusted.names().len(), 1, "it is not proven");
    let advice = details(&cluster.status());
    let stripe = &file.layout[0].stripe.stripe;
    let unread = format!(
        "{stripe}: parity has confirmed 3 of 4 blocks, but {} cannot be read: start helpers on {away}",
        block(&file, 0)
    );
    assert!(advice.contains(&unread), "{advice:?}");
    cluster.start(&away);
    cluster.wait(Duration::from_secs(61));
    let summary = cluster.status().summary;
    assert!(summary.starts_with("safe"), "{summary}");
}

/// The read checks no parity, so it proves nothing, and it refutes nothing.
#[test]
fn a_read_between_two_partial_checks_keeps_the_proven_blocks() {
    let mut cluster = TestCluster::new(4);
    let (file, doubt) = doubting(&mut cluster);
    let away = home(&file, 0);
    cluster.kill(&away);
    cluster.handle(doubt);
    cluster.play();
    let is_told = |cluster: &mut TestCluster| {
        let advice = details(&cluster.status());
        advice.iter().any(|line| line.contains("parity has confirmed 3 of 4 blocks"))
    };
    assert!(is_told(&mut cluster));
    cluster.read(9, &file.layout[0].stripe.stripe, 1, &[]);
    cluster.closed(9).unwrap().unwrap();
    assert!(is_told(&mut cluster));
    // The next check reads the block that has returned. Without it, the proven blocks suffice for decoding.
    cluster.kill(&home(&file, 1));
    cluster.start(&away);
    cluster.wait(Duration::from_secs(61));
    assert_eq!(cluster.core().scrub.distrusted.names(), [""; 0]);
}

/// The server of one block has no helper, perhaps for ever.
#[test]
fn a_helper_may_stop_if_proven_blocks_suffice_without_it() {
    let mut cluster = TestCluster::new(4);
    let (file, doubt) = doubting(&mut cluster);
    cluster.kill(&home(&file, 0));
    let stop = |cluster: &mut TestCluster, leave| {
        let names = vec![home(&file, 1)];
        cluster.ask(|reply| NodeCommand::OkToStop(names, leave, reply)).unwrap()
    };
    cluster.handle(doubt);
    assert!(!stop(&mut cluster, 0).safe, "nothing is proven");
    cluster.play();
    assert_eq!(cluster.core().scrub.distrusted.names().len(), 1, "one block is not proven");
    let (safe, unsafe_) = (stop(&mut cluster, 0), stop(&mut cluster, 1));
    assert!(safe.safe && !unsafe_.safe, "{safe:?} {unsafe_:?}");
}

/// The helpers of two blocks are down one after the other, never both up.
#[test]
fn checks_of_different_blocks_prove_a_stripe_together() {
    let mut cluster = TestCluster::new(4);
    let (file, doubt) = doubting(&mut cluster);
    cluster.kill(&home(&file, 0));
    cluster.handle(doubt);
    cluster.play();
    cluster.kill(&home(&file, 1));
    cluster.start(&home(&file, 0));
    cluster.wait(Duration::from_secs(61));
    assert_eq!(cluster.core().scrub.distrusted.names(), [""; 0]);
}

/// Two checks share fewer blocks than decoding needs. Each of them may have read another version of the stripe.
#[test]
fn checks_that_share_too_few_blocks_prove_nothing_together() {
    let mut cluster = TestCluster::new(6);
    let file = cluster.put_coded("f", "rs-6-3", 3 * 4096);
    let doubt = doubt_of(&mut cluster, &file);
    let [first, last] = [[0, 1], [4, 5]].map(|blocks| blocks.map(|at| home(&file, at)));
    last.iter().for_each(|helper| cluster.kill(helper));
    cluster.handle(doubt);
    cluster.play();
    first.iter().for_each(|helper| cluster.kill(helper));
    last.iter().for_each(|helper| cluster.start(helper));
    cluster.wait(Duration::from_secs(61));
    assert_eq!(cluster.core().scrub.distrusted.names().len(), 1);
    first.iter().for_each(|helper| cluster.start(helper));
    cluster.wait(Duration::from_secs(241));
    assert_eq!(cluster.core().scrub.distrusted.names(), [""; 0]);
}

/// The store finds that the block which no check could read is missing.
#[test]
fn a_stripe_is_proven_if_its_unproven_blocks_are_lost() {
    let mut cluster = TestCluster::new(4);
    let (file, doubt) = doubting(&mut cluster);
    cluster.kill(&home(&file, 0));
    cluster.handle(doubt);
    cluster.play();
    let id = StripeId(file.layout[0].stripe.stripe.clone());
    let mut missing = cluster.core().stripes.picture.stripe(&id).unwrap();
    missing.blocks[0].state = BlockState::Missing;
    cluster.handle(Event::Changed(vec![StoreChange::Stripe(missing, false)]));
    cluster.wait(Duration::from_secs(61));
    assert_eq!(cluster.core().scrub.distrusted.names(), [""; 0]);
}

/// Returns a cluster with many stripes, and the change after which the store doubts the digests of all of them.
fn doubting_many(helpers: usize, stripes: u64) -> (TestCluster, Event) {
    let mut cluster = TestCluster::new(helpers);
    let file = cluster.put("f", stripes);
    let ids: Vec<StripeId> = file.layout.iter().map(|part| StripeId(part.stripe.stripe.clone())).collect();
    let without_digests = |id: &StripeId| {
        let mut record = cluster.core().stripes.picture.stripe(id).unwrap();
        record.blocks.iter_mut().for_each(|block| block.digest = None);
        StoreChange::Stripe(record, false)
    };
    let mut changes: Vec<StoreChange> = ids.iter().map(without_digests).collect();
    changes.push(StoreChange::Doubted(ids.into_iter().collect()));
    (cluster, Event::Changed(changes))
}

/// A helper does not answer, so the helpers of its stripe stay busy. Many stripes have blocks there.
#[test]
fn doubted_stripes_on_idle_helpers_are_checked_though_many_others_wait() {
    let (mut cluster, doubt) = doubting_many(9, 120);
    cluster.frozen.insert("h1".to_owned());
    cluster.handle(doubt);
    cluster.wait(Duration::from_secs(60));
    let left = cluster.core().scrub.distrusted.names();
    assert!((17..120).contains(&left.len()), "{} are left", left.len());
    for name in left {
        let record = cluster.core().stripes.picture.stripe(&StripeId(name)).unwrap();
        let mut nodes = record.blocks.iter().filter_map(|block| block.node);
        assert!(nodes.any(|node| cluster.core().scrub.checks.occupies(node)), "{}", record.id);
    }
}

#[test]
fn an_event_looks_at_few_doubted_stripes_whose_helpers_are_busy() {
    let (mut cluster, doubt) = doubting_many(4, 100);
    cluster.frozen.extend(["h1", "h2", "h3", "h4"].map(str::to_owned));
    cluster.handle(doubt);
    cluster.core().scrub.distrusted.looks = 0;
    cluster.now += Duration::from_millis(50);
    (0..50).for_each(|_| cluster.tick());
    let looks = cluster.core().scrub.distrusted.looks;
    assert!((1..=16).contains(&looks), "{looks} looks at one time");
}

#[test]
fn wrong_blocks_of_doubted_digests_are_found_by_parity() {
    let mut cluster = TestCluster::new(4);
    let (file, doubt) = doubting(&mut cluster);
    cluster.node(&home(&file, 0)).forged.insert(block(&file, 0));
    // With one spare block, parity shows that a block is wrong, but not which.
    cluster.kill(&home(&file, 3));
    cluster.handle(doubt);
    cluster.play();
    let summary = cluster.status().summary;
    assert!(summary.starts_with("IN DOUBT"), "{summary}");
}

#[test]
fn a_stripe_with_doubted_digests_and_no_spare_block_is_checked_when_it_has_one() {
    let mut cluster = TestCluster::new(4);
    let (file, doubt) = doubting(&mut cluster);
    let away = [home(&file, 0), home(&file, 1)];
    away.iter().for_each(|helper| cluster.kill(helper));
    cluster.handle(doubt);
    cluster.wait(Duration::from_secs(2));
    let advice = details(&cluster.status());
    assert!(advice.iter().any(|line| line.contains("parity check needs")), "{advice:?}");
    away.iter().for_each(|helper| cluster.start(helper));
    cluster.wait(Duration::from_secs(61));
    let summary = cluster.status().summary;
    assert!(summary.starts_with("safe"), "{summary}");
}

#[test]
fn without_checksums_as_few_blocks_as_decoding_needs_rebuild_nothing_by_themselves() {
    let mut cluster = TestCluster::new(6);
    let (file, doubt) = doubting(&mut cluster);
    cluster.core().base.store = StorePolicy { checksums: Checksums::OfDigests, ..StorePolicy::OWN };
    let away = [home(&file, 0), home(&file, 1)];
    away.iter().for_each(|helper| cluster.kill(helper));
    cluster.handle(doubt);
    let repair = |cluster: &mut TestCluster, verify_parity| {
        let request = RepairRequest { all: true, verify_parity, ..RepairRequest::default() };
        let id = cluster.repair(request).repair;
        cluster.wait(Duration::from_secs(5));
        cluster.repair_state(id)
    };
    let view = repair(&mut cluster, None);
    assert_eq!(view.state.name(), "failed", "{view:?}");
    let reason = view.items[0].reason.clone().unwrap_or_default();
    assert!(reason.contains("no checksums are in use"), "{reason}");
    assert!(view.items[0].next_step.as_ref().is_some_and(|next| next.contains("--no-verify")));
    assert_eq!(view.counts.blocks_rebuilt, 0);
    // The operator knows better, or prefers blocks that may be wrong to none.
    let view = repair(&mut cluster, Some(false));
    assert_eq!((view.state.name(), view.counts.blocks_rebuilt), ("done", 2), "{view:?}");
}

#[test]
fn a_block_of_the_wrong_length_is_unreadable_if_only_digests_show_wrong_bytes() {
    for (checksums, state) in [(Checksums::OfAllBlocks, "corrupt"), (Checksums::OfDigests, "unreadable")] {
        let mut cluster = TestCluster::new(4);
        let file = cluster.put("f", 1);
        cluster.core().base.store = StorePolicy { checksums, ..StorePolicy::OWN };
        let helper = home(&file, 0);
        cluster.kill(&helper);
        cluster.node(&helper).disk.values_mut().for_each(|bytes| *bytes -= 1);
        cluster.start(&helper);
        cluster.play();
        assert_eq!(cluster.file("f").layout[0].stripe.blocks[0].state.name(), state);
    }
}

/// The store reports that a block is healthy while it answers the write of the bad state.
#[test]
fn a_bad_state_that_the_store_does_not_record_is_forgotten() {
    let mut cluster = TestCluster::new(4);
    let file = cluster.put("f", 1);
    let id = StripeId(file.layout[0].stripe.stripe.clone());
    let known = cluster.core().stripes.picture.stripe(&id).unwrap().blocks[0].clone();
    let (index, node) = (BlockIndex(0), known.node.unwrap());
    cluster.stuck = true;
    cluster.rotten.insert(known.id.clone());
    let core = cluster.core();
    facts!(core).ask_for_block(node, id.clone(), index, known.clone(), false, &mut core.out);
    cluster.wait(Duration::from_secs(1));
    assert!(cluster.core().stripes.unrecorded.is_bad(&known.id, node));
    let core = cluster.core();
    let asks: Vec<Ask> = std::iter::from_fn(|| core.poll_storage()).collect();
    let number = asks.iter().find_map(|ask| match ask {
        Ask::Write { number, write: Write::Stripes(StripeWrite::SetStates(states)) } => {
            assert_eq!(*states, [(id.clone(), index, node, BlockState::Corrupt)]);
            Some(*number)
        }
        _ => None,
    });
    let done = Done::with(StoreAnswer::Overruled(vec![(id, index, node)]), []);
    cluster.handle(Event::Stored { number: number.expect("it was found corrupt"), done });
    assert!(!cluster.core().stripes.unrecorded.is_bad(&known.id, node), "the store counts it as healthy");
}
