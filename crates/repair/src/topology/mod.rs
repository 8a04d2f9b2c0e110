//! The nodes that a plan may use, with the rates of their disks, their ports and the links between them.
//!
//! A byte from one node to another passes the sender's uplink and the receiver's downlink. Where known, it
//! also passes the trunks of the racks and regions that it leaves and enters, and a link used only by this
//! pair of nodes, racks or regions. Each of these is a [`Resource`] with a rate; unknown resources are
//! unlimited. A reservation is the number of bytes that other repairs will move over a resource;
//! forecasts add it to the plan's own bytes.

mod profile;
mod resource;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

pub use profile::{Accepts, NodeProfile, Rates, Reach, StatedRates, host_of};
pub use resource::{Resource, TopologyError, Trunk};

use crate::NodeId;
use resource::{checked, insert_once};

/// The rate assigned to a broken link, in bytes per second: so low that every other path is faster.
const BROKEN: f64 = 1.0;

/// The planner's knowledge of the nodes at one moment.
#[derive(Clone, Debug, Default)]
pub struct Topology {
    nodes: BTreeMap<NodeId, NodeProfile>,
    encrypts_edges: bool,
    /// The region that a rack is in.
    regions: BTreeMap<String, String>,
    trunks: BTreeMap<String, Trunk>,
    pairs: BTreeMap<(NodeId, NodeId), f64>,
    /// Broken links; each is stored in both directions.
    broken: BTreeSet<(NodeId, NodeId)>,
    between: BTreeMap<(String, String), f64>,
    reserved: BTreeMap<Resource, u64>,
}

impl Topology {
    /// A topology without nodes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes all plans that are made from now on encrypt their edges.
    pub fn encrypt_edges(&mut self) {
        self.encrypts_edges = true;
    }

    /// Whether the edges of plans are encrypted.
    pub fn encrypts_edges(&self) -> bool {
        self.encrypts_edges
    }

    /// The name that a peer of `node` must find in the node's certificate; `None` if edges are not encrypted.
    ///
    /// A node without a known name gets an empty one, which no certificate carries: its edges fail rather
    /// than carry data in plain text.
    pub fn tls_name(&self, node: NodeId) -> Option<String> {
        let name = || self.get(node).map_or_else(String::new, |profile| profile.tls_name.clone());
        self.encrypts_edges.then(name)
    }

    /// Adds or replaces a node.
    pub fn set(&mut self, node: NodeId, profile: NodeProfile) {
        self.nodes.insert(node, profile);
    }

    /// Removes a node.
    pub fn remove(&mut self, node: NodeId) {
        self.nodes.remove(&node);
    }

    /// The profile of `node`.
    pub fn get(&self, node: NodeId) -> Option<&NodeProfile> {
        self.nodes.get(&node)
    }

    /// The profile of `node`, mutable.
    pub fn get_mut(&mut self, node: NodeId) -> Option<&mut NodeProfile> {
        self.nodes.get_mut(&node)
    }

    /// Sets which blocks may be placed on a node, if the node is known.
    pub fn set_accepts(&mut self, node: NodeId, accepts: Accepts) {
        if let Some(profile) = self.nodes.get_mut(&node) {
            profile.accepts = accepts;
        }
    }

    /// The rates of a node's ports and disk; [`Rates::default`] if the node is unknown.
    pub fn rates(&self, node: NodeId) -> Rates {
        self.get(node).map(|profile| profile.rates).unwrap_or_default()
    }

    /// Whether `node` is known and takes tasks.
    pub fn is_alive(&self, node: NodeId) -> bool {
        self.get(node).is_some_and(|profile| profile.alive)
    }

    /// Whether `node` is a known client. A client dials its peers and cannot be dialled.
    pub fn dials_out(&self, node: NodeId) -> bool {
        self.get(node).is_some_and(|profile| profile.reach == Reach::DialsOut)
    }

    /// The address of `node`'s data port, if it listens.
    pub fn address(&self, node: NodeId) -> Option<String> {
        self.get(node).and_then(|profile| profile.reach.address()).map(str::to_owned)
    }

    /// The node's name, or its number if it has none.
    pub fn name(&self, node: NodeId) -> String {
        self.get(node).map_or_else(|| node.to_string(), |profile| profile.name.clone())
    }

    /// All nodes, ascending.
    pub fn iter(&self) -> impl Iterator<Item = (NodeId, &NodeProfile)> {
        self.nodes.iter().map(|(&node, profile)| (node, profile))
    }
}

/// Links between nodes. Racks and regions share one namespace.
impl Topology {
    /// Removes all trunks, regions and links.
    pub fn clear_links(&mut self) {
        self.regions.clear();
        self.trunks.clear();
        self.pairs.clear();
        self.broken.clear();
        self.between.clear();
    }

    /// Sets the rates of a rack's or region's trunk, replacing earlier ones.
    ///
    /// # Errors
    ///
    /// [`TopologyError::Rate`] if a rate is negative or not a number. Zero is valid: no byte passes.
    pub fn set_trunk(&mut self, domain: &str, trunk: Trunk) -> Result<(), TopologyError> {
        checked(trunk.up, || format!("the trunk out of {domain}"))?;
        checked(trunk.down, || format!("the trunk into {domain}"))?;
        self.trunks.insert(domain.to_owned(), trunk);
        Ok(())
    }

    /// Puts a rack into a region.
    ///
    /// # Errors
    ///
    /// [`TopologyError::TwoRegions`] if the rack is already in another region.
    pub fn set_region(&mut self, rack: &str, region: &str) -> Result<(), TopologyError> {
        match self.regions.insert(rack.to_owned(), region.to_owned()) {
            Some(other) if other != region => {
                Err(TopologyError::TwoRegions { rack: rack.to_owned(), regions: [other, region.to_owned()] })
            }
            _ => Ok(()),
        }
    }

    /// Sets the rate of the link from one node to another in bytes per second. Other traffic of the two nodes
    /// does not share this rate.
    ///
    /// # Errors
    ///
    /// [`TopologyError`] if `rate` is negative or not a number, the nodes are the same, or the pair already
    /// has a different rate.
    pub fn set_pair(&mut self, from: NodeId, to: NodeId, rate: f64) -> Result<(), TopologyError> {
        let what = || format!("the link from {from} to {to}");
        if from == to {
            return Err(TopologyError::Itself { what: from.to_string() });
        }
        insert_once(&mut self.pairs, (from, to), checked(rate, what)?, what)
    }

    /// Marks the link between two nodes as broken. Its rate becomes so low that every other path is faster.
    /// Streams with no other path are relayed by a third node.
    pub fn break_link(&mut self, a: NodeId, b: NodeId) {
        let directions = [(a, b), (b, a)];
        self.pairs.extend(directions.map(|link| (link, BROKEN)));
        self.broken.extend(directions);
    }

    /// Chooses a relay for each broken link: the helper over which the path is fastest; among equals the
    /// least loaded. A link without a usable relay is absent from the result.
    pub(crate) fn relays(&self, avoid: &BTreeSet<NodeId>) -> BTreeMap<(NodeId, NodeId), NodeId> {
        let relay = |&(from, to): &(NodeId, NodeId)| {
            let helpers = self.iter().filter(|&(node, profile)| {
                let takes_part = profile.alive && profile.reach != Reach::DialsOut && !avoid.contains(&node);
                let is_whole = |link| !self.broken.contains(&link);
                takes_part && node != from && node != to && is_whole((from, node)) && is_whole((node, to))
            });
            let rate = |node| self.link_rate(from, node).min(self.link_rate(node, to));
            let best = helpers
                .min_by(|(a, one), (b, other)| rate(*b).total_cmp(&rate(*a)).then(one.load.cmp(&other.load)));
            best.map(|(node, _)| node)
        };
        self.broken.iter().filter_map(|link| Some((*link, relay(link)?))).collect()
    }

    /// Sets the total rate from the nodes of one rack or region to those of another, in bytes per second.
    ///
    /// # Errors
    ///
    /// As for [`set_pair`](Self::set_pair).
    pub fn set_between(&mut self, from: &str, to: &str, rate: f64) -> Result<(), TopologyError> {
        let what = || format!("the link from {from} to {to}");
        if from == to {
            return Err(TopologyError::Itself { what: from.to_owned() });
        }
        insert_once(&mut self.between, (from.to_owned(), to.to_owned()), checked(rate, what)?, what)
    }

    /// Whether the topology contains any limit other than the nodes' own ports and disks.
    pub fn has_links(&self) -> bool {
        !(self.trunks.is_empty() && self.pairs.is_empty() && self.between.is_empty())
    }

    /// Whether the topology contains a limit that several pairs of nodes share.
    pub fn has_trunks(&self) -> bool {
        !(self.trunks.is_empty() && self.between.is_empty())
    }

    /// The resources that a byte from one node to another passes, other than the two nodes' ports.
    pub fn between(&self, from: NodeId, to: NodeId) -> Vec<Resource> {
        let mut passed = Vec::new();
        if self.pairs.contains_key(&(from, to)) {
            passed.push(Resource::Pair(from, to));
        }
        if !self.has_trunks() {
            return passed;
        }
        let levels = self.domains(from).into_iter().zip(self.domains(to));
        for (from, to) in levels.filter(|(from, to)| from != to) {
            let trunk =
                |domain: &Option<&String>| domain.filter(|&name| self.trunks.contains_key(name)).cloned();
            passed.extend(trunk(&from).map(Resource::TrunkOut));
            passed.extend(trunk(&to).map(Resource::TrunkInto));
            if let (Some(from), Some(to)) = (from, to) {
                let pair = (from.clone(), to.clone());
                if self.between.contains_key(&pair) {
                    passed.push(Resource::Between(pair.0, pair.1));
                }
            }
        }
        passed
    }

    /// The rate of a resource in bytes per second; infinite if unknown. A disk's rate is the lower of its
    /// read and write rates.
    pub fn rate(&self, resource: &Resource) -> f64 {
        let trunk = |domain: &String, rate: fn(&Trunk) -> f64| self.trunks.get(domain).map(rate);
        match resource {
            Resource::Jobs(_) => f64::INFINITY,
            Resource::Uplink(id) => self.rates(*id).up,
            Resource::Downlink(id) => self.rates(*id).down,
            Resource::Disk(id) => self.rates(*id).disk(),
            Resource::Pair(from, to) => self.pairs.get(&(*from, *to)).copied().unwrap_or(f64::INFINITY),
            Resource::TrunkOut(domain) => trunk(domain, |trunk| trunk.up).unwrap_or(f64::INFINITY),
            Resource::TrunkInto(domain) => trunk(domain, |trunk| trunk.down).unwrap_or(f64::INFINITY),
            Resource::Between(from, to) => {
                self.between.get(&(from.clone(), to.clone())).copied().unwrap_or(f64::INFINITY)
            }
        }
    }

    /// The rate from one node to another in bytes per second, in the absence of other traffic.
    pub fn link_rate(&self, from: NodeId, to: NodeId) -> f64 {
        let ports = self.rate(&Resource::Uplink(from)).min(self.rate(&Resource::Downlink(to)));
        match self.has_links() {
            true => self.between(from, to).iter().map(|resource| self.rate(resource)).fold(ports, f64::min),
            false => ports,
        }
    }

    /// The rack of a node, if it is known.
    pub fn rack(&self, node: NodeId) -> Option<&String> {
        self.get(node)?.rack.as_ref()
    }

    /// The region of a rack, if it is known.
    pub fn region(&self, rack: &str) -> Option<&String> {
        self.regions.get(rack)
    }

    /// The known trunks of racks and regions.
    pub fn trunks(&self) -> impl Iterator<Item = (&String, Trunk)> {
        self.trunks.iter().map(|(name, &trunk)| (name, trunk))
    }

    /// The known rates between pairs of nodes.
    pub fn pairs(&self) -> impl Iterator<Item = (NodeId, NodeId, f64)> + '_ {
        self.pairs.iter().map(|(&(from, to), &rate)| (from, to, rate))
    }

    /// The known rates between pairs of racks or regions.
    pub fn links_between(&self) -> impl Iterator<Item = (&String, &String, f64)> {
        self.between.iter().map(|((from, to), &rate)| (from, to, rate))
    }

    /// The rack and the region of a node.
    pub(crate) fn domains(&self, node: NodeId) -> [Option<&String>; 2] {
        let rack = self.rack(node);
        [rack, rack.and_then(|rack| self.regions.get(rack))]
    }
}

/// Reservations of other repairs.
impl Topology {
    /// The bytes that other repairs have reserved on a resource.
    pub fn reserved(&self, resource: &Resource) -> u64 {
        self.reserved.get(resource).copied().unwrap_or(0)
    }

    /// Whether there are no reservations.
    pub fn is_free(&self) -> bool {
        self.reserved.is_empty()
    }

    /// Reserves `bytes` on a resource for another repair. Plans that are made later take them into account.
    pub fn reserve(&mut self, resource: Resource, bytes: u64) {
        *self.reserved.entry(resource).or_insert(0) += bytes;
    }

    /// Removes all reservations.
    pub fn clear_reserved(&mut self) {
        self.reserved.clear();
    }

    /// The time until the reserved bytes have passed both a node's uplink and its disk.
    pub(crate) fn busy(&self, node: NodeId) -> Duration {
        let until = |resource: Resource| match self.reserved(&resource) {
            0 => Duration::ZERO,
            bytes => {
                let seconds = bytes as f64 / self.rate(&resource);
                Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
            }
        };
        if self.is_free() {
            return Duration::ZERO;
        }
        until(Resource::Uplink(node)).max(until(Resource::Disk(node)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scene() -> Topology {
        let mut topology = Topology::new();
        for (node, rack) in [(1, Some("a")), (2, Some("a")), (3, Some("b")), (4, Some("c")), (5, None)] {
            let profile =
                NodeProfile { rack: rack.map(str::to_owned), ..NodeProfile::unknown(format!("h{node}")) };
            topology.set(NodeId(node), profile);
        }
        topology
    }

    #[test]
    fn edges_to_nodes_without_a_known_name_are_never_plain_where_edges_are_encrypted() {
        let mut topology = Topology::new();
        topology
            .set(NodeId(1), NodeProfile { tls_name: "h1.helper.mend".into(), ..NodeProfile::unknown("h1") });
        assert_eq!(topology.tls_name(NodeId(1)), None);
        topology.encrypt_edges();
        assert_eq!(topology.tls_name(NodeId(1)).as_deref(), Some("h1.helper.mend"));
        assert_eq!(topology.tls_name(NodeId(2)).as_deref(), Some(""));
    }

    #[test]
    fn a_byte_passes_what_lies_between() {
        let mut topology = scene();
        assert!(!topology.has_links());
        topology.set_trunk("a", Trunk { up: 50e6, down: 60e6 }).expect("rates");
        topology.set_trunk("west", Trunk { up: 20e6, down: 10e6 }).expect("rates");
        topology.set_region("a", "west").expect("its only one");
        topology.set_region("b", "west").expect("its only one");
        topology.set_region("c", "east").expect("its only one");
        topology.set_between("west", "east", 5e6).expect("a rate");
        topology.set_pair(NodeId(1), NodeId(2), 40e6).expect("a rate");
        let [a, west, east] = ["a", "west", "east"].map(str::to_owned);
        let between = |from, to| topology.between(NodeId(from), NodeId(to));
        assert_eq!(between(1, 2), [Resource::Pair(NodeId(1), NodeId(2))]);
        assert_eq!(between(2, 3), [Resource::TrunkOut(a.clone())]);
        let far = [
            Resource::TrunkOut(a.clone()),
            Resource::TrunkOut(west.clone()),
            Resource::Between(west.clone(), east),
        ];
        assert_eq!(between(2, 4), far);
        assert_eq!(between(5, 2), [Resource::TrunkInto(a), Resource::TrunkInto(west)]);
        let rates = [(1, 2, 40e6), (2, 1, 125e6), (2, 3, 50e6), (2, 4, 5e6), (5, 2, 10e6)];
        rates
            .iter()
            .for_each(|&(from, to, rate)| assert_eq!(topology.link_rate(NodeId(from), NodeId(to)), rate));
    }

    #[test]
    fn inconsistent_descriptions_are_refused() {
        let mut topology = scene();
        let text = |result: Result<(), TopologyError>| result.expect_err("refused").to_string();
        topology.set_pair(NodeId(1), NodeId(2), 40e6).expect("a rate");
        topology.set_pair(NodeId(1), NodeId(2), 40e6).expect("the same again");
        let two = text(topology.set_pair(NodeId(1), NodeId(2), 30e6));
        assert_eq!(
            two,
            "the link from n1 to n2 has two rates, 40000000 and 30000000 bytes per second: keep one of them"
        );
        assert!(text(topology.set_pair(NodeId(1), NodeId(1), 1.0)).contains("n1 to itself"));
        assert!(text(topology.set_between("a", "b", f64::NAN)).contains("NaN is not a rate"));
        assert!(text(topology.set_trunk("a", Trunk { up: 1.0, down: -1.0 })).contains("the trunk into a"));
        topology.set_region("a", "west").expect("its only one");
        assert!(text(topology.set_region("a", "east")).contains("rack a is in two regions, west and east"));
    }
}
