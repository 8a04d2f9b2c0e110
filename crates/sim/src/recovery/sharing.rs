//! A cap on the total sending rate of all nodes. The nodes share the cap in the same way as in the
//! coordinator.

use recovery::{Caps, Dealer, Scheduler, Unused};
use repair::{NodeId, Topology};

use super::flows::{Flows, ResourceNo};

/// Interval between adjustments of the shares, in seconds.
const DEAL_EVERY: f64 = 1.0;

/// The cap, and the share of each node.
#[derive(Debug)]
pub(super) struct Sharing {
    cap: f64,
    dealer: Dealer,
    uplinks: Vec<ResourceNo>,
    /// Rate of each uplink without a cap, in bytes per second.
    rate: f64,
    /// Bytes that each node has sent since the last adjustment.
    sent: Vec<f64>,
    began: f64,
}

impl Sharing {
    /// Shares a cap of `cap` bytes per second.
    pub fn new(
        cap: f64,
        topology: &Topology,
        uplinks: Vec<ResourceNo>,
        rate: f64,
        flows: &mut Flows,
    ) -> Self {
        let (dealer, sent) = (Dealer::default(), vec![0.0; uplinks.len()]);
        let mut sharing = Self { cap, dealer, sent, uplinks, rate, began: 0.0 };
        sharing.set_nodes(topology, flows);
        sharing
    }

    /// Handles a change in the set of live nodes.
    pub fn set_nodes(&mut self, topology: &Topology, flows: &mut Flows) {
        let caps = Caps { cluster: Some(self.cap), ..Caps::default() };
        let nodes = (0..self.uplinks.len()).map(|node| NodeId(node as u32));
        self.dealer.set(caps, nodes.filter_map(|node| Some((node, topology.get(node)?))));
        self.set_rates(flows);
    }

    /// Returns the time of the next adjustment, in seconds since the start.
    pub fn due(&self) -> f64 {
        self.began + DEAL_EVERY
    }

    /// Counts the bytes that jobs send at their current rates during the next `seconds` seconds.
    pub fn pass(&mut self, seconds: f64, flows: &mut Flows) {
        let used = flows.used();
        for (sent, &uplink) in self.sent.iter_mut().zip(&self.uplinks) {
            *sent += used[uplink] * seconds;
        }
    }

    /// Adjusts the shares if an adjustment is due.
    pub fn deal(&mut self, now: f64, scheduler: &Scheduler, flows: &mut Flows) {
        if now < self.due() {
            return;
        }
        let paces = self.dealer.paces();
        for (node, sent) in self.sent.iter_mut().enumerate() {
            let node = NodeId(node as u32);
            let share = paces.get(&node).and_then(|pace| pace.up).unwrap_or(f64::INFINITY);
            let up = Some(1.0 - std::mem::take(sent) / (share * (now - self.began)));
            self.dealer.note(node, Unused { up, down: None });
        }
        self.dealer.deal();
        self.dealer.tell_work(scheduler.under_way());
        self.began = now;
        self.set_rates(flows);
    }

    fn set_rates(&self, flows: &mut Flows) {
        for (node, pace) in self.dealer.paces() {
            let share = pace.up.unwrap_or(f64::INFINITY);
            flows.set_rate(self.uplinks[node.0 as usize], share.min(self.rate));
        }
    }
}
