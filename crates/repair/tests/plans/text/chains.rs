//! Repair pipelining with one or several chains.

use super::check;
use crate::planner_input::PlannerInput;

#[test]
fn pipelined() {
    check(
        "rs-3-2; want b0>n20; by rp",
        "
        pipelined rs-3-2 stripe 17: b0 to n20
        window 0..65536 of each sub-block, 8 slices of 8192, 1 lane
        lane 0 (every slice, 2 hops)
          n2 reads b1: to n3 [245·b1]
          n3 reads b2: to n20 [n2#0 + 2·b2]
          n20: delivers b0 = n3#0
        cost: 2.00 blocks over the network, busiest node n3 (1.00 up, 1.00 down), 1.125 timeslots
        disks: 2.00 blocks, 2 reads of 65536 bytes
        ",
    );
    check(
        "rs-14-10; block 67108864; slice 32768; want b3>n20; by rp",
        "
        pipelined rs-14-10 stripe 17: b3 to n20
        window 0..67108864 of each sub-block, 2048 slices of 32768, 1 lane
        lane 0 (every slice, 10 hops)
          n1 reads b0: to n2 [123·b0]
          n2 reads b1: to n3 [n1#0 + 44·b1]
          n3 reads b2: to n5 [n2#0 + 172·b2]
          n5 reads b4: to n6 [n3#0 + 143·b4]
          n6 reads b5: to n7 [n5#0 + 82·b5]
          n7 reads b6: to n8 [n6#0 + 200·b6]
          n8 reads b7: to n9 [n7#0 + 147·b7]
          n9 reads b8: to n10 [n8#0 + 138·b8]
          n10 reads b9: to n11 [n9#0 + 7·b9]
          n11 reads b10: to n20 [n10#0 + 9·b10]
          n20: delivers b3 = n11#0
        cost: 10.00 blocks over the network, busiest node n2 (1.00 up, 1.00 down), 1.004 timeslots
        disks: 10.00 blocks, 10 reads of 67108864 bytes
        ",
    );
    check(
        "rs-6-4; want b1>n20 b2>n21; by rp",
        "
        pipelined rs-6-4 stripe 17: b1 to n20, b2 to n21
        window 0..65536 of each sub-block, 16 slices of 4096, 1 lane
        lane 0 (every slice, 3 hops)
          n1 reads b0: to n5 [b0]
          n4 reads b3: to n5 [b3]
          n5 reads b4: to n6 [105·n4#0 + 245·n1#0 + 40·b4] [245·n4#0 + 41·n1#0 + 54·b4]
          n6 reads b5: to n20 [n5#0 + 36·b5]; to n21 [n5#1 + 56·b5]
          n20: delivers b1 = n6#0
          n21: delivers b2 = n6#0
        cost: 6.00 blocks over the network, busiest node n5 (2.00 up, 2.00 down), 2.125 timeslots
        disks: 4.00 blocks, 4 reads of 65536 bytes
        ",
    );
    check(
        "rs-6-4; want b1>n20 b2>n20; by rp; slice 16384; window 5000..50000",
        "
        pipelined rs-6-4 stripe 17: b1 to n20, b2 to n20
        window 5000..50000 of each sub-block, 3 slices of 16384, 1 lane
        lane 0 (every slice, 3 hops)
          n1 reads b0: to n5 [b0]
          n4 reads b3: to n5 [b3]
          n5 reads b4: to n6 [105·n4#0 + 245·n1#0 + 40·b4] [245·n4#0 + 41·n1#0 + 54·b4]
          n6 reads b5: to n20 [n5#0 + 36·b5] [n5#1 + 56·b5]
          n20: delivers b1 = n6#0; delivers b2 = n6#1
        cost: 4.12 blocks over the network, busiest node n5 (1.37 up, 1.37 down), 1.873 timeslots
        disks: 2.75 blocks, 4 reads of 45000 bytes
        ",
    );
}

#[test]
fn a_chain_ends_at_a_requestor_that_holds_a_block() {
    check(
        "rs-6-4; want b1>n4; by rp",
        "
        pipelined rs-6-4 stripe 17: b1 to n4
        window 0..65536 of each sub-block, 16 slices of 4096, 1 lane
        lane 0 (every slice, 3 hops)
          n1 reads b0: to n3 [70·b0]
          n3 reads b2: to n5 [n1#0 + 143·b2]
          n4 reads b3: delivers b1 = n5#0 + 104·b3
          n5 reads b4: to n4 [n3#0 + 5·b4]
        cost: 3.00 blocks over the network, busiest node n3 (1.00 up, 1.00 down), 1.125 timeslots
        disks: 4.00 blocks, 4 reads of 65536 bytes
        ",
    );
    check(
        "rs-6-4; want b1>n6 b2>n20; by rp",
        "
        pipelined rs-6-4 stripe 17: b1 to n6, b2 to n20
        window 0..65536 of each sub-block, 16 slices of 4096, 1 lane
        lane 0 (every slice, 3 hops)
          n1 reads b0: to n5 [b0]
          n4 reads b3: to n5 [b3]
          n5 reads b4: to n6 [105·n4#0 + 245·n1#0 + 40·b4] [245·n4#0 + 41·n1#0 + 54·b4]
          n6 reads b5: to n20 [n5#1 + 56·b5]; delivers b1 = n5#0 + 36·b5
          n20: delivers b2 = n6#0
        cost: 5.00 blocks over the network, busiest node n5 (2.00 up, 2.00 down), 2.125 timeslots
        disks: 4.00 blocks, 4 reads of 65536 bytes
        ",
    );
}

#[test]
fn cyclic() {
    check(
        "rs-3-2; want b0>n20; by cyclic",
        "
        cyclic rs-3-2 stripe 17: b0 to n20
        window 0..65536 of each sub-block, 8 slices of 8192, 1 lane
        lane 0 (every slice, 2 hops)
          n2 reads b1: to n3 [245·b1]
          n3 reads b2: to n20 [n2#0 + 2·b2]
          n20: delivers b0 = n3#0
        cost: 2.00 blocks over the network, busiest node n3 (1.00 up, 1.00 down), 1.125 timeslots
        disks: 2.00 blocks, 2 reads of 65536 bytes
        ",
    );
    check(
        "rs-4-3; want b0>n20; by cyclic; slice 4096",
        "
        cyclic rs-4-3 stripe 17: b0 to n20
        window 0..65536 of each sub-block, 16 slices of 4096, 2 lanes
        lane 0 (slices 0 mod 2, 3 hops)
          n2 reads b1: to n3 [143·b1]
          n3 reads b2: to n4 [n2#0 + 3·b2]
          n4 reads b3: to n20 [n3#0 + 3·b3]
          n20: delivers b0 = n4#0
        lane 1 (slices 1 mod 2, 3 hops)
          n2 reads b1: to n20 [n4#0 + 143·b1]
          n3 reads b2: to n4 [3·b2]
          n4 reads b3: to n2 [n3#0 + 3·b3]
          n20: delivers b0 = n2#0
        cost: 3.00 blocks over the network, busiest node n4 (1.00 up, 1.00 down), 1.125 timeslots
        disks: 3.00 blocks, 3 reads of 65536 bytes
        ",
    );
    check(
        "rs-6-4; want b1>n4; by cyclic",
        "
        cyclic rs-6-4 stripe 17: b1 to n4
        window 0..65536 of each sub-block, 16 slices of 4096, 2 lanes
        lane 0 (slices 0 mod 2, 3 hops)
          n1 reads b0: to n3 [70·b0]
          n3 reads b2: to n5 [n1#0 + 143·b2]
          n4 reads b3: delivers b1 = n5#0 + 104·b3
          n5 reads b4: to n4 [n3#0 + 5·b4]
        lane 1 (slices 1 mod 2, 3 hops)
          n1 reads b0: to n4 [n5#0 + 70·b0]
          n3 reads b2: to n5 [143·b2]
          n4 reads b3: delivers b1 = n1#0 + 104·b3
          n5 reads b4: to n1 [n3#0 + 5·b4]
        cost: 3.00 blocks over the network, busiest node n5 (1.00 up, 1.00 down), 1.125 timeslots
        disks: 4.00 blocks, 4 reads of 65536 bytes
        ",
    );
}

#[test]
fn baselines_of_repair_pipelining() {
    check(
        "rs-6-4; want b1>n20; by pipe-b",
        "
        pipe-b rs-6-4 stripe 17, by whole blocks: b1 to n20
        window 0..65536 of each sub-block, 16 slices of 4096, 1 lane
        lane 0 (every slice, 4 hops)
          n1 reads b0: to n3 [70·b0]
          n3 reads b2: to n4 [n1#0 + 143·b2]
          n4 reads b3: to n5 [n3#0 + 104·b3]
          n5 reads b4: to n20 [n4#0 + 5·b4]
          n20: delivers b1 = n5#0
        cost: 4.00 blocks over the network, busiest node n3 (1.00 up, 1.00 down), 4.000 timeslots
        disks: 4.00 blocks, 4 reads of 65536 bytes
        ",
    );
    check(
        "rs-6-4; want b1>n20; by pipe-s",
        "
        pipe-s rs-6-4 stripe 17, one slice at a time: b1 to n20
        window 0..65536 of each sub-block, 16 slices of 4096, 1 lane
        lane 0 (every slice, 4 hops)
          n1 reads b0: to n3 [70·b0]
          n3 reads b2: to n4 [n1#0 + 143·b2]
          n4 reads b3: to n5 [n3#0 + 104·b3]
          n5 reads b4: to n20 [n4#0 + 5·b4]
          n20: delivers b1 = n5#0
        cost: 4.00 blocks over the network, busiest node n3 (1.00 up, 1.00 down), 2.125 timeslots
        disks: 4.00 blocks, 4 reads of 65536 bytes
        ",
    );
}

/// One lost block in each of two local groups needs two chains, which share only the requestor.
#[test]
fn sums_bypass_nodes_that_add_nothing() {
    check(
        "lrc-4-2-2; want b0>n20 b2>n20; by rp",
        "
        pipelined lrc-4-2-2 stripe 17: b0 to n20, b2 to n20
        window 0..65536 of each sub-block, 8 slices of 8192, 1 lane
        lane 0 (every slice, 2 hops)
          n2 reads b1: to n5 [b1]
          n4 reads b3: to n6 [b3]
          n5 reads b4: to n20 [n2#0 + b4]
          n6 reads b5: to n20 [n4#0 + b5]
          n20: delivers b0 = n5#0; delivers b2 = n6#0
        cost: 4.00 blocks over the network, busiest node n20 (0.00 up, 2.00 down), 2.125 timeslots
        disks: 4.00 blocks, 4 reads of 65536 bytes
        ",
    );
}

/// A node occurs in a chain only once, even if the scheduler assigned it twice; another node takes its second
/// place.
#[test]
fn chains_that_were_dealt_to_a_node_twice() {
    let plan = |chain: &str| {
        let input = format!("rs-6-3; on b2=n2; want b0>n20; slice 8192; prefer n4 n5; chain 65536*{chain}");
        PlannerInput::new(&input).plan().to_string()
    };
    assert_eq!(plan("n2>n2>n6"), plan("n2>n4>n6"));
}

/// Weights follow the lengths of the stretches. Node n5 holds no block, so it is replaced by n4, which is
/// preferred to n3.
#[test]
fn chains_that_were_dealt() {
    check(
        "rs-5-2; want b0>n20; lost b4; slice 8192; prefer n4 n3; chain 49152*n2>n3 16384*n5>n2",
        "
        packed rs-5-2 stripe 17: b0 to n20
        window 0..65536 of each sub-block, 8 slices of 8192, 2 lanes
        lane 0 (slices 0,1,3 mod 4, 2 hops)
          n2 reads b1: to n3 [245·b1]
          n3 reads b2: to n20 [n2#0 + 2·b2]
          n20: delivers b0 = n3#0
        lane 1 (slices 2 mod 4, 2 hops)
          n2 reads b1: to n20 [n4#0 + 143·b1]
          n4 reads b3: to n2 [3·b3]
          n20: delivers b0 = n2#0
        cost: 2.00 blocks over the network, busiest node n2 (1.00 up, 0.25 down), 1.125 timeslots
        disks: 2.00 blocks, 6 reads of 21845 bytes
        ",
    );
}
