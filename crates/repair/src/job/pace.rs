//! How fast a plan is, and when it is looked into because it became slow.
//!
//! Requestors say how many slices they have. When these come far more slowly than they did before, all nodes are asked a
//! few times what they wait for, and how far they have sent; where that shows the plan to be held up, [`places`](super::places)
//! finds.
//!
//! Pure bookkeeping: what follows from a finding is decided by [`straggling`](super::straggling).

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use super::Report;
use super::places::Answers;
use crate::NodeId;

/// Rates are those of this long at least: requestors report every 200 ms.
const WINDOW: Duration = Duration::from_millis(350);
/// So long without a report counts as one that nothing came.
const SILENCE: Duration = Duration::from_millis(500);
/// A plan is looked at that is slower than this share of its best.
const SLOW: f64 = 0.5;
/// A plan that was never faster is looked at if it is slower than this share of what figures let predict of it.
const BELOW_FIGURES: f64 = 0.6;
/// Nodes are asked so often, with pauses in between.
const ASKS: u32 = 6;
const ASK_EVERY: Duration = Duration::from_millis(40);
/// The last answers have so long to come.
const ANSWERS: Duration = Duration::from_millis(60);
/// Until a plan is looked at again for nothing; it doubles each time.
const PAUSE: Duration = Duration::from_millis(200);
const MAX_DOUBLINGS: u32 = 8;

/// The pace of a plan that runs.
#[derive(Debug)]
pub(super) struct Pace {
    /// Slices that each requestor is to get.
    per_requestor: u32,
    requestors: u32,
    predicted: Predicted,
    /// Jobs that share the busiest of the nodes.
    crowd: u32,
    /// Slices per second that any plan of the job reached before.
    before: f64,
    best: f64,
    /// When so many slices were there, over all requestors.
    marks: VecDeque<(Duration, u32)>,
    inquiry: Option<Inquiry>,
    answers: Answers,
    /// Asks so far.
    asks: u32,
    in_vain: u32,
    not_before: Duration,
}

/// What was predicted of a plan.
#[derive(Clone, Copy, Debug)]
pub(super) struct Predicted {
    /// Slices per second of each requestor.
    pub rate: f64,
    /// Whether it rests on what is known of the links.
    pub rests_on_figures: bool,
}

/// It is being looked for who holds a plan up.
#[derive(Debug)]
struct Inquiry {
    asked: u32,
    asked_at: Duration,
}

/// What is to be done about the pace.
#[derive(Debug, PartialEq)]
pub(super) enum Step {
    /// Nothing now.
    Wait,
    /// Ask all nodes what they wait for.
    Ask,
    /// The plan is slow, and this is why.
    Found(Finding),
}

/// Where a plan is held up, and how slow that makes it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Finding {
    /// Links from one node to another that both ends wait for.
    pub edges: BTreeSet<(NodeId, NodeId)>,
    /// Nodes that others wait for, and that wait for nobody.
    pub nodes: BTreeSet<NodeId>,
    /// Slices per second that come now.
    pub rate: f64,
    /// Slices per second that came at best; what comes now if it was never better.
    pub best: f64,
    /// Slices per second that were predicted.
    pub predicted: f64,
    /// The share of the plan that is still to come.
    pub left: f64,
    /// Slices of each requestor that are still to come.
    pub left_slices: f64,
}

impl Finding {
    /// Whether the plan was faster before, so that what can be reached is known and not only assumed.
    pub fn was_faster(&self) -> bool {
        self.rate < self.best * SLOW
    }
}

impl Pace {
    /// A plan begins that brings each of so many requestors so many slices. No plan of the job was
    /// faster than `before`.
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
            inquiry: None,
            answers: Answers::default(),
            asks: 0,
            in_vain: 0,
            not_before: now,
        }
    }

    /// So many jobs, this one among them, share the busiest of the plan's nodes now. What was reached among more or fewer
    /// says nothing about what can be.
    pub fn share(&mut self, crowd: u32, now: Duration) {
        if crowd == self.crowd {
            return;
        }
        let there = self.marks.back().map_or(0, |&(_, slices)| slices);
        (self.crowd, self.best, self.before) = (crowd, 0.0, 0.0);
        self.marks = VecDeque::from([(now, there)]);
        self.excuse(now);
    }

    /// Slices per second that were predicted, for a share of the nodes.
    fn predicted(&self) -> f64 {
        self.predicted.rate / f64::from(self.crowd)
    }

    /// The most slices per second so far, of this plan and those before it.
    pub fn best(&self) -> f64 {
        self.best.max(self.before)
    }

    /// So many slices are there, over all requestors: what one of them has just said.
    pub fn note(&mut self, slices: u32, now: Duration) {
        match self.marks.back() {
            Some(&(_, last)) if slices < last => return,
            // Until then nodes connect, and chains fill: that is nobody's pace.
            Some(&(_, 0)) if slices > 0 => self.marks.clear(),
            _ => {}
        }
        self.marks.push_back((now, slices));
        // One mark that is older than the window stays, to count from.
        while self.marks.len() > 2 && self.marks[1].0 + WINDOW <= now {
            self.marks.pop_front();
        }
        if let Some(rate) = self.rate() {
            self.best = self.best.max(rate);
        }
    }

    /// Takes what a node says that it waits for.
    pub fn take(&mut self, node: NodeId, report: &Report) {
        if self.inquiry.is_some() {
            self.answers.take(node, report, self.asks);
        }
    }

    /// Time has passed, or something was noted.
    pub fn step(&mut self, now: Duration) -> Step {
        if self.marks.back().is_some_and(|&(at, _)| at + SILENCE <= now) {
            let slices = self.marks.back().expect("one is always there").1;
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

    /// Nothing came of it; the next look is later, and the one after that later still.
    pub fn pause(&mut self, now: Duration) {
        self.not_before = now + PAUSE * (1 << self.in_vain.min(MAX_DOUBLINGS));
        self.in_vain += 1;
    }

    /// Forgets what was asked: somebody is slow because they shall be, or something worse is being looked into.
    pub fn excuse(&mut self, now: Duration) {
        self.inquiry = None;
        self.not_before = self.not_before.max(now + PAUSE);
    }

    /// Slices per second of a requestor, over the last window.
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

    /// What the answers come to, unless the plan is fast again or no place stands out.
    fn conclude(&self) -> Option<Finding> {
        let rate = self.rate().filter(|_| self.is_slow())?;
        let (edges, nodes) = self.answers.places()?;
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

    /// A plan of one requestor and 1000 slices, 500 a second predicted, whose slices come as given every 200 ms.
    fn paced(slices: &[u32]) -> (Pace, Duration) {
        paced_where(true, slices)
    }

    /// The same where links are known, or only assumed.
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

    /// A node waits for slices of some, and has sent to others all before some slice.
    fn waiting(receive: &[(u32, u32)], sent: &[(u32, u32)]) -> Report {
        let due = |&(node, slice): &(u32, u32)| Due { node: NodeId(node), slice, rested_ms: 5 };
        let gone = |&(node, before): &(u32, u32)| Sent { node: NodeId(node), before };
        Report::Waiting {
            receive: receive.iter().map(due).collect(),
            send: Vec::new(),
            sent: sent.iter().map(gone).collect(),
        }
    }

    /// Lets nodes answer each ask, and returns what comes of it.
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
    fn a_plan_that_shares_its_nodes_is_not_slow_for_that() {
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
    fn what_is_only_assumed_of_links_makes_nobody_slow() {
        let (mut known, now) = paced_where(true, &[20, 40, 60]);
        assert_eq!(known.step(now), Step::Ask);
        let (mut assumed, now) = paced_where(false, &[20, 40, 60]);
        assert_eq!(assumed.step(now), Step::Wait, "all links may be like that");
        let (mut slowed, now) = paced_where(false, &[20, 40, 60, 62, 64, 66]);
        assert_eq!(slowed.step(now), Step::Ask, "it was faster");
    }

    #[test]
    fn the_link_that_the_next_slice_is_on_holds_the_plan_up() {
        let (mut pace, now) = paced(&[100, 200, 300, 310, 320]);
        // 1 ► 2 ► 3 ► 4 ► 9, and 2 ► 3 is slow.
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
    fn a_node_that_has_all_that_it_needs_is_held_up_by_its_disk() {
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
    fn nothing_stands_out_where_slices_are_everywhere_and_looks_become_rare() {
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
            // Each of the links has the next slice in every third answer.
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
