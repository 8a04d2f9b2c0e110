//! A store that others run is listed only after the start of the coordinator.

use store_api::{BlockState, Lists, Ownership, StoreChange, StripeRecord, UNPROVEN, Unjudged};

use super::*;
use crate::stripes::picture::Picture;

const HELPERS: [&str; 5] = ["h1", "h2", "h3", "h4", "h5"];

impl TestCluster {
    /// Restarts the coordinator as if others ran the store, and had not listed its stripes yet. Returns the stripes.
    fn restart_unlisted(&mut self) -> Vec<StoreChange> {
        self.restart();
        self.core = None;
        let storage = self.storage.as_mut().unwrap();
        let mut opened = Opened::read(storage).unwrap();
        let mut stripes = Vec::new();
        storage
            .each_stripe(&mut |stripe, pending| stripes.push(StoreChange::Stripe(stripe, pending)))
            .unwrap();
        let mut picture = Picture::default();
        storage.each_record(&mut |change| picture.apply(change)).unwrap();
        storage.each_file(&mut |change| picture.apply(change)).unwrap();
        (opened.picture, opened.unlisted) = (picture, Some("the store has not been listed yet".to_owned()));
        opened.store.ownership = Ownership::Attached;
        self.term = opened.term();
        self.core = Some(Control::new(settings(), opened, StdRng::seed_from_u64(7), self.started_unix_ms));
        stripes
    }

    /// Stores a file, restores the catalog, and restarts the coordinator as if others ran the store, and had not listed
    /// its stripes yet. Returns the stripes.
    fn restored_unlisted(stripes: u64) -> (Self, Vec<StoreChange>) {
        let mut cluster = Self::new(5);
        cluster.put("f", stripes);
        cluster.restore_catalog();
        let stripes = cluster.restart_unlisted();
        (cluster, stripes)
    }

    /// Starts all helpers, has the store report these changes as its first listing, and waits until what can be checked
    /// is checked. Returns the number of unproven stripes.
    fn check_listed(&mut self, mut changes: Vec<StoreChange>) -> usize {
        HELPERS.iter().for_each(|helper| self.start(helper));
        changes.push(StoreChange::Unlisted(None));
        self.check_changed(changes)
    }

    /// Like [`check_listed`](Self::check_listed), after the first listing.
    fn check_changed(&mut self, changes: Vec<StoreChange>) -> usize {
        self.handle(Event::Changed(changes));
        self.wait(Duration::from_secs(45));
        self.core().scrub.proof.left()
    }

    /// Returns how many blocks all helpers have read for parity checks.
    fn fingerprinted(&self) -> u32 {
        self.nodes.values().map(|node| node.fingerprinted).sum()
    }

    /// Whether the storage has the record of unproven stripes.
    fn is_marked(&self) -> bool {
        !self.storage.as_ref().unwrap().list(UNPROVEN).unwrap().is_empty()
    }
}

fn stripe_in(change: &StoreChange) -> StripeRecord {
    match change {
        StoreChange::Stripe(stripe, _) => stripe.clone(),
        other => panic!("{other:?}"),
    }
}

/// Reports stripes as those of unknown state.
fn unjudged(stripes: &[&StoreChange]) -> StoreChange {
    let unjudged = |change: &&StoreChange| Unjudged {
        stripe: stripe_in(change).id,
        blocks: Vec::new(),
        servers: BTreeSet::new(),
        why: "no server lists it".into(),
        next_step: "wait".into(),
    };
    StoreChange::Unjudged(stripes.iter().map(unjudged).collect())
}

/// The server of one stripe is down while the store is listed for the first time.
#[test]
fn after_a_restore_stripes_that_are_listed_late_are_unproven() {
    let (mut cluster, mut stripes) = TestCluster::restored_unlisted(3);
    let late = stripes.remove(0);
    cluster.start_without_fingerprints(&HELPERS);
    assert!(cluster.is_marked(), "no stripe was listed");
    stripes.push(StoreChange::Unlisted(None));
    cluster.handle(Event::Changed(stripes));
    cluster.settle_without_fingerprints(&HELPERS);
    let is_unproven = |cluster: &mut TestCluster, how_many: &str| {
        let line = format!("UNPROVEN  parity of {how_many} stripes unchecked since the catalog was restored");
        let summary = cluster.status().summary;
        assert!(summary.starts_with(&line), "{summary}");
    };
    is_unproven(&mut cluster, "2 of 2");
    cluster.handle(Event::Changed(vec![late]));
    is_unproven(&mut cluster, "3 of 3");
    cluster.frozen.clear();
    cluster.play();
    cluster.wait(Duration::from_secs(15));
    let summary = cluster.status().summary;
    assert!(summary.starts_with("safe"), "{summary}");
    assert!(!cluster.is_marked());
}

/// All other stripes are proven before the servers of the first one start.
#[test]
fn after_a_restore_stripes_of_unknown_state_stay_unproven_until_they_are_listed() {
    for restarts in [false, true] {
        let (mut cluster, mut stripes) = TestCluster::restored_unlisted(3);
        let late = stripes.remove(0);
        stripes.push(unjudged(&[&late]));
        assert_eq!(cluster.check_listed(stripes), 1);
        assert!(cluster.is_marked());
        let line = "parity of 1 of 3 stripes unchecked since the catalog was restored";
        let advice = details(&cluster.status());
        assert!(advice.iter().any(|advice| advice.starts_with(line)), "{advice:?}");
        cluster.frozen.extend(HELPERS.map(str::to_owned));
        if restarts {
            let all = cluster.restart_unlisted();
            cluster.start_without_fingerprints(&HELPERS);
            cluster.handle(Event::Changed(all));
            cluster.handle(Event::Changed(vec![StoreChange::Unlisted(None)]));
        } else {
            cluster.handle(Event::Changed(vec![late, unjudged(&[])]));
        }
        assert_eq!(cluster.core().scrub.proof.left(), 1, "restarts: {restarts}");
        cluster.frozen.clear();
        assert_eq!(cluster.check_changed(Vec::new()), 0, "restarts: {restarts}");
        assert!(!cluster.is_marked());
    }
}

/// The store cannot tell the state of the last unproven stripe for a moment.
#[test]
fn after_a_restore_a_stripe_stays_unproven_while_its_state_is_unknown() {
    let (mut cluster, stripes) = TestCluster::restored_unlisted(1);
    cluster.start_without_fingerprints(&HELPERS);
    cluster.handle(Event::Changed([stripes.clone(), vec![StoreChange::Unlisted(None)]].concat()));
    cluster.settle_without_fingerprints(&HELPERS);
    let gone = StoreChange::StripeGone(stripe_in(&stripes[0]).id);
    cluster.handle(Event::Changed(vec![gone, unjudged(&[&stripes[0]])]));
    cluster.settle_without_fingerprints(&HELPERS);
    assert!(cluster.is_marked());
    cluster.handle(Event::Changed(vec![stripes[0].clone(), unjudged(&[])]));
    assert_eq!(cluster.core().scrub.proof.left(), 1);
    cluster.frozen.clear();
    assert_eq!(cluster.check_changed(Vec::new()), 0);
    assert!(!cluster.is_marked());
}

/// The store's servers start after the coordinator, and the restored catalog does not contain their places.
#[test]
fn after_a_restore_stripes_are_unproven_that_are_listed_after_an_empty_listing() {
    let (mut cluster, stripes) = TestCluster::restored_unlisted(2);
    assert_eq!(cluster.check_listed(Vec::new()), 0);
    assert!(cluster.is_marked());
    assert_eq!(cluster.fingerprinted(), 0);
    assert_eq!(cluster.check_changed(stripes), 0);
    assert!(cluster.fingerprinted() >= 8 && !cluster.is_marked());
}

/// No master of the store answers for a moment. The stripe's servers start meanwhile.
#[test]
fn after_a_restore_stripes_are_unproven_that_are_first_listed_at_the_end_of_an_outage() {
    let (mut cluster, mut stripes) = TestCluster::restored_unlisted(3);
    let (late, last) = (stripes.remove(0), stripes.pop().unwrap());
    stripes.push(unjudged(&[&last]));
    assert_eq!(cluster.check_listed(stripes), 1);
    cluster.handle(Event::Changed(vec![StoreChange::Unlisted(Some("no master answers".into()))]));
    cluster.handle(Event::Changed(vec![late]));
    cluster.handle(Event::Changed(vec![StoreChange::Unlisted(None)]));
    assert_eq!(cluster.core().scrub.proof.left(), 2);
    assert_eq!(cluster.check_changed(vec![last, unjudged(&[])]), 0);
    assert!(!cluster.is_marked());
}

/// Stripes are created all the time, so a stripe that is listed later may be a new one.
#[test]
fn after_a_restore_late_stripes_are_unproven_and_new_ones_are_not() {
    let (mut cluster, mut stripes) = TestCluster::restored_unlisted(3);
    cluster.core().base.store.lists = Lists::Stale;
    let (late, new) = (stripes.remove(0), stripes.pop().unwrap());
    stripes.push(StoreChange::LateStripes(true));
    assert_eq!(cluster.check_listed(stripes), 0);
    assert!(cluster.is_marked());
    let before = cluster.fingerprinted();
    assert_eq!(cluster.check_changed(vec![late, StoreChange::LateStripes(false), new]), 0);
    assert_eq!(cluster.fingerprinted() - before, 4, "the blocks of one stripe");
    assert!(!cluster.is_marked());
}

/// A DataNode is not registered when HDFS is listed, so the former holder of its block is unknown.
#[test]
fn after_a_restore_a_block_that_is_lost_at_the_check_is_checked_when_it_returns() {
    let (mut cluster, mut stripes) = TestCluster::restored_unlisted(1);
    cluster.core().base.store.lists = Lists::Stale;
    let whole = stripes.pop().unwrap();
    let mut without = stripe_in(&whole);
    let (stripe, block) = (without.id.clone(), without.blocks[1].clone());
    (without.blocks[1].node, without.blocks[1].state) = (None, BlockState::Missing);
    assert_eq!(cluster.check_listed(vec![StoreChange::Stripe(without, false)]), 1);
    assert!(cluster.is_marked());
    let advice = details(&cluster.status());
    assert!(
        advice.iter().any(|line| line.contains("last obstacle: one of the blocks is lost")),
        "{advice:?}"
    );
    let before = cluster.fingerprinted();
    assert_eq!(cluster.check_changed(Vec::new()), 1);
    assert_eq!(cluster.fingerprinted(), before, "a further check would read the same blocks");
    let holder = cluster.nodes.values_mut().find(|helper| helper.node == block.node).unwrap();
    holder.forged.insert(block.id);
    cluster.check_changed(vec![whole]);
    let record = cluster.core().stripes.picture.stripe(&stripe).unwrap();
    assert_eq!(record.blocks[1].state, BlockState::Corrupt);
}
