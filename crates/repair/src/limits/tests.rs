use proptest::prelude::*;

use super::*;

/// Runs jobs that always have something to send, in turn; returns the bytes that each moved before `until`.
fn play(
    limits: &mut Limits,
    jobs: &[(JobId, Class)],
    slice: usize,
    from: Duration,
    until: Duration,
) -> Vec<u64> {
    let mut moved = vec![0; jobs.len()];
    let mut ready = vec![from; jobs.len()];
    loop {
        let (at, &now) = ready.iter().enumerate().min_by_key(|&(_, at)| at).expect("there are jobs");
        if now >= until {
            return moved;
        }
        let (job, class) = jobs[at];
        match limits.grant(Meter::Up, class, Some(job), now) {
            Grant::Unlimited => unreachable!("there is a cap"),
            Grant::Wait(wait) => {
                ready[at] = now + wait.clamp(Duration::from_micros(1), Duration::from_millis(50))
            }
            Grant::Bytes(bytes) => {
                let bytes = bytes.min(slice);
                limits.spend(Meter::Up, class, Some(job), bytes, now);
                moved[at] += bytes as u64;
                ready[at] = now + Duration::from_micros(100);
            }
        }
    }
}

fn within(found: u64, expected: f64) -> bool {
    (found as f64 - expected).abs() <= expected * 0.05
}

#[test]
fn caps_excuse_an_hour_and_the_time_to_read_at_the_slowest_cap() {
    assert_eq!(longest_caps(0), Duration::from_secs(3600));
    assert_eq!(longest_caps(180_000_000), Duration::from_secs(2 * 3600));
}

const SECONDS: Duration = Duration::from_secs(4);

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn all_jobs_together_keep_a_cap_even_after_a_change(
        rate in 500_000u64..500_000_000,
        second in 500_000u64..500_000_000,
        jobs in 1usize..6,
        slice in 1_000usize..300_000,
    ) {
        // A job moves at most one slice every 100 µs. The cap must be the tighter limit.
        prop_assume!(slice as u64 * jobs as u64 * 9_000 > rate.max(second));
        let jobs: Vec<_> = (0..jobs as u64).map(|job| (JobId(job), Class::Repair)).collect();
        let mut limits = Limits::new(Caps { up: Some(rate), ..Caps::default() }, Duration::ZERO);
        let first: u64 = play(&mut limits, &jobs, slice, Duration::ZERO, SECONDS).iter().sum();
        prop_assert!(within(first, rate as f64 * SECONDS.as_secs_f64()), "{first} at {rate}");
        limits.set(Caps { up: Some(second), ..Caps::default() }, SECONDS);
        let then: u64 = play(&mut limits, &jobs, slice, SECONDS, SECONDS * 2).iter().sum();
        prop_assert!(within(then, second as f64 * SECONDS.as_secs_f64()), "{then} at {second}");
    }

    #[test]
    fn reads_go_before_puts_and_puts_before_repairs(rate in 500_000u64..100_000_000) {
        let mut limits = Limits::new(Caps { up: Some(rate), ..Caps::default() }, Duration::ZERO);
        let orders = [(Class::Read, Class::Put), (Class::Put, Class::Repair), (Class::Read, Class::Repair)];
        for ((before, after), start) in orders.into_iter().zip([Duration::ZERO, SECONDS * 2, SECONDS * 4]) {
            let jobs = [(JobId(1), after), (JobId(2), before)];
            let moved = play(&mut limits, &jobs, 100_000, start, start + SECONDS);
            prop_assert!(moved[0] * 20 <= moved[1], "{after:?} moved {} and {before:?} {}", moved[0], moved[1]);
            prop_assert!(within(moved[0] + moved[1], rate as f64 * SECONDS.as_secs_f64()));
            // Without competitors, the lowest class gets the whole rate.
            let alone = play(&mut limits, &jobs[..1], 100_000, start + SECONDS, start + SECONDS * 2);
            prop_assert!(within(alone[0], rate as f64 * SECONDS.as_secs_f64()));
        }
    }

    #[test]
    fn each_repair_has_a_cap_of_its_own_and_reads_have_none(rate in 500_000u64..100_000_000, repairs in 1u64..5) {
        let mut limits = Limits::new(Caps { repair: Some(rate), ..Caps::default() }, Duration::ZERO);
        let jobs: Vec<_> = (0..repairs).map(|job| (JobId(job), Class::Repair)).collect();
        for moved in play(&mut limits, &jobs, 100_000, Duration::ZERO, SECONDS) {
            prop_assert!(within(moved, rate as f64 * SECONDS.as_secs_f64()), "{moved} at {rate}");
        }
        for class in [Class::Read, Class::Put] {
            prop_assert_eq!(limits.grant(Meter::Up, class, Some(JobId(0)), SECONDS), Grant::Unlimited);
        }
        jobs.iter().for_each(|&(job, _)| limits.forget(job));
        prop_assert!(limits.repairs.is_empty());
    }
}

#[test]
fn the_lower_of_two_caps_counts() {
    let own = Caps { up: Some(5), disk: Some(7), ..Caps::default() };
    let told = Caps { up: Some(9), down: Some(3), ..Caps::default() };
    assert_eq!(own.and(&told), Caps { up: Some(5), disk: Some(7), down: Some(3), ..Caps::default() });
}

#[test]
fn a_cap_on_repairs_holds_for_all_of_them_and_not_for_reads() {
    let rate = 8_000_000;
    let caps = Caps { repairs_up: Some(rate), ..Caps::default() };
    let mut limits = Limits::new(caps, Duration::ZERO);
    let jobs = [1, 2, 3].map(|job| (JobId(job), Class::Repair));
    let moved: u64 = play(&mut limits, &jobs, 64 << 10, Duration::ZERO, SECONDS).iter().sum();
    assert!(within(moved, rate as f64 * SECONDS.as_secs_f64()), "{moved}");
    assert_eq!(limits.grant(Meter::Up, Class::Read, Some(JobId(4)), SECONDS), Grant::Unlimited);
    for meter in [Meter::Disk, Meter::Down] {
        assert_eq!(limits.grant(meter, Class::Repair, Some(JobId(1)), SECONDS), Grant::Unlimited);
    }
}

#[test]
fn the_unused_share_of_the_repair_cap_is_measured() {
    let (rate, second) = (1_000_000, Duration::from_secs(1));
    let caps = |rate| Caps { repairs_up: Some(rate), ..Caps::default() };
    let mut limits = Limits::new(caps(rate), Duration::ZERO);
    assert_eq!(limits.unused(Meter::Up, Duration::ZERO), None, "nothing could have moved");
    assert_eq!(limits.unused(Meter::Down, second), None, "that is not capped");
    assert_eq!(limits.unused(Meter::Up, second), Some(1.0));
    let jobs = [(JobId(1), Class::Repair)];
    play(&mut limits, &jobs, 10_000, second, second * 2);
    let unused = limits.unused(Meter::Up, second * 2).unwrap();
    assert!(unused < 0.01, "{unused}");
    limits.spend(Meter::Up, Class::Repair, Some(JobId(1)), 250_000, second * 2);
    let unused = limits.unused(Meter::Up, second * 3).unwrap();
    assert!((0.6..0.75).contains(&unused), "{unused}");
    // Measurements at the old rate do not apply to the new one.
    limits.set(caps(rate * 2), second * 4);
    assert_eq!(limits.unused(Meter::Up, second * 4), None);
}
