//! Tests of a raided file: three data blocks, and one parity block in HDFS-RAID's XOR codec.

use hdfs_raid::{Block, Fingerprint, Mark, Members, Note};
use store_api::CatalogError;

use super::*;
use crate::listing::encoded;

/// The only stripe: the number of its first block, and the newest generation stamp.
const STRIPE: &str = "raid_32_1010";

/// Returns what the NameNode tells of the file and its parity: the time of the file, and the holder of block
/// 1.
fn told(modified: u64, holder: &str) -> String {
    format!(
        "F 16 %2Ff 1236 512 1 {modified} replicated closed -\nB 32 1004 512 0\nB 33 1005 512 {holder}\nB 34 1006 212 2\n\
         F 17 %2Fraid%2Ff 512 512 1 7 replicated closed -\nB 48 1010 512 3\n"
    )
}

fn stripe() -> StripeId {
    StripeId(STRIPE.to_owned())
}

fn claim(script: &mut Script, node: NodeId, block: u16) -> Result<Done, StoreError> {
    script.write(StripeWrite::Claim { stripe: stripe(), nodes: vec![node], blocks: vec![BlockIndex(block)] })
}

fn is_damaged(script: &Script) -> bool {
    script.damaged.lock().expect("whole").contains(STRIPE)
}

#[test]
fn a_lost_block_of_a_raided_file_is_reported_claimed_and_published() {
    let told_whole = told(7, "1");
    let properties = [("homes-7", WHOLE), ("raided", told_whole.as_str()), ("format", "crc32/1024")];
    let mut script = Script::open_with(&properties);
    let nodes = script.await_nodes();
    script.await_that("both stripes", |script| script.stripes.load(Ordering::Relaxed) >= 2);
    assert!(!is_damaged(&script) && !script.troubles().contains("parity"), "{}", script.troubles());
    assert!(claim(&mut script, nodes[4], 1).is_err(), "the block is not lost");
    // The lists name the block, and another one of a file that is not raided.
    script.set("raided", &told(7, "-"));
    script.set("lost", "33 0\n99 1\n");
    script.set("counts", "0 0 0 2");
    script.await_that("damage", is_damaged);
    let claimed = claim(&mut script, nodes[4], 1).expect("granted");
    assert_eq!(formats_of(&claimed), [ChecksumFormat::new(ChecksumKind::Crc32, 1024)]);
    assert_eq!(script.lines("formats"), ["16 0", "17 0"], "the file, and its parity");
    match claim(&mut script, nodes[0], 1) {
        Err(StoreError::Unfit { node, why, .. }) => {
            assert!(node == nodes[0] && why.starts_with("it has another block of the stripe"), "{why}");
        }
        other => panic!("{other:?}"),
    }
    script.set("raided", &told(7, "4"));
    let blocks = vec![(BlockIndex(1), nodes[4], None)];
    script.write(StripeWrite::Publish { stripe: stripe(), blocks, origin: Origin::Written }).expect("listed");
    script.await_that("no damage", |script| !is_damaged(script));
}

/// The lists are read before the first listing, when no stripe is known yet.
#[test]
fn a_lost_block_of_a_raided_file_is_known_soon_after_the_first_listing_despite_a_maintenance() {
    let began = Instant::now();
    let (raided, lost) = (told(7, "-"), "33 0\n");
    let properties = [("homes-7", WHOLE), ("raided", raided.as_str()), ("lost", lost), ("counts", "0 0 0 1")];
    let script = Script::open_with(&[&properties[..], &[("maintained-4", "")]].concat());
    script.await_that("damage", is_damaged);
    assert!(began.elapsed() < Duration::from_secs(40), "the lists were read again only when they always are");
}

#[test]
fn stripes_are_dropped_while_their_parity_is_invalid() {
    let told_whole = told(7, "1");
    let mut script = Script::open_with(&[("homes-7", WHOLE), ("raided", told_whole.as_str())]);
    let nodes = script.await_nodes();
    script.await_that("both stripes", |script| script.stripes.load(Ordering::Relaxed) >= 2);
    script.set("raided", &told(8, "-"));
    script.set("closed", "");
    script.await_that("a trouble", |script| {
        script.troubles().contains("/raid/f (the source was modified 8 ms")
    });
    std::thread::sleep(super::super::FOLLOW_EVERY * 3);
    let gone = claim(&mut script, nodes[4], 1);
    assert!(matches!(gone, Err(StoreError::Catalog(CatalogError::NoSuchStripe(_)))), "{gone:?}");
    // The time of the source is restored.
    script.set("raided", &told(7, "-"));
    script.set("touched", "");
    script.await_that("the stripe, with a lost block", is_damaged);
    assert!(!script.troubles().contains("/raid/f"), "{}", script.troubles());
    claim(&mut script, nodes[4], 1).expect("granted");
}

#[test]
fn parity_with_a_note_about_other_blocks_protects_nothing() {
    // The time and the length fit.
    let noted = told(7, "1") + "X %2Fraid%2Ff trusted.mend.source =1+16+3+0+0\n";
    let script = Script::open_with(&[("homes-7", WHOLE), ("raided", noted.as_str())]);
    script.await_that("a trouble", |script| {
        script.troubles().contains("/raid/f (the parity file was made for other contents: Mend's note")
    });
    script.set("raided", &told(7, "1"));
    script.set("touched", "");
    script.await_that("no trouble", |script| !script.troubles().contains("/raid/f"));
}

/// No event and no list tells that HDFS has removed a replica.
#[test]
fn surplus_replicas_are_queried_until_hdfs_has_removed_them() {
    let surplus = told(7, "1,4");
    let script = Script::open_with(&[("homes-7", WHOLE), ("raided", surplus.as_str())]);
    script.await_that("both stripes", |script| script.stripes.load(Ordering::Relaxed) >= 2);
    std::thread::sleep(super::super::FOLLOW_EVERY * 4); // Queries that were due by now have the same answer.
    let (lists, before) = (script.lists(), script.stripes.load(Ordering::Relaxed));
    script.set("raided", &told(7, "4"));
    script.await_that("a report", |script| script.stripes.load(Ordering::Relaxed) == before + 1);
    assert_eq!(script.lists(), lists, "no listing is necessary");
}

/// Replicated files that are not raided have filled the lists. Listings of all raided files fail here.
#[test]
fn losses_of_raided_files_are_known_although_the_lists_are_too_long() {
    let told_whole = told(7, "1");
    let script = Script::open_with(&[("homes-7", WHOLE), ("raided", told_whole.as_str())]);
    script.await_that("both stripes", |script| script.stripes.load(Ordering::Relaxed) >= 2);
    script.set("no-raided-%2Fraidrs\t%2Fraidrs\t%2Fraid\t%2Fraid\t%2Fdir%2Draidrs\t%2Fdir%2Draidrs\t%2Fdir%2Draid\t%2Fdir%2Draid\t%2Fsmall\t%2Fsmall\t%2Ffolders\t%2Ffolders", "");
    script.set("raided", &told(7, "-"));
    script.set("lost-files", "%2Fnot-raided\n%2Ff\n");
    script.set("many", "");
    script.await_that("damage", is_damaged);
    script.set("raided", &told(7, "4"));
    script.set("lost-files", "");
    script.await_that("no damage", |script| !is_damaged(script));
}

/// Parity by a codec that comes first becomes valid. The other parity is valid too.
#[test]
fn a_file_with_parity_by_two_codecs_has_the_stripes_of_one() {
    let small = "F 19 %2Fsmall%2Ff 1024 512 1 7 replicated closed -\nB 50 1011 512 3\nB 51 1012 512 4\n";
    let both = told(7, "1") + small;
    let stale = both.replace("512 512 1 7", "512 512 1 8");
    let second = "F 16 %2Ff 1236 512 1 7 replicated closed -\nB 34 1006 212 2\n\
                  F 19 %2Fsmall%2Ff 1024 512 1 7 replicated closed -\nB 51 1012 512 4\n";
    let answers = [("raided", stale.as_str()), ("blocks 16 1024 212 19 512 512", second)];
    let mut script = Script::open_with(&[&[("homes-7", WHOLE)], &answers[..]].concat());
    let nodes = script.await_nodes();
    script.await_that("a group and two stripes", |script| script.stripes.load(Ordering::Relaxed) >= 3);
    let claim = |script: &mut Script| {
        let (stripe, nodes) = (StripeId("raid_34_1012".to_owned()), vec![nodes[0]]);
        script.write(StripeWrite::Claim { stripe, nodes, blocks: vec![BlockIndex(0)] })
    };
    assert!(matches!(claim(&mut script), Err(StoreError::Taken { .. })), "it is not lost");
    script.set("blocks 16 0 1236 17 0 512", &told(7, "1"));
    script.set("raided", &both);
    script.set("touched", "");
    script.await_that("no trouble", |script| !script.troubles().contains("/raid/f"));
    let gone = claim(&mut script);
    assert!(matches!(gone, Err(StoreError::Catalog(CatalogError::NoSuchStripe(_)))), "{gone:?}");
}

#[test]
fn two_blocks_of_a_raided_stripe_on_one_datanode_are_reported() {
    let told_misplaced = told(7, "0");
    let script = Script::open_with(&[("homes-7", WHOLE), ("raided", told_misplaced.as_str())]);
    script.await_that("a remark", |script| {
        script.remarks().contains("raid_32_1010 on 10.0.0.0:9866; mend raid")
    });
    assert!(!is_damaged(&script));
}

#[test]
fn a_replica_on_another_datanode_is_reported_when_one_is_decommissioned() {
    let replicated = told(7, "1,4");
    let script = Script::open_with(&[("homes-7", WHOLE), ("raided", replicated.as_str())]);
    script.await_that("both stripes", |script| script.stripes.load(Ordering::Relaxed) >= 2);
    std::thread::sleep(Duration::from_secs(2));
    let before = script.stripes.load(Ordering::Relaxed);
    script.set("leaving-1", "");
    script.await_that("a report", |script| script.stripes.load(Ordering::Relaxed) == before + 1);
}

/// The first file of the folder `/d`.
const FIRST: &str = "F 20 %2Fd%2Fa 20480 20480 1 7 replicated closed -\nB 32 1004 20480 0\n";

/// Returns what the NameNode tells of the folder `/d` and its parity: the lines about its first file, the second file with
/// block 33 on this DataNode, and two parity blocks.
fn told_folder(first: &str, holder: &str) -> String {
    let block = |(number, stamp, bytes)| Block { number, stamp, bytes, replicas: Vec::new() };
    let data = [(32, 1004, 20_480), (33, 1005, 15_000)].map(block);
    let parity = [(48, 1010, 20_480), (49, 1011, 20_480)].map(block);
    let [source, of_parity] = [&data, &parity].map(Fingerprint::of);
    let note = Note { inode: 9, replication: 3, source, parity: of_parity, code: None };
    let mut text = format!(
        "D %2Fd 7 9 -\n{first}F 21 %2Fd%2Fb 15000 20480 1 7 replicated closed -\nB 33 1005 15000 {holder}\n\
         F 17 %2Ffolders%2Fd 40960 20480 1 7 replicated closed -\nB 48 1010 20480 2\nB 49 1011 20480 3\n"
    );
    for mark in [Mark::Members(Members::of(&data)), Mark::Proven(note)] {
        let (names, value) = mark.attributes();
        text += &format!("X %2Ffolders%2Fd {} ={}\n", names[1], encoded(&value));
    }
    text
}

/// Returns the name of the folder's stripe after its first file was deleted or changed.
fn rest() -> String {
    let left = Block { number: 33, stamp: 1005, bytes: 15_000, replicas: Vec::new() };
    format!("raid_33_1011_{}", Fingerprint::of([&left]))
}

/// The first file of the folder is deleted while the only block of the second one is lost. The contents of the first file are not
/// known any more, so a parity block takes its place in the code.
#[test]
fn lost_blocks_of_a_folder_are_claimed_also_after_another_file_was_deleted() {
    let told_whole = told_folder(FIRST, "1");
    let mut script = Script::open_with(&[("homes-7", WHOLE), ("raided", told_whole.as_str())]);
    let nodes = script.await_nodes();
    script.await_that("both stripes", |script| script.stripes.load(Ordering::Relaxed) >= 2);
    let is_damaged = |script: &Script, stripe: &str| script.damaged.lock().expect("whole").contains(stripe);
    assert!(
        !is_damaged(&script, "raid_32_1011") && !script.troubles().contains("/folders"),
        "{}",
        script.troubles()
    );
    script.set("raided", &told_folder(FIRST, "-"));
    script.set("lost", "33 0\n");
    script.set("counts", "0 0 0 1");
    script.await_that("damage", |script| is_damaged(script, "raid_32_1011"));
    script.set("raided", &told_folder("", "-"));
    script.set("edit", "u %2Fd%2Fa");
    script.await_that("the rest of the stripe", |script| is_damaged(script, &rest()));
    script.await_that("a trouble", |script| script.troubles().contains("/folders/d (the folder was changed"));
    let claim = |script: &mut Script, stripe: &str| {
        let (stripe, blocks) = (StripeId(stripe.to_owned()), vec![BlockIndex(0)]);
        script.write(StripeWrite::Claim { stripe, nodes: vec![nodes[4]], blocks })
    };
    let gone = claim(&mut script, "raid_32_1011");
    assert!(matches!(gone, Err(StoreError::Catalog(CatalogError::NoSuchStripe(_)))), "{gone:?}");
    claim(&mut script, &rest()).expect("granted");
}

/// A file whose block has another stamp than the parity knows is no source, and is not rebuilt from this parity.
#[test]
fn a_changed_block_of_a_folder_belongs_to_no_stripe() {
    let told_whole = told_folder(FIRST, "1");
    let script = Script::open_with(&[("homes-7", WHOLE), ("raided", told_whole.as_str())]);
    script.await_that("both stripes", |script| script.stripes.load(Ordering::Relaxed) >= 2);
    let is_damaged = |script: &Script, stripe: &str| script.damaged.lock().expect("whole").contains(stripe);
    let rewritten = FIRST.replace("B 32 1004 20480 0", "B 32 1020 20480 0");
    script.set("blocks 21 0 15000 17 0 40960", &told_folder("", "-"));
    script.set("raided", &told_folder(&rewritten, "-"));
    script.set("lost", "33 0\n");
    script.set("counts", "0 0 0 1");
    script.set("edit", "m %2Fd%2Fa");
    script.await_that("damage of the other file", |script| is_damaged(script, &rest()));
    assert!(!is_damaged(&script, "raid_32_1011"));
}
