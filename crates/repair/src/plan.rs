//! A plan: a repair as a DAG of linear combinations of byte streams, placed on nodes.
//!
//! A plan delivers *outputs* (sub-blocks, over one window of offsets) to their requestors. Its *lanes* are
//! different routes for different slices, and a [`Dealing`] assigns slices to lanes. In a lane every node has
//! at most one *task*: the sub-blocks it reads, the number of streams it receives from each sender, and the
//! combinations it sends and delivers.
//!
//! **Invariant:** in every lane each output is delivered exactly once, at its requestor, and the delivered
//! combination equals the code's equation for the output; only holders read; a stream uses only streams that
//! were created before it, so no slice can wait for itself, however the streams between two nodes are
//! ordered. [`PlanBuilder`] asserts the whole invariant: a plan that violates it is a bug in a planner.

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
    /// One slice at a time: a node receives a slice, reads local data for it, combines and sends, and only
    /// then begins the next slice (the baseline Pipe-S). A slice counts as sent when the receiver has it, and the
    /// node before sends the next slice only then, so the kernels' buffers do not overlap these steps.
    Serial,
    /// A node forwards a stream only after it has combined all of it (the baseline Pipe-B, and the rounds of
    /// the papers on PPR and CRR). Nodes therefore keep whole blocks in memory.
    WholeBlock,
}

/// Limit on the memory that plans with [`Pacing::WholeBlock`] may use on one helper, in bytes.
pub const WHOLE_BLOCK_BYTES: u64 = 2 << 30;

/// A sub-block that a plan delivers, with its requestor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Output {
    /// The sub-block.
    pub sub_block: SubBlock,
    /// The node that receives the sub-block.
    pub requestor: NodeId,
}

/// An input of a combination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Input {
    /// A sub-block on the node's own disk.
    Local(SubBlock),
    /// A stream that this node receives from another node in this lane.
    Received(StreamRef),
}

/// One of the streams that a node receives from another node in a lane.
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

/// The serialized form of a [`Summand`]. It is kept short because an assignment for a code with many
/// sub-blocks contains tens of thousands of summands.
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

/// A linear combination: the sum of these terms.
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
    /// The combination that computes the output.
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
    /// The local sub-blocks that the node reads, ascending.
    pub reads: Vec<SubBlock>,
    /// The streams that the node receives, ascending by sender.
    pub receives: Vec<Receive>,
    /// The streams that the node sends, ascending by receiver.
    pub sends: Vec<Send>,
    /// The outputs that the node delivers.
    pub delivers: Vec<Delivery>,
}

/// One route: the tasks of all nodes that take part, ascending by node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lane {
    /// The tasks, at most one per node.
    pub tasks: Vec<Task>,
    /// The number of streams in the longest chain from a reader to a requestor.
    pub hops: u32,
}

/// An immutable, valid plan. `Display` prints it, and [`Plan::cost`](crate::Cost) computes its cost.
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
    /// The scheme that the plan follows.
    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// How the plan's nodes overlap their work on slices.
    pub fn pacing(&self) -> Pacing {
        self.pacing
    }

    /// The stripe that the plan repairs.
    pub fn stripe(&self) -> &StripeId {
        &self.stripe
    }

    /// The window of offsets that the plan covers, and its division into slices.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// The slices that the plan moves: all slices of the window or, after a failure, only the missing ones.
    pub fn slices(&self) -> &SliceSet {
        &self.slices
    }

    /// The sub-blocks that the plan delivers, with their requestors.
    pub fn outputs(&self) -> &[Output] {
        &self.outputs
    }

    /// The routes of the plan.
    pub fn lanes(&self) -> &[Lane] {
        &self.lanes
    }

    /// The assignment of slices to lanes.
    pub fn dealing(&self) -> &Dealing {
        &self.dealing
    }

    /// The lane that carries slice `slice`.
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

    /// Every pair of nodes `(from, to)` that shares at least one stream, ascending: the plan's data edges.
    pub fn edges(&self) -> Vec<(NodeId, NodeId)> {
        let mut edges: Vec<_> =
            self.tasks().flat_map(|task| task.sends.iter().map(|send| (task.node, send.to))).collect();
        edges.sort_unstable();
        edges.dedup();
        edges
    }
}

/// The resources that a plan's lanes need while they run. The planner derives the slice size from them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Footprint {
    /// Number of lanes.
    pub lanes: usize,
    /// The number of streams in the longest chain from a reader to a requestor.
    pub hops: u32,
    /// The largest number of streams, sent and received together, that one node has in one lane.
    pub streams: usize,
    /// Whether nodes deliver every received stream as it is, so that no node waits for several streams. This
    /// is so in a put.
    pub passes_on: bool,
}

/// Builds a plan stream by stream and checks each one.
#[derive(Debug)]
pub struct PlanBuilder<'a> {
    stripe: &'a Stripe,
    recipe: &'a Recipe,
    source_index: BTreeMap<SubBlock, u32>,
    outputs: Vec<Output>,
    /// The node that relays the streams of each broken link `(from, to)`.
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

    /// Sends the streams of each link `(from, to)` in `relays` through the node that is given there.
    pub(crate) fn set_relays(&mut self, relays: BTreeMap<(NodeId, NodeId), NodeId>) {
        self.relays = relays;
    }

    /// Uses `recipe`, which has the same outputs, in all lanes that are started from now on.
    ///
    /// # Panics
    ///
    /// If `recipe` has other outputs than the recipe before.
    pub fn follow(&mut self, recipe: &'a Recipe) {
        let outputs = self.outputs.iter().map(|output| &output.sub_block);
        assert!(outputs.eq(recipe.outputs()), "all lanes deliver the same");
        (self.recipe, self.source_index) = (recipe, index(recipe));
    }

    /// The recipe that the current lane follows.
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
    /// If no node holds the source's block; recipes use only blocks that are available.
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
    /// If the lane already delivers the output, or `combination` is not the code's equation for the output.
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

    /// Drops all lanes except those with the given numbers.
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

    /// The cost of the lanes so far, for comparing candidates: the largest number of streams that one node
    /// sends or receives in all lanes, the total number of streams, and the number of hops.
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

    /// Returns the finished plan.
    ///
    /// # Panics
    /// If a lane does not deliver all outputs, or `dealing` is for a different number of lanes.
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

    /// Expresses the combination in terms of the recipe's sources. Also returns the number of hops of the
    /// longest chain of streams that leads to it.
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
    /// The numbers of streams that each node sends and receives.
    fn ports(&self) -> BTreeMap<NodeId, (usize, usize)> {
        let mut ports: BTreeMap<NodeId, (usize, usize)> = BTreeMap::new();
        for (&(from, to), streams) in &self.streams {
            ports.entry(from).or_default().0 += streams.len();
            ports.entry(to).or_default().1 += streams.len();
        }
        ports
    }

    /// Adds the local inputs of `combination` to the reads of `node`'s task and returns the task.
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

/// Maps each source of a recipe to its index.
fn index(recipe: &Recipe) -> BTreeMap<SubBlock, u32> {
    recipe.sources().iter().zip(0..).map(|(&source, index)| (source, index)).collect()
}

/// Normalizes a row: adds up terms of the same source, drops zero coefficients and sorts by source.
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
