//! Assignments as produced by the job.

use std::sync::Arc;
use std::time::Duration;

use codes::{BlockIndex, Code, CodeSpec};
use repair::wire::control::ToNode;
use repair::{
    Assignment, BlockId, Chunking, Job, JobAction, JobId, JobRequest, NodeId, NodeProfile, Policy, Scheme,
    Stripe, StripeBlock, StripeId, Topology, Verify, Wanted,
};

/// The assignments of a job that repairs block 1 on a node that holds no block.
pub fn assignments(code: &str, block_bytes: u64, scheme: Scheme, slice_bytes: u32) -> Vec<Assignment> {
    chunked(code, (block_bytes, None), scheme, slice_bytes)
}

/// Like [`assignments`], for a stripe whose blocks have chunks.
pub fn chunked(
    code: &str,
    (block_bytes, chunk_bytes): (u64, Option<u64>),
    scheme: Scheme,
    slice_bytes: u32,
) -> Vec<Assignment> {
    let code = code.parse::<CodeSpec>().unwrap().build().unwrap();
    let n = code.blocks() as u32;
    let holder = |index: u32| (index != 1).then_some(NodeId(index));
    let wanted = vec![Wanted { block: BlockIndex(1), requestor: NodeId(n) }];
    let policy = Policy { scheme, slice_bytes: Some(slice_bytes), ..Policy::default() };
    assigned(code, (block_bytes, chunk_bytes), holder, wanted, policy)
}

/// The assignments of a put by node n, which holds all data; block i goes to node i.
pub fn put(code: &str, block_bytes: u64, slice_bytes: u32) -> Vec<Assignment> {
    let code = code.parse::<CodeSpec>().unwrap().build().unwrap();
    let (n, k) = (code.blocks() as u16, code.data_blocks() as u32);
    let holder = |index: u32| (index < k).then_some(NodeId(n.into()));
    let wanted = (0..n).map(|index| Wanted { block: BlockIndex(index), requestor: NodeId(index.into()) });
    let policy = Policy { scheme: Scheme::Conventional, slice_bytes: Some(slice_bytes), ..Policy::default() };
    assigned(code, (block_bytes, None), holder, wanted.collect(), policy)
}

fn assigned(
    code: Arc<dyn Code>,
    (block_bytes, chunk_bytes): (u64, Option<u64>),
    holder: impl Fn(u32) -> Option<NodeId>,
    wanted: Vec<Wanted>,
    policy: Policy,
) -> Vec<Assignment> {
    let n = code.blocks() as u32;
    let mut topology = Topology::new();
    for node in 0..=n {
        let address = format!("127.0.0.1:{}", 7410 + node);
        topology.set(NodeId(node), NodeProfile::helper(format!("h{node}"), address));
    }
    let blocks = (0..n).map(|index| StripeBlock {
        id: BlockId(format!("1.{index}")),
        bytes: block_bytes,
        holder: holder(index),
        digest: None,
    });
    let chunking = Chunking::of(&*code, block_bytes, chunk_bytes).unwrap();
    let stripe = Stripe { id: StripeId("1".into()), code, chunking, blocks: blocks.collect(), label: None };
    let request = JobRequest {
        job: JobId(1),
        window: 0..stripe.sub_block_bytes(),
        stripe,
        wanted,
        sub_blocks: None,
        policy,
        verify: Verify::default(),
        publish: true,
        tag: None,
        permits: Vec::new(),
    };
    let mut job = Job::new(request, [1; 32], &topology, Duration::ZERO);
    std::iter::from_fn(|| job.poll())
        .filter_map(|action| match action {
            JobAction::Tell { message: ToNode::Assign(assignment), .. } => Some(*assignment),
            _ => None,
        })
        .collect()
}
