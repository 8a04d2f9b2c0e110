//! Plans as text: each is small enough to be checked by reading it.

use crate::scene::Scene;

#[track_caller]
fn check(scene: &str, expected: &str) {
    let text = Scene::new(scene).plan().to_string();
    let expected: Vec<&str> =
        expected.lines().map(|line| line.strip_prefix("        ").unwrap_or(line)).collect();
    assert_eq!(text.trim_end(), expected.join("\n").trim(), "{scene}\n{text}");
}

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
        cost: 4.00 blocks over the network, busiest node n3 (1.00 up, 1.00 down), 1.188 timeslots
        disks: 4.00 blocks, 4 reads of 65536 bytes
        ",
    );
}

#[test]
fn what_is_still_there_is_moved() {
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

/// Lanes that none of these slices travels are left out.
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

/// Hitchhiker reads half of most blocks; chains start where fewest sums are fed.
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

/// Two halves suffice to say what they know, so the first two helpers send theirs as they are; who feeds
/// only the first half stands at the end, and the other half passes it by.
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

/// A loss of one block in each of two groups is two chains, which share nothing but their ends.
#[test]
fn sums_pass_by_who_does_not_add_to_them() {
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

#[test]
fn with_the_names_of_the_nodes() {
    let scene = Scene::new("rs-3-2; want b0>n20; by rp");
    let plan = scene.plan();
    let text = plan.display_with(&scene.topology).to_string();
    assert!(text.contains("dn03 reads b2: to dn20 [dn02#0 + 2·b2]"), "{text}");
    assert!(text.contains("b0 to dn20"), "{text}");
}

#[test]
fn as_json() {
    let plan = Scene::new("rs-3-2; want b0>n20; by rp").plan();
    let json = serde_json::to_value(plan.summary()).expect("a summary");
    assert_eq!(json["scheme"], "pipelined");
    assert_eq!(json["helpers"], serde_json::json!([2, 3]));
    assert_eq!(json["outputs"][0]["requestor"], 20);
    assert_eq!(json["lanes"][0]["slices"], "every slice");
    assert_eq!(json["lanes"][0]["tasks"][1]["sends"][0]["to"], 20);
    assert_eq!(json["cost"]["network_bytes"], 131_072);
}

/// Weights are the lengths of the stretches; n5 holds nothing, and n4 is preferred to n3 in its place.
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

/// Links from the holders to n100 are thin; n50 and n1, which hold nothing, have better ones. n50 decodes, and n1 passes on what
/// it does not change.
#[test]
fn nodes_without_a_block_where_links_past_them_are_thin() {
    check(
        "rs-4-2; block 1048576; slice 65536; want b0>n100; link n2>n100=10e6 n3>n100=10e6 n4>n100=10e6; load n50=0",
        "
        packed rs-4-2 stripe 17: b0 to n100
        window 0..1048576 of each sub-block, 16 slices of 65536, 2 lanes
        lane 0 (slices 0 mod 2, 2 hops)
          n3 reads b2: to n50 [10·b2]
          n4 reads b3: to n50 [12·b3]
          n50: to n100 [n3#0 + n4#0]
          n100: delivers b0 = n50#0
        lane 1 (slices 1 mod 2, 3 hops)
          n1: to n100 [n3#0]
          n3 reads b2: to n1 [n4#0 + 10·b2]
          n4 reads b3: to n3 [12·b3]
          n100: delivers b0 = n1#0
        cost: 3.00 blocks over the network, busiest node n3 (1.00 up, 0.50 down), 1.125 timeslots
        disks: 2.00 blocks, 2 reads of 1048576 bytes
        ",
    );
}
