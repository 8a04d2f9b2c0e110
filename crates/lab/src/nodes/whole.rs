//! Recovers and drains a whole node in each way.

use std::time::Instant;

use client::{RepairView, Timeline};
use recovery::HelperPolicy;

use super::cluster::LOST;
use super::measure::{Measuring, bound_s, view_of};
use super::report::{Part, WholeRow, WholeRun, helpers};
use crate::error::LabError;
use crate::meter::{Meter, Metered};
use crate::run::undisturbed;
use crate::scenario::RETRIES;

/// The numbers of empty helpers to which the recovered blocks are written; each number is measured.
const REQUESTORS: [usize; 5] = [1, 2, 4, 8, 16];

/// A way to recover or drain the lost node.
pub(super) struct Way {
    what: String,
    /// The arguments of `mend`.
    verb: Vec<String>,
    /// Whether the node is killed before.
    is_recovery: bool,
    is_default: bool,
}

impl Way {
    pub(super) fn recovery(what: &str, words: &[&str]) -> Self {
        Self::new(what, &["node", "recover", LOST], words, true)
    }

    fn drain(what: &str, words: &[&str]) -> Self {
        Self::new(what, &["node", "drain", LOST], words, false)
    }

    fn new(what: &str, verb: &[&str], words: &[&str], is_recovery: bool) -> Self {
        let verb = verb.iter().chain(words).map(|&word| word.to_owned()).collect();
        Self { what: what.to_owned(), verb, is_recovery, is_default: false }
    }

    /// Marks the way that Mend chooses unless it is told otherwise.
    pub(super) fn by_default(self) -> Self {
        Self { is_default: true, ..self }
    }
}

impl Measuring<'_> {
    pub(super) fn sixteen_lost(&mut self) -> Result<Part, LabError> {
        self.interleaved(&[
            Way::recovery("even", &["--policy", "even"]).by_default(),
            Way::recovery("free-budget", &["--policy", "free-budget"]),
            Way::recovery(
                "chains of the lowest indices",
                &["--policy", "lowest-index", "--scheme", "pipelined"],
            ),
            Way::recovery("conventional", &["--policy", "lowest-index", "--scheme", "conventional"]),
        ])
    }

    pub(super) fn policies(&mut self) -> Result<Part, LabError> {
        let mut ways: Vec<Way> = HelperPolicy::ALL.into_iter().map(by_policy).collect();
        let conventional = ["--policy", "lowest-index", "--scheme", "conventional"];
        ways.push(Way::recovery("lowest-index, conventional", &conventional));
        self.interleaved(&ways)
    }

    pub(super) fn requestors(&mut self) -> Result<Part, LabError> {
        let spares = self.lab.spares();
        let ways: Vec<Way> = REQUESTORS.iter().flat_map(|&count| onto(&spares[..count])).collect();
        self.interleaved(&ways)
    }

    pub(super) fn drains(&mut self) -> Result<Part, LabError> {
        self.interleaved(&[
            Way::drain("both ways", &[]).by_default(),
            Way::drain("copies only", &["--migrate-only"]),
            Way::drain("rebuilds only", &["--rebuild-only"]),
        ])
    }

    /// Measures each way in turn. Only the default ways are repeated.
    pub(super) fn interleaved(&mut self, ways: &[Way]) -> Result<Part, LabError> {
        let mut rows: Vec<_> = ways.iter().map(|way| WholeRow::new(&way.what, way.is_default)).collect();
        for repetition in 0..self.args.repetitions {
            let due = |way: &Way| repetition == 0 || way.is_default;
            for (way, row) in ways.iter().zip(&mut rows).filter(|(way, _)| due(way)) {
                row.runs.push(undisturbed(RETRIES, |run: &WholeRun| &run.metered, || self.whole(way))?);
            }
        }
        Ok(Part { whole: rows, ..Part::default() })
    }

    /// Recovers or drains the node of a fresh cluster. Checks afterwards that every block of the node is
    /// unchanged on another helper.
    fn whole(&mut self, way: &Way) -> Result<WholeRun, LabError> {
        self.lab.fresh()?;
        if way.is_recovery {
            self.lab.lose(LOST)?;
        }
        let verb: Vec<&str> = way.verb.iter().map(String::as_str).collect();
        let meter = Meter::start(&self.lab.network)?;
        let begun = Instant::now();
        let view = self.lab.mend(&verb)?;
        let (took, metered) = (begun.elapsed(), meter.stop()?);
        self.lab.compare(&way.what)?;
        let run = self.run_of(&view_of(view)?, took.as_secs_f64(), metered)?;
        self.tell(&way.what, &run);
        Ok(run)
    }

    fn run_of(&self, view: &RepairView, took_s: f64, metered: Metered) -> Result<WholeRun, LabError> {
        let progress = view.progress.as_ref();
        Ok(WholeRun {
            blocks: self.lab.lost_blocks()?.len(),
            took_s,
            bound_s: bound_s(view),
            limit: progress.and_then(|progress| progress.limited_by.clone()).unwrap_or_default(),
            busiest_s: self.busiest_s(&metered),
            replanned: view.items.iter().flat_map(|item| item.replanned.clone()).collect(),
            timeline: Timeline::of(std::slice::from_ref(view)).table(),
            metered,
        })
    }

    fn tell(&mut self, what: &str, run: &WholeRun) {
        let WholeRun { blocks, took_s, busiest_s, metered, .. } = run;
        let disturbed = if metered.disturbed { ", disturbed" } else { "" };
        (self.say)(&format!(
            "{what}: {blocks} blocks in {took_s:.2} s, {:.3} of the bound, the busiest link {busiest_s:.2} s{disturbed}",
            run.of_bound()
        ));
        run.replanned.iter().for_each(|why| (self.say)(&format!("  replanned: {why}")));
    }

    /// Finds the direction of a helper's link that carried the most bytes. Returns the time in seconds that
    /// these bytes take at the link's rate.
    fn busiest_s(&self, metered: &Metered) -> f64 {
        let most = helpers(metered).map(|link| link.sent_bytes.max(link.received_bytes)).max();
        let rate = self.args.rate.bandwidth().map_or(f64::INFINITY, |rate| rate.bits_per_second() as f64);
        most.unwrap_or(0) as f64 * 8.0 / rate
    }
}

fn by_policy(policy: HelperPolicy) -> Way {
    let name = policy.to_string();
    let way = Way::recovery(&name, &["--policy", &name]);
    if policy == HelperPolicy::default() { way.by_default() } else { way }
}

/// Returns the ways to recover the blocks onto these helpers.
fn onto(requestors: &[String]) -> [Way; 3] {
    let (count, named) = (requestors.len(), requestors.join(","));
    let way = |what: &str, words: &[&str]| {
        let words: Vec<&str> = words.iter().copied().chain(["--requestors", &named]).collect();
        let noun = if count == 1 { "requestor" } else { "requestors" };
        Way::recovery(&format!("{what}, {count} {noun}"), &words)
    };
    [
        way("even", &["--policy", "even"]).by_default(),
        way("chains, LRU", &["--policy", "least-recently-used", "--scheme", "pipelined"]),
        way("conventional", &["--policy", "lowest-index", "--scheme", "conventional"]),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::SPARED;
    use super::*;

    #[test]
    fn the_default_way_is_measured_with_every_number_of_requestors() {
        let spares: Vec<String> = (17..=32).map(|number| format!("h{number}")).collect();
        let [even, _, conventional] = onto(&spares[..1]);
        assert!(even.is_default && even.is_recovery && !conventional.is_default);
        assert_eq!(even.what, "even, 1 requestor");
        let verb = ["node", "recover", LOST, "--policy", "even", "--requestors", "h17"];
        assert_eq!(even.verb, verb);
        let [even, ..] = onto(&spares[..4]);
        assert_eq!((&even.what[..], &even.verb[6][..]), ("even, 4 requestors", "h17,h18,h19,h20"));
        assert_eq!(REQUESTORS.map(|count| count <= SPARED.spare.into()), [true; 5]);
    }

    #[test]
    fn one_policy_is_the_default() {
        let ways: Vec<Way> = HelperPolicy::ALL.into_iter().map(by_policy).collect();
        let defaults: Vec<&str> = ways.iter().filter(|way| way.is_default).map(|way| &way.what[..]).collect();
        assert_eq!(defaults, ["even"]);
    }
}
