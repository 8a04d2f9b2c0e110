//! A slow storage, and a failing one.

use crate::commands::{
    CatalogCommand, FileCommand, NetworkCommand, NodeCommand, RepairCommand, ScrubCommand,
};
use views::{AcceptRequest, CapsRequest, CapsView, FileView, NodeView};

use super::*;

impl TestCluster {
    /// Lets the storage resume its work.
    pub(super) fn go_on(&mut self) {
        self.stuck = false;
        self.pump();
        self.play();
    }

    /// Asserts that a restarted coordinator would read the state that the running coordinator has.
    fn check_picture(&mut self) {
        let (listed, stripes) = (self.files(), self.stripe_views());
        let nodes: Vec<NodeView> = self.ask(NodeCommand::List).unwrap();
        let before: Vec<_> =
            nodes.iter().map(|node| (node.name.clone(), node.blocks, node.to_remove)).collect();
        self.restart();
        assert_eq!((self.files(), self.stripe_views()), (listed, stripes));
        let nodes: Vec<NodeView> = self.ask(NodeCommand::List).unwrap();
        let after: Vec<_> =
            nodes.iter().map(|node| (node.name.clone(), node.blocks, node.to_remove)).collect();
        assert_eq!(after, before);
    }

    fn files(&mut self) -> Vec<String> {
        let files = self.ask(|reply| FileCommand::List(String::new(), reply)).unwrap();
        files.into_iter().map(|file| file.name).collect()
    }

    /// Returns the recorded location and state of each block.
    fn stripe_views(&mut self) -> Vec<(String, Option<String>, bool)> {
        let mut all = Vec::new();
        for file in self.files() {
            for stripe in self.file(&file).layout {
                for block in stripe.stripe.blocks {
                    let bad = block.state.name() == "missing" || block.state.name() == "corrupt";
                    all.push((block.block, block.node, bad));
                }
            }
        }
        all
    }
}

#[test]
fn reads_and_heartbeats_continue_while_the_storage_is_stuck() {
    let mut cluster = TestCluster::new(4);
    let file = cluster.put("f", 1);
    cluster.kill(&home(&file, 0));
    cluster.stuck = true;
    let removed = cluster.await_later(|reply| FileCommand::Remove("f".into(), reply));
    assert!(cluster.answered::<FileView>(removed).is_none(), "not before it is stored");
    assert_eq!(cluster.file("f").layout.len(), 1, "nothing is gone before that");
    let stripe = StripeId(cluster.file("f").layout[0].stripe.stripe.clone());
    cluster.read(9, &stripe.0, 0, &[]);
    assert!(cluster.node("admin").closed[&9].is_ok(), "a degraded read needs nothing stored");
    for name in ["h1", "h2", "h3", "h4"] {
        if cluster.core().nodes.registry.named().any(|(_, known)| known == name) && name != home(&file, 0) {
            cluster.say(name, FromNode::Pong { free_bytes: 5, tasks: 0, write_problem: None });
        }
    }
    assert_eq!(cluster.status().helpers.nodes_up.len(), 3);
    cluster.go_on();
    assert!(cluster.answered::<FileView>(removed).unwrap().is_ok());
    assert_eq!(cluster.files(), [""; 0]);
}

#[test]
fn nothing_is_acknowledged_or_removed_before_it_is_stored() {
    let mut cluster = TestCluster::new(4);
    let file = cluster.put("f", 1);
    cluster.stuck = true;
    let removed = cluster.await_later(|reply| FileCommand::Remove("f".into(), reply));
    let again = cluster.await_later(|reply| FileCommand::Remove("f".into(), reply));
    cluster.play();
    assert!(cluster.answered::<FileView>(removed).is_none());
    let name = home(&file, 0);
    assert_eq!(cluster.node(&name).removed, []);
    cluster.go_on();
    assert!(cluster.answered::<FileView>(removed).unwrap().is_ok());
    assert!(matches!(
        cluster.answered::<FileView>(again).unwrap(),
        Err(RequestError::File(FileError::NoSuchFile(_)))
    ));
    cluster.wait(Duration::from_secs(40)); // A reader may still have a lease.
    assert_eq!(cluster.node(&name).removed, [block(&file, 0)]);
    cluster.check_picture();
}

#[test]
fn of_two_puts_with_one_name_only_the_first_commit_succeeds() {
    let mut cluster = TestCluster::new(4);
    let request = || PutRequest {
        name: "f".into(),
        bytes: 0,
        code: None,
        block_bytes: None,
        chunk_bytes: None,
        replace: false,
    };
    let puts = [0, 1].map(|_| {
        cluster.ask(|reply| FileCommand::BeginPut(request(), "client admin".to_owned(), reply)).unwrap()
    });
    cluster.stuck = true;
    let commits = puts.map(|put| cluster.await_later(|reply| FileCommand::CommitPut(PutId(put.put), reply)));
    cluster.go_on();
    let made = commits.map(|commit| cluster.answered::<FileView>(commit).unwrap().is_ok());
    assert_eq!(made, [true, false]);
    assert_eq!(cluster.files(), ["f"]);
    cluster.check_picture();
}

#[test]
fn a_fault_shows_in_the_status_although_nothing_is_written() {
    let mut cluster = TestCluster::new(4);
    cluster.put("f", 1);
    cluster.wait(Duration::from_secs(6));
    assert!(cluster.status().catalog.write_fault.is_none());
    cluster.broken = true;
    cluster.wait(Duration::from_secs(6));
    let fault = cluster.status().catalog.write_fault.unwrap();
    assert!(fault.contains("catalog.redb cannot be used: no storage space"), "{fault}");
    cluster.broken = false;
    cluster.wait(Duration::from_secs(2));
    assert!(cluster.status().catalog.write_fault.is_none());
}

#[test]
fn a_failing_storage_changes_nothing_and_is_retried() {
    let mut cluster = TestCluster::new(5);
    let file = cluster.put("f", 1);
    cluster.broken = true;
    assert!(matches!(
        cluster.ask(|reply| FileCommand::Remove("f".into(), reply)),
        Err(RequestError::Storage(StorageError::Catalog(CatalogError::Storage { fault: Fault::Io(_), .. })))
    ));
    let request = PutRequest {
        name: "g".into(),
        bytes: 1,
        code: None,
        block_bytes: None,
        chunk_bytes: None,
        replace: false,
    };
    assert!(cluster.ask(|reply| FileCommand::BeginPut(request, "client admin".to_owned(), reply)).is_err());
    let all = RepairRequest { all: true, ..RepairRequest::default() };
    assert!(cluster.ask(|reply| RepairCommand::Queue(all.clone().into(), reply)).is_err());
    assert_eq!(cluster.files(), ["f"]);
    cluster.broken = false;
    cluster.wait(Duration::from_secs(2));
    // After the fault, a repair that is queued while the storage is stuck ends once the storage resumes.
    cluster.kill(&home(&file, 0));
    cluster.stuck = true;
    let repair = cluster.await_later(|reply| RepairCommand::Queue(all.into(), reply));
    cluster.go_on();
    let repair = cluster.answered::<RepairView>(repair).unwrap().unwrap();
    cluster.wait(Duration::from_secs(5));
    assert_eq!(cluster.repair_state(repair.repair).state.name(), "done");
    cluster.check_picture();
}

#[test]
fn a_repair_is_not_done_before_its_block_is_recorded() {
    let mut cluster = TestCluster::new(5);
    let file = cluster.put("f", 1);
    cluster.kill(&home(&file, 0));
    let all = RepairRequest { all: true, ..RepairRequest::default() };
    let repair = cluster.ask(|reply| RepairCommand::Queue(all.into(), reply)).unwrap().repair;
    cluster.stuck = true;
    cluster.play();
    cluster.wait(Duration::from_secs(2));
    assert_eq!(cluster.repair_state(repair).state.name(), "running");
    assert_eq!(cluster.repair_state(repair).counts.blocks_rebuilt, 0);
    cluster.broken = true;
    cluster.go_on();
    let state = cluster.repair_state(repair);
    assert_eq!((state.state.name(), state.counts.blocks_rebuilt), ("failed", 0), "it could not be recorded");
    cluster.broken = false;
    cluster.wait(Duration::from_secs(2));
    assert_eq!(states(&cluster.file("f"))[0], "down");
    cluster.check_picture();
}

/// After the fault, neither a helper nor a block changes, so nothing else reminds the scheduler of the repair.
#[test]
fn a_repair_that_waited_for_the_storage_starts_when_the_storage_works_again() {
    let mut cluster = TestCluster::new(5);
    let file = cluster.put("f", 1);
    cluster.kill(&home(&file, 0));
    let first = cluster.ask(|reply| {
        RepairCommand::Queue(RepairRequest { all: true, ..RepairRequest::default() }.into(), reply)
    });
    let stripe = Some(file.layout[0].stripe.stripe.clone());
    let second = cluster.ask(|reply| {
        RepairCommand::Queue(RepairRequest { stripe, ..RepairRequest::default() }.into(), reply)
    });
    let (first, second) = (first.unwrap().repair, second.unwrap().repair);
    cluster.stuck = true;
    cluster.play();
    cluster.wait(Duration::from_secs(2));
    cluster.broken = true;
    cluster.go_on();
    assert_eq!(cluster.repair_state(first).state.name(), "failed", "it could not be recorded");
    cluster.wait(Duration::from_secs(2));
    assert_eq!(cluster.repair_state(second).state.name(), "waiting");
    cluster.broken = false;
    cluster.wait(Duration::from_secs(5));
    assert_eq!(cluster.repair_state(second).state.name(), "done");
    assert!(cluster.status().healthy);
}

#[test]
fn a_helper_that_disconnects_before_it_has_a_number_can_register_again() {
    let mut cluster = TestCluster::new(1);
    cluster.stuck = true;
    cluster.join("h2", helper_role("h2"), hello("h2", &BTreeMap::new()));
    let connection = cluster.node("h2").connection;
    cluster.handle(Event::Left { connection, why: "killed".into() });
    cluster.go_on();
    assert_eq!(cluster.status().helpers.nodes_up, ["h1"]);
    cluster.start("h2");
    assert_eq!(cluster.status().helpers.nodes_up, ["h1", "h2"]);
}

#[test]
fn changes_of_the_store_by_others_are_applied() {
    let mut cluster = TestCluster::new(4);
    let file = cluster.put("f", 1);
    let id = StripeId(file.layout[0].stripe.stripe.clone());
    let mut record = cluster.core().stripes.picture.stripe(&id).unwrap();
    record.blocks[2].state = store_api::BlockState::Corrupt;
    cluster.handle(Event::Changed(vec![store_api::StoreChange::Stripe(record, false)]));
    assert_eq!(states(&cluster.file("f"))[2], "corrupt");
    assert_eq!(cluster.status().stripes.intact, 0);
    cluster.handle(Event::Changed(vec![store_api::StoreChange::StripeGone(id)]));
    assert_eq!(cluster.status().stripes.stripes, 0);
}

#[test]
fn the_last_good_copy_is_kept_while_the_loss_of_the_other_is_in_flight() {
    let mut cluster = TestCluster::new(5);
    let file = cluster.put("f", 1);
    let (name, lost) = (home(&file, 0), block(&file, 0));
    // The block is repaired elsewhere while its home is down. The old home then has a surplus copy.
    cluster.kill(&name);
    let all = RepairRequest { all: true, ..RepairRequest::default() };
    cluster.repair(all);
    let new_home = home(&cluster.file("f"), 0);
    assert_ne!(new_home, name);
    cluster.kill(&new_home);
    cluster.node(&new_home).disk.remove(&lost);
    // The new home returns without the block, and the storage is slow to record this.
    cluster.stuck = true;
    cluster.start(&new_home);
    cluster.start(&name);
    cluster.wait(Duration::from_secs(31));
    assert_eq!(cluster.node(&name).removed, [], "it is the only one");
    cluster.go_on();
    cluster.wait(Duration::from_secs(31));
    assert_eq!(home(&cluster.file("f"), 0), name, "found, and back in its place");
    assert_eq!(states(&cluster.file("f"))[0], "healthy");
    cluster.check_picture();
}

#[test]
fn all_answers_count_losses_that_are_not_stored_yet() {
    let mut cluster = TestCluster::new(4);
    let file = cluster.put("f", 1);
    cluster.stuck = true;
    cluster.rotten.extend([block(&file, 0), block(&file, 1)]);
    cluster.ask(|reply| ScrubCommand::Start(false, reply)).unwrap();
    cluster.play();
    let stripes = cluster.status().stripes;
    assert_eq!((stripes.stripes, stripes.intact, stripes.blocks_lost), (1, 0, 2));
    let class = &stripes.redundancy[..];
    assert_eq!((class.len(), class[0].survives, class[0].stripes, class[0].degraded), (1, 0, 1, 1));
    let now = cluster.file("f");
    assert_eq!(states(&now)[..2], ["corrupt", "corrupt"], "their helpers are up");
    assert_eq!((now.layout[0].stripe.readable, now.layout[0].stripe.survives), (true, 0));
    let third = home(&file, 2);
    let answer = cluster.ask(|reply| NodeCommand::OkToStop(vec![third], 0, reply)).unwrap();
    assert!(!answer.safe && answer.unreadable == 1, "{answer:?}");
    let first = home(&file, 0);
    let answer = cluster.ask(|reply| NodeCommand::SafeToRemove(vec![first], reply)).unwrap();
    assert!(!answer.safe && answer.survives == Some(0), "{answer:?}");
}

/// While the allocation of a stripe is being stored, no job receives its blocks yet.
#[test]
fn a_helper_is_not_safe_to_remove_while_a_stripe_is_being_allocated_on_it() {
    let mut cluster = TestCluster::new(4);
    let put = cluster.begin("f", 8192).unwrap();
    let is_safe = |cluster: &mut TestCluster| {
        cluster.ask(|reply| NodeCommand::SafeToRemove(vec!["h1".into()], reply)).unwrap().safe
    };
    assert!(is_safe(&mut cluster));
    cluster.stuck = true;
    cluster.open(1, ClientRequest::PutStripe { put: put.put, position: 0 });
    assert!(!is_safe(&mut cluster));
}

/// The API does not limit changes that wait for the storage.
#[test]
fn changes_are_refused_while_too_many_wait_for_the_storage() {
    let mut cluster = TestCluster::new(4);
    cluster.stuck = true;
    let refused = (0..5000).find_map(|_| {
        let request = CapsRequest { cluster: Some(1 << 20), ..CapsRequest::default() };
        let asked = cluster.await_later(|reply| NetworkCommand::ChangeCaps(request, reply));
        cluster.answered::<CapsView>(asked)
    });
    let is_behind =
        |error: &RequestError| matches!(error, RequestError::Storage(StorageError::StorageBehind { .. }));
    let error = refused.expect("the number of waiting changes is limited").unwrap_err();
    assert!(is_behind(&error), "{error}");
    let request = AcceptRequest { reject: None };
    let error = cluster.ask(|reply| CatalogCommand::Accept(request, reply)).unwrap_err();
    assert!(is_behind(&error), "{error}");
}
