//! The API's views of nodes, links and settings.

use cluster::Network;
use repair::NodeId;
use views::{LinkView, NodeRates, PlaceView, RateSource, RateView, SettingsView, TopologyView};

use crate::facts::Facts;
use crate::nodes::network::sorted_once;
use crate::nodes::sorted;

pub(crate) fn topology_view(facts: Facts<'_>) -> TopologyView {
    let mut nodes: Vec<NodeRates> = facts.nodes.registry.ids().map(|node| node_rates(facts, node)).collect();
    nodes.sort_by(|a, b| views::natural(&a.node, &b.node));
    let place = |name: &String, region: Option<String>, inside: &dyn Fn(&NodeRates) -> bool| {
        let trunk = facts.base.settings.network.trunks.get(name).copied().unwrap_or_default();
        let [up, down] = trunk.map(|rate| rate.map(|rate| rate as u64));
        let nodes = sorted(nodes.iter().filter(|node| inside(node)).map(|node| node.node.clone()));
        PlaceView { name: name.clone(), region, up_bytes_per_s: up, down_bytes_per_s: down, nodes }
    };
    let names = |of: &dyn Fn(&NodeRates) -> Option<String>| sorted_once(nodes.iter().filter_map(of));
    let rack = |name: &String| {
        let region = facts.base.settings.network.regions.get(name).cloned();
        place(name, region, &|node| node.rack.as_ref() == Some(name))
    };
    let region = |name: &String| place(name, None, &|node| node.region.as_ref() == Some(name));
    TopologyView {
        racks: names(&|node| node.rack.clone()).iter().map(rack).collect(),
        regions: names(&|node| node.region.clone()).iter().map(region).collect(),
        links: link_views(facts),
        nodes,
    }
}

fn node_rates(facts: Facts<'_>, node: NodeId) -> NodeRates {
    let [uplink, downlink, disk_read, disk_write] = facts.nodes.bandwidth.views(node);
    let [seen_up_bytes_per_s, seen_down_bytes_per_s] = facts.nodes.bandwidth.seen(node);
    let rack = facts.nodes.topology.rack(node).cloned();
    NodeRates {
        node: facts.nodes.name(node),
        up: facts.nodes.is_connected(node),
        region: rack.as_ref().and_then(|rack| facts.base.settings.network.regions.get(rack)).cloned(),
        rack,
        uplink,
        downlink,
        disk_read,
        disk_write,
        seen_up_bytes_per_s,
        seen_down_bytes_per_s,
    }
}

fn link_views(facts: Facts<'_>) -> Vec<LinkView> {
    let Network { pairs, between, .. } = &facts.base.settings.network;
    let configured = pairs.iter().chain(between).map(|((from, to), &rate)| {
        let rate = RateView { bytes_per_s: rate as u64, source: RateSource::Configured, since_unix_ms: None };
        LinkView { from: from.clone(), to: to.clone(), rate }
    });
    let measured = facts.nodes.bandwidth.pairs().map(|(from, to, found)| {
        let since_unix_ms = Some(found.at_unix_ms);
        let rate = RateView { bytes_per_s: found.rate as u64, source: RateSource::Measured, since_unix_ms };
        LinkView { from: facts.nodes.name(from), to: facts.nodes.name(to), rate }
    });
    let measured = measured.filter(|link| !pairs.contains_key(&(link.from.clone(), link.to.clone())));
    let mut links: Vec<LinkView> = configured.chain(measured).collect();
    links.sort_by(|a, b| views::natural(&a.from, &b.from).then_with(|| views::natural(&a.to, &b.to)));
    links
}

pub(crate) fn settings_view(facts: Facts<'_>) -> SettingsView {
    let after = facts.nodes.repair_after(facts.base);
    SettingsView {
        repair_after: after.to_string(),
        repair_after_ms: after.time().map(|time| time.as_millis() as u64),
        configured_repair_after: facts.base.settings.repair_after.to_string(),
    }
}
