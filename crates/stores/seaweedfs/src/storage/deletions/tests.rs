use std::sync::Mutex;

use tokio::time::Instant;

use super::*;
use crate::blocks::Ratio;
use crate::storage::AttachedCatalog;
use crate::storage::doubles::{LIST_EVERY, Paper, attachment, listing, start, start_passive, start_with};
use crate::storage::encoding_files::Known;
use crate::storage::open::Attachment;

fn volume() -> VolumeName {
    VolumeName::new("c", 5).expect("a name")
}

#[test]
fn late_deletions_are_named_until_they_are_made_also_after_a_restart() {
    let paper = Arc::new(Mutex::new(Paper::default()));
    let catalog = start(&paper);
    let shard = ShardName { volume: volume(), shard: 3 };
    let (late, other) = (
        Late::new(&shard, &ServerId("a:8080".to_owned())),
        Late::new(&shard, &ServerId("b:8080".to_owned())),
    );
    {
        let mut state = catalog.system().known.state();
        state.note_late(&late, String::new());
        state.note_late(&other, String::new());
        assert_eq!(state.late_deletions.lines(), [""; 0], "the first attempt has not ended");
        state.note_late(&late, "it is in maintenance".to_owned());
        let lines = state.late_deletions.lines();
        assert_eq!(lines.len(), 1);
        for part in ["volume c_5 ", "volume server a:8080", "it is in maintenance"] {
            assert!(lines[0].contains(part), "{lines:?}");
        }
        state.forget_late(&other);
    }
    drop(catalog);
    let catalog = start(&paper);
    catalog.system().known.recall_late_deletions().expect("readable");
    let mut state = catalog.system().known.state();
    let late_ones = |state: &State| state.late_deletions.entries.keys().cloned().collect::<Vec<_>>();
    assert_eq!(late_ones(&state), std::slice::from_ref(&late));
    let lines = state.late_deletions.lines();
    assert!(lines.len() == 1 && lines[0].contains(NOT_TRIED), "{lines:?}");
    state.forget_late(&late);
    assert_eq!(paper.lock().expect("not poisoned").kept.len(), 0);
}

#[test]
fn volumes_with_late_deletions_are_inspected_every_second_time_and_half_of_the_time_at_most() {
    let catalog = start(&Arc::new(Mutex::new(Paper::default())));
    let known = &catalog.system().known;
    let mut all = listing(["a", "b", "c"]);
    for id in [6, 7, 8] {
        let holdings = all.volumes[&5].clone();
        all.volumes.insert(id, holdings);
    }
    known.take_all(all, Instant::now(), LIST_EVERY).expect("recorded");
    let turns = |seconds: [u64; 4]| {
        seconds.map(|took| {
            let next = known.state().next_to_inspect();
            known.state().inspection.note_turn(Duration::from_secs(took));
            next
        })
    };
    assert_eq!(turns([2; 4]), [5, 6, 7, 8].map(Some));
    let ratio = Ratio::new(2, 1).expect("possible");
    for (id, server) in [(6, "a"), (7, "a"), (8, "d")] {
        let shard = ShardName { volume: VolumeName::new("c", id).expect("a name"), shard: 0 };
        let mut state = known.state();
        state.view.learn(id, Encoding(1), Known { ratio, shard_bytes: 100, digests: Vec::new() });
        state.note_late(&Late::new(&shard, &ServerId(server.to_owned())), String::new());
    }
    assert_eq!(turns([2; 4]), [6, 5, 7, 6].map(Some), "server `d` is not connected");
    assert_eq!(turns([6000, 2000, 2000, 1999]), [6, 7, 8, 5].map(Some), "a server hangs");
    assert_eq!(turns([2; 4]), [6, 7, 7, 6].map(Some));
}

#[test]
fn a_dry_run_leaves_the_deletions_of_earlier_coordinators_alone() {
    let paper = Arc::new(Mutex::new(Paper::default()));
    let late = Late::new(&ShardName { volume: volume(), shard: 0 }, &ServerId("a".to_owned()));
    start(&paper).system().known.state().note_late(&late, String::new());
    let catalog = start_passive(&paper);
    let shared = catalog.system();
    shared.known.recall_late_deletions().expect("readable");
    shared.known.take_all(listing(["a", "b", "c"]), Instant::now(), LIST_EVERY).expect("recorded");
    let ratio = Ratio::new(2, 1).expect("possible");
    let files = Known { ratio, shard_bytes: 100, digests: Vec::new() };
    {
        let mut state = shared.known.state();
        state.view.learn(5, Encoding(1), files);
        assert_eq!(state.late_deletions.due(state.view.volumes()), BTreeSet::new());
    }
    catalog.runtime().block_on(Deletions::of(shared).retry(&volume()));
    let lines = shared.known.state().late_deletions.lines();
    assert!(lines.len() == 1 && lines[0].contains(NOT_AUTOMATIC), "{lines:?}");
    shared.known.take_all(listing(["d", "b", "c"]), Instant::now(), LIST_EVERY).expect("recorded");
    catalog.runtime().block_on(Deletions::of(shared).retry(&volume()));
    assert_eq!(shared.known.state().late_deletions.lines(), [""; 0], "the shard is on another server now");
}

#[test]
fn deletions_are_not_forgotten_while_the_encoding_is_unknown() {
    let catalog = start(&Arc::new(Mutex::new(Paper::default())));
    let shared = catalog.system();
    shared.known.take_all(listing(["a", "b", "c"]), Instant::now(), LIST_EVERY).expect("recorded");
    let late = Late::new(&ShardName { volume: volume(), shard: 0 }, &ServerId("a".to_owned()));
    shared.known.state().note_late(&late, "it is in maintenance".to_owned());
    catalog.runtime().block_on(Deletions::of(shared).retry(&volume()));
    assert!(shared.known.state().late_deletions.entries.contains_key(&late), "no `.vif` was read");
}

/// Until the places that servers have cached expire, they may record deletions on servers other than the shard's.
#[test]
fn deletions_are_collected_again_once_cached_places_have_expired() {
    let paper = Arc::new(Mutex::new(Paper::default()));
    let late = Late::new(&ShardName { volume: volume(), shard: 0 }, &ServerId("a".to_owned()));
    let begun = |catalog: &AttachedCatalog, seconds: u64| {
        let mut state = catalog.system().known.state();
        second_looks::begin_due(&mut state, seconds);
        state.late_deletions.entries.keys().cloned().collect::<Vec<_>>()
    };
    second_looks::plan(&mut start(&paper).system().known.state(), &late, 1000);
    let passive = start_passive(&paper);
    passive.system().known.recall_late_deletions().expect("readable");
    assert_eq!(begun(&passive, u64::MAX), [], "a dry run leaves recorded work alone");
    let catalog = start(&paper);
    catalog.system().known.recall_late_deletions().expect("readable");
    assert_eq!(begun(&catalog, 1000 + 37 * 60), []);
    assert_eq!(begun(&catalog, 1000 + 40 * 60), std::slice::from_ref(&late));
    assert_eq!(catalog.system().known.state().late_deletions.lines(), [""; 0], "nothing is known to be late");
    assert_eq!(paper.lock().expect("not poisoned").kept.keys().cloned().collect::<Vec<_>>(), [late.key()]);
}

#[test]
fn late_deletions_and_second_looks_follow_a_server_to_another_id() {
    let paper = Arc::new(Mutex::new(Paper::default()));
    let at = |shard: u8, server: &str| {
        Late::new(&ShardName { volume: volume(), shard }, &ServerId(server.to_owned()))
    };
    let begin = |server: &str| {
        let helpers = [(server.to_owned(), "vs-a".to_owned())].into();
        let catalog = start_with(&paper, Attachment { helpers, ..attachment() });
        let known = &catalog.system().known;
        known.recall_server_ids().expect("readable");
        known.recall_late_deletions().expect("readable");
        known.take_all(listing([server]), Instant::now(), LIST_EVERY).expect("recorded");
        catalog
    };
    {
        let catalog = begin("a");
        let mut state = catalog.system().known.state();
        state.note_late(&at(0, "a"), "it is in maintenance".to_owned());
        second_looks::plan(&mut state, &at(3, "a"), 1000);
    }
    for server in ["b", "c"] {
        let catalog = begin(server);
        let mut state = catalog.system().known.state();
        let late: Vec<Late> = state.late_deletions.entries.keys().cloned().collect();
        assert_eq!(late, [at(0, server)]);
        if server == "c" {
            second_looks::begin_due(&mut state, u64::MAX);
            assert!(state.late_deletions.entries.contains_key(&at(3, server)));
        }
    }
    let kept = paper.lock().expect("not poisoned").kept.clone().into_keys();
    let late: Vec<String> = kept.filter(|key| key.contains("c_5.ec")).collect();
    assert_eq!(late, [0, 3].map(|shard| at(shard, "c").key()), "no record names a former ID");
}

#[test]
fn a_shard_that_was_put_into_service_at_its_former_place_gets_a_second_look() {
    let catalog = start(&Arc::new(Mutex::new(Paper::default())));
    let (shared, server) = (catalog.system(), ServerId("a".to_owned()));
    shared.known.take_all(listing(["a"]), Instant::now(), LIST_EVERY).expect("recorded");
    let ratio = Ratio::new(2, 1).expect("possible");
    let files = Known { ratio, shard_bytes: 100, digests: Vec::new() };
    shared.known.state().view.learn(5, Encoding(1), files);
    let shard = ShardName { volume: volume(), shard: 0 };
    catalog.runtime().block_on(async {
        let hold = shared.lock.claimed(&StripeId("c_5".to_owned())).await;
        Deletions::of(shared).settle(&hold, &shard, &server).await; // It asks no server, as there is no other.
    });
    let mut state = shared.known.state();
    assert!(state.late_deletions.entries.is_empty());
    second_looks::begin_due(&mut state, u64::MAX);
    assert!(state.late_deletions.entries.contains_key(&Late::new(&shard, &server)));
}
