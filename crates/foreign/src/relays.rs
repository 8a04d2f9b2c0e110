//! Repairs a stripe that another system wrote, as a cluster would: with one plan for whole shards, however
//! many chunks a shard has. The relays of all nodes execute the plan. Only sockets and disks are replaced;
//! all other code is that of the helpers.

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use codes::{BlockIndex, Code};
use repair::wire::control::ToNode;
use repair::{
    Action, Assignment, BlockId, Buffer, BufferPool, Chunking, Gathering, Job, JobAction, JobId, JobRequest,
    NodeId, NodeProfile, Policy, Relay, Scheme, Stripe, StripeBlock, StripeId, Topology, Verify, Wanted,
};

/// Memory limit of each relay, as in a helper.
const BUDGET_BYTES: usize = 512 << 10;

/// Frames in flight, by sender and receiver.
type Wires = BTreeMap<(NodeId, NodeId), VecDeque<(u16, u32, Vec<u8>)>>;

struct Node {
    id: NodeId,
    assignment: Assignment,
    relay: Relay,
    gathering: Gathering,
    has_finished: bool,
}

/// Rebuilds a lost block from all others with a scheme. `blocks` contains all n blocks, but the lost one is
/// not read.
///
/// # Errors
/// The reason why there is no plan, or why the plan does not finish.
pub fn rebuild(
    code: &Arc<dyn Code>,
    chunking: Chunking,
    blocks: &[Vec<u8>],
    lost: usize,
    scheme: Scheme,
) -> Result<Vec<u8>, String> {
    let mut nodes = assigned(code, chunking, blocks.len(), lost, scheme)?;
    let mut wires = Wires::new();
    let mut rebuilt = vec![0; chunking.block_bytes() as usize];
    loop {
        let mut has_moved = false;
        for node in &mut nodes {
            has_moved |= node.act(blocks, &mut wires, &mut rebuilt);
            has_moved |= node.receive(&mut wires)?;
        }
        if nodes.iter().all(|node| node.has_finished) {
            return Ok(rebuilt);
        }
        if !has_moved {
            return Err(format!("the {scheme} repair of b{lost} stands still"));
        }
    }
}

fn assigned(
    code: &Arc<dyn Code>,
    chunking: Chunking,
    n: usize,
    lost: usize,
    scheme: Scheme,
) -> Result<Vec<Node>, String> {
    let requestor = NodeId(n as u32);
    let mut topology = Topology::new();
    for node in 0..=requestor.0 {
        topology.set(NodeId(node), NodeProfile::helper(format!("h{node}"), format!("h{node}:7410")));
    }
    let block = |index: usize| StripeBlock {
        id: BlockId(format!("shard-{index}")),
        bytes: chunking.block_bytes(),
        holder: (index != lost).then_some(NodeId(index as u32)),
        digest: None,
    };
    let blocks = (0..n).map(block).collect();
    let stripe = Stripe { id: StripeId("shards".into()), code: code.clone(), chunking, blocks, label: None };
    let request = JobRequest {
        job: JobId(1),
        stripe,
        wanted: vec![Wanted { block: BlockIndex(lost as u16), requestor }],
        window: 0..chunking.sub_block_bytes(),
        sub_blocks: None,
        policy: Policy { scheme, ..Policy::default() },
        verify: Verify::default(),
        publish: true,
        tag: None,
        permits: Vec::new(),
    };
    let mut job = Job::new(request, [1; 32], &topology, Duration::ZERO);
    let mut nodes = Vec::new();
    while let Some(action) = job.poll() {
        if let JobAction::Tell { node, message: ToNode::Assign(assignment) } = action {
            nodes.push(Node::new(node, *assignment)?);
        }
    }
    if nodes.is_empty() { Err(format!("no {scheme} plan for b{lost}")) } else { Ok(nodes) }
}

impl Node {
    fn new(id: NodeId, assignment: Assignment) -> Result<Self, String> {
        let relay = Relay::new(&assignment, BUDGET_BYTES, BufferPool::default());
        let relay = relay.map_err(|error| error.to_string())?;
        let gathering = Gathering::new(&assignment);
        Ok(Self { id, assignment, relay, gathering, has_finished: false })
    }

    /// Carries out all actions that the relay requests. Returns whether there were any.
    fn act(&mut self, blocks: &[Vec<u8>], wires: &mut Wires, rebuilt: &mut [u8]) -> bool {
        let mut has_moved = false;
        while let Some(action) = self.relay.poll() {
            has_moved = true;
            match action {
                Action::ReadAhead { .. } => {}
                Action::Read { slice, locals, transfer } => {
                    let mut buffers: Vec<Buffer> =
                        locals.clone().map(|_| self.relay.buffer(transfer.buffer_bytes())).collect();
                    let block = &blocks[usize::from(transfer.block().0)];
                    let Ok(_) = transfer.read(block.len() as u64, &mut buffers, |at, bytes| {
                        bytes.copy_from_slice(&block[at as usize..][..bytes.len()]);
                        Ok::<bool, Infallible>(true)
                    });
                    for (local, buffer) in locals.zip(buffers) {
                        self.relay.handle_read(slice, local, buffer).expect("as long as it was asked for");
                    }
                }
                Action::Send { outlet, stream, slice, buffer, .. } => {
                    let wire = (self.id, self.assignment.outlets[outlet].to);
                    wires.entry(wire).or_default().push_back((stream, slice, buffer.to_vec()));
                    self.relay.handle_sent(slice, buffer);
                }
                Action::Deliver { output, slice, buffer } => {
                    let Some((transfer, buffers)) = self.gathering.add(output, slice, buffer) else {
                        continue;
                    };
                    let Ok(()) = transfer.write(rebuilt.len() as u64, &buffers, |at, bytes| {
                        rebuilt[at as usize..][..bytes.len()].copy_from_slice(bytes);
                        Ok::<(), Infallible>(())
                    });
                    buffers.into_iter().for_each(|buffer| self.relay.handle_delivered(slice, buffer));
                }
                Action::Finished => self.has_finished = true,
            }
        }
        has_moved
    }

    /// Passes arrived frames to the relay as long as it accepts frames. Returns whether there were any.
    fn receive(&mut self, wires: &mut Wires) -> Result<bool, String> {
        let mut has_moved = false;
        for inlet in 0..self.assignment.inlets.len() {
            let wire = wires.entry((self.assignment.inlets[inlet].from, self.id)).or_default();
            while self.relay.wants(inlet)
                && let Some((stream, slice, bytes)) = wire.pop_front()
            {
                let mut buffer = self.relay.buffer(bytes.len());
                buffer.copy_from_slice(&bytes);
                let taken = self.relay.handle_received(inlet, stream, slice, buffer);
                taken.map_err(|error| error.to_string())?;
                has_moved = true;
            }
        }
        Ok(has_moved)
    }
}
