//! A scheduler with a few nodes and stripes. [`SchedulerTest`] drives it as the coordinator does. Tests decide when
//! jobs end.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use codes::{BlockIndex, Code, CodeSpec};
use recovery::{
    Action, BlockFacts, Budget, CopyState, End, HelperPolicy, ItemId, ItemState, Kind, Limits, Loads,
    NewItem, NodeFacts, NodeLoad, Placement, Proposal, RepairId, RepairSpec, Scheduler,
};
use repair::{Accepts, JobId, NodeId, Resource, StripeId};

pub const BLOCK: u64 = 100;
pub const REPAIR: RepairId = RepairId(1);

pub struct SchedulerTest {
    pub scheduler: Scheduler,
    pub code: Arc<dyn Code>,
    pub now: Duration,
    pub running: BTreeMap<JobId, Proposal>,
    pub ended: Vec<(String, End)>,
    pub over: Vec<RepairId>,
    pub surplus: Vec<(String, u16, u32)>,
    pub cancelled: Vec<String>,
    pub items: BTreeMap<String, ItemId>,
    jobs: u64,
}

pub fn facts() -> NodeFacts {
    NodeFacts {
        alive: true,
        rack: None,
        host: None,
        free_bytes: 1 << 40,
        blocks: 0,
        budget: Budget::jobs(2),
        accepts: Accepts::All,
    }
}

/// Returns the load of a chain through the first k helpers.
pub fn chain(proposal: &Proposal, data_blocks: usize) -> Loads {
    let copies = matches!(proposal.kind, Kind::Migrate { .. });
    let count = if copies { 1 } else { data_blocks };
    let helpers = &proposal.helpers[..count.min(proposal.helpers.len())];
    let mut nodes: BTreeMap<NodeId, NodeLoad> = BTreeMap::new();
    let mut links = Vec::new();
    let none =
        |node| NodeLoad { node, jobs: 1, sent_bytes: 0, received_bytes: 0, read_bytes: 0, stored_bytes: 0 };
    for (at, &node) in helpers.iter().enumerate() {
        let load = nodes.entry(node).or_insert_with(|| none(node));
        load.sent_bytes += BLOCK;
        load.read_bytes += BLOCK;
        if at > 0 {
            load.received_bytes += BLOCK;
            links.push((helpers[at - 1], node, BLOCK));
        }
    }
    for wanted in &proposal.wanted {
        let load = nodes.entry(wanted.requestor).or_insert_with(|| none(wanted.requestor));
        load.received_bytes += BLOCK;
        load.stored_bytes += BLOCK;
        links.extend(helpers.last().map(|&last| (last, wanted.requestor, BLOCK)));
    }
    Loads { nodes: nodes.into_values().collect(), links }
}

impl SchedulerTest {
    /// Creates nodes n1, n2, … with room for two jobs each, and stripes of code rs-4-2.
    pub fn new(nodes: u32) -> Self {
        Self::with(nodes, Limits::default(), |_| facts())
    }

    /// Like [`new`](Self::new), with the facts that `facts` returns. Budgets are not increased, even if they
    /// have room for few blocks.
    pub fn with(nodes: u32, limits: Limits, facts: impl Fn(u32) -> NodeFacts) -> Self {
        let mut scheduler = Scheduler::new(Limits { blocks_ahead: 0, ..limits });
        (1..=nodes).for_each(|node| scheduler.set_node(NodeId(node), facts(node)));
        Self {
            scheduler,
            code: "rs-4-2".parse::<CodeSpec>().unwrap().build().unwrap(),
            now: Duration::ZERO,
            running: BTreeMap::new(),
            ended: Vec::new(),
            over: Vec::new(),
            surplus: Vec::new(),
            cancelled: Vec::new(),
            items: BTreeMap::new(),
            jobs: 0,
        }
    }

    pub fn new_item(&self, stripe: &str, nodes: [u32; 4]) -> NewItem {
        let good_on = |node| BlockFacts::good_on(NodeId(node));
        NewItem {
            stripe: StripeId(stripe.into()),
            code: self.code.clone(),
            block_bytes: BLOCK,
            blocks: nodes.map(good_on).to_vec(),
            kind: Kind::Reconstruct,
            only: Vec::new(),
        }
    }

    /// Opens a repair of stripes, given by their names and nodes.
    pub fn repair(&mut self, id: RepairId, stripes: &[(&str, [u32; 4])]) {
        // With this policy, each job is one chain of whole blocks over the nodes with the most free budget.
        // Other policies have tests of their own.
        self.scheduler.open(id, RepairSpec { helpers: HelperPolicy::FreeBudget, ..RepairSpec::default() });
        for &(stripe, nodes) in stripes {
            let item = self.scheduler.push(id, self.new_item(stripe, nodes));
            self.items.insert(stripe.into(), item);
        }
        self.scheduler.close(id);
    }

    pub fn kill(&mut self, node: u32) {
        self.scheduler.handle_node(NodeId(node), false);
    }

    pub fn start(&mut self, node: u32) {
        self.scheduler.handle_node(NodeId(node), true);
    }

    /// Starts all stripes that can start, and returns them in the order of their start.
    pub fn work(&mut self) -> Vec<String> {
        let mut started = Vec::new();
        while let Some(action) = self.scheduler.poll(self.now) {
            match action {
                Action::Propose(proposal) => {
                    let stripe = proposal.stripe.to_string();
                    if self.admit(proposal).is_ok() {
                        started.push(stripe);
                    }
                }
                Action::CancelJob { job } => {
                    let proposal = self.running.remove(&job).unwrap();
                    self.cancelled.push(proposal.stripe.to_string());
                    self.scheduler.handle_cancelled(proposal.item);
                }
                Action::DropSurplus { stripe, block, node } => {
                    self.surplus.push((stripe.to_string(), block.0, node.0));
                }
                Action::ItemEnded { stripe, end, .. } => self.ended.push((stripe.to_string(), end)),
                Action::RepairEnded { repair } => self.over.push(repair),
            }
        }
        started
    }

    fn admit(&mut self, proposal: Proposal) -> Result<(), Option<Resource>> {
        if proposal.wanted.is_empty() {
            self.scheduler.decline(proposal.item, End::Failed);
            return Err(None);
        }
        self.jobs += 1;
        let loads = chain(&proposal, self.code.data_blocks());
        self.scheduler.admit(proposal.item, JobId(self.jobs), &loads)?;
        self.running.insert(JobId(self.jobs), proposal);
        Ok(())
    }

    pub fn proposal(&self, stripe: &str) -> &Proposal {
        self.running.values().find(|proposal| proposal.stripe.0 == stripe).unwrap()
    }

    fn take(&mut self, stripe: &str) -> Proposal {
        let (&job, _) = self.running.iter().find(|(_, proposal)| proposal.stripe.0 == stripe).unwrap();
        self.running.remove(&job).unwrap()
    }

    /// Ends the job of a stripe with success, after it has published all its blocks.
    pub fn succeed(&mut self, stripe: &str) {
        let proposal = self.take(stripe);
        for wanted in &proposal.wanted {
            let facts = BlockFacts::good_on(wanted.requestor);
            self.scheduler.handle_block(&proposal.stripe, wanted.block, facts);
        }
        self.scheduler.handle_done(proposal.item, self.now);
    }

    pub fn fail(&mut self, stripe: &str, failure: recovery::Failure) {
        let proposal = self.take(stripe);
        self.scheduler.handle_failed(proposal.item, failure, self.now);
    }

    /// Ends the job of a stripe after it was cancelled.
    pub fn cancel(&mut self, stripe: &str) {
        let proposal = self.take(stripe);
        self.scheduler.handle_cancelled(proposal.item);
    }

    pub fn lose(&mut self, stripe: &str, block: u16, node: u32) {
        let facts = BlockFacts { node: Some(NodeId(node)), copy: CopyState::Bad };
        self.scheduler.handle_block(&StripeId(stripe.into()), BlockIndex(block), facts);
    }

    pub fn state(&self, stripe: &str) -> ItemState {
        self.scheduler.state(self.items[stripe])
    }

    pub fn place(&mut self, stripe: &str, barred: &[u32]) -> Placement {
        let barred: Vec<NodeId> = barred.iter().copied().map(NodeId).collect();
        self.scheduler.place(self.items[stripe], &barred)
    }
}

/// Returns the nodes that get blocks.
pub fn requestors(proposal: &Proposal) -> Vec<u32> {
    proposal.wanted.iter().map(|wanted| wanted.requestor.0).collect()
}
