use std::time::{Duration, Instant};

use super::*;
use crate::address::ListedAddress;
use crate::listing::{Disk, Holding, Server};

const RATIO: (u32, u32) = (2, 1);

/// Builds a listing of servers, and of shards of volume 5 in encoding 1, written `server.shard`. A shard has
/// 100 bytes unless `/bytes` follows.
fn listing(servers: &str, shards: &str) -> Listing {
    let mut listing = Listing::default();
    for name in servers.split_whitespace() {
        let address = ListedAddress::of(&format!("{name}:8080"), 0);
        let disks = [(0, Disk { kind: String::new() })].into();
        let (data_center, rack) = ("d".to_owned(), "r".to_owned());
        let server =
            Server { address, data_center, rack, disks, free_volumes: 5, plain_volumes: BTreeSet::new() };
        listing.servers.insert(ServerId(name.to_owned()), server);
    }
    for shard in shards.split_whitespace() {
        let (server, shard) = shard.split_once('.').expect("a shard");
        let (shard, bytes) = shard.split_once('/').unwrap_or((shard, "100"));
        listing.volumes.entry(5).or_default().push(Holding {
            server: ServerId(server.to_owned()),
            disk: 0,
            collection: "c".to_owned(),
            encoding: Encoding(1),
            shards: [(shard.parse().expect("a number"), bytes.parse().expect("a number"))].into(),
        });
    }
    listing
}

/// Returns a view in which servers `a`, `b` and `c` are nodes 0, 1 and 2.
fn view(servers: &str, shards: &str) -> ClusterView {
    view_of(RATIO, servers, shards)
}

/// Like [`view`], with these numbers of data and parity shards.
fn view_of((data, parity): (u32, u32), servers: &str, shards: &str) -> ClusterView {
    let mut view = ClusterView::default();
    for (name, node) in ["a", "b", "c"].into_iter().zip(0..) {
        view.number(ServerId(name.to_owned()), NodeId(node));
    }
    view.list(listing(servers, shards));
    let ratio = Ratio::new(data, parity).expect("possible");
    let digests = (0..data + parity).map(|shard| Digest::of_u32("ecsum", shard)).collect();
    view.learn(5, Encoding(1), Known { ratio, shard_bytes: 100, digests });
    view
}

/// Returns the reported stripe as text: for each shard `node:state`, with several copies joined by `+`.
fn told(view: &ClusterView) -> String {
    let Some(stripe) = view.stripe(5) else { return "nothing".to_owned() };
    let holder = |holder: Replica| format!("{}:{:?}", holder.node.0, holder.state);
    let block = |block: &BlockRecord| block.holders().map(holder).collect::<Vec<_>>().join("+");
    stripe.blocks.iter().map(block).collect::<Vec<_>>().join(" ")
}

#[test]
fn a_volume_is_a_stripe() {
    let view = view("a b c", "a.0 b.1 c.2");
    let stripe = view.stripe(5).expect("it is known");
    assert_eq!((stripe.id.0.as_str(), stripe.code.to_string().as_str()), ("c_5", "rs-3-2-vandermonde"));
    let block = &stripe.blocks[1];
    assert_eq!(
        (block.id.0.as_str(), block.bytes, block.digest),
        ("c_5.ec01", 100, Some(Digest::of_u32("ecsum", 1)))
    );
    assert_eq!(told(&view), "0:Healthy 1:Healthy 2:Healthy");
    assert_eq!((view.volume_of(&stripe.id), view.volume_of(&StripeId("d_5".into()))), (Some(5), None));
}

#[test]
fn a_volume_whose_collection_has_a_long_name_is_a_stripe() {
    let (mut view, mut listing) = (view("a b c", ""), listing("a b c", "a.0 b.1 c.2"));
    let collection = "x".repeat(240);
    listing.volumes.values_mut().flatten().for_each(|holding| holding.collection.clone_from(&collection));
    view.list(listing);
    view.learn(5, Encoding(1), known());
    let stripe = view.stripe(5).expect("its name fits a file system");
    assert_eq!((&stripe.id.0, view.volume_of(&stripe.id)), (&format!("{collection}_5"), Some(5)));
}

#[test]
fn a_shard_is_missing_when_its_server_says_so() {
    let mut view = view("a b c", "a.0 b.1 c.2");
    view.list(listing("a b c", "a.0 b.1"));
    assert_eq!(told(&view), "0:Healthy 1:Healthy 2:Healthy", "it may only not be listed yet");
    assert_eq!(view.unconfirmed(), [(5, Encoding(1), 2, ServerId("c".into()))]);
    view.confirm([(5, Encoding(1), 2)]);
    assert_eq!((told(&view).as_str(), view.unconfirmed().len()), ("0:Healthy 1:Healthy 2:Missing", 0));
    // If a copy on another server is lost later, that server must confirm the loss too.
    view.list(listing("a b c", "a.0 b.1 a.2"));
    assert_eq!(told(&view), "0:Healthy 1:Healthy 0:Healthy");
    view.list(listing("a b c", "a.0 b.1"));
    assert_eq!((told(&view).as_str(), view.unconfirmed().len()), ("0:Healthy 1:Healthy 0:Healthy", 1));
}

/// The master lists the server without the shard, and Mend cannot reach the server.
#[test]
fn a_shard_that_nobody_vouches_for_is_missing_after_a_while() {
    let mut view = view("a b c", "a.0 b.1 c.2");
    view.list(listing("a b c", "a.0 b.1"));
    let start = Instant::now();
    let lost = (5, Encoding(1), 2);
    let note = |view: &mut ClusterView, silent: &[Lost], seconds: u64| {
        let now = start + Duration::from_secs(seconds);
        view.unlisted.note_silent(&silent.iter().copied().collect(), now).into_iter().collect::<Vec<_>>()
    };
    assert_eq!(note(&mut view, &[lost], 0), [0; 0]);
    assert_eq!(note(&mut view, &[lost], 59), [0; 0]);
    assert_eq!(told(&view), "0:Healthy 1:Healthy 2:Healthy", "the server may be busy");
    assert_eq!(note(&mut view, &[lost], 60), [5]);
    assert_eq!(told(&view), "0:Healthy 1:Healthy 2:Missing");
    view.list(listing("a b c", ""));
    view.confirm([0, 1].map(|shard| (5, Encoding(1), shard)));
    assert!(view.volumes().may_exist(5), "its server has not confirmed that the volume is gone");
    view.list_some(&[5], listing("a b c", "a.0 b.1"));
    assert_eq!(
        (told(&view).as_str(), note(&mut view, &[lost], 61)),
        ("0:Healthy 1:Healthy 2:Missing", vec![])
    );
    // It answers that it has the shard.
    assert_eq!(note(&mut view, &[], 62), [5]);
    assert_eq!(told(&view), "0:Healthy 1:Healthy 2:Healthy");
    assert_eq!(note(&mut view, &[lost], 63), [0; 0], "its silence begins again");
    assert_eq!(note(&mut view, &[lost], 123), [5]);
    view.list_some(&[5], listing("a b c", "a.0 b.1 c.2"));
    view.list_some(&[5], listing("a b c", "a.0 b.1"));
    assert_eq!(told(&view), "0:Healthy 1:Healthy 2:Healthy", "it was listed in between");
}

/// The servers of the current encoding are down, a server with shards of an earlier one has returned, and the
/// coordinator was restarted.
#[test]
fn an_outdated_encoding_is_not_taken_for_the_current_one_after_a_restart() {
    let home = |server: &str| Home { server: ServerId(server.to_owned()), disk: 0, bytes: 100 };
    let homes = [(0, home("x")), (1, home("y")), (2, home("z"))].into();
    let mut view = ClusterView::default();
    for (name, node) in ["a", "b", "c", "x", "y", "z"].into_iter().zip(0..) {
        view.number(ServerId(name.to_owned()), NodeId(node));
    }
    view.recall_told(5, Encoding(2), "c");
    view.recall(5, Encoding(2), Kept { collection: "c".to_owned(), homes, ..Kept::default() });
    view.list(listing("a b c", "a.0 b.1 c.2"));
    view.learn(5, Encoding(1), known());
    assert_eq!(told(&view), "nothing", "the recorded encoding may be the current one");
    let unjudged = super::super::judging::unjudged(view.volumes(), view.files());
    assert!(unjudged[0].why.contains("encodeTsNs 2: none listed, last on x, y, z"), "{}", unjudged[0].why);
    // The servers of the recorded encoding return, and deny that they have it.
    view.list(listing("a b c x y z", "a.0 b.1 c.2"));
    assert_eq!(view.unconfirmed().len(), 3);
    view.confirm([0, 1, 2].map(|shard| (5, Encoding(2), shard)));
    assert_eq!(told(&view), "0:Healthy 1:Healthy 2:Healthy");
}

/// A volume server was restarted with `-id`, and has lost a shard.
#[test]
fn a_server_that_gets_another_id_keeps_its_node_and_is_asked_for_its_shards() {
    let mut view = view("a b c", "a.0 b.1 c.2");
    view.list(listing("a b", "a.0 b.1"));
    view.list(listing("a b x", "a.0 b.1"));
    let server = ServerId("x".into());
    view.number(server.clone(), NodeId(2));
    assert_eq!(view.nodes().server(NodeId(2)), Some(&server));
    assert_eq!(told(&view), "0:Healthy 1:Healthy 2:Healthy", "its shards may be listed a moment later");
    assert_eq!(view.unconfirmed(), [(5, Encoding(1), 2, server)]);
    view.confirm([(5, Encoding(1), 2)]);
    assert_eq!(told(&view), "0:Healthy 1:Healthy 2:Missing");
}

#[test]
fn a_disconnected_server_keeps_its_shards_and_is_out_of_service() {
    let mut view = view("a b c", "a.0 b.1 c.2");
    assert_eq!(view.tell_service().len(), 3);
    view.list(listing("a b", "a.0 b.1"));
    assert_eq!((told(&view).as_str(), view.unconfirmed().len()), ("0:Healthy 1:Healthy 2:Healthy", 0));
    assert_eq!(view.tell_service(), [StoreChange::Service(NodeId(2), false)]);
    assert_eq!(view.tell_service(), []);
}

#[test]
fn of_two_copies_the_one_on_the_emptier_server_is_kept() {
    let mut view = view("a b c", "a.0 a.1 b.1 c.2");
    assert_eq!(told(&view), "0:Healthy 1:Healthy+0:Healthy 2:Healthy");
    let stripe = StripeId("c_5".into());
    view.set_state(&stripe, BlockIndex(1), NodeId(1), BlockState::Corrupt);
    assert_eq!(
        told(&view),
        "0:Healthy 0:Healthy+1:Corrupt 2:Healthy",
        "a bad one never is the one that counts"
    );
    // A copy that is unlisted and listed again is still bad: its server was restarted or has mounted the same
    // file again.
    view.list(listing("a b c", "a.0 a.1 c.2"));
    assert_eq!(told(&view), "0:Healthy 0:Healthy 2:Healthy");
    view.list(listing("a b c", "a.0 a.1 b.1 c.2"));
    assert_eq!(told(&view), "0:Healthy 0:Healthy+1:Corrupt 2:Healthy");
    view.set_state(&stripe, BlockIndex(1), NodeId(1), BlockState::Healthy);
    assert_eq!(told(&view), "0:Healthy 1:Healthy+0:Healthy 2:Healthy");
}

#[test]
fn of_two_copies_the_original_is_kept() {
    let mut view = view("a b c", "a.0 b.1 c.2");
    view.list(listing("a c", "a.0 c.2"));
    view.list(listing("a c", "a.0 c.1 c.2"));
    view.list(listing("a b c", "a.0 b.1 c.1 c.2"));
    assert_eq!(told(&view), "0:Healthy 1:Healthy+2:Healthy 2:Healthy");
}

/// `ec.balance` copies a shard as it is, and then removes the original. A listing may contain both.
#[test]
fn a_corrupt_shard_that_moves_stays_corrupt() {
    let mut view = view("a b c", "a.0 b.1 c.2");
    find(&mut view, &[1], BlockState::Corrupt);
    view.list_some(&[5], listing("a b c", "a.0 b.1 c.1 c.2"));
    assert_eq!(told(&view), "0:Healthy 1:Corrupt+2:Corrupt 2:Healthy");
    view.list(listing("a b c", "a.0 c.1 c.2"));
    assert_eq!(told(&view), "0:Healthy 2:Corrupt 2:Healthy");
    let record = |node| (StripeId("c_5@1".into()), BlockIndex(1), NodeId(node), BlockState::Corrupt);
    assert_eq!(view.inferred_marks(), [record(2)]);
    view.note_recorded();
    view.list(listing("a b c", "a.0 a.1 c.2"));
    assert_eq!(told(&view), "0:Healthy 0:Corrupt 2:Healthy");
    assert_eq!(view.inferred_marks(), [record(0)]);
    view.set_state(&StripeId("c_5".into()), BlockIndex(1), NodeId(0), BlockState::Healthy);
    assert_eq!(view.inferred_marks(), [], "it was rebuilt before the mark could be recorded");
}

/// `ec.balance` or `volumeServer.evacuate` ran while the coordinator was down, after which the former server may be gone.
#[test]
fn a_corrupt_shard_that_moved_during_downtime_stays_corrupt() {
    let home = |server: &str| Home { server: ServerId(server.to_owned()), disk: 0, bytes: 100 };
    let begun = |servers: &[(&str, u32)], recorded: &str, shards: &str| {
        let mut view = ClusterView::default();
        let homes = [(0, home("a")), (1, home(recorded)), (2, home("c"))].into();
        view.recall(5, Encoding(1), Kept { collection: "c".to_owned(), homes, ..Kept::default() });
        let mark = (StripeId("c_5@1".into()), BlockIndex(1), NodeId(1), BlockState::Corrupt);
        view.recall_mark(mark);
        let connected: Vec<&str> = servers.iter().map(|&(name, _)| name).collect();
        view.list(listing(&connected.join(" "), shards));
        servers.iter().for_each(|&(name, node)| view.number(ServerId(name.to_owned()), NodeId(node)));
        view.follow_unseen_moves();
        view.learn(5, Encoding(1), known());
        (told(&view), view.inferred_marks().len())
    };
    let (all, without_b) = ([("a", 0), ("b", 1), ("c", 2)], [("a", 0), ("c", 2)]);
    let moved = ("0:Healthy 2:Corrupt 2:Healthy".to_owned(), 1);
    assert_eq!(begun(&all, "b", "a.0 c.1 c.2"), moved);
    assert_eq!(begun(&without_b, "b", "a.0 c.1 c.2"), moved);
    let stayed = ("0:Healthy 1:Corrupt 2:Healthy".to_owned(), 0);
    assert_eq!(begun(&all, "b", "a.0 b.1 c.2"), stayed);
    let rebuilt = ("0:Healthy 2:Healthy 2:Healthy".to_owned(), 0);
    assert_eq!(begun(&all, "c", "a.0 c.1 c.2"), rebuilt, "the corrupt copy on `b` was not removed yet");
    let moved_again = ("0:Healthy 0:Healthy 2:Healthy".to_owned(), 0);
    assert_eq!(begun(&all, "c", "a.0 a.1 c.2"), moved_again, "the copy on `c` was good");
}

/// The corrupt shard is unmounted only once the rebuilt one is served.
#[test]
fn a_shard_that_mend_rebuilds_elsewhere_is_no_copy_of_the_corrupt_one() {
    let mut view = view("a b c", "a.0 b.1 c.2");
    find(&mut view, &[1], BlockState::Corrupt);
    let copy = (StripeId("c_5".into()), BlockIndex(1), NodeId(2));
    view.begin_publication(copy.clone());
    view.list_some(&[5], listing("a b c", "a.0 b.1 c.1 c.2"));
    view.end_publication(&copy);
    view.list(listing("a b c", "a.0 b.1 c.1 c.2"));
    assert_eq!(told(&view), "0:Healthy 2:Healthy+1:Corrupt 2:Healthy");
    assert_eq!(view.inferred_marks(), []);
    // Then SeaweedFS moves the corrupt one.
    view.list(listing("a b c", "a.0 b.1 c.2"));
    view.list(listing("a b c", "a.0 a.1 c.2"));
    assert_eq!(told(&view), "0:Healthy 0:Corrupt 2:Healthy");
}

/// The corrupt shard on `b` stays listed while Mend unmounts the good one on `c` for a moment, twice: for each disk.
#[test]
fn a_shard_that_mend_mounts_again_is_no_copy_of_the_corrupt_one() {
    let mut view = view("a b c", "a.0 b.1 c.1 c.2");
    find(&mut view, &[1], BlockState::Corrupt);
    let (server, whole) = (ServerId("c".to_owned()), "a.0 b.1 c.1 c.2");
    view.begin_unmount(5, &server, &[1, 2]);
    for shards in ["a.0 b.1", whole, "a.0 b.1"] {
        view.list_some(&[5], listing("a b c", shards));
    }
    view.end_unmount(5, &server, &BTreeMap::<u8, String>::new());
    view.list(listing("a b c", "a.0 b.1")); // The master lists the mounted shards late.
    view.list(listing("a b c", whole));
    assert_eq!(told(&view), "0:Healthy 2:Healthy+1:Corrupt 2:Healthy");
    assert_eq!(view.inferred_marks(), []);
    // Then SeaweedFS removes the good one, and copies the corrupt one there.
    view.list(listing("a b c", "a.0 b.1 c.2"));
    view.list(listing("a b c", whole));
    assert_eq!(told(&view), "0:Healthy 1:Corrupt+2:Corrupt 2:Healthy");
}

/// Mend could not mount the shard on `c` again. Later SeaweedFS copies the corrupt one there.
#[test]
fn a_shard_that_mend_could_not_mount_again_may_be_a_copy_of_the_corrupt_one() {
    let mut view = view("a b c", "a.0 b.1 c.1 c.2");
    find(&mut view, &[1], BlockState::Corrupt);
    let server = ServerId("c".to_owned());
    view.begin_unmount(5, &server, &[1, 2]);
    view.list_some(&[5], listing("a b c", "a.0 b.1"));
    view.end_unmount(5, &server, &BTreeMap::from([(1, "a disk error")]));
    view.list(listing("a b c", "a.0 b.1 c.2"));
    view.list(listing("a b c", "a.0 c.1 c.2"));
    assert_eq!(told(&view), "0:Healthy 2:Corrupt 2:Healthy");
}

/// Server `b` was away while its shard was rebuilt on `c`, and the rebuilt one has rotted.
#[test]
fn the_shard_of_a_returning_server_is_no_copy_of_a_corrupt_one() {
    let mut view = view("a b c", "a.0 b.1 c.2");
    view.list(listing("a c", "a.0 c.2"));
    view.list(listing("a c", "a.0 c.1 c.2"));
    view.set_state(&StripeId("c_5".into()), BlockIndex(1), NodeId(2), BlockState::Corrupt);
    view.list(listing("a b c", "a.0 c.1 c.2")); // A master lists a server before its shards.
    view.list(listing("a b c", "a.0 b.1 c.1 c.2"));
    assert_eq!(told(&view), "0:Healthy 1:Healthy+2:Corrupt 2:Healthy");
    assert_eq!(view.inferred_marks(), []);
}

#[test]
fn a_server_serves_a_volume_if_listed_with_a_shard() {
    let view = view("a b c", "a.0 b.1");
    let served = |server: &str, volume: u32| view.volumes().serves(volume, &ServerId(server.into()));
    assert_eq!((served("a", 5), served("b", 5), served("c", 5), served("a", 6)), (true, true, false, false));
}

#[test]
fn a_short_listed_length_marks_a_shard_corrupt() {
    assert_eq!(told(&view("a b c", "a.0/99 b.1 c.2/0")), "0:Corrupt 1:Healthy 2:Healthy");
}

#[test]
fn deleted_stripes_are_reported_and_unread_ones_are_not() {
    let mut view = view("a b c", "a.0 b.1 c.2");
    let stripe = view.stripe(5).expect("it is known");
    assert_eq!(view.tell([5]), [StoreChange::Stripe(stripe.clone(), false)]);
    view.set_state(&stripe.id, BlockIndex(1), NodeId(1), BlockState::Corrupt);
    view.list(listing("a b c", ""));
    assert_eq!(told(&view), "0:Healthy 1:Healthy 2:Healthy", "a master that was restarted lists it later");
    view.confirm([0, 1].map(|shard| (5, Encoding(1), shard)));
    assert_eq!(told(&view), "0:Missing 1:Missing 2:Healthy");
    view.confirm([(5, Encoding(1), 2)]);
    assert_eq!(view.tell([5]), [StoreChange::StripeGone(stripe.id.clone())]);
    let records = ["c_5@1", "c_5"].map(|name| (StripeId(name.into()), BlockIndex(1), NodeId(1)));
    assert_eq!(view.take_gone(), records, "also the one that an earlier version would have written");
    view.list(listing("a b c", "a.0 b.1 c.2"));
    assert_eq!(
        (told(&view).as_str(), view.files().unknown(view.volumes())),
        ("nothing", vec![(5, Encoding(1))]),
        "it may be another one"
    );
}

/// Returns a listing in which all three shards have encoding 2.
fn encoded_again() -> Listing {
    let mut listing = listing("a b c", "a.0 b.1 c.2");
    listing.volumes.values_mut().flatten().for_each(|holding| holding.encoding = Encoding(2));
    listing
}

fn known() -> Known {
    Known { ratio: Ratio::new(RATIO.0, RATIO.1).expect("possible"), shard_bytes: 100, digests: Vec::new() }
}

/// A server was away while a volume was decoded and encoded again. It returns with one of the former shards,
/// and its `.vif` is not read.
#[test]
fn a_left_over_shard_does_not_retract_a_whole_volume() {
    let mut view = view("a b c", "");
    view.list(encoded_again());
    view.learn(5, Encoding(2), known());
    let whole = [StoreChange::Stripe(view.stripe(5).expect("it is known"), false)];
    assert_eq!(view.tell([5]), whole);
    let (mut all, left_over) = (encoded_again(), listing("x", "x.0"));
    all.servers.extend(left_over.servers);
    all.volumes.entry(5).or_default().extend(left_over.volumes.into_values().flatten());
    view.list(all);
    assert_eq!(view.tell([5]), whole);
    assert_eq!(super::super::judging::unjudged(view.volumes(), view.files()), []);
    let lines = super::super::judging::left_overs(view.volumes());
    assert!(lines.len() == 1 && lines[0].contains("shards 0 on x"), "{lines:?}");
}

/// A volume was decoded and encoded again under its ID. While servers may still have the former shards, its
/// state is unknown.
#[test]
fn a_bad_shard_is_healthy_in_a_new_encoding() {
    let mut view = view("a b c", "a.0 b.1 c.2");
    let stripe = StripeId("c_5".into());
    view.tell([5]);
    view.set_state(&stripe, BlockIndex(1), NodeId(1), BlockState::Corrupt);
    assert_eq!(told(&view), "0:Healthy 1:Corrupt 2:Healthy");
    view.list(encoded_again());
    view.learn(5, Encoding(2), known());
    assert_eq!(view.tell([5]), [StoreChange::StripeGone(stripe.clone())]);
    view.confirm([0, 1, 2].map(|shard| (5, Encoding(1), shard)));
    assert_eq!(told(&view), "0:Healthy 1:Healthy 2:Healthy");
    assert_eq!(
        view.take_gone()[0],
        (StripeId("c_5@1".into()), BlockIndex(1), NodeId(1)),
        "its record is deleted"
    );
    view.tell([5]);
    view.set_state(&stripe, BlockIndex(2), NodeId(2), BlockState::Corrupt);
    let marked = (stripe, BlockIndex(2), NodeId(2), BlockState::Corrupt);
    let recorded = (StripeId("c_5@2".into()), BlockIndex(2), NodeId(2), BlockState::Corrupt);
    assert_eq!(
        (told(&view).as_str(), view.records_of(&marked)),
        ("0:Healthy 1:Healthy 2:Corrupt", vec![recorded])
    );
}

/// Returns a view that was restarted after shards of encoding 1 were found corrupt.
fn restarted(now: Listing, encoding: Encoding) -> ClusterView {
    let mut view = ClusterView::default();
    for (name, node) in ["a", "b", "c"].into_iter().zip(0..) {
        view.number(ServerId(name.to_owned()), NodeId(node));
    }
    view.recall_told(5, Encoding(1), "c");
    view.recall(5, Encoding(1), Kept { collection: "c".to_owned(), ..Kept::default() });
    for (name, index) in [("c_5@1", 1), ("c_5", 0)] {
        let node = NodeId(u32::from(index));
        view.recall_mark((StripeId(name.into()), BlockIndex(index), node, BlockState::Corrupt));
    }
    view.list(now);
    view.learn(5, encoding, known());
    view.tell([5]);
    view
}

#[test]
fn bad_shards_are_remembered_after_a_restart_also_from_older_records() {
    let mut view = restarted(listing("a b c", "a.0 b.1 c.2"), Encoding(1));
    assert_eq!(told(&view), "0:Corrupt 1:Corrupt 2:Healthy");
    assert!(matches!(view.everything()[0], StoreChange::Stripe(..)));
}

#[test]
fn a_stripe_encoded_again_during_downtime_is_reported_as_gone_first() {
    let mut view = restarted(encoded_again(), Encoding(2));
    assert_eq!(told(&view), "0:Healthy 1:Healthy 2:Healthy");
    let changes = view.everything();
    assert_eq!(changes[0], StoreChange::StripeGone(StripeId("c_5".into())));
    assert!(matches!(changes[1], StoreChange::Stripe(..)));
}

#[test]
fn a_bad_copy_is_no_reason_to_unmount_the_other_one() {
    let mut view = view("a b c", "a.0 a.1 b.1 c.2");
    let name = |shard| ShardName { volume: VolumeName::new("c", 5).expect("a name"), shard };
    let has_other = |view: &ClusterView, shard: u8, server: &str| {
        view.has_good_copy_elsewhere(&name(shard), &ServerId(server.to_owned()))
    };
    assert!(has_other(&view, 1, "a") && has_other(&view, 1, "b") && !has_other(&view, 0, "a"));
    view.set_state(&StripeId("c_5".into()), BlockIndex(1), NodeId(1), BlockState::Corrupt);
    assert!(!has_other(&view, 1, "a") && has_other(&view, 1, "b"));
    view.list(listing("b c", "b.1 c.2"));
    assert!(!has_other(&view, 0, "c"), "the server that had it is not listed with it");
}

/// A shard whose publication has failed is deleted only if the volume does not need it.
#[test]
fn bad_copies_are_no_reason_to_delete_a_shard() {
    let can_spare = |view: &ClusterView| view.can_spare(5, Some(0), &ServerId("a".to_owned()));
    let mut view = view("a b c", "a.0 b.1 c.2");
    assert!(can_spare(&view) && view.can_spare(5, None, &ServerId("a".to_owned())));
    for state in [BlockState::Corrupt, BlockState::Missing] {
        find(&mut view, &[1], state);
        assert!(!can_spare(&view) && !view.can_spare(5, None, &ServerId("a".to_owned())), "{state:?}");
    }
    view.list(listing("a b c", "a.0 b.1 c.1 c.2"));
    assert!(can_spare(&view), "another copy is good");
    find(&mut view, &[1], BlockState::Healthy);
    view.list(listing("a b c", "a.0 b.1/99 c.2"));
    assert!(!can_spare(&view));
}

#[test]
fn a_volume_without_a_spare_good_shard_is_at_risk() {
    let mut view = view("a b c", "a.0 b.1 c.2");
    assert!(!view.is_at_risk(5) && !view.is_at_risk(6));
    find(&mut view, &[1], BlockState::Corrupt);
    assert!(view.is_at_risk(5));
    find(&mut view, &[1], BlockState::Healthy);
    view.list(listing("a b", "a.0 b.1"));
    assert!(view.is_at_risk(5), "the coordinator decides how long it waits for the server, not the store");
}

/// An `.ecsum` that an earlier encoding has left contradicts more shards than there are parity shards.
#[test]
fn checksums_are_doubted_if_they_contradict_too_many_shards() {
    let stripe = StripeId("c_5".into());
    let corrupt = |shard: u16| (stripe.clone(), BlockIndex(shard), NodeId(shard.into()), BlockState::Corrupt);
    let spoil = |view: &mut ClusterView, shard: u16| {
        view.set_state(&stripe, BlockIndex(shard), NodeId(shard.into()), BlockState::Corrupt);
    };
    let mut few = view("a b", "a.0 b.1");
    spoil(&mut few, 0);
    let none = parity_verdicts::Copies::new();
    assert!(!few.contradicts_itself(5, &none), "parity cannot tell: only as many shards as needed are there");

    let mut view = view("a b c", "a.0 b.1 c.2");
    spoil(&mut view, 0);
    assert!(!view.contradicts_itself(5, &none) && view.uses_checksums(5), "the others can rebuild it");
    spoil(&mut view, 1);
    assert!(view.contradicts_itself(5, &none));
    view.doubt_checksums(5, &none);
    assert_eq!(told(&view), "0:Healthy 1:Healthy 2:Healthy");
    assert!(!view.uses_checksums(5) && !view.contradicts_itself(5, &none));
    assert!(!view.is_credible(&corrupt(2), &none), "its server's .ecsum may be wrong");
    let by_parity = [(5, BlockIndex(2), NodeId(2))].into();
    assert!(view.is_credible(&corrupt(2), &by_parity));
    assert!(view.is_credible(&(stripe.clone(), BlockIndex(2), NodeId(2), BlockState::Missing), &none));
    assert!(view.doubts()[0].contains("c_5.ecsum"), "{:?}", view.doubts());

    let digests = |first: u32| (first..first + 3).map(|sum| Digest::of_u32("ecsum", sum)).collect::<Vec<_>>();
    for (agreed, is_over) in [(digests(0), false), (digests(7), true)] {
        view.end_doubt(5, Encoding(1), &agreed, None);
        assert_eq!(view.set_digests(5, Encoding(1), agreed), is_over);
        assert_eq!((view.uses_checksums(5), view.is_credible(&corrupt(2), &none)), (is_over, is_over));
    }
}

/// Records these shards, each on the node of its number or on the last one, in this state.
fn find(view: &mut ClusterView, shards: &[u16], state: BlockState) {
    for &shard in shards {
        view.set_state(&StripeId("c_5".into()), BlockIndex(shard), NodeId(shard.min(2).into()), state);
    }
}

#[test]
fn lost_and_short_shards_are_no_evidence_against_checksums() {
    let none = parity_verdicts::Copies::new();
    let mut lost = view_of((2, 2), "a b c", "a.0 b.1 c.2");
    find(&mut lost, &[0, 1], BlockState::Corrupt);
    assert_eq!(told(&lost).matches("Corrupt").count(), 2);
    assert!(!lost.contradicts_itself(5, &none), "the volume is unreadable because a shard is lost");

    let mut short = view("a b c", "a.0/99 b.1 c.2");
    find(&mut short, &[0, 1], BlockState::Corrupt);
    assert_eq!(told(&short), "0:Corrupt 1:Corrupt 2:Healthy");
    assert!(!short.contradicts_itself(5, &none), "one shard is only too short");

    let mut all = view_of((2, 2), "a b c", "a.0 b.1 c.2 c.3");
    find(&mut all, &[0, 1, 3], BlockState::Corrupt);
    assert!(all.contradicts_itself(5, &none));
    let by_parity = [(5, BlockIndex(3), NodeId(2))].into();
    assert!(!all.contradicts_itself(5, &by_parity), "one shard matches its checksums");
}

#[test]
fn a_doubt_of_checksums_forgets_neither_losses_nor_parity_checks() {
    let mut view = view_of((2, 2), "a b c", "a.0 b.1 c.2 c.3");
    find(&mut view, &[0], BlockState::Missing);
    find(&mut view, &[1, 2, 3], BlockState::Corrupt);
    view.doubt_checksums(5, &[(5, BlockIndex(3), NodeId(2))].into());
    assert_eq!(told(&view), "0:Missing 1:Healthy 2:Healthy 2:Corrupt");
    let forgotten: Vec<BlockIndex> = view.take_gone().into_iter().map(|(_, index, _)| index).collect();
    assert!(forgotten.iter().all(|index| [BlockIndex(1), BlockIndex(2)].contains(index)), "{forgotten:?}");
}

#[test]
fn checksums_that_all_servers_have_written_again_are_used() {
    let mut view = view("a b c", "a.0 b.1 c.2");
    let digests: Vec<Digest> = (0..3).map(|shard| Digest::of_u32("ecsum", shard)).collect();
    view.doubt_checksums(5, &parity_verdicts::Copies::new());
    for (modified_ns, is_over) in [((3, 7), false), ((3, 9), false), ((7, 9), false), ((8, 9), true)] {
        view.end_doubt(5, Encoding(1), &digests, Some(modified_ns));
        assert_eq!(view.set_digests(5, Encoding(1), digests.clone()), is_over, "{modified_ns:?}");
    }
}

/// A bad sector says nothing about the checksums, and its shard must be rebuilt although they are doubted.
#[test]
fn unreadable_shards_are_no_evidence_against_checksums_and_stay_bad() {
    let none = parity_verdicts::Copies::new();
    let mut view = view_of((2, 2), "a b c", "a.0 b.1 c.2 c.3");
    find(&mut view, &[0, 1], BlockState::Corrupt);
    find(&mut view, &[2], BlockState::Unreadable);
    assert!(!view.contradicts_itself(5, &none), "they contradict two shards");
    find(&mut view, &[3], BlockState::Corrupt);
    assert!(view.contradicts_itself(5, &none));
    view.doubt_checksums(5, &none);
    assert_eq!(told(&view), "0:Healthy 1:Healthy 2:Unreadable 2:Healthy");
    let unreadable = (StripeId("c_5".into()), BlockIndex(0), NodeId(0), BlockState::Unreadable);
    assert!(view.is_credible(&unreadable, &none));
}
