//! Stores the caps on repair traffic and distributes them: to helpers as paces (rate limits), and to the
//! scheduler as budgets.
//!
//! While repairs run under a cap that several helpers share, each helper reports every second how much of its
//! share it left unused. The cap is then redistributed according to these reports and to the work that each
//! helper has in flight.

use std::collections::BTreeMap;
use std::time::Duration;

use recovery::{Budget, Caps, Pace, Unused};
use repair::wire::control::ToNode;
use repair::{NodeId, NodeProfile};
use serde_json::Value;
use store_api::{RecordWrite, Write};

use crate::base::Base;
use crate::effect::Reply;
use crate::error::RequestError;
use crate::jobs::Jobs;
use crate::jobs::owner::Owner;
use crate::nodes::Nodes;
use crate::nodes::capping::{Capping, Sharing};
use crate::nodes::continuation::NodeThen;
use crate::out::{Out, answer};
use crate::signal::Signal;
use recovery::Scheduler;
use views::{CapsRequest, CapsView};

/// The record key of the caps.
const KEY: &str = "caps";
/// How long helpers use their shares before the coordinator asks which part they left unused.
const USED_FOR: Duration = Duration::from_millis(900);
/// How long the coordinator waits for the helpers' reports before it redistributes the shares.
const ANSWERED_IN: Duration = Duration::from_millis(100);

impl Capping {
    /// Restores the caps that an earlier coordinator recorded.
    pub(crate) fn recall(&mut self, records: &[(String, Value)]) {
        let Some((_, record)) = records.iter().find(|(key, _)| key == KEY) else { return };
        match serde_json::from_value(record.clone()) {
            Ok(view) => self.view = view,
            Err(error) => tracing::warn!(%error, "dropping unreadable caps"),
        }
    }

    /// Reports all capped or configured trunks to the scheduler.
    pub(crate) fn tell_trunks(&self, base: &Base, out: &mut Out) {
        let racks = self.view.racks.keys().chain(base.settings.network.trunks.keys());
        racks.for_each(|rack| out.tell(Signal::Trunk(rack.clone())));
    }

    /// Changes caps. They take effect when the write is durable.
    pub(crate) fn change(
        &mut self,
        (base, nodes): (&Base, &Nodes),
        request: &CapsRequest,
        reply: Reply<CapsView>,
        out: &mut Out,
    ) {
        match self.requested(base, nodes, request) {
            Ok(view) => {
                let record = serde_json::to_value(&view).expect("caps have string keys");
                let write = Write::Records(RecordWrite::Put(KEY.to_owned(), record));
                self.requested = view.clone();
                self.unwritten += 1;
                out.store(write, NodeThen::Capped { view: Box::new(view), reply });
            }
            Err(error) => answer(reply, Err(error), out),
        }
    }

    /// Handles the end of the write of a change. If it failed, changes that were requested meanwhile still include it.
    pub(crate) fn note_written(&mut self) {
        self.unwritten = self.unwritten.saturating_sub(1);
    }

    /// Puts caps into effect once they are durable.
    pub(crate) fn changed(&mut self, base: &Base, nodes: &Nodes, view: CapsView, out: &mut Out) -> CapsView {
        tracing::info!(?view, "caps on repairs changed");
        let racks = self.view.racks.keys().chain(view.racks.keys()).cloned().collect::<Vec<_>>();
        self.view = view;
        racks.iter().for_each(|rack| out.tell(Signal::Trunk(rack.to_owned())));
        nodes.live_helpers().for_each(|node| out.tell(Signal::Node(node)));
        self.deal(base, nodes, out);
        self.view()
    }

    /// Distributes caps after a change of the caps or of the connected helpers.
    pub(crate) fn deal(&mut self, base: &Base, nodes: &Nodes, out: &mut Out) {
        let caps = self.caps(base, nodes);
        self.dealer.set(caps, helper_profiles(nodes));
        self.tell_paces(nodes, out);
    }

    /// Advances the phases of redistributing shared caps.
    pub(crate) fn share(
        &mut self,
        (base, nodes): (&Base, &Nodes),
        jobs: &Jobs,
        scheduler: &Scheduler,
        out: &mut Out,
    ) {
        let is_repair = |owner: &Owner| matches!(owner, Owner::Repair { .. });
        let runs = jobs.running.values().any(|running| is_repair(&running.owner));
        let is_shared = self.view.cluster.is_some() || !self.view.racks.is_empty();
        self.sharing = match self.sharing {
            Sharing::Resting if runs && is_shared => {
                // The parts left unused while no repair ran mean nothing. This request makes helpers start a
                // new period; its answers are ignored.
                ask_for_unused(nodes, out);
                self.share_by_work(nodes, scheduler, out);
                Sharing::Using { until: base.now + USED_FOR }
            }
            Sharing::Resting => return,
            _ if !runs || !is_shared => {
                self.dealer.rest();
                self.tell_paces(nodes, out);
                Sharing::Resting
            }
            Sharing::Using { until } if until <= base.now => {
                ask_for_unused(nodes, out);
                Sharing::Asked { until: base.now + ANSWERED_IN }
            }
            Sharing::Asked { until } if until <= base.now => {
                self.dealer.deal();
                self.share_by_work(nodes, scheduler, out);
                Sharing::Using { until: base.now + USED_FOR }
            }
            waiting => waiting,
        };
    }

    fn share_by_work(&mut self, nodes: &Nodes, scheduler: &Scheduler, out: &mut Out) {
        self.dealer.tell_work(scheduler.under_way());
        self.tell_paces(nodes, out);
    }

    /// Records the unused part of a helper's shares, in thousandths, as the helper reports it.
    pub(crate) fn note_unused(&mut self, node: NodeId, up: Option<u16>, down: Option<u16>) {
        if let Sharing::Asked { .. } = self.sharing {
            let part = |thousandths: Option<u16>| thousandths.map(|part| f64::from(part) / 1000.0);
            self.dealer.note(node, Unused { up: part(up), down: part(down) });
        }
    }

    /// Sends each helper its pace, if the pace has changed.
    fn tell_paces(&mut self, nodes: &Nodes, out: &mut Out) {
        let Self { dealer, told, .. } = self;
        told.retain(|&node, _| nodes.is_connected(node));
        for (node, pace) in dealer.paces() {
            let rate = |rate: Option<f64>| rate.map(|rate| (rate as u64).max(1));
            let caps = repair::Caps {
                repairs_up: rate(pace.up),
                repairs_down: rate(pace.down),
                repairs_disk: rate(pace.disk),
                ..Default::default()
            };
            if told.get(&node).copied().unwrap_or_default() != caps {
                told.insert(node, caps);
                nodes.send(node, ToNode::Limits(caps), out);
            }
        }
    }
}

impl Capping {
    fn requested(&self, base: &Base, nodes: &Nodes, request: &CapsRequest) -> Result<CapsView, RequestError> {
        let named = request.nodes.iter().chain(&request.disks).filter(|&(_, &rate)| rate > 0);
        named.map(|(name, _)| nodes.node_named(base, name)).collect::<Result<Vec<_>, _>>()?;
        nodes.check_racks(base, request)?;
        let last = if self.unwritten > 0 { &self.requested } else { &self.view };
        let mut view = if request.none { CapsView::default() } else { last.clone() };
        if request.cluster.is_some() {
            view.cluster = request.cluster.filter(|&rate| rate > 0);
        }
        change(&mut view.nodes, &request.nodes);
        change(&mut view.disks, &request.disks);
        change(&mut view.racks, &request.racks);
        Ok(view)
    }

    /// Returns the budget for repair traffic in flight at a node.
    pub(crate) fn budget(&self, base: &Base, nodes: &Nodes, node: NodeId) -> Budget {
        let rates = nodes.topology.rates(node);
        let rates = self.paces(base, nodes).get(&node).map_or(rates, |pace| pace.slow(rates));
        Budget::at_rates(rates.up, rates.down, rates.disk())
    }

    /// Returns the paces that helpers would have if shared caps were split in proportion to link rates.
    pub(crate) fn paces(&self, base: &Base, nodes: &Nodes) -> BTreeMap<NodeId, Pace> {
        self.caps(base, nodes).paces(helper_profiles(nodes))
    }

    pub(crate) fn caps(&self, base: &Base, nodes: &Nodes) -> Caps {
        let CapsView { cluster, nodes: by_name, disks, racks } = &self.view;
        let by_node = |rates: &BTreeMap<String, u64>| {
            let known = rates
                .iter()
                .filter_map(|(name, &rate)| Some((nodes.node_named(base, name).ok()?, rate as f64)));
            known.collect()
        };
        Caps {
            cluster: cluster.map(|rate| rate as f64),
            nodes: by_node(by_name),
            disks: by_node(disks),
            racks: racks.iter().map(|(rack, &rate)| (rack.clone(), rate as f64)).collect(),
        }
    }

    /// Returns the caps for the API.
    pub(crate) fn view(&self) -> CapsView {
        self.view.clone()
    }
}

fn ask_for_unused(nodes: &Nodes, out: &mut Out) {
    nodes.live_helpers().for_each(|node| nodes.send(node, ToNode::Spare, out));
}

fn helper_profiles(nodes: &Nodes) -> impl Iterator<Item = (NodeId, &NodeProfile)> {
    nodes.live_helpers().filter_map(|node| Some((node, nodes.topology.get(node)?)))
}

/// Sets caps; a rate of 0 removes the cap.
fn change(rates: &mut BTreeMap<String, u64>, changes: &BTreeMap<String, u64>) {
    for (name, &rate) in changes {
        match rate {
            0 => drop(rates.remove(name)),
            rate => drop(rates.insert(name.clone(), rate)),
        }
    }
}
