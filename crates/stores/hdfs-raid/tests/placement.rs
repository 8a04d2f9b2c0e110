//! Seats and moves of a stripe's blocks, against a slow reference that tries all choices.

use std::collections::BTreeSet;

use hdfs_raid::{Arrangement, Cluster, Load, Node, NodeIndex, Seat, TooFewNodes};
use proptest::prelude::*;

/// Creates DataNodes; each is described by its rack, or by `None` if blocks cannot stay there.
fn nodes(racks: &[Option<usize>]) -> Vec<Node> {
    let node = |(at, rack): (usize, &Option<usize>)| Node {
        address: format!("10.0.0.{at}:9866"),
        rack: format!("/rack{}", rack.unwrap_or(0)),
        is_usable: rack.is_some(),
    };
    racks.iter().enumerate().map(node).collect()
}

fn indices(replicas: &[&[usize]]) -> Vec<Vec<NodeIndex>> {
    replicas.iter().map(|nodes| nodes.iter().copied().map(NodeIndex).collect()).collect()
}

fn arrange(racks: &[Option<usize>], tolerated: usize, replicas: &[Vec<NodeIndex>]) -> Arrangement {
    let cluster = Cluster::new(&nodes(racks));
    let spread = cluster.spread(replicas.len(), tolerated).expect("enough DataNodes");
    spread.arrange(replicas, &mut Load::new(racks.len()))
}

/// Returns the DataNode of a seat.
fn place(seat: Seat) -> NodeIndex {
    match seat {
        Seat::Kept(node) | Seat::New(node) | Seat::Moved { to: node, .. } => node,
    }
}

#[test]
fn replicas_are_chosen_so_that_none_has_to_move() {
    // Choosing the first replica of each block would leave no DataNode for the last block.
    let replicas = indices(&[&[0, 1], &[1, 2], &[0]]);
    let kept = arrange(&[Some(0); 3], 1, &replicas).seats;
    assert_eq!(kept, [1, 2, 0].map(|node| Seat::Kept(NodeIndex(node))));
}

#[test]
fn a_crowded_datanode_keeps_one_block() {
    let replicas = indices(&[&[0], &[0], &[0], &[1]]);
    let arrangement = arrange(&[Some(0); 5], 1, &replicas);
    let moves = arrangement.moves(&replicas);
    assert_eq!(moves.iter().map(|step| (step.block, step.from.0)).collect::<Vec<_>>(), [(1, 0), (2, 0)]);
    let targets: BTreeSet<usize> = moves.iter().map(|step| step.to.0).collect();
    assert!(targets.is_subset(&BTreeSet::from([2, 3, 4])) && targets.len() == 2);
}

#[test]
fn blocks_leave_a_rack_that_has_more_than_may_be_lost() {
    // Three racks of two DataNodes; the code tolerates two losses.
    let racks = [0, 0, 1, 1, 2, 2].map(Some);
    let replicas = indices(&[&[0], &[1], &[2], &[3], &[], &[]]);
    let arrangement = arrange(&racks, 2, &replicas);
    assert!(arrangement.moves(&replicas).is_empty());
    let new: Vec<_> = arrangement.new_blocks().map(|(block, node)| (block, node.0)).collect();
    assert_eq!(new, [(4, 4), (5, 5)]);
    // Racks 0 and 1 have three DataNodes each, so a rack could have three blocks.
    let racks = [0, 0, 0, 1, 1, 1, 2, 2].map(Some);
    let replicas = indices(&[&[0], &[1], &[2], &[3], &[4]]);
    let arrangement = arrange(&racks, 2, &replicas);
    let moves = arrangement.moves(&replicas);
    assert!(moves.len() == 1 && moves[0].from.0 < 3 && moves[0].to.0 >= 6, "{moves:?}");
}

#[test]
fn two_racks_cannot_survive_the_loss_of_one() {
    let cluster = Cluster::new(&nodes(&[0, 0, 0, 1, 1, 1].map(Some)));
    assert!(!cluster.spread(6, 2).expect("enough DataNodes").is_rack_safe());
    assert!(cluster.spread(4, 2).expect("enough DataNodes").is_rack_safe());
    assert_eq!(cluster.spread(7, 2).expect_err("six DataNodes"), TooFewNodes { needed: 7, nodes: 6 });
}

#[test]
fn blocks_do_not_stay_on_datanodes_that_leave() {
    let replicas = indices(&[&[0], &[1]]);
    let arrangement = arrange(&[None, Some(0), Some(0)], 1, &replicas);
    let expected = [Seat::Moved { from: NodeIndex(0), to: NodeIndex(2) }, Seat::Kept(NodeIndex(1))];
    assert_eq!(arrangement.seats, expected);
}

#[test]
fn new_blocks_go_to_the_emptiest_datanodes() {
    let cluster = Cluster::new(&nodes(&[Some(0); 4]));
    let mut load = Load::new(4);
    [0, 0, 1, 3].map(NodeIndex).into_iter().for_each(|node| load.add(node));
    let spread = cluster.spread(2, 1).expect("enough DataNodes");
    let seats = spread.arrange(&[Vec::new(), Vec::new()], &mut load).seats;
    assert_eq!(seats, [2, 1].map(|node| Seat::New(NodeIndex(node))));
}

/// The slow reference: returns the most blocks that can keep a replica.
fn most_kept(
    racks: &[Option<usize>],
    limit: usize,
    replicas: &[Vec<NodeIndex>],
    taken: &mut Vec<NodeIndex>,
) -> usize {
    let Some((first, rest)) = replicas.split_first() else { return 0 };
    let mut most = most_kept(racks, limit, rest, taken);
    for &node in first {
        let Some(rack) = racks[node.0] else { continue };
        let in_rack = taken.iter().filter(|taken| racks[taken.0] == Some(rack)).count();
        if !taken.contains(&node) && in_rack < limit {
            taken.push(node);
            most = most.max(1 + most_kept(racks, limit, rest, taken));
            taken.pop();
        }
    }
    most
}

#[derive(Debug)]
struct Case {
    racks: Vec<Option<usize>>,
    tolerated: usize,
    replicas: Vec<Vec<NodeIndex>>,
}

/// Generates clusters of up to nine DataNodes in three racks, and stripes of up to six blocks with `copies`
/// replicas each.
fn case(copies: std::ops::Range<usize>) -> impl Strategy<Value = Case> {
    let racks = prop::collection::vec(prop::option::weighted(0.9, 0_usize..3), 3..10);
    racks.prop_flat_map(move |racks| {
        let all: Vec<usize> = (0..racks.len()).collect();
        let some = prop::sample::subsequence(all, copies.clone()).prop_shuffle();
        let some = some.prop_map(|nodes| nodes.into_iter().map(NodeIndex).collect::<Vec<_>>());
        let replicas = prop::collection::vec(some, 1..7);
        (Just(racks), 1_usize..4, replicas).prop_map(|(racks, tolerated, replicas)| Case {
            racks,
            tolerated,
            replicas,
        })
    })
}

/// Checks the seats of a stripe: they are within the limits, and as many as possible are where replicas are.
fn check(case: &Case, limit: usize, arrangement: &Arrangement) -> Result<(), TestCaseError> {
    let places: Vec<NodeIndex> = arrangement.seats.iter().copied().map(place).collect();
    prop_assert_eq!(places.iter().collect::<BTreeSet<_>>().len(), places.len(), "one block on a DataNode");
    for &node in &places {
        let rack = case.racks[node.0];
        prop_assert!(rack.is_some(), "a DataNode in service");
        let in_rack = places.iter().filter(|other| case.racks[other.0] == rack).count();
        prop_assert!(in_rack <= limit, "{in_rack} blocks in a rack");
    }
    for (seat, nodes) in arrangement.seats.iter().zip(&case.replicas) {
        match seat {
            Seat::Kept(node) => prop_assert!(nodes.contains(node)),
            Seat::New(_) => prop_assert!(nodes.is_empty()),
            Seat::Moved { from, to } => prop_assert!(nodes.contains(from) && !nodes.contains(to)),
        }
    }
    let kept = arrangement.seats.iter().filter(|seat| matches!(seat, Seat::Kept(_))).count();
    prop_assert_eq!(kept, most_kept(&case.racks, limit, &case.replicas, &mut Vec::new()));
    Ok(())
}

proptest! {
    #[test]
    fn as_many_blocks_as_possible_stay(case in case(0..4)) {
        let (cluster, blocks) = (Cluster::new(&nodes(&case.racks)), case.replicas.len());
        let Ok(spread) = cluster.spread(blocks, case.tolerated) else {
            prop_assert!(case.racks.iter().flatten().count() < blocks);
            return Ok(());
        };
        let limit = if spread.is_rack_safe() { case.tolerated } else { blocks };
        let arrangement = spread.arrange(&case.replicas, &mut Load::new(case.racks.len()));
        check(&case, limit, &arrangement)?;
        let kept = arrangement.seats.iter().map(|seat| match seat {
            Seat::Kept(node) => Some(*node),
            _ => None,
        });
        prop_assert_eq!(spread.keepers(&case.replicas), kept.collect::<Vec<_>>());
    }

    /// Carries out the moves of a stripe whose blocks have one replica each, step by step.
    #[test]
    fn the_only_replica_is_never_missing(case in case(1..2)) {
        let cluster = Cluster::new(&nodes(&case.racks));
        let Ok(spread) = cluster.spread(case.replicas.len(), case.tolerated) else { return Ok(()) };
        let arrangement = spread.arrange(&case.replicas, &mut Load::new(case.racks.len()));
        let mut replicas = case.replicas.clone();
        let on = |replicas: &[Vec<NodeIndex>], node: NodeIndex| {
            replicas.iter().filter(|nodes| nodes.contains(&node)).count()
        };
        for step in arrangement.moves(&case.replicas) {
            prop_assert_eq!(on(&replicas, step.to), 0, "the target has no block of the stripe");
            replicas[step.block].push(step.to);
            replicas[step.block].retain(|&node| node != step.from);
            prop_assert_eq!(&replicas[step.block], &[step.to]);
        }
        let places: Vec<Vec<NodeIndex>> = arrangement.seats.iter().map(|&seat| vec![place(seat)]).collect();
        prop_assert_eq!(replicas, places);
    }
}
