//! Rules that hold for every scheme: the choice of nodes, the remaining slices, and the text of a plan.

use super::check;
use crate::planner_input::PlannerInput;

#[test]
fn blocks_that_still_exist_are_copied() {
    check(
        "rs-6-4; want b1>n20; held b1",
        "
        migration rs-6-4 stripe 17: b1 to n20
        window 0..65536 of each sub-block, 8 slices of 8192, 1 lane
        lane 0 (every slice, 1 hop)
          n2 reads b1: to n20 [b1]
          n20: delivers b1 = n2#0
        cost: 1.00 blocks over the network, busiest node n2 (1.00 up, 0.00 down), 1.000 timeslots
        disks: 1.00 blocks, 1 read of 65536 bytes
        ",
    );
    check(
        "rs-6-4; want b3>n20 b1>n21; held b1 b3; by migration",
        "
        migration rs-6-4 stripe 17: b3 to n20, b1 to n21
        window 0..65536 of each sub-block, 8 slices of 8192, 1 lane
        lane 0 (every slice, 1 hop)
          n2 reads b1: to n21 [b1]
          n4 reads b3: to n20 [b3]
          n20: delivers b3 = n4#0
          n21: delivers b1 = n2#0
        cost: 2.00 blocks over the network, busiest node n2 (1.00 up, 0.00 down), 1.000 timeslots
        disks: 2.00 blocks, 2 reads of 65536 bytes
        ",
    );
    check(
        "rs-6-4; want b1>n2; held b1",
        "
        migration rs-6-4 stripe 17: b1 to n2
        window 0..65536 of each sub-block, 8 slices of 8192, 1 lane
        lane 0 (every slice, 0 hops)
          n2 reads b1: delivers b1 = b1
        cost: 0.00 blocks over the network, 0.000 timeslots
        disks: 1.00 blocks, 1 read of 65536 bytes
        ",
    );
    check(
        "rs-6-4; want b1>n20 b2>n20; held b1; by rp",
        "
        pipelined rs-6-4 stripe 17: b1 to n20, b2 to n20
        window 0..65536 of each sub-block, 16 slices of 4096, 1 lane
        lane 0 (every slice, 4 hops)
          n1 reads b0: to n4 [n2#0 + 143·b0]
          n2 reads b1: to n1 [245·b1]; to n20 [b1]
          n4 reads b3: to n5 [n1#0 + 187·b3]
          n5 reads b4: to n20 [n4#0 + 6·b4]
          n20: delivers b1 = n2#0; delivers b2 = n5#0
        cost: 5.00 blocks over the network, busiest node n2 (2.00 up, 0.00 down), 2.188 timeslots
        disks: 4.00 blocks, 4 reads of 65536 bytes
        ",
    );
}

#[test]
fn a_put_encodes_at_the_client() {
    check(
        "rs-6-4; want b0>n1 b1>n2 b2>n3 b3>n4 b4>n5 b5>n6; on b0=n30 b1=n30 b2=n30 b3=n30",
        "
        conventional rs-6-4 stripe 17: b0 to n1, b1 to n2, b2 to n3, b3 to n4, b4 to n5, b5 to n6
        window 0..65536 of each sub-block, 8 slices of 8192, 1 lane
        lane 0 (every slice, 1 hop)
          n1: delivers b0 = n30#0
          n2: delivers b1 = n30#0
          n3: delivers b2 = n30#0
          n4: delivers b3 = n30#0
          n5: delivers b4 = n30#0
          n6: delivers b5 = n30#0
          n30 reads b0 b1 b2 b3: to n1 [b0]; to n2 [b1]; to n3 [b2]; to n4 [b3]; to n5 [71·b0 + 167·b1 + 122·b2 + 186·b3]; to n6 [167·b0 + 71·b1 + 186·b2 + 122·b3]
        cost: 6.00 blocks over the network, busiest node n30 (6.00 up, 0.00 down), 6.000 timeslots
        disks: 4.00 blocks, 4 reads of 65536 bytes
        ",
    );
}

#[test]
fn a_node_with_several_blocks_sums_them_first() {
    check(
        "rs-6-4; want b1>n20; on b0=n3 b3=n3; by rp",
        "
        pipelined rs-6-4 stripe 17: b1 to n20
        window 0..65536 of each sub-block, 8 slices of 8192, 1 lane
        lane 0 (every slice, 2 hops)
          n3 reads b0 b2 b3: to n5 [70·b0 + 143·b2 + 104·b3]
          n5 reads b4: to n20 [n3#0 + 5·b4]
          n20: delivers b1 = n5#0
        cost: 2.00 blocks over the network, busiest node n5 (1.00 up, 1.00 down), 1.125 timeslots
        disks: 4.00 blocks, 4 reads of 65536 bytes
        ",
    );
    check(
        "rs-6-4; want b1>n20; on b0=n3 b2=n3 b3=n3; by srr",
        "
        conventional rs-6-4 stripe 17: b1 to n20
        window 0..65536 of each sub-block, 8 slices of 8192, 1 lane
        lane 0 (every slice, 1 hop)
          n3 reads b0 b2 b3: to n20 [b0] [b2] [b3]
          n5 reads b4: to n20 [b4]
          n20: delivers b1 = 70·n3#0 + 143·n3#1 + 104·n3#2 + 5·n5#0
        cost: 4.00 blocks over the network, busiest node n20 (0.00 up, 4.00 down), 4.000 timeslots
        disks: 4.00 blocks, 4 reads of 65536 bytes
        ",
    );
}

#[test]
fn idle_nodes_are_preferred() {
    check(
        "rs-6-4; want b1>n20; load n1=2; by rp",
        "
        pipelined rs-6-4 stripe 17: b1 to n20
        window 0..65536 of each sub-block, 16 slices of 4096, 1 lane
        lane 0 (every slice, 4 hops)
          n3 reads b2: to n4 [107·b2]
          n4 reads b3: to n5 [n3#0 + 208·b3]
          n5 reads b4: to n6 [n4#0 + 80·b4]
          n6 reads b5: to n20 [n5#0 + 68·b5]
          n20: delivers b1 = n6#0
        cost: 4.00 blocks over the network, busiest node n4 (1.00 up, 1.00 down), 1.188 timeslots
        disks: 4.00 blocks, 4 reads of 65536 bytes
        ",
    );
    check(
        "rs-6-4; want b1>n6; by rp",
        "
        pipelined rs-6-4 stripe 17: b1 to n6
        window 0..65536 of each sub-block, 16 slices of 4096, 1 lane
        lane 0 (every slice, 3 hops)
          n1 reads b0: to n3 [166·b0]
          n3 reads b2: to n4 [n1#0 + 210·b2]
          n4 reads b3: to n6 [n3#0 + 245·b3]
          n6 reads b5: delivers b1 = n4#0 + 4·b5
        cost: 3.00 blocks over the network, busiest node n3 (1.00 up, 1.00 down), 1.125 timeslots
        disks: 4.00 blocks, 4 reads of 65536 bytes
        ",
    );
}

#[test]
fn nodes_that_the_policy_prefers_come_before_idle_ones() {
    check(
        "rs-6-4; want b1>n20; prefer n6 n1; load n6=9; by rp",
        "
        pipelined rs-6-4 stripe 17: b1 to n20
        window 0..65536 of each sub-block, 16 slices of 4096, 1 lane
        lane 0 (every slice, 4 hops)
          n1 reads b0: to n3 [n6#0 + 166·b0]
          n3 reads b2: to n4 [n1#0 + 210·b2]
          n4 reads b3: to n20 [n3#0 + 245·b3]
          n6 reads b5: to n1 [4·b5]
          n20: delivers b1 = n4#0
        cost: 4.00 blocks over the network, busiest node n1 (1.00 up, 1.00 down), 1.188 timeslots
        disks: 4.00 blocks, 4 reads of 65536 bytes
        ",
    );
}

/// Lanes without any of the remaining slices are left out.
#[test]
fn a_repair_goes_on_with_the_slices_it_lacks() {
    check(
        "rs-4-3; want b0>n20; by cyclic; slice 4096; resume 3,5,9-11",
        "
        cyclic rs-4-3 stripe 17: b0 to n20
        window 0..65536 of each sub-block, 16 slices of 4096 of which 3,5,9-11, 2 lanes
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
        cost: 0.94 blocks over the network, busiest node n4 (0.31 up, 0.31 down), 0.438 timeslots
        disks: 0.94 blocks, 9 reads of 6826 bytes
        ",
    );
    check(
        "rs-4-3; want b0>n20; by cyclic; slice 4096; resume 3,5",
        "
        cyclic rs-4-3 stripe 17: b0 to n20
        window 0..65536 of each sub-block, 16 slices of 4096 of which 3,5, 1 lane
        lane 0 (every slice, 3 hops)
          n2 reads b1: to n20 [n4#0 + 143·b1]
          n3 reads b2: to n4 [3·b2]
          n4 reads b3: to n2 [n3#0 + 3·b3]
          n20: delivers b0 = n2#0
        cost: 0.38 blocks over the network, busiest node n2 (0.12 up, 0.12 down), 0.250 timeslots
        disks: 0.38 blocks, 6 reads of 4096 bytes
        ",
    );
}

#[test]
fn with_the_names_of_the_nodes() {
    let input = PlannerInput::new("rs-3-2; want b0>n20; by rp");
    let plan = input.plan();
    let text = plan.display_with(&input.topology).to_string();
    assert!(text.contains("dn03 reads b2: to dn20 [dn02#0 + 2·b2]"), "{text}");
    assert!(text.contains("b0 to dn20"), "{text}");
}

#[test]
fn as_json() {
    let plan = PlannerInput::new("rs-3-2; want b0>n20; by rp").plan();
    let json = serde_json::to_value(plan.summary()).expect("a summary");
    assert_eq!(json["scheme"], "pipelined");
    assert_eq!(json["helpers"], serde_json::json!([2, 3]));
    assert_eq!(json["outputs"][0]["requestor"], 20);
    assert_eq!(json["lanes"][0]["slices"], "every slice");
    assert_eq!(json["lanes"][0]["tasks"][1]["sends"][0]["to"], 20);
    assert_eq!(json["cost"]["network_bytes"], 131_072);
}

#[test]
fn streams_over_broken_links_are_relayed() {
    check(
        "rs-6-4; want b1>n20; held b1; broken n2-n20",
        "
        migration rs-6-4 stripe 17: b1 to n20
        window 0..65536 of each sub-block, 8 slices of 8192, 1 lane
        lane 0 (every slice, 2 hops)
          n1: to n20 [n2#0]
          n2 reads b1: to n1 [b1]
          n20: delivers b1 = n1#0
        cost: 2.00 blocks over the network, busiest node n1 (1.00 up, 1.00 down), 1.125 timeslots
        disks: 1.00 blocks, 1 read of 65536 bytes
        ",
    );
    check(
        "rs-6-4; want b0>n20; by rp; broken n2-n3 n5-n20; load n1=1",
        "
        pipelined rs-6-4 stripe 17: b0 to n20
        window 0..65536 of each sub-block, 16 slices of 4096, 1 lane
        lane 0 (every slice, 6 hops)
          n2 reads b1: to n4 [166·b1]; to n20 [n5#0]
          n3 reads b2: to n4 [n4#0 + 245·b2]
          n4 reads b3: to n3 [n2#0]; to n5 [n3#0 + 210·b3]
          n5 reads b4: to n2 [n4#0 + 4·b4]
          n20: delivers b0 = n2#0
        cost: 6.00 blocks over the network, busiest node n4 (2.00 up, 2.00 down), 2.312 timeslots
        disks: 4.00 blocks, 4 reads of 65536 bytes
        ",
    );
}
