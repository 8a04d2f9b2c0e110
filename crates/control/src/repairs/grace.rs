//! Grace periods of stripes: how long a repair waits for lost blocks that may return. The period is shorter
//! for stripes with less redundancy left.

use std::time::Duration;

/// Grace periods are not shortened below this time, in which a machine can restart. If the configured period
/// is even shorter, it applies to all stripes.
const LEAST: Duration = Duration::from_secs(60);

/// Returns the grace period of a stripe that can lose `left` more blocks now and could lose `full` blocks if
/// it were whole. `grace` is the period for a stripe that has lost one block.
pub(crate) fn shortened(grace: Duration, left: u32, full: u32) -> Duration {
    let steps = full.saturating_sub(1);
    if left > 0 && left >= steps {
        return grace;
    }
    let part = grace.checked_div(steps).unwrap_or_default().saturating_mul(left);
    part.max(LEAST).min(grace)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_further_loss_shortens_the_period_down_to_a_minute() {
        let of = |left, full| shortened(Duration::from_secs(600), left, full).as_secs();
        assert_eq!([3, 2, 1, 0].map(|left| of(left, 4)), [600, 400, 200, 60]);
        assert_eq!([of(1, 2), of(0, 2)], [600, 60]);
        assert_eq!(of(0, 1), 60, "the only block that could be lost");
        let short = shortened(Duration::from_secs(5), 0, 4);
        assert_eq!(short.as_secs(), 5, "never longer than the setting");
    }
}
