//! When the repair of a stripe reached its steps.

use std::collections::BTreeMap;
use std::time::Duration;

use repair::{JobId, JobPhase, StripeId};
use views::RepairStep;

use crate::Control;
use crate::jobs::owner::Owner;
use crate::repairs::Repairs;

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
    fn reach(&mut self, step: RepairStep, since: Duration) {
        let tick = &mut self.0[step as usize];
        if *tick == UNREACHED {
            *tick = (since.as_nanos() / TICK.as_nanos()).try_into().unwrap_or(UNREACHED - 1);
        }
    }

    /// Records the time of a step, and also sets earlier steps of the job that it skipped.
    fn reach_in_order(&mut self, step: RepairStep, since: Duration) {
        let earlier = RepairStep::ALL.iter().filter(|&&it| RepairStep::Started < it && it <= step);
        earlier.for_each(|&step| self.reach(step, since));
    }

    /// Forgets this step and all later ones, because another attempt begins.
    fn restart(&mut self, step: RepairStep) {
        self.0[step as usize..].fill(UNREACHED);
    }

    /// Returns the reached steps, each with its time in microseconds.
    pub(crate) fn view(&self) -> BTreeMap<RepairStep, u64> {
        let reached = RepairStep::ALL.iter().zip(self.0).filter(|&(_, tick)| tick != UNREACHED);
        reached.map(|(&step, tick)| (step, (TICK * tick).as_micros() as u64)).collect()
    }
}

impl Repairs {
    /// Records that the repair of a stripe has reached a step.
    pub(crate) fn reach(&mut self, repair: u64, stripe: &StripeId, step: RepairStep, now: Duration) {
        self.note_time(repair, stripe, now, |timeline, since| timeline.reach(step, since));
    }

    /// Records that a job of the repair of a stripe starts. The steps of an earlier job are forgotten.
    pub(crate) fn job_starts(&mut self, repair: u64, stripe: &StripeId, now: Duration) {
        self.note_time(repair, stripe, now, |timeline, since| {
            timeline.restart(RepairStep::Started);
            timeline.reach(RepairStep::Started, since);
        });
    }

    /// Records that the job of the repair of a stripe has succeeded.
    pub(crate) fn job_succeeded(&mut self, repair: u64, stripe: &StripeId, now: Duration) {
        self.note_time(repair, stripe, now, |timeline, since| {
            timeline.reach_in_order(RepairStep::Ended, since);
        });
    }

    /// Records the claim on a stripe for all repairs that wait for it.
    pub(crate) fn claim_granted(&mut self, stripe: &StripeId, now: Duration) {
        for repair in self.queue.of_stripe(stripe).collect::<Vec<_>>() {
            self.reach(repair, stripe, RepairStep::Claimed, now);
        }
    }

    fn note_time(
        &mut self,
        repair: u64,
        stripe: &StripeId,
        now: Duration,
        note: impl FnOnce(&mut Timeline, Duration),
    ) {
        let Some(repair) = self.queue.by_id.get_mut(&repair).filter(|repair| repair.is_open()) else {
            return;
        };
        let Some(began) = repair.course.began else { return };
        if let Some(item) = repair.items.get_mut(stripe) {
            note(&mut item.timeline, now.saturating_sub(began));
        }
    }
}

/// Records the progress of a job in the timeline of its stripe.
pub(crate) fn note_job_step(control: &mut Control, id: JobId) {
    let Some(running) = control.jobs.running.get(&id) else { return };
    let Owner::Repair { repair } = running.owner else { return };
    let (phase, delivers) = (running.job.phase(), running.job.delivered() > 0);
    control.repairs.note_time(repair, &running.stripe, control.base.now, |timeline, since| match phase {
        JobPhase::MovingSlices if delivers => timeline.reach(RepairStep::FirstSlice, since),
        // A plan may be replaced after slices were delivered, or even checked.
        JobPhase::MovingSlices | JobPhase::StoppingPlan | JobPhase::WaitingForNodes | JobPhase::OnHold => {
            timeline.restart(RepairStep::Delivered);
        }
        JobPhase::MakingDurable => timeline.reach_in_order(RepairStep::Delivered, since),
        JobPhase::CheckingParity => timeline.reach_in_order(RepairStep::Sealed, since),
        JobPhase::Publishing => timeline.reach_in_order(RepairStep::Checked, since),
        JobPhase::ReadingBack => timeline.reach_in_order(RepairStep::Committed, since),
        JobPhase::Finished => {} // Perhaps it failed.
    });
}

/// Records that the storage has recorded the blocks of a job, or refused them.
pub(crate) fn note_recorded(control: &mut Control, id: JobId) {
    let Some(running) = control.jobs.running.get(&id) else { return };
    if let (Owner::Repair { repair }, 0) = (&running.owner, running.recording) {
        control.repairs.reach(*repair, &running.stripe, RepairStep::Recorded, control.base.now);
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
