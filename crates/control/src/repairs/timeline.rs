//! When the repair of a stripe reached its steps.

use std::collections::BTreeMap;
use std::time::Duration;

use views::RepairStep;

/// The unit of stored times. Together with `u32` it covers five days, and a repair of a million stripes needs
/// 40 MB for its timelines.
const TICK: Duration = Duration::from_micros(100);
/// The value of a step that was not reached.
const UNREACHED: u32 = u32::MAX;

/// For each step, the time since the repair's stripes were queued.
#[derive(Clone, Debug)]
pub(crate) struct Timeline([u32; RepairStep::ALL.len()]);

impl Default for Timeline {
    fn default() -> Self {
        Self([UNREACHED; RepairStep::ALL.len()])
    }
}

impl Timeline {
    /// Records the time of a step, unless the step was reached before.
    pub(crate) fn reach(&mut self, step: RepairStep, since: Duration) {
        let tick = &mut self.0[step as usize];
        if *tick == UNREACHED {
            *tick = (since.as_nanos() / TICK.as_nanos()).try_into().unwrap_or(UNREACHED - 1);
        }
    }

    /// Records the time of a step, and also sets earlier steps of the job that it skipped.
    pub(crate) fn reach_in_order(&mut self, step: RepairStep, since: Duration) {
        let earlier = RepairStep::ALL.iter().filter(|&&it| RepairStep::Started < it && it <= step);
        earlier.for_each(|&step| self.reach(step, since));
    }

    /// Forgets this step and all later ones, because another attempt begins.
    pub(crate) fn restart(&mut self, step: RepairStep) {
        self.0[step as usize..].fill(UNREACHED);
    }

    /// Returns the reached steps, each with its time in microseconds.
    pub(crate) fn view(&self) -> BTreeMap<RepairStep, u64> {
        let reached = RepairStep::ALL.iter().zip(self.0).filter(|&(_, tick)| tick != UNREACHED);
        reached.map(|(&step, tick)| (step, (TICK * tick).as_micros() as u64)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeline_keeps_the_first_time_of_each_step_of_the_last_attempt() {
        let ms = Duration::from_millis;
        let mut timeline = Timeline::default();
        timeline.reach(RepairStep::Planned, ms(1));
        timeline.reach(RepairStep::Planned, ms(2));
        timeline.reach(RepairStep::Started, ms(3));
        timeline.reach_in_order(RepairStep::Sealed, ms(7));
        let seen = |timeline: &Timeline| timeline.view().into_iter().collect::<Vec<_>>();
        use RepairStep::*;
        let all = [(Planned, 1000), (Started, 3000), (FirstSlice, 7000), (Delivered, 7000), (Sealed, 7000)];
        assert_eq!(seen(&timeline), all);
        timeline.restart(Started);
        assert_eq!(seen(&timeline), all[..1]);
        timeline.reach(Started, Duration::MAX);
        assert!(timeline.view()[&Started] > 400_000_000_000, "{timeline:?}");
    }
}
