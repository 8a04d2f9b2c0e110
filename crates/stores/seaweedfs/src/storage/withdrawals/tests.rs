use std::sync::Mutex;

use tokio::time::Instant;

use super::*;
use crate::address::ListedAddress;
use crate::storage::AttachedCatalog;
use crate::storage::doubles::{LIST_EVERY, Paper, attachment, listing, start, start_passive, start_with};
use crate::storage::open::Attachment;

#[test]
fn withdrawals_whose_records_were_refused_survive_a_later_restart() {
    let paper = Arc::new(Mutex::new(Paper { refuses: true, ..Paper::default() }));
    let refuse = |refuses| paper.lock().expect("not poisoned").refuses = refuses;
    let recorded = || paper.lock().expect("not poisoned").kept.keys().cloned().collect::<Vec<_>>();
    let shard = ShardName { volume: VolumeName::new("c", 5).expect("a name"), shard: 3 };
    let it = Withdrawal::new(&shard, &ServerId("a:8080".to_owned()));
    {
        let catalog = start(&paper);
        let mut state = catalog.system().known.state();
        state.keep_withdrawal(&it);
        assert_eq!(recorded(), [""; 0]);
        let line = state.unwritten.line().expect("a problem");
        assert!(line.starts_with("1 of the coordinator's records"), "{line}");
        refuse(false);
        state.keep_records([]);
        assert_eq!((recorded(), state.unwritten.line()), (vec![it.key()], None));
    }
    let catalog = start(&paper);
    catalog.system().known.recall_withdrawals().expect("readable");
    let mut state = catalog.system().known.state();
    assert!(state.withdrawals.0.contains_key(&it));
    refuse(true);
    state.forget_withdrawal(&it);
    assert_eq!(recorded(), [it.key()]);
    refuse(false);
    state.keep_records([]);
    assert_eq!(recorded(), [""; 0]);
}

#[test]
fn withdrawals_of_earlier_coordinators_are_left_alone_and_named_in_a_dry_run() {
    let paper = Arc::new(Mutex::new(Paper::default()));
    let shard = ShardName { volume: VolumeName::new("c", 5).expect("a name"), shard: 3 };
    let it = Withdrawal::new(&shard, &ServerId("a".to_owned()));
    start(&paper).system().known.state().keep_withdrawal(&it);
    let catalog = start_passive(&paper);
    let shared = catalog.system();
    shared.known.recall_withdrawals().expect("readable");
    // The server is connected, and the volume does not exist any more, so nothing else prevents the attempt.
    let mut connected = listing(["a"]);
    connected.volumes.clear();
    shared.known.take_all(connected, Instant::now(), LIST_EVERY).expect("recorded");
    catalog.runtime().block_on(withdraw_pending(shared));
    let lines = shared.known.state().withdrawals.lines();
    assert!(lines.len() == 1 && lines[0].ends_with(NOT_AUTOMATIC), "{lines:?}");
    assert!(paper.lock().expect("not poisoned").kept.contains_key(&it.key()));
}

#[test]
fn a_shard_that_is_served_well_ends_its_withdrawal_also_in_a_dry_run() {
    assert_eq!(["", NOT_AUTOMATIC].map(|why| Step::of(true, false, why)), [Step::Forget, Step::Forget]);
    assert_eq!(["", NOT_AUTOMATIC].map(|why| Step::of(false, true, why)), [Step::Try, Step::Wait]);
    assert_eq!(Step::of(false, false, ""), Step::Wait);
}

/// A server is restarted with another `-id`, or without one at another address, and mounts the file of the shard.
#[test]
fn a_withdrawal_follows_its_server_to_another_id() {
    let paper = Arc::new(Mutex::new(Paper::default()));
    let at = |server: &str| {
        let shard = ShardName { volume: VolumeName::new("c", 5).expect("a name"), shard: 3 };
        Withdrawal::new(&shard, &ServerId(server.to_owned()))
    };
    // Starts a coordinator with a `mend.toml` that names the server of the helper like this.
    let begin = |server: &str| {
        let helpers = [(server.to_owned(), "vs-a".to_owned())].into();
        let catalog = start_with(&paper, Attachment { helpers, ..attachment() });
        catalog.system().known.recall_server_ids().expect("readable");
        catalog.system().known.recall_withdrawals().expect("readable");
        catalog
    };
    let connect = |catalog: &AttachedCatalog, server: &str, address: &str| {
        let mut listing = listing([server]);
        let connected = listing.servers.values_mut();
        connected.for_each(|it| it.address = ListedAddress::of(address, 0));
        catalog.system().known.take_all(listing, Instant::now(), LIST_EVERY).expect("recorded");
    };
    let pending = |catalog: &AttachedCatalog| {
        let kept = paper.lock().expect("not poisoned").kept.clone().into_keys();
        let recorded: Vec<String> = kept.filter(|key| key.starts_with(PREFIX)).collect();
        let pending: Vec<Withdrawal> = catalog.system().known.state().withdrawals.0.keys().cloned().collect();
        assert_eq!(recorded, pending.iter().map(Withdrawal::key).collect::<Vec<_>>());
        pending
    };
    {
        let catalog = begin("a:8080");
        connect(&catalog, "a:8080", "a:8080");
        catalog.system().known.state().keep_withdrawal(&at("a:8080"));
        connect(&catalog, "weed-1", "a:8080");
        assert_eq!(pending(&catalog), [at("weed-1")], "it has the same address");
    }
    for server in ["weed-2", "b:8080"] {
        let catalog = begin(server);
        assert_ne!(pending(&catalog), [at(server)]);
        connect(&catalog, server, "b:8080");
        assert_eq!(pending(&catalog), [at(server)]);
    }
}

/// Another client had the lock, and has decoded the volume.
#[test]
fn a_withdrawal_outlives_its_volume() {
    let catalog = start(&Arc::new(Mutex::new(Paper::default())));
    let shared = catalog.system();
    let shard = ShardName { volume: VolumeName::new("c", 5).expect("a name"), shard: 3 };
    let it = Withdrawal::new(&shard, &ServerId("a".to_owned()));
    shared.known.state().keep_withdrawal(&it);
    assert!(!shared.known.state().view.volumes().may_exist(5));
    catalog.runtime().block_on(withdraw_pending(shared));
    assert!(shared.known.state().withdrawals.0.contains_key(&it), "the file may still be on the server");
}
