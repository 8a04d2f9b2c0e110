//! Schemes that send everything to one node, directly or in trees: conventional, PPR and CRR.

use super::check;

/// With k = 1 there is nothing to sum.
#[test]
fn one_helper_is_a_copy_whatever_the_scheme() {
    check(
        "rs-2-1; want b0>n20",
        "
        conventional rs-2-1 stripe 17: b0 to n20
        window 0..65536 of each sub-block, 8 slices of 8192, 1 lane
        lane 0 (every slice, 1 hop)
          n2 reads b1: to n20 [b1]
          n20: delivers b0 = n2#0
        cost: 1.00 blocks over the network, busiest node n2 (1.00 up, 0.00 down), 1.000 timeslots
        disks: 1.00 blocks, 1 read of 65536 bytes
        ",
    );
    check(
        "rs-2-1; want b0>n20; by crr-s",
        "
        crr-s rs-2-1 stripe 17: b0 to n20
        window 0..65536 of each sub-block, 8 slices of 8192, 1 lane
        lane 0 (every slice, 1 hop)
          n2 reads b1: to n20 [b1]
          n20: delivers b0 = n2#0
        cost: 1.00 blocks over the network, busiest node n2 (1.00 up, 0.00 down), 1.000 timeslots
        disks: 1.00 blocks, 1 read of 65536 bytes
        ",
    );
}

#[test]
fn conventional() {
    check(
        "rs-3-2; want b0>n20; by srr",
        "
        conventional rs-3-2 stripe 17: b0 to n20
        window 0..65536 of each sub-block, 8 slices of 8192, 1 lane
        lane 0 (every slice, 1 hop)
          n2 reads b1: to n20 [b1]
          n3 reads b2: to n20 [b2]
          n20: delivers b0 = 245·n2#0 + 2·n3#0
        cost: 2.00 blocks over the network, busiest node n20 (0.00 up, 2.00 down), 2.000 timeslots
        disks: 2.00 blocks, 2 reads of 65536 bytes
        ",
    );
    check(
        "rs-6-4; want b1>n20 b2>n21; by srr",
        "
        conventional rs-6-4 stripe 17: b1 to n20, b2 to n21
        window 0..65536 of each sub-block, 8 slices of 8192, 1 lane
        lane 0 (every slice, 2 hops)
          n1 reads b0: to n20 [b0]
          n4 reads b3: to n20 [b3]
          n5 reads b4: to n20 [b4]
          n6 reads b5: to n20 [b5]
          n20: to n21 [41·n1#0 + 245·n4#0 + 54·n5#0 + 56·n6#0]; delivers b1 = 245·n1#0 + 105·n4#0 + 40·n5#0 + 36·n6#0
          n21: delivers b2 = n20#0
        cost: 5.00 blocks over the network, busiest node n20 (1.00 up, 4.00 down), 4.125 timeslots
        disks: 4.00 blocks, 4 reads of 65536 bytes
        ",
    );
    check(
        "rs-6-4; want b1>n4; by srr",
        "
        conventional rs-6-4 stripe 17: b1 to n4
        window 0..65536 of each sub-block, 8 slices of 8192, 1 lane
        lane 0 (every slice, 1 hop)
          n1 reads b0: to n4 [b0]
          n3 reads b2: to n4 [b2]
          n4 reads b3: delivers b1 = 70·n1#0 + 143·n3#0 + 5·n5#0 + 104·b3
          n5 reads b4: to n4 [b4]
        cost: 3.00 blocks over the network, busiest node n4 (0.00 up, 3.00 down), 3.000 timeslots
        disks: 4.00 blocks, 4 reads of 65536 bytes
        ",
    );
}

#[test]
fn ppr() {
    check(
        "rs-3-2; want b0>n20; by ppr",
        "
        ppr rs-3-2 stripe 17: b0 to n20
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
        "rs-4-3; want b0>n20; by ppr",
        "
        ppr rs-4-3 stripe 17: b0 to n20
        window 0..65536 of each sub-block, 8 slices of 8192, 1 lane
        lane 0 (every slice, 2 hops)
          n2 reads b1: to n3 [143·b1]
          n3 reads b2: to n20 [n2#0 + 3·b2]
          n4 reads b3: to n20 [3·b3]
          n20: delivers b0 = n4#0 + n3#0
        cost: 3.00 blocks over the network, busiest node n20 (0.00 up, 2.00 down), 2.125 timeslots
        disks: 3.00 blocks, 3 reads of 65536 bytes
        ",
    );
    check(
        "rs-6-5; want b1>n20; by ppr",
        "
        ppr rs-6-5 stripe 17: b1 to n20
        window 0..65536 of each sub-block, 16 slices of 4096, 1 lane
        lane 0 (every slice, 3 hops)
          n1 reads b0: to n3 [166·b0]
          n3 reads b2: to n5 [n1#0 + 210·b2]
          n4 reads b3: to n5 [245·b3]
          n5 reads b4: to n20 [n4#0 + n3#0 + 4·b4]
          n6 reads b5: to n20 [4·b5]
          n20: delivers b1 = n6#0 + n5#0
        cost: 5.00 blocks over the network, busiest node n5 (1.00 up, 2.00 down), 2.125 timeslots
        disks: 5.00 blocks, 5 reads of 65536 bytes
        ",
    );
    check(
        "rs-8-7; want b1>n20; by ppr",
        "
        ppr rs-8-7 stripe 17: b1 to n20
        window 0..65536 of each sub-block, 16 slices of 4096, 1 lane
        lane 0 (every slice, 3 hops)
          n1 reads b0: to n3 [187·b0]
          n3 reads b2: to n5 [n1#0 + 245·b2]
          n4 reads b3: to n5 [143·b3]
          n5 reads b4: to n20 [n4#0 + n3#0 + 2·b4]
          n6 reads b5: to n7 [3·b5]
          n7 reads b6: to n20 [n6#0 + 6·b6]
          n8 reads b7: to n20 [6·b7]
          n20: delivers b1 = n8#0 + n7#0 + n5#0
        cost: 7.00 blocks over the network, busiest node n20 (0.00 up, 3.00 down), 3.125 timeslots
        disks: 7.00 blocks, 7 reads of 65536 bytes
        ",
    );
    check(
        "rs-6-4; want b1>n4; by ppr",
        "
        ppr rs-6-4 stripe 17: b1 to n4
        window 0..65536 of each sub-block, 8 slices of 8192, 1 lane
        lane 0 (every slice, 2 hops)
          n1 reads b0: to n3 [70·b0]
          n3 reads b2: to n4 [n1#0 + 143·b2]
          n4 reads b3: delivers b1 = n5#0 + n3#0 + 104·b3
          n5 reads b4: to n4 [5·b4]
        cost: 3.00 blocks over the network, busiest node n4 (0.00 up, 2.00 down), 2.125 timeslots
        disks: 4.00 blocks, 4 reads of 65536 bytes
        ",
    );
    check(
        "rs-6-4; want b1>n20 b2>n3; by ppr",
        "
        ppr rs-6-4 stripe 17: b1 to n20, b2 to n3
        window 0..65536 of each sub-block, 8 slices of 8192, 1 lane
        lane 0 (every slice, 2 hops)
          n1 reads b0: to n6 [b0]
          n3: delivers b2 = n6#0
          n4 reads b3: to n6 [b3]
          n5 reads b4: to n6 [b4]
          n6 reads b5: to n3 [54·n5#0 + 245·n4#0 + 41·n1#0 + 56·b5]; to n20 [40·n5#0 + 105·n4#0 + 245·n1#0 + 36·b5]
          n20: delivers b1 = n6#0
        cost: 5.00 blocks over the network, busiest node n6 (2.00 up, 3.00 down), 3.125 timeslots
        disks: 4.00 blocks, 4 reads of 65536 bytes
        ",
    );
}

#[test]
fn crr_r() {
    check(
        "rs-4-3; want b0>n20; by crr-r",
        "
        crr-r rs-4-3 stripe 17: b0 to n20
        window 0..65536 of each sub-block, 8 slices of 8192, 1 lane
        lane 0 (every slice, 2 hops)
          n2 reads b1: to n20 [n3#0 + n4#0 + 143·b1]
          n3 reads b2: to n2 [3·b2]
          n4 reads b3: to n2 [3·b3]
          n20: delivers b0 = n2#0
        cost: 3.00 blocks over the network, busiest node n2 (1.00 up, 2.00 down), 2.125 timeslots
        disks: 3.00 blocks, 3 reads of 65536 bytes
        ",
    );
    check(
        "rs-6-4; want b1>n20; by crr-r",
        "
        crr-r rs-6-4 stripe 17: b1 to n20
        window 0..65536 of each sub-block, 16 slices of 4096, 1 lane
        lane 0 (every slice, 3 hops)
          n1 reads b0: to n20 [n3#0 + n4#0 + 70·b0]
          n3 reads b2: to n1 [143·b2]
          n4 reads b3: to n1 [n5#0 + 104·b3]
          n5 reads b4: to n4 [5·b4]
          n20: delivers b1 = n1#0
        cost: 4.00 blocks over the network, busiest node n1 (1.00 up, 2.00 down), 2.125 timeslots
        disks: 4.00 blocks, 4 reads of 65536 bytes
        ",
    );
    check(
        "rs-8-7; want b1>n20; by crr-r",
        "
        crr-r rs-8-7 stripe 17: b1 to n20
        window 0..65536 of each sub-block, 16 slices of 4096, 1 lane
        lane 0 (every slice, 3 hops)
          n1 reads b0: to n20 [n3#0 + n4#0 + n6#0 + 187·b0]
          n3 reads b2: to n1 [245·b2]
          n4 reads b3: to n1 [n5#0 + 143·b3]
          n5 reads b4: to n4 [2·b4]
          n6 reads b5: to n1 [n7#0 + n8#0 + 3·b5]
          n7 reads b6: to n6 [6·b6]
          n8 reads b7: to n6 [6·b7]
          n20: delivers b1 = n1#0
        cost: 7.00 blocks over the network, busiest node n1 (1.00 up, 3.00 down), 3.125 timeslots
        disks: 7.00 blocks, 7 reads of 65536 bytes
        ",
    );
    check(
        "rs-6-4; want b1>n20 b2>n21; by crr-r",
        "
        crr-r rs-6-4 stripe 17: b1 to n20, b2 to n21
        window 0..65536 of each sub-block, 8 slices of 8192, 1 lane
        lane 0 (every slice, 2 hops)
          n1 reads b0: to n20 [105·n4#0 + 40·n5#0 + 36·n6#0 + 245·b0]; to n21 [245·n4#0 + 54·n5#0 + 56·n6#0 + 41·b0]
          n4 reads b3: to n1 [b3]
          n5 reads b4: to n1 [b4]
          n6 reads b5: to n1 [b5]
          n20: delivers b1 = n1#0
          n21: delivers b2 = n1#0
        cost: 5.00 blocks over the network, busiest node n1 (2.00 up, 3.00 down), 3.125 timeslots
        disks: 4.00 blocks, 4 reads of 65536 bytes
        ",
    );
    check(
        "rs-6-4; want b1>n4; by crr-r",
        "
        crr-r rs-6-4 stripe 17: b1 to n4
        window 0..65536 of each sub-block, 8 slices of 8192, 1 lane
        lane 0 (every slice, 2 hops)
          n1 reads b0: to n4 [70·b0]
          n3 reads b2: to n4 [n5#0 + 143·b2]
          n4 reads b3: delivers b1 = n1#0 + n3#0 + 104·b3
          n5 reads b4: to n3 [5·b4]
        cost: 3.00 blocks over the network, busiest node n4 (0.00 up, 2.00 down), 2.125 timeslots
        disks: 4.00 blocks, 4 reads of 65536 bytes
        ",
    );
}

#[test]
fn crr_s() {
    check(
        "rs-3-2; want b0>n20; by crr-s; slice 8192",
        "
        crr-s rs-3-2 stripe 17: b0 to n20
        window 0..65536 of each sub-block, 8 slices of 8192, 2 lanes
        lane 0 (slices 0 mod 2, 2 hops)
          n2 reads b1: to n20 [n3#0 + 245·b1]
          n3 reads b2: to n2 [2·b2]
          n20: delivers b0 = n2#0
        lane 1 (slices 1 mod 2, 3 hops)
          n2 reads b1: to n3 [245·b1]; to n20 [n3#0]
          n3 reads b2: to n2 [n2#0 + 2·b2]
          n20: delivers b0 = n2#0
        cost: 2.50 blocks over the network, busiest node n2 (1.50 up, 1.00 down), 1.750 timeslots
        disks: 2.00 blocks, 2 reads of 65536 bytes
        ",
    );
    check(
        "rs-4-3; want b0>n20; by crr-s; slice 8192",
        "
        crr-s rs-4-3 stripe 17: b0 to n20
        window 0..65536 of each sub-block, 8 slices of 8192, 4 lanes
        lane 0 (slices 0 mod 4, 2 hops)
          n2 reads b1: to n20 [n4#0 + n3#0 + 143·b1]
          n3 reads b2: to n2 [3·b2]
          n4 reads b3: to n2 [3·b3]
          n20: delivers b0 = n2#0
        lane 1 (slices 1 mod 4, 4 hops)
          n2 reads b1: to n3 [n4#0 + 143·b1]; to n20 [n3#0]
          n3 reads b2: to n2 [n2#0 + 3·b2]
          n4 reads b3: to n2 [3·b3]
          n20: delivers b0 = n2#0
        lane 2 (slices 2 mod 4, 3 hops)
          n2 reads b1: to n4 [143·b1]; to n20 [n4#0]
          n3 reads b2: to n4 [3·b2]
          n4 reads b3: to n2 [n2#0 + n3#0 + 3·b3]
          n20: delivers b0 = n2#0
        lane 3 (slices 3 mod 4, 5 hops)
          n2 reads b1: to n4 [143·b1]; to n20 [n4#0]
          n3 reads b2: to n4 [n4#0 + 3·b2]
          n4 reads b3: to n2 [n3#0]; to n3 [n2#0 + 3·b3]
          n20: delivers b0 = n2#0
        cost: 4.00 blocks over the network, busiest node n2 (1.75 up, 1.50 down), 2.250 timeslots
        disks: 3.00 blocks, 3 reads of 65536 bytes
        ",
    );
}

#[test]
fn crr_s_direct() {
    check(
        "rs-3-2; want b0>n20; by crr-s-direct",
        "
        crr-s-direct rs-3-2 stripe 17: b0 to n20
        window 0..65536 of each sub-block, 8 slices of 8192, 2 lanes
        lane 0 (slices 0 mod 2, 2 hops)
          n2 reads b1: to n20 [n3#0 + 245·b1]
          n3 reads b2: to n2 [2·b2]
          n20: delivers b0 = n2#0
        lane 1 (slices 1 mod 2, 2 hops)
          n2 reads b1: to n3 [245·b1]
          n3 reads b2: to n20 [n2#0 + 2·b2]
          n20: delivers b0 = n3#0
        cost: 2.00 blocks over the network, busiest node n2 (1.00 up, 0.50 down), 1.125 timeslots
        disks: 2.00 blocks, 2 reads of 65536 bytes
        ",
    );
    check(
        "rs-4-3; want b0>n20; by crr-s-direct; slice 8192",
        "
        crr-s-direct rs-4-3 stripe 17: b0 to n20
        window 0..65536 of each sub-block, 8 slices of 8192, 4 lanes
        lane 0 (slices 0 mod 4, 2 hops)
          n2 reads b1: to n20 [n4#0 + n3#0 + 143·b1]
          n3 reads b2: to n2 [3·b2]
          n4 reads b3: to n2 [3·b3]
          n20: delivers b0 = n2#0
        lane 1 (slices 1 mod 4, 3 hops)
          n2 reads b1: to n3 [n4#0 + 143·b1]
          n3 reads b2: to n20 [n2#0 + 3·b2]
          n4 reads b3: to n2 [3·b3]
          n20: delivers b0 = n3#0
        lane 2 (slices 2 mod 4, 2 hops)
          n2 reads b1: to n4 [143·b1]
          n3 reads b2: to n4 [3·b2]
          n4 reads b3: to n20 [n2#0 + n3#0 + 3·b3]
          n20: delivers b0 = n4#0
        lane 3 (slices 3 mod 4, 3 hops)
          n2 reads b1: to n4 [143·b1]
          n3 reads b2: to n20 [n4#0 + 3·b2]
          n4 reads b3: to n3 [n2#0 + 3·b3]
          n20: delivers b0 = n3#0
        cost: 3.00 blocks over the network, busiest node n2 (1.00 up, 0.75 down), 1.250 timeslots
        disks: 3.00 blocks, 3 reads of 65536 bytes
        ",
    );
    check(
        "rs-6-4; want b1>n4; by crr-s-direct",
        "
        crr-s-direct rs-6-4 stripe 17: b1 to n4
        window 0..65536 of each sub-block, 16 slices of 4096, 4 lanes
        lane 0 (slices 0 mod 4, 2 hops)
          n1 reads b0: to n4 [n5#0 + n3#0 + 70·b0]
          n3 reads b2: to n1 [143·b2]
          n4 reads b3: delivers b1 = n1#0 + 104·b3
          n5 reads b4: to n1 [5·b4]
        lane 1 (slices 1 mod 4, 3 hops)
          n1 reads b0: to n3 [n5#0 + 70·b0]
          n3 reads b2: to n4 [n1#0 + 143·b2]
          n4 reads b3: delivers b1 = n3#0 + 104·b3
          n5 reads b4: to n1 [5·b4]
        lane 2 (slices 2 mod 4, 2 hops)
          n1 reads b0: to n5 [70·b0]
          n3 reads b2: to n5 [143·b2]
          n4 reads b3: delivers b1 = n5#0 + 104·b3
          n5 reads b4: to n4 [n1#0 + n3#0 + 5·b4]
        lane 3 (slices 3 mod 4, 3 hops)
          n1 reads b0: to n5 [70·b0]
          n3 reads b2: to n4 [n5#0 + 143·b2]
          n4 reads b3: delivers b1 = n3#0 + 104·b3
          n5 reads b4: to n3 [n1#0 + 5·b4]
        cost: 3.00 blocks over the network, busiest node n1 (1.00 up, 0.75 down), 1.125 timeslots
        disks: 4.00 blocks, 4 reads of 65536 bytes
        ",
    );
}
