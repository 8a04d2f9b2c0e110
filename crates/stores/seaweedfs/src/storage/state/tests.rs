use std::path::PathBuf;

use repair::Digest;
use store_api::{Catalog as _, RecordWrite};

use super::*;
use crate::blocks::{Encoding, Ratio};
use crate::storage::doubles::{LIST_EVERY, Paper, attachment, listing, start};
use crate::storage::encoding_files::Known;

/// The catalog's disk is full when a new server connects with a shard that another server has lost.
#[test]
fn a_move_is_reported_although_a_new_server_cannot_be_recorded() {
    let paper = Arc::new(Mutex::new(Paper::default()));
    let mut catalog = start(&paper);
    let heard: Arc<Mutex<Vec<StoreChange>>> = Arc::default();
    let listener = Arc::clone(&heard);
    catalog.listen(Box::new(move |changes| listener.lock().expect("not poisoned").extend(changes)));
    let known = Arc::clone(&catalog.system().known);
    // Returns the nodes that have the shards, as last reported.
    let nodes = || {
        catalog.flush();
        let heard = heard.lock().expect("not poisoned");
        let mut stripes = heard.iter().filter_map(|change| match change {
            StoreChange::Stripe(stripe, _) => Some(stripe),
            _ => None,
        });
        let last = stripes.next_back().expect("it was reported");
        last.blocks.iter().map(|block| block.node).collect::<Vec<_>>()
    };
    known.take_all(listing(["a", "b", "c"]), Instant::now(), LIST_EVERY).expect("recorded");
    let ratio = Ratio::new(2, 1).expect("possible");
    {
        let mut state = known.state();
        state.view.learn(5, Encoding(1), Known { ratio, shard_bytes: 100, digests: Vec::new() });
        state.tell_volumes([5]);
    }
    let numbers = |numbers: [Option<u32>; 3]| numbers.map(|number| number.map(NodeId)).to_vec();
    assert_eq!(nodes(), numbers([Some(0), Some(1), Some(2)]));
    paper.lock().expect("not poisoned").refuses_nodes = true;
    assert!(known.take_all(listing(["a", "d", "c"]), Instant::now(), LIST_EVERY).is_err());
    assert_eq!(nodes(), numbers([Some(0), None, Some(2)]), "nobody is known to have it");
    paper.lock().expect("not poisoned").refuses_nodes = false;
    known.take_all(listing(["a", "d", "c"]), Instant::now(), LIST_EVERY).expect("recorded");
    assert_eq!(nodes(), numbers([Some(0), Some(3), Some(2)]));
}

#[test]
fn shards_that_doubtful_checksums_contradict_are_not_recorded_as_corrupt() {
    let paper = Arc::new(Mutex::new(Paper::default()));
    let catalog = start(&paper);
    let known = Arc::clone(&catalog.system().known);
    known.take_all(listing(["a", "b", "c"]), Instant::now(), LIST_EVERY).expect("recorded");
    let ratio = Ratio::new(2, 1).expect("possible");
    let digests = (0..3).map(|shard| Digest::of_u32("ecsum", shard)).collect();
    known.state().view.learn(5, Encoding(1), Known { ratio, shard_bytes: 100, digests });
    let find_corrupt = |shard: u16| {
        let state =
            (StripeId("c_5".to_owned()), BlockIndex(shard), NodeId(shard.into()), BlockState::Corrupt);
        let overruled = known.note_states(Term(1), &[state]).expect("recorded");
        overruled.into_iter().map(|(_, index, _)| index.0).collect::<Vec<_>>()
    };
    let states = || {
        let stripe = known.state().view.stripe(5).expect("it is known");
        stripe.blocks.iter().map(|block| (block.state, block.digest.is_some())).collect::<Vec<_>>()
    };
    let recorded = || {
        let paper = paper.lock().expect("not poisoned");
        paper.kept.keys().filter(|key| key.contains("/bad/")).count()
    };
    let (healthy, unchecked) = ((BlockState::Healthy, true), (BlockState::Healthy, false));
    assert_eq!(find_corrupt(0), [0u16; 0]);
    assert_eq!((states(), recorded()), (vec![(BlockState::Corrupt, true), healthy, healthy], 1));
    for (shard, overruled) in [(1, vec![0, 1]), (2, vec![2])] {
        assert_eq!(find_corrupt(shard), overruled, "control must forget that they are corrupt");
        assert_eq!((states(), recorded()), (vec![unchecked; 3], 0));
    }
    // Parity decides while the checksums are doubted.
    let verdict = RecordWrite::Put("condemned/2/c_5.ec02".to_owned(), serde_json::Value::Null);
    known.state().ledger.write(Term(1), verdict).expect("recorded");
    assert_eq!(find_corrupt(2), [0u16; 0]);
    assert_eq!((states()[2], recorded()), ((BlockState::Corrupt, false), 1));
}

/// The server got another folder, and a shard is there. The helper does not know the folder.
#[test]
fn a_helper_that_does_not_know_all_folders_cannot_say_that_a_shard_is_missing() {
    let catalog = start(&Arc::new(Mutex::new(Paper::default())));
    let known = Arc::clone(&catalog.system().known);
    known.take_all(listing(["a", "b"]), Instant::now(), LIST_EVERY).expect("recorded");
    let ratio = Ratio::new(2, 1).expect("possible");
    known.state().view.learn(5, Encoding(1), Known { ratio, shard_bytes: 100, digests: Vec::new() });
    let folders = ["/d0", "/d1"].map(PathBuf::from);
    let attachment = Attachment { folders: [("a".to_owned(), folders[..1].to_vec())].into(), ..attachment() };
    {
        let (server, mut state) = (ServerId("a".to_owned()), known.state());
        let connected = listing(["a"]).servers;
        state.folders.note((&server, &connected[&server]), &attachment, Some(&folders[..]), Instant::now());
    }
    let find = |shard: u16, state: BlockState| {
        let found = (StripeId("c_5".to_owned()), BlockIndex(shard), NodeId(shard.into()), state);
        let overruled = known.note_states(Term(1), &[found]).expect("recorded");
        let stripe = known.state().view.stripe(5).expect("it is known");
        (overruled.len(), stripe.blocks[usize::from(shard)].state)
    };
    assert_eq!(find(0, BlockState::Missing), (1, BlockState::Healthy), "it may be in /d1");
    assert_eq!(find(0, BlockState::Corrupt), (0, BlockState::Corrupt));
    assert_eq!(find(1, BlockState::Missing), (0, BlockState::Missing), "the helper of `b` knows all folders");
}

/// Until its helpers have read all shards again, a coordinator that starts would use the checksums in repairs.
#[test]
fn a_doubt_survives_a_restart_and_is_reported() {
    let paper = Arc::new(Mutex::new(Paper::default()));
    let ratio = Ratio::new(2, 1).expect("possible");
    let digests =
        |first: u32| (first..first + 3).map(|shard| Digest::of_u32("ecsum", shard)).collect::<Vec<_>>();
    let known = |digests| Known { ratio, shard_bytes: 100, digests };
    let begin = || {
        let catalog = start(&paper);
        let system = Arc::clone(&catalog.system().known);
        system.recall().expect("readable");
        system.recall_doubts().expect("readable");
        system.take_all(listing(["a", "b", "c"]), Instant::now(), LIST_EVERY).expect("recorded");
        system.state().view.learn(5, Encoding(1), known(digests(0)));
        system.state().tell_volumes([5]);
        (catalog, system)
    };
    let corrupt = |shard: u16| {
        (StripeId("c_5".to_owned()), BlockIndex(shard), NodeId(shard.into()), BlockState::Corrupt)
    };
    let doubted = |stripes: &[&str]| {
        StoreChange::Doubted(stripes.iter().map(|&stripe| StripeId(stripe.to_owned())).collect())
    };
    {
        let (_catalog, system) = begin();
        system.note_states(Term(1), &[corrupt(0), corrupt(1)]).expect("recorded");
        assert_eq!(system.state().doubted(), doubted(&["c_5"]));
    }
    // The coordinator has crashed before it removed the records of the shards that the checksums contradict.
    paper.lock().expect("not poisoned").kept.insert("seaweedfs/bad/c_5@1/0/0".to_owned(), "corrupt".into());
    let (_catalog, system) = begin();
    let stripe = system.state().view.stripe(5).expect("it is known");
    let found: Vec<_> = stripe.blocks.iter().map(|block| (block.state, block.digest)).collect();
    assert_eq!(found, [(BlockState::Healthy, None); 3]);
    assert_eq!(system.state().doubted(), doubted(&["c_5"]));
    // The servers agree on other checksums.
    let mut state = system.state();
    state.view.end_doubt(5, Encoding(1), &digests(7), None);
    state.keep_doubts();
    assert_eq!(state.tell_doubts(), Some(doubted(&[])));
    assert!(!paper.lock().expect("not poisoned").kept.keys().any(|key| key.contains("/doubted/")));
}

/// Repairs list their volumes all the time while listings of the whole cluster take seconds.
#[test]
fn listings_that_overlap_are_all_applied() {
    let catalog = start(&Arc::new(Mutex::new(Paper::default())));
    let known = Arc::clone(&catalog.system().known);
    let start = Instant::now();
    let at = |seconds| start + Duration::from_secs(seconds);
    let servers_of = |volume: u32| {
        let state = known.state();
        let homes =
            state.view.volumes().get(volume).map(|volume| volume.generations[&Encoding(1)].homes.clone());
        let homes = homes.unwrap_or_default().into_values().flatten();
        homes.map(|home| home.server.0).collect::<Vec<_>>()
    };
    // Returns a listing in which these servers have the shards of both volumes.
    let both = |servers: [&str; 2]| {
        let mut both = listing(servers);
        let holdings = both.volumes[&5].clone();
        both.volumes.insert(6, holdings);
        both
    };
    known.take_all(both(["a", "b"]), at(0), LIST_EVERY).expect("recorded");
    // Volume 5 is listed after volume 6, but its listing is faster.
    known.take_part(5, both(["a", "c"]), at(3)).expect("recorded");
    known.take_part(6, both(["c", "a"]), at(2)).expect("recorded");
    assert_eq!((servers_of(5), servers_of(6)), (vec!["a".into(), "c".into()], vec!["c".into(), "a".into()]));
    // A listing of the whole cluster that was requested before both brings neither server `b` nor old places back.
    known.take_all(both(["a", "b"]), at(1), LIST_EVERY).expect("recorded");
    assert_eq!((servers_of(5), servers_of(6)), (vec!["a".into(), "c".into()], vec!["c".into(), "a".into()]));
    assert!(!known.state().view.volumes().servers().contains_key(&ServerId("b".to_owned())));
    // One that was requested before the listing of volume 5 is news of volume 6.
    known.take_part(5, both(["c", "d"]), at(6)).expect("recorded");
    known.take_all(both(["d", "c"]), at(5), LIST_EVERY).expect("recorded");
    assert_eq!((servers_of(5), servers_of(6)), (vec!["c".into(), "d".into()], vec!["d".into(), "c".into()]));
    known.take_part(6, both(["c", "d"]), at(4)).expect("recorded");
    assert_eq!(servers_of(6), ["d", "c"], "the whole cluster was listed later");
}

/// Returns a listing of these servers, each with these ordinary volumes.
fn with_plain<const N: usize>(servers: [&str; N], volumes: &[u32]) -> Listing {
    let mut listing = listing(servers);
    let plain: BTreeSet<u32> = volumes.iter().copied().collect();
    listing.servers.values_mut().for_each(|server| server.plain_volumes.clone_from(&plain));
    listing
}

/// A server with ordinary volumes would count as safe to remove.
#[test]
fn a_listing_of_one_volume_forgets_no_ordinary_volumes() {
    let paper = Arc::new(Mutex::new(Paper::default()));
    let catalog = start(&paper);
    let known = Arc::clone(&catalog.system().known);
    let start = Instant::now();
    let at = |seconds| start + Duration::from_secs(seconds);
    let needed = || {
        let recorded =
            paper.lock().expect("not poisoned").kept.keys().filter(|key| key.contains("/needed/")).count();
        let nodes: Vec<u32> = known.state().view.nodes().plain_volumes().keys().map(|node| node.0).collect();
        assert_eq!(nodes.len(), recorded);
        nodes
    };
    known.take_all(with_plain(["a", "b"], &[7]), at(0), LIST_EVERY).expect("recorded");
    known.take_part(5, listing(["a", "b"]), at(2)).expect("recorded");
    assert_eq!(needed(), [0, 1]);
    known.take_all(with_plain(["a", "b"], &[7]), at(1), LIST_EVERY).expect("recorded");
    assert_eq!(needed(), [0, 1]);
    known.take_all(with_plain(["a"], &[7]), at(3), LIST_EVERY).expect("recorded");
    known.take_part(5, listing(["a", "b"]), at(4)).expect("recorded");
    assert_eq!(needed(), [0, 1], "the volumes of a server that has returned are not listed yet");
    known.take_all(with_plain(["a", "b"], &[]), at(5), LIST_EVERY).expect("recorded");
    assert_eq!(needed(), [0u32; 0]);
}

/// A volume is an ordinary volume on one server, and too few of its shards are listed.
#[test]
fn a_volume_is_always_a_stripe_or_unknown() {
    let mut catalog = start(&Arc::new(Mutex::new(Paper::default())));
    let heard: Arc<Mutex<Vec<StoreChange>>> = Arc::default();
    let listener = Arc::clone(&heard);
    catalog.listen(Box::new(move |changes| listener.lock().expect("not poisoned").extend(changes)));
    let known = Arc::clone(&catalog.system().known);
    // Returns whether the volume is a stripe, and whether its state is unknown, as last reported.
    let told = || {
        catalog.flush();
        let heard = heard.lock().expect("not poisoned");
        let (mut is_stripe, mut is_unknown) = (false, false);
        for change in heard.iter() {
            match change {
                StoreChange::Stripe(..) => is_stripe = true,
                StoreChange::StripeGone(_) => is_stripe = false,
                StoreChange::Unjudged(unjudged) => is_unknown = !unjudged.is_empty(),
                _ => {}
            }
        }
        (is_stripe, is_unknown)
    };
    known.take_all(listing(["a", "b", "c"]), Instant::now(), LIST_EVERY).expect("recorded");
    let ratio = Ratio::new(2, 1).expect("possible");
    known.state().view.learn(5, Encoding(1), Known { ratio, shard_bytes: 100, digests: Vec::new() });
    known.state().tell_volumes([5]);
    assert_eq!(told(), (true, false));
    let mut few = listing(["a"]);
    few.servers.extend(with_plain(["d"], &[5]).servers);
    known.take_all(few.clone(), Instant::now(), LIST_EVERY).expect("recorded");
    assert_eq!(told(), (false, true), "the ordinary volume may be the current one");
    few.servers.remove(&ServerId("d".to_owned()));
    known.take_all(few, Instant::now(), LIST_EVERY).expect("recorded");
    assert_eq!(told(), (true, false));
}

#[test]
fn a_cluster_of_which_only_single_volumes_are_listed_is_out_of_sight() {
    let mut catalog = start(&Arc::new(Mutex::new(Paper::default())));
    let heard: Arc<Mutex<Vec<StoreChange>>> = Arc::default();
    let listener = Arc::clone(&heard);
    catalog.listen(Box::new(move |changes| listener.lock().expect("not poisoned").extend(changes)));
    let known = Arc::clone(&catalog.system().known);
    let is_blind = || {
        catalog.flush();
        let heard = heard.lock().expect("not poisoned");
        let mut told = heard.iter().filter_map(|change| match change {
            StoreChange::Unlisted(why) => Some(why.is_some()),
            _ => None,
        });
        told.next_back().unwrap_or_default()
    };
    let (start, limit) = (Instant::now(), Duration::from_secs(16));
    let at = |seconds| start + Duration::from_secs(seconds);
    known.take_all(listing(["a", "b"]), at(0), LIST_EVERY).expect("recorded");
    known.state().blind = Some("the list is too long".to_owned());
    known.take_part(5, listing(["a", "b"]), at(14)).expect("recorded");
    known.state().tell_blindness(limit, at(15));
    assert!(!is_blind());
    known.state().tell_blindness(limit, at(16));
    assert!(is_blind(), "of the other volumes, nothing is known");
    // Listings take long, so the watch pauses after each.
    known.state().blind = None;
    known.take_all(listing(["a", "b"]), at(20), Duration::from_secs(60)).expect("recorded");
    for (seconds, found) in [(95, false), (96, true)] {
        known.state().tell_blindness(limit, at(seconds));
        assert_eq!(is_blind(), found, "{seconds}");
    }
}
