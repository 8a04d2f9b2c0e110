//! A store that others run is listed only after the start of the coordinator.

use store_api::{Ownership, StoreChange, UNPROVEN};

use super::*;
use crate::stripes::picture::Picture;

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

    /// Whether the storage has the record of unproven stripes.
    fn is_marked(&self) -> bool {
        !self.storage.as_ref().unwrap().list(UNPROVEN).unwrap().is_empty()
    }
}

/// The server of one stripe is down while the store is listed for the first time.
#[test]
fn after_a_restore_stripes_that_are_listed_late_are_unproven() {
    let helpers = ["h1", "h2", "h3", "h4", "h5"];
    let mut cluster = TestCluster::new(5);
    cluster.put("f", 3);
    cluster.restore_catalog();
    let mut stripes = cluster.restart_unlisted();
    let late = stripes.remove(0);
    cluster.start_without_fingerprints(&helpers);
    assert!(cluster.is_marked(), "no stripe was listed");
    stripes.push(StoreChange::Unlisted(None));
    cluster.handle(Event::Changed(stripes));
    cluster.settle_without_fingerprints(&helpers);
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
