//! Missing blocks and crowded stripes, whatever the state of a file is.

use std::collections::BTreeMap;

use hdfs_raid::{Exclusion, File, Health, Inspector, Listing, NodeIndex, Policies, State, Storing, Unit};

use crate::{BLOCK, POLICIES, damage, encoded, file, listing, surveyed, unit};

/// Returns an encoded file that has lost its first blocks, and its parity file.
fn losing(blocks: usize) -> [File; 2] {
    let [mut source, parity] = encoded();
    source.blocks.iter_mut().take(blocks).for_each(|block| block.replicas.clear());
    [source, parity]
}

fn surveyed_unit(listing: &Listing, path: &str) -> Unit {
    unit(&surveyed(listing), path)
}

/// Returns a file that is open, one below a folder with snapshots, and one in the trash, each with its parity, its path
/// and the reason for which it is left as it is.
fn held([source, parity]: [File; 2]) -> [(Listing, String, Exclusion); 3] {
    let open = listing(vec![File { is_open: true, ..source.clone() }, parity.clone()]);
    let mut kept = listing(vec![source.clone(), parity.clone()]);
    kept.snapshots = vec!["/large".to_owned()];
    let [in_trash, its_parity] =
        ["/user/a/.Trash/Current/f", "/raidrs/user/a/.Trash/Current/f"].map(str::to_owned);
    let trash = listing(vec![File { path: in_trash.clone(), ..source }, File { path: its_parity, ..parity }]);
    let path = || "/large/f".to_owned();
    [
        (open, path(), Exclusion::Open),
        (kept, path(), Exclusion::Snapshots("/large".to_owned())),
        (trash, in_trash, Exclusion::Trash),
    ]
}

/// Such a file may have been encoded before, and has no more replicas than any other encoded file.
#[test]
fn losses_of_files_that_are_left_as_they_are_are_reported() {
    for (listing, path, held) in held(losing(5)) {
        let unit = surveyed_unit(&listing, &path);
        assert_eq!((unit.state.name(), &unit.held), ("unreadable", &Some(held)), "{path}");
        assert_eq!(unit.state, State::Damaged(damage(0, 1)));
        assert_eq!((unit.stored, unit.target), (14 * BLOCK, 14 * BLOCK));
    }
}

#[test]
fn intact_files_that_are_left_as_they_are_are_raided() {
    for (listing, path, held) in held(encoded()) {
        let unit = surveyed_unit(&listing, &path);
        assert_eq!((unit.state, unit.held), (State::Raided, Some(held)), "{path}");
        assert_eq!((unit.target, unit.stripes.len()), (unit.stored, 0));
    }
}

#[test]
fn stale_parity_hides_no_loss() {
    let [source, parity] = losing(1);
    let touched = File { modified_ms: 2000, ..source };
    let unit = surveyed_unit(&listing(vec![touched, parity]), "/large/f");
    assert_eq!((unit.state.name(), unit.health.unprotected), ("unreadable", 1));
    assert_eq!(unit.state.reason().as_deref(), Some("missing blocks without valid parity: 1"));
}

#[test]
fn files_without_parity_hide_no_loss() {
    let mut lost = file("/other/f", 23, 3, 0);
    lost.blocks[7].replicas.clear();
    let open = File { path: "/large/open".to_owned(), is_open: true, ..lost.clone() };
    let encrypted = File { path: "/large/zone/f".to_owned(), storing: Storing::Encrypted, ..lost.clone() };
    let survey = surveyed(&listing(vec![lost, open, encrypted]));
    let states: Vec<&str> = survey.units.iter().map(|unit| unit.state.name()).collect();
    assert_eq!(states, ["lost-block"; 3]);
    assert_eq!(survey.health().unprotected, 3);
}

#[test]
fn stripes_are_counted_by_missing_blocks() {
    let mut files = vec![file("/large/f", 30, 1, 0), file("/raidrs/large/f", 12, 1, 10)];
    files[0].blocks[3].replicas.clear();
    files[1].blocks[11].replicas.clear();
    files[0].blocks[20..24].iter_mut().for_each(|block| block.replicas.clear());
    let survey = surveyed(&listing(files));
    let health = survey.health();
    assert_eq!(health.stripes, BTreeMap::from([(0, 1), (1, 1), (5, 1)]));
    assert_eq!((health.incomplete(), health.unrecoverable), (2, 1));
    assert_eq!(unit(&survey, "/large/f").state, State::Damaged(damage(1, 1)));
}

#[test]
fn crowded_stripes_are_told_apart() {
    let crowding = |change: fn(&mut Listing)| {
        let mut listing = listing(encoded().into());
        change(&mut listing);
        let Health { crowded_nodes, crowded_racks, .. } = surveyed_unit(&listing, "/large/f").health;
        [crowded_nodes, crowded_racks]
    };
    assert_eq!(crowding(|_| {}), [0, 0]);
    assert_eq!(crowding(|listing| listing.files[0].blocks[3].replicas = vec![NodeIndex(2)]), [1, 0]);
    // Rack 0 has DataNodes 0, 5, 10 and 15; with a fifth one, it could cost more blocks than the code tolerates.
    let in_one_rack = |listing: &mut Listing| {
        listing.nodes[16].rack = "/rack0".to_owned();
        listing.files[0].blocks[1].replicas = vec![NodeIndex(15)];
        listing.files[0].blocks[2].replicas = vec![NodeIndex(16)];
    };
    assert_eq!(crowding(in_one_rack), [0, 1]);
    // With two racks, the loss of one costs too many blocks wherever they are.
    assert_eq!(
        crowding(|listing| {
            let nodes = listing.nodes.iter_mut().enumerate();
            nodes.for_each(|(at, node)| node.rack = format!("/rack{}", at % 2));
        }),
        [0, 0]
    );
}

/// The code tolerates four losses.
#[test]
fn stripes_that_depend_on_one_datanode_are_counted() {
    let exposed = |crowd: usize, silent: &[usize]| {
        let mut listing = listing(encoded().into());
        listing.files[0].blocks[..crowd].iter_mut().for_each(|block| block.replicas = vec![NodeIndex(0)]);
        listing.gaps.silent = silent.iter().copied().map(NodeIndex).collect();
        surveyed_unit(&listing, "/large/f").health.exposed
    };
    assert_eq!([exposed(4, &[]), exposed(5, &[]), exposed(4, &[12])], [0, 1, 1]);
    assert_eq!(exposed(1, &[9, 10, 11, 12]), 0, "no DataNode has several blocks");
}

#[test]
fn too_few_datanodes_do_not_hide_crowded_stripes() {
    let mut listing = listing(encoded().into());
    listing.nodes.iter_mut().skip(13).for_each(|node| node.is_usable = false);
    listing.files[1].blocks[3].replicas = vec![NodeIndex(0)];
    assert_eq!(surveyed_unit(&listing, "/large/f").state, State::Misplaced(1));
}

#[test]
fn a_datanode_that_is_taken_out_of_service_crowds_no_stripe() {
    let mut listing = listing(encoded().into());
    listing.nodes[3].is_usable = false;
    assert_eq!(surveyed_unit(&listing, "/large/f").state, State::Raided);
}

#[test]
fn stripes_are_inspected_with_their_blocks() {
    let listing = listing(losing(2).into());
    let policies = Policies::parse(POLICIES).expect("policies");
    let inspector = Inspector::new(&listing, &policies);
    let stripes = inspector.stripes(&surveyed_unit(&listing, "/large/f"));
    let [stripe] = &stripes[..] else { panic!("one stripe") };
    assert_eq!((stripe.blocks.len(), stripe.missing, stripe.is_decodable), (14, 2, true));
    assert_eq!(stripe.replicas()[13], [NodeIndex(13)]);
    let [source, parity] = encoded();
    let stale = crate::listing(vec![File { modified_ms: 2000, ..source }, parity]);
    let inspector = Inspector::new(&stale, &policies);
    assert!(inspector.stripes(&surveyed_unit(&stale, "/large/f")).is_empty());
}

#[test]
fn parity_is_counted_once() {
    let totals = surveyed(&listing(encoded().into())).totals();
    assert_eq!((totals["raided"].stored, totals["parity"].stored), (14 * BLOCK, 0));
    assert_eq!(totals["parity"].files, 1);
}
