//! The network as the planner and the scheduler see it: links and trunks from mend.toml, rates of nodes from
//! their own configuration and from measurements.

use std::collections::BTreeMap;

use cluster::Network;
use repair::{NodeId, NodeProfile, Reach, Topology, TopologyError, Trunk};

use crate::base::Base;
use crate::nodes::Nodes;
use crate::nodes::sorted;
use crate::out::Out;
use crate::signal::Signal;

impl Nodes {
    /// Encrypts the data edges of all new plans from now on.
    pub(crate) fn encrypt_edges(&mut self) {
        if !self.topology.encrypts_edges() {
            tracing::info!("data edges are encrypted");
            self.topology.encrypt_edges();
        }
    }

    /// Sets the links between the registered nodes in the topology.
    pub(crate) fn lay_links(&mut self, base: &Base) {
        let mut topology = std::mem::take(&mut self.topology);
        if let Err(error) = self.lay(base, &mut topology) {
            tracing::error!(%error, "ignoring a link of mend.toml");
        }
        self.topology = topology;
    }

    /// Reports the present rates of a node to the planner and the scheduler.
    pub(crate) fn tell_rates(&mut self, node: NodeId, out: &mut Out) {
        let (rates, knows_links) = (self.bandwidth.rates(node), self.bandwidth.knows_links(node));
        let Some(view) = self.topology.get_mut(node) else { return };
        view.knows_links = knows_links;
        if std::mem::replace(&mut view.rates, rates) == rates {
            return;
        }
        out.tell(Signal::Node(node));
    }

    /// Records the throughput of transfers at a helper's ports, as the helper reports it.
    pub(crate) fn note_seen(&mut self, base: &Base, node: NodeId, rates: [u64; 2], out: &mut Out) {
        if self.is_helper(node) {
            match self.bandwidth.see(node, rates, base.unix_ms) {
                true => self.tell_all_rates(out),
                false => self.tell_rates(node, out),
            }
        }
    }

    /// Records that a node held up a repair at this rate. From now on, the node is treated as slow.
    pub(crate) fn note_slow_node(&mut self, base: &Base, node: NodeId, rate: f64, out: &mut Out) {
        if self.is_helper(node) {
            tracing::warn!(helper = %self.name(node), bytes_per_s = rate as u64, "slow");
            self.bandwidth.slow(node, rate, base.unix_ms);
            self.tell_rates(node, out);
        }
    }

    /// Drops rates that are too old.
    pub(crate) fn expire_bandwidth(&mut self, base: &Base, out: &mut Out) {
        self.bandwidth.expire(base.unix_ms).into_iter().for_each(|node| self.tell_rates(node, out));
        self.tell_clients();
    }

    pub(crate) fn tell_all_rates(&mut self, out: &mut Out) {
        self.registry.ids().collect::<Vec<_>>().into_iter().for_each(|node| self.tell_rates(node, out));
        self.tell_clients();
    }

    /// Sets the rates of clients that stated no rates to the assumed rate.
    fn tell_clients(&mut self) {
        let assumed = self.bandwidth.assumed();
        let clients =
            self.topology.iter().filter(|(_, view)| view.reach == Reach::DialsOut && !view.knows_links);
        for client in clients.map(|(node, _)| node).collect::<Vec<_>>() {
            let rates = &mut self.topology.get_mut(client).expect("the client was just found").rates;
            (rates.up, rates.down) = (assumed, assumed);
        }
    }
}

impl Nodes {
    /// Sets the configured and measured links in a topology.
    pub(crate) fn lay(&self, base: &Base, topology: &mut Topology) -> Result<(), TopologyError> {
        let Network { regions, trunks, pairs, between } = &base.settings.network;
        topology.clear_links();
        regions.iter().try_for_each(|(rack, region)| topology.set_region(rack, region))?;
        for (place, [up, down]) in trunks {
            let unlimited = f64::INFINITY;
            let trunk = Trunk { up: up.unwrap_or(unlimited), down: down.unwrap_or(unlimited) };
            topology.set_trunk(place, trunk)?;
        }
        between.iter().try_for_each(|((from, to), &rate)| topology.set_between(from, to, rate))?;
        if pairs.is_empty() && self.bandwidth.pairs().next().is_none() {
            return Ok(());
        }
        let ends = ends(topology);
        let of = |name: &String| ends.get(name).map_or(&[][..], Vec::as_slice);
        let mut said: BTreeMap<(NodeId, NodeId), f64> =
            self.bandwidth.pairs().map(|(from, to, found)| ((from, to), found.rate)).collect();
        for ((from, to), &rate) in pairs {
            let all = of(from).iter().flat_map(|&from| of(to).iter().map(move |&to| (from, to)));
            said.extend(all.map(|pair| (pair, rate)));
        }
        let there = |node: &NodeId| topology.get(*node).is_some();
        said.retain(|(from, to), _| there(from) && there(to));
        said.into_iter().try_for_each(|((from, to), rate)| topology.set_pair(from, to, rate))
    }
}

/// Returns the names that a link in the configuration may use: each helper by its name, all clients under one
/// name.
fn ends(topology: &Topology) -> BTreeMap<String, Vec<NodeId>> {
    let mut ends: BTreeMap<String, Vec<NodeId>> = BTreeMap::new();
    let name = |profile: &NodeProfile| match profile.reach {
        Reach::DialsOut => cluster::CLIENT.to_owned(),
        Reach::Unknown | Reach::Listens(_) => profile.name.clone(),
    };
    topology.iter().for_each(|(node, profile)| ends.entry(name(profile)).or_default().push(node));
    ends
}

pub(crate) fn sorted_once(names: impl Iterator<Item = String>) -> Vec<String> {
    let mut names = sorted(names);
    names.dedup();
    names
}
