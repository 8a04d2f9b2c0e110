//! A plan: a repair as a DAG of linear combinations of byte streams, placed on nodes.
//!
//! A plan delivers *outputs* (sub-blocks, over one window of offsets) to their requestors. Its *lanes* are
//! different routes for different slices, and a [`Dealing`] assigns slices to lanes. In a lane every node has
//! at most one *task*: the sub-blocks it reads, the number of streams it receives from each sender, and the
//! combinations it sends and delivers.
//!
//! **Invariant:** in every lane each output is delivered exactly once, at its requestor, and the combination
//! delivered equals the code's equation for it; only holders read; a stream uses only streams that were
//! created before it, so no slice can wait for itself, however the streams between two nodes are ordered.
//! [`PlanBuilder`] asserts all of it: a plan that violates it is a bug in a planner.

use std::collections::BTreeMap;

use codes::{BlockIndex, Recipe, SubBlock};
use serde::{Deserialize, Serialize};

use crate::{Chunking, Dealing, Geometry, NodeId, Scheme, SliceSet, Stripe, StripeId};

/// How a node overlaps its work on slices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pacing {
    /// Reading, receiving, combining and sending overlap, slice by slice.
    Pipelined,
    /// Each slice is received, then read, combined and sent, before the next (the baseline Pipe-S).
    Serial,
    /// A stream is forwarded only once all of it has been combined (the baseline Pipe-B, and the rounds in
    /// which PPR and CRR are described). Nodes then hold whole blocks in memory.
    WholeBlock,
}

/// The memory that plans of whole blocks may take on one helper, in bytes.
pub const WHOLE_BLOCK_BYTES: u64 = 2 << 30;

/// A sub-block that a plan delivers, with its requestor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Output {
    /// The sub-block.
    pub sub_block: SubBlock,
    /// The node that receives it.
    pub requestor: NodeId,
}

/// An input of a combination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Input {
    /// A sub-block on the node's own disk.
    Local(SubBlock),
    /// Stream number `stream` of those that `from` sends to this node in this lane.
    Received(StreamRef),
}

/// One of the streams from one node to another in a lane, seen from the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StreamRef {
    /// The sender.
    pub from: NodeId,
    /// The number of the stream among those of this sender, in order of creation.
    pub stream: u16,
}

/// A term of a linear combination: `coefficient · input`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "SummandInBrief", into = "SummandInBrief")]
pub struct Summand {
    /// The input.
    pub input: Input,
    /// The coefficient; never zero.
    pub coefficient: u8,
}

/// A [`Summand`] in its serialized form, kept short: assignments of codes with many sub-blocks have tens of
/// thousands.
#[derive(Serialize, Deserialize)]
enum SummandInBrief {
    /// Block, sub-block, coefficient.
    #[serde(rename = "l")]
    Local(BlockIndex, u16, u8),
    /// Sender, stream, coefficient.
    #[serde(rename = "r")]
    Received(NodeId, u16, u8),
}

impl From<SummandInBrief> for Summand {
    fn from(brief: SummandInBrief) -> Self {
        match brief {
            SummandInBrief::Local(block, sub, coefficient) => {
                Self { input: Input::Local(SubBlock { block, sub }), coefficient }
            }
            SummandInBrief::Received(from, stream, coefficient) => {
                Self { input: Input::Received(StreamRef { from, stream }), coefficient }
            }
        }
    }
}

impl From<Summand> for SummandInBrief {
    fn from(Summand { input, coefficient }: Summand) -> Self {
        match input {
            Input::Local(SubBlock { block, sub }) => Self::Local(block, sub, coefficient),
            Input::Received(StreamRef { from, stream }) => Self::Received(from, stream, coefficient),
        }
    }
}

/// The sum of its terms.
pub type Combination = Vec<Summand>;

/// The streams that a task sends to one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Send {
    /// The receiver.
    pub to: NodeId,
    /// The combination that each stream carries, by stream number.
    pub streams: Vec<Combination>,
}

/// An output that a task produces at its own node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delivery {
    /// The index of the output in the plan.
    pub output: u32,
    /// The combination that computes it.
    pub combination: Combination,
}

/// The number of streams that a task receives from one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receive {
    /// The sender.
    pub from: NodeId,
    /// Number of streams.
    pub streams: u16,
}

/// One node's part of a lane.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    /// The node.
    pub node: NodeId,
    /// The local sub-blocks it reads, ascending.
    pub reads: Vec<SubBlock>,
    /// The streams it receives, ascending by sender.
    pub receives: Vec<Receive>,
    /// The streams it sends, ascending by receiver.
    pub sends: Vec<Send>,
    /// The outputs it delivers.
    pub delivers: Vec<Delivery>,
}

/// One route: the tasks of all nodes that take part, ascending by node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lane {
    /// At most one per node.
    pub tasks: Vec<Task>,
    /// The longest chain of streams from a reader to a requestor.
    pub hops: u32,
}

/// An immutable, valid plan. Printed by `Display`, priced by [`Plan::cost`](crate::Cost).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    pub(crate) scheme: Scheme,
    pub(crate) pacing: Pacing,
    pub(crate) stripe: StripeId,
    pub(crate) code: codes::CodeSpec,
    pub(crate) chunking: Chunking,
    pub(crate) geometry: Geometry,
    pub(crate) slices: SliceSet,
    pub(crate) outputs: Vec<Output>,
    pub(crate) lanes: Vec<Lane>,
    pub(crate) dealing: Dealing,
}

impl Plan {
    /// The scheme that it follows.
    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// How its nodes overlap their work on slices.
    pub fn pacing(&self) -> Pacing {
        self.pacing
    }

    /// The stripe it repairs.
    pub fn stripe(&self) -> &StripeId {
        &self.stripe
    }

    /// The window and how it is cut.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// The slices it moves: all of the geometry's, or those still missing after a failure.
    pub fn slices(&self) -> &SliceSet {
        &self.slices
    }

    /// The sub-blocks it delivers, with their requestors.
    pub fn outputs(&self) -> &[Output] {
        &self.outputs
    }

    /// Its routes.
    pub fn lanes(&self) -> &[Lane] {
        &self.lanes
    }

    /// The assignment of slices to lanes.
    pub fn dealing(&self) -> &Dealing {
        &self.dealing
    }

    /// The route of a slice.
    pub fn lane_of(&self, slice: u32) -> &Lane {
        &self.lanes[usize::from(self.dealing.lane_of(slice))]
    }

    /// The layout of the stripe's sub-blocks in their blocks.
    pub fn chunking(&self) -> &Chunking {
        &self.chunking
    }

    /// Bytes of a block of the stripe.
    pub fn block_bytes(&self) -> u64 {
        self.chunking.block_bytes()
    }

    /// All nodes with a task in some lane, ascending.
    pub fn nodes(&self) -> Vec<NodeId> {
        let mut nodes: Vec<NodeId> = self.tasks().map(|task| task.node).collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes
    }

    /// All tasks of all lanes.
    pub fn tasks(&self) -> impl Iterator<Item = &Task> {
        self.lanes.iter().flat_map(|lane| &lane.tasks)
    }

    /// Every pair `(from, to)` that shares at least one stream, ascending: the plan's data edges.
    pub fn edges(&self) -> Vec<(NodeId, NodeId)> {
        let mut edges: Vec<_> =
            self.tasks().flat_map(|task| task.sends.iter().map(|send| (task.node, send.to))).collect();
        edges.sort_unstable();
        edges.dedup();
        edges
    }
}

/// The resources that lanes need while they run, from which the slice size follows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Footprint {
    /// Number of lanes.
    pub lanes: usize,
    /// The longest chain of streams from a reader to a requestor.
    pub hops: u32,
    /// The most streams of one lane that begin or end at one node.
    pub streams: usize,
    /// Whether every received stream is delivered at once, as in a put, so that no node waits for several
    /// streams.
    pub passes_on: bool,
}

/// Builds a plan stream by stream and checks each one.
#[derive(Debug)]
pub struct PlanBuilder<'a> {
    stripe: &'a Stripe,
    recipe: &'a Recipe,
    source_index: BTreeMap<SubBlock, u32>,
    outputs: Vec<Output>,
    /// The relay of each broken link.
    relays: BTreeMap<(NodeId, NodeId), NodeId>,
    lanes: Vec<LaneDraft>,
}

type Row = Vec<(u32, u8)>;

#[derive(Debug, Default)]
struct LaneDraft {
    tasks: BTreeMap<NodeId, TaskDraft>,
    streams: BTreeMap<(NodeId, NodeId), Vec<Stream>>,
    delivered: Vec<bool>,
    hops: u32,
}

#[derive(Debug, Default)]
struct TaskDraft {
    reads: Vec<SubBlock>,
    sends: BTreeMap<NodeId, Vec<Combination>>,
    delivers: Vec<Delivery>,
}

impl TaskDraft {
    /// Whether every received stream is delivered as it is, without being combined or forwarded.
    fn passes_on(&self) -> bool {
        let is_received = |summand: &Summand| matches!(summand.input, Input::Received(_));
        let sent = self.sends.values().flatten();
        let delivered = self.delivers.iter().map(|delivery| &delivery.combination);
        !sent.flatten().any(is_received)
            && delivered.into_iter().all(|sum| sum.len() == 1 || !sum.iter().any(is_received))
    }
}

/// A stream's content as a combination of the recipe's sources.
#[derive(Debug)]
struct Stream {
    row: Row,
    hops: u32,
}

impl<'a> PlanBuilder<'a> {
    /// Starts a plan that delivers the outputs of `recipe`; `requestors[i]` gets output `i`.
    ///
    /// # Panics
    /// If there is not one requestor per output.
    pub fn new(stripe: &'a Stripe, recipe: &'a Recipe, requestors: &[NodeId]) -> Self {
        assert_eq!(recipe.outputs().len(), requestors.len(), "one requestor per output");
        let outputs = recipe
            .outputs()
            .iter()
            .zip(requestors)
            .map(|(&sub_block, &requestor)| Output { sub_block, requestor })
            .collect();
        let source_index = index(recipe);
        Self { stripe, recipe, source_index, outputs, relays: BTreeMap::new(), lanes: Vec::new() }
    }

    /// Routes the streams of each of these links through its relay.
    pub(crate) fn set_relays(&mut self, relays: BTreeMap<(NodeId, NodeId), NodeId>) {
        self.relays = relays;
    }

    /// Uses another recipe for the same outputs in the lanes that start next.
    ///
    /// # Panics
    ///
    /// If it has other outputs.
    pub fn follow(&mut self, recipe: &'a Recipe) {
        let outputs = self.outputs.iter().map(|output| &output.sub_block);
        assert!(outputs.eq(recipe.outputs()), "all lanes deliver the same");
        (self.recipe, self.source_index) = (recipe, index(recipe));
    }

    /// The recipe being placed.
    pub fn recipe(&self) -> &'a Recipe {
        self.recipe
    }

    /// The outputs, in the recipe's order.
    pub fn outputs(&self) -> &[Output] {
        &self.outputs
    }

    /// The node that holds source number `source` of the recipe.
    ///
    /// # Panics
    ///
    /// If there is none: recipes are made of available blocks.
    pub fn holder(&self, source: u32) -> NodeId {
        let block = self.recipe.sources()[source as usize].block;
        self.stripe.block(block).holder.expect("a recipe reads only blocks that are held")
    }

    /// Starts another lane and returns its number. Streams added from now on belong to it.
    pub fn lane(&mut self) -> u16 {
        self.lanes.push(LaneDraft { delivered: vec![false; self.outputs.len()], ..LaneDraft::default() });
        (self.lanes.len() - 1) as u16
    }

    /// Adds a stream between two nodes to the current lane, through the link's relay if it has one. Returns
    /// the stream as the receiver's input.
    ///
    /// # Panics
    /// If the combination is empty, or uses a block or stream that `from` does not have.
    pub fn send(&mut self, from: NodeId, to: NodeId, combination: Combination) -> Input {
        match self.relays.get(&(from, to)) {
            Some(&relay) => {
                let input = self.stream(from, relay, combination);
                self.stream(relay, to, vec![Summand { input, coefficient: 1 }])
            }
            None => self.stream(from, to, combination),
        }
    }

    fn stream(&mut self, from: NodeId, to: NodeId, combination: Combination) -> Input {
        assert_ne!(from, to, "a node does not send to itself");
        let (row, hops) = self.evaluate(from, &combination);
        assert!(!row.is_empty(), "a stream carries something");
        let lane = self.current();
        let streams = lane.streams.entry((from, to)).or_default();
        let stream = u16::try_from(streams.len()).expect("at most 65,536 streams between two nodes");
        streams.push(Stream { row, hops: hops + 1 });
        lane.use_in(from, &combination).sends.entry(to).or_default().push(combination);
        Input::Received(StreamRef { from, stream })
    }

    /// Delivers output number `output` at its requestor in the current lane.
    ///
    /// # Panics
    /// If it is delivered twice, or the combination is not the code's equation for it.
    pub fn deliver(&mut self, output: usize, combination: Combination) {
        let requestor = self.outputs[output].requestor;
        let (row, hops) = self.evaluate(requestor, &combination);
        assert_eq!(row, self.recipe.row(output), "output {} obeys the code", self.outputs[output].sub_block);
        let lane = self.current();
        assert!(!std::mem::replace(&mut lane.delivered[output], true), "an output is delivered once");
        lane.hops = lane.hops.max(hops);
        lane.use_in(requestor, &combination).delivers.push(Delivery { output: output as u32, combination });
    }

    /// Number of lanes so far.
    pub(crate) fn lanes(&self) -> usize {
        self.lanes.len()
    }

    /// Drops all lanes but these.
    pub(crate) fn keep(&mut self, lanes: &[usize]) {
        let mut number = 0..;
        self.lanes.retain(|_| number.next().is_some_and(|number| lanes.contains(&number)));
    }

    /// The pairs of nodes connected by a stream in some lane.
    pub(crate) fn links(&self) -> impl Iterator<Item = (NodeId, NodeId)> + '_ {
        self.lanes.iter().flat_map(|lane| lane.streams.keys().copied())
    }

    /// The resources that the lanes so far need while they run.
    pub(crate) fn footprint(&self) -> Footprint {
        let streams = self.lanes.iter().flat_map(|lane| lane.ports().into_values());
        Footprint {
            lanes: self.lanes.len(),
            hops: self.hops(),
            streams: streams.map(|(sent, received)| sent + received).max().unwrap_or(0),
            passes_on: self.lanes.iter().flat_map(|lane| lane.tasks.values()).all(TaskDraft::passes_on),
        }
    }

    /// The cost of the lanes so far, for comparisons: the most streams in one direction at one node; the
    /// number of streams; the number of hops.
    pub(crate) fn weight(&self) -> (usize, usize, u32) {
        let mut nodes: BTreeMap<NodeId, (usize, usize)> = BTreeMap::new();
        for (node, (sent, received)) in self.lanes.iter().flat_map(LaneDraft::ports) {
            let sum = nodes.entry(node).or_default();
            *sum = (sum.0 + sent, sum.1 + received);
        }
        let busiest = nodes.values().map(|&(sent, received)| sent.max(received)).max().unwrap_or(0);
        (busiest, nodes.values().map(|&(sent, _)| sent).sum(), self.hops())
    }

    fn hops(&self) -> u32 {
        self.lanes.iter().map(|lane| lane.hops).max().unwrap_or(0)
    }

    /// The finished plan.
    ///
    /// # Panics
    /// If a lane lacks an output, or slices are dealt to another number of lanes.
    pub fn finish(
        self,
        scheme: Scheme,
        pacing: Pacing,
        geometry: Geometry,
        slices: SliceSet,
        dealing: Dealing,
    ) -> Plan {
        assert_eq!(dealing.lanes(), self.lanes.len(), "slices are dealt to existing lanes");
        assert!(self.lanes.iter().all(|lane| lane.delivered.iter().all(|&d| d)), "lanes deliver all outputs");
        Plan {
            scheme,
            pacing,
            stripe: self.stripe.id.clone(),
            code: self.stripe.code.spec().clone(),
            chunking: self.stripe.chunking,
            geometry,
            slices,
            outputs: self.outputs,
            lanes: self.lanes.into_iter().map(LaneDraft::finish).collect(),
            dealing,
        }
    }

    fn current(&mut self) -> &mut LaneDraft {
        self.lanes.last_mut().expect("lane() comes first")
    }

    /// Expresses the combination in terms of the recipe's sources; also returns the number of hops before it.
    fn evaluate(&self, node: NodeId, combination: &[Summand]) -> (Row, u32) {
        let lane = self.lanes.last().expect("lane() comes first");
        let mut row = Row::new();
        let mut hops = 0;
        for term in combination {
            assert_ne!(term.coefficient, 0, "no term is zero");
            match term.input {
                Input::Local(sub_block) => {
                    let source = self.source_index[&sub_block];
                    assert_eq!(self.holder(source), node, "only the holder of {sub_block} reads it");
                    row.push((source, term.coefficient));
                }
                Input::Received(StreamRef { from, stream }) => {
                    let stream = &lane.streams[&(from, node)][usize::from(stream)];
                    row.extend(stream.row.iter().map(|&(source, c)| (source, gf::mul(term.coefficient, c))));
                    hops = hops.max(stream.hops);
                }
            }
        }
        (summed(row), hops)
    }
}

impl LaneDraft {
    /// The number of streams that every node sends and receives.
    fn ports(&self) -> BTreeMap<NodeId, (usize, usize)> {
        let mut ports: BTreeMap<NodeId, (usize, usize)> = BTreeMap::new();
        for (&(from, to), streams) in &self.streams {
            ports.entry(from).or_default().0 += streams.len();
            ports.entry(to).or_default().1 += streams.len();
        }
        ports
    }

    /// The task of `node`, after adding the local inputs of `combination` to its reads.
    fn use_in(&mut self, node: NodeId, combination: &[Summand]) -> &mut TaskDraft {
        let task = self.tasks.entry(node).or_default();
        for term in combination {
            if let Input::Local(sub_block) = term.input
                && let Err(at) = task.reads.binary_search(&sub_block)
            {
                task.reads.insert(at, sub_block);
            }
        }
        task
    }

    fn finish(mut self) -> Lane {
        let mut receives: BTreeMap<NodeId, Vec<Receive>> = BTreeMap::new();
        for (&(from, to), streams) in &self.streams {
            receives.entry(to).or_default().push(Receive { from, streams: streams.len() as u16 });
            self.tasks.entry(to).or_default();
        }
        let tasks = self
            .tasks
            .into_iter()
            .map(|(node, task)| Task {
                node,
                reads: task.reads,
                receives: receives.remove(&node).unwrap_or_default(),
                sends: task.sends.into_iter().map(|(to, streams)| Send { to, streams }).collect(),
                delivers: task.delivers,
            })
            .collect();
        Lane { tasks, hops: self.hops }
    }
}

/// The index of each of a recipe's sources.
fn index(recipe: &Recipe) -> BTreeMap<SubBlock, u32> {
    recipe.sources().iter().zip(0..).map(|(&source, index)| (source, index)).collect()
}

/// The row with one term per source, ascending, without zeros.
fn summed(mut row: Row) -> Row {
    row.sort_unstable_by_key(|&(source, _)| source);
    row.dedup_by(|next, kept| {
        let same = next.0 == kept.0;
        kept.1 ^= if same { next.1 } else { 0 };
        same
    });
    row.retain(|&(_, coefficient)| coefficient != 0);
    row
}
