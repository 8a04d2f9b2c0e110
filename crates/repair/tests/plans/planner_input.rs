//! A stripe on a cluster and a request, described by one line of text.

use std::ops::Range;
use std::sync::Arc;

use codes::{BlockIndex, Code, CodeSpec};
use repair::{
    BlockId, Chunking, Geometry, NodeId, NodeProfile, Plan, PlanError, PlanRequest, Policy, Resource,
    Stretch, Stripe, StripeBlock, StripeId, Topology, Trunk, Wanted, plan,
};

/// The planner's inputs.
///
/// Unless the text says otherwise, block i is on node i+1 and the wanted blocks are lost. Every node named in
/// the text exists.
pub struct PlannerInput {
    pub stripe: Stripe,
    pub topology: Topology,
    pub request: PlanRequest,
}

impl PlannerInput {
    /// Parses clauses separated by semicolons:
    ///
    /// ```text
    /// rs-6-4; block 65536; chunk 4096; want b1>n20 b2>n21; by ppr; slice 4096; window 0..9000; on b3=n2;
    /// lost b5; held b1; subs 0..2; avoid n3; prefer n4 n2; chain 8192*n1>n2>n4>n5; dead n4; load n5=3;
    /// busy n2=1000; rate n6=1e6; rack n1=a; trunk a=1e6/2e6; link n1>n2=1e6; broken n1-n2; resume 1,3-5;
    /// pacing whole-block
    /// ```
    pub fn new(text: &str) -> Self {
        let mut clauses = text.split(';').map(str::trim).filter(|clause| !clause.is_empty());
        let spec: CodeSpec = clauses.next().expect("a code").parse().expect("a code's name");
        let mut input =
            Self::of(spec.build().expect("a code"), (64u64 << 10).next_multiple_of(spec.sub_blocks() as u64));
        for clause in clauses {
            let (verb, words) = clause.split_once(' ').expect("a verb and words");
            words.split_whitespace().for_each(|word| input.tell(verb, word));
        }
        input
    }

    pub fn of(code: Arc<dyn Code>, block_bytes: u64) -> Self {
        let mut topology = Topology::new();
        let blocks = (0..code.blocks() as u32).map(|index| {
            let holder = NodeId(index + 1);
            topology.set(holder, NodeProfile::unknown(format!("dn{:02}", index + 1)));
            StripeBlock {
                id: BlockId(format!("17.{index}")),
                bytes: block_bytes,
                holder: Some(holder),
                digest: None,
            }
        });
        let blocks = blocks.collect();
        let chunking = Chunking::whole(&*code, block_bytes);
        let window = 0..chunking.sub_block_bytes();
        let policy = Policy::default();
        let request = PlanRequest { wanted: Vec::new(), window, sub_blocks: None, resume: None, policy };
        Self {
            stripe: Stripe { id: StripeId("17".into()), chunking, code, blocks, label: None },
            topology,
            request,
        }
    }

    fn tell(&mut self, verb: &str, word: &str) {
        match verb {
            "chunk" => self.set_chunk_bytes(word.parse().expect("bytes")),
            "block" => self.set_block_bytes(word.parse().expect("bytes")),
            "want" => {
                let (block, requestor) = pair(word, '>');
                let (block, requestor) = (block_of(block), node_of(requestor));
                self.know(requestor);
                self.stripe.blocks[usize::from(block.0)].holder = None;
                self.request.wanted.push(Wanted { block, requestor });
            }
            "held" => self.place(block_of(word), Some(NodeId(u32::from(block_of(word).0) + 1))),
            "lost" => self.place(block_of(word), None),
            "on" => {
                let (block, node) = pair(word, '=');
                self.place(block_of(block), Some(node_of(node)));
            }
            "by" => self.request.policy.scheme = word.parse().expect("a scheme"),
            "slice" => self.request.policy.slice_bytes = Some(word.parse().expect("bytes")),
            "pacing" => {
                let pacing = serde_json::from_value(word.into()).expect("a pacing");
                self.request.policy.pacing = Some(pacing);
            }
            "window" => self.request.window = range(word),
            "subs" => {
                let subs = range(word);
                self.request.sub_blocks = Some(subs.start as u16..subs.end as u16);
            }
            "avoid" => drop(self.request.policy.avoid.insert(node_of(word))),
            "prefer" => self.request.policy.prefer.push(node_of(word)),
            "chain" => {
                let (bytes, helpers) = pair(word, '*');
                let stretches = &mut self.request.policy.stretches;
                let start = stretches.last().map_or(0, |last| last.offsets.end);
                let offsets = start..start + bytes.parse::<u64>().expect("bytes");
                stretches.push(Stretch { offsets, helpers: helpers.split('>').map(node_of).collect() });
            }
            "dead" => self.view(node_of(word)).alive = false,
            "load" => {
                let (node, load) = pair(word, '=');
                self.view(node_of(node)).load = load.parse().expect("a load");
            }
            "busy" => {
                let (node, bytes) = pair(word, '=');
                let node = node_of(node);
                self.know(node);
                self.topology.reserve(Resource::Uplink(node), bytes.parse().expect("bytes"));
            }
            "rate" => {
                let (node, rate) = pair(word, '=');
                let rate = rate.parse().expect("a rate");
                let view = self.view(node_of(node));
                (view.rates.up, view.rates.down) = (rate, rate);
            }
            "rack" => {
                let (node, rack) = pair(word, '=');
                self.view(node_of(node)).rack = Some(rack.to_owned());
            }
            "trunk" => {
                let (rack, rates) = pair(word, '=');
                let (up, down) = pair(rates, '/');
                let trunk = Trunk { up: up.parse().expect("a rate"), down: down.parse().expect("a rate") };
                self.topology.set_trunk(rack, trunk).expect("rates");
            }
            "link" => {
                let (ends, rate) = pair(word, '=');
                let (from, to) = pair(ends, '>');
                let rate = rate.parse().expect("a rate");
                self.topology.set_pair(node_of(from), node_of(to), rate).expect("a rate");
            }
            "broken" => {
                let (a, b) = pair(word, '-');
                self.topology.break_link(node_of(a), node_of(b));
            }
            "resume" => {
                let pairs = word.split(',').map(|part| {
                    let (start, end) = part.split_once('-').unwrap_or((part, part));
                    (start.parse().expect("a slice"), end.parse::<u32>().expect("a slice") + 1)
                });
                let slices = pairs.collect::<Vec<(u32, u32)>>().into();
                let slice_bytes = self.request.policy.slice_bytes.expect("`slice` before `resume`");
                let geometry = Geometry { window: self.request.window.clone(), slice_bytes };
                self.request.resume = Some((geometry, slices));
            }
            _ => panic!("a input has no `{verb}`"),
        }
    }

    /// Encodes the blocks in chunks of `bytes` bytes.
    pub fn set_chunk_bytes(&mut self, bytes: u64) {
        let chunking = Chunking::of(&*self.stripe.code, self.stripe.block_bytes(), Some(bytes));
        self.stripe.chunking = chunking.expect("chunks divide the block");
    }

    fn set_block_bytes(&mut self, bytes: u64) {
        self.stripe.chunking = Chunking::whole(&*self.stripe.code, bytes);
        self.stripe.blocks.iter_mut().for_each(|block| block.bytes = bytes);
        self.request.window = 0..self.stripe.sub_block_bytes();
    }

    /// Places a block on a node, or marks it as lost.
    pub fn place(&mut self, block: BlockIndex, holder: Option<NodeId>) {
        holder.into_iter().for_each(|node| self.know(node));
        self.stripe.blocks[usize::from(block.0)].holder = holder;
    }

    /// Adds a node unless it exists.
    pub fn know(&mut self, node: NodeId) {
        if self.topology.get(node).is_none() {
            self.topology.set(node, NodeProfile::unknown(format!("dn{:02}", node.0)));
        }
    }

    fn view(&mut self, node: NodeId) -> &mut NodeProfile {
        self.know(node);
        self.topology.get_mut(node).expect("a known node")
    }

    pub fn try_plan(&self) -> Result<Plan, PlanError> {
        plan(&self.stripe, &self.request, &self.topology)
    }

    pub fn plan(&self) -> Plan {
        self.try_plan().unwrap_or_else(|error| panic!("{error}"))
    }
}

fn pair(word: &str, separator: char) -> (&str, &str) {
    word.split_once(separator).unwrap_or_else(|| panic!("`{word}` has no {separator}"))
}

fn block_of(word: &str) -> BlockIndex {
    BlockIndex(word.strip_prefix('b').and_then(|digits| digits.parse().ok()).expect("a block, as b3"))
}

fn node_of(word: &str) -> NodeId {
    NodeId(word.strip_prefix('n').and_then(|digits| digits.parse().ok()).expect("a node, as n3"))
}

fn range(word: &str) -> Range<u64> {
    let (start, end) = word.split_once("..").expect("a range");
    start.parse().expect("a number")..end.parse().expect("a number")
}
