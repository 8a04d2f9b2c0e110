//! Who could help, where a code leaves a choice: the network of these nodes, and which blocks do.

use codes::{BlockIndex, CodeSpec};

use super::network::Network;
use super::routes::Routes;
use super::{PlanRequest, Wanted};
use crate::{NodeId, Stripe, Topology};

/// Everybody who could take part in a repair of whole lost blocks, each with one block at most.
pub(super) struct Candidates {
    /// Holders first, then requestors that hold nothing, then spare nodes.
    pub network: Network,
    /// The block that each holder has.
    pub blocks: Vec<BlockIndex>,
    /// Where the wanted blocks go, as numbers in the network.
    pub requestors: Vec<usize>,
    /// How many of the blocks do, whichever.
    pub needed: usize,
}

impl Candidates {
    /// The candidates, or `None` where blocks cannot be chosen one by one: blocks that have sub-blocks or are still
    /// there, and holders of several blocks without whom there would be too few.
    ///
    /// `available` are the blocks that may be read, best first, and `sources` those that a recipe reads which the code
    /// itself chose: where not any `k` will do, it is these.
    pub fn new(
        stripe: &Stripe,
        request: &PlanRequest,
        available: &[BlockIndex],
        sources: &[BlockIndex],
        topology: &Topology,
    ) -> Option<Self> {
        let there = |wanted: &Wanted| available.contains(&wanted.block);
        if stripe.code.sub_blocks() != 1 || request.wanted.iter().any(there) {
            return None;
        }
        let any = matches!(stripe.code.spec(), CodeSpec::ReedSolomon { .. } | CodeSpec::Xor { .. });
        let (eligible, needed) =
            if any { (available, stripe.code.data_blocks()) } else { (sources, sources.len()) };
        let mut nodes: Vec<NodeId> = Vec::new();
        let mut blocks = Vec::new();
        for &block in eligible {
            let holder = stripe.block(block).holder.expect("available blocks are held");
            if !nodes.contains(&holder) {
                nodes.push(holder);
                blocks.push(block);
            }
        }
        if blocks.len() < needed {
            return None;
        }
        let mut requestors = Vec::new();
        for wanted in &request.wanted {
            let at = nodes.iter().position(|&node| node == wanted.requestor);
            requestors.push(at.unwrap_or_else(|| {
                nodes.push(wanted.requestor);
                nodes.len() - 1
            }));
        }
        let bytes = request.window.end - request.window.start;
        Some(Self { network: Network::new(nodes, bytes, topology), blocks, requestors, needed })
    }

    /// The routes over these nodes.
    pub fn routes(&self, trees: bool) -> Routes<'_> {
        Routes {
            network: &self.network,
            holders: (0..self.blocks.len()).collect(),
            decoders: (0..self.network.nodes.len()).collect(),
            requestors: self.requestors.clone(),
            needed: self.needed,
            trees,
        }
    }

    /// The only node to which wanted blocks go, if there is but one.
    pub fn sole_requestor(&self) -> Option<usize> {
        let first = *self.requestors.first()?;
        self.requestors.iter().all(|&requestor| requestor == first).then_some(first)
    }
}
