//! Catalogs rebuilt from the helpers' inventories.

use std::collections::BTreeSet;

use codes::CodeSpec;
use repair::StripeId;
use repair::wire::control::Description;
use store_api::names::{Era, MAX_COUNT};
use store_api::{BlockSize, BlockState, FileRecord, Inventory, NodeRecord};

use super::{CLUSTER, CatalogTest, block, blocks_of, digest};
use crate::catalog::puts::{LAST_BEGUN, unix_ms};
use crate::catalog::rebuild::{Rebuilt, Rival, Unconfirmed};
use crate::catalog::stripes::NEXT_STRIPE;
use crate::catalog::tables::META;
use crate::catalog::{DirCatalog, block_index};

/// Returns the inventories that the helpers would report, in the order of the nodes.
fn inventories(catalog: &DirCatalog) -> Vec<Inventory> {
    let of = |node: &NodeRecord| {
        let blocks = blocks_of(catalog, node.id).into_iter().map(|(stripe, index)| {
            let record = catalog.stripe(&stripe).expect("there");
            let block = &record.blocks[usize::from(index.0)];
            Description {
                id: block.id.clone(),
                bytes: block.bytes,
                digest: block.digest,
                label: Some((index, record.label(CLUSTER).expect("ours have labels"))),
            }
        });
        Inventory { node: node.name.clone(), address: "x:1".to_owned(), blocks: blocks.collect() }
    };
    catalog.nodes().expect("readable").iter().map(of).collect()
}

/// Rebuilds a catalog from these inventories, in a new folder inside the test's folder, and returns the
/// catalog with the report.
fn rebuilt(test: &CatalogTest, inventories: &[Inventory], complete: bool) -> (DirCatalog, Rebuilt) {
    let folder = tempfile::tempdir_in(test.folder.path()).expect("a temporary folder");
    let path = folder.keep().join("catalog.redb");
    let silent = if complete { BTreeSet::new() } else { BTreeSet::from(["mallory".to_owned()]) };
    let said = DirCatalog::rebuild(&path, CLUSTER, inventories, &silent).expect("rebuilt");
    (DirCatalog::open(path, CLUSTER).expect("whole"), said)
}

#[test]
fn a_rebuilt_catalog_has_all_files() {
    let mut test = CatalogTest::new();
    let (a, b) = (test.file("a", 3), test.file("dir/b", 1));
    let pending = test.begin("c", 2);
    let half = test.allocate(pending, 0, [0, 1, 2]);
    test.publish(&half);
    let mut held = inventories(&test.catalog);
    let (catalog, said) = rebuilt(&test, &held, true);
    assert_eq!(said.files, ["a", "dir/b"]);
    assert_eq!(said.without_file(), ["c"].into());
    assert_eq!((said.left, said.unreadable, said.strangers), (vec![("c".to_owned(), 3)], vec![], vec![]));
    for file in [&a, &b] {
        let again = catalog.file(&file.name).expect("readable").expect("there");
        assert_eq!(FileRecord { created_unix_ms: file.created_unix_ms, ..again }, *file);
        for stripe in &file.stripes {
            assert_eq!(catalog.stripe(stripe).expect("there"), test.stripe(&stripe.0));
        }
    }
    assert!(catalog.is_from_the_future(&block("6.0")).expect("readable"), "counted on from stripe 5");
    // If one of the three inventories is missing, that helper's block has no holder.
    held.remove(1);
    let (catalog, said) = rebuilt(&test, &held, true);
    assert_eq!(said.files, ["a", "dir/b"]);
    let stripe = catalog.stripe(&a.stripes[0]).expect("there");
    assert_eq!((stripe.blocks[1].node, stripe.blocks[1].digest), (None, None));
    // If two of the three inventories are missing, no file is readable. The rebuild keeps the files' names
    // only if some helpers did not answer.
    held.remove(1);
    let (catalog, said) = rebuilt(&test, &held, false);
    assert_eq!(said.unreadable, ["a", "dir/b"]);
    let last = catalog.nodes().expect("readable").pop().expect("registered");
    assert_eq!((last.name.as_str(), last.address), ("mallory", None), "a helper without an inventory");
    assert_eq!(rebuilt(&test, &held, true).1.unreadable, [""; 0]);
}

#[test]
fn a_single_lying_helper_cannot_take_a_name_or_damage_a_stripe() {
    let mut test = CatalogTest::new();
    let file = test.file("a", 1);
    let mut held = inventories(&test.catalog);
    let real: Vec<Description> = held.iter().flat_map(|inventory| inventory.blocks.clone()).collect();
    // Forges a later put of the same name that consists of one block.
    let mut forged = real[0].clone();
    forged.id = block("77.0");
    if let Some((_, label)) = &mut forged.label {
        (label.stripe, label.code) = (StripeId("77".to_owned()), "rs-2-1".parse().expect("a code"));
        (label.file.bytes, label.file.put, label.file.begun_unix_ms) = (100, "9".to_owned(), u64::MAX);
    }
    held[4].blocks.push(forged);
    // Forges a different digest for every block of the stripe.
    held[4].blocks.extend(real.iter().map(|block| Description { digest: digest(999), ..block.clone() }));
    let (mut catalog, said) = rebuilt(&test, &held, true);
    assert_eq!(said.files, ["a"]);
    let rival =
        Rival { name: "a".to_owned(), kept_as: "a.rival-1".to_owned(), helpers: vec!["eve".to_owned()] };
    assert_eq!(said.rivals, [rival]);
    assert_eq!(catalog.file("a").expect("readable").expect("there").stripes, file.stripes);
    assert_eq!(catalog.stripe(&file.stripes[0]).expect("there"), test.stripe(&file.stripes[0].0));
    assert_eq!(
        catalog.file("a.rival-1").expect("readable").expect("there").stripes,
        [StripeId("77".to_owned())]
    );
    let put = catalog.begin_put("b", 10, CodeSpec::reed_solomon(3, 2), BlockSize::whole(100), false);
    assert!(put.is_ok(), "its time is not believed: {put:?}");
}

#[test]
fn a_single_lying_helper_cannot_rename_a_file() {
    let mut test = CatalogTest::new();
    test.file("a", 1);
    let mut held = inventories(&test.catalog);
    let real: Vec<Description> = held.iter().flat_map(|inventory| inventory.blocks.clone()).collect();
    // Lists every block of the stripe several times, and many invented stripes of the same put.
    let named = |mut block: Description| {
        block.label.as_mut().expect("labelled").1.file.name = "A".to_owned();
        block
    };
    for stripe in 100..200 {
        held[4].blocks.extend(real.iter().cloned().map(named));
        let mut forged = named(real[0].clone());
        forged.id = block(&format!("{stripe}.0"));
        forged.label.as_mut().expect("labelled").1.stripe = StripeId(stripe.to_string());
        held[4].blocks.push(forged);
    }
    assert_eq!(rebuilt(&test, &held, true).1.files, ["a"]);
}

#[test]
fn a_single_lying_helper_cannot_add_a_stripe_to_a_file() {
    let mut test = CatalogTest::new();
    let file = test.file("a", 2);
    let held = inventories(&test.catalog);
    for (position, code) in [(2, "rs-3-2"), (0, "rs-2-1"), (2, "rs-2-1"), (u32::MAX, "rs-3-2")] {
        let mut held = held.clone();
        let mut forged = Description { id: block("77.0"), ..held[0].blocks[0].clone() };
        let (index, label) = forged.label.as_mut().expect("labelled");
        (*index, label.stripe) = (block_index(0), StripeId("77".to_owned()));
        (label.code, label.file.position) = (code.parse().expect("a code"), position);
        held[4].blocks.push(forged);
        let (catalog, said) = rebuilt(&test, &held, true);
        assert_eq!(said.files, ["a"], "position {position} of {code}");
        assert_eq!(catalog.file("a").expect("readable").expect("there").stripes, file.stripes);
    }
}

#[test]
fn a_rival_stays_whole_when_some_of_its_blocks_were_repaired() {
    let mut test = CatalogTest::new();
    let kept = test.file("a", 3);
    // Forges a put of the same name with two witnesses. The put must neither displace the file nor be
    // dropped.
    let mut held = inventories(&test.catalog);
    for (inventory, index) in held.iter_mut().zip(0..2) {
        let mut forged = inventory.blocks[0].clone();
        forged.id = block(&format!("77.{index}"));
        if let Some((at, label)) = &mut forged.label {
            (*at, label.stripe, label.code) =
                (block_index(index), StripeId("77".to_owned()), "rs-2-1".parse().expect("a code"));
            (label.file.bytes, label.file.position) = (100, 0);
            (label.file.put, label.file.begun_unix_ms) = ("9".to_owned(), label.file.begun_unix_ms + 1);
        }
        inventory.blocks.push(forged);
    }
    let (_, said) = rebuilt(&test, &held, true);
    assert_eq!((said.files.len(), said.rivals.len()), (1, 1), "{said:?}");
    // A repair rebuilds one block of the forged put. The label of this block then contains the put's new
    // name.
    let again = held[0].blocks.last_mut().and_then(|block| block.label.as_mut()).expect("labelled");
    again.1.file.name = "a.rival-1".to_owned();
    let (catalog, said) = rebuilt(&test, &held, true);
    assert_eq!((said.strangers.len(), said.rivals.len()), (0, 1), "{said:?}");
    let rival = catalog.file("a.rival-1").expect("readable").expect("there");
    assert_eq!(rival.stripes, [StripeId("77".to_owned())]);
    assert!(
        catalog.stripe(&rival.stripes[0]).expect("there").blocks[..2]
            .iter()
            .all(|block| block.node.is_some())
    );
    assert_eq!(catalog.file("a").expect("readable").expect("there").stripes, kept.stripes);
}

/// Returns a false description of a block: the only block of an invented file, with a time in the far future.
fn invented(real: &Description, stripe: &str, name: &str) -> Description {
    let mut forged = Description { id: block(&format!("{stripe}.0")), ..real.clone() };
    let (_, label) = forged.label.as_mut().expect("labelled");
    (label.stripe, label.code) = (StripeId(stripe.to_owned()), "rs-2-1".parse().expect("a code"));
    (label.file.name, label.file.put) = (name.to_owned(), stripe.to_owned());
    (label.file.bytes, label.file.begun_unix_ms) = (100, u64::MAX);
    forged
}

#[test]
fn numbers_and_times_of_a_single_helper_do_not_displace_later_files() {
    let highest = MAX_COUNT;
    for count in [1 << 32, highest / 2 - 1, highest] {
        let mut test = CatalogTest::new();
        test.file("a", 1);
        let mut held = inventories(&test.catalog);
        let stripe = format!("{count}-aaaaab");
        let forged = invented(&held[0].blocks[0], &stripe, "zzz");
        held[4].blocks.push(forged);
        let (catalog, said) = rebuilt(&test, &held, true);
        let unconfirmed = Unconfirmed { name: "zzz".to_owned(), helper: "eve".to_owned() };
        assert_eq!((said.files.len(), &said.unconfirmed), (2, &vec![unconfirmed]));
        assert!(!said.is_clear());
        let created = catalog.file("zzz").expect("readable").expect("there").created_unix_ms;
        assert!(created < 4_000_000_000_000, "{created} is no date of this century");
        let mut test = CatalogTest { catalog, ..test };
        test.catalog.era = Era::NONE;
        let (b, c) = (test.file("b", 1), test.file("c", 1));
        assert_eq!((b.stripes[0].0.as_str(), c.stripes[0].0.as_str()), ("2", "3"));
        let (catalog, said) = rebuilt(&test, &inventories(&test.catalog), true);
        assert_eq!((said.files.len(), said.strangers), (4, vec![]));
        assert_eq!(catalog.file("c").expect("readable").expect("there").stripes, c.stripes);
        // The same must hold when stripe numbers are almost used up.
        let mut test = CatalogTest { catalog, ..test };
        test.catalog.change(|change| change.put(META, NEXT_STRIPE, &MAX_COUNT)).expect("written");
        test.catalog.era = Era::NONE;
        let last = test.file("last", 1);
        let (catalog, said) = rebuilt(&test, &inventories(&test.catalog), true);
        assert_eq!((said.files.len(), said.strangers), (5, vec![]));
        assert_eq!(catalog.file("last").expect("readable").expect("there").stripes, last.stripes);
        let next = catalog.look(|view| view.get::<_, u64>(META, NEXT_STRIPE)).expect("readable");
        assert_eq!(next, Some(4));
    }
}

#[test]
fn a_file_with_too_few_blocks_is_named() {
    let mut test = CatalogTest::new();
    test.file("a", 1);
    test.file("gone", 1);
    let mut held = inventories(&test.catalog);
    for inventory in &mut held[..2] {
        inventory.blocks.pop();
    }
    let (_, said) = rebuilt(&test, &held, true);
    assert_eq!((&said.files, said.without_file()), (&vec!["a".to_owned()], ["gone"].into()));
    assert!(!said.is_clear());
}

#[test]
fn the_newest_readable_put_of_a_name_becomes_the_file() {
    let mut test = CatalogTest::new();
    let old = test.file("a", 1);
    let before = inventories(&test.catalog);
    let put = test.begin_or("a", 2, true).expect("to replace");
    let first = test.allocate(put, 0, [0, 1, 2]);
    test.publish(&first);
    let (catalog, said) = rebuilt(&test, &inventories(&test.catalog), true);
    assert_eq!(catalog.file("a").expect("readable").expect("there").stripes, old.stripes);
    assert_eq!(said.left, [("a".to_owned(), 3)]);
    let second = test.allocate(put, 1, [0, 1, 2]);
    test.publish(&second);
    let new = test.catalog.commit_put(put).expect("complete");
    // The old blocks are still present, because no helper has removed them yet.
    let mut held = inventories(&test.catalog);
    held.iter_mut().zip(before).for_each(|(now, before)| now.blocks.extend(before.blocks));
    let (catalog, _) = rebuilt(&test, &held, true);
    assert_eq!(catalog.file("a").expect("readable").expect("there").stripes, new.stripes);
}

/// The clock of the coordinator's machine may have been wrong when the old file was put.
#[test]
fn a_file_that_was_replaced_after_a_rebuild_is_newer_than_one_from_the_future() {
    let month = 30 * 24 * 60 * 60 * 1000;
    let mut test = CatalogTest::new();
    test.catalog.change(|change| change.put(META, LAST_BEGUN, &(unix_ms() + month))).expect("written");
    test.file("a", 1);
    let before = inventories(&test.catalog);
    let (catalog, _) = rebuilt(&test, &before, true);
    let mut test = CatalogTest { catalog, ..test };
    let put = test.begin_or("a", 1, true).expect("to replace");
    let stripe = test.allocate(put, 0, [0, 1, 2]);
    test.publish(&stripe);
    let new = test.catalog.commit_put(put).expect("complete");
    let mut held = inventories(&test.catalog);
    held.iter_mut().zip(before).for_each(|(now, before)| now.blocks.extend(before.blocks));
    let (catalog, _) = rebuilt(&test, &held, true);
    assert_eq!(catalog.file("a").expect("readable").expect("there").stripes, new.stripes);
}

#[test]
fn contradicting_blocks_are_counted_as_strangers() {
    let mut test = CatalogTest::new();
    let file = test.file("a", 1);
    let mut held = inventories(&test.catalog);
    // If two copies of a block differ, neither copy is used, so the block has no holder. Blocks of other
    // clusters and blocks without a label become part of no stripe.
    let mut copy = held[0].blocks[0].clone();
    copy.digest = digest(1);
    let mut foreign = held[1].blocks[0].clone();
    foreign.label.as_mut().expect("labelled").1.cluster = "cluster-2".to_owned();
    let unnamed = Description { label: None, ..held[2].blocks[0].clone() };
    held[4].blocks = vec![copy, foreign, unnamed];
    let (catalog, said) = rebuilt(&test, &held, true);
    assert!(!said.is_clear());
    assert_eq!(said.files, ["a"]);
    let strangers = said.strangers.iter().map(|left| (left.helper.as_str(), left.file.as_deref()));
    let first = held[0].node.as_str();
    assert_eq!(
        strangers.collect::<Vec<_>>(),
        [("eve", None), ("eve", None), (first, Some("a")), ("eve", Some("a"))]
    );
    let stripe = catalog.stripe(&file.stripes[0]).expect("there");
    let holders: Vec<bool> = stripe.blocks.iter().map(|block| block.node.is_some()).collect();
    assert_eq!(holders, [false, true, true]);
    assert_eq!(stripe.blocks[0].state, BlockState::Corrupt, "neither copy is taken for it");
}
