//! Plans as compact text and as a machine-readable summary. The same plan always gives the same text, so that
//! two plans can be compared line by line.

use std::fmt;

use codes::{BlockIndex, SubBlock};
use serde::Serialize;

use crate::{
    Cost, Dealing, Input, NodeId, Output, Pacing, Plan, Scheme, SliceSet, StripeId, Summand, Task, Topology,
};

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        PlanText { plan: self, topology: None }.fmt(f)
    }
}

impl Plan {
    /// The plan as text, with the names that `topology` gives to nodes.
    pub fn display_with<'a>(&'a self, topology: &'a Topology) -> PlanText<'a> {
        PlanText { plan: self, topology: Some(topology) }
    }

    /// The plan as a machine-readable summary.
    pub fn summary(&self) -> PlanSummary<'_> {
        let texts = PlanText { plan: self, topology: None };
        let lanes = (0..self.lanes.len()).map(|lane| LaneSummary {
            slices: texts.share(lane),
            hops: self.lanes[lane].hops,
            tasks: &self.lanes[lane].tasks,
        });
        PlanSummary {
            scheme: self.scheme,
            pacing: self.pacing,
            code: self.code.to_string(),
            stripe: &self.stripe,
            outputs: &self.outputs,
            helpers: self.helpers(),
            window: [self.geometry.window.start, self.geometry.window.end],
            slice_bytes: self.geometry.slice_bytes,
            slices: &self.slices,
            dealing: &self.dealing,
            lanes: lanes.collect(),
            cost: self.cost(),
        }
    }

    /// The nodes that read blocks, ascending.
    fn helpers(&self) -> Vec<NodeId> {
        let mut helpers: Vec<NodeId> =
            self.tasks().filter(|task| !task.reads.is_empty()).map(|task| task.node).collect();
        helpers.sort_unstable();
        helpers.dedup();
        helpers
    }
}

/// A machine-readable summary of a plan.
#[derive(Clone, Debug, Serialize)]
pub struct PlanSummary<'a> {
    /// The scheme that the plan follows.
    pub scheme: Scheme,
    /// How the plan's nodes overlap their work on slices.
    pub pacing: Pacing,
    /// The stripe's code.
    pub code: String,
    /// The stripe.
    pub stripe: &'a StripeId,
    /// The sub-blocks delivered, with their requestors.
    pub outputs: &'a [Output],
    /// The nodes that read blocks.
    pub helpers: Vec<NodeId>,
    /// The window in each sub-block: its first offset and its end (exclusive).
    pub window: [u64; 2],
    /// Bytes of a slice.
    pub slice_bytes: u32,
    /// The slices that are moved.
    pub slices: &'a SliceSet,
    /// The weights by which slices are dealt to lanes.
    pub dealing: &'a Dealing,
    /// The routes.
    pub lanes: Vec<LaneSummary<'a>>,
    /// The cost of the plan.
    pub cost: Cost,
}

/// One route of a [`PlanSummary`].
#[derive(Clone, Debug, Serialize)]
pub struct LaneSummary<'a> {
    /// The slices that the lane carries, as text.
    pub slices: String,
    /// The number of streams in the longest chain from a reader to a requestor.
    pub hops: u32,
    /// The task of each node.
    pub tasks: &'a [Task],
}

/// If a round of the dealing is longer than this, the text gives the number of a lane's slices per round
/// instead of listing their positions.
const LISTED_POSITIONS: u32 = 32;

/// A plan as text; see [`Plan::display_with`].
#[derive(Clone, Copy, Debug)]
pub struct PlanText<'a> {
    plan: &'a Plan,
    topology: Option<&'a Topology>,
}

impl fmt::Display for PlanText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write_head(f)?;
        self.write_window(f)?;
        for (number, lane) in self.plan.lanes.iter().enumerate() {
            let hops = count(u64::from(lane.hops), "hop");
            writeln!(f, "lane {number} ({}, {hops})", self.share(number))?;
            lane.tasks.iter().try_for_each(|task| self.write_task(f, task))?;
        }
        self.write_cost(f)
    }
}

impl PlanText<'_> {
    /// Writes a line such as `pipelined rs-14-10 stripe 17: b3 to n20, b5 to n21`.
    fn write_head(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let Plan { scheme, code, stripe, pacing, .. } = self.plan;
        write!(f, "{scheme} {code} stripe {}", on_one_line(&stripe.0))?;
        match pacing {
            Pacing::Pipelined => {}
            Pacing::Serial => write!(f, ", one slice at a time")?,
            Pacing::WholeBlock => write!(f, ", by whole blocks")?,
        }
        let same_block =
            |a: &Output, b: &Output| a.sub_block.block == b.sub_block.block && a.requestor == b.requestor;
        let blocks =
            self.plan.outputs.chunk_by(same_block).zip([":"].into_iter().chain(std::iter::repeat(",")));
        for (outputs, separator) in blocks {
            write!(f, "{separator} {}", self.part_of_block(outputs))?;
        }
        writeln!(f)
    }

    /// Returns a text such as `b3 to n20` or `sub-blocks 1,2 of b3 to n20`.
    fn part_of_block(&self, outputs: &[Output]) -> String {
        let Output { sub_block: SubBlock { block, .. }, requestor } = outputs[0];
        let to = self.name(requestor);
        if outputs.len() == usize::from(self.plan.chunking.sub_blocks()) {
            return format!("{block} to {to}");
        }
        let subs: Vec<String> = outputs.iter().map(|output| output.sub_block.sub.to_string()).collect();
        let word = if subs.len() == 1 { "sub-block" } else { "sub-blocks" };
        format!("{word} {} of {block} to {to}", subs.join(","))
    }

    fn write_window(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let geometry = &self.plan.geometry;
        let slices = geometry.slices();
        write!(f, "window {}..{} of each sub-block", geometry.window.start, geometry.window.end)?;
        if let Some(chunk_bytes) = self.plan.chunking.chunk_bytes() {
            write!(f, " in chunks of {chunk_bytes}")?;
        }
        write!(f, ", {} of {}", count(u64::from(slices), "slice"), geometry.slice_bytes)?;
        if self.plan.slices.len() != slices {
            write!(f, " of which {}", self.plan.slices)?;
        }
        writeln!(f, ", {}", count(self.plan.lanes.len() as u64, "lane"))
    }

    /// The slices that travel a lane, as text.
    fn share(&self, lane: usize) -> String {
        let dealing = &self.plan.dealing;
        let positions = dealing.positions(lane as u16);
        if self.plan.lanes.len() == 1 {
            return "every slice".to_owned();
        }
        if dealing.round() > LISTED_POSITIONS && positions.len() > 1 {
            return format!("{} of {} slices", positions.len(), dealing.round());
        }
        let positions: Vec<String> = positions.iter().map(u32::to_string).collect();
        format!("slices {} mod {}", positions.join(","), dealing.round())
    }

    /// Writes a line such as `n2 reads b1: to n3 [n1#0 + 7·b1]; delivers b4 = …`.
    fn write_task(&self, f: &mut fmt::Formatter, task: &Task) -> fmt::Result {
        write!(f, "  {}", self.name(task.node))?;
        if !task.reads.is_empty() {
            let reads: Vec<String> = task.reads.iter().map(|sub_block| self.sub_block(*sub_block)).collect();
            write!(f, " reads {}", reads.join(" "))?;
        }
        let sends = task.sends.iter().map(|send| {
            let streams: Vec<String> =
                send.streams.iter().map(|stream| format!("[{}]", self.combination(stream))).collect();
            format!("to {} {}", self.name(send.to), streams.join(" "))
        });
        let delivers = task.delivers.iter().map(|delivery| {
            let output = self.plan.outputs[delivery.output as usize].sub_block;
            format!("delivers {} = {}", self.sub_block(output), self.combination(&delivery.combination))
        });
        let parts: Vec<String> = sends.chain(delivers).collect();
        writeln!(f, ": {}", parts.join("; "))
    }

    /// Writes received streams first, then local terms: the sum so far, then the terms that this node adds.
    fn combination(&self, terms: &[Summand]) -> String {
        let received = terms.iter().filter(|term| matches!(term.input, Input::Received(_)));
        let local = terms.iter().filter(|term| matches!(term.input, Input::Local(_)));
        let terms: Vec<String> = received.chain(local).map(|term| self.term(term)).collect();
        terms.join(" + ")
    }

    fn term(&self, term: &Summand) -> String {
        let input = match term.input {
            Input::Local(sub_block) => self.sub_block(sub_block),
            Input::Received(stream) => format!("{}#{}", self.name(stream.from), stream.stream),
        };
        if term.coefficient == 1 { input } else { format!("{}·{input}", term.coefficient) }
    }

    /// Returns `b3`, or `b3.0` if blocks have several sub-blocks.
    fn sub_block(&self, sub_block: SubBlock) -> String {
        let SubBlock { block: BlockIndex(block), sub } = sub_block;
        let whole = self.plan.chunking.sub_blocks() == 1;
        if whole { format!("b{block}") } else { format!("b{block}.{sub}") }
    }

    fn write_cost(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let cost = self.plan.cost();
        write!(f, "cost: {:.2} blocks over the network", cost.in_blocks(cost.network_bytes))?;
        if let Some(busiest) = cost.of(cost.busiest).filter(|busiest| busiest.load_bytes() > 0) {
            let (up, down) = (cost.in_blocks(busiest.sent_bytes), cost.in_blocks(busiest.received_bytes));
            write!(f, ", busiest node {} ({up:.2} up, {down:.2} down)", self.name(cost.busiest))?;
        }
        writeln!(f, ", {:.3} timeslots", cost.timeslots)?;
        let read = cost.in_blocks(cost.read_bytes);
        let (reads, mean) = (count(cost.reads, "read"), cost.mean_read_bytes());
        write!(f, "disks: {read:.2} blocks, {reads} of {mean} bytes")?;
        if cost.disk_bytes != cost.read_bytes {
            write!(f, ", {:.2} blocks with the gaps between", cost.in_blocks(cost.disk_bytes))?;
        }
        writeln!(f)
    }

    fn name(&self, node: NodeId) -> String {
        self.topology.map_or_else(|| node.to_string(), |topology| topology.name(node))
    }
}

/// Escapes line breaks and other control characters in a name. Users of a store may choose names of stripes.
fn on_one_line(name: &str) -> String {
    let mut line = String::with_capacity(name.len());
    for c in name.chars() {
        match c.is_control() {
            true => line.extend(c.escape_default()),
            false => line.push(c),
        }
    }
    line
}

/// Returns a text such as `1 lane` or `2 lanes`.
fn count(number: u64, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{plural}")
}
