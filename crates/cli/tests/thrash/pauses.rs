//! Pauses and resumes repairs.

use crate::clients::{self, Fate};
use crate::rounds::Thrash;

impl Thrash {
    /// Pauses all open repairs. Ignores the error if a repair ends before it is paused.
    pub(crate) fn pause_repairs(&self) {
        for repair in self.repairs(|state| state != "paused").unwrap_or_default() {
            self.change_repair("pause", repair);
        }
    }

    /// Resumes all paused repairs. Returns whether no repair is paused now.
    pub(crate) fn resume_repairs(&self) -> bool {
        let paused = || self.repairs(|state| state == "paused");
        paused().unwrap_or_default().into_iter().for_each(|repair| self.change_repair("resume", repair));
        paused().is_some_and(|left| left.is_empty())
    }

    fn change_repair(&self, verb: &str, repair: u64) {
        let ran = clients::run(&self.cluster, verb, &[verb, &repair.to_string()], Fate::Spared);
        self.report.log(&format!("  mend {verb} {repair}: {}", ran.words()));
        if ran.hung {
            self.fail(&format!("`mend {verb}` hangs"));
        }
    }

    /// Returns the open repairs whose state satisfies `is`, or `None` if the coordinator does not answer.
    fn repairs(&self, is: impl Fn(&str) -> bool) -> Option<Vec<u64>> {
        let status = clients::run(&self.cluster, "repairs", &["status", "--output", "json"], Fate::Spared);
        let status = status.json()?;
        let repairs = status["repairs"].as_array()?.iter();
        let chosen = repairs.filter(|repair| {
            let state = repair["state"].as_str().unwrap_or_default();
            ["waiting", "running", "paused"].contains(&state) && is(state)
        });
        Some(chosen.filter_map(|repair| repair["repair"].as_u64()).collect())
    }
}
