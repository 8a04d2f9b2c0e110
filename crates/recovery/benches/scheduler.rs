//! Measures the scheduler of many repairs with 1,000 helpers and 100,000 stripes of RS(14,10), each of which
//! has lost block 0.
//!
//! All stripes are queued at first. Then jobs end one after another. Between them, nodes send heartbeats, and
//! now and then a node goes down and returns. Each started job is planned with the real planner. The
//! planner's time is shown separately. `cargo bench -p recovery --bench scheduler` takes some seconds;
//! `RECOVERY_STRIPES` and `RECOVERY_NODES` change the size.

// Benchmarks measure time, which the crate's lints forbid elsewhere.
#![allow(clippy::disallowed_methods)]

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use codes::{Code, CodeSpec};
use recovery::{
    Action, BlockFacts, Budget, CopyState, Kind, Limits, Loads, NewItem, NodeFacts, Proposal, RepairId,
    RepairSpec, Scheduler,
};
use repair::{
    Accepts, BlockId, Chunking, JobId, NodeId, NodeProfile, PlanRequest, Policy, Scheme, Stripe, StripeBlock,
    StripeId, Topology, plan,
};

const BLOCK_BYTES: u64 = 64 << 20;
const REPAIR: RepairId = RepairId(1);
/// The number of jobs that end in the measured part.
const ENDS: usize = 20_000;
/// The number of heartbeats between the ends of two jobs.
const HEARTBEATS: usize = 8;
/// Each time this many jobs have ended, a node goes down and returns at once.
const ENDS_PER_DEATH: usize = 1_000;

struct Bench {
    scheduler: Scheduler,
    code: Arc<dyn Code>,
    topology: Topology,
    holders: Vec<Vec<u32>>,
    running: VecDeque<Proposal>,
    nodes: u32,
    jobs: u64,
    planning: Duration,
    events: u64,
    longest: Duration,
}

fn main() {
    let size =
        |name: &str, usual: u32| std::env::var(name).map_or(usual, |text| text.parse().expect("a number"));
    let (nodes, stripes) = (size("RECOVERY_NODES", 1_000), size("RECOVERY_STRIPES", 100_000));
    let mut bench = Bench::new(nodes, stripes);
    let begun = Instant::now();
    bench.queue(stripes);
    let queued = begun.elapsed();
    let begun = Instant::now();
    bench.work();
    let (filled, planned, at_once) = (begun.elapsed(), bench.planning, bench.running.len());
    (bench.planning, bench.events, bench.longest) = (Duration::ZERO, 0, Duration::ZERO);
    let begun = Instant::now();
    let ends = bench.run();
    let ran = begun.elapsed() - bench.planning;
    println!("{nodes} helpers, {stripes} stripes of rs-14-10");
    println!("queued in {:.2} s ({:.1} us each)", queued.as_secs_f64(), micros(queued) / f64::from(stripes));
    println!(
        "first {at_once} jobs started in {:.1} ms, and {:.1} ms of planning",
        (filled - planned).as_secs_f64() * 1e3,
        planned.as_secs_f64() * 1e3
    );
    println!(
        "{} events of {ends} jobs: {:.2} us each in the mean, the longest {:.1} us; planning {:.1} us for each start",
        bench.events,
        micros(ran) / bench.events as f64,
        micros(bench.longest),
        micros(bench.planning) / ends as f64
    );
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

impl Bench {
    fn new(nodes: u32, stripes: u32) -> Self {
        let mut scheduler = Scheduler::new(Limits::default());
        let mut topology = Topology::new();
        for node in (0..nodes).map(NodeId) {
            let mut view = NodeProfile::helper(node.to_string(), "h:1");
            view.rack = Some(format!("r{}", node.0 / 40));
            let facts = NodeFacts {
                alive: true,
                rack: view.rack.clone(),
                host: None,
                free_bytes: 1 << 44,
                blocks: 1400,
                budget: Budget::of(&view),
                accepts: Accepts::All,
            };
            scheduler.set_node(node, facts);
            topology.set(node, view);
        }
        let mut state = 7u64;
        let mut random = move |below: u32| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) as u32 % below
        };
        let mut spread = |_| {
            let mut chosen: Vec<u32> = Vec::with_capacity(14);
            while chosen.len() < 14 {
                let node = random(nodes);
                if !chosen.contains(&node) {
                    chosen.push(node);
                }
            }
            chosen
        };
        Self {
            scheduler,
            code: "rs-14-10".parse::<CodeSpec>().expect("a code's name").build().expect("a code"),
            topology,
            holders: (0..stripes).map(&mut spread).collect(),
            running: VecDeque::new(),
            nodes,
            jobs: 0,
            planning: Duration::ZERO,
            events: 0,
            longest: Duration::ZERO,
        }
    }

    fn queue(&mut self, stripes: u32) {
        self.scheduler.open(REPAIR, RepairSpec::default());
        for stripe in 0..stripes {
            let facts = |(index, &node): (usize, &u32)| BlockFacts {
                node: Some(NodeId(node)),
                copy: if index > 0 { CopyState::Good } else { CopyState::Bad },
            };
            let new = NewItem {
                stripe: StripeId(stripe.to_string()),
                code: self.code.clone(),
                block_bytes: BLOCK_BYTES,
                blocks: self.holders[stripe as usize].iter().enumerate().map(facts).collect(),
                kind: Kind::Reconstruct,
                only: Vec::new(),
            };
            self.scheduler.push(REPAIR, new);
        }
        self.scheduler.close(REPAIR);
    }

    /// Passes one event to the scheduler and handles its consequences.
    fn event(&mut self, event: impl FnOnce(&mut Scheduler)) {
        let (begun, planned) = (Instant::now(), self.planning);
        event(&mut self.scheduler);
        self.work();
        self.events += 1;
        self.longest = self.longest.max(begun.elapsed() - (self.planning - planned));
    }

    fn work(&mut self) {
        while let Some(action) = self.scheduler.poll(Duration::ZERO) {
            let Action::Propose(proposal) = action else { continue };
            let begun = Instant::now();
            let loads = self.plan(&proposal);
            self.planning += begun.elapsed();
            self.jobs += 1;
            if self.scheduler.admit(proposal.item, JobId(self.jobs), &loads).is_ok() {
                self.running.push_back(proposal);
            }
        }
    }

    fn plan(&self, proposal: &Proposal) -> Loads {
        let number: usize = proposal.stripe.0.parse().expect("stripes are numbers");
        let block = |(index, &node): (usize, &u32)| StripeBlock {
            id: BlockId(format!("{number}.{index}")),
            bytes: BLOCK_BYTES,
            holder: (index > 0).then_some(NodeId(node)),
            digest: None,
        };
        let stripe = Stripe {
            id: proposal.stripe.clone(),
            code: self.code.clone(),
            chunking: Chunking::whole(&*self.code, BLOCK_BYTES),
            blocks: self.holders[number].iter().enumerate().map(block).collect(),
            label: None,
        };
        let policy =
            Policy { scheme: Scheme::Pipelined, prefer: proposal.helpers.clone(), ..Policy::default() };
        let request = PlanRequest {
            wanted: proposal.wanted.clone(),
            window: 0..BLOCK_BYTES,
            sub_blocks: None,
            resume: None,
            policy,
        };
        Loads::of(&plan(&stripe, &request, &self.topology).expect("it can be repaired"), true)
    }

    fn run(&mut self) -> usize {
        for end in 0..ENDS {
            for heartbeat in 0..HEARTBEATS {
                let node = NodeId(((end * HEARTBEATS + heartbeat) % self.nodes as usize) as u32);
                let free = (1 << 44) - (end as u64 % 7);
                self.event(|scheduler| scheduler.handle_space(node, 1400, free));
            }
            let Some(done) = self.running.pop_front() else { return end };
            for wanted in &done.wanted {
                let facts = BlockFacts::good_on(wanted.requestor);
                self.event(|scheduler| scheduler.handle_block(&done.stripe, wanted.block, facts));
            }
            self.event(|scheduler| scheduler.handle_done(done.item, Duration::ZERO));
            if end % ENDS_PER_DEATH == 0 {
                let node = NodeId((end / ENDS_PER_DEATH) as u32);
                // No plan is made while the node is away, because this benchmark's topology does not track
                // deaths.
                let scheduler = &mut self.scheduler;
                let begun = Instant::now();
                scheduler.handle_node(node, false);
                scheduler.handle_node(node, true);
                self.events += 2;
                self.longest = self.longest.max(begun.elapsed());
            }
        }
        ENDS
    }
}
