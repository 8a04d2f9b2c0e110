//! Caps on what repairs may move: kept, dealt out to helpers as paces, and to the scheduler as budgets.

use std::collections::BTreeMap;

use repair::NodeId;
use repair::recovery::{Budget, Caps, Pace};
use repair::wire::control::ToNode;
use serde_json::Value;
use stores::{RecordWrite, Write};

use super::Core;
use super::commands::{Reply, answer};
use super::storing::Then;
use crate::error::RequestError;
use views::{CapsRequest, CapsView};

/// The key of caps in the records.
const KEY: &str = "caps";

/// Caps, and what helpers were told of them.
#[derive(Default)]
pub(super) struct Capping {
    view: CapsView,
    told: BTreeMap<NodeId, repair::Caps>,
}

impl Core {
    /// Caps that an earlier coordinator kept.
    pub(super) fn recall_caps(&mut self, records: &[(String, Value)]) {
        let Some((_, record)) = records.iter().find(|(key, _)| key == KEY) else { return };
        match serde_json::from_value(record.clone()) {
            Ok(view) => self.capping.view = view,
            Err(error) => tracing::warn!(%error, "caps that cannot be read are dropped"),
        }
    }

    pub(super) fn caps_view(&self) -> CapsView {
        self.capping.view.clone()
    }

    /// Changes caps, once that is kept.
    pub(super) fn change_caps(&mut self, request: &CapsRequest, reply: Reply<CapsView>) {
        match self.changed_caps(request) {
            Ok(view) => {
                let record = serde_json::to_value(&view).expect("caps have string keys");
                let write = Write::Records(RecordWrite::Put(KEY.to_owned(), record));
                self.store(write, Then::Capped { view: Box::new(view), reply });
            }
            Err(error) => answer(reply, Err(error)),
        }
    }

    fn changed_caps(&self, request: &CapsRequest) -> Result<CapsView, RequestError> {
        let named = request.nodes.iter().chain(&request.disks).filter(|&(_, &rate)| rate > 0);
        named.map(|(name, _)| self.node_named(name)).collect::<Result<Vec<_>, _>>()?;
        let mut view = if request.none { CapsView::default() } else { self.caps_view() };
        if request.cluster.is_some() {
            view.cluster = request.cluster.filter(|&rate| rate > 0);
        }
        change(&mut view.nodes, &request.nodes);
        change(&mut view.disks, &request.disks);
        change(&mut view.racks, &request.racks);
        Ok(view)
    }

    /// Caps are kept: they hold from now on.
    pub(super) fn caps_changed(&mut self, view: CapsView) -> CapsView {
        tracing::info!(?view, "caps on repairs changed");
        let racks = self.capping.view.racks.keys().chain(view.racks.keys()).cloned().collect::<Vec<_>>();
        self.capping.view = view;
        racks.iter().for_each(|rack| self.tell_trunk(rack));
        self.live_helpers().collect::<Vec<_>>().into_iter().for_each(|node| self.tell_node(node));
        self.deal_caps();
        self.caps_view()
    }

    /// Tells helpers what they keep to, where that has changed.
    pub(super) fn deal_caps(&mut self) {
        self.capping.told.retain(|node, _| self.peers.contains_key(node));
        for (node, pace) in self.paces() {
            let rate = |rate: Option<f64>| rate.map(|rate| (rate as u64).max(1));
            let caps = repair::Caps {
                repairs: rate(pace.link),
                repairs_disk: rate(pace.disk),
                ..Default::default()
            };
            if self.capping.told.get(&node).copied().unwrap_or_default() != caps {
                self.capping.told.insert(node, caps);
                self.send(node, ToNode::Limits(caps));
            }
        }
    }

    /// What repairs may have under way at a node.
    pub(super) fn budget(&self, node: NodeId) -> Budget {
        let rates = self.topology.rates(node);
        let rates = self.paces().get(&node).map_or(rates, |pace| pace.slow(rates));
        Budget::at_rates(rates.up, rates.down, rates.disk())
    }

    pub(super) fn paces(&self) -> BTreeMap<NodeId, Pace> {
        let helpers = self.live_helpers().filter_map(|node| Some((node, self.topology.get(node)?)));
        let helpers: Vec<_> = helpers.collect();
        self.caps().paces(helpers.into_iter())
    }

    pub(super) fn caps(&self) -> Caps {
        let CapsView { cluster, nodes, disks, racks } = &self.capping.view;
        let by_node = |rates: &BTreeMap<String, u64>| {
            let known =
                rates.iter().filter_map(|(name, &rate)| Some((self.node_named(name).ok()?, rate as f64)));
            known.collect()
        };
        Caps {
            cluster: cluster.map(|rate| rate as f64),
            nodes: by_node(nodes),
            disks: by_node(disks),
            racks: racks.iter().map(|(rack, &rate)| (rack.clone(), rate as f64)).collect(),
        }
    }
}

/// Sets rates; one of 0 takes a cap away.
fn change(rates: &mut BTreeMap<String, u64>, changes: &BTreeMap<String, u64>) {
    for (name, &rate) in changes {
        match rate {
            0 => drop(rates.remove(name)),
            rate => drop(rates.insert(name.clone(), rate)),
        }
    }
}
