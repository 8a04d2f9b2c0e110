//! Rates of nodes, and their sources.
//!
//! A configured rate takes precedence over a measured one. A measured rate is used while it is fresh. Without
//! either, the same rate is assumed for all nodes, because most networks are even. A node that held up a
//! repair is treated as slow, at the observed rate, for some minutes or until a faster transfer is observed.
//!
//! The throughput of real transfers is a lower bound for the rate of a port (a node's uplink or downlink). It
//! corrects a measured rate that is too low, and it raises the assumed rate once half of the helpers have
//! reached twice the assumed rate. If the rates of half of the helpers are known, the assumed rate never
//! exceeds the highest known rate. Otherwise a client would seem to have a better link than all helpers, and
//! all of them would send it raw blocks.
//!
//! Times are milliseconds since 1970, because measured rates outlive the coordinator.

use std::collections::BTreeMap;

use repair::{NodeId, Rates, StatedRates};
use serde::{Deserialize, Serialize};
use views::{RateSource, RateView};

/// How long a measured rate is used. Links change only when people change them, which is rare.
const MEASURED_FOR_MS: u64 = 30 * 24 * 3600 * 1000;
/// How long an observed throughput is used as a lower bound for the rate of a node's port.
const SEEN_FOR_MS: u64 = 3600 * 1000;
/// How long a node that held up a repair is treated as slow.
const SLOW_FOR_MS: u64 = 5 * 60 * 1000;
/// An observed rate replaces a measured one, or ends the slow state of a node, if it is higher by this
/// factor.
const FASTER: f64 = 1.1;

/// A rate in bytes per second and the time at which it was found.
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

/// The rates of one node. In arrays of two, the uplink comes first, then the downlink.
#[derive(Clone, Debug, Default)]
struct NodeBandwidth {
    stated: StatedRates,
    measured: [Option<Found>; 2],
    seen: [Option<Found>; 2],
    slow: Option<Found>,
}

/// The rates of all nodes, from every source.
#[derive(Clone, Debug)]
pub(crate) struct Bandwidth {
    nodes: BTreeMap<NodeId, NodeBandwidth>,
    pairs: BTreeMap<(NodeId, NodeId), Found>,
    /// The rate assumed for ports without a configured or measured rate.
    assumed: f64,
}

impl Default for Bandwidth {
    fn default() -> Self {
        Self { nodes: BTreeMap::new(), pairs: BTreeMap::new(), assumed: Rates::default().up }
    }
}

impl Bandwidth {
    /// Sets the rates that a node's own configuration states. Returns whether the assumed rate has changed.
    pub fn state(&mut self, node: NodeId, stated: StatedRates) -> bool {
        let given = |rate: Option<u64>| rate.filter(|&rate| rate > 0);
        let StatedRates { up, down, read, write } = stated;
        self.node(node).stated =
            StatedRates { up: given(up), down: given(down), read: given(read), write: given(write) };
        self.assume()
    }

    /// Sets the measured rates of a node's ports. Returns whether the assumed rate has changed.
    pub fn measure(&mut self, node: NodeId, rates: [Option<Found>; 2]) -> bool {
        let bandwidth = self.node(node);
        for (known, found) in bandwidth.measured.iter_mut().zip(rates) {
            *known = found.or(*known);
        }
        bandwidth.slow = None;
        self.assume()
    }

    /// Sets the measured rate between two nodes.
    pub fn measure_pair(&mut self, from: NodeId, to: NodeId, found: Found) {
        self.pairs.insert((from, to), found);
    }

    /// Records the throughput of transfers at a node's ports. Returns whether the assumed rate has changed.
    pub fn see(&mut self, node: NodeId, rates: [u64; 2], now_ms: u64) -> bool {
        let bandwidth = self.node(node);
        for (seen, rate) in bandwidth.seen.iter_mut().zip(rates) {
            let rate = rate as f64;
            let known = seen.and_then(|seen| seen.within(SEEN_FOR_MS, now_ms));
            if rate > 0.0 && known.is_none_or(|known| known.rate <= rate) {
                *seen = Some(Found { rate, at_unix_ms: now_ms });
            }
            bandwidth.slow = bandwidth.slow.filter(|slow| rate < slow.rate * FASTER);
        }
        self.assume()
    }

    /// Records that a node held up a repair at this rate, in bytes per second.
    pub fn slow(&mut self, node: NodeId, rate: f64, now_ms: u64) {
        self.node(node).slow = Some(Found { rate, at_unix_ms: now_ms });
    }

    /// Whether a node is treated as slow.
    pub fn is_slow(&self, node: NodeId) -> bool {
        self.nodes.get(&node).is_some_and(|bandwidth| bandwidth.slow.is_some())
    }

    /// Whether a node is treated as slow, and would no longer be after a transfer at this rate.
    pub fn is_faster(&self, node: NodeId, rate: f64) -> bool {
        let slow = self.nodes.get(&node).and_then(|bandwidth| bandwidth.slow);
        slow.is_some_and(|slow| rate >= slow.rate * FASTER)
    }

    /// Clears a node of the suspicion that it is slow.
    pub fn acquit(&mut self, node: NodeId) {
        self.node(node).slow = None;
    }

    /// Drops rates that are too old. Returns the nodes whose rates have changed.
    pub fn expire(&mut self, now_ms: u64) -> Vec<NodeId> {
        let mut changed = Vec::new();
        for (&node, bandwidth) in &mut self.nodes {
            let was = (bandwidth.measured, bandwidth.slow);
            let fresh = |found: Option<Found>, age_ms| found.and_then(|found| found.within(age_ms, now_ms));
            bandwidth.measured = bandwidth.measured.map(|found| fresh(found, MEASURED_FOR_MS));
            bandwidth.seen = bandwidth.seen.map(|found| fresh(found, SEEN_FOR_MS));
            bandwidth.slow = fresh(bandwidth.slow, SLOW_FOR_MS);
            changed.extend((was != (bandwidth.measured, bandwidth.slow)).then_some(node));
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

    /// Returns the measured rates between pairs of nodes.
    pub fn pairs(&self) -> impl Iterator<Item = (NodeId, NodeId, Found)> + '_ {
        self.pairs.iter().map(|(&(from, to), &found)| (from, to, found))
    }

    /// Returns the measured rates of nodes' ports.
    pub fn measured(&self) -> impl Iterator<Item = (NodeId, [Option<Found>; 2])> + '_ {
        let measured = self.nodes.iter().map(|(&node, bandwidth)| (node, bandwidth.measured));
        measured.filter(|(_, found)| found.iter().any(Option::is_some))
    }

    /// Returns the highest recent throughput of a node's ports, in bytes per second.
    pub fn seen(&self, node: NodeId) -> [Option<u64>; 2] {
        let seen = self.nodes.get(&node).map(|bandwidth| bandwidth.seen).unwrap_or_default();
        seen.map(|seen| seen.map(|seen| seen.rate as u64))
    }

    /// Returns the rates that a node's configuration states.
    pub fn stated(&self, node: NodeId) -> StatedRates {
        self.nodes.get(&node).map(|bandwidth| bandwidth.stated).unwrap_or_default()
    }

    /// Whether the rates of a node's links are configured or measured, not assumed.
    pub fn knows_links(&self, node: NodeId) -> bool {
        self.nodes.get(&node).is_some_and(|bandwidth| {
            let measured = bandwidth.measured.iter().all(Option::is_some);
            measured || (bandwidth.stated.up.is_some() && bandwidth.stated.down.is_some())
        })
    }

    /// Returns the rates that planning uses for a node.
    pub fn rates(&self, node: NodeId) -> Rates {
        let [up, down, read, write] = self.views(node).map(|view| view.bytes_per_s as f64);
        Rates { up, down, read, write }
    }

    /// Returns the rates that planning uses for a node's uplink, downlink, reads and writes, each with its
    /// source.
    pub fn views(&self, node: NodeId) -> [RateView; 4] {
        let empty = NodeBandwidth::default();
        let bandwidth = self.nodes.get(&node).unwrap_or(&empty);
        let port = |at: usize, stated: Option<u64>| {
            let seen = bandwidth.seen[at].map_or(0.0, |seen| seen.rate);
            let measured = bandwidth.measured[at].map(|found| match seen > found.rate * FASTER {
                true => bandwidth.seen[at].expect("the higher rate is one that was seen"),
                false => found,
            });
            let known = match (stated, measured) {
                (Some(rate), _) => view(rate as f64, RateSource::Configured, None),
                (None, Some(found)) => view(found.rate, RateSource::Measured, Some(found.at_unix_ms)),
                (None, None) => view(self.assumed, RateSource::Assumed, None),
            };
            bandwidth.slowed(known)
        };
        let disk = |stated: Option<u64>, otherwise: f64| {
            bandwidth.slowed(match stated {
                Some(rate) => view(rate as f64, RateSource::Configured, None),
                None => view(otherwise, RateSource::Assumed, None),
            })
        };
        let (stated, default) = (bandwidth.stated, Rates::default());
        let [read, write] = [disk(stated.read, default.read), disk(stated.write, default.write)];
        [port(0, stated.up), port(1, stated.down), read, write]
    }

    /// Returns the rate assumed for a port without a configured or measured rate, in bytes per second.
    pub fn assumed(&self) -> f64 {
        self.assumed
    }

    /// Updates the assumed rate. It starts at 1 Gb/s and is doubled as long as half of the nodes have
    /// transferred at the doubled rate or faster. If the rates of half of the nodes are known, the assumed
    /// rate is at most the highest known rate. Returns whether the assumed rate has changed.
    fn assume(&mut self) -> bool {
        let busiest = |bandwidth: &NodeBandwidth| {
            bandwidth.seen.iter().flatten().map(|seen| seen.rate).fold(0.0, f64::max)
        };
        let mut seen: Vec<f64> = self.nodes.values().map(busiest).collect();
        seen.sort_by(f64::total_cmp);
        let median = seen.get(seen.len() / 2).copied().unwrap_or(0.0);
        let mut rate = Rates::default().up;
        while median >= 2.0 * rate {
            rate *= 2.0;
        }
        let known: Vec<f64> = self.nodes.values().filter_map(NodeBandwidth::known).collect();
        if !known.is_empty() && known.len() * 2 >= self.nodes.len() {
            rate = known.into_iter().fold(0.0, f64::max).min(rate);
        }
        std::mem::replace(&mut self.assumed, rate) != rate
    }

    fn node(&mut self, node: NodeId) -> &mut NodeBandwidth {
        self.nodes.entry(node).or_default()
    }
}

impl NodeBandwidth {
    /// Returns the rate of the faster of the two ports, if the rates of both ports are known.
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

    fn up(bandwidth: &Bandwidth) -> (u64, RateSource) {
        let view = bandwidth.views(N)[0];
        (view.bytes_per_s, view.source)
    }

    #[test]
    fn configured_rates_precede_measured_and_assumed_ones() {
        let mut bandwidth = Bandwidth::default();
        assert_eq!(up(&bandwidth), (125_000_000, RateSource::Assumed));
        bandwidth.measure(N, [Some(Found { rate: 50e6, at_unix_ms: 1000 }), None]);
        assert_eq!(up(&bandwidth), (50_000_000, RateSource::Measured));
        assert_eq!(bandwidth.views(N)[1].source, RateSource::Assumed, "the other port was not");
        bandwidth.see(N, [70_000_000, 0], 2000);
        assert_eq!(up(&bandwidth), (70_000_000, RateSource::Measured), "it carries more than was measured");
        bandwidth.state(N, StatedRates { up: Some(10), down: Some(0), ..StatedRates::default() });
        assert_eq!(up(&bandwidth), (10, RateSource::Configured));
        assert_eq!(bandwidth.views(N)[1].source, RateSource::Assumed, "0 says nothing");
        bandwidth.state(N, StatedRates::default());
        assert_eq!(bandwidth.expire(1000 + MEASURED_FOR_MS), [N]);
        assert_eq!(up(&bandwidth), (125_000_000, RateSource::Assumed), "what was measured is stale");
    }

    #[test]
    fn a_slow_node_is_cleared_by_time_or_by_a_faster_transfer() {
        let mut bandwidth = Bandwidth::default();
        bandwidth.state(N, StatedRates { up: Some(100_000_000), ..StatedRates::default() });
        bandwidth.slow(N, 10e6, 1000);
        assert_eq!(bandwidth.views(N).map(|view| view.source), [RateSource::Slow; 4]);
        bandwidth.see(N, [10_500_000, 0], 2000);
        assert_eq!(up(&bandwidth).1, RateSource::Slow, "about as slow");
        assert!(bandwidth.expire(1000 + SLOW_FOR_MS - 1).is_empty());
        assert_eq!(bandwidth.expire(1000 + SLOW_FOR_MS), [N]);
        assert_eq!(up(&bandwidth), (100_000_000, RateSource::Configured));
        bandwidth.slow(N, 10e6, 1000);
        bandwidth.see(N, [90_000_000, 0], 2000);
        assert_eq!(up(&bandwidth).1, RateSource::Configured);
    }

    #[test]
    fn the_assumed_rate_follows_half_of_the_helpers() {
        let mut bandwidth = Bandwidth::default();
        for node in 1..=5 {
            bandwidth.state(NodeId(node), StatedRates::default());
        }
        bandwidth.see(NodeId(2), [900_000_000, 1], 1000);
        bandwidth.see(NodeId(3), [1, 1_100_000_000], 1000);
        assert_eq!(up(&bandwidth).0, 125_000_000, "two of five are no half");
        bandwidth.see(NodeId(4), [600_000_000, 1], 1000);
        assert_eq!(up(&bandwidth).0, 500_000_000);
    }

    #[test]
    fn the_fastest_known_helper_limits_the_assumed_rate() {
        let mut bandwidth = Bandwidth::default();
        let both = |rate: u64| StatedRates { up: Some(rate), down: Some(rate), ..StatedRates::default() };
        for node in 2..=5 {
            bandwidth.state(NodeId(node), StatedRates::default());
        }
        assert!(!bandwidth.state(NodeId(2), both(20_000_000)), "one of four is no half");
        assert!(bandwidth.state(NodeId(3), both(25_000_000)));
        assert_eq!(up(&bandwidth), (25_000_000, RateSource::Assumed), "as the fastest of them");
        bandwidth.measure(NodeId(4), [Some(Found { rate: 30e6, at_unix_ms: 1000 }), None]);
        assert_eq!(up(&bandwidth).0, 25_000_000, "its other port may be anything");
        assert!(bandwidth.state(NodeId(2), both(1_250_000_000)));
        assert_eq!(up(&bandwidth).0, 125_000_000, "no more than without them");
    }
}
