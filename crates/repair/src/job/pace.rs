//! Measures how fast a plan runs, and decides when to examine a plan that became slow.
//!
//! Requestors report how many slices they have. If the rate drops far below its earlier level, the job asks
//! all nodes several times what they wait for and how far they have sent. The answers locate the bottleneck
//! ([`bottleneck`](super::bottleneck)).
//!
//! This module only measures: [`straggling`](super::straggling) decides what to do about a finding.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use super::Report;
use super::bottleneck::Answers;
use crate::NodeId;

/// The minimum interval over which a rate is measured; requestors report every 200 ms.
const WINDOW: Duration = Duration::from_millis(350);
/// The time after the first report in which no rate is measured.
const BURST: Duration = Duration::from_millis(200);
/// If no report arrives for this long, the rate is computed as if a report without new slices had arrived.
const SILENCE: Duration = Duration::from_millis(500);
/// A plan is examined if its rate falls below this share of its best rate.
const SLOW: f64 = 0.5;
/// A plan that was never faster is examined if its rate stays below this share of the predicted rate.
const BELOW_FIGURES: f64 = 0.6;
/// The number of rounds of questions in an examination, at intervals of `ASK_EVERY`.
const ASKS: u32 = 6;
const ASK_EVERY: Duration = Duration::from_millis(40);
/// The wait for answers after the last round of questions.
const ANSWERS: Duration = Duration::from_millis(60);
/// The pause after an examination without result; it doubles each time.
const PAUSE: Duration = Duration::from_millis(200);
const MAX_DOUBLINGS: u32 = 8;

/// Measures the rate of a running plan.
#[derive(Debug)]
pub(super) struct Pace {
    /// Slices that each requestor will receive.
    per_requestor: u32,
    requestors: u32,
    predicted: Predicted,
    /// The number of jobs that share the plan's busiest node.
    crowd: u32,
    /// The highest rate of the job's earlier plans, in slices per second.
    before: f64,
    best: f64,
    /// Samples: a time, and the total number of slices at the requestors by then.
    marks: VecDeque<(Duration, u32)>,
    /// The time of the first report that a slice was delivered.
    began: Option<Duration>,
    inquiry: Option<Inquiry>,
    answers: Answers,
    /// The number of rounds of questions so far.
    asks: u32,
    in_vain: u32,
    not_before: Duration,
}

/// The prediction for a plan.
#[derive(Clone, Copy, Debug)]
pub(super) struct Predicted {
    /// Slices per second at each requestor.
    pub rate: f64,
    /// Whether the prediction uses measured link rates rather than assumed ones.
    pub rests_on_figures: bool,
}

/// An examination in progress.
#[derive(Debug)]
struct Inquiry {
    asked: u32,
    asked_at: Duration,
}

/// The next step of the examination.
#[derive(Debug, PartialEq)]
pub(super) enum Step {
    /// Do nothing for now.
    Wait,
    /// Ask all nodes what they wait for.
    Ask,
    /// The plan is slow, and this is the cause.
    Found(Finding),
}

/// The bottleneck of a slow plan, and the resulting rates.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Finding {
    /// The links that are the bottleneck, from sender to receiver.
    pub edges: BTreeSet<(NodeId, NodeId)>,
    /// The node that is the bottleneck, if no link is.
    pub nodes: BTreeSet<NodeId>,
    /// The current rate, in slices per second.
    pub rate: f64,
    /// The best rate so far, in slices per second; never below the current rate.
    pub best: f64,
    /// The predicted rate, in slices per second.
    pub predicted: f64,
    /// The remaining share of the plan, from 0 to 1.
    pub left: f64,
    /// Slices that each requestor still lacks.
    pub left_slices: f64,
}

impl Finding {
    /// Whether the plan was faster before, so that the achievable rate is known rather than assumed.
    pub fn was_faster(&self) -> bool {
        self.rate < self.best * SLOW
    }
}

impl Pace {
    /// Starts measuring a plan that brings `per_requestor` slices to each requestor. No earlier plan of the
    /// job was faster than `before`, in slices per second.
    pub fn new(
        per_requestor: u32,
        requestors: usize,
        predicted: Predicted,
        before: f64,
        now: Duration,
    ) -> Self {
        Self {
            per_requestor,
            requestors: requestors.max(1) as u32,
            predicted,
            crowd: 1,
            before,
            best: 0.0,
            marks: VecDeque::from([(now, 0)]),
            began: None,
            inquiry: None,
            answers: Answers::default(),
            asks: 0,
            in_vain: 0,
            not_before: now,
        }
    }

    /// Records how many jobs, this one included, now share the plan's busiest node. If the number changes,
    /// earlier rates are dropped, because they no longer show what is achievable.
    pub fn share(&mut self, crowd: u32, now: Duration) {
        if crowd == self.crowd {
            return;
        }
        let there = self.marks.back().map_or(0, |&(_, slices)| slices);
        (self.crowd, self.best, self.before) = (crowd, 0.0, 0.0);
        self.marks = VecDeque::from([(now, there)]);
        self.excuse(now);
    }

    /// The predicted rate, divided by the number of jobs that share the plan's busiest node.
    fn predicted(&self) -> f64 {
        self.predicted.rate / f64::from(self.crowd)
    }

    /// The highest rate of this plan and the earlier ones, in slices per second.
    pub fn best(&self) -> f64 {
        self.best.max(self.before)
    }

    /// Records the total number of slices at the requestors, according to the latest reports.
    pub fn note(&mut self, slices: u32, now: Duration) {
        match self.marks.back() {
            Some(&(_, last)) if slices < last => return,
            Some(&(_, 0)) if slices > 0 => self.began = self.began.or(Some(now)),
            _ => {}
        }
        // The time before the first slice went into connecting and filling the pipeline, so it is not counted. Nor
        // are the first slices: links and buffers let them through faster than the following ones.
        if self.began.is_some_and(|began| now < began + BURST) {
            self.marks.clear();
        }
        self.marks.push_back((now, slices));
        // Keep one sample older than the window as the starting point.
        while self.marks.len() > 2 && self.marks[1].0 + WINDOW <= now {
            self.marks.pop_front();
        }
        if let Some(rate) = self.rate() {
            self.best = self.best.max(rate);
        }
    }

    /// Records a node's answer about what it waits for.
    pub fn take(&mut self, node: NodeId, report: &Report) {
        if self.inquiry.is_some() {
            self.answers.take(node, report, self.asks);
        }
    }

    /// Decides what to do after a report or the passing of time.
    pub fn step(&mut self, now: Duration) -> Step {
        if self.marks.back().is_some_and(|&(at, _)| at + SILENCE <= now) {
            let slices = self.marks.back().expect("there is always a mark").1;
            self.note(slices, now);
        }
        let Some(inquiry) = &mut self.inquiry else {
            let has_begun = self.marks.back().is_some_and(|&(_, slices)| slices > 0);
            if now < self.not_before || !has_begun || !self.is_slow() {
                return Step::Wait;
            }
            self.inquiry = Some(Inquiry { asked: 1, asked_at: now });
            self.asks += 1;
            return Step::Ask;
        };
        if inquiry.asked < ASKS {
            if now < inquiry.asked_at + ASK_EVERY {
                return Step::Wait;
            }
            (inquiry.asked, inquiry.asked_at) = (inquiry.asked + 1, now);
            self.asks += 1;
            return Step::Ask;
        }
        if now < inquiry.asked_at + ANSWERS {
            return Step::Wait;
        }
        self.inquiry = None;
        match self.conclude() {
            Some(finding) => Step::Found(finding),
            None => {
                self.pause(now);
                Step::Wait
            }
        }
    }

    /// Postpones the next examination after one without result; the delay doubles each time.
    pub fn pause(&mut self, now: Duration) {
        self.not_before = now + PAUSE * (1 << self.in_vain.min(MAX_DOUBLINGS));
        self.in_vain += 1;
    }

    /// Cancels the current examination, because the rate says nothing about the plan at the moment: for
    /// example, a node is throttled on purpose, or a failure is being investigated.
    pub fn excuse(&mut self, now: Duration) {
        self.inquiry = None;
        self.not_before = self.not_before.max(now + PAUSE);
    }

    /// The current rate of a requestor in slices per second, averaged over the last window; `None` until the
    /// samples cover a whole window.
    pub fn rate(&self) -> Option<f64> {
        let (&(from, had), &(to, has)) = (self.marks.front()?, self.marks.back()?);
        let passed = to.saturating_sub(from);
        (passed >= WINDOW).then(|| f64::from(has - had) / f64::from(self.requestors) / passed.as_secs_f64())
    }

    fn is_slow(&self) -> bool {
        self.rate().is_some_and(|rate| rate < self.best() * SLOW || self.is_below_figures(rate))
    }

    fn is_below_figures(&self, rate: f64) -> bool {
        self.predicted.rests_on_figures && rate < self.predicted() * BELOW_FIGURES
    }

    /// Evaluates the answers. Returns `None` if the plan is fast again or no bottleneck stands out.
    fn conclude(&self) -> Option<Finding> {
        let rate = self.rate().filter(|_| self.is_slow())?;
        let (edges, nodes) = self.answers.bottleneck()?;
        let has = f64::from(self.marks.back()?.1) / f64::from(self.requestors);
        let left_slices = (f64::from(self.per_requestor) - has).max(0.0);
        Some(Finding {
            edges,
            nodes,
            rate,
            best: self.best().max(rate),
            predicted: self.predicted(),
            left: left_slices / f64::from(self.per_requestor.max(1)),
            left_slices,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Due, Sent};

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// A plan with one requestor, 1000 slices and a predicted rate of 500 per second. `slices` gives the
    /// number of slices at each report, every 200 ms.
    fn paced(slices: &[u32]) -> (Pace, Duration) {
        paced_where(true, slices)
    }

    /// Like `paced`, but with link rates that are either measured or assumed.
    fn paced_where(rests_on_figures: bool, slices: &[u32]) -> (Pace, Duration) {
        let predicted = Predicted { rate: 500.0, rests_on_figures };
        let mut pace = Pace::new(1000, 1, predicted, 0.0, Duration::ZERO);
        let mut now = Duration::ZERO;
        for &slices in slices {
            now += ms(200);
            pace.note(slices, now);
        }
        (pace, now)
    }

    /// A report that the node waits for slices from some nodes, and has sent all slices before a given one to
    /// other nodes.
    fn waiting(receive: &[(u32, u32)], sent: &[(u32, u32)]) -> Report {
        let due = |&(node, slice): &(u32, u32)| Due { node: NodeId(node), slice, rested_ms: 5 };
        let gone = |&(node, before): &(u32, u32)| Sent { node: NodeId(node), before };
        Report::Waiting {
            receive: receive.iter().map(due).collect(),
            send: Vec::new(),
            sent: sent.iter().map(gone).collect(),
        }
    }

    /// Gives the same answers in every round of questions; returns the step that ends the examination, and
    /// its time.
    fn inquire(pace: &mut Pace, mut now: Duration, answers: &[(u32, Report)]) -> (Step, Duration) {
        assert_eq!(pace.step(now), Step::Ask);
        for _ in 0..20 {
            answers.iter().for_each(|(node, report)| pace.take(NodeId(*node), report));
            now += ms(50);
            let step = loop {
                match pace.step(now) {
                    Step::Wait if pace.inquiry.is_some() => now += ms(50),
                    step => break step,
                }
            };
            if step != Step::Ask {
                return (step, now);
            }
        }
        unreachable!("an inquiry ends")
    }

    #[test]
    fn a_plan_that_keeps_its_pace_is_left_alone() {
        let (mut pace, now) = paced(&[90, 200, 290, 400, 480]);
        assert_eq!(pace.step(now), Step::Wait);
        let (mut early, now) = paced(&[1]);
        assert_eq!(early.step(now), Step::Wait, "too early to tell");
        let (mut even, now) = paced(&[70, 140, 210, 280]);
        assert_eq!(even.step(now), Step::Wait, "slower than predicted, as predictions go");
    }

    #[test]
    fn sharing_nodes_with_other_jobs_does_not_count_as_slow() {
        let (mut alone, mut now) = paced(&[100, 200, 300]);
        alone.share(5, now);
        for slices in [320, 340, 360, 380] {
            now += ms(200);
            alone.note(slices, now);
            assert_eq!(alone.step(now), Step::Wait, "a fifth for each");
        }
        for slices in [382, 384, 386] {
            now += ms(200);
            alone.note(slices, now);
        }
        assert_eq!(alone.step(now), Step::Ask, "it was faster among as many");
    }

    #[test]
    fn assumed_link_rates_accuse_no_one() {
        let (mut known, now) = paced_where(true, &[20, 40, 60]);
        assert_eq!(known.step(now), Step::Ask);
        let (mut assumed, now) = paced_where(false, &[20, 40, 60]);
        assert_eq!(assumed.step(now), Step::Wait, "all links may be like that");
        let (mut slowed, now) = paced_where(false, &[20, 40, 60, 62, 64, 66]);
        assert_eq!(slowed.step(now), Step::Ask, "it was faster");
    }

    #[test]
    fn the_link_that_carries_the_next_slice_is_the_bottleneck() {
        let (mut pace, now) = paced(&[100, 200, 300, 310, 320]);
        // Chain 1 ► 2 ► 3 ► 4 ► 9; the link 2 ► 3 is slow.
        let answers = [
            (1, waiting(&[], &[(2, 340)])),
            (2, waiting(&[], &[(3, 330)])),
            (3, waiting(&[(2, 322)], &[(4, 322)])),
            (4, waiting(&[(3, 322)], &[(9, 322)])),
            (9, waiting(&[(4, 322)], &[])),
        ];
        let (step, _) = inquire(&mut pace, now, &answers);
        let Step::Found(finding) = step else { panic!("{step:?}") };
        assert_eq!(finding.edges, BTreeSet::from([(NodeId(2), NodeId(3))]));
        assert!(finding.was_faster());
        assert!((finding.rate - 50.0).abs() < 1.0 && (finding.best - 500.0).abs() < 1.0, "{finding:?}");
        assert!((finding.left - 0.68).abs() < 0.001, "{finding:?}");
    }

    #[test]
    fn a_node_with_all_its_inputs_waits_for_its_disk() {
        let (mut pace, now) = paced(&[100, 200, 300, 310, 320]);
        let answers = [
            (1, waiting(&[], &[(2, 340)])),
            (2, waiting(&[(1, 340)], &[(3, 322)])),
            (3, waiting(&[(2, 322)], &[(9, 322)])),
            (9, waiting(&[(3, 322)], &[])),
        ];
        let (step, _) = inquire(&mut pace, now, &answers);
        let Step::Found(finding) = step else { panic!("{step:?}") };
        assert!(finding.edges.is_empty());
        assert_eq!(finding.nodes, BTreeSet::from([NodeId(2)]));
    }

    #[test]
    fn without_a_bottleneck_examinations_become_rare() {
        let (mut pace, mut now) = paced(&[10, 20, 30]);
        let (mut at, mut asks) = (30, 0);
        for turn in 0..400 {
            now += ms(50);
            if turn % 4 == 0 {
                at += 10;
                pace.note(at, now);
            }
            match pace.step(now) {
                Step::Ask => asks += 1,
                Step::Found(finding) => panic!("{finding:?}"),
                Step::Wait => continue,
            }
            // Each link carries the next slice in every third answer.
            let is_under_way = |link: u32| 50 + u32::from((asks + link).is_multiple_of(3));
            pace.take(NodeId(1), &waiting(&[], &[(2, is_under_way(0))]));
            pace.take(NodeId(2), &waiting(&[(1, 50)], &[(3, is_under_way(1))]));
            pace.take(NodeId(3), &waiting(&[(2, 50)], &[(4, is_under_way(2))]));
            pace.take(NodeId(4), &waiting(&[(3, 50)], &[]));
        }
        assert!((10..60).contains(&asks), "{asks} asks in 20 s");
    }

    #[test]
    fn a_plan_that_recovers_while_nodes_are_asked_is_left_alone() {
        let (mut pace, mut now) = paced(&[100, 200, 300, 310, 320]);
        assert_eq!(pace.step(now), Step::Ask);
        for step in 1..8 {
            now += ms(50);
            pace.take(NodeId(2), &waiting(&[], &[(3, 330)]));
            pace.take(NodeId(3), &waiting(&[(2, 322)], &[]));
            if step % 4 == 0 {
                pace.note(320 + 40 * step, now);
            }
            assert!(!matches!(pace.step(now), Step::Found(_)));
        }
    }
}
