//! Small blocks and wide codes, for which filling the pipeline takes noticeable time.

use repair::{Scheme, explain};

use crate::planner_input::PlannerInput;

/// Returns the scheme that `auto` chooses for one lost block over links of 1 Gb/s, and its predicted time
/// divided by that of a direct send.
fn picked(code: &str, n: u32, block_bytes: u64) -> (Scheme, f64) {
    let mut input = PlannerInput::new(&format!("{code}; block {block_bytes}; want b0>n{}", n + 1));
    input.request.policy.scheme = Scheme::Auto;
    let explained = explain(&input.stripe, &input.request, &input.topology).expect("a plan");
    let direct = block_bytes as f64 / 125e6;
    let ratio = explained.forecast.time.as_secs_f64() / direct;
    println!("{code}, {} KiB: {} {ratio:.3}", block_bytes >> 10, explained.plan.scheme());
    (explained.plan.scheme(), ratio)
}

#[test]
fn small_blocks_take_little_more_than_a_direct_send() {
    let cases = [
        ("rs-14-10", 14, 64 << 20, 1.02),
        ("rs-14-10", 14, 8 << 20, 1.03),
        ("rs-14-10", 14, 1 << 20, 1.25),
        ("rs-104-100", 104, 64 << 20, 1.1),
        ("rs-255-223", 255, 64 << 20, 1.1),
    ];
    let found = cases.map(|(code, n, bytes, most)| (code, bytes, most, picked(code, n, bytes)));
    for (code, bytes, most, (scheme, ratio)) in found {
        assert!(ratio <= most, "{code}, {bytes} bytes by {scheme}: {ratio:.3}, more than {most}");
    }
}

/// Planning must not take longer than moving the bytes. Packing routes by a linear programme would.
#[test]
fn a_single_slice_is_planned_without_schemes_of_several_lanes() {
    let compared = |block_bytes: u64| {
        let input = PlannerInput::new(&format!("rs-14-10; block {block_bytes}; want b0>n15"));
        let explained = explain(&input.stripe, &input.request, &input.topology).expect("a plan");
        explained.weighed.into_iter().map(|(scheme, _)| scheme).collect::<Vec<_>>()
    };
    let single = [Scheme::Conventional, Scheme::Pipelined, Scheme::Ppr, Scheme::CrrR];
    assert_eq!(compared(4 << 10), single);
    assert!(compared(8 << 10).contains(&Scheme::Packed));
}

/// The schemes that are left out would not be faster.
#[test]
fn a_single_slice_takes_the_fastest_scheme() {
    for (code, n) in [("rs-4-2", 4), ("rs-9-6", 9), ("rs-14-10", 14)] {
        let mut input = PlannerInput::new(&format!("{code}; block 4096; want b0>n{}", n + 1));
        let auto = input.plan().predict(&input.topology);
        for scheme in Scheme::ALL.into_iter().filter(|scheme| *scheme != Scheme::Migration) {
            input.request.policy.scheme = scheme;
            let time = input.plan().predict(&input.topology);
            assert!(
                auto.as_secs_f64() <= 1.02 * time.as_secs_f64(),
                "{code}: {scheme} takes {time:?}, not {auto:?}"
            );
        }
    }
}
