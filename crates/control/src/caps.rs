//! Caps on what repairs may move: kept, dealt out to helpers as paces, and to the scheduler as budgets.
//!
//! While repairs run under a cap that helpers share, they are asked every second what they leave unused of their shares, and
//! it is dealt anew, by that and by what each has under way.

use std::collections::BTreeMap;
use std::time::Duration;

use repair::recovery::{Budget, Caps, Dealer, Pace, Unused};
use repair::wire::control::ToNode;
use repair::{NodeId, NodeProfile};
use serde_json::Value;
use stores::{RecordWrite, Write};

use super::Control;
use super::commands::answer;
use super::effect::Reply;
use super::jobs::Owner;
use super::storing::Then;
use crate::base::Base;
use crate::error::RequestError;
use crate::nodes::Nodes;
use views::{CapsRequest, CapsView};

/// The key of caps in the records.
const KEY: &str = "caps";
/// Shares have been used for so long when helpers are asked what they left,
const USED_FOR: Duration = Duration::from_millis(900);
/// and so much later they are dealt anew, by what was answered.
const ANSWERED_IN: Duration = Duration::from_millis(100);

/// Caps, and what helpers were told of them.
#[derive(Default)]
pub(crate) struct Capping {
    view: CapsView,
    dealer: Dealer,
    told: BTreeMap<NodeId, repair::Caps>,
    sharing: Sharing,
}

/// Where the dealing of common caps is.
#[derive(Clone, Copy, Default)]
enum Sharing {
    /// No repair runs, or nothing is common.
    #[default]
    Resting,
    /// Shares are used; helpers are asked then.
    Using { until: Duration },
    /// Helpers were asked what they left; what they say until then counts.
    Asked { until: Duration },
}

impl Control {
    /// Caps that an earlier coordinator kept.
    pub(crate) fn recall_caps(&mut self, records: &[(String, Value)]) {
        let Some((_, record)) = records.iter().find(|(key, _)| key == KEY) else { return };
        match serde_json::from_value(record.clone()) {
            Ok(view) => self.nodes.capping.view = view,
            Err(error) => tracing::warn!(%error, "caps that cannot be read are dropped"),
        }
    }

    /// Changes caps, once that is kept.
    pub(crate) fn change_caps(&mut self, request: &CapsRequest, reply: Reply<CapsView>) {
        match self.nodes.changed_caps(&self.base, request) {
            Ok(view) => {
                let record = serde_json::to_value(&view).expect("caps have string keys");
                let write = Write::Records(RecordWrite::Put(KEY.to_owned(), record));
                self.out.store(write, Then::Capped { view: Box::new(view), reply });
            }
            Err(error) => answer(reply, Err(error), &mut self.out),
        }
    }

    /// Caps are kept: they hold from now on.
    pub(crate) fn caps_changed(&mut self, view: CapsView) -> CapsView {
        tracing::info!(?view, "caps on repairs changed");
        let racks =
            self.nodes.capping.view.racks.keys().chain(view.racks.keys()).cloned().collect::<Vec<_>>();
        self.nodes.capping.view = view;
        racks.iter().for_each(|rack| self.tell_trunk(rack));
        self.nodes
            .live_helpers()
            .collect::<Vec<_>>()
            .into_iter()
            .for_each(|node| self.repairs.tell_node(facts!(self), node));
        self.deal_caps();
        self.nodes.caps_view()
    }

    /// Caps have changed, or the helpers that keep to them.
    pub(crate) fn deal_caps(&mut self) {
        let caps = self.nodes.caps(&self.base);
        let mut dealer = std::mem::take(&mut self.nodes.capping.dealer);
        dealer.set(caps, self.nodes.helper_profiles());
        self.nodes.capping.dealer = dealer;
        self.tell_paces();
    }

    /// Time has passed: deals anew what is common, as far as it is due.
    pub(crate) fn share_caps(&mut self) {
        let is_repair = |owner: &Owner| matches!(owner, Owner::Repair { .. });
        let runs = self.jobs.running.values().any(|running| is_repair(&running.owner));
        let is_shared =
            self.nodes.capping.view.cluster.is_some() || !self.nodes.capping.view.racks.is_empty();
        self.nodes.capping.sharing = match self.nodes.capping.sharing {
            Sharing::Resting if runs && is_shared => {
                // What they left while nothing ran says nothing: it is asked for and not heard.
                self.ask_for_unused();
                self.share_by_work();
                Sharing::Using { until: self.base.now + USED_FOR }
            }
            Sharing::Resting => return,
            _ if !runs || !is_shared => {
                self.nodes.capping.dealer.rest();
                self.tell_paces();
                Sharing::Resting
            }
            Sharing::Using { until } if until <= self.base.now => {
                self.ask_for_unused();
                Sharing::Asked { until: self.base.now + ANSWERED_IN }
            }
            Sharing::Asked { until } if until <= self.base.now => {
                self.nodes.capping.dealer.deal();
                self.share_by_work();
                Sharing::Using { until: self.base.now + USED_FOR }
            }
            waiting => waiting,
        };
    }

    fn share_by_work(&mut self) {
        self.nodes.capping.dealer.tell_work(self.repairs.scheduler.under_way());
        self.tell_paces();
    }

    fn ask_for_unused(&mut self) {
        self.nodes
            .live_helpers()
            .collect::<Vec<_>>()
            .into_iter()
            .for_each(|node| self.nodes.send(node, ToNode::Spare, &mut self.out));
    }

    /// A helper says which part of its shares it left, in thousandths.
    pub(crate) fn note_unused(&mut self, node: NodeId, up: Option<u16>, down: Option<u16>) {
        if let Sharing::Asked { .. } = self.nodes.capping.sharing {
            let part = |thousandths: Option<u16>| thousandths.map(|part| f64::from(part) / 1000.0);
            self.nodes.capping.dealer.note(node, Unused { up: part(up), down: part(down) });
        }
    }

    /// Tells helpers what they keep to, where that has changed.
    fn tell_paces(&mut self) {
        self.nodes.capping.told.retain(|node, _| self.nodes.peers.contains_key(node));
        for (node, pace) in self.nodes.capping.dealer.paces() {
            let rate = |rate: Option<f64>| rate.map(|rate| (rate as u64).max(1));
            let caps = repair::Caps {
                repairs_up: rate(pace.up),
                repairs_down: rate(pace.down),
                repairs_disk: rate(pace.disk),
                ..Default::default()
            };
            if self.nodes.capping.told.get(&node).copied().unwrap_or_default() != caps {
                self.nodes.capping.told.insert(node, caps);
                self.nodes.send(node, ToNode::Limits(caps), &mut self.out);
            }
        }
    }
}

impl Nodes {
    pub(crate) fn changed_caps(&self, base: &Base, request: &CapsRequest) -> Result<CapsView, RequestError> {
        let named = request.nodes.iter().chain(&request.disks).filter(|&(_, &rate)| rate > 0);
        named.map(|(name, _)| self.node_named(base, name)).collect::<Result<Vec<_>, _>>()?;
        self.check_racks(base, request)?;
        let mut view = if request.none { CapsView::default() } else { self.caps_view() };
        if request.cluster.is_some() {
            view.cluster = request.cluster.filter(|&rate| rate > 0);
        }
        change(&mut view.nodes, &request.nodes);
        change(&mut view.disks, &request.disks);
        change(&mut view.racks, &request.racks);
        Ok(view)
    }

    /// What repairs may have under way at a node.
    pub(crate) fn budget(&self, base: &Base, node: NodeId) -> Budget {
        let rates = self.topology.rates(node);
        let rates = self.paces(base).get(&node).map_or(rates, |pace| pace.slow(rates));
        Budget::at_rates(rates.up, rates.down, rates.disk())
    }

    /// The paces of helpers, if each has an even share of what is common.
    pub(crate) fn paces(&self, base: &Base) -> BTreeMap<NodeId, Pace> {
        self.caps(base).paces(self.helper_profiles())
    }

    pub(crate) fn caps(&self, base: &Base) -> Caps {
        let CapsView { cluster, nodes, disks, racks } = &self.capping.view;
        let by_node = |rates: &BTreeMap<String, u64>| {
            let known = rates
                .iter()
                .filter_map(|(name, &rate)| Some((self.node_named(base, name).ok()?, rate as f64)));
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

impl Nodes {
    pub(crate) fn caps_view(&self) -> CapsView {
        self.capping.view.clone()
    }

    fn helper_profiles(&self) -> impl Iterator<Item = (NodeId, &NodeProfile)> {
        self.live_helpers().filter_map(|node| Some((node, self.topology.get(node)?)))
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
