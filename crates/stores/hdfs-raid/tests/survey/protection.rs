//! Whose parity a parity file is, and whether it is valid.

use std::collections::{BTreeMap, BTreeSet};

use hdfs_raid::{
    Action, Codec, DataNodes, FactFinder, File, Fingerprint, Folder, Goal, Listing, Marks, Next, Note, Notes,
    Omission, Owner, ParityState, StaleParity, State, Survey, Work,
};

use crate::{BLOCK, NOW, encoded, file, listing, surveyed, unit};

const PARITY: &str = "/raidrs/large/f";

fn noted(listing: &Listing, note: Note, living: &[u64]) -> Survey {
    let marks = Marks { note: Some(note), ..Marks::default() };
    let notes = Notes {
        marks: BTreeMap::from([(PARITY.to_owned(), marks)]),
        living: living.iter().copied().collect(),
        ..Notes::default()
    };
    surveyed(&Listing { notes, ..listing.clone() })
}

fn note(source: &File, parity: &File) -> Note {
    let [of_source, of_parity] = [source, parity].map(|file| Fingerprint::of(&file.blocks));
    let code = Some(Fingerprint::of_code(&Codec::hdfs_raid()[0].code));
    Note { inode: source.inode, replication: 2, source: of_source, parity: of_parity, code }
}

fn parity_state(survey: &Survey, path: &str) -> ParityState {
    survey.parity.iter().find(|parity| parity.path == path).expect("a parity file").state.clone()
}

/// Returns the state of a parity file without a note.
fn without_note(listing: &Listing, path: &str) -> &'static str {
    parity_state(&surveyed(listing), path).name()
}

#[test]
fn a_note_decides_before_times() {
    let [source, parity] = encoded();
    let note = note(&source, &parity);
    let touched = File { modified_ms: 2000, ..source.clone() };
    let survey = noted(&listing(vec![touched, parity.clone()]), note, &[1]);
    assert_eq!(unit(&survey, "/large/f").state, State::Raided);
    assert_eq!(parity_state(&survey, PARITY), ParityState::Proven);
    // A client has changed a block, and set the time back.
    let mut changed = source;
    changed.blocks[9].stamp += 1;
    let survey = noted(&listing(vec![changed, parity]), note, &[1]);
    assert_eq!(unit(&survey, "/large/f").state, State::Stale(StaleParity::OtherBlocks));
}

#[test]
fn parity_without_a_note_is_unproven() {
    assert_eq!(without_note(&listing(encoded().into()), PARITY), "unproven");
}

/// Any user who may write below the parity root could have made it.
#[test]
fn parity_of_another_user_is_checked_before_it_is_used() {
    let [source, parity] = encoded();
    let parity = File { owner: Owner::User("other".into()), ..parity };
    let listing = listing(vec![source, parity]);
    let survey = surveyed(&listing);
    assert_eq!(unit(&survey, "/large/f").state, State::Stale(StaleParity::Untrusted));
    assert_eq!(parity_state(&survey, PARITY).name(), "unchecked");
    let [codec, ..] = Codec::hdfs_raid();
    assert!(hdfs_raid::raided(&listing, std::slice::from_ref(&codec)).sources.is_empty());
    let facts = FactFinder::new(&listing).facts(&codec, None, "/large/f", NOW);
    let goal = Goal::Encoded { replication: 1, parity_replication: 1 };
    let next = Work::new(codec, 4, goal, 1).next(&facts, &DataNodes::of(&listing), NOW);
    assert!(matches!(next, Next::Act(Action::Prove { .. })), "{next}");
}

/// An operator has changed the code of a codec to another one with as many data and parity blocks.
#[test]
fn parity_by_another_code_is_made_again() {
    let [codec, ..] = Codec::hdfs_raid();
    let [source, parity] = encoded();
    let own = note(&source, &parity);
    let mut listing = listing(vec![source, parity]);
    let mut next = |code: Option<Fingerprint>| {
        let marks = Marks { note: Some(Note { code, ..own }), ..Marks::default() };
        listing.notes.marks.insert(PARITY.to_owned(), marks);
        let survey = surveyed(&listing);
        let raided = hdfs_raid::raided(&listing, std::slice::from_ref(&codec)).sources.len();
        let facts = FactFinder::new(&listing).facts(&codec, None, "/large/f", NOW);
        let goal = Goal::Encoded { replication: 1, parity_replication: 1 };
        let next = Work::new(codec.clone(), 4, goal, 1).next(&facts, &DataNodes::of(&listing), NOW);
        (parity_state(&survey, PARITY), raided, next)
    };
    let (state, raided, step) = next(Some(Fingerprint::of_code(&"rs-14-10".parse().expect("a code"))));
    assert_eq!((state, raided), (ParityState::Stale(StaleParity::OtherCode), 0));
    assert_eq!(step.to_string(), "set the replication of /large/f to 2");
    // A note of version 1 does not name the code. The parity is used, and proven once.
    let (state, raided, step) = next(None);
    assert_eq!((state, raided), (ParityState::Unproven, 1));
    assert!(matches!(step, Next::Act(Action::Prove { .. })), "{step}");
    assert_eq!(next(own.code).0, ParityState::Proven);
}

#[test]
fn parity_with_a_note_by_another_version_is_stale() {
    let notes = Notes { unknown: BTreeSet::from([PARITY.to_owned()]), ..Notes::default() };
    let survey = surveyed(&Listing { notes, ..listing(encoded().into()) });
    assert_eq!(parity_state(&survey, PARITY), ParityState::Stale(StaleParity::UnknownNote));
    assert_eq!(unit(&survey, "/large/f").state, State::Stale(StaleParity::UnknownNote));
}

#[test]
fn parity_without_a_note_that_is_older_than_its_file_is_stale() {
    let [mut source, parity] = encoded();
    source.blocks[9].stamp += 1;
    let survey = surveyed(&listing(vec![source, parity]));
    assert_eq!(unit(&survey, "/large/f").state, State::Stale(StaleParity::Older));
}

/// A client has appended a file by `concat`. Readers and repairs do not find blocks by the parity's stripes any more.
#[test]
fn parity_of_a_file_with_irregular_blocks_is_stale() {
    let [mut source, parity] = encoded();
    source.blocks[4].bytes -= 512;
    source.bytes -= 512;
    let survey = surveyed(&listing(vec![source.clone(), parity.clone()]));
    assert_eq!(unit(&survey, "/large/f").state, State::Stale(StaleParity::Irregular));
    assert_eq!(parity_state(&survey, PARITY), ParityState::Stale(StaleParity::Irregular));
    source.blocks[0].replicas.clear();
    assert_eq!(unit(&surveyed(&listing(vec![source, parity])), "/large/f").health.unprotected, 1);
}

#[test]
fn an_encoding_that_is_being_undone_still_protects() {
    let files = encoded();
    let marks = Marks { note: Some(note(&files[0], &files[1])), is_undone: true, ..Marks::default() };
    let marks = BTreeMap::from([(PARITY.to_owned(), marks)]);
    let notes = Notes { marks, living: BTreeSet::from([1]), ..Notes::default() };
    let survey = surveyed(&Listing { notes, ..listing(files.into()) });
    assert_eq!(parity_state(&survey, PARITY), ParityState::Undone);
    assert_eq!(unit(&survey, "/large/f").health.stripes, BTreeMap::from([(0, 1)]));
}

#[test]
fn parity_of_a_renamed_file_is_told_apart() {
    let [source, parity] = encoded();
    let note = note(&source, &parity);
    let renamed = File { path: "/large/new".to_owned(), ..source.clone() };
    let survey = noted(&listing(vec![renamed.clone(), parity.clone()]), note, &[1]);
    assert_eq!(parity_state(&survey, PARITY), ParityState::Renamed(1));
    let moved = unit(&survey, "/large/new");
    assert_eq!((moved.state.clone(), moved.stray()), (State::Stale(StaleParity::Elsewhere), Some(PARITY)));
    assert_eq!((moved.policy.as_deref(), moved.health.single), (Some("large"), 1));
    // It was changed a moment ago as well: it is no new file that the policy leaves alone.
    let mut changed = renamed.clone();
    (changed.blocks[9].stamp, changed.modified_ms) = (9, NOW - 1);
    let survey = noted(&listing(vec![changed, parity.clone()]), note, &[1]);
    let moved = unit(&survey, "/large/new");
    assert_eq!((moved.state.clone(), moved.stray()), (State::Stale(StaleParity::Elsewhere), Some(PARITY)));
    // Another file has taken its old path.
    let other = File { inode: 2, ..source };
    let survey = noted(&listing(vec![other, renamed, parity]), note, &[1]);
    assert_eq!(parity_state(&survey, PARITY), ParityState::Renamed(1));
    assert_eq!(unit(&survey, "/large/f").state, State::Stale(StaleParity::Foreign { inode: 1 }));
}

/// The parity is at the path of no file, or of a new one.
#[test]
fn parity_of_a_file_in_a_snapshot_is_told_apart() {
    let [source, parity] = encoded();
    let marks = Marks { note: Some(note(&source, &parity)), ..Marks::default() };
    let marks = BTreeMap::from([(PARITY.to_owned(), marks)]);
    let notes = Notes { marks, kept: BTreeSet::from([1]), ..Notes::default() };
    let survey = surveyed(&Listing { notes: notes.clone(), ..listing(vec![parity.clone()]) });
    assert_eq!(parity_state(&survey, PARITY), ParityState::SnapshotsOnly);
    let other = File { inode: 2, ..source };
    let survey = surveyed(&Listing { notes, ..listing(vec![other, parity]) });
    assert_eq!(parity_state(&survey, PARITY), ParityState::SnapshotsOnly);
    assert_eq!(unit(&survey, "/large/f").state, State::Stale(StaleParity::Foreign { inode: 1 }));
}

/// Its own parity is found by the note, although other parity is at its path.
#[test]
fn parity_of_a_file_at_the_path_of_one_in_a_snapshot_is_found() {
    const OWN: &str = "/raidrs/large/g";
    let [source, parity] = encoded();
    let renamed = File { inode: 2, ..source.clone() };
    let own = File { path: OWN.to_owned(), ..parity.clone() };
    let noted = |source: &File, parity: &File| Marks { note: Some(note(source, parity)), ..Marks::default() };
    let marks = BTreeMap::from([
        (PARITY.to_owned(), noted(&source, &parity)),
        (OWN.to_owned(), noted(&renamed, &own)),
    ]);
    let (living, kept) = (BTreeSet::from([2]), BTreeSet::from([1]));
    let notes = Notes { marks, living, kept, ..Notes::default() };
    let survey = surveyed(&Listing { notes, ..listing(vec![renamed, parity, own]) });
    let moved = unit(&survey, "/large/f");
    assert_eq!((moved.state.clone(), moved.stray()), (State::Stale(StaleParity::Elsewhere), Some(OWN)));
    assert_eq!([PARITY, OWN].map(|path| parity_state(&survey, path).name()), ["snapshots", "renamed-source"]);
}

/// A new file is at the former path of a renamed one, so the parity file is at the path of the one and belongs to the other.
#[test]
fn the_bytes_of_parity_are_counted_once() {
    let [source, parity] = encoded();
    let note = note(&source, &parity);
    let [bytes, parity_bytes] = [source.bytes, parity.bytes];
    let other = File { inode: 2, ..source.clone() };
    let mut irregular = other.clone();
    irregular.blocks[4].bytes -= 512;
    irregular.bytes -= 512;
    for (other, path) in [(other.clone(), "/large/a"), (other, "/large/new"), (irregular, "/large/new")] {
        let renamed = File { path: path.to_owned(), ..source.clone() };
        let files = vec![other.clone(), renamed.clone(), parity.clone()];
        let survey = noted(&listing(files), note, &[1]);
        assert_eq!(unit(&survey, "/large/f").stored, other.bytes, "its path has the parity of {path}");
        assert_eq!((unit(&survey, path).stored, unit(&survey, PARITY).stored), (bytes + parity_bytes, 0));
        let total: u64 = survey.units.iter().map(|unit| unit.stored).sum();
        assert_eq!(total, other.bytes + bytes + parity_bytes);
        assert_eq!(parity_state(&survey, PARITY), ParityState::Renamed(1));
        // The renamed file is not listed. Its parity is counted separately.
        let survey = noted(&listing(vec![other.clone(), parity.clone()]), note, &[1]);
        assert_eq!(
            (unit(&survey, "/large/f").stored, unit(&survey, PARITY).stored),
            (other.bytes, parity_bytes)
        );
    }
}

#[test]
fn a_lost_block_of_a_renamed_file_is_unreadable_until_its_parity_follows() {
    let [mut source, parity] = encoded();
    source.path = "/large/new".to_owned();
    source.blocks[0].replicas.clear();
    let survey = noted(&listing(vec![source.clone(), parity.clone()]), note(&source, &parity), &[1]);
    let moved = unit(&survey, "/large/new");
    assert_eq!((moved.state.name(), moved.stray()), ("unreadable", Some(PARITY)));
}

/// It was encoded again at its new path, so the parity at the former one protects nothing.
#[test]
fn parity_of_a_renamed_file_with_other_parity_is_unused() {
    let [source, parity] = encoded();
    let note = note(&source, &parity);
    let renamed = File { path: "/large/new".to_owned(), ..source.clone() };
    let new = File { path: "/raidrs/large/new".to_owned(), ..parity.clone() };
    let survey = noted(&listing(vec![renamed.clone(), parity.clone(), new.clone()]), note, &[1]);
    assert_eq!(parity_state(&survey, PARITY), ParityState::Unused);
    assert_eq!(unit(&survey, "/large/new").state, State::Raided);
    // Another file has taken its former path.
    let other = File { inode: 2, ..source };
    let survey = noted(&listing(vec![other, renamed, parity, new]), note, &[1]);
    assert_eq!(parity_state(&survey, PARITY), ParityState::Unused);
}

/// The stripes in the catalog are those of the valid parity too.
#[test]
fn valid_parity_by_another_codec_precedes_stale_parity_by_the_codec_of_the_policy() {
    let [source, parity] = encoded();
    let stale = File { modified_ms: 2000, ..parity };
    let listing = listing(vec![source, stale, file("/raid/large/f", 1, 1, 10)]);
    let found = unit(&surveyed(&listing), "/large/f");
    assert_eq!((found.state, found.codec.as_deref()), (State::Raided, Some("xor")));
    let codecs = Codec::hdfs_raid();
    assert_eq!(hdfs_raid::raided(&listing, &codecs).sources[0].codec.name, "xor");
}

#[test]
fn parity_without_a_source() {
    let [_, parity] = encoded();
    let alone = || listing(vec![parity.clone()]);
    assert_eq!(without_note(&alone(), PARITY), "no-source");
    let kept = Listing { snapshots: vec!["/large".to_owned()], ..alone() };
    assert_eq!(without_note(&kept, PARITY), "snapshots");
    let elsewhere = Listing { root: "/raidrs".to_owned(), ..alone() };
    assert_eq!(without_note(&elsewhere, PARITY), "unlisted-source");
    let mut refused = alone();
    refused.gaps.omitted =
        vec![Omission { path: "/large".to_owned(), why: "Permission denied".to_owned(), is_refused: true }];
    assert_eq!(without_note(&refused, PARITY), "unlisted-source");
    // The deleted file's note is no reason to keep the parity.
    let [source, parity] = encoded();
    let survey = noted(&listing(vec![parity.clone()]), note(&source, &parity), &[]);
    assert_eq!(parity_state(&survey, PARITY), ParityState::NoSource);
}

#[test]
fn drafts_and_parity_of_other_codecs() {
    let mut files = encoded().to_vec();
    files.push(file("/raid/large/f", 1, 1, 3));
    files.push(file("/tmp/raidrs/large/f/.mend-1-1000-1/0-0", 1, 1, 3));
    let mut listing = listing(files);
    listing.folders.push(Folder {
        inode: 9,
        path: "/tmp/raidrs/large/f/.mend-1-1000-1".to_owned(),
        modified_ms: 0,
        owner: Owner::Superuser,
    });
    assert_eq!(without_note(&listing, "/raid/large/f"), "unused");
    assert_eq!(without_note(&listing, "/tmp/raidrs/large/f/.mend-1-1000-1/0-0"), "draft");
    let totals = surveyed(&listing).parity_totals();
    assert_eq!((totals["unproven"].stored, totals["draft"].files), (4 * BLOCK, 1));
}

#[test]
fn the_saving_counts_from_the_former_replication() {
    let files = encoded();
    let note = note(&files[0], &files[1]);
    let saving = noted(&listing(files.to_vec()), note, &[1]).saving();
    assert_eq!((saving.files, saving.before, saving.after), (1, 20 * BLOCK, 14 * BLOCK));
    assert!((saving.percent() - 30.0).abs() < 0.01, "{}", saving.percent());
    // Without a note, three replicas are assumed.
    assert_eq!(surveyed(&listing(files.into())).saving().before, 30 * BLOCK);
}
