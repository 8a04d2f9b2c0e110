//! A store that others run encodes the data of a stripe anew, with blocks of the same names.

use repair::wire::control::ExpectedBlock;
use store_api::{BlockState, StoreChange, StripeRecord};

use super::*;
use crate::signal::Signal;

impl TestCluster {
    /// Lists a stripe as encoded anew, in blocks of another size. It has the first `blocks` blocks of the former
    /// encoding; if there are more, the last ones are new.
    fn encode_anew(&mut self, record: &StripeRecord, code: &str, blocks: usize) {
        let mut anew = record.clone();
        (anew.code, anew.block_bytes) = (code.parse().unwrap(), 512);
        let last = anew.blocks.last().unwrap().clone();
        let name = |at: usize| BlockId(format!("{}.{at}", record.id));
        anew.blocks.extend(
            (record.blocks.len()..blocks).map(|at| store_api::BlockRecord { id: name(at), ..last.clone() }),
        );
        anew.blocks.truncate(blocks);
        anew.blocks.iter_mut().for_each(|block| (block.bytes, block.digest) = (512, None));
        self.handle(Event::Changed(vec![StoreChange::Stripe(anew, false)]));
    }
}

#[test]
fn what_is_known_of_former_blocks_does_not_concern_the_new_ones() {
    let (mut cluster, record) = TestCluster::over_store(true, &[&[1], &[2], &[3], &[4, 5]]);
    // The last block waits for two verifications, and parity has shown it to be wrong.
    cluster.frozen.insert("h4".to_owned());
    cluster.wait(Duration::from_secs(10));
    let core = cluster.core();
    let (stripe, last) = (record.id.clone(), BlockIndex(3));
    let node = record.blocks[3].node.unwrap();
    core.stripes.inventory.get_mut(node).unwrap().rechecks.insert((stripe.clone(), last));
    core.out.tell(Signal::Wrong { stripe: stripe.clone(), index: last, node });
    core.out.tell(Signal::Surplus { node: NodeId(5), stripe: stripe.clone(), index: last });
    cluster.tick();
    assert!(!cluster.core().stripes.condemned.is_empty());
    cluster.encode_anew(&record, "rs-3-2", 3);
    assert!(cluster.core().stripes.condemned.is_empty());
    cluster.frozen.clear();
    cluster.wait(Duration::from_secs(90));
    let now = cluster.core().stripes.picture.stripe(&stripe).unwrap();
    assert!(now.blocks.iter().all(|block| block.state == BlockState::Healthy), "{:?}", now.blocks);
}

#[test]
fn a_repair_of_former_blocks_ends_without_changing_the_new_ones() {
    for (code, blocks) in [("rs-3-2", 3), ("rs-6-4", 6)] {
        let mut cluster = TestCluster::new(6);
        let file = cluster.put("f", 1);
        let stripe = StripeId(file.layout[0].stripe.stripe.clone());
        let mut record = cluster.core().stripes.picture.stripe(&stripe).unwrap();
        record.blocks[3].state = BlockState::Missing;
        cluster.handle(Event::Changed(vec![StoreChange::Stripe(record.clone(), false)]));
        cluster.frozen.extend((1..=6).map(|at| format!("h{at}")));
        let request = RepairRequest { all: true, ..RepairRequest::default() };
        let repair = cluster.ask(|reply| RepairCommand::Queue(request.into(), reply)).unwrap().repair;
        cluster.play();
        assert_eq!(cluster.core().jobs.running.len(), 1);
        record.blocks[3].state = BlockState::Healthy;
        cluster.encode_anew(&record, code, blocks);
        cluster.frozen.clear();
        cluster.wait(Duration::from_secs(30));
        assert!(cluster.repair_state(repair).state.has_ended(), "{:?}", cluster.repair_state(repair));
        let now = cluster.core().stripes.picture.stripe(&stripe).unwrap();
        assert_eq!((now.blocks.len(), now.blocks[2].state), (blocks, BlockState::Healthy));
    }
}

/// A read goes on with the files of a former encoding, whose blocks have other digests. Helpers refuse to read them.
#[test]
fn a_read_of_former_blocks_does_not_accuse_the_new_ones() {
    let mut cluster = TestCluster::new(4);
    let file = cluster.put("f", 1);
    let stripe = StripeId(file.layout[0].stripe.stripe.clone());
    cluster.frozen.extend((1..=4).map(|at| format!("h{at}")).chain(["admin".to_owned()]));
    cluster.read(9, &stripe.0, 0, &[]);
    let job = *cluster.core().jobs.running.keys().next().unwrap();
    let mut record = cluster.core().stripes.picture.stripe(&stripe).unwrap();
    record.blocks[0].digest = of_sum(77);
    cluster.handle(Event::Changed(vec![StoreChange::Stripe(record, false)]));
    let problem = BlockProblem::Corrupt("another digest".into());
    let report = Report::BadBlock { block: block(&file, 0), problem };
    cluster.say(&home(&file, 0), FromNode::Report { job, epoch: repair::Epoch(1), report });
    assert_eq!(states(&cluster.file("f"))[0], "healthy");
}

/// The store encodes the data again while a client reads a block in several requests. Each request on its own returns
/// bytes that match the recorded digest of that time.
#[test]
fn a_read_of_a_block_that_was_replaced_since_it_was_found_is_refused() {
    let mut cluster = TestCluster::new(4);
    let file = cluster.put("f", 1);
    let stripe = StripeId(file.layout[0].stripe.stripe.clone());
    let record = cluster.core().stripes.picture.stripe(&stripe).unwrap();
    let (bytes, digest) = (record.blocks[0].bytes, record.blocks[0].digest);
    let found = ExpectedBlock { index: BlockIndex(0), bytes, digest };
    let unproven = ExpectedBlock { digest: None, ..found.clone() };
    let read = |cluster: &mut TestCluster, block: Option<&ExpectedBlock>| {
        let mut request = read_request(&stripe.0, 0, &[]);
        if let ClientRequest::Read { expected, .. } = &mut request {
            expected.extend(block.cloned());
        }
        cluster.open(9, request);
        cluster.closed(9).unwrap().map(drop)
    };
    assert!(digest.is_some());
    for block in [None, Some(&found), Some(&unproven)] {
        assert_eq!(read(&mut cluster, block), Ok(()));
    }
    for digest in [of_sum(77), None] {
        let mut anew = record.clone();
        anew.blocks[0].digest = digest;
        cluster.handle(Event::Changed(vec![StoreChange::Stripe(anew, false)]));
        let refused = read(&mut cluster, Some(&found));
        assert!(matches!(refused, Err(RequestFailure::Replaced { .. })), "{refused:?}");
        assert_eq!(read(&mut cluster, None), Ok(()), "it is found again");
    }
    let longer = ExpectedBlock { bytes: bytes + 1, ..unproven.clone() };
    let gone = ExpectedBlock { index: BlockIndex(4), ..unproven };
    for other in [longer, gone] {
        let refused = read(&mut cluster, Some(&other));
        assert!(matches!(refused, Err(RequestFailure::Replaced { .. })), "{refused:?}");
    }
}
