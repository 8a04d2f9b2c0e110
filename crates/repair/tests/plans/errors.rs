//! Requests that cannot be planned, and their error messages.

use repair::{PlanError, PlanRequest, SliceSet};

use crate::planner_input::PlannerInput;

fn check(input: &str, expected: &str) {
    match PlannerInput::new(input).try_plan() {
        Ok(plan) => panic!("{input} has a plan: {plan}"),
        Err(error) => assert_eq!(error.to_string(), expected, "{input}"),
    }
}

#[test]
fn too_few_blocks() {
    check(
        "rs-6-4; want b0>n20; lost b3; dead n2; by rp",
        "stripe 17: 4 blocks are needed and only 3 are available; lost: b0 b3, unreachable: b1 on n2",
    );
    check(
        "rs-6-4; want b0>n20; lost b3; avoid n5 n6",
        "stripe 17: 4 blocks are needed and only 2 are available; lost: b0 b3, avoided: b4 on n5 b5 on n6",
    );
    check(
        "rs-6-4; want b0>n20; by migration",
        "stripe 17: b0 cannot be migrated, because no readable node holds it; lost: b0",
    );
}

#[test]
fn bad_requestors() {
    check("rs-6-4; want b0>n20; dead n20", "requestor n20 (dn20) is down");
    check("rs-6-4; want b0>n20 b0>n21", "wanted block b0 is named twice");
    check("rs-6-4; by rp", "the request names no wanted block");
    let mut input = PlannerInput::new("rs-6-4; want b0>n20");
    input.topology.remove(input.request.wanted[0].requestor);
    let error = input.try_plan().expect_err("nobody to deliver to");
    assert_eq!(error.to_string(), "requestor n20 is not a node of the cluster");
}

#[test]
fn networks_that_carry_nothing() {
    check(
        "rs-6-4; want b0>n20; rate n20=0",
        "requestor n20 (dn20) has a downlink of 0 bytes per second: nothing can be delivered there",
    );
    check(
        "rs-6-4; want b0>n20; rate n2=0 n3=0",
        "stripe 17: 4 blocks are needed and only 3 are available; lost: b0, cut off: b1 on n2 b2 on n3",
    );
    // Rack a is cut off, because the trunk out of it has rate 0. A helper whose direct link has rate 0 is
    // reached through other nodes.
    check(
        "rs-6-4; want b0>n20; rack n2=a n3=a n4=b; trunk a=0/1e6",
        "stripe 17: 4 blocks are needed and only 3 are available; lost: b0, cut off: b1 on n2 b2 on n3",
    );
    check(
        "rs-3-2; want b0>n20; link n2>n3=0 n3>n2=0; by weighted",
        "stripe 17: weighted finds no route to the requestor over links with bandwidth; lost: b0; try \
         another scheme",
    );
    let around = PlannerInput::new("rs-3-2; want b0>n20; link n2>n20=0");
    assert!(around.plan().predict(&around.topology) < std::time::Duration::MAX, "by way of n3");
}

#[test]
fn bad_windows_and_slices() {
    check("rs-6-4; want b0>n20; window 5..5", "window 5..5 is not a part of a sub-block of 65536 bytes");
    check(
        "rs-6-4; want b0>n20; window 0..65537",
        "window 0..65537 is not a part of a sub-block of 65536 bytes",
    );
    for slice in [0u32, 4032, 4100, (4 << 20) + 64] {
        check(
            &format!("rs-6-4; want b0>n20; slice {slice}"),
            &format!("slices of {slice} bytes: the size must be a multiple of 64 from 4096 to 4194304"),
        );
    }
    check("rs-6-4; want b0>n20; subs 0..2", "sub-blocks 0..2 are not among the 1 of a block");
    check(
        "rs-6-4; want b0>n20; slice 4096; resume 3,15-16",
        "slices 3,15-16 are not among the 16 of the window",
    );
    let mut input = PlannerInput::new("rs-6-4; want b0>n20; slice 4096; resume 0");
    let nothing = input.request.resume.take().map(|(geometry, _)| (geometry, SliceSet::new()));
    input.request = PlanRequest { resume: nothing, ..input.request };
    assert!(matches!(input.try_plan(), Err(PlanError::Resume { in_window: 16, .. })));
    check(
        "rs-6-4; block 18000000000000; want b0>n20; slice 4096",
        "slices of 4096 bytes cut a window of 18000000000000 bytes into more than 2^32 slices",
    );
}

#[test]
fn pacings_that_a_shape_cannot_have() {
    for by in ["cyclic", "crr-s", "crr-s-direct"] {
        let lanes = if by == "cyclic" { 3 } else { 4 };
        check(
            &format!("rs-6-4; want b0>n20; slice 4096; by {by}; pacing whole-block"),
            &format!("{by} cannot run by whole blocks: the slices of its {lanes} lanes interleave"),
        );
    }
    check(
        "rs-6-4; want b0>n20; by scatter; slice 4096; pacing whole-block",
        "scatter cannot run by whole blocks: the slices of its 4 lanes interleave",
    );
    check(
        "rs-6-4; want b0>n20; by pipe-b; pacing serial",
        "pipe-b cannot run one slice at a time: this scheme has a fixed pacing",
    );
    check(
        "rs-6-4; want b0>n20 b1>n3; by ppr; pacing whole-block",
        "ppr cannot run by whole blocks: n3 must send before it has received everything",
    );
}
