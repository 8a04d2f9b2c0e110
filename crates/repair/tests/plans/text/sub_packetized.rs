//! Codes whose repairs read parts of blocks.

use super::check;

/// Hitchhiker reads half of most blocks. A chain for several sums starts with the helpers that read the
/// fewest sub-blocks for each sum that they feed.
#[test]
fn sub_packetized_codes() {
    check(
        "hitchhiker-xor-7-4; want b0>n20; by rp",
        "
        pipelined hitchhiker-xor-7-4 stripe 17: b0 to n20
        window 0..32768 of each sub-block, 8 slices of 4096, 1 lane
        lane 0 (every slice, 4 hops)
          n2 reads b1.0 b1.1: to n6 [n5#0 + b1.0 + 146·b1.1]; to n20 [n5#1 + 166·b1.1]
          n3 reads b2.1: to n5 [b2.1]
          n4 reads b3.1: to n5 [b3.1]
          n5 reads b4.1: to n2 [64·n4#0 + 139·n3#0 + 166·b4.1] [210·n4#0 + 245·n3#0 + 4·b4.1]
          n6 reads b5.1: to n20 [n2#0 + b5.1]
          n20: delivers b0.0 = n6#0; delivers b0.1 = n2#0
        cost: 3.50 blocks over the network, busiest node n2 (1.00 up, 1.00 down), 1.188 timeslots
        disks: 3.00 blocks, 5 reads of 39321 bytes
        ",
    );
    check(
        "hitchhiker-xor-7-4; want b0>n20; by rp; subs 0..1",
        "
        pipelined hitchhiker-xor-7-4 stripe 17: sub-block 0 of b0 to n20
        window 0..32768 of each sub-block, 8 slices of 4096, 1 lane
        lane 0 (every slice, 5 hops)
          n2 reads b1.0 b1.1: to n3 [b1.0 + 146·b1.1]
          n3 reads b2.1: to n4 [n2#0 + 139·b2.1]
          n4 reads b3.1: to n5 [n3#0 + 64·b3.1]
          n5 reads b4.1: to n6 [n4#0 + 166·b4.1]
          n6 reads b5.1: to n20 [n5#0 + b5.1]
          n20: delivers b0.0 = n6#0
        cost: 2.50 blocks over the network, busiest node n3 (0.50 up, 0.50 down), 0.750 timeslots
        disks: 3.00 blocks, 5 reads of 39321 bytes
        ",
    );
    check(
        "hitchhiker-xor-7-4; want b0>n20; by srr",
        "
        conventional hitchhiker-xor-7-4 stripe 17: b0 to n20
        window 0..32768 of each sub-block, 4 slices of 8192, 1 lane
        lane 0 (every slice, 1 hop)
          n2 reads b1.0 b1.1: to n20 [b1.0] [b1.1]
          n3 reads b2.1: to n20 [b2.1]
          n4 reads b3.1: to n20 [b3.1]
          n5 reads b4.1: to n20 [b4.1]
          n6 reads b5.1: to n20 [b5.1]
          n20: delivers b0.0 = n2#0 + 146·n2#1 + 139·n3#0 + 64·n4#0 + 166·n5#0 + n6#0; delivers b0.1 = 166·n2#1 + 245·n3#0 + 210·n4#0 + 4·n5#0
        cost: 3.00 blocks over the network, busiest node n20 (0.00 up, 3.00 down), 3.000 timeslots
        disks: 3.00 blocks, 5 reads of 39321 bytes
        ",
    );
    check(
        "lrc-4-2-2; want b0>n20; by ppr",
        "
        ppr lrc-4-2-2 stripe 17: b0 to n20
        window 0..65536 of each sub-block, 8 slices of 8192, 1 lane
        lane 0 (every slice, 2 hops)
          n2 reads b1: to n5 [b1]
          n5 reads b4: to n20 [n2#0 + b4]
          n20: delivers b0 = n5#0
        cost: 2.00 blocks over the network, busiest node n5 (1.00 up, 1.00 down), 1.125 timeslots
        disks: 2.00 blocks, 2 reads of 65536 bytes
        ",
    );
}

/// Both sums need a half block from each of the first two helpers, n4 and n5. These send it raw, in one
/// stream each instead of two sums. The last helper, n12, feeds only the first sum, so the second sum
/// bypasses it.
#[test]
fn a_chain_over_hitchhiker_starts_raw() {
    check(
        "hitchhiker-xorplus-14-10; want b0>n20; by rp",
        "
        pipelined hitchhiker-xorplus-14-10 stripe 17: b0 to n20
        window 0..32768 of each sub-block, 8 slices of 4096, 1 lane
        lane 0 (every slice, 10 hops)
          n2 reads b1.0 b1.1: to n3 [n11#0 + b1.0 + 146·b1.1] [n11#1 + 147·b1.1]
          n3 reads b2.0 b2.1: to n12 [n2#0 + b2.0 + 139·b2.1]; to n20 [n2#1 + 138·b2.1]
          n4 reads b3.1: to n6 [b3.1]
          n5 reads b4.1: to n6 [b4.1]
          n6 reads b5.1: to n7 [92·n5#0 + 72·n4#0 + 160·b5.1] [93·n5#0 + 73·n4#0 + 161·b5.1]
          n7 reads b6.1: to n8 [n6#0 + 102·b6.1] [n6#1 + 103·b6.1]
          n8 reads b7.1: to n9 [n7#0 + 59·b7.1] [n7#1 + 58·b7.1]
          n9 reads b8.1: to n10 [n8#0 + 98·b8.1] [n8#1 + 99·b8.1]
          n10 reads b9.1: to n11 [n9#0 + 179·b9.1] [n9#1 + 178·b9.1]
          n11 reads b10.1: to n2 [n10#0 + b10.1] [n10#1 + b10.1]
          n12 reads b11.1: to n20 [n3#0 + b11.1]
          n20: delivers b0.0 = n12#0; delivers b0.1 = n3#0
        cost: 9.50 blocks over the network, busiest node n2 (1.00 up, 1.00 down), 1.562 timeslots
        disks: 6.50 blocks, 11 reads of 38725 bytes
        ",
    );
}

#[test]
fn chains_and_trees_over_clay() {
    check(
        "clay-4-2-3; want b0>n20; by rp",
        "
        pipelined clay-4-2-3 stripe 17: b0 to n20
        window 0..16384 of each sub-block, 4 slices of 4096, 1 lane
        lane 0 (every slice, 2 hops)
          n2 reads b1.0 b1.1: to n20 [12·n4#0 + 10·n3#0 + 24·n3#1] [20·n4#0 + 12·n4#1 + 10·n3#1] [5·n4#0 + 6·n3#0 + 10·n3#1 + 142·b1.0] [12·n4#0 + 5·n4#1 + 6·n3#1 + 142·b1.1]
          n3 reads b2.0 b2.1: to n2 [b2.0] [b2.1]
          n4 reads b3.0 b3.1: to n2 [b3.0] [b3.1]
          n20: delivers b0.0 = n2#0; delivers b0.1 = n2#1; delivers b0.2 = n2#2; delivers b0.3 = n2#3
        cost: 2.00 blocks over the network, busiest node n2 (1.00 up, 1.00 down), 1.062 timeslots
        disks: 1.50 blocks, 3 reads of 32768 bytes
        ",
    );
    check(
        "clay-4-2-3; want b0>n20; by ppr",
        "
        ppr clay-4-2-3 stripe 17: b0 to n20
        window 0..16384 of each sub-block, 4 slices of 4096, 1 lane
        lane 0 (every slice, 1 hop)
          n2 reads b1.0 b1.1: to n20 [b1.0] [b1.1]
          n3 reads b2.0 b2.1: to n20 [b2.0] [b2.1]
          n4 reads b3.0 b3.1: to n20 [b3.0] [b3.1]
          n20: delivers b0.0 = 12·n4#0 + 10·n3#0 + 24·n3#1; delivers b0.1 = 20·n4#0 + 12·n4#1 + 10·n3#1; delivers b0.2 = 5·n4#0 + 142·n2#0 + 6·n3#0 + 10·n3#1; delivers b0.3 = 12·n4#0 + 5·n4#1 + 142·n2#1 + 6·n3#1
        cost: 1.50 blocks over the network, busiest node n20 (0.00 up, 1.50 down), 1.500 timeslots
        disks: 1.50 blocks, 3 reads of 32768 bytes
        ",
    );
    check(
        "clay-6-4-5; want b0>n20; by rp; subs 0..2",
        "
        pipelined clay-6-4-5 stripe 17: sub-blocks 0,1 of b0 to n20
        window 0..8192 of each sub-block, 2 slices of 4096, 1 lane
        lane 0 (every slice, 4 hops)
          n3 reads b2.0 b2.1 b2.2 b2.3: to n4 [208·b2.0 + 214·b2.2] [208·b2.1 + 214·b2.3]
          n4 reads b3.0 b3.1: to n5 [n3#0 + 107·b3.0] [n3#1 + 107·b3.1]
          n5 reads b4.0 b4.1: to n6 [n4#0 + 68·b4.0 + 160·b4.1] [n4#1 + 68·b4.1]
          n6 reads b5.0 b5.1: to n20 [n5#0 + 80·b5.0] [n5#1 + 136·b5.0 + 80·b5.1]
          n20: delivers b0.0 = n6#0; delivers b0.1 = n6#1
        cost: 1.00 blocks over the network, busiest node n4 (0.25 up, 0.25 down), 0.438 timeslots
        disks: 1.25 blocks, 4 reads of 20480 bytes
        ",
    );
}
