//! The states of files in listings, and the plans for files that are to be encoded.

mod health;
mod protection;

use std::collections::{BTreeMap, BTreeSet};

use hdfs_raid::{
    Block, Damage, Direction, Exclusion, FactFinder, File, Fingerprint, Folder, Listing, Marks, Node,
    NodeIndex, Note, Notes, Owner, Policies, Seat, StaleParity, State, Storing, Survey, Unit, candidate,
    survey,
};
use proptest::prelude::*;

const NODES: usize = 20;
const BLOCK: u64 = 1 << 20;
const NOW: u64 = 100 * 86_400_000;

const POLICIES: &str = r#"
    [[policy]]
    name = "large"
    paths = ["/large"]
    codec = "rs"

    [[policy]]
    name = "small"
    paths = ["/small"]
    codec = "dir-xor"
"#;

/// Returns the survey of a listing at `NOW`.
fn surveyed(listing: &Listing) -> Survey {
    survey(listing, &Policies::parse(POLICIES).expect("policies"), NOW)
}

fn listing(files: Vec<File>) -> Listing {
    let node =
        |at| Node { address: format!("10.0.0.{at}:9866"), rack: format!("/rack{}", at % 5), is_usable: true };
    let mut paths: BTreeSet<String> = files.iter().map(|file| file.folder().to_owned()).collect();
    paths.insert("/".to_owned());
    let folder = |path| Folder { inode: 0, path, modified_ms: 1000, owner: Owner::Superuser };
    Listing {
        nodes: (0..NODES).map(node).collect(),
        files,
        folders: paths.into_iter().map(folder).collect(),
        ..Listing::default()
    }
}

/// Creates a file whose blocks have `replication` replicas on consecutive DataNodes, from number `from` on.
fn file(path: &str, blocks: u64, replication: u16, from: usize) -> File {
    let block = |at: u64| {
        let replicas =
            (0..usize::from(replication)).map(|copy| NodeIndex((from + at as usize + copy) % NODES));
        Block { number: at as i64, stamp: 1, bytes: BLOCK, replicas: replicas.collect() }
    };
    File {
        inode: 1,
        path: path.to_owned(),
        bytes: blocks * BLOCK,
        block_bytes: BLOCK,
        replication,
        modified_ms: 1000,
        owner: Owner::Superuser,
        storing: Storing::Replicated,
        is_open: false,
        blocks: (0..blocks).map(block).collect(),
    }
}

/// Returns an encoded file of 10 blocks and its parity file.
fn encoded() -> [File; 2] {
    [file("/large/f", 10, 1, 0), file("/raidrs/large/f", 4, 1, 10)]
}

fn damage(repairable: usize, unrecoverable: usize) -> Damage {
    Damage { repairable, unrecoverable, unprotected: 0 }
}

/// Returns the unit of this path.
fn unit(survey: &Survey, path: &str) -> Unit {
    survey.units.iter().find(|unit| unit.path == path).expect("a unit").clone()
}

fn state(files: Vec<File>) -> State {
    unit(&surveyed(&listing(files)), "/large/f").state
}

#[test]
fn a_replicated_file_is_to_be_encoded() {
    let unit = unit(&surveyed(&listing(vec![file("/large/f", 23, 3, 0)])), "/large/f");
    assert_eq!(
        (&unit.state, unit.policy.as_deref(), unit.codec.as_deref()),
        (&State::ShouldEncode, Some("large"), Some("rs"))
    );
    // 23 blocks three times, or once with three times four parity blocks.
    assert_eq!((unit.stored, unit.target), (69 * BLOCK, 35 * BLOCK));
    let blocks: Vec<usize> = unit.stripes.iter().map(|stripe| stripe.arrangement.seats.len()).collect();
    assert_eq!(blocks, [14, 14, 7]);
    for stripe in &unit.stripes {
        let kept = stripe.arrangement.seats.iter().filter(|seat| matches!(seat, Seat::Kept(_))).count();
        assert_eq!((kept, stripe.moves()), (stripe.members.len(), 0));
        assert_eq!(stripe.arrangement.new_blocks().count(), 4);
        // Five racks of four DataNodes; the code tolerates four losses.
        assert!(stripe.is_rack_safe);
    }
}

#[test]
fn the_state_of_an_encoded_file() {
    assert_eq!(state(encoded().into()), State::Raided);
    let [source, parity] = encoded();
    let high = file("/large/f", 10, 2, 0);
    assert_eq!(state(vec![high, parity.clone()]), State::NotLowered);
    let mut crowded = source.clone();
    crowded.blocks[3].replicas = vec![NodeIndex(2)];
    assert_eq!(state(vec![crowded, parity.clone()]), State::Misplaced(1));
    let touched = File { modified_ms: 2000, ..source.clone() };
    let stale = StaleParity::Modified { source_ms: 2000, parity_ms: 1000 };
    assert_eq!(state(vec![touched, parity]), State::Stale(stale));
}

/// Returns the unit of `/large/f` if the coordinator repairs the files of this folder only.
fn unit_if_repaired(folder: &str, files: Vec<File>) -> Unit {
    let repaired = Some(vec![folder.to_owned()]);
    unit(&surveyed(&Listing { repaired, ..listing(files) }), "/large/f")
}

#[test]
fn files_that_the_coordinator_does_not_repair_are_held() {
    let new = || vec![file("/large/f", 23, 3, 0)];
    let outside = unit_if_repaired("/other", new());
    assert_eq!((&outside.state, &outside.held), (&State::ShouldEncode, &Some(Exclusion::Outside)));
    assert_eq!(outside.target, outside.stored, "it is not encoded, so nothing is saved");
    assert_eq!(unit_if_repaired("/large", new()).held, None);
    let outside = unit_if_repaired("/large/other", encoded().into());
    assert_eq!((&outside.state, &outside.held), (&State::Raided, &Some(Exclusion::Outside)));
    assert_eq!(unit_if_repaired("/", encoded().into()).held, None);
    let small = unit_if_repaired("/other", vec![file("/large/f", 1, 3, 0)]);
    assert!(matches!(small.state, State::Excluded(_)) && small.held.is_none(), "{small:?}");
}

/// A candidate with a policy is encoded, or refused by commands. One without only gets its replicas.
#[test]
fn only_stale_parity_makes_a_file_outside_of_the_repaired_folders_a_candidate_without_a_policy() {
    let policies = Policies::parse(POLICIES).expect("policies");
    let [source, parity] = encoded();
    let stale = vec![File { modified_ms: 2000, ..source }, parity];
    let has_policy = |folder: &str, files: &[File]| {
        let unit = unit_if_repaired(folder, files.to_vec());
        let found = candidate(&unit, &policies, Direction::Encode).expect("a candidate");
        assert_eq!(found.goal, policies.policies()[0].goal());
        found.policy.is_some()
    };
    assert!(has_policy("/large", &stale) && !has_policy("/other", &stale));
    let [mut source, parity] = encoded();
    source.blocks[9].stamp += 1; // The parity is older than the block, but may be right.
    assert!(has_policy("/other", &[source, parity]));
    assert!(has_policy("/other", &encoded()) && has_policy("/other", &[file("/large/f", 23, 3, 0)]));
    let undone = unit_if_repaired("/other", stale);
    let undo = candidate(&undone, &policies, Direction::Undo).expect("a candidate");
    assert!(undo.policy.is_some());
}

/// A client appends to the encoded file, or a snapshot was taken of its folder. Its lost block changes nothing about the others.
#[test]
fn a_changed_file_that_is_left_as_it_is_gets_its_replicas_also_if_a_block_is_lost() {
    let policies = Policies::parse(POLICIES).expect("policies");
    let [mut source, parity] = encoded();
    (source.modified_ms, source.is_open) = (2000, true);
    source.blocks[3].replicas.clear();
    let open = listing(vec![source.clone(), parity.clone()]);
    source.is_open = false;
    let kept = Listing { snapshots: vec!["/large".to_owned()], ..listing(vec![source, parity]) };
    for listing in [open, kept] {
        let unit = unit(&surveyed(&listing), "/large/f");
        assert!(unit.state.name() == "unreadable" && unit.held.is_some(), "{unit:?}");
        let found = candidate(&unit, &policies, Direction::Encode).expect("a candidate");
        assert_eq!(found.goal, policies.policies()[0].goal());
    }
}

#[test]
fn parity_with_a_note_about_other_blocks_is_stale() {
    let state = |inode: u64| {
        let [source, parity] = encoded();
        let [of_source, of_parity] = [&source, &parity].map(|file| Fingerprint::of(&file.blocks));
        let note = Note { inode, replication: 3, source: of_source, parity: of_parity, code: None };
        let marks = Marks { note: Some(note), ..Marks::default() };
        let notes = Notes { marks: BTreeMap::from([(parity.path.clone(), marks)]), ..Notes::default() };
        unit(&surveyed(&Listing { notes, ..listing(vec![source, parity]) }), "/large/f").state
    };
    assert_eq!(state(1), State::Raided);
    assert_eq!(state(2), State::Stale(StaleParity::OtherBlocks));
}

#[test]
fn missing_blocks_of_an_encoded_file() {
    let lose = |count: usize| {
        let [mut source, parity] = encoded();
        source.blocks.iter_mut().take(count).for_each(|block| block.replicas.clear());
        state(vec![source, parity])
    };
    assert_eq!(lose(4), State::Damaged(damage(1, 0)));
    assert_eq!(lose(5), State::Damaged(damage(0, 1)));
    assert_eq!([lose(4), lose(5)].map(|state| state.name()), ["degraded", "unreadable"]);
    // A stripe of one data block and four parity blocks needs any one of them: the other nine are zeros.
    let mut files = vec![file("/large/f", 1, 1, 0), file("/raidrs/large/f", 4, 1, 1)];
    files[0].blocks[0].replicas.clear();
    files[1].blocks[..3].iter_mut().for_each(|block| block.replicas.clear());
    assert_eq!(state(files.clone()), State::Damaged(damage(1, 0)));
    files[1].blocks[3].replicas.clear();
    assert_eq!(state(files), State::Damaged(damage(0, 1)));
}

#[test]
fn files_that_are_not_encoded_have_a_reason() {
    let why = |file: File| match state(vec![file]) {
        State::Excluded(why) => why.name(),
        state => panic!("{state:?}"),
    };
    let whole = || file("/large/f", 23, 3, 0);
    assert_eq!(why(file("/large/f", 2, 3, 0)), "too-small");
    assert_eq!(why(File { modified_ms: NOW - 1, ..whole() }), "too-new");
    assert_eq!(why(File { is_open: true, ..whole() }), "open");
    // Three blocks and four of parity take more than three blocks twice.
    assert_eq!(why(file("/large/f", 3, 2, 0)), "no-saving");
    let mut lost = whole();
    lost.blocks[7].replicas.clear();
    assert_eq!(why(lost), "lost-block");
    let survey = surveyed(&listing(vec![file("/other/f", 23, 3, 0), file("/raidrs/other/g", 4, 1, 0)]));
    let names: Vec<_> = survey.units.iter().map(|unit| unit.state.name()).collect();
    assert_eq!(names, ["no-policy", "parity"]);
    let mut few = listing(vec![whole()]);
    few.nodes.iter_mut().skip(13).for_each(|node| node.is_usable = false);
    let State::Excluded(why) = unit(&surveyed(&few), "/large/f").state else { panic!("it is encoded") };
    assert_eq!(why.to_string(), "a stripe needs 14 DataNodes in service, and there are 13");
}

/// The second local parity block of the last stripe would have no data.
#[test]
fn files_with_a_stripe_that_mend_cannot_repair_keep_their_replicas() {
    const LOCAL: &str = "[[policy]]\nname = \"local\"\npaths = [\"/local\"]\ncodec = \"local\"\n\
                         [[codec]]\nname = \"local\"\ncode = \"lrc-4-2-1\"\nparity_root = \"/raid-local\"\n";
    let policies = Policies::parse(LOCAL).expect("policies");
    let state = |files: Vec<File>| unit(&survey(&listing(files), &policies, NOW), "/local/f").state;
    let source = |blocks, replication| file("/local/f", blocks, replication, 0);
    let excluded = state(vec![source(5, 3)]);
    let State::Excluded(why) = &excluded else { panic!("{excluded:?}") };
    assert_eq!(why.name(), "unrepairable", "{why}");
    assert_eq!(state(vec![source(8, 3)]), State::ShouldEncode);
    // The work on the file follows the same rule.
    let replicated = listing(vec![source(5, 3)]);
    let (codec, policy) = (policies.codec("local").expect("a codec"), &policies.policies()[0]);
    let facts = FactFinder::new(&replicated).facts(codec, Some(policy), "/local/f", NOW);
    assert_eq!(facts.unfit.as_ref(), Some(why));

    // An earlier version has encoded it.
    let parity = || file("/raid-local/local/f", 6, 1, 10);
    let named = state(vec![source(5, 1), parity()]);
    assert!(matches!(named, State::Unrepairable(_)), "{named:?}");
    assert!(named.reason().expect("a reason").contains("hdfs dfs -setrep"));
    assert_eq!(state(vec![source(5, 3), parity()]), State::NotLowered);
    assert_eq!(state(vec![source(8, 1), parity()]), State::Raided);
    let lose = |at: usize| {
        let mut source = source(5, 1);
        source.blocks[at].replicas.clear();
        state(vec![source, parity()])
    };
    assert_eq!([lose(0), lose(4)], [damage(1, 0), damage(0, 1)].map(State::Damaged));
}

#[test]
fn an_encoded_file_without_a_policy_is_raided() {
    let files = vec![file("/other/f", 10, 1, 0), file("/raidrs/other/f", 4, 1, 10)];
    let unit = unit(&surveyed(&listing(files)), "/other/f");
    assert_eq!((unit.state, unit.policy, unit.codec.as_deref()), (State::Raided, None, Some("rs")));
    assert_eq!((unit.stored, unit.target), (14 * BLOCK, 14 * BLOCK));
}

#[test]
fn files_of_a_folder_are_encoded_together() {
    let tiny = File { bytes: 9000, ..file("/small/d/tiny", 1, 3, 0) };
    let files = vec![file("/small/d/b", 2, 3, 5), file("/small/d/a", 3, 3, 0), tiny];
    let survey = surveyed(&listing(files.clone()));
    let whole = unit(&survey, "/small/d");
    assert_eq!(
        (whole.state, whole.files),
        (State::ShouldEncode, vec!["/small/d/a".to_owned(), "/small/d/b".to_owned()])
    );
    assert_eq!(whole.stripes.len(), 1);
    assert_eq!((whole.stored, whole.target), (15 * BLOCK, 6 * BLOCK));
    assert_eq!(unit(&survey, "/small/d/tiny").state.name(), "too-small");
    // The parity of the folder is a file with the folder's path and modification time.
    let parity = file("/dir-raid/small/d", 1, 1, 19);
    let lowered = |path, blocks, from| file(path, blocks, 1, from);
    let raided = vec![lowered("/small/d/b", 2, 3), lowered("/small/d/a", 3, 0), parity];
    // Mend has not checked the parity.
    let unchecked = State::Stale(StaleParity::Unchecked);
    assert_eq!(unit(&surveyed(&listing(raided)), "/small/d").state, unchecked);
    let mut nested = files;
    nested.push(file("/small/d/sub/c", 5, 3, 0));
    let survey = surveyed(&listing(nested));
    assert_eq!(
        unit(&survey, "/small/d").state,
        State::Excluded(Exclusion::Subfolders("/small/d".to_owned()))
    );
}

#[test]
fn a_folder_waits_for_all_of_its_files() {
    let open = File { is_open: true, ..file("/small/d/b", 5, 3, 0) };
    let survey = surveyed(&listing(vec![file("/small/d/a", 5, 3, 0), open]));
    let why = unit(&survey, "/small/d").state.reason().expect("a reason");
    assert_eq!(why, "/small/d/b is in the same folder and cannot be encoded with it: it is being written");
    assert_eq!(unit(&survey, "/small/d").files, ["/small/d/a"]);
    assert_eq!(unit(&survey, "/small/d/b").state.name(), "open");
    let totals = survey.totals();
    assert_eq!((totals["neighbour"].files, totals["open"].files), (1, 1));
}

proptest! {
    /// Every file is in exactly one unit, and every block of a stripe to encode has a DataNode of its own.
    #[test]
    fn each_file_has_one_state(
        files in prop::collection::vec(
            ("/(large|small|raidrs/large|dir-raid/small)/[ab](/[ab])?", 0_u64..30, 1_u16..4, any::<bool>(), 0_usize..NODES),
            0..12,
        ),
    ) {
        let create = |(path, blocks, replication, is_open, from): (String, u64, u16, bool, usize)| {
            File { is_open, ..file(&path, blocks, replication, from) }
        };
        let mut files: Vec<File> = files.into_iter().map(create).collect();
        files.sort_by(|one, other| one.path.cmp(&other.path));
        files.dedup_by(|one, other| one.path == other.path);
        let paths: Vec<String> = files.iter().map(|file| file.path.clone()).collect();
        let survey = surveyed(&listing(files));
        let mut found: Vec<String> = survey.units.iter().flat_map(|unit| unit.files.clone()).collect();
        found.sort();
        prop_assert_eq!(found, paths);
        for stripe in survey.units.iter().flat_map(|unit| &unit.stripes) {
            let nodes = stripe.arrangement.seats.iter().map(|seat| match *seat {
                Seat::Kept(node) | Seat::New(node) | Seat::Moved { to: node, .. } => node,
            });
            prop_assert_eq!(nodes.collect::<BTreeSet<_>>().len(), stripe.replicas.len());
        }
    }
}
