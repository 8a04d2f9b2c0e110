//! Puts, reads and removals of files.

use super::*;
use crate::commands::{FileCommand, NodeCommand};
use crate::jobs::open_puts::MAX_OPEN_PUTS;

#[test]
fn a_put_is_visible_when_it_is_committed() {
    let mut cluster = TestCluster::new(5);
    let put = cluster.begin("f", 8192 + 1).unwrap();
    let sizes: Vec<_> = put.stripes.iter().map(|stripe| (stripe.block_bytes, stripe.data_bytes)).collect();
    assert_eq!(sizes, [(4096, 8192), (64, 1)]);
    let commit = |reply| FileCommand::CommitPut(PutId(put.put), reply);
    let early = cluster.ask(commit).unwrap_err().to_string();
    assert!(early.contains("lacks the stripe at position 0"), "{early}");
    for position in 0..2 {
        cluster.open(position, ClientRequest::PutStripe { put: put.put, position: position as u32 });
        assert_eq!(cluster.closed(position).unwrap().unwrap().replanned, [""; 0]);
    }
    assert!(cluster.ask(|reply| FileCommand::Layout("f".into(), reply)).is_err(), "not visible yet");
    cluster.ask(commit).unwrap();
    let file = cluster.file("f");
    assert_eq!(file.file.bytes, 8193);
    assert_eq!(states(&file), ["healthy"; 4]);
    let nodes: BTreeSet<_> = (0..4).map(|index| home(&file, index)).collect();
    assert_eq!(nodes.len(), 4, "one block to a node");
    assert_eq!(file.layout[1].file_offset, 8192);
    let taken = cluster.begin("f", 1).unwrap_err();
    assert!(taken.to_string().contains("there is a file `f` already"), "{taken}");
}

#[test]
fn an_empty_file_has_no_stripes() {
    let mut cluster = TestCluster::new(0);
    let put = cluster.begin("empty", 0).unwrap();
    assert!(put.stripes.is_empty());
    cluster.ask(|reply| FileCommand::CommitPut(PutId(put.put), reply)).unwrap();
    assert!(cluster.file("empty").layout.is_empty());
    assert!(cluster.status().summary.starts_with("safe  nothing is stored"));
}

#[test]
fn a_put_with_too_few_helpers_is_refused_with_the_absent_ones() {
    let mut cluster = TestCluster::new(4);
    cluster.kill("h3");
    let error = cluster.begin("f", 1).unwrap_err();
    assert_eq!(
        error.to_string(),
        "rs-4-2 needs 4 helpers that are up and have 64B free each, but only 3 qualify; down: h3"
    );
}

/// Two helpers return with each other's disks. Their blocks are found on them, so they have a disk.
#[test]
fn helpers_that_exchanged_their_disks_take_new_blocks_at_once() {
    let mut cluster = TestCluster::new(4);
    cluster.put("f", 8);
    cluster.kill("h1");
    cluster.kill("h2");
    let first = std::mem::take(&mut cluster.node("h1").disk);
    let second = std::mem::replace(&mut cluster.node("h2").disk, first);
    assert_eq!(second.len(), 8);
    cluster.node("h1").disk = second;
    cluster.start("h1");
    cluster.start("h2");
    cluster.wait(Duration::from_secs(20));
    assert!(cluster.status().summary.starts_with("safe"), "{}", cluster.status().summary);
    cluster.put("g", 1);
    // A helper whose disk is not mounted has no blocks, and takes none.
    cluster.kill("h1");
    let disk = std::mem::take(&mut cluster.node("h1").disk);
    cluster.start("h1");
    cluster.wait(Duration::from_secs(20));
    let error = cluster.begin("h", 1).unwrap_err().to_string();
    assert!(error.contains("returned without most of its blocks: h1"), "{error}");
    cluster.kill("h1");
    cluster.node("h1").disk = disk;
    cluster.start("h1");
    cluster.wait(Duration::from_secs(20));
    cluster.put("h", 1);
}

#[test]
fn bad_puts_are_refused_with_the_nearest_valid_values() {
    let mut cluster = TestCluster::new(4);
    let mut refused = |code: &str, block_bytes| {
        let (code, block_bytes) = (Some(code.to_owned()), Some(block_bytes));
        let request =
            PutRequest { name: "f".into(), bytes: 1, code, block_bytes, chunk_bytes: None, replace: false };
        let error = cluster
            .ask(|reply| FileCommand::BeginPut(request, "client admin".to_owned(), reply))
            .unwrap_err();
        format!("{error}; {}", error.next_step())
    };
    for (code, block_bytes, expected) in [
        ("rs-4-4", 4096, "must be more than the k = 4"),
        ("rs-256-10", 4096, "at most 255 blocks"),
        ("raid5", 4096, "no code `raid5`"),
        ("rs-4-2", 0, "smallest possible size is 4096"),
        ("rs-4-2", 5000, "nearest possible sizes are 4096 and 8192"),
    ] {
        let text = refused(code, block_bytes);
        assert!(text.contains(expected), "{text}");
    }
}

#[test]
fn a_member_has_a_limited_number_of_open_puts() {
    let mut cluster = TestCluster::new(4);
    let begin = |number: usize, member: &str| {
        let request = PutRequest {
            name: format!("f{number}"),
            bytes: 0,
            code: None,
            block_bytes: None,
            chunk_bytes: None,
            replace: false,
        };
        let member = member.to_owned();
        move |reply| FileCommand::BeginPut(request, member, reply)
    };
    let puts: Vec<PutView> =
        (0..MAX_OPEN_PUTS).map(|number| cluster.ask(begin(number, "client ann")).unwrap()).collect();
    let error = cluster.ask(begin(MAX_OPEN_PUTS, "client ann")).unwrap_err().to_string();
    assert!(error.contains("client ann has 1024 open puts"), "{error}");
    cluster.ask(begin(MAX_OPEN_PUTS, "client bob")).unwrap();
    cluster.ask(|reply| FileCommand::AbortPut(PutId(puts[0].put), reply)).unwrap();
    // There is room for one put. One whose beginning is being stored takes it.
    cluster.stuck = true;
    let begun = [0, 1].map(|number| cluster.await_later(begin(number, "client ann")));
    cluster.go_on();
    let begun = begun.map(|request| cluster.answered::<PutView>(request).unwrap().is_ok());
    assert_eq!(begun, [true, false]);
}

#[test]
fn every_accepted_file_has_a_layout_that_clients_accept() {
    let mut cluster = TestCluster::new(6);
    let code = "rs-4-2";
    let begin = |block_bytes, bytes| {
        let (code, block_bytes) = (Some(code.to_owned()), Some(block_bytes));
        let request =
            PutRequest { name: "f".into(), bytes, code, block_bytes, chunk_bytes: None, replace: false };
        move |reply| FileCommand::BeginPut(request, "client admin".to_owned(), reply)
    };
    // The longest entry of a layout: every name and number has its maximum length.
    let name = || "n".repeat(63);
    let block = views::BlockView {
        block: format!("{}-{}.{}", u64::MAX, "0".repeat(8), u16::MAX),
        index: u16::MAX,
        bytes: u64::MAX,
        node: Some(name()),
        state: views::BlockState::OutOfReach,
        digest: Some(format!("blake3:{}", "0".repeat(64))),
        replicas: Vec::new(),
    };
    let stripe = views::FileStripe {
        position: u64::MAX,
        file_offset: u64::MAX,
        data_bytes: u64::MAX,
        stripe: views::StripeView {
            stripe: format!("{}-{}", u64::MAX, "0".repeat(8)),
            code: name(),
            block_bytes: u64::MAX,
            chunk_bytes: Some(u64::MAX),
            readable: false,
            survives: u32::MAX,
            helpers: u32::MAX,
            blocks: vec![block; 6],
        },
    };
    let stripe_json = serde_json::to_vec(&stripe).unwrap().len() + 1;
    let most = (views::MAX_ANSWER_BYTES / stripe_json) as u64;
    let error = cluster.ask(begin(4096, most * 4 * 4096)).unwrap_err();
    let (text, next_step) = (error.to_string(), error.next_step());
    assert!(text.contains("the limit with this code is"), "{text}");
    assert!(next_step.contains("--block-size 8KiB"), "{next_step}");
    cluster.ask(begin(8192, most * 4 * 4096)).unwrap();
}

#[test]
fn an_aborted_put_leaves_no_blocks() {
    let mut cluster = TestCluster::new(4);
    let put = cluster.begin("f", 8192).unwrap().put;
    cluster.open(1, ClientRequest::PutStripe { put, position: 0 });
    assert!(cluster.nodes.values().filter(|node| !node.disk.is_empty()).count() == 4);
    cluster.ask(|reply| FileCommand::AbortPut(PutId(put), reply)).unwrap();
    cluster.play();
    assert!(cluster.nodes.values().all(|node| node.disk.is_empty()));
    assert!(cluster.ask(|reply| FileCommand::CommitPut(PutId(put), reply)).is_err());
    assert!(
        cluster.ask(NodeCommand::List).unwrap().iter().all(|node| node.blocks == 0 && node.to_remove == 0)
    );
}

#[test]
fn a_put_is_aborted_after_its_client_disconnects() {
    let mut cluster = TestCluster::new(4);
    let put = cluster.begin("f", 8192 * 2).unwrap().put;
    cluster.open(1, ClientRequest::PutStripe { put, position: 0 });
    cluster.frozen.insert("h1".into());
    cluster.open(2, ClientRequest::PutStripe { put, position: 1 });
    cluster.kill("admin");
    cluster.frozen.clear();
    assert!(cluster.status().work.jobs.is_empty());
    cluster.wait(Duration::from_secs(11));
    assert!(cluster.nodes.values().all(|node| node.disk.is_empty()));
    assert!(cluster.ask(|reply| FileCommand::AbortPut(PutId(put), reply)).is_err());
}

#[test]
fn a_helper_that_dies_in_a_put_is_replaced() {
    let mut cluster = TestCluster::new(5);
    let put = cluster.begin("f", 8192).unwrap().put;
    for name in ["h1", "h2", "h3", "h4", "h5"] {
        cluster.frozen.insert(name.into());
    }
    cluster.open(1, ClientRequest::PutStripe { put, position: 0 });
    let victim = ["h1", "h2", "h3"].into_iter().find(|name| cluster.nodes[*name].is_assigned()).unwrap();
    cluster.frozen.clear();
    cluster.kill(victim);
    cluster.wait(Duration::from_secs(20));
    let ended = cluster.closed(1).unwrap().unwrap();
    assert!(!ended.replanned.is_empty());
    cluster.ask(|reply| FileCommand::CommitPut(PutId(put), reply)).unwrap();
    let file = cluster.file("f");
    assert_eq!(states(&file), ["healthy"; 4]);
    assert!((0..4).all(|index| home(&file, index) != victim));
}

/// All helpers are up again when the client commits, but their disks are not mounted.
#[test]
fn a_put_whose_blocks_are_lost_before_the_commit_is_refused() {
    let mut cluster = TestCluster::new(4);
    let put = cluster.begin("f", 8192).unwrap().put;
    cluster.open(1, ClientRequest::PutStripe { put, position: 0 });
    cluster.closed(1).unwrap().unwrap();
    for name in ["h1", "h2", "h3"] {
        cluster.kill(name);
        cluster.node(name).disk.clear();
        cluster.start(name);
    }
    cluster.play();
    let error = cluster.ask(|reply| FileCommand::CommitPut(PutId(put), reply)).unwrap_err();
    assert!(error.to_string().contains("cannot be read any more; helpers have lost"), "{error}");
}

#[test]
fn a_removed_file_leaves_no_blocks_even_on_a_helper_that_was_down() {
    let mut cluster = TestCluster::new(4);
    cluster.put("f", 2);
    cluster.kill("h2");
    cluster.ask(|reply| FileCommand::Remove("f".into(), reply)).unwrap();
    cluster.play();
    assert_eq!(cluster.node("h2").disk.len(), 2);
    cluster.start("h2");
    cluster.wait(Duration::from_secs(40)); // A reader may still have a lease.
    assert!(cluster.nodes.values().all(|node| node.disk.is_empty()));
    assert!(cluster.status().catalog.orphans.is_empty());
}

/// The helper removed the block while its disk was not mounted, and the storage records this slowly.
#[test]
fn a_block_that_returns_while_its_removal_is_recorded_is_an_orphan() {
    let mut cluster = TestCluster::new(4);
    let file = cluster.put("f", 1);
    let (home, removed) = (home(&file, 0), block(&file, 0));
    let disk = cluster.node(&home).disk.clone();
    cluster.ask(|reply| FileCommand::Remove("f".into(), reply)).unwrap();
    cluster.frozen.insert(home.clone());
    cluster.wait(Duration::from_secs(40)); // A reader may still have a lease.
    cluster.stuck = true;
    cluster.frozen.clear();
    cluster.play();
    assert_eq!(cluster.node(&home).removed, std::slice::from_ref(&removed));
    cluster.kill(&home);
    cluster.node(&home).disk = disk;
    cluster.start(&home);
    assert_eq!(cluster.node(&home).removed, [], "it is removed only as an orphan");
    cluster.go_on();
    let orphans = cluster.status().catalog.orphans;
    let told: Vec<(&str, &str)> = orphans.iter().map(|it| (&it.node[..], &it.block[..])).collect();
    assert_eq!(told, [(&home[..], &removed.0[..])]);
}

/// Returns a cluster in which h2 has an orphan that may be removed, and does not answer.
fn with_an_orphan() -> TestCluster {
    let mut cluster = TestCluster::new(4);
    let file = cluster.put("f", 1);
    cluster.ask(|reply| FileCommand::Remove("f".into(), reply)).unwrap();
    cluster.wait(Duration::from_secs(1));
    cluster.kill("h2");
    cluster.node("h2").disk.insert(block(&file, 0), 4096);
    cluster.frozen.insert("h2".to_owned());
    cluster.start("h2");
    cluster.wait(Duration::from_secs(60));
    cluster
}

/// Returns the numbers of the queries to h2 to describe its blocks.
fn description_asks(cluster: &mut TestCluster) -> Vec<u64> {
    let asks = |message: &ToNode| if let ToNode::Describe { ask } = message { Some(*ask) } else { None };
    cluster.node("h2").backlog.iter().filter_map(asks).collect()
}

/// A helper with many blocks needs long for their description.
#[test]
fn a_helper_describes_its_blocks_for_one_query_at_a_time() {
    let mut cluster = with_an_orphan();
    assert_eq!(description_asks(&mut cluster).len(), 1);
}

/// Its disk fails, and each description reads all checksum files.
#[test]
fn a_helper_with_an_incomplete_description_of_its_orphans_is_not_asked_again() {
    let mut cluster = with_an_orphan();
    let asks = description_asks(&mut cluster);
    cluster.say("h2", FromNode::Described { ask: asks[0], blocks: Vec::new(), last: false });
    cluster.wait(Duration::from_secs(200));
    assert_eq!(description_asks(&mut cluster), asks);
}

// ---- reads ----

#[test]
fn a_read_uses_the_scheme_only_for_lost_blocks() {
    let mut cluster = TestCluster::new(4);
    let file = cluster.put("f", 1);
    let stripe = file.layout[0].stripe.stripe.clone();
    let helpers = |cluster: &TestCluster| {
        cluster.nodes.iter().filter(|(name, node)| *name != "admin" && !node.assigned.is_empty()).count()
    };
    let clear = |cluster: &mut TestCluster| cluster.nodes.values_mut().for_each(|node| node.assigned.clear());

    clear(&mut cluster);
    cluster.read(1, &stripe, 0, &[]);
    assert!(cluster.closed(1).unwrap().is_ok());
    assert_eq!(helpers(&cluster), 1);

    clear(&mut cluster);
    cluster.read(2, &stripe, 0, &[0]);
    assert!(cluster.closed(2).unwrap().is_ok());
    assert_eq!(helpers(&cluster), 2);

    cluster.read(3, &stripe, 0, &[0, 1, 2]);
    let error = cluster.closed(3).unwrap().unwrap_err();
    assert!(matches!(error, RequestFailure::TooMuchLost { .. }), "{error:?}");
    assert!(error.to_string().contains("2 blocks are needed and only 1 are available"), "{error}");
    cluster.read(4, &stripe, 9, &[]);
    let error = cluster.closed(4).unwrap().unwrap_err();
    assert!(matches!(error, RequestFailure::Refused { .. }), "{error:?}");
    assert!(error.to_string().contains("has blocks b0 to b3, but no b9"), "{error}");
}
