//! Folders whose files are encoded together: which blocks their parity protects after clients have changed files, and
//! the calls that encode them.

use std::collections::{BTreeMap, BTreeSet};

use hdfs_raid::{
    Block, Codec, DataNodes, End, Exclusion, FactFinder, File, Fingerprint, Folder, Goal, Health, Inspector,
    Listing, Mark, Marks, Members, Next, Node, NodeIndex, Note, Notes, Owner, ParityState, Policies,
    RaidedStripe, Scope, StaleParity, State, Storing, UnusableParity, Work, forecast, raided, survey,
};
use proptest::prelude::*;

const BLOCK: u64 = 1 << 20;
const NODES: usize = 12;
const NOW_MS: u64 = 100 * 86_400_000;
const FOLDER: u64 = 9;
/// Stripes of three data blocks with two parity blocks.
const POLICIES: &str = r#"
    [[policy]]
    name = "small"
    paths = ["/d", "/e"]
    codec = "folders"
    min_age = "0s"

    [[codec]]
    name = "folders"
    code = "rs-5-3"
    parity_root = "/p"
    scope = "folder"
"#;

fn policies() -> Policies {
    Policies::parse(POLICIES).expect("policies")
}

fn codec() -> Codec {
    policies().codec("folders").expect("a codec").clone()
}

/// Returns a file with blocks of these lengths, whose numbers follow its inode. Each block has replicas on as many
/// DataNodes.
fn file(path: &str, inode: u64, lengths: &[u64], replication: u16) -> File {
    let block = |(at, &bytes): (usize, &u64)| {
        let number = 10 * inode as i64 + at as i64;
        let node = |copy: u16| NodeIndex((inode as usize + at + usize::from(copy)) % NODES);
        Block { number, stamp: 1000 + number as u64, bytes, replicas: (0..replication).map(node).collect() }
    };
    File {
        inode,
        path: path.to_owned(),
        bytes: lengths.iter().sum(),
        block_bytes: BLOCK,
        replication,
        modified_ms: 1000,
        owner: Owner::Superuser,
        storing: Storing::Replicated,
        is_open: false,
        blocks: lengths.iter().enumerate().map(block).collect(),
    }
}

fn folder(inode: u64, path: &str) -> Folder {
    Folder { inode, path: path.to_owned(), modified_ms: 1000, owner: Owner::Superuser }
}

fn listing(files: Vec<File>) -> Listing {
    let node = |at| Node { address: format!("10.0.0.{at}:9866"), rack: "/r".to_owned(), is_usable: true };
    Listing {
        nodes: (0..NODES).map(node).collect(),
        files,
        folders: [(1, "/"), (FOLDER, "/d")].map(|(inode, path)| folder(inode, path)).to_vec(),
        root: "/".to_owned(),
        ..Listing::default()
    }
}

/// Four files in `/d`: three of one block, and one of two; and one that is too small to be encoded.
fn sources(replication: u16) -> Vec<File> {
    vec![
        file("/d/a", 20, &[1_000_000], replication),
        file("/d/b", 21, &[BLOCK, 5000], replication),
        file("/d/c", 22, &[900_000], replication),
        file("/d/e", 23, &[800_000], replication),
        file("/d/tiny", 24, &[9000], 3),
    ]
}

/// Adds the parity of `/d` with Mend's record and note about these files.
fn encoded(files: Vec<File>) -> Listing {
    let blocks: Vec<Block> =
        files.iter().filter(|file| file.bytes >= 10 << 10).flat_map(|file| file.blocks.clone()).collect();
    let (stripes, largest) = (blocks.len().div_ceil(3), blocks.iter().map(|block| block.bytes).max());
    let block_bytes = largest.unwrap_or_default().next_multiple_of(512);
    let mut parity = file("/p/d", 90, &vec![block_bytes; 2 * stripes], 1);
    for (at, block) in parity.blocks.iter_mut().enumerate() {
        block.replicas = vec![NodeIndex(at % 8)];
    }
    let (source, of_parity) = (Fingerprint::of(&blocks), Fingerprint::of(&parity.blocks));
    let code = Some(Fingerprint::of_code(&codec().code));
    let note = Note { inode: FOLDER, replication: 3, source, parity: of_parity, code };
    let members = Some(Members::of(&blocks));
    let marks =
        BTreeMap::from([("/p/d".to_owned(), Marks { note: Some(note), members, ..Marks::default() })]);
    let notes = Notes { marks, living: BTreeSet::from([FOLDER]), ..Notes::default() };
    let mut listing = listing(files);
    listing.files.push(parity);
    Listing { notes, ..listing }
}

/// For each stripe, the numbers of the data blocks, and the positions of those that do not exist any more.
type Stripes = Vec<(Vec<i64>, Vec<usize>)>;

/// Returns the stripes, and why the parity does not protect everything.
fn protected(listing: &Listing) -> (Stripes, Option<UnusableParity>) {
    let codecs = [codec()];
    let raided = raided(listing, &codecs);
    let stripe = |stripe: RaidedStripe<'_>| {
        let data: Vec<i64> = stripe.data.iter().map(|data| data.block.number).collect();
        (data, stripe.gone)
    };
    let stripes = raided.sources.iter().flat_map(|source| source.stripes().map(stripe).collect::<Vec<_>>());
    (stripes.collect(), raided.unusable.first().map(|(_, why)| why.clone()))
}

fn changed(gone: usize, new: usize) -> Option<UnusableParity> {
    Some(UnusableParity::Stale(StaleParity::Changed { gone, new }))
}

#[test]
fn stripes_run_over_the_files_of_a_folder() {
    let listing = encoded(sources(1));
    assert_eq!(protected(&listing), (vec![(vec![200, 210, 211], vec![]), (vec![220, 230], vec![])], None));
    let codecs = [codec()];
    let found = raided(&listing, &codecs);
    let source = &found.sources[0];
    assert_eq!((source.path, source.inode, source.parity.path.as_str()), ("/d", FOLDER, "/p/d"));
    let stripes: Vec<_> = source.stripes().collect();
    let places: Vec<_> = stripes[0].data.iter().map(|data| (data.file.path.as_str(), data.start)).collect();
    assert_eq!(places, [("/d/a", 0), ("/d/b", 0), ("/d/b", BLOCK)]);
    assert_eq!((stripes[1].parity_start, stripes[1].block_bytes), (2 * BLOCK, BLOCK));
}

/// A stripe never counts a block that differs from the one in the record of its parity.
#[test]
fn changes_of_files_leave_the_stripes_of_the_others() {
    type Change = fn(&mut Listing);
    let cases: [(&str, Change, Stripes, Option<UnusableParity>); 8] = [
        (
            "deleted",
            |listing| drop(listing.files.remove(0)),
            vec![(vec![210, 211], vec![0]), (vec![220, 230], vec![])],
            changed(1, 0),
        ),
        (
            "renamed",
            |listing| listing.files[0].path = "/d/z".to_owned(),
            vec![(vec![200, 210, 211], vec![]), (vec![220, 230], vec![])],
            None,
        ),
        (
            "moved away",
            |listing| listing.files[2].path = "/e/c".to_owned(),
            vec![(vec![200, 210, 211], vec![]), (vec![230], vec![0])],
            changed(1, 0),
        ),
        (
            "appended: the last block gets a new stamp",
            |listing| {
                let file = &mut listing.files[1];
                (file.blocks[1].stamp, file.blocks[1].bytes, file.bytes) = (5000, 9000, BLOCK + 9000);
            },
            vec![(vec![200, 210], vec![2]), (vec![220, 230], vec![])],
            changed(1, 1),
        ),
        (
            "truncated: the last block is gone",
            |listing| {
                let file = &mut listing.files[1];
                file.blocks.pop();
                file.bytes = BLOCK;
            },
            vec![(vec![200, 210], vec![2]), (vec![220, 230], vec![])],
            changed(1, 0),
        ),
        (
            "added",
            |listing| listing.files.push(file("/d/new", 30, &[50_000], 3)),
            vec![(vec![200, 210, 211], vec![]), (vec![220, 230], vec![])],
            changed(0, 1),
        ),
        (
            "opened for writing",
            |listing| listing.files[3].is_open = true,
            vec![(vec![200, 210, 211], vec![]), (vec![220], vec![1])],
            changed(1, 0),
        ),
        (
            "all of a stripe deleted",
            |listing| drop(listing.files.drain(2..4)),
            vec![(vec![200, 210, 211], vec![])],
            changed(2, 0),
        ),
    ];
    for (what, change, stripes, why) in cases {
        let mut listing = encoded(sources(1));
        change(&mut listing);
        assert_eq!(protected(&listing), (stripes, why), "{what}");
    }
}

#[test]
fn parity_of_a_folder_needs_its_own_note_and_record() {
    let stale = |change: fn(&mut Listing)| {
        let mut listing = encoded(sources(1));
        change(&mut listing);
        let (stripes, why) = protected(&listing);
        assert!(stripes.is_empty(), "{stripes:?}");
        why
    };
    let of = |why| Some(UnusableParity::Stale(why));
    // The record is of other blocks than the note.
    let why = stale(|listing| {
        let members = Some(Members::of(&listing.files[0].blocks));
        let marks = listing.notes.marks.get_mut("/p/d").expect("marks");
        marks.members = members;
        listing.files.remove(0);
    });
    assert_eq!(why, of(StaleParity::OtherBlocks));
    // Another folder has the path now.
    let why = stale(|listing| listing.folders[1].inode = 77);
    assert_eq!(why, of(StaleParity::Foreign { inode: FOLDER }));
    let why = stale(|listing| listing.files.last_mut().expect("parity").blocks[0].stamp += 1);
    assert_eq!(why, of(StaleParity::OtherBlocks));
    let why = stale(|listing| drop(listing.folders.pop()));
    assert_eq!(why, Some(UnusableParity::NoSource("/d".to_owned())));
    // The folder was encoded before the code of the codec was changed. A note of version 1 does not name the code.
    let noted = |listing: &mut Listing, code: Option<Fingerprint>| {
        let marks = listing.notes.marks.get_mut("/p/d").expect("marks");
        marks.note = marks.note.map(|note| Note { code, ..note });
    };
    let mut old = encoded(sources(1));
    let former = Codec::hdfs_raid()[0].code.clone();
    noted(&mut old, Some(Fingerprint::of_code(&former)));
    assert_eq!(protected(&old), (vec![], of(StaleParity::OtherCode)));
    assert_eq!(unit(&old, "/d").state, State::Stale(StaleParity::OtherCode));
    noted(&mut old, None);
    assert_eq!(protected(&old).0.len(), 2);
    assert_eq!(unit(&old, "/d").protection.expect("parity").state, ParityState::Unproven);
    let steps = steps(&old, "/d", ENCODED);
    assert_eq!(steps[0], "read the parity back and check it against the data (1 file)", "{steps:#?}");
    assert!(
        steps[1].starts_with("set user.mend.source and trusted.mend.source of /p/d to `2 "),
        "{steps:#?}"
    );
    // Without a record, the note still names the blocks in the order of the listing.
    let mut listing = encoded(sources(1));
    listing.notes.marks.get_mut("/p/d").expect("marks").members = None;
    assert_eq!(protected(&listing).0.len(), 2);
}

/// HDFS-RAID's parity has no record. The folder's time and the length of the parity have to fit, and even then, nothing is
/// rebuilt from it before Mend has checked it: it may be the parity of other files of the folder.
#[test]
fn parity_that_hdfs_raid_wrote_for_a_folder_is_checked_before_it_is_used() {
    let mut listing = encoded(sources(1));
    listing.notes = Notes::default();
    let parity = listing.files.last_mut().expect("parity");
    parity.blocks.iter_mut().for_each(|block| block.stamp += 5000);
    let unchecked = UnusableParity::Stale(StaleParity::Unchecked);
    assert_eq!(protected(&listing), (vec![], Some(unchecked)));
    // A survey counts nothing as rebuilt that is not.
    let found = unit(&listing, "/d");
    assert_eq!((found.state.name(), found.health.single), ("unchecked-parity", 4));
    assert_eq!(found.protection.expect("parity").state.name(), "unchecked");
    let mut lost = listing.clone();
    lost.files[0].blocks[0].replicas.clear();
    let found = unit(&lost, "/d");
    assert_eq!((found.state.name(), found.health.unprotected), ("unreadable", 1));
    assert!(Inspector::new(&lost, &policies()).stripes(&unit(&lost, "/d")).is_empty());
    // It is checked, and gets a record and a note.
    let steps = steps(&listing, "/d", ENCODED);
    assert_eq!(
        steps[..2],
        [
            "record the blocks of the folder on /p/d",
            "read the parity back and check it against the data (1 file)"
        ]
    );
    assert_eq!(steps.last().map(String::as_str), Some("encoded"), "{steps:#?}");
    let mut touched = listing.clone();
    touched.folders[1].modified_ms = 2000;
    let why = StaleParity::Modified { source_ms: 2000, parity_ms: 1000 };
    assert_eq!(protected(&touched), (vec![], Some(UnusableParity::Stale(why))));
    listing.files[1].is_open = true;
    assert!(protected(&listing).0.is_empty());
}

/// A file that was moved into the folder together with parity of its own belongs to that; the folder is encoded again.
#[test]
fn no_block_is_in_two_stripes() {
    let codecs = [codec(), Codec::new("files", "xor-3-2".parse().expect("a code"), "/x", Scope::File)];
    let mut listing = encoded(sources(1));
    let new = file("/d/new", 30, &[BLOCK; 2], 1);
    let mut parities = vec![file("/x/d/new", 80, &[BLOCK], 1), file("/x/d/b", 81, &[BLOCK], 1)];
    parities.iter_mut().flat_map(|file| &mut file.blocks).for_each(|block| block.stamp = 9000);
    listing.files.push(new);
    listing.files.append(&mut parities);
    let found = raided(&listing, &codecs);
    let mut numbers = Vec::new();
    for source in &found.sources {
        for stripe in source.stripes() {
            numbers.extend(stripe.data.iter().map(|data| data.block.number));
        }
    }
    numbers.sort_unstable();
    assert_eq!(numbers, [200, 210, 211, 220, 230, 300, 301], "the folder's parity protects /d/b");
    let paths: Vec<&str> = found.sources.iter().map(|source| source.path).collect();
    assert_eq!(paths, ["/d", "/d/new"]);
}

fn unit(listing: &Listing, path: &str) -> hdfs_raid::Unit {
    let survey = survey(listing, &policies(), NOW_MS);
    survey.units.into_iter().find(|unit| unit.path == path).expect("a unit")
}

#[test]
fn a_folder_has_the_states_of_a_file() {
    assert_eq!(unit(&listing(sources(3)), "/d").state, State::ShouldEncode);
    let whole = unit(&encoded(sources(1)), "/d");
    assert_eq!((whole.state, whole.files.len()), (State::Raided, 4));
    assert_eq!(whole.protection.expect("parity").state, ParityState::Proven);
    let mut renamed = encoded(sources(1));
    renamed.files[0].path = "/d/z".to_owned();
    assert_eq!(unit(&renamed, "/d").state, State::Raided);
    let mut lost = encoded(sources(1));
    lost.files[0].blocks[0].replicas.clear();
    assert!(matches!(unit(&lost, "/d").state, State::Damaged(damage) if damage.repairable == 1));
    // A subfolder does not take the protection away.
    lost.folders.push(folder(7, "/d/sub"));
    assert!(matches!(unit(&lost, "/d").state, State::Damaged(_)));
}

/// The rest of the folder is at risk, and is encoded again. Until then, its old parity helps.
#[test]
fn a_changed_folder_is_stale_and_its_lost_blocks_may_still_be_decodable() {
    let state = |lost: &[usize]| {
        let mut listing = encoded(sources(1));
        listing.files.remove(0);
        lost.iter().for_each(|&at| listing.files[0].blocks[at].replicas.clear());
        let unit = unit(&listing, "/d");
        let Health { unprotected, still_protected, single, .. } = unit.health;
        (unit.state, [unprotected, still_protected, single])
    };
    let stale = State::Stale(StaleParity::Changed { gone: 1, new: 0 });
    assert_eq!(state(&[]), (stale.clone(), [0, 0, 3]));
    assert_eq!(state(&[0]), (stale, [0, 1, 3]), "one block is gone and one lost; the code tolerates two");
    let (state, [unprotected, still_protected, _]) = state(&[0, 1]);
    assert_eq!((state.name(), unprotected, still_protected), ("unreadable", 2, 0));
}

/// Returns the encoded folder after it was renamed without its parity.
fn renamed_folder() -> Listing {
    let mut listing = encoded(sources(1));
    listing.folders[1].path = "/e".to_owned();
    for file in listing.files.iter_mut().filter(|file| file.path.starts_with("/d/")) {
        file.path = file.path.replacen("/d", "/e", 1);
    }
    listing
}

/// The other files have one replica, and the parity protects them once it has the right path.
#[test]
fn the_parity_follows_a_renamed_folder_that_has_changed_since() {
    let mut listing = renamed_folder();
    listing.files.remove(0);
    let renamed = unit(&listing, "/e");
    assert_eq!((renamed.stray(), &renamed.state), (Some("/p/d"), &State::Stale(StaleParity::Elsewhere)));
    let steps = steps(&listing, "/e", ENCODED);
    assert_eq!(steps[..2], ["set the replication of /e to 3", "let /p/d become /p/e"]);
}

/// The files have no valid parity, so their replication has to be raised.
#[test]
fn the_files_of_a_renamed_folder_get_their_replicas_also_if_all_of_them_were_changed() {
    let mut listing = renamed_folder();
    let own = listing.files.iter_mut().filter(|file| file.path.starts_with("/e/"));
    own.flat_map(|file| &mut file.blocks).for_each(|block| block.number += 1000);
    assert_eq!(unit(&listing, "/e").stray(), Some("/p/d"));
    let steps = steps(&listing, "/e", ENCODED);
    assert_eq!(steps[..2], ["set the replication of /e to 3", "let /p/d become /p/e"]);
}

#[test]
fn the_parity_of_a_renamed_folder_is_found() {
    let listing = renamed_folder();
    let renamed = unit(&listing, "/e");
    assert_eq!((renamed.stray(), &renamed.state), (Some("/p/d"), &State::Stale(StaleParity::Elsewhere)));
    let steps = steps(&listing, "/e", ENCODED);
    assert_eq!(steps, ["let /p/d become /p/e", "wait until HDFS has created or removed replicas", "encoded"]);
}

/// Another folder was renamed, and its parity is at the path that now belongs to this one.
#[test]
fn a_renamed_folder_whose_parity_path_is_taken_gets_its_replicas() {
    let mut listing = renamed_folder();
    listing.files.push(file("/p/e", 91, &[BLOCK; 2], 1));
    let mut marks = listing.notes.marks["/p/d"].clone();
    marks.note.as_mut().expect("a note").inode = 77;
    listing.notes.marks.insert("/p/e".to_owned(), marks);
    listing.notes.living.insert(77);
    let renamed = unit(&listing, "/e");
    assert_eq!((renamed.stray(), &renamed.state), (Some("/p/d"), &State::Stale(StaleParity::Elsewhere)));
    let steps = steps(&listing, "/e", ENCODED);
    let end = End::Occupied { inode: 77 }.to_string();
    assert_eq!(
        steps,
        ["set the replication of /e to 3", "wait until HDFS has created all replicas", end.as_str()]
    );
}

const ENCODED: Goal = Goal::Encoded { replication: 1, parity_replication: 1 };

/// Returns the steps towards a goal as text, without those that depend on the places of replicas.
fn steps(listing: &Listing, path: &str, goal: Goal) -> Vec<String> {
    let (policies, mut nodes) = (policies(), DataNodes::of(listing));
    let facts = FactFinder::new(listing).facts(&codec(), Some(&policies.policies()[0]), path, NOW_MS);
    let steps = forecast(Work::new(codec(), 2, goal, 1), facts, &mut nodes, NOW_MS);
    let texts = steps.iter().map(ToString::to_string);
    texts.filter(|text| !text.starts_with("move block")).collect()
}

#[test]
fn the_calls_that_encode_a_folder() {
    let draft = "/tmp/p/d/.mend-9-1000-1";
    let steps = steps(&listing(sources(3)), "/d", ENCODED);
    let begins = |at: usize, text: &str| assert!(steps[at].starts_with(text), "{at}: {steps:#?}");
    begins(0, &format!("create the folder {draft}"));
    begins(1, "encode stripe 0: parity block 0 on ");
    begins(2, "encode stripe 1: parity block 0 on ");
    begins(3, &format!("record the blocks of the folder on {draft}/0-0"));
    begins(4, "read the parity back and check it against the data (4 files)");
    begins(5, &format!("set user.mend.source and trusted.mend.source of {draft}/0-0 to `2 9 3 "));
    begins(6, &format!("append 3 files to {draft}/0-0"));
    begins(7, "set the modification time");
    begins(8, &format!("let {draft}/0-0 become /p/d"));
    begins(9, &format!("delete {draft}"));
    begins(10, "set the replication of /d to 1");
    assert_eq!(steps.last().map(String::as_str), Some("encoded"), "{steps:#?}");
}

/// All files get their replicas before the old parity goes, also a new one that has never been encoded.
#[test]
fn a_changed_folder_is_replicated_before_it_is_encoded_again() {
    let mut listing = encoded(sources(1));
    listing.files.remove(0);
    listing.files.push(file("/d/new", 30, &[50_000], 3));
    let steps = steps(&listing, "/d", ENCODED);
    let expected = [
        "set the replication of /d to 3",
        "wait until HDFS has created all replicas",
        "create the folder /tmp/p/d/.mend-9-1000-1",
    ];
    assert_eq!(steps[..3], expected);
    assert!(steps.iter().any(|step| step.ends_with("/0-0 replace /p/d")), "{steps:#?}");
    assert_eq!(steps.last().map(String::as_str), Some("encoded"), "{steps:#?}");
}

/// No parity protects the rest of it, and it belongs to no stripe any more.
#[test]
fn a_file_that_was_truncated_below_the_limit_gets_its_replicas_again() {
    let mut listing = encoded(sources(1));
    let truncated = &mut listing.files[0];
    truncated.bytes = 9000;
    (truncated.blocks[0].bytes, truncated.blocks[0].stamp) = (9000, 5000);
    listing.files[1..4].iter_mut().for_each(|file| file.replication = 3);
    let steps = steps(&listing, "/d", ENCODED);
    assert_eq!(steps[..2], ["set the replication of /d to 3", "wait until HDFS has created all replicas"]);
}

/// No file belongs to the stripes any more, and each has one replica.
#[test]
fn files_that_were_all_truncated_below_the_limit_get_their_replicas_again() {
    let mut listing = encoded(sources(1));
    for file in listing.files.iter_mut().filter(|file| file.path.starts_with("/d/") && file.replication == 1)
    {
        file.blocks.truncate(1);
        (file.blocks[0].bytes, file.blocks[0].stamp, file.bytes) = (9000, 5000, 9000);
    }
    let found = unit(&listing, "/d");
    assert_eq!((found.files.len(), found.health.single), (5, 4));
    assert_eq!(found.state, State::Stale(StaleParity::Changed { gone: 5, new: 0 }));
    let steps = steps(&listing, "/d", ENCODED);
    assert_eq!(steps[..2], ["set the replication of /d to 3", "wait until HDFS has created all replicas"]);
    assert!(steps.last().is_some_and(|step| step.starts_with("excluded: it has 9000 bytes")), "{steps:#?}");
    // Without a record, nothing shows that they were encoded.
    listing.notes = Notes::default();
    assert_eq!(self::steps(&listing, "/d", ENCODED), [End::SourceMissing.to_string()]);
}

/// HDFS refuses to set its replication, and the other files must not wait for that.
#[test]
fn a_file_that_hdfs_erasure_codes_is_not_raised() {
    let mut listing = encoded(sources(1));
    listing.files.push(File { storing: Storing::Striped, ..file("/d/new", 30, &[50_000], 1) });
    listing.files[0].replication = 3;
    let facts = FactFinder::new(&listing).facts(&codec(), Some(&policies().policies()[0]), "/d", NOW_MS);
    let paths = |files: Vec<&File>| files.iter().map(|file| file.path.clone()).collect::<Vec<_>>();
    assert_eq!(paths(facts.below(3)), ["/d/b", "/d/c", "/d/e"]);
    assert_eq!(
        (paths(facts.above(0)), paths(facts.above(1))),
        (["/d/a", "/d/b", "/d/c", "/d/e"].map(str::to_owned).to_vec(), vec!["/d/a".to_owned()],)
    );
}

/// HDFS lists such a file with replication 1, whatever is asked for.
#[test]
fn a_folder_with_a_file_that_hdfs_erasure_codes_reaches_its_replication() {
    let mut listing = encoded(sources(2));
    listing.files.push(File { storing: Storing::Striped, ..file("/d/new", 30, &[], 1) });
    listing.files.last_mut().expect("a file").bytes = 50_000;
    let goal = Goal::Encoded { replication: 2, parity_replication: 1 };
    let steps = steps(&listing, "/d", goal);
    assert!(!steps.contains(&"set the replication of /d to 2".to_owned()), "{steps:#?}");
    assert_eq!(steps.last().map(String::as_str), Some("encoded"), "{steps:#?}");
}

#[test]
fn a_folder_whose_files_are_gone_has_no_work() {
    let mut listing = encoded(sources(1));
    listing.files.retain(|file| file.path == "/p/d");
    assert_eq!(steps(&listing, "/d", ENCODED), [End::SourceMissing.to_string()]);
}

#[test]
fn the_encoding_of_a_folder_is_undone() {
    let steps = steps(&encoded(sources(1)), "/d", Goal::Plain);
    let expected = [
        "set trusted.mend.undo of /p/d to `yes`",
        "set user.mend.raid of /d to `never`",
        "set the replication of /d to 3",
        "wait until HDFS has created all replicas",
        "wait until HDFS has created or removed replicas",
        "delete /p/d",
        "replicated, without parity",
    ];
    assert_eq!(steps, expected);
}

#[test]
fn folders_that_cannot_be_encoded_have_a_reason() {
    let next = |listing: &Listing| {
        let (policies, nodes) = (policies(), DataNodes::of(listing));
        let facts = FactFinder::new(listing).facts(&codec(), Some(&policies.policies()[0]), "/d", NOW_MS);
        match Work::new(codec(), 2, ENCODED, 1).next(&facts, &nodes, NOW_MS) {
            Next::End(End::Unfit(why)) => why,
            other => panic!("{other:?}"),
        }
    };
    let mut nested = listing(sources(3));
    nested.folders.push(folder(7, "/d/sub"));
    assert_eq!(next(&nested), Exclusion::Subfolders("/d".to_owned()));
    let mut open = listing(sources(3));
    open.files[2].is_open = true;
    assert_eq!(next(&open).name(), "neighbour");
    let many = (100..1700).map(|inode| file(&format!("/d/{inode}"), 7 * inode, &[20_000 + inode], 3));
    let many = listing(many.collect());
    assert_eq!(next(&many), Exclusion::ManyBlocks { blocks: 1600 });
    assert_eq!(unit(&many, "/d").state.name(), "too-many-blocks");
}

proptest! {
    /// Each stripe consists of the blocks with which it was made, at their positions.
    #[test]
    fn stripes_agree_with_the_slow_reference(
        lengths in prop::collection::vec(prop::collection::vec(11_000_u64..40_000, 1..4), 1..8),
        deleted in any::<u8>(),
        renamed in any::<u8>(),
        rewritten in any::<u8>(),
    ) {
        let create = |(at, lengths): (usize, &Vec<u64>)| file(&format!("/d/{at}"), 20 + at as u64, lengths, 1);
        let files: Vec<File> = lengths.iter().enumerate().map(create).collect();
        let recorded: Vec<i64> = files.iter().flat_map(|file| &file.blocks).map(|block| block.number).collect();
        let mut listing = encoded(files);
        let is = |bits: u8, at: usize| bits & (1 << at) != 0;
        for at in 0..lengths.len() {
            if is(renamed, at) {
                listing.files[at].path = format!("/d/z{at}");
            }
            if is(rewritten, at) {
                listing.files[at].blocks[0].stamp += 7;
            }
        }
        let mut at = 0;
        listing.files.retain(|file| {
            at += 1;
            file.path == "/p/d" || !is(deleted, at - 1)
        });
        let intact = |number: &i64| {
            let at = (number / 10 - 20) as usize;
            !is(deleted, at) && (number % 10 > 0 || !is(rewritten, at))
        };
        let mut expected = Vec::new();
        for stripe in recorded.chunks(3) {
            let data: Vec<i64> = stripe.iter().copied().filter(intact).collect();
            let gone: Vec<usize> = (0..stripe.len()).filter(|&at| !intact(&stripe[at])).collect();
            if !data.is_empty() {
                expected.push((data, gone));
            }
        }
        let (stripes, why) = protected(&listing);
        prop_assert_eq!(stripes, expected);
        prop_assert_eq!(why.is_some(), !recorded.iter().all(intact));
    }
}

/// The simulated attributes are those that Mend writes.
#[test]
fn the_record_is_an_attribute_of_the_parity() {
    let listing = encoded(sources(1));
    let members = listing.notes.marks["/p/d"].members.clone().expect("a record");
    let (names, value) = Mark::Members(members.clone()).attributes();
    assert_eq!(names, ["user.mend.members", "trusted.mend.members"]);
    let mut notes = Notes::default();
    notes.take("/p/d", names[1], &value).expect("a record");
    assert_eq!(notes.marks["/p/d"].members, Some(members));
    assert!(notes.take("/p/d", names[0], "x").is_ok(), "users can set it");
    assert!(notes.take("/p/d", names[1], "x").is_err());
}
