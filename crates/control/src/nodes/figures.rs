//! What is known of the rates of nodes, and from where.
//!
//! A rate that is configured counts. Otherwise one that was measured counts, for as long as it is fresh; otherwise what is
//! assumed of all nodes alike, so that a network of which nothing is known looks even, as it mostly is. A node that held up a
//! repair counts as that slow for some minutes, unless it is seen to be faster. What real transfers made of a port is a
//! lower bound: it corrects a measured rate that is too low, and raises what is assumed of everybody once half of the
//! helpers have shown more. Once half of the helpers are known, nobody is assumed to carry more than the fastest of them: a
//! client that seems to have a better link than all helpers would be sent raw blocks by all of them.
//!
//! Times are milliseconds since 1970, since measured rates outlive the coordinator.

use std::collections::BTreeMap;

use repair::{NodeId, Rates, StatedRates};
use serde::{Deserialize, Serialize};
use views::{RateSource, RateView};

/// A measured rate counts for so long: links are changed by people, and seldom.
const MEASURED_FOR_MS: u64 = 30 * 24 * 3600 * 1000;
/// A busy moment tells of a port for so long.
const SEEN_FOR_MS: u64 = 3600 * 1000;
/// A node that was slow counts as slow for so long.
const SLOW_FOR_MS: u64 = 5 * 60 * 1000;
/// Seen to be so much faster, a rate is not what was said of it.
const FASTER: f64 = 1.1;

/// A rate, and when it was found.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Found {
    pub rate: f64,
    pub at_unix_ms: u64,
}

impl Found {
    fn within(self, age_ms: u64, now_ms: u64) -> Option<Self> {
        (now_ms < self.at_unix_ms.saturating_add(age_ms)).then_some(self)
    }
}

/// What is known of one node. Of two, the uplink comes first, then the downlink.
#[derive(Clone, Debug, Default)]
struct NodeFigures {
    stated: StatedRates,
    measured: [Option<Found>; 2],
    seen: [Option<Found>; 2],
    slow: Option<Found>,
}

/// See the module's documentation.
#[derive(Clone, Debug)]
pub(crate) struct Figures {
    nodes: BTreeMap<NodeId, NodeFigures>,
    pairs: BTreeMap<(NodeId, NodeId), Found>,
    /// What ports carry of which nothing is known.
    assumed: f64,
}

impl Default for Figures {
    fn default() -> Self {
        Self { nodes: BTreeMap::new(), pairs: BTreeMap::new(), assumed: Rates::default().up }
    }
}

impl Figures {
    /// What a node's own configuration says. Whether something else is assumed of all others now.
    pub fn state(&mut self, node: NodeId, stated: StatedRates) -> bool {
        let given = |rate: Option<u64>| rate.filter(|&rate| rate > 0);
        let StatedRates { up, down, read, write } = stated;
        self.node(node).stated =
            StatedRates { up: given(up), down: given(down), read: given(read), write: given(write) };
        self.assume()
    }

    /// What was measured of a node's ports, uplink and downlink. Whether something else is assumed of all others now.
    pub fn measure(&mut self, node: NodeId, rates: [Option<Found>; 2]) -> bool {
        let figures = self.node(node);
        for (known, found) in figures.measured.iter_mut().zip(rates) {
            *known = found.or(*known);
        }
        figures.slow = None;
        self.assume()
    }

    /// What was measured between two nodes.
    pub fn measure_pair(&mut self, from: NodeId, to: NodeId, found: Found) {
        self.pairs.insert((from, to), found);
    }

    /// What transfers made of a node's ports. Whether something else is assumed of all others now.
    pub fn see(&mut self, node: NodeId, rates: [u64; 2], now_ms: u64) -> bool {
        let figures = self.node(node);
        for (seen, rate) in figures.seen.iter_mut().zip(rates) {
            let rate = rate as f64;
            let known = seen.and_then(|seen| seen.within(SEEN_FOR_MS, now_ms));
            if rate > 0.0 && known.is_none_or(|known| known.rate <= rate) {
                *seen = Some(Found { rate, at_unix_ms: now_ms });
            }
            figures.slow = figures.slow.filter(|slow| rate < slow.rate * FASTER);
        }
        self.assume()
    }

    /// A node held up a repair, which it let have so much.
    pub fn slow(&mut self, node: NodeId, rate: f64, now_ms: u64) {
        self.node(node).slow = Some(Found { rate, at_unix_ms: now_ms });
    }

    /// Whether a node counts as slow.
    pub fn is_slow(&self, node: NodeId) -> bool {
        self.nodes.get(&node).is_some_and(|figures| figures.slow.is_some())
    }

    /// Whether a node that counts as slow would not if it were seen to carry so much.
    pub fn is_faster(&self, node: NodeId, rate: f64) -> bool {
        let slow = self.nodes.get(&node).and_then(|figures| figures.slow);
        slow.is_some_and(|slow| rate >= slow.rate * FASTER)
    }

    /// A node is not slow.
    pub fn acquit(&mut self, node: NodeId) {
        self.node(node).slow = None;
    }

    /// Forgets what is too old to count; nodes of which something else holds now.
    pub fn expire(&mut self, now_ms: u64) -> Vec<NodeId> {
        let mut changed = Vec::new();
        for (&node, figures) in &mut self.nodes {
            let was = (figures.measured, figures.slow);
            let fresh = |found: Option<Found>, age_ms| found.and_then(|found| found.within(age_ms, now_ms));
            figures.measured = figures.measured.map(|found| fresh(found, MEASURED_FOR_MS));
            figures.seen = figures.seen.map(|found| fresh(found, SEEN_FOR_MS));
            figures.slow = fresh(figures.slow, SLOW_FOR_MS);
            changed.extend((was != (figures.measured, figures.slow)).then_some(node));
        }
        self.pairs.retain(|_, found| found.within(MEASURED_FOR_MS, now_ms).is_some());
        if self.assume() {
            changed = self.nodes.keys().copied().collect();
        }
        changed
    }

    /// Forgets a node.
    pub fn forget(&mut self, node: NodeId) {
        self.nodes.remove(&node);
        self.pairs.retain(|(from, to), _| *from != node && *to != node);
    }

    /// What is measured between pairs of nodes.
    pub fn pairs(&self) -> impl Iterator<Item = (NodeId, NodeId, Found)> + '_ {
        self.pairs.iter().map(|(&(from, to), &found)| (from, to, found))
    }

    /// What was measured of nodes' ports.
    pub fn measured(&self) -> impl Iterator<Item = (NodeId, [Option<Found>; 2])> + '_ {
        let measured = self.nodes.iter().map(|(&node, figures)| (node, figures.measured));
        measured.filter(|(_, found)| found.iter().any(Option::is_some))
    }

    /// The most that was made of a node's ports lately, in bytes per second.
    pub fn seen(&self, node: NodeId) -> [Option<u64>; 2] {
        let seen = self.nodes.get(&node).map(|figures| figures.seen).unwrap_or_default();
        seen.map(|seen| seen.map(|seen| seen.rate as u64))
    }

    /// What a node's configuration says of its links.
    pub fn stated(&self, node: NodeId) -> StatedRates {
        self.nodes.get(&node).map(|figures| figures.stated).unwrap_or_default()
    }

    /// Whether the rates of a node's links are more than an assumption.
    pub fn knows_links(&self, node: NodeId) -> bool {
        self.nodes.get(&node).is_some_and(|figures| {
            let measured = figures.measured.iter().all(Option::is_some);
            measured || (figures.stated.up.is_some() && figures.stated.down.is_some())
        })
    }

    /// What a node is taken to carry.
    pub fn rates(&self, node: NodeId) -> Rates {
        let [up, down, read, write] = self.views(node).map(|view| view.bytes_per_s as f64);
        Rates { up, down, read, write }
    }

    /// The same with where each rate comes from: uplink, downlink, reading and writing.
    pub fn views(&self, node: NodeId) -> [RateView; 4] {
        let empty = NodeFigures::default();
        let figures = self.nodes.get(&node).unwrap_or(&empty);
        let port = |at: usize, stated: Option<u64>| {
            let seen = figures.seen[at].map_or(0.0, |seen| seen.rate);
            let measured = figures.measured[at].map(|found| match seen > found.rate * FASTER {
                true => figures.seen[at].expect("it was seen"),
                false => found,
            });
            let known = match (stated, measured) {
                (Some(rate), _) => view(rate as f64, RateSource::Configured, None),
                (None, Some(found)) => view(found.rate, RateSource::Measured, Some(found.at_unix_ms)),
                (None, None) => view(self.assumed, RateSource::Assumed, None),
            };
            figures.slowed(known)
        };
        let disk = |stated: Option<u64>, otherwise: f64| {
            figures.slowed(match stated {
                Some(rate) => view(rate as f64, RateSource::Configured, None),
                None => view(otherwise, RateSource::Assumed, None),
            })
        };
        let (stated, default) = (figures.stated, Rates::default());
        let [read, write] = [disk(stated.read, default.read), disk(stated.write, default.write)];
        [port(0, stated.up), port(1, stated.down), read, write]
    }

    /// What is assumed of a port of which nothing is known, in bytes per second.
    pub fn assumed(&self) -> f64 {
        self.assumed
    }

    /// Assumes 1 Gb/s of the ports of nodes of which nothing is known, doubled as long as half of the helpers were seen to move
    /// as much, and no more than the fastest port of a helper if half of them are known. Whether that is another rate than
    /// before.
    fn assume(&mut self) -> bool {
        let busiest =
            |figures: &NodeFigures| figures.seen.iter().flatten().map(|seen| seen.rate).fold(0.0, f64::max);
        let mut seen: Vec<f64> = self.nodes.values().map(busiest).collect();
        seen.sort_by(f64::total_cmp);
        let median = seen.get(seen.len() / 2).copied().unwrap_or(0.0);
        let mut rate = Rates::default().up;
        while median >= 2.0 * rate {
            rate *= 2.0;
        }
        let known: Vec<f64> = self.nodes.values().filter_map(NodeFigures::known).collect();
        if !known.is_empty() && known.len() * 2 >= self.nodes.len() {
            rate = known.into_iter().fold(0.0, f64::max).min(rate);
        }
        std::mem::replace(&mut self.assumed, rate) != rate
    }

    fn node(&mut self, node: NodeId) -> &mut NodeFigures {
        self.nodes.entry(node).or_default()
    }
}

impl NodeFigures {
    /// What the faster port carries, if that is known of both.
    fn known(&self) -> Option<f64> {
        let port = |at: usize, stated: Option<u64>| {
            let measured = self.measured[at].map(|found| found.rate);
            let seen = self.seen[at].map_or(0.0, |seen| seen.rate);
            stated.map(|rate| rate as f64).or(measured.map(|rate| rate.max(seen)))
        };
        Some(port(0, self.stated.up)?.max(port(1, self.stated.down)?))
    }

    fn slowed(&self, known: RateView) -> RateView {
        match self.slow {
            Some(slow) if (slow.rate as u64) < known.bytes_per_s => {
                view(slow.rate, RateSource::Slow, Some(slow.at_unix_ms))
            }
            _ => known,
        }
    }
}

fn view(rate: f64, source: RateSource, since_unix_ms: Option<u64>) -> RateView {
    RateView { bytes_per_s: (rate as u64).max(1), source, since_unix_ms }
}

#[cfg(test)]
mod tests {
    use super::*;

    const N: NodeId = NodeId(1);

    fn up(figures: &Figures) -> (u64, RateSource) {
        let view = figures.views(N)[0];
        (view.bytes_per_s, view.source)
    }

    #[test]
    fn configured_counts_before_measured_and_measured_before_assumed() {
        let mut figures = Figures::default();
        assert_eq!(up(&figures), (125_000_000, RateSource::Assumed));
        figures.measure(N, [Some(Found { rate: 50e6, at_unix_ms: 1000 }), None]);
        assert_eq!(up(&figures), (50_000_000, RateSource::Measured));
        assert_eq!(figures.views(N)[1].source, RateSource::Assumed, "the other port was not");
        figures.see(N, [70_000_000, 0], 2000);
        assert_eq!(up(&figures), (70_000_000, RateSource::Measured), "it carries more than was measured");
        figures.state(N, StatedRates { up: Some(10), down: Some(0), ..StatedRates::default() });
        assert_eq!(up(&figures), (10, RateSource::Configured));
        assert_eq!(figures.views(N)[1].source, RateSource::Assumed, "0 says nothing");
        figures.state(N, StatedRates::default());
        assert_eq!(figures.expire(1000 + MEASURED_FOR_MS), [N]);
        assert_eq!(up(&figures), (125_000_000, RateSource::Assumed), "what was measured is stale");
    }

    #[test]
    fn a_slow_node_is_slow_for_a_while_or_until_it_is_seen_to_be_faster() {
        let mut figures = Figures::default();
        figures.state(N, StatedRates { up: Some(100_000_000), ..StatedRates::default() });
        figures.slow(N, 10e6, 1000);
        assert_eq!(figures.views(N).map(|view| view.source), [RateSource::Slow; 4]);
        figures.see(N, [10_500_000, 0], 2000);
        assert_eq!(up(&figures).1, RateSource::Slow, "about as slow");
        assert!(figures.expire(1000 + SLOW_FOR_MS - 1).is_empty());
        assert_eq!(figures.expire(1000 + SLOW_FOR_MS), [N]);
        assert_eq!(up(&figures), (100_000_000, RateSource::Configured));
        figures.slow(N, 10e6, 1000);
        figures.see(N, [90_000_000, 0], 2000);
        assert_eq!(up(&figures).1, RateSource::Configured);
    }

    #[test]
    fn what_half_of_the_helpers_show_is_assumed_of_all() {
        let mut figures = Figures::default();
        for node in 1..=5 {
            figures.state(NodeId(node), StatedRates::default());
        }
        figures.see(NodeId(2), [900_000_000, 1], 1000);
        figures.see(NodeId(3), [1, 1_100_000_000], 1000);
        assert_eq!(up(&figures).0, 125_000_000, "two of five are no half");
        figures.see(NodeId(4), [600_000_000, 1], 1000);
        assert_eq!(up(&figures).0, 500_000_000);
    }

    #[test]
    fn nobody_is_assumed_to_be_faster_than_all_that_are_known() {
        let mut figures = Figures::default();
        let both = |rate: u64| StatedRates { up: Some(rate), down: Some(rate), ..StatedRates::default() };
        for node in 2..=5 {
            figures.state(NodeId(node), StatedRates::default());
        }
        assert!(!figures.state(NodeId(2), both(20_000_000)), "one of four is no half");
        assert!(figures.state(NodeId(3), both(25_000_000)));
        assert_eq!(up(&figures), (25_000_000, RateSource::Assumed), "as the fastest of them");
        figures.measure(NodeId(4), [Some(Found { rate: 30e6, at_unix_ms: 1000 }), None]);
        assert_eq!(up(&figures).0, 25_000_000, "its other port may be anything");
        assert!(figures.state(NodeId(2), both(1_250_000_000)));
        assert_eq!(up(&figures).0, 125_000_000, "no more than without them");
    }
}
