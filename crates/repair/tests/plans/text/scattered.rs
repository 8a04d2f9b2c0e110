//! Schemes in which every helper decodes a share.

use super::check;

#[test]
fn scatter() {
    check(
        "rs-4-3; want b0>n20; by scatter; slice 4096",
        "
        scatter rs-4-3 stripe 17: b0 to n20
        window 0..65536 of each sub-block, 16 slices of 4096, 3 lanes
        lane 0 (slices 0 mod 3, 2 hops)
          n2 reads b1: to n20 [n3#0 + n4#0 + 143·b1]
          n3 reads b2: to n2 [3·b2]
          n4 reads b3: to n2 [3·b3]
          n20: delivers b0 = n2#0
        lane 1 (slices 1 mod 3, 2 hops)
          n2 reads b1: to n3 [143·b1]
          n3 reads b2: to n20 [n2#0 + n4#0 + 3·b2]
          n4 reads b3: to n3 [3·b3]
          n20: delivers b0 = n3#0
        lane 2 (slices 2 mod 3, 2 hops)
          n2 reads b1: to n4 [143·b1]
          n3 reads b2: to n4 [3·b2]
          n4 reads b3: to n20 [n2#0 + n3#0 + 3·b3]
          n20: delivers b0 = n4#0
        cost: 3.00 blocks over the network, busiest node n2 (1.00 up, 0.75 down), 1.062 timeslots
        disks: 3.00 blocks, 3 reads of 65536 bytes
        ",
    );
    check(
        "rs-6-4; want b1>n20 b2>n21; by scatter; slice 16384",
        "
        scatter rs-6-4 stripe 17: b1 to n20, b2 to n21
        window 0..65536 of each sub-block, 4 slices of 16384, 4 lanes
        lane 0 (slices 0 mod 4, 2 hops)
          n1 reads b0: to n20 [105·n4#0 + 40·n5#0 + 36·n6#0 + 245·b0]; to n21 [245·n4#0 + 54·n5#0 + 56·n6#0 + 41·b0]
          n4 reads b3: to n1 [b3]
          n5 reads b4: to n1 [b4]
          n6 reads b5: to n1 [b5]
          n20: delivers b1 = n1#0
          n21: delivers b2 = n1#0
        lane 1 (slices 1 mod 4, 2 hops)
          n1 reads b0: to n4 [b0]
          n4 reads b3: to n20 [245·n1#0 + 40·n5#0 + 36·n6#0 + 105·b3]; to n21 [41·n1#0 + 54·n5#0 + 56·n6#0 + 245·b3]
          n5 reads b4: to n4 [b4]
          n6 reads b5: to n4 [b5]
          n20: delivers b1 = n4#0
          n21: delivers b2 = n4#0
        lane 2 (slices 2 mod 4, 2 hops)
          n1 reads b0: to n5 [b0]
          n4 reads b3: to n5 [b3]
          n5 reads b4: to n20 [245·n1#0 + 105·n4#0 + 36·n6#0 + 40·b4]; to n21 [41·n1#0 + 245·n4#0 + 56·n6#0 + 54·b4]
          n6 reads b5: to n5 [b5]
          n20: delivers b1 = n5#0
          n21: delivers b2 = n5#0
        lane 3 (slices 3 mod 4, 2 hops)
          n1 reads b0: to n6 [b0]
          n4 reads b3: to n6 [b3]
          n5 reads b4: to n6 [b4]
          n6 reads b5: to n20 [245·n1#0 + 105·n4#0 + 40·n5#0 + 36·b5]; to n21 [41·n1#0 + 245·n4#0 + 54·n5#0 + 56·b5]
          n20: delivers b1 = n6#0
          n21: delivers b2 = n6#0
        cost: 5.00 blocks over the network, busiest node n1 (1.25 up, 0.75 down), 1.500 timeslots
        disks: 4.00 blocks, 4 reads of 65536 bytes
        ",
    );
    check(
        "rs-6-4; want b1>n4; by scatter; slice 4096",
        "
        scatter rs-6-4 stripe 17: b1 to n4
        window 0..65536 of each sub-block, 16 slices of 4096, 3 lanes
        lane 0 (slices 0 mod 3, 2 hops)
          n1 reads b0: to n4 [n3#0 + n5#0 + 70·b0]
          n3 reads b2: to n1 [143·b2]
          n4 reads b3: delivers b1 = n1#0 + 104·b3
          n5 reads b4: to n1 [5·b4]
        lane 1 (slices 1 mod 3, 2 hops)
          n1 reads b0: to n3 [70·b0]
          n3 reads b2: to n4 [n1#0 + n5#0 + 143·b2]
          n4 reads b3: delivers b1 = n3#0 + 104·b3
          n5 reads b4: to n3 [5·b4]
        lane 2 (slices 2 mod 3, 2 hops)
          n1 reads b0: to n5 [70·b0]
          n3 reads b2: to n5 [143·b2]
          n4 reads b3: delivers b1 = n5#0 + 104·b3
          n5 reads b4: to n4 [n1#0 + n3#0 + 5·b4]
        cost: 3.00 blocks over the network, busiest node n1 (1.00 up, 0.75 down), 1.062 timeslots
        disks: 4.00 blocks, 4 reads of 65536 bytes
        ",
    );
    check(
        "clay-4-2-3; want b0>n20; by scatter; slice 4096",
        "
        scatter clay-4-2-3 stripe 17: b0 to n20
        window 0..16384 of each sub-block, 4 slices of 4096, 2 lanes
        lane 0 (slices 0 mod 2, 2 hops)
          n2 reads b1.0 b1.1: to n3 [b1.0] [b1.1]
          n3 reads b2.0 b2.1: to n20 [12·n4#0 + 10·b2.0 + 24·b2.1] [20·n4#0 + 12·n4#1 + 10·b2.1] [5·n4#0 + 142·n2#0 + 6·b2.0 + 10·b2.1] [12·n4#0 + 5·n4#1 + 142·n2#1 + 6·b2.1]
          n4 reads b3.0 b3.1: to n3 [b3.0] [b3.1]
          n20: delivers b0.0 = n3#0; delivers b0.1 = n3#1; delivers b0.2 = n3#2; delivers b0.3 = n3#3
        lane 1 (slices 1 mod 2, 2 hops)
          n2 reads b1.0 b1.1: to n4 [b1.0] [b1.1]
          n3 reads b2.0 b2.1: to n4 [b2.0] [b2.1]
          n4 reads b3.0 b3.1: to n20 [10·n3#0 + 24·n3#1 + 12·b3.0] [10·n3#1 + 20·b3.0 + 12·b3.1] [6·n3#0 + 10·n3#1 + 142·n2#0 + 5·b3.0] [6·n3#1 + 142·n2#1 + 12·b3.0 + 5·b3.1]
          n20: delivers b0.0 = n4#0; delivers b0.1 = n4#1; delivers b0.2 = n4#2; delivers b0.3 = n4#3
        cost: 2.00 blocks over the network, busiest node n20 (0.00 up, 1.00 down), 1.062 timeslots
        disks: 1.50 blocks, 3 reads of 32768 bytes
        ",
    );
}

/// The links from the holders to n100 are slow. Node n50, which holds no block, has a faster one: it forwards
/// the sum unchanged.
#[test]
fn a_node_without_a_block_where_links_past_it_are_thin() {
    check(
        "rs-4-2; block 1048576; slice 65536; want b0>n100; link n2>n100=10e6 n3>n100=10e6 n4>n100=10e6; load n50=0",
        "
        packed rs-4-2 stripe 17: b0 to n100
        window 0..1048576 of each sub-block, 16 slices of 65536, 1 lane
        lane 0 (every slice, 3 hops)
          n3 reads b2: to n4 [10·b2]
          n4 reads b3: to n50 [n3#0 + 12·b3]
          n50: to n100 [n4#0]
          n100: delivers b0 = n50#0
        cost: 3.00 blocks over the network, busiest node n4 (1.00 up, 1.00 down), 1.125 timeslots
        disks: 2.00 blocks, 2 reads of 1048576 bytes
        ",
    );
}

/// Each rack makes partial sums of both lost blocks, and sends each over the trunks to its requestor.
#[test]
fn two_lost_blocks_behind_trunks() {
    check(
        "rs-8-6; block 1048576; slice 65536; want b0>n20 b1>n21; rack n3=a n4=a n5=a n20=a n6=b n7=b n8=b n21=b; trunk a=10e6/10e6 b=10e6/10e6; by packed",
        "
        packed rs-8-6 stripe 17: b0 to n20, b1 to n21
        window 0..1048576 of each sub-block, 16 slices of 65536, 1 lane
        lane 0 (every slice, 3 hops)
          n3 reads b2: to n5 [b2]
          n4 reads b3: to n5 [b3]
          n5 reads b4: to n20 [141·n3#0 + 246·n4#0 + n6#0 + 27·b4]; to n21 [246·n3#0 + 141·n4#0 + 28·b4]
          n6 reads b5: to n5 [126·n7#0 + 108·n8#0 + 28·b5]; to n21 [108·n7#0 + 126·n8#0 + 27·b5]
          n7 reads b6: to n6 [b6]
          n8 reads b7: to n6 [b7]
          n20: delivers b0 = n5#0
          n21: delivers b1 = n5#0 + n6#0
        cost: 8.00 blocks over the network, busiest node n5 (2.00 up, 3.00 down), 3.125 timeslots
        disks: 6.00 blocks, 6 reads of 1048576 bytes
        ",
    );
}
