//! Files that clients rename without their parity: the parity follows.

use hdfs_raid::{End, Exclusion, Goal, Next, forecast};

use crate::hdfs::{Change, Hdfs};
use crate::{ENCODED, MOST_CALLS, Start, World, events, first_words};

/// Returns an encoded `/d/f` that was renamed to `/d/g`.
fn renamed() -> World {
    let mut world = World::new(Start::Encoded);
    world.hdfs.change(Change::Rename);
    world
}

fn rename(hdfs: &mut Hdfs, from: &str, to: &str) {
    hdfs.rename(from, to, false).expect("the client may do this");
}

/// Checks that a file is encoded, and its parity is at its path.
fn assert_protected(world: &World, path: &str) {
    let (source, parity) = (&world.hdfs.files[path], &world.hdfs.files[&format!("/p{path}")]);
    let note = parity.marks.note.expect("a note");
    assert_eq!((note.inode, note.source), (source.inode, source.fingerprint()), "{path}");
    assert_eq!((note.parity, source.replication), (parity.fingerprint(), 1), "{path}");
}

#[test]
fn the_parity_of_a_renamed_file_is_renamed() {
    let mut world = renamed();
    let inode = world.hdfs.files["/p/d/f"].inode;
    assert_eq!(world.run("/d/g", ENCODED), End::Encoded);
    assert_eq!(first_words(&world.actions), ["let"]);
    assert_protected(&world, "/d/g");
    assert_eq!(world.hdfs.files["/p/d/g"].inode, inode);
    assert!(!world.hdfs.files.contains_key("/p/d/f"));
}

#[test]
fn the_forecast_names_the_renaming() {
    let mut world = renamed();
    let (facts, mut nodes) = world.facts("/d/g");
    let work = world.coordinator("/d/g", ENCODED).work;
    let steps = forecast(work, facts, &mut nodes, world.hdfs.now_ms);
    let texts: Vec<String> = steps.iter().map(ToString::to_string).collect();
    assert_eq!(texts.first().map(String::as_str), Some("let /p/d/f become /p/d/g"));
    assert_eq!(steps.last(), Some(&Next::End(End::Encoded)));
}

/// It is in the trash, for example, and a new file is at its former path.
#[test]
fn the_parity_of_a_file_without_a_policy_only_follows_it() {
    let mut world = World::new(Start::Encoded);
    world.hdfs.change(Change::Replace);
    assert_eq!(world.run("/d/g", Goal::Protected), End::Encoded);
    assert_eq!(first_words(&world.actions), ["let"]);
    assert_protected(&world, "/d/g");
    assert_eq!(world.run("/d/f", ENCODED), End::Encoded);
    world.assert_encoded();
    assert_eq!(world.run("/d/f", Goal::Protected), End::Encoded);
    // Stale parity is not made again.
    world.actions.clear();
    world.hdfs.change(Change::Overwrite);
    assert_eq!(world.run("/d/f", Goal::Protected), End::Unfit(Exclusion::NoPolicy));
    assert!(world.actions.is_empty());
}

#[test]
fn a_file_that_is_renamed_twice_keeps_its_parity() {
    for is_run_between in [false, true] {
        let mut world = renamed();
        if is_run_between {
            assert_eq!(world.run("/d/g", ENCODED), End::Encoded);
        }
        rename(&mut world.hdfs, "/d/g", "/d/h");
        world.actions.clear();
        assert_eq!(world.run("/d/h", ENCODED), End::Encoded);
        assert_eq!(first_words(&world.actions), ["let"]);
        assert_protected(&world, "/d/h");
        // Back to its first name.
        rename(&mut world.hdfs, "/d/h", "/d/f");
        assert_eq!(world.run("/d/f", ENCODED), End::Encoded);
        world.assert_encoded();
    }
}

#[test]
fn a_file_at_the_former_path_gets_parity_of_its_own() {
    let mut world = World::new(Start::Encoded);
    world.hdfs.change(Change::Replace);
    let inode = world.hdfs.files["/d/g"].inode;
    assert_eq!(world.run("/d/f", ENCODED), End::Occupied { inode });
    assert_eq!(world.run("/d/g", ENCODED), End::Encoded);
    assert_eq!(world.run("/d/f", ENCODED), End::Encoded);
    world.assert_encoded();
    assert_protected(&world, "/d/g");
}

/// HDFS-RAID's parity has no note, and nothing shows whose it is.
#[test]
fn parity_without_a_note_that_does_not_fit_is_not_replaced() {
    for change in [Change::Replace, Change::Append, Change::Touch] {
        let mut world = World::new(Start::Foreign(true));
        world.hdfs.change(change);
        let parity = world.hdfs.files["/p/d/f"].fingerprint();
        for goal in [ENCODED, Goal::Plain] {
            let unclaimed = End::Unclaimed { parity: "/p/d/f".to_owned() };
            assert_eq!(world.run("/d/f", goal), unclaimed, "{change:?}");
            world.assert_end(&unclaimed);
        }
        assert_eq!(world.hdfs.files["/p/d/f"].fingerprint(), parity, "{change:?}");
    }
}

/// An operator renames the parity like its file.
#[test]
fn parity_without_a_note_counts_again_at_the_path_of_its_file() {
    let mut world = World::new(Start::Foreign(true));
    world.hdfs.change(Change::Replace);
    rename(&mut world.hdfs, "/p/d/f", "/p/d/g");
    for path in ["/d/g", "/d/f"] {
        assert_eq!(world.run(path, ENCODED), End::Encoded);
        assert_protected(&world, path);
    }
    assert!(!first_words(&world.actions)[..2].contains(&"encode".to_owned()), "its parity is not made again");
}

/// A client changes a file that HDFS-RAID has encoded.
#[test]
fn a_file_with_parity_that_does_not_fit_gets_its_replicas() {
    let mut world = World::new(Start::Foreign(true));
    let source = world.hdfs.files.get_mut("/d/f").expect("a file");
    source.replication = 1;
    for block in &mut source.blocks {
        block.replicas = [0].into();
        block.most = 1;
    }
    world.hdfs.change(Change::Append);
    let end = world.run("/d/f", ENCODED);
    assert_eq!(first_words(&world.actions), ["set"]);
    world.assert_end(&end);
}

/// The parity of each is at the path of the other, and nothing is overwritten.
#[test]
fn two_files_that_change_their_names_keep_their_parity() {
    let mut world = World::new(Start::Encoded);
    world.hdfs.add_encoded("/d/g");
    assert_eq!(world.run("/d/g", ENCODED), End::Encoded);
    rename(&mut world.hdfs, "/d/f", "/d/h");
    rename(&mut world.hdfs, "/d/g", "/d/f");
    rename(&mut world.hdfs, "/d/h", "/d/g");
    world.actions.clear();
    let [f, g] = ["/d/f", "/d/g"].map(|path| world.hdfs.files[path].inode);
    assert_eq!(world.run("/d/f", ENCODED), End::Occupied { inode: g });
    assert_eq!(world.run("/d/g", Goal::Plain), End::Occupied { inode: f });
    // Neither parity protects its file meanwhile.
    assert_eq!(first_words(&world.actions), ["set", "set"]);
    assert!(["/d/f", "/d/g"].into_iter().all(|path| has_replicas(&world, path, 3)));
    // A third name makes room.
    rename(&mut world.hdfs, "/d/f", "/d/h");
    for path in ["/d/h", "/d/g"] {
        assert_eq!(world.run(path, ENCODED), End::Encoded);
        assert_protected(&world, path);
    }
}

/// Returns an encoded file that a client has renamed to the path of another one, and the inode of that, which is only in a
/// snapshot now.
fn renamed_over_a_snapshot() -> (World, u64) {
    let mut world = World::new(Start::Encoded);
    world.hdfs.add_encoded("/d/g");
    assert_eq!(world.run("/d/g", ENCODED), End::Encoded);
    let inode = world.hdfs.files["/d/f"].inode;
    world.hdfs.snapshots.push("/d".to_owned());
    world.hdfs.kept.insert(inode);
    world.hdfs.delete("/d/f");
    rename(&mut world.hdfs, "/d/g", "/d/f");
    world.actions.clear();
    (world, inode)
}

fn has_replicas(world: &World, path: &str, replication: u16) -> bool {
    let file = &world.hdfs.files[path];
    let has_all = file.blocks.iter().all(|block| block.replicas.len() >= usize::from(replication));
    file.replication == replication && has_all
}

/// Its parity cannot follow as long as the snapshot exists.
#[test]
fn a_file_at_the_path_of_one_that_a_snapshot_keeps_gets_its_replicas() {
    for goal in [ENCODED, Goal::Protected, Goal::Plain] {
        let (mut world, inode) = renamed_over_a_snapshot();
        let parities = |world: &World| {
            ["/p/d/f", "/p/d/g"].map(|path| {
                let file = &world.hdfs.files[path];
                (file.inode, file.fingerprint(), file.marks.clone())
            })
        };
        let before = parities(&world);
        for _ in 0..2 {
            assert_eq!(world.run("/d/f", goal), End::Occupied { inode });
            assert!(has_replicas(&world, "/d/f", 3), "{goal:?}");
        }
        assert_eq!(first_words(&world.actions), ["set"]);
        assert_eq!(parities(&world), before, "{goal:?}");
    }
}

#[test]
fn a_file_whose_parity_path_is_taken_gets_as_many_replicas_as_it_had() {
    for goal in [ENCODED, Goal::Plain] {
        let (mut world, inode) = renamed_over_a_snapshot();
        let parity = world.hdfs.files.get_mut("/p/d/g").expect("parity");
        parity.marks.note.as_mut().expect("a note").replication = 5;
        assert_eq!(world.run("/d/f", goal), End::Occupied { inode });
        assert!(has_replicas(&world, "/d/f", 5), "{goal:?}");
    }
}

/// It can be rebuilt only once the parity is at the path of its file.
#[test]
fn a_lost_block_of_a_file_whose_parity_path_is_taken_is_not_waited_for() {
    let (mut world, inode) = renamed_over_a_snapshot();
    let lost = *world.hdfs.files["/d/f"].blocks[0].replicas.first().expect("a replica");
    world.hdfs.kill(lost);
    let (facts, mut nodes) = world.facts("/d/f");
    let work = world.coordinator("/d/f", ENCODED).work;
    let steps = forecast(work, facts, &mut nodes, world.hdfs.now_ms);
    let texts: Vec<String> = steps.iter().map(ToString::to_string).collect();
    assert_eq!(texts.first().map(String::as_str), Some("set the replication of /d/f to 3"));
    assert_eq!(steps.last(), Some(&Next::End(End::Occupied { inode })));
}

#[test]
fn parity_follows_the_files_of_a_renamed_folder() {
    let mut world = World::new(Start::Replicated);
    world.hdfs.mkdirs("/d/a").expect("no file is in the way");
    for path in ["/d/a/x", "/d/a/y"] {
        world.hdfs.add(path, 5, 3);
        assert_eq!(world.run(path, ENCODED), End::Encoded);
    }
    rename(&mut world.hdfs, "/d/a", "/d/b");
    world.actions.clear();
    for path in ["/d/b/x", "/d/b/y"] {
        assert_eq!(world.run(path, ENCODED), End::Encoded);
        assert_protected(&world, path);
    }
    assert_eq!(first_words(&world.actions), ["let", "let"]);
}

#[test]
fn a_renamed_file_can_be_undone() {
    let mut world = renamed();
    assert_eq!(world.run("/d/g", Goal::Plain), End::Plain);
    assert_eq!(first_words(&world.actions), ["let", "set", "set", "set", "delete"]);
    let file = &world.hdfs.files["/d/g"];
    assert!(file.replication == 3 && file.blocks.iter().all(|block| block.replicas.len() == 3));
    assert!(!world.hdfs.files.keys().any(|path| path.starts_with("/p/")));
}

/// The note does not name its present blocks, so nothing but the replicas protects them.
#[test]
fn a_renamed_file_that_was_changed_gets_its_replicas_and_new_parity() {
    let mut world = World::new(Start::Stale(Change::Append));
    world.hdfs.change(Change::Rename);
    world.hdfs.files.get_mut("/p/d/f").expect("parity").marks.note.as_mut().expect("a note").replication = 5;
    assert_eq!(world.run("/d/g", ENCODED), End::Encoded);
    assert_eq!(world.actions[0].to_string(), "set the replication of /d/g to 5");
    assert_eq!(first_words(&world.actions)[..2], ["set", "let"]);
    assert_protected(&world, "/d/g");
    assert!(first_words(&world.actions).contains(&"encode".to_owned()));
    assert!(!world.hdfs.files.contains_key("/p/d/f"), "its former path is free for another file");
}

/// No policy covers it now, or none encodes it yet. It has one replica all the same.
#[test]
fn a_renamed_file_that_was_changed_gets_its_replicas_also_if_it_is_not_encoded() {
    let mut world = World::new(Start::Stale(Change::Append));
    world.hdfs.change(Change::Rename);
    assert_eq!(world.run("/d/g", Goal::Protected), End::Unfit(Exclusion::NoPolicy));
    assert_eq!(first_words(&world.actions), ["set", "let"]);
    assert_eq!(world.hdfs.files["/d/g"].replication, 3);
    let mut open = renamed();
    open.hdfs.files.get_mut("/d/g").expect("a file").is_open = true;
    assert_eq!(open.run("/d/g", ENCODED), End::Unfit(Exclusion::Open));
    assert_eq!(first_words(&open.actions), ["set", "let"]);
    assert!(has_replicas(&open, "/d/g", 3));
}

/// Each event, before each call; the invariants hold after each.
#[test]
fn the_renaming_of_parity_is_interrupted_anywhere() {
    for goal in [ENCODED, Goal::Plain] {
        let mut undisturbed = renamed();
        undisturbed.run("/d/g", goal);
        assert!(undisturbed.calls < MOST_CALLS);
        for call in 0..undisturbed.calls {
            for event in events() {
                let mut world = renamed();
                world.events.insert(call, event);
                world.run("/d/g", goal);
                world.events.clear();
                assert_eq!(world.run("/d/g", Goal::Plain), End::Plain, "{event:?} before call {call}");
            }
        }
    }
}

/// A client renames the file again, right before the parity is renamed.
#[test]
fn parity_that_follows_too_late_follows_again() {
    for (at, name) in [(0, "/d/h"), (1, "/d/h"), (0, "/e/f"), (1, "/e/f")] {
        let mut world = renamed();
        world.hdfs.mkdirs("/e").expect("no file is in the way");
        let mut first = world.coordinator("/d/g", ENCODED);
        if at > 0 {
            assert_eq!(world.step(&mut first), None);
        }
        rename(&mut world.hdfs, "/d/g", name);
        assert_eq!(
            world.run("/d/g", ENCODED),
            if at > 0 { occupied(&world, name) } else { End::SourceMissing }
        );
        assert_eq!(world.run(name, ENCODED), End::Encoded);
        assert_protected(&world, name);
    }
}

fn occupied(world: &World, path: &str) -> End {
    End::Occupied { inode: world.hdfs.files[path].inode }
}
